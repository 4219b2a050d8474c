"""What clients get wrong, and what enemies try: fields of a wrong type, unknown ids, too much, hostile names."""
import json
import re
import socket
from urllib.parse import quote

import pytest

import harness
from hub import Hub, multipart, open_server, unique

NOBODY = "00000000-0000-4000-8000-000000000000"
NAME_MAX, TITLE_MAX, CONTENT_MAX, REASON_MAX, METADATA_MAX, COMMENT_MAX = 128, 512, 65536, 4096, 65536, 16384
WRONG = {"text": [7, 1.5, True, [], {}, ["x"]], "object": ["x", 7, True, ["x"]], "list": [7, True, {}, [7], [None]],
         "list or text": [7, True, {}, [7]], "bool": ["x", 7, [], {}], "number": ["x", True, [], {}, 1.5],
         "paths": ["x", 7, {}, [7], [[]]], "lists of objects": ["x", 7, {}, ["x"], [7]]}

# Route, body that is good, and what each of its fields must be. {a} is an agent, {p} a project, {t} a task, {c} a
# channel, {l} a lease, {w} a proposal. test_every_field_is_tried says that none is left out.
FIELDS = [
    ("POST /agents/register", {"name": "{new}"}, {
        "name": "text", "type": "text", "agent_type": "text", "metadata": "object", "autonomy_mode": "text",
        "capabilities": "list"}),
    ("POST /agents/{a}/autonomy", {}, {"mode": "text"}),
    ("POST /autonomy/set-mode", {"agent_type": "none"}, {"mode": "text", "agent_type": "text"}),
    ("POST /agents/{a}/capabilities", {}, {"tags": "list or text", "description": "text"}),
    ("POST /agents/{a}/pause", {}, {"reason": "text"}),
    ("POST /agents/{a}/revoke", {}, {"reason": "text", "flush_required": "bool"}),
    ("POST /agents/{a}/revocation/ack", {}, {"revocation_id": "text"}),
    ("POST /agents/{a}/checkpoint", {}, {"task_id": "text", "state": "text", "rationale": "text",
                                         "metadata": "object"}),
    ("POST /messages/send", {"from": "{a}", "to": "{a}"}, {
        "from": "text", "to": "text", "content": "text", "type": "text", "thread": "text", "reply_to": "text",
        "attachments": "lists of objects"}),
    ("POST /channels/{c}/join", {"agent": "{a}"}, {"agent": "text"}),
    ("POST /channels/{c}/leave", {"agent": "{a}"}, {"agent": "text"}),
    ("POST /channels/{c}/send", {"from": "{a}", "content": "x"}, {
        "from": "text", "content": "text", "type": "text", "thread": "text", "reply_to": "text",
        "attachments": "lists of objects"}),
    ("POST /projects", {"name": "p", "creator": "{a}"}, {"name": "text", "creator": "text"}),
    ("POST /projects/{p}/join", {"agent": "{a}"}, {"agent": "text"}),
    ("PATCH /projects/{p}/wip", {"status": "in_review", "limit": 3}, {"status": "text", "limit": "number"}),
    ("POST /projects/{p}/tasks", {"title": "t"}, {
        "title": "text", "description": "text", "assigned_to": "text", "priority": "text",
        "required_capabilities": "list", "required_reviewers": "number", "created_by": "text",
        "parent_task_id": "text", "labels": "list"}),
    ("POST /projects/{p}/tasks/{t}/claim", {"agent": "{a}"}, {"agent": "text"}),
    ("POST /projects/{p}/tasks/{t}/assign", {"agent": "{a}"}, {"agent": "text", "assigned_by": "text"}),
    ("PATCH /projects/{p}/tasks/{t}", {}, {
        "status": "text", "agent": "text", "blocked_reason": "text", "blocked_by": "list or text", "note": "text",
        "title": "text", "description": "text", "priority": "text", "labels": "list"}),
    ("POST /projects/{p}/tasks/{t}/approve", {"reviewer": "{a}"}, {"reviewer": "text", "note": "text"}),
    ("POST /projects/{p}/tasks/{t}/request-changes", {"reviewer": "{a}"}, {"reviewer": "text", "note": "text"}),
    ("POST /projects/{p}/leases", {"agent": "{a}", "paths": ["x"]}, {
        "agent": "text", "paths": "paths", "mode": "text", "ttl_seconds": "number", "reason": "text"}),
    ("POST /projects/{p}/leases/{l}/renew", {}, {"ttl_seconds": "number"}),
    ("POST /projects/{p}/tasks/{t}/comments", {"text": "x"}, {"text": "text", "author": "text"}),
    ("POST /proposals/{w}/approve", {}, {"note": "text"}),
    ("POST /proposals/{w}/reject", {}, {"note": "text"}),
]


