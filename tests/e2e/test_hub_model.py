"""Fifty agents do at random whatever agents do, and the server is killed in between; a page of Python
(tests/hub_model.py) says what must be there. Boards, work in progress, inboxes, claims, leases and the order of events
are always equal.

One operation at a time, so that every answer can be foretold; and, in the second test, all at once, where the order of
the events is the order in which things happened: each must be allowed where it stands, and every answer must have its
event. HUB_MODEL_SECONDS makes the runs longer, HUB_MODEL_SEED repeats one.
"""
import os
import random
import threading
import time

import pytest

import harness
from hub import MOVES, Hub, open_server, unique
from hub_model import Model, about

SECONDS = float(os.environ.get("HUB_MODEL_SECONDS", "20"))
SEED = int(os.environ.get("HUB_MODEL_SEED", random.SystemRandom().randrange(1 << 30)))
AGENTS, PROJECTS = 50, 3
TAGS = ("code", "review", "data")
MODES = ("fully_autonomous", "fully_autonomous", "fully_autonomous", "advisory", "manual")
PATHS = ("src", "src/api", "src/api/a.c", "docs", "docs/x", "lib")
LIMITS = {"ATOLL_HUB_MESSAGE_RATE": "100000", "ATOLL_HUB_HEARTBEAT_RATE": "100000", "ATOLL_HUB_STALE": "1h",
          "ATOLL_RATE_PER_SECOND": "1000000", "ATOLL_RATE_BURST": "1000000"}


