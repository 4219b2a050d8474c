"""Directories as tar archives: made while they are sent, unpacked while they come.

An archive that comes out of a sandbox was written by whoever ran there. Unpacking it here makes
directories, regular files and symbolic links below the directory that was named, and nothing else: a name
that leads out of it ends the unpacking, nothing is written through a link, and links are made last and
only when they lead to a place inside; others are left out and listed.
"""
import contextlib
import os
import stat
import tarfile
import tempfile
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, List, Optional, Tuple

from ._errors import AtollError, UnsafeArchive

CHUNK = 262144


@dataclass
class UnpackedTree:
    """What a download made: names relative to its directory."""
    files: int = 0
    bytes: int = 0
    skipped: List[str] = field(default_factory=list)  # links that lead out, devices and the like


# ---- packing ----

def _entry(path: str, name: str) -> Optional[tarfile.TarInfo]:
    """The header of one file; None for what is no file, directory or symbolic link."""
    found = os.lstat(path)
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(found.st_mode) & 0o777
    info.mtime = int(found.st_mtime)
    if stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISREG(found.st_mode):
        info.size = found.st_size
    else:
        return None
    return info


def _contents(path: str, size: int) -> Iterator[bytes]:
    left = size
    with open(path, "rb") as file:
        while left:
            data = file.read(min(CHUNK, left))
            if not data:
                raise AtollError(f"{path} became shorter while it was sent")
            left -= len(data)
            yield data
    if size % tarfile.BLOCKSIZE:
        yield bytes(tarfile.BLOCKSIZE - size % tarfile.BLOCKSIZE)


def pack(directory: str, wanted: Optional[Callable[[str], bool]] = None) -> Iterator[bytes]:
    """Everything below a directory as a tar archive; `wanted` is asked for each relative name."""
    top = os.path.abspath(directory)
    if not os.path.isdir(top):
        raise NotADirectoryError(f"{directory} is no directory")
    for where, directories, files in os.walk(top):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(where, name)
            relative = os.path.relpath(path, top).replace(os.sep, "/")
            if wanted is not None and not wanted(relative):
                if name in directories:
                    directories.remove(name)
                continue
            info = _entry(path, relative)
            if info is None:
                continue
            yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            if info.isreg():
                yield from _contents(path, info.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


# ---- unpacking ----

def _parts(name: str) -> List[str]:
    """A member's place below the directory; UnsafeArchive when it is not below it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name or (os.sep != "/" and os.sep in name):
        raise UnsafeArchive(f"the archive names {name!r}")
    return parts


def _leads_out(parts: List[str], target: str) -> bool:
    """Whether a link may end outside. Behind a name, `..` is refused: the name may be a link itself."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    up = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    return target.startswith("/") or "\0" in target or ".." in steps[up:] or up > len(parts) - 1


class _Unpacker:
    def __init__(self, top: str) -> None:
        self.top, self.result = top, UnpackedTree()
        self.links: List[Tuple[List[str], str]] = []
        self.modes: List[Tuple[str, int]] = []  # of directories, set when all is in them

    def directory(self, parts: List[str]) -> str:
        """Makes it and those above it; none of them may be a link."""
        path = self.top
        for part in parts:
            path = os.path.join(path, part)
            try:
                os.mkdir(path)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise UnsafeArchive(f"{path} is in the way: it is no directory") from None
        return path

    def file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: List[str]) -> None:
        where = self.directory(parts[:-1])
        source: Any = archive.extractfile(member)
        handle, temporary = tempfile.mkstemp(prefix=".atoll-", dir=where)
        try:
            with open(handle, "wb") as out:
                left = member.size
                while left:
                    data = source.read(min(CHUNK, left))
                    if not data:
                        raise AtollError("the archive ended early")
                    out.write(data)
                    left -= len(data)
            os.chmod(temporary, member.mode & 0o777)
            with contextlib.suppress(OverflowError, OSError):  # any number may stand there
                os.utime(temporary, (member.mtime, member.mtime))
            os.replace(temporary, os.path.join(where, parts[-1]))
        except BaseException:
            os.unlink(temporary)
            raise
        self.result.files += 1
        self.result.bytes += member.size

    def member(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = _parts(member.name)
        if member.isdir():
            self.modes.append((self.directory(parts), member.mode & 0o777))
        elif member.isreg() and parts:
            self.file(archive, member, parts)
        elif member.issym() and parts and not _leads_out(parts, member.linkname):
            self.links.append((parts, member.linkname))
        else:
            self.result.skipped.append(member.name)

    def finish(self) -> UnpackedTree:
        for parts, target in self.links:
            path = os.path.join(self.directory(parts[:-1]), parts[-1])
            if os.path.lexists(path):
                if os.path.isdir(path) and not os.path.islink(path):
                    raise UnsafeArchive(f"{path} is in the way of a link")
                os.unlink(path)
            os.symlink(target, path)
            self.result.files += 1
        for path, mode in reversed(self.modes):
            os.chmod(path, mode | 0o700)
        return self.result


def unpack(stream: Any, directory: str) -> UnpackedTree:
    """A tar archive, read from stream.read(), into a directory, which is made if it is not there."""
    top = os.path.abspath(directory)
    os.makedirs(top, exist_ok=True)
    unpacker = _Unpacker(top)
    try:
        with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                unpacker.member(archive, member)
    except tarfile.TarError as e:
        raise AtollError(f"the archive is broken or was cut off: {e}") from e
    return unpacker.finish()
