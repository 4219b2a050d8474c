"""Who may do what: every role on every route, tokens, signatures, limits, sockets, and the browser's login."""
import json
import os
import re
import secrets
import time

import browser
import harness
import pytest

ROLES = ["sandbox", "agent", "viewer", "operator", "admin"]
PEOPLE, STEER = {"viewer", "operator", "admin"}, {"operator", "admin"}
# The policy once more, by hand: a change of the route table must be meant twice.
POLICY = {
    "health.live": {"public"}, "health.ready": {"public"}, "health.http": {"public"},
    **{f"health.{what}": set(ROLES) for what in ("deep", "service", "ready_v1", "live_v1")}, "login.use": {"public"},
    "health.read": set(ROLES), "version.read": set(ROLES), "limits.read": set(ROLES),
    "doctor.read": STEER, "whoami.read": set(ROLES), "openapi.read": set(ROLES),
    "echo.try": set(ROLES), "metrics.read": PEOPLE,
    "event.read": PEOPLE | {"agent"}, "note.create": STEER | {"agent"},
    "audit.read": STEER, "audit.verify": STEER,
    "token.create": {"admin"}, "token.list": {"admin"}, "token.revoke": {"admin"},
    "backup.create": {"admin"}, "backup.read": {"admin"}, "backup.delete": {"admin"},
    **{f"sandbox.{verb}": PEOPLE | {"agent"} for verb in (
        "list", "read", "stats", "applied", "changes", "crashes")},
    "quota.list": PEOPLE, "quota.set": STEER, "quota.delete": STEER,
    "stats.watch": PEOPLE | {"agent"},
    **{f"sandbox.{verb}": STEER | {"agent"} for verb in (
        "create", "delete", "pause", "resume", "start", "stop", "change", "fork", "rollback")},
    **{f"secret.{verb}": {"admin"} for verb in ("list", "create", "put", "delete", "delete_of")},
    "port.list": PEOPLE | {"agent"}, "process.list": PEOPLE | {"agent"},
    **{f"port.{verb}": STEER | {"agent"} for verb in ("use", "tunnel", "preview")},
    **{f"template.{verb}": PEOPLE | {"agent"} for verb in ("list", "read")},
    **{f"template.{verb}": STEER | {"agent"} for verb in ("set", "delete")},
    **{f"agent.{verb}": PEOPLE | {"agent"} for verb in ("list", "read")},
    **{f"agent.{verb}": STEER | {"agent"} for verb in ("start", "stop")}, "agent.change": STEER,
    **{f"agent.{verb}": {"admin"} for verb in ("destroy", "delete", "rotate_secret", "reprovision")},
    **{f"vm.{verb}": PEOPLE | {"agent"} for verb in ("list", "read")}, "operation.read": PEOPLE | {"agent"},
    **{f"vm.{verb}": STEER | {"agent"} for verb in ("create", "start", "stop", "restart", "deploy")},
    "vm.destroy": {"admin"}, "vm.delete": {"admin"},
    **{f"command.{verb}": PEOPLE | {"agent"} for verb in ("list", "read", "output")},
    **{f"command.{verb}": STEER | {"agent"} for verb in ("create", "stdin", "signal", "resize")},
    "disk.list": PEOPLE, "disk.delete": {"admin"}, "pool.list": PEOPLE, "pool.set": {"admin"},
    **{f"image.{verb}": PEOPLE | {"agent"} for verb in ("list", "read")},
    **{f"image.{verb}": STEER | {"agent"} for verb in ("import", "delete")},
    **{f"volume.{verb}": PEOPLE | {"agent"} for verb in ("list", "read")},
    **{f"volume.{verb}": STEER | {"agent"} for verb in ("create", "change", "delete")},
    **{f"snapshot.{verb}": PEOPLE | {"agent"} for verb in ("list", "list_of")},
    **{f"snapshot.{verb}": STEER | {"agent"} for verb in ("create", "delete", "delete_of")},
    **{f"exec.{verb}": PEOPLE | {"agent"} for verb in ("list", "read", "output")},
    **{f"exec.{verb}": STEER | {"agent"} for verb in ("create", "stdin", "signal", "resize", "cancel")},
    **{f"container{what}": PEOPLE | {"agent"} for what in (".list", ".read", "_image.list")},
    **{f"container.{verb}": STEER | {"agent"} for verb in ("create", "start", "stop")}, "container.delete": {"admin"},
    **{f"egress.{what}": PEOPLE | {"agent"} for what in (
        "policies", "explain", "pack.list", "node.read", "tenant.read", "project.read", "sandbox.read", "records",
        "sandbox.records", "sandbox.hosts")},
    "ask.list": PEOPLE, "ask.read": PEOPLE, "ask.decide": STEER,
    **{f"egress.{layer}.{verb}": STEER for layer in ("node", "tenant", "project") for verb in (
        "put", "change", "clear")},
    **{f"egress.{what}": STEER for what in ("sandbox.put", "sandbox.change", "rule.add", "pack.put", "pack.delete")},
    **{f"terminal.{verb}": PEOPLE | {"agent"} for verb in ("list", "read", "attach", "screen", "recording")},
    **{f"terminal.{verb}": STEER | {"agent"} for verb in ("create", "kill", "signal", "resize")},
    **{f"session.{verb}": PEOPLE | {"agent"} for verb in (
        "list", "list_of", "screen", "transcript", "stream", "socket", "orchestrate", "attach")},
    **{f"session.{verb}": STEER | {"agent"} for verb in ("create", "kill_of")}, "session.kill": {"admin"},
    **{f"file.{verb}": PEOPLE | {"agent"} for verb in ("read", "list", "stat", "watch")},
    **{f"file.{verb}": STEER | {"agent"} for verb in ("write", "append", "mkdir", "move", "remove")},
    **{f"tree.{verb}": PEOPLE | {"agent"} for verb in ("read", "manifest")},
    "tree.write": STEER | {"agent"},
    "login.link": PEOPLE, "login.session": PEOPLE, "login.tenant": PEOPLE, "tenant.list": PEOPLE,
    "login.end": PEOPLE, "log.read": {"admin"}, "event.post": STEER,
    **{f"hub.{what}": PEOPLE | {"agent"} for what in (
        "list_agents", "read_agent", "read_revocation", "list_revocations", "read_checkpoint", "list_capabilities",
        "match_capability", "read_autonomy", "read_graph", "read_history", "read_thread", "read_inbox", "list_channels",
        "list_projects", "read_project", "list_files", "download_file", "list_versions", "list_leases", "list_tasks",
        "list_ready", "read_task", "list_reviews", "list_comments", "read_board", "read_metrics", "find_tasks",
        "list_proposals", "read_proposal")},
    **{f"hub.{what}": STEER | {"agent"} for what in (
        "register", "unregister", "heartbeat", "set_autonomy", "set_capabilities", "revocation_acknowledged",
        "checkpoint", "send_message", "ack_message", "join_channel", "leave_channel", "send_channel", "create_project",
        "delete_project", "join_project", "upload_file", "delete_file", "take_lease", "renew_lease", "release_lease",
        "create_task", "transition_task", "claim_task", "unassign_task", "add_reviewer", "approve_task",
        "request_changes", "comment_task")},
    **{f"hub.{what}": STEER for what in (
        "pause_agent", "resume_agent", "revoke_agent", "global_autonomy", "read_audit", "set_wip", "assign_task",
        "decide_proposal")},
}


