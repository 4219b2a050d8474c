"""Templates: wishes for sandboxes under a name, what a creation takes of them, and pools made ready for them;
and lists of sandboxes page by page."""
import os

import pytest
from harness import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, TEMPLATES = "/api/v1/sandboxes", "/api/v1/templates"


def put(server, name, **spec):
    reply = server.request("PUT", f"{TEMPLATES}/{name}", json=spec)
    assert reply.status == 200, reply
    return reply.json()


@pytest.fixture
def make(server):
    made = []

    def create(**wish):
        reply = server.post(BOXES, {"ttl_ms": 600000, **wish})
        assert reply.status == 201, reply
        made.append(reply.json()["id"])
        return reply.json()

    yield create
    for one in made:
        assert server.delete(f"{BOXES}/{one}").status == 200


def test_a_creation_takes_what_it_does_not_say(server, make):
    put(server, "web", memory=256 << 20, pids=64, user="root", storage="memory", env={"A": "1", "B": "2"},
        labels={"team": "x", "kind": "web"}, idle={"after_ms": 60000, "action": "pause"},
        files=[{"path": "/workspace", "access": "write"}])
    box = make(template="web", memory=512 << 20, env={"B": "3", "C": "4"}, labels={"team": "y"}, name="one")
    assert box["template"] == "web" and box["name"] == "one"
    assert (box["memory"], box["pids"], box["user"], box["storage"]) == (512 << 20, 64, "root", "memory")
    assert box["env"] == {"A": "1", "B": "3", "C": "4"}
    assert box["labels"] == {"team": "y", "kind": "web"}
    assert box["idle"] == {"after_ms": 60000, "action": "pause"}
    assert [f["path"] for f in box["files"]] == ["/workspace"]
    done = server.post(f"{BOXES}/{box['id']}/execs?wait=20000", {"command": "echo $A$B$C; id -u"}, timeout=30).json()
    assert done["output"].split() == ["134", "0"], done
    plain = make()
    assert plain["template"] is None and plain["user"] == "agent"


def test_a_template_is_read_changed_and_removed(server, make):
    assert put(server, "changes", memory=64 << 20)["spec"]["memory"] == 64 << 20
    box = make(template="changes", storage="memory")
    assert put(server, "changes", memory=128 << 20)["spec"]["memory"] == 128 << 20
    assert server.get(f"{BOXES}/{box['id']}").json()["memory"] == 64 << 20, "what was made stays as it is"
    assert make(template="changes", storage="memory")["memory"] == 128 << 20
    shown = server.get(f"{TEMPLATES}/changes").json()
    assert shown["name"] == "changes" and shown["spec"]["memory"] == 128 << 20 and shown["by"]
    assert "changes" in [t["name"] for t in server.get(TEMPLATES).json()["items"]]
    assert server.delete(f"{TEMPLATES}/changes").status == 200
    assert server.get(f"{TEMPLATES}/changes").status == 404
    assert server.delete(f"{TEMPLATES}/changes").status == 404
    reply = server.post(BOXES, {"template": "changes"})
    assert reply.status == 400 and reply.error["field"] == "template", reply


@pytest.mark.parametrize("name, spec, field", [
    ("Upper", {}, "name"), ("x" * 64, {}, "name"), ("ok", {"name": "n"}, "name"), ("ok", {"template": "t"}, "template"),
    ("ok", {"memory": 1}, "memory"), ("ok", {"nonsense": 1}, "nonsense"), ("ok", {"env": {"A=": "1"}}, "env"),
    ("ok", {"binds": [{"ticket": "0" * 32, "path": "/x"}]}, "binds"),
    ("ok", {"storage": "memory", "idle": {"after_ms": 1000, "action": "stop"}}, "idle.action"),
])
def test_what_can_be_no_template_is_refused(server, name, spec, field):
    reply = server.request("PUT", f"{TEMPLATES}/{name}", json=spec)
    assert reply.status == 400 and reply.error["field"] == field, reply


def test_templates_belong_to_their_tenant_and_roles(server):
    put(server, "ours", memory=64 << 20)
    wish = {"name": "elsewhere", "role": "operator", "tenant": "elsewhere"}
    other = server.post("/api/v1/tokens", wish).json()["token"]
    looks = server.post("/api/v1/tokens", {"name": "only-looks", "role": "viewer"}).json()["token"]
    assert server.get(f"{TEMPLATES}/ours", token=other).status == 404
    assert server.get(TEMPLATES, token=other).json()["items"] == []
    assert server.post(BOXES, {"template": "ours"}, token=other).status == 400
    assert server.get(f"{TEMPLATES}/ours", token=looks).status == 200
    assert server.request("PUT", f"{TEMPLATES}/ours", json={}, token=looks).status == 403
    assert server.delete(f"{TEMPLATES}/ours", token=looks).status == 403


