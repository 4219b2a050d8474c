"""One request to the hub and its answer: who asks, what is repeated, which exception a refusal is.

Connections, timeouts and repetition are atoll's own (atoll/_transport.py). What is repeated by itself: what only
reads, what is the same when done twice, and what carries an Idempotency-Key, which the server answers a second time
with the first answer.

A client proves who it is by a token, or by signing each request with it: then the token itself never travels, and
what was sent once is refused when sent again. Every attempt is signed anew.
"""
import hashlib
import hmac
import json
import os
import secrets
import time
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Type
from urllib.parse import quote, unquote, urlencode, urlsplit

from atoll import _errors as errors
from atoll._endpoint import parse_address
from atoll._errors import ApiError, AtollError, ConnectionFailed, RequestTimeout, Unavailable
from atoll._process import Patience
from atoll._sse import ServerEvent
from atoll._sse import events as parse_events
from atoll._transport import VERSION, Stream, Transport

ERROR_MAX = 1 << 20
INSIDE = "atoll.internal"  # the hub as programs in a sandbox reach it: the server knows who they are, without a token
BY_STATUS: Dict[int, Type[ApiError]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.InvalidRequest,
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.TooLarge,
    415: errors.InvalidRequest,
    421: errors.Forbidden,
    416: errors.RangeNotSatisfiable,
    422: errors.InvalidRequest,
    429: errors.RateLimited,
    500: errors.ServerError,
    501: errors.Unsupported,
    503: errors.Unavailable,
    507: errors.NoSpace,
}


def error_of(status: int, headers: Mapping[str, str], text: bytes) -> ApiError:
    """The hub says {"error": text}; the rest of the server {"error": {code, message, …}}."""
    found: Dict[str, Any] = {}
    message = text[:200].decode("utf-8", "replace") or f"status {status}"
    try:
        found = json.loads(text)
        error = found["error"]
        if isinstance(error, dict):
            found, message = error, str(error["message"])
        else:
            message = str(error)
    except (ValueError, KeyError, TypeError):
        found = found if isinstance(found, dict) else {}
    try:
        wait: Optional[float] = float(headers["retry-after"])
    except (KeyError, ValueError):
        wait = None
    failure = BY_STATUS.get(status, ApiError)(status, str(found.get("code") or status), message, found.get("field"),
                                              found.get("request_id") or headers.get("x-request-id"), wait)
    failure.details = found
    return failure


