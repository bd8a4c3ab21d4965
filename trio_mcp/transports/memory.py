"""Two links back to back, in one process: for tests, for servers embedded in their client, for benchmarks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import trio

from trio_mcp.errors import TransportError
from trio_mcp.link import Link
from trio_mcp.protocol.codec import decode, encode_or_replace
from trio_mcp.protocol.messages import Failure, Request, SessionMessage

__all__ = ["memory_link_pair"]

BUFFER = 32


@contextlib.asynccontextmanager
async def memory_link_pair(*, encode: bool = False) -> AsyncIterator[tuple[Link, Link]]:
    """A connected pair of links.

    Args:
        encode: Turn every message into bytes and back, as a real transport does; otherwise the two sides share the
            message objects, and must not change their content.

    Yields:
        The two ends; what one writes the other reads. Both are closed when the block ends.
    """
    there, here_in = trio.open_memory_channel[SessionMessage](BUFFER)
    here, there_in = trio.open_memory_channel[SessionMessage](BUFFER)
    ends = Link(here_in, here), Link(there_in, there)
    if encode:
        ends = (
            Link(here_in, _EncodedSendChannel(here, there)),
            Link(there_in, _EncodedSendChannel(there, here)),
        )
    try:
        yield ends
    finally:
        for end in ends:
            for channel in end:
                await _close(channel)


async def _close(channel: trio.abc.AsyncResource) -> None:
    with trio.CancelScope(shield=True):  # closing a memory channel never waits
        await channel.aclose()


class _EncodedSendChannel(trio.abc.SendChannel[SessionMessage]):
    """Sends what the other side would have received had the message travelled as bytes."""

    def __init__(
        self, channel: trio.MemorySendChannel[SessionMessage], back: trio.MemorySendChannel[SessionMessage]
    ) -> None:
        self._channel = channel
        self._back = back  # the other side's sending half, which it alone closes

    def _translate(
        self, message: SessionMessage
    ) -> tuple[trio.MemorySendChannel[SessionMessage], SessionMessage] | None:
        """The message as it arrives, and at whom: a request that can't be encoded fails its own sender's call."""
        data, problem = encode_or_replace(message.message)  # type: ignore[arg-type]
        if data is not None:
            return self._channel, SessionMessage(decode(data))
        if isinstance(message.message, Request):
            error = TransportError(f"{message.message.method!r} was not sent: {problem}")
            return self._back, SessionMessage(Failure(error, message.message.id))
        return None

    def send_nowait(self, message: SessionMessage) -> None:
        if (translated := self._translate(message)) is not None:
            translated[0].send_nowait(translated[1])

    async def send(self, message: SessionMessage) -> None:
        if (translated := self._translate(message)) is not None:
            await translated[0].send(translated[1])

    async def aclose(self) -> None:
        await self._channel.aclose()
