"""Questions, audit and health in the dashboard: answered there, and checked there."""
import json
import pathlib

import dash
import harness
import pytest
from dash import BOXES, WAIT, click, fill, go, says

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def box(server, page):
    made = server.post(BOXES, {"name": "asker", "egress": {"mode": "ask", "ask_s": 600}}).json()["id"]
    yield made
    server.delete(f"{BOXES}/{made}")


def ask(server, box, host):
    """A connection that waits for an answer; its question."""
    server.post(f"{BOXES}/{box}/execs", {"command": f"curl -sS -m 60 http://{host}/"})

    def found():
        open_ = server.get("/api/v1/asks?state=pending").json()["items"]
        return [one for one in open_ if one["action"]["host"] == host]

    harness.wait_until(found, WAIT, "the question")
    return found()[0]["id"]


def came_of(server, one):
    return server.get(f"/api/v1/asks/{one}").json()


def decided(server, one):
    harness.wait_until(lambda: came_of(server, one)["state"] != "pending", WAIT, "the decision")
    return came_of(server, one)


def test_a_question_is_told_wherever_one_looks(server, page, box):
    go(page, "sandboxes")
    page.wait("document.querySelector('h1')?.innerText === 'Sandboxes'", WAIT)
    one = ask(server, box, "told.example.org")
    says(page, "asker asks: connect told.example.org:80")
    page.wait("document.title.startsWith('(1)')", WAIT)
    assert page.run("document.querySelector('nav .hot').innerText") == "1"
    click(page, "Answer")
    page.wait("location.hash === '#/questions'", WAIT)
    told = came_of(server, one)
    # In full: every byte of the action, its digest, the time that is left.
    page.wait("document.querySelector('.question pre')", WAIT)
    assert json.loads(page.run("document.querySelector('.question pre').innerText")) == told["action"]
    assert told["hash"] in page.text()
    page.wait("/^\\d+ (s|min) left$/.test(document.querySelector('[role=timer]').innerText)", WAIT)
    page.picture("questions.png")
    click(page, "Allow once")
    got = decided(server, one)
    assert got["state"] == "allowed"
    assert server.get(f"{BOXES}/{box}/egress").json()["own"]["allow"] == [], "once is no rule"
    says(page, "Nobody waits for an answer.")
    page.wait("!document.title.startsWith('(')", WAIT)


def test_a_rule_that_a_program_asks_for_is_for_good(server, page, box):
    """Such a question is not allowed once: the words and what happens are one."""
    go(page, "questions")
    wish = """curl -s http://atoll.internal/asks -d '{"host": "wished.example.org", "port": 8443}'"""
    assert harness.run_in(server, box, "sh", "-c", wish)["exit_code"] == 0
    says(page, "wished.example.org")
    assert not page.run("[...document.querySelectorAll('.question button')].some(b => /once/.test(b.innerText))")
    click(page, "Allow for this sandbox")
    says(page, "wished.example.org:8443 is allowed for this sandbox from now on", "document.body")
    own = lambda: server.get(f"{BOXES}/{box}/egress").json()["own"]["allow"]  # noqa: E731
    harness.wait_until(lambda: own() == ["wished.example.org:8443"],
                       WAIT, "the rule")
    back = {"rule": "wished.example.org:8443", "verdict": "deny"}
    assert server.post(f"{BOXES}/{box}/egress/rules", back).status == 200


def test_by_keys(server, page, box):
    """The one in focus is the oldest; after an answer the next one is."""
    go(page, "questions")
    first = ask(server, box, "one.example.org")
    second = ask(server, box, "two.example.org")
    page.wait("document.querySelectorAll('.question').length === 2", WAIT)
    page.wait(f"document.activeElement?.dataset?.ask === '{first}'", WAIT)
    page.press("a")
    assert decided(server, first)["state"] == "allowed"
    page.wait(f"document.activeElement?.dataset?.ask === '{second}'", WAIT)
    page.press("d")
    fill(page, "Why", "not from here")
    page.press("Enter")
    got = decided(server, second)
    assert (got["state"], got["note"]) == ("denied", "not from here")
    says(page, "not from here", "document.querySelector('table')")


@pytest.mark.parametrize("button,level", [("For this sandbox", "sandbox"), ("Always", "tenant")])
def test_for_longer(server, page, box, button, level):
    go(page, "questions")
    host = f"{level}.example.org"
    one = ask(server, box, host)
    says(page, host)
    click(page, button)
    assert decided(server, one)["state"] == "allowed"
    rules = server.get(f"{BOXES}/{box}/egress").json()["rules"]
    assert [rule["level"] for rule in rules if rule["rule"] == host] == [level]
    server.delete("/api/v1/egress/policies/tenant")


def test_what_somebody_else_answers_goes_away(server, page, box):
    go(page, "questions")
    one = ask(server, box, "elsewhere.example.org")
    says(page, "connect elsewhere.example.org:80")
    server.post(f"/api/v1/asks/{one}/decision", {"verdict": "deny"})
    page.wait("!document.querySelector('.question')", WAIT)


