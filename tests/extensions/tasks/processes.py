"""Servers that share stores in memory, as processes share a file: each may crash, freeze, or lose access to them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import attrs
import trio

from trio_mcp import Answers, Client, Server
from trio_mcp._nursery import background_nursery
from trio_mcp.extensions import TaskOptions, Tasks
from trio_mcp.stores import MemoryStores, StoreBusy

__all__ = [
    "ENDED",
    "LEASE",
    "Door",
    "Process",
    "answer",
    "client_of",
    "done",
    "get",
    "processes",
    "run_process",
    "shared",
    "start",
]

LEASE = 15.0

ENDED = ("completed", "failed", "cancelled")


def shared() -> MemoryStores:
    """Return stores whose tasks expire by the virtual clock."""
    return MemoryStores(now=trio.current_time)


class Door(MemoryStores):
    """Stores as one process sees them.

    Attributes:
        shut: The calls that fail now; ``"*"`` for all.
        failed: The calls that have failed.
        wrote: The calls that have succeeded.
    """

    # The processes share the entries of `__dict__`.
    __slots__ = ("failed", "shut", "wrote")

    def __init__(self, stores: MemoryStores) -> None:
        self.__dict__ = stores.__dict__
        self.shut: set[str] = set()
        self.failed: list[str] = []
        self.wrote: list[str] = []


def _through(name: str) -> Any:
    async def call(self: Door, *arguments: Any, **more: Any) -> Any:
        if self.shut & {"*", name}:
            await trio.lowlevel.checkpoint()
            self.failed.append(name)
            raise StoreBusy("the store is shut")
        result = await getattr(MemoryStores, name)(self, *arguments, **more)
        self.wrote.append(name)
        return result

    return call


for each in ("add_task", "task", "journal", "note", "put_task", "claim_tasks", "renew", "versions"):
    setattr(Door, each, _through(each))


@attrs.define(eq=False)
class Process:
    """A server and a client of it.

    Attributes:
        client: The client.
        door: The stores as the server sees them.
        server: The server.
    """

    client: Client
    door: Door
    server: Server
    scope: trio.CancelScope

    def crash(self) -> None:
        """End the server without a trace in the stores."""
        self.door.shut.add("*")
        self.scope.cancel()

    def end(self) -> None:
        """End the server as SIGTERM does."""
        self.scope.cancel()


@contextlib.asynccontextmanager
async def processes(
    define: Callable[[Server], object], stores: MemoryStores, count: int = 2, options: TaskOptions | None = None
) -> AsyncIterator[list[Process]]:
    """Run several servers with the same tools on the same stores."""
    with trio.fail_after(100_000):  # only if the test hangs
        async with background_nursery() as nursery:
            yield [await nursery.start(run_process, define, stores, options) for _ in range(count)]


async def run_process(
    define: Callable[[Server], object], stores: MemoryStores, options: TaskOptions | None, task_status: Any
) -> None:
    door = stores if isinstance(stores, Door) else Door(stores)
    server = Server("studio", stores=door, extensions=[Tasks(options)])
    define(server)
    with trio.CancelScope() as scope:
        async with client_of(server) as client:
            task_status.started(Process(client, door, server, scope))
            await trio.sleep_forever()


def _nobody(params: object) -> NoReturn:
    raise AssertionError("the tests answer by hand")


@contextlib.asynccontextmanager
async def client_of(server: Any, **options: Any) -> AsyncIterator[Client]:
    """Connect a client that declares the extension; `Client.request` returns results as they came."""
    options.setdefault("answers", Answers(elicitation=_nobody))
    async with Client(server, extensions=[Tasks()], **options) as client:
        yield client


async def start(client: Client, name: str, **arguments: Any) -> str:
    """Call a tool, which must become a task, and return its id."""
    result = await client.request("tools/call", {"name": name, "arguments": arguments})
    assert result["resultType"] == "task", result
    task_id: str = result["taskId"]
    return task_id


async def get(client: Client, task_id: str) -> dict[str, Any]:
    """Return the state of a task."""
    return await client.request("tasks/get", {"taskId": task_id})


async def done(client: Client, task_id: str, *until: str) -> dict[str, Any]:
    """Wait for a task to end, or to have one of these states, and return it."""
    for _ in range(1000):
        state = await get(client, task_id)
        if state["status"] in (until or ENDED):
            return state
        await trio.sleep(0.25)
    raise AssertionError(f"the task stays {state['status']}")


async def answer(client: Client, task_id: str, **responses: Any) -> dict[str, Any]:
    """Respond to forms of a task."""
    wire = {key: {"action": "accept", "content": content} for key, content in responses.items()}
    return await client.request("tasks/update", {"taskId": task_id, "inputResponses": wire})
