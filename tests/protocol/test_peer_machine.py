"""Two peers back to back, and one against a hostile one, in every order that Hypothesis can think of.

The promises are those of `trio_mcp.jsonrpc.peer`. Messages go over queues as bytes, in order per direction, with any
interleaving of the directions and of what the two sessions do.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.effort import examples
from trio_mcp.errors import LocalProtocolError, SessionClosed, TransportError
from trio_mcp.jsonrpc.codec import decode, encode
from trio_mcp.jsonrpc.events import (
    CancelRequested,
    Event,
    IncomingRequest,
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
    Response,
)
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.testing.strategies import json_texts
from trio_mcp.types.methods import facts_of

BATCH_REVISION = "2025-03-26"


class Session:
    """A session's use of a `Peer`, and what it may rely on."""

    def __init__(self, max_running: int, max_queued: int) -> None:
        self.peer = Peer(max_running=max_running, max_queued=max_queued)
        self.peer.revision = BATCH_REVISION
        self.max_running, self.max_queued = max_running, max_queued
        self.sent: list[Message] = []
        self.ours: list[OutgoingRequest] = []
        self.outcomes: dict[OutgoingRequest, list[Any]] = {}
        self.handlers: list[IncomingRequest] = []
        self.theirs: list[IncomingRequest] = []
        self.cancelled: set[IncomingRequest] = set()
        self.answers: Counter[IncomingRequest] = Counter()
        self.refused = 0

    # --- what we do ---

    def open(self, method: str, wants_progress: bool) -> OutgoingRequest | None:
        try:
            outgoing = self.peer.open_request(method, {}, wants_progress=wants_progress)
        except SessionClosed:
            return None
        assert outgoing.request.id not in {each.request.id for each in self.ours}
        self.ours.append(outgoing)
        self.outcomes[outgoing] = []
        return outgoing

    def cancel(self, outgoing: OutgoingRequest) -> None:
        settled_before = outgoing.settled
        notice = self.peer.cancel(outgoing, "enough")
        if not settled_before:
            self.outcomes[outgoing].append("cancelled")
        told = not settled_before and outgoing.sent and outgoing.request.method != "initialize"
        assert (notice is not None) == told
        self.send(notice)

    def answer(self, incoming: IncomingRequest, outcome: dict[str, Any] | ErrorData) -> None:
        if incoming.answered:
            with pytest.raises(LocalProtocolError):
                self.peer.answer(incoming, outcome)
            return
        message = self.peer.answer(incoming, outcome)
        if incoming in self.cancelled or self.peer.closed:
            assert message is None, "nothing is sent for a request after its cancellation"
            return
        self.answers[incoming] += 1
        assert message is not None or incoming.batch is not None
        self.send(message)

    def report_progress(self, incoming: IncomingRequest) -> None:
        meta = (incoming.request.params or {}).get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if incoming.open and token is not None:
            assert incoming not in self.cancelled
            self.send(Notification("notifications/progress", {"progressToken": token, "progress": 1}))

    def finish(self, incoming: IncomingRequest) -> None:
        self.handlers.remove(incoming)
        successor = self.peer.finished(incoming)
        if successor is not None:
            self.start(successor)

    def start(self, incoming: IncomingRequest) -> None:
        # A batch may cancel what it has asked for: both events come, one after the other.
        assert incoming.open or (incoming.cancelled and incoming.batch is not None)
        assert incoming not in self.theirs, "a request is started once"
        self.theirs.append(incoming)
        self.handlers.append(incoming)

    def send(self, message: Message | None) -> None:
        if message is not None and not self.peer.closed:
            self.sent.append(message)

    def end_of_input(self) -> None:
        for outgoing in self.peer.end_of_input():
            self.outcomes[outgoing].append("lost")

    def close(self) -> None:
        outgoing, incoming = self.peer.close()
        for request in outgoing:
            self.outcomes[request].append("lost")
        assert set(incoming) <= set(self.handlers)
        self.cancelled.update(incoming)

    # --- what happens to us ---

    def receive(self, message: Incoming) -> None:
        for event in self.peer.receive(message):
            self.take(event)

    def take(self, event: Event) -> None:
        match event:
            case RequestStarted(incoming):
                lane = facts_of(incoming.request.method).lane
                room = sum(handler.lane == lane for handler in self.handlers) < self.max_running
                assert incoming.lane == (lane if room else None)
                assert room or lane != "listening", "one that may last forever takes no place of a call"
                self.start(incoming)
            case Settled(outgoing, outcome):
                self.outcomes[outgoing].append(outcome)
            case ProgressReceived(outgoing):
                # A batch may have the response, too: both events come, one after the other.
                assert not self.outcomes[outgoing], "progress comes before the outcome"
                assert outgoing.wants_progress
            case CancelRequested(incoming):
                assert incoming in self.handlers
                assert not incoming.answered
                self.cancelled.add(incoming)
            case Reply(message):
                self.refused += 1
                self.send(message)

    # --- what must always be true ---

    def check(self) -> None:
        for outgoing, outcomes in self.outcomes.items():
            assert len(outcomes) == outgoing.settled, "a request settles exactly once"
        unsettled = [outgoing for outgoing in self.ours if not outgoing.settled]
        assert self.peer.outgoing_count == len(unsettled)
        limited = sum(handler.lane is None for handler in self.handlers)
        listening = sum(handler.lane == "listening" for handler in self.handlers)
        assert self.peer.listening_count == listening <= self.max_running
        assert self.peer.running_count == limited
        assert 0 <= limited <= self.max_running
        assert len(self.handlers) <= 3 * self.max_running
        in_flight = sum(handler.open for handler in self.handlers)
        queued = self.peer.incoming_count - in_flight
        assert 0 <= queued <= self.max_queued
        assert not queued or limited == self.max_running, "a request waits only while there is no place"
        assert all(count == 1 for count in self.answers.values())
        if self.peer.closed:
            assert self.peer.outgoing_count == self.peer.incoming_count == 0

    def end_handlers(self) -> None:
        while self.handlers:
            incoming = self.handlers[0]
            if incoming.open:
                self.answer(incoming, {})
            self.finish(incoming)


