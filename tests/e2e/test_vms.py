"""Sandboxes as agentic's clients see them: VMs, agents, operations. Root only."""
import json
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


@pytest.mark.parametrize("path", [VMS + "/agent-kept?delete_disk=false&force=true",
                                  "/api/v1/agents/agent-kept?delete_disk=false"])
def test_a_disk_that_is_to_stay_does(vms, path):
    box = make(vms, "agent-kept")["result"]["vm"]["sandbox_id"]
    if vms.get(f"/api/v1/sandboxes/{box}").json()["storage"] != "disk":
        pytest.skip("no disks on this machine")
    execs = "/api/v1/sandboxes/{}/execs?wait=10000"
    assert vms.post(execs.format(box), {"command": "echo precious > ~/file"}).json()["exit_code"] == 0
    assert vms.delete(path.replace("=false", "=perhaps")).status == 400
    reply = vms.delete(path).json()
    assert (reply["deleted"], reply["name"], reply["disk_deleted"]) == (True, "agent-kept", False), reply
    assert vms.get(f"{VMS}/agent-kept").status == 404
    again = vms.post("/api/v1/sandboxes", {"from_snapshot": reply["snapshot"]}).json()["id"]
    assert vms.post(execs.format(again), {"command": "cat ~/file"}).json()["output"] == "precious\n"
    assert vms.delete(f"/api/v1/sandboxes/{again}").status == 200
    assert vms.delete(f"/api/v1/snapshots/{reply['snapshot']}").status == 200


def test_a_disk_that_is_not_there_is_not_said_to_stay(vms):
    box = vms.post("/api/v1/sandboxes", {"name": "agent-mem", "storage": "memory"}).json()["id"]
    assert vms.delete("/api/v1/agents/agent-mem?delete_disk=false").status == 409
    assert vms.get(f"/api/v1/sandboxes/{box}").json()["state"] == "running"


def operation(server, path, body=None, field=None, **kw):
    """The end of what was answered 202, and how far it was seen to be on the way."""
    reply = server.post(path, body, **kw)
    assert reply.status == 202, reply
    name = reply.json()["operation_id"] if field else reply.json()["operation"]["id"]
    return harness.wait_until(lambda: (o := server.get(f"/api/v1/operations/{name}").json())["status"] != "running"
                              and o, 30, "the operation")


def reasons(server, name):
    events = server.get(f"/api/v1/events?object=vm/{name}&limit=1000").json()["items"]
    return [(e["type"], e["data"].get("reason")) for e in events]


def on_disk(server, name):
    done = make(server, name)
    box = done["result"]["vm"]["sandbox_id"]
    if server.get(f"/api/v1/sandboxes/{box}").json()["storage"] != "disk":
        pytest.skip("no disks on this machine")
    return box


def test_one_that_is_not_to_run(vms):
    on_disk(vms, "agent-disk")
    reply = vms.post(VMS, {"name": "agent-cold", **SMALL, "start": False})
    path = f"/api/v1/operations/{reply.json()['operation']['id']}"
    done = harness.wait_until(lambda: (o := vms.get(path).json())["status"] != "running" and o, 20, "the operation")
    assert done["status"] == "completed" and done["result"]["vm"]["state"] == "stopped", done
    assert vms.get(f"{VMS}/agent-cold").json()["state"] == "stopped"
    assert vms.post(f"{VMS}/agent-cold/start").json()["vm"]["state"] == "running"


TRAP = ("trap 'echo TERM > asked; exit 3' TERM; trap 'echo HUP > asked; exit 3' HUP; touch ready; "
        "while :; do sleep 0.02; done")


@pytest.mark.parametrize("path, asked", [
    ("vms/{}/stop", True), ("vms/{}/stop?force=true", False), ("vms/{}/stop?timeout=0", False),
    ("vms/{}/destroy", False), ("agents/{}/stop", True), ("agents/{}/destroy", False),
    ("containers/{}/stop", True), ("containers/{}/stop?timeout=0", False)])
