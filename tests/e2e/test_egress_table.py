"""The way out of a sandbox, in the closed world: every row of tests/egress_table.py, by a program inside that
uses the proxy and by one that knows of none. For each: what the program is told, what is recorded, which
names are looked up for it (none, unless it was allowed) and where a connection goes."""
import collections
import concurrent.futures
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
LANES = 8


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


class Lane:
    """A sandbox that makes every eighth row, one after the other."""

    def __init__(self, server, rows):
        self.server, self.rows = server, rows
        self.box = egress_box.Box(server, egress_table.POLICY)

    def run(self):
        self.box.put("/workspace/rows.json", json.dumps([row.steps for row in self.rows]).encode())
        self.box.put("/workspace/run.py", INSIDE.read_bytes())
        self.box.sh("python3 /workspace/run.py < /workspace/rows.json > /workspace/results.json", 240)
        results = json.loads(self.box.get("/workspace/results.json"))
        last = f"mark-{len(self.rows) - 1}.evil.example"
        harness.wait_until(lambda: [r for r in self.records() if r["host"] == last], 20,
                           "the last record")
        return results, self.cut(self.records())

    def records(self):
        items, since = [], 0
        while page := self.server.get(f"{self.box.base}/egress/records?since={since}&limit=500").json()["items"]:
            items += page
            since = page[-1]["seq"]
        return items

    def cut(self, items):
        """The records of each row: those before its mark."""
        rows = [[]]
        for item in items:
            if item["host"] == f"mark-{len(rows) - 1}.evil.example":
                rows.append([])
            else:
                rows[-1].append(item)
        assert len(rows) == len(self.rows) + 1 and rows[-1] == [], "a record without a row"
        return rows[:-1]


class Done:
    """What came of all rows: of each the results inside and its records, of all what was heard outside."""

    def __init__(self, here, server):
        self.lanes = [Lane(server, ROWS[i::LANES]) for i in range(LANES)]
        self.results, self.records = {}, {}
        with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
            for lane, (results, records) in zip(self.lanes, pool.map(Lane.run, self.lanes)):
                for row, result, record in zip(lane.rows, results, records, strict=True):
                    self.results[row.number], self.records[row.number] = result, record
        here.settle()
        self.lookups = [name for name, _ in here.lookups]
        self.packets = {(address, port) for kind, address, port in here.packets if kind == "tcp"}
        self.others = [packet for packet in here.packets if packet[0] != "tcp"]


@pytest.fixture(scope="module")
def done(here, server):
    made = Done(here, server)
    yield made
    for lane in made.lanes:
        assert server.get(f"{lane.box.base}/egress").json()["lost"] == 0
        assert server.delete(lane.box.base).status == 200


def fits(want, got):
    if callable(want):
        return want(got)
    return got[0] == want if isinstance(want, int) and isinstance(got, list) else got == want


def test_the_table_is_as_large_as_it_should_be():
    kinds = collections.Counter(row.steps[0][0] for row in ROWS)
    assert len(ROWS) >= 200 and kinds["proxy"] >= 100 and kinds["dial"] >= 50
    for what, words in egress_table.CLASSES.items():
        missing = [word for word in words if not any(word in row.name for row in ROWS)]
        assert not missing, f"{what}: no row for {missing}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", ROWS, ids=[f"{row.number}-{row.name[:60]}" for row in ROWS])
def test_row(done, row):
    got = done.results[row.number]
    assert len(got) == len(row.want) and all(map(fits, row.want, got)), f"{row.name}: {got}"
    records = done.records[row.number]
    assert [(r["verdict"], r["host"], r["port"]) for r in records] == row.records, "what is recorded"
    assert {r["kind"] for r in records} <= row.kinds
    assert [r["rule"] for r in records if not egress_table.rule_fits(r)] == [], "the rule that is named"
    assert all(bool(r["why"]) == (r["verdict"] in ("allowed", "denied")) or r["verdict"] == "refused" or
               "stands for no name" in r["reason"] for r in records)
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
