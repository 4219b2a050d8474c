"""Sandboxes for the tests of egress."""
import shlex

import harness
import world

BOXES = "/api/v1/sandboxes"

quote = shlex.quote


def start_server(here=None, args=(), **options):
    """A server in the closed world, which the caller is in; it asks its name server, and trusts hosts of `here`."""
    trust = ["--egress-authorities", str(here.authority.path)] if here else []
    return harness.Server(args=["--egress-resolver", world.RESOLVER, *trust, *args], **options).start()


class Box:
    """A sandbox with a policy of its own."""

    def __init__(self, server, egress, **wish):
        self.server = server
        reply = server.post(BOXES, {"ttl_ms": 3600000, "egress": egress, **wish})
        assert reply.status == 201, reply
        self.id = reply.json()["id"]
        self.base = f"{BOXES}/{self.id}"

    def put(self, path, data):
        reply = self.server.request("PUT", f"{self.base}/files?path={path}", body=data)
        assert reply.status == 200, reply

    def get(self, path):
        reply = self.server.get(f"{self.base}/files?path={path}")
        assert reply.status == 200, reply
        return reply.body

    def run(self, command, seconds=120):
        """(output, errors, exit status)"""
        reply = self.server.post(f"{self.base}/execs?wait={seconds * 1000}", {"command": command}, timeout=seconds + 10)
        assert reply.status == 201, reply
        got = reply.json()
        assert got["state"] == "exited", got
        return got["output"], got["errors"], got["exit_code"]

    def sh(self, command, seconds=120):
        output, errors, status = self.run(command, seconds)
        assert status == 0, (command, output, errors)
        return output
