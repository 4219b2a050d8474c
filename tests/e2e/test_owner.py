"""Who reaches what: every route, remote call and WebSocket message by nobody, a viewer, the agent that owns the object,
another agent, an operator, an admin, and an admin of another tenant.

The rows are checked against the server's own tables, so a new route without a row fails. An object out of reach is
answered like one that does not exist, word for word.
"""
import json
import os
import re
import secrets
import time

import pytest

import harness
import hub as hubs
import rpc
from agents import Client
from harness import BOXES, wait_until
from terminal import Ws

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
          "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
STAYS = {"argv": ["sleep", "1000"]}


class Row:
    """A request about an object: its query, its body, and what must be there first."""

    def __init__(self, query="", body=None, raw=None, socket=False, before=None, headers=None):
        self.query, self.body, self.raw, self.socket, self.before = query, body, raw, socket, before
        self.headers = SOCKET if socket else headers or {}


def settle(server, world, verb, state):
    """The sandbox in this state; what is under way (a restart, say) ends first."""
    def there():
        server.post(f"{BOXES}/{world['id']}/{verb}")
        return server.get(f"{BOXES}/{world['id']}").json()["state"] == state
    wait_until(there, 30, f"the sandbox to be {state}")


def stopped(server, world):
    settle(server, world, "stop", "stopped")


def running(server, world):
    settle(server, world, "start", "running")


def snapped(server, world):
    """Another snapshot, by the owner."""
    name = "s" + secrets.token_hex(4)
    running(server, world)
    reply = server.post(f"{BOXES}/{world['id']}/snapshots", {"name": name}, token=world["token"])
    assert reply.status == 201, reply
    world["snapshot"] = reply.json()["id"]


def session(server, world):
    running(server, world)
    replies = []

    def made():
        wish = {**STAYS, "name": "again" + secrets.token_hex(4)}
        replies.append(server.post(f"{BOXES}/{world['id']}/terminals", wish))
        return replies[-1].status == 201
    wait_until(made, 30, "a terminal")
    reply = replies[-1]
    world["tid"] = world["sid"] = reply.json()["id"]
    world["session"] = reply.json()["name"]


# What a route about one object needs, by its name. Those that end the object come last.
OWNED = {
    "sandbox.read": Row(), "sandbox.change": Row(body={"labels": {"a": "b"}}), "sandbox.stats": Row(),
    "sandbox.crashes": Row(), "sandbox.applied": Row(), "sandbox.changes": Row(),
    "exec.create": Row(body={"argv": ["true"]}), "exec.list": Row(), "exec.read": Row(),
    "exec.output": Row(), "exec.stdin": Row("?eof=false", raw=b"x"), "exec.resize": Row(body={"rows": 9, "cols": 9}),
    "file.write": Row("?path=/workspace/f", raw=b"x"), "file.read": Row("?path=/workspace/f"),
    "file.append": Row("?path=/workspace/f", raw=b"x"), "file.list": Row("?path=/workspace"),
    "file.stat": Row("?path=/workspace/f"), "file.mkdir": Row("?path=/workspace/d{n}"),
    "file.move": Row("?path=/workspace/f&to=/workspace/f"), "file.remove": Row("?path=/workspace/f"),
    "tree.read": Row("?path=/workspace"), "tree.write": Row("?path=/workspace", raw=b"\0" * 1024),
    "tree.manifest": Row("?path=/workspace"), "file.watch": Row("?path=/workspace"),
    "volume.read": Row(), "volume.change": Row(body={"bytes": 32 << 20}), "snapshot.create": Row(body={"name": "n{n}"}),
    "snapshot.list_of": Row(), "sandbox.fork": Row(body={}), "port.list": Row(), "process.list": Row(),
    "port.use": Row(), "port.tunnel": Row(headers={"Connection": "Upgrade", "Upgrade": "tcp"}),
    "port.preview": Row(body={"port": 8000}),
    "egress.sandbox.read": Row(), "egress.explain": Row("?url=https://a.example/"), "egress.sandbox.records": Row(),
    "egress.sandbox.hosts": Row(),
    "terminal.create": Row(body={"argv": ["true"]}), "terminal.list": Row(), "terminal.read": Row(),
    "terminal.attach": Row(socket=True), "terminal.screen": Row(), "terminal.recording": Row(),
    "terminal.resize": Row(body={"rows": 9, "cols": 9}),
    "session.list_of": Row(), "session.create": Row(body={"session_name": "x{n}", "command": "true"}),
    "session.screen": Row(), "session.transcript": Row(), "session.stream": Row(),
    "session.orchestrate": Row(socket=True),
    "session.attach": Row(socket=True), "operation.read": Row(),
    "agent.read": Row(), "vm.read": Row(), "vm.deploy": Row(), "container.read": Row(),
    "command.create": Row(body={"command": "true"}), "command.list": Row(), "command.read": Row(),
    "command.output": Row(), "command.stdin": Row(body={"text": "x"}), "command.signal": Row(body={"signal": "CONT"}),
    "command.resize": Row(body={"rows": 9, "cols": 20}),
    "sandbox.pause": Row(), "sandbox.resume": Row(), "exec.signal": Row(body={"signal": "CONT"}), "exec.cancel": Row(),
    "terminal.signal": Row(body={"signal": "CONT"}), "session.kill_of": Row(), "terminal.kill": Row(before=session),
    "vm.start": Row(before=stopped), "vm.restart": Row(before=running), "vm.stop": Row(before=running),
    "container.start": Row(before=stopped), "container.stop": Row(before=running),
    "agent.start": Row(before=stopped), "agent.stop": Row(before=running),
    "sandbox.start": Row(before=stopped), "sandbox.stop": Row(before=running),
    "sandbox.rollback": Row(body={"snapshot": "{snapshot}"}, before=snapped),
    "snapshot.delete_of": Row(before=snapped), "snapshot.delete": Row(before=snapped), "sandbox.delete": Row(),
    "volume.delete": Row(),
}
# Of the whole tenant, or of the caller alone: the role decides. Lists are looked at one by one below.
SHARED = {
    "health.deep", "health.service", "health.ready_v1", "health.live_v1", "health.read", "version.read", "whoami.read",
    "openapi.read", "echo.try", "limits.read", "event.read", "note.create", "sandbox.create", "sandbox.list",
    "stats.watch", "volume.create", "volume.list", "snapshot.list", "image.import", "image.list", "image.read",
    "image.delete", "agent.list", "session.list", "session.socket", "vm.list", "vm.create", "container.list",
    "container.create", "container_image.list", "template.list", "template.read", "template.set", "template.delete",
    "egress.policies", "egress.node.read", "egress.tenant.read", "egress.project.read", "egress.pack.list",
    "egress.records",
}
# Records stay after their sandbox, so people get an empty list for an id that is none of theirs.
KEPT, EMPTY = ("egress.sandbox.records", "egress.sandbox.hosts"), ({"items": []}, {"items": [], "next": 0})
NODE = {"metrics.read", "audit.verify", "doctor.read", "log.read", "backup.create", "backup.read", "backup.delete",
        "pool.list", "pool.set", "disk.delete", "disk.list",
        "egress.node.put", "egress.node.change", "egress.node.clear"}


