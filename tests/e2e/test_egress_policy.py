"""What sandboxes may reach, as data: layers and how they add up, packs, reasons, who may say what, and the commands."""
import json
import os

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, POLICIES, PACKS = "/api/v1/sandboxes", "/api/v1/egress/policies", "/api/v1/egress/packs"


@pytest.fixture
def make(server):
    made = []

    def create(token="admin", **wish):
        reply = server.post(BOXES, {"ttl_ms": 600000, "storage": "memory", **wish}, token=token)
        assert reply.status == 201, reply
        made.append(reply.json()["id"])
        return reply.json()["id"]

    yield create
    for one in made:
        assert server.delete(f"{BOXES}/{one}").status in (200, 404)
    for path in ("node", "tenant", "projects/shop"):
        assert server.delete(f"{POLICIES}/{path}").status == 200


def put(server, path, **policy):
    reply = server.request("PUT", f"{POLICIES}/{path}", json=policy)
    assert reply.status == 200, reply
    return reply.json()


def explain(server, box, url, **kw):
    reply = server.get(f"{BOXES}/{box}/egress/explain?url={url}", **kw)
    assert reply.status == 200, reply
    return reply.json()


def verdict(server, box, url):
    said = explain(server, box, url)
    return said["verdict"], said["why"], said["rule"], said["level"]


def test_nothing_is_allowed_unless_somebody_says_so(server, make):
    box = make()
    shown = server.get(f"{BOXES}/{box}/egress").json()
    assert shown["mode"] == "deny" and shown["mode_level"] is None and shown["rules"] == [] and shown["error"] is None
    assert verdict(server, box, "https://example.org/") == ("deny", "no_rule", None, None)
    assert verdict(server, box, "8.8.8.8:53") == ("deny", "address", None, None)
    assert verdict(server, box, "169.254.169.254:80") == ("deny", "class", None, None)


def test_layers_add_up_and_deny_wins(server, make):
    put(server, "node", deny=["evil.test"], max_bytes=1000)
    put(server, "tenant", allow=[".tenant.test", "evil.test"], packs=["debian"])
    put(server, "projects/shop", allow=["shop.test:8443"], mode="ask", max_bytes=5000)
    box = make(egress={"allow": ["own.test"], "deny": ["bad.tenant.test"], "project": "shop", "max_connections": 7})
    assert verdict(server, box, "https://own.test/x") == ("allow", "rule", "own.test", "sandbox")
    assert verdict(server, box, "a.tenant.test") == ("allow", "rule", ".tenant.test", "tenant")
    assert verdict(server, box, "bad.tenant.test") == ("deny", "rule", "bad.tenant.test", "sandbox")
    assert verdict(server, box, "evil.test") == ("deny", "rule", "evil.test", "node")
    assert verdict(server, box, "shop.test:8443") == ("allow", "rule", "shop.test:8443", "project")
    assert verdict(server, box, "shop.test") == ("ask", "port", "shop.test:8443", "project")
    assert verdict(server, box, "else.test")[0] == "ask"
    said = explain(server, box, "x.debian.org")
    assert (said["verdict"], said["pack"], said["level"]) == ("allow", "debian", "tenant")
    shown = server.get(f"{BOXES}/{box}/egress").json()
    assert (shown["mode"], shown["mode_level"], shown["project"]) == ("ask", "project", "shop")
    assert (shown["max_bytes"], shown["max_connections"]) == (1000, 7)
    assert {"list": "deny", "rule": "evil.test", "level": "node", "pack": None} in shown["rules"]
    # changes count at once, whoever's layer it is
    put(server, "node", deny=["own.test"])
    assert verdict(server, box, "own.test")[0] == "deny"
    assert verdict(server, box, "evil.test") == ("allow", "rule", "evil.test", "tenant")
    put(server, "node", allow=["n.test"], locked=True)
    assert verdict(server, box, "own.test") == ("deny", "no_rule", None, None), "a locked layer leaves nothing inside"
    assert verdict(server, box, "n.test")[0] == "allow"
    other = make()
    assert verdict(server, other, "shop.test:8443")[0] == "deny"


