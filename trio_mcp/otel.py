"""OpenTelemetry as middleware: a span and a duration for every request. Needs ``pip install 'trio-mcp[otel]'``.

Names and values follow OpenTelemetry's semantic conventions for MCP (gen-ai/mcp, status: development) as of
November 2026.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

try:
    from opentelemetry import context as otel_context, metrics, trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.propagators.composite import CompositePropagator
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as exc:
    raise ImportError("trio_mcp.otel needs OpenTelemetry: pip install 'trio-mcp[otel]'") from exc

from trio_mcp import _attrs as attrs
from trio_mcp._version import __version__
from trio_mcp.errors import McpError, RequestTimeout
from trio_mcp.trace_context import TraceContext
from trio_mcp.types.error_codes import INTERNAL_ERROR

if TYPE_CHECKING:
    from opentelemetry.context.context import Context as OtelContext
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

    from trio_mcp.server.context import Context
    from trio_mcp.session.middleware import OutgoingCall

__all__ = ["ClientTelemetry", "ServerTelemetry"]

T = TypeVar("T")
CallNext = Callable[[], Awaitable[dict[str, Any]]]

# The bucket boundaries, in seconds, that the conventions advise for both metrics.
BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

# For each method whose subject has a name, the attribute for the name. There are few names, so the name goes into the
# span's name and into the metrics. There may be any number of URIs, so a URI goes into neither.
NAMES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
WITH_URI: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})

MAX_NAME = 200
MAX_URI = 2000
"""How many characters of a URI or a message are kept in an attribute (arbitrary): a peer may send any length."""

MAX_NAMES = 1000
"""How many names of tools and prompts are distinguished in metrics (arbitrary): each adds another time series, which is
kept forever."""

MAX_CODES = 100
"""How many error codes besides the standard ones are distinguished in metrics (arbitrary): each adds another time
series, which is kept forever."""

# A range excludes its end, so -32000 is the last reserved code.
STANDARD_CODES: Final = range(-32768, -31999)
"""The codes that JSON-RPC reserves (section 5.1)."""

# The propagators are fixed, because MCP reserves the W3C keys, whatever propagators are configured for other protocols.
W3C: Final = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


@attrs.frozen
class _Failure:
    """How a request failed: the kind of error, the code of the error response, and its message."""

    kind: str
    code: int | None = None
    message: str | None = None

    def attributes(self) -> dict[str, str]:
        """Return the attributes that record the failure, in spans and metrics."""
        found = {"error.type": self.kind}
        return found if self.code is None else {**found, "rpc.response.status_code": str(self.code)}


class _Telemetry:
    """The common part of `ClientTelemetry` and `ServerTelemetry`."""

    # Each subclass sets the kind of its spans, and the name and the description of its metric.
    _kind: trace.SpanKind
    _metric: str
    _description: str

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("trio_mcp", __version__, tracer_provider)
        # The boundaries are only advice: a view that the application has configured takes precedence.
        self._duration = metrics.get_meter("trio_mcp", __version__, meter_provider).create_histogram(
            self._metric, "s", self._description, explicit_bucket_boundaries_advisory=BUCKETS
        )
        self._attributes = dict(attributes or {})
        # A peer can invent any number of names and codes; metrics distinguish only those in these sets.
        self._names: set[str] = set()
        self._codes: set[int] = set()

    async def _observe(
        self,
        method: str,
        params: Mapping[str, Any],
        revision: str,
        parent: OtelContext,
        links: Sequence[trace.Link],
        proceed: Callable[[trace.Span], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Run the rest of a request inside a span, and measure its duration."""
        common = {**self._attributes, "mcp.method.name": method, "mcp.protocol.version": revision}
        about = _about(method, params)
        name = f"{method} {next(iter(about.values()))}" if method in NAMES and about else method
        failure: _Failure | None = None
        started = trio.current_time()
        with (
            _attached(parent),
            self._tracer.start_as_current_span(
                name,
                kind=self._kind,
                attributes={**common, **about},
                links=links,
                record_exception=False,  # the text of an exception may quote arguments
                set_status_on_exception=False,  # the status is set below, as a failed tool raises no exception
            ) as span,
        ):
            try:
                result = await proceed(span)
                # In the protocol, a result with `isError` is a success, but the conventions count it as a failure:
                # `tool_error`.
                if method == "tools/call" and type(result) is dict and result.get("isError") is True:
                    failure = _Failure("tool_error")
                return result
            except BaseException as exc:
                failure = self._failure(exc)
                raise
            finally:
                # The name in a failed request may be invented, whatever has refused the request and with whatever code.
                # Only a result proves that the tool or prompt exists, so only a result lets the name enter the metrics.
                served = failure is None or failure.kind == "tool_error"
                # A name that may not enter the metrics is removed from the span's name as well, because back ends group
                # spans by their names.
                if _told_apart(name, self._names, MAX_NAMES, entering=served):
                    # The URI is left out of the metrics, because there may be any number of URIs.
                    common |= {key: about[key] for key in about if key != "mcp.resource.uri"}
                else:
                    span.update_name(method)
                if failure is not None:
                    common |= self._counted(failure).attributes()
                    span.set_attributes(failure.attributes())
                    span.set_status(trace.StatusCode.ERROR, failure.message)
                self._duration.record(trio.current_time() - started, common)

    def _counted(self, failure: _Failure) -> _Failure:
        """Return the failure as metrics record it."""
        code = failure.code
        if code is None or code in STANDARD_CODES or _told_apart(code, self._codes, MAX_CODES, entering=True):
            return failure
        return _Failure("_OTHER")  # the conventions' value for errors without a low-cardinality name

    def _failure(self, exc: BaseException) -> _Failure:
        match exc:
            case McpError():
                return _Failure(str(exc.code), exc.code, exc.message[:MAX_URI])
            case RequestTimeout():
                return _Failure("timeout", None, "the request timed out")
            case trio.Cancelled():
                return _Failure("cancelled", None, "the request was cancelled")
            # In a handler that has a nursery, a cancellation may be raised as a group that contains nothing else.
            case BaseExceptionGroup() if exc.split(trio.Cancelled)[1] is None:
                return _Failure("cancelled", None, "the request was cancelled")
            case _:
                return self._unexpected(exc)

    def _unexpected(self, exc: BaseException) -> _Failure:
        kind = type(exc)
        return _Failure(
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )


