"""A scripted server whose calls become tasks; each test gives the states."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import trio

from tests.client.asking import form, request
from tests.client.listening import ACKNOWLEDGED, notice
from tests.client.scripted import scripted
from tests.peer import Peer
from trio_mcp import Client
from trio_mcp.extensions import Tasks
from trio_mcp.jsonrpc.messages import ErrorData, Request

__all__ = ["ASK", "ID", "TaskServer", "completed", "created", "failed", "needs", "state", "task_server"]

ID = "secret-7f3c"
ASK = request("elicitation/create", form(name={"type": "string"}))
CONTENT = [{"type": "text", "text": "done"}]


def state(status: Any = "working", task_id: str = ID, **more: Any) -> dict[str, Any]:
    times = {"createdAt": "2026-11-28T10:00:00Z", "lastUpdatedAt": "2026-11-28T10:00:00Z"}
    return {"resultType": "complete", "taskId": task_id, "status": status, **times, "ttlMs": None, **more}


def created(**more: Any) -> dict[str, Any]:
    return {**state(), "resultType": "task", **more}


def completed(text: str = "done", **more: Any) -> dict[str, Any]:
    return state("completed", result={"content": [{"type": "text", "text": text}], **more})


def failed(code: int = -32000, message: str = "no") -> dict[str, Any]:
    return state("failed", error={"code": code, "message": message})


def needs(*keys: str, **more: Any) -> dict[str, Any]:
    return state("input_required", inputRequests=dict.fromkeys(keys, ASK), **more)


@attrs.define(eq=False)
class TaskServer:
    """The responses of the server, and the requests that it has got.

    Attributes:
        states: The results of tasks/get, in order; the last one is repeated. Each may be a function without
            arguments that returns the result.
        first: The result of tools/call.
        update: The result of tasks/update.
        honors: Whether the server knows subscriptions/listen; None for an error response.
        asked: The requests so far.
        polled: The times of the tasks/get requests, in seconds since the server began.
    """

    states: list[Any] = attrs.Factory(list)
    first: Any = attrs.Factory(created)
    update: Any = attrs.Factory(lambda: {"resultType": "complete"})
    cancelled: Any = attrs.Factory(lambda: {"resultType": "complete"})
    honors: bool | None = None
    asked: list[Request] = attrs.Factory(list)
    polled: list[float] = attrs.Factory(list)
    peer: Any = None
    began: float = attrs.Factory(trio.current_time)

    def get(self, params: dict[str, Any]) -> Any:
        self.polled.append(trio.current_time() - self.began)
        answer = self.states[0] if len(self.states) == 1 else self.states.pop(0)
        return answer() if callable(answer) else answer

    @property
    def listens(self) -> list[Request]:
        return self.of("subscriptions/listen")

    def of(self, method: str) -> list[Request]:
        return [each for each in self.asked if each.method == method]

    def responses(self) -> list[Any]:
        """Return the answers that the client has sent."""
        return [(each.params or {})["inputResponses"] for each in self.of("tasks/update")]

    async def acknowledge(self, *, number: int = -1, **offered: Any) -> None:
        await self.peer.send(notice(ACKNOWLEDGED, self.listens[number].id, notifications=offered))

    async def announce(self, told: dict[str, Any], *, number: int = -1) -> None:
        await self.peer.send(notice("notifications/tasks", self.listens[number].id, **told))


@contextlib.asynccontextmanager
async def task_server(*states: Any, **options: Any) -> AsyncIterator[tuple[Client, TaskServer]]:
    """Yield a client, and its server, whose calls become tasks with these states in turn."""
    names = {field.name for field in attrs.fields(TaskServer)}
    server = TaskServer(list(states), **{name: options.pop(name) for name in names & options.keys()})

    def call(answer: str) -> Callable[[dict[str, Any]], Any]:
        def give(params: dict[str, Any]) -> Any:
            value = getattr(server, answer)
            return value(params) if callable(value) else value

        return give

    replies: dict[str, Any] = {
        "tools/call": call("first"),
        "tasks/get": server.get,
        "tasks/update": call("update"),
        "tasks/cancel": call("cancelled"),
        "tools/list": {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"},
    }
    if server.honors is None:
        replies["subscriptions/listen"] = ErrorData(-32601, "unknown method")
    settings: dict[str, Any] = {"revision": "2026-07-28", "capabilities": {"tools": {}}, "extensions": [Tasks()]}
    async with scripted(replies, **{**settings, **options}) as (client, asked, peer):
        assert isinstance(peer, Peer)
        server.asked, server.peer, server.began = asked, peer, trio.current_time()
        yield client, server
