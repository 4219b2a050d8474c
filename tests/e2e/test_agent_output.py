"""Output of commands on linked agents: a slow reader of `atoll exec` and of gRPC's Exec holds the command back and gets
every byte, over a kill of the api process too; a client that is killed holds it for a while only."""
import subprocess
import time

import grpc
import harness
import pytest
from agents import SERVICE, M
from test_agent_cli import AGENTS, client, command, commands  # noqa: F401
from test_output import MB, Check, program, read_slowly, start_cli


def state(server, agent):
    return commands(server, agent)[-1]


def until_ended(server, agent, seconds):
    harness.wait_until(lambda: state(server, agent)["state"] != "running", seconds, "the end")
    return state(server, agent)


@pytest.mark.parametrize("fd", [1, 2])
def test_a_slow_reader_of_exec_gets_every_byte_and_the_status(server, client, fd):  # noqa: F811
    mb, check = 160, Check()
    ends = {"stdout": subprocess.PIPE} if fd == 1 else {"stderr": subprocess.PIPE}
    with start_cli(server, "exec", client.agent, "--", *program(fd, mb, 7), **ends) as cli:
        time.sleep(3)  # far longer than it takes to print all of it
        read_slowly(cli.stdout or cli.stderr, check, mb, 0.02)
        assert cli.wait(30) == 7


def test_nothing_is_lost_when_the_api_is_killed_under_a_slow_reader(server, client):  # noqa: F811
    mb, kills = 200, {place * MB: server.kill9_api for place in (40, 120)}
    with start_cli(server, "exec", client.agent, "--", *program(1, mb, 5), stdout=subprocess.PIPE) as cli:
        read_slowly(cli.stdout, Check(), mb, 0.05, kills)
        assert cli.wait(30) == 5


def test_a_reader_that_dies_is_waited_for_and_then_the_command_goes_on(server, client):  # noqa: F811
    with start_cli(server, "exec", client.agent, "--", *program(1, 120, 0), stdout=subprocess.PIPE) as cli:
        assert len(cli.stdout.read(MB)) == MB
        cli.kill()
    began = time.monotonic()
    done = until_ended(server, client.agent, 60 * harness.SLOW)
    assert (done["state"], done["exit_code"], done["stdout_bytes"]) == ("exited", 0, 120 * MB)
    assert time.monotonic() - began > 10, "nobody was waited for"


def test_a_wait_of_who_holds_returns_when_the_command_is_held_back(server, client):  # noqa: F811
    argv = program(1, 100, 0)
    began = time.monotonic()
    held = command(server, client.agent, *argv, hold=True)
    assert held["state"] == "running" and time.monotonic() - began < 15
    path = f"{AGENTS}/{client.agent}/commands/{held['command_id']}"
    viewer = server.new_token("viewer")["token"]
    refused = server.get(f"{path}/output?hold=1", token=viewer, headers={"Accept": "text/event-stream"})
    assert refused.status in (403, 404), refused
    assert server.post(f"{path}/signal", {"signal": "KILL"}).status == 200
    assert until_ended(server, client.agent, 30)["stdout_bytes"] < 64 * MB


def test_a_slow_caller_of_grpc_exec_gets_every_byte(server, client):  # noqa: F811
    mb, check = 160, Check()
    argv = program(1, mb, 4)
    with grpc.insecure_channel(server.host) as channel:
        call = channel.unary_stream(SERVICE + "Exec", M["ExecRequest"].SerializeToString, M["ExecOutput"].FromString)
        said = call(M["ExecRequest"](agent_id=client.agent, command=argv[0], args=argv[1:]), timeout=120,
                    metadata=[("authorization", f"Bearer {server.token}")])
        next_pause, last = MB, None
        for last in said:
            check.put(last.data)
            if check.got >= next_pause:
                time.sleep(3 if next_pause == MB else 0.02)
                next_pause = check.got + 8 * MB
    assert check.got == mb * MB and last.complete and last.exit_code == 4
