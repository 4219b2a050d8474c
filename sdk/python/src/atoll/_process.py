"""Commands in a sandbox: started, waited for, read from any position, given input and signals.

The server keeps what a command prints, by position, so a reader that lost its connection comes back and
names the position it had: no byte twice, none missing. A reader here holds the command back when it is slower
than the command. Where a position is no longer kept all the same, Gone says so.

Input has positions too. A piece whose answer was lost is sent again with its position, and the server leaves
out what the command has of it.
"""
import codecs
import json
import threading
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Dict, Iterator, List, Literal, NamedTuple, Optional, Tuple, Union, cast

from ._errors import AtollError, CommandFailed, Conflict, ConnectionFailed, Forbidden, RequestTimeout, Unavailable
from ._models import ExecInfo, ExecStdinResult
from ._transport import PAUSE_FIRST, PAUSE_MAX, Content, Options, Stream

if TYPE_CHECKING:
    from ._sandbox import Sandbox

WAIT_MS = 25000  # of one request that waits
WAIT_SLACK = 15.0  # seconds over that for the answer
STDIN_PIECE = 1 << 20
STDIN_SECONDS = 600.0  # a command may read slowly
STDIN_PATIENCE = 60.0  # with a server that is away while input is sent
ENDED = ("exited", "lost")
FRAME_END = 3  # 1 and 2 are stdout and stderr
END_MAX = 8 << 20


class Position(NamedTuple):
    """How many bytes of each stream have been read."""
    stdout: int = 0
    stderr: int = 0


@dataclass(frozen=True)
class Output:
    """A piece of what a command printed; position is the place behind it, to go on from."""
    stream: Literal["stdout", "stderr"]
    data: bytes
    position: Position

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, with all that it printed."""
    info: ExecInfo
    stdout: bytes
    stderr: bytes

    @property
    def exit_code(self) -> int:
        """As a shell says it: 128 + signal for one that a signal ended."""
        return self.info.exit_code

    @property
    def timed_out(self) -> bool:
        return self.info.timed_out

    @property
    def oom(self) -> bool:
        """It failed, and the kernel killed something in its sandbox for lack of memory."""
        return self.info.oom

    @property
    def signal(self) -> int:
        return self.info.signal

    @property
    def missing(self) -> int:
        """Bytes of its output that were no longer kept when they were read; 0 for what exec() ran."""
        return self.info.stdout_bytes + self.info.stderr_bytes - len(self.stdout) - len(self.stderr)

    @property
    def lost(self) -> bool:
        """It ended with its sandbox or the machine; nobody knows how."""
        return self.info.state == "lost"

    @property
    def blocked(self) -> "list[str]":
        """HOST:PORT of what was denied to the sandbox while the command ran; `atoll egress allow` allows one."""
        return list(self.info.blocked or [])

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out and not self.lost

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace")

    def check(self) -> "ExecResult":
        """Itself if the command succeeded, otherwise CommandFailed."""
        if self.ok:
            return self
        how = ("was lost" if self.lost else "took too long" if self.timed_out
               else "was out of memory" if self.oom else f"exited with {self.exit_code}")
        last = self.error_text.strip().splitlines()[-1:]
        why = "".join(": " + line[:500] for line in last)
        if self.blocked:
            why += f" (blocked: {', '.join(self.blocked)}; `atoll egress allow {self.info.sandbox} HOST` allows a host)"
        raise CommandFailed(f"{' '.join(self.info.argv)[:200]} {how}{why}")


def pieces(data: Union[str, Content]) -> Iterator[bytes]:
    """Input in pieces that one request can carry."""
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        view = memoryview(data)
        for at in range(0, len(view), STDIN_PIECE):
            yield bytes(view[at:at + STDIN_PIECE])
    elif hasattr(data, "read"):
        file = cast(IO[bytes], data)
        yield from iter(lambda: file.read(STDIN_PIECE), b"")
    else:
        for one in data:
            yield from pieces(one)


def frames(answer: Stream) -> Iterator[Tuple[int, bytes]]:
    """Output as it comes: 1 or 2 with a piece of that stream, FRAME_END with the command; see exec.output."""
    while True:
        head = answer.read(8)
        if len(head) < 8:
            return  # the server went away
        kind, left = head[0], int.from_bytes(head[4:], "big")
        if not 1 <= kind <= FRAME_END or (kind == FRAME_END and left > END_MAX):
            raise ConnectionFailed("the output has a frame that is unknown")
        if kind == FRAME_END:
            yield kind, answer.read(left)
            return
        while left:
            data = answer.read_some(left)
            if not data:
                return
            left -= len(data)
            yield kind, data


class Patience:
    """Pauses between attempts to come back; gives up when that has not helped for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.progress()

    def progress(self) -> None:
        self._until, self._pause = time.monotonic() + self._seconds, PAUSE_FIRST

    def left(self) -> float:
        """Seconds until it gives up."""
        return max(0.0, self._until - time.monotonic())

    def wait(self, error: AtollError) -> None:
        if time.monotonic() + self._pause > self._until:
            raise error
        time.sleep(self._pause)
        self._pause = min(PAUSE_MAX, self._pause * 2)


