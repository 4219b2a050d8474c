"""The dashboard in Chromium, against a real server with real sandboxes: what a person does there happens, and what
happens is seen there."""
import json
import pathlib

import dash
import harness
import pytest
from dash import BOXES, WAIT, click, field, fill, go, named, says, wait_state

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def box(server, page):
    made = server.post(BOXES, {"name": "lagoon", "labels": {"team": "reef"}, "memory": 256 << 20}).json()["id"]
    yield made
    server.delete(f"{BOXES}/{made}")


def rows(page):
    return page.run("[...document.querySelectorAll('.boxes .tbody [role=row] .name a')].map((a) => a.innerText)")


def test_the_list_follows_what_happens(server, page):
    go(page, "sandboxes")
    made = server.post(BOXES, {"name": "atoll-a", "labels": {"env": "prod"}}).json()["id"]
    page.wait("document.body.innerText.includes('atoll-a')", WAIT)
    other = server.post(BOXES, {"name": "atoll-b", "storage": "memory"}).json()["id"]
    page.wait("document.body.innerText.includes('atoll-b')", WAIT)
    # Newest first; then by filter, state and label, all of it in the address.
    assert rows(page)[:2] == ["atoll-b", "atoll-a"]
    fill(page, "Filter", "label:env=prod")
    page.wait("!document.querySelector('.tbody').innerText.includes('atoll-b')", WAIT)
    assert rows(page) == ["atoll-a"] and "label%3Aenv%3Dprod" in page.run("location.hash")
    fill(page, "Filter", "")
    server.post(f"{BOXES}/{other}/pause")
    page.wait("document.querySelector('.s-paused')", WAIT)
    fill(page, "State", "paused")
    page.wait("document.querySelectorAll('.tbody [role=row]').length === 1", WAIT)
    assert rows(page) == ["atoll-b"]
    fill(page, "State", "")
    nested = server.post(BOXES, {"name": "atoll-c", "tier": "T1"}).json()
    assert nested["nesting"] is True
    fill(page, "Tier", "T1")
    page.wait("document.querySelectorAll('.tbody [role=row]').length === 1", WAIT)
    assert rows(page) == ["atoll-c"] and page.run("document.querySelector('.tbody .tier').innerText").startswith("T1")
    fill(page, "Tier", "T3")
    page.wait("document.querySelector('.tbody .tier')?.innerText.startsWith('T3')", WAIT)
    assert "atoll-c" not in rows(page)
    fill(page, "Tier", "")
    server.delete(f"{BOXES}/{nested['id']}")
    # Figures come for the rows in sight.
    page.wait("document.querySelector('.spark polyline')", WAIT)
    server.delete(f"{BOXES}/{made}")
    server.delete(f"{BOXES}/{other}")
    page.wait("!document.body.innerText.includes('atoll-')", WAIT)


