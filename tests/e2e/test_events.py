"""The event log as its readers see it: at once, complete, in order, across crashes, and told when it
cannot be."""
import asyncio
import base64
import json
import re
import sqlite3
import threading
import time

import harness
import pytest
import websockets


def write(server, count=1, text="note"):
    """Writes notes and returns their numbers."""
    numbers = []
    for i in range(count):
        reply = server.post("/api/v1/notes", {"text": f"{text} {i}"})
        assert reply.status == 201, reply
        numbers.append(reply.json()["seq"])
    return numbers


def head_of(server):
    return server.get("/api/v1/events?limit=1").json()["head"]


def numbers(events):
    return [int(event["id"]) for event in events]


# ---- the stream ----

@pytest.mark.parametrize("path", ["/events", "/api/v1/events"])
def test_headers_and_retry_come_at_once(server, path):
    start = time.monotonic()
    with server.sse(path) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].split(";")[0] == "text/event-stream"
        assert "no-store" in stream.headers.get("cache-control", "")
        assert "content-length" not in stream.headers
        assert stream.next(0.5) is None
        assert stream.retry is not None and 100 <= stream.retry <= 30000
    assert time.monotonic() - start < 2 * harness.SLOW


def test_an_event_arrives_while_the_stream_is_open(server):
    with server.sse() as stream:
        stream.next(0.3)
        (number,) = write(server)
        event = stream.take(1)[0]
        assert int(event["id"]) == number
        assert event["event"] == "note.created"
        data = json.loads(event["data"])
        assert (data["seq"], data["type"], data["data"]["text"]) == (number, "note.created", "note 0")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", data["time"])


@pytest.mark.parametrize("by", ["header", "query"])
def test_replay_has_no_gap_and_no_repeat(server, by):
    first = head_of(server)
    write(server, 20)
    stream = server.sse("/events", last_id=first) if by == "header" else server.sse(f"/events?since={first}")
    with stream:
        assert numbers(stream.take(20)) == list(range(first + 1, first + 21))
        write(server, 3)
        assert numbers(stream.take(3)) == list(range(first + 21, first + 24))


def test_last_event_id_wins_over_since(server):
    """A browser comes back to the same URL; what it says it has seen is newer."""
    first = head_of(server)
    write(server, 5)
    with server.sse(f"/events?since={first}", last_id=first + 3) as stream:
        assert numbers(stream.take(2)) == [first + 4, first + 5]


def test_replay_while_others_write_has_no_gap(server):
    first = head_of(server)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [write(server) for _ in iter(stop.is_set, True)])
    thread.start()
    try:
        for _ in range(10):
            with server.sse("/events", last_id=first) as stream:
                got = numbers(stream.take(10))
                assert got == list(range(first + 1, first + 11))
                first = got[-1]
    finally:
        stop.set()
        thread.join()


def test_many_events_in_one_replay(server):
    """More than one page of the store, and then live."""
    first = head_of(server)
    conn_count, each = 8, 200
    threads = [threading.Thread(target=write, args=(server, each, f"thread {i}")) for i in range(conn_count)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    total = conn_count * each
    with server.sse("/events", last_id=first) as stream:
        assert numbers(stream.take(total, 30)) == list(range(first + 1, first + total + 1))
        (newest,) = write(server)
        assert numbers(stream.take(1)) == [newest]


def test_the_same_stream_goes_on_across_kill_9(fresh_server):
    server = fresh_server
    seen = []
    with server.sse(last_id=0) as stream:
        write(server, 3)
        seen += numbers(stream.take(head_of(server)))
        server.kill9_api()
        with pytest.raises((EOFError, OSError)):
            while True:
                seen += numbers(stream.take(1, 5))
    server.wait_ready()
    write(server, 3)
    with server.sse(last_id=seen[-1]) as stream:
        write(server, 2)
        seen += numbers(stream.take(5))
    assert seen == list(range(1, len(seen) + 1))


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "99999999999999999999", "1 2"])
def test_a_place_that_is_no_number(server, number):
    assert server.sse("/api/v1/events", last_id=number).status == 400


def test_a_place_in_the_future(server):
    assert server.sse("/api/v1/events", last_id=head_of(server) + 1).status == 400


def test_keep_alives(server):
    with server.sse("/events?type=nothing.like.this") as stream:
        stream.next(0.3)
        before = len(stream.comments)
        assert stream.next(17) is None
        assert len(stream.comments) > before, "15 s of silence"


def test_filters(server):
    first = head_of(server)
    made = server.new_token("viewer")
    write(server, 2)
    server.delete("/api/v1/tokens/" + made["id"])
    cases = {
        "type=note.created": ["note.created", "note.created"],
        "type=token.*": ["token.created", "token.revoked"],
        "type=token.created,note.created": ["token.created", "note.created", "note.created"],
        f"object=token/{made['id']}": ["token.created", "token.revoked"],
        "object=token/": ["token.created", "token.revoked"],
        f"object=token/{made['id']}&type=token.revoked": ["token.revoked"],
    }
    for query, types in cases.items():
        page = server.get(f"/api/v1/events?since={first}&{query}").json()
        assert [e["type"] for e in page["items"]] == types, query
        with server.sse(f"/events?since={first}&{query}") as stream:
            assert [e["event"] for e in stream.take(len(types))] == types, query
            assert stream.next(0.2) is None, query


def test_pages(server):
    first = head_of(server)
    write(server, 10)
    got, since = [], first
    while True:
        page = server.get(f"/api/v1/events?since={since}&limit=3").json()
        assert page["head"] == first + 10
        if not page["items"]:
            assert page["next"] == since
            break
        assert len(page["items"]) <= 3
        got += [e["seq"] for e in page["items"]]
        since = page["next"]
    assert got == list(range(first + 1, first + 11))


