"""http://atoll.internal/hub/: the hub as a program inside reaches it, as the agent that an operator made of its
sandbox and as nobody else."""
import json
import os

import pytest
import harness
from test_egress_self import ask, make, one  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


@pytest.fixture
def agents(server):
    for name in ("ada", "bob"):
        assert server.post("/agents/register", {"name": name, "type": "worker", "capabilities": ["c"]}).status == 201
    project = server.post("/projects", {"name": "inside", "creator": "ada"}).json()["id"]
    return project


def task_of(server, project, title):
    return server.post(f"/projects/{project}/tasks", {"title": title, "creator": "bob"}).json()["id"]


def error_of(said):
    assert isinstance(said["error"], str) and said["error"], said  # the hub's own shape
    return said["error"]


def test_an_agent_does_its_work_from_inside(server, make, agents):
    box, project = make(agent="ada"), agents
    task = task_of(server, project, "one")
    tasks = f"/hub/projects/{project}/tasks"
    server.post("/messages/send", {"from": "bob", "to": "ada", "content": "hello"})
    got = ask(server, box, ("GET", "/hub", None), ("POST", "/hub/agents/ada/heartbeat", None),
              ("GET", "/hub/messages/ada?unread=true", None),
              ("POST", "/hub/messages/send", {"from": "ada", "to": "bob", "content": "hi"}),
              ("GET", f"{tasks}/ready", None), ("POST", f"{tasks}/{task}/claim", {"agent": "ada"}),
              ("PATCH", f"{tasks}/{task}", {"status": "in_progress", "agent": "ada"}),
              ("POST", "/hub/agents/ada/checkpoint", {"task_id": task, "progress": "half"}),
              ("GET", "/hub/agents/ada/checkpoint", None), ("GET", "/hub/tasks", None),
              ("GET", f"{tasks}/{task}", None))
    assert [status for status, _ in got] == [200] * 11, got
    assert got[0][1] == {"sandbox": box, "agent": "ada"}
    assert [m["content"] for m in got[2][1]] == ["hello"]
    assert one(server, box, "POST", f"/hub/messages/{got[2][1][0]['id']}/ack")[0] == 200
    assert [m["content"] for m in server.get("/messages/bob").json()] == ["hi"]
    assert task in [t["id"] for t in got[4][1]] and [t["id"] for t in got[9][1]] == [task]
    mine = server.get(f"/projects/{project}/tasks/{task}").json()
    assert (mine["assigned_to"], mine["status"]) == ("ada", "in_progress")
    rows = [a for a in server.get("/api/v1/audit?limit=1000").json()["items"] if a["actor"] == box]
    assert {"hub.claim_task", "hub.send_message", "hub.checkpoint"} <= {a["action"] for a in rows}
    assert {a["role"] for a in rows} == {"agent"}


def test_nobody_else(server, make, agents):
    """Whoever else is named, in the path, the query or the body: refused, and on record."""
    box, project = make(agent="ada"), agents
    task = task_of(server, project, "two")
    server.post("/messages/send", {"from": "ada", "to": "bob", "content": "for bob alone"})
    secret = server.get("/messages/bob?peek=true").json()[-1]
    asks = [("GET", "/hub/messages/bob", None), ("GET", "/hub/messages/bob?peek=true", None),
            ("POST", "/hub/agents/bob/heartbeat", None), ("POST", "/hub/agents/bob/checkpoint", {"progress": "x"}),
            ("GET", "/hub/agents/bob/checkpoint", None), ("GET", "/hub/agents/bob", None),
            ("POST", "/hub/messages/send", {"from": "bob", "to": "ada", "content": "not me"}),
            ("POST", f"/hub/projects/{project}/tasks/{task}/claim", {"agent": "bob"}),
            ("PATCH", f"/hub/projects/{project}/tasks/{task}", {"status": "in_progress", "agent": "bob"}),
            ("GET", "/hub/tasks?agent=bob", None), ("GET", "/hub/tasks?assigned_to=bob", None)]
    for asked, (status, said) in zip(asks, ask(server, box, *asks)):
        assert status == 403, (asked, status, said)
        error_of(said)
    status, _ = one(server, box, "POST", f"/hub/messages/{secret['id']}/ack")
    assert status in (403, 404)
    assert not [m for m in server.get("/messages/ada").json() if m["content"] == "not me"]
    assert server.get(f"/projects/{project}/tasks/{task}").json()["assigned_to"] is None
    refused = [a for a in server.get("/api/v1/audit?limit=1000").json()["items"]
               if a["actor"] == box and a["outcome"] != "ok"]
    assert refused


