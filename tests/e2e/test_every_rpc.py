"""Every method of every service in proto/, by every client library: a method without a line in CALLS, or a line
that does not call its method, fails for each of them."""
import base64
import os
import uuid

import pytest

import rpc
from agents import Client

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
REFLECTION, HEALTH = "grpc.reflection.v1.ServerReflection", "grpc.health.v1.Health"
AGENTS = "agentic.sandbox.v1.AgentService"
# fetch sends a request whole or not at all, so no browser has streams of requests; the same by hand is below.
NO_STREAMS_IN = [t for t in rpc.TRANSPORTS if t.startswith("connect-web")]


def methods():
    """Every method of proto/, as the server's own descriptors have them."""
    files = rpc.descriptor_pb2.FileDescriptorSet.FromString(rpc.DESCRIPTORS.read_bytes())
    return {(f"{file.package}.{service.name}", method.name): method
            for file in files.file for service in file.service for method in service.method}


METHODS = methods()


class Noting:
    """A client that knows which methods were called through it."""

    def __init__(self, client):
        self.client, self.name, self.called = client, client.name, set()

    def call(self, method, fields=None, service=rpc.SANDBOX, **options):
        self.called.add((service, method))
        return self.client.call(method, fields, service=service, **options)


@pytest.fixture(scope="module", params=rpc.TRANSPORTS)
def client(request, server, node_modules):
    found = rpc.open_transport(server, request.param)
    yield found
    found.close()


@pytest.fixture(scope="module")
def session(client):
    name = f"every-{client.name}"
    yield client.call("CreateSession", {"sessionId": name}).ok["session"]["sessionId"]
    assert client.call("DestroySession", {"sessionId": name}).ok == {"success": True}


@pytest.fixture(scope="module")
def agent(server, tmp_path_factory):
    """`atoll agent-client`, on which commands can be run."""
    secret = server.post("/api/v1/secrets", {"agent_id": "every"}).json()["secret"]
    client = Client(server, "every", secret, tmp_path_factory.mktemp("agent")).start()
    yield client.agent
    assert client.stop() == 0, client.log()


@pytest.fixture
def world(server, session, agent):
    return {"server": server, "session": session, "agent": agent}


# ---- a line for each method ----

def create(box, world):
    name = f"made-{box.name}"
    assert box.call("CreateSession", {"sessionId": name}).ok["session"]["status"] == "running"
    assert box.call("DestroySession", {"sessionId": name}).ok == {"success": True}


def destroy(box, world):
    assert box.call("DestroySession", {"sessionId": "nobody"}).ok == {}


def get(box, world):
    assert box.call("GetSession", {"sessionId": world["session"]}).ok["session"]["sessionId"] == world["session"]


def listed(box, world):
    assert world["session"] in [s["sessionId"] for s in box.call("ListSessions").ok["sessions"]]


def execute(box, world):
    got = box.call("Exec", {"sessionId": world["session"], "command": "echo out; echo err >&2; exit 5"}).ok
    assert (got["stdout"], got["stderr"], got["exitCode"]) == ("out\n", "err\n", 5)


def stream(box, world):
    command = "echo one; sleep 0.1; echo two >&2; exit 6"
    got = box.call("ExecStream", {"sessionId": world["session"], "command": command})
    assert got.code == "ok" and got.messages[-1] == {"type": "exit", "exitCode": 6}
    assert [(m["type"], m["data"]) for m in got.messages[:-1]] == [("stdout", "one\n"), ("stderr", "two\n")]


def write(box, world):
    wish = {"sessionId": world["session"], "path": "w", "contentBytes": base64.b64encode(b"\0\xff").decode()}
    assert box.call("WriteFile", wish).ok == {"success": True}


def read(box, world):
    write(box, world)
    got = box.call("ReadFile", {"sessionId": world["session"], "path": "w", "binary": True}).ok
    assert base64.b64decode(got["contentBytes"]) == b"\0\xff"


def pip(box, world):
    got = box.call("PipInstall", {"sessionId": world["session"], "packages": ["a b"]}).ok
    assert (got["exitCode"], got["stderr"]) == (-1, "Invalid package specifier: a b")


def health(box, world):
    assert box.call("Check", {"service": rpc.SANDBOX}, service=HEALTH).ok == {"status": "SERVING"}


def watch_health(box, world):
    got = box.call("Watch", {"service": rpc.SANDBOX}, service=HEALTH, cancel_after=1)
    assert got.code == "canceled" and got.messages == [{"status": "SERVING"}], got


def reflect(box, world):
    got = box.call("ServerReflectionInfo", [{"listServices": "*"}, {"fileContainingSymbol": AGENTS}],
                   service=REFLECTION, hold_for=2)
    assert got.code == "ok" and len(got.messages) == 2, got
    names = {s["name"] for s in got.messages[0]["listServicesResponse"]["service"]}
    assert {service for service, _ in METHODS} <= names
    assert got.messages[1]["fileDescriptorResponse"]["fileDescriptorProto"]


