"""Commands by agentbox's Exec over gRPC, beside `runc exec` in a container that runs: how many a second.

Both have as many at once as make the most of the machine: h2load keeps 64 calls under way, runc has two loops
for each core. Every call of ours is stored, audited and told with its output; the last one is looked at.
"""
import os
import re
import statistics
import subprocess
import time

import rest
import rpc
from sandboxes import Bundles, inside

TARGET = 20
LINE = "exit 0"


def ours(bench, server, session, files):
    frame = bench.work / "exec-frame"
    data = files.request(rpc.SANDBOX, "Exec", {"sessionId": session, "command": LINE}).SerializeToString()
    frame.write_bytes(rpc.message(data))
    text = subprocess.run(["h2load", "-D", str(bench.seconds), "-c", "4", "-m", "16", "-t", "1", "-d", str(frame),
                           "-H", "content-type: application/grpc", "-H", "te: trailers",
                           "-H", f"authorization: Bearer {server.token}", f"{server.url}/{rpc.SANDBOX}/Exec"],
                          capture_output=True, text=True, check=True, timeout=bench.seconds + 60).stdout
    good = re.search(r"(\d+) succeeded, 0 failed, 0 errored", text)
    if not good or good.group(1) == "0":
        raise AssertionError(text[-300:])
    return float(re.search(r"([\d.]+) req/s", text).group(1))


def theirs(bench, bundles, name):
    loop = f"end=$(($(date +%s) + {bench.seconds})); n=0; while [ $(date +%s) -lt $end ]; do " \
           f"runc --root {bundles.work}/runc exec {name} /bin/sh -c '{LINE}' || exit 1; n=$((n+1)); done; echo $n"
    begin = time.monotonic()
    running = [subprocess.Popen(inside(["sh", "-c", loop]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
               for _ in range(2 * os.cpu_count())]
    counts = [int(process.communicate(timeout=bench.seconds + 60)[0]) for process in running]
    return sum(counts) / (time.monotonic() - begin)


def agentbox(bench):
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    bundles, server = Bundles(bench.work / "agentbox"), rest.start(bench)
    client = rpc.Grpcio(server, rpc.Files(bench.build / "gen" / "protos.pb"))
    got = {"atoll": [], "runc": []}
    try:
        held = bundles.hold("runc")
        session = client.call("CreateSession").ok["session"]["sessionId"]
        for _ in range(bench.rounds):
            got["runc"].append(theirs(bench, bundles, held))
            got["atoll"].append(ours(bench, server, session, client.files))
        # A status of 200 says little in gRPC: these must have been real commands.
        if "exitCode" in client.call("Exec", {"sessionId": session, "command": LINE}).ok:
            raise AssertionError("the commands failed")
        last = server.get(f"/api/v1/sandboxes/{session}/execs").json()["items"]
        if len(last) < 100 or any(e["exit_code"] != 0 for e in last if e["state"] == "exited"):
            raise AssertionError("the commands did not run")
        client.call("DestroySession", {"sessionId": session})
    finally:
        client.close()
        bundles.close()
        server.stop()
    bench.figures["agentbox"] = got
    ratio = statistics.median(a / r for a, r in zip(got["atoll"], got["runc"]))
    bench.row("agentbox Exec over gRPC vs runc exec", statistics.median(got["atoll"]), statistics.median(got["runc"]),
              ratio, f">= {TARGET} x", ratio >= TARGET, "/s")
