"""The proxy of `tests.chaos` does what its habits say, or a run would prove less than it says."""

from __future__ import annotations

import pytest
import trio

from tests.redis_server import RedisServer, redis_server
from tests.tcp_faults import CuttingProxy, Replies

REPLIES = (
    b"+OK\r\n",
    b"*2\r\n$4\r\na\r\nb\r\n:1\r\n",
    b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
    b"%1\r\n+a\r\n*1\r\n_\r\n",
    b"|1\r\n+ttl\r\n:3\r\n$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"-ERR odd\r\n",
)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_replies_are_whole_wherever_what_was_received_ends(size: int) -> None:
    sent, replies = b"".join(REPLIES), Replies()
    found = [each for place in range(0, len(sent), size) for each in replies.feed(sent[place : place + size])]
    assert found == [*REPLIES]


async def _send(stream: trio.SocketStream, *commands: str) -> None:
    await stream.send_all("".join(f"{command}\r\n" for command in commands).encode())


async def _until(stream: trio.SocketStream, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        found += await stream.receive_some()
    return found


@pytest.mark.redis
async def test_a_deaf_proxy_drops_messages_and_passes_replies() -> None:
    with redis_server() as engine:
        async with (
            CuttingProxy.to(f"{engine.folder}/socket") as proxy,
            await trio.open_tcp_stream("127.0.0.1", proxy.port) as stream,
        ):
            await _send(stream, "HELLO 3", "SUBSCRIBE news")
            await _until(stream, b"news\r\n:1\r\n")
            await proxy.be("deaf")
            await _send(stream, "PUBLISH news lost", "ECHO one")
            assert b"lost" not in await _until(stream, b"one\r\n")
            await proxy.be("passing")
            await _send(stream, "PUBLISH news told", "ECHO two")
            assert b"told" in await _until(stream, b"two\r\n")


async def _asks(proxy: CuttingProxy) -> str:
    """Return what becomes of a command on a new connection."""
    try:
        async with await trio.open_tcp_stream("127.0.0.1", proxy.port) as stream:
            with trio.move_on_after(0.5):
                await _send(stream, "INCR asked")
                return "reply" if await stream.receive_some() else "closed"
            return "nothing"
    except trio.BrokenResourceError:
        return "closed"
    except OSError:
        return "refused"


@pytest.mark.redis
async def test_each_habit_takes_the_place_of_the_one_before() -> None:
    with redis_server() as engine:
        async with CuttingProxy.to(f"{engine.folder}/socket") as proxy:
            for habit, outcome, asked in (
                ("passing", "reply", 1),
                ("refusing", "refused", 1),
                ("cutting", "closed", 2),
                ("holding", "nothing", 2),
                ("broken", "reply", None),  # what was held may still arrive
            ):
                await proxy.be(habit)
                assert (habit, await _asks(proxy)) == (habit, outcome)
                assert asked in (None, _asked(engine))


def _asked(engine: RedisServer) -> int:
    return int(engine.ask("GET", "asked"))
