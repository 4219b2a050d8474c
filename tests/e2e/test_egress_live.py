"""A change of policy through the API: open tunnels that lost their rule are closed, and it is written who did it. The
limits of a sandbox, through the API too: they outlive kills of both processes, and an event tells of them."""
import json
import os
import signal
import time

import egress_box
import harness
import pytest
import world
from harness import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
TUNNELS = r'''
import json, socket, sys, time
def tunnel(host):
    sock = socket.create_connection(("198.18.0.1", 3128), 10)
    sock.sendall(f"CONNECT {host}:9000 HTTP/1.1\r\n\r\n".encode())
    assert b" 200 " in sock.recv(4096)
    sock.sendall(b"ping")
    assert sock.recv(4) == b"ping"
    return sock
one, two = tunnel("one.ok.example"), tunnel("two.ok.example")
open("/workspace/ready", "w").close()
one.settimeout(60)
try:
    one.recv(1)
except ConnectionError:
    pass
ended = time.time()
two.settimeout(10)
two.sendall(b"still")
print(json.dumps({"ended": ended, "other": two.recv(5).decode()}))
'''
MOVE = r'''
import json, socket, sys
got, sock = 0, socket.create_connection(("198.18.0.1", 3128), 10)
sock.settimeout(15)
sock.sendall(b"CONNECT one.ok.example:9000 HTTP/1.1\r\n\r\n")
head = sock.recv(4096)
if b" 200 " in head:
    try:
        sock.sendall(b"x" * int(sys.argv[1]))
        while got < int(sys.argv[1]) and (piece := sock.recv(65536)):
            got += len(piece)
    except ConnectionError:
        pass
print(json.dumps({"head": head.decode(), "got": got}))
'''


@pytest.fixture(scope="module")
def here():
    with world.World() as made:
        made.zone.update({"*.ok.example": ["45.1.0.1"]})
        yield made


@pytest.fixture(scope="module")
def server(here):
    made = egress_box.start_server()
    yield made
    made.stop()


def test_a_network_that_served_before_leads_only_where_its_new_sandbox_may_go(here, server):
    """Of a sandbox that did nothing with its network the next one gets it (warden/net_used.c), sockets and all."""
    ask = "curl -s -o /dev/null -w %{http_code} -x http://198.18.0.1:3128 http://one.ok.example/"
    rules = [{"allow": ["one.ok.example"]}, {"allow": []}]
    for was, now, code in ((*rules, "403"), (*reversed(rules), "200")):
        before = [egress_box.Box(server, was) for _ in range(6)]
        had = {box.sh("true; readlink /proc/self/ns/net") for box in before}
        for box in before:
            assert server.delete(box.base).status == 200
        after = [egress_box.Box(server, now) for _ in range(6)]
        has = {box.sh("readlink /proc/self/ns/net") for box in after}
        assert had & has, "none of them was used again"
        assert [box.sh(ask) for box in after] == [code] * 6
        for box in after:
            assert server.delete(box.base).status == 200


def test_a_rule_that_is_removed_closes_its_tunnels_and_is_audited(here, server):
    box = egress_box.Box(server, {"allow": ["one.ok.example:9000/raw", "two.ok.example:9000/raw"]})
    box.put("/workspace/tunnels.py", TUNNELS.encode())
    reply = server.post(f"{box.base}/execs", {"command": "python3 /workspace/tunnels.py > /workspace/out"})
    assert reply.status == 201, reply
    wait_until(lambda: server.get(f"{box.base}/files?path=/workspace/ready").status == 200, 30,
               "tunnels")
    changed = server.request("PATCH", f"{box.base}/egress", json={"allow": ["two.ok.example:9000/raw"]})
    told = time.time()
    assert changed.status == 200, changed
    wait_until(lambda: box.get("/workspace/out"), 60, "the end of the tunnel")
    said = json.loads(box.get("/workspace/out"))
    print(f"closed after {said['ended'] - told:.3f} s")
    assert said["ended"] - told < 2 * harness.SLOW and said["other"] == "still"
    row, = wait_until(lambda: [r for r in server.get(f"{box.base}/egress/records").json()["items"] if r["revoked"]],
                      10 * harness.SLOW, "the record of the tunnel")
    assert (row["host"], row["verdict"]) == ("one.ok.example", "allowed") and row["sent"] == 4
    audit = [a for a in server.get("/api/v1/audit?limit=1000").json()["items"]
             if a["object"] == f"sandbox/{box.id}" and a["action"] == "egress.sandbox.change"]
    assert len(audit) == 1 and audit[0]["detail"]["allow"] == ["two.ok.example:9000/raw"], audit
    assert server.delete(box.base).status == 200


def test_layers_and_packs_are_audited_with_events(server):
    with server.sse("/api/v1/events?type=egress.*") as stream:
        assert server.request("PUT", "/api/v1/egress/policies/tenant", json={"deny": ["x.example"]}).status == 200
        assert "egress.policy.changed" in str(stream.next(10))
    assert server.request("DELETE", "/api/v1/egress/policies/tenant").status == 200
    actions = [a["action"] for a in server.get("/api/v1/audit?limit=1000").json()["items"]]
    assert "egress.tenant.put" in actions and "egress.tenant.clear" in actions


def move(box, size):
    box.put("/workspace/move.py", MOVE.encode())
    return json.loads(box.sh(f"python3 /workspace/move.py {size}", 60))


def process(server, role):
    """The one that has this role now."""
    found = [pid for pid in harness.descendants(server.warden_pid)
             if harness.cmdline(pid).split()[1:2] == [role] and harness.alive(pid)]
    return found[0] if len(found) == 1 else None


def used(server, box):
    """What the api process knows, once it hears from an egress process."""
    told = server.get(f"{box.base}/egress").json()
    return told["used"] if told["linked"] else None


def test_a_limit_of_bytes_outlives_both_processes(here, server):
    box = egress_box.Box(server, {"allow": ["*.ok.example:9000/raw"], "max_bytes": 100_000})
    assert move(box, 20_000)["got"] == 20_000
    wait_until(lambda: used(server, box) == 40_000, 10, "what was used")
    for role in ("egress", "api"):
        old = process(server, role)
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: process(server, role) not in (None, old), 20, "another one")
        server.wait_ready()
        # Killed before it has stored that, the api process is told again: what counts is not its memory.
        wait_until(lambda: used(server, box) == 40_000, 20, "what was used, after a kill")
    with server.sse("/api/v1/events?type=egress.limited") as stream:
        assert move(box, 60_000)["got"] < 60_000, "60,000 bytes were left, both ways"
        event = str(stream.next(20 * harness.SLOW))
        assert box.id in event and "max_bytes" in event
    refused = move(box, 1)["head"]
    assert refused.startswith("HTTP/1.1 429 ") and "egress_limited" in refused
    wait_until(lambda: used(server, box) == 100_000, 10, "all of it")
    verdicts = [r["verdict"] for r in server.get(f"{box.base}/egress/records?denied=true").json()["items"]]
    assert verdicts and set(verdicts) == {"limited"}
    assert server.request("PATCH", f"{box.base}/egress", json={"max_bytes": 200_000}).status == 200
    assert move(box, 10_000)["got"] == 10_000, "a higher limit opens it again"
    assert server.delete(box.base).status == 200
