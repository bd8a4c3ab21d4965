"""Middleware surrounds every request that has a handler: it sees and may replace parameters, results and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.server.harness import both_eras, client_of, server_with, text_of
from trio_mcp import Context, McpError, ToolError
from trio_mcp.extensions import ServerExtension
from trio_mcp.server.base_server import core_of
from trio_mcp.types.versions import LATEST

CallNext = Callable[[], Awaitable[dict[str, Any]]]


def double(x: int) -> int:
    return 2 * x


def fail() -> None:
    raise ToolError("failed")


@both_eras
async def test_the_first_middleware_is_outermost_and_sees_every_method_with_a_handler(revision: str) -> None:
    events: list[str] = []

    def recorder(name: str) -> Any:
        async def middleware(context: Context, call_next: CallNext) -> dict[str, Any]:
            events.append(f"{name} > {context.method}")
            result = await call_next()
            events.append(f"{name} < {sorted(result)[0]}")
            return result

        return middleware

    server = server_with(double, middleware=[recorder("a"), recorder("b")])
    async with client_of(server, revision) as client:
        await client.call_tool("double", {"x": 1})
        around = ["a > tools/call", "b > tools/call", "b < content", "a < content"]
        assert events[:4] == around
        events.clear()
        await client.list_tools()
        assert events[:2] == ["a > tools/list", "b > tools/list"]


@both_eras
async def test_a_middleware_may_replace_parameters_and_result_answer_by_itself_or_retry(revision: str) -> None:
    calls: list[str] = []

    async def middleware(context: Context, call_next: CallNext) -> dict[str, Any]:
        match context.params.get("name"):
            case "double":
                context.params = {**context.params, "arguments": {"x": 21}}
                result = await call_next()
                return {**result, "content": [*result["content"], {"type": "text", "text": "checked"}]}
            case "own":
                return {"content": [{"type": "text", "text": "own answer"}]}
            case "flaky":
                first = await call_next()
                assert first["isError"]
        return await call_next()

    def flaky() -> str:
        calls.append("call")
        if len(calls) == 1:
            raise ToolError("not yet")
        return "done"

    async with client_of(server_with(double, flaky, middleware=[middleware]), revision) as client:
        result = await client.call_tool("double", {"x": 1})
        assert result.data == 42
        assert [block.text for block in result.content] == ["42", "checked"]
        assert text_of(await client.call_tool("own")) == "own answer"
        assert (await client.call_tool("flaky")).data == "done"
    assert len(calls) == 2


@both_eras
async def test_exceptions_pass_through_middleware(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Exception] = []

    async def outer(context: Context, call_next: CallNext) -> dict[str, Any]:
        try:
            return await call_next()
        except Exception as exc:
            seen.append(exc)
            raise

    async def inner(context: Context, call_next: CallNext) -> dict[str, Any]:
        match context.params.get("name"):
            case "refused":
                raise McpError(-32001, "not for you", {"why": "x"})
            case "crash":
                raise ZeroDivisionError("a secret")
        return await call_next()

    async with client_of(server_with(fail, middleware=[outer, inner]), revision) as client:
        with pytest.raises(McpError, match="not for you") as caught:
            await client.call_tool("refused")
        assert caught.value.data == {"why": "x"}
        with pytest.raises(McpError) as caught:
            await client.call_tool("crash")
        assert caught.value.code == -32603
        assert "secret" not in str(caught.value)
        with pytest.raises(McpError, match="unknown tool"):
            await client.call_tool("unknown")
        assert (await client.call_tool("fail")).is_error  # a tool's failure is a result, no exception
    assert [type(exc) for exc in seen] == [McpError, ZeroDivisionError, McpError]
    assert len(caplog.records) == 1


async def test_a_middleware_that_forgets_to_return_the_result_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def middleware(context: Context, call_next: CallNext) -> dict[str, Any]:
        await call_next()
        return None  # type: ignore[return-value]

    for revision in ("2025-11-25", "2026-07-28"):
        async with client_of(server_with(double, middleware=[middleware]), revision) as client:
            with pytest.raises(McpError) as caught:
                await client.list_tools()
            assert caught.value.code == -32603
    assert "a middleware must return the result" in caplog.text


async def test_unknown_methods_bypass_middleware() -> None:
    seen: list[str] = []

    async def middleware(context: Context, call_next: CallNext) -> dict[str, Any]:
        seen.append(context.method)
        return await call_next()

    async with client_of(server_with(double, middleware=[middleware])) as client:
        with pytest.raises(McpError) as caught:
            await client.request("example.com/method")
    assert caught.value.code == -32601
    assert seen == []


async def test_the_middleware_of_an_extension_surrounds_only_the_methods_that_it_names() -> None:
    """The others cost what they cost without it: no list is copied for a middleware that never sees it."""
    seen: list[str] = []

    class Counting(ServerExtension):
        identifier = "com.example/counting"
        surrounds = ("tools/call",)

        async def middleware(self, context: Context, call_next: CallNext) -> dict[str, Any]:
            seen.append(context.method)
            return await call_next()

    server = server_with(double, extensions=[Counting()])
    async with client_of(server, LATEST) as client:
        await client.list_tools()
        await client.call_tool("double", {"x": 1})
        await client.call_tool("double", {"x": 1})
        assert seen == ["tools/call"] * 2
        settings = core_of(server).settings
        assert [len(settings.around(method)) for method in ("tools/call", "tools/list")] == [1, 0]
