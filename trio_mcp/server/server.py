"""`Server`: what people build. It offers tools, and serves them over any link, in both eras."""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.link import Link
from trio_mcp.protocol.server_negotiation import ServerIdentity
from trio_mcp.server.connection import Connection, Handler, Middleware
from trio_mcp.server.context import Context
from trio_mcp.server.pagination import Registry, page_of
from trio_mcp.server.tools import RegisteredTool, call_tool, make_tool
from trio_mcp.session.options import SessionOptions
from trio_mcp.types.common import Icon, Implementation
from trio_mcp.types.tools import ToolAnnotations
from trio_mcp.types.versions import LATEST_LEGACY, REVISIONS, at_least

__all__ = ["Server"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Lifespan = Callable[["Server"], contextlib.AbstractAsyncContextManager[Any]]


class Server:
    """A server that offers tools.

    Args:
        name: Its name, for programs.
        version: Its own version.
        title: Its name, for people.
        instructions: Guidance for the model that uses it.
        description: What it is, for people.
        website_url: Where to read more.
        icons: Pictures of it.
        lifespan: ``async with lifespan(server) as state`` surrounds each serving (a stdio process, a listener, an
            in-memory client); handlers find the state in `Context.state`.
        middleware: Each is ``async (context, call_next) -> result`` and surrounds every request that has a handler,
            the first outermost: it may look at or replace ``context.params``, call ``await call_next()`` or not, and
            look at or replace the result (a plain dict). Exceptions travel through it.
        revisions: The protocol revisions to serve.
        expose_errors: Show clients the text of unexpected exceptions. For development: it may hold secrets.
        page_size: How many entries a page of a list has.
        max_sync_tools: How many synchronous tools run at once, each in a thread; further calls wait.
        options: Limits, timeouts and hooks of each session.
        on_error: Called, sync or async, with what a client sent that belongs to no request.

    Raises:
        TypeError, ValueError: An argument is not what it should be.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        instructions: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Iterable[Icon] | None = None,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        revisions: Sequence[str] = REVISIONS,
        expose_errors: bool = False,
        page_size: int = 250,
        max_sync_tools: int = 40,
        options: SessionOptions | None = None,
        on_error: Callable[[RemoteProtocolError], object] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a server's name must be a non-empty string, got {name!r}")
        unknown = [revision for revision in revisions if revision not in REVISIONS]
        if unknown or not revisions or isinstance(revisions, str):
            raise ValueError(f"revisions must be some of {', '.join(REVISIONS)}, got {revisions!r}")
        for argument, count in (("page_size", page_size), ("max_sync_tools", max_sync_tools)):
            if isinstance(count, bool) or not isinstance(count, int):
                raise TypeError(f"{argument} must be an integer, got {count!r}")
            if count < 1:
                raise ValueError(f"{argument} must be at least 1, got {count}")
        if inspect.isasyncgenfunction(lifespan):
            raise TypeError("lifespan must give an async context manager: decorate it with @asynccontextmanager")
        self.info: Final = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=None if icons is None else list(icons),
        )
        self.identity: Final = ServerIdentity(
            info=self.info.to_wire(),
            capabilities=self._capabilities,
            instructions=instructions,
            revisions=tuple(revisions),
        )
        self.lifespan = lifespan
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self.expose_errors = expose_errors
        self.page_size = page_size
        self.options = options or SessionOptions()
        self.on_error = on_error
        self._tools: Registry[RegisteredTool] = Registry("tool")
        self._max_sync_tools = max_sync_tools
        # One for each run of Trio: the token of a thread that outlives its run never comes back.
        self._sync_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("sync tools")
        self._methods: dict[str, Handler] = {"tools/list": _list_tools, "tools/call": call_tool}
        self._connections: set[Connection] = set()

    @property
    def sync_limiter(self) -> trio.CapacityLimiter:
        """What limits the threads of sync tools in this run of Trio."""
        try:
            return self._sync_limiter.get()
        except LookupError:
            limiter = trio.CapacityLimiter(self._max_sync_tools)
            self._sync_limiter.set(limiter)
            return limiter

    def _capabilities(self, revision: str) -> dict[str, Any]:
        # The modern era announces changes only to those who listen for them (`subscriptions/listen`).
        return {"tools": {"listChanged": True} if at_least(LATEST_LEGACY, revision) else {}}

    # --- tools ---------------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(
        self,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        annotations: ToolAnnotations | Mapping[str, Any] | None = ...,
        icons: Iterable[Icon] | None = ...,
        meta: Mapping[str, Any] | None = ...,
        input_schema: dict[str, Any] | None = ...,
        output_schema: dict[str, Any] | None = ...,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **details: Any) -> Any:  # type: ignore[misc]
        """Offer a function as a tool; the function itself stays as it is.

        ``@server.tool`` or ``@server.tool(title=…)``; the arguments are those of `add_tool`.
        """
        if function is None:
            return lambda given: self.tool(given, **details)
        if isinstance(function, str):
            raise TypeError(f"write @server.tool(name={function!r})")
        self.add_tool(function, **details)
        return function

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
    ) -> None:
        """Offer a function as a tool, also from a tool or another thread. Clients are told that the list has changed.

        Its type hints become the schema of its arguments and of its result, its docstring the description, without
        what it says of parameters (that goes into the schema) and of exceptions. Arguments are validated as pydantic
        does it in its lax mode (``"5"`` is an int); extra ones are refused. An async function runs in the event loop,
        any other in a thread. When a call is cancelled, the former is, too, but a thread can't be: it is left to
        finish, and counts among ``max_sync_tools`` until then.

        Args:
            function: The function, sync or async. A parameter annotated with `Context` is filled by the server.
            name: The tool's name; the function's own by default.
            title: Its name for people.
            description: What it does, for the model; the docstring by default.
            annotations: Hints about its behaviour.
            icons: Pictures of it.
            meta: Its ``_meta``.
            input_schema: A JSON Schema for the arguments instead of one made from the hints. Arguments are checked
                against both.
            output_schema: A JSON Schema for the result instead of one made from the return type.

        Raises:
            TypeError: The signature can't be offered.
            ValueError: The name is invalid or taken, or a schema can't be used.
        """
        self._tools.add(
            make_tool(
                function,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                icons=icons,
                meta=meta,
                input_schema=input_schema,
                output_schema=output_schema,
            )
        )
        self._announce("notifications/tools/list_changed")

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool. Clients are told that the list has changed; calls that are running go on.

        Raises:
            KeyError: There is no such tool.
        """
        self._tools.remove(name)
        self._announce("notifications/tools/list_changed")

    def _announce(self, method: str) -> None:
        for connection in tuple(self._connections):
            connection.announce(method)

    # --- serving -------------------------------------------------------------------------------------------------

    async def serve(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve one link until the client closes it. When cancelled, so are all handlers, and the link is closed."""
        async with self._running() as state:
            task_status.started()
            await self._serve_link(link, state)

    async def serve_stdio(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve this process's standard input and output until the client closes them.

        Meanwhile ``print`` and child processes write to standard error. When cancelled, it ends at once.
        """
        from trio_mcp.transports.stdio_server import stdio_server

        async with self._running() as state, stdio_server() as link:
            task_status.started()
            await self._serve_link(link, state)

    def run(self, transport: str = "stdio") -> None:
        """Serve, blocking, as the main program of a process. Ctrl-C ends it with exit status 130.

        Args:
            transport: ``"stdio"``.

        Raises:
            ValueError: There is no such transport.
        """
        if transport != "stdio":
            raise ValueError(f"unknown transport {transport!r}; there is 'stdio'")
        try:
            trio.run(self.serve_stdio)
        except KeyboardInterrupt:
            sys.exit(130)

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[Any]:
        if self.lifespan is None:
            yield None
            return
        async with self.lifespan(self) as state:
            yield state

    async def _serve_link(self, link: Link, state: Any) -> None:
        connection = Connection(self, link, state)
        self._connections.add(connection)
        try:
            async with connection, background_nursery() as nursery:
                nursery.start_soon(connection.send_announcements)
                await connection.wait_closed()
        finally:
            self._connections.discard(connection)


async def _list_tools(server: Server, context: Context[Any]) -> dict[str, Any]:
    tools, next_cursor = page_of(server._tools, context.params.get("cursor"), server.page_size)
    revision = context.protocol_version
    definitions = [tool.for_revision(revision) for tool in tools]
    # A middleware may change what it gets, but not what the next client sees.
    result: dict[str, Any] = {"tools": copy.deepcopy(definitions) if server.middleware else definitions}
    if next_cursor is not None:
        result["nextCursor"] = next_cursor
    if not at_least(LATEST_LEGACY, revision):
        result |= {"ttlMs": 0, "cacheScope": "private"}  # `server/utilities/caching`: required, and honest
    return result
