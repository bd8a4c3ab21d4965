"""The judge of `tests.chaos` finds each broken promise: a run that can't fail would prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.chaos.events import Event
from tests.chaos.judge import CANCELLED, Judge
from tests.chaos.ledger import Entry
from tests.chaos.load import Attempt, Listener, Load
from tests.chaos.run import HEARD, Plan, Seen
from tests.chaos.streams import StreamLoad
from tests.chaos.tools import GRACE

RAN, OTHER, KILLED, STOPPED, SUPERVISOR, RENEWED, ENDED = 1, 2, 3, 4, 5, 6, 7
RENEWAL, DEATH, AWAY, DOWN, SILENT = 12.0, 20.0, 40.0, 60.0, 80.0
"""When there was a rolling restart, a child was killed, the file locked (for 5 s), the supervisor killed (for 3 s), and
a child stopped (for 6 s)."""

LAPSE = AWAY + 9.0
"""When a process has lost its lease, as the file was locked."""

BUSY = "store: StoreBusy: the file is locked"


def attempt(
    outcome: str,
    *,
    kind: str = "look",
    route: str = "direct-kept",
    began: float = 5.0,
    ended: float = 6.0,
    note: str = "",
) -> Attempt:
    return Attempt("a/0", kind, route, began, ended, outcome, note)


def crossing(outcome: str = "lost", **changes: Any) -> Attempt:
    given = {"route": "nginx-kept", "began": RENEWAL, "ended": RENEWAL + 0.1, "note": "got status 502", **changes}
    return attempt(outcome, **given)


CROSSED = {"route": "session-direct", "note": "503: the server is ending"}
UNREAD = {"route": "session-direct", "note": "Disconnected: …: Server disconnected without sending a response."}
OUTLASTED = crossing(**UNREAD, ended=RENEWAL + GRACE + 0.1)


def held(pid: int, told: float, *, grace: float = GRACE, kind: str = "put") -> tuple[Attempt, list[Entry]]:
    """Return a call that was cancelled some time after its process had been told to end."""
    began, ended = told - 0.5, told + grace
    row = attempt("lost", kind=kind, began=began, ended=ended)
    return row, [Entry("began", pid, began), Entry("cancelled", pid, ended)]


def entries(*whats: str, pid: int = RAN, at: float = 5.5) -> list[Entry]:
    return [Entry(what, pid, at) for what in whats]


DONE = entries("began", "ended")
BEGUN = entries("began")
BY_KILLED = entries("began", pid=KILLED)

# The promise that is broken, and what breaks it; under "", what keeps all of them.
ROWS: dict[str, list[tuple[Attempt, list[Entry]]]] = {
    "": [
        (attempt("succeeded"), DONE),
        (attempt("succeeded", kind="work"), [*DONE, *DONE]),
        (attempt("cancelled"), []),
        (attempt("cancelled"), entries("began", "cancelled", at=6.5)),
        (attempt("cancelled"), BY_KILLED),
        (attempt("lost", began=DEATH - 3, ended=DEATH + 0.1), BY_KILLED),
        (attempt("lost", began=DEATH - 3, ended=DEATH + 0.1), []),
        (crossing(), []),
        (crossing(kind="ask"), DONE),
        (crossing("refused", **CROSSED), []),
        (crossing(**CROSSED), [Entry("began", RENEWED, RENEWAL + 1), Entry("cancelled", RENEWED, RENEWAL + 2)]),
        (crossing(**CROSSED, began=LAPSE - 1, ended=LAPSE + 0.1), []),
        (crossing(**UNREAD), []),
        held(ENDED, SILENT + 1),
        (attempt("cancelled"), [Entry("began", RAN, 50.0), Entry("cancelled", RAN, 50.1)]),
        (attempt("refused", began=DEATH - 3, ended=DEATH + 0.1), []),
        (attempt("refused", began=DOWN + 1, ended=DOWN + 1.1), []),
        (attempt("refused", kind="ask", began=DOWN - 1, ended=DOWN + 1.1), DONE),
        (attempt("store", kind="put", began=AWAY, ended=AWAY + 2.1, note=BUSY), DONE),
        (attempt("lost", route="session-direct", began=AWAY, ended=DOWN, note="it took too long"), BEGUN),
        (attempt("store", kind="put", began=AWAY, ended=AWAY + 0.1, note="the disk is full"), DONE),
    ],
    "it is wrong": [(attempt("wrong"), DONE)],
    "it is failed": [(attempt("failed"), DONE)],
    "it succeeded, and no process has begun it": [(attempt("succeeded"), [])],
    "its POST was handled 2 times": [
        (attempt("succeeded"), [*BEGUN, *entries("began", "ended", pid=OTHER)]),
        (attempt("succeeded"), [*DONE, *DONE]),
    ],
    "the caller has given it up, and its handler goes on": [
        (attempt("cancelled"), BEGUN),
        (attempt("cancelled"), [*BEGUN, *entries("ended", at=6.1 + CANCELLED)]),
    ],
    "its connection was lost, and no process was killed": [
        (attempt("lost"), []),
        (attempt("lost"), BEGUN),
        (crossing(), BEGUN),
        (crossing(note="reset"), []),
        (crossing(began=LAPSE - 0.5, ended=LAPSE + 0.1), []),
        (crossing(route="direct-kept"), []),
        (crossing(began=8.0, ended=9.0), []),
        (crossing(**CROSSED), []),
        (crossing(**UNREAD), BEGUN),
        (crossing(**UNREAD, began=8.0, ended=9.0), []),
        (crossing(**{**UNREAD, "route": "direct-kept"}), []),
        (crossing(**CROSSED), [Entry("began", RENEWED, RENEWAL), Entry("cancelled", RENEWED, RENEWAL + 0.5)]),
        (crossing(**CROSSED), [Entry("began", RAN, RENEWAL + 1), Entry("cancelled", RAN, RENEWAL + 1.5)]),
        (attempt("lost", route="session-direct", began=AWAY, ended=AWAY + 2.1, note="no response"), DONE),
        held(ENDED, SILENT + 1, grace=GRACE - 0.1),
        held(ENDED, SILENT + 1, kind="look"),
        held(RAN, SILENT + 1),
        held(RENEWED, RENEWAL + 0.9),
    ],
    "the process that ran it was not killed": [(attempt("lost", began=DEATH - 3, ended=DEATH + 0.1), BEGUN)],
    "it was refused, and no process was killed": [
        (attempt("refused"), []),
        (attempt("refused", **CROSSED), []),
        (crossing("refused", **{**CROSSED, "route": "direct-kept"}), []),
    ],
    "the caller was told that it was not begun": [(attempt("refused", began=DOWN, ended=DOWN + 1), BEGUN)],
    "it needs no store": [(attempt("store", began=AWAY, ended=AWAY + 3, note=BUSY), DONE)],
    "the store was there": [
        (attempt("store", kind="put", note=BUSY), DONE),
        (attempt("store", kind="put", began=AWAY, ended=AWAY + 1, note=BUSY), DONE),
    ],
}


def seen_with(folder: Path) -> Seen:
    """Return a run in which all promises are kept."""
    plan = Plan(stores="sqlite", minutes=1, seed=1, out=folder, rate=1, listeners=1, pause=1)
    streams = StreamLoad([], 1, "")
    for session in streams.sessions:
        session.alive = True
    seen = Seen(plan, Load([], 1, ""), streams, begun=0.0, ended=100.0, deaths={KILLED: DEATH, SUPERVISOR: DOWN})
    seen.events += [
        Event("SIGHUP", RENEWAL, RENEWAL + 3, 0, RENEWAL + 3),
        Event("SIGKILL of a child", DEATH, DEATH + 1, KILLED, DEATH + 1),
        Event("locked file", AWAY, AWAY + 5, 0, AWAY + 5),
        Event("SIGKILL of the supervisor", DOWN, DOWN + 3, SUPERVISOR, DOWN + 3),
        Event("SIGSTOP until it is killed", SILENT, SILENT + 6, STOPPED, SILENT + 6),
    ]
    seen.said += [
        (RENEWAL + 0.9, f"chaos: process 1 (pid {OTHER}) takes the place of process 1 (pid {RENEWED})"),
        (SILENT + 1, f"chaos: process 2 (pid {OTHER}) takes the place of process 2 (pid {ENDED})"),
        (LAPSE, "this process was silent for so long that another one …"),
    ]
    listener = Listener(7)
    listener.heard += [(1.0, "on"), (30.0, "told"), (DOWN, "off"), (DOWN + 4, "on"), (95.1, "told")]
    seen.listeners.append(listener)
    seen.ledger["7"] = [Entry("touched", RAN, at) for at in (29.9, DOWN - 0.1, 95.0)]
    return seen


def broken_by(seen: Seen) -> list[str]:
    return list(Judge(seen).broken())


@pytest.mark.parametrize(("promise", "row"), [(promise, row) for promise, rows in ROWS.items() for row in rows])
def test_what_a_caller_was_told_is_compared_with_the_ledger_and_the_events(
    promise: str, row: tuple[Attempt, list[Entry]], tmp_path: Path
) -> None:
    seen = seen_with(tmp_path)
    seen.load.attempts.append(row[0])
    if row[1]:
        seen.ledger["a/0#1"] = row[1]
    broken = broken_by(seen)
    assert len(broken) == bool(promise), broken
    assert all(promise in line for line in broken)


def _put(seen: Seen, outcome: str, *, note: str = "", made: int, killed: bool = False) -> None:
    seen.load.attempts.append(attempt(outcome, kind="put", began=AWAY, ended=AWAY + 3, note=note))
    seen.ledger["a/0#1"] = DONE
    seen.states["direct-kept"] = ["a/0"] * made
    if killed:
        seen.deaths[RAN] = AWAY + 1


def _heard(seen: Seen, *heard: tuple[float, str]) -> None:
    seen.listeners[0].heard[:] = heard


def _said(seen: Seen, *lines: str) -> None:
    seen.said += [(5.0, line) for line in lines]


READ_ONLY, CUT, FULL = 48.0, 51.0, 54.0
"""When an engine was read-only, its connections cut, and its memory full, for a second each."""


def _on_engine(seen: Seen, note: str, *, at: float, made: int = 0) -> None:
    seen.plan = attrs.evolve(seen.plan, stores="valkey")
    kinds = {"engine read-only": READ_ONLY, "connections cut": CUT, "memory full": FULL}
    seen.events += [Event(kind, begin, begin + 1, 0, begin + 1) for kind, begin in kinds.items()]
    seen.load.attempts.append(attempt("store", kind="put", began=at, ended=at + 0.1, note=note))
    seen.ledger["a/0#1"] = DONE
    seen.states["direct-kept"] = ["a/0"] * made


def _step(seen: Seen, *entries: tuple[str, float]) -> None:
    seen.ledger["a/0:1"] = [Entry(what, RAN, at) for what, at in entries]


def _late(seen: Seen, told: float) -> None:
    """A change while the store was away is heard of too long after it was back."""
    seen.ledger["7"].insert(1, Entry("touched", RAN, AWAY + 0.9))
    seen.listeners[0].heard.insert(2, (told, "told"))


OTHERS: dict[str, list[Callable[[Seen], object]]] = {
    "": [
        lambda seen: seen.load.attempts.extend([crossing(), OUTLASTED]),  # which has an excuse of its own
        lambda seen: _put(seen, "succeeded", made=1),
        lambda seen: _put(seen, "lost", made=1, killed=True),
        lambda seen: _put(seen, "lost", made=0, killed=True),
        lambda seen: _said(seen, f"chaos: process 1 (pid {STOPPED}) was silent for 3 s and was killed"),
        lambda seen: _said(seen, "Traceback (most recent call last):", "  x", "trio_mcp.stores.contract.StoreBusy: y"),
        # The driver may not have noticed which process has stopped itself.
        lambda seen: (
            seen.ledger.update(file=[Entry("held", OTHER, 5.0)]),
            _said(seen, f"chaos: process 1 (pid {OTHER}) was silent for 3 s while others could not write"),
        ),
        # A change of a process that died just then may be lost, and one is late while the file is locked.
        lambda seen: seen.ledger["7"].insert(0, Entry("touched", KILLED, DEATH - 0.1)),
        lambda seen: seen.ledger["7"].insert(0, Entry("touched", RAN, AWAY + 1)),
        lambda seen: _step(seen, ("ran", 5.0), ("ran", 6.0), ("kept", 7.0)),  # the first run was lost
        lambda seen: _on_engine(seen, "store: StoreError: it is a replica, which can't be written", at=READ_ONLY),
        lambda seen: _on_engine(seen, "store: StoreError: it has closed the connection", at=CUT),
        lambda seen: _on_engine(seen, "store: StateConflict: others have changed it at each of 8 tries", at=CUT),
    ],
    "a step of a task ran again after it was kept": [
        lambda seen: _step(seen, ("ran", 5.0), ("kept", 6.0), ("ran", 7.0), ("kept", 8.0))
    ],
    "nothing that has happened explains this error": [
        lambda seen: _on_engine(seen, "store: StoreError: it is a replica, which can't be written", at=CUT),
        lambda seen: _on_engine(seen, "store: StoreError: it could not be used (it says: odd)", at=READ_ONLY),
    ],
    "the engine has refused the update, and it was made": [
        lambda seen: _on_engine(seen, "store: StoreError: it has no memory left", at=FULL, made=1)
    ],
    "after 19.1 s": [lambda seen: _late(seen, AWAY + 20.0)],
    "2 requests have crossed": [
        lambda seen: seen.load.attempts.extend([crossing(), crossing()]),
        lambda seen: seen.load.attempts.extend([crossing(), crossing(**UNREAD), OUTLASTED]),
        lambda seen: seen.load.attempts.extend([crossing(), crossing("refused", **CROSSED, ended=OUTLASTED.ended)]),
    ],
    "it has never ended": [lambda seen: seen.load.under_way.add(attempt(""))],
    "it was lost at each of its attempts": [lambda seen: seen.load.calls.update({"a": "lost"})],
    "the update of a state is lost": [lambda seen: _put(seen, "succeeded", made=0)],
    "the store was busy, and the update was made": [lambda seen: _put(seen, "store", note=BUSY, made=1)],
    "the update of a state was made 2 times": [lambda seen: _put(seen, "succeeded", made=2)],
    "no caller has made this update": [lambda seen: seen.states.update({"direct-kept": ["b/0"]})],
    "has not heard of the last change": [
        lambda seen: _heard(seen, (1.0, "on"), (30.0, "told"), (DOWN, "off"), (DOWN + 4, "on")),
        lambda seen: _heard(seen, (1.0, "on"), (30.0, "told"), (DOWN, "off")),
        lambda seen: _heard(seen),
    ],
    "heard of the change at 29.90 after": [
        lambda seen: _heard(
            seen, (1.0, "on"), (29.9 + HEARD + 0.1, "told"), (DOWN, "off"), (94.0, "on"), (95.1, "told")
        )
    ],
    "it was not stopped": [
        lambda seen: _said(seen, f"chaos: process 1 (pid {RAN}) was silent for 6 s and was killed"),
        lambda seen: _said(seen, f"chaos: process 1 (pid {RAN}) did not end in time and was killed"),
        lambda seen: _said(seen, "this process was silent for so long that another one has ended the requests"),
    ],
    "the store was there": [lambda seen: _said(seen, "chaos: the new process 1 was never ready, so …")],
    "ValueError: odd": [lambda seen: _said(seen, "Traceback (most recent call last):", "  x", "ValueError: odd")],
    "there was still the process 9": [lambda seen: seen.left.append("the process 9")],
}


@pytest.mark.parametrize(("promise", "does"), [(promise, does) for promise, all_ in OTHERS.items() for does in all_])
def test_states_listeners_processes_and_what_is_left_are_looked_at(
    promise: str, does: Callable[[Seen], object], tmp_path: Path
) -> None:
    seen = seen_with(tmp_path)
    does(seen)
    broken = broken_by(seen)
    assert len(broken) == bool(promise), broken
    assert all(promise in line for line in broken)
