"""The Python client of the hub (spokes) against the real server: every method once, what goes wrong, what breaks on the
way, and the life of an autonomous agent. Behaviours 77 and 78 of the original's tests are here."""
import contextlib
import inspect
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

import flaky
import harness
from hub import Hub, open_server, unique

SDK = harness.ROOT / "sdk" / "python"
sys.path.insert(0, str(SDK / "src"))
import spokes  # noqa: E402
from spokes import AgentClient, _loop  # noqa: E402

PYTHON = "/usr/bin/python3"
METHODS = {name for name, value in inspect.getmembers(AgentClient, inspect.isfunction) if not name.startswith("_")}
called = set()


@pytest.fixture(scope="module", autouse=True)
def note_calls():
    with pytest.MonkeyPatch.context() as patch:
        for name in METHODS:
            def note(self, *args, _real=getattr(AgentClient, name), _name=name, **kw):
                called.add(_name)
                return _real(self, *args, **kw)
            patch.setattr(AgentClient, name, note)
        yield


@pytest.fixture(scope="module")
def server():
    server = open_server(env={"ATOLL_HUB_MESSAGE_RATE": "100000", "ATOLL_HUB_HEARTBEAT_RATE": "100000"}).start()
    yield server
    server.stop()


@pytest.fixture
def agent(server):
    """Makes clients, registered; closed in the end."""
    with contextlib.ExitStack() as stack:
        def make(register=True, name=None, **kw):
            client = stack.enter_context(AgentClient(server.url + "/", name or unique(), "test", **kw))
            if register:
                client.register({"from": "the tests"})
            return client
        yield make


@contextlib.contextmanager
def looping(client, handler=None, **kw):
    """The loop in a thread; stopped in the end, and it must end. Gives what it failed with."""
    stop, errors, ended = threading.Event(), [], []

    def run():
        client.run_autonomous_loop(handler, poll_interval=0.02, heartbeat_interval=kw.pop("heartbeat_interval", 0.05),
                                   stop_event=stop, on_error=errors.append, **kw)
        ended.append(True)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield errors
    finally:
        stop.set()
        thread.join(20 * harness.SLOW)
        assert ended, "the loop did not end"


def until(condition, what, seconds=10):
    return harness.wait_until(condition, seconds, what)


# ---- every method ----

def test_an_agent(agent):
    one, two = agent(capabilities=["Code"], autonomy_mode="advisory"), agent()
    assert one.ping() and one.heartbeat() and one.ensure_registered()
    record = one.get_agent()
    assert (record["type"], record["autonomy_mode"], record["capabilities"]) == ("test", "advisory", ["Code"])
    one.register()  # keeps both, which the original lost
    assert one.get_agent()["capabilities"] == ["Code"] and one.get_agent()["autonomy_mode"] == "advisory"
    assert one.set_autonomy_mode("manual")["autonomy_mode"] == "manual" == one.get_agent()["autonomy_mode"]
    tag = unique("tag")
    assert one.set_capabilities([tag], "words")["tags"] == [tag]
    assert one.agents_with_capability(tag) == [one.agent_name]
    assert {"agent": one.agent_name, "tags": [tag], "description": "words"} in one.list_capabilities()
    assert one.agent_name in [a["name"] for a in one.list_agents(status="online", agent_type="test")]
    assert one.submit_checkpoint(None, "s", "r", {"m": 1})["sequence"] == 1
    assert two.get_checkpoint(one.agent_name)["rationale"] == "r"
    assert two.unregister() and not two.unregister() and not two.heartbeat()
    assert two.ensure_registered() and two.heartbeat()
    two.start_heartbeat(0.01)
    before = two.get_agent()["last_heartbeat"]
    until(lambda: two.get_agent()["last_heartbeat"] > before, "a heartbeat")
    two.stop_heartbeat()


