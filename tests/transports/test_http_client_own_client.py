"""Where a request goes: redirections, and the HTTP client of the caller."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import httpx
import httpx2
import pytest
import trio

from tests.http_peer import Asked, peer
from tests.transports.http_calls import (
    Calls,
    cut_json,
    discovered,
    modern,
    ok,
    streamed,
    works,
)
from tests.transports.support import DEADLINE
from trio_mcp import (
    Client,
    HttpError,
    TransportError,
    streamable_http_client,
)

# --- redirections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirection_within_the_origin_is_followed(status: int) -> None:
    async def moved(asked: Asked) -> None:
        await (ok(asked) if asked.path == "/new" else asked.status(status, Location="/new"))

    async with modern(t=moved) as (server, client):
        assert (await client.call_tool("t")).content[0].text == "ok"  # type: ignore[union-attr]
        assert server.asked[-1].body["params"]["name"] == "t"


@pytest.mark.parametrize("follow", [True, False])
async def test_no_credentials_leave_the_origin(follow: bool) -> None:
    """Not even if the caller's own client follows redirections."""
    async with peer() as elsewhere:

        async def moved(asked: Asked) -> None:
            await asked.status(307, Location=elsewhere.url)

        tools = {"server/discover": discovered, "tools/call": Calls(t=moved)}
        with trio.fail_after(DEADLINE):
            async with (
                peer(tools) as server,
                httpx.AsyncClient(headers={"Authorization": "secret"}, follow_redirects=follow) as http_client,
                Client(lambda: streamable_http_client(server.url, http_client=http_client)) as client,
            ):
                with pytest.raises(HttpError, match="redirection"):
                    await client.call_tool("t")
                assert server.asked[-1].headers["authorization"] == "secret"
        assert elsewhere.asked == []


async def test_redirections_that_go_in_circles_end() -> None:
    async def round_and_round(asked: Asked) -> None:
        await asked.status(307, Location="/b" if asked.path == "/a" else "/a")

    async with modern(t=round_and_round) as (server, client):
        with pytest.raises(HttpError, match="307"):
            await client.call_tool("t")
        assert len(server.asked) < 10


# --- the HTTP client of the caller ------------------------------------------------------------------------------


@pytest.mark.parametrize("package", [httpx, httpx2])
async def test_the_callers_own_http_client_is_used_and_left_open(package: Any) -> None:
    tools = {"server/discover": discovered, "tools/call": Calls(t=streamed, cut=cut_json)}
    with trio.fail_after(DEADLINE):
        async with peer(tools) as server, package.AsyncClient(headers={"X-Own": "1"}) as http_client:
            async with Client(
                lambda: streamable_http_client(server.url, headers={"X-Mine": "2"}, http_client=http_client)
            ) as client:
                await client.call_tool("t")
                with pytest.raises(TransportError):
                    await client.call_tool("cut")
            assert not http_client.is_closed
            assert (await http_client.get(server.url)).status_code == 405
        assert {asked.headers["x-own"] for asked in server.asked} == {"1"}
        assert {asked.headers.get("x-mine") for asked in server.asked if asked.body} == {"2"}


async def test_what_a_hook_of_the_callers_client_raises_fails_the_call(caplog: pytest.LogCaptureFixture) -> None:
    """Authentication is such a hook: its failure does not end the link."""

    async def hook(request: httpx.Request) -> None:
        if b'"bad"' in request.content:
            raise LookupError("no token")

    with trio.fail_after(DEADLINE):
        async with (
            peer({"server/discover": discovered, "tools/call": Calls()}) as server,
            httpx.AsyncClient(event_hooks={"request": [hook]}) as http_client,
            Client(lambda: streamable_http_client(server.url, http_client=http_client)) as client,
        ):
            with caplog.at_level(logging.CRITICAL, "trio_mcp"), pytest.raises(TransportError, match="no token"):
                await client.call_tool("bad")
            await works(client)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"url": "ftp://x"}, ValueError, "http"),
        ({"url": "http://x", "headers": {"a": "b\r\nc: d"}}, ValueError, "line breaks"),
        ({"url": "http://x", "http_client": object()}, TypeError, "AsyncClient of httpx or httpx2, got object"),
        ({"url": "http://x", "max_message_size": 0}, ValueError, "max_message_size"),
    ],
)
async def test_invalid_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        async with streamable_http_client(**arguments):
            raise AssertionError("it opened")


async def test_tls_to_a_port_without_it_says_so() -> None:
    """What httpx raises for it has no text of its own."""

    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, plain, 0, host="127.0.0.1"))
        with pytest.raises(TransportError, match=r"ConnectError: .*SSL"):
            async with Client(f"https://127.0.0.1:{listener.socket.getsockname()[1]}/"):
                raise AssertionError("it opened")
        nursery.cancel_scope.cancel()
