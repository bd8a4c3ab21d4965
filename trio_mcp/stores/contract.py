"""The contract of stores: what several processes of one server share, and what outlives a process.

A store has no logic of its own: it keeps bytes and a few columns, and compares tokens, versions and clocks in the
transaction of a write. `trio_mcp.testing.check_stores` checks an implementation.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import attrs

if TYPE_CHECKING:
    from trio_mcp.stores.event_store import StoredEvent
    from trio_mcp.stores.listeners import TopicListener

__all__ = [
    "LEASE",
    "Claim",
    "JournalEntry",
    "StaleWriter",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoredTask",
    "Stores",
]

LEASE: Final = 15.0
"""Seconds for which a lease holds by default."""

JournalEntry: TypeAlias = tuple[str, bytes]
"""An entry of a task's journal: its key, unique within the task, and its value."""


class StoreError(Exception):
    """A store can't be used, for example because its file is damaged, belongs to another server, or can't be written.

    The message says what happened, to which file, and what to do.
    """


class StoreBusy(StoreError):
    """Another process kept the store busy for longer than the store's ``timeout``."""


class StoreFull(StoreError):
    """The store has no room for another task."""


class StaleWriter(StoreError):
    """The writer's token is not that of the current lease: another process has taken over."""


@attrs.frozen(kw_only=True)
class StoredTask:
    """A task as a store keeps it. The store reads the columns that it needs, and returns the others unchanged.

    Texts are Unicode without lone surrogates, so that a store may encode them as UTF-8.

    Attributes:
        key: A digest of the task's id.
        owner: On whose behalf the task runs, as text to compare; empty for an anonymous task.
        tool: The name of the tool.
        status: ``"working"``, ``"input_required"``, ``"completed"``, ``"failed"`` or ``"cancelled"``.
        created: Seconds since the epoch.
        updated: Seconds since the epoch.
        expires: Seconds since the epoch, after which the store may delete the task and no longer returns it; None
            if it never expires.
        version: A number that grows with each change; a new task has version 1.
        token: The token of the lease under which the task runs; empty while no process runs it. A task whose status is
            ``"working"`` without a token is ready to be claimed.
        begun: Whether a run has begun since the task last became ready; the one who claims a task decides by it.
        takeovers: How many times a lost run was taken over.
        cancelling: Whether the task is to be cancelled by the process that runs it.
        message: A text about the state, for people; or None.
        body: What the task was called with.
        asked: The questions that wait for answers, or empty.
        result: The result or the error, or empty.
    """

    key: str
    owner: str
    tool: str
    status: str
    created: float
    updated: float
    expires: float | None
    version: int = 1
    token: str = ""
    begun: bool = False
    takeovers: int = 0
    cancelling: bool = False
    message: str | None = None
    body: bytes = b""
    asked: bytes = b""
    result: bytes = b""


@attrs.frozen
class Claim:
    """A task that this process now holds.

    Attributes:
        task: The task, with the new token.
        lost: Whether the lease of another run was lost; False if the task was ready.
    """

    task: StoredTask
    lost: bool


