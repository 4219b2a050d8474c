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

    def boxes(self):
        return {b["id"]: b["state"] for b in self.ask("GET", "").json()["items"]}

    def show(self, box):
        got = self.ask("GET", f"/{box}").json()
        return got["id"], got["state"]

    def exec(self, box, command, timeout_ms=None, stdin=None, **more):
        wish = {"command": command, "stdin_open": stdin is not None, "timeout_ms": timeout_ms, **more}
        wish = {key: value for key, value in wish.items() if value is not None}
        done = self.ask("POST", f"/{box}/execs" + ("?wait=20000" if stdin is None else ""), json=wish).json()
        if stdin is not None:
            self.ask("POST", f"/{box}/execs/{done['id']}/stdin?eof=1", body=stdin)
            done = self.ask("GET", f"/{box}/execs/{done['id']}?wait=20000").json()
        streams = [self.ask("GET", f"/{box}/execs/{done['id']}/output?stream={s}").body for s in ("stdout", "stderr")]
        return Done(*streams, done["exit_code"], done["timed_out"])

    def stream(self, box, command):
        """As events, while it runs."""
        made = self.ask("POST", f"/{box}/execs", json={"command": command}).json()["id"]
        said = {"stdout": b"", "stderr": b""}
        with self.server.sse(f"{BOXES}/{box}/execs/{made}/output?from=0,0") as events:
            while (event := events.next(20))["event"] != "exit":
                said[event["event"]] += base64.b64decode(event["data"])
        return Done(said["stdout"], said["stderr"], json.loads(event["data"])["exit_code"], False)

    def append(self, box, path, data):
        self.ask("POST", f"/{box}/files/append?path={path}", body=data)

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

    def ask(self, *args, stdin=b""):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
        return subprocess.run([self.server.binary, *args], capture_output=True, timeout=40, input=stdin,
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

    def boxes(self):
        return {b["id"]: b["state"] for b in self.must("ls")["items"]}

    def show(self, box):
        got = self.must("show", box)["sandbox"]
        return got["id"], got["state"]

    def exec(self, box, command, timeout_ms=None, stdin=b"", cwd=None, env=None):
        flags = ["--kill-after", f"{timeout_ms}ms"] if timeout_ms else []
        flags += ["--cwd", cwd] if cwd else []
        flags += [word for name, value in (env or {}).items() for word in ("--env", f"{name}={value}")]
        done = self.ask("exec", *flags, box, "--", "sh", "-c", command, stdin=stdin)
        if done.stderr.startswith(b"atoll: ") and b"(request " in done.stderr:
            raise Refused({2: "not_found", 3: "conflict"}.get(done.returncode, "unprocessable"))
        timed_out = done.stderr.endswith(self.TIME_OVER)
        stderr = done.stderr[:-len(self.TIME_OVER)] if timed_out else done.stderr
        return Done(done.stdout, stderr, done.returncode, timed_out)

    def stream(self, box, command):
        return self.exec(box, command)

    def write(self, box, path, data):
        self.file.write_bytes(data)
        self.must("cp", str(self.file), f"{box}:{path}")

    def read(self, box, path):
        self.file.unlink(missing_ok=True)
        self.must("cp", f"{box}:{path}", str(self.file))
        return self.file.read_bytes()

    list = append = None  # has no such command


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

    def boxes(self):
        return {b.id: b.state for b in self.client.sandboxes.list()}

    def show(self, box):
        got = self.guard(lambda: self.client.sandboxes.get(box))
        return got.id, got.state

    def exec(self, box, command, **options):
        done = self.guard(lambda: self.client.sandboxes.get(box).exec(command, **options))
        return Done(done.stdout, done.stderr, done.exit_code, done.timed_out)

    def stream(self, box, command):
        process, said = self.client.sandboxes.get(box).spawn(command), {"stdout": b"", "stderr": b""}
        for piece in process.output():
            said[piece.stream] += piece.data
        return Done(said["stdout"], said["stderr"], process.wait().exit_code, False)

    def append(self, box, path, data):
        self.guard(lambda: self.client.sandboxes.get(box).files.append(path, data))

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

    def boxes(self):
        return self.ask("boxes")

    def show(self, box):
        return tuple(self.ask("show", id=box))

    def exec(self, box, command, stdin=None, **options):
        if stdin is not None:
            options["stdin"] = base64.b64encode(stdin).decode()
        return self.done(self.ask("exec", id=box, command=command, **options))

    def stream(self, box, command):
        return self.done(self.ask("stream", id=box, command=command))

    @staticmethod
    def done(said):
        return Done(base64.b64decode(said["stdout"]), base64.b64decode(said["stderr"]), said["code"], said["timed_out"])

    def append(self, box, path, data):
        self.ask("append", id=box, path=path, data=base64.b64encode(data).decode())

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
            raise Refused(self.TEXTS.get(text, "unprocessable" if "No such file" in text else text))

    def create(self, name):
        return self.ask("CreateSession", sessionId=name)["session"]["containerId"]

    def delete(self, box):
        if not self.ask("DestroySession", sessionId=box).get("success"):
            raise Refused("not_found")

    def boxes(self):
        return {s["containerId"]: s["status"] for s in self.ask("ListSessions").get("sessions", [])}

    def show(self, box):
        got = self.ask("GetSession", sessionId=box)["session"]
        return got["containerId"], got["status"]

    def exec(self, box, command, timeout_ms=None, cwd=None):
        more = {"timeout": timeout_ms // 1000} if timeout_ms else {"workdir": cwd} if cwd else {}
        got = self.ask("Exec", sessionId=box, command=command, **more)
        streams = [base64.b64decode(got[f"{s}Bytes"]) if f"{s}Bytes" in got else got.get(s, "").encode()
                   for s in ("stdout", "stderr")]
        code, late = got.get("exitCode", 0), got.get("timedOut", False)
        if code == -1 and not late:
            self.refuse(got["stderr"])
        if late:
            assert streams[1].endswith(self.LATE)
            streams[1], code = streams[1][:-len(self.LATE)], 137
        return Done(*streams, 128 - code if code < 0 else code, late)

    def stream(self, box, command):
        got = self.client.call("ExecStream", {"sessionId": box, "command": command})
        assert got.code == "ok" and got.messages[-1]["type"] == "exit", got
        said = {s: b"".join(base64.b64decode(m["dataBytes"]) if "dataBytes" in m else m["data"].encode()
                            for m in got.messages if m["type"] == s) for s in ("stdout", "stderr")}
        code = got.messages[-1]["exitCode"]
        return Done(said["stdout"], said["stderr"], 128 - code if code < 0 else code, False)

    def write(self, box, path, data, mode="w"):
        fields = {"contentBytes": base64.b64encode(data).decode(), "mode": mode}
        self.refuse(self.ask("WriteFile", sessionId=box, path=path, **fields).get("error"))

    def append(self, box, path, data):
        self.write(box, path, data, "a")

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


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("surface", ALL)
def test_a_command_whose_output_is_streamed(surfaces, boxes, surface, what):
    command, want = COMMANDS[what]
    assert surfaces[surface].stream(boxes[surface], command) == want


@pytest.mark.parametrize("surface", ALL)
def test_a_command_in_another_directory(surfaces, boxes, surface):
    done = surfaces[surface].exec(boxes[surface], "pwd", cwd="/usr/share")
    assert done == Done(b"/usr/share\n", b"", 0, False)


INPUTS = {"text": b"one\ntwo\n", "nothing": b"", "bytes": bytes(range(256)) * 8}


@pytest.mark.parametrize("what", INPUTS)
@pytest.mark.parametrize("surface", HERE)
def test_a_command_with_input(surfaces, boxes, surface, what):
    """Not by remote calls: agentbox's Exec takes no input and no environment."""
    assert surfaces[surface].exec(boxes[surface], "cat; echo $A >&2", stdin=INPUTS[what], env={"A": "b c"}) == \
        Done(INPUTS[what], b"b c\n", 0, False)


@pytest.mark.parametrize("surface", ALL)
def test_a_command_that_takes_too_long(surfaces, boxes, surface):
    done = surfaces[surface].exec(boxes[surface], "echo before; sleep 100", timeout_ms=1000)
    assert done == Done(b"before\n", b"", 137, True)


# ---- sandboxes ----

def test_the_same_sandboxes_for_all(server, surfaces, boxes, stopped):
    """Each by its id, with its state; and none after its end, whoever ends it."""
    want = {**{box: "running" for box in boxes.values()}, stopped: "stopped"}
    for name, surface in surfaces.items():
        assert surface.boxes() == want, name
        for box, state in want.items():
            assert surface.show(box) == (box, state), name
    for name, surface in surfaces.items():
        made = surface.create(f"short-{name}")
        assert {s.show(made) for s in surfaces.values()} == {(made, "running")}
        surface.delete(made)
        for other in surfaces.values():
            with pytest.raises(Refused, match="not_found"):
                other.show(made)


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
    for name, appender in surfaces.items():
        if appender.append:
            appender.append(box, path, name.encode() + b"\0\xff")
    appended = b"".join(n.encode() + b"\0\xff" for n, s in surfaces.items() if s.append)
    assert len(appended) > 60 and {s.read(box, path) for s in surfaces.values()} == {FILES[what] + appended}
    lists = {name: s.list(box, ".") for name, s in surfaces.items() if s.list}
    assert len(lists) == 3 and path in lists["rest"]
    assert lists["python"] == lists["typescript"] == lists["rest"]


# ---- what is refused ----

REFUSED = {
    "exec in none": ("not_found", lambda s, box: s.exec("no-such-box", "true")),
    "read in none": ("not_found", lambda s, box: s.read("no-such-box", "f")),
    "write in none": ("not_found", lambda s, box: s.write("no-such-box", "f", b"")),
    "show none": ("not_found", lambda s, box: s.show("no-such-box")),
    "exec nowhere": ("unprocessable", lambda s, box: s.exec(box, "true", cwd="/no/such")),
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
