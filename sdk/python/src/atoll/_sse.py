"""Server-sent events: from the bytes of an answer to events, as the WHATWG standard reads them."""
from dataclasses import dataclass
from typing import Iterator, List

from ._errors import ConnectionFailed
from ._transport import Stream

LINE_MAX = 16 << 20  # a line without an end is no event stream


@dataclass(frozen=True)
class ServerEvent:
    id: str  # of this event or the last one that had one
    event: str
    data: str


def _lines(stream: Stream) -> Iterator[str]:
    rest = b""
    while True:
        data = stream.read_some()
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r").decode("utf-8", "replace")
        if len(rest) > LINE_MAX:
            raise ConnectionFailed("a line of the event stream does not end")


def events(stream: Stream) -> Iterator[ServerEvent]:
    """Until the server ends the answer; what is unfinished then is dropped, as it must be."""
    last_id, name, data = "", "", []  # type: str, str, List[str]
    for line in _lines(stream):
        if not line:
            if data:
                yield ServerEvent(last_id, name or "message", "\n".join(data))
            name, data = "", []
            continue
        key, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if key == "data":
            data.append(value)
        elif key == "event":
            name = value
        elif key == "id" and "\0" not in value:
            last_id = value
