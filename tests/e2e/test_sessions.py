"""Terminals as agentic's clients know them: the two protocols of its socket, the orchestrate socket,
pty-ws.v1, and the routes about sessions."""
import base64
import concurrent.futures
import json
import os
import time

import harness
import pytest
from terminal import Closed, Refused, Terminal, Ws

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
AGENT = "agent-01"


@pytest.fixture(scope="module")
def agent(server):
    reply = server.post(BOXES, {"name": AGENT})
    assert reply.status == 201, reply
    yield AGENT
    assert server.delete(f"{BOXES}/{AGENT}").status == 200


class Json(Ws):
    """A socket of JSON messages."""

    def take(self):
        text, data = self.recv()
        assert text
        return json.loads(data)

    def until(self, seconds=20, **want):
        """The first message with these members; all that came before are in `passed`."""
        self.passed, end = [], time.monotonic() + seconds * harness.SLOW
        while True:
            message = self.take()
            if all(message.get(k) == v for k, v in want.items()):
                return message
            self.passed.append(message)
            assert time.monotonic() < end, (want, self.passed[-5:])

    def output(self, command, what, seconds=20):
        """Lossy output of a command until this text is in it."""
        seen, end = "", time.monotonic() + seconds * harness.SLOW
        while what not in seen:
            message = self.take()
            if message["type"] == "output" and message["command_id"] == command:
                seen += message["data"]
            assert time.monotonic() < end, seen
        return seen


def hub(server, path="/ws", **kw):
    socket = Json(server, path, **kw)
    hello = socket.take()
    assert hello["type"] == "server_hello"
    assert "join_session" in hello["supported_client_messages"]
    assert "keyframes" in hello["features"]
    return socket


def session(server, **wish):
    reply = server.post(f"/api/v1/agents/{AGENT}/sessions", wish)
    assert reply.status == 200, reply
    return reply.json()


def shows(server, sid, text):
    """Waits until its screen does: who joins before gets its frames in another order."""
    screen = f"/api/v1/sessions/{sid}/screen"
    harness.wait_until(lambda: text in server.get(screen).body, 20, "its screen")


def kill(server, name):
    assert server.delete(f"/api/v1/agents/{AGENT}/sessions/{name}").status == 204


# ---- the older protocol ----

@pytest.mark.parametrize("path", ["/ws", "/"])
def test_ping_agents_and_nonsense(server, agent, path):
    with hub(server, path) as ws:
        ws.send({"type": "ping", "timestamp": 4711})
        assert ws.take() == {"type": "pong", "timestamp": 4711}
        ws.send({"type": "list_agents"})
        listed = [a for a in ws.take()["agents"] if a["id"] == agent][0]
        assert {"id", "hostname", "ip_address", "status", "connected_at", "last_heartbeat"} <= listed.keys()
        for nonsense in ("{", '{"type":"dance"}', "[]", b"\0\1"):
            ws.send(nonsense)
            assert ws.take()["message"].startswith("Invalid message"), nonsense
        ws.send({"type": "list_sessions", "agent_id": "nobody"})
        assert ws.take() == {"type": "error", "message": "Agent 'nobody' not found"}


def test_the_socket_needs_a_credential(server, agent):
    with pytest.raises(Refused) as refused:
        Json(server, "/ws", token=None)
    assert refused.value.status == 401


def test_a_command_its_streams_and_its_end(server, agent):
    with hub(server) as ws:
        ws.send({"type": "send_command", "agent_id": agent, "command": "sh",
                 "args": ["-c", "echo out; echo err >&2; exit 3"]})
        started = ws.until(type="command_started")
        done = ws.until(type="command_completed", command_id=started["command_id"])
        assert done["exit_code"] == 3
        text = {s: "".join(m["data"] for m in ws.passed if m["type"] == "output" and m["stream"] == s)
                for s in ("stdout", "stderr")}
        assert text == {"stdout": "out\n", "stderr": "err\n"}
        ws.send({"type": "send_command", "agent_id": agent, "command": "no-such-program"})
        assert ws.until(type="error")["message"]
        ws.send({"type": "send_command", "agent_id": agent, "command": "cat"})
        command = ws.until(type="command_started")["command_id"]
        ws.send({"type": "send_input", "agent_id": agent, "command_id": command, "data": "grüße\n"})
        assert ws.output(command, "grüße\n")
        ws.send({"type": "send_input", "agent_id": agent, "command_id": "nothing", "data": "x"})
        assert ws.until(type="error")["message"] == "Command not found"


def test_a_shell_is_the_same_for_all_who_start_it(server, agent):
    with hub(server) as one, hub(server) as two:
        one.send({"type": "start_shell", "agent_id": agent, "cols": 90, "rows": 30})
        shell = one.until(type="shell_started")["command_id"]
        two.send({"type": "start_shell", "agent_id": agent})
        assert two.until(type="shell_started")["command_id"] == shell
        one.send({"type": "send_input", "agent_id": agent, "command_id": shell, "data": "stty size\n"})
        one.output(shell, "30 90")
        two.output(shell, "30 90")
        two.send({"type": "pty_resize", "agent_id": agent, "command_id": shell, "cols": 19, "rows": 24})
        assert "20x5" in two.until(type="error")["message"]
        two.send({"type": "pty_resize", "agent_id": agent, "command_id": shell, "cols": 100, "rows": 25})
        assert two.until(type="pong")["timestamp"] == 0
        two.send({"type": "list_sessions", "agent_id": agent})
        names = {s["session_name"]: s for s in two.until(type="session_list")["sessions"]}
        assert names["main"]["command_id"] == shell and names["main"]["running"]
    assert server.get(f"{BOXES}/{agent}/terminals/main").json()["state"] == "running"  # nobody left
    with hub(server) as ws:
        ws.send({"type": "kill_session", "agent_id": agent, "session_name": "main"})
        assert ws.until(type="session_killed")["session_name"] == "main"
        ws.send({"type": "detach_session", "agent_id": agent, "session_name": "x"})
        assert ws.until(type="session_detached")