def test_a_token_inside_changes_nothing(server, make, agents):
    """Credentials of somebody else are not looked at: the sandbox is who it is."""
    box = make(agent="ada")
    admin = server.new_token("admin")["token"]
    program = f"""
import http.client
conn = http.client.HTTPConnection("198.18.0.1", 80, timeout=20)
conn.request("GET", "/hub/messages/bob", None, {{"Host": "atoll.internal", "Authorization": "Bearer {admin}"}})
print(conn.getresponse().status)
"""
    done = server.post(f"{BOXES}/{box}/execs?wait=60000", {"argv": ["python3", "-c", program]}, timeout=90).json()
    assert done["output"].strip() == "403", done


def test_only_what_an_agent_needs(server, make, agents):
    box, project = make(agent="ada"), agents
    asks = [("GET", "/hub/agents", None), ("POST", "/hub/agents/ada/resume", None),
            ("POST", "/hub/autonomy/set-mode", {"mode": "manual"}), ("POST", "/hub/agents/ada/pause", None),
            ("GET", "/hub/audit/log", None), ("PATCH", f"/hub/projects/{project}/wip", {"status": "ready", "limit": 1}),
            ("GET", "/hub/messages/graph", None), ("GET", "/hub/api/v1/sandboxes", None),
            ("POST", "/hub/api/v1/tokens", {"name": "x", "role": "agent"}), ("GET", "/hub/x", None),
            ("DELETE", f"/hub/projects/{project}", None), ("DELETE", "/hub/agents/ada", None),
            ("GET", "/hub/agents/../messages/bob", None), ("GET", "/hub//messages/ada", None),
            ("GET", "/hub/messages%2fada", None), ("GET", "/hubs", None), ("PUT", "/hub/agents/ada", None)]
    got = ask(server, box, *asks)
    for asked, (status, said) in zip(asks[:-2], got):
        assert status == 404, (asked, status, said)
        error_of(said)
    assert [status for status, _ in got[-2:]] == [404, 405]


README = """
import sys, threading
from spokes import AgentClient

client = AgentClient("http://atoll.internal/hub", "newcomer", "claude")
client.register()
client.set_capabilities(["code", "review", "testing"])
client.set_autonomy_mode("fully_autonomous")
project_id = client.create_project("mine")["id"]
assert client.join_project(project_id)
task_id = client.create_task(project_id, "t", "what to do")["id"]
assert client.claim_task(project_id, task_id)["ok"]
client.submit_checkpoint(task_id=task_id, state="implementing feature X", rationale="user story #42")
assert client.check_revocation() == {"pending": False}
assert client.transition_task(project_id, task_id, "in_progress")
assert client.transition_task(project_id, task_id, "in_review")
client.upload_file(project_id, "notes/a.txt", b"what I found\\n")
assert client.download_file(project_id, "notes/a.txt") == b"what I found\\n"
lease = client.take_lease(project_id, ["src"])
client.release_lease(project_id, lease["id"])
client.send_message(to="bob", content="PR #42 ready for review")
client.send_message(to="newcomer", content="to myself")
stop, seen = threading.Event(), []
def handle(message):
    seen.append(message["content"])
    stop.set()
client.run_autonomous_loop(handle, poll_interval=0.1, heartbeat_interval=1, stop_event=stop)
assert seen == ["to myself"]
try:
    AgentClient("http://atoll.internal/hub", "bob", "claude").register()
except Exception as error:
    print(type(error).__name__)
print("all of it")
"""


def test_the_sdk_does_all_of_its_readme_inside(server, make, agents):
    """spokes as it is shipped, in a sandbox whose agent has never registered; no token is sent, not even a set one."""
    box = make(agent="newcomer")
    source = harness.ROOT / "sdk" / "python" / "src"
    execs = f"{BOXES}/{box}/execs?wait=60000"
    server.post(execs, {"argv": ["mkdir", "spokes", "atoll"]}, timeout=90)
    for file in [*source.glob("spokes/*.py"), *source.glob("atoll/*.py")]:
        reply = server.request("PUT", f"{BOXES}/{box}/files?path={file.relative_to(source)}", body=file.read_bytes())
        assert reply.status in (200, 201, 204), reply
    done = server.post(execs, timeout=90, json={
        "argv": ["python3", "-W", "error", "-c", README], "env": {"ATOLL_TOKEN": "atl_none"}, "tty": True}).json()
    assert done["output"].split()[-4:] == ["Forbidden", "all", "of", "it"], done["output"]
    assert [m["content"] for m in server.get("/messages/bob").json()][-1] == "PR #42 ready for review"


