"""Whose child a span is: one trace from client to server, to the next server, and to another process."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import SpanKind

from tests.injection import cancel_everywhere
from tests.otel.support import Recorded, make_server, observed, own
from tests.server.harness import both_eras, client_of
from trio_mcp import Client, Server, TraceContext
from trio_mcp.otel import ClientTelemetry, ServerTelemetry


@both_eras
async def test_the_clients_parent_is_the_current_span(recorded: Recorded, revision: str) -> None:
    tracer = recorded.tracers.get_tracer("test")
    async with observed(recorded, revision) as client:
        with tracer.start_as_current_span("ours") as outer:
            await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"})
    span = recorded.span(SpanKind.CLIENT)
    assert span.parent == outer.get_span_context()
    assert recorded.span(SpanKind.SERVER).context.trace_id == outer.get_span_context().trace_id


@both_eras
@pytest.mark.parametrize("explicit", [True, False])
async def test_without_a_current_span_it_is_the_trace_that_is_passed_on(
    recorded: Recorded, revision: str, explicit: bool
) -> None:
    handed = TraceContext(f"00-{'1' * 32}-{'2' * 16}-01")
    async with observed(recorded, revision) as client:
        if explicit:
            await client.call_tool("add", {"a": 1, "b": 2}, meta=handed.to_meta())
        else:
            with handed.use():
                await client.call_tool("add", {"a": 1, "b": 2})
    span = recorded.span(SpanKind.CLIENT)
    assert span.parent is not None
    assert (f"{span.parent.trace_id:x}", f"{span.parent.span_id:x}") == ("1" * 32, "2" * 16)
    assert recorded.span(SpanKind.SERVER).parent.span_id == span.context.span_id  # type: ignore[union-attr]


@both_eras
async def test_a_span_around_a_servers_start_is_linked_and_no_parent(recorded: Recorded, revision: str) -> None:
    """The context in `_meta` SHOULD be the parent, the ambient one SHOULD be linked."""
    with recorded.tracers.get_tracer("test").start_as_current_span("start") as start:
        async with client_of(make_server(middleware=[ServerTelemetry(**recorded.providers)]), revision) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    span = recorded.span(SpanKind.SERVER)
    assert span.parent is None
    assert [link.context for link in span.links] == [start.get_span_context()]


@both_eras
async def test_baggage_arrives_in_the_handler(recorded: Recorded, revision: str) -> None:
    server = make_server(middleware=[ServerTelemetry(**recorded.providers)])
    seen: list[object] = []

    @server.tool
    def look() -> None:
        seen.append(baggage.get_baggage("user"))

    async with client_of(server, revision, middleware=[ClientTelemetry(**recorded.providers)]) as client:
        token = context.attach(baggage.set_baggage("user", "alice"))
        await client.call_tool("look")
        context.detach(token)
        await client.call_tool("look")
    assert seen == ["alice", None]


@both_eras
@pytest.mark.parametrize("inner_client_records", [True, False])
async def test_a_chain_of_servers_is_one_trace(recorded: Recorded, revision: str, inner_client_records: bool) -> None:
    """Whether or not the client in between records: the server's span is passed on anyway."""
    inner = make_server(middleware=[ServerTelemetry(**recorded.providers)])
    outer = Server("outer", middleware=[ServerTelemetry(**recorded.providers)])
    middleware = [ClientTelemetry(**recorded.providers)] if inner_client_records else []

    @outer.tool
    async def relay() -> None:
        async with Client(inner, mode=revision, middleware=middleware) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    async with client_of(outer, revision, middleware=[ClientTelemetry(**recorded.providers)]) as client:
        await client.call_tool("relay")
    by_id = {span.context.span_id: span for span in recorded.spans()}
    (first,) = [span for span in recorded.spans() if span.parent is None]
    (last,) = [span for span in recorded.spans(SpanKind.SERVER) if span.name == "tools/call add"]
    path = [last]
    while (parent := path[-1].parent) is not None:
        path.append(by_id[parent.span_id])
    between = [SpanKind.CLIENT] if inner_client_records else []
    kinds = [SpanKind.SERVER, *between, SpanKind.SERVER, SpanKind.CLIENT]
    assert [span.kind for span in path] == kinds
    assert path[-1] is first
    assert {span.context.trace_id for span in path} == {first.context.trace_id}


async def test_concurrent_calls_keep_their_spans_apart(recorded: Recorded) -> None:
    async with observed(recorded, "2026-07-28") as client, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(client.call_tool, "add", {"a": number, "b": 1})
    ours = {span.context.span_id: span for span in recorded.spans(SpanKind.CLIENT)}
    assert len(ours) == 20
    for theirs in recorded.spans(SpanKind.SERVER):
        assert theirs.parent is not None
        mine = ours.pop(theirs.parent.span_id)
        assert own(mine)["jsonrpc.request.id"] == own(theirs)["jsonrpc.request.id"]
    assert not ours


async def test_a_retry_is_one_span_with_the_last_id(recorded: Recorded) -> None:
    async def twice(call: Any, call_next: Any) -> Any:
        await call_next()
        return await call_next()

    middleware = [ClientTelemetry(**recorded.providers), twice]
    async with client_of(make_server(), "2026-07-28", middleware=middleware) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    assert own(recorded.span(SpanKind.CLIENT))["jsonrpc.request.id"] == "3"


class Counting(SpanProcessor):
    """Return how many spans are open."""

    open = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.open += 1

    def on_end(self, span: ReadableSpan) -> None:
        self.open -= 1


async def test_wherever_a_call_is_cancelled_every_span_ends_and_none_stays_current(recorded: Recorded) -> None:
    counting = Counting()
    recorded.tracers.add_span_processor(counting)
    async with observed(recorded, "2026-07-28") as client:

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked()
            assert counting.open == 0
            assert not trace.get_current_span().get_span_context().is_valid
            assert TraceContext.current() is None

        assert await cancel_everywhere(lambda: client.call_tool("add", {"a": 1, "b": 2}), check) > 1
    assert "cancelled" in {own(span).get("error.type") for span in recorded.spans()}
