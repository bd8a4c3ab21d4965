"""What one client of a server's run hears of."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from trio_mcp.errors import McpError
from trio_mcp.server.changes import MAX_SUBSCRIPTIONS, Changes, Listener, Topic
from trio_mcp.types.error_codes import OVERLOADED

__all__ = ["Audience"]


class Audience:
    """The listeners of one client: its requests ``subscriptions/listen``, and its session of the handshake era.

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
