"""What a run has promised and whether it has kept it, and its figures."""

from __future__ import annotations

import bisect
import itertools
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.ledger import Entry
from tests.chaos.load import KINDS, PATIENCE, Attempt, Listener
from tests.chaos.run import HEARD, Seen
from tests.chaos.shared_engine import REFUSED, SILENT, SharedEngine
from tests.chaos.shared_file import SharedFile
from tests.chaos.stream_rules import Causes, StreamRules
from tests.chaos.tools import GRACE, MEMBER_LEASE, MOST_EXTRA, TIMEOUT as STORE_TIMEOUT

MARGIN = 1.0
"""Seconds until a death reaches a client through nginx, on a machine that is busy. Chosen."""

CANCELLED = GRACE + 3.0
"""Seconds within which the handler of a call that was given up has ended. Chosen."""

LAPSED = "this process was silent"
"""What a process says that has lost its lease."""

PRINTED = 0.3
"""Seconds within which a traceback has been printed. Chosen."""

AWAY = {**SharedFile.away, **SharedEngine.away}
"""The events in which the store can't be used, each with a pattern for what its errors say."""

ENDINGS = ("SIGHUP", "SIGTERM of a child", "SIGKILL of the supervisor")
"""The events in which processes end gracefully."""

STORE_ERROR = re.compile(
    r"^trio_mcp\.(stores\.\S*Store\w*:|errors\.TransportError: .* the event store failed)", re.MULTILINE
)
"""The last line of a traceback that says that the store could not be used."""

MOST_CROSSED = 0.0002
"""The share of all attempts that may cross the end of a connection, which no server can prevent.

nginx may write a request into a connection while its end is on the way. It answers with 502; no process has the
request. A connection that carries a stream of a session after its process was told to end may get one more request: it
is refused, or has what is left of the time that requests may take, or meets the end of the connection.
"""

REPLACED = re.compile(r"takes the place of process \d+ \(pid (\d+)\)")
"""What is said of a process that is told to end as another one takes its place."""

PILED_UP = "others have changed it at each of"
"""What an error says if too many calls change a state: those that a store has held up come all at once."""