def test_who_is_asked_before_a_stop(vms, path, asked):
    box = on_disk(vms, "agent-asked")
    for tty in (False, True):
        vms.post(f"/api/v1/sandboxes/{box}/execs", {"command": f"mkdir d{tty} && cd d{tty} && " + TRAP, "tty": tty})
        harness.wait_until(lambda: vms.get(f"/api/v1/sandboxes/{box}/files?path=d{tty}/ready").status == 200, 10, "it")
    assert vms.post("/api/v1/" + path.format("agent-asked")).status == 200
    assert vms.get(f"{VMS}/agent-asked").json()["state"] == "stopped"
    assert vms.post(f"{VMS}/agent-asked/start").status == 200
    for tty in (False, True):
        heard = vms.get(f"/api/v1/sandboxes/{box}/files?path=d{tty}/asked")
        # When process 1 is killed the kernel hangs up its terminals, and kills who is there a moment later.
        hung_up = tty and not asked and heard.body == b"HUP\n"
        assert heard.status == (200 if asked else 404) or hung_up, (tty, heard)
    ends = [(e["state"], e["exit_code"]) for e in vms.get(f"/api/v1/sandboxes/{box}/execs").json()["items"]]
    assert ends == [("exited", 3) if asked else ("lost", -1)] * 2


@pytest.mark.parametrize("flags, asked", [(["--grace", "10s"], True), (["--force"], False)])
def test_who_is_asked_before_a_stop_by_the_command_line(vms, flags, asked):
    box = on_disk(vms, "agent-line")
    vms.post(f"/api/v1/sandboxes/{box}/execs", {"command": TRAP})
    harness.wait_until(lambda: vms.get(f"/api/v1/sandboxes/{box}/files?path=ready").status == 200, 10, "the trap")
    vms.cli("vm", "stop", "agent-line", *flags, check=True)
    assert vms.get(f"{VMS}/agent-line").json()["state"] == "stopped"
    end = vms.get(f"/api/v1/sandboxes/{box}/execs").json()["items"][0]
    assert (end["state"], end["exit_code"]) == (("exited", 3) if asked else ("lost", -1))


@pytest.mark.parametrize("path", ["vms/{}/stop?timeout=1", "containers/{}/stop?timeout=1"])
def test_who_does_not_hear_is_stopped_all_the_same(vms, path):
    box = on_disk(vms, "agent-deaf")
    line = "trap '' TERM; touch ready; while :; do sleep 0.02; done"
    vms.post(f"/api/v1/sandboxes/{box}/execs", {"command": line})
    harness.wait_until(lambda: vms.get(f"/api/v1/sandboxes/{box}/files?path=ready").status == 200, 10, "the trap")
    assert vms.post("/api/v1/" + path.format("agent-deaf")).status == 200
    assert vms.get(f"{VMS}/agent-deaf").json()["state"] == "stopped"


def test_one_that_is_frozen_is_not_waited_for(vms):
    box = on_disk(vms, "agent-frozen")
    vms.post(f"/api/v1/sandboxes/{box}/execs", {"command": TRAP})
    assert vms.post(f"/api/v1/sandboxes/{box}/pause").status == 200
    assert vms.post(f"{VMS}/agent-frozen/stop?timeout=3600").status == 200
    assert vms.get(f"{VMS}/agent-frozen").json()["state"] == "stopped"


@pytest.mark.parametrize("mode", ["graceful", "hard"])
def test_restart(vms, mode):
    """Commands are asked first, or not; the disk stays, and what ran has ended."""
    name, box = f"agent-{mode}", on_disk(vms, f"agent-{mode}")
    line = "trap 'echo asked > asked; exit 3' TERM; touch ready; while :; do sleep 0.02; done"
    exec_ = vms.post(f"/api/v1/sandboxes/{box}/execs", {"command": line}).json()["id"]
    harness.wait_until(lambda: vms.get(f"/api/v1/sandboxes/{box}/files?path=ready").status == 200, 10, "the trap")
    done = operation(vms, f"{VMS}/{name}/restart", {"mode": mode, "timeout_seconds": 20})
    assert (done["status"], done["type"], done["progress_percent"], done["target"]) == \
        ("completed", "vm_restart", 100, name), done
    assert done["result"] == {"vm": {"name": name, "restarted": True}}
    assert vms.get(f"{VMS}/{name}").json()["state"] == "running"
    assert vms.get(f"/api/v1/sandboxes/{box}/files?path=asked").status == (200 if mode == "graceful" else 404)
    state = vms.get(f"/api/v1/sandboxes/{box}/execs/{exec_}").json()
    assert (state["state"], state["exit_code"]) == (("exited", 3) if mode == "graceful" else ("lost", -1))
    assert reasons(vms, name)[-1] == ("vm.rebooted", f"restart_{mode}")


