"""Noticing at once that a peer has left, without a task for each connection and without reading what it sent."""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Callable

import trio

__all__ = ["Hangups"]


class Hangups:
    """A watch on connections, which calls a function for each whose peer has closed its end.

    One epoll object watches the sockets for that alone, and one task waits for it. So a connection that serves a
    request costs nothing, and what the peer has sent ahead stays in the system's buffers, unread.

    Raises:
        RuntimeError: On a system without epoll.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise RuntimeError(f"this runner needs Linux's epoll, and this is {sys.platform}: use runner='hypercorn'")
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], object]] = {}

    def watch(self, descriptor: int, callback: Callable[[], object]) -> None:
        """Call a function once the peer of a socket has closed its end, even if only for sending."""
        self._callbacks[descriptor] = callback
        # Edge-triggered: registered once for the life of the connection. Errors are always reported.
        self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLET)

    def forget(self, descriptor: int, callback: Callable[[], object]) -> None:
        """Stop watching a socket."""
        # It may be closed already, which makes the system forget it, and its number may belong to another one by now.
        if self._callbacks.get(descriptor) == callback:
            del self._callbacks[descriptor]
            with contextlib.suppress(OSError):
                self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Watch, until cancelled."""
        with self._epoll:
            while True:
                await trio.lowlevel.wait_readable(self._epoll)
                for descriptor, _ in self._epoll.poll(0):
                    callback = self._callbacks.get(descriptor)
                    if callback is not None:
                        callback()
