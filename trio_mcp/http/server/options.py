"""The settings of a server's HTTP endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

import attrs

from trio_mcp._checks import check_count, check_seconds, check_text, validator
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard
from trio_mcp.http.server.event_store import EventStore
from trio_mcp.http.server.protection import Protection

__all__ = ["RUNNERS", "HttpOptions", "HttpSettings"]

RUNNERS: Final = ("hypercorn", "h11", "httptools")
"""What can speak HTTP on the connections of a server; see `HttpOptions.runner`."""


PROTECTION: Final = ("document", "opened", "permit", "resource")
"""What a `Protection` has."""

_SECONDS = validator(check_seconds)
_COUNT = validator(check_count)


# Runs before the validator, so it must let anything pass. `HttpRequest.path` has no trailing slash either.
def _without_end(path: Any) -> Any:
    return path.rstrip("/") or "/" if isinstance(path, str) and path.startswith("/") else path


def _path(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"{attribute.name} must be a string, got {value!r}")
    if not value.startswith("/"):
        raise ValueError(f"{attribute.name} must begin with a slash, got {value!r}")


# A name, not a class: the endpoint does not know the runners, which import it.
def _runner(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_text(attribute.name, value)
    if value not in RUNNERS:
        raise ValueError(f"runner must be one of {', '.join(map(repr, RUNNERS))}, got {value!r}")


def _auth(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    # By what it can do: `trio_mcp.auth` is not imported here.
    if value is not None and (isinstance(value, type) or not all(hasattr(value, name) for name in PROTECTION)):
        raise TypeError(f"auth must be a ResourceServer of trio_mcp.auth, got {value!r:.100}")


@attrs.frozen(kw_only=True)
class HttpOptions:
    """The settings of an HTTP endpoint. Every one has a safe default.

    Attributes:
        path: The path of the MCP endpoint; None for no endpoint there. Trailing slashes of paths are ignored.
        health_path: The path at which a GET is answered with 200, or 503 while the server is ending; None for none.
        allowed_hosts: Names, with or without a port, by which the server may be reached; ``["*"]`` for any. By default
            the loopback names if the connection arrives on a loopback address, else any.
        allowed_origins: Origins of web pages that may call, such as ``"https://app.example.com"``; ``["*"]`` for any.
            By default those on the ``allowed_hosts``, and none if any host is allowed. Pages of other origins also need
            ``cors``.
        cors: Whether to tell browsers that pages of the ``allowed_origins`` may call and read the responses.
        sse_path: The path at which clients of 2024-11-05 (HTTP+SSE) open their stream; None for none.
        message_path: The path to which those clients post their messages.
        websocket_path: The path at which clients open a WebSocket; it may be that of the endpoint. None for none.
        stateless: Keep no sessions in the legacy era: every POST stands alone, and the server can't ask the client.
        json_only: Respond with one JSON text, never with a stream; progress and log messages are dropped. Listening
            (`subscriptions/listen`) is still a stream.
        event_store: Stores what is sent in sessions, so that a client whose connection broke gets the rest; None
            stores nothing.
        retry: Seconds that a client should wait before it reconnects to a closed stream; None leaves it to the client.
        max_sessions: How many sessions there may be at once. Beyond that, ``initialize`` ends the oldest session whose
            client never finished the handshake, and is answered with 503 if there is no such session. Likewise how many
            WebSockets there may be; beyond that one is closed with the code 1013.
        session_timeout: Seconds after which a session ends that has no request under way and no open stream. If a
            request is under way, its questions to the client fail instead.
        max_message_size: The longest body that is accepted, in bytes; a longer one is answered with 413. A WebSocket
            that gets a longer message is closed with the code 1009.
        head_timeout: Seconds that the head of a request may take to arrive, from its first byte, and a TLS handshake;
            for the first request from the connection's beginning (`Server.serve_http` only).
        body_timeout: Seconds that the body of a request may take to arrive, or a message of a WebSocket.
        max_requests: How many requests may be under way at once, each until its handler has ended and its response
            was written; likewise how many bodies may be read. Further ones are answered with 503. Responses, progress
            and cancellations are always accepted.
        max_request_bytes: How many bytes the requests under way may have in all, and likewise the bodies being read;
            beyond that, 503. A single one may have more. A session's share is `HandlerOptions.max_incoming_bytes`.
        keep_alive: Seconds of silence after which a stream gets a comment, so that no proxy takes it for dead, and the
            client of a WebSocket a ping.
        ping_timeout: Seconds of silence after which the client of a WebSocket counts as dead.
        max_connections: How many connections may be open at once (`Server.serve_http` only).
        write_timeout: Seconds that a client may take to read 64 KiB once its buffers are full (`serve_http` only).
        grace: Seconds that requests under way are given when the server ends.
        auth: What judges the tokens of requests, such as a `trio_mcp.auth.ResourceServer`; None admits everybody.
        runner: What speaks HTTP (`Server.serve_http` only): ``"hypercorn"``, which also has HTTP/2; ``"h11"``, which is
            faster and needs Linux; ``"httptools"``, likewise and faster still, from the extra ``fast``.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If a value is out of range, or not a valid host or origin.
    """

    # The limits' defaults are chosen; docs/reference/limits.md has a table of all bounds.
    # The path of the specification's own example (`basic/transports`, Streamable HTTP).
    path: str | None = attrs.field(default="/mcp", converter=_without_end, validator=_path)
    health_path: str | None = attrs.field(default="/health", converter=_without_end, validator=_path)
    allowed_hosts: Sequence[str] | None = None
    allowed_origins: Sequence[str] | None = None
    cors: bool = False
    sse_path: str | None = attrs.field(default=None, converter=_without_end, validator=_path)
    message_path: str = attrs.field(default="/messages", converter=_without_end, validator=_path)
    websocket_path: str | None = attrs.field(default=None, converter=_without_end, validator=_path)
    stateless: bool = False
    json_only: bool = False
    event_store: EventStore | None = None
    retry: float | None = attrs.field(default=1.0, validator=validator(check_seconds, finite=True, optional=True))
    max_sessions: int = attrs.field(default=1000, validator=_COUNT)
    session_timeout: float = attrs.field(default=1800.0, validator=_SECONDS)
    max_message_size: int = attrs.field(default=4 * 1024 * 1024, validator=_COUNT)
    head_timeout: float = attrs.field(default=5.0, validator=_SECONDS)
    body_timeout: float = attrs.field(default=30.0, validator=_SECONDS)
    max_requests: int = attrs.field(default=1000, validator=_COUNT)
    max_request_bytes: int = attrs.field(default=256 * 1024 * 1024, validator=_COUNT)
    # As the HTML standard advises authors of event streams: a comment every 15 seconds or so, as some proxies drop
    # silent connections.
    keep_alive: float = attrs.field(default=15.0, validator=_SECONDS)
    ping_timeout: float = attrs.field(default=60.0, validator=_SECONDS)
    max_connections: int = attrs.field(default=1000, validator=_COUNT)
    write_timeout: float = attrs.field(default=30.0, validator=_SECONDS)
    grace: float = attrs.field(default=5.0, validator=_SECONDS)
    auth: Protection | None = attrs.field(default=None, validator=_auth)
    runner: str = attrs.field(default="hypercorn", validator=_runner)

    def __attrs_post_init__(self) -> None:
        if self.event_store is not None and not isinstance(self.event_store, EventStore):
            raise TypeError(f"event_store must be an EventStore, got {type(self.event_store).__name__}")
        if self.event_store is not None and self.stateless:
            raise ValueError("event_store needs sessions, but stateless=True keeps none")
        # Compared without trailing slashes, as requests are. `message_path` counts only if HTTP+SSE is served.
        paths = [path for path in (self.path, self.health_path, self.sse_path) if path is not None]
        paths += [self.message_path] * (self.sse_path is not None)
        # A WebSocket begins with a GET that no other client sends, so the endpoint can have both.
        if self.websocket_path is not None and self.websocket_path != self.path:
            paths.append(self.websocket_path)
        if len(set(paths)) < len(paths):
            raise ValueError(f"paths must be distinct, got {', '.join(paths)}")
        if self.path is None and self.sse_path is None and self.websocket_path is None:
            raise ValueError("path, sse_path and websocket_path are None, so nothing would be served: set one of them")
        self.guard(local=True)  # raises for a wrong host or origin now, not at the first request

    @property
    def endpoint(self) -> str:
        """The path of the endpoint that a server is known by: the first that is served."""
        return self.path or self.sse_path or self.websocket_path or ""

    def guard(self, *, local: bool) -> HostGuard:
        """Return the guard for connections from this machine, or from elsewhere."""
        hosts = self.allowed_hosts
        # By default a web page can't reach a local server under a name of its own (DNS rebinding). A server that
        # listens elsewhere doesn't know its names, so it takes any until it is told.
        if hosts is None and local:
            hosts = LOOPBACK_HOSTS
        elif hosts is not None and not isinstance(hosts, str) and "*" in hosts:
            hosts = None
        return HostGuard(hosts, self.allowed_origins)


class HttpSettings(TypedDict, total=False):
    """The fields of `HttpOptions`, as keyword arguments."""

    path: str | None
    health_path: str | None
    allowed_hosts: Sequence[str] | None
    allowed_origins: Sequence[str] | None
    cors: bool
    sse_path: str | None
    message_path: str
    websocket_path: str | None
    stateless: bool
    json_only: bool
    event_store: EventStore | None
    retry: float | None
    max_sessions: int
    session_timeout: float
    max_message_size: int
    head_timeout: float
    body_timeout: float
    max_requests: int
    max_request_bytes: int
    keep_alive: float
    ping_timeout: float
    max_connections: int
    write_timeout: float
    grace: float
    auth: Protection | None
    runner: str
