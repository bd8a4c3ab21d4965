"""The bare limit in memory: two loops on Trio that exchange encoded messages over memory channels, and nothing else."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import trio
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


class AddArguments(TypedDict):
    a: int
    b: int


ADD_ARGUMENTS: TypeAdapter[AddArguments] = TypeAdapter(AddArguments)


async def add(a: int, b: int) -> int:
    return a + b


async def _serve(requests: trio.MemoryReceiveChannel[bytes], answers: trio.MemorySendChannel[bytes]) -> None:
    async def answer(message: dict[str, Any]) -> None:
        value = await add(**ADD_ARGUMENTS.validate_python(message["params"]["arguments"]))
        text = {"type": "text", "text": str(value)}
        body = {"content": [text], "structuredContent": {"result": value}, "isError": False}
        await answers.send(to_json({"jsonrpc": "2.0", "id": message["id"], "result": body}))

    async with trio.open_nursery() as nursery:
        async for line in requests:
            nursery.start_soon(answer, from_json(line))


@asynccontextmanager
async def connect(variant: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` on the other side of the channels; there is one variant only."""
    del variant
    request_send, request_receive = trio.open_memory_channel[bytes](math.inf)
    answer_send, answer_receive = trio.open_memory_channel[bytes](math.inf)
    waiting: dict[int, tuple[trio.Event, list[Any]]] = {}
    ids = count()

    async def read_answers() -> None:
        async for line in answer_receive:
            message = from_json(line)
            event, box = waiting.pop(message["id"])
            box.append(message["result"])
            event.set()

    async def call(a: int, b: int) -> int:
        request_id = next(ids)
        params = {"name": "add", "arguments": {"a": a, "b": b}}
        event, box = trio.Event(), list[dict[str, Any]]()
        waiting[request_id] = event, box
        await request_send.send(to_json({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}))
        await event.wait()
        return box[0]["structuredContent"]["result"]  # type: ignore[no-any-return]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_serve, request_receive, answer_send)
        nursery.start_soon(read_answers)
        yield call
        nursery.cancel_scope.cancel()
