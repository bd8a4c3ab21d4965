"""Prompts at a server that is running: capabilities, pages, changes, failures, cancellation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.harness import MODERN, client_of
from trio_mcp import Client, McpError, Server
from trio_mcp.types.error_codes import INTERNAL_ERROR


def hello() -> str:
    return "hello"


async def names(client: Client) -> list[str]:
    return [prompt["name"] for prompt in (await client.request("prompts/list"))["prompts"]]


# --- failures ------------------------------------------------------------------------------------------------------


async def failure_of(function: Callable[..., Any], revision: str = MODERN, **options: Any) -> McpError:
    server = Server("test", **options)
    server.add_prompt(function, name="prompt")
    async with client_of(server, revision) as client:
        with pytest.raises(McpError) as caught:
            await client.request("prompts/get", {"name": "prompt"})
        assert await names(client) == ["prompt"]
    return caught.value


@pytest.mark.parametrize("value", [None, 1, {"role": "user"}, ["text", None], [["text"]], b"x"], ids=repr)
async def test_a_result_that_is_not_a_message_is_an_internal_error(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    error = await failure_of(lambda: value, expose_errors=True)
    assert error.code == INTERNAL_ERROR
    assert "a prompt must return strings, content blocks" in error.message
    assert len(caplog.records) == 1