def test_a_graceful_restart_does_not_wait_for_ever(vms):
    box = on_disk(vms, "agent-deaf")
    line = "trap '' TERM; touch ready; while :; do sleep 0.02; done"
    vms.post(f"/api/v1/sandboxes/{box}/execs", {"command": line})
    harness.wait_until(lambda: vms.get(f"/api/v1/sandboxes/{box}/files?path=ready").status == 200, 10, "the trap")
    assert operation(vms, f"{VMS}/agent-deaf/restart", {"timeout_seconds": 1})["status"] == "completed"
    assert vms.get(f"{VMS}/agent-deaf").json()["state"] == "running"


def test_what_is_not_restarted(vms):
    on_disk(vms, "agent-still")
    assert vms.post(f"{VMS}/agent-still/stop").status == 200
    assert code(vms.post(f"{VMS}/agent-still/restart")) == (409, "VM_NOT_RUNNING")
    assert code(vms.post(f"{VMS}/agent-still/deploy-agent")) == (409, "VM_NOT_RUNNING")
    assert code(vms.post(f"{VMS}/none/restart")) == (404, "VM_NOT_FOUND")
    assert code(vms.post(f"{VMS}/none/deploy-agent")) == (404, "VM_NOT_FOUND")
    vms.post("/api/v1/sandboxes", {"name": "agent-light", "storage": "memory"})
    assert code(vms.post(f"{VMS}/agent-light/restart")) == (409, "VM_NOT_PERSISTENT")
    for wish in ({"mode": "soft"}, {"timeout_seconds": 0}, {"timeout_seconds": 3601}, {"what": 1}):
        assert code(vms.post(f"{VMS}/agent-light/restart", wish)) == (400, "VALIDATION_ERROR")
    assert vms.get("/api/v1/sandboxes/agent-light").json()["state"] == "running"


def test_a_restart_whose_vm_is_deleted_meanwhile(vms):
    box = on_disk(vms, "agent-going")
    vms.post(f"/api/v1/sandboxes/{box}/execs", {"command": "trap '' TERM; while :; do sleep 0.02; done"})
    reply = vms.post(f"{VMS}/agent-going/restart", {"timeout_seconds": 60})
    assert vms.delete(f"{VMS}/agent-going?force=true").status == 200
    path = f"/api/v1/operations/{reply.json()['operation']['id']}"
    done = harness.wait_until(lambda: (o := vms.get(path).json())["status"] != "running" and o, 20, "its end")
    assert done["status"] == "failed" and "deleted" in done["error"]


def test_deploy_an_agent(vms):
    make(vms, "agent-own")
    done = operation(vms, f"{VMS}/agent-own/deploy-agent")
    assert done["status"] == "completed" and done["result"] == {"vm": {"name": "agent-own", "agent_deployed": True}}


def test_reprovision(vms):
    spec = {"name": "agent-again", "memory": 64 << 20, "pids": 33, "env": {"A": "b"}, "labels": {"x": "y"}}
    old = vms.post("/api/v1/sandboxes", spec).json()
    trace = f"/api/v1/sandboxes/{old['id']}/files?path=trace"
    assert vms.request("PUT", trace, body=b"was here").status in (200, 201)
    assert vms.get(trace).status == 200
    path = "/api/v1/agents/agent-again/reprovision"
    operator = vms.new_token("operator")["token"]
    assert vms.post(path, token=operator).status == 403
    done = operation(vms, path, field="operation_id")
    assert done["status"] == "completed" and done["type"] == "vm_reprovision", done
    assert done["result"] == {"vm": {"name": "agent-again", "reprovisioned": True}}
    new = vms.get("/api/v1/sandboxes/agent-again").json()
    assert new["id"] != old["id"] and new["state"] == "running"
    assert {k: new[k] for k in spec} == spec and new["storage"] == old["storage"]
    assert vms.get(f"/api/v1/sandboxes/{new['id']}/files?path=trace").status == 404
    assert vms.get(f"/api/v1/sandboxes/{old['id']}").status == 404
    assert reasons(vms, "agent-again") == [("vm.provisioning.started", None), ("vm.provisioning.completed", "manual")]
    reply = vms.post("/api/v1/agents/none/reprovision")
    assert (reply.status, reply.json()) == (404, {"error": "Agent 'none' not found"})


