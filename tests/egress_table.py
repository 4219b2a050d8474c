"""What a sandbox tries on its way out, and what must come of it: the table of tests/e2e/test_egress_table.py.

A row is steps inside (tests/inside_egress.py), what each gives, the verdict of its record, the names that may
be looked up for it and the addresses that may be connected to. For all rows but those that were allowed
to go out, both lists are empty: nothing of a denied request is heard by anybody. "@" in a row is a label of
its own, so that what the name server and the records say can be told apart.
"""
import base64
import contextlib
import ipaddress
import struct

from world import Alias, SILENCE, name_bytes

OK, ALSO, SIX = "45.1.0.1", "45.1.0.2", "2600:45::1"  # servers of the outside
OPENED, ADMITTED = "45.9.9.9", "10.9.0.7"            # addresses that operators' rules open: public, private
RAW = "45.66.0.1"                                     # one that no rule opens

# Addresses where no name may lead, by class; the first label of a name tells which: "loopback.@.bad.example".
FORBIDDEN = {
    "unspecified": "0.0.0.0", "zero-net": "0.1.2.3", "loopback": "127.0.0.1", "loopback-far": "127.200.3.4",
    "private-10": "10.0.0.1", "private-172": "172.16.5.4", "private-192": "192.168.1.1", "shared": "100.64.0.1",
    "alibaba-metadata": "100.100.100.200", "link-local": "169.254.7.7", "metadata": "169.254.169.254",
    "documentation": "203.0.113.7", "benchmark": "198.18.0.1", "multicast": "224.0.0.251", "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255", "loopback-6": "::1", "unspecified-6": "::", "local-6": "fe80::1",
    "unique-6": "fd00::1", "metadata-6": "fd00:ec2::254", "mapped": "::ffff:45.1.0.1",
    "mapped-local": "::ffff:127.0.0.1",
    "compatible": "::127.0.0.1", "nat64": "64:ff9b::7f00:1", "6to4": "2002:7f00:1::", "teredo": "2001:0:7f00:1::",
    "documentation-6": "2001:db8::1", "multicast-6": "ff02::1", "home": "11.0.0.2", "home-6": "2600:11::2",
}

POLICY = {
    "allow": [
        "*.ok.example", "*.ok.example:8080", "*.ok.example:8443", "*.ok.example:9000/raw", "*.six.example",
        "*.alias.example",
        "*.bad.example", "*.mixed.example", "*.turns.example", "*.none.example", "*.mute.example", "*.down.example",
        "only.apex.example", "*.apex.example", ".tree.example", "xn--bcher-kva.example", "*.admitted.example",
        "*.get.example GET,HEAD", "*.path.example * /simple/", "*.loose.example",
        f"{OPENED}:*",
        f"{OPENED}:9000/raw", "10.9.0.0/16:80", "0.0.0.0/0:7777", "126.0.0.0/7:80", "169.254.168.0/23:80",
        "11.0.0.2:*",
    ],
    "deny": ["*.denied.ok.example", "*.ok.example:22", "no.tree.example", "45.9.9.10"],
    "unchecked": ["*.loose.example"],
}

ZONE = {
    "*.ok.example": [OK], "*.six.example": [SIX], "*.denied.ok.example": [OK], "*.apex.example": [OK],
    "apex.example": [OK],
    "*.tree.example": [OK], "tree.example": [OK], "xn--bcher-kva.example": [OK], "*.get.example": [OK],
    "*.path.example": [OK], "*.loose.example": [OK], "*.evil.example": [RAW], "evil.example": [RAW],
    "*.alias.example": [Alias("far.elsewhere.example")], "far.elsewhere.example": [ALSO],
    "*.inner.alias.example": [Alias("inner.elsewhere.example")], "inner.elsewhere.example": ["10.0.0.1"],
    "*.loop.alias.example": [Alias("loop.elsewhere.example")],
    "loop.elsewhere.example": [Alias("loop.elsewhere.example")],
    "*.mixed.example": [OK, "10.0.0.1"], "*.last.mixed.example": [OK, ALSO, "45.1.0.3", "127.0.0.1"],
    "*.six.mixed.example": [OK, "::1"], "*.turns.example": lambda n: [OK] if n == 0 else ["127.0.0.1"],
    "*.mute.example": [SILENCE], "*.down.example": ["45.1.0.1"], "*.admitted.example": [ADMITTED],
    **{f"*.{kind}.bad.example": [address] for kind, address in FORBIDDEN.items()},
}

ROWS = []


