"""Quotas of tenants, roles, principals and labels, ceilings of one sandbox, and what the machine has. Root only."""
import json
import os
import subprocess

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, QUOTAS = "/api/v1/sandboxes", "/api/v1/quotas"
GIB = 1 << 30


def cli(server, *args, code=0):
    done = subprocess.run([server.binary, "--state", str(server.state), *args], capture_output=True, timeout=60,
                          input=b"", text=False)
    assert done.returncode == code, done
    return done.stdout.decode() + done.stderr.decode()


def quota(server, subject, token=None, **limits):
    reply = server.request("PUT", f"{QUOTAS}/{subject}", json=limits, **({"token": token} if token else {}))
    assert reply.status == 200, reply
    return reply.json()


@pytest.fixture
def rows(boxes):
    yield boxes
    for row in boxes.get(QUOTAS).json()["items"]:
        if not row["preset"]:
            assert boxes.delete(f"{QUOTAS}/{row['subject']}").status == 200


@pytest.fixture
def make(boxes):
    made = []

    def create(token=None, **wish):
        reply = boxes.post(BOXES, {"storage": "memory", **wish}, **({"token": token} if token else {}))
        if reply.status == 201:
            made.append((reply.json()["id"], token))
        return reply

    yield create
    for one, token in made:
        assert boxes.delete(f"{BOXES}/{one}", **({"token": token} if token else {})).status in (200, 404)


def new_token(server, name, role, tenant="default"):
    return server.new_token(role, name=f"{name}-{os.urandom(3).hex()}", tenant=tenant)["token"]


def refused(reply, status, code, *words, field=None):
    assert reply.status == status and reply.error["code"] == code, reply
    assert field is None or reply.error["field"] == field, reply
    for word in words:
        assert word in reply.error["message"], reply


def exceeded(server, **query):
    query = "&".join(f"{k}={v}" for k, v in {"type": "quota.exceeded", "limit": "1000", **query}.items())
    return [e for e in server.get(f"/api/v1/events?{query}").json()["items"] if e["type"] == "quota.exceeded"]


def test_a_sandbox_larger_than_the_machine_is_refused_with_what_is_free(rows, make):
    server = rows
    refused(make(memory=4000 * GIB), 507, "no_capacity", "this machine has", "are free", "3.9 TiB", field="memory")
    refused(make(cpu_percent=6400), 507, "no_capacity", "64 processors", "this machine has", field="cpu_percent")
    refused(make(storage="disk", disk=4096 * GIB), 507, "no_capacity", "4 TiB", "are free", field="disk")
    reply = server.post("/api/v1/volumes", {"name": "huge", "bytes": 4096 * GIB})
    refused(reply, 507, "no_capacity", "are free")
    assert {e["object"] for e in exceeded(server)} == {"quota/machine"}


def test_agentics_surface_refuses_it_in_its_own_words(rows):
    server = rows
    reply = server.post("/api/v1/vms", {"name": "agent-huge", "vcpus": 64, "memory_mb": 4_000_000})
    assert reply.status == 507 and reply.json()["error"]["code"] == "INSUFFICIENT_RESOURCES", reply
    assert "this machine has" in reply.json()["error"]["message"]
    assert server.get("/api/v1/vms?prefix=*").json()["vms"] == []


def test_a_reprovision_that_no_quota_allows_any_more_deletes_nothing(rows, make):
    server = rows
    box = make(storage="disk", name="kept", memory=512 << 20)
    if box.status == 501:
        pytest.skip("no disks here")
    quota(server, "tenant:default", sandbox_memory=256 << 20)
    reply = server.post("/api/v1/agents/kept/reprovision")
    assert reply.status == 429 and "tenant:default" in reply.json()["error"], reply
    assert server.get(f"{BOXES}/kept").json()["id"] == box.json()["id"]


def test_the_command_line_says_it(rows):
    server = rows
    said = cli(server, "create", "--memory", "900G", code=1)
    assert "900 GiB" in said and "this machine has" in said and "free" in said, said


def test_default_sandboxes_meet_no_limit(rows, make):
    server = rows
    # The machine is never asked for limits that most sandboxes have.
    for wish in {}, {"memory": 8 * GIB}, {"cpu_percent": 800}:
        assert make(**wish).status == 201
    machine = server.get(QUOTAS).json()["items"][0]
    assert machine["subject"] == "machine" and machine["used_memory"] == 0 and machine["used_sandboxes"] == 3
    assert machine["sandboxes"] == 8192