def until_quiet(ws, stamp):
    """All that has come when the server answers."""
    ws.send({"type": "ping", "timestamp": stamp})
    ws.until(type="pong", timestamp=stamp)
    return ws.passed


def test_subscribers_see_their_agent_and_no_other(server, agent):
    """Both commands that one must not see are seen by another, at the same moment."""
    other = server.post(BOXES, {"name": "agent-02"}).json()["id"]
    with hub(server) as ws, hub(server) as everything:
        everything.send({"type": "subscribe", "agent_id": "*"})
        everything.until(type="subscribed")
        ws.send({"type": "subscribe", "agent_id": agent})
        assert ws.take() == {"type": "subscribed", "agent_id": agent}
        hidden = server.post(f"{BOXES}/{other}/execs?wait=5000", {"argv": ["echo", "not for you"]}).json()["id"]
        everything.until(type="output", command_id=hidden, data="not for you\n")
        started = server.post(f"{BOXES}/{agent}/execs", {"command": "echo for you"}).json()["id"]
        ws.until(type="output", command_id=started, data="for you\n")
        assert not [m for m in ws.passed if m.get("command_id") == hidden]
        ws.until(type="command_completed", command_id=started)
        ws.send({"type": "unsubscribe", "agent_id": agent})
        ws.until(type="unsubscribed")
        late = server.post(f"{BOXES}/{agent}/execs?wait=5000", {"argv": ["echo", "too late"]}).json()["id"]
        everything.until(type="output", command_id=late, data="too late\n")
        assert not [m for m in until_quiet(ws, 1) if m["type"] == "output"]
    assert server.delete(f"{BOXES}/{other}").status == 200


def begin_in_a_row(server, agent, count, pause):
    ids = []
    for i in range(count):
        ids.append(server.post(f"{BOXES}/{agent}/execs?wait=10000", {"argv": ["echo", f"z{i}"]}).json()["id"])
        time.sleep(pause)
    return ids


def begin_at_once(server, agent, count, _):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda i: server.post(f"{BOXES}/{agent}/execs", {"argv": ["echo", f"z{i}"]})
                             .json()["id"], range(count)))


@pytest.mark.parametrize("begin, count, pause", [(begin_in_a_row, 40, 0.05), (begin_at_once, 20, 0),
                                                 (begin_in_a_row, 500, 0)])
@pytest.mark.parametrize("name", ["*", AGENT])
def test_a_subscriber_sees_every_command_however_short(server, agent, name, begin, count, pause):
    with hub(server) as ws:
        ws.send({"type": "subscribe", "agent_id": name})
        ws.until(type="subscribed")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            ids = pool.submit(begin, server, agent, count, pause)
            printed, completed, end = {}, [], time.monotonic() + 20 * harness.SLOW
            while len(completed) < count and time.monotonic() < end:
                message = ws.take()
                if message["type"] == "output":
                    printed[message["command_id"]] = printed.get(message["command_id"], "") + message["data"]
                elif message["type"] == "command_completed":
                    completed.append(message["command_id"])
                    assert message["command_id"] in printed and message["exit_code"] == 0
            assert sorted(completed) == sorted(ids.result())
            assert printed == {one: f"z{i}\n" for i, one in enumerate(ids.result())}


def test_who_starts_and_subscribes_is_told_of_the_start_first_and_once(server, agent):
    with hub(server) as ws:
        ws.send({"type": "subscribe", "agent_id": agent})
        ws.until(type="subscribed")
        for i in range(20):
            ws.send({"type": "send_command", "agent_id": agent, "command": "echo", "args": [f"own{i}"]})
            own = ws.until(type="command_started")["command_id"]
            assert not [m for m in ws.passed if m.get("command_id") == own]
            ws.until(type="command_completed", command_id=own)
            assert [m["data"] for m in ws.passed if m.get("command_id") == own] == [f"own{i}\n"]


def test_a_subscriber_that_reads_late_has_everything(server, agent):
    """One that does not read while 30 commands print 100 kB each has all of it afterwards."""
    with hub(server) as ws:
        ws.send({"type": "subscribe", "agent_id": agent})
        ws.until(type="subscribed")
        ids = [server.post(f"{BOXES}/{agent}/execs?wait=10000", {"command": "yes | head -c 100000"}).json()["id"]
               for _ in range(30)]
        got, completed = dict.fromkeys(ids, 0), 0
        while completed < len(ids):
            message = ws.take()
            if message["type"] == "output":
                got[message["command_id"]] += len(message["data"])
            completed += message["type"] == "command_completed"
        assert set(got.values()) == {100000}


def test_who_unsubscribes_hears_no_more_and_nothing_twice(server, agent):
    box = server.get(f"{BOXES}/{agent}").json()["id"]
    with hub(server) as ws:
        ws.send({"type": "subscribe", "agent_id": agent})
        ws.send({"type": "subscribe", "agent_id": "*"})
        ws.until(type="subscribed", agent_id="*")
        command = "echo first; read x; echo second; while :; do echo again; sleep 0.05; done"
        started = server.post(f"{BOXES}/{agent}/execs", {"command": command, "stdin_open": True}).json()["id"]
        ws.until(type="output", command_id=started, data="first\n")
        ws.send({"type": "unsubscribe", "agent_id": "*"})  # it is subscribed to by its name still
        ws.until(type="unsubscribed", agent_id="*")
        assert server.post(f"{BOXES}/{agent}/execs/{started}/stdin", body="\n").status == 200
        seen = ws.output(started, "again")
        assert seen.startswith("second\n"), seen
        ws.send({"type": "unsubscribe", "agent_id": agent})
        ws.until(type="unsubscribed")
        ws.send({"type": "subscribe", "agent_id": box})  # by its id
        ws.output(started, "again")
        ws.send({"type": "unsubscribe", "agent_id": box})
        ws.until(type="unsubscribed")
        time.sleep(0.5)  # it goes on printing, and nothing of that may come
        assert not [m for m in until_quiet(ws, 1) if m["type"] == "output"]
        ws.send({"type": "send_command", "agent_id": agent, "command": "sh",
                 "args": ["-c", "read x; echo own"]})
        own = ws.until(type="command_started")["command_id"]
        ws.send({"type": "unsubscribe", "agent_id": "*"})  # which does not mean what was begun here
        ws.send({"type": "send_input", "agent_id": agent, "command_id": own, "data": "\n"})
        assert ws.output(own, "own\n") == "own\n"
    server.post(f"{BOXES}/{agent}/execs/{started}/signal", {"signal": "KILL"})