class Row:
    """`records`: what is recorded, where that is not the verdict with host and port of the row; a verdict, or that
    and a host. What was looked up or connected to and is refused then was allowed before."""

    def __init__(self, name, steps, want, verdict=None, host=None, port=None, looked=(), went=(), records=None,
                 kinds=None):
        self.number, self.label = len(ROWS), f"r{len(ROWS)}"
        self.name = name.replace("@", self.label)
        own = lambda text: text.replace("@", self.label)  # noqa: E731
        self.steps = [[own(x) if isinstance(x, str) and step[0] != "send" else x for x in step] for step in steps]
        self.steps = [["send", pack(own_bytes(step[1],
                                              self.label))] if step[0] == "send" else step for step in self.steps]
        self.want, self.verdict = want, verdict
        self.host, self.port = own(host) if host else host, port
        self.looked, self.went = {own(name) for name in looked}, set(went)
        self.kinds = kinds or kinds_of(self.steps, verdict)
        if records is None:
            begun = (looked or went) and verdict != "allowed"
            records = (["allowed"] if begun else []) + ([verdict] if verdict else [])
        records = [(one, self.host) if isinstance(one, str) else (one[0], own(one[1])) for one in records]
        self.records = [(one, host or "", self.port or 0) for one, host in records]
        ROWS.append(self)


def kinds_of(steps, verdict):
    """What its records may call it: one thing, unless it is too malformed to be told."""
    if steps[0][0] == "dial":
        return {{80: "http", 443: "tls"}.get(steps[0][2], "tcp")}
    sent = base64.b64decode(steps[1][1]) if steps[0][0] == "proxy" else b""
    if not sent.startswith(b"CONNECT "):
        return {"http"}
    return {"connect", "http"} if verdict == "malformed" else {"connect"}


def name_matches(rule, host):
    rule = rule.split(" ")[0].removesuffix("/raw")
    if rule.rpartition(":")[2] in ("*",) or rule.rpartition(":")[2].isdigit():
        rule = rule.rpartition(":")[0]
    if "/" in rule or rule[0].isdigit():
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(host) in ipaddress.ip_network(rule)
        return False
    if rule.startswith("*."):
        return host.endswith(rule[1:])
    return host == rule.lstrip(".") or rule.startswith(".") and host.endswith(rule)


def covers(rule, host, port, deny=False):
    """Does a rule as it is written above name this host and port? Written apart from the program that decides."""
    said = rule.split(" ")[0].removesuffix("/raw").rpartition(":")[2]
    ports = {"*"} if said == "*" or deny and not said.isdigit() else {int(said)} if said.isdigit() else {80, 443}
    return name_matches(rule, host) and (port in ports or "*" in ports)


def rule_fits(record):
    """Is the rule that a record names one that could have decided so?"""
    host, port, rule = record["host"], record["port"], record["rule"]
    denies = [one for one in POLICY["deny"] if covers(one, host, port, True)]
    allows = [one for one in POLICY["allow"] if covers(one, host, port)]
    if record["verdict"] == "allowed":
        return rule in allows and not denies
    if record["verdict"] == "denied" and denies:
        return rule in denies
    if record["verdict"] == "denied":  # none, or the one that nearly allowed it
        raw_only = record["why"] == "raw"
        near = [one for one in POLICY["allow"]
                if name_matches(one, host) and (raw_only or one not in allows or " " in one)]
        return rule == "" or rule in near
    if record["verdict"] == "refused":  # an address has a rule of its own
        return rule == "" or rule in POLICY["allow"]
    return rule == ""


def own_bytes(data, label):
    data = data.encode("latin-1") if isinstance(data, str) else data
    return data.replace(b"@@", b"\0AT").replace(b"@", label.encode()).replace(b"\0AT", b"@")


def pack(data):
    return base64.b64encode(data).decode()


def allowed(host, port, addr=OK):
    """Of a row that may go out: its verdict, its lookup and where it goes."""
    return {"verdict": "allowed", "looked": [host.lower().rstrip(".")], "went": [(addr, port)]}


def head(target, host, method="GET", more=""):
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"


# ---- a request to the proxy ----


def get(host, want, port=80, path="/", method="GET", more="", body="", name=None, verdict="denied", **row):
    """Plain HTTP through the proxy, as curl -x sends it."""
    authority = host if port == 80 else f"{host}:{port}"
    text = head(f"http://{authority}{path}", authority, method, more) + body
    Row(name or f"{method} http://{authority}{path}", [["proxy"], ["send", text], ["reply", method != "HEAD"]],
        ["ok", "ok", want], verdict, host.lower().rstrip("."), port, **row)


def raw(name, data, want, verdict="malformed", **row):
    """Bytes to the proxy; `want` is a status, or "closed"."""
    Row(name, [["proxy"], ["send", data], ["reply"]], ["ok", "ok", want], verdict, **row)


def tunnel(host, port, want, then=(), after=(), name=None, verdict="denied", **row):
    """CONNECT, and what is done in the tunnel."""
    authority = f"{host}:{port}"
    Row(name or f"CONNECT {authority}", [["proxy"], ["send", head(authority, authority, "CONNECT")], ["reply"], *then],
        ["ok", "ok", want, *after], verdict, host.lower().strip("[].").rstrip("."), port, **row)


HTTPS = ([["tls", "@.ok.example"], ["send", head("/", "@.ok.example")], ["reply"]], ["tls", "ok", 200])

for host, port in (("@.ok.example", 80), ("A.@.OK.Example", 80), ("a.b.c.d.@.ok.example", 80),
                   ("@.ok.example", 8080)):
    get(host, 200, port, **allowed(host, port))
