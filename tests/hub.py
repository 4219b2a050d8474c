"""The hub as its clients see it: plain JSON over HTTP, errors as {"error": text}.

`Hub(server)` speaks as an unauthenticated client of a server with auth = open; `Hub(server, token)` as the holder
of a token. Names are made anew for each use, so that tests share a server without meeting each other.
"""
import contextlib
import itertools
import json as json_
import os
import secrets
import time
from urllib.parse import quote

import harness

numbers = itertools.count(1)
COLUMNS = ("backlog", "ready", "in_progress", "in_review", "blocked", "done")
# From each state to the states that PATCH may move to.
MOVES = {
    "backlog": {"ready", "blocked"},
    "ready": {"backlog", "in_progress", "blocked"},
    "in_progress": {"ready", "in_review", "blocked"},
    "in_review": {"in_progress", "done"},
    "blocked": {"backlog", "ready"},
    "done": {"backlog"},
}
# How to bring a new task to each state.
WAYS = {
    "backlog": [], "ready": ["ready"], "in_progress": ["ready", "in_progress"],
    "in_review": ["ready", "in_progress", "in_review"], "blocked": ["blocked"],
    "done": ["ready", "in_progress", "in_review", "done"],
}


def unique(prefix="agent"):
    return f"{prefix}-{os.getpid()}-{next(numbers)}-{secrets.token_hex(3)}"


def open_server(**options):
    """A server as the original was: who comes from this machine needs no credentials."""
    args = ["--auth", "open", *options.pop("args", [])]
    return harness.Server(args=args, **options)


def multipart(filename, data, **fields):
    """A form as curl -F sends it: (content type, body)."""
    edge = "edge-" + secrets.token_hex(8)
    parts = b""
    for name, value in fields.items():
        parts += f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    if filename is not None:
        parts += (f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
                  "Content-Type: application/octet-stream\r\n\r\n").encode() + data + b"\r\n"
    return f"multipart/form-data; boundary={edge}", parts + f"--{edge}--\r\n".encode()


class Hub:
    def __init__(self, server, token=None):
        self.server, self.token = server, token

    def call(self, method, path, json=None, **kw):
        kw.setdefault("token", self.token)
        return self.server.request(method, path, json=json, **kw)

    def ok(self, method, path, json=None, status=None, **kw):
        """What was answered, after a check that it is a success (of this status)."""
        reply = self.call(method, path, json, **kw)
        assert reply.status == status if status else 200 <= reply.status < 300, (method, path, json, reply)
        return reply.json()

    def refused(self, status, text, method, path, json=None, **kw):
        """Refused with this status and an error that has this text in it; gives the whole answer."""
        reply = self.call(method, path, json, **kw)
        assert reply.status == status, (method, path, json, reply)
        assert reply.headers["content-type"].startswith("application/json"), reply
        error = reply.json()["error"]
        assert isinstance(error, str) and text.lower() in error.lower(), (text, reply)
        return reply.json()

    # ---- agents ----

    def agent(self, name=None, **fields):
        name = name or unique()
        self.ok("POST", "/agents/register", {"name": name, **fields}, 201)
        return name

    def heartbeat(self, name):
        return self.ok("POST", f"/agents/{quote(name)}/heartbeat")

    def record(self, name):
        return next((one for one in self.ok("GET", "/agents") if one["name"] == name), None)

    # ---- messages ----

    def send(self, sender, to, content="hello", **fields):
        return self.ok("POST", "/messages/send", {"from": sender, "to": to, "content": content, **fields}, 200)

    def inbox(self, agent, unread=False):
        return self.ok("GET", f"/messages/{quote(agent)}?unread={'true' if unread else 'false'}")

    def ack(self, message):
        return self.ok("POST", f"/messages/{message}/ack")

    # ---- projects and tasks ----

    def project(self, creator="human", name="project"):
        return self.ok("POST", "/projects", {"name": name, "creator": creator}, 201)["id"]

    def task(self, project, title="task", **fields):
        return self.ok("POST", f"/projects/{project}/tasks", {"title": title, **fields}, 201)["id"]

    def claim(self, project, task, agent):
        return self.ok("POST", f"/projects/{project}/tasks/{task}/claim", {"agent": agent}, 200)

    def move(self, project, task, *states, **fields):
        found = None
        for state in states:
            found = self.ok("PATCH", f"/projects/{project}/tasks/{task}", {"status": state, **fields}, 200)
        return found

    def read(self, project, task):
        return next(one for one in self.ok("GET", f"/projects/{project}/tasks") if one["id"] == task)

    def upload(self, project, filename, data, **fields):
        kind, body = multipart(filename, data, **fields)
        return self.call("POST", f"/projects/{project}/files", body=body, headers={"Content-Type": kind})

    def download(self, project, filename):
        return self.call("GET", f"/projects/{project}/files/{quote(filename)}")

    # ---- events ----

    @contextlib.contextmanager
    def events(self, path="/events", **kw):
        """The stream from now on: read until a condition holds."""
        with self.server.sse(path, token=self.token, **kw) as stream:
            assert stream.status == 200, stream.headers
            yield Events(stream)


class Events:
    def __init__(self, stream):
        self.stream, self.seen = stream, []

    def until(self, kind, seconds=10, **fields):
        """The data of the first event of this kind whose data has these fields."""
        end = time.monotonic() + seconds * harness.SLOW
        while time.monotonic() < end:
            event = self.stream.next(max(0.0, end - time.monotonic()))
            if event is None:
                break
            event["data"] = json_.loads(event["data"])
            self.seen.append(event)
            if event.get("event") == kind and fields.items() <= event["data"].items():
                return event["data"]
        raise AssertionError(f"no {kind} with {fields} in {[(e.get('event'), e['data']) for e in self.seen]}")
