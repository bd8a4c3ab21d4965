"""A client of HTTP/2 worked by hand, over TLS."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
from pydantic_core import to_json

from tests.server.http.certificate import over_tls
from tests.server.http.in_memory import over_memory, tls_client
from trio_mcp import types
from trio_mcp.http.runner.serving import Runner

LATEST = "2026-07-28"
META = {types.meta.PROTOCOL_VERSION: LATEST, types.meta.CLIENT_CAPABILITIES: {}}


class Http2Client:
    """A client that opens the windows only when it is told to."""

    def __init__(self, stream: Any, window: int = 65535, table: int = 4096) -> None:
        self.stream = stream
        self.connection = h2.connection.H2Connection(
            h2.config.H2Configuration(validate_outbound_headers=False, header_encoding="utf-8")
        )
        codes = h2.settings.SettingCodes
        initial = {codes.INITIAL_WINDOW_SIZE: window, codes.HEADER_TABLE_SIZE: table}
        self.connection.local_settings = h2.settings.Settings(client=True, initial_values=initial)
        self.connection.decoder.max_allowed_table_size = 2**31
        self.connection.initiate_connection()
        self.statuses: dict[int, str] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}

    async def flush(self) -> None:
        await self.stream.send_all(self.connection.data_to_send())

    async def open(
        self, body: bytes, *, path: str = "/mcp", method: str = "POST", end: bool = True, **more: str
    ) -> int:
        stream_id: int = self.connection.get_next_available_stream_id()
        given = {"content-type": "application/json", "mcp-protocol-version": LATEST, "mcp-method": "tools/call"}
        fields = {name.replace("_", "-"): value for name, value in more.items()}
        pseudo = {":method": method, ":scheme": "https", ":authority": "localhost", ":path": path}
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
async def over_http2(
    app: Callable[..., Awaitable[None]],
    folder: Path,
    *,
    write_timeout: float = 30,
    server_names: Sequence[str] = (),
    **settings: int,
) -> AsyncIterator[tuple[Http2Client, Any, Runner]]:
    """Connect to an application in memory; the settings are the client's."""
    config, trusted = over_tls(folder)
    config.server_names = list(server_names)
    trusted.set_alpn_protocols(["h2"])
    async with over_memory(app, config, tls=config.create_ssl_context(), write_timeout=write_timeout) as ends:
        stream, connection, http = ends
        client = Http2Client(await tls_client(stream, trusted), **settings)
        await client.flush()
        yield client, connection, http
