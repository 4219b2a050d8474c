"""agentic's metrics move, and each alert rule of deploy/prometheus fires when its cause is there and not before."""
import json
import os
import re
import time

import harness
import promql
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
RULES = dict(re.findall(r"- alert: (\w+)\n(?:\s+#.*\n)?\s+expr: (.*)\n",
                        (harness.ROOT / "deploy/prometheus/atoll-alerts.yml").read_text()))
MIB = 1 << 20


def scrape(server):
    reply = server.get("/metrics", timeout=20)
    assert reply.status == 200
    return {**promql.scrape(reply.body.decode()), ("up", frozenset({("job", "atoll")})): 1.0}


def firing(before, after, seconds=10.0):
    return {name for name, expr in RULES.items() if promql.Query(expr, before, after, seconds).value()}


def value(scraped, name, **labels):
    return sum(v for (n, have), v in scraped.items() if n == name and set(labels.items()) <= have)


def test_there_are_the_seventeen_rules_and_the_series_of_each_panel(boxes):
    assert len(RULES) == 18
    harness.make_box(boxes, storage="memory")
    names = {name for name, _ in scrape(boxes)}
    board = json.loads((harness.ROOT / "deploy/grafana/atoll.json").read_text())
    for expr in [target["expr"] for panel in board["panels"] for target in panel["targets"]]:
        for name in re.findall(r"\b(?:atoll|agentic)_\w+", expr):
            if not name.startswith(("agentic_agent_cpu", "agentic_agent_memory", "agentic_agent_disk")):
                assert name in names, name


def test_agentics_names_move(boxes):
    before = scrape(boxes)
    box = harness.make_box(boxes, storage="memory", name="mover")
    assert harness.run_in(boxes, box, "true")["exit_code"] == 0
    assert harness.run_in(boxes, box, "sh", "-c", "sleep 0.2; exit 3")["exit_code"] == 3
    boxes.post(f"{BOXES}/{box}/execs", {"argv": ["sleep", "60"]})
    after = scrape(boxes)

    def moved(name, **labels):
        return value(after, name, **labels) - value(before, name, **labels)

    assert moved("agentic_commands_total") == 3
    assert (moved("agentic_commands_by_result", result="success"),
            moved("agentic_commands_by_result", result="failed")) == (1, 1)
    assert moved("agentic_command_latency_seconds_count") == 2 and moved("agentic_commands_duration_ms_count") == 2
    assert 200 <= moved("agentic_commands_duration_ms_sum") < 20000
    assert moved("agentic_command_latency_seconds_bucket", le="0.1") == 1, "one took longer"
    assert 0.2 <= moved("agentic_commands_duration_seconds_sum") < 20
    assert moved("agentic_agents_connected") == 1 and moved("agentic_agents_ready") == 1
    assert value(after, "agentic_agents_by_status", status="busy") == 1
    assert value(after, "agentic_agent_sessions_active", agent_id="mover", tenant="default") == 1
    assert value(after, "agentic_containers_by_status", status="running") == 1
    assert value(after, "agentic_uptime_seconds") >= 0


def test_alerts_of_agents_fire_by_what_agents_do(boxes):
    quiet = scrape(boxes)
    assert "NoAgentsConnected" in firing(quiet, quiet)
    box = harness.make_box(boxes, storage="memory", name="greedy", memory=128 * MIB, disk=64 * MIB, cpu_percent=20)
    about = {"AgentHighCPU", "AgentHighMemory", "AgentDiskFull", "NoAgentsConnected"}
    harness.wait_until(lambda: value(scrape(boxes), "agentic_agent_memory_total_bytes", agent_id="greedy") and
                       any(n == "agentic_agent_disk_used_bytes" for n, _ in scrape(boxes)), 15, "a sample", pause=1)
    assert not firing(quiet, scrape(boxes)) & about
    boxes.post(f"{BOXES}/{box}/execs", {"command": "head -c 62M /dev/zero > /workspace/full; "
                                                  "exec dd if=/dev/zero of=/dev/null bs=52M"})
    fire = about - {"NoAgentsConnected"}
    harness.wait_until(lambda: fire <= firing(quiet, scrape(boxes)), 40, "all three", pause=1)


