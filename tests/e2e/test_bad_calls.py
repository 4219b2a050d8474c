"""The same mistakes through every surface: an id that nobody has, the wrong state, paths that are tricks, a sparse
file of 5 GB, ranges beyond the end, no size, text for bytes, bytes for text, no time, and who leaves at once. Each
is refused in the surface's own words, and nothing is left of it. Where a surface has no such thing, it has no line."""
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import signal
import struct
import subprocess
import termios
import time
from urllib.parse import quote

import harness
import pytest
import rpc
from terminal import Closed, Refused, Terminal, Ws

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
NOBODY = "sb0000000000000000000000000000"


@pytest.fixture(scope="module")
def grpcio(server):
    client = rpc.Grpcio(server)
    assert client.call("ListSessions").code == "ok"  # its connection is counted from the beginning
    yield client
    client.close()


@pytest.fixture(scope="module")
def box(server):
    reply = server.post(BOXES, {"name": "bad-calls", "storage": "memory", "disk": 64 << 20})
    assert reply.status == 201, reply
    yield reply.json()["id"]
    assert server.delete(f"{BOXES}/{reply.json()['id']}").status == 200
    assert [file.name for file in (server.state / "data" / "spool").iterdir()] == ["ends"]


def running(server, box):
    return [e["argv"] for e in server.get(f"{BOXES}/{box}/execs").json()["items"] if e["state"] == "running"]


def inside(server, box):
    return [p["command"] for p in server.get(f"{BOXES}/{box}/processes").json()["items"] if p["pid"] != 1]


def descriptors(server):
    top, found = pathlib.Path(f"/proc/{server.api_pid()}/fd"), []
    for one in top.iterdir():
        try:
            found.append(os.readlink(one))
        except FileNotFoundError:
            pass
    return found


@pytest.fixture(autouse=True)
def nothing_left(server, box, grpcio):
    """The same process serves, and holds nothing more; nothing runs in the sandbox that did not before."""
    pid, held = server.api_pid(), len(descriptors(server))
    yield
    assert server.api_pid() == pid
    harness.wait_until(lambda: not running(server, box), 15, f"its end: {running(server, box)}", 0.05)
    harness.wait_until(lambda: not inside(server, box), 15, f"its end: {inside(server, box)}", 0.05)
    assert sh(server, box, "ls -A /workspace; find / -xdev -name '.atoll*' 2>/dev/null; true") == ""
    harness.wait_until(lambda: len(descriptors(server)) <= held, 30, descriptors(server), 0.05)


def sh(server, box, command):
    done = server.post(f"{BOXES}/{box}/execs?wait=20000", {"command": command}, timeout=30).json()
    assert done["exit_code"] == 0, done
    return done["output"]


# ---- how each surface says no ----

def said_by_rest(reply, status, code):
    assert (reply.status, reply.error["code"]) == (status, code), reply


def said_by_connect(reply, status, code):
    assert reply.headers["content-type"] == "application/json" and set(reply.json()) == {"code", "message"}, reply
    assert (reply.status, reply.json()["code"]) == (status, code) and reply.json()["message"], reply


def said_by_grpc(result, code):
    assert (result.code, result.messages) == (code, []) and result.message, result


def connect(server, method, fields, kind="application/json", **headers):
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return server.post(f"/{rpc.SANDBOX}/{method}", body=body,
                       headers={"content-type": kind, **{k.replace("_", "-"): v for k, v in headers.items()}})


def cli(server, *args, **options):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([server.binary, *args], capture_output=True, timeout=60 * harness.SLOW,
                          env={**clean, "ATOLL_STATE": str(server.state)}, **options)


