"""What went out or wanted to, with the real egress process: records, counts, events; and who answers questions."""
import os

import pytest
from harness import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, ASKS = "/api/v1/sandboxes", "/api/v1/asks"
CONNECT = """
import socket
s = socket.create_connection(("198.18.0.1", 3128), 20)
s.settimeout(30)
s.sendall(b"CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n")
print(s.recv(4096).split(b"\\r\\n")[0].decode())
"""


@pytest.fixture
def make(server):
    made = []

    def create(**egress):
        reply = server.post(BOXES, {"ttl_ms": 600000, "storage": "memory", "egress": egress})
        assert reply.status == 201, reply
        made.append(reply.json()["id"])
        return reply.json()["id"]

    yield create
    for one in made:
        assert server.delete(f"{BOXES}/{one}").status in (200, 404)


def connect(server, box, target):
    script = CONNECT % (target, target)
    done = server.post(f"{BOXES}/{box}/execs?wait=40000", {"argv": ["python3", "-c", script]}, timeout=60).json()
    return done["output"].strip()


def records(server, box, query=""):
    return server.get(f"{BOXES}/{box}/egress/records{query}").json()["items"]


def test_a_denial_is_recorded_counted_and_undone_by_one_command(server, make):
    box = make(allow=["fine.test:8443"])
    wait_until(lambda: server.get(f"{BOXES}/{box}/egress").json()["linked"], 20, "the egress process")
    with server.sse("/api/v1/events?type=egress.*") as stream:
        assert " 403 " in connect(server, box, "evil.test:443")
        assert "egress.recorded" in str(stream.next(10))
    row, = wait_until(lambda: records(server, box), 10, "the record")
    assert (row["host"], row["port"], row["verdict"], row["why"], row["kind"]) == \
        ("evil.test", 443, "denied", "no_rule", "connect")
    assert row["version"] == server.get(f"{BOXES}/{box}/egress").json()["version"] and row["sandbox"] == box
    assert " 403 " in connect(server, box, "fine.test:443")
    wait_until(lambda: len(records(server, box, "?denied=true")) == 2, 10, "the second")
    assert records(server, box)[-1]["why"] == "port"
    assert records(server, box, f"?since={row['seq']}")[0]["host"] == "fine.test"
    assert len(records(server, box, "?limit=1")) == 1
    assert server.get(f"{BOXES}/{box}/egress").json()["denied"] == 2
    hosts = server.get(f"{BOXES}/{box}/egress/hosts").json()["items"]
    assert sorted((h["host"], h["denied"], h["allowed"]) for h in hosts) == [("evil.test", 1, 0), ("fine.test", 1, 0)]
    shown = server.cli("egress", "log", box, "--denied", check=True).stdout
    assert "evil.test:443" in shown and "denied" in shown
    assert "evil.test" in server.cli("egress", "hosts", box, check=True).stdout
    assert box in server.cli("egress", "log", check=True).stdout
    server.cli("egress", "allow", box, "evil.test", check=True)
    assert " 403 " not in connect(server, box, "evil.test:443"), "it may; that nobody answers is another matter"
    other = server.new_token("admin", tenant="elsewhere-egress")["token"]
    assert server.get(f"{BOXES}/{box}/egress/records", token=other).json()["items"] == []
    assert server.get(f"{BOXES}/nobody/egress/records").status == 404
    assert server.get(f"{BOXES}/{box}/egress/records?denied=maybe").status == 400


def test_asks_are_for_operators(server):
    """How one is asked and answered is in src/gate/gate_test.c, which plays the egress process."""
    unknown = "ask00000000000000000000000000"
    agent, viewer = server.new_token("agent")["token"], server.new_token("viewer")["token"]
    for token in (agent, viewer):
        assert server.post(f"{ASKS}/{unknown}/decision", {"verdict": "allow"}, token=token).status == 403
    assert server.get(ASKS, token=agent).status == 403 and server.get(ASKS, token=viewer).status == 200
    assert server.post(f"{ASKS}/{unknown}/decision", {"verdict": "allow"}).status == 404
    assert server.post(f"{ASKS}/{unknown}/decision", {"verdict": "maybe"}).status == 400
    assert server.post(f"{ASKS}/{unknown}/decision", {"verdict": "deny", "hash": "0" * 63}).status == 400
    assert server.get(f"{ASKS}?state=never").status == 400 and server.get(f"{ASKS}/{unknown}").status == 404
    assert server.get(f"{ASKS}?after=x").status == 400
    assert server.cli("ask", "ls", "--all", check=True).stdout.startswith("ID")
    assert server.cli("ask", "show", unknown).returncode != 0
    assert server.cli("ask", "allow", unknown).returncode != 0