OTHER = """(() => { const real = window.fetch; window.fetch = async (path, ...rest) => {
    const reply = await real(path, ...rest);
    if (!String(path).startsWith('/api/v1/asks') || rest[0]?.method !== 'GET') return reply;
    const text = (await reply.text()).replaceAll(/"hash":"[0-9a-f]{64}"/g, '"hash":"' + 'f'.repeat(64) + '"');
    return new Response(text, { status: reply.status, headers: reply.headers }); }; })()"""


@pytest.mark.parametrize("button", ["Allow once", "Deny"])
def test_only_what_was_shown_is_decided(server, chromium, page, box, button):
    """Under the same id there is another action than the page has shown: nothing is decided."""
    one = ask(server, box, f"other-{button.split()[0].lower()}.example.org")
    page = chromium.page()
    page.call("Page.addScriptToEvaluateOnNewDocument", source=OTHER)
    dash.login(server, page, "questions")
    says(page, "f" * 64)
    click(page, button)
    if button == "Deny":
        click(page, "Deny", "document.querySelector('dialog')")
    says(page, "that is not what was asked for", "document.querySelector('.toast')")
    assert came_of(server, one)["state"] == "pending"
    page.open("about:blank")
    assert server.post(f"/api/v1/asks/{one}/decision", {"verdict": "deny"}).status == 200


def test_the_audit_log_and_its_chain(server, page, box, tmp_path):
    # Details with everything that a second printing of JSON might change.
    harness.run_in(server, box, "echo", "ünïcode \U0001f41a \"quoted\" \\ \t </script> \u2028")
    server.post("/api/v1/tokens", {"name": "shell", "role": "viewer"})
    go(page, "audit")
    says(page, "token.create")
    fill(page, "Filter", "token.create ok")
    page.wait("[...document.querySelectorAll('.tbody .type')].every((t) => t.innerText === 'token.create')", WAIT)
    page.browser.send(None, "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    click(page, "Export")
    got = pathlib.Path(tmp_path, "audit.jsonl")
    harness.wait_until(lambda: got.exists() and got.stat().st_size, WAIT, "the export")
    assert {json.loads(line)["action"] for line in got.read_text().splitlines()} == {"token.create"}
    fill(page, "Filter", "")
    click(page, "Check the chain here")
    page.wait("document.querySelector('.verdict')", WAIT)
    rows = server.get("/api/v1/audit/verify").json()
    told = page.run("document.querySelector('.verdict').innerText")
    assert f"{rows['rows']:,} rows fit." in told and "as the server says" in told, told
    page.picture("audit.png")


LIE = """(() => { const real = window.fetch; window.fetch = async (path, ...rest) => {
    const reply = await real(path, ...rest);
    if (!String(path).startsWith('/api/v1/audit?')) return reply;
    const text = (await reply.text()).replace(%s, %s);
    return new Response(text, { status: reply.status, headers: reply.headers }); }; })()"""


@pytest.mark.parametrize("was,now", [('"outcome":"ok"', '"outcome":"no"'), ('"detail":{"', '"detail":{ "'),
                                     ('"peer":"127', '"peer":"128')])
def test_a_row_that_was_changed_is_found_here(server, page, was, now):
    """Whatever the server says of its own chain: the page computes it."""
    page.open(server.url + "/#/audit")
    says(page, "Check the chain here")
    page.run(LIE % (json.dumps(was), json.dumps(now)))
    click(page, "Check the chain here")
    page.wait("/^Row \\d+ does not fit/.test(document.querySelector('[role=alert]')?.innerText)", WAIT)


def test_health(server, page):
    told = harness.wait_until(lambda: (r := server.get("/api/v1/doctor")).status == 200 and r.json(), WAIT, "checks")
    page.open(server.url + "/#/health")
    says(page, server.get("/api/v1/version").json()["version"])
    says(page, "Credentials looked at")
    # Every check with its words, what is missing first.
    rows = ("[...document.querySelectorAll('section[aria-label=\"This machine\"] tbody tr')].map((r) => "
            "[...r.children].map((c) => c.innerText))")
    page.wait(f"{rows}.length === {len(told['items'])}", WAIT)
    shown = page.run(rows)
    words = {"ok": "ok", "lost": "missing", "fail": "failed", "unknown": "unknown"}
    assert {tuple(row) for row in shown} == {
        (one["name"], words[one["state"]], one["found"], one["lost"] or "", one["fix"] or "") for one in told["items"]}
    states = [row[1] for row in shown]
    assert states == sorted(states, key=["failed", "missing", "unknown", "ok"].index)
    limits = server.get("/api/v1/limits").json()["items"]
    assert page.run("document.querySelectorAll('section[aria-label=Limits] tbody tr').length") == len(limits)
    says(page, "sandboxes_max", "document.querySelector('section[aria-label=Limits]')")
    page.picture("health.png")
