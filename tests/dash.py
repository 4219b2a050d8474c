"""The dashboard in a browser, for tests: a page that is logged in, and what a person does with it."""
import json
import os

import browser
import harness
import pytest

BOXES = "/api/v1/sandboxes"
WAIT = 30 * harness.SLOW


def chromium():
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not browser.find():
        pytest.skip("no chromium here")
    return browser.Browser()


def login(server, page, path="", link=None):
    page.open(server.url + (link or server.post("/api/v1/login-links").json()["url_path"]))
    page.wait("document.querySelector('header [role=status]')?.innerText === 'Live'", WAIT)
    page.wait("document.querySelector('main')", WAIT)
    if path:
        go(page, path)


def go(page, path):
    page.run(f"location.hash = {json.dumps('#/' + path)}; null")


def named(text, within="document", tags="button, a, summary, label"):
    """An element that says exactly this, as an expression; a key that is shown on it does not count."""
    return (f"[...{within}.querySelectorAll({json.dumps(tags)})].find((e) => e.innerText.replace(/\\n?[a-z]$/, (m) => "
            f"e.querySelector('kbd') ? '' : m).trim() === {json.dumps(text)} && e.getClientRects().length)")


def click(page, text, within="document"):
    page.wait(named(text, within), WAIT)
    page.click(named(text, within))


def field(label):
    """The control with this label, or of this name for those who cannot see."""
    name = json.dumps(label)
    return (f"([...document.querySelectorAll('label')].find((l) => l.innerText.trim() === {name} && "
            f"document.getElementById(l.htmlFor))?.control ?? "
            f"[...document.querySelectorAll('input, select, textarea')].find((e) => "
            f"e.getAttribute('aria-label') === {name} || "
            f"e.closest('label')?.innerText.trim().startsWith({name})))")


def fill(page, label, value):
    page.wait(field(label) + " && true", WAIT)
    kind = page.run(field(label) + ".tagName + ':' + " + field(label) + ".type")
    if kind.startswith("SELECT"):
        page.run(f"(() => {{ const e = {field(label)}; e.value = {json.dumps(value)}; "
                 f"if (e.value !== {json.dumps(value)}) throw new Error('no such choice'); "
                 "e.dispatchEvent(new Event('change', { bubbles: true })); })()")
    elif kind.endswith("checkbox"):
        if page.run(field(label) + ".checked") != value:
            page.click(field(label))
    else:
        page.run(f"(() => {{ const e = {field(label)}; e.focus(); e.select(); }})()")
        page.type(value)


def says(page, text, within="document.body"):
    page.wait(f"{within} && {within}.innerText.includes({json.dumps(text)})", WAIT)


def state_of(server, box):
    reply = server.get(f"{BOXES}/{box}")
    return reply.json()["state"] if reply.status == 200 else "gone"


def wait_state(server, box, state):
    harness.wait_until(lambda: state_of(server, box) == state, WAIT, f"{box} to be {state}")


# ---- many: doubles of answers, for more than a test machine holds ----

MANY = """(() => { const real = window.fetch; const row = %s;
    window.fetch = (path, ...rest) => !/^\\/api\\/v1\\/sandboxes\\?/.test(path) ? real(path, ...rest) :
        Promise.resolve(new Response(JSON.stringify({ next: null, items: Array.from({ length: %d }, (_, i) => ({
            ...row, id: 'sb' + String(i).padStart(26, '0'), name: 'many-' + i, state: i %% 3 ? 'running' : 'stopped',
            created_at: new Date(1.7e12 + i * 1000).toISOString() })) }))); })()"""
# Rows of the list that go by, a screen and a half each time.
SCROLL = """(async () => { const el = document.querySelector('.scroll');
    for (let i = 0; i < %d; i++) {
        el.scrollTop = el.scrollTop + el.clientHeight >= el.scrollHeight - 1 ? 0 : el.scrollTop + 1500;
        await new Promise(requestAnimationFrame); }
    return { rows: document.querySelectorAll('.tbody [role=row]').length, top: el.scrollTop,
        shown: document.querySelector('.tbody [role=row]').innerText }; })()"""
# The page's own socket of events, to be spoken through: FEED before the page is opened, SPEAK afterwards.
FEED = """(() => { const Real = window.WebSocket;
    window.WebSocket = class extends Real { constructor(...args) { super(...args);
        if (String(args[0]).includes('/events')) window.feed = this; } }; })()"""
SPEAK = """(async () => { const last = %d, count = %d;
    for (let i = 1; i <= count; i++) { window.feed.onmessage({ data: JSON.stringify({ seq: last + i, object: '',
            time: new Date().toISOString(), type: 'note.created', data: { text: 'event ' + (last + i), by: 'x' } }) });
        if (i %% %d === 0) await new Promise(requestAnimationFrame); }
    while (!document.querySelector('.tbody')?.innerText.includes('event ' + (last + count)))
        await new Promise(requestAnimationFrame); })()"""


def many(server, page, count, row):
    page.call("Page.addScriptToEvaluateOnNewDocument", source=MANY % (json.dumps(row), count))
    login(server, page)
    says(page, str(count))
    page.call("Page.bringToFront")


def fed(server, page, path):
    """The number of the newest event."""
    page.call("Page.addScriptToEvaluateOnNewDocument", source=FEED)
    login(server, page, path)
    page.wait("document.querySelector('.tbody')", WAIT)
    page.call("Page.bringToFront")
    return server.get("/api/v1/events?limit=1").json()["head"]


def heap(page):
    """Bytes and elements that are left when everything that can go has gone."""
    for _ in range(2):
        page.call("HeapProfiler.collectGarbage")
    return page.call("Runtime.getHeapUsage")["usedSize"], page.call("Memory.getDOMCounters")["nodes"]