class Place:
    """A hub with an agent, a project, a task and a channel, to be put into routes."""

    def __init__(self, server):
        self.server, self.hub = server, Hub(server)
        self.agent, self.channel = self.hub.agent(), unique("channel")
        self.hub.ok("POST", f"/channels/{self.channel}/join", {"agent": self.agent})
        self.project = self.hub.project(self.agent)
        self.task, wanted = self.hub.task(self.project), self.hub.task(self.project)
        self.lease = self.hub.ok("POST", f"/projects/{self.project}/leases",
                                 {"agent": unique(), "paths": ["held"], "ttl_seconds": 86400}, 201)["id"]
        self.proposal = self.hub.ok("POST", f"/projects/{self.project}/tasks/{wanted}/claim",
                                    {"agent": self.hub.agent(autonomy_mode="advisory")}, 202)["proposal_id"]

    def fill(self, text):
        if not isinstance(text, str):
            return text
        for name, value in (("a", self.agent), ("p", self.project), ("t", self.task), ("c", self.channel),
                            ("l", self.lease), ("w", self.proposal)):
            text = text.replace("{" + name + "}", value)
        return text.replace("{new}", unique()) if "{new}" in text else text

    def call(self, route, body):
        method, path = route.split(" ", 1)
        body = {k: self.fill(v) for k, v in body.items()} if isinstance(body, dict) else body
        return self.hub.call(method, self.fill(path), body)


@pytest.fixture(scope="module")
def place():
    server = open_server(env={"ATOLL_HUB_MESSAGE_RATE": "100000", "ATOLL_RATE_PER_SECOND": "100000",
                              "ATOLL_RATE_BURST": "100000"}).start()
    yield Place(server)
    server.stop()


@pytest.fixture(scope="module")
def hub(place):
    return place.hub


def error_of(reply, status):
    assert reply.status == status, reply
    assert reply.headers["content-type"].startswith("application/json"), reply
    error = reply.json()["error"]
    assert isinstance(error, str) and error, reply
    return error


@pytest.mark.parametrize("route, good, fields", FIELDS, ids=[f[0] for f in FIELDS])
def test_wrong_types_name_the_field(place, route, good, fields):
    for field, kind in fields.items():
        for bad in WRONG[kind]:
            reply = place.call(route, {**good, field: bad})
            assert error_of(reply, 400).startswith(field), (field, bad, reply)


def test_wrong_types_within_attachments(place):
    good = {"project": "{p}", "filename": "x", "version": 1}
    for field, kind in (("project", "text"), ("filename", "text"), ("version", "number")):
        for bad in WRONG[kind]:
            wish = {**{k: place.fill(v) for k, v in good.items()}, field: bad}
            for route in ("POST /messages/send", "POST /channels/{c}/send"):
                body = {"from": "{a}", "to": "{a}", "attachments": [wish]}
                reply = place.call(route, body)
                assert error_of(reply, 400).startswith(f"attachments[0].{field}"), (field, bad, reply)
    for missing in ("project", "filename"):
        wish = {k: place.fill(v) for k, v in good.items() if k != missing}
        reply = place.call("POST /messages/send", {"from": "{a}", "to": "{a}", "attachments": [wish]})
        assert error_of(reply, 400).startswith(f"attachments[0].{missing}"), reply


def test_every_field_is_tried(place):
    """As the server itself lists its routes and what they take."""
    def shape(path):
        return re.sub(r"{\w+}", "{}", path)
    tried = {(route.split(" ")[0], shape(route.split(" ")[1])): set(fields) for route, _, fields in FIELDS}
    takes = {}
    for path, of in place.server.get("/api/openapi.json").json()["paths"].items():
        for method, operation in of.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if operation["operationId"].startswith("hub.") and body.get("properties"):
                takes[method.upper(), shape(path)] = set(body["properties"])
    assert tried == takes


