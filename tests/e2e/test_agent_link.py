"""Linked agents: our own client and another one over grpcio; what is lost when either side is killed (nothing)."""
import hashlib
import json
import os
import random
import re
import subprocess
import threading
import time
import uuid
from concurrent import futures

import grpc
import harness
import pytest
from agents import Client, M, Peer, SERVICE
from terminal import Ws

AGENTS = "/api/v1/agents"


@pytest.fixture
def agent_id():
    return f"agent-{uuid.uuid4().hex[:8]}"


def secret_of(server, agent):
    reply = server.post("/api/v1/secrets", {"agent_id": agent})
    assert reply.status == 201, reply
    return reply.json()["secret"]


@pytest.fixture
def client(server, agent_id, tmp_path):
    client = Client(server, agent_id, secret_of(server, agent_id), tmp_path).start()
    yield client
    assert client.stop() == 0, client.log()


@pytest.fixture
def peer(server, agent_id):
    peers = []

    def make(secret=None, agent=agent_id, **options):
        peers.append(Peer(server, agent, secret or secret_of(server, agent), **options))
        return peers[-1]

    yield make
    for one in peers:
        one.close()


def run(server, agent, command, *args, wait=20000, **wish):
    reply = server.post(f"{AGENTS}/{agent}/commands?wait={wait}", {"command": command, "args": list(args), **wish},
                        timeout=40)
    assert reply.status == 201, reply
    return reply.json()


def output(server, agent, command, stream="stdout"):
    got, at = b"", 0
    while True:
        reply = server.get(f"{AGENTS}/{agent}/commands/{command}/output?stream={stream}&from={at}")
        assert reply.status == 200, reply
        got += reply.body
        if int(reply.headers["x-atoll-next"]) == at:
            return got
        at = int(reply.headers["x-atoll-next"])


