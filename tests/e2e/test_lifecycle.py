"""Sandboxes over time: asleep and awake, stopped and started, killed and found again. Root only."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import threading
import time

import harness
import person
import pytest
from harness import make_box as make
from harness import run_in as run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


def state(server, box):
    return next(b["state"] for b in harness.listed(server, BOXES) if b["id"] == box)


# ---- what the answer says ----

def test_the_answer_says_where_files_go_and_how_it_began(boxes):
    box = boxes.post(BOXES, {}).json()
    assert box["storage"] in ("memory", "disk") and box["start"] in ("cold", "warm") and box["create_us"] > 0
    later = boxes.get(f"{BOXES}/{box['id']}").json()
    assert later["start"] is None and later["create_us"] == 0 and later["storage"] == box["storage"]


@pytest.mark.parametrize("wish, status, field", [
    ({"storage": "tape"}, 400, "storage"), ({"image": "nowhere"}, 404, "image"),
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
    ({"storage": "disk", "inodes": 5000}, 400, "inodes"),
])
def test_a_wrong_wish_names_the_field(boxes, wish, status, field):
    reply = boxes.post(BOXES, wish)
    assert reply.status == status and reply.error["field"] == field, reply
    assert harness.listed(boxes, BOXES) == []


# ---- asleep and awake ----

def test_idle_pauses_and_a_command_wakes(boxes):
    box = make(boxes, storage="memory", idle={"after_ms": 300, "action": "pause"})
    run(boxes, box, "sh", "-c", "echo kept > /tmp/file")
    harness.wait_until(lambda: state(boxes, box) == "paused", 10, "asleep")
    done = run(boxes, box, "cat", "/tmp/file")
    assert done["output"] == "kept\n" and done["exit_code"] == 0
    long = {"argv": ["sh", "-c", "until [ -e /tmp/over ]; do sleep 0.05; done"]}
    assert boxes.post(f"{BOXES}/{box}/execs", long).status == 201
    assert boxes.get(f"{BOXES}/{box}").json()["asleep"] is False
    run(boxes, box, "touch", "/tmp/over")
    harness.wait_until(lambda: state(boxes, box) == "paused", 10, "asleep again")
    assert boxes.get(f"{BOXES}/{box}/files/stat?path=/tmp/file").json()["size"] == 5
    harness.wait_until(lambda: state(boxes, box) == "paused", 10, "asleep again")
    assert boxes.get(f"{BOXES}/{box}/files?path=/tmp/file").body == b"kept\n"
    harness.wait_until(lambda: state(boxes, box) == "paused", 10, "asleep again")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in pool.map(lambda _: run(boxes, box, "echo", "hi"), range(8)):
            assert done["output"] == "hi\n"


@pytest.mark.parametrize("storage, action, asleep", [("memory", "pause", "paused"), ("disk", "stop", "stopped")])
def test_contents_wait_until_it_is_awake(boxes, storage, action, asleep):
    box = make(boxes, storage=storage, idle={"after_ms": 400, "action": action})
    path, body = f"{BOXES}/{box}/files?path=/workspace/f", os.urandom(3_000_000)
    harness.wait_until(lambda: state(boxes, box) == asleep, 10, "asleep")
    assert boxes.request("PUT", path, body=body, timeout=30).status == 200
    harness.wait_until(lambda: state(boxes, box) == asleep, 10, "asleep again")
    assert boxes.get(path, timeout=30).body == body
    harness.wait_until(lambda: state(boxes, box) == asleep, 10, "asleep again")
    head = f"Host: {boxes.host}\r\nAuthorization: Bearer {boxes.token}\r\nContent-Length: 100\r\n\r\n"
    for method in "GET", "PUT":  # some do not wait
        with boxes.connect() as sock:
            sock.sendall(f"{method} {path} HTTP/1.1\r\n{head}".encode())
    assert boxes.get(path, timeout=30).body == body
    assert boxes.get(f"{path}none", timeout=30).status == 404


def test_a_pause_by_hand_is_not_undone(boxes):
    box = make(boxes, storage="memory", idle={"after_ms": 60000, "action": "pause"})
    assert boxes.post(f"{BOXES}/{box}/pause").status == 200
    refused = boxes.post(f"{BOXES}/{box}/execs", {"argv": ["true"]})
    assert (refused.status, refused.json()["error"]["reason"]) == (409, "paused")
    assert "`atoll resume`" in boxes.cli("exec", box, "--", "true").stderr
    assert boxes.post(f"{BOXES}/{box}/resume").status == 200


def test_idle_deletes(boxes):
    box = make(boxes, storage="memory", idle={"after_ms": 200, "action": "delete"})
    harness.wait_until(lambda: harness.listed(boxes, BOXES) == [], 10, "gone")
    assert boxes.get(f"{BOXES}/{box}").status == 404


def test_a_running_command_is_no_idleness(boxes):
    after = 0.3 * harness.load()  # not before the command has begun
    box = make(boxes, storage="memory", idle={"after_ms": int(after * 1000), "action": "delete"})
    done = run(boxes, box, "sleep", str(4 * after))
    assert done["exit_code"] == 0


def test_the_command_line_knows_idle(boxes):
    made = boxes.cli("create", "--storage", "memory", "--idle", "1h:pause", "--json", check=True)
    box = json.loads(made.stdout)
    assert box["idle"] == {"after_ms": 3600000, "action": "pause"}
    assert boxes.cli("create", "--idle", "soon").returncode == 64
    assert boxes.cli("create", "--volume", "nopath").returncode == 64
    stop = boxes.cli("stop", box["id"])
    assert stop.returncode == 3 and "memory" in stop.stderr


def test_an_idle_policy_is_taken_back(start_server):
    server = start_server()
    hour = {"after_ms": 3600000, "action": "delete"}
    box = make(server, storage="memory", idle=hour)
    path = f"{BOXES}/{box}"

    def change(**what):
        return server.request("PATCH", path, what)
    for wrong in (0, {}, "off", []):
        assert change(idle=wrong).status == 400
    reply = change(idle=None)
    assert reply.status == 200 and reply.json()["idle"] is None, reply
    assert change(pids=77).json()["idle"] is None
    # The same by the command line, and what was not named stays.
    assert change(idle=hour).status == 200
    assert json.loads(server.cli("set", box, "--pids", "78", "--json", check=True).stdout)["idle"] == hour
    shown = json.loads(server.cli("set", box, "--idle", "0", "--json", check=True).stdout)
    assert shown["idle"] is None and shown["pids"] == 78
    assert change(labels={"a": "b", "c": "d"}).json()["labels"]
    assert server.cli("set", box, "--label", "", "--label", "x=y").returncode == 64
    assert json.loads(server.cli("set", box, "--label", "", "--json", check=True).stdout)["labels"] == {}
    server.kill9_api()
    harness.wait_until(server.is_ready, 10, "ready")
    assert server.get(path).json()["idle"] is None
    assert server.delete(path).status == 200


# ---- on disk ----

@pytest.fixture
def disks(boxes):
    """The same, where it keeps disks; no volume or snapshot before and after."""
    reply = boxes.post("/api/v1/volumes", {"name": "probe", "bytes": 1 << 20})
    if reply.status == 501:
        pytest.skip(reply.error["message"])
    assert reply.status == 201, reply
    assert boxes.delete("/api/v1/volumes/probe").status == 200
    yield boxes
    harness.delete_boxes(boxes)
    for kind in ("snapshots", "volumes"):
        for one in boxes.get(f"/api/v1/{kind}").json()["items"]:
            assert boxes.delete(f"/api/v1/{kind}/{one['id']}").status == 200


def sh(server, box, line, **wish):
    done = run(server, box, "sh", "-c", line, **wish)
    return done["output"].strip() if done["exit_code"] == 0 else f"{done['exit_code']}: {done['errors']}"


def test_files_survive_stop_and_start(disks):
    box = make(disks, name="keeper", storage="disk", env={"A": "b"}, pids=99)
    assert sh(disks, box, "echo kept > file; echo too > /tmp/file; mkdir -p deep/er") == ""
    going = disks.post(f"{BOXES}/{box}/execs", {"argv": ["sleep", "1000"]}).json()["id"]
    stopped = disks.post(f"{BOXES}/keeper/stop").json()
    assert stopped["state"] == "stopped" and "stopped by" in stopped["reason"]
    assert disks.get(f"{BOXES}/{box}/execs/{going}").json()["state"] == "lost"
    refused = disks.post(f"{BOXES}/{box}/execs", {"argv": ["true"]})
    assert (refused.status, refused.json()["error"]["reason"]) == (409, "stopped")
    assert "`atoll start`" in disks.cli("exec", box, "--", "true").stderr
    for _ in range(3):
        started = disks.post(f"{BOXES}/{box}/start").json()
        assert (started["id"], started["state"], started["reason"]) == (box, "running", None)
        assert sh(disks, box, "cat file /tmp/file; ls deep; echo $A") == "kept\ntoo\ner\nb"
        assert disks.get(f"{BOXES}/{box}/applied").json()["limits"]["pids"] == 99
        assert disks.post(f"{BOXES}/{box}/stop").status == 200
    assert disks.post(f"{BOXES}/{box}/stop").status == 409
    assert disks.post(f"{BOXES}/{box}/start").status == 200
    assert disks.post(f"{BOXES}/{box}/start").status == 409


def test_idle_stops_and_a_command_starts(disks):
    box = make(disks, storage="disk", idle={"after_ms": 300, "action": "stop"})
    assert sh(disks, box, "echo kept > file") == ""
    harness.wait_until(lambda: state(disks, box) == "stopped", 10, "asleep")
    assert sh(disks, box, "cat file") == "kept"


def test_an_init_that_is_killed_leaves_a_sandbox_that_can_be_started(disks):
    box = make(disks, storage="disk")
    assert sh(disks, box, "echo kept > file; sync") == ""
    pid = min(p for p in harness.descendants(disks.warden_pid)
              if f"/{box}" in harness.cgroups_of(p))
    os.kill(pid, 9)
    harness.wait_until(lambda: state(disks, box) == "stopped", 5, "stopped")
    assert "killed" in disks.get(f"{BOXES}/{box}").json()["reason"]
    assert disks.post(f"{BOXES}/{box}/start").status == 200
    assert sh(disks, box, "cat file") == "kept"


def test_a_full_disk_is_full_inside_and_can_be_made_larger(disks):
    box = make(disks, storage="disk", disk=16 << 20)
    assert "space" in sh(disks, box, "head -c 60000000 /dev/zero > big") or \
        "quota" in sh(disks, box, "head -c 60000000 /dev/zero > big")
    changed = disks.request("PATCH", f"{BOXES}/{box}", json={"disk": 128 << 20, "memory": 96 << 20})
    assert changed.status == 200 and changed.json()["disk"] == 128 << 20, changed
    assert sh(disks, box, "rm -f big; head -c 60000000 /dev/zero > big && stat -c %s big") == "60000000"
    assert disks.get(f"{BOXES}/{box}/applied").json()["limits"]["memory"] == 96 << 20


def test_snapshot_rollback_and_create_from_it(disks):
    box = make(disks, storage="disk", name="work")
    assert sh(disks, box, "echo one > file") == ""
    going = disks.post(f"{BOXES}/{box}/execs", {"command": "while :; do echo x; sleep 0.01; done"}).json()["id"]
    snap = disks.post(f"{BOXES}/work/snapshots", {"name": "first"})
    assert snap.status == 201 and snap.json()["sandbox"] == box, snap
    assert disks.post(f"{BOXES}/work/snapshots", {"name": "first"}).status == 409
    size = disks.get(f"{BOXES}/{box}/execs/{going}").json()["stdout_bytes"]
    harness.wait_until(lambda: disks.get(f"{BOXES}/{box}/execs/{going}").json()["stdout_bytes"] > size,
                       5, "it goes on after the snapshot")
    assert sh(disks, box, "echo two > file; touch other") == ""
    back = disks.post(f"{BOXES}/work/rollback", {"snapshot": "first"})
    assert back.status == 200 and back.json()["execs_ended"] == 1 and back.json()["state"] == "running", back
    assert disks.get(f"{BOXES}/{box}/execs/{going}").json()["state"] == "lost"
    assert sh(disks, box, "cat file; ls") == "one\nfile"
    assert disks.post(f"{BOXES}/work/stop").status == 200
    assert disks.post(f"{BOXES}/work/rollback", {"snapshot": "first"}).json()["state"] == "stopped"
    assert disks.post(f"{BOXES}/work/rollback", {"snapshot": "none"}).status == 404
    other = make(disks, from_snapshot=snap.json()["id"])
    assert sh(disks, other, "cat file") == "one"
    assert disks.delete(f"{BOXES}/work").status == 200
    assert [s["id"] for s in disks.get("/api/v1/snapshots").json()["items"]] == [snap.json()["id"]]
    assert sh(disks, make(disks, from_snapshot="first"), "cat file") == "one"
    assert disks.delete("/api/v1/snapshots/first").status == 200
    assert sh(disks, other, "cat file") == "one"
    assert disks.post(BOXES, {"from_snapshot": "first"}).error["field"] == "from_snapshot"


def test_forks_go_their_own_ways(disks):
    box = make(disks, storage="disk")
    assert sh(disks, box, "echo both > file") == ""
    reply = disks.post(f"{BOXES}/{box}/fork", {"name": "child"})
    assert reply.status == 201 and reply.json()["state"] == "running", reply
    child = reply.json()["id"]
    assert sh(disks, child, "cat file; echo child > file; echo $ATOLL_SANDBOX") == f"both\n{child}"
    assert sh(disks, box, "cat file") == "both"
    assert disks.delete(f"{BOXES}/{box}").status == 200
    assert sh(disks, child, "cat file") == "child"


def test_volumes_are_shared_and_kept(disks):
    volumes = "/api/v1/volumes"
    assert disks.post(volumes, {"name": "data", "bytes": 8 << 20}).status == 201
    assert disks.post(volumes, {"name": "data", "bytes": 8 << 20}).status == 409
    assert disks.post(volumes, {"name": "Data", "bytes": 8 << 20}).error["field"] == "name"
    assert disks.post(volumes, {"name": "tiny", "bytes": 1}).error["field"] == "bytes"
    root = make(disks, user="root", volumes=[{"volume": "data", "path": "/data"}])
    assert sh(disks, root, "stat -c %u:%g /data; echo root > /data/root; cat /data/root") == "1000:1000\nroot"
    assert disks.delete(f"{BOXES}/{root}").status == 200
    one = make(disks, storage="memory", volumes=[{"volume": "data", "path": "/data"}])
    two = make(disks, volumes=[{"volume": "data", "path": "/in/here", "read_only": True}])
    assert sh(disks, one, "echo shared > /data/file") == ""
    assert sh(disks, two, "cat /in/here/file") == "shared"
    assert "ead-only" in sh(disks, two, "echo no > /in/here/file")
    assert sh(disks, one, "head -c 3000000 /dev/zero > /data/big; sync") == ""
    shown = disks.get(f"{volumes}/data").json()
    assert shown["used"] >= 3000000 and set(shown["sandboxes"]) == {one, two}
    reply = disks.delete(f"{volumes}/data")
    assert reply.status == 409 and "in use" in reply.error["message"]
    assert disks.delete(f"{BOXES}/{one}").status == 200
    assert disks.post(f"{BOXES}/{two}/stop").status == 200
    assert disks.delete(f"{volumes}/data").status == 409, "a stopped one names it too"
    assert disks.post(f"{BOXES}/{two}/start").status == 200
    assert sh(disks, two, "cat /in/here/file") == "shared"
    assert disks.delete(f"{BOXES}/{two}").status == 200
    assert disks.delete(f"{volumes}/data").status == 200
    assert disks.get(f"{volumes}/data").status == 404


def test_the_command_line_does_all_of_it(disks):
    def cli(*argv):
        return disks.cli(*argv, check=True).stdout.strip()
    cli("volume", "create", "cache", "--size", "8M")
    box = cli("create", "--name", "cli", "--storage", "disk", "--volume", "cache:/cache")
    cli("exec", "cli", "--", "sh", "-c", "echo a > file; echo b > /cache/file")
    cli("snapshot", "create", "cli", "first")
    assert "first" in cli("snapshot", "ls", "cli")
    child = cli("fork", "cli", "--name", "child")
    assert cli("exec", "child", "--", "cat", "file", "/cache/file") == "a\nb"
    cli("exec", "cli", "--", "rm", "file")
    assert cli("rollback", "cli", "first") == box
    assert cli("exec", "cli", "--", "cat", "file") == "a"
    assert disks.cli("stop", box[:14]).returncode != 0, "what ends something needs a whole id or a name"
    assert cli("stop", box) == box and cli("start", box[:14]) == box
    assert json.loads(cli("set", "cli", "--memory", "300M", "--json"))["memory"] == 300 << 20
    assert json.loads(cli("volume", "show", "cache", "--json"))["name"] == "cache"
    other = cli("create", "--from-snapshot", "first")
    cli("rm", "cli", child, other)
    cli("snapshot", "rm", "first")
    cli("volume", "rm", "cache")
    assert disks.cli("volume", "show", "cache").returncode != 0
    assert disks.cli("set", "cli").returncode == 64


def test_the_size_of_all_disks_is_a_setting(start_server):
    server = start_server(args=["--disks-size", "2G"])
    if server.post("/api/v1/volumes", {"name": "first", "bytes": 1 << 20}).status == 501:
        pytest.skip("no disks here")
    image = (server.state / "disks.img").stat()
    assert image.st_size == 2 << 30 and image.st_blocks * 512 < 1 << 30
    assert server.delete("/api/v1/volumes/first").status == 200
    wrong = subprocess.run([harness.BIN, "serve", "--disks-size", "much"], capture_output=True, text=True, timeout=30)
    assert wrong.returncode != 0 and "disks_size" in wrong.stderr.replace("-", "_"), wrong


# ---- another release ----

def test_sandboxes_of_another_release_end_and_those_with_a_disk_go_on(start_server):
    server = start_server(binary=pathlib.Path(harness.BIN).parent / "other" / "atoll")
    if server.post("/api/v1/volumes", {"name": "probe", "bytes": 1 << 20}).status == 501:
        pytest.skip("no disks here")
    server.delete("/api/v1/volumes/probe")
    kept, memory = make(server, storage="disk"), make(server, storage="memory")
    assert run(server, kept, "sh", "-c", "echo here > f")["exit_code"] == 0
    command = server.post(f"{BOXES}/{kept}/execs", {"argv": ["sleep", "1000"]}).json()["id"]
    inside = set(harness.descendants(server.warden_pid)) - {server.api_pid()}
    server.process.terminate()
    assert server.process.wait(20) == 0
    server.binary = harness.BIN
    server.start()
    for box, ended, word in (kept, "stopped", "start it"), (memory, "failed", "in memory"):
        harness.wait_until(lambda: state(server, box) == ended, 10, ended)
        shown = subprocess.run([server.binary, "--state", str(server.state), "show", box], capture_output=True,
                               text=True, timeout=30)
        assert "another release" in shown.stdout and word in shown.stdout, shown
    assert not [p for p in inside if harness.alive(p)], "something of them still runs"
    assert list((server.state / "boxes").iterdir()) == []
    assert server.get(f"{BOXES}/{kept}/execs/{command}").json()["state"] == "lost"
    started = server.post(f"{BOXES}/{kept}/start")
    assert started.status == 200 and started.json()["state"] == "running", started
    assert run(server, kept, "cat", "f")["output"] == "here\n"
    for box in kept, memory:
        assert server.delete(f"{BOXES}/{box}").status == 200
    assert list((server.state / "boxes").iterdir()) == []


@pytest.mark.timeout(120)
def test_a_kill_of_the_api_between_any_two_steps_leaves_nothing_half(start_server):
    """Kills at random moments while sandboxes are made, forked, stopped and deleted."""
    server = start_server()
    if server.post("/api/v1/volumes", {"name": "probe", "bytes": 1 << 20}).status == 501:
        pytest.skip("no disks here")
    server.delete("/api/v1/volumes/probe")
    seed = random.randrange(1 << 30)
    rand = random.Random(seed)
    stop = threading.Event()

    def stir():
        while not stop.is_set():
            try:
                box = server.post(BOXES, {"storage": "disk", "memory": 32 << 20}, timeout=5).json()["id"]
                server.post(f"{BOXES}/{box}/snapshots", {"name": f"s-{rand.random()}"[2:20].replace(".", "")})
                server.post(f"{BOXES}/{box}/fork", {})
                server.post(f"{BOXES}/{box}/stop")
                server.post(f"{BOXES}/{box}/start")
                server.delete(f"{BOXES}/{box}")
            except (OSError, KeyError, ValueError, http.client.HTTPException):
                time.sleep(0.05)
    threads = [threading.Thread(target=stir) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            time.sleep(rand.uniform(0.2, 0.7))
            server.kill9_api()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    harness.wait_until(server.is_ready, 20, "ready")
    for box in harness.listed(server, BOXES):
        if box["state"] == "running":
            assert sh(server, box["id"], "echo alive") == "alive", f"seed {seed}: frozen or dead"
        assert server.delete(f"{BOXES}/{box['id']}").status == 200
    for snap in harness.listed(server, "/api/v1/snapshots"):
        assert server.delete(f"/api/v1/snapshots/{snap['id']}").status == 200
    assert list((server.state / "boxes").iterdir()) == [], f"seed {seed}"


# ---- warm ----

def ready(server, name="default"):
    return {p["name"]: p["ready"] for p in server.get("/api/v1/pools").json()["items"]}.get(name)


def test_a_warm_sandbox_is_taken_with_its_wishes(start_server):
    server = start_server(args=["--pool-default", "2"])
    harness.wait_until(lambda: ready(server) == 2, 10, "two warm ones")
    assert harness.listed(server, BOXES) == []
    leaks = server.cli("doctor", "--leaks").stdout  # other servers may be on this machine
    warm = [path.name for path in (server.state / "boxes").iterdir()]
    assert len(warm) == 2 and not any(one in leaks for one in [*warm, str(server.state)]), leaks
    reply = server.post(BOXES, {"memory": 64 << 20, "disk": 16 << 20, "pids": 33, "env": {"A": "late"},
                                "labels": {"l": "m"}, "name": "late"})
    box = reply.json()
    assert reply.status == 201 and box["start"] == "warm" and box["labels"] == {"l": "m"}, reply
    assert sh(server, "late", "echo $A $ATOLL_SANDBOX; hostname") == f"late {box['id']}\n{box['id']}"
    limits = server.get(f"{BOXES}/late/applied").json()["limits"]
    assert (limits["memory"], limits["pids"]) == (64 << 20, 33)
    assert "quota exceeded" in sh(server, "late", "head -c 40000000 /dev/zero > big")
    assert server.post(BOXES, {"user": "root"}).json()["start"] == "cold"
    harness.wait_until(lambda: ready(server) == 2, 10, "filled up again")
    server.kill9_api()
    harness.wait_until(server.is_ready, 10, "ready")
    assert sh(server, "late", "echo alive") == "alive"
    harness.wait_until(lambda: ready(server) == 2, 10, "new ones")
    made = {box["id"] for box in harness.listed(server, BOXES)}
    assert len(list((server.state / "boxes").iterdir())) == 4 and len(made) == 2
    for box in made:
        assert server.delete(f"{BOXES}/{box}").status == 200


def test_one_is_made_anew_on_request(start_server):
    server = start_server(args=["--pool-default", "1"])
    harness.wait_until(lambda: ready(server) == 1, 10, "a warm one")
    (warm,) = (path.name for path in (server.state / "boxes").iterdir())
    templates = "/api/v1/templates"
    assert server.request("PUT", f"{templates}/anew", json={"warm": False}).status == 200
    assert server.request("PUT", f"{templates}/any", json={"pids": 99}).status == 200
    assert server.get(f"{templates}/anew").json()["spec"]["warm"] is False
    assert server.get(f"{templates}/any").json()["spec"]["warm"] is None
    for wish in ({"warm": False}, {"template": "anew"}, {"template": "any", "warm": False}):
        reply = server.post(BOXES, wish)
        assert reply.status == 201 and reply.json()["start"] == "cold" and reply.json()["id"] != warm, reply
        assert server.delete(f"{BOXES}/{reply.json()['id']}").status == 200
    made = json.loads(server.cli("create", "--cold", "--json", check=True).stdout)
    assert made["start"] == "cold" and ready(server) == 1
    # A word of the creation says more than its template.
    box = server.post(BOXES, {"template": "anew", "warm": True}).json()
    assert box["start"] == "warm" and box["id"] == warm
    harness.wait_until(lambda: ready(server) == 1, 10, "another")
    assert server.post(BOXES, {"warm": True}).json()["start"] == "warm"
    reply = server.post(BOXES, {"warm": "no"})
    assert reply.status == 400 and reply.error["field"] == "warm", reply
    reply = server.request("PUT", "/api/v1/pools/anew", json={"size": 1, "template": "anew"})
    assert reply.status == 400 and reply.error["field"] == "template", reply
    for box in harness.listed(server, BOXES):
        assert server.delete(f"{BOXES}/{box['id']}").status == 200


def test_pools_are_set_and_kept(start_server):
    server = start_server(args=["--pool-default", "0"])
    assert json.loads(server.cli("pool", "set", "roots", "--size", "1", "--user", "root", "--storage", "disk",
                                 "--json", check=True).stdout)["user"] == "root"
    harness.wait_until(lambda: ready(server, "roots") == 1, 10, "a warm one")
    box = server.post(BOXES, {"user": "root", "storage": "disk", "disk": 16 << 20}).json()
    assert box["start"] == "warm"
    assert sh(server, box["id"], "id -u; echo kept > ~/file") == "0"
    assert server.post(f"{BOXES}/{box['id']}/stop").status == 200
    assert server.post(f"{BOXES}/{box['id']}/start").status == 200
    assert sh(server, box["id"], "cat ~/file") == "kept"
    assert server.delete(f"{BOXES}/{box['id']}").status == 200
    server.kill9_api()
    harness.wait_until(server.is_ready, 10, "ready")
    harness.wait_until(lambda: ready(server, "roots") == 1, 10, "kept over a kill")
    assert "roots" in server.cli("pool", "ls").stdout
    for name, wish, field in (("No", {"size": 1}, "name"), ("x", {"size": 65}, "size"), ("x", {}, "size"),
                              ("x", {"size": 1, "image": "none"}, "image")):
        reply = server.request("PUT", f"/api/v1/pools/{name}", json=wish)
        assert reply.status in (400, 422) and reply.error["field"] == field, reply
    assert server.cli("pool", "set", "roots", "--size", "0").returncode == 0
    harness.wait_until(lambda: list((server.state / "boxes").iterdir()) == [], 10, "gone")


# ---- at a terminal ----

def io_layers(server, box):
    layers = server.get(f"{BOXES}/{box}/applied").json()["layers"]
    return {one["layer"]: one for one in layers if one["layer"].startswith("io_")}


def test_limits_of_io(boxes):
    refused = boxes.post(BOXES, {"io_bytes": 65535})
    assert refused.status == 400 and refused.error["field"] == "io_bytes", refused
    refused = boxes.post(BOXES, {"io_ops": 9})
    assert refused.status == 400 and refused.error["field"] == "io_ops", refused
    answer = boxes.post(BOXES, {"storage": "disk", "io_bytes": 1 << 20, "io_ops": 1000})
    if answer.status == 501:  # asked for, and not to be had here
        assert answer.error["field"] == "io_bytes" and "allow_degraded" in answer.error["message"], answer
        pytest.skip("no limits of io here")
    box = answer.json()["id"]
    assert (answer.json()["io_bytes"], answer.json()["io_ops"]) == (1 << 20, 1000)
    layers = io_layers(boxes, box)
    assert layers["io_bytes"]["asked"] == layers["io_bytes"]["applied"] == str(1 << 20), layers
    assert layers["io_ops"]["applied"] == "1000", layers
    limits = boxes.get(f"{BOXES}/{box}/applied").json()["limits"]
    assert (limits["io_bytes"], limits["io_ops"]) == (1 << 20, 1000)
    assert set(boxes.get(f"{BOXES}/{box}/stats").json()["io"]) == {"read", "written"}
    assert sh(boxes, box, "head -c 3M /dev/urandom >f; sync f") == ""
    begun = time.monotonic()
    assert sh(boxes, box, "dd if=f of=/dev/null bs=256k iflag=direct 2>/dev/null") == ""
    assert time.monotonic() - begun >= 2  # 3 MiB at 1 MiB a second

    refused = boxes.request("PATCH", f"{BOXES}/{box}", json={"io_bytes": 1})
    assert refused.status == 400 and refused.error["field"] == "io_bytes", refused
    text = boxes.cli("set", box, "--io-bytes", "0", "--io-ops", "77", check=True).stdout
    assert "77" in text
    layers = io_layers(boxes, box)
    assert layers["io_bytes"]["asked"] is None and layers["io_bytes"]["applied"] is None, layers
    assert layers["io_ops"]["applied"] == "77", layers
    boxes.post(f"{BOXES}/{box}/stop", {})
    boxes.post(f"{BOXES}/{box}/start", {})
    assert io_layers(boxes, box)["io_ops"]["applied"] == "77"
    assert "Io " in boxes.cli("stats", box, check=True).stdout

    made = boxes.cli("create", "--storage", "memory", "--io-bytes", "2M", check=True).stdout.strip()
    assert io_layers(boxes, made)["io_bytes"]["applied"] == str(2 << 20)


def test_top_shows_the_busiest_first(boxes):
    quiet = make(boxes, storage="memory", name="quiet")
    busy = make(boxes, storage="memory", name="busy")
    assert boxes.post(f"{BOXES}/{busy}/execs", {"command": "while :; do :; done"}).status == 201
    top = json.loads(boxes.cli("top", "--json", check=True).stdout)["items"]
    assert [one["id"] for one in top] == [busy, quiet] and top[0]["cpu_percent"] > top[1]["cpu_percent"]
    text = boxes.cli("top", check=True).stdout
    assert text.index("busy") < text.index("quiet") and "\033" not in text


@pytest.mark.parametrize("ends", [b"q", b"\x03", "term"])
def test_top_on_a_terminal_refreshes_until_told_to_end(boxes, ends):
    box = make(boxes, storage="memory", name="seen-by-top")
    at = person.Terminal([boxes.binary, "top", "--every", "100ms"], "/",
                         {**os.environ, "ATOLL_STATE": str(boxes.state)})
    try:
        at.expect(b"\033[?1049h")
        for _ in range(3):
            assert box.encode() in at.expect(b"q ends")
        at.type(b"xyz")  # keys without a meaning are not shown
        if ends == "term":
            at.process.terminate()
        else:
            at.type(ends)
        shown = at.expect(b"\033[?1049l")
        assert b"xyz" not in shown and b"^C" not in shown
        assert at.end() == 0
    finally:
        at.close()


def test_a_list_on_a_terminal_cuts_no_id_and_shows_ages(boxes):
    box = make(boxes, storage="memory", name="a-name-that-is-as-long-as-names-may-well-be")
    at = person.Terminal([boxes.binary, "ls"], "/", {**os.environ, "ATOLL_STATE": str(boxes.state)})
    try:
        line = at.expect(b" ago").decode().splitlines()[-1]
        assert box in line and re.search(r"\d+m?s$", line), line
        assert at.end() == 0
    finally:
        at.close()
    assert re.search(box + r".* \d{4}-\d\d-\d\dT", boxes.cli("ls", check=True).stdout)


def test_a_shell_without_and_with_a_terminal(boxes):
    box = make(boxes, storage="memory", name="sh")
    done = subprocess.run([boxes.binary, "shell", "sh"], input="echo in $ATOLL_SANDBOX; exit 7\n", text=True,
                          capture_output=True, timeout=20, env={**os.environ, "ATOLL_STATE": str(boxes.state)})
    assert done.returncode == 7 and done.stdout == f"in {box}\n", done
    master, slave = os.openpty()
    child = subprocess.Popen([boxes.binary, "shell", "sh"], stdin=slave, stdout=slave, stderr=slave,
                             env={**os.environ, "ATOLL_STATE": str(boxes.state)}, start_new_session=True)
    os.close(slave)
    os.write(master, b"tty; exit 5\n")
    assert child.wait(20) == 5
    assert b"/dev/pts/" in harness.read_pty(master)
    assert boxes.cli("shell", "nobody").returncode not in (0, 127)


# ---- what is under way when somebody ends it ----

def operations(server):
    """How many file operations were started."""
    told = server.get("/metrics").body.decode()
    return int(re.search(r'^atoll_file_operations_total{what="started"} (\d+)', told, re.M)[1])


@pytest.mark.parametrize("how", ["stop", "rollback", "delete"])
def test_a_file_operation_that_is_interrupted_says_by_what(boxes, how):
    box = make(boxes, storage="disk")
    assert boxes.post(f"{BOXES}/{box}/snapshots", {"name": "before"}).status == 201
    before, sock = operations(boxes), boxes.connect()
    sock.sendall(f"PUT {BOXES}/{box}/files?path=/tmp/half HTTP/1.1\r\nHost: {boxes.host}\r\nContent-Length: 10\r\n"
                 f"Authorization: Bearer {boxes.token}\r\n\r\nhalf".encode())
    harness.wait_until(lambda: operations(boxes) > before, 30, "it is under way")
    if how == "delete":
        assert boxes.delete(f"{BOXES}/{box}").status == 200
    else:
        assert boxes.post(f"{BOXES}/{box}/{how}", {"snapshot": "before"} if how == "rollback" else None).status == 200
    with sock:
        sock.sendall(b" here.")  # who sends a body hears of it behind the last byte
        reply = harness.read_reply(sock, 30)
    word = {"stop": "stopped", "rollback": "rolled back", "delete": "deleted"}[how]
    assert reply.status == 409 and reply.error["message"].endswith(f"is being {word}"), reply
