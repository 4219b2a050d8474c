"""Files in a sandbox as a client sees them: read, written, listed, moved, packed and unpacked; and what
must not happen. Other programs' archives are read, and ours by them."""
import base64
import contextlib
import hashlib
import http.client
import io
import itertools
import json
import os
import pathlib
import random
import socket
import subprocess
import tarfile
import threading
import time
from urllib.parse import quote

import harness
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"


class Files:
    """One sandbox and the paths of its files."""

    def __init__(self, server, **wish):
        self.server = server
        reply = server.post(BOXES, {"ttl_ms": 600000, **wish})
        assert reply.status == 201, reply
        self.id = reply.json()["id"]
        self.base = f"{BOXES}/{self.id}/files"

    def url(self, what, path, **query):
        path = quote(path if isinstance(path, bytes) else path.encode(), safe="/")
        more = "".join(f"&{k}={quote(v if isinstance(v, bytes) else str(v), safe='')}"
                       for k, v in query.items())
        return f"{self.base}{what}?path={path}{more}"

    def get(self, path, what="", headers=None, **query):
        return self.server.get(self.url(what, path, **query), headers=headers, timeout=40)

    def put(self, path, body, what="", **query):
        return self.server.request("PUT", self.url(what, path, **query), body=body, timeout=40)

    def post(self, what, path, body=None, **query):
        return self.server.request("POST", self.url(what, path, **query), body=body)

    def delete(self, path, **query):
        return self.server.delete(self.url("", path, **query), timeout=40)

    def sh(self, command, wait=30000):
        reply = self.server.post(f"{BOXES}/{self.id}/execs?wait={wait}", {"command": command},
                                 timeout=wait / 1000 + 5)
        assert reply.status == 201, reply
        done = reply.json()
        assert done["exit_code"] == 0, done
        return done["output"]

    def manifest(self, path="."):
        reply = self.get(path, "/manifest")
        assert reply.status == 200, reply
        return {e["name"]: e for e in map(json.loads, reply.body.splitlines())}

    def remove_box(self):
        assert self.server.delete(f"{BOXES}/{self.id}").status == 200


@pytest.fixture(scope="module")
def box(server):
    files = Files(server)
    yield files
    files.remove_box()


PLACES = itertools.count()


@pytest.fixture
def place(box):
    """An empty directory in the sandbox, as a function from names to paths."""
    name = f"place{next(PLACES)}"
    assert box.post("/mkdir", name).status == 200
    return lambda rest="": f"{name}/{rest}" if rest else name


# ---- one file ----

def test_written_read_appended(box, place):
    path = place("f")
    made = box.put(path, b"one\0two").json()
    assert (made["type"], made["mode"], made["size"], made["uid"]) == ("file", "0644", 7, 1000)
    assert box.get(path).body == b"one\0two"
    assert box.post("/append", path, b"\xff!").json()["size"] == 9
    assert box.get(path).body == b"one\0two\xff!"
    assert box.post("/append", place("new"), b"x").json()["size"] == 1
    assert box.put(path, b"").json()["size"] == 0 and box.get(path).body == b""


def test_ranges(box, place):
    path, data = place("f"), bytes(range(256)) * 300
    box.put(path, data)
    part = box.get(path, headers={"Range": "bytes=70000-70009"})
    assert (part.status, part.body) == (206, data[70000:70010])
    assert part.headers["content-range"] == f"bytes 70000-70009/{len(data)}"
    assert box.get(path, headers={"Range": "bytes=-5"}).body == data[-5:]
    assert box.get(path, headers={"Range": "bytes=5-"}).body == data[5:]
    over = box.get(path, headers={"Range": f"bytes={len(data)}-"})
    assert over.status == 416 and over.headers["content-range"] == f"bytes */{len(data)}"
    head = box.server.request("HEAD", box.url("", path))
    assert head.status == 200 and head.headers["content-length"] == str(len(data)) and not head.body


