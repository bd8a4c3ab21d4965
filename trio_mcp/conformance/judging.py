"""Judges the events on a connection, a few examples at a time, each with the earlier events to which it refers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from trio_mcp.conformance.members import member_of
from trio_mcp.conformance.rules.catalogue import judge
from trio_mcp.conformance.rules.history import OTHER, History, id_key, is_notification, is_request, is_response
from trio_mcp.conformance.rules.model import Rule, Verdict
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta

__all__ = ["Found", "Judging", "first_broken"]

STANDING: Final = frozenset(
    {"resources/subscribe", "resources/unsubscribe", "logging/setLevel", "subscriptions/listen"}
)
"""The methods of requests with a lasting effect: everything that comes later is judged together with them."""

MOST_STANDING: Final = 100
MOST_KEPT: Final = 20_000
"""The maximum number of requests that are remembered for late messages (arbitrary)."""

MOST_NAMELESS: Final = 20
"""The maximum number of invalid texts and messages that are remembered: a late error without an id may be about one of
them (arbitrary)."""


@attrs.frozen
class Found:
    """A verdict of a rule, and what led to it.

    Attributes:
        rule: The rule that was judged.
        verdict: The verdict on the rule.
        examples: The numbers of the examples that may have caused the verdict, the likeliest first.
        history: The events that were judged.
    """

    rule: Rule
    verdict: Verdict
    examples: tuple[int, ...]
    history: Sequence[Event]


@attrs.define
class _Kept:
    """The recorded events about a request, or those of an HTTP exchange."""

    example: int
    events: list[tuple[int, Event]] = attrs.Factory(list)


class Judging:
    """Judges the events on a main connection to a target, and on those that examples open beside it.

    Each event is judged once, however long the connection lasts. When the rules judge an event, they also see the
    earlier events to which it refers, and those with a lasting effect.

    Args:
        rules: The rules to judge by.
        prologue: The events of the handshake and the listing.

    Attributes:
        troubles: The exceptions that rules raised, by the id of the rule. The cause is an error in the rule, or a very
            odd target.
    """

    def __init__(self, rules: Sequence[Rule], prologue: Sequence[Event]) -> None:
        self.troubles: dict[str, str] = {}
        self._rules = rules
        self._prologue = list(prologue)
        self._kept: dict[Any, _Kept] = {}
        self._standing: list[_Kept] = []
        self._nameless: deque[tuple[int, Event]] = deque(maxlen=MOST_NAMELESS)
        self._example = -1
        self._count = 0
        # While `_example` is -1, the events belong to no example but to the prologue, which is never reported as a
        # cause.
        for event in self._prologue:
            self._keep(event)

    @property
    def is_full(self) -> bool:
        """Whether so many requests have a lasting effect that a new connection is better."""
        return len(self._standing) > MOST_STANDING

    def judge(self, events: Sequence[Event]) -> Iterator[Found]:
        """Yield the verdicts on new events, those that were recorded since the last call."""
        before = self._before(events)
        # Events are always compared by identity: two equal events are still two events.
        known = {id(event) for event in self._prologue}
        view = self._prologue + [event for event in before if id(event) not in known]
        since = len(view)
        view += events
        history = History(view, since=since)
        # The example's number is read before the new events are kept, because keeping them advances it: events before
        # the first mark belong to the example that ran last.
        began = self._example
        examples = {}
        for event in events:
            self._keep(event)
            examples[id(event)] = self._example
        for rule in self._rules:
            try:
                for rule_, verdict in judge(history, [rule]):
                    # For each message of a batch, the history makes an event of its own, which has the same position as
                    # the recorded event.
                    where = history.connections[verdict.event.connection]
                    original = where.events[where.position(verdict.event)]
                    # The example that the event refers to comes first: a response may be so late that another example
                    # is running when it arrives.
                    causes = [*self._causes(verdict.event), examples.get(id(original), began)]
                    yield Found(rule_, verdict, tuple(dict.fromkeys(each for each in causes if each >= 0)), view)
            # The exception is only noted: a mistake in one rule must not cost the verdicts of all the others.
            except Exception as exc:
                self.troubles[rule.id] = f"{type(exc).__name__}: {exc}"
        # The oldest requests are dropped first (a dict keeps the order of insertion), because a late message about them
        # is the least likely.
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def _before(self, events: Iterable[Event]) -> list[Event]:
        """Return, in order, the earlier events to which these events refer, and those with a lasting effect."""
        found = {id(kept): kept for kept in self._standing}
        for event in events:
            for key in _keys(event):
                if (kept := self._kept.get(key)) is not None:
                    found[id(kept)] = kept
        # The events of the HTTP exchanges to which these events belong are needed, too.
        for kept in list(found.values()):
            for _, event in kept.events:
                if (exchange := self._kept.get((event.connection, "exchange", event.exchange))) is not None:
                    found[id(exchange)] = exchange
        numbered = dict(self._nameless)
        numbered.update(pair for kept in found.values() for pair in kept.events)
        # The order of the traffic is restored: for a rule, earlier messages decide what a later one may say.
        return [numbered[number] for number in sorted(numbered)]

    def _causes(self, event: Event) -> list[int]:
        """Return the numbers of the examples that sent the requests to which an event refers."""
        return [kept.example for key in _keys(event) if (kept := self._kept.get(key)) is not None]

    def _keep(self, event: Event) -> None:
        self._count += 1
        if event.kind == "mark" and event.facts.get("what") == "begin":
            self._example = int(event.facts.get("example", self._example + 1))
        # The event is added to the requests that it refers to before its own requests are kept, because it can refer
        # only to earlier ones.
        for key in _keys(event):
            if (kept := self._kept.get(key)) is not None:
                kept.events.append((self._count, event))
        if event.kind == "request" and event.exchange is not None:
            self._kept[event.connection, "exchange", event.exchange] = _Kept(self._example, [(self._count, event)])
        if event.sender == "client" and (event.kind == "text" or not all(map(_is_proper, _messages(event)))):
            self._nameless.append((self._count, event))
        for message in _messages(event):
            if event.sender == "server" and is_response(message):
                self._settle_nameless(event.connection, message.get("id"))
            if is_request(message):
                # The request is kept together with the HTTP request that carried it; this event has already been added
                # to the events of that exchange.
                exchange = self._kept.get((event.connection, "exchange", event.exchange))
                kept = _Kept(self._example, [(self._count, event)] if exchange is None else [*exchange.events])
                # The same object is kept under the id and under the progress token, so that messages about the token
                # and messages about the id are judged together.
                self._kept[event.connection, event.sender, id_key(message["id"])] = kept
                if (token := member_of(message, "params", "_meta", meta.PROGRESS_TOKEN)) is not None:
                    self._kept[event.connection, event.sender, "token", id_key(token)] = kept
                if message["method"] in STANDING:
                    self._standing.append(kept)

    def _settle_nameless(self, connection: int, request_id: Any) -> None:
        """Forget the invalid texts that a response settles: all before its request; without an id, only the oldest."""
        # Only texts on the same connection count, because events on other connections say nothing about their order.
        numbers = [number for number, event in self._nameless if event.connection == connection]
        if request_id is None:
            settled = numbers[:1]
        else:
            request = self._kept.get((connection, "client", id_key(request_id)))
            settled = [] if request is None else [number for number in numbers if number < request.events[0][0]]
        if settled:
            self._nameless = deque((pair for pair in self._nameless if pair[0] not in settled), MOST_NAMELESS)


def _is_proper(message: Any) -> bool:
    return is_request(message) or is_notification(message) or is_response(message)


def first_broken(rule: Rule, events: Sequence[Event], since: int = 0) -> Verdict | None:
    """Return the first verdict that says that a transcript breaks a rule, or None."""
    verdicts = judge(History(events, since=since), [rule])
    return next((verdict for _, verdict in verdicts if verdict.problem is not None), None)


def _messages(event: Event) -> list[Any]:
    if event.kind != "message":
        return []
    return event.message if isinstance(event.message, list) else [event.message]


def _keys(event: Event) -> Iterator[Any]:
    """Yield the keys under which the requests and exchanges that an event refers to are kept."""
    place = event.connection
    other = OTHER.get(event.sender, event.sender)
    if event.kind in ("response", "end") or (event.kind == "message" and event.exchange is not None):
        yield place, "exchange", event.exchange
    if event.kind == "mark" and "id" in event.facts:
        # A mark about a request, for example that its response is overdue, belongs to the example that sent the
        # request.
        yield place, "client", id_key(event.facts["id"])
    for message in _messages(event):
        if is_response(message):
            yield place, other, id_key(message.get("id"))
        elif is_notification(message) and isinstance(params := message.get("params"), dict):
            if message["method"] == "notifications/cancelled":
                yield place, event.sender, id_key(params.get("requestId"))
            elif message["method"] == "notifications/progress":
                yield place, other, "token", id_key(params.get("progressToken"))
