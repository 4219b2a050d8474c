"""Requests and answers over http.client: connections that are kept, timeouts, retries, errors.

What is repeated by itself, with a growing pause: a connection that could not be made (nothing was sent);
and, where doing it twice is the same as doing it once, a connection that broke and the answer 503. That
holds for GET, for PUT of bytes, and for creations, which carry an Idempotency-Key: the server answers the
second with the first one's answer.

A kept connection that the server has closed meanwhile is noticed before it is used, so that requests
which must not be repeated do not meet it.
"""
import collections
import http.client
import json
import random
import secrets
import select
import socket
import ssl
import threading
import time
import warnings
from dataclasses import dataclass, field
from typing import (IO, Any, Callable, Deque, Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Tuple, Type,
                    TypeVar, Union, cast)
from urllib.parse import quote

from ._endpoint import Endpoint
from ._errors import BY_CODE, ApiError, AtollError, ConnectionFailed, RequestTimeout
from ._model import NOTHING, M
from ._websocket import Refused, WebSocket

VERSION = "0.1.0"
CHUNK = 262144
ERROR_MAX = 1 << 20
PAGE = 500  # items asked for at once
IDLE_KEPT = 8  # connections kept for the next request
IDLE_SECONDS = 45.0  # the server closes them after 60
PAUSE_FIRST, PAUSE_MAX = 0.1, 5.0

T = TypeVar("T")
Content = Union[bytes, bytearray, memoryview, IO[bytes], Iterable[bytes]]


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    creates: bool = False  # takes an Idempotency-Key


@dataclass(frozen=True)
class Options:
    """Of one request: what is to differ from the client's own."""
    timeout: Optional[float] = None  # seconds for each step: to connect, to send, to be answered
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: Optional[str] = None
    retries: Optional[int] = None


@dataclass
class Page(Generic[T]):
    """A list as the server gives it; raw is the whole answer, with what stands beside the items."""
    items: List[T]
    raw: Dict[str, Any]


def every(page: "Callable[..., Page[T]]") -> List[T]:
    """All items of a list; `page` asks for one page of it."""
    found: List[T] = []
    after: Optional[str] = None
    while True:
        got = page(after=after, limit=PAGE)
        found += got.items
        after = got.raw.get("next")
        if not after:
            return found


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