@pytest.mark.parametrize("route", sorted({f[0] for f in FIELDS}))
@pytest.mark.parametrize("body", [b"[]", b'"x"', b"7", b"{", b"{}}", b'{"a":1,}', b"\xff\xfe", b'{"a":"\xff"}',
                                  b"nul", b"[" * 5000, b'{"a":' * 200])
def test_bodies_that_are_no_object(place, route, body):
    method, path = route.split(" ", 1)
    reply = place.hub.call(method, place.fill(path), body=body, headers={"Content-Type": "application/json"})
    error_of(reply, 400)


def test_twice_the_same_key_is_decided(hub):
    """No two readers with two opinions: it is refused."""
    name = unique()
    reply = hub.call("POST", "/agents/register", body=b'{"name":"a","name":"%s"}' % name.encode())
    assert "duplicate key" in error_of(reply, 400) and not hub.record(name) and not hub.record("a")


@pytest.mark.parametrize("route, text", [
    ("POST /agents/register", "name required"), ("POST /messages/send", "from and to required"),
    ("POST /projects", "name and creator required"), ("POST /projects/{p}/join", "agent required"),
    ("POST /projects/{p}/tasks", "title required"), ("POST /projects/{p}/tasks/{t}/claim", "agent required"),
    ("POST /projects/{p}/tasks/{t}/assign", "agent required"),
    ("PATCH /projects/{p}/wip", "status and limit required"), ("POST /projects/{p}/leases", "agent and paths required"),
    ("POST /projects/{p}/tasks/{t}/comments", "text required"), ("POST /channels/{c}/join", "agent required"),
    ("POST /channels/{c}/leave", "agent required"), ("POST /channels/{c}/send", "from required")])
def test_what_is_required(place, route, text):
    method, path = route.split(" ", 1)
    fields = {"POST /agents/register": ["name"], "POST /messages/send": ["from", "to"],
              "POST /projects": ["name", "creator"]}.get(route, [])
    bodies = [{}, None] + [{f: "" for f in fields}, {f: None for f in fields}]
    for body in bodies:
        assert text in error_of(place.hub.call(method, place.fill(path), body), 400), body


@pytest.mark.parametrize("route, status, text", [
    ("POST /agents/{nobody}/heartbeat", 404, "agent not found"), ("DELETE /agents/{nobody}", 404, "agent not found"),
    ("GET /agents/{nobody}", 404, "agent not found"),
    ("POST /agents/{nobody}/autonomy", 404, "agent not found"),
    ("POST /agents/{nobody}/capabilities", 404, "agent not found"),
    ("POST /agents/{nobody}/pause", 404, "agent not found"), ("POST /agents/{nobody}/resume", 404, "agent not found"),
    ("POST /agents/{nobody}/revoke", 404, "agent not found"),
    ("GET /agents/{nobody}/checkpoint", 404, "No checkpoint found"),
    ("POST /agents/{nobody}/revocation/ack", 404, "agent not found"),
    ("POST /messages/{id}/ack", 404, "message not found"), ("GET /projects/{id}", 404, "project not found"),
    ("DELETE /projects/{id}", 404, "project not found"), ("GET /projects/{id}/board", 404, "project not found"),
    ("GET /projects/{id}/files", 404, "project not found"), ("GET /projects/{id}/files/x", 404, "project not found"),
    ("GET /projects/{id}/leases", 404, "project not found"), ("GET /projects/{p}/tasks/{id}", 404, "task not found"),
    ("PATCH /projects/{p}/tasks/{id}", 404, "task not found"),
    ("POST /projects/{p}/tasks/{id}/reviewers/x", 404, "task not found"),
    ("GET /projects/{p}/tasks/{id}/reviews", 404, "task not found"),
    ("GET /projects/{p}/tasks/{id}/comments", 404, "task not found"),
    ("POST /projects/{p}/tasks/{id}/unassign", 400, "Task not found"),
    ("DELETE /projects/{p}/leases/{id}", 404, "lease not found"),
    ("POST /projects/{p}/leases/{id}/renew", 404, "lease not found"),
    ("GET /projects/{p}/versions/none", 404, "file not found"), ("POST /proposals/{id}/approve", 404, "not found"),
    ("GET /proposals/{id}", 404, "not found"), ("POST /proposals/{id}/reject", 404, "not found"),
    ("GET /projects/{p}/files/{id}", 404, "file not found"), ("DELETE /projects/{p}/files/{id}", 404, "file not found"),
    ("GET /projects/{id}/versions/x", 404, "project not found"),
    ("POST /projects/{p}/tasks/{id}/approve", 404, "task not found"),
    ("POST /projects/{p}/tasks/{id}/request-changes", 404, "task not found")])
