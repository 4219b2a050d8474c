"""Commands on linked agents from the command line, as in sandboxes; and their output as events."""
import base64
import contextlib
import json
import os
import signal
import subprocess
import uuid

import flaky
import harness
import pytest
from agents import Client
from person import Terminal

AGENTS = "/api/v1/agents"


def link(server, top):
    agent = f"agent-{uuid.uuid4().hex[:8]}"
    secret = server.post("/api/v1/secrets", {"agent_id": agent}).json()["secret"]
    return Client(server, agent, secret, top).start()


@pytest.fixture
def client(server, tmp_path):
    client = link(server, tmp_path)
    yield client
    assert client.stop() == 0, client.log()


def environment(server):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    return {**clean, "ATOLL_STATE": str(server.state), "TERM": "xterm"}


def begin(server, *args, **kw):
    return subprocess.Popen([server.binary, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(server), **kw)


def commands(server, agent):
    return server.get(f"{AGENTS}/{agent}/commands").json()["items"]


def command(server, agent, *argv, **wish):
    reply = server.post(f"{AGENTS}/{agent}/commands?wait=20000", {"command": argv[0], "args": list(argv[1:]), **wish},
                        timeout=40)
    assert reply.status == 201, reply
    return reply.json()


def until_exit(server, path, **kw):
    """[(event, bytes, id)…] and what `exit` says."""
    got = []
    with contextlib.closing(server.sse(path, **kw)) as stream:
        assert stream.status == 200 and stream.headers["content-type"] == "text/event-stream"
        while (one := stream.next(20 * harness.SLOW))["event"] != "exit":
            got.append((one["event"], base64.b64decode(one["data"]), one["id"]))
    return got, json.loads(one["data"])


# ---- events ----

def test_both_streams_come_as_events_until_the_exit(server, client):
    done = command(server, client.agent, "sh", "-c", "printf 'out\\377'; echo err >&2; exit 3")
    path = f"{AGENTS}/{client.agent}/commands/{done['command_id']}/output"
    got, end = until_exit(server, path)
    assert got == [("stdout", b"out\xff", "4,0"), ("stderr", b"err\n", "4,4")]
    assert (end["command_id"], end["state"], end["exit_code"]) == (done["command_id"], "exited", 3)
    assert until_exit(server, path + "?from=3,4")[0] == [("stdout", b"\xff", "4,4")]
    assert until_exit(server, path, last_id="4,2")[0] == [("stderr", b"r\n", "4,4")]


def test_bad_places_of_events(server, client):
    done = command(server, client.agent, "echo", "x")
    path = f"{AGENTS}/{client.agent}/commands/{done['command_id']}/output"
    for place, status in (("x", 400), ("1", 400), ("0,-1", 400), ("3,0", 416), ("0,1", 416)):
        reply = server.get(f"{path}?from={place}", headers={"accept": "text/event-stream"})
        assert reply.status == status and reply.json()["error"], (place, reply)
    other = server.new_token("admin", tenant="other")["token"]
    assert server.get(path, headers={"accept": "text/event-stream"}, token=other).status == 404


def test_who_may_not_look_any_more_sees_nothing_more(server, client):
    token = server.new_token("viewer")
    made = server.post(f"{AGENTS}/{client.agent}/commands",
                       {"command": "sh", "args": ["-c", "echo begun; read x; echo more"]}).json()
    path = f"{AGENTS}/{client.agent}/commands/{made['command_id']}"
    with contextlib.closing(server.sse(f"{path}/output", token=token["token"])) as stream:
        assert stream.next(20 * harness.SLOW)["event"] == "stdout"
        assert server.delete(f"/api/v1/tokens/{token['id']}").status == 200
        with pytest.raises(EOFError):
            stream.next(20 * harness.SLOW)
    assert server.post(f"{path}/stdin", {"text": "\n"}).status == 200


# ---- input ----

def test_bytes_that_are_no_text_as_input(server, client):
    made = server.post(f"{AGENTS}/{client.agent}/commands", {"command": "cat"}).json()
    path = f"{AGENTS}/{client.agent}/commands/{made['command_id']}"
    for bad in ({"data": "*"}, {"data": "QQ==", "text": "A"}, {"data": 7}, {"data": "A" * 87388}):
        reply = server.post(f"{path}/stdin", bad)
        assert reply.status == 400 and "data" in reply.json()["error"], (bad, reply)
    assert server.post(f"{path}/stdin", {"data": base64.b64encode(bytes(range(256))).decode()}).status == 200
    assert server.post(f"{path}/stdin", {"data": base64.b64encode(bytes(65536)).decode()}).status == 200
    assert server.post(f"{path}/stdin", {"eof": True}).status == 200
    assert server.get(f"{path}?wait=20000", timeout=40).json()["exit_code"] == 0
    assert server.get(f"{path}/output").body == bytes(range(256)) + bytes(65536)


# ---- the command line ----

def test_a_command_runs_there_and_its_status_is_ours(server, client):
    done = begin(server, "exec", client.agent, "--", "sh", "-c", "cat; printf 'o\\377'; echo e >&2; exit 7",
                 stdin=subprocess.DEVNULL)
    assert done.communicate(timeout=30 * harness.SLOW) == (b"o\xff", b"e\n") and done.returncode == 7
    done = begin(server, "agent", "exec", client.agent, "-e", "A=b c", "--cwd", "/tmp", "--", "sh", "-c",
                 'echo "$A $PWD $0 $1"', "x", "y z", stdin=subprocess.DEVNULL)
    assert done.communicate(timeout=30 * harness.SLOW) == (b"b c /tmp x y z\n", b"")
    listed = server.cli("agent", "commands", client.agent, check=True).stdout
    assert len(listed.splitlines()) == 3 and "exited" in listed, listed


def test_what_is_piped_in_arrives(server, client):
    data = os.urandom(700000)
    done = begin(server, "exec", client.agent, "--", "cat", stdin=subprocess.PIPE)
    out, err = done.communicate(data, timeout=60 * harness.SLOW)
    assert out == data and err == b"" and done.returncode == 0


def test_input_whose_answer_is_lost_is_not_sent_twice(server, client):
    """It has no positions here: that the command may not have all of it is told, and its input ends."""
    proxy = flaky.Flaky(server.port)
    env = {**environment(server), "ATOLL_ADDR": proxy.address, "ATOLL_TOKEN": server.token}
    done = subprocess.Popen([server.binary, "exec", client.agent, "--", "cat"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    done.stdin.write(b"one\n")
    done.stdin.flush()
    assert done.stdout.readline() == b"one\n"
    os.kill(client.process.pid, signal.SIGSTOP)  # nothing comes from there, so that only its answer can be cut
    try:
        proxy.cut(1)
        done.stdin.write(b"two\n")
        done.stdin.flush()
        harness.wait_until(lambda: proxy.cuts == 0, 10, "the answer")
    finally:
        os.kill(client.process.pid, signal.SIGCONT)
    out, said = done.communicate(b"three\n", timeout=40 * harness.SLOW)
    assert b"the server went away while input was sent: the command may not have all of it" in said, said
    assert out in (b"", b"two\n") and done.returncode == 1, out
    proxy.close()


def test_its_end_is_told(server, client):
    done = server.cli("exec", client.agent, "--kill-after", "1s", "--", "sleep", "60")
    assert done.returncode != 0 and "timed out" in done.stderr.lower(), done
    done = server.cli("exec", client.agent, "--", "/no/such/program")
    assert done.returncode != 0 and done.stderr, done
    done = server.cli("exec", "--json", client.agent, "--", "sh", "-c", "exit 4")
    assert done.returncode == 4 and json.loads(done.stdout)["exit_code"] == 4, done


def test_signals_are_passed_on(server, client):
    done = begin(server, "exec", client.agent, "--", "sh", "-c",
                 "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.1; done", stdin=subprocess.DEVNULL)
    assert done.stdout.readline() == b"ready\n"
    done.send_signal(signal.SIGTERM)
    assert done.communicate(timeout=30 * harness.SLOW)[0] == b"got it\n" and done.returncode == 9


def test_a_terminal_there(server, client, tmp_path):
    script = "stty size; echo \"[$TERM]\"; read x; echo got $x; exit 5"
    person = Terminal([server.binary, "exec", "-it", client.agent, "--", "sh", "-c", script], tmp_path,
                      environment(server))
    try:
        person.expect(b"30 100")
        person.expect(b"[xterm]")
        person.type(b"word\r")
        person.expect(b"got word")
        assert person.end() == 5
    finally:
        person.close()


def test_without_being_asked_for_the_keyboard_stays_here(server, client, tmp_path):
    person = Terminal([server.binary, "exec", client.agent, "--", "sh", "-c", "cat; exit 6"], tmp_path,
                      environment(server))
    try:
        assert person.end() == 6  # its input has ended
    finally:
        person.close()


def test_a_shell_there(server, client, tmp_path):
    person = Terminal([server.binary, "agent", "shell", client.agent], tmp_path, environment(server))
    try:
        person.type(b"echo $((6*7)); exit 3\r")
        person.expect(b"42\r\n")
        assert person.end() == 3
    finally:
        person.close()
    done = begin(server, "shell", client.agent, stdin=subprocess.PIPE)
    assert done.communicate(b"echo $((6*8))\nexit 2\n", timeout=30 * harness.SLOW)[0] == b"48\n"
    assert done.returncode == 2


def test_what_was_printed_is_read_later(server, client):
    done = server.cli("exec", "-d", client.agent, "--", "sh", "-c", "head -c 600000 /dev/zero | tr '\\0' a; echo e >&2",
                      check=True)
    made = done.stdout.strip()
    assert server.cli("logs", client.agent, "--follow", check=True).stdout == "a" * 600000
    seen = server.cli("agent", "logs", client.agent, made[:13], check=True)
    assert seen.stdout == "a" * 600000 and seen.stderr == "e\n"
    rest = server.cli("logs", client.agent, made, "--stream", "stdout", "--from", "599990", check=True)
    assert rest.stdout == "a" * 10 and rest.stderr == ""
    done = server.cli("logs", client.agent, "no-such")
    assert done.returncode == 2 and "no command no-such" in done.stderr, done


def test_who_is_neither_a_sandbox_nor_an_agent(server, client):
    for words in (("exec", "nobody", "--", "true"), ("shell", "nobody"), ("logs", "nobody")):
        done = server.cli(*words)
        assert done.returncode == 2 and "no sandbox nobody" in done.stderr, done
    done = server.cli("exec", client.agent, "--ro", "/usr", "--", "true")
    assert done.returncode == 64 and "linked agent" in done.stderr, done
    client.kill9()
    harness.wait_until(lambda: not client.connected(), 20, "the server to notice")
    done = server.cli("exec", client.agent, "--", "true")
    assert done.returncode != 0 and "not connected" in done.stderr, done
    client.start()


def test_a_killed_server_costs_no_byte(start_server, tmp_path):
    server = start_server()
    client = link(server, tmp_path)
    try:
        done = begin(server, "exec", client.agent, "--", "sh", "-c",
                     "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 6",
                     stdin=subprocess.DEVNULL)
        assert done.stdout.readline() == b"0\n"
        server.kill9_api()
        out, err = done.communicate(timeout=60 * harness.SLOW)
        assert out == b"".join(b"%d\n" % i for i in range(1, 200)) and done.returncode == 6, err
    finally:
        assert client.stop() == 0, client.log()
