"""What `Server.asgi_app` returns: who starts and ends it, and what it says to those who serve it wrongly."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import trio
from starlette.applications import Starlette
from starlette.routing import Mount
from uvicorn.config import Config as UvicornConfig

from tests.injection import cancel_everywhere
from trio_mcp import Server

NEEDS = r"needs Trio, but this code runs {}: start .*trio\.run.*hypercorn -k trio"


class Lifespan:
    """The lifespan protocol, as an ASGI server speaks it.

    Attributes:
        sent: What the application has sent.
    """

    def __init__(self, app: Any) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self._app = app
        self._news = trio.Event()
        self._tell, self._told = trio.open_memory_channel[Any](2)

    async def run(self) -> None:
        await self._app({"type": "lifespan"}, self._told.receive, self._send)

    async def _send(self, event: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(event)
        self._news.set()

    async def ask(self, stage: str) -> Mapping[str, Any]:
        """Ask for the startup or the shutdown, and return the response."""
        self._news = trio.Event()
        self._tell.send_nowait({"type": f"lifespan.{stage}"})
        await self._news.wait()
        return self.sent[-1]


def complete(stage: str) -> dict[str, str]:
    return {"type": f"lifespan.{stage}.complete"}


def noting(notes: list[str]) -> Server:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        notes.append("in")
        try:
            yield
        finally:
            notes.append("out")

    return Server("noting", lifespan=lifespan)


async def status(app: Any) -> int:
    """Return the status of a request, even if the application also raises."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return (await http.get("/health")).status_code


async def test_it_runs_from_the_startup_to_the_shutdown_and_again() -> None:
    notes: list[str] = []
    app = noting(notes).asgi_app()
    for _ in range(2):  # a test client of a framework starts the same application for each test
        assert await status(app) == 503
        notes.clear()
        async with trio.open_nursery() as nursery:
            server = Lifespan(app)
            nursery.start_soon(server.run)
            assert await server.ask("startup") == complete("startup")
            assert (notes, await status(app), app.statistics().requests) == (["in"], 200, 0)
            assert await server.ask("shutdown") == complete("shutdown")
        assert notes == ["in", "out"]


async def test_an_application_around_it_starts_it() -> None:
    notes: list[str] = []
    app = noting(notes).asgi_app()
    outer = Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan)
    async with trio.open_nursery() as nursery:
        server = Lifespan(outer)
        nursery.start_soon(server.run)
        assert await server.ask("startup") == complete("startup")
        assert notes == ["in"]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://localhost") as http:
            assert (await http.get("/tools/health")).json() == {"status": "ok"}
        await server.ask("shutdown")
    assert notes == ["in", "out"]


async def test_in_a_block_the_lifespan_protocol_starts_and_ends_nothing() -> None:
    notes: list[str] = []
    async with noting(notes).asgi_app() as app, trio.open_nursery() as nursery:
        server = Lifespan(app)
        nursery.start_soon(server.run)
        assert await server.ask("startup") == complete("startup")
        assert await server.ask("shutdown") == complete("shutdown")
        assert (notes, await status(app)) == (["in"], 200)


async def test_started_twice_at_once_is_one_clear_error() -> None:
    app = Server("x").asgi_app()
    async with trio.open_nursery() as nursery:
        first, second = Lifespan(app), Lifespan(app)
        nursery.start_soon(first.run)
        nursery.start_soon(second.run)
        assert await first.ask("startup") == complete("startup")
        failed = await second.ask("startup")
        assert (failed["type"], "is already running" in failed["message"]) == ("lifespan.startup.failed", True)
        with pytest.raises(RuntimeError, match="is already running"):
            async with app:
                pass
        assert await status(app) == 200, "the first one goes on"
        await first.ask("shutdown")