class Stream:
    """An answer whose body is read as it comes. To be closed, or used in a `with` statement."""

    def __init__(self, transport: "Transport", connection: http.client.HTTPConnection,
                 response: http.client.HTTPResponse) -> None:
        self._transport, self._connection, self._response = transport, connection, response
        self._ended = False
        self.status = response.status
        self.headers = response.headers

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes; fewer only at the end."""
        return self._guard(lambda: self._response.read(None if size < 0 else size))

    def read_some(self, size: int = CHUNK) -> bytes:
        """What has come, at least a byte; empty at the end."""
        return self._guard(lambda: self._response.read1(size))

    def _guard(self, read: Any) -> bytes:
        try:
            data: bytes = read()
            return data
        except (socket.timeout, TimeoutError) as e:
            self._end(False)
            raise RequestTimeout("the answer stopped coming") from e
        except (OSError, http.client.HTTPException) as e:
            self._end(False)
            raise ConnectionFailed(f"the connection broke while its answer came: {e!r}") from e

    def __iter__(self) -> Iterator[bytes]:
        while True:
            data = self.read(CHUNK)
            if not data:
                return
            yield data

    def close(self) -> None:
        # Of use again only when all of its answer was read.
        self._end(self._response.isclosed() and not self._response.will_close)

    def _end(self, keep: bool) -> None:
        if self._ended:
            return
        self._ended = True
        self._response.close()
        if keep:
            self._transport.keep(self._connection)
        else:
            self._connection.close()
        self._transport.forget(self)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transport:
    def __init__(self, endpoint: Endpoint, timeout: float, retries: int) -> None:
        self.endpoint, self.timeout, self.retries = endpoint, timeout, retries
        self._idle: Deque[Tuple[float, http.client.HTTPConnection]] = collections.deque()
        self._lock = threading.Lock()
        self._open: Dict[int, Stream] = {}
        self._tls: Optional[ssl.SSLContext] = None
        if endpoint.tls:
            self._tls = ssl.create_default_context(cafile=endpoint.ca)
        if endpoint.token and not endpoint.tls and not endpoint.local:
            warnings.warn(f"the token travels unencrypted to {endpoint.host}; use https://", stacklevel=4)

    # ---- connections ----

    def connect_new(self, timeout: float) -> http.client.HTTPConnection:
        at = self.endpoint
        connection: http.client.HTTPConnection
        if at.unix is not None:
            connection = _UnixConnection(at.unix, timeout)
        elif self._tls:
            connection = http.client.HTTPSConnection(at.host, at.port, timeout=timeout, context=self._tls)
        else:
            connection = http.client.HTTPConnection(at.host, at.port, timeout=timeout)
        connection.connect()
        if at.unix is None:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _take(self, timeout: float) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and not _readable(connection.sock):
                connection.timeout = timeout
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        return self.connect_new(timeout)

    def keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_KEPT and connection.sock is not None:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def forget(self, stream: Stream) -> None:
        with self._lock:
            self._open.pop(id(stream), None)

    def close(self) -> None:
        with self._lock:
            streams, idle = list(self._open.values()), list(self._idle)
            self._idle.clear()
        for stream in streams:
            stream.close()
        for _, connection in idle:
            connection.close()

    def __del__(self) -> None:
        idle = getattr(self, "_idle", ())
        for _, connection in idle:
            connection.close()

    # ---- requests ----

    def request(self, method: str, target: str, headers: Mapping[str, str], content: Optional[Content],
                timeout: float, retries: int, repeatable: bool,
                sign: Optional[Callable[[], Mapping[str, str]]] = None) -> Stream:
        """One request until its answer begins; of any status. `sign` gives headers anew for each attempt."""
        body, more = _body(content)
        repeatable = repeatable and (body is None or isinstance(body, bytes))
        for attempt in range(retries + 1):
            last = attempt == retries
            try:
                connection = self._take(timeout)
            except (socket.timeout, TimeoutError) as e:
                raise RequestTimeout(f"no connection within {timeout} s") from e
            except OSError as e:
                if last or isinstance(e, ssl.SSLError):
                    raise ConnectionFailed(f"cannot connect to {self._where()}: {e}") from e
                _pause(attempt, None)
                continue
            try:
                signed = sign() if sign else {}
                answer = self._exchange(connection, method, target, {**headers, **more, **signed}, body)
            except (socket.timeout, TimeoutError) as e:
                connection.close()
                raise RequestTimeout(f"no answer within {timeout} s") from e
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                if last or not repeatable:
                    raise ConnectionFailed(f"the connection broke before its answer: {e!r}") from e
                _pause(attempt, None)
                continue
            except BaseException:
                connection.close()
                raise
            if answer.status == 503 and repeatable and not last:
                wait = _retry_after({k.lower(): v for k, v in answer.headers.items()})
                answer.close()
                _pause(attempt, wait)
                continue
            return answer
        raise AssertionError("not reached")

    def _exchange(self, connection: http.client.HTTPConnection, method: str, target: str,
                  headers: Mapping[str, str], body: Any) -> Stream:
        chunked = headers.get("Transfer-Encoding") == "chunked"
        try:
            connection.request(method, target, body, headers, encode_chunked=chunked)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may have refused before it had heard all; then the answer says why
        response = connection.getresponse()
        stream = Stream(self, connection, response)
        with self._lock:
            self._open[id(stream)] = stream
        return stream

    def _where(self) -> str:
        return f"unix:{self.endpoint.unix}" if self.endpoint.unix is not None else self.endpoint.authority


def _readable(sock: socket.socket) -> bool:
    """Something to read on a connection that waits for nothing: its end."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while True:
        data = file.read(CHUNK)
        if not data:
            return
        yield data


def _body(content: Optional[Content]) -> Tuple[Any, Dict[str, str]]:
    """What http.client takes, and the headers about it."""
    if content is None:
        return None, {}
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content), {}
    if isinstance(content, str):
        raise TypeError("bytes are sent, not str: encode it")
    if hasattr(content, "read"):
        return _chunks(cast(IO[bytes], content)), {"Transfer-Encoding": "chunked"}
    return (one for one in content if one), {"Transfer-Encoding": "chunked"}


def _retry_after(headers: Mapping[str, str]) -> Optional[float]:
    try:
        return float(headers["retry-after"])
    except (KeyError, TypeError, ValueError):
        return None


def _pause(attempt: int, told: Optional[float]) -> None:
    pause = min(PAUSE_MAX, PAUSE_FIRST * 2 ** attempt) * (0.5 + random.random() / 2)
    time.sleep(max(pause, min(told or 0.0, PAUSE_MAX)))


