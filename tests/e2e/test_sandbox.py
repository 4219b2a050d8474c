"""Sandboxes as their users see them: made, used, limited, found again after a kill, and gone without
a trace. Root only: an ordinary user's kernel does not allow them everywhere."""
import base64
import json
import os
import socket
import subprocess
import threading
import time

import harness
import pytest
from harness import run_in as run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


@pytest.fixture
def boxes(server):
    """The server, with no sandbox before and after."""
    yield server
    harness.delete_boxes(server)
    leftovers(server)


def leftovers(server):
    """What a sandbox could leave behind on the host."""
    assert list((server.state / "boxes").iterdir()) == []
    assert [file.name for file in (server.state / "data" / "spool").iterdir()] == ["ends"]
    groups = [path for path, _, _ in os.walk("/sys/fs/cgroup") if "/sb" in path]  # others' come and go
    mine = [g for g in groups if any(i in g for i in server.__dict__.get("made", []))]
    assert mine == []


def make(server, **wish):
    box = harness.make_box(server, **wish)
    server.__dict__.setdefault("made", []).append(box)
    return box


def start(server, box, *argv, **wish):
    reply = server.post(f"{BOXES}/{box}/execs", {"argv": list(argv), **wish})
    assert reply.status == 201, reply
    return reply.json()


def output(server, box, exec_id, stream="stdout", query=""):
    reply = server.get(f"{BOXES}/{box}/execs/{exec_id}/output?stream={stream}{query}")
    assert reply.status == 200, reply
    return reply.body


# ---- the usual ----

def test_a_command_has_output_errors_and_an_exit_code(boxes):
    box = make(boxes)
    done = run(boxes, box, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done["state"], done["exit_code"], done["signal"]) == ("exited", 3, 0)
    assert (done["output"], done["errors"]) == ("out\n", "err\n")
    assert output(boxes, box, done["id"]) == b"out\n"
    assert output(boxes, box, done["id"], "stderr") == b"err\n"
    assert output(boxes, box, done["id"], query="&from=2") == b"t\n"


def test_a_shell_line_environment_user_and_directory(boxes):
    box = make(boxes, env={"A": "box", "B": "box"})
    reply = boxes.post(f"{BOXES}/{box}/execs?wait=20000",
                       {"command": "echo $A $B $HOME; id -u; pwd", "env": {"B": "exec"}})
    # check-style: allow machine-path: inside every sandbox
    assert reply.json()["output"] == "box exec /home/agent\n1000\n/workspace\n"
    assert run(boxes, box, "pwd", cwd="/tmp")["output"] == "/tmp\n"


def test_root_only_where_it_was_chosen(boxes):
    plain, root = make(boxes), make(boxes, user="root")
    assert run(boxes, root, "id", "-u")["output"] == "0\n"
    assert run(boxes, root, "id", "-u", user="agent")["output"] == "1000\n"
    reply = boxes.post(f"{BOXES}/{plain}/execs", {"argv": ["id"], "user": "root"})
    assert reply.status == 400 and reply.error["field"] == "user"


def test_all_bytes_arrive_in_order(boxes):
    box = make(boxes)
    done = run(boxes, box, "seq", "1", "300000")
    assert output(boxes, box, done["id"]) == b"".join(b"%d\n" % i for i in range(1, 300001))


def test_input_of_any_bytes(boxes):
    box = make(boxes)
    exec_id = start(boxes, box, "cat", stdin_open=True)["id"]
    data = os.urandom(700000)
    path = f"{BOXES}/{box}/execs/{exec_id}/stdin"
    assert boxes.request("POST", path, body=data[:400000]).json()["bytes"] == 400000
    assert boxes.request("POST", path + "?eof=1", body=data[400000:]).status == 200
    done = boxes.get(f"{BOXES}/{box}/execs/{exec_id}?wait=20000").json()
    assert done["exit_code"] == 0
    assert output(boxes, box, exec_id) == data
    assert boxes.request("POST", path, body=b"late").status == 409


