"""1,000 commands at once by REST, each on a connection of its own, in sandboxes that run: all must be right.

Beside it, for the rate: the same 1,000 commands by posix_spawn, all started before the first is waited for.
"""
import json
import os
import selectors
import statistics
import time

import rest

COUNT = 1000
BOXES = 20
LIMITS = {**rest.LIMITS, "pids": 256}
ECHO = "/bin/echo"


class Asked(rest.Kept):
    """One connection, one command, and what came back."""

    def __init__(self, server, number, box):
        super().__init__(server)
        self.number, self.got = number, b""
        data = json.dumps({"argv": [ECHO, str(number)]})
        self.request = (f"POST {rest.BOXES}/{box}/execs?wait=60000 {self.head}Content-Type: application/json\r\n"
                        f"Content-Length: {len(data)}\r\n\r\n{data}").encode()

    def whole(self):
        head, _, body = self.got.partition(b"\r\n\r\n")
        return body and len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])

    def check(self):
        head, _, body = self.got.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 201"):
            raise AssertionError(f"command {self.number}: {self.got[:300]!r}")
        done = json.loads(body)
        if done["exit_code"] != 0 or done["output"] != f"{self.number}\n":
            raise AssertionError(f"command {self.number}: {done}")


def ours(server, boxes):
    """Commands a second; whatever is not right is an error."""
    asked = [Asked(server, i, boxes[i % len(boxes)]) for i in range(COUNT)]
    waiting = selectors.DefaultSelector()
    for one in asked:
        waiting.register(one.sock, selectors.EVENT_READ, one)
    began = time.perf_counter()
    for one in asked:
        one.sock.sendall(one.request)
    left = COUNT
    while left:
        ready = waiting.select(60)
        if not ready:
            raise AssertionError(f"{left} of {COUNT} commands were not answered")
        for key, _ in ready:
            key.data.got += key.data.more()
            if key.data.whole():
                waiting.unregister(key.fileobj)
                left -= 1
    took = time.perf_counter() - began
    for one in asked:
        one.check()
        one.close()
    waiting.close()
    return COUNT / took


def theirs():
    sink = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    began = time.perf_counter()
    running = [os.posix_spawn(ECHO, [ECHO, str(i)], os.environ, file_actions=sink) for i in range(COUNT)]
    for pid in running:
        if os.waitpid(pid, 0)[1] != 0:
            raise AssertionError(f"{ECHO} failed")
    return COUNT / (time.perf_counter() - began)


def concurrent(bench):
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    server = rest.start(bench)
    kept = rest.Kept(server)
    got = {"atoll": [], "spawn": []}
    try:
        boxes = [kept.ask("POST", rest.BOXES, LIMITS)["id"] for _ in range(BOXES)]
        for _ in range(bench.rounds):
            got["spawn"].append(theirs())
            got["atoll"].append(ours(server, boxes))
        for box in boxes:
            kept.ask("DELETE", f"{rest.BOXES}/{box}")
    finally:
        kept.close()
        server.stop()
    bench.figures["concurrent"] = got
    mine, plain = statistics.median(got["atoll"]), statistics.median(got["spawn"])
    bench.row(f"{COUNT:,} commands at once by REST, all right, vs posix_spawn", mine, plain, mine / plain, "all right",
              True, "/s")
