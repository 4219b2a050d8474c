"""200 times kill -9, of the api, of the whole server and of everything, while commands print a known
sequence: no byte is lost or doubled, and exit codes are right. Root only."""
import collections
import http.client
import os
import pathlib
import random
import signal
import threading
import time

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
CYCLES = int(os.environ.get("ATOLL_KILL_CYCLES", "200"))
LINES, PAUSE = 40_000, 500
# With a breath now and then: bytes are always under way, and the machine is not busy with printing alone.
LOOP = (f"i=0; while [ $i -lt {LINES} ]; do echo $i; echo e$i >&2; i=$((i+1)); "
        f"[ $((i % {PAUSE})) = 0 ] && sleep 0.01; done; exit ")
PLAIN = {"stdout": b"".join(b"%d\n" % i for i in range(LINES)),
         "stderr": b"".join(b"e%d\n" % i for i in range(LINES))}
# A terminal has one stream and returns the carriage.
TERMINAL = {"stdout": b"".join(b"%d\r\ne%d\r\n" % (i, i) for i in range(LINES)), "stderr": b""}


class Printer:
    """One command after the other; every byte is compared as soon as it can be read."""

    def __init__(self, server, tty):
        self.server, self.tty, self.whole = server, tty, TERMINAL if tty else PLAIN
        self.number = self.ended = self.lost = 0

    def begin(self, box):
        self.number += 1
        self.box, self.code, self.seen = box, self.number % 200 + 1, {"stdout": 0, "stderr": 0}
        wish = {"argv": ["sh", "-c", LOOP + str(self.code)], "tty": self.tty}
        reply = self.server.post(f"{BOXES}/{box}/execs", wish)
        assert reply.status == 201, reply
        self.exec = f"{BOXES}/{box}/execs/{reply.json()['id']}"

    def read_on(self):
        for stream, whole in self.whole.items():
            at = self.seen[stream]
            reply = self.server.get(f"{self.exec}/output?stream={stream}&from={at}", timeout=30)
            assert reply.status == 200, reply
            assert reply.body == whole[at:at + len(reply.body)], f"{stream} of command {self.number} from {at}"
            self.seen[stream] += len(reply.body)

    def check(self):
        """False: it is over, and was what it had to be."""
        now = self.server.get(self.exec).json()
        self.read_on()
        if now["state"] == "running":
            return True
        if now["state"] == "exited":
            assert now["exit_code"] == self.code, now
            assert {s: len(w) for s, w in self.whole.items()} == self.seen, now
            self.ended += 1
        else:
            assert now["state"] == "lost", now
            assert [now["stdout_bytes"], now["stderr_bytes"]] == list(self.seen.values()), now
            self.lost += 1
        return False


