"""sandbox.v1.SandboxService by every client: the same calls through each transport, and the same results."""
import base64
import concurrent.futures
import gzip
import json
import os
import re
import signal
import subprocess
import time
import urllib.parse

import grpc
import pytest
from google.protobuf import descriptor_pb2

import harness
import rpc


@pytest.fixture(scope="session", params=rpc.TRANSPORTS)
def box(request, server, node_modules):
    """A client; its name is the transport's."""
    client = rpc.open_transport(server, request.param)
    yield client
    client.close()


@pytest.fixture(scope="session")
def session(box):
    """A session that the tests of one transport share."""
    got = box.call("CreateSession", {}).ok["session"]
    yield got["sessionId"]
    assert box.call("DestroySession", {"sessionId": got["sessionId"]}).ok == {"success": True}


def run(box, session, command, **fields):
    return box.call("Exec", {"sessionId": session, "command": command, **fields}).ok


# ---- sessions ----

def test_life_of_a_session(box):
    name = f"life-{box.name}"
    before = time.time() - 1
    made = box.call("CreateSession", {"sessionId": name, "allowedHosts": ["a.example", "*.b.example"]}).ok["session"]
    assert made["sessionId"] == name and made["status"] == "running"
    assert made["allowedHosts"] == ["a.example", "*.b.example"] and "tenantId" not in made
    assert before <= made["createdAt"] <= time.time() + 1 and made["lastActivity"] >= made["createdAt"] - 1
    again = box.call("CreateSession", {"sessionId": name, "allowedHosts": ["other"]}).ok["session"]
    assert again["containerId"] == made["containerId"] and again["allowedHosts"] == made["allowedHosts"]
    got = box.call("GetSession", {"sessionId": name}).ok["session"]
    assert (got["sessionId"], got["containerId"]) == (name, made["containerId"])
    assert name in [s["sessionId"] for s in box.call("ListSessions").ok["sessions"]]
    assert box.call("DestroySession", {"sessionId": name}).ok == {"success": True}
    assert box.call("DestroySession", {"sessionId": name}).ok == {}
    gone = box.call("GetSession", {"sessionId": name})
    assert (gone.code, gone.message) == ("not_found", "Session not found")


def test_exec(box, session):
    assert run(box, session, "echo hello")["stdout"] == "hello\n"
    got = run(box, session, "echo to; echo err >&2; exit 42")
    assert (got["stdout"], got["stderr"], got["exitCode"]) == ("to\n", "err\n", 42)
    assert run(box, session, "pwd")["stdout"] == "/workspace\n"
    assert run(box, session, "pwd", workdir="/tmp")["stdout"] == "/tmp\n"
    assert run(box, session, "mkdir -p of/its && pwd", workdir=".")["stdout"] == "/workspace\n"
    assert run(box, session, "pwd", workdir="of/its")["stdout"] == "/workspace/of/its\n"
    assert run(box, session, "kill -9 $$")["exitCode"] == -9


def test_exec_failures_as_agentbox_tells_them(box, session):
    assert run(box, "no-such-session", "true") == {"exitCode": -1, "stderr": "Session not found"}
    got = run(box, session, "true", workdir="/does/not/exist")
    assert got["exitCode"] == -1 and "No such file" in got["stderr"] and "timedOut" not in got


def test_timeout_kills_the_tree_and_keeps_the_output(box, session):
    mark = f"/tmp/tree-{box.name}"
    got = run(box, session, f"echo partial; (while :; do date >> {mark}; sleep 0.05; done) & sleep 100", timeout=1)
    assert got["exitCode"] == -1 and got["timedOut"] is True
    assert got["stdout"] == "partial\n" and got["stderr"].endswith("Command timed out")
    assert run(box, session, f"a=$(wc -l < {mark}); sleep 0.3; [ $a = $(wc -l < {mark}) ]").get("exitCode", 0) == 0


def test_bytes_beside_text(box, session):
    got = run(box, session, r"printf 'a\377\000b'; printf 'gr\303\274n' >&2")
    assert got["stdout"] == "a\ufffd\ufffdb" and got["stderr"] == "grün"
    assert base64.b64decode(got["stdoutBytes"]) == b"a\xff\0b" and "stderrBytes" not in got


def test_input_with_the_call(box, session):
    data = bytes(range(256)) * 3
    got = run(box, session, "cat", stdin=base64.b64encode(data).decode())
    assert base64.b64decode(got["stdoutBytes"]) == data
    assert run(box, session, "wc -c", stdin="")["stdout"] == "0\n"
    pieces = box.call("ExecStream", {"sessionId": session, "command": "tr a-z A-Z",
                                     "stdin": base64.b64encode(b"stream").decode()}).messages
    assert "".join(p.get("data", "") for p in pieces) == "STREAM" and pieces[-1]["type"] == "exit"


