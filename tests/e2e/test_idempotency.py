"""Idempotency-Key: the same request again has the same answer and no second effect, for a day, also after
kill -9."""
import json
import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest


def key():
    return {"Idempotency-Key": "k-" + secrets.token_hex(8)}


def notes(server, text):
    """Numbers of the events that hold this text."""
    found, since = [], 0
    while True:
        page = server.get(f"/api/v1/events?since={since}&limit=1000&type=note.created").json()
        found += [e["seq"] for e in page["items"] if e["data"]["text"] == text]
        if page["next"] == since:
            return found
        since = page["next"]


def test_the_same_key_has_the_same_answer_and_one_effect(server):
    headers, text = key(), secrets.token_hex(8)
    first = server.post("/api/v1/notes", {"text": text}, headers=headers)
    again = server.post("/api/v1/notes", {"text": text}, headers=headers)
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert notes(server, text) == [first.json()["seq"]]


def test_without_a_key_each_request_acts(server):
    text = secrets.token_hex(8)
    for _ in range(2):
        assert server.post("/api/v1/notes", {"text": text}).status == 201
    assert len(notes(server, text)) == 2


def test_a_replay_leaves_no_audit_row(server):
    headers, text = key(), secrets.token_hex(8)
    server.post("/api/v1/notes", {"text": text}, headers=headers)
    before = server.get("/api/v1/audit/verify").json()["rows"]
    server.post("/api/v1/notes", {"text": text}, headers=headers)
    assert server.get("/api/v1/audit/verify").json()["rows"] == before


@pytest.mark.parametrize("what", ["body", "route"])
def test_the_same_key_for_something_else_is_refused(server, what):
    headers, text = key(), secrets.token_hex(8)
    assert server.post("/api/v1/notes", {"text": text}, headers=headers).status == 201
    if what == "body":
        reply = server.post("/api/v1/notes", {"text": text + "!"}, headers=headers)
    else:
        reply = server.post("/api/v1/tokens", {"name": "tok-" + text, "role": "viewer"}, headers=headers)
    assert reply.status == 422, reply
    assert reply.error["code"] == "unprocessable"
    assert notes(server, text + "!") == []


def test_the_same_key_and_body_for_another_object_is_refused(server):
    headers = key()
    one, other = (server.post("/projects", {"name": name, "creator": "human"}).json()["id"] for name in ("one", "two"))
    assert server.post(f"/projects/{one}/tasks", {"title": "t"}, headers=headers).status == 201
    assert server.post(f"/projects/{other}/tasks", {"title": "t"}, headers=headers).status == 422
    assert server.get(f"/projects/{other}/tasks").json() == []
    assert server.post(f"/projects/{one}/tasks", {"title": "t"}, headers=headers).status == 201
    assert len(server.get(f"/projects/{one}/tasks").json()) == 1


def test_a_key_belongs_to_its_principal(server):
    headers, text = key(), secrets.token_hex(8)
    other = server.new_token("operator")["token"]
    assert server.post("/api/v1/notes", {"text": text}, headers=headers).status == 201
    assert server.post("/api/v1/notes", {"text": text}, headers=headers, token=other).status == 201
    assert len(notes(server, text)) == 2


def test_a_failure_is_not_kept(server):
    headers, text = key(), secrets.token_hex(8)
    assert server.post("/api/v1/notes", {"wrong": text}, headers=headers).status == 400
    assert server.post("/api/v1/notes", {"text": text}, headers=headers).status == 201


def test_two_at_once_have_one_effect(server):
    for _ in range(10):
        headers, text = key(), secrets.token_hex(8)
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda _: server.post("/api/v1/notes", {"text": text}, headers=headers), range(16)))
        assert {r.status for r in replies} == {201}
        assert len({r.body for r in replies}) == 1
        assert len(notes(server, text)) == 1


def test_a_secret_is_not_kept_for_a_replay(server):
    headers = key()
    wish = {"name": "once-" + secrets.token_hex(4), "role": "viewer"}
    first = server.post("/api/v1/tokens", wish, headers=headers).json()
    again = server.post("/api/v1/tokens", wish, headers=headers).json()
    assert first["token"] and again["token"] is None
    assert first["id"] == again["id"]
    stored = (server.state / "data" / "atoll.db").read_bytes()
    for name in ("atoll.db-wal",):
        path = server.state / "data" / name
        stored += path.read_bytes() if path.exists() else b""
    assert first["token"].encode() not in stored


@pytest.mark.parametrize("how", ["kill9_api", "restart", "kill9_all"])
def test_the_key_survives(fresh_server, how):
    server = fresh_server
    headers, text = key(), secrets.token_hex(8)
    first = server.post("/api/v1/notes", {"text": text}, headers=headers)
    assert first.status == 201
    getattr(server, how)()
    if how == "kill9_all":
        server.start()
    server.wait_ready()
    again = server.post("/api/v1/notes", {"text": text}, headers=headers)
    assert (again.status, again.body) == (201, first.body)
    assert server.post("/api/v1/notes", {"text": "other"}, headers=headers).status == 422
    assert notes(server, text) == [first.json()["seq"]]


@pytest.mark.parametrize("value,status", [("x" * 255, 201), ("x" * 256, 400), ("", 400), ("\xff\xfe", 400), ("ü", 201)])
def test_what_a_key_may_be(server, value, status):
    unique = value if status == 400 else (secrets.token_hex(4) + value)[:255]
    body = json.dumps({"text": "x"}).encode()
    raw = unique.encode("utf-8" if status == 201 else "latin-1")
    answer = server.raw(
        b"POST /api/v1/notes HTTP/1.1\r\nHost: " + server.host.encode() + b"\r\nAuthorization: Bearer "
        + server.token.encode() + b"\r\nContent-Type: application/json\r\nConnection: close\r\nIdempotency-Key: " + raw
        + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