def test_the_next_request_may_come_as_soon_as_a_file_was_read(box, place):
    """On the same connection: its length is known, so nothing needs to be waited for."""
    path, answer = place("f"), b""
    box.put(path, b"x" * 100)
    head = f"Host: {box.server.host}\r\nAuthorization: Bearer {box.server.token}\r\n"
    for _ in range(100):
        with box.server.connect() as sock:
            sock.sendall(f"GET {box.url('', path)} HTTP/1.1\r\n{head}\r\n".encode())
            answer = b""
            while not answer.endswith(b"x" * 100):
                answer += sock.recv(65536)
            sock.sendall(f"GET /api/v1/whoami HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            assert harness.read_all(sock).startswith(b"HTTP/1.1 200 ")


def test_an_archive_is_whole_however_late_it_is_read(box, place):
    """Of some size, the last bytes wait in the pipe of a job that has ended while there is no room for them."""
    sizes = [i * 48 * 1024 for i in range(2, 90)]
    for size in sizes:
        assert box.post("/mkdir", place(str(size))).status == 200
    box.sh(f"cd {place()} && for s in *; do head -c $s /dev/zero > $s/f; done")
    for some in (sizes[i:i + 8] for i in range(0, len(sizes), 8)):
        late = [(size, harness.UnixConnection(box.server.socket_path, 30)) for size in some]
        for size, peer in late:
            peer.request("GET", box.url("/tree", place(str(size))))
        time.sleep(0.4)
        for size, peer in late:
            with contextlib.closing(peer), tarfile.open(fileobj=io.BytesIO(peer.getresponse().read())) as tar:
                assert tar.getmember("f").size == size and len(tar.extractfile("f").read()) == size


def test_the_mode_is_kept_or_said_and_never_setuid(box, place):
    path = place("f")
    assert box.put(path, b"", mode=600).json()["mode"] == "0600"
    assert box.put(path, b"again").json()["mode"] == "0600"
    assert box.put(path, b"again", mode=755).json()["mode"] == "0755"
    for bad in ("4755", "888", "x", "-1", "+7"):
        assert box.put(path, b"", mode=bad).status == 400
    assert box.get(path).body == b"again"


def test_a_write_is_seen_whole_or_not_at_all(box, place):
    """A reader inside never sees half of a file; a body that ends early changes nothing."""
    path = place("f")
    box.put(path, b"A" * 300000)
    script = (f"cd /workspace/{place()}; python3 -c '\nfor i in range(2000):\n"
              " data = open(\"f\").read()\n if len(data) != 300000 or len(set(data)) != 1: print(len(data))\n'")
    seen = []
    reader = threading.Thread(target=lambda: seen.append(box.sh(script)))
    reader.start()
    for i in range(40):
        assert box.put(path, (b"B", b"A")[i % 2] * 300000).status == 200
    reader.join()
    assert seen == [""]
    sock = box.server.connect()
    target = box.url("", path)
    sock.sendall(f"PUT {target} HTTP/1.1\r\nHost: {box.server.host}\r\nContent-Length: 900000\r\n"
                 f"Authorization: Bearer {box.server.token}\r\n\r\n".encode() + b"C" * 500000)
    sock.close()
    assert box.get(path).body == b"A" * 300000
    harness.wait_until(lambda: box.sh(f"ls -A /workspace/{place()}") == "f\n", 5, "no left-over")


def test_big_files_both_ways(box, place):
    data = random.Random(1).randbytes(40_000_003)
    path = place("big")
    assert box.put(path, data).json()["size"] == len(data)
    assert box.sh(f"sha256sum /workspace/{path}").split()[0] == hashlib.sha256(data).hexdigest()
    assert box.get(path).body == data
    assert box.manifest(place())["big"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert box.delete(path).status == 200


def test_sparse_five_gigabytes(box, place):
    box.sh(f"truncate -s 5G /workspace/{place('s')}; printf end >>/workspace/{place('s')}")
    size = 5 * 2**30 + 3
    assert box.get(place("s"), "/stat").json()["size"] == size
    assert box.get(place("s"), headers={"Range": "bytes=-4"}).body == b"\0end"
    assert box.get(place("s"), headers={"Range": f"bytes={size}-"}).status == 416


@pytest.mark.parametrize("http2", [False, True])
def test_sizes_around_those_that_come_by_a_way_of_their_own(box, place, http2):
    """64 KiB and more come beside the frames; whole, in part and over each protocol they are the same."""
    data = random.Random(3).randbytes(3_000_000)
    assert box.put(place("r"), data).status in (200, 201)

    def curl(*args):
        done = subprocess.run(["curl", "-sS", *(["--http2-prior-knowledge"] if http2 else []), *args,
                               "-H", f"Authorization: Bearer {box.server.token}", "-H", f"Host: {box.server.host}",
                               f"http://127.0.0.1:{box.server.port}{box.url('', place('r'))}"], capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert curl() == data
    for size in (1, 65535, 65536, 65537, 262144, 262145, 2_999_000):
        assert curl("-r", f"777-{776 + size}") == data[777:777 + size], size


@contextlib.contextmanager
def half_read(box, path):
    """A download whose reader has had the head and a little, and has stopped."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.settimeout(30 * harness.SLOW)
        sock.connect(("127.0.0.1", box.server.port))
        sock.sendall((f"GET {box.url('', path)} HTTP/1.1\r\nHost: {box.server.host}\r\n"
                      f"Authorization: Bearer {box.server.token}\r\n\r\n").encode())
        got = b""
        while len(got) < 10000:
            got += sock.recv(4096)
        head, body = got.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 200") and b"content-length: 16777216" in head.lower(), head

        def rest():
            left = bytearray(body)
            while len(left) < 16777216:
                with contextlib.suppress(ConnectionResetError):
                    more = sock.recv(1 << 20)
                    left += more
                    if more:
                        continue
                break
            return left
        yield rest


def test_a_file_that_changes_while_it_is_read(box, place):
    """One that shrinks ends the connection: less than was promised never looks whole. One that grows is as long as
    it was; one that is removed is read to its end; and with its sandbox all of it ends."""
    name = place("changes")
    make = f"cd /workspace; head -c 16777216 /dev/zero > {name}"
    for change, whole in ((f"truncate -s 1000000 /workspace/{name}", False),
                          (f"echo more >> /workspace/{name}", True), (f"rm /workspace/{name}", True)):
        box.sh(make)
        with half_read(box, name) as rest:
            box.sh(change)
            got = rest()
            assert (len(got) == 16777216) == whole and not got.strip(b"\0"), (change, len(got))
    other = Files(box.server)
    other.sh(make.replace(name, "f"))
    with half_read(other, "f") as rest:
        assert box.server.delete(f"{BOXES}/{other.id}").status == 200
        assert len(rest()) < 16777216


def test_a_reader_that_goes_away_ends_the_operation(box, place):
    box.sh(f"truncate -s 1G /workspace/{place('s')}")
    for _ in range(40): # more than may be under way at once
        sock = box.server.connect()
        sock.sendall(f"GET {box.url('', place('s'))} HTTP/1.1\r\nHost: {box.server.host}\r\n"
                     f"Authorization: Bearer {box.server.token}\r\n\r\n".encode())
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        sock.close()
    harness.wait_until(lambda: box.get(place("s"), "/stat").status == 200, 10, "operations end")
    harness.wait_until(lambda: box.sh("ls /proc | grep -c '^[0-9]'").strip() < "9", 10, "processes end")


# ---- what is no file ----

@pytest.mark.parametrize("path,status", [
    ("/dev/null", 400), ("/dev/ptmx", 403), ("/workspace", 409), ("/proc/self/status", 403),
    ("/proc/1/root/etc/passwd", 403), ("/proc/self/root/etc/passwd", 400), ("/proc/self/cwd/x", 400),
    ("/nowhere", 404), ("/etc/passwd/x", 409), ("x" * 300, 400), ("/" + "x/" * 2046 + "xx", 404),
    ("a" * 4096, 400), ("", 400),
], ids=lambda value: str(value)[:30])
def test_bad_paths(box, path, status):
    assert box.get(path).status == status, box.get(path)


def test_fifos_sockets_and_links(box, place):
    box.sh(f"cd /workspace/{place()}; mkfifo fifo; ln -s fifo tofifo; ln -s /etc/hostname link; ln -s loop loop; "
           "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'")
    for name, status in (("fifo", 400), ("tofifo", 400), ("sock", 400), ("loop", 400), ("link", 200)):
        assert box.get(place(name)).status == status, name
    for name in ("fifo", "sock"):
        assert box.put(place(name), b"x").status == 400
        assert box.post("/append", place(name), b"x").status == 400
    assert box.get(place("link"), "/stat").json()["type"] == "symlink"
    assert box.get(place("link"), "/stat", follow=1).json()["type"] == "file"
    kinds = {e["name"]: e["type"] for e in box.get(place(), "/list").json()["items"]}
    assert kinds == {"fifo": "fifo", "link": "symlink", "loop": "symlink", "sock": "socket",
                     "tofifo": "symlink"}


def test_no_rights_and_no_room(box, place):
    assert box.put("/etc/new", b"").status == 403
    assert box.get("/etc/shadow").status in (403, 404)
    assert box.delete("/usr/bin/env").status == 403
    reply = box.get("f", user="root")
    assert reply.status == 400 and reply.error["field"] == "user"
    small = Files(box.server, disk=4 << 20)
    full = small.put("f", b"x" * (16 << 20))
    assert full.status == 507, full
    assert small.sh("ls -A /workspace") == ""
    small.remove_box()


def test_root_where_it_was_chosen(box):
    root = Files(box.server, user="root")
    assert root.put("/etc/new", b"x").json()["uid"] == 0
    assert root.put("/workspace/a", b"x", user="agent").json()["uid"] == 1000
    assert root.put("/etc/other", b"x", user="agent").status == 403
    root.remove_box()


def test_states(box):
    other = Files(box.server)
    box.server.post(f"{BOXES}/{other.id}/pause")
    assert other.get("/etc/hostname").status == 409
    box.server.post(f"{BOXES}/{other.id}/resume")
    assert other.get("/etc/hostname").status == 200
    other.remove_box()
    assert other.get("/etc/hostname").status == 404


# ---- names ----

def test_names_are_bytes(box, place):
    raw = b"\xff\n\"\\ \xf0\x9f\x99\x82"
    path = place().encode() + b"/" + raw
    assert box.put(path, b"odd").status == 200
    assert box.get(path).body == b"odd"
    item, = box.get(place(), "/list").json()["items"]
    assert base64.b64decode(item["name_base64"]) == raw
    item, = box.manifest(place()).values()
    assert base64.b64decode(item["name_base64"]) == raw and item["size"] == 3
    assert box.put(place("é"), b"").json()["name_base64"] is None
    tar = tarfile.open(fileobj=io.BytesIO(box.get(place(), "/tree").body))
    assert {os.fsencode(n) for n in tar.getnames()} == {raw, "é".encode()}


def test_lists_are_sorted_and_come_in_pages(box, place):
    box.sh(f"cd /workspace/{place()}; for i in $(seq 1000 1204); do : >$i; done")
    first = box.get(place(), "/list", limit=100).json()
    assert first["more"] and [e["name"] for e in first["items"]] == [str(i) for i in range(1000, 1100)]
    last = box.get(place(), "/list", limit=105, after="1099").json()
    assert not last["more"] and len(last["items"]) == 105
    assert box.get(place(), "/list", limit=104, after="1099").json()["more"]
    assert box.get(place("1000"), "/list").status == 409
    for bad in (0, 10001, "x"):
        assert box.get(place(), "/list", limit=bad).status == 400


def test_directories_moves_and_removal(box, place):
    assert box.post("/mkdir", place("a/b/c")).status == 404
    assert box.post("/mkdir", place("a/b/c"), parents=1, mode=700).status == 200
    assert box.post("/mkdir", place("a/b/c"), parents=1).status == 200
    assert box.post("/mkdir", place("a/b/c")).status == 409
    assert box.get(place("a/b"), "/stat").json()["mode"] == "0700"
    box.put(place("f"), b"f"), box.put(place("g"), b"g")
    assert box.post("/move", place("f"), to=place("g")).status == 409
    assert box.post("/move", place("f"), to=place("g"), replace=1).status == 200
    assert box.get(place("g")).body == b"f" and box.get(place("f")).status == 404
    assert box.post("/move", place("none"), to=place("x")).status == 404
    assert box.post("/move", place("a"), to=place("a/b/x")).status == 400
    assert box.delete(place("a")).status == 409
    assert box.delete(place("a/b/c")).status == 200
    assert box.delete(place("a"), recursive=1).status == 200
    assert box.delete("/workspace/..", recursive=1).status == 400
    assert box.delete("/", recursive=1).status == 400
    assert box.get(place("g")).status == 200


def test_a_very_deep_tree_is_removed(box, place):
    box.sh(f"cd /workspace/{place()} && python3 -c '\nimport os\nfor i in range(3000):\n"
           " os.mkdir(\"d\"); os.chdir(\"d\")\n'")
    with pytest.raises((http.client.IncompleteRead, AssertionError)): # no path is that long
        assert box.get(place(), "/tree").status == 200
    assert box.delete(place("d"), recursive=1).status == 200
    assert box.sh(f"ls -A /workspace/{place()}") == ""


# ---- trees ----

def random_tree(root, rand, long_names=True):
    root.mkdir()
    dirs = [root]
    for i in range(60):
        parent = rand.choice(dirs)
        name = rand.choice(["f", "é", "with space", "-x", "n" * rand.choice([3, 99, 100, 101, 200])])
        path = parent / f"{i}{name}"
        kind = rand.random()
        if kind < 0.3 and len(str(path)) - len(str(root)) < 900:
            path.mkdir()
            dirs.append(path)
        elif kind < 0.8:
            path.write_bytes(rand.randbytes(rand.choice([0, 1, 511, 512, 513, 70000])))
            path.chmod(rand.choice([0o600, 0o644, 0o755, 0o444]))
        else:
            path.symlink_to(rand.choice(["f", "/etc/passwd", "../" * 4 + "x", "t" * 150, "é"]))
    for path in sorted(dirs, reverse=True):
        path.chmod(rand.choice([0o700, 0o755]))
        for child in path.iterdir():
            os.utime(child, (1, rand.randrange(1, 2**33)), follow_symlinks=False)
    return root


def described(root):
    out = {}
    for base, dirs, files in os.walk(root):
        for name in dirs + files:
            path = pathlib.Path(base) / name
            st = path.lstat()
            kind = "symlink" if path.is_symlink() else "directory" if path.is_dir() else "file"
            out[str(path.relative_to(root))] = (
                kind, None if kind == "symlink" else f"{st.st_mode & 0o7777:04o}", int(st.st_mtime),
                os.readlink(path) if kind == "symlink" else None,
                hashlib.sha256(path.read_bytes()).hexdigest() if kind == "file" else None)
    return out


def told(manifest):
    def stamp(text):
        import datetime
        return int(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
    return {name: (e["type"], None if e["type"] == "symlink" else e["mode"], stamp(e["mtime"]), e["link"],
                   e["sha256"]) for name, e in manifest.items()}


@pytest.mark.parametrize("writer", ["gnu", "gnu-posix", "gnu-ustar", "python-pax", "python-gnu"])
@pytest.mark.parametrize("seed", [1, 2])
def test_archives_of_others_are_unpacked_as_they_do(box, place, tmp_path, writer, seed):
    tree = random_tree(tmp_path / "t", random.Random(seed))
    archive = tmp_path / "a.tar"
    if writer.startswith("gnu"):
        form = {"gnu": "gnu", "gnu-posix": "posix", "gnu-ustar": "ustar"}[writer]
        subprocess.run(["tar", "--format", form, "-C", tree, "-cf", archive, "."],
                       check=writer != "gnu-ustar", capture_output=True)
    else:
        form = tarfile.PAX_FORMAT if writer == "python-pax" else tarfile.GNU_FORMAT
        with tarfile.open(archive, "w", format=form) as tar:
            for child in sorted(tree.iterdir()):
                tar.add(child, child.name)
    want = described(tree)
    if writer == "gnu-ustar": # it leaves out what the format cannot say
        other = tmp_path / "u"
        other.mkdir()
        subprocess.run(["tar", "-C", other, "-xf", archive], check=True)
        want = described(other)
    reply = box.put(place(), archive.read_bytes(), "/tree")
    assert reply.status == 200, reply
    assert told(box.manifest(place())) == want


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_our_archives_are_unpacked_by_others(box, place, tmp_path, seed):
    tree = random_tree(tmp_path / "t", random.Random(seed))
    archive = subprocess.run(["tar", "-C", tree, "-cf", "-", "."], check=True, capture_output=True).stdout
    assert box.put(place(), archive, "/tree").status == 200
    ours = box.get(place(), "/tree")
    assert ours.status == 200 and ours.body == box.get(place(), "/tree").body
    for reader in ("gnu", "python"):
        out = tmp_path / reader
        out.mkdir()
        if reader == "gnu":
            done = subprocess.run(["tar", "-C", out, "-xpf", "-"], input=ours.body, capture_output=True)
            assert done.returncode == 0, done.stderr
        else:
            with tarfile.open(fileobj=io.BytesIO(ours.body)) as tar:
                tar.extractall(out)
        want = described(tree)
        got = described(out)
        if reader == "python": # it leaves the times of links alone
            want, got = ({n: d if d[0] != "symlink" else d[:2] + d[3:] for n, d in x.items()}
                         for x in (want, got))
        assert got == want


def entry(name, kind=tarfile.REGTYPE, link="", data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def archive_of(*entries, form=tarfile.GNU_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("name,entries", [
    ("absolute", [entry("/tmp/esc/x", data=b"x")]),
    ("dots", [entry("../esc/x", data=b"x")]),
    ("dots inside", [entry("a/../../esc/x", data=b"x")]),
    ("through its own link", [entry("l", tarfile.SYMTYPE, "../esc"), entry("l/x", data=b"x")]),
    ("through a link to itself", [entry("l", tarfile.SYMTYPE, "."), entry("l/../../esc/x", data=b"x")]),
    ("directory behind a link", [entry("l", tarfile.SYMTYPE, "../esc"), entry("l/d", tarfile.DIRTYPE)]),
    ("deep behind a link", [entry("l", tarfile.SYMTYPE, "../esc"), entry("l/d/e/f", data=b"x")]),
    ("hard link out", [entry("h", tarfile.LNKTYPE, "../esc/secret"), entry("h", data=b"x")]),
    ("absolute hard link", [entry("h", tarfile.LNKTYPE, "/etc/hostname")]),
    ("hard link through a link", [entry("l", tarfile.SYMTYPE, "../esc"),
                                  entry("h", tarfile.LNKTYPE, "l/secret")]),
    ("device", [entry("d", tarfile.CHRTYPE, devmajor=1, devminor=3)]),
    ("fifo", [entry("p", tarfile.FIFOTYPE)]),
    ("sparse", [entry("s", tarfile.GNUTYPE_SPARSE, data=b"x" * 512)]),
    ("long name", [entry("n" * 256, data=b"x")]),
    ("deep", [entry("d/" * 1025 + "x", data=b"x")]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_archives_that_are_refused(box, place, name, entries):
    box.sh(f"cd /workspace/{place()}; mkdir in esc; echo s >esc/secret")
    before = box.manifest(place("esc"))
    reply = box.put(place("in"), archive_of(*entries), "/tree")
    assert reply.status in (400, 413), reply
    assert box.manifest(place("esc")) == before
    assert box.get("/tmp/esc/x").status == 404


def test_a_link_in_the_way_is_replaced_not_followed(box, place):
    box.sh(f"cd /workspace/{place()}; mkdir in esc; echo s >esc/f; ln -s ../esc/f in/f; ln -s ../esc in/d")
    body = archive_of(entry("f", data=b"new", mode=0o6755), entry("d", tarfile.DIRTYPE, mode=0o755),
                      entry("d/f", data=b"new"))
    assert box.put(place("in"), body, "/tree").status == 200
    assert box.get(place("esc/f")).body == b"s\n"
    assert box.get(place("in/f"), "/stat").json()["mode"] == "0755"
    assert box.get(place("in/d/f")).body == b"new"


@pytest.mark.parametrize("body", [b"", b"x" * 512, b"x" * 100, archive_of(entry("f", data=b"x" * 2000))[:1024],
                                  archive_of(entry("f", data=b"x"))[:1024], b"\x1f\x8b" + b"\0" * 2000], ids=range(6))
def test_what_is_no_archive(box, place, body):
    assert box.put(place(), body, "/tree").status == 400


def test_hard_links_inside_are_made(box, place):
    body = archive_of(entry("a/f", data=b"x"), entry("b/g", tarfile.LNKTYPE, "a/f"))
    assert box.put(place(), body, "/tree").status == 200
    assert box.sh(f"stat -c %h /workspace/{place('b/g')}") == "2\n"


def test_manifest_of_nothing_and_of_no_directory(box, place):
    assert box.get(place(), "/manifest").body == b""
    assert box.get(place("none"), "/manifest").status == 404
    assert box.get("/etc/hostname", "/tree").status == 409
    tar = box.get(place(), "/tree")
    assert tar.status == 200 and tar.body == b"\0" * 1024


# ---- watching, roles, audit, restarts ----

def test_watching(box, place):
    with box.server.sse(box.url("/watch", place(), recursive=1)) as events:
        assert events.next()["event"] == "ready"
        box.sh(f"cd /workspace/{place()}; echo x >f; mkdir d; mv f g")
        seen = set()
        while ("moved_to", "g", False) not in seen:
            change = json.loads(events.next()["data"])
            seen.add((change["what"], change["path"], change["directory"]))
        assert {("created", "f", False), ("created", "d", True), ("moved_from", "f", False)} <= seen
        box.sh(f"echo y >/workspace/{place('d/h')}")
        while ("created", "d/h", False) not in seen:
            change = json.loads(events.next()["data"])
            seen.add((change["what"], change["path"], change["directory"]))
    assert box.get("/nowhere", "/watch").status == 404


# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, setfcap
ROOTS = sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7, 8, 10, 31))


@pytest.mark.parametrize("user, may", [("agent", 0), ("root", ROOTS)])
def test_an_operation_has_what_its_user_may_have_and_no_more(server, user, may):
    """It does not execve, which takes capabilities away from everything else."""
    files = Files(server, user=user)
    with server.sse(files.url("/watch", "/tmp")) as events:
        assert events.next()["event"] == "ready"
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cgroup"):
            try:
                if f"/{files.id}" in path.read_text():
                    found.append(harness.proc_status(path.parent.name))
            except OSError:
                pass
        (operation,) = [status for status in found if status["NSpid"].split()[-1] != "1"]
        init = next(status for status in found if status["NSpid"].split()[-1] == "1")
    files.remove_box()
    assert (operation["Uid"] == init["Uid"]) == (user == "root")
    assert int(init["CapPrm"], 16) & ~ROOTS, "process 1 has no more either; this test proves nothing"
    for kind in "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
        assert int(operation[kind], 16) & ~may == 0, (kind, operation[kind])


def test_changes_are_audited(box, place):
    box.put(place("f"), b"x")
    box.post("/mkdir", place("d"))
    box.put(place("d"), b"no archive", "/tree")
    rows = [r for r in box.server.get("/api/v1/audit?limit=200").json()["items"]
            if place() in json.dumps(r.get("detail"))]
    assert {(r["action"], r["outcome"]) for r in rows} >= {
        ("file.write", "ok"), ("file.mkdir", "ok"), ("tree.write", "failed")}


def test_a_viewer_reads_and_changes_nothing(box, place):
    token = box.server.new_token("viewer")["token"]
    box.put(place("f"), b"x")
    assert box.server.get(box.url("", place("f")), token=token).body == b"x"
    for method, what in (("PUT", ""), ("DELETE", ""), ("POST", "/append"), ("PUT", "/tree"), ("POST", "/mkdir")):
        assert box.server.request(method, box.url(what, place("f")), token=token).status == 403


def test_after_a_kill_nothing_of_an_operation_is_left(fresh_server):
    box = Files(fresh_server)
    box.sh("truncate -s 1G s")
    socks = []
    for _ in range(3):
        sock = fresh_server.connect()
        sock.sendall(f"GET {box.url('', 's')} HTTP/1.1\r\nHost: {fresh_server.host}\r\n"
                     f"Authorization: Bearer {fresh_server.token}\r\n\r\n".encode())
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        socks.append(sock)
    for size in (60000, 90000, None):  # those that come by a stream of their own, and others
        socks.append(fresh_server.connect())
        length = f"Content-Length: {size}" if size else "Transfer-Encoding: chunked"
        socks[-1].sendall(f"PUT {box.url('', f'half{size}')} HTTP/1.1\r\nHost: {fresh_server.host}\r\n{length}\r\n"
                          f"Authorization: Bearer {fresh_server.token}\r\n\r\n".encode()
                          + (b"h" * 50000 if size else b"c350\r\n" + b"h" * 50000 + b"\r\n"))
    harness.wait_until(lambda: int(box.sh("ls /proc | grep -c '^[0-9]'")) >= 8, 30, "all are under way")
    fresh_server.kill9_api()
    fresh_server.wait_ready()
    for sock in socks:
        sock.close()
    harness.wait_until(lambda: box.sh("ls /proc | grep -c '^[0-9]'").strip() < "6", 10, "processes end")
    assert box.get("s", headers={"Range": "bytes=0-1"}).body == b"\0\0"
    assert box.sh("ls -A") == "s\n", "what was half there is not a file"
    items = fresh_server.get(f"{BOXES}/{box.id}/execs").json()["items"]
    assert all(e["argv"][0] == "/bin/sh" for e in items) # operations are no commands
    box.remove_box()


def test_many_at_once_and_no_more(box, place):
    """The limit is by sandbox; what is refused says so, and the others finish."""
    answers = []

    def one(i):
        answers.append(box.put(place(f"f{i}"), bytes([i]) * 200000))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(60)]
    [t.start() for t in threads], [t.join() for t in threads]
    statuses = [a.status for a in answers]
    assert set(statuses) <= {200, 429}, [a.body for a in answers if a.status not in (200, 429)]
    assert statuses.count(200) >= 20
    assert len(box.manifest(place())) == statuses.count(200)


# ---- atoll cp ----

def cp(box, *args, **kw):
    return box.server.cli("cp", *[str(a) for a in args], **kw)


def test_cp_of_files(box, place, tmp_path):
    here = tmp_path / "f.txt"
    here.write_bytes(os.urandom(300000))
    here.chmod(0o4750)
    there = f"{box.id}:{place()}"
    assert cp(box, here, there).returncode == 0
    assert box.get(place("f.txt")).body == here.read_bytes()
    assert box.get(place("f.txt"), "/stat").json()["mode"] == "0750"
    assert cp(box, here, f"{there}/other").returncode == 0
    assert cp(box, f"{there}/other", tmp_path / "back").returncode == 0
    assert (tmp_path / "back").read_bytes() == here.read_bytes()
    assert (tmp_path / "back").stat().st_mode & 0o7777 == 0o750
    (tmp_path / "d").mkdir()
    assert cp(box, f"{there}/other", tmp_path / "d").returncode == 0
    assert (tmp_path / "d" / "other").read_bytes() == here.read_bytes()
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["other"]


def test_cp_to_standard_output(box, place, tmp_path):
    def here(*args):
        return subprocess.run([box.server.binary, "cp", *args], cwd=tmp_path, capture_output=True, timeout=60,
                              env={**os.environ, "ATOLL_STATE": str(box.server.state)})

    data = os.urandom(300000)
    (tmp_path / "f").write_bytes(data)
    there = f"{box.id}:{place()}"
    assert here("f", there).returncode == 0
    done = here(f"{there}/f", "-")
    assert (done.returncode, done.stdout) == (0, data)
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    assert here("--recursive", there, "-").returncode == 1
    assert here(f"{there}/f", "./-").returncode == 0
    assert (tmp_path / "-").read_bytes() == data


def test_cp_of_trees(box, place, tmp_path):
    tree = random_tree(tmp_path / "tree", random.Random(9))
    there = f"{box.id}:{place()}"
    assert cp(box, tree, there).returncode == 64
    assert cp(box, "--recursive", tree, there, timeout=60).returncode == 0
    assert cp(box, "--recursive", tree, f"{there}/new", timeout=60).returncode == 0
    assert told(box.manifest(place("tree"))) == described(tree) == told(box.manifest(place("new")))
    assert cp(box, f"{there}/new", tmp_path).returncode == 64
    assert cp(box, "--recursive", f"{there}/new", tmp_path, timeout=60).returncode == 0
    assert cp(box, "--recursive", f"{there}/new", tmp_path / "n2", timeout=60).returncode == 0
    (tmp_path / "into").mkdir()
    assert cp(box, "--recursive", f"{there}/new/.", tmp_path / "into", timeout=60).returncode == 0
    for name in ("new", "n2", "into"):
        assert described(tmp_path / name) == described(tree), name


def test_cp_follows_a_link_that_was_named_and_says_so(box, place, tmp_path):
    (tmp_path / "f").write_text("text")
    (tmp_path / "l").symlink_to("f")
    assert cp(box, tmp_path / "l", f"{box.id}:{place('l')}").returncode == 0
    assert box.get(place("l"), "/stat").json()["type"] == "file" and box.get(place("l")).body == b"text"
    box.sh(f"ln -s l /workspace/{place('again')}")
    assert cp(box, f"{box.id}:{place('again')}", tmp_path / "back").returncode == 0
    assert not (tmp_path / "back").is_symlink() and (tmp_path / "back").read_text() == "text"
    words = " ".join(cp(box, "--help").stdout.split())
    assert "SRC that is a symbolic link is followed; those below it are copied as links" in words


def test_cp_follows_no_link_below_the_destination(box, place, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("stays")
    dest = tmp_path / "t"
    dest.mkdir()
    (dest / "d").symlink_to(outside)
    (dest / "l").symlink_to(outside / "f")
    box.sh(f"cd /workspace/{place()}; mkdir -p t/d; echo evil >t/d/f; echo evil >t/l; chmod 6755 t/l")
    assert cp(box, "--recursive", f"{box.id}:{place('t')}", tmp_path).returncode == 0
    assert (outside / "f").read_text() == "stays" and len(list(outside.iterdir())) == 1
    assert (dest / "l").read_text() == "evil\n" and (dest / "l").stat().st_mode & 0o7777 == 0o755
    (tmp_path / "lt").symlink_to(outside)
    reply = cp(box, "--recursive", f"{box.id}:{place('t')}", tmp_path / "lt2")
    assert reply.returncode == 0 and (tmp_path / "lt2" / "d" / "f").read_text() == "evil\n"
    box.sh(f"cp /workspace/{place('t/l')} /workspace/{place('lf')}")
    (tmp_path / "lf").symlink_to(outside / "f")
    assert cp(box, f"{box.id}:{place('lf')}", tmp_path / "lf").returncode == 0
    assert (outside / "f").read_text() == "stays" and not (tmp_path / "lf").is_symlink()


@pytest.mark.parametrize("args,status,words", [
    (("a", "b"), 64, "SANDBOX:PATH"),
    (("x:a", "y:b"), 64, "SANDBOX:PATH"),
    (("nobox:/f", "."), 2, "no sandbox nobox"),
    (("BOX:/nowhere", "."), 2, "No such file"),
    (("BOX:/dev/null", "."), 1, "not that kind"),
    (("/nowhere/file", "BOX:x"), 1, "No such file"),
    (("/etc/hostname", "BOX:/etc/x"), 4, "Permission denied"),
    (("BOX:/etc/hostname", "/nowhere/x/y"), 1, "No such file"),
    (("/dev/null", "BOX:x"), 1, "not a regular file"),
], ids=range(9))
def test_cp_of_what_cannot_be(box, tmp_path, args, status, words):
    done = cp(box, *[a.replace("BOX", box.id) for a in args])
    assert done.returncode == status and words in done.stderr, done


def test_cp_shows_progress_on_a_terminal(box, place, tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 5_000_000)
    master, slave = os.openpty()
    env = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    env["ATOLL_STATE"] = str(box.server.state)
    done = subprocess.run([box.server.binary, "cp", tmp_path / "big", f"{box.id}:{place()}"], stderr=slave,
                          stdin=subprocess.DEVNULL, env=env, timeout=30)
    os.close(slave)
    shown = harness.read_pty(master).decode()
    assert done.returncode == 0 and "5.0 MB" in shown
    assert "MB" not in cp(box, tmp_path / "big", f"{box.id}:{place()}").stderr


def test_run_shows_progress_on_a_terminal_and_takes_it_away(box, tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 5_000_000)
    master, slave = os.openpty()
    env = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    env["ATOLL_STATE"] = str(box.server.state)
    argv = [box.server.binary, "run", "--copy", tmp_path, "--", "wc", "-c", "big"]
    done = subprocess.run(argv, stderr=slave, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env, timeout=60)
    os.close(slave)
    shown = harness.read_pty(master).decode()
    assert done.returncode == 0 and done.stdout == b"5000000 big\n"
    assert "MB/s" in shown and shown.rsplit("MB/s", 1)[1].startswith("\033[K\r\033[K"), shown
    quiet = subprocess.run(argv, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env, timeout=60)
    assert quiet.returncode == 0 and b"MB/s" not in quiet.stderr