class Run:
    """The server and its model, and operations done to both."""

    def __init__(self, server, rng):
        self.server, self.hub, self.rng, self.model = server, Hub(server), rng, Model()
        self.names = [unique("agent") for _ in range(AGENTS)]
        self.seen, self.last_id, self.number = [], None, 0
        self.projects = [self.hub.project("human", f"p{n}") for n in range(PROJECTS)]
        with self.hub.events("/events?since=0&hub=true") as events:  # where the log stands
            events.until("project_created", id=self.projects[-1])
            self.last_id = events.stream.last_id
        for project in self.projects:
            self.model.limits[project] = {"in_progress": 3, "in_review": 5}
            self.model.leases[project] = {}
        for name in self.names:
            self.register(name)

    # ---- one operation on both ----

    def same(self, expected, reply, *what):
        assert reply.status == expected, (what, expected, reply)
        return reply

    def register(self, name=None):
        name = name or self.rng.choice(self.names)
        tags, mode = self.rng.sample(TAGS, self.rng.randrange(4)), self.rng.choice(MODES)
        self.same(self.model.register(name, tags, mode), self.hub.call(
            "POST", "/agents/register", {"name": name, "capabilities": tags, "autonomy_mode": mode}), "register", name)

    def steer(self):
        name = self.rng.choice(self.names)
        what = self.rng.choice(("pause", "resume", "resume", "resume", "revoke", "ack", "mode"))
        if what == "mode":
            mode = self.rng.choice(MODES)
            self.same(self.model.mode(name, mode), self.hub.call("POST", f"/agents/{name}/autonomy", {"mode": mode}))
        elif what == "ack":
            self.same(self.model.acknowledge(name), self.hub.call("POST", f"/agents/{name}/revocation/ack", {}), what)
        else:
            self.same(getattr(self.model, what)(name), self.hub.call("POST", f"/agents/{name}/{what}", {}), what)

    def send(self):
        sender, to = self.rng.choice(self.names), self.rng.choice(self.names)
        self.number += 1
        content = f"message {self.number} of {sender}"
        reply = self.hub.call("POST", "/messages/send", {"from": sender, "to": to, "content": content})
        message = reply.json().get("id")
        self.same(self.model.send(sender, to, content, message), reply, "send", sender)

    def read(self):
        agent, unread = self.rng.choice(self.names), self.rng.random() < 0.7
        found = [m["id"] for m in self.hub.inbox(agent, unread)]
        assert found == self.model.read(agent, unread)
        for message in found[:self.rng.randrange(3)]:
            self.same(self.model.ack(message), self.hub.call("POST", f"/messages/{message}/ack"), "ack")

    def create(self):
        project, priority = self.rng.choice(self.projects), self.rng.randrange(4)
        needs = self.rng.sample(TAGS, self.rng.choice((0, 0, 1, 2)))
        self.number += 1
        owner = self.rng.choice(self.names) if self.rng.random() < 0.2 else None
        reply = self.hub.call("POST", f"/projects/{project}/tasks", {
            "title": f"t{self.number}", "priority": f"P{priority}", "required_capabilities": needs,
            **({"created_by": owner, "assigned_to": owner} if owner else {})})
        expected = self.model.create(project, reply.json().get("id"), self.number, f"t{self.number}", priority,
                                     set(needs), owner)
        self.same(expected, reply, "create")

    def task(self, *statuses):
        """One of these, mostly, with its project; rarely with another one's."""
        fit = [t for t in self.model.tasks.values() if t.status in statuses] if self.rng.random() < 0.8 else []
        found = self.rng.choice(fit or list(self.model.tasks.values()))
        return (found.project if self.rng.random() < 0.97 else self.rng.choice(self.projects)), found

    def claim(self):
        (project, task), name = self.task("backlog", "ready"), self.rng.choice(self.names)
        expected = self.model.claim(project, task.id, name)
        reply = self.hub.call("POST", f"/projects/{project}/tasks/{task.id}/claim", {"agent": name})
        self.same(expected, reply, "claim", vars(task), vars(self.model.agents[name]))
        if expected == 202:
            self.hub.ok("POST", f"/proposals/{reply.json()['proposal_id']}/reject", {})

    def assign(self):
        (project, task), name = self.task("backlog", "ready"), self.rng.choice(self.names)
        itself, was = self.rng.random() < 0.5, dict(vars(task))
        body = {"agent": name, **({"assigned_by": name} if itself else {})}
        self.same(self.model.assign(project, task.id, name, itself), self.hub.call(
            "POST", f"/projects/{project}/tasks/{task.id}/assign", body), "assign", was, body)

    def unassign(self):
        project, task = self.task("in_progress", "blocked")
        self.same(self.model.unassign(project, task.id),
                  self.hub.call("POST", f"/projects/{project}/tasks/{task.id}/unassign"), "unassign")

    def move(self):
        project, task = self.task("ready", "in_progress", "in_review", "blocked")
        by = self.rng.choice((task.assigned, task.assigned, self.rng.choice(self.names), None))
        to = self.rng.choice(sorted(MOVES[task.status])) if self.rng.random() < 0.9 else self.rng.choice(sorted(MOVES))
        blockers = [t.id for t in self.model.tasks.values() if t.status != "done" and t.id != task.id][:5]
        blocked_by = self.rng.sample(blockers, min(len(blockers), self.rng.randrange(3))) if to == "blocked" else []
        was = dict(vars(task))
        expected = self.model.move(project, task.id, to, by, blocked_by)
        body = {"status": to, **({"agent": by} if by else {}), **({"blocked_by": blocked_by} if blocked_by else {})}
        reply = self.hub.call("PATCH", f"/projects/{project}/tasks/{task.id}", body)
        self.same(expected, reply, "move", was, body, by and vars(self.model.agents[by]))
        if expected == 202:
            self.hub.ok("POST", f"/proposals/{reply.json()['proposal_id']}/reject", {})

    def limit(self):
        project, column = self.rng.choice(self.projects), self.rng.choice(("in_progress", "in_review"))
        limit = self.rng.randrange(1, 6)
        self.same(self.model.limit(project, column, limit), self.hub.call(
            "PATCH", f"/projects/{project}/wip", {"status": column, "limit": limit}), "limit")

    def lease(self):
        project, name = self.rng.choice(self.projects), self.rng.choice(self.names)
        held = self.model.leases[project]
        if held and self.rng.random() < 0.5:
            lease = self.rng.choice(sorted(held))
            self.same(self.model.release(project, lease),
                      self.hub.call("DELETE", f"/projects/{project}/leases/{lease}"), "release")
            return
        paths, mode = self.rng.sample(PATHS, self.rng.randrange(1, 3)), self.rng.choice(("shared", "exclusive"))
        reply = self.hub.call("POST", f"/projects/{project}/leases", {
            "agent": name, "paths": paths, "mode": mode, "ttl_seconds": 86400})
        self.same(self.model.lease(project, name, paths, mode, reply.json().get("id")), reply, "lease", name, paths)

    OPERATIONS = [(send, 20), (read, 8), (create, 12), (claim, 20), (move, 30), (assign, 4), (unassign, 3), (limit, 1),
                  (lease, 8), (steer, 5), (register, 2)]

    def step(self):
        if not self.model.tasks:
            return self.create()
        operation = self.rng.choices([o for o, _ in self.OPERATIONS], [w for _, w in self.OPERATIONS])[0]
        return operation(self)

    # ---- are they still the same? ----

    def compare(self):
        hub, model = self.hub, self.model
        for project in self.projects:
            found = hub.ok("GET", f"/projects/{project}/tasks")
            assert [(t["id"], t["status"], t["assigned_to"], t["claimed_by"]) for t in found] == model.board(project)
            board = hub.ok("GET", f"/projects/{project}/board?lanes=agent")
            counts = {c["status"]: c["count"] for c in board["columns"]}
            assert counts == {s: sum(t["status"] == s for t in found) for s in MOVES}
            for lane in board["lanes"]:
                for column in ("in_progress", "in_review"):
                    assert len(lane["columns"].get(column, [])) == model.count(project, lane["lane"] or None, column)
            leases = hub.ok("GET", f"/projects/{project}/leases")
            assert {x["id"]: (x["agent"], x["paths"], x["mode"]) for x in leases} == model.leases[project]
        agents = {a["name"]: (a["status"], a["autonomy_mode"], set(a["capabilities"]))
                  for a in hub.ok("GET", "/agents")}
        assert agents == {n: (a.status, a.mode, a.tags) for n, a in model.agents.items()}
        for name in self.rng.sample(self.names, 10):
            self.compare_inbox(name)
        self.compare_events()

    def compare_inbox(self, name):
        found = self.hub.ok("GET", f"/messages/{name}?peek=true")
        assert [(m["id"], m["from"], m["content"], m["delivered"], m["acknowledged"]) for m in found] == \
            self.model.inbox(name)

    def compare_events(self):
        """All events since the last time, in order."""
        expected = self.model.events[len(self.seen):]
        if not expected:
            return
        end = time.monotonic() + 20 * harness.SLOW
        with self.hub.events("/events?hub=true", last_id=self.last_id) as events:
            while len(self.seen) < len(self.model.events):
                event = events.stream.next(max(0, end - time.monotonic()))
                assert event, f"missing: {self.model.events[len(self.seen):]}"
                self.last_id = event["id"]
                if (found := about(event)) is not None:
                    assert found == self.model.events[len(self.seen)], (len(self.seen), event)
                    self.seen.append(found)

    def kill(self):
        if self.rng.random() < 0.7:
            self.server.kill9_api()
        else:
            self.server.kill9_all()
            self.server.start()
        self.server.wait_ready()

    def kill_in_flight(self):
        """Killed while messages are under way: what was answered is there, what was not is there whole or not."""
        wishes, replies = [], {}
        for _ in range(8):
            free = [n for n in self.names if not self.model.stopped(n)]
            if not free:
                return self.kill()
            self.number += 1
            sender, to = self.rng.choice(free), self.rng.choice(self.names)
            wishes.append((sender, to, f"message {self.number} of {sender}"))

        def send(wish):
            try:
                replies[wish] = self.hub.call("POST", "/messages/send", dict(zip(("from", "to", "content"), wish)))
            except (OSError, harness.http.client.HTTPException):
                pass
        threads = [threading.Thread(target=send, args=(wish,)) for wish in wishes]
        for one in threads:
            one.start()
        self.kill()
        for one in threads:
            one.join()
        self.server.wait_ready()
        there = {}
        for _, to, _ in wishes:
            known = {m.id for m in self.model.boxes.get(to, [])}
            for message in self.hub.ok("GET", f"/messages/{to}?peek=true"):
                if message["id"] not in known:
                    there[message["seq"]] = (message["from"], to, message["content"], message["id"])
        for wish, reply in replies.items():
            if reply.status == 200:
                assert reply.json()["id"] in {found[3] for found in there.values()}, (wish, reply)
        for _, (sender, to, content, message) in sorted(there.items()):
            assert (sender, to, content) in wishes
            self.model.send(sender, to, content, message)


