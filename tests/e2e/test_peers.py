"""Other people's clients against the http room: node's http2, `ws`, @grpc/grpc-js, grpcio, websockets,
curl, nghttp and h2load, over plain TCP and TLS.

The server is build/testd (tests/peers/testd.c). The node scripts print one line per check; each is a
test here, named by the script's own words.
"""
import asyncio
import os
import re
import signal
import subprocess
import time

import grpc
import pytest
import websockets

import harness

PEERS = harness.ROOT / "tests" / "peers"
SCRIPTS = ["ws", "http2", "grpc"]


def checks_of(script):
    return re.findall(r'^ *check\("([^"]+)"', (PEERS / f"{script}.mjs").read_text(), re.M)


class Testd:
    """build/testd on a free port; must end by itself after SIGTERM, with status 0."""
    __test__ = False

    def __init__(self, *pem):
        self.process = subprocess.Popen([harness.BUILD / "testd", "127.0.0.1:0", *pem], text=True,
                                        stdout=subprocess.PIPE)
        self.address = self.process.stdout.readline().split()[1]
        self.url = ("https://" if pem else "http://") + self.address

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=15 * harness.SLOW)
        assert self.process.returncode == 0
        return out


@pytest.fixture(scope="session")
def testd():
    server = Testd()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def pem(tmp_path_factory):
    where = tmp_path_factory.mktemp("tls")
    cert, key = where / "cert.pem", where / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, stderr=subprocess.DEVNULL)
    return str(cert), str(key)


@pytest.fixture(scope="session")
def testd_tls(pem):
    server = Testd(*pem)
    yield server
    server.stop()


def run_script(script, *args):
    result = subprocess.run(["node", f"{script}.mjs", *args], cwd=PEERS, text=True, timeout=150 * harness.SLOW,
                            stdout=subprocess.PIPE,
                            env={**os.environ, "NODE_NO_WARNINGS": "1", "SLOW": str(harness.SLOW)})
    lines = [line for line in result.stdout.splitlines() if line.startswith(("ok ", "not ok "))]
    assert lines, result.stdout
    return lines


@pytest.fixture(scope="session")
def results(node_modules, testd):
    """Lines of each script, run when first asked for."""
    done = {}

    def lines(script):
        if script not in done:
            done[script] = run_script(script, testd.address)
        return done[script]

    return lines


@pytest.mark.timeout(200)
@pytest.mark.parametrize("script,check", [(s, c) for s in SCRIPTS for c in checks_of(s)])
def test_node(results, script, check):
    assert f"ok {check}" in results(script), \
        [line for line in results(script) if check in line] or "the check did not run"


@pytest.mark.timeout(200)
@pytest.mark.parametrize("script", ["http2", "grpc"])
def test_node_over_tls(node_modules, testd_tls, pem, script):
    lines = run_script(script, testd_tls.address, "tls", pem[0])
    assert [line for line in lines if not line.startswith("ok ")] == []
    assert len(lines) >= 10


# ---- grpcio ----

def method(channel, name, kind="unary_unary"):
    same = lambda data: data
    return getattr(channel, kind)(f"/test.Echo/{name}", same, same)


@pytest.fixture
def channel(testd):
    with grpc.insecure_channel(testd.address) as channel:
        yield channel


def test_grpcio_unary(channel):
    assert method(channel, "Unary")(b"hello", timeout=10 * harness.SLOW) == b"hello"
    calls = [method(channel, "Unary").future(os.urandom(i * 50), timeout=10 * harness.SLOW) for i in range(200)]
    assert [len(call.result()) for call in calls] == [i * 50 for i in range(200)]


def test_grpcio_streams(channel):
    numbers = method(channel, "Count", "unary_stream")(b"5000", timeout=20 * harness.SLOW)
    assert list(numbers) == [b"%d" % i for i in range(5000)]
    chat = method(channel, "Chat", "stream_stream")
    sent = [os.urandom(60000) for _ in range(50)]
    assert list(chat(iter(sent), timeout=20 * harness.SLOW)) == sent
    assert method(channel, "Collect", "stream_unary")(iter([b"a", b"", b"b"]), timeout=10 * harness.SLOW) == b"ab"


