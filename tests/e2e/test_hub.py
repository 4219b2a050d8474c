"""The hub in one pass over each of its parts; what its clients rely on in detail is in other files."""
import concurrent.futures
import time

import harness
import pytest


@pytest.fixture(scope="module")
def hub():
    """A hub where nobody shows a credential."""
    server = harness.Server(env={"ATOLL_AUTH": "open", "ATOLL_HUB_STALE": "2s"})
    server.start()
    yield server
    server.stop()


def call(server, method, path, json=None, token=None, **kw):
    reply = server.request(method, path, json=json, token=token, **kw)
    return reply.status, (reply.json() if reply.body else None)


def agent(hub, name, **fields):
    status, made = call(hub, "POST", "/agents/register", {"name": name, **fields})
    assert status == 201, made
    return name


def project(hub, creator="maker"):
    return call(hub, "POST", "/projects", {"name": "a project", "creator": creator})[1]["id"]


def task(hub, where, **fields):
    status, made = call(hub, "POST", f"/projects/{where}/tasks", {"title": "a task", **fields})
    assert status == 201, made
    return f"/projects/{where}/tasks/{made['id']}"


def box_state(hub, box):
    return hub.get(f"/api/v1/sandboxes/{box}", token=None).json()["state"]


def form(name, data, uploader=None):
    body = (b'--XX\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n' % (name, data))
    if uploader:
        body += b'--XX\r\nContent-Disposition: form-data; name="uploader"\r\n\r\n%s\r\n' % uploader
    return {"body": body + b"--XX--\r\n", "headers": {"Content-Type": "multipart/form-data; boundary=XX"}}


def test_a_hundred_claim_and_one_has_it(hub):
    where = project(hub)
    path = task(hub, where)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        got = list(pool.map(lambda i: call(hub, "POST", path + "/claim", {"agent": f"racer-{i}"})[0], range(100)))
    assert sorted(set(got)) == [200, 409] and got.count(200) == 1


def test_errors_are_the_hubs_own(hub):
    assert call(hub, "GET", "/agents/a/b/c") == (404, {"error": "no such path: /agents/a/b/c"})
    status, said = call(hub, "PUT", "/agents")
    assert status == 405 and isinstance(said["error"], str)
    status, said = call(hub, "POST", "/messages/send", body=b"x" * 2_000_000)
    assert status == 413 and isinstance(said["error"], str)
    for body in (b"null", b"[]", b"7", b"{", b'"x"'):
        status, said = call(hub, "POST", "/agents/register", body=body)
        assert status == 400 and isinstance(said["error"], str), body
    assert call(hub, "POST", "/agents/register") == (400, {"error": "name required"})
    assert call(hub, "POST", "/messages/send", {"from": "a"}) == (400, {"error": "from and to required"})
    status, said = call(hub, "POST", "/messages/send", {"from": "a", "to": "b", "content": 7})
    assert status == 400 and said["error"].startswith("content: ")
    plain = call(hub, "POST", "/agents/register", body=b'{"name": "plain"}', headers={"Content-Type": "text/plain"})
    assert plain[0] == 201


def test_mail_is_kept_across_a_kill(hub):
    agent(hub, "writer"), agent(hub, "reader")
    status, sent = call(hub, "POST", "/messages/send", {"from": "writer", "to": "reader", "content": "hello"})
    assert status == 200
    hub.kill9_api()
    hub.wait_ready()
    unread = call(hub, "GET", "/messages/reader?unread=true")[1]
    assert [m["id"] for m in unread] == [sent["id"]]
    assert call(hub, "POST", f"/messages/{sent['id']}/ack")[0] == 200
    assert call(hub, "GET", "/messages/reader?unread=true")[1] == []
    assert any(a["name"] == "reader" for a in call(hub, "GET", "/agents")[1])


