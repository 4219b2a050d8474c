"""Secrets: what goes in comes out nowhere; what an agent connects with is shown once."""
import json
import re
import secrets as random_
import subprocess

import pytest

PATH = "/api/v1/secrets"


def everything(server):
    """All that the server keeps, says and prints: files, replies, events, audit, log."""
    for path in sorted((server.state / "data").rglob("*")):
        if path.is_file():
            yield str(path), path.read_bytes()
    for path in (PATH, "/api/v1/events?limit=1000", "/api/v1/audit?limit=1000", "/metrics"):
        yield path, server.get(path).body
    yield "log", server.log().encode()


def assert_nowhere(server, *texts):
    for where, data in everything(server):
        for text in texts:
            assert text.encode() not in data, where


def test_a_value_goes_in_and_comes_out_nowhere(start_server):
    server = start_server(args=["--log-level", "debug"])
    first, second = "v-" + random_.token_hex(20), "w-" + random_.token_hex(20)
    made = server.request("PUT", f"{PATH}/API_KEY", {"value": first})
    assert made.status == 201 and made.json()["name"] == "API_KEY" and made.json()["version"] == 1
    again = server.request("PUT", f"{PATH}/API_KEY", {"value": second})
    assert again.status == 200 and again.json()["version"] == 2 and again.json()["kind"] == "value"
    for reply in (made, again):
        assert first.encode() not in reply.body and second.encode() not in reply.body
    listed = server.get(PATH).json()["items"]
    assert [(s["name"], s["kind"], s["fingerprint"]) for s in listed] == [("API_KEY", "value", None)]
    assert_nowhere(server, first, second)
    key = server.state / "data" / "secrets.key"
    assert key.stat().st_mode & 0o777 == 0o600 and len(key.read_bytes()) == 32
    server.kill9_api()
    server.wait_ready()
    assert server.get(PATH).json()["items"] == listed
    assert server.delete(f"{PATH}/API_KEY").status == 204
    assert server.delete(f"{PATH}/API_KEY").status == 404
    assert server.get(PATH).json()["items"] == []
    assert_nowhere(server, first, second)


def test_one_for_requests_opens_for_nobody_here(start_server):
    server = start_server(args=["--log-level", "debug"])
    value, other = "sk-" + random_.token_hex(20), "sk-" + random_.token_hex(20)
    wish = {"value": value, "hosts": ["api.example.org", "*.example.net:8443 GET,POST /v1/"]}
    made = server.request("PUT", f"{PATH}/TOKEN", wish)
    assert made.status == 201, made.body
    assert made.json()["use"] == "request" and made.json()["hosts"] == wish["hosts"]
    placeholder = made.json()["placeholder"]
    assert re.fullmatch("atoll-held-[0-9a-f]{29}", placeholder)
    again = server.request("PUT", f"{PATH}/TOKEN", {"value": other, "use": "request", "hosts": ["api.example.org"]})
    assert again.status == 200 and again.json()["placeholder"] == placeholder
    backup = server.post("/api/v1/backups", {"name": "with.db"})
    assert backup.status == 201, backup.body
    assert_nowhere(server, value, other)
    # The key is in no place that the api process has, and its own key opens nothing of this.
    key = server.state / "egress.key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.stat().st_uid == server.state.stat().st_uid
    private = key.read_bytes()
    assert len(private) == 32
    for where, data in everything(server):
        assert private not in data and private.hex().encode() not in data, where
    server.kill9_api()
    server.wait_ready()
    row, = server.get(PATH).json()["items"]
    assert row["hosts"] == ["api.example.org"] and row["version"] == 2 and key.read_bytes() == private


@pytest.mark.parametrize("wish, field", [
    ({"value": "long enough", "use": "request"}, "hosts"),
    ({"value": "long enough", "hosts": ["10.0.0.1"]}, "hosts"),
    ({"value": "long enough", "hosts": ["a.org"] * 9}, "hosts"),
    ({"value": "long enough", "hosts": ["a b c d"]}, "hosts"),
    ({"value": "long enough", "hosts": ["a.org\nb.org"]}, "hosts"),
    ({"value": "long enough", "use": "server", "hosts": ["a.org"]}, "hosts"),
    ({"value": "short", "hosts": ["a.org"]}, "value"),
    ({"value": "two\r\nlines of it", "hosts": ["a.org"]}, "value"),
    ({"value": "x" * 8193, "hosts": ["a.org"]}, "value"),
    ({"value": "long enough", "use": "other"}, "use"),
])
def test_what_is_no_secret_for_requests(server, wish, field):
    reply = server.request("PUT", f"{PATH}/NONE", wish)
    assert reply.status == 400 and reply.error["field"].startswith(field), reply.body
    assert wish["value"].encode() not in reply.body


