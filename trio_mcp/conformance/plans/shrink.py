"""Finds the smallest plan that breaks a rule, by running smaller ones again and again on fresh connections."""

from __future__ import annotations

import contextlib
import math
import time as clock
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import attrs
import trio

from trio_mcp.conformance.judging import first_broken
from trio_mcp.conformance.outcomes import Failure
from trio_mcp.conformance.rules.model import Rule, Verdict
from trio_mcp.conformance.run import PlanRunner
from trio_mcp.conformance.steps import Ask, AwaitResponses, Cancel, Compare, Pause, Place, Plan, Step, Tell, Write
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.errors import TrioMcpError
from trio_mcp.schema.validator import SchemaValidator
from trio_mcp.testing.strategies.schemas import CannotGenerate, simplest

__all__ = ["ShownRun", "Shrinker", "without_repeats"]

MOST_RUNS: Final = 150
"""The maximum number of times that a target is run to find a simpler plan (arbitrary)."""

REPEATS: Final = 5
"""How many times the simplest plan is run again, to say how reliably it breaks the rule (arbitrary)."""

INSISTENT: Final = 3
"""How many times a plan is tried before it is taken not to break the rule, if the failure does not show on every run
(arbitrary)."""

SLOW: Final = 0.1
"""If opening a connection takes more than this many seconds, smaller plans are tried on one connection first
(arbitrary)."""

BEFORE: Final = (0, 1, 4, 16, 64)
"""How many earlier plans on the same connection are put in front of the plan that seemed to break the rule; the numbers
are tried in this order."""


@attrs.frozen
class ShownRun:
    """A run in which the rule was broken.

    Attributes:
        plan: The plan that was run.
        events: The recorded events that show how the rule was broken.
        verdict: The verdict that the rule is broken.
        probed: Whether the run ended with a probe: a request that shows whether the target is alive.
    """

    plan: Plan
    events: tuple[Event, ...]
    verdict: Verdict
    probed: bool = False


