"""`check_client`: clients against generated servers."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests import forks
from trio_mcp import Answers, Client, TransportError, TrioMcpError, types
from trio_mcp.client.targets import Target
from trio_mcp.conformance.clients import check_client, preview_client
from trio_mcp.extensions import Tasks
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, LEGACY_REVISIONS, REVISIONS

DAILY = {LATEST_LEGACY, LATEST_MODERN}
"""The revisions that are tried every day."""

ARGUMENTS = {"a": 1, "b": 2, "text": "x", "where": "here", "on": True}


async def use_everything(target: Target) -> None:
    """List and use whatever the server offers, some of it at the same time, and give one call up."""

    async def elicit(params: Any) -> types.ElicitResult:
        content = None if params.mode == "url" else {"name": "me", "age": 3}
        return types.ElicitResult(action="accept", content=content)

    async def sample(params: Any) -> str:
        return "hello"

    async def show(*_: Any) -> None:
        pass

    async def attempt(call: Callable[..., Any], *args: Any, **more: Any) -> None:
        try:
            await call(*args, **more)
        except TrioMcpError:
            pass

    async def everything(pages: Callable[[], AsyncIterator[Any]]) -> list[Any]:
        try:
            return [item async for item in pages()]
        except TrioMcpError:
            return []

    answers = Answers(elicitation=elicit, sampling=sample, roots=[Path("/tmp")])
    async with Client(target, answers=answers, timeout=3, extensions=[Tasks()]) as client:
        tools = [tool.name for tool in await everything(client.iter_tools)]
        async with trio.open_nursery() as nursery:
            for name in tools[:3]:
                nursery.start_soon(lambda name=name: attempt(client.call_tool, name, ARGUMENTS, on_progress=show))
        with trio.move_on_after(0.01):
            await attempt(client.call_tool, tools[0] if tools else "none", ARGUMENTS)
        for prompt in await everything(client.iter_prompts):
            await attempt(client.get_prompt, prompt.name, {"who": "me"})
        for resource in await everything(client.iter_resources):
            await attempt(client.read_resource, resource.uri)


@pytest.mark.parametrize(
    "revision",
    [each if each in DAILY else pytest.param(each, marks=pytest.mark.long) for each in REVISIONS],
)
async def test_our_client_keeps_every_rule(revision: str, autojump_clock: MockClock) -> None:
    """In memory, in each revision."""
    report = await check_client(use_everything, revisions=[revision], examples=60, seed=7)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    assert sum(outcome.status == "held" for outcome in report.outcomes) >= 15
    assert report.examples == 60
    assert report.info.startswith("trio_mcp ")


@pytest.mark.again
async def test_our_client_keeps_every_rule_over_http() -> None:
    """As a command that is started for each example."""
    command = forks.command("tests.kit.client_program", "tests.kit.client_program", *forks.LOADED)
    report = await check_client(command, examples=12, seed=3)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    assert sum(outcome.status == "held" for outcome in report.outcomes) > 25
    assert report.transport == "http"


@pytest.mark.again
async def test_the_same_seed_gives_the_same_check(autojump_clock: MockClock) -> None:
    """Of a client that does one thing at a time: the order of its tasks would be Trio's to choose."""

    async def call_tools(target: Target) -> None:
        async with Client(target, timeout=3) as client:
            try:
                for tool in [tool async for tool in client.iter_tools()]:
                    await client.call_tool(tool.name, ARGUMENTS)
            except TrioMcpError:
                pass

    first, second = [await check_client(call_tools, examples=20, seed=5) for _ in range(2)]
    assert first.requests == second.requests
    assert [(o.rule.id, o.occasions) for o in first.outcomes] == [(o.rule.id, o.occasions) for o in second.outcomes]


async def test_a_client_that_fails_hangs_or_does_not_connect_is_reported(autojump_clock: MockClock) -> None:
    """As a note, as the end of the check, or as an error; never by hanging."""

    async def fails(target: Target) -> None:
        async with Client(target):
            raise LookupError("no such luck")

    async def hangs(target: Target) -> None:
        async with Client(target):
            await trio.sleep_forever()

    async def stays_away(target: Target) -> None:
        await trio.lowlevel.checkpoint()

    assert (await check_client(fails, examples=3)).notes == ("in 3 of 3 examples it raised LookupError: no such luck",)
    report = await check_client(hangs, examples=3, time=1000)
    assert report.ended == "target hangs"
    with pytest.raises(TransportError, match="did not connect: it ended without an error"):
        await check_client(stays_away)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["./nonesuch"], "can't start './nonesuch': no such file"),
        (
            [sys.executable, "-c", "raise SystemExit('not today')"],
            "did not connect: it exited with status 1: not today",
        ),
    ],
)
async def test_a_command_that_can_not_run_is_an_error(command: list[str], says: str) -> None:
    """One line, which says what happened."""
    with pytest.raises(TransportError, match=says):
        await check_client(command, examples=3)


@pytest.mark.parametrize("field", ["Origin", "Host"])
async def test_what_a_web_page_asks_is_not_of_the_client(field: str) -> None:
    """A page that has found the port, or whose name was made to lead there, can spoil no check."""
    value = "http://evil.example"[7 * (field == "Host") :]
    page = (
        "import sys, urllib.request as http\n"
        f"http.urlopen(http.Request(sys.argv[1], b'{{}}', {{{field!r}: {value!r}}}))"
    )
    with pytest.raises(TransportError, match=r"did not connect: .* HTTP Error 403"):
        await check_client([sys.executable, "-c", page], examples=3)


async def test_a_preview_starts_nothing() -> None:
    """It names the rules, and how requests would be met."""
    preview = await preview_client(["./nonesuch"], rules=["cursor-*"])
    assert {rule.id for rule in preview.rules} >= {"cursor-echoed", "cursor-not-kept"}
    assert set(preview.moves) == {LATEST_LEGACY, LATEST_MODERN}
    with pytest.raises(ValueError, match="did you mean 'cursor-echoed'"):
        await preview_client(["./nonesuch"], rules=["cursor-echo"])
    with pytest.raises(ValueError, match=r"revisions must be .*2030-01-01"):
        await preview_client(["./nonesuch"], revisions=["2030-01-01", *LEGACY_REVISIONS])
