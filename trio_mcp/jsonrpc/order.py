"""The order in which messages leave a queue: urgent ones first, within limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from trio_mcp.jsonrpc.messages import Batch, ErrorResponse, Notification, Request, Response
from trio_mcp.types.methods import facts_of

__all__ = ["MOST_IN_A_ROW", "MessageQueue"]

T = TypeVar("T")

MOST_IN_A_ROW: Final = 8
"""The maximum number of urgent messages in a row that may overtake a waiting message.

An arbitrary choice: enough for a burst, while the other messages still get one place in nine.
"""


class MessageQueue(Generic[T]):
    """A queue in which urgent messages overtake other requests and notifications.

    Urgent messages do not overtake each other, a response, the handshake, or a message that they refer to: a
    cancellation does not overtake its request, nor does progress overtake earlier progress. A response overtakes
    nothing.

    Args:
        wanted: Returns whether an item is still wanted; an unwanted item is dropped when its turn comes.

    Attributes:
        plain: The waiting entries that are not urgent, in order: the serial number, the message and the item.
        urgent: The waiting entries that are urgent, in order: the serial number, the highest serial number that the
            item must not overtake, and the item.
    """

    # Serial numbers record the order of `put` calls across `plain` and `urgent`, even after `remove`. The two queues
    # are public attributes because `Peer.finished` tests them for every request, and testing a deque costs less than a
    # method call.

    def __init__(self, wanted: Callable[[T], bool] = lambda item: True) -> None:
        self.plain: deque[tuple[int, object, T]] = deque()
        self.urgent: deque[tuple[int, int, T]] = deque()
        self._wanted = wanted
        self._serial = 0
        self._barrier = 0  # the serial number of the last message that nothing may overtake
        self._in_a_row = 0  # how many urgent messages were taken while the first plain one waited

    def __len__(self) -> int:
        return len(self.plain) + len(self.urgent)

    def put(self, item: T, message: object, urgent: bool = False) -> None:
        """Add an item.

        Args:
            item: What `take` returns.
            message: The message that the item represents; None if it stands for a response.
            urgent: Whether the message may overtake others.
        """
        self._serial += 1
        if urgent:
            # The barrier is a serial number that `plain` must have passed, so it stays valid even if the message with
            # this number is removed.
            self.urgent.append((self._serial, max(self._barrier, self._predecessor(message)), item))
        else:
            if _is_barrier(message):
                self._barrier = self._serial
            self.plain.append((self._serial, message, item))

    def _predecessor(self, message: object) -> int:
        """Return the serial number of the last plain message that a message refers to, or 0."""
        if not isinstance(message, Notification) or message.method not in _REFERRING:
            return 0
        # Only plain messages are searched, because urgent ones never overtake each other.
        return max((serial for serial, each, _ in self.plain if _refers(message, each)), default=0)

    def take(self) -> T | None:
        """Remove and return the item whose turn it is; None if the queue is empty."""
        while True:
            # Unwanted plain items are dropped first: an urgent message that is taken ahead of one of them does not
            # really overtake anything, and must not count as if it did.
            while self.plain and not self._wanted(self.plain[0][2]):
                self.plain.popleft()
            # If no plain message is waiting, `first` is greater than all serial numbers, so that nothing is overtaken
            # or counted.
            first = self.plain[0][0] if self.plain else self._serial + 1
            if self.urgent and (
                self.urgent[0][0] < first or (self.urgent[0][1] < first and self._in_a_row < MOST_IN_A_ROW)
            ):
                serial, _, item = self.urgent.popleft()
                # Only a returned item counts as one in a row: a dropped item does not delay the others.
                if not self._wanted(item):
                    continue
                # An urgent item that was put before the first plain one overtakes nothing, so it doesn't count as one
                # in a row.
                self._in_a_row = self._in_a_row + 1 if first < serial else 0
                return item
            if not self.plain:
                return None
            self._in_a_row = 0
            return self.plain.popleft()[2]

    def remove(self, item: T) -> None:
        """Remove an item, if it is still waiting."""
        for lane in (self.plain, self.urgent):
            for entry in lane:
                if entry[2] is item:
                    lane.remove(entry)  # type: ignore[arg-type]
                    return

    def clear(self) -> None:
        """Remove all items."""
        self.plain.clear()
        self.urgent.clear()


def _is_barrier(message: object) -> bool:
    match message:
        case Request() | Notification():
            # A ping may be sent before the handshake, but does not belong to it.
            return facts_of(message.method).opening and message.method != "ping"
        # A batch may contain a response (2025-03-26 `basic/index`, Batching), so it is treated like a response.
        case None | Response() | ErrorResponse() | Batch():
            return True
    return False


_REFERRING: Final = ("notifications/cancelled", "notifications/progress")


def _refers(message: Notification, other: object) -> bool:
    """Return whether a cancellation or a progress notification refers to an earlier message."""
    params = message.params or {}
    if message.method == "notifications/cancelled":
        return isinstance(other, Request) and other.id == params.get("requestId")
    progress = isinstance(other, Notification) and other.method == message.method
    return progress and (other.params or {}).get("progressToken") == params.get("progressToken")  # type: ignore[attr-defined]
