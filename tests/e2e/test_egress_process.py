"""The egress process against a closed world: who is let out, who is not, and what is left behind in neither case."""
import json
import os
import signal
import socket
import ssl
import struct
import time

import egress_rig
import harness
import pytest
import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PROXY = (egress_rig.SELF, egress_rig.PROXY)


@pytest.fixture
def here():
    with world.World() as made:
        made.zone.update({
            "good.example": ["45.1.2.3"], "other.example": ["45.1.2.4"], "two.example": ["45.1.2.5", "45.1.2.6"],
            "inner.example": ["10.0.0.7"], "meta.example": ["169.254.169.254"], "loop.example": ["127.0.0.1"],
            "mixed.example": ["45.1.2.3", "10.0.0.7"], "home.example": [world.HOME], "ours.example": ["11.0.0.99"],
            "alias.example": [world.Alias("inner.example")], "mute.example": [world.SILENCE],
            "mapped.example": ["::ffff:45.1.2.3"],
        })
        yield made


@pytest.fixture
def egress(here):
    rig = egress_rig.Egress(here)
    yield rig
    errors = [line for line in rig.close().splitlines() if "error" in line and "the warden is gone" not in line]
    assert not errors and rig.process.returncode == 0, errors


def read_all(sock):
    data = b""
    while True:
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def talk(box, to, data, then=b"", timeout=15):
    """Sends it and gives all that comes back."""
    def inside():
        with socket.create_connection(to, timeout) as sock:
            sock.sendall(data)
            if then:
                first = sock.recv(65536)
                sock.sendall(then)
                return first + read_all(sock)
            return read_all(sock)

    return box.run(inside)


def get(box, url, *lines, method="GET", host=None):
    name = url.split("/")[2]
    head = [f"{method} {url} HTTP/1.1", f"Host: {host or name}", "Connection: close", *lines, "", ""]
    return talk(box, PROXY, "\r\n".join(head).encode())


