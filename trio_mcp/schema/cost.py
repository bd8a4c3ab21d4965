"""What validating a value could cost, counted before it starts, because a validation can't be interrupted.

Each place of a value is looked at by some subschemas, each of them some number of times: shared and recursive
references multiply, which is how a small schema can cost exponential time. The subschemas that look at a place, with
their numbers, are a state; a member's or an item's state follows from its parent's. States are worked out when a value
first leads to them and kept, so counting is a walk over the value with one dictionary lookup per step.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from trio_mcp.schema.parts import Part, SchemaError

__all__ = ["CostModel"]

MAX_WORK = 2_000_000
"""Looks of a subschema at a value, 0.1 s for a usual schema and a few seconds for the worst that was found."""
MAX_DEPTH = 200
"""Levels of a value. JSON that arrives is limited to as many by its parser; the validator overflows its stack later."""
MAX_HOPS = 2_000
"""Subschemas that are inside of each other while a value is validated; the validator overflows its stack later."""

MAX_STATES = 2_000
_NEW_STATE = 200  # working one out takes as long as that many looks

_ENDLESS = 2**60  # numbers that double at every step need not grow for ever

_Lookers: TypeAlias = dict[Part, int]


class CostModel:
    """Counts what validations against one schema could cost.

    Args:
        root: The schema, taken apart.
        per_byte: What matching a pattern against one byte costs.
        per_match: What one match costs besides.
    """

    def __init__(self, root: Part, *, per_byte: int, per_match: int) -> None:
        self.per_byte = per_byte
        self.per_match = per_match
        self._root = root
        self._states: dict[tuple[tuple[int, int], ...], _State] = {}
        self._start = self.state({root: 1})

    @property
    def states_kept(self) -> int:
        """How many states have been worked out and are kept."""
        return len(self._states)

    def work(self, value: Any) -> int:
        """Count the looks of a subschema at a value that validating it could take.

        Raises:
            SchemaError: Too many, or the value or the references are nested too deeply.
        """
        if len(self._states) > MAX_STATES:
            self._states.clear()
            self._start = self.state({self._root: 1})
        known = len(self._states)
        work = 0
        # Places that look alike, the state of each, the levels above them and the subschemas that these are inside of.
        pending: list[tuple[Iterable[tuple[Any, _State]], int, int]] = [([(value, self._start)], 0, 0)]
        while pending:
            places, depth, hops = pending.pop()
            if depth > MAX_DEPTH:
                raise SchemaError(f"the value is nested more than {MAX_DEPTH} deep")
            for current, state in places:
                work += state.work
                if isinstance(current, dict):
                    pending.append((state.members(current), depth + 1, hops + state.hops))
                    if state.reads_keys:
                        work += sum(map(state.key_work, current))
                elif isinstance(current, (list, tuple)):
                    pending.append((state.items(current), depth + 1, hops + state.hops))
                elif state.patterns and isinstance(current, str):
                    work += state.patterns * (self.per_match + len(current) * self.per_byte)
                if hops + state.hops > MAX_HOPS:
                    raise SchemaError(f"validating this value could lead through {MAX_HOPS} nested subschemas")
            if work + _NEW_STATE * (len(self._states) - known) > MAX_WORK:
                raise SchemaError(f"validating this value could take more than {MAX_WORK} steps")
        return work

    def errors(self, value: Any) -> tuple[int, int]:
        """Count how many errors a value could have, and the bytes that they could quote, of the value and of paths."""
        count = echo = 0
        pending = [(value, self._start, 0, 0, 0)]
        while pending:
            current, state, looks, hops, path = pending.pop()
            count += state.looks
            looks += state.looks
            hops += state.hops
            echo += looks * (len(current) if isinstance(current, str) else 8) + state.looks * (path + 32 * hops)
            if isinstance(current, dict):
                pending += [(child, state.member(key), looks, hops, path + len(key)) for key, child in current.items()]
            elif isinstance(current, (list, tuple)):
                pending += [(child, below, looks, hops, path + 8) for child, below in state.items(current)]
        return count, echo

    def state(self, lookers: _Lookers) -> _State:
        """The state of a place that these look at."""
        key = tuple(sorted((part.rank, times) for part, times in lookers.items()))
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(self, lookers)
        return state


class _State:
    """The subschemas that look at a place, and how often."""

    def __init__(self, model: CostModel, lookers: _Lookers) -> None:
        self._model = model
        self._here, self.hops = _spread(lookers)
        self.looks = sum(self._here.values())
        self.work = sum(part.cost * times for part, times in self._here.items()) + 1
        self.patterns = sum(part.patterns * times for part, times in self._here.items())
        self._key_patterns = sum(part.key_patterns * times for part, times in self._here.items())
        self.reads_keys = bool(self._key_patterns) or any(part.names for part in self._here)
        # Filled in when a value first leads there.
        self._named: dict[str, _State | None] = {key: None for part in self._here for key in part.named}
        self._indexed: list[_State | None] = [None] * max((len(part.prefix) for part in self._here), default=0)
        self._other: _State | None = None
        self._rest: _State | None = None
        self._names: _State | None = None

    def members(self, value: dict[str, Any]) -> Iterator[tuple[Any, _State]]:
        """The members of an object, each with its state."""
        named, other = self._named, self._other
        for key, child in value.items():
            yield child, named.get(key, other) or self.member(key)

    def items(self, value: Sequence[Any]) -> Iterable[tuple[Any, _State]]:
        """The items of an array, each with its state."""
        if len(value) <= len(self._indexed):
            return [(child, self._item(index)) for index, child in enumerate(value)]
        if self._rest is None:
            self._rest = self._next(lambda part: part.rest + part.items)
        states = [self._item(index) for index in range(len(self._indexed))]
        return zip(value, itertools.chain(states, itertools.repeat(self._rest)), strict=False)

    def member(self, key: str) -> _State:
        """The state of the member of that name."""
        if key not in self._named:
            if self._other is None:
                self._other = self._next(lambda part: part.others + part.members)
            return self._other
        state = self._named[key]
        if state is None:
            state = self._named[key] = self._next(lambda part: part.named.get(key, part.others) + part.members)
        return state

    def _item(self, index: int) -> _State:
        state = self._indexed[index]
        if state is None:
            state = self._indexed[index] = self._next(
                lambda part: (part.prefix[index : index + 1] or part.rest) + part.items
            )
        return state

    def key_work(self, key: str) -> int:
        """What looking at a key costs."""
        if self._names is None:
            self._names = self._next(lambda part: part.names)
        matches = self._key_patterns + self._names.patterns
        return self._names.work + matches * (self._model.per_match + len(key) * self._model.per_byte)

    def _next(self, sent: Callable[[Part], list[Part]]) -> _State:
        lookers: _Lookers = {}
        for part, times in self._here.items():
            for looker in sent(part):
                lookers[looker] = lookers.get(looker, 0) + times
        return self._model.state(lookers)


def _spread(lookers: _Lookers) -> tuple[_Lookers, int]:
    """The lookers and all whom they send to look at the same place, and how many of them are inside of each other."""
    times, hops = dict(lookers), dict.fromkeys(lookers, 1)
    ready = [(part.rank, part) for part in lookers]
    heapq.heapify(ready)
    while ready:
        _, part = heapq.heappop(ready)
        for child in part.here:
            if child not in times:
                times[child] = hops[child] = 0
                heapq.heappush(ready, (child.rank, child))
            times[child] = min(times[child] + times[part] * part.factor, _ENDLESS)
            hops[child] = max(hops[child], hops[part] + 1)
    return times, max(hops.values(), default=0)
