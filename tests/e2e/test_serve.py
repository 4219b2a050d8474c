"""The life of the server: split, crash, stop, reload, refusals. See src/daemon and src/warden."""
import ctypes
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import termios
import threading
import time

import pytest

import harness
from harness import SLOW, alive, proc_status, wait_until

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = 65534


def ended(server, seconds=10):
    """The exit status of a server that ends by itself."""
    return server.process.wait(seconds * SLOW)


def first_start(args, env=None, **options):
    """Runs serve to its end and gives the finished process; for starts that must fail."""
    server = harness.Server(args=args, env=env, **options)
    try:
        server.start(ready=False)
        ended(server)
        return server.process.returncode, server.log()
    finally:
        server.stop(check=False)


# ---- the split ----


def test_the_process_that_listens_has_no_privilege(server):
    pid = server.api_pid()
    status = proc_status(pid)
    if os.geteuid() == 0:
        assert all(uid != "0" for uid in status["Uid"].split()), status["Uid"]
        assert all(gid != "0" for gid in status["Gid"].split()), status["Gid"]
        assert status["Groups"] == ""
        assert int(status["CapBnd"], 16) == 0
        assert harness.holds_socket(pid, harness.listening_inode(server.port))
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    assert status["CoreDumping"] == "0"
    assert os.stat(f"/proc/{pid}/environ").st_uid == 0, "it can be read by others of its user"
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    assert [l.split()[4:6] for l in limits.splitlines() if l.startswith("Max core")] == [["0", "0"]]


@ROOT_ONLY
def test_the_process_that_listens_holds_nothing_else(server):
    pid = server.api_pid()
    assert pathlib.Path(f"/proc/{pid}/environ").read_bytes() == b""
    links = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    files = {l for l in links if l.startswith("/")}
    data = str(server.state / "data")
    log = str(server.log_path)
    plain = {"/dev/null", "/proc/meminfo", log}  # meminfo: what is free, for the check of new sandboxes
    assert all(f in plain or f.startswith(data) for f in files), files


def test_the_warden_is_the_process_that_was_started(server):
    pid = server.process.pid
    status = proc_status(pid)
    assert status["Name"] == "atoll-warden"
    assert status["Threads"] == "1"
    assert status["NoNewPrivs"] == "1"
    # KILL, SETGID, SETUID, SETPCAP, DAC_READ_SEARCH, SYS_RESOURCE; and for the making of sandboxes
    # CHOWN, DAC_OVERRIDE, FOWNER, NET_BIND_SERVICE (its DNS), NET_ADMIN, SYS_PTRACE, SYS_ADMIN, MKNOD
    assert int(status["CapEff"], 16) & ~0x92C15EF == 0
    assert os.stat(f"/proc/{pid}/environ").st_uid == 0
    exe = os.readlink(f"/proc/{pid}/exe") if os.geteuid() == 0 else "atoll-warden"
    assert exe.endswith("atoll-warden")


# What the jailed process is made to do by a debugger; each is one system call. Root may attach to
# it from outside; what is tested is what the kernel then says to *it*.
CALLS = {"execve": 59, "fork": 57, "socket": 41, "ptrace": 101}


@ROOT_ONLY
@pytest.mark.parametrize("call", CALLS)
def test_a_forbidden_call_kills_it(start_server, call):
    if os.uname().machine != "x86_64":
        pytest.skip("knows the system call numbers of x86-64 only")
    server = start_server()
    pid = server.api_pid()
    inject(pid, CALLS[call])
    wait_until(lambda: "jail forbids" in server.log(), 5, "the warden to say why it died")
    server.wait_ready()
    assert server.api_pid() != pid


@ROOT_ONLY
def test_a_file_outside_does_not_open(start_server):
    if os.uname().machine != "x86_64":
        pytest.skip("knows the system call numbers of x86-64 only")
    server = start_server()
    assert inject(server.api_pid(), 2 + 255, path=b"/etc/passwd\0") == -13  # openat: EACCES
    assert server.is_ready()


class Regs(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in (
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
        "fs_base gs_base ds es fs gs").split()]


