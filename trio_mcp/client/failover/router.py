"""Where each message of the session goes, and what becomes of it when the way that carries it fails.

The functions that change this state do not wait, so a switch is one step: before it a request is in flight on one
link, after it the request waits for the next, or its call has failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._log import logger
from trio_mcp.client.failover.carrier import Carrier
from trio_mcp.client.failover.parameters import Switch, TransportStatus
from trio_mcp.client.failover.remembered import ACKNOWLEDGED, LEARNED, Remembered
from trio_mcp.errors import (
    AuthorizationError,
    HttpError,
    MessageTooLarge,
    OutcomeUnknown,
    RemoteProtocolError,
    TransportError,
)
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
    TransportFailure,
    is_request_id,
)
from trio_mcp.link import BUFFER
from trio_mcp.session.session import MAX_FAULTS, too_many_faults
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED
from trio_mcp.types.methods import facts_of

__all__ = ["ReadEnd", "Router", "WriteEnd"]

CANCELLED: Final = "notifications/cancelled"
INITIALIZED: Final = "notifications/initialized"

OWN: Final = "failover-"
"""How the ids of our own requests begin."""

MAX_TRIES: Final = 3
"""How often a request is sent again on one way because its exchange failed, while the way as a whole works. Chosen."""

MAX_FAILED: Final = 3
"""How often in a row calls may fail on a way, with a sign of life after each, before the next is tried. Chosen: one or
two may have themselves to blame."""

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
"""Seconds between these. Chosen: new calls wait as well, and a way that is about to fail gets the time to do so."""

MAX_GARBAGE: Final = MAX_FAULTS // 2
"""Lines in a row, or their like, that are not messages, after which a way has failed. Chosen: half of what ends a
session on a single way, as there is another one."""

MAX_QUESTIONS: Final = 4096
"""The server's requests under way that are kept track of. Chosen: more than a session lets in."""


