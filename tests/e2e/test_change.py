"""A change of a sandbox is stored, and then true: what cannot be stored is neither shown nor enforced, and an answer to
a program's question is stored together with the rule that it adds, or not at all."""
import contextlib
import os
import random
import sqlite3
import threading
import time

import pytest

import harness
from harness import BOXES, wait_until
from test_egress_self import ASKS, one

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NO_ROOM = "RAISE(ABORT, 'not today')"


@pytest.fixture
def server(start_server):
    """One whose store is nobody else's."""
    return start_server()


@pytest.fixture
def box(server):
    reply = server.post(BOXES, {"storage": "memory", "memory": 64 << 20, "pids": 50,
                                "egress": {"allow": ["a.example"]}})
    assert reply.status == 201, reply
    yield reply.json()["id"]
    assert server.delete(f"{BOXES}/{reply.json()['id']}").status in (200, 404)


@contextlib.contextmanager
def refusing(server, box):
    """Meanwhile the store does not take the row of that sandbox: as a full disk, for one table."""
    def run(sql):
        db = sqlite3.connect(server.state / "data" / "atoll.db", timeout=20)
        db.execute(sql)
        db.commit()
        db.close()
    run(f"CREATE TRIGGER refused BEFORE UPDATE ON sandbox WHEN NEW.id = '{box}' BEGIN SELECT {NO_ROOM}; END")
    try:
        yield
    finally:
        run("DROP TRIGGER refused")


def seen(server, box):
    shown = server.get(f"{BOXES}/{box}").json()
    rules = server.get(f"{BOXES}/{box}/egress").json()["rules"]
    return (shown["memory"], shown["pids"], shown["labels"], shown["egress"]["allow"],
            [r["rule"] for r in rules if r["level"] == "sandbox"])


FORKS = """
import subprocess, sys
made = []
try:
    for _ in range(int(sys.argv[1])):
        made.append(subprocess.Popen(["sleep", "60"]))
except OSError:
    pass
for one in made:
    one.kill()
print(len(made))
"""


def may_have(server, box, pids):
    """Do so many processes fit into it?"""
    done = server.post(f"{BOXES}/{box}/execs?wait=60000", {"argv": ["python3", "-c", FORKS, str(pids)]}, timeout=90)
    assert done.status == 201 and done.json()["exit_code"] == 0, done
    return int(done.json()["output"]) == pids


def test_what_is_not_stored_is_neither_shown_nor_enforced(server, box):
    before = seen(server, box)
    assert not may_have(server, box, 80)
    with refusing(server, box):
        for wish in ({"pids": 200, "memory": 128 << 20, "labels": {"a": "b"}}, {"egress": {"allow": ["b.example"]}}):
            reply = server.request("PATCH", f"{BOXES}/{box}", json=wish)
            assert reply.status in (409, 500, 507), reply
            assert seen(server, box) == before
        assert server.post(f"{BOXES}/{box}/egress/rules", {"rule": "c.example"}).status >= 400
        assert seen(server, box) == before
    wait_until(lambda: not may_have(server, box, 80), 20, "the old limit to be back")
    wish = {"pids": 200, "egress": {"allow": ["b.example"]}}
    assert server.request("PATCH", f"{BOXES}/{box}", json=wish).status == 200
    after = seen(server, box)
    assert (after[1], after[3], after[4]) == (200, ["b.example"], ["b.example"])
    assert may_have(server, box, 80)
    server.kill9_api()
    server.wait_ready()
    assert seen(server, box) == after


def test_a_second_change_meanwhile_is_refused_in_words(server, box):
    """Many at once: each is done whole or is 409, and the last one done is what is there."""
    replies, lock = [], threading.Lock()

    def change(n):
        reply = server.request("PATCH", f"{BOXES}/{box}", json={"pids": 100 + n, "labels": {"n": str(n)}})
        with lock:
            replies.append(reply)
    threads = [threading.Thread(target=change, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {r.status for r in replies} <= {200, 409} and any(r.status == 200 for r in replies)
    for reply in replies:
        if reply.status == 409:
            assert "being changed" in reply.error["message"], reply
    pids, labels = seen(server, box)[1:3]
    assert labels == {"n": str(pids - 100)}


def asked(server, box, host):
    status, mine = one(server, box, "POST", "/asks", {"host": host})
    assert status == 202, mine
    return mine["id"]


def rules(server, box):
    return server.get(f"{BOXES}/{box}").json()["egress"]["allow"]


def test_an_answer_and_its_rule_are_stored_together(server, box):
    ask = asked(server, box, "b.example")
    with refusing(server, box):
        reply = server.post(f"{ASKS}/{ask}/decision", {"verdict": "allow"})
        assert reply.status >= 400, reply
        assert server.get(f"{ASKS}/{ask}").json()["state"] == "pending", "without its rule nothing is decided"
        assert rules(server, box) == ["a.example"]
    assert server.post(f"{ASKS}/{ask}/decision", {"verdict": "allow"}).status == 200
    assert server.get(f"{ASKS}/{ask}").json()["state"] == "allowed"
    assert rules(server, box) == ["a.example", "b.example"]


def test_an_answer_of_a_sandbox_that_is_gone_decides_nothing(server):
    box = server.post(BOXES, {"storage": "memory"}).json()["id"]
    ask = asked(server, box, "b.example")
    assert server.delete(f"{BOXES}/{box}").status == 200
    reply = server.post(f"{ASKS}/{ask}/decision", {"verdict": "allow"})
    assert reply.status == 409 and "gone" in reply.error["message"], reply
    assert server.get(f"{ASKS}/{ask}").json()["state"] == "pending"
    assert server.post(f"{ASKS}/{ask}/decision", {"verdict": "deny"}).json()["state"] == "denied"


@pytest.mark.timeout(300)
def test_killed_while_it_is_answered(server, box):
    """At whatever moment: after the next start it is allowed and has its rule, or it is open and has none."""
    rng, outcomes = random.Random(7), set()
    for n in range(24):
        host = f"h{n}.example"
        ask = asked(server, box, host)

        def decide(ask=ask):
            with contextlib.suppress(OSError, harness.http.client.HTTPException):
                server.post(f"{ASKS}/{ask}/decision", {"verdict": "allow"})
        thread = threading.Thread(target=decide)
        thread.start()
        time.sleep(rng.random() * 0.008)
        server.kill9_api()
        thread.join()
        server.wait_ready()
        state = server.get(f"{ASKS}/{ask}").json()["state"]
        assert (state == "allowed") == (host in rules(server, box)), (n, state, rules(server, box))
        assert state in ("allowed", "pending")
        outcomes.add(state)
    assert outcomes