class ServerTelemetry(_Telemetry):
    """Middleware for a `Server`: a span of kind SERVER for each request, and ``mcp.server.operation.duration``.

    ``Server("name", middleware=[ServerTelemetry(), …])``. The span's parent is the one named in the request, and the
    request's baggage is OpenTelemetry's current baggage in the handler. A span that is current where the server runs is
    only linked. Requests that the handler makes to other servers belong to the span. Neither arguments nor results are
    recorded.

    Args:
        tracer_provider: The provider of the tracer; the global one by default.
        meter_provider: The provider of the meter; the global one by default.
        attributes: Further attributes for every span and measurement, for example ``{"network.transport": "pipe"}``.
    """

    _kind = trace.SpanKind.SERVER
    _metric = "mcp.server.operation.duration"
    _description = (
        "MCP request or notification duration as observed on the receiver from the time it was received until the "
        "result or ack is sent."
    )

    def _unexpected(self, exc: BaseException) -> _Failure:
        if isinstance(exc, Exception):
            return _Failure(str(INTERNAL_ERROR), INTERNAL_ERROR)  # the client gets this error
        return super()._unexpected(exc)

    async def __call__(self, context: Context[Any], call_next: CallNext) -> dict[str, Any]:
        # The parent is extracted into an empty context, because the request determines the parent and the baggage, not
        # the place where the server happens to run. A span that is current there is only linked.
        parent = _within(context.trace_context, otel_context.Context())
        ambient = trace.get_current_span().get_span_context()
        links = [trace.Link(ambient)] if ambient.is_valid else []

        async def proceed(span: trace.Span) -> dict[str, Any]:
            # The id is shortened, because the client chooses it and it may have any length.
            span.set_attribute("jsonrpc.request.id", str(context.request_id)[:MAX_NAME])
            # The trace is set for this library too, so that calls that the handler makes through a `Client` without
            # telemetry carry this span.
            here = TraceContext.from_meta(_carried())
            with contextlib.nullcontext() if here is None else here.use():
                return await call_next()

        return await self._observe(context.method, context.params, context.protocol_version, parent, links, proceed)


