"""Each guard of the egress process is needed: an attack that it stops succeeds without it.

build/unguarded/atoll is the same program, except that one guard (base/guard.h) can be left out. Every attack is made
twice: against all guards, where it must fail, and without the one that it is about, where it must succeed. So no
attack is one that could never have worked, and no guard one that another makes needless.
"""
import os
import re
import signal
import socket
import ssl

import egress_rig
import harness
import pytest
import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PROXY = (egress_rig.SELF, egress_rig.PROXY)
ATTACKS = {}


def attack(fn):
    ATTACKS[fn.__name__] = fn
    return fn


@pytest.fixture(scope="module")
def here():
    with world.World() as made:
        made.zone.update({
            "good.example": ["45.1.2.3"], "other.example": ["45.1.2.4"], "inner.example": ["10.0.0.7"],
            "mixed.example": ["45.1.2.3", "10.0.0.7"], "ours.example": ["11.0.0.99"], "home.example": [world.HOME]})
        yield made


def everything(sock):
    sock.settimeout(8)
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except (ConnectionResetError, TimeoutError):
        pass
    return data


def talk(box, data, to=PROXY, then=b""):
    def inside():
        with socket.create_connection(to, 8) as sock:
            sock.sendall(data)
            first = sock.recv(65536) if then else b""
            if then:
                sock.sendall(then)
            return first + everything(sock)

    return box.run(inside)


def get(box, url, *lines, method="GET"):
    head = [f"{method} {url} HTTP/1.1", "Host: x", "Connection: close", *lines, "", ""]
    return talk(box, "\r\n".join(head).encode())


def ok(answer):
    return answer.startswith(b"HTTP/1.1 200")


def tunnel(box, target):
    def inside():
        sock = socket.create_connection(PROXY, 8)
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in sock.recv(4096)
        return sock

    return box.run(inside)


def handshake(box, target, name):
    """Does TLS with this server name get through a tunnel to the target?"""
    sock = tunnel(box, target)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sock.settimeout(8)
    try:
        with context.wrap_socket(sock, server_hostname=name):
            return True
    except (ssl.SSLError, OSError):
        return False
    finally:
        sock.close()


@attack
def decision(here, egress):
    """A host that no rule allows: looked up and reached."""
    count = len(here.lookups)
    reached = ok(get(egress.add("one", "allow good.example"), "http://other.example/"))
    assert reached == (len(here.lookups) > count), "a denied name is never looked up"
    return reached


@attack
def each_request(here, egress):
    """A second request behind one that was allowed."""
    one, two = (b"GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n" % host for host in (b"good.example", b"other.example"))
    return talk(egress.add("one", "allow good.example"), one + two).count(b"HTTP/1.1 200") == 2


@attack
def address(here, egress):
    """A name that leads inside."""
    return ok(get(egress.add("one", "allow *.example"), "http://inner.example/"))


@attack
def every_answer(here, egress):
    """A name that leads outside and inside."""
    return ok(get(egress.add("one", "allow *.example"), "http://mixed.example/"))


@attack
def own_host(here, egress):
    """A service of this machine, that a rule of an operator names by mistake."""
    with socket.create_server((world.HOME, 0)) as service:
        port = service.getsockname()[1]
        service.settimeout(2)
        box = egress.add("one", f"allow {world.HOME}:{port}", f"allow home.example:{port}")
        sock = box.run(lambda: socket.create_connection(PROXY, 8))
        sock.sendall(b"CONNECT home.example:%d HTTP/1.1\r\n\r\n" % port)
        try:
            service.accept()[0].close()
            return True
        except TimeoutError:
            return False
        finally:
            sock.close()


@attack
def own_listener(here, egress):
    """One of the server's listeners, by a route that leads elsewhere."""
    return ok(get(egress.add("one", "allow *.example", "allow 11.0.0.0/8"), "http://ours.example/"))


@attack
def server_name(here, egress):
    """Fronting: a tunnel to one name, TLS to another."""
    return handshake(egress.add("one", "allow good.example"), "good.example:443", "other.example")


