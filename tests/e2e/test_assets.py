"""The dashboard's files as a browser asks for them: compressed, cacheable, partly, conditionally."""
import gzip
import hashlib
import re
import shutil
import subprocess

import harness
import pytest


@pytest.fixture(scope="session")
def script(server):
    """Path of the page's main script, whose name holds a hash."""
    page = server.get("/", token=None).body.decode()
    found = re.search(r'src="(/assets/main-[A-Z0-9]{8}\.js)"', page)
    assert found, "this build has no dashboard: " + page[:200]
    return found.group(1)


def test_the_page_needs_no_token_but_holds_no_data(server):
    reply = server.get("/", token=None)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "no-cache" in reply.headers["cache-control"] or "no-store" in reply.headers["cache-control"]
    assert "content-encoding" not in reply.headers


def test_hashed_names_may_be_kept_for_ever(server, script):
    reply = server.get(script, token=None)
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/javascript")
    assert "immutable" in reply.headers["cache-control"] and "max-age=31536000" in reply.headers["cache-control"]


@pytest.mark.parametrize("accept,coding", [
    (None, None), ("gzip", "gzip"), ("br", "br"), ("gzip, deflate, br", "br"), ("identity", None), ("br;q=0, gzip",
                                                                                                    "gzip"),
    ("deflate", None), ("*", "br"),
])
def test_the_coding_the_client_takes(server, script, accept, coding):
    headers = {"Accept-Encoding": accept} if accept else {}
    plain = server.get(script, token=None).body
    reply = server.get(script, token=None, headers=headers)
    assert reply.status == 200
    assert reply.headers.get("content-encoding") == coding
    assert "accept-encoding" in reply.headers.get("vary", "").lower()
    if coding == "gzip":
        assert gzip.decompress(reply.body) == plain
    elif coding == "br":
        done = subprocess.run(["node", "-e", "process.stdout.write(require('zlib').brotliDecompressSync("
                               "require('fs').readFileSync(0)))"], input=reply.body, capture_output=True)
        assert done.stdout == plain, done.stderr
    else:
        assert reply.body == plain


def test_etags_spare_the_second_download(server, script):
    for accept in ("identity", "gzip", "br"):
        first = server.get(script, token=None, headers={"Accept-Encoding": accept})
        tag = first.headers["etag"]
        assert re.fullmatch(r'"[^"]+"', tag)
        again = server.get(script, token=None, headers={"Accept-Encoding": accept, "If-None-Match": tag})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == tag
        other = server.get(script, token=None, headers={"Accept-Encoding": accept, "If-None-Match": '"other"'})
        assert other.status == 200


def test_codings_have_different_etags(server, script):
    tags = {server.get(script, token=None, headers={"Accept-Encoding": a}).headers["etag"] for a in ("identity",
                                                                                                     "gzip", "br")}
    assert len(tags) == 3


def test_head_says_what_get_would(server, script):
    whole = server.get(script, token=None)
    reply = server.request("HEAD", script, token=None)
    assert reply.status == 200 and reply.body == b""
    assert reply.headers["content-length"] == str(len(whole.body))
    assert reply.headers["etag"] == whole.headers["etag"]


@pytest.mark.parametrize("want,first,last", [("bytes=0-9", 0, 9), ("bytes=10-", 10, None), ("bytes=-5", -5, None)])
def test_ranges(server, script, want, first, last):
    plain = server.get(script, token=None).body
    reply = server.get(script, token=None, headers={"Range": want})
    expected = plain[first:] if last is None else plain[first:last + 1]
    assert (reply.status, reply.body) == (206, expected)
    start = len(plain) + first if first < 0 else first
    assert reply.headers["content-range"] == f"bytes {start}-{start + len(expected) - 1}/{len(plain)}"


def test_a_range_beyond_the_end(server, script):
    plain = server.get(script, token=None).body
    reply = server.get(script, token=None, headers={"Range": f"bytes={len(plain)}-"})
    assert reply.status == 416 and reply.headers["content-range"] == f"bytes */{len(plain)}"


def test_the_same_bytes_every_time(server, script):
    digests = {hashlib.sha256(server.get(script, token=None).body).hexdigest() for _ in range(3)}
    assert len(digests) == 1


def test_what_is_not_there(server):
    assert server.get("/assets/main-00000000.js", token=None).status == 404
    assert server.post("/", {"x": 1}, token=None).status == 405


def test_the_first_page_is_small(server, script):
    """With all that it imports at once; terminals and charts come when somebody looks at them."""
    page = server.get("/", token=None).body.decode()
    waiting, total, seen = ["/", *re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css))"', page)], 0, set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        total += len(server.get(path, token=None, headers={"Accept-Encoding": "gzip"}).body)
        if path.endswith(".js"):
            text = server.get(path, token=None).body.decode()
            # import{…}from"./x.js" and import"./x.js", and not import("./x.js")
            waiting += ["/assets/" + name for name in re.findall(r'(?:from|import)"\./([\w-]+\.js)"', text)]
    assert len(seen) > 3 and total <= 150 * 1000, (total, seen)
    assert not [path for path in seen if "terminals" in path or "chart" in path], seen
    print(f"{total} bytes compressed before anything is shown")


def test_a_release_has_the_dashboard_without_node(tmp_path):
    """`make dist` holds it ready; a machine without npm embeds that."""
    done = subprocess.run(["make", "-s", "-C", harness.ROOT, "dist"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (tarball,) = (harness.ROOT / "build").glob("atoll-*.tar.gz")
    subprocess.run(["tar", "-xzf", tarball, "-C", tmp_path], check=True)
    (tree,) = tmp_path.iterdir()
    tools = tmp_path / "tools"  # all that it needs, and no npm
    tools.mkdir()
    for name in ("sh", "cp", "rm", "mkdir", "dirname", "gzip", "tail"):
        (tools / name).symlink_to(shutil.which(name))
    done = subprocess.run([tree / "tools" / "build-web", "build/web"], cwd=tree, env={"PATH": str(tools)},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    built, here = ({path.name: path.read_bytes() for path in (root / "build" / "web").iterdir() if path.name != ".made"}
                   for root in (tree, harness.ROOT))
    assert built == here and "FALLBACK" not in built
    # Without either, a page says so.
    shutil.rmtree(tree / "web" / "prebuilt")
    subprocess.run([tree / "tools" / "build-web", "build/web"], cwd=tree, env={"PATH": str(tools)}, check=True,
                   capture_output=True)
    assert (tree / "build" / "web" / "FALLBACK").exists()
