"""The audit log: every change and every refusal is a row, and no row can be changed unnoticed."""
import hashlib
import secrets
import sqlite3

import pytest


REFUSALS_PER_PEER, REFUSALS_OF_ALL = 120, 1200  # a minute, as in src/base/limits.h


def rows(server, since=0, token="admin"):
    return server.get(f"/api/v1/audit?since={since}&limit=1000", token=token).json()["items"]


def newest(server):
    return rows(server)[-1]["seq"]


def test_a_change_is_a_row(server):
    since = newest(server) if rows(server) else 0
    made = server.new_token("viewer")
    request = server.post("/api/v1/notes", {"text": "x"}, headers={"X-Request-Id": "audit-1"})
    server.delete("/api/v1/tokens/" + made["id"])
    got = rows(server, since) if since else rows(server)
    assert [(r["action"], r["outcome"]) for r in got][-3:] == [
        ("token.create", "ok"), ("note.create", "ok"), ("token.revoke", "ok")]
    note = got[-2]
    assert note["request_id"] == "audit-1" == request.headers["x-request-id"]
    assert note["object"] == f"event/{request.json()['seq']}"
    assert note["role"] == "admin" and note["tenant"] == "default" and note["peer"].startswith("127.0.0.1:")
    assert got[-3]["object"] == "token/" + made["id"]
    assert [r["seq"] for r in got] == list(range(got[0]["seq"], got[0]["seq"] + len(got)))


def test_a_refusal_is_a_row(server, peer):
    server.new_token("viewer")
    since = newest(server)
    viewer = server.new_token("viewer")["token"]
    server.get("/api/v1/whoami", token=None, source=peer)
    server.get("/api/v1/whoami", token="atl_" + "x" * 43, source=peer)
    server.post("/api/v1/tokens", {"name": "no", "role": "admin"}, token=viewer)
    server.get("/api/v1/whoami", headers={"Host": "evil.example"})
    server.get("/api/v1/whoami", headers={"Origin": "http://evil.example"})
    got = [(r["action"], r["outcome"]) for r in rows(server, since)]
    assert got == [("token.create", "ok"), ("whoami.read", "unauthenticated"), ("whoami.read", "unauthenticated"),
                   ("token.create", "forbidden"), ("whoami.read", "misdirected"), ("refused", "forbidden")]


def test_a_refusal_that_was_told_outlives_a_kill(fresh_server, peer):
    server = fresh_server
    ids = []
    for i in range(20):
        ids.append(f"refused-{i}")
        server.get("/api/v1/whoami", headers={"Host": "evil.example", "X-Request-Id": ids[-1]}, source=peer)
        server.kill9_api()
        server.wait_ready()
    assert [r["request_id"] for r in rows(server) if r["outcome"] == "misdirected"] == ids


def test_no_row_holds_a_secret(server, peer):
    made = server.new_token("viewer")
    wrong = "atl_" + secrets.token_urlsafe(32)
    server.get("/api/v1/whoami", token=wrong, source=peer)
    text = server.get("/api/v1/audit?limit=1000").body.decode()
    for secret in (made["token"], wrong, server.token):
        assert secret not in text


def count(server):
    return server.get("/api/v1/audit/verify").json()["rows"]


def test_reading_leaves_no_row(server):
    before = count(server)
    for _ in range(3):
        server.get("/api/v1/whoami")
    assert count(server) == before


def test_a_flood_of_refusals_does_not_fill_the_log(fresh_server, peer):
    server = fresh_server
    before = count(server)
    for _ in range(300):
        assert server.get("/api/v1/whoami", headers={"Host": "evil.example"}, source=peer).status == 421
    assert count(server) == before + REFUSALS_PER_PEER


def test_a_flood_from_many_addresses_does_not_either(fresh_server):
    server = fresh_server
    before = count(server)
    flood = b"GET /api/v1/whoami HTTP/1.1\r\nHost: evil.example\r\n\r\n" * 99 + \
        b"GET /api/v1/whoami HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    for i in range(REFUSALS_OF_ALL // 100 + 3):
        assert server.raw(flood, source=f"127.77.1.{i + 1}").count(b"HTTP/1.1 421 ") == 100
    # Addresses that share a slot of the table share its rows, so a few may be missing.
    assert before + REFUSALS_OF_ALL - 200 <= count(server) <= before + REFUSALS_OF_ALL


def test_the_chain_verifies(server):
    for _ in range(5):
        server.post("/api/v1/notes", {"text": "x"})
    verdict = server.get("/api/v1/audit/verify").json()
    assert verdict["ok"] is True and verdict["bad_seq"] == 0
    assert verdict["rows"] == newest(server)
    assert verdict["head"] == rows(server)[-1]["hash"]
    assert len(verdict["head"]) == len(hashlib.sha256().hexdigest())


def tamper(server, *statements):
    """Edits the stopped store as somebody with its file could, triggers and all."""
    db = sqlite3.connect(server.state / "data" / "atoll.db")
    triggers = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in triggers:
        db.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize("what,statements,bad", [
    ("edited", ["UPDATE audit SET actor = 'somebody else' WHERE seq = 5"], 5),
    ("edited outcome", ["UPDATE audit SET outcome = 'ok ' WHERE seq = 7"], 7),
    ("removed", ["DELETE FROM audit WHERE seq = 6"], 6),
    ("reordered", ["UPDATE audit SET seq = 1000 WHERE seq = 4", "UPDATE audit SET seq = 4 WHERE seq = 5",
                   "UPDATE audit SET seq = 5 WHERE seq = 1000"], 4),
    ("truncated", ["DELETE FROM audit WHERE seq > 8"], 9),
    ("emptied", ["DELETE FROM audit"], 1),
])
def test_tampering_is_found_and_named(fresh_server, what, statements, bad):
    server = fresh_server
    for i in range(12):
        server.post("/api/v1/notes", {"text": str(i)})
    assert server.get("/api/v1/audit/verify").json()["ok"]
    server.stop(remove=False)
    tamper(server, *statements)
    done = server.cli("audit", "verify", "--state", str(server.state))
    assert done.returncode == 1, done
    assert str(bad) in done.stdout + done.stderr, done
    server.start()
    verdict = server.get("/api/v1/audit/verify").json()
    assert verdict["ok"] is False and verdict["bad_seq"] == bad, verdict
    assert verdict["why"]


@pytest.mark.parametrize("statement", [
    "UPDATE audit SET actor = 'x' WHERE seq = 1", "DELETE FROM audit WHERE seq = 1", "UPDATE event SET type = 'x'",
])
def test_triggers_refuse_an_edit(fresh_server, statement):
    server = fresh_server
    server.post("/api/v1/notes", {"text": "x"})
    server.stop(remove=False)
    db = sqlite3.connect(server.state / "data" / "atoll.db")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)
    db.close()
    server.start()


def test_a_viewer_does_not_read_it(server):
    viewer = server.new_token("viewer")["token"]
    assert server.get("/api/v1/audit", token=viewer).status == 403
