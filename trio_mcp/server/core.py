"""What every server is made of: what it says of itself, its clients, and serving them. Features build on it."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from trio_mcp.eras.capabilities import checked_extensions
from trio_mcp.eras.server_negotiation import ServerIdentity
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.link import Link
from trio_mcp.server.connection import Handler, Middleware, NotificationHandler
from trio_mcp.server.context import Context
from trio_mcp.server.features.caching import CacheHints, checked_hints
from trio_mcp.server.features.pagination import Registry
from trio_mcp.server.features.prompts import RegisteredPrompt
from trio_mcp.server.features.resources import RegisteredResource
from trio_mcp.server.features.tools import RegisteredTool
from trio_mcp.server.functions.providers import Provider, key_of, read_provider
from trio_mcp.server.input.request_state import StateSealer
from trio_mcp.server.serving import Serving, serving
from trio_mcp.server.statistics import ServerStatistics
from trio_mcp.session.options import SessionOptions
from trio_mcp.types.common import Icon, Implementation
from trio_mcp.types.icons import checked_icons
from trio_mcp.types.versions import REVISIONS

if TYPE_CHECKING:
    from trio_mcp.server.changes import Topic
    from trio_mcp.server.features.completion import Completer
    from trio_mcp.server.features.mounting import Mount

__all__ = ["Lifespan", "ServerCore"]

EXIT_GRACE = 5.0
"""Seconds after the end of the link that code which can't be cancelled may keep the process."""

Lifespan = Callable[[Any], contextlib.AbstractAsyncContextManager[Any]]


