"""The dashboard as a page: what agents write stays text, it works without a mouse and without eyes, large lists are
smooth, several people see the same, and a server that was killed leaves no gap."""
import json
import os
import re
import signal
import time
import urllib.parse

import dash
import harness
import pytest
from dash import BOXES, WAIT, go, says
from sdkts import npm_ci

pytestmark = pytest.mark.timeout(120)
PEERS = harness.ROOT / "tests" / "peers"


# ---- what agents write ----

EVIL = ["<img src=x onerror=\"window.owned=1\">", "<script>window.owned=1</script>", "\"><svg onload=window.owned=1>",
        "javascript:window.owned=1", "{{constructor.constructor('window.owned=1')()}}",
        "</textarea><script>window.owned=1</script>",
        "' onmouseover=window.owned=1 x='", "\u202egnp.exe\u202c", "%3Cscript%3E", "&lt;b&gt;"]


@pytest.fixture(scope="module")
def evil(server, page):
    """A sandbox in which every text that somebody inside or outside can choose is hostile."""
    made = server.post(BOXES, {"labels": {f"k{i}<b>": text for i, text in enumerate(EVIL)}, "env": {"X": EVIL[0]},
                               "egress": {"mode": "ask", "ask_s": 600}}).json()["id"]
    for i, text in enumerate(EVIL):
        name = text.replace("/", "_")
        harness.run_in(server, made, "sh", "-c", 'printf %s "$0" > "$1"; printf %s "$0"; printf %s "$0" >&2', text,
                       name)
        harness.run_in(server, made, "mkdir", "-p", "d" + name)
        server.post("/api/v1/notes", {"text": text})
    for text in EVIL[:3]:  # hosts cannot be spelled so; paths and names of programs can
        harness.run_in(server, made, "curl", "-sS", "-m", "2", "-A", text,
                       "http://evil.example.org/" + text.replace(" ", "+"))
    server.post(f"{BOXES}/{made}/execs", {"argv": ["sh", "-c", "exec -a \"$0\" sleep 1000", EVIL[0]]})
    title = "printf '\\033]0;" + EVIL[0].replace('"', "") + "\\007'; exec sh"
    server.post(f"{BOXES}/{made}/terminals", {"name": "x", "command": title})
    yield made
    server.delete(f"{BOXES}/{made}")


# Nothing of it ran, and nothing of it became an element: all that we draw is of these kinds.
CLEAN = """(() => { if (window.owned) return 'owned';
    const strange = [...document.querySelectorAll('body *')].filter((e) =>
        e.matches('script, iframe, object, embed, base, style') ||
        (e.tagName === 'IMG' && !/^(http.*\\/assets\\/icon.svg|data:image\\/)/.test(e.src)) ||
        [...e.attributes].some((a) => a.name.startsWith('on') ||
            /^\\s*javascript:/i.test(a.value) && a.name === 'href'));
    return strange.map((e) => e.outerHTML.slice(0, 200)).join('\\n'); })()"""


def test_hostile_text_is_text_in_every_view(server, page, evil):
    execs = server.get(f"{BOXES}/{evil}/execs").json()["items"]
    files = f"sandboxes/{evil}/files?dir=/workspace&file=/workspace/" + urllib.parse.quote(EVIL[0], safe="")
    views = {
        "sandboxes": EVIL[0], f"sandboxes/{evil}": EVIL[0], f"sandboxes/{evil}/commands": "onerror",
        f"sandboxes/{evil}/commands/{execs[0]['id']}": EVIL[0], files: EVIL[1].replace("/", "_"),
        f"sandboxes/{evil}/ports": "Ports",
        f"sandboxes/{evil}/egress": "evil.example.org", f"sandboxes/{evil}/snapshots": "Snapshots",
        f"sandboxes/{evil}/events": "exec.started", f"sandboxes/{evil}/terminals": "you type",
        "questions": "evil.example.org",
        "events?q=window.owned": EVIL[1], "audit": "exec.create", "health": "Figures", "new": "Make it"}
    for path, text in views.items():
        go(page, path)
        says(page, text)
        assert page.run(CLEAN) == "", path
    go(page, "audit?q=onerror")
    says(page, "exec.create")
    page.press("k", ctrl=True)
    page.wait("document.querySelector('.palette')", WAIT)
    page.type("onerror")
    says(page, EVIL[0], "document.querySelector('.palette')")
    assert page.run(CLEAN) == ""
    page.press("Escape")
    blocked = [one for one in page.complaints() if "Content Security Policy" in one or "Refused" in one]
    assert blocked == [], "had the policy to stop anything, it had got that far"


