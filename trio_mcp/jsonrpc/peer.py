"""Keeps track of the requests in flight, in both directions, on one side of a link; no other module changes them.

A `Peer` does no I/O: a session passes it what arrives (`Peer.receive`) and asks it what to send; it returns events and
messages. Its promises, which a state machine test checks under many interleavings:

* each of our requests settles exactly once: by its result, its error, its cancellation, or the close;
* nothing is sent for a request of the peer after the peer has cancelled it;
* ids never clash, and nothing is left in flight after the close;
* the memory that the peer can make us use is bounded, whatever it sends.

Life of one of our requests:        open -> (sent) -> settled | cancelled
Life of one of the peer's requests: queued -> running -> answered | cancelled; then `finished` frees its place
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trio_mcp.errors import LocalProtocolError, MessageTooLarge, RemoteProtocolError, SessionClosed, TransportError
from trio_mcp.jsonrpc.events import (
    BatchInProgress,
    CancelRequested,
    Event,
    Fault,
    Hold,
    IncomingRequest,
    NotificationReceived,
    OutgoingRequest,
    ProgressReceived,
    Reply,
    RequestStarted,
    Settled,
)
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    is_request_id,
    show_id,
)
from trio_mcp.jsonrpc.order import MessageQueue
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED
from trio_mcp.types.methods import Lane, facts_of
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = ["Peer"]

# Batches were introduced in this revision and removed in the next (2025-06-18, changelog).
BATCH_REVISION = "2025-03-26"

DEFAULT_MAX_INCOMING_BYTES = 64 * 1024 * 1024
"""The default of ``max_bytes``: by an arbitrary choice, the size limit of one message (`DEFAULT_MAX_MESSAGE_SIZE`)."""

MAX_EARLY = 64
"""The maximum number of remembered cancellations of unknown requests; also the maximum number of remembered ids of
recent requests, by which late cancellations are recognized (arbitrary)."""

EARLY_TIME = 10.0
"""How many seconds the cancellation of an unknown request is remembered (arbitrary): a cancellation overtakes its
request by milliseconds, plus the time that a new connection takes."""

LONGEST_ID = 100
"""The maximum length of a remembered id, in characters or bits (arbitrary): most clients use a counter or a UUID."""


class Peer:
    """The requests in flight on one link, in both directions.

    Args:
        max_running: How many of the peer's requests run at once; each `Lane` has as many places of its own.
        max_queued: How many more requests may wait for a place; any others are refused with `OVERLOADED`.
        max_bytes: The maximum size of all running and waiting requests together, in bytes as they arrived; a request
            that would exceed this limit is refused as well, unless it is the only one in progress or has priority.
        is_urgent: Returns whether a request from the peer overtakes others that wait for a place. clock: Returns the
        time, in seconds, if a cancellation may arrive before its request, as over HTTP, where each
            has its own POST; None if messages keep their order.
        is_client: Whether this side is the client, which sends no error response for a message without a legible id.

    Attributes:
        revision: The revision of the session that was opened on this side; None before that, and on a server without
            a session, where each request names its revision.
        closed: Whether the link is closed: nothing is received or sent any more.
        next_id: The id of our next request.
        running_count: The number of handlers that have been started and not yet reported `finished`, not counting
            those in a `Lane`.
        incoming_bytes: The bytes of the peer's requests whose handlers run or wait for a place.
        faults: How many faults of the peer have come in a row. Requests and responses to our requests reset the count;
            on a client, notifications do so as well.
    """

    def __init__(
        self,
        *,
        max_running: int = 128,
        max_queued: int = 1024,
        max_bytes: int = DEFAULT_MAX_INCOMING_BYTES,
        is_urgent: Callable[[Request], bool] = lambda request: False,
        clock: Callable[[], float] | None = None,
        is_client: bool = False,
    ) -> None:
        self.revision: str | None = None
        self.closed = False
        # Whether the peer has closed its sending side: it can't respond any more, although it may still read.
        self._deaf = False
        self._max_running = max_running
        self._max_queued = max_queued
        self._max_bytes = max_bytes
        self._is_urgent = is_urgent
        self._is_client = is_client
        self.faults = 0
        self._clock = clock
        # The cancellations that arrived before their requests, by id, the oldest first. Each value has the time at
        # which the cancellation is forgotten, and its reason.
        self._early: dict[RequestId, tuple[float, str | None]] = {}
        # The ids of the last requests. A cancellation with such an id is late, and must not cancel a later request. An
        # id must not be used twice in a session (`basic`, Requests), but a client that does so must not lose its next
        # call.
        self._recent: list[RequestId] = []  # the oldest first; a list, as a dict would grow to ten times its entries
        self.incoming_bytes = 0
        self.next_id = 1
        # The two directions have separate tables, because ids are unique within one direction only (JSON-RPC 2.0,
        # section 4). A request is removed from its table when it is settled, answered or cancelled; its handler may
        # still be running.
        self._outgoing: dict[RequestId, OutgoingRequest] = {}
        self._incoming: dict[RequestId, IncomingRequest] = {}
        self._queue: MessageQueue[IncomingRequest] = MessageQueue()
        self.running_count = 0
        # The number of handlers that run in each lane. They don't count towards `max_running`: pings must not wait for
        # slow tools, and subscriptions last as long as the session.
        self._besides: dict[Lane, int] = {"priority": 0, "listening": 0}

    @property
    def outgoing_count(self) -> int:
        """The number of our requests that are not settled."""
        return len(self._outgoing)

    @property
    def incoming_count(self) -> int:
        """The number of the peer's requests that are running or queued, without a response or a cancellation."""
        return len(self._incoming)

    @property
    def queued_count(self) -> int:
        """The number of the peer's requests that wait until a handler can be started for them."""
        return len(self._queue)

    @property
    def listening_count(self) -> int:
        """The number of open subscriptions (`subscriptions/listen`)."""
        return self._besides["listening"]

    def serves(self, request_id: RequestId) -> bool:
        """Return whether this request of the peer is running or queued, without a response or a cancellation."""
        return request_id in self._incoming

    # --- our requests --------------------------------------------------------------------------------------------

    def open_request(
        self, method: str, params: dict[str, Any] | None, *, wants_progress: bool = False
    ) -> OutgoingRequest:
        """Assign an id to a new request and record it as in flight.

        With ``wants_progress``, the id also goes into ``params["_meta"]["progressToken"]``; the caller's dicts are
        not changed.

        Raises:
            SessionClosed: If the session is closed, or the peer has ended its side.
        """
        if self._deaf:
            raise SessionClosed(f"{method!r} was not sent: the session is closed")
        request_id = self.next_id
        self.next_id += 1
        # The id can serve as the token, which only has to be unique among the requests in flight
        # (`basic/utilities/progress`).
        if wants_progress:
            params = {**(params or {})}
            params["_meta"] = {**(params.get("_meta") or {}), "progressToken": request_id}
        outgoing = OutgoingRequest(Request(request_id, method, params), wants_progress)
        self._outgoing[request_id] = outgoing
        return outgoing

    def pending(self, request_id: RequestId) -> OutgoingRequest | None:
        """Return our request with this id; None if it is settled, or was never made."""
        return self._outgoing.get(request_id)

    def cancel(self, outgoing: OutgoingRequest, reason: str | None = None) -> Notification | None:
        """Give up one of our requests.

        Returns:
            The notification to send; None if the request is already settled, was never sent, or must not be cancelled
            (``initialize``: `basic/utilities/cancellation`).
        """
        if outgoing.settled:
            return None
        self._settle(outgoing)
        # If the request has not been sent yet, the writer drops it when its turn comes, and the peer has nothing to
        # cancel.
        if not outgoing.sent or facts_of(outgoing.request.method).handshake:
            return None
        params: dict[str, Any] = {"requestId": outgoing.request.id}
        if reason is not None:
            params["reason"] = reason
        return Notification("notifications/cancelled", params)

    def fail(self, request_id: RequestId | None, error: Exception) -> tuple[Event, ...]:
        """Fail our request with this id, if it is in flight."""
        outgoing = self._outgoing.get(request_id) if request_id is not None else None
        if outgoing is None:
            return ()
        self._settle(outgoing)
        return (Settled(outgoing, error),)

    def _settle(self, outgoing: OutgoingRequest) -> None:
        outgoing.settled = True
        del self._outgoing[outgoing.request.id]

    # --- the peer's requests -------------------------------------------------------------------------------------

    def answer(self, incoming: IncomingRequest, outcome: dict[str, Any] | ErrorData) -> Message | None:
        """Respond to a request of the peer, with a result or an error.

        Returns:
            The message to send; None if the peer has cancelled the request, or its batch still lacks other responses.

        Raises:
            LocalProtocolError: If the request already has a response.
        """
        if incoming.answered:
            raise LocalProtocolError(f"request {show_id(incoming.request.id)} already has a response")
        # This is not an error of the handler: the cancellation may have arrived while it was finishing.
        if incoming.cancelled:
            return None
        incoming.answered = True
        del self._incoming[incoming.request.id]
        request_id = incoming.request.id
        message: Response | ErrorResponse = (
            ErrorResponse(request_id, outcome) if type(outcome) is ErrorData else Response(request_id, outcome)  # type: ignore[arg-type]
        )
        return message if incoming.batch is None else incoming.batch.close_one(message)

    def finished(self, incoming: IncomingRequest) -> IncomingRequest | None:
        """Record that the task of a handler has ended, which frees its place; a request without a response is given up.

        Returns:
            The queued request that takes the place, whose handler is to be run now; None if nothing waits.
        """
        if not incoming.running:  # `finished` has already been called
            return None
        incoming.running = False
        if not incoming.answered and not incoming.cancelled:
            self._drop(incoming)
        self.incoming_bytes -= incoming.request.size  # `_leave_queue` is inlined, as this runs for every request
        if incoming.hold is not None:
            incoming.hold.release()
        if incoming.lane is not None:
            self._besides[incoming.lane] -= 1
            return None
        successor = None
        # The queue's deques are tested first, without a method call: this code runs for every request, and usually no
        # other request waits.
        if self._queue.plain or self._queue.urgent:
            successor = self._queue.take()
        if successor is None:
            self.running_count -= 1
        else:  # the place is passed on, so `running_count` stays as it is
            successor.running = True
        return successor

    def _leave_queue(self, incoming: IncomingRequest) -> None:
        """Release the bytes and the `Hold` of a queued request that will never run."""
        self.incoming_bytes -= incoming.request.size
        if incoming.hold is not None:
            incoming.hold.release()

    # --- what arrives --------------------------------------------------------------------------------------------

    def receive(
        self, message: Incoming, metadata: Mapping[str, Any] | None = None, hold: Hold | None = None
    ) -> tuple[Event, ...]:
        """Record an incoming message and return the events that follow from it; after `close` there are none.

        Args:
            message: The message.
            metadata: The transport's metadata for it.
            hold: A `Hold` that is kept as long as any of the message's requests is queued or running.
        """
        if self.closed:
            return ()
        match message:
            case Request():
                return self._receive_request(message, metadata, hold, None)
            case Response():
                return self._receive_answer(message.id, message.result)
            case Notification():
                return self._receive_notification(message)
            case ErrorResponse():
                return self._receive_answer(message.id, message.error)
            case Malformed():
                return self._receive_malformed(message)
            case Batch():
                return self._receive_batch(message, metadata, hold)
            case _:
                raise TypeError(f"expected a message, got {type(message).__name__}")

    def _receive_request(
        self,
        request: Request,
        metadata: Mapping[str, Any] | None,
        hold: Hold | None,
        batch: BatchInProgress | None,
    ) -> tuple[Event, ...]:
        if self.revision in MODERN_REVISIONS:  # only a client has a modern revision: see `_may_protest`
            text = (
                f"the server sent the request {request.method[:100]!r}, which revision {self.revision} does not allow"
            )
            return self._fault(RemoteProtocolError(text))
        if self.faults:
            self.faults = 0
        # The id is compared only with the ids in flight: remembering all ids ever used would take unbounded memory.
        if request.id in self._incoming:
            return self._refuse(
                request, INVALID_REQUEST, f"a request with the id {show_id(request.id)} is already in flight", batch
            )
        incoming = IncomingRequest(request, metadata, batch=batch, hold=hold)
        queued = False
        lane = facts_of(request.method).lane
        # A request that arrives while no other is in progress may exceed the limit (`max_message_size` bounds it):
        # otherwise a large one could never be served.
        if self.incoming_bytes and self.incoming_bytes + request.size > self._max_bytes and lane != "priority":
            taken = f"{self.incoming_bytes} of max_incoming_bytes={self._max_bytes} are in use"
            return self._refuse(request, OVERLOADED, f"too many bytes of requests: {taken}; try again later", batch)
        # Lanes are bounded too: responses may have to wait, so a peer that does not read them could pile up requests. A
        # priority request that finds its lane full is treated like an ordinary one. A subscription is refused, because
        # it could occupy an ordinary place forever.
        if lane is not None and self._besides[lane] < self._max_running:
            incoming.lane = lane
            self._besides[lane] += 1
        elif lane == "listening":
            text = f"too many subscriptions: {self._max_running} are open; end one of them first"
            return self._refuse(request, OVERLOADED, text, batch)
        elif self.running_count < self._max_running:
            self.running_count += 1
        elif len(self._queue) < self._max_queued:
            queued = True
            self._queue.put(incoming, request, self._is_urgent(request))
        else:
            text = f"{self.running_count} are running and {len(self._queue)} are waiting; try again later"
            return self._refuse(request, OVERLOADED, f"too many requests: {text}", batch)
        self._incoming[request.id] = incoming
        self.incoming_bytes += request.size
        if hold is not None:
            hold.keep()
        # A queued request starts when `finished` hands it a place.
        incoming.running = not queued
        started = () if queued else (RequestStarted(incoming),)
        return started if self._clock is None else (*started, *self._cancelled_early(request.id, self._clock()))

    def _cancelled_early(self, request_id: RequestId, now: float) -> tuple[Event, ...]:
        """Remember the id of a request that has arrived, and cancel the request if its cancellation arrived first."""
        if _is_short(request_id):
            self._recent.append(request_id)
            if len(self._recent) > MAX_EARLY:
                del self._recent[0]
        early = self._early.pop(request_id, None)
        if early is None or early[0] < now:
            return ()
        return self._receive_cancelled({"requestId": request_id, "reason": early[1]})

    def _refuse(self, request: Request, code: int, text: str, batch: BatchInProgress | None) -> tuple[Event, ...]:
        error = ErrorResponse(request.id, ErrorData(code, text))
        answer: Message | None = error if batch is None else batch.close_one(error)
        return () if answer is None else (Reply(answer),)

    def _receive_answer(self, request_id: RequestId | None, outcome: dict[str, Any] | ErrorData) -> tuple[Event, ...]:
        outgoing = self._outgoing.get(request_id) if request_id is not None else None
        if outgoing is not None:
            if self.faults:
                self.faults = 0
            self._settle(outgoing)
            return (Settled(outgoing, outcome),)
        # An error without an id means that the peer could not read one of our messages.
        if request_id is None:
            # The text is cut because the peer chose it, and it may be long.
            text = outcome.message[:500] if isinstance(outcome, ErrorData) else "a result"
            return self._fault(RemoteProtocolError(f"the peer reports an error that belongs to no request: {text}"))
        if self._was_ours(request_id):
            return ()  # the response is late or a duplicate: most likely, the request was cancelled before it arrived
        return self._fault(
            RemoteProtocolError(f"the peer sent a response to request {show_id(request_id)}, which was never made")
        )

    def _was_ours(self, request_id: RequestId) -> bool:
        # Our ids count up from 1, so every id that was ever used is known without a list of them.
        return type(request_id) is int and 0 < request_id < self.next_id

    def _receive_notification(self, notification: Notification) -> tuple[Event, ...]:
        if notification.method == "notifications/progress":
            return self._receive_progress(notification.params or {}, notification.size)
        if notification.method == "notifications/cancelled":
            return self._receive_cancelled(notification.params or {})
        # On a server, a notification does not reset the count of faults. A server responds to garbage, so a client that
        # reacts to each error with garbage and a notification would otherwise keep it busy forever.
        if self.faults and self._is_client:
            self.faults = 0
        return (NotificationReceived(notification),)

    def _receive_progress(self, params: dict[str, Any], size: int) -> tuple[Event, ...]:
        token, progress = params.get("progressToken"), params.get("progress")
        # A faulty progress notification is reported, but not counted: neither side responds to it, and a server that
        # reports progress without being asked may do so a thousand times during a successful call.
        if not is_request_id(token) or type(progress) not in (int, float):
            return (Fault(RemoteProtocolError("the peer sent progress without a valid progressToken or progress")),)
        outgoing = self._outgoing.get(token)
        if outgoing is not None and outgoing.wants_progress:
            if self.faults and self._is_client:
                self.faults = 0
            return (ProgressReceived(outgoing, params, size),)
        # Only requests that want progress have been given a token.
        if outgoing is not None or not self._was_ours(token):
            return (
                Fault(
                    RemoteProtocolError(f"the peer sent progress for token {show_id(token)}, which it was never given")
                ),
            )
        return ()  # the notification is late: its request is settled

    def _receive_cancelled(self, params: dict[str, Any]) -> tuple[Event, ...]:
        request_id, reason = params.get("requestId"), params.get("reason")
        if not is_request_id(request_id):
            return ()
        incoming = self._incoming.get(request_id)
        # Cancellations that are malformed or name an unknown or finished request are ignored (`cancellation`, Error
        # Handling), and initialize must not be cancelled.
        if incoming is None or facts_of(incoming.request.method).handshake:
            if self._clock is not None and request_id not in self._recent and _is_short(request_id):
                short = reason[:500] if isinstance(reason, str) else None
                self._early[request_id] = self._clock() + EARLY_TIME, short
                if len(self._early) > MAX_EARLY:
                    del self._early[next(iter(self._early))]
            return self._receive_teardown(request_id, reason)
        was_running = incoming.running
        batch_answer = self._drop(incoming)
        events: list[Event] = []
        # A running handler keeps its place until its task has ended (`finished`): cancelling takes time, and a peer
        # that cancels at once could otherwise have any number of handlers running.
        if was_running:
            events.append(CancelRequested(incoming, reason if isinstance(reason, str) else None))
        else:
            self._queue.remove(incoming)
            self._leave_queue(incoming)
        if batch_answer is not None:
            events.append(Reply(batch_answer))
        return tuple(events)

    def _receive_teardown(self, request_id: RequestId, reason: object) -> tuple[Event, ...]:
        """End a subscription, the only kind of our requests that the peer may cancel (`patterns/cancellation`)."""
        # In 2026-07-28, the server ends a `subscriptions/listen` by cancelling the client's request.
        outgoing = self._outgoing.get(request_id)
        if outgoing is None or not facts_of(outgoing.request.method).lasting:
            return ()
        self._settle(outgoing)
        why = f": {reason[:500]}" if isinstance(reason, str) else ""
        return (Settled(outgoing, TransportError(f"the server ended the subscription{why}")),)

    def _drop(self, incoming: IncomingRequest) -> Batch | None:
        # A cancelled request gets no response, so its batch must not wait for one.
        incoming.cancelled = True
        del self._incoming[incoming.request.id]
        return None if incoming.batch is None else incoming.batch.close_one(None)

    def _receive_malformed(self, message: Malformed) -> tuple[Event, ...]:
        too_large = message.limit is not None
        error = MessageTooLarge(message.limit) if too_large else RemoteProtocolError(message.reason, message.code)  # type: ignore[arg-type]
        # A malformed response still fails its call, if its id is legible.
        if not message.expects_answer:
            outgoing = self._outgoing.get(message.id) if message.id is not None else None
            if outgoing is not None:
                self._settle(outgoing)
                return (Settled(outgoing, error),)
            # `INTERNAL_ERROR` marks a problem reported by our own transport, for which the peer is not to blame.
            return (Fault(error),) if message.code == INTERNAL_ERROR else self._fault(error)
        return self._protest(error, ErrorResponse(message.id, ErrorData(message.code, message.reason)))

    def _fault(self, error: RemoteProtocolError) -> tuple[Event, ...]:
        self.faults += 1
        return (Fault(error),)

    def _protest(self, error: RemoteProtocolError, answer: ErrorResponse) -> tuple[Event, ...]:
        fault = self._fault(error)
        return (*fault, Reply(answer)) if self._may_protest(answer.id) else fault

    def _may_protest(self, request_id: RequestId | None) -> bool:
        # A modern client sends requests and cancellations only (2026-07-28 `transports/stdio`, Sending Messages). A
        # server opens no session in the modern era, so if the revision is modern, this side is the client.
        if self.revision in MODERN_REVISIONS:
            return False
        # A client does not respond to a message without an id, which may be a line of a log: a server that logs to its
        # standard output would log our error response on its next line, and so on. A server must always send an error
        # response (JSON-RPC 2.0, section 5).
        return request_id is not None or not self._is_client

    def _receive_batch(self, batch: Batch, metadata: Mapping[str, Any] | None, hold: Hold | None) -> tuple[Event, ...]:
        if self.revision != BATCH_REVISION:
            spoken = self.revision or "not known yet"
            text = f"batches are part of revision {BATCH_REVISION} only; the revision of this session is {spoken}"
            protest = self._protest(RemoteProtocolError(text), ErrorResponse(None, ErrorData(INVALID_REQUEST, text)))
            ids = [item.id for item in batch.items if isinstance(item, (Response, ErrorResponse))]
            # The responses in the batch count as lost, because the calls that they belong to would otherwise wait for
            # responses that never come.
            return sum((self.fail(each, RemoteProtocolError(text)) for each in ids), protest)
        # The response to a batch is a batch. The count starts at one, so that immediate refusals don't complete the
        # response before the whole batch has been read; the last `close_one` below subtracts that one.
        answers = BatchInProgress(1)
        events: list[Event] = []
        faults = self.faults
        for item in batch.items:
            # The handshake must not be part of a batch (2025-03-26 `basic/lifecycle`, Initialization).
            if isinstance(item, Request) and facts_of(item.method).handshake:
                error = ErrorData(INVALID_REQUEST, "initialize must not be part of a batch")
                answers.answers.append(ErrorResponse(item.id, error))
            elif isinstance(item, Request):
                answers.waiting += 1
                events += self._receive_request(item, metadata, hold, answers)
            elif isinstance(item, Malformed) and item.expects_answer:
                events += self._fault(RemoteProtocolError(item.reason, item.code))
                if self._may_protest(item.id):
                    answers.answers.append(ErrorResponse(item.id, ErrorData(item.code, item.reason)))
            else:
                events += self.receive(item)
        if (complete := answers.close_one(None)) is not None:
            events.append(Reply(complete))
        self.faults = min(self.faults, faults + 1)  # a batch counts as one message, so it adds at most one fault
        return tuple(events)

    # --- the end -------------------------------------------------------------------------------------------------

    def end_of_input(self) -> list[OutgoingRequest]:
        """Record that the peer will send nothing more; it may still read the responses to its requests.

        Returns:
            Our requests that will never get a response, to be settled with an error.
        """
        # The peer's requests keep running, because the peer may have closed only its sending side, and still read the
        # responses.
        self._deaf = True
        outgoing = list(self._outgoing.values())
        for request in outgoing:
            self._settle(request)
        return outgoing

    def close(self) -> tuple[list[OutgoingRequest], list[IncomingRequest]]:
        """Close the link: nothing is received or sent any more.

        Returns:
            Our requests, to be settled with an error, and the peer's running ones, whose scopes are to be cancelled.
        """
        # `closed` makes `receive` return no events, so messages that still arrive are dropped.
        self.closed = True
        outgoing = self.end_of_input()
        incoming = list(self._incoming.values())
        for received in incoming:
            received.cancelled = True
        self._incoming.clear()
        while (queued := self._queue.take()) is not None:
            self._leave_queue(queued)
        return outgoing, [received for received in incoming if received.running]


def _is_short(request_id: RequestId) -> bool:
    return (request_id.bit_length() if isinstance(request_id, int) else len(request_id)) <= LONGEST_ID