def processes_of(box):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if f"/{box}" in path.read_text():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def kill9(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def kill_api(server, box):
    server.kill9_api()
    server.wait_ready()


def kill_server(server, box):
    """The warden too; the sandbox goes on by itself."""
    kill9([server.warden_pid, server.api_pid()])
    server.process.wait(harness.STOP_SECONDS)
    server.start()


def kill_everything(server, box):
    kill9([server.warden_pid, server.api_pid(), *processes_of(box)])
    server.process.wait(harness.STOP_SECONDS)
    server.start()


def sandbox(server, box=None):
    """One that runs; `box` itself, if its disk lets it."""
    now = server.get(f"{BOXES}/{box}").json() if box else {"state": "none"}
    if now["state"] == "running":
        return box
    if now["state"] == "stopped":
        assert server.post(f"{BOXES}/{box}/start").json()["state"] == "running"
        return box
    if box:
        assert server.delete(f"{BOXES}/{box}").status == 200
    reply = server.post(BOXES, {})
    assert reply.status == 201, reply
    return reply.json()["id"]


@pytest.mark.timeout(400)
def test_no_byte_is_lost_or_doubled_by_a_kill(start_server):
    seed = random.randrange(1 << 30)
    rand = random.Random(seed)
    print("seed", seed)
    server = start_server()
    box = sandbox(server)
    printers = [Printer(server, tty) for tty in (False, True)]
    for printer in printers:
        printer.begin(box)
    for cycle in range(1, CYCLES + 1):
        time.sleep(rand.uniform(0.005, 0.1))
        kill = kill_everything if cycle % 20 == 0 else kill_server if cycle % 5 == 0 else kill_api
        kill(server, box)
        going = [printer.check() for printer in printers]
        box = sandbox(server, box)
        for printer, goes in zip(printers, going):
            if not goes:
                printer.begin(box)
    for printer in printers:
        harness.wait_until(lambda: not printer.check(), 60, "the end of the command", pause=0.1)
        print("ended", printer.ended, "lost", printer.lost)
        assert printer.ended >= 1
        assert printer.lost <= CYCLES // 20, "only killed commands may be lost"
    assert server.delete(f"{BOXES}/{box}").status == 200
    assert list((server.state / "boxes").iterdir()) == []
    assert [file.name for file in (server.state / "data" / "spool").iterdir()] == ["ends"]


class Runner(threading.Thread):
    """Runs short commands one after the other and waits for each; keeps what it was told. Between `rest` and
    `go_on` it runs none: a sandbox keeps the last 256, and what was told is to be found."""

    def __init__(self, server, number):
        super().__init__(daemon=True)
        self.server, self.number, self.box, self.over = server, number, None, False
        self.told, self.failed = {}, []
        self.free, self.busy = threading.Event(), threading.Lock()

    def rest(self):
        self.free.clear()
        assert self.busy.acquire(timeout=60 * harness.SLOW), "a command was not answered"
        self.busy.release()

    def go_on(self, box):
        self.box = box
        self.free.set()

    def run(self):
        count = 0
        while not self.over:
            self.free.wait()
            with self.busy:
                if self.free.is_set() and not self.over:
                    count += 1
                    self.run_one(self.box, count % 3, f"{self.number} {count}")

    def run_one(self, box, code, text):
        try:
            reply = self.server.post(f"{BOXES}/{box}/execs?wait=20000",
                                     {"argv": ["sh", "-c", f"echo {text}; exit {code}"]})
        except (OSError, http.client.HTTPException):
            return
        if reply.status != 201:  # it is being started again
            return
        now = reply.json()
        if now["state"] == "lost":
            return
        if now["state"] == "running":  # an api process whose warden was killed first tells what it knows, and ends
            self.told[now["id"]] = (box, None, None)
            return
        if (now["state"], now["exit_code"], now["output"]) != ("exited", code, text + "\n"):
            self.failed.append(now)
        self.told[now["id"]] = (box, code, text + "\n")


def told_is_there(server, told):
    for eid, (box, code, text) in told.items():
        now = server.get(f"{BOXES}/{box}/execs/{eid}")
        assert now.status == 200, (eid, now)
        if code is None:
            assert now.json()["state"] in ("exited", "lost"), now
            continue
        assert (now.json()["state"], now.json()["exit_code"]) == ("exited", code), now
        output = server.get(f"{BOXES}/{box}/execs/{eid}/output")
        assert (output.status, output.body) == (200, text.encode()), (output, now)


def pages(server, path):
    since, got = 0, []
    while True:
        page = server.get(f"{path}?since={since}&limit=1000").json()["items"]
        if not page:
            return got
        got += page
        since = page[-1]["seq"]


@pytest.mark.timeout(300)
def test_what_was_told_of_a_command_outlives_every_kill(start_server):
    """The answer does not wait for the store: its row, its events and its audit row come all the same, once."""
    seed = random.randrange(1 << 30)
    rand = random.Random(seed)
    print("seed", seed)
    server = start_server(env={"ATOLL_RATE_PER_SECOND": "100000", "ATOLL_RATE_BURST": "100000"})
    box = sandbox(server)
    runners = [Runner(server, number) for number in range(3)]
    every = {}
    for runner in runners:
        runner.start()
    for cycle in range(1, CYCLES // 4 + 1):
        before = sum(len(runner.told) for runner in runners)
        for runner in runners:
            runner.go_on(box)
        harness.wait_until(lambda: sum(len(runner.told) for runner in runners) > before + 2, 60, "commands")
        time.sleep(rand.uniform(0, 0.02))
        kill = (kill_api, kill_server, kill_everything)[cycle % 3]
        kill(server, box)
        for runner in runners:
            runner.rest()
        told = {eid: what for runner in runners for eid, what in runner.told.items()}
        new = sorted(told.keys() - every.keys())[-200:]  # by age; more than a sandbox keeps is forgotten
        told_is_there(server, {eid: told[eid] for eid in new})
        every |= told
        if server.get(f"{BOXES}/{box}").json()["state"] != "running":
            box = sandbox(server)
    for runner in runners:
        runner.over = True
        runner.go_on(box)
        runner.join(60)
        assert not runner.failed
    print("told", len(every))
    events, audit = pages(server, "/api/v1/events"), pages(server, "/api/v1/audit")
    for kinds in {"exec.started"}, {"exec.exited", "exec.lost"}:
        seen = collections.Counter(e["object"] for e in events if e["type"] in kinds)
        assert all(seen[f"exec/{eid}"] == 1 for eid in every), kinds
    seen = collections.Counter(a["object"] for a in audit if a["action"] == "exec.create")
    assert all(seen[f"exec/{eid}"] == 1 for eid in every)
    assert server.get("/api/v1/audit/verify").json()["ok"]
    for box in harness.listed(server, BOXES):  # those that run would outlive the server
        assert server.delete(f"{BOXES}/{box['id']}").status == 200
