"""The bookkeeping of one side of a link, step by step; `test_peer_machine` puts the steps in every order."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp.errors import LocalProtocolError, MessageTooLarge, RemoteProtocolError, SessionClosed, TransportError
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.events import (
    CancelRequested,
    Event,
    Fault,
    IncomingRequest,
    OutgoingRequest,
    Reply,
    RequestStarted,
    Settled,
)
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    TransportFailure,
)
from trio_mcp.jsonrpc.peer import EARLY_TIME, MAX_EARLY, Peer

INVALID_REQUEST, PARSE_ERROR, INTERNAL_ERROR, OVERLOADED = -32600, -32700, -32603, -31429
HUGE = "x" * 100_000


def started(peer: Peer, request_id: int | str = 1, method: str = "x") -> IncomingRequest:
    return only(peer.receive(Request(request_id, method)), RequestStarted).incoming


def sent(peer: Peer, method: str = "x", *, wants_progress: bool = False) -> OutgoingRequest:
    outgoing = peer.open_request(method, None, wants_progress=wants_progress)
    outgoing.sent = True
    return outgoing


def cancelled(request_id: Any, **params: Any) -> Notification:
    return Notification("notifications/cancelled", {"requestId": request_id, **params})


def only(events: tuple[Event, ...], kind: type[Any]) -> Any:
    (event,) = events
    assert isinstance(event, kind)
    return event


def broken_answer(outgoing: OutgoingRequest) -> Malformed:
    return Malformed(INVALID_REQUEST, "x", outgoing.request.id, expects_answer=False)


# --- our requests ------------------------------------------------------------------------------------------------


def test_ids_are_integers_that_are_never_used_again() -> None:
    """2025-11-25 `basic/index`, Requests: an id "MUST NOT have been previously used" in the session."""
    peer, ids = Peer(), []
    for _ in range(3):
        ids.append(sent(peer).request.id)
        peer.receive(Response(ids[-1], {}))
    assert len(set(ids)) == 3
    assert all(type(each) is int for each in ids)


def test_the_progress_token_is_the_id_and_goes_into_a_copy() -> None:
    """`patterns/progress`: tokens are unique across active requests, as ids are; the caller's dicts are its own."""
    peer = Peer()
    params = {"a": 1, "_meta": {"b": 2}}
    request = peer.open_request("x", params, wants_progress=True).request
    assert request.params == {"a": 1, "_meta": {"b": 2, "progressToken": request.id}}
    assert params == {"a": 1, "_meta": {"b": 2}}
    bare = peer.open_request("x", None, wants_progress=True).request
    assert bare.params == {"_meta": {"progressToken": bare.id}}
    assert peer.open_request("x", params).request.params is params


def test_an_answer_settles_its_request_once() -> None:
    """In any order; a duplicate is ignored, and fails no request that is still in flight."""
    peer = Peer()
    first, second = sent(peer), sent(peer)
    answer = Response(second.request.id, {"a": 1})
    event = only(peer.receive(answer), Settled)
    assert (event.outgoing, event.outcome) == (second, {"a": 1})
    assert peer.receive(answer) == ()
    assert (first.settled, peer.outgoing_count) == (False, 1)
    error = ErrorData(5, "no", {"b": 2})
    assert only(peer.receive(ErrorResponse(first.request.id, error)), Settled).outcome == error


@pytest.mark.parametrize("request_id", [0, 2, -1, 10**30, "1", HUGE])
def test_an_answer_to_what_was_never_asked_is_a_fault(request_id: int | str) -> None:
    """It is reported and settles nothing: a string of digits is not the integer. The report is of one line's length."""
    peer = Peer()
    outgoing = sent(peer)
    for answer in (Response(request_id, {}), ErrorResponse(request_id, ErrorData(1, "x"))):
        assert len(str(only(peer.receive(answer), Fault).error)) < 400
    assert not outgoing.settled


def test_an_error_without_an_id_is_a_fault() -> None:
    """The peer could not read one of our messages, and can't say which; we do not answer that."""
    fault = only(Peer().receive(ErrorResponse(None, ErrorData(PARSE_ERROR, "y" * 100_000))), Fault)
    assert "yyy" in str(fault.error)
    assert len(str(fault.error)) < 700


