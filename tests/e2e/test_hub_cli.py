"""The hub from the command line: every command against the real server, and the board on a terminal."""
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from urllib.parse import quote

import pytest

import harness
from hub import Hub, open_server, unique

GROUPS = ("agent", "message", "project", "task", "lease", "board")
ran = set()


@pytest.fixture(scope="module")
def hub():
    server = open_server().start()
    yield Hub(server)
    server.stop()


def cli(hub, *args, rc=0):
    """The command as a person sees it, and as JSON: (text, value)."""
    ran.add(" ".join(args[:2]) if args[0] != "board" else "board")
    done = hub.server.cli(*args)
    assert (done.returncode == 0) == (rc == 0), (args, done)
    return done.stdout if rc == 0 else done.stderr


def said(hub, *args):
    return json.loads(cli(hub, *args, "--json"))


def test_agents(hub):
    one, tag = unique(), unique("tag")
    assert said(hub, "agent", "register", one, "--type", "t", "--capability", tag, "--mode", "advisory")["id"] == one
    assert one in cli(hub, "agent", "peers", "--status", "online", "--type", "t")
    assert re.search(r"Autonomy mode\s+advisory", cli(hub, "agent", "peer", one))
    assert "ok" in cli(hub, "agent", "heartbeat", one, "--json")
    assert said(hub, "agent", "who-can", tag)["agents"] == [one]
    assert said(hub, "agent", "can", one, "a", "b", "--description", "d")["tags"] == ["a", "b"]
    assert "manual" in cli(hub, "agent", "mode", one, "manual")
    assert said(hub, "agent", "mode-all", "fully_autonomous", "--type", "nobody")["updated_agents"] == []
    assert "fully_autonomous" in cli(hub, "agent", "mode-default")
    assert "busy" in cli(hub, "agent", "pause", one, "--reason", "why")
    assert "online" in cli(hub, "agent", "resume", one)
    revoked = said(hub, "agent", "revoke", one, "--reason", "enough")["revocation_id"]
    assert revoked in cli(hub, "agent", "revocations", "--limit", "5")
    cli(hub, "agent", "resume", one)
    hub.ok("POST", f"/agents/{one}/checkpoint", {"state": "half"})
    assert re.search(r"State\s+half", cli(hub, "agent", "checkpoint", one))
    cli(hub, "agent", "unregister", one)
    assert "agent not found" in cli(hub, "agent", "peer", one, rc=1)
    assert json.loads(cli(hub, "agent", "peer", one, "--json", rc=1))["error"]["message"].endswith("agent not found")


def test_names_instead_of_ids(hub):
    name, title = unique("Checkout rewrite"), unique("Fix the login")
    project = said(hub, "project", "create", name)["id"]
    task = said(hub, "task", "create", name, title)["id"]
    other = said(hub, "task", "create", name, unique("other"))["id"]
    assert said(hub, "project", "show", name)["id"] == project
    assert {t["id"] for t in said(hub, "task", "ls", name)} == {task, other}
    assert said(hub, "task", "show", name, title)["id"] == task
    assert said(hub, "task", "move", name, title, "ready")["id"] == task
    assert name in cli(hub, "board", name)
    assert said(hub, "task", "ls", project[:-1])[0]["project_id"] == project, "the beginning of an id"
    assert said(hub, "task", "show", project[:-1], task[:-1])["id"] == task
    assert hub.ok("GET", f"/tasks?project_id={quote(name)}")
    # What there is not is an error, and says what helps; so is a name that two have.
    for args in (("task", "ls"), ("task", "create"), ("board",), ("project", "show"), ("project", "rm")):
        text = cli(hub, *args, "no-such-project", *["t"] * (args == ("task", "create")), rc=1)
        assert "project not found" in text and "atoll project ls" in text, text
    assert "atoll task ls" in cli(hub, "task", "show", name, "nothing", rc=1)
    assert "project not found" in cli(hub, "task", "ls", project[:7], rc=1), "too short"
    twin = said(hub, "project", "create", name)["id"]
    assert f"several projects are named {name}" in cli(hub, "project", "rm", name, rc=1)
    assert said(hub, "task", "ls", project) and said(hub, "task", "ls", twin) == []


def test_messages(hub):
    one, two, channel = hub.agent(), hub.agent(), unique("channel")
    sent = said(hub, "message", "send", two, "hello there", "--from", one, "--thread", channel)
    assert "hello there" in cli(hub, "message", "ls", two, "--unread")
    assert not said(hub, "message", "ls", two)[0]["delivered"]  # looking marks nothing
    assert said(hub, "message", "ls", two, "--mark")[0]["delivered"]
    cli(hub, "message", "ack", sent["id"])
    assert said(hub, "message", "ls", two)[0]["acknowledged"]
    assert "hello" in cli(hub, "message", "history", one, two, "--limit", "3")
    assert "hello" in cli(hub, "message", "thread", channel)
    assert re.search(rf"{one}\s+{two}\s+1\n", cli(hub, "message", "graph"))
    for name in (one, two):
        cli(hub, "message", "join", channel, "--agent", name)
    assert channel in cli(hub, "message", "channels")
    assert said(hub, "message", "post", channel, "all", "--from", one)["recipients"] == 1
    cli(hub, "message", "leave", channel, "--agent", two)
    assert said(hub, "message", "send", two, "from a person")["from"] == "human"