def operations(server):
    for path, methods in server.get("/api/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_the_policy_is_the_one_we_mean(server):
    served = {op["operationId"]: set(op["x-roles"]) for _, _, op in operations(server)}
    for name, roles in POLICY.items():
        assert served.get(name) == roles, name
    unknown = {name for name in served if name not in POLICY and served[name] != {"public"}}
    assert not unknown, f"new routes need a line in POLICY: {unknown}"


def test_every_role_on_every_route(server, peer):
    """Deny by default: 401 for nobody, 403 for a role that is not named, otherwise anything but these."""
    made = {role: server.new_token(role) for role in ROLES}
    tokens = {role: one["token"] for role, one in made.items()}
    known = server.post("/agents/register", {"name": made["agent"]["name"]}, token=tokens["agent"])
    assert known.status == 201, "an agent that is not registered may do less (test_owner)"
    tried = 0
    for method, path, operation in operations(server):
        target = re.sub(r"\{\w+\}", "no-such-object", path)
        roles = set(operation["x-roles"])
        for role in ROLES:
            if "text/event-stream" in json.dumps(operation["responses"]):
                with server.sse(target, token=tokens[role]) as stream:
                    status = stream.status
            else:
                status = server.request(method, target, token=tokens[role]).status
            tried += 1
            if "public" in roles or role in roles:
                assert status not in (401, 403), (method, path, role, status)
            else:
                assert status == 403, (method, path, role, status)
        if "public" not in roles:
            reply = server.request(method, target, token=None, source=peer)
            assert reply.status == 401, (method, path, reply)
            assert reply.headers["www-authenticate"].startswith("Bearer")
    assert tried >= 5 * len(POLICY)


# ---- tokens ----

def test_a_token_works_until_it_is_revoked(server, peer):
    made = server.new_token("operator")
    assert re.fullmatch(r"atl_[A-Za-z0-9_-]{43}", made["token"])
    assert server.get("/api/v1/whoami", token=made["token"]).json()["id"] == made["id"]
    assert server.delete("/api/v1/tokens/" + made["id"]).status == 200
    assert server.get("/api/v1/whoami", token=made["token"], source=peer).status == 401
    assert server.delete("/api/v1/tokens/" + made["id"]).status == 409


def test_a_revoked_token_stays_revoked_after_kill_9(fresh_server, peer):
    server = fresh_server
    made, other = server.new_token("operator"), server.new_token("viewer")
    server.delete("/api/v1/tokens/" + made["id"])
    server.kill9_api()
    server.wait_ready()
    assert server.get("/api/v1/whoami", token=made["token"], source=peer).status == 401
    assert server.get("/api/v1/whoami", token=other["token"]).status == 200


def test_a_token_expires(server, peer):
    made = server.new_token("viewer", ttl_ms=1000)
    assert server.get("/api/v1/whoami", token=made["token"]).status == 200
    time.sleep(1.1)
    assert server.get("/api/v1/whoami", token=made["token"], source=peer).status == 401


def test_a_token_is_shown_once_and_hashed_at_rest(server):
    made = server.new_token("viewer")
    assert made["token"] not in server.get("/api/v1/tokens").body.decode()
    for path in (server.state / "data").iterdir():
        if path.is_file():
            assert made["token"].encode() not in path.read_bytes(), path
            assert server.token.encode() not in path.read_bytes(), path


def test_the_admin_token_is_for_its_owner(server):
    path = server.state / "admin.token"
    assert path.stat().st_mode & 0o077 == 0
    assert path.stat().st_uid == os.geteuid()


@pytest.mark.parametrize("value", [
    "Bearer", "Bearer ", "Basic {token}", "bearer{token}", "Bearer {token}x", "Bearer  {token} x", "Token {token}",
    "{token}",
    "Bearer atl_", "Bearer " + "x" * 5000, "Bearer {upper}", "Bearer \x00",
])
def test_credentials_that_are_none(server, peer, value):
    value = value.format(token=server.token, upper=server.token.upper())
    answer = server.raw(f"GET /api/v1/whoami HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: {value}\r\n"
                        "Connection: close\r\n\r\n".encode("latin-1"), source=peer)
    assert answer.split(b" ")[1] in (b"401", b"400"), answer[:200]


def test_two_credentials_at_once(server, peer):
    made = server.new_token("viewer")["token"]
    both = f"Authorization: Bearer {server.token}\r\nAuthorization: Bearer {made}\r\n"
    answer = server.raw(f"GET /api/v1/whoami HTTP/1.1\r\nHost: {server.host}\r\n{both}\r\n".encode(), source=peer)
    assert answer.split(b" ")[1] in (b"400", b"401"), answer[:200]


@pytest.mark.parametrize("name", ["token", "access_token", "auth"])
def test_a_token_in_the_url_is_no_credential(server, peer, name):
    assert server.get(f"/api/v1/whoami?{name}={server.token}", token=None, source=peer).status in (400, 401)


def test_unknown_and_wrong_cannot_be_told_apart(server, peer):
    made = server.new_token("viewer")
    server.delete("/api/v1/tokens/" + made["id"])
    never = "atl_" + secrets.token_urlsafe(32)
    bodies = [server.get("/api/v1/whoami", token=t, source=peer).error for t in (made["token"], never)]
    assert bodies[0]["code"] == bodies[1]["code"] and bodies[0]["message"] == bodies[1]["message"]


def test_guessing_is_slowed_down(server, peer):
    statuses = []
    for _ in range(15):
        reply = server.get("/api/v1/whoami", token="atl_" + secrets.token_urlsafe(32), source=peer)
        statuses.append(reply.status)
    assert statuses[:10] == [401] * 10
    assert statuses[-1] == 429
    assert int(reply.headers["retry-after"]) >= 1
    assert server.get("/api/v1/whoami").status == 200, "others are not hit"


def test_rate_limit_per_principal(start_server):
    server = start_server(env={"ATOLL_RATE_PER_SECOND": "5", "ATOLL_RATE_BURST": "10"})
    other = server.new_token("viewer")["token"]
    replies = [server.get("/api/v1/whoami", token=other) for _ in range(20)]
    limited = [r for r in replies if r.status == 429]
    assert replies[0].status == 200 and 5 <= len(limited) <= 11
    assert int(limited[0].headers["retry-after"]) >= 1 and limited[0].error["code"] == "rate_limited"
    assert server.get("/api/v1/whoami").status == 200, "another principal has its own"
    time.sleep(1.2)
    assert server.get("/api/v1/whoami", token=other).status == 200


def test_scopes_narrow_a_role(server):
    made = server.new_token("admin", scopes=["event.*", "whoami.read"])["token"]
    assert server.get("/api/v1/events", token=made).status == 200
    assert server.get("/api/v1/whoami", token=made).status == 200
    assert server.get("/api/v1/tokens", token=made).status == 403
    assert server.post("/api/v1/notes", {"text": "x"}, token=made).status == 403


def test_a_refusal_says_whether_it_is_about_the_role(server):
    viewer, scoped = server.new_token("viewer")["token"], server.new_token("admin", scopes=["token.*"])["token"]
    wish = {"name": "x", "role": "viewer"}
    for reply in (server.post("/api/v1/notes", {"text": "x"}, token=viewer), server.get("/api/v1/events", token=scoped),
                  server.post("/api/v1/tokens", wish, token=scoped)):
        assert reply.status == 403 and reply.error["reason"] == "role", reply
    other = server.get("/api/v1/whoami", headers={"Origin": "http://evil.example"})
    assert other.status == 403 and other.error["reason"] is None
    assert server.get("/api/v1/sandboxes/none").error["reason"] is None
    done = server.cli("token", "create", "x", "--role", "viewer", ATOLL_ADDR=server.url, ATOLL_TOKEN=scoped)
    assert done.returncode == 4 and "atoll whoami" in done.stderr, done


def test_a_tenant_is_a_wall(server):
    theirs = server.new_token("admin", tenant="walled")
    mine = server.new_token("viewer")
    assert server.delete("/api/v1/tokens/" + mine["id"], token=theirs["token"]).status == 404
    assert mine["id"] not in server.get("/api/v1/tokens", token=theirs["token"]).body.decode()


# ---- the Unix socket ----

def test_the_unix_socket_knows_its_peer(server):
    me = server.get("/api/v1/whoami", unix=True).json()
    assert (me["via"], me["role"]) == ("unix", "admin")
    assert me["id"] == f"unix:{os.geteuid()}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_unix_socket_refuses_others(server):
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            status = 0 if server.get("/api/v1/whoami", unix=True).status in (401, 403) else 1
        except PermissionError:
            status = 0  # cannot even reach it
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


# ---- auth = open ----

def test_open_must_be_asked_for_and_stays_on_loopback(start_server, peer):
    server = start_server(args=["--auth", "open"])
    me = server.get("/api/v1/whoami", token=None, source=peer).json()
    assert (me["via"], me["role"]) == ("open", "admin")
    assert "open" in server.log()
    assert server.get("/api/v1/whoami", token=None, headers={"Origin": "http://evil.example"}).status == 403
    assert server.get("/api/v1/whoami", token=None, headers={"Host": "evil.example"}).status == 421


def test_open_refuses_to_serve_the_network():
    server = harness.Server(args=["--auth", "open", "--listen", f"0.0.0.0:{harness.free_port()}"])
    server.start(ready=False)
    assert server.process.wait(15) != 0
    assert "loopback" in server.log()
    server.stop(check=False)


# ---- signed requests ----

@pytest.fixture(scope="session")
def signer(server):
    return server.new_token("operator", signing=True)


def test_a_signed_request(server, signer):
    reply = server.signed("GET", "/api/v1/whoami", signer["id"], signer["token"])
    assert reply.status == 200 and reply.json()["via"] == "signed", reply
    body = b'{"text":"signed"}'
    kind = {"Content-Type": "application/json"}
    assert server.signed("POST", "/api/v1/notes", signer["id"], signer["token"], body, headers=kind).status == 201


def test_a_signature_works_once(server, signer, peer):
    again = {"time_ms": int(time.time() * 1000), "nonce": secrets.token_hex(16), "source": peer}
    first = server.signed("GET", "/api/v1/whoami", signer["id"], signer["token"], **again)
    second = server.signed("GET", "/api/v1/whoami", signer["id"], signer["token"], **again)
    assert (first.status, second.status) == (200, 401)


@pytest.mark.parametrize("how", ["kill9_api", "restart"])
def test_a_signature_works_once_across_restarts(fresh_server, peer, how):
    server = fresh_server
    made = server.new_token("operator", signing=True)
    again = {"time_ms": int(time.time() * 1000), "nonce": secrets.token_hex(16), "source": peer}
    assert server.signed("GET", "/api/v1/whoami", made["id"], made["token"], **again).status == 200
    getattr(server, how)()
    server.wait_ready()
    assert server.signed("GET", "/api/v1/whoami", made["id"], made["token"], **again).status == 401


def test_two_replays_at_once_let_one_through(server, signer):
    from concurrent.futures import ThreadPoolExecutor
    again = {"time_ms": int(time.time() * 1000), "nonce": secrets.token_hex(16)}
    body, kind = json.dumps({"text": "once"}).encode(), {"Content-Type": "application/json"}

    def send(i):
        return server.signed("POST", "/api/v1/notes", signer["id"], signer["token"], body, headers=dict(kind),
                             source=f"127.66.0.{i + 1}", **again).status

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(send, range(8)))
    assert statuses == [201] + [401] * 7