@attack
def server_name_said(here, egress):
    """TLS that does not say whom it is to."""
    return handshake(egress.add("one", "allow good.example"), "good.example:443", None)


@attack
def tls_in_443(here, egress):
    """Anything but TLS in a tunnel to port 443."""
    sock = tunnel(egress.add("one", "allow good.example"), "good.example:443")
    sock.sendall(b"SSH-2.0-x\r\n")
    everything(sock)
    sock.close()
    return egress.flowed()[0]["sent"] == len(b"SSH-2.0-x\r\n")


@attack
def tunnel_looked(here, egress):
    """In a tunnel to a host that is allowed: a request to another name at its address."""
    sock = tunnel(egress.add("one", "allow good.example"), "good.example:80")
    sock.sendall(b"GET / HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n")
    answer = everything(sock)
    sock.close()
    return ok(answer)


@attack
def tls_by_proxy(here, egress):
    """A request in clear to port 443."""
    return not get(egress.add("one", "allow good.example"), "http://good.example:443/").startswith(b"HTTP/1.1 400")


@attack
def host_field(here, egress):
    """Another name in Host than the address stands for."""
    box = egress.add("one", "allow *.example")

    def address():
        query = b"\1\2\1\0\0\1\0\0\0\0\0\0" + world.name_bytes("good.example") + b"\0\1\0\1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.connect(("9.9.9.9", 53))
            sock.send(query)
            return socket.inet_ntoa(sock.recv(512)[-4:])

    return ok(talk(box, b"GET / HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n",
                   (box.run(address), 80)))


@attack
def own_connection(here, egress):
    """A request on the connection to the far end that another sandbox has left."""
    boxes = [egress.add(name, "allow good.example") for name in ("one", "two")]
    begun = ("tcp", "45.1.2.3", 80)
    here.settle()
    before = here.packets.count(begun)
    assert all(ok(get(box, "http://good.example/")) for box in boxes)
    here.settle()
    return here.packets.count(begun) == before + 1


@attack
def proxy_fields(here, egress):
    """What is between a client and its proxy goes no further."""
    count = len(here.requests)
    get(egress.add("one", "allow good.example"), "http://good.example/", "Proxy-Authorization: Basic c2VjcmV0")
    return "c2VjcmV0" in str([request.head for request in here.requests[count:]])


@attack
def connect_body(here, egress):
    """A CONNECT that two programs would end in two places."""
    return ok(talk(egress.add("one", "allow good.example:9000/raw"),
                   b"CONNECT good.example:9000 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", then=b"x"))


@attack
def trace(here, egress):
    """A request that asks for its own fields back."""
    return ok(get(egress.add("one", "allow good.example"), "http://good.example/", method="TRACE"))


@attack
def taken_back(here, egress):
    """A tunnel whose rule was taken back goes on."""
    sock = tunnel(egress.add("one", "allow good.example:9000/raw"), "good.example:9000")
    egress.policy("one", "allow other.example", version=2)
    sock.settimeout(2)
    try:
        sock.sendall(b"x")
        return sock.recv(1) == b"x"
    except ConnectionError:
        return False
    finally:
        sock.close()


@attack
def no_policy(here, egress):
    """A sandbox of which nobody says any more what it may."""
    box = egress.add("one", "allow good.example")
    assert ok(get(box, "http://good.example/")), "by now it is there, with its policy"
    egress.send(egress_rig.FORGET, b"one".ljust(40, b"\0"))
    return ok(get(box, "http://good.example/"))


@attack
def max_bytes(here, egress):
    """More bytes than it may move."""
    sock = tunnel(egress.add("one", "allow good.example:9000/raw", "max_bytes 100"), "good.example:9000")
    sock.sendall(b"x" * 200)
    got = b""
    sock.settimeout(2)
    try:
        while len(got) < 200 and (piece := sock.recv(200)):
            got += piece
    except (ConnectionError, TimeoutError):
        pass
    sock.close()
    return len(got) == 200


