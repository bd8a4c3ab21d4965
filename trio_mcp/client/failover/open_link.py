"""The I/O of one open link of a client that can reach its server in several ways."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import trio

from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.link import Link
from trio_mcp.stopwatch import TimeLimit

__all__ = ["OpenLink"]


class OpenLink:
    """The I/O of one open link. No method except `send` waits.

    Args:
        link: The two halves of the link.
        scope: The cancel scope around the link, cancelled when the link is given up.

    Attributes:
        read: The reading half of the link.
        write: The writing half of the link.
        turn: A lock that the sending task holds, as some channels allow only one sender at a time.
        pause: The wait of the task that opened the link, cancelled when something changes; None while it does not wait.
        send_nowait: Sends a message without waiting; None if the link has no such method.
        receive_nowait: Takes a message without waiting; None if the link has no such method.
        close_read: Closes the reading half in one step; None if the link has no such method.
    """

    def __init__(self, link: Link, scope: TimeLimit) -> None:
        self.read = link.read
        self.write = link.write
        self.turn = trio.Lock()
        self.pause: TimeLimit | None = None
        self._scope = scope
        self._sending: trio.CancelScope | None = None
        # Many channels have `send_nowait` and `receive_nowait`, but trio's channel interfaces don't require them.
        self.send_nowait: Callable[[SessionMessage], None] | None = getattr(link.write, "send_nowait", None)
        self.receive_nowait: Callable[[], SessionMessage] | None = getattr(link.read, "receive_nowait", None)
        # A link is given up in one step, without waiting, so only a synchronous `close` can be used.
        close_read = getattr(link.read, "close", None)
        self.close_read: Callable[[], object] | None = None if inspect.iscoroutinefunction(close_read) else close_read

    async def send(self, item: SessionMessage) -> bool:
        """Hand a message to the link; return False if the link was given up before it took the message.

        Raises:
            trio.BrokenResourceError, trio.ClosedResourceError: If the link takes no more messages.
        """
        taken = False
        try:
            # Sending needs a scope of its own: the sender may be a task of the session, which is outside the scope of
            # the link.
            with trio.CancelScope() as self._sending:
                await self.write.send(item)
                # `taken` is needed because `cancel_called` is also true if the link took the message just before the
                # cancellation.
                taken = True
        finally:
            self._sending = None
        return taken

    def offer(self, item: SessionMessage) -> None:
        """Send a message if the link takes it at once, and drop it otherwise."""
        if self.send_nowait is not None:
            try:
                self.send_nowait(item)
            except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    def wake(self) -> None:
        """End the wait of the task that opened the link, because something has changed."""
        if self.pause is not None:
            self.pause.cancel()

    def give_up(self) -> None:
        """End every wait on the link except that of the session's reader, which may have no scope."""
        self._scope.cancel("this way to the server has failed")
        if self._sending is not None:
            self._sending.cancel()

    def last_messages(self) -> list[SessionMessage]:
        """Return the messages that have arrived but have not been read yet, and close the reading half."""
        items: list[SessionMessage] = []
        try:
            while self.receive_nowait is not None:
                items.append(self.receive_nowait())
        except (trio.WouldBlock, trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        # The session's reader may be waiting on this channel without a cancel scope (see `Router.bound`). Closing the
        # channel wakes it, by raising `ClosedResourceError` in its task.
        if self.close_read is not None:
            self.close_read()
        return items
