"""What a server decides about its HTTP endpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard
from trio_mcp.http.server.event_store import EventStore

__all__ = ["HttpOptions"]


def _positive(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None and attribute.name == "retry":
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{attribute.name} must be a number above 0, got {value!r}")
    if attribute.name == "retry" and math.isinf(value):
        raise ValueError("retry must be finite; None leaves it to the client")


def _count(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{attribute.name} must be an integer above 0, got {value!r}")


def _without_end(path: Any) -> Any:
    return path.rstrip("/") or "/" if isinstance(path, str) and path.startswith("/") else path


def _path(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"{attribute.name} must begin with a slash, got {value!r}")


@attrs.frozen(kw_only=True)
class HttpOptions:
    """How a server behaves as an HTTP endpoint. Every setting has a safe default.

    Attributes:
        path: Where the MCP endpoint is; None for nowhere. A slash at the end of a path makes no difference.
        health_path: Where a GET is answered with 200 while the server takes work, 503 while it ends; None for nowhere.
        allowed_hosts: Names, with or without a port, by which the server may be reached; None for any. By default
            those of this machine if the connection comes in on a loopback address, else any.
        allowed_origins: Origins of web pages that may call, such as ``"https://app.example.com"``; ``"*"`` for any. By
            default those on the ``allowed_hosts``, and none where any host is allowed. Pages of other origins also need
            ``cors``.
        cors: Whether browsers are told that pages of the ``allowed_origins`` may call and read the answers.
        sse_path: Where clients of 2024-11-05 (HTTP+SSE) open their stream; None for nowhere.
        message_path: Where those clients post their messages.
        stateless: Keep no sessions in the legacy era: every POST stands alone, and the server asks nothing back.
        json_only: Answer with one JSON text, never with a stream; progress and log messages are dropped. Listening
            (`subscriptions/listen`) is still a stream.
        event_store: Keeps what is sent in sessions, so that a client whose connection broke gets the rest; None for
            no such thing.
        retry: Seconds after which a client shall come back whose stream was closed; None leaves it to the client.
        max_sessions: How many sessions there are at once; ``initialize`` is then answered with 503, unless there is one
            whose client has said ``initialize`` and nothing since: that one ends.
        session_timeout: Seconds after which a session ends that has no request under way and no stream open.
        max_message_size: The longest body that is taken, in bytes; a longer one is answered with 413.
        body_timeout: Seconds that the body of a request may take to arrive.
        max_requests: How many requests are under way at once, until their handlers are over and their answers written,
            and how many bodies are read; a further one is answered with 503. Answers, progress and cancellations are
            always taken.
        max_request_bytes: How many bytes the requests have that are under way, and likewise the bodies that are read;
            the same. One alone may have more. The share of a session is `HandlerOptions.max_incoming_bytes`.
        keep_alive: Seconds without a word after which a stream gets a comment, so that nobody takes it for dead.
        max_connections: How many connections there are at once (for `Server.serve_http`).
        write_timeout: Seconds that a client may take to read 64 KiB once its buffers are full (for `serve_http`).
        grace: Seconds that requests under way are given when the server ends.

    Raises:
        ValueError: A value is out of range, or no host or origin.
    """

    path: str | None = attrs.field(default="/mcp", converter=_without_end, validator=_path)
    health_path: str | None = attrs.field(default="/health", converter=_without_end, validator=_path)
    allowed_hosts: Sequence[str] | None | str = "loopback"
    allowed_origins: Sequence[str] | None = None
    cors: bool = False
    sse_path: str | None = attrs.field(default=None, converter=_without_end, validator=_path)
    message_path: str = attrs.field(default="/messages", converter=_without_end, validator=_path)
    stateless: bool = False
    json_only: bool = False
    event_store: EventStore | None = None
    retry: float | None = attrs.field(default=1.0, validator=_positive)
    max_sessions: int = attrs.field(default=1000, validator=_count)
    session_timeout: float = attrs.field(default=1800.0, validator=_positive)
    max_message_size: int = attrs.field(default=4 * 1024 * 1024, validator=_count)
    body_timeout: float = attrs.field(default=30.0, validator=_positive)
    max_requests: int = attrs.field(default=1000, validator=_count)
    max_request_bytes: int = attrs.field(default=256 * 1024 * 1024, validator=_count)
    keep_alive: float = attrs.field(default=15.0, validator=_positive)
    max_connections: int = attrs.field(default=1000, validator=_count)
    write_timeout: float = attrs.field(default=30.0, validator=_positive)
    grace: float = attrs.field(default=5.0, validator=_positive)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.allowed_hosts, str) and self.allowed_hosts != "loopback":
            raise ValueError(f"allowed_hosts must be a list, got the string {self.allowed_hosts!r}")
        if self.event_store is not None and not isinstance(self.event_store, EventStore):
            raise TypeError(f"event_store must be an EventStore, got {type(self.event_store).__name__}")
        if self.event_store is not None and self.stateless:
            raise ValueError("event_store needs sessions, and stateless=True keeps none")
        paths = [path for path in (self.path, self.health_path, self.sse_path) if path is not None]
        paths += [self.message_path] * (self.sse_path is not None)
        if len(set(paths)) < len(paths):
            raise ValueError(f"every path must be another, got {', '.join(paths)}")
        if self.path is None and self.sse_path is None:
            raise ValueError("path and sse_path are both None: there would be nothing to serve")
        self.guard(local=True)

    def guard(self, *, local: bool) -> HostGuard:
        """Whose requests are taken on a connection from this machine, or from elsewhere."""
        hosts = self.allowed_hosts
        if hosts == "loopback":
            hosts = LOOPBACK_HOSTS if local else None
        assert not isinstance(hosts, str)
        return HostGuard(hosts, self.allowed_origins)
