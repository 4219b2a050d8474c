"""Terminals: typed into, watched, resumed, taken over, recorded, and found again after a kill."""
import json
import os
import socket
import subprocess
import time

import harness
import pytest
from terminal import Closed, Refused, Terminal, Ws

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


@pytest.fixture(scope="module")
def box(server):
    reply = server.post(BOXES, {"name": "terminals"})
    assert reply.status == 201, reply
    yield reply.json()["id"]
    assert server.delete(f"{BOXES}/{reply.json()['id']}").status == 200
    assert [file.name for file in (server.state / "data" / "spool").iterdir()] == ["ends"]


def make(server, box, *argv, **wish):
    if argv:
        wish["argv"] = list(argv)
    reply = server.post(f"{BOXES}/{box}/terminals", wish)
    assert reply.status == 201, reply
    return reply.json()["id"]


def show(server, box, tid):
    return server.get(f"{BOXES}/{box}/terminals/{tid}").json()


def kill(server, box, tid):
    assert server.delete(f"{BOXES}/{box}/terminals/{tid}").status in (200, 409)


def screen(server, box, tid, query=""):
    reply = server.get(f"{BOXES}/{box}/terminals/{tid}/screen{query}")
    assert reply.status == 200, reply
    return reply


# ---- the ordinary way ----

def test_typing_reading_resizing_and_the_end(server, box):
    tid = make(server, box, "/bin/sh", rows=30, cols=100)
    with Terminal(server, box, tid, "?from=0&role=controller") as term:
        assert term.role == "controller"
        assert (term.hello["rows"], term.hello["cols"], term.hello["begin"]) == (30, 100, 0)
        term.send(b"stty size\n")
        term.until(b"30 100")
        term.send({"type": "resize", "rows": 40, "cols": 120})
        told = term.until("resize")
        assert (told["rows"], told["cols"]) == (40, 120)
        term.send(b"stty size\n")
        term.until(b"40 120")
        assert show(server, box, tid)["viewers"] == 1
        assert show(server, box, tid)["rows"] == 40
        term.send(b"exit 7\n")
        _, code = term.drain()
        assert code == 1000
        assert term.exit["exit_code"] == 7
        assert term.exit["position"] == term.position
    assert show(server, box, tid)["state"] == "exited"


def test_a_terminal_without_a_command_is_a_shell(server, box):
    tid = make(server, box, name="shell")
    with Terminal(server, box, "shell", "?from=0&role=controller") as term:
        term.send(b"echo $((6*7)) $TERM\n")
        term.until(b"42 xterm-256color")
    reply = server.post(f"{BOXES}/{box}/terminals", {"name": "shell"})
    assert reply.status == 409
    assert tid in reply.json()["error"]["message"]
    kill(server, box, tid)


def test_leaving_does_not_stop_it_and_coming_back_goes_on_exactly(server, box):
    tid = make(server, box, "sh", "-c", "for i in $(seq 1 300); do echo line $i; sleep 0.005; done")
    seen, position = b"", 0
    while b"line 300\r\n" not in seen:
        with Terminal(server, box, tid, f"?from={position}") as term:
            assert term.position == position
            for _ in range(5):
                got = term.step()
                seen += got if isinstance(got, bytes) else b""
                if b"line 300\r\n" in seen:
                    break
            position = term.position
    assert seen == b"".join(b"line %d\r\n" % i for i in range(1, 301))


def test_without_a_place_the_screen_comes_first(server, box):
    tid = make(server, box, "sh", "-c", "printf 'on the screen'; sleep 60")
    harness.wait_until(lambda: show(server, box, tid)["end"] == 13, 10, "the output")
    with Terminal(server, box, tid) as term:
        assert term.role == "observer"
        term.until("keyframe")
        assert b"on the screen" in term.keyframe
        assert term.position == 13 and not term.gaps
    kill(server, box, tid)


