"""The hooks of a session: what can be overridden and watched, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.peer import Peer
from tests.session.harness import server_on_wire, session_pair
from trio_mcp import McpError, RemoteProtocolError, RequestTimeout, SessionOptions
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Malformed,
    Request,
    Response,
)
from trio_mcp.low_level import BaseSession, RequestContext, memory_link_pair
from trio_mcp.session.session import MAX_LOGGED_FAULTS
from trio_mcp.statistics import RequestRecord


async def test_a_fault_has_a_hook() -> None:
    seen: list[str] = []

    class Curious(BaseSession):
        async def received_error(self, error: RemoteProtocolError) -> None:
            seen.append(str(error))

    async with memory_link_pair() as (ours, theirs), Curious(*ours):
        wire = Peer(theirs)
        await wire.send(Malformed(-32700, "garbage"))
        assert isinstance(await wire.receive(), ErrorResponse)
    assert seen == ["garbage"]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("message", "answered"),
    [
        (Malformed(-32700, "invalid JSON"), ErrorResponse(None, ErrorData(-32700, "invalid JSON"))),
        (Malformed(-32600, "no method", 7), ErrorResponse(7, ErrorData(-32600, "no method"))),
        (Malformed(-32600, "a broken answer", 7, expects_answer=False), None),
        (Response(99, {}), None),
        (ErrorResponse(None, ErrorData(-32700, "what?")), None),
    ],
)
async def test_what_belongs_to_no_request_goes_to_on_error(kind: str, message: Any, answered: Any) -> None:
    faults: list[RemoteProtocolError] = []

    async def note(error: RemoteProtocolError) -> None:
        faults.append(error)

    async with server_on_wire(options=SessionOptions(on_error=note if kind == "async" else faults.append)) as (_, wire):
        await wire.send(message)
        await trio.testing.wait_all_tasks_blocked()
        assert wire.arrived() == ([] if answered is None else [answered])
        await wire.send(Request(1, "ping"))  # it cost only itself
        assert await wire.receive() == Response(1, {})
    assert len(faults) == 1
    assert isinstance(faults[0], RemoteProtocolError)


async def test_without_on_error_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with server_on_wire() as (_, wire):
        await wire.send(Malformed(-32700, "garbage in"))
        await trio.testing.wait_all_tasks_blocked()
    assert "garbage in" in caplog.text


async def test_a_peer_cannot_fill_the_log_with_its_faults(caplog: pytest.LogCaptureFixture) -> None:
    async with server_on_wire() as (_, wire):
        for number in range(3 * MAX_LOGGED_FAULTS):
            await wire.send(Malformed(-32700, f"garbage {number}"))
            await wire.receive()
    lines = [record.getMessage() for record in caplog.records if "from the peer" in record.getMessage()]
    assert len(lines) == MAX_LOGGED_FAULTS + 1
    assert "are not logged" in lines[-1]


async def test_a_failing_on_error_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: RemoteProtocolError) -> None:
        raise ZeroDivisionError

    async with server_on_wire(options=SessionOptions(on_error=fail)) as (_, wire):
        await wire.send(Malformed(-32700, "garbage"))
        assert isinstance(await wire.receive(), ErrorResponse)
        await wire.send(Request(1, "ping"))
        assert await wire.receive() == Response(1, {})
    assert "ZeroDivisionError" in caplog.text


async def test_every_request_leaves_a_record(autojump_clock: trio.testing.MockClock) -> None:
    async def answer(context: RequestContext) -> dict[str, Any]:
        await trio.sleep(context.params["arguments"]["seconds"])
        if context.params["arguments"].get("fail"):
            raise McpError(-32602, "no")
        return {}

    records: list[RequestRecord] = []
    incoming: list[RequestRecord] = []
    async with session_pair(
        answer,
        client_options=SessionOptions(on_request=records.append),
        server_options=SessionOptions(on_request=incoming.append),
    ) as (client, server):
        records.clear()

        def call(seconds: float, **more: Any) -> Any:
            return client.send_request(
                "tools/call", {"name": "x", "arguments": {"seconds": seconds, **more}}, timeout=10
            )

        await call(1)
        with pytest.raises(McpError):
            await call(2, fail=True)
        with pytest.raises(RequestTimeout):
            await call(20)
        with trio.move_on_after(3):
            await call(30)
        async with trio.open_nursery() as nursery:

            async def lose() -> None:
                with pytest.raises(Exception, match="closed"):
                    await call(40)

            nursery.start_soon(lose)
            await trio.sleep(4)
            nursery.start_soon(client.aclose)
        await server.wait_closed()
    assert [(r.method, r.direction, r.outcome) for r in records] == [
        ("tools/call", "out", outcome) for outcome in ("ok", "error", "timeout", "cancelled", "lost")
    ]
    assert [r.duration for r in records] == pytest.approx([1, 2, 10, 3, 4])
    calls = [r for r in incoming if r.method == "tools/call"]
    assert [r.outcome for r in calls] == ["ok", "error", "cancelled", "cancelled", "cancelled"]
    assert all(r.direction == "in" for r in incoming)


async def test_slow_requests_raise_an_alert(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(context: RequestContext) -> dict[str, Any]:
        await trio.sleep(context.params["arguments"])
        return {}

    alerts: list[RequestRecord] = []
    options = SessionOptions(alert_threshold=5, on_alert=alerts.append)
    async with session_pair(answer, client_options=options, server_options=SessionOptions(alert_threshold=5)) as (
        client,
        _,
    ):
        for seconds in (1, 4.9, 5, 7):
            await client.send_request("tools/call", {"name": "x", "arguments": seconds})
    assert [round(alert.duration, 3) for alert in alerts] == [5, 7]
    assert caplog.text.count("slow request: tools/call (in)") == 2


async def test_a_failing_hook_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(record: RequestRecord) -> None:
        raise ZeroDivisionError

    async with session_pair(client_options=SessionOptions(on_request=fail)) as (client, _):
        await client.ping()
    assert "ZeroDivisionError" in caplog.text