def test_the_secret_of_an_agent_is_shown_once(fresh_server):
    server = fresh_server
    made = server.post(PATH, {"agent_id": "agent-01"}, headers={"Idempotency-Key": "once"})
    assert made.status == 201
    secret = made.json()["secret"]
    assert re.fullmatch("[0-9a-f]{64}", secret)
    replayed = server.post(PATH, {"agent_id": "agent-01"}, headers={"Idempotency-Key": "once"})
    assert replayed.status == 201 and replayed.json()["secret"] is None
    assert server.post(PATH, {"agent_id": "agent-01"}).status == 409
    row, = server.get(PATH).json()["items"]
    assert row["agent_id"] == "agent-01" and not row["rotation_pending"] and "secret" not in row
    assert re.fullmatch("[0-9a-f]{12}", row["fingerprint"])
    assert_nowhere(server, secret)
    assert server.delete(f"{PATH}?agent_id=agent-01").status == 204
    assert server.delete(f"{PATH}?agent_id=agent-01").status == 404
    assert server.delete(PATH).status == 400


@pytest.mark.parametrize("name", ["-a", "a%20b", "x" * 64, "%C3%A4", ".x"])
def test_a_name_that_is_none(server, name):
    reply = server.request("PUT", f"{PATH}/{name}", {"value": "x"})
    assert reply.status == 400 and reply.error["field"] == "name"


def test_a_value_at_its_limit_and_past_it(server):
    assert server.request("PUT", f"{PATH}/big", {"value": "x" * 65536}).status == 201
    reply = server.request("PUT", f"{PATH}/big", {"value": "x" * 65537})
    assert reply.status == 400 and reply.error["field"] == "value"
    for body in ({}, {"value": ""}, {"value": 7}, {"value": "x", "more": 1}):
        assert server.request("PUT", f"{PATH}/big", body).status == 400


def test_secrets_are_for_admins_and_their_tenant(server):
    operator = server.new_token("operator")["token"]
    other = server.new_token("admin", tenant="other")["token"]
    server.request("PUT", f"{PATH}/mine", {"value": "x"})
    assert server.get(PATH, token=operator).status == 403
    assert server.request("PUT", f"{PATH}/mine", {"value": "y"}, token=operator).status == 403
    assert server.get(PATH, token=other).json()["items"] == []
    assert server.delete(f"{PATH}/mine", token=other).status == 404
    assert server.post(PATH, {"agent_id": "taken"}).status == 201
    assert server.post(PATH, {"agent_id": "taken"}, token=other).status == 409


def test_a_key_that_others_could_read_is_refused(start_server):
    server = start_server()
    server.stop(remove=False)
    key = server.state / "data" / "secrets.key"
    key.chmod(0o644)
    server.start(ready=False)
    assert server.process.wait(20) != 0
    assert "secrets.key is open to others" in server.log()
    key.chmod(0o600)
    server.start()


def test_secrets_by_the_command_line(fresh_server):
    server = fresh_server

    def cli(*args, data=b""):
        return subprocess.run([server.binary, *args, "--state", str(server.state)], input=data, capture_output=True)

    value = "line one\nline \\ \"two\""
    done = cli("secret", "set", "KEY", data=value.encode() + b"\n")
    assert done.returncode == 0 and b"line one" not in done.stdout + done.stderr, done
    assert cli("secret", "set", "KEY", data=b"x" * 65536).returncode == 0
    assert b"at most 65536" in cli("secret", "set", "KEY", data=b"x" * 65537).stderr
    assert b"no value" in cli("secret", "set", "KEY").stderr
    done = cli("secret", "set", "KEY", "--host", "a.example.org", "--host", "*.b.org GET", data=b"long enough\n")
    assert done.returncode == 0 and b"request" in done.stdout and b"atoll-held-" in done.stdout, done
    assert b"long enough" not in done.stdout + done.stderr
    printed = cli("secret", "agent", "a1").stdout.decode().strip()
    assert re.fullmatch("[0-9a-f]{64}", printed)
    assert cli("secret", "agent", "a1").returncode == 3
    listed = json.loads(cli("secret", "ls", "--json").stdout)["items"]
    assert [(s["name"], s["kind"], s["version"]) for s in listed] == [("KEY", "value", 3), ("a1", "agent", 1)]
    assert b"KEY" in cli("secret", "ls").stdout
    assert cli("secret", "rm", "KEY").returncode == 0 and cli("secret", "rm", "KEY").returncode == 2
    assert_nowhere(server, printed, "line one")
