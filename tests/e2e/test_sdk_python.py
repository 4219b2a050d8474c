"""The Python SDK against the real server: every operation once, what goes wrong, what breaks on the way.

The last tests look back: every operation of the API has been called, and the README's examples run."""
import base64
import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time

import pytest

import flaky
import harness
import images

SDK = harness.ROOT / "sdk" / "python"
sys.path.insert(0, str(SDK / "src"))
import atoll  # noqa: E402
from atoll import _api, _endpoint, _transport, _tree, _websocket  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PYTHON = "/usr/bin/python3"
called = set()


@pytest.fixture(scope="module", autouse=True)
def note_calls():
    def noting(real):
        def note(self, operation, *args):
            called.update(name for name, one in _api.OPERATIONS.items() if one is operation)
            return real(self, operation, *args)
        return note

    with pytest.MonkeyPatch.context() as patch:
        for name in ("send", "socket"):
            patch.setattr(_transport.Caller, name, noting(getattr(_transport.Caller, name)))
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("ATOLL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def client(server):
    with atoll.Client(state=str(server.state)) as client:
        yield client
        for box in client.sandboxes.list():
            box.delete()


@pytest.fixture
def box(client):
    with client.sandboxes.create(ttl_ms=600000) as box:
        yield box


# ---- which server ----

def test_found_by_state_address_and_context(server, monkeypatch, tmp_path):
    with atoll.Client(state=str(server.state)) as client:
        assert client.endpoint.unix and client.whoami().role == "admin"
    with atoll.Client(server.url, server.token) as client:
        assert client.whoami().role == "admin"
    monkeypatch.setenv("ATOLL_STATE", str(server.state))
    with atoll.Client() as client:
        assert client.endpoint.unix == str(server.socket_path) and client.health().ready
    monkeypatch.setenv("ATOLL_ADDR", server.url)
    with atoll.Client() as client:  # the directory was named, so its token may go there
        assert client.endpoint.port == server.port and client.whoami().role == "admin"
    monkeypatch.delenv("ATOLL_STATE")
    assert _endpoint.find().token is None  # an address alone gets nobody's token
    monkeypatch.setenv("ATOLL_TOKEN", "chosen")
    assert _endpoint.find().token == "chosen"
    monkeypatch.delenv("ATOLL_ADDR"), monkeypatch.delenv("ATOLL_TOKEN")
    config = tmp_path / "config" / "atoll" / "contexts.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"current": "lab", "contexts": [{"name": "lab", "addr": "https://lab.example", "token": "t"}]}')
    config.chmod(0o600)
    found = _endpoint.find()
    assert (found.host, found.port, found.tls, found.token) == ("lab.example", 443, True, "t")
    assert _endpoint.find(context="lab").authority == "lab.example"
    with pytest.raises(atoll.AtollError, match="no context"):
        _endpoint.find(context="other")
    config.chmod(0o644)
    with pytest.raises(atoll.AtollError, match="others may read"):
        _endpoint.find()


@pytest.mark.parametrize("bad", ["", "localhost:80", "ftp://x", "http://", "http://a:0", "http://a:70000",
                                 "http://a/b", "http://u@a", "unix:relative"])
def test_no_address(bad):
    with pytest.raises(atoll.AtollError):
        _endpoint.parse_address(bad)


def test_a_token_in_clear_to_another_machine_is_warned_about():
    with pytest.warns(UserWarning, match="unencrypted"):
        atoll.Client("http://box.example", "secret").close()


def test_tls_is_checked(start_server, tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
                   check=True, stderr=subprocess.DEVNULL)
    server = start_server(tls=True, env={"ATOLL_TLS_CERT": str(tmp_path / "cert.pem"),
                                         "ATOLL_TLS_KEY": str(tmp_path / "key.pem")})
    with atoll.Client(server.url, server.token, ca=str(tmp_path / "cert.pem")) as client:
        assert client.whoami().role == "admin"
    with atoll.Client(server.url, server.token) as client:
        with pytest.raises(atoll.ConnectionFailed, match="[Cc]ertificate"):
            client.whoami()


# ---- commands ----

def test_run_and_wait(box):
    result = box.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)
    assert (result.text, result.error_text, result.ok, result.timed_out) == ("out\n", "err\n", False, False)
    with pytest.raises(atoll.CommandFailed, match="exited with 3: err"):
        result.check()
    assert box.exec(["printf", "%s|", "a b", "c"], check=True).text == "a b|c|"
    assert box.exec("echo $A; pwd", env={"A": "1"}, cwd="/tmp").text == "1\n/tmp\n"


