"""Ways over HTTP whose server forgets the session: each request is refused on its own, and nothing breaks.

L: 2025-11-25 `basic/transports`, Session Management.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http_peer import Asked, HttpPeer, event
from tests.transports.http_calls import serving
from tests.transports.http_legacy import OldServer, Restarting, text
from tests.transports.support import DEADLINE
from trio_mcp import Client, FailoverParameters, HttpError, OutcomeUnknown

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
async def two_ways(first: Any, second: Any) -> AsyncIterator[tuple[Client, HttpPeer, HttpPeer]]:
    async with serving(first.handlers()) as one, serving(second.handlers()) as other:
        target = FailoverParameters([one.url, other.url], settle=DEADLINE)
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


async def test_a_call_whose_session_is_forgotten_after_it_began_is_unknown() -> None:
    """The 404 refuses the GET that should resume its stream, so it says nothing about the call."""
    first = ForgetfulServer()

    async def begin(asked: Asked) -> None:
        first.refuse_all = True
        await asked.events(event(b"", "e1"))

    async def get(asked: Asked) -> None:
        await asked.status(405 if "last-event-id" not in asked.headers else 404)

    async with two_ways(first, ForgetfulServer()) as (client, one, other):
        one.handlers |= {"tools/call": begin, "GET": get}
        with pytest.raises(OutcomeUnknown) as caught:
            await client.call_tool("t")
        assert isinstance(caught.value.__cause__, HttpError)
        assert "tools/call" not in other.methods()
