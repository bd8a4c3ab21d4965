"""What both sides' sessions are made of: the overridable hooks, and sending."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, overload

import trio
from pydantic import BaseModel, ValidationError

from trio_mcp.convert import another, as_object, as_result, brief
from trio_mcp.errors import McpError, RemoteProtocolError
from trio_mcp.jsonrpc.messages import ErrorData, Notification, RequestId, SessionMessage
from trio_mcp.session.calling import USE_SESSION, CallOptions, Limit, ProgressCallback, call
from trio_mcp.session.core import SessionCore
from trio_mcp.session.options import SessionOptions
from trio_mcp.session.responder import Responder
from trio_mcp.trace_context import CURRENT_TRACE
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

__all__ = ["BaseSession"]

logger = logging.getLogger("trio_mcp")

ResultT = TypeVar("ResultT", bound=BaseModel)
RequestHandler = Callable[[Any, Responder], Awaitable[Any]]


class BaseSession(SessionCore):
    """One side of a conversation: requests in both directions over a pair of memory channels of `SessionMessage`.

    An async context manager: its tasks live in a nursery inside the block, and leaving the block ends them all. What
    leaves the block is the very object that was raised in it. The loss of the link ends the session, never the block:
    every pending call, and every later one, raises what happened.

    Args:
        read: Where messages come from.
        write: Where messages go.
        options: Limits, timeouts and hooks.
        on_error: Called, sync or async, with what arrived and belongs to no request (a `RemoteProtocolError`).
            Without it such things are logged as warnings.

    Subclasses may override `received_request`, `received_notification` and `handle_incoming`.
    """

    def __init__(
        self,
        read: trio.abc.ReceiveChannel[SessionMessage],
        write: trio.abc.SendChannel[SessionMessage],
        *,
        options: SessionOptions | None = None,
        on_error: Callable[[RemoteProtocolError], object] | None = None,
    ) -> None:
        super().__init__(read, write, options or SessionOptions())
        self._on_error = on_error
        self._handlers: dict[str, tuple[RequestHandler, type[BaseModel] | None]] = {}

    # --- hooks ---------------------------------------------------------------------------------------------------

    def error_for(self, exc: Exception, responder: Responder) -> ErrorData:
        """The error answer for an exception that a handler raised; anything but an `McpError` goes to the log."""
        if isinstance(exc, McpError):
            return ErrorData(exc.code, exc.message, exc.data)
        logger.error("the handler of %r failed", responder.method, exc_info=exc)
        return ErrorData(INTERNAL_ERROR, f"internal error in {responder.method!r}")

    async def handle_incoming(self, incoming: Responder | Notification | RemoteProtocolError) -> None:
        """See everything that arrives and is not an answer, and route it: override it to intercept.

        A request comes in a task of its own, inside its cancel scope; notifications and errors come one after the
        other, in the order of arrival.
        """
        if isinstance(incoming, Responder):
            await self.received_request(incoming)
        elif isinstance(incoming, Notification):
            await self.received_notification(incoming)
        else:
            await self._report(incoming)

    async def received_request(self, responder: Responder) -> None:
        """Answer one request: override it to answer them all yourself.

        As it stands it looks for a handler added with `add_request_handler`. An exception becomes an error answer.
        """
        handler, params_type = self._handlers.get(responder.method, (None, None))
        if handler is None:
            raise McpError(METHOD_NOT_FOUND, f"unknown method {responder.method!r}")
        params: Any = responder.params
        if params_type is not None:
            try:
                params = params_type.model_validate(params)
            except ValidationError as exc:
                raise McpError(INVALID_PARAMS, f"invalid parameters for {responder.method!r}: {brief(exc)}") from None
        result = await handler(params, responder)
        if not responder.answered:
            await responder.respond({} if result is None else as_object(result, "a handler's result"))

    async def received_notification(self, notification: Notification) -> None:
        """Take one notification: override it. Those of the protocol's own bookkeeping don't come here."""

    async def _report(self, error: RemoteProtocolError) -> None:
        if self._on_error is None:
            logger.warning("from the peer: %s", error)
            return
        outcome = self._on_error(error)
        if isinstance(outcome, Awaitable):
            await outcome

    def _note(self, notification: Notification) -> None:
        """Look at a notification in the order of arrival, before any later message is looked at."""

    def add_request_handler(
        self, method: str, handler: RequestHandler, params_type: type[BaseModel] | None = None
    ) -> None:
        """Answer a method, for example one of your own.

        Args:
            method: The method's name.
            handler: ``async (params, responder) -> result``; the result is a model, a dict, or None for an empty one.
            params_type: The model that validates the parameters; without it the handler gets plain data.

        Raises:
            ValueError: The method has a handler already.
        """
        if method in self._handlers:
            raise ValueError(f"the method {method!r} has a handler already")
        self._handlers[method] = (handler, params_type)

    # --- our requests --------------------------------------------------------------------------------------------

    @overload
    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = ...,
        result_type: None = ...,
        *,
        timeout: Limit = ...,
        total_timeout: Limit = ...,
        reset_on_progress: bool | None = ...,
        on_progress: ProgressCallback | None = ...,
        related_request_id: RequestId | None = ...,
    ) -> dict[str, Any]: ...

    @overload
    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None,
        result_type: type[ResultT],
        *,
        timeout: Limit = ...,
        total_timeout: Limit = ...,
        reset_on_progress: bool | None = ...,
        on_progress: ProgressCallback | None = ...,
        related_request_id: RequestId | None = ...,
    ) -> ResultT: ...

    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = None,
        result_type: type[BaseModel] | None = None,
        *,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        reset_on_progress: bool | None = None,
        on_progress: ProgressCallback | None = None,
        related_request_id: RequestId | None = None,
    ) -> Any:
        """Send a request and wait for its answer.

        Args:
            method: The method's name.
            params: Its parameters: a model, or plain JSON data.
            result_type: The model that validates the result; without it the result is plain data.
            timeout: Seconds without an answer; None waits for ever; by default the session's.
            total_timeout: Seconds whatever happens; None sets no such limit; by default the session's.
            reset_on_progress: Whether progress restarts ``timeout``; by default the session's.
            on_progress: Called, sync or async, in this task, with a `ProgressNotificationParams` for each progress
                notification in order; all are done before this returns. What it raises is raised here, and the
                request is cancelled.
            related_request_id: The peer's request that this one is part of serving: a transport with a stream for each
                request puts it there.

        Raises:
            McpError: The peer answered with an error.
            RequestTimeout: No answer came in time.
            TransportError: The link failed or the session was closed.
            RemoteProtocolError: The answer is not what the method answers.
            LocalProtocolError: The request is not allowed now; nothing was sent.

        When cancelled, the peer is told (with the reason) and the call ends at once, without waiting for anything.
        """
        options = CallOptions.of(self.options.timeouts, timeout, total_timeout, reset_on_progress, on_progress)
        self._check_outgoing(method)
        plain = self._stamp(None if params is None else as_object(params, "params"))
        result = await call(self, method, plain, options, related=related_request_id)
        result = self._read_result(result)
        return result if result_type is None else as_result(result, result_type, method)

    async def send_notification(self, method: str, params: BaseModel | Mapping[str, Any] | None = None) -> None:
        """Send a notification.

        Waits while too much is queued for the link. When cancelled before that, nothing has been sent.

        Raises:
            TransportError: The link failed or the session was closed.
            LocalProtocolError: The notification is not allowed now.
        """
        self._check_outgoing(method)
        plain = None if params is None else as_object(params, "params")
        await trio.lowlevel.checkpoint()
        await self._outbox.room()
        if self._lost is not None:
            raise another(self._lost)
        self._outbox.put(SessionMessage(Notification(method, plain)))

    def _check_outgoing(self, method: str) -> None:
        """Refuse what may not be sent now: the hook for each side's rules.

        Raises:
            LocalProtocolError: The revision has no such method, or a capability is missing.
        """

    def _stamp(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        """What every request of ours carries: the trace it belongs to, and what the rules of the era add."""
        trace = CURRENT_TRACE.get()
        return params if trace is None else trace.added_to(params)

    def _read_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Check what every result carries, by the rules of the era."""
        return result
