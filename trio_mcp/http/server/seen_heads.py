"""The heads of requests that have passed the rules before: a client repeats nearly all of its head in every request."""

from __future__ import annotations

from typing import Any, Final

from trio_mcp.http.headers import Headers
from trio_mcp.http.server.asgi import Scope

__all__ = ["SeenHeads"]

MAX_SEEN: Final = 256
"""Heads that are remembered (chosen), each of at most `MAX_SIZE`."""

MAX_SIZE: Final = 2048
"""Bytes of the longest head that is remembered (chosen)."""

# They differ from one request or session to the next, or are secrets. No rule for the head of a POST looks at them, but
# for the length, which is looked at here.
VARYING: Final = frozenset(
    (
        b"authorization",
        b"baggage",
        b"content-length",
        b"mcp-method",
        b"mcp-name",
        b"mcp-session-id",
        b"traceparent",
        b"tracestate",
        b"x-request-id",
    )
)
PARAMETER: Final = b"mcp-param-"


class SeenHeads:
    """The header fields of POSTs whose head has passed all rules, parsed.

    Args:
        max_length: The longest body that is accepted, in bytes.
    """

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length
        self._seen: dict[Any, Headers] = {}

    def find(self, scope: Scope) -> Headers | None:
        """Return the fields of a request whose head is known to pass; None if it has to be judged."""
        if scope["method"] != "POST":
            return None
        known = self._seen.get(_key(scope))
        if known is None:
            return None
        varying = [(name, value) for name, value in scope["headers"] if name in VARYING or name.startswith(PARAMETER)]
        for name, value in varying:
            # Fewer digits than `int` minds; the server has checked that they are digits, or the rules will.
            if name == b"content-length" and not (
                len(value) < 20 and value.isdigit() and int(value) <= self._max_length
            ):
                return None
        return known.adding(varying)

    def add(self, scope: Scope) -> None:
        """Remember a POST whose head has passed."""
        key = _key(scope)
        if sum(len(name) + len(value) for name, value in key[1:]) <= MAX_SIZE:
            if len(self._seen) >= MAX_SEEN:  # a client can make up any number of heads
                self._seen.clear()
            self._seen[key] = Headers(key[1:])


def _key(scope: Scope) -> tuple[Any, ...]:
    # Which host names are accepted depends on the address that was reached. ASGI servers may give lists, which have no
    # hash, so tuples are made.
    server = scope.get("server")
    fields = [
        (name, value) for name, value in scope["headers"] if name not in VARYING and not name.startswith(PARAMETER)
    ]
    return (None if server is None else tuple(server), *fields)
