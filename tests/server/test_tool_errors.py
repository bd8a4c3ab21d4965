"""Exceptions that a tool raises: what the model, the log and the session get of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.server.harness import both_eras, call, client_of, every_revision, server_with, text_of
from trio_mcp import Client, McpError, Server, ToolError, TransportError, memory_link_pair


def raising(exc: BaseException, *, sync: bool = False) -> Callable[[], Any]:
    if sync:

        def tool() -> int:
            raise exc

        return tool

    async def async_tool() -> int:
        raise exc

    return async_tool


sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@every_revision
@sync_and_async
async def test_a_tool_error_is_for_the_model(revision: str, sync: bool, caplog: pytest.LogCaptureFixture) -> None:
    """`server/tools`, Error Handling: a result with isError. It is not the server's fault, so nothing is logged."""
    result = await call(raising(ToolError("no seats left"), sync=sync), {}, revision)
    assert result.is_error
    assert text_of(result) == "no seats left"
    assert not caplog.records


@sync_and_async
async def test_a_tool_error_alone_in_groups_is_still_one(sync: bool) -> None:
    """A tool may have a nursery of its own."""
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [ToolError("no seats left")])])
    assert text_of(await call(raising(nested, sync=sync), {})) == "no seats left"


async def test_a_tool_error_from_a_nursery() -> None:
    async def tool() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(raising(ToolError("no seats left")))

    assert text_of(await call(tool, {})) == "no seats left"