CREATE = [
    ("Name", "made-here", "name", "made-here"), ("Commands run as", "root", "user", "root"),
    ("Labels", "team=reef\nnote=a=b", "labels", {"team": "reef", "note": "a=b"}),
    ("Environment", "COLOUR=blue", "env", {"COLOUR": "blue"}), ("Memory", "300m", "memory", 300 << 20),
    ("Processor", "150", "cpu_percent", 150), ("Processes", "99", "pids", 99),
    ("Open files of each", "333", "nofile", 333),
    ("Disk bytes a second", "50m", "io_bytes", 50 << 20), ("Disk operations a second", "900", "io_ops", 900),
    ("Storage", "memory", "storage", "memory"), ("Bytes written", "64m", "disk", 64 << 20),
    ("Files (storage memory)", "5000", "inodes", 5000), ("Deleted after", "2h", "ttl_ms", 7200000),
    ("When idle for", "30m", "idle.after_ms", 1800000), ("it is", "pause", "idle.action", "pause"),
    ("A read-only /sys", True, "sys", True), ("Tier", "T3", "tier", "T3"),
    ("Commands may open only", "write /workspace\nread /opt", "files",
     [{"path": "/workspace", "access": "write"}, {"path": "/opt", "access": "read"}]),
    ("Volumes", "shells /shells ro", "volumes", [{"volume": "shells", "path": "/shells", "read_only": True}]),
    ("Hosts that no rule allows", "ask", "egress.mode", "ask"), ("python", True, "egress.packs", ["python"]),
    ("Allow", "api.example.org\n*.example.net", "egress.allow", ["api.example.org", "*.example.net"]),
    ("Deny", "ads.example.org", "egress.deny", ["ads.example.org"]), ("Project", "reef", "egress.project", "reef"),
    ("Agent of the hub", "mender", "egress.agent", "mender"),
    ("Secrets", "SHORE=TIDE", "egress.secrets", ["SHORE=TIDE"]),
    ("Headers put in", "api.example.org => X-Key: {secret:TIDE}", "egress.inject",
     ["api.example.org => X-Key: {secret:TIDE}"]),
    ("TLS is opened to", "api.example.org", "egress.intercept", ["api.example.org"]),
    ("Any bytes may be sent to", "git.example.net", "egress.unchecked", ["git.example.net"]),
    ("Bytes, both ways", "10m", "egress.max_bytes", 10 << 20),
    ("Connections at once", "7", "egress.max_connections", 7), ("A question waits, seconds", "20", "egress.ask_s", 20),
]


def test_every_field_of_a_new_sandbox_takes_effect(server, page):
    server.post("/api/v1/volumes", {"name": "shells", "bytes": 64 << 20})
    server.request("PUT", "/api/v1/secrets/TIDE", json={"value": "low-water", "hosts": ["api.example.org"]})
    go(page, "new")
    for label, value, _, _ in CREATE:
        fill(page, label, value)
    page.picture("create.png")
    click(page, "Make it")
    page.wait("location.hash.startsWith('#/sandboxes/sb')", WAIT)
    made = server.get(f"{BOXES}/made-here").json()
    for label, _, path, wanted in CREATE:
        got = made
        for key in path.split("."):
            got = got[key]
        assert got == wanted, (label, got)
    assert page.run("location.hash") == f"#/sandboxes/{made['id']}"
    # One field of each kind that no answer shows: what it is inside.
    done = harness.run_in(server, made["id"], "sh", "-c", "id -u; echo $COLOUR; ls -d /sys/class; ulimit -n; "
                          "echo ${SHORE%%-*}")
    assert done["output"].split() == ["0", "blue", "/sys/class", "333", "atoll"], done
    server.delete(f"{BOXES}/{made['id']}")
    server.delete("/api/v1/volumes/shells")
    server.delete("/api/v1/secrets/TIDE")


def test_the_form_has_every_field_that_there_is(server, page):
    """Whatever creation learns must be offered, or be named here with the reason why it is not."""
    kinds = server.get("/api/openapi.json").json()["paths"][BOXES]["post"]["requestBody"]["content"]["application/json"]
    wish = kinds["schema"]["properties"]
    wanted = {f"{name}.{inner}" if inner else name for name, of in wish.items() for inner in of.get("properties", [""])}
    # binds: an open directory, which no browser can hand over. version: of what is changed, and nothing is there yet.
    wanted -= {"binds", "egress.version"}
    go(page, "new")
    page.wait("document.querySelector('form.create')", WAIT)
    has = set(page.run("[...document.querySelectorAll('form.create [name]')].map((e) => e.name)"))
    assert (wanted - has, has - wanted) == (set(), {"workspace"})
    says(page, "atoll run --bind")


