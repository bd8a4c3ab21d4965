"""Validates values from a peer against JSON Schemas from a peer, either of which may be hostile.

The rules are those of 2026-07-28 `basic/index`, section JSON Schema Usage: the dialect is 2020-12 unless the schema
names another one, no ``$ref`` is fetched from the network, and the cost of a schema is bounded. The validation itself
is done by ``jsonschema-rs``, which is far faster than the pure-Python library and loads in a fraction of the time. A
validation can't be interrupted, so its possible cost is counted before it starts. ``format`` is an annotation, as in
2020-12.

A schema is taken apart into subschemas. Each place in a value is examined by some of them, each of them possibly many
times: shared and recursive references multiply, so a small schema can take exponential time. The subschemas that
examine a place, and how often each does, are called a state; the state of a member or item follows from its parent's.
States are computed when a value first leads to them, and kept, so counting is a walk over the value with one dictionary
lookup per step. One examination of a place by a simple subschema is called a look; it is the unit of cost.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from trio_mcp import _attrs as attrs
from trio_mcp._patterns import late_pattern

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["DIALECTS", "CostModel", "Part", "SchemaError", "SchemaValidator", "compiled", "take_apart"]

DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
"""The values of ``$schema`` that are supported, each with or without an empty fragment."""

# Explaining all errors takes longer than finding out that there is one: up to 6 µs for each, as measured. The error
# messages quote the value, so their bytes are limited, too.
MAX_EXPLAINED_ERRORS = 100_000
MAX_EXPLAINED_BYTES = 50_000_000
# How many errors are shown, and how many characters of each (both arbitrary). A person or a model reads them as one
# line.
MAX_EXPLANATIONS = 3
MAX_EXPLANATION = 300

# Limits on the time to compile a schema and on the depth of the library's recursion. They are arbitrary choices, far
# beyond what real schemas need.
MAX_SUBSCHEMAS = 10_000
MAX_SCHEMA_DEPTH = 100

# The following costs are counted in looks; a look takes about 50 ns, as measured with jsonschema-rs 0.60.
_PATTERN_SIZE = 20  # the number of subschemas that take as long to compile as one pattern
_FLOAT = 40  # the cost of comparing with a float of an enum
_CONTAINER = 4  # the cost of comparing with an array or object
# Each unevaluated* keyword evaluates the subschemas beside it again, which takes up to 2.6 times as long, as measured;
# the factors of nested unevaluated* keywords multiply.
_UNEVALUATED_FACTOR = 3

# The keywords that contain subschemas, by their shape: a list, a single subschema, a mapping. The keywords of all
# drafts are mixed: a keyword that a draft does not define is counted although it costs nothing in that draft, which
# errs on the safe side.
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_MAPS = ("dependentSchemas", "dependencies")
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_DEFINITIONS = ("$defs", "definitions")
_ANCHORS = ("$anchor", "$dynamicAnchor")
# Matches an array index in a JSON pointer (RFC 6901, section 4), of bounded length.
_INDEX = late_pattern(r"0|[1-9][0-9]{0,8}")


class SchemaError(ValueError):
    """The schema can't be used: it is invalid, refers to something outside itself, or costs too much."""


@attrs.define(eq=False)
class Part:
    """One subschema, and the subschemas that it applies, by the place they examine.

    Attributes:
        cost: The cost of examining a place once, for the subschema's own keywords.
        patterns: The number of patterns that the subschema matches against a string.
        key_patterns: The number of patterns that the subschema matches against each key.
        factor: How often the subschemas at the same place may be evaluated for one evaluation of this one.
        rank: A number that is higher than those of all parts that apply this one at the same place.
        here: The subschemas that examine the same place, references included.
        named: Those that examine the member of a certain name.
        members: Those that may examine any member.
        others: Those that examine the members not in `named`.
        names: Those that examine the keys.
        prefix: Those that examine the item at a certain index.
        rest: Those that examine the items beyond the prefix.
        items: Those that examine any item.
    """

    cost: int = 1
    patterns: int = 0
    key_patterns: int = 0
    factor: int = 1
    rank: int = 0
    here: list[Part] = attrs.Factory(list)
    named: dict[str, list[Part]] = attrs.Factory(dict)
    members: list[Part] = attrs.Factory(list)
    others: list[Part] = attrs.Factory(list)
    names: list[Part] = attrs.Factory(list)
    prefix: list[Part] = attrs.Factory(list)
    rest: list[Part] = attrs.Factory(list)
    items: list[Part] = attrs.Factory(list)