for method, body in (("HEAD", ""), ("POST", "x=1"), ("PUT", "content"), ("PATCH", "{}"), ("DELETE", ""), ("OPTIONS",
                                                                                                          ""),
                     ("PROPFIND", "")):
    get("@.ok.example", 200, method=method, body=body, more=f"Content-Length: {len(body)}\r\n" if body else "",
        **allowed("@.ok.example", 80))
get("@.ok.example", 200, method="POST", more="Transfer-Encoding: chunked\r\n", body="3\r\nabc\r\n0\r\n\r\n",
    name="POST chunked", **allowed("@.ok.example", 80))
get("@.ok.example", 200, path="/a/b?c=d&e=%20f", name="path and query", **allowed("@.ok.example", 80))

get("@.six.example", 200, **allowed("@.six.example", 80, SIX))
for host in ("only.apex.example", "@.apex.example", "tree.example", "@.tree.example", "xn--bcher-kva.example",
             "@.get.example",
             "@.turns.example"):
    get(host, 200, **allowed(host, 80))
get("@.path.example", 200, path="/simple/x", **allowed("@.path.example", 80))
get("@.alias.example", 200, **allowed("@.alias.example", 80, ALSO))
get("@.admitted.example", 200, name="a private address that a rule opens", **allowed("@.admitted.example", 80,
                                                                                     ADMITTED))
for port in (80, 8080):
    get(OPENED, 200, port, verdict="allowed", went=[(OPENED, port)])

tunnel("@.ok.example", 443, 200, *HTTPS, **allowed("@.ok.example", 443))
tunnel("@.OK.Example", 443, 200, *HTTPS, **allowed("@.ok.example", 443))
tunnel("@.ok.example.", 443, 200, *HTTPS, **allowed("@.ok.example", 443))
tunnel("@.ok.example", 8443, 200, *HTTPS, **allowed("@.ok.example", 8443))
tunnel("@.ok.example", 443, 200, [["tls", "@.OK.example"]], ["tls"], name="server name in capitals",
       **allowed("@.ok.example", 443))
tunnel("@.ok.example", 443, 200, [["tls", "@.ok.example", "1.2"]], ["tls"], name="TLS 1.2", **allowed("@.ok.example",
                                                                                                      443))
tunnel("@.ok.example", 9000, 200, [["echo", "SSH-2.0-x\r\n"]], ["echo"], **allowed("@.ok.example", 9000))
for port in (80, 8080):
    tunnel("@.ok.example", port, 200, [["send", head("/", f"@.ok.example:{port}")], ["reply"]] * 2, ["ok", 200] * 2,
           name=f"requests in a tunnel to port {port}", records=["allowed"] * 3, kinds={"connect", "http"},
           **allowed("@.ok.example", port))
tunnel(OPENED, 9000, 200, [["echo", "hello"]], ["echo"], verdict="allowed", went=[(OPENED, 9000)])
tunnel("@.loose.example", 443, 200, [["echo", "no TLS"]], ["closed"], name="any bytes to a host that is unchecked",
       **allowed("@.loose.example", 443))

# ---- denied: nobody hears of it ----

for host in ("@.evil.example", "evil.example", "ok.example", "@ok.example", "x@-ok.example",
             "@.ok.example.evil.example",
             "ok.example.@.evil.example", "apex.example", "@.only.apex.example.evil.example", "no.tree.example",
             "@.denied.ok.example", "a.@.denied.ok.example", "@.example", "localhost", "@.localhost",
             "metadata.google.internal",
             "@.internal", "xn--bcher-kva.evil.example", "com", "a-very-long-secret-in-a-label-@.evil.example"):
    get(host, 403)
    tunnel(host, 443, 403)
for port in (22, 25, 81, 6379, 9001, 65535):
    get("@.ok.example", 403, port)
for port in (22, 25, 6379, 65535):
    tunnel("@.ok.example", port, 403)
for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"):
    get("@.get.example", 403, method=method)
tunnel("@.get.example", 443, 403, name="a tunnel to where only some methods are allowed")
for path in ("/", "/simplex/", "/other", "/simple/../secret", "/simple/%2e%2e/secret", "/simple//x", "/simple/%2f/x",
             "/x/simple/"):
    get("@.path.example", 403, path=path)

# ---- literals, in every spelling ----

for literal in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.1.1", "172.16.0.1", "0.0.0.0", "198.18.0.1",
                "100.100.100.200", "224.0.0.1", "255.255.255.255", "240.0.0.1", "203.0.113.7", RAW, "45.9.9.10",
                "[::1]", "[::]", "[fe80::1]", "[fd00:ec2::254]", "[2600:45::1]", ):
    tunnel(literal, 443, 403)
for literal in ("127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "0", "017700000001",
                "127.0.0.01",
                "0x7f.0.0.0x1", "256.1.1.1", "1.2.3", "1.2.3.4.5", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
                "[::127.0.0.1]", "[fe80::1%25lo]", "[fe80::1%lo]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::1",
                "::1", "[127.0.0.1]", "[]", "[::1]x",
                "[v1.x]"):
    raw(f"CONNECT {literal}:443", head(f"{literal}:443", "x", "CONNECT"), 400)
    raw(f"GET http://{literal}/", head(f"http://{literal}/", "x"), 400)
