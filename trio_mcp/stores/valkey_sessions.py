"""The sessions of `ValkeyStores`, and the members that serve them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import trio

from trio_mcp.stores.event_store import StoredEvent
from trio_mcp.stores.event_stores import PAGE, lost
from trio_mcp.stores.refusals import mailbox_full, session_exists, sessions_full, stale_member
from trio_mcp.stores.session_store import MAILBOX, Letter, Member, OpenStream, SessionStore, StoredSession

__all__ = ["ValkeySessions"]

PAGE_BYTES: Final = 1024 * 1024
"""The size of the messages, in bytes, that `after` and `letters` return at once, or the first one (arbitrary)."""

MORE: Final = b"more"
"""The outcome of a script that has not done all its work, so that other calls need not wait for it."""

FIELD: Final = "f:"
"""The beginning of the names of fields in the engine."""


class RunSessionScript(Protocol):
    """Runs a script; wakes those who listen for letters if it has put some into mailboxes."""

    def __call__(self, name: str, *arguments: str | bytes) -> Awaitable[list[Any]]:
        """Return the name of the script's outcome, and the values that follow."""


class ValkeySessions(SessionStore):
    """The sessions of `ValkeyStores`.

    Args:
        run: Runs a script.
        max_events: The maximum number of events; beyond it, the oldest are deleted.
        max_age: Seconds for which an event is kept.
    """

    def __init__(self, run: RunSessionScript, *, max_events: int, max_age: float) -> None:
        self._run = run
        self._bounds = (str(max_events), repr(max_age))

    # --- members -------------------------------------------------------------------------------------------------

    async def join(self, *, lease: float) -> Member:
        secret = _secret()
        _, number = await self._run("join", secret, repr(lease))
        return _member(number, secret)

    async def stay(self, token: str, *, lease: float, read: int = 0) -> None:
        await self._whole("stay", token, repr(lease), str(read))

    async def letters(self, token: str, after: int) -> Sequence[Letter]:
        _, found = await self._fenced("letters", token, str(after), str(PAGE), str(PAGE_BYTES))
        return [_letter(int(float(number)), label, value) for number, label, value in found]

    async def take_over(self, *, lease: float, most: int) -> Sequence[Member]:
        new = [_secret() for _ in range(most)]
        _, numbers = await self._run("take_over", repr(lease), str(most), *new)
        return [_member(number, secret) for number, secret in zip(numbers, new, strict=False)]

    async def open_streams(self, token: str, most: int) -> Sequence[OpenStream]:
        _, found = await self._whole("open_streams", token, str(most))
        return [
            OpenStream(key.decode(), int(stream), tuple(requests.decode().split("\0")[:-1]))
            for key, stream, requests in found
        ]

    async def leave(self, token: str) -> None:
        await self._whole("leave", token)

    # --- sessions ------------------------------------------------------------------------------------------------

    async def add(self, session: StoredSession, *, limit: int, unless: str = "") -> None:
        fields = [part for pair in session.fields.items() for part in pair]
        head = (session.key, repr(session.expires), session.declaration, str(limit), unless)
        (status, *_) = await self._whole("add_session", *head, *fields)
        if status == b"exists":
            raise session_exists(session.key)
        if status == b"full":
            raise sessions_full(limit)

    async def session(self, key: str, *, known: int = 0) -> StoredSession | None:
        status, *found = await self._run("session", key, str(known))
        if status == b"none":
            return None
        columns = {name.decode(): value for name, value in zip(found[0][::2], found[0][1::2], strict=True)}
        return StoredSession(
            key,
            columns.get("declaration", b""),
            {name.removeprefix(FIELD): value for name, value in columns.items() if name.startswith(FIELD)},
            float(columns["expires"]),
            int(columns["version"]),
        )

    async def change(
        self, key: str, token: str, *, expires: float | None = None, fields: Mapping[str, bytes | None] | None = None
    ) -> int | None:
        columns: list[str | bytes] = []
        for name, value in (fields or {}).items():
            columns += (name, "", b"") if value is None else (name, "1", value)
        status, *found = await self._fenced("change_session", key, token, _optional(expires), *columns)
        return None if status == b"none" else int(found[0])

    async def end(self, key: str) -> None:
        await self._whole("end_session", key)

    # --- streams -------------------------------------------------------------------------------------------------

    async def open(self, key: str, token: str, stream: int, requests: Collection[str]) -> bool:
        (status, *_) = await self._fenced("open_stream", key, token, str(stream), *requests)
        return bool(status == b"done")

    async def append(
        self,
        session: str,
        events: Sequence[StoredEvent],
        token: str | None = None,
        *,
        ended: Collection[int] = (),
        expires: float | None = None,
    ) -> Sequence[int]:
        writer = ("", "") if token is None else ("1", token)
        head = (session, *self._bounds, *writer, _optional(expires), str(len(ended)), *map(str, ended))
        each = [part for event in events for part in (str(event.stream), str(event.number), event.data)]
        status, *found = await self._fenced("append", *head, *each)
        return [event.number for event in events] if status == b"none" else [int(number) for number in found[0]]

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        arguments = (session, str(stream), str(number), str(PAGE), str(PAGE_BYTES))
        status, *found = await self._run("after", *arguments)
        if status == b"gone":
            raise lost(stream, number)
        return [StoredEvent(stream, number + place, data) for place, data in enumerate(found[0], 1)]

    async def forget(self, session: str) -> None:
        await self._run("forget", session)

    async def carry(self, key: str, token: str, stream: int) -> tuple[int, bool] | None:
        status, *found = await self._fenced("carry", key, token, str(stream))
        return None if status == b"none" else (int(found[0]), bool(found[1]))

    async def drop(self, key: str, token: str, stream: int) -> None:
        await self._run("drop_stream", key, token, str(stream))

    async def send(
        self, key: str, data: bytes, *, member: int | None = None, request: str | None = None, limit: int = MAILBOX
    ) -> bool:
        number = "" if member is None else str(member)
        status, found = await self._run("send", key, data, number, request or "", str(limit))
        if status == b"full":
            raise mailbox_full(int(found), limit)
        return bool(found)

    # --- inside --------------------------------------------------------------------------------------------------

    async def _whole(self, name: str, *arguments: str | bytes) -> list[Any]:
        """Run a script that does at most a piece of the work at a time, until nothing is left to do.

        If this is cancelled after the first piece, it goes on. If the process dies, or the engine is away, what is left
        waits for the next call, or for that of another process.

        Raises:
            StaleWriter: If there is a token among the arguments, and it is stale.
        """
        found = await self._fenced(name, *arguments)
        with trio.CancelScope(shield=True):
            while found[0] == MORE:
                found = await self._fenced(name, *arguments)
        return found

    async def _fenced(self, name: str, *arguments: str | bytes) -> list[Any]:
        """Run a script with a token among its arguments.

        Raises:
            StaleWriter: If the token is stale.
        """
        found = await self._run(name, *arguments)
        if found[0] == b"stale":
            raise stale_member()
        return found


def _secret() -> str:
    return secrets.token_urlsafe(16)


def _member(number: bytes, secret: str) -> Member:
    """Return a member; its token has its number, by which the scripts find it."""
    return Member(int(number), f"{int(number)}.{secret}")


def _optional(number: float | None) -> str:
    return "" if number is None else repr(number)


def _letter(number: int, label: bytes, value: bytes) -> Letter:
    """Return a letter from what ``post`` in ``sessions.lua`` has kept."""
    name, stream, session = label.decode().split(" ", 2)
    kind = cast("Any", name)
    if kind == "message":
        return Letter(number, kind, session, data=value)
    if kind == "events":
        event, ended = value.split()
        return Letter(number, kind, session, int(stream), int(event), ended == b"1")
    return Letter(number, kind, session, int(stream))
