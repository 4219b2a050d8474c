"""The closed world of the egress tests (tests/world.py): it hears everything that leaves home, nothing of it
is left behind, and a server that runs in it is reached as always."""
import os
import socket
import subprocess

import pytest
import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def namespace():
    return os.stat("/proc/thread-self/ns/net").st_ino


def links():
    return sorted(os.listdir("/sys/class/net"))


def curl(*args):
    done = subprocess.run(["curl", "-sS", "-m", "10", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout


def ask(name, kind=1):
    """The bytes of the name server's answer; None when it stays silent."""
    query = b"\0\1\1\0\0\1\0\0\0\0\0\0" + world.name_bytes(name) + bytes([0, kind, 0, 1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        sock.sendto(query, (world.RESOLVER, 53))
        try:
            return sock.recv(4096)
        except TimeoutError:
            return None


def test_names_are_answered_and_every_question_noted():
    with world.World() as here:
        here.zone.update({
            "one.example": ["45.1.2.3"], "*.alias.example": [world.Alias("one.example")],
            "turns.example": lambda number: ["45.1.2.3"] if number == 0 else ["127.0.0.1"],
            "mute.example": [world.SILENCE],
        })
        one, local = socket.inet_aton("45.1.2.3"), socket.inet_aton("127.0.0.1")
        assert ask("One.Example").endswith(one)
        assert ask("x.y.alias.example").endswith(one) and b"\3one\7example" in ask("a.alias.example")
        assert [ask("turns.example")[-4:] for _ in range(3)] == [one, local, local]
        assert ask("absent.example")[3] & 15 == 3, "no such name"
        assert ask("mute.example") is None
        assert ask("one.example", 28)[6:8] == b"\0\0", "no address of version 6"
        assert ("one.example", "AAAA") in here.lookups and ("absent.example", "A") in here.lookups
        assert len(here.lookups) == 9


def test_every_address_is_in_it_and_every_packet_noted():
    with world.World() as here:
        assert '"address": "45.1.2.3"' in curl("http://45.1.2.3/")
        assert '"address": "169.254.169.254"' in curl("http://169.254.169.254/latest/meta-data/")
        assert '"tls": "shop.example"' in curl("--cacert", here.authority.path, "--connect-to",
                                               "::[2600:9::9]:", "https://shop.example/")
        with socket.create_connection(("45.7.7.7", 9000), 5) as sock:
            sock.sendall(b"hello")
            assert sock.recv(16) == b"hello"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"a secret", ("8.8.8.8", 53))
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
            sock.sendto(b"\x08\0\xf7\xff\0\0\0\0", ("9.9.9.9", 0))
        with pytest.raises(OSError):
            socket.create_connection(("10.1.1.1", 4444), 5)
        here.settle()
        assert here.packets == [
            ("tcp", "45.1.2.3", 80), ("tcp", "169.254.169.254", 80), ("tcp", "2600:9::9", 443),
            ("tcp", "45.7.7.7", 9000), ("udp", "8.8.8.8", 53), ("icmp", "9.9.9.9", 0), ("tcp", "10.1.1.1", 4444)]
        assert [(r.address, r.tls_name, r.method) for r in here.requests] == [
            ("45.1.2.3", None, "GET"), ("169.254.169.254", None, "GET"), ("2600:9::9", "shop.example", "GET")]
        assert here.streams == [("45.7.7.7", 9000, b"hello")]


def test_nothing_of_it_is_left():
    at, before, open_files = namespace(), links(), len(os.listdir("/proc/self/fd"))
    with world.World() as here:
        inside, directory = namespace(), here.directory
        assert inside != at
    assert namespace() == at and links() == before
    assert len(os.listdir("/proc/self/fd")) == open_files
    assert not os.path.exists(directory)


def test_what_fails_while_it_is_made_leaves_nothing(monkeypatch):
    at, open_files = namespace(), len(os.listdir("/proc/self/fd"))

    def fail(self):
        raise RuntimeError("no servers")

    monkeypatch.setattr(world.World, "serve", fail)
    with pytest.raises(RuntimeError), world.World():
        pass
    assert namespace() == at and len(os.listdir("/proc/self/fd")) == open_files


def test_a_server_runs_in_it(start_server):
    with world.World():
        server = start_server()
        assert server.get("/healthz", token=None).status == 200
        assert server.cli("health").returncode == 0
        assert namespace() == os.stat(f"/proc/{server.api_pid()}/ns/net").st_ino
        server.stop(remove=False)
