"""Stores in an engine that speaks the protocol of Valkey and Redis, for processes on any number of machines."""

from __future__ import annotations

import json
import math
import re
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NoReturn, Self
from weakref import WeakValueDictionary

import attrs
import trio

from trio_mcp._checks import check_count, check_seconds, check_text
from trio_mcp.stores.contract import (
    LOOK,
    MOST_TOPICS,
    TOPIC_AGE,
    Changed,
    Claim,
    JournalEntry,
    StateEntry,
    StatePut,
    StoredTask,
    StoreError,
    Stores,
)
from trio_mcp.stores.listeners import TopicListener, TopicListeners
from trio_mcp.stores.refusals import (
    not_open,
    other_server,
    stale_writer,
    store_full,
    task_exists,
)
from trio_mcp.stores.session_store import LETTERS
from trio_mcp.stores.valkey_address import EngineAddress
from trio_mcp.stores.valkey_client import EngineClient, EngineClock, load_glide
from trio_mcp.stores.valkey_engine import examine
from trio_mcp.stores.valkey_records import columns_of, entry_of, flat, optional, task_of
from trio_mcp.stores.valkey_sessions import ValkeySessions

__all__ = ["LAYOUT", "ValkeyStores", "check_prefix", "unfit"]

LAYOUT: Final = "1"
"""The version of the keys and what they have. A prefix with a different version is refused."""

LONGEST_PREFIX: Final = 100
"""The maximum length of a prefix, in characters (arbitrary): each key begins with it."""

MOST_NEWS: Final = 100
"""How many topics one message wakes (arbitrary); a process with more of them wakes all listeners."""

CALM: Final = 0.01
"""Seconds between two messages (arbitrary): the client keeps all that a busy process has not heard yet."""

LONGEST_NEWS: Final = 64 * 1024
"""The maximum size of a message that is read, in bytes (arbitrary)."""

OUT: Final = "out"
"""The topic of wake-ups that wait to be sent."""


@attrs.define(eq=False, weakref_slot=True)
class _Shared:
    """The objects that all stores in this process on the same data share.

    Attributes:
        sender: The name of this process in its messages.
    """

    listeners: TopicListeners = attrs.Factory(TopicListeners)
    clock: EngineClock = attrs.Factory(EngineClock)
    sender: str = attrs.Factory(lambda: secrets.token_hex(8))