def test_alerts_of_commands_fire_by_failing_commands(boxes):
    box = harness.make_box(boxes, storage="memory")
    before = scrape(boxes)
    for _ in range(20):
        harness.run_in(boxes, box, "true")
    about = {"HighCommandFailureRate", "CommandSuccessRate"}
    assert not firing(before, scrape(boxes)) & about
    for _ in range(3):
        harness.run_in(boxes, box, "false")
    assert firing(before, scrape(boxes)) >= about


def test_websocket_churn(boxes):
    before, begun = scrape(boxes), time.monotonic()
    for _ in range(40):
        with boxes.connect() as sock:
            sock.sendall(f"GET /ws HTTP/1.1\r\nHost: {boxes.host}\r\nAuthorization: Bearer {boxes.token}\r\nUpgrade: "
                         "websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                         "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n".encode())
            assert b" 101 " in sock.recv(4096)
    after, seconds = scrape(boxes), time.monotonic() - begun
    assert value(after, "agentic_ws_connections_total") - value(before, "agentic_ws_connections_total") == 40
    assert "HighWebSocketChurn" in firing(before, after, min(seconds, 3.9))
    assert "HighWebSocketChurn" not in firing(before, after, 60)


def series(name, amount, **labels):
    return {(name, frozenset(labels.items())): float(amount)}


def outcomes(**amounts):
    return {k: v for outcome, amount in amounts.items()
            for k, v in series("agentic_task_outcomes_total", amount, outcome=outcome).items()}


def latency(**amounts):
    return {k: v for le, amount in amounts.items()
            for k, v in series("agentic_command_latency_seconds_bucket", amount,
                               le={"s30": "30", "s60": "60", "inf": "+Inf"}[le]).items()}


def tasks(state, amount):
    return series("agentic_tasks_by_state", amount, state=state)


def inbox(amount):
    return series("agentic_agentshare_inbox_bytes", amount, agent_id="a")


LOOPS, LINKED = "atoll_sandbox_crash_loops_total", "agentic_agent_connected"


@pytest.mark.parametrize("rule, quiet, alarm", [
    ("ManagementServerDown", series("up", 1, job="atoll"), series("up", 0, job="atoll")),
    ("AgentDisconnected", series(LINKED, 1, agent_id="a"), series(LINKED, 0, agent_id="a")),
    ("CommandExecutionStalled", tasks("running", 0) | series("agentic_commands_total", 5),
     tasks("running", 1) | series("agentic_commands_total", 0)),
    ("SlowCommandExecution", latency(s30=20, s60=20, inf=20), latency(s60=18, inf=20)),
    ("HighTaskFailureRate", outcomes(success=10, failure=1), outcomes(success=8, failure=1)),
    ("HighTaskTimeoutRate", outcomes(success=20, timeout=1), outcomes(success=18, timeout=1)),
    ("TaskSuccessRate", outcomes(success=19, failure=1), outcomes(success=18, failure=1)),
    ("TaskQueueBacklog", tasks("pending", 10), tasks("pending", 11)),
    ("InboxQuotaWarning", inbox(40 << 30), inbox((40 << 30) + 1)),
    ("InboxQuotaExceeded", inbox(95 * (1 << 29)), inbox(95 * (1 << 29) + 1)),
    ("SandboxCrashLoop", series(LOOPS, 0), series(LOOPS, 1)),
])
def test_the_threshold_of_a_rule(rule, quiet, alarm):
    """At the limit and past it, for what cannot be caused here: there are no tasks and no inboxes yet."""
    zero = {key: 0.0 for key in quiet | alarm}
    assert rule not in firing(zero, quiet) and rule in firing(zero, alarm)
