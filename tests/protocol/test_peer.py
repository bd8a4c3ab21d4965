"""The bookkeeping of one side of a link, method by method; `test_peer_machine` puts them in every order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.peer_steps import cancelled, only, progress, sent, started
from trio_mcp.errors import MessageTooLarge, RemoteProtocolError, SessionClosed, TransportError
from trio_mcp.jsonrpc.events import (
    Fault,
    NotificationReceived,
    ProgressReceived,
    Reply,
    Settled,
)
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Failure,
    Malformed,
    Notification,
    Request,
    Response,
)
from trio_mcp.jsonrpc.peer import Peer

INVALID_REQUEST, PARSE_ERROR, OVERLOADED = -32600, -32700, -31429
MODERN = "2026-07-28"


# --- our requests ------------------------------------------------------------------------------------------------


def test_ids_are_integers_that_are_never_used_again() -> None:
    """2025-11-25 `basic/index`, Requests: an id "MUST NOT have been previously used" in the session."""
    peer = Peer()
    ids = []
    for _ in range(3):
        outgoing = sent(peer)
        ids.append(outgoing.request.id)
        peer.receive(Response(outgoing.request.id, {}))
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


@pytest.mark.parametrize("outcome", [{"a": 1}, ErrorData(5, "no", {"b": 2})])
def test_an_answer_settles_its_request_once(outcome: dict[str, Any] | ErrorData) -> None:
    """A duplicate is ignored: it fails no request that is still in flight."""
    peer = Peer()
    outgoing, other = sent(peer), sent(peer)
    request_id = outgoing.request.id
    answer = ErrorResponse(request_id, outcome) if isinstance(outcome, ErrorData) else Response(request_id, outcome)
    event = only(peer.receive(answer), Settled)
    assert event.outgoing is outgoing
    assert event.outcome == outcome
    assert outgoing.settled
    assert peer.receive(answer) == ()
    assert not other.settled
    assert peer.outgoing_count == 1


@pytest.mark.parametrize("request_id", [0, 2, -1, 10**30, "1", "x" * 100_000])
def test_an_answer_to_what_was_never_asked_is_a_fault(request_id: int | str) -> None:
    """It is reported and settles nothing: a string of digits is not the integer. The report is of one line's length."""
    peer = Peer()
    outgoing = sent(peer)
    for answer in (Response(request_id, {}), ErrorResponse(request_id, ErrorData(1, "x"))):
        fault = only(peer.receive(answer), Fault)
        assert len(str(fault.error)) < 400
    assert not outgoing.settled


def test_an_error_without_an_id_is_a_fault() -> None:
    """The peer could not read one of our messages, and can't say which; we do not answer that."""
    fault = only(Peer().receive(ErrorResponse(None, ErrorData(PARSE_ERROR, "y" * 100_000))), Fault)
    assert "yyy" in str(fault.error)
    assert len(str(fault.error)) < 700


def test_cancelling_a_request_that_was_sent_tells_the_peer() -> None:
    """`cancellation`: the notice names the request, and the reason if there is one."""
    peer = Peer()
    outgoing = sent(peer)
    assert peer.cancel(outgoing, "too slow") == cancelled(outgoing.request.id, reason="too slow")
    other = sent(peer)
    assert peer.cancel(other) == cancelled(other.request.id)
    assert peer.outgoing_count == 0


def test_cancelling_an_unsent_or_settled_request_sends_nothing() -> None:
    """`cancellation`: notices "MUST only reference requests" that are "believed to still be in-progress"."""
    peer = Peer()
    assert peer.cancel(peer.open_request("x", None)) is None
    outgoing = sent(peer)
    peer.receive(Response(outgoing.request.id, {}))
    assert peer.cancel(outgoing) is None
    twice = sent(peer)
    assert peer.cancel(twice) is not None
    assert peer.cancel(twice) is None


def test_initialize_is_given_up_without_a_notice() -> None:
    """2025-11-25 `cancellation`: "The initialize request MUST NOT be cancelled by clients"."""
    peer = Peer()
    outgoing = sent(peer, "initialize")
    assert peer.cancel(outgoing, "too slow") is None
    assert outgoing.settled
    assert peer.receive(Response(outgoing.request.id, {})) == ()


def test_late_messages_for_a_cancelled_request_are_ignored() -> None:
    """`cancellation`: the sender "SHOULD ignore any response to the request that arrives afterward"."""
    peer = Peer()
    outgoing = sent(peer, wants_progress=True)
    peer.cancel(outgoing)
    assert peer.receive(progress(outgoing.request.id)) == ()
    assert peer.receive(Response(outgoing.request.id, {})) == ()
    assert peer.receive(ErrorResponse(outgoing.request.id, ErrorData(1, "x"))) == ()


def test_a_request_that_the_transport_lost_is_settled_with_its_error() -> None:
    """One failed exchange fails one call, once."""
    peer = Peer()
    outgoing, other = sent(peer), sent(peer)
    error = TransportError("gone")
    event = only(peer.fail(outgoing.request.id, error), Settled)
    assert (event.outgoing, event.outcome) == (outgoing, error)
    assert peer.fail(outgoing.request.id, error) == ()
    assert peer.fail("unknown", error) == ()
    assert not other.settled


