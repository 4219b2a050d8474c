"""`atoll proxy`: signed tokens of agentbox's kind, in the closed world. Who has none gets 407 and nothing else
happens; what a token allows is reached, by the clients that agentbox's sandboxes have."""
import base64
import hashlib
import hmac
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import time

import harness
import pytest
import world
from harness import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

KEY = "dev-secret"
VECTOR = (
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJzYW5kYm94LWVncmVzcy1jb250cm9sIiwic2Vzc2lvbl9pZCI6InMxIiwid"
    "GVuYW50X2lkIjpudWxsLCJhbGxvd2VkX2hvc3RzIjoicHlwaS5vcmcsKi5leGFtcGxlLmNvbSIsImV4cCI6NDEwMjQ0NDgwMH0."
    "EsMTb7HrNkVNvNDR2K3wUkhbA6nEdxaMd0jiWlQ7qE0")
HOSTS = "pkg.test,*.example.com,inner.example,mixed.example,build.example:8080,echo.example:9000/raw"


def part(value):
    data = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(key=KEY, head=None, hosts=HOSTS, ttl=3600, **claims):
    """As agentbox makes them: this order, compact JSON, no padding."""
    body = {"iss": "sandbox-egress-control", "session_id": "s1", "tenant_id": None, "allowed_hosts": hosts,
            "exp": int(time.time()) + ttl, **claims}
    text = part(head or {"typ": "JWT", "alg": "HS256"}) + "." + part(body)
    return text + "." + part(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest())