@pytest.mark.parametrize("change", ["method", "path", "query", "body", "time", "nonce", "key", "signature", "short"])
def test_everything_is_signed(server, signer, peer, change, monkeypatch):
    """A signature over one request, sent with another."""
    sent = {}

    def record(method, path, body=None, headers=None, **kw):
        sent.update(method=method, path=path, body=body, headers=dict(headers))
        return None

    monkeypatch.setattr(server, "request", record)
    if change == "query":
        server.signed("GET", "/api/v1/events?limit=1", signer["id"], signer["token"])
    else:
        server.signed("POST", "/api/v1/notes", signer["id"], signer["token"], b'{"text":"a"}',
                      headers={"Content-Type": "application/json"})
    monkeypatch.undo()
    headers = sent["headers"]
    if change == "method":
        sent["method"] = "PUT"
    if change == "path":
        sent["path"] = "/api/v1/echo"
    if change == "query":
        sent["path"] = "/api/v1/events?limit=2"
    if change == "body":
        sent["body"] = b'{"text":"b"}'
    if change == "time":
        headers["X-Atoll-Time"] = str(int(headers["X-Atoll-Time"]) + 1)
    if change == "nonce":
        headers["X-Atoll-Nonce"] = secrets.token_hex(16)
    if change == "key":
        headers["X-Atoll-Key"] = server.new_token("admin", signing=True)["id"]
    if change == "signature":
        headers["X-Atoll-Signature"] = "0" * 64
    if change == "short":
        headers["X-Atoll-Signature"] = headers["X-Atoll-Signature"][:32]
    reply = server.request(sent["method"], sent["path"], body=sent["body"], headers=headers, token=None, source=peer)
    assert reply.status in ((401,) if change != "method" else (401, 405)), reply


