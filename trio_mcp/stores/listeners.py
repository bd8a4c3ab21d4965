"""Wake-ups within a process: each listener of a topic is woken."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import attrs
import trio

__all__ = ["MOMENT", "TopicListener", "TopicListeners"]

MOMENT = 0.001
"""Seconds after the end of a lease at which it has certainly expired, however times are rounded (arbitrary)."""


@attrs.define(eq=False)
class TopicListener:
    """Waits until a topic is woken; yielded by `Stores.listen`.

    A wake-up is kept until `woken` returns, so none is lost between reading the store and waiting.
    """

    _longest: Callable[[], float]
    _event: trio.Event = attrs.Factory(trio.Event)
    _wait: trio.CancelScope = attrs.Factory(trio.CancelScope)  # of the last `woken`
    _run: trio.lowlevel.TrioToken = attrs.Factory(trio.lowlevel.current_trio_token)

    async def woken(self) -> None:
        """Wait until the topic is woken, or has been woken since the last return or since the block began.

        It may also return without a wake-up. If the wait is cancelled, a wake-up is kept for the next call.
        """
        with trio.move_on_after(self._longest()) as self._wait:
            await self._event.wait()
        self._event = trio.Event()

    def hurry(self, seconds: float) -> None:
        """Limit a wait in `woken` that has begun already to so many more seconds."""
        self._wait.deadline = min(self._wait.deadline, trio.current_time() + seconds)

    def ring(self) -> None:
        """Wake the listener; may be called in any thread."""
        try:
            here = trio.lowlevel.current_trio_token() is self._run
        except RuntimeError:  # this thread has no run of Trio
            here = False
        if here:
            self._hear()
        else:
            with contextlib.suppress(trio.RunFinishedError):
                self._run.run_sync_soon(self._hear, idempotent=True)

    def _hear(self) -> None:
        self._event.set()


@attrs.define(eq=False)
class TopicListeners:
    """The listeners in this process: an implementation of `Stores.wake` and `Stores.listen`."""

    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)  # guards `_topics`
    _topics: dict[str, set[TopicListener]] = attrs.field(factory=dict, init=False)

    @contextlib.contextmanager
    def listen(self, topic: str, longest: Callable[[], float]) -> Iterator[TopicListener]:
        """Listen to a topic within a block; see `Stores.listen`.

        Args:
            topic: The topic.
            longest: Returns the maximum number of seconds that a `TopicListener.woken` that begins now waits.
        """
        listener = TopicListener(longest)
        with self._lock:
            self._topics.setdefault(topic, set()).add(listener)
        try:
            yield listener
        finally:
            with self._lock:
                remaining = self._topics[topic]
                remaining.discard(listener)
                if not remaining:
                    del self._topics[topic]

    def hurry(self, seconds: float) -> None:
        """Limit all waits that have begun already to so many more seconds; call it only in the listeners' thread."""
        for listeners in self._topics.values():
            for listener in listeners:
                listener.hurry(seconds)

    def wake(self, topic: str) -> None:
        """Wake all listeners of a topic; may be called in any thread."""
        with self._lock:
            woken = tuple(self._topics.get(topic, ()))
        for listener in woken:
            listener.ring()

    def wake_all(self) -> None:
        """Wake all who listen, to any topic; may be called in any thread."""
        with self._lock:
            woken = [listener for listeners in self._topics.values() for listener in listeners]
        for listener in woken:
            listener.ring()