def test_a_layer_has_versions(server, make):
    first = put(server, "tenant", allow=["a.test"])
    number = first["policy"]["version"]
    stale = server.request("PUT", f"{POLICIES}/tenant", json={"allow": [], "version": number + 5})
    assert stale.status == 409, stale
    patched = server.request("PATCH", f"{POLICIES}/tenant", json={"deny": ["b.test"], "version": number})
    assert patched.status == 200 and patched.json()["policy"]["version"] == number + 1
    assert patched.json()["policy"]["allow"] == ["a.test"], "what was not named stays"
    assert server.request("DELETE", f"{POLICIES}/tenant").json()["policy"]["version"] == number + 2
    box = make(egress={"allow": ["a.test"]})
    own = server.get(f"{BOXES}/{box}").json()["egress"]
    assert own["version"] == 1
    assert server.request("PATCH", f"{BOXES}/{box}/egress", json={"version": 9, "mode": "ask"}).status == 409
    changed = server.request("PATCH", f"{BOXES}/{box}/egress", json={"version": 1, "mode": "ask"})
    assert changed.status == 200 and changed.json()["policy"]["version"] == 2
    assert changed.json()["policy"]["allow"] == ["a.test"]
    assert server.get(f"{BOXES}/{box}/egress").json()["mode"] == "ask"
    replaced = server.request("PUT", f"{BOXES}/{box}/egress", json={"deny": ["c.test"]})
    assert replaced.json()["policy"]["allow"] == [] and replaced.json()["policy"]["mode"] is None
    audit = server.get("/api/v1/audit?limit=1000").json()["items"]
    assert number in [a["detail"]["version"] for a in audit if a["action"] == "egress.tenant.put"]
    assert [a for a in audit if a["action"] == "egress.sandbox.change" and a["object"] == f"sandbox/{box}"]


def test_one_rule_for_whom_it_is_meant(server, make):
    put(server, "projects/shop", deny=["x.test"])
    box, lonely = make(egress={"project": "shop"}), make()
    add = lambda who, **wish: server.post(f"{BOXES}/{who}/egress/rules", wish)
    assert add(box, rule="A.Test:443").json()["policy"]["allow"] == ["a.test:443"]
    assert verdict(server, box, "a.test")[3] == "sandbox" and verdict(server, lonely, "a.test")[0] == "deny"
    assert add(box, rule="x.test", level="project").json()["policy"]["deny"] == [], "the opposite is taken away"
    assert verdict(server, box, "x.test") == ("allow", "rule", "x.test", "project")
    assert add(lonely, rule="y.test", level="project").status == 400
    for rule, why in (("127.0.0.1", "loopback addresses are never reached"), ("169.254.169.254:80", "never reached"),
                      ("https://api.test/v1", "write the host alone: api.test"), ("a.test/raw", "follows a port")):
        refused = add(box, rule=rule)
        assert refused.status == 400 and why in refused.json()["error"]["message"], refused
    assert add(box, rule="127.0.0.1", verdict="deny").json()["policy"]["deny"] == ["127.0.0.1"], "no harm in that"
    assert add(box, rule="t.test", level="tenant").status == 200
    assert verdict(server, lonely, "t.test") == ("allow", "rule", "t.test", "tenant")
    assert add(box, rule="t.test", level="node", verdict="deny").status == 200
    assert verdict(server, lonely, "t.test") == ("deny", "rule", "t.test", "node")
    assert add(box, rule="no such rule!").status == 400


def test_packs_are_listed_and_added_to(server, make):
    listed = {p["name"]: p for p in server.get(PACKS).json()["items"]}
    for name in ("python", "node", "rust", "go", "debian", "github", "gitlab", "anthropic", "openai", "huggingface"):
        assert listed[name]["built_in"] and listed[name]["rules"]
    box = make(egress={"packs": ["debian"]})
    assert verdict(server, box, "mirror.test")[0] == "deny"
    assert server.request("PUT", f"{PACKS}/debian", json={"rules": ["mirror.test"]}).status == 200
    assert verdict(server, box, "mirror.test") == ("allow", "rule", "mirror.test", "sandbox")
    assert verdict(server, box, "a.debian.org")[0] == "allow", "what is built in stays"
    assert server.delete(f"{PACKS}/debian").status == 204
    assert verdict(server, box, "mirror.test")[0] == "deny"
    assert server.delete(f"{PACKS}/debian").status == 404
    assert "egress.packs[0]" in json.dumps(server.post(BOXES, {"egress": {"packs": ["mine"]}}).json())
    assert server.request("PUT", f"{PACKS}/mine", json={"rules": ["m.test"], "help": "ours"}).json()["help"] == "ours"
    mine = make(egress={"packs": ["mine"]})
    assert explain(server, mine, "m.test")["pack"] == "mine"
    assert server.delete(f"{PACKS}/mine").status == 204


