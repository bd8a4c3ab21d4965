"""A cancellation at every step of what an HTTP client does: nothing is left open, and the next call gets through.

`test_http_client_exchanges` has the same for plain exchanges of the modern era.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx
import pytest
import trio

from tests.http_peer import DISCOVERED, INITIALIZED, Asked, HttpPeer, event, peer, result
from tests.injection import cancel_everywhere
from tests.transports.http_calls import over
from tests.transports.http_legacy import CHANGED, QUICK, TEXT
from trio_mcp import Client, SessionClosed, streamable_http_client
from trio_mcp.http.client.origins import ORIGINS

pytestmark = pytest.mark.usefixtures("no_wait")
NET = 60


class Path:
    """A server that leads its client along one path, and what the client does there.

    Attributes:
        mode: The client's.
    """

    mode = "legacy"

    def handlers(self) -> dict[str, Any]:
        return {"tools/call": self.call}

    async def call(self, asked: Asked) -> None:
        await asked.result(TEXT)

    async def walk(self, client: Client, server: HttpPeer) -> None:
        assert await text(client) == "ok"


class Renewal(Path):
    """The server forgets the session, and two calls find out at once."""

    def __init__(self) -> None:
        self.restarts = 0

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "initialize": self.initialize, "DELETE": self.delete}

    async def initialize(self, asked: Asked) -> None:
        await asked.result(INITIALIZED, Mcp_Session_Id=f"s{self.restarts}")

    async def call(self, asked: Asked) -> None:
        if asked.headers["mcp-session-id"] == f"s{self.restarts}":
            await asked.result(TEXT)
        else:
            await asked.status(404)

    async def delete(self, asked: Asked) -> None:
        await asked.status(204)

    async def walk(self, client: Client, server: HttpPeer) -> None:
        self.restarts += 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super().walk, client, server)
            nursery.start_soon(super().walk, client, server)


class Resumption(Path):
    """The stream of a response breaks off, is resumed, ends, and is resumed again."""

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "GET": self.get}

    async def call(self, asked: Asked) -> None:
        await asked.begin_events()
        await asked.chunk(b"id: %d-0\ndata:\n\n" % asked.id + event(CHANGED, f"{asked.id}-1"))
        await asked.abort()

    async def get(self, asked: Asked) -> None:
        number, _, last = asked.headers.get("last-event-id", "").partition("-")
        if not last:
            await asked.status(405)
            return
        await asked.begin_events()
        message = CHANGED if last == "1" else result(int(number), TEXT)
        await asked.chunk(event(message, f"{number}-{int(last) + 1}"))
        await asked.end_events()


class Listening(Path):
    """The server speaks on its own stream, which breaks off and is resumed."""

    def __init__(self) -> None:
        self.heard = trio.lowlevel.ParkingLot()
        self.opened = 0

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "GET": self.get}

    async def get(self, asked: Asked) -> None:
        self.opened += 1
        self.heard.unpark_all()
        await asked.begin_events()
        await asked.chunk(event(CHANGED, "1") + event({"jsonrpc": "2.0", "id": "q", "method": "ping"}))
        if "last-event-id" in asked.headers:
            await asked.gone()
        else:
            await asked.abort()

    async def walk(self, client: Client, server: HttpPeer) -> None:
        answers, opened = server.methods().count("answer"), self.opened
        while server.methods().count("answer") < answers + 1 or self.opened < opened + 1:
            await server.heard.park()
        await super().walk(client, server)


class Streaming(Path):
    """The modern era: progress before the answer."""

    mode = "2026-07-28"

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "server/discover": self.discover}

    async def discover(self, asked: Asked) -> None:
        await asked.result(DISCOVERED)

    async def call(self, asked: Asked) -> None:
        await asked.begin_events()
        token = asked.body["params"]["_meta"].get("progressToken", "none")
        for number in range(3):
            params = {"progressToken": token, "progress": number}
            await asked.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        await asked.chunk(event(result(asked.id, {**TEXT, "resultType": "complete"})))
        await asked.end_events()

    async def walk(self, client: Client, server: HttpPeer) -> None:
        assert await text(client, on_progress=lambda _: None) == "ok"


class Fallback(Path):
    """A server of 2024-11-05, which the client finds out by being refused twice."""

    mode = "auto"

    def __init__(self) -> None:
        self.streams: dict[str, Asked] = {}
        self.sending = trio.Lock()

    def handlers(self) -> dict[str, Any]:
        posted = ("server/discover", "initialize", "notifications/initialized", "notifications/cancelled", "tools/call")
        return {"GET": self.get, **dict.fromkeys(posted, self.post)}

    async def get(self, asked: Asked) -> None:
        number = str(asked.connection)
        self.streams[number] = asked
        await asked.begin_events()
        await asked.chunk(f"event: endpoint\ndata: /messages?session={number}\n\n".encode())
        await asked.gone()
        del self.streams[number]

    async def post(self, asked: Asked) -> None:
        _, _, number = asked.path.partition("/messages?session=")
        if not number:
            await asked.status(405)
            return
        await asked.status(202)
        answer = {"initialize": {**INITIALIZED, "protocolVersion": "2024-11-05"}, "tools/call": TEXT}.get(asked.rpc)
        if answer is not None and number in self.streams:
            stream = self.streams[number]
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async with self.sending:
                    await stream.chunk(event(result(asked.id, answer)))


HANDSHAKES = [pytest.param(path, marks=pytest.mark.legacy) for path in (Renewal, Resumption, Listening, Fallback)]
PATHS = pytest.mark.parametrize("path", [Streaming, *HANDSHAKES])


async def text(client: Client, **options: Any) -> str:
    return str((await client.call_tool("t", **options)).content[0].text)  # type: ignore[union-attr]


@contextlib.asynccontextmanager
async def on(path: Path) -> AsyncIterator[tuple[HttpPeer, httpx.AsyncClient, Callable[[], Client]]]:
    """Yield a server for this path, an HTTP client, and a function that makes MCP clients that share it."""
    with trio.fail_after(NET):
        async with peer(path.handlers()) as server, httpx.AsyncClient() as http_client:
            connect = partial(streamable_http_client, server.url, http_client=http_client, reconnect=QUICK)
            yield server, http_client, partial(Client, connect, mode=path.mode)
    gc.collect()  # a generator of httpx that was left behind would complain, and a warning is an error


@PATHS
async def test_a_client_that_is_cancelled_anywhere_leaves_nothing_open(path: Callable[[], Path]) -> None:
    """From its first step to its last, the DELETE at the end included."""
    way = path()
    async with on(way) as (server, http_client, make):
        tasks = trio.lowlevel.current_statistics().tasks_living

        async def scenario() -> None:
            ORIGINS.clear()
            async with make() as client:
                await way.walk(client, server)

        places = await cancel_everywhere(scenario, partial(over, server, http_client, tasks))
        assert places > 30
        await scenario()


@PATHS
async def test_a_call_cancelled_anywhere_costs_its_client_nothing_else(path: Callable[[], Path]) -> None:
    """Other calls, meanwhile and afterwards, are answered; there is one handshake each time the server forgets."""
    way = path()
    async with on(way) as (server, _, make), make() as client, trio.open_nursery() as nursery:
        if isinstance(way, Listening):
            await way.walk(client, server)  # its stream belongs to no call
        others: list[str] = []

        async def other() -> None:
            others.append(await text(client))

        async def scenario() -> None:
            if isinstance(way, Renewal):
                way.restarts += 1
            nursery.start_soon(other)
            await text(client, on_progress=lambda _: None)

        async def check() -> None:
            assert await text(client) == "ok"
            while nursery.child_tasks:
                await trio.lowlevel.checkpoint()
            assert set(others) == {"ok"}
            others.clear()
            if isinstance(way, Renewal):
                assert server.methods().count("initialize") == 1 + way.restarts
            assert client.session.close_cause is None

        assert await cancel_everywhere(scenario, check) > 5


@PATHS
async def test_a_client_that_is_closed_at_any_moment_settles_its_calls(path: Callable[[], Path]) -> None:
    """Each is answered, or told that the session was closed; none hangs, none hears of anything else."""
    way = path()
    async with on(way) as (server, http_client, make):
        tasks = trio.lowlevel.current_statistics().tasks_living
        outcomes: list[str] = []

        async def call(client: Client) -> None:
            try:
                outcomes.append(await text(client))
            except SessionClosed:
                outcomes.append("closed")

        # Turns of the event loop say nothing of the network's time, so the last run is closed only after both calls.
        for turns in [*range(400), None]:
            outcomes.clear()
            ORIGINS.clear()
            async with make() as client:
                if isinstance(way, Renewal):
                    way.restarts += 1
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call, client)
                    nursery.start_soon(call, client)
                    for _ in range(turns or 0):
                        await trio.lowlevel.checkpoint()
                    if turns is not None:
                        await client.aclose()
            assert set(outcomes) <= {"ok", "closed"}
            assert len(outcomes) == 2
            await over(server, http_client, tasks)
            if outcomes == ["ok", "ok"]:
                break
        assert outcomes == ["ok", "ok"]
        assert turns is None or turns > 3
