"""Servers that ask the client: by requests of their own (legacy era), or in their results (modern era)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import trio

from tests.client.scripted import scripted
from tests.session.harness import Wire
from trio_mcp import Client, Link, memory_link_pair
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Incoming, Request, Response

MODERN = "2026-07-28"
TOOLS: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}


@attrs.define
class Asker:
    """A legacy server: it can ask, and remembers what else it got.

    Attributes:
        declared: The capabilities that the client declared in the handshake.
        others: Everything that is neither the handshake nor an answer.
    """

    wire: Wire
    declared: dict[str, Any] = attrs.field(factory=dict)
    others: list[Incoming] = attrs.field(factory=list)
    _answers: dict[Any, Any] = attrs.field(factory=dict)
    _news: trio.Event = attrs.field(factory=trio.Event)
    _count: int = 0

    async def send(self, method: str, params: Any = None) -> str:
        """Send a request; gives its id."""
        self._count += 1
        ident = f"s{self._count}"
        await self.wire.send(Request(ident, method, params))
        return ident

    async def ask(self, method: str, params: Any = None) -> Any:
        """Send a request and wait for its answer: the result, or an `ErrorData`."""
        ident = await self.send(method, params)
        while ident not in self._answers:
            await self._news.wait()
        return self._answers.pop(ident)

    @property
    def answered(self) -> dict[Any, Any]:
        """The answers that nobody has waited for."""
        return self._answers

    async def serve(self, revision: str) -> None:
        async for item in self.wire.read:
            message = item.message
            if isinstance(message, Request) and message.method == "initialize":
                self.declared = (message.params or {})["capabilities"]
                result = {
                    "protocolVersion": revision,
                    "capabilities": TOOLS,
                    "serverInfo": {"name": "asker", "version": "1"},
                }
                await self.wire.send(Response(message.id, result))
            elif isinstance(message, Request) and message.method == "acme/echo":
                await self.wire.send(Response(message.id, message.params or {}))
            elif isinstance(message, Response):
                self._take(message.id, message.result)
            elif isinstance(message, ErrorResponse):
                self._take(message.id, message.error)
            else:
                self.others.append(message)

    def _take(self, ident: Any, answer: dict[str, Any] | ErrorData) -> None:
        self._answers[ident] = answer
        self._news.set()
        self._news = trio.Event()


@contextlib.asynccontextmanager
async def asking(revision: str = "2025-11-25", **arguments: Any) -> AsyncIterator[tuple[Client, Asker]]:
    """A client of a legacy server that asks it things."""
    askers: list[Asker] = []

    @contextlib.asynccontextmanager
    async def target() -> AsyncIterator[Link]:
        async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
            askers.append(Asker(Wire(theirs)))
            nursery.start_soon(askers[0].serve, revision)
            yield ours

    async with Client(target, mode=revision, **arguments) as client:
        yield client, askers[0]


@contextlib.asynccontextmanager
async def rounds(
    *results: dict[str, Any] | Callable[[dict[str, Any]], Any],
    method: str = "tools/call",
    capabilities: Any = None,
    **arguments: Any,
) -> AsyncIterator[tuple[Client, list[Request]]]:
    """A client of a modern server that answers a method with one result after the other, and the requests it got."""
    left = iter(results)

    def answer(params: dict[str, Any]) -> Any:
        result = next(left, None)
        return result(params) if callable(result) else result

    settings = {"capabilities": TOOLS, "client_capabilities": capabilities, **arguments}
    async with scripted({method: answer}, revision=MODERN, **settings) as (client, asked, _):
        yield client, asked


def asks(state: str | None = None, **requests: Any) -> dict[str, Any]:
    """A result that asks for input."""
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return result


DONE: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


def form(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """The parameters of an elicitation by form."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return {"message": "Please fill in", "requestedSchema": schema}


def url(address: str = "https://example.org/pay", **more: Any) -> dict[str, Any]:
    """The parameters of an elicitation by URL."""
    return {"mode": "url", "message": "Please visit", "url": address, **more}


def sample(*messages: Any, **more: Any) -> dict[str, Any]:
    """The parameters of a request to sample."""
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
    """An entry of `inputRequests`."""
    return {"method": method} if params is None else {"method": method, "params": params}
