"""Terminals in the dashboard: typed into, watched by several, taken over, and whole after a break; and recordings."""
import json

import dash
import harness
import pytest
from dash import BOXES, WAIT, click, fill, go, says

pytestmark = pytest.mark.timeout(120)
# What the terminal shows, row for row, scrolled-out rows too.
SHOWN = """(() => { const b = document.querySelector('.xtermplace').atollPane.term.buffer.active;
    return Array.from({ length: b.length }, (_, i) => b.getLine(i).translateToString(true)).join('\\n').trimEnd();
    })()"""


@pytest.fixture(scope="module")
def box(server, page):
    made = server.post(BOXES, {"name": "shells"}).json()["id"]
    yield made
    server.delete(f"{BOXES}/{made}")


def pane(page, state="live"):
    page.wait(f"document.querySelector('.pane')?.dataset.state === {json.dumps(state)}", WAIT)


def shows(page, text, which=SHOWN):
    page.wait(f"{which}.includes({json.dumps(text)})", WAIT)


def new_terminal(server, box, command, **wish):
    return server.post(f"{BOXES}/{box}/terminals", {"command": command, **wish}).json()["id"]


def test_a_shell_that_is_typed_into(server, page, box):
    go(page, f"sandboxes/{box}/terminals")
    says(page, "There is no terminal yet.")
    click(page, "New shell")
    pane(page)
    shows(page, "$")
    page.wait("document.querySelector('.pane').dataset.role === 'controller'", WAIT)
    # The new shell has the keyboard; the button that opened it would open one more at each space.
    page.type("echo low$((40+2))tide")
    page.press("Enter")
    shows(page, "low42tide")
    assert len(server.get(f"{BOXES}/{box}/terminals").json()["items"]) == 1
    # As large as its place: the program knows.
    page.wait("document.querySelector('.xtermplace').atollPane.term.rows > 24", WAIT)
    page.type("stty size")
    page.press("Enter")
    rows, cols = page.run("[document.querySelector('.xtermplace').atollPane.term].map((t) => [t.rows, t.cols])[0]")
    shows(page, f"{rows} {cols}")
    assert cols > 80
    # Gone to another view and back: all of it is there again.
    go(page, "sandboxes")
    page.wait("document.querySelector('h1')?.innerText === 'Sandboxes'", WAIT)
    page.run("history.back()")
    pane(page)
    shows(page, "low42tide")
    page.picture("terminal.png")


def test_two_people_at_one_terminal(server, chromium, page, box):
    """One types, the other watches, and takes over; the first is told."""
    terminal = new_terminal(server, box, "exec sh")
    path = f"sandboxes/{box}/terminals/{terminal}"
    go(page, path)
    page.wait("document.querySelector('.pane')?.dataset.role === 'controller'", WAIT)
    other = chromium.page()
    dash.login(server, other, path)
    pane(other)
    says(other, "somebody else types")
    assert other.run("document.querySelector('.pane').dataset.role") == "observer"
    page.run("document.querySelector('.xterm-helper-textarea').focus()")
    page.type("echo from-the-first")
    page.press("Enter")
    shows(other, "\nfrom-the-first")
    # What an observer types goes nowhere.
    other.run("document.querySelector('.xterm-helper-textarea').focus()")
    other.type("echo not-this")
    other.press("Enter")
    says(other, "2 here, 1 type")
    click(other, "Take control")
    says(other, "you type")
    says(page, "somebody took control")
    assert page.run("document.querySelector('.pane').dataset.role") == "observer"
    other.type("echo from-the-second")
    other.press("Enter")
    shows(page, "from-the-second")
    assert "not-this" not in page.run(SHOWN)
    click(other, "Release")
    says(other, "given back")
    # The same screen on both sides, and on the server.
    assert page.run(SHOWN) == other.run(SHOWN)
    other.open("about:blank")


# What a page types: bytes that it sends over a socket of a terminal.
TYPED = """window.typed = []; { const send = WebSocket.prototype.send; WebSocket.prototype.send = function (data) {
    if (this.url.includes('/terminals/') && typeof data !== 'string') window.typed.push([...data]);
    return send.call(this, data); }; }"""


