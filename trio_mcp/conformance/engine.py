"""`check_server`: drives a server with plans, judges what happens against every rule, and shrinks each failure."""

from __future__ import annotations

import contextlib
import math
import shlex
import statistics
import time as clock
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Final, Unpack

import attrs
import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp._nursery import background_nursery
from trio_mcp._secrets import without_options
from trio_mcp._settings import completed
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.targets import Target, target_name
from trio_mcp.conformance.advice import advice_on
from trio_mcp.conformance.causes import causes
from trio_mcp.conformance.commands import command_for
from trio_mcp.conformance.credentials import credentials_for, refusal_in
from trio_mcp.conformance.facts import Facts, discover
from trio_mcp.conformance.judging import Found, Judging, first_broken
from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.options import ServerCheckOptions
from trio_mcp.conformance.outcomes import CheckReport, Ended, Failure, Outcome, Preview, Progress
from trio_mcp.conformance.plans.moves.authorization import greeting
from trio_mcp.conformance.plans.moves.catalogue import MOVES, lacking, moves_for
from trio_mcp.conformance.plans.moves.messages import alive
from trio_mcp.conformance.plans.moves.model import Move
from trio_mcp.conformance.plans.shrink import ShownRun, Shrinker, without_repeats
from trio_mcp.conformance.plans.source import Source
from trio_mcp.conformance.plans.threads import Threads
from trio_mcp.conformance.reach import ReachCounts
from trio_mcp.conformance.rules.catalogue import select
from trio_mcp.conformance.rules.common import ended_without_cause
from trio_mcp.conformance.rules.expected import WORKING
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Rule, Verdict
from trio_mcp.conformance.run import LAST_PROBE, LAST_WAIT, CheckTerms, PlanRunner, Sent, is_virtual
from trio_mcp.conformance.steps import Ask, AwaitResponses, NextPage, Plan
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.usage import Usage, grown, usage_of
from trio_mcp.conformance.wires.targets import WireTarget, open_wire_for
from trio_mcp.conformance.wires.wire import OpenWire
from trio_mcp.errors import NegotiationError, TransportError, TrioMcpError
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.types.versions import LATEST_MODERN, LEGACY_REVISIONS

__all__ = ["Check", "check_server", "preview_server"]

CHUNK: Final = 10
"""The maximum number of examples that are judged at once (arbitrary)."""

PATIENCE: Final = 4
"""An example may take this many times the deadline, plus 30 seconds, before its connection is given up (arbitrary)."""

PLAIN: Final = (Ask, AwaitResponses, NextPage)
PROBES: Final = 10
"""Of the examples with only plain steps, one in this many ends with a probe. The others need none: their own responses
already show that the target is alive."""

MOST_DEAD: Final = 3
"""The check ends after this many examples in a row that the target did not survive, or after this many floods
(arbitrary)."""

MOST_DOUBTS: Final = 2
"""How many failures of a rule that no sentence states may turn out to be unreliable; later ones are not looked at
(arbitrary: each is shrunk, which takes seconds)."""

MEETING: Final = 5.0
"""The minimum time, in seconds, that a target has for its handshake and lists, however short the check (arbitrary)."""

UNCOUNTED: Final = 3.0
"""Seconds of the handshake and the list requests that don't count towards the check's time (arbitrary)."""

OVERTIME: Final = 3.6
"""A check is cut short this many seconds after its time is up, whatever it is doing. By then, it has waited for open
requests and for a last probe. An arbitrary choice: even with the start of the program and the shutdown of the target,
a check takes at most ten seconds longer than its time."""

MOST_EVENTS: Final = 5_000
"""When this many events wait to be judged, they are judged even if fewer than `CHUNK` examples have run (arbitrary)."""

LIFE: Final = 500
"""The maximum number of examples that run over one connection (an arbitrary choice: a server may keep ever more state
for a connection)."""

OPENINGS: Final = 3
"""How many times a handshake that breaks a rule is made, to say how reliably it does (arbitrary)."""

SHRINKING: Final = 20.0
"""Seconds for which a failure may be shrunk (arbitrary); less if the time of the check is short."""

QUIET, QUIET_VIRTUAL = 0.05, 1.5
"""Seconds to wait for late messages after an example, on a real clock and on a virtual one, where waiting costs nothing
(arbitrary)."""

WARM: Final = 50
"""The number of examples after which a process counts as warm, so that its resources are first measured; also the
number of examples between two measurements (arbitrary)."""

PAUSE: Final = 20
"""The longest pause within a plan, as a multiple of the target's latency (arbitrary)."""

LONG: Final = 0.1
"""Seconds above which a response counts as slow (arbitrary)."""

