"""Events as agentic's clients ask for them: by source, type and time, the newest first, or followed; and what its
bridges post."""
import json

import harness
import pytest

EVENTS = "/api/v1/events"
WHEN = "2026-11-15T09:14:07.5+01:00"


def post(server, event_type, vm, **more):
    reply = server.post(EVENTS, {"event_type": event_type, "vm_name": vm, "timestamp": WHEN, **more})
    assert reply.status == 200 and reply.json() == {"received": True}, reply


def ask(server, query):
    reply = server.get(f"{EVENTS}?{query}")
    assert reply.status == 200, reply
    return reply.json()


def test_what_is_posted_is_told_in_the_same_words_and_never_as_ours(server):
    post(server, "vm.started", "ev-one", details={"reason": "manual"}, agent_id="ev-agent", trace_id="t1")
    post(server, "vm.stopped", "ev-one")
    post(server, "vm.started", "ev-two")
    told = ask(server, "source=ev-one")
    assert told["total_count"] == 2 and told["last_event_id"] >= 3
    assert [e["event_type"] for e in told["events"]] == ["external.vm.stopped", "external.vm.started"]
    assert told["events"][1] == {"event_type": "external.vm.started", "vm_name": "ev-one", "timestamp": WHEN,
                                 "details": {"reason": "manual"}, "agent_id": "ev-agent", "trace_id": "t1",
                                 "external": True}
    assert told["events"][0]["details"] == {}
    started = ask(server, "event_type=external.vm.started&limit=2")["events"]
    assert [e["vm_name"] for e in started] == ["ev-two", "ev-one"]
    assert not [e for e in ask(server, "event_type=vm.started")["events"] if e["vm_name"].startswith("ev-")]
    assert [e["event_type"] for e in ask(server, "source=ev-agent")["events"]] == ["external.vm.started"]
    assert ask(server, "source=ev-one&event_type=vm.crashed") == {
        "events": [], "total_count": 0, "last_event_id": told["last_event_id"]}
    # In our own words it is what somebody outside said, and who.
    ours = server.get(f"{EVENTS}?object=external/ev-two").json()["items"]
    assert [e["type"] for e in ours] == ["external.vm.started"] and ours[0]["data"]["by"]
    assert not [e for e in server.get(f"{EVENTS}?type=vm.started").json()["items"] if "ev-" in e["object"]]


def test_our_own_events_have_its_shape_too(boxes):
    server = boxes
    box = server.post("/api/v1/sandboxes", {"name": "ev-box", "storage": "memory"}).json()
    assert server.post("/api/v1/agents/ev-box/stop?x=1").status == 400
    assert server.delete("/api/v1/agents/ev-box").status == 200
    told = ask(server, "source=ev-box")["events"]
    assert {"sandbox.deleted", "sandbox.created", "vm.undefined"} <= {e["event_type"] for e in told}, told
    assert all(e["vm_name"] == "ev-box" and "external" not in e for e in told)
    assert {e["event_type"] for e in ask(server, f"source={box['id']}")["events"]} >= {"sandbox.created"}


def test_a_time_says_where_to_begin(server):
    post(server, "vm.started", "ev-then")
    mark = server.get(f"{EVENTS}?type=external.vm.started&object=external/ev-then").json()["items"][-1]["time"]
    harness.wait_until(lambda: server.post("/api/v1/notes", {"text": "tick"}).json()["time"] > mark, 10, "later")
    post(server, "vm.stopped", "ev-then")
    later = server.get(f"{EVENTS}?object=external/ev-then").json()["items"][-1]["time"]
    assert [e["event_type"] for e in ask(server, f"source=ev-then&since={later}")["events"]] == ["external.vm.stopped"]
    assert len(ask(server, f"source=ev-then&since={mark}")["events"]) == 2
    assert ask(server, "since=2999-01-01T00:00:00Z")["events"] == []
    with server.sse(f"{EVENTS}?source=ev-then&since={mark}&follow=true", headers={"Accept": "*/*"}) as stream:
        events = [json.loads(e["data"]) for e in stream.take(2)]
        assert [e["event_type"] for e in events] == ["external.vm.started", "external.vm.stopped"]


def test_following_is_live_and_unnamed_and_goes_on_where_it_was(server):
    query = f"{EVENTS}?follow=true&source=ev-live&event_type=external.vm.started&limit=5"
    with server.sse(query, headers={"Accept": "*/*"}) as stream:
        assert stream.status == 200 and stream.headers["content-type"].startswith("text/event-stream")
        stream.next(0.3)
        for vm, kind in (("ev-else", "vm.started"), ("ev-live", "vm.stopped"), ("ev-live", "vm.started")):
            post(server, kind, vm, details={"n": vm})
        (event,) = stream.take(1)
        assert event.get("event") in (None, "message"), event
        assert json.loads(event["data"])["details"] == {"n": "ev-live"}
    post(server, "vm.started", "ev-live", details={"n": "while away"})
    with server.sse(query, headers={"Accept": "*/*", "Last-Event-ID": event["id"]}) as stream:
        assert json.loads(stream.take(1)[0]["data"])["details"] == {"n": "while away"}


def test_an_event_that_was_posted_is_never_taken_for_one_of_the_server(server):
    """Whatever type an operator posts, whoever asks in whichever words, filtered or followed."""
    with server.sse(f"{EVENTS}?follow=true&event_type=vm.crashed", headers={"Accept": "*/*"}) as stream:
        stream.next(0.3)
        post(server, "vm.crashed", "ev-fooled")
        post(server, "external.vm.crashed", "ev-fooled")
        assert stream.next(1) is None
    told = ask(server, "source=ev-fooled")["events"]
    assert [e["event_type"] for e in told] == ["external.external.vm.crashed", "external.vm.crashed"]
    assert all(e["external"] is True for e in told)
    for query in ("?limit=1000", "", "?event_type=vm.crashed", "?type=vm.crashed", "?since=0&limit=1000"):
        reply = server.get(EVENTS + query).json()
        types = [e["event_type"] for e in reply.get("events", [])] + [e["type"] for e in reply.get("items", [])]
        assert "vm.crashed" not in types, query


