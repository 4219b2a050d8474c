"""The command line beside a real server, and in a real shell."""
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import harness
import pytest


def atoll(*args, **kw):
    """The program without any server: an environment of its own, nothing to find."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "ATOLL_STATE": "/nonexistent", **kw.pop("env", {})}
    return subprocess.run([harness.BIN, *args], capture_output=True, text=True, timeout=30, env=env,
                          stdin=subprocess.DEVNULL, **kw)


def needed(program):
    """The shared libraries that a program is linked with."""
    done = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True)
    return set(re.findall(r"NEEDED.*\[(.+)\]", done.stdout))


def error_of(done):
    """The error object that --json puts on standard error."""
    return json.loads(done.stderr)["error"]


class Tail:
    """`atoll … tail` under way: lines as they come."""

    def __init__(self, server, *args, **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
        self.process = subprocess.Popen([server.binary, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL,
                                        env={**clean, "ATOLL_STATE": str(server.state), **env})
        self.pending = b""

    def lines(self, count, seconds=10):
        end = time.monotonic() + seconds * harness.SLOW
        while self.pending.count(b"\n") < count:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f"waited for {count} lines, got {self.pending!r}")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise AssertionError(f"it ended: {self.pending!r} {self.process.stderr.read()!r}")
            self.pending += data
        got = self.pending.split(b"\n", count)
        self.pending = got.pop()
        return [line.decode() for line in got]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def note(server, text="x"):
    reply = server.post("/api/v1/notes", {"text": text})
    assert reply.status == 201, reply
    return reply.json()["seq"]


# ---- without a server ----

def test_version_and_help():
    assert re.fullmatch(r"atoll \d+\.\d+\.\d+\n", atoll("version").stdout)
    assert json.loads(atoll("version", "--json").stdout)["version"]
    for args in (["help"], ["--help"], ["token", "--help"], ["help", "event", "tail"]):
        done = atoll(*args)
        assert done.returncode == 0 and done.stdout.startswith("Usage: atoll"), args
        assert done.stderr == ""


def test_wrong_usage_is_64_and_nothing_on_stdout():
    for args in ([], ["tokn", "list"], ["health", "--bogus"], ["token", "create"], ["config", "show", "--reader", "1"]):
        done = atoll(*args)
        assert done.returncode == 64, (args, done)
        assert done.stdout == "" and done.stderr
    assert error_of(atoll("health", "--bogus", "--json"))["code"] == "usage"


def test_a_typo_is_met_with_a_suggestion():
    assert "did you mean `atoll token list`?" in atoll("token", "lits").stderr


def test_no_server_is_1_with_a_hint():
    done = atoll("health")
    assert done.returncode == 1
    assert done.stderr.startswith("atoll: ") and "atoll serve" in done.stderr
    assert error_of(atoll("health", "--json"))["code"] == "unavailable"


def test_a_silent_server_is_5(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        done = atoll("health", "--addr", f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "200ms")
    assert done.returncode == 5, done


def test_output_to_a_full_disk_is_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([harness.BIN, "help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "standard output" in done.stderr


def test_a_reader_that_leaves_is_quiet():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([harness.BIN, "help"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == -signal.SIGPIPE and done.stderr == b""


def colours(env):
    """What `config show` writes to a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(harness.BIN, [harness.BIN, "config", "show"], env)
    got = b""
    try:
        while data := os.read(fd, 65536):
            got += data
    except OSError:
        pass
    os.close(fd)
    os.waitpid(pid, 0)
    return b"\x1b[" in got


def test_colours_only_on_a_terminal_and_not_against_the_users_will():
    base = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    assert colours({**base, "TERM": "xterm"})
    assert not colours({**base, "TERM": "xterm", "NO_COLOR": "1"})
    assert not colours({**base, "TERM": "dumb"})
    assert "\x1b" not in atoll("config", "show", env={"TERM": "xterm"}).stdout


