"""Receive and send a session's messages over several ways to its server, behind the two ends of a single link.

`Ways` and `Traffic` decide what happens to each message, without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import trio

from trio_mcp.client.failover.carrier import Carrier
from trio_mcp.client.failover.failures import detail
from trio_mcp.client.failover.parameters import Switch, TransportStatus
from trio_mcp.client.failover.ways import Phase, Ways
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.messages import Malformed, Request, SessionMessage, TransportFailure
from trio_mcp.link import BUFFER
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["ReadEnd", "Router", "WriteEnd"]


class Router:
    """Receives and sends a session's messages over the links that are open.

    Args:
        on_switch: Called with each switch to another way to the server.
        alone: Whether there is only one way to the server.

    Attributes:
        ways: The links that are open, and the state of each.
        traffic: The messages on these links.
        bound: Whether the session is waiting in such a way that only a message on the link that carries it can wake it.
            This costs less than a cancel scope for each message, and is done while no other link is open.
        changed: An event, set when something changes that a way may be waiting for, and then replaced by a new one.
    """

    def __init__(self, on_switch: Callable[[Switch], object] | None, *, alone: bool = False) -> None:
        self.ways = Ways(on_switch, self.notify, alone=alone)
        self.traffic = self.ways.traffic
        self.bound = False
        self.changed = trio.Event()
        self._room = trio.lowlevel.ParkingLot()
        # The cancel scope of the wait for the next message. Cancelling it has no effect once the wait has ended.
        self._reading = trio.CancelScope()
        self._read_closed = False

    def notify(self) -> None:
        """Wake every task that may have to react to a change."""
        self.changed.set()
        self.changed = trio.Event()
        for carrier in self.ways.open:
            carrier.link.wake()
        self._reading.cancel()

    def give_up(self, error: Exception) -> None:
        """End the link as a whole with an error, because no way to the server has worked."""
        self.traffic.arrived.append(SessionMessage(TransportFailure(error)))
        self.ways.advance(Phase.FAILED)

    def report(self, text: str) -> None:
        """Report to the session's ``on_error`` a problem that belongs to no call."""
        self.traffic.arrived.append(SessionMessage(Malformed(INTERNAL_ERROR, text, expects_answer=False)))
        self._reading.cancel()
        self.free_reader()

    def free_reader(self) -> None:
        """If only a message can end the session's wait, make the server send one by asking it for a sign of life."""
        if self.bound and self.ways.carrier is not None:
            self.ways.suspect(self.ways.carrier)

    # --- what comes from a server ------------------------------------------------------------------------------------

    async def pass_on(self, carrier: Carrier, item: SessionMessage) -> None:
        """Pass on to the session a message that the task of a way has read."""
        out = self.ways.take(carrier, item)
        if out is None:
            return
        try:
            # The messages of a link that drains must not fill our memory. So the link's task waits until the session
            # has read some of them, as the session's own reader would.
            while len(self.traffic.arrived) >= BUFFER and carrier.lost is None:
                await self._room.park()
        finally:
            # If the link is lost while its task waits, the task is cancelled, but the message is still passed on: if it
            # is a response, its request is no longer in flight, so nothing else would end the call.
            self.traffic.arrived.append(out)
            self._reading.cancel()

    async def receive(self) -> SessionMessage:
        """Wait for the session's next message; see `ReadEnd.receive`."""
        ways = self.ways
        while True:  # noqa: ASYNC913 - each pass waits for something
            carrier = ways.carrier
            if carrier is None or self.traffic.arrived or self._read_closed:
                if (item := await self._receive_arrived()) is not None:
                    return item
                continue
            item = None
            try:
                # If no cancel scope is used, only closing the channel can end this wait, so `close_read` must be
                # available.
                if len(ways.open) == 1 and carrier.link.close_read is not None:
                    self.bound = True
                    item = await carrier.link.read.receive()
                else:
                    # The scope is cancelled when another message has arrived for the session, or another link has taken
                    # over.
                    with trio.CancelScope() as self._reading:
                        item = await carrier.link.read.receive()
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                self._ended(carrier, exc)
            finally:
                if self.bound:
                    self.bound = False
                    if len(ways.open) > 1:
                        self.notify()  # another link may be waiting for `bound` to become False
            if item is not None and (taken := ways.take(carrier, item)) is not None:
                return taken

    async def _receive_arrived(self) -> SessionMessage | None:
        """Return a message that has arrived already; None if something has changed and the caller must look again."""
        # The checkpoint comes first: if it were cancelled after a message had been taken, the message would be lost.
        await trio.lowlevel.checkpoint()
        if self._read_closed:
            raise trio.ClosedResourceError("this end of the link has been closed")
        # The messages that have arrived are delivered before `EndOfChannel` is raised: the last one may be the failure
        # that `give_up` has added.
        if self.traffic.arrived:
            return self._next_arrived()
        if self.ways.carrier is None:
            if self.ways.phase >= Phase.FAILED:
                raise trio.EndOfChannel
            with trio.CancelScope() as self._reading:
                await trio.sleep_forever()
        return None

    def receive_nowait(self) -> SessionMessage:
        """Return the session's next message, or raise `trio.WouldBlock`; see `ReadEnd.receive_nowait`."""
        while True:
            if self.traffic.arrived:
                return self._next_arrived()
            carrier = self.ways.carrier
            if carrier is None or carrier.link.receive_nowait is None:
                raise trio.WouldBlock
            try:
                item = carrier.link.receive_nowait()
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                # The exception is not passed on, or the session would mistake the loss of one way for that of the whole
                # link.
                self._ended(carrier, exc)
                continue
            if (taken := self.ways.take(carrier, item)) is not None:
                return taken

    def _ended(self, carrier: Carrier, exc: Exception) -> None:
        if self.ways.closing:
            self.ways.carrier = None  # the session has closed its side, and then the server has closed its own
        else:
            orderly = isinstance(exc, trio.EndOfChannel)
            text = "the server closed the link" if orderly else f"the link is broken{detail(exc)}"
            self.ways.lose(carrier, TransportError(text))

    def _next_arrived(self) -> SessionMessage:
        item = self.traffic.arrived.popleft()
        self._room.unpark()
        return item

    def close_read(self) -> None:
        """Stop reading: drop the messages that have arrived, and close the links' reading halves."""
        self._read_closed = True
        self.traffic.arrived.clear()
        for carrier in self.ways.open:
            if carrier.link.close_read is not None:
                carrier.link.close_read()
        self.notify()

    # --- what the session sends --------------------------------------------------------------------------------------

    def _target(self, item: SessionMessage) -> tuple[Carrier | None, SessionMessage] | None:
        """Return the link for one of the session's messages, and the message in the form in which it is sent there.

        Returns:
            None if the message is to be dropped. The link is None while no link carries the session.
        """
        ways = self.ways
        if ways.phase >= Phase.CLOSING:
            raise trio.ClosedResourceError("this end of the link has been closed")
        if type(item.message) is Request:
            return ways.carrier, item
        return self.traffic.route(item, ways.carrier, ways.draining)

    def send_nowait(self, item: SessionMessage) -> None:
        """Send a message, or raise `trio.WouldBlock`; see `WriteEnd.send_nowait`."""
        if (found := self._target(item)) is None:
            return
        target, out = found
        if target is None or target.flushing or target.link.send_nowait is None:
            raise trio.WouldBlock
        try:
            target.link.send_nowait(out)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self._refused(target, exc)
            # After `WouldBlock`, the sender calls `send`, which waits for the next way; any other error would stop the
            # sender.
            raise trio.WouldBlock from None
        if type(out.message) is Request:
            # Unlike in `hand_over`, the request is recorded only after it has been sent: there is no wait in between,
            # so no response can have been read.
            target.in_flight[out.message.id] = out
        else:
            self._sent(target, out)

    async def send(self, item: SessionMessage) -> None:
        """Send a message as soon as a way to the server takes it; see `WriteEnd.send`."""
        # The checkpoint comes before `_target` changes anything: if it is cancelled, nothing has been sent or
        # forgotten.
        await trio.lowlevel.checkpoint()
        # Each pass chooses the link again: during a wait, another link may have taken over, or the link on which the
        # server asked may have been lost.
        while (found := self._target(item)) is not None:  # noqa: ASYNC913 - each pass that does not return waits
            target, out = found
            if target is None or target.flushing:
                await self.changed.wait()
                continue
            try:
                if await self.hand_over(target, out):
                    self._sent(target, out)
                    return
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                self._refused(target, exc)

    async def hand_over(self, carrier: Carrier, item: SessionMessage, *, waits: bool = False) -> bool:
        """Hand a message to a link; return False if the link was lost before it took the message.

        Args:
            carrier: The link.
            item: The message, which is the session's or our own.
            waits: Whether the message is a request that is waiting to be repeated. Such a request goes on waiting if
                the link does not take it, and is not sent if it has been cancelled meanwhile.

        Raises:
            trio.BrokenResourceError, trio.ClosedResourceError: If the link takes no more messages.
        """
        async with carrier.link.turn:
            # The link may have been lost while this task waited for the lock.
            if carrier.lost is not None:
                return False
            if not self.traffic.begin_sending(carrier, item, waits=waits):
                return True
            taken = False
            try:
                taken = await carrier.link.send(item)
            finally:
                self.ways.end_sending(carrier, item, taken=taken, waits=waits)
        return taken

    def _sent(self, carrier: Carrier, item: SessionMessage) -> None:
        self.traffic.sent(carrier, item)
        # The task of a draining link is waiting for messages, and would not notice by itself that nothing is left to
        # finish.
        if carrier is self.ways.draining:
            carrier.link.wake()

    def _refused(self, carrier: Carrier, exc: Exception) -> None:
        self.ways.lose(carrier, TransportError(f"the link takes no more messages{detail(exc)}"))

    async def flush(self, carrier: Carrier) -> None:
        """Send over a link the requests that are waiting to be repeated."""
        waiting = self.traffic.waiting
        try:
            while waiting and self.ways.carrier is carrier:
                await self.hand_over(carrier, next(iter(waiting.values())), waits=True)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self._refused(carrier, exc)
        carrier.flushing = False
        self.notify()

    async def close_write(self) -> None:
        """Stop sending: close the sending half of the link in use, which still writes everything sent before."""
        self.ways.advance(Phase.CLOSING)
        carrier = self.ways.carrier
        await trio.lowlevel.checkpoint_if_cancelled() if carrier is None else await carrier.link.write.aclose()


class ReadEnd(trio.abc.ReceiveChannel[SessionMessage]):
    """The session's reading half of the link over several ways."""

    def __init__(self, router: Router) -> None:
        self._router = router
        # The session's reader calls `receive_nowait` often, so the method is bound only once.
        self.receive_nowait = router.receive_nowait

    def receive(self) -> Coroutine[Any, Any, SessionMessage]:
        return self._router.receive()  # returned without `await`, which would cost one more step for each message

    def close(self) -> None:
        self._router.close_read()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class WriteEnd(trio.abc.SendChannel[SessionMessage]):
    """The session's writing half of the link over several ways.

    Attributes:
        status: Returns the status of all ways to the server.
    """

    def __init__(self, router: Router, status: Callable[[], TransportStatus]) -> None:
        self._router = router
        self.send_nowait = router.send_nowait
        self.status = status

    async def send(self, value: SessionMessage) -> None:
        await self._router.send(value)

    async def aclose(self) -> None:
        await self._router.close_write()
