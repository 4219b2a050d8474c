"""Sandboxes as agentic's clients see them: VMs, agents, operations. Root only."""
import os
import pathlib
import re
import subprocess

import harness
import images
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
VMS = "/api/v1/vms"
SMALL = {"vcpus": 1, "memory_mb": 64, "disk_gb": 1}


@pytest.fixture
def vms(server):
    yield server
    for box in server.get("/api/v1/sandboxes").json()["items"]:
        assert server.delete(f"/api/v1/sandboxes/{box['id']}").status == 200


def make(server, name):
    reply = server.post(VMS, {"name": name, **SMALL})
    assert reply.status == 202, reply
    operation = reply.json()["operation"]
    assert (operation["type"], operation["target"], operation["status"]) == ("vm_create", name, "running")
    path = f"/api/v1/operations/{operation['id']}"
    return harness.wait_until(lambda: (o := server.get(path).json())["status"] != "running" and o, 20, "the operation")


def code(reply):
    return reply.status, reply.json()["error"]["code"]


def test_a_vm_from_its_beginning_to_its_end(vms):
    done = make(vms, "agent-one")
    assert (done["status"], done["progress_percent"]) == ("completed", 100) and "error" not in done
    assert done["result"]["vm"]["name"] == "agent-one" and done["result"]["tiers"]["vm"]["available"] is False
    listed = vms.get(VMS).json()
    vm, = listed["vms"]
    assert (listed["total"], vm["state"], vm["vcpus"], vm["memory_mb"]) == (1, "running", 1, 64)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", vm["uuid"])
    assert listed["tiers"]["vm"]["available"] is False
    one = vms.get(f"{VMS}/agent-one").json()
    assert one["agent"] == {"connected": False} and one["uuid"] == vm["uuid"]
    agent = vms.get("/api/v1/agents/agent-one").json()
    assert (agent["id"], agent["status"], agent["runtime"]) == ("agent-one", "Ready", "sandbox")
    assert vms.post(f"{VMS}/agent-one/start").json() == \
        {"vm": {"name": "agent-one", "state": "running"}, "message": "VM is already running"}
    assert code(vms.delete(f"{VMS}/agent-one")) == (409, "VM_RUNNING")
    events = vms.get("/api/v1/events?object=vm/agent-one&limit=1000").json()["items"]
    assert [e["type"] for e in events] == ["vm.provisioning.started", "vm.provisioning.completed"]
    deleted = vms.delete(f"{VMS}/agent-one?force=true")
    assert deleted.status == 200 and deleted.json()["deleted"] is True
    assert code(vms.get(f"{VMS}/agent-one")) == (404, "VM_NOT_FOUND")


def test_stop_and_start(vms):
    done = make(vms, "agent-two")
    if vms.get(f"/api/v1/sandboxes/{done['result']['vm']['sandbox_id']}").json()["storage"] != "disk":
        pytest.skip("no disks on this machine")
    assert vms.post(f"{VMS}/agent-two/stop").json()["vm"]["state"] == "shutdown"
    assert vms.get(f"{VMS}/agent-two").json()["state"] == "stopped"
    assert vms.get(VMS + "?state=running").json()["total"] == 0
    assert vms.get(VMS + "?state=stopped").json()["total"] == 1
    assert vms.post(f"{VMS}/agent-two/stop?force=true").json()["message"] == "VM is already stopped"
    assert vms.post(f"{VMS}/agent-two/destroy").json() == \
        {"vm": {"name": "agent-two", "state": "stopped"}, "message": "VM destroyed"}
    assert vms.get("/api/v1/agents/agent-two").json()["status"] == "Disconnected"
    assert vms.post("/api/v1/agents/agent-two/start").json()["vm"]["state"] == "running"
    assert vms.post(f"{VMS}/agent-two/destroy").json()["vm"]["state"] == "stopped"
    assert vms.delete(f"{VMS}/agent-two").json() == {"deleted": True, "name": "agent-two", "disk_deleted": True}


def test_names_and_prefixes(vms):
    make(vms, "agent-three")
    make(vms, "other")
    names = lambda query: sorted(v["name"] for v in vms.get(VMS + query).json()["vms"])  # noqa: E731
    assert names("") == ["agent-three"] and names("?prefix=*") == ["agent-three", "other"]
    assert names("?prefix=ot") == ["other"] and names("?prefix=none") == []
    assert code(vms.post(VMS, {"name": "other", **SMALL})) == (409, "VM_ALREADY_EXISTS")


@pytest.mark.parametrize("wish, status, word", [
    ({}, 400, "VALIDATION_ERROR"), ({"name": "UPPER"}, 400, "INVALID_VM_NAME"),
    ({"name": "-x"}, 400, "INVALID_VM_NAME"), ({"name": "a" * 64}, 400, "VALIDATION_ERROR"),
    ({"name": "x", "vcpus": 0}, 400, "VALIDATION_ERROR"), ({"name": "x", "memory_mb": 15}, 400, "VALIDATION_ERROR"),
    ({"name": "x", "tier": "vm"}, 501, "VM_TIER_UNAVAILABLE"), ({"name": "x", "start": False}, 400, "VALIDATION_ERROR"),
    ({"name": "x", "profile": "p", "loadout": "l"}, 400, "VALIDATION_ERROR"),
    ({"name": "x", "composition": {"init": "ubuntu"}}, 400, "VALIDATION_ERROR"),
    ({"name": "x", "unknown": 1}, 400, "VALIDATION_ERROR"),
])
def test_what_cannot_be_made(vms, wish, status, word):
    assert code(vms.post(VMS, wish)) == (status, word)
    assert vms.get(VMS + "?prefix=*").json()["vms"] == []


