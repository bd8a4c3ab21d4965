"""What passes between a client and a server is recorded whole; and replayed, it comes out the same, or says why not."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from trio_mcp import Answers, Client, Context, ListOptions, Server
from trio_mcp.client.targets import SingleTarget
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.sockets.addresses import read_address
from trio_mcp.testing.check.replay import Replayed, replay_transcript
from trio_mcp.testing.check.wires.targets import open_wire_for
from trio_mcp.testing.recording.http import HttpRecorder
from trio_mcp.testing.recording.lines import record_socket
from trio_mcp.testing.recording.websocket import record_websocket
from trio_mcp.testing.rules.history import History
from trio_mcp.testing.transcript.files import FileTape, Transcript, TranscriptWriter, read_transcript

WAYS = ["http", "tcp", "ws"]
MODES = ["2025-11-25", "2026-07-28"]


class Order(BaseModel):
    item: str


def shop(*, sold_out: bool = False, secret: str = "one") -> Server:
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
    async with trio.open_nursery() as nursery:
        serve = {"http": server.serve_http, "tcp": server.serve_tcp, "ws": server.serve_websocket}[way]
        yield await nursery.start(partial(serve, port=0))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def recorded(url: str, tape: FileTape) -> AsyncIterator[str]:
    """Stand before a server."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        if url.startswith("ws"):
            nursery.start_soon(record_websocket, HttpServerParameters(url, kind="ws"), listeners, tape)
            yield f"ws://127.0.0.1:{port}/"
        elif url.startswith("http"):
            recorder = HttpRecorder(HttpServerParameters(url), tape)
            nursery.start_soon(trio.serve_listeners, recorder.serve, listeners)
            yield f"http://127.0.0.1:{port}{recorder.path}"
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


async def _transcript(folder: Path, way: str, mode: str) -> Transcript:
    with (folder / "said.jsonl").open("wb") as file:
        tape = FileTape(TranscriptWriter(file, target="shop"))
        async with served(shop(), way) as url, recorded(url, tape) as near:
            await _talk(near, mode)
    return read_transcript(folder / "said.jsonl")


async def _replayed(transcript: Transcript, server: Server, way: str) -> Replayed:
    async with served(server, way) as url:
        return await replay_transcript(open_wire_for(url), transcript, deadline=5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_recording_is_replayed(tmp_path: Path, way: str, mode: str) -> None:
    """Cursors, states and the ids of the server's own requests differ each time, and each time they fit."""
    transcript = await _transcript(tmp_path, way, mode)
    (connection, *_) = [each for each in History(transcript.events) if each.requests]
    assert connection.revision == mode
    methods = [asked.method for asked in connection.requests]
    assert methods.count("tools/list") == 2
    assert all(asked.answers or asked.cancelled for asked in connection.requests), methods
    assert "hunter2" not in (tmp_path / "said.jsonl").read_text()

    again = await _replayed(transcript, shop(secret="two"), way)
    assert (again.differences, dict(again.broken), again.status) == ((), {}, 0)
    assert again.masked == 1

    other = await _replayed(transcript, shop(sold_out=True), way)
    assert [line.partition(": ")[2] for line in other.differences] == [
        "a result before, a result that says isError now"
    ]
    assert other.status == 1


async def test_what_breaks_a_rule_only_now_is_told(tmp_path: Path) -> None:
    transcript = await _transcript(tmp_path, "tcp", MODES[0])

    async def answer_twice(near: trio.SocketStream, far_port: int) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", far_port)
        async with near, far, trio.open_nursery() as nursery:

            async def back() -> None:
                async for data in far:
                    await near.send_all(b"".join(line * 2 for line in bytes(data).splitlines(keepends=True)))

            nursery.start_soon(back)
            async for data in near:
                await far.send_all(data)
            nursery.cancel_scope.cancel()

    async with served(shop(), "tcp") as url, trio.open_nursery() as nursery:
        far = read_address(url).port
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, lambda near: answer_twice(near, far), listeners)
        near = f"tcp://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        found = await replay_transcript(open_wire_for(near), transcript, deadline=5)
        nursery.cancel_scope.cancel()
    assert "answered-once" in found.broken
    assert found.status == 1


def test_a_recording_stays_when_the_program_ends_badly() -> None:
    """Each event is written as it happens."""
    file = io.BytesIO()
    tape_of = trio.run(_note_one, file)
    assert file.getvalue().count(b"\n") == 2
    assert (tape_of.count, tape_of.events) == (1, [])


async def _note_one(file: io.BytesIO) -> FileTape:
    tape = FileTape(TranscriptWriter(file))
    tape.note("mark", "kit", what="begin")
    await trio.lowlevel.checkpoint()
    return tape
