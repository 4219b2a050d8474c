"""Names and whole ids: what stops or deletes something takes nothing less. Root only."""
import os

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
VERBS = [("DELETE", "/api/v1/vms/{}?force=true"), ("POST", "/api/v1/vms/{}/start"), ("POST", "/api/v1/vms/{}/stop"),
         ("POST", "/api/v1/vms/{}/destroy"), ("POST", "/api/v1/vms/{}/restart"), ("GET", "/api/v1/vms/{}"),
         ("DELETE", "/api/v1/agents/{}"), ("POST", "/api/v1/agents/{}/stop"), ("POST", "/api/v1/agents/{}/destroy"),
         ("POST", "/api/v1/agents/{}/reprovision"), ("GET", "/api/v1/agents/{}"),
         ("GET", "/api/v1/agents/{}/sessions"), ("POST", "/api/v1/agents/{}/sessions"),
         ("DELETE", "/api/v1/containers/{}"), ("POST", "/api/v1/containers/{}/stop"),
         ("DELETE", "/api/v1/sandboxes/{}"), ("POST", "/api/v1/sandboxes/{}/stop"),
         ("POST", "/api/v1/sandboxes/{}/pause")]


@pytest.fixture
def box(server):
    made = harness.make_box(server)
    yield made
    server.delete(f"/api/v1/sandboxes/{made}")


@pytest.mark.parametrize("method, path", VERBS)
def test_the_beginning_of_an_id_is_not_enough(server, box, method, path):
    for part in (box[:4], box[:-1]):
        body = {} if method == "POST" and path.endswith(("sessions", "restart")) else None
        refused = server.request(method, path.format(part), body)
        assert refused.status == 404, refused
    assert server.get(f"/api/v1/sandboxes/{box}").json()["state"] == "running"


def test_commands_are_not_ended_by_the_beginning_of_an_id(server, box):
    path = f"/api/v1/sandboxes/{box}/execs"
    exec_id = server.post(path, {"argv": ["sleep", "60"]}).json()["id"]
    for verb in ("signal", "cancel"):
        refused = server.post(f"{path}/{exec_id[:-1]}/{verb}", {"signal": "KILL"} if verb == "signal" else None)
        assert refused.status == 404 and "whole id" in refused.error["message"], refused
    assert server.get(f"{path}/{exec_id[:-1]}").json()["state"] == "running", "reading takes it"
    assert server.post(f"{path}/{exec_id}/cancel").json()["state"] == "exited"
    assert server.get(f"/api/v1/sandboxes/{box[:-1]}").json()["id"] == box


def test_terminals_are_not_ended_by_the_beginning_of_an_id(server, box):
    path = f"/api/v1/sandboxes/{box}/terminals"
    made = server.post(path, {"argv": ["sleep", "60"], "name": "shell"}).json()["id"]
    for method, where in (("POST", f"{path}/{made[:-1]}/signal"), ("DELETE", f"{path}/{made[:-1]}")):
        refused = server.request(method, where, json={"signal": "KILL"} if method == "POST" else None)
        assert refused.status == 404 and "whole id" in refused.error["message"], refused
    assert server.get(f"{path}/{made[:-1]}").json()["id"] == made, "reading takes it"
    for whole in (made, "shell"):
        assert server.post(f"{path}/{whole}/signal", {"signal": "CONT"}).status == 200


def test_a_vm_may_be_named_like_the_beginning_of_an_id(server, box):
    reply = server.post("/api/v1/vms", {"name": box[:8], "vcpus": 1, "memory_mb": 64, "disk_gb": 1})
    assert reply.status == 202, reply
    path = f"/api/v1/operations/{reply.json()['operation']['id']}"
    done = harness.wait_until(lambda: (o := server.get(path).json())["status"] != "running" and o, 20, "the operation")
    assert done["status"] == "completed", done
    assert server.get(f"/api/v1/vms/{box[:8]}").json()["sandbox_id"] != box
    assert server.delete(f"/api/v1/vms/{box[:8]}?force=true").status == 200
    assert server.get(f"/api/v1/sandboxes/{box}").json()["state"] == "running"