def wait_end(server, agent, command, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            reply = server.get(f"{AGENTS}/{agent}/commands/{command}?wait=2000")
        except OSError:
            continue
        if reply.status == 200 and reply.json()["state"] != "running":
            return reply.json()
    raise AssertionError(f"{command} did not end: {reply}")


# ---- our client ----

def test_a_command_runs_and_says_everything_about_itself(server, client):
    done = run(server, client.agent, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done["state"], done["exit_code"], done["error"], done["gap"]) == ("exited", 3, None, False)
    assert output(server, client.agent, done["command_id"]) == b"out\n"
    assert output(server, client.agent, done["command_id"], "stderr") == b"err\n"
    agent = server.get(f"{AGENTS}/{client.agent}").json()
    assert agent["runtime"] == "link" and agent["system_info"]["cpu_cores"] == os.cpu_count()
    assert agent["metrics"]["memory_total_bytes"] > 0 and agent["instance_id"][14] == "7"
    assert client.agent in [a["id"] for a in server.get(AGENTS).json()["agents"]]
    harness.wait_until(lambda: not list((client.dir / "commands").iterdir()), 10, "the client to forget it")


@pytest.mark.parametrize("manifest, told", [
    ({"aiwg_frameworks": [{"name": "sdlc", "providers": ["claude", "x" * 10000, 7]}, {"providers": []}, "no"]},
     [{"name": "sdlc", "providers": ["claude"]}]),
    ({"aiwg_frameworks": [{"name": f"f{i}", "providers": ["p"] * 17} for i in range(33)]},
     [{"name": f"f{i}", "providers": ["p"] * 16} for i in range(32)]),
    ({"aiwg_frameworks": {"name": "sdlc"}}, []), ("no JSON", []),
])
def test_it_says_what_its_loadout_left(server, agent_id, tmp_path, manifest, told):
    (tmp_path / ".loadout-manifest.json").write_text(json.dumps(manifest) if isinstance(manifest, dict) else manifest)
    client = Client(server, agent_id, secret_of(server, agent_id), tmp_path, HOME=str(tmp_path)).start()
    try:
        assert server.get(f"{AGENTS}/{agent_id}").json().get("aiwg_frameworks", []) == told
    finally:
        assert client.stop() == 0, client.log()


@pytest.mark.parametrize("wish, code, error, out", [
    ({"command": "/no/such"}, -1, "cannot start /no/such: No such file", b""),
    ({"command": "pwd", "working_dir": "/no/such"}, -1, "cannot start pwd", b""),
    ({"command": "pwd", "working_dir": "/tmp"}, 0, None, b"/tmp\n"),
    ({"command": "sh", "args": ["-c", "echo $A$AGENT_SECRET"], "env": {"A": "b c"}}, 0, None, b"b c\n"),
    ({"command": "sh", "args": ["-c", "echo begun; sleep 60"], "timeout_seconds": 1}, -1, "Command timed out",
     b"begun\n"),
    ({"command": "sh", "args": ["-c", "kill -9 $$"]}, 137, None, b""),
    ({"command": "printf", "args": ["%s|", "a b", "", "c'd", "\n"]}, 0, None, b"a b||c'd|\n|"),
    ({"command": "sh", "args": ["-c", "(sleep 3 &) ; echo parent"]}, 0, None, b"parent\n"),
    ({"command": "true", "run_as": "root"} if os.geteuid() == 0 else {"command": "true"}, 0, None, b""),
])
def test_how_commands_end(server, client, wish, code, error, out):
    done = server.post(f"{AGENTS}/{client.agent}/commands?wait=20000", wish, timeout=40).json()
    assert done["exit_code"] == code, done
    assert (done["error"] or "").startswith(error or "") and bool(done["error"]) == bool(error), done
    assert output(server, client.agent, done["command_id"]) == out


CLAUDE = """#!/bin/sh
pwd; for word; do printf '[%s]' "$word"; done; cat; echo end
"""
TASK = {"prompt": "--fix 'it'", "task_id": "t1", "session_id": "s1", "model": "m",
        "allowed_tools": ["Read", "Bash(ls *)"], "mcp_config": {"mcpServers": {}}}


def test_a_task_runs_the_agents_program_with_these_words(server, agent_id, tmp_path):
    (tmp_path / "claude").write_text(CLAUDE)
    (tmp_path / "claude").chmod(0o755)
    client = Client(server, agent_id, secret_of(server, agent_id), tmp_path, ANTHROPIC_API_KEY="key",
                    PATH=f"{tmp_path}:{os.environ['PATH']}").start()

    def task(config, **wish):
        wish.update(command="__claude_task__", args=[config if isinstance(config, str) else json.dumps(config)])
        return server.post(f"{AGENTS}/{agent_id}/commands?wait=20000", wish, timeout=40).json()

    try:
        done = task({**TASK, "working_dir": str(tmp_path)})
        assert (done["exit_code"], done["error"]) == (0, None), done
        words = ["--print", "--dangerously-skip-permissions", "--output-format", "stream-json", "--session-id", "s1",
                 "--model", "m", "--mcp-config", '{"mcpServers":{}}', "--allowedTools", "Read,Bash(ls *)",
                 "--", "--fix 'it'"]
        assert output(server, agent_id, done["command_id"]).decode() == (
            f"{tmp_path}\n" + "".join(f"[{w}]" for w in words) + "end\n")
        done = task({"prompt": "p", "working_dir": str(tmp_path), "api_key_env": "OTHER"}, env={"OTHER": "k"})
        assert done["exit_code"] == 0 and b"[stream-json][--][p]" in output(server, agent_id, done["command_id"])
        for config, why in (("no JSON", "one argument, a JSON object"), ("[]", "one argument"), ({}, "needs prompt"),
                            ({"prompt": "p"}, "needs prompt and working_dir"),
                            ({"prompt": "p", "working_dir": "/no/such"}, "is no directory here"),
                            ({"prompt": "p", "working_dir": "/", "api_key_env": "NONE_SUCH"}, "NONE_SUCH is not set")):
            done = task(config)
            assert done["exit_code"] == -1 and why in done["error"], done
    finally:
        assert client.stop() == 0, client.log()


def test_input_signals_and_terminals(server, client):
    made = run(server, client.agent, "cat", wait=0)
    path = f"{AGENTS}/{client.agent}/commands/{made['command_id']}"
    assert server.post(f"{path}/stdin", {"text": "one\n"}).status == 200
    assert server.post(f"{path}/stdin", {"text": "two", "eof": True}).status == 200
    assert wait_end(server, client.agent, made["command_id"])["exit_code"] == 0
    assert output(server, client.agent, made["command_id"]) == b"one\ntwo"
    assert server.post(f"{path}/stdin", {"text": "x"}).status == 409
    made = run(server, client.agent, "sh", "-c", "sleep 60 & wait", wait=0)
    path = f"{AGENTS}/{client.agent}/commands/{made['command_id']}"
    assert server.post(f"{path}/resize", {"rows": 10, "cols": 20}).status == 409  # no terminal
    assert server.post(f"{path}/signal", {"signal": "NONE"}).status == 400
    assert server.post(f"{path}/signal", {"signal": "TERM"}).status == 200
    assert wait_end(server, client.agent, made["command_id"])["exit_code"] == 143
    made = run(server, client.agent, "stty size; read x; stty size; echo $TERM; tty >/dev/null && echo tty", wait=0,
               allocate_pty=True, pty_rows=33, pty_cols=99, session_name="main")
    path = f"{AGENTS}/{client.agent}/commands/{made['command_id']}"
    harness.wait_until(lambda: b"33 99" in output(server, client.agent, made["command_id"]), 20, "the first size")
    assert server.post(f"{path}/resize", {"rows": 40, "cols": 120}).status == 200
    assert server.post(f"{path}/stdin", {"text": "\n"}).status == 200
    assert wait_end(server, client.agent, made["command_id"])["exit_code"] == 0
    shown = output(server, client.agent, made["command_id"])
    assert b"40 120" in shown and b"xterm-256color" in shown and b"tty" in shown, shown


def test_the_secret_is_not_left_lying_about(server, client):
    secret = client.env["AGENT_SECRET"].encode()
    made = run(server, client.agent, "sh", "-c", "sleep 30", wait=0)
    harness.wait_until(lambda: len(harness.descendants(client.process.pid)) >= 2, 15, "keeper and command")
    for pid in harness.descendants(client.process.pid):
        assert secret not in open(f"/proc/{pid}/environ", "rb").read()
        assert secret not in open(f"/proc/{pid}/cmdline", "rb").read()
    assert os.stat(f"/proc/{client.process.pid}/environ").st_uid == 0  # not ours to read, unless we are root
    for path in client.dir.rglob("*"):
        assert not path.is_file() or secret not in path.read_bytes(), path
    server.post(f"{AGENTS}/{client.agent}/commands/{made['command_id']}/signal", {"signal": "KILL"})
    assert wait_end(server, client.agent, made["command_id"])["exit_code"] == 137


TRUTH = "i=0; while [ $i -lt 40000 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done; exit 7"


def truth(word):
    return b"".join(f"{word} {i}\n".encode() for i in range(40000))


@pytest.mark.timeout(240)
def test_kill_9_of_either_side_loses_and_doubles_nothing(start_server, tmp_path):
    server = start_server()
    client = Client(server, "a1", secret_of(server, "a1"), tmp_path).start()
    random.seed(7)
    try:
        made = [run(server, "a1", "sh", "-c", TRUTH, wait=0) for _ in range(2)]
        for turn in range(6):
            time.sleep(random.uniform(0.02, 0.4))
            if turn % 2:
                server.kill9_api()
                server.wait_ready(30)
            else:
                client.kill9()
                client.start(wait=False)
        harness.wait_until(client.connected, 60, f"the agent to connect again:\n{client.log()}", 0.05)
        for command in made:
            done = wait_end(server, "a1", command["command_id"], 120)
            assert (done["state"], done["exit_code"], done["error"], done["gap"]) == ("exited", 7, None, False), done
            for stream, word in (("stdout", "line"), ("stderr", "err")):
                got = output(server, "a1", command["command_id"], stream)
                assert hashlib.sha256(got).digest() == hashlib.sha256(truth(word)).digest(), (len(got), stream)
    finally:
        client.stop()


@pytest.mark.timeout(120)
def test_a_command_that_ends_while_the_server_is_away(start_server, tmp_path):
    server = start_server()
    client = Client(server, "a1", secret_of(server, "a1"), tmp_path).start()
    made = run(server, "a1", "sh", "-c", "read x; echo got $x; exit 5", wait=0)
    path = f"{AGENTS}/a1/commands/{made['command_id']}/stdin"
    assert server.post(path, {"text": "it\n"}).status == 200
    server.stop(remove=False)
    client.kill9()
    harness.wait_until(lambda: list((client.dir / "commands").rglob("result")), 20, "the result")
    server.start()
    client.start(wait=False)
    try:
        done = wait_end(server, "a1", made["command_id"])
        assert (done["state"], done["exit_code"]) == ("exited", 5)
        assert output(server, "a1", made["command_id"]) == b"got it\n"
    finally:
        client.stop()


@pytest.mark.timeout(180)
def test_a_server_that_is_away_costs_a_bounded_file(start_server, tmp_path):
    """40 MiB while nobody takes them: the command waits at 16, and not a byte is lost."""
    server = start_server()
    client = Client(server, "a1", secret_of(server, "a1"), tmp_path).start()
    script = "import sys, hashlib\nd = b''.join(hashlib.sha256(b'%d' % i).digest() for i in range(32768))\n" \
             "sys.stdin.readline()\nfor i in range(40): sys.stdout.buffer.write(d[i:] + d[:i])\n"
    made = run(server, "a1", "/usr/bin/python3", "-c", script, wait=0)
    path = client.dir / "commands" / made["command_id"]
    assert server.post(f"{AGENTS}/a1/commands/{made['command_id']}/stdin", {"text": "go\n"}).status == 200
    server.stop(remove=False)
    held = lambda: (path / "out").stat().st_size  # noqa: E731
    harness.wait_until(lambda: held() >= 16 << 20, 30, "16 MiB to be held")
    time.sleep(0.3)
    assert held() <= (16 << 20) + 65536 and not (path / "result").exists()
    server.start()
    try:
        done = wait_end(server, "a1", made["command_id"], 90)
        assert (done["exit_code"], done["stdout_bytes"], done["gap"]) == (0, 40 << 20, False)
        data = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(32768))
        want = b"".join(data[i:] + data[:i] for i in range(40))
        assert output(server, "a1", made["command_id"]) == want
    finally:
        client.stop()


