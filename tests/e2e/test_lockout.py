"""A client with a credential that is not valid any more, and others who have valid ones, at one address: nobody is
locked out. The client is the loop of the SDK's own page, and one that never stops asking."""
import base64
import secrets
import socket
import sys
import threading
import time

import pytest
from test_auth import cookie_of, link, login

import harness
import rpc
from hub import Hub, unique

sys.path.insert(0, str(harness.ROOT / "sdk" / "python" / "src"))
from spokes import AgentClient  # noqa: E402
from atoll import ApiError, Client, InvalidRequest, Unauthenticated  # noqa: E402


@pytest.fixture
def agents(server):
    made = [server.new_token("agent", name=unique(name)) for name in ("alice", "bob")]
    for one in made:
        reply = server.post("/agents/register", {"name": one["name"]}, token=one["token"])
        assert reply.status == 201
    return made


def asking(server, token, stop, statuses):
    while not stop.is_set():
        statuses.append(server.get("/api/v1/whoami", token=token).status)


def others_get_in(server, alice):
    """On new connections, by every kind of credential."""
    assert server.get("/api/v1/whoami", token=alice).status == 200
    assert server.get("/api/v1/whoami").status == 200
    session = login(server, link(server))
    assert session.status == 200, session
    assert server.get("/api/v1/whoami", token=None, headers=cookie_of(session)).status == 200
    with Hub(server, alice).events():
        pass
    client = rpc.Grpcio(server)
    assert client.call("ListSessions").code == "ok"
    client.close()


def test_the_loop_of_the_sdk_ends_and_says_why(server, agents):
    alice, bob = agents
    client = AgentClient(server.url, bob["name"], "test", token=bob["token"])
    ended = []

    def loop():
        try:
            client.run_autonomous_loop(lambda message: None, poll_interval=0.05, heartbeat_interval=0.1)
        except RuntimeError as error:
            ended.append(error)
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    time.sleep(0.3)
    assert thread.is_alive()
    server.delete(f"/api/v1/tokens/{bob['id']}")
    thread.join(10 * harness.SLOW)
    assert ended and isinstance(ended[0].__cause__, Unauthenticated), ended
    assert "does not accept the token" in str(ended[0]) and "credentials are not valid" in str(ended[0])
    client.close()


def test_a_loop_that_cannot_begin_says_why(server, monkeypatch):
    client = AgentClient(server.url, "nobody", "test", token="atl_" + secrets.token_urlsafe(32))
    with pytest.raises(RuntimeError, match="cannot register nobody .*credentials are not valid") as caught:
        client.run_autonomous_loop()
    assert isinstance(caught.value.__cause__, Unauthenticated)
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: real("127.0.0.1" if host == "hub" else host, *rest))
    with pytest.warns(UserWarning, match="unencrypted"):
        client = AgentClient(f"http://hub:{server.port}", "nobody", "test", token="wrong")
    with pytest.raises(RuntimeError, match="host") as caught:
        client.run_autonomous_loop()
    assert isinstance(caught.value.__cause__, ApiError) and caught.value.__cause__.status == 421
    client = AgentClient(server.url, "nobody", "test", token="wrong")
    with pytest.raises(RuntimeError, match="not a token of this server: those begin with atl_"):
        client.run_autonomous_loop()


def test_an_error_names_the_field(server):
    with Client(server.url, token=server.token) as client, pytest.raises(InvalidRequest) as caught:
        client.sandboxes.create(memory="512M")
    assert str(caught.value).startswith("memory: must be an integer, not string"), caught.value


def test_nobody_is_locked_out_by_one_who_goes_on_asking(server, agents):
    alice, bob = agents
    server.delete(f"/api/v1/tokens/{bob['id']}")
    stop, statuses = threading.Event(), []
    thread = threading.Thread(target=asking, args=(server, bob["token"], stop, statuses))
    thread.start()
    try:
        for _ in range(10):
            others_get_in(server, alice["token"])
        for _ in range(15):  # and guesses beside it
            server.get("/api/v1/whoami", token="atl_" + secrets.token_urlsafe(32))
            login(server, "atc_" + secrets.token_urlsafe(32))
        others_get_in(server, alice["token"])
    finally:
        stop.set()
        thread.join()
    assert statuses[:10] == [401] * 10 and set(statuses[10:]) == {429}, statuses[:20]
    assert server.get("/api/v1/whoami", token="atl_" + secrets.token_urlsafe(32)).status == 429


def test_basic_with_the_token_as_password(server, agents):
    alice, _ = agents
    url = server.url.replace("://", f"://{alice['name']}:{alice['token']}@")
    with AgentClient(url, alice["name"], "test") as client:
        assert client.heartbeat() and alice["token"] not in client.hub_url
    pair = base64.b64encode(f"{alice['name']}:{alice['token']}".encode()).decode()
    me = server.get("/api/v1/whoami", token=None, headers={"Authorization": f"Basic {pair}"})
    assert me.status == 200 and me.json()["name"] == alice["name"]
    assert server.get("/api/v1/whoami", token=None, headers={
        "Authorization": f"Basic {base64.b64encode(b'a:b').decode()}"}).status in (401, 429)


def test_address_and_token_from_the_environment(server, agents, monkeypatch):
    alice, _ = agents
    monkeypatch.setenv("HUB_URL", server.url)
    monkeypatch.setenv("ATOLL_TOKEN", alice["token"])
    with AgentClient("", alice["name"], "test") as client:
        assert client.heartbeat()
