"""`BaseServer`, the common part of every server: its identity, its settings, its runs, and the ways to serve it."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

import trio

from trio_mcp._checks import (
    check_choice,
    check_count,
    check_no_loop,
    check_text,
    given_or_default,
)
from trio_mcp._keywords import did_you_mean, refuse_unknown
from trio_mcp._log import LEVELS, LogLevel, logger, show_log
from trio_mcp._nursery import drop_inner_frames, is_raised_inside
from trio_mcp._renamed import refuse_attributes
from trio_mcp._settings import completed
from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity
from trio_mcp.errors import TrioMcpError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.link import Link
from trio_mcp.server.changes import Topic
from trio_mcp.server.context import Context
from trio_mcp.server.core import Core
from trio_mcp.server.features.caching import checked_hints
from trio_mcp.server.features.feature import Feature, FeatureSettings, ListOptions, RunMember
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.functions.surroundings import Surroundings
from trio_mcp.server.functions.sync_threads import FunctionOptions, SyncThreads
from trio_mcp.server.input.options import InputOptions
from trio_mcp.server.options import ServerOptions
from trio_mcp.server.signals import CHILD, run_network, run_stdio
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.middleware import Layers
from trio_mcp.types._base import make
from trio_mcp.types.common import Implementation

if TYPE_CHECKING:  # hypercorn and the HTTP server are only loaded when serving HTTP
    from trio_mcp.http.serve import RunSettings, ServeSettings
    from trio_mcp.http.server.asgi_app import AsgiApp
    from trio_mcp.http.server.options import HttpOptions, HttpSettings
    from trio_mcp.server.statistics import ServerStatistics
    from trio_mcp.sockets.serving import SocketSettings
    from trio_mcp.stores.contract import Stores

    class RunArguments(RunSettings, total=False):
        """The arguments of `Server.run`: those of all transports, each of which accepts only its own."""

        ssl_context: ssl.SSLContext | None
        allow_remote: bool
        mode: int


__all__ = ["TRANSPORTS", "BaseServer", "core_of"]

TRANSPORTS = ("stdio", "http", "sse", "websocket", "tcp", "unix")
"""The values of ``transport`` that `Server.run` accepts."""

# Without this limit, a thread that hangs would keep the process alive after its client has exited.
EXIT_GRACE = 5.0
"""How many seconds code that can't be cancelled may keep the process alive after the link has closed (arbitrary)."""

REFUSALS: Final = (OSError, TypeError, ValueError, RuntimeError, TrioMcpError)
"""The errors in `BaseServer.run` that the caller's arguments or the machine can cause."""