def test_config_show_says_which_source_won(tmp_path):
    conf = tmp_path / "atoll.conf"
    conf.write_text("readers = 3\nlog_level = warn\n")
    done = atoll("config", "show", "--json", "--rate-burst", "7",
                 env={"ATOLL_CONFIG": str(conf), "ATOLL_LOG_LEVEL": "debug"})
    rows = {row["name"]: row for row in json.loads(done.stdout)["settings"]}
    assert (rows["readers"]["value"], rows["readers"]["where"]) == ("3", f"{conf}:1")
    assert (rows["log_level"]["value"], rows["log_level"]["source"]) == ("debug", "environment")
    assert (rows["rate_burst"]["value"], rows["rate_burst"]["source"]) == ("7", "flag")
    assert rows["listen"]["source"] == "default"
    conf.write_text("readers = many\n")
    done = atoll("config", "show", env={"ATOLL_CONFIG": str(conf)})
    assert done.returncode == 1 and f"{conf}:1: " in done.stderr


def test_open_auth_beyond_loopback_is_refused():
    done = atoll("serve", "--auth", "open", "--listen", "0.0.0.0:0", "--state", "/nonexistent/x")
    assert done.returncode != 0 and "auth = open is refused" in done.stderr


# ---- completions, in the shell they are for ----

def complete(*words):
    """What bash offers for the last word."""
    script = atoll("completion", "bash").stdout
    line = " ".join(f"'{w}'" for w in words)
    done = subprocess.run(["bash", "--norc", "-c", f"{script}\nCOMP_WORDS=(atoll {line}); COMP_CWORD={len(words)}; "
                           "_atoll; printf '%s\\n' \"${COMPREPLY[@]}\""], capture_output=True, text=True)
    assert done.stderr == "", done.stderr
    return done.stdout.split()


def test_bash_completes_commands_and_flags():
    assert "token" in complete("") and "docs" not in complete("")
    assert complete("tok") == ["token"]
    assert complete("token", "") == ["create", "list", "revoke"]
    assert complete("token", "create", "--ro") == ["--role"]
    assert complete("event", "tail", "--no") == ["--no-follow"]
    assert complete("serve", "--log") == ["--log-level", "--log-format"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]
    assert complete("--ad") == ["--addr"]


# ---- beside a server ----

def test_a_server_is_started_by_its_other_name():
    """And goes on as one that was started by `serve`: its settings are read again, its api comes back."""
    one = harness.Server()
    one.words = ["server", "start"]
    one.start()
    try:
        one.process.send_signal(signal.SIGHUP)
        harness.wait_until(lambda: "settings" in one.log(), 10, "its settings to be read again")
        one.kill9_api()
        one.wait_ready()
    finally:
        one.stop()
    said = atoll("server", "start", "--help")
    assert said.returncode == 0 and "warden" in said.stdout
    wrong = atoll("server", "start", "--no-such-flag")
    assert wrong.returncode == 64 and "'no-such-flag'" in wrong.stderr


@pytest.mark.parametrize("words, kind", [(["event", "tail"], "events"), (["session", "tail"], "output"),
                                         (["logs", "--follow"], "output")])
def test_what_follows_gives_up_when_it_is_told_to(server, words, kind):
    box = harness.make_box(server, name="tailed")
    try:
        made = server.post(f"/api/v1/sandboxes/{box}/terminals", {"argv": ["sh", "-c", "echo here; sleep 60"],
                                                                  "name": "quiet"})
        assert made.status == 201, made
        of = {"event": [], "session": ["quiet"], "logs": [box]}[words[0]]
        begun = time.monotonic()
        done = server.cli(*words, *of, "--timeout", "2s", timeout=20)
        assert 1.5 < time.monotonic() - begun < 6 * harness.SLOW, "it gave up after two seconds"
        assert done.returncode == 5 and kind in done.stderr, done
        assert kind != "output" or "here" in done.stdout
    finally:
        server.delete(f"/api/v1/sandboxes/{box}")


def test_health_and_whoami_find_the_local_server(server):
    done = server.cli("health", "--json", check=True)
    assert json.loads(done.stdout)["ready"] is True
    assert "Ready" in server.cli("health", check=True).stdout
    assert json.loads(server.cli("whoami", "--json", check=True).stdout)["role"] == "admin"
    assert "server" in server.cli("version", "--server", check=True).stdout


def test_health_needs_no_token(server):
    done = server.cli("health", ATOLL_ADDR=server.url, ATOLL_STATE="", HOME="/nonexistent")
    assert done.returncode == 0, done


