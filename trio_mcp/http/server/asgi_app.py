"""A server as an ASGI application that others serve: its start, its end, and calls while it is not running."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Literal, NoReturn, Self

import trio

from trio_mcp._checks import check_on_trio
from trio_mcp._log import logger
from trio_mcp.http.server.app import HttpApp, open_app
from trio_mcp.http.server.asgi import HttpAnswer, ReceiveCallable, Scope, SendCallable
from trio_mcp.http.server.host import Runnable
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.server.statistics import HttpStatistics

__all__ = ["AsgiApp"]

NOT_RUNNING = (
    "this application is not running: serve it with an ASGI server that supports the lifespan protocol, such as "
    "`hypercorn -k trio module:app`; if it is mounted in another application, start it in that application's lifespan, "
    "for example with `FastAPI(lifespan=app.lifespan)`; or serve it inside `async with app:`"
)
ELSEWHERE = "this application is running in another thread, or in another run of Trio: start it where it is served"
RUNNING = "this application is already running: make another with `server.asgi_app()`, or start this one only once"


class AsgiApp:
    """A server as an ASGI application, which `Server.asgi_app` makes.

    Whatever serves the application also starts and ends it: an ASGI server with the lifespan protocol, the lifespan of
    an application in which it is mounted (`lifespan`), or ``async with app:``. Each start is a run of the server, with
    its lifespan; after the end of a run it can be started again.

    Args:
        server: The server.
        options: The settings of the endpoint.

    Attributes:
        options: The settings of the endpoint.
    """

    def __init__(self, server: Runnable, options: HttpOptions) -> None:
        self.options = options
        self._server = server
        # The `async with` block or the lifespan will end the run; None if the application is not running.
        self._owner: Literal["block", "lifespan"] | None = None
        self._block: contextlib.AbstractAsyncContextManager[None] | None = None
        self._app: HttpApp | None = None
        # The run of Trio in which the application runs: a call from another one, or from another thread, would corrupt
        # the sessions.
        self._token: trio.lowlevel.TrioToken | None = None

    async def __aenter__(self) -> Self:
        block = self._run("block")
        await block.__aenter__()
        self._block = block
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        return await self._block.__aexit__(kind, exc, traceback)

    @contextlib.asynccontextmanager
    async def lifespan(self, outer: object = None) -> AsyncIterator[None]:
        """Run the server, as the lifespan of an application in which this one is mounted.

        Pass it as in ``FastAPI(lifespan=app.lifespan)``; in a lifespan of your own, ``async with app:`` does the same.

        Args:
            outer: The outer application; it is not used.
        """
        async with self:
            yield

    @contextlib.asynccontextmanager
    async def _run(self, owner: Literal["block", "lifespan"]) -> AsyncIterator[None]:
        if (obstacle := self._obstacle()) is not None:
            raise RuntimeError(obstacle)
        self._owner = owner
        try:
            async with self._server.open_run() as run, open_app(run, self.options) as app:
                self._token = trio.lowlevel.current_trio_token()
                self._app = app
                try:
                    async with run.ending_gracefully():
                        yield
                finally:
                    self._app = None
                    app.close_websockets()
        finally:
            self._owner = None

    async def __call__(self, scope: Scope, receive: ReceiveCallable, send: SendCallable) -> None:
        """Serve one connection in the sense of ASGI: an HTTP exchange, a WebSocket, or the lifespan."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(receive, send)
            return
        if kind not in ("http", "websocket"):
            raise RuntimeError(f"this application serves HTTP and WebSocket, not {kind}")
        app = self._app
        if app is None or not self._is_here():
            await self._refuse(kind, send)
        await app(scope, receive, send)

    def statistics(self) -> HttpStatistics:
        """Return a snapshot of what the endpoint is doing.

        This looks at every session: call it once a second at most, not for every request.

        Raises:
            RuntimeError: If the application is not running.
        """
        if self._app is None:
            raise RuntimeError(NOT_RUNNING)
        return self._app.statistics()

    def _is_here(self) -> bool:
        try:
            return trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:  # this call does not come from Trio
            return False

    def _obstacle(self) -> str | None:
        """Return why the application can't be started here, or None if it can."""
        return _no_trio() or (None if self._owner is None else RUNNING)

    async def _live(self, receive: ReceiveCallable, send: SendCallable) -> None:
        """Run the server from ``lifespan.startup`` to ``lifespan.shutdown``, in the task of the ASGI server."""
        await receive()  # the first event can only be lifespan.startup
        # Inside `async with app:` the block ends the run: an ASGI server must not end an application that others may
        # serve.
        owned = self._owner == "block" and self._app is not None and self._is_here()
        stage = "startup"
        failure = None if owned else self._obstacle()
        if failure is None:
            try:
                async with contextlib.nullcontext() if owned else self._run("lifespan"):
                    await send({"type": "lifespan.startup.complete"})
                    stage = "shutdown"
                    await receive()
            except Exception as exc:
                # Whatever has failed, the application can't continue, so the failure is reported to the ASGI server,
                # which then ends, too.
                logger.error("the application failed at its %s", stage, exc_info=exc)
                failure = f"{type(exc).__name__}: {exc}"
        if failure is None:
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": f"lifespan.{stage}.failed", "message": failure})

    async def _refuse(self, kind: str, send: SendCallable) -> NoReturn:
        """Tell the client why this call can't be served, and raise an exception, which the ASGI server logs."""
        # Nothing in this function needs Trio, because the call may come from an ASGI server on asyncio.
        text = _no_trio() or (NOT_RUNNING if self._app is None else ELSEWHERE)
        if kind == "http":
            await HttpAnswer(send).whole(503, text.encode(), (("content-type", "text/plain; charset=utf-8"),))
        else:
            await send({"type": "websocket.close"})  # closing before accepting makes the ASGI server respond with 403
        raise RuntimeError(text)


def _no_trio() -> str | None:
    try:
        check_on_trio()
    except RuntimeError as exc:
        return str(exc)
    return None
