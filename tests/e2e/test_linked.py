"""Linked agents are seen and removed: by requests, by the command line, and in the dashboard."""
import os
import time
import uuid

import harness
import pytest
from agents import Client, Peer
from dash import WAIT, click, go, says

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root"), pytest.mark.timeout(120)]
AGENTS = "/api/v1/agents"


@pytest.fixture
def client(server, tmp_path):
    name = f"link-{uuid.uuid4().hex[:8]}"
    secret = server.post("/api/v1/secrets", {"agent_id": name}).json()["secret"]
    made = Client(server, name, secret, tmp_path).start()
    yield made
    made.stop()
    server.delete(f"/api/v1/secrets/{name}")


def names(server):
    return [one["id"] for one in server.get(AGENTS).json()["agents"] if one["runtime"] == "link"]


def test_one_that_left_is_removed(server, client):
    """It was listed, and every verb said that it did not exist."""
    done = server.post(f"{AGENTS}/{client.agent}/commands?wait=10000", {"command": "true"}).json()
    assert client.stop() == 0
    assert client.agent in names(server)
    removed = server.delete(f"{AGENTS}/{client.agent}?force=false")
    assert removed.status == 200, removed
    assert removed.json() == {"deleted": True, "name": client.agent, "disk_deleted": False}
    assert client.agent not in names(server)
    assert server.get(f"{AGENTS}/{client.agent}").status == 404
    assert server.delete(f"{AGENTS}/{client.agent}").status == 404
    assert client.agent not in [one["name"] for one in server.get("/api/v1/secrets").json()["items"]]
    assert server.get(f"{AGENTS}/{client.agent}/commands/{done['command_id']}").json()["exit_code"] == 0
    events = server.get(f"/api/v1/events?object=agent/{client.agent}&limit=1000").json()["items"]
    assert events[-1]["type"] == "agent.removed"


def test_one_that_is_connected_is_removed_on_request(server, client):
    kept = server.delete(f"{AGENTS}/{client.agent}?force=false")
    assert kept.status == 409 and "is connected" in kept.json()["error"], kept
    viewer = server.new_token("viewer")["token"]
    assert server.delete(f"{AGENTS}/{client.agent}", token=viewer).status == 403
    done = server.cli("agent", "rm", client.agent)
    assert done.returncode == 0, done.stderr
    harness.wait_until(lambda: client.agent not in names(server), 10, "the agent to be gone")
    time.sleep(0.5)
    assert client.agent not in names(server), "its secret is gone: it cannot come back"


def test_sessions_of_linked_agents_are_tailed(server, client):
    made = server.post(f"{AGENTS}/{client.agent}/sessions", {"command": "sh", "args": ["-c", "echo tailed; sleep 1"],
                                                             "session_name": "seen"})
    assert made.status == 200, made
    done = server.cli("session", "tail", "seen", "--timeout", "20s", timeout=40)
    assert done.returncode == 0 and "tailed" in done.stdout, done


@pytest.mark.parametrize("width, height", [(1440, 900), (390, 844)])
def test_the_dashboard_lists_and_removes_them(server, page, client, width, height):
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
    try:
        server.post(f"{AGENTS}/{client.agent}/commands?wait=10000", {"command": "echo", "args": ["seen"]})
        commands = f"{AGENTS}/{client.agent}/commands"
        sleeps = server.post(commands, {"command": "sleep", "args": ["60"]}).json()["command_id"]
        go(page, "sandboxes")
        go(page, "linked")
        for text in (client.agent, "1 run, 2 kept", "sleep 60", os.uname().nodename):
            says(page, text)
        page.picture(f"linked-{width}.png")
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), "the page does not scroll sideways"
        button = f"document.querySelector('[aria-label=\"Remove {client.agent}\"]').getBoundingClientRect()"
        assert page.run(f"{button}.right <= innerWidth"), "and what removes an agent is in sight"
        server.post(f"{commands}/{sleeps}/signal", {"signal": "KILL"})  # it would outlive the client
        harness.wait_until(lambda: server.get(f"{commands}/{sleeps}").json()["state"] != "running", 10, "its end")
        assert client.stop() == 0
        says(page, "Disconnected")  # told by its event, without a reload
        page.run(f"document.querySelector('[aria-label=\"Remove {client.agent}\"]').click(); null")
        says(page, f"Remove {client.agent}?")
        page.picture(f"linked-remove-{width}.png")
        click(page, "Remove", "document.querySelector('dialog')")
        page.wait(f"!document.querySelector('main').innerText.includes({client.agent!r})", WAIT)
        assert client.agent not in names(server)
        says(page, "No agent is linked")
        assert not page.complaints()
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")


def test_streams_that_are_cancelled_count_as_a_crash_loop(server):
    """A client that registers and cuts its stream, again and again; one that ends it as agreed does not count."""
    for asks, loops in ((False, True), (True, False)):
        name = f"link-{uuid.uuid4().hex[:8]}"
        secret = server.post("/api/v1/secrets", {"agent_id": name}).json()["secret"]
        for _ in range(6):
            peer = Peer(server, name, secret)
            peer.ready()
            if asks:
                peer.out.put(None)
                peer.end()
            else:
                peer.call.cancel()
                peer.channel.close()
            harness.wait_until(lambda: server.get(f"{AGENTS}/{name}").json()["status"] == "Disconnected", 10, "its end")
            peer.close()
        assert server.get(f"{AGENTS}/{name}").json()["crash_loop"] is loops, asks
        assert server.delete(f"{AGENTS}/{name}").status == 200