def test_a_bare_question_is_answered_in_both_words(server):
    post(server, "vm.started", "ev-bare")
    for query in ("", "?limit=5"):
        reply = server.get(EVENTS + query).json()
        assert list(reply) == ["items", "next", "head", "floor", "events", "total_count", "last_event_id"]
        newest = reply["events"][0]
        assert (newest["event_type"], newest["vm_name"]) == ("external.vm.started", "ev-bare"), "the newest first"
        assert reply["items"][0]["seq"] == 1, "the oldest first"
        assert reply["last_event_id"] == reply["head"]


@pytest.mark.parametrize("query, named", [("", False), ("?since=0", True), ("?type=external.*", True),
                                          ("?object=external/", True)])
def test_a_bare_stream_has_no_names_and_both_words(server, query, named):
    with server.sse(EVENTS + query) as stream:
        stream.next(0.3)
        post(server, "vm.started", "ev-both")
        while True:
            (event,) = stream.take(1)
            data = json.loads(event["data"])
            assert (event.get("event") not in (None, "message")) is named, event
            if data["type"] == "external.vm.started" and data["object"] == "external/ev-both":
                break
    assert {"seq", "time", "data"} <= set(data)
    if not named:
        assert (data["event_type"], data["vm_name"], data["details"]) == ("external.vm.started", "ev-both", {})


def test_with_our_own_words_the_answer_is_ours(server):
    for query in ("since=0&limit=1", "type=note.created", "object=external/"):
        reply = server.get(f"{EVENTS}?{query}").json()
        assert "items" in reply and "events" not in reply, query
    assert "events" in ask(server, "follow=false&limit=1") and "events" in ask(server, "include_archived=true")


@pytest.mark.parametrize("query,field", [
    ("follow=perhaps", "follow"), ("include_archived=1", "include_archived"), ("event_type=Vm", "event_type"),
    ("event_type=", "event_type"), ("source=", "source"), ("since=2026-02-30T00:00:00Z", "since"),
    ("since=-5", "since"), ("source=x&limit=5001", "limit"), ("source=x&limit=0", "limit"),
    ("source=x&type=vm.started", "type"), ("follow=true&source=" + "x" * 257, "source"),
    ("event_type=" + "x" * 257, "event_type"),
])
def test_bad_questions_are_refused_by_name(server, query, field):
    reply = server.get(f"{EVENTS}?{query}")
    assert reply.status == 400 and reply.error["field"] == field, reply


def test_the_most_that_fits_in_an_answer(server):
    assert ask(server, "source=nobody-at-all&limit=5000")["events"] == []
    assert ask(server, "source=" + "x" * 256)["events"] == []


@pytest.mark.parametrize("wish", [
    {}, {"event_type": "vm.started"}, {"event_type": "vm started", "vm_name": "x", "timestamp": WHEN},
    {"event_type": "vm.started", "vm_name": "x", "timestamp": "now"},
    {"event_type": "vm.started", "vm_name": "x", "timestamp": WHEN, "details": []},
    {"event_type": "vm.started", "vm_name": "x", "timestamp": WHEN, "colour": 1},
    {"event_type": "x" * 129, "vm_name": "x", "timestamp": WHEN},
])
def test_a_bad_post_leaves_nothing(server, wish):
    before = ask(server, "include_archived=true")["last_event_id"]
    reply = server.post(EVENTS, wish)
    assert reply.status == 400 and isinstance(reply.json()["error"], str), reply
    assert ask(server, "include_archived=true")["last_event_id"] == before


def test_a_post_has_a_size_and_a_role(server):
    wish = {"event_type": "vm.started", "vm_name": "ev-big", "timestamp": WHEN, "details": {"x": "y" * 65000}}
    assert server.post(EVENTS, wish).status == 200
    wish["details"]["x"] = "y" * 65500  # fits in a request; as an event, with who said it, it is too much
    assert server.post(EVENTS, wish).status == 413
    for role in ("viewer", "agent"):
        token = server.post("/api/v1/tokens", {"name": f"ev-{role}", "role": role}).json()["token"]
        assert server.post(EVENTS, wish, token=token).status == 403


def test_events_of_a_source_on_the_command_line(server):
    post(server, "vm.started", "ev-cli", details={"n": "\x1b[2J"})
    post(server, "vm.stopped", "ev-cli")
    lines = server.cli("event", "list", "--source", "ev-cli", "--since", "1h", check=True).stdout.splitlines()
    assert [line.split()[1:3] for line in lines] == \
        [["external.vm.started", "ev-cli"], ["external.vm.stopped", "ev-cli"]], lines
    assert "\x1b" not in lines[0]
    told = server.cli("event", "ls", "--source", "ev-cli", "--event-type", "external.vm.stopped",
                      "--json", check=True).stdout
    assert json.loads(told)["event_type"] == "external.vm.stopped"
    assert server.cli("event", "ls", "--since", "2999-01-01T00:00:00Z", check=True).stdout == ""
    assert server.cli("event", "ls", "--source", "ev-cli", "--type", "x").returncode == 64
    assert server.cli("event", "ls", "--source", "ev-cli", "--since", "yesterday").returncode == 64
    assert "note.created" not in server.cli("event", "ls", "--event-type", "vm.stopped").stdout
