"""Both halves of this library over HTTP, in every revision."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio

from tests.transports.support import DEADLINE
from trio_mcp import Client, Context, RequestTimeout, Server
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS

HANDSHAKES = [
    pytest.param(mode, marks=pytest.mark.legacy) for mode in (*LEGACY_REVISIONS, "legacy") if mode != "2024-11-05"
]


class Made:
    def __init__(self) -> None:
        self.server = Server("ours", version="1")
        self.reasons: list[str | None] = []
        self.cancelled = trio.Event()
        self.started = trio.Event()

        @self.server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @self.server.tool
        async def count(to: int, ctx: Context) -> int:
            for number in range(to):
                await ctx.report_progress(number + 1, to)
            return to

        @self.server.tool
        async def wait() -> None:
            self.started.set()
            try:
                await trio.sleep_forever()
            except trio.Cancelled as exc:
                self.reasons.append(exc.reason)
                self.cancelled.set()
                raise


@contextlib.asynccontextmanager
async def serving(made: Made, port: int = 0) -> AsyncIterator[str]:
    ORIGINS.clear()
    async with trio.open_nursery() as nursery:
        url: str = await nursery.start(partial(made.server.serve_http, port=port))
        yield url
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("mode", [*HANDSHAKES, *MODERN_REVISIONS, "auto"])
async def test_every_revision(mode: str) -> None:
    """Calls, ordered progress, timeouts and cancellation work, and leave the connections clean."""
    made, progress = Made(), []
    with trio.fail_after(DEADLINE):
        async with serving(made) as url, Client(url, mode=mode) as client:
            expected = {"auto": "2026-07-28", "legacy": "2025-11-25"}.get(mode, mode)
            assert client.protocol_version == expected
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"  # type: ignore[union-attr]
            await client.call_tool("count", {"to": 5}, on_progress=lambda note: progress.append(note.progress))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "wait")
                await made.started.wait()
                nursery.cancel_scope.cancel("enough")
            await made.cancelled.wait()
            with pytest.raises(RequestTimeout):
                await client.call_tool("wait", timeout=0.01)
            assert (await client.call_tool("add", {"a": 2, "b": 2})).content[0].text == "4"  # type: ignore[union-attr]
    assert progress == [1, 2, 3, 4, 5]
    if mode in ("legacy", "2025-11-25"):
        assert made.reasons[0] == "enough"  # the notice carries it; the end of a stream carries nothing