def test_who_may_say_what(server, make):
    agent = server.new_token("agent")["token"]
    viewer = server.new_token("viewer")["token"]
    for wish in ({"allow": ["a.test"]}, {"packs": ["python"]}, {"mode": "open"}, {"mode": "ask"}, {"project": "shop"},
                 {"intercept": ["a.test"]}, {"unchecked": ["a.test"]}):
        assert server.post(BOXES, {"egress": wish}, token=agent).status == 403, wish
        assert server.request("PUT", "/api/v1/templates/sneaky", json={"egress": wish}, token=agent).status == 403, wish
    box = make(token=agent, egress={"deny": ["a.test"], "mode": "deny", "max_bytes": 5})
    for method, path, body in (("PATCH", f"{BOXES}/{box}/egress", {"mode": "ask"}),
                               ("PUT", f"{BOXES}/{box}/egress", {}),
                               ("PATCH", f"{BOXES}/{box}", {"egress": {}}),
                               ("POST", f"{BOXES}/{box}/egress/rules", {"rule": "a.test"}),
                               ("PUT", f"{POLICIES}/tenant", {}), ("PUT", f"{POLICIES}/node", {}),
                               ("DELETE", f"{POLICIES}/projects/shop", None),
                               ("PUT", f"{PACKS}/mine", {"rules": ["a.test"]})):
        assert server.request(method, path, json=body, token=agent).status == 403, (method, path)
        assert server.request(method, path, json=body, token=viewer).status == 403, (method, path)
    assert server.get(f"{BOXES}/{box}/egress", token=agent).status == 200
    # addresses are for operators of the whole server
    theirs = server.new_token("admin", tenant="walled-egress")["token"]
    assert server.request("PUT", f"{POLICIES}/tenant", json={"allow": ["10.0.0.0/8"]}, token=theirs).status == 403
    assert server.request("PUT", f"{POLICIES}/node", json={}, token=theirs).status == 403
    assert server.request("PUT", f"{PACKS}/mine", json={"rules": ["10.0.0.1"]}, token=theirs).status == 403
    assert server.request("PUT", f"{POLICIES}/tenant", json={"deny": ["10.0.0.0/8"], "allow": ["t.test"]},
                          token=theirs).status == 200
    assert put(server, "tenant", allow=["10.0.0.0/8:*"])["policy"]["allow"] == ["10.0.0.0/8:*"]
    assert verdict(server, box, "10.1.2.3:22") == ("allow", "rule", "10.0.0.0/8:*", "tenant")
    assert server.get(POLICIES, token=theirs).json()["items"][-1]["policy"]["allow"] == ["t.test"]
    assert server.get(f"{BOXES}/{box}/egress", token=theirs).status == 404


def test_every_bad_rule_is_named(server):
    for field, value in (("allow", ["a..b"]), ("allow", ["ok.test", "127.1"]), ("deny", ["*"]),
                         ("allow", ["a.test TRACE"]), ("allow", ["127.0.0.1"]), ("allow", ["ok.test", "[::1]:80"]),
                         ("allow", ["https://ok.test/"]),
                         ("intercept", ["a.test:22/raw"]), ("deny", ["a.test:22/raw"]),
                         ("intercept", ["10.0.0.1"]), ("unchecked", ["a.test GET"]),
                         ("packs", ["No"]),
                         ("mode", "closed"), ("project", "No!"), ("allow", ["x" * 641]), ("max_bytes", -1),
                         ("allow", ["r%d.test" % i for i in range(1001)])):
        reply = server.post(BOXES, {"egress": {field: value}})
        assert reply.status == 400 and field in json.dumps(reply.json()), (field, reply)
    fits = ["r%d.test" % i for i in range(1000)]
    assert server.request("PUT", f"{POLICIES}/tenant", json={"allow": fits}).status == 200
    # one layer more than fits together: what was asked for is refused, and nothing is lost
    box = server.post(BOXES, {"storage": "memory", "ttl_ms": 60000}).json()["id"]
    more = server.request("PUT", f"{BOXES}/{box}/egress", json={"allow": ["s%d.test" % i for i in range(201)]})
    assert more.status == 413 or more.status == 400, more
    assert verdict(server, box, "r999.test")[0] == "allow"
    most = {"allow": ["s%d.test" % i for i in range(200)]}
    assert server.request("PUT", f"{BOXES}/{box}/egress", json=most).status == 200
    # and a layer outside that grows too far closes everything, and says why
    assert server.request("PUT", f"{POLICIES}/node", json={"allow": ["one.test"]}).status == 200
    shown = server.get(f"{BOXES}/{box}/egress").json()
    assert "1200" in shown["error"] and shown["rules"] == []
    assert verdict(server, box, "r999.test")[0] == "deny"
    for path in ("node", "tenant"):
        assert server.delete(f"{POLICIES}/{path}").status == 200
    assert verdict(server, box, "s1.test")[0] == "allow"
    assert server.delete(f"{BOXES}/{box}").status == 200