def test_the_sixty_first_message_waits(hub):
    agent(hub, "chatty")
    sent = [call(hub, "POST", "/messages/send", {"from": "chatty", "to": "x"})[0] for _ in range(60)]
    assert set(sent) == {200}
    reply = hub.request("POST", "/messages/send", json={"from": "chatty", "to": "x"}, token=None)
    assert reply.status == 429 and int(reply.headers["retry-after"]) >= 1
    assert call(hub, "POST", "/agents/chatty/heartbeat")[0] == 200, "heartbeats have their own"


def test_a_silent_agent_goes_offline_and_comes_back(hub):
    agent(hub, "quiet")
    with hub.sse("/events?agent=quiet&type=agent_offline,agent_online", token=None) as events:
        assert events.next(20 * harness.SLOW)["event"] == "agent_offline"
        assert call(hub, "GET", "/agents/quiet")[1]["status"] == "offline"
        assert call(hub, "POST", "/agents/quiet/heartbeat")[1]["agent_status"] == "online"
        assert events.next(20 * harness.SLOW)["event"] == "agent_online"


def test_an_advisory_claim_is_decided_by_people_in_either_place(hub):
    agent(hub, "careful", autonomy_mode="advisory")
    where = project(hub)
    first, second = task(hub, where), task(hub, where)
    status, said = call(hub, "POST", first + "/claim", {"agent": "careful"})
    assert status == 202 and said["status"] == "proposed"
    assert call(hub, "POST", f"/proposals/{said['proposal_id']}/approve", {"note": "go"})[1]["state"] == "approved"
    assert call(hub, "GET", first)[1]["claimed_by"] == "careful"
    status, said = call(hub, "POST", second + "/claim", {"agent": "careful"})
    assert call(hub, "POST", second + "/assign", {"agent": "other"})[0] == 200
    assert call(hub, "POST", f"/proposals/{said['proposal_id']}/approve")[0] == 409, "somebody else has it"
    assert call(hub, "GET", f"/proposals/{said['proposal_id']}")[1]["state"] == "pending", "and it stays undecided"
    asks = hub.get("/api/v1/asks?state=pending", token=None).json()["items"]
    assert said["proposal_id"] in [a["id"] for a in asks if a["kind"] == "claim"]
    reply = hub.post(f"/api/v1/asks/{said['proposal_id']}/decision", json={"verdict": "deny"}, token=None)
    assert reply.status == 200
    assert call(hub, "GET", f"/proposals/{said['proposal_id']}")[1]["state"] == "rejected"


def test_a_manual_agent_claims_nothing_and_the_default_covers_who_comes_later(hub):
    where = project(hub)
    path = task(hub, where)
    assert call(hub, "POST", "/autonomy/set-mode", {"mode": "manual"})[0] == 200
    try:
        agent(hub, "newcomer")
        assert call(hub, "POST", path + "/claim", {"agent": "newcomer"})[0] == 403
    finally:
        call(hub, "POST", "/autonomy/set-mode", {})
    assert call(hub, "POST", path + "/claim", {"agent": "newcomer"})[0] == 200


def test_a_revoked_agent_stops_at_once_and_its_sandbox_with_it(hub):
    agent(hub, "rogue")
    box = harness.make_box(hub, labels={"agent": "rogue"})
    with hub.sse("/events?agent=rogue", token=None) as events:
        status, said = call(hub, "POST", "/agents/rogue/revoke", {"reason": "enough"})
        assert status == 200 and said["frozen"] == [box]
        assert events.next(10)["event"] == "agent_revoked"
    harness.wait_until(lambda: box_state(hub, box) == "paused", 20, "frozen")
    assert call(hub, "POST", "/messages/send", {"from": "rogue", "to": "x"})[0] == 409
    beat = call(hub, "POST", "/agents/rogue/heartbeat")[1]
    assert beat["pending_revocation"]["reason"] == "enough" and beat["agent_status"] == "revoked"
    assert call(hub, "POST", "/agents/rogue/revocation/ack", {"revocation_id": said["revocation_id"]})[0] == 200
    harness.wait_until(lambda: box_state(hub, box) == "running", 20, "thawed")
    assert call(hub, "POST", "/messages/send", {"from": "rogue", "to": "x"})[0] == 200
    assert call(hub, "GET", "/revocation/history")[1][-1]["acknowledged"] is True
    harness.delete_boxes(hub)


