"""The settings of a server's HTTP endpoint."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, Self, TypedDict, Unpack

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_choice, check_count, check_kind, check_seconds
from trio_mcp._keywords import refuse_unknown
from trio_mcp._settings import Default, completed
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard
from trio_mcp.http.server.event_store import EventStore
from trio_mcp.http.server.protection import Protection

__all__ = ["RUNNERS", "HttpOptions", "HttpSettings"]

RUNNERS: Final = ("hypercorn", "h11", "httptools")
"""The runners, which speak HTTP on the connections of a server; see `HttpSettings`."""


PROTECTION: Final = ("document", "opened", "permit", "resource")
"""The members of a `Protection`."""

_SECONDS = partial(Default, check=check_seconds)
_COUNT = partial(Default, check=check_count)


# This runs before the check, so it must let anything pass. `HttpRequest.path` has no trailing slash either.
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
    # Its members are checked, not its class: `trio_mcp.auth` is not imported here.
    if value is not None and (isinstance(value, type) or not all(hasattr(value, each) for each in PROTECTION)):
        raise TypeError(f"{name} must be a ResourceServer of trio_mcp.auth, got {value!r:.100}")


# The defaults of the limits are chosen; docs/reference/limits.md has a table of all bounds.
class HttpSettings(TypedDict, total=False):
    """The settings of an HTTP endpoint. Every one has a safe default.

    Attributes:
        path: The path of the MCP endpoint; None for no endpoint there. Trailing slashes of paths are ignored.
        health_path: The path at which a GET gets a 200, or a 503 while the server is ending; None disables it.
        allowed_hosts: Names, with or without a port, by which the server may be reached; ``["*"]`` for any. By default
            the loopback names if the connection arrives on a loopback address, else any.
        allowed_origins: Origins of web pages that may call, such as ``"https://app.example.com"``; ``["*"]`` for any.
            By default those on the ``allowed_hosts``, and none if any host is allowed. Pages of other origins also need
            ``cors``.
        cors: Whether to tell browsers that pages of the ``allowed_origins`` may call and read the responses.
        sse_path: The path at which clients of 2024-11-05 (HTTP+SSE) open their stream; None disables it.
        message_path: The path to which those clients post their messages.
        websocket_path: The path at which clients open a WebSocket; it may be that of the endpoint. None disables it.
        stateless: Keep no sessions in the legacy era: every POST stands alone, and the server can't send requests to
            the client.
        json_only: Respond with one JSON text, never with a stream; progress and log messages are dropped. Listening
            (`subscriptions/listen`) is still a stream.
        event_store: Stores what is sent in sessions, so that a client whose connection broke gets the rest; None
            stores nothing.
        retry: Seconds that a client should wait before it reconnects to a closed stream; None leaves it to the client.
        max_sessions: How many sessions there may be at once. Beyond that, ``initialize`` ends the oldest session whose
            client never finished the handshake, or gets a 503 if there is no such session. Likewise how many WebSockets
            there may be; beyond that one is closed with the code 1013.
        session_timeout: Seconds after which a session ends that has no request under way and no open stream. If a
            request is under way, its questions to the client fail instead.
        max_message_size: The longest body that is accepted, in bytes; a longer one gets a 413. A WebSocket that gets
            a longer message is closed with the code 1009.
        head_timeout: Seconds that the head of a request may take to arrive, from its first byte, and a TLS handshake;
            for the first request from the connection's beginning (`Server.serve_http` only).
        body_timeout: Seconds that the body of a request may take to arrive, or a message of a WebSocket.
        max_requests: How many requests may be under way at once, each until its handler has ended and its response
            was written; likewise how many bodies may be read. Further ones get a 503. Responses, progress and
            cancellations are always accepted.
        max_request_bytes: How many bytes the requests under way may have in all, and likewise the bodies being read;
            beyond that, 503. A single one may have more. A session's share is `HandlerOptions.max_incoming_bytes`.
        keep_alive: Seconds of silence after which a stream gets a comment, so that no proxy considers it dead, and
            the client of a WebSocket a ping.
        ping_timeout: Seconds of silence after which the client of a WebSocket counts as dead.
        max_connections: How many connections may be open at once (`Server.serve_http` only).
        write_timeout: Seconds that a client may take to read 64 KiB once its buffers are full (`serve_http` only).
        grace: Seconds that requests under way are given when the server ends.
        auth: What judges the tokens of requests, such as a `trio_mcp.auth.ResourceServer`; None admits
            every request.
        runner: What speaks HTTP (`Server.serve_http` only): ``"hypercorn"``, which also has HTTP/2; ``"h11"``, which is
            faster and needs Linux; ``"httptools"``, likewise and faster still, from the extra ``fast``.
    """

    # The path of the specification's own example (`basic/transports`, Streamable HTTP).
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
    # As the HTML standard advises authors of event streams: a comment every 15 seconds or so, as some proxies drop
    # silent connections.
    keep_alive: Annotated[float, _SECONDS(15.0)]
    ping_timeout: Annotated[float, _SECONDS(60.0)]
    max_connections: Annotated[int, _COUNT(1000)]
    write_timeout: Annotated[float, _SECONDS(30.0)]
    grace: Annotated[float, _SECONDS(5.0)]
    auth: Annotated[Protection | None, Default(check=_check_auth)]
    # It is a name, not a class: the endpoint does not know the runners, which import it.
    runner: Annotated[str, Default("hypercorn", partial(check_choice, choices=RUNNERS))]


@attrs.frozen(init=False)
class HttpOptions:
    """Settings of an HTTP endpoint that have been checked, for endpoints that share them: ``options=HttpOptions(…)``.

    Args:
        shared: Options to begin with; the ``settings`` replace theirs.
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
        # They are compared without trailing slashes, as requests are. `message_path` counts only if HTTP+SSE is served.
        paths = [path for path in (endpoint, self.settings["health_path"], sse) if path is not None]
        paths += [self.settings["message_path"]] * (sse is not None)
        # A WebSocket begins with a GET that no other client sends, so the endpoint can have both.
        if websocket is not None and websocket != endpoint:
            paths.append(websocket)
        if len(set(paths)) < len(paths):
            raise ValueError(f"paths must be distinct, got {', '.join(paths)}")
        if endpoint is None and sse is None and websocket is None:
            raise ValueError("path, sse_path and websocket_path are None, so nothing would be served: set one of them")
        self.guard(local=True)  # raises for a wrong host or origin now, not at the first request

    @property
    def endpoint(self) -> str:
        """The path of the endpoint that a server is known by: the first that is served."""
        return self.settings["path"] or self.settings["sse_path"] or self.settings["websocket_path"] or ""

    def guard(self, *, local: bool) -> HostGuard:
        """Return the guard for connections from this machine, or from elsewhere."""
        hosts = self.settings["allowed_hosts"]
        # By default a web page can't reach a local server under a name of its own (DNS rebinding). A server that
        # listens elsewhere doesn't know its names, so it takes any until it is told.
        if hosts is None and local:
            hosts = LOOPBACK_HOSTS
        elif hosts is not None and not isinstance(hosts, str) and "*" in hosts:
            hosts = None
        return HostGuard(hosts, self.settings["allowed_origins"])