class Process:
    """One command. `info` is what was last heard of it."""

    def __init__(self, sandbox: "Sandbox", info: ExecInfo, input_at: Optional[int] = None) -> None:
        self.sandbox, self.info = sandbox, info
        self._input_at = input_at  # how far its input is, by the last answer
        self._api = sandbox.client.api

    @property
    def id(self) -> str:
        return self.info.id

    def __repr__(self) -> str:
        return f"<atoll.Process {self.id} {self.info.state}>"

    @property
    def ended(self) -> bool:
        return self.info.state in ENDED

    def refresh(self) -> ExecInfo:
        self.info = self._api.exec_read(self.sandbox.id, self.id)
        return self.info

    # ---- waiting and reading ----

    def wait(self, timeout: Optional[float] = None) -> ExecResult:
        """Waits until it has ended; RequestTimeout when that takes longer than so many seconds. It goes on then."""
        until = None if timeout is None else time.monotonic() + timeout
        if not self.ended:
            return self._collect(until)
        if self.info.output is None:
            self.info = self._api.exec_read(self.sandbox.id, self.id, wait=1)
        return ExecResult(self.info, self._whole("stdout", self.info.output, self.info.stdout_bytes),
                          self._whole("stderr", self.info.errors, self.info.stderr_bytes))

    def _collect(self, until: Optional[float]) -> ExecResult:
        """All that is kept and all that comes, as it comes, so that nothing of it has to be dropped."""
        parts: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        for one in self._output(None, until=until):
            parts[one.stream].append(one.data)
        return ExecResult(self.info, b"".join(parts["stdout"]), b"".join(parts["stderr"]))

    def _whole(self, stream: Literal["stdout", "stderr"], text: Optional[str], size: int) -> bytes:
        # The text in the answer is cut at its limit, and bytes that are no UTF-8 are shown as U+FFFD.
        told = (text or "").encode("utf-8", "surrogatepass")
        if len(told) == size and "\ufffd" not in (text or ""):
            return told
        return self.read(stream)

    def read(self, stream: Literal["stdout", "stderr"] = "stdout", from_: Optional[int] = None) -> bytes:
        """What is there of one stream, from a position or from the oldest byte kept."""
        place = None if from_ is None else str(from_)
        with self._api.exec_output(self.sandbox.id, self.id, stream=stream, from_=place, follow=0) as answer:
            return answer.read()

    def output(self, position: Optional[Position] = None, *, idle: float = 60.0, patience: float = 60.0,
               hold: bool = True) -> Iterator[Output]:
        """What it prints, as it does, from a position on until it has ended; `info` then says how.

        A connection that breaks, or is silent for `idle` seconds, is made anew and the output goes on where
        it was; ConnectionFailed when that does not help for `patience` seconds. With `hold` the command waits
        while its output is not taken; without it, Gone says that the reader was too slow. A token that may not
        run commands never holds one back.
        """
        return self._output(position, idle=idle, patience=patience, hold=hold)

    def _output(self, at: Optional[Position], *, idle: float = 60.0, patience: float = 60.0, hold: bool = True,
                until: Optional[float] = None) -> Iterator[Output]:
        tries = Patience(patience)
        while True:
            left = idle if until is None else min(idle, until - time.monotonic())
            if left <= 0:
                raise RequestTimeout(f"{self.id} has not ended in time")
            try:
                for one in self._output_once(at, left, hold):
                    tries.progress()
                    at = one.position
                    if one.data:
                        yield one
                    if until is not None and time.monotonic() > until:
                        raise RequestTimeout(f"{self.id} has not ended in time")
                if self.ended:
                    return
                tries.wait(ConnectionFailed("the output ends again and again before the command"))
            except RequestTimeout:
                if until is not None and time.monotonic() > until:
                    raise
                tries.progress()  # nothing was printed
            except Forbidden:
                if not hold:
                    raise
                hold = False
            except (ConnectionFailed, Unavailable) as e:
                tries.wait(e)

    def _output_once(self, at: Optional[Position], idle: float, hold: bool) -> Iterator[Output]:
        place = None if at is None else f"{at.stdout},{at.stderr}"
        with self._api.exec_output(self.sandbox.id, self.id, stream="both", from_=place, hold=1 if hold else None,
                                   options=Options(timeout=idle)) as answer:
            out, _, err = (answer.headers["Atoll-Position"] or "").partition(",")
            position = Position(int(out), int(err))
            yield Output("stdout", b"", position)
            for kind, data in frames(answer):
                if kind == FRAME_END:
                    self.info = ExecInfo.from_json(json.loads(data))
                    return
                if kind == 1:
                    position = position._replace(stdout=position.stdout + len(data))
                    yield Output("stdout", data, position)
                else:
                    position = position._replace(stderr=position.stderr + len(data))
                    yield Output("stderr", data, position)

    def lines(self) -> Iterator[str]:
        """Its standard output line by line, without line ends; standard error is passed over."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        for one in self.output():
            if one.stream == "stdout":
                *whole, rest = (rest + decoder.decode(one.data)).split("\n")
                yield from whole
        rest += decoder.decode(b"", True)
        if rest:
            yield rest

    # ---- input, signals ----

    def write(self, data: Union[str, Content], eof: bool = False) -> int:
        """To its standard input (stdin_open); returns when the command's pipe has taken all of it.

        What was on its way when a connection broke is sent again, and arrives once, as long as nobody else
        writes to the same command meanwhile. Not on a terminal: ConnectionFailed.
        """
        total = 0
        for piece in pieces(data):
            if self._input_at is None and not self.info.tty:
                self._put(b"")  # another client started it: how far is it?
            total += self._put(piece).bytes
        if eof:
            self.close_stdin()
        return total

    def close_stdin(self) -> None:
        self._put(b"", eof=1)

    def _put(self, piece: bytes, eof: Optional[int] = None) -> ExecStdinResult:
        tries, at, again = Patience(STDIN_PATIENCE), None, False
        while True:
            began = time.monotonic()
            try:
                done = self._api.exec_stdin(self.sandbox.id, self.id, piece, eof=eof, at=at,
                                            options=Options(timeout=STDIN_SECONDS))
                self._input_at = done.position
                return done
            except (ConnectionFailed, Unavailable) as e:
                if self.info.tty and piece:
                    raise
                if time.monotonic() - began > PAUSE_MAX:
                    tries.progress()  # the server was there, and the command did not read
                tries.wait(e)
                at, again = self._input_at if piece else None, True
            except Conflict:
                if not again or piece:
                    raise
                return ExecStdinResult(position=self._input_at or 0, eof=True)  # it was closed by the first attempt

    def feed(self, data: Union[str, Content]) -> None:
        """All of its input and the end of it. One that ends without reading it is no error."""
        try:
            self.write(data, eof=True)
        except Conflict:
            pass

    def communicate(self, data: Union[str, Content]) -> ExecResult:
        """Feeds it and collects what it prints at the same time, until it has ended."""
        failed: List[BaseException] = []

        def feed() -> None:
            try:
                self.feed(data)
            except BaseException as e:  # of the caller's own iterator perhaps
                failed.append(e)
                self.kill()

        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        result = self.wait()
        feeder.join()
        if failed:
            raise failed[0]
        return result

    def signal(self, signal: Union[str, int], tree: bool = False) -> None:
        """TERM, "SIGINT", 9…; to its process group, or with tree to everything that it started."""
        self.info = self._api.exec_signal(self.sandbox.id, self.id, signal=str(signal), tree=tree)

    def cancel(self) -> ExecResult:
        """Kills it and everything that it started, and waits until all of that is gone."""
        self.info = self._api.exec_cancel(self.sandbox.id, self.id, wait=WAIT_MS,
                                          options=Options(timeout=WAIT_MS / 1000 + WAIT_SLACK))
        return self.wait()

    def kill(self) -> None:
        self.signal("KILL", tree=True)

    def resize(self, rows: int, cols: int) -> None:
        self.info = self._api.exec_resize(self.sandbox.id, self.id, rows=rows, cols=cols)

