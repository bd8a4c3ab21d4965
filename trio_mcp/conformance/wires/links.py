"""Wires over links, for any transport of this library; they carry only messages that the library itself can send."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.client.targets import LinkFactory
from trio_mcp.conformance.steps import Headers
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.notes import WRITE_TIMEOUT, Notes, TooMuch
from trio_mcp.conformance.wires.wire import MessageWire, OpenWire
from trio_mcp.jsonrpc.codec import decode, encode
from trio_mcp.jsonrpc.messages import Malformed, SessionMessage, TransportFailure
from trio_mcp.link import Link

__all__ = ["link_wire"]


class LinkWire(MessageWire):
    """A wire over a link, which carries only valid messages.

    Attributes:
        transport: ``link``.
        number: The number of the connection.
    """

    transport = "link"

    def __init__(self, tape: Tape, number: int, link: Link) -> None:
        self.number = number
        self.notes = Notes(tape, number, self.transport)
        self._link = link

    async def write(self, texts: Sequence[bytes], *, framed: bool = True, headers: Headers | None = None) -> None:
        """Send each text that is a valid message; note the others as unsent."""
        for text in texts:
            # This checkpoint is for texts that are not valid messages: they do not reach `send`, which is a checkpoint
            # for the others.
            await trio.lowlevel.checkpoint()
            message = decode(text)
            if isinstance(message, (Malformed, TransportFailure)):
                self.notes.mark("unsent", reason="a link carries only valid messages")
                continue
            if not self.is_open:
                self.notes.mark("unsent", reason="the link has ended")
                continue
            self.notes.asked()
            # The text is noted before the send: the target may respond before this task runs again, and its response
            # must be noted after the text.
            self.notes.text("client", text)
            try:
                with trio.fail_after(WRITE_TIMEOUT):
                    await self._link.write.send(SessionMessage(message))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.notes.mark("unsent", reason="the link has ended")
            except trio.TooSlowError:
                self.notes.mark("unsent", reason=f"the target has not read anything for {WRITE_TIMEOUT:g} seconds")

    async def stop(self, how: Literal["close", "reset", "half"], which: int = 0) -> None:
        """Close the link; with ``half``, only its sending side."""
        if how == "half":
            self.notes.mark("half closed")
        else:
            # A link can't be reset: its target sees a close, and only this note says that a reset was intended.
            self.notes.close("client", how)
            await self._link.read.aclose()
        await self._link.write.aclose()

    async def read(self) -> None:
        """Note everything that arrives until the link ends; this runs as a task."""
        try:
            async for item in self._link.read:
                message = item.message
                if not isinstance(message, TransportFailure):
                    # The bytes of a `Malformed` are lost, so a text that is not JSON is noted in their place.
                    text = f"not a message: {message.reason}" if isinstance(message, Malformed) else encode(message)
                    data = text.encode() if isinstance(text, str) else text
                    self.notes.count(len(data))
                    self.notes.text("server", data)
                # A `TransportFailure` without a request id means that the link is lost. With an id, it means only that
                # a request of this side could not be sent, and the link stays open.
                elif message.request_id is None:
                    self.notes.close("server", str(message.error))
                else:
                    self.notes.mark("unsent", reason=str(message.error), id=message.request_id)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # `stop` may close the channel while this task is receiving
        except TooMuch as exc:
            self.notes.flood(exc)
            await self._link.read.aclose()
        self.notes.close("server", "end")

    async def leave(self) -> None:
        """Close the sending side of the link when the wire's block ends."""
        self.notes.close("client", "done")
        await self._link.write.aclose()


def link_wire(connect: LinkFactory) -> OpenWire:
    """Return a function that opens wires over the links that ``connect`` yields."""

    @contextlib.asynccontextmanager
    async def opened(tape: Tape, number: int, revision: str) -> AsyncIterator[LinkWire]:
        async with connect() as link:
            wire = LinkWire(tape, number, link)
            async with background_nursery(wire.leave) as nursery:
                nursery.start_soon(wire.read)
                yield wire

    return opened
