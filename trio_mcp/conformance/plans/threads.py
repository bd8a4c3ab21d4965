"""Threads values through calls: what one call returned is offered to the parameters of others.

Only places are kept, never values: a plan calls what returns a value, and takes it from there when it runs. So a plan
shows the same on a server that makes up other ids each time, can be kept in a file, and contains nothing that a server
sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeAlias

import attrs

from trio_mcp._secrets import is_secret
from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.members import is_refused, object_of, objects_of
from trio_mcp.conformance.offers import Offer, offered
from trio_mcp.conformance.plans.moves.odd_calls import NOWHERE
from trio_mcp.conformance.run import Sent
from trio_mcp.conformance.steps import Ask, AwaitResponses, Place, Plan, Step, TakenValue
from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.testing.strategies.first_values import first_values
from trio_mcp.testing.strategies.schemas import CannotGenerate

__all__ = ["Threads"]

Target: TypeAlias = tuple[str, str]
"""A method, with the name of a tool or prompt, the URI of a resource, or a URI template."""

MOST_OFFERS: Final = 40
"""How many places in the results of one tool, resource or prompt are kept (arbitrary)."""

MOST_LEARNED: Final = 4
"""After how many results of one tool, resource or prompt no more places are looked for (arbitrary)."""

MOST_ACCEPTED: Final = 8
"""How many accepted calls of one tool, prompt or template are drawn from again (arbitrary)."""

MOST_TRIES: Final = 120
"""How many combinations of values are tried to get a call accepted (arbitrary)."""

MOST_TARGETS: Final = 12
"""For how many tools, prompts and templates combinations are put together for one plan (arbitrary)."""

MOST_ORIGINS: Final = 20
"""How many tools, prompts and resources give values at most, the newest (arbitrary)."""

AT_ONCE: Final = 12
"""How many calls a plan tries (arbitrary)."""

MOST_LINKS: Final = 16
"""How many earlier calls a plan may make to have values to take (arbitrary)."""

DEEPEST_SLOT: Final = 3
"""How deep in its parameters a call takes values (arbitrary)."""

USUAL: Final = 0.75
"""How often a call is made with the values that it is known to need (arbitrary); the others are drawn alone."""

SELDOM: Final = 0.05
"""How often a call that needs no values of others gets one even so (arbitrary)."""

_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


@attrs.frozen
class _Source:
    """A place in the results of a call.

    Attributes:
        target: What is called.
        place: The place.
        is_text: Whether there is a text.
        looks_made_up: Whether it looks like an id, a path or a URI, and not like a word.
        is_secret: Whether it may be a secret.
        words: The words in its own name.
        around: The words in the names around it.
    """

    target: Target
    place: Place
    is_text: bool
    looks_made_up: bool
    is_secret: bool
    words: frozenset[str]
    around: frozenset[str]

    def score(self, slot: _Slot) -> int:
        """Return how likely it is that a parameter takes the value; a higher number is likelier."""
        names = 4 * len(slot.words & self.words) + len(slot.words & self.around)
        return names + 3 * self.looks_made_up + (slot.is_text == self.is_text)


@attrs.frozen
class _Slot:
    """A parameter that may take a value, with the words in its name."""

    into: Place
    is_text: bool
    words: frozenset[str]
    is_secret: bool
    before: str = ""
    after: str = ""


class Threads:
    """Learns from answers which calls are accepted and what they return, and makes the calls that build on them.

    Args:
        seed: Determines everything that is random.
    """

    def __init__(self, seed: str) -> None:
        self._random = Random(f"{seed} threads")
        # How a target is called so that it accepts: a way takes values only from targets whose own ways came before.
        self._ways: dict[Target, Ask] = {}
        # The calls that were accepted without values of others, and how many more were accepted than refused.
        self._accepted: dict[Target, list[Ask]] = {}
        self._balance: dict[Target, int] = {}
        self._sources: dict[Target, dict[Place, _Source]] = {}
        self._learned: dict[Target, int] = {}
        self._first: dict[Target, list[Mapping[str, Any]]] = {}
        self._begun: dict[Target, int] = {}
        self._tried: dict[Target, set[tuple[TakenValue, ...]]] = {}
        self._valid: dict[str, SchemaValidator | None] = {}
        self._turn = 0

    # --- learning -----------------------------------------------------------------------------------------------------

    def learn(self, facts: Facts, requests: Iterable[Sent]) -> None:
        """Learn from the answers of an example."""
        for sent in requests:
            step = sent.step
            if step is None or step.headers or sent.answer is None:
                continue
            target = _target_of(facts, step)
            if target is None:
                continue
            is_no = is_refused(sent.answer)
            if not step.taken:
                self._balance[target] = self._balance.get(target, 0) + (-1 if is_no else 1)
            if is_no:
                continue
            known = self._ways.get(target)
            accepted = self._accepted.setdefault(target, [])
            if not step.taken and len(accepted) < MOST_ACCEPTED and (call := _plain(step)) not in accepted:
                accepted.append(call)
            # A way without values of others is the better one: it needs no other calls.
            if known is None or (known.taken and not step.taken):
                self._ways[target] = _plain(step)
            # A resource that a template describes has another URI each time, by which no later step could name it.
            if self._learned.get(target, 0) < MOST_LEARNED and target[1] not in facts.templates:
                self._learned[target] = self._learned.get(target, 0) + 1
                self._learn_places(target, sent)

    def _learn_places(self, target: Target, sent: Sent) -> None:
        found = self._sources.setdefault(target, {})
        given = set(_texts(sent.message.get("params")))
        for offer in offered(sent.result):
            # A value that the call was given is known already, and often only an echo.
            if offer.place not in found and str(offer.value) not in given and len(found) < MOST_OFFERS:
                found[offer.place] = _source(target, offer)

    # --- exploring ----------------------------------------------------------------------------------------------------

    def is_curious(self, facts: Facts) -> bool:
        """Return whether there is something that no call has reached yet."""
        return any(target not in self._ways for target in _targets(facts))

    def explore(self, facts: Facts) -> Plan | None:
        """Return a plan that tries calls which were not made before; None if there are none.

        First values come first: examples and defaults of schemas, and boundaries. Then, for what no call has reached,
        come the values that others have returned.
        """
        targets = _targets(facts)
        unreached = [target for target in targets if target not in self._ways]
        # With many of them, each plan looks at others.
        at = self._turn % max(len(unreached), 1)
        self._turn += MOST_TARGETS
        unreached = (unreached[at:] + unreached[:at])[:MOST_TARGETS]
        rows = [self._combinations(facts, target) for target in unreached]
        links: dict[Target, None] = {}
        chosen = self._next_firsts(facts, targets, AT_ONCE // 2 if any(rows) else AT_ONCE)
        # Each target in turn has its best combination tried, so that none waits for another that is hopeless.
        for round in range(AT_ONCE):
            for target, row in zip(unreached, rows, strict=False):
                if round < len(row) and len(chosen) < AT_ONCE:
                    more = self._links(facts, row[round].taken)
                    if more is not None and len(links | more) <= MOST_LINKS:
                        links |= more
                        chosen.append(row[round])
                        self._tried.setdefault(target, set()).add(row[round].taken)
        if not chosen:
            return None
        steps: list[Step] = [*self._chain(links)]
        for at in range(0, len(chosen), 4):
            steps += [*chosen[at : at + 4], AwaitResponses()]
        return tuple(steps)

    def _next_firsts(self, facts: Facts, targets: Sequence[Target], most: int) -> list[Ask]:
        """Return calls with first values; those that have had the fewest come first."""
        found: list[Ask] = []
        for target in sorted(targets, key=lambda each: self._begun.get(each, 0)):
            if len(found) == most:
                break
            at = self._begun.get(target, 0)
            if at < len(params := self._first_params(facts, target)):
                found.append(Ask(target[0], params[at]))
                self._begun[target] = at + 1
        return found

    def _first_params(self, facts: Facts, target: Target) -> list[Mapping[str, Any]]:
        if target not in self._first:
            self._first[target] = _first_params(facts, target)
        return self._first[target]

    def _combinations(self, facts: Facts, target: Target) -> list[Ask]:
        """Return calls with values of others that were not tried yet, the likeliest first."""
        tried = self._tried.get(target, set())
        if len(tried) >= MOST_TRIES:
            return []
        # The second of the first values has the optional parameters, too.
        found: list[Ask] = []
        for params in self._first_params(facts, target)[:2]:
            slots = list(_slots(facts, target, params))
            ranked = [(slot, self._ranked(facts, target, slot)) for slot in slots]
            ranked = [(slot, sources) for slot, sources in ranked if sources]
            takes = []
            if len(ranked) > 1:
                takes.append(tuple(_take(slot, sources[0]) for slot, sources in ranked))
            single = [(slot, source, rank) for slot, sources in ranked for rank, source in enumerate(sources)]
            takes += [(_take(slot, source),) for slot, source, _ in sorted(single, key=lambda each: each[2])]
            if len(ranked) > 1:
                takes += [tuple(_take(slot, self._likely(sources)) for slot, sources in ranked) for _ in range(AT_ONCE)]
            new = dict.fromkeys(each for each in takes if each not in tried)
            found += [Ask(target[0], params, taken=each) for each in new]
            if len(found) >= AT_ONCE:
                break
        return found[:AT_ONCE]

    def _ranked(self, facts: Facts, target: Target, slot: _Slot) -> list[_Source]:
        """Return the places whose values a parameter may take, the likeliest first."""
        usable: list[tuple[int, int, int, _Source]] = []
        # The newest come first: what was reached last leads on.
        origins = [each for each in reversed(self._sources) if each != target and _is_usable(facts, each)]
        for order, origin in enumerate(origins[:MOST_ORIGINS]):
            for source in self._sources[origin].values():
                if source.is_secret and not slot.is_secret:
                    continue
                usable.append((-source.score(slot), order, len(usable), source))
        return [source for *_, source in sorted(usable, key=lambda each: each[:3])]

    # --- calling what is known ----------------------------------------------------------------------------------------

    def threaded(self, facts: Facts, steps: Sequence[Step]) -> tuple[list[Step], int]:
        """Return the steps of a plan with values of others in its calls, and how many calls were put in front."""
        links: dict[Target, None] = {}
        made: list[Step] = []
        for step in steps:
            if (new := self._threaded(facts, step)) is not None:
                more = self._links(facts, new.taken)
                if more is not None and len(links | more) <= MOST_LINKS:
                    links |= more
                    made.append(new)
                    continue
            made.append(step)
        chain = self._chain(links)
        return [*chain, *made], len(links)

    def _threaded(self, facts: Facts, step: Step) -> Ask | None:
        """Return a call with values of others; None if it stays as it is."""
        if not isinstance(step, Ask) or step.connection or step.headers or step.taken:
            return None
        target = _target_of(facts, step)
        way = None if target is None else self._ways.get(target)
        if target is None or way is None:
            return None
        is_picky = not way.taken and self._balance.get(target, 0) < 0
        if self._random.random() >= (USUAL if way.taken or is_picky else SELDOM):
            return None
        if target not in _targets(facts) or not self._is_meant(facts, target, step):
            return None
        if way.taken:
            return attrs.evolve(step, params=_needed(step, way), taken=way.taken)
        if is_picky:
            return self._mixed(step, self._random.choice(self._accepted[target]))
        slots = list(_slots(facts, target, step.params or {}))
        slot = self._random.choice(slots) if slots else None
        sources = self._ranked(facts, target, slot) if slot is not None else []
        if slot is None or not sources:
            return None
        return attrs.evolve(step, taken=(_take(slot, self._likely(sources)),))

    def _mixed(self, step: Ask, accepted: Ask) -> Ask:
        """Return a call with most of the arguments of one that was accepted."""
        drawn, known = step.params or {}, accepted.params or {}
        if not isinstance(known.get("arguments"), dict):
            return attrs.evolve(step, params={**drawn, **known})
        usual = {name: value for name, value in known["arguments"].items() if self._random.random() < USUAL}
        return attrs.evolve(step, params={**drawn, "arguments": {**object_of(drawn.get("arguments")), **usual}})

    def _likely(self, sources: Sequence[_Source]) -> _Source:
        """Return one of several places, mostly one of the first."""
        return sources[int(len(sources) * self._random.random() ** 2)]

    def _is_meant(self, facts: Facts, target: Target, step: Ask) -> bool:
        """Return whether a call is meant to be accepted: one that is wrong on purpose must stay as it is."""
        params = step.params or {}
        match step.method:
            case "tools/call":
                return self._is_valid(facts, target[1], params.get("arguments"))
            case "prompts/get":
                given = object_of(params.get("arguments"))
                return all(name in given for name in _needed_names(facts, target[1]))
        before, after = _simple_template(target[1]) or ("", "")
        value = str(params.get("uri"))[len(before) :].removesuffix(after)
        return NOWHERE not in value and value.replace("-", "a").replace("_", "a").isalnum()

    def _is_valid(self, facts: Facts, name: str, arguments: Any) -> bool:
        try:
            if name not in self._valid:
                self._valid[name] = None
                self._valid[name] = SchemaValidator(facts.tools[name].get("inputSchema"))
            valid = self._valid[name]
            return valid is not None and valid.problem(arguments) is None
        except SchemaError:
            return False

    def _links(self, facts: Facts, taken: Iterable[TakenValue]) -> dict[Target, None] | None:
        """Return the calls that must come before one that takes these values, in order; None if that can't be."""
        found: dict[Target, None] = {}
        pending = [(each.method, each.name) for each in taken]
        # A way takes values from older ways only, so this ends; the limit is for what is too long to be of use.
        while pending:
            target = pending.pop()
            way = self._ways.get(target)
            if way is None or not _is_usable(facts, target) or len(found) > MOST_LINKS:
                return None
            # A call that others need as well must come before all of them.
            found.pop(target, None)
            found[target] = None
            pending += [(each.method, each.name) for each in way.taken]
        return dict.fromkeys(reversed(found))

    def _chain(self, links: Iterable[Target]) -> Iterator[Step]:
        order = list(self._ways)
        for target in sorted(links, key=order.index):
            yield self._ways[target]
            yield AwaitResponses()


