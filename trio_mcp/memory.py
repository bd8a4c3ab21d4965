"""Connects two links back to back in one process, for tests, benchmarks, and servers embedded in their client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import trio

from trio_mcp._checks import check_on_trio
from trio_mcp.direct_channel import DirectSendChannel, open_direct_channel
from trio_mcp.jsonrpc.codec import decode, encode_or_replace
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.link import BUFFER, Link, report_unsent

__all__ = ["memory_link_pair"]


@contextlib.asynccontextmanager
async def memory_link_pair(*, encode: bool = False) -> AsyncIterator[tuple[Link, Link]]:
    """Connect two links to each other.

    Args:
        encode: Whether to turn every message into bytes and back, as a real transport does. Otherwise the two sides
            share the message objects and must not change their content.

    Yields:
        The two ends: what one writes, the other reads. Both are closed when the block ends, even by a cancellation.
    """
    check_on_trio()
    # Entering and leaving an async context manager have to be checkpoints (docs/design.md, rule 11), and nothing else
    # in this function is a checkpoint.
    await trio.lowlevel.checkpoint()
    # The channels are named from one end: `there` sends to `here_in`, and `here` sends to `there_in`.
    there, here_in = open_direct_channel(BUFFER)
    here, there_in = open_direct_channel(BUFFER)
    ends = Link(here_in, here), Link(there_in, there)
    if encode:
        ends = (
            Link(here_in, _EncodedSendChannel(here, there)),
            Link(there_in, _EncodedSendChannel(there, here)),
        )
    with here, here_in, there, there_in:
        yield ends
    await trio.lowlevel.checkpoint()


class _EncodedSendChannel(trio.abc.SendChannel[SessionMessage]):
    """A channel that sends what the other side would have received had the message travelled as bytes."""

    def __init__(self, channel: DirectSendChannel, back: DirectSendChannel) -> None:
        self._channel = channel
        # The other side's sending half: messages that can't be sent are reported on it. Only the other side closes it.
        self._back = back

    def send_nowait(self, value: SessionMessage) -> None:
        """Send as `DirectSendChannel.send_nowait` does; a message that can't be encoded is left to `send`."""
        if self._channel.full:  # otherwise the message would be encoded in vain, and again in `send`
            raise trio.WouldBlock
        # If there is a problem to report, this raises `WouldBlock` although there may be room, because a report may
        # have to wait: the sender then calls `send`, which does report.
        data, problem = encode_or_replace(value.message)
        if data is None or problem is not None:
            raise trio.WouldBlock
        self._channel.send_nowait(SessionMessage(decode(data)))

    # Every path has a checkpoint, even if there is nothing to send.
    async def send(self, value: SessionMessage) -> None:
        data, problem = encode_or_replace(value.message)
        if data is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._channel.send(SessionMessage(decode(data)))
        if problem is not None:
            await report_unsent(value, problem, self._back)

    async def aclose(self) -> None:
        await self._channel.aclose()