def test_who_watches_sends_nothing(server, chromium, page, box):
    """Not even what the server would refuse: somebody else's control, and a role that never has it."""
    terminal = new_terminal(server, box, "exec cat -v")
    path = f"sandboxes/{box}/terminals/{terminal}"
    go(page, path)
    page.wait("document.querySelector('.pane')?.dataset.role === 'controller'", WAIT)
    looker = server.post("/api/v1/login-links", token=server.new_token("viewer")["token"]).json()["url_path"]
    for link in (None, looker):
        other = chromium.page()
        other.call("Page.addScriptToEvaluateOnNewDocument", source=TYPED)
        dash.login(server, other, link=link)
        go(other, path)
        pane(other)
        other.run("document.querySelector('.xterm-helper-textarea').focus()")
        other.type("not from here")
        other.press("Enter")
        says(other, "you may only watch" if link else "somebody else types")
        assert other.run("[window.typed, document.querySelectorAll('.toast').length]") == [[], 0]
        if link:
            assert not other.run(f"!!({dash.named('Take control')})"), "there is no way to what they may not do"
        else:
            click(other, "Take control")
            says(other, "you type")
            other.type("from here")
            other.press("Enter")
            shows(other, "from here\nfrom here")  # typed, and come back from cat
            assert other.run("window.typed.length") > 0
            click(other, "Release")
        other.open("about:blank")
    shows(page, "from here")
    assert "not from" not in page.run(SHOWN)


def test_what_was_asked_before_is_not_answered_again(server, page, box):
    """A program asks its terminal; whoever was there answered, and a replay of the question is no question."""
    program = ("stty -echo -icanon min 1; printf '\\033[6n'; head -c 6 | cat -v; echo; read x; "
               "printf '\\033[c'; head -c 7 | cat -v; echo; cat -v")
    terminal = new_terminal(server, box, program)
    screen = f"{BOXES}/{box}/terminals/{terminal}/screen?format=text"
    harness.wait_until(lambda: b"^[[1;1R" in server.get(screen).body, WAIT, "the server's own answer")
    path = f"sandboxes/{box}/terminals/{terminal}"
    go(page, path)
    page.wait("document.querySelector('.pane')?.dataset.role === 'controller'", WAIT)
    shows(page, "^[[1;1R")
    page.run("document.querySelector('.xterm-helper-textarea').focus()")
    page.press("Enter")
    shows(page, "^[[?1;2c")  # asked now, and answered by the terminal that is there
    # Seen from the beginning again; whatever had been answered would come back from cat before this does.
    go(page, "sandboxes")
    page.wait("document.querySelector('h1')?.innerText === 'Sandboxes'", WAIT)
    go(page, path)
    page.wait("document.querySelector('.pane')?.dataset.role === 'controller'", WAIT)
    shows(page, "^[[?1;2c")
    page.run("document.querySelector('.xterm-helper-textarea').focus()")
    page.type("over")
    shows(page, "over")
    assert page.run(SHOWN).split() == ["^[[1;1R", "^[[?1;2c", "over"]


SOCKETS = """window.sockets = []; window.WebSocket = class extends WebSocket { constructor(...args) { super(...args);
    if (String(args[0]).includes('/terminals/')) window.sockets.push(this); } };"""


def test_what_is_asked_right_behind_a_replay_is_answered(server, chromium, box):
    """In one message: the end of what was printed before, with a question in it, and a question of now."""
    terminal = new_terminal(server, box, "stty -echo; exec cat")
    page = chromium.page()
    page.call("Page.addScriptToEvaluateOnNewDocument", source=SOCKETS + TYPED)
    dash.login(server, page, f"sandboxes/{box}/terminals/{terminal}")
    page.wait("document.querySelector('.pane')?.dataset.role === 'controller'", WAIT)
    page.wait("document.querySelector('.xtermplace').atollPane.position === 0", WAIT)
    page.run("""(() => { const to = window.sockets.at(-1), bytes = new TextEncoder().encode('\\x1b[6nA\\x1b[c');
        to.onmessage({ data: JSON.stringify({ type: 'hello', role: 'controller', reason: 'asked', position: 0, end: 5,
            rows: 24, cols: 80 }) });
        to.onmessage({ data: bytes.buffer }); })()""")
    shows(page, "A")
    page.wait("window.typed.length", WAIT)
    assert page.run("window.typed.map((t) => String.fromCharCode(...t))") == ["\x1b[?1;2c"]
    page.open("about:blank")


