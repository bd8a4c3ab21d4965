"""Faults to plant in the library, to see that a run finds each of them: ``python -m tests.chaos --plant NAME``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import trio

from trio_mcp.http.runner.wire import Connections
from trio_mcp.http.server.legacy.sharing import Membership
from trio_mcp.server import bus
from trio_mcp.stores import KeyRing, SqliteStores, StoreError, Stores, ValkeyStores
from trio_mcp.stores.valkey_client import EngineClient

__all__ = ["PLANTED"]


def _no_looks() -> None:
    """A process that misses a wake-up looks for changes an hour later."""
    bus.LOOK = 3600.0  # type: ignore[misc]


def _rude_end() -> None:
    """A process that is to end does so at once, whatever it runs."""
    Connections.all_ended = lambda self: os._exit(0)  # type: ignore[method-assign]


def _blind_writes() -> None:
    """An update of a state does not look whether another one came before it."""
    stores: Any
    for stores in (SqliteStores, ValkeyStores):
        stores.put_state = _blind(stores.put_state)


def _blind(put: Any) -> Any:
    async def blind(self: Stores, user: str, name: str, value: bytes, **more: Any) -> Any:
        entry = await self.state(user, name)
        return await put(self, user, name, value, **{**more, "tag": None if entry is None else entry.tag})

    return blind


def _repeated_writes() -> None:
    """A command to the engine to which there was no response is sent again."""
    run: Any = EngineClient.run

    async def again(self: EngineClient, name: str, key: str, arguments: Any) -> Any:
        for _ in range(50):
            try:
                return await run(self, name, key, arguments)
            except StoreError:
                await trio.sleep(0.05)
        return await run(self, name, key, arguments)

    EngineClient.run = again  # type: ignore[method-assign]


def _forgotten_journal() -> None:
    """What is noted in the journal of a task is not kept."""
    stores: Any
    for stores in (SqliteStores, ValkeyStores):
        stores.journal = _no_journal


async def _no_journal(self: Stores, key: str) -> tuple[()]:
    await trio.lowlevel.checkpoint()
    return ()


def _one_key() -> None:
    """Only the key that signs is accepted."""
    keys = KeyRing.keys
    KeyRing.keys = lambda self, now, lifetime: keys(self, now, lifetime)[:1]  # type: ignore[method-assign]


def _no_burials() -> None:
    """No process ends the streams of one that has died."""

    async def look(self: Membership) -> None:
        await trio.lowlevel.checkpoint()

    Membership._look_after_others = look  # type: ignore[method-assign]  # noqa: SLF001


PLANTED: dict[str, Callable[[], None]] = {
    "no looks": _no_looks,
    "rude end": _rude_end,
    "blind writes": _blind_writes,
    "one key": _one_key,
    "no burials": _no_burials,
    "repeated writes": _repeated_writes,
    "forgotten journal": _forgotten_journal,
}
