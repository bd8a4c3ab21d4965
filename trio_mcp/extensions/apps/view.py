"""`ViewSession`: the host's side of the conversation with one view (SEP-1865, Lifecycle)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import closing
from trio_mcp.errors import McpError, RemoteProtocolError, TransportError, TrioMcpError
from trio_mcp.extensions.apps.context import MODES
from trio_mcp.extensions.apps.limits import AppLimits, Budget, problem_with
from trio_mcp.extensions.apps.names import REVISION
from trio_mcp.extensions.apps.requests import ViewRequests
from trio_mcp.jsonrpc.events import Hold
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Request,
    Response,
    SessionMessage,
    TransportFailure,
)
from trio_mcp.link import Link
from trio_mcp.session.handlers import RequestContext
from trio_mcp.session.limits import CallOptions, HandlerOptions, SessionOptions
from trio_mcp.session.session import BaseSession, LinkLostError
from trio_mcp.types.error_codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, OVERLOADED

__all__ = ["ViewSession"]

CLOSE_GRACE = 1.0


class ViewSession(BaseSession):
    """A session with a view. It responds to ``ui/initialize`` and ``ping`` itself, and sends nothing before the view
    has sent ``ui/notifications/initialized``.

    Args:
        link: Leads to the view.
        requests: Handles what the view asks for.
        hello: Returns the result of ``ui/initialize``, apart from the revision.
        limits: The limits of the view.

    Attributes:
        initialized: Set when the view has confirmed its initialization.
        sandbox_ready: Set when a sandbox proxy on the link is ready.
        leaving: Set when the view has asked to be torn down.
        told: Set when the view knows how the call of the tool ended.
        context: The context that the view knows.
        modes: The display modes that it supports; None if it has not said.
    """

    max_faults = 100

    def __init__(self, link: Link, requests: ViewRequests, hello: Mapping[str, Any], limits: AppLimits) -> None:
        options = SessionOptions(
            calls=CallOptions(timeout=limits.teardown_wait),
            handlers=HandlerOptions(
                max_running_requests=limits.max_calls,
                max_queued_requests=limits.max_calls,
                max_pending_notifications=limits.burst,
                max_incoming_bytes=limits.max_message,
            ),
            close_grace=min(CLOSE_GRACE, limits.teardown_wait),
        )
        super().__init__(link.read, link.write, options=options)
        self.initialized, self.sandbox_ready = trio.Event(), trio.Event()
        self.leaving, self.told = trio.Event(), trio.Event()
        self.context: dict[str, Any] = {}
        self.modes: tuple[str, ...] | None = None
        self._requests = requests
        self._hello = hello
        self._limits = limits
        self._budget = Budget(limits.rate, limits.burst)
        self._greeted = False
        self._torn_down = False

    # --- what arrives --------------------------------------------------------------------------------------------

    def feed(self, message: Incoming, metadata: Mapping[str, Any] | None = None, hold: Hold | None = None) -> None:
        if type(message) is not TransportFailure:
            verdict = self._budget.spend(trio.current_time())
            if verdict == "end":
                lost = TransportError(f"the view has sent more than {self._limits.rate:g} messages a second")
                logger.warning("ending the view: %s", lost)
                raise LinkLostError(lost)
            # A response is taken, so that a view that has sent too much can still be torn down properly.
            if verdict == "refuse" and not isinstance(message, (Response, ErrorResponse)):
                self._refuse(message, OVERLOADED, f"too many messages: {self._limits.rate:g} a second is the limit")
                return
            if type(message) is Batch:
                message = Malformed(INVALID_REQUEST, "the messages of a view must not be batches")
            elif type(message) is Request or type(message) is Notification:
                problem = problem_with(message.params, message.size, self._limits.max_message)
                if problem is not None:
                    self._refuse(message, INVALID_REQUEST, problem)
                    return
        super().feed(message, metadata, hold)

    def _refuse(self, message: Incoming, code: int, text: str) -> None:
        """Respond to a request that goes no further; drop any other message."""
        if type(message) is Request:
            self._reply(SessionMessage(ErrorResponse(message.id, ErrorData(code, text))))

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        method = context.method
        if method == "ping":
            return {}
        if method == "ui/initialize":
            return self._initialize(context.params)
        if method not in self._requests.methods:
            # Nothing that begins with ``ui/`` goes to the server, nor anything that the specification does not list.
            raise McpError(METHOD_NOT_FOUND, f"a view can't request {method[:100]!r}")
        if not self._greeted:
            raise McpError(INVALID_REQUEST, f"{method!r} came before ui/initialize")
        return None

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        capabilities = params.get("appCapabilities")
        if type(params.get("protocolVersion")) is not str or type(params.get("appInfo")) is not dict:
            raise McpError(INVALID_PARAMS, "ui/initialize needs a protocolVersion and appInfo")
        if type(capabilities) is not dict:
            raise McpError(INVALID_PARAMS, "ui/initialize needs appCapabilities, which must be an object")
        modes = capabilities.get("availableDisplayModes")
        self.modes = tuple(each for each in modes if each in MODES) if type(modes) is list else None
        # A page that is loaded again initializes again. It gets the context of now, but no second input.
        self._greeted = True
        hello = {"protocolVersion": REVISION, **self._hello, "hostContext": self._requests.host_context()}
        self.context = hello["hostContext"]
        return hello

    def _note(self, notification: Notification) -> None:
        if notification.method == "ui/notifications/initialized" and self._greeted:
            self.initialized.set()
        elif notification.method == "ui/notifications/sandbox-proxy-ready" and not self._greeted:
            self.sandbox_ready.set()

    async def received_request(self, context: RequestContext) -> Any:
        return await self._requests.handle(context.method, context.params, self.modes)

    async def received_notification(self, notification: Notification) -> None:
        if not self._greeted:
            return
        if notification.method == "ui/notifications/request-teardown":
            if await self._requests.may_leave():
                self.leaving.set()
            return
        handler = self._requests.notices.get(notification.method)
        if handler is not None:
            await handler(notification.params or {})

    async def received_error(self, error: RemoteProtocolError) -> None:
        logger.info("a view is at fault: %s", error)

    # --- what is sent --------------------------------------------------------------------------------------------

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification to a view that is initialized.

        Raises:
            TransportError: If the view has gone.
        """
        # "The Host MUST NOT send any request or notification to the View before it receives an `initialized`
        # notification" (Sandbox proxy).
        await self.initialized.wait()
        await self.send_notification(method, params)

    async def tear_down(self, reason: str, ended: bool) -> None:
        """Ask the view to stop, wait for its response, and close the session; all within the time limit.

        Args:
            reason: The reason, for the view.
            ended: Whether the call of the tool has ended; the view is first told how.
        """
        if self._torn_down:
            await self.wait_closed()
            return
        self._torn_down = True
        async with closing(self.aclose):
            with trio.move_on_after(self._limits.teardown_wait):
                if self.initialized.is_set() and not self.closed:
                    if ended:
                        await self.told.wait()
                    with contextlib.suppress(TrioMcpError):
                        await self.send_request("ui/resource-teardown", {"reason": reason})
