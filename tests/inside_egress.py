"""Run inside a sandbox by tests/e2e/test_egress_table.py: makes the connections that a table describes and says
what came of each. No libraries: what is sent is exactly what the table says.

    inside_egress.py < rows.json > results.json

Rows are made one after the other, and behind each a request that is denied: its record says where those of the row end.

A row is a list of steps on one socket, in the words of STEPS; its result is the list of what the steps gave,
cut off at the first that failed, with the failure as the last word: "refused", "closed", "silent"…
"""
import base64
import errno
import json
import os
import socket
import ssl
import struct
import sys
import time

SECONDS = 8
PACE = 0.02  # a row at most so often: no more records of a sandbox are kept than 200 in a second
FAILED = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "closed", errno.EPIPE: "closed",
          errno.ENETUNREACH: "unreachable", errno.EHOSTUNREACH: "unreachable", errno.EADDRNOTAVAIL: "unreachable",
          errno.EINVAL: "unreachable", errno.EPERM: "forbidden", errno.EACCES: "forbidden", errno.ETIMEDOUT: "silent",
          errno.EPROTONOSUPPORT: "forbidden", errno.EAFNOSUPPORT: "forbidden", errno.ESOCKTNOSUPPORT: "forbidden"}


class Failed(Exception):
    pass


class Row:
    def __init__(self):
        self.sock = None

    def proxy(self):
        """A connection to the proxy that the environment names."""
        host, port = os.environ.get("HTTP_PROXY",
                                    "http://198.18.0.1:3128").removeprefix("http://").rstrip("/").split(":")
        self.sock = socket.create_connection((host, int(port)), SECONDS)
        return "ok"

    def dial(self, host, port):
        """As a program that knows of no proxy."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError):
            raise Failed("no name")
        self.sock = socket.socket(found[0][0], socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(found[0][4])
        return "ok"

    def send(self, data):
        self.sock.sendall(base64.b64decode(data))
        return "ok"

    def line(self):
        data = b""
        while not data.endswith(b"\r\n"):
            byte = self.sock.recv(1)
            if not byte:
                raise Failed("closed")
            data += byte
        return data[:-2]

    def exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise Failed("closed")
            data += more
        return data

    def reply(self, body=True):
        """One HTTP answer: [status, body]."""
        words = self.line().split(b" ", 2)
        if not words[0].startswith(b"HTTP/1."):
            raise Failed("no answer")
        status, length, chunked = int(words[1]), 0, False
        while line := self.line():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            chunked |= name.lower() == b"transfer-encoding"
        if status < 200 or status in (204, 304) or not body:
            return [status, ""]
        if not chunked:
            return [status, self.exactly(length).decode("latin-1")]
        text = b""
        while size := int(self.line(), 16):
            text += self.exactly(size)
            self.line()
        self.line()
        return [status, text.decode("latin-1")]

    def tls(self, name, version=None):
        """A handshake; the certificate is not looked at, because the far end's name is in the answers."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if version == "1.2":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.sock = context.wrap_socket(self.sock, server_hostname=name)
        except (ssl.SSLError, ConnectionError):
            raise Failed("closed")
        return "tls"

    def echo(self, text):
        self.sock.sendall(text.encode())
        got = self.exactly(len(text))
        return "echo" if got == text.encode() else "other"

    def end(self):
        """The other side ends it, without another byte."""
        try:
            return "more" if self.sock.recv(1) else "end"
        except ConnectionError:
            return "end"

    def datagram(self, host, port, data):
        """UDP: whether anything came back."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if host[-1].isalpha():
            host = socket.getaddrinfo(host, port, socket.AF_INET)[0][4][0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(1)
            sock.connect((host, port))
            sock.send(base64.b64decode(data))
            return "answer" if sock.recv(4096) else "answer"

    def make(self, family, kind, protocol):
        """A socket of another kind, sent through if it can be made."""
        with socket.socket(getattr(socket, family), getattr(socket, kind), protocol) as sock:
            sock.settimeout(1)
            sock.connect(("45.66.0.1", 443))
            sock.send(b"\x08\0\xf7\xff\0\0\0\0")
            return "sent"

    def dns(self, server, query, tcp=False):
        """[rcode, [answers as hex]] to a query of these bytes."""
        query = base64.b64decode(query)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as sock:
            sock.settimeout(2)
            sock.connect((server, 53))
            self.sock = sock
            if tcp:
                sock.sendall(struct.pack("!H", len(query)) + query)
                data = self.exactly(struct.unpack("!H", self.exactly(2))[0])
            else:
                sock.send(query)
                data = sock.recv(4096)
        return [data[3] & 15, answers(data)]


def skip_name(data, at):
    while data[at] and data[at] < 192:
        at += 1 + data[at]
    return at + (2 if data[at] else 1)


def answers(data):
    questions, count = struct.unpack("!HH", data[4:8])
    at, found = 12, []
    for _ in range(questions):
        at = skip_name(data, at) + 4
    for _ in range(count):
        at = skip_name(data, at)
        size = struct.unpack("!H", data[at + 8:at + 10])[0]
        found.append(data[at + 10:at + 10 + size].hex())
        at += 10 + size
    return found


def run(steps):
    row, got = Row(), []
    try:
        for name, *args in steps:
            got.append(getattr(row, name)(*args))
    except Failed as failed:
        got.append(str(failed))
    except TimeoutError:
        got.append("silent")
    except OSError as error:
        got.append(FAILED.get(error.errno, f"errno {error.errno} {error}"))
    finally:
        if row.sock:
            row.sock.close()
    return got


def mark(number):
    host = f"mark-{number}.evil.example"
    text = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    return run([["proxy"], ["send", base64.b64encode(text).decode()], ["reply"]])[-1][0] == 403


if __name__ == "__main__":
    results = []
    for number, steps in enumerate(json.load(sys.stdin)):
        began = time.monotonic()
        results.append(run(steps))
        if not mark(number):
            sys.exit(f"no record behind row {number}")
        time.sleep(max(0, began + PACE - time.monotonic()))
    print(json.dumps(results))