def run_on_agent(box, world):
    wish = {"agentId": world["agent"], "command": "sh", "args": ["-c", "echo $A; echo err >&2; exit 7"],
            "env": {"A": "b c"}}
    got = box.call("Exec", wish, service=AGENTS)
    assert got.code == "ok", got
    said = {s: b"".join(base64.b64decode(m.get("data", "")) for m in got.messages if m.get("stream") == s)
            for s in ("OUTPUT_STREAM_STDOUT", "OUTPUT_STREAM_STDERR")}
    assert list(said.values()) == [b"b c\n", b"err\n"]
    assert (got.messages[-1]["complete"], got.messages[-1]["exitCode"]) == (True, 7)
    assert box.call("Exec", {"agentId": "none", "command": "x"}, service=AGENTS).code == "not_found"


def link(box, world):
    """Another agent, from its registration to its first instructions."""
    name = f"link-{uuid.uuid4().hex[:8]}"
    secret = world["server"].post("/api/v1/secrets", {"agent_id": name}).json()["secret"]
    said = [{"registration": {"agentId": name, "hostname": "peer", "labels": {"who": box.name}}}]
    got = box.call("Connect", said, service=AGENTS, token=None, hold_for=2,
                   headers={"x-agent-id": name, "x-agent-secret": secret})
    assert got.code == "ok", got
    assert [next(iter(m)) for m in got.messages] == ["registrationAck", "sessionQuery"]
    assert got.messages[0]["registrationAck"]["accepted"] is True
    refused = box.call("Connect", said, service=AGENTS, token=None, headers={"x-agent-id": name, "x-agent-secret": "x"})
    assert (refused.code, refused.message) == ("unauthenticated", "Invalid agent secret")


CALLS = {
    (rpc.SANDBOX, "CreateSession"): create, (rpc.SANDBOX, "DestroySession"): destroy, (rpc.SANDBOX, "GetSession"): get,
    (rpc.SANDBOX, "ListSessions"): listed, (rpc.SANDBOX, "Exec"): execute, (rpc.SANDBOX, "ExecStream"): stream,
    (rpc.SANDBOX, "WriteFile"): write, (rpc.SANDBOX, "ReadFile"): read, (rpc.SANDBOX, "PipInstall"): pip,
    (HEALTH, "Check"): health, (HEALTH, "Watch"): watch_health, (REFLECTION, "ServerReflectionInfo"): reflect,
    (AGENTS, "Exec"): run_on_agent, (AGENTS, "Connect"): link,
}


@pytest.mark.parametrize("service, method", METHODS)
def test_it_is_called(client, world, service, method):
    box = Noting(client)
    if METHODS[service, method].client_streaming and client.name in NO_STREAMS_IN:
        got = box.call(method, [{}], service=service)
        assert got.code != "ok" and "fetch API does not support streaming request" in got.message, got
        return
    CALLS[service, method](box, world)
    assert (service, method) in box.called


def test_every_library_is_there():
    """Two protocols of gRPC's own clients, and of Connect's the three of node and the three of browsers."""
    assert {"grpcio", "grpc-js"} < set(rpc.TRANSPORTS)
    for kind in ("json", "binary", "grpc-web"):
        assert {f"connect-node-{kind}", f"connect-web-{kind}"} < set(rpc.TRANSPORTS)


# ---- streams of requests as a browser would have to send them: whole, over HTTP/1.1 ----

def frames(data, text=False):
    """(flags, message) of each frame; gRPC-Web's text is base64 in pieces."""
    if text:
        data = b"".join(base64.b64decode(piece + b"==") for piece in data.split(b"="))
    while data:
        size = int.from_bytes(data[1:5], "big")
        yield data[0], data[5:5 + size]
        data = data[5 + size:]


@pytest.mark.parametrize("kind", ["application/grpc-web+proto", "application/grpc-web-text+proto",
                                  "application/connect+proto", "application/connect+json"])
def test_a_stream_of_requests_that_comes_whole(server, kind):
    files, text = rpc.Files(), "text" in kind
    asked = [{"listServices": "*"}, {"fileByFilename": "none"}]
    said = [rpc.json.dumps(one).encode() if kind.endswith("json") else
            files.request(REFLECTION, "ServerReflectionInfo", one).SerializeToString() for one in asked]
    body = b"".join(map(rpc.message, said))
    reply = server.post(f"/{REFLECTION}/ServerReflectionInfo", body=base64.b64encode(body) if text else body,
                        headers={"content-type": kind})
    assert (reply.status, reply.headers["content-type"]) == (200, kind)
    got = list(frames(reply.body, text))
    assert [flags for flags, _ in got] == [0, 0, 2 if "connect" in kind else 0x80]
    assert rpc.SANDBOX.encode() in got[0][1] and b"not found" in got[1][1]
    assert got[2][1] == (b"{}" if "connect" in kind else b"grpc-status: 0\r\n")


@pytest.mark.parametrize("service, method", METHODS)
def test_the_content_type_says_how_many_messages(server, service, method):
    """Of Connect: one for a stream is refused where there is none, and the other way round."""
    streams = METHODS[service, method].server_streaming or METHODS[service, method].client_streaming
    kind = "application/json" if streams else "application/connect+json"
    reply = server.post(f"/{service}/{method}", body=b"{}" if streams else rpc.message(b"{}"),
                        headers={"content-type": kind, "x-agent-id": "none", "x-agent-secret": "none"})
    assert b"content type is for the other kind" in reply.body, reply