class Router:
    """The traffic between a session and the links that are open.

    Args:
        on_switch: Called with each switch.
        alone: Whether there is no other way to go to.

    Attributes:
        carrier: The link that carries the session now; None if there is no such link.
        open: Every link that is open.
        draining: The link that has carried it before, and has calls to finish; None if there is no such link.
        waiting: The session's requests that wait to be repeated, by id.
        remembered: What is needed to repeat calls and to restore a session.
        heard: Whether any message has come from the server.
        closing: Whether the session has closed its side: no way takes over any more.
        finished: Whether the block has been left, so that all links are to be closed.
        over: Whether nothing more can come.
        bound: Whether the session is waiting for a message of the link that carries, and can't be woken otherwise. That
            costs less than a cancel scope for each message, and is done while no other link is open.
        changed: Set when something has changed that a way may be waiting for; then replaced by another event.
        switches: The number of switches so far.
        repeated: The number of calls repeated because of a failure.
        unknown: The number of calls whose outcome is not known.
    """

    def __init__(self, on_switch: Callable[[Switch], object] | None, *, alone: bool = False) -> None:
        self._on_switch = on_switch
        self._alone = alone
        self.open: dict[Carrier, None] = {}
        self.carrier: Carrier | None = None
        self.draining: Carrier | None = None
        self.waiting: dict[RequestId, SessionMessage] = {}
        self.remembered = Remembered()
        self.heard = self.closing = self.finished = self.over = self.bound = False
        self.changed = trio.Event()
        self.switches = self.repeated = self.unknown = 0
        # What the session is given before it reads from the carrier. It is bounded by what is in flight; see `pass_on`.
        self._arrived: deque[SessionMessage] = deque()
        self._room = trio.lowlevel.ParkingLot()
        # The wait for the next message; without effect once it has ended.
        self._reading = trio.CancelScope()
        self._read_closed = False
        # The server's requests under way, by the id that the session knows: the link they came from, and their id
        # there.
        self._questions: dict[RequestId, tuple[Carrier, RequestId]] = {}
        self._tries: dict[RequestId, int] = {}
        self._last_id = 0
        # The way that carried last, and why it failed.
        self._left: tuple[str, Exception | None] | None = None

    def own_id(self) -> str:
        """Return an id for a request of our own: the session's are integers."""
        self._last_id += 1
        return f"{OWN}{self._last_id}"

    def notify(self) -> None:
        """Wake everything that may have to act on a change."""
        self.changed.set()
        self.changed = trio.Event()
        for carrier in self.open:
            carrier.wake()
        self._reading.cancel()

    # --- switching -------------------------------------------------------------------------------------------------

    def activate(self, carrier: Carrier) -> None:
        """Let a link carry the session."""
        before, self.carrier = self.carrier, carrier
        planned = before is not None
        if before is not None:
            self._left = (before.name, None)
            self._let_drain(before)
        left, self._left = self._left, None
        # Before any sender runs again: new calls must not overtake those that have waited.
        carrier.flushing = bool(self.waiting)
        if left is not None:
            self._tries.clear()  # each way has its own
            # At a planned return the link before is still open and read, so no announcement has been missed.
            if not planned:
                self._arrived.extend(map(SessionMessage, self.remembered.missed()))
            self._announce(Switch(left[0], carrier.name, left[1], planned))
        self.notify()

    def _let_drain(self, carrier: Carrier) -> None:
        self.draining = carrier
        # They need not wait for a verdict on this link: the one that takes over gives them another try.
        self._free_doubtful(carrier)
        # Subscriptions last: they move, and everything else ends on this link.
        for request_id, item in list(carrier.in_flight.items()):
            if _lasts(item):
                del carrier.in_flight[request_id]
                self.waiting[request_id] = item
                if carrier.send_nowait is not None:
                    _try(carrier.send_nowait, _cancellation(request_id, "another way carries the subscription"))

    def leave(self, carrier: Carrier, cause: Exception) -> None:
        """Let a link carry no more, as its server takes nothing now or calls fail; what is in flight ends there."""
        # A server that ends refuses each new request, and only the first refusal is news.
        if carrier is not self.carrier:
            return
        if self.draining is not None:  # one drains at a time
            self.lose(carrier, cause)
            return
        carrier.left = cause
        self.carrier, self._left = None, (carrier.name, cause)
        self._let_drain(carrier)
        logger.warning("%s gets no more requests: %s", carrier.name, cause)
        self.notify()

    def _count_failure(self, carrier: Carrier) -> None:
        """Count that calls have failed on a link that has given a sign of life since; if too often, leave it."""
        # Once for all that have failed meanwhile: a connection that broke may have carried many.
        error, carrier.blamed = carrier.blamed, None
        if error is None or carrier is not self.carrier or self._alone:
            return
        carrier.failed += 1
        if carrier.failed >= MAX_FAILED:
            carrier.failing = True
            cause = TransportError(
                f"calls fail on it again and again, though it gives signs of life: {brief_cause(error)}"
            )
            cause.__cause__ = error
            self.leave(carrier, cause)

    def _announce(self, switch: Switch) -> None:
        self.switches += 1
        if switch.planned:
            logger.info("switched from %s back to %s", switch.from_way, switch.to_way)
        else:
            logger.warning("switched from %s to %s: %s", switch.from_way, switch.to_way, switch.cause)
        if self._on_switch is not None:
            # This runs in the middle of a switch, which an error of the application must not leave half done.
            try:
                self._on_switch(switch)
            except Exception:
                logger.exception("on_switch failed")

    def lose(self, carrier: Carrier, cause: Exception) -> None:
        """Give up a link: its calls are repeated on another, or fail."""
        # The reader, a sender and the way's own task may each find out; the first cause counts.
        if carrier.lost is not None:
            return
        carrier.give_up(cause)
        self.open.pop(carrier, None)
        if self.finished:
            return
        # The peer's last messages may have arrived and not been read yet.
        while carrier.receive_nowait is not None:
            try:
                item = carrier.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
                break
            if type(item.message) is TransportFailure and item.message.request_id is None:
                carrier.lost = cause = item.message.error  # says more than that a channel is closed
                break
            # Before the calls in flight are looked at: a response here settles its call, which must not be repeated.
            if (kept := self.take(carrier, item)) is not None:
                self._arrived.append(kept)
        # The session's reader may be waiting here without a scope (`bound`). Closing a channel raises
        # `ClosedResourceError` in the task that waits on it.
        if carrier.close_read is not None:
            carrier.close_read()
        if carrier is self.carrier:
            self.carrier = None
            self._left = (carrier.name, cause)
            logger.warning("%s has failed: %s", carrier.name, cause)
        if carrier is self.draining:
            self.draining = None
        for request_id, item in list(carrier.in_flight.items()):
            if request_id != carrier.half_sent:  # it may not have left; `_hand_over` finds out
                del carrier.in_flight[request_id]
                self._reclaim(carrier, item, cause)
        self._free_doubtful(carrier)
        for known, (asker, _) in list(self._questions.items()):
            if asker is carrier:
                del self._questions[known]
                self._arrived.append(_cancellation(known, "the way to the server has failed"))
        if self.carrier is not None and self.waiting:
            self.carrier.flushing = True  # what the link that was draining has left
        self.notify()

    def _reclaim(self, carrier: Carrier, item: SessionMessage, cause: Exception) -> None:
        """Decide about a request that was in flight on a link that failed."""
        request = item.message
        assert isinstance(request, Request)
        if self.remembered.may_repeat(item):
            self.repeated += 1
            self.waiting[request.id] = item
        else:
            self.unknown += 1
            error = OutcomeUnknown(request.method, carrier.name, brief_cause(cause))
            # Set by hand: it is not raised here, but in the task of the call.
            error.__cause__ = cause
            self._arrived.append(SessionMessage(TransportFailure(error, request.id)))

    @property
    def pause(self) -> float:
        """Seconds to wait before requests are sent again on a way that works, but on which they failed."""
        tries = max(self._tries.values(), default=0)
        return 0.0 if tries < 2 else min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE)

    def _free_doubtful(self, carrier: Carrier) -> None:
        self.waiting.update((request_id, item) for request_id, (item, _) in carrier.in_doubt.items())
        carrier.in_doubt.clear()

    def _acquit(self, carrier: Carrier) -> None:
        """Let the requests fail that a link has failed too often, as it has turned out to work."""
        for _, failure in carrier.in_doubt.values():
            assert isinstance(failure.message, TransportFailure)
            carrier.blamed = failure.message.error
        # Before they fail: if the link is left because of them, they are repeated on the next.
        self._count_failure(carrier)
        for request_id, (_, failure) in carrier.in_doubt.items():
            self._tries.pop(request_id, None)
            self.remembered.forget(request_id)
            self._arrived.append(failure)
        carrier.in_doubt.clear()
        # If the way's own task has read the sign of life, the session's reader is still waiting on a link.
        self._reading.cancel()

    def drained(self, carrier: Carrier) -> bool:
        """Return whether nothing is under way on a link any more that it has to finish."""
        return not (carrier.in_flight or carrier.in_doubt) and all(
            asker is not carrier for asker, _ in self._questions.values()
        )

    def end_draining(self, carrier: Carrier) -> None:
        """Record that a link has nothing more to finish."""
        if carrier is self.draining:
            self.draining = None
            self.notify()

    def give_up(self, error: Exception) -> None:
        """End the link as a whole: no way has worked."""
        self.over = True
        self._arrived.append(SessionMessage(TransportFailure(error)))
        self.notify()

    def finish(self) -> None:
        """Close all links: the block has been left."""
        self.closing = self.finished = True
        self.notify()

    def report(self, text: str) -> None:
        """Report something that belongs to no call, for the session's ``on_error``."""
        self._arrived.append(SessionMessage(Malformed(INTERNAL_ERROR, text, expects_answer=False)))
        self._reading.cancel()
        if self.bound and self.carrier is not None:
            self._suspect(self.carrier)  # its sign of life frees the session from its wait

    # --- what comes from a server ----------------------------------------------------------------------------------

    def take(self, carrier: Carrier, item: SessionMessage) -> SessionMessage | None:
        """Look at a message from a link; return what the session gets of it, if anything."""
        message = item.message
        kind = type(message)
        # The one comes from our own end of the link, and the other proves nothing: a program that works no more may
        # answer anything with a line of text.
        if kind is not TransportFailure and kind is not Malformed:
            carrier.received += 1
            if carrier.garbage:
                carrier.garbage = 0
        if kind is Response or kind is ErrorResponse:
            sent = carrier.in_flight.pop(message.id, None)  # type: ignore[union-attr, arg-type]
            if sent is None:
                return self._take_stray(carrier, item)
            if kind is ErrorResponse and is_ending(message.error):  # type: ignore[union-attr, arg-type]
                # Even what may not be repeated: a server that ends refuses a request before it begins it.
                self._send_elsewhere(sent)
                self.leave(carrier, TransportError(message.error.message[:500]))  # type: ignore[union-attr]
                return None
            if self._tries and kind is ErrorResponse and self._still_runs(sent, message.error.code):  # type: ignore[union-attr]
                return None
            # One look-up for most calls: this is on the path of each.
            if sent.message.method in LEARNED:  # type: ignore[union-attr]
                self._learn(sent, message)  # type: ignore[arg-type]
            if self._tries:
                self._tries.pop(message.id, None)  # type: ignore[union-attr, arg-type]
            if carrier.failed:
                carrier.failed = 0
            self.heard = True
            return item
        if kind is Notification:
            return self._take_notification(carrier, item, message)  # type: ignore[arg-type]
        if kind is Request:
            return self._take_question(carrier, item, message)  # type: ignore[arg-type]
        if kind is TransportFailure:
            return self._take_failure(carrier, item, message)  # type: ignore[arg-type]
        if kind is Batch:
            return self._take_batch(carrier, item, message)  # type: ignore[arg-type]
        return self._take_malformed(carrier, item)

    def _learn(self, sent: SessionMessage, response: Response | ErrorResponse) -> None:
        assert isinstance(sent.message, Request)
        if _lasts(sent):
            self.remembered.forget(sent.message.id)
        if isinstance(response, ErrorResponse):
            return
        was_open = self.remembered.server is not None
        self.remembered.learn(sent.message, response.result)
        if not was_open and self.remembered.server is not None:
            self.notify()  # a better way may wait for the session to be open

    def _take_malformed(self, carrier: Carrier, item: SessionMessage) -> SessionMessage | None:
        message = item.message
        assert isinstance(message, Malformed)
        if message.code == INTERNAL_ERROR and message.id is None:
            # The transport's own report, such as that a notification was not accepted: the way is in doubt.
            logger.warning("%s: %s", carrier.name, message.reason)
            self._suspect(carrier)
            return None
        carrier.garbage += 1
        if carrier.garbage >= MAX_GARBAGE:
            self.lose(carrier, too_many_faults("it", MAX_GARBAGE, message.reason))
            return None
        if (
            not message.expects_answer
            and message.id is not None
            # The session fails the call because of it, so there is nothing to repeat if the link fails later.
            and carrier.in_flight.pop(message.id, None) is None
            and carrier is not self.carrier
        ):
            return None  # as in `_take_failure`
        return item

    def _suspect(self, carrier: Carrier) -> None:
        """Let the task of a way find out whether its link still works."""
        carrier.suspected = True
        carrier.wake()

    def _still_runs(self, sent: SessionMessage, code: int) -> bool:
        """Send a request once more, after a pause, if its last try, whose exchange failed, may still be running."""
        # The session of the legacy era that runs it refuses another request with the same id.
        assert isinstance(sent.message, Request)
        done = self._tries.get(sent.message.id, 0)
        if code != INVALID_REQUEST or not 0 < done <= 2 * MAX_TRIES:
            return False
        self._tries[sent.message.id] = done + 1
        self._send_elsewhere(sent)
        return True

    def _send_elsewhere(self, item: SessionMessage) -> None:
        """Send a request again that the server has surely not begun, or that may be repeated."""
        assert isinstance(item.message, Request)
        self.repeated += 1
        self.waiting[item.message.id] = item
        # This may be the very link on which it failed: its task checks a link in doubt before it repeats anything.
        if self.carrier is not None:
            self.carrier.flushing = True
            self.carrier.wake()

    def _take_stray(self, carrier: Carrier, item: SessionMessage) -> SessionMessage | None:
        """Take a response to something that is not in flight on this link."""
        message = item.message
        assert isinstance(message, (Response, ErrorResponse))
        if isinstance(message.id, str) and message.id.startswith(OWN):
            # Perhaps late, after it was asked for in vain.
            if message.id in carrier.own:
                carrier.own[message.id] = message
                carrier.wake()
                if isinstance(message, ErrorResponse) and is_ending(message.error):
                    self.leave(carrier, TransportError(message.error.message[:500]))
                else:
                    self._acquit(carrier)
            return None
        if message.id is not None and carrier.lost is not None:
            self.waiting.pop(message.id, None)  # it came in the very moment in which the link was given up
            return item
        # Late, after a cancellation, or never asked for: the session knows which. From a link that has carried before
        # it is late, as what has moved on is answered elsewhere.
        return item if carrier is self.carrier else None

    def _take_notification(
        self, carrier: Carrier, item: SessionMessage, notification: Notification
    ) -> SessionMessage | None:
        if carrier is not self.carrier and carrier is not self.draining and carrier.lost is None:
            return None  # the way that carries tells the same
        if notification.method == CANCELLED:
            return self._take_cancellation(carrier, item, notification)
        if notification.method == ACKNOWLEDGED:
            self._tries.clear()  # also those of the subscription: it works, however often it had to be opened
            missed = self.remembered.acknowledged(notification)
            if missed is not None:
                self._arrived.extend(map(SessionMessage, missed))
                return None
        return item

    def _take_cancellation(
        self, carrier: Carrier, item: SessionMessage, notification: Notification
    ) -> SessionMessage | None:
        request_id = (notification.params or {}).get("requestId")
        if not is_request_id(request_id):
            return item
        # Of our subscription, which the server ends.
        ours = carrier.in_flight.get(request_id)
        if self.remembered.modern and ours is not None and _lasts(ours):
            del carrier.in_flight[request_id]
            self.remembered.forget(request_id)
            return item
        for known, (asker, there) in self._questions.items():
            if asker is carrier and there == request_id:
                # The session sends no response to a request that was cancelled, so nothing else would remove the entry.
                del self._questions[known]
                if known == there:
                    return item
                return SessionMessage(
                    attrs.evolve(notification, params={**(notification.params or {}), "requestId": known})
                )
        return item

    def _take_question(self, carrier: Carrier, item: SessionMessage, request: Request) -> SessionMessage:
        """Note where a request of the server came from, and give it an id that no other link has used."""
        known = request.id
        if self.remembered.modern or len(self._questions) >= MAX_QUESTIONS:
            return item  # the session refuses it
        other = self._questions.get(known)
        if other is not None:
            if other[0] is carrier:
                return item  # twice from the same link: the session refuses it
            # Each server numbers its requests on its own, so those of two links may well have the same id.
            known = self.own_id()
            item = attrs.evolve(item, message=attrs.evolve(request, id=known))
        self._questions[known] = (carrier, request.id)
        return item

    def _take_batch(self, carrier: Carrier, item: SessionMessage, batch: Batch) -> SessionMessage:
        for each in batch.items:
            if isinstance(each, (Response, ErrorResponse)) and each.id is not None:
                carrier.in_flight.pop(each.id, None)
            elif isinstance(each, Request) and len(self._questions) < MAX_QUESTIONS:
                self._questions.setdefault(each.id, (carrier, each.id))
        carrier.failed = 0
        self.heard = True
        return item

    def _take_failure(self, carrier: Carrier, item: SessionMessage, failure: TransportFailure) -> SessionMessage | None:
        request_id, error = failure.request_id, failure.error
        if request_id is None:
            self.lose(carrier, error)
            return None
        if request_id in carrier.own:
            carrier.own[request_id] = failure
            if carrier is not self.carrier:
                carrier.wake()
            elif is_busy(error):
                self.leave(carrier, error)
            else:
                self.lose(carrier, error)  # it was asked for a sign of life, and can't give one
            return None
        sent = carrier.in_flight.pop(request_id, None)
        if sent is None:
            # As in `_take_stray`: what has moved on from a link that has carried before is served elsewhere.
            return item if carrier is self.carrier else None
        if self.remembered.server is None and _rules_out(error):
            # Nothing has worked yet: the way is of no use, whatever the reason.
            self.waiting[request_id] = sent
            self.lose(carrier, error)
            return None
        if not _doubtful(error):
            self.remembered.forget(request_id)
            if _of_the_way(error):
                carrier.blamed = error
                self._suspect(carrier)
            return item
        # One exchange failed, and perhaps the way with it: its task finds out.
        self._suspect(carrier)
        done = self._tries.get(request_id, 0)
        if _not_done(error) or self.remembered.may_repeat(sent):
            # A subscription is repeated without a limit, as it is meant to outlast failures; `pause` keeps that slow.
            if done >= MAX_TRIES and not _lasts(sent):
                # Not failed yet: if the whole way turns out to have failed, the next one may serve it.
                carrier.in_doubt[request_id] = (sent, item)
                return None
            self._tries[request_id] = done + 1
            self._send_elsewhere(sent)
            return None
        self._reclaim(carrier, sent, error)
        carrier.blamed = error
        return None

    async def pass_on(self, carrier: Carrier, item: SessionMessage) -> None:
        """Give the session a message that was read by the task of a way."""
        out = self.take(carrier, item)
        if out is None:
            return
        try:
            # A link that drains must not fill our memory: it waits, as it would for the session.
            while len(self._arrived) >= BUFFER and carrier.lost is None:
                await self._room.park()
        finally:
            # Also if the link is lost in that wait, which cancels this task: the call of a response is settled, so
            # nothing else would end it.
            self._arrived.append(out)
            self._reading.cancel()

    async def receive(self) -> SessionMessage:
        """Wait for the session's next message: `ReadEnd.receive`."""
        while True:  # noqa: ASYNC913 - each round waits, for one thing or another
            carrier = self.carrier
            if carrier is None or self._arrived or self._read_closed:
                if (item := await self._receive_arrived()) is not None:
                    return item
                continue
            item = None
            try:
                # Without a scope only closing the channel ends this wait, so that must be possible without waiting.
                if len(self.open) == 1 and carrier.close_read is not None:
                    self.bound = True
                    item = await carrier.link.read.receive()
                else:
                    # Cancelled when something else has come for the session, or another link carries.
                    with trio.CancelScope() as self._reading:
                        item = await carrier.link.read.receive()
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                self._ended(carrier, exc)
            finally:
                if self.bound:
                    self.bound = False
                    if len(self.open) > 1:
                        self.notify()  # another link may wait for just that
            if item is not None and (taken := self.take(carrier, item)) is not None:
                return taken

    async def _receive_arrived(self) -> SessionMessage | None:
        """Take a message that has not come through the link that carries; return None if there was something else."""
        # First: a message that was taken out before a cancellation strikes would be lost.
        await trio.lowlevel.checkpoint()
        if self._read_closed:
            raise trio.ClosedResourceError("this end of the link has been closed")
        # Before the end is reported: the last message may be the failure that `give_up` has left.
        if self._arrived:
            return self._next_arrived()
        if self.over or (self.closing and self.carrier is None):
            raise trio.EndOfChannel
        if self.carrier is None:
            with trio.CancelScope() as self._reading:
                await trio.sleep_forever()
        return None

    def receive_nowait(self) -> SessionMessage:
        """Return the session's next message, or raise `trio.WouldBlock`: `ReadEnd.receive_nowait`."""
        while True:
            if self._arrived:
                return self._next_arrived()
            carrier = self.carrier
            if carrier is None or carrier.receive_nowait is None:
                raise trio.WouldBlock
            try:
                item = carrier.receive_nowait()
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                # Not raised: the session would take the loss of one way for that of the whole link.
                self._ended(carrier, exc)
                continue
            if (taken := self.take(carrier, item)) is not None:
                return taken

    def _ended(self, carrier: Carrier, exc: Exception) -> None:
        if self.closing:
            # The session has closed its side, and the server follows.
            self.over, self.carrier = True, None
        elif isinstance(exc, trio.EndOfChannel):
            self.lose(carrier, TransportError("the server closed the link"))
        else:
            self.lose(carrier, TransportError(f"the link is broken{f': {exc}' if str(exc) else ''}"))

    def _next_arrived(self) -> SessionMessage:
        item = self._arrived.popleft()
        self._room.unpark()
        return item

    def close_read(self) -> None:
        """Read no more."""
        self._read_closed = True
        self._arrived.clear()
        for carrier in self.open:
            if carrier.close_read is not None:
                carrier.close_read()
        self.notify()

    # --- what the session sends ------------------------------------------------------------------------------------

    def send_nowait(self, item: SessionMessage) -> None:
        """Send a message, or raise `trio.WouldBlock`: `WriteEnd.send_nowait`."""
        if self.closing:
            raise trio.ClosedResourceError("this end of the link has been closed")
        message = item.message
        if type(message) is Request:
            carrier = self.carrier
            if carrier is None or carrier.flushing or carrier.send_nowait is None:
                raise trio.WouldBlock
            try:
                carrier.send_nowait(item)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                self._refused(carrier, exc)
                # The sender then calls `send`, which waits for the next way; other errors would end its sending.
                raise trio.WouldBlock from None
            # Afterwards, unlike in `Carrier.send`: nothing waits in between, so no response can have been read.
            carrier.in_flight[message.id] = item
            return
        routed = self._route(item)
        if routed is None:
            return
        target, out = routed
        if target is None or target.flushing or target.send_nowait is None:
            raise trio.WouldBlock
        try:
            target.send_nowait(out)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self._refused(target, exc)
            raise trio.WouldBlock from None
        self._sent(out, target)

    async def send(self, item: SessionMessage) -> None:
        """Send a message as soon as a way takes it: `WriteEnd.send`."""
        # Before `_route` changes anything: if a cancellation strikes here, nothing has been sent or forgotten.
        await trio.lowlevel.checkpoint()
        while True:  # noqa: ASYNC913 - each round that does not return waits
            if self.closing:
                raise trio.ClosedResourceError("this end of the link has been closed")
            # Anew in each round: during the wait, another link may have taken over, or the one that asked been lost.
            routed = (self.carrier, item) if type(item.message) is Request else self._route(item)
            if routed is None:
                return
            target, out = routed
            if target is None or target.flushing:
                await self.changed.wait()
                continue
            try:
                if await self._hand_over(target, out):
                    self._sent(out, target)
                    return
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                self._refused(target, exc)

    async def _hand_over(
        self, carrier: Carrier, item: SessionMessage, queue: dict[RequestId, SessionMessage] | None = None
    ) -> bool:
        """Send a message over a link, as `Carrier.send` does."""
        sent = await carrier.send(item, queue)
        cause, message = carrier.lost, item.message
        if not sent or cause is None or not isinstance(message, Request):
            return sent
        # The link took the request, and was lost before this task ran again: `lose` could not know.
        if carrier.in_flight.pop(message.id, None) is not None:
            self._reclaim(carrier, item, cause)
            if self.carrier is not None and self.waiting:
                self.carrier.flushing = True
            self.notify()
        return sent

    def _refused(self, carrier: Carrier, exc: Exception) -> None:
        self.lose(carrier, TransportError(f"the link takes no more messages{f': {exc}' if str(exc) else ''}"))

    def _route(self, item: SessionMessage) -> tuple[Carrier | None, SessionMessage] | None:
        """Return where a response or notification goes, and how; None if it goes nowhere."""
        message = item.message
        if isinstance(message, Notification):
            if message.method == CANCELLED:
                return self._route_cancellation(item, message)
            if message.method == INITIALIZED and self.carrier is not None and self.carrier.opened_here:
                return None  # the server knows: its link was opened by us
        asked = _answered(item)
        if asked is None:
            return self.carrier, item
        found = self._questions.get(asked)
        if found is None:
            # An answer to a way that has failed; a notification about a request of it likewise.
            return None
        carrier, there = found
        return carrier, item if there == asked else _renamed(item, there)

    def _route_cancellation(
        self, item: SessionMessage, notification: Notification
    ) -> tuple[Carrier | None, SessionMessage] | None:
        request_id = (notification.params or {}).get("requestId")
        self._tries.pop(request_id, None)  # type: ignore[arg-type]
        self.remembered.forget(request_id)  # type: ignore[arg-type]
        if self.waiting.pop(request_id, None) is not None:  # type: ignore[arg-type]
            return None  # it is on no link now
        # A cancellation may only name a request that is in progress (`basic/utilities/cancellation`), so it goes to the
        # one link that has it.
        for carrier in (self.carrier, self.draining):
            if carrier is not None and request_id in carrier.in_flight:
                return carrier, item
            if carrier is not None:
                carrier.in_doubt.pop(request_id, None)  # type: ignore[arg-type]
        return None

    def _sent(self, item: SessionMessage, carrier: Carrier) -> None:
        """Record that a response or notification has left."""
        message = item.message
        if isinstance(message, Notification) and message.method == CANCELLED:
            # Not earlier: if the link fails before this has left, the request goes to `waiting`, and the next round of
            # `send` removes it from there.
            carrier.in_flight.pop((message.params or {}).get("requestId"), None)  # type: ignore[arg-type]
        elif isinstance(message, (Response, ErrorResponse, Batch)):
            for known, (asker, there) in list(self._questions.items()):
                if asker is carrier and _answers(message, there):
                    del self._questions[known]
        # Its task waits for messages, and would not notice that nothing is left to finish.
        if carrier is self.draining:
            carrier.wake()

    async def flush(self, carrier: Carrier) -> None:
        """Repeat on a link what waits for it."""
        try:
            while self.waiting and self.carrier is carrier:
                await self._hand_over(carrier, next(iter(self.waiting.values())), self.waiting)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self._refused(carrier, exc)
        carrier.flushing = False
        self.notify()

    async def close_write(self) -> None:
        """Send no more, once everything sent before has been written."""
        self.closing = True
        carrier = self.carrier
        self.notify()
        await trio.lowlevel.checkpoint_if_cancelled() if carrier is None else await carrier.link.write.aclose()


