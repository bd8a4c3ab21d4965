"""The arguments that a client's callbacks get."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from tests.peer import Peer, played
from trio_mcp import Client, SessionOptions
from trio_mcp.jsonrpc.messages import Notification


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


async def test_a_failing_callback_is_logged_and_costs_one_notification(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def fail_first(notification: Notification) -> None:
        seen.append(notification.method)
        if len(seen) == 1:
            raise ZeroDivisionError

    async with connected(on_message=fail_first) as (_, wire):
        await wire.send(Notification("acme/1"))
        await wire.send(Notification("acme/2"))
        await trio.testing.wait_all_tasks_blocked()
    assert seen == ["acme/1", "acme/2"]
    assert "ZeroDivisionError" in caplog.text
