"""What an event store is: what a client of the legacy era can still ask for after its connection broke.

2025-11-25 `basic/transports`, Resumability and Redelivery. Those that come with the library are in `legacy.stores`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import attrs

__all__ = ["EventStore", "EventsLost", "StoredEvent"]


class EventsLost(Exception):
    """What followed an event is no longer there, or not all of it."""


@attrs.frozen
class StoredEvent:
    """One message on its way to the client.

    Attributes:
        stream: The number of the stream within its session.
        number: Its number within the stream: 1, 2, 3, without a gap.
        data: The message, as JSON.
    """

    stream: int
    number: int
    data: bytes


@runtime_checkable
class EventStore(Protocol):
    """Keeps the messages of streams, so that a client can resume one that broke. Write your own with three methods.

    One task at a time appends for a session, and each event once, unless an attempt failed or was cancelled. A session
    is named by a digest of its id, so that what is stored lets nobody in.

    What a method raises, but for `EventsLost`, is logged and costs the exchanges that it was called for: their clients
    get an error. Events that `append` could not keep in one go come once more, those of each stream by themselves.
    """

    @abc.abstractmethod
    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        """Keep some events, all or none. An event that is there already is kept as it is.

        When it returns, the events may be sent: what is then lost with the process is lost to the client.
        """

    @abc.abstractmethod
    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        """The events of a stream that follow a number, in order: all, or at least one of the first.

        Raises:
            EventsLost: The next one is gone; or there is none, and neither is the event of that number, so that nothing
                can be said.
        """

    @abc.abstractmethod
    async def forget(self, session: str) -> None:
        """The session has ended: nobody will ask for its events."""
