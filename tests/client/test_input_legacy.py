"""Requests of a legacy server for input: they run in the session's limits, and each fails for itself."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from tests.client.asking import asking, form, sample
from tests.client.scripted import scripted
from tests.peer import Peer
from trio_mcp import Answers, Client, Link, McpError, memory_link_pair, types
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Request

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
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        wire = Peer(theirs)

        @contextlib.asynccontextmanager
        async def target() -> AsyncIterator[Link]:
            yield ours

        async def connect() -> None:
            async with Client(
                target,
                mode="legacy",
                answers=Answers(elicitation=lambda params: pytest.fail("the callback was called")),
            ):
                pytest.fail("connected without a handshake")

        nursery.start_soon(connect)
        assert (await wire.expect(Request)).method == "initialize"
        await wire.send(Request(1, "elicitation/create", NAME))
        answer = await wire.receive()
        assert isinstance(answer, ErrorResponse)
        assert answer.error == ErrorData(-32600, "the handshake is not complete")
        nursery.cancel_scope.cancel()


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