def test_input_has_positions(boxes):
    """Counted from the first byte ever; a body that was taken before is not taken again, not even in part."""
    box = make(boxes)
    exec_id = start(boxes, box, "cat", stdin="abc", stdin_open=True)["id"]
    path = f"{BOXES}/{box}/execs/{exec_id}/stdin"

    def put(body, query=""):
        reply = boxes.request("POST", path + query, body=body)
        return [reply.status, *(reply.json()[k] for k in ("bytes", "position", "eof"))]

    assert put(b"de") == [200, 2, 5, False]
    assert put(b"", "?at=5") == [200, 0, 5, False]
    assert put(b"fg", "?at=5") == [200, 2, 7, False]
    assert put(b"fg", "?at=5") == [200, 2, 7, False]
    assert put(b"fghi", "?at=5") == [200, 4, 9, False]
    assert put(b"a", "?at=0") == [200, 1, 9, False]
    boxes.kill9_api()
    boxes.wait_ready()
    assert put(b"hijk", "?at=7") == [200, 4, 11, False]
    assert put(b"l") == [200, 1, 12, False]
    reply = boxes.request("POST", f"{path}?at=13", body=b"n")
    assert reply.status == 409 and f"the input of command {exec_id} is at 12" in reply.error["message"], reply
    for bad in ("-1", "x", "9223372036854775808"):
        reply = boxes.request("POST", f"{path}?at={bad}", body=b"n")
        assert reply.status == 400 and reply.error["field"] == "at", reply
    assert put(b"lm", "?at=11&eof=1") == [200, 2, 13, True]
    assert boxes.get(f"{BOXES}/{box}/execs/{exec_id}?wait=20000").json()["output"] == "abcdefghijklm"


def test_input_of_who_left_stays_counted(boxes):
    """What was taken of a body whose sender went away is in the input, and the position says so."""
    box = make(boxes)
    exec_id = start(boxes, box, "sh", "-c", "until test -e /tmp/go; do sleep 0.05; done; cat", stdin_open=True)["id"]
    path = f"{BOXES}/{box}/execs/{exec_id}/stdin"
    data = os.urandom(500_000)
    with socket.create_connection(("127.0.0.1", boxes.port)) as peer:
        peer.sendall((f"POST {path} HTTP/1.1\r\nHost: {boxes.host}\r\nAuthorization: Bearer {boxes.token}\r\n"
                      "Content-Length: 500000\r\n\r\n").encode() + data[:400_000])
        time.sleep(0.5)  # some of it is on its way to the command
    assert run(boxes, box, "touch", "/tmp/go")["exit_code"] == 0
    # Until the server has seen that it left, it is still its turn.
    harness.wait_until(lambda: boxes.request("POST", f"{path}?at=0&eof=1", body=data).status == 200, 20, "its turn")
    assert boxes.get(f"{BOXES}/{box}/execs/{exec_id}?wait=20000").json()["exit_code"] == 0
    assert output(boxes, box, exec_id) == data


def test_input_that_nobody_reads_is_refused(boxes):
    box = make(boxes)
    deaf = start(boxes, box, "sh", "-c", "exec 0<&-; sleep 1000", stdin_open=True)["id"]
    path = f"{BOXES}/{box}/execs/{deaf}"
    harness.wait_until(lambda: boxes.get(path).json()["state"] == "running", 10, "its start")
    harness.wait_until(lambda: boxes.request("POST", f"{path}/stdin", body=b"hello").status == 409, 10, "a refusal")
    assert "input" in boxes.request("POST", f"{path}/stdin", body=b"again").error["message"]


def test_who_leaves_no_longer_writes(boxes):
    """A body that waits to be read is given up with its connection; the next one has its turn."""
    box = make(boxes)
    deaf = start(boxes, box, "sleep", "1000", stdin_open=True)["id"]
    path = f"{BOXES}/{box}/execs/{deaf}/stdin"

    def busy():
        """Is it somebody else's turn? Who has it waits, as nothing is read."""
        try:
            return boxes.request("POST", path, body=b"x", timeout=2).status == 409
        except TimeoutError:
            return False

    with socket.create_connection(("127.0.0.1", boxes.port)) as peer:
        peer.sendall((f"POST {path} HTTP/1.1\r\nHost: {boxes.host}\r\nAuthorization: Bearer {boxes.token}\r\n"
                      "Content-Length: 200000\r\n\r\n").encode() + bytes(200000))
        harness.wait_until(busy, 10, "the first writer's turn")
    harness.wait_until(lambda: not busy(), 10, "its end")