def start(server, *args):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    return subprocess.Popen([server.binary, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env={**clean, "ATOLL_STATE": str(server.state)})


def written(process):
    return int(re.search(r"wchar: (\d+)", pathlib.Path(f"/proc/{process.pid}/io").read_text()).group(1))


def said_by_cli(server, code, *args, words=""):
    """One plain line, perhaps another that says where to look; nothing on stdout. code None: any but 0."""
    plain = cli(server, *args)
    assert plain.returncode == code or not code and plain.returncode, plain
    text = plain.stderr.decode()
    assert plain.stdout == b"" and re.fullmatch(r"atoll: [^\n]+\n(  [^\n]+\n)?", text) and words in text, text
    return text


# ---- an id that nobody has ----

BODIES = {"execs": {"command": "true"}, "resize": {"rows": 5, "cols": 5}, "signal": {"signal": "TERM"},
          "rollback": {"snapshot": "x"}, "snapshots": {"name": "x"}, "previews": {"port": 80},
          "commands": {"command": "x"}, "stdin": {"text": "x"}}
UPGRADED = ("/ws", "/tunnels/80", "/orchestrate", "/attach")  # asked for as sockets, below
AGENTIC = ("/api/v1/agents/", "/api/v1/vms/", "/api/v1/sessions/", "/agents/{id}/sessions/", "/ws/")
# The hub's own paths, which answer as the original did: test_hub_bad_input.


def routes_with_ids(server):
    paths = server.get("/api/openapi.json").json()["paths"]
    for path, methods in paths.items():
        if "/sandboxes/{" in path or path.startswith(AGENTIC) and "{" in path:
            for method, about in methods.items():
                yield method.upper(), path, about


def filled(path):
    other = {"{id}": NOBODY, "{eid}": "ex0000000000000000000000000000", "{tid}": "none", "{port}": "80", "{path}": "x",
             "{sid}": "none", "{cid}": "00000000-0000-0000-0000-000000000000", "{name}": "none", "{snapshot}": "none"}
    for word, value in other.items():
        path = path.replace(word, value)
    assert "{" not in path, path
    return path


def test_nobodys_id_by_every_route(server):
    asked = 0
    for method, path, about in routes_with_ids(server):
        target = filled(path)
        if target.endswith(UPGRADED):
            continue
        query = "?path=x&to=y" if target.endswith("/move") else "?path=x" if "/files" in target else ""
        last = target.rsplit("/", 1)[-1]
        raw = "/files" in target or (last == "stdin" and "/execs/" in target)
        body = None
        if "requestBody" in about and "/ports/" not in target:
            body = b"x" if raw else json.dumps(BODIES.get(last, {})).encode()
        headers = {} if body is None else {"content-type": "application/octet-stream" if raw else "application/json"}
        reply = server.request(method, target + query, body=body, headers=headers)
        asked += 1
        assert reply.status == 404, (method, target, reply)
        if path.startswith(AGENTIC) and "/commands" not in path:
            error = reply.json()["error"]
            assert (isinstance(error, str) and error) or error["message"], (target, reply)
        elif "/commands" not in path:
            said_by_rest(reply, 404, "not_found")
    assert asked > 60


@pytest.mark.parametrize("path", [f"{BOXES}/{NOBODY}/terminals/none/ws", f"{BOXES}/{NOBODY}/tunnels/80",
                                  "/ws/sessions/none/orchestrate", f"/agents/{NOBODY}/sessions/none/attach"])
def test_nobodys_id_by_a_socket(server, path):
    """Before there is a socket: an ordinary answer."""
    with pytest.raises(Refused) as refused:
        Ws(server, path)
    assert refused.value.status in (400, 404) if "tunnels" in path else refused.value.status == 404
    assert json.loads(refused.value.body)["error"]


IN_BAND = {"Exec": {"exitCode": -1, "stderr": "Session not found"}, "PipInstall": {"exitCode": -1,
           "stderr": "Session not found"}, "ReadFile": {"error": "Session not found"},
           "WriteFile": {"error": "Session not found"}, "DestroySession": {}}


@pytest.mark.parametrize("method", [*IN_BAND, "GetSession", "ExecStream"])
def test_nobodys_id_by_a_remote_call(server, grpcio, method):
    """As agentbox has it: most calls say it in their answer, one as its status, one in its stream."""
    fields = {"sessionId": NOBODY, **{"Exec": {"command": "true"}, "ExecStream": {"command": "true"},
              "PipInstall": {"packages": ["a"]}, "ReadFile": {"path": "x"},
              "WriteFile": {"path": "x"}}.get(method, {})}
    got = grpcio.call(method, fields)
    if method == "GetSession":
        said_by_grpc(got, "not_found")
        said_by_connect(connect(server, method, fields), 404, "not_found")
    elif method == "ExecStream":
        assert got.messages == [{"type": "error", "data": "Session not found"}]
    else:
        assert got.ok == IN_BAND[method] == connect(server, method, fields).json()


def commands_with_ids(server):
    """Every command whose first argument is a sandbox, from its own help."""
    for line in cli(server, "help").stdout.decode().splitlines():
        words = line.split()
        if words and line.startswith("  ") and not line.startswith("   ") and " ID|NAME" in line:
            names = [w for w in words if w.islower() and w.isalpha()][:2]
            yield names if len(words) > 2 and words[2].startswith("ID|NAME") else names[:1]


def test_nobodys_id_by_every_command(server, tmp_path):
    more = {"exec": ["--", "true"], "rollback": ["x"], "terminal kill": ["x"], "terminal record": ["x"],
            "snapshot create": ["x"], "set": ["--pids", "99"]}
    found = [" ".join(names) for names in commands_with_ids(server)]
    found.remove("attach")  # without a terminal it is refused before it asks; with one as `shell`
    assert len(found) > 15 and "exec" in found and "terminal kill" in found, found
    for name in [*found, "port", "cp"]:
        args = [f"{NOBODY}:x", str(tmp_path / "x")] if name == "cp" else [NOBODY, *more.get(name, [])]
        text = said_by_cli(server, 2, *name.split(), *args)
        assert NOBODY in text, (name, text)
    assert not (tmp_path / "x").exists()
    told = json.loads(cli(server, "show", NOBODY, "--json").stderr)
    assert told["error"]["code"] == "not_found"


# ---- the wrong state ----

@pytest.fixture(scope="module")
def paused(server):
    made = server.post(BOXES, {"name": "paused", "storage": "memory"}).json()["id"]
    assert server.post(f"{BOXES}/{made}/pause").status == 200
    yield made
    assert server.delete(f"{BOXES}/{made}").status == 200


def test_the_wrong_state(server, grpcio, paused, tmp_path):
    for method, path, body in (
            ("POST", "/execs", {"command": "true"}), ("POST", "/terminals", {}), ("GET", "/files?path=x", None),
            ("PUT", "/files?path=x", b"x"), ("GET", "/files/list?path=.", None), ("GET", "/ports/80/", None),
            ("GET", "/ports", None), ("POST", "/start", None), ("POST", "/stop", None)):
        more = {"json": body} if isinstance(body, dict) else {"body": body}
        said_by_rest(server.request(method, f"{BOXES}/{paused}{path}", **more), 409, "conflict")
    for method, fields in (("Exec", {"command": "true"}), ("ExecStream", {"command": "true"}),
                           ("ReadFile", {"path": "x"}), ("WriteFile", {"path": "x"})):
        fields["sessionId"] = paused
        said_by_grpc(grpcio.call(method, fields), "failed_precondition")
        if method != "ExecStream":
            said_by_connect(connect(server, method, fields), 400, "failed_precondition")
    for args in (["exec", paused, "--", "true"], ["shell", paused], ["start", paused], ["ps", paused],
                 ["cp", f"{paused}:x", str(tmp_path / "x")], ["port", paused]):
        said_by_cli(server, 3, *args, words="paused")
    assert server.get(f"{BOXES}/{paused}").json()["state"] == "paused"


def test_the_wrong_state_of_a_command(server, box):
    done = server.post(f"{BOXES}/{box}/execs?wait=20000", {"argv": ["true"]}, timeout=30).json()["id"]
    path = f"{BOXES}/{box}/execs/{done}"
    said_by_rest(server.post(f"{path}/signal", {"signal": "TERM"}), 409, "conflict")
    said_by_rest(server.request("POST", f"{path}/stdin", body=b"x"), 409, "conflict")
    said_by_rest(server.post(f"{path}/resize", {"rows": 5, "cols": 20}), 409, "conflict")
    ended = server.post(f"{BOXES}/{box}/terminals", {"argv": ["true"]}).json()["id"]
    with Terminal(server, box, ended, "?from=0") as term:
        term.drain()
    said_by_rest(server.post(f"{BOXES}/{box}/terminals/{ended}/resize", {"rows": 5, "cols": 20}), 409, "conflict")
    said_by_rest(server.delete(f"{BOXES}/{box}/terminals/{ended}"), 409, "conflict")
    said_by_cli(server, 3, "terminal", "kill", box, ended)


# ---- paths ----

@pytest.fixture
def tricks(server, box, tmp_path_factory):
    """Paths, none of which may lead to a file of this machine."""
    secret = tmp_path_factory.mktemp("host") / "secret"
    secret.write_text("of the host")
    secret.chmod(0o644)
    made = "/tmp/tricks"
    sh(server, box, f"mkdir {made}; cd {made}; ln -s {secret} link; ln -s {secret.parent} dir; ln -s / root; "
                    "ln -s loop loop; mkfifo fifo; ln -s fifo tofifo; ln -s /dev/zero dev; "
                    "ln -s /proc/self/root/etc/passwd magic; ln -s /proc/1/root up")
    there = str(secret)
    yield [there, f"/workspace/../../../../../..{there}", f"../..{there}", f"{made}/link", f"{made}/dir/secret",
           f"{made}/root{there}", f"{made}/up{there}", f"/proc/self/root{there}", f"/proc/1/root{there}",
           f"/proc/self/cwd/../..{there}", "/proc/self/fd/3", "/proc/self/exe", "/dev/zero", "/dev/ptmx", "/dev/kmsg",
           f"{made}/dev", f"{made}/fifo", f"{made}/tofifo", f"{made}/loop", f"{made}/magic", "/dev/stdin"]
    sh(server, box, f"rm -r {made}")


REASONS = {"invalid": 400, "not_found": 404, "forbidden": 403, "conflict": 409}


def test_tricks_by_rest(server, box, tricks):
    for path in tricks:
        for method, what in (("GET", ""), ("GET", "/list"), ("GET", "/tree"), ("GET", "/manifest"), ("PUT", ""),
                             ("POST", "/append"), ("PUT", "/tree")):
            body = None if method == "GET" else b"x" * 1024 if what == "/tree" else b"evil"
            reply = server.request(method, f"{BOXES}/{box}/files{what}?path={quote(path)}", body=body)
            assert b"of the host" not in reply.body
            if method == "GET" or path.startswith(("/proc", "/dev")):
                assert reply.status == REASONS[reply.error["code"]], (method, what, path, reply)
    assert pathlib.Path(tricks[0]).read_text() == "of the host"


def test_tricks_by_remote_calls(server, grpcio, box, tricks):
    """Only the workspace is open here at all; the reason is in the answer."""
    for path in tricks:
        for method, more in (("ReadFile", {}), ("WriteFile", {"content": "evil"})):
            fields = {"sessionId": box, "path": path, **more}
            assert grpcio.call(method, fields).ok == connect(server, method, fields).json() == \
                {"error": "Path not allowed"}, (method, path)
    assert pathlib.Path(tricks[0]).read_text() == "of the host"


def test_tricks_by_the_command_line(server, box, tricks, tmp_path):
    for path in tricks:
        assert "of the host" not in said_by_cli(server, None, "cp", f"{box}:{path}", str(tmp_path / "got"))
    assert list(tmp_path.iterdir()) == []
    # And here: what is no file is not sent, and a directory only when that was said.
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", tmp_path):
        cli_code = 64 if path == tmp_path else 1
        said_by_cli(server, cli_code, "cp", str(path), f"{box}:/tmp/x")
    assert server.get(f"{BOXES}/{box}/files/stat?path=/tmp/x").status == 404


# ---- a sparse file of 5 GB, in a sandbox of 64 MB ----

@pytest.fixture
def sparse(server, box):
    sh(server, box, "truncate -s 5G /workspace/sparse")
    yield 5 << 30
    sh(server, box, "rm /workspace/sparse")


def test_five_gigabytes_by_rest(server, box, sparse):
    path = f"{BOXES}/{box}/files?path=sparse"
    head = server.request("HEAD", path)
    assert head.headers["content-length"] == str(sparse)
    assert server.get(path, headers={"Range": "bytes=5368709110-"}).body == bytes(10)
    said_by_rest(server.get(path, headers={"Range": f"bytes={sparse}-"}), 416, "range_not_satisfiable")
    with server.connect() as sock:  # who asks for all of it and leaves
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
                     .encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 200 ")


def test_five_gigabytes_by_remote_calls(server, grpcio, box, sparse):
    fields = {"sessionId": box, "path": "sparse", "binary": True}
    for got in (grpcio.call("ReadFile", fields).ok, connect(server, "ReadFile", fields).json()):
        assert f"{sparse} bytes" in got["error"] and "success" not in got
    part = grpcio.call("ReadFile", {**fields, "offset": str(sparse - 3), "length": "10"}).ok
    assert (part["contentBytes"], part["size"]) == ("AAAA", str(sparse))


def test_five_gigabytes_by_the_command_line(server, box, sparse, tmp_path):
    """To where files may have 1 MB: said, and nothing is left; then the other way. Who leaves in the middle leaves
    nothing, either."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = cli(server, "cp", f"{box}:sparse", str(tmp_path / "got"), preexec_fn=limit)
    assert done.returncode == 1 and b"File too large" in done.stderr, done
    for number in (signal.SIGINT, signal.SIGKILL):
        process = start(server, "cp", f"{box}:sparse", str(tmp_path / "got"))
        harness.wait_until(lambda: written(process) > 1 << 20, 20, "its beginning")
        process.send_signal(number)
        process.communicate(timeout=20)
    assert list(tmp_path.iterdir()) == []
    with open(tmp_path / "five", "wb") as file:
        file.truncate(5 << 30)
    said_by_cli(server, 1, "cp", str(tmp_path / "five"), f"{box}:into", words="No space")
    assert server.get(f"{BOXES}/{box}/files/stat?path=into").status == 404


# ---- beyond the end ----

def test_beyond_the_end(server, grpcio, box):
    done = server.post(f"{BOXES}/{box}/execs?wait=20000", {"command": "printf 12345"}, timeout=30).json()["id"]
    output = f"{BOXES}/{box}/execs/{done}/output?stream=stdout"
    assert server.get(f"{output}&from=5").body == b""
    said_by_rest(server.get(f"{output}&from=6"), 416, "range_not_satisfiable")
    said_by_rest(server.get(f"{output}&from=6&follow=1"), 416, "range_not_satisfiable")
    for bad in ("-1", "x", "18446744073709551616"):
        said_by_rest(server.get(f"{output}&from={bad}"), 400, "invalid")
    said_by_cli(server, 1, "logs", box, done, "--stream", "stdout", "--from", "6")
    assert cli(server, "logs", box, done, "--stream", "stdout", "--from", "5").stdout == b""
    server.request("PUT", f"{BOXES}/{box}/files?path=five", body=b"12345")
    over = server.get(f"{BOXES}/{box}/files?path=five", headers={"Range": "bytes=5-"})
    said_by_rest(over, 416, "range_not_satisfiable")
    fields = {"sessionId": box, "path": "five", "binary": True, "offset": "6"}
    assert grpcio.call("ReadFile", fields).ok == connect(server, "ReadFile", fields).json() == \
        {"success": True, "contentBytes": "", "size": "5"}
    for wrong in ({"offset": "-1"}, {"length": "-1"}, {"offset": "18446744073709551616"}):
        said_by_connect(connect(server, "ReadFile", {**fields, **wrong}), 400, "invalid_argument")
    assert server.delete(f"{BOXES}/{box}/files?path=five").status == 200
    tid = server.post(f"{BOXES}/{box}/terminals", {"argv": ["sh", "-c", "printf 12345"]}).json()["id"]
    with Terminal(server, box, tid, "?from=0") as term:
        term.drain()
    with pytest.raises(Refused) as refused:
        Terminal(server, box, tid, "?from=6")
    assert (refused.value.status, json.loads(refused.value.body)["error"]["code"]) == (416, "range_not_satisfiable")


# ---- no size ----

SIZES = [{"rows": 0, "cols": 80}, {"rows": 24, "cols": 0}, {"rows": 0, "cols": 0}, {"rows": -1, "cols": 80},
         {"rows": 1001, "cols": 80}, {"rows": 24, "cols": 1001}, {"rows": 24}, {"rows": "24", "cols": 80}]


@pytest.fixture
def cat(server, box):
    """A terminal that lives through all of it, with its size."""
    tid = server.post(f"{BOXES}/{box}/terminals", {"argv": ["cat"], "rows": 24, "cols": 80}).json()["id"]
    yield tid
    shown = server.get(f"{BOXES}/{box}/terminals/{tid}").json()
    assert (shown["rows"], shown["cols"], shown["state"]) == (24, 80, "running")
    assert server.delete(f"{BOXES}/{box}/terminals/{tid}").status == 200


def test_no_size(server, box, cat):
    for size in SIZES:
        said_by_rest(server.post(f"{BOXES}/{box}/terminals/{cat}/resize", size), 400, "invalid")
        if len(size) == 2:
            said_by_rest(server.post(f"{BOXES}/{box}/terminals", {"argv": ["cat"], **size}), 400, "invalid")
    with Terminal(server, box, cat, "?role=controller") as term:
        for size in SIZES:
            term.send({"type": "resize", **size})
            assert term.until("error")["message"]
    for path, hello in ((f"/ws/sessions/{cat}/orchestrate?role=controller", None),
                        (f"/agents/{box}/sessions/{cat}/attach", None)):
        with Ws(server, path) as ws:
            ws.recv()
            said = {"type": "resize", "rows": 0, "cols": 0} if "orchestrate" in path else None
            for message in ([said] if said else [{"op": "pty.join_session", "payload": {"role": "controller"}},
                                                 {"op": "pty.session_resize", "payload": {"rows": 0, "cols": 0}}]):
                ws.send(message)
            while True:
                got = json.loads(ws.recv()[1])
                if "error" in (got.get("type"), got.get("op")):
                    break


def test_a_terminal_here_that_has_no_size(server, box):
    """Such are made by scripts and serial lines: the command line then asks for the usual one."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    process = subprocess.Popen([server.binary, "shell", box], stdin=slave, stdout=slave, stderr=slave,
                               env={**clean, "ATOLL_STATE": str(server.state)}, start_new_session=True)
    os.close(slave)
    os.write(master, b"stty size; exit 3\n")
    shown, end = b"", time.monotonic() + 20 * harness.SLOW
    while process.poll() is None and time.monotonic() < end:
        try:
            shown += os.read(master, 4096)
        except OSError:
            break
    assert process.wait(20) == 3 and b"24 80" in shown, shown
    os.close(master)


