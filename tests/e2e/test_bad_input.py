"""Everything a peer may send that it must not: each is answered plainly, and the server lives on.

Framing is sent as raw bytes, because no library would. A request whose framing is wrong must end the
connection: whatever follows it could be somebody else's request (smuggling).
"""
import json
import re
import time
import urllib.parse

import harness
import pytest


@pytest.fixture(autouse=True)
def still_well(server):
    """After every one of these the same process must still answer."""
    before = server.api_pid()
    yield
    assert server.get("/readyz", token=None).status == 200
    assert server.api_pid() == before


def head(server, *lines, method="GET", target="/api/v1/whoami", host=True, version="HTTP/1.1", token=True):
    """A request head with our Host and token, and whatever else is wanted."""
    top = [f"{method} {target} {version}"]
    if host:
        top.append(f"Host: {server.host}")
    if token:
        top.append(f"Authorization: Bearer {server.token}")
    return ("\r\n".join([*top, *lines]) + "\r\n\r\n").encode("latin-1")


def replies(answer):
    """The statuses of all replies in a byte stream."""
    return [int(part.split(b" ", 1)[0]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def refused(server, data, *statuses):
    """One refusal, then the end of the connection; a second request behind it is not served."""
    second = head(server, "Connection: close", target="/api/v1/version")
    answer = server.raw(data + second)
    assert replies(answer), f"no answer to {data[:200]!r}"
    assert replies(answer)[0] in statuses, answer[:300]
    assert len(replies(answer)) == 1, f"served what came after: {answer!r}"
    return answer


# ---- heads ----

def test_the_plain_request_that_all_of_these_spoil_works(server):
    answer = server.raw(head(server, "Connection: close"))
    assert replies(answer) == [200]
    assert b'"role":"admin"' in answer


def test_a_request_line_over_the_limit(server):
    refused(server, head(server, target="/" + "a" * 9000), 414, 431)


def test_a_head_over_the_limit(server):
    many = [f"X-{i}: {'v' * 4000}" for i in range(9)]
    refused(server, head(server, *many), 431)


def test_a_single_field_that_never_ends(server):
    data = head(server)[:-4] + b"\r\nX-Long: " + b"a" * 70000
    assert server.raw_status(data) == 431


def test_too_many_fields(server):
    refused(server, head(server, *[f"X-{i}: v" for i in range(101)]), 431)


def test_as_many_fields_as_allowed(server):
    lines = [f"X-{i}: v" for i in range(97)]  # with Host, Authorization and Connection: 100
    assert server.raw_status(head(server, *lines, "Connection: close")) == 200


@pytest.mark.parametrize("data", [
    "GET  /api/v1/whoami HTTP/1.1", "GET /api/v1/whoami  HTTP/1.1", " GET /api/v1/whoami HTTP/1.1",
    "GET /api/v1/whoami HTTP/1.1 ", "GET /api/v1/whoami", "GET", "", "GET /api/v1/whoami http/1.1",
    "GET /api/v1/whoami HTTP/1", "GET /api/v1/whoami HTTP/11", "GET /api/v1/whoami HTTP/1.1\x00",
    "G\x00T /api/v1/whoami HTTP/1.1", "GET /api/v1/who ami HTTP/1.1", "GET\t/api/v1/whoami HTTP/1.1",
    "G(T /api/v1/whoami HTTP/1.1", "GET api/v1/whoami HTTP/1.1", "GET /api/v1/who\x7fami HTTP/1.1",
    "GET /api/v1/whoami#x HTTP/1.1", "GET /api/v1/who\xe4mi HTTP/1.1",
])
def test_a_broken_request_line(server, data):
    tail = f"\r\nHost: {server.host}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    refused(server, (data + tail).encode("latin-1"), 400, 505)


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/3.0", "HTTP/0.9", "HTTP/1.2"])
def test_a_version_we_do_not_speak(server, version):
    refused(server, head(server, version=version), 400, 505)


@pytest.mark.parametrize("line", [
    "X-Bad : v", " X-Bad: v", "X Bad: v", "X-Bad\x00: v", "X-Bad: v\x00w", "X-Bad: v\x01", "X-Bad", ": v",
    "X-B\x7fd: v",
    "X-Bad: v\r\n folded", "X-Bad: v\r\n\tfolded", "X-Bad: a\rb", "X-(Bad): v", "X-B\xe4d: v",
])
def test_a_broken_header_field(server, line):
    refused(server, head(server, line), 400)


def test_lines_that_end_without_carriage_return(server):
    refused(server, head(server).replace(b"\r\n", b"\n"), 400)


@pytest.mark.parametrize("target", [
    "/api/v1/whoami%", "/api/v1/whoami%2", "/api/v1/whoami%zz", "/api/v1/who%00ami", "/api/v1/%ff%fe",
])
def test_a_badly_encoded_path(server, target):
    assert server.raw_status(head(server, target=target)) in (400, 404)


@pytest.mark.parametrize("target", [
    "/api/v1/../v1/whoami", "/api/v1/./whoami", "//api/v1/whoami", "/api/v1/whoami/", "/api%2fv1%2fwhoami",
    "/API/V1/WHOAMI", "/api/v1/%2e%2e/v1/whoami", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
])
def test_other_spellings_of_a_path_are_other_paths(server, target):
    assert server.raw_status(head(server, target=target)) in (400, 404)


@pytest.mark.parametrize("method,statuses", [
    ("TRACE", (405, 501)), ("CONNECT", (400, 405, 501)), ("PUT", (405,)), ("BREW", (405, 501)), ("get", (405, 501)),
])
def test_methods_the_path_does_not_take(server, method, statuses):
    assert server.raw_status(head(server, "Connection: close", method=method)) in statuses


def test_405_names_what_is_allowed(server):
    reply = server.request("PUT", "/api/v1/tokens", json={})
    assert reply.status == 405
    assert {m.strip() for m in reply.headers["allow"].split(",")} >= {"GET", "POST"}


def test_an_expectation_we_cannot_meet(server):
    answer = server.raw(head(server, "Expect: 200-maybe", "Content-Length: 2", method="POST", target="/api/v1/echo"))
    assert replies(answer)[0] == 417


def test_expect_100_continue_is_answered_before_the_body(server):
    body = b'{"text":"x"}'
    with server.connect() as sock:
        sock.sendall(head(server, "Expect: 100-continue", f"Content-Length: {len(body)}",
                          "Content-Type: application/json", method="POST", target="/api/v1/echo"))
        sock.settimeout(5)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        sock.sendall(body)
        assert harness.read_reply(sock).status == 200


def test_expect_100_continue_is_refused_without_a_body_being_sent(server):
    with server.connect() as sock:
        sock.sendall(head(server, "Expect: 100-continue", "Content-Length: 99999999",
                          "Content-Type: application/json", method="POST", target="/api/v1/echo"))
        assert harness.read_reply(sock).status == 413


# ---- bodies ----

def post(server, *lines, body=b"", target="/api/v1/echo"):
    return head(server, "Content-Type: application/json", *lines, method="POST", target=target) + body


GOOD = b'{"text":"x"}'


@pytest.mark.parametrize("lines", [
    ["Content-Length: 12", "Content-Length: 12"],
    ["Content-Length: 12", "Content-Length: 13"],
    ["Content-Length: 12, 12"],
    ["Content-Length: 12", "Transfer-Encoding: chunked"],
    ["Transfer-Encoding: chunked", "Content-Length: 12"],
    ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
    ["Transfer-Encoding: xchunked"],
    ["Transfer-Encoding: chunked, identity"],
    ["Transfer-Encoding: identity"],
    ["Transfer-Encoding: gzip, chunked"],
    ["Transfer-Encoding: chunked\x0b"],
    ["Transfer-Encoding:\x0bchunked"],
    ["Transfer-Encoding: \"chunked\""],
    ["Content-Length: +12"], ["Content-Length: -1"], ["Content-Length: 0x0c"], ["Content-Length: 12 13"],
    ["Content-Length: 1e1"], ["Content-Length: "], ["Content-Length: 99999999999999999999"],
    ["Content-Length: \xb9\xb2"],
])
def test_framing_that_two_readers_could_see_differently(server, lines):
    refused(server, post(server, *lines, body=GOOD), 400, 413, 501)


@pytest.mark.parametrize("body", [
    b"zz\r\nxx\r\n0\r\n\r\n", b"-1\r\nx\r\n0\r\n\r\n", b"+c\r\n" + GOOD + b"\r\n0\r\n\r\n",
    b"0xc\r\n" + GOOD + b"\r\n0\r\n\r\n",
    b"c \r\n" + GOOD + b"\r\n0\r\n\r\n", b" c\r\n" + GOOD + b"\r\n0\r\n\r\n", b"c\n" + GOOD + b"\n0\n\n",
    b"c\r\n" + GOOD + b"XX0\r\n\r\n", b"b\r\n" + GOOD + b"\r\n0\r\n\r\n", b"\r\n" + GOOD + b"\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\n" + GOOD, b"c;" + b"x" * 5000 + b"\r\n" + GOOD + b"\r\n0\r\n\r\n",
    b"c\r\n" + GOOD + b"\r\n0\r\nBad Trailer: x\r\n\r\n",
    b"c\r\n" + GOOD + b"\r\n0\r\nX: " + b"x" * 20000 + b"\r\n\r\n",
])
def test_a_bad_chunk(server, body):
    refused(server, post(server, "Transfer-Encoding: chunked", body=body), 400, 413, 431)


def test_good_chunks_are_read(server):
    body = b"5\r\n" + GOOD[:5] + b"\r\n7;ext=1\r\n" + GOOD[5:] + b"\r\n0\r\nTrailer: v\r\n\r\n"
    answer = server.raw(post(server, "Transfer-Encoding: chunked", "Connection: close", body=body))
    assert replies(answer) == [200] and b'"text":"x"' in answer


def test_a_chunked_body_in_http_1_0(server):
    data = head(server, "Content-Type: application/json", "Transfer-Encoding: chunked", method="POST",
                target="/api/v1/echo", version="HTTP/1.0")
    refused(server, data + b"c\r\n" + GOOD + b"\r\n0\r\n\r\n", 400, 501)


def test_a_body_over_the_limit_by_its_length(server):
    refused(server, post(server, f"Content-Length: {1048577}"), 413)


def test_a_body_over_the_limit_by_its_chunks(server):
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = server.raw(post(server, "Transfer-Encoding: chunked", body=chunk * 20))
    assert replies(answer)[:1] == [413]


def test_a_body_at_the_limit_is_read(server):
    text = json.dumps({"text": "x"}).encode()
    body = text + b" " * (1048576 - len(text))
    assert server.request("POST", "/api/v1/echo", body=body, headers={"Content-Type": "application/json"}).status == 200


def test_a_body_where_none_belongs(server):
    data = head(server, "Content-Length: 2", "Content-Type: application/json", "Connection: close") + b"{}"
    assert server.raw_status(data) == 400


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx",
                                  "multipart/form-data"])
