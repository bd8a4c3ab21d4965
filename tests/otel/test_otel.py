"""Spans and durations, by the semantic conventions for MCP (gen-ai/mcp), and what no peer can make of them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.injection import cancel_everywhere
from tests.server.harness import both_eras, client_of
from trio_mcp import Client, Context, McpError, RequestTimeout, Server, ToolError, TraceContext, otel
from trio_mcp.otel import BUCKETS, ClientTelemetry, ServerTelemetry


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


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider(metric_readers=[reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    yield Recorded(tracers, meters, exporter, reader)
    tracers.shutdown()
    meters.shutdown()


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


@both_eras
async def test_a_tool_call_is_one_trace_of_a_client_and_a_server_span(recorded: Recorded, revision: str) -> None:
    async with observed(recorded, revision) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    ours, theirs = recorded.span(SpanKind.CLIENT), recorded.span(SpanKind.SERVER)
    assert ours.name == theirs.name == "tools/call add"
    assert ours.parent is None
    assert theirs.parent is not None
    assert theirs.parent.is_remote
    assert theirs.parent.span_id == ours.context.span_id
    assert theirs.context.trace_id == ours.context.trace_id
    request_id = own(ours)["jsonrpc.request.id"]
    assert (
        own(ours)
        == own(theirs)
        == {
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": revision,
            "gen_ai.tool.name": "add",
            "gen_ai.operation.name": "execute_tool",
            "jsonrpc.request.id": request_id,
        }
    )
    assert request_id == "2"  # after the request that opened the connection
    assert ours.status.status_code == theirs.status.status_code == StatusCode.UNSET
    assert not ours.events
    assert not theirs.events


@both_eras
@pytest.mark.parametrize(
    ("ask", "name", "attributes"),
    [
        (lambda c: c.get_prompt("greet", {"name": "x"}), "prompts/get greet", {"gen_ai.prompt.name": "greet"}),
        (lambda c: c.read_resource("files://a/b"), "resources/read", {"mcp.resource.uri": "files://a/b"}),
        (lambda c: c.list_prompts(), "prompts/list", {}),
    ],
    ids=["prompt", "resource", "list"],
)
async def test_a_span_is_named_after_what_has_few_values(
    recorded: Recorded, revision: str, ask: Any, name: str, attributes: dict[str, str]
) -> None:
    """A URI SHOULD NOT be in the span's name, to keep their number low."""
    async with observed(recorded, revision) as client:
        await ask(client)
    common = {"mcp.method.name": name.split()[0], "mcp.protocol.version": revision, "jsonrpc.request.id": "2"}
    for span in recorded.spans():
        assert span.name == name
        assert own(span) == {**common, **attributes}
    assert len(recorded.spans()) == 2


@both_eras
@pytest.mark.parametrize(
    ("tool", "kind", "code", "description"),
    [("fail", "tool_error", None, None), ("no-such-tool", "-32602", "-32602", "unknown tool: 'no-such-tool'")],
    ids=["a failed tool", "an error answer"],
)
async def test_a_failure_is_the_same_on_both_sides(
    recorded: Recorded, revision: str, tool: str, kind: str, code: str | None, description: str | None
) -> None:
    """error.type SHOULD be tool_error or the code, the span's status ERROR, its description match the message."""
    async with observed(recorded, revision) as client:
        with contextlib.suppress(McpError):
            assert (await client.call_tool(tool)).is_error
    assert len(recorded.spans()) == 2
    for span in recorded.spans():
        assert (own(span)["error.type"], own(span).get("rpc.response.status_code")) == (kind, code)
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, description)
        assert "secret" not in span.to_json(), "the text of a tool's error is not recorded"


@both_eras
async def test_an_unexpected_exception_is_the_internal_error_that_the_client_gets(
    recorded: Recorded, revision: str
) -> None:
    async def broken(context: Context, call_next: Any) -> Any:
        raise ZeroDivisionError("secret")

    server = make_server(middleware=[ServerTelemetry(**recorded.providers), broken])
    async with client_of(server, revision) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("add", {"a": 1, "b": 2})
    assert caught.value.code == -32603
    span = recorded.span(SpanKind.SERVER)
    assert own(span)["error.type"] == own(span)["rpc.response.status_code"] == "-32603"
    assert "secret" not in span.to_json()


