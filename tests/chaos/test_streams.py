"""The judge of `tests.chaos` finds each promise about the streams of sessions that is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.carried import Asked, Carried, Received, StreamCall
from tests.chaos.events import Event
from tests.chaos.judge import Judge
from tests.chaos.ledger import Entry
from tests.chaos.load import Load
from tests.chaos.run import HEARD, Plan, Seen
from tests.chaos.stream_rules import LATE, SOON
from tests.chaos.streams import StreamLoad
from tests.soak.tools import digest
from trio_mcp.http.server.legacy.sharing import LOST
from trio_mcp.http.server.legacy.streams import STORE_FAILED

RAN, OTHER, KILLED, ENDED = 1, 2, 3, 4
DEATH, AWAY, ENDING = 20.0, 40.0, 60.0
"""When a child was killed, the file was locked (for 5 s), and there was a rolling restart (for 5 s)."""

NAME = "streams-0-7"
DATA = b'{"method": "x"}'


def seen_with(folder: Path) -> Seen:
    """Return a run with one session, whose calls are to be added."""
    plan = Plan(stores="sqlite", minutes=1, seed=1, out=folder, rate=1, listeners=1, pause=1)
    streams = StreamLoad(["http://localhost"], 1, "")
    seen = Seen(plan, Load([], 1, ""), streams, begun=0.0, ended=100.0, deaths={KILLED: DEATH})
    seen.events += [
        Event("SIGKILL of a child", DEATH, DEATH + 1, KILLED, DEATH + 1),
        Event("locked file", AWAY, AWAY + 5, 0, AWAY + 5),
        Event("SIGTERM of a child", ENDING, ENDING + 5, ENDED, ENDING + 5),
    ]
    for session in streams.sessions:
        session.alive = True
        session.standing.append(carried("0-4", "0-4 ", "0-5", "0-6"))
    return seen


def carried(cursor: str, *ids: str, method: str = "GET", at: float = 5.0, **more: Any) -> Carried:
    """Return a connection with such events; an id with a space after it has no data."""
    events = [Received(id.strip(), at, b"" if id.endswith(" ") else DATA) for id in ids]
    return Carried(method, cursor, 200, at, at + 1, events=events, **more)


def post(*ids: str, at: float = 5.0, **more: Any) -> Carried:
    return carried("", *ids, method="POST", at=at, **more)


def result(call: str = NAME, token: str = "", **more: Any) -> dict[str, Any]:
    text = f"{token} {digest(call, 0)}".strip()
    return {"id": 7, "result": {"content": [{"type": "text", "text": text}], **more}}


def error(text: str) -> dict[str, Any]:
    return {"id": 7, "error": {"code": -32603, "message": text}}


class Case:
    """A call as it was seen by its client, and by the processes."""

    def __init__(
        self,
        *responses: Any,
        kind: str = "look",
        outcome: str = "responded",
        span: tuple[float, float] = (5.0, 6.0),
        ledger: tuple[tuple[str, int, float], ...] = (("began", RAN, 5.1), ("ended", RAN, 5.5)),
        ways: tuple[Carried, ...] = (),
        asked: dict[str, tuple[tuple[str, int, float], ...]] | None = None,
        accepted: dict[str, float] | None = None,
        **more: Any,
    ) -> None:
        began, ended = span
        ways = ways or (post("7-0 ", "7-1", at=began),)
        self.call = StreamCall(NAME, kind, 7, began, ended, outcome=outcome, connections=[*ways], **more)
        self.call.responses = {f"7-{number}": response for number, response in enumerate(responses)}
        self._ledger, self._asked, self._accepted = ledger, asked or {}, accepted or {}

    def __call__(self, seen: Seen) -> None:
        session = seen.streams.sessions[0]
        session.calls.append(self.call)
        if self._ledger:
            seen.ledger[f"{NAME}#1"] = [Entry(*each) for each in self._ledger]
        for token, entries in self._asked.items():
            seen.ledger[f"{NAME}?{token}"] = [Entry(*each) for each in entries]
        session.asked = {token: Asked(token, at) for token, at in self._accepted.items()}


def began(pid: int = RAN, at: float = 5.1, *then: tuple[str, float]) -> tuple[tuple[str, int, float], ...]:
    return (("began", pid, at), *((what, pid, when) for what, when in then))


def killed(told: float, *then: tuple[str, float]) -> Case:
    """A call whose process was killed, and whose client was told so at this time."""
    return Case(error(LOST), span=(DEATH - 3, told), ledger=began(KILLED, DEATH - 2.9, *then))


def asking(asked: tuple[tuple[str, int, float], ...], **more: Any) -> Case:
    given: dict[str, Any] = {"kind": "quiz", "progress": [1, 2], "accepted": {"ab": 5.2}, **more}
    return Case(*given.pop("responses", (result(token="ab"),)), asked={"ab": asked}, **given)


ASKED, ANSWERED = ("asked", RAN, 5.1), ("answered", RAN, 5.3)


def _session(seen: Seen, **changes: Any) -> None:
    for name, value in changes.items():
        setattr(seen.streams.sessions[0], name, value)


def _stands(seen: Seen, *ways: Carried) -> None:
    seen.streams.sessions[0].standing[:] = ways


def _noted(seen: Seen, *ids: str, ended: bool = True, at: float = 5.0) -> None:
    then = (("ended", at + 0.5),) if ended else ()
    Case(result(), kind="knock", span=(at, at + 1), ledger=began(RAN, at, *then))(seen)
    _session(seen, noted=dict.fromkeys(ids, NAME))


def _told(seen: Seen, *heard: tuple[float, str]) -> None:
    listener = seen.streams.sessions[0].listeners[0]
    listener.heard[:] = heard
    seen.listeners.append(listener)
    seen.ledger[str(listener.number)] = [Entry("touched", RAN, 50.0)]


# The promise that is broken, and what breaks it; under "", what keeps all of them.
ROWS: dict[str, list[Callable[[Seen], object]]] = {
    "": [
        Case(result()),
        Case(result(), ways=(post("7-0 ", "7-1"), carried("7-0", "7-0 ", "7-1", "7-2"), carried("7-2", "7-2 "))),
        Case(result(), kind="steps", progress=[1, 2, 3, 4]),
        Case(result(), kind="steps", progress=[1, 3], span=(AWAY, AWAY + 3)),
        Case(outcome="refused", ledger=()),
        Case(outcome="lost", ways=(post(cut=True),)),
        Case(outcome="lost", ways=(post(at=DEATH - 0.5),), ledger=()),
        Case(outcome="lost", ways=(post(at=ENDING + 1),), ledger=()),
        Case(outcome="gone", span=(AWAY, AWAY + 3)),
        Case(error(f"no: {STORE_FAILED}"), span=(AWAY, AWAY + 3)),
        Case(result(isError=True), span=(AWAY, AWAY + 3)),
        killed(DEATH + LATE - 0.1),
        killed(DEATH + 5, ("ended", DEATH - 0.2)),
        Case(error(LOST), span=(ENDING - 2, ENDING + 5), ledger=began(ENDED, ENDING - 2, ("cancelled", ENDING + 3))),
        Case(outcome="cancelled", kind="stall", cancelled=5.5, ledger=began(RAN, 5.1, ("cancelled", 5.6))),
        Case(outcome="cancelled", kind="stall", cancelled=DEATH - 1, ledger=began(KILLED, DEATH - 2)),
        Case(
            outcome="cancelled",
            kind="stall",
            cancelled=AWAY + 1,
            span=(AWAY, AWAY + 1),
            ledger=began(RAN, AWAY, ("ended", AWAY + 30)),
        ),
        asking((ASKED, ANSWERED)),
        asking(
            (("asked", KILLED, DEATH - 1),),
            responses=(error(LOST),),
            span=(DEATH - 2, DEATH + 9),
            ledger=began(KILLED, DEATH - 2),
        ),
        lambda seen: _noted(seen, "0-5"),
        lambda seen: _noted(seen, at=AWAY),
        lambda seen: _stands(seen, carried("", "0-4 ", "0-5"), carried("0-4", "0-4 ", "0-5", "0-6")),
        lambda seen: _told(seen, (1.0, "on"), (49.0, "off"), (51.0, "on"), (51.1, "told"), (52.0, "off")),
    ],
    "followed 0-": [
        lambda seen: _stands(seen, carried("0-4", "0-4 ", "0-5", "0-5")),
        lambda seen: _stands(seen, carried("0-4", "0-4 ", "0-6")),
        lambda seen: _stands(seen, carried("0-4", "0-4 ", "0-5", "0-6", "0-5")),
        lambda seen: _stands(seen, carried("0-4", "0-5 ", "0-6")),
    ],
    "the event 7-2 followed 7-0": [Case(result(), ways=(post("7-0 ", "7-2"),))],
    "the event 7-3 followed 7-1": [Case(result(), ways=(post("7-1"), carried("7-1", "7-3")))],
    "the streams 7 and 8 came": [Case(result(), ways=(post("7-0 ", "8-1"),))],
    "the stream 8 came instead of that of 7-1": [Case(result(), ways=(post("7-1"), carried("7-1", "8-1 ")))],
    "came again with other data": [lambda seen: _session(seen, clashes=["0-5"])],
    "got 404": [lambda seen: _session(seen, odd=[(5.0, "GET 0-5 got 404")])],
    "it did not serve a call at its end": [
        lambda seen: _session(seen, alive=False),
        lambda seen: _session(seen, alive=None),
    ],
    "came 2 times": [lambda seen: _noted(seen, "0-5", "0-6")],
    "came 0 times": [_noted],
    "it has 2 responses": [Case(result(), result())],
    "after its response came": [Case(result(), late=["notifications/progress"])],
    "its progress was": [
        Case(result(), kind="steps", progress=[1, 2, 4]),
        Case(result(), kind="steps", progress=[1, 1, 2, 3, 4]),
        Case(result(), kind="steps", progress=[1, 2, 3]),
    ],
    "it got the response to 8": [Case({**result(), "id": 8})],
    "it got the result of another call": [Case(result("streams-1-7"))],
    "it got the answer to another question": [
        asking((ASKED, ANSWERED), responses=(result(token="cd"),)),
    ],
    "no process has ended it": [Case(result(), ledger=began())],
    "it failed": [Case(error("odd")), Case(error(f"no: {STORE_FAILED}")), Case(result(isError=True))],
    "a process has begun it": [Case(outcome="refused")],
    "its stream has never ended": [Case(outcome="unended"), Case(outcome="unended", ledger=began(KILLED))],
    "its stream could not be resumed": [Case(outcome="gone")],
    "its connection was lost, and no process was killed": [Case(outcome="lost", ways=(post(),))],
    "it was lost, and its process was not killed": [Case(error(LOST), ledger=began())],
    "in a process that lived, and its response was lost": [
        Case(error(LOST)),
        killed(DEATH + 5, ("ended", DEATH - 2)),
    ],
    "and its client was told after": [killed(DEATH + LATE + 0.1)],
    "its cancellation was accepted, and its handler goes on": [
        Case(outcome="cancelled", kind="stall", cancelled=5.5, ledger=began()),
        Case(outcome="cancelled", kind="stall", cancelled=5.5, ledger=began(RAN, 5.1, ("ended", 5.6 + SOON))),
    ],
    "for which it has not asked": [asking((ANSWERED,), responses=(result(token="ab"),))],
    "reached another process": [asking((ASKED, ("answered", OTHER, 5.3)))],
    "reached it 2 times": [asking((ASKED, ANSWERED, ANSWERED))],
    "its handler has not got it": [
        asking((ASKED,), responses=(result(),)),
        asking((ASKED, ("answered", RAN, 5.3 + SOON)), span=(5.0, 11.0)),
    ],
    "has not heard of the last change": [
        lambda seen: _told(seen, (1.0, "on")),
        lambda seen: _told(seen, (1.0, "on"), (49.0, "off"), (51.0, "on")),
    ],
    "heard of the change at 50.00 after": [lambda seen: _told(seen, (1.0, "on"), (50.1 + HEARD, "told"))],
}


@pytest.mark.parametrize(("promise", "does"), [(promise, does) for promise, rows in ROWS.items() for does in rows])
async def test_what_streams_carried_is_compared_with_the_ledger_and_the_events(
    promise: str, does: Callable[[Seen], object], tmp_path: Path
) -> None:
    seen = seen_with(tmp_path)
    does(seen)
    broken = [*Judge(seen).broken()]
    assert len(broken) == bool(promise), broken
    assert all(promise in line for line in broken)
