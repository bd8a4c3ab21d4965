"""HTTP/2 over TLS: what a client does on one stream costs neither its other streams nor the server anything."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes

from tests.server.http.certificate import over_tls
from tests.server.http.harness import Made
from tests.server.http.http2_client import Http2Client, over_http2
from tests.server.http.in_memory import App
from tests.server.http.runners import chosen
from tests.server.http.test_framing import PIECES, Hasty
from tests.waiting import eventually
from trio_mcp import Context
from trio_mcp.http.runner.wire import PIECE
from trio_mcp.http.server.options import HttpOptions


@contextlib.asynccontextmanager
async def connected(
    folder: Path, caplog: pytest.LogCaptureFixture, options: HttpOptions | None = None, *, window: int = 65535
) -> AsyncIterator[tuple[Made, Http2Client]]:
    config, trusted = over_tls(folder)
    trusted.set_alpn_protocols(["h2"])
    made = Made()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serve = partial(made.server.serve_http, config=config, options=options, runner=chosen.runner())
            url = await nursery.start(serve)
            port = int(url.split(":")[2].partition("/")[0])
            async with await trio.open_tcp_stream("127.0.0.1", port) as tcp:
                stream = trio.SSLStream(tcp, trusted, server_hostname="127.0.0.1", https_compatible=True)
                await stream.do_handshake()
                assert stream.selected_alpn_protocol() == "h2"
                client = Http2Client(stream, window)
                await client.flush()
                yield made, client
            await eventually(lambda: not made.server.statistics().sessions)  # whatever it was, nothing is left of it
            nursery.cancel_scope.cancel()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_stream_without_a_window_is_reset_after_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 9113, 10.5: it would hold its request forever."""
    async with connected(tmp_path, caplog, HttpOptions(write_timeout=0.2), window=0) as (made, client):
        stalled = [await client.call("add", {"a": 1, "b": 2}) for _ in range(3)]
        for stream_id in stalled:
            assert await client.reset(stream_id) == ErrorCodes.CANCEL
            assert client.statuses[stream_id] == "200"
        await trio.testing.wait_all_tasks_blocked()
        assert made.server.statistics().sessions == 0


