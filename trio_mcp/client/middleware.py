"""What surrounds every request of a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs

from trio_mcp.jsonrpc.messages import RequestId

__all__ = ["Middleware", "OutgoingCall", "through"]


@attrs.define
class OutgoingCall:
    """A request on its way out. A middleware may replace what it holds.

    Attributes:
        method: Its method.
        params: Its parameters, as plain data.
        protocol_version: The revision that is spoken; replacing it changes nothing.
        request_id: The id that it was sent with, the last time; None before that.
    """

    method: str
    params: dict[str, Any]
    protocol_version: str
    request_id: RequestId | None = None


Middleware: TypeAlias = Callable[[OutgoingCall, Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]
"""``async (call, call_next) -> result``."""


def through(
    middleware: tuple[Middleware, ...], index: int, call: OutgoingCall, send: Callable[[], Awaitable[dict[str, Any]]]
) -> Awaitable[dict[str, Any]]:
    """Send a call through what is left of the middleware."""
    if index == len(middleware):
        return send()
    return middleware[index](call, lambda: through(middleware, index + 1, call, send))
