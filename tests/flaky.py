"""A TCP proxy that breaks connections at the worst moment, for tests of clients.

`cut(n)` makes it swallow the next n answers: the request has reached the server and was done, the client
sees its connection break.
"""
import re
import socket
import threading


class Flaky:
    def __init__(self, port):
        self.port, self.cuts = port, 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, count):
        with self.lock:
            self.cuts = count

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = socket.create_connection(("127.0.0.1", self.port))
        threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
        try:
            while data := server.recv(65536):
                with self.lock:
                    cut = self.cuts > 0
                    self.cuts -= cut
                if cut:
                    break
                client.sendall(data)
        except OSError:
            pass
        finally:
            for sock in (client, server):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                sock.close()

    def _pump(self, client, server):
        try:
            while data := client.recv(65536):
                # The server knows itself by its own port only.
                server.sendall(re.sub(rb"(?i)\r\nhost: [^\r]*", b"\r\nHost: 127.0.0.1:%d" % self.port, data))
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()


class Scripted:
    """A server that gives one canned answer after another, and keeps the requests' heads."""

    def __init__(self, *answers):
        self.answers, self.heads = list(answers), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while self.answers:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                head = b""
                while b"\r\n\r\n" not in head and (data := client.recv(65536)):
                    head += data
                self.heads.append(head.decode("latin-1"))
                client.sendall(self.answers.pop(0))

    def close(self):
        self.listener.close()


def answer(status, body=b"{}", *headers):
    lines = [f"HTTP/1.1 {status} x", "Content-Type: application/json", f"Content-Length: {len(body)}",
             "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
