"""Exceptions that a tool raises: what the model, the log and the session get of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.server.harness import both_eras, call, client_of, server_with, text_of
from trio_mcp import Client, ToolError, TransportError, memory_link_pair


def raising(exc: BaseException, *, sync: bool = False) -> Callable[[], Any]:
    if sync:

        def tool() -> int:
            raise exc

        return tool

    async def async_tool() -> int:
        raise exc

    return async_tool


sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@both_eras
@sync_and_async
@pytest.mark.parametrize(
    "exc",
    [
        ToolError("no seats left"),
        ExceptionGroup("outer", [ExceptionGroup("inner", [ToolError("no seats left")])]),
    ],
    ids=["alone", "from nurseries"],
)
async def test_a_tool_error_is_for_the_model(
    revision: str, sync: bool, exc: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not the server's fault, so nothing is logged."""
    result = await call(raising(exc, sync=sync), {}, revision)
    assert result.is_error
    assert text_of(result) == "no seats left"
    assert not caplog.records


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


async def test_expose_errors_shows_why_a_value_is_invalid() -> None:
    def tool() -> int:
        return "three"  # type: ignore[return-value]

    async with client_of(server_with(tool, expose_errors=True)) as client:
        text = text_of(await client.call_tool("tool"))
    assert text.startswith("the tool 'tool' failed: the return value is not of the declared type:")


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