def test_two_panes_side_by_side(server, page, box):
    one, two = (new_terminal(server, box, f"echo pane-{n}; exec sh", name=f"pane-{n}") for n in "ab")
    go(page, f"sandboxes/{box}/terminals/{one}")
    pane(page)
    page.click("[...document.querySelectorAll('[aria-label=\"pane-b beside\"]')][0]")
    page.wait("document.querySelectorAll('.pane[data-state=live]').length === 2", WAIT)
    assert page.run("location.hash").endswith(f"beside={two}"), "the address knows both"
    shows(page, "pane-a")
    shows(page, "pane-b", SHOWN.replace(".querySelector('.xtermplace')", ".querySelectorAll('.xtermplace')[1]"))
    page.picture("panes.png")


def test_a_break_loses_and_repeats_nothing(server, chromium, box):
    """The server is killed while a program prints; the page comes back and has every line once."""
    terminal = new_terminal(server, box, "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line-$i; sleep 0.01; done; "
                                         "sleep 1000")
    page = chromium.page()
    dash.login(server, page, f"sandboxes/{box}/terminals/{terminal}")
    shows(page, "line-20")
    server.kill9_api()
    server.wait_ready()
    shows(page, "line-400")
    pane(page)
    lines = [line for line in page.run(SHOWN).splitlines() if line.startswith("line-")]
    assert lines == [f"line-{n}" for n in range(1, 401)], lines[:50]
    told = server.get(f"{BOXES}/{box}/terminals/{terminal}").json()
    assert page.run("document.querySelector('.xtermplace').atollPane.position") == told["end"]
    page.open("about:blank")


def test_what_is_too_old_is_a_picture_and_said(server, page, box):
    """Far more than is replayed: the screen comes as a picture, and what it shows is what the server shows."""
    terminal = new_terminal(server, box, "seq 1 900000; echo the-end; sleep 1000")
    screen = f"{BOXES}/{box}/terminals/{terminal}/screen?format=text"
    harness.wait_until(lambda: b"the-end" in server.get(screen).body, WAIT, "the end")
    go(page, f"sandboxes/{box}/terminals/{terminal}")
    shows(page, "the-end")
    assert page.run("document.querySelector('.xtermplace').atollPane.term.buffer.active.length") < 2000
    click(page, "Resync")
    shows(page, "the-end")