def test_cancelling_an_unsent_or_settled_request_sends_nothing() -> None:
    """`cancellation`: notices "MUST only reference requests" in progress, and initialize can't be cancelled."""
    peer = Peer()
    answered, twice, initialize = sent(peer), sent(peer), sent(peer, "initialize")
    peer.receive(Response(answered.request.id, {}))
    peer.cancel(twice)
    for outgoing in (peer.open_request("x", None), answered, twice, initialize):
        assert peer.cancel(outgoing, "too slow") is None
        assert outgoing.settled
    assert peer.receive(Response(initialize.request.id, {})) == ()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("clock", [Clock(), None])
def test_a_cancellation_may_overtake_its_request_only_where_messages_have_no_order(clock: Clock | None) -> None:
    """What is remembered is bounded, in number and in size."""
    peer = Peer(clock=clock)
    for number in range(MAX_EARLY + 1):
        assert peer.receive(cancelled(number)) == ()
    peer.receive(cancelled("x" * 1000))
    forgotten, known = (peer.receive(Request(number, "tools/call")) for number in (0, 1))
    assert [type(event) for event in forgotten] == [RequestStarted]
    assert [type(event) for event in known] == [RequestStarted, CancelRequested][: 1 + (clock is not None)]
    assert [type(event) for event in peer.receive(Request("x" * 1000, "tools/call"))] == [RequestStarted]


@pytest.mark.parametrize(("seconds", "remembered"), [(EARLY_TIME, True), (EARLY_TIME + 0.1, False)])
def test_a_cancellation_that_comes_first_is_remembered_for_a_short_time(seconds: float, remembered: bool) -> None:
    clock = Clock()
    peer = Peer(clock=clock)
    peer.receive(cancelled(7))
    clock.now += seconds
    kinds = [type(event) for event in peer.receive(Request(7, "tools/call"))]
    assert kinds == [RequestStarted, CancelRequested][: 1 + remembered]


def test_a_late_cancellation_does_not_strike_a_request_that_uses_its_id_again() -> None:
    """Ids MUST NOT be used twice in a session (`basic`, Requests), but some clients do."""
    peer = Peer(clock=Clock())
    peer.answer(started(peer, 7), {})
    assert peer.receive(cancelled(7)) == ()
    started(peer, 7)


def test_a_cancellation_that_came_first_is_used_once() -> None:
    peer = Peer(clock=Clock())
    peer.receive(cancelled(7))
    (begun, _) = peer.receive(Request(7, "tools/call"))
    assert isinstance(begun, RequestStarted)
    peer.finished(begun.incoming)
    started(peer, 7)


def test_late_messages_for_a_cancelled_request_are_ignored() -> None:
    """`cancellation`: the sender "SHOULD ignore any response to the request that arrives afterward"."""
    peer = Peer()
    outgoing = sent(peer, wants_progress=True)
    peer.cancel(outgoing)
    progress = {"progressToken": outgoing.request.id, "progress": 1}
    assert peer.receive(Notification("notifications/progress", progress)) == ()
    assert peer.receive(Response(outgoing.request.id, {})) == ()
    assert peer.receive(ErrorResponse(outgoing.request.id, ErrorData(1, "x"))) == ()


# --- progress ----------------------------------------------------------------------------------------------------


NO_TOKENS = (None, True, 1.0, [1], 99, "1", HUGE, 2)  # the second request has not asked for progress


@pytest.mark.parametrize(
    "params",
    [
        *(None, {}, {"progressToken": 1}, {"progress": 1}),
        *({"progressToken": token, "progress": 1} for token in NO_TOKENS),
        *({"progressToken": 1, "progress": value} for value in ("1", True, None)),
    ],
)
def test_progress_that_fits_no_request_is_a_fault(params: dict[str, Any] | None) -> None:
    """`patterns/progress`: notifications "MUST only reference tokens" that were given."""
    peer = Peer()
    assert [sent(peer, wants_progress=wanted).request.id for wanted in (True, False)] == [1, 2]
    fault = only(peer.receive(Notification("notifications/progress", params)), Fault)
    assert len(str(fault.error)) < 400


# --- what can't be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_broken_answer_fails_its_call(in_batch: bool) -> None:
    """It need not wait for its timeout; an unknown one is reported. Neither is answered."""
    peer = batching()
    outgoing = sent(peer)
    broken = broken_answer(outgoing)
    event = only(peer.receive(Batch((broken,)) if in_batch else broken), Settled)
    assert event.outgoing is outgoing
    assert isinstance(event.outcome, RemoteProtocolError)
    only(peer.receive(broken), Fault)


