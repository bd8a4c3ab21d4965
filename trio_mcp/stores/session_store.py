"""The contract of the part of stores that keeps the sessions of the legacy era, so that any process can serve them.

2025-11-25 `basic/transports`, Session Management, and Resumability and Redelivery.

A process that serves sessions is a *member*: it has a lease, and a mailbox in which the other members leave letters.
The member that runs a request writes the stream on which the response is sent. Any member may carry a stream to the
client, as the client may come back to another process; the store remembers which one does, and sends it a letter for
each event that another member appends. Stream 0 is for messages that belong to no request; every member may write it.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

import attrs

from trio_mcp.stores.event_store import EventStore, StoredEvent

__all__ = ["LETTERS", "MAILBOX", "Letter", "Member", "OpenStream", "SessionStore", "StoredSession"]

LETTERS: Final = "letters"
"""The topic of `Stores.listen` that a store wakes whenever it has put letters into mailboxes."""

MAILBOX: Final = 4 * 1024 * 1024
"""How many bytes the messages in a member's mailbox may have; a single message may be larger (arbitrary)."""


@attrs.frozen
class Member:
    """A process that serves sessions.

    Attributes:
        number: A number that no other member of the store has ever had, from 1.
        token: The random fencing token of its lease.
    """

    number: int
    token: str


@attrs.frozen
class StoredSession:
    """A session.

    Attributes:
        key: A digest of the session's id and its owner.
        declaration: What was agreed in the handshake; it never changes.
        fields: What may change, by name.
        expires: Seconds since the epoch, after which the session no longer exists, unless it has an open stream.
        version: A number that grows by one with each change of ``fields``; a new session has version 1.
    """

    key: str
    declaration: bytes
    fields: Mapping[str, bytes]
    expires: float
    version: int = 1


@attrs.frozen
class OpenStream:
    """A stream whose response is still to come: `SessionStore.open` opens it, and ``ended`` of an `append` ends it.

    Attributes:
        session: The key of the session.
        stream: The number of the stream.
        requests: The ids of the requests that have no response yet, as JSON.
    """

    session: str
    stream: int
    requests: tuple[str, ...]


@attrs.frozen
class Letter:
    """A note in the mailbox of a member.

    Attributes:
        number: The number of the letter in the mailbox, from 1: each new letter has a higher one than all before it.
        kind: What it is about: ``"message"``, a message from the client for a request that the member runs;
            ``"events"``, events of a stream that the member carries; ``"taken"``, a stream that another member carries
            now; ``"changed"``, a change of the fields of a session of which the member carries the stream 0;
            ``"ended"``, the end of a session of which the member has an open stream or carries a stream.
        session: The key of the session.
        stream: The number of the stream; 0 for a letter about the whole session.
        event: The number of the stream's newest event, for ``"events"``.
        ended: Whether no event will follow, for ``"events"``.
        data: The message, for ``"message"``.
    """

    number: int
    kind: Literal["message", "events", "taken", "changed", "ended"]
    session: str
    stream: int = 0
    event: int = 0
    ended: bool = False
    data: bytes = b""


