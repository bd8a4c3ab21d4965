"""Stores in memory, for the servers in one run of Trio."""

from __future__ import annotations

import heapq
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Self

import attrs
import trio

from trio_mcp._checks import check_hook
from trio_mcp.stores.contract import LOOK, Changed, Claim, JournalEntry, StateEntry, StatePut, StoredTask, Stores
from trio_mcp.stores.event_stores import MemoryEventStore
from trio_mcp.stores.listeners import MOMENT, TopicListener, TopicListeners
from trio_mcp.stores.memory_parts import MemoryChanges, MemoryCounters, MemoryStates
from trio_mcp.stores.memory_sessions import MemorySessions
from trio_mcp.stores.refusals import other_server, stale_writer, store_full, task_exists

__all__ = ["MemoryStores"]


@attrs.define(eq=False)
class _Held:
    """A task in memory.

    Attributes:
        place: How many tasks were added before it.
        until: When its lease expires, on the clock of leases.
    """

    task: StoredTask
    place: int
    journal: dict[str, bytes]
    until: float = 0.0


class MemoryStores(Stores):
    """Stores in memory. Several servers in one run of Trio may share an object, as processes share a file.

    The data lives as long as the object, even after its block has been left.

    Args:
        max_events: The maximum number of events of sessions; beyond a limit, the oldest are deleted.
        max_bytes: The maximum size of their messages, in bytes.
        max_age: Seconds for which an event is kept.
        clock: Returns the seconds by which leases and events age; Trio's clock by default, so that leases expire in the
            virtual time of a test.
        now: Returns the seconds since the epoch, by which tasks expire.

    Raises:
        TypeError: If a limit is not a number, or a clock can't be called.
        ValueError: If a limit is not above 0.
    """

    shared = False

    def __init__(
        self,
        *,
        max_events: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_age: float = 600.0,
        clock: Callable[[], float] = trio.current_time,
        now: Callable[[], float] = time.time,
    ) -> None:
        check_hook("clock", clock, sync=True)
        check_hook("now", now, sync=True)
        events = MemoryEventStore(max_events=max_events, max_bytes=max_bytes, max_age=max_age, clock=clock)
        self._clock = clock
        self._now = now
        self._server: str | None = None
        self._listeners = TopicListeners()
        self._sessions = MemorySessions(events, self._listeners, clock, now)
        self._changes = MemoryChanges(now)
        self._states = MemoryStates(now)
        self._counters = MemoryCounters(clock, now)
        self._places = 0
        self._tasks: dict[str, _Held] = {}
        self._working: set[str] = set()  # the keys of the tasks that may be claimed, now or when their lease is lost
        # A heap of the times at which tasks expire. An entry is stale if the task now expires at another time.
        self._expiring: list[tuple[float, str]] = []

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *exc: object) -> None:
        with trio.CancelScope(shield=exc[0] is not None):  # a Cancelled must not replace the block's exception
            await trio.lowlevel.checkpoint()

    @property
    def sessions(self) -> MemorySessions:
        return self._sessions

    async def own(self, server: str) -> None:
        await trio.lowlevel.checkpoint()
        if self._server is None:
            self._server = server
        elif self._server != server:
            raise other_server("the object", self._server, server)

    def clock(self) -> float:
        return self._clock()

    def now(self) -> float:
        return self._now()

    def wake(self, topic: str) -> None:
        self._listeners.wake(topic)

    def listen(self, topic: str, *, look: float = LOOK) -> AbstractContextManager[TopicListener]:
        return self._listeners.listen(topic, self._until_lost)

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def add_task(
        self,
        task: StoredTask,
        entries: Sequence[JournalEntry] = (),
        *,
        lease: float | None = None,
        limit: int | None = None,
    ) -> StoredTask:
        await trio.lowlevel.checkpoint()
        self._drop_expired()
        if task.key in self._tasks:
            raise task_exists(task.key)
        if limit is not None and len(self._tasks) >= limit:
            raise store_full(limit)
        task = attrs.evolve(task, token="" if lease is None else secrets.token_urlsafe(16))
        self._places += 1
        held = self._tasks[task.key] = _Held(task, self._places, dict(entries))
        if lease is not None:
            held.until = self._clock() + lease
            self._listeners.hurry(lease + MOMENT)
        self._keep(held, task)
        if task.expires is not None:
            heapq.heappush(self._expiring, (task.expires, task.key))
        return task

    async def task(self, key: str) -> StoredTask | None:
        await trio.lowlevel.checkpoint()
        held = self._held(key)
        return None if held is None else held.task

    async def journal(self, key: str) -> Sequence[JournalEntry]:
        await trio.lowlevel.checkpoint()
        held = self._held(key)
        return () if held is None else tuple(held.journal.items())

    async def note(self, key: str, token: str, entry: JournalEntry) -> None:
        await trio.lowlevel.checkpoint()
        held = self._held(key)
        if held is None or not token or held.task.token != token:
            raise stale_writer(key)
        held.journal.setdefault(*entry)

    async def put_task(
        self, task: StoredTask, entries: Sequence[JournalEntry] = (), *, token: str | None = None
    ) -> bool:
        await trio.lowlevel.checkpoint()
        self._drop_expired()
        held = self._held(task.key)
        if held is None:
            return False
        if token is not None and not (token and held.task.token == token):
            raise stale_writer(task.key)
        if held.task.version != task.version - 1:
            return False
        if task.token not in ("", held.task.token):
            raise stale_writer(task.key)
        if task.expires is not None and task.expires != held.task.expires:
            heapq.heappush(self._expiring, (task.expires, task.key))
        self._keep(held, task)
        for name, value in entries:
            held.journal.setdefault(name, value)
        return True

    async def claim_tasks(self, tools: Collection[str], *, lease: float, most: int) -> Sequence[Claim]:
        await trio.lowlevel.checkpoint()
        self._drop_expired()
        start = self._clock()
        found = [
            held
            for held in map(self._tasks.__getitem__, self._working)
            if held.task.tool in tools and (not held.task.token or held.until <= start)
        ]
        found.sort(key=lambda held: (held.task.created, held.place))
        claims = []
        for held in found[:most]:
            lost = bool(held.task.token)
            held.until = start + lease
            self._keep(held, attrs.evolve(held.task, token=secrets.token_urlsafe(16), version=held.task.version + 1))
            claims.append(Claim(held.task, lost))
        if claims:
            self._listeners.hurry(lease + MOMENT)
        return claims

    async def renew(self, leases: Mapping[str, str], *, lease: float) -> Mapping[str, StoredTask | None]:
        await trio.lowlevel.checkpoint()
        until = self._clock() + lease
        renewed: dict[str, StoredTask | None] = {}
        for key, token in leases.items():
            held = self._held(key)
            if held is None or not token or held.task.token != token:
                renewed[key] = None
            else:
                held.until = until
                renewed[key] = held.task
        return renewed

    async def versions(self, keys: Collection[str]) -> Mapping[str, int]:
        await trio.lowlevel.checkpoint()
        return {key: held.task.version for key in keys if (held := self._held(key)) is not None}

    # --- changes, the state of users, and counters ---------------------------------------------------------------

    async def announce(self, topics: Collection[str]) -> int:
        await trio.lowlevel.checkpoint()
        return self._changes.announce(topics)

    async def changed(self, after: int) -> Changed:
        await trio.lowlevel.checkpoint()
        return self._changes.since(after)

    async def state(self, user: str, name: str) -> StateEntry | None:
        await trio.lowlevel.checkpoint()
        return self._states.get(user, name)

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        await trio.lowlevel.checkpoint()
        return self._states.put(user, name, value, tag, expires)

    async def forget_states(self, user: str) -> None:
        await trio.lowlevel.checkpoint()
        self._states.forget(user)

    async def take(self, bucket: str, *, rate: float, burst: int) -> float:
        await trio.lowlevel.checkpoint()
        return self._counters.take(bucket, rate, burst)

    async def remember(self, key: str, *, seconds: float) -> bool:
        await trio.lowlevel.checkpoint()
        return self._counters.remember(key, seconds)

    # --- inside --------------------------------------------------------------------------------------------------

    def _until_lost(self) -> float:
        """Return the seconds until the next lease expires, when a server has to look for lost tasks and members."""
        now = self._clock()
        leases = [each.until for key in self._working if (each := self._tasks[key]).task.token]
        leases += self._sessions.leases()
        return min((until - now for until in leases if until > now), default=math.inf) + MOMENT

    def _held(self, key: str) -> _Held | None:
        held = self._tasks.get(key)
        return None if held is None or _expired(held.task, self._now()) else held

    def _keep(self, held: _Held, task: StoredTask) -> None:
        held.task = task
        if task.status == "working":
            self._working.add(task.key)
        else:
            self._working.discard(task.key)

    def _drop_expired(self) -> None:
        now = self._now()
        while self._expiring and self._expiring[0][0] <= now:
            _, key = heapq.heappop(self._expiring)
            held = self._tasks.get(key)
            if held is not None and _expired(held.task, now):
                del self._tasks[key]
                self._working.discard(key)


def _expired(task: StoredTask, now: float) -> bool:
    return task.expires is not None and task.expires <= now
