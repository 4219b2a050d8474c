"""A real server for tests: starts `atoll serve` on a free loopback port with a state directory of its
own, talks to it, kills it, and checks that nothing is left of it.

Used by the pytest fixtures (tests/e2e/conftest.py), the crash test and the bench. Nothing here knows
more of the server than its users do: the command line, HTTP, the admin token's file, /proc.
"""
import base64
import contextlib
import ctypes
import hashlib
import hmac
import http.client
import json as json_
import os
import pathlib
import secrets
import select
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ATOLL_BUILD", ROOT / "build")).resolve()
BIN = os.environ.get("ATOLL_BIN", str(BUILD / "atoll"))
# Sanitizer builds are slower and larger.
SANITIZED = 5 if any(san in BIN for san in ("build-address", "build-thread", "build-undefined")) else 1


def load():
    """How many processes want each core, at least one: a busy machine is as many times slower."""
    return min(20, max(1, os.getloadavg()[0] / os.cpu_count()))


# How much longer than on a quiet machine everything may take that is not itself a measurement. (Files run
# side by side, and a limit that is only reached by what fails costs nothing.)
SLOW = SANITIZED * 2 * load()
# A process with a thread of the sanitizer's cannot make a user namespace for itself.
NO_USERNS = "build-thread" in BIN
READY_SECONDS = 10 * SLOW
STOP_SECONDS = 15 * SLOW
PR_SET_CHILD_SUBREAPER = 36
BOXES = "/api/v1/sandboxes"
TOKEN_FILE, SOCKET_FILE = "admin.token", "atoll.sock"


def adopt_orphans():
    """Makes this process the parent of what its children leave behind, so that it can be found."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid):
    """Direct children of a process, of all its threads. It may end meanwhile, and so may they."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            found += [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        except OSError:
            pass
    return found


def cgroups_of(pid):
    """As /proc says them; "" of a process that is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def descendants(pid):
    found, todo = [], [pid]
    while todo:
        for child in children(todo.pop()):
            found.append(child)
            todo.append(child)
    return found


def stat_words(pid):
    """Of /proc/PID/stat from the state on; none when there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def alive(pid):
    return stat_words(pid)[:1] not in ([], ["Z"])


def born(pid):
    """Numbers of processes come again soon on a busy machine; with this they are who they were."""
    return (stat_words(pid) or [None] * 20)[19]


