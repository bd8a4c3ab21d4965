"""Ways over HTTP whose server forgets the session: each request is refused on its own, and nothing breaks.

L: 2025-11-25 `basic/transports`, Session Management.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from tests.http_peer import Asked, HttpPeer, event, giving
from tests.transports.http_calls import serving
from tests.transports.http_legacy import QUICK, OldServer, Restarting, text
from tests.transports.support import DEADLINE
from trio_mcp import Backoff, Client, FailoverParameters, OutcomeUnknown, TransportError
from trio_mcp.client.failover.ways import MAX_FAILED
from trio_mcp.low_level import streamable_http_client

pytestmark = pytest.mark.legacy

UNKNOWN = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "the session is unknown"}}


class ForgetfulOldServer(OldServer):
    """A server of 2024-11-05 that forgets its sessions when told to, and leaves their streams open."""

    refuse_all = False

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "ping": self.post}

    async def post(self, asked: Asked) -> None:
        await (asked.status(404, UNKNOWN) if self.refuse_all else super().post(asked))


class ForgetfulServer(Restarting):
    """The same of a later revision."""

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "ping": self.call}


KINDS: dict[str, Any] = {"HTTP+SSE": ForgetfulOldServer, "Streamable HTTP": ForgetfulServer}


@contextlib.asynccontextmanager
async def two_ways(
    first: Any, second: Any, reconnect: Backoff | None = None
) -> AsyncIterator[tuple[Client, HttpPeer, HttpPeer]]:
    async with serving(first.handlers()) as one, serving(second.handlers()) as other:
        ways: list[Any] = [one.url, other.url]
        if reconnect is not None:
            ways = [partial(streamable_http_client, url, reconnect=reconnect) for url in ways]
        target = FailoverParameters(ways, settle=DEADLINE)
        async with Client(target, mode="legacy") as client:
            assert await text(client) == "ok"
            yield client, one, other


@pytest.mark.parametrize("kind", list(KINDS))
async def test_a_call_goes_elsewhere_if_the_server_has_forgotten_the_session(kind: str) -> None:
    """Though it may not be repeated: what is refused with 404 was not begun (L, 3 and 4)."""
    first, second = KINDS[kind](), KINDS[kind]()
    async with two_ways(first, second) as (client, _, other):
        first.refuse_all = True
        assert await text(client) == "ok"
        assert (client.transport.carrier, client.transport.unknown) == (other.url, 0)
        assert other.methods().count("tools/call") == 1


class ServerThatLosesStreams(ForgetfulServer):
    """A server whose calls begin a stream, which breaks and can't be resumed."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "tools/list": giving({"tools": [LOOK]}), "GET": self.get}

    async def call(self, asked: Asked) -> None:
        if asked.rpc == "ping" or asked.body["params"]["name"] == "t":
            await super().call(asked)
        else:
            self.refuse_all = self.status == 404
            await asked.events(event(b"", "e1"))

    async def get(self, asked: Asked) -> None:
        await asked.status(405 if "last-event-id" not in asked.headers else self.status)


LOOK = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


@pytest.mark.parametrize("status", [401, 404, 405])
async def test_a_call_whose_stream_can_not_be_resumed_is_unknown(status: int) -> None:
    """The status refuses the GET that should resume the stream, so it says nothing about the call."""
    async with two_ways(ServerThatLosesStreams(status), ForgetfulServer(), QUICK) as (client, _, other):
        with pytest.raises(OutcomeUnknown, match="can't be resumed") as caught:
            await client.call_tool("buy")
        assert isinstance(caught.value.__cause__, TransportError)
        assert "tools/call" not in other.methods()


async def test_calls_whose_streams_can_not_be_resumed_go_to_the_next_way_if_they_may_be_repeated() -> None:
    """The first way gives signs of life, so the next is tried only when several calls have failed."""
    async with two_ways(ServerThatLosesStreams(405), ForgetfulServer(), QUICK) as (client, one, other):
        await client.list_tools()
        for number in range(1, MAX_FAILED):
            with pytest.raises(OutcomeUnknown):
                await client.call_tool("buy")
            await one.until("ping", number)
        assert await text(client, "look") == "ok"
        assert client.transport.switches == 1
        assert other.methods().count("tools/call") == 1
