"""Durations, by the semantic conventions for MCP (gen-ai/mcp); what is needed, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
import trio
import trio.testing
from opentelemetry.trace import SpanKind

from tests.otel.support import Recorded, make_server, observed, own
from tests.server.harness import both_eras, client_of
from trio_mcp import Context, McpError, TraceContext, otel
from trio_mcp.otel import BUCKETS, ClientTelemetry, ServerTelemetry


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