def drop_events_before(server, number):
    """What retention does, without waiting for it."""
    db = sqlite3.connect(server.state / "data" / "atoll.db")
    db.execute("UPDATE tenant SET event_floor = ? WHERE id = 'default'", (number,))
    db.execute("DELETE FROM event WHERE tenant = 'default' AND seq < ?", (number,))
    db.commit()
    db.close()


def test_410_when_the_place_is_no_longer_kept(fresh_server):
    server = fresh_server
    write(server, 10)
    head = head_of(server)
    server.stop(remove=False)
    drop_events_before(server, 6)
    server.start()
    for reply in (server.get("/api/v1/events?since=0"), server.get("/api/v1/events?since=4")):
        assert reply.status == 410 and reply.error["code"] == "gone", reply
    for path in ("/events", "/api/v1/events"):
        assert server.sse(path, last_id=4).status == 410
    bare = server.get("/api/v1/events").json()
    assert bare["items"][0]["seq"] == 6 and bare["events"], "without a place it begins with what is kept"
    page = server.get("/api/v1/events?since=5").json()
    assert page["floor"] == 6
    assert [e["seq"] for e in page["items"]] == list(range(6, head + 1))
    with server.sse("/events", last_id=5) as stream:
        assert numbers(stream.take(head - 5)) == list(range(6, head + 1))


# ---- people and limits ----

def test_a_tenant_sees_only_its_own(server):
    other = server.new_token("admin", tenant="elsewhere")["token"]
    write(server, 2)
    reply = server.post("/api/v1/notes", {"text": "theirs"}, token=other)
    assert reply.status == 201
    theirs = server.get("/api/v1/events", token=other).json()["items"]
    assert all("note " not in json.dumps(e["data"]) for e in theirs)
    assert theirs[-1]["data"]["text"] == "theirs"
    ours = server.get("/api/v1/events?limit=1000").json()["items"]
    assert "theirs" not in [e["data"].get("text") for e in ours]


def test_a_stream_ends_with_its_token(server):
    made = server.new_token("viewer")
    with server.sse(token=made["token"]) as stream:
        stream.next(0.2)
        server.delete("/api/v1/tokens/" + made["id"])
        last = None
        with pytest.raises((EOFError, OSError)):
            while True:
                last = stream.next(5) or last
                assert last, "the stream of a revoked token stays open"
        assert last["event"] == "reset" and "revoked" in last["data"]


def test_a_subscriber_that_never_reads_costs_little_and_blocks_nobody(fresh_server):
    server = fresh_server
    lazy = [server.sse() for _ in range(20)]
    text = "x" * 16000
    api = server.api_pid()
    before = int(harness.proc_status(api)["VmRSS"].split()[0])
    with server.sse() as stream:
        stream.next(0.2)
        for i in range(300):  # 4.8 MB each, were it queued for them
            server.post("/api/v1/notes", {"text": text})
        got = stream.take(300, 30)
        assert len(got) == 300
    grown = int(harness.proc_status(api)["VmRSS"].split()[0]) - before
    assert grown < 40000 * harness.SANITIZED, f"{grown} kB more"
    for stream in lazy:
        stream.close()


def test_a_slow_subscriber_still_gets_everything(fresh_server):
    server = fresh_server
    with server.sse(last_id=0) as stream:
        for i in range(200):
            server.post("/api/v1/notes", {"text": "y" * 16000})
        head = head_of(server)
        assert numbers(stream.take(head, 30)) == list(range(1, head + 1))


# ---- WebSocket ----

def test_the_same_events_over_a_websocket(server):
    first = head_of(server)
    write(server, 3)

    async def run():
        url = f"ws://{server.host}/api/v1/events?since={first}"
        async with websockets.connect(url, extra_headers={"Authorization": "Bearer " + server.token}) as ws:
            got = [json.loads(await asyncio.wait_for(ws.recv(), 5)) for _ in range(3)]
            await asyncio.to_thread(write, server, 2)
            return got + [json.loads(await asyncio.wait_for(ws.recv(), 5)) for _ in range(2)]

    got = asyncio.run(run())
    assert [e["seq"] for e in got] == list(range(first + 1, first + 6))
    page = server.get(f"/api/v1/events?since={first}").json()["items"]
    assert got == page


@pytest.mark.parametrize("good", [True, False])
def test_a_websocket_may_offer_its_token(server, peer, good):
    """As a page does, which cannot send a header: as a subprotocol, never in the address."""
    token = server.token if good else "atl_" + "0" * 43
    offer = "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")

    async def run():
        url = f"ws://{server.host}/api/v1/events?since=0"
        async with websockets.connect(url, subprotocols=[offer], local_addr=(peer, 0)) as ws:
            assert ws.subprotocol == offer, "a browser wants one of its offers to be chosen"
            return json.loads(await asyncio.wait_for(ws.recv(), 5))

    if good:
        assert asyncio.run(run())["seq"] == 1
        return
    with pytest.raises(websockets.InvalidStatusCode) as refusal:
        asyncio.run(run())
    assert refusal.value.status_code == 401


def test_a_websocket_needs_credentials(server, peer):
    async def run():
        async with websockets.connect(f"ws://{server.host}/api/v1/events", local_addr=(peer, 0)):
            pass

    with pytest.raises(websockets.InvalidStatusCode) as refusal:
        asyncio.run(run())
    assert refusal.value.status_code == 401