def proc_status(pid):
    """/proc/PID/status as a dictionary of stripped strings."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {k: v.strip() for k, v in (line.split(":", 1) for line in lines)}


def free_port():
    """Not one that the kernel gives to connections: a server that is away for a moment finds it free again."""
    while True:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", 15000 + secrets.randbelow(17000)))
                return s.getsockname()[1]
            except OSError:
                pass


def wait_until(fn, seconds, what, pause=0.01):
    """Polls until fn() is true and returns what it gave; says what it waited for otherwise."""
    end = time.monotonic() + seconds * SLOW
    while True:
        got = fn()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(pause)


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json_.loads(self.body)

    @property
    def error(self):
        """The "error" object, after a check that it has the shape every error must have."""
        assert self.headers["content-type"].startswith("application/json"), self
        error = self.json()["error"]
        assert isinstance(error["code"], str) and error["code"], self
        assert isinstance(error["message"], str) and error["message"], self
        assert "request_id" in error and "field" in error, self
        return error

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class Sse:
    """One event stream, read by hand so that every byte of it can be judged.

    next(seconds) gives the next dispatched event as {"id","event","data","retry"}, or None when the
    time is over; `comments` and `retry` collect what is not an event. EOFError when it ends.
    """

    def __init__(self, sock, head_seconds=5):
        self.sock = sock
        self.raw = b""  # not yet de-chunked
        self.text = b""  # not yet parsed
        self.comments, self.retry = [], None
        self.ended = False  # the last chunk has come
        self.fields = {}
        self.last_id = None
        end = time.monotonic() + head_seconds
        while b"\r\n\r\n" not in self.raw:
            self._fill(end)
        head, self.raw = self.raw.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        self.chunked = self.headers.get("transfer-encoding") == "chunked"

    def _fill(self, end):
        left = end - time.monotonic()
        if left <= 0 or not select.select([self.sock], [], [], left)[0]:
            raise TimeoutError
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        self.raw += data

    def _dechunk(self):
        if not self.chunked:
            self.text, self.raw = self.text + self.raw, b""
            return
        while b"\r\n" in self.raw:
            size_text, rest = self.raw.split(b"\r\n", 1)
            size = int(size_text.split(b";")[0], 16)
            if size == 0:
                self.ended = True
                return
            if len(rest) < size + 2:
                return
            assert rest[size:size + 2] == b"\r\n", "chunk without its end"
            self.text, self.raw = self.text + rest[:size], rest[size + 2:]

    def _line(self, line):
        """One field; the finished event at an empty line."""
        if line == "":
            event, self.fields = self.fields, {}
            return event if "data" in event else None
        if line.startswith(":"):
            self.comments.append(line[1:].strip())
            return None
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data" and "data" in self.fields:
            value = self.fields["data"] + "\n" + value
        if name == "retry":
            self.retry = int(value)
        if name == "id":
            self.last_id = value
        self.fields[name] = value
        return None

    def next(self, seconds=5):
        end = time.monotonic() + seconds
        while True:
            self._dechunk()
            while b"\n" in self.text:
                line, self.text = self.text.split(b"\n", 1)
                event = self._line(line.rstrip(b"\r").decode())
                if event is not None:
                    return event
            if self.ended:
                raise EOFError
            try:
                self._fill(end)
            except TimeoutError:
                return None

    def take(self, count, seconds=10):
        got = []
        end = time.monotonic() + seconds
        while len(got) < count:
            event = self.next(max(0.0, end - time.monotonic()))
            if event is None:
                raise AssertionError(f"{len(got)} of {count} events within {seconds} s: {got}")
            got.append(event)
        return got

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Server:
    """One `atoll serve`, from start() to stop(). state=None makes a directory and removes it."""

    def __init__(self, args=(), env=None, binary=None, state=None, port=None, tls=False,
                 prefix=()):
        self.binary = str(binary or BIN)
        self.words = ["serve"]
        self.prefix = list(prefix)  # a program that becomes the server: another user, say
        self.args, self.env = list(args), dict(env or {})
        self.own_state = state is None
        self.state = pathlib.Path(state or tempfile.mkdtemp(prefix="atoll-e2e-"))
        if self.own_state:
            # The api process runs as another user when started by root; it must be able to pass.
            self.state.chmod(0o755)
            self.top, self.state = self.state, self.state / "state"
        self.port = port or free_port()
        self.tls = tls
        self.log_path = (self.top if self.own_state else self.state.parent) / "serve.log"
        self.process = None
        self.seen = {}  # every process it ever had, and when it began

    # ---- life ----

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return ("https://" if self.tls else "http://") + self.host

    @property
    def warden_pid(self):
        """The process that was started: supervisor, and warden when root."""
        return self.process.pid

    def start(self, ready=True):
        scheme = "https://" if self.tls else ""
        argv = [*self.prefix, self.binary, *self.words, "--listen", scheme + self.host, "--state", str(self.state),
                "--pool-default", "0"]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
        try:
            with open(self.log_path, "ab") as log:
                self.process = subprocess.Popen(argv + self.args, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log, env={**clean, **self.env})
            if ready:
                self.wait_ready()
        except BaseException:
            self.stop(check=False)
            raise
        return self

    def is_ready(self):
        try:
            return self.request("GET", "/readyz", token=None, timeout=2).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_ready(self, seconds=READY_SECONDS):
        start = time.monotonic()
        while not self.is_ready():
            if self.process.poll() is not None:
                raise AssertionError(f"serve ended with {self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() - start > seconds:
                raise AssertionError(f"not ready within {seconds} s:\n{self.log_tail()}")
            time.sleep(0.005)
        self.note_processes()
        return time.monotonic() - start

    def note_processes(self):
        for pid in [self.warden_pid] + descendants(self.warden_pid):
            self.seen[pid] = born(pid)

    def left(self):
        return [pid for pid, when in self.seen.items() if alive(pid) and born(pid) == when]

    def api_pid(self):
        """The process that serves: the one below the warden that holds the listening socket. After a kill there is
        none for a while."""
        return wait_until(self.find_api, 10, "an api process")

    def find_api(self):
        inode = listening_inode(self.port)
        self.note_processes()
        for pid in descendants(self.warden_pid):
            if inode and holds_socket(pid, inode):
                return pid
        # Another user's descriptors cannot be read, and one that has just begun has none.
        return next((pid for pid in children(self.warden_pid) if cmdline(pid).split()[1:2] == ["api"]), None)

    def kill9_api(self):
        pid = self.api_pid()
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill9_all(self, wait=True):
        """Everything at once, supervisor first, as when the machine's OOM killer runs amok."""
        self.note_processes()
        pids = [self.warden_pid] + descendants(self.warden_pid)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(STOP_SECONDS)
        if wait:
            self.wait_gone()

    def restart(self, ready=True):
        if self.process and self.process.poll() is None:
            self.stop(check=True, remove=False)
        return self.start(ready)

    def wait_gone(self, seconds=10):
        """Nothing that ever belonged to it may be alive."""
        wait_until(lambda: not self.left(), seconds, "the end of " +
                   ", ".join(f"{pid} {' '.join(stat_words(pid)[:2])} {cmdline(pid)}" for pid in self.left()))
        reap(self.seen.keys() - {self.process.pid})

    def stop(self, check=True, remove=True, sig=signal.SIGTERM):
        """Asks it to end, and by default insists that it did so cleanly and left nothing."""
        try:
            status = None
            if self.process and self.process.poll() is None:
                self.note_processes()
                self.process.send_signal(sig)
            if self.process:
                try:
                    status = self.process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    raise AssertionError(f"still running {STOP_SECONDS} s after {sig!r}:\n{self.log_tail()}")
            if check and self.process:
                assert status == 0, f"serve ended with {status}:\n{self.log_tail()}"
                self.wait_gone()
                assert listening_inode(self.port) is None, "something still listens on the port"
                assert not (self.state / SOCKET_FILE).exists(), "the Unix socket's file is left"
                san = [line for line in self.log().splitlines() if "Sanitizer" in line or "runtime error:" in line]
                assert not san, "\n".join(san)
        finally:
            for pid in self.left():
                with contextlib.suppress(ProcessLookupError):  # it may end by itself just now
                    os.kill(pid, signal.SIGKILL)
            if self.process and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.process:
                reap(self.seen.keys() - {self.process.pid})
            if remove and self.own_state:
                shutil.rmtree(self.top, ignore_errors=True)

    def log(self):
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def log_tail(self, lines=40):
        return "\n".join(self.log().splitlines()[-lines:])

    # ---- talking ----

    @property
    def token(self):
        return (self.state / TOKEN_FILE).read_text().strip()

    @property
    def socket_path(self):
        return self.state / SOCKET_FILE

    def connect(self, source=None, timeout=10):
        """A bare connection, for requests no library would send. `source` is another 127/8 address:
        limits by peer then count apart."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout,
                                        (source, 0) if source else None)
        return client_tls().wrap_socket(sock, server_hostname="localhost") if self.tls else sock

    def raw(self, data, source=None, seconds=5):
        """Sends bytes as they are; returns all that comes back until close or silence."""
        with self.connect(source) as sock:
            try:
                sock.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it may refuse before it has heard all
            return read_all(sock, seconds)

    def raw_status(self, data, source=None):
        """The status of the first reply to raw bytes; 0 when closed without one."""
        with self.connect(source, timeout=5) as sock:
            try:
                sock.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            answer = b""
            try:
                while b"\r\n" not in answer and (more := sock.recv(4096)):
                    answer += more
            except (TimeoutError, ConnectionResetError):
                pass
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0

    def request(self, method, path, json=None, body=None, headers=None, token="admin", source=None,
                timeout=10, unix=False):
        """One request on its own connection. token="admin" is the owner's, None sends none."""
        if unix:
            conn = UnixConnection(self.socket_path, timeout * SLOW)
        elif self.tls:
            conn = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout * SLOW,
                                               context=client_tls())
        else:
            conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW,
                                              source_address=(source, 0) if source else None)
        send = {k.lower(): v for k, v in (headers or {}).items()}
        if json is not None:
            body = json_.dumps(json).encode()
            send.setdefault("content-type", "application/json")
        if token is not None and not unix:
            send.setdefault("authorization", "Bearer " + (self.token if token == "admin" else token))
        try:
            conn.putrequest(method, path, skip_host="host" in send, skip_accept_encoding=True)
            if isinstance(body, str):
                body = body.encode()
            if body is not None or method in ("POST", "PUT", "PATCH"):
                send.setdefault("content-length", str(len(body or b"")))
            for name, value in send.items():
                conn.putheader(name, value)
            conn.endheaders(body)
            reply = conn.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            conn.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, json=None, **kw):
        return self.request("POST", path, json=json, **kw)

    def delete(self, path, **kw):
        return self.request("DELETE", path, **kw)

    def sse(self, path="/events", last_id=None, headers=None, token="admin", source=None):
        send = {"Host": self.host, "Accept": "text/event-stream", **(headers or {})}
        if token is not None:
            send["Authorization"] = "Bearer " + (self.token if token == "admin" else token)
        if last_id is not None:
            send["Last-Event-ID"] = str(last_id)
        sock = self.connect(source)
        lines = "".join(f"{k}: {v}\r\n" for k, v in send.items())
        sock.sendall(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        try:
            return Sse(sock)
        except BaseException:
            sock.close()
            raise

    def new_token(self, role="operator", **fields):
        """Makes a token and returns the server's answer, plaintext in "token"."""
        fields.setdefault("name", f"{role}-{secrets.token_hex(4)}")
        reply = self.post("/api/v1/tokens", {"role": role, **fields})
        assert reply.status == 201, reply
        return reply.json()

    def signed(self, method, target, key_id, token, body=b"", time_ms=None, nonce=None, **kw):
        """A request signed as src/auth/auth.h says, with nothing else to prove who asks."""
        stamp = str(time_ms if time_ms is not None else int(time.time() * 1000))
        nonce = nonce or secrets.token_hex(16)
        key = hmac.new(token.encode(), b"atoll-sign-v1", hashlib.sha256).digest()
        text = "\n".join([method, target, stamp, nonce, hashlib.sha256(body).hexdigest(), key_id])
        headers = {
            "X-Atoll-Key": key_id, "X-Atoll-Time": stamp, "X-Atoll-Nonce": nonce,
            "X-Atoll-Signature": hmac.new(key, text.encode(), hashlib.sha256).hexdigest(),
            **kw.pop("headers", {}),
        }
        return self.request(method, target, body=body or None, headers=headers, token=None, **kw)

    def cli(self, *args, check=False, timeout=30, **env):
        """The command line, as its user would run it next to this server."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
        clean.update({"ATOLL_STATE": str(self.state), **env})
        done = subprocess.run([self.binary, *args], capture_output=True, text=True, timeout=timeout * SLOW,
                              env=clean, stdin=subprocess.DEVNULL)
        assert not check or done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done


def make_box(server, **wish):
    """A sandbox that runs; its id."""
    reply = server.post(BOXES, wish)
    assert reply.status == 201, reply
    assert reply.json()["state"] == "running", reply
    return reply.json()["id"]


def listed(server, path, **kwargs):
    """All items of a list, page after page."""
    items, after = [], None
    while True:
        mark = "&" if "?" in path else "?"
        page = server.get(path + (f"{mark}limit=1000&after={after}" if after else ""), **kwargs).json()
        items += page["items"]
        after = page.get("next")
        if not after:
            return items


def delete_boxes(server):
    """All of them; one that is just being paused or removed says 409 until that is over."""
    for box in listed(server, BOXES):
        wait_until(lambda: server.delete(f"{BOXES}/{box['id']}").status in (200, 404), 10, f"the end of {box}")


def run_in(server, box, *argv, wait=60000, **wish):
    """A command in a sandbox, as it is when it has ended (or after `wait` ms)."""
    reply = server.post(f"{BOXES}/{box}/execs?wait={wait}", {"argv": list(argv), **wish}, timeout=10 + wait / 1000)
    assert reply.status == 201, reply
    return reply.json()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.unix_path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.unix_path)


def client_tls():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the test's own self-signed certificate
    return context


def read_all(sock, seconds=5):
    """Until the other side closes, or is silent for `seconds`."""
    got = b""
    sock.settimeout(seconds)
    try:
        while data := sock.recv(65536):
            got += data
    except (TimeoutError, ConnectionResetError):
        pass
    return got


def read_pty(master):
    """All that was written to a terminal that nobody has open any more (one read gives a piece); closes it."""
    got = b""
    try:
        while data := os.read(master, 65536):
            got += data
    except OSError:  # EIO: that was all
        pass
    os.close(master)
    return got


def read_reply(sock, seconds=5):
    """Exactly one HTTP/1.1 reply with Content-Length from a connection that stays open."""
    sock.settimeout(seconds)
    got = b""
    while b"\r\n\r\n" not in got:
        data = sock.recv(1)
        if not data:
            raise EOFError(got)
        got += data
    lines = got.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, v in (x.split(":", 1) for x in lines[1:] if x)}
    body = b""
    while len(body) < int(headers.get("content-length", 0)):
        data = sock.recv(int(headers["content-length"]) - len(body))
        if not data:
            raise EOFError(got + body)
        body += data
    return Reply(int(lines[0].split()[1]), headers, body)


def cmdline(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def reap(pids):
    """Collects those of these processes that became our children and ended; never waits."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def listening_inode(port):
    """The inode of the socket that listens on 127.0.0.1:port, or None."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and int(words[1].split(":")[1], 16) == port:
            return words[9]
    return None


def holds_socket(pid, inode):
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]":
                    return True
            except OSError:
                pass
    except OSError:
        pass
    return False


def websocket_key():
    return base64.b64encode(secrets.token_bytes(16)).decode()
