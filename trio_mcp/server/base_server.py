"""`BaseServer`, the common part of every server: its identity, its settings, its runs, and the ways to serve it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from trio_mcp._checks import check_count, check_seconds
from trio_mcp._nursery import background_nursery
from trio_mcp.eras.capabilities import checked_extensions
from trio_mcp.eras.server_negotiation import ServerIdentity
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.link import Link
from trio_mcp.server.changes import Changes, Topic
from trio_mcp.server.context import Context
from trio_mcp.server.features.caching import CacheHints, checked_hints
from trio_mcp.server.features.dispatch import Dispatch
from trio_mcp.server.features.feature import Feature, Member, Middleware, Settings
from trio_mcp.server.functions.dependencies import Surroundings
from trio_mcp.server.functions.sync_threads import SyncThreads
from trio_mcp.server.input.request_state import StateSealer
from trio_mcp.server.input.rounds import InputRun, InputSettings
from trio_mcp.server.run import Run, ServerStatistics
from trio_mcp.server.signals import run_http, run_stdio
from trio_mcp.session.limits import SessionOptions
from trio_mcp.types.common import Icon, Implementation
from trio_mcp.types.icons import checked_icons
from trio_mcp.types.versions import REVISIONS

if TYPE_CHECKING:  # hypercorn and the HTTP server are only loaded when serving HTTP
    from hypercorn.config import Config

    from trio_mcp.http.server.app import HttpApp
    from trio_mcp.http.server.options import HttpOptions

__all__ = ["BaseServer", "Lifespan"]

# Chosen. Without a limit, a thread that hangs would keep the process alive after its client has exited.
EXIT_GRACE = 5.0
"""Seconds that code which can't be cancelled may keep the process alive after the link has closed."""

Lifespan: TypeAlias = Callable[[Any], contextlib.AbstractAsyncContextManager[Any]]
"""``async with lifespan(server) as state``."""


