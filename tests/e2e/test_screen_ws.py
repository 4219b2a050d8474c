"""What real full-screen programs draw, driven over the WebSocket: the server's screen must say what tmux's
own screen says of the same program with the same keys."""
import os
import re
import shutil
import subprocess
import time

import harness
import pytest
from terminal import Terminal

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
              pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")]
BOXES = "/api/v1/sandboxes"
ROWS, COLS = 24, 80


class Tmux:
    """A program under tmux on this machine, as the judge."""

    def __init__(self, tmp, *argv):
        self.socket = str(tmp / "tmux.sock")
        self.env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": str(tmp)}
        self.run("-f", "/dev/null", "new-session", "-d", "-s", "x", "-x", str(COLS), "-y", str(ROWS), *argv)
        self.run("set-option", "-g", "status", "off")
        self.run("set-option", "-s", "escape-time", "0")
        self.run("resize-window", "-t", "x", "-x", str(COLS), "-y", str(ROWS))

    def run(self, *args, check=True):
        return subprocess.run(["tmux", "-S", self.socket, *args], env=self.env, text=True, check=check,
                              capture_output=True, timeout=20).stdout

    def type(self, keys):
        self.run("send-keys", "-t", "x", "-l", keys)

    def screen(self):
        text = self.run("capture-pane", "-p", "-t", "x")
        row, col = self.run("display-message", "-p", "-t", "x", "#{cursor_y} #{cursor_x}").split()
        return [line.rstrip() for line in text.split("\n")[:ROWS]], (int(row), int(col))

    def close(self):
        self.run("kill-server", check=False)


@pytest.fixture(scope="module")
def box(server):
    box = server.post(BOXES, {}).json()["id"]
    yield box
    assert server.delete(f"{BOXES}/{box}").status == 200


def ours(server, box, tid):
    told = server.get(f"{BOXES}/{box}/terminals/{tid}/screen").json()
    lines = [line.rstrip() for line in told["text"].split("\n")]
    return lines + [""] * (ROWS - len(lines)), (told["cursor"]["row"], told["cursor"]["col"])


def settled(look, seconds=10):
    """What it shows once it no longer changes."""
    before, end = look(), time.monotonic() + seconds * harness.SLOW
    while True:
        time.sleep(0.4)
        now = look()
        if now == before or time.monotonic() > end:
            return now
        before = now


def both(judge, ours, seconds=20):
    """What each shows once neither changes. A program that has not come to the keys yet stands still too: where
    they differ both are looked at again, until only a real difference can be left."""
    end = time.monotonic() + seconds * harness.SLOW
    while True:
        want, have = settled(judge), settled(ours)
        if have == want or time.monotonic() > end:
            return want, have


VIM = ["vim", "-N", "-u", "NONE", "-i", "NONE", "-n", "--cmd",
       # Asks its terminal nothing, and knows a lone escape soon. No greeting (I): which one it shows depends on the
       # second in which it is drawn.
       "set noruler noshowcmd laststatus=2 ttimeout ttimeoutlen=20 t_RV= t_u7= t_RF= t_RB= shortmess+=I"]
# One of its own beneath, with nothing in its bar that changes by itself.
TMUX = ["env", "-u", "TMUX", "tmux", "-u", "-S", "inner.sock", "-f", "conf", "new-session"]
CONF = """set -g default-shell /bin/sh
set -g default-command "PS1='> ' exec sh"
set -g status-left "[bar] "
set -g status-right ""
set -g window-status-format "#I"
set -g window-status-current-format "#I*"
set -s escape-time 0
set -g assume-paste-time 0
"""
STEPS = {
    "tmux": (TMUX, ["seq 1 50\r", "\002%", "echo wide \u65e5\u672c\u8a9e\r", "\002\"", "seq 1 100\r", "\002[",
                    "\033[5~", "q", "\002z", "\002c", "\002:", "kill-session\r"]),
    "vim": (VIM, ["ihello wide \u65e5\u672c\u8a9e world\r\tindented\r\033",
                  "yy50p", "gg", ":set number\r", "/indented\r", ":vsplit\r", "\027l", "dd", "50ofill\033", "zt",
                  ":set nowrap\r", ":help\r", ":only\r", ":qa!\r"]),
    "less": (["less", "-S", "FILE"], [" ", " ", "b", "G", "g", "/line 77\r", "\033)", "q"]),
    "nano": (["nano", "-I", "FILE"], ["abc", "\r\r", "\026", "\027line 50\r", "\013\013", "\030n"]),
}