def test_unknown_ids(place, route, status, text):
    for unknown in (NOBODY, "x", "%ff", "' OR 1=1 --".replace(" ", "%20"), "0"):
        method, path = route.split(" ", 1)
        path = place.fill(path.replace("{nobody}", unknown).replace("{id}", unknown))
        reply = place.hub.call(method, path, {} if method in ("POST", "PATCH") else None)
        if unknown == "%ff":  # no text at all: refused as a path or as an id
            assert reply.status in (400, 404), reply
            continue
        assert text.lower() in error_of(reply, status).lower(), path


@pytest.mark.parametrize("route, body, text", [
    ("POST /projects/{id}/join", {"agent": "{a}"}, "project not found"),
    ("PATCH /projects/{id}/wip", {"status": "ready", "limit": 1}, "project not found"),
    ("POST /projects/{id}/tasks", {"title": "t"}, "project not found"),
    ("POST /projects/{id}/leases", {"agent": "{a}", "paths": ["x"]}, "project not found"),
    ("POST /projects/{p}/tasks", {"title": "t", "parent_task_id": "{id}"}, "parent task not found"),
    ("POST /projects/{p}/tasks/{id}/comments", {"text": "x"}, "task not found"),
    ("POST /messages/send", {"from": "{a}", "to": "{a}", "reply_to": "{id}"}, "reply_to: message not found"),
    ("POST /messages/send", {"from": "{a}", "to": "{a}", "reply_to": "{id}", "thread": "t"},
     "reply_to: message not found"),
    ("POST /channels/{c}/send", {"from": "{a}", "reply_to": "{id}", "thread": "t"}, "reply_to: message not found"),
    ("POST /channels/{id}/send", {"from": "{a}", "content": "x"}, "channel not found"),
    ("POST /channels/{id}/leave", {"agent": "{a}"}, "channel not found"),
    ("POST /channels/{c}/join", {"agent": "{id}"}, "agent not found"),
    ("POST /agents/{a}/revocation/ack", {"revocation_id": "{id}"}, "revocation not found")])
def test_unknown_ids_with_a_body(place, route, body, text):
    for unknown in (NOBODY, "x", "' OR 1=1 --", "0"):
        wish = {k: v.replace("{id}", unknown) if isinstance(v, str) else v for k, v in body.items()}
        reply = place.call(route.replace("{id}", quote(unknown)), wish)
        assert error_of(reply, 404) == text, (route, reply)


def test_unknown_projects_of_the_original_are_empty(hub):
    assert hub.ok("GET", f"/projects/{NOBODY}/tasks") == [] == hub.ok("GET", f"/projects/{NOBODY}/tasks/ready")
    assert hub.ok("GET", f"/projects/{NOBODY}/metrics")["total_tasks"] == 0
    assert hub.ok("GET", "/tasks") == [] and hub.ok("GET", f"/messages/{unique()}") == []


def test_one_task_of_another_project(hub):
    one, two = hub.project(), hub.project()
    task, agent = hub.task(one), hub.agent()
    hub.refused(400, "Task not found", "POST", f"/projects/{two}/tasks/{task}/claim", {"agent": agent})
    hub.refused(400, "Task not found", "POST", f"/projects/{two}/tasks/{task}/assign", {"agent": agent})
    assert hub.call("PATCH", f"/projects/{two}/tasks/{task}", {"status": "ready"}).status in (400, 404)
    assert hub.read(one, task)["status"] == "backlog"


# ---- too much ----

