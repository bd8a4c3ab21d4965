"""A client of either era, by hand: it answers what a server asks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import trio

from trio_mcp import Link, Server, SessionMessage, memory_link_pair
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response
from trio_mcp.types import meta

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}

Answer = Callable[[dict[str, Any]], Any]
"""From a question (method and params) to its answer; an `ErrorData` is an error answer; None is none at all."""


@attrs.define(eq=False)
class HandClient:
    """One link to a server. What the server asks is in ``questions``, in order; its notifications in ``notices``."""

    link: Link
    revision: str
    answer: Answer
    capabilities: dict[str, Any]
    questions: list[dict[str, Any]] = attrs.Factory(list)
    notices: list[Notification] = attrs.Factory(list)
    related: list[Any] = attrs.Factory(list)
    rounds: list[dict[str, Any]] = attrs.Factory(list)
    next_id: int = 100

    async def open(self) -> None:
        if self.revision == MODERN:
            return
        params = {
            "protocolVersion": self.revision,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "hand", "version": "1"},
        }
        await self.send(Request(0, "initialize", params))
        await self.link.read.receive()
        await self.send(Notification("notifications/initialized"))

    async def send(self, message: Any) -> None:
        await self.link.write.send(SessionMessage(message))

    def request(self, method: str, params: dict[str, Any]) -> Request:
        if self.revision == MODERN:
            stamp = {meta.PROTOCOL_VERSION: MODERN, meta.CLIENT_CAPABILITIES: self.capabilities}
            params = {**params, "_meta": {**stamp, **params.get("_meta", {})}}
        self.next_id += 1
        return Request(self.next_id, method, params)

    async def once(self, method: str, params: dict[str, Any]) -> Any:
        """One request; gives the result or the `ErrorData`. Meanwhile what the server asks is answered."""
        request = self.request(method, params)
        await self.send(request)
        while True:
            envelope = await self.link.read.receive()
            message = envelope.message
            if isinstance(message, Notification):
                self.notices.append(message)
            elif isinstance(message, Request):
                self.related.append(envelope.related_request_id)
                await self._reply(message)
            elif isinstance(message, ErrorResponse) and message.id == request.id:
                return message.error
            elif isinstance(message, Response) and message.id == request.id:
                return message.result

    async def _reply(self, request: Request) -> None:
        question = {"method": request.method, "params": request.params}
        self.questions.append(question)
        answer = self.answer(question)
        if isinstance(answer, ErrorData):
            await self.send(ErrorResponse(request.id, answer))
        elif answer is not None:
            await self.send(Response(request.id, answer))

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """A request, driven through all its rounds, as a client of the modern era does it."""
        retry = params
        while True:
            result = await self.once(method, retry)
            if isinstance(result, ErrorData) or result.get("resultType") != "input_required":
                return result
            self.rounds.append(result)
            responses = {}
            for key, question in result.get("inputRequests", {}).items():
                self.questions.append({"params": None, **question})
                answer = self.answer({"params": None, **question})
                if answer is not None:
                    responses[key] = answer
            retry = {**params, "inputResponses": responses, "requestState": result["requestState"]}

    async def tool(self, name: str, **arguments: Any) -> Any:
        return await self.call("tools/call", {"name": name, "arguments": arguments})


@contextlib.asynccontextmanager
async def hand_client(
    server: Server,
    revision: str = MODERN,
    answer: Answer = lambda question: None,
    capabilities: dict[str, Any] | None = None,
) -> AsyncIterator[HandClient]:
    capabilities = EVERYTHING if capabilities is None else capabilities
    with trio.fail_after(30):  # against a hang only
        async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, theirs)
            client = HandClient(ours, revision, answer, capabilities)
            await client.open()
            yield client
            nursery.cancel_scope.cancel()


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", **more}


def text_of(result: Any) -> str:
    assert isinstance(result, dict), result
    ((block),) = result["content"]
    text: str = block["text"]
    return text