def test_too_large_an_answer_fails_its_call_with_the_limit() -> None:
    """The caller can tell, and raise the limit."""
    peer = Peer()
    outgoing = sent(peer)
    event = only(peer.receive(Malformed(INVALID_REQUEST, "x", outgoing.request.id, False, 10)), Settled)
    assert isinstance(event.outcome, MessageTooLarge)
    assert event.outcome.limit == 10
    fault, _ = peer.receive(Malformed(INVALID_REQUEST, "x", None, True, 10))
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, MessageTooLarge)


def test_sending_what_is_not_a_message_is_a_mistake_of_the_session() -> None:
    """A `TransportFailure` is for `Peer.fail`."""
    with pytest.raises(TypeError, match="expected a message"):
        Peer().receive(TransportFailure(TransportError("x"), 1))


@pytest.mark.parametrize(
    "message", [Request(1, "roots/list"), Malformed(PARSE_ERROR, "x", 1), Batch((Request(1, "x"),))]
)
def test_a_modern_client_answers_nothing(message: Any) -> None:
    """2026-07-28 `transports/stdio`: the client "MUST NOT write JSON-RPC responses", the server no requests."""
    peer = Peer()
    peer.revision = "2026-07-28"
    assert isinstance(only(peer.receive(message), Fault).error, RemoteProtocolError)
    assert peer.incoming_count == peer.running_count == 0


NO_ID = {
    "no JSON": Malformed(PARSE_ERROR, "x"),
    "no message": Malformed(INVALID_REQUEST, "x"),
    "too large": Malformed(INVALID_REQUEST, "x", None, True, 10),
    "a batch": Batch((Notification("x"),)),
}


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("message", NO_ID.values(), ids=NO_ID)
def test_only_a_server_answers_what_has_no_id(message: Any, is_client: bool) -> None:
    """JSON-RPC 2.0, 5: a server owes an error even for what it can't read. A client owes something to requests alone:
    a server with its log on standard output would log the error, and each line would bring the next."""
    events = Peer(is_client=is_client).receive(message)
    assert [type(event) for event in events] == [Fault, Reply][: 1 if is_client else 2]


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])
def test_a_malformed_request_with_an_id_is_answered_by_both(is_client: bool) -> None:
    """The peer waits for a response to it; also as a part of a batch."""
    peer = batching(is_client=is_client)
    broken = Malformed(INVALID_REQUEST, "x", 7)
    assert peer.receive(broken)[1:] == (Reply(ErrorResponse(7, ErrorData(INVALID_REQUEST, "x"))),)
    *_, reply = peer.receive(Batch((broken, Malformed(INVALID_REQUEST, "y"))))
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, Batch)
    assert [each.id for each in reply.message.items] == [7, None][: 1 if is_client else 2]  # type: ignore[union-attr]


FAULTS = {
    "no JSON": Malformed(PARSE_ERROR, "x"),
    "a malformed request": Malformed(INVALID_REQUEST, "x", 7),
    "a malformed response to nothing": Malformed(INVALID_REQUEST, "x", 99, expects_answer=False),
    "a response to nothing": Response(99, {}),
    "an error of no request": ErrorResponse(None, ErrorData(1, "x")),
    "a batch with nothing valid": Batch((Malformed(INVALID_REQUEST, "x"),) * 5),
}


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("message", FAULTS.values(), ids=FAULTS)
def test_faults_in_a_row_are_counted(message: Any, is_client: bool) -> None:
    """By messages, not by what is in them. A request ends the row, a response to one of our requests and, as only
    a server answers garbage, on a client a notification as well."""
    peer = batching(is_client=is_client)
    for number in (1, 2, 3):
        peer.receive(message)
        assert peer.faults == number
    peer.receive(Notification("x"))
    assert peer.faults == (0 if is_client else 3)
    for valid in (Request(1, "x"), Response(sent(peer).request.id, {}), Batch((Request(2, "x"),))):
        peer.receive(message)
        peer.receive(valid)
        assert peer.faults == 0
    peer.receive(message)
    outgoing = sent(peer, wants_progress=True)
    peer.receive(Notification("notifications/progress", {"progressToken": outgoing.request.id, "progress": 1}))
    assert peer.faults == (0 if is_client else 1)


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("params", [{"progressToken": 99, "progress": 1}, {"progress": 1}])
def test_progress_without_a_request_for_it_is_reported_but_not_counted(params: dict[str, Any], is_client: bool) -> None:
    """Neither side answers it, so it can't go back and forth; and the call that it comes with may go well."""
    peer = Peer(is_client=is_client)
    peer.receive(Malformed(PARSE_ERROR, "x"))
    assert [type(event) for event in peer.receive(Notification("notifications/progress", params))] == [Fault]
    assert peer.faults == 1