class Judge:
    """Compares what the callers were told with the ledger, with what happened, and with what is left."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._by_attempt: dict[str, list[tuple[str, list[Entry]]]] = defaultdict(list)
        for name, entries in seen.ledger.items():
            if "#" in name:
                self._by_attempt[name.partition("#")[0]].append((name, entries))
        self._touched = sorted(
            (entry.at, int(name), entry.pid)
            for name, entries in seen.ledger.items()
            for entry in entries
            if entry.what == "touched"
        )
        self._stopped = [event for event in seen.events if event.kind.startswith("SIGSTOP")]
        self._away = [event for event in seen.events if event.kind in AWAY] + self._stopped
        self._down = [event for event in seen.events if event.kind == "SIGKILL of the supervisor"]
        held = {entry.pid for entry in seen.ledger.get("file", ()) if entry.what == "held"}
        self._wounded = held | {event.pid for event in self._stopped}
        self._told = {event.pid: event.began for event in seen.events if event.kind == "SIGTERM of a child"}
        self._told |= {int(found[1]): at for at, line in seen.said if (found := REPLACED.search(line))}
        self._lapses = [at for at, line in seen.said if LAPSED in line]
        endings = [event for event in seen.events if event.kind in ENDINGS]
        self._streams = StreamRules(seen, Causes(self._away, endings, seen.deaths, self._wounded))

    def broken(self) -> Iterator[str]:
        """Yield the broken promises."""
        for attempt in self._seen.load.attempts:
            for problem in self._of_attempt(attempt):
                yield f"{self._shown(attempt)}: {problem}"
        for attempt in self._seen.load.under_way:
            yield f"{self._shown(attempt)}: it has never ended"
        for name, outcome in self._seen.load.calls.items():
            if outcome in ("refused", "lost"):
                yield f"{name}: it was {outcome} at each of its attempts for {PATIENCE:g} s"
        if self._count_crossed() > max(1, MOST_CROSSED * len(self._seen.load.attempts)):
            yield f"{self._count_crossed()} requests have crossed the end of their connection"
        yield from self._of_posts()
        yield from self._of_steps()
        yield from self._of_errors()
        yield from self._of_states()
        for listener in self._seen.listeners:
            yield from self._of_listener(listener)
        yield from self._streams.broken()
        yield from self._of_processes()
        yield from (f"there was still {each}" for each in self._seen.left)

    def _count_crossed(self) -> int:
        bad = (each for each in self._seen.load.attempts if each.outcome in ("lost", "refused"))
        return sum(self._crossed(each) and not self._has_another_excuse(each) for each in bad)

    def _has_another_excuse(self, attempt: Attempt) -> bool:
        outlasted = attempt.outcome == "lost" and self._outlasted(attempt)
        return outlasted or bool(self._killed(attempt.began, attempt.ended))

    def happened(self) -> Iterator[str]:
        """Yield the events."""
        for event in self._seen.events:
            span = f"{self._time(event.began)} to {self._time(event.until)}, over at {self._time(event.ended)}"
            yield f"{event.kind} ({event.pid}): {span}"

    def not_succeeded(self) -> Iterator[str]:
        """Yield the attempts that have not succeeded."""
        good = ("succeeded", "cancelled")
        return (self._shown(each) for each in self._seen.load.attempts if each.outcome not in good)

    def _shown(self, attempt: Attempt) -> str:
        span = f"{self._time(attempt.began)} to {self._time(attempt.ended)} s"
        return f"{attempt.name} ({attempt.kind}, {span}, {attempt.outcome}: {attempt.note})"

    def _time(self, at: float) -> str:
        return f"{at - self._seen.begun:.2f}"

    # --- calls -------------------------------------------------------------------------------------------------------

    def _of_attempt(self, attempt: Attempt) -> Iterator[str]:
        begun = [entries[0] for entries in self._posts(attempt)]
        match attempt.outcome:
            case "succeeded":
                if not begun:
                    yield "it succeeded, and no process has begun it"
            case "cancelled":
                yield from self._of_cancelled(attempt)
            case "store":
                if not KINDS[attempt.kind][2] and not _in_session(attempt):
                    yield "it needs no store"
                elif not self._was_away(attempt):
                    yield "the store was there"
            case "refused":
                if begun and attempt.kind != "work":  # whose polls are calls of their own
                    yield "the caller was told that it was not begun, and a process has begun it"
                elif not (
                    self._killed(attempt.began, attempt.ended) or self._needed_store(attempt) or self._crossed(attempt)
                ):
                    yield "it was refused, and no process was killed"
            case "lost":
                yield from self._of_lost(attempt, {entry.pid for entry in begun})
            case "failed" | "wrong" if self._could_not_store(attempt):
                pass
            case other:
                yield f"it is {other}"

    def _of_lost(self, attempt: Attempt, pids: set[int]) -> Iterator[str]:
        if self._outlasted(attempt) or self._crossed(attempt) or self._was_held(attempt):
            return
        killed = self._killed(attempt.began, attempt.ended)
        if not killed:
            yield "its connection was lost, and no process was killed"
        elif pids and attempt.kind != "work" and not (pids & killed or self._needed_store(attempt)):
            yield "the process that ran it was not killed"

    def _needed_store(self, attempt: Attempt) -> bool:
        """Whether a session's call met a store that could not be used."""
        return _in_session(attempt) and self._was_away(attempt)

    def _could_not_store(self, attempt: Attempt) -> bool:
        """Whether the question of a session's call, or its progress, was lost with the store."""
        lost = (("ask", "failed"), ("steps", "wrong"))
        return (attempt.kind, attempt.outcome) in lost and self._needed_store(attempt)

    def _outlasted(self, attempt: Attempt) -> bool:
        """Whether a session's call met the end of its process, and could not be over before it.

        It took longer than a process that ends gracefully lets requests take, or its response could not be stored.
        """
        took_long = attempt.ended - attempt.began > GRACE
        held_up = _in_session(attempt) and (took_long or self._was_away(attempt))
        return held_up and (self._met_an_end(attempt) or self._met_a_lapse(attempt))

    def _met_an_end(self, attempt: Attempt) -> bool:
        return any(
            event.began <= attempt.ended and attempt.began <= event.ended + MARGIN
            for event in self._seen.events
            if event.kind in ENDINGS
        )

    def _met_a_lapse(self, attempt: Attempt) -> bool:
        """Whether a process lost its lease, and with it the sessions that it served; its connections stay."""
        return any(at <= attempt.ended and attempt.began <= at + MARGIN for at in self._lapses)

    def _was_held(self, attempt: Attempt) -> bool:
        """Whether a store that was away held up a call until its process, which was told to end, waited no longer."""
        posts = self._posts(attempt)
        return (
            KINDS[attempt.kind][2]
            and self._was_away(attempt)
            and bool(posts)
            and all(
                entries[-1].what == "cancelled"
                and entries[-1].at >= self._told_to_end(entries[0].pid, entries[-1].at) + GRACE
                for entries in posts
            )
        )

    def _posts(self, attempt: Attempt) -> list[list[Entry]]:
        """Return what became of each request of an attempt; of one that asks, not of the round that has asked."""
        posts = [entries for _, entries in self._by_attempt[attempt.name]]
        if attempt.kind == "ask" and attempt.outcome != "succeeded":
            return [entries for entries in posts if entries[-1].what != "ended"]
        return posts

    def _of_cancelled(self, attempt: Attempt) -> Iterator[str]:
        for _, entries in self._by_attempt[attempt.name]:
            began = entries[0]
            ends = [entry.at for entry in entries if entry.what != "began"]
            if began.pid in self._seen.deaths or began.pid in self._wounded:
                continue
            # One that has waited to be accepted may begin later, and is cancelled as soon as it has been read.
            limit = max(attempt.ended, began.at) + CANCELLED
            if min(ends, default=math.inf) > limit and self._seen.ended > limit:
                yield "the caller has given it up, and its handler goes on"

    def _killed(self, begin: float, end: float) -> set[int]:
        """Return the processes that were killed while an attempt was under way; a supervisor takes its socket along."""
        begin, end = begin - MARGIN, end + MARGIN
        found = {pid for pid, at in self._seen.deaths.items() if begin <= at <= end}
        return found | {event.pid for event in self._down if event.began <= end and begin <= event.ended}

    def _crossed(self, attempt: Attempt) -> bool:
        """Whether the request of an attempt and the end of its connection have crossed on their ways."""
        posts = self._posts(attempt)
        if attempt.route == "nginx-kept":
            crossed = "status 502" in attempt.note and not posts
        elif attempt.outcome == "refused":
            crossed = "the server is ending" in attempt.note and not posts
        elif not posts:
            crossed = "Server disconnected" in attempt.note
        else:
            crossed = all(
                entries[-1].what == "cancelled" and self._told_to_end(entries[0].pid, entries[0].at) <= entries[0].at
                for entries in posts
            )
        return crossed and (attempt.route == "nginx-kept" or _in_session(attempt)) and self._met_an_end(attempt)

    def _told_to_end(self, pid: int, at: float) -> float:
        """Return when a process was told to end, by itself or with the supervisor that was down at some time."""
        downs = (event.began for event in self._down if event.began <= at <= event.ended)
        return min((self._told.get(pid, math.inf), *downs))

    def _was_away(self, attempt: Attempt) -> bool:
        """Whether the store could not be used, for longer than a call waits where it was only locked."""
        if self._seen.plan.stores == "valkey":  # which no call waits for
            return self._is_away(attempt.began - MARGIN, attempt.ended + MARGIN)
        waited = attempt.ended - attempt.began >= STORE_TIMEOUT - 0.1
        return self._is_away(attempt.began - STORE_TIMEOUT - MARGIN, attempt.ended + MARGIN) and (
            waited or not re.search("locked|busy", attempt.note)
        )

    def _is_away(self, begin: float, end: float) -> bool:
        return any(event.began <= end and begin <= event.until for event in self._away)

    def _of_posts(self) -> Iterator[str]:
        again = {each.name for each in self._seen.load.attempts if each.kind == "work"}
        for attempt, parts in self._by_attempt.items():
            for name, entries in parts if attempt not in again else ():  # a task runs again if it was lost
                begun = [entry.pid for entry in entries if entry.what == "began"]
                if len(begun) > 1:
                    yield f"{name}: its POST was handled {len(begun)} times, by {begun}"

    def _of_states(self) -> Iterator[str]:
        puts = {each.name: each for each in self._seen.load.attempts if each.kind == "put"}
        found = Counter(update for updates in self._seen.states.values() for update in updates)
        for name, attempt in puts.items():
            if attempt.outcome == "succeeded" and not found[name]:
                yield f"{name}: the update of a state is lost"
            if "StoreBusy" in attempt.note and found[name]:
                yield f"{name}: the store was busy, and the update was made"
            if re.search(REFUSED, attempt.note) and found[name]:
                yield f"{name}: the engine has refused the update, and it was made"
        for name, times in found.items():
            if times > 1:
                yield f"{name}: the update of a state was made {times} times"
            if name not in puts:
                yield f"{name}: no caller has made this update of a state"

    # --- listeners ---------------------------------------------------------------------------------------------------

    def _of_listener(self, listener: Listener) -> Iterator[str]:
        who = f"a listener to {listener.number}"
        changes = [(at, pid) for at, number, pid in self._touched if number == listener.number]
        if not changes:
            return
        last = changes[-1][0]
        knows = ("told",) if listener.later else ("told", "on")
        if not any(at >= last and what in knows for at, what in listener.heard):
            heard = ", ".join(f"{what} at {self._time(at)}" for at, what in listener.heard[-5:])
            yield f"{who} has not heard of the last change at {self._time(last)}: {heard}"
        times = [at for at, _ in listener.heard]
        for at, pid in changes:
            place = bisect.bisect_left(times, at)
            if not place or listener.heard[place - 1][1] == "off" or self._excused(at, pid):
                continue  # it did not listen, or need not have heard of it
            if place < len(times) and listener.heard[place][1] == "told" and times[place] > self._heard_by(at):
                yield f"{who} heard of the change at {self._time(at)} after {times[place] - at:.1f} s"

    def _excused(self, at: float, pid: int) -> bool:
        """Whether a change need not be heard of, as its process died just then."""
        return at - MARGIN <= self._seen.deaths.get(pid, 0.0) <= at + HEARD

    def _heard_by(self, at: float) -> float:
        """Return by when a change is heard of: the store may have been away meanwhile, again and again."""
        limit = at + HEARD
        for event in sorted(self._away, key=lambda event: event.began):
            if event.began <= limit + MARGIN and at - HEARD <= event.until:
                limit = max(limit, event.until + MARGIN + HEARD)
        return limit

    # --- processes ---------------------------------------------------------------------------------------------------

    def _of_processes(self) -> Iterator[str]:
        for at, line in self._seen.said:
            ours = any(f"(pid {pid})" in line for pid in self._wounded)
            # The last words of sessions wait for a locked file, each for as long as any operation does.
            if "did not end in time" in line and self._is_away(at - GRACE - MOST_EXTRA, at):
                continue
            # A process that can't renew its lease, as the store is away again and again, loses it.
            if LAPSED in line and self._is_away(at - MEMBER_LEASE, at):
                continue
            if ("did not end in time" in line or "was silent" in line) and not ours:
                yield f"at {self._time(at)}: it was not stopped: {line}"
            elif "was never ready" in line and not self._is_away(at - STORE_TIMEOUT - MARGIN, at):
                yield f"at {self._time(at)}: the store was there: {line}"
        for at, text in self._tracebacks():
            # A handler that fails because the store is away is logged with its traceback.
            if not STORE_ERROR.search(text):
                yield f"at {self._time(at)}: {text}"

    def _tracebacks(self) -> Iterator[tuple[float, str]]:
        """Yield each traceback that was printed; what others print in the same moment may be between its lines."""
        since, found = -math.inf, list[str]()
        for at, line in self._seen.said:
            if at > since + PRINTED and found:
                yield since, "\n".join(found)
                found = []
            if not found and "Traceback (" in line:
                since = at
            if found or since == at:
                found.append(line)
        if found:
            yield since, "\n".join(found)

    # --- figures -----------------------------------------------------------------------------------------------------

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield the figures of the run."""
        seen = self._seen
        attempts = seen.load.attempts
        outcomes = Counter(attempt.outcome for attempt in attempts)
        seconds = seen.ended - seen.begun
        yield (
            "calls; a second; not begun, as too many were under way",
            (f"{len(seen.load.calls):,}; {len(seen.load.calls) / seconds:.0f}; {seen.load.left_out}"),
        )
        yield "attempts", ", ".join(f"{name} {number:,}" for name, number in outcomes.most_common())
        yield "errors", ", ".join(f"{text} {number}" for text, number in self._reasons().most_common()) or "none"
        yield "of these, requests of nginx that crossed the end of their connection", f"{self._count_crossed()}"
        yield from self._streams.figures()
        kinds = Counter(event.kind for event in seen.events)
        rolling = [event for event in seen.events if event.kind == "SIGHUP"]
        during = sum(any(each.began <= at.ended and at.began <= each.ended for each in rolling) for at in attempts)
        yield "attempts during rolling restarts", f"{during:,}"
        yield "events", ", ".join(f"{name} {number}" for name, number in kinds.most_common())
        good = sorted(attempt.ended for attempt in attempts if attempt.outcome == "succeeded")
        gaps = [later - earlier for earlier, later in itertools.pairwise([seen.begun, *good])]
        yield "longest time without a served call", f"{max(gaps):.2f} s"
        for kind, slowest in self._recoveries():
            yield f"slowest recovery from {kind}", f"{slowest:.2f} s"
        late = sorted(self._latencies())
        if len(late) > 1:
            cuts = statistics.quantiles(late, n=100)
            yield (
                "listeners; changes; median, p99, longest time",
                (f"{len(seen.listeners)}; {len(self._touched)}; {cuts[49]:.3f} s, {cuts[98]:.2f} s, {late[-1]:.2f} s"),
            )
        took = sorted(
            each.ended - each.began for each in attempts if each.outcome == "succeeded" and each.kind == "look"
        )
        if len(took) > 1:
            cuts = statistics.quantiles(took, n=100)
            yield "a plain call: median, p99, longest", f"{cuts[49]:.3f} s, {cuts[98]:.2f} s, {took[-1]:.1f} s"
        yield "updates of states; keys", f"{sum(map(len, seen.states.values())):,}; {kinds['new key'] + 1}"
        yield "left at the end: processes, sockets, connections", f"{len(seen.left)}"

    def _reasons(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for attempt in self._seen.load.attempts:
            if attempt.outcome not in ("succeeded", "cancelled"):
                status = [word for word in ("502", "503", "504") if f"status {word}" in attempt.note]
                found[f"{attempt.outcome} ({', '.join(status) or attempt.note.partition(':')[0]})"] += 1
        return found

    def _recoveries(self) -> Iterator[tuple[str, float]]:
        """Yield how long after the begin of an event a call last failed as it may; the slowest kinds of events."""
        slowest: dict[str, float] = defaultdict(float)
        of_processes = [event for event in self._seen.events if event.kind.startswith("SIG")]
        for causes, outcomes in ((self._away, ("store",)), (of_processes, ("lost", "refused"))):
            bad = sorted(each.ended for each in self._seen.load.attempts if each.outcome in outcomes)
            events = sorted(causes, key=lambda event: event.began)
            for event, following in itertools.zip_longest(events, events[1:]):
                until = math.inf if following is None else following.began
                for at in bad[bisect.bisect_left(bad, event.began) : bisect.bisect_left(bad, until)]:
                    slowest[event.kind] = max(slowest[event.kind], at - event.began)
        return iter(sorted(slowest.items(), key=lambda item: -item[1])[:3])

    def _latencies(self) -> Iterator[float]:
        by_topic: dict[int, list[float]] = defaultdict(list)
        for at, number, _ in self._touched:
            by_topic[number].append(at)
        for listener in self._seen.listeners:
            for (at, what), (_, before) in zip(listener.heard[1:], listener.heard, strict=False):
                changes = by_topic[listener.number]
                place = bisect.bisect_left(changes, at)
                if what == "told" and before != "off" and place:
                    yield at - changes[place - 1]

    # --- what the store has said --------------------------------------------------------------------------------------

    def _of_errors(self) -> Iterator[str]:
        """Yield the errors of an engine that none of its events has; only those of `put` give the reason."""
        for attempt in self._seen.load.attempts if self._seen.plan.stores == "valkey" else ():
            begin, end = attempt.began - MARGIN, attempt.ended + MARGIN
            events = [event for event in self._away if event.began <= end and begin <= event.until]
            words = [PILED_UP, *(AWAY.get(event.kind, SILENT) for event in events)] if events else []
            if attempt.note.startswith("store: ") and words and not re.search("|".join(words), attempt.note):
                yield f"{self._shown(attempt)}: nothing that has happened explains this error"

    def _of_steps(self) -> Iterator[str]:
        """Yield the steps of tasks that have run again after the store had said that it keeps their results."""
        for name, entries in self._seen.ledger.items():
            kept = min((entry.at for entry in entries if entry.what == "kept"), default=math.inf)
            again = sum(entry.what == "ran" and entry.at > kept for entry in entries)
            if again:
                yield f"{name}: a step of a task ran again after it was kept, {again} times"


def _in_session(attempt: Attempt) -> bool:
    """Whether a call belongs to a session, which needs the store."""
    return attempt.route.startswith("session")