@pytest.mark.parametrize("shift,status", [(-61000, 401), (61000, 401), (-55000, 200), (55000, 200)])
def test_the_time_of_a_signature(server, signer, peer, shift, status):
    reply = server.signed("GET", "/api/v1/whoami", signer["id"], signer["token"],
                          time_ms=int(time.time() * 1000) + shift, source=peer)
    assert reply.status == status, reply


def test_a_token_with_signing_is_not_accepted_unsigned(server, peer):
    made = server.new_token("operator", signing=True)
    reply = server.get("/api/v1/whoami", token=made["token"], source=peer)
    assert reply.status == 401 and "signs requests" in reply.error["message"], reply


def test_a_token_without_signing_cannot_sign(server, peer):
    made = server.new_token("operator")
    assert server.signed("GET", "/api/v1/whoami", made["id"], made["token"], source=peer).status == 401


def test_a_revoked_signer(server, peer):
    made = server.new_token("operator", signing=True)
    server.delete("/api/v1/tokens/" + made["id"])
    assert server.signed("GET", "/api/v1/whoami", made["id"], made["token"], source=peer).status == 401


# ---- the browser's login, by hand ----

def link(server, token="admin"):
    reply = server.post("/api/v1/login-links", token=token)
    assert reply.status == 201, reply
    return reply.json()["url_path"].split("#login=")[1]


