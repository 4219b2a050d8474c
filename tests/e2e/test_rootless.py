"""Sandboxes of an ordinary user, who is made up for the test (tests/as_user.py): what works, what is
lost and said to be lost, and what a crash leaves behind, which is nothing."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import harness
import pytest
from harness import make_box as make
from harness import run_in as run

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else"),
              pytest.mark.skipif(harness.NO_USERNS, reason="a sanitizer's thread is in the way")]
BOXES = "/api/v1/sandboxes"
UID, RANGE = 720000001, "720100000:65536"
AS_USER = str(harness.ROOT / "tests" / "as_user.py")


class UserServer(harness.Server):
    """A server of a user with this range of ids."""

    def __init__(self, ids=RANGE, args=()):
        top = pathlib.Path(tempfile.mkdtemp(prefix="atoll-rootless-"))
        os.chown(top, UID, UID)
        self.ids, self.dir = ids, top
        args = [*args, "--pool-default", "0"]  # none but those that a test makes
        super().__init__(state=top / "state", args=args, prefix=[AS_USER, str(UID), ids])

    def cli(self, *argv, check=True):
        (self.dir / "empty").mkdir(exist_ok=True)
        os.chown(self.dir / "empty", UID, UID)
        done = subprocess.run([AS_USER, str(UID), self.ids, self.binary, *argv], capture_output=True,
                              text=True, timeout=60, cwd=self.dir / "empty",
                              env={**os.environ, "ATOLL_STATE": str(self.state)})
        assert not check or done.returncode == 0, done
        return done

    def inits(self):
        """Processes 1 of the sandboxes of this state directory, living ones."""
        st = self.state.stat()
        mark = f"atoll-{st.st_dev:x}-{st.st_ino:x}"
        found = []
        for proc in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (proc / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == b"atoll-init" and words[1] == mark.encode() and harness.alive(int(proc.name)):
                found.append(int(proc.name))
        made_ahead = {child for init in found for child in harness.descendants(init)}
        return [pid for pid in found if pid not in made_ahead]

    def leaks(self):
        found = json.loads(self.cli("doctor", "--leaks", "--json", check=False).stdout)
        return [leak for leak in found["items"]
                if str(self.state) in leak["what"] or leak.get("pid") in self.inits() + [None]]


@pytest.fixture
def user_server():
    servers = []

    def start(**options):
        servers.append(UserServer(**options))
        return servers[-1].start()

    yield start
    for server in servers:
        try:
            if server.process.poll() is None and server.is_ready():
                for box in server.get(BOXES).json()["items"]:
                    assert server.delete(f"{BOXES}/{box['id']}").status == 200
            server.stop(check=server.process.poll() is None)
            harness.wait_until(lambda: server.inits() == [], 5, "the end of its sandboxes")
            assert list((server.state / "boxes").iterdir()) == []
        finally:
            for pid in server.inits():
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(server.dir)


def applied(server, box):
    reply = server.get(f"{BOXES}/{box}/applied")
    assert reply.status == 200, reply
    return reply.json()


# ---- the usual ----

def test_a_command_for_somebody_who_only_started_the_server(user_server):
    server = user_server()
    done = server.cli("run", "--", "sh", "-c", "echo hi; id -u; exit 3", check=False)
    assert (done.stdout, done.returncode) == ("hi\n1000\n", 3), done
    assert server.get(BOXES).json()["items"] == []


def test_commands_input_terminals_and_both_users(user_server):
    server = user_server()
    box = make(server, user="root")
    assert run(server, box, "id", "-u")["output"] == "0\n"
    assert run(server, box, "id", "-u", user="agent")["output"] == "1000\n"
    done = run(server, box, "sh", "-c", "tty; stty size", tty=True, rows=33, cols=77)
    assert done["output"].replace("\r", "") == "/dev/pts/0\n33 77\n"
    exec_id = server.post(f"{BOXES}/{box}/execs", {"argv": ["cat"], "stdin_open": True}).json()["id"]
    data = os.urandom(300000)
    assert server.request("POST", f"{BOXES}/{box}/execs/{exec_id}/stdin?eof=1", body=data).status == 200
    assert server.get(f"{BOXES}/{box}/execs/{exec_id}?wait=20000").json()["exit_code"] == 0
    assert server.get(f"{BOXES}/{box}/execs/{exec_id}/output?stream=stdout").body == data


def test_the_process_is_nobody_else_on_the_machine(user_server):
    server = user_server()
    box = make(server)
    pid, = server.inits()
    first, count = (int(n) for n in RANGE.split(":"))
    uid = int(harness.proc_status(pid)["Uid"].split()[0])
    assert first <= uid < first + count
    assert server.api_pid() and harness.proc_status(server.api_pid())["Seccomp"] == "2"
    assert int(harness.proc_status(server.api_pid())["Uid"].split()[0]) == UID
    layers = {layer["layer"]: layer for layer in applied(server, box)["layers"]}
    assert layers["user_ids"]["applied"].startswith("1024 ") and layers["user_ids"]["lost"]


# ---- without a range ----

@pytest.mark.parametrize("ids", ["none", "720100000:1023", RANGE + ",without-uidmap"])
def test_without_a_range_the_agent_is_the_user(user_server, ids):
    server = user_server(ids=ids)
    assert "sandboxes run as this user itself" in server.log()
    box = make(server)
    done = run(server, box, "sh", "-c", "id -u; touch /workspace/x && stat -c %U /workspace/x; kill -9 1")
    assert done["output"] == "1000\nagent\n" and done["exit_code"] == 0
    pid, = server.inits()
    assert int(harness.proc_status(pid)["Uid"].split()[0]) == UID
    layers = {layer["layer"]: layer for layer in applied(server, box)["layers"]}
    assert "subuid" in layers["user_ids"]["lost"]
    reply = server.post(BOXES, {"user": "root"})
    assert reply.status == 501 and reply.error["field"] == "user", reply


# ---- limits ----

def test_an_asked_limit_that_cannot_hold_is_refused_by_name(user_server):
    server = user_server()
    for wish, field in (({"memory": 256 << 20}, "memory"), ({"cpu_percent": 50}, "cpu_percent"),
                        ({"user": "root", "pids": 50}, "pids"), ({"storage": "disk"}, "storage")):
        reply = server.post(BOXES, wish)
        assert reply.status == 501 and reply.error["field"] == field, reply
        assert field in reply.error["message"] or field == "storage", reply  # which speaks of disks
    assert server.get(BOXES).json()["items"] == []
    assert server.inits() == []


def test_the_operator_may_allow_it_and_that_is_told(user_server):
    server = user_server(args=["--allow-degraded", "cgroups"])
    box = make(server, memory=256 << 20, cpu_percent=50)
    layers = {layer["layer"]: layer for layer in applied(server, box)["layers"]}
    assert layers["memory"]["asked"] == "268435456" and "each process" in layers["memory"]["applied"]
    assert layers["memory"]["lost"] and layers["cpu_percent"]["lost"]
    assert layers["cpu_percent"]["applied"] is None
    rows = server.get("/api/v1/audit?limit=50").json()["items"]
    row, = [row for row in rows if row["action"] == "sandbox.create"]
    assert {"memory", "cpu"} <= set(row["detail"]["lost"]), row


def test_limits_that_hold_without_cgroups(user_server):
    server = user_server()
    box = make(server, pids=20, disk=4 << 20)
    done = run(server, box, "sh", "-c", "dd if=/dev/zero of=/tmp/f bs=64k count=128")
    assert "No space left" in done["errors"]
    done = run(server, box, "sh", "-c", "i=0; while [ $i -lt 60 ]; do sleep 2 & i=$((i+1)); done; echo all")
    assert "all" not in done["output"] and "fork" in done["errors"]
    reply = server.post(f"{BOXES}/{box}/pause")
    assert reply.status == 501, reply
    assert server.get(f"{BOXES}/{box}/stats").status == 501


def test_show_tells_what_is_lost(user_server):
    server = user_server()
    box = make(server)
    text = server.cli("show", box).stdout
    for word in ("memory", "each process", "cpu_percent", "seccomp", "landlock", "user_ids"):
        assert word in text, text


# ---- crashes ----

def test_the_api_may_die_at_any_time(user_server):
    server = user_server()
    box = make(server)
    exec_id = server.post(f"{BOXES}/{box}/execs",
                          {"argv": ["sh", "-c", "for i in $(seq 1 40); do echo $i; sleep 0.05; done"]}).json()["id"]
    server.kill9_api()
    server.wait_ready()
    done = server.get(f"{BOXES}/{box}/execs/{exec_id}?wait=20000").json()
    assert done["exit_code"] == 0
    assert server.get(f"{BOXES}/{box}/execs/{exec_id}/output?stream=stdout").body == \
        b"".join(b"%d\n" % i for i in range(1, 41))


def test_sandboxes_outlive_the_whole_server_and_are_found_again(user_server):
    server = user_server()
    box = make(server, name="kept")
    exec_id = server.post(f"{BOXES}/{box}/execs",
                          {"argv": ["sh", "-c", "seq 1 20000; sleep 1; echo end; exit 7"]}).json()["id"]
    before = server.inits()
    os.kill(server.warden_pid, signal.SIGKILL)
    server.process.wait()
    assert server.inits() == before
    server.start()
    assert "sandboxes taken over" in server.log()
    done = server.get(f"{BOXES}/{box}/execs/{exec_id}?wait=20000").json()
    assert done["exit_code"] == 7
    out = server.get(f"{BOXES}/{box}/execs/{exec_id}/output?stream=stdout").body
    assert out == b"".join(b"%d\n" % i for i in range(1, 20001)) + b"end\n"
    # The old and the new one live side by side in the same namespace.
    other = make(server)
    assert run(server, other, "echo", "new")["output"] == "new\n"
    assert run(server, box, "echo", "old")["output"] == "old\n"
    assert len(server.inits()) == 2
    layers = {layer["layer"]: layer for layer in applied(server, box)["layers"]}
    assert layers["seccomp"]["applied"].startswith("mode 2")


@pytest.mark.timeout(120)
def test_kills_in_the_middle_of_creations_leave_nothing(user_server):
    server = user_server()
    for turn in range(8):
        sockets = []
        for _ in range(4):
            sock = server.connect()
            body = b"{}"
            sock.sendall(b"POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
                         b"Content-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n%s" % (BOXES.encode(), server.host.encode(),
                                                             server.token.encode(), len(body), body))
            sockets.append(sock)
        time.sleep(0.003 * turn)
        os.kill(server.warden_pid, signal.SIGKILL)
        server.process.wait()
        for sock in sockets:
            sock.close()
        server.start()
        rows = {box["id"] for box in server.get(BOXES).json()["items"] if box["state"] == "running"}
        harness.wait_until(lambda: len(server.inits()) == len(rows), 5,
                           f"{len(rows)} sandboxes, there are {server.inits()}")
        for box in server.get(BOXES).json()["items"]:
            assert server.delete(f"{BOXES}/{box['id']}").status == 200
    assert server.inits() == [] and server.leaks() == []


def test_after_the_end_of_everything_nothing_is_left(user_server):
    server = user_server()
    for _ in range(3):
        make(server)
    server.kill9_all()
    assert server.inits() == []
    server.start()
    for box in server.get(BOXES).json()["items"]:
        assert box["state"] == "failed"
        assert server.delete(f"{BOXES}/{box['id']}").status == 200
    assert server.leaks() == []
    server.stop(remove=False)
    assert server.leaks() == []


def test_a_directory_cannot_be_bound_and_that_is_said(user_server):
    server = user_server()
    done = server.cli("run", "--bind", ".", "--", "true", check=False)
    assert done.returncode != 0 and "ordinary user started" in done.stderr and "--copy" in done.stderr, done
    assert server.inits() == []


# ---- the doctor ----

def test_the_doctor_says_what_is_missing_and_how_to_get_it(user_server):
    server = user_server(ids="none")
    checks = {c["name"]: c for c in json.loads(server.cli("doctor", "--json", check=False).stdout)["items"]}
    assert checks["subordinate_ids"]["state"] == "lost"
    assert "usermod --add-subuids" in checks["subordinate_ids"]["fix"]
    assert "Delegate" in checks["cgroups"]["fix"]
    server.ids = RANGE
    checks = {c["name"]: c for c in json.loads(server.cli("doctor", "--json", check=False).stdout)["items"]}
    assert checks["subordinate_ids"]["state"] == "ok"
    server.ids = RANGE + ",without-uidmap"
    checks = {c["name"]: c for c in json.loads(server.cli("doctor", "--json", check=False).stdout)["items"]}
    assert "uidmap" in checks["subordinate_ids"]["fix"]


# ---- started by root ----

def test_with_root_nothing_is_lost(server):
    box = make(server, memory=256 << 20, pids=50, cpu_percent=50)
    layers = {layer["layer"]: layer for layer in applied(server, box)["layers"]}
    assert {name: layer["lost"] for name, layer in layers.items() if layer["lost"]} == {}
    for name, value in (("memory", "268435456"), ("pids", "50"), ("cpu_percent", "50")):
        assert layers[name]["asked"] == layers[name]["applied"] == value
    assert "sha256:" in layers["seccomp"]["applied"]
    assert server.delete(f"{BOXES}/{box}").status == 200


def test_nesting_is_asked_for_works_and_is_told(server):
    box = make(server, nesting=True)
    script = "unshare --user --map-root-user --mount --pid --fork sh -c 'mount -t proc p /proc && echo $$'"
    assert run(server, box, "sh", "-c", script)["output"] == "1\n"
    layers = {layer["layer"]: layer for layer in applied(server, box)["layers"]}
    assert layers["nested"]["applied"] == "allowed"
    assert layers["landlock"]["lost"] and layers["proc"]["lost"] and layers["seccomp"]["lost"]
    assert server.get(f"{BOXES}/{box}").json()["nesting"] is True
    assert server.delete(f"{BOXES}/{box}").status == 200
    box = make(server)
    assert run(server, box, "sh", "-c", script)["exit_code"] != 0
    assert server.delete(f"{BOXES}/{box}").status == 200
