"""Queues the messages of a link as encoded text, bounded in bytes, until the transport's task takes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from trio_mcp.jsonrpc.codec import encode, encode_or_replace
from trio_mcp.jsonrpc.messages import SessionMessage, TransportFailure
from trio_mcp.link import unsent

__all__ = ["MAX_WAITING", "TextSender"]

MAX_WAITING: Final = 64 * 1024
"""The bytes of waiting text beyond which senders have to wait; a single text may be longer.

An arbitrary choice: the default capacity of a pipe on Linux (pipe(7)). More would only delay control messages behind
bulk; with much less, the senders of a burst of small responses would wait for each other, although the peer reads.
"""


class TextSender(trio.abc.SendChannel[SessionMessage]):
    """The sending half of a link, which keeps the text of each message until the transport's task takes it.

    Args:
        report: Called with the failure of a request that can't be encoded, to tell the session.
    """

    # Each message is encoded when the session sends it, not when the transport writes it: its text takes a fraction of
    # the memory of the message, gives the garbage collector nothing to look through, and has a known size.

    def __init__(self, report: Callable[[TransportFailure], Awaitable[object]]) -> None:
        self._report = report
        self._texts: list[bytes] = []
        self._size = 0
        self._end: type[Exception] | None = None  # the exception that `send` raises, once this half can't be used
        self._refused = False
        self._senders = trio.lowlevel.ParkingLot()
        self._taker = trio.lowlevel.ParkingLot()

    def send_nowait(self, value: SessionMessage) -> None:
        """Send a message without waiting.

        Raises:
            trio.WouldBlock: If too much is waiting, or the message can't be encoded: only `send` can report that, as it
                may have to wait.
            trio.BrokenResourceError: If nothing can be written any more.
            trio.ClosedResourceError: If this half is closed.
        """
        if self._end is not None:
            raise self._end
        if self._size >= MAX_WAITING:
            raise trio.WouldBlock
        try:
            text = encode(value.message)
        except ValueError:
            raise trio.WouldBlock from None
        self._put(text)

    async def send(self, value: SessionMessage) -> None:
        """Send a message, after waiting for room. If the call is cancelled, the message has not been sent.

        Raises:
            trio.BrokenResourceError: If nothing can be written any more.
            trio.ClosedResourceError: If this half is closed.
        """
        await trio.lowlevel.checkpoint()
        # This is a loop, because a sender that did not have to wait may take the room first.
        while self._size >= MAX_WAITING and self._end is None:
            await self._senders.park()
        if self._end is not None:
            raise self._end
        text, problem = encode_or_replace(value.message)
        if text is not None:
            self._put(text)
        if problem is not None and (failure := unsent(value, problem)) is not None:
            await self._report(failure)

    def _put(self, text: bytes) -> None:
        # The text is passed on only if the transport's task is waiting for one: otherwise earlier texts have to go
        # first.
        if self._taker:
            rest = self._pass_on(text)
            if rest is None:
                return
            text = rest
            self._taker.unpark()
        self._texts.append(text)
        self._size += len(text)

    def _pass_on(self, text: bytes) -> bytes | None:
        """Return the part of a text that is left for `take`; None if nothing is. A subclass may send the text here."""
        return text

    async def take(self) -> list[bytes]:
        """Wait for a message, and return the texts of all waiting messages. If the call is cancelled, nothing is taken.

        Only the last text can be longer than `MAX_WAITING`; the others together are not.

        Raises:
            trio.EndOfChannel: If this half is closed, and everything has been taken.
            trio.ClosedResourceError: After `refuse`.
        """
        if self._texts:
            await trio.lowlevel.checkpoint()
        while not self._texts:
            if self._end is not None:
                raise trio.ClosedResourceError if self._refused else trio.EndOfChannel
            await self._taker.park()
        texts, self._texts, self._size = self._texts, [], 0
        self._senders.unpark_all()
        return texts

    def close(self) -> None:
        """Close this half: `take` returns what was sent before, and then raises `trio.EndOfChannel`."""
        self._end = trio.ClosedResourceError
        self._senders.unpark_all()
        self._taker.unpark()

    async def aclose(self) -> None:
        """Do what `close` does, and let other tasks run."""
        self.close()
        await trio.lowlevel.checkpoint()

    def refuse(self) -> None:
        """Drop the waiting messages, and refuse further ones, because nothing can be written any more."""
        self._end = self._end or trio.BrokenResourceError
        self._refused = True
        self._texts, self._size = [], 0
        self._senders.unpark_all()
        self._taker.unpark()