def login(server, code, **kw):
    return server.post("/login", {"code": code}, token=None, **kw)


def cookie_of(reply):
    return {"Cookie": reply.headers["set-cookie"].split(";")[0]}


def test_a_link_works_once(server, peer):
    code = link(server)
    first = login(server, code)
    assert first.status == 200
    parts = [p.strip() for p in first.headers["set-cookie"].split(";")]
    assert parts[0].startswith("atoll_session=") and {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(parts)
    assert login(server, code, source=peer).status == 401
    me = server.get("/api/v1/whoami", token=None, headers=cookie_of(first)).json()
    assert (me["via"], me["role"]) == ("cookie", "admin")


def test_a_link_acts_with_its_makers_role(server):
    viewer = server.new_token("viewer")["token"]
    session = login(server, link(server, viewer))
    me = server.get("/api/v1/whoami", token=None, headers=cookie_of(session)).json()
    assert me["role"] == "viewer"
    reply = server.get("/api/v1/tokens", token=None, headers=cookie_of(session))
    assert reply.status == 403


def test_two_uses_at_once_let_one_in(server):
    from concurrent.futures import ThreadPoolExecutor
    code = link(server)
    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(lambda i: login(server, code, source=f"127.67.0.{i + 1}").status, range(8)))
    assert statuses == [200] + [401] * 7


