"""Who acts, and as whom (gap 1): tokens and signatures, no agent as another, no name taken over, people in charge."""
import hashlib
import hmac
import json
import secrets
import time

import pytest

import harness
from hub import Hub, unique


class World:
    """A server that wants credentials; two agents with tokens, and people of each role."""

    def __init__(self, server):
        self.server = server
        self.admin = Hub(server, "admin")
        self.operator, self.viewer = (Hub(server, server.new_token(role)["token"]) for role in ("operator", "viewer"))
        self.ada, self.eve = self.agent("ada"), self.agent("eve")

    def agent(self, prefix):
        made = self.server.new_token("agent", name=unique(prefix))
        hub = Hub(self.server, made["token"])
        hub.name = made["name"]
        hub.ok("POST", "/agents/register", {"name": hub.name, "type": "t"}, 201)
        return hub


@pytest.fixture(scope="module")
def world():
    server = harness.Server().start()
    yield World(server)
    server.stop()


@pytest.mark.parametrize("method, path", [
    ("GET", "/agents"), ("POST", "/agents/register"), ("POST", "/messages/send"), ("GET", "/messages/x"),
    ("GET", "/projects"), ("POST", "/projects"), ("GET", "/tasks"), ("GET", "/capabilities"), ("GET", "/events"),
    ("GET", "/audit/log"), ("GET", "/revocation/history"), ("POST", "/autonomy/set-mode"), ("GET", "/channels"),
    ("GET", "/proposals"), ("DELETE", "/agents/x"), ("POST", "/agents/x/heartbeat"), ("POST", "/agents/x/revoke")])
def test_nobody(world, method, path, peer):
    for token in (None, "atl_wrong"):
        reply = world.server.request(method, path, json={} if method == "POST" else None, token=token, source=peer)
        assert reply.status == 401 and reply.json()["error"], reply


def test_ping_needs_nobody(world):
    assert world.server.request("GET", "/ping", token=None).status == 200


def test_as_another(world):
    """Every route in which a name says who acts: as oneself it is done, as another it is 403."""
    ada, eve = world.ada, world.eve
    project = ada.ok("POST", "/projects", {"name": "p", "creator": ada.name}, 201)["id"]
    task = ada.task(project)
    ada.ok("POST", "/channels/common/join", {"agent": ada.name})
    cases = [
        ("POST", "/agents/register", {"name": ada.name}),
        ("POST", f"/agents/{ada.name}/heartbeat", None),
        ("POST", f"/agents/{ada.name}/checkpoint", {"state": "x"}),
        ("POST", f"/agents/{ada.name}/capabilities", {"tags": ["x"]}),
        ("POST", f"/agents/{ada.name}/autonomy", {"mode": "fully_autonomous"}),
        ("POST", f"/agents/{ada.name}/revocation/ack", {}),
        ("GET", f"/agents/{ada.name}/revocation", None),
        ("POST", "/messages/send", {"from": ada.name, "to": eve.name, "content": "as ada"}),
        ("GET", f"/messages/{ada.name}", None),
        ("POST", "/projects", {"name": "p", "creator": ada.name}),
        ("POST", f"/projects/{project}/join", {"agent": ada.name}),
        ("POST", f"/projects/{project}/tasks", {"title": "t", "created_by": ada.name}),
        ("POST", f"/projects/{project}/tasks/{task}/claim", {"agent": ada.name}),
        ("PATCH", f"/projects/{project}/tasks/{task}", {"status": "in_progress", "agent": ada.name}),
        ("POST", f"/projects/{project}/leases", {"agent": ada.name, "paths": ["x"]}),
        ("POST", "/channels/common/join", {"agent": ada.name}),
        ("POST", "/channels/all/send", {"from": ada.name, "content": "x"}),
        ("POST", "/channels/common/leave", {"agent": ada.name}),
        ("DELETE", f"/agents/{ada.name}", None),
    ]
    for method, path, body in cases:
        eve.refused(403, "", method, path, body)
    for method, path, body in cases:
        reply = ada.call(method, path, body)
        assert reply.status in (200, 201), (method, path, reply)
    ada.ok("POST", "/agents/register", {"name": ada.name}, 201)


