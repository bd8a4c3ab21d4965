"""Faults of the peer in a row end a session, so that two sides can't answer each other's errors without an end."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from tests.peer import Peer
from tests.session.harness import client_on_wire, server_on_wire
from trio_mcp import SessionOptions, TransportError
from trio_mcp.jsonrpc.messages import ErrorResponse, Malformed, Notification, Request, Response
from trio_mcp.session.session import MAX_FAULTS

GARBAGE = Malformed(-32700, "invalid JSON")
QUIET = SessionOptions(on_error=lambda error: None)


async def test_a_client_that_answers_each_error_with_garbage_is_left() -> None:
    """The server answers all but the last, and neither side's notifications prolong it."""
    errors = 0
    async with server_on_wire(options=QUIET) as (server, wire):
        await wire.send(GARBAGE)
        async for message in wire:
            assert isinstance(message, ErrorResponse)
            errors += 1
            await wire.send(Notification("acme/what"))
            await wire.send(GARBAGE)
        await server.wait_closed()
    assert errors == MAX_FAULTS - 1


async def test_the_error_says_how_many_and_which_and_what_to_look_at() -> None:
    """Waiting calls raise it, and so do later ones."""
    texts: list[str] = []
    async with client_on_wire(options=QUIET) as (client, wire), trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(TransportError) as caught:
                await client.send_request("tools/call", {"name": "x"})
            texts.append(str(caught.value))

        nursery.start_soon(call)
        await wire.expect(Request)
        for _ in range(MAX_FAULTS):
            await wire.send(GARBAGE)
        await client.wait_closed()
        await call()
    assert len(set(texts)) == 1
    assert f"sent {MAX_FAULTS} faults in a row" in texts[0]
    assert "the last one: invalid JSON" in texts[0]
    assert "standard output" in texts[0]


async def test_a_call_survives_progress_without_a_token() -> None:
    """Some servers report progress whether or not they were asked to."""
    async with client_on_wire(options=QUIET) as (client, wire), trio.open_nursery() as nursery:

        @nursery.start_soon
        async def serve() -> None:
            request = await wire.expect(Request)
            for number in range(MAX_FAULTS + 1):
                await wire.send(Notification("notifications/progress", {"progress": number}))
            await wire.send(Response(request.id, {"content": []}))

        assert await client.send_request("tools/call", {"name": "x"}) == {"content": []}


@pytest.mark.parametrize("side", ["client", "server"])
async def test_anything_valid_in_between_begins_a_new_row(side: str) -> None:
    """A program that now and then prints a line to its standard output costs itself nothing else."""
    async with (client_on_wire if side == "client" else server_on_wire)(options=QUIET) as (session, wire):
        for number in range(3):
            for _ in range(MAX_FAULTS - 1):
                await wire.send(GARBAGE)
            await _call(wire, number)
        assert not session.closed


async def _call(wire: Peer, number: int) -> None:
    await wire.send(Request(number, "ping"))
    while (message := await wire.receive()) != Response(number, {}):
        assert isinstance(message, ErrorResponse)
    await trio.testing.wait_all_tasks_blocked()
