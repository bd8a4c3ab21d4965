"""Where a request goes: its parameters, redirections, and the HTTP client of the caller, httpx or httpx2."""

from __future__ import annotations

import contextlib
import gc
import logging
import types
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import httpx2
import pytest
import trio

from tests.http_peer import Asked, peer
from tests.transports.http_calls import (
    Calls,
    connect,
    cut_json,
    discovered,
    modern,
    ok,
    serving,
    streamed,
    works,
)
from tests.transports.support import DEADLINE
from trio_mcp import Client, Disconnected, HttpError, HttpServerParameters, MessageTooLarge, TransportError
from trio_mcp.http.client.sending.on_httpx import response_of
from trio_mcp.http.client.wire import http_wire
from trio_mcp.low_level import streamable_http_client

# --- parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"url": "ftp://x"}, ValueError, "url must begin with http:// or https://"),
        ({"url": "https://"}, ValueError, "name a host"),
        ({"url": "https://x", "kind": "ws"}, ValueError, "url must begin with ws:// or wss://"),
        ({"url": "https://x y"}, ValueError, "spaces"),
        ({"url": "http://[::1/"}, ValueError, "url is not a valid URL: Invalid IPv6"),
        ({"url": "http://x:99999/"}, ValueError, "url is not a valid URL: Port out of range"),
        ({"url": "http://:80/"}, ValueError, "names no host"),
        ({"url": 5}, TypeError, "url must be a string"),
        ({"url": "https://x", "kind": "quic"}, ValueError, "kind must be one of http, sse, ws"),
        ({"url": "https://x", "headers": {"a b": "c"}}, ValueError, "a header can't have"),
        ({"url": "https://x", "headers": {"": "c"}}, ValueError, "a header can't have"),
        ({"url": "https://x", "headers": [1]}, TypeError, "headers must map strings to strings"),
        ({"url": "https://x", "headers": {"a": "secret\r\nb: c"}}, ValueError, "'a'.*line breaks"),
        ({"url": "https://x", "headers": {"a": "secret "}}, ValueError, "'a'.*without spaces around it"),
        ({"url": "https://x", "headers": {"a": "secret é"}}, ValueError, "'a'.*visible ASCII"),
    ],
)
def test_invalid_parameters_are_refused_and_no_secret_is_shown(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match) as caught:
        HttpServerParameters(**arguments)
    assert "secret" not in str(caught.value)


def test_headers_are_not_in_the_representation() -> None:
    parameters = HttpServerParameters("https://x", headers={"Authorization": "secret"})
    assert parameters.headers == {"Authorization": "secret"}
    assert "secret" not in repr(parameters)


# --- redirections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirection_within_the_origin_is_followed(status: int) -> None:
    async def moved(asked: Asked) -> None:
        await (ok(asked) if asked.path == "/new" else asked.status(status, Location="/new"))

    async with modern(t=moved) as (server, client):
        assert (await client.call_tool("t")).content[0].text == "ok"  # type: ignore[union-attr]
        assert server.asked[-1].body["params"]["name"] == "t"