def test_a_character_that_comes_in_pieces_stays_whole(server, agent):
    with hub(server) as ws:
        ws.send({"type": "send_command", "agent_id": agent, "command": "sh", "args": [
            "-c", "printf '\\303'; read x; printf '\\274'; read x; printf '\\377'; read x; printf '\\342\\202'"]})
        command = ws.until(type="command_started")["command_id"]
        for want in ("ü", "\ufffd"):  # the second is no beginning of anything: nothing to wait for
            until_quiet(ws, 1)
            ws.send({"type": "send_input", "agent_id": agent, "command_id": command, "data": "\n"})
            assert ws.until(type="output", command_id=command)["data"] == want
        ws.send({"type": "send_input", "agent_id": agent, "command_id": command, "data": "\n"})
        ws.until(type="command_completed", command_id=command)
        assert "".join(m["data"] for m in ws.passed if m["type"] == "output").strip("\ufffd") == ""
        assert [m for m in ws.passed if m["type"] == "output"], "what never became whole is told at the end"


BAD_MESSAGES = [
    ({"type": "subscribe"}, "agent_id is missing"),
    ({"type": "unsubscribe", "agent_id": 5}, "agent_id must be of type string"),
    ({"type": "list_sessions"}, "agent_id is missing"),
    ({"type": "send_command", "agent_id": AGENT}, "command is missing"),
    ({"type": "send_command", "agent_id": AGENT, "command": "echo", "args": "x"}, "args must be of type array"),
    ({"type": "send_command", "agent_id": AGENT, "command": "echo", "args": ["a", 5]}, "args must hold strings"),
    ({"type": "start_shell", "agent_id": AGENT, "cols": "80"}, "cols must be of type integer"),
    ({"type": "create_session", "agent_id": AGENT, "command": "true"}, "session_name is missing"),
    ({"type": "kill_session", "agent_id": AGENT}, "session_name is missing"),
    ({"type": "send_input", "agent_id": AGENT, "command_id": "x"}, "data is missing"),
    ({"type": "send_input", "agent_id": AGENT, "command_id": "x", "data": 5}, "data must be of type string"),
    ({"type": "pty_resize", "agent_id": AGENT, "command_id": "x", "rows": 24}, "cols is missing"),
    ({"type": "join_session"}, "session_id is missing"),
    ({"type": "join_session", "session_id": "x", "replay_from": "0"}, "replay_from must be of type integer"),
    ({"type": "session_input", "session_id": "x"}, "data is missing"),
    ({"type": "ping", "timestamp": "now"}, "timestamp must be of type integer"),
]


def test_fields_that_are_missing_or_of_another_kind(server, agent):
    """Nothing is done with half of a message: not another command, and no input that was not sent."""
    with hub(server) as ws:
        for message, why in BAD_MESSAGES:
            ws.send(message)
            assert ws.take() == {"type": "error", "message": "Invalid message: " + why}, message
        ws.send({"type": "send_command", "agent_id": agent, "command": "true", "args": None, "more": {}})
        assert ws.until(type="command_completed")["exit_code"] == 0  # null is none; others' fields are theirs


def test_metrics_of_agents_that_are_subscribed_to(server, agent):
    other = server.post(BOXES, {"name": "agent-02", "cpu_percent": 150}).json()["id"]
    harness.run_in(server, agent, "dd", "if=/dev/urandom", "of=/workspace/big", "bs=1M", "count=20")
    with hub(server) as ws, hub(server) as all_of_them, hub(server) as nobody:
        ws.send({"type": "subscribe", "agent_id": agent})
        all_of_them.send({"type": "subscribe", "agent_id": "*"})
        first = ws.until(type="metrics_update")
        assert first["agent_id"] == agent and first["cpu_percent"] == 0 and first["cpu_cores"] == 2
        assert first["memory_used_bytes"] > 0 and first["memory_total_bytes"] == 1 << 30
        assert first["load_avg"] == [] and first["uptime_seconds"] >= 0 and first["disk_total_bytes"] > 0
        # Pages that are being written back count twice for a moment: as written, and as still to be written.
        assert 20 << 20 <= first["disk_used_bytes"] < 48 << 20
        seen = {all_of_them.until(type="metrics_update")["agent_id"] for _ in range(2)}
        assert seen == {agent, "agent-02"}
        ws.send({"type": "send_command", "agent_id": agent, "command": "sh", "args": ["-c", "while :; do :; done"]})
        command = ws.until(type="command_started")["command_id"]
        second = ws.until(30, type="metrics_update")  # the next round
        assert second["agent_id"] == agent and 1 < second["cpu_percent"] <= 250
        assert all(m["agent_id"] == agent for m in ws.passed if m["type"] == "metrics_update")
        server.post(f"{BOXES}/{agent}/execs/{command}/signal", {"signal": "KILL"})
        ws.send({"type": "unsubscribe", "agent_id": agent})
        ws.until(type="unsubscribed")
        nobody.send({"type": "ping", "timestamp": 1})
        assert nobody.take() == {"type": "pong", "timestamp": 1}  # and nothing before it
    assert server.delete(f"{BOXES}/{other}").status == 200


