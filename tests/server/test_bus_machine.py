"""Processes that die, freeze, and miss wake-ups: each listener hears of the last change of each topic."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import trio
from hypothesis import example, given, settings, strategies as st
from trio.testing import MockClock

from tests.effort import examples
from tests.peer import settle
from trio_mcp import Client, Server
from trio_mcp.server import bus
from trio_mcp.stores import MemoryStores, StoreBusy

TOPICS = ("desk://lamp", "desk://chair")
PROCESSES = 3


class Door(MemoryStores):
    """Stores in memory as one process sees them.

    Attributes:
        shut: Whether its calls fail.
        frozen: Set while its calls go on.
        lost: Whether its wake-ups are lost.
        behind: Whether it has not stored what was announced last.
    """

    __slots__ = ("behind", "frozen", "lost", "shut")  # the processes share the entries of `__dict__`

    def __init__(self, stores: MemoryStores) -> None:
        self.__dict__ = stores.__dict__
        self.shut = self.lost = self.behind = False
        self.frozen = trio.Event()
        self.frozen.set()

    def wake(self, topic: str) -> None:
        if not self.lost:
            super().wake(topic)

    def listen(self, topic: str, *, look: float = 1.0) -> Any:
        return self._listeners.listen(topic, lambda: look)  # as in a file that other processes write

    async def _pass(self) -> None:
        await self.frozen.wait()
        if self.shut:
            raise StoreBusy("the store is shut")

    async def announce(self, topics: Any) -> int:
        self.behind = True
        await self._pass()
        newest = await super().announce(topics)
        self.behind = False
        return newest

    async def changed(self, after: int) -> Any:
        found = await super().changed(after)  # what it has read may be old when it goes on
        await self._pass()
        return found


@attrs.define(eq=False)
class Process:
    """A server with a client that listens, which may crash and begin again."""

    stores: MemoryStores
    nursery: trio.Nursery
    heard: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(TOPICS, 0))
    door: Any = None
    server: Any = None
    scope: Any = None

    async def begin(self) -> None:
        self.door = Door(self.stores)
        self.server = Server("desk", stores=self.door)
        for uri in TOPICS:
            self.server.add_resource(uri, lambda: "on", name=uri)
        await self.nursery.start(self._live)

    async def _live(self, task_status: Any) -> None:
        with trio.CancelScope() as self.scope:
            async with Client(self.server) as client, client.listen(resources=TOPICS) as events:
                task_status.started()
                async for event in events:
                    self.heard[event.uri] += 1

    async def crash(self) -> None:
        self.door.shut = True
        self.door.frozen.set()
        self.scope.cancel()
        await settle()
        await self.begin()


Action: TypeAlias = tuple[str, int, Any]

ACTIONS = st.tuples(
    st.sampled_from(["announce"] * 4 + ["crash", "freeze", "shut", "lose", "heal", "wait"]),
    st.integers(0, PROCESSES - 1),
    st.sampled_from(TOPICS) | st.floats(0.01, 5.0),
)


async def _play(actions: Sequence[Action]) -> None:
    stores = MemoryStores()
    async with stores, trio.open_nursery() as nursery:
        processes = [Process(stores, nursery) for _ in range(PROCESSES)]
        for each in processes:
            await each.begin()
        # For each process and topic: how much its client had heard when the topic last changed.
        due: dict[tuple[Process, str], int] = {}
        for kind, number, more in actions:
            process = processes[number]
            if kind == "announce" and isinstance(more, str):
                process.server.notify_resource_updated(more)
                due |= {(each, more): each.heard[more] for each in processes}
            elif kind == "crash":
                # What it has announced and not stored is lost with it: a crash before the store knows is as one before.
                if not process.door.shut and process.door.frozen.is_set():
                    await settle()
                    if process.door.behind:
                        await trio.sleep(bus.AGAIN)
                        await settle()
                    await process.crash()
                    due = {key: count for key, count in due.items() if key[0] is not process}
            elif kind == "freeze":
                if process.door.frozen.is_set():  # otherwise what waits for the old event would wait forever
                    process.door.frozen = trio.Event()
            elif kind == "shut":
                process.door.shut = True
            elif kind == "lose":
                process.door.lost = True
            elif kind == "heal":
                process.door.frozen.set()
                process.door.shut = process.door.lost = False
            elif kind == "wait" and not isinstance(more, str):
                await trio.sleep(more)
        for each in processes:
            each.door.frozen.set()
            each.door.shut = False
        await trio.sleep(2 * (bus.LOOK + bus.AGAIN))
        await settle()
        missed = [(processes.index(each), topic) for (each, topic), count in due.items() if each.heard[topic] <= count]
        assert missed == []
        with contextlib.suppress(trio.Cancelled):
            nursery.cancel_scope.cancel()


@settings(max_examples=examples(1000, daily=50))
@given(st.lists(ACTIONS, max_size=25))
@example([("shut", 1, 0.0), ("announce", 1, TOPICS[0]), ("wait", 0, 1.0), ("announce", 0, TOPICS[0])])
@example([("announce", 0, TOPICS[0]), ("shut", 0, 0.0), ("wait", 0, 1.5), ("heal", 0, 0.0), ("crash", 0, 0.0)])
def test_each_listener_hears_of_the_last_change_of_each_topic(actions: list[Action]) -> None:
    trio.run(_play, actions, clock=MockClock(autojump_threshold=0))
