"""A server with stores keeps the messages of legacy sessions in them (2025-11-25 `basic/transports`, Resumability)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http_peer import Events, Raw
from tests.server.http.harness import Made, served
from trio_mcp import HttpOptions
from trio_mcp.stores import MemoryStores, SqliteStores

pytestmark = pytest.mark.legacy


async def test_a_stream_is_resumed_after_a_restart_of_the_server(tmp_path: Path) -> None:
    """Each run of the server opens the file again, and no event store is configured."""
    path = tmp_path / "studio.db"
    async with served(made=Made(stores=path)) as (made, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("wait", {"progress": 2}) as r:
            events = Events(r)
            assert (await events.message())["params"]["progress"] == 1
            seen = events.decoder.last_event_id
        made.go.set()
        await made.finished.wait()
    async with served(made=Made(stores=SqliteStores(path))) as (_, http, _):
        raw.http = http
        async with raw.listen(seen) as r:
            progress, response = await Events(r).messages()
        assert progress["params"]["progress"] == 2
        assert response["result"]["content"][0]["text"] == "done"


async def test_the_end_of_a_session_deletes_its_messages() -> None:
    stores = MemoryStores()
    async with stores, served(made=Made(stores=stores)) as (_, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("count", {"to": 1}) as r:
            last = [event.id async for event in Events(r)][-1]
        async with raw.listen("1-0") as r:
            assert [event.id async for event in Events(r)][-1] == last
        await raw.http.delete("/mcp", headers=raw.headers())
        async with raw.listen("1-0") as r:
            assert r.status_code == 404


async def test_without_sessions_there_is_nothing_to_keep() -> None:
    """A server with stores may be served with stateless=True."""
    async with served(HttpOptions(stateless=True), Made(stores=MemoryStores())) as (_, http, _):
        raw = Raw(http)
        async with raw.call("count", {"to": 1}) as r:
            assert [event.id async for event in Events(r)] == ["", ""]
