"""Changes, and everyone who wants to hear of them: one fan-out for both eras.

A change costs its announcer the same whether one listens or a thousand: its topic is marked, and a task of the run
tells the listeners, a slice at a time. A listener whose link has room is told at once; one whose link is full keeps a
set of topics, and a task of its own waits for room. So what waits for a listener is bounded by its own topics, several
changes become one notification, and a listener that does not read delays nobody.

After a change was announced, each of its listeners gets at least one notification that is sent after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import TypeAlias

import trio

from trio_mcp.errors import McpError
from trio_mcp.types.error_codes import OVERLOADED

__all__ = [
    "LIST_CHANGES",
    "MAX_SUBSCRIPTIONS",
    "PROMPTS_CHANGED",
    "RESOURCES_CHANGED",
    "RESOURCE_UPDATED",
    "TOOLS_CHANGED",
    "Audience",
    "Changes",
    "Listener",
    "Topic",
]

TOOLS_CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"
LIST_CHANGES = (TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED)

Topic: TypeAlias = tuple[str, str | None]
"""The method of a notification, and the URI of the resource that it is about, or None."""

MAX_SUBSCRIPTIONS = 1000
"""Resources that one client watches: more than a person looks after, and a bound to what a server keeps for it."""

SLICE = 64
"""How many listeners are told in one go, before other tasks run."""


class Listener:
    """One who hears of changes: a session of the legacy era, or a ``subscriptions/listen``.

    Args:
        send: Hands the notification of a topic to the link without waiting; gives whether there was room.
        room: Waits until there may be room.
        spawn: Runs an async function in a task, for a listener that is opened; one that is `run` needs none.

    Attributes:
        topics: What it hears of; changed by `Changes` alone.
    """

    __slots__ = ("_dirty", "_ended", "_idle", "_parked", "_room", "_send", "_spawn", "topics")

    def __init__(
        self,
        send: Callable[[Topic], bool],
        room: Callable[[], Awaitable[object]],
        spawn: Callable[[Callable[[], Awaitable[None]]], None] | None = None,
    ) -> None:
        self.topics: set[Topic] = set()
        self._send = send
        self._room = room
        self._dirty: dict[Topic, None] = {}  # in order: what changed first is told first
        self._spawn = spawn
        self._parked: trio.lowlevel.ParkingLot | None = None
        self._idle = False
        self._ended = False

    @property
    def waiting(self) -> tuple[Topic, ...]:
        """What has changed and it has not been told, in order."""
        return tuple(self._dirty)

    def open(self) -> None:
        """From now on tell what there is; a task runs only while something waits for room."""
        self._idle = True
        if self._dirty:
            self._wake()

    def tell(self, topic: Topic) -> None:
        """Tell it of a change; at once if nothing else waits and its link has room."""
        if topic not in self.topics or (self._idle and self._send(topic)):
            return
        self._dirty[topic] = None
        self._wake()

    def forget(self, topic: Topic) -> None:
        """Drop what it has not been told yet."""
        self._dirty.pop(topic, None)

    def end(self) -> None:
        """Let `run` return once it has told everything."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        was_idle, self._idle = self._idle, False
        if self._parked is not None:
            self._parked.unpark()
        elif was_idle and self._spawn is not None:
            self._spawn(self._catch_up)

    async def _tell_rest(self) -> None:
        while self._dirty:
            await trio.lowlevel.checkpoint()
            await self._room()
            topic = next(iter(self._dirty), None)
            if topic is not None and self._send(topic):
                del self._dirty[topic]

    async def _catch_up(self) -> None:
        await self._tell_rest()
        self._idle = True

    async def run(self) -> None:
        """Tell what could not be told at once, until `end`. Before it runs, nothing is told."""
        self._parked = trio.lowlevel.ParkingLot()
        try:
            while True:
                await self._tell_rest()
                if self._ended:
                    return
                self._idle = True
                await self._parked.park()
        finally:
            self._idle = False