class Proxy:
    def __init__(self, here, *args, key=KEY):
        self.log_path = pathlib.Path(here.directory) / "proxy.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [harness.BIN, "proxy", "--token-key", "env:SIGNING_KEY", "--listen", "127.0.0.1:0",
                 "--resolver", world.RESOLVER, *args], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "SIGNING_KEY": key})
        found = wait_until(lambda: re.search(r"listen=127\.0\.0\.1:(\d+)", self.log()), harness.READY_SECONDS,
                           "the proxy")
        self.port = int(found.group(1))

    def log(self):
        return self.log_path.read_text("utf-8", "replace")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def ask(self, text, count=1):
        """The replies to raw bytes."""
        with self.connect() as sock:
            sock.sendall(text.encode("latin-1"))
            return [harness.read_reply(sock) for _ in range(count)]

    def status(self, target="http://pkg.test/", credentials=None, method="GET"):
        lines = "".join(f"Proxy-Authorization: {c}\r\n" for c in ([credentials] if isinstance(credentials, str)
                                                                     else credentials or []))
        return self.ask(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n")[0].status

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(harness.STOP_SECONDS) == 0, self.log()


def bearer(text):
    return "Bearer " + text


def basic(text, user="sandbox"):
    return "Basic " + base64.b64encode(f"{user}:jwt_{text}".encode()).decode()


@pytest.fixture(scope="module")
def here():
    with world.World() as made:
        made.zone.update({"pkg.test": ["45.1.0.1"], "*.example.com": ["45.1.0.2"], "example.com": ["45.1.0.2"],
                          "inner.example": ["10.0.0.1"], "mixed.example": ["45.1.0.1", "127.0.0.1"],
                          "build.example": ["45.1.0.3"], "echo.example": ["45.1.0.4"], "evil.example": ["45.6.6.6"]})
        yield made


@pytest.fixture(scope="module")
def proxy(here):
    made = Proxy(here)
    yield made
    made.stop()


@pytest.fixture
def quiet(here):
    """Nothing of what the test does may be heard outside."""
    here.settle()
    before = len(here.lookups), len(here.packets)
    yield
    here.settle()
    assert (here.lookups[before[0]:], here.packets[before[1]:]) == ([], [])


@pytest.mark.parametrize("make", [bearer, basic, lambda t: "bearer jwt_" + t, lambda t: basic(t, "anybody")])
def test_a_token_opens_its_hosts(proxy, here, make):
    assert proxy.status("http://pkg.test/simple/", make(token())) == 200
    assert here.requests[-1].address == "45.1.0.1" and here.requests[-1].field("Proxy-Authorization") is None
    assert proxy.status("http://a.example.com/", make(token(hosts=["*.example.com"]))) == 200


def test_the_vector_of_the_specification(proxy, here, quiet):
    """It is good until 2100, which is longer than is allowed unless the operator says so."""
    assert proxy.status(credentials=bearer(VECTOR)) == 407


def test_the_vector_where_long_lives_are_allowed(here):
    long_lived = Proxy(here, "--max-life", "36500d")
    assert long_lived.status("http://a.example.com/", basic(VECTOR)) == 200
    assert long_lived.status("http://example.com/", basic(VECTOR)) == 200
    assert long_lived.status("http://evil.example/", basic(VECTOR)) == 403
    long_lived.stop()


@pytest.mark.parametrize("target,status", [
    ("http://pkg.test/", 200), ("http://Pkg.Test/", 200), ("http://example.com/", 200), ("http://a.b.example.com/",
                                                                                         200),
    ("http://build.example:8080/", 200), ("http://www.pkg.test/", 403), ("http://xpkg.test/", 403),
    ("http://badexample.com/", 403),
    ("http://pkg.test:8080/", 403), ("http://build.example/", 403), ("http://github.com/", 403),
    ("http://kit.test/", 403),
    ("http://10.0.0.1/", 403), ("http://169.254.169.254/", 403), ("http://127.0.0.1/", 403), ("http://inner.example/",
                                                                                              403),
    ("http://mixed.example/", 403), ("http://127.1/", 400), ("/", 400), ("ftp://pkg.test/", 400)])
def test_hosts(proxy, here, target, status):
    before = len(here.packets)
    assert proxy.status(target, bearer(token())) == status
    here.settle()
    assert len(here.packets) == before + (status == 200)


BAD = {
    "none": None, "empty": "", "no scheme": token(), "another scheme": "Digest " + token(), "no token": "Bearer ",
    "forged": bearer(token("other-key")), "no key": bearer(token("")), "expired": bearer(token(ttl=-1)),
    "alg none": bearer(token(head={"typ": "JWT", "alg": "none"})), "alg HS512": bearer(token(head={"alg": "HS512"})),
    "alg RS256": bearer(token(head={"alg": "RS256"})), "no alg": bearer(token(head={"typ": "JWT"})),
    "crit": bearer(token(head={"alg": "HS256", "crit": ["exp"]})), "too long a life": bearer(token(ttl=86400 + 600)),
    "no end": bearer(token(exp=None)), "not yet": bearer(token(nbf=int(time.time()) + 600)),
    "another issuer": bearer(token(iss="somebody")), "another audience": bearer(token(aud="somebody")),
    "no hosts": bearer(token(hosts=None)), "hosts of numbers": bearer(token(hosts=[1])),
    "unsigned": bearer(token().rsplit(".", 1)[0] + "."), "cut": bearer(token()[:-2]),
    "four parts": bearer(token() + ".x"),
    "padding": bearer(token() + "="),
    "password without jwt_": "Basic " + base64.b64encode(b"sandbox:" + token().encode()).decode(),
    "two": [bearer(token()), bearer(token())], "a good and a bad one": [bearer(token()), bearer(token("x"))],
}


@pytest.mark.parametrize("name", BAD)
def test_any_other_token_is_407_and_nobody_hears_of_it(proxy, quiet, name):
    for target in ("http://pkg.test/", "http://github.com/", "http://evil.example/"):
        assert proxy.status(target, BAD[name]) == 407
    assert proxy.status("pkg.test:443", BAD[name], "CONNECT") == 407


def test_an_empty_list_allows_nothing(proxy, quiet):
    for hosts in ("", [], "*", "10.0.0.1,0.0.0.0/0"):
        assert proxy.status("http://pkg.test/", bearer(token(hosts=hosts))) == 403


def test_each_request_is_judged_by_its_own_token(proxy, here):
    def request(host, credentials):
        return f"GET http://{host}/ HTTP/1.1\r\nHost: x\r\n" + (
            f"Proxy-Authorization: {credentials}\r\n" if credentials else "") + "\r\n"

    one, other = bearer(token(hosts="pkg.test")), bearer(token(hosts="example.com", session_id="s2"))
    replies = proxy.ask(request("pkg.test", one) + request("example.com", other) + request("pkg.test", other), 3)
    assert [r.status for r in replies] == [200, 200, 403]
    replies = proxy.ask(request("pkg.test", one) + request("pkg.test", None), 2)
    assert [r.status for r in replies] == [200, 407]


def test_a_tunnel_is_what_it_was_asked_for(proxy, here):
    def tunnel(name):
        sock = proxy.connect()
        sock.sendall(f"CONNECT pkg.test:443 HTTP/1.1\r\nProxy-Authorization: {basic(token())}\r\n\r\n".encode())
        assert harness.read_reply(sock).status == 200
        context = ssl.create_default_context(cafile=here.authority.path)
        context.check_hostname = name == "pkg.test"
        return context.wrap_socket(sock, server_hostname=name)

    with tunnel("pkg.test") as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: pkg.test\r\n\r\n")
        assert harness.read_reply(sock).json()["tls"] == "pkg.test"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tunnel("evil.example")


def test_a_tunnel_ends_with_its_token(proxy):
    with proxy.connect() as sock:
        text = bearer(token(ttl=2))
        sock.sendall(f"CONNECT echo.example:9000 HTTP/1.1\r\nProxy-Authorization: {text}\r\n\r\n".encode())
        assert harness.read_reply(sock).status == 200
        sock.sendall(b"still")
        assert sock.recv(16) == b"still"
        sock.settimeout(10 * harness.SLOW)
        assert sock.recv(16) == b""


def test_its_clients(proxy, here):
    """curl, Python and git take the URL that agentbox puts into the environment."""
    url = f"http://sandbox:jwt_{token()}@127.0.0.1:{proxy.port}"
    env = {"PATH": os.environ["PATH"], "HTTP_PROXY": url, "HTTPS_PROXY": url, "http_proxy": url, "https_proxy": url,
           "SSL_CERT_FILE": str(here.authority.path), "CURL_CA_BUNDLE": str(here.authority.path)}
    python = "import urllib.request as u; print(u.urlopen('https://pkg.test/x').status)"
    for argv, want in ((["curl", "-sS", "https://pkg.test/x"], '"tls": "pkg.test"'),
                       (["curl", "-sS", "http://a.example.com/x"], '"address": "45.1.0.2"'),
                       (["/usr/bin/python3", "-c", python], "200")):
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30)
        assert want in done.stdout, done
    done = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_connect}", "https://evil.example/"], env=env,
                          capture_output=True, text=True, timeout=30)
    assert done.stdout == "403" and done.returncode != 0