@pytest.mark.parametrize("code", ["", "x", "atl_" + "x" * 43, "' OR 1=1 --"])
def test_codes_that_are_none(server, peer, code):
    assert login(server, code, source=peer).status in (400, 401)


@pytest.mark.parametrize("csrf,status", [(None, 403), ("wrong", 403), ("0" * 64, 403), ("right", 201)])
def test_a_change_by_cookie_needs_the_csrf_header(server, csrf, status):
    session = login(server, link(server))
    headers = cookie_of(session)
    if csrf:
        headers["X-Atoll-CSRF"] = session.json()["csrf"] if csrf == "right" else csrf
    reply = server.post("/api/v1/notes", {"text": "by cookie"}, token=None, headers=headers)
    assert reply.status == status, reply


def test_another_sessions_csrf_does_not_fit(server):
    one, two = login(server, link(server)), login(server, link(server))
    headers = {**cookie_of(one), "X-Atoll-CSRF": two.json()["csrf"]}
    assert server.post("/api/v1/notes", {"text": "x"}, token=None, headers=headers).status == 403


def test_logout_ends_the_session(server, peer):
    session = login(server, link(server))
    headers = {**cookie_of(session), "X-Atoll-CSRF": session.json()["csrf"]}
    assert server.post("/logout", token=None, headers=headers).status == 204
    assert server.get("/api/v1/whoami", token=None, headers=headers, source=peer).status == 401


def test_a_session_survives_kill_9(fresh_server):
    server = fresh_server
    session = login(server, link(server))
    server.kill9_api()
    server.wait_ready()
    assert server.get("/api/v1/whoami", token=None, headers=cookie_of(session)).status == 200