@attack
def max_connections(here, egress):
    """More connections at once than it may have."""
    box = egress.add("one", "allow good.example:9000/raw", "max_connections 1")
    first = tunnel(box, "good.example:9000")
    second = box.run(lambda: socket.create_connection(PROXY, 8))
    second.sendall(b"CONNECT good.example:9000 HTTP/1.1\r\n\r\n")
    second.settimeout(1)
    try:
        return b" 200 " in second.recv(100)
    except TimeoutError:
        return False
    finally:
        first.close()
        second.close()


@attack
def said_before(here, egress):
    """A request that came after its rule was taken back is allowed, on a connection that is looked at before the news.
    (A moment later it is closed; until then its name was looked up.)"""
    box = egress.add("one", "allow good.example", "allow other.example")
    sock = box.run(lambda: socket.create_connection(PROXY, 8))
    sock.settimeout(8)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert sock.recv(65536).startswith(b"HTTP/1.1 200"), "it is kept, and another request may follow"
    pid = egress.process.pid
    egress.process.send_signal(signal.SIGSTOP)
    try:
        harness.wait_until(lambda: harness.proc_status(pid)["State"].startswith("T"), 10, "the process to stop")
        sock.sendall(b"GET http://other.example/ HTTP/1.1\r\n")  # so that its socket is ready first
        egress.policy("one", "allow good.example", version=2)
        sock.sendall(b"Host: x\r\nConnection: close\r\n\r\n")
    finally:
        egress.process.send_signal(signal.SIGCONT)
    with sock:
        everything(sock)
    first, second = egress.decided(2)[:2]
    assert (first["host"], second["host"]) == ("good.example", "other.example")
    return second["verdict"] == "allowed"


@attack
def told_again(here, egress):
    """What a sandbox has used is forgotten with an api process that was killed before it had stored it."""
    sock = tunnel(egress.add("one", "allow good.example:9000/raw", "max_bytes 100000"), "good.example:9000")
    sock.sendall(b"x" * 300)
    sock.settimeout(8)
    assert sock.recv(300)
    harness.wait_until(lambda: egress.take() or egress.used.get("one", 0) >= 600, 10, "the first process to be told")
    egress.used.clear()
    egress.introduce()  # the next one, which knows of none
    egress.take(3)
    sock.close()
    return egress.used.get("one", 0) < 600


@attack
def self_rate(here, egress):
    """More requests to atoll.internal than it answers."""
    box = egress.add("one")

    def inside():
        answers = []
        for _ in range(400):
            with socket.create_connection((egress_rig.SELF, 80), 8) as sock:
                sock.sendall(b"GET /budget HTTP/1.1\r\nHost: atoll.internal\r\n\r\n")
                answers.append(everything(sock))
        return answers

    return all(map(ok, box.run(inside)))


def made(here, name, without):
    egress = egress_rig.Egress(here, without=without)
    try:
        return ATTACKS[name](here, egress)
    finally:
        egress.close()


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_an_attack_succeeds_only_without_its_guard(here, name):
    assert made(here, name, "") is False, "all guards stand"
    assert made(here, name, name) is True, "without this one"


def test_every_guard_has_its_attack():
    found = set()
    for path in (harness.ROOT / "src/egress").glob("*.c"):
        found |= set(re.findall(r"\bguard\((\w+)\)", path.read_text()))
    assert found == set(ATTACKS)
    built = set(re.search(r"^UNGUARDED_OBJ := .*,(.*)\)$", (harness.ROOT / "Makefile").read_text(), re.M)[1].split())
    with_guards = {path.stem for path in (harness.ROOT / "src/egress").glob("*.c") if "guard(" in path.read_text()}
    assert built == with_guards, "each file with a guard is in the program of the tests"


def test_in_the_program_itself_no_guard_can_be_left_out():
    assert b"ATOLL_WITHOUT" not in (harness.BUILD / "atoll").read_bytes()
    assert b"ATOLL_WITHOUT" in (harness.BUILD / "unguarded" / "atoll").read_bytes()