def inject(pid, number, path=None):
    """Stops the main thread and has it make one system call; the result, or None when that killed it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    attach, detach, getregs, setregs, step, peek, poke = 16, 17, 12, 13, 9, 2, 5

    def trace(what, addr=0, data=0):
        ctypes.set_errno(0)
        result = libc.ptrace(what, pid, addr, data)
        if result == -1 and ctypes.get_errno():
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"ptrace {what}")
        return result

    trace(attach)
    os.waitpid(pid, 0x40000000)  # __WALL
    saved, regs = Regs(), Regs()
    trace(getregs, 0, ctypes.addressof(saved))
    ctypes.memmove(ctypes.addressof(regs), ctypes.addressof(saved), ctypes.sizeof(Regs))
    # It waits in epoll_wait: the two bytes before its instruction pointer are `syscall`.
    regs.rip = saved.rip - 2
    assert trace(peek, regs.rip) & 0xFFFF == 0x050F
    regs.rax, regs.orig_rax = number, (1 << 64) - 1
    regs.rdi, regs.rsi, regs.rdx, regs.r10 = 2, 1, 0, 0
    if path:
        where = (saved.rsp - 4096) & ~7
        for at in range(0, len(path), 8):
            word = int.from_bytes(path[at:at + 8].ljust(8, b"\0"), "little")
            trace(poke, where + at, word)
        regs.rdi, regs.rsi = (1 << 64) - 100, where  # AT_FDCWD
    trace(setregs, 0, ctypes.addressof(regs))
    trace(step)
    _, status = os.waitpid(pid, 0x40000000)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGSYS
        return None
    trace(getregs, 0, ctypes.addressof(regs))
    trace(setregs, 0, ctypes.addressof(saved))
    trace(detach)
    return ctypes.c_longlong(regs.rax).value


# ---- crashes ----


def test_a_killed_api_is_back_within_a_second_and_nobody_is_refused(fresh_server):
    server = fresh_server
    refused, answered, over = [], [], threading.Event()

    def knock():
        while not over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
                    sock.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    answered.append(bool(harness.read_all(sock, 5)))
            except ConnectionRefusedError as e:
                refused.append(e)
            except OSError:
                answered.append(False)  # it died with this connection

    knocking = threading.Thread(target=knock)
    knocking.start()
    try:
        for _ in range(5):
            pid = server.kill9_api()
            began = time.monotonic()
            server.wait_ready()
            assert time.monotonic() - began < 1 * SLOW
            wait_until(lambda: not alive(pid), 2, "the killed process to be reaped")
            time.sleep(0.05)
    finally:
        over.set()
        knocking.join()
    assert not refused
    assert answered.count(True) > 10


def test_the_login_link_is_printed_once(fresh_server):
    fresh_server.kill9_api()
    fresh_server.wait_ready()
    log = fresh_server.log()
    assert log.count("/#login=") == 1
    assert log.count("atoll health") == 1 and log.count("atoll event tail") == 1


def test_the_printed_commands_work_as_they_stand(fresh_server):
    hints = fresh_server.log().split("Try:\n")[1].splitlines()[:2]
    assert [hint.split()[1:3] for hint in hints] == [["health", "--state"], ["event", "tail"]]
    done = subprocess.run(hints[0], shell=True, capture_output=True, text=True, timeout=20,
                          env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done
    assert "Ready        yes" in done.stdout


def test_the_printed_link_logs_in(fresh_server):
    code = fresh_server.log().split("/#login=")[1].split()[0]
    reply = fresh_server.post("/login", {"code": code}, token=None)
    assert reply.status in (200, 201) and "atoll_session=" in reply.headers["set-cookie"]
    assert fresh_server.post("/login", {"code": code}, token=None).status == 401


def test_a_stopped_api_is_killed_and_replaced(fresh_server):
    pid = fresh_server.api_pid()
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not alive(pid), 40, "the warden to lose patience")
    fresh_server.wait_ready()
    assert 'why="it does not answer"' in fresh_server.log()


def test_a_corrupt_store_ends_the_server_with_one_message(start_server):
    server = start_server()
    server.stop(remove=False)
    db = server.state / "data" / "atoll.db"
    data = bytearray(db.read_bytes())
    for at in range(4096, len(data), 512):
        data[at:at + 64] = b"\xa5" * 64
    db.write_bytes(data)
    server.start(ready=False)
    assert ended(server) == 1
    said = [l for l in server.log().splitlines() if "cannot serve" in l]
    assert len(said) == 1 and "refused and was left as it is" in said[0]
    assert bytes(data) == db.read_bytes()
    assert not server.socket_path.exists()
    server.process = None


MEANINGLESS = ["USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "XCPU", "XFSZ", "PWR", "STKFLT", "RTMIN", "RTMAX"]


def test_signals_that_mean_nothing_end_nobody(fresh_server):
    """A log rotation that sends SIGUSR1 is no outage; commands inside are ended by them as ever."""
    server, box = fresh_server, harness.make_box(fresh_server, storage="memory")
    api = server.api_pid()
    mine = [pid for pid in harness.descendants(server.warden_pid) if "egress" in harness.cmdline(pid).split()[1:2]]
    for name in MEANINGLESS:
        for pid in [server.warden_pid, api, *mine]:
            os.kill(pid, getattr(signal, f"SIG{name}"))
    for name in ("HUP", "QUIT"):
        os.kill(api, getattr(signal, f"SIG{name}"))
    for _ in range(3):
        assert harness.run_in(server, box, "sh", "-c", "kill -USR1 $$; echo lives")["signal"] == signal.SIGUSR1
    assert server.api_pid() == api and all(alive(pid) for pid in mine)
    assert "another release" not in server.log() and server.get("/api/v1/health").status == 200
    harness.delete_boxes(server)


def test_everything_dies_with_the_warden(fresh_server):
    api = fresh_server.api_pid()
    os.kill(fresh_server.warden_pid, signal.SIGKILL)
    fresh_server.process.wait(5)
    wait_until(lambda: not alive(api), 5, "the api process to die with its warden")
    wait_until(lambda: harness.listening_inode(fresh_server.port) is None, 5, "the listener's end")
    fresh_server.start()  # over the lock and the socket file that are left


# ---- the end ----


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_end_leaves_nothing(start_server, sig):
    server = start_server()
    assert server.socket_path.exists()
    server.stop(remove=False, sig=sig)  # status 0, no process, no listener, no socket file
    left = {p.name for p in server.state.iterdir()}
    assert left - {"boxes", "images"} == {"lock", "admin.token", "egress.key", "data"}  # those two as root only
    data = {p.name for p in (server.state / "data").iterdir()}
    assert data <= {"atoll.db", "atoll.db.lock", "secrets.key", "backups", "spool", "links", "doctor.json"}
    leaks = server.cli("doctor", "--leaks")
    assert leaks.returncode in (0, 1) and str(server.state) not in leaks.stdout, leaks
    server.process = None


def test_a_request_under_way_is_answered_before_the_end(fresh_server):
    server = fresh_server
    body = b'{"name":"slow-one","role":"viewer"}'
    with server.connect() as sock:
        head = (f"POST /api/v1/tokens HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
                f"Authorization: Bearer {server.token}\r\nContent-Length: {len(body)}\r\n\r\n")
        sock.sendall(head.encode() + body[:10])
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: harness.listening_inode(server.port) is None, 2, "the listener to close")
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        sock.sendall(body[10:])
        assert b" 201 " in harness.read_all(sock, 5).split(b"\r\n")[0]
    assert ended(server) == 0


def test_a_drain_has_an_end(start_server):
    server = start_server(args=["--drain", "500ms"])
    with server.connect() as sock:
        sock.sendall(f"POST /api/v1/tokens HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: 5\r\n\r\n".encode())
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert ended(server) == 0
        assert 0.3 < time.monotonic() - began < 5 * SLOW


def test_a_second_interrupt_does_not_wait(start_server):
    server = start_server()
    with server.connect() as sock:
        sock.sendall(f"POST /api/v1/tokens HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: 5\r\n\r\n".encode())
        time.sleep(0.1)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert server.process.poll() is None, "it had a request to wait for"
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(2 * SLOW) == 0
    server.wait_gone()


def test_a_terminal_that_goes_away_ends_the_server():
    server = harness.Server()
    master, slave = os.openpty()

    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    try:
        argv = [server.binary, "serve", "--listen", server.host, "--state", str(server.state), "--pool-default", "0"]
        with open(server.log_path, "ab") as log:
            server.process = subprocess.Popen(argv, stdin=slave, stdout=log, stderr=log,
                                              preexec_fn=own_terminal)
        os.close(slave)
        server.wait_ready()
        os.close(master)
        assert ended(server) == 0
        server.wait_gone()
    finally:
        server.stop(check=False)


# ---- reload ----


@pytest.fixture
def configured(start_server):
    """A server with a settings file; `server.rewrite(text)` changes it and sends SIGHUP."""
    where = pathlib.Path(tempfile.mkdtemp(prefix="atoll-conf-"))
    path = where / "atoll.conf"
    path.write_text("log_level = info\n")
    server = start_server(args=["--config", str(path)])

    def rewrite(text, expect):
        before = server.log().count(expect)
        path.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log().count(expect) > before, 10, expect)

    server.rewrite = rewrite
    yield server
    shutil.rmtree(where)


def test_a_reload_takes_effect(configured):
    server = configured
    pid = server.api_pid()
    assert server.get("/api/v1/health", headers={"Host": "new.example"}).status == 421
    server.rewrite("host = new.example\nlog_format = json\n", "settings reloaded")
    assert server.get("/api/v1/health", headers={"Host": "new.example"}).status == 200
    assert server.api_pid() == pid, "a reload must not restart anything"
    server.kill9_api()  # and the next process has them too
    server.wait_ready()
    assert server.get("/api/v1/health", headers={"Host": "new.example"}).status == 200
    last = [l for l in server.log().splitlines() if '"role":"api"' in l][-1]
    assert json.loads(last)["msg"] == "serving"


@pytest.mark.parametrize("bad", ["no_such_setting = 1\n", "log_level = loud\n", "host = a\nhost\n"])
def test_a_bad_reload_changes_nothing(configured, bad):
    configured.rewrite(bad, "the old ones stay")
    assert configured.is_ready()
    configured.rewrite("host = later.example\n", "settings reloaded")
    assert configured.get("/api/v1/health", headers={"Host": "later.example"}).status == 200


def test_what_needs_a_restart_is_named_and_waits(configured):
    configured.rewrite("auth = open\nreaders = 3\n", "changed settings that need a restart")
    line = [l for l in configured.log().splitlines() if "need a restart" in l][-1]
    assert "auth" in line and "readers" in line
    assert configured.get("/api/v1/health", token=None).status == 401
    configured.kill9_api()
    configured.wait_ready()
    assert configured.get("/api/v1/health", token=None).status == 401, "auth=open slipped in by a crash"


# ---- refusals at the start ----


def test_a_second_server_is_told_who_has_the_state(server):
    other = harness.Server(state=server.state)
    other.log_path = server.log_path.with_name("second.log")
    other.start(ready=False)
    assert ended(other) == 3  # conflict
    assert f"process id {server.warden_pid} " in other.log() and str(server.state) in other.log()
    assert server.is_ready() and server.socket_path.exists()


def test_what_a_killed_server_left_with_the_lock_is_waited_for(start_server):
    """A child that it had just made may hold the lock for a moment; nobody is told of a server that is gone."""
    server = start_server()
    server.stop(remove=False)
    gone = subprocess.Popen(["true"])
    gone.wait()
    with open(server.state / "lock", "w") as lock:
        print(gone.pid, file=lock, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(0.5, fcntl.flock, (lock, fcntl.LOCK_UN)).start()
        server.start()
    assert server.get("/healthz").status == 200


def test_a_port_in_use_is_named(server):
    status, log = first_start([], port=server.port)
    assert status == 3 and f"127.0.0.1:{server.port}" in log and "--listen" in log
    check = [str(harness.ROOT / "tools" / "serve"), "--check"]
    for words in (["--listen", server.host], [f"--listen={server.host}"]):
        taken = subprocess.run([*check, *words], capture_output=True, text=True)
        assert taken.returncode == 1 and "make run ARGS=" in taken.stderr, taken
    assert subprocess.run([*check, "--listen", f"127.0.0.1:{harness.free_port()}"]).returncode == 0


def test_sandboxes_that_go_on_are_named_at_the_end(start_server):
    server = start_server()
    harness.make_box(server, storage="memory")
    harness.make_box(server, storage="memory")
    server.stop(check=False, remove=False)
    assert "sandboxes go on without the server" in server.log() and "sandboxes=2" in server.log()
    server.start()
    harness.delete_boxes(server)


def test_a_listener_for_everybody_without_tls(start_server):
    server = start_server(args=["--insecure", "--listen", f"0.0.0.0:{harness.free_port()}"])
    assert "insecure: whoever is on the way" in server.log()


@pytest.mark.parametrize("args, word", [
    (["--no-such-flag"], "no-such-flag"),
    (["--listen", "example.org:80"], "example.org"),
    (["--log-level", "loud"], "log_level"),
    (["--metrics-enabled=perhaps"], "metrics_enabled"),
    (["--listen", "https://127.0.0.1:0"], "tls_cert"),
    (["--auth", "open", "--listen", "0.0.0.0:0"], "auth"),
    (["--auth", "open", "--insecure", "--listen", "0.0.0.0:0"], "auth"),
    (["--listen", "0.0.0.0:0"], "refused without TLS"),
    (["stray"], "stray"),
])
def test_bad_flags_are_named(args, word):
    status, log = first_start(args)
    assert status in (1, 64) and word in log, log


def test_a_state_directory_of_others_is_refused():
    top = tempfile.mkdtemp(prefix="atoll-e2e-")
    try:
        os.chmod(top, 0o777)
        status, log = first_start([], state=top)
        assert status != 0 and "others may write" in log
        assert {p.name for p in pathlib.Path(top).iterdir()} <= {"serve.log"}
    finally:
        shutil.rmtree(top)
        pathlib.Path(top).with_name("serve.log").unlink(missing_ok=True)


def test_roles_started_by_hand_say_what_to_do():
    for argv in ([harness.BIN, "api"], [str(harness.BUILD / "atoll-warden")],
                 [harness.BIN, "serve", "--resolve"]):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, close_fds=True)
        assert done.returncode != 0
        assert "serve" in done.stderr or "warden" in done.stderr


# ---- where and as whom ----


def test_modes_of_the_state_directory(server):
    mode = {p.name: stat.S_IMODE(p.stat().st_mode) for p in server.state.iterdir()}
    assert stat.S_IMODE(server.state.stat().st_mode) == 0o711
    assert mode["admin.token"] == 0o600 and mode["data"] == 0o700 and mode["atoll.sock"] == 0o666
    if os.geteuid() == 0:
        assert (server.state / "data").stat().st_uid == int(proc_status(server.api_pid())["Uid"].split()[0])
        assert (server.state / "admin.token").stat().st_uid == 0


@ROOT_ONLY
@pytest.mark.skipif(harness.NO_USERNS, reason="a sanitizer's thread is in the way")
def test_the_whole_server_as_an_ordinary_user():
    top = pathlib.Path(tempfile.mkdtemp(prefix="atoll-e2e-"))
    os.chown(top, NOBODY, NOBODY)
    server = harness.Server(state=top / "state")
    # Copies, because a clone in root's home directory is closed to other users.
    for name in ("atoll", "atoll-server", "atoll-warden", "atoll-init"):
        shutil.copy(pathlib.Path(server.binary).parent / name, top)
    real = top / "atoll"
    server.binary = shutil.which("setpriv")
    try:
        argv = [server.binary, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", real,
                "serve", "--listen", server.host, "--state", str(server.state), "--pool-default", "0"]
        with open(server.log_path, "ab") as log:
            server.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        server.wait_ready()
        for pid in (server.warden_pid, server.api_pid()):
            status = proc_status(pid)
            assert set(status["Uid"].split()) == {str(NOBODY)}
        assert os.readlink(f"/proc/{server.warden_pid}/ns/user") != os.readlink("/proc/self/ns/user")
        assert int(proc_status(server.api_pid())["CapEff"], 16) == 0
        assert int(proc_status(server.api_pid())["CapBnd"], 16) == 0
        assert proc_status(server.api_pid())["Seccomp"] == "2"
        assert server.post("/api/v1/tokens", {"name": "x", "role": "viewer"}).status == 201
        server.kill9_api()
        server.wait_ready()
        server.stop()
    finally:
        server.stop(check=False)
        shutil.rmtree(top)


@ROOT_ONLY
def test_another_user_for_the_api_process(start_server):
    server = start_server()
    server.new_token(name="kept", role="viewer")
    server.stop(remove=False)
    server.args = ["--uid-base", "70000"]
    server.start()
    assert proc_status(server.api_pid())["Uid"].split()[0] == "70000"
    assert "kept" in [t["name"] for t in server.get("/api/v1/tokens").json()["items"]]


def test_installed_elsewhere(start_server):
    top = pathlib.Path(tempfile.mkdtemp(prefix="atoll-e2e-"))
    top.chmod(0o755)
    (top / "bin").mkdir()
    (top / "libexec" / "atoll").mkdir(parents=True)
    shutil.copy(harness.BIN, top / "bin" / "atoll")
    beside = pathlib.Path(harness.BIN).parent
    try:
        for missing in ("atoll-server", "atoll-warden"):
            if not pathlib.Path("/usr/local/libexec/atoll").exists():
                status, log = first_start([], binary=top / "bin" / "atoll")
                assert status == 1 and f"{missing} is neither at" in log and "is atoll installed?" in log
            shutil.copy(beside / missing, top / "libexec" / "atoll" / missing)
        start_server(binary=top / "bin" / "atoll").stop()
    finally:
        shutil.rmtree(top)


def test_a_long_path_and_strange_letters():
    top = pathlib.Path(tempfile.mkdtemp(prefix="atoll-e2e-"))
    top.chmod(0o700)  # nor may the api process pass through here
    state = top.joinpath(*["a directory with ünicode & 'quotes' %41" for _ in range(8)], "state")
    assert len(str(state)) > 300
    server = harness.Server(state=state)
    server.log_path = top / "serve.log"
    try:
        server.start()
        assert server.post("/api/v1/tokens", {"name": "x", "role": "viewer"}).status == 201
        assert (state / "atoll.sock").is_socket()
        server.kill9_api()
        server.wait_ready()
        server.stop()
    finally:
        server.stop(check=False)
        shutil.rmtree(top)


def test_the_limit_of_open_files_is_raised(server):
    limits = pathlib.Path(f"/proc/{server.api_pid()}/limits").read_text()
    soft, hard = [l.split()[3:5] for l in limits.splitlines() if l.startswith("Max open files")][0]
    assert soft == hard


def test_more_listeners(start_server):
    extra = harness.free_port()
    top = pathlib.Path(tempfile.mkdtemp(prefix="atoll-e2e-"))
    top.chmod(0o755)
    sock = top / "extra.sock"
    server = start_server(args=["--listen", f"127.0.0.1:{extra}", "--listen", f"unix:{sock}"])
    with socket.create_connection(("127.0.0.1", extra)) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 200 " in harness.read_all(one)
    conn = harness.UnixConnection(sock, 5)
    conn.request("GET", "/api/v1/whoami")
    assert conn.getresponse().status == 200
    conn.close()
    server.stop(remove=False)
    assert not sock.exists()
    shutil.rmtree(top)


def test_as_many_listeners_as_a_list_holds(start_server):
    top = pathlib.Path(tempfile.mkdtemp(prefix="atoll-e2e-"))
    top.chmod(0o755)
    flags = [f"--listen=unix:{top}/{i}.sock" for i in range(32)]
    try:
        server = start_server(args=flags[:31])  # and the port that the test itself uses
        for at in (0, 30):
            conn = harness.UnixConnection(top / f"{at}.sock", 5)
            conn.request("GET", "/readyz")
            assert conn.getresponse().status == 200
            conn.close()
        server.stop()
        status, log = first_start(flags)
        assert status in (1, 64) and "more than 32" in log, log
    finally:
        shutil.rmtree(top)


# ---- systemd ----


def test_systemd_is_told(start_server):
    top = pathlib.Path(tempfile.mkdtemp(prefix="atoll-e2e-"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(top / "notify"))
        notify.settimeout(10)
        server = start_server(env={"NOTIFY_SOCKET": str(top / "notify"), "WATCHDOG_USEC": "200000"})

        def hear(word):
            end = time.monotonic() + 10 * SLOW
            while time.monotonic() < end:
                text = notify.recv(4096).decode()
                if word in text.split("\n"):
                    return text
            raise AssertionError(f"no {word}")

        hear("READY=1")
        hear("WATCHDOG=1")
        hear("WATCHDOG=1")
        server.process.send_signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in hear("RELOADING=1")
        hear("READY=1")
        server.process.send_signal(signal.SIGTERM)
        hear("STOPPING=1")
        assert ended(server) == 0
    shutil.rmtree(top)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a sandbox")
def test_a_child_that_was_not_ours_is_in_nobodys_way():
    """A script that has started something becomes the server: what it started is the server's child, and ends."""
    server = harness.Server(prefix=["/bin/sh", "-c", "sleep 0.1 & exec \"$0\" \"$@\""])
    try:
        server.start()
        box = harness.make_box(server, storage="memory")
        assert server.delete(f"/api/v1/sandboxes/{box}").status == 200
    finally:
        server.stop()


