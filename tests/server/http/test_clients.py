"""Real clients of the endpoint: ours in every revision, and the official one, with questions and broken streams."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from mcp.client.session import ClientSession as OfficialSession
from mcp.client.streamable_http import streamable_http_client as official_client
from pydantic_core import from_json

from tests.server.http.harness import Made
from tests.server.http.runners import chosen
from trio_mcp import Client, HttpOptions, MemoryEventStore
from trio_mcp.types.versions import REVISIONS

pytestmark = pytest.mark.legacy

STORES = pytest.mark.parametrize("stored", [False, True], ids=["no store", "store"])


def options(stored: bool) -> HttpOptions:
    return HttpOptions(event_store=MemoryEventStore() if stored else None, retry=0.01, runner=chosen.runner())


@STORES
@pytest.mark.parametrize("revision", REVISIONS[1:])
async def test_our_client(revision: str, stored: bool) -> None:
    made, seen = Made(), list[float]()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(made.server.serve_http, port=0, options=options(stored)))
            async with Client(url, mode=revision) as client:
                assert client.protocol_version == revision
                assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
                result = await client.call_tool("count", {"to": 5}, on_progress=lambda p: seen.append(p.progress))
                assert (result.text, seen) == ("5", [1, 2, 3, 4, 5])
            nursery.cancel_scope.cancel()


async def test_our_client_polls_a_stream_that_was_closed() -> None:
    made, seen = Made(), list[float]()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(made.server.serve_http, port=0, options=options(True)))
            async with Client(url, mode="2025-11-25") as client:
                made.go.set()
                result = await client.call_tool("poll", on_progress=lambda p: seen.append(p.progress))
                assert (result.data, seen, made.closed) == ("polled", [1, 2], [True])
            nursery.cancel_scope.cancel()


@STORES
async def test_the_official_client(stored: bool) -> None:
    made, seen = Made(), list[float]()

    async def progress(value: float, total: float | None, message: str | None) -> None:
        seen.append(value)

    async def elicit(context: Any, params: Any) -> Any:
        from mcp.types import ElicitResult

        return ElicitResult(action="accept", content={"name": "Ann"})

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(made.server.serve_http, port=0, options=options(stored)))
            async with (
                official_client(url) as (read, write, *_),
                OfficialSession(read, write, elicitation_callback=elicit) as session,
            ):
                await session.initialize()
                result: Any = await session.call_tool("count", {"to": 5}, progress_callback=progress)
                assert (from_json(result.content[0].text), seen) == (5, [1, 2, 3, 4, 5])
                result = await session.call_tool("greet", {})
                assert result.content[0].text == "Hello, Ann"
                if stored:
                    made.go.set()
                    result = await session.call_tool("poll", {})
                    assert result.content[0].text == "polled"
            nursery.cancel_scope.cancel()
