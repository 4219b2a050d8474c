"""The unpacker by itself, on plain directories: honest archives come out as tar(1) and Python's tarfile
bring them out, hostile and broken ones get a clear answer and reach nothing outside."""
import gzip
import os
import pathlib
import random
import stat
import subprocess
import tarfile

import harness
import images
import pytest
from images import entry, folder, hardlink, symlink, tar

ROOT = os.geteuid() == 0


@pytest.fixture
def unpacker(tmp_path):
    return images.Unpacker(tmp_path)


def picture(tree):
    """Everything about a tree that an archive says: kind, mode, owner, time, content, links, attributes."""
    found, links = {}, {}
    base = os.fsencode(tree)
    for path, folders, files in os.walk(base):
        for name in folders + files + [b"."]:
            full = os.path.join(path, name)
            try:
                st = os.lstat(full)
            except FileNotFoundError:
                continue  # overlayfs lists whiteouts of directories that only one layer has
            kind = stat.S_IFMT(st.st_mode)
            item = [kind, st.st_mode & 0o7777 if kind != stat.S_IFLNK else 0, int(st.st_mtime)]
            if ROOT:
                item += [st.st_uid, st.st_gid]
            if kind == stat.S_IFREG:
                item.append(pathlib.Path(os.fsdecode(full)).read_bytes())
                item.append(links.setdefault(st.st_ino, os.path.relpath(full, base)) if st.st_nlink > 1 else None)
            elif kind == stat.S_IFLNK:
                item.append(os.readlink(full))
            found[os.path.relpath(full, base)] = item
    return found


# ---- honest archives --------------------------------------------------------------------------


def random_tree(random_, size):
    """Entries that are all right: parents first, unique names, links to what is there."""
    folders, files, entries = [""], [], []
    for i in range(size):
        parent = random_.choice(folders)
        stem = random_.choice(["a", "é", "b\nc", "\udcff\udc80", "x" * random_.randrange(1, 120), " ", "-r", "…"])
        name = stem + str(i)
        path = f"{parent}/{name}".lstrip("/")
        common = {"mtime": random_.randrange(1, 2**31), "uid": random_.randrange(65536),
                  "gid": random_.randrange(65536)}
        kind = random_.randrange(10)
        if kind < 3:
            entries.append(folder(path, mode=random_.choice([0o755, 0o700, 0o1777, 0o2755]), **common))
            folders.append(path)
        elif kind < 7 or not files:
            data = random_.randbytes(random_.choice([0, 1, 511, 512, 513, 70000]))
            entries.append(entry(path, data, mode=random_.choice([0o644, 0o600, 0o755, 0o444]), **common))
            files.append(path)
        elif kind == 7:
            target = random_.choice(["../x", "/etc/passwd", name])
            entries.append(entry(path, type=tarfile.SYMTYPE, linkname=target, **common))
        elif kind == 8:
            entries.append(hardlink(path, random_.choice(files)))
        else:
            entries.append(entry(path, type=tarfile.FIFOTYPE, mode=0o640, **common))
    return entries


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
def test_honest_archives_come_out_as_from_tar(unpacker, tmp_path, seed, form):
    random_ = random.Random(seed)
    data = tar(*random_tree(random_, 120), form=form)
    ours, answer = unpacker.tree(images.PACK[random_.choice(list(images.PACK))](data))
    assert "error" not in answer, answer
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    subprocess.run(["tar", "-x", "-p", "--delay-directory-restore", "-C", theirs], input=data, check=True,
                   capture_output=True)
    ours_picture, their_picture = picture(ours), picture(theirs)
    ours_picture.pop(b"."), their_picture.pop(b".")
    if not ROOT:  # as its user, the unpacker never locks itself out
        for item in ours_picture.values():
            item[1] |= 0o700 if item[0] == stat.S_IFDIR else 0
    assert ours_picture == their_picture


@pytest.mark.parametrize("pack", images.PACK)
def test_every_compression(unpacker, pack):
    layer = tar(folder("usr"), entry("usr/x", "hello"))
    place, answer = unpacker.inspect(images.PACK[pack](layer))
    assert answer["format"] == "tar" and answer["layers"][0]["diff_id"] == images.sha256(layer) == answer["digest"]
    tree, _ = unpacker.layer(place, 0)
    assert (tree / "usr/x").read_text() == "hello"


def test_sparse_files_keep_their_holes(unpacker, tmp_path):
    source = tmp_path / "sparse"
    with open(source, "wb") as out:
        out.seek(8 << 20)
        out.write(b"end")
        out.truncate(9 << 20)
    for form in ("gnu", "posix"):
        data = subprocess.run(["tar", "-c", "-S", f"--format={form}", "-C", tmp_path, "sparse"],
                              stdout=subprocess.PIPE, check=True).stdout
        tree, answer = unpacker.tree(data)
        assert answer["bytes"] == 9 << 20
        assert (tree / "sparse").read_bytes() == source.read_bytes()
        assert (tree / "sparse").stat().st_blocks < 1000


