"""Servers that ask the client: by requests of their own (legacy era), or in their results (modern era)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.client.scripted import scripted
from tests.peer import Peer
from trio_mcp import Answers, Client, InputError, RemoteProtocolError
from trio_mcp.jsonrpc.messages import Request

MODERN = "2026-07-28"
TOOLS: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}


@contextlib.asynccontextmanager
async def asking(
    revision: str = "2025-11-25", *, capabilities: Any = None, **arguments: Any
) -> AsyncIterator[tuple[Client, Peer]]:
    """Yield a client of a legacy server that asks it things."""
    answers = {"acme/echo": lambda params: params}
    settings = {"capabilities": TOOLS, "client_capabilities": capabilities, **arguments}
    async with scripted(answers, revision=revision, **settings) as (client, _, peer):
        yield client, peer


@contextlib.asynccontextmanager
async def rounds(
    *results: dict[str, Any] | Callable[[dict[str, Any]], Any],
    method: str = "tools/call",
    capabilities: Any = None,
    **arguments: Any,
) -> AsyncIterator[tuple[Client, list[Request]]]:
    """Yield a client of a modern server that answers a method with these results in turn, and the requests it got."""
    left = iter(results)

    def answer(params: dict[str, Any]) -> Any:
        result = next(left, None)
        return result(params) if callable(result) else result

    settings = {"capabilities": TOOLS, "client_capabilities": capabilities, **arguments}
    async with scripted({method: answer}, revision=MODERN, **settings) as (client, asked, _):
        yield client, asked


async def answered(era: str, method: str, params: Any, answers: Answers) -> Any:
    """Return what a server that asks gets: the result; or the error: an `ErrorData`, or what the call raised."""
    if era != MODERN:
        async with asking(era, answers=answers) as (_, server):
            return await server.ask(method, params)
    async with rounds(asks(q=request(method, params)), DONE, answers=answers) as (client, asked):
        try:
            await client.call_tool("x")
        except (InputError, RemoteProtocolError) as exc:
            assert len(asked) == 1
            return exc
        return (asked[1].params or {})["inputResponses"]["q"]


def asks(state: str | None = None, **requests: Any) -> dict[str, Any]:
    """Return a result that asks for input."""
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return result


DONE: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


def form(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """Return the parameters of an elicitation by form."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return {"message": "Please fill in", "requestedSchema": schema}


def url(address: str = "https://example.org/pay", **more: Any) -> dict[str, Any]:
    """Return the parameters of an elicitation by URL."""
    return {"mode": "url", "message": "Please visit", "url": address, **more}


def sample(*messages: Any, **more: Any) -> dict[str, Any]:
    """Return the parameters of a request to sample."""
    chosen = messages or (say("user", text("hello")),)
    return {"messages": list(chosen), "maxTokens": 10, **more}


def say(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": content[0] if len(content) == 1 else list(content)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(ident: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "weather", "input": {}}


def used(ident: str) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": ident, "content": []}


def request(method: str, params: Any = None) -> dict[str, Any]:
    """Return an entry of `inputRequests`."""
    return {"method": method} if params is None else {"method": method, "params": params}