def test_input_with_the_wish(boxes):
    """In the same request, to its end; nobody needs to open anything."""
    box = make(boxes)
    assert run(boxes, box, "cat", stdin="größer\n")["output"] == "größer\n"
    assert run(boxes, box, "wc", "-c", stdin="")["output"] == "0\n"
    data = os.urandom(262144)
    done = run(boxes, box, "cat", stdin_base64=base64.b64encode(data).decode())
    assert output(boxes, box, done["id"]) == data
    # One that never reads it has it all the same: its start is told, and it can be ended.
    deaf = start(boxes, box, "sleep", "1000", stdin_base64=base64.b64encode(data).decode())["id"]
    assert boxes.post(f"{BOXES}/{box}/execs/{deaf}/cancel").json()["state"] == "exited"
    # More of it may follow.
    more = start(boxes, box, "cat", stdin="one ", stdin_open=True)["id"]
    assert boxes.request("POST", f"{BOXES}/{box}/execs/{more}/stdin?eof=1", body=b"two").status == 200
    assert boxes.get(f"{BOXES}/{box}/execs/{more}?wait=10000").json()["output"] == "one two"
    done = run(boxes, box, "sh", "-c", "read a; echo got $a", tty=True, stdin="typed\n")
    assert "got typed" in done["output"]
    path = f"{BOXES}/{box}/execs"
    for wish, field in (({"stdin": "a", "stdin_base64": "YQ=="}, "stdin_base64"),
                        ({"stdin_base64": "?"}, "stdin_base64"), ({"stdin": "x" * 262145}, "stdin"),
                        ({"stdin_base64": base64.b64encode(data + b"x").decode()}, "stdin_base64")):
        reply = boxes.post(path, {"argv": ["cat"], **wish})
        assert reply.status == 400 and reply.error["field"] == field, reply


def test_cancel_ends_when_nothing_is_left(boxes):
    """A tree that left session and parent behind, and a process that takes long to die."""
    box = make(boxes, memory=900 << 20, disk=16 << 20)
    slow = "import time; b = bytearray(600 << 20); open('/tmp/ready', 'w'); time.sleep(1000)"
    line = f"echo before; setsid sleep 1000 >/dev/null 2>&1 & python3 -c \"{slow}\" >/dev/null 2>&1 & sleep 1001"
    one = start(boxes, box, "sh", "-c", line)["id"]
    path = f"{BOXES}/{box}/files/stat?path=/tmp/ready"
    harness.wait_until(lambda: boxes.get(path).status == 200, 30, "the program is ready")
    done = boxes.post(f"{BOXES}/{box}/execs/{one}/cancel").json()
    left = boxes.get(f"{BOXES}/{box}/processes").json()["items"]
    assert done["state"] == "exited" and done["signal"] == 9 and done["output"] == "before\n", done
    assert not done["oom"] and not done["timed_out"]
    assert [p for p in left if "sleep" in str(p) or "python" in str(p)] == []
    again = boxes.post(f"{BOXES}/{box}/execs/{one}/cancel")
    assert again.status == 200 and again.json()["signal"] == 9
    assert boxes.post(f"{BOXES}/{box}/execs/ex123/cancel").status == 404


def test_out_of_memory_is_told_apart(boxes):
    box = make(boxes, memory=64 << 20, disk=8 << 20)
    eat = ["python3", "-c", "b = b'x' * (200 << 20)"]
    done = run(boxes, box, *eat)
    assert done["oom"] and done["signal"] == 9 and not done["timed_out"], done
    assert run(boxes, box, "sh", "-c", '"$@"; exit 3', "sh", *eat)["oom"]
    assert not run(boxes, box, "false")["oom"]
    assert not run(boxes, box, "sh", "-c", "kill -9 $$")["oom"]
    kept = boxes.get(f"{BOXES}/{box}/execs/{done['id']}").json()
    assert kept["oom"]


def test_a_terminal(boxes):
    box = make(boxes)
    done = run(boxes, box, "sh", "-c", "tty; stty size", tty=True, rows=33, cols=77)
    assert done["output"].replace("\r", "") == "/dev/pts/0\n33 77\n"


def test_the_time_of_a_command_kills_all_it_started(boxes):
    box = make(boxes)
    done = run(boxes, box, "sh", "-c", "echo before; sleep 1000 & sleep 1000", timeout_ms=500)
    assert done["timed_out"] and done["signal"] == 9 and done["output"] == "before\n"
    left = run(boxes, box, "sh", "-c", "grep -l sleep /proc/[0-9]*/comm | wc -l")
    assert left["output"] == "0\n"