def test_warm_or_made_anew(server, page):
    path = "/api/v1/pools/still"
    server.request("PUT", path, json={"size": 1, "storage": "memory"})

    def pool():
        return next(one for one in server.get("/api/v1/pools").json()["items"] if one["name"] == "still")

    try:
        for start, came, taken in (("cold", "cold", 0), ("warm", "warm", 1), ("", "warm", 2)):
            harness.wait_until(lambda: pool()["ready"] == 1, WAIT, "a warm one")
            name = f"start-{start or 'usual'}"
            go(page, "sandboxes")
            page.wait("document.querySelector('h1')?.innerText === 'Sandboxes'", WAIT)
            go(page, "new")
            says(page, "Ready: ")
            fill(page, "Name", name)
            fill(page, "Storage", "memory")
            fill(page, "Start", start)
            click(page, "Make it")
            says(page, f"{name} runs: {came}, in ")
            server.delete(f"{BOXES}/{name}")
            assert pool()["taken"] == taken
    finally:
        server.request("PUT", path, json={"size": 0})


def test_a_folder_becomes_the_workspace(server, page, tmp_path):
    folder = tmp_path / "project"
    (folder / "src" / "deep er").mkdir(parents=True)
    (folder / "top.txt").write_text("top")
    (folder / "src" / "deep er" / "ünder.bin").write_bytes(b"\x00\xff")
    go(page, "new")
    fill(page, "Name", "of-folder")
    page.wait(field("Workspace"), WAIT)
    document = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=document, selector="[name=workspace]")["nodeId"]
    page.call("DOM.setFileInputFiles", files=[str(folder)], nodeId=node)
    page.wait(field("Workspace") + ".files.length === 2", WAIT)
    click(page, "Make it")
    page.wait("location.hash.startsWith('#/sandboxes/sb')", WAIT)
    done = harness.run_in(server, "of-folder", "sh", "-c", "find . -type f | sort; cat top.txt")
    assert done["output"] == "./src/deep er/ünder.bin\n./top.txt\ntop", done
    assert server.get(f"{BOXES}/of-folder/files?path=src/deep%20er/%C3%BCnder.bin").body == b"\x00\xff"
    server.delete(f"{BOXES}/of-folder")


def test_image_template_snapshot_and_nesting(server, page, box):
    server.request("PUT", "/api/v1/templates/small", json={"memory": 123 << 20})
    server.request("PUT", f"{BOXES}/{box}/files?path=kept", body=b"x")
    snapshot = server.post(f"{BOXES}/{box}/snapshots", {"name": "for-new"}).json()["id"]
    go(page, "new")
    fill(page, "Name", "of-template")
    fill(page, "Template", "small")
    fill(page, "Tools inside may make sandboxes of their own", True)
    fill(page, "Tier", "T3")
    click(page, "Make it")
    says(page, "tier: nesting takes Landlock's rules about files away, which T3 has: T1")
    fill(page, "Tier", "T1")
    click(page, "Make it")
    page.wait("location.hash.startsWith('#/sandboxes/sb')", WAIT)
    made = server.get(f"{BOXES}/of-template").json()
    assert (made["memory"], made["template"], made["nesting"], made["tier"]) == (123 << 20, "small", True, "T1")
    server.delete(f"{BOXES}/of-template")
    go(page, "new?from_snapshot=" + snapshot)
    fill(page, "Name", "of-snapshot")
    click(page, "Make it")
    page.wait("location.hash.startsWith('#/sandboxes/sb')", WAIT)
    made = server.get(f"{BOXES}/of-snapshot").json()
    assert made["parent"] == box and harness.run_in(server, made["id"], "cat", "kept")["output"] == "x"
    server.delete(f"{BOXES}/of-snapshot")
    server.delete(f"/api/v1/snapshots/{snapshot}")
    server.delete("/api/v1/templates/small")


