"""`atoll run` as its user sees it: a command in a fresh sandbox with a copy of the directory, its exit
status, and what it changed, taken back. The workload is hostile whenever that makes a difference."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import harness
import images
import pytest
from person import Terminal

sys.path.insert(0, str(harness.ROOT / "sdk" / "python" / "src"))
import atoll as atoll_sdk  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


@pytest.fixture
def work(tmp_path):
    """A directory to run in."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def atoll(server, work):
    """atoll(args…, cwd=work, input=None, env={…}): the finished process, output as bytes. No sandbox
    may be left in the end."""

    def run(*args, cwd=work, input=b"", timeout=40, **env):
        return subprocess.run([server.binary, *args], cwd=cwd, input=input, capture_output=True,
                              timeout=timeout, env=environment(server, **env))

    yield run
    assert server.get(BOXES).json()["items"] == []


def environment(server=None, **more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    return {**clean, **({"ATOLL_STATE": str(server.state)} if server else {}), **more}


def sh(atoll, script, *flags, **kw):
    return atoll("run", *flags, "--", "sh", "-c", script, **kw)


def tree(root):
    """Everything below a directory: path → what it is."""
    found = {}
    for path in sorted(pathlib.Path(root).rglob("*")):
        name = os.fsencode(path.relative_to(root))
        st = path.lstat()
        if stat.S_ISLNK(st.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISREG(st.st_mode):
            found[name] = (oct(st.st_mode & 0o7777), path.read_bytes())
        else:
            found[name] = ("other", stat.S_IFMT(st.st_mode))
    return found


# ---- the command ----

def test_output_input_and_exit_status(atoll):
    done = sh(atoll, "cat; echo err >&2; exit 7", input=b"in\0\xff\n")
    assert (done.returncode, done.stdout) == (7, b"in\0\xff\n")
    assert b"err\n" in done.stderr
    assert atoll("run", "--", "no-such-program").returncode == 127
    assert sh(atoll, "kill -KILL $$").returncode == 137


def test_wrong_flags_are_explained(atoll, work):
    for flags, words in ((["--bind", ".", "--copy", "."], b"not more"),
                         (["--no-workspace", "--apply"], b"--apply is about a copied workspace"),
                         (["--apply-git"], b"--apply-git goes with --apply")):
        done = atoll("run", *flags, "--", "true")
        assert done.returncode == 64 and words in done.stderr, done
    done = atoll("run", "--copy", "missing", "--", "true")
    assert done.returncode != 0 and b"missing" in done.stderr
    (work / "file").write_text("x")
    done = atoll("run", "--copy", "file", "--", "true")
    assert done.returncode != 0 and b"file" in done.stderr


def test_a_sandbox_that_is_kept(atoll, server):
    done = sh(atoll, "echo x > file", "--keep")
    assert done.returncode == 0
    (box,) = server.get(BOXES).json()["items"]
    assert f"sandbox {box['id']} stays".encode() in done.stderr
    assert box["expires_at"] is None
    assert server.delete(f"{BOXES}/{box['id']}").status == 200


def test_flags_have_letters_and_commands_can_be_left(atoll, server):
    done = atoll("run", "-d", "-e", "WHO=me", "-w/tmp", "--", "sh", "-c", "echo $WHO in $PWD; sleep 1000")
    assert done.returncode == 0, done
    box = done.stdout.decode().strip()
    assert [b["id"] for b in server.get(BOXES).json()["items"]] == [box]
    logs = atoll("logs", box)
    assert logs.stdout == b"me in /tmp\n", logs
    left = atoll("exec", "-d", box, "--", "sh", "-c", "echo later").stdout.decode().strip()
    assert left.startswith("ex")
    assert atoll("logs", "-f", box, left).stdout == b"later\n"
    assert atoll("exec", "-i", "-u", "agent", box, "--", "cat", input=b"in").stdout == b"in"
    assert atoll("rm", box).returncode == 0
    done = atoll("run", "-d", "--apply", "--", "true")
    assert done.returncode == 64 and b"not with --detach" in done.stderr
    done = atoll("run", "-d", "--", "no-such-program")
    assert done.returncode == 127 and server.get(BOXES).json()["items"] == []


def test_a_sandbox_that_somebody_removes_does_not_stay(atoll, server, work):
    process = subprocess.Popen([server.binary, "run", "--no-workspace", "--", "sh", "-c", "echo ready; exec sleep 100"],
                               cwd=work, env=environment(server), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    (box,) = server.get(BOXES).json()["items"]
    assert server.delete(f"{BOXES}/{box['id']}").status == 200
    _, err = process.communicate(timeout=40)
    assert process.returncode != 0 and b"before the command did" in err and b"stays" not in err, err


# ---- the terminal ----

@pytest.fixture
def terminal(server, work):
    made = []

    def start(*args, term="xterm"):
        made.append(Terminal([server.binary, *args], work, environment(server, TERM=term)))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_terminal_for_a_terminal(atoll, terminal):
    t = terminal("run", "--", "sh", "-c", "tty; stty size; read x; echo got $x; exit 5")
    t.expect(b"/dev/pts/")
    t.expect(b"30 100")
    t.type(b"word\r")
    t.expect(b"got word")
    assert t.end() == 5


@pytest.mark.parametrize("flags,term,seen", [
    ((), "screen.linux", b"[screen.linux]"),
    (("-e", "A=1"), "vt100", b"[vt100]"),
    (("-e", "TERM=dumb"), "vt100", b"[dumb]"),
    ((), "", b"[xterm-256color]"),
    ((), "x" * 64, b"[" + b"x" * 64 + b"]"),
    ((), "x" * 65, b"[xterm-256color]"),
])
def test_the_command_knows_which_terminal_it_is(atoll, terminal, flags, term, seen):
    t = terminal("run", "--no-workspace", *flags, "--", "sh", "-c", "echo \"[$TERM]\"; exit 5", term=term)
    t.expect(seen)
    assert t.end() == 5


def test_without_a_terminal_none_is_named(atoll):
    assert sh(atoll, "echo [$TERM]", "--no-workspace", TERM="vt100").stdout == b"[]\n"


def test_without_a_command_there_is_a_shell(atoll, terminal):
    t = terminal("run")
    t.expect(b"$ ")
    t.type(b"echo $((6*7)) > /tmp/x; cat /tmp/x; exit 3\r")
    t.expect(b"42\r\n")
    assert t.end() == 3


def test_ctrl_c_is_the_commands(atoll, terminal):
    t = terminal("run", "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done")
    t.expect(b"ready")
    t.type(b"\x03")
    t.expect(b"caught")
    assert t.end() == 9


def test_no_tty_leaves_the_terminal_alone(atoll, terminal):
    t = terminal("run", "--no-tty", "--", "sh", "-c", "tty || echo none")
    t.expect(b"none")
    assert t.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_the_sandbox_goes(atoll, terminal, number):
    t = terminal("run", "--", "sh", "-c", "echo ready; exec sleep 100")
    t.expect(b"ready")
    t.process.send_signal(number)
    assert t.end() == 128 + number


def test_a_killed_api_is_waited_for(atoll, terminal, server):
    t = terminal("run", "--", "sh", "-c", "echo ready; read x; echo got $x; exit 4")
    t.expect(b"ready")
    server.kill9_api()
    server.wait_ready()
    t.type(b"on\r")
    t.expect(b"got on")
    assert t.end() == 4


def test_a_terminal_goes_on_when_typed_input_went_with_a_killed_api(atoll, terminal, server):
    """It is told; a person sees what came and types on, and the status stays the command's."""
    wait = "stty raw -echo; echo ready; until test -e /tmp/go; do sleep 0.05; done; exit 4"
    t = terminal("run", "--", "sh", "-c", wait)
    t.expect(b"ready")
    os.set_blocking(t.master, False)
    last = time.monotonic()
    while time.monotonic() - last < 1:  # until nobody takes any more for a while
        try:
            t.type(b"x" * 4096)
            last = time.monotonic()
        except BlockingIOError:
            time.sleep(0.05)
    server.kill9_api()
    server.wait_ready()
    t.expect(b"may not have all of it")
    harness.run_in(server, server.get(BOXES).json()["items"][0]["id"], "touch", "/tmp/go")
    assert t.end() == 4


@pytest.mark.parametrize("command", ["exec", "run"])
def test_input_that_a_killed_api_had_is_neither_lost_nor_doubled(atoll, server, work, tmp_path, command):
    """Three times while a piece of it waits for the command to read: it gets all of it, and nobody hears of that."""
    data = b"".join(b"%07d\n" % i for i in range(200_000))
    (tmp_path / "data").write_bytes(data)
    kept = atoll("run", "-d", "--", "sleep", "1000").stdout.decode().strip() if command == "exec" else None
    since = server.get("/api/v1/audit/verify").json()["rows"]
    wait = "until test -e /tmp/go; do sleep 0.05; done; cat; exit 5"
    with open(tmp_path / "data", "rb") as stdin, open(tmp_path / "out", "wb") as out:
        client = subprocess.Popen([server.binary, command, *([kept] if kept else []), "--", "sh", "-c", wait], cwd=work,
                                  stdin=stdin, stdout=out, stderr=subprocess.PIPE, env=environment(server))
    try:
        seen = [0, time.monotonic()]

        def stuck():
            """Pieces have been taken, and the next one has had to wait for a while."""
            rows = server.get(f"/api/v1/audit?since={since}&limit=1000").json()["items"]
            now = sum(row["action"] == "exec.stdin" for row in rows)
            if now != seen[0]:
                seen[:] = [now, time.monotonic()]
            return now and time.monotonic() - seen[1] > 1

        harness.wait_until(stuck, 20, "input that has to wait", pause=0.1)
        for _ in range(3):
            server.kill9_api()
            server.wait_ready()
            time.sleep(0.3)  # for the piece to be sent again, and to wait again
        box = kept or server.get(BOXES).json()["items"][0]["id"]
        harness.run_in(server, box, "touch", "/tmp/go")
        said = client.communicate(timeout=40 * harness.SLOW)[1]
        got = (tmp_path / "out").read_bytes()
        assert got == data, (len(got), len(data), os.path.commonprefix([got, data])[-8:])
        assert client.returncode == 5 and b"may not have" not in said, said
    finally:
        client.kill()
        if kept:
            assert atoll("rm", kept).returncode == 0


@pytest.mark.timeout(120)
def test_input_flows_on_while_the_api_is_killed_again_and_again(atoll, server, work):
    """Kills fall anywhere: into a piece that is sent, taken, answered."""
    data = b"".join(b"%07d\n" % i for i in range(600_000))
    kept = atoll("run", "-d", "--", "sleep", "1000").stdout.decode().strip()
    client = subprocess.Popen([server.binary, "exec", "-i", kept, "--", "sha256sum"], cwd=work, env=environment(server),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ended = threading.Event()

    def feed():
        for at in range(0, len(data), 40_000):
            client.stdin.write(data[at:at + 40_000])
            client.stdin.flush()
            time.sleep(0.01)
        client.stdin.close()
        ended.set()

    feeder = threading.Thread(target=feed)
    try:
        feeder.start()
        kills = 0
        while not ended.wait(random.uniform(0.02, 0.3)) and kills < 8:
            server.kill9_api()
            server.wait_ready()
            kills += 1
        feeder.join(60 * harness.SLOW)
        client.wait(40 * harness.SLOW)
        assert client.stdout.read().split() == [hashlib.sha256(data).hexdigest().encode(), b"-"]
        assert (client.returncode, client.stderr.read()) == (0, b"") and kills > 2, kills
    finally:
        client.kill()
        feeder.join(20)
        assert atoll("rm", kept).returncode == 0


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_a_server_that_is_gone_can_be_left(start_server, work, how):
    server = start_server()
    t = Terminal([server.binary, "run", "--", "sh", "-c", "echo ready; read x"], work,
                 environment(server, TERM="xterm"))
    try:
        t.expect(b"ready")
        os.kill(server.api_pid(), signal.SIGSTOP)  # there, and silent
        server.kill9_all()
        time.sleep(0.5)  # until the loss has been noticed
        if how == "Ctrl-C":
            t.type(b"\x03")
        else:
            t.process.send_signal(signal.SIGTERM)
        assert t.end() == 128 + (signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
    finally:
        t.close()
        server.start()  # takes the sandbox over
        for box in server.get(BOXES).json()["items"]:
            assert server.delete(f"{BOXES}/{box['id']}").status == 200


def signalled(server, work, number, until, *args):
    """Runs, and sends a signal as soon as a text stands on standard error: status and the rest of it."""
    process = subprocess.Popen([server.binary, "run", *args], cwd=work, env=environment(server), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    seen = b""
    while until not in seen:
        more = os.read(process.stderr.fileno(), 65536)
        assert more, seen
        seen += more
    process.send_signal(number)
    _, rest = process.communicate(timeout=60)
    return process.returncode, seen + rest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_workspace_is_copied(atoll, server, work, number):
    (work / "large").write_bytes(bytes(200 << 20))
    status, _ = signalled(server, work, number, b"copying 1 file", "--copy", ".", "--", "sleep", "100")
    assert status == 128 + number


def test_a_signal_while_changes_come_back_leaves_all_or_nothing(atoll, server, work, tmp_path):
    for i in range(300):
        (work / f"f{i}").write_text("old\n")
    status, err = signalled(server, work, signal.SIGTERM, b"300 files changed", "--apply", "--", "sh", "-c",
                            "for f in *; do echo new > $f; done")
    assert status in (0, 128 + signal.SIGTERM), err
    contents = {p.read_text() for p in work.iterdir()}
    assert contents == ({"new\n"} if status == 0 else {"old\n"})
    if status:
        assert b"atoll: interrupted: nothing was taken back\n" in err
        fetch_what_stayed(atoll, server, err, tmp_path)
        assert {p.read_text() for p in (tmp_path / "fetched").iterdir()} == {"new\n"}


def stages(work):
    return [p for p in work.iterdir() if p.name.startswith(".atoll-")]


def test_a_second_signal_while_changes_come_back_leaves_no_directory(atoll, server, work):
    process = subprocess.Popen([server.binary, "run", "--apply", "--", "truncate", "-s", "400M", "large"], cwd=work,
                               env=environment(server), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    harness.wait_until(lambda: [p for s in stages(work) for p in s.iterdir()], 30, "the stage")
    os.kill(server.api_pid(), signal.SIGSTOP)  # so that it does not come to its end
    try:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # two of one kind at once would be one
        _, err = process.communicate(timeout=30)
    finally:
        os.kill(server.api_pid(), signal.SIGCONT)
    assert process.returncode == 128 + signal.SIGTERM
    assert list(work.iterdir()) == []
    (box,) = server.get(BOXES).json()["items"]
    assert f"interrupted; sandbox {box['id']} stays with the changes".encode() in err
    assert atoll("rm", box["id"]).returncode == 0


def test_what_a_killed_run_left_is_not_copied(atoll, work):
    for name in (".atoll-0123456789abcdef", "sub/.atoll-0123456789abcdef", ".atoll-other", ".atoll"):
        (work / name).mkdir(parents=True)
        (work / name / "file").write_text("x")
    done = sh(atoll, "find . -type f | sort", "--copy", ".", "--apply")
    assert done.stdout == b"./.atoll-other/file\n./.atoll/file\n" and b"left out" not in done.stderr, done
    assert done.returncode == 0 and (work / ".atoll-0123456789abcdef/file").exists()


# ---- a view ----

def test_nothing_is_copied_into_a_view(atoll, work):
    (work / "large").write_bytes(bytes(700 << 20))  # more than the sandbox may write
    done = sh(atoll, "ls; echo x > large; echo y > new; cat /run/workspace/before/new", "--verbose")
    assert done.stdout == b"large\n" and b"copying" not in done.stderr
    assert b"M large\nA new\n" in done.stderr
    assert (work / "large").stat().st_size == 700 << 20 and not (work / "new").exists()
    assert b"copying 1 file" in sh(atoll, "true", "--exclude", "x").stderr


def test_a_view_on_a_disk_holds_what_memory_does_not(atoll, work):
    (work / "old").write_text("1\n")
    fill = "head -c 700M /dev/zero > big && rm big; echo 2 > old; rm -f gone; echo 3 > new"
    done = sh(atoll, fill, "--storage", "disk", "--disk", "1G", "--apply")
    assert done.returncode == 0 and b"copying" not in done.stderr, done
    assert b"A new\nM old\n" in done.stderr
    assert ((work / "old").read_text(), (work / "new").read_text()) == ("2\n", "3\n")
    done = sh(atoll, "true", "--storage", "disk", "--detach")  # it can be stopped, and a view would end
    assert b"copying 2 files" in done.stderr, done
    assert atoll("rm", done.stdout.decode().strip()).returncode == 0


def test_a_view_that_is_full_says_what_to_do(atoll, work):
    done = sh(atoll, "head -c 64M /dev/zero > big", "--disk", "32M")
    assert done.returncode == 1 and b"No space left" in done.stderr, done
    assert b"fill the memory that they may have: --storage disk puts them on disk" in done.stderr, done
    assert b"--storage disk" not in sh(atoll, "head -c 30M /dev/zero > big", "--disk", "32M").stderr
    done = sh(atoll, "head -c 64M /dev/zero > big", "--disk", "32M", "--storage", "disk")
    assert done.returncode == 1 and b"--storage disk" not in done.stderr, done


MOVES = """
mkdir none
d() { set -- $(find . -mindepth 1 -maxdepth 3 -type d | sort | sed -n "$(($1 % 7 + 1))p"); echo "${1:-none}"; }
f() { find . -type f | sort | sed -n "$(($1 % 11 + 1))p"; }
"""


@pytest.mark.parametrize("seed", range(16))
def test_a_view_tells_what_a_copy_tells(atoll, work, seed):
    """The same random changes in a view and in a copy: the same list and the same patch."""
    rand = random.Random(seed)
    for i in range(30):
        path = work / "/".join(f"d{rand.randrange(3)}" for _ in range(rand.randrange(4))) / f"f{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{i}\n")
    (work / "l").symlink_to("d0")
    os.link(next(work.rglob("f3")), work / "hard")
    steps = ["rm -r $(d {n})", "rm $(f {n})", "echo {n} >> $(f {n})",
             "mkdir -p $(d {n})/d{m}; echo {n} > $(d {n})/d{m}/f{m}",
             "x=$(d {n}); rm -r $x; mkdir -p $x; echo {n} > $x/f{m}", "x=$(d {n}); rm -r $x; echo file > $x",
             "mv $(d {n}) moved{n}", "mv $(f {n}) renamed{n}", "chmod 0{n}55 $(f {n})",
             "x=$(f {n}); rm $x; mkdir $x; touch $x/in",
             "x=$(f {n}); rm $x; ln -s to{n} $x", "touch $(f {n})", "ln $(f {n}) again{n}",
             "cp -a $(d {n}) copied{n}"]
    script = MOVES + "\n".join(rand.choice(steps).format(n=rand.randrange(2, 8), m=rand.randrange(4))
                               for _ in range(12))
    told = []
    for how in ([], ["--copy", "."]):
        done = sh(atoll, script + "\ntrue", "--patch", "-", *how)
        assert done.returncode == 0, done
        told.append((done.stdout, [line for line in done.stderr.splitlines()
                                   if line[:2] in (b"A ", b"D ", b"M ", b"T ")]))
    assert told[0] == told[1], script


def test_a_repository_that_was_there_is_known_although_it_did_not_change(atoll, work):
    (work / "repo").mkdir()
    git("init", "-q", "--bare", ".", cwd=work / "repo")
    before = (work / "repo" / "config").read_bytes()
    done = sh(atoll, "echo '[core] fsmonitor = touch /tmp/x' >> repo/config; echo x > new", "--apply")
    assert b"not taken back: 1 of git's own files" in done.stderr, done
    assert (work / "repo" / "config").read_bytes() == before and (work / "new").exists()


def test_what_is_mounted_below_the_directory_is_named(atoll, work):
    (work / "mnt").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(work / "mnt")], check=True)
    try:
        (work / "mnt" / "file").write_text("x")
        done = sh(atoll, "ls mnt")
    finally:
        subprocess.run(["umount", str(work / "mnt")], check=True)
    assert done.stdout == b"" and b"not in the sandbox: " + bytes(work / "mnt") in done.stderr


def test_the_changes_of_a_kept_sandbox(atoll, server, work, tmp_path):
    (work / "old").write_text("1\n")
    assert sh(atoll, "echo 2 > old; echo 3 > new", "--keep").returncode == 0
    (box,) = server.get(BOXES).json()["items"]
    lines = [json.loads(line) for line in server.get(f"{BOXES}/{box['id']}/changes").body.splitlines()]
    digest = {text: hashlib.sha256(f"{text}\n".encode()).hexdigest() for text in "123"}
    assert [(x["side"], x["file"]["name"], x["file"]["sha256"]) for x in lines] == [
        ("after", "new", digest["3"]), ("before", "old", digest["1"]), ("after", "old", digest["2"])]
    assert atoll("diff", box["id"]).stdout.splitlines()[:2] == [b"A new", b"M old"]
    assert json.loads(atoll("changes", "--json", box["id"]).stdout)["items"][1] == {"change": "M", "path": "old"}
    patch = tmp_path / "the.patch"
    patch.write_bytes(atoll("diff", "--patch", box["id"]).stdout)
    with atoll_sdk.Client(state=str(server.state)) as client:
        told = [(side, file.name) for side, file in client.sandboxes.get(box["id"]).files.changes()]
    assert told == [("after", "new"), ("before", "old"), ("after", "old")]
    git("apply", str(patch), cwd=work)
    assert ((work / "old").read_text(), (work / "new").read_text()) == ("2\n", "3\n")
    assert server.delete(f"{BOXES}/{box['id']}").status == 200
    assert atoll("run", "--keep", "--no-workspace", "--", "true").returncode == 0
    (box,) = server.get(BOXES).json()["items"]
    assert atoll("diff", box["id"]).returncode == 3
    reply = server.get(f"{BOXES}/{box['id']}/changes")
    assert reply.status == 409 and "no view" in reply.json()["error"]["message"]
    assert server.delete(f"{BOXES}/{box['id']}").status == 200


# ---- without a server ----

def private_leftovers(tmp):
    return [p for p in tmp.iterdir() if p.name.startswith("atoll-run-")]


def sandboxes_of(path):
    """Processes that know a path: the private server and its keeper."""
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit() and str(path) in harness.cmdline(int(pid)):
            found.append(int(pid))
    return found


@pytest.fixture
def tmp(tmp_path_factory):
    path = tmp_path_factory.mktemp("t")
    for parent in [path, *path.parents][:3]:
        parent.chmod(0o755)
    return path


def private(tmp, work, *args, **kw):
    return subprocess.run([harness.BIN, "run", "--private", *args], cwd=work, capture_output=True, timeout=60,
                          input=b"", env=environment(TMPDIR=str(tmp), ATOLL_LISTEN="127.0.0.1:1"), **kw)


def test_a_private_server_leaves_nothing(tmp, work):
    (work / "a").write_text("old\n")
    done = private(tmp, work, "--apply", "--verbose", "--", "sh", "-c", "echo new > a; exit 6")
    assert done.returncode == 6, done
    assert b"started one in " + bytes(tmp) in done.stderr
    assert (work / "a").read_text() == "new\n"
    assert private_leftovers(tmp) == [] and sandboxes_of(tmp) == []


def test_a_private_server_is_in_memory_unless_told_where(work):
    """Its state is thrown away: neither a busy disk nor a flush of it is worth waiting for."""
    process = subprocess.Popen([harness.BIN, "run", "--private", "--verbose", "--", "sleep", "1000"], cwd=work,
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env={k: v for k, v in environment().items() if k != "TMPDIR"})
    said = process.stderr.readline()
    state = said.split()[-1].decode()
    try:
        assert state.startswith("/dev/shm/atoll-run-"), said
        harness.wait_until(lambda: [p for p in sandboxes_of(state) if "--throw-away" in harness.cmdline(p)], 10,
                           "the server that waits for no disk")
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()
    harness.wait_until(lambda: not os.path.exists(state), 30, "the end of the private server")


def test_a_private_server_says_nothing_unasked(tmp, work):
    done = private(tmp, work, "--no-workspace", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_private_server_cannot_be_kept(tmp, work):
    done = private(tmp, work, "--keep", "--", "true")
    assert done.returncode == 64 and b"atoll serve" in done.stderr
    assert private_leftovers(tmp) == []


def groups_of_sandboxes():
    """Groups of other servers may go while the tree is walked."""
    return [pathlib.Path(at) / name for at, names, _ in os.walk("/sys/fs/cgroup") for name in names
            if name.startswith("sb")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_takes_its_private_server_along(tmp, work, number):
    process = subprocess.Popen([harness.BIN, "run", "--private", "--", "sh", "-c", "echo ready; exec sleep 100"],
                               cwd=work, env=environment(TMPDIR=str(tmp)), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == b"ready\n"
    groups = groups_of_sandboxes()
    state = private_leftovers(tmp)[0] / "state"
    (box,) = (state / "boxes").iterdir()
    process.send_signal(number)
    process.wait(30)
    process.stdout.close()
    harness.wait_until(lambda: not private_leftovers(tmp), 30, "the end of the private server")
    harness.wait_until(lambda: not sandboxes_of(tmp), 10, "the end of its processes")
    assert not [g for g in groups if box.name in str(g) and g.exists()]


def test_why_a_private_server_cannot_start(tmp, work):
    done = subprocess.run([harness.BIN, "run", "--private", "--", "true"], cwd=work, capture_output=True,
                          timeout=60, env=environment(TMPDIR=str(tmp / "missing")))
    assert done.returncode == 1
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith("atoll: no server is running, and a private one cannot be started: "), lines
    assert "No such file or directory" in lines[0]


def test_a_server_that_was_named_and_is_not_there_is_an_error(tmp, work):
    done = subprocess.run([harness.BIN, "run", "--state", str(tmp), "--", "true"], cwd=work,
                          capture_output=True, timeout=60, env=environment(TMPDIR=str(tmp)))
    assert done.returncode != 0 and b"is the server running?" in done.stderr
    assert b"--private uses one of its own" in done.stderr  # what was named is not replaced unasked
    assert private_leftovers(tmp) == []


# ---- the workspace ----

@pytest.mark.parametrize("how", [[], ["--copy", "."]])
def test_the_directory_is_there_as_the_agents_own(atoll, work, how):
    (work / "sub").mkdir()
    (work / "sub" / "file").write_bytes(b"x\0y")
    (work / "sub" / "prog").write_text("#!/bin/sh\necho ran\n")
    (work / "sub" / "prog").chmod(0o755)
    (work / "link").symlink_to("sub/file")
    os.mkfifo(work / "fifo")
    done = sh(atoll, "pwd; stat -c %U . sub/file; cat link | tr '\\0' 0; ./sub/prog; ls | grep -v fifo",
              *how)
    # check-style: allow machine-path: inside every sandbox
    assert done.stdout == b"/workspace\nagent\nagent\nx0yran\nlink\nsub\n", done
    assert (b"3 files" in done.stderr) == (b"1 socket, FIFO or device was not copied" in done.stderr) == bool(how)


def test_nothing_is_copied_when_nothing_is_wanted(atoll, work):
    (work / "file").write_text("x")
    done = sh(atoll, "ls -A", "--no-workspace")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_another_directory_and_what_to_leave_out(atoll, work, tmp_path):
    other = tmp_path / "other"
    for name in ("keep/a", "node_modules/x/y", "sub/node_modules/z", "a.o", "sub/b.o", "sub/c.c", "sub/d.c"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text("x")
    done = sh(atoll, "find . -type f | sort", "--copy", str(other), "--exclude", "node_modules", "--exclude", "*.o",
              "--exclude", "sub/d*")
    assert done.stdout == b"./keep/a\n./sub/c.c\n"
    assert b"left out" in done.stderr


def test_what_changed_is_told_on_standard_error(atoll, work):
    (work / "gone").write_text("x")
    (work / "mode").write_text("x")
    (work / "same").write_text("x")
    done = sh(atoll, r"""rm gone; chmod +x mode; touch same; mkdir -p d/e
                         echo x > "d/e/$(printf 'a\033[31m\nD same')" """)
    lines = done.stderr.decode().splitlines()
    assert lines[-5:-1] == [r"A d/e/a\x1b[31m\nD same", "D gone", "M mode (mode 755, was 644)",
                            "3 files changed: 1 added, 1 modified, 1 removed"]
    assert done.stdout == b""
    assert b"changed" not in sh(atoll, "cat same").stderr


DISCARDED = b"the changes are discarded; to keep them: --apply"


def test_changes_that_nobody_keeps_are_said_to_be_discarded(atoll, server, work, tmp_path):
    assert DISCARDED in sh(atoll, "echo x > file").stderr.splitlines()[-1]
    for flags in (["--apply"], ["--patch", str(tmp_path / "patch")], ["--keep"]):
        assert DISCARDED not in sh(atoll, "echo y > file", *flags).stderr
    (box,) = server.get(BOXES).json()["items"]
    assert server.delete(f"{BOXES}/{box['id']}").status == 200
    assert DISCARDED not in sh(atoll, "true").stderr  # nothing is lost


def test_a_time_limit_ends_the_command(atoll):
    for flag in ("--timeout", "--kill-after"):
        done = sh(atoll, "echo begun; sleep 50; echo late", flag, "1s")
        assert (done.returncode, done.stdout) == (137, b"begun\n"), done
    # A limit shorter than a call takes is none of the calls.
    assert atoll("run", "--timeout", "1ms", "--", "sleep", "50").returncode == 137
    both = atoll("run", "--timeout", "1s", "--kill-after", "1s", "--", "true")
    assert both.returncode == 64 and b"are the same" in both.stderr


def test_a_program_that_is_only_here_is_explained(atoll):
    done = atoll("run", "--", "no-such-program")
    assert done.returncode == 127 and b"/usr/local" in done.stderr and b"into the workspace" in done.stderr


def git(*args, cwd):
    return subprocess.run(["git", *args], cwd=cwd, capture_output=True, check=True,
                          env={**environment(), "GIT_CEILING_DIRECTORIES": "/", "HOME": "/nonexistent"})


CHANGES = r"""
set -e
rm gone; rm -r dir; echo file > dir
rm up; mkdir -p up/and; echo in > up/and/in
echo changed >> text; printf 'no newline' > end
head -c 5000 /dev/urandom > binary; chmod +x script
ln -sf other link; ln -s ../up deep/down/in
mkdir -p new/sub; echo x > "new/sub/$(printf 'a "b\\\n\tc')"; : > empty
mv moved renamed
"""


def prepare(work):
    for name, data in {"gone": b"x\n", "dir/a": b"a\n", "text": b"".join(b"%d\n" % i for i in range(50)), "end": b"e\n",
                       "binary": bytes(range(256)) * 10, "script": b"#!/bin/sh\n", "moved": b"m\n", "deep/down/x": b"",
                       "up": b"u\n"}.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(data)
    (work / "link").symlink_to("text")


def test_a_patch_that_git_takes(atoll, work, tmp_path):
    prepare(work)
    before = tree(work)
    patch = tmp_path / "the.patch"
    done = sh(atoll, CHANGES, "--patch", str(patch))
    assert done.returncode == 0, done.stderr
    assert tree(work) == before
    to_stdout = sh(atoll, "echo changed >> text; echo out", "--patch", "-")
    assert to_stdout.stdout.startswith(b"out\ndiff --git a/text b/text\n")
    git("apply", "--whitespace=nowarn", str(patch), cwd=work)
    patched = tree(work)
    git("apply", "--whitespace=nowarn", "-R", str(patch), cwd=work)
    done = sh(atoll, "true", "--apply")
    assert done.returncode == 0
    # The same by the other way; but for the random file.
    again = tmp_path / "again"
    again.mkdir()
    prepare(again)
    assert sh(atoll, CHANGES, "--apply", cwd=again).returncode == 0
    applied = tree(again)
    assert patched.pop(b"binary")[0] == applied.pop(b"binary")[0]
    assert patched == applied


@pytest.mark.parametrize("kind", ["repository", "work tree"])
def test_a_patch_made_below_the_top_of_a_repository(atoll, work, tmp_path, kind):
    git("init", "-q", cwd=work)
    sub = work / "a dir/sub"
    sub.mkdir(parents=True)
    (sub / "file").write_text("old\n")
    if kind == "work tree":
        (work / ".git").rename(tmp_path / "elsewhere")
        (work / ".git").write_text(f"gitdir: {tmp_path / 'elsewhere'}\n")
    (work / "a dir/.git").mkdir()  # holds no repository
    patch = tmp_path / "p"
    done = sh(atoll, "echo new > file; echo x > other", "--patch", str(patch), cwd=sub)
    assert done.returncode == 0, done
    git("apply", str(patch), cwd=sub)
    assert (sub / "file").read_text() == "new\n" and (sub / "other").read_text() == "x\n"
    assert b"--- a/a dir/sub/file" in patch.read_bytes()
    done = sh(atoll, "echo new > top", "--patch", "-", cwd=work)
    assert done.stdout.startswith(b"diff --git a/top b/top\n")


GIT_AS = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]


def names_of(patch, cwd):
    """The files that a patch is about."""
    if not patch.exists():
        return set()
    lines = git("apply", "--numstat", "-z", str(patch), cwd=cwd).stdout.split(b"\0")
    return {line.split(b"\t")[2] for line in lines if line}


@pytest.mark.parametrize("below", ["", "sub"])
@pytest.mark.parametrize("seed", range(4))
def test_a_patch_is_what_git_diff_would_say(atoll, work, tmp_path, seed, below):
    """Against the real git: the same command there and here, with ignore files of all kinds."""
    rand = random.Random(seed)
    rules = ["*.o", "build/", "node_modules", "/only", "!keep.o", "!/sub/keep.o", "**/cache/**", "logs/*", "!logs/keep",
             "sub/deep/", "?.tmp", "[xy].c", "# note", "!build/", "a*/b"]
    names = ["a.o", "keep.o", "only", "x.c", "z.c", "q.tmp", "f", "logs", "build", "b"]
    dirs = ["", "build/", "sub/", "sub/deep/", "node_modules/p/", "logs/", "sub/cache/", "abc/", "new/"]

    def some(count):
        return "".join(f"{rule}\n" for rule in rand.sample(rules, count))

    def put(path, text):
        try:
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            pass

    git("init", "-q", cwd=work)
    for path in rand.sample([d + n for d in dirs for n in names], 25):
        put(path, "old\n")
    (work / "sub").mkdir(exist_ok=True)
    put("sub/here", "x\n")
    git("add", "-f", *(str(p) for p in rand.sample(sorted(p for p in work.rglob("*") if p.is_file() and
                                                          ".git" not in p.parts), 8)), "sub/here", cwd=work)
    git(*GIT_AS, "commit", "-qm", "x", cwd=work)
    put(".gitignore", some(6))
    put("sub/.gitignore", some(3))
    put(".git/info/exclude", some(2))
    git("add", "-f", ".gitignore", "sub/.gitignore", cwd=work)
    git("update-index", "--index-version", str(rand.choice([2, 4])), cwd=work)
    git(*GIT_AS, "commit", "-qm", "y", cwd=work)
    lines = [f"mkdir -p '{d}' 2>/dev/null" for d in dirs if d]
    lines += [f"echo {rand.random()} > '{d}{n}'" for d in dirs for n in names if rand.random() < 0.6]
    lines += [f"printf '%s' '{some(3)}' > {rand.choice(['abc', 'new', 'sub'])}/.gitignore", "rm -f here z.c sub/here"]
    script = "\n".join(lines + ["true"])
    where = work / below
    untracked = set(git("ls-files", "-z", "--others", "--exclude-standard", cwd=work).stdout.split(b"\0"))
    patch = tmp_path / "the.patch"
    done = atoll("run", "--patch", str(patch), "--", "sh", "-c", script, cwd=where)
    assert done.returncode == 0, done
    before = {name: (work / os.fsdecode(name)).read_bytes() for name in untracked if name}
    got = names_of(patch, work)
    subprocess.run(["sh", "-c", script], cwd=where, stderr=subprocess.DEVNULL)
    git("add", "-A", cwd=work)
    listed = git("diff", "--cached", "--name-only", "--no-renames", "-z", "HEAD", cwd=work).stdout
    want = set(listed.split(b"\0")) - {b""}
    # A file that was here before and is not tracked is no change if it is the same, and one if it went.
    want -= {n for n, data in before.items() if (work / os.fsdecode(n)).is_file() and
             (work / os.fsdecode(n)).read_bytes() == data}
    got -= {n for n in before if not (work / os.fsdecode(n)).exists()}
    assert got == want, (sorted(got - want), sorted(want - got), done.stderr)


def test_what_git_ignores_is_left_where_it_is_unless_asked_for(atoll, work, tmp_path):
    git("init", "-q", cwd=work)
    (work / ".gitignore").write_text("node_modules/\n")
    patch = tmp_path / "the.patch"
    script = "mkdir -p node_modules/p; echo x > node_modules/p/a; echo y > b"
    done = sh(atoll, script, "--patch", str(patch), "--apply")
    assert names_of(patch, work) == {b"b"}
    assert sorted(p.name for p in work.iterdir()) == [".git", ".gitignore", "b"]
    assert b"left out by .gitignore; --no-gitignore" in done.stderr and b"A node_modules" not in done.stderr
    (work / "b").unlink()
    git(*GIT_AS, "commit", "-qm", "x", "--allow-empty", cwd=work)
    git("worktree", "add", "-q", str(tmp_path / "other"), cwd=work)  # one repository, two work trees
    (work / ".git" / "info" / "exclude").write_text("b\n")
    done = sh(atoll, script, "--apply", cwd=tmp_path / "other")
    assert sorted(p.name for p in (tmp_path / "other").iterdir()) == [".git", "node_modules"], done
    assert sh(atoll, script, "--apply", "--no-gitignore").returncode == 0
    assert (work / "node_modules" / "p" / "a").read_text() == "x\n"


@pytest.mark.parametrize("how", [[], ["--copy", "."]])
def test_apply_takes_everything_back(atoll, work, how):
    prepare(work)
    os.chown(work / "text", 1234, 1235)
    for path in [work, *work.rglob("*")] if not how else []:  # to a view it matters whose files they are
        os.chown(path, 1234, 1235, follow_symlinks=False)
    assert sh(atoll, CHANGES + "sha256sum binary", "--apply", *how).returncode == 0
    assert (work / "dir").read_text() == "file\n"
    assert not (work / "gone").exists() and (work / "renamed").read_text() == "m\n"
    assert os.readlink(work / "link") == "other" and os.readlink(work / "deep/down/in") == "../up"
    assert (work / "script").stat().st_mode & 0o777 == 0o755
    assert (work / "text").stat().st_uid == 1234 and (work / "text").stat().st_gid == 1235
    assert [p for p in work.iterdir() if p.name.startswith(".atoll")] == []


def test_what_changed_here_meanwhile_is_never_overwritten(atoll, server, work, tmp_path):
    prepare(work)
    script = "echo ready; read x; echo n > text; echo n > end"
    process = subprocess.Popen([server.binary, "run", "--apply", "--", "sh", "-c", script], cwd=work,
                               env=environment(server), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    (work / "end").write_text("mine\n")
    out, err = process.communicate(b"go\n", 30)
    assert process.returncode == 3
    assert b"changed here too: end\n" in err and b"nothing was taken back" in err
    assert (work / "end").read_text() == "mine\n" and (work / "text").read_text().startswith("0\n1\n")
    fetch_what_stayed(atoll, server, err, tmp_path)
    assert (tmp_path / "fetched/text").read_text() == (tmp_path / "fetched/end").read_text() == "n\n"


def fetch_what_stayed(atoll, server, err, tmp_path):
    """Does with the sandbox what the end of a failed run says."""
    (box,) = server.get(BOXES).json()["items"]
    assert box["expires_at"] is None
    words = err.decode().splitlines()[-1].split("`")
    assert words[0] == f"  sandbox {box['id']} stays with the changes: "
    fetch, remove = words[1].replace("DIR", str(tmp_path / "fetched")).split(), words[3].split()
    for command in (fetch, remove):
        done = atoll(*command[1:])
        assert done.returncode == 0, done


def test_a_private_server_that_ends_leaves_the_files(tmp, work):
    (work / "file").write_text("old\n")
    process = subprocess.Popen([harness.BIN, "run", "--private", "--apply", "--", "sh", "-c",
                                "echo ready; read x; echo new > file; mkdir d; echo x > d/other"], cwd=work,
                               env=environment(TMPDIR=str(tmp)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    (work / "file").write_text("mine\n")
    _, err = process.communicate(b"go\n", 60)
    assert process.returncode == 3 and private_leftovers(tmp) == [], err
    (kept,) = tmp.iterdir()
    assert f"the workspace as the command left it is in {kept}\n".encode() in err
    assert (kept / "file").read_text() == "new\n" and (kept / "d/other").read_text() == "x\n"
    assert (work / "file").read_text() == "mine\n" and kept.stat().st_mode & 0o777 == 0o700


def test_what_is_left_out_is_left_out_on_the_way_back(atoll, work, tmp_path):
    (work / "node_modules/pkg").mkdir(parents=True)
    (work / "node_modules/pkg/index.js").write_text("mine\n")
    script = """mkdir -p node_modules/pkg sub/node_modules/x only; echo theirs > node_modules/pkg/index.js
                echo x > node_modules/new; echo x > sub/node_modules/x/y; echo x > sub/kept; echo x > only/a.o"""
    patch = tmp_path / "p"
    done = sh(atoll, script, "--apply", "--exclude", "node_modules", "--exclude", "*.o", "--patch", str(patch))
    assert done.returncode == 0, done
    assert done.stderr.endswith(b"A only/\nA sub/kept\n2 files changed: 2 added, 0 modified, 0 removed\n"
                                b"atoll: 4 changes left out by --exclude\n"), done
    assert {name for name, (kind, _) in tree(work).items() if kind != "other"} == \
        {b"node_modules/pkg/index.js", b"sub/kept"}
    assert (work / "node_modules/pkg/index.js").read_text() == "mine\n"
    assert (work / "only").is_dir() and b"node_modules" not in patch.read_bytes()


def test_changes_come_back_when_nobody_reads_what_is_said(atoll, server, work):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run([server.binary, "run", "--apply", "--", "sh", "-c", "echo new > file"], cwd=work,
                             env=environment(server), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=writer, timeout=40)
    os.close(writer)
    assert process.returncode == 0
    assert (work / "file").read_text() == "new\n"


def test_an_api_that_dies_while_changes_come_back_is_waited_for(atoll, server, work):
    # git's own file: looked at, which takes a while, and not fetched.
    script = "echo new > file; mkdir .git; truncate -s 600M .git/large"
    process = subprocess.Popen([server.binary, "run", "--apply", "--", "sh", "-c", script], cwd=work,
                               env=environment(server), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)

    def the_rest_was_ended():
        boxes = server.get(BOXES).json()["items"]
        execs = server.get(f"{BOXES}/{boxes[0]['id']}/execs").json()["items"] if boxes else []
        return len(execs) == 2 and not [e for e in execs if e["state"] == "running"]

    harness.wait_until(the_rest_was_ended, 30, "the end of the command")
    server.kill9_api()
    _, err = process.communicate(timeout=90)
    server.wait_ready()
    assert process.returncode == 0, err
    assert (work / "file").read_text() == "new\n"


def test_a_place_that_cannot_be_written_is_known_before_anything_runs(atoll, work, tmp_path):
    (work / "dir").mkdir()
    (tmp_path / "frozen").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path / "frozen"], check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        for flags, words in ((["--patch", "missing/p"], b"--patch: missing/: No such file"),
                             (["--patch", "dir"], b"--patch: dir: Is a directory"),
                             (["--patch", str(tmp_path / "frozen/p")], b"Read-only file system"),
                             (["--copy", str(tmp_path / "frozen"), "--apply"], b"--apply: write to ")):
            done = sh(atoll, "echo ran; echo x > file", *flags)
            assert done.returncode == 1 and done.stdout == b"" and words in done.stderr, done
    finally:
        subprocess.run(["umount", tmp_path / "frozen"], check=True)
    (work / "p").write_text("old\n")
    done = sh(atoll, "ls; cat p; exit 3", "--patch", "other")
    assert (done.returncode, done.stdout) == (3, b"dir\np\nold\n"), done
    assert (work / "other").read_bytes() == b"" and (work / "p").read_text() == "old\n"


def test_a_patch_into_a_pipe(atoll, server, work):
    reader, writer = os.pipe()
    process = subprocess.Popen([server.binary, "run", "--patch", f"/dev/fd/{writer}", "--", "sh", "-c", "echo x > f"],
                               cwd=work, env=environment(server), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               pass_fds=[writer])
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read().startswith(b"diff --git a/f b/f\n")
    assert process.wait(30) == 0


def test_a_signal_between_the_patch_and_applying(atoll, server, work, tmp_path):
    reader, writer = os.pipe()
    process = subprocess.Popen([server.binary, "run", "--apply", "--patch", f"/dev/fd/{writer}", "--", "sh", "-c",
                                "seq 100000 > file"], cwd=work, env=environment(server), stdin=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, pass_fds=[writer])
    os.close(writer)

    def noticed():
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        return not [line for line in status.splitlines() if line.startswith("ShdPnd:") and int(line.split()[1], 16)]

    with open(reader, "rb") as pipe:
        patch = pipe.read(1)  # the rest does not fit into the pipe
        process.send_signal(signal.SIGINT)
        harness.wait_until(noticed, 30, "the signal")
        patch += pipe.read()
        _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT and list(work.iterdir()) == []
    assert b"interrupted: there is the patch, nothing else\n" in err and patch.endswith(b"+100000\n"), err
    fetch_what_stayed(atoll, server, err, tmp_path)


# ---- a directory that is bound ----

def test_a_bound_directory_is_the_directory_itself(atoll, work, tmp_path):
    (work / "file").write_text("x\n")
    (work / "others").write_text("x\n")
    os.chown(work / "others", 1234, 1235)
    script = "stat -c %U file others; cat file; echo y > new; echo y > others"
    done = atoll("run", "--bind", str(work), "--", "sh", "-c", script, cwd=tmp_path)
    assert done.stdout == b"agent\nnobody\nx\n" and b"others: Permission denied" in done.stderr, done
    assert (work / "new").read_text() == "y\n" and (work / "new").stat().st_uid == os.geteuid()
    assert (work / "others").read_text() == "x\n"
    done = atoll("run", "--bind", f"{work}:ro", "--", "sh", "-c", "cat file; echo y > other", cwd=tmp_path)
    assert done.returncode != 0 and done.stdout == b"x\n" and b"Read-only" in done.stderr
    assert not (work / "other").exists()


def test_what_cannot_be_bound_says_why(atoll, server, work):
    (work / "file").write_text("x\n")
    for path, words in (("missing", b"--bind missing: missing: No such file"), ("file", b"is not a directory"),
                        ("/proc", b"does not take this directory"),
                        (str(server.state), b"does not take this directory")):
        done = atoll("run", "--bind", path, "--", "true")
        assert done.returncode != 0 and words in done.stderr, done
    done = atoll("run", "--addr", server.url, "--bind", ".", "--", "true", ATOLL_TOKEN=server.token, ATOLL_STATE="")
    assert done.returncode != 0 and b"may be on another machine" in done.stderr and b"--copy" in done.stderr
    done = atoll("run", "--addr", server.url, "--state", str(server.state), "--bind", ".", "--", "true",
                 ATOLL_TOKEN=server.token, ATOLL_STATE="")
    assert done.returncode == 0, done


def test_a_file_system_that_cannot_be_bound(atoll, work):
    (work / "ram").mkdir()
    if subprocess.run(["mount", "-t", "ramfs", "ramfs", work / "ram"], check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        done = atoll("run", "--bind", "ram", "--", "true")
    finally:
        subprocess.run(["umount", work / "ram"], check=True)
    assert done.returncode != 0
    assert b"file system cannot be shown with another owner" in done.stderr and b"--copy ram" in done.stderr


# ---- an ordinary user ----

@pytest.fixture
def ordinary():
    """atoll(args…) as an ordinary user whose home is empty: nothing is named, no server is there."""
    if harness.NO_USERNS:
        pytest.skip("a sanitizer's thread is in the way")
    top = pathlib.Path(tempfile.mkdtemp(prefix="atoll-user-"))
    top.chmod(0o755)
    for name in ("atoll", "atoll-server", "atoll-warden", "atoll-init"):
        shutil.copy(pathlib.Path(harness.BIN).parent / name, top / name)
    home = top / "home"
    home.mkdir()
    os.chown(home, 54321, 54321)

    def start(*args, env=None, **kw):
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), **(env or {})}
        return subprocess.Popen(["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", top / "atoll",
                                 *args], cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **kw)

    start.home = home
    yield start
    left = [p.name for p in home.iterdir() if p.name.startswith("atoll-run-")]
    shutil.rmtree(top)
    assert left == []


def test_an_ordinary_user_without_a_server(ordinary):
    file = ordinary.home / "file"
    file.write_text("old\n")
    os.chown(file, 54321, 54321)
    process = ordinary("run", "--apply", "--", "sh", "-c", "id -un; echo new > file; echo x > other; exit 3")
    out, err = process.communicate(timeout=60)
    if b"user namespace" in err and process.returncode == 1:
        pytest.skip("no sandboxes for ordinary users here")
    assert (process.returncode, out) == (3, b"agent\n"), err
    assert file.read_text() == "new\n" and (ordinary.home / "other").stat().st_uid == 54321
    assert b"2 files changed" in err


def test_an_ordinary_users_server_binds_nothing_and_says_so(ordinary):
    _, errors = (process := ordinary("run", "--bind", ".", "--", "true")).communicate(timeout=60)
    assert process.returncode != 0 and b"ordinary user" in errors and b"--copy" in errors, errors


def test_an_ordinary_user_is_told_which_limit_cannot_hold_and_may_accept_it(ordinary):
    wish = "run", "--no-workspace", "-m", "64M", "--cpu", "50", "--", "echo", "here"
    _, err = (process := ordinary(*wish)).communicate(timeout=60)
    if b"user namespace" in err and process.returncode == 1:
        pytest.skip("no sandboxes for ordinary users here")
    assert process.returncode == 1 and b"memory cannot be limited" in err, err
    process = ordinary(*wish, env={"ATOLL_ALLOW_DEGRADED": "cgroups", "ATOLL_LISTEN": "no address"})
    assert process.communicate(timeout=60) == (b"here\n", b"") and process.returncode == 0


def test_a_file_that_may_not_be_read(ordinary):
    (ordinary.home / "secret").write_text("x\n")
    (ordinary.home / "secret").chmod(0o600)
    out, err = ordinary("run", "--", "true").communicate(timeout=60)
    assert b"secret: " in err and b"Permission denied\n  --exclude leaves out" in err, err


def test_an_ordinary_users_killed_run_leaves_nothing(ordinary):
    process = ordinary("run", "--", "sh", "-c", "echo ready; exec sleep 100")
    if process.stdout.readline() != b"ready\n":
        process.communicate(timeout=60)
        pytest.skip("no sandboxes for ordinary users here")
    process.kill()
    process.communicate(timeout=60)
    harness.wait_until(lambda: not private_leftovers(ordinary.home), 30, "the end of the private server")


# ---- a hostile workload ----

def test_nothing_is_written_outside_or_run_by_git(atoll, work, tmp_path):
    (work / "dir").mkdir()
    (work / "dir" / "file").write_text("x\n")
    git("init", "-q", cwd=work)
    outside = tmp_path / "outside"
    outside.mkdir()
    done = sh(atoll, rf"""
rm -r dir; ln -s {outside} dir                 # a link where a directory was
ln -s /etc/passwd absolute; ln -s ../outside/x up; ln -s new/../../outside back
mkdir -p new/sub; ln -s ../../../outside new/sub/deep; ln -s .. new/ok
printf '[core]\n\tfsmonitor = touch {outside}/ran\n' >> .git/config
mkdir -p .git/hooks other/.GIT; printf '#!/bin/sh\ntouch {outside}/ran\n' > .git/hooks/pre-commit; chmod +x .git/hooks/*
echo x > other/.GIT/config; echo x > other/fine
cp /bin/true suid; chmod 6755 suid; mkfifo fifo
""", "--apply")
    assert done.returncode == 0, done.stderr
    assert list(outside.iterdir()) == []
    for name in ("absolute", "up", "back", "new/sub/deep", "fifo", "other/.GIT", ".git/hooks/pre-commit"):
        assert not os.path.lexists(work / name), name
    assert not (work / "dir").is_symlink()
    assert os.readlink(work / "new/ok") == ".."
    assert "fsmonitor" not in (work / ".git/config").read_text()
    assert (work / "suid").stat().st_mode & 0o7777 == 0o755
    assert (work / "other/fine").exists()
    err = done.stderr.decode()
    for name in ("dir", "absolute", "up", "back", "new/sub/deep"):
        assert f"not taken back: {name}: a link that could lead out" in err
    assert "of git's own files; --apply-git takes them" in err
    git("status", cwd=work)
    assert list(outside.iterdir()) == []


def test_gits_own_files_when_asked_for(atoll, work):
    git("init", "-q", cwd=work)
    done = sh(atoll, "git config user.name x; git config user.email x; echo x > f; git add f; git commit -qm one",
              "--apply", "--apply-git")
    assert done.returncode == 0, done.stderr
    assert b"one" in git("log", "--oneline", cwd=work).stdout


def test_what_the_command_leaves_running_ends_first(atoll, work):
    done = sh(atoll, "(trap '' TERM HUP; while :; do date +%N > f; done) & sleep 0.3", "--apply")
    assert done.returncode == 0, done.stderr
    assert (work / "f").exists()


def test_a_patch_is_not_written_through_a_terminal_trick(atoll, work, tmp_path):
    patch = tmp_path / "p"
    done = sh(atoll, r"""echo x > "$(printf 'a\nnot\033[2J')" """, "--patch", str(patch))
    assert done.returncode == 0
    assert b"\x1b" not in done.stderr and b"\x1b" not in patch.read_bytes()


# ---- an image ----

def test_an_image_says_what_runs_and_the_workspace_where(atoll, server, work, tmp_path):
    busybox = shutil.which("busybox")
    if not busybox:
        pytest.skip("needs busybox")
    program = images.entry("bin/busybox", pathlib.Path(busybox).read_bytes(), mode=0o755)
    layer = images.tar(images.folder("bin"), program,
                       *[images.symlink(f"bin/{name}", "busybox") for name in ("sh", "pwd", "cat", "kill")])
    archive = tmp_path / "image.tar"
    archive.write_bytes(images.oci([layer], Entrypoint=["/bin/sh", "-c"], Cmd=["pwd; cat f; echo x > g"],
                                   WorkingDir="/bin"))
    server.cli("image", "import", str(archive), "--name", "for-run", check=True)
    (work / "f").write_text("here\n")
    done = atoll("run", "--image", "for-run", "--apply")
    # check-style: allow machine-path: inside every sandbox
    assert (done.returncode, done.stdout) == (0, b"/workspace\nhere\n"), done.stderr
    assert (work / "g").read_text() == "x\n"
    server.cli("image", "rm", "for-run", check=True)


# ---- size ----

@pytest.mark.timeout(180)
def test_many_files_and_large_ones(atoll, work):
    for d in range(30):
        (work / f"d{d}").mkdir()
        for f in range(100):
            (work / f"d{d}" / f"f{f}").write_text(f"{d} {f}\n")
    (work / "large").write_bytes(os.urandom(1 << 20) * 40)
    done = sh(atoll, "set -e; for d in d1*; do for f in $d/f1*; do echo new > $f; done; done;"
                     "dd if=/dev/zero of=large bs=1M seek=3 count=1 conv=notrunc 2>/dev/null", "--apply", timeout=120)
    assert done.returncode == 0, done.stderr
    assert (work / "d10/f11").read_text() == "new\n" and (work / "d2/f11").read_text() == "2 11\n"
    large = (work / "large").read_bytes()
    assert len(large) == 40 << 20 and large[3 << 20:4 << 20] == bytes(1 << 20)
    assert b"122 files changed" in done.stderr, done.stderr


def test_a_workspace_that_does_not_fit(atoll, work):
    (work / "large").write_bytes(bytes(30 << 20))
    done = sh(atoll, "true", "--copy", ".", "--disk", "10M")
    assert done.returncode != 0
    assert b"copy the workspace into the sandbox: large: No space left on device" in done.stderr
    assert b"\n  --disk gives it more room" in done.stderr


def test_a_file_at_the_limit_of_patches_and_one_past_it(atoll, work, tmp_path):
    patch = tmp_path / "p"
    limit = 64 << 20
    done = sh(atoll, f"truncate -s {limit} fits; truncate -s {limit + 1} large", "--patch", str(patch), timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"not in the patch: large: too large" in done.stderr and b"fits: too large" not in done.stderr
    git("apply", str(patch), cwd=work)
    assert (work / "fits").stat().st_size == limit and not (work / "large").exists()
