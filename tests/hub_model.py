"""A hub in a page of Python, to compare the real one with: what each operation answers, and what is there after it.

Nothing here is clever: dictionaries and lists, one operation at a time. Each method gives the expected status and notes
the events that it makes, as (name, what it is about).
"""
import json

from hub import COLUMNS, MOVES


class Agent:
    def __init__(self, name, tags, mode):
        self.name, self.tags, self.mode = name, tags, mode
        self.paused = self.revoked = False

    @property
    def status(self):
        return "revoked" if self.revoked else "busy" if self.paused else "online"


class Task:
    def __init__(self, id, number, title, priority, needs):
        self.id, self.number, self.title, self.priority, self.needs = id, number, title, priority, needs
        self.status, self.assigned, self.claimed = "backlog", None, None
        self.blocked_by, self.origin = [], None


class Mail:
    def __init__(self, id, sender, content):
        self.id, self.sender, self.content = id, sender, content
        self.delivered = self.acked = False


class Model:
    def __init__(self):
        self.agents, self.tasks, self.limits, self.boxes, self.events = {}, {}, {}, {}, []
        self.leases = {}  # project: {id: (agent, paths, mode)}
        self.mail = {}  # id: Mail

    # ---- what is asked of it ----

    def board(self, project):
        """As GET …/tasks lists it."""
        mine = [t for t in self.tasks.values() if t.project == project]
        return [(t.id, t.status, t.assigned, t.claimed) for t in sorted(mine, key=lambda t: (t.priority, t.number))]

    def count(self, project, agent, column, besides=None):
        return sum(t.project == project and t.assigned == agent and t.status == column and t.id != besides
                   for t in self.tasks.values())

    def inbox(self, agent):
        return [(m.id, m.sender, m.content, m.delivered, m.acked) for m in self.boxes.get(agent, [])]

    def stopped(self, name):
        one = self.agents[name]
        return one.paused or one.revoked

    # ---- operations: each gives the expected status ----

    def register(self, name, tags, mode):
        known = self.agents.get(name)
        fresh = Agent(name, set(tags), mode)
        if known:
            fresh.paused, fresh.revoked = known.paused, known.revoked
        self.agents[name] = fresh
        self.events.append(("agent_registered", name))
        return 201

    def mode(self, name, mode):
        self.agents[name].mode = mode
        self.events.append(("agent_autonomy_changed", name))
        return 200

    def pause(self, name):
        self.agents[name].paused = True
        self.events.append(("agent_paused", name))
        return 200

    def resume(self, name):
        self.agents[name].paused = self.agents[name].revoked = False
        self.events.append(("agent_resumed", name))
        return 200

    def revoke(self, name):
        self.agents[name].revoked = True
        for project, held in self.leases.items():
            for lease in [i for i, (agent, _, _) in held.items() if agent == name]:
                del held[lease]
        self.events.append(("agent_revoked", name))
        return 200

    def acknowledge(self, name):
        was = self.agents[name].revoked
        self.agents[name].revoked = False
        if was:
            self.events.append(("agent_recovered", name))
        return 200

    def send(self, sender, to, content, id):
        if self.stopped(sender):
            return 409
        self.mail[id] = Mail(id, sender, content)
        self.boxes.setdefault(to, []).append(self.mail[id])
        self.events.append(("message_sent", content))
        return 200

    def read(self, agent, unread):
        """What the inbox shows; all of it is delivered then."""
        mine = self.boxes.get(agent, [])
        if unread:
            return [m.id for m in mine if not m.delivered and not m.acked]
        for one in mine:
            one.delivered = True
        return [m.id for m in mine]

    def ack(self, id):
        self.mail[id].acked = True
        return 200

    def create(self, project, id, number, title, priority, needs, owner=None):
        """With an owner: the agent `owner` gives the task to itself."""
        agent = self.agents.get(owner)
        if agent and self.stopped(owner):
            return 409
        if agent and agent.mode != "fully_autonomous":
            return 403
        if agent and (not needs <= agent.tags or
                      self.count(project, owner, "in_progress") >= self.limits[project]["in_progress"]):
            return 400
        self.tasks[id] = task = Task(id, number, title, priority, needs)
        task.project, task.assigned, task.creator = project, owner, owner
        self.events.append(("task_created", id))
        return 201

    def claim(self, project, id, name):
        agent, task = self.agents[name], self.tasks[id]
        if self.stopped(name):
            return 409
        if task.project == project and task.status == "ready" and task.claimed == task.assigned == name:
            return 200
        if agent.mode == "manual":
            return 403
        if task.project != project:
            return 400
        if task.status not in ("backlog", "ready"):
            return 400
        owner = task.assigned or task.claimed
        if owner and owner != name:
            return 409
        if not task.needs <= agent.tags:
            return 400
        if self.count(project, name, "in_progress", id) >= self.limits[project]["in_progress"]:
            return 400
        if agent.mode == "advisory":
            return 202
        task.status, task.assigned, task.claimed = "ready", name, name
        self.events.append(("task_claimed", id))
        return 200

    def assign(self, project, id, name, itself=False):
        """By people, or by the agent itself."""
        task, agent = self.tasks[id], self.agents[name]
        if task.project != project:
            return 400
        if itself and self.stopped(name):
            return 409
        if itself and agent.mode != "fully_autonomous":
            return 403
        owner = task.assigned or task.claimed
        if itself and owner not in (None, name):
            return 409
        if itself and not task.needs <= agent.tags:
            return 400
        if self.count(project, name, "in_progress", id) >= self.limits[project]["in_progress"]:
            return 400
        task.status, task.assigned = "ready", name
        task.blocked_by = []
        self.events.append(("task_assigned", id))
        return 200

    def unassign(self, project, id):
        task = self.tasks[id]
        if task.project != project:
            return 400
        task.status, task.assigned, task.claimed = "backlog", None, None
        task.blocked_by = []
        self.events.append(("task_unassigned", id))
        return 200

    def move(self, project, id, to, by, blocked_by):
        """`by` None: people."""
        task, agent = self.tasks[id], self.agents.get(by)
        owner = task.assigned or task.claimed
        if task.project != project:
            return 400
        if agent and owner not in (None, by) and task.creator != by:
            return 403
        if agent and self.stopped(by):
            return 409
        takes = agent and not owner and to in ("in_progress", "in_review", "done")
        if agent and agent.mode == "manual" and owner != by:
            return 403
        if to not in MOVES[task.status]:
            return 400
        if takes and not task.needs <= agent.tags:
            return 400
        holder = by if takes else task.assigned
        if to in self.limits[project] and self.count(project, holder, to, id) >= self.limits[project][to]:
            return 400
        if agent and agent.mode == "advisory" and (owner != by or to in ("in_progress", "in_review", "done")):
            return 202
        if takes:
            task.assigned = task.claimed = by
            self.events.append(("task_claimed", id))
        origin, task.status = task.status, to
        self.events.append(("task_transition", (id, to, by or "")))
        if to == "blocked":
            task.origin = origin
            task.blocked_by = [b for b in blocked_by if self.tasks[b].project == project]
        else:
            task.blocked_by = []
        if to == "done":
            self.let_go(id)
        return 200

    def let_go(self, done):
        """Tasks whose last blocker this was."""
        for task in sorted(self.tasks.values(), key=lambda t: t.id):
            if done not in task.blocked_by:
                continue
            task.blocked_by.remove(done)
            if task.status == "blocked" and not task.blocked_by:
                task.status = "backlog" if task.origin == "backlog" else "ready"
                self.events.append(("task_transition", (task.id, task.status, "hub")))

    def limit(self, project, column, limit):
        self.limits[project][column] = limit
        self.events.append(("wip_changed", (project, column, limit)))
        return 200

    def lease(self, project, agent, paths, mode, id):
        if self.stopped(agent):
            return 409
        for holder, held, how in self.leases[project].values():
            if holder != agent and not (how == mode == "shared") and \
                    any(overlap(a, b) for a in paths for b in held):
                return 409
        if id is not None:
            self.leases[project][id] = (agent, paths, mode)
        return 201

    def release(self, project, id):
        return 200 if self.leases[project].pop(id, None) else 404


def overlap(a, b):
    a, b = a.split("/"), b.split("/")
    return a[:len(b)] == b or b[:len(a)] == a


def about(event):
    """An event of the server's stream as the model notes it, or None for those it does not follow."""
    kind, data = event["event"], event["data"] if isinstance(event["data"], dict) else json.loads(event["data"])
    if kind in ("agent_registered", "agent_autonomy_changed", "agent_paused", "agent_resumed", "agent_recovered"):
        return kind, data["name"]
    if kind == "agent_revoked":
        return kind, data["agent"]
    if kind == "message_sent":
        return kind, data["content"]
    if kind == "task_created":
        return kind, data["task"]["id"]
    if kind in ("task_claimed", "task_assigned", "task_unassigned"):
        return kind, data["task_id"]
    if kind == "task_transition":
        return kind, (data["task_id"], data["new_status"], data["by"])
    if kind == "wip_changed":
        return kind, (data["project"], data["status"], data["limit"])
    return None


__all__ = ["COLUMNS", "Model", "about"]