METHODS = st.sampled_from(["work", "work", "work", "ping", "initialize", "subscriptions/listen"])


class TwoPeers(RuleBasedStateMachine):
    """Both sides follow the rules; only the link delays, loses or repeats messages."""

    @initialize(running=st.integers(1, 3), queued=st.integers(0, 3))
    def setup(self, running: int, queued: int) -> None:
        self.sides = Session(running, queued), Session(2, 1)
        self.wires: tuple[deque[bytes], deque[bytes]] = deque(), deque()
        self.delivered: tuple[list[bytes], list[bytes]] = [], []
        self.answers: tuple[Counter[Any], Counter[Any]] = Counter(), Counter()

    def flush(self, side: int) -> None:
        for message in self.sides[side].sent:
            self.wires[1 - side].append(encode(message))
            for item in message.items if isinstance(message, Batch) else (message,):
                if isinstance(item, (Response, ErrorResponse)):
                    self.answers[1 - side][item.id] += 1
        self.sides[side].sent.clear()

    def deliver_one(self, side: int) -> None:
        text = self.wires[side].popleft()
        self.delivered[side].append(text)
        self.sides[side].receive(decode(text))
        self.flush(side)

    @rule(side=st.integers(0, 1), method=METHODS, wants_progress=st.booleans(), send=st.booleans())
    def open(self, side: int, method: str, wants_progress: bool, send: bool) -> None:
        outgoing = self.sides[side].open(method, wants_progress)
        if send and outgoing is not None:
            self.sides[side].send(outgoing.request)
            outgoing.sent = True
            self.flush(side)

    @rule(side=st.integers(0, 1), methods=st.lists(METHODS, min_size=1, max_size=4))
    def open_batch(self, side: int, methods: list[str]) -> None:
        opened = [self.sides[side].open(method, True) for method in methods]
        requests = [outgoing for outgoing in opened if outgoing is not None]
        for outgoing in requests:
            outgoing.sent = True
        if requests:
            self.sides[side].send(Batch(tuple(outgoing.request for outgoing in requests)))
            self.flush(side)

    @rule(side=st.integers(0, 1), pick=st.integers(0))
    def cancel(self, side: int, pick: int) -> None:
        if self.sides[side].ours:
            self.sides[side].cancel(self.sides[side].ours[-1 - pick % len(self.sides[side].ours)])
            self.flush(side)

    @rule(side=st.integers(0, 1), pick=st.integers(0), end=st.booleans(), fails=st.booleans())
    def answer(self, side: int, pick: int, end: bool, fails: bool) -> None:
        if self.sides[side].handlers:
            incoming = self.sides[side].handlers[pick % len(self.sides[side].handlers)]
            self.sides[side].answer(incoming, ErrorData(1, "no") if fails else {"n": pick})
            if end:
                self.sides[side].finish(incoming)
            self.flush(side)

    @rule(side=st.integers(0, 1), pick=st.integers(0))
    def progress(self, side: int, pick: int) -> None:
        if self.sides[side].handlers:
            self.sides[side].report_progress(self.sides[side].handlers[pick % len(self.sides[side].handlers)])
            self.flush(side)

    @rule(side=st.integers(0, 1), count=st.integers(1, 5))
    def deliver(self, side: int, count: int) -> None:
        for _ in range(min(count, len(self.wires[side]))):
            self.deliver_one(side)

    @rule(side=st.integers(0, 1), pick=st.integers(0))
    def deliver_again(self, side: int, pick: int) -> None:
        """Deliver a response, a cancellation or progress a second time."""
        texts = [text for text in self.delivered[side] if not isinstance(decode(text), (Request, Batch))]
        if texts:
            self.sides[side].receive(decode(texts[pick % len(texts)]))
            self.flush(side)

    @rule(side=st.integers(0, 1), text=json_texts())
    def garbage(self, side: int, text: bytes) -> None:
        message = decode(text)
        if isinstance(message, Malformed) and message.id is None and b"\n" not in text:
            self.wires[side].append(text)

    @rule(side=st.integers(0, 1), pick=st.integers(0))
    def lose(self, side: int, pick: int) -> None:
        """Report that the transport could not send a request."""
        unsettled = [outgoing for outgoing in self.sides[side].ours if not outgoing.settled and not outgoing.sent]
        if unsettled:
            outgoing = unsettled[pick % len(unsettled)]
            for event in self.sides[side].peer.fail(outgoing.request.id, TransportError("gone")):
                self.sides[side].take(event)

    @precondition(lambda self: sum(len(side.ours) for side in self.sides) > 8)
    @rule(side=st.integers(0, 1), close=st.booleans())
    def end(self, side: int, close: bool) -> None:
        if close:
            self.sides[side].close()
        self.sides[side].end_of_input()

    @invariant()
    def promises(self) -> None:
        for side in getattr(self, "sides", ()):
            side.check()

    def teardown(self) -> None:
        """Let everything come to its end: what was sent has been answered, and nothing is left."""
        for side, session in enumerate(self.sides):
            for outgoing in session.ours:
                if not outgoing.sent:
                    session.cancel(outgoing)
            self.flush(side)
        while any(self.wires) or any(side.handlers for side in self.sides):
            for side, session in enumerate(self.sides):
                while self.wires[side]:
                    self.deliver_one(side)
                    session.check()
                session.end_handlers()
                self.flush(side)
        ended = any(session.peer.closed for session in self.sides)
        for session in self.sides:
            session.check()
            assert session.peer.incoming_count == session.peer.running_count == 0
            if not ended:
                assert session.peer.outgoing_count == 0, "every request that was sent is answered"
            session.close()
            session.check()
        if not ended:
            for session, answers in zip(self.sides, self.answers, strict=True):
                for outgoing in session.ours:
                    given_up = session.outcomes[outgoing] == ["cancelled"]
                    assert answers[outgoing.request.id] <= 1
                    assert given_up or answers[outgoing.request.id] == outgoing.sent, "answered exactly once"