@pytest.mark.parametrize(
    "exc",
    [
        ZeroDivisionError("a secret"),
        ExceptionGroup("two", [ToolError("a secret"), ToolError("another")]),
        trio.TooSlowError("a secret"),
        StopIteration("a secret"),
        trio.ClosedResourceError("a secret"),
        TimeoutError("a secret"),
        RuntimeError("a secret"),
    ],
    ids=lambda exc: type(exc).__name__,
)
@both_eras
@sync_and_async
async def test_any_other_exception_names_only_the_tool_and_is_logged_once(
    exc: Exception, revision: str, sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(server_with(raising(exc, sync=sync)), revision) as client:
        (tool,) = (await client.list_tools()).tools
        result = await client.call_tool(tool.name)
        assert result.is_error
        assert text_of(result) == f"the tool {tool.name!r} failed"
        await client.list_tools()  # the session lives on
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("trio_mcp", logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[2] is not None


async def test_expose_errors_shows_the_exception_in_the_log_too(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(server_with(raising(ZeroDivisionError("why")), expose_errors=True)) as client:
        assert text_of(await client.call_tool("async_tool")) == "the tool 'async_tool' failed: ZeroDivisionError: why"
    assert len(caplog.records) == 1


async def test_expose_errors_shows_why_a_value_is_invalid() -> None:
    def tool() -> int:
        return "three"  # type: ignore[return-value]

    async with client_of(server_with(tool, expose_errors=True)) as client:
        text = text_of(await client.call_tool("tool"))
    assert text.startswith("the tool 'tool' failed: the return value is not of the declared type:")


@both_eras
@sync_and_async
@pytest.mark.parametrize("grouped", [True, False])
async def test_an_mcp_error_is_the_answer(
    revision: str, sync: bool, grouped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    exc: Exception = McpError(-32001, "own code", {"a": 1})
    if grouped:
        exc = ExceptionGroup("group", [exc])
    async with client_of(server_with(raising(exc, sync=sync)), revision) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("tool" if sync else "async_tool")
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32001, "own code", {"a": 1})
    assert not caplog.records


async def test_cancel_scopes_inside_a_tool_work() -> None:
    async def timeout() -> str:
        with trio.move_on_after(0) as scope:
            await trio.sleep_forever()
        return f"gave up: {scope.cancelled_caught}"

    async def nursery() -> str:
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            inner.cancel_scope.cancel()
        return "done"

    async with client_of(server_with(timeout, nursery)) as client:
        assert (await client.call_tool("timeout")).data == "gave up: True"
        assert (await client.call_tool("nursery")).data == "done"


async def test_a_tool_that_gives_up_with_too_slow_error_is_a_failed_tool(caplog: pytest.LogCaptureFixture) -> None:
    async def tool() -> None:
        with trio.fail_after(0):
            await trio.sleep_forever()

    assert text_of(await call(tool, {})) == "the tool 'tool' failed"
    assert len(caplog.records) == 1


class Stop(BaseException):
    """Such as KeyboardInterrupt and SystemExit; pytest has its own ideas about those two."""


@sync_and_async
@pytest.mark.parametrize("kind", [Stop, SystemExit, KeyboardInterrupt])
async def test_exceptions_that_end_the_program_are_not_swallowed(kind: type[BaseException], sync: bool) -> None:
    """The very object that was raised leaves `serve`."""
    exc = kind("stop")
    caught: list[BaseException] = []
    with trio.fail_after(10):
        async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:

            async def serve() -> None:
                try:
                    await server_with(raising(exc, sync=sync)).serve(theirs)
                except kind as reached:
                    caught.append(reached)

            async def use() -> None:
                async with Client(lambda: contextlib.nullcontext(ours), mode="legacy") as client:
                    with pytest.raises(TransportError):
                        await client.call_tool("tool" if sync else "async_tool")

            nursery.start_soon(serve)
            nursery.start_soon(use)
    assert caught == [exc]


async def test_exceptions_that_end_the_program_leave_the_block_of_an_in_memory_client() -> None:
    with pytest.raises(Stop):
        async with Client(server_with(raising(Stop())), mode="legacy") as client:
            with contextlib.suppress(TransportError):
                await client.call_tool("async_tool")
            await trio.sleep_forever()  # the block is cancelled


async def test_a_failed_call_leaves_others_alone() -> None:
    go = trio.Event()

    async def wait() -> str:
        await go.wait()
        return "done"

    server = Server("test")
    server.add_tool(wait)
    server.add_tool(raising(ZeroDivisionError()), name="fail")
    results = []

    async def call_wait(client: Client) -> None:
        results.append((await client.call_tool("wait")).data)

    async with client_of(server) as client, trio.open_nursery() as nursery:
        nursery.start_soon(call_wait, client)
        await trio.testing.wait_all_tasks_blocked()
        assert (await client.call_tool("fail")).is_error
        go.set()
    assert results == ["done"]


@both_eras
async def test_a_failing_cleanup_in_a_cancelled_tool_affects_nothing_else(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A nursery of the tool's own then raises a group of both, which is neither an exception nor a cancellation."""
    started, ended = trio.Event(), trio.Event()

    async def tool() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                started.set()
                await trio.sleep_forever()
            finally:
                ended.set()
                raise ValueError("in the cleanup")

    async with client_of(server_with(tool), revision) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "tool")
            await started.wait()
            nursery.cancel_scope.cancel()
        await ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert len((await client.list_tools()).tools) == 1  # the session lives on
    (record,) = caplog.records
    assert "the handler of 'tools/call' failed" in record.message
    assert "in the cleanup" in caplog.text


@both_eras
async def test_a_cancelled_tool_is_cancelled_with_the_callers_reason_and_may_clean_up(revision: str) -> None:
    started, ended = trio.Event(), trio.Event()
    reasons: list[str | None] = []

    async def tool() -> None:
        try:
            started.set()
            await trio.sleep_forever()
        except trio.Cancelled as exc:
            reasons.append(exc.reason)
            raise
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            ended.set()

    async with client_of(server_with(tool), revision) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "tool")
                await started.wait()
                scope.cancel("the user pressed stop")
        await ended.wait()
        assert len((await client.list_tools()).tools) == 1
    assert len(reasons) == 1
    assert "the user pressed stop" in str(reasons[0])
