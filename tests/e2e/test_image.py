"""Images as their users see them: imported in each form, used, shared, refused, removed, and nothing left of
what failed. Root only, as sandboxes are."""
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import time
import urllib.parse

import harness
import images
import pytest
from harness import make_box as make
from images import entry, folder, hardlink, symlink, tar

sys.path.insert(0, str(harness.ROOT / "sdk" / "python" / "src"))
import atoll as sdk  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
IMAGES, BOXES = "/api/v1/images", "/api/v1/sandboxes"
BUSYBOX = pathlib.Path("/bin/busybox")
APPLETS = ["sh", "cat", "ls", "env", "pwd", "id", "test", "echo", "stat", "readlink"]


def base_layer(*more):
    """A root tree that can run a shell."""
    links = [symlink(f"bin/{name}", "busybox") for name in APPLETS]
    return tar(folder("bin"), entry("bin/busybox", BUSYBOX.read_bytes(), mode=0o755), *links, folder("etc"),
               folder("tmp", mode=0o1777), folder("srv"), entry("etc/os", "base"), entry("etc/gone", "base"),
               folder("data"), entry("data/old", "base"), *more)


UPPER = tar(entry("etc/.wh.gone", ""), folder("data"), entry("data/.wh..wh..opq", ""), entry("data/new", "upper"),
            entry("etc/os", "upper"))


@pytest.fixture
def server_(server):
    """The server, with no image and no sandbox before and after, and no disk that nobody knows."""
    yield server
    for box in server.get(BOXES).json()["items"]:
        assert server.delete(f"{BOXES}/{box['id']}").status == 200
    for image in server.get(IMAGES).json()["items"]:
        assert remove(server, image["name"]).status == 200
    nothing_left(server)


def nothing_left(server):
    def clean():
        return not list((server.state / "boxes").iterdir())

    harness.wait_until(clean, 10, "the unpackers to be gone")


def path_of(name):
    return f"{IMAGES}/{urllib.parse.quote(name, safe='')}"


def send(server, name, data):
    return server.request("POST", f"{IMAGES}?name={urllib.parse.quote(name, safe='')}", body=data,
                          headers={"content-type": "application/octet-stream"}, timeout=40)


def load(server, name, data):
    reply = send(server, name, data)
    assert reply.status == 201, reply
    return reply.json()


def remove(server, name):
    return server.delete(path_of(name))


def run(server, box, *argv, **wish):
    told = harness.run_in(server, box, *argv, **wish)
    assert told["exit_code"] == 0, told
    return told["output"]


def test_a_root_tree(server_):
    image = load(server_, "busy", images.PACK["gzip"](base_layer()))
    assert image["name"] == "busy" and image["format"] == "tar" and len(image["layers"]) == 1
    for storage in ("memory", "disk"):
        box = make(server_, image="busy", storage=storage)
        assert run(server_, box, "/bin/cat", "/etc/os") == "base"
        assert run(server_, box, "pwd") == "/\n"
        run(server_, box, "sh", "-c", "echo mine > /tmp/x && test -w /tmp")
        run(server_, box, "sh", "-c", "echo mine > /workspace/x && echo mine > ~/x")


def test_places_that_an_image_has_are_left_alone(server_):
    load(server_, "own", base_layer(folder("workspace", mode=0o700, uid=7), symlink("home", "srv")))
    box = make(server_, image="own", user="root", storage="memory")
    assert run(server_, box, "stat", "-c", "%u %a", "/workspace") == "7 700\n"
    assert run(server_, box, "readlink", "/home") == "srv\n"
    assert run(server_, box, "ls", "/srv") == ""


@pytest.mark.parametrize("form", ["oci", "docker"])
def test_layers_lie_on_top_of_one_another(server_, form):
    make_archive = images.oci if form == "oci" else images.docker
    data = make_archive([base_layer(), UPPER], Env=["A=image", "B=image"], WorkingDir="/srv", User="root",
                        Cmd=["/bin/sh"])
    image = load(server_, "two:1", data)
    assert image["format"] == form and image["config"]["cmd"] == ["/bin/sh"] and len(image["layers"]) == 2
    assert server_.get(path_of("two:1")).json()["digest"] == image["digest"]
    box = make(server_, image="two:1", env={"B": "sandbox"})
    assert run(server_, box, "cat", "/etc/os") == "upper"
    assert run(server_, box, "ls", "/data") == "new\n"
    assert "gone" not in run(server_, box, "ls", "/etc").split()
    assert run(server_, box, "pwd") == "/srv\n"
    assert run(server_, box, "id", "-u") == "0\n"
    env = run(server_, box, "env", env={"C": "command"}).splitlines()
    assert {"A=image", "B=sandbox", "C=command"} <= set(env)
    assert run(server_, box, "pwd", cwd="/etc") == "/etc\n"