_NOTHING = Part(rank=-1)  # stands for `true` and `false`, which apply nothing; shared by all schemas


def take_apart(schema: dict[str, Any]) -> Part:
    """Take a schema apart into its subschemas, and return the `Part` of its root.

    Raises:
        SchemaError: If the schema is too large, or one of its references can't be followed.
    """
    return _Dismantling(schema).root


class _Dismantling:
    """Takes one schema apart into its subschemas."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._parts: dict[int, tuple[Part, dict[str, Any]]] = {}
        self._anchors: dict[str, Any] = {}
        self._size = 0
        # In draft-04 the keyword was `id`; in later drafts `id` means nothing.
        dialect = str(schema.get("$schema", "2020-12"))
        self._id = "id" if "draft-04" in dialect else "$id"
        self._has_prefixes = "2020-12" in dialect
        self.root = self._visit(schema)
        self._connect()
        self._rank()

    def _visit(self, schema: Any) -> Part:
        """Return the `Part` of a subschema, after recording the subschema and all those inside it."""
        # Subschemas are identified by object, so one that several references lead to is entered only once. A list of
        # pending subschemas replaces recursion, which a hostile schema could make too deep.
        if not isinstance(schema, dict):
            return _NOTHING
        if id(schema) not in self._parts:
            pending = [(schema, 0)]
            while pending:
                current, depth = pending.pop()
                if id(current) not in self._parts:
                    self._enter(current, depth)
                    pending += [(child, depth + 1) for child in _children(current) if isinstance(child, dict)]
        return self._parts[id(schema)][0]

    def _enter(self, schema: dict[str, Any], depth: int) -> None:
        part = Part(
            cost=_own_cost(schema),
            patterns=int(isinstance(schema.get("pattern"), str)),
            key_patterns=len(_map(schema, "patternProperties")),
            factor=_UNEVALUATED_FACTOR if any(key in schema for key in _UNEVALUATED) else 1,
        )
        self._parts[id(schema)] = part, schema
        self._size += 1 + _PATTERN_SIZE * (part.patterns + part.key_patterns)
        if self._size > MAX_SUBSCHEMAS:
            raise SchemaError(f"the schema is too large: more than {MAX_SUBSCHEMAS} subschemas")
        if depth > MAX_SCHEMA_DEPTH:
            raise SchemaError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        # An id on a subschema would be a new base for the references below it. It is refused, which keeps references
        # simple: each is a fragment of the one document.
        if isinstance(schema.get(self._id), str) and schema is not self._schema:
            raise SchemaError(f"the schema embeds another one with an {self._id} of its own, which is not supported")
        # Dynamic anchors are treated like ordinary ones: a dynamic anchor could lead elsewhere only if there were a
        # second anchor of its name or a second document, and both are refused.
        for anchor in {schema[key] for key in _ANCHORS if isinstance(schema.get(key), str)}:
            if self._anchors.setdefault(anchor, schema) is not schema:
                raise SchemaError(f"the schema has two anchors named {anchor[:100]!r}")

    def _connect(self) -> None:
        pending = list(self._parts.values())
        while pending:
            known = len(self._parts)
            for part, schema in pending:
                self._connect_part(part, schema)
            # A JSON pointer may lead to an object that no keyword leads to (`#/x-mine/address`), and so add parts that
            # were not entered before.
            pending = list(self._parts.values())[known:]

    def _connect_part(self, part: Part, schema: dict[str, Any]) -> None:
        def visit(*children: Any) -> list[Part]:
            return [self._visit(child) for child in children]

        def under(*keys: str) -> list[Part]:
            return visit(*(schema[key] for key in keys if key in schema and not isinstance(schema[key], list)))

        # From draft 2019-09 on, keywords beside a $ref apply, too. In earlier drafts they don't, but are counted
        # anyway.
        targets = [self._resolve(schema[key]) for key in _REFS if isinstance(schema.get(key), str)]
        part.here = [each for each in visit(*_in_place(schema), *targets) if each is not _NOTHING]
        part.named = {key: visit(child) for key, child in _map(schema, "properties").items()}
        # Which patterns match a name is not determined: each pattern is assumed to match every name, which errs on the
        # safe side.
        part.members = visit(*_map(schema, "patternProperties").values()) + under("unevaluatedProperties")
        part.others = under("additionalProperties")
        part.names = under("propertyNames")
        part.prefix = visit(*_list(schema, "prefixItems"), *_list(schema, "items"))
        part.rest = under("additionalItems")
        part.items = under("unevaluatedItems", "contains")
        # In drafts with prefixItems, `items` applies only to the items after the prefix; in earlier drafts it applies
        # to every item.
        (part.rest if self._has_prefixes else part.items).extend(under("items"))

    def _resolve(self, reference: str) -> Any:
        # Only references inside the schema are followed: not even a published meta-schema is fetched on behalf of a
        # peer.
        if not reference.startswith("#"):
            raise SchemaError(
                f"the schema refers to {reference[:200]!r}, outside itself; such references are not followed"
            )
        target = self._follow(unquote(reference[1:]))
        if not isinstance(target, (dict, bool)):
            raise SchemaError(f"the schema refers to {reference[:200]!r}, but there is no schema at that place")
        return target

    def _follow(self, fragment: str) -> Any:
        if not fragment:
            return self._schema
        if not fragment.startswith("/"):  # the fragment is an anchor, not a JSON pointer
            return self._anchors.get(fragment)
        target: Any = self._schema
        for step in fragment[1:].split("/"):
            if isinstance(target, list):
                target = target[int(step)] if _INDEX.fullmatch(step) and int(step) < len(target) else None
            elif isinstance(target, dict):
                target = target.get(step.replace("~1", "/").replace("~0", "~"))  # RFC 6901, section 4
            else:
                return None
        return target

    def _rank(self) -> None:
        """Rank the parts so that each comes after those that apply it at the same place; refuse circular references."""
        # This is a topological sort. A circle in `here` consumes no part of the value, so a validator would recurse
        # forever.
        waiting = dict.fromkeys((part for part, _ in self._parts.values()), 0)
        for part in waiting:
            for child in part.here:
                waiting[child] += 1
        ready = [part for part, count in waiting.items() if not count]
        for rank, part in enumerate(ready):  # the list grows during the loop
            part.rank = rank
            for child in part.here:
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        if len(ready) < len(waiting):
            raise SchemaError("the schema refers to itself in a circle, so validation would never end")


def _own_cost(schema: dict[str, Any]) -> int:
    """Return the cost of examining a place by a schema's own keywords: comparisons, and names to look up."""
    cost = 1 + len(_map(schema, "properties")) + len(_list(schema, "required"))
    cost += sum(len(_list(schema, key)) for key in _LISTS)
    # Each required name is looked up in the value. `dependencies` may contain lists of names or schemas.
    for key in ("dependentRequired", "dependencies"):
        cost += sum(len(values) if isinstance(values, list) else 1 for values in _map(schema, key).values())
    # A comparison stops at the first difference, but is counted in full, because a hostile value may differ only at the
    # end.
    if "const" in schema:
        cost += _comparison(schema["const"])
    choices = _list(schema, "enum")
    # Other choices cost nothing extra: if they are all strings or all integers, the library looks the value up in one
    # step.
    if len({type(choice) for choice in choices}) > 1 or isinstance(next(iter(choices), None), (dict, list, float)):
        cost += sum(map(_comparison, choices))
    return cost