def test_signals(boxes):
    box = make(boxes)
    one = start(boxes, box, "sleep", "1000")["id"]
    reply = boxes.post(f"{BOXES}/{box}/execs/{one}/signal", {"signal": "TERM"})
    assert reply.status == 200, reply
    done = boxes.get(f"{BOXES}/{box}/execs/{one}?wait=10000").json()
    assert (done["signal"], done["exit_code"]) == (15, 143)
    assert boxes.post(f"{BOXES}/{box}/execs/{one}/signal", {"signal": "TERM"}).status == 409


def test_a_command_begins_with_no_signal_ignored_or_blocked(boxes):
    box = boxes.post(BOXES, {}).json()["id"]
    masks = run(boxes, box, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")["output"].split()
    assert masks == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]
    assert boxes.delete(f"{BOXES}/{box}").status == 200


def test_both_streams_as_events(boxes):
    box = make(boxes)
    exec_id = start(boxes, box, "sh", "-c", "echo a; sleep 0.3; echo b >&2; sleep 0.3; echo c")["id"]
    got = {"stdout": b"", "stderr": b""}
    reply = boxes.get(f"{BOXES}/{box}/execs/{exec_id}/output", headers={"accept": "text/event-stream"})
    events = [dict(line.split(": ", 1) for line in event.splitlines())
              for event in reply.body.decode().split("\n\n") if event]
    assert events[-1]["event"] == "exit" and json.loads(events[-1]["data"])["exit_code"] == 0
    for event in events[:-1]:
        got[event["event"]] += base64.b64decode(event["data"])
        last = event["id"]
    again = boxes.get(f"{BOXES}/{box}/execs/{exec_id}/output",
                      headers={"accept": "text/event-stream", "last-event-id": "2,2"}).body.decode()
    assert again.count("event: std") == 1 and "id: 4,2" in again
    assert got == {"stdout": b"a\nc\n", "stderr": b"b\n"} and last == "4,2"


def test_pause_and_resume(boxes):
    box = make(boxes)
    one = start(boxes, box, "sh", "-c", "while :; do echo x; sleep 0.01; done")["id"]
    assert boxes.post(f"{BOXES}/{box}/pause").json()["state"] == "paused"
    time.sleep(0.2)
    size = boxes.get(f"{BOXES}/{box}/execs/{one}").json()["stdout_bytes"]
    time.sleep(0.3)
    assert boxes.get(f"{BOXES}/{box}/execs/{one}").json()["stdout_bytes"] == size
    assert boxes.post(f"{BOXES}/{box}/execs", {"argv": ["true"]}).status == 409
    assert boxes.post(f"{BOXES}/{box}/pause").status == 409
    assert boxes.post(f"{BOXES}/{box}/resume").json()["state"] == "running"
    harness.wait_until(lambda: boxes.get(f"{BOXES}/{box}/execs/{one}").json()["stdout_bytes"] > size,
                       5, "output after resume")


def test_what_is_in_memory_is_not_stopped(boxes):
    box = make(boxes, name="keeper", storage="memory")
    for verb in ("stop", "start"):
        reply = boxes.post(f"{BOXES}/keeper/{verb}")
        assert reply.status == 409, reply
    assert "in memory" in boxes.post(f"{BOXES}/keeper/stop").error["message"]
    assert boxes.get(f"{BOXES}/{box}").json()["state"] == "running"


def test_a_lifetime_ends_it(boxes):
    box = make(boxes, ttl_ms=1000)
    harness.wait_until(lambda: boxes.get(f"{BOXES}/{box}").status == 404, 5, "the end of its life")


@pytest.mark.parametrize("storage, state", [("memory", "failed"), ("disk", "stopped")])
def test_an_init_that_is_killed_is_told(boxes, storage, state):
    box = make(boxes, storage=storage)
    inits = [p for p in harness.descendants(boxes.warden_pid)
             if f"/{box}" in harness.cgroups_of(p)]
    os.kill(min(inits), 9)
    harness.wait_until(lambda: boxes.get(f"{BOXES}/{box}").json()["state"] == state, 5, state)
    assert "killed" in boxes.get(f"{BOXES}/{box}").json()["reason"]


def test_what_is_applied_is_read_back(boxes):
    box = make(boxes, memory=64 << 20, pids=50, disk=8 << 20)
    applied = boxes.get(f"{BOXES}/{box}/applied").json()
    assert applied["limits"]["memory"] == 64 << 20 and applied["limits"]["pids"] == 50
    assert all(ns["own"] for ns in applied["namespaces"].values())
    assert applied["no_new_privs"] and applied["seccomp_mode"] == 2
    assert boxes.get(f"{BOXES}/{box}/stats").json()["pids"] >= 1


