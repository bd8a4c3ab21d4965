"""Makes plans: the steps of moves are drawn in bulk and interleaved, in the same way for the same seed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Sequence
from random import Random
from typing import Final

import attrs
from hypothesis.errors import Unsatisfiable

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.model import Move
from trio_mcp.conformance.plans.threads import Threads
from trio_mcp.conformance.run import STYLES, Sent
from trio_mcp.conformance.steps import Ask, AwaitResponses, Break, Open, Plan, Repeat, Step
from trio_mcp.testing.strategies.drawing import draws

__all__ = ["CALLS", "MOST_STEPS", "Source"]

CALLS: Final = ("tools/call", "resources/read", "prompts/get")
"""The methods that make a server do its own work: they are used in at least half of all requests, with as few repeats
as possible."""

CALLING: Final = ("call-tool", "read-resource", "read-template", "get-prompt")
"""The moves that plans are filled up with; they consist of calls only."""

MOST_MOVES: Final = 6
MOST_STEPS: Final = 25
"""The maximum number of steps in a plan, which interleaves at most `MOST_MOVES` moves (arbitrary)."""

SMALLEST, LARGEST = 4, 256
"""The minimum and the maximum number of values of a move that are drawn at once; the number grows with use, since most
checks are short (arbitrary)."""

SHARE: Final = 0.7
"""The share of new calls that is aimed at among the requests in plans (arbitrary)."""

FEW: Final = 8
"""A move counts as used up when fewer than one in this many drawn values are new (arbitrary)."""

OLD: Final = 0.1
"""The factor by which the weight of a move falls once all its values have been used (arbitrary)."""

CHEAP: Final = 0.01
"""Seconds up to which opening a connection is cheap enough to do as often as anything else (arbitrary)."""

DEAR, SPACE = 0.05, 10
"""If opening a connection takes more than ``DEAR`` seconds, at most one plan in ``SPACE`` opens one (arbitrary)."""

EXPLORING: Final = "call-tool"
"""The move without which nothing is explored: there are no tools, or the rules are not about them."""

EARLY, LATER = 8, 2
"""One plan in so many explores what no call has reached, while moves wait for their first plan, and afterwards
(arbitrary)."""

ATTEMPTS: Final = 5
"""The maximum number of times that a move is drawn to find calls that were not made before (arbitrary)."""


class _Pool:
    """Draws the values of a move, which are short plans, in bulk when they are needed.

    Attributes:
        is_old: Whether all values of the move have been used, and some of them make calls, or measure what calls cost.
        connects: Whether the move opens connections, or ends one.
    """

    def __init__(self, move: Move, facts: Facts, seed: str) -> None:
        self.move = move
        self.is_old = False
        self.connects = False
        self._strategy = move.make(facts)
        # Each move has its own random generator, so that it has the same values for the same seed, whichever other
        # moves are made.
        self._random = Random(f"{seed} {move.name}")
        self._count = SMALLEST
        self._values: deque[Plan] = deque()
        self._known: set[str] = set()
        self._used: list[Plan] = []
        self._all: list[Plan] = []

    def fill(self) -> _Pool:
        """Draw values if there are none left."""
        if not self._values:
            self._refill()
        return self

    def next(self) -> Plan | None:
        """Return the next value, or None if the move has no values."""
        self.fill()
        return self._values.popleft() if self._values else None

    def _refill(self) -> None:
        if self._all:
            drawn = self._random.sample(self._all, len(self._all))
            # A cost that was measured need not be measured all the time: that takes many requests.
            self.is_old = any(_calls(plan) or _repeats(plan) for plan in drawn)
        else:
            try:
                found = draws(self._strategy, self._count, seed=self._random.getrandbits(64))
            # A strategy may have no values at all on some targets. Then the move is dropped, as if the target lacked
            # something that the move needs.
            except Unsatisfiable:
                return
            # Plans are compared by their text, as they contain dicts, which can't be hashed.
            different = {repr(plan): plan for plan in found}
            drawn = [plan for text, plan in different.items() if text not in self._known]
            self._known |= different.keys()
            if FEW * len(drawn) < self._count:
                # Hardly any drawn value is new, so nearly all values are known by now. From now on they are used again,
                # which does no harm if they make no calls.
                self._all = drawn = [*self._used, *drawn]
            self._used += drawn if not self._all and len(self._used) < LARGEST else []
            # Each drawing has a fixed cost, so each bulk is larger than the last. The first is small, because a short
            # check would never use most of a large one.
            self._count = min(2 * self._count, LARGEST)
        self._values.extend(drawn)
        self.connects = self.connects or any(isinstance(step, (Open, Break)) for plan in drawn for step in plan)


class Source:
    """Makes the plans of a check.

    Each move first gets a plan of its own, so that even a short check tries everything once. Later plans interleave
    several moves. Plans in between explore what no call has reached yet, with values that others have returned.

    Args:
        facts: The facts about the target.
        moves: The moves to use; those that need something the target lacks are left out.
        seed: Determines everything that is random.
        threads: What is known of values that one call returns and another needs; by default nothing.

    Attributes:
        opening: Seconds that it takes to open a connection. The longer it takes, the fewer plans open one.
        usable: The moves that can be made on the target.
        asked: How many requests the plans have contained so far.
        called: How many of them were calls; see `CALLS`.
        repeated: How many of the calls were the same as an earlier one.
    """

    def __init__(self, facts: Facts, moves: Sequence[Move], seed: str, threads: Threads | None = None) -> None:
        self._facts = facts
        self._threads = Threads(seed) if threads is None else threads
        self.usable = [move for move in moves if not move.lacks(facts)]
        self.opening = 0.0
        self.asked = self.called = self.repeated = 0
        self._pools = {move.name: _Pool(move, facts, seed) for move in self.usable}
        self._random = Random(seed)
        self._first = [move.name for move in self.usable]
        # The moves are shuffled, so that checks that end early leave out different moves with different seeds.
        self._random.shuffle(self._first)
        self._seen: set[str] = set()
        self._put: deque[Plan] = deque()
        self._plans = 0
        self._moves = moves
        self._seed = seed

    def renew(self, facts: Facts) -> None:
        """Continue with changed facts about the target; moves that have had a plan of their own don't get another."""
        self._facts = facts
        self.usable = [move for move in self._moves if not move.lacks(facts)]
        # The seed changes, because with the same seed the new pools would draw the used values once more.
        self._seed += "+"
        self._pools = {move.name: _Pool(move, facts, self._seed) for move in self.usable}
        self._first = [name for name in self._first if name in self._pools]

    def learn(self, requests: Sequence[Sent]) -> None:
        """Learn from the requests of an example which calls are accepted, and what they return."""
        self._threads.learn(self._facts, requests)

    def put(self, plan: Plan) -> None:
        """Make this plan the next one."""
        self._put.append(plan)

    def next(self) -> Plan | None:
        """Return the next plan, or None if no move can be made."""
        if self._put:
            return self._put.popleft()
        chosen: list[Plan] = []
        self._plans += 1
        if (plan := self._explored()) is not None:
            return plan
        if self._first and not self._is_dear(self._first[-1]):
            chosen = self._drawn(self._first.pop())
        elif self._pools:
            chosen = self._mixed()
        if not chosen:
            # The chosen move had no values and was dropped, so the recursion ends at the latest when all moves are
            # dropped.
            return self.next() if self._first or self._pools else None
        steps = self._interleaved(chosen)[:MOST_STEPS]
        return self._finished(*self._threads.threaded(self._facts, steps))

    def _explored(self) -> Plan | None:
        """Return a plan that explores, if it is time for one and there is something to explore."""
        is_early = self._first or not self._threads.is_curious(self._facts)
        if self._plans % (EARLY if is_early else LATER) or EXPLORING not in self._pools:
            return None
        plan = self._threads.explore(self._facts)
        if plan is None:
            return None
        calls = _calls(plan)
        old = sum(key in self._seen for key in calls)
        self._seen.update(calls)
        self.called += len(calls)
        self.asked += len(calls)
        return self._finished(plan, 0, old)

    def _finished(self, steps: Sequence[Step], links: int, repeated: int = 0) -> Plan:
        """Return the steps as a plan, and count the calls in front of it that were made before."""
        self.asked += links
        self.called += links
        self.repeated += links + repeated
        return tuple(self._styled(step) for step in steps)

    def _is_dear(self, name: str) -> bool:
        """Return whether a move must wait because it opens connections, which takes a long time.

        If a move that opens no connections is left, it is put first, and no move has to wait.
        """
        if name not in self._pools or not self._pools[name].fill().connects or self.opening <= DEAR:
            return False
        if self._plans % SPACE == 0:
            return False
        # A move that opens no connection goes first instead, if there is one left.
        cheap = [each for each in self._first if each in self._pools and not self._pools[each].fill().connects]
        if cheap:
            self._first.remove(cheap[-1])
            self._first.append(cheap[-1])
        return not cheap

    def _mixed(self) -> list[Plan]:
        """Return values of several moves, or one value of a move that must be alone."""
        # A connection that takes twice as long to open is opened half as often, so the share of time for opening stays
        # the same.
        rare = min(1.0, CHEAP / max(self.opening, CHEAP))
        weights = [
            pool.move.weight * (OLD if pool.is_old else 1) * (rare if pool.connects else 1)
            for pool in self._pools.values()
        ]
        names = self._random.choices(list(self._pools), weights, k=self._random.randint(1, MOST_MOVES))
        # A move that must be alone ends the connection or makes it unusable, and the other moves would be blamed for
        # the consequences.
        if alone := next((name for name in names if self._pools[name].move.alone), None):
            return self._drawn(alone)
        found = [plan for name in names for plan in self._drawn(name)]
        # This loop keeps new calls at half of all traffic or more, including the traffic that does not come from plans.
        while self.called - self.repeated < SHARE * self.asked and sum(map(len, found)) < MOST_STEPS:
            calling = [name for name in CALLING if name in self._pools and not self._pools[name].is_old]
            if not calling:
                break
            found += self._drawn(self._random.choice(calling))
        return found

    def _drawn(self, name: str) -> list[Plan]:
        """Return a list with a value of a move, if possible one with new calls; an empty list if it has no values."""
        plan: Plan = ()
        keys: list[str] = []
        old = 0
        for _ in range(ATTEMPTS):
            drawn = self._pools[name].next() if name in self._pools else None
            if drawn is None:
                self._pools.pop(name, None)
                return []
            plan = drawn
            keys = _calls(plan)
            old = sum(key in self._seen for key in keys)
            # A pool that is used up only has repeats, so drawing again would change nothing. After the last attempt a
            # repeat is taken: it is still better than no traffic.
            if not old or self._pools[name].is_old:
                break
        self._seen.update(keys)
        self.repeated += old
        self.called += len(keys)
        self.asked += sum(isinstance(step, Ask) for step in plan)
        return [plan]

    def _interleaved(self, plans: Collection[Plan]) -> list[Step]:
        """Interleave the steps of several plans, and keep the order within each."""
        queues = [deque(plan) for plan in plans]
        mixed: list[Step] = []
        while queues := [queue for queue in queues if queue]:
            # The plans are weighted by their remaining steps, so that each possible order is equally likely.
            (queue,) = self._random.choices(queues, [len(queue) for queue in queues])
            step = queue.popleft()
            # Waiting for all responses twice in a row is the same as waiting once.
            if not (isinstance(step, AwaitResponses) and mixed and isinstance(mixed[-1], AwaitResponses)):
                mixed.append(step)
        return mixed

    def _styled(self, step: Step) -> Step:
        """Give a request an id of a random kind; half of the requests keep a plain number."""
        # Half of the ids stay as most clients make them, so that a server which can't cope with the other kinds shows
        # its other faults, too.
        if not isinstance(step, Ask) or step.style or self._random.random() < 0.5:
            return step
        return attrs.evolve(step, style=self._random.randrange(len(STYLES)))


def _repeats(plan: Plan) -> bool:
    return any(isinstance(step, Repeat) for step in plan)


def _calls(plan: Plan) -> list[str]:
    """Return the calls in a plan, each as a string that is the same for equal calls."""
    return [
        # The metadata is left out, since nothing in it changes what a tool does. The order of members makes no
        # difference either.
        json.dumps([step.method, {**(step.params or {}), "_meta": None}], sort_keys=True, default=repr)
        for step in plan
        if isinstance(step, Ask) and step.method in CALLS
    ]
