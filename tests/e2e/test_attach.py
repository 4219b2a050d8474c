"""`atoll attach`, `shell` and `terminal`, by somebody at a terminal: a real PTY with the program on it."""
import fcntl
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
