"""The state machine of a list of ways, without I/O, in every order that Hypothesis can think of.

The promises are those of docs/how-to/failover.md and of `trio_mcp.client.failover.traffic`. A session with callers,
links that break, and a server on each link drive `Ways` and `Traffic`, and keep a ledger.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.effort import examples
from trio_mcp.client.failover.carrier import Carrier
from trio_mcp.client.failover.parameters import Switch
from trio_mcp.client.failover.traffic import OWN
from trio_mcp.client.failover.ways import MAX_GARBAGE, Phase, Ways
from trio_mcp.errors import AuthorizationError, Disconnected, HttpError, OutcomeUnknown, TransportError
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    SessionMessage,
    TransportFailure,
)
from trio_mcp.types.error_codes import INVALID_REQUEST, OVERLOADED, PARSE_ERROR

LEGACY, MODERN = "2025-11-25", "2026-07-28"
INFO = {"name": "shop", "version": "1"}
CANCELLED = "notifications/cancelled"

BUSY = HttpError("POST /mcp", 429, "Too Many Requests", {}, "", "busy", 1.0)
GATEWAY = HttpError("POST /mcp", 502, "Bad Gateway", {}, "", "gateway")


def not_sent() -> TransportError:
    error = TransportError("could not connect")
    error.sent = False
    return error


FAILURES = {
    "broke": lambda: Disconnected("the connection broke"),
    "gateway": lambda: GATEWAY,
    "busy": lambda: BUSY,
    "not sent": not_sent,
    "login": lambda: AuthorizationError("sign in", "a person is needed"),
}
NOT_DONE = ("busy", "not sent")
"""The failures after which the server has certainly done nothing."""


class FakeLink:
    """A link and the server behind it."""

    def __init__(self) -> None:
        self.received: dict[Any, SessionMessage] = {}  # the requests that the server is working on, by id
        self.unread: deque[SessionMessage] = deque()
        self.asked = 1000  # no call of the session has such an id
        self.questions: set[int] = set()
        self.withdrawn: set[int] = set()
        self.ended = False

    def wake(self) -> None:
        pass

    def give_up(self) -> None:
        assert not self.ended, "a link is given up once"
        self.ended = True

    def last_messages(self) -> list[SessionMessage]:
        assert self.ended
        items = list(self.unread)
        self.unread.clear()
        return items

    def offer(self, item: SessionMessage) -> None:
        self.receive(item)

    def receive(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, Request):
            assert message.id not in self.received, "an id is in use once on each link"
            self.received[message.id] = item
        elif isinstance(message, Notification) and message.method == CANCELLED:
            self.received.pop((message.params or {})["requestId"], None)
        elif isinstance(message, Response):
            # A response may cross the cancellation.
            assert message.id in self.questions | self.withdrawn, "a question is answered on the link that asked"
            self.questions.discard(message.id)
            self.withdrawn.discard(message.id)

    def say(self, message: Any) -> None:
        self.unread.append(SessionMessage(message))


@attrs.define(eq=False)
class Call:
    """A request of the session, and what is known of it."""

    item: SessionMessage
    repeatable: bool
    outcome: str | None = None
    runs: int = 0
    """How often the server may have done it."""

    @property
    def id(self) -> Any:
        assert isinstance(self.item.message, Request)
        return self.item.message.id


@attrs.define(eq=False)
class Sending:
    """A sender that waits for its link to take a message."""

    carrier: Carrier
    item: SessionMessage
    waits: bool
    taken: bool = False


class Failover(RuleBasedStateMachine):
    """A session over links that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.switches: list[Switch] = []
        self.ways = Ways(self.switches.append, lambda: None)
        self.traffic = self.ways.traffic
        self.calls: dict[Any, Call] = {}
        self.at_sender: list[Call] = []
        self.sendings: list[Sending] = []
        self.cancellations: list[SessionMessage] = []
        self.asked: dict[Any, Carrier | None] = {}

    @initialize(modern=st.booleans())
    def open(self, modern: bool) -> None:
        """Open the session on the first link."""
        self.modern = modern
        self.connect(1)
        (first,) = self.ways.open
        self.ways.activate(first)
        if modern:
            result = {"supportedVersions": [MODERN], "capabilities": {}, "_meta": {}}
            request = Request(0, "server/discover", {})
        else:
            result = {"protocolVersion": LEGACY, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": INFO}
            request = Request(0, "initialize", {"protocolVersion": LEGACY})
        self.start(SessionMessage(request), repeatable=True)
        self.hand_over_next()
        link: Any = first.link
        del link.received[0]
        link.say(Response(0, result))
        self.read(first)
        assert self.calls[0].outcome == "response"
        assert self.traffic.remembered.modern == modern
        assert self.ways.phase is Phase.OPEN

    # --- helpers -----------------------------------------------------------------------------------------------------

    def pick(self, data: Any, things: Any) -> Any:
        return data.draw(st.sampled_from(list(things)))

    def start(self, item: SessionMessage, repeatable: bool) -> None:
        call = Call(item, repeatable)
        self.calls[call.id] = call
        self.at_sender.append(call)

    def reach(self, carrier: Carrier, item: SessionMessage) -> None:
        """Let the server behind a link get a message."""
        link: Any = carrier.link
        link.receive(item)
        if isinstance(item.message, Request) and item.message.id in self.calls:
            call = self.calls[item.message.id]
            call.runs += 1
            assert call.runs == 1 or call.repeatable, f"{item.message} may be done twice"

    def deliver(self, item: SessionMessage | None) -> None:
        """Let the session get a message."""
        message = None if item is None else item.message
        if isinstance(message, Request):
            assert message.id not in self.asked, "a question has an id of its own"
            # Without an entry, the link that asked is lost, and a cancellation follows.
            self.asked[message.id] = self.traffic.questions.get(message.id, (None, 0))[0]
        elif isinstance(message, Notification) and message.method == CANCELLED:
            request_id = (message.params or {})["requestId"]
            if request_id in self.asked:
                del self.asked[request_id]
            elif request_id in self.calls:  # the session ignores the cancellation of what it has answered
                self.settle(request_id, "ended by the server")
        elif isinstance(message, (Response, ErrorResponse)):
            self.settle(message.id, "response")
        elif isinstance(message, TransportFailure) and str(message.request_id).startswith(OWN):
            pass  # a late one of our own; the session ignores what it has not asked for
        elif isinstance(message, TransportFailure):
            call = self.calls[message.request_id]
            if isinstance(message.error, OutcomeUnknown):
                assert call.runs, "it was never sent"
                assert not call.repeatable, "it may be repeated"
            self.settle(message.request_id, "failure")

    def settle(self, request_id: Any, outcome: str) -> None:
        call = self.calls[request_id]
        assert call.outcome in (None, "cancelled"), f"{call.item.message} has {call.outcome} and {outcome}"
        call.outcome = call.outcome or outcome

    def read(self, carrier: Carrier) -> None:
        """Let the reader of a link take a message: the session, which reads what has arrived first, or a way's task."""
        link: Any = carrier.link
        if carrier is self.ways.carrier:
            self.read_arrived()
            self.deliver(self.ways.take(carrier, link.unread.popleft()))
        elif (out := self.ways.take(carrier, link.unread.popleft())) is not None:
            self.traffic.arrived.append(out)

    def hand_over_next(self) -> None:
        """Let the sender that has waited longest send without waiting, as `Router.send_nowait` does."""
        carrier = self.ways.carrier
        assert carrier is not None
        assert not carrier.flushing
        call = self.at_sender.pop(0)
        self.reach(carrier, call.item)
        carrier.in_flight[call.id] = call.item

    def free(self, carrier: Carrier | None) -> bool:
        """Return whether no task is handing something to a link."""
        return carrier is not None and all(each.carrier is not carrier for each in self.sendings)

    def working(self) -> list[tuple[Carrier, Any]]:
        """Return the requests that servers are working on."""
        return [(each, key) for each in self.ways.open for key in each.link.received]  # type: ignore[attr-defined]

    def unread(self) -> list[Carrier]:
        return [each for each in self.ways.open if each.link.unread]  # type: ignore[attr-defined]

    # --- the session -------------------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(["buy", "buy", "retried", "tools/list", "listen"]))
    def call(self, kind: str) -> None:
        method = {"listen": "subscriptions/listen" if self.modern else "ping", "tools/list": kind}.get(
            kind, "tools/call"
        )
        item = SessionMessage(Request(len(self.calls), method, {"name": "buy"}), retry=kind == "retried")
        self.start(item, repeatable=kind != "buy")

    @precondition(lambda self: self.at_sender and self.ways.carrier is not None and not self.ways.carrier.flushing)
    @rule(waiting=st.booleans())
    def send(self, waiting: bool) -> None:
        if not waiting:
            self.hand_over_next()
        elif self.free(self.ways.carrier):
            self.begin(self.at_sender.pop(0).item, waits=False)

    def begin(self, item: SessionMessage, waits: bool) -> None:
        carrier = self.ways.carrier
        assert carrier is not None
        if self.traffic.begin_sending(carrier, item, waits=waits):
            self.sendings.append(Sending(carrier, item, waits))

    @precondition(lambda self: self.ways.carrier is not None and self.ways.carrier.flushing)
    @rule()
    def flush(self) -> None:
        """Repeat one request, as `Router.flush` does."""
        carrier = self.ways.carrier
        assert carrier is not None
        if not self.free(carrier):
            return
        if self.traffic.waiting:
            self.begin(next(iter(self.traffic.waiting.values())), waits=True)
        else:
            carrier.flushing = False

    @precondition(lambda self: any(not each.taken and each.carrier.lost is None for each in self.sendings))
    @rule()
    def link_takes(self) -> None:
        """Let a link take a message while its sender has not run again."""
        sending = next(each for each in self.sendings if not each.taken and each.carrier.lost is None)
        sending.taken = True
        self.reach(sending.carrier, sending.item)

    @precondition(lambda self: self.sendings)
    @rule(data=st.data())
    def sender_runs(self, data: Any) -> None:
        sending = self.pick(data, self.sendings)
        if sending.taken or sending.carrier.lost is not None:
            self.end(sending)

    def end(self, sending: Sending) -> None:
        self.sendings.remove(sending)
        self.ways.end_sending(sending.carrier, sending.item, taken=sending.taken, waits=sending.waits)
        if not sending.taken and not sending.waits:
            self.at_sender.append(self.calls[sending.item.message.id])  # type: ignore[union-attr]

    @precondition(lambda self: any(call.outcome is None for call in self.calls.values()))
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        call = self.pick(data, [call for call in self.calls.values() if call.outcome is None])
        call.outcome = "cancelled"
        if call in self.at_sender:
            self.at_sender.remove(call)
            return
        # The cancellation of a sender that waits undoes its step first.
        for sending in [each for each in self.sendings if each.item is call.item and not each.waits]:
            if not sending.taken:
                self.end(sending)
                self.at_sender.remove(call)
                return
            self.end(sending)
        self.cancellations.append(SessionMessage(Notification(CANCELLED, {"requestId": call.id})))
        self.send_cancellations()

    @rule()
    def send_cancellations(self) -> None:
        for item in list(self.cancellations):
            found = self.traffic.route(item, self.ways.carrier, self.ways.draining)
            if found is not None:
                target, out = found
                assert target is not None
                assert out is item
                if target.flushing or not self.free(target):
                    continue
                self.reach(target, out)
                self.traffic.sent(target, out)
            self.cancellations.remove(item)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        self.give_answer(self.pick(data, self.asked))

    def give_answer(self, known: Any) -> None:
        # The session's reader is not slower than a new link, whose questions may have the ids of a lost one.
        self.read_arrived()
        if known not in self.asked:
            return
        asker = self.asked.pop(known)
        item = SessionMessage(Response(known, {}))
        found = self.traffic.route(item, self.ways.carrier, self.ways.draining)
        if found is None:
            assert asker is None or asker.lost is not None or asker.link.withdrawn  # type: ignore[attr-defined]
            return
        target, out = found
        assert target is asker
        self.reach(target, out)
        self.traffic.sent(target, out)

    @rule()
    def read_arrived(self) -> None:
        while self.traffic.arrived:
            self.deliver(self.traffic.arrived.popleft())

    # --- the servers -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.working())
    @rule(data=st.data(), how=st.sampled_from(["result", "result", "error", "ending", "in use", *FAILURES]))
    def respond(self, data: Any, how: str) -> None:
        carrier, request_id = self.pick(data, self.working())
        self.finish(carrier, request_id, how)

    def finish(self, carrier: Carrier, request_id: Any, how: str) -> None:
        link: Any = carrier.link
        item = link.received.pop(request_id)
        done = True
        match how:
            case "result":
                link.say(Response(request_id, {}))
            case "error":
                link.say(ErrorResponse(request_id, ErrorData(-32000, "no")))
            case "in use":
                done = False
                link.say(ErrorResponse(request_id, ErrorData(INVALID_REQUEST, "the id is in use")))
            case "ending":
                done = False
                link.say(ErrorResponse(request_id, ErrorData(OVERLOADED, "ending", {"ending": True})))
            case _:
                done = how not in NOT_DONE
                link.say(TransportFailure(FAILURES[how](), request_id))
        if not done and request_id in self.calls:
            assert item is self.calls[request_id].item
            self.calls[request_id].runs -= 1

    @precondition(lambda self: not self.modern and self.ways.open)
    @rule(data=st.data())
    def ask(self, data: Any) -> None:
        link = self.pick(data, self.ways.open).link
        link.asked += 1
        link.questions.add(link.asked)
        link.say(Request(link.asked, "roots/list"))

    @precondition(lambda self: any(each.link.questions for each in self.ways.open))
    @rule(data=st.data())
    def take_back(self, data: Any) -> None:
        link = self.pick(data, [each for each in self.ways.open if each.link.questions]).link  # type: ignore[attr-defined]
        # Only one that the session has seen: the order on a link is kept.
        known = {self.traffic.questions[key] for key in self.asked if key in self.traffic.questions}
        for carrier, there in known:
            if carrier.link is link and there in link.questions:
                link.questions.remove(there)
                link.withdrawn.add(there)
                link.say(Notification(CANCELLED, {"requestId": there}))
                return

    def read_all(self, carrier: Carrier) -> None:
        link: Any = carrier.link
        while link.unread and carrier.lost is None:
            self.read(carrier)

    @precondition(lambda self: self.unread())
    @rule(data=st.data())
    def bring(self, data: Any) -> None:
        self.read(self.pick(data, self.unread()))

    @precondition(lambda self: self.ways.open)
    @rule(data=st.data(), before=st.sampled_from([0, MAX_GARBAGE - 1]))
    def garbage(self, data: Any, before: int) -> None:
        carrier = self.pick(data, self.ways.open)
        carrier.garbage = before
        carrier.link.say(Malformed(PARSE_ERROR, "no JSON", expects_answer=False))

    # --- the ways ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.ways.open) < 3)
    @rule(place=st.integers(0, 2))
    def connect(self, place: int) -> None:
        if all(each.place != place for each in self.ways.open):
            carrier = Carrier(place, f"way {place}", FakeLink())  # type: ignore[arg-type]
            carrier.opened_here = True
            self.ways.open[carrier] = None

    def fit(self) -> list[Carrier]:
        """Return the links that may carry next."""
        current, draining = self.ways.carrier, self.ways.draining
        return [
            each
            for each in self.ways.open
            if each not in (current, draining)
            and (current is None or (each.place < current.place and draining is None))
        ]

    @precondition(lambda self: self.fit())
    @rule(data=st.data())
    def activate(self, data: Any) -> None:
        before = len(self.switches)
        self.ways.activate(self.pick(data, self.fit()))
        assert len(self.switches) == before + 1

    @precondition(lambda self: self.ways.open)
    @rule(data=st.data())
    def lose(self, data: Any) -> None:
        self.ways.lose(self.pick(data, self.ways.open), TransportError("it broke"))

    @precondition(lambda self: self.ways.draining is not None and self.traffic.drained(self.ways.draining))
    @rule()
    def end_draining(self) -> None:
        carrier = self.ways.draining
        assert carrier is not None
        self.ways.end_draining(carrier)
        self.ways.lose(carrier, TransportError("it was left"))

    @precondition(lambda self: self.ways.open)
    @rule(data=st.data())
    def probe(self, data: Any) -> None:
        """Ask a link for a sign of life, and forget the outcome of the last one."""
        carrier = self.pick(data, self.ways.open)
        if self.free(carrier):
            carrier.own = {key: outcome for key, outcome in carrier.own.items() if outcome is None}
            request_id = self.traffic.own_id()
            carrier.own[request_id] = None
            assert self.traffic.begin_sending(carrier, SessionMessage(Request(request_id, "ping")), waits=False)
            self.reach(carrier, SessionMessage(Request(request_id, "ping")))

    # --- what always holds -------------------------------------------------------------------------------------------

    def places(self) -> Counter[Any]:
        """Return in how many places each request of the session is."""
        traffic, links = self.traffic, {*self.ways.open, *(each.carrier for each in self.sendings)}
        places = Counter(call.id for call in self.at_sender)
        places.update(list(traffic.waiting))
        for carrier in links:
            places.update(list(carrier.in_flight))
            places.update(list(carrier.in_doubt))
        for item in traffic.arrived:
            match item.message:
                case Response(id=request_id) | ErrorResponse(id=request_id) | TransportFailure(request_id=request_id):
                    places[request_id] += 1
                case Notification(method="notifications/cancelled", params=params):
                    places[(params or {})["requestId"]] += (params or {})["requestId"] in self.calls
        return places

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        places = self.places()
        for call in self.calls.values():
            if call.outcome is None:
                assert places[call.id] == 1, f"{call.item.message} is in {places[call.id]} places"
            elif call.outcome != "cancelled":
                assert places[call.id] == 0, f"{call.item.message} has {call.outcome}, and is still kept"

    @invariant()
    def what_waits_will_be_sent(self) -> None:
        carrier = self.ways.carrier
        assert carrier is None or carrier.flushing or not self.traffic.waiting

    @invariant()
    def what_is_in_flight_is_with_its_server(self) -> None:
        for carrier in self.ways.open:
            link: Any = carrier.link
            coming = {getattr(item.message, "id", getattr(item.message, "request_id", None)) for item in link.unread}
            for request_id in carrier.in_flight:
                assert request_id in link.received or request_id in coming or request_id == carrier.half_sent

    @invariant()
    def links_have_one_state(self) -> None:
        ways = self.ways
        assert ways.carrier is None or ways.carrier is not ways.draining
        for carrier in (ways.carrier, ways.draining):
            assert carrier is None or (carrier in ways.open and carrier.lost is None)

    # --- the end -----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Let a way work, and everything end: every caller has an outcome, and nothing is kept."""
        if not hasattr(self, "modern"):
            return
        for _ in range(20 + 4 * len(self.calls)):
            self.settle_what_is_open()
        assert all(call.outcome is not None for call in self.calls.values()), "a caller waits forever"
        traffic = self.traffic
        assert not (self.places())
        assert not (traffic.waiting)
        assert not (traffic.questions)
        assert not (traffic.tries)
        assert not (traffic.arrived)
        for carrier in self.ways.open:
            assert carrier.half_sent is None
            assert not (carrier.in_flight)
            assert not (carrier.in_doubt)
        self.ways.advance(Phase.CLOSING)
        self.ways.advance(Phase.FINISHED)
        self.ways.advance(Phase.OPEN)
        assert self.ways.phase is Phase.FINISHED
        switches = len(self.switches)
        for carrier in list(self.ways.open):
            self.ways.lose(carrier, TransportError("the block has ended"))
        assert not self.ways.open
        assert not traffic.arrived
        assert len(self.switches) == switches

    def settle_what_is_open(self) -> None:
        ways = self.ways
        for place in range(3):
            self.connect(place)
        if ways.carrier is None and self.fit():
            ways.activate(self.fit()[0])
        for sending in list(self.sendings):
            if not sending.taken and sending.carrier.lost is None:
                sending.taken = True
                self.reach(sending.carrier, sending.item)
            self.end(sending)
        self.send_cancellations()
        if ways.carrier is not None and ways.carrier.flushing:
            self.flush()
        elif ways.carrier is not None and self.at_sender:
            self.hand_over_next()
        for carrier, request_id in self.working():
            self.finish(carrier, request_id, "result")
        for carrier in list(ways.open):
            if carrier.in_doubt and carrier.lost is None:
                probe = self.traffic.own_id()
                carrier.own[probe] = None
                carrier.link.say(Response(probe, {}))  # type: ignore[attr-defined]
            self.read_all(carrier)
        self.read_arrived()
        for known in list(self.asked):
            self.give_answer(known)


Failover.TestCase.settings = settings(max_examples=examples(250), stateful_step_count=50)
TestFailover = Failover.TestCase
