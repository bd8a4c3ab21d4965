"""A response that is sent before the request has arrived, to a client that writes and reads like a proxy."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from tests.server.http.runners import chosen
from trio_mcp import Server
from trio_mcp.http.server.asgi import DRAIN_TIME, DRAINED

HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nContent-Length: 100000000\r\n\r\n"
)


async def test_the_connection_is_not_reset_before_the_client_had_time_to_look(
    mock_clock: trio.testing.MockClock,
) -> None:
    """nginx looks for a response when it can't write for the moment, and answers 502 when its write fails."""
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(Server("x").serve_http, port=0, runner=chosen.runner()))
        stream = await trio.open_tcp_stream("127.0.0.1", int(url.split(":")[2].partition("/")[0]))
        async with stream:
            await stream.send_all(HEAD + b" " * (DRAINED + 64 * 1024))  # more than the server reads in any case
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some()
            assert received.split()[1] == b"413"
            for _ in range(10):  # the first write into a closed connection succeeds, and only its reply says so
                await stream.send_all(b" " * 1000)
                await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(DRAIN_TIME + 1)
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await stream.send_all(b" " * 1000)
                    await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