@pytest.mark.parametrize("package", [httpx, httpx2])
@pytest.mark.parametrize("follow", [True, False])
async def test_no_credentials_leave_the_origin(package: Any, follow: bool) -> None:
    """Not even if the caller's own client follows redirections."""
    async with peer() as elsewhere:

        async def moved(asked: Asked) -> None:
            await asked.status(307, Location=elsewhere.url)

        tools = {"server/discover": discovered, "tools/call": Calls(t=moved)}
        async with (
            serving(tools) as server,
            package.AsyncClient(headers={"Authorization": "secret"}, follow_redirects=follow) as http_client,
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
    async with serving(tools) as server, package.AsyncClient(headers={"X-Own": "1"}) as http_client:
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


@pytest.mark.parametrize("package", [httpx, httpx2])
async def test_what_a_hook_of_the_callers_client_raises_fails_the_call(
    package: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Authentication is such a hook: its failure does not end the link."""

    async def hook(request: Any) -> None:
        if b'"bad"' in request.content:
            raise LookupError("no token")

    async with (
        serving({"server/discover": discovered, "tools/call": Calls()}) as server,
        package.AsyncClient(event_hooks={"request": [hook]}) as http_client,
        Client(lambda: streamable_http_client(server.url, http_client=http_client)) as client,
    ):
        with caplog.at_level(logging.CRITICAL, "trio_mcp"), pytest.raises(TransportError, match="no token"):
            await client.call_tool("bad")
        await works(client)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"url": "http://x", "headers": {"a": "b\r\nc: d"}}, ValueError, "line breaks"),
        ({"url": "http://x", "http_client": object()}, TypeError, "AsyncClient of httpx or httpx2, got object"),
        ({"url": "http://x", "max_message_size": 0}, ValueError, "max_message_size"),
    ],
)
async def test_invalid_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        async with streamable_http_client(**arguments):
            raise AssertionError("it opened")


@pytest.mark.parametrize("host", ["x" * 70 + ".invalid", "xn--a", "127.0.0.1:1"])
async def test_a_host_that_is_not_there_fails_with_a_clear_error(host: str, caplog: pytest.LogCaptureFixture) -> None:
    with trio.fail_after(DEADLINE), pytest.raises(TransportError, match=rf"^POST http://{host}/mcp failed: "):
        await connect(f"http://{host}/mcp")
    assert caplog.records == []


async def test_tls_to_a_port_without_it_says_so() -> None:
    """What httpx raises for it has no text of its own."""

    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, plain, 0, host="127.0.0.1"))
        with pytest.raises(TransportError, match=r"ConnectError: .*SSL"):
            await connect(f"https://127.0.0.1:{listener.socket.getsockname()[1]}/")
        nursery.cancel_scope.cancel()


# --- single exchanges --------------------------------------------------------------------------------------------


async def endless(asked: Asked) -> None:
    await asked.begin_events()
    with contextlib.suppress(trio.BrokenResourceError):
        while True:
            await asked.chunk(b": still here\n\n" * 100)


def left_behind() -> list[Any]:
    """Return the HTTP packages' generators that began and never ended; a warning about one is easily missed."""
    gc.collect()
    generators = [each for each in gc.get_objects() if isinstance(each, types.AsyncGeneratorType)]
    left = [each for each in generators if each.ag_frame is not None]
    return [each for each in left if "/site-packages/http" in each.ag_code.co_filename]


@pytest.mark.parametrize("package", [httpx, httpx2])
@pytest.mark.parametrize("how", ["unread", "begun", "too large", "raising", "cancelled"])
async def test_an_answer_that_is_left_early_leaves_no_generator_and_no_connection(package: Any, how: str) -> None:
    """httpx nests several: an unfinished one is left to the garbage collector, which can't await."""
    async with (
        serving({"GET": endless}) as server,
        package.AsyncClient() as http_client,
        http_wire(server.url, None, http_client) as wire,
    ):
        before = len(left_behind())
        with contextlib.suppress(MessageTooLarge, LookupError, Disconnected), trio.CancelScope() as scope:
            async with wire.exchange("GET", {}) as response:
                if how != "unread":
                    assert await response.receive()
                if how == "too large":
                    await response.body(1000)
                if how == "raising":
                    raise LookupError
                if how == "cancelled":
                    scope.cancel()
                    await response.receive()
        assert len(left_behind()) == before
        await server.until_live(0)


class Buffered:
    """A body of many small parts that have already arrived, after which nothing comes; as httpx delivers it."""

    status_code = 200
    headers = httpx.Headers()

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.unwound = False
        self.stream = self._read()

    async def _read(self) -> AsyncIterator[bytes]:
        try:
            for _ in range(self.parts):
                yield b"."
            await trio.sleep_forever()
        finally:
            self.unwound = True

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("how", ["read", "left unread"])
async def test_many_small_parts_already_received_let_other_tasks_run(how: str) -> None:
    """The peer chooses the number of chunks: one system call can bring ten thousand."""
    body = Buffered(10_000)
    response = response_of(body, "GET x", ())
    done = trio.Event()
    turns = 0

    async def another_task() -> None:
        nonlocal turns
        while not done.is_set():
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(another_task)
        if how == "read":
            with contextlib.suppress(MessageTooLarge):
                await response.body(9_999)
        else:
            assert await response.receive()
            await response.aclose()
            assert body.unwound
        done.set()
    assert turns >= 100
    if not body.unwound:
        await response.aclose()