def _target_of(facts: Facts, step: Ask) -> Target | None:
    """Return what a request for the application's work is about; None if it is about nothing that is listed."""
    params = step.params or {}
    name = str(params.get("uri" if step.method == "resources/read" else "name"))
    known = {"tools/call": facts.tools, "prompts/get": facts.prompts, "resources/read": facts.resources}
    if step.method not in known or name in known[step.method]:
        return (step.method, name) if step.method in known else None
    for text in facts.templates if step.method == "resources/read" else ():
        before, after = _simple_template(text) or ("", "")
        if before and name.startswith(before) and name.endswith(after):
            return step.method, text
    return None


def _plain(step: Ask) -> Ask:
    """Return a call without anything that does not decide whether it is accepted."""
    params = step.params or {}
    kept = {name: params[name] for name in ("name", "arguments", "uri") if name in params}
    return Ask(step.method, kept, taken=step.taken)


def _needed(step: Ask, way: Ask) -> Mapping[str, Any]:
    """Return the parameters of a call as they were drawn, except for those that must have values of others."""
    params, known = step.params or {}, way.params or {}
    drawn, needed = params.get("arguments"), known.get("arguments")
    if not isinstance(needed, dict):
        return {**params, **known}
    names = [each.into[1] for each in way.taken if len(each.into) > 1]
    return {**params, "arguments": {**object_of(drawn), **{name: needed[name] for name in names if name in needed}}}


