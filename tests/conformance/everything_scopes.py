"""What the suite's scenario of scope challenges (SEP-2350) wants of a server: two opaque tokens, and four operations.

Requests without one of the two tokens go to the everything-server, as before.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import hypercorn.trio
import trio

from tests.listening import on_held_port
from trio_mcp import Server
from trio_mcp.auth import Claims, InvalidToken, ResourceServer
from trio_mcp.http.server.options import HttpOptions

LOW: Final = "mcp-conformance-scope-low"
FULL: Final = "mcp-conformance-scope-full"
ISSUER: Final = "https://issuer.example"

BASELINE: Final = "mcp:conformance:baseline"
OPERATIONS: Final[dict[str, tuple[str, dict[str, Any], list[str]]]] = {
    "tool": (
        "tools/call",
        {"name": "test_simple_text"},
        ["mcp:conformance:tools:call", "mcp:conformance:tools:test_simple_text"],
    ),
    "static resource": (
        "resources/read",
        {"uri": "test://static-text"},
        ["mcp:conformance:resources:read", "mcp:conformance:resources:static"],
    ),
    "resource from a template": (
        "resources/read",
        {"uri": "test://template/123/data"},
        ["mcp:conformance:resources:read", "mcp:conformance:resources:template:123"],
    ),
    "prompt": (
        "prompts/get",
        {"name": "test_simple_prompt"},
        ["mcp:conformance:prompts:get", "mcp:conformance:prompts:test_simple_prompt"],
    ),
}
"""Operation -> method, parameters, and all scopes that it needs."""

GRANTED: Final = {
    LOW: [BASELINE],
    FULL: [BASELINE, *(scope for _, _, needed in OPERATIONS.values() for scope in needed)],
}


def protected() -> Server:
    """Return the server of the four operations, each with its scopes."""
    server = Server("trio-mcp-scopes", version="1.0.0")

    @server.tool(scopes=OPERATIONS["tool"][2])
    async def test_simple_text() -> str:
        """Return text."""
        return "This is a simple text response for testing."

    @server.resource("test://static-text", scopes=OPERATIONS["static resource"][2])
    async def static_text() -> str:
        """A text."""
        return "This is the content of the static text resource."

    @server.resource("test://template/{id}/data", scopes=OPERATIONS["resource from a template"][2])
    async def template_data(id: str) -> str:
        """A resource template with an id."""
        return json.dumps({"id": id, "data": f"Data for ID: {id}"})

    @server.prompt(scopes=OPERATIONS["prompt"][2])
    async def test_simple_prompt() -> str:
        """A prompt without arguments."""
        return "This is a simple prompt for testing."

    return server


def protection(resource: str) -> ResourceServer:
    """Return a protection that knows the two tokens."""

    async def verify(token: str) -> Claims:
        if token not in GRANTED:
            raise InvalidToken("it is unknown to the suite")
        await trio.lowlevel.checkpoint()
        return Claims(
            issuer=ISSUER,
            subject="suite",
            audience=resource,
            expires_at=time.time() + 600,
            scopes=" ".join(GRANTED[token]),
        )

    return ResourceServer(resource, issuers=[ISSUER], scopes=[BASELINE], verifier=verify, dpop="off")


@contextlib.asynccontextmanager
async def with_scopes(open_server: Server) -> AsyncIterator[str]:
    """Serve a server, and the protected operations for requests with a token; yield the URL of both."""
    with on_held_port() as (port, config):
        url = f"http://127.0.0.1:{port}/mcp"
        options = HttpOptions(auth=protection(url))
        async with (
            open_server.asgi_app() as plain,
            protected().asgi_app(options=options) as guarded,
            trio.open_nursery() as nursery,
        ):

            async def app(scope: Any, receive: Any, send: Any) -> None:
                fields = dict(scope.get("headers", ()))
                token = fields.get(b"authorization", b"").removeprefix(b"Bearer ").decode("latin-1")
                await (guarded if token in GRANTED else plain)(scope, receive, send)

            await nursery.start(partial(hypercorn.trio.serve, app, config, shutdown_trigger=trio.sleep_forever))
            yield url
            nursery.cancel_scope.cancel()
