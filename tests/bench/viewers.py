"""A terminal's output over its WebSocket, beside the kernel's own PTY (tests/bench/box.c, pty): from the request that
starts the command to the last byte and the end, with the log, the kept bytes and the screen that come with it."""
import os
import statistics
import sys
import time

import rest
from sandboxes import box

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from terminal import Closed, Ws  # noqa: E402

MEGABYTES = 32
ROUNDS = 7


def relay(server, kept, sandbox, command):
    """MB/s of a command that prints MEGABYTES."""
    began = time.perf_counter()
    made = kept.ask("POST", f"{rest.BOXES}/{sandbox}/terminals", {"command": command})
    ws = Ws(server, f"{rest.BOXES}/{sandbox}/terminals/{made['id']}/ws?from=0")
    got, room = len(ws.rest), bytearray(1 << 20)
    ws.rest = b""
    while b'"type":"exit"' not in ws.rest:
        size = ws.sock.recv_into(room)
        if not size:
            raise Closed(1006)
        got += size
        ws.rest = bytes(room[max(0, size - 400):size])
    took = time.perf_counter() - began
    ws.close()
    if got < MEGABYTES << 20:
        raise AssertionError(f"{got} bytes came")
    return (MEGABYTES << 20) / took / 1e6


def terminal_ws(bench):
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    server = rest.start(bench)
    kept = rest.Kept(server)
    try:
        sandbox = kept.ask("POST", rest.BOXES, rest.LIMITS)["id"]
        command = f"head -c {MEGABYTES << 20} /dev/zero"
        plain = box(bench, "pty", MEGABYTES)["plain"]
        rates = [relay(server, kept, sandbox, command) for _ in range(ROUNDS)]
        plain += box(bench, "pty", MEGABYTES)["plain"]
        bench.figures["terminal_ws"] = {"plain": plain, "relay": rates}
        kernel, ours = statistics.median(plain), statistics.median(rates)
        bench.row("terminal over a WebSocket vs the kernel's own", ours, kernel, ours / kernel, ">= 0.7 x",
                  ours / kernel >= 0.7, "MB/s")
        kept.ask("DELETE", f"{rest.BOXES}/{sandbox}")
    finally:
        kept.close()
        server.stop()