def test_decisions_are_in_the_log_and_tokens_are_not(proxy):
    text = token(session_id="for-the-log")
    assert proxy.status("http://pkg.test/", bearer(text)) == 200
    assert proxy.status("http://evil.example/", bearer(text)) == 403
    wait_until(lambda: "flow ended" in proxy.log(), 5, "the end of the flow")
    lines = [line for line in proxy.log().splitlines() if "for-the-log" in line]
    assert any("allowed" in line and "pkg.test" in line for line in lines), lines
    assert any("denied" in line and "evil.example" in line for line in lines), lines
    assert text not in proxy.log() and text.split(".")[2] not in proxy.log() and KEY not in proxy.log()


def test_the_process_is_in_a_jail_and_its_environment_has_no_key(proxy):
    status = harness.proc_status(proxy.process.pid)
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    assert KEY.encode() not in pathlib.Path(f"/proc/{proxy.process.pid}/environ").read_bytes()


@pytest.mark.parametrize("args,status", [
    ([], 64), (["--token-key", "/nowhere/key"], 1), (["--token-key", "env:NOT_THERE"], None),
    (["--token-key", "KEYFILE", "--resolver", "name.example"], None), (["--token-key", "KEYFILE", "--max-life", "x"],
                                                                       64)])
def test_mistakes_are_told(tmp_path, args, status):
    (tmp_path / "key").write_text("k" * 32)
    argv = [str(tmp_path / "key") if a == "KEYFILE" else a for a in args]
    done = subprocess.run([harness.BIN, "proxy", *argv], capture_output=True, text=True, timeout=20)
    assert done.returncode == status if status else done.returncode not in (0, None), done
    assert "atoll" in done.stderr or "error" in done.stderr, done


def test_a_key_file(here, tmp_path):
    (tmp_path / "key").write_text(KEY + "\n")
    made = Proxy(here, "--token-key", str(tmp_path / "key"), key="not this one")
    assert made.status(credentials=bearer(token())) == 200
    made.stop()