def test_what_is_wrong_is_said_where_it_is(server, page):
    before = len(server.get(BOXES).json()["items"])
    go(page, "new")
    fill(page, "Memory", "much")
    click(page, "Make it")
    says(page, 'memory: "much" is not a size like 512m or 2g')
    fill(page, "Memory", "1k")  # the server's own word
    click(page, "Make it")
    page.wait("document.querySelector('[role=alert]')?.innerText.startsWith('memory: ')", WAIT)
    assert page.run("document.querySelector('[aria-invalid=true]')?.name") == "memory"
    fill(page, "Memory", "1g")
    fill(page, "Allow", "fine.example.org\nno such rule:")
    click(page, "Make it")
    page.wait("document.querySelector('[role=alert]')?.innerText.startsWith('egress.allow[1]: ')", WAIT)
    assert page.run("document.querySelector('[aria-invalid=true]')?.name") == "egress.allow"
    assert len(server.get(BOXES).json()["items"]) == before


def test_everything_that_can_be_done_with_one(server, page, box):
    go(page, f"sandboxes/{box}")
    click(page, "Pause")
    wait_state(server, box, "paused")
    click(page, "Resume")
    wait_state(server, box, "running")
    click(page, "Stop")
    says(page, "Stop lagoon?")
    click(page, "Cancel")
    assert dash.state_of(server, box) == "running", "cancelled is not done"
    click(page, "Stop")
    click(page, "Stop", "document.querySelector('dialog')")
    wait_state(server, box, "stopped")
    click(page, "Start")
    wait_state(server, box, "running")

    click(page, "Change")
    fill(page, "Processes", "77")
    fill(page, "Labels", "team=deep")
    click(page, "Change", "document.querySelector('dialog')")
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}").json()["pids"] == 77, WAIT, "the change")
    assert server.get(f"{BOXES}/{box}").json()["labels"] == {"team": "deep"}
    says(page, "deep")

    click(page, "Snapshot")
    fill(page, "Name", "calm")
    click(page, "Take it")
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/snapshots").json()["items"], WAIT, "the snapshot")
    server.request("PUT", f"{BOXES}/{box}/files?path=later", body=b"x")
    click(page, "Fork")
    fill(page, "Name of the copy", "twin")
    click(page, "Fork", "document.querySelector('dialog')")
    harness.wait_until(lambda: dash.state_of(server, "twin") == "running", WAIT, "the fork")

    go(page, f"sandboxes/{box}/snapshots")
    says(page, "calm")
    page.wait("[...document.querySelectorAll('.tree .tree a')].some((a) => a.innerText === 'twin')", WAIT)
    page.picture("snapshots.png")
    click(page, "Roll back")
    click(page, "Roll back", "document.querySelector('dialog')")
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/files/stat?path=later").status == 404, WAIT, "the way back")
    wait_state(server, box, "running")
    page.wait("document.querySelector('.head .s-running') && !document.querySelector('.head > p')", WAIT)
    click(page, "Delete", "document.querySelector('.rows')")
    click(page, "Delete", "document.querySelector('dialog')")
    harness.wait_until(lambda: not server.get(f"{BOXES}/{box}/snapshots").json()["items"], WAIT, "no snapshot")

    go(page, f"sandboxes/{server.get(BOXES + '/twin').json()['id']}")
    says(page, "twin", "document.querySelector('h1')")
    click(page, "Delete")
    click(page, "Delete", "document.querySelector('dialog')")
    harness.wait_until(lambda: dash.state_of(server, "twin") == "gone", WAIT, "the end of it")
    page.wait("location.hash === '#/sandboxes'", WAIT)


def test_layers_processes_and_charts_are_what_the_server_says(server, page, box):
    server.post(f"{BOXES}/{box}/execs", {"command": "while :; do sleep 0.1; done"})
    go(page, f"sandboxes/{box}")
    told = server.get(f"{BOXES}/{box}/applied").json()["layers"]
    page.wait("document.querySelectorAll('section[aria-label=Layers] tbody tr').length", WAIT)
    shown = page.run("[...document.querySelectorAll('section[aria-label=Layers] tbody tr')].map((r) => "
                     "[...r.children].slice(0, 3).map((c) => c.innerText))")
    assert shown == [[one["layer"], one["asked"] or "", one["applied"] or ""] for one in told]
    says(page, "while :; do sleep 0.1; done")
    page.wait("document.querySelectorAll('.chart canvas').length === 2", WAIT)
    page.picture("overview.png")


