"""Terminals: commands that draw on a screen, watched and typed into over a WebSocket.

A terminal runs whether or not anybody is attached, and every byte that it prints has a position. An attachment
whose connection breaks comes back by itself and goes on at the position it had; what the server no longer keeps
is told as a gap, followed by a picture of the screen.
"""
import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, Literal, Optional, Union

from ._errors import ConnectionFailed, RequestTimeout, Unavailable
from ._models import TerminalInfo
from ._process import Patience
from ._transport import Options, Stream
from ._websocket import Closed, WebSocket

if TYPE_CHECKING:
    from ._sandbox import Sandbox

INPUT_MAX = 65536
ENDED, STOPPING = 1000, 1001

Role = Literal["observer", "controller"]


@dataclass(frozen=True)
class TerminalOutput:
    """What was printed; position is the place behind it."""
    data: bytes
    position: int


@dataclass(frozen=True)
class TerminalEvent:
    """Everything else: hello, gap, keyframe, resize, role, members, error, detached, exit, pong. `screen` is a
    keyframe's bytes: written to a terminal of that size they show what the program has drawn."""
    type: str
    position: int
    raw: Dict[str, Any]
    screen: bytes = b""


class Attachment:
    """A viewer of a terminal: an iterator of what comes, to be closed or used in a `with` statement.

    `position` is how far it has read, `role` what it may do now, `exit` how the command ended, once it has.
    """

    def __init__(self, terminal: "Terminal", role: Role, take: bool, from_: Optional[int], idle: float,
                 patience: float) -> None:
        self._terminal, self._idle = terminal, idle
        self._wanted: Role = role
        self._tries = Patience(patience)
        self.position: Optional[int] = from_
        self.role, self.exit = "observer", None  # type: str, Optional[Dict[str, Any]]
        self._socket = self._open(take)

    def _open(self, take: bool) -> WebSocket:
        box = self._terminal.sandbox
        return box.client.api.terminal_attach(box.id, self._terminal.id, from_=self.position, role=self._wanted,
                                              take=1 if take else None)

    def __iter__(self) -> Iterator[Union[TerminalOutput, TerminalEvent]]:
        while self.exit is None:
            try:
                found = self.receive(self._idle)
                self._tries.progress()
                yield found
            except RequestTimeout:
                self._ping()
            except Closed as e:
                if e.code != STOPPING:
                    raise
                self._again(ConnectionFailed(str(e)))
            except ConnectionFailed as e:
                self._again(e)

    def receive(self, timeout: float) -> Union[TerminalOutput, TerminalEvent]:
        """The next thing that comes; RequestTimeout when nothing does."""
        message = self._socket.receive(timeout)
        if isinstance(message, bytes):
            self.position = (self.position or 0) + len(message)
            return TerminalOutput(message, self.position)
        raw = json.loads(message)
        kind = str(raw.get("type", ""))
        if kind in ("hello", "keyframe"):
            self.position = int(raw["position"])
        elif kind == "gap":
            self.position = int(raw["to"])
        elif kind == "exit":
            self.exit = raw
        if kind in ("hello", "role"):
            self.role = str(raw["role"])
        screen = base64.b64decode(raw.get("data", "")) if kind == "keyframe" else b""
        return TerminalEvent(kind, self.position or 0, raw, screen)

    def _ping(self) -> None:
        """Silence may be a connection that is gone; an answer says that it is not."""
        self._say("ping")
        try:
            while getattr(self.receive(self._idle), "type", "") != "pong":
                pass
        except RequestTimeout:
            self._again(ConnectionFailed("the server does not answer any more"))

    def _again(self, why: ConnectionFailed) -> None:
        self._socket.close()
        while True:
            self._tries.wait(why)
            try:
                self._socket = self._open(False)
                return
            except (ConnectionFailed, RequestTimeout, Unavailable):
                pass

    def read_until(self, wanted: Union[str, bytes], timeout: float = 30.0) -> bytes:
        """Output until this has come; RequestTimeout when it has not, ConnectionFailed when the command ended."""
        want = wanted.encode() if isinstance(wanted, str) else wanted
        got, tries = b"", Patience(timeout)
        while want not in got:
            found = self.receive(tries.left())
            got += found.data if isinstance(found, TerminalOutput) else found.screen
            if self.exit is not None and want not in got:
                raise ConnectionFailed(f"the command ended before it printed {wanted!r}")
        return got

    # ---- what a viewer says ----

    def _say(self, kind: str, **members: Any) -> None:
        self._socket.send(json.dumps({"type": kind, **members}))

    def write(self, data: Union[str, bytes]) -> None:
        """What is typed; of a controller."""
        view = memoryview(data.encode() if isinstance(data, str) else data)
        for at in range(0, len(view), INPUT_MAX):
            self._socket.send(bytes(view[at:at + INPUT_MAX]))

    def resize(self, rows: int, cols: int) -> None:
        self._say("resize", rows=rows, cols=cols)

    def control(self, take: bool = False) -> None:
        """Asks for control; the answer is an event `role`. With take, also of one that others have."""
        self._wanted = "controller"
        self._say("control", take=take)

    def release(self) -> None:
        self._wanted = "observer"
        self._say("release")

    def signal(self, signal: Union[str, int], tree: bool = False) -> None:
        self._say("signal", signal=str(signal), tree=tree)

    def keyframe(self) -> None:
        """Asks for a picture of the screen now; what was not sent yet becomes a gap."""
        self._say("keyframe")

    def close(self) -> None:
        """Detaches; the command goes on."""
        self._socket.close()

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Terminal:
    """`info` is what was last heard of it."""

    def __init__(self, sandbox: "Sandbox", info: TerminalInfo) -> None:
        self.sandbox, self.info = sandbox, info
        self._api = sandbox.client.api

    @property
    def id(self) -> str:
        return self.info.id

    def __repr__(self) -> str:
        return f"<atoll.Terminal {self.id} {self.info.state}>"

    def refresh(self) -> TerminalInfo:
        self.info = self._api.terminal_read(self.sandbox.id, self.id)
        return self.info

    def attach(self, role: Role = "controller", *, take: bool = False, from_: Optional[int] = None,
               idle: float = 60.0, patience: float = 60.0) -> Attachment:
        """Watches it, and types if nobody else does. Without a position the first thing that comes is a picture of
        the screen. After `idle` seconds of silence the connection is tried, and made anew if it is dead."""
        return Attachment(self, role, take, from_, idle, patience)

    def screen(self, format: Optional[Literal["cells"]] = None) -> Dict[str, Any]:
        """What is on it now: text, cursor, the newest rows above; with "cells" every character with its looks."""
        found: Dict[str, Any] = self._api.terminal_screen(self.sandbox.id, self.id, format=format)
        return found

    def recording(self) -> Stream:
        """All that is kept of it as asciicast, version 2."""
        return self._api.terminal_recording(self.sandbox.id, self.id, options=Options(timeout=600.0))

    def resize(self, rows: int, cols: int) -> None:
        self.info = self._api.terminal_resize(self.sandbox.id, self.id, rows=rows, cols=cols)

    def signal(self, signal: Union[str, int], tree: bool = False) -> None:
        self.info = self._api.terminal_signal(self.sandbox.id, self.id, signal=str(signal), tree=tree)

    def kill(self) -> None:
        """It and everything that it started."""
        self.info = self._api.terminal_kill(self.sandbox.id, self.id)
