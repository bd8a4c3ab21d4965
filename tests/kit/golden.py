"""Golden transcripts: ``python -m tests.kit.golden`` records them again, in ``tests/kit/golden``.

Two kinds of pairs talk: our client with our server over each transport, and the official SDK's client with its server
over stdio. Each says the same few things.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mcp
import trio
from pydantic import BaseModel

from trio_mcp import Answers, Client, Context, ListOptions, Server
from trio_mcp.client.targets import SingleTarget
from trio_mcp.conformance.recording.http import HttpRecorder
from trio_mcp.conformance.recording.lines import record_socket
from trio_mcp.conformance.recording.websocket import record_websocket
from trio_mcp.conformance.transcript.files import FileTape, TranscriptWriter
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.sockets.addresses import read_address

__all__ = ["FOLDER", "MODES", "WAYS", "record_ours", "recorded", "served", "shop"]

FOLDER = Path(__file__).with_name("golden")
ROOT = Path(__file__).resolve().parents[2]
WAYS = ["http", "tcp", "ws"]
MODES = ["2025-11-25", "2026-07-28"]


class Order(BaseModel):
    item: str


def shop(*, sold_out: bool = False, secret: str = "one") -> Server:
    """Return a server whose tools answer, fail, ask, report progress, and take forever."""
    server = Server("shop", version="1.0.0", lists=ListOptions(page_size=2))

    @server.tool
    async def price(item: str, password: str) -> str:
        """Say what an item costs."""
        if sold_out:
            raise ValueError("sold out")
        return f"{len(item)} cents, {secret}"

    @server.tool
    async def order(ctx: Context) -> str:
        """Ask which item, and say how far it is."""
        await ctx.report_progress(1, 2)
        answer = await ctx.elicit("Which?", Order)
        return f"ordered {answer.data.item}" if answer.data is not None else "nothing ordered"

    @server.tool
    async def wait(ctx: Context) -> None:
        """Wait."""
        await ctx.report_progress(1)
        await trio.sleep_forever()

    return server


@asynccontextmanager
async def served(server: Server, way: str) -> AsyncIterator[str]:
    """Serve a server over a transport, and give its URL."""
    async with trio.open_nursery() as nursery:
        serve = {"http": server.serve_http, "tcp": server.serve_tcp, "ws": server.serve_websocket}[way]
        yield await nursery.start(partial(serve, port=0))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def recorded(url: str, tape: Tape, **headers: str) -> AsyncIterator[str]:
    """Stand before a server, and add headers to what it gets."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        if url.startswith("ws"):
            nursery.start_soon(record_websocket, HttpServerParameters(url, kind="ws", headers=headers), listeners, tape)
            yield f"ws://127.0.0.1:{port}{urlsplit(url).path}"
        elif url.startswith("http"):
            recorder = HttpRecorder(HttpServerParameters(url, headers=headers), tape)
            nursery.start_soon(trio.serve_listeners, recorder.serve, listeners)
            yield f"http://127.0.0.1:{port}{recorder.guard.path}"
        else:
            nursery.start_soon(record_socket, read_address(url), listeners, tape)
            yield f"tcp://127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def _talk(target: SingleTarget, mode: str) -> None:
    async def answer(params: Any) -> dict[str, Any]:
        return {"item": "pear"}

    async with Client(target, mode=mode, answers=Answers(elicitation=answer)) as client:
        assert len([tool async for tool in client.iter_tools()]) == 3
        result = await client.call_tool("price", {"item": "pear", "password": "hunter2"})
        assert "4 cents" in str(result.data)
        assert (await client.call_tool("order")).data == "ordered pear"
        with trio.CancelScope() as scope:
            await client.call_tool("wait", on_progress=lambda progress: scope.cancel())


async def record_ours(path: Path, way: str, mode: str) -> None:
    """Record our client and our server."""
    with path.open("wb") as file:
        tape = FileTape(TranscriptWriter(file, target="shop"))
        async with served(shop(), way) as url, recorded(url, tape) as near:
            await _talk(near, mode)


async def _record_theirs(path: Path, mode: str) -> None:
    """Record the official SDK's client and server."""
    # By names that are the same on each machine: the transcript holds them.
    behind = ["python", "tests/interop/peers/official_server.py"]
    target = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "trio_mcp", "record", str(path), "--", *behind],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        cwd=ROOT,
    )
    async with mcp.Client(target, mode="legacy" if mode == MODES[0] else "auto") as client:
        await client.list_tools()
        await client.call_tool("echo", {"text": "hello"})
        await client.call_tool("no such tool", {})
        await client.list_resources()
        await client.list_prompts()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")
    for mode in MODES:
        for way in WAYS:
            trio.run(record_ours, FOLDER / f"ours-{way}-{mode}.jsonl", way, mode)
        trio.run(_record_theirs, FOLDER / f"official-stdio-{mode}.jsonl", mode)


if __name__ == "__main__":
    main()