def _needed_names(facts: Facts, prompt: str) -> list[str]:
    """Return the names of the arguments that a prompt requires."""
    listed = objects_of(facts.prompts[prompt], "arguments")
    return [each["name"] for each in listed if each.get("required") is True and isinstance(each.get("name"), str)]


def _targets(facts: Facts) -> list[Target]:
    templates = [("resources/read", text) for text in facts.templates if _simple_template(text) is not None]
    prompts = [("prompts/get", name) for name in facts.prompts]
    return [*(("tools/call", name) for name in facts.callable_tools), *prompts, *templates]


def _is_usable(facts: Facts, target: Target) -> bool:
    known = {"tools/call": facts.callable_tools, "prompts/get": facts.prompts, "resources/read": facts.resources}
    return target[1] in known[target[0]]


def _simple_template(text: str) -> tuple[str, str] | None:
    """Return what is before and after the only variable of a URI template; None for any other."""
    before, bracket, rest = text.partition("{")
    variable, closing, after = rest.partition("}")
    is_simple = bracket and closing and variable.isidentifier() and "{" not in after and ":" in before
    return (before, after) if is_simple else None


def _first_params(facts: Facts, target: Target) -> list[Mapping[str, Any]]:
    method, name = target
    match method:
        case "tools/call":
            try:
                found = first_values(facts.tools[name].get("inputSchema"))
            except CannotGenerate:
                return []
            return [{"name": name, "arguments": each} for each in found if isinstance(each, dict)]
        case "prompts/get":
            needed = dict.fromkeys(_needed_names(facts, name), "a")
            return [{"name": name} | ({"arguments": needed} if needed else {})]
    parts = _simple_template(name)
    return [] if parts is None else [{"uri": f"{parts[0]}a{parts[1]}"}]