# ---- text for bytes, bytes for text ----

def test_text_where_bytes_are_due(server, box, cat):
    with Terminal(server, box, cat, "?role=controller") as term:
        term.send("rm -rf /\n")
        output, code = term.drain()
        assert (output, code, term.told[-1]["type"]) == (b"", 4400, "error")
    with Ws(server, f"/agents/{box}/sessions/{cat}/attach",
            headers=["Sec-WebSocket-Protocol: pty-ws.v1.binary"]) as ws:
        ws.recv()
        ws.send("no JSON either")
        while json.loads(ws.recv()[1]).get("op") != "error":
            pass


@pytest.mark.parametrize("where", ["terminal", "hub", "orchestrate", "pty"])
def test_a_text_message_that_is_not_utf8(server, box, cat, where):
    """RFC 6455, section 8.1: the connection is failed, with 1007."""
    path = {"terminal": f"{BOXES}/{box}/terminals/{cat}/ws?role=controller", "hub": "/ws",
            "orchestrate": f"/ws/sessions/{cat}/orchestrate?role=controller",
            "pty": f"/agents/{box}/sessions/{cat}/attach"}[where]
    with Ws(server, path) as ws:
        ws.send_frame(1, b'{"type":"ping","x":"\xff\xfe"}')
        with pytest.raises(Closed) as closed:
            while True:
                ws.recv()
        assert closed.value.code == 1007