def test_nothing_in_the_page_takes_markup():
    """What makes elements or code of a text is not used at all, so that no text has to be trusted."""
    ways = re.compile(r"dangerouslySetInnerHTML|(inner|outer)HTML|insertAdjacentHTML|setHTML|document\.write|"
                      r"createContextualFragment|DOMParser|srcdoc|\beval\b|new Function|\bon\w+=\"")
    found = [f"{path.name}: {line.strip()}" for path in (harness.ROOT / "web" / "src").iterdir()
             if path.suffix in (".js", ".jsx") for line in path.read_text().splitlines() if ways.search(line)]
    assert found == []


# ---- without a mouse, without eyes ----

TABS = ("terminals", "commands", "files", "ports", "egress", "snapshots", "events")


def views_of(box):
    return ["sandboxes", "new", "questions", "events", "audit", "health", f"sandboxes/{box}", *(
        f"sandboxes/{box}/{tab}" for tab in TABS)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(server, page, evil, scheme):
    npm_ci(PEERS)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                      {"name": "prefers-reduced-motion", "value": "reduce"}])
    page.run((PEERS / "node_modules" / "axe-core" / "axe.min.js").read_text() + ";null")
    found = []
    for path in views_of(evil):
        go(page, path)
        page.wait(f"location.hash === {json.dumps('#/' + path)}", WAIT)
        page.wait("document.querySelector('main')?.innerText.length > 20", WAIT)
        time.sleep(0.3)
        # Colours inside a terminal are the program's.
        got = page.run("""axe.run({ exclude: [['.xterm']] }, { resultTypes: ['violations'] }).then((r) =>
            r.violations.map((v) => v.id + ': ' + v.nodes.slice(0, 3).map((n) =>
                n.html.slice(0, 160) + ' ' + n.failureSummary.slice(0, 200)).join(' | ')))""")
        found += [f"{path}: {one}" for one in got]
    assert found == [], "\n".join(found)


def test_with_the_keyboard_alone(server, page):
    """From the top of the page into a new sandbox, a command in it, and its end."""
    page.open(server.url + "/")
    page.wait("document.querySelector('header [role=status]')?.innerText === 'Live'", WAIT)
    page.press("Tab")
    assert page.run("document.activeElement.innerText") == "Skip to the view"
    page.press("n")
    page.wait("location.hash === '#/new' && document.querySelector('form.create')", WAIT)

    def tab_to(test, most=80):
        for _ in range(most):
            if page.run(test.replace("$", "document.activeElement")):
                return
            page.press("Tab")
        raise AssertionError(f"no way to {test}")

    tab_to("$.name === 'name'")
    page.type("by-keys")
    tab_to("$.innerText === 'Make it'")
    page.press("Enter")
    page.wait("document.querySelector('h1')?.innerText === 'by-keys'", WAIT)
    box = server.get(BOXES + "/by-keys").json()["id"]
    tab_to("$.innerText.startsWith('Commands')")
    page.press("Enter")
    page.wait("document.querySelector('[aria-label=Command]')", WAIT)
    tab_to("$.getAttribute('aria-label') === 'Command'")
    page.type("echo typed")
    page.press("Enter")
    says(page, "typed", "document.querySelector('.output pre')")
    page.run("document.activeElement.blur()")
    for key in "gs":
        page.press(key)
    page.wait("document.querySelector('h1')?.innerText === 'Sandboxes'", WAIT)
    tab_to("$.innerText === 'by-keys'")
    page.press("Enter")
    page.wait("document.querySelector('h1')?.innerText === 'by-keys'", WAIT)
    tab_to("$.innerText === 'Delete'")
    page.press("Enter")
    page.wait("document.querySelector('dialog')", WAIT)
    tab_to("$.innerText === 'Delete' && $.closest('dialog')")
    page.press("Enter")
    harness.wait_until(lambda: dash.state_of(server, box) == "gone", WAIT, "its end")


