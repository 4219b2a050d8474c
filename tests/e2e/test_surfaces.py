"""One table of calls, every surface: REST, the command line, both SDKs, gRPC, gRPC-Web and Connect must give the
same result for the same call, also in a sandbox that another surface made.

Each surface is a class with the same methods. What its protocol tells in words of its own (agentbox answers
"Session not found" inside of an answer that is well, and tells a signal as a negative number) is translated here,
and nothing else is: everything compared is what came over the wire.
"""
import base64
import collections
import json
import os
import subprocess
import sys

import pytest

import harness
import rpc
import sdkts

sys.path.insert(0, str(harness.ROOT / "sdk" / "python" / "src"))
import atoll  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
Done = collections.namedtuple("Done", "stdout stderr code timed_out")


class Refused(Exception):
    """A call that was refused, by the API's name of the reason."""


class Rest:
    name = "rest"

    def __init__(self, server, _):
        self.server = server

    def ask(self, method, path, **more):
        reply = self.server.request(method, BOXES + path, timeout=30, **more)
        if reply.status >= 300:
            raise Refused(reply.error["code"])
        return reply

    def create(self, name):
        return self.ask("POST", "", json={"name": name, "storage": "disk"}).json()["id"]

    def delete(self, box):
        self.ask("DELETE", f"/{box}")

    def exec(self, box, command, timeout_ms=None):
        wish = {"command": command, **({"timeout_ms": timeout_ms} if timeout_ms else {})}
        done = self.ask("POST", f"/{box}/execs?wait=20000", json=wish).json()
        streams = [self.ask("GET", f"/{box}/execs/{done['id']}/output?stream={s}").body for s in ("stdout", "stderr")]
        return Done(*streams, done["exit_code"], done["timed_out"])

    def write(self, box, path, data):
        self.ask("PUT", f"/{box}/files?path={path}", body=data)

    def read(self, box, path):
        return self.ask("GET", f"/{box}/files?path={path}").body

    def list(self, box, path):
        return [e["name"] for e in self.ask("GET", f"/{box}/files/list?path={path}").json()["items"]]


class Cli:
    name = "cli"
    TIME_OVER = b"atoll: the command was killed: its time was over\n"

    def __init__(self, server, directory):
        self.server, self.file = server, directory / "cli-file"

    def ask(self, *args):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
        return subprocess.run([self.server.binary, *args], capture_output=True, timeout=40, stdin=subprocess.DEVNULL,
                              env={**clean, "ATOLL_STATE": str(self.server.state)})

    def must(self, *args):
        done = self.ask(*args, "--json")
        if done.returncode:
            raise Refused(json.loads(done.stderr)["error"]["code"])
        return json.loads(done.stdout) if done.stdout else None

    def create(self, name):
        return self.must("create", "--name", name, "--storage", "disk")["id"]

    def delete(self, box):
        self.must("rm", box)

    def exec(self, box, command, timeout_ms=None):
        limit = ["--kill-after", f"{timeout_ms}ms"] if timeout_ms else []
        done = self.ask("exec", *limit, box, "--", "sh", "-c", command)
        if done.stderr.startswith(b"atoll: ") and b"(request " in done.stderr:
            raise Refused({2: "not_found", 3: "conflict"}.get(done.returncode, "invalid"))
        timed_out = done.stderr.endswith(self.TIME_OVER)
        stderr = done.stderr[:-len(self.TIME_OVER)] if timed_out else done.stderr
        return Done(done.stdout, stderr, done.returncode, timed_out)

    def write(self, box, path, data):
        self.file.write_bytes(data)
        self.must("cp", str(self.file), f"{box}:{path}")

    def read(self, box, path):
        self.file.unlink(missing_ok=True)
        self.must("cp", f"{box}:{path}", str(self.file))
        return self.file.read_bytes()

    list = None  # has no such command


class Python:
    name = "python"

    def __init__(self, server, _):
        self.client = atoll.Client(state=str(server.state))

    def guard(self, work):
        try:
            return work()
        except atoll.ApiError as error:
            raise Refused(error.code) from error

    def create(self, name):
        return self.guard(lambda: self.client.sandboxes.create(name=name, storage="disk").id)

    def delete(self, box):
        self.guard(lambda: self.client.sandboxes.get(box).delete())

    def exec(self, box, command, timeout_ms=None):
        done = self.guard(lambda: self.client.sandboxes.get(box).exec(command, timeout_ms=timeout_ms))
        return Done(done.stdout, done.stderr, done.exit_code, done.timed_out)

    def write(self, box, path, data):
        self.guard(lambda: self.client.sandboxes.get(box).files.write(path, data))

    def read(self, box, path):
        return self.guard(lambda: self.client.sandboxes.get(box).files.read(path))

    def list(self, box, path):
        return self.guard(lambda: [e.name for e in self.client.sandboxes.get(box).files.list(path)])

    def close(self):
        self.client.close()