class ServerCore:
    """The part of `Server` that knows no feature. The arguments are those of `Server`."""

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
        on_error: Callable[[RemoteProtocolError], object] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a server's name must be a non-empty string, got {name!r}")
        unknown = [revision for revision in revisions if revision not in REVISIONS]
        if unknown or not revisions or isinstance(revisions, str):
            raise ValueError(f"revisions must be some of {', '.join(REVISIONS)}, got {revisions!r}")
        for argument, count in (
            ("page_size", page_size),
            ("max_sync_tools", max_sync_tools),
            ("max_input_rounds", max_input_rounds),
            ("max_parked", max_parked),
        ):
            if isinstance(count, bool) or not isinstance(count, int):
                raise TypeError(f"{argument} must be an integer, got {count!r}")
            if count < 1:
                raise ValueError(f"{argument} must be at least 1, got {count}")
        if isinstance(request_state_ttl, bool) or not isinstance(request_state_ttl, (int, float)):
            raise TypeError(f"request_state_ttl must be a number of seconds, got {request_state_ttl!r}")
        if not 0 < request_state_ttl < math.inf:
            raise ValueError(f"request_state_ttl must be more than 0 seconds and finite, got {request_state_ttl!r}")
        if principal is not None and not callable(principal):
            raise TypeError(f"principal must be a function of the context, got {type(principal).__name__}")
        if inspect.isasyncgenfunction(lifespan):
            raise TypeError("lifespan must give an async context manager: decorate it with @asynccontextmanager")
        self.info: Final = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=None if icons is None else checked_icons(icons, f"server {name!r}"),
        )
        self.cache_hints: Final = checked_hints(cache_hints)
        self.identity = ServerIdentity(
            info=self.info.to_wire(),
            capabilities=self._capabilities,
            instructions=instructions,
            revisions=tuple(revisions),
            discover_hints=self.cache_hints["server/discover"],
        )
        self.lifespan = lifespan
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self.expose_errors = expose_errors
        self.page_size = page_size
        self.extensions: Final = checked_extensions(extensions, f"server {name!r}")
        self.sealer: Final = StateSealer(name, request_state_key)
        self.request_state_ttl = request_state_ttl
        self.principal = principal
        self.max_input_rounds = max_input_rounds
        self.max_parked = max_parked
        self.options = options or SessionOptions()
        self.on_error = on_error
        self._tools: Registry[RegisteredTool] = Registry("tool")
        self._resources: Registry[RegisteredResource] = Registry("resource")
        self._resource_templates: Registry[RegisteredResource] = Registry("resource template")
        self._prompts: Registry[RegisteredPrompt] = Registry("prompt")
        self._completers: dict[tuple[str, str, str], Completer] = {}
        self._max_sync_tools = max_sync_tools
        # One for each run of Trio: the token of a thread that outlives its run never comes back.
        self._sync_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("sync tools")
        self._stand_ins: list[tuple[object, Provider]] = []
        self._overrides: dict[object, Provider] = {}
        self._methods = self._handlers()
        self._notification_handlers: dict[str, NotificationHandler] = {}
        self._servings: set[Serving] = set()  # those, too, of the servers in which it is mounted
        self._mounts: list[Mount] = []
        self._mounted_in: list[Mount] = []

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
        """What is declared to a client of a revision; each feature adds its own."""
        return {}

    def _handlers(self) -> dict[str, Handler]:
        """The handler of each method; each feature adds its own."""
        return {}

    def _hearing(self, state: Any) -> Callable[[Topic, bool], None] | None:
        """What is to be told, in a run with this state, of topics that are listened to or not any more."""
        return None

    def _family(self) -> list[ServerCore]:
        """This server and all that are mounted in it, each once."""
        return _reached(self, lambda server: [mount.server for mount in server._mounts])

    def _holders(self) -> list[ServerCore]:
        """This server and all in which it is mounted, each once."""
        return _reached(self, lambda server: [mount.parent for mount in server._mounted_in])

    def _announce(self, method: str, uri: str | None = None) -> None:
        for run in tuple(self._servings):
            run.changes.announce(method, uri)

    @contextlib.contextmanager
    def override(self, provider: Callable[..., Any], stand_in: Callable[..., Any]) -> Iterator[None]:
        """Have another provider stand in for one, for tests: ``with server.override(get_db, fake_db): ...``.

        It holds for every request whose function is called meanwhile, whoever makes it. A stand-in may depend on
        what it stands in for.

        Args:
            provider: As it is in `Depends`.
            stand_in: Another provider.

        Raises:
            TypeError: The stand-in is no provider.
        """
        entry = (key_of(provider), read_provider(stand_in, Context, "override"))
        self._stand_ins.append(entry)
        self._overrides = dict(self._stand_ins)
        try:
            yield
        finally:
            self._stand_ins.remove(entry)  # not the last one: blocks of several tasks may end in any order
            self._overrides = dict(self._stand_ins)

    def notify_elicitation_complete(self, elicitation_id: str) -> None:
        """Tell the client that was asked to visit a page that what it was to do there is done (2025-11-25).

        Returns at once, from any thread. Nobody else is told; the modern era has no such notification.

        Args:
            elicitation_id: As in `Context.elicit_url`.
        """
        if not isinstance(elicitation_id, str):
            raise TypeError(f"elicitation_id must be a string, got {type(elicitation_id).__name__}")
        for each in tuple(self._servings):
            for connection in tuple(each.connections):
                connection.complete_elicitation(elicitation_id)

    def input_schema(self, tool: str) -> dict[str, Any] | None:
        """The input schema of a tool; None for one that is not known. It is the same object as long as the tool is."""
        registered = self._tools.get(tool)
        return None if registered is None else registered.definition.input_schema

    def statistics(self) -> ServerStatistics:
        """What the server offers and what it is doing now.

        It looks at every session and every topic once: cheap enough for each second, not for each request. Call it in
        the thread of the event loop.
        """
        runs = tuple(self._servings)
        topics = {topic for run in runs for topic in run.changes.topics}
        connections = [client for run in runs for client in run.clients]
        sessions = [connection.statistics() for connection in connections]
        return ServerStatistics(
            tools=len(self._tools),
            resources=len(self._resources),
            resource_templates=len(self._resource_templates),
            prompts=len(self._prompts),
            completions=len(self._completers),
            runs=len(runs),
            sessions=len(sessions),
            incoming=sum(each.incoming for each in sessions),
            running=sum(each.running for each in sessions),
            queued=sum(each.queued for each in sessions),
            outgoing=sum(each.outgoing for each in sessions),
            parked=sum(len(run.parked) for run in runs),
            listening=sum(each.listening for each in sessions),
            topics=len(topics),
            watched_resources=sum(uri is not None for _, uri in topics),
            changes_waiting=sum(len(run.changes.waiting) for run in runs)
            + sum(connection.changes_waiting for connection in connections),
            messages_waiting=sum(each.bulk_waiting + each.control_waiting for each in sessions),
            http=tuple(endpoint() for run in runs for endpoint in run.endpoints),
        )

    # --- serving -------------------------------------------------------------------------------------------------

    async def serve(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve one link until the client closes it. When cancelled, so are all handlers, and the link is closed."""
        async with serving(self) as run:
            task_status.started()
            await run.serve_link(link)

    async def serve_stdio(  # noqa: ASYNC128 - it hands `started` on
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve this process's standard input and output until the client closes them.

        Meanwhile ``print`` and child processes write to standard error. When cancelled, those who listen get their
        results, then it ends.
        """
        await self._serve_stdio(None, task_status.started)

    async def _serve_stdio(self, exit_grace: float | None, started: Callable[[], None]) -> None:
        from trio_mcp.stdio.server import stdio_server

        async with serving(self) as run:
            await run.serve_only_link(stdio_server(exit_grace=exit_grace), started)

    def run(self, transport: str = "stdio", **arguments: Any) -> None:
        """Serve, blocking, as the main program of a process. Ctrl-C ends it with exit status 130.

        Over stdio: after the client has closed its end, running tools are cancelled (see `SessionOptions`), and the
        process exits; one that can't be cancelled is given five seconds, then the process ends with status 1.
        Over HTTP: SIGINT and SIGTERM end it with grace, a second one at once.

        Args:
            transport: ``"stdio"``, ``"http"`` or ``"sse"``.
            arguments: What else the transport takes: the arguments of `Server.serve_http` or `Server.serve_sse`.

        Raises:
            ValueError: There is no such transport.
        """
        transports = self._transports()
        if transport not in transports:
            raise ValueError(f"unknown transport {transport!r}; there is {' and '.join(map(repr, transports))}")
        transports[transport](**arguments)

    def _transports(self) -> dict[str, Callable[..., None]]:
        """What runs the server over each transport; each adds its own."""
        return {"stdio": self._run_stdio}

    def _run_stdio(self) -> None:
        try:
            trio.run(self._serve_stdio, EXIT_GRACE, lambda: None)
        except KeyboardInterrupt:
            sys.exit(130)


def _reached(start: ServerCore, following: Callable[[ServerCore], list[ServerCore]]) -> list[ServerCore]:
    found = {start: None}
    waiting = [start]
    while waiting:
        for server in following(waiting.pop(0)):
            if server not in found:
                found[server] = None
                waiting.append(server)
    return list(found)