def test_sessions_by_the_beginning_of_their_ids(server, agent):
    one, two = (session(server, command="cat") for _ in range(2))
    short = one["session_id"][:25]
    assert short != two["session_id"][:25]
    assert server.get(f"/api/v1/sessions/{short}/screen").json()["session_id"] == one["session_id"]
    assert server.get(f"/api/v1/sessions/{short}/transcript").json()["session_id"] == one["session_id"]
    assert server.get(f"{BOXES}/{agent}/execs/{short}").json()["id"] == one["session_id"]
    assert server.get(f"{BOXES}/{agent}/terminals/{short}").json()["id"] == one["session_id"]
    with hub(server) as ws:
        ws.send({"type": "join_session", "session_id": short})
        assert ws.until(type="session_joined")["session_id"] == one["session_id"]
        ws.send({"type": "leave_session", "session_id": one["session_id"]})
        ws.until(type="session_left")
    refused = server.delete(f"/api/v1/sessions/{short}")
    assert refused.status == 404 and "whole id" in refused.json()["error"], "what ends one names it whole"
    for path in (f"{BOXES}/{agent}/execs/ex0", f"{BOXES}/{agent}/terminals/ex0", "/api/v1/sessions/ex0/transcript"):
        reply = server.get(path)
        assert reply.status == 409 and "more than one" in str(reply.json()["error"]), reply
    for path in (f"{BOXES}/{agent}/execs/ex", f"{BOXES}/{agent}/terminals/ex", "/api/v1/sessions/ex/transcript",
                 f"{BOXES}/{agent}/execs/{one['session_id']}x"):
        assert server.get(path).status == 404, path  # too short to mean anything, and too long
    for each in (one, two):
        kill(server, each["session_id"])


SIZES = [(5, 20, True), (4, 20, False), (5, 19, False), (1, 1, False), (501, 80, False)]


@pytest.mark.parametrize("rows, cols, good", SIZES)
def test_no_route_makes_a_terminal_too_small_to_read(server, agent, rows, cols, good):
    made = session(server, command="cat")
    sid, status = made["session_id"], 200 if good else 400
    for path in (f"{BOXES}/{agent}/terminals/{sid}/resize", f"{BOXES}/{agent}/execs/{sid}/resize",
                 f"/api/v1/agents/{agent}/commands/{sid}/resize"):
        reply = server.post(path, {"rows": rows, "cols": cols})
        assert reply.status == status, (path, reply)
    for path, wish in ((f"{BOXES}/{agent}/terminals", {"argv": ["true"]}),
                       (f"{BOXES}/{agent}/execs", {"argv": ["true"], "tty": True})):
        reply = server.post(path, {**wish, "rows": rows, "cols": cols})
        assert reply.status == (201 if good else 400), (path, reply)
    reply = server.post(f"/api/v1/agents/{agent}/commands", {"command": "true", "allocate_pty": True,
                                                             "pty_rows": rows, "pty_cols": cols})
    assert reply.status == (201 if good else 400), reply
    with hub(server) as ws:
        ws.send({"type": "create_session", "agent_id": agent, "session_name": "size", "command": "cat", "rows": rows,
                 "cols": cols})
        ws.until(type="session_created" if good else "error")
        if good:
            ws.send({"type": "kill_session", "agent_id": agent, "session_name": "size"})
            ws.until(type="session_killed")
    with Terminal(server, agent, sid, "?from=0&role=controller") as term:
        term.send({"type": "resize", "rows": rows, "cols": cols})
        if not good:  # the good one has this size already
            term.until("error")
    done = server.cli("session", "resize", sid, "--rows", str(rows), "--cols", str(cols))
    assert (done.returncode == 0) is good, done
    kill(server, sid)


@pytest.mark.parametrize("wish", [{"rows": 501}, {"cols": 100000}, {"working_dir": "/" + "x" * 4096},
                                  {"session_name": "n" * 64}, {"args": ["x"] * 5000}])
def test_what_no_row_may_hold_is_refused_on_the_socket_too(server, agent, wish):
    """A row that cannot be read again kept the next server from starting."""
    with hub(server) as ws:
        ws.send({"type": "create_session", "agent_id": agent, "session_name": "odd", "command": "cat", **wish})
        ws.until(type="error")
    server.kill9_api()
    server.wait_ready()
    assert server.get(f"{BOXES}/{agent}").json()["state"] == "running"


def test_what_requests_about_sessions_are_refused(server, agent):
    """In agentic's words, with the field named though its shape has no place for one."""
    for method, path, body, status, text in (
            ("POST", "/api/v1/agents/nobody/sessions", {}, 404, "Agent 'nobody' not found"),
            ("GET", "/api/v1/agents/nobody/sessions", None, 404, "Agent 'nobody' not found"),
            ("DELETE", "/api/v1/agents/nobody/sessions/x", None, 404, "Agent 'nobody' not found"),
            ("GET", "/agents/nobody/sessions/x/attach", None, 404, "Agent 'nobody' not found"),
            ("POST", f"/api/v1/agents/{agent}/sessions", {"session_name": ""}, 400, "session_name: must not be empty"),
            ("POST", "/api/v1/containers", {"name": "c1"}, 400, "image: required")):
        reply = server.request(method, path, json=body)
        assert (reply.status, reply.json()) == (status, {"error": text}), reply
    reply = server.post("/api/v1/vms/none/restart", {"mode": "odd"})
    assert (reply.status, reply.json()["error"]) == (
        400, {"code": "VALIDATION_ERROR", "message": "mode: must be one of graceful|hard"})
    made = session(server, command="sleep", args=["100"], session_name="watched")
    reply = server.get(f"/api/v1/sessions/{made['session_id']}/transcript?stream=odd")
    assert (reply.status, reply.json()) == (400, {"error": "stream: stdout, stderr or log"})
    with hub(server) as ws:
        ws.send({"type": "join_session", "session_id": made["session_id"], "role": "controller"})
        ws.until(type="session_joined")
        (listed,) = [s for s in server.get(f"/api/v1/agents/{agent}/sessions").json()["sessions"]
                     if s["session_name"] == "watched"]
        assert len(listed["membership"]["controllers"]) == listed["membership"]["attachment_count"] == 1
        assert listed["membership"]["observers"] == [] and listed["liveness"]["max_client_lag"] >= 0
        assert listed["liveness"]["agent_connected"] and listed["liveness"]["has_screen"]
    kill(server, made["session_id"])


