"""HTTP by hand, to do what no well-behaved peer does.

`peer` is a server that is a script of raw bytes; `Raw` is a client of the legacy era, as any HTTP client could be;
`http_request` is for clients that write their own bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import attrs
import httpx
import trio
from pydantic_core import from_json, to_json

from tests.peer import ME
from trio_mcp._nursery import background_nursery
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.http.sse import EventDecoder, ServerSentEvent

__all__ = [
    "ACCEPT",
    "DISCOVERED",
    "INITIALIZED",
    "LATEST",
    "Asked",
    "Events",
    "Handler",
    "HttpPeer",
    "Raw",
    "event",
    "giving",
    "http_request",
    "never",
    "peer",
    "plain",
    "progress",
    "request",
    "result",
    "streaming",
]

LATEST = "2025-11-25"
ACCEPT = "application/json, text/event-stream"
CAPABILITIES: dict[str, Any] = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
INITIALIZED = {"protocolVersion": LATEST, "capabilities": CAPABILITIES, "serverInfo": ME}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": CAPABILITIES,
    "ttlMs": 0,
    "cacheScope": "private",
}


def event(message: Any, id: str | None = None) -> bytes:
    """Return a message as a server-sent event."""
    head = b"" if id is None else f"id: {id}\n".encode()
    return head + b"data: " + (message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n\n"


def result(request_id: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": dict(content)}


def progress(token: Any, number: float) -> dict[str, Any]:
    params = {"progressToken": token, "progress": number}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


@attrs.define(eq=False)
class Asked:
    """One HTTP request, and methods to respond to it."""

    stream: trio.SocketStream
    connection: int
    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def rpc(self) -> str:
        """The method of the message, or ``answer``."""
        return str(self.body.get("method", "answer")) if isinstance(self.body, dict) else self.method

    @property
    def id(self) -> Any:
        return self.body["id"]

    async def raw(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def status(self, status: int, body: bytes | Any = b"", **headers: str) -> None:
        """Answer in one piece."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"content_type": "application/json", **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        await self.raw(f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    async def result(self, content: Mapping[str, Any], **headers: str) -> None:
        await self.status(200, result(self.id, content), **headers)

    async def error(self, status: int, code: int, message: str = "no", data: Any = None) -> None:
        await self.status(status, {"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": message}})

    async def begin_events(self, **headers: str) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        await self.raw(f"{head}{lines}\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end_events(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def events(self, *pieces: bytes, then: str = "end_events", **headers: str) -> None:
        """Answer with these pieces of a stream of events, and then ``end_events``, ``abort``, or wait: ``gone``."""
        await self.begin_events(**headers)
        for piece in pieces:
            await self.chunk(piece)
        await getattr(self, then)()

    async def gone(self) -> None:
        """Wait until the client closes the connection."""
        with contextlib.suppress(trio.BrokenResourceError):
            while await self.stream.receive_some(65536):
                pass

    async def abort(self) -> None:
        await trio.aclose_forcefully(self.stream)


Handler = Callable[[Asked], Awaitable[None]]


@attrs.define(eq=False)
class HttpPeer:
    """The server.

    Attributes:
        url: Its endpoint.
        asked: Every request so far.
        live: Connections that are open.
        handlers: By JSON-RPC method, ``GET``, ``DELETE``, ``answer``; what is missing is answered as a legacy server
            with a session would.
        session: The id of the session of the legacy era.
        otherwise: Responds to requests without a handler, in place of that legacy server.
    """

    handlers: dict[str, Handler]
    url: str = ""
    asked: list[Asked] = attrs.field(factory=list)
    live: int = 0
    connections: int = 0
    session: str = "s1"
    otherwise: Handler | None = None
    idle: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    heard: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    def methods(self) -> list[str]:
        return [asked.rpc if asked.body is not None else asked.method for asked in self.asked]

    async def until(self, method: str, times: int = 1) -> Asked:
        """Wait until a method has been requested this many times; return the last request."""
        while self.methods().count(method) < times:
            await self.heard.park()
        return [asked for asked in self.asked if method in (asked.rpc, asked.method)][times - 1]

    async def until_live(self, number: int) -> None:
        while self.live > number:
            await self.idle.park()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.live += 1
        self.connections += 1
        try:
            await self._serve(stream, self.connections)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.live -= 1
            self.idle.unpark_all()

    async def _serve(self, stream: trio.SocketStream, number: int) -> None:
        buffer = b""
        async with stream:
            while True:
                while b"\r\n\r\n" not in buffer:
                    data = await stream.receive_some(65536)
                    if not data:
                        return
                    buffer += data
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                method, path, _ = first.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                length = int(headers.get("content-length", 0))
                while len(buffer) < length:
                    data = await stream.receive_some(65536)
                    if not data:
                        return
                    buffer += data
                body, buffer = buffer[:length], buffer[length:]
                asked = Asked(stream, number, method, path, headers, json.loads(body) if body else None)
                self.asked.append(asked)
                self.heard.unpark_all()
                await self.handle(asked)

    async def handle(self, asked: Asked) -> None:
        name = asked.rpc if asked.body is not None else asked.method
        if name in self.handlers:
            await self.handlers[name](asked)
        elif self.otherwise is not None:
            await self.otherwise(asked)
        elif name == "initialize":
            await asked.result(INITIALIZED, Mcp_Session_Id=self.session)
        elif name == "server/discover":
            await asked.status(400)
        elif name in ("GET", "DELETE"):
            await asked.status(405)
        elif "id" in asked.body and "method" in asked.body:
            await asked.result({})
        else:
            await asked.status(202)


# --- handlers -----------------------------------------------------------------------------------------------------


def plain(status: int, body: bytes | Any = b"", **headers: str) -> Handler:
    """Answer in one piece."""

    async def handle(asked: Asked) -> None:
        await asked.status(status, body, **headers)

    return handle


def giving(content: Mapping[str, Any], **headers: str) -> Handler:
    """Answer with a result."""

    async def handle(asked: Asked) -> None:
        await asked.result(content, **headers)

    return handle


def streaming(*pieces: bytes | Callable[[Asked], bytes], then: str = "end_events", **headers: str) -> Handler:
    """Answer with such events, which may depend on the request."""

    async def handle(asked: Asked) -> None:
        made = [piece if isinstance(piece, bytes) else piece(asked) for piece in pieces]
        await asked.events(*made, then=then, **headers)

    return handle


async def never(asked: Asked) -> None:
    """Don't answer."""
    await asked.gone()


@contextlib.asynccontextmanager
async def peer(handlers: Mapping[str, Handler] | None = None) -> AsyncIterator[HttpPeer]:
    """Run a server within the block."""
    ORIGINS.clear()
    made = HttpPeer(dict(handlers or {}))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
    try:
        async with background_nursery() as nursery:
            await nursery.start(_serve, made, listener)
            yield made
    finally:
        ORIGINS.clear()


async def _serve(made: HttpPeer, listener: trio.SocketListener, task_status: trio.TaskStatus[object]) -> None:
    await trio.serve_listeners(made.serve, [listener], task_status=task_status)


# --- clients -------------------------------------------------------------------------------------------------------


def http_request(
    method: str, body: Any = b"", path: str = "/mcp", *, length: int | None = None, **fields: str
) -> bytes:
    """Return the bytes of a request: any body but bytes becomes JSON, and the length may be wrong."""
    data = body if isinstance(body, bytes) else to_json(body)
    given = {"host": "localhost", "accept": ACCEPT, "content-type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    size = len(data) if length is None else length
    return f"{method} {path} HTTP/1.1\r\n{lines}content-length: {size}\r\n\r\n".encode() + data


class Raw:
    """A client of one session, as any HTTP client could be."""

    def __init__(self, http: httpx.AsyncClient, path: str = "/mcp") -> None:
        self.http = http
        self.path = path
        self.session: str | None = None
        self.revision: str | None = None

    def headers(self, **more: str) -> dict[str, str]:
        headers = {"accept": ACCEPT}
        if self.session is not None:
            headers["mcp-session-id"] = self.session
        if self.revision is not None:
            headers["mcp-protocol-version"] = self.revision
        return headers | {name.replace("_", "-"): value for name, value in more.items()}

    async def initialize(self, revision: str = LATEST, **capabilities: Any) -> dict[str, Any]:
        params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": ME}
        r = await self.post("initialize", params, id=0)
        assert r.status_code == 200, r.text
        self.session = r.headers.get("mcp-session-id")
        self.revision = revision if revision != "2025-03-26" else None
        assert (await self.notify("notifications/initialized")).status_code == 202
        result: dict[str, Any] = r.json()["result"]
        return result

    async def post(self, method: str, params: dict[str, Any] | None = None, *, id: int = 1, **more: str) -> Any:
        return await self.send(request(method, params, id), **more)

    async def send(self, body: Any, **more: str) -> httpx.Response:
        return await self.http.post(self.path, json=body, headers=self.headers(**more))

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> httpx.Response:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        return await self.send(body if params is None else {**body, "params": params})

    def call(self, tool: str, arguments: dict[str, Any] | None = None, *, id: int = 1, token: Any = "t") -> Any:
        params = {"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": token}}
        body = request("tools/call", params, id)
        return self.http.stream("POST", self.path, json=body, headers=self.headers())

    def listen(self, last: str | None = None) -> Any:
        more = {} if last is None else {"last_event_id": last}
        return self.http.stream("GET", self.path, headers={**self.headers(**more), "accept": "text/event-stream"})


def request(method: str, params: dict[str, Any] | None, id: int) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": id, "method": method}
    return body if params is None else {**body, "params": params}


class Events:
    """The events of a response."""

    def __init__(self, response: httpx.Response) -> None:
        self.decoder = EventDecoder()
        self._iterator = self._read(response)
        # For as long as the response: the end of the iterator, at a collection of garbage, would be the response's.
        response.extensions["events"] = self

    async def _read(self, response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
        assert response.headers["content-type"] == "text/event-stream", (response.status_code, response.headers)
        async for chunk in response.aiter_bytes():
            for event in self.decoder.feed(chunk):
                assert isinstance(event, ServerSentEvent)
                yield event

    def __aiter__(self) -> AsyncIterator[ServerSentEvent]:
        return self._iterator

    async def next(self) -> ServerSentEvent:
        return await anext(self._iterator)

    async def message(self) -> Any:
        while not (event := await self.next()).data:
            pass
        return from_json(event.data)

    async def messages(self) -> list[Any]:
        return [from_json(event.data) async for event in self._iterator if event.data]