def test_a_stream_that_is_read_slowly_is_whole(grpcio, server):
    """100 MB, by a client that pauses: the command is held back, and nothing is left out."""
    made = server.post("/api/v1/sandboxes", {"name": "slow-stream"}).json()["id"]
    files = grpcio.files
    fields = {"sessionId": made, "command": "yes 0123456789abcde | head -c 100000000; exit 5"}
    call = grpcio.channel.unary_stream(f"/{rpc.SANDBOX}/ExecStream", lambda m: m.SerializeToString(),
                                       lambda data: files.reply(rpc.SANDBOX, "ExecStream", data))
    got, last = 0, None
    for piece in call(files.request(rpc.SANDBOX, "ExecStream", fields), metadata=grpcio.metadata("admin"), timeout=120):
        got, last = got + (len(piece.data) if piece.type == "stdout" else 0), piece
        if got < 10_000_000:
            time.sleep(0.01)
    assert (got, last.type, last.exit_code) == (100_000_000, "exit", 5), (got, last)
    assert server.delete(f"/api/v1/sandboxes/{made}").status == 200


def test_out_of_memory_is_told(box, session, server):
    name = f"small-{box.name}"
    made = server.post("/api/v1/sandboxes", {"name": name, "memory": 64 << 20, "disk": 8 << 20})
    assert made.status == 201, made
    eat = "python3 -c \"b = b'x' * (200 << 20)\""
    got = run(box, made.json()["id"], eat)
    last = box.call("ExecStream", {"sessionId": made.json()["id"], "command": eat}).messages[-1]
    assert server.delete(f"/api/v1/sandboxes/{made.json()['id']}").status == 200
    assert got["outOfMemory"] is True and last["outOfMemory"] is True, (got, last)
    assert "outOfMemory" not in run(box, session, "false")


def test_much_output(box, session):
    got = run(box, session, "head -c 1500000 /dev/zero | tr '\\0' x; head -c 1000000 /dev/zero | tr '\\0' y >&2")
    assert got["stdout"] == "x" * 1500000 and got["stderr"] == "y" * 1000000 and "truncated" not in got
    got = run(box, session, "head -c 6000000 /dev/zero | tr '\\0' x; head -c 6000000 /dev/urandom >&2")
    assert got["truncated"] is True and set(got["stdout"]) == {"x"} and len(got["stdout"]) > 2000000
    assert base64.b64decode(got["stderrBytes"])[:10].decode("utf-8", "replace") and got["execId"].startswith("ex")


def test_output_that_grows_in_json(box, session):
    got = run(box, session, "head -c 2000000 /dev/zero | tr '\\0' '\\001'")
    assert got["stdout"] == "\x01" * 2000000


# ---- streams ----

def texts(messages, kind):
    return "".join(m.get("data", "") for m in messages if m["type"] == kind)


def test_stream(box, session):
    command = "echo one; echo two >&2; sleep 0.2; printf 'gr\\303'; sleep 0.2; printf '\\274n'; exit 3"
    got = box.call("ExecStream", {"sessionId": session, "command": command})
    assert got.code == "ok" and got.messages[-1] == {"type": "exit", "exitCode": 3}
    assert texts(got.messages, "stdout") == "one\ngrün" and texts(got.messages, "stderr") == "two\n"
    zero = box.call("ExecStream", {"sessionId": session, "command": "true"})
    assert zero.messages == [{"type": "exit", "exitCode": 0}]


def test_stream_of_bytes_and_failures(box, session):
    got = box.call("ExecStream", {"sessionId": session, "command": r"printf 'a\377\000'; printf '\303'"})
    raw = b"".join(base64.b64decode(m["dataBytes"]) if "dataBytes" in m else m["data"].encode()
                   for m in got.messages if m["type"] == "stdout")
    assert raw == b"a\xff\0\xc3"
    got = box.call("ExecStream", {"sessionId": "none", "command": "true"})
    assert got.code == "ok" and got.messages == [{"type": "error", "data": "Session not found"}]
    got = box.call("ExecStream", {"sessionId": session, "command": "true", "workdir": "/none"})
    assert got.messages[0]["type"] == "error" and "No such file" in got.messages[0]["data"]


def test_stream_of_much(box, session):
    got = box.call("ExecStream", {"sessionId": session, "command": "seq 300000; seq 1000 >&2"})
    assert texts(got.messages, "stdout") == "".join(f"{i}\n" for i in range(1, 300001))
    assert texts(got.messages, "stderr") == "".join(f"{i}\n" for i in range(1, 1001))


def test_a_stream_waits_for_who_reads_late(server):
    """Its client reads nothing until the command has ended: all of it is there, in order."""
    box = rpc.Grpcio(server)
    made = box.call("CreateSession").messages[0]["session"]
    execs = f"/api/v1/sandboxes/{made['containerId']}/execs"
    call = box.begin("ExecStream", {"sessionId": made["sessionId"], "command": "seq -w 1000000"}, timeout=120)
    harness.wait_until(lambda: [e for e in server.get(execs).json()["items"] if e["state"] == "exited"],
                       30 * harness.SLOW, "the end of the command")
    got = "".join(message.data for message in call if message.type == "stdout")
    assert call.code().name == "OK"
    assert got == "".join(f"{i:07}\n" for i in range(1, 1000001))
    box.call("DestroySession", {"sessionId": made["sessionId"]})
    box.close()


def runs(box, session, word):
    """How many processes of the sandbox have this word in their arguments."""
    got = run(box, session, f"n=0; for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f 2>/dev/null | "
                            f"grep -q '[s]leep {word}' && n=$((n+1)); done; echo $n")
    return int(got["stdout"])