def test_files_leases_and_the_board(hub):
    where = project(hub)
    status, made = call(hub, "POST", f"/projects/{where}/files", **form(b"d/e.txt", b"one", b"maker"))
    assert (status, made["version"], made["size"]) == (200, 1, 3)
    call(hub, "POST", f"/projects/{where}/files", **form(b"d/e.txt", b"two"))
    assert hub.get(f"/projects/{where}/files/d/e.txt", token=None).body == b"two"
    assert hub.get(f"/projects/{where}/files/d/e.txt?version=1", token=None).body == b"one"
    for name in (b"/etc/passwd", b"../x", b"a..b", b"a b", b""):
        assert call(hub, "POST", f"/projects/{where}/files", **form(name, b"x")) == (400, {"error": "Invalid filename"})
    assert call(hub, "POST", f"/projects/{where}/files", **form(b"big", b"x" * 10485760))[0] == 200
    assert call(hub, "POST", f"/projects/{where}/files", **form(b"big", b"x" * 10485761))[0] == 400
    status, lease = call(hub, "POST", f"/projects/{where}/leases", {"agent": "maker", "paths": ["src"]})
    assert status == 201
    status, said = call(hub, "POST", f"/projects/{where}/leases", {"agent": "other", "paths": ["src/a.c"]})
    assert status == 409 and said["holder"]["id"] == lease["id"] and "maker" in said["error"]
    board = call(hub, "GET", f"/projects/{where}/board?lanes=priority")[1]
    assert [x["id"] for x in board["leases"]] == [lease["id"]]
    assert [x["lane"] for x in board["lanes"]] == ["P0", "P1", "P2", "P3"]
    assert call(hub, "DELETE", f"/projects/{where}/leases/{lease['id']}")[0] == 200
    status, short = call(hub, "POST", f"/projects/{where}/leases", {"agent": "maker", "paths": ["x"], "ttl_seconds": 1})
    with hub.sse(f"/events?project={where}&type=lease_released", token=None) as events:
        assert '"why":"expired"' in events.next(20 * harness.SLOW)["data"]


def test_an_agents_token_acts_as_itself_alone(start_server):
    server = start_server()
    alice = server.new_token("agent", name="alice")["token"]
    bob = server.new_token("agent", name="bob")["token"]
    assert call(server, "POST", "/agents/register", {"name": "alice"}, token=alice)[0] == 201
    assert call(server, "POST", "/agents/register", {"name": "bob"}, token=bob)[0] == 201
    assert call(server, "POST", "/agents/register", {"name": "bob"}, token=alice)[0] == 403
    assert call(server, "POST", "/messages/send", {"from": "bob", "to": "alice"}, token=alice)[0] == 403
    status, sent = call(server, "POST", "/messages/send", {"from": "alice", "to": "bob"}, token=alice)
    assert status == 200
    assert call(server, "GET", "/messages/bob", token=alice)[0] == 403
    assert call(server, "POST", f"/messages/{sent['id']}/ack", token=alice)[0] == 403
    assert call(server, "POST", "/agents/bob/heartbeat", token=alice)[0] == 403
    assert call(server, "POST", "/agents/bob/pause", token=alice)[0] == 403
    assert call(server, "GET", "/agents")[0] == 401
    log = call(server, "GET", "/audit/log", token=server.token)[1]
    assert [x["outcome"] for x in log if x["action"] == "send_message"] == ["forbidden", "ok"]
    assert server.get("/api/v1/audit/verify").json()["ok"]


def test_the_stream_begins_at_once_and_replays(hub):
    before = time.time()
    with hub.sse("/events?hub=true", token=None):
        assert time.time() - before < 5 * harness.SLOW
    agent(hub, "seen")
    with hub.sse("/events?since=0&agent=seen", token=None) as events:
        first = events.next(10)
        assert first["event"] == "agent_registered" and '"name":"seen"' in first["data"]