async def test_a_request_for_another_name_leaves_no_stream(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Else the connection would never be idle, and so never end."""
    async with over_http2(App(), tmp_path, server_names=["example.com"]) as (client, connection, _):
        assert await client.status(await client.open(b"{}")) == "404"
        await eventually(lambda: connection.protocol.idle)


async def test_a_large_answer_takes_as_long_as_its_window_is_opened(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The deadline is for one piece, and any progress renews it: a quarter of a piece in 0.4 seconds is enough."""
    app = App(b"x" * 8 * PIECE)
    async with over_http2(app, tmp_path, write_timeout=2) as (client, _, _):
        stream_id, began = await client.open(b"{}"), trio.current_time()
        while stream_id not in client.ended:
            with trio.move_on_after(0.4):
                await client.status(stream_id)
            if stream_id not in client.ended:
                for window in (None, stream_id):
                    client.connection.increment_flow_control_window(PIECE // 4, window)
                await client.flush()
        assert trio.current_time() > began + 7 * 4 * 0.4
        assert client.bodies[stream_id] == app.answer


async def test_a_stream_without_a_window_is_forgotten_with_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(tmp_path, caplog, window=0) as (_, client):
        stream_id = await client.call("add", {"a": 1, "b": 2})
        while stream_id not in client.statuses:
            await client.read()


async def test_data_that_waits_for_a_window_does_not_pile_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The handler waits with the stream, and is cancelled with it."""
    told: list[int] = []
    async with connected(tmp_path, caplog, HttpOptions(write_timeout=0.3)) as (made, client):

        @made.server.tool
        async def chatter(ctx: Context) -> None:
            while True:
                await ctx.report_progress(len(told), message="x" * 10_000)
                told.append(1)

        assert await client.reset(await client.call("chatter")) == ErrorCodes.CANCEL
        assert len(told) < 1000


async def test_data_that_arrives_on_an_answered_stream_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 9113, 8.1: a server may answer before the request is complete, and tell the client to stop."""
    async with connected(tmp_path, caplog, HttpOptions(max_message_size=1000)) as (_, client):
        for path, status in (("/mcp", "413"), ("/health", "404")):
            stream_id = await client.open(b"x" * 2000, path=path, end=False)
            assert await client.status(stream_id) == status
            for _ in range(20):
                client.connection.send_data(stream_id, b"x" * 500)
            await client.flush()
            assert await client.reset(stream_id) == ErrorCodes.NO_ERROR
        await client.works()


async def test_a_path_that_is_not_ascii_resets_its_stream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(tmp_path, caplog) as (_, client):
        assert await client.reset(await client.open(b"", path="/\u00e9")) == ErrorCodes.PROTOCOL_ERROR
        await client.works()


async def test_the_requests_of_a_connection_are_not_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Hypercorn would end it in the middle of the 1001st."""
    async with connected(tmp_path, caplog) as (_, client):
        for _ in range(1010):
            stream_id = await client.open(b"", path="/health", end=True)
            await client.status(stream_id)
        await client.works()


async def test_a_request_is_cancelled_by_the_reset_of_its_stream_and_nothing_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """2026-07-28 `basic/transports/streamable-http`, Cancellation. Hypercorn has place for 1000 streams."""
    async with connected(tmp_path, caplog) as (made, client):
        stream_id = await client.call("wait")
        await made.started.wait()
        client.connection.reset_stream(stream_id, ErrorCodes.CANCEL)
        await client.flush()
        await made.cancelled.wait()
        for _ in range(1010):
            stream_id = await client.open(b"{", end=False)
            client.connection.reset_stream(stream_id, ErrorCodes.CANCEL)
        await client.works()


async def test_a_cancellation_while_the_connection_is_full_does_not_affect_other_streams(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """A head that gets lost would leave the client with another table of fields (RFC 7541, 2.2)."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """Respond; a disconnect cancels it at whatever await it has reached."""
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            fields = [(b"x-path", scope["raw_path"])]
            await send({"type": "http.response.start", "status": 200, "headers": fields})
            await send({"type": "http.response.body", "body": b"x" * 5_000})
            nursery.cancel_scope.cancel()

    async with over_http2(app, tmp_path, window=2**20) as (client, connection, _):
        assert await client.status(await client.open(b"{}", path="/first")) == "200"
        wire = connection.wire.stream.transport_stream
        wire.clear = trio.Event()
        full = [await client.open(b"{}", path=f"/full{number}") for number in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        for stream_id in full[:2]:
            client.connection.reset_stream(stream_id, ErrorCodes.CANCEL)
        await client.flush()
        await trio.testing.wait_all_tasks_blocked()
        wire.clear.set()
        for stream_id in (full[2], await client.open(b"{}", path="/full1")):
            assert await client.status(stream_id) == "200"


async def test_a_request_that_comes_as_the_server_ends_may_be_sent_elsewhere(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """RFC 9113, 8.7. What is under way is answered."""
    async with over_http2(App(read=True), tmp_path) as (client, connection, http):
        under_way = await client.open(b"{", end=False)
        await trio.testing.wait_all_tasks_blocked()
        await http.end()
        connection.shut_if_idle()
        assert await client.reset(await client.open(b"{}")) == ErrorCodes.REFUSED_STREAM
        client.connection.end_stream(under_way)
        await client.flush()
        assert await client.status(under_way) == "200"
        while await client.stream.receive_some():  # to the end of the connection, now that it is idle
            pass


async def test_the_rest_of_an_answered_request_holds_up_no_other_stream(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    app = Hasty()
    with trio.fail_after(60):
        async with over_http2(app, tmp_path) as (client, _, _):
            first = await client.open(b"", end=False)
            for _ in range(PIECES):
                client.connection.send_data(first, b"x" * 100)
            await client.flush()
            await trio.testing.wait_all_tasks_blocked()
            app.answer_now.set()
            await app.done.wait()
            for stream_id in (first, await client.open(b"")):
                assert await client.status(stream_id) == "413"
