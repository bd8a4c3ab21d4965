"""The legacy era without sessions: every POST stands alone."""

from __future__ import annotations

import httpx
import pytest

from tests.http_peer import Events, Raw, request
from tests.server.http.harness import Made, served
from trio_mcp import types
from trio_mcp.http.server.options import HttpOptions

pytestmark = pytest.mark.legacy

STATELESS = HttpOptions(stateless=True)


def client(http: httpx.AsyncClient) -> Raw:
    raw = Raw(http)
    raw.revision = "2025-06-18"
    return raw


async def test_a_server_without_sessions_declares_no_notifications() -> None:
    """`server/tools`, Capabilities: a server that declares ``listChanged`` will notify; without sessions it can't."""
    made = Made()

    @made.server.resource("config://app")
    async def config() -> str:
        return "it"

    made.server.prompt(name="ask")(config)
    async with served(STATELESS, made) as (_, http, _):
        raw = client(http)
        opened = await raw.initialize("2025-06-18")
        assert opened["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
        r = await raw.post("resources/subscribe", {"uri": "config://app"})
        assert (r.status_code, r.json()["error"]["code"]) == (200, types.METHOD_NOT_FOUND)
        r = await raw.post("resources/read", {"uri": "config://app"})
        assert r.json()["result"]["contents"][0]["text"] == "it"


async def test_without_a_version_header_it_is_2025_03_26_which_has_batches() -> None:
    """Protocol Version Header: the server SHOULD assume 2025-03-26."""
    async with served(STATELESS) as (_, http, _):
        raw = Raw(http)
        r = await raw.send([request("ping", None, 1), request("tools/list", {}, 2)])
        assert {each["id"] for each in r.json()} == {1, 2}


async def test_a_server_without_sessions_asks_nothing() -> None:
    async with served(STATELESS) as (_, http, _):
        r = await client(http).post("tools/call", {"name": "greet", "arguments": {}})
        assert r.json()["error"]["code"] == types.MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_a_disconnect_cancels_a_request_that_cannot_be_resumed() -> None:
    """There is no session to return to, nor one to send a cancellation in."""
    async with served(STATELESS) as (made, http, _):
        async with client(http).call("wait", {"progress": 1}) as r:
            await Events(r).message()
        await made.cancelled.wait()
