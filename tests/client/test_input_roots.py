"""A server asks where it may work (`client/roots`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.client.asking import DONE, MODERN, answered, asking, asks, request, rounds
from tests.tables import each_of
from trio_mcp import Answers, Client, InputError, LocalProtocolError, Server, types
from trio_mcp.jsonrpc.messages import ErrorData, Notification


async def ask(era: str, roots: Any, params: Any = None) -> Any:
    return await answered(era, "roots/list", params, Answers(roots=roots))


@pytest.mark.parametrize("era", ["2024-11-05", "2025-11-25", MODERN])
@pytest.mark.parametrize("params", [None, {}, {"_meta": {"a/b": 1}}])
async def test_roots_of_each_kind(era: str, params: Any) -> None:
    given = [types.Root(uri="file:///a/b", name="Project"), Path("/home/a b"), "file:///c%20d", Path("here/../there")]
    assert await ask(era, given, params) == {
        "roots": [
            {"uri": "file:///a/b", "name": "Project"},
            {"uri": "file:///home/a%20b"},
            {"uri": "file:///c%20d"},
            {"uri": (Path.cwd() / "there").as_uri()},
        ]
    }
    assert await ask(era, [], params) == {"roots": []}


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
async def test_a_function_is_asked_each_time(era: str) -> None:
    async def later() -> list[Path]:
        await trio.lowlevel.checkpoint()
        return [Path("/later")]

    assert await ask(era, lambda: (Path("/now"),)) == {"roots": [{"uri": "file:///now"}]}
    assert await ask(era, later) == {"roots": [{"uri": "file:///later"}]}


NO_ROOTS = "https://example.org/ | file:/one/slash | /a/path | file:///a/../b | file:///a/%2e%2E/b | file://[::1/a"


@each_of("root", NO_ROOTS, "", "file:///a b", "file:///a\nb")
async def test_what_is_not_a_root(root: str, caplog: pytest.LogCaptureFixture) -> None:
    """Only file:// URIs, and none that leads elsewhere (sections Root and Security Considerations)."""
    with pytest.raises(ValueError, match="root"):
        Client(Server("x"), answers=Answers(roots=[root]))
    with pytest.raises(ValueError, match="root"):
        Client(Server("x"), answers=Answers(roots=[types.Root(uri=root)]))
    assert await ask("2025-11-25", lambda: [root]) == ErrorData(-32603, "internal error in 'roots/list'")
    assert "root" in caplog.text
    refused = await ask(MODERN, lambda: [root])
    assert isinstance(refused, InputError)
    assert "root" in str(refused)


async def test_a_legacy_server_is_told_of_changed_roots() -> None:
    async with asking(answers=Answers(roots=["file:///old"])) as (client, server):
        await client.set_roots([Path("/new")])
        assert await server.ask("roots/list") == {"roots": [{"uri": "file:///new"}]}
        assert server.heard[1:] == [Notification("notifications/roots/list_changed")]
        with pytest.raises(ValueError, match="must be a file:// URI"):
            await client.set_roots(["http://example.org"])
        assert await server.ask("roots/list") == {"roots": [{"uri": "file:///new"}]}
        await client.set_roots(lambda: [Path("/made")])
        assert await server.ask("roots/list") == {"roots": [{"uri": "file:///made"}]}
        assert (len(server.heard), server.questions) == (3, [])  # with notifications/initialized


async def test_a_modern_server_is_not_told() -> None:
    """2026-07-28 has no notifications/roots/list_changed."""
    async with rounds(asks(r=request("roots/list")), DONE, answers=Answers(roots=[])) as (client, asked):
        await client.set_roots([Path("/new")])
        await client.call_tool("x")
    assert (asked[1].params or {})["inputResponses"] == {"r": {"roots": [{"uri": "file:///new"}]}}
    assert [each.method for each in asked] == ["tools/call"] * 2


async def test_roots_can_be_set_before_connecting_and_only_if_declared() -> None:
    client = Client(Server("x"), answers=Answers(roots=[]))
    await client.set_roots([Path("/x")])
    async with asking() as (client, _):
        with pytest.raises(LocalProtocolError, match=r"has declared no roots: make it with answers=Answers\(roots="):
            await client.set_roots([])
