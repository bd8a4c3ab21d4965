"""How an application sees the ways: the status, spans, the group, and mistakes in a list."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.client.failover.test_switch import BOTH, scene
from tests.waiting import eventually
from trio_mcp import (
    Client,
    ClientGroup,
    FailoverParameters,
    HttpServerParameters,
    Server,
    StdioServerParameters,
)
from trio_mcp.client.targets import target_name
from trio_mcp.low_level import failover_client
from trio_mcp.otel import ClientTelemetry


@BOTH
async def test_a_span_names_the_way(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    async with Client(made.ways, mode=mode, middleware=[ClientTelemetry(tracer_provider=tracers)]) as client:
        await client.list_tools()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "look", {"text": "x", "wait": True})
            await eventually(lambda: made.ran == ["x"])
            made.ways[0].down()
            await eventually(lambda: client.transport.carrier == "b")
            made.hold.set()
    spans = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
    # The first listing, and the call; after the switch, the tools may have been listed again.
    first, call = spans[0], next(each for each in spans if each["mcp.method.name"] == "tools/call")
    assert [(each["trio_mcp.way"], each.get("trio_mcp.way.switches")) for each in (first, call)] == [
        ("a", None),
        ("b", 1),
    ]


async def test_a_switch_is_logged_and_a_hook_that_fails_harms_nothing(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()

    def fail(switch: object) -> None:
        raise ZeroDivisionError

    caplog.set_level(logging.INFO, "trio_mcp")
    async with Client(FailoverParameters(made.ways, on_switch=fail, settle=1)) as client:
        made.ways[0].down()
        await eventually(lambda: client.transport.carrier == "b")
        made.ways[0].accept()
        await eventually(lambda: client.transport.carrier == "a")
    said = [record.getMessage() for record in caplog.records]
    for line in ("switched from a to b: a is cut", "switched from b back to a", "on_switch failed"):
        assert line in said


async def test_a_member_of_a_group_may_be_a_list(autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    async with ClientGroup({"shop": made.ways, "other": Server("other")}) as group:
        assert (await group.call_tool("shop__look", {"text": "x"})).data == "x"
        made.ways[0].down()
        assert (await group.call_tool("shop__look", {"text": "y"}, retry=True)).data == "y"
        assert group.clients["shop"].transport.carrier == "b"


async def test_a_plain_client_has_one_way() -> None:
    client = Client(Server("shop"))
    assert [way.state for way in client.transport.ways] == ["idle"]
    async with client:
        assert client.transport.carrier == "shop"
    assert client.transport.carrier is None


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("https://user:secret@host:1/mcp?token=secret#secret", "https://host:1/mcp"),
        (HttpServerParameters("http://host/mcp"), "http://host/mcp"),
        ("unix:/tmp/x?secret", "unix:/tmp/x"),
        (StdioServerParameters("python", ["server.py"]), "python"),
        (Server("shop"), "shop"),
        (target_name, "target_name"),
    ],
)
def test_the_name_of_a_way_has_no_secrets(target: Any, name: str) -> None:
    assert target_name(target) == name


ONE = Server("x")


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Client([]), ValueError, "needs at least one target"),
        (lambda: FailoverParameters("http://host"), TypeError, "must be a list of targets, got str"),
        (lambda: Client([ONE, [ONE]]), TypeError, "can't contain another list"),
        (lambda: Client([FailoverParameters([ONE])]), TypeError, "can't contain another list"),
        (lambda: Client([ONE, "gopher://host"]), ValueError, "no transport for gopher"),
        (lambda: Client([ONE, 3]), TypeError, "a target must be"),
        (lambda: FailoverParameters([ONE], settle=-1), ValueError, "settle"),
        (lambda: FailoverParameters([ONE], check_after=0), ValueError, "check_after"),
        (lambda: FailoverParameters([ONE], on_switch=trio.sleep), TypeError, "on_switch must be a sync function"),
        (lambda: failover_client([]), ValueError, "needs at least one target"),
    ],
)
def test_mistakes_in_a_list(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