def test_a_sandbox_that_is_nobody_is_told_so(server, make, agents):
    box = make()
    (status, me), (refused, said) = ask(server, box, ("GET", "/hub", None), ("GET", "/hub/messages/ada", None))
    assert status == 200 and me == {"sandbox": box, "agent": None}
    assert refused == 403 and "--agent" in error_of(said)


def test_only_operators_say_who_it_is(server, make, agents):
    agent = server.new_token("agent")["token"]
    reply = server.post(BOXES, {"ttl_ms": 600000, "storage": "memory", "egress": {"agent": "ada"}}, token=agent)
    if reply.status == 201:
        server.delete(f"{BOXES}/{reply.json()['id']}")
    assert reply.status == 403, reply
    box = make(agent="ada")
    path = f"{BOXES}/{box}/egress"
    assert server.request("PATCH", path, {"agent": "bob"}, token=agent).status == 403
    assert server.request("PATCH", f"{BOXES}/{box}", {"labels": {"agent": "bob"}}).status == 200
    assert one(server, box, "GET", "/hub")[1]["agent"] == "ada", "a label is no name"
    assert server.request("PATCH", path, {"agent": "bob"}).status == 200
    assert one(server, box, "GET", "/hub")[1]["agent"] == "bob"
    assert server.request("PATCH", path, {"agent": ""}).status == 200
    assert one(server, box, "GET", "/hub")[1]["agent"] is None
    for name in ("a/b", "..", "human", "register", " a", "a\u202eb", None, "x" * 65):
        assert server.request("PATCH", path, {"agent": name}).status == 400, name
    assert server.request("PATCH", path, {"agent": "x" * 64}).status == 200
    for layer in ("tenant", "node"):
        reply = server.request("PATCH", f"/api/v1/egress/policies/{layer}", {"agent": "ada"})
        assert reply.status == 400, reply


def test_pause_and_revocation_count_inside(server, make, agents):
    box = make(agent="ada")
    send = ("POST", "/hub/messages/send", {"from": "ada", "to": "bob", "content": "x"})
    assert server.post("/agents/ada/pause", {"reason": "wait"}).status == 200
    status, said = one(server, box, *send)
    assert status in (403, 409), said
    assert server.post("/agents/ada/resume").status == 200
    assert one(server, box, *send)[0] == 200


def test_bodies_and_paths_have_limits(server, make, agents):
    box = make(agent="ada")
    empty = len(json.dumps({"from": "ada", "to": "bob", "content": ""}))
    largest = json.dumps({"from": "ada", "to": "bob", "content": "x" * (32768 - empty)})
    path = "/messages/ada?after=" + "x" * (1024 - len("/messages/ada?after="))
    got = ask(server, box, ("POST", "/hub/messages/send", largest), ("POST", "/hub/messages/send", largest + " "),
              ("GET", "/hub" + path, None), ("GET", "/hub" + path + "x", None),
              ("POST", "/hub/messages/send", "{"), ("POST", "/hub/messages/send", {"from": "ada"}))
    assert [status for status, _ in got[:2]] == [200, 413], got
    assert got[2][0] != 413 and "too long" not in json.dumps(got[2][1]) and got[3][0] == 400
    assert "too long" in got[3][1]["error"]["message"]
    assert got[4][0] == 400 and got[5][0] == 400
    assert "required" in error_of(got[5][1])


def test_an_answer_that_is_too_long_is_told(server, make, agents):
    box = make(agent="ada")
    for _ in range(2):
        assert server.post("/messages/send", {"from": "bob", "to": "ada", "content": "x" * 40000}).status == 200
    (status, said), (fine, page) = ask(server, box, ("GET", "/hub/messages/ada?unread=true", None),
                                       ("GET", "/hub/messages/ada?unread=true&limit=1", None))
    assert status == 413 and "limit=" in said["error"]["message"]
    assert fine == 200 and len(page) == 1


def test_it_outlives_the_server_and_comes_by_the_command_line(start_server):
    server = start_server()
    server.post("/agents/register", {"name": "ada", "type": "worker", "capabilities": []})
    box = server.cli("create", "--agent", "ada", "--storage", "memory", "--ttl", "10m").stdout.strip()
    box = server.get(f"{BOXES}/{box}").json()["id"]
    assert server.get(f"{BOXES}/{box}").json()["egress"]["agent"] == "ada"
    server.kill9_api()
    server.wait_ready()
    assert one(server, box, "GET", "/hub")[1]["agent"] == "ada"
    assert server.cli("egress", "set", box, "--agent", "").returncode == 0
    assert one(server, box, "GET", "/hub")[1]["agent"] is None
    assert server.delete(f"{BOXES}/{box}").status == 200