# ---- rules about files ----

def test_rules_about_files_hold_and_are_told(boxes):
    rules = [{"path": "/workspace", "access": "write"}, {"path": "/srv", "access": "read"}]
    box = make(boxes, user="root", files=rules)
    assert boxes.get(f"{BOXES}/{box}").json()["files"] == rules
    layers = {layer["layer"]: layer for layer in boxes.get(f"{BOXES}/{box}/applied").json()["layers"]}
    assert "2 rules" in layers["landlock"]["asked"]
    script = "touch f && ls /srv && ! ls /opt && ! touch /srv/f && cat f"
    for user in "agent", "root":
        done = run(boxes, box, "sh", "-c", script, user=user)
        assert (done["exit_code"], done["file_policy"]) == (0, True), done
        assert done["errors"].count("Permission denied") == 2
    # a command's own rules only take away
    own = [{"path": "/", "access": "write"}]
    done = run(boxes, box, "sh", "-c", script, files=own)
    assert done["exit_code"] == 0 and done["files"] == own, done
    assert run(boxes, box, "sh", "-c", "echo > f", files=[{"path": "/", "access": "read"}])["exit_code"] != 0
    # file requests are not commands
    assert boxes.get(f"{BOXES}/{box}/files/list?path=/opt").status == 200
    done = run(boxes, make(boxes), "true")
    assert (done["file_policy"], done["files"]) == (False, [])


def test_rules_about_files_on_the_command_line(boxes):
    def atoll(*args):
        return subprocess.run([boxes.binary, "--state", str(boxes.state), *args], capture_output=True, timeout=30,
                              input=b"")

    script = ("sh", "-c", "touch /workspace/f && ! ls /opt && ! touch /srv/f")
    assert atoll("run", "--no-workspace", "--ro", "/srv", "--rw", "/workspace", "--", *script).returncode == 0
    box = atoll("create", "--user", "root", "--storage", "memory").stdout.decode().strip()
    assert atoll("exec", "--ro", "/srv", "--rw", "/workspace", box, "--", *script).returncode == 0
    assert atoll("exec", box, "--", "ls", "/opt").returncode == 0
    done = atoll("exec", "--ro", "/no/such", box, "--", "true")
    assert done.returncode != 0 and b"/no/such" in done.stderr
    assert b"absolute" in atoll("exec", "--ro", "srv", box, "--", "true").stderr
    atoll("rm", box)
    ruled = atoll("create", "--ro", "/srv").stdout.decode().strip()
    assert b"rules about files" in atoll("show", ruled).stdout
    atoll("rm", ruled)


# ---- limits ----

@pytest.mark.parametrize("storage, why", [("memory", "No space left"), ("disk", "quota exceeded")])
def test_a_full_disk_is_full_inside(boxes, storage, why):
    box = make(boxes, disk=4 << 20, storage=storage)
    done = run(boxes, box, "sh", "-c", "head -c 20000000 /dev/zero > big; echo $?")
    assert why in done["errors"] and done["output"] == "1\n"


def test_too_many_processes(boxes):
    box = make(boxes, pids=20)
    done = run(boxes, box, "sh", "-c", "for i in $(seq 40); do sleep 5 & done; echo over", wait=15000,
               timeout_ms=8000)
    assert "ork" in done["errors"]


def test_too_much_memory(boxes):
    box = make(boxes, memory=48 << 20)
    done = run(boxes, box, "sh", "-c", "head -c 200000000 /dev/zero | tail | wc -c", timeout_ms=15000)
    assert boxes.get(f"{BOXES}/{box}/stats").json()["oom_kills"] >= 1, done
    assert boxes.get(f"{BOXES}/{box}").json()["state"] == "running"


def test_no_more_than_are_allowed(start_server):
    server = start_server(args=["--sandboxes-max", "3"])
    ids = [make(server) for _ in range(3)]
    reply = server.post(BOXES, {})
    assert reply.status == 429 and "3 sandboxes" in reply.error["message"]
    server.delete(f"{BOXES}/{ids[0]}")
    ids[0] = make(server)
    for box in ids:
        assert server.delete(f"{BOXES}/{box}").status == 200
    leftovers(server)


# ---- bad input ----

