"""`atoll attach`, `shell` and `terminal`, by somebody at a terminal: a real PTY with the program on it."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
DETACH = b"\x10\x11"


@pytest.fixture
def box(server):
    box = server.post(BOXES, {"name": "desk"}).json()["id"]
    yield box
    assert server.delete(f"{BOXES}/{box}").status == 200


class Desk:
    """A program at a terminal of its own."""

    def __init__(self, server, *args, rows=24, cols=80):
        self.master, self.slave = pty.openpty()
        self.resize(rows, cols, tell=False)
        self.before = termios.tcgetattr(self.slave)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
        self.process = subprocess.Popen(
            [server.binary, *args, "--state", str(server.state)], stdin=self.slave, stdout=self.slave,
            stderr=self.slave, start_new_session=True, env=clean,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = b""

    def resize(self, rows, cols, tell=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def type(self, data):
        os.write(self.master, data if isinstance(data, bytes) else data.encode())

    def until(self, what, seconds=20):
        what = what if isinstance(what, bytes) else what.encode()
        end = time.monotonic() + seconds * harness.SLOW
        while what not in self.seen:
            assert time.monotonic() < end, f"no {what!r} in {self.seen[-800:]!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)
        at = self.seen.index(what) + len(what)
        before, self.seen = self.seen[:at], self.seen[at:]
        return before

    def raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def ended(self, seconds=20):
        """The exit status; what it printed meanwhile is read, so that it can end."""
        end = time.monotonic() + seconds * harness.SLOW
        while self.process.poll() is None:
            assert time.monotonic() < end, self.seen[-800:]
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0.1)[0]:
            self.seen += os.read(self.master, 65536)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


def terminals(server, box):
    return server.get(f"{BOXES}/{box}/terminals").json()["items"]


def test_a_shell_until_it_exits(server, box):
    with Desk(server, "shell", "desk", "--env", "PS1=ready>", rows=31, cols=97) as desk:
        desk.type("stty size\n")
        desk.until("31 97")
        assert desk.raw()
        desk.resize(20, 60)
        harness.wait_until(lambda: terminals(server, box)[0]["cols"] == 60, 10, "the new size")
        desk.type("stty size\n")
        desk.until("20 60")
        desk.type("exit 3\n")
        assert desk.ended() == 3


def test_leaving_it_and_coming_back(server, box):
    with Desk(server, "shell", "desk", "--name", "main") as desk:
        desk.type("X=kept; echo $X-1\n")
        desk.until("kept-1")
        desk.type(DETACH)
        assert desk.ended() == 0
        assert b"detached" in desk.seen
    assert terminals(server, box)[0]["state"] == "running"
    with Desk(server, "attach", "desk") as desk:
        desk.until("kept-1")  # its screen
        desk.type("\x10x\x15echo $X-2\n")  # half of the keys are keys
        desk.until("kept-2")
        desk.type("exit\n")
        assert desk.ended() == 0


def test_other_keys_and_none(server, box):
    with Desk(server, "shell", "desk", "--detach-keys", "ctrl-a,d") as desk:
        desk.type("echo at-$((1+1))\n")
        desk.until("at-2")
        desk.type("\x01d")
        assert desk.ended() == 0
    tid = terminals(server, box)[0]["id"]
    with Desk(server, "attach", "desk", tid, "--detach-keys", "") as desk:
        desk.until("at-2")
        desk.type(DETACH + b"\x15exit 4\n")
        assert desk.ended() == 4
    with Desk(server, "attach", "desk", tid, "--detach-keys", "ctrl-") as desk:
        assert desk.ended() == 64


def test_watching_and_taking_over(server, box):
    with Desk(server, "shell", "desk") as one:
        one.type("echo by-$((0+1))\n")
        one.until("by-1")
        with Desk(server, "attach", "desk", "--observe") as two:
            two.until("by-1")
            two.type("echo not me\n")
            one.type("echo by-$((1+1))\n")
            assert b"not me" not in two.until("by-2")
            two.type(DETACH)
            assert two.ended() == 0
        with Desk(server, "attach", "desk", "--take") as three:
            three.until("by-2")
            three.type("echo by-$((1+2))\n")
            three.until("by-3")
            one.until("by-3")
            three.type(DETACH)
            assert three.ended() == 0
        one.type("echo by-$((2+2))\n")  # its first key asks for control again
        one.until("by-4")
        one.type("exit\n")
        assert one.ended() == 0


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_the_terminal_whole(server, box, sig):
    with Desk(server, "shell", "desk") as desk:
        desk.type("printf '\\033[?1049h\\033[?1000h'; echo in-$((3+4))\n")
        desk.until("in-7")
        desk.process.send_signal(sig)
        assert desk.ended() == 128 + sig
        assert b"\033[?1049l" in desk.seen and b"\033[?1000l" in desk.seen
    assert terminals(server, box)[-1]["state"] == "running"


def test_a_server_that_is_killed_meanwhile(server, box):
    with Desk(server, "shell", "desk") as desk:
        desk.type("echo before-$((5+5))\n")
        desk.until("before-10")
        server.kill9_api()
        server.wait_ready()
        desk.type("echo after-$((5+6))\n")
        seen = desk.until("after-11")
        assert b"before-10" not in seen  # nothing comes twice
        desk.type("exit 5\n")
        assert desk.ended() == 5


def test_a_sandbox_that_ends_meanwhile(server):
    box = server.post(BOXES, {}).json()["id"]
    with Desk(server, "shell", box) as desk:
        desk.type("echo here-$((1+1))\n")
        desk.until("here-2")
        assert server.delete(f"{BOXES}/{box}").status == 200
        assert desk.ended() != 0


def test_without_a_terminal_here(server, box):
    assert server.cli("attach", "desk", timeout=10).returncode == 64
    shell = subprocess.run([server.binary, "shell", "desk", "--state", str(server.state)], input="echo $((6*7))\n",
                           capture_output=True, text=True, timeout=30)
    assert shell.stdout == "42\n" and shell.returncode == 0


def test_listing_killing_and_recording(server, box, tmp_path):
    made = server.post(f"{BOXES}/{box}/terminals", {"argv": ["sh", "-c", "printf '\\033[31mred'; sleep 99"],
                                                   "name": "red"}).json()
    harness.wait_until(lambda: terminals(server, box)[0]["end"] > 5, 10, "output")
    listed = server.cli("terminal", "ls", "desk", check=True).stdout
    assert made["id"] in listed and "\033" not in listed
    cast = tmp_path / "red.cast"
    server.cli("terminal", "record", "desk", "red", "--output", str(cast), check=True)
    assert cast.read_text().startswith('{"version":2') and "\033" not in cast.read_text()
    assert server.cli("terminal", "record", "desk", "red", "--output", str(cast)).returncode != 0  # never over one
    assert server.cli("terminal", "kill", "desk", "red", check=True).stdout.strip() == made["id"]
    assert server.cli("terminal", "kill", "desk", "nothing").returncode != 0
    assert server.cli("attach", "desk").returncode != 0


# ---- sessions: the same terminals by themselves ----

@pytest.fixture
def main(server, box):
    made = server.post(f"{BOXES}/{box}/terminals", {"name": "main", "argv": ["sh"], "env": {"PS1": "ready> "}})
    assert made.status == 201, made
    harness.wait_until(lambda: "ready>" in server.get(f"/api/v1/sessions/{made.json()['id']}/screen").json()["text"],
                       10, "a prompt")
    return made.json()["id"]


def test_a_session_is_watched_unless_one_says_write(server, main):
    with Desk(server, "session", "attach", "main") as desk:
        desk.until("ready>")
        desk.type("echo ne-ver\n")
        desk.type(DETACH)
        assert desk.ended() == 0
    with Desk(server, "session", "attach", main[:20], "--write", "--detach-keys", "ctrl-a,d") as desk:
        desk.until("ready>")
        desk.type("echo al-ways | tr -d -\n")
        desk.until("always")
        desk.type(b"\x01d")
        assert desk.ended() == 0
    assert "ne-ver" not in server.cli("session", "screen", "main", check=True).stdout


def test_a_session_from_a_byte_on(server, main):
    server.cli("session", "input", "main", "--text", "echo fir-st | tr -d -", "--enter", check=True)
    harness.wait_until(lambda: "first" in server.cli("session", "screen", "main").stdout, 10, "the output")
    server.cli("session", "input", "main", "--text", "clear", "--enter", check=True)
    harness.wait_until(lambda: "first" not in server.cli("session", "screen", "main").stdout, 10, "a clear screen")
    with Desk(server, "session", "attach", "main", "--from", "0") as desk:
        desk.until("first")  # no longer on the screen
        desk.type(DETACH)
        assert desk.ended() == 0


def test_observing_a_session(server, main):
    assert "ready>" in server.cli("tui", "observe", "main", check=True).stdout
    start = time.monotonic()
    idle = server.cli("session", "observe", "main", "--frames", "2", "--timeout", "300ms")
    assert idle.returncode == 5 and idle.stdout.count("ready>") == 1 and time.monotonic() - start >= 0.3, idle
    idle = server.cli("session", "observe", "main", "--frames", "2", "--timeout", "300ms", "--idle-ok")
    assert idle.returncode == 0 and idle.stdout.count("ready>") == 1, idle
    watch = subprocess.Popen([server.binary, "session", "observe", "main", "--frames", "2", "--timeout", "60s",
                              "--json", "--state", str(server.state)], stdout=subprocess.PIPE, text=True)
    first = json.loads(watch.stdout.readline())["text"]
    server.cli("session", "input", "main", "--text", ": seen", check=True)
    assert json.loads(watch.stdout.readline())["text"] != first  # perhaps not all of it yet
    assert watch.wait(20 * harness.SLOW) == 0 and watch.stdout.read() == ""
    assert server.cli("session", "observe", "nobody").returncode == 2
    assert server.cli("session", "observe", "main", "--frames", "0").returncode == 64


def test_typing_into_a_session(server, box, main, tmp_path):
    (tmp_path / "keys").write_bytes("echo fi-le ü | tr -d -\r".encode())
    run = lambda *args, **kw: server.cli("session", *args, "--json", **kw)  # noqa: E731
    assert run("input", "main", "--file", tmp_path / "keys", check=True).stdout == '{"bytes":24}\n'
    subprocess.run([server.binary, "session", "input", "main", "--state", str(server.state)],
                   input=b"echo pi-pe | tr -d -\r", check=True, timeout=30)
    shown = lambda: server.cli("session", "screen", "main").stdout  # noqa: E731
    harness.wait_until(lambda: all(word in shown() for word in ("file ü", "pipe")), 10, "both")
    found = server.cli("session", "search", "main", "pipe", check=True).stdout
    assert "pipe" in found.splitlines()[1] and "\\r\\n" in found  # controls are shown
    assert server.cli("session", "resize", "main", "--rows", "11", "--cols", "44", check=True)
    with Desk(server, "session", "attach", "main", "--write") as desk:
        desk.until("ready>")
        path = f"{BOXES}/{box}/terminals/main"
        harness.wait_until(lambda: server.get(path).json()["controllers"] == 1, 10, "control")
        refused = server.cli("session", "input", "main", "--text", "x")
        assert refused.returncode == 3 and "somebody else controls" in refused.stderr, refused
        desk.type(DETACH)
        assert desk.ended() == 0


def test_the_end_of_a_session(server, box, main):
    tail = subprocess.Popen([server.binary, "session", "tail", "main", "--state", str(server.state)],
                            stdout=subprocess.PIPE, text=True)
    seen = ""
    while "ready>" not in seen:  # it follows by now
        assert (byte := tail.stdout.read(1)), "it ended"
        seen += byte
    cast = server.cli("session", "record", "main", check=True).stdout
    assert cast.startswith('{"version":2,')
    shown = server.cli("session", "show", "main", "--json", check=True).stdout
    assert main in shown and '"agent_id":"desk"' in shown
    assert server.cli("session", "kill", "main", "--signal", "KILL", check=True).stdout == main + "\n"
    tail.communicate(timeout=20 * harness.SLOW)
    assert tail.returncode == 0
    gone = server.cli("session", "show", "main")
    assert gone.returncode == 2 and "no session main runs" in gone.stderr


def test_names_and_beginnings_that_two_sessions_have(server, box, main):
    other = server.post(BOXES, {"name": "other"}).json()["id"]
    twin = server.post(f"{BOXES}/{other}/terminals", {"name": "main", "argv": ["sh"]}).json()["id"]
    for text in ("main", "ex"):
        done = server.cli("session", "show", text)
        assert done.returncode == 3 and "more than one session" in done.stderr, done
    assert twin in server.cli("session", "show", twin, check=True).stdout
    assert server.cli("session", "show", "").returncode == 2
    assert server.delete(f"{BOXES}/{other}").status == 200


@pytest.mark.parametrize("args, status, words", [
    (("show",), 64, "SESSION"), (("attach", "main"), 64, "must be a terminal"),
    (("resize", "main", "--rows", "5"), 64, "--rows and --cols"),
    (("resize", "main", "--rows", "0", "--cols", "9"), 64, "--rows"),
    (("resize", "main", "--rows", "501", "--cols", "20"), 1, "rows must be from 5 to 500"),
    (("resize", "main", "--rows", "24", "--cols", "9"), 64, "not a number from 20 on"),
    (("kill", "main", "--signal", "NOPE"), 1, "no signal"),
    (("input", "main", "--text", "a", "--file", "b"), 64, "not both"),
    (("input", "main", "--file", "/nowhere"), 1, "/nowhere"), (("search", "main", "x", "--limit", "0"), 64, "--limit"),
    (("tail", "nobody"), 2, "no session nobody"), (("tail", "main", "--from", "-1"), 64, "--from"),
], ids=range(12))
def test_wrong_words_about_sessions(server, main, args, status, words):
    done = server.cli("session", *map(str, args))
    assert done.returncode == status and words in done.stderr, done