@both_eras
async def test_a_middleware_that_returns_no_result_is_told_so_all_the_same(
    recorded: Recorded, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def forgetful(context: Context, call_next: Any) -> Any:
        return None

    server = make_server(middleware=[ServerTelemetry(**recorded.providers), forgetful])
    async with client_of(server, revision) as client:
        with pytest.raises(McpError):
            await client.call_tool("add", {"a": 1, "b": 2})
    assert "a middleware must return the result" in caplog.text


@both_eras
async def test_a_cancelled_call_ends_both_spans_as_cancelled(
    recorded: Recorded, revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with observed(recorded, revision) as client:
        with trio.move_on_after(3) as scope:
            await client.call_tool("sleep", {"seconds": 1000})
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
    assert len(recorded.spans()) == 2
    for span in recorded.spans():
        assert own(span)["error.type"] == "cancelled"
        assert span.status.status_code == StatusCode.ERROR
        assert span.status.description == "the request was cancelled"
    for metric in ("mcp.client.operation.duration", "mcp.server.operation.duration"):
        (point,) = recorded.measurements(metric)
        assert (point.attributes["error.type"], point.sum) == ("cancelled", 3)


@both_eras
async def test_a_call_without_an_answer_in_time_is_a_timeout(
    recorded: Recorded, revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with observed(recorded, revision) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("sleep", {"seconds": 20}, timeout=5)
    span = recorded.span(SpanKind.CLIENT)
    assert own(span)["error.type"] == "timeout"
    assert "rpc.response.status_code" not in own(span)


async def test_a_call_on_a_lost_connection_is_the_class_of_the_error(recorded: Recorded) -> None:
    async with observed(recorded, "2026-07-28") as client, trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(Exception, match="closed"):
                await client.call_tool("sleep", {"seconds": 1000})

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        await client.aclose()
    assert own(recorded.span(SpanKind.CLIENT))["error.type"] == "trio_mcp.errors.SessionClosed"


@both_eras
@pytest.mark.parametrize("params", [{}, {"name": 5}, {"name": None, "_meta": {"traceparent": 5, "baggage": "\0"}}])
async def test_odd_parameters_are_recorded_as_they_can_be(
    recorded: Recorded, revision: str, params: dict[str, Any]
) -> None:
    async with observed(recorded, revision) as client:
        with pytest.raises(McpError, match="needs a name"):
            await client.request("tools/call", params)
    assert {span.name for span in recorded.spans()} == {"tools/call"}
    assert len(recorded.spans()) == 2


async def test_no_arguments_and_no_results_are_recorded(recorded: Recorded) -> None:
    async with observed(recorded, "2026-07-28") as client:
        await client.call_tool("add", {"a": 271828, "b": 314159})
        await client.get_prompt("greet", {"name": "Ottokar"})
    everything = "".join(span.to_json() for span in recorded.spans())
    for value in ("271828", "314159", str(271828 + 314159), "Ottokar"):
        assert value not in everything


# --- whose child a span is --------------------------------------------------------------------------------------------


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


# --- durations; what is needed, and what importing it costs -----------------------------------------------------------


@both_eras
async def test_durations_are_seconds_in_the_buckets_of_the_conventions(
    recorded: Recorded, revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with observed(recorded, revision) as client:
        await client.call_tool("sleep", {"seconds": 3})
        await client.call_tool("sleep", {"seconds": 20})
    for metric in ("mcp.client.operation.duration", "mcp.server.operation.duration"):
        (point,) = recorded.measurements(metric)
        assert dict(point.attributes) == {
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": revision,
            "gen_ai.tool.name": "sleep",
            "gen_ai.operation.name": "execute_tool",
        }
        assert point.explicit_bounds == BUCKETS
        assert (point.count, point.min, point.max) == (2, 3, 20)


async def test_a_uri_is_in_no_metric(recorded: Recorded) -> None:
    async with observed(recorded, "2026-07-28") as client:
        for number in range(3):
            await client.read_resource(f"files://{number}")
    (point,) = recorded.measurements("mcp.server.operation.duration")
    assert point.count == 3
    assert dict(point.attributes) == {"mcp.method.name": "resources/read", "mcp.protocol.version": "2026-07-28"}


async def test_attributes_of_ones_own_are_on_spans_and_measurements(recorded: Recorded) -> None:
    telemetry = ServerTelemetry(**recorded.providers, attributes={"network.transport": "pipe"})
    async with client_of(make_server(middleware=[telemetry])) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    assert own(recorded.span(SpanKind.SERVER))["network.transport"] == "pipe"
    (point,) = recorded.measurements("mcp.server.operation.duration")
    assert point.attributes["network.transport"] == "pipe"


@both_eras
async def test_without_an_sdk_everything_works_and_a_trace_is_passed_on(revision: str) -> None:
    server = make_server(middleware=[ServerTelemetry()])
    seen: list[TraceContext | None] = []

    @server.tool
    async def look(ctx: Context) -> None:
        seen.append(ctx.trace_context)
        assert TraceContext.current() == ctx.trace_context

    handed = TraceContext(f"00-{'1' * 32}-{'2' * 16}-01", "a=1", "user=alice")
    async with client_of(server, revision, middleware=[ClientTelemetry()]) as client:
        with handed.use():
            await client.call_tool("look")
        await client.call_tool("look")
    assert seen == [handed, None]


LOADING = {
    "the package does not load it": """
        from trio_mcp import Client, Server, TraceContext
        assert not any(name.partition(".")[0] == "opentelemetry" for name in sys.modules)
    """,
    "it loads neither a client nor a server": """
        import trio_mcp.otel
        assert "trio_mcp.client" not in sys.modules and "trio_mcp.server" not in sys.modules
    """,
    "without the extra the error says what to install": """
        sys.modules["opentelemetry"] = None
        try:
            import trio_mcp.otel
        except ImportError as exc:
            assert "pip install 'trio-mcp[otel]'" in str(exc)
        else:
            raise AssertionError
    """,
}


@pytest.mark.parametrize("code", LOADING.values(), ids=LOADING)
def test_what_is_loaded(code: str) -> None:
    subprocess.run([sys.executable, "-c", "import sys\n" + textwrap.dedent(code)], check=True)


@both_eras
@pytest.mark.parametrize("by", ["the server", "a middleware"])
async def test_names_that_are_refused_make_no_series(recorded: Recorded, revision: str, by: str) -> None:
    """A client can invent any number of names; a middleware can refuse with any code."""

    async def refuse(context: Context, call_next: Any) -> Any:
        if by == "the server" or context.params.get("name") in ("add", "greet"):
            return await call_next()
        raise McpError(-32001, "not allowed")

    server = make_server(middleware=[ServerTelemetry(**recorded.providers), refuse])
    async with client_of(server, revision, middleware=[ClientTelemetry(**recorded.providers)]) as client:
        for number in range(5):
            with pytest.raises(McpError):
                await client.call_tool(f"invented-{number}" + "x" * 1000)
            with pytest.raises(McpError):
                await client.get_prompt(f"invented-{number}")
        await client.call_tool("add", {"a": 1, "b": 2})
        await client.get_prompt("greet", {"name": "x"})
        with pytest.raises(McpError):
            await client.get_prompt("greet", {})
    for side in ("server", "client"):
        points = recorded.measurements(f"mcp.{side}.operation.duration")
        seen = [dict(point.attributes) for point in points]
        names = [each.get("gen_ai.tool.name") or each.get("gen_ai.prompt.name") for each in seen]
        assert sorted(map(str, names)) == ["None", "None", "add", "greet", "greet"]
        assert sorted(point.count for point in points) == [1, 1, 1, 5, 5]
    assert {span.name for span in recorded.spans()} == {
        *("tools/call", "prompts/get"),
        *("tools/call add", "prompts/get greet"),
    }
    assert max(len(str(own(span).get("gen_ai.tool.name"))) for span in recorded.spans()) == 200


@both_eras
async def test_there_are_only_so_many_names_and_codes(
    recorded: Recorded, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may have tools without end, and answer with any number; what the specifications name is told apart."""
    monkeypatch.setattr(otel, "MAX_NAMES", 3)
    monkeypatch.setattr(otel, "MAX_CODES", 2)

    async def answer(context: Context, call_next: Any) -> Any:
        if context.method != "tools/call":
            return await call_next()
        if context.params["name"] == "code":
            raise McpError(context.params["arguments"]["code"], "no")
        return {"content": []}

    server = make_server(middleware=[answer])
    async with client_of(server, revision, middleware=[ClientTelemetry(**recorded.providers)]) as client:
        for number in range(6):
            await client.call_tool(f"tool-{number}")
        for code in (1, 2, 3, 4, 1, -32000, -32768):
            with pytest.raises(McpError):
                await client.call_tool("code", {"code": code})
    points = [dict(point.attributes) for point in recorded.measurements("mcp.client.operation.duration")]
    assert {each.get("gen_ai.tool.name") for each in points} == {"tool-0", "tool-1", "tool-2", None}
    assert {each.get("error.type") for each in points} == {None, "1", "2", "_OTHER", "-32000", "-32768"}
    assert {each.get("rpc.response.status_code") for each in points} == {None, "1", "2", "-32000", "-32768"}
    assert len(points) == 9
    assert {own(span).get("rpc.response.status_code") for span in recorded.spans()} >= {"3", "4"}