def test_a_phone_in_both_schemes(server, page, evil):
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    try:
        for path in views_of(evil):
            go(page, path)
            page.wait("document.querySelector('main')?.innerText.length > 20", WAIT)
            wide = page.run("[document.documentElement.scrollWidth, document.querySelector('main').scrollWidth]")
            assert max(wide) <= 360, (path, wide, page.run("""[...document.querySelectorAll('main *')].filter((e) =>
                e.getBoundingClientRect().right > 360 && !e.closest('.sideways, .scroll, .tabs')).map((e) =>
                e.outerHTML.slice(0, 100)).slice(0, 3)"""))
            # Which tab it is, is in sight; and of a question, all that is decided about.
            tab = page.run("""[...document.querySelectorAll('.tabs [aria-current]')].map((e) =>
                [e.getBoundingClientRect().left, e.getBoundingClientRect().right])[0] ?? [0, 0]""")
            assert 0 <= tab[0] and tab[1] <= 360, (path, tab)
            assert page.run("[...document.querySelectorAll('.hash')].every((e) => e.scrollWidth <= e.clientWidth)")
            cut = page.run("""[...document.querySelectorAll(
                '.actions button, .boxes .age, .stack td, .stack th')].filter(
                (e) => e.getBoundingClientRect().right > 360 || e.scrollWidth > e.clientWidth + 1).map((e) =>
                e.outerHTML.slice(0, 100)).slice(0, 3)""")
            assert cut == [], (path, cut)
            page.picture("phone-" + path.replace("/", "-")[:40] + ".png")
        grounds = set()
        for scheme in ("light", "dark"):
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            grounds.add(page.run("getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 2, "both schemes look the same"
        # The switch wins over the system, and is remembered.
        for _ in range(2):  # system, dark, light
            page.click("document.querySelector('[aria-label^=Colours]')")
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(244, 246, 245)"
        assert page.run("localStorage.getItem('atoll-theme')") == "light"
        page.click("document.querySelector('[aria-label^=Colours]')")
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")


# ---- many ----

def test_five_thousand_sandboxes_draw_what_is_in_sight(server, chromium):
    """Rows by a double of the list's answer; everything else is real. How long it takes: `make bench`, pages."""
    row = server.post(BOXES, {}).json()
    page = chromium.page()
    dash.many(server, page, 5000, row)
    got = page.run(dash.SCROLL % 60)
    assert got["rows"] < 60, "only what is in sight is drawn"
    assert "many-" in got["shown"] and got["top"] > 50000
    assert page.run("document.querySelectorAll('*').length") < 2000
    # A filter over all of them.
    dash.fill(page, "Filter", "many-4999")
    page.wait("document.querySelectorAll('.tbody [role=row]').length === 1", WAIT)
    page.open("about:blank")
    server.delete(f"{BOXES}/{row['id']}")


def test_ten_thousand_events_draw_what_is_in_sight(server, chromium):
    page = chromium.page()
    last = dash.fed(server, page, "events")
    page.run(dash.SPEAK % (last, 10000, 500))
    got = page.run(dash.SCROLL % 30)
    assert got["rows"] < 60 and page.run("document.querySelectorAll('*').length") < 2000, got
    assert int(page.run("document.querySelector('.bar .quiet').innerText")) == 10000, "more would grow without end"
    page.open("about:blank")


# ---- together, and after a break ----

def test_two_see_each_other_within_a_second(server, chromium):
    one, two = chromium.page(), chromium.page()
    for each in (one, two):
        dash.login(server, each, "sandboxes")
    box = server.post(BOXES, {"name": "shared"}).json()["id"]
    says(two, "shared")
    go(one, f"sandboxes/{box}")
    dash.click(one, "Pause")
    began = time.monotonic()
    two.wait("document.querySelector('.s-paused')", WAIT)
    took = time.monotonic() - began
    assert took < 1 * harness.SLOW, took
    dash.click(one, "Delete")
    dash.click(one, "Delete", "document.querySelector('dialog')")
    two.wait("!document.body.innerText.includes('shared')", WAIT)
    for each in (one, two):
        each.open("about:blank")


def test_a_killed_server_leaves_no_gap(server, chromium):
    """Events while the page was away are there afterwards, each once; and so are sandboxes."""
    page = chromium.page()
    dash.login(server, page, "events")
    first = server.post("/api/v1/notes", {"text": "before"}).json()["seq"]
    says(page, "before")
    server.kill9_api()
    server.wait_ready()
    for i in range(30):
        server.post("/api/v1/notes", {"text": f"meanwhile {i}"})
    box = server.post(BOXES, {"name": "meanwhile"}).json()["id"]
    says(page, "meanwhile 29")
    page.wait("document.querySelector('header [role=status]').innerText === 'Live'", WAIT)
    newest = server.get("/api/v1/events?limit=1").json()["head"]
    page.wait(f"document.querySelector('.tbody .seq')?.textContent === '{newest}'", WAIT)
    seen = sorted(page.run("[...document.querySelectorAll('.tbody .seq')].map((s) => Number(s.textContent))"))
    wanted = list(range(max(first, seen[0]), newest + 1))  # what is in sight
    assert [seq for seq in seen if seq >= wanted[0]] == wanted
    go(page, "sandboxes")
    says(page, "meanwhile")
    server.delete(f"{BOXES}/{box}")
    page.open("about:blank")


def test_memory_stays_where_it_is(server, page, evil):
    """Round and round through the views: what is left of them is let go of."""
    def used():
        page.call("HeapProfiler.collectGarbage")
        return page.run("performance.memory.usedJSHeapSize"), page.call("Memory.getDOMCounters")["nodes"]

    def rounds(count):
        for _ in range(count):
            tabs = [f"sandboxes/{evil}/{tab}" for tab in ("overview", "terminals", "files")]
            for path in ("sandboxes", *tabs, "events"):
                go(page, path)
                page.wait(f"location.hash === {json.dumps('#/' + path)} && document.querySelector('main')", WAIT)
                time.sleep(0.05)

    rounds(5)
    heap, nodes = used()
    rounds(15)
    after, left = used()
    print(f"{heap >> 10} KiB and {nodes} nodes, then {after >> 10} KiB and {left}")
    assert after < heap * 1.5 + (4 << 20) and left < nodes * 1.5 + 2000


def test_the_first_view_is_there_at_once(server, chromium):
    page = chromium.page()
    dash.login(server, page)
    page.open(server.url + "/#/sandboxes")
    page.wait("document.querySelector('main h1')", WAIT)
    took = page.run("new Promise((done) => new PerformanceObserver((l) => done(l.getEntries().at(-1).startTime))"
                    ".observe({ type: 'largest-contentful-paint', buffered: true }))")
    print(f"largest paint after {took:.0f} ms")
    assert took < 1000 * harness.SLOW
    page.open("about:blank")


# ---- what would stop it, had it got that far ----

GOT_IN = """(async () => { const add = (tag, set) => { const e = Object.assign(document.createElement(tag), set);
        document.body.append(e); return e; };
    add('script', { textContent: 'window.owned = 1' });
    add('div', { innerHTML: '<img src=x onerror="window.owned = 2"><b style="color: red" id="dressed">x</b>' });
    add('a', { href: 'javascript:window.owned=3' }).click();
    const image = await new Promise((done) => add('img', { src: 'http://127.0.0.2:9/x.png',
        onload: () => done('loaded'), onerror: () => done('refused') }));
    const call = await fetch('http://127.0.0.2:9/').then(() => 'sent', () => 'refused');
    await new Promise((done) => setTimeout(done, 200));
    return [window.owned ?? null, image, call, getComputedStyle(document.querySelector('#dressed')).color]; })()"""


def test_the_policy_stops_what_got_in(server, chromium):
    """Markup in the page, as if a guard had failed: it runs nothing, loads nothing, tells nobody."""
    page = chromium.page()
    dash.login(server, page)
    owned, image, call, colour = page.run(GOT_IN)
    assert (owned, image, call) == (None, "refused", "refused") and colour != "rgb(255, 0, 0)"
    told = " ".join(page.complaints())
    for what in ("script-src", "style-src", "img-src", "connect-src"):
        assert f"{what} 'self'" in told, (what, told)
    page.open("about:blank")


def test_a_socket_that_is_left_before_it_is_open(server, chromium):
    """Somebody who is faster than the server is no mistake: the browser has nothing to complain about."""
    box = server.post(BOXES, {"name": "brief"}).json()["id"]
    terminal = server.post(f"{BOXES}/{box}/terminals", {"name": "t", "command": "exec sh"}).json()["id"]
    page = chromium.page()
    page.call("Page.addScriptToEvaluateOnNewDocument", source="""window.opened = []; window.WebSocket =
        class extends WebSocket { constructor(...args) { super(...args); window.opened.push(this); } };""")
    dash.login(server, page, f"sandboxes/{box}/terminals/{terminal}")
    says(page, "you type")
    go(page, "health")  # a view without figures of sandboxes: the next one opens a socket of its own
    page.wait("document.querySelector('h1')?.innerText === 'Health' && "
              "window.opened.slice(1).every((ws) => ws.readyState === WebSocket.CLOSED)", WAIT)
    api = server.api_pid()
    os.kill(api, signal.SIGSTOP)
    try:
        go(page, f"sandboxes/{box}")
        page.wait("window.opened.some((ws) => ws.readyState === WebSocket.CONNECTING)", WAIT)
        go(page, "events")
        page.wait("document.querySelector('h1')?.innerText === 'Events'", WAIT)
        time.sleep(0.3)  # until the page has said that it wants no figures any more
    finally:
        os.kill(api, signal.SIGCONT)
    page.wait("window.opened.slice(1).every((ws) => ws.readyState === WebSocket.CLOSED)", WAIT)
    assert [one for one in page.complaints() if "WebSocket" in one] == []
    page.open("about:blank")
    server.delete(f"{BOXES}/{box}")


def test_the_address_of_a_view_without_its_sign(server, chromium):
    page = chromium.page()
    dash.login(server, page)
    page.open(server.url + "/board")
    page.wait("location.hash === '#/board'", WAIT)
    page.open(server.url + "/questions")
    page.wait("location.hash === '#/questions' && document.querySelector('h1')", WAIT)
    # A program that asks for it gets the error, as before.
    assert server.get("/board").status == 404
    assert server.request("GET", "/board", headers={"accept": "text/html"}).status == 404


def test_the_first_steps_of_an_empty_server(start_server, chromium):
    server = start_server()
    page = chromium.page()
    dash.login(server, page, "sandboxes")
    dash.says(page, "There is no sandbox yet")
    dash.says(page, "atoll run --pack anthropic")
    page.picture("empty.png")