def test_json_is_what_the_server_sent(server):
    reply = server.get("/api/v1/version")
    assert json.loads(server.cli("version", "--server", "--json", check=True).stdout)["server"] == reply.json()
    listed = server.cli("token", "list", "--json", check=True).stdout
    assert listed.rstrip("\n").encode() == server.get("/api/v1/tokens").body.rstrip(b"\n")


def test_a_token_from_birth_to_death(server):
    name = f"cli-{time.monotonic_ns()}"
    made = json.loads(server.cli("token", "create", name, "--role", "viewer", "--scope", "event.*", "--ttl", "30d",
                                 "--json", check=True).stdout)
    assert made["role"] == "viewer" and made["token"].startswith("atl_")
    assert name in server.cli("token", "list", check=True).stdout
    mine = {"ATOLL_STATE": "", "ATOLL_ADDR": server.url, "ATOLL_TOKEN": made["token"]}
    assert server.cli("event", "tail", "--no-follow", **mine).returncode == 0
    assert server.cli("token", "list", **mine).returncode == 4  # the role may not
    assert server.cli("token", "create", name, "--role", "viewer").returncode == 3  # the name is taken
    server.cli("token", "revoke", name, check=True)
    assert server.cli("event", "tail", "--no-follow", **mine).returncode == 4
    assert server.cli("token", "revoke", "no such token").returncode == 2
    assert server.cli("token", "revoke", name).returncode == 3


def test_bad_input_names_the_field(server):
    done = server.cli("token", "create", "x", "--role", "emperor", "--json")
    assert done.returncode == 1 and error_of(done)["field"] == "role"
    assert error_of(done)["request_id"]


def test_a_wrong_token_is_4(server):
    done = server.cli("whoami", ATOLL_TOKEN="atl_" + "x" * 43, ATOLL_ADDR=server.url)
    assert done.returncode == 4 and "token" in done.stderr


@pytest.mark.parametrize("token, words", [("wrong", "was given by: "), ("atl_wrong", "expired or revoked (")])
def test_a_refused_token_is_named_by_where_it_came_from(server, token, words):
    for args, env, source in ((["--token", token], {}, "--token"), ([], {"ATOLL_TOKEN": token}, "ATOLL_TOKEN")):
        done = atoll("whoami", *args, env={"ATOLL_STATE": str(server.state), **env})
        assert done.returncode == 4 and words + source in done.stderr, done


def test_the_owners_token_is_not_sent_to_an_address(server):
    """Only whoever names the state directory gets its token; an address alone may be anybody's."""
    done = server.cli("whoami", ATOLL_ADDR=server.url, ATOLL_STATE="", HOME="/nonexistent")
    assert done.returncode == 4, done
    assert server.cli("whoami", ATOLL_ADDR=server.url).returncode == 0


def test_contexts_lead_to_servers(server, tmp_path):
    env = {"HOME": str(tmp_path), "ATOLL_STATE": ""}
    server.cli("context", "set", "here", "--addr", server.url, "--token", server.token, check=True, **env)
    server.cli("context", "set", "nowhere", "--addr", "http://127.0.0.1:1", check=True, **env)
    assert server.cli("whoami", **env).returncode == 0
    assert server.cli("whoami", "--context", "nowhere", **env).returncode == 1
    server.cli("context", "use", "nowhere", check=True, **env)
    assert server.cli("whoami", **env).returncode == 1
    assert server.cli("whoami", "--context", "here", **env).returncode == 0
    listed = server.cli("context", "list", check=True, **env).stdout
    assert "here" in listed and server.token not in listed
    file = tmp_path / ".config/atoll/contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    done = server.cli("whoami", **env)
    assert done.returncode == 1 and "chmod 600" in done.stderr


def test_the_login_link_logs_in_once(server):
    link = server.cli("login", check=True, ATOLL_LISTEN=server.host).stdout.strip()
    assert link.startswith(server.url + "/#login=")
    code = link.split("#login=")[1]
    ask = urllib.request.Request(server.url + "/login", json.dumps({"code": code}).encode(),
                                 {"Content-Type": "application/json", "Origin": server.url})
    with urllib.request.urlopen(ask) as reply:
        assert "HttpOnly" in reply.headers["set-cookie"]
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(ask)