def test_sessions_of_each_kind(server, agent):
    with hub(server) as ws:
        made = {}
        for kind in ("interactive", "background", "headless"):
            ws.send({"type": "create_session", "agent_id": agent, "session_name": kind, "session_type": kind,
                     "command": "sleep", "args": ["100"]})
            created = ws.until(type="session_created")
            assert created["session_id"] == created["command_id"] and created["session_type"] == kind
            made[kind] = created["command_id"]
        ws.send({"type": "create_session", "agent_id": agent, "session_name": "interactive",
                 "session_type": "interactive", "command": "sleep", "args": ["100"]})
        assert ws.until(type="session_created")["command_id"] == made["interactive"]
        ws.send({"type": "create_session", "agent_id": agent, "session_name": "headless",
                 "session_type": "headless", "command": "sleep", "args": ["100"]})
        assert ws.until(type="session_created")["command_id"] != made["headless"]
        ws.send({"type": "attach_session", "agent_id": agent, "session_name": "interactive", "cols": 77, "rows": 33})
        assert ws.until(type="session_attached")["command_id"] == made["interactive"]
        assert server.get(f"{BOXES}/{agent}/terminals/interactive").json()["cols"] == 77
        ws.send({"type": "create_session", "agent_id": agent, "session_name": "background",
                 "session_type": "interactive", "command": "sleep", "args": ["100"]})
        there = ws.until(type="session_created")
        assert (there["command_id"], there["session_type"]) == (made["background"], "background"), "what it is"
    server.kill9_api()
    server.wait_ready()
    with hub(server) as ws:
        ws.send({"type": "list_sessions", "agent_id": agent})
        kinds = {s["session_name"]: s["session_type"] for s in ws.until(type="session_list")["sessions"]}
        assert {name: kinds[name] for name in made} == {name: name for name in made}, "its row knows"
        listed = server.get(f"/api/v1/agents/{agent}/sessions").json()["sessions"]
        kinds = {s["session_name"]: s["session_type"] for s in listed if s["session_name"] in made}
        assert kinds == {name: name for name in made}
        assert server.get(f"{BOXES}/{agent}/execs/{made['background']}").json()["background"] is True
        for kind in made:
            ws.send({"type": "kill_session", "agent_id": agent, "session_name": kind})
            ws.until(type="session_killed")


# ---- the newer protocol ----

def frames(messages):
    return [m for m in messages if m["type"] == "session_frame"]


def test_joining_roles_and_frames(server, agent):
    made = session(server, command="sh", args=["-c", "printf one; read x; printf two; read x; exit 4"],
                   session_name="formal")
    sid = made["session_id"]
    assert made["join_message"] == {"type": "join_session", "session_id": sid, "role": "controller"}
    shows(server, sid, b"one")
    with hub(server) as one, hub(server) as two:
        one.send({"type": "join_session", "session_id": sid, "role": "controller", "replay_from": 0})
        assert one.until(type="session_joined")["role"] == "controller"
        assert base64.b64decode(one.until(type="session_frame", kind="output")["data"]) == b"one"
        assert one.until(kind="role_assigned")["role"] == "controller"
        one.until(kind="membership_changed")
        two.send({"type": "join_session", "session_id": sid, "role": "controller"})
        assert two.until(type="session_joined")["role"] == "observer"
        keyframe = two.until(kind="keyframe")
        assert b"one" in base64.b64decode(keyframe["data"])
        assert two.until(kind="role_assigned")["role"] == "observer"
        members = two.until(kind="membership_changed")
        assert len(members["controllers"]) == 1 and len(members["observers"]) == 1
        two.send({"type": "session_input", "session_id": sid, "data": "x\n"})
        assert two.until(type="error")["message"].startswith("Attached as observer (read-only)")
        one.send({"type": "session_resize", "session_id": sid, "cols": 10, "rows": 24})
        assert "20x5" in one.until(type="error")["message"]
        one.send({"type": "session_resize", "session_id": sid, "cols": 99, "rows": 22})
        assert two.until(kind="resize")["cols"] == 99
        one.send({"type": "session_input", "session_id": sid, "data": "\n"})
        seen = b""
        while b"two" not in seen:
            frame = two.until(kind="output")
            seen += base64.b64decode(frame["data"])
        last = frame["seq"]
        assert last > keyframe["seq"]
        two.send({"type": "leave_session", "session_id": sid})
        two.until(type="session_left")
        two.send({"type": "join_session", "session_id": sid, "replay_from": last})  # again, exactly there
        again = two.until(kind="output")
        assert again["seq"] == last
        one.send({"type": "session_input", "session_id": sid, "data": "\n"})
        assert one.until(kind="closed")["exit_code"] == 4
        assert two.until(kind="closed")["exit_code"] == 4
        numbers = [m["seq"] for m in frames(one.passed)]
        assert numbers == sorted(set(numbers))
        two.send({"type": "join_session", "session_id": "nothing"})
        assert two.until(type="error")["message"] == "Session 'nothing' not found"


def test_numbers_grow_by_one_with_every_frame_of_any_kind(server, agent):
    sid = session(server, command="sh", args=["-c", "echo a; read x; echo b; read x"])["session_id"]
    with hub(server) as ws:
        ws.send({"type": "join_session", "session_id": sid, "role": "controller", "replay_from": 0})
        seen = []
        ws.until(kind="membership_changed")
        seen += frames(ws.passed)
        ws.send({"type": "session_resize", "session_id": sid, "cols": 50, "rows": 20})
        ws.send({"type": "session_input", "session_id": sid, "data": "\n"})
        ws.send({"type": "session_input", "session_id": sid, "data": "\n"})
        ws.until(kind="closed")
        everything = sorted(m["seq"] for m in seen + frames(ws.passed))
    assert everything[0] == 0
    assert set(everything) | {e + 1 for e in everything} >= set(range(everything[-1]))


# ---- requests ----

