"""What agentbox calls allowed_hosts is what the session's sandbox may reach."""
import os

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, SERVICE = "/api/v1/sandboxes", "/sandbox.v1.SandboxService"


def verdict(server, box, url):
    return server.get(f"{BOXES}/{box}/egress/explain?url={url}").json()["verdict"]


@pytest.fixture
def make(server):
    made = []

    def create(name, token="admin", **wish):
        reply = server.post(f"{SERVICE}/CreateSession", {"sessionId": name, **wish}, token=token)
        assert reply.status == 200, reply
        made.append(name)
        return reply.json()["session"]

    yield create
    for name in made:
        assert server.post(f"{SERVICE}/DestroySession", {"sessionId": name}).status == 200


def test_hosts_of_a_session_are_its_rules(server, make):
    hosts = ["a.example", "*.b.example", "c.example:8443", " D.example "]
    told = make("hosts-one", allowedHosts=hosts)
    assert told["allowedHosts"] == hosts, "told as they were said"
    own = server.get(f"{BOXES}/hosts-one").json()["egress"]
    assert own["allow"] == ["a.example", ".b.example", "c.example:8443", "D.example"] and own["mode"] is None
    for url, want in (("https://a.example/", "allow"), ("http://a.example/", "allow"), ("a.example:22", "deny"),
                      ("x.a.example", "deny"), ("b.example", "allow"), ("x.y.b.example", "allow"),
                      ("badb.example", "deny"),
                      ("c.example:8443", "allow"), ("c.example", "deny"), ("10.0.0.1:80", "deny"),
                      ("d.example", "allow"), ("any.pypi.org", "deny"), ("else.example", "deny")):
        assert verdict(server, "hosts-one", url) == want, url


@pytest.mark.parametrize("host", ["10.0.0.1", "no host!"])
def test_what_no_request_can_match_is_refused(server, host):
    reply = server.post(f"{SERVICE}/CreateSession", {"sessionId": "hosts-bad", "allowedHosts": ["a.example", host]})
    assert reply.status == 400 and reply.json()["message"].startswith('allowed_hosts[1] "'), reply


def test_without_hosts_it_has_agentboxes_own(server, make):
    make("hosts-two")
    for url in ("pypi.org", "files.pythonhosted.org", "any.npmjs.org", "github.com", "raw.githubusercontent.com",
                "objects.githubusercontent.com", "crates.io", "static.crates.io"):
        assert verdict(server, "hosts-two", f"https://{url}/") == "allow", url
    for url in ("example.org", "gist.github.com", "githubusercontent.com"):
        assert verdict(server, "hosts-two", f"https://{url}/") == "deny", url


def test_a_session_can_ask_for_no_hosts(server, make):
    agent = server.new_token("agent")["token"]
    for name, token in (("hosts-none", "admin"), ("hosts-none-too", agent)):
        told = make(name, token=token, noHosts=True)
        assert "allowedHosts" not in told or told["allowedHosts"] == []
        assert server.get(f"{BOXES}/{name}").json()["egress"]["mode"] == "deny"
        for url in ("any.pypi.org", "github.com", "example.org"):
            assert verdict(server, name, f"https://{url}/") == "deny", url
        pip = server.post(f"{SERVICE}/PipInstall", {"sessionId": name, "packages": ["x"]}).json()
        assert pip["exitCode"] == -1 and "pip install requires" in pip["stderr"], pip
    both = server.post(f"{SERVICE}/CreateSession", {"sessionId": "hosts-both", "noHosts": True, "allowedHosts": ["a"]})
    assert both.status == 400 and both.json()["code"] == "invalid_argument", both


def test_an_agent_cannot_allow_what_operators_do_not(server, make):
    agent = server.new_token("agent")["token"]
    told = make("hosts-three", token=agent, allowedHosts=["a.example"])
    assert told["allowedHosts"] == ["a.example"]
    assert verdict(server, "hosts-three", "a.example") == "deny"
    path, wish = f"{BOXES}/hosts-three/egress", {"allow": ["a.example"]}
    assert server.request("PATCH", path, json=wish, token=agent).status == 403
    assert server.request("PATCH", path, json=wish).status == 200
    assert verdict(server, "hosts-three", "a.example") == "allow"
