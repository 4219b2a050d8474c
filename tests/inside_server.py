"""Runs inside a sandbox: answers on a port with whatever the test wants, byte by byte.

  /echo            what arrived: head lines and body, as JSON
  /raw?HEX         these bytes, then the end
  /sse             an event each time a file /tmp/tick grows, for ever
  /big?COUNT       COUNT bytes in chunks, of a known pattern
  /slow            a body by length, half of it, then nothing until the connection ends
  /ws              a WebSocket's handshake, then every byte comes back
  /chat            a WebSocket that answers a short text with the same
  /page            HTML whose script is inside_page.js beside this file, with cookies that are none of its business
"""
import base64
import hashlib
import json
import os
import socketserver
import sys
import time

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PATTERN = bytes(range(256)) * 256


class Handler(socketserver.StreamRequestHandler):
    def head(self):
        lines = []
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            lines.append(line.decode("latin-1").rstrip("\r\n"))
        return lines

    def body(self, fields):
        if fields.get("transfer-encoding") == "chunked":
            got = b""
            while size := int(self.rfile.readline(), 16):
                got += self.rfile.read(size)
                self.rfile.readline()
            return got
        return self.rfile.read(int(fields.get("content-length", "0")))

    def say(self, data):
        self.wfile.write(data)
        self.wfile.flush()

    def chunk(self, data):
        self.say(b"%x\r\n%s\r\n" % (len(data), data))

    def handle(self):
        lines = self.head()
        if not lines:
            return
        target = lines[0].split()[1]
        path, _, query = target.partition("?")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        if path == "/raw":
            self.say(bytes.fromhex(query))
        elif path == "/sse":
            self.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            seen = -1
            while True:
                now = os.path.getsize("/tmp/tick") if os.path.exists("/tmp/tick") else 0
                if now != seen:
                    self.chunk(b"data: %d\n\n" % now)
                    seen = now
                time.sleep(0.01)
        elif path == "/big":
            self.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            left = int(query)
            while left:
                piece = PATTERN[:min(left, len(PATTERN))]
                self.chunk(piece)
                left -= len(piece)
                with open("/tmp/sent", "w") as sent:
                    sent.write(str(int(query) - left))
            self.say(b"0\r\n\r\n")
        elif path == "/slow":
            self.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
            self.rfile.read(1)
            open("/tmp/left", "w").close()
        elif path == "/page":
            page = (b"<!doctype html><title>inside</title><h1>Served inside</h1><p id=told>nothing yet</p><script>" +
                    open("/workspace/inside_page.js", "rb").read() + b"</script>")
            self.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n"
                     b"Set-Cookie: atoll_session=evil; Path=/\r\nSet-Cookie: theirs=1; Path=/\r\n\r\n%s" %
                     (len(page), page))
        elif path in ("/ws", "/chat"):
            key = next(line.split(": ", 1)[1] for line in lines if line.lower().startswith("sec-websocket-key"))
            accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
            self.say(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     b"Sec-WebSocket-Accept: %s\r\n\r\n" % accept.encode())
            while path == "/ws" and (data := self.request.recv(65536)):
                self.request.sendall(data)
            while path == "/chat" and len(head := self.rfile.read(6)) == 6:
                text = bytes(b ^ head[2 + i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
                self.say(bytes([head[0], len(text)]) + text)
        else:
            body = self.body(fields)
            text = json.dumps({"lines": lines, "body": base64.b64encode(body).decode()}).encode()
            self.say(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text))
            if not lines[0].startswith("HEAD "):
                self.say(text)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    address_family = __import__("socket").AF_INET6 if sys.argv[2:] == ["6"] else __import__("socket").AF_INET


Server(("::1" if sys.argv[2:] == ["6"] else "127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
