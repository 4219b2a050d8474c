"""Every guard of a sandbox (base/guard.h) has a test that leaves it out, and none can be left out of the programs
themselves. The attacks are in C, where a box takes milliseconds: src/warden/guards_test.c and limits_test.c.
"""
import re

import harness

SRC = harness.ROOT / "src"
ROOMS = ("warden", "init", "tree")


def guards():
    found = set()
    for room in ROOMS:
        for path in (SRC / room).glob("*.[ch]"):
            found |= set(re.findall(r"\bguard\((\w+)\)", path.read_text()))
    return found


def left_out():
    """What is named by an attack, or by another test in C."""
    named = set()
    for path in [*(SRC / "warden").glob("*_test.c"), *(SRC / "tree").glob("*_test.c")]:
        text = path.read_text()
        for pattern in (r'\bATTACK\(\w+,\s*"([\w,]*)"', r'without\("([\w,]*)"', r'\bwithout\[\] = \{ "", "(\w+)" \}',
                        r'"(untar_[\w,]+)"'):
            named |= {name for names in re.findall(pattern, text) for name in names.split(",") if name}
    return named


def test_every_guard_is_left_out_by_a_test():
    assert guards() - left_out() == set(), "guards without an attack"
    assert left_out() - guards() == set(), "attacks on guards that there are not"
    assert len(guards()) > 30, "they were found"


def test_in_the_programs_themselves_no_guard_can_be_left_out():
    for name in ("atoll", "atoll-server", "atoll-warden", "atoll-init"):
        assert b"ATOLL_WITHOUT" not in (harness.BUILD / name).read_bytes(), name
    for name in ("unguarded/atoll-init", "unguarded/atoll-warden", "test/warden/guards_test",
                 "test/warden/limits_test"):
        assert b"ATOLL_WITHOUT" in (harness.BUILD / name).read_bytes(), name
