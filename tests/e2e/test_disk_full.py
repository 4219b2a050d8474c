"""A full disk below the state directory: commands that run wait and say why, new ones are refused, the log has a line
when it begins and one when it ends, and everything goes on by itself when there is room again."""
import os
import subprocess
import threading
import time

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs a mount")
MB = 1 << 20
BOXES = "/api/v1/sandboxes"
PRINT = "i=0; while [ $i -lt 200000 ]; do echo line $i of what must not be lost; i=$((i+1)); done"


@pytest.fixture
def small(tmp_path):
    """A server whose state directory has 48 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    for place in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        place.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=755", "none", mount], check=True)
    server = harness.Server(state=mount / "state")
    server.log_path = tmp_path / "serve.log"  # not on the full disk
    try:
        server.start()
        yield server, mount / "filler"
    finally:
        server.stop(check=False)
        subprocess.run(["umount", "-l", mount], check=True)


def fill(filler):
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(bytes(65536)):
                pass
        except OSError:
            pass


def create(server, **wish):
    reply = server.post(BOXES, {"storage": "memory", **wish})
    assert reply.status == 201, reply
    return f"{BOXES}/{reply.json()['id']}"


def test_commands_wait_for_room_and_go_on(small):
    server, filler = small
    box = create(server)
    commands = [server.post(f"{box}/execs", {"argv": ["sh", "-c", "sleep 3; " + PRINT], "background": True}).json()
                for _ in range(2)]
    waited = {}

    def wait():
        waited["reply"] = server.request("GET", f"{box}/execs/{commands[0]['id']}?wait=60000", timeout=90)

    waiter = threading.Thread(target=wait)
    waiter.start()
    fill(filler)
    marked = len(server.log())
    assert server.post(f"{box}/execs", {"argv": ["true"]}).status == 507, "a command is started without room"
    looks = harness.wait_until(lambda: [c for c in (server.get(f"{box}/execs/{e['id']}").json() for e in commands)
                                        if c["state"] == "running" and c.get("reason")], 20, "a command that waits")
    assert "No space left" in looks[0]["reason"] or "no room" in looks[0]["reason"], looks[0]
    time.sleep(3)
    refused = server.post(f"{box}/execs", {"argv": ["true"]})
    assert (refused.status, refused.error["code"]) == (507, "no_space"), refused
    refused = server.post(BOXES, {"storage": "memory"})
    assert (refused.status, refused.error["code"]) == (507, "no_space"), refused
    health = server.get("/api/v1/health").json()
    assert health["status"] == "full" and "wait" in health["reason"], health
    assert server.get("/readyz").status == 200
    said = server.log()[marked:].splitlines()
    about = [line for line in said if "room" in line or "space" in line.lower()]
    assert len([line for line in about if "commands wait: " in line]) == 1 and len(about) <= 4, about
    filler.unlink()
    waiter.join(90)
    for command in commands:
        got = server.get(f"{box}/execs/{command['id']}?wait=60000", timeout=90).json()
        assert (got["state"], got["exit_code"], got.get("reason")) == ("exited", 0, None), got
        text = server.get(f"{box}/execs/{command['id']}/output?stream=stdout").body.decode()
        assert text == "".join(f"line {i} of what must not be lost\n" for i in range(200000))
    assert waited["reply"].status == 200 and waited["reply"].json()["exit_code"] == 0
    assert server.get("/api/v1/health").json()["status"] == "ok"
    assert server.post(f"{box}/execs", {"argv": ["true"]}).status == 201
    assert server.log()[marked:].count("commands go on") == 1


def test_what_runs_keeps_the_last_of_the_room(small):
    """With less than 8 MiB free nothing is started; what runs still writes its output and its end there."""
    server, filler = small
    box = create(server)
    command = server.post(f"{box}/execs", {"argv": ["sh", "-c", "sleep 2; echo done"], "background": True}).json()

    def leave(free):
        with open(filler, "ab") as file:
            file.truncate(0)
            now = os.statvfs(filler)
            os.posix_fallocate(file.fileno(), 0, now.f_bavail * now.f_frsize - free)

    leave(8 * MB - 4096)
    refused = server.post(f"{box}/execs?wait=1000", {"argv": ["true"]})
    assert (refused.status, refused.error["code"]) == (507, "no_space") and "are free" in refused.error["message"]
    assert server.get("/api/v1/health").json()["status"] == "full"
    ended = server.get(f"{box}/execs/{command['id']}?wait=20000", timeout=30).json()
    assert (ended["state"], ended["stdout_bytes"], ended.get("reason")) == ("exited", 5, None), server.log()
    leave(9 * MB)
    assert server.post(f"{box}/execs?wait=10000", {"argv": ["true"]}, timeout=20).status == 201
    assert server.get("/api/v1/health").json()["status"] == "ok"