# rules name these addresses, and still: they are this machine, or hand out credentials
for literal in ("127.0.0.1", "169.254.169.254"):
    get(literal, 403, name=f"{literal}, which a rule allows")
get("11.0.0.2", 403, verdict="refused", records=["allowed", "refused"], name="11.0.0.2, which a rule allows")

# names and ports that two programs could read in two ways
for host in (b"a b", b"a\tb", b"a\0.ok.example", b"@.ok.example%00.evil.example", b"@.ok.example%2eevil.example",
             b"%6fk.example",
             b"@@@.ok.example", b"user@@@.ok.example", b"user:pw@@@.ok.example", b"@.evil.example#@@.ok.example",
             b"@.evil.example\\@@.ok.example", b"@.ok.example\\.evil.example", b"@.ok.example,evil.example",
             b"b\xc3\xbccher.example", b"\xef\xbd\x8fk.example", b"@..ok.example", b".ok.example", b"-@.ok.example",
             b"@-.ok.example", b"@_x.ok.example", b"*.ok.example", b"x" * 64 + b".ok.example",
             b"a." * 122 + b"ok.example", b"", b".", b"@.ok.example..", b"@.ok.example;", b"@.ok.example'",
             b"$(id).ok.example"):
    raw(f"GET of {host!r}", b"GET http://" + host + b"/ HTTP/1.1\r\nHost: x\r\n\r\n", 400)
for host in (b"a b", b"a\0.ok.example", b"user@@@.ok.example", b"@.ok.example/", b"@.ok.example?",
             b"b\xc3\xbccher.example",
             b"@..ok.example", b"x" * 64 + b".ok.example", b"http://@.ok.example", b"@.ok.example,@.evil.example"):
    raw(f"CONNECT {host!r}", b"CONNECT " + host + b":443 HTTP/1.1\r\nHost: x\r\n\r\n", 400)
for port in ("", "+443", "-443", "0443", "0x1bb", "443x", " 443", "65536", "65979", "0", "4294967739", "443:443",
             "https"):
    raw(f"CONNECT with port {port!r}", f"CONNECT @.ok.example:{port} HTTP/1.1\r\nHost: x\r\n\r\n", 400)
for port in ("+80", "0080", "0x50", "65616", "0", "80:80"):
    raw(f"GET with port {port!r}", f"GET http://@.ok.example:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n", 400)
raw("CONNECT without a port", head("@.ok.example", "x", "CONNECT"), 400)