def error_of(answer: Stream) -> ApiError:
    """The exception that an answer stands for; reads and closes it."""
    with answer:
        text = answer.read(ERROR_MAX)
    return error_from(answer.status, {k.lower(): v for k, v in answer.headers.items()}, text)


def error_from(status: int, headers: Mapping[str, str], text: bytes) -> ApiError:
    try:
        error = json.loads(text)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        error, code, message = {}, "", text[:200].decode("utf-8", "replace") or f"status {status}"
    kind = BY_CODE.get(code, ApiError)
    return kind(status, code, message, error.get("field"), error.get("request_id") or headers.get("x-request-id"),
                _retry_after(headers), error.get("reason"))


def text_of(value: Any) -> str:
    """A parameter as it stands in a query, percent-encoded."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str):
        return quote(value.encode("utf-8", "surrogateescape"), safe="")
    if isinstance(value, bytes):
        return quote(value, safe="")
    return quote(str(value), safe="")


class Caller:
    """What the generated methods stand on."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def _target(self, operation: Operation, path: Mapping[str, str], query: Mapping[str, Any]) -> str:
        target = operation.path
        for name, value in path.items():
            if not value:
                raise AtollError(f"{name} must not be empty")
            target = target.replace("{" + name + "}", quote(value, safe=""))
        pairs = [f"{name}={text_of(value)}" for name, value in query.items() if value is not None]
        return target + ("?" + "&".join(pairs) if pairs else "")

    def _headers(self) -> Dict[str, str]:
        at = self.transport.endpoint
        headers = {"Host": at.authority, "User-Agent": "atoll-python/" + VERSION, "Accept": "application/json"}
        if at.token:
            headers["Authorization"] = "Bearer " + at.token
        return headers

    def send(self, operation: Operation, path: Mapping[str, str], query: Mapping[str, Any], body: Any,
             options: Optional[Options]) -> Stream:
        """One operation; an ApiError unless it succeeded."""
        options = options or Options()
        headers = self._headers()
        if isinstance(body, dict):
            headers["Content-Type"] = "application/json"
            said = {k: None if v is NOTHING else v for k, v in body.items() if v is not None}
            body = json.dumps(said).encode()
        elif body is not None:
            headers["Content-Type"] = "application/octet-stream"
        if operation.creates:
            headers["Idempotency-Key"] = options.idempotency_key or secrets.token_hex(16)
        headers.update(options.headers)
        timeout = self.transport.timeout if options.timeout is None else options.timeout
        retries = self.transport.retries if options.retries is None else options.retries
        repeatable = operation.creates or operation.method in ("GET", "PUT")
        answer = self.transport.request(operation.method, self._target(operation, path, query), headers, body,
                                        timeout, retries, repeatable)
        if not 200 <= answer.status < 300:
            raise error_of(answer)
        return answer

    def socket(self, operation: Operation, path: Mapping[str, str], query: Mapping[str, Any], body: None,
               options: Optional[Options]) -> WebSocket:
        """An operation that is a WebSocket."""
        options = options or Options()
        timeout = self.transport.timeout if options.timeout is None else options.timeout
        headers = {**self._headers(), **options.headers}
        try:
            sock = self.transport.connect_new(timeout).sock
        except (socket.timeout, TimeoutError) as e:
            raise RequestTimeout(f"no connection within {timeout} s") from e
        except OSError as e:
            raise ConnectionFailed(f"cannot connect: {e}") from e
        try:
            return WebSocket(sock, self._target(operation, path, query), headers, timeout)
        except Refused as e:
            raise error_from(e.status, e.headers, e.body) from e

    def _any(self, operation: Operation, path: Mapping[str, str], query: Mapping[str, Any], body: Any,
             options: Optional[Options]) -> Any:
        with self.send(operation, path, query, body, options) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _json(self, operation: Operation, path: Mapping[str, str], query: Mapping[str, Any], body: Any,
              model: Type[M], options: Optional[Options]) -> M:
        return model.from_json(self._any(operation, path, query, body, options))

    def _page(self, operation: Operation, path: Mapping[str, str], query: Mapping[str, Any], body: Any,
              model: Type[M], options: Optional[Options]) -> "Page[M]":
        value = self._any(operation, path, query, body, options)
        return Page([model.from_json(one) for one in value["items"]], value)
