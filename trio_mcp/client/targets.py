"""Defines the targets that a `Client` can connect to, and turns each into a function that opens a link."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import as_written
from trio_mcp._nursery import background_nursery, start
from trio_mcp.client.failover.link import FailoverConnector
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.errors import LocalProtocolError
from trio_mcp.http.client.auth import Auth, check_auth
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.link import Link
from trio_mcp.memory import memory_link_pair
from trio_mcp.sockets.addresses import read_address
from trio_mcp.stdio.client import stdio_client
from trio_mcp.stdio.parameters import StdioServerParameters

# This equals the default `shutdown_grace` of a server process.
SERVER_GRACE = 2.0
"""Seconds that an in-memory server has to finish, for example to end its lifespan, after its client has left."""

__all__ = [
    "HttpConnector",
    "LinkFactory",
    "Servable",
    "Target",
    "authorized",
    "auths_of",
    "failover_client",
    "is_over_http",
    "link_factory",
    "target_name",
]

Opening: TypeAlias = contextlib.AbstractAsyncContextManager[Link]
LinkFactory: TypeAlias = Callable[[], Opening]


@runtime_checkable
class Servable(Protocol):
    """Something that can serve a link, such as a `trio_mcp.Server`, which the client must not import."""

    async def serve(self, link: Link, *, task_status: Any = ...) -> None: ...


SingleTarget: TypeAlias = str | StdioServerParameters | HttpServerParameters | Servable | LinkFactory | Opening
Target: TypeAlias = SingleTarget | FailoverParameters | Sequence[SingleTarget]
"""A server that a `Client` can connect to. A string is the URL of the server; a list gives several ways to reach one
server, the best first."""

AGAIN = "pass a function that makes it: lambda: streamable_http_client(url)"

SCHEMES = ("http://", "https://", "ws://", "wss://", "tcp://", "tls://", "unix:")
"""The prefixes with which the URL of a server may begin."""


def link_factory(target: Target) -> LinkFactory:
    """Return the function that connects to a target.

    Raises:
        TypeError: If ``target`` is not a valid target.
        ValueError: If ``target`` is an invalid URL, or one with a scheme for which there is no transport.
    """
    if isinstance(target, (list, tuple)):
        target = FailoverParameters(target)
    if isinstance(target, FailoverParameters):
        # All targets in the list are checked before any is used, so that a mistake in the last target is reported at
        # once, and not only after all the others have failed.
        if any(_is_opening(each) for each in target.targets):
            raise TypeError(f"one of several ways to a server is used again and again, so {AGAIN}")
        return FailoverConnector([(target_name(each), link_factory(each)) for each in target.targets], target)
    if isinstance(target, StdioServerParameters):
        return lambda: stdio_client(target)
    if isinstance(target, str):
        return _by_url(target)
    if isinstance(target, HttpServerParameters):
        return _by_parameters(target)
    # The check for a server comes before the one for a callable, because an object with `serve` may be callable as
    # well.
    if isinstance(target, Servable):
        return lambda: _serve_in_memory(target)
    # This comes before callables, too: what `contextlib.asynccontextmanager` makes is also a decorator.
    if _is_opening(target):
        return partial(_enter_once, target)
    if callable(target):
        return target
    if isinstance(target, Mapping) and ("mcpServers" in target or "servers" in target):
        raise TypeError("a target must be one server; for a configuration use ClientGroup.from_config(…)")
    raise TypeError(
        "a target must be a URL, HttpServerParameters, StdioServerParameters, a Server, or a callable that returns an "
        f"async context manager yielding a Link; got {type(target).__name__}"
    )


def _is_opening(target: object) -> TypeGuard[Opening]:
    """Return whether a target opens a link once, as what ``streamable_http_client(url)`` returns does."""
    return isinstance(target, contextlib.AbstractAsyncContextManager) and not isinstance(target, Servable)


_entered = weakref.WeakSet[Opening]()


def _enter_once(opening: Opening) -> Opening:
    """Return an async context manager that has not been entered yet."""
    if opening in _entered:
        raise LocalProtocolError(f"the target is an async context manager, which connects once: {AGAIN}")
    _entered.add(opening)
    return opening


def authorized(target: Target, auth: Auth | None, *, optional: bool = False) -> Target:
    """Return a target with ``auth=`` set, unless it already is; in a list, set it on each HTTP or WebSocket target.

    Args:
        target: The target.
        auth: Signs in, and authorizes each request; None leaves the target unchanged.
        optional: Whether to return a target unchanged, instead of raising, if it can't use ``auth`` or has other
            credentials.

    Raises:
        TypeError: If ``auth`` is not valid as an ``auth=``, or the target can't use it.
    """
    check_auth(auth)
    if auth is None:
        return target
    ways = target.targets if isinstance(target, FailoverParameters) else target
    if isinstance(ways, (list, tuple)):
        signed = [_signed(way, auth, optional) for way in ways]
        if any(isinstance(way, HttpServerParameters) for way in signed):
            return attrs.evolve(target, targets=signed) if isinstance(target, FailoverParameters) else signed
    elif isinstance(changed := _signed(ways, auth, optional), HttpServerParameters):
        return changed
    if optional:
        return target
    raise TypeError(
        f"auth= is for servers that are reached over HTTP or WebSocket, and {target_name(target)!r} is not; a process"
        " gets credentials through its environment: StdioServerParameters(…, env={…})"
    )


def _signed(target: Any, auth: Auth, optional: bool) -> Any:
    if isinstance(target, str) and target.partition("://")[0].lower() in ("http", "https", "ws", "wss"):
        target = HttpServerParameters(target, kind="ws" if target[:2].lower() == "ws" else "http")
    if isinstance(target, HttpServerParameters) and target.auth is None:
        with contextlib.suppress(ValueError) if optional else contextlib.nullcontext():
            return attrs.evolve(target, auth=auth)
    return target


def is_over_http(open_link: LinkFactory) -> bool:
    """Return whether a connector is known to use HTTP, whichever of its ways works."""
    if isinstance(open_link, FailoverConnector):
        return all(isinstance(connect, HttpConnector) for _, connect in open_link.ways)
    return isinstance(open_link, HttpConnector)


def auths_of(target: Target) -> list[Auth]:
    """Return every ``auth=`` that is set on a target, or on the targets in a list."""
    ways = target.targets if isinstance(target, FailoverParameters) else target
    listed = ways if isinstance(ways, (list, tuple)) else [ways]
    parameters = [way.parameters if isinstance(way, HttpConnector) else way for way in listed]
    return [each.auth for each in parameters if isinstance(each, HttpServerParameters) and each.auth is not None]


def target_name(target: object) -> str:
    """Return a name for a target: its URL without secrets, the command of a process, or the name of a server."""
    if isinstance(target, HttpServerParameters):
        target = target.url
    if isinstance(target, str):
        target = as_written(target)
        scheme, separator, rest = target.partition("://")
        # The user name and password before the host, and the query, may be secret, so they are left out.
        place = rest.partition("?")[0].partition("#")[0]
        host, slash, path = place.partition("/")
        # The host follows the last `@`, because a password that was not percent-encoded may itself contain an `@`.
        return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else target.partition("?")[0]
    if isinstance(target, StdioServerParameters):
        # The arguments of the command are left out, as they may contain secrets.
        return as_written(target.command)
    # A `Server` has its name in `info`, and a function in `__qualname__`. The type is not tested, because the client
    # must not import `Server`.
    names = (getattr(getattr(target, "info", target), "name", None), getattr(target, "__qualname__", None))
    return next((name for name in names if isinstance(name, str)), type(target).__name__)


def failover_client(targets: Sequence[SingleTarget], **settings: Any) -> contextlib.AbstractAsyncContextManager[Link]:
    """Connect to one server that can be reached in several ways; the session uses the best way that works.

    If that way fails, the next one takes over. A `Client` whose target is a list or `FailoverParameters` does the same
    by itself; call this function if you need the link for a session of your own.

    Args:
        targets: The ways to reach the server, the best first: targets of a `Client`.
        settings: Other attributes of `FailoverParameters`.

    Raises:
        TypeError, ValueError: If an argument is invalid.
    """
    return link_factory(FailoverParameters(targets, **settings))()


def _by_url(url: str) -> LinkFactory:
    scheme, separator, rest = url.partition(":")
    # Schemes are case-insensitive (RFC 3986, section 3.1).
    match scheme.lower():
        case "http" | "https" if rest.startswith("//"):
            return _by_parameters(HttpServerParameters(url))
        case "ws" | "wss" if rest.startswith("//"):
            return _by_parameters(HttpServerParameters(url, kind="ws"))
        case "tcp" | "tls" | "unix" if separator:
            read_address(url)  # An invalid address raises an error now, not only on connecting.
            return lambda: _socket_client(url)
    # The string may be a command, or an incomplete URL such as `localhost:8000/mcp`, in which the host stands where the
    # scheme should be.
    if not rest.startswith("//"):
        # FastMCP runs a Python file itself, but a caller of this library must name the interpreter, so the message
        # shows how.
        program = f"sys.executable, [{url!r}]" if url.endswith(".py") else f"{url!r}, [arguments]"
        raise TypeError(
            f"{url!r} is not a URL: a URL begins with one of {', '.join(SCHEMES)}."
            f" To start a server as a process, pass StdioServerParameters({program})"
        )
    raise ValueError(f"there is no transport for {scheme}:// URLs; use one of {', '.join(SCHEMES)}")


def _by_parameters(parameters: HttpServerParameters) -> LinkFactory:
    return partial(_websocket_client, parameters) if parameters.kind == "ws" else HttpConnector(parameters)


def _websocket_client(parameters: HttpServerParameters) -> contextlib.AbstractAsyncContextManager[Link]:
    from trio_mcp.http.client.websocket import websocket_client

    return websocket_client(parameters.url, headers=parameters.headers, auth=parameters.auth)


def _socket_client(url: str) -> contextlib.AbstractAsyncContextManager[Link]:
    # The import is late, so that clients of other transports need not load the socket clients.
    from trio_mcp.sockets.client import tcp_client, unix_client

    return (unix_client if url[:5].lower() == "unix:" else tcp_client)(url)


# This is a class and not a function, because a client's negotiation also needs `is_legacy`, which only this transport
# can know.
@attrs.frozen
class HttpConnector:
    """Connects to a server over Streamable HTTP or HTTP+SSE."""

    parameters: HttpServerParameters

    def __call__(self) -> contextlib.AbstractAsyncContextManager[Link]:
        # The imports are late, so that clients of other transports need not load the HTTP stack.
        from trio_mcp.http.client.door import sse_client
        from trio_mcp.http.client.streamable import streamable_http_client

        connect = sse_client if self.parameters.kind == "sse" else streamable_http_client
        return connect(self.parameters.url, headers=self.parameters.headers, auth=self.parameters.auth)

    @property
    def is_legacy(self) -> bool:
        """Whether the server is known to speak only the legacy era, from its kind or from an earlier connection."""
        # HTTP+SSE is the transport of revision 2024-11-05, and no modern revision has it, so a server that uses it is
        # legacy.
        return self.parameters.kind == "sse" or ORIGINS.recall(self.parameters.url) in ("legacy", "sse")


@contextlib.asynccontextmanager
async def _serve_in_memory(server: Servable) -> AsyncIterator[Link]:
    # The server's tasks run in a nursery of the client: they are cancelled when the client's block ends, whatever they
    # are doing.
    async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
        # Leaving the nursery would cancel the server at once; with this event, the client can first wait for the server
        # to finish.
        ended = trio.Event()

        async def serve(task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC128 - the server calls it
            try:
                await server.serve(theirs, task_status=task_status)
            finally:
                ended.set()

        # `start` waits until the server is ready, so that an error in its lifespan is raised where the client's block
        # is entered.
        await start(nursery, serve)
        yield ours
        # The client's block has ended without an exception, so the server may finish gracefully, as it does when any
        # other link is closed.
        for channel in ours:
            await channel.aclose()
        with trio.move_on_after(SERVER_GRACE):
            await ended.wait()