def test_large_limits_add_up_to_what_may_be_promised(rows, make):
    server = rows
    machine = server.get(QUOTAS).json()["items"][0]
    size = machine["sandbox_memory"] - (1 << 20)
    if size <= 8 * GIB:
        pytest.skip("a machine of 8 GiB counts nothing")
    count = machine["memory"] // size
    for _ in range(count):
        assert make(memory=size).status == 201
    assert server.get(QUOTAS).json()["items"][0]["used_memory"] == count * size
    refused(make(memory=size), 507, "no_capacity", "overcommit_memory", field="memory")
    assert make(memory=8 * GIB).status == 201, "small ones are not counted"


def test_role_agent_has_ceilings_without_a_row(rows, make):
    server = rows
    token = new_token(server, "ceilings", "agent")
    preset = next(q for q in server.get(QUOTAS).json()["items"] if q["subject"] == "role:agent")
    assert preset["preset"] and preset["by"] is None
    refused(make(token, memory=4096 * GIB), 429, "quota_exceeded", "role:agent", field="memory")
    refused(make(token, cpu_percent=100_000), 429, "quota_exceeded", "role:agent", field="cpu_percent")
    refused(make(token, storage="disk", disk=4096 * GIB), 429, "quota_exceeded", field="disk")
    reply = server.post("/api/v1/volumes", {"name": "mine", "bytes": 4096 * GIB}, token=token)
    refused(reply, 429, "quota_exceeded", "role:agent")
    assert make(token, memory=preset["sandbox_memory"]).status == 201, "at the limit"
    refused(make(token, memory=preset["sandbox_memory"] + 1), 429, "quota_exceeded")


def test_a_ceiling_of_a_role_holds_on_every_way_in(rows, make):
    server = rows
    token = new_token(server, "ways", "agent")
    template = server.request("PUT", "/api/v1/templates/large", json={"memory": 512 << 20, "storage": "memory"})
    assert template.status == 200
    mine = make(token, memory=128 << 20)
    large = make(token, memory=512 << 20, storage="disk")
    quota(server, "role:agent", sandbox_memory=256 << 20)
    refused(make(token, memory=(256 << 20) + 1), 429, "quota_exceeded", "256 MiB", field="memory")
    refused(make(token, template="large"), 429, "quota_exceeded", field="memory")
    refused(make(token, warm=True), 429, "quota_exceeded", field="memory")
    change = f"{BOXES}/{mine.json()['id']}"
    refused(server.request("PATCH", change, json={"memory": 512 << 20}, token=token), 429, "quota_exceeded")
    assert server.request("PATCH", change, json={"memory": 256 << 20}, token=token).status == 200
    assert server.request("PATCH", change, json={"pids": 64}, token=token).status == 200, "nothing grows"
    if large.status == 201:
        there = f"{BOXES}/{large.json()['id']}"
        refused(server.post(f"{there}/fork", {}, token=token), 429, "quota_exceeded", field="memory")
        assert server.post(f"{there}/stop", token=token).status == 200
        refused(server.post(f"{there}/start", token=token), 429, "quota_exceeded", field="memory")
        assert server.post(f"{there}/start").status == 200, "an operator is no agent"
    assert make(memory=1 * GIB).status == 201
    server.delete("/api/v1/templates/large")


def test_totals_of_a_principal_and_of_a_label(rows, make):
    server = rows
    one, two = new_token(server, "total-one", "operator"), new_token(server, "total-two", "operator")
    quota(server, "by:*", sandboxes=2, memory=600 << 20)
    quota(server, "label:user=*", memory=300 << 20)
    assert make(one, memory=256 << 20, labels={"user": "ann"}).status == 201
    refused(make(one, memory=64 << 20, labels={"user": "ann"}), 429, "quota_exceeded", "label:user=*", "300 MiB")
    second = make(one, memory=256 << 20, labels={"user": "bob"})
    assert second.status == 201
    refused(make(one, memory=16 << 20), 429, "quota_exceeded", "by:*")
    assert make(two, memory=256 << 20).status == 201, "each by itself"
    reply = server.request("PATCH", f"{BOXES}/{second.json()['id']}", json={"labels": {"user": "ann"}}, token=one)
    refused(reply, 429, "quota_exceeded", "label:user=*")
    assert server.delete(f"{BOXES}/{second.json()['id']}", token=one).status == 200
    assert make(one, memory=128 << 20).status == 201, "what is deleted is free"
    rows = {q["subject"]: q for q in server.get(QUOTAS).json()["items"]}
    assert rows["by:*"]["used_sandboxes"] == 2 and rows["by:*"]["group"]
    assert rows["label:user=*"]["group"] == "ann" and rows["label:user=*"]["used_memory"] == 256 << 20


