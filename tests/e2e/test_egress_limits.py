"""How much a sandbox may move, and how often at once: at each limit and one beyond, across deaths of the process."""
import contextlib
import fcntl
import json
import os
import pathlib
import socket

import egress_rig
import harness
import pytest
import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PROXY = (egress_rig.SELF, egress_rig.PROXY)
LARGE = 32  # EGRESS_PIPES_LARGE
HALF = 100_000
LIMIT = 2 * HALF  # of an echo: so much there, so much back


@pytest.fixture
def here():
    with world.World() as made:
        made.zone.update({"good.example": ["45.1.2.3"]})
        yield made


@pytest.fixture
def egress(here):
    rig = egress_rig.Egress(here)
    yield rig
    errors = [line for line in rig.close().splitlines() if "error" in line and "the warden is gone" not in line]
    assert not errors and rig.process.returncode == 0, errors


def tunnel(box, target="good.example:9000"):
    def inside():
        sock = socket.create_connection(PROXY, 10)
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        answer = sock.recv(4096)
        return sock if b" 200 " in answer else answer

    return box.run(inside)


def take(sock, size):
    """What comes, up to so much; less when it ends before."""
    sock.settimeout(10)
    data = b""
    while len(data) < size:
        try:
            piece = sock.recv(size - len(data))
        except ConnectionResetError:
            break
        if not piece:
            break
        data += piece
    return data


