"""A closed world for tests of what leaves a sandbox: an internet of our own, in two network namespaces.

  home      where the server under test runs: loopback, and one link out (HOME, HOME6)
  outside   everything else. Every address that is not home's is here, public, private or metadata: a
            packet that leaves home reaches our servers and is noted, whatever its destination

With `World() as world` the calling thread is at home until the end, and so is all that it starts. Nothing is
named, so nothing can be left behind: the namespaces end with their descriptors. No packet can reach
a real address, because no link leads there.

  world.zone[name] = [...]   what the name server answers: addresses, Alias(name), or a function of
                             the number of the question (0, 1, …) that gives such a list; SILENCE is no answer
                             at all. "*.x" is for all names below x
  world.lookups              every question, as (name, type)
  world.packets              every first packet that left home: (protocol, address, port); DNS to the
                             name server apart
  world.requests             every HTTP request that arrived, with its bytes
  world.streams              every connection to a port that echoes

Servers are threads of the test with sockets of the namespace `outside`: 80 and 8080 HTTP, 443 and 8443 HTTPS
(a certificate for any name, of the world's own CA), 9000 and 22 echo, 53 the name server.
"""
import contextlib
import ctypes
import datetime
import ipaddress
import itertools
import json
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

CLONE_NEWNET = 0x40000000
HOME, GATE = "11.0.0.2", "11.0.0.1"
HOME6, GATE6 = "2600:11::2", "2600:11::1"
RESOLVER = "11.0.0.53"
HTTP_PORTS, HTTPS_PORTS, ECHO_PORTS = (80, 8080), (443, 8443), (22, 9000)
TYPES = {1: "A", 5: "CNAME", 28: "AAAA"}
SECONDS = 10  # that a server waits for a client

libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace):
    """Moves this thread into the network namespace of a descriptor."""
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def in_thread(fn):
    """What fn() gives in a thread of its own, which may change its namespaces and ends."""
    got = {}

    def run():
        try:
            got["value"] = fn()
        except BaseException as error:  # noqa: B902 - told to who asked
            got["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in got:
        raise got["error"]
    return got["value"]


class Alias:
    """A CNAME in a zone."""

    def __init__(self, name):
        self.name = name


SILENCE = object()  # in a zone: such a question gets no answer


# ---- certificates ----


class Authority:
    """A CA that makes a certificate for each name it is asked for."""

    def __init__(self, directory):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        self.x509, self.hashes, self.serialization, self.ec = x509, hashes, serialization, ec
        self.directory = pathlib.Path(directory)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.cert = self.sign("World CA", None, self.key.public_key(), True)
        self.path = self.directory / "ca.pem"
        self.path.write_bytes(self.cert.public_bytes(serialization.Encoding.PEM))
        self.contexts, self.lock, self.numbers = {}, threading.Lock(), itertools.count()
        self.days = 30  # that certificates of hosts are good for; less than none: they are over

    def sign(self, common, alternative, public_key, is_ca):
        x509, now = self.x509, datetime.datetime.utcnow()
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common[:64])])
        issuer = name if is_ca else self.cert.subject
        made = (x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(public_key)
                .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=9))
                .not_valid_after(now + datetime.timedelta(days=30 if is_ca else self.days))
                .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True))
        if alternative:
            made = made.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        return made.sign(self.key, self.hashes.SHA256())

    def context(self, name):
        """A server's TLS context for this name or address."""
        with self.lock:
            if name not in self.contexts:
                self.contexts[name] = self.make(name)
            return self.contexts[name]

    def make(self, name):
        try:
            alternative = self.x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            alternative = self.x509.DNSName(name)
        key = self.ec.generate_private_key(self.ec.SECP256R1())
        cert = self.sign(name, alternative, key.public_key(), False)
        ser = self.serialization
        path = self.directory / f"leaf-{next(self.numbers)}.pem"
        path.write_bytes(cert.public_bytes(ser.Encoding.PEM) + key.private_bytes(
            ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption()))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.set_alpn_protocols(["http/1.1"])
        return context


# ---- the name server ----


def read_question(data):
    """(name, type, where the question ends) of a query."""
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
        at += 1 + data[at]
    return ".".join(labels), struct.unpack("!H", data[at + 1:at + 3])[0], at + 5


def name_bytes(name):
    return b"".join(bytes([len(x)]) + x.encode("latin-1") for x in name.rstrip(".").split(".")) + b"\0"


def record(name, kind, data):
    return name_bytes(name) + struct.pack("!HHIH", kind, 1, 0, len(data)) + data


