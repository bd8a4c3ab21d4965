"""Decide which link carries the session, which one drains, and when a way to the server is given up.

This module does no I/O. Nothing here waits, so a switch is one step: before it a request is in flight on one link,
after it the request waits for the next, or its call has failed. `Traffic` has the states of the requests.

The link as a whole goes through these phases, and only forward:

    phase       what changes it
    ----------  -------------------------------------------------------------------------------------------------------
    CONNECTING  the first response of a server: OPEN; no way has worked within `patience`: FAILED
    OPEN        the session closes its sending side: CLOSING
    FAILED      the session is told why, and closes its sending side: CLOSING
    CLOSING     no way takes over any more; the block is left: FINISHED
    FINISHED    nothing: all links are being closed, so losing one is not a failure

Each open link is in one of these states; at most one carries, and at most one drains:

    state     activate                lose     leave                          nothing left on it
    --------  ----------------------  -------  -----------------------------  ------------------
    spare     carries                 lost     stays                          stays
    carries   (of another) drains     lost     drains; lost if another does   stays
    drains    (of another) stays      lost     stays                          lost
    lost      never                   stays    stays                          stays

A link is lost when it breaks or is closed, gives no sign of life when asked, delivers too much garbage, or fails its
first exchange. It is left, and still finishes its calls, when its server is shutting down or busy, or when calls fail
on it again and again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from trio_mcp._log import logger
from trio_mcp.client.failover.carrier import Carrier
from trio_mcp.client.failover.failures import (
    blames_way,
    brief_cause,
    certainly_not_done,
    doubts_way,
    is_busy,
    is_ending,
    rules_out,
)
from trio_mcp.client.failover.parameters import Switch
from trio_mcp.client.failover.remembered import LEARNED, UNASKED
from trio_mcp.client.failover.traffic import OWN, Traffic
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    SessionMessage,
    TransportFailure,
)
from trio_mcp.session.session import MAX_FAULTS, too_many_faults
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["Phase", "Ways"]

MAX_FAILED = 3
"""How many times in a row calls may fail on a way to the server, with a sign of life after each failure, before the
next way is tried. One or two failures may be the fault of the calls."""

MAX_GARBAGE = MAX_FAULTS // 2
"""How many invalid messages in a row make a way to the server fail: half as many as end a session that has only one
way."""


class Phase(enum.IntEnum):
    """The phases of the link over several ways: see the table in the module's docstring."""

    CONNECTING = 0
    OPEN = 1
    FAILED = 2
    CLOSING = 3
    FINISHED = 4


