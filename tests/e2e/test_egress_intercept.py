"""TLS that is opened: requests in it are judged one by one, the host is verified, secrets go in and never come back."""
import base64
import os
import secrets as random_
import socket
import ssl

import egress_rig
import pytest
import world
from test_egress_process import address, ca, egress, here, read_all, tls  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PROXY = (egress_rig.SELF, egress_rig.PROXY)
HELD = "atoll-held-" + "0123456789abcdef0123456789abc"
OPEN = ("allow good.example", "intercept good.example")


@pytest.fixture
def value():
    return "sk-" + random_.token_hex(16)


def context(path, alpn=None):
    made = ssl.create_default_context(cafile=path)
    if alpn:
        made.set_alpn_protocols(alpn)
    return made


def secure(box, path, name, fn, to=PROXY, alpn=None):
    """fn(socket) in TLS with `name`, through the proxy or straight to an address; or the error."""
    def inside():
        with socket.create_connection(to, 15) as sock:
            if to == PROXY:
                sock.sendall(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n".encode())
                answer = sock.recv(4096)
                if b" 200 " not in answer:
                    return answer
            try:
                with context(path, alpn).wrap_socket(sock, server_hostname=name) as made:
                    return fn(made)
            except (ssl.SSLError, ConnectionError) as error:
                return error

    return box.run(inside)


def request(path, *lines, method="GET", host="good.example", keep=False):
    head = [f"{method} {path} HTTP/1.1", f"Host: {host}", *lines, *([] if keep else ["Connection: close"]), "", ""]
    return "\r\n".join(head).encode()


def get(box, ca_path, path="/", *lines, name="good.example", to=PROXY, **more):
    def ask(sock):
        sock.sendall(request(path, *lines, host=name, **more))
        return read_all(sock)

    return secure(box, ca_path, name, ask, to)


def until(sock, end, size=1):
    data = b""
    while not data.endswith(end):
        piece = sock.recv(size)
        assert piece, data
        data += piece
    return data


def read_one(sock):
    """One answer with a length, or in chunks; the connection goes on."""
    data = until(sock, b"\r\n\r\n")
    head = data.lower()
    if b"transfer-encoding: chunked" in head:
        return data + until(sock, b"0\r\n\r\n")
    size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    body = b""
    while len(body) < size:
        piece = sock.recv(size - len(body))
        assert piece, body
        body += piece
    return data + body


# ---- what is opened ----


@pytest.mark.parametrize("way", ["proxy", "plain"])
def test_requests_are_seen_and_judged(here, egress, way):
    box = egress.add("one", "allow good.example GET /a/", "deny good.example GET /a/secret", "intercept good.example")
    path = egress.authority("one")
    to = PROXY if way == "proxy" else (address(box, "good.example"), 443)
    assert get(box, path, "/a/x", to=to).startswith(b"HTTP/1.1 200")
    for target, method in (("/b", "GET"), ("/a/x", "POST"), ("/a/secret/y", "GET"), ("/a/../b", "GET")):
        answer = get(box, path, target, method=method, to=to)
        assert answer.startswith(b"HTTP/1.1 403") and b"egress_denied" in answer, (target, answer)
    seen = [one for one in here.requests]
    assert [one.target for one in seen] == ["/a/x"] and seen[0].tls_name == "good.example", seen
    decisions = egress.decided(5)
    assert [one["verdict"] for one in decisions] == ["allowed"] + ["denied"] * 4
    assert {one["kind"] for one in decisions} == {"https"} and {one["host"] for one in decisions} == {"good.example"}
    flow, = egress.flowed(1)
    assert flow["kind"] == "https" and flow["sent"] > 0 and flow["received"] > 0


def test_another_host_is_not_opened(here, egress):
    """It shows its own certificate, and nobody looks in: also when it stands beneath one that is opened."""
    box = egress.add("one", "allow .example", "intercept good.example")
    path = egress.authority("one")
    for name in ("other.example", "two.example"):
        assert isinstance(get(box, path, name=name), ssl.SSLError)
        answer = tls(box, PROXY, name, ca(here), request("/", host=name), connect=f"{name}:443")
        assert b" 200 " in answer.splitlines()[0], answer
    assert b" 200 " in get(box, path).splitlines()[0]


def test_nothing_is_opened_of_a_sandbox_without_such_a_rule(here, egress):
    box = egress.add("one", "allow good.example")
    egress.take(0.3)
    assert not egress.authorities
    answer = tls(box, PROXY, "good.example", ca(here), request("/"), connect="good.example:443")
    assert b" 200 " in answer.splitlines()[0], answer


def test_each_sandbox_has_an_authority_of_its_own(here, egress):
    one, two = egress.add("one", *OPEN), egress.add("two", *OPEN)
    mine, others = egress.authority("one"), egress.authority("two")
    assert b" 200 " in get(one, mine).splitlines()[0] and b" 200 " in get(two, others).splitlines()[0]
    assert isinstance(get(one, others), ssl.SSLError)


def test_the_authority_is_the_same_after_a_restart(here, egress):
    """Its certificate is another one, its key is not: what trusts the old one goes on."""
    box = egress.add("one", *OPEN)
    before = open(egress.authority("one"), "rb").read()
    egress.kill()
    egress.authorities.clear()
    egress.start()
    after = egress.authority("one")
    assert open(after, "rb").read() != before
    old = os.path.join(here.directory, "old.pem")
    with open(old, "wb") as file:
        file.write(before)
    assert b" 200 " in get(box, old).splitlines()[0] and b" 200 " in get(box, after).splitlines()[0]


def test_what_is_denied_is_not_even_greeted(here, egress):
    box = egress.add("one", "allow other.example", "intercept good.example")
    path = egress.authority("one")
    answer = get(box, path)
    assert answer.startswith(b"HTTP/1.1 403") and b"egress_denied" in answer, answer
    error = get(box, path, to=(address(box, "good.example"), 443))
    assert isinstance(error, ssl.SSLError) and "ACCESS_DENIED" in str(error).upper(), error
    assert [one["verdict"] for one in egress.decided(2)] == ["denied", "denied"]
    here.settle()
    assert not here.packets and not here.lookups


# ---- names ----


def test_fronting(here, egress):
    """One name for the tunnel, another for TLS; one for TLS, another for the request."""
    box = egress.add("one", *OPEN, "allow other.example", "intercept other.example")
    path = egress.authority("one")

    def inside():
        with socket.create_connection(PROXY, 15) as sock:
            sock.sendall(b"CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n")
            assert b" 200 " in sock.recv(4096)
            try:
                context(path).wrap_socket(sock, server_hostname="other.example")
            except (ssl.SSLError, ConnectionError) as error:
                return error

    error = box.run(inside)
    assert isinstance(error, ssl.SSLError), error

    def ask(sock):
        sock.sendall(request("/", host="other.example"))
        return read_all(sock)

    answer = secure(box, path, "good.example", ask)
    assert answer.startswith(b"HTTP/1.1 403") and b"egress_misled" in answer, answer
    assert [one["verdict"] for one in egress.decided(2)] == ["misled", "misled"]
    here.settle()
    assert not here.requests and not here.packets


def test_no_name_at_all(here, egress):
    box = egress.add("one", *OPEN)
    egress.authority("one")
    assert isinstance(tls(box, PROXY, None, ca(here), connect="good.example:443"), (ssl.SSLError, ConnectionError))
    assert egress.decided(1)[0]["verdict"] == "misled"


def test_what_is_not_tls(here, egress):
    box = egress.add("one", *OPEN)
    egress.authority("one")

    def inside():
        with socket.create_connection(PROXY, 15) as sock:
            sock.sendall(b"CONNECT good.example:443 HTTP/1.1\r\n\r\n")
            assert b" 200 " in sock.recv(4096)
            sock.sendall(b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n")
            return read_all(sock)

    assert box.run(inside) == b""
    assert egress.decided(1)[0]["verdict"] == "malformed"
    assert not here.requests


# ---- the two ends ----


def others_context(here):
    """Of an authority that nobody knows."""
    where = os.path.join(here.directory, "stranger")
    os.makedirs(where, exist_ok=True)
    return world.Authority(where)


@pytest.mark.parametrize("wrong", ["name", "authority", "expired"])
@pytest.mark.parametrize("way", ["proxy", "plain"])
def test_a_host_that_is_not_who_it_should_be(here, egress, value, wrong, way):
    if wrong == "name":
        here.shown["good.example"] = "other.example"
    elif wrong == "authority":
        here.shown["good.example"] = others_context(here).context("good.example")
    else:
        here.authority.days = -1
    box = egress.add("one", *OPEN)
    path = egress.authority("one")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example"),
                  ("rule", "good.example", "X-Api-Key", "{secret:KEY}"))
    to = PROXY if way == "proxy" else (address(box, "good.example"), 443)
    answer = get(box, path, to=to)
    assert answer.startswith(b"HTTP/1.1 502") and b"distrusted" in answer and b"certificate" in answer, answer
    verdicts = [one["verdict"] for one in egress.decided(2)]
    assert verdicts == ["allowed", "distrusted"]
    assert not here.requests


def test_a_program_that_pins(here, egress):
    """It trusts other authorities alone: it says so, and so does the record."""
    box = egress.add("one", *OPEN)
    egress.authority("one")
    assert isinstance(get(box, ca(here)), ssl.SSLCertVerificationError)
    one, = egress.decided(1)
    assert one["verdict"] == "distrusted" and "does not trust" in one["text"], one
    here.settle()
    assert not here.packets


def test_a_program_that_wants_only_http2(here, egress):
    box = egress.add("one", *OPEN)
    path = egress.authority("one")
    error = secure(box, path, "good.example", lambda sock: sock.selected_alpn_protocol(), alpn=["h2"])
    assert isinstance(error, ssl.SSLError) and "NO_APPLICATION_PROTOCOL" in str(error).upper().replace(" ", "_"), error
    assert "HTTP/1.1" in egress.decided(1)[0]["text"]
    chosen = secure(box, path, "good.example", lambda sock: sock.selected_alpn_protocol(), alpn=["h2", "http/1.1"])
    assert chosen == "http/1.1"


# ---- connections ----


def test_many_requests_in_one_connection(here, egress):
    """Pipelined and one after the other, large bodies both ways; each is judged."""
    box = egress.add("one", "allow good.example GET", "allow good.example POST /in", "intercept good.example")
    path, big = egress.authority("one"), random_.token_bytes(300000).hex().encode()
    here.pages["good.example", "/big"] = ("text/plain", big)
    here.pages["good.example", "/in"] = lambda one: ("text/plain", str(len(one.body)).encode())

    def ask(sock):
        sock.sendall(request("/1", keep=True) + request("/2", keep=True))
        first = [read_one(sock), read_one(sock)]
        sock.sendall(request("/big", keep=True))
        large = read_one(sock)
        sock.sendall(request("/in", f"Content-Length: {len(big)}", method="POST", keep=True) + big)
        sent = read_one(sock)
        sock.sendall(request("/out", "Content-Length: 0", method="POST"))
        return first, large, sent, read_all(sock)

    first, large, sent, last = secure(box, path, "good.example", ask)
    assert [b"GET /1 " in first[0], b"GET /2 " in first[1]] == [True, True], first
    assert large.endswith(big) and sent.endswith(str(len(big)).encode()), sent
    assert last.startswith(b"HTTP/1.1 403")
    assert [one["verdict"] for one in egress.decided(5)] == ["allowed"] * 4 + ["denied"]


def test_what_it_may_move_counts_in_what_is_opened(here, egress):
    """Requests and answers as they are in TLS: at the limit all of it arrives, one byte less and it is cut."""
    body = b"x" * 50000
    here.pages["good.example", "/page"] = ("text/plain", body)
    free, exact, less = (egress.add(name, *OPEN) for name in ("free", "exact", "less"))
    assert get(free, egress.authority("free"), "/page").endswith(body)
    flow, = egress.flowed()
    whole = flow["sent"] + flow["received"]
    assert whole > len(body)
    egress.policy("exact", *OPEN, f"max_bytes {2 * whole}", version=2)
    for _ in range(2):
        assert get(exact, egress.authority("exact"), "/page").endswith(body)
    for method in ("GET", "POST"):
        answer = get(exact, egress.authority("exact"), "/page", method=method)
        assert answer.startswith(b"HTTP/1.1 429") and b"egress_limited" in answer, answer
    egress.policy("less", *OPEN, f"max_bytes {whole - 1}", version=2)
    cut = get(less, egress.authority("less"), "/page")
    assert isinstance(cut, Exception) or cut == b"" or len(cut.partition(b"\r\n\r\n")[2]) < len(body)
    flows = {name: sum(f["sent"] + f["received"] for f in flows) for name, flows in by_box(egress.flowed(3)).items()}
    assert flows == {"exact": 2 * whole, "less": whole - 1}
    verdicts = {name: [d["verdict"] for d in made] for name, made in by_box(egress.decided(7)).items()}
    assert verdicts == {"free": ["allowed"], "exact": ["allowed"] * 2 + ["limited"] * 2,
                        "less": ["allowed", "limited"]}


def by_box(records):
    made = {}
    for one in records:
        made.setdefault(one["box"], []).append(one)
    return made


def test_a_slow_reader_gets_all_of_it(here, egress):
    box, big = egress.add("one", *OPEN), os.urandom(400000)
    path = egress.authority("one")
    here.pages["good.example", "/big"] = ("application/octet-stream", big)

    def ask(sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.sendall(request("/big"))
        return read_all(sock)

    assert secure(box, path, "good.example", ask).endswith(big)


def test_websocket(here, egress, value):
    def echo(conn, file, one):
        assert one.field("X-Api-Key") == value and one.field("Sec-WebSocket-Key") == "abc"
        assert one.field("Sec-WebSocket-Extensions") is None
        while data := file.read1(65536):
            conn.sendall(b"<" + data + b"|" + value.encode() + b">")

    here.switched["good.example", "/ws"] = echo
    box = egress.add("one", *OPEN)
    path = egress.authority("one")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example"),
                  ("rule", "good.example", "X-Api-Key", "{secret:KEY}"))

    def ask(sock):
        sock.sendall(request("/ws", "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: abc",
                             "Sec-WebSocket-Extensions: permessage-deflate", keep=True))
        head, got = until(sock, b"\r\n\r\n"), []
        for word in (b"one", b"s", HELD.encode()):
            sock.sendall(word)
            got.append(until(sock, b">", 65536))
        return head, got

    head, got = secure(box, path, "good.example", ask)
    stars = b"*" * len(value)
    assert head.startswith(b"HTTP/1.1 101") and b"upgrade: websocket" in head.lower(), head
    assert got == [b"<one|" + stars + b">", b"<s|" + stars + b">", b"<" + HELD.encode() + b"|" + stars + b">"], got


def test_all_of_a_record_arrives_though_nothing_follows(here, egress):
    """What the library has taken off the socket is not forgotten in it."""
    data = os.urandom(8000).hex().encode()

    def say(conn, file, one):
        conn.sendall(data + b">")
        file.read1(1)

    here.switched["good.example", "/ws"] = say
    box = egress.add("one", *OPEN)
    path = egress.authority("one")

    def ask(sock):
        sock.settimeout(5)
        sock.sendall(request("/ws", "Connection: Upgrade", "Upgrade: websocket", keep=True))
        until(sock, b"\r\n\r\n")
        return until(sock, b">", 65536)

    assert secure(box, path, "good.example", ask) == data + b">"


def test_what_lost_its_rule_is_closed(here, egress):
    here.switched["good.example", "/ws"] = lambda conn, file, one: file.read1(1)
    box = egress.add("one", *OPEN)
    path = egress.authority("one")

    def ask(sock):
        sock.sendall(request("/ws", "Connection: Upgrade", "Upgrade: websocket", keep=True))
        sock.recv(4096)
        egress.policy("one", "allow other.example", "intercept good.example", version=2)
        try:
            return sock.recv(4096)
        except (ConnectionError, ssl.SSLError):
            return b""

    assert secure(box, path, "good.example", ask) == b""
    assert [one["verdict"] for one in egress.decided(2)] == ["allowed", "denied"]


# ---- secrets ----


def head_of(one):
    return one.head if isinstance(one.head, bytes) else one.head.encode()


def test_a_secret_goes_into_requests_that_were_opened(here, egress, value):
    box = egress.add("one", "allow .example", "intercept good.example", "intercept other.example")
    path = egress.authority("one")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example POST,GET /v1/"),
                  ("rule", ".example", "Authorization", "Bearer {secret:KEY}"),
                  ("rule", ".example", "-", "{secret:KEY}"))
    basic = base64.b64encode(f"x:{HELD}".encode()).decode()
    answers = [get(box, path, "/v1/a", "Authorization: none", f"X-Env: {HELD}"),
               get(box, path, "/v2/a", f"X-Env: {HELD}"),
               get(box, path, "/v1/a", f"X-Env: {HELD}", name="other.example"),
               get(box, path, "/v1/b", f"X-Other: Basic {basic}")]
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers), answers
    first, second, third, fourth = (head_of(one) for one in here.requests)
    assert b"Authorization: Bearer " + value.encode() in first and first.count(value.encode()) == 2
    assert b"none" not in first and b"identity" in first
    for one in (second, third):
        assert value.encode() not in one and HELD.encode() in one, one
    assert value.encode() in fourth
    for answer in answers:  # the world echoes every header
        assert value.encode() not in answer
    assert b"*" * len(value) in answers[0]