class TypeScript:
    name = "typescript"

    def __init__(self, server, directory):
        sdkts.install(directory)
        script = directory / "surface.mjs"
        script.write_bytes((harness.ROOT / "tests" / "sdk" / "surface.mjs").read_bytes())
        self.node = subprocess.Popen(["node", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     env={**os.environ, "ATOLL_STATE": str(server.state)})

    def ask(self, call, **args):
        self.node.stdin.write(json.dumps({"call": call, **args}) + "\n")
        self.node.stdin.flush()
        answer = json.loads(self.node.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["ok"]

    def create(self, name):
        return self.ask("create", name=name)

    def delete(self, box):
        self.ask("delete", id=box)

    def exec(self, box, command, timeout_ms=None):
        done = self.ask("exec", id=box, command=command, **({"timeout_ms": timeout_ms} if timeout_ms else {}))
        return Done(base64.b64decode(done["stdout"]), base64.b64decode(done["stderr"]), done["code"], done["timed_out"])

    def write(self, box, path, data):
        self.ask("write", id=box, path=path, data=base64.b64encode(data).decode())

    def read(self, box, path):
        return base64.b64decode(self.ask("read", id=box, path=path))

    def list(self, box, path):
        return self.ask("list", id=box, path=path)

    def close(self):
        self.node.stdin.close()
        self.node.wait(10)
        self.node.stdout.close()


class Remote:
    """agentbox's SandboxService, by one of the client libraries."""
    CODES = {"not_found": "not_found", "failed_precondition": "conflict", "invalid_argument": "invalid"}
    TEXTS = {"Session not found": "not_found", "File not found": "not_found"}
    LATE = b"Command timed out"

    def __init__(self, server, transport):
        self.name, self.client = transport, rpc.open_transport(server, transport)

    def ask(self, method, **fields):
        got = self.client.call(method, fields)
        if got.code != "ok":
            raise Refused(self.CODES.get(got.code, got.code))
        return got.ok

    def refuse(self, text):
        if text:
            raise Refused(self.TEXTS.get(text, text))

    def create(self, name):
        return self.ask("CreateSession", sessionId=name)["session"]["containerId"]

    def delete(self, box):
        if not self.ask("DestroySession", sessionId=box).get("success"):
            raise Refused("not_found")

    def exec(self, box, command, timeout_ms=None):
        limit = {"timeout": timeout_ms // 1000} if timeout_ms else {}
        got = self.ask("Exec", sessionId=box, command=command, **limit)
        streams = [base64.b64decode(got[f"{s}Bytes"]) if f"{s}Bytes" in got else got.get(s, "").encode()
                   for s in ("stdout", "stderr")]
        code, late = got.get("exitCode", 0), got.get("timedOut", False)
        if code == -1 and not late:
            self.refuse(got["stderr"])
        if late:
            assert streams[1].endswith(self.LATE)
            streams[1], code = streams[1][:-len(self.LATE)], 137
        return Done(*streams, 128 - code if code < 0 else code, late)

    def write(self, box, path, data):
        fields = {"contentBytes": base64.b64encode(data).decode()}
        self.refuse(self.ask("WriteFile", sessionId=box, path=path, **fields).get("error"))

    def read(self, box, path):
        got = self.ask("ReadFile", sessionId=box, path=path, binary=True)
        self.refuse(got.get("error"))
        return base64.b64decode(got.get("contentBytes", ""))

    list = None  # agentbox has no such call

    def close(self):
        self.client.close()


HERE = {"rest": Rest, "cli": Cli, "python": Python, "typescript": TypeScript}
REMOTE = ["grpcio", "grpc-js", "connect-node-json", "connect-node-binary", "connect-web-json", "connect-web-grpc-web"]
ALL = [*HERE, *REMOTE]


@pytest.fixture(scope="module")
def surfaces(server, node_modules, tmp_path_factory):
    found = {name: kind(server, tmp_path_factory.mktemp(name)) for name, kind in HERE.items()}
    found.update({name: Remote(server, name) for name in REMOTE})
    yield found
    for surface in found.values():
        getattr(surface, "close", lambda: None)()


@pytest.fixture(scope="module")
def boxes(server, surfaces):
    """A sandbox by each surface: {surface: id}."""
    made = {name: surface.create(f"made-by-{name}") for name, surface in surfaces.items()}
    yield made
    for name, box in made.items():
        surfaces[name].delete(box)
    assert server.get(BOXES).json()["items"] == []


# ---- commands ----

COMMANDS = {
    "output": ("echo out", Done(b"out\n", b"", 0, False)),
    "errors and an exit code": ("echo err >&2; exit 7", Done(b"", b"err\n", 7, False)),
    "nothing": ("true", Done(b"", b"", 0, False)),
    "the highest exit code": ("exit 255", Done(b"", b"", 255, False)),
    "a program that is not there": ("no-such-program 2>/dev/null", Done(b"", b"", 127, False)),
    "a signal": ("kill -9 $$", Done(b"", b"", 137, False)),
    "where it runs, and who": ("pwd; id -u; echo $HOME",
                               # check-style: allow machine-path: inside every sandbox
                               Done(b"/workspace\n1000\n/home/agent\n", b"", 0, False)),
    "bytes that are no text": (r"printf 'a\377\000b'; printf '\303' >&2", Done(b"a\xff\0b", b"\xc3", 0, False)),
    "text that is not ASCII": ("printf 'gr\u00fcn \u2713'", Done("grün ✓".encode(), b"", 0, False)),
    "much of it": ("head -c 300000 /dev/zero | tr '\\0' x", Done(b"x" * 300000, b"", 0, False)),
}


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("surface", ALL)
def test_a_command(surfaces, boxes, surface, what):
    command, want = COMMANDS[what]
    assert surfaces[surface].exec(boxes[surface], command) == want


@pytest.mark.parametrize("surface", ALL)
def test_a_command_that_takes_too_long(surfaces, boxes, surface):
    done = surfaces[surface].exec(boxes[surface], "echo before; sleep 100", 1000)
    assert done == Done(b"before\n", b"", 137, True)


# ---- files ----

FILES = {"text": b"hello\n", "empty": b"", "bytes": bytes(range(256)), "large": bytes(range(256)) * 4000}


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("writer", ALL)
def test_a_file_is_the_same_to_all(surfaces, boxes, writer, what):
    """Written through one surface, in the sandbox of another, and read through every one."""
    box, path = boxes[ALL[ALL.index(writer) - 1]], f"{what}-{writer}"
    surfaces[writer].write(box, path, FILES[what])
    for name, reader in surfaces.items():
        assert reader.read(box, path) == FILES[what], name
    lists = {name: s.list(box, ".") for name, s in surfaces.items() if s.list}
    assert len(lists) == 3 and path in lists["rest"]
    assert lists["python"] == lists["typescript"] == lists["rest"]


# ---- what is refused ----

REFUSED = {
    "exec in none": ("not_found", lambda s, box: s.exec("no-such-box", "true")),
    "read in none": ("not_found", lambda s, box: s.read("no-such-box", "f")),
    "write in none": ("not_found", lambda s, box: s.write("no-such-box", "f", b"")),
    "delete none": ("not_found", lambda s, box: s.delete("no-such-box")),
    "read no file": ("not_found", lambda s, box: s.read(box, "no-such-file")),
    "exec in a stopped one": ("conflict", lambda s, box: s.exec(box, "true")),
    "read in a stopped one": ("conflict", lambda s, box: s.read(box, "f")),
    "write in a stopped one": ("conflict", lambda s, box: s.write(box, "f", b"")),
}


@pytest.fixture(scope="module")
def stopped(server):
    box = server.post(BOXES, {"storage": "disk", "name": "stopped"}).json()["id"]
    assert server.post(f"{BOXES}/{box}/stop").status == 200
    yield box
    assert server.delete(f"{BOXES}/{box}").status == 200


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("surface", ALL)
def test_what_is_refused(surfaces, boxes, stopped, surface, what):
    code, call = REFUSED[what]
    with pytest.raises(Refused) as caught:
        call(surfaces[surface], stopped if "stopped" in what else boxes[surface])
    assert str(caught.value) == code