@pytest.mark.parametrize("stage", ["startup", "shutdown"])
async def test_a_lifespan_that_fails_says_why(stage: str, caplog: pytest.LogCaptureFixture) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        if stage == "startup":
            raise LookupError("no database")
        yield
        raise LookupError("no database")

    app = Server("x", lifespan=lifespan).asgi_app()
    async with trio.open_nursery() as nursery:
        server = Lifespan(app)
        nursery.start_soon(server.run)
        if stage == "shutdown":
            assert await server.ask("startup") == complete("startup")
        assert await server.ask(stage) == {"type": f"lifespan.{stage}.failed", "message": "LookupError: no database"}
    assert caplog.records[-1].exc_info, "the traceback is in the log"
    assert await status(app) == 503


@pytest.mark.parametrize("by", ["block", "lifespan"])
async def test_cancelled_anywhere_it_can_be_started_again(by: str) -> None:
    notes: list[str] = []
    app = noting(notes).asgi_app()

    async def started_and_ended() -> None:
        if by == "block":
            async with app:
                assert await status(app) == 200
            return
        async with trio.open_nursery() as nursery:
            server = Lifespan(app)
            nursery.start_soon(server.run)
            await server.ask("startup")
            await server.ask("shutdown")

    async def again() -> None:
        async with app:
            assert await status(app) == 200
        assert notes.count("in") == notes.count("out")

    await cancel_everywhere(started_and_ended, again)


# --- served wrongly -----------------------------------------------------------------------------------------------


class Call:
    """A request to an application.

    Attributes:
        sent: What the application has sent.
    """

    def __init__(self, kind: str = "http") -> None:
        self.sent: list[Any] = []
        self._kind = kind

    async def run(self, app: Any) -> None:
        # Nothing here needs an event loop.
        await app({"type": self._kind, "method": "GET", "path": "/", "headers": []}, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        return {"type": "lifespan.startup" if self._kind == "lifespan" else "http.request"}

    async def _send(self, event: Any) -> None:
        self.sent.append(event)


async def test_before_its_start_both_ends_learn_what_to_do() -> None:
    app, call = Server("x").asgi_app(), Call()
    with pytest.raises(RuntimeError, match=r"not running: .*hypercorn -k trio.*lifespan=app\.lifespan") as raised:
        await call.run(app)
    start, body = call.sent
    assert (start["status"], body["body"].decode()) == (503, str(raised.value))
    with pytest.raises(RuntimeError, match="not running"):
        app.statistics()


async def test_before_its_start_a_websocket_is_declined() -> None:
    call = Call("websocket")
    with pytest.raises(RuntimeError, match="not running"):
        await call.run(Server("x").asgi_app())
    assert call.sent == [{"type": "websocket.close"}]


async def test_in_another_run_of_trio_it_says_so() -> None:
    async with Server("x").asgi_app() as app:
        with pytest.raises(RuntimeError, match="another run of Trio"):
            await trio.to_thread.run_sync(trio.run, Call().run, app)


async def test_another_kind_of_scope_is_refused() -> None:
    async with Server("x").asgi_app() as app:
        with pytest.raises(RuntimeError, match="not telepathy"):
            await app({"type": "telepathy"}, None, None)  # type: ignore[arg-type]


def test_on_asyncio_it_says_what_it_needs() -> None:
    app, startup, call = Server("x").asgi_app(), Call("lifespan"), Call()
    asyncio.run(startup.run(app))
    (failed,) = startup.sent
    assert failed["type"] == "lifespan.startup.failed"
    with pytest.raises(RuntimeError, match=NEEDS.format("on asyncio")) as raised:
        asyncio.run(call.run(app))
    assert failed["message"] == str(raised.value) == call.sent[1]["body"].decode()


def test_asgi_servers_take_it_for_a_modern_application() -> None:
    """They look whether its call is a coroutine function; otherwise uvicorn takes it for ASGI 2, hypercorn for WSGI."""
    app = Server("x").asgi_app()
    assert inspect.iscoroutinefunction(app.__call__)
    config = UvicornConfig(app, log_config=None)
    config.load()
    assert config.interface == "asgi3"
