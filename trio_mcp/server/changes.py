"""Sends change notifications to the listeners of both eras, with one fan-out.

Announcing a change costs the same with one listener or a thousand: it marks the topic, and a background task tells the
listeners, some at a time. A listener whose link has room is told at once. If the link is full, the listener keeps a
set of topics, and its own task waits for room. So a listener has at most one pending notification for each topic,
several changes become one notification, and a listener that does not read does not delay the others.

Guarantee: each listener of a topic gets at least one notification that is sent after a change has been announced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import TypeAlias, TypeVar

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
    "call_in_run",
    "text_of",
]

TOOLS_CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"
LIST_CHANGES = (TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED)

ArgumentT = TypeVar("ArgumentT")

Topic: TypeAlias = tuple[str, str | None]
"""The method of a notification, and the URI of its resource, or None for a list."""

# The limit is an arbitrary choice: more resources than a person can keep an eye on, and few enough to bound the memory
# that one client can use.
MAX_SUBSCRIPTIONS = 1000
"""How many resources one client may watch."""

# The size of a slice is an arbitrary choice: large enough to make switching between tasks cheap, and small enough for
# an unnoticeable delay.
SLICE = 64
"""How many listeners are told of a change before other tasks get a turn."""

IDLE_TURN = 1 / 16
"""How long a turn of the other tasks may take if they have nothing to do, as a part of the time of a slice (arbitrary).