def test_events_say_why(vms):
    on_disk(vms, "agent-told")
    for verb in ("stop", "start", "stop?force=true", "start", "destroy"):
        assert vms.post(f"{VMS}/agent-told/{verb}").status == 200
    assert vms.delete(f"{VMS}/agent-told").status == 200
    assert reasons(vms, "agent-told")[2:] == [
        ("vm.shutdown", "shutdown"), ("vm.started", "manual"), ("vm.stopped", "force"), ("vm.started", "manual"),
        ("vm.stopped", "destroyed"), ("vm.undefined", "api")]


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
    ({"name": "x", "tier": "vm"}, 501, "VM_TIER_UNAVAILABLE"),
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
                        ({"cmd": ["/bin/none"]}, 422), ({"cmd": "sh"}, 400), ({"cmd": [""]}, 400)):
        reply = vms.post(CONTAINERS, {**wish, "name": "other", **bad})
        assert reply.status == status, (bad, reply)
        assert vms.get(f"{CONTAINERS}/other").status == 404, bad
    made = vms.post(CONTAINERS, {**wish, "name": "other", "cmd": ["/bin/sh", "-c", "echo $AGENT_ID; exit 5"]})
    assert made.status == 201 and made.json()["status"] == "running", made
    path = f"/api/v1/sandboxes/other/execs/{made.json()['command_id']}"
    ended = vms.get(path + "?wait=10000").json()
    assert (ended["exit_code"], ended["argv"][0]) == (5, "/bin/sh")
    assert vms.get(path + "/output").body == b"other\n"
    assert vms.get(f"{CONTAINERS}/other").json()["status"] == "running", "its end is not the container's"
    assert vms.delete(f"{CONTAINERS}/other").status == 200
    events = vms.get("/api/v1/events?object=container/other&limit=1000").json()["items"]
    assert [e["type"] for e in events] == ["container.created", "container.removed"]
    made = [r for r in vms.get("/api/v1/audit?limit=1000").json()["items"] if r["action"] == "container.create"]
    assert len([r for r in made if r["outcome"] == "ok"]) == 2, made
    told = json.loads(vms.cli("container", "create", "third", "--image", "small", "-e", "A=x=y", "--json", "--",
                              "/bin/sh", "-c", 'echo "$A" "$0"', "a  b", check=True).stdout)
    assert told["status"] == "running"
    path = f"/api/v1/sandboxes/third/execs/{told['command_id']}"
    assert vms.get(path + "?wait=10000").json()["exit_code"] == 0
    assert vms.get(path + "/output").body == b"x=y a  b\n"
    assert vms.cli("container", "create", "third", "--image", "small").returncode == 3
    assert vms.cli("container", "create", "fourth", "--image", "none").returncode == 2
    for wrong in (("fourth",), ("fourth", "--image", "small", "-e", "A"), ("fourth", "--image", "small", "-e", "=A")):
        assert vms.cli("container", "create", *wrong).returncode == 64, wrong
    assert vms.delete(f"{CONTAINERS}/third").status == 200
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


# ---- by the command line ----

def test_the_command_line(vms):
    cli = vms.cli
    made = cli("vm", "create", "agent-cli", "--vcpus", "1", "--memory", "64M", "--disk", "1G", "--wait", check=True)
    assert "completed" in made.stdout and "vm_create" in made.stdout
    assert "agent-cli" in cli("vm", "ls", "--only", "running", check=True).stdout
    assert "agent-cli" not in cli("vm", "ls", "--prefix", "other", check=True).stdout
    assert "agent_deployed" in cli("vm", "deploy-agent", "agent-cli", "--wait", "--json", check=True).stdout
    before = vms.get("/api/v1/sandboxes/agent-cli").json()
    if before["storage"] == "disk":
        assert "completed" in cli("vm", "restart", "agent-cli", "--hard", "--wait", check=True).stdout
    order = cli("vm", "reprovision", "agent-cli", "--json", check=True).stdout
    assert "completed" in cli("operation", "wait", json.loads(order)["operation_id"], check=True).stdout
    assert vms.get("/api/v1/sandboxes/agent-cli").json()["id"] != before["id"]
    refused = cli("vm", "rm", "agent-cli")
    assert refused.returncode == 3 and "is running" in refused.stderr
    assert "agent-cli" in cli("vm", "rm", "agent-cli", "--force", check=True).stdout