SPENT: Final = 0.02
"""The share of the check's time that the slow calls of one tool, resource or prompt may take (arbitrary)."""

SLOWER: Final = 5.0
"""A target is reported if it becomes this many times slower than it was at the beginning (arbitrary)."""


class Check:
    """Runs a check of a server; `report` can be called at any time.

    Args:
        open_wire: Opens a connection to the target.
        name: The name of the target.
        options: The options of `check_server`.
        moves: The moves to make; by default those that the rules name, or all if no rules are given.
        command: The command that starts the target, without secrets, if it is a process.

    Raises:
        ValueError, TypeError: If an option is invalid, or a rule unknown.
    """

    def __init__(
        self,
        open_wire: OpenWire,
        name: str,
        options: ServerCheckOptions,
        *,
        moves: Collection[Move] = (),
        command: str = "",
    ) -> None:
        given = completed(ServerCheckOptions, options)
        self.facts: list[Facts] = []
        self._open_wire = open_wire
        self._name = name
        self._command = command
        self._options = given
        self._rules = tuple(select(given["rules"], "server", "transport"))
        self._moves = list(moves or (MOVES.values() if given["rules"] is None else moves_for(self._rules)))
        self._began = clock.perf_counter()
        self._time = given["time"]
        self._examples = self._requests = 0
        self._generating = 0.0
        self._ended: Ended | None = None
        self._notes: list[str] = []
        self._occasions = {rule.id: 0 for rule in self._rules}
        self._failures: dict[str, Failure] = {}
        self._doubted: dict[str, int] = {}
        self._sources: list[Source] = []
        self._threads = Threads(str(given["seed"]))
        self._reach = ReachCounts()
        self._latencies: list[float] = []
        self._spent: dict[tuple[str, str], float] = {}
        self._slow: dict[tuple[str, str], None] = {}
        self._dead = self._floods = self._traffic = 0
        self._undecided: list[str] = []
        self._deaths: list[str] = []
        self._terms = CheckTerms(given["deadline"], given["connect_timeout"], rate=given["rate"])
        self._life: _Life | None = None
        self._openings: list[_Opening] = []
        self._virtual = False
        self._usage: tuple[Usage, Usage] | None = None

    async def run(self) -> None:
        """Run the check until it is complete or its budget is used up.

        Raises:
            TransportError: If the target can't be reached, or does not respond properly to the handshake or to the
                requests for its lists.
            NegotiationError: If the target speaks no revision that the kit knows, or lacks one that was asked for.
        """
        # The limit is on real time, because waiting costs nothing on a virtual clock.
        begun = math.inf if is_virtual() else trio.current_time()
        failed: TransportError | NegotiationError | None = None
        try:
            await self._meet(max(self._options["time"], MEETING))
        except (TransportError, NegotiationError) as exc:
            failed = exc
        if failed is not None:
            # A handshake that fails because the target breaks a rule is a finding. Any other failure means that the
            # target can't be reached.
            with trio.CancelScope(deadline=begun + self._time + OVERTIME):
                await self._judge_openings()
            if not self._failures:
                raise failed
            self._ended = "no handshake"
            self._undecided.append(f"the handshake failed: {failed}")
            return
        for facts in self.facts:
            self._reach.meet(facts)
        # The time for the handshake and the lists is not counted in full: otherwise a short check of a target that is
        # slow to start would have no time left.
        self._time += min(clock.perf_counter() - self._began, UNCOUNTED)
        self._terms = attrs.evolve(self._terms, end=begun + self._time)
        with trio.CancelScope(deadline=self._terms.end + OVERTIME) as scope:
            await self._check_revisions()
        if scope.cancelled_caught:
            self._ended = "time"
            # The check is undecided only if its time ran out in the middle of an example, and not while a connection
            # was being closed. `report` judges the events so far.
            if self._life is not None and self._life.is_busy:
                self._undecided.append("the target was still busy with an example when the time of the check was up")

    async def _meet(self, seconds: float) -> None:
        with trio.CancelScope(deadline=math.inf if is_virtual() else trio.current_time() + seconds) as scope:
            self.facts = await self._met()
        if scope.cancelled_caught:
            raise TransportError(
                f"the target did not complete the handshake and the list requests within {seconds:g} seconds"
            )

    async def _met(self) -> list[Facts]:
        """Return the facts about the target in each revision that the check will use.

        Raises:
            TransportError: If the target can't be reached, or does not respond as it must.
            NegotiationError: If the target speaks no revision that the kit knows, or lacks one that was asked for.
        """
        options, wanted = self._options, self._options["revisions"]

        async def met(revision: str, terms: CheckTerms) -> Facts:
            opening = _Opening(PlanRunner(self._open_wire, revision, terms))
            self._openings.append(opening)
            facts = await opening.met(allow_writes=options["allow_writes"], tools=options["tools"])
            self._openings.remove(opening)
            return facts

        if wanted is not None:
            found = [await met(revision, self._terms) for revision in wanted]
        else:
            found, refusals = [], []
            began = clock.perf_counter()
            # The newest revision is tried first. Each revision has its own connection: a client that does not support
            # the version in the response should disconnect (`basic/lifecycle`, Version Negotiation). The legacy era
            # comes before the modern one because its handshake shows how fast the target starts.
            for revision in reversed(LEGACY_REVISIONS):
                try:
                    found.append(await met(revision, self._terms))
                    break
                except NegotiationError as exc:
                    refusals.append(exc)
            # A server of the legacy era need not respond to an unknown method at all, so it gets less time for
            # `server/discover`.
            patience = min(self._terms.opening, max(5.0, 3 * (clock.perf_counter() - began)))
            terms = attrs.evolve(self._terms, opening=patience if found else self._terms.opening)
            try:
                found.append(await met(LATEST_MODERN, terms))
            except (NegotiationError, TransportError):
                # If nothing was found, every legacy revision has been refused as well. The first refusal is reported,
                # as most servers are of that era: a missing response to `server/discover` would say less.
                if not found:
                    raise refusals[0] from None
        # The target may offer a tool in one revision only, so a name is unknown only if no revision has it.
        tools = {name for facts in found for name in facts.tools}
        if unknown := set(options["tools"]) - tools:
            raise ValueError(f"the target has no tool {min(unknown)!r}; it has {', '.join(sorted(tools)) or 'none'}")
        return found

    async def _judge_openings(self) -> None:
        """Judge the handshakes that have failed, and make each again to see how often the same rules are broken."""
        for opening in self._openings:
            for rule, verdict in opening.broken(self._rules).items():
                if rule in self._failures:
                    continue
                self._occasions[rule] += 1
                self._failures[rule] = opening.failure(verdict, 1, 1)
                seen = of = 1
                while of < OPENINGS and opening.seconds < self._time_left / OPENINGS and opening.seconds < SHRINKING:
                    again = _Opening(PlanRunner(self._open_wire, opening.runner.revision, self._terms))
                    with contextlib.suppress(TransportError, NegotiationError):
                        await again.met()
                    of += 1
                    seen += rule in again.broken(self._rules)
                    self._failures[rule] = opening.failure(verdict, seen, of)

    async def preview(self) -> Preview:
        """Return what the check would do, after only the handshakes and the list requests."""
        facts = await self._met()
        return Preview(
            tuple(facts),
            self._rules,
            {each.revision: tuple(move.name for move in self._moves if not move.lacks(each)) for each in facts},
            {rule.id: reason for rule in self._rules if (reason := lacking(rule, facts))},
        )

    async def _check_revisions(self) -> None:
        # The examples and the time that one revision does not use go to the revisions after it.
        for number, facts in enumerate(self.facts):
            left = len(self.facts) - number
            examples = self._examples + (self._options["examples"] - self._examples) // left
            until = clock.perf_counter() + self._time_left / left
            await self._check_revision(facts, examples, until)
            # If a revision has used up its share of the time, the next one still has its own. Any other reason ends the
            # whole check.
            if self._ended not in (None, "time"):
                return
        # If one revision ran out of time but the next one ran its remaining examples, the check is still complete.
        if self._ended is None or self._examples >= self._options["examples"]:
            self._ended = "complete"
        if not self._examples and self._ended == "time":
            self._undecided.append("the time was up before the first example")

    # --- lives --------------------------------------------------------------------------------------------------------

    @property
    def _time_left(self) -> float:
        return self._time - (clock.perf_counter() - self._began)

    @property
    def _all_broken(self) -> bool:
        return 0 < len(self._rules) == len(self._failures)

    async def _check_revision(self, facts: Facts, examples: int, until: float) -> None:
        """Check the target in one revision, over one connection after another."""
        # A call that was slow in one revision most likely runs the same code in the next one, so it is left out there,
        # too.
        for method, name in self._slow:
            facts = facts.without(method, name)
        # The seed is a string: `Random` uses its SHA-512, which is the same in every process, unlike `hash`. It
        # includes the revision, so that the second revision does not begin with the same moves as the first.
        seed = f"{self._options['seed']} {facts.revision}"
        self._sources.append(Source(facts, self._moves, seed, self._threads))
        while self._examples < examples and not self._all_broken:
            # A connection that could not be opened in the remaining time is not tried: its handshake would be cut
            # short.
            if clock.perf_counter() >= until or self._time_left < self._sources[-1].opening:
                self._ended = "time"
                return
            if self._dead >= MOST_DEAD:
                self._ended = "target hangs"
                return
            if self._floods >= MOST_DEAD:
                self._ended = "target floods"
                return
            if self._traffic >= self._options["max_bytes"]:
                self._ended = "bytes"
                return
            try:
                facts, more = await self._live(facts, examples, until)
                if not more:
                    return
            # The target has responded before, so the address is right and the target must have died. The error is noted
            # and not raised, so that the report has what was found until then.
            except TrioMcpError as exc:
                self._notes.append(f"after {self._examples} examples the target could not be reached any more: {exc}")
                self._ended = "target died"
                return

    async def _live(self, facts: Facts, examples: int, until: float) -> tuple[Facts, bool]:
        """Run examples over one connection; return the facts as known afterwards, and whether more plans remain."""
        more = True
        began = clock.perf_counter()
        async with self._connected(facts.revision) as runner:
            # The time that opening takes influences which plans are made, so it is not measured on a virtual clock:
            # there the same seed must give the same traffic, however busy the machine is.
            if not runner.is_virtual:
                self._sources[-1].opening = clock.perf_counter() - began
            self._virtual = runner.is_virtual
            life = self._life = _Life(runner, Judging(self._rules, runner.tape.events))
            # `Judging` now has the events of the handshake and the lists, so they are removed from the tape: from here
            # on it contains only events that are still to be judged.
            runner.forget()
            talk = runner.talks[0]
            while talk.is_open and not self._over(life, examples, until):
                began = clock.perf_counter()
                plan = self._sources[-1].next()
                self._generating += clock.perf_counter() - began
                if plan is None:
                    more = False
                    break
                await self._example(life, plan)
                began = clock.perf_counter()
                self._sources[-1].learn(talk.requests)
                self._generating += clock.perf_counter() - began
                self._reach.take(talk.requests)
                facts = self._without_slow(facts, runner)
                if (on_progress := self._options["on_progress"]) is not None:
                    on_progress(self._progress)
                # The first chunks are small, so that a fault that shows at once is found and shrunk before all other
                # examples have run. Later, judging several examples at once costs less for each.
                most = len(runner.tape.events) >= MOST_EVENTS
                if most or len(life.plans) - life.judged >= min(CHUNK, 1 + life.judged):
                    await self._judge(life, facts)
                self._measure(life)
            # The probe is sent while the connection is still open: it shows whether the target has survived the reruns
            # of a failure.
            await self._judge(life, facts)
            if life.is_unsure and talk.is_open:
                life.is_busy = True
                await runner.probe()
                life.is_busy = False
                self._take_undecided(runner)
            self._traffic += runner.tape.traffic
        # The events now include the end of the connection, which some rules judge.
        await self._judge(life, facts)
        self._life = None
        return facts, more

    def _measure(self, life: _Life) -> None:
        """Measure the resources that the target's process uses, once in every `WARM` examples."""
        count = len(life.plans)
        pid = getattr(life.runner.talks[0].wire, "pid", None)
        if pid is not None and count % WARM == 0 and (usage := usage_of(pid)) is not None:
            # Each connection has its own first measurement: it starts a new process, whose memory has nothing to do
            # with that of the last one.
            life.usage = life.usage or usage
            self._usage = life.usage, usage

    def _without_slow(self, facts: Facts, runner: PlanRunner) -> Facts:
        """Return the facts without the tools, resources and prompts that are too slow to be used again."""
        late = dict.fromkeys(runner.slow, f"took longer than {self._terms.patience:g} s")
        runner.slow.clear()
        # The times of slow responses are added up for each tool, resource or prompt, which is left out only once it has
        # cost a notable part of the check. On a virtual clock nothing takes long.
        for sent in [] if runner.is_virtual else runner.talks[0].answered():
            if (each := sent.work) is not None and sent.seconds is not None and sent.seconds > LONG:
                self._spent[each] = self._spent.get(each, 0.0) + sent.seconds
                if self._spent[each] > SPENT * self._options["time"]:
                    late[each] = f"takes {sent.seconds:.1f} s"
                    self._look_at_work(facts, sent)
        left = facts
        for method, name in late:
            left = left.without(method, name)
            self._slow[method, name] = None
            self._notes.append(f"{method} of {name!r} {late[method, name]}, so it is not used again in this check")
        # The facts stay the same if only a resource from a template was slow, because such a resource is not among the
        # facts. The plans are then not drawn again, which would take time.
        if left != facts:
            self._sources[-1].renew(left)
        return left

    def _look_at_work(self, facts: Facts, sent: Sent) -> None:
        """Plan a last call of a tool that is slow: only while it runs can be seen whether the server answers others."""
        params = {key: value for key, value in object_of(sent.message.get("params")).items() if key != "_meta"}
        if sent.method == "tools/call" and sent.seconds is not None and sent.seconds >= WORKING and params:
            call = Ask(sent.method, params)
            self._sources[-1].put((call, alive(facts), AwaitResponses()))

    def _over(self, life: _Life, examples: int, until: float) -> bool:
        return (
            self._examples >= examples
            or len(life.plans) >= LIFE
            or life.judging.is_full
            or self._dead >= MOST_DEAD
            or self._all_broken
            or clock.perf_counter() >= until
            or self._traffic + life.runner.tape.traffic >= self._options["max_bytes"]
        )

    @contextlib.asynccontextmanager
    async def _connected(self, revision: str) -> AsyncIterator[PlanRunner]:
        runner = PlanRunner(self._open_wire, revision, self._terms)
        async with runner.connected():
            # The lists are requested on each connection: rules look up tools and their schemas in what was listed on
            # the same connection.
            await discover(runner)
            yield runner

    @property
    def _progress(self) -> Progress:
        seconds = clock.perf_counter() - self._began
        return Progress(self._examples, self._options["examples"], seconds, self._requests, len(self._failures))

    async def _example(self, life: _Life, plan: Plan) -> None:
        """Run a plan, and see whether the target survives it."""
        runner = life.runner
        # The plan is recorded before it runs: if the check is interrupted, the report still finds the plan that belongs
        # to the events.
        life.plans.append((self._examples, plan))
        if self._latencies and not self._virtual:
            # The latency is the median of the last few probes: a single slow probe must not make every pause long, and
            # a target that warms up gets faster.
            runner.longest_pause = PAUSE * statistics.median(self._latencies[-20:])
        before = runner.asked
        life.is_busy = True
        seconds, probed = None, False
        # Each wait within a plan has its own limit, but this one limits their sum: a target that always responds at the
        # last moment would take minutes for a long plan.
        with trio.move_on_after(PATIENCE * self._terms.deadline + 30) as scope:
            await runner.run(plan, example=self._examples)
            if self._virtual:
                # The condition is never true, so the wait always lasts its full time: late messages then belong to this
                # example in every run, in whatever order the tasks run.
                await runner.until(lambda: False, QUIET_VIRTUAL)
            # If a tool did not respond in time, only a probe shows whether it is slow or its server has died.
            plain = not runner.is_late and all(isinstance(step, PLAIN) for step in plan)
            if self._virtual or not self._examples % PROBES or not plain:
                seconds = await runner.probe()
                probed = True
        life.is_busy = False
        self._take_undecided(runner)
        self._examples += 1
        self._requests += runner.asked - before
        # A connection that has ended is not a sign of death: some plans end it, and a server may close it over
        # malformed input. The next connection shows whether the target is still there.
        if scope.cancelled_caught or (probed and seconds is None and runner.talks[0].is_open):
            # Nothing more can be learned on this connection, so it is closed.
            self._dead += 1
            await runner.talks[0].stop()
        elif seconds is not None:
            self._dead = 0
            self._latencies.append(seconds)
            life.is_unsure = False

    def _take_undecided(self, runner: PlanRunner) -> None:
        self._undecided += runner.undecided
        runner.undecided.clear()

    # --- verdicts -----------------------------------------------------------------------------------------------------

    async def _judge(self, life: _Life, facts: Facts) -> None:
        """Judge the new events, and shrink each failure that is new and not in the baseline."""
        for found in self._judged(life):
            if found.rule.id not in self._failures and self._doubted.get(found.rule.id, 0) < MOST_DOUBTS:
                # The failure is recorded before it is shrunk: shrinking takes seconds, and the check may be interrupted
                # meanwhile.
                self._failures[found.rule.id] = _as_seen(found, life, facts.revision)
                if found.rule.id not in self._options["baseline"]:
                    await self._shrink(found, life, facts)
                    self._doubt(found.rule)

    def _doubt(self, rule: Rule) -> None:
        """Forget the failure of a rule that no sentence states unless it shows reliably.

        Such rules measure, or compare what may change by itself, so what was seen once may be the machine's fault.
        """
        failure = self._failures[rule.id]
        if rule.level == "EXPECTED" and 2 * failure.seen < max(failure.of, 1):
            del self._failures[rule.id]
            self._doubted[rule.id] = self._doubted.get(rule.id, 0) + 1

    def _judged(self, life: _Life) -> list[Found]:
        """Judge the new events; return the first verdict on each rule that they break."""
        life.runner.pump()
        # The events are copied, because `forget` empties the list that the tape keeps.
        events = list(life.runner.tape.events)
        life.runner.forget()
        life.judged = len(life.plans)
        self._look_for_death(events, life)
        broken: dict[str, Found] = {}
        for found in life.judging.judge(events):
            self._occasions[found.rule.id] += 1
            if found.verdict.problem is not None:
                broken.setdefault(found.rule.id, found)
        for rule, trouble in life.judging.troubles.items():
            note = f"the rule {rule} could not judge what happened: {trouble}"
            if note not in self._notes:
                self._notes.append(note)
        return list(broken.values())

    def _look_for_death(self, events: Sequence[Event], life: _Life) -> None:
        """Note if the target has ended by itself or floods its client: no rule forbids either, but both are bad."""
        if any(event.facts.get("what") == "flood" for event in events):
            self._floods += 1
        main = life.runner.talks[0].wire
        # Over HTTP there is no main connection that could end: a server that has died can't be reached any more, which
        # is noticed when the next connection fails.
        if main.transport in ("http", "sse"):
            return
        # Most connections are closed by the kit, so it is seldom necessary to build a history.
        if not any(event.kind == "close" and event.sender == "server" for event in events):
            return
        # Only the main connection counts: a target need not serve any other connections.
        for connection in History(events):
            if connection.number == main.number and ended_without_cause(connection):
                facts = connection.close.facts if connection.close is not None else {}
                status = "" if facts.get("status") is None else f", exit status {facts['status']}"
                example = life.plans[-1][0] if life.plans else 0
                self._deaths.append(f"first in example {example}: {facts.get('reason')}{status}")

    async def _shrink(self, found: Found, life: _Life, facts: Facts) -> None:
        seconds = min(SHRINKING, max(2.0, self._time_left / 3), self._time_left + LAST_WAIT)
        if seconds <= 0:
            return
        life.is_unsure = True
        # One shrinker serves all the examples that may be the cause, so that they share its time and its runs.
        shrinker = Shrinker(
            lambda: self._connected(facts.revision),
            found.rule,
            {name: tool.get("inputSchema") for name, tool in facts.tools.items()},
            slow=self._slow,
            # A failure gets a third of the remaining time, so that several rules get their turn, and near the end about
            # two seconds: a failure that has not been shrunk is hard to act on.
            seconds=seconds,
            until=math.inf if self._virtual else trio.current_time() + seconds,
            # A slow target gets several times as long as its requests and connections usually take.
            patience=max(
                LAST_PROBE,
                SLOWER * statistics.median(self._latencies[-20:] or [0.0]),
                SLOWER * self._sources[-1].opening,
            ),
            quiet=QUIET_VIRTUAL if self._virtual else QUIET,
        )
        best = self._failures[found.rule.id]
        numbers = [number for number, _ in life.plans]
        # The likeliest cause is tried first. The next one is tried only if this one does not break the rule again,
        # either by itself or after the examples before it.
        for example in found.examples:
            if example not in numbers:
                continue
            place = numbers.index(example)
            shown = ShownRun(life.plans[place][1], best.transcript, found.verdict)
            failure = await shrinker.shrink(shown, [plan for _, plan in life.plans[:place]], facts.revision, example)
            # The first result replaces the failure as it was seen, because it says how often the rerun did not
            # reproduce it. Later results are used only if they show the fault.
            if failure.seen or not best.of:
                best = self._failures[found.rule.id] = failure
            if failure.seen:
                break
        self._undecided += shrinker.undecided

    # --- the report ---------------------------------------------------------------------------------------------------

    def report(self) -> CheckReport:
        """Return the report on what has been found so far."""
        if self._life is not None:
            # The check was interrupted, so some events have not been judged yet.
            life, self._life = self._life, None
            # Nothing is shrunk: the user who stops a check wants its report now.
            # A failure of a rule that no sentence states counts only if it was seen again.
            for found in self._judged(life):
                if found.rule.level != "EXPECTED":
                    self._failures.setdefault(found.rule.id, _as_seen(found, life, life.runner.revision))
        for rule_id, failure in self._failures.items():
            self._failures[rule_id] = attrs.evolve(failure, command=command_for(failure, self._command or self._name))
        outcomes = tuple(map(self._outcome, self._rules))
        tried = {failure.revision: None for failure in self._failures.values()}
        spoken = tuple(facts.revision for facts in self.facts) or tuple(tried)
        infos = [facts.server_info for facts in self.facts if facts.server_info]
        notes = [note for facts in self.facts for note in facts.skipped]
        return CheckReport(
            self._name,
            "server",
            self._transport,
            spoken,
            " ".join(str(infos[0].get(key, "")) for key in ("name", "version")).strip() if infos else "",
            self._options["seed"],
            self._examples,
            self._requests,
            clock.perf_counter() - self._began,
            self._generating,
            outcomes,
            tuple(dict.fromkeys(notes + self._notes + self._slowness() + self._growth())),
            # `_ended` is still None only if `run` was cancelled.
            self._ended or "interrupted",
            self._figures(),
            self._options["examples"],
            tuple(dict.fromkeys(self._undecided + self._mortality())),
            advice_on(self._newest) if self._newest is not None else (),
            causes([outcome for outcome in outcomes if outcome.status == "broken"]),
            tuple(self._reach.reached(self._slow)),
        )

    def _growth(self) -> list[str]:
        # A rule that is broken says more: which call is to blame.
        said = self._failures.keys() & {"memory-steady", "descriptors-steady"}
        return grown(*self._usage) if self._usage is not None and not said else []

    @property
    def _newest(self) -> Facts | None:
        # The lists may differ from revision to revision; the newest is what most clients see.
        return max(self.facts, key=lambda facts: facts.revision) if self.facts else None

    @property
    def _transport(self) -> str:
        talks = [talk for opening in self._openings for talk in opening.runner.talks]
        return self.facts[0].transport if self.facts else next((talk.wire.transport for talk in talks), "")

    def _mortality(self) -> list[str]:
        found = []
        if self._deaths:
            often = "once" if len(self._deaths) == 1 else f"{len(self._deaths)} times"
            found.append(f"the target ended the connection {often} without an apparent reason; {self._deaths[0]}")
        if self._floods:
            found.append("the target sent more unsolicited data than the check can keep")
        return found

    def _outcome(self, rule: Rule) -> Outcome:
        occasions, failure = self._occasions[rule.id], self._failures.get(rule.id)
        if failure is not None:
            return Outcome(rule, "broken", occasions, failure=failure, known=rule.id in self._options["baseline"])
        # Occasions take precedence over what the target lacks: they also arise from the moves of other rules, and from
        # a server that does more than it declares.
        if occasions:
            return Outcome(rule, "held", occasions)
        if self._ended == "no handshake":
            return Outcome(rule, "not exercised", reason="the handshake failed, so nothing else was tried")
        if reason := lacking(rule, self.facts):
            return Outcome(rule, "not checkable", reason=reason)
        return Outcome(rule, "not exercised", reason="nothing happened that this rule judges")

    def _figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "calls": sum(source.called for source in self._sources),
            "repeated calls": sum(source.repeated for source in self._sources),
            "bytes": self._traffic,
        }
        if self._newest is not None and self._newest.tools:
            figures["bytes of tools/list"] = self._newest.tool_sizes
        if self._latencies:
            figures["latency at the beginning"], figures["latency at the end"] = self._first_and_last()
        if self._usage is not None:
            for name, value in attrs.asdict(self._usage[0]).items():
                figures[f"{name} at the beginning"] = value
                figures[f"{name} at the end"] = getattr(self._usage[1], name)
        return figures

    def _first_and_last(self) -> tuple[float, float]:
        # Medians are compared, because one garbage collection, or one late probe, is not a trend.
        tenth = max(1, len(self._latencies) // 10)
        return statistics.median(self._latencies[:tenth]), statistics.median(self._latencies[-tenth:])

    def _slowness(self) -> list[str]:
        if self._virtual or len(self._latencies) < 50:
            return []
        first, last = self._first_and_last()
        # The extra 50 ms are for a target that responds in under a millisecond: a busy machine alone can multiply such
        # a time.
        if last < SLOWER * first + 0.05:
            return []
        return [
            f"the target has become slower: a response took {first * 1000:.1f} ms at the beginning, and "
            f"{last * 1000:.1f} ms at the end"
        ]


@attrs.define(eq=False)
class _Opening:
    """A handshake, with the requests for the lists that follow it.

    Attributes:
        runner: What makes it.
        seconds: How long it took.
    """

    runner: PlanRunner
    seconds: float = 0.0

    async def met(self, **options: Any) -> Facts:
        """Make the handshake, and return the facts about the target.

        Raises:
            TransportError, NegotiationError: As in `PlanRunner.connected` and `discover`.
        """
        began = clock.perf_counter()
        try:
            async with self.runner.connected():
                facts = await discover(self.runner, **options)
                await self._meet_second(facts)
                return facts
        finally:
            self.seconds = clock.perf_counter() - began

    async def _meet_second(self, facts: Facts) -> None:
        """Make a request with the token of the second user, if there is one.

        Raises:
            TransportError: If it is refused: then a later refusal would say nothing about two users.
        """
        if "b" not in facts.tokens:
            return
        step, place = greeting(facts, "b"), len(self.runner.tape.events)
        sent = await self.runner.talks[0].ask(step.method, step.params, step)
        await self.runner.until(lambda: sent.over, self.runner.terms.deadline)
        if not sent.result:
            refusal = refusal_in(self.runner.tape.events[place:], named="second")
            raise TransportError(f"the target does not serve {step.method} to the second user{refusal}")

    def broken(self, rules: Sequence[Rule]) -> dict[str, Verdict]:
        """Return the first verdict on each rule that the events break."""
        events = self.runner.tape.events
        # A process that has read nothing could not start, or is another program than a server.
        unread = any(event.facts.get("unread") or event.facts.get("what") == "unsent" for event in events)
        if self.runner.is_refused or unread:
            return {}
        # Rules of other revisions are left out: a target that agrees to nonsense is still judged as what it was asked
        # to be.
        applied = [rule for rule in rules if self.runner.revision in rule.revisions]
        found = ((rule.id, first_broken(rule, events)) for rule in applied)
        return {rule: verdict for rule, verdict in found if verdict is not None}

    def failure(self, verdict: Verdict, seen: int, of: int) -> Failure:
        """Return the failure that a verdict tells of; its plan is empty, since connecting is enough."""
        events = self.runner.tape.events
        at = next((at for at, event in enumerate(events) if event is verdict.event), len(events) - 1)
        # The events after it are left out, unless the verdict is about something that never came.
        shown = events if verdict.event.kind in ("mark", "close") else events[: at + 1]
        return Failure(verdict.problem or "", tuple(shown), at, (), self.runner.revision, seen, of, 0)


@attrs.define
class _Life:
    """One connection and the examples that ran over it."""

    runner: PlanRunner
    judging: Judging
    plans: list[tuple[int, Plan]] = attrs.Factory(list)
    judged: int = 0
    is_busy: bool = False
    is_unsure: bool = False
    usage: Usage | None = None


def _as_seen(found: Found, life: _Life, revision: str) -> Failure:
    """Return a failure as it was first seen, before any shrinking, with the whole history of its connection."""
    example = found.examples[0] if found.examples else -1
    plan = next((plan for number, plan in life.plans if number == example), ())
    # The whole history is kept: the verdict may refer to events before this example.
    events = without_repeats(found.history)
    at = next((at for at, event in enumerate(events) if event is found.verdict.event), len(events) - 1)
    return Failure(found.verdict.problem or "", events, at, plan, revision, 0, 0, example)


async def check_server(target: Target | WireTarget, **options: Unpack[ServerCheckOptions]) -> CheckReport:
    """Check a server: send it what a client may send and what a client must not send, and judge all that happens.

    Args:
        target: A single target of a `Client` (not a list), or a `WireTarget`.
        options: See `CheckOptions` and `ServerCheckOptions`.

    Raises:
        TransportError: If the target can't be reached, or does not respond to the handshake as it must.
        NegotiationError: If the target speaks no revision that the kit knows, or lacks one that was asked for.
        ValueError: If a rule, a revision or a tool is unknown.
        TypeError: If an option is unknown.
    """
    refuse_unknown(check_server, options, ServerCheckOptions)
    command = ""
    if isinstance(target, StdioServerParameters):
        command = shlex.join(without_options([target.command, *target.args]))
    check = Check(_wire(target, options), target_name(target), options, command=command)
    stop = options.get("stop")
    async with background_nursery() as nursery:
        # The scope is inside the nursery: a stop ends only the run, and the report that is returned still has what was
        # found.
        with trio.CancelScope() as scope:
            if stop is not None:
                nursery.start_soon(_cancel_at, stop, scope)
            await check.run()
    return check.report()


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


async def preview_server(target: Target | WireTarget, **options: Unpack[ServerCheckOptions]) -> Preview:
    """Return what `check_server` would do with the same arguments, after only the handshakes and the list requests.

    Raises:
        TransportError, NegotiationError, ValueError, TypeError: As in `check_server`.
    """
    refuse_unknown(preview_server, options, ServerCheckOptions)
    return await Check(_wire(target, options), target_name(target), options).preview()


def _wire(target: Target | WireTarget, options: ServerCheckOptions) -> OpenWire:
    # A failover would hide which of the servers broke a rule, and would reconnect where a check must see the connection
    # end.
    if isinstance(target, (list, tuple, FailoverParameters)):
        raise ValueError("a check needs a single target, but got several: check each target separately")
    tokens = {name: options.get(name) for name in ("auth_a", "auth_b", "auth_elsewhere")}
    credentials = credentials_for(tokens, options.get("authority"))  # type: ignore[arg-type]
    return open_wire_for(target, credentials=credentials)  # type: ignore[arg-type]
