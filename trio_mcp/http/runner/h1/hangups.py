"""Notices at once when a peer leaves, without a task for each connection, and without reading."""

from __future__ import annotations

import contextlib
import select
import sys
from typing import Protocol

import trio

__all__ = ["Hangups", "Watched"]


class Watched(Protocol):
    """A connection that `Hangups` watches."""

    def left(self) -> None:
        """React to the peer having closed its end, even if only for sending."""

    def look(self) -> None:
        """Check whether the peer has sent so much ahead that the end of its data could not arrive."""


class Hangups:
    """A watch on connections, which tells each connection when its peer has closed its end.

    One epoll object watches the sockets only for that event, and one task waits for the object. A connection that
    serves a request therefore costs nothing extra, and what the peer has sent ahead stays in the system's buffers,
    unread.

    Args:
        interval: The interval, in seconds, at which `Watched.look` of each connection is called.

    Raises:
        RuntimeError: On a system without epoll.
    """

    def __init__(self, interval: float) -> None:
        if sys.platform != "linux":
            raise RuntimeError(f"this runner needs Linux's epoll, but runs on {sys.platform}: use runner='hypercorn'")
        # Trio's own epoll object contains a socket only while a task is waiting for that socket, so this is a separate
        # object.
        self._epoll = select.epoll()
        self._interval = interval
        self._watched: dict[int, Watched] = {}

    def watch(self, descriptor: int, connection: Watched) -> None:
        """Start to watch the socket of a connection."""
        if not self._epoll.closed:  # if epoll is closed, all connections are being cancelled
            self._watched[descriptor] = connection
            # The watch is edge-triggered, so that the socket is registered only once. Errors need no flag, because
            # epoll always reports them.
            self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLET)

    def forget(self, descriptor: int, connection: Watched) -> None:
        """Stop watching the socket of a connection."""
        # The socket may be closed already: the system has then forgotten it, and its number may belong to another
        # socket.
        if self._watched.get(descriptor) is connection:
            del self._watched[descriptor]
            with contextlib.suppress(OSError, ValueError):  # ValueError: the watch has ended
                self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Watch all connections, until cancelled."""
        with self._epoll:
            while True:
                with trio.CancelScope(deadline=trio.current_time() + self._interval) as waiting:
                    while True:
                        await trio.lowlevel.wait_readable(self._epoll)
                        # `poll` returns a limited number of events; if there are more, the object is readable again.
                        for descriptor, _ in self._epoll.poll(0):
                            connection = self._watched.get(descriptor)
                            if connection is not None and _is_hung_up(descriptor):
                                connection.left()
                # If a client fills the system's buffers, the end of its data can't arrive: check how much is waiting.
                if waiting.cancelled_caught:
                    for connection in tuple(self._watched.values()):
                        connection.look()


def _is_hung_up(descriptor: int) -> bool:
    """Return whether the peer of a socket has closed its end.

    An event alone does not prove that the peer has closed its end: its descriptor may be that of an earlier socket,
    which has been closed in this process but is still open for a moment in a process that is being started.
    """
    asked = select.poll()
    asked.register(descriptor, select.POLLRDHUP)
    return bool(asked.poll(0))
