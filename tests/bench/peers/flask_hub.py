"""A hub of the usual kind, for comparison: Flask and its own threaded server, everything in dictionaries under a
lock. Registers agents, takes heartbeats, passes messages, lets tasks be claimed; keeps an audit list, a rate window,
a URL filter by regular expression and queues for event streams. Nothing is on disk.

    flask_hub.py PORT
"""
import collections
import json
import logging
import queue
import re
import sys
import threading
import time
import uuid
from datetime import datetime

from flask import Flask, Response, jsonify, request
from werkzeug.serving import WSGIRequestHandler

app = Flask(__name__)
lock = threading.Lock()
agents, profiles, ticks = {}, {}, collections.Counter()
boxes, messages = collections.defaultdict(list), {}
projects, tasks = {}, {}
audit, listeners = [], []
windows = collections.defaultdict(collections.deque)
OUTSIDE = re.compile(r"https?://(?!172\.28\.|localhost|127\.0\.0\.1)[\w.-]+\.[a-z0-9]{1,6}\b", re.I)


def now():
    return datetime.utcnow().isoformat()


def note(agent, action, details):
    audit.append({"timestamp": now(), "agent": agent, "action": action, "details": details})
    if len(audit) > 10000:
        del audit[:5000]


def allowed(agent):
    window, at = windows[agent], time.time()
    while window and at - window[0] > 60:
        window.popleft()
    if len(window) < 60:
        window.append(at)


def tell(kind, data):
    frame = f"id: {uuid.uuid4()}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
    for one in list(listeners):
        try:
            one.put_nowait(frame)
        except queue.Full:
            listeners.remove(one)


def refuse(status, text):
    return jsonify(error=text), status


@app.route("/ping", methods=["GET", "POST"])
def ping():
    return jsonify(status="ok")


@app.post("/agents/register")
def register():
    data = request.get_json()
    name = data.get("name")
    if not name:
        return refuse(400, "name required")
    with lock:
        agents[name] = {"name": name, "type": data.get("type", "unknown"), "status": "online", "registered_at": now(),
                        "last_heartbeat": now(), "autonomy_mode": data.get("autonomy_mode", "fully_autonomous"),
                        "capabilities": data.get("capabilities", []), "current_task_id": None,
                        "checkpoint_sequence": 0}
        profiles[name] = {tag.strip().lower() for tag in agents[name]["capabilities"]}
        ticks[name] = 0
        note(name, "register", {"type": agents[name]["type"]})
        tell("agent_registered", {"name": name, "type": agents[name]["type"]})
        one = agents[name]
        return jsonify(id=name, type=one["type"], registered_at=one["registered_at"],
                       autonomy_mode=one["autonomy_mode"], capabilities=one["capabilities"]), 201


@app.get("/agents")
def list_agents():
    return jsonify(list(agents.values()))


@app.post("/agents/<name>/heartbeat")
def heartbeat(name):
    with lock:
        allowed(name)
        ticks[name] += 1
        if name not in agents:
            return refuse(404, "agent not found")
        agents[name].update(last_heartbeat=now(), status="online")
        note(name, "heartbeat", {"checkpoint_tick": ticks[name]})
        return jsonify(status="ok", checkpoint_tick=ticks[name])


@app.post("/messages/send")
def send():
    data = request.get_json()
    sender, to, content = data.get("from"), data.get("to"), data.get("content", "")
    if not sender or not to:
        return refuse(400, "from and to required")
    if content and OUTSIDE.search(content):
        return refuse(400, "Sandbox: message content blocked (external URL detected)")
    with lock:
        allowed(sender)
        note(sender, "send_message", {"to": to})
        one = {"id": str(uuid.uuid4()), "from": sender, "to": to, "content": content,
               "type": data.get("type", "text"), "timestamp": now(), "delivered": False, "acknowledged": False}
        messages[one["id"]] = one
        boxes[to].append(one)
        tell("message_sent", {k: one[k] for k in ("id", "from", "to", "content", "type", "timestamp")})
        return jsonify({k: one[k] for k in ("id", "from", "to", "timestamp")})


@app.get("/messages/<agent>")
def inbox(agent):
    unread = request.args.get("unread", "false").lower() == "true"
    with lock:
        found = [m for m in boxes[agent] if not (unread and m["delivered"])]
        if not unread:
            for one in found:
                one["delivered"] = True
        return jsonify([{k: v for k, v in one.items() if k != "to"} for one in found])


@app.post("/projects")
def make_project():
    data = request.get_json()
    with lock:
        one = {"id": str(uuid.uuid4()), "name": data["name"], "created_at": now()}
        projects[one["id"]] = one
        note(data["creator"], "create_project", {"name": data["name"]})
        return jsonify(one), 201


@app.post("/projects/<project>/tasks")
def make_task(project):
    data = request.get_json()
    with lock:
        one = {"id": str(uuid.uuid4()), "project_id": project, "title": data["title"], "description": "",
               "status": "backlog", "priority": data.get("priority", "P2"), "assigned_to": None, "claimed_by": None,
               "required_capabilities": data.get("required_capabilities", []), "created_at": now()}
        tasks[one["id"]] = one
        tell("task_created", {"project": project, "task": one})
        return jsonify(one), 201


@app.post("/projects/<project>/tasks/<task>/claim")
def claim(project, task):
    agent = request.get_json().get("agent")
    if not agent:
        return refuse(400, "agent required")
    with lock:
        one = tasks.get(task)
        if not one or one["project_id"] != project:
            return refuse(400, "Task not found")
        if one["status"] not in ("backlog", "ready"):
            return refuse(400, f"Cannot claim task in {one['status']} status")
        needs = {tag.lower() for tag in one["required_capabilities"]}
        if needs and profiles.get(agent) and not needs <= profiles[agent]:
            return refuse(400, "Capabilities insufficient")
        held = sum(1 for t in tasks.values() if t["project_id"] == project and t["assigned_to"] == agent
                   and t["status"] == "in_progress")
        if held >= 3:
            return refuse(400, f"WIP limit reached for {agent} (limit: 3)")
        one.update(assigned_to=agent, claimed_by=agent, status="ready", updated_at=now())
        if agent in agents:
            agents[agent]["current_task_id"] = task
        tell("task_claimed", {"project": project, "task_id": task, "agent": agent, "title": one["title"]})
        return jsonify(ok=True, task_id=task)


@app.get("/events")
def events():
    mine = queue.Queue(200)
    listeners.append(mine)

    def stream():
        while True:
            try:
                yield mine.get(timeout=25)
            except queue.Empty:
                yield f": keepalive {int(time.time())}\n\n"
    return Response(stream(), mimetype="text/event-stream",
                    headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # so that connections are kept
    app.run("127.0.0.1", int(sys.argv[1]), threaded=True)
