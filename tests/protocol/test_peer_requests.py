"""The peer's requests: limits, answers, cancellations, batches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.peer_steps import cancelled, only, sent, started
from trio_mcp.errors import LocalProtocolError, RemoteProtocolError, TransportError
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.events import (
    CancelRequested,
    Fault,
    NotificationReceived,
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
)
from trio_mcp.jsonrpc.peer import Peer

INVALID_REQUEST, PARSE_ERROR, OVERLOADED = -32600, -32700, -31429
MODERN = "2026-07-28"


# --- the peer's requests -----------------------------------------------------------------------------------------


def test_a_request_starts_and_is_answered_once() -> None:
    """A second answer is our own mistake, so it raises."""
    peer = Peer()
    incoming = started(peer, "a")
    assert peer.answer(incoming, {"b": 1}) == Response("a", {"b": 1})
    for again in ({}, ErrorData(1, "x")):
        with pytest.raises(LocalProtocolError, match="already answered"):
            peer.answer(incoming, again)
    assert peer.incoming_count == 0
    assert peer.running_count == 1
    assert peer.finished(incoming) is None
    assert peer.running_count == 0


def test_an_error_answer() -> None:
    """It carries the id, the code, the message and the data."""
    peer = Peer()
    error = ErrorData(-5, "no", [1])
    assert peer.answer(started(peer), error) == ErrorResponse(1, error)


def test_metadata_stays_with_the_request() -> None:
    """What the transport knows of it (headers, for example) reaches the handler."""
    peer = Peer()
    metadata = {"headers": {"a": "b"}}
    assert only(peer.receive(Request(1, "x"), metadata), RequestStarted).incoming.metadata is metadata


def test_an_id_in_flight_is_refused_and_the_first_request_lives_on() -> None:
    """2026-07-28 `basic/index`: an id "MUST NOT match the ID of any other request" that waits for its answer."""
    peer = Peer()
    incoming = started(peer, "a" * 10_000)
    reply = only(peer.receive(Request("a" * 10_000, "y")), Reply).message
    assert (reply.id, reply.error.code) == ("a" * 10_000, INVALID_REQUEST)
    assert len(reply.error.message) < 300
    assert incoming.open
    peer.answer(incoming, {})
    assert isinstance(peer.receive(Request("a" * 10_000, "y"))[0], RequestStarted)


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
    peer.receive(Notification("notifications/cancelled", {"requestId": 4}))
    assert (peer.incoming_bytes, hold.kept) == (81, 4)
    peer.receive(Notification("notifications/cancelled", {"requestId": 1}))
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


def test_string_and_integer_ids_are_different() -> None:
    """JSON keeps them apart."""
    peer = Peer()
    started(peer, 1)
    started(peer, "1")
    assert peer.incoming_count == 2


def test_beyond_the_limit_requests_wait_in_order_and_then_are_refused() -> None:
    """No queue is unbounded; a request that is refused gets an answer."""
    peer = Peer(max_running=2, max_queued=2)
    first, second = started(peer, 1), started(peer, 2)
    assert peer.receive(Request(3, "x")) == peer.receive(Request(4, "x")) == ()
    refusal = only(peer.receive(Request(5, "x")), Reply).message
    assert (refusal.id, refusal.error.code) == (5, OVERLOADED)
    assert (peer.running_count, peer.incoming_count) == (2, 4)
    peer.answer(second, {})
    third = peer.finished(second)
    assert third is not None
    assert third.request.id == 3
    assert peer.receive(Request(5, "x")) == ()
    peer.answer(first, {})
    fourth = peer.finished(first)
    assert fourth is not None
    assert fourth.request.id == 4
    assert peer.running_count == 2


@pytest.mark.parametrize("method", ["initialize", "ping", "server/discover"])
def test_a_full_house_keeps_no_ping_and_no_handshake_out(method: str) -> None:
    """A busy server is alive, and says so."""
    peer = Peer(max_running=1, max_queued=0)
    busy = started(peer, 1)
    ping = started(peer, 2, method)
    assert peer.answer(ping, {}) == Response(2, {})
    assert peer.running_count == 1
    assert peer.finished(ping) is None
    assert peer.running_count == 1
    only(peer.receive(Request(3, "x")), Reply)
    assert peer.finished(busy) is None


@pytest.mark.parametrize("method", ["initialize", "ping", "server/discover"])
def test_even_those_are_bounded(method: str) -> None:
    """A peer that asks without reading its answers must not fill our memory, whatever it asks."""
    peer = Peer(max_running=2, max_queued=3)
    kinds = [type(event) for each in range(20) for event in peer.receive(Request(each, method))]
    assert kinds.count(RequestStarted) == 4
    assert peer.incoming_count == 7
    assert kinds.count(Reply) == 13


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


@pytest.mark.parametrize("limits", [{"max_running": 0}, {"max_running": -1}, {"max_queued": -1}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, int]) -> None:
    """With none running, nothing would ever be answered."""
    with pytest.raises(ValueError, match=next(iter(limits))):
        Peer(**limits)


def test_a_place_is_freed_once() -> None:
    """However often the end of a handler is reported, the count of running ones stays true."""
    peer = Peer(max_running=1)
    incoming = started(peer)
    peer.answer(incoming, {})
    peer.finished(incoming)
    assert peer.finished(incoming) is None
    assert peer.running_count == 0


def test_a_request_that_its_handler_left_unanswered_is_given_up() -> None:
    """It does not stay in flight forever, where its id would be refused."""
    peer = Peer()
    incoming = started(peer)
    peer.finished(incoming)
    assert peer.incoming_count == 0
    assert peer.answer(incoming, {}) is None
    started(peer)


# --- cancellation by the peer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "expected"), [("stop", "stop"), (None, None), (5, None), (["x"], None)])
def test_cancelling_a_running_request(reason: object, expected: str | None) -> None:
    """Its scope is to be cancelled with the reason, it gets no answer, its place is free when the handler has ended."""
    peer = Peer(max_running=1)
    incoming = started(peer)
    event = only(peer.receive(cancelled(1, reason=reason)), CancelRequested)
    assert (event.incoming, event.reason) == (incoming, expected)
    assert not incoming.open
    assert peer.answer(incoming, {}) is None
    assert peer.answer(incoming, ErrorData(1, "x")) is None
    assert (peer.incoming_count, peer.running_count) == (0, 1)
    assert peer.receive(Request(2, "x")) == ()
    successor = peer.finished(incoming)
    assert successor is not None
    assert successor.request.id == 2


def test_cancelling_a_queued_request() -> None:
    """It never starts; those behind it do."""
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
    """`cancellation`, Timing Considerations: both parties must handle the race."""
    peer = Peer()
    incoming = started(peer)
    peer.answer(incoming, {})
    assert peer.receive(cancelled(1)) == ()
    assert peer.finished(incoming) is None


@pytest.mark.parametrize("params", [None, {}, {"requestId": None}, {"requestId": True}, {"requestId": 1.0}])
@pytest.mark.parametrize("in_flight", [False, True])
def test_invalid_cancellations_are_ignored(params: dict[str, Any] | None, in_flight: bool) -> None:
    """`cancellation`, Error Handling: unknown, finished, malformed."""
    peer = Peer()
    if in_flight:
        started(peer, 1)
    assert peer.receive(Notification("notifications/cancelled", params)) == ()
    assert peer.receive(cancelled(7)) == peer.receive(cancelled("1")) == ()
    assert peer.incoming_count == in_flight


def test_initialize_can_not_be_cancelled() -> None:
    """2025-11-25 `cancellation`."""
    peer = Peer()
    incoming = started(peer, 1, "initialize")
    assert peer.receive(cancelled(1)) == ()
    assert peer.answer(incoming, {}) == Response(1, {})


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


# --- batches -----------------------------------------------------------------------------------------------------


def batching(**limits: int) -> Peer:
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


def test_a_batch_is_answered_by_a_batch() -> None:
    """JSON-RPC 2.0, section 6: when all answers are there; notifications have none."""
    peer = batching()
    events = peer.receive(Batch((Request(1, "x"), Notification("n"), Request(2, "x"))))
    first, note, second = events
    assert isinstance(first, RequestStarted)
    assert isinstance(note, NotificationReceived)
    assert isinstance(second, RequestStarted)
    assert peer.answer(second.incoming, {"b": 2}) is None
    answer = peer.answer(first.incoming, ErrorData(1, "x"))
    assert answer == Batch((Response(2, {"b": 2}), ErrorResponse(1, ErrorData(1, "x"))))


def test_a_batch_may_cancel_what_it_asks_for() -> None:
    """Both events come, in order, and the request is not answered: the batch has no response."""
    peer = batching()
    begun, given_up, *rest = peer.receive(Batch((Request(1, "x"), cancelled(1))))
    assert isinstance(begun, RequestStarted)
    assert isinstance(given_up, CancelRequested)
    assert rest == []
    assert peer.answer(begun.incoming, {}) is None


def test_a_batch_without_requests_has_no_answer() -> None:
    """JSON-RPC 2.0, section 6: "it MUST NOT return an empty Array"; answers of the peer's come in batches as well."""
    peer = batching()
    outgoing, other = sent(peer), sent(peer)
    answers = Response(outgoing.request.id, {}), ErrorResponse(other.request.id, ErrorData(1, "x"))
    events = peer.receive(Batch((Notification("n"), *answers)))
    assert [type(event) for event in events] == [NotificationReceived, Settled, Settled]


