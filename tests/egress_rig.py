"""The egress process by itself: this is its warden and its api process, over the same descriptors, in a closed
world (tests/world.py). Sandboxes are network namespaces made as the warden makes them, without its program:
a listener for each port in their place.
"""
import array
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time

import harness
import world

SELF, PROXY = "198.18.0.1", 3128
WIRE, EGRESS = 0x4C4F5441, 0x53524745
HELLO, READY, PING, PONG = 1, 2, 6, 7
VERDICTS = dict(enumerate(("allowed", "denied", "refused", "malformed", "misled", "unresolved", "unreached", "limited",
                           "distrusted", "timeout", "asked"), 1))
KINDS = {1: "http", 2: "connect", 3: "tls", 4: "tcp", 5: "self", 6: "https"}
CONFIG, POLICY, FORGET, SYNCED, ANSWER, DECISION, FLOW, ASK, UNASK, LOST, INJECT, AUTHORITY, USED = range(1,
                                                                                                               14)
KEPT, KEPT_SIZE = 2, 1120 << 10  # EGRESS_KEPT of the wire, and how much that is


def verbs():
    """Numbers of the last three wire verbs, which move when others are added before them."""
    names = []
    inside = False
    for line in (harness.ROOT / "src/wire/wire.h").read_text().splitlines():
        if line.startswith("enum wire_verb"):
            inside = True
        elif inside and line.startswith("}"):
            break
        elif inside and line.strip().startswith("WIRE_"):
            names.append(line.strip().split(",")[0].split(" ")[0])
    return {name: number + 1 for number, name in enumerate(names)}


VERBS = verbs()
WIRE_VERSION = int(re.search(r"#define WIRE_VERSION (\d+)", (harness.ROOT / "src/wire/wire.h").read_text())[1])


def text(data):
    return data.split(b"\0")[0].decode()


class Sandbox:
    """A network in which every address is local, with listeners; `run` is what a program inside does."""

    def __init__(self, here, name, ports=(PROXY, 80, 443)):
        self.name, self.here = name, here
        self.namespace = world.in_thread(here.make_namespace)
        here.ip(self.namespace, "link set lo up")
        here.ip(self.namespace, "route add local 0.0.0.0/0 dev lo")

        def make():
            world.enter(self.namespace)
            listeners = []
            for port in ports:
                sock = socket.socket()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("0.0.0.0", port))
                sock.listen(1024)
                sock.setblocking(False)
                listeners.append(sock)
            dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            dns.bind(("0.0.0.0", 53))
            dns.setsockopt(socket.IPPROTO_IP, socket.IP_PKTINFO if hasattr(socket, "IP_PKTINFO") else 8, 1)
            dns.setblocking(False)
            return listeners + [dns]

        self.sockets = world.in_thread(make)
        self.kept = os.memfd_create("kept")
        os.ftruncate(self.kept, KEPT_SIZE)

    def run(self, fn):
        def inside():
            world.enter(self.namespace)
            return fn()

        return world.in_thread(inside)

    def close(self):
        for sock in self.sockets:
            sock.close()
        os.close(self.kept)


