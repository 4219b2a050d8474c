"""What a tunnel carries, with programs that people use, and servers that speak first. The egress process by itself; the
table of attempts is tests/egress_table.py."""
import os
import shutil
import socket
import subprocess
import time

import egress_rig
import pytest
import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PROXY = (egress_rig.SELF, egress_rig.PROXY)
GREETING = b"220 mail.example ESMTP\r\n"


@pytest.fixture(scope="module")
def here():
    with world.World() as made:
        made.zone.update({"good.example": ["45.1.2.3"], "other.example": ["45.1.2.3"], "mail.example": ["45.1.2.5"]})
        made.listen(25, lambda conn, address, port: (conn.sendall(GREETING), conn.recv(100)))
        yield made


@pytest.fixture
def egress(here):
    made = egress_rig.Egress(here)
    yield made
    made.close()


def connect(box, target):
    def inside():
        sock = socket.create_connection(PROXY, 20)
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)
        assert b" 200 " in head, head
        return sock

    return box.run(inside)


def test_a_server_that_speaks_first_needs_a_rule_for_raw_bytes(here, egress):
    """Without one, the connection ends after a second and the record says what is missing."""
    for rules, wanted in ((["allow mail.example:25"], b""), (["allow mail.example:25/raw"], GREETING),
                          (["allow mail.example:25", "unchecked mail.example:25"], GREETING)):
        box = egress.add("one", *rules)
        begun = time.monotonic()
        with connect(box, "mail.example:25") as sock:
            assert sock.recv(100) == wanted, rules
        if not wanted:
            assert time.monotonic() - begun < 10
            first, second = egress.decided(2)
            assert (first["verdict"], second["verdict"]) == ("allowed", "denied")
            assert "/raw" in second["text"] and second["rule"] == "mail.example:25", second
        egress.decisions.clear()
        egress.gone(len(egress.boxes))


def test_mode_open_is_not_a_rule_for_raw_bytes(here, egress):
    box = egress.add("one", "mode open", "deny other.example")
    with connect(box, "good.example:9000") as sock:
        sock.sendall(b"\0raw")
        assert sock.recv(10) == b""
    with connect(box, "good.example:80") as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 403")
    with connect(box, "good.example:22") as sock:
        sock.sendall(b"SSH-2.0-x\r\n")
        assert sock.recv(100) == b"SSH-2.0-x\r\n", "SSH has no names that could be another"


def test_a_change_of_the_rule_ends_raw_tunnels(here, egress):
    box = egress.add("one", "allow good.example:9000/raw")
    with connect(box, "good.example:9000") as sock:
        sock.sendall(b"raw")
        assert sock.recv(3) == b"raw"
        egress.policy("one", "allow good.example:9000", version=2)
        sock.settimeout(10)
        assert sock.recv(1) == b""


def test_a_tunnel_that_says_nothing_waits(here, egress):
    """Browsers open tunnels before they need them."""
    box = egress.add("one", "allow good.example")
    with connect(box, "good.example:80") as sock:
        time.sleep(3)
        sock.sendall(b"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 200")


def test_what_is_said_with_connect_is_read(here, egress):
    """A client that does not wait for the answer to CONNECT."""
    box = egress.add("one", "allow good.example")

    def inside(host):
        with socket.create_connection(PROXY, 20) as sock:
            sock.sendall(b"CONNECT good.example:80 HTTP/1.1\r\n\r\n"
                         b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host)
            data = b""
            while piece := sock.recv(4096):
                data += piece
            return data

    assert box.run(lambda: inside(b"good.example")).count(b"HTTP/1.1 200") == 2
    assert b"HTTP/1.1 403" in box.run(lambda: inside(b"other.example"))


def test_curl_in_a_tunnel(here, egress):
    box = egress.add("one", "allow good.example:8080")
    command = ["curl", "-sS", "-p", "-x", "http://%s:%d" % PROXY, "-m", "20", "-o", "/dev/null", "-w", "%{http_code} "]
    url = "http://good.example:8080/a"
    run = lambda *args: subprocess.run([*command, *args], capture_output=True, text=True)  # noqa: E731
    assert box.run(lambda: run(url, "-o", "/dev/null", url)).stdout == "200 200 "
    assert box.run(lambda: run("-H", "Host: other.example", url)).stdout == "403 "
    assert [request.host for request in here.requests[-2:]] == ["good.example:8080"] * 2


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh")
def test_ssh_in_a_tunnel(here, egress):
    """The client speaks at once: its identification reaches the server."""
    box = egress.add("one", "allow good.example:22")
    script = ('import os,socket,sys,threading\n'
              's=socket.create_connection(("%s",%d));s.sendall(b"CONNECT good.example:22 HTTP/1.1\\r\\n\\r\\n")\n'
              'h=b""\n'
              'while not h.endswith(b"\\r\\n\\r\\n"): h+=s.recv(1)\n'
              'send=lambda: [s.sendall(d) for d in iter(lambda: os.read(0,4096),b"")]\n'
              'threading.Thread(target=send,daemon=True).start()\n'
              'while d:=s.recv(4096): os.write(1,d)\n' % PROXY)
    got = box.run(lambda: subprocess.run(
        ["ssh", "-v", "-F", "none", "-o", "BatchMode=yes", "-o", f"ProxyCommand=python3 -c '{script}'", "good.example"],
        capture_output=True, text=True, timeout=30))
    assert "Remote protocol version 2.0" in got.stderr, got.stderr
