"""A gigabyte of a command's output into a file: `atoll exec` beside `crun exec`, which hands the file itself to the
command. Every byte is counted, and the status is the command's."""
import os
import shutil
import statistics
import subprocess
import time

import rest
import sandboxes

SIZE = 1_000_000_000
COMMAND = ["/usr/bin/head", "-c", str(SIZE), "/dev/zero"]


def into_file(argv, path, env=None):
    """MB/s; anything that is not whole is an error."""
    with open(path, "wb") as file:
        began = time.perf_counter()
        done = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE,
                              env=env, timeout=300, check=False)
        took = time.perf_counter() - began
    size = os.stat(path).st_size
    path.unlink()
    if done.returncode != 0 or size != SIZE:
        raise AssertionError(f"{argv[0]}: status {done.returncode}, {size} bytes: {done.stderr[-300:]}")
    return SIZE / took / 1e6


def whole(bench):
    if not shutil.which("crun"):
        return
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    server = rest.start(bench)
    kept = rest.Kept(server)
    bundles = sandboxes.Bundles(bench.work / "containers")
    got = {"atoll": [], "crun": []}
    try:
        box = kept.ask("POST", rest.BOXES, rest.LIMITS)["id"]
        crun = sandboxes.inside(["crun", "--root", bundles.work / "crun", "exec", bundles.hold("crun"), *COMMAND])
        env = {**os.environ, "ATOLL_STATE": str(server.state)}
        for _ in range(bench.rounds):
            got["crun"].append(into_file(crun, bench.work / "output"))
            got["atoll"].append(into_file([bench.build / "atoll", "exec", box, "--", *COMMAND], bench.work / "output",
                                          env))
        kept.ask("DELETE", f"{rest.BOXES}/{box}")
    finally:
        bundles.close()
        kept.close()
        server.stop()
    ratio = statistics.median(a / c for a, c in zip(got["atoll"], got["crun"]))
    bench.row("1 GB of output into a file: vs crun exec", statistics.median(got["atoll"]),
              statistics.median(got["crun"]), ratio, ">= 0.5 x", ratio >= 0.5, "MB/s")
