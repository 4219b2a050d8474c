"""Files into and out of a sandbox by REST, beside a server that does nothing else: sendfile out, recv and write in.

Both keep the file in memory (a tmpfs), both are asked by the same client over loopback, one request at a time; the
bytes that come back are compared once.
"""
import hashlib
import os
import pathlib
import socket
import statistics
import tempfile
import threading
import time

import rest

MEGABYTES = 48
TARGET = 0.5
PIECE = 1 << 20
LIMITS = {**rest.LIMITS, "disk": 128 << 20}


class Plain:
    """GET and PUT of one file, a thread for each connection."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.path = pathlib.Path(self.dir.name) / "file"
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                peer, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        with peer:
            while True:
                head, rest_ = read_head(peer)
                if not head:
                    return
                if head.startswith(b"GET"):
                    self.give(peer)
                else:
                    self.take(peer, head, rest_)

    def give(self, peer):
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            peer.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
            at = 0
            while at < size:
                at += os.sendfile(peer.fileno(), file.fileno(), at, size - at)

    def take(self, peer, head, rest_):
        left, room = length(head) - len(rest_), bytearray(PIECE)
        new = self.path.with_suffix(".new")
        with open(new, "wb", buffering=0) as file:
            file.write(rest_)
            while left:
                got = peer.recv_into(room, min(left, PIECE))
                if not got:
                    return
                file.write(memoryview(room)[:got])
                left -= got
        new.rename(self.path)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def close(self):
        self.sock.close()
        self.dir.cleanup()


def read_head(sock):
    got = b""
    while b"\r\n\r\n" not in got:
        more = sock.recv(65536)
        if not more:
            return b"", b""
        got += more
    head, rest_ = got.split(b"\r\n\r\n", 1)
    return head, rest_


def length(head):
    return int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])


def answer(sock, keep=None):
    """The rest of an answer; its body only if there is somewhere to put it."""
    head, rest_ = read_head(sock)
    if not head.startswith(b"HTTP/1.1 20"):
        raise AssertionError(f"{head[:200]!r} {rest_[:300]!r}")
    left, room = length(head) - len(rest_), bytearray(PIECE)
    if keep is not None:
        keep.update(rest_)
    while left:
        got = sock.recv_into(room, min(left, PIECE))
        if not got:
            raise AssertionError("the connection was closed")
        if keep is not None:
            keep.update(memoryview(room)[:got])
        left -= got


def upload(sock, path, head, data):
    sock.sendall(f"PUT {path} {head}Content-Length: {len(data)}\r\n\r\n".encode())
    sock.sendall(data)
    answer(sock)


def download(sock, path, head, keep=None):
    sock.sendall(f"GET {path} {head}\r\n".encode())
    answer(sock, keep)


def rate(fn, *args):
    began = time.perf_counter()
    fn(*args)
    return (MEGABYTES << 20) / (time.perf_counter() - began) / 1e6


def files(bench):
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    plain, server = Plain(), rest.start(bench)
    kept = rest.Kept(server)
    data = os.urandom(MEGABYTES << 20)
    got = {f"{what} {who}": [] for what in ("upload", "download") for who in ("atoll", "plain")}
    try:
        box = kept.ask("POST", rest.BOXES, LIMITS)["id"]
        peer = socket.create_connection(("127.0.0.1", plain.port))
        ends = {"atoll": (kept.sock, f"{rest.BOXES}/{box}/files?path=/tmp/file", kept.head),
                "plain": (peer, "/file", "HTTP/1.1\r\nHost: plain\r\n")}
        for number in range(bench.rounds + 1):
            for who, end in ends.items():
                up, down = rate(upload, *end, data), rate(download, *end)
                if number:
                    got[f"upload {who}"].append(up)
                    got[f"download {who}"].append(down)
        digest = hashlib.sha256()
        download(*ends["atoll"], digest)
        if digest.digest() != hashlib.sha256(data).digest():
            raise AssertionError("other bytes came back")
        peer.close()
        kept.ask("DELETE", f"{rest.BOXES}/{box}")
    finally:
        kept.close()
        server.stop()
        plain.close()
    bench.figures["files"] = got
    for what in "upload", "download":
        ours, theirs = got[f"{what} atoll"], got[f"{what} plain"]
        ratio = statistics.median(a / b for a, b in zip(ours, theirs))
        bench.row(f"{what} of a file vs a plain server (sendfile)", statistics.median(ours), statistics.median(theirs),
                  ratio, f">= {TARGET} x", ratio >= TARGET, "MB/s")