def test_numbers_grow_for_who_has_much_to_read_first(server, agent):
    """What is replayed, then one's role, then who is there, however long the first takes."""
    line = "head -c 8000000 /dev/zero | tr '\\0' x; printf whole; sleep 1000"
    sid = session(server, command="sh", args=["-c", line])["session_id"]
    shows(server, sid, b"whole")
    with hub(server, rcvbuf=65536) as slow, hub(server) as other:
        slow.send({"type": "join_session", "session_id": sid, "replay_from": 0})
        current = slow.until(type="session_joined")["current_seq"]
        other.send({"type": "join_session", "session_id": sid, "role": "controller"})
        other.until(kind="membership_changed")
        seen = [slow.take()]
        while seen[-1]["kind"] != "membership_changed" or len(seen[-1]["controllers"] + seen[-1]["observers"]) < 2:
            seen.append(slow.take())
        numbers = [frame["seq"] for frame in seen]
        assert numbers[:current] == list(range(current)) and numbers == sorted(set(numbers)), numbers
        assert [f["kind"] for f in seen[current:]][0] == "role_assigned"
    server.delete(f"/api/v1/sessions/{sid}?signal=KILL")


def test_routes_about_sessions(server, agent):
    made = session(server, command="sh", args=["-c", "echo needle; echo hay; cat"], session_name="rest")
    sid = made["session_id"]
    assert made["command_id"] == sid and made["session_name"] == "rest" and made["default_role"] == "observer"
    assert made["pty_ws_subprotocol"] == "pty-ws.v1"
    reply = server.post(f"/api/v1/agents/{agent}/sessions", {"session_name": "rest"})
    assert reply.status == 409 and isinstance(reply.json()["error"], str)
    assert server.post("/api/v1/agents/nobody/sessions", {}).status == 404
    assert server.post(f"/api/v1/agents/{agent}/sessions", {"session_backend": "screen"}).status == 501
    listed = [s for s in server.get(f"/api/v1/agents/{agent}/sessions").json()["sessions"] if s["session_id"] == sid]
    assert listed[0]["has_screen"] and listed[0]["session_type"] == "interactive"
    harness.wait_until(lambda: "hay" in server.get(f"/api/v1/sessions/{sid}/screen").json()["text"], 10, "output")
    shown = server.get(f"/api/v1/sessions/{sid}/screen").json()
    assert (shown["rows"], shown["cols"], shown["cursor"]) == (50, 220, {"row": 2, "col": 0})
    assert shown["prompt_detected"] is False and shown["prompt_text"] is None
    reply = server.get("/api/v1/sessions/nothing/screen")
    assert reply.status == 404 and reply.json() == {"error": "session 'nothing' not tracked"}
    known = [s for s in server.get("/api/v1/sessions").json() if s["session_id"] == sid][0]
    assert known["name"] == "rest" and known["agent_id"] == agent and known["attachment_count"] == 0
    items = server.get(f"/api/v1/sessions/{sid}/transcript?q=needle").json()["items"]
    assert items and "needle" in items[0]["text"] and items[0]["kind"] == "output"
    assert server.get(f"/api/v1/sessions/{sid}/transcript?q=absent").json()["items"] == []
    reply = server.delete(f"/api/v1/sessions/{sid}?signal=STOP")
    assert reply.status == 400 and "TERM" in reply.json()["supported"]
    reply = server.delete(f"/api/v1/sessions/{sid}?signal=SIGKILL")
    assert reply.json() == {"session_id": sid, "signal": 9, "status": "signaled"}
    assert server.delete("/api/v1/sessions/nothing").status == 404
    assert server.delete(f"/api/v1/agents/{agent}/sessions/nothing").status == 404


def test_frames_as_events(server, agent):
    sid = session(server, command="sh", args=["-c", "printf hello; sleep 0.3; exit 6"])["session_id"]
    events = server.sse(f"/api/v1/sessions/{sid}/stream?from=0")
    seen = b""
    while True:
        frame = json.loads(events.next(10)["data"])
        if frame["kind"] == "closed":
            assert frame["exit_code"] == 6
            break
        if frame["kind"] == "output":
            seen += base64.b64decode(frame["data"])
    assert seen == b"hello"
    events.close()


# ---- the orchestrate socket ----

def test_orchestrate_reads_and_writes_a_screen(server, agent):
    sid = session(server, command="sh", args=["-c", "stty -echo; printf 'Go on? (y/n) '; read x; echo got $x; exit 9"])[
        "session_id"]
    path = f"/ws/sessions/{sid}/orchestrate"
    with pytest.raises(Refused) as refused:
        Json(server, path + "?role=king")
    assert refused.value.status == 400 and "invalid role" in json.loads(refused.value.body)["error"]
    with Json(server, path) as look, Json(server, path + "?role=controller") as act:
        assert look.take() == {"type": "session_start", "session_id": sid, "role": "observer", "can_write": False}
        assert act.take()["can_write"] is True
        asked = look.until(type="prompt_detected")
        assert asked["prompt_text"] == "Go on? (y/n)" and asked["confidence"] == 0.95
        shown = look.until(type="screen_update")
        assert shown["prompt_detected"] and shown["screen"]["text"].startswith("Go on? (y/n)")
        assert (shown["screen"]["rows"], shown["screen"]["cols"]) == (50, 220)
        look.send({"type": "write", "text": "n\n"})
        assert look.until(type="error")["message"] == \
            "orchestrator role observer cannot write; reconnect with ?role=controller"
        for nonsense in ("x", '{"type":"write"}', '{"type":"resize","rows":1}', "[]"):
            act.send(nonsense)
            assert act.until(type="error")["message"] == "invalid orchestrator input"
        act.send({"type": "signal", "signal": "SIGSTOP"})
        assert act.until(type="error")["message"] == "unsupported signal SIGSTOP"
        act.send({"type": "resize", "rows": 10, "cols": 40})
        assert look.until(type="screen_update")["screen"]["cols"] == 40
        act.send({"type": "write", "text": "yes\n"})
        while "got yes" not in act.until(type="screen_update")["screen"]["text"]:
            pass
        assert act.until(type="session_end")["exit_code"] == 9
        assert look.until(type="session_end")["exit_code"] == 9