def test_it_stays_with_restarts_forks_templates(server, make):
    put(server, "tenant", allow=["t.test"], mode="ask")
    assert server.request("PUT", f"{PACKS}/mine", json={"rules": ["m.test"]}).status == 200
    spec = {"egress": {"deny": ["d.test"], "packs": ["mine"]}}
    assert server.request("PUT", "/api/v1/templates/netted", json=spec).status == 200
    box = make(template="netted")
    own = server.get(f"{BOXES}/{box}").json()["egress"]
    assert own["deny"] == ["d.test"] and own["packs"] == ["mine"]
    server.kill9_api()
    server.wait_ready()
    assert server.get(f"{BOXES}/{box}").json()["egress"] == own
    assert verdict(server, box, "t.test")[0] == "allow" and verdict(server, box, "d.test")[0] == "deny"
    assert explain(server, box, "m.test")["pack"] == "mine"
    assert server.get(f"{POLICIES}/tenant").json()["policy"]["mode"] == "ask"
    assert server.delete("/api/v1/templates/netted").status == 200
    assert server.delete(f"{PACKS}/mine").status == 204


def test_a_fork_keeps_what_was_denied(server, make):
    reply = server.post(BOXES, {"ttl_ms": 600000, "storage": "disk",
                                "egress": {"deny": ["d.test"], "allow": ["a.test"]}})
    if reply.status != 201:
        pytest.skip("no disks here")
    box = reply.json()["id"]
    fork = server.post(f"{BOXES}/{box}/fork", {}).json()["id"]
    assert verdict(server, fork, "d.test")[1] == "rule" and verdict(server, fork, "a.test")[0] == "allow"
    for one in (box, fork):
        assert server.delete(f"{BOXES}/{one}").status == 200


def test_requests_are_explained_where_they_are_seen(server, make):
    box = make(egress={"allow": ["r.test GET /v1"], "deny": ["p.test DELETE"], "mode": "open"})
    assert explain(server, box, "http://r.test/v1/x")["verdict"] == "allow"
    assert server.request("PATCH", f"{BOXES}/{box}/egress", json={"mode": "deny"}).status == 200
    assert verdict(server, box, "http://r.test/v1/x")[:2] == ("allow", "rule")
    assert verdict(server, box, "http://r.test/v2")[:2] == ("deny", "request")
    assert verdict(server, box, "https://r.test/v1/x")[:2] == ("deny", "unseen")
    assert server.request("PATCH", f"{BOXES}/{box}/egress", json={"intercept": ["r.test"]}).status == 200
    assert verdict(server, box, "https://r.test/v1/x")[:2] == ("allow", "rule")
    for bad in ("", "ftp://a/", "http://u@a/", "http://127.1/", "a:0", "http://a%20b/"):
        assert server.get(f"{BOXES}/{box}/egress/explain?url={bad}").status == 400, bad
    assert server.get(f"{BOXES}/{box}/egress/explain").status == 400


def test_the_commands(server, make):
    box = make(name="webby")
    out = lambda *args: server.cli(*args, check=True).stdout
    assert "no rule allows this host" in out("egress", "explain", "webby", "https://a.test/")
    assert "sandbox" in out("egress", "allow", "webby", "a.test")
    assert "allowed: by the rule a.test (sandbox)" in out("egress", "explain", "webby", "https://a.test/")
    out("egress", "deny", "webby", "a.test", "--for", "tenant")
    assert "denied: by the rule a.test (tenant)" in out("egress", "explain", "webby", "a.test")
    out("egress", "set", "--tenant", "--deny", "", "--pack", "python", "--mode", "ask")
    shown = out("egress", "show", "webby")
    assert "python" in shown and "ask" in shown and ".pypi.org" in shown
    assert "tenant" in out("egress", "show")
    assert "debian" in out("egress", "packs")
    out("egress", "pack", "mine", "m.test", "--about", "ours")
    assert "m.test" in out("egress", "packs")
    out("egress", "pack", "mine", "--rm")
    assert server.cli("egress", "set", "webby", "--tenant", "--mode", "ask").returncode == 64
    assert server.cli("egress", "set", "webby").returncode == 64
    assert server.cli("egress", "pack", "mine").returncode == 64
    made = json.loads(out("create", "--allow", "b.test", "--deny", "c.test", "--pack", "go", "--egress-mode", "ask",
                          "--project", "shop", "--storage", "memory", "--ttl", "5m", "--json"))
    assert made["egress"]["allow"] == ["b.test"] and made["egress"]["deny"] == ["c.test"]
    assert made["egress"]["packs"] == ["go"] and made["egress"]["mode"] == "ask" and made["egress"]["project"] == "shop"
    out("rm", made["id"])
