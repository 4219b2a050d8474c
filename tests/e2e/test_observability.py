"""Logs, metrics, health, request ids, traces: what an operator looks at must move and must not lie."""
import json
import re
import signal
import time

import harness
import pytest

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def metrics(server):
    """name{labels} -> value."""
    reply = server.get("/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = {}
    for line in reply.body.decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values


def total(values, name):
    return sum(v for k, v in values.items() if k == name or k.startswith(name + "{"))


def test_metrics_are_well_formed(server):
    text = server.get("/metrics").body.decode()
    assert text.endswith("\n")
    typed = set(re.findall(r"^# TYPE (\w+) (?:counter|gauge|histogram)$", text, re.M))
    helped = set(re.findall(r"^# HELP (\w+) \S", text, re.M))
    assert typed and typed == helped
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r'(\w+)(\{\w+="[^"]*"(,\w+="[^"]*")*\})? -?[0-9.e+-]+', line)
        assert match, line
        assert re.sub(r"_(bucket|sum|count)$", "", match.group(1)) in typed or match.group(1) in typed, line


@pytest.mark.parametrize("do,name", [
    (lambda s: s.get("/api/v1/whoami"), "atoll_api_calls_total"),
    (lambda s: s.get("/api/v1/whoami", headers={"Host": "evil.example"}), 'atoll_api_refused_total{why="host"}'),
    (lambda s: s.get("/api/v1/whoami", headers={"Origin": "http://evil"}), 'atoll_api_refused_total{why="origin"}'),
    (lambda s: s.get("/no/such/path"), 'atoll_api_refused_total{why="not_found"}'),
    (lambda s: s.post("/api/v1/echo", {}), "atoll_api_"),
])
def test_counters_move(server, do, name):
    before = metrics(server)
    for _ in range(3):
        do(server)
    after = metrics(server)
    if name in after:
        assert after[name] - before.get(name, 0) == 3, name
    else:
        assert sum(v for k, v in after.items() if k.startswith(name)) > sum(
            v for k, v in before.items() if k.startswith(name))


def test_the_stream_gauge_counts_streams(server):
    name = 'atoll_event_streams{kind="sse"}'
    before = metrics(server)[name]
    streams = [server.sse() for _ in range(3)]
    harness.wait_until(lambda: metrics(server)[name] == before + 3, 5, "three more streams")
    for stream in streams:
        stream.close()
    harness.wait_until(lambda: metrics(server)[name] == before, 5, "their end")


def test_requests_and_commits_are_measured(server):
    before = metrics(server)
    for _ in range(5):
        server.post("/api/v1/notes", {"text": "x"})
    after = metrics(server)
    moved = {k for k in after if after[k] > before.get(k, 0)}
    assert any("http" in k for k in moved), moved
    assert any("store" in k or "commit" in k for k in moved), moved


def test_health_needs_no_token_and_no_host(server, peer):
    for path, status in (("/healthz", "alive"), ("/readyz", "ready")):
        reply = server.get(path, token=None, source=peer, headers={"Host": "10.0.0.1"})
        assert reply.status == 200, reply
        assert reply.json()["status"] == status