def test_the_same_host_in_clear_gets_none(here, egress, value):
    box = egress.add("one", *OPEN)
    egress.authority("one")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example:*"),
                  ("rule", "good.example:*", "X-Api-Key", "{secret:KEY}"))

    def inside():
        with socket.create_connection(PROXY, 15) as sock:
            sock.sendall(b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")
            return read_all(sock)

    assert b" 200 " in box.run(inside).splitlines()[0]
    assert value.encode() not in head_of(here.requests[0])


def test_a_redirect_takes_nothing_along(here, egress, value):
    """Whoever follows it makes another request, which is judged by itself."""
    here.reply = lambda one: (b"HTTP/1.1 302 Found\r\nLocation: https://other.example/%s\r\nContent-Length: 0\r\n\r\n"
                              % (one.field("X-Api-Key") or "none").encode())
    box = egress.add("one", *OPEN, "allow other.example", "intercept other.example")
    path = egress.authority("one")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example"),
                  ("rule", ".example", "X-Api-Key", "{secret:KEY}"))
    answer = get(box, path)
    assert answer.startswith(b"HTTP/1.1 302") and value.encode() not in answer
    assert b"location: https://other.example/" + b"*" * len(value) in answer.lower(), answer
    get(box, path, name="other.example")
    assert [value.encode() in head_of(one) for one in here.requests] == [True, False]


def test_an_echo_in_pieces(here, egress, value):
    """However it is cut: in chunks of one byte, with a half of it at the end."""
    data = b"a " + value.encode() + b" b " + value.encode()[:-1]
    here.reply = lambda one: (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
        b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n")
    box = egress.add("one", *OPEN)
    path = egress.authority("one")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example"),
                  ("rule", "good.example", "X-Api-Key", "{secret:KEY}"))
    answer = get(box, path)
    body = answer.split(b"\r\n\r\n", 1)[1]
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[:int(size, 16)], body[int(size, 16) + 2:]
    assert whole == b"a " + b"*" * len(value) + b" b " + value.encode()[:-1], whole