def test_people(agent):
    human, one = agent(), agent()
    human.set_autonomy_mode("advisory", one.agent_name)
    project = human.create_project("p")["id"]
    tasks = [human.create_task(project, t)["id"] for t in ("a", "b")]
    wishes = [one.claim_task(project, t) for t in tasks]
    assert not wishes[0]["ok"] and wishes[0]["status"] == "proposed"
    assert {p["id"] for p in human.list_proposals("pending", one.agent_name, project)} == {
        w["proposal_id"] for w in wishes}
    assert human.approve_proposal(wishes[0]["proposal_id"], "yes")["state"] == "approved"
    assert human.reject_proposal(wishes[1]["proposal_id"], "no")["note"] == "no"
    assert one.get_proposal(wishes[0]["proposal_id"])["by"]
    assert human.pause_agent(one.agent_name, "r")["status"] == "busy"
    with pytest.raises(spokes.Conflict):
        one.send_message(human.agent_name, "x")
    assert human.resume_agent(one.agent_name)["status"] == "online"
    revoked = human.revoke_agent(one.agent_name, "r", flush_required=False)
    assert one.check_revocation() == {"pending": True, "revocation_id": revoked["revocation_id"], "reason": "r",
                                      "flush_required": False}
    assert not one.acknowledge_revocation(unique("none"))
    assert one.acknowledge_revocation(revoked["revocation_id"])
    assert human.revocation_history(1000)[-1]["acknowledged"]
    assert human.get_default_mode() == "fully_autonomous"
    assert human.set_global_mode("fully_autonomous", "nobody")["updated_agents"] == []
    assert any(e["action"] == "pause_agent" for e in human.audit_log(200))


def test_messages(agent):
    one, two = agent(), agent()
    first = one.send_message(two.agent_name, "1", thread=unique("thread"))
    second = two.send_message(one.agent_name, "2", reply_to=first["id"])
    assert [m["content"] for m in one.get_thread(second["thread"])] == ["1", "2"]
    assert [m["content"] for m in one.message_history(two.agent_name, 1)] == ["2"]
    assert [m["content"] for m in one.message_history(two.agent_name, before=second["id"])] == ["1"]
    assert two.wait_for_messages(5)[0]["id"] == first["id"] == two.get_messages(True, peek=True)[0]["id"]
    assert two.get_messages(limit=1)[0]["id"] == first["id"]
    assert two.get_messages(after=first["id"]) == []
    assert two.ack(first["id"]) and not two.ack("none")
    assert two.wait_for_messages(0.05, 0.01) == []
    assert {"from": one.agent_name, "to": two.agent_name, "count": 1} in one.message_graph()["edges"]
    channel = unique("channel")
    one.join_channel(channel), two.join_channel(channel)
    assert {"name": channel, "members": [one.agent_name, two.agent_name]}.items() <= next(
        c for c in one.list_channels() if c["name"] == channel).items()
    assert one.send_to_channel(channel, "all of you")["recipients"] == 1
    assert two.get_messages(True)[0]["channel"] == channel
    two.leave_channel(channel)


def test_projects_files_and_leases(agent):
    one, two = agent(), agent()
    project = one.create_project("named")["id"]
    assert two.join_project(project) and not two.join_project("none")
    assert [p["id"] for p in two.list_projects(two.agent_name)] == [project]
    assert one.get_project(project)["members"] == [one.agent_name, two.agent_name]
    one.set_wip_limit(project, "in_progress", 7)
    assert one.get_project(project)["wip_limits"]["in_progress"] == 7
    for data in (b"one", bytes(range(256))):
        said = two.upload_file(project, "d/e.bin", data)
    assert (said["version"], said["size"]) == (2, 256)
    assert one.download_file(project, "d/e.bin") == bytes(range(256))
    assert one.download_file(project, "d/e.bin", version=1) == b"one"
    assert [f["version"] for f in one.file_versions(project, "d/e.bin")] == [2, 1]
    assert [(f["filename"], f["uploader"]) for f in one.list_files(project)] == [("d/e.bin", two.agent_name)]
    with pytest.raises(spokes.InvalidRequest, match="filename"):
        one.upload_file(project, "../x", b"")
    with pytest.raises(spokes.AtollError):
        one.upload_file(project, 'a"b', b"")
    one.delete_file(project, "d/e.bin")
    with pytest.raises(spokes.NotFound):
        one.download_file(project, "d/e.bin")
    lease = one.take_lease(project, ["src"], ttl_seconds=60, reason="mine")
    with pytest.raises(spokes.Conflict) as caught:
        two.take_lease(project, ["src/x"])
    assert caught.value.details["holder"]["id"] == lease["id"]
    assert one.renew_lease(project, lease["id"], 600)["expires_at"] > lease["expires_at"]
    assert [x["id"] for x in two.list_leases(project, one.agent_name, "src/x")] == [lease["id"]]
    assert one.get_board(project)["leases"][0]["id"] == lease["id"]
    one.release_lease(project, lease["id"])
    assert one.delete_project(project) and not one.delete_project(project)