def test_the_screen_as_text_cells_and_json(server, box):
    tid = make(server, box, "sh", "-c", r"printf 'one\n\033[1;31mtwo\033[0m'; sleep 60", rows=5, cols=20)
    harness.wait_until(lambda: show(server, box, tid)["end"] > 10, 10, "the output")
    assert screen(server, box, tid, "?format=text").body.decode().rstrip() == "one\ntwo"
    told = screen(server, box, tid).json()
    assert told["text"].rstrip() == "one\ntwo"
    assert (told["rows"], told["cols"]) == (5, 20)
    assert told["cursor"]["row"] == 1 and told["cursor"]["col"] == 3
    cells = screen(server, box, tid, "?format=cells").json()["screen"]
    run = cells["lines"][1][0]
    assert run["text"] == "two" and run["fg"] == 1
    assert server.get(f"{BOXES}/{box}/terminals/{tid}/screen?format=picture").status == 400
    kill(server, box, tid)


def test_signals_and_kill(server, box):
    tid = make(server, box, "sleep", "100")
    reply = server.post(f"{BOXES}/{box}/terminals/{tid}/signal", {"signal": "INT"})
    assert reply.status == 200
    with Terminal(server, box, tid, "?from=0") as term:
        term.drain()
        assert term.exit["signal"] == 2
    tid = make(server, box, "sleep", "100")
    assert server.delete(f"{BOXES}/{box}/terminals/{tid}").status == 200
    with Terminal(server, box, tid, "?from=0") as term:
        term.drain()
        assert term.exit["signal"] == 9
    assert server.delete(f"{BOXES}/{box}/terminals/{tid}").status == 409  # it has ended
    assert server.delete(f"{BOXES}/{box}/terminals/nothing").status == 404
    assert tid in [t["id"] for t in server.get(f"{BOXES}/{box}/terminals").json()["items"]]


# ---- roles ----

def test_one_types_until_another_takes_over(server, box):
    tid = make(server, box, "cat")
    with Terminal(server, box, tid, "?from=0&role=controller") as one, \
            Terminal(server, box, tid, "?from=0&role=controller") as two:
        assert (one.role, two.role, two.hello["reason"]) == ("controller", "observer", "held")
        two.send(b"not mine\n")
        assert two.until("error")["code"] == "forbidden"
        two.send({"type": "resize", "rows": 10, "cols": 10})
        assert two.until("error")["code"] == "forbidden"
        two.send({"type": "control"})
        assert two.until("role")["reason"] == "held"
        two.send({"type": "control", "take": True})
        assert two.until("role") == {"type": "role", "role": "controller", "reason": "asked"}
        assert one.until("role") == {"type": "role", "role": "observer", "reason": "taken"}
        two.send(b"mine\n")
        one.until(b"mine\r\nmine\r\n")
        two.send({"type": "release"})
        assert two.until("role")["reason"] == "released"
        one.send({"type": "control"})
        assert one.until("role")["role"] == "controller"
    audit = server.get("/api/v1/audit?limit=100").json()["items"]
    assert any(row["action"] == "terminal.controlled" for row in audit)
    kill(server, box, tid)


def test_a_lease_that_nobody_uses_ends(server, box):
    tid = make(server, box, "cat", lease_ms=200)
    with Terminal(server, box, tid, "?from=0&role=controller") as term:
        assert term.until("role") == {"type": "role", "role": "observer", "reason": "idle"}
        term.send({"type": "control"})
        assert term.until("role")["role"] == "controller"
    kill(server, box, tid)


def test_viewers_look_and_do_not_touch(server, box):
    tid = make(server, box, "sh", "-c", "echo hi; cat")
    viewer = server.new_token("viewer")["token"]
    with pytest.raises(Refused) as refused:
        Terminal(server, box, tid, "?role=controller", token=viewer)
    assert refused.value.status == 403
    with Terminal(server, box, tid, "?from=0", token=viewer) as term:
        term.until(b"hi\r\n")
        term.send({"type": "control", "take": True})
        assert term.until("error")["code"] == "forbidden"
        term.send({"type": "signal", "signal": "KILL"})
        assert term.until("error")["code"] == "forbidden"
    for method, path, body in (("POST", "", {}), ("DELETE", f"/{tid}", None),
                               ("POST", f"/{tid}/resize", {"rows": 5, "cols": 5}),
                               ("POST", f"/{tid}/signal", {"signal": "KILL"})):
        reply = server.request(method, f"{BOXES}/{box}/terminals{path}", json=body, token=viewer)
        assert reply.status == 403, (method, path)
    kill(server, box, tid)


