"""One HTTP connection of a server: events that happen while it is closed."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.worker_context import WorkerContext

from tests.listening import local_config
from trio_mcp._nursery import background_nursery
from trio_mcp.http.runner.hypercorn.connection import HttpConnection
from trio_mcp.http.runner.hypercorn.settings import settings_from
from trio_mcp.http.runner.serving import serve_asgi
from trio_mcp.http.runner.settings import ServerLimits
from trio_mcp.http.server.options import RUNNERS


class Told:
    """A protocol that is told of the connection's events."""

    has_unread_body = False

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def handle(self, event: Event) -> None:
        self.events.append(event)


async def test_a_piece_that_is_sent_while_the_connection_is_closed_is_lost_without_a_fault() -> None:
    """Hypercorn's glue. Trio may run either of the two first, so this repeats until both orders have occurred."""
    for _ in range(20):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
            try:
                while True:
                    ours.send(b"x" * 65536)  # until there is no room, so that sending has to wait
            except BlockingIOError:
                pass
            connection = HttpConnection(None, Config(), WorkerContext(None), ServerLimits(), stream)
            protocol = connection.protocol = Told()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.protocol_send, Closed())
                nursery.start_soon(connection.protocol_send, RawData(b"more"))
            assert protocol.events == [Closed(), Closed()], "each of the two finds out that it is closed"


@pytest.mark.parametrize("runner", RUNNERS)
async def test_ctrl_c_in_a_connection_of_a_server_that_is_cancelled_is_not_lost(runner: str) -> None:
    """Python raises it wherever it is; and Trio closes the connection's stream in the cancelled scope."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        around.cancel()
        raise KeyboardInterrupt

    async def serve(task_status: trio.TaskStatus[list[str]]) -> None:
        with around:
            await serve_asgi(app, settings_from(local_config()), runner=runner, task_status=task_status)

    around = trio.CancelScope()
    with pytest.raises(KeyboardInterrupt), trio.fail_after(5):
        async with background_nursery() as nursery:
            (url,) = await nursery.start(serve)
            async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                await trio.sleep_forever()