def test_cancel_kills(box, session):
    got = box.call("ExecStream", {"sessionId": session, "command": "echo go; sleep 4001 & sleep 4001; wait"},
                   cancel_after=1)
    assert got.code == "canceled" and texts(got.messages, "stdout") == "go\n"
    harness.wait_until(lambda: runs(box, session, 4001) == 0, 10, "the end of what was cancelled")
    got = box.call("ExecStream", {"sessionId": session, "command": "sleep 4002"}, cancel_after=0)
    assert got.code == "canceled" and got.messages == []
    harness.wait_until(lambda: runs(box, session, 4002) == 0, 10, "the end of what was cancelled at once")


def test_deadline_kills(box, session):
    for method in ("Exec", "ExecStream"):
        start = time.monotonic()
        got = box.call(method, {"sessionId": session, "command": "sleep 4003 & sleep 4003"}, timeout=0.5)
        assert got.code == "deadline_exceeded" and time.monotonic() - start < 8 * harness.SLOW
        harness.wait_until(lambda: runs(box, session, 4003) == 0, 10, "the end of what was late")


# ---- files ----

def write(box, session, path, content, **more):
    return box.call("WriteFile", {"sessionId": session, "path": path, "content": content, **more}).ok


def read(box, session, path, **more):
    return box.call("ReadFile", {"sessionId": session, "path": path, **more}).ok


def test_files(box, session):
    where = f"files-{box.name}"
    assert write(box, session, f"{where}/deep/a.txt", "hello grün\n") == {"success": True}
    assert read(box, session, f"/workspace/{where}/deep/a.txt")["content"] == "hello grün\n"
    assert write(box, session, f"{where}/deep/a.txt", "line two\n", mode="a") == {"success": True}
    assert read(box, session, f"{where}/x/../deep/./a.txt")["content"] == "hello grün\nline two\n"
    assert write(box, session, f"{where}/new/b.txt", "x", mode="a") == {"success": True}
    assert write(box, session, f"{where}/empty", "") == {"success": True}
    assert read(box, session, f"{where}/empty") == {"success": True, "content": ""}
    assert read(box, session, f"{where}/none") == {"error": "File not found"}
    assert "directory" in read(box, session, where)["error"].lower()
    assert write(box, "none", "a", "b") == {"error": "Session not found"}
    assert read(box, "none", "a") == {"error": "Session not found"}


def test_files_of_bytes(box, session):
    data = os.urandom(3000000)
    name = f"bytes-{box.name}"
    assert write(box, session, name, "", contentBytes=base64.b64encode(data).decode()) == {"success": True}
    part = read(box, session, name, binary=True, offset="100", length="50")
    assert base64.b64decode(part["contentBytes"]) == data[100:150] and part["size"] == "3000000"
    assert base64.b64decode(read(box, session, name, binary=True)["contentBytes"]) == data
    assert "not UTF-8" in read(box, session, name)["error"]
    assert read(box, session, name, binary=True, offset="9000000") == \
        {"success": True, "contentBytes": "", "size": "3000000"}
    run(box, session, f"truncate -s 5G {name}")
    assert "5368709120 bytes" in read(box, session, name, binary=True)["error"]
    both = box.call("WriteFile", {"sessionId": session, "path": "x", "content": "a", "contentBytes": "YQ=="})
    assert both.code == "invalid_argument"


TRICKS = ["../etc/passwd", "/etc/passwd", "/workspace-evil/x", "/workspace/../etc/passwd", "/proc/self/root/etc/passwd",
          "link/passwd", "chain/etc/passwd", "file", "/mnt/user-data/../../etc/passwd", "/"]


def test_paths_lead_nowhere_else(box, session):
    run(box, session, "mkdir -p /tmp/other; cd /workspace; ln -sfn /etc link; ln -sfn / chain; "
                      "ln -sfn /etc/passwd file; ln -sfn /tmp/other out; mkfifo fifo; true")
    for path in TRICKS:
        assert read(box, session, path) == {"error": "Path not allowed"}, path
    for path in [p for p in TRICKS if p != "file"] + ["out/x", "out/deep/x", "/mnt/user-data/x"]:
        assert write(box, session, path, "no") == {"error": "Path not allowed"}, path
    for path in ("file", "out/x"):
        assert write(box, session, path, "no", mode="a") == {"error": "Path not allowed"}, path
    assert "stdout" not in run(box, session, "ls -A /tmp/other")
    assert "kind of file" in read(box, session, "fifo")["error"]
    assert "kind of file" in write(box, session, "fifo", "x")["error"]


# ---- pip ----

WHEEL = """
import zipfile
for version in ("1.0", "2.0"):
    info = f"atoll_probe-{version}.dist-info/"
    with zipfile.ZipFile(f"wheels/atoll_probe-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("atoll_probe.py", f"version = '{version}'\\n")
        wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\\nName: atoll-probe\\nVersion: {version}\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
"""