def test_uploads_and_reviews_as_another(world):
    ada, eve = world.ada, world.eve
    project = ada.ok("POST", "/projects", {"name": "p", "creator": ada.name}, 201)["id"]
    assert eve.upload(project, "f", b"x", uploader=ada.name).status == 403
    assert eve.upload(project, "f", b"x").status == 200  # filled in
    assert ada.ok("GET", f"/projects/{project}/files")[0]["uploader"] == eve.name
    assert ada.call("DELETE", f"/projects/{project}/files/f").status == 403
    task = ada.task(project, required_reviewers=1)
    path = f"/projects/{project}/tasks/{task}"
    ada.claim(project, task, ada.name)
    world.operator.ok("POST", f"{path}/reviewers/{eve.name}")
    ada.move(project, task, "in_progress", "in_review")
    ada.refused(403, "", "POST", f"{path}/approve", {"reviewer": eve.name})
    ada.refused(403, "", "POST", f"{path}/approve", {})
    eve.ok("POST", f"{path}/approve", {})
    assert ada.move(project, task, "done")["status"] == "done"
    eve.refused(403, "", "DELETE", f"/projects/{project}")
    ada.ok("DELETE", f"/projects/{project}")


def test_tasks_of_others_are_not_moved(world):
    ada, eve = world.ada, world.eve
    project = world.operator.project()
    task = world.operator.task(project)
    ada.claim(project, task, ada.name)
    eve.refused(403, "", "PATCH", f"/projects/{project}/tasks/{task}", {"status": "in_progress"})
    found = ada.move(project, task, "in_progress")
    assert found["status"] == "in_progress"
    assert ada.ok("GET", f"/projects/{project}/tasks/{task}")["transitions"][-1]["by"] == ada.name  # filled in


def test_mail_of_others(world):
    ada, eve, third = world.ada, world.eve, world.agent("third")
    sent = ada.send(ada.name, eve.name, "secret")
    third.refused(403, "", "GET", f"/messages/{eve.name}")
    third.refused(403, "", "GET", f"/messages/history/{ada.name}/{eve.name}")
    third.refused(403, "", "POST", f"/messages/{sent['id']}/ack")
    ada.refused(403, "", "POST", f"/messages/{sent['id']}/ack")  # not by its sender either
    assert ada.ok("GET", f"/messages/history/{ada.name}/{eve.name}")[0]["content"] == "secret"
    assert world.viewer.inbox(eve.name)[-1]["delivered"] is False  # looking marks nothing
    assert eve.inbox(eve.name, unread=True)[-1]["content"] == "secret"
    eve.ack(sent["id"])


@pytest.mark.parametrize("method, path, body", [
    ("POST", "/agents/{eve}/pause", {}), ("POST", "/agents/{eve}/resume", None), ("POST", "/agents/{eve}/revoke", {}),
    ("POST", "/agents/{ada}/pause", {}), ("POST", "/agents/{ada}/resume", None), ("POST", "/agents/{ada}/revoke", {}),
    ("POST", "/autonomy/set-mode", {"mode": "fully_autonomous", "agent_type": "none"}),
    ("PATCH", "/projects/{p}/wip", {"status": "in_progress", "limit": 9}),
    ("POST", "/projects/{p}/tasks/{t}/assign", {"agent": "{eve}"}), ("GET", "/audit/log", None),
    ("POST", "/proposals/x/approve", {}), ("POST", "/proposals/x/reject", {})])
