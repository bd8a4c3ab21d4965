"""An event stream that is cut anywhere: into chunks, or for good."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.http_peer import Asked, event, peer, result
from tests.transports.http_calls import TEXT, discovered, modern, ok, streamed, works
from tests.transports.support import DEADLINE
from trio_mcp import (
    ClientSession,
    TransportError,
    streamable_http_client,
)

pytestmark = pytest.mark.usefixtures("every_sender")


async def cut_everywhere(pieces: list[bytes]) -> list[str]:
    """Return what a session hears of a stream that arrives in these pieces."""
    heard: list[str] = []

    async def stream(asked: Asked) -> None:
        await asked.begin_events()
        for piece in pieces:
            await asked.chunk(piece)
        await asked.end_events()

    with trio.fail_after(DEADLINE):
        async with (
            peer({"server/discover": discovered, "tools/call": stream}) as server,
            streamable_http_client(server.url) as link,
            ClientSession(*link) as session,
        ):
            await session.discover()

            async def note(notification: Any) -> None:
                heard.append(notification.params["data"])

            session.received_notification = note  # type: ignore[method-assign]
            answer = await session.send_request("tools/call", {"name": "t"})
            heard.append(answer["content"][0]["text"])
            while len(heard) < 2:
                await trio.lowlevel.checkpoint()
    return sorted(heard)


LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "línea\u2028é"}}
WHOLE = (
    b"\xef\xbb\xbf: comment\r\nid: 1\rdata:\n\n"
    + event(LOG).replace(b"\n", b"\r\n")
    + b"event: other\ndata: ignored\n\n"
    + event(result(2, TEXT))
    .replace(b"data: ", b'data: {"jsonrpc": "2.0",\ndata: ')
    .replace(b'{"jsonrpc": "2.0", "id"', b'"id"')
)


async def test_a_stream_may_be_cut_at_every_byte() -> None:
    assert await cut_everywhere([WHOLE[i : i + 1] for i in range(len(WHOLE))]) == ["línea\u2028é", "ok"]
    for place in range(1, len(WHOLE), 29):
        assert await cut_everywhere([WHOLE[:place], WHOLE[place:]]) == ["línea\u2028é", "ok"]


@settings(max_examples=examples(40))
@given(place=st.integers(0, 400), stream=st.booleans())
async def test_a_disconnection_anywhere_fails_one_call_or_none(place: int, stream: bool) -> None:
    async def broken(asked: Asked) -> None:
        sent = 0
        real = asked.stream.send_all

        async def send_all(data: bytes) -> None:
            nonlocal sent
            await real(data[: max(0, place - sent)])
            sent += len(data)

        asked.stream.send_all = send_all  # type: ignore[method-assign]
        await (streamed if stream else ok)(asked)
        await asked.abort()

    async with modern(t=broken) as (_, client):
        with contextlib.suppress(TransportError):
            assert (await client.call_tool("t")).content[0].text == "ok"  # type: ignore[union-attr]
        await works(client)
