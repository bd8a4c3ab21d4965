"""Fixtures of the tests of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.otel.support import Recorded


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider(metric_readers=[reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    yield Recorded(tracers, meters, exporter, reader)
    tracers.shutdown()
    meters.shutdown()