def operations(server):
    found = {}
    for path, methods in server.get("/api/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            found.setdefault(operation["operationId"], (method.upper(), path, operation))
    return found


@pytest.fixture(scope="module")
def tokens(server):
    made = {role: server.new_token(role)["token"] for role in ("viewer", "operator", "admin")}
    made["none"] = None
    for name in ("mine", "theirs"):
        made[name] = server.new_token("agent", name=f"{name}-{secrets.token_hex(3)}")
    made["elsewhere"] = server.new_token("admin", tenant="elsewhere")["token"]
    return made


@pytest.fixture(scope="module")
def linked(server, tokens, tmp_path_factory):
    name = f"machine-{secrets.token_hex(3)}"
    secret = server.post("/api/v1/secrets", {"agent_id": name}).json()["secret"]
    client = Client(server, name, secret, tmp_path_factory.mktemp("agent")).start()
    yield name
    assert client.stop() == 0, client.log()


def give(server, machine, *names):
    reply = server.request("PATCH", f"/api/v1/agents/{machine}", json={"shared_with": list(names)})
    assert reply.status == 200 and reply.json()["shared_with"] == list(names), reply


@pytest.fixture
def world(server, tokens, linked):
    """A sandbox of the agent "mine" with something of everything in it, and a linked machine that it was given."""
    token = tokens["mine"]["token"]
    name = "w" + secrets.token_hex(4)

    def post(path, body):
        reply = server.post(path, body, token=token)
        assert reply.status in (201, 202, 200), (path, reply)
        return reply.json()

    give(server, linked, tokens["mine"]["name"])
    box = post(BOXES, {"name": name, "storage": "disk"})
    at = f"{BOXES}/{box['id']}"
    terminal = post(f"{at}/terminals", {**STAYS, "name": "first"})
    running_there = post(f"/api/v1/agents/{linked}/commands",
                         {"command": "sleep", "args": ["1000"], "allocate_pty": True})
    world = {"id": box["id"], "name": name, "token": token, "linked": linked, "eid": post(f"{at}/execs", STAYS)["id"],
             "tid": terminal["id"], "sid": terminal["id"], "session": "first", "cid": running_there["command_id"],
             "volume": post("/api/v1/volumes", {"name": "v" + secrets.token_hex(4), "bytes": 16 << 20})["id"],
             "operation": post(f"/api/v1/vms/{name}/deploy-agent", None)["operation"]["id"]}
    world["snapshot"] = post(f"{at}/snapshots", {"name": "first"})["id"]
    reply = server.request("PUT", f"{at}/files?path=/workspace/f", body=b"secret", token=token)
    assert reply.status == 200, reply
    yield world
    server.post(f"/api/v1/agents/{linked}/commands/{world['cid']}/signal", {"signal": "KILL"})
    for box in server.get(BOXES).json()["items"]:
        wait_until(lambda: server.delete(f"{BOXES}/{box['id']}").status in (200, 404), 10, "the end of a sandbox")


def absent(world):
    """The same names, of nothing."""
    gone = dict(world)
    for key, value in world.items():
        if key not in ("token",):
            gone[key] = value[:-1] + ("0" if value[-1] != "0" else "1")
    gone["operation"] = "00000000-0000-4000-8000-000000000000"
    gone["cid"] = gone["operation"]
    return gone


def target(path, world):
    """The route's path for the objects of this world."""
    commands = path.startswith("/api/v1/agents/{id}/commands")
    box = path.startswith(BOXES + "/")
    values = {"id": world["linked"] if commands else world["operation"] if "/operations/" in path
              else world["id"] if box else world["name"],
              "name": world["session"] if "/sessions/" in path else world["name"], "port": "8000", "path": "x"}
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1]) or world[m[1]], path)


