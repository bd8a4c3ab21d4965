"""Faults that make an authorization server hostile, or broken.

A fault is a function: it gets a request and the server's own handler for it, and returns the response. So the fault
decides whether the server acts on the request at all, and what response the client gets.

Example:
    ::

        server = AuthorizationServer(faults={"token": [cut, status(503)]})  # the first two requests; then all is well
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing.answers import ServerResponse, answer
from trio_mcp.http.headers import Headers

__all__ = ["Fault", "cut", "edited", "endless", "lost", "moved", "raw", "redirected", "silent", "status"]

Handle: TypeAlias = Callable[[Fetch], ServerResponse]
Fault: TypeAlias = Callable[[Fetch, Handle], ServerResponse]


def status(code: int, body: bytes = b"", **fields: str) -> Fault:
    """Respond with a status, without acting on the request. Underscores in the names of ``fields`` become hyphens."""
    return lambda request, handle: answer(code, body, {name.replace("_", "-"): text for name, text in fields.items()})


def raw(body: bytes, media_type: str = "application/json", code: int = 200) -> Fault:
    """Respond with the given body, without acting on the request."""
    return status(code, body, Content_Type=media_type)


def cut(request: Fetch, handle: Handle) -> ServerResponse:
    """Act on the request, but break the connection half-way through the response."""
    return attrs.evolve(handle(request), ending="cut")


def silent(request: Fetch, handle: Handle) -> ServerResponse:
    """Act on the request, and never respond."""
    return attrs.evolve(handle(request), ending="silent")


def lost(request: Fetch, handle: Handle) -> ServerResponse:
    """Never respond, and do not act on the request."""
    return ServerResponse(200, Headers(), b"", "silent")


def endless(request: Fetch, handle: Handle) -> ServerResponse:
    """Act on the request, and repeat the body of the response without end."""
    return attrs.evolve(handle(request), ending="endless")


def moved(url: str, code: int = 307) -> Fault:
    """Redirect to another URL, without acting on the request."""
    return status(code, Location=url)


def edited(**members: object) -> Fault:
    """Act on the request, but replace or add members in the JSON of the response; None removes a member."""

    def fault(request: Fetch, handle: Handle) -> ServerResponse:
        given = handle(request)
        value = {**json.loads(given.body), **members}
        return attrs.evolve(
            given, body=json.dumps({name: each for name, each in value.items() if each is not None}).encode()
        )

    return fault


def redirected(**parameters: str | None) -> Fault:
    """Act on the request, but replace or add parameters of the redirection; None removes a parameter."""

    def fault(request: Fetch, handle: Handle) -> ServerResponse:
        given = handle(request)
        parts = urlsplit(given.headers.get("Location") or "")
        query = {**dict(parse_qsl(parts.query)), **parameters}
        kept = urlencode({name: text for name, text in query.items() if text is not None})
        return answer(given.status, fields={"Location": parts._replace(query=kept).geturl()})

    return fault
