"""What a sandbox sees of its way out: the environment, names, the proxy, and that nothing else leads anywhere."""
import json
import os
import signal
import time

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


@pytest.fixture
def box(server):
    reply = server.post(BOXES, {"ttl_ms": 600000, "storage": "memory"})
    assert reply.status == 201, reply
    yield reply.json()["id"]
    assert server.delete(f"{BOXES}/{reply.json()['id']}").status == 200


def sh(server, box, line):
    reply = server.post(f"{BOXES}/{box}/execs?wait=20000", {"argv": ["sh", "-c", line]})
    assert reply.status == 201, reply
    return reply.json()


def test_programs_are_told_of_the_proxy(server, box):
    env = dict(line.split("=", 1) for line in sh(server, box, "env")["output"].splitlines())
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        assert env[name] == "http://198.18.0.1:3128"
    for name in ("NO_PROXY", "no_proxy"):
        assert env[name].split(",") == ["localhost", "127.0.0.1", "::1", "atoll.internal"]
    assert "nameserver 198.18.0.1\n" in sh(server, box, "cat /etc/resolv.conf")["output"]
    assert "198.18.0.1 atoll.internal\n" in sh(server, box, "cat /etc/hosts")["output"]


def test_a_denial_says_what_to_ask_for(server, box):
    said = json.loads(sh(server, box, "curl -sS http://example.test/x")["output"])["error"]
    assert said["host"] == "example.test" and said["port"] == 80 and said["sandbox"] == box
    assert said["ask"] == f"atoll egress allow {box} example.test"
    done = sh(server, box, "curl -sS https://example.test/ 2>&1")
    assert done["exit_code"] == 56 and "403" in done["output"], done


def test_nothing_leads_anywhere_without_the_proxy(server, box):
    direct = "env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY curl -sS -m 10 "
    assert "egress_denied" in sh(server, box, direct + "http://example.test/")["output"]
    assert sh(server, box, direct + "https://example.test/ 2>&1")["exit_code"] == 35
    for url in ("http://8.8.8.8/", "http://169.254.169.254/", f"http://127.0.0.1:{server.url.rsplit(':', 1)[1]}/"):
        done = sh(server, box, direct + url + " 2>&1")
        assert "egress_denied" in done["output"] or done["exit_code"] == 7, (url, done)
    assert "no route" not in sh(server, box, "getent hosts example.test")["output"]


def test_servers_inside_are_reached_as_ever(server, box):
    line = ("python3 -m http.server 8000 >/dev/null 2>&1 & for i in $(seq 50); do curl -s -o /dev/null "
            "http://127.0.0.1:8000/ && break; sleep 0.1; done; "
            "curl -sS -o /dev/null -w '%{http_code}' http://localhost:8000/")
    assert sh(server, box, line)["output"] == "200"


def test_who_am_i(server, box):
    assert json.loads(sh(server, box, "curl -sS http://atoll.internal/")["output"])["sandbox"] == box


def egress_of(server):
    """The process, once it has its name; others come and go meanwhile."""
    def found():
        for pid in harness.descendants(server.warden_pid):
            try:
                if harness.pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "atoll-egress":
                    return pid
            except OSError:
                pass
        return None

    harness.wait_until(found, 10, "the egress process")
    return found()


def test_a_killed_proxy_is_back_within_a_second(start_server):
    server = start_server()
    box = server.post(BOXES, {"ttl_ms": 600000, "storage": "memory"}).json()["id"]
    assert "egress_denied" in sh(server, box, "curl -sS http://example.test/")["output"]
    first = egress_of(server)
    os.kill(first, signal.SIGKILL)
    begun = time.monotonic()
    done = sh(server, box, "curl -sS http://example.test/")
    assert "egress_denied" in done["output"], "the listener was never closed"
    assert time.monotonic() - begun < 3 * harness.SLOW
    assert egress_of(server) != first
    assert server.delete(f"{BOXES}/{box}").status == 200


def test_sandboxes_of_a_killed_server_have_their_way_out_again(start_server):
    server = start_server()
    box = server.post(BOXES, {"ttl_ms": 600000, "storage": "memory"}).json()["id"]
    egress = egress_of(server)
    os.kill(server.warden_pid, signal.SIGKILL)
    server.process.wait()
    harness.wait_until(lambda: not harness.alive(egress), 10, "the egress process to end with the warden")
    server.start()
    assert "egress_denied" in sh(server, box, "curl -sS http://example.test/")["output"]
    assert server.delete(f"{BOXES}/{box}").status == 200


def test_the_proxy_is_jailed_and_somebody_else(server, box):
    pid, api = egress_of(server), None
    status = dict(line.split(":\t", 1) for line in harness.pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                  if ":\t" in line)
    api = next(p for p in harness.descendants(server.warden_pid)
               if harness.pathlib.Path(f"/proc/{p}/comm").read_text().strip() == "atoll-api")
    uid = harness.pathlib.Path(f"/proc/{api}/status").read_text().split("Uid:\t")[1].split()[0]
    assert int(status["Uid"].split()[0]) == int(uid) + 1 and status["CapEff"].strip("0") == ""
    assert status["Seccomp"].strip() == "2" and status["NoNewPrivs"].strip() == "1"