def test_one_tenant_does_not_starve_another(rows, make):
    server = rows
    acme = new_token(server, "acme", "operator", tenant="acme")
    other = new_token(server, "other", "operator", tenant="other")
    quota(server, "tenant:*", sandboxes=3)
    quota(server, "tenant:other", sandboxes=1)
    for _ in range(3):
        assert make(acme).status == 201
    refused(make(acme), 429, "quota_exceeded", "tenant:*")
    assert make(other).status == 201
    refused(make(other), 429, "quota_exceeded", "tenant:other")
    assert make().status == 201
    # A tenant sees its own quota, sets others within itself, and none of tenants.
    seen = {q["subject"] for q in server.get(QUOTAS, token=other).json()["items"]}
    assert {"tenant:*", "tenant:other"} >= seen - {"role:agent"} and "machine" not in seen
    reply = server.request("PUT", f"{QUOTAS}/tenant:other", json={"sandboxes": 100}, token=other)
    assert reply.status == 403 and reply.error["code"] == "forbidden"
    assert server.delete(f"{QUOTAS}/tenant:other", token=other).status == 403
    quota(server, "by:*", token=other, sandboxes=50)
    assert server.delete(f"{QUOTAS}/by:*", token=other).status == 200
    agent = new_token(server, "may-not", "agent")
    assert server.request("PUT", f"{QUOTAS}/by:*", json={"sandboxes": 1}, token=agent).status == 403
    # The refusal is an event of the tenant that was refused.
    assert {e["object"] for e in server.get("/api/v1/events?type=quota.exceeded", token=acme).json()["items"]} == \
        {"quota/tenant:*"}


def test_tenants_share_the_places_of_the_server(start_server):
    server = start_server(args=["--sandboxes-max", "8"])
    two = new_token(server, "second", "agent", tenant="second")
    first = new_token(server, "first", "operator")
    made = 0
    while (reply := server.post(BOXES, {"storage": "memory"}, token=first)).status == 201:
        made += 1
        assert made <= 8
    refused(reply, 429, "quota_exceeded", "tenant default", "tenant:default")
    assert made == 4
    theirs = server.post(BOXES, {"storage": "memory"}, token=two)
    assert theirs.status == 201, "there is room for others"
    assert server.delete(f"{BOXES}/{theirs.json()['id']}", token=two).status == 200
    harness.delete_boxes(server)


def test_one_tenant_alone_has_all_places(start_server):
    server = start_server(args=["--sandboxes-max", "3"])
    for _ in range(3):
        assert server.post(BOXES, {"storage": "memory"}).status == 201
    refused(server.post(BOXES, {"storage": "memory"}), 429, "quota_exceeded", "sandboxes_max")
    harness.delete_boxes(server)


def test_quotas_survive_and_are_set_on_the_command_line(start_server):
    server = start_server()
    assert cli(server, "quota", "set", "label:user=ann", "--sandboxes", "1", "--memory", "2G").strip() == \
        "label:user=ann"
    listed = json.loads(cli(server, "--json", "quota", "ls"))["items"]
    assert [q["memory"] for q in listed if q["subject"] == "label:user=ann"] == [2 * GIB]
    assert "label:user=ann" in cli(server, "quota", "ls")
    server.restart()
    assert server.post(BOXES, {"storage": "memory", "labels": {"user": "ann"}}).status == 201
    refused(server.post(BOXES, {"storage": "memory", "labels": {"user": "ann"}}), 429, "quota_exceeded")
    cli(server, "quota", "rm", "label:user=ann")
    assert server.post(BOXES, {"storage": "memory", "labels": {"user": "ann"}}).status == 201
    assert "no quota" in cli(server, "quota", "rm", "label:user=ann", code=2)
    harness.delete_boxes(server)
    assert "at least one limit" in cli(server, "quota", "set", "tenant:x", code=64)


@pytest.mark.parametrize("subject", ["nothing", "tenant:", "role:viewer", "label:x", "label:=x", "by:" + "x" * 126])
def test_subjects_that_mean_nothing(server, subject):
    reply = server.request("PUT", f"{QUOTAS}/{subject}", json={"sandboxes": 1})
    assert reply.status == 400 and reply.error["field"] == "subject", reply
