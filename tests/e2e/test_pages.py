"""Lists in pages: complete, in order and without doubles, also while sandboxes come and go, for every client."""
import json
import os
import sqlite3
import subprocess
import threading
import time

import harness
import pytest
from harness import listed

BOXES, VOLUMES, SNAPSHOTS = "/api/v1/sandboxes", "/api/v1/volumes", "/api/v1/snapshots"
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
ROWS = 3000


def an_id(prefix, number):
    """As the server makes them, old ones."""
    text = ""
    for _ in range(26):
        number, digit = divmod(number, 32)
        text = DIGITS[digit] + text
    return prefix + text


def copy_rows(database, table, row, changes):
    names = list(row)
    with sqlite3.connect(database) as db:
        db.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
                       [[{**row, **change}[name] for name in names] for change in changes])


def the_row(database, table):
    with sqlite3.connect(database) as db:
        db.row_factory = sqlite3.Row
        return dict(db.execute(f"SELECT * FROM {table} LIMIT 1").fetchone())


@pytest.fixture(scope="module")
def full():
    """A server with so many sandboxes that have failed, of which every hundredth is named rare-…; and its ids."""
    server = harness.Server(args=["--sandboxes-max", "5000"]).start()
    database = server.state / "data" / "atoll.db"
    made = harness.make_box(server, storage="memory")
    row = the_row(database, "sandbox")
    assert server.delete(f"{BOXES}/{made}").status == 200
    server.stop(remove=False)
    names = [f"{'row' if i % 100 else 'rare'}-{i}" for i in range(ROWS - 1)]
    copy_rows(database, "sandbox", row,
              [{"id": an_id("sb", i + 1), "name": name, "slot": i + 100, "state": "failed",
                "spec": json.dumps({**json.loads(row["spec"]), "name": name})} for i, name in enumerate(names)])
    server.start()
    made = harness.make_box(server, storage="memory")
    yield server
    server.delete(f"{BOXES}/{made}")
    server.stop()


@pytest.fixture(scope="module")
def ids(full):
    return [box["id"] for box in listed(full, BOXES)]


def test_pages_together_are_the_list(full, ids):
    assert len(ids) == len(set(ids)) == ROWS and ids == sorted(ids)
    assert len(full.get(BOXES).json()["items"]) == 100  # unless said
    for limit in (1, 99, 100, 101, 1000):
        page = full.get(f"{BOXES}?limit={limit}").json()
        assert [box["id"] for box in page["items"]] == ids[:limit] and page["next"] == ids[limit - 1]
    last = full.get(f"{BOXES}?limit=100&after={ids[-101]}").json()
    assert [box["id"] for box in last["items"]] == ids[-100:] and last["next"] is None
    last = full.get(f"{BOXES}?limit=100&after={ids[-102]}").json()
    assert [box["id"] for box in last["items"]] == ids[-101:-1] and last["next"] == ids[-2]
    assert full.get(f"{BOXES}?limit=1001").status == full.get(f"{BOXES}?after=x").status == 400


def test_pages_of_a_filter(full, ids):
    rare = listed(full, f"{BOXES}?name=rare-")
    assert [box["name"] for box in rare] == [f"rare-{i}" for i in range(0, ROWS - 1, 100)]
    page = full.get(f"{BOXES}?name=rare-&limit=30").json()
    assert len(page["items"]) == 30 and page["next"] is None  # exactly as many as fit
    assert full.get(f"{BOXES}?name=rare-&limit=29").json()["next"]
    assert [box["id"] for box in full.get(f"{BOXES}?state=failed&limit=3").json()["items"]] == ids[:3]


def test_a_page_costs_little(full, ids):
    def fastest(path):
        times = []
        for _ in range(10):
            begun = time.monotonic()
            assert full.get(path).status == 200
            times.append(time.monotonic() - begun)
        return min(times) * 1000

    for what, path in (("first", BOXES), ("last", f"{BOXES}?after={ids[-101]}"), ("of a filter", f"{BOXES}?name=no"),
                       ("behind one that is gone", f"{BOXES}?after={an_id('sb', 0)}"),
                       ("of 1000", f"{BOXES}?limit=1000")):
        print(f"{ROWS} sandboxes, page {what}: {fastest(path):.2f} ms")
    assert fastest(BOXES) < fastest(f"{BOXES}?limit=1000")