number = iter(range(10**6))


def ask(server, operation, row, world, token, source=None):
    """The status and the body of an answer; of a good one only what came with its head, as some never end."""
    method, path, description = operation
    n = str(next(number))
    fill = lambda text: text.replace("{n}", n).replace("{snapshot}", world["snapshot"])
    where = target(path, world) + fill(row.query)
    body = json.loads(fill(json.dumps(row.body))) if row.body is not None else None
    raw = row.raw if body is None else json.dumps(body).encode()
    events = "text/event-stream" in json.dumps(description["responses"])
    lines = {"Host": server.host, "Content-Length": str(len(raw or b"")), **row.headers}
    if not row.headers:
        lines["Connection"] = "close"
    if body is not None:
        lines["Content-Type"] = "application/json"
    if events and not row.socket:
        lines["Accept"] = "text/event-stream"
    if token:
        lines["Authorization"] = "Bearer " + token
    head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
    with server.connect(source, timeout=30) as sock:
        sock.sendall(f"{method} {where} HTTP/1.1\r\n{head}\r\n".encode() + (raw or b""))
        got = b""
        while b"\r\n\r\n" not in got and (more := sock.recv(65536)):
            got += more
        status, (head, rest) = int(got.split(b" ", 2)[1]), got.split(b"\r\n\r\n", 1)
        size = re.search(rb"(?i)content-length: (\d+)", head)
        while status >= 400 and size and len(rest) < int(size[1]) and (more := sock.recv(65536)):
            rest += more
        return status, rest