def test_pip_install(box, session, server):
    assert box.call("PipInstall", {"sessionId": "none", "packages": ["a"]}).ok == \
        {"exitCode": -1, "stderr": "Session not found"}
    for bad in ("a b", "-r x", "a;b", "https://x/y", "a'b", "", "a==", "[x]", "a[", "a==1,", "a\n"):
        got = box.call("PipInstall", {"sessionId": session, "packages": ["good", bad]}).ok
        assert (got["exitCode"], got["stderr"]) == (-1, f"Invalid package specifier: {bad}")
    hosts = box.call("CreateSession", {"sessionId": f"pip-{box.name}", "allowedHosts": ["*.pypi.org"]}).ok["session"]
    got = box.call("PipInstall", {"sessionId": hosts["sessionId"], "packages": ["a"]}).ok
    assert (got["exitCode"], got["stderr"]) == (
        -1, "pip install requires pypi.org and files.pythonhosted.org in allowed_hosts")
    box.call("DestroySession", {"sessionId": hosts["sessionId"]})
    # A package of our own, which needs no network; 2.0 is refused by what is asked for.
    write(box, session, "wheel.py", WHEEL)
    run(box, session, "mkdir -p $HOME/.config/pip wheels; python3 wheel.py; printf '[global]\\nno-index = true\\n"
                      "find-links = /workspace/wheels\\n' > $HOME/.config/pip/pip.conf")
    got = box.call("PipInstall", {"sessionId": session, "packages": ["atoll-probe>=1.0,!=2.*"]}).ok
    assert got.get("exitCode", 0) == 0, got
    assert run(box, session, "python3 -c 'import atoll_probe; print(atoll_probe.version)'")["stdout"] == "1.0\n"
    got = box.call("PipInstall", {"sessionId": session, "packages": ["no-such-thing[x,y]==1.0"]}).ok
    assert got["exitCode"] == 1 and "no-such-thing" in got["stderr"]


# ---- what is refused ----

BAD = [
    ("Exec", {"command": ""}, "invalid_argument"),
    ("Exec", {"command": "true", "timeout": -1}, "invalid_argument"),
    ("Exec", {"command": "true", "timeout": 86401}, "invalid_argument"),
    ("Exec", {"command": "x" * 131072}, "invalid_argument"),
    ("Exec", {"command": "true", "stdin": base64.b64encode(bytes(262145)).decode()}, "invalid_argument"),
    ("Exec", {"command": "true", "workdir": "x" * 4085}, "invalid_argument"),
    ("Exec", {"command": "true", "workdir": "/" + "x" * 4096}, "invalid_argument"),
    ("WriteFile", {"path": "x" * 4096}, "invalid_argument"),
    ("ReadFile", {"path": "x" * 4096}, "invalid_argument"),
    ("CreateSession", {"sessionId": "x" * 129}, "invalid_argument"),
    ("CreateSession", {"sessionId": "a\u0007"}, "invalid_argument"),
    ("CreateSession", {"sessionId": "x", "tenantId": "x" * 129}, "invalid_argument"),
    ("CreateSession", {"sessionId": "x", "allowedHosts": ["a", ""]}, "invalid_argument"),
    ("CreateSession", {"sessionId": "x", "allowedHosts": [f"{n:059}.com" for n in range(65)]}, "invalid_argument"),
    *(("CreateSession", {"sessionId": "x", "allowedHosts": ["a.example", host]}, "invalid_argument")
      for host in ("http://a.example/", "*", "10.0.0.1", "a b", "::1", "a\n", "*.")),
]


GOOD = [
    ("Exec", {"command": ": " + "x" * 131069}),
    ("Exec", {"command": "true", "timeout": 86400}),
    ("Exec", {"command": "true", "stdin": base64.b64encode(bytes(262144)).decode()}),
    ("Exec", {"command": "true", "workdir": "/" + "x" * 4094}),
    ("Exec", {"command": "true", "workdir": "x" * 4084}),
    ("ReadFile", {"path": "x" * 4095}),
    ("WriteFile", {"path": "x" * 4095}),
]


def test_at_the_limits(grpcio, own_session):
    for method, fields in GOOD:
        assert grpcio.call(method, {"sessionId": own_session, **fields}).code == "ok", (method, str(fields)[:60])
    hosts = [f"{n:059}.com" for n in range(64)]  # 4096 bytes with their ends
    made = grpcio.call("CreateSession", {"sessionId": "limits", "allowedHosts": hosts}).ok["session"]
    assert made["allowedHosts"] == hosts
    assert grpcio.call("DestroySession", {"sessionId": "limits"}).ok == {"success": True}


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_input(box, session, number):
    method, fields, code = BAD[number]
    got = box.call(method, {"sessionId": session, **fields} if "sessionId" not in fields else fields)
    assert (got.code, got.messages) == (code, []) and got.message


def test_wrong_state(box, server):
    made = box.call("CreateSession").ok["session"]
    assert server.post(f"/api/v1/sandboxes/{made['containerId']}/pause").status == 200
    assert box.call("GetSession", {"sessionId": made["sessionId"]}).ok["session"]["status"] == "paused"
    for method, fields in (("Exec", {"command": "true"}), ("ExecStream", {"command": "true"}),
                           ("ReadFile", {"path": "a"}), ("WriteFile", {"path": "a"})):
        got = box.call(method, {"sessionId": made["sessionId"], **fields})
        assert got.code == "failed_precondition" and "paused" in got.message, method
    assert box.call("DestroySession", {"sessionId": made["sessionId"]}).ok == {"success": True}


METHODS = {"CreateSession": "use", "DestroySession": "use", "GetSession": "look", "ListSessions": "look", "Exec": "use",
           "ExecStream": "use", "WriteFile": "use", "ReadFile": "look", "PipInstall": "use"}


