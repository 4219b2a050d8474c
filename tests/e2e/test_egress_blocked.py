"""A denial explains itself: at the end of `run` and `exec`, in the SDK, and in the reply to CONNECT."""
import os
import sys

import egress_box
import harness
import pytest
import world

sys.path.insert(0, str(harness.ROOT / "sdk/python/src"))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
TRY = "curl -s -m 20 https://one.evil.example/; curl -s -o /dev/null http://two.evil.example/;" \
    " curl -s -o /dev/null http://fine.ok.example/; curl -s -p -m 20 http://raw.evil.example:8443/; true"


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


def test_run_says_what_was_blocked_and_how_to_allow_it(server):
    got = server.cli("run", "--no-workspace", "--allow", "*.ok.example", "--", "sh", "-c", TRY)
    assert got.returncode == 0, got
    line, = [line for line in got.stderr.splitlines() if "blocked" in line]
    for part in ("3 hosts were blocked", "one.evil.example:443", "two.evil.example:80", "raw.evil.example:8443",
                 "Allow: atoll run", "--allow one.evil.example ", "--allow two.evil.example ",
                 "--allow raw.evil.example:8443"):
        assert part in line, (part, line)
    assert "ok.example:" not in line
    assert "blocked" not in server.cli("run", "--no-workspace", "--", "true").stderr


def test_exec_says_it_for_a_sandbox_that_stays(server):
    box = egress_box.Box(server, {"allow": ["fine.ok.example", "fine.ok.example:9000"]})
    before = server.cli("exec", box.id, "--", "curl", "-s", "http://before.evil.example/")
    assert f"1 host was blocked: before.evil.example:80. Allow: atoll egress allow {box.id} before.evil.example" in \
        before.stderr, before
    quiet = server.cli("exec", box.id, "--", "curl", "-s", "http://fine.ok.example/")
    assert quiet.returncode == 0 and "blocked" not in quiet.stderr, "what another command was denied"
    raw = ("python3 -c 'import socket; s = socket.create_connection((\"fine.ok.example\", 9000)); s.sendall(bytes(9));"
           " s.recv(1)'")
    got = server.cli("exec", box.id, "--", "sh", "-c", raw)
    assert f"atoll egress allow {box.id} fine.ok.example:9000/raw" in got.stderr, got
    server.cli("egress", "allow", box.id, "fine.ok.example:9000/raw", check=True)
    document = server.post(f"{box.base}/execs?wait=30000", {"command": "curl -s http://x.evil.example/"}).json()
    assert document["blocked"] == ["x.evil.example:80"]


def test_a_reply_to_connect_says_it(server):
    box = egress_box.Box(server, {})
    script = ('import socket\ns = socket.create_connection(("198.18.0.1", 3128))\n'
              's.sendall(b"CONNECT pypi.example:443 HTTP/1.1\\r\\n\\r\\n")\ndata = b""\n'
              'while piece := s.recv(4096): data += piece\nprint(data.decode())')
    box.put("/workspace/try.py", script.encode())
    got = box.sh("python3 /workspace/try.py")
    assert got.startswith("HTTP/1.1 403 Blocked by the egress policy") and "Atoll-Egress: egress_denied\r\n" in got, got
    assert f"Atoll-Egress-Allow: atoll egress allow {box.id} pypi.example\r\n" in got, got
    assert '"code":"egress_denied"' in got.replace('": "', '":"'), got


def test_the_sdk_says_it(server):
    import atoll

    box = egress_box.Box(server, {})
    with atoll.Client(server.url, server.token) as client:
        done = client.sandboxes.get(box.id).exec("curl -sf http://a.evil.example/")
        assert done.blocked == ["a.evil.example:80"]
        with pytest.raises(atoll.CommandFailed, match="a.evil.example:80"):
            done.check()
