"""Every public async function is a checkpoint, and a cancellation tells the truth: rule 11 of docs/design, by rows."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.checkpoints import (
    app_rows,
    auth_rows,
    card_rows,
    client_rows,
    extension_rows,
    server_rows,
    session_rows,
    session_store_rows,
    skill_rows,
    store_rows,
    transport_rows,
)
from tests.checkpoints.public import public_functions
from tests.checkpoints.table import CALLS, EFFECTS, Check, Row
from tests.public_names import ROOT
from trio_mcp import AsgiApp, Client, ClientGroup, Context, MemoryEventStore, SqliteEventStore
from trio_mcp._nursery import EnteredOnce
from trio_mcp.auth import CallerAuth, FileTokens, KeyringTokens, MemoryTokens, open_browser, paste_redirect
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.conformance import (
    RecordedServer,
    check_client,
    check_issuers,
    check_server,
    preview_client,
    preview_server,
)
from trio_mcp.extensions import ExtensionRun, ServerExtension
from trio_mcp.low_level import (
    BaseSession,
    failover_client,
    memory_link_pair,
    sse_client,
    stdio_client,
    stdio_server,
    stream_link,
    streamable_http_client,
    tcp_client,
    unix_client,
    websocket_client,
)
from trio_mcp.middleware import Caching, ErrorMasking, Logging, Middleware, RateLimit, SizeLimit, Timing
from trio_mcp.otel import ClientTelemetry, ServerTelemetry
from trio_mcp.stores import MemoryStores, SqliteStores, ValkeyStores
from trio_mcp.stores.memory_sessions import MemorySessions
from trio_mcp.stores.sqlite_sessions import SqliteSessions
from trio_mcp.stores.valkey_sessions import ValkeySessions
from trio_mcp.testing import CallRecorder, FaultLinks, Snapshot, check_stores, check_transport

HANG = 30  # seconds; only a net

# Their imports fill the tables.
assert client_rows, (
    app_rows,
    auth_rows,
    card_rows,
    extension_rows,
    server_rows,
    session_rows,
    session_store_rows,
    skill_rows,
    store_rows,
    transport_rows,
)

WITHOUT_EFFECT: dict[object, str] = {
    AuthorizationServer.__call__: "answers at once; then only sends",
    AuthorizationServer.show: "answers at once, after its checkpoint",
    BaseSession.wait_closed: "waits",
    BaseSession.wait_idle: "waits",
    BaseSession.wait_settled: "waits",
    **{each.__call__: "hands on" for each in (Caching, ErrorMasking, Logging, RateLimit, SizeLimit, Timing)},
    CallerAuth.async_auth_flow: "hands on",
    ClientTelemetry.__call__: "hands on",
    ExtensionRun.call: "hands on",
    FaultLinks.__call__: "opens what its target opens",
    CallRecorder.__call__: "hands on",
    MemoryEventStore.after: "reads",
    **dict.fromkeys((Middleware.handle_request, Middleware.send_request), "hands on"),
    MemoryStores.__aenter__: "does nothing",
    MemoryStores.__aexit__: "does nothing",
    **{
        getattr(kind, name): "reads"
        for kind in (MemoryStores, SqliteStores, ValkeyStores)
        for name in ("changed", "journal", "state", "task", "versions")
    },
    **{
        getattr(kind, name): "reads"
        for kind in (MemorySessions, SqliteSessions, ValkeySessions)
        for name in ("after", "letters", "open_streams", "session")
    },
    ServerExtension.lifespan: "does nothing; extensions override it",
    ServerTelemetry.__call__: "hands on",
    RecordedServer.serve: "answers, and keeps nothing",
    vars(Snapshot)["of"].__func__: "asks, and changes nothing",
    SqliteEventStore.after: "reads",
    check_client: "looks, and leaves nothing behind",
    check_issuers: "looks, and leaves nothing behind but a client, if it signs in",
    check_server: "looks, and leaves nothing behind",
    check_stores: "looks, and leaves nothing behind",
    check_transport: "looks, and leaves nothing behind",
    failover_client: "opens what no other task sees; its links close as those of their ways do",
    **{each.load: "reads" for each in (FileTokens, KeyringTokens, MemoryTokens)},
    **{each.keys: "reads" for each in (FileTokens, MemoryTokens)},
    open_browser: "starts a program that can't be stopped",
    paste_redirect: "asks, and leaves the terminal as it was (tests/auth/io/test_asking.py)",
    preview_client: "starts nothing",
    preview_server: "looks, and leaves nothing behind",
    memory_link_pair: "opens what no other task sees",
}

ANYWHERE = "test_http_client_injection.py::test_a_client_that_is_cancelled_anywhere_leaves_nothing_open"
HELD: dict[object, str] = {
    AsgiApp.__aexit__: "server/test_asgi_app.py::test_cancelled_anywhere_it_can_be_started_again",
    AsgiApp.__call__: "server/test_asgi_app.py::test_cancelled_anywhere_it_can_be_started_again",
    BaseSession.aclose: "session/test_injection.py::test_a_close_cancelled_anywhere_still_closes",
    Client.aclose: "client/test_lifetime.py::test_a_close_that_is_cancelled_closes_all_the_same",
    ClientGroup.aclose: "client/test_group_lifetime.py::test_a_close_that_is_cancelled_waits_for_nothing",
    ClientGroup.remove: "client/test_group_lifetime.py::test_a_close_that_is_cancelled_waits_for_nothing",
    Context.detach: (
        "extensions/tasks/test_cancellation.py::test_a_call_that_is_cancelled_leaves_no_task_that_nobody_knows"
    ),
    EnteredOnce.__aenter__: "session/test_injection.py::test_connecting_using_and_closing",
    EnteredOnce.__aexit__: "session/test_injection.py::test_connecting_using_and_closing",
    sse_client: f"transports/{ANYWHERE}",
    stdio_client: (
        "transports/test_stdio_client_end.py::test_cancellation_at_every_step_of_start_use_and_close_leaves_no_process"
    ),
    stdio_server: ("transports/test_stdio_server.py::test_cancellation_at_every_step_leaves_the_streams_as_they_were"),
    streamable_http_client: f"transports/{ANYWHERE}",
    stream_link: "sockets/test_stream_link.py::test_a_cancellation_at_any_step_leaves_the_stream_closed",
    tcp_client: "sockets/test_clients.py::test_a_connect_that_is_cancelled_at_any_step_leaves_nothing_open",
    unix_client: "sockets/test_clients.py::test_a_connect_that_is_cancelled_at_any_step_leaves_nothing_open",
    websocket_client: "websocket/test_ending.py::test_a_client_that_is_cancelled_anywhere_leaves_nothing_open",
}
"""What tests below ``tests`` cancel, at every step or where it would take long."""


def rows(table: list[Row]) -> list[Any]:
    """Return the rows of a table as parameters; those that need an engine are apart."""
    engine = [pytest.mark.redis]
    return [pytest.param(row, marks=engine if "Valkey" in str(row) else []) for row in table]


@pytest.mark.parametrize("row", rows(CALLS), ids=str)
async def test_a_call_is_a_checkpoint(row: Row) -> None:
    check = Check(row.function)
    with trio.fail_after(HANG):
        await row.run(check)
    assert check.count, "the row has checked nothing"


@pytest.mark.parametrize("row", rows(EFFECTS), ids=str)
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
    assert not cancelled & (WITHOUT_EFFECT.keys() | HELD.keys())
    for file, _, name in (test.partition("::") for test in HELD.values()):
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), name
    without = public_functions().keys() - cancelled - WITHOUT_EFFECT.keys() - HELD.keys()
    assert not without, f"add a row, or why it has no effect, for these: {without}"