@pytest.mark.parametrize("pack", ["plain", "gzip", "zstd"])
def test_oci_layouts(unpacker, pack):
    layers = [tar(folder("etc"), entry("etc/a", "1"), entry("etc/b", "2")),
              tar(entry("etc/.wh.a", ""), entry("etc/c", "3"))]
    data = images.oci(layers, pack, name="two", Env=["A=1"], User="7", WorkingDir="/etc", Cmd=["sh"], Labels={"k": "v"})
    place, answer = unpacker.inspect(data)
    assert answer["format"] == "oci" and answer["name"] == "two" and answer["architecture"] == "amd64"
    assert answer["config"] == {"env": ["A=1"], "user": "7", "workdir": "/etc", "entrypoint": [], "cmd": ["sh"],
                                "labels": {"k": "v"}}
    assert [layer["diff_id"] for layer in answer["layers"]] == [images.sha256(layer) for layer in layers]
    lower, _ = unpacker.layer(place, 0)
    upper, _ = unpacker.layer(place, 1)
    assert (lower / "etc/a").read_text() == "1"
    gone = os.lstat(upper / "etc/a")
    assert stat.S_ISCHR(gone.st_mode) and gone.st_rdev == 0
    # The archive itself may be compressed, too.
    assert unpacker.inspect(gzip.compress(data))[1]["digest"] == answer["digest"]


def test_docker_archives(unpacker):
    layers = [tar(entry("a", "1")), tar(entry("b", "2"))]
    place, answer = unpacker.inspect(images.docker(layers, tag="app:3", Entrypoint=["/a"]))
    assert answer["format"] == "docker" and answer["name"] == "app:3" and answer["config"]["entrypoint"] == ["/a"]
    assert (unpacker.layer(place, 1)[0] / "b").read_text() == "2"


def random_layer(random_, size):
    """Entries that replace, hide and add to whatever is below; every parent is told of."""
    entries, kinds = [], {}
    for _ in range(size):
        parts = [random_.choice("abc") for _ in range(random_.randrange(1, 4))]
        parents = ["/".join(parts[:n]) for n in range(1, len(parts))]
        path = "/".join(parts)
        if path in kinds or any(kinds.get(p, "dir") != "dir" for p in parents):
            continue
        for parent in parents:
            if parent not in kinds:
                kinds[parent] = "dir"
                entries.append(folder(parent, mtime=len(entries) + 1))
        kinds[path] = random_.choice(["dir", "file", "link", "gone", "opaque"])
        folder_of = "/".join(parts[:-1] + [""])
        if kinds[path] == "file":
            entries.append(entry(path, random_.randbytes(4), mtime=len(entries) + 1))
        elif kinds[path] == "link":
            entries.append(symlink(path, random_.choice(["a", "../b", "/c"])))
        elif kinds[path] == "gone":
            entries.append(entry(f"{folder_of}.wh.{parts[-1]}", ""))
        else:
            entries.append(folder(path, mtime=len(entries) + 1))
            if kinds[path] == "opaque":
                entries.append(entry(f"{path}/.wh..wh..opq", ""))
                kinds[path] = "dir"
    return tar(*entries)


@pytest.mark.skipif(not ROOT, reason="needs root to mount")
@pytest.mark.parametrize("seed", range(8))
def test_layers_in_one_directory_look_as_overlayfs_shows_them(unpacker, tmp_path, seed):
    random_ = random.Random(seed)
    layers = [random_layer(random_, 20) for _ in range(4)]
    place, answer = unpacker.inspect(images.oci(layers, "plain"))
    assert "error" not in answer, answer
    trees = [unpacker.layer(place, k)[0] for k in range(4)]
    flat, answer = unpacker.layer(place, 0, 1, 2, 3)
    assert "error" not in answer, answer
    shown = tmp_path / "shown"
    shown.mkdir()
    subprocess.run(["mount", "-t", "overlay", "-o", "userxattr,lowerdir=" + ":".join(map(str, reversed(trees))),
                    "overlay", shown], check=True)
    try:
        def contents(tree):
            return {path: [item[0], item[1]] + item[3:] for path, item in picture(tree).items() if path != b"."}

        assert contents(flat) == contents(shown)
    finally:
        subprocess.run(["umount", shown], check=True)


@pytest.mark.timeout(240)
def test_many_entries(unpacker):
    """200,000 of them, in one directory: nothing that grows with their square."""
    out = tar(*[entry(f"d/{i}", b"") for i in range(200_000)], form=tarfile.USTAR_FORMAT)
    tree, answer = unpacker.tree(gzip.compress(out, 1))
    assert answer["entries"] == 200_000
    assert sum(1 for _ in os.scandir(tree / "d")) == 200_000


# ---- hostile ones -----------------------------------------------------------------------------