def test_a_body_of_another_type(server, kind):
    headers = {"Content-Type": kind} if kind else {}
    reply = server.request("POST", "/api/v1/echo", body=GOOD, headers=headers)
    assert reply.status == 415, reply
    assert reply.error["code"]


def test_a_request_that_stops_in_the_middle_of_its_head(start_server):
    server = start_server(env={"ATOLL_HEAD_TIMEOUT": "300ms"})
    with server.connect() as sock:
        sock.sendall(b"GET /readyz HTTP/1.1\r\nHos")
        start = time.monotonic()
        answer = harness.read_all(sock, 5)
        assert 0.2 < time.monotonic() - start < 3 * harness.SLOW
        assert answer == b"" or replies(answer) == [408]


def test_a_head_that_drips_does_not_extend_its_time(start_server):
    server = start_server(env={"ATOLL_HEAD_TIMEOUT": "500ms"})
    with server.connect() as sock:
        start = time.monotonic()
        with pytest.raises(OSError):
            for _ in range(100):
                sock.sendall(b"X")
                time.sleep(0.05)
        assert time.monotonic() - start < 3 * harness.SLOW


# ---- Host and Origin ----

def test_no_host(server):
    refused(server, head(server, host=False), 400)


def test_two_hosts(server):
    refused(server, head(server, f"Host: {server.host}"), 400)