class Names:
    """Answers from the zone and remembers what it was asked."""

    def __init__(self, world):
        self.world, self.counts = world, {}

    def entry(self, name):
        zone = self.world.zone
        if name in zone:
            return zone[name]
        labels = name.split(".")
        for at in range(1, len(labels)):
            pattern = "*." + ".".join(labels[at:])
            if pattern in zone:
                return zone[pattern]
        return None

    def records(self, name, kind, depth=0):
        found = self.entry(name.lower())
        if found is None:
            return None
        if callable(found):
            number = self.counts.get((name, kind), 0)
            self.counts[name, kind] = number + 1
            found = found(number)
        out = []
        for item in found:
            if item is SILENCE:
                return [SILENCE]
            if isinstance(item, Alias):
                out.append(record(name, 5, name_bytes(item.name)))
                out += (self.records(item.name, kind, depth + 1) or []) if depth < 8 else []
                continue
            address = ipaddress.ip_address(item)
            if kind == (1 if address.version == 4 else 28):
                out.append(record(name, kind, address.packed))
        return out

    def answer(self, query):
        name, kind, end = read_question(query)
        self.world.lookups.append((name.lower(), TYPES.get(kind, kind)))
        found = self.records(name, kind)
        if found == [SILENCE]:
            return None
        flags = 0x8180 | (3 if found is None else 0)
        head = query[:2] + struct.pack("!HHHHH", flags, 1, len(found or []), 0, 0)
        return head + query[12:end] + b"".join(found or [])

    def serve_udp(self, sock):
        while True:
            query, peer = sock.recvfrom(4096)
            with contextlib.suppress(IndexError, struct.error):
                reply = self.answer(query)
                if reply:
                    sock.sendto(reply, peer)


# ---- the other servers ----


class Request:
    """One HTTP request as it arrived. `name` is the server name of TLS, None without TLS."""

    def __init__(self, address, port, name, head, body):
        self.address, self.port, self.tls_name, self.head, self.body = address, port, name, head, body
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.method, _, rest = lines[0].partition(" ")
        self.target = rest.rsplit(" ", 1)[0]
        self.fields = [tuple(x.split(": ", 1)) for x in lines[1:] if ": " in x]
        self.host = next((v for k, v in self.fields if k.lower() == "host"), None)

    def field(self, name):
        return next((v for k, v in self.fields if k.lower() == name.lower()), None)

    def __repr__(self):
        return f"<{self.address}:{self.port} {self.tls_name} {self.head!r} {self.body[:80]!r}>"


