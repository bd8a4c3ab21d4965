"""Waiting messages are written once, in order, and a drain waits for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trio_mcp.jsonrpc.messages import Notification, SessionMessage
from trio_mcp.session.outbox import Outbox


class Slow(trio.abc.SendChannel[SessionMessage]):
    """Takes one message at a time, and longer for each than for the one before."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.sending = trio.Lock()

    async def send(self, value: SessionMessage) -> None:
        async with self.sending:
            for _ in range(10 * (1 + len(self.sent))):
                await trio.lowlevel.checkpoint()
            assert isinstance(value.message, Notification)
            self.sent.append(value.message.method)

    async def aclose(self) -> None:
        pass


async def test_a_writer_ends_when_all_is_written_and_the_next_message_starts_another() -> None:
    slow = Slow()
    async with trio.open_nursery() as nursery:

        def spawn(function: Callable[[], Awaitable[None]]) -> None:
            nursery.start_soon(function)

        outbox = Outbox(slow, spawn)
        for name in ("first", "second"):
            outbox.put(SessionMessage(Notification(name)))
        await outbox.flush()
        assert slow.sent == ["first", "second"]
        outbox.put(SessionMessage(Notification("third")))  # and there is a writer again
        await outbox.flush()
        assert slow.sent[2:] == ["third"]
        nursery.cancel_scope.cancel()
