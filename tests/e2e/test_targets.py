"""The same agents on REST, gRPC and the WebSocket, whether a name is a sandbox's or a linked agent's. Root only."""
import json
import os
import time
import uuid

import grpc
import harness
import pytest
from agents import Client, M, SERVICE
from terminal import Ws

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
AGENTS = "/api/v1/agents"
KINDS = ["sandbox", "link"]


@pytest.fixture
def agents(server, tmp_path):
    """One agent of each kind: {kind: name}."""
    names = {kind: f"{kind}-{uuid.uuid4().hex[:8]}" for kind in KINDS}
    box = harness.make_box(server, name=names["sandbox"])
    made = server.post("/api/v1/secrets", {"agent_id": names["link"]})
    client = Client(server, names["link"], made.json()["secret"], tmp_path).start()
    yield names
    client.stop()
    server.delete(f"/api/v1/sandboxes/{box}")
    server.delete(f"/api/v1/secrets/{names['link']}")


def call_exec(server, agent, command, *args, **fields):
    """All messages of an Exec call by grpcio."""
    with grpc.insecure_channel(server.host) as channel:
        call = channel.unary_stream(SERVICE + "Exec", lambda m: m.SerializeToString(), M["ExecOutput"].FromString)
        asked = M["ExecRequest"](agent_id=agent, command=command, args=args, **fields)
        return list(call(asked, metadata=[("authorization", "Bearer " + server.token)], timeout=20))


def ask(ws, kind, **message):
    """The answer of this type; the socket says other things in between."""
    ws.send(json.dumps(message))
    while (got := json.loads(ws.recv()[1]))["type"] != kind:
        pass
    return got


@pytest.mark.parametrize("kind", KINDS)
def test_exec_reaches_every_agent_that_is_listed(server, agents, kind):
    name = agents[kind]
    assert name in [agent["id"] for agent in server.get(AGENTS).json()["agents"]]
    got = call_exec(server, name, "sh", "-c", 'echo "$WHAT"; echo err >&2; exit 3', env={"WHAT": "a b"},
                    working_dir="/tmp")
    said = {stream: b"".join(m.data for m in got if m.stream == stream and not m.complete) for stream in (1, 2)}
    assert said == {1: b"a b\n", 2: b"err\n"}
    assert (got[-1].complete, got[-1].exit_code, got[-1].error) == (True, 3, "")
    assert {m.command_id for m in got} == {got[-1].command_id} and got[-1].command_id
    read = server.get(f"{AGENTS}/{name}/commands/{got[-1].command_id}").json()
    assert (read["state"], read["exit_code"]) == ("exited", 3)


@pytest.mark.parametrize("kind", KINDS)
def test_exec_names_a_program_that_is_missing_and_a_timeout(server, agents, kind):
    slow = call_exec(server, agents[kind], "sleep", "30", timeout_seconds=1)
    assert slow[-1].complete and slow[-1].exit_code != 0 and slow[-1].error == "Command timed out"
    try:
        missing = call_exec(server, agents[kind], "/no/such/program")
        assert missing[-1].complete and missing[-1].exit_code != 0
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "program not found" in error.details()


@pytest.mark.parametrize("kind", KINDS)
def test_commands_of_every_agent_by_rest(server, agents, kind):
    path = f"{AGENTS}/{agents[kind]}/commands"
    done = server.post(path + "?wait=20000", {"command": "sh", "args": ["-c", "echo out; echo err >&2; exit 4"],
                                              "session_name": "job"})
    assert done.status == 201, done
    done = done.json()
    assert (done["state"], done["exit_code"], done["error"], done["pty"], done["session_name"]) == \
        ("exited", 4, None, False, "job")
    assert (done["stdout_bytes"], done["stderr_bytes"]) == (4, 4)
    one = f"{path}/{done['command_id']}"
    assert [c["command_id"] for c in server.get(path).json()["items"]] == [done["command_id"]]
    for stream, said in (("stdout", b"out\n"), ("stderr", b"err\n")):
        reply = server.get(f"{one}/output?stream={stream}&from=0")
        assert (reply.body, reply.headers["x-atoll-next"], reply.headers["x-atoll-state"]) == (said, "4", "exited")
    with server.sse(one + "/output") as events:
        assert [event["event"] for event in events.take(3)] == ["stdout", "stderr", "exit"]
    for part in (done["command_id"][:8], "none"):
        assert server.get(f"{path}/{part}").status == 404, "a whole id is needed"


