"""Pings, their deadlines, and what a slow reader costs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from wsproto.frame_protocol import Opcode

from tests.websocket.test_ending import rest, scripted
from tests.websocket.test_sessions import client_of
from tests.websocket.ways import Raw, Tools, on_our_runners, serving
from trio_mcp.low_level import websocket_client

QUIET = {"keep_alive": 10, "ping_timeout": 35}


@on_our_runners
async def test_a_dead_client_is_noticed_within_the_deadline(way: str, autojump_clock: MockClock) -> None:
    tools = Tools()
    async with serving(tools.server, way, **QUIET) as url, Raw.open(url) as raw:
        assert await raw.add(1) == 2
        begun = trio.current_time()
        pings = []
        while (found := await raw.next())[0] == Opcode.PING:
            pings.append(trio.current_time() - begun)
        assert (found[0], int(found[1][0])) == (Opcode.CLOSE, 1011)
        assert found[1][1] == "nothing within ping_timeout=35 seconds"
        assert pings == [pytest.approx(10, abs=0.1)]  # one is enough, as long as it has no answer
        assert trio.current_time() - begun == pytest.approx(35, abs=0.1)
        await raw.next()
        assert not tools.server.statistics().sessions


async def test_a_dead_server_is_noticed_within_the_deadline(autojump_clock: MockClock) -> None:
    async def dead(raw: Raw) -> None:
        await trio.sleep_forever()

    async with (
        Raw.serving(dead) as url,
        websocket_client(url, ping_interval=10, ping_timeout=35) as link,
    ):
        begun = trio.current_time()
        (failure,) = await rest(link)
        assert str(failure.error) == "the server sent nothing within ping_timeout=35 seconds"
        assert trio.current_time() - begun == pytest.approx(35, abs=0.1)


@on_our_runners
@pytest.mark.parametrize("sign", ["pong", "unasked pong", "half a message", "message"])
async def test_whatever_arrives_is_a_sign_of_life(way: str, sign: str, autojump_clock: MockClock) -> None:
    async with serving(Tools().server, way, body_timeout=1000, **QUIET) as url, Raw.open(url) as raw:
        if sign == "half a message":
            await raw.frame(Opcode.TEXT, b"{", fin=False)
        for _ in range(20):
            await trio.sleep(30)
            if sign == "pong":
                await raw.frame(Opcode.PONG, (await raw.next())[1])
            elif sign == "unasked pong":
                await raw.frame(Opcode.PONG, b"here")
            elif sign == "half a message":
                await raw.frame(Opcode.CONTINUATION, b" ", fin=False)
            else:
                assert await raw.add(1) == 2
        if sign == "half a message":
            await raw.frame(Opcode.CONTINUATION, b"")
            assert "error" in await raw.message()
        assert await raw.add(1) == 2


async def test_idle_sessions_of_ours_live_on_by_pings_alone(autojump_clock: MockClock) -> None:
    async with serving(Tools().server) as url, client_of(url, ping_interval=50) as client:
        await trio.sleep(10_000)
        assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error


@pytest.mark.parametrize("blocks", ["the handler's task", "the whole program"])
async def test_a_handler_blocked_for_three_ping_intervals_loses_nothing(blocks: str) -> None:
    """The deadline is far shorter than the time for which the program is blocked."""
    settings = {"keep_alive": 0.1, "ping_timeout": 0.25}
    pings = {"ping_interval": 0.1, "ping_timeout": 0.25}
    tools = Tools()
    async with serving(tools.server, **settings) as url, client_of(url, **pings) as client:
        if blocks == "the whole program":
            assert not (await client.call_tool("block", {"seconds": 0.5})).is_error
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "wait")
                await tools.started.wait()
                await trio.sleep(0.5)
                tools.go.set()
        assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error


async def test_a_reader_that_waits_for_room_loses_nothing_and_counts_as_alive(autojump_clock: MockClock) -> None:
    """This side does not count the time, and its signs of life keep the other from doing so."""
    sent, beats = 0, 0

    async def pour(raw: Raw) -> None:
        nonlocal sent
        for number in range(40):
            await raw.frame(Opcode.TEXT, b'{"jsonrpc": "2.0", "method": "%d"}' % number + b" " * 1_000_000)
            sent += 1

    async def handler(raw: Raw) -> None:
        nonlocal beats
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pour, raw)
            while (await raw.next())[0] in (Opcode.PING, Opcode.PONG):
                beats += 1

    async with Raw.serving(handler) as url, websocket_client(url, ping_interval=10, ping_timeout=35) as link:
        await trio.sleep(1005)
        assert sent < 40  # no more than fits into the inbox and the system's buffers
        for _ in range(10_000):  # real turns of the loop: the system may not have delivered the last one yet
            if beats == 100:
                break
            await trio.lowlevel.checkpoint()
        assert beats == 100
        autojump_clock.autojump_threshold = math.inf  # what is on its way through the kernel takes real time
        methods = [(await link.read.receive()).message.method for _ in range(40)]
        assert methods == [str(number) for number in range(40)]


async def test_a_session_that_does_not_read_still_answers_pings(autojump_clock: MockClock) -> None:
    """Below the bound of its inbox."""
    answered = trio.Event()

    async def handler(connection: Any) -> None:
        for _ in range(1000):
            await connection.send_message('{"jsonrpc": "2.0", "method": "acme/note"}')
        await connection.ping()
        answered.set()

    async with scripted(handler) as link:
        with trio.fail_after(5):
            await answered.wait()
        assert len([await link.read.receive() for _ in range(1000)]) == 1000


async def test_cancelling_a_send_in_a_session_cuts_no_frame_off() -> None:
    """A request's scope ends its wait, never what the writer is sending."""
    tools = Tools()
    async with serving(tools.server) as url, client_of(url) as client:
        for _ in range(30):
            with trio.move_on_after(0.001):
                await client.call_tool("echo", {"text": "x" * 500_000})
        assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error