def test_bytes_are_exact(box):
    """What the answer shows as text would not do: no UTF-8, NUL, a real U+FFFD, more than is told in it."""
    for data in (b"\xff\xfe", b"a\0b", "\ufffd".encode(), bytes(range(256)) * 1000):
        assert box.exec(["cat"], stdin=data).stdout == data
    assert len(box.exec("yes | head -c 300000").stdout) == 300000


def test_all_output_is_collected_however_much(box):
    for how in ("", " >&2"):
        result = box.exec(f"yes 0123456789abcde | head -c 150000000{how}; exit 3")
        data = result.stderr if how else result.stdout
        assert len(data) == 150_000_000 and data == b"0123456789abcde\n" * (150_000_000 // 16)
        assert result.exit_code == 3 and result.missing == 0
    given = os.urandom(1 << 20) * 100
    assert box.exec(["cat"], stdin=given).stdout == given


def test_output_that_is_taken_slowly_waits(box):
    got = hashlib.sha256()
    process = box.spawn("yes 0123456789abcde | head -c 120000000")
    for piece in process.output():
        got.update(piece.data)
        time.sleep(0.002)
    assert got.digest() == hashlib.sha256(b"0123456789abcde\n" * (120_000_000 // 16)).digest()


def test_a_viewer_collects_and_holds_nothing(server, client, box):
    with atoll.Client(address=server.url, token=server.new_token("viewer")["token"]) as viewer:
        process = box.spawn("sleep 1; echo late")
        assert viewer.sandboxes.get(box.id).process(process.id).wait().stdout == b"late\n"


def test_times_and_signals(box):
    result = box.exec("echo before; sleep 1000", timeout_ms=300)
    assert result.timed_out and result.signal == 9 and result.stdout == b"before\n" and not result.ok
    process = box.spawn(["sleep", "1000"])
    with pytest.raises(atoll.RequestTimeout):
        process.wait(timeout=0.2)
    process.signal("TERM")
    assert process.wait(10).signal == 15
    with pytest.raises(atoll.Conflict):
        process.signal("TERM")
    process = box.spawn("sleep 1000 & wait")
    process.kill()
    assert process.wait(10).exit_code == 137
    gone = box.spawn("sleep 1000 & wait").cancel()
    assert gone.exit_code == 137 and not gone.oom and not gone.timed_out


def test_input(box):
    data = os.urandom(3_000_000)
    assert hashlib.sha256(data).hexdigest() in box.exec("sha256sum", stdin=io.BytesIO(data)).text
    assert box.exec("sha256sum", stdin=iter([data[:10], data[10:]])).text.split()[0] == hashlib.sha256(data).hexdigest()
    assert box.exec("exit 0", stdin=bytes(1_000_000)).ok  # ends without reading it
    process = box.spawn("cat", stdin_open=True)
    assert process.write("one ") == 4
    process.write(b"two", eof=True)
    assert process.wait(10).text == "one two"


def test_a_terminal_has_a_size(box):
    process = box.spawn("stty size; read x; stty size", tty=True, rows=33, cols=77, stdin_open=True)
    while b"33 77" not in process.read():
        pass
    process.resize(44, 88)
    process.write("\n")
    assert b"44 88" in process.wait(10).stdout


def test_output_from_any_position(client, box):
    process = box.spawn("echo one; echo two >&2; sleep 0.3; echo three")
    got = {"stdout": b"", "stderr": b""}
    seen = []
    for piece in process.output():
        got[piece.stream] += piece.data
        seen.append(piece)
    assert got == {"stdout": b"one\nthree\n", "stderr": b"two\n"}
    assert process.info.state == "exited" and process.info.exit_code == 0
    assert [piece.text for piece in process.output(seen[-2].position)] == [seen[-1].text]
    assert process.read("stdout", 4) == b"three\n"
    assert [p.id for p in box.processes()] == [process.id]
    assert list(client.sandboxes.get(box.id).process(process.id).lines()) == ["one", "three"]
    assert process.refresh().stdout_bytes == 10


def test_output_goes_on_over_a_kill_of_the_server(server, box):
    process = box.spawn("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); "
                        "[ $((i % 100)) = 0 ] && sleep 0.05; done; true")
    got, kills = b"", 0
    for piece in process.output():
        got += piece.data
        if len(got) > 8000 * (kills + 1) and kills < 2:
            server.kill9_api()
            kills += 1
    assert kills == 2
    assert got == b"".join(b"line %d\n" % i for i in range(3000))
    assert process.info.exit_code == 0


def test_input_goes_on_over_a_kill_of_the_server(server, client, box):
    """It waits to be read when the server dies, and arrives once: of who started the command, and of another."""
    data = os.urandom(3_000_000)
    for mine in (True, False):
        process = box.spawn("until test -e go; do sleep 0.05; done; rm go; cat", stdin_open=True)
        writer = process if mine else client.sandboxes.get(box.id).process(process.id)
        feeder = threading.Thread(target=lambda: wrote.append(writer.write(data, eof=True)))
        wrote = []
        feeder.start()
        for _ in range(2):
            time.sleep(0.4)
            server.kill9_api()
            server.wait_ready()
        box.files.write("go", b"")
        assert process.wait(30).stdout == data
        feeder.join(30)
        assert wrote == [len(data)]


def test_input_whose_answer_is_lost_arrives_once(server, box):
    proxy = flaky.Flaky(server.port)
    with contextlib.closing(proxy), atoll.Client(proxy.address, server.token) as broken:
        process = broken.sandboxes.get(box.id).spawn("cat", stdin_open=True)
        for piece in (b"one ", b"two ", b"three"):
            proxy.cut(2)
            assert process.write(piece) == len(piece)
        proxy.cut(1)
        process.close_stdin()
        assert process.wait(10).text == "one two three"
        # On a terminal others type, too: nobody knows whose bytes are whose.
        process = broken.sandboxes.get(box.id).spawn("cat", tty=True)
        proxy.cut(1)
        with pytest.raises(atoll.ConnectionFailed):
            process.write(b"one ")
        process.kill()


def test_waiting_goes_on_over_a_kill_of_the_server(server, box):
    threading.Timer(0.5, server.kill9_api).start()
    result = box.exec("echo begun; sleep 1.5; echo done")
    assert (result.text, result.exit_code) == ("begun\ndone\n", 0)


# ---- terminals ----

def test_a_terminal(client, box):
    terminal = box.open_terminal(name="main", rows=30, cols=100)
    assert [t.id for t in box.terminals()] == [terminal.id] and box.terminal("main").id == terminal.id
    with terminal.attach(from_=0) as viewer:
        viewer.write("stty size; echo $((6 * 7))\n")
        got = viewer.read_until("\n42")
        assert b"30 100" in got and viewer.role == "controller"
        with terminal.attach() as other:
            other.read_until("42")  # a picture of the screen
            assert other.role == "observer"
            other.control(take=True)
            while other.role != "controller":
                other.receive(10)
            while viewer.role != "observer":
                viewer.receive(10)
            other.resize(40, 120)
            other.keyframe()
            other.write("stty size\n")
            other.read_until("40 120")
            other.release()
            while other.role != "observer":
                other.receive(10)
        assert "42" in terminal.screen()["text"] and terminal.screen("cells")["screen"]
        viewer.control()
        while viewer.role != "controller":
            viewer.receive(10)
        viewer.signal("WINCH")
        terminal.resize(20, 60)
        terminal.signal("WINCH")
        viewer.write("exit 3\n")
        for _ in viewer:
            pass
        assert viewer.exit["exit_code"] == 3
    assert terminal.refresh().exit_code == 3
    with terminal.recording() as cast:
        assert json.loads(cast.read().splitlines()[0])["version"] == 2
    with pytest.raises(atoll.NotFound):
        box.terminal("none")
    with pytest.raises(atoll.RangeNotSatisfiable) as caught:  # refused before it opens
        terminal.attach(from_=10 ** 9)
    assert caught.value.request_id
    other = box.open_terminal(["sleep", "1000"])
    other.kill()
    with other.attach() as viewer:
        assert [e for e in viewer][-1].type == "exit"


def test_a_terminal_goes_on_over_a_kill_of_the_server(server, box):
    terminal = box.open_terminal("stty -opost; i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); "
                                 "[ $((i % 100)) = 0 ] && sleep 0.05; done; true")
    got, kills = b"", 0
    with terminal.attach("observer", from_=0) as viewer:
        for what in viewer:
            got += what.data if isinstance(what, atoll.TerminalOutput) else b""
            if len(got) > 8000 * (kills + 1) and kills < 2:
                server.kill9_api()
                kills += 1
    assert kills == 2 and got == b"".join(b"line %d\n" % i for i in range(3000))
    assert viewer.exit["exit_code"] == 0 and viewer.position == len(got)


def test_silence_is_not_the_end_of_a_terminal(box):
    terminal = box.open_terminal("sleep 1.2; echo late")
    with terminal.attach("observer", from_=0, idle=0.3) as viewer:
        got = b"".join(what.data for what in viewer if isinstance(what, atoll.TerminalOutput))
    assert got == b"late\r\n"


WRONG_FRAMES = {
    "masked": bytes([0x82, 0x81, 1, 2, 3, 4, 5]), "a reserved bit": bytes([0xC2, 1, 5]),
    "a long ping": bytes([0x89, 126, 0, 200]), "a ping in pieces": bytes([0x09, 1, 5]),
    "continued from nothing": bytes([0x80, 1, 5]), "a new one in another": bytes([0x02, 1, 5, 0x02, 1, 5]),
    "a kind that is not there": bytes([0x83, 1, 5]), "too long": bytes([0x82, 127, 1, 0, 0, 0, 0, 0, 0, 0]),
    "hung up": b"",
}


def fake_socket(frames):
    """A WebSocket whose server says this after the handshake, and then hangs up."""
    ours, theirs = socket.socketpair()

    def serve():
        with theirs:
            head = b""
            while b"\r\n\r\n" not in head:
                head += theirs.recv(4096)
            key = re.search(rb"Sec-WebSocket-Key: (\S+)", head).group(1)
            accept = base64.b64encode(hashlib.sha1(key + _websocket.GUID).digest())
            theirs.sendall(b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
                           accept + b"\r\n\r\n" + frames)

    threading.Thread(target=serve, daemon=True).start()
    return _websocket.WebSocket(ours, "/x", {}, 5.0)


@pytest.mark.parametrize("what", WRONG_FRAMES)
def test_a_server_that_breaks_the_rules_of_websockets(what):
    with contextlib.closing(fake_socket(WRONG_FRAMES[what])) as found, pytest.raises(atoll.ConnectionFailed):
        found.receive(5)


def test_messages_in_pieces_with_a_ping_between():
    frames = bytes([0x01, 2]) + b"ab" + bytes([0x89, 1]) + b"p" + bytes([0x80, 1]) + b"c" + bytes([0x82, 0])
    with contextlib.closing(fake_socket(frames + bytes([0x88, 4]) + (4408).to_bytes(2, "big") + b"no")) as found:
        assert found.receive(5) == "abc" and found.receive(5) == b""
        with pytest.raises(atoll.Closed) as caught:
            found.receive(5)
    assert (caught.value.code, caught.value.reason) == (4408, "no")


# ---- files ----

def test_files(box):
    files = box.files
    made = files.write("f", b"one\0two", mode="600")
    assert (made.size, made.mode, made.type) == (7, "0600", "file")
    assert files.append("f", "!", sync=True).size == 8
    assert files.read("f") == b"one\0two!" and files.read("f", 4) == b"two!" and files.read("f", 4, 3) == b"two"
    with pytest.raises(atoll.RangeNotSatisfiable):
        files.read("f", 100)
    with files.stream("f") as stream:
        assert stream.read(3) == b"one" and stream.read() == b"\0two!"
    files.mkdir("d/e", parents=True)
    files.move("f", "d/f")
    with pytest.raises(atoll.Conflict):
        files.write("g", b"g"), files.move("g", "d/f")
    files.move("g", "d/f", replace=True)
    assert [(e.name, e.type) for e in files.list("d")] == [("e", "directory"), ("f", "file")]
    assert files.stat("d").type == "directory" and files.exists("d/f") and not files.exists("d/none")
    box.exec("ln -s f d/link", check=True)
    assert files.stat("d/link").link == "f" and files.stat("d/link", follow=True).type == "file"
    digests = {e.name: e.sha256 for e in files.manifest("d")}
    assert digests["f"] == hashlib.sha256(b"g").hexdigest()
    files.remove("d/f")
    with pytest.raises(atoll.ApiError):
        files.remove("d")
    files.remove("d", recursive=True)
    assert not files.exists("d")
    assert files.write(pathlib.PurePosixPath("/tmp/x"), iter([b"a", b"", b"b"])).size == 2
    with pytest.raises(TypeError):
        files.write("y", iter(["text"]))


def test_names_of_any_bytes_and_many_of_them(box):
    box.files.mkdir("many")
    box.files.write(b"many/\xff\xfe", b"odd")
    box.files.write("many/ü %2F?&#", b"text")
    assert box.files.read(b"many/\xff\xfe") == b"odd" and box.files.read("many/ü %2F?&#") == b"text"
    box.exec("cd many && seq 1 2500 | xargs touch", check=True)
    names = [e.name for e in box.files.list("many")]
    assert len(names) == len(set(names)) == 2502


@pytest.mark.timeout(180)
def test_a_large_file_both_ways(box, tmp_path):
    piece = os.urandom(1 << 20)
    want, size = hashlib.sha256(), 64 << 20
    with open(tmp_path / "up", "wb") as out:
        for i in range(64):
            block = bytes([i]) + piece[1:]
            want.update(block)
            out.write(block)
    assert box.files.upload(tmp_path / "up", "big").size == size
    assert box.exec("sha256sum big").text.split()[0] == want.hexdigest()
    assert box.files.download("big", tmp_path / "down") == size
    assert hashlib.sha256((tmp_path / "down").read_bytes()).hexdigest() == want.hexdigest()
    with pytest.raises(atoll.NotFound):
        box.files.download("none", tmp_path / "none")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["down", "up"]  # nothing half is left


def test_a_watch(box):
    with box.files.watch(".", recursive=True) as watch:
        box.exec("mkdir sub; echo x > sub/file", check=True)
        seen = []
        for change in watch:
            seen.append(change)
            if "sub" in change.path:
                break
    assert any(c.path == "sub" and c.directory for c in seen)


def test_trees(box, tmp_path):
    here = tmp_path / "here"
    (here / "a" / "b").mkdir(parents=True)
    (here / "a" / "b" / "x").write_bytes(os.urandom(100_000))
    (here / "run").write_text("#!/bin/sh\n")
    (here / "run").chmod(0o755)
    (here / "skip").mkdir()
    (here / "skip" / "me").write_text("no")
    (here / "link").symlink_to("a/b/x")
    (here / ("long" * 50)).write_text("a name that needs more than a plain header")
    os.mkfifo(here / "fifo")
    done = box.files.upload_tree(here, "tree/in", wanted=lambda name: not name.startswith("skip"))
    assert done.entries == 6
    box.exec("ln -s /etc/passwd tree/in/out; ln -s ../../../.. tree/in/a/up", check=True)
    back = box.files.download_tree("tree/in", tmp_path / "back")
    assert sorted(back.skipped) == ["a/up", "out"]
    found = {p.relative_to(tmp_path / "back").as_posix() for p in (tmp_path / "back").rglob("*")}
    assert found == {"a", "a/b", "a/b/x", "run", "link", "long" * 50}
    assert (tmp_path / "back" / "a" / "b" / "x").read_bytes() == (here / "a" / "b" / "x").read_bytes()
    assert (tmp_path / "back" / "run").stat().st_mode & 0o777 == 0o755
    box.files.download_tree("tree/in", tmp_path / "back")  # over what is there
    with box.files.archive("tree/in") as answer:
        assert "run" in tarfile.open(fileobj=io.BytesIO(answer.read())).getnames()


HOSTILE = {
    "up": [images.entry("../evil", "x")],
    "up inside": [images.entry("a/../../evil", "x")],
    "absolute": [images.entry("/tmp/atoll-evil", "x")],
    "through a link that is there": [images.entry("there/evil", "x")],
    "a link in the place of a directory": [images.folder("d"), images.symlink("d", "e"), images.entry("e/x", "")],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_writes_nothing_outside(tmp_path, what):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir(), inside.mkdir()
    (inside / "there").symlink_to(outside)
    with pytest.raises(atoll.UnsafeArchive):
        _tree.unpack(io.BytesIO(images.tar(*HOSTILE[what])), str(inside))
    assert list(outside.iterdir()) == [] and not (tmp_path / "evil").exists()


def test_links_of_an_archive_stay_inside(tmp_path):
    archive = images.tar(
        images.entry("s/keep", "x"), images.symlink("s/top", ".."), images.symlink("good", "s/keep"),
        images.symlink("out", "../x"), images.symlink("abs", "/etc/passwd"),
        # lexically s/etc; but s/top is a link to the top, and .. of that is outside
        images.symlink("trick", "s/top/../etc"), images.symlink("s/deep", "../../x"),
        images.symlink("w", "."), images.entry("w2/x", "x"), images.hardlink("hard", "/etc/passwd"),
        images.entry("dev", type=tarfile.CHRTYPE), images.entry("pipe", type=tarfile.FIFOTYPE))
    done = _tree.unpack(io.BytesIO(archive), str(tmp_path / "t"))
    assert sorted(done.skipped) == ["abs", "dev", "hard", "out", "pipe", "s/deep", "trick"]
    top = (tmp_path / "t").resolve()
    for path in top.rglob("*"):
        assert top in (path.resolve(), *path.resolve().parents)


def test_an_archive_writes_through_none_of_its_own_links(tmp_path):
    (tmp_path / "outside").mkdir()
    archive = images.tar(images.symlink("d", "../outside"), images.entry("d/evil", "x"))
    done = _tree.unpack(io.BytesIO(archive), str(tmp_path / "t"))
    assert list((tmp_path / "outside").iterdir()) == [] and done.skipped == ["d"]
    with pytest.raises(atoll.AtollError, match="cut off|early"):
        _tree.unpack(io.BytesIO(images.tar(images.entry("f", "x" * 5000))[:2000]), str(tmp_path / "t"))


# ---- life and the other nouns ----

def test_a_life(client):
    with client.sandboxes.create(name="sdk-life", storage="disk", labels={"job": "42"}, memory=256 << 20,
                                 idle={"after_ms": 600000, "action": "pause"}) as box:
        assert box.name == "sdk-life" and box.info.idle.action == "pause" and box.info.created_at.year > 2000
        assert [b.id for b in client.sandboxes.list(label="job=42", state="running")] == [box.id]
        assert client.sandboxes.get("sdk-life").id == box.id
        box.exec("echo one > state", check=True)
        assert box.snapshot("before").sandbox == box.id
        box.exec("echo two > state", check=True)
        with box.fork(name="sdk-copy", labels={"job": "43"}, ttl_ms=60000) as copy:
            assert copy.files.read_text("state") == "two\n" and copy.info.labels == {"job": "43"}
        with pytest.raises(atoll.NotFound):
            copy.refresh()
        assert box.crashes() == []
        with pytest.raises(atoll.Conflict, match="view"):
            list(box.files.changes())
        assert box.rollback("before").snapshot == box.snapshots()[0].id and box.files.read("state") == b"one\n"
        with client.sandboxes.create(from_snapshot=box.snapshots()[0].id) as third:
            assert third.files.read("state") == b"one\n"
        box.pause()
        assert box.state == "paused"
        box.resume()
        box.stop()
        assert box.state == "stopped" and client.sandboxes.get(box.id).state == "stopped"
        with pytest.raises(atoll.Conflict):
            box.exec("true")
        box.start()
        assert box.exec("cat state").text == "one\n"
        box.update(memory=128 << 20, labels={"job": "44"})
        assert box.info.memory == 128 << 20 and box.info.labels == {"job": "44"} and box.info.idle
        box.update(idle=atoll.NOTHING)
        assert box.info.idle is None and box.info.memory == 128 << 20
        assert box.stats().pids >= 1 and box.applied()
        box.allow("a.test")
        box.deny("b.test")
        assert box.explain("https://a.test/").verdict == "allow" and box.explain("b.test").rule == "b.test"
        assert [r.rule for r in box.egress().rules] == ["b.test", "a.test"]
        assert box.egress_records(denied=True) == [] and box.egress_hosts() == [] and client.asks.list() == []
        for call in (client.asks.get, client.asks.allow, client.asks.deny):
            with pytest.raises(atoll.NotFound):
                call("ask00000000000000000000000000")
        box.snapshot("again")
        assert box.delete_snapshot("again").name == "again"
        assert [s.name for s in client.snapshots.list()] == ["before"]
        client.snapshots.delete(box.snapshots()[0].id)
    assert client.sandboxes.list() == []


def test_volumes(client):
    assert client.volumes.create("sdk-vol", 64 << 20).state == "ready"
    with client.sandboxes.create(volumes=[{"volume": "sdk-vol", "path": "/data"}]) as box:
        box.exec("echo kept > /data/f", check=True, user="agent")
        with pytest.raises(atoll.Conflict):
            client.volumes.delete("sdk-vol")
    assert client.volumes.resize("sdk-vol", 128 << 20).bytes == 128 << 20
    assert [v.name for v in client.volumes.list()] == ["sdk-vol"] and client.volumes.get("sdk-vol").used > 0
    client.volumes.delete("sdk-vol")


def test_images(client):
    tree = images.tar(images.folder("etc"), images.entry("etc/os-release", "ID=tiny\n"))
    assert client.images.load(io.BytesIO(tree), "sdk-tiny").format == "tar"
    assert [i.name for i in client.images.list()] == ["sdk-tiny"] and client.images.get("sdk-tiny").layers
    client.images.delete("sdk-tiny")
    with pytest.raises(atoll.NotFound):
        client.images.get("sdk-tiny")


def test_templates(client):
    made = client.templates.set("sdk-wish", storage="memory", labels={"of": "sdk-wish"}, env={"A": "b"})
    assert client.templates.get("sdk-wish") == made and made in client.templates.list()
    with client.sandboxes.create(template="sdk-wish", name="sdk-templated") as box:
        assert box.exec("echo $A").text == "b\n"
        assert [b.id for b in client.sandboxes.list(name="sdk-templ")] == [box.id]
        assert client.sandboxes.list(name="sdk-none") == []
    client.templates.delete("sdk-wish")
    with pytest.raises(atoll.NotFound):
        client.templates.get("sdk-wish")


def test_ports_and_processes(box):
    served = box.spawn(["python3", "-m", "http.server", "8123"])
    harness.wait_until(lambda: 8123 in [p.port for p in box.ports()], 10, "the port to be listened on")
    assert any("http.server" in p.command for p in box.ps())
    assert box.preview(8123, "/x").startswith(f"http://8123-{box.id}.localhost")
    served.kill()


def test_changes_are_of_a_view(client):
    with client.sandboxes.create() as box:
        with pytest.raises(atoll.AtollError, match="view"):
            list(box.files.changes())


def test_quotas(client):
    assert client.quotas.set("label:user=sdk", sandboxes=1).sandboxes == 1
    try:
        with client.sandboxes.create(labels={"user": "sdk"}, storage="memory"):
            assert [q.used_sandboxes for q in client.quotas.list() if q.subject == "label:user=sdk"] == [1]
            with pytest.raises(atoll.QuotaExceeded) as refused:
                client.sandboxes.create(labels={"user": "sdk"}, storage="memory")
            assert refused.value.status == 429
        with pytest.raises(atoll.NoCapacity):
            client.sandboxes.create(memory=900 << 30, storage="memory")
    finally:
        client.quotas.delete("label:user=sdk")


def test_pools(client):
    assert client.pools.set("sdk-pool", 1, storage="memory").size == 1
    assert "sdk-pool" in [p.name for p in client.pools.list()]
    with client.sandboxes.create(storage="memory", warm=False) as box:
        assert box.info.start == "cold"
    client.pools.set("sdk-pool", 0)


def test_tokens_and_who_one_is(server, client):
    made = client.tokens.create("sdk-tok", "viewer", ttl_ms=600000)
    assert "sdk-tok" in [t.name for t in client.tokens.list()]
    with atoll.Client(server.url, made.token) as viewer:
        assert viewer.whoami().role == "viewer" and viewer.whoami().expires_at
        with pytest.raises(atoll.Forbidden) as refused:
            viewer.sandboxes.create()
        assert client.tokens.revoke("sdk-tok").revoked_at
        assert refused.value.reason == "role"
        with pytest.raises(atoll.Unauthenticated) as caught:
            viewer.whoami()
    assert isinstance(caught.value, atoll.AuthError) and caught.value.request_id


def test_secrets(client):
    assert client.secrets.put("sdk-key", "hush").version == 1 and client.secrets.put("sdk-key", "hush!").version == 2
    bound = client.secrets.put("sdk-token", "hush-hush", hosts=["api.example.com"], use="request")
    assert bound.use == "request" and bound.hosts == ["api.example.com"]
    client.secrets.delete("sdk-token")
    made = client.secrets.create_for_agent("sdk-agent")
    assert made.secret and made.agent_id == "sdk-agent"
    assert {s.name for s in client.secrets.list()} >= {"sdk-key", made.name}
    client.secrets.delete("sdk-key")
    client.secrets.delete(made.name)
    assert client.secrets.list() == []


def test_the_server_itself(client):
    assert client.health().status == "ok" and client.version()["api"] == "v1"
    assert "atoll_" in client.metrics() and "login=" in client.login_link().url_path
    assert "seccomp" in [one["name"] for one in client.api.doctor_read()["items"]]
    assert "memory" in [one["name"] for one in client.api.limits_read()["items"]]
    assert client.audit.verify().ok and client.audit.list(limit=1)[0]["seq"] > 0
    assert client.backups.create("sdk-backup").bytes > 0
    with client.backups.download("sdk-backup") as copy:
        assert copy.read(15) == b"SQLite format 3"
    client.backups.delete("sdk-backup")


# ---- events ----

def test_events_go_on_over_a_kill_of_the_server(server, client):
    begin = client.events.note("0").seq
    threading.Timer(0.3, lambda: [client.events.note(str(i)) for i in range(1, 6)]).start()
    got = []
    for event in client.events.stream(since=begin - 1, type="note.created"):
        got.append(event.data["text"])
        if len(got) == 3:
            server.kill9_api()
        if len(got) == 6:
            break
    assert got == list("012345")
    assert [e.data["text"] for e in client.events.list(begin, type="note.created")] == list("12345")


def test_events_from_now_on(client):
    client.events.note("old")
    threading.Timer(0.5, lambda: client.events.note("new")).start()
    event = next(e for e in client.events.stream(idle=0.2) if e.type == "note.created")
    assert event.data["text"] == "new" and event.time.tzinfo


# ---- what goes wrong ----

def test_errors_by_code(client, box):
    with pytest.raises(atoll.NotFound) as caught:
        client.sandboxes.get("sb-none")
    assert caught.value.code == "not_found" and caught.value.status == 404 and caught.value.request_id
    with pytest.raises(atoll.InvalidRequest) as caught:
        client.sandboxes.create(memory=1)
    assert caught.value.field == "memory"
    with pytest.raises(atoll.InvalidRequest):
        box.exec([])
    with pytest.raises(atoll.AtollError, match="must not be empty"):
        client.sandboxes.get("")
    with pytest.raises(atoll.InvalidRequest):  # one path segment, whatever is in it
        client.sandboxes.get("../tokens?x")


def test_a_rate_limit_says_when(start_server):
    server = start_server(env={"ATOLL_RATE_PER_SECOND": "5", "ATOLL_RATE_BURST": "10"})
    with atoll.Client(server.url, server.token) as client, pytest.raises(atoll.RateLimited) as caught:
        for _ in range(100):
            client.whoami()
    assert caught.value.retry_after >= 1


def test_a_creation_whose_answer_is_lost_is_made_once(server, client):
    proxy = flaky.Flaky(server.port)
    with contextlib.closing(proxy), atoll.Client(proxy.address, server.token) as broken:
        broken.health()  # a connection that is kept
        proxy.cut(2)
        box = broken.sandboxes.create(labels={"once": "1"})
        assert [b.id for b in client.sandboxes.list(label="once")] == [box.id]
        proxy.cut(1)
        result = broken.sandboxes.get(box.id).exec("echo x >> once; echo ran")
        assert result.text == "ran\n" and box.files.read("once") == b"x\n"


def test_what_is_not_safe_is_not_repeated(server, box):
    proxy = flaky.Flaky(server.port)
    with contextlib.closing(proxy), atoll.Client(proxy.address, server.token) as broken:
        other = broken.sandboxes.get(box.id)
        proxy.cut(1)
        with pytest.raises(atoll.ConnectionFailed):
            other.files.append("log", b"x")
        assert box.files.read("log") == b"x"
        proxy.cut(1)
        assert other.files.write("file", b"again").size == 5  # this one is
        proxy.cut(1)
        with pytest.raises(atoll.ConnectionFailed):  # a stream cannot be sent twice
            other.files.write("file", iter([b"once"]))


def test_503_is_waited_for_where_it_is_safe():
    busy = flaky.answer(503, b'{"error":{"code":"unavailable","message":"busy"}}', "Retry-After: 0")
    script = flaky.Scripted(busy, flaky.answer(200, b'{"status":"ok"}'), busy)
    with contextlib.closing(script), atoll.Client(script.address, retries=3) as client:
        assert client.health().status == "ok"
        with pytest.raises(atoll.Unavailable):
            client.api.sandbox_pause("x")
    script = flaky.Scripted(busy, flaky.answer(201, b'{"id":"sb1"}'))
    with contextlib.closing(script), atoll.Client(script.address) as client:
        assert client.sandboxes.create().id == "sb1"
    keys = [re.search(r"Idempotency-Key: (\w+)", head).group(1) for head in script.heads]
    assert keys[0] == keys[1] and len(keys[0]) >= 32


def test_nobody_there_and_nobody_answering(tmp_path):
    with atoll.Client(f"unix:{tmp_path}/none", retries=1) as client, pytest.raises(atoll.ConnectionFailed):
        client.health()
    script = flaky.Scripted(b"not HTTP at all\r\n\r\n")
    with contextlib.closing(script), atoll.Client(script.address, retries=0) as client:
        with pytest.raises(atoll.ConnectionFailed):
            client.health()
    with flaky.socket.create_server(("127.0.0.1", 0)) as silent:
        with atoll.Client("http://127.0.0.1:%d" % silent.getsockname()[1], timeout=0.2) as client:
            with pytest.raises(atoll.RequestTimeout):
                client.health()


# ---- looking back ----

def test_every_operation_was_called():
    assert set(_api.OPERATIONS) - called == set()


def readme_examples():
    return re.findall(r"^```python\n(.*?)^```", (SDK / "README.md").read_text(), re.M | re.S)


@pytest.mark.timeout(120)
def test_the_examples_of_the_readme(server, tmp_path):
    """In one process, warnings are errors, and nothing is left open."""
    script = tmp_path / "examples.py"
    script.write_text("\n".join(readme_examples()) + "\nclient.close()\nprint('all of them')\n")
    done = subprocess.run([PYTHON, "-W", "error", "-X", "dev", script], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "PYTHONPATH": str(SDK / "src"), "ATOLL_STATE": str(server.state)})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.endswith("all of them\n") and len(readme_examples()) >= 6
    assert server.get("/api/v1/sandboxes").json()["items"] == []


def test_types(tmp_path):
    if not shutil.which("mypy"):
        pytest.skip("mypy is not installed")
    script = tmp_path / "examples.py"
    script.write_text("\n".join(readme_examples()))
    done = subprocess.run(["mypy", "--strict", "--python-version", "3.9", "--cache-dir", tmp_path / "cache",
                           "--no-error-summary", SDK / "src" / "atoll", script], capture_output=True, text=True,
                          env={**os.environ, "MYPYPATH": str(SDK / "src")})
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_holds_what_it_needs():
    text = (SDK / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.9"' in text and "dependencies = []" in text
    assert (SDK / "src" / "atoll" / "py.typed").exists()
    version = re.search(r'^version = "(.*)"', text, re.M).group(1)
    assert version == atoll.__version__ == _api.API_VERSION