class BaseServer:
    """A server without features, which subclasses add. The arguments are those of `Server`.

    Attributes:
        info: The server's name, version and description.
        identity: What the server declares to clients: info, capabilities, instructions, revisions.
        settings: The part of the server's settings that its features need.
        dispatch: Finds the handler of a request and calls it.
        make_context, answer: Make the context of a request, and answer it.
        options: Limits, timeouts and hooks of each session.
        lifespan: Makes the context manager around each run; None without one.
    """

    # False: SIGTERM's default action ends a stdio server at once, which is how clients stop one that does not exit
    # when its input closes (2025-11-25 `basic/lifecycle`, Shutdown). A proxy sets it to shut down its upstreams.
    ends_on_sigterm = False
    """Whether SIGTERM shuts `run` over stdio down gracefully instead of at once."""

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
        cache_hints: CacheHints | None = None,
        max_sync_tools: int = 40,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        request_state_key: bytes | Sequence[bytes] | None = None,
        request_state_ttl: float = 600.0,
        principal: Callable[[Context[Any]], str | None] | None = None,
        max_input_rounds: int = 32,
        max_parked: int = 100,
        options: SessionOptions | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a server's name must be a non-empty string, got {name!r}")
        unknown = [revision for revision in revisions if revision not in REVISIONS]
        if unknown or not revisions or isinstance(revisions, str):  # a str is a sequence of str, too
            raise ValueError(f"revisions must be some of {', '.join(REVISIONS)}, got {revisions!r}")
        for argument, count in (
            ("page_size", page_size),
            ("max_sync_tools", max_sync_tools),
            ("max_input_rounds", max_input_rounds),
            ("max_parked", max_parked),
        ):
            check_count(argument, count)
        check_seconds("request_state_ttl", request_state_ttl, finite=True)
        if principal is not None and not callable(principal):
            raise TypeError(f"principal must be a function of the context, got {type(principal).__name__}")
        # The usual mistake is to forget the decorator, which would only fail once the server runs.
        if inspect.isasyncgenfunction(lifespan):
            raise TypeError("lifespan must return an async context manager: decorate it with @asynccontextmanager")
        # Everything that could be refused is checked here, where the traceback leads to the caller, and not in a run.
        self.info: Final = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=None if icons is None else checked_icons(icons, f"server {name!r}"),
        )
        hints = checked_hints(cache_hints)
        self.settings: Final = Settings(
            info=self.info,
            surroundings=Surroundings(Context, SyncThreads(max_sync_tools)),
            page_size=page_size,
            cache_hints=hints,
            expose_errors=expose_errors,
            middleware=tuple(middleware),
            extensions=checked_extensions(extensions, f"server {name!r}"),
        )
        self.identity = ServerIdentity(
            info=self.info.to_wire(),
            capabilities=self.capabilities,
            instructions=instructions,
            revisions=tuple(revisions),
            discover_hints=hints["server/discover"],
        )
        self.input_settings: Final = InputSettings(
            StateSealer(name, request_state_key), request_state_ttl, principal, max_input_rounds, max_parked
        )
        self.options = options or SessionOptions()
        # Bound to the server here, because the lifespans of mounted servers are entered by code that only knows Member.
        self.lifespan = None if lifespan is None else functools.partial(lifespan, self)
        self.dispatch: Final = Dispatch(self.settings)
        self.make_context = Context
        self.answer = self.dispatch.serve
        # Last: the features read the settings and register with the dispatch.
        self._features = tuple(self.make_features())
        for feature in self._features:
            self.dispatch.methods.update(feature.methods)

    def make_features(self) -> Iterable[Feature]:
        """Make the server's features, in the order of their capabilities; called at the end of ``__init__``."""
        return ()

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        declared: dict[str, Any] = {}
        for feature in self._features:
            declared.update(feature.capabilities(revision))
        return declared

    async def heard(self, notification: Notification, states: Mapping[Any, Any]) -> None:
        """Handle a client's notification; an unknown one is ignored.

        Args:
            notification: The notification.
            states: The states that the run's lifespans yielded, keyed by the settings of their servers.
        """

    def family(self) -> Sequence[Member]:
        """Return this server and all servers mounted in it, each once."""
        return [self]

    def watcher(self, state: Any) -> Callable[[Topic, bool], None] | None:
        """Return a callback for topics that gain their first or lose their last listener in a run with this state."""
        return None

    def input_schema(self, tool: str) -> dict[str, Any] | None:
        """Return the schema of a tool's arguments, if known; the same object for as long as the tool is offered."""
        return None

    @contextlib.contextmanager
    def override(self, provider: Callable[..., Any], stand_in: Callable[..., Any]) -> Iterator[None]:
        """Replace a provider by another one, in tests: ``with server.override(get_db, fake_db): ...``.

        The override applies to every function called inside the block, for any client. A stand-in may depend on the
        provider that it replaces.

        Args:
            provider: The provider, as given to `Depends`.
            stand_in: The provider to use instead.

        Raises:
            TypeError: If the stand-in can't be used as a provider.
        """
        with self.settings.surroundings.overrides.stand_in(provider, stand_in, Context):
            yield

    def notify_elicitation_complete(self, elicitation_id: str) -> None:
        """Tell the client that was asked to visit a page that the user's work there is complete (2025-11-25).

        Returns at once, from any thread. No other client is told; the modern era has no such notification.

        Args:
            elicitation_id: The id given to `Context.elicit_url`, or made by it.
        """
        if not isinstance(elicitation_id, str):
            raise TypeError(f"elicitation_id must be a string, got {type(elicitation_id).__name__}")
        # Copies, since the event loop may change the sets while another thread is here. Only sessions of 2025-11-25
        # can have been asked with an id, so single requests are left out.
        for run in tuple(self.settings.runs):
            for connection in tuple(run.connections):
                connection.complete_elicitation(elicitation_id)

    def counts(self) -> dict[str, int]:
        """Return how many items of each kind the server offers, by the names in `ServerStatistics`."""
        return dict.fromkeys(("tools", "resources", "resource_templates", "prompts", "completions"), 0)

    def statistics(self) -> ServerStatistics:
        """Return counts of what the server offers and of what it is doing now.

        Visits every session and every topic once: cheap enough for every second, not for every request. Call it from
        the event loop's thread.
        """
        runs = tuple(self.settings.runs)
        # A set: the same topic may have listeners in several runs, and counts once.
        topics = {topic for run in runs for topic in run.changes.topics}
        clients = [client for run in runs for client in run.clients]
        sessions = [client.statistics() for client in clients]
        return ServerStatistics(
            **self.counts(),
            runs=len(runs),
            sessions=len(sessions),
            incoming=sum(each.incoming for each in sessions),
            running=sum(each.running for each in sessions),
            queued=sum(each.queued for each in sessions),
            outgoing=sum(each.outgoing for each in sessions),
            parked=sum(len(run.input.parked) for run in runs),
            listening=sum(each.listening for each in sessions),
            topics=len(topics),
            watched_resources=sum(uri is not None for _, uri in topics),
            changes_waiting=sum(len(run.changes.waiting) for run in runs)
            + sum(client.changes_waiting for client in clients),
            messages_waiting=sum(each.bulk_waiting + each.control_waiting for each in sessions),
            http=tuple(endpoint() for run in runs for endpoint in run.endpoints),
        )

    # --- serving -------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def open_run(self) -> AsyncIterator[Run]:
        """Enter the server's lifespan and, inside it, a nursery for background tasks; `Run.serve_link` serves links."""
        await trio.lowlevel.checkpoint()  # without a lifespan nothing below would be one
        async with contextlib.AsyncExitStack() as stack:
            states: dict[Any, Any] = {}
            # The server's own lifespan comes first, so those of mounted servers are entered inside it, and left before
            # it. A lifespan may mount further servers, so look for new members after each one.
            while (each := next((each for each in self.family() if each.settings not in states), None)) is not None:
                states[each.settings] = None
                if each.lifespan is not None:
                    states[each.settings] = await stack.enter_async_context(each.lifespan())
            # Entered after the lifespans: its tasks are cancelled before any lifespan begins to close.
            nursery = await stack.enter_async_context(background_nursery())
            changes = Changes(self.watcher(states[self.settings]))
            run = Run(self, states, nursery, changes, InputRun(self.input_settings, nursery))
            nursery.start_soon(changes.run)
            # A change in a mounted server is announced to the clients of this run, too.
            for each in self.family():
                each.settings.runs.add(run)
            try:
                yield run
            finally:
                for each in self.family():
                    each.settings.runs.discard(run)

    async def serve(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve one link until the client closes it. Cancelling it cancels all handlers and closes the link."""
        async with self.open_run() as run:
            task_status.started()
            await run.serve_link(link)

    async def serve_stdio(  # noqa: ASYNC128 - passes `started` on
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve this process's standard input and output until the client closes them.

        While it serves, ``print`` and child processes write to standard error. When cancelled, it answers open
        ``subscriptions/listen`` requests before it ends.
        """
        await self._serve_stdio(None, task_status.started)

    async def _serve_stdio(self, exit_grace: float | None, started: Callable[[], None]) -> None:
        from trio_mcp.stdio.server import stdio_server  # deferred: a server over HTTP does not need it

        async with self.open_run() as run:
            await run.serve_only_link(stdio_server(exit_grace=exit_grace), started)

    async def serve_http(  # noqa: ASYNC128 - passes task_status on
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        options: HttpOptions | None = None,
        config: Config | None = None,
        shutdown: Callable[[], Awaitable[object]] = trio.sleep_forever,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve HTTP on hypercorn until ``shutdown`` returns, then finish the requests under way.

        ``url = await nursery.start(server.serve_http)`` returns the endpoint's URL with the port actually bound; port 0
        picks a free one.

        Args:
            host: The address to listen on.
            port: The port to listen on.
            options: The options of the endpoint.
            config: A hypercorn configuration, for TLS, Unix sockets (``bind = ["unix:/path"]``) or several addresses.
                Its ``bind`` replaces ``host`` and ``port``.
            shutdown: Awaited in the background. When it returns, the server refuses new work, ends streams, and gives
                requests under way ``options.grace`` seconds.
            task_status: Receives the URL, or the first of several.

        Raises:
            OSError: If the address can't be bound.
            ValueError, TypeError: If an argument is invalid.

        When cancelled, it answers open ``subscriptions/listen`` requests and cancels everything else.
        """
        from trio_mcp.http.serve import serve_http  # deferred: a server on stdio never loads HTTP

        await serve_http(self, host, port, options, config, shutdown, task_status)

    async def serve_sse(  # noqa: ASYNC128 - passes task_status on
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        options: HttpOptions | None = None,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
        **arguments: Any,
    ) -> None:
        """Serve HTTP+SSE, the transport of 2024-11-05, and nothing else; otherwise like `serve_http`.

        To serve such clients alongside all others, use `serve_http` with ``HttpOptions(sse_path="/sse")``.

        Args:
            host: The address to listen on.
            port: The port to listen on.
            options: The options of the endpoint. ``sse_path`` defaults to ``/sse``; ``path`` is ignored, as this is the
                only endpoint.
            task_status: Receives the URL of the stream.
            arguments: Further arguments of `serve_http`.
        """
        import attrs

        from trio_mcp.http.server.options import HttpOptions

        # path=None: clients that try Streamable HTTP first must be refused here, or they won't fall back to HTTP+SSE.
        options = options or HttpOptions(path=None, sse_path="/sse")
        options = attrs.evolve(options, path=None, sse_path=options.sse_path or "/sse")
        await self.serve_http(host, port, options=options, task_status=task_status, **arguments)

    @contextlib.asynccontextmanager
    async def asgi_app(self, options: HttpOptions | None = None) -> AsyncIterator[HttpApp]:
        """Run the server as an ASGI application, to mount in another one or serve with any ASGI server on Trio.

        The server runs for as long as the block; it needs no ASGI lifespan. Leaving the block cancels requests under
        way.

        Args:
            options: The options of the endpoint. Its ``path`` is relative to where the application is mounted.
        """
        from trio_mcp.http.serve import asgi_app

        async with asgi_app(self, options) as app:
            yield app

    def run(self, transport: str = "stdio", **arguments: Any) -> None:
        """Serve as the main program of a process, and block until the end. Ctrl-C exits with status 130.

        Over stdio: when the client has closed its end, running tools are cancelled (see `SessionOptions`) and the
        process exits. A tool that can't be cancelled gets five seconds, then the process exits with status 1.
        Over HTTP: SIGINT or SIGTERM shuts down gracefully, a second one at once.

        Args:
            transport: ``"stdio"``, ``"http"`` or ``"sse"``.
            arguments: The arguments of `Server.serve_http` or `Server.serve_sse`.

        Raises:
            ValueError: If the transport is unknown.
        """
        transports = self.transports
        if transport not in transports:
            raise ValueError(f"unknown transport {transport!r}; use one of {', '.join(map(repr, transports))}")
        transports[transport](**arguments)

    @property
    def transports(self) -> dict[str, Callable[..., None]]:
        """The functions that `run` calls, by transport name."""
        return {
            "stdio": self._run_stdio,
            "http": functools.partial(self._run_http, self.serve_http),
            "sse": functools.partial(self._run_http, self.serve_sse),
        }

    def _run_stdio(self) -> None:
        serve = functools.partial(self._serve_stdio, EXIT_GRACE, lambda: None)
        run_stdio(serve, ends_on_sigterm=self.ends_on_sigterm)

    def _run_http(self, serve: Callable[..., Awaitable[None]], /, **arguments: Any) -> None:
        run_http(self.info.name, serve, arguments)