class Stores(abc.ABC):
    """The tasks and the sessions of a server, outside of its process.

    ``async with stores:`` opens the store, and closes it at the end.

    The block may be entered several times, by several servers; the last to leave closes the store.

    Each method is one transaction, which other processes see whole or not at all. Unless it says otherwise, a method
    that is cancelled before it took effect has no effect, and one that took effect returns. Any method may raise
    `StoreError`; a `StoreBusy` had no effect.

    **Leases.** A lease has a random token and lasts a number of seconds on `clock`, from the start of the call that
    made or renewed it. A lease counts as lost when it has run out. A lease from before the last start of this machine
    counts as lost when it has stayed unrenewed for its whole duration since a process opened the store after that
    start. A lease that has run out remains its holder's until another process takes the task: tokens are compared for
    equality with that of the task's lease, in the transaction of the write, and the time is not looked at.

    **Expiry.** A task whose `StoredTask.expires` has come is gone for every method, although a store may delete it
    later.
    """

    @abc.abstractmethod
    async def __aenter__(self) -> Self: ...

    @abc.abstractmethod
    async def __aexit__(self, *exc: object) -> None: ...

    @abc.abstractmethod
    async def own(self, server: str) -> None:
        """Note the name of the server that the store belongs to, unless one is noted already.

        Raises:
            StoreError: If it belongs to a server with another name.
        """

    @abc.abstractmethod
    def clock(self) -> float:
        """Return the seconds of the clock that leases are counted by; it is the same for all processes of a machine."""

    @abc.abstractmethod
    def now(self) -> float:
        """Return the seconds since the epoch, by which tasks expire."""

    # --- wake-ups ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def wake(self, topic: str) -> None:
        """Wake those who wait for a topic, in this process and, if the store can, in others. May lose anything."""

    @abc.abstractmethod
    def listen(self, topic: str) -> AbstractContextManager[TopicListener]:
        """Listen to a topic for the length of a block. Listen before you look, so that no wake-up between is lost:

            with stores.listen("answers") as listener:
                while not await look(stores):
                    await listener.woken()

        In a store that other processes may write, `TopicListener.woken` returns after a second at most.
        """

    # --- tasks ---------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def add_task(
        self,
        task: StoredTask,
        entries: Sequence[JournalEntry] = (),
        *,
        lease: float | None = None,
        limit: int | None = None,
    ) -> StoredTask:
        """Add a task with its journal.

        Args:
            task: The task; its ``token`` is ignored.
            entries: The entries of its journal so far.
            lease: Seconds of the lease that the caller gets, whose token is in the result; None for no lease.
            limit: How many tasks the store may hold.

        Raises:
            StoreFull: If the store already holds ``limit`` tasks that have not expired.
            ValueError: If there is a task with this key.
        """

    @abc.abstractmethod
    async def task(self, key: str) -> StoredTask | None:
        """Return a task; None if no task has this key, or if it has expired."""

    @abc.abstractmethod
    async def journal(self, key: str) -> Sequence[JournalEntry]:
        """Return the entries of a task's journal, in the order in which they were added."""

    @abc.abstractmethod
    async def note(self, key: str, token: str, entry: JournalEntry) -> None:
        """Add an entry to the journal of a task that the caller holds. An entry with this key stays as it is.

        Raises:
            StaleWriter: If ``token`` is not that of the task's lease, or the task is gone.
        """

    @abc.abstractmethod
    async def put_task(
        self, task: StoredTask, entries: Sequence[JournalEntry] = (), *, token: str | None = None
    ) -> bool:
        """Replace a task, and add entries to its journal, if the task has not changed meanwhile.

        The stored version must be one less than that of ``task``, and the task must not have expired. If ``task.token``
        is empty, its lease ends; otherwise it must be that of the current lease, which stays as it is.

        Args:
            task: The task as it is to be.
            entries: Entries to add to the journal; an entry with a key that exists stays as it is.
            token: The lease under which the caller writes; None for a caller that needs none.

        Returns:
            Whether the task was replaced; False if it is gone, or its version is another one.

        Raises:
            StaleWriter: If ``token`` is given and is not that of the task's lease, whatever its version is; also if the
                version is right, but ``task.token`` is neither empty nor that of the lease.
        """

    @abc.abstractmethod
    async def claim_tasks(self, tools: Collection[str], *, lease: float, most: int) -> Sequence[Claim]:
        """Take working tasks of these tools that are ready, or whose lease was lost, each with a new lease.

        A task is ready if its status is ``"working"`` and it has no token. Tasks with another status are not taken. The
        version of a claimed task grows by one, and nothing else of it changes but its token.

        Args:
            tools: The names of the tools that the caller can run.
            lease: Seconds of each lease.
            most: How many tasks to take.

        Returns:
            The claims, in the order in which the tasks were created; the oldest tasks are taken first.
        """

    @abc.abstractmethod
    async def renew(self, leases: Mapping[str, str], *, lease: float) -> Mapping[str, StoredTask | None]:
        """Renew leases, given as tokens by the keys of their tasks.

        Renewing changes no version.

        Returns:
            For each key the task as it is now; None if the lease is no longer the caller's, or the task is gone.
        """

    @abc.abstractmethod
    async def versions(self, keys: Collection[str]) -> Mapping[str, int]:
        """Return the versions of those of the tasks that exist and have not expired."""

    # --- the messages of sessions over HTTP, in the legacy era ---------------------------------------------------

    @abc.abstractmethod
    async def append(self, session: str, events: Sequence[StoredEvent], token: str | None = None) -> Sequence[int]:
        """Store all the events, or none, and return their numbers. An event that is already stored stays as it is.

        Sessions have no leases yet, so any token is a stale one.

        Args:
            session: A digest of the session's id.
            events: The events. An event of stream 0 whose number is 0 gets the number after the newest of its stream,
                or 1 if the stream has none.
            token: The lease under which the caller writes; None for a caller that needs none.

        Raises:
            StaleWriter: If ``token`` is given and is not that of the session's lease.
        """

    @abc.abstractmethod
    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        """Return the events of a stream after the event ``number``, in order: all later events, or at least the first.

        Raises:
            EventsLost: If the next event is no longer stored; also if neither a later event nor the event ``number`` is
                stored, because nothing is known about the stream then.
        """

    @abc.abstractmethod
    async def forget(self, session: str) -> None:
        """Delete the events of a session that has ended: no client will ask for them any more."""
