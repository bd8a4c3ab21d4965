"""A client whose server is a script, which notes what it was asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tests.peer import Peer, played
from trio_mcp import Client
from trio_mcp.jsonrpc.messages import ErrorData, Request

ALL: dict[str, Any] = {
    "resources": {"subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}

Answer = Mapping[str, Any] | ErrorData | Callable[[dict[str, Any]], Any]


@contextlib.asynccontextmanager
async def scripted(
    replies: Mapping[str, Answer],
    *,
    revision: str = "2025-11-25",
    capabilities: Mapping[str, Any] = ALL,
    client_capabilities: Any = None,
    **arguments: Any,
) -> AsyncIterator[tuple[Client, list[Request], Peer]]:
    """Yield a client of a server that gives these replies; a method without one is never answered.

    Yields:
        The client, the requests so far but those that open the connection, and the server's end of the link, whose
        ``heard`` has the notifications so far.
    """
    peers: list[Peer] = []

    def reply(request: Request) -> Any:
        answer = replies.get(request.method)
        return answer(request.params or {}) if callable(answer) else answer

    async def play(peer: Peer) -> None:
        peer.revision, peer.capabilities, peer.replies = revision, dict(capabilities), reply
        peers.append(peer)
        await peer.greet()
        await peer.serve()

    async with Client(played(play), mode=revision, capabilities=client_capabilities, **arguments) as client:
        yield client, peers[0].questions, peers[0]


def sent(request: Request) -> dict[str, Any]:
    """Return the parameters of a request without what the era adds."""
    return {name: value for name, value in (request.params or {}).items() if name != "_meta"}
