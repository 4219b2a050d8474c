"""Ports of a sandbox from outside: listed, shown by path and by host, tunnelled; and what must not get
through in either direction."""
import base64
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import harness
import pytest
from harness import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
INSIDE = pathlib.Path(harness.__file__).with_name("inside_server.py")


class Box:
    """A sandbox in which the test's server listens on 8000 (IPv4) and 8006 (IPv6)."""

    def __init__(self, server, **wish):
        self.server = server
        reply = server.post(BOXES, {"ttl_ms": 600000, **wish})
        assert reply.status == 201, reply
        self.id = reply.json()["id"]
        self.base = f"{BOXES}/{self.id}"
        reply = server.request("PUT", f"{self.base}/files?path=/workspace/serve.py", body=INSIDE.read_bytes())
        assert reply.status == 200, reply
        for args in ("8000", "8006 6"):
            self.start(f"exec python3 /workspace/serve.py {args}")
        wait_until(lambda: {8000, 8006} <= {p["port"] for p in self.ports()}, 20, "the servers inside")

    def start(self, command):
        reply = self.server.post(f"{self.base}/execs", {"command": command})
        assert reply.status == 201, reply

    def sh(self, command):
        reply = self.server.post(f"{self.base}/execs?wait=30000", {"command": command}, timeout=40)
        assert reply.json()["exit_code"] == 0, reply
        return reply.json()["output"]

    def ports(self):
        reply = self.server.get(f"{self.base}/ports")
        assert reply.status == 200, reply
        return reply.json()["items"]

    def path(self, rest="", port=8000):
        return f"{self.base}/ports/{port}/{rest}"

    def host(self, port=8000):
        return f"{port}-{self.id}.localhost:{self.server.port}"

    def get(self, rest="", port=8000, **more):
        return self.server.get(self.path(rest, port), **more)

    def by_host(self, target="/echo", method="GET", headers=None, port=8000, **more):
        return self.server.request(method, target, headers={"Host": self.host(port), **(headers or {})}, **more)

    def raw(self, answer, by_host=False):
        """What comes out when the program inside says these bytes and ends."""
        target = "raw?" + answer.hex()
        return self.by_host("/" + target) if by_host else self.get(target)


@pytest.fixture(scope="module")
def box(server):
    box = Box(server)
    yield box
    assert server.delete(box.base).status == 200


def echoed(reply):
    assert reply.status == 200, reply
    got = reply.json()
    fields = {}
    for line in got["lines"][1:]:
        name, value = line.split(": ", 1)
        fields.setdefault(name.lower(), []).append(value)
    return got["lines"][0], fields, base64.b64decode(got["body"])


def test_ports_are_listed_once_each(box):
    found = {p["port"]: p for p in box.ports()}
    assert found[8000] == {"port": 8000, "address": "loopback", "uid": 1000}
    assert found[8006]["address"] == "loopback"
    assert len(found) == len(box.ports())


def test_a_request_by_path_arrives_whole(box):
    line, fields, body = echoed(box.get("a/b%20c?x=1&x=2"))
    assert line == "GET /a/b%20c?x=1&x=2 HTTP/1.1"
    assert fields["host"] == ["localhost:8000"]
    assert fields["x-forwarded-prefix"] == [f"{box.base}/ports/8000"]
    assert fields["connection"] == ["close"]
    reply = box.server.request("POST", box.path("echo"), body=b"\0\xff" * 1000, headers={"X-Mine": "yes"})
    line, fields, body = echoed(reply)
    assert line.startswith("POST /echo ") and body == b"\0\xff" * 1000
    assert fields["x-mine"] == ["yes"] and fields["content-length"] == ["2000"]
    for method in ("PUT", "PATCH", "DELETE"):
        assert echoed(box.server.request(method, box.path("echo"), body=b"x"))[0] == f"{method} /echo HTTP/1.1"
    head = box.server.request("HEAD", box.path("echo"))
    assert head.status == 200 and head.body == b""
    assert echoed(box.get("echo", port=8006))[1]["host"] == ["localhost:8006"], "IPv6 loopback"


