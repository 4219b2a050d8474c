"""Mode `ask`, from a program in a sandbox to a person and back, in the closed world: the connection waits, somebody
decides exactly once, and until then nothing is looked up."""
import concurrent.futures
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
ASKS = "/api/v1/asks"
ASKED = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}"]


@pytest.fixture(scope="module")
def here():
    with world.World() as made:
        made.zone.update({"*.ok.example": ["45.1.0.1"]})
        yield made


@pytest.fixture(scope="module")
def server(here):
    made = egress_box.start_server()
    yield made
    harness.delete_boxes(made)
    made.stop()


def begin(server, box, host, seconds=120):
    """A request that waits inside; its command."""
    reply = server.post(f"{box.base}/execs", {"argv": [*ASKED, "-m", str(seconds), f"http://{host}/"]})
    assert reply.status == 201, reply
    return f"{box.base}/execs/{reply.json()['id']}"


def status(server, command):
    """What the program was told, once it was."""
    done = wait_until(lambda: (got := server.get(f"{command}?wait=2000").json())["state"] == "exited" and got,
                      60 * harness.SLOW, "the end of the request")
    return done["output"]


def pending(server, box, host):
    def found():
        return [a for a in server.get(f"{ASKS}?state=pending").json()["items"]
                if a["sandbox"] == box.id and a["action"]["host"] == host]

    return wait_until(found, 20, "the question")[0]


def decide(server, ask, verdict):
    return server.post(f"{ASKS}/{ask['id']}/decision", {"verdict": verdict, "hash": ask["hash"]}).status


def test_it_waits_until_somebody_allows_it(here, server):
    """By the command line; and the next connection is a new question."""
    box = egress_box.Box(server, {"mode": "ask", "ask_s": 600, "deny": ["no.ok.example"]})
    command = begin(server, box, "one.ok.example")
    ask = pending(server, box, "one.ok.example")
    assert ask["kind"] == "egress" and ask["action"]["port"] == 80 and ask["state"] == "pending"
    assert server.get(command).json()["state"] == "running"
    assert not [name for name, _ in here.lookups if name == "one.ok.example"], "not before somebody has decided"
    server.cli("ask", "allow", ask["id"], check=True)
    assert status(server, command) == "200"
    again = begin(server, box, "one.ok.example")
    second = pending(server, box, "one.ok.example")
    assert second["id"] != ask["id"]
    unsure = server.cli("hitl", "respond", second["id"], "--text", "perhaps")
    assert unsure.returncode == 64 and "neither yes nor no" in unsure.stderr, unsure
    assert server.get(f"{ASKS}/{second['id']}").json()["state"] == "pending"
    server.cli("hitl", "respond", second["id"], "--text", "No", "--note", "why not", check=True)
    assert server.get(f"{ASKS}/{second['id']}").json()["note"] == "why not"
    assert status(server, again) == "403" and server.cli("ask", "respond", second["id"], "--text", "y").returncode == 3
    assert box.sh(" ".join([*ASKED, "http://no.ok.example/"])) == "403", "what a rule denies is not asked"
    verdicts = wait_until(lambda: (got := [r["verdict"] for r in server.get(
        f"{box.base}/egress/records").json()["items"]]) and len(got) >= 3 and got, 10, "records")
    assert verdicts == ["allowed", "denied", "denied"]


def test_many_decide_and_one_has(server):
    box = egress_box.Box(server, {"mode": "ask", "ask_s": 600})
    commands = [begin(server, box, "many.ok.example") for _ in range(3)]
    ask = pending(server, box, "many.ok.example")
    # All three wait: a connection that comes after the decision is a new question.
    wait_until(lambda: json.loads(box.sh("curl -s http://atoll.internal/budget"))["connections"]["used"] == 4,
               20 * harness.SLOW, "three connections beside this one")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda i: decide(server, ask, "allow" if i % 2 else "deny"), range(8)))
    assert told.count(200) >= 1 and set(told) <= {200, 409}
    state = server.get(f"{ASKS}/{ask['id']}").json()["state"]
    want = {"allowed": "200", "denied": "403"}[state]
    # All of those that got 200 had said the same; and so is every connection told that asked.
    assert all((code == 200) == (("denied", "allowed")[i % 2] == state) for i, code in enumerate(told)), told
    assert {status(server, command) for command in commands} == {want}


