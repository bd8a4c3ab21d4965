"""Every public async function is a checkpoint, and a cancellation tells the truth: rule 11 of docs/design, by rows."""

from __future__ import annotations

import pytest
import trio

from tests.checkpoints import client_rows, group_rows, server_rows, session_rows, transport_rows
from tests.checkpoints.public import public_functions
from tests.checkpoints.table import CALLS, EFFECTS, Check, Row
from trio_mcp import BaseSession, MemoryEventStore, SqliteEventStore, memory_link_pair
from trio_mcp.otel import ClientTelemetry, ServerTelemetry

HANG = 30  # seconds; only a net

assert client_rows, (group_rows, server_rows, session_rows, transport_rows)  # their imports fill the tables

WITHOUT_EFFECT: dict[object, str] = {
    BaseSession.wait_closed: "waits",
    BaseSession.wait_idle: "waits",
    BaseSession.wait_settled: "waits",
    ClientTelemetry.__call__: "hands on",
    MemoryEventStore.after: "reads",
    ServerTelemetry.__call__: "hands on",
    SqliteEventStore.after: "reads",
    memory_link_pair: "opens what no other task sees",
}


@pytest.mark.parametrize("row", CALLS, ids=str)
async def test_a_call_is_a_checkpoint(row: Row) -> None:
    check = Check(row.function)
    with trio.fail_after(HANG):
        await row.run(check)
    assert check.count, "the row has checked nothing"


@pytest.mark.parametrize("row", EFFECTS, ids=str)
async def test_a_cancellation_tells_the_truth(row: Row) -> None:
    with trio.fail_after(HANG):
        await row.run()


def test_every_public_async_function_has_a_row() -> None:
    public, called = public_functions(), {row.function for row in CALLS}
    without = sorted(name for function, name in public.items() if function not in called)
    assert not without, f"add rows for these: {without}"
    assert called <= public.keys(), "a row is for a function that is not public"


def test_every_one_with_an_effect_has_a_row_for_that() -> None:
    cancelled = {row.function for row in EFFECTS}
    assert not cancelled & WITHOUT_EFFECT.keys()
    without = public_functions().keys() - cancelled - WITHOUT_EFFECT.keys()
    assert not without, f"add a row, or why it has no effect, for these: {without}"