class Changes:
    """The fan-out of one run of a server: an index from topics to listeners, and the topics that have changed.

    `announce` may be called from any thread; all else belongs to the event loop.

    Args:
        heard: Called with a topic and True when it gets its first listener, and False when it loses its last. It must
            neither block nor raise.
    """

    def __init__(self, heard: Callable[[Topic, bool], None] | None = None) -> None:
        self._heard = heard
        self._token = trio.lowlevel.current_trio_token()
        self._listeners: dict[Topic, dict[Listener, None]] = {}
        self._changed: dict[Topic, None] = {}
        # Who is yet to be told of the topic that is being told.
        self._topic: Topic = TOOLS_CHANGED, None
        self._waiting: list[Listener] = []
        self._parked = trio.lowlevel.ParkingLot()

    @property
    def topics(self) -> tuple[Topic, ...]:
        """What somebody listens to."""
        return tuple(self._listeners)

    @property
    def waiting(self) -> tuple[Topic, ...]:
        """What was announced, and nobody has been told yet, in order."""
        return tuple(self._changed)

    def add(self, listener: Listener, topic: Topic) -> None:
        """Let a listener hear of a topic from now on."""
        listener.topics.add(topic)
        others = self._listeners.setdefault(topic, {})
        if not others and self._heard is not None:
            self._heard(topic, True)
        others[listener] = None

    def remove(self, listener: Listener, topic: Topic) -> None:
        """Let it hear of a topic no more: what it has not been told yet, it won't be."""
        if topic not in listener.topics:
            return
        listener.topics.discard(topic)
        listener.forget(topic)
        others = self._listeners[topic]
        del others[listener]
        if not others:
            del self._listeners[topic]
            self._changed.pop(topic, None)
            if self._heard is not None:
                self._heard(topic, False)

    def remove_all(self, listener: Listener) -> None:
        """The listener has gone."""
        for topic in tuple(listener.topics):
            self.remove(listener, topic)

    def announce(self, method: str, uri: str | None = None) -> None:
        """Tell everyone who listens, soon. Returns at once, from any thread, and after the run, too."""
        topic = (method, uri)
        if topic not in self._listeners:  # so what waits to be told is bounded by what is listened to
            return
        try:
            if trio.lowlevel.current_trio_token() is self._token:
                self._mark(topic)
                return
        except RuntimeError:
            pass  # another thread
        try:
            self._token.run_sync_soon(self._mark, topic, idempotent=True)
        except trio.RunFinishedError:
            pass  # with everyone who could be told

    def _mark(self, topic: Topic) -> None:
        if topic in self._listeners:
            self._changed[topic] = None
            self._parked.unpark()

    def tell_all(self) -> None:
        """Tell the listeners at once of everything that they have not been told."""
        while self._changed or self._waiting:
            self._tell_some()

    async def run(self) -> None:
        """Tell the listeners, in slices: between two the rest of the program gets as much time as one took."""
        while True:
            began = trio.current_time()
            self._tell_some()
            if self._changed or self._waiting:
                await trio.sleep(trio.current_time() - began)
            else:
                await self._parked.park()

    def _tell_some(self) -> None:
        left = SLICE
        while left and (self._waiting or self._changed):
            if not self._waiting:
                self._topic = next(iter(self._changed))
                del self._changed[self._topic]
                self._waiting = list(self._listeners[self._topic])
            some = self._waiting[-left:]
            del self._waiting[-left:]
            for listener in some:
                listener.tell(self._topic)
            left -= len(some)


class Audience:
    """The listeners of one client: its requests ``subscriptions/listen``, and its session of the legacy era.

    Args:
        changes: The fan-out of the run.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._listeners: set[Listener] = set()
        self._lasting: Listener | None = None
        self._ending = False

    def add_lasting(self, listener: Listener) -> None:
        """Add the one that ends with the session."""
        self._lasting = listener
        self._listeners.add(listener)

    @property
    def waiting(self) -> int:
        """How many changes the client has not been told yet, those that are just being announced aside."""
        return sum(len(listener.waiting) for listener in self._listeners)

    def check_room_for(self, topics: Collection[Topic]) -> None:
        """Refuse a client that watches too much.

        Raises:
            McpError: With these it would watch more than `MAX_SUBSCRIPTIONS` resources.
        """
        every = [*topics, *(topic for listener in self._listeners for topic in listener.topics)]
        if sum(uri is not None for _, uri in every) > MAX_SUBSCRIPTIONS:
            raise McpError(OVERLOADED, f"a client may subscribe to {MAX_SUBSCRIPTIONS} resources at most")

    @contextlib.contextmanager
    def listening(self, listener: Listener, topics: Collection[Topic]) -> Iterator[None]:
        """Let a request of this client's hear of some topics."""
        self._listeners.add(listener)
        try:
            for topic in topics:
                self._changes.add(listener, topic)
            if self._ending:
                listener.end()
            yield
        finally:
            self._forget(listener)

    def end(self) -> None:
        """Let requests that listen return once they have told everything; later ones, too."""
        self._ending = True
        for listener in self._listeners:
            if listener is not self._lasting:
                listener.end()

    def forget_everything(self) -> None:
        """Nobody hears of anything any more."""
        for listener in tuple(self._listeners):
            self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        self._changes.remove_all(listener)
