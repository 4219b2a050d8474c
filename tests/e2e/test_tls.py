"""TLS by configuration: one more listener, HTTP/1.1 and HTTP/2 by ALPN, old versions refused."""
import json
import shutil
import socket
import ssl
import subprocess

import harness
import pytest
from agents import Client


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate and its key, as an operator would make them."""
    where = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", where / "key.pem", "-out", where / "cert.pem", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    (where / "key.pem").chmod(0o600)
    return where


@pytest.fixture(scope="session")
def tls_server(certificate):
    server = harness.Server(tls=True, env={"ATOLL_TLS_CERT": str(certificate / "cert.pem"),
                                           "ATOLL_TLS_KEY": str(certificate / "key.pem")}).start()
    yield server
    server.stop()


def curl(server, certificate, *args, path="/api/v1/whoami"):
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "10", "--cacert", certificate / "cert.pem", "-H",
         f"Authorization: Bearer {server.token}",
         *args, server.url + path], capture_output=True, text=True)
    return done


def test_https_with_a_real_client(tls_server, certificate):
    done = curl(tls_server, certificate)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["role"] == "admin"


@pytest.mark.parametrize("flag,version", [("--http1.1", "1.1"), ("--http2", "2")])
def test_alpn_chooses_the_version(tls_server, certificate, flag, version):
    done = curl(tls_server, certificate, flag, "-o", "/dev/null", "-w", "%{http_version} %{http_code}")
    assert done.stdout == f"{version} 200", done


def test_streams_over_tls(tls_server):
    with tls_server.sse() as stream:
        stream.next(0.3)
        number = tls_server.post("/api/v1/notes", {"text": "over tls"}).json()["seq"]
        assert int(stream.take(1)[0]["id"]) == number


def test_a_large_body_over_tls(tls_server):
    text = json.dumps({"text": "x" * 4000, "note": "y" * 4000}).encode() + b" " * 1000000
    reply = tls_server.request("POST", "/api/v1/echo", body=text, headers={"Content-Type": "application/json"})
    assert reply.status == 200 and reply.json()["note"] == "y" * 4000


def test_events_over_http2_and_tls(tls_server, certificate):
    tls_server.post("/api/v1/notes", {"text": "x"})
    done = subprocess.run(
        ["curl", "-sSN", "--max-time", "2", "--http2", "--cacert", certificate / "cert.pem", "-H",
         f"Authorization: Bearer {tls_server.token}", "-H", "Accept: text/event-stream",
         tls_server.url + "/events?since=0"],
        capture_output=True, text=True)
    assert done.returncode == 28, done.stderr  # still open when curl's time was over
    assert "retry: " in done.stdout and "event: note.created" in done.stdout


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_are_refused(tls_server, version):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    with socket.create_connection(("127.0.0.1", tls_server.port)) as sock:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(sock)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_current_versions_work(tls_server, version):
    context = harness.client_tls()
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    with socket.create_connection(("127.0.0.1", tls_server.port)) as sock:
        with context.wrap_socket(sock) as secure:
            assert secure.version().replace(".", "_") == version


def test_the_cookie_is_secure_under_tls(tls_server):
    code = tls_server.post("/api/v1/login-links").json()["url_path"].split("login=")[1]
    cookie = tls_server.post("/login", {"code": code}, token=None).headers["set-cookie"]
    assert {"Secure", "HttpOnly", "SameSite=Strict"} <= {part.strip() for part in cookie.split(";")}


def test_an_http_origin_is_foreign_under_tls(tls_server):
    reply = tls_server.get("/api/v1/whoami", headers={"Origin": f"http://{tls_server.host}"})
    assert reply.status == 403
    assert tls_server.get("/api/v1/whoami", headers={"Origin": f"https://{tls_server.host}"}).status == 200


def test_plain_http_on_the_same_port_is_told_to_use_https(tls_server):
    with socket.create_connection(("127.0.0.1", tls_server.port)) as sock:
        sock.sendall(f"GET /healthz HTTP/1.1\r\nHost: {tls_server.host}\r\n\r\n".encode())
        reply = harness.read_all(sock)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert json.loads(reply.split(b"\r\n\r\n")[1])["error"] == {
        "code": "invalid", "reason": None, "message": "this address speaks TLS: use https://", "field": None,
        "request_id": None}


def test_garbage_instead_of_a_handshake(tls_server):
    for data in (b"\x16\x03\x01\x00\x05hello", b"\x16" * 500, b"\x80\x2e\x01\x00\x02",
                 b"\x16\x03\x01\xff\xff" + b"x" * 70000):
        with socket.create_connection(("127.0.0.1", tls_server.port)) as sock:
            try:
                sock.sendall(data)
            except OSError:
                pass
            harness.read_all(sock, 2)
    assert tls_server.get("/api/v1/whoami").status == 200


def test_a_missing_key_refuses_to_start(certificate, tmp_path):
    shutil.copy(certificate / "cert.pem", tmp_path)
    server = harness.Server(tls=True, env={"ATOLL_TLS_CERT": str(tmp_path / "cert.pem"),
                                           "ATOLL_TLS_KEY": str(tmp_path / "no-such-key.pem")})
    server.start(ready=False)
    assert server.process.wait(15) != 0
    assert "no-such-key.pem" in server.log()
    server.stop(check=False)


def test_an_agent_links_over_tls_and_checks_the_certificate(tls_server, certificate, tmp_path):
    secret = tls_server.post("/api/v1/secrets", {"agent_id": "over-tls"}).json()["secret"]
    trusting = Client(tls_server, "over-tls", secret, tmp_path).start(wait=False)  # no authority we know
    harness.wait_until(lambda: "certificate" in trusting.log(), 15, "the refusal")
    assert not trusting.connected()
    assert trusting.stop() == 0
    client = Client(tls_server, "over-tls", secret, tmp_path, ATOLL_CA=str(certificate / "cert.pem")).start()
    done = tls_server.post("/api/v1/agents/over-tls/commands?wait=15000", {"command": "echo"}, timeout=20).json()
    assert (done["exit_code"], done["stdout_bytes"]) == (0, 1)
    assert client.stop() == 0
