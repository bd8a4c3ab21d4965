"""Each runner behind a real nginx: what the page about deployment promises."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial

import attrs
import psutil
import pytest
import trio

from tests.listening import local_config, port_of
from tests.nginx import advised, folder_of_nginx, nginx
from tests.waiting import eventually
from trio_mcp import Client, Context, HttpError, Server
from trio_mcp.http.server.options import RUNNERS
from trio_mcp.types import ProgressNotificationParams

pytestmark = [pytest.mark.nginx, pytest.mark.parametrize("runner", RUNNERS)]

CALLS = 10_000

FRONTS = ("plain", "kept", "unix")
"""Ways to reach our server: nginx's defaults, as the docs advise, and over a Unix socket."""

SERVERS = """
    access_log off;
    server {{
        listen 127.0.0.1:{ports[plain]};
        location / {{ proxy_pass http://127.0.0.1:{upstream}; }}
    }}
    {advised}
    server {{
        listen 127.0.0.1:{ports[unix]};
        location / {{ proxy_pass http://unix:{folder}/socket:; }}
    }}
"""


@attrs.frozen
class Behind:
    """A server behind an nginx.

    Attributes:
        port: Where it listens itself.
        urls: Where nginx listens, for each of `FRONTS`.
        ports: From where nginx has connected, as far as the tool `add` has looked.
        steps: What the test says to the tool `steps`.
        cancelled: The names of the calls of `wait` that were cancelled.
    """

    port: int
    urls: dict[str, str]
    ports: set[int] = attrs.field(factory=set)
    steps: tuple[trio.MemorySendChannel[int], trio.MemoryReceiveChannel[int]] = attrs.field(
        factory=lambda: trio.open_memory_channel[int](1)
    )
    waiting: set[str] = attrs.field(factory=set)
    cancelled: set[str] = attrs.field(factory=set)


@contextlib.asynccontextmanager
async def behind_nginx(
    runner: str, *, idle: str = "60s", largest: str = "4m", requests: int = 1000
) -> AsyncIterator[Behind]:
    """Serve, behind an nginx that ends with the block and has nothing to complain about.

    Args:
        runner: The runner.
        idle: How long nginx keeps an idle connection to the server.
        largest: The largest body that nginx takes, if not by default.
        requests: How many requests the server takes on one connection.
    """
    server = Server("behind")

    @server.tool
    async def add(a: int, b: int) -> int:
        if not a % 100:
            for connection in psutil.Process().net_connections("tcp"):
                if connection.laddr.port == behind.port and connection.status == psutil.CONN_ESTABLISHED:
                    behind.ports.add(connection.raddr.port)
        return a + b

    @server.tool
    async def length(text: str) -> int:
        return len(text)

    @server.tool
    async def steps(count: int, ctx: Context) -> str:
        for number in range(count):
            await ctx.report_progress(number)
            assert await behind.steps[1].receive() == number
        return "done"

    @server.tool
    async def wait(name: str, progress: bool, ctx: Context) -> None:
        if progress:
            await ctx.report_progress(1)
        behind.waiting.add(name)
        try:
            await trio.sleep_forever()
        finally:
            behind.cancelled.add(name)

    with folder_of_nginx() as folder, contextlib.ExitStack() as stack:
        fronts = {front: stack.enter_context(socket.create_server(("127.0.0.1", 0))) for front in FRONTS}
        ports = {front: port_of(each) for front, each in fronts.items()}
        config = local_config()
        config.bind.append(f"unix:{folder}/socket")
        config.umask = 0  # nginx is another user
        config.keep_alive_max_requests = requests
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(server.serve_http, config=config, runner=runner, websocket_path="/mcp"))
            upstream = int(url.split(":")[2].partition("/")[0])
            behind = Behind(upstream, {front: f"http://127.0.0.1:{port}/mcp" for front, port in ports.items()})
            changes = {
                "127.0.0.1:8000": f"127.0.0.1:{upstream}",
                "listen 80;": f"listen 127.0.0.1:{ports['kept']};",
                "keepalive 32;": f"keepalive 32; keepalive_timeout {idle};",
                "client_max_body_size 4m;": f"client_max_body_size {largest};",
            }
            servers = SERVERS.format(
                folder=folder, ports=ports, upstream=upstream, advised=advised("deployment", changes)
            )
            with nginx(folder, servers, list(fronts.values())):
                yield behind
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
async def test_a_websocket_goes_through(runner: str, mode: str) -> None:
    """In both directions while a tool runs, with long messages, and its client's end cancels the tool."""
    with trio.fail_after(60):
        async with behind_nginx(runner) as behind:
            async with Client(behind.urls["kept"].replace("http://", "ws://"), mode=mode) as client:

                async def heard(progress: ProgressNotificationParams) -> None:
                    await behind.steps[0].send(int(progress.progress))

                assert (await client.call_tool("steps", {"count": 20}, on_progress=heard)).data == "done"
                assert (await client.call_tool("length", {"text": "x" * 4_000_000})).data == 4_000_000
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.call_tool, "wait", {"name": "a", "progress": False})
                    await eventually(lambda: "a" in behind.waiting)
                    nursery.cancel_scope.cancel()
                    with trio.CancelScope(shield=True):
                        await client.aclose()
            await eventually(lambda: "a" in behind.cancelled)