def test_texts_at_their_limit_and_over(place, hub):
    a, p, t = place.agent, place.project, place.task
    for method, path, field, limit, body in (
            ("POST", "/messages/send", "content", CONTENT_MAX, {"from": a, "to": a}),
            ("POST", f"/projects/{p}/tasks", "title", TITLE_MAX, {}),
            ("POST", f"/projects/{p}/tasks", "description", CONTENT_MAX, {"title": "t"}),
            ("POST", "/projects", "name", TITLE_MAX, {"creator": a}),
            ("POST", f"/agents/{a}/capabilities", "description", REASON_MAX, {}),
            ("POST", f"/agents/{a}/checkpoint", "state", REASON_MAX, {}),
            ("POST", f"/agents/{a}/checkpoint", "task_id", NAME_MAX, {}),
            ("POST", "/messages/send", "thread", NAME_MAX, {"from": a, "to": a}),
            ("POST", "/messages/send", "type", NAME_MAX, {"from": a, "to": a}),
            ("POST", f"/projects/{p}/tasks/{t}/comments", "text", COMMENT_MAX, {}),
            ("POST", f"/projects/{p}/leases", "reason", REASON_MAX, {"agent": a, "paths": ["long"]}),
            ("POST", f"/agents/{a}/pause", "reason", REASON_MAX, {}),
            ("POST", "/agents/register", "name", NAME_MAX, {})):
        reply = hub.call(method, path, {**body, field: "x" * limit})
        assert reply.status in (200, 201), (path, field, reply)
        assert error_of(hub.call(method, path, {**body, field: "x" * (limit + 1)}), 400).startswith(field)
    hub.ok("POST", f"/agents/{a}/resume")
    long = {"x": "y" * (METADATA_MAX - len('{"x":""}'))}
    assert hub.call("POST", "/agents/register", {"name": unique(), "metadata": long}).status == 201
    long["x"] += "y"
    reply = hub.call("POST", "/agents/register", {"name": unique(), "metadata": long})
    assert error_of(reply, 400).startswith("metadata")
    tags = [f"t{n}" for n in range(64)]
    assert hub.call("POST", f"/agents/{a}/capabilities", {"tags": tags}).status == 200
    assert error_of(hub.call("POST", f"/agents/{a}/capabilities", {"tags": tags + ["x"]}), 400).startswith("tags")
    assert error_of(hub.call("POST", f"/agents/{a}/capabilities", {"tags": ["x" * 65]}), 400).startswith("tags")
    assert error_of(hub.call("PATCH", f"/projects/{p}/tasks/{t}", {"labels": ["l"] * 17}), 400).startswith("labels")


def test_bodies_that_are_too_large(place):
    """By what is announced, and by what comes."""
    head = f"POST /messages/send HTTP/1.1\r\nHost: {place.server.host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert place.server.raw_status(head + (b"100000\r\n" + b"x" * (1 << 20) + b"\r\n") * 40) == 413
    with place.server.connect() as sock:
        sock.sendall(f"POST /messages/send HTTP/1.1\r\nHost: {place.server.host}\r\n"
                     f"Content-Length: {1 << 40}\r\n\r\n".encode())
        reply = harness.read_reply(sock)
        assert "too large" in error_of(reply, 413), reply
    with place.server.connect() as sock:  # less than any body may be, and more than a form with a file
        sock.sendall(f"POST /projects/{place.project}/files HTTP/1.1\r\nHost: {place.server.host}\r\n"
                     f"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {12 << 20}\r\n\r\n".encode())
        error_of(harness.read_reply(sock), 413)


def test_leases_that_are_none(place, hub):
    path = f"/projects/{place.project}/leases"
    for paths in ([], ["/abs"], ["../x"], ["a/../b"], [""], ["x"] * 65, ["x" * 513], ["a\nb"]):
        assert error_of(hub.call("POST", path, {"agent": place.agent, "paths": paths}), 400).startswith("paths"), paths
    for ttl in (0, -1, 86401, 10 ** 30):
        assert error_of(hub.call("POST", path, {"agent": place.agent, "paths": ["x"], "ttl_seconds": ttl}),
                        400).startswith("ttl_seconds"), ttl
    assert error_of(hub.call("POST", path, {"agent": place.agent, "paths": ["x"], "mode": "x"}), 400).startswith("mode")
    assert [lease["id"] for lease in hub.ok("GET", f"{path}?path=x")] == []


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "limit=1.5", "limit=", "limit=99999999999999999999",
                                   "limit=1&limit=2", "unknown=1"])