def test_a_chunked_body_is_passed_on_as_it_comes(box):
    with box.server.connect() as sock:
        sock.sendall(f"POST {box.path('echo')} HTTP/1.1\r\nHost: {box.server.host}\r\nConnection: close\r\n"
                     f"Authorization: Bearer {box.server.token}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for piece in (b"a" * 70000, b"b"):
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        sock.sendall(b"0\r\n\r\n")
        answer = harness.read_all(sock, 10)
    body = json.loads(answer.split(b"\r\n\r\n", 1)[1])["body"]
    assert base64.b64decode(body) == b"a" * 70000 + b"b"


def test_without_the_slash_there_is_a_redirect(box):
    reply = box.server.get(f"{box.base}/ports/8000")
    assert reply.status == 308 and reply.headers["location"] == f"{box.base}/ports/8000/"


@pytest.mark.parametrize("port", ["0", "65536", "08000", "-1", "x", "99999999999999999999"])
def test_a_port_that_is_none_is_not_found(box, port):
    for path in (f"/ports/{port}/", f"/ports/{port}", f"/tunnels/{port}"):
        reply = box.server.get(box.base + path)
        assert reply.status == 404 and reply.error["code"] == "not_found", reply


def test_where_nothing_listens_is_a_bad_gateway(box):
    reply = box.get(port=8001)
    assert reply.status == 502 and reply.error["code"] == "bad_gateway", reply
    assert "nothing listens on port 8001" in reply.error["message"]
    assert box.by_host(port=8001).status == 502


@pytest.mark.parametrize("answer", [
    b"", b"hello\n", b"HTTP/1.1 200 OK\n\nx", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"HTTP/1.1 101 No\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\x01b\r\n\r\n", b"HTTP/1.1 200 OK\r\n X: folded\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", b"HTTP/1.1 100 Continue\r\n\r\n",
])
def test_an_answer_that_is_not_http_is_a_bad_gateway(box, answer):
    reply = box.raw(answer)
    assert reply.status == 502 and reply.error["code"] == "bad_gateway", reply


def test_a_head_without_end_is_a_bad_gateway(box):
    box.sh("python3 - > /tmp/long <<'X'\nprint('HTTP/1.1 200 OK\\r\\nX: ' + 'a' * 40000, end='')\nX")
    box.start("python3 -c \"import socket; s=socket.create_server(('127.0.0.1',8010));"
              "c=s.accept()[0]; c.recv(9999); c.sendall(open('/tmp/long','rb').read()); c.recv(1)\"")
    wait_until(lambda: 8010 in {p["port"] for p in box.ports()}, 20, "the server inside")
    reply = box.get(port=8010)
    assert reply.status == 502 and "too long" in reply.error["message"], reply


def test_what_ends_early_is_cut_and_not_called_whole(box):
    for answer in (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
                   b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"):
        with pytest.raises(Exception) as caught:
            box.raw(answer)
        assert "Incomplete" in type(caught.value).__name__ or isinstance(caught.value, (OSError, ValueError)), caught
    assert box.raw(b"HTTP/1.0 200 OK\r\n\r\nto the end").body == b"to the end"
    assert box.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n").status == 204
    assert box.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokMORE").body == b"ok"


SECRETS = {"Cookie": "atoll_session=ats_x; theirs=1; atoll_pass=y", "X-Atoll-CSRF": "c", "X-Forwarded-For": "1.2.3.4",
           "Forwarded": "for=1.2.3.4", "X-Hop": "h", "Connection": "close, X-Hop", "TE": "trailers",
           "Proxy-Authorization": "Basic xx"}


def test_nothing_that_lets_somebody_in_goes_inside_by_path(box):
    headers = {k: v for k, v in SECRETS.items() if k not in ("Cookie", "X-Atoll-CSRF")}
    _, fields, _ = echoed(box.get("echo", headers={**headers, "Cookie": "theirs=1", "Referer": "http://x/"}))
    for name in ("authorization", "cookie", "referer", "origin", "x-forwarded-for", "forwarded", "x-hop", "te",
                 "proxy-authorization"):
        assert name not in fields, fields
    assert fields["x-forwarded-host"] == [box.server.host]


def test_by_host_a_program_shows_its_token_and_it_does_not_go_inside(box):
    line, fields, _ = echoed(box.by_host("/echo?q=%2F", headers={**SECRETS, "Origin": f"http://{box.host()}"}))
    assert line == "GET /echo?q=%2F HTTP/1.1"
    assert fields["host"] == [box.host()] and fields["origin"] == [f"http://{box.host()}"]
    assert fields["cookie"] == ["theirs=1"], "only what is the program's own"
    for name in ("authorization", "x-atoll-csrf", "x-forwarded-for", "forwarded", "x-hop", "te", "proxy-authorization"):
        assert name not in fields, fields


def link_of(box, port=8000, **wish):
    reply = box.server.post(f"{box.base}/previews", {"port": port, **wish})
    assert reply.status == 200, reply
    return reply.json()["url"]


def visit(box, url, cookie=None, headers=None, port=8000):
    host, _, target = url.removeprefix("http://").partition("/")
    more = {"Cookie": cookie} if cookie else {}
    return box.server.request("GET", "/" + target, token=None,
                              headers={"Host": host, "Sec-Fetch-Site": "none", **more, **(headers or {})})


def cookie_of(box, **wish):
    reply = visit(box, link_of(box, **wish))
    assert reply.status == 303, reply
    return reply.headers["set-cookie"].split(";")[0]


def test_a_browser_is_let_in_by_a_link_and_stays_by_a_cookie(box):
    url = link_of(box, path="/echo?a=1&b=%20")
    assert url.startswith(f"http://{box.host()}/echo?a=1&b=%20&atoll_pass="), url
    reply = visit(box, url)
    assert reply.status == 303 and reply.headers["location"] == "/echo?a=1&b=%20", reply.headers
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Path=/" in cookie and "Domain" not in cookie
    page = visit(box, f"http://{box.host()}/echo", cookie.split(";")[0] + "; mine=2",
                 {"Authorization": "Basic dXNlcg=="})
    _, fields, _ = echoed(page)
    assert fields["cookie"] == ["mine=2"], "the pass stays outside"
    assert fields["authorization"] == ["Basic dXNlcg=="], "the program's own goes on"
    _, fields, _ = echoed(visit(box, f"http://{box.host()}/echo", cookie.split(";")[0],
                                {"Authorization": f"Bearer {box.server.token}"}))
    assert "authorization" not in fields, "a token of ours does not"


def test_a_pass_is_good_for_one_port_of_one_sandbox(box):
    cookie = cookie_of(box)
    assert visit(box, f"http://{box.host(8006)}/echo", cookie).status == 401
    other = box.server.post(BOXES, {"ttl_ms": 600000}).json()["id"]
    assert visit(box, f"http://8000-{other}.localhost:{box.server.port}/echo", cookie).status == 401
    assert box.server.delete(f"{BOXES}/{other}").status == 200
    link = link_of(box)
    as_cookie = "atoll_pass=" + link.rpartition("atoll_pass=")[2]
    assert visit(box, f"http://{box.host()}/echo", as_cookie).status == 401, "a link is no cookie"
    shown = cookie.partition("=")[2]
    assert visit(box, f"http://{box.host()}/echo?atoll_pass={shown}").status == 401, "and no cookie a link"
    until, mac, who = shown.split(".", 2)
    for bad in (f"{int(until) + 1}.{mac}.{who}", f"{until}.{'0' * 64}.{who}", f"{until}.{mac}.unix:0",
                "", "x", "1.2.3"):
        assert visit(box, f"http://{box.host()}/echo", f"atoll_pass={bad}").status == 401, bad


def test_a_pass_ends_with_the_token_it_was_made_with(box):
    made = box.server.post("/api/v1/tokens", {"name": "viewer-of-ports", "role": "operator"}).json()
    reply = box.server.post(f"{box.base}/previews", {"port": 8000}, token=made["token"])
    cookie = visit(box, reply.json()["url"]).headers["set-cookie"].split(";")[0]
    assert visit(box, f"http://{box.host()}/echo", cookie).status == 200
    assert box.server.delete(f"/api/v1/tokens/{made['id']}").status == 200
    reply = visit(box, f"http://{box.host()}/echo", cookie)
    assert reply.status == 401 and "atoll port" in reply.error["message"], reply


def test_who_may_only_look_gets_no_answer_from_a_port(box):
    made = box.server.post("/api/v1/tokens", {"name": "looks", "role": "viewer"}).json()["token"]
    for reply in (box.get("echo", token=made), box.by_host(token=made),
                  box.server.post(f"{box.base}/previews", {"port": 8000}, token=made)):
        assert reply.status == 403, reply
    assert box.server.get(f"{box.base}/ports", token=made).status == 200
    assert box.by_host(token=None).status == 401
    assert box.get("echo", token=None).status == 401


def test_a_page_cannot_shut_its_visitor_out_by_guessing(box):
    for _ in range(15):
        for headers in ({"Authorization": "Bearer atl_" + "A" * 43, "Sec-Fetch-Site": "same-origin"},
                        {"Cookie": "atoll_session=bogus", "Sec-Fetch-Site": "same-origin"},
                        {"Authorization": "Basic eDp5"}, {"Cookie": "atoll_pass=bogus"}):
            reply = box.by_host(token=None, headers=headers)
            assert reply.status == 401, reply
    assert box.get("echo").status == 200


def test_only_hosts_of_that_shape_are_served(box):
    server = box.server
    for host in (f"8000-{box.id}.localhost:1", f"8000-{box.id}.localhost", f"8000-{box.id}.example:{server.port}",
                 f"08000-{box.id}.localhost:{server.port}", f"0-{box.id}.localhost:{server.port}",
                 f"8000-{box.id}x.localhost:{server.port}", f"8000{box.id}.localhost:{server.port}",
                 f"8000-sb.localhost:{server.port}", f"x.8000-{box.id}.localhost:{server.port}",
                 f"-8000-{box.id}.localhost:{server.port}"):
        reply = server.get("/echo", headers={"Host": host})
        assert reply.status in (400, 421), (host, reply)
    gone = box.id[:-1] + ("0" if box.id[-1] != "0" else "1")
    assert server.get("/", headers={"Host": f"8000-{gone}.localhost:{server.port}"}).status == 404


def test_other_origins_cannot_speak_to_it(box):
    for origin in (f"http://{box.server.host}", f"http://{box.host(8006)}", "null", "http://evil.example",
                   f"https://{box.host()}"):
        assert box.by_host(headers={"Origin": origin}).status == 403, origin
    assert box.by_host(headers={"Origin": f"http://{box.host()}"}).status == 200
    assert box.get("echo", headers={"Origin": "null"}).status == 403


ORDERS = (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: atoll_session=evil; Path=/\r\n"
          b"Set-Cookie: own=1; Domain=localhost; Path=/; Secure\r\nSet-Cookie:  ATOLL=2\r\n"
          b"Clear-Site-Data: \"*\"\r\nStrict-Transport-Security: max-age=1\r\nService-Worker-Allowed: /\r\n"
          b"Access-Control-Allow-Origin: *\r\nWWW-Authenticate: Basic\r\nRefresh: 0; url=/\r\n"
          b"Link: </x>; rel=preload\r\n"
          b"Report-To: {}\r\nReporting-Endpoints: a=\"/x\"\r\nNEL: {}\r\nAlt-Svc: h3=\":1\"\r\nPublic-Key-Pins: x\r\n"
          b"X-Request-Id: theirs\r\nKeep-Alive: 1\r\nX-Hop: 1\r\nConnection: close, x-hop\r\nUpgrade: h2c\r\n"
          b"X-Fine: yes\r\nContent-Security-Policy: default-src 'none'\r\n\r\nok")


def all_headers(server, host, path):
    raw = server.raw(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {server.token}\r\n"
                     f"Connection: close\r\n\r\n".encode())
    lines = raw.split(b"\r\n\r\n", 1)[0].decode().split("\r\n")[1:]
    return [tuple(line.split(": ", 1)) for line in lines]


def test_an_answer_by_path_says_nothing_about_our_origin(box):
    got = all_headers(box.server, box.server.host, box.path("raw?" + ORDERS.hex()))
    names = [name for name, _ in got]
    for order in ("set-cookie", "clear-site-data", "strict-transport-security", "service-worker-allowed",
                  "access-control-allow-origin", "www-authenticate", "refresh", "link", "report-to",
                  "reporting-endpoints", "nel", "alt-svc", "public-key-pins", "keep-alive", "x-hop", "upgrade"):
        assert order not in names, got
    assert ("x-fine", "yes") in got and ("x-request-id", "theirs") not in got
    policies = [value for name, value in got if name == "content-security-policy"]
    assert "default-src 'none'" in policies, "the program's own still holds"
    ours = [p for p in policies if p.startswith("sandbox ")]
    assert len(ours) == 1 and "allow-same-origin" not in ours[0] and "allow-top" not in ours[0]
    assert ("x-content-type-options", "nosniff") in got
    worker = box.get("echo", headers={"Service-Worker": "script"})
    assert worker.status == 403, worker


def test_an_answer_by_host_speaks_for_its_own_host_alone(box):
    got = all_headers(box.server, box.host(), "/raw?" + ORDERS.hex())
    cookies = [value for name, value in got if name == "set-cookie"]
    assert cookies == ["own=1; Path=/; Secure", "ATOLL=2"], got
    names = [name for name, _ in got]
    for order in ("strict-transport-security", "alt-svc", "public-key-pins", "keep-alive", "x-hop", "upgrade"):
        assert order not in names, got
    for kept in ("clear-site-data", "access-control-allow-origin", "link", "refresh"):
        assert kept in names
    assert [v for n, v in got if n == "content-security-policy"] == ["default-src 'none'"]


@pytest.mark.parametrize("said, told", [
    ("/login", "{p}/login"), ("http://localhost:8000/a?b", "{p}/a?b"), ("http://127.0.0.1:8000", "{p}/"),
    ("next", "next"), ("//evil.example/x", "//evil.example/x"), ("/\\evil", "/\\evil"),
    ("http://localhost:80001/x", "http://localhost:80001/x"), ("https://example.org/", "https://example.org/"),
])
def test_redirects_by_path_stay_below_it(box, said, told):
    reply = box.raw(b"HTTP/1.1 302 Found\r\nLocation: " + said.encode() + b"\r\nContent-Length: 0\r\n\r\n")
    assert reply.status == 302 and reply.headers["location"] == told.format(p=f"{box.base}/ports/8000")


def open_stream(box, target, host=None, extra=""):
    sock = box.server.connect()
    sock.sendall(f"GET {target} HTTP/1.1\r\nHost: {host or box.server.host}\r\n{extra}"
                 f"Authorization: Bearer {box.server.token}\r\n\r\n".encode())
    return sock


def test_events_from_inside_come_as_they_happen(box):
    for target, host in ((box.path("sse"), None), ("/sse", box.host())):
        box.sh("rm -f /tmp/tick")
        with harness.Sse(open_stream(box, target, host)) as events:
            assert events.headers["content-type"] == "text/event-stream"
            assert events.next()["data"] == "0"
            for size in (2, 4):
                box.sh("echo x >> /tmp/tick")
                assert events.next()["data"] == str(size)


def test_a_slow_reader_slows_the_program_and_loses_nothing(box):
    total = 64 << 20
    box.sh("rm -f /tmp/sent")
    with open_stream(box, box.path(f"big?{total}")) as sock:
        sock.settimeout(20)
        first = sock.recv(1000)
        time.sleep(1)
        sent = int(box.sh("cat /tmp/sent"))
        assert sent < 32 << 20, f"{sent} bytes were taken though nobody read"
        reader = sock.makefile("rb")
        head = first
        while b"\r\n\r\n" not in head:
            head += reader.read(1)
        rest, got, pattern = head.split(b"\r\n\r\n", 1)[1], 0, bytes(range(256)) * 512
        reader2 = Joined(rest, reader)
        while size := int(reader2.line(), 16):
            piece = reader2.read(size)
            reader2.line()
            at = got % 256
            for i in range(0, size, 65536):
                part = piece[i:i + 65536]
                assert part == pattern[(at + i) % 256:][:len(part)]
            got += size
    assert got == total


class Joined:
    def __init__(self, first, rest):
        self.first, self.rest = first, rest

    def read(self, size):
        part, self.first = self.first[:size], self.first[size:]
        part += self.rest.read(size - len(part))
        assert len(part) == size, "it ended early"
        return part

    def line(self):
        got = b""
        while not got.endswith(b"\n"):
            got += self.read(1)
        return got.strip()


def test_who_leaves_takes_the_connection_inside_along(box):
    box.sh("rm -f /tmp/left")
    with open_stream(box, box.path("slow")) as sock:
        got = b""
        while not got.endswith(b"hello"):
            got += sock.recv(100)
    wait_until(lambda: "yes" in box.sh("test -e /tmp/left && echo yes || echo no"), 10, "the end of the connection")


KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\n" + KEY


def frames(payload):
    """One masked binary frame, as a client sends it."""
    size = len(payload)
    head = bytes([0x82, 0x80 | size]) if size < 126 else bytes([0x82, 0xfe]) + size.to_bytes(2, "big")
    return head + b"\0\0\0\0" + payload


@pytest.mark.parametrize("way", ["path", "host"])
def test_a_websocket_goes_through_both_ways(box, way):
    target, host = (box.path("ws"), None) if way == "path" else ("/ws", box.host())
    with open_stream(box, target, host, UPGRADE) as sock:
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        fields = head.lower()
        assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in fields and b"upgrade: websocket" in fields
        for size in (1, 125, 60000):
            frame = frames(os.urandom(size))
            sock.sendall(frame)
            got = b""
            while len(got) < len(frame):
                got += sock.recv(65536)
            assert got == frame
    with open_stream(box, target, host, UPGRADE.replace("Connection: Upgrade\r\n", "")) as sock:
        assert not sock.recv(100).startswith(b"HTTP/1.1 101 ")


def test_a_websocket_that_the_program_refuses_is_an_ordinary_answer(box):
    with open_stream(box, box.path("echo"), None, UPGRADE) as sock:
        assert sock.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_token_that_a_websocket_offers_does_not_go_inside(box):
    offer = "bearer." + base64.urlsafe_b64encode(box.server.token.encode()).decode().rstrip("=")
    with box.server.connect() as sock:
        sock.sendall(f"GET {box.path('echo')} HTTP/1.1\r\nHost: {box.server.host}\r\nConnection: Upgrade, close\r\n"
                     f"Upgrade: websocket\r\n{KEY}"
                     f"Sec-WebSocket-Protocol: chat, {offer}, bearer.theirs\r\n\r\n".encode())
        got = b""
        while b"bearer.theirs" not in got and (piece := sock.recv(65536)):
            got += piece
    assert got.startswith(b"HTTP/1.1 200 ") and b"chat, bearer.theirs" in got, got
    assert offer.encode() not in got


def test_a_tunnel_is_bytes_both_ways(box):
    box.start("python3 -c \"import socket; s=socket.create_server(('127.0.0.1',8020));\n"
              "while True:\n c=s.accept()[0]; d=b''\n while x:=c.recv(65536): d+=x\n c.sendall(d[::-1]); c.close()\"")
    wait_until(lambda: 8020 in {p["port"] for p in box.ports()}, 20, "the server inside")
    data = os.urandom(3 << 20)
    with open_stream(box, f"{box.base}/tunnels/8020", None, "Upgrade: tcp\r\nConnection: upgrade\r\n") as sock:
        sock.settimeout(20)
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while part := sock.recv(1 << 20):
            got += part
    assert got == data[::-1]
    assert box.server.get(f"{box.base}/tunnels/8020").status == 400
    with open_stream(box, f"{box.base}/tunnels/8001", None, "Upgrade: tcp\r\nConnection: upgrade\r\n") as sock:
        assert sock.recv(100).startswith(b"HTTP/1.1 502 ")


def test_the_end_of_the_sandbox_ends_what_is_open(server):
    box = Box(server)
    with open_stream(box, f"{box.base}/tunnels/8000", None, "Upgrade: tcp\r\nConnection: upgrade\r\n") as sock, \
            open_stream(box, box.path("slow")) as page:
        assert sock.recv(100).startswith(b"HTTP/1.1 101 ")
        assert page.recv(100).startswith(b"HTTP/1.1 200 ")
        assert server.delete(box.base).status == 200
        for one in (sock, page):
            one.settimeout(10)
            while one.recv(4096):
                pass


def test_a_sandbox_that_sleeps_is_woken(server):
    box = Box(server, idle={"after_ms": 1000, "action": "pause"})
    # A command that runs keeps it awake; a program that has left its command behind does not.
    box.sh("setsid python3 /workspace/serve.py 8030 > /dev/null 2>&1 < /dev/null &")
    for one in server.get(f"{box.base}/execs").json()["items"]:
        if one["state"] == "running":
            assert server.post(f"{box.base}/execs/{one['id']}/signal", {"signal": "KILL"}).status == 200
    wait_until(lambda: server.get(BOXES + "?state=paused").json()["items"], 20, "its sleep", 0.2)
    assert box.get("echo", port=8030).status == 200
    wait_until(lambda: server.get(BOXES + "?state=paused").json()["items"], 20, "its sleep", 0.2)
    with open_stream(box, f"{box.base}/tunnels/8030", None, "Upgrade: tcp\r\nConnection: upgrade\r\n") as sock:
        sock.settimeout(10)
        assert sock.recv(100).startswith(b"HTTP/1.1 101 ")
        time.sleep(2)
        assert not server.get(BOXES + "?state=paused").json()["items"], "a connection keeps it awake"
    assert server.post(f"{box.base}/pause").status == 200
    assert box.get("echo", port=8030).status == 409, "paused by hand it stays so"
    assert server.delete(box.base).status == 200


def test_connections_have_a_limit_of_their_own(box):
    held = []
    try:
        for _ in range(64):
            sock = open_stream(box, f"{box.base}/tunnels/8000", None, "Upgrade: tcp\r\nConnection: upgrade\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 101 ")
            held.append(sock)
        reply = box.get("echo")
        assert reply.status == 429 and "64 connections" in reply.error["message"], reply
        assert box.sh("echo still works").strip() == "still works"
        assert box.server.get(f"{box.base}/files?path=/workspace/serve.py").status == 200
    finally:
        for sock in held:
            sock.close()
    wait_until(lambda: box.get("echo").status == 200, 10, "room again")


def test_many_requests_at_once_each_get_their_own_answer(box):
    wrong = []

    def ask(number):
        for i in range(10):
            body = f"{number}/{i}".encode()
            got = echoed(box.server.request("POST", box.path("echo"), body=body))[2]
            if got != body:
                wrong.append((body, got))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_the_command_line_lists_and_opens(box):
    listed = box.server.cli("port", box.id, check=True).stdout
    assert any(line.split()[:2] == ["8000", "loopback"] for line in listed.splitlines()), listed
    url = box.server.cli("port", box.id[:-3], "--open", "8000", check=True).stdout.strip()
    assert url.startswith(f"http://{box.host()}/?atoll_pass="), url
    assert visit(box, url).status == 303, "made over the Unix socket, good for a browser"
    assert box.server.cli("port", box.id, "1:2", "--open", "3").returncode == 64
    assert box.server.cli("port", box.id, "8080:x").returncode == 64
    assert box.server.cli("port", "nobody").returncode == 2


def forward(box, *args, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    process = subprocess.Popen([box.server.binary, "port", box.id, *args], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE, env={**clean, "ATOLL_STATE": str(box.server.state), **env})
    line = process.stdout.readline()
    assert line.endswith(f" -> {box.id}:{args[-1].rpartition(':')[2]}\n"), line + process.stderr.read()
    return process, int(line.split()[0].rpartition(":")[2])


def test_a_local_port_is_forwarded(box):
    process, port = forward(box, "0:8000")
    try:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), 10) as sock:
                sock.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
                answer = harness.read_all(sock, 10)
            assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["body"] == base64.b64encode(b"abc").decode()
        # An echo whose reader does not read while it writes: neither side may wait for the other.
        with socket.create_connection(("127.0.0.1", port), 10) as sock:
            sock.sendall(f"GET /ws HTTP/1.1\r\nHost: x\r\n{UPGRADE}\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(1)
            data = os.urandom(8 << 20)
            writer = threading.Thread(target=sock.sendall, args=(data,))
            writer.start()
            got = b""
            sock.settimeout(20)
            while len(got) < len(data):
                got += sock.recv(1 << 20)
            writer.join()
            assert got == data
    finally:
        process.terminate()
        process.wait(10)
    refused, port = forward(box, "0:8001")
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as sock:
            assert harness.read_all(sock, 10) == b""
        assert "nothing listens on port 8001" in refused.stderr.readline()
    finally:
        refused.terminate()
        refused.wait(10)


def test_the_processes_inside_are_listed(box):
    box.start("exec bash -c 'exec -a \"odd\tname\" sleep 1234'")
    listed = lambda: box.server.get(f"{box.base}/processes").json()["items"]  # noqa: E731
    wait_until(lambda: any(p["command"] == "odd\tname 1234" and p["state"] == "S" for p in listed()), 10, "its sleep")
    found = {p["pid"]: p for p in listed()}
    assert found[1]["parent"] == 0
    one = next(p for p in found.values() if p["command"].endswith("1234"))
    assert one["uid"] == 1000 and one["parent"] in found and one["threads"] == 1 and one["rss"] > 0
    assert not [p for p in found.values() if p["command"] == "ps"], "what lists them is not among them"
    listed = box.server.cli("ps", box.id, check=True).stdout
    assert "odd\\tname 1234" in listed, "untrusted text is made visible"


def test_output_is_printed_by_position_and_followed(box):
    quick = box.server.post(f"{box.base}/execs?wait=20000", {"command": "printf 'one\\ntwo\\n'; printf 'bad\\n' >&2"},
                            timeout=30).json()["id"]
    done = box.server.cli("logs", box.id, check=True)
    assert (done.stdout, done.stderr) == ("one\ntwo\n", "bad\n"), "the newest command"
    done = box.server.cli("logs", box.id, quick[:-2], "--stream", "stdout", "--from", "4", check=True)
    assert (done.stdout, done.stderr) == ("two\n", "")
    done = box.server.cli("logs", box.id, quick, "--follow", "--from", "4,1", check=True)
    assert (done.stdout, done.stderr) == ("two\n", "ad\n")
    box.start("for i in 1 2 3; do echo line $i; sleep 0.3; done")
    assert box.server.cli("logs", box.id, "--follow", check=True).stdout == "line 1\nline 2\nline 3\n"
    assert box.server.cli("logs", box.id, "exnobody").returncode == 2
    assert box.server.cli("logs", box.id, "--from", "x").returncode == 64
    assert box.server.cli("logs", box.id, quick, "--stream", "stdout", "--from", "99").returncode == 1


def test_what_ended_is_pruned(server):
    stays, fails = [server.post(BOXES, {"storage": "memory", "ttl_ms": 600000}).json()["id"] for _ in range(2)]
    inits = [p for p in harness.descendants(server.warden_pid) if f"/{fails}" in harness.cgroups_of(p)]
    os.kill(min(inits), 9)
    wait_until(lambda: server.get(f"{BOXES}/{fails}").json()["state"] == "failed", 10, "its end")
    assert server.cli("prune", "--dry-run", check=True).stdout.split() == [fails]
    assert server.cli("prune", "--older", "1h", check=True).stdout == ""
    assert server.get(f"{BOXES}/{fails}").status == 200
    assert server.cli("prune", check=True).stdout.split() == [fails]
    assert server.get(f"{BOXES}/{fails}").status == 404
    assert server.delete(f"{BOXES}/{stays}").status == 200
