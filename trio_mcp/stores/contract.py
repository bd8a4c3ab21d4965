"""The contract of stores: the state that several processes of a server share, and that outlives a process.

A store has no logic of its own: it keeps bytes and a few columns, and compares tokens, versions and times in the
transaction of a write. `trio_mcp.testing.check_stores` checks an implementation.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, Self, TypeAlias

import attrs
import trio

if TYPE_CHECKING:
    from trio_mcp.stores.listeners import TopicListener
    from trio_mcp.stores.session_store import SessionStore

__all__ = [
    "LEASE",
    "LOOK",
    "MOST_TOPICS",
    "TOPIC_AGE",
    "Changed",
    "Claim",
    "JournalEntry",
    "StaleWriter",
    "StateConflict",
    "StateEntry",
    "StatePut",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoredTask",
    "Stores",
]

LEASE: Final = 15.0
"""The default duration of a lease, in seconds (arbitrary)."""

LOOK: Final = 1.0
"""Seconds after which a listener looks at a store that other processes may write."""

TOPIC_AGE: Final = 3600.0
"""Seconds for which a store keeps a topic that has changed."""

MOST_TOPICS: Final = 10_000
"""How many topics that have changed a store keeps."""

JournalEntry: TypeAlias = tuple[str, bytes]
"""An entry of a task's journal: its key, unique within the task, and its value."""


class StoreError(Exception):
    """A store can't be used, for example because its file is damaged, belongs to another server, or can't be written.

    The message says what happened, to which file if there is one, and what to do.
    """


class StoreBusy(StoreError):
    """The store can't be used at the moment, and the call had no effect.

    Another process kept it locked for longer than the store's ``timeout``, or the engine that keeps it is away.
    """


class StoreFull(StoreError):
    """The store already holds the maximum number of tasks or sessions, or a mailbox the maximum of messages."""


class StateConflict(StoreError):
    """Others have changed a user's state again and again, so that it could not be changed: try again later."""


class StaleWriter(StoreError):
    """The writer's token is not that of the current lease: the lease has ended, or another process has the task."""


