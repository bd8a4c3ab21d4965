"""A response sent before the whole request has arrived: the rest of the request holds nothing up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h2.connection
import h2.events
import trio
import trio.testing

from tests.server.http.certificate import over_tls
from tests.server.http.in_memory import over_memory, tls_client
from trio_mcp.http.runner.hypercorn import configured

PIECES = 30
"""More than hypercorn queues for an application that does not read (``max_app_queue_size``)."""


class Hasty:
    """An ASGI application that answers when it is told to, and reads nothing of the request before that.

    Attributes:
        answer_now: Told by the test.
        done: It has answered, and has read the rest of what was there for it.
        events: What that was.
    """

    def __init__(self) -> None:
        self.answer_now, self.done = trio.Event(), trio.Event()
        self.events: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.answer_now.wait()
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})
        while "http.disconnect" not in self.events:
            self.events.append((await receive())["type"])
        self.done.set()


async def test_the_rest_of_an_answered_request_holds_up_neither_it_nor_its_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    app = Hasty()
    with trio.fail_after(60):
        async with over_memory(app, configured("127.0.0.1", 0)) as (stream, _, _):
            await stream.send_all(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n")
            for _ in range(PIECES):
                await stream.send_all(b"x" * 100)
                await trio.testing.wait_all_tasks_blocked()
            app.answer_now.set()
            got = b""
            while chunk := await stream.receive_some():
                got += chunk
            assert got.startswith(b"HTTP/1.1 413")
            await app.done.wait()
    assert app.events[-1] == "http.disconnect"


async def test_the_rest_of_an_answered_request_over_http2_holds_nothing_up(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The other streams of its connection are served, too."""
    app = Hasty()
    config, trusted = over_tls(tmp_path)
    trusted.set_alpn_protocols(["h2"])
    with trio.fail_after(60):
        async with over_memory(app, config, tls=config.create_ssl_context()) as (stream, _, _):
            tls = await tls_client(stream, trusted)
            client = h2.connection.H2Connection()
            client.initiate_connection()
            fields = {":method": "POST", ":scheme": "https", ":authority": "localhost", ":path": "/"}
            client.send_headers(1, list(fields.items()))
            for _ in range(PIECES):
                client.send_data(1, b"x" * 100)
            await tls.send_all(client.data_to_send())
            await trio.testing.wait_all_tasks_blocked()
            app.answer_now.set()
            await app.done.wait()
            client.send_headers(3, list(fields.items()), end_stream=True)
            await tls.send_all(client.data_to_send())
            ended: set[int] = set()
            while ended != {1, 3}:
                for event in client.receive_data(bytes(await tls.receive_some())):
                    if isinstance(event, h2.events.StreamEnded):
                        ended.add(event.stream_id)