def test_roles(box, server):
    viewer = server.new_token("viewer")["token"]
    scoped = server.new_token("operator", scopes=["file.*"])["token"]
    for method, kind in METHODS.items():
        fields = {} if method == "ListSessions" else {"sessionId": "nobodys"}
        assert box.call(method, fields, token=None).code == "unauthenticated", method
        assert (box.call(method, fields, token=viewer).code == "permission_denied") == (kind == "use"), method
        allowed = method in ("WriteFile", "ReadFile")
        assert (box.call(method, fields, token=scoped).code == "permission_denied") != allowed, method
    assert not server.get("/api/v1/sandboxes/nobodys").status == 200


def test_sandboxes_of_other_tenants_are_not_there(box, server, session):
    other = server.new_token("operator", tenant="elsewhere")["token"]
    assert box.call("GetSession", {"sessionId": session}, token=other).code == "not_found"
    assert box.call("ListSessions", token=other).ok == {}
    assert box.call("DestroySession", {"sessionId": session}, token=other).ok == {}
    assert box.call("Exec", {"sessionId": session, "command": "true"}, token=other).ok["stderr"] == "Session not found"


# ---- on the wire ----

@pytest.fixture
def grpcio(server):
    client = rpc.Grpcio(server)
    yield client
    client.close()


@pytest.fixture
def own_session(grpcio):
    got = grpcio.call("CreateSession").ok["session"]["sessionId"]
    yield got
    grpcio.call("DestroySession", {"sessionId": got})


def test_cancelled_in_the_same_breath(server, grpcio, own_session):
    data = grpcio.files.request(rpc.SANDBOX, "ExecStream", {"sessionId": own_session, "command": "sleep 4005"})
    with server.connect() as sock:
        sock.sendall(rpc.H2_PREFACE + rpc.h2_frame(rpc.HEADERS, rpc.END_HEADERS, 1, rpc.grpc_head(server, "ExecStream"))
                     + rpc.h2_frame(rpc.DATA, rpc.END_STREAM, 1, rpc.message(data.SerializeToString()))
                     + rpc.h2_frame(rpc.RST_STREAM, 0, 1, (8).to_bytes(4, "big")))
        execs = f"/api/v1/sandboxes/{own_session}/execs"
        harness.wait_until(lambda: [e for e in server.get(execs).json()["items"] if e["state"] == "exited"], 10,
                           "the end of the command")
    assert server.get(execs).json()["items"][0]["signal"] == 9


def test_two_messages_where_one_is_wanted(server, grpcio, own_session):
    files = grpcio.files
    one = files.request(rpc.SANDBOX, "WriteFile", {"sessionId": own_session, "path": "twice", "content": "x"})
    call = grpcio.channel.stream_unary(f"/{rpc.SANDBOX}/WriteFile", lambda m: m.SerializeToString(), lambda b: b)
    for messages in ([], [one, one]):
        with pytest.raises(grpc.RpcError) as caught:
            call(iter(messages), timeout=10, metadata=grpcio.metadata("admin"))
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert read(grpcio, own_session, "twice") == {"error": "File not found"}


def connect(server, method, body, kind="application/json", token="admin", **headers):
    return server.post(f"/{rpc.SANDBOX}/{method}", body=body, token=token,
                       headers={"content-type": kind, **{k.replace("_", "-"): v for k, v in headers.items()}})


def test_deadline_already_past(server, grpcio, own_session):
    """Nothing may have happened."""
    body = json.dumps({"sessionId": own_session, "path": "late", "content": "x"})
    got = connect(server, "WriteFile", body, connect_timeout_ms="0")
    assert (got.status, got.json()["code"]) == (504, "deadline_exceeded")
    data = grpcio.files.request(rpc.SANDBOX, "WriteFile", json.loads(body)).SerializeToString()
    got = connect(server, "WriteFile", rpc.message(data), "application/grpc-web", grpc_timeout="0n")
    assert b"grpc-status: 4" in got.body
    assert read(grpcio, own_session, "late") == {"error": "File not found"}


@pytest.mark.parametrize("raw,why", [
    (b"\x0a\x01s\x12\x02\xff\xfe", "command of sandbox.v1.ExecRequest is not UTF-8"),
    (b"\x12\x06true\0x", "command of sandbox.v1.ExecRequest holds a NUL"),
    (b"\x0a", "the bytes are no sandbox.v1.ExecRequest"),
    (b"\x12\xff\xff\xff\xff\x0f", "the bytes are no sandbox.v1.ExecRequest"),
    (b"\x18\x01" * 16385, "more than 16384 fields"),
])
def test_messages_that_are_none(grpcio, server, raw, why):
    got = grpcio.call("Exec", raw=raw)
    assert got.code == ("resource_exhausted" if "more than" in why else "invalid_argument") and why in got.message
    got = connect(server, "Exec", raw, "application/proto")
    assert got.status == (429 if "more than" in why else 400) and why in got.json()["message"]


def test_unknown_fields_are_skipped(grpcio, own_session):
    raw = grpcio.files.request(rpc.SANDBOX, "Exec", {"sessionId": own_session, "command": "echo x"})
    got = grpcio.call("Exec", raw=raw.SerializeToString() + b"\xd2\x0f\x03abc\x98\x3f\x05")
    assert got.ok["stdout"] == "x\n"