# ---- the browser's login, in a browser ----

@pytest.fixture
def chromium():
    if not browser.find():
        pytest.skip("no chromium here")
    chromium = browser.Browser()
    yield chromium
    chromium.close()


@pytest.mark.timeout(120)
def test_the_dashboard_in_a_real_browser(fresh_server, chromium):
    server = fresh_server
    url = server.url + server.post("/api/v1/login-links").json()["url_path"]
    chromium.open(url)
    chromium.wait("document.querySelector('[role=status]')?.innerText === 'Live'")
    assert chromium.run("location.href") == server.url + "/", "the code must leave the address"
    assert "admin" in chromium.text()
    chromium.run("location.hash = '#/events'")

    (cookie,) = [c for c in chromium.cookies() if c["name"] == "atoll_session"]
    assert cookie["httpOnly"] is True and cookie["sameSite"] == "Strict" and cookie["path"] == "/"
    assert chromium.run("document.cookie") == "", "scripts cannot read it"

    # Text of others is text, whatever it looks like.
    server.post("/api/v1/notes", {"text": "<img src=x onerror=document.title='owned'> <b>bold</b>"})
    chromium.wait("document.body.innerText.includes('<b>bold</b>')")
    assert "owned" not in chromium.run("document.title")
    assert chromium.run("document.querySelectorAll('.events b, .events img').length") == 0

    # A change from the page carries the CSRF value.
    chromium.run("""(() => { const input = document.querySelector('#note'); input.value = 'from the page';
        input.dispatchEvent(new Event('input', { bubbles: true })); })()""")
    chromium.wait("document.querySelector('#note').value === 'from the page'")
    chromium.run("document.querySelector('.note').requestSubmit()")
    chromium.wait("[...document.querySelectorAll('.object')].some((o) => o.textContent === 'from the page')")
    assert "from the page" in [e["data"].get("text") for e in server.get("/api/v1/events").json()["items"]]
    assert chromium.complaints() == []

    # The stream comes back by itself, without a gap, after the server was killed.
    server.kill9_api()
    server.wait_ready()
    server.post("/api/v1/notes", {"text": "after the crash"})
    chromium.wait("document.body.innerText.includes('after the crash')", 30)
    numbers = chromium.run("[...document.querySelectorAll('.tbody .seq')].map((s) => Number(s.textContent))")
    assert sorted(numbers) == list(range(1, len(numbers) + 1)), numbers


@pytest.mark.timeout(120)
def test_a_used_link_and_no_session_say_what_to_do(fresh_server, chromium):
    server = fresh_server
    url = server.url + server.post("/api/v1/login-links").json()["url_path"]
    assert login(server, url.split("#login=")[1]).status == 200
    chromium.open(url)
    chromium.wait("document.body.innerText.includes('atoll login')")
    assert "used already" in chromium.text()
    assert chromium.run("location.hash") == ""
    chromium.open(server.url + "/")
    chromium.wait("document.body.innerText.includes('atoll login')")


@pytest.mark.timeout(120)
def test_the_page_obeys_a_strict_policy(fresh_server, chromium):
    server = fresh_server
    reply = server.get("/", token=None)
    policy = reply.headers["content-security-policy"]
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
                 "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
        assert part in policy, policy
    assert "unsafe" not in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    chromium.open(server.url + server.post("/api/v1/login-links").json()["url_path"])
    chromium.wait("document.querySelector('[role=status]')?.innerText === 'Live'")
    chromium.run("""(() => { const s = document.createElement('script'); s.textContent = "document.title = 'owned'";
        document.body.append(s); })()""")
    assert "owned" not in chromium.run("document.title"), "an inline script ran"


def test_the_list_says_when_a_token_was_last_used(server):
    made = server.new_token("viewer", name="rarely-used")
    used = lambda: next(t for t in server.get("/api/v1/tokens").json()["items"] if t["id"] == made["id"])["used_at"]
    assert used() is None
    assert server.get("/api/v1/whoami", token=made["token"]).status == 200
    harness.wait_until(used, 10, "the use to be noted")
    listed = server.cli("token", "list").stdout
    assert used()[:10] in next(line for line in listed.splitlines() if "rarely-used" in line)