def test_tasks(agent):
    one, two = agent(capabilities=["code"]), agent()
    project = one.create_project("p")["id"]
    parent = one.create_task(project, "parent", "words", priority="P0", labels=["l"])["id"]
    task = one.create_task(project, "t", required_capabilities=["code"], required_reviewers=1,
                           parent_task_id=parent)["id"]
    data = one.create_task(project, "not ours", required_capabilities=["data"])["id"]
    assert [t["id"] for t in one.get_ready_tasks(project)] == [parent, task]
    assert data in [t["id"] for t in two.get_ready_tasks(project)]
    assert one.claim_task(project, task) == {"ok": True, "task_id": task}
    with pytest.raises(spokes.Conflict, match="already claimed by"):
        two.claim_task(project, task)
    assert [t["id"] for t in one.get_my_tasks(project)] == [task]
    assert one.transition_task(project, task, "in_progress") and not one.update_task(project, task, "done")
    assert one.get_task(project, task)["transitions"][-1]["by"] == one.agent_name
    one.add_reviewer(project, task, two.agent_name)
    one.move_task(project, task, "in_review", note="please")
    assert two.request_changes(project, task, "not yet")["status"] == "in_progress"
    assert one.update_task(project, task, "in_review")
    assert two.approve_task(project, task)["approvals"] == 1
    one.move_task(project, task, "done")
    assert [r["verdict"] for r in one.list_reviews(project, task)] == ["changes_requested", "approved"]
    assert two.comment_task(project, task, "well done")["number"] == 1
    one.comment_task(project, task, "thank you")
    assert [(c["author"], c["text"]) for c in one.list_comments(project, task)] == [
        (two.agent_name, "well done"), (one.agent_name, "thank you")]
    assert [c["text"] for c in two.list_comments(project, task, after=1, limit=5)] == ["thank you"]
    one.change_task(project, parent, title="new", priority="P3", labels=["m"], description="d")
    (found,) = one.list_tasks(project, label="m")
    assert (found["title"], found["priority"], found["subtasks"]) == ("new", "P3", [task])
    one.assign_task(project, parent, two.agent_name)
    assert [t["id"] for t in two.find_tasks(assigned_to=two.agent_name)] == [parent]
    one.unassign_task(project, parent)
    assert one.transition_task(project, parent, "blocked", "why", [data])
    assert one.list_tasks(project, include_blocked=False, status="blocked") == []
    assert one.get_metrics(project, window=3600, bucket=600)["completed_count"] == 1
    assert one.get_board(project, "priority")["lanes_by"] == "priority"


# ---- the inbox and the loop: 77, 78 and more ----