def test_connect_as_curl_sees_it(server, own_session):
    got = connect(server, "Exec", json.dumps({"sessionId": own_session, "command": "printf hi"}))
    assert got.status == 200 and got.headers["content-type"] == "application/json" and got.json()["stdout"] == "hi"
    got = connect(server, "GetSession", '{"sessionId": "none"}')
    assert (got.status, got.json()) == (404, {"code": "not_found", "message": "Session not found"})
    got = connect(server, "Exec", '{"sesionId": "x"}')
    assert (got.status, got.json()["code"]) == (400, "invalid_argument") and "sesionId" in got.json()["message"]
    assert connect(server, "Exec", "{", connect_protocol_version="1").status == 400
    assert connect(server, "Exec", "{}", connect_protocol_version="2").status == 400
    got = connect(server, "Exec", gzip.compress(b"{}"), content_encoding="gzip")
    assert (got.status, got.json()["code"], got.headers["accept-encoding"]) == (501, "unimplemented", "identity")
    got = connect(server, "Exec", "{}", token=None)
    assert (got.status, got.json()["code"]) == (401, "unauthenticated") and "www-authenticate" in got.headers
    assert connect(server, "Exec", "{}", "text/plain").status == 415
    assert connect(server, "ExecStream", "{}").json()["code"] == "invalid_argument"
    assert connect(server, "Exec", rpc.message(b"{}"), "application/connect+json").body[0] == 2
    assert connect(server, "Nothing", "{}").status == 404


def test_connect_get(server, own_session):
    def get(method, message, **more):
        query = urllib.parse.urlencode({"connect": "v1", "encoding": "json", "message": message, **more})
        return server.get(f"/{rpc.SANDBOX}/{method}?{query}")

    assert get("GetSession", json.dumps({"sessionId": own_session})).json()["session"]["sessionId"] == own_session
    assert get("ListSessions", "{}").status == 200
    assert get("ListSessions", "e30", base64="1").status == 200
    assert get("ListSessions", "{}", compression="gzip").status == 400
    assert get("ListSessions", "{}", other="x").status == 400
    for method in ("Exec", "CreateSession", "DestroySession", "WriteFile", "PipInstall", "ExecStream"):
        assert get(method, "{}").status == 405, method


def test_too_large(server, grpcio, own_session):
    def body(size):
        return json.dumps({"sessionId": own_session, "path": "big", "content": "x" * size})

    room = 4194304 - len(body(0))
    assert connect(server, "WriteFile", body(room)).json() == {"success": True}
    assert connect(server, "WriteFile", body(room + 1)).status == 429
    assert grpcio.call("ReadFile", {"sessionId": own_session, "path": "big", "length": "4190208"}).code == "ok"
    got = grpcio.call("ReadFile", {"sessionId": own_session, "path": "big", "length": "4190209"})
    assert "ask for parts" in got.ok["error"]


def test_browsers(server):
    """A page of ours may call; another may not, and is told so before its call."""
    ours, path = server.url, f"/{rpc.SANDBOX}/ListSessions"
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-grpc-web"}
    got = server.request("OPTIONS", path, headers={"origin": ours, **ask}, token=None)
    assert got.status == 204 and got.headers["access-control-allow-origin"] == ours
    assert "x-grpc-web" in got.headers["access-control-allow-headers"] and "POST" in \
        got.headers["access-control-allow-methods"]
    got = connect(server, "ListSessions", "{}", origin=ours)
    assert got.status == 200 and got.headers["access-control-allow-origin"] == ours
    assert "grpc-status" in got.headers["access-control-expose-headers"]
    theirs = "http://evil.example"
    for method, headers, body in (("OPTIONS", ask, None), ("POST", {"content-type": "application/json"}, "{}")):
        got = server.request(method, path, headers={"origin": theirs, **headers}, body=body)
        assert got.status == 403 and "access-control-allow-headers" not in got.headers
    assert "access-control-allow-origin" not in connect(server, "ListSessions", "{}").headers


# ---- sessions and tenants ----

@pytest.mark.parametrize("name", ["Upper_Case.1", "sb0123456789abcdefghijklmnop", "with space", "x" * 128, "ünïcode"])
def test_custom_ids(grpcio, name):
    made = grpcio.call("CreateSession", {"sessionId": name}).ok["session"]
    assert made["sessionId"] == name
    assert grpcio.call("CreateSession", {"sessionId": name}).ok["session"]["containerId"] == made["containerId"]
    assert run(grpcio, name, "echo x")["stdout"] == "x\n"
    assert grpcio.call("DestroySession", {"sessionId": name}).ok == {"success": True}


def test_ids_are_whole(grpcio, own_session):
    """Neither a part of an id nor an id that begins alike is the session's."""
    container = grpcio.call("GetSession", {"sessionId": own_session}).ok["session"]["containerId"]
    assert grpcio.call("GetSession", {"sessionId": container}).ok["session"]["sessionId"] == own_session
    for part in (container[:-1], own_session[:8], ""):
        assert grpcio.call("GetSession", {"sessionId": part}).code == "not_found"


