"""The messages between a session and its open links: each request and each question is in one place at a time.

This module does no I/O. Its promises, which a state machine test checks together with those of `Ways`:

* each request of the session has one outcome: a response, a failure, or its cancellation;
* a request is sent again only if it may be done twice, or was certainly not done;
* a response to a question from the server goes to the link that asked, or nowhere once that link is lost.

The life of a request from the session:

    state                       what changes it
    --------------------------  --------------------------------------------------------------------------------------
    at its sender               a link carries: in flight there, and `half_sent` until the link has taken it
    in flight on a link         a response or its cancellation: settled
                                the link is lost: waiting if it may be repeated, else it fails with `OutcomeUnknown`
                                its exchange fails: waiting if it may be repeated; in doubt after too many tries
                                it is a subscription, and the link begins to drain: waiting
    waiting                     a link carries: in flight there; its cancellation: settled
    in doubt on a link          the link gives a sign of life: it fails with its last failure
                                the link is lost or drains: waiting; its cancellation: settled

The life of a question from the server: asked on a link -> answered on that link | cancelled by the server, or by us as
the link is lost.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from trio_mcp import _attrs as attrs
from trio_mcp.client.failover.carrier import Carrier
from trio_mcp.client.failover.failures import brief_cause
from trio_mcp.client.failover.remembered import ACKNOWLEDGED, Remembered
from trio_mcp.errors import OutcomeUnknown
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
    TransportFailure,
    is_request_id,
)
from trio_mcp.types.error_codes import INVALID_REQUEST
from trio_mcp.types.methods import facts_of

__all__ = ["Traffic"]

CANCELLED: Final = "notifications/cancelled"
INITIALIZED: Final = "notifications/initialized"

OWN: Final = "failover-"
"""The prefix of the ids of the failover's own requests."""

MAX_TRIES: Final = 3
"""How many times a request is sent again on the same way to the server because its exchange failed.

An arbitrary choice.
"""

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
"""The longest pause before a failed request is sent again on the same way to the server, in seconds.

The pause is short because new calls wait as well, but long enough that a way that is about to fail has time to do so.
"""

MAX_QUESTIONS: Final = 4096
"""How many of the server's pending requests are tracked at most: more than a session accepts."""