def test_templates_have_a_limit_and_outlive_the_server(start_server):
    server = start_server()
    for i in range(256):
        put(server, f"t{i}", pids=100 + i)
    reply = server.request("PUT", f"{TEMPLATES}/more", json={})
    assert reply.status == 429, reply
    put(server, "t0", pids=99)
    server.kill9_api()
    wait_until(server.is_ready, 20, "the api again")
    names = [t["name"] for t in server.get(TEMPLATES).json()["items"]]
    assert names == sorted(f"t{i}" for i in range(256))
    assert server.get(f"{TEMPLATES}/t0").json()["spec"]["pids"] == 99
    rows = server.get("/api/v1/audit?limit=10").json()["items"]
    assert any(r["action"] == "template.set" and r["object"] == "template/t0" for r in rows), rows


def test_a_template_with_a_pool_stays_warm_whatever_else_is_asked(server, make):
    put(server, "warm", user="agent", storage="memory", env={"FROM": "template"})
    put(server, "odd", nesting=True)
    for template in ("nobody", "odd"):
        reply = server.request("PUT", "/api/v1/pools/none", json={"size": 1, "template": template})
        assert reply.status == 400 and reply.error["field"] == "template", reply
    reply = server.request("PUT", "/api/v1/pools/warm", json={"size": 1, "template": "warm"})
    assert reply.status == 200 and reply.json()["storage"] == "memory", reply

    def ready():
        return [p["ready"] for p in server.get("/api/v1/pools").json()["items"] if p["name"] == "warm"] == [1]

    try:
        wait_until(ready, 30, "a warm one")
        box = make(template="warm", memory=128 << 20, env={"MINE": "too"}, labels={"a": "b"})
        assert box["start"] == "warm" and box["create_us"] > 0, box
        done = server.post(f"{BOXES}/{box['id']}/execs?wait=20000", {"command": "echo $FROM $MINE"}, timeout=30).json()
        assert done["output"] == "template too\n"
    finally:
        server.request("PUT", "/api/v1/pools/warm", json={"size": 0})


def test_a_list_is_given_page_by_page(server, make):
    made = [make(storage="memory", name=f"page-{i}", labels={"n": str(i % 2)})["id"] for i in range(5)]
    make(storage="memory", name="other-0")
    seen, after = [], ""
    for _ in range(10):
        page = server.get(f"{BOXES}?name=page-&limit=2{after}").json()
        assert len(page["items"]) <= 2
        seen += [b["id"] for b in page["items"]]
        if not page["next"]:
            break
        assert page["next"] == seen[-1]
        after = f"&after={page['next']}"
    assert seen == sorted(made)
    assert server.get(f"{BOXES}?name=page-&limit=5").json()["next"] is None
    odd = server.get(f"{BOXES}?name=page-&label=n=1&state=running").json()["items"]
    assert sorted(b["name"] for b in odd) == ["page-1", "page-3"]
    assert server.get(f"{BOXES}?name=page-&state=paused").json()["items"] == []
    for query, field in (("limit=0", "limit"), ("limit=1001", "limit"), ("after=x", "after"), ("state=x", "state")):
        reply = server.get(f"{BOXES}?{query}")
        assert reply.status == 400 and reply.error["field"] == field, reply


def test_the_command_line_makes_and_uses_them(server):
    assert server.cli("template", "set", "byhand", "--memory", "64M", "--storage", "memory", "--env", "X=1",
                      check=True).stdout == "byhand\n"
    assert "byhand" in server.cli("template", "ls", check=True).stdout
    shown = server.cli("template", "show", "byhand", check=True).stdout
    assert "64" in shown and "X" in shown, shown
    box = server.cli("create", "--template", "byhand", "--ttl", "5m", "--name", "made-byhand",
                     check=True).stdout.strip()
    try:
        assert server.get(f"{BOXES}/{box}").json()["memory"] == 64 << 20
        assert server.cli("ls", "--prefix", "made-", check=True).stdout.count("made-byhand") == 1
        assert "made-byhand" not in server.cli("ls", "--prefix", "x", check=True).stdout
    finally:
        server.cli("rm", box, check=True)
    assert server.cli("template", "rm", "byhand").returncode == 0
    assert server.cli("template", "rm", "byhand").returncode == 2