def test_nobody_and_strangers_are_refused(server, box):
    tid = make(server, box, "cat")
    path = f"{BOXES}/{box}/terminals/{tid}/ws"
    for kw, status in (({"token": None}, 401), ({"headers": ["Origin: http://evil.example"]}, 403)):
        with pytest.raises(Refused) as refused:
            Ws(server, path, **kw)
        assert refused.value.status == status
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall((f"GET {path} HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {harness.websocket_key()}\r\n"
                      f"Authorization: Bearer {server.token}\r\n\r\n").encode())
        assert b" 421 " in sock.recv(4096).split(b"\r\n")[0]
    kill(server, box, tid)


def test_a_revoked_credential_is_cut(server, box):
    tid = make(server, box, "cat")
    made = server.new_token("operator")
    with Terminal(server, box, tid, "?from=0&role=controller", token=made["token"]) as term:
        assert server.delete(f"/api/v1/tokens/{made['id']}").status == 200
        _, code = term.drain()
        assert code == 4401
    harness.wait_until(lambda: show(server, box, tid)["viewers"] == 0, 5, "nobody to be attached")
    assert show(server, box, tid)["state"] == "running"
    kill(server, box, tid)


# ---- bad input ----

def test_places_and_roles_that_make_no_sense(server, box):
    tid = make(server, box, "cat")
    for query, status in (("?from=1000", 416), ("?from=-1", 400), ("?from=x", 400), ("?role=king", 400),
                          ("?take=2", 400), ("?what=1", 400)):
        with pytest.raises(Refused) as refused:
            Terminal(server, box, tid, query)
        assert refused.value.status == status, query
        assert json.loads(refused.value.body)["error"]["message"]
    with pytest.raises(Refused) as refused:
        Terminal(server, box, "ex0000000000000000000000000000")
    assert refused.value.status == 404
    reply = server.post(f"{BOXES}/{box}/execs", {"argv": ["sleep", "5"]}).json()
    with pytest.raises(Refused) as refused:
        Terminal(server, box, reply["id"])
    assert refused.value.status == 404  # a command, and no terminal
    kill(server, box, tid)


def test_wishes_that_make_no_sense_are_told_and_survived(server, box):
    tid = make(server, box, "cat")
    with Terminal(server, box, tid, "?from=0&role=controller") as term:
        for wish in ({"type": "resize", "rows": 0, "cols": 80}, {"type": "resize", "rows": 24},
                     {"type": "resize", "rows": 24, "cols": 1001}, {"type": "dance"}, {"no": "type"},
                     {"type": "signal", "signal": "NOPE"}, {"type": "signal"}, {"type": "resize", "rows": "a"}):
            term.send(wish)
            assert term.until("error")["message"], wish
        term.send(b"x" * 65537)
        assert term.until("error")["code"] == "too_large"
        term.send(b"still here\n")
        term.until(b"still here\r\nstill here\r\n")
        assert (show(server, box, tid)["rows"], show(server, box, tid)["cols"]) == (24, 80)
    kill(server, box, tid)


@pytest.mark.parametrize("text", ["ls\n", "[1]", "3", '{"type":', ""])
def test_typing_in_text_messages_ends_it(server, box, text):
    tid = make(server, box, "cat")
    with Terminal(server, box, tid, "?from=0&role=controller") as term:
        term.send(text)
        output, code = term.drain()
        assert (output, code) == (b"", 4400)
        assert term.told[-1]["type"] == "error"
    assert show(server, box, tid)["end"] == 0
    kill(server, box, tid)


def test_a_message_beyond_all_limits_closes(server, box):
    tid = make(server, box, "cat")
    with Terminal(server, box, tid, "?from=0&role=controller") as term:
        term.send(b"x" * (1 << 20) + b"x")
        assert term.drain()[1] == 1009
    kill(server, box, tid)


def test_input_that_is_not_read_waits_and_arrives_whole(server, box):
    """More than every buffer between, in canonical-off mode, to a reader that begins late."""
    tid = make(server, box, "sh", "-c", "stty raw -echo; printf ready; sleep 1; head -c 2000000 | sha256sum; sleep 60")
    import hashlib
    data = os.urandom(2000000)
    with Terminal(server, box, tid, "?from=0&role=controller") as term:
        term.until(b"ready")
        for at in range(0, len(data), 50000):
            term.send(data[at:at + 50000])
        term.until(hashlib.sha256(data).hexdigest().encode())
    kill(server, box, tid)


