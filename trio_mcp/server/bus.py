"""Carries changes between the processes of a server: what one announces, the listeners of all are notified of.

The store has, for each topic, the number of its last change. A wake-up only makes the other processes look there at
once; as they look now and then in any case, a lost wake-up costs time and nothing else.
"""

from __future__ import annotations

import sys
from typing import Final

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.server.changes import Changes, call_in_run, text_of
from trio_mcp.stores.contract import MOST_TOPICS, StoreError, Stores

__all__ = ["Bus"]

WAKE_UP: Final = "changes"
"""The topic of wake-ups, which is not one of the topics that change."""

LOOK: Final = 2.0
"""Seconds after which a process looks for changes without a wake-up."""

AGAIN: Final = 1.0
"""Seconds until the next attempt if the store could not be used (arbitrary)."""

LAST: Final = 5.0
"""Seconds that the last changes may take when the server ends (arbitrary)."""

TO_ANNOUNCE: Final = "announce changes to other processes"
TO_LOOK: Final = "see the changes of other processes"
"""The operations that may fail, for the log."""

EVERYTHING: Final = ""
"""The topic that stands for all topics."""


class Bus:
    """The changes of one run of a server, shared with other processes.

    Args:
        stores: The server's stores.
        changes: The fan-out to the listeners of this process.
    """

    def __init__(self, stores: Stores, changes: Changes) -> None:
        self._stores = stores
        self._changes = changes
        self._token = trio.lowlevel.current_trio_token()
        self._waiting: dict[str, None] = {}  # an ordered set of topics to announce
        self._news = trio.Event()
        self._seen = 0
        # The numbers that this process has been given, so that its listeners are not notified once more; and the number
        # up to which there are no others.
        self._own: dict[str, int] = {}
        self._known = 0
        self._failing: set[str] = set()  # what could not be done at the last attempt
        self._warned = False

    @property
    def fails(self) -> bool:
        """Whether the store could not be used at the last attempt."""
        return bool(self._failing)

    @property
    def seen(self) -> int:
        """The number of the newest change of which the listeners in this process have been notified, or will be."""
        return self._seen

    async def open(self) -> None:
        """Learn what has changed so far, before there are listeners.

        Raises:
            StoreError: If the store can't be used.
        """
        # Only the number is of interest, and nothing is newer than the highest one.
        self._seen = self._known = (await self._stores.changed(sys.maxsize)).newest

    def publish(self, method: str, uri: str | None) -> None:
        """Let other processes know of a change soon. Returns at once, from any thread."""
        call_in_run(self._token, self._mark, text_of(method, uri))

    def registered(self) -> None:
        """Warn, once, that something was registered or removed while the server runs."""
        if not self._warned:
            self._warned = True
            logger.warning(
                "something was added to the server, removed or switched while it runs: other processes of the server do"
                " not learn of it; register everything before the server starts, and filter with visible="
            )

    def _mark(self, topic: str) -> None:
        if len(self._waiting) >= MOST_TOPICS:  # the store has been away for long
            self._waiting = {EVERYTHING: None}
        if EVERYTHING not in self._waiting:
            self._waiting[topic] = None
        self._news.set()

    async def run(self) -> None:
        """Announce changes to other processes and look for theirs, until cancelled; then announce the last ones."""
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._look_on)
                while True:
                    await self._news.wait()
                    self._news = trio.Event()
                    if not await self._announce():
                        await trio.sleep(AGAIN)
                        self._news.set()
        finally:
            if self._waiting:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST):
                    await self._announce()

    async def _announce(self) -> bool:
        """Announce what waits, and return whether the store has it."""
        topics, self._waiting = self._waiting, {}
        newest: int | None = None
        try:
            newest = await self._stores.announce(topics)
        except StoreError as exc:
            self._fail(TO_ANNOUNCE, exc)
        finally:
            if newest is None:
                self._waiting = topics | self._waiting
        if newest is None:
            return False
        self._failing.discard(TO_ANNOUNCE)
        # The number of a topic replaces its last one, so it may hide a change by another process that came after this
        # one's listeners were notified. Then they are notified once more.
        before = newest - len(topics)
        if before == self._known:
            self._known = newest
            self._own.update(zip(topics, range(before + 1, newest + 1), strict=True))
        self._stores.wake(WAKE_UP)
        return True

    async def _look_on(self) -> None:
        with self._stores.listen(WAKE_UP, look=LOOK) as listener:
            while True:
                try:
                    await self._look()
                except StoreError as exc:
                    self._fail(TO_LOOK, exc)
                    await trio.sleep(AGAIN)
                    continue
                self._failing.discard(TO_LOOK)
                await listener.woken()

    async def _look(self) -> None:
        found = await self._stores.changed(self._seen)
        self._seen = found.newest
        # The numbers of a store that has lost everything begin again.
        self._known = max(self._known, found.newest) if found.complete else found.newest
        others = [topic for topic, number in found.topics.items() if self._own.get(topic) != number]
        self._own = {topic: number for topic, number in self._own.items() if number > found.newest}
        if EVERYTHING in others or not found.complete:
            for each in self._changes.topics:
                self._changes.announce(*each)
            return
        for topic in others:
            method, _, uri = topic.partition(" ")
            self._changes.announce(method, uri if " " in topic else None)

    def _fail(self, what: str, exc: StoreError) -> None:
        if what not in self._failing:  # once, not once a second
            self._failing.add(what)
            logger.warning("the server can't %s: %s", what, exc)