class ReadEnd(trio.abc.ReceiveChannel[SessionMessage]):
    """The reading half of the link."""

    def __init__(self, router: Router) -> None:
        self._router = router
        # For the session's reader, which takes what is there without waiting; bound once, as it does so often.
        self.receive_nowait = router.receive_nowait

    def receive(self) -> Coroutine[Any, Any, SessionMessage]:
        return self._router.receive()  # not awaited here, which would be one more step for each message

    def close(self) -> None:
        self._router.close_read()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class WriteEnd(trio.abc.SendChannel[SessionMessage]):
    """The writing half of the link.

    Attributes:
        status: Returns what carries the session.
    """

    def __init__(self, router: Router, status: Callable[[], TransportStatus]) -> None:
        self._router = router
        self.send_nowait = router.send_nowait
        self.status = status

    async def send(self, value: SessionMessage) -> None:
        await self._router.send(value)

    async def aclose(self) -> None:
        await self._router.close_write()


# --- what a failure means, and small steps ---------------------------------------------------------------------------


def brief_cause(cause: Exception) -> str:
    """Return the text of a failure for a message."""
    return (str(cause) or type(cause).__name__)[:500]


def _rules_out(error: Exception) -> bool:
    """Return whether a failed exchange rules out a way on which nothing has worked yet."""
    # A legacy server refuses the first request of a client that tries the modern era; the session deals with that.
    return not (isinstance(error, HttpError) and error.trouble == "not_modern") and _of_the_link(error)


