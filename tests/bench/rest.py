"""Sandboxes through the REST API, beside the same done in one process (tests/bench/box.c).

The client is one kept connection and bytes made by hand, sent by a small program (kept.c), because the time of a
library or an interpreter would be counted as the server's. Every change is on disk before
it is answered, except what a command leaves: the disk's own time is printed beside.
"""
import json
import os
import socket
import statistics
import subprocess
import time

import harness
from sandboxes import BWRAP, box, p99

BOXES = "/api/v1/sandboxes"
LIMITS = {"storage": "memory", "memory": 256 << 20, "pids": 64, "disk": 64 << 20, "inodes": 4096,
          "cpu_percent": 200, "nofile": 1024}
TRUE = {"argv": ["/bin/true"]}
ADOPTED = 100
SETTLED = 0.5  # seconds: a server without work has moved its log by then, which the disk would share with the next one


class Kept:
    """One connection that stays open."""

    def __init__(self, server):
        self.sock = socket.create_connection(("127.0.0.1", server.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = f"HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: Bearer {server.token}\r\n"

    def ask(self, method, path, body=None):
        self.sock.sendall(request(self, method, path, body))
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.more()
        head, rest = got.split(b"\r\n\r\n", 1)
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(rest) < size:
            rest += self.more()
        if not head.startswith(b"HTTP/1.1 20"):
            raise AssertionError(f"{method} {path}: {rest[:300]!r}")
        return json.loads(rest)

    def more(self):
        data = self.sock.recv(65536)
        if not data:
            raise AssertionError("the server closed the connection")
        return data

    def close(self):
        self.sock.close()


def start(bench, pool=0, name="server"):
    """`pool`: warm sandboxes; a server as it is delivered has 2."""
    return harness.Server(["--pool-default", str(pool)], binary=bench.build / "atoll",
                          state=bench.work / name / "state", env={
        "ATOLL_RATE_PER_SECOND": "1000000", "ATOLL_RATE_BURST": "1000000", "ATOLL_LOG_LEVEL": "warn",
        "ATOLL_SANDBOXES_MAX": "1000"}).start()


def commits(server):
    text = server.get("/metrics").body.decode()
    return sum(float(line.split()[-1]) for line in text.splitlines()
               if line.startswith("atoll_store_commits_total"))


def run_true(kept, made):
    if kept.ask("POST", f"{BOXES}/{made}/execs?wait=20000", TRUE)["exit_code"] != 0:
        raise AssertionError("/bin/true failed")


def request(kept, method, path, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    more = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if data else ""
    return f"{method} {path} {kept.head}{more}\r\n".encode() + data


def rounds_of(bench, server, requests, rounds):
    """Asked by tests/bench/kept.c: microseconds of each round; the first few are not counted."""
    done = subprocess.run([bench.build / "bench" / "kept", str(server.port), str(rounds + 3), '"exit_code":0'],
                          input=b"\0".join(requests), check=True, capture_output=True)
    return [float(v) for v in done.stdout.split()][3:]


def run_trues(bench, server, kept, made, rounds):
    return rounds_of(bench, server, [request(kept, "POST", f"{BOXES}/{made}/execs?wait=20000", TRUE)], rounds)


def wholes(bench, server, kept, rounds, spec=None):
    """Made, a command run, destroyed."""
    return rounds_of(bench, server, [request(kept, "POST", BOXES, LIMITS if spec is None else spec),
                                     request(kept, "POST", f"{BOXES}/@/execs?wait=20000", TRUE),
                                     request(kept, "DELETE", f"{BOXES}/@")], rounds)


def sync_ms(bench, name):
    rate = float(subprocess.run([bench.build / "bench" / "append", bench.work / name / "state", "1"], check=True,
                                capture_output=True, text=True).stdout)
    return 1000 / rate


def api(bench):
    """By a server with two warm sandboxes in memory, by one that has nothing ready, and the default request by a
    server as it is delivered: two warm sandboxes on disk."""
    names = {"rest": 2, "unready": 0, "default": 2}
    for name in names:
        (bench.work / name).mkdir(mode=0o755)
    servers = {name: start(bench, pool, name) for name, pool in names.items()}
    kept = {name: Kept(server) for name, server in servers.items()}
    got = {"rest": [], "unready": [], "default": [], "rest_exec": [], "cold": [], "exec": [], "bwrap": [], "sync": []}
    each = 15 if bench.quick else 40
    kept["rest"].ask("PUT", "/api/v1/pools/default", {"size": 2, "storage": "memory"})
    try:
        held = kept["rest"].ask("POST", BOXES, LIMITS)["id"]
        per_round = per_exec = 0
        for _ in range(bench.rounds):
            own = box(bench, "cycle", each, f"bwrap={BWRAP}")
            for name in ("cold", "exec", "bwrap"):
                got[name] += own[name]
            got["unready"] += wholes(bench, servers["unready"], kept["unready"], each)
            time.sleep(SETTLED)
            before = commits(servers["rest"])
            got["rest"] += wholes(bench, servers["rest"], kept["rest"], each)
            between = commits(servers["rest"])
            got["rest_exec"] += run_trues(bench, servers["rest"], kept["rest"], held, each)
            per_round += (between - before) / (each + 3) / bench.rounds
            per_exec += (commits(servers["rest"]) - between) / (each + 3) / bench.rounds
            time.sleep(SETTLED)
            got["default"] += wholes(bench, servers["default"], kept["default"], each, {})
            time.sleep(SETTLED)
            got["sync"].append(sync_ms(bench, "rest") * 1000)
        kept["rest"].close()  # idle since the beginning, which a server allows for a minute
        kept["rest"] = Kept(servers["rest"])
        kept["rest"].ask("DELETE", f"{BOXES}/{held}")
    finally:
        for name, server in servers.items():
            kept[name].close()
            server.stop()
    bench.figures["api"] = {**got, "commits": [per_round, per_exec]}
    middle = {name: statistics.median(values) / 1000 for name, values in got.items()}
    for name, what in ("rest", "create + exec + destroy by REST: beyond in-process"), ("unready", "  with none warm"):
        over = middle[name] - middle["cold"]
        bench.row(what, over, middle["cold"], None, "<= 1.5 ms", over <= 1.5, "ms")
    synced = "commits, by the disk's own fdatasync"
    bench.row(f"  {per_round:.1f} {synced}", per_round * middle["sync"], None, None, "", True, "ms")
    ratio, tail = middle["default"] / middle["bwrap"], p99(got["default"]) / 1000 / middle["default"]
    bench.row("default request by REST: create + exec + destroy vs bwrap in-process", middle["default"],
              middle["bwrap"], ratio, "<= 1 x", ratio <= 1, "ms")
    bench.row("  p99 vs its own median", p99(got["default"]) / 1000, middle["default"], tail, "<= 3 x", tail <= 3, "ms")
    tail = p99(got["rest"]) / 1000 / middle["rest"]
    bench.row("  p99 vs its own median", p99(got["rest"]) / 1000, middle["rest"], tail, "<= 3 x", tail <= 3, "ms")
    own = p99(got["cold"]) / 1000 / middle["cold"]
    bench.row("  the same in-process", p99(got["cold"]) / 1000, middle["cold"], own, "", True, "ms")
    ratio = middle["rest_exec"] / middle["exec"]
    bench.row("exec over a kept connection vs in-process exec", middle["rest_exec"], middle["exec"], ratio, "<= 1.2 x",
              ratio <= 1.2, "ms")
    bench.row(f"  {per_exec:.1f} {synced}, after the answer", per_exec * middle["sync"], None, None, "", True, "ms")


def restart(bench):
    """100 that run are found again: by a new api process, and by a new server."""
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    server = start(bench)
    took = {"api": [], "server": []}
    try:
        kept = Kept(server)
        ids = [kept.ask("POST", BOXES, {**LIMITS, "memory": 16 << 20, "disk": 8 << 20})["id"] for _ in range(ADOPTED)]
        kept.close()
        for _ in range(bench.rounds):
            begin = time.perf_counter()
            server.kill9_api()
            server.wait_ready()
            took["api"].append(time.perf_counter() - begin)
            os.kill(server.api_pid(), 9)
            server.process.kill()
            server.process.wait()
            begin = time.perf_counter()
            server.start()
            took["server"].append(time.perf_counter() - begin)
            kept = Kept(server)
            for one in ids:
                run_true(kept, one)
            kept.close()
        kept = Kept(server)
        for one in ids:
            kept.ask("DELETE", f"{BOXES}/{one}")
        kept.close()
    finally:
        server.stop()
    bench.figures["restart"] = took
    for what, name in ("api", f"restart of api, {ADOPTED} sandboxes adopted"), ("server", "  of the whole server"):
        seconds = statistics.median(took[what])
        bench.row(name, seconds, None, None, "<= 2 s", seconds <= 2, "s")


def disk(bench):
    got = box(bench, "disk", 50 if bench.quick else 200)
    bench.figures["disk"] = got
    for name, what, most in ("fork", "fork of a running sandbox's disk", 2), \
                            ("volume", "volume into a running sandbox", 0.5):
        took = statistics.median(got[name]) / 1000
        bench.row(what, took, None, None, f"<= {most} ms", took <= most, "ms")
    bench.row("create + exec + destroy on a disk", statistics.median(got["on_disk"]) / 1000, None, None, "", True, "ms")