def plain(body, world):
    """An answer without what belongs to this request alone."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
    text = re.sub(r'"request_id":"[^"]*"', "", text)
    for key, value in sorted(world.items(), key=lambda item: -len(item[1])):
        if key != "token":
            text = text.replace(value, "OBJECT")
    return text


def test_every_route_has_a_row(server):
    found = operations(server)
    for name, (_, path, operation) in found.items():
        node = operation.get("x-node", False)
        assert node == (name in NODE), f"{name}: is it about the whole server?"
        if "agent" not in operation["x-roles"] or name.startswith("hub."):
            continue
        assert (name in OWNED) != (name in SHARED), f"{name} needs a row in OWNED or in SHARED"
    missing = {name for name in (*OWNED, *SHARED, *NODE) if name not in found}
    assert not missing, missing


@pytest.mark.timeout(120)
def test_others_cannot_tell_it_from_what_does_not_exist(server, tokens, world, peer):
    found, gone, wrong = operations(server), absent(world), []
    for name, row in OWNED.items():
        for who, token in (("another agent", tokens["theirs"]["token"]), ("another tenant", tokens["elsewhere"])):
            status, body = ask(server, found[name], row, world, token)
            expected = ask(server, found[name], row, gone, token)
            kept = who == "another tenant" and name in KEPT and status == 200 and json.loads(body) in EMPTY
            if (status != 404 and not kept) or (status, plain(body, world)) != (expected[0], plain(expected[1], gone)):
                wrong.append((name, who, status, plain(body, world), *expected))
        status, _ = ask(server, found[name], row, world, None, source=peer)
        if status != 401:
            wrong.append((name, "nobody", status))
        if "viewer" not in found[name][2]["x-roles"]:
            status, body = ask(server, found[name], row, world, tokens["viewer"])
            if status != 403:
                wrong.append((name, "viewer", status, body))
    assert not wrong, "\n".join(map(str, wrong))
    assert server.get(f"{BOXES}/{world['id']}", token=tokens["mine"]["token"]).json()["state"] == "running"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("who", ["owner", "viewer", "operator", "admin"])
def test_who_may_reaches_it(server, tokens, world, who):
    found, wrong = operations(server), []
    token = tokens["mine"]["token"] if who == "owner" else tokens[who]
    for name, row in OWNED.items():
        if who == "viewer" and "viewer" not in found[name][2]["x-roles"]:
            continue
        if row.before:
            row.before(server, world)
        status, body = ask(server, found[name], row, world, token)
        # What nothing listens on, and what was taken already, is not a question of access.
        if status in (401, 403, 404):
            wrong.append((name, who, status, body))
    assert not wrong, "\n".join(map(str, wrong))


def test_commands_of_a_sandbox_are_reached_by_agentics_routes_too(server, tokens, world):
    """/api/v1/agents/{id}/commands finds linked machines and sandboxes through one table."""
    found, wrong = operations(server), []
    world = {**world, "linked": world["name"], "cid": world["tid"]}
    gone = absent(world)
    for name in (name for name in OWNED if name.startswith("command.")):
        for token in (tokens["theirs"]["token"], tokens["elsewhere"]):
            status, body = ask(server, found[name], OWNED[name], world, token)
            expected, nothing = ask(server, found[name], OWNED[name], gone, token)
            if status != 404 or (status, plain(body, world)) != (expected, plain(nothing, gone)):
                wrong.append((name, status, body, expected, nothing))
        for token in (world["token"], tokens["operator"]):
            status, body = ask(server, found[name], OWNED[name], world, token)
            if status not in (200, 201):
                wrong.append((name, status, body))
    assert not wrong, "\n".join(map(str, wrong))


def test_who_removes_a_linked_machine(server, tokens, tmp_path):
    name = f"leaves-{secrets.token_hex(3)}"
    secret = server.post("/api/v1/secrets", {"agent_id": name}).json()["secret"]
    client = Client(server, name, secret, tmp_path).start()
    try:
        check_removal(server, tokens, name)
    finally:
        client.stop()
        server.delete(f"/api/v1/secrets/{name}")


def check_removal(server, tokens, name):
    mine, path = tokens["mine"]["token"], f"/api/v1/agents/{name}"
    give(server, name, tokens["mine"]["name"])
    for token in (mine, tokens["theirs"]["token"], tokens["viewer"], tokens["operator"]):
        assert server.delete(path, token=token).status == 403, "it deletes a secret"
    foreign, unknown = (server.delete(f"/api/v1/agents/{one}", token=tokens["elsewhere"]) for one in (name, "no-such"))
    assert foreign.status == unknown.status == 404
    assert foreign.json()["error"].replace(name, "no-such") == unknown.json()["error"]
    since = server.get("/api/v1/events?since=0&limit=1").json()["head"]
    assert server.get(path, token=mine).status == 200
    assert server.delete(path, token=tokens["admin"]).status == 200
    assert server.get(path, token=mine).status == 404
    heard = {who: [e["type"] for e in server.get(f"/api/v1/events?since={since}&object=agent/{name}",
                                                 token=tokens[who]["token"]).json()["items"]]
             for who in ("mine", "theirs")}
    assert "agent.removed" in heard["mine"] and heard["theirs"] == [], heard


def test_what_is_about_the_whole_server_is_for_its_tenant(server, tokens):
    found = operations(server)
    for name in NODE:
        method, path, operation = found[name]
        where = re.sub(r"\{\w+\}", "no-such", path)
        reply = server.request(method, where, token=tokens["elsewhere"])
        assert reply.status == 403 and "whole server" in reply.body.decode(), (name, reply)


LISTS = {
    BOXES: "items", "/api/v1/volumes": "items", "/api/v1/snapshots": "items", "/api/v1/agents": "agents",
    "/api/v1/sessions": None, "/api/v1/vms?prefix=*": "vms", "/api/v1/containers?status=all": "containers",
    "/api/v1/egress/records": "items",
}


@pytest.mark.parametrize("path", LISTS)
def test_lists_show_what_is_within_reach(server, tokens, world, path):
    if "egress" in path:
        harness.run_in(server, world["id"], "bash", "-c",
                       r"exec 3<>/dev/tcp/nobody.example/80; "
                       r"printf 'GET / HTTP/1.0\r\nHost: nobody.example\r\n\r\n' >&3; cat <&3")
        wait_until(lambda: server.get(path).json()["items"], 10, "a record")
    seen = {}
    for who, token in (("mine", tokens["mine"]["token"]), ("theirs", tokens["theirs"]["token"]),
                       ("viewer", tokens["viewer"]), ("operator", tokens["operator"]),
                       ("elsewhere", tokens["elsewhere"])):
        reply = server.get(path, token=token)
        assert reply.status == 200, reply
        answer = reply.json()
        seen[who] = answer if LISTS[path] is None else answer[LISTS[path]]
    assert seen["mine"] and seen["viewer"] and seen["operator"], seen
    assert seen["theirs"] == [] and seen["elsewhere"] == [], seen


# ---- remote calls ----

# Every method about one session or agent, with a request that would do something. The others are of nobody's.
CALLS = {
    ("DestroySession", rpc.SANDBOX): {"sessionId": "{session}"},
    ("GetSession", rpc.SANDBOX): {"sessionId": "{session}"},
    ("Exec", rpc.SANDBOX): {"sessionId": "{session}", "command": "echo in"},
    ("ExecStream", rpc.SANDBOX): {"sessionId": "{session}", "command": "echo in"},
    ("WriteFile", rpc.SANDBOX): {"sessionId": "{session}", "path": "/workspace/g", "content": "eA=="},
    ("ReadFile", rpc.SANDBOX): {"sessionId": "{session}", "path": "/workspace/f"},
    ("PipInstall", rpc.SANDBOX): {"sessionId": "{session}", "packages": ["nothing-at-all"]},
    ("Exec", "agentic.sandbox.v1.AgentService"): {"agentId": "{machine}", "command": "true"},
}
NOT_OWNED = {"CreateSession", "ListSessions", "HealthCheck", "Connect", "Check", "Watch", "List",
             "ServerReflectionInfo"}


def methods():
    files = rpc.descriptor_pb2.FileDescriptorSet.FromString(rpc.DESCRIPTORS.read_bytes())
    return {(method.name, f"{file.package}.{service.name}")
            for file in files.file for service in file.service for method in service.method}


def test_every_remote_call_has_a_row():
    left = {one for one in methods() if one not in CALLS and one[0] not in NOT_OWNED}
    assert not left, f"new methods need a row in CALLS or NOT_OWNED: {left}"


def test_remote_calls_reach_what_is_the_callers(server, tokens, linked):
    give(server, linked)  # to nobody
    mine, theirs = tokens["mine"]["token"], tokens["theirs"]["token"]
    client = rpc.open_transport(server, "grpcio")
    try:
        session = client.call("CreateSession", {"sessionId": "of-mine"}, token=mine).ok["session"]["sessionId"]
        client.call("WriteFile", {"sessionId": session, "path": "/workspace/f", "content": "eA=="}, token=mine)

        def fill(fields, name):
            return json.loads(json.dumps(fields).replace("{session}", name).replace("{machine}", linked))

        for (method, service), fields in CALLS.items():
            foreign = client.call(method, fill(fields, session), service=service, token=theirs)
            unknown = client.call(method, fill(fields, "of-nobody"), service=service, token=theirs)
            assert foreign.code == unknown.code and foreign.messages == unknown.messages, (method, foreign, unknown)
            assert foreign.code == "not_found" or "not found" in str(foreign) or method == "DestroySession", foreign
        refused = client.call("Exec", {"agentId": linked, "command": "true"}, token=mine,
                              service="agentic.sandbox.v1.AgentService")
        assert refused.code == "not_found", "a linked machine that nobody gave it"
        box = server.post(BOXES, {"storage": "memory"}, token=mine).json()["id"]
        answers = [client.call("Exec", {"agentId": agent, "command": "true"}, token=theirs,
                               service="agentic.sandbox.v1.AgentService") for agent in (box, "of-nobody")]
        assert [one.code for one in answers] == ["not_found"] * 2, answers
        assert str(answers[0]).replace(box, "of-nobody") == str(answers[1])
        ran = client.call("Exec", {"agentId": box, "command": "true"}, token=mine,
                          service="agentic.sandbox.v1.AgentService")
        assert ran.code in (None, "ok"), ran
        assert server.delete(f"{BOXES}/{box}").status == 200
        assert client.call("ListSessions", token=theirs).ok.get("sessions", []) == []
        assert [s["sessionId"] for s in client.call("ListSessions", token=mine).ok["sessions"]] == [session]
        assert client.call("Exec", {"sessionId": session, "command": "echo hi"}, token=mine).ok["stdout"] == "hi\n"
        assert client.call("DestroySession", {"sessionId": session}, token=mine).ok == {"success": True}
    finally:
        client.close()


# ---- messages of the WebSocket ----

# What each message about an agent or a session is sent with. ping and list_agents are about none.
MESSAGES = {
    "subscribe": {}, "unsubscribe": {}, "start_shell": {}, "send_input": {"command_id": "{exec}", "data": "x"},
    "pty_resize": {"command_id": "{exec}", "cols": 90, "rows": 30}, "list_sessions": {},
    "kill_session": {"session_name": "first"}, "attach_session": {"session_name": "first"},
    "join_session": {"session_id": "{terminal}"}, "leave_session": {"session_id": "{terminal}"},
    "session_input": {"session_id": "{terminal}", "data": "x"}, "session_resize": {"session_id": "{terminal}"},
    "session_take": {"session_id": "{terminal}"}, "session_release": {"session_id": "{terminal}"},
    "send_command": {"command": "id"}, "create_session": {"session_name": "theirs"},
    "detach_session": {"session_name": "first"},
}


def test_every_message_has_a_row():
    text = (harness.ROOT / "src" / "api" / "session_ws.c").read_text()
    table = text.split("} kinds[] = {")[1].split("};")[0]
    kinds = set(re.findall(r'^    \{ "(\w+)",', table, re.M))
    assert kinds - {"ping", "list_agents"} == set(MESSAGES), kinds ^ set(MESSAGES)


def said(ws, message):
    """What comes back before the answer to a ping."""
    ws.send(message)
    ws.send({"type": "ping", "timestamp": 1})
    got = []
    while (one := json.loads(ws.recv()[1]))["type"] != "pong":
        got.append(one)
    return got


def test_messages_reach_what_is_the_callers(server, tokens, world):
    machine = world["linked"]
    give(server, machine)  # to nobody
    ws = Ws(server, "/ws", token=tokens["theirs"]["token"])
    ws.recv()  # its greeting
    known = {"{exec}": world["eid"], "{terminal}": world["tid"]}
    before = server.get(f"{BOXES}/{world['id']}/execs").json()["items"]
    for kind, fields in MESSAGES.items():
        for agent in (world["name"], world["id"], machine):
            fill = {key: known.get(value, value) for key, value in fields.items()}
            none = {key: "00000000-0000-4000-8000-000000000000" if value in known else value
                    for key, value in fields.items()}
            foreign = said(ws, {"type": kind, "agent_id": agent, **fill})
            unknown = said(ws, {"type": kind, "agent_id": "nobody-at-all", **none})
            for one in (agent, *known.values(), "nobody-at-all", "00000000-0000-4000-8000-000000000000"):
                foreign = json.loads(json.dumps(foreign).replace(one, "OBJECT"))
                unknown = json.loads(json.dumps(unknown).replace(one, "OBJECT"))
            assert foreign == unknown, (kind, agent)
    assert said(ws, {"type": "list_agents"})[0]["agents"] == []
    said(ws, {"type": "subscribe", "agent_id": "*"})
    harness.run_in(server, world["id"], "echo", "for-the-owner")
    time.sleep(0.5)  # longer than a subscription looks for new commands
    assert "for-the-owner" not in json.dumps(said(ws, {"type": "list_agents"}))
    ws.close()
    after = server.get(f"{BOXES}/{world['id']}/execs").json()["items"]
    assert [e["id"] for e in after if e["by"] == tokens["theirs"]["id"]] == [] and len(after) == len(before) + 1
    mine = Ws(server, "/ws", token=world["token"])
    mine.recv()
    assert [a["id"] for a in said(mine, {"type": "list_agents"})[0]["agents"]] == [world["name"]]
    mine.close()


# ---- given ----

def test_an_object_is_given_and_taken_back(server, tokens):
    theirs, name = tokens["theirs"]["token"], tokens["theirs"]["name"]
    box = harness.make_box(server, storage="memory")
    at = f"{BOXES}/{box}"

    def change(**fields):
        reply = server.request("PATCH", at, json=fields)
        assert reply.status == 200, reply
        return server.get(at, token=theirs).status

    assert server.get(at, token=theirs).status == 404, "what people make is private"
    assert change(shared_with=[name]) == 200
    assert server.post(f"{at}/execs?wait=5000", {"argv": ["echo", "hi"]}, token=theirs).json()["output"] == "hi\n"
    mine = server.request("PATCH", at, json={"shared_with": [name, "more"]}, token=theirs)
    assert mine.status == 403 and "owner" in mine.error["message"], "who was given it does not pass it on"
    assert change(shared_with=[]) == 404
    assert change(visibility="tenant") == 200
    assert change(visibility="private") == 404
    assert change(owner=name) == 200
    assert server.get(at).json()["owner"] == name
    server.kill9_api()
    server.wait_ready()
    assert server.get(at, token=theirs).status == 200, "it is stored"
    assert server.request("PATCH", at, json={"shared_with": ["x"]}, token=theirs).status == 200, "its owner shares it"
    assert server.request("PATCH", at, json={"owner": "x"}, token=theirs).status == 403
    assert server.delete(at, token=theirs).status == 200


@pytest.mark.parametrize("count,status", [(32, 201), (33, 400)])
def test_the_list_of_principals_has_a_limit(server, count, status):
    reply = server.post(BOXES, {"storage": "memory", "shared_with": [f"p{i}" for i in range(count)]})
    assert reply.status == status, reply
    if status == 201:
        assert server.delete(f"{BOXES}/{reply.json()['id']}").status == 200
    else:
        assert reply.error["field"] == "shared_with"


def test_an_agent_makes_things_for_itself_alone(server, tokens):
    theirs = tokens["theirs"]["token"]
    for path, body in ((BOXES, {"storage": "memory"}), ("/api/v1/volumes", {"name": "not-mine", "bytes": 16 << 20})):
        reply = server.post(path, {**body, "owner": "admin"}, token=theirs)
        assert reply.status == 403 and "owner" in reply.error["message"], reply
    box = server.post(BOXES, {"storage": "memory"}, token=theirs).json()
    assert (box["owner"], box["visibility"]) == (tokens["theirs"]["name"], "private")
    assert server.delete(f"{BOXES}/{box['id']}", token=theirs).status == 200


@pytest.mark.parametrize("warm", [True, False])
def test_the_owner_of_a_warm_sandbox_is_who_took_it(server, tokens, warm):
    theirs = tokens["theirs"]["token"]
    if warm:
        pool = {"size": 1, "storage": "memory"}
        assert server.request("PUT", "/api/v1/pools/default", json=pool).status in (200, 201)
        wait_until(lambda: any(p["ready"] >= 1 for p in server.get("/api/v1/pools").json()["items"]), 20, "a warm one")
    box = server.post(BOXES, {"storage": "memory", "warm": warm}, token=theirs).json()
    assert box["start"] == ("warm" if warm else "cold") and box["owner"] == tokens["theirs"]["name"]
    assert server.get(f"{BOXES}/{box['id']}", token=tokens["mine"]["token"]).status == 404
    assert server.delete(f"{BOXES}/{box['id']}", token=theirs).status == 200
    if warm:
        assert server.request("PUT", "/api/v1/pools/default", json={**pool, "size": 0}).status in (200, 201)


def test_a_volume_is_given(server, tokens):
    theirs = tokens["theirs"]["token"]
    volume = server.post("/api/v1/volumes", {"name": "data" + secrets.token_hex(3), "bytes": 16 << 20}).json()
    wish = {"storage": "memory", "volumes": [{"volume": volume["name"], "path": "/data"}]}
    refused = server.post(BOXES, wish, token=theirs)
    assert refused.status == 400 and "no volume" in refused.error["message"], refused
    at = f"/api/v1/volumes/{volume['id']}"
    changed = server.request("PATCH", at, json={"visibility": "tenant"})
    assert changed.status == 200 and changed.json()["bytes"] == 16 << 20, changed
    box = server.post(BOXES, wish, token=theirs)
    assert box.status == 201, box
    assert server.delete(f"{BOXES}/{box.json()['id']}").status == 200
    assert server.request("PATCH", at, json={"visibility": "private"}, token=theirs).status == 403
    assert server.delete(at).status == 200


# ---- what a copy does not give ----

def test_a_copy_by_an_agent_has_no_credentials(server, tokens):
    name, theirs = tokens["theirs"]["name"], tokens["theirs"]["token"]
    value = {"value": "s3cret-s3cret", "use": "request", "hosts": ["api.example"]}
    made = server.request("PUT", "/api/v1/secrets/copied", json=value)
    assert made.status in (200, 201), made
    box = server.post(BOXES, {"storage": "disk", "shared_with": [name], "nesting": True, "sys": True, "egress": {
        "allow": ["api.example"], "deny": ["bad.example"], "secrets": ["KEY=copied"], "agent": name}})
    assert box.status == 201, box
    at = f"{BOXES}/{box.json()['id']}"
    assert server.post(f"{at}/snapshots", {"name": "before"}, token=theirs).status == 201
    copies = [server.post(f"{at}/fork", {}, token=theirs),
              server.post(BOXES, {"from_snapshot": "before"}, token=theirs)]
    for copy in copies:
        assert copy.status == 201, copy
        egress = copy.json()["egress"]
        assert not egress["allow"] and not egress["secrets"] and not egress["agent"], egress
        assert egress["deny"] == ["bad.example"], "what takes away stays"
        assert copy.json()["owner"] == name and not copy.json()["nesting"] and not copy.json()["sys"]
        at_copy = f"{BOXES}/{copy.json()['id']}"
        shown = server.post(f"{at_copy}/execs?wait=5000", {"command": "echo $KEY"}, token=theirs).json()
        assert shown["output"] == "\n", "no placeholder"
    whole = server.post(f"{at}/fork", {})
    assert whole.json()["egress"]["secrets"] == ["KEY=copied"] and whole.json()["shared_with"] == [], whole
    harness.delete_boxes(server)
    for one in server.get("/api/v1/snapshots").json()["items"]:
        assert server.delete(f"/api/v1/snapshots/{one['id']}").status == 200
    assert server.delete("/api/v1/secrets/copied").status in (200, 204)


# ---- what weakens isolation ----

@pytest.mark.parametrize("wish", [{"nesting": True}, {"tier": "T1"}, {"sys": True}])
def test_an_agent_does_not_choose_a_weaker_container(server, tokens, wish):
    theirs = tokens["theirs"]["token"]
    for method, path in (("POST", BOXES), ("PUT", "/api/v1/templates/weaker")):
        reply = server.request(method, path, json={"storage": "memory", **wish}, token=theirs)
        assert reply.status == 403 and next(iter(wish)) in reply.error["message"], (path, reply)
    made = server.request("PUT", "/api/v1/templates/chosen", json={"storage": "memory", **wish})
    assert made.status in (200, 201), made
    stolen = server.request("PUT", "/api/v1/templates/chosen", json={"storage": "memory"}, token=theirs)
    assert stolen.status == 403, "a template of an operator is the operator's"
    assert server.delete("/api/v1/templates/chosen", token=theirs).status == 403
    box = server.post(BOXES, {"template": "chosen"}, token=theirs)
    assert box.status == 201, "which an operator wrote into a template"
    assert server.delete(f"{BOXES}/{box.json()['id']}", token=theirs).status == 200
    assert server.delete("/api/v1/templates/chosen").status in (200, 204)


def test_root_of_a_sandbox_is_an_agents_to_ask_for(server, tokens):
    theirs = tokens["theirs"]["token"]
    box = server.post(BOXES, {"storage": "memory", "user": "root"}, token=theirs)
    assert box.status == 201, box
    assert server.delete(f"{BOXES}/{box.json()['id']}", token=theirs).status == 200


# ---- events ----

def test_events_are_of_what_is_within_reach(server, tokens):
    since = server.get("/api/v1/events?limit=1").json()["head"]
    tokens_of = {"mine": tokens["mine"]["token"], "theirs": tokens["theirs"]["token"], "admin": "admin"}
    live = {who: server.sse(f"/api/v1/events?since={since}", token=token) for who, token in tokens_of.items()}
    box = server.post(BOXES, {"storage": "memory"}, token=tokens_of["mine"]).json()["id"]
    harness.run_in(server, box, "true")
    assert server.delete(f"{BOXES}/{box}").status == 200
    server.post("/api/v1/notes", {"text": "for all"})
    whole = ["sandbox.created", "exec.started", "exec.exited", "sandbox.deleted", "note.created"]
    for who, token in tokens_of.items():
        wanted = ["note.created"] if who == "theirs" else whole
        page = server.get(f"/api/v1/events?since={since}", token=token).json()["items"]
        assert [e["type"] for e in page if e["type"] in whole] == wanted, (who, page)
        seen = []
        while not seen or seen[-1] != "note.created":
            seen.append(live[who].next(10)["event"])
        assert [kind for kind in seen if kind in whole] == wanted, (who, seen)
        live[who].close()
        words = server.get("/api/v1/events?limit=50&source=" + box, token=token).json()["events"]
        assert bool(words) == (who != "theirs"), (who, words)


# ---- agents that the hub does not know ----

def test_an_unregistered_agent_cannot_act_at_the_hub(server, tokens):
    made = server.new_token("agent", name=hubs.unique("ghost"))
    name, ghost, people = made["name"], hubs.Hub(server, made["token"]), hubs.Hub(server, "admin")
    project = people.project(name="haunted")
    task = people.task(project)
    acts = [("POST", "/messages/send", {"from": name, "to": "anybody", "content": "boo"}),
            ("POST", f"/projects/{project}/tasks/{task}/claim", {"agent": name}),
            ("POST", f"/projects/{project}/tasks", {"title": "mine"}),
            ("POST", "/projects", {"name": "mine", "created_by": name})]
    for method, path, body in acts:
        reply = server.request(method, path, json=body, token=made["token"])
        assert reply.status == 403 and "register" in reply.body.decode(), (path, reply)
    assert server.get("/agents", token=made["token"]).status == 200, "it may look"
    assert server.post(f"/agents/{name}/pause", {"reason": "stop"}).status == 200, "people stop it first"
    reply = server.post("/agents/register", {"name": name}, token=made["token"])
    assert reply.status == 201, reply
    reply = server.post(acts[1][1], acts[1][2], token=made["token"])
    assert reply.status == 409 and "paused" in reply.body.decode(), reply
    assert server.post(f"/agents/{name}/resume", {}).status == 200
    assert server.post(acts[1][1], acts[1][2], token=made["token"]).status == 200
    assert server.post("/agents/no-token-has-this-name/pause", {}).status == 404


def test_an_unregistered_agent_is_revoked(server):
    made = server.new_token("agent", name=hubs.unique("ghost"))
    assert server.post(f"/agents/{made['name']}/revoke", {"reason": "stop"}).status == 200
    assert server.get(f"/agents/{made['name']}").json()["status"] == "revoked"


# ---- the command line ----

def test_the_command_line_gives_and_shows(server, tokens, linked):
    alice, theirs = tokens["theirs"]["name"], tokens["theirs"]["token"]

    def atoll(*args):
        return server.cli(*args, check=True).stdout

    box = atoll("create", "--storage", "memory", "--owner", alice).strip()
    assert server.get(f"{BOXES}/{box}", token=theirs).json()["owner"] == alice
    assert alice in atoll("show", box)
    box2 = atoll("create", "--storage", "memory", "--share-with", alice, "--share-with", "bob").strip()
    assert server.get(f"{BOXES}/{box2}").json()["shared_with"] == [alice, "bob"]
    assert "bob" in atoll("set", box2, "--share-with", "bob", "--visibility", "tenant")
    assert server.get(f"{BOXES}/{box2}", token=theirs).status == 200, "by its visibility"
    atoll("set", box2, "--share-with", "", "--visibility", "private")
    assert server.get(f"{BOXES}/{box2}", token=theirs).status == 404
    assert server.cli("set", box2, "--visibility", "all").returncode == 64
    volume = "cli" + secrets.token_hex(3)
    atoll("volume", "create", volume, "--size", "32M", "--visibility", "tenant")
    assert server.get(f"/api/v1/volumes/{volume}", token=theirs).status == 200
    atoll("volume", "set", volume, "--visibility", "private", "--size", "48M")
    assert server.get(f"/api/v1/volumes/{volume}", token=theirs).status == 404
    assert server.get(f"/api/v1/volumes/{volume}").json()["bytes"] == 48 << 20
    atoll("agent", "set", linked, "--share-with", alice)
    assert server.get(f"/api/v1/agents/{linked}", token=theirs).status == 200
    atoll("agent", "set", linked, "--share-with", "")
    assert server.get(f"/api/v1/agents/{linked}", token=theirs).status == 404
    assert server.cli("agent", "set", "no-such-machine", "--share-with", alice).returncode != 0
    atoll("rm", box, box2)
    atoll("volume", "rm", volume)


def test_who_a_machine_was_given_to_goes_with_its_secret(server, tokens, tmp_path):
    name, alice = f"machine-{secrets.token_hex(3)}", tokens["theirs"]
    for again in (False, True):
        secret = server.post("/api/v1/secrets", {"agent_id": name}).json()["secret"]
        (tmp_path / str(again)).mkdir()
        client = Client(server, name, secret, tmp_path / str(again)).start()
        expected = 404 if again else 200
        if not again:
            give(server, name, alice["name"])
            server.kill9_api()
            server.wait_ready()
            wait_until(client.connected, 20, "the machine to come back")
        assert server.get(f"/api/v1/agents/{name}", token=alice["token"]).status == expected
        ran = server.post(f"/api/v1/agents/{name}/commands", {"command": "true"}, token=alice["token"])
        assert ran.status == (404 if again else 201), ran
        client.stop()
        assert server.delete(f"/api/v1/secrets/{name}").status in (200, 204)


def test_the_unit_of_a_linked_machine_is_not_roots():
    unit = (harness.ROOT / "deploy" / "atoll-agent.service").read_text()
    user = re.search(r"^User=(\S+)$", unit, re.M)
    assert user and user[1] not in ("root", "0"), "commands there would be root's"