The event loop itself takes some of that time."""


def text_of(method: str, uri: str | None) -> str:
    """Return a topic as the text by which processes tell each other of its changes."""
    return method if uri is None else f"{method} {uri}"


def call_in_run(token: trio.lowlevel.TrioToken, function: Callable[[ArgumentT], object], argument: ArgumentT) -> None:
    """Call a function in a run of Trio: at once if the caller is in that run, else soon; not at all after its end."""
    try:
        here = trio.lowlevel.current_trio_token() is token
    except RuntimeError:  # the caller is in a thread without Trio
        here = False
    if here:
        function(argument)
        return
    with contextlib.suppress(trio.RunFinishedError):
        # With `idempotent`, Trio merges equal pending calls, so its queue can't outgrow the number of arguments.
        token.run_sync_soon(function, argument, idempotent=True)


class Listener:
    """A recipient of change notifications: a session of the legacy era, or a ``subscriptions/listen`` request.

    Args:
        send: Passes the notification of a topic to the link without waiting, and returns whether there was room.
        room: Waits until the link may have room.
        spawn: Starts an async function in a task. Only `open` needs it, as the caller of `run` provides a task.

    Attributes:
        topics: The topics that the listener is notified of; only `Changes` modifies them.
    """

    # A listener has three states: not open yet (everything is kept in _dirty), idle (a change is sent directly), and
    # catching up (a task sends the topics in _dirty whenever there is room; new changes are added to them, so that the
    # order is kept).

    # There may be thousands of listeners, one for each client, so slots keep them small.
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
        # This dict is an ordered set, so that changes are announced in the order in which they came.
        self._dirty: dict[Topic, None] = {}
        self._spawn = spawn
        self._parked: trio.lowlevel.ParkingLot | None = None
        self._idle = False
        self._ended = False

    @property
    def waiting(self) -> tuple[Topic, ...]:
        """The changes that the listener has not been told of yet, in order."""
        return tuple(self._dirty)

    def open(self) -> None:
        """Start telling the listener of changes; a task runs only while changes wait for room."""
        self._idle = True
        if self._dirty:
            self._wake()

    def pause(self) -> None:
        """Tell the listener of nothing more, until it is opened again; pending changes are dropped."""
        self._idle = False
        self._dirty.clear()

    def tell(self, topic: Topic) -> None:
        """Tell the listener of a change: at once if no other change is waiting and the listener's link has room."""
        # The listener may have been removed from the topic since it was put into the slice that is being notified.
        if topic not in self.topics or (self._idle and self._send(topic)):
            return
        self._dirty[topic] = None
        self._wake()

    def forget(self, topic: Topic) -> None:
        """Drop the pending change of a topic, if there is one."""
        self._dirty.pop(topic, None)

    def end(self) -> None:
        """Let `run` return once it has sent all pending changes."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        # A listener with `run` has a task, which is parked while the listener is idle. A listener with `spawn` gets a
        # task when it leaves the idle state; if it is not idle, it is either not open yet or already has its task.
        was_idle, self._idle = self._idle, False
        if self._parked is not None:
            self._parked.unpark()
        elif was_idle and self._spawn is not None:
            self._spawn(self._catch_up)

    async def _tell_rest(self) -> None:
        while self._dirty:
            # `room` may return without a checkpoint if there is room. Without this checkpoint, many pending changes
            # would hold up the other tasks.
            await trio.lowlevel.checkpoint()
            await self._room()
            topic = next(iter(self._dirty), None)  # None if the last topic was forgotten during the wait
            # A topic stays in the set until it has been sent: if there is no room after all, the loop waits again.
            if topic is not None and self._send(topic):
                del self._dirty[topic]

    async def _catch_up(self) -> None:
        await self._tell_rest()
        # There has been no checkpoint since the set was found empty, so no change can have been added.
        self._idle = True

    async def run(self) -> None:
        """Send pending changes until `end` is called. Nothing is sent before this method runs."""
        self._parked = trio.lowlevel.ParkingLot()
        try:
            while True:
                await self._tell_rest()
                if self._ended:
                    return
                self._idle = True
                await self._parked.park()
        finally:
            # The listener's request has ended, so `tell` must not send anything for it any more.
            self._idle = False


class Changes:
    """The fan-out of one run of a server: an index from topics to listeners, and the topics that have changed.

    `announce` may be called from any thread; everything else only from the event loop.

    Args:
        heard: Called with a topic and True when the topic gets its first listener, and with False when it loses its
            last. The function must neither block nor raise.

    Attributes:
        list_changes: How many changes of each list have been announced.
    """

    def __init__(self, heard: Callable[[Topic, bool], None] | None = None) -> None:
        self.list_changes: dict[Topic, int] = {(method, None): 0 for method in LIST_CHANGES}
        self._heard = heard
        self._token = trio.lowlevel.current_trio_token()
        self._listeners: dict[Topic, dict[Listener, None]] = {}
        self._changed: dict[Topic, None] = {}
        # The topic that listeners are being told of, and the listeners that are still to be told.
        self._topic: Topic = TOOLS_CHANGED, None
        self._waiting: list[Listener] = []
        self._parked = trio.lowlevel.ParkingLot()

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that have at least one listener."""
        return tuple(self._listeners)

    @property
    def waiting(self) -> tuple[Topic, ...]:
        """The announced topics that no listener has been told of yet, in order."""
        return tuple(self._changed)

    @property
    def settled(self) -> bool:
        """Whether all listeners have been told of all changes so far, or keep them."""
        return not (self._changed or self._waiting)

    def add(self, listener: Listener, topic: Topic) -> None:
        """Notify a listener of changes to a topic from now on."""
        listener.topics.add(topic)
        others = self._listeners.setdefault(topic, {})
        if not others and self._heard is not None:
            self._heard(topic, True)
        others[listener] = None

    def remove(self, listener: Listener, topic: Topic) -> None:
        """Stop notifying a listener of changes to a topic, and drop its pending change of that topic."""
        if topic not in listener.topics:
            return
        listener.topics.discard(topic)
        listener.forget(topic)
        others = self._listeners[topic]
        del others[listener]
        if not others:
            # No entry may remain for a topic without listeners: clients choose the URIs, and could fill the memory.
            del self._listeners[topic]
            self._changed.pop(topic, None)
            if self._heard is not None:
                self._heard(topic, False)

    def remove_all(self, listener: Listener) -> None:
        """Remove a listener from all its topics."""
        for topic in tuple(listener.topics):
            self.remove(listener, topic)

    def announce(self, method: str, uri: str | None = None) -> None:
        """Notify all listeners of a topic soon. Returns at once, from any thread, even after the run has ended."""
        topic = (method, uri)
        # A topic without listeners is never stored, which bounds `_changed` whatever URIs a server announces.
        if topic not in self._listeners and topic not in self.list_changes:
            return
        call_in_run(self._token, self._mark, topic)

    def _mark(self, topic: Topic) -> None:
        if topic in self.list_changes:
            self.list_changes[topic] += 1
        if topic in self._listeners:  # this is checked again, as the call may run later than `announce`
            self._changed[topic] = None
            self._parked.unpark()

    def tell_all(self) -> None:
        """Tell the listeners of all pending changes, without letting other tasks run in between."""
        # At the end of the run, no other task needs a turn, so slices are not needed.
        while self._changed or self._waiting:
            self._tell_some()

    async def run(self) -> None:
        """Tell listeners of changes, in slices; after each, other tasks get a turn, or as much time if they need it."""
        while True:
            began = trio.current_time()
            self._tell_some()
            if not (self._changed or self._waiting):
                await self._parked.park()
                continue
            told = trio.current_time()
            await trio.lowlevel.checkpoint()
            # If other tasks have work to do, telling takes at most half of the time, so that a server that constantly
            # announces changes can still serve requests.
            turn = trio.current_time() - told
            if turn > (told - began) * IDLE_TURN:
                await trio.sleep(max(0.0, told - began - turn))

    def _tell_some(self) -> None:
        left = SLICE
        while left and (self._waiting or self._changed):
            if not self._waiting:
                # The topic is removed from `_changed` before its listeners are told, so that a change in the meantime
                # adds it again.
                self._topic = next(iter(self._changed))
                del self._changed[self._topic]
                # Looking up the topic can't raise KeyError: when a topic loses its last listener, `remove` also deletes
                # it from `_changed`.
                self._waiting = list(self._listeners[self._topic])
            some = self._waiting[-left:]  # from the end of the list, where a deletion moves no other items
            del self._waiting[-left:]
            for listener in some:
                listener.tell(self._topic)
            left -= len(some)