# ---- slow viewers, gaps ----

def test_a_viewer_that_does_not_read_hinders_nobody_and_is_let_go(server, box):
    """It is left behind by more than is kept; the command and another viewer go on meanwhile."""
    size = 80 << 20
    tid = make(server, box, "sh", "-c", f"stty raw; sleep 1; head -c {size} /dev/zero; sleep 60")
    slow = Terminal(server, box, tid, "?from=0", rcvbuf=4096)
    with Terminal(server, box, tid, "?from=0") as quick:
        total = 0
        while total < size:
            got = quick.step()
            total += len(got) if isinstance(got, bytes) else 0
        assert not quick.gaps
    output, code = slow.drain()
    if code != 1006:  # else it was cut by the server's limit for writing
        assert code == 4408
        told = [m for m in slow.told if m["type"] == "detached"][0]
        assert told["position"] == slow.position == len(output) < size
        assert "slow" in told["reason"]
    with Terminal(server, box, tid, f"?from={slow.position}") as again:
        again.until("keyframe")
        assert again.gaps == [(slow.position, size)]
    slow.close()
    kill(server, box, tid)


# ---- recordings ----

def test_a_recording_replays_with_times_and_sizes(server, box):
    tid = make(server, box, "sh", "-c", r"printf 'gr\303\274n '; sleep 0.3; read x; printf 'after\n'", rows=10, cols=40)
    with Terminal(server, box, tid, "?from=0&role=controller") as term:
        term.until(b"gr\xc3\xbcn ")
        term.send({"type": "resize", "rows": 12, "cols": 50})
        term.until("resize")
        time.sleep(0.2)
        term.send(b"\n")
        term.drain()
    reply = server.get(f"{BOXES}/{box}/terminals/{tid}/recording")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/x-asciicast"
    head, *events = [json.loads(line) for line in reply.body.decode().splitlines()]
    assert (head["version"], head["width"], head["height"]) == (2, 40, 10)
    assert [e for e in events if e[1] == "r"][0][2] == "50x12"
    text = "".join(e[2] for e in events if e[1] == "o")
    assert text.startswith("grün ") and text.endswith("after\r\n")
    times = [e[0] for e in events]
    assert times == sorted(times) and times[-1] - times[0] >= 0.2


# ---- kills ----

def test_after_a_kill_of_the_api_everything_goes_on(server, box):
    tid = make(server, box, "sh", "-c", "printf 'before '; read x; echo got $x; read y; exit 5", rows=7, cols=33)
    with Terminal(server, box, tid, "?from=0&role=controller") as term:
        term.until(b"before ")
        term.send({"type": "resize", "rows": 8, "cols": 44})
        term.until("resize")
        before = screen(server, box, tid).json()
        position = term.position
        server.kill9_api()
        with pytest.raises((Closed, OSError)):
            while True:
                term.step()
    server.wait_ready()
    after = screen(server, box, tid).json()
    assert after == before
    with Terminal(server, box, tid, f"?from={position}&role=controller") as term:
        assert (term.hello["rows"], term.hello["cols"], term.role) == (8, 44, "controller")
        term.send(b"this\n")
        assert term.until(b"got this\r\n").startswith(b"this\r\n")
        term.send(b"\n")
        term.drain()
        assert term.exit["exit_code"] == 5
    assert "got this" in screen(server, box, tid).json()["text"]  # of an ended one, from its keyframe


def test_draining_says_so(start_server):
    server = start_server()
    box = server.post(BOXES, {}).json()["id"]
    tid = make(server, box, "cat")
    with Terminal(server, box, tid, "?from=0") as term:
        server.process.terminate()
        assert term.drain()[1] == 1001
    server.process.wait(20)
    server.start()
    assert server.delete(f"{BOXES}/{box}").status == 200


# ---- other people's client ----

def test_the_ws_client_of_npm(server, box, node_modules):
    done = subprocess.run(["node", "terminal.mjs", server.host, server.token, box],
                          cwd=harness.ROOT / "tests" / "peers",
                          capture_output=True, text=True, timeout=60 * harness.SLOW)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 3
