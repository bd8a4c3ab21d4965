"""Which log messages a client asks for (`server/utilities/logging`), and the callbacks that get them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from tests.client.scripted import scripted
from tests.peer import Peer, played
from trio_mcp import CapabilityError, Client, McpError, McpLogHandler, RequestTimeout, Server, SessionOptions
from trio_mcp.jsonrpc.messages import ErrorData, Notification
from trio_mcp.types import meta

LEVEL = meta.LOG_LEVEL


def levels(asked: list[Any]) -> list[Any]:
    """Return the level that each request carried in its `_meta`; None where it carried none."""
    return [(request.params or {}).get("_meta", {}).get(LEVEL) for request in asked]


async def test_every_later_modern_request_carries_the_level() -> None:
    async with scripted({"prompts/list": {"prompts": []}}, revision="2026-07-28") as (client, asked, _):
        await client.list_prompts()
        await client.set_log_level("warning")
        await client.list_prompts()
        await client.list_prompts()
        await client.set_log_level("debug")
        await client.list_prompts()
        await client.set_log_level(None)
        await client.list_prompts()
    assert [request.method for request in asked] == ["prompts/list"] * 5
    assert levels(asked) == [None, "warning", "warning", "debug", None]
    stamps = [{name: value for name, value in request.params["_meta"].items() if name != LEVEL} for request in asked]
    assert stamps == [stamps[0]] * 5  # nothing else changes
    assert stamps[0][meta.PROTOCOL_VERSION] == "2026-07-28"


async def test_the_meta_of_a_call_goes_before_the_level_of_the_client() -> None:
    results = {"tools/call": {"content": []}}
    settings: dict[str, Any] = {"revision": "2026-07-28", "capabilities": {"tools": {}, "logging": {}}}
    async with scripted(results, **settings, log_level="info") as (client, asked, _):
        await client.call_tool("x", meta={LEVEL: "debug"})
        await client.call_tool("x")
    assert levels(asked) == ["debug", "info"]


async def test_the_initial_level_in_both_eras() -> None:
    """A legacy server is told at once, and requests carry nothing."""
    answers = {"logging/setLevel": {}, "prompts/list": {"prompts": []}}
    async with scripted(answers, revision="2024-11-05", log_level="error") as (client, asked, _):
        await client.list_prompts()
        await client.set_log_level("warning")
    assert [(request.method, request.params) for request in asked] == [
        ("logging/setLevel", {"level": "error"}),
        ("prompts/list", None),
        ("logging/setLevel", {"level": "warning"}),
    ]
    async with scripted(answers, revision="2026-07-28", log_level="error") as (client, asked, _):
        await client.list_prompts()
    assert levels(asked) == ["error"]


async def test_a_server_that_sends_no_messages_is_not_asked_at_the_start() -> None:
    async with scripted({}, capabilities={}, log_level="error") as (_, asked, _wire):
        pass
    assert asked == []


async def test_setting_a_level_without_the_capability() -> None:
    """An error in the legacy era. In the modern era it is a wish, and some servers log without declaring it."""
    answers = {"prompts/list": {"prompts": []}}
    async with scripted(answers, capabilities={"prompts": {}}) as (client, asked, _):
        with pytest.raises(CapabilityError, match="server capability 'logging'"):
            await client.set_log_level("info")
    assert asked == []
    async with scripted(answers, revision="2026-07-28", capabilities={"prompts": {}}) as (client, asked, _):
        await client.set_log_level("info")
        await client.list_prompts()
    assert levels(asked) == ["info"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("level", ["verbose", "INFO", 7, ["info"]])
async def test_a_level_that_does_not_exist(revision: str, level: Any) -> None:
    error = ValueError if isinstance(level, str) else TypeError
    async with scripted({}, revision=revision) as (client, asked, _):
        with pytest.raises(error, match="must be one of debug, info, notice, warning, error, critical, alert, eme"):
            await client.set_log_level(level)
    assert asked == []


async def test_the_legacy_era_has_no_word_for_no_messages() -> None:
    async with scripted({}) as (client, asked, _):
        with pytest.raises(ValueError, match="can't be asked to send no log messages"):
            await client.set_log_level(None)
    assert asked == []


async def test_a_refusal_and_a_timeout(autojump_clock: Any) -> None:
    refusal = ErrorData(-32603, "not now")
    answers: Any = iter([refusal])
    async with scripted({"logging/setLevel": lambda _: next(answers, None)}) as (client, _, _wire):
        with pytest.raises(McpError, match="not now"):
            await client.set_log_level("info")
        with pytest.raises(RequestTimeout):
            await client.set_log_level("info", timeout=3)
    with pytest.raises(McpError, match="not now"):
        async with scripted({"logging/setLevel": refusal}, log_level="info"):
            pytest.fail("the refusal of the level was not told")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_was_logged_before_the_answer_is_heard_though_the_client_is_left_at_once(revision: str) -> None:
    """A turn of the event loop for each message would have the last of them dropped."""
    server, log, handler = Server("x"), logging.getLogger("said_at_once"), McpLogHandler()
    heard: list[Any] = []

    @server.tool
    async def speak() -> None:
        for number in range(20):
            log.error("%d", number)

    log.addHandler(handler)
    try:
        async with Client(
            server, mode=revision, log_level="error", on_log=lambda message: heard.append(message.data)
        ) as client:
            await client.call_tool("speak")
    finally:
        log.removeHandler(handler)
    assert heard == [str(number) for number in range(20)]


# --- the callbacks for log messages and for all notifications ---


@contextlib.asynccontextmanager
async def connected(**callbacks: Any) -> AsyncIterator[tuple[Client, Peer]]:
    wires: list[Peer] = []

    async def shake_hands(wire: Peer) -> None:
        wires.append(wire)
        await wire.greet()
        await wire.expect(Notification)

    async with Client(played(shake_hands), mode="legacy", **callbacks) as client:
        yield client, wires[0]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_log_messages_and_all_notifications(kind: str) -> None:
    logged: list[Any] = []
    seen: list[Any] = []

    def noting(heard: list[Any]) -> Any:
        async def note(message: Any) -> None:
            heard.append(message)

        return heard.append if kind == "sync" else note

    async with connected(on_log=noting(logged), on_message=noting(seen)) as (_, wire):
        await wire.send(Notification("notifications/message", {"level": "info", "data": {"a": 1}}))
        await wire.send(Notification("notifications/message", {"level": "whatever"}))
        await wire.send(Notification("acme/news", {"x": 1}))
        await trio.testing.wait_all_tasks_blocked()
    assert [(message.level, message.data) for message in logged] == [("info", {"a": 1})]
    assert (seen[0].method, seen[-1].method) == ("notifications/message", "acme/news")


async def test_a_malformed_log_message_goes_to_on_error_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    faults: list[Exception] = []
    async with connected(on_log=lambda message: None, options=SessionOptions(on_error=faults.append)) as (_, wire):
        await wire.send(Notification("notifications/message", {"level": "whatever"}))
        await trio.testing.wait_all_tasks_blocked()
    assert ["malformed log message" in str(fault) for fault in faults] == [True]
    assert "Traceback" not in caplog.text
