"""Moves that make unusual requests: unknown names, nearly valid arguments, progress, logging, many calls at once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.messages import alive
from trio_mcp.conformance.plans.moves.model import move, one_of
from trio_mcp.conformance.rules.utilities import LEVELS
from trio_mcp.conformance.steps import Ask, AwaitResponses, Continue, Plan
from trio_mcp.testing.strategies import CannotGenerate, from_schema, near_valid
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS

__all__ = ["NOWHERE", "calls"]

NOWHERE = "nowhere-to-be-found"
"""A part of each name or URI that the kit makes up for a tool, prompt or resource that does not exist."""

_WORDS = st.text("abcdefghijklmnopqrstuvwxyz", max_size=6)
_LEVELS = st.sampled_from(LEVELS)


def calls(facts: Facts, **more: Any) -> st.SearchStrategy[Ask]:
    """Return a strategy for valid calls of the tools that may be called."""
    choices = []
    for name in facts.callable_tools:
        with contextlib.suppress(CannotGenerate):
            choices.append(st.builds(_call, st.just(name), from_schema(facts.tools[name].get("inputSchema"))))
    return st.one_of(choices).map(lambda params: Ask("tools/call", params, **more))


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@move(needs=["callable_tools"], weight=3)
def call_with_progress(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool, and ask for its progress."""
    return calls(facts, token=True).map(lambda call: (call,))