def test_projects_and_files(hub, tmp_path):
    one = hub.agent()
    project = said(hub, "project", "create", "a name", "--creator", one)["id"]
    assert project in cli(hub, "project", "ls", "--agent", one) and "a name" in cli(hub, "project", "show", project)
    cli(hub, "project", "join", project, hub.agent())
    cli(hub, "project", "limit", project, "in_review", "2")
    assert said(hub, "project", "show", project)["wip_limits"]["in_review"] == 2
    assert said(hub, "project", "metrics", project, "--window", "1h", "--bucket", "10m")["total_tasks"] == 0
    data = bytes(range(256)) * 20
    (tmp_path / "data.bin").write_bytes(data)
    assert said(hub, "project", "put", project, str(tmp_path / "data.bin"))["filename"] == "data.bin"
    cli(hub, "project", "put", project, str(tmp_path / "data.bin"), "--name", "d/e", "--uploader", one)
    assert "d/e" in cli(hub, "project", "files", project)
    cli(hub, "project", "get", project, "d/e", "--output", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data
    done = subprocess.run([hub.server.binary, "project", "get", project, "d/e", "--version", "1"], capture_output=True,
                          env={**os.environ, "ATOLL_STATE": str(hub.server.state)})
    assert done.stdout == data
    assert said(hub, "project", "versions", project, "d/e")[0]["version"] == 1
    cli(hub, "project", "rm-file", project, "d/e")
    assert "File not found" in cli(hub, "project", "get", project, "d/e", rc=1)
    assert "No such file" in cli(hub, "project", "put", project, str(tmp_path / "none"), rc=1)
    cli(hub, "project", "rm", project)
    assert "project not found" in cli(hub, "project", "show", project, rc=1)


def test_tasks_and_leases(hub):
    project, one, two = hub.project(), hub.agent(), hub.agent()
    task = said(hub, "task", "create", project, "a title", "--priority", "P1", "--label", "x", "--label", "y",
                "--needs", "code", "--reviewers", "1", "--description", "words")["id"]
    other = said(hub, "task", "create", project, "other", "--parent", task)["id"]
    found = said(hub, "task", "show", project, task)
    assert (found["labels"], found["required_capabilities"], found["approvals_required"]) == (["x", "y"], ["code"], 1)
    assert "a title" in cli(hub, "task", "ls", project, "--label", "x", "--status", "backlog")
    assert "other" in cli(hub, "task", "ready", project)
    assert "Capabilities insufficient" in cli(hub, "task", "claim", project, task, "--agent", one, rc=1)
    cli(hub, "agent", "can", one, "code")
    assert re.search(r"Ok\s+yes", cli(hub, "task", "claim", project, task, "--agent", one))
    cli(hub, "task", "move", project, task, "in_progress", "--agent", one, "--note", "n")
    cli(hub, "task", "reviewer", project, task, two)
    cli(hub, "task", "move", project, task, "in_review")
    assert "in_progress" in cli(hub, "task", "request-changes", project, task, "--reviewer", two, "--note", "no")
    cli(hub, "task", "move", project, task, "in_review")
    cli(hub, "task", "approve", project, task, "--reviewer", two)
    assert "changes_requested" in cli(hub, "task", "reviews", project, task)
    assert said(hub, "task", "comment", project, task, "first")["author"] == "human"
    cli(hub, "task", "comment", project, task, "second", "--author", one)
    shown = cli(hub, "task", "comments", project, task, "--after", "1")
    assert "second" in shown and one in shown and "first" not in shown
    cli(hub, "task", "move", project, task, "done")
    cli(hub, "task", "edit", project, other, "--title", "new title", "--priority", "P0")
    cli(hub, "task", "assign", project, other, two)
    assert "new title" in cli(hub, "task", "ls", project, "--agent", two)
    cli(hub, "task", "unassign", project, other)
    cli(hub, "task", "move", project, other, "blocked", "--reason", "rain", "--blocked-by", task)
    assert re.search(r"Blocked reason\s+rain", cli(hub, "task", "show", project, other))
    cli(hub, "agent", "mode", two, "advisory")
    wishes = []
    for title in ("wanted", "unwanted"):
        wish = hub.task(project, title)
        wishes.append(said(hub, "task", "claim", project, wish, "--agent", two)["proposal_id"])
    assert all(w in cli(hub, "task", "proposals", "--agent", two, "--project", project) for w in wishes)
    assert "approved" in cli(hub, "task", "allow", wishes[0], "--note", "yes")
    assert "rejected" in cli(hub, "task", "refuse", wishes[1])
    lease = said(hub, "lease", "take", project, "src", "docs", "--agent", one, "--ttl", "10m", "--reason", "r")["id"]
    assert one in cli(hub, "lease", "take", project, "src/x", "--agent", two, rc=1)  # who holds it
    assert lease in cli(hub, "lease", "ls", project, "--agent", one, "--path", "src")
    cli(hub, "lease", "renew", project, lease, "--ttl", "1h")
    cli(hub, "lease", "release", project, lease)


# ---- the board ----

def on_terminal(hub, cols, *args):
    """A command on a terminal of this width; (process, its end of the terminal)."""
    ran.add("board")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, cols, 0, 0))
    env = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    process = subprocess.Popen([hub.server.binary, *args], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                               env={**env, "ATOLL_STATE": str(hub.server.state), "TERM": "xterm", "LC_ALL": "C.UTF-8"})
    os.close(slave)
    return process, master


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*[mHJ]", "", text.replace("\r\n", "\n"))


