"""HTTP/2 over TLS: what a client does on one stream costs neither its other streams nor the server anything."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes
from pydantic_core import to_json

from tests.server.http.certificate import over_tls
from tests.server.http.harness import Made
from tests.server.http.in_memory import App, over_memory, tls_client
from tests.waiting import eventually
from trio_mcp import Context, types
from trio_mcp.http.runner.http2 import PIECE
from trio_mcp.http.server.options import HttpOptions

LATEST = "2026-07-28"
META = {types.meta.PROTOCOL_VERSION: LATEST, types.meta.CLIENT_CAPABILITIES: {}}


class Http2Client:
    """A client that opens the windows only when it is told to."""

    def __init__(self, stream: Any, window: int) -> None:
        self.stream = stream
        self.connection = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        )
        initial = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        self.connection.local_settings = h2.settings.Settings(client=True, initial_values=initial)
        self.connection.initiate_connection()
        self.statuses: dict[int, str] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}

    async def flush(self) -> None:
        await self.stream.send_all(self.connection.data_to_send())

    async def open(self, body: bytes, *, path: str = "/mcp", end: bool = True, **more: str) -> int:
        stream_id: int = self.connection.get_next_available_stream_id()
        given = {"content-type": "application/json", "mcp-protocol-version": LATEST, "mcp-method": "tools/call"}
        fields = {name.replace("_", "-"): value for name, value in more.items()}
        pseudo = {":method": "POST", ":scheme": "https", ":authority": "localhost", ":path": path}
        self.connection.send_headers(stream_id, list({**pseudo, **given, **fields}.items()))
        self.connection.send_data(stream_id, body, end_stream=end)
        await self.flush()
        return stream_id

    async def call(self, tool: str, arguments: dict[str, Any] | None = None) -> int:
        params = {"name": tool, "arguments": arguments or {}, "_meta": {**META, "progressToken": 1}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return await self.open(to_json(body), mcp_name=tool)

    async def read(self) -> None:
        """Take what comes next."""
        data = await self.stream.receive_some()
        assert data, "the server has closed the connection"
        for event in self.connection.receive_data(bytes(data)):
            match event:
                case h2.events.ResponseReceived():
                    self.statuses[event.stream_id] = dict(event.headers)[":status"]  # type: ignore[arg-type, index]
                case h2.events.DataReceived():
                    self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                case h2.events.StreamEnded():
                    self.ended.add(event.stream_id)
                case h2.events.StreamReset():
                    self.resets[event.stream_id] = int(event.error_code)
        await self.flush()

    async def status(self, stream_id: int) -> str:
        """Wait for the whole response on a stream and return its status."""
        while stream_id not in self.ended:
            await self.read()
        return self.statuses[stream_id]

    async def reset(self, stream_id: int) -> int:
        """Wait until the server resets a stream and return the error code."""
        while stream_id not in self.resets:
            await self.read()
        return self.resets[stream_id]

    async def works(self) -> None:
        """Check that the connection still serves a call."""
        assert await self.status(await self.call("add", {"a": 1, "b": 2})) == "200"


@contextlib.asynccontextmanager
async def connected(
    folder: Path, caplog: pytest.LogCaptureFixture, options: HttpOptions | None = None, *, window: int = 65535
) -> AsyncIterator[tuple[Made, Http2Client]]:
    config, trusted = over_tls(folder)
    trusted.set_alpn_protocols(["h2"])
    made = Made()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(made.server.serve_http, config=config, options=options))
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


async def test_a_large_answer_takes_as_long_as_its_window_is_opened(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The deadline is for one piece, and any progress renews it: a quarter of a piece in 0.4 seconds is enough."""
    config, trusted = over_tls(tmp_path)
    trusted.set_alpn_protocols(["h2"])
    app = App(b"x" * 8 * PIECE)
    async with over_memory(app, config, tls=config.create_ssl_context(), write_timeout=2) as (stream, _, _):
        client = Http2Client(await tls_client(stream, trusted), 65535)
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
    config, trusted = over_tls(tmp_path)
    trusted.set_alpn_protocols(["h2"])

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

    async with over_memory(app, config, tls=config.create_ssl_context()) as (stream, connection, _):
        client = Http2Client(await tls_client(stream, trusted), 2**20)
        await client.flush()
        assert await client.status(await client.open(b"{}", path="/first")) == "200"
        wire = connection.stream.transport_stream
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
    config, trusted = over_tls(tmp_path)
    trusted.set_alpn_protocols(["h2"])
    async with over_memory(App(read=True), config, tls=config.create_ssl_context()) as (stream, connection, context):
        client = Http2Client(await tls_client(stream, trusted), 65535)
        await client.flush()
        under_way = await client.open(b"{", end=False)
        await trio.testing.wait_all_tasks_blocked()
        await context.terminated.set()
        connection.shut_if_idle()
        assert await client.reset(await client.open(b"{}")) == ErrorCodes.REFUSED_STREAM
        client.connection.end_stream(under_way)
        await client.flush()
        assert await client.status(under_way) == "200"
