"""Nothing is lost: a long stream of known bytes through a command's output and through a terminal, with
viewers that come, stall, go and return at random while the api process is killed. What each of them got
must be the truth, or carry an explicit gap. ATOLL_LOSS_MB makes it longer (1024 is the full length)."""
import os
import random
import socket
import threading
import time

import harness
import pytest
from terminal import Closed, Refused, Terminal

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
MB = int(os.environ.get("ATOLL_LOSS_MB", "64"))
SIZE = MB << 20
LINE = 64  # each line says which it is
SECONDS = 60 + MB * 2

# 63 characters and a newline; raw mode keeps the newline as it is.
PROGRAM = f"""
import os, sys
count, at, batch = {SIZE // LINE}, 0, 4096
while at < count:
    n = min(batch, count - at)
    data = b"".join(b"%063d\\n" % i for i in range(at, at + n))
    while data:
        data = data[os.write(1, data):]
    at += n
"""


def truth(position, data):
    """Is this what stands there?"""
    first, last = position // LINE, (position + len(data) + LINE - 1) // LINE
    want = b"".join(b"%063d\n" % i for i in range(first, last))
    return want[position - first * LINE:][:len(data)] == data


class Viewer(threading.Thread):
    """One that cannot sit still. Its bytes are checked where they arrive; gaps are counted."""

    def __init__(self, seed, open_):
        super().__init__(daemon=True)
        self.random, self.open = random.Random(seed), open_
        self.position = self.got = self.visits = 0
        self.gaps, self.failed, self.done = [], None, False

    def run(self):
        end = time.monotonic() + SECONDS * harness.SLOW
        try:
            while not self.done:
                assert time.monotonic() < end, f"only at {self.position}"
                try:
                    self.visit()
                except (Closed, OSError, Refused, ConnectionError):
                    time.sleep(0.02)  # the api is away
        except BaseException as failure:  # told by the test
            self.failed = failure

    def take(self, position, data):
        assert position == self.position, f"{position} after {self.position}"
        assert truth(position, data), f"wrong bytes at {position}"
        self.position += len(data)
        self.got += len(data)

    def visit(self):
        self.visits += 1
        leave_after = self.random.choice([1, 3, 20, 200, 100000])
        with self.open(self.position, self.random.choice([None, None, 8192])) as stream:
            for _ in range(leave_after):
                if self.random.random() < 0.01:
                    time.sleep(self.random.choice([0.01, 0.1, 0.5]))
                if stream.give(self):
                    self.done = True
                    return


class TerminalStream(Terminal):
    """give() passes one message on; True at the end."""

    def give(self, viewer):
        before = self.position
        message = self.step()
        if isinstance(message, bytes):
            viewer.take(before, message)
        elif message["type"] == "gap":
            viewer.gaps.append((message["from"], message["to"]))
            viewer.position = message["to"]
        elif message["type"] == "exit":
            assert message["position"] == viewer.position == SIZE
            assert message["exit_code"] == 0
            return True
        return False