def test_what_is_late_neither_counts_as_a_fault_nor_ends_a_row() -> None:
    """The peer is to blame neither for what crosses a cancellation nor for what our own transport reports."""
    peer = Peer(is_client=True)
    outgoing = sent(peer, wants_progress=True)
    peer.cancel(outgoing)
    peer.receive(Malformed(PARSE_ERROR, "x"))
    for late in (
        Response(outgoing.request.id, {}),
        Notification("notifications/progress", {"progressToken": outgoing.request.id, "progress": 1}),
        cancelled(5),
        Malformed(INTERNAL_ERROR, "the server did not take a notification", expects_answer=False),
    ):
        peer.receive(late)
    assert peer.faults == 1


def test_after_the_end_of_input_nothing_is_asked() -> None:
    """Ours are settled, as the peer will answer nothing more; it may still read, so theirs go on."""
    peer = Peer()
    running, outgoing = started(peer), sent(peer)
    assert peer.end_of_input() == [outgoing]
    with pytest.raises(SessionClosed):
        peer.open_request("x", None)
    assert peer.answer(running, {}) == Response(1, {})


# --- the peer's requests -----------------------------------------------------------------------------------------


def test_a_request_is_answered_once_and_frees_its_place_once() -> None:
    """A second answer is our own mistake, so it raises; the end may be reported again."""
    peer = Peer()
    incoming = started(peer, "a")
    assert peer.answer(incoming, {"b": 1}) == Response("a", {"b": 1})
    with pytest.raises(LocalProtocolError, match="already has a response"):
        peer.answer(incoming, {})
    assert [peer.finished(incoming), peer.finished(incoming), peer.running_count] == [None, None, 0]


def test_an_id_in_flight_is_refused_and_the_first_request_lives_on() -> None:
    """2026-07-28 `basic/index`: an id "MUST NOT match the ID of any other request" that waits for its answer."""
    peer = Peer()
    incoming = started(peer, HUGE)
    reply = only(peer.receive(Request(HUGE, "y")), Reply).message
    assert (reply.id, reply.error.code) == (HUGE, INVALID_REQUEST)
    assert len(reply.error.message) < 300
    assert incoming.open
    peer.answer(incoming, {})
    started(peer, HUGE)
    assert [started(peer, each).request.id for each in (1, "1")] == [1, "1"]  # JSON keeps them apart


class Counted:
    """A hold that counts who keeps it."""

    kept = 0

    def keep(self) -> None:
        self.kept += 1

    def release(self) -> None:
        self.kept -= 1


def sized(request_id: int, size: int, method: str = "x") -> Request:
    return Request(request_id, method, None, size)


def test_running_and_waiting_requests_are_bounded_in_bytes_until_they_end() -> None:
    """Answered, cancelled while waiting or running, or closed: each request releases what it took."""
    peer, hold = Peer(max_running=2, max_bytes=100), Counted()
    running = [only(peer.receive(sized(each, 20), None, hold), RequestStarted).incoming for each in (1, 2)]
    for each in (3, 4, 5):
        assert peer.receive(sized(each, 20), None, hold) == ()
    assert (peer.incoming_bytes, hold.kept) == (100, 5)
    reply = only(peer.receive(sized(6, 1), None, hold), Reply).message
    assert (reply.error.code, "max_incoming_bytes=100" in reply.error.message) == (OVERLOADED, True)
    assert isinstance(peer.receive(sized(7, 1, "ping"))[0], RequestStarted)  # a ping is exempt
    peer.receive(cancelled(4))
    assert (peer.incoming_bytes, hold.kept) == (81, 4)
    peer.receive(cancelled(1))
    assert hold.kept == 4  # its handler has yet to end
    third = peer.finished(running[0])
    assert hold.kept == 3
    peer.close()
    assert hold.kept == 2  # what has waited is dropped, what runs is not over
    for each in (running[1], third):
        assert each is not None
        peer.finished(each)
    assert (peer.incoming_bytes, hold.kept) == (1, 0)  # the ping