class Wire:
    """Requests to one hub, by one who asks."""

    def __init__(self, url: str, token: Optional[str], key_id: Optional[str], timeout: float, retries: int,
                 ca: Optional[str]) -> None:
        parts = urlsplit(url.rstrip("/"))
        self.base = parts.path if parts.scheme in ("http", "https") else ""
        bare = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme in ("http", "https") else url
        endpoint = parse_address(bare)
        own = token or (unquote(parts.password) if parts.password else None) or os.environ.get("ATOLL_TOKEN")
        endpoint.token, endpoint.ca = (None if endpoint.host == INSIDE else own), ca
        token = endpoint.token
        if key_id is not None and not token:
            raise AtollError("key_id names a token to sign with: give that token too")
        self.key_id = key_id
        self.transport = Transport(endpoint, timeout, retries)

    def close(self) -> None:
        self.transport.close()

    # ---- who asks ----

    def _signer(self, method: str, target: str, body: bytes) -> Callable[[], Mapping[str, str]]:
        token, key_id = self.transport.endpoint.token or "", self.key_id or ""
        key = hmac.new(token.encode(), b"atoll-sign-v1", hashlib.sha256).digest()
        digest = hashlib.sha256(body).hexdigest()

        def sign() -> Mapping[str, str]:
            stamp, nonce = str(int(time.time() * 1000)), secrets.token_hex(16)
            text = "\n".join([method, target, stamp, nonce, digest, key_id])
            return {"X-Atoll-Key": key_id, "X-Atoll-Time": stamp, "X-Atoll-Nonce": nonce,
                    "X-Atoll-Signature": hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}
        return sign

    # ---- requests ----

    def open(self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, body: Optional[bytes] = None,
             headers: Optional[Mapping[str, str]] = None, again: bool = False, key: Optional[str] = None,
             timeout: Optional[float] = None, at: Optional[Mapping[str, str]] = None) -> Stream:
        """The answer, once it begins. `at` fills in the path; `again`: done twice is the same as done once;
        `key`: the server makes it so."""
        for name, value in (at or {}).items():
            if not value:
                raise AtollError(f"{name} must not be empty")
            path = path.replace("{" + name + "}", quote(value, safe="/" if name == "filename" else ""))
        pairs = {k: v for k, v in (query or {}).items() if v is not None}
        target = self.base + path + ("?" + urlencode(pairs, doseq=True) if pairs else "")
        send = {"Host": self.transport.endpoint.authority, "User-Agent": "atoll-spokes/" + VERSION,
                "Accept": "application/json", **(headers or {})}
        if key is not None:
            send["Idempotency-Key"] = key
        sign = None
        if self.key_id is not None:
            sign = self._signer(method, target[len(self.base):], body or b"")
        elif self.transport.endpoint.token:
            send["Authorization"] = "Bearer " + self.transport.endpoint.token
        answer = self.transport.request(method, target, send, body,
                                        self.transport.timeout if timeout is None else timeout,
                                        self.transport.retries, again or method == "GET" or key is not None, sign)
        if 200 <= answer.status < 300:
            return answer
        with answer:
            text = answer.read(ERROR_MAX)
        raise error_of(answer.status, {k.lower(): v for k, v in answer.headers.items()}, text)

    def call(self, method: str, path: str, json_body: Optional[Mapping[str, Any]] = None, *,
             query: Optional[Mapping[str, Any]] = None, again: bool = False, once: bool = False, **at: str) -> Any:
        """JSON there and back. `once`: must not be done twice, so that it carries a key to be repeated by."""
        body, headers = None, {}
        if json_body is not None:
            body = json.dumps({k: v for k, v in json_body.items() if v is not None}).encode()
            headers["Content-Type"] = "application/json"
        with self.open(method, path, query=query, body=body, headers=headers, again=again,
                       key=secrets.token_hex(16) if once else None, at=at) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def upload(self, method: str, path: str, filename: str, data: bytes, fields: Mapping[str, str], **at: str) -> Any:
        """A form with one file, as browsers send it."""
        if any(c in filename for c in '"\r\n'):
            raise AtollError(f"{filename!r} is no name of a file")
        edge = "spokes-" + secrets.token_hex(16)
        parts = [f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                 for name, value in fields.items()]
        parts.append(f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
                     "Content-Type: application/octet-stream\r\n\r\n")
        body = "".join(parts).encode() + data + f"\r\n--{edge}--\r\n".encode()
        with self.open(method, path, body=body, key=secrets.token_hex(16),
                       headers={"Content-Type": f"multipart/form-data; boundary={edge}"}, at=at) as answer:
            return json.loads(answer.read())

    def download(self, method: str, path: str, query: Optional[Mapping[str, Any]] = None, **at: str) -> bytes:
        with self.open(method, path, query=query, headers={"Accept": "*/*"}, at=at) as answer:
            return answer.read()

    def events(self, path: str, query: Mapping[str, Any], since: Optional[str], idle: float,
               patience: float) -> Iterator[ServerEvent]:
        """A stream that comes back by itself, after the last event that was seen. `idle`: seconds of silence, with
        not even a sign of life, after which the connection counts as broken."""
        tries = Patience(patience)
        while True:
            headers = {"Accept": "text/event-stream"}
            try:
                with self.open("GET", path, query={**query, "since": since}, headers=headers, timeout=idle) as answer:
                    for one in parse_events(answer):
                        tries.progress()
                        since = one.id or since
                        yield one
                tries.wait(ConnectionFailed("the events end again and again"))
            except (ConnectionFailed, RequestTimeout, Unavailable) as e:
                tries.wait(e)