class Ways:
    """The links that are open, and the state of each.

    Args:
        on_switch: Called with each switch to another way to the server.
        changed: Called when something has changed that a way or the session may be waiting for. It must not block.
        alone: Whether there is only one way to the server.

    Attributes:
        phase: The phase of the link as a whole.
        traffic: The messages on the links.
        open: Every link that is open.
        carrier: The link that carries the session now; None if there is no such link.
        draining: The link that carried the session before, and has calls to finish; None if there is no such link.
        switches: The number of switches so far.
    """

    def __init__(
        self, on_switch: Callable[[Switch], object] | None, changed: Callable[[], object], *, alone: bool = False
    ) -> None:
        self._on_switch = on_switch
        self._changed = changed
        self._alone = alone
        self.phase = Phase.CONNECTING
        self.traffic = Traffic()
        self.open: dict[Carrier, None] = {}
        self.carrier: Carrier | None = None
        self.draining: Carrier | None = None
        self.switches = 0
        # The name of the way that the session has left, and why, until another way takes over; otherwise None.
        self._left: tuple[str, Exception | None] | None = None

    def advance(self, phase: Phase) -> None:
        """Advance to a phase, unless it has been reached already."""
        if phase > self.phase:
            self.phase = phase
            self._changed()

    @property
    def closing(self) -> bool:
        """Whether the session is being closed, so that no other way takes over any more."""
        return self.phase >= Phase.CLOSING

    # --- switching ---------------------------------------------------------------------------------------------------

    def activate(self, carrier: Carrier) -> None:
        """Make a link carry the session."""
        before, self.carrier = self.carrier, carrier
        planned = before is not None
        if before is not None:
            self._left = (before.name, None)
            self._drain(before)
        left, self._left = self._left, None
        # `flushing` is set before any sender runs again, because new calls must not overtake those that are waiting.
        carrier.flushing = bool(self.traffic.waiting)
        if left is not None:
            self.traffic.tries.clear()  # tries are counted separately for each way
            # At a planned return, the previous link has been open and read until now, so no announcement has been
            # missed.
            if not planned:
                self.traffic.arrived.extend(map(SessionMessage, self.traffic.remembered.missed()))
            self._announce(Switch(left[0], carrier.name, left[1], planned))
        self._changed()

    def _announce(self, switch: Switch) -> None:
        self.switches += 1
        if switch.planned:
            logger.info("switched from %s back to %s", switch.from_way, switch.to_way)
        else:
            logger.warning("switched from %s to %s: %s", switch.from_way, switch.to_way, switch.cause)
        if self._on_switch is not None:
            # The hook runs in the middle of a switch. An error in the application's function must not leave the switch
            # unfinished.
            try:
                self._on_switch(switch)
            except Exception:
                logger.exception("on_switch failed")

    def _drain(self, carrier: Carrier) -> None:
        self.draining = carrier
        self.traffic.free_doubtful(carrier)
        self.traffic.move_subscriptions(carrier)

    def leave(self, carrier: Carrier, cause: Exception) -> None:
        """Stop using a link for new requests, because its server refuses them or calls fail; requests in flight still
        finish."""
        # A server that is shutting down refuses each new request. Only the first refusal matters, because after it the
        # link no longer carries the session.
        if carrier is not self.carrier:
            return
        if self.draining is not None:  # only one link may drain at a time
            self.lose(carrier, cause)
            return
        carrier.left = cause
        self.carrier, self._left = None, (carrier.name, cause)
        self._drain(carrier)
        logger.warning("%s gets no more requests: %s", carrier.name, cause)
        self._changed()

    def end_draining(self, carrier: Carrier) -> None:
        """Record that a link has nothing more to finish."""
        if carrier is self.draining:
            self.draining = None
            self._changed()

    def lose(self, carrier: Carrier, cause: Exception) -> None:
        """Give up a link; its calls are repeated on another link, or fail."""
        # The reader, a sender and the way's own task may each notice the loss; the first cause is kept.
        if carrier.lost is not None:
            return
        carrier.lost = cause
        # The last messages may still contain responses to the failover's own requests. Their entries are removed, so
        # that such a response is not taken as proof that the link works: that would make the requests in doubt fail.
        carrier.own.clear()
        carrier.link.give_up()
        self.open.pop(carrier, None)
        if self.phase is Phase.FINISHED:
            return
        # The last messages are processed before the requests in flight: a request whose response is among them must not
        # be repeated.
        for item in carrier.link.last_messages():
            message = item.message
            if type(message) is TransportFailure and message.request_id is None:
                carrier.lost = cause = message.error  # this error says more than that the channel was closed
                break
            if (kept := self.take(carrier, item)) is not None:
                self.traffic.arrived.append(kept)
        if carrier is self.carrier:
            self.carrier, self._left = None, (carrier.name, cause)
            logger.warning("%s has failed: %s", carrier.name, cause)
        if carrier is self.draining:
            self.draining = None
        self.traffic.end_link(carrier, cause)
        self._flush_waiting()
        self._changed()

    def _flush_waiting(self) -> None:
        # The carrier may be the very link on which a request has failed, but its task checks a link in doubt before it
        # repeats anything on it.
        if self.carrier is not None and self.traffic.waiting:
            self.carrier.flushing = True
            self.carrier.link.wake()

    def end_sending(self, carrier: Carrier, item: SessionMessage, *, taken: bool, waits: bool) -> None:
        """Record whether a link has taken a message; see `Traffic.end_sending`."""
        self.traffic.end_sending(carrier, item, taken=taken, waits=waits)
        if carrier is self.draining:
            self.traffic.move_subscriptions(carrier)
        if carrier is self.draining or carrier.lost is not None:
            # The next link may already carry the session, and may have found no waiting requests when it took over.
            self._flush_waiting()
            self._changed()

    # --- doubts about a link that carries ----------------------------------------------------------------------------

    def suspect(self, carrier: Carrier) -> None:
        """Have the task that opened a link check whether the link still works."""
        carrier.suspected = True
        carrier.link.wake()

    def _acquit(self, carrier: Carrier) -> None:
        """Fail the requests in doubt on a link, as the link has turned out to work."""
        for _, failure in carrier.in_doubt.values():
            assert isinstance(failure.message, TransportFailure)
            carrier.blamed = failure.message.error
        # The failure is counted before the calls fail: if the link is left because of the count, the calls are repeated
        # on the next link.
        self._count_failure(carrier)
        if carrier.in_doubt:
            self.traffic.fail_doubtful(carrier)
            # If the way's own task has read the sign of life, the session's reader is still waiting on a link, and has
            # to be woken.
            self._changed()

    def _count_failure(self, carrier: Carrier) -> None:
        """Count a failure of calls on a link that has since given a sign of life; leave the link after too many."""
        # All calls that have failed since the last sign of life count as one failure: a single broken connection may
        # have carried many calls.
        error, carrier.blamed = carrier.blamed, None
        if error is None or carrier is not self.carrier or self._alone:
            return
        carrier.failed += 1
        if carrier.failed >= MAX_FAILED:
            carrier.failing = True
            cause = TransportError(
                f"calls on the link failed again and again, though it gave signs of life: {brief_cause(error)}"
            )
            cause.__cause__ = error
            self.leave(carrier, cause)

    # --- what comes from a server ------------------------------------------------------------------------------------

    def take(self, carrier: Carrier, item: SessionMessage) -> SessionMessage | None:
        """Process a message from a link; return what the session is to get: the message, perhaps changed, or None."""
        message, traffic = item.message, self.traffic
        if not isinstance(message, (Response, ErrorResponse)):
            return self._take_other(carrier, item)
        carrier.received += 1
        carrier.garbage = 0
        sent = carrier.in_flight.pop(message.id, None)  # type: ignore[arg-type]
        if sent is None:
            return self._take_stray(carrier, item, message)
        if isinstance(message, ErrorResponse) and self._goes_back(carrier, sent, message.error):
            return None
        # Every response to a call takes this path, and most of them need only this one look-up.
        if sent.message.method in LEARNED and traffic.learn(sent, message):  # type: ignore[union-attr]
            self._changed()  # a better way may be waiting for the session to be open
        traffic.tries.pop(message.id, None)  # type: ignore[arg-type]
        self._note_success(carrier)
        return item

    def _take_other(self, carrier: Carrier, item: SessionMessage) -> SessionMessage | None:
        message = item.message
        if isinstance(message, TransportFailure):
            return self._take_failure(carrier, item, message)
        if isinstance(message, Malformed):
            return self._take_malformed(carrier, item, message)
        # Failures and garbage do not count as received: a failure comes from our own end of the link, and garbage
        # proves nothing, as a program that no longer works may respond to anything with a line of text. Nor do
        # announcements: a server that gets nothing from us may go on with them.
        carrier.received += getattr(message, "method", None) not in UNASKED
        carrier.garbage = 0
        if isinstance(message, Notification):
            # A spare link's notifications are dropped, because the link that carries the session announces the same
            # changes.
            if carrier in (self.carrier, self.draining) or carrier.lost is not None:
                return self.traffic.take_notification(carrier, item, message)
            return None
        if isinstance(message, Request):
            return self.traffic.take_question(carrier, item, message)
        assert isinstance(message, Batch)
        self.traffic.take_batch(carrier, message)
        self._note_success(carrier)
        return item

    def _note_success(self, carrier: Carrier) -> None:
        carrier.failed = 0
        if self.phase is Phase.CONNECTING:
            self.phase = Phase.OPEN

    def _goes_back(self, carrier: Carrier, sent: SessionMessage, error: ErrorData) -> bool:
        """Return whether a request is sent again after an error response, which the session then doesn't see."""
        if not is_ending(error):
            again = self.traffic.still_runs(sent, error.code)
            if again:
                self._flush_waiting()
            return again
        # Any request may be repeated after this error: a server that is shutting down refuses a request without
        # beginning it.
        self.traffic.repeat(sent)
        self._flush_waiting()
        self.leave(carrier, TransportError(error.message[:500]))
        return True

    def _take_stray(
        self, carrier: Carrier, item: SessionMessage, message: Response | ErrorResponse
    ) -> SessionMessage | None:
        """Process a response to a request that is not in flight on this link."""
        if isinstance(message.id, str) and message.id.startswith(OWN):
            # A response that comes too late has no entry, and nothing is waiting for it any more.
            if message.id in carrier.own:
                carrier.own[message.id] = message
                carrier.link.wake()
                if isinstance(message, ErrorResponse) and is_ending(message.error):
                    self.leave(carrier, TransportError(message.error.message[:500]))
                else:
                    self._acquit(carrier)
            return None
        if message.id is not None and carrier.lost is not None:
            self.traffic.waiting.pop(message.id, None)  # the response came just as the link was given up
            return item
        return self._if_carrying(carrier, item)

    def _if_carrying(self, carrier: Carrier, item: SessionMessage) -> SessionMessage | None:
        # On the link that carries the session, a message about a request that is not in flight came after a
        # cancellation or was never asked for; the session knows which. On any other link, the request has been moved to
        # another link, which brings its outcome.
        return item if carrier is self.carrier else None

    def _take_malformed(self, carrier: Carrier, item: SessionMessage, message: Malformed) -> SessionMessage | None:
        if message.code == INTERNAL_ERROR and message.id is None:
            # A transport uses this code, without an id, to report a problem, for example that a notification was not
            # accepted.
            logger.warning("%s: %s", carrier.name, message.reason)
            self.suspect(carrier)
            return None
        carrier.garbage += 1
        if carrier.garbage >= MAX_GARBAGE:
            self.lose(carrier, too_many_faults("it", MAX_GARBAGE, message.reason))
            return None
        if message.expects_answer or message.id is None:
            return item
        # The session fails the call because of this message, so there is nothing to repeat if the link fails later.
        return item if carrier.in_flight.pop(message.id, None) is not None else self._if_carrying(carrier, item)

    def _take_failure(self, carrier: Carrier, item: SessionMessage, failure: TransportFailure) -> SessionMessage | None:
        request_id, error = failure.request_id, failure.error
        if request_id is None:
            self.lose(carrier, error)
            return None
        if request_id in carrier.own:
            carrier.own[request_id] = failure
            if carrier is not self.carrier:
                carrier.link.wake()
            elif is_busy(error):
                self.leave(carrier, error)
            else:
                self.lose(carrier, error)  # the link was asked for a sign of life, and can't give one
            return None
        sent = carrier.in_flight.pop(request_id, None)
        if sent is None:
            return self._if_carrying(carrier, item)
        traffic = self.traffic
        if traffic.remembered.server is None and rules_out(error):
            # Nothing has worked on this way yet, so it is given up, whatever the reason for the failure.
            traffic.waiting[request_id] = sent
            self.lose(carrier, error)
            return None
        return self._take_failed_exchange(carrier, item, sent, error)

    def _take_failed_exchange(
        self, carrier: Carrier, item: SessionMessage, sent: SessionMessage, error: Exception
    ) -> SessionMessage | None:
        traffic = self.traffic
        if not doubts_way(error):
            assert isinstance(sent.message, Request)
            traffic.remembered.forget(sent.message.id)
            if blames_way(error):
                carrier.blamed = error
                self.suspect(carrier)
            return item
        # One exchange has failed, and perhaps the whole way has: the way's task checks that.
        self.suspect(carrier)
        if certainly_not_done(error) or traffic.remembered.may_repeat(sent):
            if traffic.try_again(carrier, sent, item):
                self._flush_waiting()
            return None
        traffic.reclaim(carrier, sent, error)
        carrier.blamed = error
        return None