def test_readiness_ends_before_the_server_does(start_server):
    server = start_server(env={"ATOLL_DRAIN": "5s"})
    body = b'{"text":"slow"}'
    with server.connect() as sock, server.connect() as probe:
        sock.sendall((f"POST /api/v1/echo HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: Bearer {server.token}\r\n"
                      f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode())
        ask = f"GET /readyz HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode()
        probe.sendall(ask)
        assert harness.read_reply(probe).status == 200
        server.process.terminate()
        time.sleep(0.3)
        # What was under way is finished; the idle connection may be closed or told.
        sock.sendall(body)
        assert harness.read_reply(sock).status == 200
        try:
            probe.sendall(ask)
            assert harness.read_reply(probe).status == 503
        except (OSError, EOFError):
            pass


@pytest.mark.parametrize("given,kept", [
    ("abc-DEF_1.2", True), ("x" * 64, True), ("x" * 65, False), ("bad id", False), ("a\"b", False), ("ü", False),
    ("", False),
])
def test_request_ids(server, given, kept):
    reply = server.get("/api/v1/version", headers={"X-Request-Id": given.encode()})
    assert (reply.headers["x-request-id"] == given) is kept
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", reply.headers["x-request-id"])


def test_request_ids_made_by_the_server_differ(server):
    assert len({server.get("/api/v1/version").headers["x-request-id"] for _ in range(50)}) == 50


def test_a_trace_is_logged(server):
    server.get("/api/v1/version", headers={"traceparent": TRACE, "X-Request-Id": "traced-1"})
    line = harness.wait_until(lambda: [x for x in server.log().splitlines() if "traced-1" in x], 5, "the log line")[0]
    assert TRACE in line and "version.read" in line


def test_json_logs_are_one_object_a_line(start_server):
    server = start_server(env={"ATOLL_LOG_FORMAT": "json", "ATOLL_LOG_LEVEL": "debug"})
    server.get("/api/v1/version", headers={"traceparent": TRACE})
    server.get("/nowhere")
    server.stop(remove=False)
    lines = [x for x in server.log().splitlines() if x.startswith("{")]
    assert len(lines) >= 2
    for line in lines:
        entry = json.loads(line)
        assert {"time", "level"} <= set(entry), line
    server.start()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_logs_escape_what_a_peer_sent(start_server, log_format):
    """Nothing that a peer sends may begin a line, command a terminal or look like another entry."""
    server = start_server(env={"ATOLL_LOG_LEVEL": "debug", "ATOLL_LOG_FORMAT": log_format})
    server.raw(b"GET /\x1b[31m HTTP/1.1\r\nHost: " + server.host.encode() + b"\r\n\r\n")
    server.get("/%0Aforged%1b[2J%c2%9b%e2%80%ae", headers={"Host": "evil\u009bhost".encode("utf-8")})
    server.get("/api/v1/tokens?x=%0aforged", headers={"traceparent": TRACE})
    server.delete("/api/v1/tokens/%0Aforged%1b%5b2J")
    server.get("/api/v1/whoami", headers={"User-Agent": "x\tforged", "traceparent": "x" * 50 + "\t\x80for".encode(
        "latin-1").decode("latin-1")})
    time.sleep(0.2)
    raw = server.log_path.read_bytes()
    assert not re.search(rb"^forged", raw, re.M)
    bad = [b for b in raw if b < 32 and b != 10] + [b for b in raw if b == 127]
    assert not bad, bad
    assert "\u009b" not in raw.decode("utf-8") and "\u202e" not in raw.decode("utf-8")


def test_logs_hold_no_secret(start_server, peer):
    server = start_server(env={"ATOLL_LOG_LEVEL": "debug"})
    made = server.new_token("admin", signing=True)
    wrong = "atl_" + "w" * 43
    server.get("/api/v1/whoami", token=made["token"])
    server.get("/api/v1/whoami", token=wrong, source=peer)
    server.signed("GET", "/api/v1/whoami", made["id"], made["token"])
    link = server.post("/api/v1/login-links").json()["url_path"]
    code = link.split("login=")[1]
    login = server.post("/login", {"code": code}, token=None)
    cookie = login.headers["set-cookie"].split("=", 1)[1].split(";")[0]
    server.get("/api/v1/whoami", token=None, headers={"Cookie": "atoll_session=" + cookie})
    time.sleep(0.2)
    log = server.log()
    for secret in (made["token"], wrong, server.token, code, cookie, login.json()["csrf"]):
        # The first start prints its own login link, once, to the terminal; that code is another one.
        assert secret not in log


# ---- the machine, and what is allowed ----

def checked(server):
    return harness.wait_until(lambda: (r := server.get("/api/v1/doctor")).status == 200 and r.json(), 30,
                              "the checks to end")


def test_the_machine_is_what_the_command_says(server):
    told = checked(server)
    said = json.loads(server.cli("doctor", "--json").stdout)
    steady = lambda items: {one["name"]: (one["state"], one["fix"]) for one in items}  # noqa: E731
    assert steady(told["items"]) == steady(said["items"]) and told["ok"] == said["ok"]
    assert len(told["items"]) > 20 and told["at"] <= time.strftime("%Y-%m-%dT%H:%M:%S.999Z", time.gmtime())


def test_the_report_is_of_this_start_and_follows_no_link(start_server, tmp_path):
    """Names in the data directory are the api process's to choose; what root writes there goes nowhere else."""
    server = start_server()
    first = checked(server)["at"]
    server.stop(remove=False)
    data = server.state / "data"
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for name in ("doctor.json", "doctor.new"):
        (data / name).unlink(missing_ok=True)
        (data / name).symlink_to(victim)
    server.start()
    assert checked(server)["at"] > first
    assert victim.read_text() == "untouched" and not (data / "doctor.json").is_symlink()


def test_limits_are_those_that_hold(server, start_server):
    told = {(one["of"], one["name"]): one for one in server.get("/api/v1/limits").json()["items"]}
    memory = told["a sandbox", "memory"]
    for value, status in ((memory["least"], 201), (memory["least"] - 1, 400), (memory["most"] + 1, 400)):
        reply = server.post("/api/v1/sandboxes", {"memory": value, "storage": "memory"})
        assert reply.status == status, reply
        if reply.status == 201:
            server.delete(f"/api/v1/sandboxes/{reply.json()['id']}")
    assert told["the server", "sandboxes_max"]["setting"] == "sandboxes_max"
    other = start_server(args=["--sandboxes-max", "7"])
    assert {one["name"]: one["most"] for one in other.get("/api/v1/limits").json()["items"]}["sandboxes_max"] == 7


# ---- what can be switched off, and what was logged ----

def test_metrics_can_be_switched_off(start_server, tmp_path):
    conf = tmp_path / "atoll.conf"
    conf.write_text("metrics_enabled = false\n")
    server = start_server(args=["--config", str(conf)])
    reply = server.get("/metrics")
    assert reply.status == 404 and reply.headers["content-type"].startswith("text/plain"), reply
    conf.write_text("metrics_enabled = true\n")
    server.process.send_signal(signal.SIGHUP)
    harness.wait_until(lambda: server.get("/metrics").status == 200, 20, "the settings again")
    assert total(metrics(server), "atoll_api_calls_total") > 0


def test_the_log_of_the_server_can_be_asked_for(start_server):
    server = start_server(args=["--log-level", "debug"])
    mark = "seen-in-the-log"
    server.get("/api/v1/whoami", headers={"X-Request-Id": mark})
    logs = server.get("/api/v1/logs").json()["logs"]
    assert 0 < len(logs) <= 200 and set(logs[0]) == {"timestamp", "level", "target", "message"}
    assert [line["timestamp"] for line in logs] == sorted((line["timestamp"] for line in logs), reverse=True)
    (line,) = [line for line in logs if mark in line["message"]]
    assert line["target"] == "api" and line["level"] in ("debug", "info")
    since = line["timestamp"]
    newer = server.get(f"/api/v1/logs?since={since}").json()["logs"]
    assert newer and all(other["timestamp"] >= since for other in newer) and len(newer) < len(logs) + 5
    assert server.get("/api/v1/logs?since=2999-01-01T00:00:00Z").json() == {"logs": []}
    assert len(server.get("/api/v1/logs?limit=1").json()["logs"]) == 1
    for query in ("limit=0", "limit=2001", "since=yesterday", "since=12"):
        reply = server.get(f"/api/v1/logs?{query}")
        assert reply.status == 400 and isinstance(reply.json()["error"], str), reply
    for _ in range(2100):
        server.get("/api/v1/health/live")
    logs = server.get("/api/v1/logs?limit=2000").json()["logs"]
    assert len(logs) == 2000 and not any(mark in line["message"] for line in logs)


def test_only_who_runs_the_server_reads_its_log(server):
    made = {role: server.post("/api/v1/tokens", {"name": f"log-{role}", "role": role, **more}).json()["token"]
            for role, more in (("operator", {}), ("viewer", {}))}
    for token in made.values():
        assert server.get("/api/v1/logs", token=token).status == 403
    other = server.post("/api/v1/tokens", {"name": "log-other", "role": "admin", "tenant": "other"}).json()["token"]
    assert server.get("/api/v1/logs", token=other).status == 403
