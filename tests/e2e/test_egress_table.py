"""The way out of a sandbox, in the closed world: every row of tests/egress_table.py, by a program inside that
uses the proxy and by one that knows of none. For each: what the program is told, what is recorded, which
names are looked up for it (none, unless it was allowed) and where a connection goes."""
import collections
import json
import os
import pathlib

import egress_box
import egress_table
import harness
import pytest
import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
INSIDE = pathlib.Path(harness.__file__).with_name("inside_egress.py")
ROWS = egress_table.ROWS


@pytest.fixture(scope="module")
def here():
    with world.World() as made:
        made.zone.update(egress_table.ZONE)
        yield made


@pytest.fixture(scope="module")
def server(here):
    made = egress_box.start_server()
    yield made
    made.stop()


class Done:
    """What came of all rows, made at once: 8 of them at a time."""

    def __init__(self, here, server):
        self.box = egress_box.Box(server, egress_table.POLICY)
        self.box.put("/workspace/rows.json", json.dumps([row.steps for row in ROWS]).encode())
        self.box.put("/workspace/run.py", INSIDE.read_bytes())
        self.box.sh("python3 /workspace/run.py < /workspace/rows.json > /workspace/results.json", 240)
        self.results = json.loads(self.box.get("/workspace/results.json"))
        here.settle()
        self.lookups = [name for name, _ in here.lookups]
        self.packets = {(address, port) for kind, address, port in here.packets if kind == "tcp"}
        self.others = [packet for packet in here.packets if packet[0] != "tcp"]


@pytest.fixture(scope="module")
def done(here, server):
    made = Done(here, server)
    yield made
    assert server.delete(made.box.base).status == 200


def fits(want, got):
    if callable(want):
        return want(got)
    return got[0] == want if isinstance(want, int) and isinstance(got, list) else got == want


def test_the_table_is_as_large_as_it_should_be():
    kinds = collections.Counter(row.steps[0][0] for row in ROWS)
    assert len(ROWS) >= 200 and kinds["proxy"] >= 100 and kinds["dial"] >= 50


@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", ROWS, ids=[f"{row.number}-{row.name[:60]}" for row in ROWS])
def test_row(done, row):
    got = done.results[row.number]
    assert len(got) == len(row.want) and all(map(fits, row.want, got)), f"{row.name}: {got}"
    mine = {name for name in done.lookups if row.label in name.replace("-", ".").split(".")}
    assert mine <= row.looked, f"looked up {mine - row.looked}"
    if any("@" not in name and row.label in name for name in row.looked):
        assert mine == row.looked


def test_nothing_went_where_no_row_was_allowed(done):
    """Packets are of nobody in particular, so all rows together answer for them."""
    expected = set().union(*(row.went for row in ROWS))
    assert done.packets <= expected, done.packets - expected
    # The machine's own word to its resolver about an answer that came when nobody waited any more.
    assert [other for other in done.others if other[:2] != ("icmp", world.RESOLVER)] == []


def test_no_name_was_looked_up_but_those_allowed(done):
    expected = set().union(*(row.looked for row in ROWS)) | {"far.elsewhere.example"}
    assert set(done.lookups) <= expected, set(done.lookups) - expected