def test_created_by_many_at_once(server):
    clients = [rpc.Grpcio(server) for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for name in ("at-once", "At_Once"):
            made = list(pool.map(lambda c: c.call("CreateSession", {"sessionId": name}).ok["session"], clients))
            assert len({m["containerId"] for m in made}) == 1
            assert clients[0].call("DestroySession", {"sessionId": name}).ok == {"success": True}
    for client in clients:
        client.close()


def test_tenants_keep_what_they_store(server, grpcio):
    if not disks_work(server):
        got = grpcio.call("CreateSession", {"tenantId": "t"})
        assert got.code in ("unimplemented", "unavailable", "failed_precondition") and got.message
        return
    kept = []
    for tenant in ("t1", "../../etc", "/", "t1"):
        made = grpcio.call("CreateSession", {"tenantId": tenant}).ok["session"]
        assert made["tenantId"] == tenant
        name = made["sessionId"]
        kept.append(read(grpcio, name, "kept").get("content", "-") + read(grpcio, name, "/mnt/user-data/outputs/k")
                    .get("content", "-"))
        assert write(grpcio, name, "kept", f"of {tenant}") == {"success": True}
        assert write(grpcio, name, "/mnt/user-data/outputs/k", "out") == {"success": True}
        assert run(grpcio, name, "cat kept")["stdout"] == f"of {tenant}"
        assert grpcio.call("DestroySession", {"sessionId": name}).ok == {"success": True}
    assert kept == ["--", "--", "--", "of t1out"]
    names = [v["name"] for v in server.get("/api/v1/volumes").json()["items"]]
    assert len(names) == 6 and all(re.fullmatch(r"agentbox-[0-9a-f]{32}-(workspace|outputs)", n) for n in names)


def disks_work(server):
    made = server.post("/api/v1/sandboxes", {}).json()
    server.delete(f"/api/v1/sandboxes/{made['id']}")
    return made["storage"] == "disk"


def test_audit_says_what_was_done(server, grpcio, own_session):
    run(grpcio, own_session, "echo audited")
    write(grpcio, own_session, "audited", "x")
    rows = server.get("/api/v1/audit?limit=20").json()["items"]
    actions = {r["action"]: r for r in rows}
    assert "echo audited" in json.dumps(actions["exec.create"]["detail"])
    assert actions["file.write"]["object"].startswith("sandbox/sb")
    assert "sandbox.create" in actions


def test_revoked_token_ends_its_stream(server, grpcio, own_session):
    token = server.new_token("operator")
    call = grpcio.begin("ExecStream", {"sessionId": own_session, "command": "echo go; sleep 4006"},
                        token=token["token"])
    assert next(call).data == "go\n"
    assert server.delete(f"/api/v1/tokens/{token['id']}").status in (200, 204)
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    harness.wait_until(lambda: runs(grpcio, own_session, 4006) == 0, 10, "the end of the command")


def test_stopping_server_says_so_and_kills_nothing(start_server):
    server = start_server()
    client = rpc.Grpcio(server)
    name = client.call("CreateSession").ok["session"]["sessionId"]
    stream = client.begin("ExecStream", {"sessionId": name, "command": "echo go; sleep 3; echo done > end"})
    assert next(stream).data == "go\n"
    unary = client.begin("Exec", {"sessionId": name, "command": "touch began; sleep 3; echo done > end2"})
    harness.wait_until(lambda: "error" not in read(client, name, "began"), 10, "the beginning of the command")
    server.process.send_signal(signal.SIGTERM)
    for call in (stream, unary):
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE and "about to stop" in caught.value.details()
    assert server.process.wait(harness.STOP_SECONDS) == 0
    client.close()
    server.start()
    client = rpc.Grpcio(server)
    for end in ("end", "end2"):
        harness.wait_until(lambda: read(client, name, end).get("content"), 15, "the end of the command")
    assert client.call("DestroySession", {"sessionId": name}).ok == {"success": True}
    client.close()


def test_a_call_wakes_a_sandbox(server, grpcio):
    for action in ("pause", "stop") if disks_work(server) else ("pause",):
        for method, fields in (("Exec", {"command": "echo awake"}), ("ExecStream", {"command": "echo awake"}),
                               ("WriteFile", {"path": "w", "content": "x"}), ("ReadFile", {"path": "none"})):
            made = server.post("/api/v1/sandboxes", {"idle": {"after_ms": 100, "action": action}}).json()["id"]
            harness.wait_until(lambda: [s for s in server.get("/api/v1/sandboxes").json()["items"]
                                        if s["id"] == made and s["asleep"]], 15, "its sleep")
            got = grpcio.call(method, {"sessionId": made, **fields})
            assert got.code == "ok" and ("awake" in str(got) or method.endswith("File")), (action, method, got)
            assert grpcio.call("DestroySession", {"sessionId": made}).ok == {"success": True}


COMMANDS = ["echo one; echo two >&2; exit 3", "true", "printf 'gr\\303\\274n'", "pwd; id -un", "kill -TERM $$",
            "seq 2000", "printf '\\377'"]


def test_every_surface_says_the_same(server, grpcio, own_session):
    """REST, gRPC, Connect and the command line: output, errors and exit code of the same commands."""
    def rest(line):
        path = f"/api/v1/sandboxes/{own_session}/execs?wait=20000"
        got = server.post(path, {"command": line}, timeout=30).json()
        return got["output"], got["errors"], -got["signal"] if got["signal"] else got["exit_code"]

    def by_grpc(line):
        got = run(grpcio, own_session, line)
        return got.get("stdout", ""), got.get("stderr", ""), got.get("exitCode", 0)

    def by_connect(line):
        got = connect(server, "Exec", json.dumps({"sessionId": own_session, "command": line})).json()
        return got.get("stdout", ""), got.get("stderr", ""), got.get("exitCode", 0)

    def by_cli(line):
        done = subprocess.run([server.binary, "exec", own_session, "--", "/bin/sh", "-c", line], capture_output=True,
                              env={**os.environ, "ATOLL_STATE": str(server.state)}, stdin=subprocess.DEVNULL,
                              timeout=30, check=False)
        code = 128 - done.returncode if done.returncode > 128 else done.returncode
        return done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"), code

    for line in COMMANDS:
        assert rest(line) == by_grpc(line) == by_connect(line) == by_cli(line), line


# ---- reflection and health ----

def reflect(grpcio, *questions, version="v1", token="admin"):
    files, service = grpcio.files, "grpc.reflection.v1.ServerReflection"
    ask = files.type("grpc.reflection.v1.ServerReflectionRequest")
    call = grpcio.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                        lambda m: m.SerializeToString(),
                                        lambda b: files.reply(service, "ServerReflectionInfo", b))
    return list(call(iter([ask(**q) for q in questions]), timeout=10, metadata=grpcio.metadata(token)))


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(grpcio, version):
    got = reflect(grpcio, {"list_services": "*"}, {"file_containing_symbol": "sandbox.v1.SandboxService"},
                  {"file_by_filename": "sandbox/v1/sandbox.proto"},
                  {"file_containing_symbol": "sandbox.v1.SandboxService.Exec"},
                  {"file_containing_symbol": "sandbox.v1.ExecRequest"},
                  {"file_containing_symbol": "grpc.health.v1.HealthCheckResponse.ServingStatus"},
                  {"file_containing_symbol": "sandbox.v1.Exec"}, {"file_by_filename": "nothing"}, {},
                  {"all_extension_numbers_of_type": "sandbox.v1.ExecRequest"}, version=version)
    names = [s.name for s in got[0].list_services_response.service]
    assert len(set(names)) == len(names) and {"sandbox.v1.SandboxService", "grpc.health.v1.Health",
                                              "grpc.reflection.v1.ServerReflection"} <= set(names)
    described = reflect(grpcio, *[{"file_containing_symbol": name} for name in names], version=version)
    assert all(d.file_descriptor_response.file_descriptor_proto for d in described), names
    assert got[0].original_request.list_services == "*"
    file = descriptor_pb2.FileDescriptorProto.FromString(got[1].file_descriptor_response.file_descriptor_proto[0])
    assert file.name == "sandbox/v1/sandbox.proto" and [s.name for s in file.service] == ["SandboxService"]
    assert file.message_type[0].field[5].proto3_optional  # as it was written, not as protoc-c reads it
    for other in got[2:5]:
        assert other.file_descriptor_response == got[1].file_descriptor_response
    assert b"ServingStatus" in got[5].file_descriptor_response.file_descriptor_proto[0]
    assert [g.error_response.error_code for g in got[6:]] == [5, 5, 3, 5]