def test_words_for_what_is_not_there(vms):
    assert code(vms.get("/api/v1/operations/none")) == (404, "OPERATION_NOT_FOUND")
    assert code(vms.get(VMS + "?state=sideways")) == (400, "VALIDATION_ERROR")
    for verb in ("start", "stop", "destroy"):
        assert code(vms.post(f"{VMS}/none/{verb}")) == (404, "VM_NOT_FOUND")
    other = vms.new_token("admin", tenant="other")["token"]
    done = make(vms, "agent-four")
    assert code(vms.get(f"{VMS}/agent-four", token=other)) == (404, "VM_NOT_FOUND")
    assert vms.get(f"/api/v1/operations/{done['id']}", token=other).status == 404


def test_an_operation_that_fails_says_why_and_survives(start_server):
    server = start_server(args=["--sandboxes-max", "1"])
    assert make(server, "agent-a")["status"] == "completed"
    failed = make(server, "agent-b")
    assert failed["status"] == "failed" and "sandboxes" in failed["error"]
    server.kill9_api()
    server.wait_ready()
    assert server.get(f"/api/v1/operations/{failed['id']}").json() == failed
    server.delete(f"{VMS}/agent-a?force=true")


# ---- containers ----

CONTAINERS = "/api/v1/containers"


def test_a_container_is_a_sandbox(vms):
    box = vms.post("/api/v1/sandboxes", {"name": "one", "storage": "disk"}).json()
    listed = vms.get(CONTAINERS).json()
    assert listed == {"containers": [{"id": box["id"], "name": "one", "image": None, "status": "running"}], "total": 1}
    assert vms.get(f"{CONTAINERS}/one").json()["id"] == box["id"]
    reply = vms.get(f"{CONTAINERS}/two")
    assert (reply.status, reply.json()["error"]) == (404, "container not found: two")
    assert vms.get(f"{CONTAINERS}?status=frozen").status == 400
    stopped = {"name": "one", "action": "stop", "status": "stopped", "timeout": 3}
    for _ in range(2):  # also when it is so already
        reply = vms.post(f"{CONTAINERS}/one/stop?timeout=3")
        assert (reply.status, reply.json()) == (200, stopped)
    one = vms.get(f"{CONTAINERS}/one").json()
    assert one["status"] == "stopped" and one["finished_at"]
    assert vms.get(f"{CONTAINERS}?status=running").json()["total"] == 0
    assert vms.get(f"{CONTAINERS}?status=stopped").json()["total"] == 1
    assert vms.post(f"{CONTAINERS}/one/start").json() == {"name": "one", "action": "start", "status": "running"}
    assert vms.delete(f"{CONTAINERS}/one").json() == {"name": "one", "deleted": True}
    assert vms.delete(f"{CONTAINERS}/one").status == 404


def test_a_container_of_an_image(vms, tmp_path):
    archive = tmp_path / "small.tar"
    archive.write_bytes(images.tar(images.folder("bin"),
                                   images.entry("bin/sh", pathlib.Path("/bin/busybox").read_bytes(), mode=0o755)))
    done = subprocess.run([vms.binary, "image", "import", str(archive), "--name", "small"], capture_output=True,
                          env={**os.environ, "ATOLL_STATE": str(vms.state)})
    assert done.returncode == 0, done
    assert [i["ref"] for i in vms.get("/api/v1/container-images").json()["images"]] == ["small"]
    wish = {"name": "boxed", "image": "small", "env": ["A=1", {"key": "B", "value": "2"}]}
    reply = vms.post(CONTAINERS, wish)
    assert reply.status == 201 and reply.json()["status"] == "running", reply
    ran = vms.post("/api/v1/sandboxes/boxed/execs?wait=10000", {"argv": ["/bin/sh", "-c", "echo $A$B$AGENT_ID"]}).json()
    assert ran["output"] == "12boxed\n", ran
    assert vms.post(CONTAINERS, wish).status == 409
    for bad, status in (({"image": "none"}, 404), ({"env": {"A": "1"}}, 400), ({"env": ["A"]}, 400),
                        ({"name": ""}, 400), ({"mounts": ["/etc:/etc"]}, 400), ({"network": "host"}, 400),
                        ({"cmd": ["sh"]}, 400)):
        assert vms.post(CONTAINERS, {**wish, "name": "other", **bad}).status == status, bad
    assert vms.delete(f"{CONTAINERS}/boxed").status == 200
    assert vms.delete("/api/v1/images/small").status == 200


# ---- the command line ----

def test_the_tree_of_nouns(vms):
    def cli(*args):
        done = subprocess.run([vms.binary, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "ATOLL_STATE": str(vms.state)})
        assert done.returncode == 0, done
        return done.stdout

    made = cli("sandbox", "create", "--name", "noun", "--storage", "disk").strip()
    for words in (["sandbox", "list"], ["vm", "list"], ["agent", "list"], ["agents"], ["container", "list"]):
        assert "noun" in cli(*words), words
    for words in (["sandbox", "get"], ["vm", "get"], ["agent", "get"]):
        assert made in cli(*words, "noun"), words
    assert "stopped" in cli("vm", "destroy", "noun") and "running" in cli("agent", "start", "noun")
    assert cli("sandbox", "exec", made[:12], "--", "echo", "hi") == "hi\n", "the beginning of an id is enough"
    assert cli("session", "list") and cli("server", "status") and cli("config", "whoami")
    cli("sandbox", "delete", "noun")
