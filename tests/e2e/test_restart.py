"""Starting again at once after everything was killed: a predecessor may still be dying."""
import http.client
import socket
import threading
import time

import harness
import pytest


def hold(family, address):
    """Listens where the server wants to, as soon as the killed one has let go."""
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end = time.monotonic() + 5 * harness.SLOW
    while True:
        try:
            sock.bind(address)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
    sock.listen(1)
    return sock


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_a_killed_servers_address_that_becomes_free_in_a_moment(fresh_server, family):
    """A killed server keeps its sockets while one of its threads waits for the disk."""
    server = fresh_server
    server.kill9_all()
    if family == socket.AF_UNIX:
        server.socket_path.unlink()
    other = hold(family, ("127.0.0.1", server.port) if family == socket.AF_INET else str(server.socket_path))
    threading.Timer(0.5, other.close).start()
    start = time.monotonic()
    server.start()
    assert time.monotonic() - start > 0.4, "it did not have to wait; this test proves nothing"
    assert server.get("/api/v1/whoami", unix=True).status == 200


def test_an_address_that_stays_taken_is_refused_plainly():
    port = harness.free_port()
    with hold(socket.AF_INET, ("127.0.0.1", port)):
        server = harness.Server(port=port).start(ready=False)
        assert server.process.wait(10 * harness.SLOW) != 0
        assert f"somebody already listens on 127.0.0.1:{port}" in server.log()
        server.stop(check=False)


def test_everything_killed_and_started_again_many_times(fresh_server):
    server = fresh_server
    for number in range(10):
        over = threading.Event()
        threads = [threading.Thread(target=write_until_it_dies, args=(server, over)) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        server.kill9_all(wait=False)
        server.start()
        over.set()
        for thread in threads:
            thread.join()
    assert server.get("/api/v1/audit/verify").json()["ok"]


def write_until_it_dies(server, over):
    while not over.is_set():
        try:
            server.post("/api/v1/notes", {"text": "x" * 10000})
        except (OSError, http.client.HTTPException):
            return  # as it must