def test_commands_and_their_output(server, page, box):
    go(page, f"sandboxes/{box}/commands")
    fill(page, "Command", "printf 'gr\\303\\274n\\n'; echo oops >&2; read x; echo never")
    page.press("Enter")
    says(page, "grün", "document.querySelector('.output pre')")
    page.wait("document.querySelector('.output .err')?.innerText.includes('oops')", WAIT)
    says(page, "exit 0")  # its input is empty
    fill(page, "Command", "printf 'half\\rdone \\033[1;32mok\\033[0m \\033]0;t\\007step 1\\n'")
    page.press("Enter")
    page.wait("document.querySelector('.output pre')?.innerText === 'done ok step 1\\n'", WAIT)
    green = "document.querySelector('.output .a-fg2.a-bold')"
    assert page.run(f"{green}.innerText") == "ok"
    assert page.run(f"getComputedStyle({green}).color !== getComputedStyle({green}.parentNode).color")
    fill(page, "Command", "sleep 1000")
    page.press("Enter")
    page.wait(named("Kill") + " && document.querySelector('.output h2').innerText.includes('sleep 1000')", WAIT)
    click(page, "Kill")
    says(page, "signal 9")
    newest = server.get(f"{BOXES}/{box}/execs").json()["items"][-1]
    assert (newest["state"], newest["signal"]) == ("exited", 9)


