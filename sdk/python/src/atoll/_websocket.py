"""A WebSocket (RFC 6455) as a client: whole messages both ways, by the standard library alone.

One thread may read while others send. A ping is answered by itself. Whatever the server must not do (a mask, a
reserved bit, a control frame in pieces, a message over the limit) ends the connection.
"""
import base64
import hashlib
import os
import secrets
import socket
import threading
import time
from typing import Dict, Optional, Tuple, Union

from ._errors import AtollError, ConnectionFailed, RequestTimeout

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MESSAGE_MAX = 16 << 20
HEAD_MAX = 65536


class Closed(AtollError):
    """The server closed the WebSocket, with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"closed by the server: {code} {reason}".rstrip())
        self.code, self.reason = code, reason


class Refused(AtollError):
    """The server answered the handshake with something else: status, headers and body of that."""

    def __init__(self, status: int, headers: Dict[str, str], body: bytes) -> None:
        super().__init__(f"the server answered {status} instead of opening a WebSocket")
        self.status, self.headers, self.body = status, headers, body


def _mask(data: bytes, key: bytes) -> bytes:
    size = len(data)
    whole = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")


class WebSocket:
    """Takes a connected socket and opens a WebSocket on it."""

    def __init__(self, sock: socket.socket, target: str, headers: Dict[str, str], timeout: float) -> None:
        self._sock, self._buffer, self._timeout = sock, bytearray(), timeout
        self._lock = threading.Lock()
        self._closing = False
        try:
            self._handshake(target, headers)
        except BaseException:
            sock.close()
            raise

    # ---- opening ----

    def _handshake(self, target: str, headers: Dict[str, str]) -> None:
        key = base64.b64encode(secrets.token_bytes(16))
        lines = [f"GET {target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "Connection: Upgrade",
                 "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + key.decode(), "", ""]
        self._write("\r\n".join(lines).encode("latin-1"))
        until = time.monotonic() + self._timeout
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_MAX:
                raise ConnectionFailed("the answer to the WebSocket's handshake does not end")
            self._fill(until)
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        self._buffer = bytearray(rest)
        first, *more = head.decode("latin-1").split("\r\n")
        found = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in more)}
        words = first.split()
        if len(words) < 2 or not words[1].isdigit():
            raise ConnectionFailed("what answered the WebSocket's handshake is no HTTP server")
        if words[1] != "101":
            size = found.get("content-length", "")
            body = self._exactly(min(int(size), HEAD_MAX), until) if size.isdigit() else b""
            raise Refused(int(words[1]), found, body)
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        if found.get("sec-websocket-accept") != accept or found.get("upgrade", "").lower() != "websocket":
            raise ConnectionFailed("the answer to the WebSocket's handshake is not to ours")

    # ---- bytes ----

    def _write(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except (socket.timeout, TimeoutError) as e:
            raise RequestTimeout("the WebSocket does not take what is sent") from e
        except OSError as e:
            raise ConnectionFailed(f"the WebSocket broke: {e}") from e

    def _fill(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise RequestTimeout("nothing came over the WebSocket")
        try:
            self._sock.settimeout(left)
            data = self._sock.recv(65536)
        except (socket.timeout, TimeoutError) as e:
            raise RequestTimeout("nothing came over the WebSocket") from e
        except OSError as e:
            raise ConnectionFailed(f"the WebSocket broke: {e}") from e
        finally:
            if self._sock.fileno() >= 0:
                self._sock.settimeout(self._timeout)
        if not data:
            raise ConnectionFailed("the WebSocket broke: the server is gone")
        self._buffer += data

    def _exactly(self, size: int, until: float) -> bytes:
        while len(self._buffer) < size:
            self._fill(until)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    # ---- frames ----

    def _send(self, opcode: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes([0x80 | opcode, 0x80 | size])
        elif size < 65536:
            head = bytes([0x80 | opcode, 0x80 | 126]) + size.to_bytes(2, "big")
        else:
            head = bytes([0x80 | opcode, 0x80 | 127]) + size.to_bytes(8, "big")
        key = os.urandom(4)
        with self._lock:
            self._write(head + key + _mask(data, key))

    def _frame(self, until: float) -> Tuple[bool, int, bytes]:
        """The next one: is it the last of its message, what is it, what is in it. A timeout takes nothing off."""
        while len(self._buffer) < 2:
            self._fill(until)
        first, size, at = self._buffer[0], self._buffer[1], 2
        if first & 0x70 or size & 0x80:
            raise ConnectionFailed("the server broke the rules of WebSockets")
        if size >= 126:
            at += 2 if size == 126 else 8
            while len(self._buffer) < at:
                self._fill(until)
            size = int.from_bytes(self._buffer[2:at], "big")
        if size > MESSAGE_MAX or (first & 0x08 and (size > 125 or not first & 0x80)):
            raise ConnectionFailed("the server broke the rules of WebSockets")
        while len(self._buffer) < at + size:
            self._fill(until)
        data = bytes(self._buffer[at:at + size])
        del self._buffer[:at + size]
        return bool(first & 0x80), first & 0x0F, data

    # ---- messages ----

    def send(self, message: Union[str, bytes]) -> None:
        if isinstance(message, str):
            self._send(TEXT, message.encode())
        else:
            self._send(BINARY, message)

    def receive(self, timeout: float) -> Union[str, bytes]:
        """The next message; RequestTimeout, ConnectionFailed, or Closed with the server's code."""
        until = time.monotonic() + timeout
        kind: Optional[int] = None
        parts = bytearray()
        while True:
            last, opcode, data = self._frame(until)
            if opcode == PING:
                self._answer(PONG, data)
            elif opcode == CLOSE:
                self._answer_close(data)
            elif opcode != PONG:
                if opcode not in (0, TEXT, BINARY) or (opcode == 0) != (kind is not None):
                    raise ConnectionFailed("the server broke the rules of WebSockets")
                kind = kind or opcode
                parts += data
                until = time.monotonic() + timeout  # of a long one, each piece has its time
                if len(parts) > MESSAGE_MAX:
                    raise ConnectionFailed("a message of the WebSocket is too long")
                if last:
                    return parts.decode("utf-8", "replace") if kind == TEXT else bytes(parts)

    def _answer(self, opcode: int, data: bytes) -> None:
        try:
            self._send(opcode, data)
        except AtollError:
            pass  # what has come is still to be read; then reading will tell

    def _answer_close(self, data: bytes) -> None:
        code = int.from_bytes(data[:2], "big") if len(data) >= 2 else 1005
        if not self._closing:
            self._answer(CLOSE, data[:2])
        self._sock.close()
        raise Closed(code, data[2:].decode("utf-8", "replace"))

    def close(self) -> None:
        """Says goodbye and hangs up; does not wait for the answer."""
        if self._sock.fileno() < 0:
            return
        self._closing = True
        self._answer(CLOSE, (1000).to_bytes(2, "big"))
        self._sock.close()