def test_many_layers(server_):
    """More than a sandbox takes: the lowest become one."""
    uppers = [tar(entry(f"srv/{i}", str(i)), *([entry(f"srv/.wh.{i - 2}", "")] if i > 1 else [])) for i in range(20)]
    image = load(server_, "many", images.oci([base_layer(), *uppers]))
    assert len(image["layers"]) == 21
    box = make(server_, image="many", storage="memory")
    assert run(server_, box, "ls", "/srv").split() == ["18", "19"]
    assert run(server_, box, "cat", "/etc/os") == "base"
    # A layer twice is a layer once.
    load(server_, "twice", images.oci([base_layer(), UPPER, base_layer()]))
    box = make(server_, image="twice", storage="memory")
    assert run(server_, box, "cat", "/etc/os") == "base"


def test_shared_layers_go_with_the_last_image(server_):
    load(server_, "one", images.oci([base_layer()]))
    load(server_, "two", images.oci([base_layer(), UPPER]))
    assert remove(server_, "one").status == 200
    box = make(server_, image="two", storage="memory")
    assert run(server_, box, "cat", "/etc/os") == "upper"


def test_an_image_in_use_stays(server_):
    load(server_, "busy", base_layer())
    box = make(server_, image="busy", storage="disk")
    reply = remove(server_, "busy")
    assert reply.status == 409 and "need image busy" in reply.json()["error"]["message"]
    assert server_.post(f"{BOXES}/{box}/stop").status == 200
    assert remove(server_, "busy").status == 409
    assert server_.post(f"{BOXES}/{box}/start").status == 200
    assert run(server_, box, "cat", "/etc/os") == "base"
    assert server_.delete(f"{BOXES}/{box}").status == 200
    assert remove(server_, "busy").status == 200
    reply = remove(server_, "busy")
    assert reply.status == 404 and "there are none yet" in reply.json()["error"]["message"]


def test_bad_wishes(server_):
    load(server_, "busy", base_layer())
    reply = server_.post(BOXES, {"image": "bussy"})
    assert reply.status == 404
    assert reply.json()["error"]["message"] == "no image bussy; there is busy"
    assert reply.json()["error"]["field"] == "image"
    for name in ("", "Up", "a b", "../x", "/a", "a/", "a//b", "a/../b", "A/b", "a:b/c", "-a", "a:", ":a", "a" * 201):
        reply = send(server_, name, b"")
        assert reply.status == 400 and reply.json()["error"]["field"] == "name", (name, reply)
    reply = send(server_, "busy", base_layer())
    assert reply.status == 409 and "already" in reply.json()["error"]["message"]
    assert server_.post(f"{IMAGES}", {}).status == 400


