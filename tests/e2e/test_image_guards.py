"""Each guard of the unpacker is needed: an archive that it stops does its harm without it.

build/unguarded/atoll is the same program, except that guards (base/guard.h) can be left out. Every attack is made with
all guards, where it must fail, and without those that it is about, where it must succeed; of several that stand behind
one another each is also left out alone, where the others must hold.
"""
import gzip
import os
import re
import subprocess
import tarfile

import harness
import images
import pytest
from images import entry, folder, hardlink, symlink, tar

ATTACKS = {}
OPAQUE = "user.overlay.opaque"


def attack(guards):
    def keep(fn):
        ATTACKS[fn.__name__] = guards, fn
        return fn

    return keep


def unpacked(unpacker, *entries, pack=bytes):
    """The tree, or None when the archive was refused."""
    tree, answer = unpacker.tree(pack(tar(*entries, form=tarfile.GNU_FORMAT)))
    return None if "error" in answer else tree


@attack("dots,layer_links")
def a_name_with_dots(unpacker, base):
    """A file beside the directory that is unpacked into."""
    unpacked(unpacker, entry("../evil", "x"))
    return (base / "evil").exists()


@attack("dots,layer_links")
def a_hard_link_with_dots(unpacker, base):
    """A file outside, that the image could then be made to change."""
    unpacked(unpacker, hardlink("a", "../secret"))
    return (base / "secret").stat().st_nlink == 2


@attack("layer_links")
def a_link_then_a_file_below(unpacker, base):
    unpacked(unpacker, symlink("a", str(base)), entry("a/evil", "x"))
    return (base / "evil").exists()


@attack("layer_links")
def a_link_then_a_directory_below(unpacker, base):
    unpacked(unpacker, symlink("a", "b"), symlink("b", str(base)), folder("a/evil"))
    return (base / "evil").exists()


@attack("layer_links")
def a_hard_link_through_a_link(unpacker, base):
    unpacked(unpacker, symlink("l", str(base)), hardlink("a", "l/secret"))
    return (base / "secret").stat().st_nlink == 2


@attack("exclusive")
def a_link_then_a_file_in_its_place(unpacker, base):
    unpacked(unpacker, symlink("a", str(base / "secret")), entry("a", "evil"))
    return (base / "secret").read_text() != "untouched"


@attack("whiteout")
def a_whiteout_of_the_directory_above(unpacker, base):
    """It marks the directory above the one that is unpacked into."""
    unpacked(unpacker, entry(".wh...", ""))
    return OPAQUE in os.listxattr(base)


@attack("mount_point")
def a_link_where_a_mount_belongs(unpacker, base):
    return unpacked(unpacker, symlink("dev", "/proc")) is not None


@attack("setuid")
def a_program_that_runs_as_its_owner(unpacker, base):
    return (unpacked(unpacker, entry("su", "x", mode=0o4755)) / "su").stat().st_mode & 0o4000 != 0


@attack("owner")
def an_owner_that_a_sandbox_has_not(unpacker, base):
    tree = unpacked(unpacker, entry("a", "x", uid=70000))
    return tree is not None and (tree / "a").stat().st_uid == 70000


@attack("attributes")
def a_mark_of_overlayfs_as_an_attribute(unpacker, base):
    """It would hide what lower layers have."""
    info, data = folder("d")
    info.pax_headers = {"SCHILY.xattr." + OPAQUE: "y"}
    return OPAQUE in os.listxattr(unpacker.tree(tar((info, data)))[0] / "d")


@attack("depth")
def more_directories_than_a_name_may_have(unpacker, base):
    return unpacked(unpacker, entry("d/" * 256 + "x", "x")) is not None


@attack("bytes_counted,bytes")
def more_bytes_than_a_layer_may_have(unpacker, base):
    """Nearly all of them a hole."""
    with open(base / "hole", "wb") as out:
        out.truncate(65 << 30)
    data = subprocess.run(["tar", "-c", "-S", "-C", base, "hole"], stdout=subprocess.PIPE, check=True).stdout
    return "error" not in unpacker.tree(data)[1]


@attack("ratio")
def a_bomb(unpacker, base):
    return unpacked(unpacker, entry("zeros", bytes(40 << 20)), pack=gzip.compress) is not None


@attack("once")
def a_bomb_in_a_bomb(unpacker, base):
    return unpacked(unpacker, entry("a", "x"), pack=lambda data: gzip.compress(gzip.compress(data))) is not None


@attack("digest,diff_id")
def a_layer_that_is_another(unpacker, base):
    data = images.oci([tar(entry("a", "1" * 600))], "plain").replace(b"1" * 600, b"2" * 600)
    return "error" not in unpacker.inspect(data)[1]


def succeeds(tmp_path, name, without):
    base = tmp_path / (without or "all")
    base.mkdir()
    (base / "secret").write_text("untouched")
    return ATTACKS[name][1](images.Unpacker(base, without), base)


@pytest.mark.skipif(os.geteuid() != 0, reason="owners need root")
@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_an_attack_succeeds_only_without_its_guards(tmp_path, name):
    guards = ATTACKS[name][0]
    assert succeeds(tmp_path, name, "") is False, "all guards stand"
    for alone in guards.split(",") if "," in guards else ():
        assert succeeds(tmp_path, name, alone) is False, "the others hold"
    assert succeeds(tmp_path, name, guards) is True, "without these"


def test_every_guard_has_its_attack():
    with_guards = {path.stem: set(re.findall(r"\bguard\((\w+)\)", path.read_text()))
                   for path in (harness.ROOT / "src/image").glob("*.c") if "guard(" in path.read_text()}
    assert set().union(*with_guards.values()) == {name for guards, _ in ATTACKS.values() for name in guards.split(",")}
    built = set(re.search(r"^UNGUARDED_IMAGE := .*,(.*)\)$", (harness.ROOT / "Makefile").read_text(), re.M)[1].split())
    assert built == set(with_guards), "each file with a guard is in the program of the tests"
