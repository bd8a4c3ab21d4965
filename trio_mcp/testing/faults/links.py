"""Links with injected faults, on Trio's clock: a `trio.testing.MockClock` lets every script run without real waits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import TypeAlias

import attrs
import trio

from trio_mcp._checks import check_hook
from trio_mcp._nursery import background_nursery
from trio_mcp.client.targets import Target, link_factory
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.messages import SessionMessage, TransportFailure
from trio_mcp.link import BUFFER, Link, hand_on
from trio_mcp.testing.faults.flow import FaultInjector, FaultyConnection
from trio_mcp.testing.faults.steps import ON_LINKS, Faults, Reset, Tear

__all__ = ["FaultLinks"]

GRACE = 1.0
"""Seconds that undelivered messages get to arrive once the link's block has ended: an arbitrary choice, as on stdio."""

_ASKED_FOR = "by a fault that the test asked for"
_Messages: TypeAlias = tuple[SessionMessage, ...]


class FaultLinks(FaultInjector):
    """A target for a `Client` with faults on its links, as in ``Client(FaultLinks(server))``.

    Each call opens a link to the inner target, and passes the link's messages on as a script says.

    Args:
        target: A target of a `Client`: a `Server`, a URL, parameters, or a function that opens a link.
        faults: The faults of each link, in order; those after the last one are left alone. For the same faults each
            time, pass ``itertools.repeat(Faults(...))``.
        on_sent: A sync function, called with each message for the target just before it is passed on.
    """

    def __init__(
        self,
        target: Target,
        faults: Iterable[Faults] = (),
        *,
        on_sent: Callable[[SessionMessage], object] | None = None,
    ) -> None:
        super().__init__(faults, ON_LINKS, "a link")
        check_hook("on_sent", on_sent, sync=True)
        self._open = link_factory(target)
        self._on_sent = on_sent
        self._refusal: Exception | None = None

    def refuse(self, cause: Exception | None = None) -> None:
        self._refusal = cause or TransportError(f"the link was refused {_ASKED_FOR}")

    def accept(self) -> None:
        self._refusal = None

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        """Open a link to the inner target, with the next faults.

        Raises:
            TransportError: While links are refused, unless `refuse` was given another exception to raise.
        """
        # Entering a block is a checkpoint (docs/design.md, rule 11). It comes before the refusal, so that a client that
        # tries a refused link again and again lets other tasks run.
        await trio.lowlevel.checkpoint()
        if self._refusal is not None:
            raise self._refusal
        write, outbound = trio.open_memory_channel[SessionMessage](BUFFER)
        inbound, read = trio.open_memory_channel[SessionMessage](BUFFER)
        # The channels close last, however the block ends, so that tasks that wait on the link elsewhere wake up.
        with self._opened() as connection, write, outbound, inbound, read:
            async with self._open() as inner, background_nursery() as nursery:
                ends = _Ends(inner, outbound, inbound, self._on_sent)
                nursery.start_soon(self._relay, connection, ends)
                yield inner._replace(read=read, write=write)
                # The block ended without an exception, so what was written last still goes out, as on any other link.
                read.close()
                write.close()
                # The wait is bounded, because a script may stall what is sent forever.
                with trio.move_on_after(GRACE):
                    await ends.written.wait()

    async def _relay(self, connection: FaultyConnection, ends: _Ends) -> None:
        await self._run(
            connection,
            self._flow(0, partial(_receive, ends.outbound), ends.send),
            self._flow(1, partial(_receive, ends.inner.read), ends.deliver),
        )
        # This call is outside the connection's scope, which may be cancelled: closing, and handing on the cause, both
        # wait.
        await ends.close(connection.ending)


@attrs.define(eq=False)
class _Ends:
    """The channels between the session and the inner link.

    Attributes:
        inner: The link to the target.
        outbound: The channel with the messages that the session sends.
        inbound: The channel for the messages that the session receives.
        on_sent: Called with each message before it is passed on to the inner link.
        written: Set once nothing more will be sent to the inner link.
    """

    inner: Link
    outbound: trio.MemoryReceiveChannel[SessionMessage]
    inbound: trio.MemorySendChannel[SessionMessage]
    on_sent: Callable[[SessionMessage], object] | None
    written: trio.Event = attrs.Factory(trio.Event)

    async def send(self, messages: _Messages) -> None:
        try:
            for each in messages:
                # The hook is called before the send: the target may act on the message before this task runs again.
                if self.on_sent is not None:
                    self.on_sent(each)
                await self.inner.write.send(each)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.outbound.close()  # the inner link tells the reader why that link is lost
        if not messages:
            await self.inner.write.aclose()
            self.written.set()

    async def deliver(self, messages: _Messages) -> None:
        with contextlib.suppress(trio.BrokenResourceError):  # the session reads no more
            for each in messages:
                await self.inbound.send(each)
        if not messages:
            self.inbound.close()

    async def close(self, how: Tear | Reset | None) -> None:
        """Close both links once no more messages flow; after a `Reset`, first pass its cause on to the session."""
        self.outbound.close()
        # The cause is handed on only after `outbound` is closed: `hand_on` may wait for room, and a session that sends
        # meanwhile has to fail.
        if isinstance(how, Reset):
            await hand_on(
                self.inbound, TransportFailure(how.cause or TransportError(f"the link was reset {_ASKED_FOR}"))
            )
        self.inbound.close()
        # Nothing more can be written, and the end of the link's block may be waiting for this event.
        self.written.set()
        for channel in self.inner:
            await channel.aclose()


async def _receive(channel: trio.abc.ReceiveChannel[SessionMessage]) -> _Messages:
    try:
        # A tuple of one message: `Flow` cuts, repeats and counts it like bytes, and treats an empty one as the end.
        return (await channel.receive(),)
    except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
        # The channel has ended, or `send` has closed it because the target accepts nothing more; then the inner link
        # tells the session why.
        return ()
