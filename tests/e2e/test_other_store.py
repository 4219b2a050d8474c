"""A start with a database that is missing, older or another server's: it deletes nothing, says what it found, and the
right database finds everything as it was."""
import os
import shutil

import harness
import pytest
from harness import run_in, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, DISKS = "/api/v1/sandboxes", "/api/v1/disks"


def database(server):
    return server.state / "data" / "atoll.db"


def numbers(server):
    return [one["number"] for one in server.get(DISKS).json()["items"]]


def make(server, name):
    reply = server.post(BOXES, {"name": name, "storage": "disk"})
    assert reply.status == 201, reply
    assert run_in(server, name, "sh", "-c", f"echo {name} > /workspace/kept")["exit_code"] == 0


def kept(server, name):
    reply = server.post(f"{BOXES}/{name}/start")
    assert reply.status in (200, 409), reply  # 409: it runs
    return run_in(server, name, "cat", "/workspace/kept")["output"].strip()


def stop(server):
    for box in server.get(BOXES).json()["items"]:
        assert server.post(f"{BOXES}/{box['id']}/stop").status in (200, 409)
    server.stop(remove=False)


def refused(server):
    server.start(ready=False)
    server.process.wait(30 * harness.SLOW)
    return server.process.returncode, server.log()


@pytest.fixture
def server(start_server):
    made = start_server()
    make(made, "one")
    reply = made.post("/api/v1/volumes", {"name": "shelf", "bytes": 16 << 20})
    assert reply.status == 201, reply
    yield made
    harness.delete_boxes(made)


def test_without_its_database_it_does_not_start(server, tmp_path):
    stop(server)
    shutil.move(database(server), tmp_path / "away.db")
    for _ in range(2):
        status, log = refused(server)
        assert status != 0 and "has no database" in log and "--new-store" in log, log
        assert "disks.img" in log and "data/secrets.key" in log and not database(server).exists()
    # An empty one where somebody says so: nothing is lost by that either.
    server.args = ["--new-store"]
    server.start()
    assert server.get(BOXES).json()["items"] == [] and len(numbers(server)) == 2
    assert "the database does not name are kept aside" in server.log()
    server.stop(remove=False)
    server.args = []
    database(server).unlink()
    shutil.move(tmp_path / "away.db", database(server))
    server.start()
    assert kept(server, "one") == "one" and numbers(server) == []
    assert [v["state"] for v in server.get("/api/v1/volumes").json()["items"]] == ["ready"]


def test_without_its_data_directory_it_does_not_start(start_server):
    server = start_server()
    server.stop(remove=False)
    shutil.move(server.state / "data", server.top / "away")
    for _ in range(2):
        status, log = refused(server)
        assert status != 0 and "admin.token" in log.split("has no database")[-1], log
    shutil.move(server.top / "away", server.state / "data")
    server.start()


def test_an_older_backup_and_back(server, tmp_path):
    old, new = tmp_path / "old.bak", tmp_path / "new.bak"
    server.cli("backup", str(old), check=True)
    make(server, "two")
    server.cli("backup", str(new), check=True)
    stop(server)
    server.cli("restore", str(old), check=True)
    server.start()
    assert [box["name"] for box in server.get(BOXES).json()["items"]] == ["one"]
    two, = numbers(server)
    leaks = server.cli("doctor", "--leaks").stdout
    assert f"disk      {two}: the database does not name it" in leaks, leaks
    assert str(two) in server.cli("disk", "ls", check=True).stdout
    # What is made meanwhile takes nothing from it, and is kept in its turn.
    make(server, "three")
    assert kept(server, "one") == "one" and kept(server, "three") == "three"
    stop(server)
    server.cli("restore", str(new), check=True)
    server.start()
    assert sorted(box["name"] for box in server.get(BOXES).json()["items"]) == ["one", "two"]
    assert kept(server, "two") == "two" and kept(server, "one") == "one"
    three, = numbers(server)
    make(server, "four")
    assert kept(server, "four") == "four" and numbers(server) == [three]
    # It goes when somebody says so, and only an admin of the machine.
    assert server.delete(f"{DISKS}/{three}", token=server.new_token("operator")["token"]).status == 403
    assert server.delete(f"{DISKS}/x").status == 400 and server.delete(f"{DISKS}/{three + 100}").status == 404
    server.cli("disk", "rm", str(three), check=True)
    assert numbers(server) == [] and server.cli("disk", "rm", str(three)).returncode != 0
    assert [a for a in server.get("/api/v1/audit?limit=1000").json()["items"] if a["object"] == f"disk/{three}"]
    assert kept(server, "two") == "two"


def test_they_go_when_their_time_is_over(server, tmp_path):
    old = tmp_path / "old.bak"
    server.cli("backup", str(old), check=True)
    make(server, "two")
    stop(server)
    server.cli("restore", str(old), check=True)
    server.args = ["--disks-aside-keep", "1s"]
    server.start()
    wait_until(lambda: numbers(server) == [], 30 * harness.SLOW, "the end of the disk")
    assert "its time is over" in server.log() and kept(server, "one") == "one"