def test_orchestrate_updates_while_output_never_pauses(server, agent):
    sid = session(server, command="sh", args=["-c", "while :; do echo $((i=i+1)); sleep 0.01; done"])["session_id"]
    with Json(server, f"/ws/sessions/{sid}/orchestrate") as ws:
        ws.take()
        began = time.monotonic()
        for _ in range(5):
            ws.until(type="screen_update")
        assert time.monotonic() - began >= 0.35  # not more often than every 100 ms
    server.delete(f"/api/v1/sessions/{sid}?signal=KILL")


# ---- pty-ws.v1 ----

class Pty(Json):
    def __init__(self, server, sid, query="", protocol="pty-ws.v1", **kw):
        headers = [f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []
        super().__init__(server, f"/agents/{AGENT}/sessions/{sid}/attach{query}", headers=headers, **kw)
        self.hello = self.take()
        assert self.hello["op"] == "binding_hello" and self.hello["seq"] == 0

    def op(self, op, **payload):
        self.send({"op": op, "payload": payload})


def test_pty_ws_join_type_and_close(server, agent):
    sid = session(server, command="sh", args=["-c", "stty -echo; printf one; read x; printf \"$x\"; read x; exit 8"])[
        "session_id"]
    with pytest.raises(Refused) as refused:
        Pty(server, sid, protocol="other")
    assert refused.value.status == 400
    assert json.loads(refused.value.body) == {"error": "unsupported_subprotocol", "supported": ["pty-ws.v1"]}
    shows(server, sid, b"one")
    with Pty(server, sid) as one, Pty(server, sid, protocol=None) as two:
        assert one.hello["payload"]["session"]["session_id"] == sid
        assert one.hello["payload"]["server_info"]["name"] == "atoll"
        one.op("pty.session_input", data="")
        assert one.until(op="error")["payload"]["code"] == "request.invalid_params"  # not joined
        one.op("pty.join_session", role="controller")
        assert one.until(op="role_assigned")["payload"]["role"] == "controller"
        two.op("pty.join_session")
        assert two.until(op="role_assigned")["payload"]["role"] == "observer"
        assert b"one" in base64.b64decode(two.until(op="keyframe")["payload"]["data"])
        members = two.until(op="membership_changed")["payload"]["members"]
        assert sorted(m["role"] for m in members) == ["controller", "observer"]
        two.op("pty.session_input", data=base64.b64encode(b"no\n").decode())
        assert two.until(op="error")["payload"] == {"code": "pty.permission_denied", "status": 403,
                                                    "message": "only the controller may type"}
        one.op("pty.session_input", data="!!")
        assert one.until(op="error")["payload"]["code"] == "request.invalid_params"
        one.op("pty.dance")
        assert one.until(op="error")["payload"]["code"] == "request.unsupported_operation"
        one.op("pty.session_resize", cols=66, rows=11)
        assert two.until(op="resize")["payload"] == {"cols": 66, "rows": 11}
        two.op("pty.request_role", role="controller")
        assert two.until(op="role_assigned")["payload"]["role"] == "observer"
        one.op("pty.release_role")
        one.until(op="role_assigned")
        two.op("pty.request_role", role="controller")
        assert two.until(op="role_assigned")["payload"]["role"] == "controller"
        two.op("pty.session_input", data=base64.b64encode(b"word\n").decode())
        frame = one.until(op="output")
        assert base64.b64decode(frame["payload"]["data"]) == b"word"
        with Pty(server, sid, f"?replay_from={frame['seq'] - 1}") as late:
            late.op("pty.join_session", role="observer")
            assert late.until(op="output")["seq"] == frame["seq"]
        two.op("pty.session_input", data=base64.b64encode(b"\n").decode())
        assert one.until(op="closed")["payload"]["exit_code"] == 8


def test_pty_ws_answers_with_the_id_of_what_it_answers(server, agent):
    """And what nobody asked for has none."""
    sid = session(server, command="sh", args=["-c", "printf begun; read x; printf more; read x"])["session_id"]
    harness.wait_until(lambda: "begun" in server.get(f"/api/v1/sessions/{sid}/screen").json()["text"], 10, "it")
    with Pty(server, sid) as ws:
        def ask(op, want, **payload):
            ws.send({"op": op, "id": "n-" + op, "sequence": 7, "extensions": [], "payload": payload})
            return ws.until(op=want).get("id")

        assert "id" not in ws.hello
        assert ask("pty.dance", "error") == "n-pty.dance"
        assert ask("pty.session_input", "error", data="") == "n-pty.session_input"
        assert ask("pty.join_session", "role_assigned") == "n-pty.join_session"
        ws.until(op="keyframe")
        assert all("id" not in m for m in ws.passed)
        assert ask("pty.request_keyframe", "keyframe") == "n-pty.request_keyframe"
        assert ask("pty.session_input", "output", data=base64.b64encode(b"\n").decode()) is None
        assert ask("pty.session_resize", "resize", cols=66, rows=11) is None
    server.delete(f"/api/v1/sessions/{sid}?signal=KILL")


def test_pty_ws_beyond_the_newest_frame(server, agent):
    """Out of range either way: told, and a picture instead."""
    sid = session(server, command="sh", args=["-c", "printf begun; read x; printf more; read x"])["session_id"]
    shows(server, sid, b"begun")
    with Pty(server, sid, "?replay_from=100000") as ws:
        ws.op("pty.join_session")
        ws.until(op="role_assigned")
        error = ws.until(op="error")["payload"]
        assert error["code"] == "replay.out_of_range" and error["oldest"] == 0
        assert b"begun" in base64.b64decode(ws.until(op="keyframe")["payload"]["data"])
        ws.op("pty.session_input", data=base64.b64encode(b"\n").decode())
        newest = ws.until(op="output")["seq"]
        shows(server, sid, b"more")
    with Pty(server, sid, f"?replay_from={newest + 1000}") as ws:
        newest = ws.hello["payload"]["session"]["current_sequence"]
    with Pty(server, sid, f"?replay_from={newest}") as ws:  # what hello told: in range, and nothing is missing
        ws.op("pty.join_session")
        ws.until(op="membership_changed")
        assert not [m for m in ws.passed if m["op"] in ("error", "keyframe")]
    server.delete(f"/api/v1/sessions/{sid}?signal=KILL")


def test_pty_ws_numbers_grow_for_who_has_much_to_read_first(server, agent):
    line = "head -c 8000000 /dev/zero | tr '\\0' x; printf whole; sleep 1000"
    sid = session(server, command="sh", args=["-c", line])["session_id"]
    shows(server, sid, b"whole")
    with Pty(server, sid) as other, Pty(server, sid, "?replay_from=0", rcvbuf=65536) as slow:
        current = slow.hello["payload"]["session"]["current_sequence"]
        other.op("pty.join_session")
        other.until(op="membership_changed")
        slow.op("pty.join_session")
        assert len(other.until(op="membership_changed")["payload"]["members"]) == 2  # told while slow reads nothing
        slow.until(op="role_assigned")
        slow.until(op="membership_changed")
        assert [f["seq"] for f in slow.passed] == list(range(1, current))
    server.delete(f"/api/v1/sessions/{sid}?signal=KILL")


def test_pty_ws_sizes_and_roles_in_every_place(server, agent):
    sid = session(server, command="sh", args=["-c", "read x; stty size; read x"])["session_id"]
    with Pty(server, sid) as ws, Pty(server, sid) as other:
        ws.op("pty.join_session", role="king")
        assert ws.until(op="error")["payload"]["code"] == "request.invalid_params"
        ws.op("pty.join_session", terminal_size={"cols": 91, "rows": 31})
        assert ws.until(op="resize")["payload"] == {"cols": 91, "rows": 31}
        ws.op("pty.request_role", role="king")
        assert ws.until(op="error")["payload"]["code"] == "request.invalid_params"
        ws.op("pty.session_input", data=base64.b64encode(b"\n").decode(), terminal_size={"cols": 92, "rows": 32})
        assert ws.until(op="resize")["payload"] == {"cols": 92, "rows": 32}
        shows(server, sid, b"32 92")
        ws.op("pty.session_input", data="", terminal_size={"cols": 0, "rows": 32})
        assert ws.until(op="error")["payload"]["code"] == "request.invalid_params"
        other.op("pty.join_session", terminal_size={"cols": 93, "rows": 33})  # watches: not its size
        other.until(op="membership_changed")
        assert not [m for m in other.passed if m["op"] in ("resize", "error")]
    server.delete(f"/api/v1/sessions/{sid}?signal=KILL")


def test_pty_ws_in_binary(server, agent):
    sid = session(server, command="sh", args=["-c", "stty -echo raw; printf ready; head -c 4; sleep 60"])["session_id"]
    with Pty(server, sid, protocol="pty-ws.v1.binary") as ws:
        assert "Sec-WebSocket-Protocol: pty-ws.v1.binary" in ws.head
        ws.op("pty.join_session")
        ws.until(op="keyframe")
        harness.wait_until(lambda: "ready" in server.get(f"/api/v1/sessions/{sid}/screen").json()["text"], 10, "it")
        ws.send(b"PW1I\0\1\2\3")
        seen = b""
        while b"\0\1\2\3" not in seen:
            text, data = ws.recv()
            if not text:
                assert data[:4] == b"PW1O" and data[12] == 1
                seen += data[13:]
        ws.send(b"nonsense")
        while True:
            text, data = ws.recv()
            if text and json.loads(data)["op"] == "error":
                break
    server.delete(f"/api/v1/sessions/{sid}?signal=KILL")


def test_nobody_attaches_by_these_either(server, agent):
    sid = session(server, command="cat", session_name="closed-doors")["session_id"]
    viewer = server.new_token("viewer")["token"]
    for path in (f"/ws/sessions/{sid}/orchestrate", f"/agents/{agent}/sessions/{sid}/attach"):
        with pytest.raises(Refused) as refused:
            Ws(server, path, token=None)
        assert refused.value.status == 401
    with pytest.raises(Refused) as refused:
        Ws(server, f"/ws/sessions/{sid}/orchestrate?role=controller", token=viewer)
    assert refused.value.status == 403
    with hub(server, token=viewer) as ws:
        for message in ({"type": "start_shell", "agent_id": agent},
                        {"type": "send_command", "agent_id": agent, "command": "true"},
                        {"type": "send_input", "agent_id": agent, "command_id": sid, "data": "x"},
                        {"type": "kill_session", "agent_id": agent, "session_name": "closed-doors"}):
            ws.send(message)
            assert "may watch" in ws.until(type="error")["message"], message
        ws.send({"type": "join_session", "session_id": sid, "role": "controller"})
        assert ws.until(type="session_joined")["role"] == "observer"
    assert server.request("POST", f"/api/v1/agents/{agent}/sessions", json={}, token=viewer).status == 403
    operator = server.new_token("operator")["token"]
    assert server.request("DELETE", f"/api/v1/sessions/{sid}", token=operator).status == 403  # admins only
    kill(server, "closed-doors")


def test_one_shell_for_all_who_ask_at_once(server, agent):
    """Asked for again before it has begun, it is the same one: nobody is told that its name is taken. One that was
    killed is not it any more, although it takes a moment to go."""
    before = set()
    for _ in range(5):
        with hub(server) as one, hub(server) as two:
            for ws in (one, two, one):
                ws.send({"type": "start_shell", "agent_id": agent})
            got = [ws.until(type="shell_started")["command_id"] for ws in (one, two, one)]
            assert len(set(got)) == 1 and not before & set(got), got
            before |= set(got)
        kill(server, "main")


def test_a_socket_that_closes_midway_leaves_no_trace(server, agent):
    for _ in range(20):
        ws = hub(server)
        ws.send({"type": "send_command", "agent_id": agent, "command": "true"})
        ws.send({"type": "start_shell", "agent_id": agent})
        ws.close()
    with pytest.raises((Closed, OSError)):
        ws.take()
    with hub(server) as ws:  # those before may have gone before the server read a word
        ws.send({"type": "start_shell", "agent_id": agent})
        ws.until(type="shell_started")
    kill(server, "main")
