"""kill -9 of the egress process under load, in the closed world: it comes back by itself, sandboxes never notice
that nobody listened, what was denied stays denied at every instant, and what was allowed is allowed again."""
import contextlib
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
KILLS = 5
BACK_SECONDS = 10  # alone on a machine it is below one; here others run beside us

# Four threads that ask for what is allowed and what is not, until told to stop; prints what came of it.
LOAD = r'''
import collections, json, os, socket, threading, time
seen, good, lock = collections.Counter(), [], threading.Lock()

def ask(host):
    with socket.create_connection(("198.18.0.1", 3128), 10) as sock:
        sock.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = sock.recv(64)
        return head.split()[1].decode() if head else "cut"

remembered = {}

def plain(host):
    if host not in remembered:  # once: an address outlives the process that gave it out
        remembered[host] = socket.gethostbyname(host)
    with socket.create_connection((remembered[host], 80), 10) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = sock.recv(64)
        return head.split()[1].decode() if head else "cut"

def work(fn, host, kind):
    while not os.path.exists("/workspace/stop"):
        try:
            got = fn(host)
        except ConnectionRefusedError:
            got = "refused"
        except ConnectionError:
            got = "cut"
        except TimeoutError:
            got = "silent"
        except socket.gaierror:
            got = "no name"
        with lock:
            seen[f"{kind} {got}"] += 1
            if got == "200":
                good.append(time.time())

threads = [threading.Thread(target=work, args=a) for a in (
    (ask, "www.ok.example", "proxy"), (plain, "www.ok.example", "plain"),
    (ask, "www.evil.example", "denied"), (plain, "www.evil.example", "denied"))]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps({"seen": seen, "good": good}))
'''


def egress_pid(server):
    found = [pid for pid in harness.descendants(server.warden_pid)
             if harness.cmdline(pid).split()[1:2] == ["egress"] and harness.alive(pid)]
    return found[0] if len(found) == 1 else None


def sockets_of(pid):
    """The sockets that listen, by inode: the warden's, whatever process holds them."""
    names = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # connections come and go
            names.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return {name for name in names if name.startswith("socket:")}


@pytest.fixture
def here():
    with world.World() as made:
        made.zone.update({"*.ok.example": ["45.1.0.1"], "*.evil.example": ["45.6.6.6"]})
        yield made


@pytest.mark.timeout(120)
def test_a_killed_egress_process_is_back_and_nothing_got_out(here):
    server = egress_box.start_server()
    box = egress_box.Box(server, {"allow": ["*.ok.example"]})
    box.put("/workspace/load.py", LOAD.encode())
    reply = server.post(f"{box.base}/execs", {"command": "python3 /workspace/load.py > /workspace/result"})
    assert reply.status == 201, reply
    wait_until(lambda: len(here.requests) > 20, 20, "the load")
    kept, kills, policy = None, [], server.get(f"{box.base}/egress").json()["rules"]
    for _ in range(KILLS):
        pid = wait_until(lambda: egress_pid(server), 10, "an egress process")
        shared = sockets_of(pid) & sockets_of(server.warden_pid)
        assert shared and kept in (None, shared), "the sandbox's sockets are others than before"
        kept, count, began = shared, len(here.requests), time.time()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(here.requests) > count + 10, 20, "requests after the kill")
        kills.append(began)
    box.put("/workspace/stop", b"")
    wait_until(lambda: not [e for e in server.get(f"{box.base}/execs").json()["items"] if e["state"] == "running"],
               30 * harness.SLOW, "the end of the load")
    result = json.loads(box.get("/workspace/result"))
    seen = result["seen"]
    # Cut connections are fine, but nobody was ever refused, nothing let through, and an address that was given
    # out before a kill stands for the same name after it.
    assert seen["proxy 200"] > 20 and seen["plain 200"] > 20 and seen["denied 403"] > 50, seen
    fine = {"proxy 200", "proxy cut", "plain 200", "plain cut", "denied 403", "denied cut"}
    assert set(seen) <= fine, seen
    away = [min(t for t in result["good"] if t > began + 0.005) - began for began in kills]  # not one under way
    print("away for", " ".join(f"{seconds:.3f}" for seconds in away), "s")
    assert max(away) < BACK_SECONDS * harness.SLOW and min(away) < 1, f"away for {away} s"
    assert policy == server.get(f"{box.base}/egress").json()["rules"], "the policy is what it was"
    here.settle()
    assert {name for name, _ in here.lookups} == {"www.ok.example"}
    assert {packet[1] for packet in here.packets} == {"45.1.0.1"}
    assert server.delete(box.base).status == 200
    server.stop()
