"""The files of a sandbox. Paths are relative to /workspace unless absolute; str, bytes or a PurePosixPath.

Everything is done inside, with the rights of the sandbox's user, or of `user` ("agent", "root").
"""
import base64
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Callable, Iterator, Literal, Optional, Tuple, Union

from . import _tree
from ._errors import ConnectionFailed
from ._models import FileInfo, TreeWriteResult
from ._sse import events
from ._transport import Content, Options, Stream

if TYPE_CHECKING:
    from ._sandbox import Sandbox

RemotePath = Union[str, bytes, PurePosixPath]
LocalPath = Union[str, "os.PathLike[str]"]
PAGE = 1000
TREE_SECONDS = 600.0  # an archive may be unpacked slowly


@dataclass(frozen=True)
class Change:
    """One event of a watch: what is `created`, `changed`, `removed`…; `lost` when some were missed."""
    what: str
    path: str
    directory: bool
    raw: Any


def _lines(answer: Stream) -> Iterator[bytes]:
    rest = b""
    for data in answer:
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


class Watch:
    """Changes, as they happen: an iterator, to be closed or used in a `with` statement."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._events = stream, events(stream)
        for event in self._events:
            if event.event == "ready":
                return
        raise ConnectionFailed("the watch ended before it began")

    def __iter__(self) -> Iterator[Change]:
        for event in self._events:
            raw = json.loads(event.data) if event.data else {}
            if event.event == "lost":
                yield Change("lost", "", False, raw)
            elif event.event == "change":
                yield Change(raw.get("what", ""), raw.get("path", ""), bool(raw.get("directory")), raw)

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(path: RemotePath) -> Any:
    return path if isinstance(path, (str, bytes)) else str(path)


class Files:
    def __init__(self, sandbox: "Sandbox") -> None:
        self._api, self._id = sandbox.client.api, sandbox.id

    # ---- one file ----

    def stream(self, path: RemotePath, offset: int = 0, length: Optional[int] = None,
               user: Optional[str] = None) -> Stream:
        """Its bytes as they come: read(size), or iterate; close it, or use `with`."""
        headers = {}
        if length == 0:
            raise ValueError("a range of no bytes cannot be asked for")
        if offset or length is not None:
            headers["Range"] = f"bytes={offset}-{'' if length is None else offset + length - 1}"
        return self._api.file_read(self._id, path=_text(path), user=user, options=Options(headers=headers))

    def read(self, path: RemotePath, offset: int = 0, length: Optional[int] = None,
             user: Optional[str] = None) -> bytes:
        """All of it, or a range."""
        with self.stream(path, offset, length, user) as answer:
            return answer.read()

    def read_text(self, path: RemotePath, encoding: str = "utf-8", user: Optional[str] = None) -> str:
        return self.read(path, user=user).decode(encoding)

    def write(self, path: RemotePath, data: Union[str, Content], *, mode: Optional[str] = None, sync: bool = False,
              user: Optional[str] = None) -> FileInfo:
        """The file becomes this at once, when all of it has arrived; data is bytes, text (as UTF-8), a file that
        is open for reading bytes, or an iterable of bytes. mode is octal: "755"."""
        content = data.encode() if isinstance(data, str) else data
        return self._api.file_write(self._id, content, path=_text(path), mode=mode, sync=sync or None, user=user)

    def append(self, path: RemotePath, data: Union[str, Content], *, sync: bool = False,
               user: Optional[str] = None) -> FileInfo:
        content = data.encode() if isinstance(data, str) else data
        return self._api.file_append(self._id, content, path=_text(path), sync=sync or None, user=user)

    def download(self, path: RemotePath, local: LocalPath, user: Optional[str] = None) -> int:
        """To a local file, which is replaced when all has arrived. Gives its size."""
        target = os.path.abspath(os.fspath(local))
        handle, temporary = tempfile.mkstemp(prefix=".atoll-", dir=os.path.dirname(target))
        try:
            with open(handle, "wb") as out, self.stream(path, user=user) as answer:
                size = sum(out.write(data) for data in answer)
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        return size

    def upload(self, local: LocalPath, path: RemotePath, *, mode: Optional[str] = None,
               user: Optional[str] = None) -> FileInfo:
        with open(local, "rb") as file:
            return self.write(path, file, mode=mode, user=user)

    # ---- about files ----

    def stat(self, path: RemotePath, follow: bool = False, user: Optional[str] = None) -> FileInfo:
        return self._api.file_stat(self._id, path=_text(path), follow=follow or None, user=user)

    def exists(self, path: RemotePath, user: Optional[str] = None) -> bool:
        from ._errors import NotFound
        try:
            self.stat(path, user=user)
        except NotFound:
            return False
        return True

    def list(self, path: RemotePath = ".", user: Optional[str] = None) -> Iterator[FileInfo]:
        """What is in a directory, sorted by name, however much it is."""
        after: Any = None
        while True:
            page = self._api.file_list(self._id, path=_text(path), after=after, limit=PAGE, user=user)
            yield from page.items
            if not page.raw.get("more") or not page.items:
                return
            last = page.items[-1]
            after = base64.b64decode(last.name_base64) if last.name_base64 else last.name

    def mkdir(self, path: RemotePath, *, parents: bool = False, mode: Optional[str] = None,
              user: Optional[str] = None) -> None:
        self._api.file_mkdir(self._id, path=_text(path), parents=parents or None, mode=mode, user=user)

    def move(self, path: RemotePath, to: RemotePath, *, replace: bool = False, user: Optional[str] = None) -> None:
        self._api.file_move(self._id, path=_text(path), to=_text(to), replace=replace or None, user=user)

    def remove(self, path: RemotePath, *, recursive: bool = False, user: Optional[str] = None) -> None:
        self._api.file_remove(self._id, path=_text(path), recursive=recursive or None, user=user)

    def watch(self, path: RemotePath = ".", *, recursive: bool = False, timeout: Optional[float] = 3600.0,
              user: Optional[str] = None) -> Watch:
        """Changes below a directory from now on. RequestTimeout after so many seconds without any."""
        options = Options(timeout=timeout, headers={"Accept": "text/event-stream"})
        return Watch(self._api.file_watch(self._id, path=_text(path), recursive=recursive or None, user=user,
                                          options=options))

    # ---- trees ----

    def upload_tree(self, local: LocalPath, path: RemotePath = ".", *, user: Optional[str] = None,
                    wanted: Optional[Callable[[str], bool]] = None) -> TreeWriteResult:
        """Everything below a local directory into one of the sandbox, which is made if it is not there. `wanted`
        is asked for each relative name."""
        self.mkdir(path, parents=True, user=user)
        return self._api.tree_write(self._id, _tree.pack(os.fspath(local), wanted), path=_text(path), user=user,
                                    options=Options(timeout=TREE_SECONDS))

    def download_tree(self, path: RemotePath, local: LocalPath, user: Optional[str] = None) -> _tree.UnpackedTree:
        """Everything below a directory of the sandbox into a local one. Links that lead out of it and files that
        are neither file, directory nor link are left out, and listed in the result."""
        with self.archive(path, user) as answer:
            return _tree.unpack(answer, os.fspath(local))

    def archive(self, path: RemotePath = ".", user: Optional[str] = None) -> Stream:
        """A directory as the bytes of a tar archive."""
        return self._api.tree_read(self._id, path=_text(path), user=user, options=Options(timeout=TREE_SECONDS))

    def manifest(self, path: RemotePath = ".", user: Optional[str] = None) -> Iterator[FileInfo]:
        """Everything below a directory, sorted, with the digests of regular files."""
        with self._api.tree_manifest(self._id, path=_text(path), user=user,
                                     options=Options(timeout=TREE_SECONDS)) as answer:
            for line in _lines(answer):
                yield FileInfo.from_json(json.loads(line))

    def changes(self, user: Optional[str] = None) -> Iterator[Tuple[str, FileInfo]]:
        """What was changed in the view of a directory that the sandbox was made with (`binds` with `view`, as
        `atoll run` does): ("before" or "after", file), both of a changed file. Conflict when it has no view."""
        with self._api.sandbox_changes(self._id, user=user, options=Options(timeout=TREE_SECONDS)) as answer:
            for line in _lines(answer):
                entry = json.loads(line)
                yield entry["side"], FileInfo.from_json(entry["file"])
