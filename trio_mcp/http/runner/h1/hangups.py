"""A watch that notices at once when a peer leaves, without a task for each connection, and without reading."""

from __future__ import annotations

import contextlib
import select
import sys
from typing import Protocol

import trio

__all__ = ["Hangups", "Watched"]


class Watched(Protocol):
    """A connection that is watched."""

    def left(self) -> None:
        """React to the peer having closed its end, even if only for sending."""

    def look(self) -> None:
        """Check whether the peer has sent so much ahead that its end could not arrive."""


class Hangups:
    """A watch on connections, which tells each whose peer has closed its end.

    One epoll object watches the sockets for that alone, and one task waits for it. So a connection that serves a
    request costs nothing, and what the peer has sent ahead stays in the system's buffers, unread.

    Args:
        interval: Seconds after which each connection is asked to look for itself.

    Raises:
        RuntimeError: On a system without epoll.
    """

    def __init__(self, interval: float) -> None:
        if sys.platform != "linux":
            raise RuntimeError(f"this runner needs Linux's epoll, but this is {sys.platform}: use runner='hypercorn'")
        # Trio's epoll object has a socket only while a task waits for it, so this is another one.
        self._epoll = select.epoll()
        self._interval = interval
        self._watched: dict[int, Watched] = {}

    def watch(self, descriptor: int, connection: Watched) -> None:
        """Watch a socket."""
        if not self._epoll.closed:  # else all connections are being cancelled
            self._watched[descriptor] = connection
            # Edge-triggered: registered once for the life of the connection. Errors are always reported.
            self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLET)

    def forget(self, descriptor: int, connection: Watched) -> None:
        """Stop watching a socket."""
        # It may be closed already, which makes the system forget it, and its number may belong to another one by now.
        if self._watched.get(descriptor) is connection:
            del self._watched[descriptor]
            with contextlib.suppress(OSError, ValueError):  # ValueError: the watch has ended
                self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Watch, until cancelled."""
        with self._epoll:
            while True:
                with trio.CancelScope(deadline=trio.current_time() + self._interval) as waiting:
                    while True:
                        await trio.lowlevel.wait_readable(self._epoll)
                        # At most as many events as epoll gives at once; the rest makes it readable again.
                        for descriptor, _ in self._epoll.poll(0):
                            connection = self._watched.get(descriptor)
                            if connection is not None and _is_hung_up(descriptor):
                                connection.left()
                # A client that fills the system's buffers keeps its own end from being seen: see how much waits.
                if waiting.cancelled_caught:
                    for connection in tuple(self._watched.values()):
                        connection.look()


def _is_hung_up(descriptor: int) -> bool:
    """Return whether the peer of a socket has closed its end.

    An event alone does not say so: its number may have belonged to another socket, closed here, that a process being
    started has inherited for a moment.
    """
    asked = select.poll()
    asked.register(descriptor, select.POLLRDHUP)
    return bool(asked.poll(0))