def test_files(server, page, box, tmp_path):
    go(page, f"sandboxes/{box}/files")
    click(page, "New directory")
    fill(page, "Name", "déjà vu")
    click(page, "Make it")
    says(page, "déjà vu")
    # What happens inside is seen without asking.
    server.request("PUT", f"{BOXES}/{box}/files?path=notes.txt", body="first\n".encode())
    says(page, "notes.txt")
    page.click("[...document.querySelectorAll('.row')].find((r) => r.innerText.includes('notes.txt'))")
    page.wait("document.querySelector('textarea.edit')?.value === 'first\\n'", WAIT)
    page.run("(() => { const e = document.querySelector('textarea.edit'); e.focus(); e.setSelectionRange(6, 6); })()")
    page.type("second\n")
    page.press("s", ctrl=True)
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/files?path=notes.txt").body == b"first\nsecond\n",
                       WAIT, "saved")
    page.picture("files.png")

    # Dropped files become files.
    page.run("""(() => { const data = new DataTransfer(); data.items.add(new File(['dropped'], 'from desk.txt'));
        data.items.add(new File([new Uint8Array([0, 1, 2, 255])], 'raw.bin'));
        const drop = new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true });
        document.querySelector('.drop').dispatchEvent(drop); })()""")
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/files?path=raw.bin").body == b"\x00\x01\x02\xff",
                       WAIT, "the upload")
    assert server.get(f"{BOXES}/{box}/files?path=from%20desk.txt").body == b"dropped"

    # A folder with all that is in it; the tree shows it in place, and follows it.
    folder = tmp_path / "hull"
    (folder / "deck" / "empty").mkdir(parents=True)
    (folder / "deck" / "mast.txt").write_text("tall")
    at = page.where("document.querySelector('.drop')")
    for kind in ("dragEnter", "dragOver", "drop"):
        page.call("Input.dispatchDragEvent", type=kind, **at,
                  data={"items": [], "files": [str(folder)], "dragOperationsMask": 1})
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/files?path=hull/deck/mast.txt").body == b"tall",
                       WAIT, "the folder")
    assert server.get(f"{BOXES}/{box}/files/stat?path=hull/deck/empty").json()["type"] == "directory"
    for name in ("hull", "deck"):
        page.click(f"document.querySelector('[aria-label=\"What is in {name}\"]')")
        page.wait(f"document.querySelector('.branch[aria-label=\"{name}\"]')", WAIT)
    inside = "document.querySelector('.branch[aria-label=deck]')"
    says(page, "mast.txt", inside)
    server.request("PUT", f"{BOXES}/{box}/files?path=hull/deck/sail.txt", body=b"set")
    says(page, "sail.txt", inside)
    page.picture("tree.png")
    page.click(f"[...{inside}.querySelectorAll('.row')].find((r) => r.innerText.includes('mast.txt'))")
    page.wait("document.querySelector('textarea.edit')?.value === 'tall'", WAIT)
    assert page.run("document.querySelectorAll('.branch').length") == 2, "what is open stays open"
    page.click("document.querySelector('[aria-label=\"What is in hull\"]')")
    page.wait("!document.querySelector('.branch')", WAIT)

    # Downloads, as the browser makes them.
    page.browser.send(None, "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click("[...document.querySelectorAll('.row')].find((r) => r.innerText.includes('raw.bin'))")
    says(page, "No text, or too large")
    click(page, "Download")
    got = pathlib.Path(tmp_path, "raw.bin")
    harness.wait_until(lambda: got.exists() and got.stat().st_size == 4, WAIT, "the download")
    assert got.read_bytes() == b"\x00\x01\x02\xff"

    # Names that are no text, moved and removed.
    harness.run_in(server, box, "sh", "-c", "printf x > $(printf 'bad\\377name')")
    says(page, "bad�name")
    page.click("[...document.querySelectorAll('.row')].find((r) => r.innerText.includes('bad�name'))")
    page.wait("document.querySelector('textarea.edit')?.value === 'x'", WAIT)
    click(page, "Move")
    fill(page, "Path", "/workspace/déjà vu/good")
    click(page, "Move", "document.querySelector('dialog')")
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/files?path=d%C3%A9j%C3%A0%20vu/good").body == b"x",
                       WAIT, "moved")
    page.wait("document.querySelector('.output h2')?.innerText === 'good'", WAIT)
    page.wait("document.querySelector('textarea.edit')", WAIT)
    click(page, "Delete", "document.querySelector('.output')")
    click(page, "Delete", "document.querySelector('dialog')")
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/files/stat?path=d%C3%A9j%C3%A0%20vu/good").status == 404,
                       WAIT, "gone")
    page.click("[...document.querySelectorAll('.row')].find((r) => r.innerText.includes('déjà vu'))")
    says(page, "Nothing is in it")
    page.run("history.back()")
    says(page, "notes.txt")


def test_ports_and_a_preview(server, page, box):
    go(page, f"sandboxes/{box}/ports")
    says(page, "Ports")
    server.post(f"{BOXES}/{box}/execs", {"command": "mkdir -p www; echo '<h1>low tide</h1>' > www/index.html; "
                                                    "cd www; exec python3 -m http.server 8000"})
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/ports").json()["items"], WAIT, "the server inside")
    click(page, "Look again")
    says(page, "8000")
    click(page, "Preview")
    page.wait("document.querySelector('.rows a')", WAIT)
    link = page.run("document.querySelector('.rows a').href")
    assert link.startswith(f"http://8000-{box}.localhost:{server.port}/")
    # It opens once, and was opened: in a tab of its own.
    def tabs():
        found = page.browser.send(None, "Target.getTargets")["targetInfos"]
        return [one["targetId"] for one in found if f"{box}.localhost" in one["url"]]

    harness.wait_until(tabs, WAIT, "the tab")
    for one in tabs():
        page.browser.send(None, "Target.closeTarget", targetId=one)
    page.call("Page.bringToFront")


def own(server, box):
    return server.get(f"{BOXES}/{box}/egress").json()["own"] or {}