# ---- following ----

@pytest.mark.timeout(120)
def test_event_tail_survives_every_kind_of_restart(start_server):
    server = start_server()
    first = note(server, "first")
    with Tail(server, "event", "tail", "--since", "0", "--json", "--type", "note.*") as tail:
        assert json.loads(tail.lines(1)[0])["seq"] == first
        expected = []
        for kind in ("api", "all", "gentle"):
            expected.append(note(server, f"before {kind}"))
            if kind == "api":
                server.kill9_api()
                server.wait_ready()
            elif kind == "all":
                server.kill9_all()
                server.start()
            else:
                server.restart()
            expected.append(note(server, f"after {kind}"))
        got = [json.loads(line)["seq"] for line in tail.lines(len(expected), 30)]
        assert got == expected  # each once, in order
        tail.process.send_signal(signal.SIGINT)
        assert tail.process.wait(10) == -signal.SIGINT
        assert b"connecting again" in tail.process.stderr.read()


def test_event_tail_begins_now_and_misses_nothing(start_server):
    server = start_server()
    for i in range(3):
        note(server, f"old {i}")
    with Tail(server, "event", "tail") as tail:
        time.sleep(0.5 * harness.SANITIZED * harness.load())
        number = note(server, "new \x1b[31m")
        line = tail.lines(1)[0]
        assert line.startswith(f"{number} ") and "note.created" in line
        assert "\x1b" not in line


def test_event_tail_stops_when_its_token_dies(server):
    made = server.new_token("viewer")
    with Tail(server, "event", "tail", "--since", "0", ATOLL_TOKEN=made["token"]) as tail:
        tail.lines(1)
        server.delete(f"/api/v1/tokens/{made['id']}")
        tail.process.stdout.read()
        assert tail.process.wait(10 * harness.SLOW) == 4


def test_event_pages_end(server):
    number = note(server)
    lines = server.cli("event", "tail", "--since", str(number - 1), "--no-follow", "--json", check=True).stdout
    assert [json.loads(line)["seq"] for line in lines.splitlines()][0] == number


def test_a_future_event_is_refused(server):
    assert server.cli("event", "tail", "--since", "999999999").returncode == 1


# ---- the audit log ----

def test_audit_tail_shows_who_did_what(server):
    name = f"audited-{time.monotonic_ns()}"
    server.cli("token", "create", name, "--role", "viewer", check=True)
    rows = [json.loads(x) for x in server.cli("audit", "tail", "--json", check=True).stdout.splitlines()]
    assert any(row["action"] == "token.create" and row["outcome"] == "ok" for row in rows)
    assert len(rows) <= 20
    last = rows[-1]["seq"]
    found = server.cli("audit-log", "grep", rows[-1]["request_id"], "--json", check=True).stdout
    assert [json.loads(x)["seq"] for x in found.splitlines()] == [rows[-1]["seq"]]
    nothing = server.cli("audit", "grep", "no row has this text in it")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert server.cli("audit", "grep", "").returncode == 64
    server.cli("token", "revoke", name, check=True)
    after = server.cli("audit", "tail", "--since", str(last), check=True).stdout
    assert "token.revoke" in after


def test_audit_path_is_a_file_that_can_be_checked(server):
    path = server.cli("audit-log", "path", check=True).stdout.strip()
    assert json.loads(server.cli("audit", "path", "--json", check=True).stdout) == {"path": path}
    assert path.startswith(str(server.state))
    assert "rows fit" in server.cli("audit", "verify", "--db", path, check=True).stdout
    far = server.cli("audit", "path", "--addr", server.url)
    assert far.returncode == 1 and "where that server runs" in far.stderr, far