def test_an_operation_that_failed_ends_the_wait_with_1(start_server):
    server = start_server(args=["--sandboxes-max", "1"])
    assert make(server, "agent-a")["status"] == "completed"
    failed = server.cli("vm", "create", "agent-b", "--memory", "64M", "--wait")
    assert failed.returncode == 1 and "failed" in failed.stdout and "sandboxes" in failed.stdout
    server.delete(f"{VMS}/agent-a?force=true")


@pytest.mark.parametrize("args, status, words", [
    (("vm", "create", "UPPER"), 1, "lower-case"), (("vm", "create", "x", "--memory", "lots"), 64, "no size"),
    (("vm", "create", "x", "--vcpus", "0"), 64, "--vcpus"), (("vm", "restart", "none"), 2, "no VM 'none'"),
    (("vm", "reprovision", "none"), 2, "Agent 'none' not found"),
    (("operation", "wait", "none"), 2, "no such operation"),
    (("agent", "rm", "none"), 2, "Agent 'none' not found"), (("vm", "ls", "--only", "sideways"), 1, "running, stopped"),
    (("agent", "rotate-secret", "none", "--grace", "0"), 1, "grace_seconds"),
], ids=range(9))
def test_wrong_words(vms, args, status, words):
    done = vms.cli(*args)
    assert done.returncode == status and words in done.stderr, done


def test_a_stop_that_killed_says_so(vms):
    """A command that ignores SIGTERM is killed when the time is over; one that heeds it is not."""
    make(vms, "agent-deaf")
    box = vms.get(f"{VMS}/agent-deaf").json()["sandbox_id"]
    if vms.get(f"/api/v1/sandboxes/{box}").json()["storage"] != "disk":
        pytest.skip("no disks on this machine")

    def run(script):
        made = vms.post(f"/api/v1/sandboxes/{box}/execs", {"command": script})
        assert made.status == 201, made
        path = f"/api/v1/sandboxes/{box}/execs/{made.json()['id']}/output"
        harness.wait_until(lambda: vms.get(path).body == b"ready\n", 10, "the command to begin")

    run("trap '' TERM; echo ready; while :; do sleep 1; done")
    run("trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    stopped = vms.post(f"{VMS}/agent-deaf/stop?timeout=2").json()
    assert stopped == {"vm": {"name": "agent-deaf", "state": "stopped"},
                       "message": "1 of its commands did not end within the timeout of 2 s and was killed"}
    last = vms.get("/api/v1/events?object=vm/agent-deaf&limit=1000").json()["items"][-1]
    assert (last["type"], last["data"]) == ("vm.stopped", {"reason": "force"})
    assert vms.post(f"{VMS}/agent-deaf/start").status == 200
    run("trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    stopped = vms.post(f"{VMS}/agent-deaf/stop?timeout=10").json()
    assert stopped == {"vm": {"name": "agent-deaf", "state": "shutdown"},
                       "message": "stopped within the timeout of 10 s"}
    assert vms.post(f"{VMS}/agent-deaf/start").status == 200
    run("trap '' TERM; echo ready; while :; do sleep 1; done")
    done = vms.post("/api/v1/containers/agent-deaf/stop?timeout=1").json()
    assert done == {"name": "agent-deaf", "action": "stop", "status": "stopped", "timeout": 1, "killed": 1}


@pytest.mark.parametrize("wish, word", [({"agentshare": True}, "agentshare"), ({"ssh_key": "/k.pub"}, "ssh_key")])
def test_what_has_no_effect_is_refused(vms, wish, word):
    refused = vms.post(VMS, {"name": "agent-wish", **SMALL, **wish})
    assert code(refused) == (400, "VALIDATION_ERROR") and refused.json()["error"]["message"].startswith(word), refused
    assert vms.get(f"{VMS}/agent-wish").status == 404
    reply = vms.post(VMS, {"name": "agent-wish", **SMALL, "agentshare": False, "ssh_key": ""})
    assert reply.status == 202, reply
    path = f"/api/v1/operations/{reply.json()['operation']['id']}"
    harness.wait_until(lambda: vms.get(path).json()["status"] == "completed", 20, "the operation")