@pytest.fixture(scope="module")
def board(hub):
    project, one = hub.project("human", "the board"), hub.agent("ada")
    hub.task(project, "a very long title that has no room at all in a column", priority="P0")
    task = hub.task(project, "claimed", labels=["l"])
    hub.claim(project, task, one)
    hub.ok("POST", f"/projects/{project}/leases", {"agent": one, "paths": ["src"]}, 201)
    return project


@pytest.mark.parametrize("cols", [30, 80, 120, 200])
def test_the_board_fits_the_terminal(hub, board, cols):
    process, master = on_terminal(hub, cols, "board", board)
    text = plain(harness.read_pty(master).decode())
    assert process.wait(20) == 0
    assert all(len(line) <= cols for line in text.splitlines()), text
    for word in ("the board", "BACKLOG 1", "READY 1", "IN PROGRESS 0", "DONE 0", "@ada", "P2 claimed", "LEASES"):
        assert word in text, (word, text)
    beside = any("BACKLOG" in line and "DONE" in line for line in text.splitlines())
    assert beside == (cols >= 120)


def test_lanes(hub, board):
    text = cli(hub, "board", board, "--lanes", "agent")
    assert "agent: ada" in text and "agent: -" in text
    assert said(hub, "board", board, "--lanes", "label")["lanes_by"] == "label"
    assert "lanes" in cli(hub, "board", board, "--lanes", "x", rc=1)


def test_watching(hub):
    """Drawn again by every change, also over a restart of the server; ends when there is no board any more."""
    project = hub.project("human", "watched")
    process, master = on_terminal(hub, 120, "board", project, "--watch")
    got, lock = [b""], threading.Lock()

    def read():
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                return
            with lock:
                got[0] += data
    thread = threading.Thread(target=read, daemon=True)
    thread.start()

    def last():
        with lock:
            return plain(got[0].decode("utf-8", "replace").rsplit("\x1b[2J", 1)[-1])
    harness.wait_until(lambda: "BACKLOG 0" in last(), 10, "the board")
    hub.task(project, "the first")
    harness.wait_until(lambda: "the first" in last(), 10, "a change")
    hub.server.kill9_api(), hub.server.wait_ready()
    hub.task(project, "the second")
    harness.wait_until(lambda: "the second" in last() and "BACKLOG 2" in last(), 20, "a change after a restart")
    hub.ok("DELETE", f"/projects/{project}")
    assert process.wait(20 * harness.SLOW) != 0
    thread.join(10)
    os.close(master)
    assert "project not found" in last()


def test_watching_without_a_terminal(hub):
    project = hub.project("human", "piped")
    process = subprocess.Popen([hub.server.binary, "board", project, "--watch", "--json"], stdout=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True,
                               env={**os.environ, "ATOLL_STATE": str(hub.server.state)})
    assert json.loads(process.stdout.readline())["name"] == "piped"
    hub.task(project, "t")
    assert json.loads(process.stdout.readline())["columns"][0]["count"] == 1
    process.kill(), process.wait(), process.stdout.close()


def test_hostile_text_is_only_text(hub):
    project, one = hub.project(), hub.agent()
    hub.ok("POST", f"/agents/{one}/pause", {"reason": "\x1b[2J\u202e"})
    task = hub.task(project, "t", description="\x1b]0;owned\x07")
    hub.move(project, task, "blocked", blocked_reason="\x1b[31mred\r\n")
    two = hub.agent()
    hub.send(two, two, "\x1b[2J\x9b31m\u202e")
    for args in (("agent", "peer", one), ("task", "show", project, task), ("board", project), ("message", "ls", two)):
        text = cli(hub, *args)
        assert "\x1b" not in text and "\x9b" not in text and "\u202e" not in text, (args, text)
    assert "\\x1b[31mred" in cli(hub, "board", project)


def test_every_command_was_run(hub):
    listed = subprocess.run([hub.server.binary, "docs", "commands"], capture_output=True, text=True).stdout
    names = set(re.findall(r"^## `atoll ((?:%s)(?: [a-z-]+)?)[ `]" % "|".join(GROUPS), listed, re.M))
    linked = {"agent ls", "agent show", "agent start", "agent stop", "agent destroy", "agent rm", "agent rotate-secret",
              "agent commands", "agent set"}
    assert len(names) > 50 and names - ran - linked == set()
