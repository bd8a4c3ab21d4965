"""What a client declares follows from its callbacks, revision by revision."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.asking import DONE, asking, rounds
from trio_mcp import Answers, types
from trio_mcp.client.connection import merged
from trio_mcp.types import meta

EVERYTHING = Answers(
    elicitation=lambda params: None, sampling=lambda params: "hi", sampling_features=("tools", "context"), roots=[]
)


async def declared(revision: str, **arguments: Any) -> Any:
    if revision == "2026-07-28":
        async with rounds(DONE, **arguments) as (client, asked):
            await client.call_tool("x")
            return (asked[0].params or {})["_meta"][meta.CLIENT_CAPABILITIES]
    async with asking(revision, **arguments) as (_, server):
        assert server.opening is not None
        return (server.opening.params or {})["capabilities"]


@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        ("2024-11-05", {"roots": {"listChanged": True}, "sampling": {}}),
        ("2025-03-26", {"roots": {"listChanged": True}, "sampling": {}}),
        ("2025-06-18", {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}}),
        (
            "2025-11-25",
            {
                "roots": {"listChanged": True},
                "sampling": {"tools": {}, "context": {}},
                "elicitation": {"form": {}, "url": {}},
            },
        ),
        (
            "2026-07-28",
            {"roots": {}, "sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}}},
        ),
    ],
)
async def test_each_revision_gets_what_it_knows(revision: str, expected: dict[str, Any]) -> None:
    assert await declared(revision, answers=EVERYTHING) == expected
    assert await declared(revision) == {}


@pytest.mark.parametrize(
    ("modes", "old", "new"),
    [
        (("form",), {"elicitation": {}}, {"elicitation": {"form": {}}}),
        (["url"], {}, {"elicitation": {"url": {}}}),
        ({"url", "form"}, {"elicitation": {}}, {"elicitation": {"form": {}, "url": {}}}),
    ],
)
async def test_the_modes_of_elicitation_can_be_chosen(modes: Any, old: Any, new: Any) -> None:
    chosen = Answers(elicitation=lambda params: None, elicitation_modes=modes)
    assert await declared("2025-06-18", answers=chosen) == old
    assert await declared("2025-11-25", answers=chosen) == new
    assert await declared("2026-07-28", answers=chosen) == new


async def test_plain_sampling_and_more_capabilities() -> None:
    more = types.ClientCapabilities(experimental={"acme": {"x": 1}}, elicitation=types.ElicitationCapability(url={}))
    given = await declared("2026-07-28", answers=Answers(sampling=lambda params: "hi"), capabilities=more)
    assert given == {"sampling": {}, "experimental": {"acme": {"x": 1}}, "elicitation": {"url": {}}}
    joined = await declared(
        "2025-11-25", answers=Answers(roots=[]), capabilities={"roots": {"acme": True}, "extensions": {"a/b": {}}}
    )
    assert joined == {"roots": {"listChanged": True, "acme": True}, "extensions": {"a/b": {}}}


def test_joining_changes_neither_part() -> None:
    first, second = {"a": {"b": {}}, "c": True}, {"a": {"b": {"d": 1}}, "c": {"e": 2}}
    assert merged(first, second) == {"a": {"b": {"d": 1}}, "c": {"e": 2}}
    assert (first, second) == ({"a": {"b": {}}, "c": True}, {"a": {"b": {"d": 1}}, "c": {"e": 2}})


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"elicitation": "yes"}, TypeError, "elicitation must be callable, got str"),
        ({"sampling": 5}, TypeError, "sampling must be callable, got int"),
        ({"elicitation": print, "elicitation_modes": ()}, ValueError, "elicitation_modes must not be empty"),
        ({"elicitation": print, "elicitation_modes": "form"}, TypeError, "elicitation_modes"),
        (
            {"sampling": print, "sampling_features": ("vision",)},
            ValueError,
            "sampling_features must be a list of some of",
        ),
        ({"sampling": print, "sampling_features": "tools"}, TypeError, "sampling_features"),
        ({"roots": "file:///x"}, TypeError, "roots must be a list of Root, Path or file:// URI; got str"),
        ({"roots": [5]}, TypeError, "a root must be a Root, a Path or a file:// URI; got int"),
        ({"roots": ["/home"]}, ValueError, r"must be a file:// URI, got '/home'; pass a path as pathlib.Path\('/home'"),
        ({"max_input_rounds": 0}, ValueError, "max_input_rounds must be at least 1, got 0"),
    ],
)
def test_answers_that_are_wrong(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Answers(**arguments)
