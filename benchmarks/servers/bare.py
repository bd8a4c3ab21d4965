"""The bare limit on stdio: a loop on Trio that frames, parses, spawns, validates and answers, and nothing else.

It has no session, no cancellation, no limits and no errors; those are what a library adds, and what they cost.
"""

from __future__ import annotations

import os
from typing import Any

import trio
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12


class AddArguments(TypedDict):
    a: int
    b: int


class EchoArguments(TypedDict):
    text: str


class PauseArguments(TypedDict):
    seconds: float


async def add(a: int, b: int) -> int:
    return a + b


async def echo(text: str) -> str:
    return text


async def pause(seconds: float) -> str:
    await trio.sleep(seconds)
    return "done"


TOOLS: dict[str, tuple[TypeAdapter[Any], Any]] = {
    "add": (TypeAdapter(AddArguments), add),
    "echo": (TypeAdapter(EchoArguments), echo),
    "pause": (TypeAdapter(PauseArguments), pause),
}

TOOL_LIST = [{"name": name, "inputSchema": adapter.json_schema()} for name, (adapter, _) in TOOLS.items()]


async def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "tools/call":
        adapter, function = TOOLS[params["name"]]
        value = await function(**adapter.validate_python(params["arguments"]))
        text = {"type": "text", "text": str(value)}
        return {"content": [text], "structuredContent": {"result": value}, "isError": False}
    if method == "tools/list":
        return {"tools": TOOL_LIST}
    info = {"name": "bare", "version": "1.0.0"}
    return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}


class Writer:
    """A writer that puts all answers which become ready during one write into the next one."""

    def __init__(self, stream: trio.abc.SendStream) -> None:
        self._stream = stream
        self._pending: list[bytes] = []
        self._ready = trio.Event()

    def put(self, line: bytes) -> None:
        self._pending.append(line)
        self._ready.set()

    async def run(self) -> None:
        while True:
            await self._ready.wait()
            self._ready = trio.Event()
            batch = b"".join(self._pending)
            self._pending.clear()
            await self._stream.send_all(batch)


async def answer(message: dict[str, Any], writer: Writer) -> None:
    body = await result(message["method"], message.get("params", {}))
    writer.put(to_json({"jsonrpc": "2.0", "id": message["id"], "result": body}) + b"\n")


async def serve() -> None:
    stdin = trio.lowlevel.FdStream(os.dup(0))
    writer = Writer(trio.lowlevel.FdStream(os.dup(1)))
    async with stdin, trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        parts: list[bytes | bytearray] = []
        async for chunk in stdin:
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                message = from_json(b"".join([*parts, line]))
                parts.clear()
                if "id" in message:
                    nursery.start_soon(answer, message, writer)
            parts.append(rest)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(serve)
