"""`RequestContext`: one request of the peer's, as whoever handles it sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import trio

from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import Notification, Request, RequestId, SessionMessage
from trio_mcp.session.sink import Sink

__all__ = ["RequestContext"]


class RequestContext:
    """One request of the peer's. Its handler runs inside `cancel_scope`, and returns the result or raises.

    Attributes:
        method: The request's method.
        params: The request's parameters, as plain data; empty if it has none. May be replaced.
        client: What the client has declared, on a server's side; None on a client's.
        incoming: The request in flight; for sessions, not for handlers.
    """

    __slots__ = ("_reported", "_sink", "client", "incoming", "method", "params")

    def __init__(self, incoming: IncomingRequest, sink: Sink) -> None:
        request = incoming.request
        self.incoming = incoming
        self._sink = sink
        self._reported = -math.inf
        self.client: ClientDeclaration | None = None
        self.method: str = request.method
        self.params: dict[str, Any] = request.params or {}

    def go_on_as(self, other: RequestContext) -> None:
        """Serve another request from now on: the one that brings what this one was waiting for."""
        self.incoming, self._sink, self.client = other.incoming, other._sink, other.client

    @property
    def request(self) -> Request:
        """The request as it arrived."""
        return self.incoming.request

    @property
    def request_id(self) -> RequestId:
        """The id of the request."""
        return self.incoming.request.id

    @property
    def cancel_scope(self) -> trio.CancelScope:
        """Cancelled, with the peer's reason, when the peer cancels the request or the link is lost."""
        scope: trio.CancelScope = self.incoming.scope
        return scope

    @property
    def meta(self) -> dict[str, Any]:
        """The ``_meta`` of the request as it arrived; empty if it has none."""
        params = self.incoming.request.params
        given = params.get("_meta") if params else None
        return given if type(given) is dict else {}

    @property
    def transport_metadata(self) -> Mapping[str, Any]:
        """What the transport knows of the request (HTTP headers, for example); may be empty."""
        return self.incoming.metadata or {}

    async def send_notification(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification that belongs to this request, unless the request is answered or cancelled already.

        Waits while too much is queued for the link. When cancelled before that, nothing has been sent.
        """
        await trio.lowlevel.checkpoint()
        await self._sink.room(self.request_id)
        if self.incoming.open:
            self._put(Notification(method, params))

    def send_notification_nowait(self, method: str, params: dict[str, Any] | None = None) -> bool:
        """As `send_notification`, without waiting.

        Returns:
            Whether it was taken: not if too much is queued for the link, or the request is answered or cancelled.
        """
        if not self.incoming.open or not self._sink.has_room:
            return False
        self._put(Notification(method, params))
        return True

    def _put(self, notification: Notification) -> None:
        self._sink.put(SessionMessage(notification, self.request_id), self.incoming)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the peer how far the work is; does nothing if the peer did not ask (`basic/patterns/progress`).

        From a sync tool: ``trio.from_thread.run(ctx.report_progress, 1, 3)``.

        Args:
            progress: How much is done. It must grow: what is not above all that was reported before is not sent.
            total: How much there is, if known.
            message: A word for people; peers of 2024-11-05 don't get it.

        Raises:
            TypeError, ValueError: ``progress`` or ``total`` is no finite number.

        Waits while the peer is slow to read. When cancelled before that, nothing is sent.
        """
        for name, value in (("progress", progress), ("total", 0 if total is None else total)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{name} must be a number, got {value!r}")
            if not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value!r}")
        token = self.meta.get("progressToken")
        if token is None:
            return
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and (self.client is None or self.client.rules.progress_messages):
            params["message"] = message
        await trio.lowlevel.checkpoint()
        await self._sink.room(self.request_id)
        if self.incoming.open and progress > self._reported:
            self._reported = progress
            self._put(Notification("notifications/progress", params))
