"""Sandboxes whose process 1 dies by itself: events, state, history, and the detection of a loop. Root only."""
import os
import pathlib
import signal

import pytest
from harness import delete_boxes, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


def kill_first(box):
    """SIGKILL for process 1 of the sandbox, by the pid that it has here."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            nspid = next(x for x in (entry / "status").read_text().splitlines() if x.startswith("NSpid")).split()
        except (OSError, StopIteration):
            continue
        if words[0] == b"atoll-init" and box.encode() in words and nspid[-1] == "1" and len(nspid) > 2:
            os.kill(int(entry.name), signal.SIGKILL)
            return
    raise AssertionError(f"no process 1 of {box}")


def state(server, box):
    return server.get(f"{BOXES}/{box}").json()


def crash(server, box):
    kill_first(box)
    return wait_until(lambda: (now := state(server, box))["state"] != "running" and now, 10, "its end")


def start(server, box):
    assert server.post(f"{BOXES}/{box}/start", timeout=30).status == 200


def events(server, *types):
    items = server.get(f"/api/v1/events?type={','.join(types)}&limit=1000").json()["items"]
    return [(e["type"], e["object"]) for e in items]


@pytest.fixture
def keeper(start_server):
    server = start_server()
    reply = server.post(BOXES, {"name": "keeper", "storage": "disk"}, timeout=60)
    if reply.status == 501:
        pytest.skip("no disks here")
    yield server, reply.json()["id"]
    delete_boxes(server)


def test_a_crash_is_told_and_seen(keeper):
    server, box = keeper
    assert not state(server, box)["crashed"]
    ended = crash(server, box)
    assert ended["crashed"] and not ended["crash_loop"] and "signal 9" in ended["reason"], ended
    assert server.get("/api/v1/vms/keeper").json()["state"] == "crashed"
    told = wait_until(lambda: server.get("/api/v1/events?type=vm.crashed").json()["items"], 5, "the event")
    assert told[0]["object"] == "vm/keeper" and told[0]["data"]["sandbox"] == box
    assert told[0]["data"]["uptime_seconds"] <= 60 and "signal 9" in told[0]["data"]["reason"]
    agent = server.new_token("agent")["token"]
    assert server.get(f"{BOXES}/keeper/crashes", token=agent).status == 404, "not its own"
    # Over a kill of the api process the state stays, and a start ends it.
    server.kill9_api()
    server.wait_ready()
    assert state(server, box)["crashed"] and server.get("/api/v1/vms/keeper").json()["state"] == "crashed"
    start(server, box)
    assert not state(server, box)["crashed"]
    assert [c["reason"] for c in server.get(f"{BOXES}/keeper/crashes").json()["items"]] == [ended["reason"]]


def test_what_was_asked_for_is_no_crash(keeper):
    server, box = keeper
    for _ in range(6):
        assert server.post(f"{BOXES}/{box}/stop", timeout=30).status == 200
        assert not state(server, box)["crashed"]
        assert server.get("/api/v1/vms/keeper").json()["state"] == "stopped"
        start(server, box)
    assert server.get(f"{BOXES}/{box}/crashes").json()["items"] == []
    assert events(server, "vm.crashed", "vm.crash_loop") == []


def test_five_crashes_are_a_loop(keeper):
    server, box = keeper
    for number in range(1, 7):
        ended = crash(server, box)
        assert ended["crash_loop"] is (number >= 5), number
        if number == 3:  # the count is kept
            server.kill9_api()
            server.wait_ready()
        start(server, box)
    assert state(server, box)["crash_loop"], "it has not run for five minutes yet"
    wait_until(lambda: len(events(server, "vm.crashed")) == 6, 5, "all events")
    assert events(server, "vm.crash_loop") == [("vm.crash_loop", "vm/keeper")], "told once"
    assert len(server.get(f"{BOXES}/{box}/crashes").json()["items"]) == 6
    shown = server.cli("show", box, check=True).stdout
    assert "crash_loop" in shown.replace(" ", "_").lower()
    assert server.cli("crashes", box, check=True).stdout.count("signal 9") == 6

    assert "atoll_sandbox_crash_loops_total 1" in server.get("/metrics").body.decode()


def test_the_history_goes_with_the_sandbox(keeper):
    server, box = keeper
    crash(server, box)
    wait_until(lambda: server.get(f"{BOXES}/{box}/crashes").json()["items"], 5, "the row")
    assert server.delete(f"{BOXES}/{box}").status == 200
    assert server.get(f"{BOXES}/{box}/crashes").status == 404
