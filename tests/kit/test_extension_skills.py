"""The extensions for skills and apps: healthy servers break no rule, and each rule has its occasions."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from tests.kit.held_rules import check_healthy, held
from tests.kit.mutants.extension_skills import SkilledSession
from tests.kit.mutants.server import LEGACY, MODERN, Twin
from tests.kit.mutants.targets import in_memory
from tests.kit.own import OWN
from tests.kit.transcripts import fields, messages
from trio_mcp.conformance.rules.catalogue import RULES, select
from trio_mcp.conformance.rules.extension_skills import EXTENSION
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.transcript.events import Event

OURS = ("ext-skill-*", "ext-app-*")
EVERY = {rule.id for rule in select(OURS, "server")}

once_more = pytest.mark.again


@pytest.mark.parametrize("over", ["lines", pytest.param("http", marks=once_more)])
async def test_a_healthy_server_holds_the_rules_of_the_extensions(
    over: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(SkilledSession), over) as target:
        report = await check_healthy(target, MODERN, rules=OURS, examples=40)
    assert held(report) == EVERY


@once_more
@pytest.mark.parametrize("over", ["lines", "http"])
async def test_a_healthy_server_with_the_extensions_breaks_nothing(
    over: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(SkilledSession), over) as target:
        assert (await check_healthy(target, MODERN, examples=150)).ended == "complete"


async def test_pages_are_checked_in_the_legacy_era_too(autojump_clock: trio.testing.MockClock) -> None:
    """Skills need 2026-07-28."""
    async with in_memory(Twin(SkilledSession), "lines") as target:
        report = await check_healthy(target, LEGACY[-1], rules=OURS, examples=20)
    assert held(report) == {rule.id for rule in select(["ext-app-*"], "server")}
    reasons = {outcome.status for outcome in report.outcomes if outcome.rule.id.startswith("ext-skill-")}
    assert reasons == {"not checkable"}


async def test_a_server_without_the_extensions_is_not_asked_for_them(autojump_clock: trio.testing.MockClock) -> None:
    async with in_memory(Twin(), "lines") as target:
        report = await check_healthy(target, MODERN, rules=OURS, examples=20)
    assert held(report) == set()
    asked = {outcome.rule.id for outcome in report.outcomes if outcome.status == "not exercised"}
    # These judge what any list of tools, or any call, may have.
    assert asked == {"ext-app-uri", "ext-app-visibility", "ext-app-content"}


@pytest.mark.parametrize("name", ["memory", pytest.param("http", marks=once_more)])
async def test_our_own_server_holds_the_rules_of_the_extensions(name: str) -> None:
    async with OWN[name].opened() as target:
        report = await check_healthy(target, MODERN, rules=OURS, examples=40, time=600.0)
    assert held(report) == EVERY


# --- what a rule makes of a few messages ------------------------------------------------------------------------------

URI = "skill://pen/SKILL.md"
TEXT = "---\nname: pen\ndescription: It writes.\n---\n"
DIGEST = "sha256:3d21d5b0a1e5d5ee1f1ea9a8cd7f4cd3ff0f15a4d9b6bf05f4e8c1b5c7c0a3f1"  # of something else
FILE = {"uri": URI, "digest": DIGEST, "size": 3}

Told = tuple[str, dict[str, Any]]


def entry(*files: dict[str, Any], uri: str = URI, **more: Any) -> dict[str, Any]:
    return {"uri": uri, "frontmatter": {"name": "pen", "description": "It writes."}, "resources": [*files], **more}


def exchange(number: int, method: str, answer: dict[str, Any], **params: Any) -> list[Told]:
    told = {"error": answer} if "code" in answer else {"result": {"resultType": "complete", **answer}}
    return [
        ("client", {"id": number, "method": method, "params": fields(**params)}),
        ("server", {"id": number, **told}),
    ]


def get(number: int, answer: dict[str, Any], uri: str = URI) -> list[Told]:
    return exchange(number, "skills/get", answer if "code" in answer else {"skill": answer}, uri=uri)


def read(number: int, text: str) -> list[Told]:
    return exchange(number, "resources/read", {"contents": [{"uri": URI, "text": text}]}, uri=URI)


def directory(number: int, answer: dict[str, Any], uri: str = "skill://pen") -> list[Told]:
    return exchange(number, "resources/directory/read", answer, uri=uri)


def session(*told: list[Told], settings: Any = None) -> list[Event]:
    capabilities = {"resources": {}, "extensions": {EXTENSION: settings or {}}}
    greeting = exchange(0, "server/discover", {"supportedVersions": [MODERN], "capabilities": capabilities})
    return messages(*greeting, *[message for each in told for message in each])


READS = {"directoryRead": True}
MISSING = {"code": -32602, "message": "no"}
LISTED = directory(2, {"resources": [{"uri": URI, "name": "SKILL.md"}]})
PAGE = {"name": "x", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://x"}}}


def tools(number: int) -> list[Told]:
    return exchange(number, "tools/list", {"tools": [PAGE]})


def page(number: int, answer: dict[str, Any]) -> list[Told]:
    return exchange(number, "resources/read", answer, uri="ui://x")


CASES: dict[str, tuple[list[list[Event]], list[list[Event]], list[list[Event]]]] = {
    # Transcripts that keep a rule, break it, and say nothing about it.
    "ext-skill-content": (
        [],
        [session(get(1, entry(FILE)), read(2, TEXT), get(3, entry(FILE)))],
        [
            # The skill may have been changed in between.
            session(get(1, entry(FILE)), read(2, TEXT), get(3, entry(FILE | {"size": 4}))),
            session(get(1, entry(FILE)), read(2, TEXT)),
            session(read(2, TEXT), get(3, entry(FILE))),
        ],
    ),
    "ext-skill-found": (
        [session(get(1, entry(FILE)))],
        [
            session(get(1, entry(FILE)), get(2, MISSING), get(3, entry(FILE))),
            session(get(1, entry(FILE, uri="skill://ink/SKILL.md"))),
        ],
        # The skill may have gone.
        [session(get(1, entry(FILE)), get(2, MISSING)), session(get(2, MISSING), get(3, entry(FILE)))],
    ),
    "ext-skill-methods": (
        [session(get(1, MISSING)), session(directory(1, MISSING), settings=READS)],
        [
            session(get(1, MISSING | {"code": -32601})),
            session(directory(1, MISSING | {"code": -32601}), settings=READS),
        ],
        [session(directory(1, MISSING | {"code": -32601}))],
    ),
    "ext-skill-directory": (
        [session(get(1, entry(FILE)), LISTED, get(3, entry(FILE)), settings=READS)],
        [session(get(1, entry(FILE)), directory(2, MISSING), get(3, entry(FILE)), settings=READS)],
        [
            session(get(1, entry(FILE)), directory(2, MISSING), get(3, entry(FILE))),
            session(get(1, entry(FILE)), directory(2, MISSING), settings=READS),
        ],
    ),
    "ext-skill-children": (
        [
            session(get(1, entry(FILE)), LISTED, get(3, entry(FILE)), settings=READS),
            # A further page may have the rest.
            session(
                get(1, entry(FILE)),
                directory(2, {"resources": [], "nextCursor": "1"}),
                get(3, entry(FILE)),
                settings=READS,
            ),
        ],
        [
            session(get(1, entry(FILE)), directory(2, {"resources": []}), get(3, entry(FILE)), settings=READS),
            session(directory(2, {"resources": [{"uri": "skill://ink/SKILL.md", "name": "x"}]}), settings=READS),
        ],
        [session(LISTED)],
    ),
    "ext-app-exists": (
        [session(tools(1), page(2, {"contents": [{"uri": "ui://x", "text": "x"}]}))],
        [session(tools(1), page(2, MISSING)), session(tools(1), page(2, {"contents": []}))],
        [session(page(2, MISSING))],
    ),
    "ext-app-html": (
        [
            session(tools(1), page(2, {"contents": [{"text": f"{before}<!DOCTYPE html><p>x"}]}))
            for before in ("", "\n", "\ufeff", "<!-- a\ncomment -->\n")
        ],
        [session(tools(1), page(2, {"contents": [{"text": "<html>"}]}))],
        [session(tools(1), page(2, {"contents": [{"blob": "PGh0bWw+"}]}))],
    ),
}


@pytest.mark.parametrize("rule", CASES)
def test_judges(rule: str) -> None:
    kept, wrong, silent = [[[*RULES[rule].judge(History(each))] for each in group] for group in CASES[rule]]
    assert all(kept)
    assert all(wrong)
    assert not any(each.problem for found in kept for each in found)
    assert all(any(each.problem for each in found) for found in wrong)
    assert not any(each.problem for found in silent for each in found)
