"""Which era a server speaks is found out as the specification says, once for each origin.

S: 2026-07-28 `basic/transports/streamable-http`, section Backward Compatibility.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.http_peer import giving, never, plain, streaming
from tests.transports.http_calls import connect, discovered, serving
from tests.transports.http_legacy import OldServer
from trio_mcp import (
    CallOptions,
    Client,
    HttpError,
    HttpServerParameters,
    McpError,
    NegotiationError,
    RemoteProtocolError,
    SessionOptions,
    TransportError,
)
from trio_mcp.http.client.origins import MAX_AGE, MAX_ORIGINS, Origins


def error_of(code: int, **more: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no", **more}}


@pytest.mark.legacy
@pytest.mark.parametrize("status", [400, 404, 405, 406, 422])
@pytest.mark.parametrize("body", [b"", b"<html>", error_of(-32600), error_of(-32601)])
async def test_any_refusal_that_is_not_modern_leads_to_the_handshake(status: int, body: object) -> None:
    """The body is empty or is not a recognized modern JSON-RPC error: fall back to initialize."""
    async with serving({"server/discover": plain(status, body)}) as server, Client(server.url) as client:
        assert client.protocol_version == "2025-11-25"
        await client.ping()
    assert server.methods()[:3] == ["server/discover", "initialize", "notifications/initialized"]
    ping = next(asked for asked in server.asked if asked.rpc == "ping")
    assert (ping.headers["mcp-session-id"], ping.headers["mcp-protocol-version"]) == ("s1", "2025-11-25")


@pytest.mark.parametrize(
    ("discover", "said"),
    [
        (plain(400, error_of(-32022, data={"supported": ["2027-01-01"]})), "2027-01-01"),
        (giving({"supportedVersions": ["x" * 1000] * 1000, "capabilities": {}}), "the server serves xxx"),
    ],
    ids=["refused", "answered"],
)
async def test_a_modern_server_of_other_revisions_gets_no_handshake(discover: Any, said: str) -> None:
    """It speaks a modern version: the error names those it serves, but repeats no list in full."""
    async with serving({"server/discover": discover}) as server:
        with pytest.raises(NegotiationError, match=said) as caught:
            await connect(server.url)
        assert server.methods() == ["server/discover"]
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize(
    ("status", "trouble"),
    [(401, "unauthorized"), (403, "forbidden"), (429, "busy"), (500, "refused"), (502, "gateway")],
)
async def test_a_status_that_says_nothing_of_eras_is_the_outcome(status: int, trouble: str) -> None:
    async with serving({"server/discover": plain(status, b"why", retry_after="7")}) as server:
        with pytest.raises(HttpError, match="why") as caught:
            await connect(server.url)
    assert (caught.value.status, caught.value.trouble, caught.value.retry_after) == (status, trouble, 7)
    assert "initialize" not in server.methods()


@pytest.mark.legacy
@pytest.mark.parametrize("refused", [plain(400), plain(200, error_of(-32601))], ids=["status", "message"])
async def test_a_legacy_server_is_remembered_by_its_origin(refused: Any) -> None:
    """The second client sends no modern request; one that has a mode does as it says."""
    async with serving({"server/discover": refused}) as server:
        for _ in range(2):
            async with Client(server.url) as client:
                assert client.protocol_version == "2025-11-25"
        assert server.methods().count("server/discover") == 1
        with pytest.raises((HttpError, McpError), match=r"400|32601"):
            await connect(server.url, mode="2026-07-28")
        assert server.methods().count("server/discover") == 2


@pytest.mark.legacy
@pytest.mark.parametrize(
    "refusal",
    [error_of(-32022, data={"supported": ["2026-07-28"]}), error_of(-32601)],
    ids=["naming its revisions", "as an unknown method"],
)
async def test_a_legacy_server_that_has_become_modern_is_noticed(refusal: Any) -> None:
    """What is remembered is a hint: a refusal of the handshake corrects it."""
    async with serving() as server:
        async with Client(server.url):
            pass
        server.handlers["server/discover"] = discovered
        server.handlers["initialize"] = plain(400, refusal)
        async with Client(server.url) as client:
            assert client.protocol_version == "2026-07-28"
        server.asked.clear()
        async with Client(server.url):
            pass
    assert server.methods() == ["server/discover"]


@pytest.mark.legacy
async def test_a_remembered_legacy_server_that_refuses_the_handshake_is_not_taken_for_a_modern_one() -> None:
    async with serving() as server:
        async with Client(server.url):
            pass
        server.handlers["initialize"] = plain(400, error_of(-32000))
        with pytest.raises(McpError, match="-32000"):
            await connect(server.url)


@pytest.mark.legacy
@pytest.mark.parametrize(
    ("discover", "how"),
    [(discovered, {"mode": "legacy"}), (never, {"options": SessionOptions(calls=CallOptions(probe_timeout=0.05))})],
    ids=["asked for", "silence"],
)
async def test_a_handshake_that_says_nothing_of_the_server_is_not_remembered(
    discover: Any, how: dict[str, Any]
) -> None:
    """A later client of a server of both eras still speaks the modern one."""
    async with serving({"server/discover": discover}) as server:
        async with Client(server.url, **how) as client:
            assert client.protocol_version == "2025-11-25"
        server.handlers["server/discover"] = discovered
        async with Client(server.url) as client:
            assert client.protocol_version == "2026-07-28"


def test_remembered_eras_expire() -> None:
    """A server that is updated is found out in the end."""
    now = 0.0
    origins = Origins(lambda: now)
    origins.note("http://x/", "legacy")
    now = MAX_AGE
    assert origins.recall("http://x/") == "legacy"
    now += 1
    assert origins.recall("http://x/") is None
    assert len(origins) == 0


async def test_what_is_remembered_is_bounded() -> None:
    origins = Origins()
    for number in range(MAX_ORIGINS + 10):
        origins.note(f"http://host-{number}/", "legacy")
        origins.recall("http://host-0:80/elsewhere")
    assert len(origins) == MAX_ORIGINS
    assert origins.recall("http://host-0/") == "legacy"
    assert origins.recall("http://host-1/") is None


# --- HTTP+SSE of 2024-11-05 -------------------------------------------------------------------------------------


@pytest.mark.legacy
@pytest.mark.parametrize("explicit", [True, False])
async def test_a_server_of_2024_is_spoken_to_over_http_and_sse(explicit: bool, autojump_clock: MockClock) -> None:
    """400, 404 or 405 to initialize: GET the URL, expect an endpoint event; messages go there."""
    old = OldServer()
    async with serving(old.handlers()) as server:
        target = HttpServerParameters(server.url, kind="sse") if explicit else server.url
        async with Client(target) as client:
            assert client.protocol_version == "2024-11-05"
            assert (await client.list_tools()).tools == []
            with pytest.raises(TimeoutError):
                await client.list_prompts(timeout=0.01)
            assert (await server.until("notifications/cancelled")).path.startswith("/messages?session=")
        server.asked.clear()
        async with Client(server.url) as client:
            assert client.protocol_version == "2024-11-05"
    if not explicit:  # it is remembered
        assert server.methods()[:3] == ["GET", "initialize", "notifications/initialized"]


@pytest.mark.legacy
async def test_the_end_of_the_old_stream_is_the_loss_of_the_link() -> None:
    old = OldServer()
    async with serving(old.handlers()) as server, Client(server.url) as client, trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(TransportError, match="ended the event stream"):
                await client.list_prompts()

        nursery.start_soon(call)
        await server.until("prompts/list")
        (stream,) = old.streams.values()
        await stream.end_events()


@pytest.mark.legacy
async def test_an_endpoint_elsewhere_is_not_followed() -> None:
    """It would get the credentials of this server."""
    get = streaming(b"event: endpoint\ndata: https://elsewhere.example/take\n\n", then="gone")
    async with serving({"GET": get}) as server:
        with pytest.raises(RemoteProtocolError, match="endpoint event"):
            await connect(HttpServerParameters(server.url, kind="sse"))


@pytest.mark.legacy
async def test_a_url_without_an_endpoint_raises_the_refusal_of_the_handshake() -> None:
    """Neither era, nor HTTP+SSE: the error is that of the handshake, and says what to look at."""
    async with serving({"server/discover": plain(404), "initialize": plain(404, b"no such page")}) as server:
        with pytest.raises(HttpError, match=r"no such page \(is this the URL of an MCP server\?\)"):
            await connect(server.url)
    assert server.methods() == ["server/discover", "initialize", "GET"]