def _slots(facts: Facts, target: Target, params: Mapping[str, Any]) -> Iterator[_Slot]:
    """Yield the parameters of a call that may take a value: texts and integers whose schema lists no values."""
    method, name = target
    if method == "resources/read":
        if (parts := _simple_template(name)) is not None:
            variable = name[len(parts[0]) + 1 :].partition("}")[0]
            yield _Slot(("uri",), True, _words(variable), is_secret(variable), *parts)
        return
    schema = facts.tools[name].get("inputSchema") if method == "tools/call" else None
    yield from _leaves(params.get("arguments"), schema, ("arguments",), "")


def _leaves(value: Any, schema: Any, path: Place, name: str) -> Iterator[_Slot]:
    inner = schema if isinstance(schema, Mapping) else {}
    if len(path) > DEEPEST_SLOT or not inner.keys().isdisjoint(("enum", "const")):
        return
    match value:
        case dict():
            members = inner.get("properties")
            for key, each in value.items():
                below = members.get(key) if isinstance(members, Mapping) else None
                yield from _leaves(each, below, (*path, key), key)
        case list():
            for index, each in enumerate(value):
                yield from _leaves(each, inner.get("items"), (*path, index), name)
        case str():
            yield _Slot(path, True, _words(name), is_secret(name))
        case int() if not isinstance(value, bool):
            yield _Slot(path, False, _words(name), is_secret(name))


def _take(slot: _Slot, source: _Source) -> TakenValue:
    return TakenValue(slot.into, *source.target, source.place, slot.before, slot.after)


def _source(target: Target, offer: Offer) -> _Source:
    value = offer.value
    made_up = isinstance(value, int) or (len(value) > 1 and not value.isalpha() and " " not in value)
    names = [target[1], *(step for step in offer.place if isinstance(step, str))]
    around = frozenset[str]().union(*map(_words, {target[1], names[-2] if len(names) > 1 else ""}))
    return _Source(target, offer.place, isinstance(value, str), made_up, offer.is_secret, _words(names[-1]), around)


def _words(name: str) -> frozenset[str]:
    """Return the words that a name consists of, in singular as far as an ``s`` tells."""
    return frozenset(part.lower().removesuffix("s") or "s" for part in _PARTS.findall(name[:100]))


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts and numbers in a value, as texts, and the words of the texts."""
    if depth > DEEPEST_SLOT + 1:
        return
    match value:
        case dict():
            for each in value.values():
                yield from _texts(each, depth + 1)
        case list():
            for each in value:
                yield from _texts(each, depth + 1)
        case str():
            yield value
            yield from value.split()
        case int():
            yield str(value)
