"""The SDK of OpenTelemetry, and a server and client that use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import trio
import trio.testing
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from tests.server.harness import client_of
from trio_mcp import Server, ToolError
from trio_mcp.otel import ClientTelemetry, ServerTelemetry


@attrs.frozen
class Recorded:
    """The SDK of OpenTelemetry, and what it has recorded."""

    tracers: TracerProvider
    meters: MeterProvider
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    @property
    def providers(self) -> dict[str, Any]:
        return {"tracer_provider": self.tracers, "meter_provider": self.meters}

    def spans(self, kind: SpanKind | None = None) -> list[ReadableSpan]:
        """Return the spans that have ended, without the client's own check of the tool's schema."""
        ended = [span for span in self.exporter.get_finished_spans() if span.name != "tools/list"]
        return [span for span in ended if kind is None or span.kind == kind]

    def span(self, kind: SpanKind) -> ReadableSpan:
        (span,) = self.spans(kind)
        return span

    def measurements(self, metric: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        every = [] if data is None else [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        points = [point for each in every if each.name == metric for point in each.data.data_points]
        return [point for point in points if point.attributes["mcp.method.name"] != "tools/list"]


def make_server(**options: Any) -> Server:
    server = Server("s", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def fail() -> None:
        raise ToolError("secret")

    @server.tool
    async def sleep(seconds: float) -> None:
        await trio.sleep(seconds)

    @server.prompt
    async def greet(name: str) -> str:
        return f"Greet {name}."

    @server.resource("files://{+path}")
    async def file(path: str) -> str:
        return path

    return server


def observed(recorded: Recorded, revision: str, **options: Any) -> Any:
    """Return a client of a server; both record telemetry."""
    server = make_server(middleware=[ServerTelemetry(**recorded.providers)])
    return client_of(server, revision, middleware=[ClientTelemetry(**recorded.providers)], **options)


def own(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})
