"""Replays a client's messages: sends them again, and judges the responses by rules or compares them with a
recording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import attrs
import trio

from trio_mcp.conformance.facts import discover
from trio_mcp.conformance.plans.plan_files import PlanFile
from trio_mcp.conformance.rules.catalogue import RULES, judge
from trio_mcp.conformance.rules.history import (
    Connection,
    History,
    RecordedRequest,
    is_notification,
    is_request,
    is_response,
)
from trio_mcp.conformance.rules.model import Rule, Verdict
from trio_mcp.conformance.run import CheckTerms, PlanRunner
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.files import Transcript, TranscriptError
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.wire import OpenWire, Wire
from trio_mcp.errors import NegotiationError, TransportError, TrioMcpError
from trio_mcp.types.versions import LATEST_LEGACY, REVISIONS

__all__ = ["Replayed", "replay_plan", "replay_transcript"]

QUIET: Final = 0.1
"""How long to wait for late messages at the end of a replay, in seconds: an arbitrary choice."""

PAUSE: Final = 0.25
"""The longest pause between two of the client's messages that is reproduced, in seconds; longer ones are cut to this
length. An arbitrary choice, but long enough that no cancellation overtakes the request that it cancels."""

_LASTING: Final = frozenset({"subscriptions/listen"})
_OPAQUE: Final = ("nextCursor", "requestState", "taskId", "elicitationId")
"""Members with values that a server makes up and a client sends back; they differ from run to run."""


@attrs.frozen
class Replayed:
    """The result of a replay.

    Attributes:
        events: The events of the replay.
        differences: The differences from the recording, one line each.
        broken: The ids of the rules that the replay breaks, each with its first failed verdict; for a transcript, only
            of those that the recording does not break.
        masked: How many messages were sent with masks in place of their secrets.
        since: The index of the first event that is judged.
    """

    events: tuple[Event, ...]
    differences: tuple[str, ...]
    broken: Mapping[str, Verdict]
    masked: int = 0
    since: int = 0

    @property
    def status(self) -> int:
        """The exit status: 0 if nothing differs from the recording and no rule is broken, else 1."""
        return int(bool(self.differences or self.broken))


# --- a plan -----------------------------------------------------------------------------------------------------------


async def replay_plan(open_wire: OpenWire, file: PlanFile, *, deadline: float = 10.0) -> Replayed:
    """Run the plan of a failure again, and judge what happens by the rule that the failure broke.

    Args:
        open_wire: Opens a connection to the target.
        file: The plan, with its rule and revision.
        deadline: How many seconds to wait for a response.

    Raises:
        TranscriptError: If this version of trio-mcp does not have the rule.
        TransportError, NegotiationError: If the target can't be reached, or does not speak the revision.
    """
    if (rule := RULES.get(file.rule)) is None:
        raise TranscriptError(f"there is no rule {file.rule!r} in this version of trio-mcp")
    runner = PlanRunner(open_wire, file.revision, CheckTerms(deadline))
    if not file.plan:
        return await _replay_opening(runner, rule)
    async with runner.connected():
        await discover(runner)
        since = len(runner.tape.events)
        await runner.run(file.plan)
        # The replay ends like a run of the shrinker: with a moment for late messages, and with a probe, so that the
        # rules that require the server to survive something can be judged.
        await runner.until(lambda: not runner.talks[0].is_open, QUIET)
        await runner.probe()
    # The events are judged only after the connection has ended, because some rules judge its end.
    events = tuple(runner.tape.events)
    return Replayed(events, (), _broken(events, [rule], since), since=since)


async def _replay_opening(runner: PlanRunner, rule: Rule) -> Replayed:
    """Connect again, which is all that an empty plan stands for, and judge the handshake."""
    failed: TrioMcpError | None = None
    try:
        async with runner.connected():
            await discover(runner)
    except (TransportError, NegotiationError) as exc:
        failed = exc
    events = tuple(runner.tape.events)
    broken = _broken(events, [rule])
    if failed is not None and not broken:
        raise failed
    return Replayed(events, (), broken)


def _broken(events: Sequence[Event], rules: Iterable[Rule], since: int = 0) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for rule, verdict in judge(History(events, since=since), rules):
        if verdict.problem is not None:
            found.setdefault(rule.id, verdict)
    return found


# --- a transcript -----------------------------------------------------------------------------------------------------


async def replay_transcript(open_wire: OpenWire, transcript: Transcript, *, deadline: float = 10.0) -> Replayed:
    """Send what the client of a transcript sent, in the same order, and compare the responses.

    Each message is sent once the responses that precede it in the transcript have come. Values that the server makes up
    (cursors, states, ids of its own requests, sessions) are sent back as the server gives them in the replay. Over HTTP
    the headers are generated again.

    Args:
        open_wire: Opens a connection to the target.
        transcript: The recorded events.
        deadline: How many seconds to wait for a response.

    Raises:
        TransportError: If the target can't be reached.
    """
    replay = _Replay(open_wire, transcript.events, deadline)
    async with contextlib.AsyncExitStack() as stack:
        await replay.run(stack)
    events = tuple(replay.tape.events)
    # Rules for clients are left out, because the replay only repeats the mistakes of the client that was recorded.
    rules = [rule for rule in RULES.values() if rule.who != "client"]
    before = _broken(transcript.events, rules)
    broken = {id_: verdict for id_, verdict in _broken(events, rules).items() if id_ not in before}
    sent = [event for event in transcript.events if event.sender == "client" and event.kind in ("message", "text")]
    # The masks are counted, because the user must know of them: a server that gets a mask in place of a token or a
    # session id has a reason to respond differently.
    masked = sum(bool(event.facts.get("masked")) for event in sent)
    return Replayed(events, tuple(_differences(replay.before, History(events))), broken, masked)


class _Replay:
    """Sends the client's messages of a recording again, and compares the responses.

    Attributes:
        tape: Records the events of the replay.
        before: The recorded events.
    """

    def __init__(self, open_wire: OpenWire, events: Sequence[Event], deadline: float) -> None:
        self.tape = Tape()
        self.before = History(events)
        self._open_wire = open_wire
        self._events = events
        self._deadline = deadline
        self._wires: dict[int, Wire] = {}
        self._live = History(())
        self._taken = 0
        # Each value that the server made up in the recording is mapped to the one that it makes up now.
        self._now: dict[str, str] = {}
        # For each event from the server, by its identity: the client's requests to which it responds, and the server's
        # requests that it contains. A request is given by the number of its connection and its place among the requests
        # on that connection. A batch can contain several.
        self._answers: dict[int, list[tuple[int, int]]] = {}
        self._asks: dict[int, list[tuple[int, int]]] = {}
        for connection in self.before:
            for place, asked in enumerate(connection.requests):
                # Only the first response is awaited: a second one was a fault of the server, which need not happen
                # again.
                for answer in asked.answers[:1]:
                    outer = connection.events[connection.position(answer)]
                    self._answers.setdefault(id(outer), []).append((connection.number, place))
            for place, asked in enumerate(connection.questions):
                outer = connection.events[connection.position(asked.event)]
                self._asks.setdefault(id(outer), []).append((connection.number, place))

    async def run(self, stack: contextlib.AsyncExitStack) -> None:
        """Send everything that the client sent in the recording, in the same order."""
        said: list[Event] = []
        last = 0.0
        for event in self._events:
            # The pause is measured from the previous event of either side: everything up to that event has happened
            # again by now, so only the client's own pause remains.
            pause, last = event.time - last, event.time
            if event.sender == "server":
                said.append(event)
            elif event.sender == "client" and event.kind in ("open", "message", "text", "end"):
                wire = self._wires.get(event.connection) or await self._open(event.connection, stack)
                await self._catch_up(said)
                said.clear()
                await trio.sleep(min(max(pause, 0), PAUSE))
                await self._send(wire, event)
        await self._catch_up(said)
        await trio.sleep(QUIET)

    async def _open(self, number: int, stack: contextlib.AsyncExitStack) -> Wire:
        revision = self.before.connections[number].revision
        # A recording may name a revision that this version of trio-mcp does not support. A supported one will do in its
        # place, because the revision only decides how the wire frames messages and which headers it makes; `initialize`
        # is sent as it was recorded.
        revision = revision if revision in REVISIONS else LATEST_LEGACY
        wire = await stack.enter_async_context(self._open_wire(self.tape, number, revision))
        self._wires[number] = wire
        return wire

    async def _catch_up(self, said: Sequence[Event]) -> None:
        """Wait until the responses and requests that the server sent in these recorded events have arrived again."""
        answers = [each for event in said for each in self._answers.get(id(event), ())]
        asks = [each for event in said for each in self._asks.get(id(event), ())]
        if answers or asks:
            # A timeout is ignored: a response that has not come in time is reported as a difference at the end, and the
            # remaining messages are still sent.
            await self.tape.until(lambda: self._has_come(answers, asks), self._deadline)
        for number, place in answers:
            self._learn(self.before.connections[number].requests[place], self._live_one("requests", number, place))

    def _has_come(self, answers: Iterable[tuple[int, int]], asks: Iterable[tuple[int, int]]) -> bool:
        # Only new events are examined, because this method is called after each event, and a recording may have a
        # million events.
        for event in self.tape.events[self._taken :]:
            self._live.connections.setdefault(event.connection, Connection(event.connection)).take(event)
        self._taken = len(self.tape.events)
        return all(
            # A cancelled request may stay without a response, and nothing more can arrive on a connection that has
            # ended, so neither is waited for.
            (live := self._live_one("requests", number, place)) is not None
            and (live.answers or live.cancelled is not None)
            for number, place in answers
            if self._is_open(number)
        ) and all(self._live_one("questions", *each) is not None for each in asks if self._is_open(each[0]))

    def _is_open(self, number: int) -> bool:
        return number in self._wires and self._wires[number].is_open

    def _live_one(self, of: Literal["requests", "questions"], number: int, place: int) -> RecordedRequest | None:
        """Return the request at position ``place`` on a connection in the replay, or None if it has not come yet."""
        connection = self._live.connections.get(number)
        found: list[RecordedRequest] = [] if connection is None else getattr(connection, of)
        return found[place] if place < len(found) else None

    def _learn(self, before: RecordedRequest, live: RecordedRequest | None) -> None:
        """Map the values that the server made up in the recording to those in the replay, which must be sent back."""
        then, now = before.result, None if live is None else live.result
        if then is None or now is None:
            return
        for name in _OPAQUE:
            if isinstance(then.get(name), str) and isinstance(now.get(name), str):
                self._now[then[name]] = now[name]
        old, new = then.get("inputRequests"), now.get("inputRequests")
        if isinstance(old, dict) and isinstance(new, dict):
            # The requests are paired by their order, because the server chooses their keys, which may differ each time.
            # Their number may differ, too.
            self._now |= dict(zip(old, new, strict=False))

    def _as_now(self, value: Any) -> Any:
        if isinstance(value, dict):
            # The names of members are replaced, too: those in `inputResponses` are keys that the server has chosen.
            return {self._now.get(name, name): self._as_now(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._as_now(each) for each in value]
        return self._now.get(value, value) if isinstance(value, str) else value

    # --- what is sent -------------------------------------------------------------------------------------------------

    async def _send(self, wire: Wire, event: Event) -> None:
        if event.kind == "end":
            await self._give_up(wire, event)
        elif event.kind == "text":
            await wire.write([event.text or b""])
        elif isinstance(event.message, dict):
            await wire.send(self._message(event))
        elif event.message is not None:
            await wire.send(event.message)

    def _message(self, event: Event) -> dict[str, Any]:
        message: dict[str, Any] = event.message
        if is_response(message):
            return {**message, "id": self._question_now(event)}
        if "params" in message and (is_request(message) or is_notification(message)):
            return {**message, "params": self._as_now(message["params"])}
        return message

    def _question_now(self, event: Event) -> Any:
        """Return the id that a request from the server, to which this event responds, has in the replay."""
        wanted = event.message.get("id")
        for place, asked in enumerate(self.before.connections[event.connection].questions):
            # True and 1.0 equal 1 in Python, but they are different ids.
            if asked.id == wanted and type(asked.id) is type(wanted):
                live = self._live_one("questions", event.connection, place)
                return wanted if live is None else live.id
        return wanted

    async def _give_up(self, wire: Wire, event: Event) -> None:
        """Close the HTTP response to a request, as in the recording: in the modern era this cancels the request."""
        # In the legacy era the loss of a response does not affect its request (`basic/transports`, Sending Messages
        # to the Server), so nothing is cancelled.
        connection = self.before.connections[event.connection]
        exchange = connection.exchanges.get(event.exchange or 0) if connection.modern else None
        for sent in () if exchange is None else exchange.sent:
            if is_request(sent.message):
                await wire.cancel(sent.message["id"], None)


def _differences(before: History, now: History) -> Iterable[str]:
    for connection in before:
        live = now.connections.get(connection.number)
        requests = [] if live is None else live.requests
        # Responses are compared by kind, not by content, because times, ids and data differ from run to run although
        # nothing is wrong.
        for place, asked in enumerate(connection.requests):
            then, today = (
                _kind(asked),
                _kind(requests[place]) if place < len(requests) else "a request that could not be sent",
            )
            # A cancelled request may or may not get a response, so neither is a difference.
            if then != today and asked.cancelled is None and asked.method not in _LASTING:
                yield f"{asked.method} #{asked.id}: {then} before, {today} now"


def _kind(asked: RecordedRequest) -> str:
    if not asked.answers:
        return "no response"
    if asked.error is not None:
        return f"error {asked.error.get('code')}"
    if asked.result is not None and asked.result.get("isError") is True:
        return "a result with isError set to true"
    # A result without a type counts as complete, as older servers send none (`basic`, ResultType).
    kind = asked.result.get("resultType", "complete") if asked.result is not None else "complete"
    return "a result" if kind == "complete" else f"a result of the type {kind!r}"