def test_one_request_alone_may_have_more_bytes() -> None:
    """Else it would never be served."""
    peer = Peer(max_bytes=100)
    assert isinstance(peer.receive(sized(1, 1000))[0], RequestStarted)
    assert isinstance(peer.receive(sized(2, 1))[0], Reply)


def test_beyond_the_limit_requests_wait_in_order_and_then_are_refused() -> None:
    peer = Peer(max_running=2, max_queued=2)
    first, second = started(peer, 1), started(peer, 2)
    assert peer.receive(Request(3, "x")) == peer.receive(Request(4, "x")) == ()
    refusal = only(peer.receive(Request(5, "x")), Reply).message
    assert (refusal.id, refusal.error.code) == (5, OVERLOADED)
    assert (peer.running_count, peer.incoming_count) == (2, 4)
    for ended, next_id in ((second, 3), (first, 4)):
        peer.answer(ended, {})
        successor = peer.finished(ended)
        assert successor is not None
        assert successor.request.id == next_id
        assert peer.receive(Request(next_id + 2, "x")) == ()
    assert peer.running_count == 2


@pytest.mark.parametrize("method", ["initialize", "ping", "server/discover"])
def test_a_full_house_keeps_no_ping_and_no_handshake_out(method: str) -> None:
    """A busy server is alive, and says so; but whatever the peer asks without reading its answers is bounded."""
    peer = Peer(max_running=1, max_queued=0)
    busy = started(peer, 1)
    ping = started(peer, 2, method)
    assert peer.answer(ping, {}) == Response(2, {})
    assert peer.running_count == 1
    assert peer.finished(ping) is None
    assert peer.running_count == 1
    only(peer.receive(Request(3, "x")), Reply)
    assert peer.finished(busy) is None
    flooded = Peer(max_running=2, max_queued=3)
    kinds = [type(event) for each in range(20) for event in flooded.receive(Request(each, method))]
    assert (kinds.count(RequestStarted), kinds.count(Reply), flooded.incoming_count) == (4, 13, 7)


def test_listeners_take_no_place_of_a_call_and_never_queue() -> None:
    """2026-07-28 `basic/patterns/subscriptions`: the stream stays open until the client cancels it."""
    peer = Peer(max_running=2, max_queued=5)
    listening = [started(peer, number, "subscriptions/listen") for number in (1, 2)]
    refusal = only(peer.receive(Request(3, "subscriptions/listen")), Reply).message
    assert (refusal.id, refusal.error.code) == (3, OVERLOADED)
    calls = [started(peer, number) for number in (4, 5)]
    assert peer.receive(Request(6, "x")) == ()
    assert (peer.running_count, peer.listening_count, peer.incoming_count) == (2, 2, 5)
    only(peer.receive(Request(7, "subscriptions/listen")), Reply)
    only(peer.receive(cancelled(1)), CancelRequested)
    assert peer.finished(listening[0]) is None, "a listener's place is not free for the waiting call"
    started(peer, 8, "subscriptions/listen")
    assert peer.finished(calls[0]) is not None


def test_a_request_that_its_handler_left_unanswered_is_given_up() -> None:
    """It does not stay in flight forever, where its id would be refused."""
    peer = Peer()
    incoming = started(peer)
    peer.finished(incoming)
    assert peer.incoming_count == 0
    assert peer.answer(incoming, {}) is None
    started(peer)


# --- cancellation by the peer ------------------------------------------------------------------------------------


def test_cancelling_a_queued_request() -> None:
    peer = Peer(max_running=1)
    running = started(peer, 1)
    for request_id in (2, 3):
        assert peer.receive(Request(request_id, "x")) == ()
    assert peer.receive(cancelled(2)) == ()
    assert peer.incoming_count == 2
    successor = peer.finished(running)
    assert successor is not None
    assert successor.request.id == 3


def test_the_id_of_a_cancelled_request_is_free_again() -> None:
    """Its handler may still be running; what it answers belongs to the old request and is not sent."""
    peer = Peer()
    old = started(peer, 1)
    peer.receive(cancelled(1))
    new = started(peer, 1)
    assert peer.answer(old, {"old": 1}) is None
    assert peer.answer(new, {"new": 1}) == Response(1, {"new": 1})
    peer.finished(old)
    peer.finished(new)
    assert (peer.incoming_count, peer.running_count) == (0, 0)