BROKEN = {
    "no archive": (b"hello", 400, "not an archive"),
    "nothing": (b"", 400, "empty"),
    "slip": (tar(entry("../evil", "x")), 400, "leads out"),
    "link, then write": (tar(symlink("a", ".."), entry("a/evil", "x")), 400, "symbolic link"),
    "hard link out": (tar(hardlink("a", "/etc/passwd")), 400, "no file of the layer"),
    "/dev is a link": (tar(symlink("dev", "/proc")), 422, "/dev is a symbolic link"),
    "another machine": (images.oci([UPPER], arch="s390x"), 422, "no image for amd64"),
    "a bomb": (images.PACK["gzip"](tar(entry("zeros", bytes(40 << 20)))), 413, "more than 200 bytes"),
    "digest": (images.oci([tar(entry("a", "1" * 600))], "plain").replace(b"1" * 600, b"2" * 600), 400, "digest"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_archives_leave_nothing(server_, name):
    data, status, text = BROKEN[name]
    head = server_.get("/api/v1/events?limit=1").json()["head"]
    reply = send(server_, "bad", data)
    message = reply.json()["error"]["message"]
    assert reply.status == status and text in message, reply
    since = server_.get(f"/api/v1/events?since={head}").json()["items"]
    told = [(one["object"], one["data"]["reason"]) for one in since if one["type"] == "image.failed"]
    assert told == [("image/bad", message)]
    assert server_.get(IMAGES).json()["items"] == []
    nothing_left(server_)


def test_an_upload_that_is_given_up(server_):
    with server_.connect() as sock:
        sock.sendall(f"POST {IMAGES}?name=half HTTP/1.1\r\nHost: {server_.host}\r\nTransfer-Encoding: chunked\r\n"
                     f"Authorization: Bearer {server_.token}\r\n\r\n1000\r\n".encode() + bytes(4096) + b"\r\n")
        harness.wait_until(lambda: list((server_.state / "boxes").iterdir()), 10, "an unpacker")
    nothing_left(server_)
    assert server_.get(IMAGES).json()["items"] == []


def test_a_kill_in_the_middle_leaves_nothing(start_server):
    server = start_server()
    load(server, "kept", base_layer())
    big = tar(entry("zeros", os.urandom(1 << 20) * 24))
    for pause in (0.0, 0.02, 0.05, 0.1, 0.2):
        sender = subprocess.Popen([harness.BIN, "image", "import", "-", "--name", "big", "--state", server.state],
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            sender.stdin.write(big)
            sender.stdin.close()
        except BrokenPipeError:
            pass
        time.sleep(pause)
        server.kill9_api()
        server.wait_ready()
        sender.wait()
        names = [image["name"] for image in server.get(IMAGES).json()["items"]]
        assert names in (["kept"], ["kept", "big"])
        if "big" in names:
            assert remove(server, "big").status == 200
        harness.wait_until(lambda: not list((server.state / "boxes").iterdir()), 10, "the unpacker to be gone")
    box = make(server, image="kept", storage="memory")
    assert run(server, box, "cat", "/etc/os") == "base"
    assert server.delete(f"{BOXES}/{box}").status == 200


# ---- the command line ----------------------------------------------------------------------------


def atoll(server, *args, **options):
    options["env"] = {**options.get("env", os.environ), "ATOLL_STATE": str(server.state)}
    return subprocess.run([harness.BIN, *map(str, args)], capture_output=True, text=True, **options)


def test_the_command_line(server_, tmp_path):
    archive = tmp_path / "busy-1.tar.gz"
    archive.write_bytes(images.PACK["gzip"](base_layer()))
    done = atoll(server_, "image", "import", archive)
    assert done.returncode == 0 and done.stdout == "busy-1\n", done
    listed = atoll(server_, "image", "ls")
    assert "busy-1" in listed.stdout and "tar" in listed.stdout
    shown = atoll(server_, "image", "show", "busy-1")
    assert "sha256:" in shown.stdout and "layers" in shown.stdout
    ran = atoll(server_, "run", "--image", "busy-1", "--", "cat", "/etc/os", cwd=tmp_path)
    assert ran.returncode == 0 and ran.stdout == "base", ran
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("copied")
    ran = atoll(server_, "run", "--image", "busy-1", "--", "cat", "note", cwd=tmp_path / "mine")
    assert ran.returncode == 0 and ran.stdout == "copied", ran
    assert json.loads(atoll(server_, "image", "show", "busy-1", "--json").stdout)["name"] == "busy-1"
    assert atoll(server_, "image", "rm", "busy-1").returncode == 0
    missing = atoll(server_, "image", "show", "busy-1")
    assert missing.returncode != 0 and "no image busy-1" in missing.stderr


def test_what_an_image_is_for(server_, tmp_path):
    """Without a command, the image's own runs, in its working directory unless there is a workspace."""
    load(server_, "app", images.oci([base_layer()], Entrypoint=["echo", "from"], Cmd=["the image"], WorkingDir="/srv"))
    ran = atoll(server_, "run", "--image", "app", "--no-workspace", stdin=subprocess.DEVNULL, cwd=tmp_path)
    assert ran.returncode == 0 and ran.stdout == "from the image\n", ran
    ran = atoll(server_, "run", "--image", "app", "--no-workspace", "--", "pwd", cwd=tmp_path)
    assert ran.stdout == "/srv\n"
    ran = atoll(server_, "run", "--image", "app", "--", "pwd", cwd=tmp_path)
    assert ran.stdout == "/workspace\n"


def test_a_layout_directory(server_, tmp_path):
    with tarfile.open(fileobj=images.io.BytesIO(images.oci([base_layer()]))) as archive:
        archive.extractall(tmp_path / "layout")
    done = atoll(server_, "image", "import", tmp_path / "layout", "--name", "busy")
    assert done.returncode == 0, done
    refused = atoll(server_, "image", "import", tmp_path, "--name", "other")
    assert refused.returncode != 0 and "no OCI layout" in refused.stderr


def test_import_from_standard_input(server_):
    done = subprocess.run([harness.BIN, "image", "import", "-", "--name", "busy", "--state", server_.state],
                          input=base_layer(), capture_output=True)
    assert done.returncode == 0 and done.stdout == b"busy\n", done
    unnamed = atoll(server_, "image", "import", "-", stdin=subprocess.DEVNULL)
    assert unnamed.returncode == 64 and "--name" in unnamed.stderr
    nowhere = atoll(server_, "image", "import", "/nowhere.tar")
    assert nowhere.returncode != 0 and "/nowhere.tar" in nowhere.stderr


def test_build_debian(server_, tmp_path):
    """With a mmdebstrap that is played: packages are not this test's business."""
    played = tmp_path / "mmdebstrap"
    (tmp_path / "tree.tar").write_bytes(base_layer())
    played.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/args\n[ "$#" -ge 4 ] || exit 9\ncat {tmp_path}/tree.tar\n')
    played.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = atoll(server_, "image", "build-debian", "deb", "git", "curl", "--suite", "trixie", env=env)
    assert done.returncode == 0 and done.stdout == "deb\n", done
    assert (tmp_path / "args").read_text() == "--variant=minbase --format=tar --include=git,curl trixie -\n"
    assert atoll(server_, "image", "build-debian", "bare", env=env).stdout == "bare\n"
    assert (tmp_path / "args").read_text() == "--variant=minbase --format=tar bookworm -\n"
    assert remove(server_, "bare").status == 200
    # Nothing is asked of the server while packages are still being fetched: it would not wait so long.
    played.write_text(f"#!/bin/sh\ncd {tmp_path}\ntouch busy\nwhile [ ! -e go ]; do sleep 0.1; done\ncat tree.tar\n")
    with subprocess.Popen([harness.BIN, "image", "build-debian", "late", "--state", server_.state], env=env) as slow:
        harness.wait_until((tmp_path / "busy").exists, 10, "mmdebstrap to begin")
        time.sleep(0.5)
        assert list((server_.state / "boxes").iterdir()) == [], "the import has begun"
        (tmp_path / "go").touch()
        assert slow.wait(30) == 0
    assert remove(server_, "late").status == 200
    played.write_text("#!/bin/sh\nexit 3\n")
    failed = atoll(server_, "image", "build-debian", "other", env=env)
    assert failed.returncode != 0 and "mmdebstrap failed" in failed.stderr
    (tmp_path / "args").unlink()
    played.write_text(f"#!/bin/sh\ntouch {tmp_path}/args\n")
    nobody = subprocess.run([harness.BIN, "image", "build-debian", "x", "--state", tmp_path / "none"], env=env,
                            capture_output=True)
    assert nobody.returncode != 0 and not (tmp_path / "args").exists(), "it was made for nobody"
    absent = atoll(server_, "image", "build-debian", "other", env={**os.environ, "PATH": "/nowhere"})
    assert absent.returncode != 0 and "apt-get install mmdebstrap" in absent.stderr
    assert [image["name"] for image in server_.get(IMAGES).json()["items"]] == ["deb"]


# ---- warm ----

POOLS = "/api/v1/pools"


def ready(server, name):
    return {pool["name"]: pool["ready"] for pool in server.get(POOLS).json()["items"]}.get(name)


def test_a_pool_of_an_image(start_server):
    server = start_server(args=["--pool-default", "0"])
    assert server.request("PUT", f"{POOLS}/warm", json={"size": 1, "image": "two"}).status == 422
    load(server, "two", images.oci([base_layer(), UPPER], Env=["A=image", "B=image"], WorkingDir="/srv", User="root"))
    pool = server.request("PUT", f"{POOLS}/warm", json={"size": 1, "image": "two"})
    assert pool.status == 200 and pool.json()["user"] == "root" and pool.json()["image"] == "two", pool
    harness.wait_until(lambda: ready(server, "warm") == 1, 20, "a warm one")
    wish = {"name": "elsewhere", "role": "operator", "tenant": "elsewhere"}
    other = server.post("/api/v1/tokens", wish).json()["token"]
    made = server.request("POST", f"{IMAGES}?name=two", body=base_layer(), token=other, timeout=40,
                          headers={"content-type": "application/octet-stream"})
    assert made.status == 201, made
    theirs = server.post(BOXES, {"image": "two", "user": "root"}, token=other).json()
    assert theirs["start"] == "cold"  # the same name, and another tenant's files
    assert server.delete(f"{BOXES}/{theirs['id']}", token=other).status == 200
    for turn in range(2):  # the second time after a restart
        plain = server.post(BOXES, {"user": "root"}).json()
        assert plain["start"] == "cold"  # what it is ready with is not asked for
        reply = server.post(BOXES, {"image": "two", "env": {"B": "late"}, "memory": 64 << 20})
        assert reply.status == 201 and reply.json()["start"] == "warm", reply
        box = reply.json()["id"]
        assert run(server, box, "/bin/sh", "-c", "cat /etc/os; pwd; echo $A $B; id -u") == "upper/srv\nimage late\n0\n"
        refused = remove(server, "two")
        assert refused.status == 409
        for one in (box, plain["id"]):
            assert server.delete(f"{BOXES}/{one}").status == 200
        refused = remove(server, "two")
        assert refused.status == 409 and "pool warm" in refused.json()["error"]["message"], refused
        if turn == 0:
            server.stop(remove=False)
            server.start()
        harness.wait_until(lambda: ready(server, "warm") == 1, 20, "a warm one again")
    assert server.request("PUT", f"{POOLS}/warm", json={"size": 0}).status == 200
    harness.wait_until(lambda: not list((server.state / "boxes").iterdir()), 10, "no warm one")
    assert remove(server, "two").status == 200


def test_a_pool_of_an_image_without_programs(start_server):
    server = start_server(args=["--pool-default", "0"])
    load(server, "bare", tar(folder("etc"), entry("etc/os", "bare")))
    assert server.request("PUT", f"{POOLS}/bare", json={"size": 1, "image": "bare"}).status == 200
    harness.wait_until(lambda: ready(server, "bare") == 1, 8, "one that could not run its first command")
    reply = server.post(BOXES, {"image": "bare"})
    assert reply.json()["start"] == "warm", reply
    assert server.get(f"{BOXES}/{reply.json()['id']}/files?path=/etc/os").body == b"bare"
    assert server.delete(f"{BOXES}/{reply.json()['id']}").status == 200


FLOCK = """import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked")"""


def image_row(server, box):
    return {one["layer"]: one for one in server.get(f"{BOXES}/{box}/applied").json()["layers"]}["image"]


def test_locks_are_shared_where_the_row_says_so(server_):
    """What SECURITY.md and the row `image` say about the host's /usr, and that an image has files of its own."""
    load(server_, "own-files", base_layer())
    imported = server_.post(BOXES, {"image": "own-files"}).json()["id"]
    assert "shared" not in image_row(server_, imported)["applied"]
    box = server_.post(BOXES, {}).json()["id"]
    row = image_row(server_, box)
    assert "locks and inotify are shared" in row["applied"] and row["lost"] is None, row
    files = sorted(str(path) for path in pathlib.Path("/usr/share").glob("doc/*/copyright"))
    file = files[os.getpid() % len(files)]  # another run of this test takes another one
    with open(file, encoding="utf-8", errors="replace") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = harness.run_in(server_, box, "python3", "-c", FLOCK, file)
        assert done["exit_code"] != 0 and "temporarily unavailable" in json.dumps(done), done
    assert harness.run_in(server_, box, "python3", "-c", FLOCK, file)["output"] == "locked\n"
    for one in (box, imported):
        assert server_.delete(f"{BOXES}/{one}").status == 200
    assert remove(server_, "own-files").status == 200


def test_names_with_slashes_and_tags(server_):
    """As OCI has them: imported, read by either spelling of the path, used by every surface, removed."""
    name = "agentic/claude:latest"
    assert send(server_, name, base_layer()).status == 201
    assert name in [image["name"] for image in server_.get(IMAGES).json()["items"]]
    for path in (name, "agentic%2Fclaude%3Alatest", "agentic%2fclaude:latest"):
        assert server_.get(f"{IMAGES}/{path}").json()["name"] == name, path
    for path in ("agentic", "agentic/claude", "agentic/claude:other", "agentic/claude:latest/x"):
        assert server_.get(f"{IMAGES}/{path}").status == 404, path
    for path in ("agentic%2F..%2Fclaude", "%2Fagentic", "..%2Fx"):
        assert server_.get(f"{IMAGES}/{path}").status == 400, path
    assert [image["ref"] for image in server_.get("/api/v1/container-images").json()["images"]] == [name]
    made = atoll(server_, "container", "create", "seed", "--image", name)
    assert made.returncode == 0, made.stderr
    box = server_.get("/api/v1/containers/seed").json()
    assert box["image"] == name
    assert server_.delete(f"{IMAGES}/agentic%2Fclaude:latest").status == 409, "it is in use"
    assert atoll(server_, "rm", "seed").returncode == 0
    assert json.loads(atoll(server_, "image", "show", name, "--json").stdout)["name"] == name
    with sdk.Client(server_.url, server_.token) as client:
        assert client.images.get(name).name == name
    removed = atoll(server_, "image", "rm", name)
    assert removed.returncode == 0, removed.stderr
    assert server_.get(f"{IMAGES}/{name}").status == 404
