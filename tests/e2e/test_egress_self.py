"""http://atoll.internal/ as a program inside sees it: who it is, what it may reach, and how it asks for more."""
import json
import os
import time

import pytest
from harness import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, ASKS = "/api/v1/sandboxes", "/api/v1/asks"
INSIDE = r'''
import http.client, json, sys
results = []
for method, path, body in json.load(sys.stdin):
    conn = http.client.HTTPConnection("198.18.0.1", 80, timeout=20)
    conn.request(method, path, body if isinstance(body, (str, type(None))) else json.dumps(body),
                 {"Host": "atoll.internal"})
    reply = conn.getresponse()
    results.append([reply.status, reply.getheader("Content-Type"), reply.read().decode()])
    conn.close()
print(json.dumps(results))
'''


@pytest.fixture
def make(server):
    made = []

    def create(**egress):
        reply = server.post(BOXES, {"ttl_ms": 600000, "storage": "memory", "egress": egress})
        assert reply.status == 201, reply
        made.append(reply.json()["id"])
        return reply.json()["id"]

    yield create
    for one in made:
        assert server.delete(f"{BOXES}/{one}").status in (200, 404)


def ask(server, box, *requests):
    """[(status, document)] of requests made one after the other by a program inside."""
    done = server.post(f"{BOXES}/{box}/execs?wait=60000",
                       {"argv": ["python3", "-c", INSIDE], "stdin": json.dumps(requests)}, timeout=90)
    assert done.status == 201 and done.json()["exit_code"] == 0, done
    got = json.loads(done.json()["output"])
    assert {kind for _, kind, _ in got} == {"application/json"}
    return [(status, json.loads(text)) for status, _, text in got]


def one(server, box, method, path, body=None):
    return ask(server, box, (method, path, body))[0]


def test_who_am_i_and_what_may_i_reach(server, make):
    box = make(allow=["a.example", "*.b.example:8443"], deny=["no.b.example"], max_bytes=5000, max_connections=9)
    (status, me), (_, policy) = ask(server, box, ("GET", "/", None), ("GET", "/policy", None))
    assert status == 200 and me["sandbox"] == box and me["egress_mode"] == "deny"
    assert me["policy_version"] == server.get(f"{BOXES}/{box}/egress").json()["version"]
    assert (policy["mode"], policy["max_bytes"], policy["max_connections"]) == ("deny", 5000, 9)
    assert [(r["list"], r["rule"], r["level"]) for r in policy["rules"] if r["level"] == "sandbox"] == [
        ("deny", "no.b.example", "sandbox"), ("allow", "a.example", "sandbox"),
        ("allow", "*.b.example:8443", "sandbox")]
    # That those before have ended is seen a moment later.
    want = {"bytes": {"allowed": 5000, "used": 0, "left": 5000}, "connections": {"allowed": 9, "used": 1, "left": 8}}
    wait_until(lambda: one(server, box, "GET", "/budget")[1] == want, 20, f"a budget of {want}")
    assert one(server, make(), "GET", "/budget")[1] == {
        "bytes": {"allowed": None, "used": 0, "left": None}, "connections": {"allowed": 2048, "used": 1, "left": 2047}}


def test_everything_else_is_not_there(server, make):
    box = make()
    for method, path, want in (("GET", "/x", 404), ("GET", "/api/v1/sandboxes", 404), ("GET", "/asks/../policy", 400),
                               ("GET", "/asks/nobody", 404), ("POST", "/", 405), ("DELETE", "/asks", 405),
                               ("PUT", "/policy", 405), ("GET", "/asks/ask00000000000000000000000000", 404)):
        status, said = one(server, box, method, path)
        assert status in (want, 404) if want == 400 else status == want, (method, path, status, said)
        assert said["error"]["code"] and said["error"]["message"], said


def test_bad_questions_are_named(server, make):
    box = make()
    bad = ["", "x", "[]", {}, {"host": 5}, {"host": "10.0.0.1"}, {"host": "127.1"}, {"host": "a b"},
           {"host": "a.example", "port": 0}, {"host": "a.example", "port": 65536}, {"host": "a.example", "port": "80"},
           {"host": "a.example", "reason": "x" * 256}, {"host": "a.example", "reason": "a\u001b[2Jb"}]
    for status, said in ask(server, box, *(("POST", "/asks", body) for body in bad)):
        assert status == 400 and said["error"]["code"] == "invalid", said
    status, said = one(server, box, "POST", "/asks", "x" * 4097)
    assert status == 413, said
    status, said = one(server, box, "POST", "/asks", json.dumps({"host": "a.example"}).ljust(4096))
    assert status == 202, said
    assert one(server, box, "GET", "/asks")[1]["items"][0]["state"] == "pending"


