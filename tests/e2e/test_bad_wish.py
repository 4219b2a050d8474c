"""What cannot be had is refused with a reason that names it, by the API and on the command line. Root only."""
import concurrent.futures
import os
import subprocess

import harness
import images
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, IMAGES = "/api/v1/sandboxes", "/api/v1/images"


@pytest.fixture
def box(boxes):
    reply = boxes.post(BOXES, {"storage": "memory"})
    assert reply.status == 201, reply
    return reply.json()["id"]


def refused(server, *args, words, code=None):
    """On the command line: a status that is not 0, nothing on stdout, one plain line about it."""
    done = subprocess.run([server.binary, "--state", str(server.state), *args], capture_output=True, timeout=60,
                          input=b"")
    text = done.stderr.decode("utf-8", "replace")
    assert done.returncode != 0 and (code is None or done.returncode == code), done
    assert done.stdout == b"" and text.startswith("atoll: "), done
    assert all(word in text for word in words), text


def test_an_image_that_is_not_there(boxes):
    reply = boxes.post(BOXES, {"image": "nowhere"})
    assert (reply.status, reply.error["field"]) == (404, "image") and "nowhere" in reply.error["message"]
    refused(boxes, "create", "--image", "nowhere", words=["no image nowhere"])
    refused(boxes, "run", "--no-workspace", "--image", "nowhere", "--", "true", words=["no image nowhere"])


def test_an_image_whose_dev_is_a_link(boxes, tmp_path):
    archive = images.tar(images.folder("bin"), images.symlink("dev", "/proc"))
    reply = boxes.request("POST", f"{IMAGES}?name=linked", body=archive, timeout=40,
                          headers={"content-type": "application/octet-stream"})
    if reply.status == 501:
        pytest.skip("no disks here")
    assert reply.status == 422 and "/dev is a symbolic link" in reply.error["message"], reply
    path = tmp_path / "linked.tar"
    path.write_bytes(archive)
    refused(boxes, "image", "import", "--name", "linked", str(path), words=["/dev is a symbolic link"])
    assert boxes.get(IMAGES).json()["items"] == []


def test_an_image_whose_workspace_is_none(boxes, tmp_path):
    def load(*entries):
        return boxes.request("POST", f"{IMAGES}?name=odd", body=images.tar(images.folder("srv"), *entries), timeout=40,
                             headers={"content-type": "application/octet-stream"})
    reply = load(images.entry("workspace", "x"))
    if reply.status == 501:
        pytest.skip("no disks here")
    assert reply.status == 422 and "/workspace is no directory" in reply.error["message"], reply
    assert boxes.get(IMAGES).json()["items"] == []
    # A link is as good as what it leads to, but for mounts.
    try:
        assert load(images.symlink("workspace", "/srv")).status == 201
        box = boxes.post(BOXES, {"storage": "memory", "image": "odd", "user": "root"}).json()["id"]
        there = f"{BOXES}/{box}/files"
        assert boxes.request("PUT", f"{there}?path=/workspace/a", body=b"x").status in (200, 201)
        assert boxes.get(f"{there}?path=/srv/a").body == b"x"
        assert boxes.delete(f"{BOXES}/{box}").status == 200
        refused(boxes, "run", "--image", "odd", "--bind", str(tmp_path), "--", "true",
                words=["/workspace: a symbolic link", "needs a directory"])
        assert boxes.delete(f"{IMAGES}/odd").status == 200
        assert load(images.symlink("workspace", "/nowhere")).status == 201
        refused(boxes, "run", "--image", "odd", "--copy", str(tmp_path), "--", "true",
                words=["into the sandbox: /workspace: No such file"])
        assert harness.listed(boxes, BOXES) == []
    finally:
        boxes.delete(f"{IMAGES}/odd")


def test_what_is_wrong_is_named(boxes, tmp_path):
    """Among several files and mounts the error says which."""
    text = tmp_path / "text.tar"
    text.write_text("no archive")
    refused(boxes, "image", "import", "--name", "text", str(text), words=[f"import {text}: "])
    if boxes.post("/api/v1/volumes", {"name": "named", "bytes": 1 << 20}).status == 501:
        pytest.skip("no disks here")
    try:
        refused(boxes, "create", "--volume", "named:/proc/x", words=["/proc/x: nothing can be mounted there"])
    finally:
        assert boxes.delete("/api/v1/volumes/named").status == 200


def test_a_workspace_that_is_not_there(boxes, tmp_path):
    none, file = tmp_path / "none", tmp_path / "file"
    file.write_text("x")
    for flag in "--copy", "--bind":
        refused(boxes, "run", flag, str(none), "--", "true", words=[str(none), "No such file"])
        refused(boxes, "run", flag, str(file), "--", "true", words=[str(file), "irectory"])


@pytest.mark.parametrize("cwd, why", [("/proc/self/root", "magic link"), ("/proc/self/cwd", "magic link"),
                                      ("/proc", "denied"), ("/none", "No such file"),
                                      ("/etc/passwd", "Not a directory")])