class Shrinker:
    """Finds the smallest plan that breaks a rule.

    Args:
        connect: Returns a new runner with an open connection, on which the handshake and the listing are done.
        rule: The rule that was broken.
        schemas: The input schemas of tools by name, so that valid arguments stay valid.
        slow: The calls that take a long time, each as its method and its name or URI; steps that make them are left out
            first.
        seconds: The time, in seconds, that the search may take; no run begins later.
        until: The time, on Trio's clock, at which a run that is under way is cut short.
        patience: When a run is cut short, a request that has waited at least this many seconds counts as unanswered.
        quiet: Seconds to wait for late messages after a plan.

    Attributes:
        undecided: Problems seen in these runs other than the broken rule, one sentence each.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[PlanRunner]],
        rule: Rule,
        schemas: Mapping[str, Any],
        *,
        slow: Container[tuple[str, str]] = (),
        seconds: float,
        until: float,
        patience: float,
        quiet: float,
    ) -> None:
        self._connect = connect
        self._rule = rule
        self._schemas = schemas
        self._slow = slow
        # Time and runs are counted over the life of the shrinker, since one failure may have several examples that
        # could be its cause.
        self._began = clock.perf_counter()
        self._seconds = seconds
        self._until = until
        self._patience = patience
        self.undecided: list[str] = []
        self._quiet = quiet
        self._runs = 0
        self._tries = 1
        self._opening = 0.0
        self._best: ShownRun | None = None
        self._running: PlanRunner | None = None
        self._connecting: float | None = None  # when opening a connection began; None if none is being opened
        self._shared: contextlib.AsyncExitStack | None = None
        self._bench: PlanRunner | None = None
        self._prologue: list[Event] = []

    async def shrink(self, first: ShownRun, before: Sequence[Plan], revision: str, example: int) -> Failure:
        """Return the failure, as small as it could be made.

        Args:
            first: The run in which the failure was first seen.
            before: The plans that ran on the same connection before that run.
            revision: The revision spoken.
            example: The number of the example that was run.
        """
        self._best = None
        # The time is limited from outside the runs, because with a target that no longer responds even a single run
        # lasts as long as all its waits together.
        with self._in_time():
            best = await self._confirmed(first, before)
            if best is not None:
                await self._smaller(best)
        if self._best is None:
            return _failure(first, revision, example, 0, self._runs)
        smaller = self._best
        seen = of = 0
        with self._in_time():
            # The plan is run at least once, even if no time is left: a failure that is seen again weighs more. A plan
            # that needs several tries to show the failure is run more often, so that the rate means something.
            while of < REPEATS * self._tries and (of == 0 or self._spent < 1):
                again = await self._run(smaller.plan, probe=smaller.probed)
                of += 1
                if again is not None:
                    seen, smaller = seen + 1, again
        # If the time was up before the plan was run again, the run that showed the failure counts.
        return _failure(smaller, revision, example, seen, of) if of else _failure(smaller, revision, example, 1, 1)

    async def _smaller(self, best: ShownRun) -> ShownRun:
        """Return the run of the smallest plan found that shows the failure on a fresh connection."""
        if self._opening > SLOW:
            # If the fault shows again and again on a single connection, the search begins on that connection, which is
            # much quicker.
            smaller: ShownRun | None = None
            async with contextlib.AsyncExitStack() as self._shared:
                if all([await self._shows(best.plan, probe=best.probed) for _ in range(2)]):
                    smaller = await self._simpler_steps(await self._fewer_steps(best))
            self._shared = self._bench = None
            # Fresh connections are tried next: on the shared one, state that the target keeps for a connection may have
            # hidden a smaller plan.
            if smaller is not None:
                best = await self._run(smaller.plan, probe=smaller.probed) or best
        return await self._simpler_steps(await self._fewer_steps(best))

    # --- runs ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Cut the block short when the time is up, and note if the target was not responding then."""
        self._running = self._connecting = None
        with trio.CancelScope(deadline=self._until) as scope:
            yield
        since = math.inf if self._connecting is None else self._connecting
        if scope.cancelled_caught and trio.current_time() - since >= self._patience:
            self.undecided.append("the target did not respond to the handshake when a failure was run again")
        if scope.cancelled_caught and self._running is not None:
            now = trio.current_time()
            self.undecided += [
                self._running.unanswered(sent)
                for talk in self._running.talks
                for sent in talk.requests
                if sent.owed and sent.work is None and now - sent.began >= self._patience
            ][:1]

    @property
    def _spent(self) -> float:
        """The share of the available time that has passed; 1 means all of the time."""
        return (clock.perf_counter() - self._began) / self._seconds

    @property
    def _may_run(self) -> bool:
        # A shared connection gets half of the runs and of the time, and fresh ones get the rest.
        part = 1.0 if self._shared is None else 0.5
        return self._runs < MOST_RUNS * part and self._spent < part

    async def _run(self, plan: Plan, *, probe: bool) -> ShownRun | None:
        """Run a plan on a fresh connection, or on the shared one; return what was seen if it broke the rule."""
        try:
            if self._shared is not None:
                if self._bench is None or not self._bench.talks[0].is_open:
                    # A plan may have ended the shared connection, so a new one is opened. The ended one is closed with
                    # the others, at the end of the search.
                    self._bench = await self._shared.enter_async_context(self._connect())
                    self._prologue = list(self._bench.tape.events)
                self._bench.forget()
                await self._play(self._bench, plan, probe)
                self._runs += 1
                events = [*self._prologue, *self._bench.tape.events]
                return self._shown(plan, events, len(self._prologue), probe)
            began = clock.perf_counter()
            self._connecting = trio.current_time()
            async with self._connect() as runner:
                self._connecting = None
                # Where time is virtual, real time must not decide anything: the same check must find the same failures.
                self._opening = 0.0 if runner.is_virtual else clock.perf_counter() - began
                since = len(runner.tape.events)
                await self._play(runner, plan, probe)
        except TrioMcpError:
            self._runs += 1
            return None  # The target can't be reached, at least for now; a later run may succeed.
        # The run is counted only now, because a run that was cut short does not show that the rule is kept.
        self._runs += 1
        # The events now include the end of the connection, which some rules judge.
        shown = self._shown(plan, runner.tape.events, since, probe)
        # The last run that showed the failure is kept: it had a fresh connection, and the smallest plan so far.
        self._best = shown or self._best
        return shown

    async def _play(self, runner: PlanRunner, plan: Plan, probe: bool) -> None:
        self._running = runner
        await runner.run(plan)
        await runner.until(lambda: not runner.talks[0].is_open, self._quiet)
        if probe:
            await runner.probe()
        self._running = None
        self.undecided += runner.undecided
        for event in runner.tape.events:
            if event.facts.get("what") in ("flood", "dead"):
                did = "flooded its client" if event.facts["what"] == "flood" else "stopped responding"
                self.undecided.append(f"the target {did} when a failure was run again")

    def _shown(self, plan: Plan, events: Sequence[Event], since: int, probe: bool) -> ShownRun | None:
        found = first_broken(self._rule, events, since)
        if found is None:
            return None
        # Events after the verdict's event are noise, unless the verdict is about a message that never came, and so
        # depends on all of them.
        shown = events[: _place(events, found.event) + 1]
        return ShownRun(plan, tuple(events if first_broken(self._rule, shown, since) is None else shown), found, probe)

    async def _shows(self, plan: Plan, *, probe: bool) -> ShownRun | None:
        for _ in range(self._tries):
            if self._may_run and (shown := await self._run(plan, probe=probe)) is not None:
                return shown
        return None

    async def _confirmed(self, first: ShownRun, before: Sequence[Plan]) -> ShownRun | None:
        """Try to reproduce the failure on a fresh connection, with the example alone or after earlier plans."""
        # The slow steps are left out first: each costs seconds in every run, and is seldom the cause.
        quick = tuple(step for step in first.plan if not self._is_slow(step))
        if quick and quick != first.plan and (shown := await self._shows(quick, probe=False)) is not None:
            return shown
        # Each number of earlier plans is tried once before any is tried again: most faults repeat, and three runs for
        # each number would use up the time.
        for tries in (1, INSISTENT):
            self._tries = tries
            for count in BEFORE:
                # The number before this one already included all earlier plans.
                if count and count // 4 >= len(before):
                    break
                # Each plan is followed by a wait for its responses, as in the original run, where each plan was settled
                # before the next began.
                earlier = [step for plan in before[-count:] for step in (*plan, AwaitResponses())] if count else []
                # A probe is one more request in the exchange that is shown, so it is only made where the fault needs
                # it.
                for probe in (False, True):
                    if (shown := await self._shows((*earlier, *first.plan), probe=probe)) is not None:
                        return shown
        return None

    def _is_slow(self, step: Step) -> bool:
        params = (getattr(step, "params", None) or {}) if isinstance(step, Ask) else {}
        return isinstance(step, Ask) and (step.method, str(params.get("name", params.get("uri")))) in self._slow

    # --- fewer steps --------------------------------------------------------------------------------------------------

    async def _fewer_steps(self, best: ShownRun) -> ShownRun:
        """Remove steps, large pieces first, until none can be removed (delta debugging)."""
        size = max(1, len(best.plan) // 2)
        while self._may_run:
            at, smaller = 0, False
            while at < len(best.plan) and self._may_run:
                plan = best.plan[:at] + best.plan[at + size :]
                if plan and (shown := await self._shows(plan, probe=best.probed)) is not None:
                    # `at` stays the same, because the next piece has moved to that index.
                    best, smaller = shown, True
                else:
                    at += size
            # Single steps are tried again until none can be removed: removing one may make another removable.
            if size == 1 and not smaller:
                break
            size = max(1, size // 2)
        return best

    # --- simpler steps ------------------------------------------------------------------------------------------------

    async def _simpler_steps(self, best: ShownRun) -> ShownRun:
        """Make each step simpler, as long as the rule stays broken."""
        improved = True
        while improved and self._may_run:
            improved = False
            # Steps are only replaced and never removed, so their indexes stay the same.
            for at in range(len(best.plan)):
                for simpler in self._simpler(best.plan[at]):
                    if not self._may_run or simpler == best.plan[at]:
                        continue
                    plan = (*best.plan[:at], simpler, *best.plan[at + 1 :])
                    if (shown := await self._shows(plan, probe=best.probed)) is not None:
                        best, improved = shown, True
                        break
        return best

    def _simpler(self, step: Step) -> Iterator[Step]:
        """Yield variants of a step that are a little simpler, the simplest first."""
        match step:
            case Ask():
                yield from self._simpler_ask(step)
            case Tell():
                yield from _each_reset(step, headers={})
            case Cancel():
                yield from _each_reset(step, reason=None, which=0)
            case Pause():
                yield from _each_reset(step, seconds=0.05)
            case Compare():
                for each in step.refused if len(step.refused) > 1 else ():
                    yield attrs.evolve(step, refused=(each,))
                for each in step.requests if len(step.requests) > 1 else ():
                    yield attrs.evolve(step, requests=(each,))
            case Write(texts=texts) if len(texts) > 1:
                for at in range(len(texts)):
                    yield attrs.evolve(step, texts=texts[:at] + texts[at + 1 :])
        if hasattr(step, "connection"):
            yield from _each_reset(step, connection=0)

    def _simpler_ask(self, step: Ask) -> Iterator[Step]:
        # Without the earlier call whose value it takes, this one would not be sent at all. So a plan keeps the earlier
        # call, unless a made-up value does as well.
        if step.taken:
            yield attrs.evolve(step, taken=())
        if len(step.taken) > 1:
            yield from (attrs.evolve(step, taken=(each,)) for each in step.taken)
        if step.style or step.token or step.meta or step.headers:
            # The four attributes are reset together first: most often none of them matters, and then one run does the
            # work of four.
            yield attrs.evolve(step, style=0, token=False, meta={}, headers={})
            yield from _each_reset(step, style=0, token=False, meta={}, headers={})
        if step.method in ("tools/call", "prompts/get"):
            for arguments in self._simpler_arguments(step):
                params = {**(step.params or {}), "arguments": arguments}
                # The place that a value is taken into must stay; its own value is never sent.
                if all(_at(params, each.into) == _at(step.params, each.into) for each in step.taken):
                    yield attrs.evolve(step, params=params)

    def _simpler_arguments(self, step: Ask) -> Iterator[Any]:
        """Yield simpler arguments for a call; if its original arguments are valid, only valid ones."""
        params = step.params or {}
        given = params.get("arguments")
        if not given:
            return
        # Valid arguments stay valid: a server that breaks a rule on a valid call has a different fault from one that
        # breaks it on an invalid call, though the rule may be the same.
        valid: SchemaValidator | None = None
        if step.method == "tools/call" and (schema := self._schemas.get(str(params.get("name")))) is not None:
            try:
                valid = SchemaValidator(schema)
                least = simplest(schema)
            except (ValueError, CannotGenerate):
                return
            if valid.problem(given) is not None:
                valid = None
            # Only smaller values are tried, since otherwise two values could replace each other forever.
            elif _size(least) < _size(given):
                yield least
        for simpler in _simpler_values(given):
            if valid is None or valid.problem(simpler) is None:
                yield simpler


def _at(value: Any, place: Place) -> Any:
    """Return the value at a place in parameters; None if there is no such place."""
    for step in place:
        with contextlib.suppress(LookupError, TypeError):
            value = value[step]
            continue
        return None
    return value


def _each_reset(step: Any, **defaults: Any) -> Iterator[Any]:
    for name, value in defaults.items():
        if getattr(step, name) != value:
            yield attrs.evolve(step, **{name: value})


def _simpler_values(value: Any) -> Iterator[Any]:
    """Yield values of the same type that are one step simpler."""
    match value:
        case dict():
            for key in value:
                yield {name: each for name, each in value.items() if name != key}
            for key, each in value.items():
                for simpler in _simpler_values(each):
                    yield {**value, key: simpler}
        case list():
            for at in range(len(value)):
                yield value[:at] + value[at + 1 :]
            for at, each in enumerate(value):
                for simpler in _simpler_values(each):
                    yield [*value[:at], simpler, *value[at + 1 :]]
        case str() if value:
            yield ""
            yield value[: len(value) // 2]
            yield "a" * len(value)
        # This case comes before the numbers, as a bool is an int in Python.
        case bool():
            yield False
        case int() | float():
            yield 0
            yield int(value) // 2


def _size(value: Any) -> int:
    return len(repr(value))


def _place(events: Sequence[Event], event: Event) -> int:
    """Return the index in a transcript of an event, or of the batch that contains it."""
    found = next((at for at, each in enumerate(events) if each is event), None)
    if found is None:
        # For each message of a batch, the history makes an event with the time and the kind of the batch's own event.
        found = next((at for at, each in enumerate(events) if (each.time, each.kind) == (event.time, event.kind)), None)
    return len(events) - 1 if found is None else found


def _failure(shown: ShownRun, revision: str, example: int, seen: int, of: int) -> Failure:
    assert shown.verdict.problem is not None
    events = without_repeats(shown.events)
    at = _place(events, shown.verdict.event)
    return Failure(shown.verdict.problem, events, at, shown.plan, revision, seen, of, example)


def without_repeats(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the events without the messages of requests that were only repeated to measure what they cost."""
    # From the first measurement on, nothing but the repeated request passes until the mark that ends the repetition.
    left: list[Event] = []
    is_repeating = False
    for event in events:
        what = event.facts.get("what")
        is_repeating = what == "usage" or (is_repeating and what != "repeated")
        if not is_repeating or event.kind not in ("message", "text"):
            left.append(event)
    return tuple(left)