def test_a_second_client_does_not_share_a_directory(server, client):
    other = Client(server, client.agent, "x" * 64, client.dir.parent).start(wait=False)
    assert other.process.wait(20) == 3
    assert "another agent-client uses" in client.log()


class Elsewhere(grpc.GenericRpcHandler):
    """A server of agentic's: says what the test wants to one agent, and keeps what it hears."""

    def __init__(self, *says):
        self.says, self.heard, self.metadata = says, [], {}
        self.server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[self])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def service(self, details):
        assert details.method == SERVICE + "Connect"
        return grpc.stream_stream_rpc_method_handler(self.connect, M["AgentMessage"].FromString,
                                                     lambda m: m.SerializeToString())

    def connect(self, messages, context):
        self.metadata = dict(context.invocation_metadata())
        self.heard.append(next(messages))
        for one in self.says:
            yield M["ManagementMessage"](**one)
        for message in messages:
            self.heard.append(message)

    def kinds(self):
        return [m.WhichOneof("payload") for m in self.heard]


def test_the_client_with_a_server_of_agentics(agent_id, tmp_path):
    """Its letters, its variables, a heartbeat in seconds, and a shutdown that leaves the grace."""
    there = Elsewhere({"registration_ack": M["RegistrationAck"](accepted=True)},
                      {"shutdown": M["ShutdownSignal"](reason="maintenance", grace_period_seconds=3)})
    env = {**os.environ, "LOG_FORMAT": "json", "RUST_LOG": "info,other=debug"}
    client = subprocess.Popen([harness.BIN, "agent-client", "-s", f"127.0.0.1:{there.port}", "-i", agent_id,
                               "-S", "s" * 64, "-H", "1", "--dir", str(tmp_path / "dir")], env=env,
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        harness.wait_until(lambda: "registration" in there.kinds(), 20, "the agent")
        begun = time.monotonic()
        log = client.communicate(timeout=60 * harness.SLOW)[1]
        assert client.returncode == 0 and time.monotonic() - begun >= 2.5, log
        assert there.metadata["x-agent-id"] == agent_id and there.metadata["x-agent-secret"] == "s" * 64
        beats = [m.heartbeat.status for m in there.heard if m.WhichOneof("payload") == "heartbeat"]
        assert len(beats) >= 3 and beats[-1] == 5 and beats[0] != 5, beats  # every second, and in the end that it goes
        assert "maintenance" in [json.loads(line) for line in log.splitlines()][-1].values(), log
    finally:
        client.kill()
        there.server.stop(None)
    for wrong, why in ((["-H", "0"], "1 to 3600"), (["--heartbeat", "soon"], "not a time")):
        done = subprocess.run([harness.BIN, "agent-client", "-S", "x", *wrong], capture_output=True, text=True)
        assert done.returncode != 0 and why in done.stderr, done
    quiet = subprocess.Popen([harness.BIN, "agent-client", "-s", "127.0.0.1:1", "-S", "x", "--dir",
                              str(tmp_path / "two")],
                             env={**os.environ, "RUST_LOG": "error"}, stderr=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        quiet.communicate(timeout=1)
    quiet.terminate()
    assert quiet.communicate()[1] == b"", "that it is not connected is a warning"


def test_a_new_secret_comes_over_the_link(server, client, agent_id):
    old = client.env["AGENT_SECRET"]
    reply = server.post(f"{AGENTS}/{agent_id}/rotate-secret?grace_seconds=60")
    assert reply.status == 202 and reply.json()["grace_seconds"] == 60, reply
    harness.wait_until(lambda: (client.dir / "secret").exists(), 15, "the new secret")
    assert (client.dir / "secret").stat().st_mode & 0o777 == 0o600
    row = next(s for s in server.get("/api/v1/secrets").json()["items"] if s["name"] == agent_id)
    assert row["rotation_pending"]
    client.kill9()
    client.start()
    harness.wait_until(lambda: not next(s for s in server.get("/api/v1/secrets").json()["items"]
                                        if s["name"] == agent_id)["rotation_pending"], 10, "the end of the rotation")
    stale = Peer(server, agent_id, old)
    assert stale.end() == (grpc.StatusCode.UNAUTHENTICATED, "Invalid agent secret")
    stale.close()
    operation = server.get(f"/api/v1/operations/{reply.json()['operation_id']}").json()
    assert (operation["type"], operation["status"], operation["target"]) == ("secret_rotation", "completed", agent_id)
    assert server.post(f"{AGENTS}/nobody/rotate-secret").status == 404


def test_who_is_away_gets_no_new_secret(server, client, agent_id):
    """It would not learn of it; the old one goes on to be good."""
    health = server.get("/api/v1/health").json()
    assert health["agents"]["connected"] >= health["agents"]["ready"] >= 1 and health["uptime_seconds"] >= 0
    client.stop()
    harness.wait_until(lambda: server.get("/api/v1/health").json()["agents"]["connected"] <
                       health["agents"]["connected"], 10, "its end")
    reply = server.post(f"{AGENTS}/{agent_id}/rotate-secret")
    assert (reply.status, reply.json()["error"]) == (404, f"Agent '{agent_id}' is not connected")
    row = next(s for s in server.get("/api/v1/secrets").json()["items"] if s["name"] == agent_id)
    assert not row["rotation_pending"]
    client.start()


def test_agentics_socket_tells_of_it(server, client, agent_id):
    """Listed, and how it does; a subscription to it is none to all sandboxes."""
    box = server.post("/api/v1/sandboxes", {"name": "not-it"}).json()["id"]
    with Ws(server, "/ws") as ws:
        def until(kind):
            while True:
                said = json.loads(ws.recv()[1])
                if said["type"] == kind:
                    return said
        ws.send({"type": "list_agents"})
        agents = {a["id"]: a for a in until("agent_list")["agents"]}
        assert agents[agent_id]["status"] in ("Ready", "Busy") and agents["not-it"]["status"] == "Ready"
        ws.send({"type": "subscribe", "agent_id": agent_id})
        for _ in range(2):
            told = until("metrics_update")
            assert told["agent_id"] == agent_id and told["memory_total_bytes"] > 0 and len(told["load_avg"]) == 3
            assert told["cpu_cores"] > 0 and told["kernel"]
    assert server.delete(f"/api/v1/sandboxes/{box}").status == 200


class Hub(Ws):
    def take(self, **want):
        """The first message with these members; the output of each command before it is in `out`."""
        self.out, end = getattr(self, "out", {}), time.monotonic() + 20 * harness.SLOW
        while True:
            assert time.monotonic() < end, want
            said = json.loads(self.recv()[1])
            if said["type"] == "output":
                self.out[said["command_id"]] = self.out.get(said["command_id"], "") + said["data"]
            if all(said.get(k) == v for k, v in want.items()):
                return said
            assert said["type"] != "error", said

    def ask(self, kind, answer, **members):
        self.send({"type": kind, **members})
        return self.take(type=answer)

    def printed(self, command, what):
        while what not in self.out.get(command, ""):
            self.take(type="output", command_id=command)


@pytest.mark.parametrize("name", ["*", None])
def test_a_subscriber_sees_every_command_of_it_however_short(server, client, agent_id, name):
    def begin(i):
        reply = server.post(f"{AGENTS}/{agent_id}/commands", {"command": "echo", "args": [f"z{i}"]})
        assert reply.status in (200, 201, 202), reply
        return reply.json()["command_id"]

    def seen(ws, ids):
        completed = []
        while len(completed) < len(ids):
            completed.append(ws.take(type="command_completed")["command_id"])
        assert sorted(completed) == sorted(ids)
        assert {one: ws.out[one] for one in ids} == {one: f"z{i}\n" for i, one in enumerate(ids)}

    with Hub(server, "/ws") as ws:
        ws.ask("subscribe", "subscribed", agent_id=name or agent_id)
        for i in range(10):  # one after the other
            one = begin(i)
            ws.take(type="command_completed", command_id=one)
            assert ws.out[one] == f"z{i}\n"
        seen(ws, [begin(i) for i in range(20)])


def test_commands_of_it_over_agentics_socket(server, client, agent_id):
    """Begun, typed to, listed, attached, resized, killed there; what others begin is told to who subscribed."""
    at = {"agent_id": agent_id}
    with Hub(server, "/ws") as ws, Hub(server, "/ws") as all_:
        all_.ask("subscribe", "subscribed", agent_id="*")
        begun = ws.ask("send_command", "command_started", **at, command="sh",
                       args=["-c", "echo $0; cat; exit 6", "a b"])
        cid = begun["command_id"]
        assert begun["agent_id"] == agent_id and begun["command"] == "sh"
        ws.printed(cid, "a b\n")
        assert ws.ask("send_input", "input_sent", **at, command_id=cid, data="t\u00e9xt\n")["command_id"] == cid
        ws.printed(cid, "t\u00e9xt\n")
        all_.printed(cid, "t\u00e9xt\n")
        sessions = ws.ask("list_sessions", "session_list", **at)["sessions"]
        assert [(s["command_id"], s["session_type"], s["running"]) for s in sessions] == [(cid, "headless", True)]
        assert server.post(f"{AGENTS}/{agent_id}/commands/{cid}/stdin", {"eof": True}).status == 200
        ended = ws.take(type="command_completed", command_id=cid)
        assert (ended["exit_code"], ended["agent_id"]) == (6, agent_id) and ended["duration_ms"] >= 0
        assert all_.take(type="command_completed", command_id=cid)["exit_code"] == 6
        assert all_.out[cid] == "a b\nt\u00e9xt\n"

        made = ws.ask("create_session", "session_created", **at, session_name="work", command="sh",
                      args=["-c", "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done"], cols=100, rows=30)
        cid = made["command_id"]
        assert (made["session_id"], made["session_name"], made["session_type"]) == (cid, "work", "interactive")
        ws.printed(cid, "30 100")
        again = ws.ask("create_session", "session_created", **at, session_name="work", command="other")
        assert again["command_id"] == cid, "one of this name is not begun twice"
        ws.ask("pty_resize", "pong", **at, command_id=cid, cols=90, rows=20)
        ws.printed(cid, "20 90")
        with Hub(server, "/ws") as late:
            assert late.ask("attach_session", "session_attached", **at, session_name="work", cols=80,
                            rows=25)["command_id"] == cid
            late.printed(cid, "30 100")
            late.printed(cid, "25 80")
        shells = [ws.ask("start_shell", "shell_started", **at)["command_id"] for _ in range(2)]
        assert shells[0] == shells[1] != cid
        for name, command in (("work", cid), ("main", shells[0])):
            assert ws.ask("kill_session", "session_killed", **at, session_name=name)["command_id"] == command
            assert ws.take(type="command_completed", command_id=command)["exit_code"] == 137
        rows = server.get("/api/v1/audit?limit=1000").json()["items"]
        rows = [r["action"] for r in rows if r["object"] == f"agent/{agent_id}" and r["outcome"] == "ok"]
        assert rows.count("command.create") == 3 and rows.count("command.signal") == 2, rows


def test_a_session_in_the_background_stays_one(server, client, agent_id):
    at = {"agent_id": agent_id}
    with Hub(server, "/ws") as ws:
        made = ws.ask("create_session", "session_created", **at, session_name="quiet", session_type="background",
                      command="sleep", args=["100"])
        assert made["session_type"] == "background"
    server.kill9_api()
    server.wait_ready()
    listed = server.get(f"{AGENTS}/{agent_id}/sessions").json()["sessions"]
    assert [(s["session_name"], s["session_type"], s["has_screen"]) for s in listed] == [("quiet", "background", False)]
    assert server.get(f"{AGENTS}/{agent_id}/commands/{made['command_id']}").json()["background"] is True
    assert server.delete(f"{AGENTS}/{agent_id}/sessions/quiet").status == 204


def test_sessions_of_it_by_requests(server, client, agent_id):
    """Made, listed, watched over the socket, killed by name and by id, as those of sandboxes."""
    sessions = f"{AGENTS}/{agent_id}/sessions"
    assert server.get(sessions).json() == {"agent_id": agent_id, "sessions": []}
    reply = server.post(sessions, {"command": "sh", "args": ["-c", 'stty size; echo "$0"; sleep 1000', "a  b"],
                                   "session_name": "work", "working_dir": "/tmp"})
    assert reply.status == 200, reply
    made = reply.json()
    assert made["session_id"] == made["command_id"] and made["session_name"] == "work" and made["instance_id"]
    assert made["ws_endpoint"].endswith("/ws")
    (listed,) = server.get(sessions).json()["sessions"]
    assert (listed["session_id"], listed["session_name"], listed["session_type"], listed["has_screen"]) == (
        made["session_id"], "work", "interactive", False)
    assert listed["created_at_secs"] >= 0
    (told,) = [s for s in server.get("/api/v1/sessions").json() if s["agent_id"] == agent_id]
    assert (told["session_id"], told["name"], told["attachment_count"]) == (made["session_id"], "work", 0)
    with Hub(server, "/ws") as ws:
        ws.send(made["join_message"])
        assert ws.take(type="session_attached")["command_id"] == made["command_id"]
        ws.printed(made["command_id"], "50 220\r\na  b")
    again = server.post(sessions, {"session_name": "work"})
    assert again.status == 409 and "work" in again.json()["error"], again
    shell = server.post(sessions).json()
    assert re.fullmatch(r"terminal-[0-9a-f]{8}", shell["session_name"])
    # Without a terminal it is asked to end, with one it is killed.
    quiet = server.post(f"{AGENTS}/{agent_id}/commands",
                        {"command": "sleep", "args": ["1000"], "session_name": "quiet"})
    kinds = {s["session_name"]: s["session_type"] for s in server.get(sessions).json()["sessions"]}
    assert kinds == {"work": "interactive", "quiet": "headless", shell["session_name"]: "interactive"}
    for name in ("work", "quiet"):
        assert server.delete(f"{sessions}/{name}").status == 204
    assert wait_end(server, agent_id, made["command_id"])["exit_code"] == 137
    assert wait_end(server, agent_id, quiet.json()["command_id"])["exit_code"] == 143
    assert server.delete(f"{sessions}/work").status == 404
    reply = server.delete(f"/api/v1/sessions/{shell['session_id']}?signal=USR1")
    assert reply.status == 400 and "TERM" in reply.json()["supported"], reply
    reply = server.delete(f"/api/v1/sessions/{shell['session_id']}?signal=SIGHUP")
    assert reply.json() == {"session_id": shell["session_id"], "signal": 1, "status": "signaled"}
    wait_end(server, agent_id, shell["session_id"])
    assert server.delete(f"/api/v1/sessions/{shell['session_id']}").status == 404
    actions = [r["action"] for r in server.get("/api/v1/audit?limit=1000").json()["items"]
               if r["object"] == f"agent/{agent_id}" and r["outcome"] == "ok"]
    assert [actions.count(a) for a in ("session.create", "session.kill_of", "session.kill")] == [2, 2, 1], actions


def test_what_requests_about_its_sessions_are_refused(server, client, agent_id):
    sessions = f"{AGENTS}/{agent_id}/sessions"
    for wish, status in (({"session_backend": "screen"}, 501), ({"session_name": "x" * 64}, 400), ({"colour": 1}, 400),
                         ({"args": ["x" * 131072]}, 400), ({"command": "x" * 131072}, 400),
                         ({"session_name": "x" * 63, "command": "true"}, 200)):
        reply = server.post(sessions, wish)
        assert reply.status == status, (str(wish)[:40], reply)
        if status != 200:
            assert isinstance(reply.json()["error"], str)
    looks = server.post("/api/v1/tokens", {"name": f"looks-{agent_id}", "role": "viewer"}).json()["token"]
    assert server.post(sessions, {}, token=looks).status == 403
    assert server.delete(f"{sessions}/main", token=looks).status == 403
    other = server.post("/api/v1/tokens", {"name": f"o-{agent_id}", "role": "admin", "tenant": "other"}).json()["token"]
    assert server.get(sessions, token=other).status == 404 and server.post(sessions, {}, token=other).status == 404
    begun = server.post(sessions, {"command": "sleep", "args": ["1000"], "session_name": "theirs"}).json()
    assert server.delete(f"/api/v1/sessions/{begun['session_id']}", token=other).status == 404
    assert [s for s in server.get("/api/v1/sessions", token=other).json() if s["agent_id"] == agent_id] == []
    assert server.delete(f"{sessions}/theirs").status == 204


def test_what_agentics_socket_refuses_of_it(server, client, agent_id):
    viewer = server.new_token("viewer")["token"]
    cid = server.post(f"{AGENTS}/{agent_id}/commands", {"command": "sleep", "args": ["60"], "session_name": "s"}).json()
    ids = {"agent_id": agent_id, "command_id": cid["command_id"], "session_name": "s"}
    whole = {**ids, "command": "true", "data": "x", "cols": 80, "rows": 24}
    with Hub(server, "/ws", token=viewer) as ws:
        for kind in ("send_command", "start_shell", "create_session", "kill_session", "send_input", "pty_resize"):
            ws.send({"type": kind, **whole})
            assert "may watch" in json_error(ws), kind
        ws.ask("attach_session", "session_attached", **ids)
    with Hub(server, "/ws") as ws:
        for message, why in (
                ({"type": "send_command", "agent_id": agent_id}, "command is missing"),
                ({"type": "create_session", "agent_id": agent_id}, "session_name is missing"),
                ({"type": "create_session", **ids, "session_type": "odd"}, "none of interactive"),
                ({"type": "create_session", **ids, "session_name": "n" * 64, "session_type": "headless"}, "63 bytes"),
                ({"type": "create_session", **ids, "session_name": "n", "working_dir": "here"}, "must begin with"),
                ({"type": "start_shell", "agent_id": agent_id, "cols": 19}, "minimum"),
                ({"type": "send_input", **whole, "command_id": "none"}, "Command not found"),
                ({"type": "send_input", **ids, "data": "x" * 65537}, "at most 65536"),
                ({"type": "pty_resize", **ids, "cols": 80, "rows": 24}, "no terminal"),
                ({"type": "kill_session", **ids, "session_name": "none"}, "not found"),
                ({"type": "attach_session", **ids, "session_name": "none"}, "not found")):
            ws.send(message)
            assert why in json_error(ws), message
        assert ws.ask("send_input", "input_sent", **ids, data="x" * 65536)
        new = ws.ask("create_session", "session_created", **ids, session_type="headless", command="sleep", args=["60"])
        assert new["command_id"] != cid["command_id"], "a headless one of this name is replaced"
        old = server.get(f"{AGENTS}/{agent_id}/commands/{cid['command_id']}?wait=20000").json()
        assert (old["state"], old["exit_code"]) == ("exited", 143)
        ws.ask("kill_session", "session_killed", **ids)
        ws.take(type="command_completed", command_id=new["command_id"])


def json_error(ws):
    while True:
        said = json.loads(ws.recv()[1])
        if said["type"] == "error":
            return said["message"]


# ---- another agent, by grpcio ----

def test_another_agent_runs_a_command(server, peer, agent_id):
    link = peer()
    assert link.ready().keep_session_ids == []
    done = {}
    thread = threading.Thread(target=lambda: done.update(run(server, agent_id, "anything", "a", timeout_seconds=9,
                                                             env={"K": "v"})))
    thread.start()
    request = link.hear("command").command
    assert (request.command, list(request.args), request.timeout_seconds, dict(request.env)) == \
        ("anything", ["a"], 9, {"K": "v"})
    for data in (b"\x00bin", b"ary\xff"):
        link.say(stdout=M["OutputChunk"](stream_id=request.command_id, data=data))
    link.say(stdout=M["OutputChunk"](stream_id=str(uuid.uuid4()), data=b"of nobody"))
    link.say(command_result=M["CommandResult"](command_id=request.command_id, exit_code=4, duration_ms=12))
    thread.join(30)
    assert (done["state"], done["exit_code"], done["duration_ms"]) == ("exited", 4, 12)
    assert output(server, agent_id, request.command_id) == b"\x00binary\xff"


def test_exec_by_grpc(server, client):
    token = [("authorization", "Bearer " + server.token)]
    with grpc.insecure_channel(server.host) as channel:
        call = channel.unary_stream(SERVICE + "Exec", lambda m: m.SerializeToString(), M["ExecOutput"].FromString)
        got = list(call(M["ExecRequest"](agent_id=client.agent, command="sh",
                                         args=["-c", "echo out; echo err >&2; exit 6"]), metadata=token, timeout=30))
        assert b"".join(o.data for o in got if o.stream == 1) == b"out\n"
        assert b"".join(o.data for o in got if o.stream == 2) == b"err\n"
        assert got[-1].complete and got[-1].exit_code == 6 and not any(o.complete for o in got[:-1])
        for request, status, word in [
            ({"agent_id": "no-such", "command": "x"}, grpc.StatusCode.NOT_FOUND, "no-such"),
            ({"agent_id": client.agent}, grpc.StatusCode.INVALID_ARGUMENT, "command"),
            ({"agent_id": client.agent, "command": "x", "timeout_seconds": -1}, grpc.StatusCode.INVALID_ARGUMENT,
             "timeout_seconds"),
        ]:
            with pytest.raises(grpc.RpcError) as error:
                list(call(M["ExecRequest"](**request), metadata=token, timeout=30))
            assert error.value.code() == status and word in error.value.details()
        for meta, status in [([], grpc.StatusCode.UNAUTHENTICATED),
                             ([("authorization", "Bearer " + server.new_token("viewer")["token"])],
                              grpc.StatusCode.PERMISSION_DENIED)]:
            with pytest.raises(grpc.RpcError) as error:
                list(call(M["ExecRequest"](agent_id=client.agent, command="true"), metadata=meta, timeout=30))
            assert error.value.code() == status


def test_exec_by_grpc_waits_for_who_reads_late(server, client):
    """More than any buffer between holds, and nobody reads before the command has ended."""
    token = [("authorization", "Bearer " + server.token)]
    commands = f"/api/v1/agents/{client.agent}/commands"
    with grpc.insecure_channel(server.host) as channel:
        call = channel.unary_stream(SERVICE + "Exec", lambda m: m.SerializeToString(), M["ExecOutput"].FromString)
        got = call(M["ExecRequest"](agent_id=client.agent, command="seq", args=["-w", "1000000"]), metadata=token,
                   timeout=120 * harness.SLOW)
        harness.wait_until(lambda: [c for c in server.get(commands).json()["items"]
                                    if c["command"].startswith("seq") and c["state"] == "exited"],
                           60 * harness.SLOW, "its end")
        data = b"".join(o.data for o in got if o.stream == 1)
    assert data == b"".join(b"%07d\n" % i for i in range(1, 1000001))


def test_who_may_connect(start_server):
    server = start_server()
    secret = secret_of(server, "a1")
    for agent, meta, why in [
        ("a1", [], "Missing x-agent-id header"),
        ("a1", [("x-agent-id", "a1")], "Invalid agent secret"),
        ("a1", [("x-agent-id", "a1"), ("x-agent-secret", secret.upper())], "Invalid agent secret"),
        ("a1", [("x-agent-id", "a2"), ("x-agent-secret", secret)], "Invalid agent secret"),
        ("a1", [("x-agent-id", "a" * 5000), ("x-agent-secret", secret)], "Invalid agent secret"),
        ("a1", [("x-agent-id", "a1"), ("x-agent-secret", ""), ("authorization", "Bearer " + server.token)],
         "Invalid agent secret"),
    ]:
        peer = Peer(server, agent, secret, metadata=meta)
        assert peer.end() == (grpc.StatusCode.UNAUTHENTICATED, why), meta
        peer.close()
    for _ in range(11):
        peer = Peer(server, "a1", "wrong")
        status = peer.end()[0]
        peer.close()
    assert status == grpc.StatusCode.RESOURCE_EXHAUSTED  # guessing ends here


def test_a_newer_connection_takes_over(server, peer, agent_id):
    secret = secret_of(server, agent_id)
    first = peer(secret)
    first.ready()
    second = peer(secret)
    second.ready()
    assert first.end() == (grpc.StatusCode.ABORTED, "replaced by a newer connection of this agent")
    assert server.get(f"{AGENTS}/{agent_id}").json()["status"] in ("Ready", "Starting")
    assert server.delete(f"/api/v1/secrets/{agent_id}").status == 204
    assert second.end()[0] == grpc.StatusCode.UNAUTHENTICATED
    assert server.get(f"{AGENTS}/{agent_id}").status == 404


def say_unregistered(link):
    link.say(heartbeat=M["Heartbeat"](agent_id=link.agent))


def say_too_much(link):
    link.register()
    link.say(stdout=M["OutputChunk"](stream_id="x", data=b"x" * (1 << 20)))


def say_other_id(link):
    link.say(registration=M["AgentRegistration"](agent_id="somebody-else"))


def say_long(link):
    link.say(registration=M["AgentRegistration"](agent_id=link.agent, hostname="h" * 256))


def say_twice(link):
    link.register()
    link.say(registration=M["AgentRegistration"](agent_id=link.agent))


def say_many(link):
    link.register()
    for _ in range(200):
        link.say(heartbeat=M["Heartbeat"](agent_id=link.agent, status=2))


def say_long_report(link):
    link.register()
    link.say(session_report=M["SessionReport"](sessions=[M["ActiveSession"](command_id=str(i)) for i in range(257)]))


@pytest.mark.parametrize("words, status", [
    (say_unregistered, grpc.StatusCode.INVALID_ARGUMENT), (say_too_much, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (say_other_id, grpc.StatusCode.INVALID_ARGUMENT), (say_long, grpc.StatusCode.INVALID_ARGUMENT),
    (say_twice, grpc.StatusCode.INVALID_ARGUMENT), (say_many, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (say_long_report, grpc.StatusCode.INVALID_ARGUMENT),
])
def test_what_an_agent_may_not_say(server, peer, words, status):
    link = peer()
    words(link)
    assert link.end()[0] == status


def test_a_report_decides_what_goes_on(server, peer, agent_id):
    secret = secret_of(server, agent_id)
    link = peer(secret)
    link.ready(link=1)
    kept = run(server, agent_id, "kept", wait=0)["command_id"]
    gone = run(server, agent_id, "gone", wait=0)["command_id"]
    link.say(stdout=M["OutputChunk"](stream_id=kept, data=b"hello", position=0))
    ack = link.hear("output_ack").output_ack
    assert (ack.command_id, ack.stdout_position, ack.ended) == (kept, 5, False)
    link.close()
    strange = str(uuid.uuid4())
    again = peer(secret)
    again.register(link=1)
    again.say(session_report=M["SessionReport"](sessions=[
        M["ActiveSession"](command_id=kept), M["ActiveSession"](command_id=strange, command="its own"),
        M["ActiveSession"](command_id="../../etc/passwd")]))
    assert again.hear("output_ack").output_ack.stdout_position == 5
    decision = again.hear("session_reconcile").session_reconcile
    assert sorted(decision.keep_session_ids) == sorted([kept, strange]) and not decision.kill_unrecognized
    assert list(decision.kill_session_ids) == []
    again.say(stdout=M["OutputChunk"](stream_id=kept, data=b"lo wor", position=3))  # two bytes of it again
    again.say(stdout=M["OutputChunk"](stream_id=kept, data=b"ld", position=9))
    again.say(command_result=M["CommandResult"](command_id=kept, exit_code=0))
    done = wait_end(server, agent_id, kept)
    assert done["exit_code"] == 0 and not done["gap"]
    assert output(server, agent_id, kept) == b"hello world"
    lost = wait_end(server, agent_id, gone)
    assert (lost["state"], lost["exit_code"]) == ("lost", -1) and "without the command" in lost["error"]
    adopted = server.get(f"{AGENTS}/{agent_id}/commands/{strange}").json()
    assert (adopted["state"], adopted["command"], adopted["by"]) == ("running", "its own", "agent")
    again.say(stdout=M["OutputChunk"](stream_id=strange, data=b"later", position=100))
    again.say(command_result=M["CommandResult"](command_id=strange))
    assert wait_end(server, agent_id, strange)["gap"] is True


def test_bad_requests_about_agents(server, peer, agent_id):
    link = peer()
    link.ready()
    assert server.get(f"{AGENTS}/no-such").json() == {"error": "Agent 'no-such' not found"}
    other = server.new_token("admin", tenant="other")["token"]
    assert server.get(f"{AGENTS}/{agent_id}", token=other).status == 404
    assert agent_id not in server.get(AGENTS, token=other).body.decode()
    path = f"{AGENTS}/{agent_id}/commands"
    for wish in ({}, {"command": ""}, {"command": "x", "args": ["a"] * 4097}, {"command": "x", "env": {"": "v"}},
                 {"command": "x", "env": {"a=b": "v"}}, {"command": "x", "timeout_seconds": 86401},
                 {"command": "x", "working_dir": "relative"}, {"command": "x", "pty_cols": 1001},
                 {"command": "x", "unknown": 1}):
        assert server.post(path, wish).status == 400, wish
    for bad in ("x", str(uuid.uuid4()), "..%2f"):
        assert server.get(f"{path}/{bad}").status in (400, 404)
    made = run(server, agent_id, "x", wait=0)["command_id"]
    assert server.get(f"{path}/{made}/output?from=1").status == 416
    assert server.get(f"{path}/{made}/output?stream=both").status == 400
    link.close()
    harness.wait_until(lambda: server.get(f"{AGENTS}/{agent_id}").json()["status"] == "Disconnected", 15, "its end")
    reply = server.post(path, {"command": "x"})
    assert reply.status == 409 and "not connected" in reply.json()["error"]


def test_health_as_agentic_has_it(start_server, tmp_path):
    server = start_server()

    def get(path, **kw):
        reply = server.get(path, **kw)
        return reply.status, reply.json()

    assert get("/healthz", token=None) == (200, {"status": "alive"})
    assert get("/healthz/http", token=None) == (200, {"http": "alive"})
    assert get("/readyz", token=None) == (200, {"status": "ready", "agent_count": 0})
    assert get("/readyz?require=agents", token=None) == \
        (503, {"status": "not_ready", "reason": "no_agents_connected"})
    assert server.get("/readyz?require=luck", token=None).status == 400
    assert get("/api/v1/health/live") == (200, {"alive": True})
    assert get("/api/v1/health/ready") == (200, {"ready": True, "reason": "no_agents_but_operational"})
    assert get("/api/health") == (200, {"status": "ok", "service": "atoll"})
    client = Client(server, "a1", secret_of(server, "a1"), tmp_path).start()
    assert get("/readyz?require=agents", token=None) == (200, {"status": "ready", "agent_count": 1})
    assert get("/api/v1/health/ready")[1]["reason"] == "agents_connected"
    assert get("/healthz/deep")[1]["agent_count"] == 1
    assert client.stop() == 0


def test_events_tell_the_story(server, peer, agent_id):
    link = peer()
    link.ready()
    link.say(session_reconcile_ack=M["SessionReconcileAck"](agent_id=agent_id))

    def types():
        events = server.get(f"/api/v1/events?object=agent/{agent_id}&limit=1000").json()["items"]
        return [e["type"] for e in events]

    wanted = ["agent.connected", "agent.registered", "session.query_sent", "session.report_received",
              "session.reconcile_started"]
    harness.wait_until(lambda: {"agent.ready", "session.reconcile_complete"} <= set(types()), 15, "the reconciliation")
    assert types()[:5] == wanted
    link.close()
    harness.wait_until(lambda: "agent.disconnected" in types(), 15, "the last event")
