"""A model of a session around a `Peer`: it does what sessions do, and checks what the peer promises them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from trio_mcp.errors import LocalProtocolError, SessionClosed
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
from trio_mcp.jsonrpc.messages import ErrorData, Incoming, Message, Notification
from trio_mcp.jsonrpc.peer import Peer
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
                assert not outgoing.settled
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