def test_egress(server, page, box):
    go(page, f"sandboxes/{box}/egress")
    says(page, "It has tried none.")
    harness.run_in(server, box, "curl", "-sS", "-m", "5", "http://denied.example.org/secret")
    says(page, "denied.example.org:80", "document.querySelector('section[aria-label=Decisions]')")
    says(page, "denied.example.org:80", "document.querySelector('section[aria-label=Hosts]')")
    fill(page, "Address", "http://denied.example.org/")
    click(page, "Explain")
    page.wait("document.querySelector('.v-deny')", WAIT)
    page.picture("egress.png")
    click(page, "Allow", "document.querySelector('section[aria-label=Hosts]')")
    harness.wait_until(lambda: own(server, box).get("allow") == ["denied.example.org"],
                       WAIT, "the rule")
    says(page, "denied.example.org", "document.querySelector('[aria-label=Rules]')")
    click(page, "Explain")
    page.wait("[...document.querySelectorAll('.v-allow')].some((e) => e.closest('p'))", WAIT)
    fill(page, "Rule", "*.ads.example")
    click(page, "Deny", "document.querySelector('form:has(input[aria-label=Rule])')")
    harness.wait_until(lambda: own(server, box).get("deny") == ["*.ads.example"],
                       WAIT, "the denial")
    says(page, "*.ads.example", "document.querySelector('[aria-label=Rules]')")
    fill(page, "Mode", "open")
    harness.wait_until(lambda: server.get(f"{BOXES}/{box}/egress").json()["mode"] == "open", WAIT, "the mode")
    fill(page, "denied only", True)
    page.wait("![...document.querySelectorAll('section[aria-label=Decisions] .v-allowed')].length", WAIT)


def test_the_events_of_one(server, page, box):
    go(page, f"sandboxes/{box}/events")
    page.wait("document.querySelector('.events .tbody [role=row]')", WAIT)
    page.run("document.querySelector('.scroll').scrollTop = 1e6; null")  # the oldest; only what is in sight is drawn
    says(page, "sandbox.created")
    page.run("document.querySelector('.scroll').scrollTop = 0; null")
    server.post(f"{BOXES}/{box}/pause")
    says(page, "sandbox.paused")
    server.post(f"{BOXES}/{box}/resume")
    others = page.run("[...document.querySelectorAll('.events .tbody .object')].map((o) => o.innerText)")
    assert others and all(box in one or one.startswith(("exec/", "disk/", "egress")) for one in others), others


