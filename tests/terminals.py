"""Terminals to compare with: what a program writes into a terminal of a fixed size, what our screen makes of
it, and what tmux makes of it. A cell is (text, foreground, background, underline colour, attributes) in the
numbers of src/term/screen.h."""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

import harness

INDEXED, RGB = 1 << 24, 2 << 24
SET = {1: 1 << 0, 2: 1 << 1, 3: 1 << 2, 5: 1 << 3, 7: 1 << 4, 8: 1 << 5, 9: 1 << 6, 53: 1 << 7}
UNDERLINE = 7 << 8
LINES = dict(zip("`abcdefghijklmnopqrstuvwxyz{|}~", "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"))


class Looks:
    """SGR, understood a second time."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.fg = self.bg = self.ul = self.attrs = 0

    def set(self, code, color):
        setattr(self, {3: "fg", 4: "bg", 5: "ul"}[code // 10 % 10 if code < 60 else code // 10 - 6], color)

    def apply(self, text):
        codes = [[int(n or 0) for n in re.split(":", part)] for part in (text or "0").split(";")]
        i = 0
        while i < len(codes):
            code, sub = codes[i][0], codes[i][1:]
            if code in (38, 48, 58):
                rest = sub if sub else [c[0] for c in codes[i + 1:i + 5]]
                if rest and rest[0] == 5:
                    self.set(code, INDEXED | rest[1])
                    i += 0 if sub else 2
                elif rest:
                    r, g, b = rest[-3:] if sub else rest[1:4]
                    self.set(code, RGB | r << 16 | g << 8 | b)
                    i += 0 if sub else 4
            elif code == 0:
                self.reset()
            elif code == 4:
                self.attrs = self.attrs & ~UNDERLINE | (sub[0] if sub else 1) << 8
            elif code in SET:
                self.attrs |= SET[53 if sub == [3] else code]  # tmux 3.3a writes 53 as 5:3
            elif 30 <= code <= 37 or 40 <= code <= 47:
                self.set(code, INDEXED | code % 10)
            elif 90 <= code <= 97 or 100 <= code <= 107:
                self.set(code - 60, INDEXED | code % 10 + 8)
            elif code in (39, 49, 59):
                self.set(code, 0)
            else:
                raise AssertionError(f"tmux wrote SGR {text}")
            i += 1


def read_capture(text, rows, cols):
    """Rows of cells from what `tmux capture-pane -e` printed. Wide characters are asked of our own screen
    elsewhere; here a cell is a character with its marks."""
    looks, charset, out = Looks(), False, []
    for line in text.split("\n")[:rows]:
        cells, at = [], 0
        while at < len(line):
            escape = re.compile(r"\x1b\[([0-9;:]*)m").match(line, at)
            if escape:
                looks.apply(escape.group(1))
                at = escape.end()
                continue
            char = line[at]
            at += 1
            if char in "\x0e\x0f":
                charset = char == "\x0e"
            elif zero_width(char) and cells:
                cells[-1] = (cells[-1][0] + char,) + cells[-1][1:]
            else:
                char = LINES.get(char, char) if charset else char
                cells.append((char, looks.fg, looks.bg, looks.ul, looks.attrs))
        out.append(cells)
    return out + [[] for _ in range(rows - len(out))]


def zero_width(char):
    return "\u0300" <= char <= "\u036f" or char in "\u200b\u200d\ufe0f"


class Screen:
    """What one of the two shows."""

    def __init__(self, rows, cursor, visible, alternate):
        self.rows, self.cursor, self.visible, self.alternate = rows, cursor, visible, alternate

    def text(self):
        return "\n".join("".join(cell[0] for cell in row).rstrip() for row in self.rows)

    def difference(self, other):
        """The first thing in which they differ, or None. Of what `other` does not say, blanks at the end of a
        row, only that there is nothing to read counts."""
        for name in ("cursor", "visible", "alternate"):
            if getattr(self, name) != getattr(other, name):
                return f"{name}: {getattr(self, name)} and {getattr(other, name)}"
        for y, (a, b) in enumerate(zip(self.rows, other.rows)):
            for x in range(max(len(a), len(b))):
                one = a[x] if x < len(a) else None
                two = b[x] if x < len(b) else None
                if one != two and (two or one[0] != " "):
                    return f"row {y}, character {x}: {one} and {two}"
        return None


def fill_ends(rows, cols):
    """Bytes that write into the last column of every row: tmux tells of blanks only before a character."""
    return ("\x18\x0f\x1b(B\x1b[4l\x1b[?6l\x1b[r\x1b[m" +
            "".join(f"\x1b[{row + 1};{cols}H|" for row in range(rows))).encode()


def ours(data, rows, cols, resize=()):
    done = subprocess.run([harness.BUILD / "screen", *map(str, (rows, cols, *resize))], input=data,
                          capture_output=True, check=True)
    said = json.loads(done.stdout)
    cells = [[(text or " ", fg, bg, ul, attrs) for text, width, fg, bg, ul, attrs in row if width]
             for row in said["cells"]]
    return Screen(cells, (said["row"], said["col"]), said["visible"], said["alternate"])


def keyframe(data, rows, cols):
    return subprocess.run([harness.BUILD / "screen", str(rows), str(cols), "keyframe"], input=data,
                          capture_output=True, check=True).stdout


class Tmux:
    """A server of our own with one window; its pane shows what it is given."""

    def __init__(self, rows, cols):
        self.place = tempfile.mkdtemp(prefix="atoll-tmux-")
        self.rows, self.cols, self.count = rows, cols, 0
        config = os.path.join(self.place, "conf")
        with open(config, "w", encoding="utf-8") as f:
            f.write("set -g status off\nset -g history-limit 2000\nset -g remain-on-exit on\n"
                    "set -g default-terminal xterm-256color\nset -g scroll-on-clear off\n")
        self.env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "HOME": self.place,
                    "SHELL": "/bin/sh", "TMUX_TMPDIR": self.place}
        self.run("-f", config, "new-session", "-d", "-x", str(cols), "-y", str(rows), "exec cat")

    def run(self, *args):
        done = subprocess.run(["tmux", "-L", "t", "-u", *args], env=self.env, capture_output=True, check=True)
        return done.stdout.decode()

    def feed(self, data):
        """Into a fresh pane. A title behind the bytes says that all of them were read."""
        self.count += 1
        token = f"seen-{self.count}"
        file = os.path.join(self.place, "bytes")
        with open(file, "wb") as f:
            f.write(data + f"\x1b]2;{token}\x1b\\".encode())
        self.run("respawn-pane", "-k", f"stty raw -echo; cat {file}; exec cat >/dev/null")
        harness.wait_until(lambda: self.run("display-message", "-p", "#{pane_title}").strip() == token, 20,
                           "tmux to read it")

    def resize(self, rows, cols):
        self.run("resize-window", "-x", str(cols), "-y", str(rows))

    def shows(self, rows=None, cols=None):
        rows, cols = rows or self.rows, cols or self.cols
        said = self.run("display-message", "-p", "#{cursor_y} #{cursor_x} #{cursor_flag} #{alternate_on}").split()
        cells = read_capture(self.run("capture-pane", "-p", "-e", "-N"), rows, cols)
        return Screen(cells, (int(said[0]), int(said[1])), said[2] == "1", said[3] == "1")

    def close(self):
        try:
            self.run("kill-server")
        finally:
            shutil.rmtree(self.place, ignore_errors=True)


def record(argv, keys, rows, cols, cwd, env=None, quiet=0.4, seconds=20):
    """The bytes that a program writes into a terminal while `keys` are typed, one whenever it is quiet.
    It is killed in the end: what it shows last is what counts."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe(argv[0], argv, {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm-256color",
                                   "HOME": str(cwd), **(env or {})})
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
    data, keys, end = b"", list(keys), time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([fd], [], [], quiet)[0]:
            try:
                piece = os.read(fd, 65536)
            except OSError:  # it has ended
                break
            if not piece:
                break
            data += piece
        elif keys:
            os.write(fd, keys.pop(0))
        else:
            break
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(fd)
    return data