@attrs.frozen(kw_only=True)
class StoredTask:
    """A task as a store keeps it. The store reads the columns that it needs, and returns the others unchanged.

    Strings contain no lone surrogates, so a store may encode them as UTF-8.

    Attributes:
        key: A digest of the task's id.
        owner: The identity of the principal for whom the task runs, as a string to compare; empty without a principal.
        tool: The name of the tool.
        status: ``"working"``, ``"input_required"``, ``"completed"``, ``"failed"`` or ``"cancelled"``.
        created: Seconds since the epoch.
        updated: Seconds since the epoch.
        expires: Seconds since the epoch, after which the store may delete the task and no longer returns it; None
            if it never expires.
        version: A number that grows by one with each change; a new task has version 1.
        token: The fencing token of the lease under which the task runs; empty while no process runs it. A task whose
            status is ``"working"`` and that has no token is ready to be claimed.
        begun: Whether a run has begun since the task last became ready. The process that claims the task reads this to
            decide whether the function may run again.
        takeovers: How many times a process has claimed the task after the lease of another one was lost.
        cancelling: Whether the process that runs the task should cancel it.
        message: A description of the state for people, or None.
        body: The call that the task carries out.
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
    """A task for which the caller now holds the lease.

    Attributes:
        task: The task, with the new token.
        lost: Whether the lease of an earlier run was lost; False if the task was ready.
    """

    task: StoredTask
    lost: bool


@attrs.frozen
class Changed:
    """The topics that have changed since a process last looked.

    Attributes:
        newest: The number of the newest change; 0 if there was none.
        topics: The topics that have changed, each with the number of its last change, in the order of the numbers.
        complete: Whether these are all. If not, the process was behind for so long that any topic may have changed.
    """

    newest: int
    topics: Mapping[str, int]
    complete: bool


@attrs.frozen
class StateEntry:
    """A value that a server keeps for a user.

    Attributes:
        value: The value.
        tag: A text that differs after each write, even if the value was deleted in between.
    """

    value: bytes
    tag: str


@attrs.frozen
class StatePut:
    """The outcome of `Stores.put_state`.

    Attributes:
        done: Whether the value was stored.
        entry: What is kept now: the value that was stored, or else the one that was in its way; None for nothing.
    """

    done: bool
    entry: StateEntry | None


class Stores(abc.ABC):
    """The state of a server that outlives its processes or is shared by them: of tasks, sessions, users and changes.

    ``async with stores:`` opens the store, and closes it at the end.

    The block may be entered several times, by several servers; the last one to leave it closes the store.

    Each method takes effect in one transaction: other processes see all of it, or nothing. A method that is cancelled
    before it takes effect has no effect; after that, it returns in spite of the cancellation. Any method may raise
    `StoreError`; if it raises `StoreBusy`, it had no effect.

    **Leases.** A lease has a random fencing token, and expires a number of seconds, measured on `clock`, after the
    start of the call that created or renewed it. An expired lease is lost. After a reboot of the machine, an earlier
    lease starts again with its full duration when a process first opens the store. The holder of an expired lease
    keeps it until another process claims the task: a write compares its token with that of the task, for equality and
    in its transaction, and does not look at the time.

    **Expiry.** Once `StoredTask.expires` has passed, the task does not exist for any method, although the store may
    delete it later.

    Attributes:
        shared: Whether other processes may use what it keeps.
        remote: Whether processes on other machines may, too.
        on_busy: Called with seconds when a call raises `StoreBusy` after having waited for so long, because another
            process holds the store; never called by a store that no process can hold. A server under a supervisor sets
            it, so that a process that was stopped while it held the store is found and killed.
    """

    shared: ClassVar[bool] = True
    remote: ClassVar[bool] = False
    on_busy: Callable[[float], object] | None = None

    @abc.abstractmethod
    async def __aenter__(self) -> Self: ...

    @abc.abstractmethod
    async def __aexit__(self, *exc: object) -> None: ...

    @property
    @abc.abstractmethod
    def sessions(self) -> SessionStore:
        """The sessions of the legacy era over HTTP, with their events, and the processes that serve them."""

    @property
    def epoch(self) -> str:
        """A name of the data that is there now; a new one once a call has found that all data and leases are lost."""
        return ""

    @abc.abstractmethod
    async def own(self, server: str) -> None:
        """Record the name of the server that the store belongs to, unless a name is recorded already.

        Raises:
            StoreError: If the store belongs to a server with another name.
        """

    @abc.abstractmethod
    def clock(self) -> float:
        """Return the time, in seconds, on the clock that measures leases; all processes of a machine share it."""

    @abc.abstractmethod
    def now(self) -> float:
        """Return the seconds since the epoch on the clock by which tasks expire."""

    # --- wake-ups ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def wake(self, topic: str) -> None:
        """Wake the listeners of a topic, in this process and, if the store can do so, in others, where it may fail."""

    @abc.abstractmethod
    def listen(self, topic: str, *, look: float = LOOK) -> AbstractContextManager[TopicListener]:
        """Listen to a topic within a block. Read the store inside the block, so that no wake-up is missed:

            with stores.listen("answers") as listener:
                while not await answered(stores):
                    await listener.woken()

        Args:
            topic: The topic.
            look: Seconds after which `TopicListener.woken` returns without a wake-up, in a store that other processes
                may write.
        """

    async def hear(self) -> NoReturn:
        """Hear the wake-ups of other processes until cancelled; a server calls it for as long as it runs.

        Without it, listeners only look.
        """
        await trio.sleep_forever()

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
            lease: The duration, in seconds, of a lease for the caller; None for no lease.
            limit: The maximum number of tasks in the store, without expired ones; None for no limit.

        Returns:
            The task, with the token of the lease, or an empty token.

        Raises:
            StoreFull: If the store already holds ``limit`` tasks that have not expired.
            ValueError: If a task with this key exists.
        """

    @abc.abstractmethod
    async def task(self, key: str) -> StoredTask | None:
        """Return a task; None if no task has this key, or if the task has expired."""

    @abc.abstractmethod
    async def journal(self, key: str) -> Sequence[JournalEntry]:
        """Return the entries of a task's journal, in the order in which they were added; none for an unknown task."""

    @abc.abstractmethod
    async def note(self, key: str, token: str, entry: JournalEntry) -> None:
        """Add an entry to the journal of a task for which the caller holds the lease.

        An existing entry with the same key is left unchanged.

        Raises:
            StaleWriter: If ``token`` is not that of the task's lease, or the task is gone.
        """

    @abc.abstractmethod
    async def put_task(
        self, task: StoredTask, entries: Sequence[JournalEntry] = (), *, token: str | None = None
    ) -> bool:
        """Replace a task, and add entries to its journal, if the task has not changed meanwhile.

        The stored version must be one less than that of ``task``, and the task must not have expired. If ``task.token``
        is empty, the lease ends; otherwise it must be the token of the current lease, which stays as it is.

        Args:
            task: The task as it should be stored.
            entries: Entries to add to the journal; one whose key exists is left unchanged.
            token: The token of the lease under which the caller writes; None for a caller that needs no lease.

        Returns:
            Whether the task was replaced; False if the task is gone, or has a different version.

        Raises:
            StaleWriter: If ``token`` is given and is not that of the task's lease, whatever the version is; also if the
                version is right, but ``task.token`` is neither empty nor that of the lease.
        """

    @abc.abstractmethod
    async def claim_tasks(self, tools: Collection[str], *, lease: float, most: int) -> Sequence[Claim]:
        """Claim tasks of these tools that are ready, or whose lease was lost; each gets a new lease.

        Only tasks whose status is ``"working"`` are claimed. Of a claimed task, only the token changes, and the
        version, which grows by one.

        Args:
            tools: The names of the tools that the caller can run.
            lease: The duration of each lease, in seconds.
            most: The maximum number of tasks to claim.

        Returns:
            The claims, in the order in which the tasks were created; the oldest tasks are claimed first.
        """

    @abc.abstractmethod
    async def renew(self, leases: Mapping[str, str], *, lease: float) -> Mapping[str, StoredTask | None]:
        """Renew leases. This does not change the versions of their tasks.

        Args:
            leases: The tokens of the leases, by the keys of the tasks.
            lease: The new duration of each lease, in seconds.

        Returns:
            For each key the task as it is now; None if the token is not that of its lease, or the task is gone.
        """

    @abc.abstractmethod
    async def versions(self, keys: Collection[str]) -> Mapping[str, int]:
        """Return the versions of tasks, by key, without those that don't exist or have expired."""

    # --- changes that listeners are notified of ------------------------------------------------------------------

    @abc.abstractmethod
    async def announce(self, topics: Collection[str]) -> int:
        """Note that topics have changed: each gets the next number, in place of the one that it had.

        The numbers of one call follow each other, in the order of the topics. A store need not keep a topic that has
        not changed for `TOPIC_AGE` seconds, or more than the `MOST_TOPICS` that changed last.

        Args:
            topics: The topics, each a text.

        Returns:
            The number of the newest change.
        """

    @abc.abstractmethod
    async def changed(self, after: int) -> Changed:
        """Return what has changed after the change with a number.

        Args:
            after: The number, from an earlier `Changed.newest`. With 0, all topics that are kept are returned.
        """

    # --- the state of users --------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def state(self, user: str, name: str) -> StateEntry | None:
        """Return what is kept for a user under a name; None if there is nothing, or it has expired.

        Args:
            user: A digest that identifies the user.
            name: The name.
        """

    @abc.abstractmethod
    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        """Keep a value for a user, if the value has not changed meanwhile.

        Args:
            user: A digest that identifies the user.
            name: The name under which the value is kept.
            value: The value.
            tag: The tag of the value that this one replaces; None if there was none.
            expires: Seconds since the epoch at which the value expires; None for never.

        Returns:
            Whether the value was stored, which it is not if the stored one has another tag; and what is kept now, so
            that the caller need not read it.
        """

    @abc.abstractmethod
    async def forget_states(self, user: str) -> None:
        """Delete everything that is kept for a user."""

    # --- counters ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def take(self, bucket: str, *, rate: float, burst: int) -> float:
        """Take a token from a bucket that holds up to ``burst`` tokens, and gets ``rate`` of them back each second.

        A new bucket is full. Time is counted by `clock`.

        Returns:
            0.0; or, if the bucket has no token, the seconds until it has one, in which case nothing was taken.
        """

    @abc.abstractmethod
    async def remember(self, key: str, *, seconds: float) -> bool:
        """Remember a key for some seconds, counted by `now`.

        Returns:
            Whether it is new; False if it is remembered already, for as long as was said then.
        """