def resolve(box, name, server="9.9.9.9"):
    def inside():
        query = b"\1\2\1\0\0\1\0\0\0\0\0\0" + world.name_bytes(name) + struct.pack(">HH", 1, 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.connect((server, 53))
            sock.send(query)
            return sock.recv(512)

    return box.run(inside)


def address(box, name):
    return socket.inet_ntoa(resolve(box, name)[-4:])


def tls(box, to, name, ca, request=b"GET / HTTP/1.0\r\n\r\n", connect=None, server_name=None):
    """What comes back through TLS; connect: the tunnel to ask for first."""
    def inside():
        with socket.create_connection(to, 15) as sock:
            if connect:
                sock.sendall(f"CONNECT {connect} HTTP/1.1\r\nHost: {connect}\r\n\r\n".encode())
                answer = sock.recv(4096)
                if b" 200 " not in answer:
                    return answer
            context = ssl.create_default_context(cafile=ca)
            context.check_hostname = name is not None
            if name is None:
                context.verify_mode = ssl.CERT_NONE
            try:
                with context.wrap_socket(sock, server_hostname=server_name or name) as secure:
                    secure.sendall(request)
                    return read_all(secure)
            except (ssl.SSLError, ConnectionError) as error:
                return error

    return box.run(inside)


def ca(here):
    return os.path.join(here.directory, "ca.pem")


# ---- let out ----

def test_a_request_that_is_allowed_is_composed_anew(here, egress):
    box = egress.add("one", "allow good.example")
    answer = get(box, "http://good.example/a?b=c", "X-Mine: yes", "Proxy-Authorization: Basic abc",
                 "Proxy-Connection: close", "TE: trailers", "X-Hop: no", "Connection: X-Hop", "Keep-Alive: 5",
                 host="evil.example")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    request, = here.requests
    head = request.head if isinstance(request.head, bytes) else request.head.encode()
    assert head.startswith(b"GET /a?b=c HTTP/1.1\r\nHost: good.example\r\n"), head
    assert b"x-mine: yes" in head.lower()
    for word in (b"proxy-", b"te:", b"x-hop", b"keep-alive", b"evil"):
        assert word not in head.lower(), (word, head)
    decision, = egress.decided()
    assert {key: decision[key] for key in ("verdict", "host", "port", "kind", "rule", "box")} == {
        "verdict": "allowed", "host": "good.example", "port": 80, "kind": "http", "rule": "good.example", "box": "one"}
    flow, = egress.flowed()
    assert (flow["address"], flow["port"], flow["host"], flow["kind"]) == ("45.1.2.3", 80, "good.example", "http")
    assert flow["sent"] > 0 and flow["received"] > 0


def test_what_an_answer_calls_its_own_goes_no_further(here, egress):
    """Fields that the host names in Connection are between it and us."""
    here.pages["good.example", "/hop"] = (b"HTTP/1.1 200 OK\r\nX-Hop: a\r\nConnection: X-Hop, close\r\nx-other: b\r\n"
                                          b"Connection: x-more\r\nX-More: c\r\nContent-Length: 2\r\n\r\nok")
    answer = get(egress.add("one", "allow good.example"), "http://good.example/hop").lower()
    assert answer.endswith(b"\r\n\r\nok") and b"x-other: b" in answer, answer
    assert b"x-hop" not in answer and b"x-more" not in answer, answer


def test_records_say_what_was_asked_for(here, egress):
    """Where that is seen, up to the question mark, cut off where there is no more room; nothing that is malformed."""
    box = egress.add("one", "allow good.example", "allow good.example:9000/raw")
    long = "/" + "x" * 300
    get(box, "http://good.example/a/b?key=secret")
    get(box, "http://other.example/", method="PURGE")
    get(box, f"http://good.example{long}")
    get(box, "http://good.example/a", method="TRACE")
    talk(box, PROXY, b"CONNECT other.example:9000 HTTP/1.1\r\n\r\n")
    got = [(one["verdict"], one["method"], one["path"]) for one in egress.decided(5)]
    assert got == [("allowed", "GET", "/a/b"), ("denied", "PURGE", "/"), ("allowed", "GET", long[:255]),
                   ("malformed", "", ""), ("denied", "", "")]


def test_every_pipelined_request_is_judged(here, egress):
    box = egress.add("one", "allow good.example")
    data = b"".join(b"GET http://%s/%d HTTP/1.1\r\nHost: x\r\n\r\n" % (host, i)
                    for i, host in enumerate([b"good.example", b"good.example", b"other.example", b"good.example"]))
    answer = talk(box, PROXY, data)
    assert answer.count(b"HTTP/1.1 200") == 2 and answer.count(b"HTTP/1.1 403") == 1, answer
    assert [(d["verdict"], d["request"]) for d in egress.decided(3)] == [("allowed", 1), ("allowed", 2), ("denied", 3)]
    assert ("other.example", "A") not in here.lookups


def test_bodies_go_through_in_either_framing(here, egress):
    box = egress.add("one", "allow good.example")
    body = os.urandom(300000)
    head = b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    answer = talk(box, PROXY, head + b"Content-Length: 300000\r\n\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    assert here.requests[0].body == body
    pieces = [body[i:i + 7777] for i in range(0, len(body), 7777)] + [b""]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    answer = talk(box, PROXY, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert answer.startswith(b"HTTP/1.1 200") and here.requests[1].body == body


def test_a_tunnel_with_the_right_name(here, egress):
    box = egress.add("one", "allow good.example")
    assert b"200" in tls(box, PROXY, "good.example", ca(here), connect="good.example:443")
    assert [(d["verdict"], d["kind"]) for d in egress.decided()] == [("allowed", "connect")]
    assert egress.flowed()[0]["address"] == "45.1.2.3"


def test_programs_that_know_of_no_proxy(here, egress):
    box = egress.add("one", "allow good.example")
    to = address(box, "good.example")
    assert to.startswith("198.1")
    assert not here.lookups, "a question inside is nobody's business outside"
    answer = talk(box, (to, 80), b"GET /x HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"200" in tls(box, (to, 443), "good.example", ca(here))
    assert [(d["verdict"], d["kind"]) for d in egress.decided(2)] == [("allowed", "http"), ("allowed", "tls")]


def test_other_ports_by_name(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", ports=(9000, 22, 8443))
    to = address(box, "good.example")

    def echo():
        with socket.create_connection((to, 9000), 10) as sock:
            sock.sendall(b"x" * 100000)
            sock.shutdown(socket.SHUT_WR)
            return read_all(sock)

    assert box.run(echo) == b"x" * 100000
    flow, = egress.flowed()
    assert (flow["sent"], flow["received"], flow["kind"]) == (100000, 100000, "tcp")
    assert talk(box, (to, 22), b"x") == b""
    assert [d["verdict"] for d in egress.decided(2)] == ["allowed", "denied"]


def test_an_answer_comes_from_the_resolver_that_was_asked(here, egress):
    box = egress.add("one")
    assert resolve(box, "good.example", "8.8.8.8")[-4:] == resolve(box, "good.example", "1.0.0.1")[-4:]
    assert not here.lookups and not here.packets


# ---- kept in ----

DENIED = [f"http://{host}/" for host in (
    "other.example", "good.example:8080", "sub.good.example", "good.example.evil.example", "xgood.example", "45.1.2.3",
    "127.0.0.1", "[::1]", "169.254.169.254")]


def test_what_no_rule_allows_is_denied_and_never_looked_up(here, egress):
    box = egress.add("one", "allow good.example")
    for url in DENIED:
        answer = get(box, url)
        assert answer.startswith(b"HTTP/1.1 403"), (url, answer)
        said = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
        assert said["code"] == "egress_denied" and said["sandbox"] == "one", said
        name = said["host"]
        assert f"atoll egress allow one {'[' + name + ']' if ':' in name else name}" in said["ask"], said
    assert [d["verdict"] for d in egress.decided(len(DENIED))] == ["denied"] * len(DENIED)
    for target in ("other.example:443", "good.example:8443", "45.1.2.3:443", "[::1]:443"):
        assert b" 403 " in talk(box, PROXY, f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    assert not here.lookups and not here.packets


MALFORMED = [
    b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET https://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET ftp://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://user@good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example:080/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example:+80/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example:65616/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example%00.evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example\0/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example\t/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://good_example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://127.1/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://2130706433/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://0x7f.0.0.1/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://0177.0.0.1/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://[::ffff:127.0.0.1]/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://[fe80::1%25eth0]/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example/ HTTP/1.1\r\n Host: good.example\r\n\r\n",
    b"GET http://good.example/ HTTP/1.1\r\nHost : good.example\r\n\r\n",
    b"GET http://good.example/ HTTP/1.1\nHost: good.example\n\n",
    b"GET http://good.example/ HTTP/2.0\r\nHost: good.example\r\n\r\n",
    b"GET http://good.example/\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"TRACE http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\n",
    b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"CONNECT good.example HTTP/1.1\r\n\r\n",
    b"CONNECT good.example: HTTP/1.1\r\n\r\n",
    b"CONNECT good.example:443x HTTP/1.1\r\n\r\n",
    b"CONNECT http://good.example:443 HTTP/1.1\r\n\r\n",
    b"CONNECT good.example:443/ HTTP/1.1\r\n\r\n",
    b"CONNECT good.example:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"\x16\x03\x01\x02\x00\x01",
    b"GET http://good.example/ HTTP/1.1\r\nX: " + b"a" * 40000,
]


def test_what_can_be_read_in_two_ways_is_not_read(here, egress):
    box = egress.add("one", "mode open")
    for data in MALFORMED:
        answer = talk(box, PROXY, data)
        assert answer.startswith(b"HTTP/1.1 4"), (data[:80], answer)
    verdicts = [d["verdict"] for d in egress.decided(len(MALFORMED))]
    assert verdicts == ["malformed"] * len(MALFORMED), list(zip(verdicts, MALFORMED))
    assert not here.lookups and not here.packets and not here.requests


FORBIDDEN = ["inner.example", "meta.example", "loop.example", "mixed.example", "home.example", "ours.example",
             "alias.example", "mapped.example"]


@pytest.mark.parametrize("lines", [["allow *.example"], ["mode open"]])
def test_names_that_lead_where_nobody_may_go(here, egress, lines):
    box = egress.add("one", *lines)
    for name in FORBIDDEN:
        answer = get(box, f"http://{name}/")
        assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502")), (name, answer)
    decided = egress.decided(2 * len(FORBIDDEN))
    got = {d["host"]: d["verdict"] for d in decided if d["verdict"] != "allowed"}
    assert got == dict.fromkeys(FORBIDDEN, "refused"), got
    here.settle()
    assert not here.packets and not here.requests


def test_own_addresses_are_refused_whatever_a_rule_says(here, egress):
    ranges = [f"allow {net}" for net in ("10.0.0.0/8", "11.0.0.0/8", "127.0.0.0/8", "11.0.0.2")]
    box = egress.add("one", "allow *.example", *ranges)
    assert get(box, "http://inner.example/").startswith(b"HTTP/1.1 200"), "an operator's rule opens it"
    for name in (world.HOME, "home.example", "ours.example", "loop.example", "11.0.0.99"):
        url = f"http://{name}/"
        assert get(box, url).startswith(b"HTTP/1.1 403"), url


def test_a_name_is_looked_up_once(here, egress):
    here.zone["turns.example"] = lambda number: ["45.1.2.3"] if number == 0 else ["127.0.0.1"]
    box = egress.add("one", "allow turns.example")
    assert get(box, "http://turns.example/").startswith(b"HTTP/1.1 200")
    assert here.lookups.count(("turns.example", "A")) == 1
    assert get(box, "http://turns.example/").startswith(b"HTTP/1.1 403"), "and again for the next connection"


def test_an_answer_that_is_too_long_is_nobody_elses_matter(here, egress):
    """A name server that does not take questions by TCP, and a name whose answer would need it: whoever waits for
    another name at that time, in another sandbox, gets its answer."""
    here.zone["late.example"] = lambda number: [world.SILENCE] if number == 0 else ["45.1.2.3"]
    here.zone["long.example"] = [f"45.1.3.{number}" for number in range(100)]
    box, other = egress.add("one", "allow late.example"), egress.add("two", "allow long.example")
    sock = box.run(lambda: socket.create_connection(PROXY, 15))
    sock.sendall(b"GET http://late.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    harness.wait_until(lambda: ("late.example", "AAAA") in here.lookups, 10, "the question")
    for _ in range(4):
        assert get(other, "http://long.example/").startswith(b"HTTP/1.1 502 ")
    assert read_all(sock).startswith(b"HTTP/1.1 200 ")


def test_an_answer_of_one_packet_is_read(here, egress):
    """Also where it is longer than packets were once."""
    name = f"{'x' * 60}.example"
    here.zone[name] = ["45.1.2.3"] * 12
    assert get(egress.add("one", "allow *.example"), f"http://{name}/").startswith(b"HTTP/1.1 200 ")


def test_no_answer_in_time_is_a_refusal(here, egress):
    box = egress.add("one", "allow *.example")
    begun = time.monotonic()
    assert get(box, "http://mute.example/").startswith(b"HTTP/1.1 502")
    assert 1 < time.monotonic() - begun < 6
    assert get(box, "http://absent.example/").startswith(b"HTTP/1.1 502")


def test_the_name_inside_a_tunnel_must_be_the_one_that_was_allowed(here, egress):
    box = egress.add("one", "allow good.example")
    fronted = tls(box, PROXY, "good.example", ca(here), connect="good.example:443", server_name="other.example")
    assert isinstance(fronted, Exception), fronted
    unnamed = tls(box, PROXY, None, ca(here), connect="good.example:443")
    assert isinstance(unnamed, Exception), unnamed
    plain = talk(box, PROXY, b"CONNECT good.example:443 HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n")
    assert plain.startswith(b"HTTP/1.1 200 Conn") and plain.count(b"HTTP/1.1") == 1, plain
    verdicts = [d["verdict"] for d in egress.decided(6)]
    assert verdicts == ["allowed", "misled", "allowed", "misled", "allowed", "malformed"]
    assert not here.requests


def test_the_name_behind_an_address_must_be_the_one_that_is_said(here, egress):
    box = egress.add("one", "allow *.example")
    to = address(box, "good.example")
    assert isinstance(tls(box, (to, 443), "other.example", ca(here)), Exception)
    assert isinstance(tls(box, (to, 443), None, ca(here)), Exception)
    assert talk(box, (to, 443), b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n") == b""
    for host in ("other.example", "good.example:8080", "45.1.2.3"):
        answer = talk(box, (to, 80), f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403"), answer
    answer = talk(box, (to, 80), b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    verdicts = [d["verdict"] for d in egress.decided(7)]
    assert verdicts == ["misled", "misled", "malformed", "misled", "misled", "misled", "malformed"]
    assert not here.lookups and not here.packets


def test_addresses_need_a_rule_with_an_address(here, egress):
    box = egress.add("one", "allow *.example", "allow 45.1.2.4")
    for to, host, status in (("45.1.2.3", "45.1.2.3", 403), ("45.1.2.4", "45.1.2.4", 200),
                             ("198.18.77.77", "good.example", 403)):
        answer = talk(box, (to, 80), f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 %d" % status), (to, answer)
    here.settle()
    assert [p[1] for p in here.packets] == ["45.1.2.4"]


def test_two_sandboxes_are_two(here, egress):
    one, two = egress.add("one", "allow good.example"), egress.add("two", "allow other.example")
    assert get(one, "http://good.example/").startswith(b"HTTP/1.1 200")
    assert get(two, "http://good.example/").startswith(b"HTTP/1.1 403")
    assert get(two, "http://other.example/").startswith(b"HTTP/1.1 200")
    to = address(one, "good.example")
    answer = talk(two, (to, 80), b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403"), "not its address"


# ---- what changes ----

def hold(box, to, connect):
    """An open tunnel; the socket."""
    def inside():
        sock = socket.create_connection(PROXY if connect else to, 10)
        if connect:
            sock.sendall(f"CONNECT {connect} HTTP/1.1\r\n\r\n".encode())
            assert b" 200 " in sock.recv(4096)
        sock.sendall(b"ping")
        assert sock.recv(4) == b"ping"
        return sock

    return box.run(inside)


def closed(sock, within):
    sock.settimeout(within)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_a_rule_taken_back_closes_its_tunnels_and_no_others(here, egress):
    box = egress.add("one", "allow good.example:9000/raw", "allow other.example:9000/raw")
    good, other = hold(box, None, "good.example:9000"), hold(box, None, "other.example:9000")
    egress.policy("one", "allow other.example:9000/raw", version=2)
    assert closed(good, 2) and not closed(other, 0.3)
    other.settimeout(5)
    other.sendall(b"still")
    assert other.recv(5) == b"still"
    flow = [f for f in egress.flowed() if f["host"] == "good.example"]
    assert flow[0]["revoked"] == 1
    good.close()
    other.close()


def test_a_far_end_that_speaks_first_is_heard(here, egress):
    """Also when it has spoken before anybody looked: what comes with the connection is not told again."""
    here.listen(2222, lambda conn, address, port: (conn.sendall(b"hello"), conn.recv(1)))
    box, count = egress.add("one", "allow good.example:2222/raw"), 60
    egress.process.send_signal(signal.SIGSTOP)
    try:
        socks = [box.run(lambda: socket.create_connection(PROXY, 10)) for _ in range(count)]
        for sock in socks:
            sock.sendall(b"CONNECT good.example:2222 HTTP/1.1\r\n\r\n")
    finally:
        egress.process.send_signal(signal.SIGCONT)
    for sock in socks:
        data = b""
        while not data.endswith(b"\r\n\r\nhello"):
            piece = sock.recv(100)
            assert piece, data
            data += piece
        sock.close()


def test_much_in_a_tunnel_arrives_though_nothing_follows(here, egress):
    """More than is moved in one turn, all of it there before the first byte is taken."""
    size = 24 << 20
    here.listen(2222, lambda conn, address, port: (conn.recv(1), conn.sendall(bytes(size)), conn.recv(1)))
    box = egress.add("one", "allow good.example:2222/raw")

    def inside():
        with socket.create_connection(PROXY, 30) as sock:
            sock.sendall(b"CONNECT good.example:2222 HTTP/1.1\r\n\r\n")
            assert b" 200 " in sock.recv(100)
            sock.sendall(b"x")
            egress.process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)  # its buffers fill meanwhile
            egress.process.send_signal(signal.SIGCONT)
            got = 0
            while got < size:
                got += len(sock.recv(1 << 20))
            return got

    assert box.run(inside) == size


def stop(egress):
    """Until SIGCONT it does nothing; so what happens meanwhile it finds all at once."""
    egress.process.send_signal(signal.SIGSTOP)
    harness.wait_until(lambda: harness.proc_status(egress.process.pid)["State"].startswith("T"), 10, "it to stop")


def room(namespace, size):
    """So much may wait in a socket of that network, on either way, from its first byte on."""
    def write():
        world.enter(namespace)
        for name in ("tcp_rmem", "tcp_wmem"):
            with open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as file:
                file.write(f"4096 {size} {size}")

    world.in_thread(write)


def test_much_into_a_tunnel_arrives_though_nothing_follows(here, egress):
    """The same the other way, and nobody in between has to wait for anybody: there is no other news than the first."""
    size = 24 << 20
    got = []

    def far(conn, address, port):
        left = size
        while left and (data := conn.recv(1 << 20)):
            left -= len(data)
        got.append(size - left)
        conn.sendall(b"all")
        conn.recv(1)

    for namespace in (here.home, here.outside):
        room(namespace, 4 * size)
    here.listen(2222, far)
    box = egress.add("one", "allow 45.1.2.3:2222/raw")
    room(box.namespace, 4 * size)
    box.sockets[0].setsockopt(socket.SOL_SOCKET, 33, 4 * size)  # SO_RCVBUFFORCE, and so has who is accepted

    def inside():
        with socket.create_connection(PROXY, 30) as sock:
            sock.sendall(b"CONNECT 45.1.2.3:2222 HTTP/1.1\r\n\r\n")
            assert b" 200 " in sock.recv(100)
            stop(egress)
            try:
                sock.sendall(bytes(size))
            finally:
                egress.process.send_signal(signal.SIGCONT)
            return sock.recv(3)

    assert (box.run(inside), got) == (b"all", [size])


def asked_at_once(egress, request):
    """A connection that the process finds with its request."""
    stop(egress)
    try:
        sock = socket.create_connection(PROXY, 10)
        sock.sendall(request)
    finally:
        egress.process.send_signal(signal.SIGCONT)
    return sock


def asked_later(egress, request):
    """One that has usually said nothing when it is found."""
    sock = asked_at_once(egress, b"")
    time.sleep(0.05)
    sock.sendall(request)
    return sock


def test_who_has_said_all_in_a_tunnel_still_hears(here, egress):
    """Whether the request came with the connection or after it, and whether the far end is named or not."""
    box = egress.add("one", "allow 45.1.2.3:9000/raw", "allow good.example:9000/raw")
    for host in ("45.1.2.3", "good.example"):
        for ask in (asked_at_once, asked_later):
            def inside(host=host, ask=ask):
                with ask(egress, f"CONNECT {host}:9000 HTTP/1.1\r\n\r\n".encode()) as sock:
                    assert b" 200 " in sock.recv(100)
                    sock.sendall(b"word")
                    sock.shutdown(socket.SHUT_WR)
                    return read_all(sock)

            assert box.run(inside) == b"word", (host, ask)
    assert [(flow["sent"], flow["received"]) for flow in egress.flowed(4)] == [(4, 4)] * 4


def test_those_that_came_together_are_judged_one_by_one(here, egress):
    """More than are accepted in one go; some have gone, some have not said all."""
    box = egress.add("one", "allow 45.1.2.3:9000/raw")
    asks = {b"CONNECT 45.1.2.3:9000 HTTP/1.1\r\n\r\n": b"200", b"CONNECT 45.1.2.4:9000 HTTP/1.1\r\n\r\n": b"403",
            b"CONNECT 45.1.2.3:9000 HTTP/3\r\n\r\n": b"400", b"CONNECT 45.1.2.3:9000 HTTP/1.1\r\n": b"200", b"": b"403"}
    socks = []
    stop(egress)
    try:
        for _ in range(6):
            for ask, status in asks.items():
                sock = box.run(lambda: socket.create_connection(PROXY, 10))
                sock.sendall(ask)
                socks.append((ask, status, sock))
            box.run(lambda: socket.create_connection(PROXY, 10)).close()
    finally:
        egress.process.send_signal(signal.SIGCONT)
    for ask, status, sock in socks:
        if not ask:
            sock.sendall(b"CONNECT 45.1.2.4:9000 HTTP/1.1\r\n\r\n")
        elif not ask.endswith(b"\r\n\r\n"):
            sock.sendall(b"\r\n")
        assert sock.recv(4096).split()[1] == status, ask
        sock.close()
    verdicts = [one["verdict"] for one in egress.decided(len(socks))]
    assert {v: verdicts.count(v) for v in set(verdicts)} == {"allowed": 12, "denied": 12, "malformed": 6}


def test_records_of_one_moment_wait_for_no_other(here, egress):
    """They are told together, and then nothing more happens that could remind anybody of them."""
    box, count = egress.add("one", "allow 45.1.2.3:9000/raw"), 24
    for _ in range(12):
        stop(egress)
        try:
            socks = [box.run(lambda: socket.create_connection(PROXY, 10)) for _ in range(count)]
            for sock in socks:
                sock.sendall(b"CONNECT 45.1.2.3:9000 HTTP/1.1\r\n\r\n")
        finally:
            egress.process.send_signal(signal.SIGCONT)
        assert len(egress.decided(count)) == count
        for sock in socks:
            sock.close()
        assert len(egress.flowed(count)) == count


def test_an_address_that_is_ours_since_a_moment_is_not_reached(here, egress):
    """What the kernel said about it a moment ago is not good any more."""
    box = egress.add("one", "allow 45.1.2.9:9000/raw")
    for status in (b"200", b"403"):
        with box.run(lambda: asked_at_once(egress, b"CONNECT 45.1.2.9:9000 HTTP/1.1\r\n\r\n")) as sock:
            assert sock.recv(4096).split()[1] == status
        here.ip(here.home, "addr replace 45.1.2.9/32 dev lo")


def test_what_was_said_before_a_request_counts_for_it(here, egress):
    """However much else was said before, and whichever socket the process looks at first."""
    box = egress.add("one", "allow other.example")
    for number in range(20):
        egress.add(f"other{number}", "allow other.example")
    assert get(box, "http://good.example/").startswith(b"HTTP/1.1 403 ")
    for early in (False, True):  # is it connected, and with that its listener ready, before the news?
        for allowed, status in (("good.example", b"200"), ("other.example", b"403")):
            stop(egress)
            try:
                sock = box.run(lambda: socket.create_connection(PROXY, 10)) if early else None
                for _ in range(3):
                    for number in range(20):
                        egress.policy(f"other{number}", "allow other.example")
                egress.policy("one", f"allow {allowed}")
                sock = sock or box.run(lambda: socket.create_connection(PROXY, 10))
                sock.sendall(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            finally:
                egress.process.send_signal(signal.SIGCONT)
            assert read_all(sock).startswith(b"HTTP/1.1 " + status)
            sock.close()


def test_nothing_is_paced_on_the_way_inside(here, egress):
    """Whatever congestion control this machine has for its networks, bbr say: there is none to be controlled there."""
    box = egress.add("one", "allow good.example")
    assert get(box, "http://good.example/").startswith(b"HTTP/1.1 200")
    said = box.sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    assert said.split(b"\0")[0] == b"reno"


def test_a_sandbox_that_is_gone_has_no_tunnels(here, egress):
    box = egress.add("one", "allow good.example:9000/raw")
    sock = hold(box, None, "good.example:9000")
    egress.gone(1)
    assert closed(sock, 1)
    sock.close()


def test_without_a_policy_nothing_is_allowed(here, egress):
    box = egress.add("one", "mode open")
    egress.send(egress_rig.FORGET, b"one".ljust(40, b"\0"))
    assert get(box, "http://good.example/").startswith(b"HTTP/1.1 403")


def test_killed_it_is_started_again_and_nothing_was_refused_meanwhile(here, egress):
    box = egress.add("one", "allow good.example")
    assert get(box, "http://good.example/").startswith(b"HTTP/1.1 200")
    egress.kill()

    def waiting():  # it connects while there is nobody
        sock = socket.create_connection(PROXY, 10)
        sock.sendall(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return sock

    sock = box.run(waiting)
    egress.start()
    assert read_all(sock).startswith(b"HTTP/1.1 200")
    sock.close()


def test_the_one_exception_answers_who_asks(here, egress):
    box = egress.add("one", "allow good.example")
    answer = talk(box, (egress_rig.SELF, 80), b"GET / HTTP/1.1\r\nHost: atoll.internal\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") and json.loads(answer.split(b"\r\n\r\n")[1])["sandbox"] == "one"
    answer = talk(box, (egress_rig.SELF, 80), b"GET /x HTTP/1.1\r\nHost: atoll.internal\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404")
    assert address(box, "atoll.internal") == egress_rig.SELF
    assert b'"sandbox":"one"' in get(box, "http://atoll.internal/"), "by way of the proxy too"
    assert b" 403 " in talk(box, PROXY, b"CONNECT atoll.internal:443 HTTP/1.1\r\n\r\n")


# ---- asked ----

def asking(box, data=b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"):
    def inside():
        sock = socket.create_connection(PROXY, 10)
        sock.sendall(data)
        return sock

    return box.run(inside)


def asked(egress):
    end = time.monotonic() + 10
    while not egress.asks and time.monotonic() < end:
        egress.take(0.05)
    return egress.asks.pop(0)


def test_a_connection_waits_for_the_answer_and_gets_it(here, egress):
    box = egress.add("one", "mode ask", "deny bad.example")
    sock = asking(box)
    ask = asked(egress)
    assert (ask["host"], ask["port"], ask["verdict"], ask["box"]) == ("good.example", 80, "asked", "one")
    assert not closed(sock, 0.3) and not here.lookups
    egress.send(egress_rig.ANSWER, struct.pack("<II", 1, 0), ask["number"] + 1)
    assert not closed(sock, 0.3), "somebody else's answer"
    sock.settimeout(10)
    egress.send(egress_rig.ANSWER, struct.pack("<II", 1, 0), ask["number"])
    assert read_all(sock).startswith(b"HTTP/1.1 200")
    again = asking(box)
    egress.send(egress_rig.ANSWER, struct.pack("<II", 0, 0), asked(egress)["number"])
    assert read_all(again).startswith(b"HTTP/1.1 403")
    assert get(box, "http://bad.example/").startswith(b"HTTP/1.1 403") and not egress.asks, "a deny is no question"
    assert [d["verdict"] for d in egress.decided(3)] == ["allowed", "denied", "denied"]


def test_an_answer_allows_one_tunnel_until_a_rule_forbids_it(here, egress):
    box = egress.add("one", "mode ask")
    sock = asking(box, b"CONNECT good.example:9000 HTTP/1.1\r\n\r\n")
    egress.send(egress_rig.ANSWER, struct.pack("<II", 1, 0), asked(egress)["number"])
    assert b" 200 " in sock.recv(4096)
    egress.policy("one", "mode ask", "allow other.example", version=2)
    assert not closed(sock, 0.5)
    egress.policy("one", "mode ask", "deny good.example", version=3)
    assert closed(sock, 2)
    sock.close()


def test_an_answer_to_somebody_who_left_is_nothing(here, egress):
    box = egress.add("one", "mode ask")
    sock = asking(box)
    number = asked(egress)["number"]
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    time.sleep(0.3)
    egress.send(egress_rig.ANSWER, struct.pack("<II", 1, 0), number)
    assert not here.lookups and get(box, "http://atoll.internal/").startswith(b"HTTP/1.1 200")
    assert not here.packets
