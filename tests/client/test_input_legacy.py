"""What a client declares in each revision, and what it answers to requests that it has not declared."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.client.asking import DONE, asking, form, rounds, sample
from tests.client.scripted import scripted
from tests.peer import Peer, played
from trio_mcp import Answers, Client, McpError, TransportError, types
from trio_mcp.client.connection import merged
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Request
from trio_mcp.types import meta

NAME = form(name={"type": "string"})


async def test_a_request_without_a_callback_is_an_unknown_method() -> None:
    """2025-11-25 `client/roots`, Error Handling: -32601."""
    async with asking(answers=Answers(sampling=lambda params: "hi")) as (_, server):
        for method in ("roots/list", "elicitation/create"):
            assert await server.ask(method, {}) == ErrorData(-32601, f"unknown method {method!r}")
        assert (await server.ask("sampling/createMessage", sample()))["model"] == "unknown"


async def test_a_callback_may_call_the_server_meanwhile() -> None:
    """The reader waits for no callback, so the server's answer reaches it."""
    clients: list[Client] = []

    async def elicit(params: Any) -> Any:
        return await clients[0].request("acme/echo", {"name": "Ada"})

    async with asking(answers=Answers(elicitation=elicit)) as (client, server):
        clients.append(client)
        with trio.fail_after(10):
            answer = await server.ask("elicitation/create", NAME)
    assert answer == {"action": "accept", "content": {"name": "Ada"}}


async def test_a_server_that_asks_before_the_handshake_is_refused() -> None:
    """2025-11-25 `basic/lifecycle`, Initialization: only pings and log messages come before."""
    refused: list[ErrorData] = []

    async def ask_too_early(wire: Peer) -> None:
        assert (await wire.expect(Request)).method == "initialize"
        await wire.send(Request(1, "elicitation/create", NAME))
        refused.append((await wire.expect(ErrorResponse)).error)
        await wire.close()

    answers = Answers(elicitation=lambda params: pytest.fail("the callback was called"))
    with pytest.raises(TransportError):
        async with Client(played(ask_too_early), mode="legacy", answers=answers):
            pytest.fail("connected without a handshake")
    assert refused == [ErrorData(-32600, "the handshake is not complete")]


async def test_an_elicitation_that_must_come_first_is_raised_with_its_data() -> None:
    """2025-11-25 `client/elicitation`, URL Elicitation Required Error."""
    visit = {"mode": "url", "elicitationId": "e1", "url": "https://example.org/connect", "message": "Please connect"}
    error = ErrorData(types.URL_ELICITATION_REQUIRED, "connect first", {"elicitations": [visit]})
    async with scripted({"tools/call": error}, capabilities={"tools": {}}) as (client, _, _wire):
        with pytest.raises(McpError) as caught:
            await client.call_tool("x")
    assert caught.value.code == -32042
    needed = types.ElicitationRequiredErrorData.from_wire(caught.value.data)
    assert [(each.elicitation_id, each.url) for each in needed.elicitations] == [("e1", "https://example.org/connect")]


# --- what a client declares, revision by revision --------------------------------------------------------------------


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
            "sampling_features must be a list of values from",
        ),
        ({"sampling": print, "sampling_features": "tools"}, TypeError, "sampling_features"),
        ({"roots": "file:///x"}, TypeError, "roots must be a list of Root objects, Paths or file:// URIs; got str"),
        ({"roots": [5]}, TypeError, "a root must be a Root, a Path or a file:// URI; got int"),
        ({"roots": ["/home"]}, ValueError, r"must be a file:// URI, got '/home'; pass a path as pathlib.Path\('/home'"),
        ({"max_input_rounds": 0}, ValueError, "max_input_rounds must be at least 1, got 0"),
    ],
)
def test_answers_that_are_wrong(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Answers(**arguments)