def _of_the_link(error: Exception) -> bool:
    # What can't be written as JSON would not leave on another way either.
    return isinstance(error, TransportError) and (error.sent or type(error) is not TransportError)


def _doubtful(error: Exception) -> bool:
    """Return whether the failure of one exchange puts the whole way in doubt."""
    if isinstance(error, AuthorizationError):
        return False
    if isinstance(error, HttpError) and 400 <= error.status < 500:
        # Any other is about the request or who sent it, and each way leads to a server that would say the same.
        return error.trouble in ("busy", "session_lost")
    # Other statuses have no result, but do not say either that nothing was done: a redirection, the page of a portal.
    return _of_the_link(error)


def _of_the_way(error: Exception) -> bool:
    """Return whether the way may be to blame for the failure of a call."""
    # Not for a login that is missing, which the caller hears of, nor for what is larger than the caller allows.
    if isinstance(error, (AuthorizationError, MessageTooLarge)):
        return False
    return isinstance(error, RemoteProtocolError) or _of_the_link(error)


def _not_done(error: Exception) -> bool:
    """Return whether the server has surely not done what a failed request asks for."""
    if isinstance(error, HttpError) and error.trouble == "busy":
        # A server that ends may give up a request that it has begun, and say 503 as well; but it does not say when to
        # come back, as one does that refuses a request for now.
        return error.status == 429 or error.retry_after is not None
    return isinstance(error, TransportError) and not error.sent


