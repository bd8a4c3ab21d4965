"""The handle on one request of the peer's: read it, report progress on it, answer it once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp.jsonrpc.messages import ErrorData, Notification, Request, RequestId, SessionMessage

if TYPE_CHECKING:
    from trio_mcp.eras.server_negotiation import ClientDeclaration
    from trio_mcp.jsonrpc.events import IncomingRequest
    from trio_mcp.session.core import SessionCore

__all__ = ["Responder"]


class Responder:
    """One request of the peer's, whose handler runs inside `cancel_scope`.

    Attributes:
        session: The session that it came through.
        cancel_scope: Cancelled, with the peer's reason, when the peer cancels the request or the link is lost.
        request: The envelope.
        method: The request's method.
        client: What the client has declared, on a server's session; None on a client's.
    """

    __slots__ = ("_incoming", "_reported", "cancel_scope", "client", "method", "outcome", "request", "session")

    def __init__(self, session: SessionCore, incoming: IncomingRequest) -> None:
        self.session = session
        self.cancel_scope = trio.CancelScope()
        self.client: ClientDeclaration | None = None
        self.outcome: str = "cancelled"
        self._incoming = incoming
        self._reported = -math.inf
        self.request: Request = incoming.request
        self.method: str = incoming.request.method

    @property
    def id(self) -> RequestId:
        """The request's id."""
        return self.request.id

    @property
    def params(self) -> dict[str, Any]:
        """The request's parameters as plain data; empty if it has none."""
        return self.request.params or {}

    @property
    def meta(self) -> dict[str, Any]:
        """The request's ``_meta``; empty if it has none."""
        given = self.params.get("_meta")
        return given if isinstance(given, dict) else {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the transport knows of the request (HTTP headers, for example); may be empty."""
        return self._incoming.metadata or {}

    @property
    def answered(self) -> bool:
        """Whether the answer has been given."""
        return self._incoming.answered

    async def respond(self, result: dict[str, Any]) -> None:
        """Answer with a result.

        Waits while too much is queued for the link. When cancelled before that, no answer has been given.

        Raises:
            LocalProtocolError: The request is answered already.
        """
        if self.client is not None:
            result = self.client.era.finish_result(result)
        await self._answer(result, "ok")

    async def respond_error(self, code: int, message: str, data: Any = None) -> None:
        """Answer with an error. As `respond` otherwise."""
        await self._answer(ErrorData(code, message, data), "error")

    async def _answer(self, outcome: dict[str, Any] | ErrorData, kind: str) -> None:
        session = self.session
        if not session._outbox.has_room:
            await session._outbox.room()
        message = session._peer.answer(self._incoming, outcome)
        self.outcome = kind
        if message is not None:
            session._outbox.put(SessionMessage(message, self.id))

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification that belongs to this request, unless the request is answered or cancelled already.

        Waits while too much is queued for the link. When cancelled before that, nothing has been sent.
        """
        await self._room()
        if self._incoming.open:
            self._put(Notification(method, params))

    async def _room(self) -> None:
        await trio.lowlevel.checkpoint()
        await self.session._room_for(self.id)

    def _put(self, notification: Notification) -> None:
        self.session._outbox.put(SessionMessage(notification, self.id), self._incoming)

    def notify_nowait(self, method: str, params: dict[str, Any] | None = None) -> bool:
        """As `notify`, without waiting.

        Returns:
            Whether it was taken: not if too much is queued for the link, or the request is answered or cancelled.
        """
        if not self._incoming.open or not self.session._outbox.has_room:
            return False
        self._put(Notification(method, params))
        return True

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send a progress notification, if the peer asked for progress (`basic/patterns/progress`); as `notify`.

        Progress MUST grow, so what is not above all that was reported for this request is not sent.

        Raises:
            TypeError, ValueError: ``progress`` or ``total`` is no finite number.
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
        await self._room()
        if self._incoming.open and progress > self._reported:
            self._reported = progress
            self._put(Notification("notifications/progress", params))
