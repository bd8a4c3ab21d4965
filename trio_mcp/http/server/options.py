"""The settings of a server's HTTP endpoint."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, Self, TypedDict, Unpack

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_choice, check_count, check_kind, check_seconds
from trio_mcp._keywords import refuse_unknown
from trio_mcp._settings import Default, completed
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard
from trio_mcp.http.server.card import CardSource, card_path
from trio_mcp.http.server.protection import Protection
from trio_mcp.stores.event_store import EventStore

__all__ = ["RUNNERS", "HttpOptions", "HttpSettings"]

RUNNERS: Final = ("hypercorn", "h11", "httptools")
"""The names of the runners, which implement HTTP on the connections of a server; see `HttpSettings`."""


PROTECTION: Final = ("document", "opened", "permit", "resource")
"""The members by which a `Protection` is recognized."""

CARD: Final = ("card", "catalog", "max_age")
"""The members by which a `CardSource` is recognized."""

_SECONDS = partial(Default, check=check_seconds)
_COUNT = partial(Default, check=check_count)


# This function runs before the check, so it must accept any value. It removes trailing slashes, because
# `HttpRequest.path` has none.
def _without_end(path: Any) -> Any:
    return path.rstrip("/") or "/" if isinstance(path, str) and path.startswith("/") else path


def _check_path(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {value!r}")
    if not value.startswith("/"):
        raise ValueError(f"{name} must begin with a slash, got {value!r}")


_PATH = partial(Default, check=_check_path, convert=_without_end)


def _check_auth(name: str, value: object) -> None:
    # The members are checked instead of the class, because `trio_mcp.auth` is not imported here.
    if value is not None and (isinstance(value, type) or not all(hasattr(value, each) for each in PROTECTION)):
        raise TypeError(f"{name} must be a ResourceServer of trio_mcp.auth, got {value!r:.100}")


def _check_card(name: str, value: object) -> None:
    if value is not None and (isinstance(value, type) or not all(hasattr(value, each) for each in CARD)):
        raise TypeError(f"{name} must be a CardSettings of trio_mcp.server_card, got {value!r:.100}")


# The defaults of the limits are arbitrary; docs/reference/limits.md has a table of all bounds.
class HttpSettings(TypedDict, total=False):
    """The settings of an HTTP endpoint. Each has a safe default.

    Attributes:
        path: The path of the MCP endpoint; None disables it. Trailing slashes of paths are ignored.
        health_path: The path at which a GET gets a 200, or a 503 while the server is ending; None disables it.
        allowed_hosts: Names, with or without a port, by which the server may be reached; ``["*"]`` for any. The default
            is the loopback names for a connection to a loopback address, and any name otherwise.
        allowed_origins: Origins of web pages that may call, such as ``"https://app.example.com"``; ``["*"]`` for any.
            The default is the origins on the ``allowed_hosts``, or none if any host is allowed. Pages from an
            origin other than the server's also need ``cors``.
        cors: Whether to tell browsers that pages of the ``allowed_origins`` may call and read the responses.
        sse_path: The path at which clients of 2024-11-05 (HTTP+SSE) open their stream; None disables it.
        message_path: The path to which clients of HTTP+SSE post their messages.
        websocket_path: The path at which clients open a WebSocket; it may be that of the endpoint. None disables it.
        stateless: Keep no sessions in the legacy era: every POST stands alone, and the server can't send requests to
            the client.
        json_only: Respond with one JSON text, never with a stream; progress and log messages are dropped. Listening
            (`subscriptions/listen`) is still a stream.
        event_store: Stores the messages of sessions, so that a client whose connection broke gets the rest; None stores
            nothing, unless the server has ``stores``, which then store them; both are refused.
        retry: Seconds that a client should wait before it reconnects to a closed stream; None leaves it to the client.
        max_sessions: How many sessions there may be at once. Beyond that, ``initialize`` ends the oldest session whose
            client has not finished the handshake, or gets a 503 if there is no such session. This is also the limit for
            WebSockets; beyond that, a new one is closed with the code 1013.
        session_timeout: Seconds after which a session without a request under way and without an open stream ends. If a
            request is under way, its questions to the client fail instead.
        max_message_size: The longest body that is accepted, in bytes; a longer one gets a 413. A WebSocket on which a
            longer message arrives is closed with the code 1009.
        head_timeout: Seconds for a TLS handshake, and for the head of a request to arrive, counted from its first byte,
            or for the first request from the beginning of the connection (`Server.serve_http` only).
        body_timeout: Seconds that the body of a request, or a message on a WebSocket, may take to arrive.
        max_requests: How many requests may be under way at once, each until its handler has ended and its response has
            been written; likewise how many bodies may be read at once. Further ones get a 503. Responses, progress and
            cancellations are always accepted.
        max_request_bytes: How many bytes the requests under way may have in total, and likewise the bodies being read;
            further ones get a 503. A single one may have more. `HandlerOptions.max_incoming_bytes` limits each session.
        keep_alive: Seconds of silence after which a stream gets a comment, so that no proxy considers it dead, or the
            client of a WebSocket gets a ping.
        ping_timeout: Seconds of silence after which the client of a WebSocket is considered dead.
        max_connections: How many connections may be open at once (`Server.serve_http` only).
        write_timeout: Seconds that a client may take to read 64 KiB once its buffers are full (`serve_http` only).
        grace: Seconds that requests under way are given when the server ends.
        card: What the endpoint publishes about the server in a card, a `trio_mcp.server_card.CardSettings`; None
            publishes nothing. Server cards are an experimental extension.
        auth: The object that checks the tokens of requests, such as a `trio_mcp.auth.ResourceServer`; None admits every
            request.
        runner: The implementation of HTTP (`Server.serve_http` only): ``"hypercorn"``, which also supports HTTP/2;
            ``"h11"``, which is faster and needs Linux; or ``"httptools"``, which is faster still, needs Linux, and
            needs the extra ``fast``.
    """

    # The default is the path in the specification's own example (`basic/transports`, Streamable HTTP).
    path: Annotated[str | None, _PATH("/mcp")]
    health_path: Annotated[str | None, _PATH("/health")]
    allowed_hosts: Annotated[Sequence[str] | None, Default()]
    allowed_origins: Annotated[Sequence[str] | None, Default()]
    cors: Annotated[bool, Default(False)]
    sse_path: Annotated[str | None, _PATH()]
    message_path: Annotated[str, _PATH("/messages")]
    websocket_path: Annotated[str | None, _PATH()]
    stateless: Annotated[bool, Default(False)]
    json_only: Annotated[bool, Default(False)]
    event_store: Annotated[EventStore | None, Default(check=partial(check_kind, kind=EventStore))]
    retry: Annotated[float | None, Default(1.0, partial(check_seconds, finite=True, optional=True))]
    max_sessions: Annotated[int, _COUNT(1000)]
    session_timeout: Annotated[float, _SECONDS(1800.0)]
    max_message_size: Annotated[int, _COUNT(4 * 1024 * 1024)]
    head_timeout: Annotated[float, _SECONDS(5.0)]
    body_timeout: Annotated[float, _SECONDS(30.0)]
    max_requests: Annotated[int, _COUNT(1000)]
    max_request_bytes: Annotated[int, _COUNT(256 * 1024 * 1024)]
    # The HTML standard advises authors of event streams to send a comment every 15 seconds or so, because some proxies
    # drop silent connections.
    keep_alive: Annotated[float, _SECONDS(15.0)]
    ping_timeout: Annotated[float, _SECONDS(60.0)]
    max_connections: Annotated[int, _COUNT(1000)]
    write_timeout: Annotated[float, _SECONDS(30.0)]
    grace: Annotated[float, _SECONDS(5.0)]
    card: Annotated[CardSource | None, Default(check=_check_card)]
    auth: Annotated[Protection | None, Default(check=_check_auth)]
    # The runner is given by name: its class can't be imported here, because runners import modules of the endpoint.
    runner: Annotated[str, Default("hypercorn", partial(check_choice, choices=RUNNERS))]


@attrs.frozen(init=False)
class HttpOptions:
    """Checked settings of an HTTP endpoint, which several endpoints can share: ``options=HttpOptions(…)``.

    Args:
        shared: Options whose settings are used unless the ``settings`` replace them.
        settings: The settings of `HttpSettings`.

    Raises:
        TypeError: If a value has the wrong type, or a name is unknown.
        ValueError: If a value is out of range, or not a valid host or origin.

    Attributes:
        settings: Every setting.
    """

    settings: HttpSettings

    def __init__(self, shared: Self | None = None, /, **settings: Unpack[HttpSettings]) -> None:
        refuse_unknown(HttpOptions, settings, HttpSettings)
        given = settings if shared is None else {**shared.settings, **settings}
        self.__attrs_init__(completed(HttpSettings, given))
        if self.settings["event_store"] is not None and self.settings["stateless"]:
            raise ValueError("event_store needs sessions, but stateless=True keeps none")
        endpoint, sse, websocket = self.settings["path"], self.settings["sse_path"], self.settings["websocket_path"]
        # Trailing slashes have been removed, as in requests. `message_path` is used only if HTTP+SSE is served.
        paths = [path for path in (endpoint, self.settings["health_path"], sse) if path is not None]
        paths += [self.settings["message_path"]] * (sse is not None)
        # A WebSocket begins with a GET that no other client sends, so the endpoint can serve both at one path.
        if websocket is not None and websocket != endpoint:
            paths.append(websocket)
        if self.settings["card"] is not None:
            if endpoint is None:
                raise ValueError("card describes the endpoint at path=, but path is None")
            paths.append(card_path(endpoint))
        if len(set(paths)) < len(paths):
            raise ValueError(f"the paths of a server must be distinct, got {', '.join(paths)}")
        if endpoint is None and sse is None and websocket is None:
            raise ValueError(
                "path, sse_path and websocket_path are None, so nothing would be served: set at least one of them"
            )
        self.guard(local=True)  # raises for a wrong host or origin now instead of at the first request

    @property
    def endpoint(self) -> str:
        """The path by which the server is known: ``path``, or else ``sse_path``, or else ``websocket_path``."""
        return self.settings["path"] or self.settings["sse_path"] or self.settings["websocket_path"] or ""

    def guard(self, *, local: bool) -> HostGuard:
        """Return the guard that checks hosts and origins on connections to a local address, or to any other."""
        hosts = self.settings["allowed_hosts"]
        # By default, a web page can't reach a local server by a name of the page's own (DNS rebinding). A server that
        # listens elsewhere doesn't know its names, so it accepts any name unless they are given.
        if hosts is None and local:
            hosts = LOOPBACK_HOSTS
        elif hosts is not None and not isinstance(hosts, str) and "*" in hosts:
            hosts = None
        return HostGuard(hosts, self.settings["allowed_origins"])
