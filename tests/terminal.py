"""A terminal's WebSocket, spoken by hand: nothing is read that the test did not ask for, so that a
viewer can stall, and every byte is counted by the rules of docs/terminals.md."""
import base64
import json
import os
import socket
import struct
import time

import harness


class Closed(Exception):
    def __init__(self, code, reason=""):
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status} {body}")
        self.status, self.body = status, body


class Ws:
    """One WebSocket; blocking."""

    def __init__(self, server, path, token="admin", headers=(), rcvbuf=None, timeout=20):
        self.sock = socket.socket()
        self.sock.settimeout(timeout * harness.SLOW)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.connect(("127.0.0.1", server.port))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {server.host}", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", *headers]
        if token:
            lines.append("Authorization: Bearer " + (server.token if token == "admin" else token))
        self.sock.sendall("\r\n".join(lines + ["", ""]).encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            got = self.sock.recv(65536)
            if not got:
                self.sock.close()
                raise Refused(0, "closed")
            self.rest += got
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])
        self.head = head.decode()
        if self.status != 101:
            self.sock.close()
            raise Refused(self.status, self.rest.decode(errors="replace"))

    def _take(self, count):
        while len(self.rest) < count:
            got = self.sock.recv(max(65536, count - len(self.rest)))
            if not got:
                raise Closed(1006)
            self.rest += got
        data, self.rest = self.rest[:count], self.rest[count:]
        return data

    def recv(self):
        """(text?, payload) of the next message; Closed when it has ended."""
        while True:
            first, second = self._take(2)
            size = second & 127
            if size == 126:
                size, = struct.unpack(">H", self._take(2))
            elif size == 127:
                size, = struct.unpack(">Q", self._take(8))
            data = self._take(size)
            opcode = first & 15
            if opcode == 8:
                code = struct.unpack(">H", data[:2])[0] if data else 1005
                try:
                    self.send_frame(8, data[:2])
                except OSError:
                    pass
                raise Closed(code, data[2:].decode())
            if opcode == 9:
                self.send_frame(10, data)
            elif opcode in (1, 2):
                assert first & 128, "our server sends no fragments"
                return opcode == 1, data

    def send_frame(self, opcode, data=b""):
        mask = os.urandom(4)
        size = len(data)
        head = bytes([0x80 | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += bytes([0xfe]) + struct.pack(">H", size)
        else:
            head += bytes([0xff]) + struct.pack(">Q", size)
        body = bytes(b ^ mask[i % 4] for i, b in enumerate(data)) if size < 4096 else _mask(data, mask)
        self.sock.sendall(head + mask + body)

    def send(self, data):
        """bytes: binary; str: text; dict: JSON."""
        if isinstance(data, bytes):
            self.send_frame(2, data)
        else:
            self.send_frame(1, (data if isinstance(data, str) else json.dumps(data)).encode())

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _mask(data, mask):
    key = int.from_bytes((mask * (len(data) // 4 + 1))[:len(data)], "big")
    return (int.from_bytes(data, "big") ^ key).to_bytes(len(data), "big")


class Terminal(Ws):
    """Attached to a terminal in our own protocol. `position` is the next byte's; `gaps` what was left out."""

    def __init__(self, server, box, terminal, query="", **kw):
        super().__init__(server, f"/api/v1/sandboxes/{box}/terminals/{terminal}/ws{query}", **kw)
        self.gaps, self.told, self.exit = [], [], None
        self.keyframe = None
        text, data = self.recv()
        assert text
        self.hello = json.loads(data)
        assert self.hello["type"] == "hello"
        self.role = self.hello["role"]
        self.position = self.hello["position"]

    def step(self):
        """The next message: bytes of output, or a dict."""
        text, data = self.recv()
        if not text:
            self.position += len(data)
            return data
        message = json.loads(data)
        self.told.append(message)
        if message["type"] == "gap":
            assert message["from"] == self.position and message["to"] > message["from"]
            self.gaps.append((message["from"], message["to"]))
            self.position = message["to"]
        elif message["type"] == "keyframe":
            assert message["position"] == self.position
            self.keyframe = base64.b64decode(message["data"])
        elif message["type"] == "role":
            self.role = message["role"]
        elif message["type"] == "exit":
            self.exit = message
        return message

    def until(self, what, seconds=20):
        """All output up to and with `what` (bytes), or the first message of this type (str)."""
        output, end = b"", time.monotonic() + seconds * harness.SLOW
        while True:
            got = self.step()
            if isinstance(got, bytes):
                output += got
                if isinstance(what, bytes) and what in output:
                    return output
            elif got["type"] == what:
                return got
            assert time.monotonic() < end, f"no {what!r} in {output[-500:]!r}"

    def drain(self):
        """Output until the socket is closed, and the code."""
        output = b""
        try:
            while True:
                got = self.step()
                if isinstance(got, bytes):
                    output += got
        except Closed as closed:
            return output, closed.code
