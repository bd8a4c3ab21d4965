"""The interface of event stores, which let a client of the legacy era resume a broken stream.

2025-11-25 `basic/transports`, Resumability and Redelivery. The stores of this library are in `event_stores`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import attrs

__all__ = ["EventStore", "EventsLost", "StoredEvent"]


class EventsLost(Exception):
    """The next event of a stream is no longer stored, or nothing is known about the stream."""


@attrs.frozen
class StoredEvent:
    """A message for the client, as an event store keeps it.

    Attributes:
        stream: The number of the stream within its session.
        number: The number of the message within the stream: 1, 2, 3, without a gap. `SessionStore.append` also
            accepts 0, and assigns the number.
        data: The message, as JSON.
    """

    stream: int
    number: int
    data: bytes


@runtime_checkable
class EventStore(Protocol):
    """A store of the messages of streams, from which clients resume broken streams. Implement its three methods.

    For each session, only one task at a time calls `append`, and each event is appended once, unless an attempt failed
    or was cancelled. Sessions are named by a digest of their id, so that stored data gives no access to a session.

    Any exception other than `EventsLost` is logged, and only the exchanges for which the call was made fail: their
    clients get an error. Events that one `append` could not store are appended again, separately for each stream.
    """

    # The methods are abstract although this is a protocol, so that a subclass that lacks one fails when it is
    # instantiated rather than when a stream breaks.
    @abc.abstractmethod
    async def append(self, session: str, events: Sequence[StoredEvent]) -> object:
        """Store all the events, or none. A stored event is not changed.

        Once this returns, the events may be sent. If a store loses them later, a client can't get them again. The
        return value is not used.
        """

    @abc.abstractmethod
    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        """Return the events of a stream after the event ``number``, in order: all later events, or at least the first.

        Raises:
            EventsLost: If the next event is no longer stored; also if neither a later event nor the event ``number`` is
                stored, because nothing is known about the stream then.
        """

    @abc.abstractmethod
    async def forget(self, session: str) -> None:
        """Delete the events of a session that has ended: no client will ask for them any more."""