def test_without_an_answer_it_is_denied(here, server):
    box = egress_box.Box(server, {"mode": "ask", "ask_s": 1})
    begun = time.monotonic()
    assert status(server, begin(server, box, "late.ok.example")) == "403"
    assert time.monotonic() - begun > 1
    ask, = [a for a in server.get(ASKS).json()["items"] if a["sandbox"] == box.id]
    assert wait_until(lambda: server.get(f"{ASKS}/{ask['id']}").json()["state"] != "pending", 20, "its end")
    assert server.get(f"{ASKS}/{ask['id']}").json()["state"] == "expired"
    assert decide(server, ask, "allow") == 409, "too late"
    assert not [name for name, _ in here.lookups if name == "late.ok.example"]


# ---- kills ----


def process(server, role):
    found = [pid for pid in harness.descendants(server.warden_pid)
             if harness.cmdline(pid).split()[1:2] == [role] and harness.alive(pid)]
    return found[0] if len(found) == 1 else None


def kill(server, *roles):
    """kill -9, and wait until the next process of each role does its work."""
    old = {role: process(server, role) for role in roles}
    for pid in old.values():
        os.kill(pid, signal.SIGKILL)
    for role, pid in old.items():
        wait_until(lambda: process(server, role) not in (None, pid), 30 * harness.SLOW, f"the next {role}")
    wait_until(lambda: server.get("/readyz").status == 200, 30 * harness.SLOW, "the server")


def get_code(box, host):
    return box.run(" ".join([*ASKED, "-m", "30", f"http://{host}/"]))[0]


@pytest.mark.parametrize("verdict, code", (("allow", "200"), ("deny", "403")))
def test_who_waits_gets_the_decision_of_another_api_process(server, verdict, code):
    box = egress_box.Box(server, {"mode": "ask", "ask_s": 600})
    host = f"{verdict}.ok.example"
    command = begin(server, box, host, 30)
    ask = pending(server, box, host)
    for _ in range(2):
        kill(server, "api")
    assert [a["id"] for a in server.get(f"{ASKS}?state=pending").json()["items"] if a["sandbox"] == box.id] == \
        [ask["id"]], "it is the same question"
    assert decide(server, ask, verdict) == 200
    assert status(server, command) == code


def test_a_decision_that_was_not_delivered_is_found(server):
    """Decided while the egress process did not hear, and by a process that was killed since."""
    box = egress_box.Box(server, {"mode": "ask", "ask_s": 600})
    command = begin(server, box, "deaf.ok.example", 30)
    ask = pending(server, box, "deaf.ok.example")
    pid = process(server, "egress")
    os.kill(pid, signal.SIGSTOP)
    try:
        kill(server, "api")
        assert decide(server, ask, "allow") == 200
        kill(server, "api")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert status(server, command) == "200"
    again = begin(server, box, "deaf.ok.example", 30)
    second = pending(server, box, "deaf.ok.example")
    assert second["id"] != ask["id"], "it was for the connection that waited then, and for no other"
    assert decide(server, second, "deny") == 200 and status(server, again) == "403"


@pytest.mark.parametrize("roles", (("egress",), ("egress", "api")))
def test_after_a_kill_of_the_egress_process_the_next_request_finds_the_decision(server, roles):
    """Its connections end with it. The question stays; the program that tries again gets what was decided, once."""
    box = egress_box.Box(server, {"mode": "ask", "ask_s": 600})
    host = f"{len(roles)}.again.ok.example"
    cut = begin(server, box, host, 30)
    ask = pending(server, box, host)
    kill(server, *roles)
    assert status(server, cut) == "000"
    waits = begin(server, box, host, 30)
    wait_until(lambda: json.loads(box.sh("curl -s http://atoll.internal/budget"))["connections"]["used"] == 2,
               20 * harness.SLOW, "it to wait again")
    assert pending(server, box, host)["id"] == ask["id"]
    kill(server, *roles)
    assert status(server, waits) == "000"
    assert decide(server, ask, "allow") == 200
    assert get_code(box, host) == "200", "nobody waited when it was decided"
    last = begin(server, box, host, 30)
    assert decide(server, pending(server, box, host), "deny") == 200
    assert status(server, last) == "403"


def test_a_denial_outlives_the_api_process(server):
    box = egress_box.Box(server, {"mode": "ask", "ask_s": 600})
    command = begin(server, box, "denied.ok.example")
    assert decide(server, pending(server, box, "denied.ok.example"), "deny") == 200
    assert status(server, command) == "403"
    kill(server, "api")
    assert get_code(box, "denied.ok.example") == "403"
    assert not [a for a in server.get(f"{ASKS}?state=pending").json()["items"] if a["sandbox"] == box.id]