def test_pages_while_sandboxes_come_and_go(full, ids):
    going = [id for i, id in enumerate(ids) if i % 7 == 3 and i < 1500]
    staying = [id for id in ids if id not in set(going)]
    over = threading.Event()

    def churn():
        for id in going:
            assert full.delete(f"{BOXES}/{id}").status == 200
        over.set()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        rounds = 0
        while not over.is_set() or rounds < 2:
            seen, after = [], ""
            while after is not None:
                page = full.get(f"{BOXES}?limit=50" + (f"&after={after}" if after else "")).json()
                seen += [box["id"] for box in page["items"]]
                after = page["next"]
            assert seen == sorted(set(seen)) and set(staying) <= set(seen)
            rounds += 1
    finally:
        thread.join()
    for id in going[:3]:  # one that is gone still says where to go on
        rest = [one for one in staying if one > id]
        assert [box["id"] for box in full.get(f"{BOXES}?limit=5&after={id}").json()["items"]] == rest[:5]
    made = harness.make_box(full, storage="memory")
    assert listed(full, BOXES)[-1]["id"] == made
    full.delete(f"{BOXES}/{made}")


def test_the_command_line_sees_all(full):
    def atoll(*args):
        done = subprocess.run([full.binary, "--state", str(full.state), *args], capture_output=True, timeout=60)
        assert done.returncode == 0, done
        return done.stdout.decode()

    have = [box["id"] for box in listed(full, BOXES)]
    assert len(have) > 2000
    assert [line.split()[0] for line in atoll("ls").splitlines()[1:]] == have
    told = json.loads(atoll("--json", "ls"))
    assert [box["id"] for box in told["items"]] == have and not told.get("next")
    assert len(json.loads(atoll("--json", "ls", "--prefix", "rare-"))["items"]) == len(
        listed(full, f"{BOXES}?name=rare-"))
    assert atoll("prune", "--dry-run").split() == have[:-1]
    assert len(atoll("top", "--once").splitlines()) == 2  # the only one that runs is the last of all


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_volumes_and_snapshots_have_pages(start_server):
    server = start_server()
    box = harness.make_box(server, storage="disk", name="one")
    assert server.post(VOLUMES, {"name": "shelf", "bytes": 16 << 20}).status == 201
    assert server.post(f"{BOXES}/{box}/snapshots", {"name": "base"}).status == 201
    assert server.post(f"{BOXES}/{box}/stop").status == 200
    server.stop(remove=False)
    database = server.state / "data" / "atoll.db"
    with sqlite3.connect(database) as db:
        db.row_factory = sqlite3.Row
        rows = {row["kind"]: dict(row) for row in db.execute("SELECT * FROM disk")}
    for kind, prefix, base in (("volume", "vo", 10000), ("snapshot", "sn", 20000)):
        copy_rows(database, "disk", rows[kind],
                  [{"id": rows[kind]["id"][:-4] + f"z{i:03}", "name": f"x{i}", "number": base + i} for i in range(250)])
    server.start()
    for path, filled in ((VOLUMES, "shelf"), (SNAPSHOTS, "base"), (f"{BOXES}/{box}/snapshots", "base")):
        page = server.get(path).json()
        assert len(page["items"]) == 100 and page["next"] == page["items"][-1]["id"]
        every = listed(server, path)
        assert len({one["id"] for one in every}) == len(every) == 251 and every[0]["name"] == filled
        rest = server.get(f"{path}?limit=151&after={page['next']}").json()
        assert rest["items"] == every[100:] and rest["next"] is None
        assert len(server.get(f"{path}?limit=150&after={page['next']}").json()["items"]) == 150
    for noun in ("volume", "snapshot"):
        done = subprocess.run([server.binary, "--state", str(server.state), noun, "ls"], capture_output=True,
                              timeout=60)
        assert len(done.stdout.splitlines()) == 252, done
    server.delete(f"{BOXES}/{box}")
