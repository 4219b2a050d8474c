"""Previews in a real browser: a page and a WebSocket that a program inside serves, by host and by path; and what such
a page must not get at, which is whoever looks at it. And the SDK's terminals, as a page has them."""
import json
import os
import pathlib
import subprocess

import browser
import harness
import pytest
import sdkts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
TESTS = pathlib.Path(harness.__file__).parent


@pytest.fixture(scope="module")
def chromium():
    if not browser.find():
        pytest.skip("no chromium here")
    chromium = browser.Browser()
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def box(server):
    made = server.post(BOXES, {"ttl_ms": 600000}).json()["id"]
    for name in ("inside_server.py", "inside_page.js"):
        reply = server.request("PUT", f"{BOXES}/{made}/files?path={name}", body=(TESTS / name).read_bytes())
        assert reply.status == 200, reply
    server.post(f"{BOXES}/{made}/execs", {"command": "exec python3 inside_server.py 8000"})
    harness.wait_until(lambda: server.get(f"{BOXES}/{made}/ports").json()["items"], 30, "the server")
    yield made
    assert server.delete(f"{BOXES}/{made}").status == 200


@pytest.fixture
def visitor(server, chromium):
    """Somebody who is logged in to the dashboard."""
    chromium.open(server.url + server.post("/api/v1/login-links").json()["url_path"])
    chromium.wait("document.querySelector('[role=status]')?.innerText === 'Live'", 30 * harness.SLOW)
    return chromium


def cookies(chromium):
    return {(c["domain"], c["name"]): c["value"] for c in chromium.cookies()}


def told(chromium):
    chromium.wait("window.told && window.told.chat", 30 * harness.SLOW)
    return chromium.run("window.told")


@pytest.mark.timeout(180)
def test_by_host_it_is_an_ordinary_page_of_its_own_origin(server, box, visitor):
    before = cookies(visitor)
    host = f"8000-{box}.localhost"
    link = server.post(f"{BOXES}/{box}/previews", {"port": 8000, "path": "/page"}).json()["url"]
    visitor.open(f"{link}#{server.url}")
    got = told(visitor)
    visitor.picture("by-host.png")
    assert got["origin"] == f"http://{host}:{server.port}"
    assert visitor.run("location.search") == "", "the pass leaves the address"
    assert "Served inside" in visitor.text()
    assert got["chat"] == "grün", "a WebSocket works"
    assert sorted(got["cookies"].split("; ")) == ["mine=2", "theirs=1"], "its own cookies, and not the pass"
    assert got["storage"] == 0
    assert '"GET /api/v1/whoami HTTP/1.1"' in got["whoami"], "at its origin there is the program, and no API"
    assert got["outside"] == "refused: TypeError", "nor may it ask there"
    after = cookies(visitor)
    assert after["127.0.0.1", "atoll_session"] == before["127.0.0.1", "atoll_session"] != "evil"
    assert {name for domain, name in after if domain == host} == {"atoll_pass", "mine", "theirs"}
    assert visitor.run("fetch('/echo').then((r) => r.json()).then((j) => j.lines.join())").count("atoll_") == 0


@pytest.mark.timeout(180)
def test_by_path_it_is_a_page_of_no_origin(server, box, visitor):
    """It is shown, and its scripts run; but it is nobody here, though it came from our own address."""
    before = cookies(visitor)
    visitor.open(f"{server.url}{BOXES}/{box}/ports/8000/page#{server.url}")
    got = told(visitor)
    visitor.picture("by-path.png")
    assert "Served inside" in visitor.text()
    assert got["origin"] == "null"
    assert got["cookies"] == "refused: SecurityError" and got["storage"] == "refused: SecurityError"
    assert got["whoami"] == got["outside"] == "refused: TypeError"
    assert got["worker"].startswith("refused: ")
    assert got["chat"] == "refused: SocketError", "no origin has no sockets; by host it has"
    assert cookies(visitor) == before, "it sets none for our host"


# ---- the SDK ----

TYPED = """(async () => {
  const client = new atoll.Client({ token: %s });
  const box = await client.sandboxes.get(%s);
  const terminal = await box.openTerminal(["sh", "-c", "stty -echo; printf 'ready '; read x; echo got $x; exit 4"],
    { rows: 10, cols: 40 });
  const seen = [], decoder = new TextDecoder();
  const attachment = await terminal.attach({ from: 0 });
  let sent = false;
  for await (const message of attachment) {
    if (message.type === "output") seen.push(decoder.decode(message.data, { stream: true }));
    if (!sent && seen.join("").includes("ready ")) {
      sent = true;
      attachment.resize(12, 50);
      attachment.write("gr\u00fcn\\n");
    }
  }
  return { text: seen.join(""), code: attachment.exit.exit_code, size: [(await terminal.refresh()).rows] };
})()"""


@pytest.mark.timeout(180)
def test_a_terminal_by_the_sdk(server, box, visitor, tmp_path):
    """In a page that is logged in, over the browser's own WebSocket."""
    esbuild = harness.ROOT / "web" / "node_modules" / ".bin" / "esbuild"
    if not esbuild.exists():
        pytest.skip("no esbuild here")
    sdkts.install(tmp_path)
    subprocess.run([esbuild, tmp_path / "node_modules/@atoll/sdk/dist/index.js", "--bundle", "--format=iife",
                    "--global-name=atoll", f"--outfile={tmp_path}/sdk.js", "--log-level=error"], check=True)
    visitor.run((tmp_path / "sdk.js").read_text().replace("var atoll =", "window.atoll =", 1) + ";true")
    got = visitor.run(TYPED % (json.dumps(server.token), json.dumps(box)))
    assert got["text"] == "ready got grün\r\n" and got["code"] == 4 and got["size"] == [12], got
