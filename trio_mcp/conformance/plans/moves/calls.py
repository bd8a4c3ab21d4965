"""The moves of a client that follows all rules: it reads lists and resources, calls tools, gets prompts, and pings."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import attrs
from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.lists import declared_lists
from trio_mcp.conformance.plans.moves.model import move, one_of
from trio_mcp.conformance.steps import Ask, AwaitResponses, NextPage, Open, Plan
from trio_mcp.testing.strategies.schemas import from_schema
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS
from trio_mcp.uri_templates import UriTemplate

__all__ = [
    "call_tool",
    "call_without_capabilities",
    "discover",
    "get_prompt",
    "list_all",
    "ping",
    "read_resource",
    "read_template",
]

# These texts are readable in a report, and hardly ever repeat in a check.
_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=40)
_SEGMENTS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=12)


@move(needs=["callable_tools"], weight=12)
def call_tool(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool with valid arguments."""

    def call(name: str, arguments: Mapping[str, Any], token: bool) -> Plan:
        return (Ask("tools/call", {"name": name, "arguments": arguments}, token=token),)

    return st.one_of(
        [
            st.builds(call, st.just(name), from_schema(facts.tools[name].get("inputSchema")), st.booleans())
            for name in facts.callable_tools
        ]
    )


@move(revisions=LEGACY_REVISIONS, needs=["callable_tools"], weight=1)
def call_without_capabilities(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call tools as a client that declares no capabilities, so that no tool may send it requests."""
    several = st.lists(call_tool.make(facts), min_size=1, max_size=6)
    return several.map(
        lambda found: (
            # The calls need another connection, to which the number -1 refers: the legacy era declares capabilities
            # once, in the handshake, and the main connection declares all of them.
            Open(capabilities={}),
            *[attrs.evolve(step, connection=-1) for plan in found for step in plan if isinstance(step, Ask)],
            AwaitResponses(),
        )
    )


@move(needs=["resources"], weight=4)
def read_resource(facts: Facts) -> st.SearchStrategy[Plan]:
    """Read a resource that is listed."""
    # The URIs are sorted, as lists are in other moves: a seed must give the same plans whatever the order of a list.
    uris = st.sampled_from(sorted(facts.resources))
    return st.builds(lambda uri, token: (Ask("resources/read", {"uri": uri}, token=token),), uris, st.booleans())


@move(needs=["pages"])
def ext_app_page(facts: Facts) -> st.SearchStrategy[Plan]:
    """Read the page of a tool, which need not be listed."""
    return st.sampled_from(facts.pages).map(lambda uri: (Ask("resources/read", {"uri": uri}),))


@move(needs=["templates"], weight=4)
def read_template(facts: Facts) -> st.SearchStrategy[Plan]:
    """Read a resource that a template describes, whether it exists or not."""

    def read(template: UriTemplate, values: list[str]) -> Plan:
        # The values are made up, as the existing ones can't be known; a resource that does not exist must be refused
        # properly.
        names = dict(zip(template.variables, values, strict=True))
        return (Ask("resources/read", {"uri": template.expand(names)}),)

    return st.one_of(
        [
            st.builds(read, st.just(each), st.lists(_SEGMENTS, min_size=(n := len(each.variables)), max_size=n))
            for each in _templates(facts)
        ]
    )


def _templates(facts: Facts) -> list[UriTemplate]:
    found = []
    for text in facts.templates:
        with contextlib.suppress(TypeError, ValueError):  # The library does not support every level of URI template.
            found.append(UriTemplate(text))
    return found


@move(needs=["prompts"], weight=4)
def get_prompt(facts: Facts) -> st.SearchStrategy[Plan]:
    """Get a prompt with all arguments that it requires, and sometimes with optional ones."""

    def get(name: str, required: Mapping[str, str], more: Mapping[str, str]) -> Plan:
        arguments = {**required, **more}
        return (Ask("prompts/get", {"name": name} | ({"arguments": arguments} if arguments else {})),)

    return st.one_of(
        [
            st.builds(
                get,
                st.just(name),
                st.fixed_dictionaries(dict.fromkeys(_arguments(prompt, True), _TEXTS)),
                st.fixed_dictionaries({}, optional=dict.fromkeys(_arguments(prompt, False), _TEXTS)),
            )
            for name, prompt in sorted(facts.prompts.items())
        ]
    )


def _arguments(prompt: Mapping[str, Any], required: bool) -> list[str]:
    listed = prompt.get("arguments")
    return [
        each["name"]
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and isinstance(each.get("name"), str) and (each.get("required") is True) == required
    ]


@move(weight=2)
def list_all(facts: Facts) -> st.SearchStrategy[Plan]:
    """Request a list that the server has declared, and sometimes its next page."""
    return st.builds(
        lambda method, more: (Ask(method), AwaitResponses(), NextPage()) if more else (Ask(method),),
        one_of(declared_lists(facts)),
        st.booleans(),
    )


@move(revisions=LEGACY_REVISIONS, weight=1)
def ping(facts: Facts) -> st.SearchStrategy[Plan]:
    """Ping the server."""
    return st.builds(lambda token: (Ask("ping", token=token),), st.booleans())


@move(revisions=MODERN_REVISIONS, weight=1)
def discover(facts: Facts) -> st.SearchStrategy[Plan]:
    """Ask what the server supports, which a client may do at any time."""
    return st.just((Ask("server/discover"),))
