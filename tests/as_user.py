#!/usr/bin/env python3
"""as_user.py UID RANGE PROGRAM [ARG]… - run a program as an ordinary user that exists nowhere else.

Needs root. In a mount namespace of its own, /etc/passwd gets one more line, and /etc/subuid and
/etc/subgid give that user RANGE ("FIRST:COUNT", or "none"); then root is given up for good. Nothing of
the machine changes. RANGE may end in ",without-uidmap": then newuidmap and newgidmap cannot be run.
"""
import ctypes
import os
import sys
import tempfile

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
PROGRAMS = "/mnt"  # where they are for that user, whoever may enter the directory they were built in
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), what)


def bind(source, target):
    check(libc.mount(source.encode(), target.encode(), None, MS_BIND, None), target)


def cover(path, text):
    """Another text at this path, for us alone."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        os.chmod(file.name, 0o644)
        if not os.path.exists(path):
            open(path, "a").close()
        bind(file.name, path)


def main():
    uid, wish, argv = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    name = f"user{uid}"
    check(libc.unshare(CLONE_NEWNS), "unshare")
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    with open("/etc/passwd") as file:
        cover("/etc/passwd", file.read() + f"{name}:x:{uid}:{uid}::/tmp:/bin/sh\n")
    for path in ("/etc/subuid", "/etc/subgid"):
        cover(path, "" if wish[0] == "none" else f"{name}:{wish[0]}\n")
    if "without-uidmap" in wish:
        for path in ("/usr/bin/newuidmap", "/usr/bin/newgidmap"):
            bind("/dev/null", path)
    bind(os.path.dirname(argv[0]), PROGRAMS)
    argv[0] = os.path.join(PROGRAMS, os.path.basename(argv[0]))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.environ["HOME"] = "/tmp"
    os.execv(argv[0], argv)


main()
