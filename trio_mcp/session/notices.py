"""What arrives and is no request and no answer: handled one after the other, in the order of arrival."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.jsonrpc.messages import Notification

__all__ = ["NoticeHooks", "Notices"]

logger = logging.getLogger("trio_mcp")


class NoticeHooks(Protocol):
    """Who hears of it."""

    async def received_notification(self, notification: Notification) -> None:
        """Take one notification."""
        ...

    async def received_error(self, error: RemoteProtocolError) -> None:
        """Take what arrived and belongs to no request."""
        ...


class Notices:
    """Notifications and faults that wait for their handlers, and the one task that calls those.

    Args:
        hooks: Who hears of them.
        most: How many wait here; further ones are dropped, and the log says so.
        spawn: Start a task: the one that calls the handlers, while there is something to handle.
    """

    def __init__(self, hooks: NoticeHooks, most: int, spawn: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
        self._hooks = hooks
        self._most = most
        self._spawn = spawn
        self._waiting: deque[Notification | RemoteProtocolError] = deque()
        self._handling = False
        self._overrun = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, notice: Notification | RemoteProtocolError) -> None:
        """Hand over one of them, without waiting."""
        if len(self._waiting) < self._most:
            self._overrun = False
            self._waiting.append(notice)
            if not self._handling:
                self._handling = True
                self._spawn(self._handle)
        elif not self._overrun:  # said once, or a peer could fill the log
            self._overrun = True
            logger.warning("notifications arrive faster than they are handled; some are dropped")

    def clear(self) -> None:
        """Drop what waits."""
        self._waiting.clear()

    async def _handle(self) -> None:
        while self._waiting:
            notice = self._waiting.popleft()
            try:
                if isinstance(notice, Notification):
                    await self._hooks.received_notification(notice)
                else:
                    await self._hooks.received_error(notice)
            except RemoteProtocolError as exc:
                # A handler found the peer at fault: that is for `on_error`, unless it is `on_error` that says so.
                if isinstance(notice, Notification):
                    self.put(exc)
                else:
                    logger.exception("on_error failed")
            except Exception:
                logger.exception("the handler of %s failed", notice)
        self._handling = False