@pytest.mark.parametrize("name", sorted(STEPS))
@pytest.mark.timeout(300)
def test_the_screen_equals_tmux(server, box, tmp_path, name):
    argv, steps = STEPS[name]
    if not shutil.which(argv[0]):
        pytest.skip(f"{argv[0]} is not installed")
    text = "".join(f"line {i} " + "x" * (i % 100) + "\n" for i in range(200))
    for file, content in (("file", text), ("conf", CONF)):
        (tmp_path / file).write_text(content)
        put = server.request("PUT", f"{BOXES}/{box}/files?path=/tmp/{file}", body=content.encode(),
                             headers={"Content-Type": "application/octet-stream"})
        assert put.status in (200, 201), put
    os.chdir(tmp_path)
    judge = Tmux(tmp_path, *[str(a).replace("FILE", "file") for a in argv])
    made = server.post(f"{BOXES}/{box}/terminals", {
        "argv": [a.replace("FILE", "file") for a in argv], "rows": ROWS, "cols": COLS, "cwd": "/tmp",
        "env": {"TERM": "xterm-256color", "LANG": "C.UTF-8"}})
    assert made.status == 201, made
    tid = made.json()["id"]
    try:
        with Terminal(server, box, tid, "?from=0&role=controller") as term:
            for step, keys in enumerate(["", *steps[:-1]]):
                if keys:
                    judge.type(keys)
                    term.send(keys.encode())
                want, have = both(judge.screen, lambda: ours(server, box, tid))
                assert have == want, f"{name}, step {step}, {keys!r}"
            term.send(steps[-1].encode())
            judge.type(steps[-1])
            term.drain()
            assert term.exit["exit_code"] == 0
    finally:
        judge.close()
        os.chdir("/")


@pytest.mark.timeout(120)
def test_htop_draws_what_tmux_shows_of_it(server, box, tmp_path):
    """Its numbers never stand still: what does must be the same, and in the same places."""
    if not shutil.which("htop"):
        pytest.skip("htop is not installed")
    argv = ["htop", "--no-color", "-d", "100"]
    judge = Tmux(tmp_path, *argv)
    made = server.post(f"{BOXES}/{box}/terminals", {"argv": argv, "rows": ROWS, "cols": COLS})
    tid = made.json()["id"]
    try:
        with Terminal(server, box, tid, "?from=0&role=controller") as term:
            def still(lines):
                """The bar of keys, and the head of the help."""
                return [line for line in lines if re.search(r"F1\s*Help|Released under", line)]

            def places(lines):
                return [(i, still([line])) for i, line in enumerate(lines) if still([line])]

            for keys, what in (("", "F1Help"), ("h", "Released under"), (" ", "F1Help"), ("t", "F5List")):
                if keys:
                    judge.type(keys)
                    term.send(keys.encode())
                harness.wait_until(lambda: any(what in line for line in judge.screen()[0]), 15, f"{what} in tmux")
                harness.wait_until(lambda: any(what in line for line in ours(server, box, tid)[0]), 15, f"{what} here")
                (want, _), (have, _) = settled(judge.screen, 3), settled(lambda: ours(server, box, tid), 3)
                assert places(have)[-1:] == places(want)[-1:], keys
                assert len(have) == len(want)
            term.send(b"q")
            term.drain()
            assert term.exit["exit_code"] == 0
    finally:
        judge.close()