EVIL = {
    "slip": [entry("../evil", "x")],
    "slip in the middle": [entry("a/../../evil", "x")],
    "slip, absolute": [entry("/../evil", "x")],
    "link, then write": [symlink("a", ".."), entry("a/evil", "x")],
    "absolute link, then write": [symlink("a", "{base}"), entry("a/evil", "x")],
    "link, then directory below": [symlink("a", "{base}"), folder("a/evil")],
    "two links, then write": [symlink("a", "b"), symlink("b", "{base}"), entry("a/evil", "x")],
    "link, then whiteout": [symlink("a", "{base}"), entry("a/.wh.secret", "")],
    "hard link out": [hardlink("a", "../secret")],
    "absolute hard link": [hardlink("a", "{base}/secret")],
    "hard link through a link": [symlink("l", "{base}"), hardlink("a", "l/secret")],
    "hard link, then write": [symlink("l", "{base}/secret"), hardlink("a", "l"), entry("a/evil", "x")],
    "whiteout of the parent": [entry("a/.wh...", "")],
    "/dev is a link": [symlink("dev", "/proc")],
    "/etc is a link": [symlink("etc", "/usr/etc")],
    "a file as a directory": [entry("a", "x"), entry("a/b", "x")],
    "a huge owner": [entry("a", "x", uid=70000)],
    "a negative owner": [entry("a", "x", uid=-2)],
}


@pytest.mark.parametrize("name", EVIL)
def test_hostile_archives_reach_nothing(unpacker, tmp_path, name):
    (tmp_path / "secret").write_text("untouched")
    before = (tmp_path / "secret").stat()
    entries = []
    for info, data in EVIL[name]:
        info.linkname = info.linkname.replace("{base}", str(tmp_path))
        entries.append((info, data))
    code, message = unpacker.refused(tar(*entries, form=tarfile.GNU_FORMAT))
    assert code in ("invalid", "unprocessable") and message
    after = (tmp_path / "secret").stat()
    assert (tmp_path / "secret").read_text() == "untouched" and after.st_nlink == before.st_nlink
    assert not (tmp_path / "evil").exists()


def test_absolute_names_count_from_the_root(unpacker):
    tree, answer = unpacker.tree(tar(entry("/usr/x", "x")))
    assert "error" not in answer and (tree / "usr/x").read_text() == "x"


def test_devices_and_setuid_are_counted(unpacker):
    tree, answer = unpacker.tree(tar(entry("sda", type=tarfile.BLKTYPE, devmajor=8),
                                     entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
                                     entry("su", "x", mode=0o4755)))
    assert answer["devices"] == 2 and answer["setuid"] == 1
    assert sorted(p.name for p in tree.iterdir()) == ["su"] and (tree / "su").stat().st_mode & 0o7777 == 0o755


def test_deep_trees(unpacker):
    tree, answer = unpacker.tree(tar(entry("d/" * 254 + "x", "deep")))
    assert answer["entries"] == 1 and (tree / ("d/" * 254) / "x").read_text() == "deep"
    assert "deep" in unpacker.refused(tar(entry("d/" * 255 + "x", "too deep")))[1]


def test_bombs(unpacker):
    zeros = tar(entry("zeros", bytes(40 << 20)))
    for pack in ("gzip", "xz", "zstd"):
        code, message = unpacker.refused(images.PACK[pack](zeros))
        assert code == "too_large" and "more than 200 bytes" in message
    small = tar(entry("zeros", bytes(8 << 20)))
    assert unpacker.tree(gzip.compress(small))[1]["bytes"] == 8 << 20


def test_broken_archives(unpacker):
    good = tar(entry("a", "x" * 2000))
    for data in (b"", b"hello", bytes(1024), good[:1500], gzip.compress(good)[:-12], b"PK\x03\x04" + bytes(100),
                 gzip.compress(gzip.compress(good))):
        code, message = unpacker.refused(data)
        assert code == "invalid" and message


def test_a_digest_that_lies(unpacker):
    layers = [tar(entry("a", "1" * 600))]
    data = images.oci(layers, "plain")
    assert "error" not in unpacker.inspect(data)[1]
    error = unpacker.inspect(data.replace(b"1" * 600, b"2" * 600))[1]["error"]
    assert error == {"code": "invalid", "message": "layer 0: it is not what its digest says"}


def test_an_image_for_another_machine(unpacker):
    error = unpacker.inspect(images.oci([tar(entry("a", "1"))], arch="s390x"))[1]["error"]
    assert error["code"] == "unprocessable" and "no image for amd64 in the archive; there is s390x" in error["message"]
    error = unpacker.inspect(images.docker([tar(entry("a", "1"))], arch="s390x"))[1]["error"]
    assert "the image is for linux/s390x; this machine is amd64" in error["message"]


def test_the_helper_is_hidden_but_polite():
    done = subprocess.run([harness.BIN, "helper"], capture_output=True, text=True)
    assert done.returncode == 64 and "server's own use" in done.stderr
    assert "helper" not in subprocess.run([harness.BIN, "help"], capture_output=True, text=True).stdout
