"""Prompts at a server that is running: capabilities, pages, changes, failures, cancellation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.server.harness import MODERN, both_eras, client_of, every_revision
from tests.server.input_harness import hand_client
from trio_mcp import CapabilityError, Client, Context, ListOptions, McpError, Server
from trio_mcp.types import PromptMessage
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.types.versions import LEGACY_REVISIONS

CHANGED = "notifications/prompts/list_changed"


def hello() -> str:
    return "hello"


async def names(client: Client) -> list[str]:
    return [prompt["name"] for prompt in (await client.request("prompts/list"))["prompts"]]


@every_revision
async def test_the_capability_is_declared_if_there_are_prompts(revision: str) -> None:
    """It stays when the last prompt goes. Changes are announced to legacy clients only."""
    server = Server("test")
    async with client_of(server, revision) as client:
        assert client.capabilities.prompts is None
        with pytest.raises(CapabilityError):
            await client.request("prompts/list")
    server.add_prompt(hello)
    for expected in (["hello"], []):
        async with client_of(server, revision) as client:
            declared = client.capabilities.to_wire()["prompts"]
            assert declared == {"listChanged": True}
            assert await names(client) == expected
        if expected:
            server.remove_prompt("hello")


@both_eras
async def test_without_the_capability_there_are_no_such_methods(revision: str) -> None:
    """A client that asks all the same gets -32601."""
    async with hand_client(Server("test"), revision) as client:
        for method in ("prompts/list", "prompts/get"):
            assert (await client.ask(method, {"name": "hello"})).code == METHOD_NOT_FOUND


@both_eras
@pytest.mark.parametrize("page_size", [1, 2, 3, 4])
async def test_pages(page_size: int, revision: str) -> None:
    """All pages but the last are full, in the order of registration; modern pages carry caching hints."""
    server = Server("test", lists=ListOptions(page_size=page_size))
    for number in range(3):
        server.add_prompt(hello, name=f"prompt{number}")
    found: list[list[str]] = []
    cursor = None
    async with client_of(server, revision) as client:
        while True:
            result = await client.request("prompts/list", {} if cursor is None else {"cursor": cursor})
            found.append([prompt["name"] for prompt in result["prompts"]])
            hints = {key: result[key] for key in ("ttlMs", "cacheScope") if key in result}
            assert hints == ({"ttlMs": 0, "cacheScope": "private"} if revision == MODERN else {})
            if "nextCursor" not in result:
                break
            cursor = result["nextCursor"]
        every = ["prompt0", "prompt1", "prompt2"]
        assert found == [every[start : start + page_size] for start in range(0, 3, page_size)]
        with pytest.raises(McpError, match="invalid cursor") as caught:
            await client.request("prompts/list", {"cursor": "x"})
        assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize("revision", LEGACY_REVISIONS)
async def test_legacy_clients_are_told_of_changes(revision: str) -> None:
    seen: list[str] = []
    server = Server("test")
    server.add_prompt(hello)
    async with client_of(server, revision, on_message=lambda message: seen.append(message.method)) as client:
        assert await names(client) == ["hello"]
        server.add_prompt(hello, name="other")
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked()
        assert seen == [CHANGED]
        assert await names(client) == ["hello", "other"]
        server.remove_prompt("hello")
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked()
        assert seen == [CHANGED, CHANGED]
        assert await names(client) == ["other"]


async def test_a_middlewares_changes_do_not_reach_the_next_client() -> None:
    async def shout(context: Context, call_next: Callable[[], Any]) -> dict[str, Any]:
        result: dict[str, Any] = await call_next()
        for prompt in result["prompts"]:
            prompt["name"] += "!"
        return result

    server = Server("test", middleware=[shout])
    server.add_prompt(hello)
    async with client_of(server) as client:
        assert await names(client) == ["hello!"]
        assert await names(client) == ["hello!"]


# --- failures ------------------------------------------------------------------------------------------------------


async def failure_of(function: Callable[..., Any], revision: str = MODERN, **options: Any) -> McpError:
    server = Server("test", **options)
    server.add_prompt(function, name="prompt")
    async with client_of(server, revision) as client:
        with pytest.raises(McpError) as caught:
            await client.request("prompts/get", {"name": "prompt"})
        assert await names(client) == ["prompt"]
    return caught.value


@both_eras
@pytest.mark.parametrize("sync", [True, False])
async def test_an_exception_is_an_internal_error(sync: bool, revision: str, caplog: pytest.LogCaptureFixture) -> None:
    """-32603 that names only the prompt; the log has the traceback; `expose_errors` tells more."""

    def fail() -> str:
        raise LookupError("the secret")

    async def fail_async() -> str:
        raise ExceptionGroup("from a nursery", [LookupError("the secret")])

    function = fail if sync else fail_async
    error = await failure_of(function, revision)
    assert (error.code, error.message) == (INTERNAL_ERROR, "the prompt 'prompt' failed")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
    exposed = await failure_of(function, revision, expose_errors=True)
    assert exposed.message == "the prompt 'prompt' failed: LookupError: the secret"


@pytest.mark.parametrize("value", [None, 1, {"role": "user"}, ["text", None], [["text"]], b"x"], ids=repr)
async def test_a_result_that_is_not_a_message_is_an_internal_error(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    error = await failure_of(lambda: value, expose_errors=True)
    assert error.code == INTERNAL_ERROR
    assert "a prompt must return strings, content blocks" in error.message
    assert len(caplog.records) == 1


@both_eras
async def test_an_mcp_error_passes_through(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> str:
        async with trio.open_nursery():
            raise McpError(-32042, "not today", {"when": "tomorrow"})

    error = await failure_of(fail, revision)
    assert (error.code, error.message, error.data) == (-32042, "not today", {"when": "tomorrow"})
    assert not caplog.records


@both_eras
async def test_a_prompt_is_cancelled_with_its_request(revision: str) -> None:
    entered, left = trio.Event(), trio.Event()

    async def wait() -> PromptMessage:
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            left.set()
        raise AssertionError

    server = Server("test")
    server.add_prompt(wait, name="wait")
    async with client_of(server, revision) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.request, "prompts/get", {"name": "wait"})
        await entered.wait()
        nursery.cancel_scope.cancel()
    await left.wait()
