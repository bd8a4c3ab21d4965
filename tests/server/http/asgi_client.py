"""HTTP exchanges with the application itself, without a socket."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import trio

from trio_mcp.http.server.app import HttpApp
from trio_mcp.http.sse import EventDecoder, ServerSentEvent

ACCEPT = b"application/json, text/event-stream"


class Connection:
    """One HTTP exchange with the application, which the client may leave at any time."""

    def __init__(self, method: str, headers: dict[str, str], body: bytes, path: str = "/mcp") -> None:
        path, _, query = path.partition("?")
        fields = {"host": "localhost", "accept": ACCEPT.decode(), "content-type": "application/json", **headers}
        self.fields = fields
        encoded = [(name.encode(), value.encode()) for name, value in fields.items()]
        self.scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": encoded}
        self.scope["query_string"] = query.encode()
        self.left, self.over = trio.Event(), trio.Event()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.more = False
        self._request: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body}]

    async def run(self, app: HttpApp) -> None:
        await app(self.scope, self._receive, self._send)
        self.over.set()

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._request:
            return self._request.pop() | {"more_body": self.more}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        if self.left.is_set():
            return  # what is in flight when the client disconnects is silently lost
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = {name.decode(): value.decode() for name, value in event["headers"]}
        else:
            self.body += event["body"]

    def events(self) -> list[ServerSentEvent]:
        decoder = EventDecoder()
        return [event for event in decoder.feed(self.body) if isinstance(event, ServerSentEvent)]