def test_bytes_that_are_no_text(server, grpcio, box):
    for path, body in (("/execs", b'{"command":"\xff"}'), ("/terminals", b'{"argv":["\xc3"]}'),
                       ("/execs", b'{"command":"\\ud800"}')):
        reply = server.request("POST", f"{BOXES}/{box}{path}", body=body, headers={"content-type": "application/json"})
        said_by_rest(reply, 400, "invalid")
    said_by_rest(server.request("PATCH", f"{BOXES}/{box}", body=b'{"labels":{"a":"\xff"}}',
                                headers={"content-type": "application/json"}), 400, "invalid")
    raw = b"\x0a\x01s\x12\x02\xff\xfe"
    said_by_grpc(grpcio.call("Exec", raw=raw), "invalid_argument")
    said_by_connect(connect(server, "Exec", raw, "application/proto"), 400, "invalid_argument")
    said_by_connect(connect(server, "Exec", b'{"command":"\xff"}'), 400, "invalid_argument")
    said_by_cli(server, 64, "exec", box, "--", "echo", b"\xff", words="UTF-8")


# ---- no time ----

def status_of(answer):
    """grpc-status of the only stream, from HEADERS frames whose names nghttp2 packs with Huffman's code."""
    name = bytes.fromhex("9acac8b21234da8f")  # "grpc-status"
    at = answer.index(name) + len(name)
    return answer[at + 1:at + 1 + answer[at]].decode()


