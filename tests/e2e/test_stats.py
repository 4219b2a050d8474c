"""Figures of many sandboxes over one WebSocket (/api/v1/stats)."""
import asyncio
import json
import os

import harness
import pytest
import websockets

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
SECONDS = 20 * harness.SLOW
WATCHED_MAX, EVERY_MIN, EVERY_MAX, WATCHERS_MAX = 100, 500, 60000, 64  # src/base/limits.h


def connect(server, token=None):
    return websockets.connect(f"ws://{server.host}/api/v1/stats", open_timeout=SECONDS,
                              extra_headers={"Authorization": "Bearer " + (token or server.token)})


async def ask(ws, sandboxes, **more):
    await ws.send(json.dumps({"sandboxes": sandboxes, **more}))


async def told(ws):
    return json.loads(await asyncio.wait_for(ws.recv(), SECONDS))["items"]


def test_figures_come_again_and_again(server):
    one, two = (harness.make_box(server) for _ in "ab")
    server.post(f"{BOXES}/{one}/execs", {"command": "while :; do :; done"})

    async def watch():
        async with connect(server) as ws:
            await ask(ws, [one, two], every_ms=EVERY_MIN)
            first, second = await told(ws), await told(ws)
            # Another message: others, at once and without a new connection.
            await ask(ws, [two], every_ms=EVERY_MAX)
            third = await told(ws)
            while len(third) != 1:
                third = await told(ws)
            return first, second, third

    first, second, third = asyncio.run(watch())
    assert [item["sandbox"] for item in first] == [one, two] and [item["sandbox"] for item in third] == [two]
    past = second[0]["at_us"] - first[0]["at_us"]
    assert past >= EVERY_MIN * 900 and 0 < second[0]["cpu_us"] - first[0]["cpu_us"]
    now = server.get(f"{BOXES}/{one}/stats").json()
    assert set(now) | {"sandbox", "at_us"} == set(first[0])
    assert now["pids"] == first[0]["pids"] and now["cpu_us"] >= second[0]["cpu_us"]
    harness.delete_boxes(server)


def test_only_ones_own_and_only_what_is_up(server):
    mine, stopped = harness.make_box(server), harness.make_box(server, storage="disk")
    server.post(f"{BOXES}/{stopped}/stop")
    stranger = server.new_token("operator", tenant="other")["token"]

    async def watch(token, names):
        async with connect(server, token) as ws:
            await ask(ws, names)
            return await told(ws)

    names = [mine, stopped, "sb00000000000000000000000000"]
    assert [item["sandbox"] for item in asyncio.run(watch(server.token, names))] == [mine]
    assert asyncio.run(watch(stranger, names)) == []
    harness.delete_boxes(server)


@pytest.mark.parametrize("message,good", [
    ({"sandboxes": ["x"] * WATCHED_MAX}, True), ({"sandboxes": ["x"] * (WATCHED_MAX + 1)}, False),
    ({"sandboxes": ["x"], "every_ms": EVERY_MIN}, True), ({"sandboxes": ["x"], "every_ms": EVERY_MIN - 1}, False),
    ({"sandboxes": ["x"], "every_ms": EVERY_MAX}, True), ({"sandboxes": ["x"], "every_ms": EVERY_MAX + 1}, False),
    ({}, False), ({"sandboxes": "x"}, False), ({"sandboxes": [], "what": 1}, False), ("nonsense", False),
    (b"bytes", False),
])
def test_what_a_message_may_say(server, message, good):
    async def watch():
        async with connect(server) as ws:
            await ws.send(message if isinstance(message, (str, bytes)) else json.dumps(message))
            try:
                return await told(ws)
            except websockets.ConnectionClosed as closed:
                return closed.code

    assert asyncio.run(watch()) == ([] if good else 4400)


def test_looking_keeps_nothing_awake(server):
    box = harness.make_box(server, idle={"after_ms": 1500, "action": "pause"})

    async def watch():
        async with connect(server) as ws:
            await ask(ws, [box], every_ms=EVERY_MIN)
            loop = asyncio.get_running_loop()
            end = loop.time() + SECONDS
            while (await loop.run_in_executor(None, server.get, BOXES)).json()["items"][0]["state"] != "paused":
                assert loop.time() < end, "it was kept awake"
                await told(ws)

    asyncio.run(watch())
    harness.delete_boxes(server)


def test_no_more_watchers_than_the_warden_can_take(server):
    async def watch():
        open_ = [await connect(server) for _ in range(WATCHERS_MAX)]
        try:
            with pytest.raises(websockets.InvalidStatusCode) as refused:
                await connect(server)
            assert refused.value.status_code == 429
        finally:
            for ws in open_:
                await ws.close()
        async with connect(server) as ws:  # those that left make room
            await ask(ws, ["x"])
            assert await told(ws) == []

    asyncio.run(watch())
