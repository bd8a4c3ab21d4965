"""An event store that fails costs the session that it failed for, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from tests.http_peer import Raw
from tests.server.http.harness import served
from trio_mcp import HttpOptions, MemoryEventStore
from trio_mcp.http.server.event_store import StoredEvent

pytestmark = pytest.mark.handshake


class Failing(MemoryEventStore):
    """Does what a store does, but for one method."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self.failing = failing

    def _fail(self, method: str) -> None:
        if method == self.failing:
            raise OSError("disk full")

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        self._fail("append")
        await super().append(session, events)

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        self._fail("after")
        return await super().after(session, stream, number)

    async def forget(self, session: str) -> None:
        self._fail("forget")
        await super().forget(session)


async def works(http: Any) -> None:
    raw = Raw(http)
    await raw.initialize()
    assert (await raw.post("ping")).status_code == 200


@pytest.mark.parametrize("failing", ["append", "after"])
async def test_the_session_ends_and_others_are_opened(failing: str, caplog: pytest.LogCaptureFixture) -> None:
    store = Failing("")
    async with served(HttpOptions(event_store=store)) as (_, http, _):
        raw = Raw(http)
        await raw.initialize()
        store.failing = failing
        with caplog.at_level(logging.CRITICAL, "trio_mcp"):
            r = await raw.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert "result" not in r.text
        assert (await raw.post("ping")).status_code == 404
        store.failing = ""
        await works(http)


@pytest.mark.parametrize("own", [True, False], ids=["own session", "unknown session"])
async def test_a_replay_that_fails_is_refused(own: bool, caplog: pytest.LogCaptureFixture) -> None:
    store = Failing("")
    async with served(HttpOptions(event_store=store)) as (_, http, _):
        raw = Raw(http)
        await raw.initialize()
        await raw.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        store.failing = "after"
        if not own:
            raw.session = "unknown"
        with caplog.at_level(logging.CRITICAL, "trio_mcp"):
            async with raw.listen("1-1") as r:
                assert r.status_code == (410 if own else 404)
        store.failing = ""
        await works(http)


async def test_the_end_of_a_session_of_which_it_forgets_nothing_is_one(caplog: pytest.LogCaptureFixture) -> None:
    """By a DELETE, or because nobody uses it."""
    async with served(HttpOptions(event_store=Failing("forget"), session_timeout=0.05)) as (_, http, _):
        with caplog.at_level(logging.CRITICAL, "trio_mcp"):
            raw = Raw(http)
            await raw.initialize()
            await http.request("DELETE", "/mcp", headers=raw.headers())
            unused = Raw(http)
            await unused.initialize()
            while (await unused.post("ping")).status_code != 404:  # noqa: ASYNC110 - there is no event for it
                await trio.sleep(0.1)
        await works(http)