class ValkeyStores(Stores):
    """Stores in Valkey or Redis, which processes on any number of machines may use. The extra ``valkey`` is needed.

    ``async with ValkeyStores("valkeys://desk:password@cache.internal/0", prefix="desk") as stores:`` connects to the
    engine, and closes the connection at the end. The engine must be Valkey 7.2 or Redis 7.0, or newer; it may be a
    cluster, of which it uses one node. It must not evict keys: ``maxmemory-policy noeviction``.

    Each method is one round trip: a script, which the engine runs as a whole. Those of `sessions` that have much to do,
    such as to end a session with thousands of streams, make several, so that the engine serves others in between. Time
    is that of the engine; `clock` and `now` return the same: the engine's time as its last responses told it, which is
    off by half a round trip at most.

    A method that is cancelled before its script was sent has no effect; otherwise it waits for the response, until
    ``timeout``. Nothing is sent twice. If the connection breaks, or there is no response, a method raises a
    `StoreError`, and whether it had an effect is unknown. While the engine is away, all methods raise `StoreBusy` at
    once, and one at a time looks whether it is back. `on_busy` is never called, as no process can hold the engine.

    **Loss.** The data has a random epoch. If it is gone or another one, because keys were deleted or another engine has
    taken over, all that was kept is lost. The calls that find this out raise a `StoreError` that says so, once for each
    object; after that, the store begins with nothing: tasks and sessions are gone, their writers and members are stale,
    and `changed` is not complete. If a replica takes over that lacks the last writes, only those are lost, although
    they were acknowledged.

    **In the engine.** The names of all keys begin with the prefix in braces and a colon. Names and values are in clear,
    except that the ids of tasks, sessions and users are digests. What has an end is deleted, by a later call or by the
    engine itself an hour later; one key stays, ``{desk}:about`` for the prefix ``desk``. These rights suffice, and in a
    cluster ``+cluster|slots`` as well::

        ACL SETUSER desk on >password resetkeys ~{desk}:* resetchannels &{desk}:* -@all
            +ping +select +info +publish +subscribe +evalsha +script|load
            +@hash +@sortedset +@string +@stream +unlink +exists +type +pexpireat +persist +time

    What a process has left that died goes when another one takes it over. If no process comes, the engine deletes it
    within three days, and the sessions of which it had open streams after one, or an hour after they expire.

    Messages on the channel ``{desk}:wake`` wake the listeners of other processes, while `hear` runs; those about
    letters are sent in any case. One that is lost costs time and nothing else.

    Args:
        url: The engine: ``valkey://user:password@host:port/database``, ``redis://…``; ``valkeys://…`` or ``rediss://…``
            with TLS, for which SSL_CERT_FILE in the environment may name a file with authorities; or
            ``unix:///path/of/the/socket?db=0``.
        prefix: What the keys begin with, without braces and blanks. Each server needs a prefix of its own.
        timeout: Seconds that a connection, or the response to a script, may take.
        max_events: The maximum number of events of sessions; beyond it, the oldest are deleted.
        max_age: Seconds for which an event is kept.

    Raises:
        ImportError: If the extra ``valkey`` is not installed.
        TypeError: If an argument has the wrong type.
        ValueError: If an argument has a value that is not allowed. The message does not have the password.
        StoreError: When it is opened, if the engine can't be reached, refuses user or password, is too old, evicts keys
            or is a replica, or the prefix belongs to another program or version; later, if the engine fails or refuses
            a call, or has lost its data.
        StoreBusy: Later, if the engine is away, loads its data or is busy; the call had no effect.
    """

    remote = True

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        timeout: float = 5.0,
        max_events: int = 100_000,
        max_age: float = 86_400.0,
    ) -> None:
        self._address = EngineAddress.parse(url)
        check_prefix(prefix)
        check_seconds("timeout", timeout, finite=True)
        check_count("max_events", max_events)
        check_seconds("max_age", max_age)
        load_glide()
        self._about = f"{{{prefix}}}:about"
        self._name = f"the prefix {prefix!r} of {self._address}"
        self._channel = f"{{{prefix}}}:wake"
        self._timeout = timeout
        self._sessions = ValkeySessions(self._serve, max_events=max_events, max_age=max_age)
        self._users = 0
        self._opening = trio.Lock()
        self._client: EngineClient | None = None
        self._shared = _Shared()
        self._epoch = ""
        self._server = ""
        self._outgoing = TopicListeners()
        self._news: dict[str, None] = {}  # an ordered set of topics whose wake-ups wait to be sent; `_lock` guards it
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        self._users += 1
        try:
            async with self._opening:
                if self._client is None:
                    await self._open()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._leave()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        with trio.CancelScope(shield=True):
            await self._leave()
        with trio.CancelScope(shield=exc[0] is not None):  # a Cancelled must not replace the block's exception
            await trio.lowlevel.checkpoint()

    async def own(self, server: str) -> None:
        found = await self._get("own", server)
        if found.decode() != server:
            raise other_server(self._name, found.decode(), server)
        self._server = server

    @property
    def sessions(self) -> ValkeySessions:
        return self._sessions

    @property
    def epoch(self) -> str:
        return self._epoch

    def clock(self) -> float:
        return self._shared.clock.now()

    def now(self) -> float:
        return self._shared.clock.now()

    # --- wake-ups ------------------------------------------------------------------------------------------------

    def wake(self, topic: str) -> None:
        self._opened()
        self._shared.listeners.wake(topic)
        with self._lock:
            if len(self._news) <= MOST_NEWS:
                self._news[topic] = None
        self._outgoing.wake(OUT)

    def listen(self, topic: str, *, look: float = LOOK) -> AbstractContextManager[TopicListener]:
        self._opened()
        # All who listen look at the same moments, so that a process with nothing to do wakes up once for all of them.
        return self._shared.listeners.listen(topic, lambda: look - trio.current_time() % look)

    async def hear(self) -> NoReturn:
        """Hear the wake-ups of other processes, and send those of this one, until cancelled."""
        with self._outgoing.listen(OUT, lambda: math.inf) as listener:
            while True:
                await listener.woken()
                with self._lock:
                    topics, self._news = [*self._news], {}
                if topics:
                    # Beyond the maximum, a message without topics wakes all.
                    news = topics if len(topics) <= MOST_NEWS else None
                    try:
                        await self._opened().publish(json.dumps([self._shared.sender, news]))
                    except StoreError:
                        pass  # the others look by themselves
                    await trio.sleep(CALM)

    def _heard(self, message: bytes) -> None:
        try:
            sender, topics = json.loads(message if len(message) <= LONGEST_NEWS else b"[null, null]")
        except (ValueError, TypeError, RecursionError):
            return  # not a message of stores
        if sender == self._shared.sender:
            return
        if not isinstance(topics, list):
            self._shared.listeners.wake_all()
            return
        for topic in topics:
            if isinstance(topic, str):
                self._shared.listeners.wake(topic)

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def add_task(
        self,
        task: StoredTask,
        entries: Sequence[JournalEntry] = (),
        *,
        lease: float | None = None,
        limit: int | None = None,
    ) -> StoredTask:
        task = attrs.evolve(task, token="" if lease is None else secrets.token_urlsafe(16))
        head = (task.key, task.token, optional(lease), optional(limit))
        (status, *_) = await self._call("add_task", *head, *columns_of(task), *flat(entries))
        if status == b"exists":
            raise task_exists(task.key)
        if status == b"full":
            raise store_full(limit or 0)
        return task

    async def task(self, key: str) -> StoredTask | None:
        return task_of(key, await self._get("task", key))

    async def journal(self, key: str) -> Sequence[JournalEntry]:
        found = await self._get("journal", key)
        entries = []
        for name, value in zip(found[::2], found[1::2], strict=True):
            number, _, value = value.partition(b":")
            entries.append((int(number), name.decode(), value))
        return tuple((name, value) for _, name, value in sorted(entries))

    async def note(self, key: str, token: str, entry: JournalEntry) -> None:
        (status, *_) = await self._call("note", key, token, *entry)
        if status == b"stale":
            raise stale_writer(key)

    async def put_task(
        self, task: StoredTask, entries: Sequence[JournalEntry] = (), *, token: str | None = None
    ) -> bool:
        head = (task.key, "" if token is None else "1", token or "", task.token, str(task.version))
        (status, *_) = await self._call("put_task", *head, *columns_of(task), *flat(entries))
        if status == b"stale":
            raise stale_writer(task.key)
        return bool(status == b"done")

    async def claim_tasks(self, tools: Collection[str], *, lease: float, most: int) -> Sequence[Claim]:
        if not tools or most < 1:
            await trio.lowlevel.checkpoint()
            return []
        tokens = [secrets.token_urlsafe(16) for _ in range(most)]
        found = await self._get("claim_tasks", repr(lease), str(most), *tokens, *tools)
        claims = []
        for was_lost, key, columns in found:
            task = task_of(key.decode(), columns)
            assert task is not None
            claims.append(Claim(task, bool(was_lost)))
        return claims

    async def renew(self, leases: Mapping[str, str], *, lease: float) -> Mapping[str, StoredTask | None]:
        if not leases:
            await trio.lowlevel.checkpoint()
            return {}
        pairs = [each for pair in leases.items() for each in pair]
        found = await self._get("renew", repr(lease), *pairs)
        return {key: task_of(key, columns) for key, columns in zip(leases, found, strict=True)}

    async def versions(self, keys: Collection[str]) -> Mapping[str, int]:
        if not keys:
            await trio.lowlevel.checkpoint()
            return {}
        found = await self._get("versions", *keys)
        return {key: int(version) for key, version in zip(keys, found, strict=True) if version is not None}

    # --- changes, the state of users, and counters ---------------------------------------------------------------

    async def announce(self, topics: Collection[str]) -> int:
        newest = await self._get("announce", str(MOST_TOPICS), repr(TOPIC_AGE), *topics)
        return int(newest)

    async def changed(self, after: int) -> Changed:
        _, newest, complete, found = await self._call("changed", str(after))
        numbers = (int(float(each)) for each in found[1::2])
        topics = {topic.decode(): number for topic, number in zip(found[::2], numbers, strict=True)}
        return Changed(int(newest), topics, bool(complete))

    async def state(self, user: str, name: str) -> StateEntry | None:
        return entry_of(await self._get("state", user, name))

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        entry = StateEntry(value, secrets.token_urlsafe(8))
        arguments = (user, name, tag or "", entry.tag, optional(expires), value)
        status, *found = await self._call("put_state", *arguments)
        return StatePut(True, entry) if status == b"done" else StatePut(False, entry_of(*found))

    async def forget_states(self, user: str) -> None:
        await self._get("forget_states", user)

    async def take(self, bucket: str, *, rate: float, burst: int) -> float:
        wait = await self._get("take", bucket, repr(rate), str(burst))
        return float(wait)

    async def remember(self, key: str, *, seconds: float) -> bool:
        new = await self._get("remember", key, repr(seconds))
        return bool(new)

    # --- inside --------------------------------------------------------------------------------------------------

    def _opened(self) -> EngineClient:
        if self._client is None:
            raise not_open(self._name)
        return self._client

    async def _get(self, name: str, *arguments: str | bytes) -> Any:
        """Run a script that has one outcome, and return the value that it returns."""
        _, *values = await self._call(name, *arguments)
        return values[0] if values else None

    async def _serve(self, name: str, *arguments: str | bytes) -> list[Any]:
        """Do what `_call` does, for a script about sessions; the script tells other processes of new letters itself."""
        shared = self._shared
        status, posted, *values = await self._call(name, shared.sender, *arguments)
        if posted:
            shared.listeners.wake(LETTERS)
        return [status, *values]

    async def _call(self, name: str, *arguments: str | bytes) -> list[Any]:
        """Run a script, and return the name of its outcome and the values that follow.

        Raises:
            StoreError: If it fails, or all that was kept is lost.
        """
        client, epoch = self._opened(), self._epoch
        head = (epoch, repr(self.clock()), repr(self._timeout))
        found = await client.run(name, self._about, [*head, *arguments])
        if found[0] == b"lost":
            with trio.CancelScope(shield=True):  # the wait is bounded by the timeout
                await self._begin_anew(client, epoch)
        return found

    async def _begin_anew(self, client: EngineClient, epoch: str) -> NoReturn:
        async with self._opening:
            if self._epoch == epoch:  # otherwise, another call has done it
                await self._begin(client)
                self._shared.listeners.wake(LETTERS)  # members join again
        raise StoreError(
            f"{self._name} has lost all that was kept there, because its keys were deleted or another engine has taken"
            " over: the call had no effect, and the store begins with nothing"
        )

    async def _open(self) -> None:
        engine = await examine(self._address, self._channel, timeout=self._timeout)
        client = EngineClient(
            self._address,
            engine.cluster,
            self._channel,
            self._timeout,
            self._heard,
            lambda: self._shared.listeners.wake_all(),
            self._shared.clock,
        )
        try:
            await client.open()
            await self._begin(client)
            self._shared = _SHARED[self._epoch]
            client.clock = self._shared.clock
        except BaseException:
            with trio.CancelScope(shield=True):
                await client.close()
            raise
        self._client = client

    async def _begin(self, client: EngineClient) -> None:
        """Learn the epoch of the data, or begin a new one.

        Raises:
            StoreError: If the data is another program's, another version's or another server's.
        """
        new = secrets.token_urlsafe(6)
        status, *found = await client.run("open", self._about, [LAYOUT, new, self._server, self._epoch])
        if status in (b"foreign", b"layout"):
            raise unfit(self._name, self._about, *found)
        if status == b"server":
            raise other_server(self._name, found[0].decode(errors="replace"), self._server)
        self._epoch = found[0].decode()
        _SHARED.setdefault(self._epoch, self._shared)

    async def _leave(self) -> None:
        self._users -= 1
        if not self._users and self._client is not None:
            client, self._client = self._client, None
            await client.close()


def unfit(name: str, about: str, layout: bytes | None = None) -> StoreError:
    """Return the error for a prefix of another program, or of another version with a different layout."""
    if layout is None:
        return StoreError(
            f"{name} belongs to another program, which has the key {about}: give the stores a prefix of their own"
        )
    return StoreError(
        f"{name} was created by another version of trio_mcp (its layout is {layout.decode(errors='replace'):.20}, and"
        f" this version needs {LAYOUT}): use that version, or a different prefix"
    )


def check_prefix(prefix: object) -> None:
    """Check that something can be the prefix of keys.

    Raises:
        TypeError, ValueError: If it can't.
    """
    check_text("prefix", prefix)
    text = str(prefix)
    if len(text) > LONGEST_PREFIX or not re.fullmatch(r"[^\s{}]+", text) or not text.isprintable():
        raise ValueError(
            f"prefix must have at most {LONGEST_PREFIX} characters, and no braces or blanks, got {text!r:.120}"
        )


_SHARED: WeakValueDictionary[str, _Shared] = WeakValueDictionary()
"""The objects that stores in this process share, by the epoch of their data."""