def test_server_stop_ends_it_and_a_watchdog_notices(start_server):
    server = start_server()
    with Tail(server, "health", "watchdog", "--every", "20ms", "--failures", "2") as dog:
        assert dog.process.poll() is None
        done = server.cli("server", "stop", "--json", check=True)
        assert json.loads(done.stdout) == {"state": str(server.state), "pid": server.process.pid, "stopped": True}
        assert server.process.wait(10) == 0
        assert dog.process.wait(30 * harness.SLOW) == 1
        told = dog.process.stderr.read().decode()
        assert "1 of 2: " in told and "failed 2 times in a row" in told, told
    again = server.cli("server", "stop")
    assert again.returncode == 2 and "no server is running" in again.stderr, again
    server.start()
    assert server.cli("server", "status", check=True).returncode == 0
    assert server.cli("health", "status", check=True).returncode == 0


def test_audit_tail_follows(server):
    with Tail(server, "audit", "tail", "--limit", "1", "--follow") as tail:
        tail.lines(1)
        number = note(server, "followed")
        assert number
        assert "note" in "".join(tail.lines(1))


def test_audit_verify_online_offline_and_against_a_noted_head(fresh_server):
    server = fresh_server
    for i in range(5):
        note(server, str(i))
    said = server.cli("audit", "verify", check=True).stdout
    head = re.search(r"^head (\d+:[0-9a-f]{64})$", said, re.M).group(1)
    note(server, "one more")
    assert server.cli("audit", "verify", "--head", head).returncode == 0
    row, digest = head.split(":")
    wrong = f"{row}:{'0' * 64}"
    assert server.cli("audit", "verify", "--head", wrong).returncode == 1
    server.stop(remove=False)
    db = str(server.state / "data" / "atoll.db")
    assert server.cli("audit", "verify", "--db", db, "--head", head).returncode == 0
    assert server.cli("audit", "verify", "--db", db, "--head", f"999:{digest}").returncode == 1
    server.start()


# ---- backup and restore ----

@pytest.mark.timeout(120)
def test_a_backup_leaves_nothing_on_the_server(start_server, tmp_path):
    server = start_server()
    server.cli("backup", str(tmp_path / "copy"), check=True)
    assert list((server.state / "data" / "backups").iterdir()) == []


def test_a_wrong_field_is_named(server):
    done = server.cli("token", "create", "", "--role", "viewer")
    assert done.returncode == 1 and "name must not be empty" in done.stderr, done


@pytest.mark.parametrize("flags", [["--listen", "nonsense"], ["--listen", "127.0.0.1:99999"],
                                   ["--auth", "open", "--listen", "0.0.0.0:0"], ["--drain", "soon"]])
def test_a_wrong_flag_of_serve_is_usage(server, flags):
    done = server.cli("serve", *flags)
    assert done.returncode == 64 and flags[-2] in done.stderr, done


def test_backup_of_a_running_server_and_back(start_server, tmp_path):
    server = start_server()
    kept = note(server, "kept")
    copy = tmp_path / "copy.db"
    said = json.loads(server.cli("backup", str(copy), "--json", check=True).stdout)
    assert said["from"] == "server" and said["bytes"] == copy.stat().st_size
    assert copy.stat().st_mode & 0o777 == 0o600
    assert server.cli("backup", str(copy)).returncode == 3
    lost = note(server, "lost")
    assert server.cli("restore", str(copy)).returncode == 3  # it is running
    server.stop(remove=False)
    said = server.cli("restore", str(copy), check=True).stdout
    aside = re.search(r"kept as (\S+)", said).group(1)
    assert os.path.exists(aside)
    server.start()
    head = server.get("/api/v1/events?limit=1").json()["head"]
    assert kept <= head < lost
    assert note(server, "again") > kept
    assert server.cli("whoami").returncode == 0  # the owner's token still works


@pytest.mark.timeout(120)
def test_restore_onto_a_new_machine(start_server):
    """Nothing but the backup is there; afterwards everything works, whoever restored."""
    server = start_server()
    kept = note(server, "kept")
    copy, fresh = server.top / "copy.db", server.top / "fresh"
    server.cli("backup", str(copy), check=True)
    server.cli("restore", str(copy), check=True, ATOLL_STATE=str(fresh))
    second = start_server(state=fresh)
    assert [e["seq"] for e in second.get("/api/v1/events?since=0").json()["items"]][-1] == kept
    note(second, "more")
    second.stop(remove=False)
    (fresh / "data" / "atoll.db.lock").unlink()  # as on a file system that was copied by hand
    second.cli("restore", str(copy), check=True)
    second.start()
    assert note(second, "and more") == kept + 1


