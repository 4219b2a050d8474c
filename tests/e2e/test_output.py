"""Output and the readers that must have it: a slow reader of `atoll exec` and `atoll run` holds the command back
and gets every byte, over a kill of the api process too; viewers hold nothing and are told of gaps."""
import array
import contextlib
import json
import os
import subprocess
import threading
import time

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
MB = 1 << 20
BOXES = "/api/v1/sandboxes"

# Every 8 bytes are their own position / 8.
PROGRAM = """
import array, os, sys
fd, count, at, status = int(sys.argv[1]), int(sys.argv[2]) * 131072, 0, int(sys.argv[3])
while at < count:
    data = memoryview(array.array("Q", range(at, at + 131072))).cast("B")
    while data:
        data = data[os.write(fd, data):]
    at += 131072
sys.exit(status)
"""


def program(fd, mb, status):
    return ["python3", "-c", PROGRAM, str(fd), str(mb), str(status)]


class Check:
    """Takes bytes and knows whether each is the one that belongs there."""

    def __init__(self):
        self.got, self.rest = 0, b""

    def put(self, data):
        data = self.rest + data
        whole = len(data) & ~7
        first = self.got // 8
        assert data[:whole] == array.array("Q", range(first, first + whole // 8)).tobytes(), f"wrong after {self.got}"
        self.got, self.rest = self.got + whole, data[whole:]


def start_cli(server, *args, **kw):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    return subprocess.Popen([server.binary, *args], env={**clean, "ATOLL_STATE": str(server.state)},
                            stdin=subprocess.DEVNULL, **kw)


def read_slowly(pipe, check, mb, pause, at=None):
    """Reads all of a pipe, with a pause after each 4 MiB; `at`: functions to be called at so many bytes."""
    at = dict(at or {})
    while data := pipe.read(4 * MB):
        check.put(data)
        for place in [p for p in at if check.got >= p]:
            at.pop(place)()
        time.sleep(pause)
    assert check.got == mb * MB and not check.rest, f"{check.got} of {mb * MB} bytes"


@pytest.fixture(scope="module")
def server():
    server = harness.Server().start()
    yield server
    harness.delete_boxes(server)
    server.stop()


@pytest.fixture
def box(server):
    box = harness.make_box(server)
    yield box
    server.delete(f"{BOXES}/{box}")


def ended(server, box, eid, ms=30000):
    info = server.get(f"{BOXES}/{box}/execs/{eid}?wait={ms}", timeout=ms / 1000 + 10).json()
    assert info["state"] == "exited", info
    return info


@pytest.mark.parametrize("fd", [1, 2])
def test_a_slow_reader_of_exec_gets_every_byte_and_the_status(server, box, fd):
    mb, check = 160, Check()
    ends = {"stdout": subprocess.PIPE} if fd == 1 else {"stderr": subprocess.PIPE}
    with start_cli(server, "exec", box, "--", *program(fd, mb, 7), **ends) as cli:
        read_slowly(cli.stdout or cli.stderr, check, mb, 0.02)
        assert cli.wait(30) == 7


def test_a_gigabyte_arrives_whole(server, box):
    with start_cli(server, "exec", box, "--", *program(1, 1024, 0), stdout=subprocess.PIPE) as cli:
        read_slowly(cli.stdout, Check(), 1024, 0)
        assert cli.wait(30) == 0


def test_a_slow_reader_of_run_gets_every_byte(server, tmp_path):
    mb = 128
    with start_cli(server, "run", "--", *program(1, mb, 3), stdout=subprocess.PIPE, cwd=tmp_path) as cli:
        read_slowly(cli.stdout, Check(), mb, 0.03)
        assert cli.wait(30) == 3


def test_nothing_is_lost_when_the_api_is_killed_under_a_slow_reader(server, box):
    mb, kills = 300, {place * MB: server.kill9_api for place in (40, 120, 210)}
    with start_cli(server, "exec", box, "--", *program(1, mb, 5), stdout=subprocess.PIPE) as cli:
        read_slowly(cli.stdout, Check(), mb, 0.05, kills)
        assert cli.wait(30) == 5


def test_a_reader_that_dies_is_waited_for_and_then_the_command_goes_on(server, box):
    with start_cli(server, "exec", box, "--", *program(1, 200, 0), stdout=subprocess.PIPE) as cli:
        assert len(cli.stdout.read(MB)) == MB
        cli.kill()
    began = time.monotonic()
    eid = server.get(f"{BOXES}/{box}/execs").json()["items"][-1]["id"]
    info = ended(server, box, eid, 60000)
    assert info["exit_code"] == 0 and info["stdout_bytes"] == 200 * MB
    assert 10 < time.monotonic() - began < 50


def start(server, box, argv, **wish):
    reply = server.post(f"{BOXES}/{box}/execs", {"argv": argv, **wish})
    assert reply.status == 201, reply
    return reply.json()["id"]


def open_output(server, box, eid, query, token=None):
    """A connection that has asked for output and reads nothing."""
    sock = server.connect()
    sock.sendall(f"GET {BOXES}/{box}/execs/{eid}/output?{query} HTTP/1.1\r\nHost: {server.host}\r\n"
                 f"Authorization: Bearer {token or server.token}\r\n\r\n".encode())
    return sock


def size_of(server, box, eid):
    return server.get(f"{BOXES}/{box}/execs/{eid}").json()["stdout_bytes"]


def settled(server, box, eid):
    """Where the output stands still."""
    before = -1
    while (now := size_of(server, box, eid)) != before:
        before = now
        time.sleep(1)
    return now


def test_a_viewer_does_not_hold_and_is_cut(server, box):
    eid = start(server, box, program(1, 200, 0))
    with open_output(server, box, eid, "follow=1") as viewer:
        assert ended(server, box, eid)["stdout_bytes"] == 200 * MB
        viewer.settimeout(20)
        got = 0
        with pytest.raises(ConnectionError):  # cut: no proper end
            while data := viewer.recv(MB):
                got += len(data)
            raise ConnectionError
        assert got < 200 * MB


def test_a_holder_that_reads_nothing_holds_and_can_be_ended_by_a_kill(server, box):
    eid = start(server, box, program(1, 200, 0))
    with open_output(server, box, eid, "follow=1&hold=1"):
        assert 32 * MB <= settled(server, box, eid) < 64 * MB
        other = harness.run_in(server, box, "echo", "others run on")
        assert other["exit_code"] == 0
        assert server.post(f"{BOXES}/{box}/execs/{eid}/signal", {"signal": "KILL"}).status == 200
        assert ended(server, box, eid, 5000)["signal"] == 9


def test_a_timeout_ends_a_command_that_is_held_back(server, box):
    eid = start(server, box, program(1, 200, 0), timeout_ms=3000, hold=True)
    with open_output(server, box, eid, "follow=1&hold=1"):
        assert ended(server, box, eid, 10000)["timed_out"]


def drain(sock):
    """All of an answer, in a thread; what it had is in `got` once that has ended."""
    def work():
        with contextlib.suppress(OSError):  # closed by the test
            while data := sock.recv(MB):
                thread.got += len(data)

    thread = threading.Thread(target=work, daemon=True)
    thread.got = 0
    sock.settimeout(30)
    thread.start()
    return thread


def test_two_holders_the_slower_one_decides(server, box):
    eid = start(server, box, program(1, 100, 0))
    query = "follow=1&hold=1&from=0"
    with open_output(server, box, eid, query) as slow, open_output(server, box, eid, query) as fast, \
            open_output(server, box, eid, query + "&stream=stderr"):  # this one is of the other stream: no matter
        threads = [drain(fast)]
        assert 32 * MB <= settled(server, box, eid) < 64 * MB
        threads.append(drain(slow))
        assert ended(server, box, eid)["exit_code"] == 0
        harness.wait_until(lambda: all(t.got > 100 * MB for t in threads), 20, "both answers")


def test_only_who_may_run_commands_may_hold_one_back(server, box):
    viewer, operator = (server.new_token(role)["token"] for role in ("viewer", "operator"))
    eid = harness.run_in(server, box, "echo", "hi")["id"]
    path = f"{BOXES}/{box}/execs/{eid}/output"
    for query in ("hold=1", "stream=both&hold=1"):
        refused = server.get(f"{path}?{query}", token=viewer)
        assert refused.status == 403 and "hold" in refused.error["message"]
        assert server.get(f"{path}?{query}", token=operator).status == 200
    assert server.get(path, token=viewer).body == b"hi\n"


def test_frames_have_both_streams_and_the_end(server, box):
    info = harness.run_in(server, box, "sh", "-c", "printf out; printf err >&2; exit 3")
    path = f"{BOXES}/{box}/execs/{info['id']}/output"
    reply = server.get(f"{path}?stream=both&from=1,2")
    assert reply.headers["Content-Type"] == "application/vnd.atoll.output"
    assert reply.headers["Atoll-Position"] == "1,2"
    body, frames = reply.body, []
    while body:
        size = int.from_bytes(body[4:8], "big")
        assert body[1:4] == b"\0\0\0"
        frames.append((body[0], body[8:8 + size]))
        body = body[8 + size:]
    assert frames[:2] == [(1, b"ut"), (2, b"r")]
    assert frames[2][0] == 3 and json.loads(frames[2][1])["exit_code"] == 3
    for query, field in (("stream=all", "stream"), ("stream=both&from=x", "from"), ("from=x", "from"),
                         ("stream=both&hold=2", "hold")):
        refused = server.get(f"{path}?{query}")
        assert refused.status in (400, 422) and refused.error["field"] == field, refused


def test_a_wait_of_who_holds_returns_when_the_command_is_held_back(server, box):
    began = time.monotonic()
    reply = server.post(f"{BOXES}/{box}/execs?wait=60000", {"argv": program(1, 100, 0), "hold": True}, timeout=70)
    assert reply.json()["state"] == "running" and time.monotonic() - began < 15
    eid = reply.json()["id"]
    reply = server.get(f"{BOXES}/{box}/execs/{eid}/output?follow=1&hold=1&from=0", timeout=60)
    check = Check()
    check.put(reply.body)
    assert check.got == 100 * MB
    assert ended(server, box, eid)["exit_code"] == 0


def test_bytes_that_are_gone_are_told_and_the_status_stays_the_commands(server, box, tmp_path):
    """A reader that is stopped, and whose connection is broken, for longer than it is waited for."""
    with start_cli(server, "exec", box, "--", *program(1, 200, 9), stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE) as cli:
        assert len(cli.stdout.read(MB)) == MB
        eid = server.get(f"{BOXES}/{box}/execs").json()["items"][-1]["id"]
        assert settled(server, box, eid) < 64 * MB
        server.kill9_api()  # its connection is gone, and it cannot know: its pipe is full
        assert ended(server, box, eid, 60000)["exit_code"] == 9
        rest = cli.stdout.read()
        said = cli.stderr.read().decode()
        assert cli.wait(30) == 9
        assert "bytes of stdout are missing" in said
        assert len(rest) < 199 * MB