# other forms of requests
for name, data in {
    "origin form": head("/", "@.ok.example"), "asterisk form": head("*", "@.ok.example", "OPTIONS"),
    "scheme ftp": head("ftp://@.ok.example/", "@.ok.example"), "scheme file": head("file:///etc/passwd",
                                                                                   "@.ok.example"),
    "scheme unix": head("unix:/run/x.sock:/", "@.ok.example"), "scheme http+unix": head("http+unix://%2frun%2fx/", "x"),
    "scheme without slashes": head("http:@.ok.example/", "@.ok.example"), "no scheme": head("//@.ok.example/",
                                                                                            "@.ok.example"),
    "two Hosts": head("http://@.ok.example/", "@.ok.example", more="Host: @.evil.example\r\n"),
    "folded line": head("http://@.ok.example/", "@.ok.example", more="X: a\r\n b\r\n"),
    "space before colon": head("http://@.ok.example/", "@.ok.example", more="X : a\r\n"),
    "bare LF": "GET http://@.ok.example/ HTTP/1.1\nHost: @.ok.example\n\n",
    "bare CR in a value": head("http://@.ok.example/", "@.ok.example", more="X: a\rb\r\n"),
    "NUL in a value": head("http://@.ok.example/", "@.ok.example", more="X: a\0b\r\n"),
    "HTTP/0.9": "GET http://@.ok.example/\r\n\r\n", "HTTP/2.0": "GET http://@.ok.example/ HTTP/2.0\r\nHost: x\r\n\r\n",
    "two spaces": "GET  http://@.ok.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "fragment": head("http://@.ok.example/#x", "@.ok.example"), "control in the path": head("http://@.ok.example/\x01",
                                                                                            "x"),
    "length and chunked": head("http://@.ok.example/", "x", "POST",
                               "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
    "two lengths": head("http://@.ok.example/", "x", "POST", "Content-Length: 4\r\nContent-Length: 5\r\n"),
    "length list": head("http://@.ok.example/", "x", "POST", "Content-Length: 4, 5\r\n"),
    "length with sign": head("http://@.ok.example/", "x", "POST", "Content-Length: +4\r\n"),
    "length in hex": head("http://@.ok.example/", "x", "POST", "Content-Length: 0x4\r\n"),
    "negative length": head("http://@.ok.example/", "x", "POST", "Content-Length: -1\r\n"),
    "coding xchunked": head("http://@.ok.example/", "x", "POST", "Transfer-Encoding: xchunked\r\n"),
    "coding twice": head("http://@.ok.example/", "x", "POST",
                         "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    "coding identity": head("http://@.ok.example/", "x", "POST", "Transfer-Encoding: chunked, identity\r\n"),
    "coding with tab": head("http://@.ok.example/", "x", "POST", "Transfer-Encoding:\x0bchunked\r\n"),
}.items():
    raw(name, data, 400)
raw("TRACE", head("http://@.ok.example/", "@.ok.example", "TRACE"), 400, host="@.ok.example", port=80)
raw("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400)
raw("a TLS hello to the proxy", b"\x16\x03\x01\x00\x05hello" + b"\r\n" * 4, 400)
raw("a header of 70,000 bytes", head("http://@.ok.example/", "x", more=f"X: {'a' * 70000}\r\n"), 400)
raw("too many headers", head("http://@.ok.example/", "x", more="".join(f"X{i}: 1\r\n" for i in range(300))), 400)
raw("a dot at the end of a name", head("http://@.ok.example./", "@.ok.example."), 400)
raw("no path", head("http://@.ok.example", "@.ok.example"), 400)
raw("https in a request to the proxy", head("https://@.ok.example/", "@.ok.example"), 400)

# the request's target says who it is for; Host is written anew
Row("Host of another name", [["proxy"], ["send", head("http://@.ok.example/", "@.evil.example")], ["reply"]],
    ["ok", "ok", lambda got: got[0] == 200 and "evil" not in got[1]], "allowed", "@.ok.example", 80,
    ["@.ok.example"], [(OK, 80)])
Row("fields between us and the client", [["proxy"], ["send", head(
    "http://@.ok.example/", "x",
    more="Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: x-hop\r\n"
    "X-Hop: 1\r\nX-Kept: 1\r\n")], ["reply"]],
    ["ok", "ok", lambda got: got[0] == 200 and [word in got[1].lower() for word in (
        "x-kept", "c2vjcmv0", "x-hop", "proxy-")] == [True, False, False, False]],
    "allowed", "@.ok.example", 80, ["@.ok.example"], [(OK, 80)])
Row("each of two requests is judged", [
    ["proxy"], ["send", head("http://@.ok.example/", "x") + head("http://@.evil.example/", "x")], ["reply"], ["reply"]],
    ["ok", "ok", 200, 403], "denied", "@.evil.example", 80, ["@.ok.example"], [(OK, 80)],
    [("allowed", "@.ok.example"), "denied"])
Row("two requests to two hosts", [
    ["proxy"], ["send", head("http://@.ok.example/", "x") + head("http://@.alias.example/", "x")], ["reply"],
    ["reply"]],
    ["ok", "ok", 200, 200], "allowed", "@.alias.example", 80, ["@.ok.example", "@.alias.example"],
    [(OK, 80), (ALSO, 80)], [("allowed", "@.ok.example"), "allowed"])
Row("a name that leads elsewhere the second time", [
    ["proxy"], ["send", head("http://@.turns.example/", "x") * 2], ["reply"], ["reply"]],
    ["ok", "ok", 200, 403], "refused", "@.turns.example", 80, ["@.turns.example"], [(OK, 80)],
    ["allowed", "allowed", "refused"])
for name, body in {"a chunk size that is no number": "x\r\nabc\r\n0\r\n\r\n", "a negative chunk": "-1\r\n\r\n",
                   "a chunk without its end": "3\r\nabcX\r\n0\r\n\r\n",
                   "a huge chunk": "fffffffffffffffff\r\n"}.items():
    Row(name, [["proxy"], ["send", head("http://@.ok.example/", "x", "POST", "Transfer-Encoding: chunked\r\n") + body],
               ["reply"]], ["ok", "ok", lambda got: got == "closed" or got[0] == 400], "malformed", "@.ok.example", 80,
        ["@.ok.example"], [(OK, 80)])

# ---- where names lead ----

for kind in FORBIDDEN:
    get(f"@.{kind}.bad.example", 403, verdict="refused", looked=[f"@.{kind}.bad.example"])
for kind in ("loopback", "metadata", "private-10", "mapped", "loopback-6", "home"):
    tunnel(f"@.{kind}.bad.example", 443, 403, verdict="refused", looked=[f"@.{kind}.bad.example"])
for host in ("@.mixed.example", "@.last.mixed.example", "@.six.mixed.example", "@.inner.alias.example"):
    get(host, 403, verdict="refused", looked=[host])
for host in ("@.none.example", "@.loop.alias.example"):
    get(host, 502, verdict="unresolved", looked=[host])
get("@.mute.example", 502, verdict="unresolved", looked=["@.mute.example"])

# ---- to 443 nothing goes in clear, unless that host was loosened ----

get("@.ok.example", 400, 443, verdict="malformed")
get("@.ok.example", 400, 443, method="POST", more="Content-Length: 2\r\n", body="hi", verdict="malformed")
get("@.evil.example", 403, 443)
get("@.loose.example", 502, 443, records=["allowed", "unreached"], **allowed("@.loose.example", 443))

# ---- in a tunnel to 443 there is TLS, to the host that was allowed ----

BYTES = {"plain HTTP": head("/", "@.ok.example"), "SSH": "SSH-2.0-OpenSSH_9\r\n", "nothing known": "\0" * 64,
         "TLS of a server": b"\x16\x03\x03\x00\x04\x02\x00\x00\x00", "an alert": b"\x15\x03\x01\x00\x02\x02\x28",
         "a record of SSL 2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + b"\0" * 40}
for name, data in BYTES.items():
    tunnel("@.ok.example", 443, 200, [["send", data], ["end"]], ["ok", "end"], name=f"{name} in a tunnel to 443",
           verdict="malformed", looked=["@.ok.example"], went=[(OK, 443)])
for name, server in {"another name": "@.evil.example", "another allowed name": "other.ok.example", "no name": None,
                     "a name above": "ok.example", "a name below": "x.@.ok.example"}.items():
    tunnel("@.ok.example", 443, 200, [["tls", server]], ["closed"], name=f"TLS to {name}", verdict="misled",
           looked=["@.ok.example"], went=[(OK, 443)])


# ---- what a tunnel to another port carries: a name behind the same address is none of it ----

GOOD, EVIL = head("/", "@.ok.example"), head("/", "@.evil.example")
EMPTY = {name: data for name, data in BYTES.items() if name != "plain HTTP"} | {
    "an empty line before a request": "\r\n" + EVIL, "HTTP/0.9": "GET /\r\n\r\n",
    "a space before a request": " " + EVIL,
    "another protocol before a request": "EHLO x\r\n" + EVIL, "SSH before a request": "SSH-2.0-x\r\n" + EVIL}
REQUESTS = {
    "Host of another name": (EVIL, [403]),
    "a request that looks like SSH": ("SSH-2.0-x / HTTP/1.1\r\nHost: @.evil.example\r\n\r\n", [403]),
    "Host of another port": (head("/", "@.ok.example:81"), [403]),
    "Host of an address": (head("/", RAW), [403]),
    "a second request to another name": (GOOD + EVIL, [200, 403]),
    "a third one": (GOOD
                    + head("/", "@.ok.example", "POST", "Content-Length: 3\r\n") + "abc" + EVIL, [200, 200, 403]),
    "another name behind a body": (head("/", "@.ok.example", "POST", "Transfer-Encoding: chunked\r\n")
                                   + "0\r\n\r\n" + EVIL, [200, 403]),
    "no Host": ("GET / HTTP/1.1\r\n\r\n", [400]),
    "two Hosts": (head("/", "@.ok.example", more="Host: @.evil.example\r\n"), [400]),
    "absolute form": (head("http://@.evil.example/", "@.ok.example"), [400]),
    "CONNECT in a tunnel": (head("@.evil.example:443", "@.ok.example", "CONNECT"), [400]),
}
for port in (80, 8080):
    at = {"looked": ["@.ok.example"], "went": [(OK, port)]}
    for name, (data, statuses) in REQUESTS.items():
        last = {403: "misled", 400: "malformed"}[statuses[-1]]
        tunnel("@.ok.example", port, 200, [["send", data], *[["reply"]] * len(statuses)], ["ok", *statuses],
               verdict=last, name=f"{name} in a tunnel to {port}", records=["allowed"] * len(statuses) + [last],
               kinds={"connect", "http"}, **at)
    for name, data in EMPTY.items():
        if not name.startswith("SSH") or port == 80:
            tunnel("@.ok.example", port, 200, [["send", data], ["end"]], ["ok", "end"],
                   verdict="malformed" if name.startswith("TLS") else "denied",
                   name=f"{name} in a tunnel to {port}", **at)
    tunnel("@.ok.example", port, 200, [["send", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], ["end"]], ["ok", "end"],
           verdict="malformed", name=f"HTTP/2 in a tunnel to {port}", **at)
    for name, server in {"another name": "@.evil.example", "no name": None}.items():
        tunnel("@.ok.example", port, 200, [["tls", server]], ["closed"], name=f"TLS to {name} in a tunnel to {port}",
               verdict="misled", **at)
for name, server in {"another name": "@.evil.example", "no name": None}.items():
    tunnel("@.ok.example", 8443, 200, [["tls", server]], ["closed"], name=f"TLS to {name} in a tunnel to 8443",
           verdict="misled", looked=["@.ok.example"], went=[(OK, 8443)])


# ---- programs that know of no proxy ----


def plain(name, host, port, steps, want, verdict="denied", **row):
    Row(name, [["dial", host, port], *steps], ["ok", *want], verdict, host.lower().rstrip("."), port, **row)


def page(host, port=80, want=200, verdict="denied", **row):
    plain(f"to http://{host}:{port}", host, port, [["send", head("/", host)], ["reply"]], ["ok", want], verdict, **row)


def secure(host, want, port=443, verdict="denied", **row):
    plain(f"to https://{host}:{port}", host, port, [["tls", host]], [want], verdict, **row)


for host, addr in (("@.ok.example", OK), ("a.b.@.ok.example", OK), ("@.six.example", SIX), ("@.alias.example", ALSO),
                   ("tree.example", OK), ("only.apex.example", OK), ("@.admitted.example", ADMITTED),
                   ("@.turns.example", OK)):
    page(host, **allowed(host, 80, addr))
for host, addr in (("@.ok.example", OK), ("@.six.example", SIX), ("@.alias.example", ALSO), ("xn--bcher-kva.example",
                                                                                             OK)):
    secure(host, "tls", **allowed(host, 443, addr))
page("@.ok.example", 8080, records=["allowed"] * 2, kinds={"tcp", "http"}, **allowed("@.ok.example", 8080))
for name, (data, statuses) in REQUESTS.items():
    last = {403: "misled", 400: "malformed"}[statuses[-1]]
    plain(f"{name} on port 8080", "@.ok.example", 8080, [["send", data], *[["reply"]] * len(statuses)],
          ["ok", *statuses], last, looked=["@.ok.example"], went=[(OK, 8080)], kinds={"tcp", "http"},
          records=["allowed"] * len(statuses) + [last])
for name, data in EMPTY.items():
    if not name.startswith("SSH"):
        plain(f"{name} to port 8080", "@.ok.example", 8080, [["send", data], ["end"]], ["ok", "end"],
              "malformed" if name.startswith("TLS") else "denied", looked=["@.ok.example"], went=[(OK, 8080)])
plain("an echo on port 9000", "@.ok.example", 9000, [["echo", "hello"]], ["echo"], **allowed("@.ok.example", 9000))
plain("TLS on port 8443", "@.ok.example", 8443, [["tls", "@.ok.example"]], ["tls"], **allowed("@.ok.example", 8443))
for host in ("@.evil.example", "ok.example", "@ok.example", "@.ok.example.evil.example", "apex.example",
             "no.tree.example",
             "@.denied.ok.example", "metadata.google.internal", "a-very-long-secret-in-a-label-@.evil.example"):
    page(host, want=403)
    secure(host, "closed")
for port in (22, 25, 6379, 9001, 65535):
    plain(f"port {port}", "@.ok.example", port, [["end"]], ["end"])
for kind in ("loopback", "metadata", "private-10", "shared", "mapped", "loopback-6", "unique-6", "home", "home-6",
             "benchmark"):
    page(f"@.{kind}.bad.example", want=403, verdict="refused", looked=[f"@.{kind}.bad.example"])
    secure(f"@.{kind}.bad.example", "closed", verdict="refused", looked=[f"@.{kind}.bad.example"])
for host in ("@.mixed.example", "@.last.mixed.example", "@.six.mixed.example", "@.inner.alias.example"):
    page(host, want=403, verdict="refused", looked=[host])
for method in ("POST", "DELETE"):
    plain(f"{method} where only GET is allowed", "@.get.example", 80, [["send", head("/", "@.get.example", method)],
                                                                       ["reply"]],
          ["ok", 403])
plain("Host of another name", "@.ok.example", 80, [["send", head("/", "@.evil.example")], ["reply"]], ["ok", 403],
      "misled")
plain("absolute form of another name", "@.ok.example", 80, [["send", head("http://@.evil.example/", "x")], ["reply"]],
      ["ok", 400], "malformed")
plain("CONNECT on port 80", "@.ok.example", 80, [["send", head("@.evil.example:443", "x", "CONNECT")], ["reply"]],
      ["ok", 400], "malformed")
for name, data in BYTES.items():
    if name != "plain HTTP":
        plain(f"{name} to port 443", "@.ok.example", 443, [["send", data], ["end"]], ["ok", "end"], "malformed")
for name, server in {"another name": "@.evil.example", "another allowed name": "other.ok.example",
                     "no name": None}.items():
    plain(f"TLS to {name}, without a proxy", "@.ok.example", 443, [["tls", server]], ["closed"], "misled")



def closed_or_403(got):
    return got == "closed" or got[0] == 403


# addresses: only those of an operator's rule
for address in (RAW, "8.8.8.8", "10.0.0.1", "169.254.169.254", "192.168.1.1", "11.0.0.2", "45.9.9.10", "198.18.77.77"):
    for port in (80, 443, 9000):
        steps, want = {80: ([["send", head("/", address)], ["reply"]], ["ok", closed_or_403]),
                       443: ([["tls", "@.ok.example"]], ["closed"]), 9000: ([["end"]], ["end"])}[port]
        own, ours = address == "11.0.0.2", address == "198.18.77.77"  # this machine; an address that stands for no name
        verdict = "misled" if port == 443 and not ours else "refused" if own else "denied"
        Row(f"address {address}:{port}", [["dial", address, port], *steps], ["ok", *want], verdict, address, port,
            records=["allowed", "refused"] if verdict == "refused" else None)
page(OPENED, verdict="allowed", went=[(OPENED, 80)])
plain("an address of a rule, port 9000", OPENED, 9000, [["echo", "hello"]], ["echo"], "allowed", went=[(OPENED, 9000)])
Row("the world by IPv6", [["dial", "2600:45::1", 80]], [lambda got: got != "ok"])

# ---- what is not TCP ----

QUIC = pack(b"\xc0\0\0\0\1" + b"\0" * 1195)
for host, port in (("8.8.8.8", 443), (RAW, 443), ("@.ok.example", 443), (RAW, 123), ("10.0.0.1", 161), ("224.0.0.251",
                                                                                                        5353),
                   ("255.255.255.255", 67), ("2600:45::1", 443)):
    Row(f"UDP to {host}:{port}", [["datagram", host, port, QUIC]], [lambda got: got in (
        "refused", "unreachable", "forbidden", "silent")])
for name, args in {"ICMP": ["AF_INET", "SOCK_DGRAM", 1], "raw ICMP": ["AF_INET", "SOCK_RAW", 1], "raw IP": ["AF_INET",
                                                                                                            "SOCK_RAW",
                                                                                                            255],
                   "SCTP": ["AF_INET", "SOCK_STREAM", 132], "MPTCP": ["AF_INET", "SOCK_STREAM", 262],
                   "packets": ["AF_PACKET", "SOCK_RAW", 0], "vsock": ["AF_VSOCK", "SOCK_STREAM", 0]}.items():
    Row(f"a socket for {name}", [["make", *args]], [lambda got: got in ("refused", "unreachable", "forbidden",
                                                                        "silent")])

# ---- names are answered here, and nowhere else ----


def query(name, kind=1, count=1, flags=0x0100):
    question = name_bytes(name) + struct.pack("!HH", kind, 1)
    return pack(struct.pack("!HHHHHH", 7, flags, count, 0, 0, 0) + question * count)


def ours(got):
    return got[0] == 0 and len(got[1]) == 1 and got[1][0][:4] in ("c612", "c613")


def empty(got):
    return got[1] == [] and got[0] in (0, 4)


for server in ("198.18.0.1", "8.8.8.8", "1.1.1.1", RAW, "10.0.0.2", "169.254.169.253"):
    Row(f"a question to {server}", [["dns", server, query("quiet.evil.example")]], [ours])
    Row(f"a question to {server} by TCP", [["dns", server, query("quiet.evil.example"), True]], [ours])
for name in ("quiet.ok.example", "exfil-0123456789abcdef.evil.example", "x" * 63 + "." + "y" * 63 + ".evil.example",
             "localhost.evil.example"):
    Row(f"a question for {name[:30]}", [["dns", "198.18.0.1", query(name)]], [ours])
for name, kind in {"AAAA": 28, "TXT": 16, "MX": 15, "NULL": 10, "ANY": 255, "SRV": 33, "HTTPS": 65, "CNAME": 5, "NS": 2,
                   "PTR": 12,
                   "AXFR": 252}.items():
    Row(f"a question for {name}", [["dns", "198.18.0.1", query("quiet.ok.example", kind)]], [empty])
Row("two questions in one", [["dns", "198.18.0.1", query("quiet.ok.example", 1, 2)]],
    [lambda got: got == "silent" or got[1] == []])
Row("an update", [["dns", "198.18.0.1", query("quiet.ok.example", 1, 1, 0x2800)]],
    [lambda got: got == "silent" or got[1] == []])
Row("an answer as a question", [["dns", "198.18.0.1", query("quiet.ok.example", 1, 1, 0x8100)]], [
    lambda got: got == "silent" or got[1] == []])
Row("half a question", [["dns", "198.18.0.1", pack(b"\0\7\1\0\0\1\0\0\0\0\0\0\3abc")]],
    [lambda got: got == "silent" or got[1] == []])

# ---- the one thing that is here for them ----

Row("atoll.internal through the proxy", [["proxy"], ["send", head("http://atoll.internal/", "atoll.internal")],
                                         ["reply"]],
    ["ok", "ok", 200])
Row("atoll.internal without it", [["dial", "atoll.internal", 80], ["send", head("/", "atoll.internal")], ["reply"]],
    ["ok", "ok", 200])
Row("atoll.internal by TLS", [["dial", "atoll.internal", 443], ["tls", "atoll.internal"]], ["ok", "closed"])
tunnel("atoll.internal", 443, 403)

# ---- what was to be covered, and by which rows ----

CLASSES = {
    "rebinding": ("turns.example", "leads elsewhere"), "mixed answers": ("mixed.example",),
    "CNAMEs": ("alias.example",),
    "literals": ("127.1", "2130706433", "0x7f", "0177", "::ffff", "64:ff9b", "[fe80::1%"),
    "fronting": ("TLS to another name", "TLS to another allowed name", "TLS to no name", "Host of another name"),
    "smuggling": ("length and chunked", "two lengths", "coding", "chunk", "bare LF", "folded", "each of two requests"),
    "odd ports": ("with port", ":6379", ":65535", "port 22"), "IDN": ("xn--bcher-kva", "b\\xc3\\xbccher"),
    "QUIC and UDP": ("UDP to",), "ICMP": ("ICMP",), "raw IP": ("raw IP", "packets", "SCTP"),
    "addresses": ("address ",), "DNS as a channel": ("a question", "exfil", "secret-in-a-label"),
}