def test_search_copy_and_the_end(server, chromium, page, box):
    terminal = new_terminal(server, box, "seq 1 300; echo needle-in-it; seq 1 200; echo the-end; read x; exit 3")
    go(page, f"sandboxes/{box}/terminals/{terminal}")
    shows(page, "the-end")
    chromium.send(None, "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.call("Page.bringToFront")
    click(page, "Search")
    fill(page, "Search in the terminal", "needle-in")
    page.press("Enter")
    page.wait("document.querySelector('.xtermplace').atollPane.term.getSelection() === 'needle-in'", WAIT)
    click(page, "Copy")
    says(page, "Copied")
    assert page.run("navigator.clipboard.readText()") == "needle-in"
    fill(page, "Search in the terminal", "")
    page.press("Escape")
    page.run("document.querySelector('.xterm-helper-textarea').focus()")
    page.press("Enter")
    says(page, "ended with 3")
    # Killed from here.
    terminal = new_terminal(server, box, "exec sleep 1000", name="to-end")
    go(page, f"sandboxes/{box}/terminals/{terminal}")
    pane(page)
    page.click("document.querySelector('[aria-label=\"End to-end\"]')")
    click(page, "End it")
    says(page, "ended by signal 9")
    assert server.get(f"{BOXES}/{box}/terminals/{terminal}").json()["state"] == "exited"


TERM = "document.querySelector('.xtermplace').atollPane.term"
# The first place of a text that no row's end divides, selected as a mouse would.
SELECT = """(() => { const t = %s, text = %s, b = t.buffer.active;
    for (let y = 0; y < b.length; y++) {
        const line = b.getLine(y), at = line.translateToString(true).indexOf(text);
        if (at < 0) continue;
        let x = 0; // in cells, of which a wide character has two
        for (let i = 0; i < at;) { const c = line.getCell(x); i += c.getChars().length || 1; x += c.getWidth(); }
        t.select(x, y, text.length);
        return t.getSelection(); } })()"""


def window(page, width=0, height=0):
    """Another size of the window, or its own again; and the terminal's that follows from it."""
    before = page.run(f"[{TERM}.rows, {TERM}.cols]")
    if width:
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    else:
        page.call("Emulation.clearDeviceMetricsOverride")
    page.wait(f"{TERM}.rows !== {before[0]} || {TERM}.cols !== {before[1]}", WAIT)


def test_a_selection_stays_when_the_size_changes(server, page, box):
    """Rows come and go, a long line is wrapped anew; what is selected is still the same text."""
    terminal = new_terminal(server, box, "seq 1 40; printf 'before %060d%060d after\\n' 7 8; seq 1 5; echo the-end; "
                                         "read x; printf '\\033[?1049h\\033[2J\\033[Hother\\nsecond\\nlast'; "
                                         "read x; printf '\\033[?1049l%s X-marks\\n' " + 100 * "界" + "; read x")
    go(page, f"sandboxes/{box}/terminals/{terminal}")
    shows(page, "the-end")
    page.wait(f"{TERM}.rows > 24 && {TERM}.cols > 100", WAIT)  # as large as its place
    selected = f"{TERM}.getSelection()"
    whole = "before " + "7".zfill(60) + "8".zfill(60) + " after\n1\n2"
    try:
        assert page.run(SELECT % (TERM, json.dumps("39"))) == "39"
        window(page, 1200, 700)
        assert page.run(selected) == "39"
        # Over several rows, of which one is wrapped at other places afterwards.
        assert page.run(f"""(() => {{ const t = {TERM}, b = t.buffer.active;
            let y = 0; while (!b.getLine(y).translateToString(true).startsWith('before')) y++;
            let end = y; while (b.getLine(end).translateToString(true) !== '2') end++;
            t.select(0, y, (end - y) * t.cols + 1); return t.getSelection(); }})()""") == whole
        window(page, 640, 600)
        assert page.run(f"{TERM}.cols") < 100 and page.run(selected) == whole
        window(page)
        assert page.run(selected) == whole
        # The other screen is cut, not wrapped: what is still there stays selected, and never something else.
        page.run("document.querySelector('.xterm-helper-textarea').focus()")
        page.press("Enter")
        shows(page, "last")
        assert page.run(SELECT % (TERM, json.dumps("second"))) == "second"
        window(page, 640, 600)
        assert page.run(selected) == "second"
        # Where wide characters leave cells at the ends of rows, the place is not found again: then nothing is.
        page.press("Enter")
        shows(page, "X-marks")
        for width in (633, 625, 617, 609, 601):
            assert page.run(SELECT % (TERM, json.dumps("X-marks"))) == "X-marks"
            window(page, width, 600)
            assert page.run(selected) in ("X-marks", ""), width
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")


def test_a_recording_and_its_scrubber(server, page, box):
    terminal = new_terminal(server, box, "printf 'first\\n'; sleep 1; printf '\\033[2J\\033[Hsecond\\n'")
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/terminals/{terminal}").json()["state"] == "exited",
                       WAIT, "its end")
    go(page, f"sandboxes/{box}/terminals/{terminal}?recording={terminal}")
    rows = ("[...document.querySelectorAll('.player .xterm-rows > div')].map((r) => r.innerText.trim())"
            ".join('\\n').trim()")
    page.wait(f"{rows} === 'second'", WAIT)
    page.run("""(() => { const e = document.querySelector('[aria-label=Moment]'); e.value = 0.5;
        e.dispatchEvent(new Event('input', { bubbles: true })); })()""")
    page.wait(f"{rows} === 'first'", WAIT)
    page.picture("recording.png")
    fill(page, "Speed", "8")
    click(page, "Play")
    page.wait(f"{rows} === 'second'", WAIT)
    page.wait("Number(document.querySelector('.player').dataset.at) >= 1", WAIT)


def test_the_policy_let_everything_be_drawn(page):
    """The terminal's styles are set without breaking the policy; nothing else complained either."""
    assert page.run("getComputedStyle(document.querySelector('.xterm-rows')).fontFamily").startswith("ui-monospace")
    assert [one for one in page.complaints() if "WebSocket connection" not in one and "ERR_CONNECTION" not in one] == []