@pytest.fixture
def server():
    server = open_server(env=LIMITS).start()
    yield server
    server.stop()


@pytest.mark.timeout(60 + 3 * SECONDS)
def test_one_after_the_other(server):
    rng = random.Random(SEED)
    print("HUB_MODEL_SEED =", SEED)
    run, end, steps, kills = Run(server, rng), time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end or kills < 4:
        for _ in range(rng.randrange(20, 80)):
            run.step()
            steps += 1
        if rng.random() < 0.3:
            (run.kill_in_flight if rng.random() < 0.5 else run.kill)()
            kills += 1
        run.compare()
    for name in run.names:
        run.compare_inbox(name)
    print(steps, "operations,", kills, "kills,", len(run.seen), "events")
    assert steps > 200 and kills >= 4 and len(run.seen) > 100


@pytest.mark.timeout(60 + 3 * SECONDS)
def test_all_at_once(server):
    """Fifty threads want the same few tasks. The log of events is a history that the rules allow, it has one event for
    each success and none for a refusal, and it ends in the state that the server shows."""
    rng = random.Random(SEED + 1)
    print("HUB_MODEL_SEED =", SEED)
    hub = Hub(server)
    names, project = [hub.agent() for _ in range(AGENTS)], hub.project("human")
    tasks = [hub.task(project, f"t{n}", priority=f"P{n % 4}") for n in range(60)]
    with hub.events("/events?since=0&hub=true") as events:
        events.until("task_created", seconds=20, project=project, task={
            "id": tasks[-1], "title": "t59", "status": "backlog", "priority": 3, "assigned_to": None,
            "required_capabilities": []})
        start = events.stream.last_id
    end, done, lock = time.monotonic() + SECONDS / 4, [], threading.Lock()

    def live(name, seed):
        own = random.Random(seed)
        while time.monotonic() < end:
            task, what = own.choice(tasks), own.random()
            if what < 0.5:
                kind, reply = "task_claimed", hub.call("POST", f"/projects/{project}/tasks/{task}/claim",
                                                       {"agent": name}, timeout=60)
            elif what < 0.9:
                to = own.choice(("ready", "in_progress", "in_review", "done", "backlog"))
                kind, reply = ("task_transition", to), hub.call("PATCH", f"/projects/{project}/tasks/{task}",
                                                                {"status": to, "agent": name}, timeout=60)
            else:
                kind, reply = "task_unassigned", hub.call("POST", f"/projects/{project}/tasks/{task}/unassign",
                                                          timeout=60)
            assert reply.status in (200, 400, 403, 409), reply
            with lock:
                done.append((kind, task, name, reply.status))
    failures = []

    def guarded(*args):
        try:
            live(*args)
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(name, rng.random())) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures, failures[0]

    owner, status, made = dict.fromkeys(tasks), dict.fromkeys(tasks, "backlog"), {}
    final = hub.task(project, "the last")
    with hub.events("/events?hub=true", last_id=start) as events:
        while True:
            event = events.stream.next(30 * harness.SLOW)
            kind, data = event["event"], harness.json_.loads(event["data"])
            if kind == "task_created" and data["task"]["id"] == final:
                break
            task = data.get("task_id")
            if kind == "task_claimed":
                assert owner[task] in (None, data["agent"]) and status[task] in ("backlog", "ready"), event
                assert held(owner, status, data["agent"]) < 3, event
                owner[task], status[task] = data["agent"], "ready"
                made[kind, task, data["agent"]] = made.get((kind, task, data["agent"]), 0) + 1
            elif kind == "task_transition":
                to = data["new_status"]
                assert to in MOVES[status[task]], (status[task], event)
                if to in ("in_progress", "in_review"):
                    assert owner[task], event
                    assert held(owner, status, owner[task], to) < {"in_progress": 3, "in_review": 5}[to], event
                status[task] = to
                made[(kind, to), task, data["by"]] = made.get(((kind, to), task, data["by"]), 0) + 1
            elif kind == "task_unassigned":
                owner[task], status[task] = None, "backlog"
                made[kind, task, ""] = made.get((kind, task, ""), 0) + 1
    board = hub.ok("GET", f"/projects/{project}/tasks")
    assert {t["id"]: (t["status"], t["assigned_to"]) for t in board if t["id"] != final} == {
        t: (status[t], owner[t]) for t in tasks}
    answered = {}
    for kind, task, name, code in done:
        if code == 200:
            key = (kind, task, "" if kind == "task_unassigned" else name)
            answered[key] = answered.get(key, 0) + 1
    # Claiming a task that one owns is answered 200 without an event; moving one that nobody owns to in_progress
    # claims it, too.
    for (kind, task, name), count in {**dict.fromkeys(answered, 0), **made}.items():
        replies = answered.get((kind, task, name), 0)
        if kind == "task_claimed":
            assert count <= replies + answered.get((("task_transition", "in_progress"), task, name), 0)
        else:
            assert count == replies, (kind, task, name, count, replies)
    assert len(done) > 200 and sum(v for (k, _, _), v in made.items() if k == "task_claimed") > 10


def held(owner, status, agent, column="in_progress"):
    return sum(owner[t] == agent and status[t] == column for t in owner)