def test_notes_filter_hold_and_export_of_events(server, page, tmp_path):
    go(page, "events")
    fill(page, "Write a note", "low water at noon")
    page.press("Enter")
    says(page, "low water at noon", "document.querySelector('.tbody')")
    fill(page, "Filter", "noon")
    page.wait("document.querySelectorAll('.tbody [role=row]').length === 1", WAIT)
    click(page, "note.created")
    page.wait("document.querySelector('dialog textarea')?.value.includes('low water at noon')", WAIT)
    page.press("Escape")
    page.browser.send(None, "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    click(page, "Export")
    got = pathlib.Path(tmp_path, "events.jsonl")
    harness.wait_until(lambda: got.exists() and got.stat().st_size, WAIT, "the export")
    (only,) = [json.loads(line) for line in got.read_text().splitlines()]
    assert only["data"]["text"] == "low water at noon"
    fill(page, "Filter", "")
    click(page, "Hold")
    server.post("/api/v1/notes", {"text": "while it is held"})
    page.wait(named("Go on") + " && true", WAIT)
    assert "while it is held" not in page.text()
    click(page, "Go on")
    says(page, "while it is held")


def test_back_forward_and_a_link_to_any_view(server, page, box):
    go(page, "sandboxes")
    go(page, f"sandboxes/{box}/files")
    says(page, "workspace")
    page.run("history.back()")
    page.wait("document.querySelector('h1')?.innerText === 'Sandboxes'", WAIT)
    page.run("history.forward()")
    says(page, "workspace")
    # By its name, and in a page that begins there.
    page.open(f"{server.url}/#/sandboxes/lagoon/commands")
    page.wait(f"location.hash === '#/sandboxes/{box}'", WAIT)
    page.open(f"{server.url}/#/sandboxes/{box}/commands")
    page.wait(field("Command") + " && true", WAIT)
    go(page, "sandboxes/sb00000000000000000000000000")
    says(page, "It is gone")
    go(page, "nonsense")
    says(page, "Nothing is here")


def test_the_palette(server, page, box):
    go(page, "sandboxes")
    page.press("k", ctrl=True)
    page.wait("document.querySelector('.palette input')", WAIT)
    page.type("lagoon")
    says(page, box, "document.querySelector('.palette')")
    page.press("Enter")
    page.wait(f"location.hash === '#/sandboxes/{box}'", WAIT)
    page.press("k", ctrl=True)
    page.wait("document.querySelector('.palette input')", WAIT)
    page.type("pause lag")
    says(page, "Pause lagoon", "document.querySelector('.palette')")
    page.press("Enter")
    wait_state(server, box, "paused")
    server.post(f"{BOXES}/{box}/resume")


def test_only_what_the_role_may(server, chromium):
    """Somebody who only looks sees no button that would be refused."""
    made = server.post(BOXES, {"name": "shown"}).json()["id"]
    link = server.post("/api/v1/login-links", token=server.new_token("viewer")["token"])
    looker = chromium.page()
    looker.open(server.url + link.json()["url_path"])
    says(looker, "shown")
    assert "New sandbox" not in looker.text() and "Audit" not in looker.text()
    go(looker, f"sandboxes/{made}")
    says(looker, "What isolates it")
    assert not looker.run("document.querySelector('.actions')")
    server.delete(f"{BOXES}/{made}")


def test_another_tenant(server, chromium):
    """Who owns the server looks at other tenants and comes back; nobody else does, by page or by request."""
    theirs = server.post("/api/v1/tokens", {"name": "far", "role": "admin", "tenant": "faraway"}).json()["token"]
    made = server.post(BOXES, {"name": "far-box"}, token=theirs).json()["id"]
    page = chromium.page()
    dash.login(server, page)
    fill(page, "Tenant switch", "faraway")
    page.wait(f"document.querySelector('main')?.innerText.includes('far-box') && {field('Tenant switch')}", WAIT)
    assert page.run(field("Tenant switch") + ".value") == "faraway"
    fill(page, "Tenant switch", "default")
    page.wait(f"{field('Tenant switch')}?.value === 'default' && "
              "document.querySelector('header [role=status]')?.innerText === 'Live' && "
              "document.querySelector('main') && !document.body.innerText.includes('far-box')", WAIT)
    page.open("about:blank")
    # An admin of another tenant is at home there.
    link = server.post("/api/v1/login-links", token=theirs).json()["url_path"]
    other = chromium.page()
    other.open(server.url + link)
    says(other, "faraway")
    assert not other.run(field("Tenant switch"))
    reply = other.run("""(async () => { const { csrf } = await (await fetch('/api/v1/session')).json();
        return (await fetch('/api/v1/session/tenant', { method: 'POST', body: '{"tenant":"default"}',
            headers: { 'content-type': 'application/json', 'x-atoll-csrf': csrf } })).status; })()""")
    assert reply == 403
    other.open("about:blank")
    server.delete(f"{BOXES}/{made}", token=theirs)


def test_nothing_complained(page):
    """The policy blocked nothing, no script failed. What was refused was asked for: a size, a name, a path; or
    came too late, as a look at processes of what is being stopped."""
    refused = ("400 (Bad Request)", "404 (Not Found)", "409 (Conflict)")
    assert [one for one in page.complaints() if not any(code in one for code in refused)] == []
