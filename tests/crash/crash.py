#!/usr/bin/python3
"""kill -9 at random instants under load, and what must be true afterwards.

Many clients POST notes, each with a text of its own and an Idempotency-Key; one reader follows the event
stream. At a random instant - or at the very moment an acknowledgement arrives, which is the worst one
for a server that answers too early - the api process (or everything, warden included) is killed.
Then, before the next cycle:

  ready again within 2 s (as many times that as processes want each core);
  every acknowledged note is there under the number it was given, exactly once, and so is every note
  that was retried with its key; nothing is there that nobody sent;
  the event numbers, as the reader saw them across all its connections, are 1, 2, 3 … without a gap or a
  repeat, and agree with the log read back afterwards;
  each note has exactly one audit row, and the audit chain verifies.

Every LIFE cycles the state directory is new, so that the checks stay complete and quick.

    tests/crash/crash.py --cycles 200 [--mode api|all|both] [--bin PROGRAM] [--seed N]

Exit status 1 and a line for each violation. The first cycle's seed is printed, so that a run can be
repeated (the timing, of course, is the machine's).
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

CLIENTS = 16
LIFE = 20
READY_SECONDS = 2.0 * harness.SANITIZED
LOAD_SECONDS = 0.25
PAGE = 1000


class Violation(Exception):
    """Something that must never happen, happened."""


class Note:
    """One write, from the first try until it is acknowledged."""

    def __init__(self, life, client, number):
        self.text = f"life {life} client {client} note {number}"
        self.key = f"crash-{life}-{client}-{number}-{os.getpid()}"
        self.seq = None  # known once acknowledged


class Client:
    """Posts one note after the other on one connection; tries again with the same key after a crash."""

    def __init__(self, run, number):
        self.run, self.number, self.count = run, number, 0
        self.note = None

    async def life(self):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.run.server.port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            try:
                while True:
                    await self.run.go.wait()
                    self.run.under_way += 1
                    try:
                        await self.post(reader, writer)
                    finally:
                        self.run.under_way -= 1
            except (OSError, EOFError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.005)
            finally:
                writer.close()

    async def post(self, reader, writer):
        if self.note is None:
            self.count += 1
            self.note = Note(self.run.life, self.number, self.count)
            self.run.sent[self.note.text] = self.note
        body = json.dumps({"text": self.note.text})
        writer.write((f"POST /api/v1/notes HTTP/1.1\r\nHost: {self.run.server.host}\r\n"
                      f"Authorization: Bearer {self.run.token}\r\nContent-Type: application/json\r\n"
                      f"Idempotency-Key: {self.note.key}\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
        status, answer = await read_reply(reader)
        if status == 201:
            self.note.seq = json.loads(answer)["seq"]
            self.note = None
            self.run.acknowledged()
        elif status == 503:  # not now: again
            await asyncio.sleep(0.01)
        else:
            raise Violation(f"POST /api/v1/notes answered {status}: {answer[:200]!r}")


async def read_reply(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = 0
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    return int(head.split()[1]), await reader.readexactly(length)


class Follower:
    """Reads the event stream for ever, coming back with Last-Event-ID; judges every number."""

    def __init__(self, run):
        self.run = run
        self.last = 0
        self.events = []

    async def life(self):
        while True:
            try:
                await self.follow()
            except (OSError, EOFError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.005)

    async def follow(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.run.server.port)
        try:
            writer.write((f"GET /events HTTP/1.1\r\nHost: {self.run.server.host}\r\n"
                          f"Authorization: Bearer {self.run.token}\r\nAccept: text/event-stream\r\n"
                          f"Last-Event-ID: {self.last}\r\n\r\n").encode())
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split()[1])
            if status == 503:
                raise EOFError
            if status != 200:
                raise Violation(f"GET /events answered {status}")
            text = b""
            while True:
                size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
                data = await reader.readexactly(size + 2)
                if size == 0:
                    return
                text += data[:-2]
                while b"\n\n" in text:
                    block, text = text.split(b"\n\n", 1)
                    self.block(block.decode())
        finally:
            writer.close()

    def block(self, block):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":")
        if "id" not in fields:
            return
        number = int(fields["id"])
        if number != self.last + 1:
            raise Violation(f"the stream gave event {number} after {self.last}")
        self.last = number
        self.events.append(json.loads(fields["data"]))


class Run:
    """One life: a state directory, its server, the load, the kills, the checks."""

    def __init__(self, args, life, rng):
        self.args, self.life, self.rng = args, life, rng
        self.server = harness.Server(binary=args.bin, env={"ATOLL_RATE_PER_SECOND": "1000000",
                                                            "ATOLL_RATE_BURST": "1000000"})
        self.sent = {}
        self.acks = 0
        self.under_way = 0  # posts without their answer yet
        self.audit = []
        self.kill_at_ack, self.killed, self.killed_at = None, None, 0.0
        self.victims = []
        self.token = None

    # ---- killing ----

    def acknowledged(self):
        self.acks += 1
        if self.kill_at_ack is not None and self.acks >= self.kill_at_ack and not self.killed.is_set():
            self.kill()

    def kill(self):
        for pid in self.victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.killed_at = time.monotonic()
        self.go.clear()
        self.killed.set()

    def aim(self, mode):
        server = self.server
        server.note_processes()
        everything = [server.warden_pid] + harness.descendants(server.warden_pid)
        self.victims = [server.api_pid()] if mode == "api" else everything

    async def first_note(self):
        """One write before the load, so that no log is empty when it is first looked at."""
        one = Client(self, "first")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        await one.post(reader, writer)
        writer.close()
        # Whether it was durable when it was acknowledged is for the kills to find out.
        while not await self.pages("/api/v1/events") or not await self.pages("/api/v1/audit"):
            await asyncio.sleep(0.01)
        await self.check()

    async def cycle(self, mode):
        self.aim(mode)
        self.killed = asyncio.Event()
        self.kill_at_ack = self.acks + self.rng.randint(1, 200) if self.rng.random() < 0.5 else None
        self.go.set()
        try:
            await asyncio.wait_for(self.killed.wait(), self.rng.uniform(0.01, LOAD_SECONDS * min(4, harness.load())))
        except asyncio.TimeoutError:
            self.kill()
        seconds = await self.come_back(mode)
        if seconds > READY_SECONDS * harness.load():
            raise Violation(f"ready again only after {seconds:.2f} s")
        # What waited in the listener's queue is served now; nothing may change while we look.
        while self.under_way:
            self.raise_failures()
            await asyncio.sleep(0.002)
        await self.check()
        return seconds

    async def come_back(self, mode):
        for pid in self.victims:
            while harness.alive(pid):
                await asyncio.sleep(0.001)
        if mode == "all":
            self.server.process.wait()
            self.server.wait_gone()
            self.killed_at = time.monotonic()  # from here on it is ours to start it
            self.server.start(ready=False)
        end = self.killed_at + 5 * READY_SECONDS * harness.load()
        while not await self.ready():
            if self.server.process.poll() is not None:
                ended = self.server.process.returncode
                raise Violation(f"the warden ended by itself with {ended}:\n{self.server.log_tail()}")
            if time.monotonic() > end:
                raise Violation(f"not ready {end - self.killed_at:.0f} s after the kill:\n{self.server.log_tail()}")
            await asyncio.sleep(0.005)
        return time.monotonic() - self.killed_at

    async def ready(self):
        try:
            status, _ = await asyncio.wait_for(self.get("/readyz"), READY_SECONDS * harness.load())
            return status == 200
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            return False

    # ---- checking ----

    async def get(self, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {self.server.host}\r\nConnection: close\r\n"
                         f"Authorization: Bearer {self.token}\r\n\r\n".encode())
            return await read_reply(reader)
        finally:
            writer.close()

    async def get_json(self, path):
        status, body = await self.get(path)
        if status != 200:
            raise Violation(f"GET {path} answered {status}: {body[:200]!r}")
        return json.loads(body)

    async def pages(self, path, since=0):
        """All rows after number `since`, page by page."""
        rows = []
        while True:
            page = (await self.get_json(f"{path}?since={since}&limit={PAGE}"))["items"]
            rows += page
            if len(page) < PAGE:
                return rows
            since = page[-1]["seq"]

    async def check(self):
        events = await self.pages("/api/v1/events")
        self.check_numbers(events)
        self.check_notes(events)
        await self.check_follower(events)
        await self.check_audit(events)

    def check_numbers(self, events):
        for place, event in enumerate(events, 1):
            if event["seq"] != place:
                raise Violation(f"the log has event {event['seq']} where {place} belongs")

    def check_notes(self, events):
        there = {}
        for event in events:
            if event["type"] != "note.created":
                continue
            text = event["data"]["text"]
            if text in there:
                raise Violation(f"written twice, as {there[text]} and {event['seq']}: {text}")
            if text not in self.sent:
                raise Violation(f"nobody sent this: {text}")
            there[text] = event["seq"]
        for text, note in self.sent.items():
            if note.seq is not None and there.get(text) != note.seq:
                now = f"now {there[text]}" if text in there else "lost"
                raise Violation(f"acknowledged as {note.seq} but {now}: {text}")

    async def check_follower(self, events):
        end = time.monotonic() + 5 * harness.SLOW
        while self.follower.last < len(events):
            if time.monotonic() > end:
                raise Violation(f"the stream stopped at {self.follower.last}, the log is at {len(events)}")
            self.raise_failures()
            await asyncio.sleep(0.005)
        for seen, logged in zip(self.follower.events, events):
            if seen != logged:
                raise Violation(f"the stream and the log differ: {seen} and {logged}")

    async def check_audit(self, events):
        # `since=0` would mean the newest rows; the first look, with few rows, takes all of them.
        self.audit += await self.pages("/api/v1/audit", self.audit[-1]["seq"] if self.audit else 0)
        rows = [r for r in self.audit if r["action"] == "note.create" and r["outcome"] == "ok"]
        recorded = sorted(r["object"] for r in rows)
        written = sorted(f"event/{e['seq']}" for e in events if e["type"] == "note.created")
        if recorded != written:
            odd = set(recorded) ^ set(written)
            raise Violation(f"{len(written)} notes, {len(recorded)} audit rows for them; odd: {sorted(odd)[:5]}")
        verdict = await self.get_json("/api/v1/audit/verify")
        if not verdict["ok"] or verdict["rows"] < len(self.audit):
            raise Violation(f"the audit chain is broken: {verdict}")

    def raise_failures(self):
        for task in self.tasks:
            if task.done():
                task.result()

    # ---- one life ----

    async def live(self, modes):
        self.server.start()
        self.token = self.server.token
        self.go = asyncio.Event()
        self.follower = Follower(self)
        people = [self.follower] + [Client(self, i) for i in range(CLIENTS)]
        self.tasks = [asyncio.create_task(p.life()) for p in people]
        times = []
        try:
            await self.first_note()
            for mode in modes:
                times.append(await self.cycle(mode))
                self.raise_failures()
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
        return times


def modes_of(args, rng, count):
    both = {"api": ["api"], "all": ["all"], "both": ["api", "api", "api", "all"]}[args.mode]
    return [rng.choice(both) for _ in range(count)]


def crash(args, say=print):
    """Runs the cycles; returns (cycles, acknowledged, restart times, violation or None)."""
    rng = random.Random(args.seed)
    done, acks, times = 0, 0, []
    while done < args.cycles:
        count = min(LIFE, args.cycles - done)
        run = Run(args, done // LIFE, rng)
        try:
            times += asyncio.run(run.live(modes_of(args, rng, count)))
            run.server.stop()
        except Violation as violation:
            run.server.stop(check=False)
            return done, acks + run.acks, times, f"{violation} (seed {args.seed}, life {run.life})"
        except BaseException:
            run.server.stop(check=False)
            raise
        done, acks = done + count, acks + run.acks
        say(f"{done} of {args.cycles} cycles, {acks} writes acknowledged, slowest return {max(times):.2f} s")
    return done, acks, times, None


def options(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--mode", choices=["api", "all", "both"], default="both")
    parser.add_argument("--bin", default=harness.BIN)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    return parser.parse_args(argv)


def main():
    args = options()
    harness.adopt_orphans()
    print(f"seed {args.seed}", flush=True)
    cycles, acks, times, violation = crash(args, lambda text: print(text, flush=True))
    if violation:
        print(f"VIOLATION: {violation}")
        return 1
    print(f"{cycles} kills, {acks} acknowledged writes, none lost; slowest return {max(times):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
