"""`check_stores`: the stores of this library keep every rule, and each rule finds the stores that break it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from tests.stores.faulty_sessions import FaultySessions, OfFaultySessions
from trio_mcp.stores import (
    Claim,
    JournalEntry,
    MemoryStores,
    SqliteStores,
    StaleWriter,
    StatePut,
    StoredTask,
    Stores,
)
from trio_mcp.testing import StoresBroken, check_stores
from trio_mcp.testing.stores.check import STORE_RULES

IN_REAL_TIME = {"expiry_can_be_moved", "sessions_expire"}
"""The rules that wait for something to expire."""


@contextlib.asynccontextmanager
async def in_memory(make: Callable[[], Stores] = MemoryStores) -> AsyncIterator[tuple[Stores, Stores]]:
    async with make() as stores:
        yield stores, stores


@contextlib.asynccontextmanager
async def in_a_file(**options: Any) -> AsyncIterator[tuple[Stores, Stores]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stores.db")
        async with SqliteStores(path, **options) as one, SqliteStores(path, **options) as two:
            yield one, two


async def test_stores_in_memory_keep_every_rule_in_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    report = await check_stores(in_memory, rules=set(STORE_RULES) - IN_REAL_TIME, lease=3600, timeout=1e6)
    assert set(report.kept) == set(STORE_RULES) - IN_REAL_TIME


async def test_stores_in_memory_keep_every_rule() -> None:
    assert set((await check_stores(in_memory)).kept) == set(STORE_RULES)


@pytest.mark.parametrize("durable", ["process", "power"])
async def test_stores_in_a_file_keep_every_rule(durable: str) -> None:
    assert set((await check_stores(lambda: in_a_file(durable=durable))).kept) == set(STORE_RULES)


# --- each rule finds what breaks it -----------------------------------------------------------------------------------


class Faulty(MemoryStores):
    """The base of stores that break the rule with the name in ``breaks``."""

    breaks = ""


class OfAllServers(Faulty):
    breaks = "belongs_to_one_server"

    async def own(self, server: str) -> None:
        await trio.lowlevel.checkpoint()


class EnteredAnew(Faulty):
    breaks = "may_be_entered_again"

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        self._tasks.clear()


class Forgetful(Faulty):
    breaks = "keeps_every_column"

    async def task(self, key: str) -> StoredTask | None:
        found = await super().task(key)
        return found and attrs.evolve(found, message=None)


class Overwriting(Faulty):
    breaks = "keys_are_unique"

    async def add_task(self, task: StoredTask, *args: Any, **options: Any) -> StoredTask:
        self._tasks.pop(task.key, None)
        return await super().add_task(task, *args, **options)


class Unlimited(Faulty):
    breaks = "has_a_limit"

    async def add_task(self, task: StoredTask, *args: Any, lease: float | None = None, **_: Any) -> StoredTask:
        return await super().add_task(task, *args, lease=lease)


class Sorted(Faulty):
    breaks = "journals_are_in_order"

    async def journal(self, key: str) -> Sequence[JournalEntry]:
        return sorted(await super().journal(key))


class AnyVersion(Faulty):
    breaks = "replaces_the_version_before"

    async def put_task(self, task: StoredTask, *args: Any, token: str | None = None) -> bool:
        if (held := self._tasks.get(task.key)) is not None and task.version == 4:
            task = attrs.evolve(task, version=held.task.version + 1)
        return await super().put_task(task, *args, token=token)


class Racing(Faulty):
    breaks = "one_replaces"

    async def put_task(self, task: StoredTask, *args: Any, token: str | None = None) -> bool:
        known = await self.versions([task.key])
        await trio.lowlevel.checkpoint()
        if known.get(task.key) != task.version - 1:
            return await super().put_task(task, *args, token=token)
        await super().put_task(task, *args, token=token)
        return True


class Trusting(Faulty):
    breaks = "writers_hold_the_lease"

    async def put_task(self, task: StoredTask, *args: Any, token: str | None = None) -> bool:
        return await super().put_task(task, *args)


class Undead(Faulty):
    breaks = "expired_tasks_are_gone"

    async def journal(self, key: str) -> Sequence[JournalEntry]:
        await trio.lowlevel.checkpoint()
        return tuple(self._tasks[key].journal.items()) if key in self._tasks else ()

    def _drop_expired(self) -> None:
        pass


class SetOnce(Faulty):
    breaks = "expiry_can_be_moved"

    async def put_task(self, task: StoredTask, *args: Any, token: str | None = None) -> bool:
        if (held := self._tasks.get(task.key)) is not None:
            task = attrs.evolve(task, expires=held.task.expires)
        return await super().put_task(task, *args, token=token)


class Restless(Faulty):
    breaks = "clocks_agree"

    def clock(self) -> float:
        self.ticks = getattr(self, "ticks", 0.0) - 1
        return super().clock() + self.ticks


class NewestFirst(Faulty):
    breaks = "ready_tasks_are_claimed"

    async def claim_tasks(self, tools: Collection[str], *, lease: float, most: int) -> Sequence[Claim]:
        return (await super().claim_tasks(tools, lease=lease, most=most))[::-1]


class Shared(Faulty):
    breaks = "one_claims"

    async def claim_tasks(self, tools: Collection[str], *, lease: float, most: int) -> Sequence[Claim]:
        before = [held.task for held in self._tasks.values() if not held.task.token][:most]
        await trio.lowlevel.checkpoint()
        await super().claim_tasks(tools, lease=lease, most=most)
        return [Claim(task, False) for task in before]


class Strict(Faulty):
    """A write after the expiry of a lease is refused, even if no process has claimed the task."""

    breaks = "lost_leases_are_claimed"

    async def note(self, key: str, token: str, entry: JournalEntry) -> None:
        if key in self._tasks and self._tasks[key].until <= self.clock():
            raise StaleWriter
        await super().note(key, token, entry)


class NeverRenewed(Faulty):
    breaks = "renewed_leases_are_kept"

    async def renew(self, leases: Mapping[str, str], *, lease: float) -> Mapping[str, StoredTask | None]:
        return await super().renew(leases, lease=lease / 100)


class Deaf(Faulty):
    """No listener is woken."""

    breaks = "wakes_are_heard"

    def wake(self, topic: str) -> None:
        pass


class Hasty(Faulty):
    breaks = "cancelled_calls_have_no_effect"

    async def renew(self, leases: Mapping[str, str], *, lease: float) -> Mapping[str, StoredTask | None]:
        return {} if not leases else await super().renew(leases, lease=lease)


class Unheard(Faulty):
    breaks = "changes_are_found"

    async def announce(self, topics: Collection[str]) -> int:
        return await super().announce(sorted(topics)[:1])


class Coarse(Faulty):
    breaks = "no_change_is_missed"

    async def announce(self, topics: Collection[str]) -> int:
        return await super().announce([each for each in topics if each != "3/7"])


class Blind(Faulty):
    breaks = "states_are_compared"

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        found = await super().state(user, name)
        return await super().put_state(user, name, value, tag=found and found.tag, expires=expires)


class Secretive(Faulty):
    breaks = "what_is_kept_is_said"

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        put = await super().put_state(user, name, value, tag=tag, expires=expires)
        return put if put.done else StatePut(False, None)


class Sticky(Faulty):
    breaks = "states_are_forgotten"

    async def forget_states(self, user: str) -> None:
        await trio.lowlevel.checkpoint()


class Eternal(Faulty):
    breaks = "states_expire"

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        return await super().put_state(user, name, value, tag=tag, expires=None)


class Losing(Faulty):
    breaks = "no_update_is_lost"

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        if value == b"7":  # as if two had seen the same value
            found = await super().state(user, name)
            return await super().put_state(user, name, b"6", tag=found and found.tag, expires=expires)
        return await super().put_state(user, name, value, tag=tag, expires=expires)


class Generous(Faulty):
    breaks = "buckets_are_shared"

    async def take(self, bucket: str, *, rate: float, burst: int) -> float:
        return await super().take(bucket, rate=rate, burst=burst + 1)


class Dry(Faulty):
    breaks = "buckets_fill"

    async def take(self, bucket: str, *, rate: float, burst: int) -> float:
        return await super().take(bucket, rate=rate / 1000, burst=burst)


class Naive(Faulty):
    breaks = "keys_are_new_once"

    async def remember(self, key: str, *, seconds: float) -> bool:
        await super().remember(key, seconds=seconds)
        return True


KINDS: list[type[Faulty | FaultySessions]] = [*Faulty.__subclasses__(), *FaultySessions.__subclasses__()]


def test_there_are_faulty_stores_for_every_rule() -> None:
    assert {each.breaks for each in KINDS} == set(STORE_RULES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.breaks)
async def test_a_rule_finds_the_stores_that_break_it(kind: type[Faulty | FaultySessions]) -> None:
    def make() -> Stores:
        return kind() if issubclass(kind, Faulty) else OfFaultySessions(kind)

    with pytest.raises(StoresBroken, match=f"broken: {kind.breaks}: ") as caught:
        await check_stores(lambda: in_memory(make), rules=[kind.breaks], timeout=2)
    assert [*caught.value.report.broken] == [kind.breaks]


async def test_what_never_returns_is_reported() -> None:
    class Hanging(MemoryStores):
        async def journal(self, key: str) -> Sequence[JournalEntry]:
            await trio.sleep_forever()
            raise AssertionError

    with pytest.raises(StoresBroken, match=r"did not end within 0\.2 seconds"):
        await check_stores(lambda: in_memory(Hanging), rules=["journals_are_in_order"], timeout=0.2)


async def test_a_rule_that_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown rule 'x'; the rules are belongs_to_one_server, "):
        await check_stores(in_memory, rules=["x"])