def test_a_working_directory_that_is_none(boxes, box, cwd, why):
    reply = boxes.post(f"{BOXES}/{box}/execs", {"argv": ["true"], "cwd": cwd})
    assert (reply.status, reply.error["field"]) == (422, "cwd"), reply
    assert cwd in reply.error["message"] and why in reply.error["message"]
    refused(boxes, "exec", "--cwd", cwd, box, "--", "true", words=[cwd, why])
    refused(boxes, "run", "--no-workspace", "--cwd", cwd, "--", "true", words=[cwd, why])


def test_arguments_of_100_kb_and_too_long_ones(boxes, box):
    done = subprocess.run([boxes.binary, "--state", str(boxes.state), "exec", box, "--", "sh", "-c", "echo ${#1}", "sh",
                           "y" * 100_000], capture_output=True, timeout=60, input=b"")
    assert done.stdout == b"100000\n", done
    reply = boxes.post(f"{BOXES}/{box}/execs", {"argv": ["true", "y" * 131_072]})
    assert (reply.status, reply.error["field"]) == (400, "argv[1]"), reply
    reply = boxes.post(f"{BOXES}/{box}/execs", {"argv": ["true", *["y" * 100_000] * 11]})
    assert reply.status == 413 and "1048576" in reply.error["message"], reply


def test_what_is_no_text(boxes, box):
    reply = boxes.request("POST", f"{BOXES}/{box}/execs", body=b'{"argv":["echo","\xff"]}',
                          headers={"content-type": "application/json"})
    assert reply.status == 400 and "UTF-8" in reply.error["message"], reply
    refused(boxes, "exec", box, "--", "echo", b"\xff", words=["argument 2", "UTF-8"], code=64)
    refused(boxes, "run", "--no-workspace", "--", "echo", b"caf\xe9", words=["argument 2", "UTF-8"], code=64)
    refused(boxes, "exec", "--env", b"A=\xff", box, "--", "true", words=["--env A", "UTF-8"], code=64)
    refused(boxes, "create", "--name", b"\xff", words=["a name has"])


@pytest.mark.parametrize("field, value, least", [("memory", 16 << 20, "16777216"), ("pids", 8, "8"),
                                                 ("disk", 1 << 20, "1048576"), ("inodes", 1024, "1024"),
                                                 ("nofile", 16, "16")])
def test_a_limit_below_the_least(boxes, field, value, least):
    reply = boxes.post(BOXES, {field: value - 1})
    assert (reply.status, reply.error["field"]) == (400, field), reply
    assert least in reply.error["message"]
    if field in ("memory", "disk"):
        assert f"from {value >> 20} MiB to 4 TiB" in reply.error["message"], reply
    refused(boxes, "create", f"--{field}", str(value - 1), words=[field, least])
    refused(boxes, "run", "--no-workspace", f"--{field}", str(value - 1), "--", "true", words=[field, least])


def test_a_field_that_is_misspelt(boxes):
    reply = boxes.post(BOXES, {"imge": "debian"})
    assert (reply.status, reply.error["field"]) == (400, "imge"), reply
    assert reply.error["message"].endswith("unknown field; did you mean image?"), reply
    assert "did you mean" not in boxes.post(BOXES, {"parnt": 1}).error["message"], "only what may be said"
    assert "percent" in boxes.post(BOXES, {"cpu_percent": 0}).error["message"]
    assert "milliseconds" in boxes.post(BOXES, {"ttl_ms": 1}).error["message"]


@pytest.mark.timeout(180)
def test_300_at_once_where_200_may_be(start_server):
    server = start_server(args=["--sandboxes-max", "200"])

    def create(number):
        wish = {"storage": "memory", "memory": 16 << 20, "disk": 1 << 20}
        return server.post(BOXES, wish, timeout=120, source=f"127.0.0.{2 + number % 50}")

    with concurrent.futures.ThreadPoolExecutor(300) as pool:
        replies = list(pool.map(create, range(300)))
    made = [r.json()["id"] for r in replies if r.status == 201]
    others = [r for r in replies if r.status != 201]
    assert (len(made), len(others)) == (200, 100), {r.status for r in others}
    assert all(r.status == 429 and "200 sandboxes" in r.error["message"] for r in others), others
    refused(server, "create", words=["200 sandboxes", "sandboxes_max"])
    assert sorted(b["id"] for b in harness.listed(server, BOXES)) == sorted(made)
    for one in made[:3] + made[-3:]:
        done = server.post(f"{BOXES}/{one}/execs?wait=20000", {"argv": ["true"]}, timeout=30).json()
        assert done["exit_code"] == 0, done
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        gone = list(pool.map(lambda one: server.delete(f"{BOXES}/{one}", timeout=120), made))
    assert {reply.status for reply in gone} == {200}
    assert list((server.state / "boxes").iterdir()) == []
    assert harness.alive(server.api_pid())