@pytest.mark.parametrize("name,message,code", [
    ("Fail", b"9 not now", grpc.StatusCode.FAILED_PRECONDITION),
    ("Wait", b"", grpc.StatusCode.DEADLINE_EXCEEDED),
    ("Nowhere", b"", grpc.StatusCode.UNIMPLEMENTED),
    ("Unary", b"x" * 4194305, grpc.StatusCode.RESOURCE_EXHAUSTED),
])
def test_grpcio_errors(channel, name, message, code):
    with pytest.raises(grpc.RpcError) as caught:
        method(channel, name)(message, timeout=0.3 if name == "Wait" else 10)
    assert caught.value.code() == code


def test_grpcio_cancel_reaches_the_handler():
    server = Testd()
    with grpc.insecure_channel(server.address) as channel:
        call = method(channel, "Wait").future(b"")
        time.sleep(0.3)
        call.cancel()
        time.sleep(0.3)
    assert "grpc cancelled" in server.stop()


# ---- websockets ----

def test_websockets_client(testd):
    async def talk():
        async with websockets.connect(f"ws://{testd.address}/ws", max_size=None) as ws:
            for data in ["text", b"bytes", "x" * 100000, b""]:
                await ws.send(data)
                assert await ws.recv() == data
            await ws.send(iter(["in ", "frag", "ments"]))
            assert await ws.recv() == "in fragments"
            await asyncio.wait_for(await ws.ping(), 5)
        assert ws.close_code == 1000

    asyncio.run(talk())


def test_websocket_peer_that_vanishes_is_1006():
    server = Testd()

    async def talk():
        ws = await websockets.connect(f"ws://{server.address}/ws")
        ws.transport.abort()
        await asyncio.sleep(0.3)

    asyncio.run(talk())
    assert "ws closed 1006" in server.stop()


# ---- tools ----

def run(*command):
    result = subprocess.run([str(c) for c in command], timeout=50, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_curl(testd, tmp_path):
    h2 = ["curl", "-sS", "--http2-prior-knowledge", "-w", "\n%{http_version} %{http_code}"]
    assert run(*h2, f"{testd.url}/hello") == b"hello\n\n2 200"
    data = tmp_path / "data"
    data.write_bytes(os.urandom(3000000))
    back = tmp_path / "back"
    run(*h2, "--data-binary", f"@{data}", "-o", back, f"{testd.url}/echo")
    assert back.read_bytes() == data.read_bytes()
    assert run(*h2, "-o", "/dev/null", "--data-binary", f"@{data}", f"{testd.url}/all") == b"\n2 413"
    assert run(*h2, "-H", "Expect: 100-continue", "-d", "body", f"{testd.url}/all") == b"body\n2 200"


def test_curl_alpn(testd_tls):
    for version, option in (("2", "--http2"), ("1.1", "--http1.1")):
        out = run("curl", "-sSk", option, "-w", "%{http_version}", f"{testd_tls.url}/hello")
        assert out == b"hello\n" + version.encode()


def test_nghttp(testd):
    out = run("nghttp", "-v", "-n", "-m", "20", f"{testd.url}/trailers")
    assert out.count(b"x-sum: 42") == 20
    assert b"GOAWAY" not in re.sub(rb"send GOAWAY", b"", out)


@pytest.mark.parametrize("path,extra", [
    ("/hello", []),
    ("/test.Echo/Unary",
     ["-d", "MESSAGE", "-H", "content-type: application/grpc", "-H", "te: trailers"]),
])
def test_h2load(testd, tmp_path, path, extra):
    message = tmp_path / "message"
    message.write_bytes(b"\0\0\0\0\x64" + b"x" * 100)
    extra = [str(message) if e == "MESSAGE" else e for e in extra]
    out = run("h2load", "-n", "20000", "-c", "8", "-m", "50", *extra, testd.url + path)
    assert b"20000 succeeded, 0 failed, 0 errored, 0 timeout" in out
    assert b"20000 2xx" in out


def test_drain_lets_a_download_finish():
    server = Testd()
    curl = subprocess.Popen(["curl", "-sS", "--http2-prior-knowledge", "--limit-rate", "8M",
                             f"{server.url}/bytes?10000000"], stdout=subprocess.PIPE, bufsize=0)
    first = curl.stdout.read(100000)
    server.process.send_signal(signal.SIGTERM)
    rest, _ = curl.communicate(timeout=30)
    assert curl.returncode == 0 and len(first) + len(rest) == 10000000
    server.stop()