def test_process_inbox(agent):
    """Behaviour 77: in order, each acknowledged, and how many there were."""
    one, two = agent(), agent()
    for text in ("1", "2", "3"):
        one.send_message(two.agent_name, text)
    got = []
    assert two.process_inbox(lambda m: got.append(m["content"]), max_messages=2) == 2
    assert got == ["1", "2"]
    with pytest.raises(ZeroDivisionError):
        two.process_inbox(lambda m: 1 // 0)
    assert [m["content"] for m in two.get_messages(True)] == ["3"]  # not acknowledged


def test_the_loop_registers_handles_and_acknowledges(agent):
    """Behaviour 78: and it sends heartbeats."""
    one, two = agent(), agent(register=False)
    got = []
    with looping(two, lambda m: got.append(m["content"])):
        until(lambda: two.agent_name in [a["name"] for a in one.list_agents()], "its registration")
        one.send_message(two.agent_name, "hi")
        until(lambda: got == ["hi"] and two.get_messages(True) == [], "the message")
        before = two.get_agent()["last_heartbeat"]
        until(lambda: two.get_agent()["last_heartbeat"] > before, "a heartbeat")
    assert two.get_messages()[0]["acknowledged"]


def test_no_message_is_handled_twice(agent, monkeypatch):
    """Also when acknowledgements get lost: the hub gives it again and again, the handler gets it once."""
    one, two = agent(), agent()
    got, given = [], []
    monkeypatch.setattr(two, "ack", lambda message: given.append(message) and False)
    for n in range(5):
        one.send_message(two.agent_name, str(n))
    with looping(two, lambda m: got.append(m["content"])):
        until(lambda: len(given) > 25, "many deliveries")
    assert got == ["0", "1", "2", "3", "4"]


def test_a_journal_outlives_the_process(agent, tmp_path, monkeypatch):
    one, two = agent(), agent()
    journal, got = tmp_path / "journal", []
    with monkeypatch.context() as lost:
        lost.setattr(two, "ack", lambda message: False)
        first = one.send_message(two.agent_name, "before")["id"]
        with looping(two, lambda m: got.append(m["content"]), journal=str(journal)):
            until(lambda: got, "the message")
    assert journal.read_text() == first + "\n"
    with open(journal, "a") as file:
        file.write("half of an i")  # as a crash leaves it
    one.send_message(two.agent_name, "after")
    with looping(two, lambda m: got.append(m["content"]), journal=str(journal)):
        until(lambda: two.get_messages(True) == [], "both acknowledged")
    assert got == ["before", "after"] and "half" not in journal.read_text()


def test_a_journal_forgets_the_oldest(tmp_path, monkeypatch):
    monkeypatch.setattr(_loop, "REMEMBERED", 3)
    journal = spokes.Journal(str(tmp_path / "j"))
    for n in range(5):
        journal.add(str(n)), journal.add(str(n))
    journal.close()
    again = spokes.Journal(str(tmp_path / "j"))
    assert ["1" in again, "2" in again, "4" in again] == [False, True, True]
    again.close()
    assert (tmp_path / "j").read_text() == "2\n3\n4\n"


def test_what_fails_is_tried_again(agent, monkeypatch):
    monkeypatch.setattr(_loop, "PAUSE_FIRST", 0.05)
    one, two = agent(), agent()
    got = []

    def handler(message):
        got.append(message["content"])
        if len(got) < 3:
            raise ValueError("not yet")
    one.send_message(two.agent_name, "x")
    with looping(two, handler) as errors:
        until(lambda: two.get_messages(True) == [], "the third attempt")
    assert got == ["x"] * 3 and [str(e) for e in errors] == ["not yet"] * 2


def test_the_loop_does_tasks(agent):
    human, one = agent(), agent(capabilities=["code"])
    project = human.create_project("p")["id"]
    one.join_project(project)
    tasks = {title: human.create_task(project, title, priority=priority, required_capabilities=needs)["id"]
             for title, priority, needs in (("second", "P2", ["code"]), ("first", "P0", []), ("bad", "P3", []),
                                            ("other's", "P0", ["data"]))}
    done = []

    def work(work):
        done.append(work.task["title"])
        assert work.client.get_task(project, work.task_id)["status"] == "in_progress"
        if work.task["title"] == "bad":
            raise ValueError("it is\nbad")
        return "in_review"
    with looping(one, task_handler=work):
        until(lambda: human.get_task(project, tasks["bad"])["status"] == "blocked", "the last task")
        assigned = human.create_task(project, "assigned", assigned_to=one.agent_name)["id"]
        human.assign_task(project, assigned, one.agent_name)
        until(lambda: human.get_task(project, assigned)["status"] == "in_review", "what was assigned")
    assert done == ["first", "second", "bad", "assigned"]
    found = {t["title"]: t for t in human.list_tasks(project)}
    assert found["bad"]["blocked_reason"] == "ValueError: it is\nbad" and found["other's"]["status"] == "backlog"
    assert found["first"]["claimed_by"] == one.agent_name


def test_two_loops_share_tasks_without_doing_any_twice(agent):
    human, workers, done = agent(), [agent() for _ in range(3)], []
    project = human.create_project("p")["id"]
    human.set_wip_limit(project, "in_review", 12)
    for n in range(12):
        human.create_task(project, str(n))

    def work(work):
        done.append(work.task["title"])
        return "in_review"
    with contextlib.ExitStack() as stack:
        for one in workers:
            stack.enter_context(looping(one, task_handler=work, projects=[project]))
        until(lambda: len(human.list_tasks(project, status="in_review")) == 12, "all tasks", 30)
    assert sorted(done, key=int) == [str(n) for n in range(12)]


def test_an_advisory_loop_waits_for_people(agent):
    human, one = agent(), agent(autonomy_mode="advisory")
    project, done = human.create_project("p")["id"], []
    task = human.create_task(project, "t")["id"]
    with looping(one, task_handler=lambda work: done.append(work.task_id) or "in_review", projects=[project]):
        for status, shown, begun in ((None, "ready", False), ("in_progress", "in_progress", False),
                                     ("in_review", "in_review", True)):
            wish = until(lambda: human.list_proposals("pending", one.agent_name), "a proposal")[0]
            assert wish["status"] == status and done == [task] * begun
            human.approve_proposal(wish["id"])
            assert human.get_task(project, task)["status"] == shown
    assert done == [task] and len(human.list_proposals(agent=one.agent_name)) == 3
    assert not one.transition_task(project, task, "done") and len(human.list_proposals("pending")) == 1


def test_checkpoints_come_when_due(agent):
    one, human = agent(), agent()
    project = human.create_project("p")["id"]
    task, release = human.create_task(project, "long")["id"], threading.Event()

    def work(work):
        work.checkpoint("half", "by myself")
        work.state = "nearly"
        release.wait(60)
        return "in_review"
    with looping(one, task_handler=work, projects=[project], heartbeat_interval=0.02):
        point = until(lambda: (p := checkpoint(one)) and p["sequence"] >= 2 and p, "a checkpoint")
        assert (point["task_id"], point["state"]) == (task, "nearly")
        release.set()
        until(lambda: (checkpoint(one) or {}).get("state") == "idle", "one without work")
    assert one.get_agent()["status"] == "online"  # never stalled


def checkpoint(client):
    try:
        return client.get_checkpoint()
    except spokes.NotFound:
        return None


@pytest.mark.parametrize("after", ["resume", "stop"])
def test_a_revocation_is_honoured(agent, after):
    """The work is told, what there is can be saved, and only then is it acknowledged. Then it goes on, or ends."""
    human, one, stop, ended = agent(), agent(), threading.Event(), threading.Event()
    project = human.create_project("p")["id"]
    task, saved, begun, told = human.create_task(project, "t")["id"], [], [], []

    def work(work):
        begun.append(work.task_id)
        told.append(work.stop.wait(60))
        return "in_review" if len(begun) > 1 else None

    def save(revocation):
        saved.append((revocation["reason"], one.check_revocation()["pending"]))

    def live():
        one.run_autonomous_loop(task_handler=work, projects=[project], poll_interval=0.02, heartbeat_interval=0.05,
                                on_revoked=save, after_revocation=after, stop_event=stop)
        ended.set()
    threading.Thread(target=live, daemon=True).start()
    until(lambda: begun, "the task")
    revocation = human.revoke_agent(one.agent_name, "enough")["revocation_id"]
    until(lambda: not one.check_revocation()["pending"], "the acknowledgement")
    assert told == [True] and saved == [("enough", True)]
    assert next(h for h in human.revocation_history(1000) if h["id"] == revocation)["acknowledged"]
    if after == "resume":
        until(lambda: len(begun) == 2, "the task again")
        stop.set()
    assert ended.wait(40 * harness.SLOW)
    assert human.get_task(project, task)["status"] == ("in_review" if after == "resume" else "in_progress")
    assert human.get_agent(one.agent_name)["status"] == "online"


def test_a_paused_agent_waits(agent):
    human, one = agent(), agent()
    project, done = human.create_project("p")["id"], []
    human.pause_agent(one.agent_name)
    human.create_task(project, "t")
    with looping(one, task_handler=lambda work: done.append(1) or "in_review", projects=[project]):
        time.sleep(0.3)
        assert done == []
        human.resume_agent(one.agent_name)
        until(lambda: done, "the task")


def test_an_agent_that_was_taken_off_comes_back(server, agent):
    one = agent(capabilities=["code"])
    with looping(one, print):
        Hub(server).ok("DELETE", f"/agents/{one.agent_name}")
        until(lambda: Hub(server).record(one.agent_name), "its return")
        assert one.get_agent()["capabilities"] == ["code"]


def test_a_loop_without_a_hub_says_so():
    with AgentClient("http://127.0.0.1:9", "nobody", retries=0) as client:
        with pytest.raises(RuntimeError, match="register"):
            client.run_autonomous_loop(print)


# ---- what breaks on the way ----

def test_a_send_whose_answer_is_lost_is_sent_once(server, agent):
    two = agent()
    proxy = flaky.Flaky(server.port)
    try:
        with AgentClient(proxy.address, unique()) as one:
            one.register()
            proxy.cut(1)
            one.send_message(two.agent_name, "once")
            proxy.cut(1)
            project = one.create_project("once")["id"]
            assert [m["content"] for m in two.get_messages()] == ["once"]
            assert len(one.list_projects(one.agent_name)) == 1
            task = one.create_task(project, "t")["id"]
            one.claim_task(project, task)
            proxy.cut(1)
            one.move_task(project, task, "in_progress")  # its first answer, not "invalid transition"
    finally:
        proxy.close()


def test_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with AgentClient(url, "x", timeout=0.2, retries=0) as client:
            with pytest.raises(spokes.RequestTimeout):
                client.send_message("y", "z")
            assert client.heartbeat() is False and client.ensure_registered() is False


def test_events_go_on_over_a_kill(server, agent):
    one, got = agent(), []
    project = one.create_project("p")["id"]

    def follow():
        for event in one.events(types=["task_created"], project=project, since="0"):
            got.append(event.data["task"]["title"])
            if event.data["task"]["title"] == "9":
                return
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    for n in range(10):
        one.create_task(project, str(n))
        if n == 4:
            until(lambda: got, "the first event")
            server.kill9_api(), server.wait_ready()
    thread.join(30 * harness.SLOW)
    assert got == [str(n) for n in range(10)]


@pytest.mark.timeout(120)
def test_the_loop_goes_on_over_kills(server, agent):
    human, one = agent(), agent()
    project, done, got = human.create_project("p")["id"], [], []
    with looping(one, lambda m: got.append(m["content"]), projects=[project],
                 task_handler=lambda work: done.append(work.task["title"]) or "in_review"):
        for n in range(5):
            human.create_task(project, str(n))
            human.send_message(one.agent_name, str(n))
            server.kill9_api(), server.wait_ready()
        until(lambda: len(human.list_tasks(project, status="in_review")) == 5, "all tasks", 40)
        until(lambda: one.get_messages(True) == [], "all messages", 40)
    assert got == [str(n) for n in range(5)]
    assert sorted(set(done)) == [str(n) for n in range(5)]


def test_what_has_no_room_is_told_later(agent):
    human, one = agent(), agent()
    project = human.create_project("p")["id"]
    human.set_wip_limit(project, "in_review", 0)
    task, done = human.create_task(project, "t")["id"], []
    with looping(one, task_handler=lambda work: done.append(1) or "in_review", projects=[project]) as errors:
        until(lambda: any("WIP limit" in str(e) for e in errors), "the refusal")
        human.set_wip_limit(project, "in_review", 1)
        until(lambda: human.get_task(project, task)["status"] == "in_review", "its place")
    assert done == [1]


# ---- credentials ----

def test_tokens_and_signatures():
    server = harness.Server().start()
    try:
        made = [server.new_token("agent", name=unique("a"), signing=signing) for signing in (False, True)]
        with AgentClient(server.url, made[0]["name"], token=made[0]["token"]) as bearer, \
                AgentClient(server.url, made[1]["name"], token=made[1]["token"], key_id=made[1]["id"]) as signer, \
                AgentClient(server.url, "nobody", retries=0) as nobody:
            for one in (bearer, signer):
                one.register()
            signer.send_message(bearer.agent_name, "signed")
            project = signer.create_project("p")["id"]
            signer.upload_file(project, "f", b"signed too")
            assert signer.download_file(project, "f") == b"signed too"
            assert [m["content"] for m in bearer.get_messages()] == ["signed"]
            with pytest.raises(spokes.Unauthenticated):
                nobody.list_agents()
            signer.agent_name = bearer.agent_name
            with pytest.raises(spokes.Forbidden):
                signer.send_message("x", "as another")
            signer.agent_name = made[1]["name"]
            proxy = flaky.Flaky(server.port)
            with AgentClient(proxy.address, signer.agent_name, token=made[1]["token"], key_id=made[1]["id"]) as again:
                proxy.cut(2)  # each attempt has a signature of its own, or the second would be a replay
                again.send_message(bearer.agent_name, "again")
            proxy.close()
            assert [m["content"] for m in bearer.get_messages()] == ["signed", "again"]
        with pytest.raises(spokes.AtollError, match="give that token too"):
            AgentClient(server.url, "x", key_id="tok")
    finally:
        server.stop()


def test_a_rate_limit_says_when():
    server = open_server(env={"ATOLL_HUB_MESSAGE_RATE": "1"}).start()
    try:
        with AgentClient(server.url, unique()) as one:
            one.send_message("x", "1")
            with pytest.raises(spokes.RateLimited) as caught:
                one.send_message("x", "2")
            assert 1 <= caught.value.retry_after <= 60 and caught.value.status == 429
    finally:
        server.stop()


# ---- looking back ----

def test_every_method_was_called():
    assert METHODS - called == set()


def examples():
    return re.findall(r"^```python\n(.*?)^```", (SDK / "SPOKES.md").read_text(), re.M | re.S)


@pytest.mark.timeout(120)
def test_the_examples_of_the_readme(start_server, tmp_path):
    server = start_server(args=["--auth", "open"])
    script = tmp_path / "examples.py"
    script.write_text("\n".join(examples()) + "\nprint('all of them')\n")
    done = subprocess.run([PYTHON, "-W", "error", "-X", "dev", script], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "PYTHONPATH": str(SDK / "src"), "HUB_URL": server.url})
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    assert done.stdout.endswith("all of them\n") and len(examples()) >= 5