def test_only_people_steer(world, method, path, body):
    project = world.operator.project()
    names = {"ada": world.ada.name, "eve": world.eve.name, "p": project, "t": world.operator.task(project)}
    path = path.format(**names)
    body = {k: v.format(**names) if isinstance(v, str) else v for k, v in body.items()} if body is not None else None
    world.ada.refused(403, "", method, path, body)
    if path != "/audit/log":
        world.viewer.refused(403, "", method, path, body)
    reply = world.operator.call(method, path, body)
    assert reply.status == (404 if "proposals" in path else 200), reply
    if path.endswith(("pause", "revoke")):
        world.operator.ok("POST", path.rsplit("/", 1)[0] + "/resume")


def test_viewers_only_look(world):
    ada = world.ada
    for path in ("/agents", "/projects", "/capabilities", f"/messages/{ada.name}", "/messages/graph", "/channels"):
        assert world.viewer.call("GET", path).status == 200, path
    for method, path, body in (("POST", "/agents/register", {"name": unique()}),
                               ("POST", "/messages/send", {"from": ada.name, "to": ada.name}),
                               ("POST", "/projects", {"name": "p", "creator": "x"}),
                               ("POST", f"/agents/{ada.name}/heartbeat", None),
                               ("DELETE", f"/agents/{ada.name}", None)):
        world.viewer.refused(403, "", method, path, body)


def test_no_name_is_taken_over(world):
    ada, eve = world.ada, world.eve
    eve.refused(403, "", "POST", "/agents/register", {"name": ada.name})
    second = world.server.new_token("agent", name=unique("second"))
    Hub(world.server, second["token"]).refused(403, "", "POST", "/agents/register", {"name": ada.name})
    assert ada.heartbeat(ada.name)["status"] == "ok"


def test_an_agent_lowers_its_mode_and_never_raises_it(world):
    ada = world.agent("modest")
    path = f"/agents/{ada.name}/autonomy"
    ada.ok("POST", path, {"mode": "advisory"}), ada.ok("POST", path, {"mode": "manual"})
    for mode in ("advisory", "fully_autonomous"):
        ada.refused(403, "", "POST", path, {"mode": mode})
        ada.call("POST", "/agents/register", {"name": ada.name, "autonomy_mode": mode})
        assert ada.record(ada.name)["autonomy_mode"] == "manual"
    ada.ok("POST", "/agents/register", {"name": ada.name})
    assert ada.record(ada.name)["autonomy_mode"] == "manual"
    ada.refused(403, "", "DELETE", f"/agents/{ada.name}")  # nor by leaving and coming back
    world.operator.ok("POST", path, {"mode": "fully_autonomous"})
    assert ada.record(ada.name)["autonomy_mode"] == "fully_autonomous"


@pytest.mark.parametrize("how", ["pause", "revoke"])
def test_leaving_does_not_lift_what_people_did(world, how):
    ada = world.agent("held")
    world.operator.ok("POST", f"/agents/{ada.name}/{how}", {})
    ada.refused(409, "", "DELETE", f"/agents/{ada.name}")
    ada.ok("POST", "/agents/register", {"name": ada.name}, 201)
    ada.refused(409, "", "POST", "/messages/send", {"from": ada.name, "to": ada.name})
    world.operator.ok("POST", f"/agents/{ada.name}/resume")
    ada.ok("DELETE", f"/agents/{ada.name}")


# ---- signatures ----

class Signer:
    def __init__(self, server):
        self.server = server
        made = server.new_token("agent", name=unique("signer"), signing=True)
        self.name, self.id, self.token = made["name"], made["id"], made["token"]

    def call(self, method, target, body=b"", **kw):
        return self.server.signed(method, target, self.id, self.token, body, **kw)


@pytest.fixture(scope="module")
def signer(world):
    one = Signer(world.server)
    assert one.call("POST", "/agents/register", json.dumps({"name": one.name}).encode()).status == 201
    return one