class BaseServer:
    """A server without features; subclasses add them. The arguments are those of `Server`.

    Attributes:
        info: The server's name, version and description.
    """

    # The value is False by default, because SIGTERM's default action ends a stdio server at once, which is how clients
    # stop a server that does not exit when its input closes (2025-11-25 `basic/lifecycle`, Shutdown). A proxy sets it
    # to True, so that it can shut down its upstreams.
    _ends_on_sigterm = False
    """Whether SIGTERM ends a server that `run` serves over stdio gracefully instead of at once."""

    _sockets: Sequence[tuple[str, socket.socket]] = ()
    """In a child process of `run`: the sockets on which it serves, with their schemes."""

    def __init__(self, name: str | Implementation, **settings: Unpack[ServerOptions]) -> None:
        refuse_unknown(type(self), settings, ServerOptions)
        # Everything that could be refused is checked on construction and not in a run, so that the traceback leads to
        # the caller.
        given = completed(ServerOptions, settings)
        self.info: Final = _named(name, given["version"])
        lists = given_or_default("lists", given["lists"], ListOptions)
        functions = given_or_default("functions", given["functions"], FunctionOptions)
        input = given_or_default("input", given["input"], InputOptions)
        lifespan = given["lifespan"]
        hints = checked_hints(lists.cache_hints)
        extensions = None
        if given["extensions"] is not None:
            from trio_mcp.server.extensions import read_extensions  # imported late: few servers have extensions

            extensions = read_extensions(given["extensions"], f"server {self.info.name!r}")
        middleware = given["middleware"] if extensions is None else extensions.placed(given["middleware"])
        shared = FeatureSettings(
            info=self.info,
            surroundings=Surroundings(Context, SyncThreads(functions.max_sync_threads), functions),
            page_size=lists.page_size,
            cache_hints=hints,
            expose_errors=given["expose_errors"],
            middleware=Layers.with_functions(middleware, "handle_request"),
            layers=Layers.of(middleware),
            principal=given["principal"],
            visible=given["visible"],
            extensions=extensions,
        )
        identity = ServerIdentity(
            info=self.info.to_wire(),
            # The method is passed, not its result, because the features are only made below, and may gain capabilities
            # while the server runs.
            capabilities=self._capabilities,
            instructions=given["instructions"],
            revisions=tuple(given["revisions"]),
            discover_hints=hints["server/discover"],
            more_methods={} if extensions is None else extensions.names,
        )
        self._core: Final = Core(
            shared,
            identity,
            given_or_default("options", given["options"], SessionOptions),
            input,
            # The lifespan is bound to the server now, because the code that enters the lifespans of mounted servers
            # only sees RunMember.
            None if lifespan is None else functools.partial(lifespan, self),
            heard=self._heard,
            family=self._family,
            input_schema=self._input_schema,
            watcher=self._watcher,
            stores=_stores(given["stores"], self.info.name),
            user_state=given["user_state"],
            tools=self._registered_tools,
            resource_feature=self._resource_feature,
        )
        # The features are made last, because they read the settings and register with the dispatch.
        self._features = tuple(self._make_features())
        for feature in self._features:
            self._core.dispatch.add(feature)
        for each in () if extensions is None else extensions.objects:
            each.attach(self)

    def _make_features(self) -> Iterable[Feature]:
        """Make the server's features, in the order of their capabilities; called at the end of ``__init__``."""
        return ()

    def _capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        declared: dict[str, Any] = {}
        for feature in self._features:
            declared.update(feature.capabilities(revision))
        return declared

    async def _heard(
        self, notification: Notification, states: Mapping[Any, Any], client: ClientDeclaration | None
    ) -> None:
        """Handle a client's notification. `Core` describes this hook, and `_family`, `_input_schema` and `_watcher`."""

    def _family(self) -> Sequence[RunMember]:
        return [self._core]

    def _input_schema(self, tool: str) -> dict[str, Any] | None:
        return None

    def _registered_tools(self) -> Any:
        return Registry("tool")

    def _resource_feature(self) -> Any:
        raise TypeError(f"server {self.info.name!r} can't have resources of its own")

    def _watcher(self, state: Any) -> Callable[[Topic, bool], None] | None:
        return None

    @contextlib.contextmanager
    def override(self, provider: Callable[..., Any], stand_in: Callable[..., Any]) -> Iterator[None]:
        """Replace a provider in tests: ``with server.override(get_db, fake_db): ...``.

        The override applies to every function called inside the block, for any client. A stand-in may depend on the
        provider that it replaces.

        Args:
            provider: The provider, as given to `Depends`.
            stand_in: The provider to use instead.

        Raises:
            TypeError: If the stand-in can't be used as a provider.
        """
        from trio_mcp.server.functions.dependencies import stand_in_for

        # The stand-in is inspected before it takes effect, so that one that can't work fails now, and not in the
        # requests.
        entry = stand_in_for(provider, stand_in, Context)
        with self._core.settings.surroundings.overrides.replaced(entry):
            yield

    def notify_elicitation_complete(self, elicitation_id: str) -> None:
        """Tell a client that the user has finished on the page that the client was asked to open (2025-11-25).

        Returns at once, from any thread. No other client is notified; the modern era has no such notification.

        Args:
            elicitation_id: The id that was passed to `Context.elicit_url`, or generated by it.
        """
        if not isinstance(elicitation_id, str):
            raise TypeError(f"elicitation_id must be a string, got {type(elicitation_id).__name__}")
        # The sets are copied, because the event loop may change them while another thread runs this method. Only
        # a session of 2025-11-25 can have sent an elicitation with an id, so requests outside sessions need not be
        # visited.
        for run in tuple(self._core.settings.runs):
            for connection in tuple(run.connections):
                connection.complete_elicitation(elicitation_id)

    def _counts(self) -> dict[str, int]:
        """Return how many items of each kind the server offers, by the names in `ServerStatistics`."""
        return dict.fromkeys(("tools", "resources", "resource_templates", "prompts", "completions"), 0)

    def statistics(self) -> ServerStatistics:
        """Return counts of the items that the server offers, and of its current work.

        This visits every session and every topic once, which is cheap enough to do every second, but not for every
        request. Call this method from the event loop's thread.
        """
        from trio_mcp.server.statistics import ServerStatistics

        runs = tuple(self._core.settings.runs)
        # The same topic may have listeners in several runs, but counts only once.
        topics = {topic for run in runs for topic in run.changes.topics}
        clients = [client for run in runs for client in run.clients]
        sessions = [client.statistics() for client in clients]
        return ServerStatistics(
            **self._counts(),
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

    async def serve(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve one link until the client closes it. Cancelling this call cancels all handlers and closes the link."""
        async with self._core.open_run() as run:
            # The lifespan has been entered. If that had failed, the error would have been raised where the server is
            # started.
            task_status.started()
            await run.serve_link(link)

    async def serve_stdio(  # noqa: ASYNC128 - passes `started` on
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve this process's standard input and output until the client closes them.

        Meanwhile, ``print`` and child processes write to standard error. If the call is cancelled, the server
        responds to open ``subscriptions/listen`` requests before this method returns.
        """
        # No grace period is passed: it would end the process if a handler can't be cancelled, but only `run` owns the
        # process.
        await self._serve_stdio(None, task_status.started)

    async def _serve_stdio(self, exit_grace: float | None, started: Callable[[], None]) -> None:
        from trio_mcp.stdio.server import stdio_server  # imported late: a server over HTTP does not need it

        async with self._core.open_run() as run:
            await run.serve_opening(stdio_server(exit_grace=exit_grace), lambda _: started())

    async def serve_http(  # noqa: ASYNC128 - passes task_status on
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[ServeSettings],
    ) -> None:
        """Serve HTTP until ``shutdown`` is set, then finish the requests under way.

        ``url = await nursery.start(server.serve_http)`` returns the endpoint's URL with the port actually bound; port 0
        picks a free one. Sockets that a service manager hands over (``LISTEN_FDS``, systemd's socket activation) are
        used instead of any address.

        Args:
            host: The address to listen on.
            port: The port to listen on.
            shutdown: Set this event to end the server: it then refuses new work, ends streams, and gives requests under
                way ``grace`` seconds.
            task_status: Receives the URL, or the first of several.
            settings: Those of `ServeSettings` and `HttpSettings`, such as ``allowed_hosts``.

        Raises:
            OSError: If the address can't be bound.
            ValueError, TypeError: If an argument is invalid.

        If the call is cancelled, the server responds to open ``subscriptions/listen`` requests and cancels everything
        else.
        """
        await self._serve_http("serve_http", host, port, shutdown, task_status, settings)

    async def serve_sse(  # noqa: ASYNC128 - passes task_status on
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[ServeSettings],
    ) -> None:
        """Serve HTTP+SSE, the transport of 2024-11-05, and nothing else; otherwise, this works like `serve_http`.

        The URL is that of the stream. Its path is given as ``sse_path`` or ``path``, which mean the same, as there is
        only one endpoint; the default is ``/sse``. To serve such clients alongside all others, use
        ``serve_http(sse_path="/sse")``.

        Raises:
            ValueError: If ``path`` and ``sse_path`` differ.
        """
        settings["sse_path"] = _only_path(settings, "sse_path", "/sse")
        # Streamable HTTP must not be served: clients that try it first would not fall back to HTTP+SSE.
        settings["path"] = None
        await self._serve_http("serve_sse", host, port, shutdown, task_status, settings)

    async def serve_websocket(  # noqa: ASYNC128 - passes task_status on
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[ServeSettings],
    ) -> None:
        """Serve WebSockets and nothing else; otherwise, this works like `serve_http`.

        The URL begins with ``ws://`` or ``wss://``. Its path is given as ``websocket_path`` or ``path``, which mean the
        same; the default is ``/mcp``. ``sse_path`` is ignored, as there is only one endpoint. ``runner`` defaults
        to ``"h11"`` on Linux. At the end each client is told that the server is shutting down (code 1012). To serve
        WebSockets alongside all other clients, use ``serve_http(websocket_path="/mcp")``.

        Raises:
            ValueError: If ``path`` and ``websocket_path`` differ.
        """
        _only_websocket(settings)
        await self._serve_http("serve_websocket", host, port, shutdown, task_status, settings)

    async def _serve_http(  # noqa: ASYNC128 - passes task_status on
        self,
        method: str,
        host: str,
        port: int,
        shutdown: trio.Event | None,
        task_status: trio.TaskStatus[str],
        settings: ServeSettings,
    ) -> None:
        from trio_mcp.http.serve import ServeSettings, serve_http  # imported late: a server on stdio never loads HTTP

        refuse_unknown(getattr(BaseServer, method), settings, ServeSettings, type(self))
        await serve_http(self._core, host, port, shutdown, task_status, settings, self._sockets)

    async def serve_tcp(  # noqa: ASYNC128 - passes task_status on
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        ssl_context: ssl.SSLContext | None = None,
        allow_remote: bool = False,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[SocketSettings],
    ) -> None:
        """Serve TCP until ``shutdown`` is set, then finish the requests under way. Each connection is one client.

        ``url = await nursery.start(server.serve_tcp)`` returns ``tcp://127.0.0.1:8000``, or ``tls://…``, with the port
        actually bound; port 0 picks a free one. Every user of the machine can connect to a port on 127.0.0.1: a Unix
        socket (`serve_unix`) keeps others out. Sockets that a service manager hands over (``LISTEN_FDS``) are used
        instead of any address.

        Args:
            host: The address to listen on.
            port: The port to listen on.
            ssl_context: The server's certificate, for TLS: ``ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)`` with
                ``load_cert_chain``. If it requires certificates from clients (``verify_mode``), handlers find the
                client's certificate in ``ctx.transport_metadata["certificate"]``.
            allow_remote: Whether the server may be reachable from other machines without TLS.
            shutdown: Set this event to end the server: it then accepts no more connections, refuses new requests, and
                gives those under way ``grace`` seconds.
            task_status: Receives the URL.
            settings: Those of `SocketSettings`, such as ``max_connections``.

        Raises:
            OSError: If the address can't be bound.
            ValueError: If other machines can reach the address, and neither TLS nor ``allow_remote`` is given; or if an
                argument is invalid.
            TypeError: If an argument is of the wrong type.

        If the call is cancelled, the server responds to open ``subscriptions/listen`` requests and cancels everything
        else.
        """
        from trio_mcp.sockets.listening import listen_tcp  # imported late: a server on stdio needs no sockets

        check_text("host", host)
        check_count("port", port, least=0, most=65535)
        if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
            raise TypeError(f"ssl_context must be an ssl.SSLContext, got {type(ssl_context).__name__}")
        listening = listen_tcp(host, port, tls=ssl_context is not None, allow_remote=allow_remote)
        await self._serve_sockets("serve_tcp", listening, ssl_context, shutdown, task_status, settings)

    async def serve_unix(  # noqa: ASYNC128 - passes task_status on
        self,
        path: str | os.PathLike[str],
        *,
        mode: int = 0o600,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[SocketSettings],
    ) -> None:
        """Serve a Unix socket, which only local programs can connect to; otherwise, this works like `serve_tcp`.

        ``url = await nursery.start(server.serve_unix, "/run/user/1000/mcp.sock")`` returns ``unix:/run/user/…``.
        A socket that an earlier server has left behind is replaced; the file is removed at the end. Handlers find the
        client's identity in ``ctx.transport_metadata["peer"]``, with ``pid``, ``uid`` and ``gid`` (on Linux).

        Args:
            path: The path of the socket.
            mode: The permissions of the socket: who may connect. By default only this user may.
            shutdown: As in `serve_tcp`.
            task_status: Receives the URL.
            settings: Those of `SocketSettings`.

        Raises:
            OSError: If another server listens on the path, or something other than a socket exists there.
            ValueError: If a socket can't have this path.
            TypeError: If an argument is of the wrong type.
        """
        from trio_mcp.sockets.listening import listen_unix

        check_count("mode", mode, least=0, most=0o777)
        await self._serve_sockets("serve_unix", listen_unix(path, mode), None, shutdown, task_status, settings)

    async def _serve_sockets(
        self,
        method: str,
        listening: contextlib.AbstractAsyncContextManager[tuple[list[trio.SocketListener], str]],
        tls: ssl.SSLContext | None,
        shutdown: trio.Event | None,
        task_status: trio.TaskStatus[str],
        settings: SocketSettings,
    ) -> None:
        from trio_mcp.sockets.serving import SocketSettings, serve_listeners

        refuse_unknown(getattr(BaseServer, method), settings, SocketSettings, type(self))
        options = completed(SocketSettings, settings)
        stop = trio.Event() if shutdown is None else shutdown
        # The run must be opened before the socket, and closed after it: no client may connect before the lifespan has
        # been entered, or while it is being exited.
        async with self._core.open_run() as run, listening as (listeners, url):
            await serve_listeners(
                run, listeners, options, tls=tls, shutdown=stop.wait, started=lambda: task_status.started(url)
            )

    def asgi_app(self, options: HttpOptions | None = None, **settings: Unpack[HttpSettings]) -> AsgiApp:
        """Return the server as an ASGI application, for an ASGI server on Trio or to mount in another application.

        With ``app = server.asgi_app()``, the ASGI server starts and ends the application:
        ``hypercorn -k trio module:app``. A mounted application starts and ends with the application around it:
        ``FastAPI(lifespan=app.lifespan)``. An application also runs inside ``async with app:``. When an application
        ends, it cancels the requests under way.

        Args:
            options: The options of the endpoint, which other endpoints may share.
            settings: Those of `HttpSettings`; they replace those of ``options``. ``path`` is relative to the place
                where the application is mounted.
        """
        from trio_mcp.http.server.asgi_app import AsgiApp
        from trio_mcp.http.server.options import HttpOptions, HttpSettings

        refuse_unknown(BaseServer.asgi_app, settings, HttpSettings, type(self))
        return AsgiApp(self._core, HttpOptions(options, **settings))

    def run(
        self,
        transport: Literal["stdio", "http", "sse", "websocket", "tcp", "unix"] = "stdio",
        *,
        log_level: LogLevel | None = None,
        processes: int | None = None,
        **arguments: Unpack[RunArguments],
    ) -> None:
        """Serve as the main program of a process, and block until the end. Ctrl-C exits with status 130.

        Over stdio: when the client has closed its end, running tools are cancelled (see `SessionOptions`) and the
        process exits. A tool that can't be cancelled gets five seconds, then the process exits with status 1.
        Over the other transports: SIGINT or SIGTERM shuts the server down gracefully; a second signal ends it at once.

        With ``processes``, this process becomes a supervisor: it binds the addresses, starts the program again in so
        many child processes, which serve, and replaces those that end. The program runs up to this call in the
        supervisor, and then once in each child. SIGHUP replaces one child after the other without refusing a request.
        A child serves on its own: what is to be seen by all of them belongs into ``Server(stores=…)``, and sessions of
        the legacy era stay in their process, so they need ``stateless``.

        Args:
            transport: ``"stdio"``, ``"http"``, ``"sse"``, ``"websocket"``, ``"tcp"`` or ``"unix"``.
            log_level: Show log messages of this level and above on standard error: ``"debug"``, ``"info"``,
                ``"warning"`` or ``"error"``. INFO includes a line for each HTTP exchange, and the messages of the
                ready-made middleware. Where logging is configured already, only the level of this library's logger is
                set. None changes nothing.
            processes: How many processes serve, from 1 to 256, over ``"http"`` or ``"websocket"``; None serves in this
                one. It needs a program in a file, and does not work on Windows.
            arguments: Those of `Server.serve_http`, `Server.serve_tcp` and so on, without ``shutdown``. For stdio there
                are none.

        Raises:
            TypeError: If an argument is unknown.
            ValueError: If the transport is unknown, or an argument is invalid.
            RuntimeError: If this is called on an event loop; or with ``processes`` where the program can't be started
                again: in an interactive session, with ``-c``, from standard input, under pytest, or on Windows.
            OSError: If the server can't listen on the address or path, or can't use a certificate.
            StoreError: If its stores can't be used.
        """
        if log_level is not None:
            check_choice("log_level", log_level, LEVELS)
        try:
            check_choice("transport", transport, TRANSPORTS)
        except ValueError as exc:
            raise ValueError(f"{exc}{did_you_mean(transport, TRANSPORTS)}") from None
        check_no_loop("run()", f"serve_{transport}()")
        if log_level is not None:
            show_log(log_level)
        try:
            if processes is not None:
                from trio_mcp.server.processes.command import check_processes  # imported late: few servers have several

                check_processes(transport, processes)
            if transport == "stdio":
                self._run_stdio(**arguments)
            else:
                self._run_network(transport, processes, **arguments)
        except Exception as exc:
            # The caller's arguments, the machine or the program's own functions caused these exceptions, and dozens of
            # inner frames would hide the cause. Any other exception is a bug in this library, and keeps its frames.
            if _is_refusal(exc) or not is_raised_inside(exc):
                logger.debug("run(%r) failed", transport, exc_info=exc)
                drop_inner_frames(exc)
            raise

    def _run_stdio(self, **arguments: Any) -> None:
        if arguments:
            from trio_mcp.http.serve import RunSettings

            refuse_unknown(BaseServer.run, arguments, RunSettings, type(self))
            name = next(iter(arguments))
            raise TypeError(f"{type(self).__name__}.run('stdio') takes no {name!r}: write run('http', {name}=…)")
        run_stdio(functools.partial(self._serve_stdio, EXIT_GRACE, lambda: None), ends_on_sigterm=self._ends_on_sigterm)

    def _run_network(self, transport: str, processes: int | None, /, **arguments: Any) -> None:
        if transport not in ("tcp", "unix"):
            from trio_mcp.http.serve import RunSettings

            refuse_unknown(BaseServer.run, arguments, RunSettings, type(self))
        serve = getattr(self, f"serve_{transport}")
        if processes is None and CHILD not in os.environ:
            run_network(self.info.name, serve, arguments)
            return
        from trio_mcp.server.processes.child import inherited, run_child

        if (mine := inherited()) is not None:
            self._core.inherited = mine
            self._sockets = mine.sockets
            run_child(mine, serve, arguments)
        elif processes is None:  # the mark was that of another process, which has started this one
            run_network(self.info.name, serve, arguments)
        else:
            self._supervise(transport, processes, **arguments)

    def _supervise(
        self, transport: str, processes: int, host: str = "127.0.0.1", port: int = 8000, **settings: Any
    ) -> None:
        from trio_mcp.server.processes.supervisor import supervise

        given: Any = settings
        if transport == "websocket":
            _only_websocket(given)
        # A WebSocket is a session of its own, which stays on its connection.
        sessions = transport == "http" and bool(self._core.identity.legacy)
        core = self._core
        supervise(self.info.name, processes, host, port, given, stores=core.stores, check=core.check, sessions=sessions)


def _is_refusal(exc: Exception) -> bool:
    from trio_mcp.stores.contract import StoreError  # imported late: few servers have stores

    return isinstance(exc, (*REFUSALS, StoreError))


def core_of(server: BaseServer) -> Core:
    """Return the `Core` of a server. This is a function so that editors don't offer it among a server's methods."""
    return server._core  # noqa: SLF001 - this module is its owner


def _named(name: str | Implementation, version: str | None) -> Implementation:
    """Return the checked description that a server gives of itself.

    Raises:
        TypeError: If the name is neither a string nor an `Implementation`, or the version is given twice.
        ValueError: If the name is empty, or clients could not show one of the icons.
    """
    if not isinstance(name, Implementation):
        check_text("a server's name", name)
        if version is not None and not isinstance(version, str):
            raise TypeError(f"version must be a string, got {version!r}")
        # The protocol requires a version (schema, Implementation), so there has to be a default.
        return make(Implementation, name=name, version="0.0.0" if version is None else version)
    if version is not None:
        raise TypeError(f"the version is given twice, as {name.version!r} and {version!r}: leave out version=")
    icons = name.icons
    if icons is not None:
        from trio_mcp.types.icons import checked_icons  # imported late: few servers have icons

        icons = checked_icons(icons, f"server {name.name!r}")
    # The caller's object is copied, because it may describe other servers as well.
    return name.model_copy(update={"icons": icons})


def _stores(given: object, server: str) -> Stores | None:
    if given is None:
        return None
    from trio_mcp.server.places import stores_at  # imported late: few servers have stores

    return stores_at(given, server)


def _only_websocket(settings: ServeSettings) -> None:
    """Replace the settings of a server that serves WebSockets only by those of an endpoint that does.

    Raises:
        ValueError: If ``path`` and ``websocket_path`` differ.
    """
    settings["websocket_path"] = _only_path(settings, "websocket_path", "/mcp")
    settings["path"] = settings["sse_path"] = None
    # An `HttpOptions` object always has a runner. A default runner can't be distinguished from a chosen one, so the
    # runner of a given object is kept.
    if settings.get("options") is None:
        settings.setdefault("runner", "h11" if sys.platform == "linux" else "hypercorn")


def _only_path(settings: ServeSettings, name: Literal["sse_path", "websocket_path"], default: str) -> str:
    """Return the path of a server's only endpoint, which may be given as ``path`` or under its own name.

    Raises:
        ValueError: If two different paths are given.
    """
    path, named, shared = settings.get("path"), settings.get(name), settings.get("options")
    if path is not None and named is not None and path != named:
        raise ValueError(f"there is only one endpoint, but path={path!r} and {name}={named!r} are given: leave one out")
    return named or path or (shared and shared.settings[name]) or default


refuse_attributes(BaseServer)
# Python's error about a missing argument names the function by its `__qualname__`, and users know this class as
# `Server`.
BaseServer.__init__.__qualname__ = "Server.__init__"