class Audience:
    """The listeners of one client: its ``subscriptions/listen`` requests, and its legacy-era session.

    Args:
        changes: The fan-out of the run.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._listeners: set[Listener] = set()
        self._lasting: Listener | None = None
        self._ending = False

    def add_lasting(self, listener: Listener) -> None:
        """Add the listener of the legacy-era session, which lasts as long as the session."""
        self._lasting = listener
        self._listeners.add(listener)

    @property
    def waiting(self) -> int:
        """The number of changes pending for the client, not counting those not yet passed on to listeners."""
        return sum(len(listener.waiting) for listener in self._listeners)

    def check_room_for(self, topics: Collection[Topic]) -> None:
        """Refuse topics with which the client would watch too many resources.

        Raises:
            McpError: If the client would watch more than `MAX_SUBSCRIPTIONS` resources.
        """
        # All requests of the client count together, because a thousand subscriptions/listen requests with one URI each
        # cost as much as one with a thousand URIs.
        every = [*topics, *(topic for listener in self._listeners for topic in listener.topics)]
        if sum(uri is not None for _, uri in every) > MAX_SUBSCRIPTIONS:
            raise McpError(OVERLOADED, f"a client may subscribe to at most {MAX_SUBSCRIPTIONS} resources")

    @contextlib.contextmanager
    def listening(self, listener: Listener, topics: Collection[Topic]) -> Iterator[None]:
        """While the block runs, notify the listener of one of this client's requests when these topics change."""
        self._listeners.add(listener)
        try:
            for topic in topics:
                self._changes.add(listener, topic)
            if self._ending:  # a request that arrives during the shutdown is acknowledged, and gets its result at once
                listener.end()
            yield
        finally:
            self._forget(listener)

    def end(self) -> None:
        """Let ``subscriptions/listen`` requests, including later ones, return once they have sent all changes."""
        self._ending = True
        for listener in self._listeners:
            if listener is not self._lasting:  # `_lasting` belongs to the session, not to a request
                listener.end()

    def forget_everything(self) -> None:
        """Remove all listeners of the client."""
        for listener in tuple(self._listeners):
            self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        self._changes.remove_all(listener)