def test_initialize_in_a_batch_is_refused() -> None:
    """2025-03-26 `basic/lifecycle`: it "MUST NOT be part of a JSON-RPC batch"; the rest of the batch is served."""
    peer = batching()
    (event,) = peer.receive(Batch((Request(1, "initialize"), Request(2, "x"))))
    assert isinstance(event, RequestStarted)
    batch = peer.answer(event.incoming, {})
    assert isinstance(batch, Batch)
    refusal, answer = batch.items
    assert isinstance(refusal, ErrorResponse)
    assert (refusal.id, refusal.error.code) == (1, INVALID_REQUEST)
    assert answer == Response(2, {})


def test_a_batch_of_refusals_is_answered_at_once() -> None:
    """Duplicate ids, garbage and nested batches: each has its error, in one batch."""
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


def test_a_request_of_a_batch_that_is_left_unanswered_holds_nothing_up() -> None:
    """Its handler has ended without an answer; the others' answers are still to come."""
    peer = batching()
    events = peer.receive(Batch((Request(1, "x"), Request(2, "x"))))
    first, second = (event.incoming for event in events if isinstance(event, RequestStarted))
    peer.finished(first)
    assert peer.answer(second, {}) == Batch((Response(2, {}),))


def test_a_broken_answer_in_a_batch_fails_its_call() -> None:
    """It is not answered either."""
    peer = batching()
    outgoing = sent(peer)
    broken = Malformed(INVALID_REQUEST, "x", outgoing.request.id, expects_answer=False)
    assert only(peer.receive(Batch((broken,))), Settled).outgoing is outgoing
