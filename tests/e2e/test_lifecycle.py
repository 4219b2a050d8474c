"""Sandboxes over time: asleep and awake, stopped and started, and many at once. Root only."""
import concurrent.futures
import json
import os

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


@pytest.fixture
def boxes(server):
    """The server, with no sandbox before and after."""
    yield server
    for box in server.get(BOXES).json()["items"]:
        assert server.delete(f"{BOXES}/{box['id']}").status == 200
    assert list((server.state / "boxes").iterdir()) == []


def make(server, **wish):
    reply = server.post(BOXES, wish)
    assert reply.status == 201, reply
    assert reply.json()["state"] == "running"
    return reply.json()["id"]


def run(server, box, *argv, **wish):
    reply = server.post(f"{BOXES}/{box}/execs?wait=20000", {"argv": list(argv), **wish})
    assert reply.status == 201, reply
    return reply.json()


def state(server, box):
    return next(b["state"] for b in server.get(BOXES).json()["items"] if b["id"] == box)


# ---- what the answer says ----

def test_the_answer_says_where_files_go_and_how_it_began(boxes):
    box = boxes.post(BOXES, {}).json()
    assert box["storage"] in ("memory", "disk") and box["start"] in ("cold", "warm") and box["create_us"] > 0
    later = boxes.get(f"{BOXES}/{box['id']}").json()
    assert later["start"] is None and later["create_us"] == 0 and later["storage"] == box["storage"]


@pytest.mark.parametrize("wish, status, field", [
    ({"storage": "tape"}, 400, "storage"), ({"image": "nowhere"}, 422, "image"),
    ({"volumes": [{"volume": "none", "path": "/x"}]}, 400, "volumes[0].volume"),
    ({"volumes": [{"path": "/x"}]}, 400, "volumes[0].volume"),
    ({"binds": [{"ticket": "00", "path": "/x"}]}, 400, "binds[0].ticket"),
    ({"binds": [{"ticket": "0" * 32, "path": "relative"}]}, 400, "binds[0].path"),
    ({"binds": [{"ticket": "0" * 32, "path": "/dev/x"}]}, 400, "binds[0].path"),
    ({"binds": [{"ticket": "0" * 32, "path": "/a/../b"}]}, 400, "binds[0].path"),
    ({"idle": {"after_ms": 5, "action": "pause"}}, 400, "idle.after_ms"),
    ({"idle": {"after_ms": 5000, "action": "sing"}}, 400, "idle.action"),
    ({"idle": {"after_ms": 5000}}, 400, "idle.action"),
    ({"storage": "memory", "idle": {"after_ms": 5000, "action": "stop"}}, 400, "idle.action"),
])
def test_a_wrong_wish_names_the_field(boxes, wish, status, field):
    reply = boxes.post(BOXES, wish)
    assert reply.status == status and reply.error["field"] == field, reply
    assert boxes.get(BOXES).json()["items"] == []


# ---- asleep and awake ----

def test_idle_pauses_and_a_command_wakes(boxes):
    box = make(boxes, storage="memory", idle={"after_ms": 300, "action": "pause"})
    run(boxes, box, "sh", "-c", "echo kept > /tmp/file")
    harness.wait_until(lambda: state(boxes, box) == "paused", 10, "asleep")
    done = run(boxes, box, "cat", "/tmp/file")
    assert done["output"] == "kept\n" and done["exit_code"] == 0
    assert boxes.get(f"{BOXES}/{box}").json()["asleep"] is False
    harness.wait_until(lambda: state(boxes, box) == "paused", 10, "asleep again")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in pool.map(lambda _: run(boxes, box, "echo", "hi"), range(8)):
            assert done["output"] == "hi\n"


def test_a_pause_by_hand_is_not_undone(boxes):
    box = make(boxes, storage="memory", idle={"after_ms": 60000, "action": "pause"})
    assert boxes.post(f"{BOXES}/{box}/pause").status == 200
    assert boxes.post(f"{BOXES}/{box}/execs", {"argv": ["true"]}).status == 409
    assert boxes.post(f"{BOXES}/{box}/resume").status == 200


def test_idle_deletes(boxes):
    box = make(boxes, storage="memory", idle={"after_ms": 200, "action": "delete"})
    harness.wait_until(lambda: boxes.get(BOXES).json()["items"] == [], 10, "gone")
    assert boxes.get(f"{BOXES}/{box}").status == 404


def test_a_running_command_is_no_idleness(boxes):
    box = make(boxes, storage="memory", idle={"after_ms": 300, "action": "delete"})
    done = run(boxes, box, "sleep", "1.2")
    assert done["exit_code"] == 0


def test_the_command_line_knows_idle(boxes):
    made = boxes.cli("create", "--storage", "memory", "--idle", "1h:pause", "--json", check=True)
    box = json.loads(made.stdout)
    assert box["idle"] == {"after_ms": 3600000, "action": "pause"}
    assert boxes.cli("create", "--idle", "soon").returncode == 64
    assert boxes.cli("create", "--volume", "nopath").returncode == 64
    stop = boxes.cli("stop", box["id"])
    assert stop.returncode == 3 and "memory" in stop.stderr


# ---- many at once ----

@pytest.mark.timeout(180)
def test_three_hundred_at_once_where_two_hundred_are_allowed(start_server):
    server = start_server(args=["--sandboxes-max", "200"])
    wish = {"storage": "memory", "memory": 16 << 20, "disk": 1 << 20}
    with concurrent.futures.ThreadPoolExecutor(300) as pool:
        replies = list(pool.map(lambda _: server.post(BOXES, wish, timeout=120), range(300)))
    made = [r.json()["id"] for r in replies if r.status == 201]
    refused = [r for r in replies if r.status != 201]
    assert len(made) == 200 and {r.status for r in refused} == {429}
    assert all("sandboxes_max" in r.error["message"] for r in refused)
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert set(pool.map(lambda i: server.delete(f"{BOXES}/{i}").status, made)) == {200}
    assert server.get(BOXES).json()["items"] == []