def test_a_program_asks_and_an_operator_allows(server, make):
    box, other = make(), make()
    agent = server.new_token("agent")["token"]
    with server.sse("/api/v1/events?type=ask.*") as stream:
        status, mine = one(server, box, "POST", "/asks", {"host": "API.a.example", "port": 8443, "reason": "to build"})
        assert status == 202 and mine["state"] == "pending", mine
        assert "ask.created" in str(stream.next(10))
    assert mine["action"] == {"do": "allow", "sandbox": box, "host": "api.a.example", "port": 8443,
                              "reason": "to build"}
    again = one(server, box, "POST", "/asks", {"host": "api.a.example", "port": 8443, "reason": "to build"})
    assert again[1]["id"] == mine["id"], "the same question is one"
    shown = server.get(f"{ASKS}/{mine['id']}").json()
    assert (shown["kind"], shown["sandbox"], shown["action"]) == ("rule", box, mine["action"])
    assert one(server, other, "GET", f"/asks/{mine['id']}")[0] == 404, "of another sandbox it is nobody's"
    assert one(server, other, "GET", "/asks")[1] == {"items": []}
    assert server.post(f"{ASKS}/{mine['id']}/decision", {"verdict": "allow"}, token=agent).status == 403
    assert server.post(f"{ASKS}/{mine['id']}/decision", {"verdict": "allow", "hash": "0" * 64}).status == 409
    own = server.get(f"{BOXES}/{box}").json()["egress"]
    assert not own or own["allow"] == [], "a decision that failed adds no rule"
    done = server.post(f"{ASKS}/{mine['id']}/decision", {"verdict": "allow", "hash": shown["hash"], "note": "fine"})
    assert done.status == 200 and done.json()["state"] == "allowed", done
    assert server.get(f"{BOXES}/{box}").json()["egress"]["allow"] == ["api.a.example:8443"]
    assert server.get(f"{BOXES}/{other}").json()["egress"] in (None, {}) or \
        not server.get(f"{BOXES}/{other}").json()["egress"]["allow"]
    status, now = one(server, box, "GET", f"/asks/{mine['id']}")
    assert status == 200 and (now["state"], now["note"]) == ("allowed", "fine") and now["decided_ms"] > 0
    rules = wait_until(lambda: [r["rule"] for r in one(server, box, "GET", "/policy")[1]["rules"]], 10, "the rule")
    assert rules == ["api.a.example:8443"], "the sandbox sees it"
    assert server.post(f"{ASKS}/{mine['id']}/decision", {"verdict": "allow"}).status == 200, "the same again"
    assert server.post(f"{ASKS}/{mine['id']}/decision", {"verdict": "deny"}).status == 409
    audit = server.get("/api/v1/audit?limit=1000").json()["items"]
    row = [a for a in audit if a["action"] == "ask.decide" and a["object"] == f"ask/{mine['id']}" and a["detail"]]
    assert row and row[-1]["detail"]["host"] == "api.a.example"


def test_a_denial_adds_nothing_and_stands(server, make):
    box = make()
    mine = one(server, box, "POST", "/asks", {"host": "b.example"})[1]
    assert server.post(f"{ASKS}/{mine['id']}/decision", {"verdict": "deny", "note": "no"}).json()["state"] == "denied"
    again = one(server, box, "POST", "/asks", {"host": "b.example"})
    assert again[1]["id"] == mine["id"] and again[1]["state"] == "denied", "nobody is asked again"
    assert one(server, box, "GET", "/policy")[1]["rules"] == []


def test_questions_outlive_the_server_and_are_limited(start_server):
    server = start_server()
    box = server.post(BOXES, {"ttl_ms": 600000, "storage": "memory"}).json()["id"]
    made = []
    for first in range(0, 32, 8):
        time.sleep(0.2)
        made += ask(server, box, *(("POST", "/asks", {"host": f"h{i}.example"}) for i in range(first, first + 8)))
    assert [status for status, _ in made] == [202] * 32
    time.sleep(1)
    status, said = one(server, box, "POST", "/asks", {"host": "more.example"})
    assert (status, said["error"]["code"]) == (429, "too_many_requests") and "questions" in said["error"]["message"]
    assert len(one(server, box, "GET", "/asks")[1]["items"]) == 32
    server.kill9_api()
    server.wait_ready()
    wait_until(lambda: server.get(f"{BOXES}/{box}/egress").json()["linked"], 20, "the egress process")
    done = server.post(f"{ASKS}/{made[3][1]['id']}/decision", {"verdict": "allow"})
    assert done.status == 200, done
    assert server.get(f"{BOXES}/{box}").json()["egress"]["allow"] == ["h3.example"], "also by another process"
    assert server.delete(f"{BOXES}/{box}").status == 200


def test_it_answers_only_so_often(server, make):
    got = ask(server, make(), *[("GET", "/budget", None)] * 400)
    assert [status for status, _ in got[:100]] == [200] * 100
    limited = [said for status, said in got if status == 429]
    assert limited and limited[0]["error"]["code"] == "too_many_requests"