def test_a_signature_is_who_one_is(world, signer):
    body = json.dumps({"from": signer.name, "to": world.eve.name, "content": "signed"}).encode()
    assert signer.call("POST", "/messages/send", body).status == 200
    assert world.eve.inbox(world.eve.name)[-1]["content"] == "signed"
    as_another = json.dumps({"from": world.eve.name, "to": signer.name}).encode()
    assert signer.call("POST", "/messages/send", as_another).status == 403


def test_replayed_changed_or_late_signatures(world, signer, peer):
    server = world.server
    body = json.dumps({"from": signer.name, "to": world.eve.name, "content": "once"}).encode()
    before = len(world.eve.inbox(world.eve.name))
    nonce, now = secrets.token_hex(16), int(time.time() * 1000)
    assert signer.call("POST", "/messages/send", body, nonce=nonce, time_ms=now, source=peer).status == 200
    assert signer.call("POST", "/messages/send", body, nonce=nonce, time_ms=now, source=peer).status == 401
    for late in (now - 3_600_000, now + 3_600_000):
        assert signer.call("POST", "/messages/send", body, time_ms=late, source=peer).status == 401
    key = hmac.new(signer.token.encode(), b"atoll-sign-v1", hashlib.sha256).digest()

    def altered(signed_body=body, target="/messages/send", method="POST", sent=body):
        stamp, once = str(int(time.time() * 1000)), secrets.token_hex(16)
        text = "\n".join([method, target, stamp, once, hashlib.sha256(signed_body).hexdigest(), signer.id])
        return server.request("POST", "/messages/send", body=sent, token=None, source=peer, headers={
            "X-Atoll-Key": signer.id, "X-Atoll-Time": stamp, "X-Atoll-Nonce": once,
            "X-Atoll-Signature": hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}).status
    assert altered(signed_body=b"{}") == altered(target="/messages/send?x=1") == altered(method="PUT") == 401
    assert altered(sent=body.replace(b"once", b"more")) == 401
    assert altered() == 200
    assert len(world.eve.inbox(world.eve.name)) == before + 2


def test_a_replay_is_known_after_a_kill(world, signer, peer):
    body = json.dumps({"from": signer.name, "to": world.eve.name, "content": "kept"}).encode()
    nonce, now = secrets.token_hex(16), int(time.time() * 1000)
    assert signer.call("POST", "/messages/send", body, nonce=nonce, time_ms=now, source=peer).status == 200
    world.server.kill9_api(), world.server.wait_ready()
    assert signer.call("POST", "/messages/send", body, nonce=nonce, time_ms=now, source=peer).status == 401


def test_a_move_says_who_made_it(server):
    """A token's name, the role of a browser's session, and the agent that a person names."""
    admin = Hub(server, server.token)
    project = admin.project("human")
    task = admin.task(project)
    operator = server.new_token("operator", name=unique("olga"))
    code = server.post("/api/v1/login-links").json()["url_path"].split("#login=")[1]
    session = server.post("/login", {"code": code}, token=None)
    headers = {"Cookie": session.headers["set-cookie"].split(";")[0], "X-Atoll-CSRF": session.json()["csrf"],
               "Origin": server.url}
    path = f"/projects/{project}/tasks/{task}"
    Hub(server, operator["token"]).ok("PATCH", path, {"status": "ready"})
    assert server.request("PATCH", path, json={"status": "backlog"}, token=None, headers=headers).status == 200
    admin.ok("PATCH", path, {"status": "ready", "agent": "human"})
    assert [one["by"] for one in admin.ok("GET", path)["transitions"]] == [operator["name"], "admin", "human"]


def test_the_type_is_taken_by_the_name_that_set_mode_has(server):
    admin, one = Hub(server, server.token), unique()
    assert admin.ok("POST", "/agents/register", {"name": one, "agent_type": "coder"})["type"] == "coder"
    assert admin.ok("POST", "/agents/register", {"name": one, "agent_type": "x", "type": "coder"})["type"] == "coder"
    admin.refused(400, "type", "POST", "/agents/register", {"name": one, "agent_type": "a/b"})
