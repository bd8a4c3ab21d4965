"""The authorization server as an ASGI application, and a function that serves it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import trio

from trio_mcp._nursery import background_nursery, start
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing.answers import ServerResponse
from trio_mcp.http.headers import Headers
from trio_mcp.http.runner.serving import serve_asgi
from trio_mcp.http.runner.settings import settings_at
from trio_mcp.http.server.asgi import ReceiveCallable, Scope, SendCallable

__all__ = ["respond", "served"]

LONGEST_BODY = 64 * 1024


async def respond(
    issuer: str, handle: Callable[[Fetch], ServerResponse], scope: Scope, receive: ReceiveCallable, send: SendCallable
) -> None:
    """Respond to a request that an ASGI server passes on.

    Args:
        issuer: The URL of the application, which is used whatever host the request names.
        handle: Returns the response to a request.
        scope: The scope of the request.
        receive: Receives the next event.
        send: Sends an event.
    """
    if scope["type"] != "http":
        raise NotImplementedError(f"the authorization server serves HTTP only, not {scope['type']}")
    body, more = b"", True
    while more and len(body) <= LONGEST_BODY:
        event = await receive()
        if event["type"] != "http.request":
            return
        body += event.get("body", b"")
        more = event.get("more_body", False)
    if len(body) > LONGEST_BODY:
        await _send(send, 413, [], b"")
        return
    query = scope.get("query_string", b"").decode("latin-1")
    parts = urlsplit(issuer)
    url = f"{parts.scheme}://{parts.netloc}{scope['path']}" + (f"?{query}" if query else "")
    given = handle(Fetch("", scope["method"], url, Headers(scope["headers"]).as_dict(), body))
    async with trio.open_nursery() as nursery:
        if given.ending in ("silent", "endless"):
            # A silent or endless response never ends by itself, so without this task it would go on after the client
            # has left.
            nursery.start_soon(_until_left, receive, nursery.cancel_scope)
        if given.ending != "silent":
            await _answer(given, send)


async def _until_left(receive: ReceiveCallable, scope: trio.CancelScope) -> None:
    await receive()
    scope.cancel("the client has left")


async def _answer(given: ServerResponse, send: SendCallable) -> None:
    fields = [(name.encode(), text.encode("latin-1")) for name, text in given.headers.as_dict().items()]
    if given.ending == "endless":
        await _send(send, given.status, fields, given.body, more=True)
        while True:
            await send({"type": "http.response.body", "body": (given.body or b" ") * 100, "more_body": True})
    fields.append((b"content-length", str(len(given.body)).encode()))
    if given.ending == "cut":
        # The body is shorter than Content-Length announces, which shows the client that the connection broke.
        await _send(send, given.status, fields, given.body[: len(given.body) // 2], more=True)
        return
    await _send(send, given.status, fields, given.body)


async def _send(
    send: SendCallable, status: int, fields: list[tuple[bytes, bytes]], body: bytes, *, more: bool = False
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body, "more_body": more})


@contextlib.asynccontextmanager
async def served(app: Any, host: str, port: int) -> AsyncIterator[str]:
    """Serve an application for the duration of a block, and yield its origin."""
    async with background_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[list[str]]) -> None:  # noqa: ASYNC128 - task_status is passed on
            await serve_asgi(app, settings_at(host, port), runner="h11", task_status=task_status)

        urls: list[str] = await start(nursery, serve)
        yield urls[0]
