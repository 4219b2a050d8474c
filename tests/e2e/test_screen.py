"""Our screen against tmux's: real programs that use all of the terminal, and sequences at random, drawn the
same by both in every character, colour, attribute and in the cursor."""
import pathlib
import random
import shutil
import subprocess

import harness
import pytest
import terminals

ROWS, COLS = 24, 80
pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")


@pytest.fixture(scope="module")
def tmux():
    tmux = terminals.Tmux(ROWS, COLS)
    yield tmux
    tmux.close()


def compare(tmux, data, what):
    """As it is; with something at the end of every row, so that all colours are seen; and painted by our keyframe,
    which is what a viewer gets that comes late."""
    ends = terminals.fill_ends(ROWS, COLS)
    for how, shown, fed in (("", data, data), (" to its ends", data + ends, data + ends),
                            (" by a keyframe", data + ends, terminals.keyframe(data, ROWS, COLS) + ends)):
        tmux.feed(fed)
        difference = terminals.ours(shown, ROWS, COLS).difference(tmux.shows())
        assert difference is None, f"{what}{how}: ours and tmux differ in {difference}; from {data!r}"


# ---- real programs -------------------------------------------------------------------------------

TEXT = "".join(f"line {i}: some words, \u00e9\u00e8, \u4e2d\u6587, a tab\there, and more of it\n" for i in range(200))
LONG = "a long line without an end " * 40 + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("screen")
    (place / "text.txt").write_text(TEXT + LONG + TEXT)
    (place / "code.c").write_text((pathlib.Path(harness.ROOT) / "src/base/buf.c").read_text())
    for i in range(40):
        (place / f"file{i}.{('c', 'tar.gz', 'png', 'txt')[i % 4]}").touch()
    (place / "dir").mkdir()
    (place / "run.sh").touch(0o755)
    git = ["git", "-C", place, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    for i in range(5):
        (place / "text.txt").write_text(TEXT + f"change {i}\n" + LONG + TEXT)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"change {i}: \u00fcber"], check=True)
    return place