class OutputStream:
    """The same over HTTP: raw bytes from a position on, followed."""

    def __init__(self, server, path, position, rcvbuf):
        self.sock = socket.socket()
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(30 * harness.SLOW)
        self.sock.connect(("127.0.0.1", server.port))
        self.sock.sendall((f"GET {path}/output?from={position}&follow=1 HTTP/1.1\r\nHost: {server.host}\r\n"
                           f"Authorization: Bearer {server.token}\r\n\r\n").encode())
        self.data = b""
        while b"\r\n\r\n" not in self.data:
            self.fill()
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])
        self.gone = self.status == 410
        if self.status not in (200, 410):
            raise Refused(self.status, "")
        if self.gone:
            while b"position " not in self.data:
                self.fill()
            self.begin = int(self.data.split(b"position ")[1].split()[0])

    def fill(self):
        got = self.sock.recv(65536)
        if not got:
            raise Closed(1006)
        self.data += got

    def give(self, viewer):
        if self.gone:  # the explicit gap of this way: 410, and where it goes on
            viewer.gaps.append((viewer.position, self.begin))
            viewer.position = self.begin
            raise Closed(4410)
        while b"\r\n" not in self.data:
            self.fill()
        line, rest = self.data.split(b"\r\n", 1)
        size = int(line, 16)
        self.data = rest
        while len(self.data) < size + 2:
            self.fill()
        chunk, self.data = self.data[:size], self.data[size + 2:]
        if not size:
            assert viewer.position == SIZE
            return True
        viewer.take(viewer.position, chunk)
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("way", ["output", "terminal"])
def test_nothing_is_lost(start_server, way):
    server = start_server()
    box = server.post(BOXES, {"memory": 1 << 30}).json()["id"]
    if way == "terminal":
        wish = {"argv": ["sh", "-c", "stty raw; sleep 0.5; exec python3 -c \"$PROGRAM\""], "env": {"PROGRAM": PROGRAM}}
        made = server.post(f"{BOXES}/{box}/terminals", wish).json()

        def open_(position, rcvbuf):
            return TerminalStream(server, box, made["id"], f"?from={position}", rcvbuf=rcvbuf, timeout=30)
    else:
        made = server.post(f"{BOXES}/{box}/execs", {"argv": ["python3", "-c", PROGRAM]}).json()

        def open_(position, rcvbuf):
            return OutputStream(server, f"{BOXES}/{box}/execs/{made['id']}", position, rcvbuf)
    viewers = [Viewer(seed, open_) for seed in range(4)]
    for viewer in viewers:
        viewer.start()
    chance, kills = random.Random(7), 0
    while any(v.is_alive() for v in viewers):
        time.sleep(chance.choice([0.3, 0.7, 1.5]))
        if kills < max(5, MB // 16) and any(not v.done for v in viewers):
            server.kill9_api()
            server.wait_ready()
            kills += 1
    for viewer in viewers:
        viewer.join()
        if viewer.failed:
            raise viewer.failed
        assert viewer.got + sum(b - a for a, b in viewer.gaps) == SIZE, viewer.gaps
    if SIZE <= 60 << 20:
        assert all(not v.gaps for v in viewers)  # all of it is kept
    assert kills >= 1
    print(f"{way}: {MB} MB, {kills} kills, visits {[v.visits for v in viewers]}, "
          f"MB seen {[v.got >> 20 for v in viewers]}, gaps {[len(v.gaps) for v in viewers]}")
    view = server.get(f"{BOXES}/{box}/execs/{made['id']}").json()
    assert (view["stdout_bytes"], view["exit_code"]) == (SIZE, 0)
    assert server.delete(f"{BOXES}/{box}").status == 200


def test_who_reads_late_is_waited_for(server):
    """More comes than any buffer between holds, and nobody reads before the end: one connection gets all of it."""
    box = server.post(BOXES, {}).json()["id"]
    path = f"{BOXES}/{box}/execs"
    argv = ["sh", "-c", "read x; exec seq -w 2000000"]
    made = server.post(path, {"argv": argv, "stdin_open": True}).json()["id"]
    with OutputStream(server, f"{path}/{made}", 0, 16384) as stream:
        assert server.request("POST", f"{path}/{made}/stdin", body=b"go\n",
                              headers={"Content-Type": "application/octet-stream"}).status in (200, 202, 204)
        harness.wait_until(lambda: server.get(f"{path}/{made}").json()["state"] == "exited", 30,
                           "its end")
        while not stream.data.endswith(b"\r\n0\r\n\r\n"):
            stream.fill()
    got, rest = [], stream.data
    while (line := rest.split(b"\r\n", 1)[0]) != b"0":
        at = len(line) + 2
        got.append(rest[at:at + int(line, 16)])
        rest = rest[at + int(line, 16) + 2:]
    assert b"".join(got) == b"".join(b"%07d\n" % i for i in range(1, 2000001))
    assert server.delete(f"{BOXES}/{box}").status == 200
