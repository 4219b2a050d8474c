"""What a command of the command line takes, from its start to its end: processes by posix_spawn, one at a time.

`atoll run -- true` in an empty directory, with a server beside it, against bwrap with the same program; and
`atoll version`, which does nothing, against /bin/true.
"""
import os
import shlex
import statistics
import tempfile
import time

import rest
from sandboxes import BWRAP


def took_ms(argv, env, where):
    """One run; an end that is not 0 is an error."""
    quiet = os.open(os.devnull, os.O_RDWR)
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(where)
        began = time.perf_counter()
        pid = os.posix_spawn(argv[0], argv, env, file_actions=[(os.POSIX_SPAWN_DUP2, quiet, fd) for fd in (0, 1, 2)])
        status = os.waitpid(pid, 0)[1]
        took = time.perf_counter() - began
    finally:
        os.fchdir(home)
        os.close(home)
        os.close(quiet)
    if status != 0:
        raise AssertionError(f"{argv} ended with status {status}")
    return took * 1000


def start(bench):
    rounds = 40 if bench.quick else 200
    atoll = str((bench.build / "atoll").resolve())
    with tempfile.TemporaryDirectory() as empty:
        (bench.work / "commands").mkdir()
        server = rest.start(bench, pool=4, name="commands")
        try:
            env = {**os.environ, "ATOLL_STATE": str(server.state)}
            bwrap = shlex.split(BWRAP)
            bwrap[0] = "/usr/bin/bwrap"
            commands = {"true": ["/bin/true"], "version": [atoll, "version"], "bwrap": bwrap,
                        "run": [atoll, "run", "--", "/bin/true"]}
            took = {name: [] for name in commands}
            for _ in range(rounds):
                for name, argv in commands.items():
                    took[name].append(took_ms(argv, env, empty))
        finally:
            server.stop()
    bench.figures["commands"] = took
    middle = {name: statistics.median(values) for name, values in took.items()}
    ratio = middle["version"] / middle["true"]
    bench.row("start of `atoll`: atoll version vs /bin/true", middle["version"], middle["true"], ratio, "<= 2 x",
              ratio <= 2, "ms")
    ratio = middle["run"] / middle["bwrap"]
    bench.row("`atoll run -- true` vs bwrap", middle["run"], middle["bwrap"], ratio, "<= 1.3 x", ratio <= 1.3, "ms")
