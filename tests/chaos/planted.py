"""Faults to plant in the library, to see that a run finds each of them: ``python -m tests.chaos --plant NAME``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from trio_mcp.http.runner.wire import Connections
from trio_mcp.server import bus
from trio_mcp.stores import KeyRing, SqliteStores

__all__ = ["PLANTED"]


def _no_looks() -> None:
    """A process that misses a wake-up looks for changes an hour later."""
    bus.LOOK = 3600.0  # type: ignore[misc]


def _rude_end() -> None:
    """A process that is to end does so at once, whatever it runs."""
    Connections.all_ended = lambda self: os._exit(0)  # type: ignore[method-assign]


def _blind_writes() -> None:
    """An update of a state does not look whether another one came before it."""
    put: Any = SqliteStores.put_state

    async def blind(self: SqliteStores, user: str, name: str, value: bytes, **more: Any) -> bool:
        entry = await self.state(user, name)
        return bool(await put(self, user, name, value, **{**more, "tag": None if entry is None else entry.tag}))

    SqliteStores.put_state = blind  # type: ignore[method-assign]


def _one_key() -> None:
    """Only the key that signs is accepted."""
    keys = KeyRing.keys
    KeyRing.keys = lambda self, now, lifetime: keys(self, now, lifetime)[:1]  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], None]] = {
    "no looks": _no_looks,
    "rude end": _rude_end,
    "blind writes": _blind_writes,
    "one key": _one_key,
}