def test_no_time(server, grpcio, box):
    """A deadline that is past before the call has begun: it has not begun then."""
    fields = {"sessionId": box, "path": "late", "content": "x"}
    data = grpcio.files.request(rpc.SANDBOX, "WriteFile", fields).SerializeToString()
    said_by_connect(connect(server, "WriteFile", fields, connect_timeout_ms="0"), 504, "deadline_exceeded")
    web = connect(server, "WriteFile", rpc.message(data), "application/grpc-web", grpc_timeout="0n")
    assert b"grpc-status: 4\r\n" in web.body
    for past in ("0n", "1n", "0m"):
        with server.connect() as sock:
            head = rpc.h2_frame(rpc.HEADERS, rpc.END_HEADERS, 1, rpc.grpc_head(server, "WriteFile", grpc_timeout=past))
            sock.sendall(rpc.H2_PREFACE + head + rpc.h2_frame(rpc.DATA, rpc.END_STREAM, 1, rpc.message(data)))
            assert status_of(harness.read_all(sock, 2)) == "4"
    said_by_rest(server.post(f"{BOXES}/{box}/execs", {"command": "touch late", "timeout_ms": -1}), 400, "invalid")
    said_by_cli(server, 64, "exec", "--kill-after", "-1s", box, "--", "touch", "late")
    assert server.get(f"{BOXES}/{box}/files/stat?path=late").status == 404