def request(box, path="/", body=b""):
    def inside():
        with socket.create_connection(PROXY, 10) as sock:
            sock.sendall(b"POST http://good.example%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                         b"Content-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
            return take(sock, 1 << 22)

    return box.run(inside)


def limited(answer):
    if not answer.startswith(b"HTTP/1.1 429 "):
        return False
    said = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
    return said["code"] == "egress_limited" and str(LIMIT) in said["message"] and said["sandbox"] == "one"


def verdicts(egress, count):
    return [d["verdict"] for d in egress.decided(count)]


def test_all_of_its_bytes_pass_and_not_one_more(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", "allow good.example", f"max_bytes {LIMIT}")
    sock = tunnel(box)
    sock.sendall(b"x" * HALF)
    assert len(take(sock, HALF)) == HALF, "up to the limit nothing is held back"
    sock.sendall(b"y")
    assert take(sock, 1) == b"", "one more closes it"
    sock.close()
    assert limited(tunnel(box)), "and nothing more is begun"
    assert limited(request(box))
    assert verdicts(egress, 4) == ["allowed", "limited", "limited", "limited"]
    flow, = egress.flowed()
    assert (flow["sent"], flow["received"]) == (HALF, HALF), "our own words do not count"
    assert not [r for r in here.requests] and b"y" not in b"".join(bytes(got) for _, _, got in here.streams)


def test_one_byte_less_than_the_limit_leaves_one(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}")
    sock = tunnel(box)
    sock.sendall(b"x" * (HALF - 1))
    assert len(take(sock, HALF - 1)) == HALF - 1
    sock.sendall(b"yz")
    assert take(sock, 4) in (b"", b"yz"), "two bytes are left, whichever way they go"
    sock.close()
    flow, = egress.flowed()
    assert flow["sent"] + flow["received"] <= LIMIT


def test_the_end_of_a_stream_is_no_byte(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}")
    sock = tunnel(box)
    sock.sendall(b"x" * HALF)
    sock.shutdown(socket.SHUT_WR)
    assert len(take(sock, LIMIT)) == HALF
    sock.close()
    assert egress.flowed() and verdicts(egress, 1) == ["allowed"]


def test_all_connections_of_a_sandbox_count_together_and_no_others(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}")
    other = egress.add("two", "allow good.example:9000/raw", f"max_bytes {LIMIT}")
    socks = [tunnel(box) for _ in range(4)]
    for sock in socks:
        sock.sendall(b"x" * (HALF // 4))
        assert len(take(sock, HALF // 4)) == HALF // 4
    socks[2].sendall(b"y")
    assert take(socks[2], 1) == b""
    free = tunnel(other)
    free.sendall(b"x" * HALF)
    assert len(take(free, HALF)) == HALF
    for sock in [*socks, free]:
        sock.close()


def test_requests_count_heads_and_bodies(here, egress):
    box = egress.add("one", "allow good.example", f"max_bytes {LIMIT}")
    while not (answer := request(box, body=b"x" * 20_000)).startswith(b"HTTP/1.1 429"):
        assert answer == b"" or answer.startswith(b"HTTP/1.1 200"), answer[:100]
    egress.take(0.3)
    moved = sum(f["sent"] + f["received"] for f in egress.flows)
    assert moved == LIMIT, "the last one was cut at the limit"
    assert limited(request(box))


def test_a_higher_limit_opens_and_a_lower_one_closes(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}")
    sock = tunnel(box)
    sock.sendall(b"x" * HALF)
    assert len(take(sock, HALF)) == HALF
    egress.policy("one", "allow good.example:9000/raw", f"max_bytes {2 * LIMIT}", version=2)
    sock.sendall(b"z")
    assert take(sock, 1) == b"z"
    egress.policy("one", "allow good.example:9000/raw", f"max_bytes {HALF}", version=3)
    sock.sendall(b"z")
    assert take(sock, 1) == b""
    sock.close()


def test_what_was_used_outlives_the_process(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}")
    sock = tunnel(box)
    sock.sendall(b"x" * (HALF - 1))
    assert len(take(sock, HALF - 1)) == HALF - 1
    egress.kill()  # the flow has no record, but its bytes were counted
    sock.close()
    egress.start()
    sock = tunnel(box)
    sock.sendall(b"yz!")
    assert take(sock, 3) in (b"", b"yz"), "two bytes are left"
    sock.close()
    assert limited(tunnel(box))


def test_what_the_api_process_knows_counts(here, egress):
    box = egress.add("one")
    egress.policy("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}", version=2, used=LIMIT)
    assert limited(tunnel(box))
    egress.policy("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}", version=3, used=0)
    assert limited(tunnel(box)), "it only ever rises"


def test_the_api_process_is_told_while_a_tunnel_is_open(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}")
    sock = tunnel(box)
    sock.sendall(b"x" * 1000)
    assert len(take(sock, 1000)) == 1000
    egress.take(3)
    assert egress.used["one"] == 2000
    sock.close()


def test_an_api_process_that_knows_less_is_told(here, egress):
    """It was killed before it had stored what it knew; nothing moves any more."""
    sock = tunnel(egress.add("one", "allow good.example:9000/raw", f"max_bytes {LIMIT}"))
    sock.sendall(b"x" * 1000)
    assert len(take(sock, 1000)) == 1000
    sock.close()
    egress.flowed()
    egress.take(3)
    egress.used.clear()
    egress.peer.close()
    egress.introduce()
    harness.wait_until(lambda: egress.take(0.05) or egress.used, 10, "what was used")
    assert egress.used == {"one": 2000}
    egress.policy("one", "allow good.example:9000/raw", version=2, used=2000)
    egress.used.clear()
    assert isinstance(tunnel(egress.boxes[1]), socket.socket)
    egress.decided()
    assert egress.used == {}, "and not again"


def test_connections_at_once(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", "max_connections 3")
    socks = [tunnel(box) for _ in range(3)]

    def one_more():
        sock = socket.create_connection(PROXY, 10)
        sock.sendall(b"CONNECT good.example:9000 HTTP/1.1\r\n\r\n")
        sock.settimeout(0.5)
        try:
            return sock, sock.recv(100)
        except TimeoutError:
            return sock, None

    waiting, got = box.run(one_more)
    assert got is None, "one more waits"
    socks.pop().close()
    waiting.settimeout(10)
    assert b" 200 " in waiting.recv(100), "until one ends"
    for sock in [*socks, waiting]:
        sock.close()


def pipes(pid):
    """Sizes of those that a process has."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        with contextlib.suppress(FileNotFoundError):  # they come and go
            name = os.readlink(path)
            if name.startswith("pipe:") and name not in found:
                mine = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                found[name] = fcntl.fcntl(mine, fcntl.F_GETPIPE_SZ)
                os.close(mine)
    return list(found.values())


def test_so_many_pipes_are_large(here, egress):
    """Tunnels whose client does not read hold one each; the kernel has only so much for all of them."""
    box, before = egress.add("one", "allow good.example:9000/raw"), len(pipes(egress.process.pid))

    def small_buffers():
        world.enter(box.namespace)
        pathlib.Path("/proc/sys/net/ipv4/tcp_wmem").write_text("4096 16384 32768")

    def stuck():
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(10)
        sock.connect(PROXY)
        sock.sendall(b"CONNECT good.example:9000 HTTP/1.1\r\n\r\n")
        assert b" 200 " in sock.recv(100)
        sock.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            for _ in range(32):
                sock.sendall(bytes(16384))
        return sock

    world.in_thread(small_buffers)
    socks = [box.run(stuck) for _ in range(LARGE + 2)]
    sizes = harness.wait_until(lambda: (got := pipes(egress.process.pid)) and len(got) >= before + LARGE + 2 and got,
                               10, "pipes")
    assert sizes.count(1 << 20) == LARGE and all(size <= 65536 for size in sizes if size != 1 << 20), sizes
    for sock in socks:
        sock.close()


def test_names_outlive_the_process(here, egress):
    box = egress.add("one", "allow *.example:9000/raw", ports=(9000, egress_rig.PROXY))
    other = egress.add("two", "allow *.example:9000/raw", ports=(9000, egress_rig.PROXY))

    def address(name):
        query = b"\1\2\1\0\0\1\0\0\0\0\0\0" + world.name_bytes(name) + b"\0\1\0\1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.connect(("9.9.9.9", 53))
            sock.send(query)
            return socket.inet_ntoa(sock.recv(512)[-4:])

    def echo(to):
        with socket.create_connection((to, 9000), 10) as sock:
            sock.sendall(b"hello")
            return take(sock, 5)

    to = box.run(lambda: address("good.example"))
    assert box.run(lambda: echo(to)) == b"hello"
    for _ in range(3):
        egress.kill()
        egress.start()
        assert box.run(lambda: echo(to)) == b"hello", "an address that a program remembers"
        assert other.run(lambda: echo(to)) == b"", "of another sandbox it is nobody's"
    assert box.run(lambda: address("good.example")) == to
    assert box.run(lambda: address("new.example")) != to