@pytest.mark.parametrize("wish, field", [
    ({"memory": 1}, "memory"), ({"pids": 1}, "pids"), ({"disk": 10}, "disk"), ({"user": "bob"}, "user"),
    ({"name": "../x"}, "name"), ({"nofile": 1 << 30}, "nofile"), ({"ttl_ms": 1}, "ttl_ms"),
    ({"env": {"A=B": "x"}}, "env"), ({"nonsense": 1}, "nonsense"),
    ({"files": [{"path": "x", "access": "read"}]}, "files[0].path"),
    ({"files": [{"path": "/x", "access": "all"}]}, "files[0].access"),
    ({"files": [{"path": "/x", "access": "read"}] * 65}, "files"), ({"labels": {"a": 1}}, "labels.a"),
])
def test_a_wrong_wish_names_the_field(boxes, wish, field):
    reply = boxes.post(BOXES, wish)
    assert reply.status == 400 and reply.error["field"] == field


@pytest.mark.parametrize("wish, status, field", [
    ({}, 400, "argv"), ({"argv": []}, 400, "argv"), ({"argv": ["a"], "command": "b"}, 400, "command"),
    ({"argv": [""]}, 400, "argv[0]"), ({"argv": ["true", "x" * 131072]}, 400, "argv[1]"),
    ({"argv": ["true"], "cwd": "relative"}, 400, "cwd"), ({"argv": ["true"], "cwd": "/none"}, 422, "cwd"),
    ({"argv": ["true"], "cwd": "/proc/self/root"}, 422, "cwd"), ({"argv": ["true"], "cwd": "/proc"}, 422, "cwd"),
    ({"argv": ["no-such-program"]}, 422, "argv[0]"), ({"argv": ["/etc/passwd"]}, 422, "argv[0]"),
    ({"argv": ["true"], "files": [{"path": "x", "access": "read"}]}, 400, "files[0].path"),
    ({"argv": ["true"], "files": [{"path": "/", "access": "read"}, {"path": "/none", "access": "read"}]}, 422,
     "files[1].path"),
    ({"argv": ["true"], "files": [{"path": "/proc/self/root", "access": "read"}]}, 422, "files[0].path"),
    ({"argv": ["true"], "timeout_ms": 0}, 400, "timeout_ms"), ({"argv": ["true"], "rows": 5}, 400, "rows"),
])
def test_a_wrong_command_names_the_field(boxes, wish, status, field):
    box = boxes.__dict__.get("bad_box")
    if not box or boxes.get(f"{BOXES}/{box}").status != 200:
        box = boxes.bad_box = make(boxes)
    reply = boxes.post(f"{BOXES}/{box}/execs", wish)
    assert (reply.status, reply.error["field"]) == (status, field), reply


def test_long_arguments_arrive_whole(boxes):
    box = make(boxes)
    args = ["x" * 100000, "y" * 100000, "z" * 100000]
    done = run(boxes, box, "sh", "-c", 'printf %s "$@" | wc -c', "sh", *args)
    assert done["output"] == "300000\n"


def test_bytes_that_are_no_text_are_refused(boxes):
    box = make(boxes)
    reply = boxes.request("POST", f"{BOXES}/{box}/execs", body=b'{"argv":["echo","\xff"]}',
                          headers={"content-type": "application/json"})
    assert reply.status == 400


def test_another_tenant_sees_nothing(boxes):
    box = make(boxes)
    other = boxes.new_token("admin", tenant="other")["token"]
    assert boxes.get(f"{BOXES}/{box}", token=other).status == 404
    assert boxes.get(BOXES, token=other).json()["items"] == []
    assert boxes.delete(f"{BOXES}/{box}", token=other).status == 404
    viewer = boxes.new_token("viewer")["token"]
    assert boxes.get(f"{BOXES}/{box}", token=viewer).status == 200
    assert boxes.post(f"{BOXES}/{box}/execs", {"argv": ["true"]}, token=viewer).status == 403


# ---- records ----

