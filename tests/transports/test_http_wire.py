"""Single HTTP exchanges on httpx and on its fork."""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import pytest
import trio

from tests.http_peer import Asked, peer
from tests.transports.support import DEADLINE
from trio_mcp.errors import MessageTooLarge
from trio_mcp.http.client.wire import Disconnected, HttpResponse, http_wire


async def endless(asked: Asked) -> None:
    await asked.begin_events()
    with contextlib.suppress(trio.BrokenResourceError):
        while True:
            await asked.chunk(b": still here\n\n" * 100)


def left_behind() -> list[Any]:
    """Return the HTTP packages' generators that began and never ended; a warning about one is easily missed."""
    gc.collect()
    generators = [each for each in gc.get_objects() if isinstance(each, types.AsyncGeneratorType)]
    left = [each for each in generators if each.ag_frame is not None]
    return [each for each in left if "/site-packages/http" in each.ag_code.co_filename]


@pytest.mark.parametrize("package", [httpx, httpx2])
@pytest.mark.parametrize("how", ["unread", "begun", "too large", "raising", "cancelled"])
async def test_an_answer_that_is_left_early_leaves_no_generator_and_no_connection(package: Any, how: str) -> None:
    """httpx nests several: an unfinished one is left to the garbage collector, which can't await."""
    with trio.fail_after(DEADLINE):
        async with (
            peer({"GET": endless}) as server,
            package.AsyncClient() as http_client,
            http_wire(server.url, None, http_client) as wire,
        ):
            before = len(left_behind())
            with contextlib.suppress(MessageTooLarge, LookupError, Disconnected), trio.CancelScope() as scope:
                async with wire.exchange("GET", {}) as response:
                    if how != "unread":
                        assert await response.receive()
                    if how == "too large":
                        await response.body(1000)
                    if how == "raising":
                        raise LookupError
                    if how == "cancelled":
                        scope.cancel()
                        await response.receive()
            assert len(left_behind()) == before
            await server.until_live(0)


class Buffered:
    """A body of many small parts that have already arrived, after which nothing comes; as httpx delivers it."""

    status_code = 200
    headers = httpx.Headers()

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.unwound = False
        self.stream = self._read()

    async def _read(self) -> AsyncIterator[bytes]:
        try:
            for _ in range(self.parts):
                yield b"."
            await trio.sleep_forever()
        finally:
            self.unwound = True

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("how", ["read", "left unread"])
async def test_many_small_parts_already_received_let_other_tasks_run(how: str) -> None:
    """The peer chooses the number of chunks: one system call can bring ten thousand."""
    body = Buffered(10_000)
    response = HttpResponse((body, trio.lowlevel.checkpoint), "GET x", ())
    done = trio.Event()
    turns = 0

    async def another_task() -> None:
        nonlocal turns
        while not done.is_set():
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(another_task)
        if how == "read":
            with contextlib.suppress(MessageTooLarge):
                await response.body(9_999)
        else:
            assert await response.receive()
            await response.aclose()
            assert body.unwound
        done.set()
    assert turns >= 100
    if not body.unwound:
        await response.aclose()