@move(needs=["callable_tools", "capability:logging"])
def call_with_logging(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool, and ask for log messages at some level."""
    if facts.modern:
        with_level = _LEVELS.flatmap(lambda level: calls(facts, meta={meta.LOG_LEVEL: level}))
        return with_level.map(lambda call: (call,))
    return st.builds(
        lambda level, call: (Ask("logging/setLevel", {"level": level}), AwaitResponses(), call), _LEVELS, calls(facts)
    )


@move(needs=["callable_tools"])
def call_near_valid(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool with arguments that break one keyword of its schema."""
    choices = []
    for name in facts.callable_tools:
        with contextlib.suppress(CannotGenerate):
            values = near_valid(facts.tools[name].get("inputSchema")).map(lambda near: near.value)
            # Only an object can hold arguments; `malformed-params` tries values of other types.
            choices.append(st.builds(_call, st.just(name), values.filter(lambda value: isinstance(value, dict))))
    return st.one_of(choices).map(lambda params: (Ask("tools/call", params),))


@move(needs=["capability:tools"])
def call_unknown_tool(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool that does not exist."""
    return _WORDS.map(lambda word: (Ask("tools/call", {"name": f"{NOWHERE}{word}", "arguments": {}}),))


@move(needs=["callable_tools"], weight=3)
def calls_at_once(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call several tools at once, and send a quick request right after."""
    return st.lists(calls(facts), min_size=2, max_size=6).map(lambda found: (*found, alive(facts), AwaitResponses()))


@move(needs=["callable_tools"], weight=1)
def call_and_wait(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call the same tool twice, one after the other."""
    return calls(facts).map(lambda call: (call, AwaitResponses(), call, AwaitResponses()))


_OPTIONAL: Mapping[str, st.SearchStrategy[Any]] = {
    "roots": st.just({}),
    "sampling": st.sampled_from([{}, {"tools": {}}, {"context": {}}]),
    "elicitation": st.sampled_from([{}, {"form": {}}, {"url": {}}, {"form": {}, "url": {}}]),
}


@move(revisions=MODERN_REVISIONS, needs=["callable_tools"], weight=3)
def call_with_capabilities(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool as a client that declares only some capabilities."""
    declared = st.one_of(st.just({}), st.fixed_dictionaries({}, optional=dict(_OPTIONAL)))
    return declared.flatmap(
        lambda found: calls(facts, meta={meta.CLIENT_CAPABILITIES: found}).map(lambda call: (call, AwaitResponses()))
    )


@move(revisions=MODERN_REVISIONS, needs=["callable_tools"], weight=3)
def continue_rounds(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool, and answer its requests for input: correctly, wrongly, not at all, or with a changed state."""
    # Most answers are valid, because only a valid answer leads to the next round, if there is one.
    hows = st.lists(st.sampled_from(["valid", "valid", "wrong", "none", "state"]), min_size=1, max_size=3)

    def answer(call: Ask, found: list[Any]) -> Plan:
        return (call, *[step for how in found for step in (AwaitResponses(), Continue(-1, how))])

    return st.builds(answer, calls(facts), hows)


# --- resources, prompts, completion -----------------------------------------------------------------------------------


@move(needs=["capability:resources"])
def read_unknown_resource(facts: Facts) -> st.SearchStrategy[Plan]:
    """Read a resource that does not exist."""
    schemes = sorted({uri.split(":")[0] for uri in facts.resources if ":" in uri} - {"http", "https"})
    # The server's own schemes are used, too: a server may refuse a foreign one at once, before it looks anything up.
    # http is left out, because a server might fetch it.
    known = [f"{scheme}:///{NOWHERE}" for scheme in schemes]
    made_up = st.sampled_from([f"{NOWHERE}://x/", f"{NOWHERE}:", *known])
    return st.builds(lambda uri, word: (Ask("resources/read", {"uri": uri + word}),), made_up, _WORDS)


@move(needs=["capability:resources"], weight=1)
def read_odd_uri(facts: Facts) -> st.SearchStrategy[Plan]:
    """Read strings that are not URIs, and URIs that lead out of a folder."""
    # One path is plain and one is percent-encoded: a server that checks the path before decoding it misses the encoded
    # one. `/etc/passwd` holds no secrets, so reading it does no harm.
    climbing = ["file:///../../../../../../etc/passwd", "file:///%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd"]
    for uri in facts.resources:
        if uri.startswith("file:///"):
            climbing.append(uri.rpartition("/")[0] + "/.." * (uri.count("/") + 2) + "/etc/passwd")
    odd = st.sampled_from(["", "no uri", "://", "\x00", "%", "file://", "//x/y", "a b:c", *climbing])
    return odd.map(lambda uri: (Ask("resources/read", {"uri": uri}),))


@move(needs=["capability:prompts"])
def get_unknown_prompt(facts: Facts) -> st.SearchStrategy[Plan]:
    """Get a prompt that does not exist."""
    return _WORDS.map(lambda word: (Ask("prompts/get", {"name": f"{NOWHERE}{word}"}),))


@move(needs=["prompts"])
def prompt_without_arguments(facts: Facts) -> st.SearchStrategy[Plan]:
    """Get a prompt without the arguments that it requires."""
    names = [name for name, prompt in sorted(facts.prompts.items()) if any(_required(prompt))]
    return one_of(names).map(lambda name: (Ask("prompts/get", {"name": name}),))


def _required(prompt: Mapping[str, Any]) -> list[bool]:
    return [each.get("required") is True for each in prompt.get("arguments") or () if isinstance(each, Mapping)]


@move(needs=["capability:completions"])
def complete(facts: Facts) -> st.SearchStrategy[Plan]:
    """Ask for completions for an argument of a prompt, or for a variable of a resource template."""
    places = [
        ({"type": "ref/prompt", "name": name}, argument["name"])
        for name, prompt in sorted(facts.prompts.items())
        for argument in prompt.get("arguments") or ()
    ]
    for template in sorted(facts.templates):
        # The first variable (RFC 6570) is read by hand: the template may use operators that the library does not
        # expand.
        inside = template.partition("{")[2].partition("}")[0].lstrip("+#./;?&").split(",")[0].rstrip("*")
        if inside:
            places.append(({"type": "ref/resource", "uri": template}, inside))
    values = st.text("abcdefghijklmnopqrstuvwxyz", max_size=4)
    return st.builds(lambda place, value: (_completion(place[0], place[1], value),), one_of(places), values)


def _completion(ref: dict[str, Any], name: str, value: str) -> Ask:
    return Ask("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}})


@move(weight=1)
def complete_unknown(facts: Facts) -> st.SearchStrategy[Plan]:
    """Ask for completions for a prompt or a resource that does not exist."""
    refs = st.sampled_from(
        [{"type": "ref/prompt", "name": NOWHERE}, {"type": "ref/resource", "uri": f"{NOWHERE}://{{x}}"}]
    )
    return refs.map(lambda ref: (_completion(ref, "x", ""),))


# --- logging, versions ------------------------------------------------------------------------------------------------


@move(revisions=LEGACY_REVISIONS, needs=["capability:logging"], weight=1)
def set_level(facts: Facts) -> st.SearchStrategy[Plan]:
    """Set the level of log messages for the whole session."""
    return _LEVELS.map(lambda level: (Ask("logging/setLevel", {"level": level}), AwaitResponses()))


@move(needs=["capability:logging"], weight=1)
def bad_log_level(facts: Facts) -> st.SearchStrategy[Plan]:
    """Ask for log messages at a level that does not exist."""
    if not facts.modern:
        return st.just((Ask("logging/setLevel", {"level": "loud"}),))
    methods = [f"{kind}/list" for kind in ("tools", "prompts", "resources") if facts.declares(kind)]
    found = st.sampled_from(methods or ["server/discover"])
    return found.map(lambda method: (Ask(method, meta={meta.LOG_LEVEL: "loud"}),))


@move(revisions=MODERN_REVISIONS)
def unsupported_version(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a request in a revision that does not exist."""
    versions = st.sampled_from(["1900-01-01", "2999-12-31", "x", ""])
    methods = st.sampled_from(_modern_methods(facts))
    return st.builds(
        lambda version, method: (Ask(method, meta={meta.PROTOCOL_VERSION: version}), alive(facts)), versions, methods
    )


@move(revisions=MODERN_REVISIONS)
def incomplete_meta(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a request that lacks an entry of the metadata that each request must have."""
    keys = st.sampled_from([meta.CLIENT_CAPABILITIES, meta.PROTOCOL_VERSION])
    methods = st.sampled_from(_modern_methods(facts))
    return st.builds(lambda key, method: (Ask(method, meta={key: None}), alive(facts)), keys, methods)


@move(revisions=MODERN_REVISIONS, weight=1)
def less_meta(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a request without the client's name and version in its metadata, which are optional."""
    methods = st.sampled_from(_modern_methods(facts))
    return methods.map(lambda method: (Ask(method, meta={meta.CLIENT_INFO: None}),))


def _modern_methods(facts: Facts) -> list[str]:
    return ["server/discover", *[f"{kind}/list" for kind in ("tools", "prompts", "resources") if facts.declares(kind)]]


@move(needs=["callable_tools"], weight=1)
def call_in_other_case(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool by its name with the letters in a different case."""
    # Only the names of tools that may be called are used, because a server that ignores case runs the tool.
    names = {name: [name.upper(), name.lower(), name.title()] for name in facts.callable_tools}
    others = sorted({other for found in names.values() for other in found if other not in facts.tools})
    return one_of(others).map(lambda name: (Ask("tools/call", {"name": name, "arguments": {}}),))
