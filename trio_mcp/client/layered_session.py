"""A client's session with middleware around the server's requests and around the requests of the handshake."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import trio

from trio_mcp.convert import as_object
from trio_mcp.jsonrpc.events import IncomingRequest, OutgoingRequest
from trio_mcp.jsonrpc.messages import Request, RequestId
from trio_mcp.session.calls import Limits
from trio_mcp.session.client import ClientSession
from trio_mcp.session.handlers import RequestContext
from trio_mcp.session.middleware import Layers, OutgoingCall, surround
from trio_mcp.types import meta

__all__ = ["LayeredSession", "question_context"]


class LayeredSession(ClientSession):
    """A session whose messages pass through instances of `Middleware`.

    Args:
        layers: The methods that the middleware overrides.
        given: The positional arguments of `ClientSession`.
        named: The keyword arguments of `ClientSession`.
    """

    def __init__(self, layers: Layers, *given: Any, **named: Any) -> None:
        self._layers = layers
        super().__init__(*given, **named)

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        # Middleware may wait, so the request's own task does everything.
        return None if self._layers.handle_request else super().intercept(context)

    async def received_request(self, context: RequestContext) -> dict[str, Any]:
        async def last() -> dict[str, Any]:
            result = super(LayeredSession, self).intercept(context)
            if result is None:
                result = await super(LayeredSession, self).received_request(context)
            return {} if result is None else as_object(result, "a handler's result")

        return await surround(self._layers.handle_request, context, last)

    async def _call(
        self,
        method: str,
        params: dict[str, Any] | None,
        limits: Limits,
        *,
        related: RequestId | None = None,
        opened: Callable[[OutgoingRequest], None] | None = None,
    ) -> dict[str, Any]:
        # Requests on an open session have already passed through the middleware, among its plain functions.
        if self._server is not None or not self._layers.send_request:
            return await super()._call(method, params, limits, related=related, opened=opened)
        given = copy.deepcopy(params or {})  # parts belong to the session, and a middleware may modify the parameters
        revision = given.get("protocolVersion") or given["_meta"][meta.PROTOCOL_VERSION]
        call = OutgoingCall(method, given, revision)

        async def send() -> dict[str, Any]:
            call.request_id = self.next_request_id
            return await super(LayeredSession, self)._call(call.method, call.params, limits)

        return await surround(self._layers.send_request, call, send)


def question_context(session: ClientSession, key: str, method: str, params: Any) -> RequestContext:
    """Return the context of a question that came in a result; nothing can be sent for it, as it is not a request."""
    plain = params if type(params) is dict else None
    incoming = IncomingRequest(Request(key, method, plain), answered=True, scope=trio.CancelScope())
    return session.make_context(incoming)