@pytest.mark.parametrize("host", [
    "evil.example", "127.0.0.1", "localhost.evil.example:{port}", "127.0.0.1:{port}.", "evil.example:{port}",
    "127.0.0.1:{port}@evil.example", "[::1]:{port}", "0.0.0.0:{port}", "2130706433:{port}", "127.1:{port}",
])
def test_a_host_that_is_not_ours(server, host):
    reply = server.get("/api/v1/whoami", headers={"Host": host.format(port=server.port)})
    assert reply.status in (400, 421), reply
    if host in ("evil.example", "evil.example:{port}"):
        assert reply.status == 421, reply


def test_a_host_that_is_not_ours_on_every_route(server):
    paths = server.get("/api/openapi.json").json()["paths"]
    for path in [*paths, "/", "/no/such/path"]:
        if path in ("/healthz", "/healthz/http", "/readyz"):  # probes come by address
            continue
        for method in paths.get(path, {"get": None}):
            reply = server.request(method.upper(), path, headers={"Host": "rebound.example"})
            assert reply.status == 421, (method, path, reply)


@pytest.mark.parametrize("origin", [
    "https://evil.example", "http://evil.example", "null", "http://127.0.0.1", "https://{host}",
    "http://{host}.evil.example",
    "http://evil.example/{host}", "file://", "", "http://{host}/", "HTTP://{host}x", "http://localhost",
])
@pytest.mark.parametrize("kind", ["get", "post", "sse", "ws"])
def test_a_foreign_origin(server, origin, kind):
    origin = origin.format(host=server.host)
    if kind == "get":
        status = server.get("/api/v1/whoami", headers={"Origin": origin}).status
    elif kind == "post":
        status = server.post("/api/v1/echo", {"text": "x"}, headers={"Origin": origin}).status
    elif kind == "sse":
        with server.sse("/events", headers={"Origin": origin}) as stream:
            status = stream.status
    else:
        status = server.raw_status(head(
            server, f"Origin: {origin}", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {harness.websocket_key()}", target="/api/v1/events"))
    assert status == 403


def test_our_own_origin(server):
    origin = {"Origin": f"http://{server.host}"}
    assert server.get("/api/v1/whoami", headers=origin).status == 200
    assert server.post("/api/v1/echo", {"text": "x"}, headers=origin).status == 200
    with server.sse("/events", headers=origin) as stream:
        assert stream.status == 200


def test_no_reply_opens_itself_to_other_origins(server):
    for path in ("/", "/api/v1/whoami", "/readyz", "/no/such/path"):
        reply = server.get(path)
        assert not [h for h in reply.headers if h.lower().startswith("access-control-")], path


# ---- JSON ----

def echo(server, body):
    return server.request("POST", "/api/v1/echo", body=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("body", [
    b"{", b"}", b"", b" ", b"null", b"[]", b'"x"', b"12", b"true", b"{}x", b'{"text":"x"} {"text":"y"}',
    b'{"text":"x",}',
    b'{"text":"x" "flag":true}', b"{'text':'x'}", b'{text:"x"}', b'{"text":"x"}\x00', b'\xef\xbb\xbf{"text":"x"}',
    b'{"text":"x"}/**/', b'{"text":"x","number":01}', b'{"text":"x","number":+1}', b'{"text":"x","number":.5}',
    b'{"text":"x","number":1.}', b'{"text":"x","number":NaN}', b'{"text":"x","number":Infinity}',
    b'{"text":"x","number":0x1}',
    b'{"text":"x","number":1e}', b'{"text":"\x01"}', b'{"text":"a\nb"}', b'{"text":"\\x"}', b'{"text":"\\u12"}',
    b'{"text":"x',
    b'{"text":tru}', b'{"text":"x","tags":["a",]}', b'{"text":"x","tags":["a"',
])
def test_broken_json(server, body):
    reply = echo(server, body)
    assert reply.status == 400, reply
    assert reply.error["code"] == "invalid", reply


@pytest.mark.parametrize("body", [
    b'{"text":"x","tags":' + b"[" * 65 + b"]" * 65 + b"}", b'{"a":' * 200 + b"1" + b"}" * 200,
    b"[" * 100000, b'{"text":"x","note":' + b'{"a":' * 100000,
])
def test_json_that_is_too_deep(server, body):
    reply = echo(server, body)
    assert reply.status == 400, reply
    assert re.search("deep|depth|nest", reply.error["message"]), reply


@pytest.mark.parametrize("body", [
    b'{"text":"x","text":"y"}', b'{"text":"x","te\\u0078t":"y"}', b'{"text":"x","tags":[],"tags":[]}',
])
def test_duplicate_keys(server, body):
    reply = echo(server, body)
    assert reply.status == 400, reply


@pytest.mark.parametrize("text", [
    b"\\ud800", b"\\udc00", b"\\ud800x", b"\\ud800\\u0041", b"\\udc00\\ud800", b"\xed\xa0\x80", b"\xc0\xaf",
    b"\xff", b"\xf8\x88\x80\x80\x80",
    b"\xe2\x82", b"\xf4\x90\x80\x80", b"\\u0000", b"a\\u0000b",
])
def test_text_that_is_no_text(server, text):
    reply = echo(server, b'{"text":"' + text + b'"}')
    assert reply.status == 400, reply


def test_text_of_all_kinds_comes_back_as_it_was(server):
    text = "plain, ü, 中, \U0001f41a, \u202e, \"quoted\", back\\slash, \ttab, \nline, \x7f, </script>"
    sent = {"text": text, "number": -9007199254740991, "flag": True, "tags": ["", text], "note": ""}
    reply = server.post("/api/v1/echo", sent)
    assert reply.status == 200, reply
    assert reply.json() == sent


@pytest.mark.parametrize("field,value", [
    ("text", 1), ("text", None), ("text", ["x"]), ("text", {}), ("text", True), ("text", "x" * 4097),
    ("number", "1"), ("number", 1.5), ("number", True), ("number", 9007199254740992), ("number", -9007199254740992),
    ("number", 10**30), ("number", []), ("flag", "true"), ("flag", 1), ("flag", 0), ("tags", "a"), ("tags", {}),
    ("tags", ["x"] * 33), ("tags", [1]), ("tags", [None]), ("tags", [["x"]]), ("note", 5), ("note", "x" * 4097),
    ("unknown", 1), ("Text", "x"), ("text ", "x"), ("__proto__", {}), ("", 1),
])
def test_wrong_types_and_unknown_fields_are_named(server, field, value):
    reply = server.post("/api/v1/echo", {"text": "x", field: value})
    assert reply.status == 400, reply
    assert reply.error["code"] == "invalid"
    assert (reply.error["field"] or "").split("[")[0] == field, reply


def test_a_missing_field_is_named(server):
    reply = server.post("/api/v1/echo", {"number": 1})
    assert (reply.status, reply.error["field"]) == (400, "text")


def test_values_at_their_limits(server):
    reply = server.post("/api/v1/echo", {"text": "x" * 4096, "number": 9007199254740991, "tags": ["y"] * 32})
    assert reply.status == 200, reply


@pytest.mark.parametrize("query,field", [
    ("nonsense=1", "nonsense"), ("since=x", "since"), ("since=-1", "since"), ("since=1&since=2", "since"),
    ("limit=0", "limit"), ("limit=1001", "limit"), ("since=99999999999999999999", "since"), ("limit=1.5", "limit"),
])
def test_query_parameters_are_checked_too(server, query, field):
    reply = server.get("/api/v1/events?" + query)
    assert (reply.status, reply.error["field"]) == (400, field), reply


@pytest.mark.parametrize("types", ["***", ",note.created", "note created", "Note.created", ".*x", "a,,b", "*"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_filter_that_can_match_nothing(server, types, accept):
    reply = server.get("/api/v1/events?type=" + urllib.parse.quote(types), headers={"Accept": accept})
    assert reply.status == 400 and reply.error["field"] == "type"


@pytest.mark.parametrize("query", ["since=%", "since=%zz", "%ff=1", "type=%00"])
def test_a_badly_encoded_query(server, query):
    assert server.get("/api/v1/events?" + query).status == 400


def test_limits_of_a_page(server):
    for limit in (1, 1000):
        assert server.get(f"/api/v1/events?limit={limit}").status == 200


# ---- what is not there ----

def test_an_unknown_path_is_json_too(server):
    reply = server.get("/no/such/path")
    assert reply.status == 404 and reply.error["code"] == "not_found"


def test_an_unknown_object(server):
    reply = server.delete("/api/v1/tokens/tok_none")
    assert reply.status == 404 and reply.error["code"] == "not_found", reply


def test_errors_name_the_request(server):
    reply = server.get("/no/such/path", headers={"X-Request-Id": "my-request.1"})
    assert reply.error["request_id"] == reply.headers["x-request-id"] == "my-request.1"


def test_many_pipelined_requests_are_answered_in_order(server):
    count = 200
    data = b"".join(head(server, f"X-Request-Id: n{i}") for i in range(count))
    with server.connect() as sock:
        sock.sendall(data)
        for i in range(count):
            assert harness.read_reply(sock).headers["x-request-id"] == f"n{i}"