# ---- who leaves at once ----

def leave(server, data):
    with server.connect() as sock:
        sock.sendall(data)


def request(server, method, path, body=b"", *lines):
    head = [f"{method} {path} HTTP/1.1", f"Host: {server.host}", f"Authorization: Bearer {server.token}", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


@pytest.mark.parametrize("times", range(3))
def test_who_leaves_at_once(server, grpcio, box, times):
    """A command that was asked for by itself may have begun, and then ends; what belongs to who left is gone."""
    command = {"sessionId": box, "command": "sleep 4100"}
    stream = json.dumps(command).encode()
    tid = server.post(f"{BOXES}/{box}/terminals", {"argv": ["sleep", "1.5"]}).json()["id"]
    upgrade = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
               f"Sec-WebSocket-Key: {harness.websocket_key()}"]
    for _ in range(5):
        leave(server, request(server, "POST", f"/{rpc.SANDBOX}/ExecStream", rpc.message(stream),
                              "Content-Type: application/connect+json"))
        leave(server, request(server, "POST", f"/{rpc.SANDBOX}/Exec", stream, "Content-Type: application/json"))
        assert grpcio.call("ExecStream", command, cancel_after=0).code == "canceled"
        leave(server, request(server, "GET", f"{BOXES}/{box}/files/watch?path=."))
        leave(server, request(server, "GET", f"{BOXES}/{box}/files/tree?path=/usr/share"))
        half = request(server, "PUT", f"{BOXES}/{box}/files?path=half", b"", "Content-Length: 99")
        leave(server, half + b"x")
        leave(server, request(server, "GET", f"{BOXES}/{box}/terminals/{tid}/ws?role=controller", b"", *upgrade))
        leave(server, request(server, "GET", f"{BOXES}/{box}/execs/{tid}/output?follow=1"))
        leave(server, request(server, "GET", "/api/v1/events", b"", "Accept: text/event-stream"))
        leave(server, request(server, "GET", f"{BOXES}/{box}/tunnels/1", b"", "Upgrade: tcp", "Connection: Upgrade"))
    assert server.get(f"{BOXES}/{box}/files/stat?path=half").status == 404


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_line_that_is_told_to_leave_at_once(server, box, number):
    """The signal is the command's, so it ends with us; a copy leaves nothing."""
    for args in (["exec", box, "--", "sleep", "4200"], ["cp", "/proc/self/exe", f"{box}:copied"]):
        for wait in (0, 0.003, 0.006, 0.01, 0.02, 0.05, 0.3):
            process = start(server, *args)
            time.sleep(wait)
            process.send_signal(number)
            process.communicate(timeout=20 * harness.SLOW)
    server.delete(f"{BOXES}/{box}/files?path=copied")