def test_queries(place, hub, query):
    paths = [f"/messages/{place.agent}"]
    if query.startswith("limit"):
        paths += ["/audit/log", "/revocation/history", f"/messages/history/{place.agent}/x", "/messages/threads/x",
                  f"/projects/{place.project}/tasks/{place.task}/comments"]
    if query.startswith("unknown"):
        paths += ["/agents", "/projects", "/tasks", f"/projects/{place.project}/tasks"]
    for path in paths:
        error = error_of(hub.call("GET", f"{path}?{query}"), 400)
        assert error.startswith(query.partition("=")[0]), (path, error)


@pytest.mark.parametrize("path, field", [
    ("/messages/{a}?peek=1", "peek"), ("/messages/{a}?peek=", "peek"), ("/messages/{a}?after=x", "after"),
    ("/messages/history/{a}/x?before=x", "before"), ("/messages/threads/x?after=x", "after"),
    ("/projects/{p}/metrics?window=x", "window"), ("/projects/{p}/metrics?window=0", "window"),
    ("/projects/{p}/metrics?bucket=-1", "bucket"), ("/projects/{p}/board?lanes=x", "lanes"),
    ("/projects/{p}/files/f?version=x", "version"), ("/projects/{p}/files/f?version=0", "version"),
    ("/projects/{p}/leases?path=../x", "path"), ("/projects/{p}/leases?path=/x", "path"),
    ("/projects/{p}/tasks/{t}/comments?after=x", "after"), ("/capabilities/match?tag=", "tag"),
    ("/events?since=x", "since"), ("/events?hub=maybe", "hub")])
def test_queries_of_a_wrong_type(place, path, field):
    assert error_of(place.hub.call("GET", place.fill(path)), 400).startswith(field)


def test_a_peek_that_is_not_understood_marks_nothing(hub):
    one = hub.agent()
    hub.send(one, one)
    assert hub.call("GET", f"/messages/{one}?peek=yes").status == 400
    for form in ("true", "TRUE"):
        assert hub.ok("GET", f"/messages/{one}?peek={form}")[0]["delivered"] is False
    assert hub.ok("GET", f"/messages/{one}?peek=false")[0]["delivered"] is True


# ---- hostile names ----

HOSTILE = {
    "nul": "a\0b", "escape": "a\x1b[31mb", "newline": "a\nb", "bidi": "a\u202eb", "isolate": "a\u2066b",
    "zero width": "a\u200bb", "joiner": "a\u2060b", "bom": "\ufeffa", "c1": "a\x9bb", "delete": "a\x7fb",
    "10 kB": "x" * 10240,
    "soft hyphen": "a\xadb", "tag": "a\U000e0041b", "line separator": "a\u2028b", "surrogate": "a\ud800b",
}
NOT_NAMES = {**HOSTILE, "slash": "a/b", "dot": ".", "dots": "..", "space before": " a", "space after": "a ",
             "129": "x" * 129, "register": "register", "human": "human"}


@pytest.mark.parametrize("kind", NOT_NAMES)
def test_names_that_are_none(place, hub, kind):
    name = NOT_NAMES[kind]
    if kind in ("nul", "surrogate"):  # no text at all
        error_of(hub.call("POST", "/agents/register", {"name": name}), 400)
        return
    assert error_of(hub.call("POST", "/agents/register", {"name": name}), 400).startswith("name")
    assert name not in [a["name"] for a in hub.ok("GET", "/agents")]
    if kind in HOSTILE:
        assert error_of(hub.call("POST", "/messages/send", {"from": name, "to": place.agent}), 400).startswith("from")
        assert error_of(hub.call("POST", "/messages/send", {"from": place.agent, "to": name}), 400).startswith("to")
        assert error_of(hub.call("POST", "/projects", {"name": name, "creator": place.agent}), 400).startswith("name")
        assert error_of(hub.call("POST", f"/projects/{place.project}/tasks", {"title": name}), 400).startswith("title")
        assert error_of(hub.call("PATCH", f"/projects/{place.project}/tasks/{place.task}", {"labels": [name]}),
                        400).startswith("labels")


