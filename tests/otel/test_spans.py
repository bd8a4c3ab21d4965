"""What a span says, by the semantic conventions for MCP (gen-ai/mcp), and what no peer can make of it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio
import trio.testing
from opentelemetry.trace import SpanKind, StatusCode

from tests.otel.support import Recorded, make_server, observed, own
from tests.server.harness import both_eras, client_of
from trio_mcp import Context, McpError, RequestTimeout
from trio_mcp.otel import ServerTelemetry


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
