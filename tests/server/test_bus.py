"""Changes across the processes of a server: each listener hears of the last change of each topic, and none twice."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.peer import settle
from tests.server.http.harness import Made, served
from tests.waiting import eventually
from trio_mcp import Client, ResourceUpdated, Server, ToolsListChanged
from trio_mcp.server import bus
from trio_mcp.stores import MemoryStores, SqliteStores, StoreBusy, Stores

URI = "desk://lamp"


class Deaf(MemoryStores):
    """Stores whose wake-ups are lost, and that may be away."""

    away = False

    def wake(self, topic: str) -> None:
        pass

    def listen(self, topic: str, *, look: float = 1.0) -> Any:
        return self._listeners.listen(topic, lambda: look)

    async def announce(self, topics: Any) -> int:
        await trio.lowlevel.checkpoint()
        if self.away:
            raise StoreBusy("the store is away")
        return await super().announce(topics)


def desk(stores: Stores) -> Server:
    server = Server("desk", stores=stores)
    server.add_tool(lambda: "on", name="light")
    server.add_resource(URI, lambda: "on", name="lamp")
    return server


@contextlib.asynccontextmanager
async def listening(server: Server, *uris: str) -> AsyncIterator[list[Any]]:
    """Yield what a client of the server hears."""
    heard: list[Any] = []

    async def listen(client: Client, task_status: Any) -> None:
        async with client.listen(tools_list_changed=True, resources=[*uris]) as events:
            task_status.started()
            async for event in events:
                heard.append(event)

    async with Client(server) as client, trio.open_nursery() as nursery:
        await nursery.start(listen, client)
        yield heard
        nursery.cancel_scope.cancel()


async def test_what_one_process_announces_the_listeners_of_all_hear_once(autojump_clock: MockClock) -> None:
    stores = MemoryStores()
    one, two = desk(stores), desk(stores)
    async with listening(one, URI) as here, listening(two, URI) as there:
        one.notify_resource_updated(URI)
        await settle()
        assert [type(each) for each in here] == [ResourceUpdated]
        assert [type(each) for each in there] == [ResourceUpdated]
        two.notify_tools_changed()
        await trio.sleep(10)
        assert [type(each) for each in here] == [type(each) for each in there] == [ResourceUpdated, ToolsListChanged]


async def test_a_change_of_the_same_topic_elsewhere_is_heard_too(autojump_clock: MockClock) -> None:
    stores = MemoryStores()
    one, two = desk(stores), desk(stores)
    async with listening(one, URI) as here, Client(two):
        for each in (one, two, one, two):
            each.notify_resource_updated(URI)
            await trio.sleep(10)
        assert len(here) == 4


async def test_a_lost_wake_up_costs_time_and_nothing_else(autojump_clock: MockClock) -> None:
    stores = Deaf()
    one, two = desk(stores), desk(stores)
    async with listening(two, URI) as there, Client(one):
        one.notify_resource_updated(URI)
        await settle()
        assert there == []
        await trio.sleep(bus.LOOK)
        await settle()
        assert len(there) == 1


async def test_changes_wait_for_a_store_that_is_away(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    stores = Deaf()
    one, two = desk(stores), desk(stores)
    async with listening(one, URI) as here, listening(two, URI) as there:
        stores.away = True
        for _ in range(3):
            one.notify_resource_updated(URI)
            await trio.sleep(5)
        assert (len(here), len(there)) == (3, 0)
        stores.away = False
        await trio.sleep(bus.AGAIN + bus.LOOK)
        await settle()
        assert len(there) == 1
    lost = [each for each in caplog.records if "can't announce changes to other processes" in each.message]
    assert len(lost) == 1


async def test_the_last_changes_of_a_server_that_ends_are_announced(autojump_clock: MockClock) -> None:
    stores = MemoryStores()
    one, two = desk(stores), desk(stores)
    async with listening(two, URI) as there:
        async with Client(one):
            one.notify_resource_updated(URI)
        await settle()
        assert len(there) == 1


async def test_what_changed_before_a_server_began_is_no_news(autojump_clock: MockClock) -> None:
    stores = MemoryStores()
    async with stores:
        await stores.announce([f"notifications/resources/updated {URI}"])
        async with listening(desk(stores), URI) as heard:
            await trio.sleep(10)
            assert heard == []


async def test_a_process_that_is_too_far_behind_tells_its_listeners_of_everything(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_mcp.stores.memory_parts.MOST_TOPICS", 3)
    stores = Deaf()
    async with listening(desk(stores), URI) as heard:
        await stores.announce([f"notifications/resources/updated {URI}"])
        await stores.announce([f"notifications/resources/updated desk://{number}" for number in range(5)])
        await trio.sleep(bus.LOOK)
        await settle()
        assert {type(each) for each in heard} == {ResourceUpdated, ToolsListChanged}


async def test_more_changes_than_can_wait_become_one_of_everything(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "MOST_TOPICS", 3)
    stores = Deaf()
    one, two = desk(stores), desk(stores)
    async with listening(two, URI) as there, Client(one):
        stores.away = True
        for number in range(10):
            one.notify_resource_updated(f"desk://{number}")
        await trio.sleep(1)
        stores.away = False
        await trio.sleep(bus.AGAIN + bus.LOOK)
        await settle()
        assert {type(each) for each in there} == {ResourceUpdated, ToolsListChanged}


async def test_a_registration_is_of_its_process_and_said_so_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    stores = MemoryStores()
    one, two = desk(stores), desk(stores)
    assert not caplog.records
    async with listening(one) as here, listening(two) as there:
        one.add_tool(lambda: "off", name="dark")
        one.remove_tool("dark")
        await trio.sleep(10)
        assert (len(here), len(there)) == (1, 0)
    said = [each for each in caplog.records if "other processes" in each.message]
    assert [each.levelno for each in said] == [logging.WARNING]


async def test_a_thread_may_announce(autojump_clock: MockClock) -> None:
    stores = MemoryStores()
    one, two = desk(stores), desk(stores)
    async with listening(two, URI) as there, Client(one):
        await trio.to_thread.run_sync(one.notify_resource_updated, URI)
        await trio.sleep(1)
        assert len(there) == 1


async def test_processes_that_share_a_file_wake_each_other(tmp_path: Path) -> None:
    """Here, two runs of Trio, each with a connection of its own."""
    path = tmp_path / "desk.db"

    def elsewhere() -> None:
        async def announce() -> None:
            server = desk(SqliteStores(path))
            async with Client(server):
                server.notify_resource_updated(URI)

        trio.run(announce)

    async with listening(desk(SqliteStores(path)), URI) as here:
        await trio.to_thread.run_sync(elsewhere)
        await eventually(lambda: len(here) == 1)


async def test_health_says_whether_the_stores_can_be_used_and_calls_go_on() -> None:
    stores = Deaf()
    made = Made(stores=stores)
    async with served(made=made) as (_, http, _):
        stores.away = True
        made.server.notify_tools_changed()

        async def said() -> bool:
            found = await http.get("/health")
            assert found.status_code == 200
            return bool(found.json() == {"status": "ok", "stores": "not usable"})

        await eventually(said)
        async with Client(f"{http.base_url}/mcp", mode="2026-07-28") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        stores.away = False

        async def well() -> bool:
            return bool((await http.get("/health")).json() == {"status": "ok"})

        await eventually(well)