# --- progress ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, -3, 0.5, 2**70])
def test_progress_reaches_the_request_that_asked_for_it(value: float) -> None:
    """With all that came along."""
    peer = Peer()
    outgoing = sent(peer, wants_progress=True)
    params = {"progressToken": outgoing.request.id, "progress": value, "total": 3, "message": "x", "_meta": {}}
    event = only(peer.receive(Notification("notifications/progress", params)), ProgressReceived)
    assert event.outgoing is outgoing
    assert event.params == params


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"progressToken": 1},
        {"progress": 1},
        {"progressToken": None, "progress": 1},
        {"progressToken": True, "progress": 1},
        {"progressToken": 1.0, "progress": 1},
        {"progressToken": [1], "progress": 1},
        {"progressToken": 1, "progress": "1"},
        {"progressToken": 1, "progress": True},
        {"progressToken": 1, "progress": None},
        {"progressToken": 99, "progress": 1},
        {"progressToken": "1", "progress": 1},
        {"progressToken": "x" * 100_000, "progress": 1},
    ],
)
def test_progress_that_fits_no_request_is_a_fault(params: dict[str, Any] | None) -> None:
    """`patterns/progress`: notifications "MUST only reference tokens" that were given."""
    peer = Peer()
    sent(peer, wants_progress=True)
    fault = only(peer.receive(Notification("notifications/progress", params)), Fault)
    assert len(str(fault.error)) < 400


def test_progress_that_was_not_asked_for_is_a_fault() -> None:
    """The request gave no token."""
    peer = Peer()
    outgoing = sent(peer)
    only(peer.receive(progress(outgoing.request.id)), Fault)


# --- what can't be read ------------------------------------------------------------------------------------------


def test_garbage_is_reported_and_answered() -> None:
    """JSON-RPC 2.0, section 5: with its id, or without one."""
    peer = Peer()
    for request_id in (None, 3, "a"):
        fault, reply = peer.receive(Malformed(PARSE_ERROR, "no JSON", request_id))
        assert isinstance(fault, Fault)
        assert isinstance(reply, Reply)
        assert fault.error.code == PARSE_ERROR
        assert reply.message == ErrorResponse(request_id, ErrorData(PARSE_ERROR, "no JSON"))


def test_a_broken_notification_is_reported_only() -> None:
    """It has no answer."""
    only(Peer().receive(Malformed(INVALID_REQUEST, "x", expects_answer=False)), Fault)


def test_a_broken_answer_fails_its_call() -> None:
    """It need not wait for its timeout; an unknown one is reported. Neither is answered."""
    peer = Peer()
    outgoing = sent(peer)
    broken = Malformed(INVALID_REQUEST, "x", outgoing.request.id, expects_answer=False)
    event = only(peer.receive(broken), Settled)
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


def test_other_notifications_pass() -> None:
    """The bookkeeping has no interest in them."""
    notification = Notification("notifications/message", {"a": 1})
    assert only(Peer().receive(notification), NotificationReceived).notification is notification


def test_sending_what_is_not_a_message_is_a_mistake_of_the_session() -> None:
    """A `Failure` is for `Peer.fail`."""
    with pytest.raises(TypeError, match="expected a message"):
        Peer().receive(Failure(TransportError("x"), 1))


# --- a client of the modern era ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message", [Request(1, "roots/list"), Malformed(PARSE_ERROR, "x", 1), Batch((Request(1, "x"),))]
)
def test_a_modern_client_answers_nothing(message: Any) -> None:
    """2026-07-28 `transports/stdio`: the client "MUST NOT write JSON-RPC responses", the server no requests."""
    peer = Peer()
    peer.revision = MODERN
    fault = only(peer.receive(message), Fault)
    assert isinstance(fault.error, RemoteProtocolError)
    assert peer.incoming_count == peer.running_count == 0


# --- the end -----------------------------------------------------------------------------------------------------


def test_the_end_of_input_settles_ours_and_lets_theirs_finish() -> None:
    """The peer will answer nothing more, but may still read."""
    peer = Peer(max_running=1)
    running = started(peer, 1)
    peer.receive(Request(2, "x"))
    outgoing = sent(peer)
    assert peer.end_of_input() == [outgoing]
    assert outgoing.settled
    assert peer.end_of_input() == []
    with pytest.raises(SessionClosed):
        peer.open_request("x", None)
    assert peer.cancel(outgoing) is None
    assert peer.answer(running, {}) == Response(1, {})
    queued = peer.finished(running)
    assert queued is not None
    assert peer.answer(queued, {}) == Response(2, {})


def test_after_the_close_nothing_goes_in_or_out() -> None:
    """Everything in flight is handed back, once; handlers that end later change nothing."""
    peer = Peer(max_running=1)
    running = started(peer, 1)
    peer.receive(Request(2, "x"))
    outgoing = sent(peer)
    assert peer.close() == ([outgoing], [running])
    assert peer.closed
    assert (peer.outgoing_count, peer.incoming_count) == (0, 0)
    assert peer.close() == ([], [])
    for message in (Request(3, "x"), Response(1, {}), Notification("n"), Malformed(1, "x"), Batch(())):
        assert peer.receive(message) == ()
    assert peer.answer(running, {}) is None
    assert peer.cancel(outgoing) is None
    assert peer.fail(outgoing.request.id, TransportError("x")) == ()
    assert peer.finished(running) is None
    assert peer.running_count == 0
    with pytest.raises(SessionClosed):
        peer.open_request("x", None)
