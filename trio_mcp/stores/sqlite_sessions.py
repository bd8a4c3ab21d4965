"""The sessions of `SqliteStores`, and the members that serve them."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from trio_mcp.stores import session_tables
from trio_mcp.stores.event_store import StoredEvent
from trio_mcp.stores.event_stores import delete_events, insert_events, lost, select_events
from trio_mcp.stores.refusals import stale_member
from trio_mcp.stores.session_store import LETTERS, MAILBOX, Letter, Member, OpenStream, SessionStore, StoredSession
from trio_mcp.stores.session_tables import Turn
from trio_mcp.stores.times import Moment

__all__ = ["SqliteSessions"]

T = TypeVar("T")

Transact: TypeAlias = Callable[[Callable[[sqlite3.Connection, Moment], Any]], Awaitable[Any]]
"""Calls a function in a transaction, and returns its result, or raises the exception that it returns."""


class SqliteSessions(SessionStore):
    """The sessions of `SqliteStores`.

    Args:
        read: Calls a function in a transaction that only reads.
        write: Calls a function in a transaction that may write.
        wake: Wakes the listeners of a topic.
        max_events: The maximum number of events; beyond it, the oldest are deleted.
        max_age: Seconds for which an event is kept.
    """

    def __init__(
        self, read: Transact, write: Transact, wake: Callable[[str], object], *, max_events: int, max_age: float
    ) -> None:
        self._read = read
        self._transact = write
        self._wake = wake
        self._insert = partial(insert_events, max_age=max_age, max_events=max_events)
        self._max_age = max_age

    # --- members -------------------------------------------------------------------------------------------------

    async def join(self, *, lease: float) -> Member:
        token = secrets.token_urlsafe(16)
        return await self._write(lambda turn: session_tables.join(turn, token, lease))

    async def stay(self, token: str, *, lease: float, read: int = 0) -> None:
        await self._write(lambda turn: session_tables.stay(turn, token, lease, read))

    async def letters(self, token: str, after: int) -> Sequence[Letter]:
        return _held(await self._read(lambda each, _: session_tables.letters(each, token, after)))

    async def take_over(self, *, lease: float, most: int) -> Sequence[Member]:
        # Each process looks once a second, and most find nothing: those must not wait for the write lock.
        if not await self._read(session_tables.losable):
            return []
        tokens = [secrets.token_urlsafe(16) for _ in range(most)]
        return await self._write(lambda turn: session_tables.take_over(turn, tokens, lease))

    async def open_streams(self, token: str, most: int) -> Sequence[OpenStream]:
        return _held(await self._read(lambda each, _: session_tables.open_streams(each, token, most)))

    async def leave(self, token: str) -> None:
        await self._write(lambda turn: session_tables.leave(turn, token))

    # --- sessions ------------------------------------------------------------------------------------------------

    async def add(self, session: StoredSession, *, limit: int, unless: str = "") -> None:
        await self._write(lambda turn: session_tables.add(turn, session, limit, unless))

    async def session(self, key: str, *, known: int = 0) -> StoredSession | None:
        found: StoredSession | None = await self._read(
            lambda each, moment: session_tables.session_of(each, key, known, moment)
        )
        return found

    async def change(
        self, key: str, token: str, *, expires: float | None = None, fields: Mapping[str, bytes | None] | None = None
    ) -> int | None:
        return await self._write(lambda turn: session_tables.change(turn, key, token, expires, fields))

    async def end(self, key: str) -> None:
        await self._write(lambda turn: session_tables.end(turn, key))

    # --- streams -------------------------------------------------------------------------------------------------

    async def open(self, key: str, token: str, stream: int, requests: Collection[str]) -> bool:
        return await self._write(lambda turn: session_tables.open_stream(turn, key, token, stream, requests))

    async def append(
        self,
        session: str,
        events: Sequence[StoredEvent],
        token: str | None = None,
        *,
        ended: Collection[int] = (),
        expires: float | None = None,
    ) -> Sequence[int]:
        return await self._write(
            lambda turn: session_tables.append(turn, self._insert, session, events, token, ended, expires)
        )

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        found: list[StoredEvent] | None = await self._read(
            lambda each, moment: select_events(each, session, stream, number, moment.now - self._max_age)
        )
        if found is None:
            raise lost(stream, number)
        return found

    async def forget(self, session: str) -> None:
        await self._write(lambda turn: delete_events(turn.connection, session))

    async def carry(self, key: str, token: str, stream: int) -> tuple[int, bool] | None:
        return await self._write(lambda turn: session_tables.carry(turn, key, token, stream))

    async def drop(self, key: str, token: str, stream: int) -> None:
        await self._write(lambda turn: session_tables.drop(turn, key, token, stream))

    async def send(
        self, key: str, data: bytes, *, member: int | None = None, request: str | None = None, limit: int = MAILBOX
    ) -> bool:
        return await self._write(lambda turn: session_tables.send(turn, key, data, member, request, limit))

    # --- inside --------------------------------------------------------------------------------------------------

    async def _write(self, work: Callable[[Turn], T | Exception]) -> T:
        def write(connection: sqlite3.Connection, moment: Moment) -> tuple[T | Exception, bool]:
            turn = Turn(connection, moment)
            return work(turn), turn.posted

        result, posted = await self._transact(write)
        if posted:
            self._wake(LETTERS)
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]


def _held(found: list[T] | None) -> list[T]:
    """Return what was found for a token, unless the token is stale."""
    if found is None:
        raise stale_member()
    return found