class ClientTelemetry(_Telemetry):
    """Middleware for a `Client`: a span of kind CLIENT for each request, and ``mcp.client.operation.duration``.

    ``Client(target, middleware=[ClientTelemetry(), …])``. The request carries the span and OpenTelemetry's baggage in
    its ``_meta``, so that the server's span becomes a child of the client's. The parent of the client's span is
    OpenTelemetry's current span, or else `TraceContext.current`. With several ways to reach the server,
    ``trio_mcp.way`` names the one that carried the session at the end, and ``trio_mcp.way.switches`` counts the
    switches in between. Neither arguments nor results are recorded. The requests that open the connection are not
    observed.

    Args:
        tracer_provider: The provider of the tracer; the global one by default.
        meter_provider: The provider of the meter; the global one by default.
        attributes: Further attributes for every span and measurement, for example ``{"network.transport": "pipe"}``.
    """

    _kind = trace.SpanKind.CLIENT
    _metric = "mcp.client.operation.duration"
    _description = (
        "The duration of the MCP request or notification as observed on the sender from the time it was sent until the "
        "response or ack is received."
    )

    async def __call__(self, call: OutgoingCall, call_next: CallNext) -> dict[str, Any]:
        # If OpenTelemetry has no current span, a trace that the caller has put into `_meta` is the parent.
        given = call.params.get("_meta") or {}
        parent = otel_context.get_current()
        if not trace.get_current_span(parent).get_span_context().is_valid:
            parent = _within(TraceContext.from_meta(given) or TraceContext.current(), parent)

        async def proceed(span: trace.Span) -> dict[str, Any]:
            if carried := _carried():
                # New mappings are made, because `params` is a shallow copy: its `_meta` is still the caller's own
                # object, which may be used for other calls.
                call.params = {**call.params, "_meta": {**given, **carried}}
            try:
                return await call_next()
            finally:
                # The id is known only after the call: the session chooses the id when it sends the request, and a call
                # may fail before that.
                if call.request_id is not None:
                    span.set_attribute("jsonrpc.request.id", str(call.request_id))
                if call.way is not None:
                    span.set_attribute("trio_mcp.way", call.way[:MAX_URI])
                if call.switches:
                    span.set_attribute("trio_mcp.way.switches", call.switches)

        return await self._observe(call.method, call.params, call.protocol_version, parent, (), proceed)


def _within(remote: TraceContext | None, context: OtelContext) -> OtelContext:
    """Return a context with the span and the baggage sent by a remote side, if any, added to it."""
    return context if remote is None else W3C.extract(remote.to_meta(), context)


def _carried() -> dict[str, str]:
    """Return the current span and baggage as entries of ``_meta``."""
    carrier: dict[str, str] = {}
    W3C.inject(carrier)
    return carrier


@contextlib.contextmanager
def _attached(context: OtelContext) -> Iterator[None]:
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def _told_apart(value: T, known: set[T], most: int, *, entering: bool) -> bool:
    """Return whether a value is in a set; with ``entering``, the value is added first if the set has room."""
    if entering and len(known) < most:
        known.add(value)
    return value in known


def _about(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes for the subject of a request, the name first."""
    if method in NAMES and isinstance(name := params.get("name"), str):
        about = {NAMES[method]: name[:MAX_NAME]}
        return {**about, "gen_ai.operation.name": "execute_tool"} if method == "tools/call" else about
    if method in WITH_URI and isinstance(uri := params.get("uri"), str):
        return {"mcp.resource.uri": uri[:MAX_URI]}
    return {}
