"""One HTTP connection of a server: what happens on it while it is closed."""

from __future__ import annotations

import socket

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.worker_context import WorkerContext

from trio_mcp.http.runner.hypercorn import HttpConnection


class Told:
    """A protocol, which is told of what happens to the connection."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def handle(self, event: Event) -> None:
        self.events.append(event)


async def test_a_piece_that_is_sent_while_the_connection_is_closed_is_lost_without_a_fault() -> None:
    """Each of the two may be first, as Trio has it, so this is done until both have been."""
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
            connection = HttpConnection(None, Config(), WorkerContext(None), stream, write_timeout=30)
            protocol = connection.protocol = Told()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.protocol_send, Closed())
                nursery.start_soon(connection.protocol_send, RawData(b"more"))
            assert protocol.events == [Closed(), Closed()], "each of the two finds out that it is closed"
