"""The crash test as tests: 200 kills in all, and the proof that the checker can see a liar.

CYCLES can be set by ATOLL_CRASH_CYCLES (a quarter of them kill everything, warden included).
"""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import crash  # noqa: E402
import harness  # noqa: E402

CYCLES = int(os.environ.get("ATOLL_CRASH_CYCLES", "200"))
LIAR = harness.BUILD / "liar" / "atoll"


def run(*argv):
    args = crash.options(list(argv))
    print("seed", args.seed)
    return crash.crash(args)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode,cycles", [("api", CYCLES - CYCLES // 4), ("all", CYCLES // 4)])
def test_nothing_acknowledged_is_lost(mode, cycles):
    done, acks, times, violation = run("--mode", mode, "--cycles", str(cycles))
    assert violation is None, violation
    assert done == cycles
    # Without enough load the kills would prove little.
    assert acks >= 20 * cycles, f"only {acks} acknowledged writes in {cycles} cycles"


@pytest.mark.timeout(300)
def test_the_checker_catches_a_server_that_answers_before_the_commit():
    *_, violation = run("--mode", "api", "--cycles", "60", "--bin", str(LIAR))
    assert violation is not None, "the liar survived 60 kills; the checker sees nothing"
    assert "acknowledged as" in violation, violation
