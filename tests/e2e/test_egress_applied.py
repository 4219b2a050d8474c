"""The row `egress` of what is applied to a sandbox, and the mode that holds for it in lists."""
import os
import signal

import harness
import pytest
from harness import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


def process(server):
    found = [pid for pid in harness.descendants(server.warden_pid)
             if harness.cmdline(pid).split()[1:2] == ["egress"] and harness.alive(pid)]
    return found[0] if len(found) == 1 else None


def row(server, box):
    return {one["layer"]: one for one in server.get(f"{BOXES}/{box}/applied").json()["layers"]}["egress"]


def holds(server, box):
    """The row, once the egress process has said that the policy holds."""
    wait_until(lambda: row(server, box)["lost"] is None, 10, "the policy to hold")
    return row(server, box)


def policy(text):
    return int(text.split("policy ")[1].split(",")[0])


def test_the_policy_that_was_acknowledged(boxes):
    box = harness.make_box(boxes, name="shown")
    first = holds(boxes, box)
    assert first["asked"].startswith("mode deny, policy ") and first["applied"].endswith("for every connection")
    assert policy(first["asked"]) == policy(first["applied"])
    assert boxes.request("PATCH", f"{BOXES}/{box}", {"egress": {"mode": "ask"}}).json()["egress_mode"] == "ask"
    second = holds(boxes, box)
    assert second["asked"].startswith("mode ask, ") and policy(second["applied"]) > policy(first["applied"])
    assert policy(second["asked"]) == policy(second["applied"])


def test_it_is_lost_while_there_is_no_egress_process(boxes):
    box = harness.make_box(boxes, name="lonely")
    before = holds(boxes, box)
    pid = process(boxes)
    os.kill(pid, signal.SIGSTOP)
    try:  # it cannot say that it has the new policy
        assert boxes.request("PATCH", f"{BOXES}/{box}", {"egress": {"mode": "open"}}).status == 200
        waiting = row(boxes, box)
        assert "has not said" in waiting["lost"] and waiting["applied"] == before["applied"]
    finally:
        os.kill(pid, signal.SIGKILL)  # a stopped process ends, too
    wait_until(lambda: row(boxes, box)["applied"] != before["applied"], 10, "the link to be gone")
    after = holds(boxes, box)
    assert after["asked"].startswith("mode open, ") and policy(after["asked"]) == policy(after["applied"])
    assert process(boxes) != pid


def test_lists_show_tier_and_mode(boxes):
    harness.make_box(boxes, name="strong", egress={"mode": "open"})
    harness.make_box(boxes, name="nested", nesting=True)
    shown = {box["name"]: box for box in boxes.get(BOXES).json()["items"]}
    assert (shown["strong"]["tier"], shown["strong"]["egress_mode"]) == ("T3", "open")
    assert (shown["nested"]["tier"], shown["nested"]["egress_mode"]) == ("T1", "deny")
    lines = boxes.cli("ls").stdout.splitlines()
    assert lines[0].replace("_", " ").split()[3:6] == ["TIER", "EGRESS", "MODE"]
    assert [line.split()[3:5] for line in lines[1:]] == [["T3", "open"], ["T1", "deny"]]
    told = boxes.cli("show", "strong").stdout
    assert "mode open, policy" in told and "T3" in told
