"""What is promised of the streams of sessions: their events, the calls whose streams they are, and questions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from tests.chaos.carried import Carried, StreamCall
from tests.chaos.events import Event
from tests.chaos.ledger import Entry
from tests.chaos.run import Seen
from tests.chaos.streams import StreamSession
from tests.chaos.tools import GRACE, MEMBER_LEASE, STEPS, TIMEOUT as STORE_TIMEOUT
from tests.soak.tools import digest
from trio_mcp.http.server.legacy.sharing import LOST

MARGIN = 1.0
"""Seconds until a death has reached those whom it concerns, on a machine that is busy. Chosen."""

LATE = MEMBER_LEASE + 4.0
"""Seconds from the end of a process until the streams of its calls have ended. Chosen: the lease, a look, and some."""

SOON = 4.0
"""Seconds within which a handler learns of a cancellation, or has an answer that was accepted. Chosen."""

PROGRESS = {"steps": STEPS, "stall": STEPS, "quiz": 2}
"""How often a call of each kind reports progress."""


@attrs.frozen
class Causes:
    """What excuses much.

    Attributes:
        away: The events during which the store could not be used by some process.
        endings: The events in which processes end gracefully.
        deaths: When each process was killed.
        wounded: The processes that were stopped for some time.
    """

    away: list[Event]
    endings: list[Event]
    deaths: dict[int, float]
    wounded: set[int]

    def was_away(self, begin: float, end: float) -> bool:
        """Whether the store could not be used at some time, or an operation still waited for it."""
        begin, end = begin - STORE_TIMEOUT - MARGIN, end + MARGIN
        return any(event.began <= end and begin <= event.until for event in self.away)

    def was_ending(self, begin: float, end: float) -> bool:
        """Whether processes ended gracefully at some time."""
        begin, end = begin - GRACE - MARGIN, end + MARGIN
        return any(event.began <= end and begin <= event.ended for event in self.endings)

    def was_killed(self, begin: float, end: float) -> bool:
        """Whether a process was killed at some time."""
        return any(begin - MARGIN <= at <= end + MARGIN for at in self.deaths.values())

    def within(self, seconds: float, since: float) -> float:
        """Return when something must have happened that may wait for the store, and for processes that serve."""
        limit = since + seconds
        for event in sorted([*self.away, *self.endings], key=lambda event: event.began):
            if event.began <= limit and since <= event.ended:
                limit += event.ended - max(event.began, since) + STORE_TIMEOUT
        return limit


class StreamRules:
    """Compares what the clients of sessions have received with the ledger, and with what happened."""

    def __init__(self, seen: Seen, causes: Causes) -> None:
        self._seen, self._causes = seen, causes
        self._of_call: dict[str, list[Entry]] = defaultdict(list)
        self._questions: dict[str, dict[str, list[Entry]]] = defaultdict(dict)
        for name, entries in seen.ledger.items():
            call, question, token = name.partition("?")
            if question:
                self._questions[call][token] = entries
            elif "#" in name:
                self._of_call[name.partition("#")[0]] += entries

    def broken(self) -> Iterator[str]:
        """Yield the broken promises."""
        for session in self._seen.streams.sessions:
            for problem in self._of_session(session):
                yield f"{session.name}: {problem}"
            for call in session.calls:
                for problem in self._of_one(call):
                    yield f"{self._shown(call)}: {problem}"
        for name, asked in self._questions.items():
            for token, entries in asked.items():
                yield from (f"{name}: {problem}" for problem in self._of_question(token, entries))

    def _shown(self, call: StreamCall) -> str:
        span = f"{self._time(call.began)} to {self._time(call.ended)} s"
        ways = ", ".join(_shown_carried(each) for each in call.connections)
        return f"{call.name} ({call.kind}, {span}, {call.outcome}; {ways})"

    def _time(self, at: float) -> str:
        return f"{at - self._seen.begun:.2f}"

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield what streams went through, so that a run shows whether it has tried what it judges."""
        sessions = self._seen.streams.sessions
        calls = [call for session in sessions for call in session.calls]
        outcomes = Counter(call.outcome for call in calls)
        yield "calls in sessions whose streams break", ", ".join(f"{name} {n:,}" for name, n in outcomes.most_common())
        ways = [each for call in calls for each in call.connections]
        cut, resumed = sum(each.cut for each in ways), sum(bool(each.cursor) for each in ways)
        standing = sum(len(session.standing) for session in sessions)
        yield "connections that were cut; that resumed a call; standing streams", f"{cut:,}; {resumed:,}; {standing:,}"
        asked = [each for session in sessions for each in session.asked.values()]
        lost = [call for call in calls if LOST in [message_of(each) for each in call.responses.values()]]
        took = [took for call in lost if (took := self._took(call)) is not None]
        answered, slowest = sum(bool(each.accepted) for each in asked), max(took, default=0)
        yield "questions of the server; that were answered", f"{len(asked):,}; {answered:,}"
        yield "calls whose process ended; slowest error after that", f"{len(lost)}; {slowest:.1f} s"

    def _took(self, call: StreamCall) -> float | None:
        """Return the seconds from the end of a call's process until its client was told; None if unknown."""
        entries = self._of_call[call.name]
        ends = [entry.at for entry in entries if entry.what != "began"]
        died = [self._causes.deaths[entry.pid] for entry in entries if entry.pid in self._causes.deaths]
        return call.ended - min([*ends, *died]) if ends or died else None

    # --- sessions ------------------------------------------------------------------------------------------------

    def _of_session(self, session: StreamSession) -> Iterator[str]:
        for at, what in session.odd:
            yield f"at {self._time(at)}: {what}"
        if not session.alive:
            yield "it did not serve a call at its end, or did not end"
        for id in session.clashes:
            yield f"the event {id} came again with other data"
        for carried in [*session.standing, *(each for call in session.calls for each in call.connections)]:
            for problem in _of_carried(carried):
                yield f"at {self._time(carried.began)}: {problem} ({_shown_carried(carried)})"
        noted = Counter(session.noted.values())
        for call in session.calls if session.alive else ():
            times = noted[call.name]
            ended = any(entry.what == "ended" for entry in self._of_call[call.name])
            if times > 1 or (call.kind == "knock" and ended and not times and not self._met_no_store(call)):
                yield f"the log message of {call.name} came {times} times"

    # --- calls ---------------------------------------------------------------------------------------------------

    def _of_one(self, call: StreamCall) -> Iterator[str]:
        begun = [entry for entry in self._of_call[call.name] if entry.what == "began"]
        if len(call.responses) > 1:
            yield f"it has {len(call.responses)} responses"
        if call.late:
            yield f"after its response came {call.late}"
        steps = PROGRESS.get(call.kind, 0) if call.outcome == "responded" and _succeeded(call) else len(call.progress)
        if call.progress != [*range(1, steps + 1)] and not self._met_no_store(call):
            yield f"its progress was {call.progress}"
        rules: dict[str, Callable[[StreamCall], Iterator[str]]] = {
            "responded": self._of_responded,
            "cancelled": self._of_cancelled,
            "lost": self._of_lost,
            "gone": self._of_gone,
        }
        if call.outcome in rules:
            yield from rules[call.outcome](call)
        elif call.outcome == "refused" and begun:
            yield "the client was told that it was not begun, and a process has begun it"
        elif call.outcome != "refused":
            yield "its stream has never ended"
        for token, asked in self._questions[call.name].items():
            yield from self._of_accepted(call, token, asked)

    def _of_responded(self, call: StreamCall) -> Iterator[str]:
        message = next(iter(call.responses.values()))
        result, entries = message.get("result"), self._of_call[call.name]
        if message.get("id") != call.id:
            yield f"it got the response to {message.get('id')}"
        elif result is None:
            yield from self._of_error(call, message["error"]["message"])
        elif result.get("isError"):
            if not self._may_fail(call):
                yield f"it failed: {result}"
        elif (text := result["content"][0]["text"]).rpartition(" ")[2] != digest(call.name, 0):
            yield f"it got the result of another call: {text}"
        elif " " in text and text.partition(" ")[0] not in self._questions[call.name]:
            yield f"it got the answer to another question: {text}"
        elif "ended" not in [entry.what for entry in entries]:
            yield "it succeeded, and no process has ended it"

    def _of_error(self, call: StreamCall, text: str) -> Iterator[str]:
        if text != LOST and not self._may_fail(call):
            yield f"it failed: {text}"
        if text != LOST:
            return
        entries, causes = self._of_call[call.name], self._causes
        over = [entry for entry in entries if entry.what in ("ended", "failed")]
        died = [causes.deaths[entry.pid] for entry in entries if entry.pid in causes.deaths]
        if over and not any(at <= over[0].at + MARGIN for at in died) and not self._met_no_store(call):
            yield "its handler has ended in a process that lived, and its response was lost"
        elif not died and not self._may_be_cut(call):
            yield "it was lost, and its process was not killed"
        elif (took := self._took(call)) is not None and call.ended > causes.within(LATE, call.ended - took):
            yield f"it was lost at {self._time(call.ended - took)}, and its client was told after {took:.1f} s"

    def _of_cancelled(self, call: StreamCall) -> Iterator[str]:
        entries = self._of_call[call.name]
        ends = [entry.at for entry in entries if entry.what != "began"]
        limit = self._causes.within(SOON, call.cancelled)
        if not entries or entries[0].pid in self._causes.deaths or entries[0].pid in self._causes.wounded:
            return
        if self._causes.was_away(call.began, call.cancelled):  # no other process knew of the request
            return
        if min(ends, default=math.inf) > limit and self._seen.ended > limit:
            yield "its cancellation was accepted, and its handler goes on"

    def _of_lost(self, call: StreamCall) -> Iterator[str]:
        (post,) = call.connections
        causes, span = self._causes, (post.began, post.ended)
        if not (post.cut or causes.was_killed(*span) or causes.was_ending(*span) or self._met_no_store(call)):
            yield "its connection was lost, and no process was killed"

    def _of_gone(self, call: StreamCall) -> Iterator[str]:
        if not self._met_no_store(call):
            yield "its stream could not be resumed"

    def _met_no_store(self, call: StreamCall) -> bool:
        return self._causes.was_away(call.began, call.ended or math.inf)

    def _may_be_cut(self, call: StreamCall) -> bool:
        """Whether the process that ran a call has ended gracefully, or could not store what it sent."""
        return self._causes.was_ending(call.began, call.ended) or self._met_no_store(call)

    def _may_fail(self, call: StreamCall) -> bool:
        """Whether a call may fail that ran in a process that lives."""
        return self._met_no_store(call)

    # --- questions -----------------------------------------------------------------------------------------------

    def _of_question(self, token: str, entries: list[Entry]) -> Iterator[str]:
        """Look whether an answer is one to a question of the handler that has got it."""
        asked = [entry for entry in entries if entry.what == "asked"]
        answered = [entry for entry in entries if entry.what == "answered"]
        if answered and not asked:
            yield f"it got the answer {token}, for which it has not asked"
        elif answered and answered[0].pid != asked[0].pid:
            yield f"the answer {token} reached another process"
        if len(answered) > 1:
            yield f"the answer {token} reached it {len(answered)} times"

    def _of_accepted(self, call: StreamCall, token: str, entries: list[Entry]) -> Iterator[str]:
        """Look whether an answer that was accepted has reached its handler."""
        accepted = [
            asked.accepted
            for session in self._seen.streams.sessions
            for asked in session.asked.values()
            if asked.token == token and asked.accepted
        ]
        answered = [entry.at for entry in entries if entry.what == "answered"]
        pid, causes = entries[0].pid, self._causes
        if not accepted or pid in causes.deaths or pid in causes.wounded or self._may_be_cut(call):
            return
        limit = causes.within(SOON, accepted[0])
        if min(answered, default=math.inf) > limit and self._seen.ended > limit:
            yield f"the answer {token} was accepted at {self._time(accepted[0])}, and its handler has not got it"


