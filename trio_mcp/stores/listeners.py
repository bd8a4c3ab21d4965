"""Wake-ups within a process: who listens to a topic hears each time that it is woken."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator

import attrs
import trio

__all__ = ["TopicListener", "TopicListeners"]


@attrs.define(eq=False)
class TopicListener:
    """Hears when a topic is woken, for as long as the block of `Stores.listen` lasts.

    A wake-up is kept until it is heard, so none is lost between a look at the store and the wait that follows it.
    """

    _longest: Callable[[], float]
    _event: trio.Event = attrs.Factory(trio.Event)
    _wait: trio.CancelScope = attrs.Factory(trio.CancelScope)  # of the last `woken`
    _run: trio.lowlevel.TrioToken = attrs.Factory(trio.lowlevel.current_trio_token)

    async def woken(self) -> None:
        """Wait until the topic is woken; return at once if it was since the last return, or since the block began.

        It may also return without a wake-up. If it is cancelled, a wake-up is kept.
        """
        with trio.move_on_after(self._longest()) as self._wait:
            await self._event.wait()
        self._event = trio.Event()

    def hurry(self, seconds: float) -> None:
        """Let a `woken` that waits now return after so many seconds at most."""
        self._wait.deadline = min(self._wait.deadline, trio.current_time() + seconds)

    def ring(self) -> None:
        """Let the listener hear; may be called in any thread."""
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
    """Everybody who listens in this process: what a store needs for its `Stores.wake` and `Stores.listen`.

    Args:
        longest: Returns the seconds after which a `TopicListener.woken` that begins now returns in any case.
    """

    _longest: Callable[[], float] = lambda: math.inf
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)  # guards `_topics`
    _topics: dict[str, set[TopicListener]] = attrs.field(factory=dict, init=False)

    @contextlib.contextmanager
    def listen(self, topic: str) -> Iterator[TopicListener]:
        """Listen to a topic for the length of a block."""
        listener = TopicListener(self._longest)
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
        """Let all who wait now look after so many seconds at most; to be called in the run of Trio that they are in."""
        for listeners in self._topics.values():
            for listener in listeners:
                listener.hurry(seconds)

    def wake(self, topic: str) -> None:
        """Wake all who listen to a topic; may be called in any thread."""
        with self._lock:
            woken = tuple(self._topics.get(topic, ()))
        for listener in woken:
            listener.ring()
