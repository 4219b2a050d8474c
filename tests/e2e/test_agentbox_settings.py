"""What a session of agentbox is by default: the hosts that agentbox's README names, and the limits, the user and the
idle time of the server's settings."""
import os

import pytest

import harness
import rpc

BOXES = "/api/v1/sandboxes"
HOSTS = ["pypi.org", "files.pythonhosted.org", "*.npmjs.org", "github.com", "raw.githubusercontent.com",
         "objects.githubusercontent.com", "crates.io", "static.crates.io"]
GIB = 1 << 30
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
CORES = os.sysconf("SC_NPROCESSORS_ONLN")


@pytest.fixture
def session():
    """Makes sessions: what CreateSession said, and the sandbox; destroyed in the end."""
    made = []

    def make(server, **fields):
        client = rpc.Grpcio(server)
        one = client.call("CreateSession", fields).ok["session"]
        client.close()
        made.append((server, one["containerId"]))
        return one, server.get(f"{BOXES}/{one['containerId']}").json()
    yield make
    for server, box in made:
        server.delete(f"{BOXES}/{box}")


def run(server, made, command):
    return server.post(f"{BOXES}/{made['containerId']}/execs?wait=60000", {"argv": ["sh", "-c", command]},
                       timeout=90).json()


def test_defaults_are_those_of_agentbox(server, session):
    made, box = session(server)
    assert made["allowedHosts"] == HOSTS
    assert box["memory"] == min(4 * GIB, MEMORY) and box["cpu_percent"] == min(400, 100 * CORES)
    assert box["user"] == "agent" and box["idle"] == {"after_ms": 1800000, "action": "delete"}


def test_default_hosts_let_pip_install_begin(server, session):
    made, _ = session(server)
    client = rpc.Grpcio(server)
    got = client.call("PipInstall", {"sessionId": made["sessionId"], "packages": ["a b"]}).ok
    assert got["stderr"] == "Invalid package specifier: a b", "the hosts are looked at before the packages"
    client.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_settings(start_server, session):
    server = start_server(env={"ATOLL_AGENTBOX_MEMORY": "64M", "ATOLL_AGENTBOX_CPU_PERCENT": "50",
                               "ATOLL_AGENTBOX_IDLE": "0s", "ATOLL_AGENTBOX_USER": "root"})
    made, box = session(server)
    assert (box["memory"], box["cpu_percent"], box["user"], box["idle"]) == (64 << 20, 50, "root", None)
    done = run(server, made, "id -u; touch /usr/local/x 2>&1; echo; head -c 100M /dev/zero | tail -c 90M | wc -c")
    assert done["output"].split()[0] == "0" and "94371840" not in done["output"], done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_short_idle_time(start_server, session):
    server = start_server(env={"ATOLL_AGENTBOX_IDLE": "1s"})
    made, _ = session(server)
    # Asking for the session itself would be a use of it.
    harness.wait_until(lambda: made["containerId"] not in [one["id"] for one in server.get(BOXES).json()["items"]],
                       20 * harness.SLOW, "its end")
