"""Linked agents for tests: `atoll agent-client` as a process, and another agent over grpcio."""
import os
import pathlib
import queue
import signal
import subprocess
import tempfile
import threading

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import harness

SERVICE = "/agentic.sandbox.v1.AgentService/"


def messages():
    """The message classes, by name, from the tree's own .proto."""
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "set"
        subprocess.run(["protoc-c", "-Iproto", f"--descriptor_set_out={path}", f"--c_out={tmp}",
                        "proto/agentic/sandbox/v1/agent.proto"], cwd=harness.ROOT, check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    made = message_factory.MessageFactory(pool)
    names = [m.name for file in files.file for m in file.message_type]
    return {n: made.GetPrototype(pool.FindMessageTypeByName("agentic.sandbox.v1." + n)) for n in names}


M = messages()


class Client:
    """One `atoll agent-client`, with a directory that outlives it."""

    def __init__(self, server, agent, secret, top, **env):
        self.server, self.agent = server, agent
        self.argv = [server.binary, "agent-client", "--server", server.url, "--agent-id", agent,
                     "--dir", str(top / f"agent-{agent}"), "--retry", "50ms"]
        self.env = {**os.environ, "AGENT_SECRET": secret, "AGENT_SETUP_DIR": str(top), **env}
        self.dir, self.log_path, self.process = top / f"agent-{agent}", top / f"{agent}.log", None

    def start(self, wait=True):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)
        if wait:
            harness.wait_until(self.connected, 20, f"the agent to connect:\n{self.log()}", 0.05)
        return self

    def connected(self):
        reply = self.server.get(f"/api/v1/agents/{self.agent}")
        return reply.status == 200 and reply.json()["status"] in ("Ready", "Busy", "Provisioning")

    def log(self):
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


class Peer:
    """Another agent: a Connect call by grpcio that a test says every word of."""

    def __init__(self, server, agent, secret, metadata=None):
        self.agent, self.out, self.heard = agent, queue.Queue(), queue.Queue()
        self.channel = grpc.insecure_channel(server.host)
        call = self.channel.stream_stream(SERVICE + "Connect", lambda m: m.SerializeToString(),
                                          M["ManagementMessage"].FromString)
        meta = metadata if metadata is not None else [("x-agent-id", agent), ("x-agent-secret", secret)]
        self.call = call(iter(self.out.get, None), metadata=meta)
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self):
        try:
            for message in self.call:
                self.heard.put(message)
        except grpc.RpcError as error:
            self.heard.put(error)
        self.heard.put(None)

    def say(self, **payload):
        self.out.put(M["AgentMessage"](**payload))

    def register(self, link=0, **fields):
        fields.setdefault("agent_id", self.agent)
        self.say(registration=M["AgentRegistration"](hostname="peer", atoll_link=link, **fields))
        assert self.hear("registration_ack").registration_ack.accepted
        return self.hear("session_query")

    def ready(self, link=0, sessions=()):
        self.register(link)
        self.say(session_report=M["SessionReport"](agent_id=self.agent, sessions=sessions))
        decision = self.hear("session_reconcile").session_reconcile
        self.say(heartbeat=M["Heartbeat"](agent_id=self.agent, status=2))
        return decision

    def hear(self, kind, seconds=15):
        """The next message of this kind; others are passed over."""
        while True:
            message = self.heard.get(timeout=seconds)
            if message is None or isinstance(message, grpc.RpcError):
                raise AssertionError(f"{message} instead of {kind}")
            if message.WhichOneof("payload") == kind:
                return message

    def end(self, seconds=15):
        """The status that the server ends the call with."""
        while True:
            message = self.heard.get(timeout=seconds)
            if isinstance(message, grpc.RpcError):
                return message.code(), message.details()
            if message is None:
                return grpc.StatusCode.OK, ""

    def close(self):
        self.out.put(None)
        self.call.cancel()
        self.channel.close()
