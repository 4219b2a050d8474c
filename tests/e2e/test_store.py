"""The store when things go wrong around it: damage, a full disk, two servers, kills in the middle."""
import os
import sqlite3
import subprocess

import harness
import pytest


def database(server):
    return server.state / "data" / "atoll.db"


def write_some(server, count=50):
    for i in range(count):
        assert server.post("/api/v1/notes", {"text": f"note {i} " + "x" * 500}).status == 201


def refuses_to_start(server, *words):
    server.start(ready=False)
    status = server.process.wait(20 * harness.SLOW)
    assert status != 0
    log = server.log()
    assert any(word in log for word in words), log[-2000:]


def damage_header(path):
    with open(path, "r+b") as f:
        f.write(b"this was a database, once")


def damage_page(path):
    size = path.stat().st_size
    with open(path, "r+b") as f:
        for at in range(4096, size, 4096):
            f.seek(at)
            f.write(os.urandom(64))


def cut_short(path):
    os.truncate(path, path.stat().st_size // 2 + 100)


@pytest.mark.parametrize("damage", [damage_header, damage_page, cut_short])
def test_a_damaged_store_is_refused_and_left_as_it_is(start_server, damage):
    server = start_server()
    write_some(server)
    server.stop(remove=False)
    damage(database(server))
    before = database(server).read_bytes()
    refuses_to_start(server, "corrupt", "damaged", "not a database", "malformed")
    assert database(server).read_bytes() == before, "it must not be repaired behind our back"
    database(server).unlink()
    for rest in ("-wal", "-shm"):
        (server.state / "data" / ("atoll.db" + rest)).unlink(missing_ok=True)
    server.args.append("--new-store")
    server.start()


def store_is(server, word):
    try:
        return server.get("/api/v1/health").json()["store"] == word
    except OSError:  # not listening yet
        return False


def test_a_large_damaged_store_is_read_but_not_written_nor_ready(start_server):
    server = start_server()
    write_some(server, 3)
    server.stop(remove=False)
    db = sqlite3.connect(database(server))
    db.execute("CREATE TABLE filler (x)")
    db.execute("INSERT INTO filler VALUES (zeroblob(40000000))")
    db.commit()
    db.close()
    owner = (server.state / "data").stat()
    os.chown(database(server), owner.st_uid, owner.st_gid)
    server.start()
    harness.wait_until(lambda: store_is(server, "sound"), 20, "the check")
    server.stop(remove=False)
    with open(database(server), "r+b") as f:  # where the long row goes on: far outside of the file
        f.seek(4096 * 5000)
        f.write(b"\x7f\xff\xff\xff")
    server.start(ready=False)
    harness.wait_until(lambda: store_is(server, "damaged"), 20, "the damage")
    ready = server.get("/readyz", token=None)
    assert ready.status == 503 and "restore a backup" in ready.error["message"]
    assert server.post("/api/v1/notes", {"text": "lost?"}).status == 503
    assert len(server.get("/api/v1/events?type=note.created").json()["items"]) == 3
    assert server.cli("health").returncode == 1


def test_a_store_from_the_future_is_refused(start_server):
    server = start_server()
    write_some(server, 3)
    server.stop(remove=False)
    db = sqlite3.connect(database(server))
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    steps = [t for t in tables if "migration" in t or "schema" in t]
    assert steps, tables
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({steps[0]})")]
    last = db.execute(f"SELECT * FROM {steps[0]} ORDER BY 1 DESC LIMIT 1").fetchone()
    future = (last[0] + 1, *last[1:])
    db.execute(f"INSERT INTO {steps[0]} VALUES ({','.join('?' * len(columns))})", future)
    db.commit()
    db.close()
    refuses_to_start(server, "newer")
    db = sqlite3.connect(database(server))
    db.execute(f"DELETE FROM {steps[0]} WHERE {columns[0]} = ?", (future[0],))
    db.commit()
    db.close()
    server.start()


def test_two_servers_cannot_share_a_state_directory(start_server):
    first = start_server()
    second = harness.Server(state=first.state)
    second.start(ready=False)
    assert second.process.wait(15) != 0
    assert first.get("/readyz", token=None).status == 200
    assert f"process id {first.warden_pid} is using the state directory" in second.log()
    assert first.post("/api/v1/notes", {"text": "still here"}).status == 201


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs a mount")
def test_a_full_disk_is_507_and_recovers(tmp_path_factory):
    top = tmp_path_factory.mktemp("disk")
    mount = top / "small"
    mount.mkdir()
    top.chmod(0o755)
    top.parent.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "none", mount], check=True)
    server = harness.Server(state=mount / "state")
    try:
        server.start()
        assert server.post("/api/v1/notes", {"text": "before"}).status == 201
        filler = mount / "filler"
        with open(filler, "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        statuses = set()
        for i in range(200):
            reply = server.post("/api/v1/notes", {"text": "y" * 15000})
            statuses.add(reply.status)
            if reply.status == 507:
                break
        assert statuses <= {201, 507} and 507 in statuses, statuses
        assert reply.error["code"] == "no_space"
        assert server.get("/api/v1/whoami").status == 200, "reading goes on"
        filler.unlink()
        harness.wait_until(lambda: server.post("/api/v1/notes", {"text": "after"}).status == 201, 10, "room again")
        texts = [e["data"].get("text") for e in server.get("/api/v1/events?limit=1000").json()["items"]]
        assert texts[0] == "before" and texts[-1] == "after"
        assert server.get("/api/v1/audit/verify").json()["ok"]
    finally:
        server.stop(check=False)
        subprocess.run(["umount", "-l", mount], check=True)


def test_a_backup_is_complete_and_restores(start_server):
    server = start_server()
    write_some(server, 20)
    made = server.post("/api/v1/backups", {"name": "first.db"})
    assert made.status == 201, made
    write_some(server, 5)
    copy = server.get("/api/v1/backups/first.db")
    assert copy.status == 200 and len(copy.body) == made.json()["bytes"]
    server.stop(remove=False)
    for rest in ("", "-wal", "-shm"):
        (server.state / "data" / ("atoll.db" + rest)).unlink(missing_ok=True)
    own = (server.state / "data").stat()
    database(server).write_bytes(copy.body)
    os.chown(database(server), own.st_uid, own.st_gid)
    server.start()
    events = server.get("/api/v1/events?limit=1000").json()["items"]
    assert len([e for e in events if e["type"] == "note.created"]) == 20
    assert server.get("/api/v1/audit/verify").json()["ok"]


def test_a_backup_does_not_overwrite(server):
    assert server.post("/api/v1/backups", {"name": "once.db"}).status == 201
    assert server.post("/api/v1/backups", {"name": "once.db"}).status == 409


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x" * 65, "a b", "a\u0000b", "..", "ü"])
def test_a_backup_stays_in_its_directory(server, name):
    assert server.post("/api/v1/backups", {"name": name}).status == 400


def test_what_a_killed_backup_left_is_removed(start_server):
    """Copies that were being written when the server died, and those that a killed client had asked for."""
    server = start_server()
    assert server.post("/api/v1/backups", {"name": "kept.part1"}).status == 201
    backups = server.state / "data" / "backups"
    left = ["x.part01m7hrassrsvvy9ewq7ec63dsn", "x.part01m7hrassrsvvy9ewq7ec63dsn-journal",
            "cli01m7hr9g2q6v0v7kqq711cj34t"]
    for name in left:
        (backups / name).write_bytes(b"x")
    server.kill9_api()
    server.wait_ready()
    harness.wait_until(lambda: [p.name for p in backups.iterdir()] == ["kept.part1"], 10, "what was left to go")