class Traffic:
    """A session's requests and its server's questions, as they move between the links.

    Attributes:
        remembered: What is needed to repeat calls and to restore a session.
        arrived: The messages that the session gets before it reads from the link that carries. Their number is bounded
            by that of the messages in flight; see `Router.pass_on`.
        waiting: The session's requests that wait to be repeated, by id.
        questions: The server's pending requests, by the id that the session knows: the link that asked, and the id on
            that link.
        tries: How many times the exchange of a request has failed on the way in use, by the request's id.
        repeated: The number of calls repeated because of a failure.
        unknown: The number of calls whose outcome is unknown.
    """

    def __init__(self) -> None:
        self.remembered = Remembered()
        self.arrived: deque[SessionMessage] = deque()
        self.waiting: dict[RequestId, SessionMessage] = {}
        self.questions: dict[RequestId, tuple[Carrier, RequestId]] = {}
        self.tries: dict[RequestId, int] = {}
        self.repeated = self.unknown = 0
        self._last_id = 0

    def own_id(self) -> str:
        """Return an id for one of the failover's own requests: a string, because the session's ids are integers."""
        self._last_id += 1
        return f"{OWN}{self._last_id}"

    # --- the session's requests --------------------------------------------------------------------------------------

    def begin_sending(self, carrier: Carrier, item: SessionMessage, *, waits: bool) -> bool:
        """Record that a message is being handed to a link.

        Args:
            carrier: The link.
            item: The message.
            waits: Whether the message is a request that is waiting to be repeated.

        Returns:
            Whether to send it: a waiting request may have been cancelled meanwhile.
        """
        message = item.message
        # The failover's own requests end with their link, so they are not recorded as in flight.
        if not isinstance(message, Request) or message.id in carrier.own:
            return True
        if waits and self.waiting.pop(message.id, None) is None:
            return False
        # The request is recorded before it is sent, as the response may come before the sender runs again.
        carrier.in_flight[message.id] = item
        carrier.half_sent = message.id
        return True

    def end_sending(self, carrier: Carrier, item: SessionMessage, *, taken: bool, waits: bool) -> None:
        """Record whether the link has taken a message."""
        request_id, carrier.half_sent = carrier.half_sent, None
        if request_id is None:
            return
        if not taken:
            # The request was not sent, so it must not look as if the server might have acted on it.
            carrier.in_flight.pop(request_id, None)
            if waits:
                self.waiting[request_id] = item
        # The link took the request, and was lost before the sender ran again. `end_link` could not know whether it was
        # sent.
        elif carrier.lost is not None and carrier.in_flight.pop(request_id, None) is not None:
            self.reclaim(carrier, item, carrier.lost)

    def repeat(self, item: SessionMessage) -> None:
        """Make a request wait to be sent again."""
        assert isinstance(item.message, Request)
        self.repeated += 1
        self.waiting[item.message.id] = item

    def reclaim(self, carrier: Carrier, item: SessionMessage, cause: Exception) -> None:
        """Repeat a request that was in flight on a link that failed, or fail its call if it may not be repeated."""
        request = item.message
        assert isinstance(request, Request)
        if self.remembered.may_repeat(item):
            self.repeat(item)
            return
        self.unknown += 1
        error = OutcomeUnknown(request.method, carrier.name, brief_cause(cause))
        # The cause is set by hand, because the error is raised elsewhere, in the task of the call.
        error.__cause__ = cause
        self.arrived.append(SessionMessage(TransportFailure(error, request.id)))

    def try_again(self, carrier: Carrier, sent: SessionMessage, failure: SessionMessage) -> bool:
        """Make a request whose exchange failed wait to be repeated, or put it in doubt; return whether it waits."""
        assert isinstance(sent.message, Request)
        request_id = sent.message.id
        done = self.tries.get(request_id, 0)
        # A subscription is repeated without a limit, as it is meant to outlast failures; `pause` keeps the repetitions
        # slow.
        if done >= MAX_TRIES and not _lasts(sent):
            # The call does not fail yet: if the whole way turns out to have failed, the request can be repeated on the
            # next one.
            carrier.in_doubt[request_id] = (sent, failure)
            return False
        self.tries[request_id] = done + 1
        self.repeat(sent)
        return True

    def still_runs(self, sent: SessionMessage, code: int) -> bool:
        """Make a request wait once more if its last try may still be running; return whether it waits."""
        # A legacy server that is still processing the last try refuses another request with the same id.
        assert isinstance(sent.message, Request)
        done = self.tries.get(sent.message.id, 0)
        if code != INVALID_REQUEST or not 0 < done <= 2 * MAX_TRIES:
            return False
        self.tries[sent.message.id] = done + 1
        self.repeat(sent)
        return True

    @property
    def pause(self) -> float:
        """Seconds to wait before requests are sent again on a way that works, although they have failed on it."""
        tries = max(self.tries.values(), default=0)
        return 0.0 if tries < 2 else min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE)

    def free_doubtful(self, carrier: Carrier) -> None:
        """Make the requests in doubt on a link wait to be repeated on the next link."""
        self.waiting.update((request_id, item) for request_id, (item, _) in carrier.in_doubt.items())
        carrier.in_doubt.clear()

    def fail_doubtful(self, carrier: Carrier) -> None:
        """Fail the requests in doubt on a link, as the link has turned out to work."""
        for request_id, (_, failure) in carrier.in_doubt.items():
            self.tries.pop(request_id, None)
            self.remembered.forget(request_id)
            self.arrived.append(failure)
        carrier.in_doubt.clear()

    def move_subscriptions(self, carrier: Carrier) -> None:
        """Make the subscriptions on a link wait for the next link, as they would not finish on this one."""
        for request_id, item in list(carrier.in_flight.items()):
            # A subscription that is half sent is moved after the link has taken it: see `Ways.end_sending`.
            if _lasts(item) and request_id != carrier.half_sent:
                del carrier.in_flight[request_id]
                self.waiting[request_id] = item
                carrier.link.offer(_cancellation(request_id, "the subscription has moved to another link"))

    # --- the end of a link -------------------------------------------------------------------------------------------

    def drained(self, carrier: Carrier) -> bool:
        """Return whether a link has nothing left to finish."""
        return not (carrier.in_flight or carrier.in_doubt) and all(
            asker is not carrier for asker, _ in self.questions.values()
        )

    def end_link(self, carrier: Carrier, cause: Exception) -> None:
        """Take everything off a link that is lost: its requests are repeated or fail, and its questions end."""
        for request_id, item in list(carrier.in_flight.items()):
            if request_id != carrier.half_sent:  # a half-sent request may not have been sent; `end_sending` will know
                del carrier.in_flight[request_id]
                self.reclaim(carrier, item, cause)
        self.free_doubtful(carrier)
        for known, (asker, _) in list(self.questions.items()):
            if asker is carrier:
                del self.questions[known]
                self.arrived.append(_cancellation(known, "the way to the server has failed"))

    # --- what the server sends ---------------------------------------------------------------------------------------

    def learn(self, sent: SessionMessage, response: Response | ErrorResponse) -> bool:
        """Learn from the response to a request whose method is in `LEARNED`; return whether it opened the session."""
        request, remembered = sent.message, self.remembered
        assert isinstance(request, Request)
        if _lasts(sent):
            remembered.forget(request.id)
        if isinstance(response, ErrorResponse):
            return False
        was_open = remembered.server is not None
        remembered.learn(request, response.result)
        return not was_open and remembered.server is not None

    def take_notification(
        self, carrier: Carrier, item: SessionMessage, notification: Notification
    ) -> SessionMessage | None:
        """Process a notification; return what the session is to get: the notification, perhaps changed, or None."""
        if notification.method == CANCELLED:
            return self._take_cancellation(carrier, item, notification)
        if notification.method == ACKNOWLEDGED:
            self.tries.clear()  # the subscription works, however often it had to be opened
            missed = self.remembered.acknowledged(notification)
            if missed is not None:
                self.arrived.extend(map(SessionMessage, missed))
                return None
        return item

    def _take_cancellation(self, carrier: Carrier, item: SessionMessage, notification: Notification) -> SessionMessage:
        request_id = (notification.params or {}).get("requestId")
        if not is_request_id(request_id):
            return item
        # In the modern era, a server ends a subscription by cancelling the request that opened it.
        ours = carrier.in_flight.get(request_id)
        if self.remembered.modern and ours is not None and _lasts(ours):
            del carrier.in_flight[request_id]
            self.remembered.forget(request_id)
            return item
        for known, asked in self.questions.items():
            if asked == (carrier, request_id):
                # The session sends no response to a request that was cancelled, so nothing else would remove the entry.
                del self.questions[known]
                if known == request_id:
                    return item
                params = {**(notification.params or {}), "requestId": known}
                return SessionMessage(attrs.evolve(notification, params=params))
        return item

    def take_question(self, carrier: Carrier, item: SessionMessage, request: Request) -> SessionMessage:
        """Record which link a server's request came from, and give it an id that is not in use on another link."""
        known = request.id
        if self.remembered.modern or len(self.questions) >= MAX_QUESTIONS:
            return item  # unchanged: the session will refuse this request
        other = self.questions.get(known)
        if other is not None:
            if other[0] is carrier:
                return item  # unchanged: a second request with this id on the same link, which the session will refuse
            # Each server numbers its own requests, so those of two links may well have the same id.
            known = self.own_id()
            item = attrs.evolve(item, message=attrs.evolve(request, id=known))
        self.questions[known] = (carrier, request.id)
        return item

    def take_batch(self, carrier: Carrier, batch: Batch) -> None:
        """Record the responses and requests in a batch."""
        for each in batch.items:
            if isinstance(each, (Response, ErrorResponse)) and each.id is not None:
                carrier.in_flight.pop(each.id, None)
            elif isinstance(each, Request) and len(self.questions) < MAX_QUESTIONS:
                self.questions.setdefault(each.id, (carrier, each.id))

    # --- what the session sends, besides requests --------------------------------------------------------------------

    def route(
        self, item: SessionMessage, carrier: Carrier | None, draining: Carrier | None
    ) -> tuple[Carrier | None, SessionMessage] | None:
        """Return the link for a response or notification, and the message in the form in which it is sent there.

        Args:
            item: The message.
            carrier: The link that carries the session; None if there is no such link.
            draining: The link that carried it before, and has calls to finish; None if there is no such link.

        Returns:
            None if the message is to be dropped. The link is None while no link carries the session.
        """
        message = item.message
        if isinstance(message, Notification):
            if message.method == CANCELLED:
                return self._route_cancellation(item, message, carrier, draining)
            if message.method == INITIALIZED and carrier is not None and carrier.opened_here:
                return None  # the failover itself sent this notification when it opened the session
        asked = _answered(message, item.related_request_id)
        if asked is None:
            return carrier, item
        # If there is no entry, the message belongs to a request that came over a link that has failed.
        found = self.questions.get(asked)
        if found is None:
            return None
        asker, there = found
        return asker, item if there == asked else _renamed(item, there)

    def _route_cancellation(
        self, item: SessionMessage, notification: Notification, *links: Carrier | None
    ) -> tuple[Carrier, SessionMessage] | None:
        request_id: RequestId = (notification.params or {}).get("requestId")  # type: ignore[assignment]
        self.tries.pop(request_id, None)
        self.remembered.forget(request_id)
        if self.waiting.pop(request_id, None) is not None:
            return None  # the request was waiting, so no server has to be told
        # A cancellation may only name a request that is in progress (`basic/utilities/cancellation`), so it is sent
        # only on the link on which the request is in flight.
        for carrier in links:
            if carrier is not None and request_id in carrier.in_flight:
                return carrier, item
            if carrier is not None:
                carrier.in_doubt.pop(request_id, None)
        return None

    def sent(self, carrier: Carrier, item: SessionMessage) -> None:
        """Record that a response or notification has been sent."""
        message = item.message
        if isinstance(message, Notification) and message.method == CANCELLED:
            # The request is removed only after its cancellation has been sent: if the link fails before that, the
            # request goes to `waiting`, and the next pass of `Router.send` removes it from there.
            carrier.in_flight.pop((message.params or {}).get("requestId"), None)  # type: ignore[arg-type]
        elif isinstance(message, (Response, ErrorResponse, Batch)):
            answered = _response_ids(message)
            for known, (asker, there) in list(self.questions.items()):
                if asker is carrier and there in answered:
                    del self.questions[known]


def _lasts(item: SessionMessage) -> bool:
    return isinstance(item.message, Request) and facts_of(item.message.method).lasting


def _cancellation(request_id: RequestId, reason: str) -> SessionMessage:
    return SessionMessage(Notification(CANCELLED, {"requestId": request_id, "reason": reason}))


def _response_ids(message: Response | ErrorResponse | Batch) -> list[RequestId | None]:
    items = message.items if isinstance(message, Batch) else (message,)
    return [each.id for each in items if isinstance(each, (Response, ErrorResponse))]


def _answered(message: object, related: RequestId | None) -> RequestId | None:
    """Return the id of the server's request that a message from the session belongs to, if any."""
    if isinstance(message, (Response, ErrorResponse, Batch)):
        return next(iter(_response_ids(message)), None)
    return related


def _renamed(item: SessionMessage, request_id: RequestId) -> SessionMessage:
    """Return a message from the session with the request id replaced by the one that the link knows."""
    message = item.message
    if isinstance(message, (Response, ErrorResponse)):
        message = attrs.evolve(message, id=request_id)
    return attrs.evolve(item, message=message, related_request_id=request_id)
