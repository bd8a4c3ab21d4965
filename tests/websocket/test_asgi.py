"""The ``websocket`` scope of ASGI, driven by hand."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.websocket.ways import Tools

PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
SCOPE: Mapping[str, Any] = {
    "type": "websocket",
    "path": "/mcp",
    "headers": [(b"host", b"localhost")],
    "subprotocols": ["mcp"],
    "server": ("127.0.0.1", 80),
}
CONNECT = {"type": "websocket.connect"}
ACCEPTED = {"type": "websocket.accept", "subprotocol": "mcp"}


class Driver:
    """An ASGI server with one WebSocket.

    Attributes:
        sent: What the application has sent.
        left: Whether the client has left, so that nothing can be sent.
    """

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.left = False
        self.over = trio.Event()
        self._events, self.receive = trio.open_memory_channel[Any](100)
        self._news = trio.lowlevel.ParkingLot()

    async def run(self, app: Any, scope: Mapping[str, Any]) -> None:
        await app({**SCOPE, **scope}, self.receive.receive, self._send)
        self.over.set()
        self._news.unpark_all()

    async def _send(self, event: Any) -> None:
        await trio.lowlevel.checkpoint()
        if self.left:
            raise BrokenPipeError
        self.sent.append(event)
        self._news.unpark_all()
        if event["type"] == "websocket.close":
            self.put({"type": "websocket.disconnect", "code": event.get("code")})

    def put(self, *events: Any) -> None:
        for event in events:
            self._events.send_nowait(event)

    async def sends(self, count: int) -> list[Any]:
        while len(self.sent) < count and not self.over.is_set():
            await self._news.park()
        return self.sent


@contextlib.asynccontextmanager
async def driven(*events: Any, tools: Tools | None = None, scope: Any = (), **settings: Any) -> AsyncIterator[Driver]:
    driver = Driver()
    driver.put(*events)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            app_of = (tools or Tools()).server.asgi_app
            async with app_of(**{"websocket_path": "/mcp", **settings}) as app:
                nursery.start_soon(driver.run, app, dict(scope))
                yield driver


@pytest.mark.parametrize(
    ("scope", "status"),
    [
        ({"path": "/other"}, 404),
        ({"subprotocols": []}, 400),
        ({"headers": [(b"host", b"evil.example")]}, 403),
    ],
)
@pytest.mark.parametrize("extension", [True, False])
async def test_a_refusal_has_a_status_where_the_server_can_send_one(scope: Any, status: int, extension: bool) -> None:
    scope = {**scope, "extensions": {"websocket.http.response": {}} if extension else {}}
    async with driven(CONNECT, scope=scope) as driver:
        await driver.over.wait()
    if extension:
        start, body = driver.sent
        assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
        assert (b"content-type", b"application/json") in start["headers"]
        assert b'"error"' in body["body"]
    else:
        assert driver.sent == [{"type": "websocket.close"}]


@pytest.mark.parametrize("events", [[{"type": "websocket.disconnect"}], []])
async def test_a_client_that_leaves_before_it_is_accepted_or_never_comes(
    events: list[Any], autojump_clock: MockClock
) -> None:
    async with driven(*events) as driver:
        await driver.over.wait()
    assert driver.sent == []


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"bytes": b"{}", "text": None}, 1003),
        ({"bytes": b"{}"}, 1003),
        ({"text": '"' + "é" * 500 + '"'}, 1009),
    ],
)
async def test_a_message_that_is_not_accepted_closes_it(event: Any, code: int) -> None:
    async with driven(CONNECT, {"type": "websocket.receive", **event}, max_message_size=1000) as driver:
        await driver.over.wait()
    accepted, closed = driver.sent
    assert (accepted, closed["type"], closed["code"]) == (ACCEPTED, "websocket.close", code)


@pytest.mark.parametrize("code", [1000, 1006, 4000])
@pytest.mark.parametrize("left", [True, False])
async def test_a_client_that_leaves_ends_its_session(code: int, left: bool) -> None:
    tools = Tools()
    call = '{"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {}}'
    async with driven(CONNECT, {"type": "websocket.receive", "text": PING}, tools=tools) as driver:
        await driver.sends(2)
        driver.left = left
        driver.put({"type": "websocket.receive", "text": call}, {"type": "websocket.disconnect", "code": code})
        await driver.over.wait()
        assert not tools.server.statistics().sessions
    assert driver.sent[0] == ACCEPTED


async def test_the_end_of_the_application_closes_what_is_open() -> None:
    """The ASGI server goes on, and its tasks are not ours to cancel."""
    async with driven(CONNECT, {"type": "websocket.receive", "text": PING}) as driver:
        assert len(await driver.sends(2)) == 2
    assert driver.over.is_set()
    assert driver.sent[2:] == [{"type": "websocket.close", "code": 1012, "reason": "the server is ending"}]