def test_every_change_is_an_event_and_audited(boxes):
    since = boxes.get("/api/v1/events?limit=1").json()["head"]
    box = make(boxes)
    run(boxes, box, "true")
    boxes.post(f"{BOXES}/{box}/pause")
    boxes.post(f"{BOXES}/{box}/resume")
    boxes.delete(f"{BOXES}/{box}")
    events = boxes.get(f"/api/v1/events?since={since}&limit=100").json()["items"]
    assert [e["type"] for e in events] == ["sandbox.created", "exec.started", "exec.exited", "sandbox.paused",
                                           "sandbox.resumed", "sandbox.deleted"]
    actions = [row["action"] for row in boxes.get("/api/v1/audit?limit=5").json()["items"]]
    assert actions == ["sandbox.create", "exec.create", "sandbox.pause", "sandbox.resume", "sandbox.delete"]


def test_the_same_key_makes_one_sandbox(boxes):
    key = {"Idempotency-Key": "one-" + os.urandom(4).hex()}
    first = boxes.post(BOXES, {}, headers=key)
    again = boxes.post(BOXES, {}, headers=key)
    assert first.status == again.status == 201 and first.json()["id"] == again.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert len(boxes.get(BOXES).json()["items"]) == 1


# ---- the command line ----

def test_the_command_line(boxes):
    def atoll(*args, **kw):
        return subprocess.run([boxes.binary, "--state", str(boxes.state), *args], capture_output=True,
                              timeout=30, **kw)

    done = atoll("run", "--no-workspace", "--", "sh", "-c", "cat; echo err >&2; exit 7", input=b"in\x00\xff")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in\x00\xff", b"err\n")
    assert atoll("run", "--no-workspace", "--", "no-such", input=b"").returncode == 127
    assert boxes.get(BOXES).json()["items"] == []
    box = atoll("create", "--name", "mine", "--memory", "64M").stdout.decode().strip()
    assert atoll("exec", box[:-3], "--", "true", input=b"").returncode == 0
    assert b"mine" in atoll("ls", "--only", "running").stdout and b"seccomp" in atoll("show", "mine").stdout.lower()
    assert atoll("pause", "mine").returncode == atoll("resume", "mine").returncode == 0
    assert atoll("stats", "mine").returncode == 0
    assert atoll("rm", "mine").returncode == 0
    assert atoll("show", "mine").returncode != 0


# ---- killed and found again ----

def test_a_server_that_was_stopped_finds_its_sandboxes(start_server):
    server = start_server()
    box = make(server)
    one = start(server, box, "sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; echo gone; exit 5")["id"]
    before = harness.descendants(server.warden_pid)
    server.process.terminate()
    assert server.process.wait(20) == 0
    assert any(harness.alive(p) for p in before), "the sandbox ended with the server"
    server.start()
    assert server.get(f"{BOXES}/{box}").json()["state"] == "running"
    run(server, box, "touch", "/tmp/go")
    done = server.get(f"{BOXES}/{box}/execs/{one}?wait=10000").json()
    assert (done["exit_code"], done["output"]) == (5, "gone\n")
    assert server.delete(f"{BOXES}/{box}").status == 200
    leftovers(server)


def test_creations_under_way_at_a_kill_leave_nothing(start_server):
    server = start_server()
    for round_ in range(5):
        threads = [threading.Thread(target=lambda: quiet(server.post, BOXES, {})) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.004 * (round_ + 1))
        server.kill9_api()
        for thread in threads:
            thread.join()
        server.wait_ready()
    for box in server.get(BOXES).json()["items"]:
        assert run(server, box["id"], "true")["exit_code"] == 0
        assert server.delete(f"{BOXES}/{box['id']}").status == 200
    harness.wait_until(lambda: not list((server.state / "boxes").iterdir()), 10, "what was half made to be gone")


def quiet(fn, *args):
    try:
        fn(*args)
    except Exception:
        pass


def test_limits_that_are_refused_change_nothing(boxes):
    box = make(boxes, memory=256 << 20, pids=100)
    script = "b = bytearray(80 << 20); print('held', flush=True); input()"
    hold = start(boxes, box, "python3", "-c", script, stdin_open=True)
    harness.wait_until(lambda: b"held" in output(boxes, box, hold["id"]), 20, "the memory")
    reply = boxes.request("PATCH", f"{BOXES}/{box}", {"pids": 200, "cpu_percent": 50, "memory": 32 << 20})
    assert reply.status == 409 and "in use" in reply.error["message"], reply

    def pids():
        return next(layer["applied"] for layer in boxes.get(f"{BOXES}/{box}/applied").json()["layers"]
                    if layer["layer"] == "pids")

    harness.wait_until(lambda: pids() == "100", 5, "the limits that are stored")
    assert boxes.get(f"{BOXES}/{box}").json()["pids"] == 100