@pytest.mark.parametrize("kind", KINDS)
def test_input_signals_and_sizes_reach_every_agent(server, agents, kind):
    path = f"{AGENTS}/{agents[kind]}/commands"
    cat = server.post(path, {"command": "cat"}).json()["command_id"]
    assert server.post(f"{path}/{cat}/stdin", {"text": "one "}).json()["state"] == "running"
    assert server.post(f"{path}/{cat}/stdin", {"data": "dHdv", "eof": True}).status == 200
    assert server.get(f"{path}/{cat}?wait=10000").json()["exit_code"] == 0
    assert server.get(f"{path}/{cat}/output").body == b"one two"
    assert server.post(f"{path}/{cat}/stdin", {"text": "late"}).status == 409
    loop = server.post(path, {"command": "sleep", "args": ["60"]}).json()["command_id"]
    assert server.post(f"{path}/{loop}/signal", {"signal": "KILL"}).status == 200
    assert server.get(f"{path}/{loop}?wait=10000").json()["exit_code"] == 137
    shell = server.post(path, {"command": "read a; stty size", "allocate_pty": True, "pty_rows": 30,
                               "pty_cols": 90}).json()["command_id"]
    assert server.post(f"{path}/{shell}/resize", {"rows": 33, "cols": 101}).status == 200
    assert server.post(f"{path}/{shell}/stdin", {"text": "\r"}).status == 200
    server.get(f"{path}/{shell}?wait=10000")
    assert b"33 101" in server.get(f"{path}/{shell}/output").body


def test_what_one_agent_cannot_do_is_refused_by_name(server, agents):
    path = f"{AGENTS}/{agents['sandbox']}/commands"
    refused = server.post(path, {"command": "/no/such/program"})
    assert refused.status == 422 and refused.json()["error"].startswith("command: program not found"), refused
    refused = server.post(path, {"command": "id", "run_as": "daemon"})
    assert refused.status == 400 and "agent or root" in refused.json()["error"], refused
    for verb in ("start", "stop", "destroy"):
        refused = server.post(f"{AGENTS}/{agents['link']}/{verb}")
        assert refused.status == 501 and "runs elsewhere" in refused.json()["error"], refused
    assert server.get(f"{AGENTS}/none/commands").status == 404


def test_rest_and_the_websocket_list_the_same(server, agents):
    ws = Ws(server, "/ws")
    rest = {agent["id"]: agent for agent in server.get(AGENTS).json()["agents"]}
    listed = {agent["id"]: agent for agent in ask(ws, "agent_list", type="list_agents")["agents"]}
    assert set(rest) == set(listed) == set(agents.values())
    for name in rest:
        for key in ("hostname", "ip_address", "status", "connected_at"):
            assert rest[name][key] == listed[name][key], (name, key)
        assert abs(rest[name]["last_heartbeat"] - listed[name]["last_heartbeat"]) < 10000
    inside = call_exec(server, agents["sandbox"], "hostname")
    assert inside[0].data.decode().strip() == rest[agents["sandbox"]]["hostname"], "the name it has inside"


def test_the_heartbeat_of_a_quiet_sandbox_advances(server, agents):
    def beat():
        return server.get(f"{AGENTS}/{agents['sandbox']}").json()["last_heartbeat"]

    before = beat()
    assert abs(before / 1000 - time.time()) < 5
    harness.wait_until(lambda: beat() > before + 500, 5, "the heartbeat to advance", 0.2)
    box = server.get(f"/api/v1/sandboxes/{agents['sandbox']}").json()["id"]
    assert server.post(f"/api/v1/sandboxes/{box}/pause").status == 200
    frozen = beat()
    time.sleep(0.6)
    assert beat() == frozen, "one that does not run has no heartbeat"
    assert server.post(f"/api/v1/sandboxes/{box}/resume").status == 200
