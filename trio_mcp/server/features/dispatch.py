"""Takes each request from the session through the middleware to its handler, and the result back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from trio_mcp.errors import McpError
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.feature import (
    NO_SCOPES,
    Feature,
    FeatureSettings,
    Handler,
    Needs,
    RegisteredMethod,
)
from trio_mcp.server.log_messages import CURRENT
from trio_mcp.session.handlers import incoming_of
from trio_mcp.session.middleware import Surround, surround
from trio_mcp.trace_context import CURRENT_TRACE, TraceContext
from trio_mcp.types.error_codes import METHOD_NOT_FOUND
from trio_mcp.types.meta import BAGGAGE, TRACEPARENT

__all__ = ["Dispatch"]


class Dispatch:
    """Finds the handler for each request to a server, and calls it through the middleware.

    Args:
        settings: The settings of the server.

    Attributes:
        methods: The handler of each method.
        needs: For each method whose requests may need scopes, the function that returns the scopes of a request.
    """

    def __init__(self, settings: FeatureSettings) -> None:
        self.methods: dict[str, Handler] = {}
        self.needs: dict[str, Needs] = {}
        self._settings = settings

    def add(self, feature: Feature) -> None:
        """Add a feature's handlers, and its functions for the scopes that requests need."""
        self.needs.update(feature.needs)
        self.methods.update(feature.methods)

    def added(self, own: RegisteredMethod, enabled: bool = True) -> None:
        """Add the handler of a user-defined method; called by the registry that the dispatch follows."""
        self.methods[own.name] = own.handle

    def removed(self, own: RegisteredMethod) -> None:
        """Remove the handler of a user-defined method."""
        del self.methods[own.name]

    def switched(self, own: RegisteredMethod, enabled: bool) -> None:
        """Do nothing: user-defined methods are never disabled."""

    def needed_scopes(self, method: str, params: Mapping[str, Any]) -> frozenset[str]:
        """Return the scopes that a request needs."""
        needs = self.needs.get(method) if self._settings.scoped else None
        return NO_SCOPES if needs is None else needs(params)

    async def serve(self, context: ServedContext[Any]) -> dict[str, Any]:
        """Return the result of a request; called in the request's task.

        Raises:
            McpError: If the method is unknown (-32601), or the handler refuses the request.
        """
        handler = self.methods.get(context.method)
        middleware: Sequence[Surround] = self._settings.middleware
        if handler is None:
            # Only instances of `Middleware` see requests without a handler.
            handler, middleware = _ready, self._settings.layers.handle_request
            if not middleware:
                return await handler(context)
        elif middleware:
            middleware = self._settings.around(context.method)
        context.settings = self._settings
        meta = context.meta
        # The task may have inherited the trace in which the server was started: the request's trace replaces it. If
        # neither exists, nothing has to be done, which saves ordinary requests the parsing.
        if TRACEPARENT in meta or BAGGAGE in meta or CURRENT_TRACE.get() is not None:
            CURRENT_TRACE.set(TraceContext.from_meta(meta))
        # The HTTP transport has checked the scopes already; on a WebSocket this is the first check. Middleware never
        # sees a request that is refused here.
        if self._settings.scoped and context.connection.permit is not None:
            self._settings.check_scopes(self.needed_scopes(context.method, context.params), context)
        # The function given as `Server(principal=…)` runs once for each request and in the event loop, before anything
        # sees the context. If this function fails, so does the request, which must not pass as one of an unknown
        # caller.
        metadata = incoming_of(context).metadata
        if metadata is not None and "principal" in metadata:
            context.principal = metadata["principal"]
        if self._settings.principal is not None:
            from trio_mcp.principal import as_principal  # deferred: few servers have principals

            context.principal = as_principal(self._settings.principal(context), "what Server(principal=…) returns")
        # CURRENT is never reset, as the task serves only this request and ends with it.
        CURRENT.set((context, context.connection.trio_token))
        # A partial is used, because with a lambda, Python would allocate cells for its variables on every call.
        try:
            return await (surround(middleware, context, partial(handler, context)) if middleware else handler(context))
        finally:
            context.failure = None  # its traceback refers to the context, and a cycle would stay until gc runs

    async def inside(self, middleware: object, context: ServedContext[Any]) -> dict[str, Any]:
        """Call a request's handler through the middleware that is inside the given one; through all if None."""
        chain: tuple[Any, ...] = self._settings.around(context.method)
        rest = chain if middleware is None else chain[chain.index(middleware) + 1 :]
        return await surround(rest, context, partial(self.methods[context.method], context))

    async def through(self, context: ServedContext[Any]) -> dict[str, Any]:
        """Call a request's handler through the middleware; a mounted server's requests enter here."""
        layers = self._settings.around(context.method)
        return await surround(layers, context, partial(self.methods[context.method], context))


async def _ready(context: ServedContext[Any]) -> dict[str, Any]:
    """Return the result that a request without a handler already has, such as a ping.

    Raises:
        McpError: If it has none, because its method is unknown (-32601).
    """
    # The attribute is unset for most requests, because setting it would cost each of them a little.
    result: dict[str, Any] | None = getattr(context, "ready", None)
    if result is None:
        raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}")
    return result