@pytest.mark.timeout(120)
@pytest.mark.parametrize("auth", ["open", "token"])
def test_two_agents_review_each_other(start_server, auth):
    server = start_server(args=["--auth", auth])
    env = {**os.environ, "PYTHONPATH": str(SDK / "src")}
    if auth == "token":
        for name in ("ada", "eve"):
            env[name.upper() + "_TOKEN"] = server.new_token("agent", name=name)["token"]
    done = subprocess.run([PYTHON, "-W", "error", SDK / "examples" / "review_each_other.py", server.url, "5"],
                          capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    assert "done: 5 of 5" in done.stdout
    assert done.stdout.count("approved:") == 5 == done.stdout.count("back to")


def test_types(tmp_path):
    if not shutil.which("mypy"):
        pytest.skip("mypy is not installed")
    script = tmp_path / "examples.py"
    script.write_text("\n".join(examples()))
    done = subprocess.run(["mypy", "--strict", "--python-version", "3.9", "--cache-dir", tmp_path / "cache",
                           "--no-error-summary", SDK / "src" / "spokes", SDK / "examples", script],
                          capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(SDK / "src")})
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_holds_what_it_needs():
    assert (SDK / "src" / "spokes" / "py.typed").exists()
    assert "spokes" in (SDK / "pyproject.toml").read_text()
    imports = set()
    for path in pathlib.Path(SDK / "src" / "spokes").glob("*.py"):
        imports |= set(re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.M))
    assert imports <= set(sys.stdlib_module_names) | {"atoll"}
