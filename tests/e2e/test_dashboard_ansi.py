"""What the dashboard makes of a program's colours and control characters: web/src/ansi.js, run by node."""
import json
import random
import shutil
import subprocess

import harness
import pytest

RUN = """
import { readFileSync } from "node:fs";
const { Printed } = await import("data:text/javascript;base64," + readFileSync(process.argv[1]).toString("base64"));
const jobs = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(jobs.map(({ kept, pieces }) => {
    const printed = new Printed(kept);
    for (const piece of pieces) printed.push(...piece);
    return { text: printed.parts.map((part) => part.text).join(""), dropped: printed.dropped, size: printed.size,
             parts: printed.parts.map(({ text, class: name, style, stream }) => [text, name, style, stream]) };
})));
"""


def printed(*jobs):
    """Each job is (characters kept, [(stream, text)…])."""
    if not shutil.which("node"):
        pytest.skip("no node here")
    done = subprocess.run(["node", "--input-type=module", "-e", RUN, harness.ROOT / "web" / "src" / "ansi.js"],
                          input=json.dumps([{"kept": kept, "pieces": pieces} for kept, pieces in jobs]),
                          capture_output=True, text=True, timeout=60 * harness.SLOW, check=True)
    return json.loads(done.stdout)


def text_of(text):
    return printed((1 << 20, [("stdout", text)]))[0]


def test_colours_and_weights():
    out = text_of("\x1b[32mok\x1b[0m a \x1b[1;91mb\x1b[22;39mc\x1b[38;5;196md\x1b[48;2;1;2;3me\x1b[m\x1b[7mf")
    assert [(part[0], part[1], part[2]) for part in out["parts"]] == [
        ("ok", "a-fg2", {}), (" a ", "", {}), ("b", "a-bold a-fg9", {}), ("c", "", {}), ("d", "", {"color": "#ff0000"}),
        ("e", "", {"color": "#ff0000", "backgroundColor": "#010203"}), ("f", "a-bg7 a-fg0", {})]


@pytest.mark.parametrize("text,shown", [
    ("10%\r20%\rdone\n", "done\n"), ("a\r\nb\r\n", "a\nb\n"), ("one\ntwo\r", "one\ntwo"), ("one\ntwo\x1b[2K", "one\n"),
    ("spin |\b/\b-\n", "spin -\n"),
    ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", "xy"), ("\x1b[?25l\x1b(Bz\x1b[3J", "z"),
    ("\x07bell\x00", "bell"), ("\x1b", ""), ("<b>&amp;</b>", "<b>&amp;</b>"),
])
def test_what_is_left_of_control_characters(text, shown):
    assert text_of(text)["text"] == shown


def test_pieces_make_no_difference():
    rnd = random.Random(5)
    words = ["\x1b[1;31m", "\x1b[0m",
             "\r", "\n", "\r\n", "\x1b]0;a b\x07", "\x1b[38;5;99m", "\x1b[2K", "word", "é", " "]
    jobs = []
    for _ in range(300):
        text = "".join(rnd.choice(words) for _ in range(rnd.randrange(1, 40)))
        cuts = sorted(rnd.randrange(len(text) + 1) for _ in range(rnd.randrange(6)))
        pieces = [("stdout", text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)])]
        jobs += [(1 << 20, [("stdout", text)]), (1 << 20, pieces)]
    done = printed(*jobs)
    for place in range(0, len(done), 2):
        assert done[place] == done[place + 1], jobs[place + 1]


def test_the_oldest_is_dropped_and_said():
    out = printed((10, [("stdout", "0123456789"), ("stderr", "abc"), ("stdout", "\x1b[31mred")]))[0]
    assert (out["text"], out["size"], out["dropped"]) == ("6789abcred", 10, True)
    assert printed((10, [("stdout", "0123456789")]))[0]["dropped"] is False


def test_a_sequence_that_never_ends_is_not_kept_for_ever():
    out = printed((1 << 20, [("stdout", "\x1b]" + "x" * 3000), ("stdout", "y" * 3000), ("stdout", "end")]))[0]
    assert out["text"].endswith("end")
