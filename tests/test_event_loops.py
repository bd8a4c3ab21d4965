"""On another event loop than Trio, every way into the library is one error that says what to do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest
import trio

from tests.blocking.serving import stdio
from trio_mcp import Client, ClientGroup, ProxyServer, Server, StdioServerParameters
from trio_mcp.low_level import (
    ClientSession,
    failover_client,
    memory_link_pair,
    sse_client,
    stdio_client,
    stdio_server,
    stream_link,
    streamable_http_client,
    tcp_client,
    unix_client,
    websocket_client,
)

URL = "http://localhost:1/mcp"
PROCESS = StdioServerParameters("no-such-program")
ANY: Any = None

ENTERED: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[Any]]] = {
    "Client": lambda: Client(URL),
    "ClientGroup": lambda: ClientGroup({"a": Server("a")}),
    "ClientSession": lambda: ClientSession(*reversed(trio.open_memory_channel[Any](1))),
    "Server.asgi_app": lambda: Server("x").asgi_app(),
    "failover_client": lambda: failover_client([URL, PROCESS]),
    "memory_link_pair": memory_link_pair,
    "sse_client": lambda: sse_client(URL),
    "stdio_client": lambda: stdio_client(PROCESS),
    "stdio_server": stdio_server,
    "stream_link": lambda: stream_link(ANY),
    "streamable_http_client": lambda: streamable_http_client(URL),
    "tcp_client": lambda: tcp_client("tcp://localhost:1"),
    "unix_client": lambda: unix_client("/no/such/socket"),
    "websocket_client": lambda: websocket_client("ws://localhost:1"),
}
AWAITED: dict[str, Callable[[Server | ProxyServer], Awaitable[object]]] = {
    "serve": lambda server: server.serve(ANY),
    "serve_http": lambda server: server.serve_http(port=0),
    "serve_sse": lambda server: server.serve_sse(port=0),
    "serve_stdio": lambda server: server.serve_stdio(),
    "serve_tcp": lambda server: server.serve_tcp(port=0),
    "serve_unix": lambda server: server.serve_unix("/no/such/socket"),
    "serve_websocket": lambda server: server.serve_websocket(port=0),
}


async def entered(name: str) -> None:
    async with ENTERED[name]():
        pass


@pytest.mark.parametrize("name", [*ENTERED, *AWAITED])
@pytest.mark.parametrize("run", [asyncio.run, lambda main: anyio.run(lambda: main)], ids=["asyncio", "anyio"])
def test_on_asyncio_it_says_what_to_do(name: str, run: Callable[[Any], object]) -> None:
    with pytest.raises(
        RuntimeError, match=r"on asyncio: .*trio\.run\(main\).*backend='trio'.*hypercorn -k trio"
    ) as raised:
        run(entered(name) if name in ENTERED else AWAITED[name](Server("x")))
    for door in ("trio_mcp.blocking.Client", "run Trio as its guest (see how-to/guest_mode)"):
        assert door in str(raised.value)
    assert raised.value.__context__ is None, "nothing else has failed before"


def test_a_proxy_says_so_before_it_connects() -> None:
    with pytest.raises(RuntimeError, match="needs Trio"):
        asyncio.run(ProxyServer(PROCESS).serve_stdio())


def test_on_no_event_loop_at_all() -> None:
    coroutine = entered("Client")
    with pytest.raises(RuntimeError, match=r"outside of it: start the program .*blocking\.Client works without Trio$"):
        coroutine.send(None)


def test_run_on_an_event_loop_would_block_it() -> None:
    async def main() -> None:
        Server("x").run("http", port=0)

    with pytest.raises(
        RuntimeError,
        match=r"asyncio is already running here: call it from a plain function.*guest.* await serve_http\(\)",
    ):
        asyncio.run(main())
    with pytest.raises(RuntimeError, match=r"trio is already running here: await serve_http\(\)$"):
        trio.run(main)


def test_a_guest_of_asyncio_serves_calls_and_starts_processes() -> None:
    async def use() -> list[Any]:
        server = Server("desk")
        server.add_tool(lambda: "here", name="where")
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(server.serve_http, port=0))
            async with Client(url) as near, Client(stdio()) as far:
                found = [(await near.call_tool("where")).text, (await far.call_tool("add", {"a": 1, "b": 2})).data]
            nursery.cancel_scope.cancel()
        return found

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            use,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        return (await ended).unwrap()

    assert asyncio.run(main()) == ["here", 3]