VIM = ["vim", "-u", "NONE", "-i", "NONE", "-N", "-n"]
PROGRAMS = {
    "vim": ([*VIM, "+syntax on", "+set number hlsearch", "code.c"],
            [b"/buf\r", b"\x06", b"\x06", b":split\r", b"ihello \x1b", b"5dd", b"\x15", b":set wrap\r", b"G"]),
    "vim, leaving": ([*VIM, "text.txt"], [b"\x06", b"G", b"dd", b":q!\r"]),
    "vim, long lines": ([*VIM, "text.txt"], [b"200G", b"20jA and more\x1b", b"0", b"$", b"\x05\x05\x05"]),
    "less": (["less", "text.txt"], [b" ", b" ", b"/words\r", b"n", b"b", b"G", b"k", b"k", b"g"]),
    "less, chopped": (["less", "-S", "text.txt"], [b"G", b"\x1b[C", b"b"]),
    "less, leaving": (["less", "text.txt"], [b" ", b"q"]),
    "nano": (["nano", "text.txt"], [b"hello", b"\x16", b"\x16", b"\x17words\r", b"\x0b\x0b", b"\x18", b"n"]),
    "nano, help": (["nano", "text.txt"], [b"\x07", b"\x16"]),
    "htop": (["htop", "-d", "100"], [b"\x1b[B\x1b[B", b"t", b"h"]),
    "dialog": (["dialog", "--menu", "Choose one of these", "15", "50", "5", "1", "one", "2", "two", "3", "three"],
               [b"\x1b[B", b"\x1b[B"]),
    "dialog, a form": (["dialog", "--no-lines", "--inputbox", "Some text", "10", "40"], [b"hello"]),
    "git log": (["git", "-c", "color.ui=always", "-c", "core.pager=cat", "log", "-p", "--stat", "--graph"], []),
    "git log, paged": (["git", "-c", "color.ui=always", "-c", "core.pager=less -R", "log", "-p"], [b" ", b" ", b"b"]),
    "ls": (["ls", "--color=always", "-la"], []),
    "ls, columns": (["ls", "--color=always", "-F"], []),
    "bash": (["bash", "--norc", "--noprofile"],
             [b"echo " + b"long " * 30, b"\x01", b"\x05", b"\r", b"seq 1 50\r", b"history\r", b"\x12seq"]),
    "top": (["top", "-n", "2", "-d", "0.3"], []),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_looks_as_in_tmux(tmux, place, name):
    argv, keys = PROGRAMS[name]
    if not shutil.which(argv[0]):
        pytest.skip(f"no {argv[0]}")
    data = terminals.record(argv, keys, ROWS, COLS, place)
    assert len(data) > 200, f"{name} drew nothing: {data!r}"
    compare(tmux, data, name)


def test_tmux_in_it_looks_as_in_tmux(tmux, place):
    inner = ["tmux", "-L", "inner", "-f", "/dev/null"]
    env = {"TMUX_TMPDIR": str(place), "SHELL": "/bin/sh"}
    try:
        data = terminals.record([*inner, "new-session", "ls --color=always; exec cat text.txt -"],
                                [b"\x02%", b"ls -la\r", b"\x02\"", b"seq 1 100\r", b"\x02o"], ROWS, COLS, place, env)
    finally:
        subprocess.run([*inner, "kill-server"], env={**tmux.env, **env}, check=False, capture_output=True)
    compare(tmux, data, "tmux in it")


# ---- sequences at random -------------------------------------------------------------------------

NARROW = ["a", "hello", "some more words", "\u00e9t\u00e9", "e\u0301", "\u2500\u2502", "x" * 30]
WIDE = ["\u4e2d\u6587", "\U0001f600", "\uac00\u0301", "\uff21"]


def place_cursor(rand):
    return f"\x1b[{rand.randint(1, ROWS)};{rand.randint(1, COLS)}H"


def place_inside(rand):
    """Far enough from the right edge for what follows."""
    return f"\x1b[{rand.randint(1, ROWS)};{rand.randint(1, 40)}H"


def sgr(rand):
    """Not 58: tmux keeps no colour of its own for the underline of a blank."""
    def color():
        return rand.choice([f"5;{rand.randint(0, 255)}", f"2;{rand.randint(0, 255)};0;{rand.randint(0, 255)}"])

    codes = [str(rand.choice([
        0, 1, 2, 3, 4, 5, 7, 8, 9, 21, 22, 23, 24, 25, 27, 28, 29, 53, 55, 39, 49, "4:3", "4:2", "4:0",
        rand.randint(30, 37), rand.randint(40, 47), rand.randint(90, 97), rand.randint(100, 107),
        "38;" + color(), "48;" + color(), "38:2::1:2:3", "48:5:77"])) for _ in range(rand.randint(1, 3))]
    return "\x1b[" + ";".join(codes + (["49"] if WIDE[0] in rand.words else [])) + "m"


def edit(rand):
    n = rand.choice(["", "0", "1", "2", "3", "7", "100", "65535"])
    if rand.randint(0, 8) == 0:  # up to half of the rest of the row: of more tmux erases only a part
        return place_inside(rand) + f"\x1b[{rand.randint(1, 20)}@" + place_cursor(rand)
    return place_cursor(rand) + "\x1b[" + n + rand.choice("ABCDEFGXPISTZ`d") + place_cursor(rand)


def insert_lines(rand):
    """Inside of the margins: outside of them xterm does nothing and tmux does."""
    top = rand.randint(1, ROWS - 1)
    bottom = rand.randint(top + 1, ROWS)
    return (f"\x1b[{top};{bottom}r\x1b[{rand.randint(top, bottom)};5H\x1b[{rand.choice(['', 1, 2, 5, 100])}" +
            rand.choice("LM") + place_cursor(rand))


def erase(rand):
    return place_cursor(rand) + rand.choice(["\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[1J", "\x1b[2J"])


def margins(rand):
    top = rand.randint(1, ROWS - 1)
    return f"\x1b[{top};{rand.randint(top + 1, ROWS)}r" if rand.randint(0, 2) else "\x1b[r"


def lines(rand):
    return place_cursor(rand) + rand.choice(["\n", "\x1bD", "\x1bM", "\x1bE", "\v"]) * rand.randint(1, 30) + "\r"


def odd(rand):
    inside, anywhere = place_inside(rand), place_cursor(rand)
    if WIDE[0] in rand.words:
        return rand.choice([inside + "\x1b(0lqqqk\x1b(B", "\x0e", "\x0f", "\x1b)0"])
    return rand.choice([
        inside + "\x1b7" + anywhere + "\x1b[31mx\x1b8", inside + "\x1b(0lqqqk\x1b(B", inside + "ab\x1b[5b",
        "\x0e", "\x0f", "\t", "\x1b]2;title\x07", "\x1bPstring\x1b\\", "\x1b_apc\x1b\\", "\x1b[?25l", "\x1b[?25h",
        "\x1b)0",
        "\x1b[4h" + inside + "insert\x1b[4l", "\x1b[?7l" + inside + "w" * 90 + "\x1b[?7h" + anywhere,
        "\x1b[?1049h" + text(rand) + erase(rand) + "\x1b[?1049l", "\x1b[1;1H\x1b#8",
        inside + "\x1b[s" + anywhere + "\x1b[u", "\x1b[3g", "\x1b[5G\x1bH", "\r"])


def text(rand):
    """Followed by a place: what comes after the last column means different things to terminals. Long enough to
    wrap only without a background: a row that wrapping scrolls in is coloured in xterm and not in tmux."""
    if rand.randint(0, 3):
        return place_inside(rand) + rand.choice(rand.words) + place_cursor(rand)
    words = "".join(rand.choice(rand.words) for _ in range(rand.randint(1, 20)))
    # A wide character that wraps blanks the last column in xterm.js and leaves it alone in tmux.
    fresh = "\x1b[2J\x1b[H" if WIDE[0] in rand.words else ""
    return "\x1b[49m" + fresh + words + rand.choice(["\r\n", place_cursor(rand)])


def sequences(seed):
    """Wide characters only where nothing but other text cuts them in two, and without a background: of a half
    that is erased or shifted away tmux keeps the other, and a half that is written over loses its colour."""
    rand = random.Random(seed)
    rand.words = NARROW if seed % 2 else NARROW + WIDE
    kinds = [text, text, text, sgr, sgr, insert_lines, margins, lines, odd]
    kinds += [edit, edit, erase, erase] if seed % 2 else [text]
    return "".join(rand.choice(kinds)(rand) for _ in range(rand.randint(5, 60))).encode()


@pytest.mark.timeout(240)
def test_random_sequences_look_as_in_tmux(tmux):
    for seed in range(150):
        compare(tmux, sequences(seed), f"seed {seed}")


# ---- resizing ------------------------------------------------------------------------------------

@pytest.mark.parametrize("rows, cols", [(24, 60), (24, 100), (30, 80), (12, 80), (10, 37), (40, 132)])
def test_a_resize_wraps_as_in_tmux(rows, cols):
    """With a screen full of text: blank rows at its end we give away first, tmux does not."""
    words = "".join(f"{i} " + "word " * (i * 7 % 40) + "\r\n" for i in range(60)).encode() + b"$ prompt"
    tmux = terminals.Tmux(ROWS, COLS)
    try:
        tmux.feed(words)
        tmux.resize(rows, cols)
        theirs = tmux.shows(rows, cols)
    finally:
        tmux.close()
    ours = terminals.ours(words, ROWS, COLS, (rows, cols))
    assert ours.text() == theirs.text() and ours.cursor == theirs.cursor


# ---- widths --------------------------------------------------------------------------------------

@pytest.mark.skipif(not pathlib.Path("/usr/share/unicode/UnicodeData.txt").exists(), reason="no unicode-data")
def test_the_table_of_widths_is_what_the_data_says():
    made = subprocess.run([harness.ROOT / "tools/gen-width"], capture_output=True, check=True, text=True).stdout
    assert made == (harness.ROOT / "src/term/width_table.h").read_text()