class Egress:
    def __init__(self, here, resolver=world.RESOLVER, without=None, timeouts=(0, 0)):
        """`without`: the program of the tests whose guard of this name is left out ("": none is). `timeouts`: in ms,
        for answers and streams."""
        self.timeouts = timeouts
        self.here, self.resolver, self.without = here, resolver, without
        self.boxes, self.decisions, self.flows, self.asks, self.lost = {}, [], [], [], 0
        self.policies, self.authorities, self.used = {}, {}, {}
        self.key = os.urandom(32)
        self.start()

    def start(self):
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd, key, roots = theirs.fileno(), os.memfd_create("key"), os.memfd_create("roots")
        os.write(key, self.key)
        os.write(roots, self.here.authority.path.read_bytes())

        def place():
            link, private, pem = os.dup(fd), os.dup(key), os.dup(roots)  # away from the places they go to
            os.dup2(link, 3)
            os.dup2(private, 4)
            os.dup2(pem, 5)

        program, env = harness.BIN, dict(os.environ)
        if self.without is not None:
            program, env["ATOLL_WITHOUT"] = harness.BUILD / "unguarded" / "atoll", self.without
        self.process = subprocess.Popen([str(program), "egress", "0", "0"], env=env,
                                        close_fds=False, preexec_fn=place, stderr=subprocess.PIPE)
        theirs.close()
        os.close(key)
        os.close(roots)
        verb, _ = self.hear()
        assert verb == HELLO
        self.say(HELLO, struct.pack("<III", 1, os.getpid(), 0))
        verb, _ = self.hear()
        assert verb == READY, self.process.stderr.read()
        self.introduce()
        for slot, box in self.boxes.items():
            self.tell(slot, box)

    def introduce(self):
        self.peer, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.say(VERBS["WIRE_EGRESS_PEER"], b"", [theirs.fileno()])
        theirs.close()
        servers = b"".join(self.address(self.resolver, 53) if i == 0 else bytes(20) for i in range(3))
        self.send(CONFIG, servers + struct.pack("<I", 1) + self.address("11.0.0.99", 0) + bytes(20 * 63)
                  + struct.pack("<II", *self.timeouts))
        for name, lines in self.policies.items():
            self.policy(name, *lines)
        self.send(SYNCED)

    @staticmethod
    def address(address, port):
        return struct.pack("<BBH", 4, 0, port) + socket.inet_aton(address).ljust(16, b"\0")

    def say(self, verb, body, fds=()):
        message = struct.pack("<IHHIi", WIRE, WIRE_VERSION, verb, 1, 0) + body.ljust(496, b"\0")
        self.link.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def hear(self):
        data = self.link.recv(4096)
        if not data:
            raise RuntimeError(self.process.stderr.read().decode())
        return struct.unpack_from("<H", data, 6)[0], data[16:]

    def send(self, verb, body=b"", number=0):
        self.peer.send(struct.pack("<IHHII", EGRESS, 1, verb, number, len(body)) + body)

    def tell(self, slot, box):
        body = box.name.encode().ljust(40, b"\0") + struct.pack("<II", slot, KEPT)
        self.say(VERBS["WIRE_EGRESS_BOX"], body, [s.fileno() for s in box.sockets] + [box.kept])

    def add(self, name, *lines, **kw):
        box = Sandbox(self.here, name, **kw)
        self.boxes[len(self.boxes) + 1] = box
        self.policy(name, *lines)
        self.tell(len(self.boxes), box)
        return box

    def gone(self, slot):
        self.say(VERBS["WIRE_EGRESS_GONE"], bytes(40) + struct.pack("<II", slot, 0))

    def policy(self, name, *lines, version=1, used=0):
        self.policies[name] = lines
        written = "".join(f"{line}\n" for line in lines).encode()
        data = subprocess.run([harness.BUILD / "rules", str(version)], input=written, capture_output=True,
                              check=True).stdout
        self.send(POLICY, name.encode().ljust(40, b"\0") + struct.pack("<QQII", version, used, len(data), 0) + data)

    def inject(self, name, *lines, key=None):
        """What goes into the requests of a sandbox: lines of words that tests/peers/creds.c takes."""
        written = "".join("\t".join(line) + "\n" for line in lines).encode()
        data = subprocess.run([harness.BUILD / "creds", (key or self.key).hex()], input=written, capture_output=True,
                              check=True).stdout
        self.send(INJECT, name.encode().ljust(40, b"\0") + struct.pack("<II", len(data), 0) + data)

    def take(self, wait=0.0):
        """Reads what it said until nothing more comes for so long."""
        while select.select([self.peer], [], [], wait)[0]:
            data = self.peer.recv(200000)
            if not data:
                return
            while data:
                size = 16 + struct.unpack_from("<I", data, 12)[0]
                self.heard(data[:size])
                data = data[size:]

    def heard(self, data):
        """One message; several may come at once."""
        verb, number = struct.unpack_from("<H", data, 6)[0], struct.unpack_from("<I", data, 8)[0]
        body = data[16:]
        if verb in (DECISION, ASK):
            serial, version, _, pid, request, port, kind, verdict, reason = struct.unpack_from(
                "<QQqIIHBBI", body, 40)
            one = {"box": text(body[:33]), "serial": serial, "version": version, "pid": pid, "request": request,
                   "port": port, "kind": KINDS[kind], "verdict": VERDICTS[verdict], "reason": reason,
                   "host": text(body[80:336]),
                   "rule": text(body[336:464]), "text": text(body[464:592]), "number": number,
                   "method": text(body[592:616]), "path": text(body[616:872])}
            (self.asks if verb == ASK else self.decisions).append(one)
        elif verb == FLOW:
            serial, started, ended, sent, received, pid, request = struct.unpack_from("<QqqQQII", body, 40)
            family, _, port = struct.unpack_from("<BBH", body, 88)
            self.flows.append({"box": text(body[:33]), "serial": serial, "sent": sent, "received": received,
                               "request": request, "port": port, "address": socket.inet_ntoa(body[92:96]),
                               "kind": KINDS[body[110]], "revoked": body[111], "host": text(body[112:])})
        elif verb == USED:
            self.used[text(body[:33])] = struct.unpack_from("<Q", body, 40)[0]
        elif verb == AUTHORITY:
            size, subject = struct.unpack_from("<II", body, 40)
            self.authorities.setdefault(text(body[:33]), []).append((body[48:], f"{subject:08x}"))
            assert len(body) == 48 + size
        elif verb == LOST:
            self.lost += struct.unpack("<Q", body)[0]

    def authority(self, name, count=1, timeout=10):
        """Path of a file with what this sandbox is to trust, once it was said so often."""
        end = time.monotonic() + timeout
        while len(self.authorities.get(name, [])) < count and time.monotonic() < end:
            self.take(0.05)
        path = os.path.join(self.here.directory, f"{name}.pem")
        with open(path, "wb") as file:
            file.write(self.authorities[name][-1][0])
        return path

    def decided(self, count=1, timeout=10):
        """The next decisions, at least so many; the list is empty afterwards."""
        end = time.monotonic() + timeout
        while len(self.decisions) < count and time.monotonic() < end:
            self.take(0.05)
        got, self.decisions = self.decisions, []
        assert len(got) >= count, (count, got)
        return got

    def flowed(self, count=1, timeout=10):
        end = time.monotonic() + timeout
        while len(self.flows) < count and time.monotonic() < end:
            self.take(0.05)
        got, self.flows = self.flows, []
        assert len(got) >= count, (count, got)
        return got

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()
        self.link.close()
        self.peer.close()

    def close(self):
        self.link.close()
        self.process.wait(10)
        errors = self.process.stderr.read().decode()
        self.process.stderr.close()
        self.peer.close()
        for box in self.boxes.values():
            box.close()
        return errors
