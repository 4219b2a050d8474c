"""Starting again at once after everything was killed: a predecessor may still be dying."""
import http.client
import socket
import threading
import time

import harness


def hold(family, address):
    """Listens where the server wants to."""
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(address)
    sock.listen(1)
    return sock


def test_an_address_that_becomes_free_in_a_moment(start_server):
    """A killed server keeps its sockets while one of its threads waits for the disk."""
    port = harness.free_port()
    other = hold(socket.AF_INET, ("127.0.0.1", port))
    threading.Timer(0.5, other.close).start()
    start = time.monotonic()
    server = start_server(port=port)
    assert time.monotonic() - start > 0.4, "it did not have to wait; this test proves nothing"
    assert server.get("/readyz", token=None).status == 200


def test_the_unix_socket_of_a_predecessor(start_server):
    server = start_server()
    server.stop(remove=False)
    other = hold(socket.AF_UNIX, str(server.socket_path))
    threading.Timer(0.5, other.close).start()
    server.start()
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