def test_restore_refuses_a_damaged_file(start_server, tmp_path):
    server = start_server()
    note(server, "x")
    copy = tmp_path / "copy.db"
    server.cli("backup", str(copy), check=True)
    bytes_ = bytearray(copy.read_bytes())
    for at in range(4096, len(bytes_), 4096):
        bytes_[at:at + 64] = b"\xa5" * 64
    copy.write_bytes(bytes_)
    server.stop(remove=False)
    before = (server.state / "data" / "atoll.db").read_bytes()
    done = server.cli("restore", str(copy))
    assert done.returncode == 1, done
    assert (server.state / "data" / "atoll.db").read_bytes() == before
    server.start()


# ---- TLS ----

def test_https_is_verified(start_server, tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem", "-subj", "/CN=x",
                    "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server = start_server(tls=True, env={"ATOLL_TLS_CERT": str(tmp_path / "cert.pem"),
                                         "ATOLL_TLS_KEY": str(tmp_path / "key.pem")})
    env = {"ATOLL_ADDR": server.url, "ATOLL_TOKEN": server.token}
    assert server.cli("whoami", ATOLL_CA=str(tmp_path / "cert.pem"), **env).returncode == 0
    done = server.cli("whoami", **env)
    assert done.returncode == 4 and "certificate" in done.stderr
    other = server.url.replace("127.0.0.1", "localhost")
    done = server.cli("whoami", ATOLL_CA=str(tmp_path / "cert.pem"), **{**env, "ATOLL_ADDR": other})
    assert done.returncode == 4 and "certificate" in done.stderr


# ---- doctor ----

def test_doctor_looks_at_this_machine(server):
    done = server.cli("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    assert len(report["items"]) >= 8
    for item in report["items"]:
        assert item["state"] in ("ok", "lost", "fail", "unknown"), item
        assert item["state"] == "ok" or (item["lost"] and item["fix"]), item
    assert "landlock" in server.cli("doctor").stdout


def leaks_of(server):
    """What `doctor --leaks` says about this server; other traces on the machine are not its own."""
    done = server.cli("doctor", "--leaks", "--json")
    items = json.loads(done.stdout)["items"]
    assert done.returncode == (1 if items else 0), done
    return [i for i in items if str(server.state) in i["what"] or i["pid"] in server.seen]


@pytest.mark.timeout(120)
def test_doctor_finds_what_a_dead_server_left(start_server):
    server = start_server()
    assert leaks_of(server) == []
    server.kill9_all()
    left = leaks_of(server)
    assert sorted(i["what"].rsplit("/")[-1] for i in left if i["kind"] == "file") == ["atoll.sock", "door.sock"], left
    assert len(left) == 2, left
    assert "atoll.sock" in server.cli("doctor", "--leaks").stdout
    server.start()
    assert leaks_of(server) == []


# ---- the client and the server program ----


@pytest.mark.skipif(harness.SANITIZED > 1, reason="a sanitizer brings libraries of its own")
def test_the_client_is_linked_with_libc_alone():
    assert needed(harness.BIN) == {"libc.so.6"}
    assert "libcrypto.so.3" in needed(harness.BUILD / "atoll-server")


def test_the_client_hands_over_what_it_does_not_know(tmp_path):
    for argv in (["--help"], ["help", "ls"], ["ls", "--help"], ["docs", "settings"], ["completion", "bash"],
                 ["nonsense"], ["run", "--nonsense"], ["audit-log", "path"], []):
        ours = atoll(*argv)
        its = subprocess.run([harness.BUILD / "atoll-server", *argv], capture_output=True, text=True, timeout=30,
                             env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "ATOLL_STATE": "/nonexistent"},
                             stdin=subprocess.DEVNULL)
        assert (ours.returncode, ours.stdout, ours.stderr) == (its.returncode, its.stdout, its.stderr), argv
    alone = tmp_path / "atoll"
    alone.write_bytes((harness.BUILD / "atoll").read_bytes())
    alone.chmod(0o755)
    done = subprocess.run([alone, "version"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stdout.strip()
