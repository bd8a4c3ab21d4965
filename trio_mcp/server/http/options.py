"""What a server decides about its HTTP endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from trio_mcp.protocol.framing import DEFAULT_MAX_MESSAGE_SIZE
from trio_mcp.protocol.http_guard import HostGuard

__all__ = ["HttpOptions"]


def _positive(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{attribute.name} must be a number above 0, got {value!r}")


def _path(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None and attribute.name != "path":
        return
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"{attribute.name} must begin with a slash, got {value!r}")


@attrs.frozen(kw_only=True)
class HttpOptions:
    """How a server behaves as an HTTP endpoint. Every setting has a safe default.

    Attributes:
        path: Where the MCP endpoint is.
        health_path: Where a GET is answered with 200 while the server takes work, 503 while it ends; None for nowhere.
        allowed_hosts: Names, with or without a port, by which the server may be reached; None for any. By default
            those of this machine if the connection comes in on a loopback address, else any.
        allowed_origins: Origins of web pages that may call, such as ``"https://app.example.com"``; ``"*"`` for any. By
            default those on the server's own hosts. Pages of other origins also need ``cors``.
        cors: Whether browsers are told that pages of the ``allowed_origins`` may call and read the answers.
        stateless: Keep no sessions in the handshake era: every POST stands alone, and the server asks nothing back.
        json_only: Answer with one JSON text, never with a stream; progress and log messages are dropped. Listening
            (`subscriptions/listen`) is still a stream.
        max_message_size: The longest body that is taken, in bytes; a longer one is answered with 413.
        body_timeout: Seconds that the body of a request may take to arrive.
        max_requests: How many requests are served at once; a further one is answered with 503.
        keep_alive: Seconds without a word after which a stream gets a comment, so that nobody takes it for dead.
        max_connections: How many connections there are at once (for `Server.serve_http`).
        write_timeout: Seconds that a client may take to read what fills its buffers (for `Server.serve_http`).
        grace: Seconds that requests under way are given when the server ends.

    Raises:
        ValueError: A value is out of range, or no host or origin.
    """

    path: str = attrs.field(default="/mcp", validator=_path)
    health_path: str | None = attrs.field(default="/health", validator=_path)
    allowed_hosts: Sequence[str] | None | str = "loopback"
    allowed_origins: Sequence[str] | None = None
    cors: bool = False
    stateless: bool = False
    json_only: bool = False
    max_message_size: int = attrs.field(default=DEFAULT_MAX_MESSAGE_SIZE, validator=_positive)
    body_timeout: float = attrs.field(default=30.0, validator=_positive)
    max_requests: int = attrs.field(default=1000, validator=_positive)
    keep_alive: float = attrs.field(default=15.0, validator=_positive)
    max_connections: int = attrs.field(default=1000, validator=_positive)
    write_timeout: float = attrs.field(default=30.0, validator=_positive)
    grace: float = attrs.field(default=5.0, validator=_positive)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.allowed_hosts, str) and self.allowed_hosts != "loopback":
            raise ValueError(f"allowed_hosts must be a list, got the string {self.allowed_hosts!r}")
        self.guard(local=True)

    def guard(self, *, local: bool) -> HostGuard:
        """Whose requests are taken on a connection from this machine, or from elsewhere."""
        from trio_mcp.protocol.http_guard import LOOPBACK_HOSTS

        hosts = self.allowed_hosts
        if hosts == "loopback":
            hosts = LOOPBACK_HOSTS if local else None
        assert not isinstance(hosts, str)
        return HostGuard(hosts, self.allowed_origins)