IDS = st.sampled_from([0, 1, 2, 3, "1", "a"])
KINDS = st.sampled_from(["work", "initialize", "ping", "server/discover", "subscriptions/listen"])


class HostilePeer(RuleBasedStateMachine):
    """A peer that sends anything at all, including ids already in use and our own ids."""

    @initialize(running=st.integers(1, 2), queued=st.integers(0, 2))
    def setup(self, running: int, queued: int) -> None:
        self.session = Session(running, queued)
        self.asked = 0

    def receive(self, message: Incoming) -> None:
        session = self.session
        before = session.peer.incoming_count, session.refused
        session.receive(message)
        if isinstance(message, Request):
            taken = session.peer.incoming_count - before[0]
            assert taken + session.refused - before[1] == (not session.peer.closed), "taken or refused, and only one"
        assert session.peer.incoming_count <= 3 * session.max_running + session.max_queued

    messages = st.one_of(
        st.builds(Request, IDS, KINDS, st.just({"_meta": {"progressToken": 1}})),
        st.builds(Response, IDS, st.just({})),
        st.builds(ErrorResponse, st.none() | IDS, st.just(ErrorData(1, "x"))),
        st.builds(
            Notification,
            st.sampled_from(["notifications/cancelled", "notifications/progress", "notifications/other"]),
            st.none()
            | st.fixed_dictionaries(
                {},
                optional={
                    "requestId": IDS | st.none() | st.just([1]),
                    "progressToken": IDS | st.booleans(),
                    "progress": st.floats() | st.text(max_size=1),
                    "reason": st.text(max_size=2) | st.integers(),
                },
            ),
        ),
    )

    @rule(message=messages)
    def one(self, message: Incoming) -> None:
        self.receive(message)

    @rule(items=st.lists(messages | json_texts().map(decode), min_size=1, max_size=5))
    def batch(self, items: list[Any]) -> None:
        self.receive(Batch(tuple(item for item in items if not isinstance(item, Batch))))

    @rule(text=json_texts() | st.binary(max_size=8))
    def garbage(self, text: bytes) -> None:
        self.receive(decode(text))

    @rule(revision=st.sampled_from([None, BATCH_REVISION, BATCH_REVISION, "2025-11-25"]))
    def renegotiate(self, revision: str | None) -> None:
        self.session.peer.revision = revision

    @rule(wants_progress=st.booleans(), method=METHODS)
    def open(self, wants_progress: bool, method: str) -> None:
        outgoing = self.session.open(method, wants_progress)
        if outgoing is not None:
            outgoing.sent = True

    @rule(pick=st.integers(0))
    def cancel(self, pick: int) -> None:
        if self.session.ours:
            self.session.cancel(self.session.ours[pick % len(self.session.ours)])

    @rule(pick=st.integers(0), end=st.booleans())
    def answer(self, pick: int, end: bool) -> None:
        if self.session.handlers:
            incoming = self.session.handlers[pick % len(self.session.handlers)]
            self.session.answer(incoming, {})
            if end:
                self.session.finish(incoming)

    @rule(pick=st.integers(0))
    def handler_ends_without_an_answer(self, pick: int) -> None:
        if self.session.handlers:
            incoming = self.session.handlers[pick % len(self.session.handlers)]
            self.session.finish(incoming)
            assert not incoming.open

    @invariant()
    def promises(self) -> None:
        if hasattr(self, "session"):
            self.session.check()
            for message in self.session.sent:
                assert encode(message)
            self.session.sent.clear()

    def teardown(self) -> None:
        self.session.end_handlers()
        assert self.session.peer.incoming_count == self.session.peer.running_count == 0
        self.session.close()
        self.session.check()


TwoPeers.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=60)
HostilePeer.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=50)
TestTwoPeers = TwoPeers.TestCase
TestHostilePeer = HostilePeer.TestCase
