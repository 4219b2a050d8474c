"""Secrets that go into requests, and come back in nothing that the sandbox or anybody else can read."""
import base64
import os
import secrets as random_

import egress_rig
import pytest
from test_egress_process import egress, get, here  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
HELD = "atoll-held-" + "0123456789abcdef0123456789abc"


@pytest.fixture
def value():
    return "sk-" + random_.token_hex(16)


def head_of(request):
    return request.head if isinstance(request.head, bytes) else request.head.encode()


def test_a_secret_goes_to_its_host_and_nowhere_else(here, egress, value):
    box = egress.add("one", "allow good.example", "allow other.example")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example:80"),
                  ("rule", "good.example:80", "X-Api-Key", "{secret:KEY}"),
                  ("rule", "other.example:80", "X-Api-Key", "{secret:KEY}"),
                  ("rule", ".example:80", "-", "{secret:KEY}"))
    answers = [get(box, "http://good.example/a", "X-Api-Key: mine", f"X-Env: a {HELD} b", "Accept-Encoding: gzip"),
               get(box, "http://other.example/b", f"X-Env: {HELD}"), get(box, f"http://good.example/{HELD}")]
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers), answers
    first, second, third = (head_of(request) for request in here.requests)
    assert first.count(value.encode()) == 2 and b"mine" not in first and HELD.encode() not in first, first
    assert b"identity" in first and b"gzip" not in first
    assert value.encode() not in second and HELD.encode() in second, second
    assert third.splitlines()[0].split()[1] == b"/" + HELD.encode(), third  # in headers alone
    for answer in answers:
        assert value.encode() not in answer, answer
    egress.take(0.2)
    assert value not in str(egress.decisions) + str(egress.flows)


def test_a_password_that_is_a_placeholder(here, egress, value):
    box = egress.add("one", "allow good.example")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example:80"),
                  ("rule", "good.example:80", "-", "{secret:KEY}"))
    sent = base64.b64encode(f"user:{HELD}".encode()).decode()
    get(box, "http://good.example/", f"Authorization: Basic {sent}")
    request, = here.requests
    assert base64.b64encode(f"user:{value}".encode()) in head_of(request)


def test_an_answer_that_echoes_is_starred(here, egress, value):
    """In the head and the body, however it is cut; as long as before, so that nothing else moves."""
    def echo(request):
        data = value.encode()
        body = b"before " + data + b" between " + data * 2 + b" after " + data[:-1]
        return (b"HTTP/1.1 200 OK\r\nX-Echo: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                % (data, len(body))) + body

    here.reply = echo
    box = egress.add("one", "allow good.example")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example:80"),
                  ("rule", "good.example:80", "X-Api-Key", "{secret:KEY}"))
    answer = get(box, "http://good.example/")
    stars = b"*" * len(value)
    assert value.encode() not in answer and b"x-echo: " + stars in answer.lower(), answer
    assert answer.endswith(b"before " + stars + b" between " + stars * 2 + b" after " + value[:-1].encode()), answer


def test_what_is_taken_back_goes_nowhere(here, egress, value):
    box = egress.add("one", "allow good.example")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example:80"),
                  ("rule", "good.example:80", "X-Api-Key", "{secret:KEY}"))
    get(box, "http://good.example/")
    egress.send(egress_rig.INJECT, b"one".ljust(40, b"\0") + bytes(8))  # taken back
    get(box, "http://good.example/")
    first, second = (head_of(request) for request in here.requests)
    assert value.encode() in first and value.encode() not in second


def test_another_sandbox_has_none_of_it(here, egress, value):
    one, two = egress.add("one", "allow good.example"), egress.add("two", "allow good.example")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example:80"),
                  ("rule", "good.example:80", "X-Api-Key", "{secret:KEY}"))
    get(two, "http://good.example/", f"X-Env: {HELD}")
    get(one, "http://good.example/")
    first, second = (head_of(request) for request in here.requests)
    assert value.encode() not in first and value.encode() in second


def test_the_process_shows_no_secret(here, egress, value):
    """Its memory is nobody's to read but root's; its descriptors, arguments and environment hold nothing of it."""
    egress.add("one", "allow good.example")
    egress.inject("one", ("secret", "KEY", HELD, value, "good.example:80"),
                  ("rule", "good.example:80", "X-Api-Key", "{secret:KEY}"))
    pid = egress.process.pid
    for name in ("cmdline", "environ"):
        with open(f"/proc/{pid}/{name}", "rb") as file:
            data = file.read()
        assert value.encode() not in data and egress.key not in data
    links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    assert not any("key" in link for link in links), links