def _comparison(value: Any) -> int:
    """Return the cost of comparing another value with this one."""
    cost, pending = 0, [value]
    while pending:
        current = pending.pop()
        if isinstance(current, (dict, list)):
            cost += _CONTAINER
            pending += current.values() if isinstance(current, dict) else current
        else:
            cost += _FLOAT if isinstance(current, float) else 1
    return cost


def _map(schema: dict[str, Any], key: str) -> dict[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}


def _list(schema: dict[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _in_place(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the subschemas that examine the same place in a value as the schema does."""
    for key in _LISTS:
        yield from _list(schema, key)
    for key in _SINGLE:
        if key in schema:
            yield schema[key]
    for key in _MAPS:
        yield from _map(schema, key).values()


def _children(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield all direct subschemas of a schema, and its definitions."""
    yield from _in_place(schema)
    # Definitions examine nothing by themselves, but they are included because references lead to them.
    for key in ("properties", "patternProperties", *_DEFINITIONS):
        yield from _map(schema, key).values()
    for key in ("prefixItems", "items"):
        yield from _list(schema, key)
    for key in ("items", "additionalProperties", "propertyNames", "additionalItems", "contains", *_UNEVALUATED):
        if isinstance(schema.get(key), dict):
            yield schema[key]


MAX_WORK = 2_000_000
"""The maximum number of looks in one validation; a look is one examination of a place in a value by a simple subschema.
As measured, this many looks take 0.1 s for a usual schema, and a few seconds for the worst one found."""
MAX_DEPTH = 200
"""The maximum depth of a value, as in the JSON parser. The library's stack overflows only at greater depths."""
MAX_HOPS = 2_000
"""The maximum depth of nested subschemas during a validation. The library's stack overflows only at greater depths."""

# The maximum number of states that are kept (arbitrary). It limits the memory that a schema with ever new combinations
# of subschemas can take.
MAX_STATES = 2_000
_NEW_STATE = 200  # computing a state takes as long as this many looks

_ENDLESS = 2**60  # a ceiling for counts that double at every step, which would otherwise become huge integers

_Lookers: TypeAlias = dict[Part, int]


class CostModel:
    """A model of what validating values against one schema may cost.

    Args:
        root: The schema, taken apart.
        per_byte: The cost of matching a pattern against one byte.
        per_match: The fixed cost of each match.
    """

    def __init__(self, root: Part, *, per_byte: int, per_match: int) -> None:
        self.per_byte = per_byte
        self.per_match = per_match
        self._root = root
        self._states: dict[tuple[tuple[int, int], ...], _State] = {}
        self._start = self.state({root: 1})

    @property
    def states_kept(self) -> int:
        """The number of states that have been computed so far and are cached."""
        return len(self._states)

    def work(self, value: Any) -> int:
        """Count the looks, the units of cost, that validating a value could take.

        Raises:
            SchemaError: If there are too many looks, or the value or the references are nested too deeply.
        """
        # States are dropped only between validations, because the states in use during a validation refer to each
        # other.
        if len(self._states) > MAX_STATES:
            self._states.clear()
            self._start = self.state({self._root: 1})
        known = len(self._states)
        work = 0
        # Each entry has places with their states, the number of levels above them, and the number of subschemas around
        # them. The places are an iterator over the members of one container, so a container with many members takes no
        # extra memory.
        pending: list[tuple[Iterable[tuple[Any, _State]], int, int]] = [([(value, self._start)], 0, 0)]
        while pending:
            places, depth, hops = pending.pop()
            if depth > MAX_DEPTH:
                raise SchemaError(f"the value is nested more than {MAX_DEPTH} levels deep")
            for current, state in places:
                work += state.work
                # A scalar takes one step of this loop. So does a container, whose content is walked when its own entry
                # is taken.
                if isinstance(current, dict):
                    pending.append((state.members(current), depth + 1, hops + state.hops))
                    if state.reads_keys:
                        work += sum(map(state.key_work, current))
                elif isinstance(current, (list, tuple)):
                    pending.append((state.items(current), depth + 1, hops + state.hops))
                elif state.patterns and isinstance(current, str):
                    work += state.patterns * (self.per_match + len(current) * self.per_byte)
                if hops + state.hops > MAX_HOPS:
                    raise SchemaError(f"validating this value could nest more than {MAX_HOPS} subschemas")
            # Computing states counts as work, too: a hostile value could lead to a new state at every step.
            if work + _NEW_STATE * (len(self._states) - known) > MAX_WORK:
                raise SchemaError(f"validating this value could take more than {MAX_WORK} steps")
        return work

    def errors(self, value: Any) -> tuple[int, int]:
        """Count the errors that a value could have, and the bytes that their messages could quote.

        The messages quote the value and the paths of the errors. Call this after `work`, which bounds the walk.
        """
        # Every look at a place may find an error, and the error's message quotes the value at the place and the path to
        # it.
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
        """Return the state of a place that these parts examine."""
        # Ranks are unique within a schema, so they identify the parts in the key.
        key = tuple(sorted((part.rank, times) for part, times in lookers.items()))
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(self, lookers)
        return state


class _State:
    """The subschemas that examine a place, and how often each does."""

    def __init__(self, model: CostModel, lookers: _Lookers) -> None:
        self._model = model
        self._here, self.hops = _spread(lookers)
        self.looks = sum(self._here.values())
        self.work = sum(part.cost * times for part, times in self._here.items()) + 1
        self.patterns = sum(part.patterns * times for part, times in self._here.items())
        self._key_patterns = sum(part.key_patterns * times for part, times in self._here.items())
        self.reads_keys = bool(self._key_patterns) or any(part.names for part in self._here)
        # The states of the members and items below this place, filled in when a value first leads to them.
        self._named: dict[str, _State | None] = {key: None for part in self._here for key in part.named}
        self._indexed: list[_State | None] = [None] * max((len(part.prefix) for part in self._here), default=0)
        self._other: _State | None = None
        self._rest: _State | None = None
        self._names: _State | None = None

    def members(self, value: dict[str, Any]) -> Iterator[tuple[Any, _State]]:
        """Yield the members of an object, each with its state."""
        # `named.get` is the only dictionary lookup per step; `member` only fills in missing states.
        named, other = self._named, self._other
        for key, child in value.items():
            yield child, named.get(key, other) or self.member(key)

    def items(self, value: Sequence[Any]) -> Iterable[tuple[Any, _State]]:
        """Return the items of an array, each with its state."""
        # All items beyond the prefix have the same state.
        if len(value) <= len(self._indexed):
            return [(child, self._item(index)) for index, child in enumerate(value)]
        if self._rest is None:
            self._rest = self._next(lambda part: part.rest + part.items)
        states = [self._item(index) for index in range(len(self._indexed))]
        return zip(value, itertools.chain(states, itertools.repeat(self._rest)), strict=False)

    def member(self, key: str) -> _State:
        """Return the state of the member with this name."""
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
        """Return the cost of examining a key."""
        if self._names is None:
            self._names = self._next(lambda part: part.names)
        matches = self._key_patterns + self._names.patterns
        return self._names.work + matches * (self._model.per_match + len(key) * self._model.per_byte)

    def _next(self, sent: Callable[[Part], list[Part]]) -> _State:
        """Return the state of a member or item; ``sent`` returns the parts that a part of this state applies to it."""
        lookers: _Lookers = {}
        for part, times in self._here.items():
            for looker in sent(part):
                lookers[looker] = lookers.get(looker, 0) + times
        return self._model.state(lookers)


def _spread(lookers: _Lookers) -> tuple[_Lookers, int]:
    """Add all parts that these parts apply at the same place; return them with their counts, and the depth of nesting.

    The parts are visited in the order of their ranks, so that a part's count is complete before it is passed on.
    """
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


class SchemaValidator:
    """A compiled schema that values can be validated against, at a bounded cost.

    Args:
        schema: A JSON Schema, as plain data: an object, or true or false.
        formats: Whether to check ``format``, too.

    Raises:
        SchemaError: If the schema can't be used; the message says why.
    """

    def __init__(self, schema: Any, *, formats: bool = False) -> None:
        # All checks of a schema are made on construction, at registration or first use, so that only a value can make
        # `problem` fail.
        if not isinstance(schema, (dict, bool)):
            raise SchemaError(f"a schema must be an object or a boolean, not {type(schema).__name__}")
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        if dialect is not None and (not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS):
            raise SchemaError(f"the schema dialect {dialect!r:.200} is not supported; use one of {', '.join(DIALECTS)}")
        # The schema's size is checked before it is compiled, because compiling takes time in proportion to the size.
        root = take_apart(schema) if isinstance(schema, dict) else Part()
        self._validator, per_byte, per_match = compiled(schema, formats=formats)
        self._model = CostModel(root, per_byte=per_byte, per_match=per_match)

    def problem(self, value: Any) -> str | None:
        """Describe the problem with a value in one line; return None if the value conforms.

        Raises:
            SchemaError: If the validation would cost too much.
        """
        self._model.work(value)  # raises if the validation would cost too much
        try:
            return None if self._validator.is_valid(value) else self._explain(value)
        except ValueError as exc:
            return f"the value is not JSON: {_line(str(exc))}"

    def broken(self, value: Any) -> list[tuple[str, str]]:
        """Return the keywords that a value violates, each with a JSON pointer to the place in the value.

        Raises:
            SchemaError: If the validation or the explanation would cost too much.
        """
        self._model.work(value)
        if self._verbose(value):
            raise SchemaError("the value does not conform to the schema, and is too large to say where")
        found = []
        for error in self._validator.iter_errors(value):
            steps = [str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path]
            found.append((error.kind.name, "".join(f"/{step}" for step in steps)))
        return found

    def _verbose(self, value: Any) -> bool:
        # The library finds all errors, not only those that are shown, so the limits apply to all of them.
        count, size = self._model.errors(value)
        return count > MAX_EXPLAINED_ERRORS or size > MAX_EXPLAINED_BYTES

    def _explain(self, value: Any) -> str:
        if self._verbose(value):
            return "the value does not conform to the schema, and is too large to say where"
        shown = [
            f"{_place(each['instanceLocation'])}: {_line(each['error'])}"
            for each in self._validator.evaluate(value).errors()
        ]
        more = [f"and {len(shown) - MAX_EXPLANATIONS} more"] if len(shown) > MAX_EXPLANATIONS else []
        return "; ".join(shown[:MAX_EXPLANATIONS] + more) or "the value does not conform to the schema"


def compiled(
    schema: Any, *, formats: bool = False, mask: str | None = None
) -> tuple[jsonschema_rs.Validator, int, int]:
    """Compile a schema; return the validator, and what matching the schema's patterns costs per byte and per string.

    Args:
        schema: The schema.
        formats: Whether to check ``format``, too.
        mask: The text that error messages contain in place of values.

    Raises:
        SchemaError: If the schema is invalid.
    """
    import jsonschema_rs  # imported on first use, as most programs validate nothing

    # The first engine matches in linear time. Up to this size of a pattern, a byte takes 2 µs at most, as measured, and
    # usually a thousandth of that.
    linear = jsonschema_rs.RegexOptions(size_limit=50_000)
    # The second engine is a backtracking one, for look-around, which the first does not support, and for larger
    # patterns. The limit on its steps bounds the time of a match; the higher costs below reflect this limit.
    fancy = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=200_000)
    problem: Exception | None = None
    for options, per_byte, per_match in ((linear, 1, 1), (fancy, 20, 200)):
        try:
            # The second attempt is for patterns that the first engine refuses; an invalid schema fails both.
            validator = jsonschema_rs.validator_for(
                schema, retriever=_refuse, validate_formats=formats, pattern_options=options, mask=mask
            )
        except (ValueError, jsonschema_rs.ReferencingError) as exc:
            problem = exc
        else:
            return validator, per_byte, per_match
    raise SchemaError(f"the schema is invalid: {_line(str(problem))}")


def _refuse(uri: str) -> Any:
    raise LookupError(f"references outside the schema are not followed: {uri}")


def _place(pointer: str) -> str:
    """Return a JSON pointer in the form of Python subscripts."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    return _line("".join(f"[{step}]" if step.isdecimal() else f"[{step!r}]" for step in steps)) or "the value"


def _line(text: str) -> str:
    """Return the first line of a text, shortened, because the text may quote the value or the schema."""
    first = text.partition("\n")[0]
    return first if len(first) <= MAX_EXPLANATION else first[:MAX_EXPLANATION] + "…"