async def test_a_websocket_needs_more_than_the_defaults(runner: str) -> None:
    with trio.fail_after(60):
        async with behind_nginx(runner) as behind:
            with pytest.raises(HttpError) as caught:
                async with Client(behind.urls["plain"].replace("http://", "ws://")):
                    pass
            assert (caught.value.status, "which any proxy must pass on" in str(caught.value)) == (
                426,
                True,
            )


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
async def test_events_arrive_while_the_tool_runs(runner: str, mode: str, front: str) -> None:
    """Each step waits until the client has heard of the one before: a proxy that held events back would stop it."""
    with trio.fail_after(60):
        async with behind_nginx(runner) as behind, Client(behind.urls[front], mode=mode) as client:

            async def heard(progress: ProgressNotificationParams) -> None:
                await behind.steps[0].send(int(progress.progress))

            result = await client.call_tool("steps", {"count": 20}, on_progress=heard)
            assert result.data == "done"


@pytest.mark.parametrize("front", FRONTS)
async def test_large_messages_go_through(runner: str, front: str) -> None:
    """Up to nginx's own limit of 1 MiB where that is left as it is, else up to the server's."""
    size = 4_000_000 if front == "kept" else 1_000_000
    with trio.fail_after(60):
        async with behind_nginx(runner) as behind, Client(behind.urls[front], mode="2026-07-28") as client:
            for _ in range(10):
                assert (await client.call_tool("length", {"text": "x" * size})).data == size


async def test_a_message_too_large_is_answered_with_413_not_502(runner: str) -> None:
    with trio.fail_after(60):
        async with (
            behind_nginx(runner, largest="0") as behind,
            Client(behind.urls["kept"], mode="2026-07-28") as client,
        ):
            for _ in range(20):
                with pytest.raises(HttpError) as caught:
                    await client.call_tool("length", {"text": "x" * 6_000_000})
                assert caught.value.status == 413
            assert (await client.call_tool("length", {"text": "x"})).data == 1


@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_that_leaves_cancels_its_tool(runner: str, front: str) -> None:
    with trio.fail_after(60):
        async with behind_nginx(runner) as behind, Client(behind.urls[front], mode="2026-07-28") as client:
            for name, progress in (("silent", False), ("streaming", True)):

                async def call(name: str = name, progress: bool = progress) -> None:
                    async def heard(*_: object) -> None: ...

                    await client.call_tool("wait", {"name": name, "progress": progress}, on_progress=heard)

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call)
                    await eventually(lambda name=name: name in behind.waiting)
                    assert not behind.cancelled & {name}
                    nursery.cancel_scope.cancel()
                await eventually(lambda name=name: name in behind.cancelled)


async def calls(client: Client, numbers: Iterator[int], pause: float) -> None:
    for number in numbers:
        if pause:
            await trio.sleep(random.uniform(0.8, 1.2) * pause)
        assert (await client.call_tool("add", {"a": number, "b": 1})).data == number + 1


@pytest.mark.parametrize(
    ("idle", "pause", "requests", "at_once"),
    [
        ("60s", 0.0, 100, 8),  # the server closes each connection after its hundredth request
        ("50ms", 0.05, 1000, 32),  # nginx closes those that were idle for as long as the calls pause
    ],
    ids=["busy", "idle"],
)
async def test_no_request_meets_the_end_of_its_connection(
    runner: str, idle: str, pause: float, requests: int, at_once: int
) -> None:
    """A call sent into a connection that is being closed would be lost, and answered by nginx with 502."""
    with trio.fail_after(300):
        async with (
            behind_nginx(runner, idle=idle, requests=requests) as behind,
            Client(behind.urls["kept"], mode="2026-07-28") as client,
        ):
            numbers = iter(range(CALLS))
            async with trio.open_nursery() as nursery:
                for _ in range(at_once):
                    nursery.start_soon(calls, client, numbers, pause)
            # The connections were used again, or nothing was tested.
            assert len(behind.ports) < (CALLS / requests) * 2 if not pause else len(behind.ports) > at_once
