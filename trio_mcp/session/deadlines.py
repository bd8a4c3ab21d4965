"""The time limits of plain calls: one task watches them all. A cancel scope for each would cost as much as the rest."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable

import trio

from trio_mcp.jsonrpc.events import OutgoingRequest

__all__ = ["Deadlines"]

MIN_CAPACITY = 64


class Deadlines:
    """Pending calls by the time at which they are given up.

    Args:
        expire: Called with each request that is still unsettled at its time.
    """

    def __init__(self, expire: Callable[[OutgoingRequest], None]) -> None:
        self._expire = expire
        self._watched = False
        self._heap: list[tuple[float, int, OutgoingRequest]] = []
        self._serial = 0
        self._capacity = MIN_CAPACITY
        self._alarm: trio.CancelScope | None = None

    def add(
        self, deadline: float, request: OutgoingRequest, spawn: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        """Watch a request. There is no removing: one that is settled is passed over when its time comes.

        Args:
            deadline: The time.
            request: The request.
            spawn: Runs an async function in a task: the one that watches, while there is something to watch.
        """
        self._serial += 1
        heapq.heappush(self._heap, (deadline, self._serial, request))
        if len(self._heap) > self._capacity:
            self._heap = [entry for entry in self._heap if not entry[2].settled]
            heapq.heapify(self._heap)
            self._capacity = max(MIN_CAPACITY, 2 * len(self._heap))
        if not self._watched:
            self._watched = True
            spawn(self._watch)
        elif self._alarm is not None and deadline < self._alarm.deadline:
            self._alarm.deadline = deadline

    async def _watch(self) -> None:
        while True:
            while self._heap and self._heap[0][2].settled:
                heapq.heappop(self._heap)
            if not self._heap:
                break
            with trio.CancelScope(deadline=self._heap[0][0]) as self._alarm:
                await trio.sleep_forever()
            self._alarm = None
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                request = heapq.heappop(self._heap)[2]
                if not request.settled:
                    self._expire(request)
        self._watched = False
