"""The session of a `Client`: the hooks that see messages where they arrive, in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import trio

from trio_mcp import _attrs as attrs
from trio_mcp.client.subscriptions import NOTICES, Subscriptions
from trio_mcp.eras.client_negotiation import ModernClientEra, ServerDeclaration
from trio_mcp.errors import RemoteProtocolError, RequestTimeout
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.link import Link
from trio_mcp.session.calls import UNLIMITED, Limit, Limits
from trio_mcp.session.client import ClientSession
from trio_mcp.stdio.probing import Probing
from trio_mcp.types.common import LoggingLevel

__all__ = ["ConnectedSession"]


class ConnectedSession(ClientSession):
    """A `ClientSession` that hands its `Client` the notifications, and notes changes in the order of arrival."""

    def __init__(
        self,
        link: Link,
        *,
        on_notification: Callable[[Notification], Awaitable[None]],
        subscriptions: Subscriptions,
        probing: Probing,
        log_level: LoggingLevel | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*link, **options)
        self._probing = probing
        self.last_fault: RemoteProtocolError | None = None
        self._on_notification = on_notification
        self._subscriptions = subscriptions
        self._loss = trio.Event()
        self._log_level = log_level

    @property
    def modern(self) -> bool:
        """Whether the session has been opened in the modern era."""
        return self._era is not None

    def set_log_level(self, level: LoggingLevel | None) -> None:
        """Make every later request ask for log messages of a level (modern era only)."""
        self._log_level = level
        self._era = self._modern_era(self.server.revision)

    def _modern_era(self, revision: str) -> ModernClientEra:
        era = super()._modern_era(revision)
        # The era stamps each request with the level.
        return attrs.evolve(era, log_level=self._log_level)

    async def _probe(self, revision: str, timeout: Limit) -> tuple[list[str], ServerDeclaration | None]:
        try:
            return await super()._probe(revision, timeout)
        except RequestTimeout:
            # Perhaps it is still starting, and what it prints says why that takes so long.
            self._probing.end()
            raise
        finally:
            self._probing.answered()

    async def received_error(self, error: RemoteProtocolError) -> None:
        self.last_fault = error  # named in the error if connecting then times out
        await super().received_error(error)

    async def received_notification(self, notification: Notification) -> None:
        await self._on_notification(notification)

    def _note(self, notification: Notification) -> None:
        # Called by the reader, so that an event comes before a result that arrived after it; it must not wait.
        if notification.method in NOTICES:
            try:
                self._subscriptions.note(notification, modern=self.modern)
            except RemoteProtocolError as exc:
                # Not raised: a notification out of order is reported, and costs nothing else.
                self._notices.put(exc)

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        opened: Callable[[OutgoingRequest], None],
        limits: Limits = UNLIMITED,
    ) -> dict[str, Any]:
        """Send a request whose id the caller needs to know, and wait for its result.

        Args:
            method: The method.
            params: Its parameters.
            opened: Called with the request once it has its id, before it is sent.
            limits: By default none: the request may stay open as long as it likes.

        Errors and cancellation are those of `BaseSession.send_request`.
        """
        # As `send_request` does, whose id the caller would learn too late.
        self._check_outgoing(method)
        return await self._call(method, params, limits, opened=opened)

    def start_soon(self, function: Callable[..., Awaitable[object]], *arguments: object) -> bool:
        """Run a function in a task that ends with the session; return False if the session has ended."""
        if self.closed or self._nursery is None:
            return False
        self._nursery.start_soon(function, *arguments)
        return True

    async def raise_loss(self) -> NoReturn:
        """Wait until the session can make no more calls, then raise what every call would raise."""
        await self._loss.wait()
        self._calls.check_open()
        raise AssertionError("a session that is lost has a reason")

    def _settle_everything(self, error: Exception) -> None:
        super()._settle_everything(error)
        # After the calls have been settled, so that `raise_loss` finds the reason.
        self._loss.set()