# What it leaves at the door takes a minute to be closed, for whoever closes it last.
KNOCKER = """
import array, socket, struct, sys
there = socket.create_server(("127.0.0.1", 0))
kept = []
for _ in range(int(sys.argv[2])):
    slow = socket.create_connection(there.getsockname())
    kept.append(there.accept())
    slow.setblocking(False)
    try:
        while True:
            slow.send(bytes(65536))
    except BlockingIOError:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.connect(sys.argv[1])
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [slow.fileno()]))
    door.settimeout(1)
    try:
        door.send(b"junk")
        door.sendmsg([b"more"], [rights])
    except OSError:  # answered before all was said: then it is ours alone
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    slow.close()
    try:
        door.recv(100)
    except OSError:
        pass
    door.close()
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a sandbox")
@pytest.mark.parametrize("user, times", [(0, 8), (54321, 60)])  # another user is refused most of the times
def test_who_knocks_keeps_nobody_waiting(fresh_server, user, times):
    knocker = subprocess.Popen([sys.executable, "-c", KNOCKER, str(fresh_server.state / "door.sock"), str(times)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user)
    try:
        assert knocker.stdout.readline() == b"done\n"
        box = harness.make_box(fresh_server, storage="memory")
        assert fresh_server.delete(f"/api/v1/sandboxes/{box}").status == 200
    finally:
        knocker.kill()
        knocker.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a sandbox")
def test_groups_of_a_server_that_is_gone_for_good_are_removed_by_another():
    def groups():
        return [path for path, _, _ in os.walk("/sys/fs/cgroup") if path.endswith("/" + mark)]

    killed, other = harness.Server(), harness.Server()
    try:
        killed.start()
        harness.make_box(killed, storage="memory")
        st = killed.state.stat()
        mark = f"atoll-{st.st_dev:x}-{st.st_ino:x}"
        harness.delete_boxes(killed)
        killed.kill9_all()
        assert groups()
        other.start()  # the directory is still there: somebody may come back
        wait_until(lambda: (other.state / "data" / "doctor.json").exists(), 30, "a look at the machine")
        assert groups()
        other.stop(remove=False)
        shutil.rmtree(killed.state)
        other.start()
        wait_until(lambda: not groups(), 30, "empty groups are removed")
    finally:
        other.stop()
        killed.stop(check=False)