def test_reflection_has_an_end(grpcio):
    """What all questions of one call take of memory is bounded."""
    with pytest.raises(grpc.RpcError) as caught:
        reflect(grpcio, *[{"file_by_filename": "x" * 4000000}] * 8)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(reflect(grpcio, *[{"file_by_filename": "x" * 1000}] * 500)) == 500


def test_reflection_needs_a_token(grpcio):
    with pytest.raises(grpc.RpcError) as caught:
        reflect(grpcio, {"list_services": "*"}, token=None)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_health(box):
    service = "grpc.health.v1.Health"
    for name in ("", service, rpc.SANDBOX):
        assert box.call("Check", {"service": name}, service=service, token=None).ok == {"status": "SERVING"}
    assert box.call("Check", {"service": "nothing"}, service=service, token=None).code == "not_found"
    assert box.call("Watch", {"service": "nothing"}, service=service, token=None,
                    cancel_after=1).messages == [{"status": "SERVICE_UNKNOWN"}]


def test_a_watch_of_health_is_told_of_the_end(start_server):
    server = start_server()
    grpcio = rpc.Grpcio(server)
    watch = grpcio.begin("Watch", {}, service="grpc.health.v1.Health", token=None)
    assert next(watch).status == 1
    server.process.terminate()
    assert next(watch).status == 2  # NOT_SERVING, before the stream ends
    with pytest.raises(grpc.RpcError) as caught:
        next(watch)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    grpcio.close()


def test_watches_of_health_have_a_limit(grpcio):
    """Nobody needs a token for one, so they cannot be many; those that go make room."""
    def begin():
        return grpcio.begin("Watch", {}, service="grpc.health.v1.Health", token=None)
    watches = [begin() for _ in range(64)]
    assert [next(w).status for w in watches] == [1] * 64
    with pytest.raises(grpc.RpcError) as caught:
        next(begin())
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert grpcio.call("Check", {}, service="grpc.health.v1.Health", token=None).ok == {"status": "SERVING"}
    for watch in watches:
        watch.cancel()

    def again():
        try:
            return next(begin()).status == 1
        except grpc.RpcError:
            return False
    harness.wait_until(again, 10, "room for another watch")
