"""A client whose server is a script, which notes what it was asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import trio

from tests.session.harness import Wire
from trio_mcp import Client, Link, memory_link_pair
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response

ALL: dict[str, Any] = {
    "resources": {"subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}

Answer = Mapping[str, Any] | ErrorData | Callable[[dict[str, Any]], Any]


@contextlib.asynccontextmanager
async def scripted(
    answers: Mapping[str, Answer],
    *,
    revision: str = "2025-11-25",
    capabilities: Mapping[str, Any] = ALL,
    client_capabilities: Any = None,
    **arguments: Any,
) -> AsyncIterator[tuple[Client, list[Request], Wire]]:
    """A client of a server that gives these answers; a method without one is never answered.

    Yields:
        The client, the requests so far but those that open the connection, and the server's end of the link, whose
        ``heard`` has the notifications so far.
    """
    asked: list[Request] = []
    wires: list[Wire] = []
    opening: dict[str, Any] = {
        "initialize": {
            "protocolVersion": revision,
            "capabilities": capabilities,
            "serverInfo": {"name": "script", "version": "1"},
        },
        "server/discover": {"supportedVersions": [revision], "capabilities": capabilities},
    }

    @contextlib.asynccontextmanager
    async def target() -> AsyncIterator[Link]:
        async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
            wires.append(Wire(theirs))
            nursery.start_soon(serve, wires[0])
            yield ours

    async def serve(wire: Wire) -> None:
        with contextlib.suppress(trio.BrokenResourceError):  # the client has left
            await answer_all(wire)

    async def answer_all(wire: Wire) -> None:
        async for item in wire.read:
            message = item.message
            if isinstance(message, Notification):
                wire.heard.append(message)
            if not isinstance(message, Request):
                continue
            if message.method in opening:
                answer: Any = opening[message.method]
            else:
                asked.append(message)
                answer = answers.get(message.method)
                if callable(answer):
                    answer = answer(message.params or {})
            if isinstance(answer, ErrorData):
                await wire.send(ErrorResponse(message.id, answer))
            elif answer is not None:
                await wire.send(Response(message.id, answer))

    async with Client(target, mode=revision, capabilities=client_capabilities, **arguments) as client:
        yield client, asked, wires[0]


def sent(request: Request) -> dict[str, Any]:
    """The parameters of a request without what the era adds."""
    return {name: value for name, value in (request.params or {}).items() if name != "_meta"}