def _of_carried(carried: Carried) -> Iterator[str]:
    """Look at the ids of one connection: all of one stream, each once, in order, and none left out."""
    # The error without an id takes the place of a response, as the last event.
    ids = [(_numbers(event.id), bool(event.data)) for event in carried.events if event.id]
    if not ids:
        return
    # A GET without a cursor begins where the client left off: with an event that only has an id.
    (stream, first), _ = ids[0]
    last = _numbers(carried.cursor)[1] if carried.cursor else 0 if carried.method == "POST" else first
    if carried.cursor and _numbers(carried.cursor)[0] != stream:
        yield f"the stream {stream} came instead of that of {carried.cursor}"
    for (other, number), is_message in ids:
        if other != stream:
            yield f"the streams {stream} and {other} came on one connection"
        elif number != last + is_message:
            yield f"the event {stream}-{number} followed {stream}-{last}"
        last = number


def message_of(response: Any) -> str:
    """Return the message of an error; empty for a result."""
    return str(response.get("error", {}).get("message", ""))


def _succeeded(call: StreamCall) -> bool:
    return not any("error" in each or each["result"].get("isError") for each in call.responses.values())


def _numbers(id: str) -> tuple[int, int]:
    stream, _, number = id.partition("-")
    return int(stream), int(number)


def _shown_carried(carried: Carried) -> str:
    ids = f"{carried.events[0].id} to {carried.events[-1].id}" if carried.events else carried.note[:100]
    how = " and was cut" if carried.cut else ""
    return f"{carried.method} {carried.cursor}: {carried.status}, {ids}{how}"