# Every other place for a word that is shown to people; {} is the hostile one.
PLACES = [
    ("POST /agents/register", {"name": "{new}", "type": "{}"}, "type"),
    ("POST /agents/register", {"name": "{new}", "capabilities": ["good", "{}"]}, "capabilities"),
    ("POST /agents/{a}/capabilities", {"tags": ["good", "{}"]}, "tags"),
    ("POST /agents/{a}/capabilities", {"tags": "good, {}"}, "tags"),
    ("POST /agents/{a}/checkpoint", {"task_id": "{}"}, "task_id"),
    ("POST /messages/send", {"from": "{a}", "to": "{a}", "type": "{}"}, "type"),
    ("POST /messages/send", {"from": "{a}", "to": "{a}", "thread": "{}"}, "thread"),
    ("POST /channels/{c}/send", {"from": "{}", "content": "x"}, "from"),
    ("POST /projects", {"name": "p", "creator": "{}"}, "creator"),
    ("POST /projects/{p}/join", {"agent": "{}"}, "agent"),
    ("POST /projects/{p}/tasks", {"title": "t", "assigned_to": "{}"}, "assigned_to"),
    ("POST /projects/{p}/tasks", {"title": "t", "created_by": "{}"}, "created_by"),
    ("POST /projects/{p}/tasks", {"title": "t", "labels": ["good", "{}"]}, "labels"),
    ("POST /projects/{p}/tasks", {"title": "t", "required_capabilities": ["good", "{}"]}, "required_capabilities"),
    ("POST /projects/{p}/tasks/{t}/claim", {"agent": "{}"}, "agent"),
    ("POST /projects/{p}/tasks/{t}/assign", {"agent": "{}"}, "agent"),
    ("POST /projects/{p}/tasks/{t}/assign", {"agent": "{a}", "assigned_by": "{}"}, "assigned_by"),
    ("PATCH /projects/{p}/tasks/{t}", {"status": "ready", "agent": "{}"}, "agent"),
    ("PATCH /projects/{p}/tasks/{t}", {"title": "{}"}, "title"),
    ("POST /projects/{p}/tasks/{t}/approve", {"reviewer": "{}"}, "reviewer"),
    ("POST /projects/{p}/tasks/{t}/comments", {"text": "x", "author": "{}"}, "author"),
    ("POST /projects/{p}/leases", {"agent": "{}", "paths": ["x"]}, "agent"),
    ("POST /projects/{p}/leases", {"agent": "{a}", "paths": ["{}"]}, "paths"),
]


@pytest.mark.parametrize("route, body, field", PLACES, ids=[f"{p[0]} {p[2]}" for p in PLACES])
def test_hostile_names_everywhere(place, route, body, field):
    for kind, name in HOSTILE.items():
        wish = {k: [i.replace("{}", name) for i in v] if isinstance(v, list) else v.replace("{}", name)
                for k, v in body.items()}
        error = error_of(place.call(route, wish), 400)
        assert kind in ("nul", "surrogate") or error.startswith(field), (kind, error)  # those two are no JSON


@pytest.mark.parametrize("route", ["POST /agents/{}/checkpoint", "POST /channels/{}/join",
                                   "POST /projects/{p}/tasks/{t}/reviewers/{}"])
def test_hostile_names_in_paths(place, route):
    method, path = route.split(" ")
    for kind, name in HOSTILE.items():
        text = quote(name.encode("utf-8", "surrogatepass"))
        reply = place.hub.call(method, place.fill(path).replace("{}", text), {"agent": place.agent})
        if kind == "10 kB":  # longer than a request's first line may be: refused before anybody reads the path
            assert reply.status == 414, reply
        else:
            error_of(reply, 400)


def test_hostile_uploaders(hub):
    project = hub.project()
    for kind, name in HOSTILE.items():
        form, body = multipart("f", b"x", uploader="WHO")
        body = body.replace(b"WHO", name.encode("utf-8", "surrogatepass"))
        reply = hub.call("POST", f"/projects/{project}/files", body=body, headers={"Content-Type": form})
        assert error_of(reply, 400).startswith("uploader"), (kind, reply)
    assert hub.ok("GET", f"/projects/{project}/files") == []