def test_a_cancellation_that_comes_after_the_answer_changes_nothing() -> None:
    """`cancellation`, Timing Considerations: both parties must handle the race; initialize can't be cancelled."""
    peer = Peer()
    incoming, initialize = started(peer), started(peer, 2, "initialize")
    peer.answer(incoming, {})
    assert peer.receive(cancelled(1)) == peer.receive(cancelled(2)) == ()
    assert peer.finished(incoming) is None
    assert peer.answer(initialize, {}) == Response(2, {})


def test_a_server_may_end_a_subscription_by_a_cancellation() -> None:
    """2026-07-28 `patterns/cancellation`: it names a request of the client's, and only ``subscriptions/listen``."""
    peer = Peer()
    listen, call = sent(peer, "subscriptions/listen"), sent(peer, "tools/call")
    assert peer.receive(cancelled(call.request.id)) == ()
    event = only(peer.receive(cancelled(listen.request.id, reason="shutdown")), Settled)
    assert event.outgoing is listen
    assert isinstance(event.outcome, TransportError)
    assert "shutdown" in str(event.outcome)
    assert not call.settled


# --- batches: tests/requirements has the rest --------------------------------------------------------------------


def batching(**limits: Any) -> Peer:
    peer = Peer(**limits)
    peer.revision = "2025-03-26"
    return peer


@pytest.mark.parametrize("revision", [None, "2024-11-05", "2025-06-18", "2025-11-25"])
def test_batches_are_refused_outside_their_revision(revision: str | None) -> None:
    """Only 2025-03-26 has them: one error for all, without an id; nothing of it runs, what it answers has failed."""
    peer = Peer()
    peer.revision = revision
    outgoing = sent(peer)
    fault, reply, settled = peer.receive(Batch((Request(1, "x"), Response(outgoing.request.id, {}))))
    assert isinstance(fault, Fault)
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, ErrorResponse)
    assert (reply.message.id, reply.message.error.code) == (None, INVALID_REQUEST)
    assert isinstance(settled, Settled)
    assert settled.outgoing is outgoing
    assert isinstance(settled.outcome, RemoteProtocolError)
    assert peer.incoming_count == 0


def test_a_batch_may_cancel_what_it_asks_for() -> None:
    """Both events come, in order, and the request is not answered: the batch has no response."""
    peer = batching()
    begun, given_up = peer.receive(Batch((Request(1, "x"), cancelled(1))))
    assert isinstance(begun, RequestStarted)
    assert isinstance(given_up, CancelRequested)
    assert peer.answer(begun.incoming, {}) is None


def test_what_is_refused_in_a_batch_is_answered_with_the_rest() -> None:
    """Initialize (2025-03-26 `basic/lifecycle`), duplicate ids, garbage, nested batches: each has its error."""
    peer = batching()
    (event,) = peer.receive(Batch((Request(1, "initialize"), Request(2, "x"))))
    assert isinstance(event, RequestStarted)
    batch = peer.answer(event.incoming, {})
    assert isinstance(batch, Batch)
    refusal, answer = batch.items
    assert isinstance(refusal, ErrorResponse)
    assert (refusal.id, refusal.error.code) == (1, INVALID_REQUEST)
    assert answer == Response(2, {})

    peer = batching(max_running=1, max_queued=0)
    busy = started(peer, 1)
    message = decode(b'[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","id":2,"method":"x"},[],5]')
    *faults, reply = peer.receive(message)
    assert [type(event) for event in faults] == [Fault, Fault]
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, Batch)
    answers = [(item.id, item.error.code) for item in reply.message.items if isinstance(item, ErrorResponse)]
    assert answers == [(1, INVALID_REQUEST), (2, OVERLOADED), (None, INVALID_REQUEST), (None, INVALID_REQUEST)]
    assert busy.open


def test_a_cancelled_request_of_a_batch_holds_nothing_up() -> None:
    """The batch is answered without it; if all are cancelled, not at all."""
    peer = batching(max_running=1)
    (event,) = peer.receive(Batch((Request(1, "x"), Request(2, "x"), Request(3, "x"))))
    assert isinstance(event, RequestStarted)
    assert peer.receive(cancelled(2)) == ()
    assert peer.answer(event.incoming, {}) is None
    assert only(peer.receive(cancelled(3)), Reply).message == Batch((Response(1, {}),))
    peer.finished(event.incoming)
    (event,) = peer.receive(Batch((Request(4, "x"),)))
    assert isinstance(event, RequestStarted)
    assert [type(each) for each in peer.receive(cancelled(4))] == [CancelRequested]
    assert peer.answer(event.incoming, {}) is None
