"""Answers that take long: until the first byte, and in the middle. A cut is said and recorded."""
import json
import os
import socket
import time

import egress_box
import egress_rig
import harness
import pytest
import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PROXY = (egress_rig.SELF, egress_rig.PROXY)
ANSWER_S, STREAM_S = 4, 2
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE, LAST = b"5\r\nhello\r\n", b"0\r\n\r\n"


def slow(conn, address, port):
    """The path says what is done: numbers are seconds, letters are parts of an answer."""
    parts = {"h": HEAD, "p": PIECE, "e": LAST}
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        piece = conn.recv(4096)
        if not piece:
            return  # of a tunnel that was not used
        data += piece
    for word in data.split()[1].decode().strip("/").split("-"):
        if word in parts:
            conn.sendall(parts[word])
        else:
            time.sleep(float(word))


@pytest.fixture(scope="module")
def here():
    with world.World() as made:
        made.zone.update({"good.example": ["45.1.2.3"]})
        made.listen(8081, slow)
        yield made


@pytest.fixture(scope="module")
def egress(here):
    made = egress_rig.Egress(here, timeouts=(ANSWER_S * 1000, STREAM_S * 1000))
    made.box = made.add("one", "allow good.example:8081")
    yield made
    made.close()


def ask(egress, path, tunnel=False):
    """What came back, and after how long."""
    begun = time.monotonic()

    def inside():
        with socket.create_connection(PROXY, 30) as sock:
            if tunnel:
                sock.sendall(b"CONNECT good.example:8081 HTTP/1.1\r\n\r\n")
                assert b" 200 " in sock.recv(4096)
            host = "" if tunnel else "http://good.example:8081"
            sock.sendall(f"GET {host}/{path} HTTP/1.1\r\nHost: good.example:8081\r\n"
                         "Connection: close\r\n\r\n".encode())
            data = b""
            while piece := sock.recv(65536):
                data += piece
            return data

    return egress.box.run(inside), time.monotonic() - begun


@pytest.mark.parametrize("tunnel", (False, True))
def test_an_answer_that_does_not_begin_is_a_504(egress, tunnel):
    egress.decisions.clear()
    answer, took = ask(egress, "60", tunnel)
    assert answer.startswith(b"HTTP/1.1 504 "), answer
    error = json.loads(answer.split(b"\r\n\r\n")[1])["error"]
    assert error["code"] == "egress_timeout" and f"not answered for {ANSWER_S} s" in error["message"], error
    assert took >= ANSWER_S
    *_, allowed, cut = egress.decided(2 + tunnel)
    assert (allowed["verdict"], cut["verdict"], cut["host"]) == ("allowed", "timeout", "good.example")
    assert allowed["request"] == cut["request"] and cut["path"] == "/60"


def test_an_answer_that_stops_is_cut_and_recorded(egress):
    egress.decisions.clear()
    answer, took = ask(egress, "h-p-60")
    assert answer.startswith(b"HTTP/1.1 200") and b"hello" in answer and not answer.endswith(LAST), answer
    assert took >= STREAM_S
    allowed, cut = egress.decided(2)
    assert (allowed["verdict"], cut["verdict"]) == ("allowed", "timeout") and "stopped" in cut["text"], cut


def test_what_is_slow_within_its_limits_arrives(egress):
    """Longer than a stream may pause until it begins; many pauses that are longer together than either limit."""
    egress.decisions.clear()
    answer, took = ask(egress, f"{STREAM_S + 1}-h-1-p-1-p-1-p-e")
    assert answer.endswith(LAST) and answer.count(b"hello") == 3 and took > ANSWER_S, answer
    assert [one["verdict"] for one in egress.decided()] == ["allowed"]


def test_the_limits_are_settings(here):
    server = egress_box.start_server(args=["--egress-answer-timeout", "1s", "--egress-stream-timeout", "2s"])
    try:
        box = egress_box.Box(server, {"allow": ["good.example:8081"]})
        got = box.sh("curl -s http://good.example:8081/60")
        assert json.loads(got)["error"]["message"] == "the host has not answered for 1 s", got
        output, _, status = box.run("curl -s http://good.example:8081/h-p-60")
        assert (output, status) == ("hello", 18), "curl: a part of the file alone"
        found = harness.wait_until(lambda: [r for r in server.get(f"{box.base}/egress/records").json()["items"]
                                            if r["verdict"] == "timeout"], 10 * harness.SLOW, "its records")
        assert found and found[-1]["reason"]
    finally:
        harness.delete_boxes(server)
        server.stop()