class SessionStore(EventStore, abc.ABC):
    """The sessions of the legacy era, their events, and the members that serve them: `Stores.sessions`.

    What is said of the methods of `Stores` (transactions, cancellation, errors, leases) holds for these, too. A method
    with a ``token`` raises `StaleWriter` if the token is not that of a member's lease; the member must then give up all
    requests that it runs, as another one has ended or will end them. A lease that has expired is not stale before
    another member has taken it over.

    A session that has expired and has no open stream does not exist for any method, although the store may delete it
    later, and puts no letter into a mailbox then: a member that carries a stream of a session keeps it alive with
    `change`. Only `after`, `forget`, and `append` without a token know events and no sessions.

    A letter replaces a waiting one of the same kind about the same stream; a ``"message"`` replaces none. After each
    transaction that has put letters into mailboxes, the store wakes the topic `LETTERS`.
    """

    # --- members -------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def join(self, *, lease: float) -> Member:
        """Add a member, with an empty mailbox.

        Args:
            lease: The duration of its lease, in seconds.
        """

    @abc.abstractmethod
    async def stay(self, token: str, *, lease: float, read: int = 0) -> None:
        """Renew the lease of a member, and delete its letters up to the number ``read``.

        Raises:
            StaleWriter: If the token is stale.
        """

    @abc.abstractmethod
    async def letters(self, token: str, after: int) -> Sequence[Letter]:
        """Return the letters of a member after the number ``after``: all later ones, or at least the first.

        Raises:
            StaleWriter: If the token is stale.
        """

    @abc.abstractmethod
    async def take_over(self, *, lease: float, most: int) -> Sequence[Member]:
        """Take over members whose lease was lost; each keeps its number, and gets a new token and an empty mailbox.

        The caller ends their open streams, each with an `append`, and then lets them `leave`. A member whose own lease
        was lost may take over itself; its old token is stale then.

        Args:
            lease: The duration of each new lease, in seconds.
            most: The maximum number of members to take over.
        """

    @abc.abstractmethod
    async def open_streams(self, token: str, most: int) -> Sequence[OpenStream]:
        """Return up to ``most`` streams that a member has open, in any order.

        Raises:
            StaleWriter: If the token is stale.
        """

    @abc.abstractmethod
    async def leave(self, token: str) -> None:
        """Remove a member, its mailbox, its open streams, and the note that it carries streams.

        A member that ends its streams before loses nothing. Another member that carries one of those that are left gets
        an ``"events"`` letter that says that the stream has ended. There is no effect if the token is stale.
        """

    # --- sessions ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def add(self, session: StoredSession, *, limit: int, unless: str = "") -> None:
        """Add a session.

        Args:
            session: The session; its ``version`` is ignored.
            limit: The maximum number of sessions in the store.
            unless: If the store holds ``limit`` sessions, one without a field of this name and without an open stream
                is deleted as by `end`, the one that expires first; empty for none.

        Raises:
            StoreFull: If the store holds ``limit`` sessions, and none of them may be deleted.
            ValueError: If a session with this key exists.
        """

    @abc.abstractmethod
    async def session(self, key: str, *, known: int = 0) -> StoredSession | None:
        """Return a session; None if no session has this key.

        If ``known`` is its version, ``declaration`` and ``fields`` are left empty. Versions start at 1.
        """

    @abc.abstractmethod
    async def change(
        self, key: str, token: str, *, expires: float | None = None, fields: Mapping[str, bytes | None] | None = None
    ) -> int | None:
        """Change a session, and return its version; None if there is no session with this key.

        The version grows only if ``fields`` are given, and not empty. Then the member that carries the stream 0 gets a
        ``"changed"`` letter, unless it is the caller itself.

        Args:
            key: The key of the session.
            token: The token of the caller.
            expires: When the session expires; it never becomes earlier.
            fields: The fields to set; a field with None is deleted.

        Raises:
            StaleWriter: If the token is stale.
        """

    @abc.abstractmethod
    async def end(self, key: str) -> None:
        """Delete a session and everything that belongs to it, its events, too; do nothing if no session has this key.

        Each member that has one of its streams open, or carries one, gets an ``"ended"`` letter.
        """

    # --- streams -------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def open(self, key: str, token: str, stream: int, requests: Collection[str]) -> bool:
        """Record that a member runs requests whose responses it will send on a stream.

        The member carries the stream, unless it was open already; then the member that carries it still does.

        Args:
            key: The key of the session.
            token: The token of the member.
            stream: The number of the stream, which is not 0; a stream that is open already gets this member and these
                requests instead.
            requests: The ids of the requests, as JSON.

        Returns:
            Whether there is a session with this key.

        Raises:
            StaleWriter: If the token is stale.
        """

    @abc.abstractmethod
    async def append(
        self,
        session: str,
        events: Sequence[StoredEvent],
        token: str | None = None,
        *,
        ended: Collection[int] = (),
        expires: float | None = None,
    ) -> Sequence[int]:
        """Store all the events, or none, and return their numbers. A stored event is not changed.

        With a token, the member that carries a stream of the events, or an ended one, gets an ``"events"`` letter,
        unless it is the caller itself; and if the session does not exist (it has ended), nothing is stored, and the
        numbers are those that were given. Without a token, the events are stored in any case, no member gets a letter,
        and ``ended`` and ``expires`` have no effect.

        Args:
            session: The key of the session.
            events: The events. An event with the number 0 gets the number after that of the newest event in its stream,
                or 1 if the stream is empty. In stream 0 and in open streams no number is given twice, even if the
                events before it are no longer stored.
            token: The token of the member that writes; None for a caller without members, such as an application that
                uses the store as a mere `EventStore`.
            ended: The numbers of streams, none of them 0, that are no longer open after this, and carried by no member.
            expires: When the session expires; it never becomes earlier.

        Raises:
            StaleWriter: If ``token`` is given and stale, whatever the numbers of the events are.
        """

    @abc.abstractmethod
    async def carry(self, key: str, token: str, stream: int) -> tuple[int, bool] | None:
        """Record that a member carries a stream from now on; one that carried it before gets a ``"taken"`` letter.

        The ``"events"`` and ``"taken"`` letters about this stream that wait in the caller's mailbox are deleted. But a
        call of `letters` at the same time may still return them: let one call wait for the other. For stream 0, read
        the session after this, as its changes before this gave the caller no letter.

        A stream that is not open has all its events: no member carries it, and nothing is recorded.

        Returns:
            The number of the newest event of the stream, 0 for none, even if it is no longer stored and the stream is
            open; and whether the stream is open, which stream 0 always is. None if there is no session with this key.

        Raises:
            StaleWriter: If the token is stale.
        """

    @abc.abstractmethod
    async def drop(self, key: str, token: str, stream: int) -> None:
        """Record that a member no longer carries a stream.

        There is no effect if another member carries it, or if the token is stale.
        """

    @abc.abstractmethod
    async def send(
        self, key: str, data: bytes, *, member: int | None = None, request: str | None = None, limit: int = MAILBOX
    ) -> bool:
        """Put a message of the client into the mailbox of a member.

        Args:
            key: The key of the session.
            data: The message.
            member: The number of the member that gets the message.
            request: Without a member: the id of a request, as JSON. Each member that runs a request of this session
                with this id gets the message, once.
            limit: How many bytes the messages in a mailbox may have; a single message may be larger.

        Returns:
            Whether there is such a session, and such a member or such a request. If not, nothing is sent.

        Raises:
            StoreFull: If a mailbox would exceed the limit. Nothing is sent then.
        """
