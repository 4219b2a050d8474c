"""Remote calls for tests: one way to say "call this method with that, and tell what came back", whatever client
library and wire protocol carries it.

Messages are dictionaries, as the JSON of proto3 has them. What comes back is a Result: the status's name as
Connect spells it ("ok", "not_found"), its text, and all messages. The descriptors are those that the server
itself embeds (build/gen/protos.pb), so there are no generated stubs.
"""
import json
import queue
import subprocess
import threading

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

import harness

PEERS = harness.ROOT / "tests" / "peers"
DESCRIPTORS = harness.BUILD / "gen" / "protos.pb"
SANDBOX = "sandbox.v1.SandboxService"


class Result:
    def __init__(self, code, message, messages):
        self.code, self.message, self.messages = code, message, messages

    @property
    def ok(self):
        """The only message of a call that went well."""
        assert self.code == "ok" and len(self.messages) == 1, self
        return self.messages[0]

    def __repr__(self):
        return f"<{self.code} {self.message!r} {str(self.messages)[:500]}>"


class Files:
    """The .proto files as Python knows them."""

    def __init__(self, path=DESCRIPTORS):
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)
        self.factory = message_factory.MessageFactory(self.pool)

    def method(self, service, name):
        return self.pool.FindServiceByName(service).FindMethodByName(name)

    def type(self, name):
        return self.factory.GetPrototype(self.pool.FindMessageTypeByName(name))

    def request(self, service, name, fields):
        made = self.factory.GetPrototype(self.method(service, name).input_type)()
        return json_format.ParseDict(fields, made)

    def reply(self, service, name, data):
        return self.factory.GetPrototype(self.method(service, name).output_type).FromString(data)


class Grpcio:
    """Python's grpcio."""
    name = "grpcio"

    def __init__(self, server, files=None):
        self.server, self.files = server, files or Files()
        self.channel = grpc.insecure_channel(server.host)

    def metadata(self, token, headers=None):
        token = self.server.token if token == "admin" else token
        return ((("authorization", "Bearer " + token),) if token else ()) + tuple((headers or {}).items())

    def begin(self, method, fields, service=SANDBOX, token="admin", timeout=30, raw=None, headers=None, hold=None):
        """The call under way, as an iterator of messages. A list of fields is a stream of requests, which ends
        when the event `hold` is set."""
        def say(one):
            return self.files.request(service, method, one).SerializeToString()

        def stream():
            yield from map(say, fields)
            if hold:
                hold.wait(timeout)

        many = isinstance(fields, list)
        data = raw if raw is not None else stream() if many else say(fields)
        kind = self.channel.stream_stream if many else self.channel.unary_stream
        call = kind(f"/{service}/{method}", lambda b: b, lambda b: self.files.reply(service, method, b))
        return call(data, timeout=timeout, metadata=self.metadata(token, headers))

    def call(self, method, fields=None, cancel_after=None, hold_for=0, **options):
        hold, messages = threading.Event() if hold_for else None, []
        call = self.begin(method, fields or {}, hold=hold, **options)
        try:
            if cancel_after == 0:
                call.cancel()
            for message in call:
                messages.append(json_format.MessageToDict(message))
                if hold_for and len(messages) == hold_for:
                    hold.set()
                if cancel_after is not None and len(messages) >= cancel_after:
                    call.cancel()
        except grpc.RpcError as error:
            name = error.code().name.lower()
            return Result("canceled" if name == "cancelled" else name, error.details(), messages)
        return Result("ok", "", messages)

    def close(self):
        self.channel.close()


class Node:
    """A client library of node's: tests/peers/rpc.mjs, told line by line."""

    def __init__(self, server, name):
        self.server, self.name, self.next, self.waiting = server, name, 0, {}
        self.process = subprocess.Popen(["node", "rpc.mjs", server.url, name, str(DESCRIPTORS)], cwd=PEERS, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            self.waiting.pop(answer["id"]).put(answer)

    def call(self, method, fields=None, service=SANDBOX, token="admin", timeout=30, cancel_after=None, headers=None,
             hold_for=0):
        """As Grpcio's: a list of fields is a stream of requests, open until hold_for messages are there."""
        token = self.server.token if token == "admin" else token
        self.next += 1
        self.waiting[self.next] = got = queue.Queue()
        wish = {"id": self.next, "service": service, "method": method, "token": token, "holdFor": hold_for,
                "requests": fields if isinstance(fields, list) else [fields or {}], "headers": headers or {},
                "timeoutMs": None if timeout is None else int(timeout * 1000), "cancelAfter": cancel_after}
        self.process.stdin.write(json.dumps(wish) + "\n")
        self.process.stdin.flush()
        answer = got.get(timeout=60)
        return Result(answer["code"], answer["message"], answer["messages"])

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


NODE = ["grpc-js", "connect-node-json", "connect-node-binary", "connect-node-grpc", "connect-node-grpc-web",
        "connect-node-http2", "connect-web-json", "connect-web-binary", "connect-web-grpc-web"]
TRANSPORTS = ["grpcio", *NODE]


def open_transport(server, name):
    return Grpcio(server) if name == "grpcio" else Node(server, name)


# ---- frames by hand, for what no library sends ----

def h2_frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def h2_headers(fields):
    """HPACK without any compression: literals, never indexed, new names."""
    out = b""
    for name, value in fields:
        for number, text in ((0x10, name), (None, value)):
            data = text.encode()
            assert len(data) < 127 * 2
            size = bytes([len(data)]) if len(data) < 127 else bytes([127, len(data) - 127])
            out += (b"\x10" if number else b"") + size + data
    return out


def grpc_head(server, method, token="admin", service=SANDBOX, **more):
    token = server.token if token == "admin" else token
    fields = [(":method", "POST"), (":scheme", "http"), (":path", f"/{service}/{method}"), (":authority", server.host),
              ("content-type", "application/grpc"), ("te", "trailers")]
    fields += [("authorization", "Bearer " + token)] if token else []
    return h2_headers(fields + [(k.replace("_", "-"), v) for k, v in more.items()])


def message(data):
    return b"\0" + len(data).to_bytes(4, "big") + data


H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0)
HEADERS, DATA, RST_STREAM = 1, 0, 3
END_STREAM, END_HEADERS = 1, 4