def read_http(file):
    """Head and body of the next request of a connection; None at its end."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline(65536)
        if not line:
            return (head, b"") if head else None
        head += line
    low = head.lower()
    if b"\r\ntransfer-encoding: chunked" in low:
        body = b""
        while size := int(file.readline().split(b";")[0] or b"0", 16):
            body += file.read(size)
            file.readline()
        file.readline()
        return head, body
    length = next((int(x.split(b":")[1]) for x in low.split(b"\r\n") if x.startswith(b"content-length:")), 0)
    return head, file.read(length)


class World:
    def __init__(self):
        self.zone = {}
        self.lookups, self.packets, self.requests, self.streams = [], [], [], []
        self.pages = {}  # (host, path) → (content type, bytes), a whole answer, or a function of the Request
        self.strict = set()  # hosts that have these pages and no others
        self.shown = {}  # server name → the name whose certificate is shown, or a context of TLS
        self.switched = {}  # (host, path) → what goes on after a 101: a function of connection, file, Request
        self.sockets = []
        self.cleanup = contextlib.ExitStack()

    # ---- life ----

    def __enter__(self):
        try:
            return self.begin()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if getattr(self, "before", None) is not None:
            enter(self.before)
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self.cleanup.close()

    def keep(self, fd):
        self.cleanup.callback(os.close, fd)
        return fd

    def begin(self):
        self.directory = self.cleanup.enter_context(tempfile.TemporaryDirectory(prefix="atoll-world-"))
        os.chmod(self.directory, 0o755)
        self.authority = Authority(self.directory)
        self.home, self.outside = in_thread(self.make_namespace), in_thread(self.make_namespace)
        self.link_up()
        self.serve()
        self.before = self.keep(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        enter(self.home)
        return self

    def make_namespace(self):
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        return self.keep(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    def path(self, namespace):
        return f"/proc/{os.getpid()}/fd/{namespace}"

    def ip(self, namespace, words):
        subprocess.run(["nsenter", f"--net={self.path(namespace)}", "ip", *words.split()], check=True)

    def link_up(self):
        home, outside = self.home, self.outside
        for namespace in (home, outside):
            self.ip(namespace, "link set lo up")
        self.ip(home, f"link add wan0 type veth peer name net0 netns {self.path(outside)}")
        self.ip(home, f"addr add {HOME}/30 dev wan0")
        self.ip(outside, f"addr add {GATE}/30 dev net0")
        self.ip(home, f"-6 addr add {HOME6}/64 dev wan0 nodad")
        self.ip(outside, f"-6 addr add {GATE6}/64 dev net0 nodad")
        self.ip(home, "link set wan0 up")
        self.ip(outside, "link set net0 up")
        self.ip(home, f"route add default via {GATE}")
        self.ip(home, f"-6 route add default via {GATE6}")
        # Not in the table `local`, which comes first: answers to home must leave.
        self.ip(outside, "route add local default dev lo table main")
        self.ip(outside, "-6 route add local default dev lo table main")

    # ---- servers ----

    def socket(self, *args):
        def make():
            enter(self.outside)
            return socket.socket(*args)
        sock = in_thread(make)
        self.sockets.append(sock)
        return sock

    def thread(self, fn, *args):
        def run():
            with contextlib.suppress(OSError, ValueError):
                fn(*args)
        threading.Thread(target=run, daemon=True).start()

    def serve(self):
        sniffer = self.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))  # ETH_P_ALL
        sniffer.bind(("net0", 3))
        self.thread(self.sniff, sniffer)
        names = self.socket(socket.AF_INET, socket.SOCK_DGRAM)
        names.bind((RESOLVER, 53))
        self.names = Names(self)
        self.thread(self.names.serve_udp, names)
        for ports, fn in ((HTTP_PORTS, self.on_http), (HTTPS_PORTS, self.on_https), (ECHO_PORTS, self.on_echo)):
            for port in ports:
                self.listen(port, fn)

    def listen(self, port, fn):
        """fn(connection, address it was made to, port) in a thread, for each connection."""
        sock = self.socket(socket.AF_INET6, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", port))
        sock.listen(1024)
        self.thread(self.accept, sock, fn)

    def accept(self, sock, fn):
        while True:
            conn, _ = sock.accept()
            conn.settimeout(SECONDS)
            address = conn.getsockname()[0].removeprefix("::ffff:")
            self.thread(self.one, fn, conn, address, conn.getsockname()[1])

    def one(self, fn, conn, address, port):
        with conn:
            fn(conn, address, port)

    def on_echo(self, conn, address, port):
        got = bytearray()
        self.streams.append((address, port, got))
        while data := conn.recv(65536):
            got += data
            conn.sendall(data)

    def on_https(self, conn, address, port):
        seen = []

        def on_name(tls, name, _):
            seen.append(name)
            shown = self.shown.get(name, name)
            if name:
                tls.context = shown if isinstance(shown, ssl.SSLContext) else self.authority.context(shown)

        context = self.authority.make(address)
        context.sni_callback = on_name
        with context.wrap_socket(conn, server_side=True) as tls:
            self.on_http(tls, address, port, seen[0])

    def on_http(self, conn, address, port, name=None):
        with conn.makefile("rb") as file:
            while (got := read_http(file)) is not None:
                request = Request(address, port, name, *got)
                self.requests.append(request)
                switch = self.switched.get(((request.host or "").split(":")[0], request.target))
                if switch and request.field("Upgrade"):
                    conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                 b"Connection: Upgrade\r\n\r\n")
                    switch(conn, file, request)
                    return
                conn.sendall(self.reply(request))
                if (request.field("Connection") or "").lower() == "close":
                    return

    def reply(self, request):
        host = (request.host or "").split(":")[0]
        page = self.pages.get((host, request.target.split("?")[0]))
        if callable(page):
            page = page(request)
        if isinstance(page, bytes):
            return page
        if page is None and host in self.strict:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        if page is None:
            page = ("application/json", json.dumps({
                "address": request.address, "port": request.port, "host": request.host, "tls": request.tls_name,
                "line": request.line, "fields": request.fields, "body": request.body.decode("latin-1")}).encode())
        kind, body = page
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        return head if request.method == "HEAD" else head + body

    # ---- what leaves home ----

    def sniff(self, sock):
        """Notes the first packet of each connection, and every other packet that is no answer to us."""
        while True:
            packet, (_, proto, kind, *_) = sock.recvfrom(65536)
            if kind == 4:  # PACKET_OUTGOING: our own answers
                continue
            found = first_packet(proto, packet)
            # A name server's late answer finds nobody: that is what the kernel tells it.
            late = found and found[:2] == ("icmp", RESOLVER) and packet[(packet[0] & 15) * 4] == 3
            if found and not late and found[1:] != (RESOLVER, 53):
                self.packets.append(found)

    def settle(self):
        """Waits until a packet sent now from home has been noted, so that those before it have been."""
        mark = ("udp", "11.99.99.99", 1 + len(self.packets) % 60000)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", mark[1:])
        end = time.monotonic() + SECONDS
        while mark not in self.packets:
            assert time.monotonic() < end, "the world does not hear its own packets"
            time.sleep(0.002)
        self.packets.remove(mark)


def first_packet(proto, packet):
    """(protocol, destination, port) of a packet that begins something; None for all others."""
    if proto == 0x0800:
        size, kind = (packet[0] & 15) * 4, packet[9]
        destination = socket.inet_ntop(socket.AF_INET, packet[16:20])
    elif proto == 0x86DD:
        size, kind = 40, packet[6]
        destination = socket.inet_ntop(socket.AF_INET6, packet[24:40])
    else:
        return None
    rest = packet[size:]
    if kind == 6:
        flags = rest[13]
        return ("tcp", destination, struct.unpack("!H", rest[2:4])[0]) if flags & 0x12 == 0x02 else None
    if kind == 17:
        return ("udp", destination, struct.unpack("!H", rest[2:4])[0])
    if kind == 58 and rest[0] in range(130, 138) or kind in (0, 2):
        return None  # neighbours finding each other
    return ({1: "icmp", 58: "icmp6"}.get(kind, str(kind)), destination, 0)