@pytest.mark.parametrize("name", ["<script>alert(1)<script>", "Ada Lovelace", "агент-7", "机器人", "a'b\"c",
                                  "a&b=c?d#e", "%2e%2e", "x" * 128, "🤖", "a;b,c", "--help", "*"])
def test_odd_names_that_are_good(hub, name):
    """And work everywhere: in paths, in bodies, in lists."""
    hub.agent(name)
    assert hub.record(name)["name"] == name
    hub.heartbeat(name)
    hub.send(name, name, "to myself")
    assert hub.inbox(name)[-1]["from"] == name
    project = hub.project(name, name)
    task = hub.task(project, name)
    hub.claim(project, task, name)
    assert hub.read(project, task)["claimed_by"] == name
    hub.ok("DELETE", f"/projects/{project}")


def test_content_may_be_anything_that_is_text(hub):
    one, two = hub.agent(), hub.agent()
    text = "controls \x01\x1b[31m\x7f, bidi \u202e, html <b>, emoji 🤖, tab\t\r\n"
    hub.send(one, two, text)
    assert hub.inbox(two)[0]["content"] == text


# ---- uploads ----

@pytest.mark.parametrize("body, kind", [
    (b"", "multipart/form-data; boundary=x"), (b"--x--\r\n", "multipart/form-data; boundary=x"),
    (b"junk", "multipart/form-data; boundary=x"), (b"junk", "multipart/form-data"), (b"{}", "application/json"),
    (b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nno filename\r\n--x--\r\n",
     "multipart/form-data; boundary=x"),
    (b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nno end",
     "multipart/form-data; boundary=x"),
    (b"--x\r\n" + b"A: b\r\n" * 5000 + b"\r\n\r\n--x--\r\n", "multipart/form-data; boundary=x"),
    (b"--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nv\r\n--x--\r\n", "multipart/form-data; boundary=x"),
    (b"x", "multipart/form-data; boundary=" + "y" * 500)])
def test_forms_that_are_none(place, hub, body, kind):
    project = hub.project()
    reply = hub.call("POST", f"/projects/{project}/files", body=body, headers={"Content-Type": kind})
    error_of(reply, 400)
    assert hub.ok("GET", f"/projects/{project}")["files"] == {}


def test_two_files_in_a_form(hub):
    project = hub.project()
    kind, body = multipart("a", b"1")
    edge = kind.split("boundary=")[1]
    second = body.replace(b'filename="a"', b'filename="b"')
    both = body[:-len(f"--{edge}--\r\n")] + second
    reply = hub.call("POST", f"/projects/{project}/files", body=both, headers={"Content-Type": kind})
    assert error_of(reply, 400) == "file: given twice"
    assert hub.ok("GET", f"/projects/{project}")["files"] == {}


def test_two_uploaders_in_a_form(hub):
    """Who brings a file is said once: of two, one reader would check the one and another note the other."""
    project = hub.project()
    for first in ("ada", ""):
        kind, body = multipart("a", b"1", uploader=first)
        edge = kind.split("boundary=")[1]
        part = f'--{edge}\r\nContent-Disposition: form-data; name="uploader"\r\n\r\neve\r\n--{edge}--\r\n'
        both = body[:-len(f"--{edge}--\r\n")] + part.encode()
        reply = hub.call("POST", f"/projects/{project}/files", body=both, headers={"Content-Type": kind})
        assert error_of(reply, 400) == "uploader: given twice"
    assert hub.ok("GET", f"/projects/{project}")["files"] == {}


def test_a_form_that_comes_slowly_and_in_pieces(place, hub):
    project = hub.project()
    data = bytes(range(256)) * 300 + b"\r\n--edge"
    kind, body = multipart("f", data)
    with place.server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(f"POST /projects/{project}/files HTTP/1.1\r\nHost: {place.server.host}\r\nContent-Type: {kind}\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n".encode())
        for at in range(0, len(body), 7777):
            piece = body[at:at + 7777]
            sock.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
        sock.sendall(b"0\r\n\r\n")
        assert harness.read_reply(sock).status == 200
    assert hub.download(project, "f").body == data


def test_the_server_is_well_after_all_this(place):
    assert place.hub.ok("GET", "/ping") == {"status": "ok"}
    assert "Sanitizer" not in place.server.log()
    json.dumps(place.hub.ok("GET", "/agents"))