def is_busy(error: Exception) -> bool:
    """Return whether a server has refused an exchange for now."""
    return isinstance(error, HttpError) and error.trouble == "busy"


def is_ending(error: ErrorData) -> bool:
    """Return whether a server of this library has refused a request because it ends, so that it has not begun it."""
    # The code alone may also mean too many requests for now, which is not a reason to leave.
    return error.code == OVERLOADED and isinstance(error.data, dict) and error.data.get("ending") is True


def _lasts(item: SessionMessage) -> bool:
    return isinstance(item.message, Request) and facts_of(item.message.method).lasting


def _cancellation(request_id: RequestId, reason: str) -> SessionMessage:
    return SessionMessage(Notification(CANCELLED, {"requestId": request_id, "reason": reason}))


def _try(send: Callable[[SessionMessage], None], item: SessionMessage) -> None:
    try:
        send(item)
    except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
        pass


def _answered(item: SessionMessage) -> RequestId | None:
    """Return the id of the server's request to which a message of the session belongs, if any."""
    message = item.message
    if isinstance(message, (Response, ErrorResponse)):
        return message.id
    if isinstance(message, Batch):
        return next((each.id for each in message.items if isinstance(each, (Response, ErrorResponse))), None)
    return item.related_request_id


def _answers(message: Response | ErrorResponse | Batch, request_id: RequestId) -> bool:
    if isinstance(message, Batch):
        return any(isinstance(each, (Response, ErrorResponse)) and each.id == request_id for each in message.items)
    return message.id == request_id


def _renamed(item: SessionMessage, request_id: RequestId) -> SessionMessage:
    """Return a message of the session under the id that its link knows."""
    message = item.message
    if isinstance(message, (Response, ErrorResponse)):
        message = attrs.evolve(message, id=request_id)
    return attrs.evolve(item, message=message, related_request_id=request_id)
