"""The metadata that a protected server publishes about itself (RFC 9728), as bytes and as an ASGI application."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from trio_mcp._checks import check_url
from trio_mcp.auth.rules.urls import is_loopback
from trio_mcp.http.server.asgi import ReceiveCallable, Scope, SendCallable

__all__ = ["MetadataApp", "checked_url", "metadata_url", "written"]

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""The path of the metadata from the root of the origin (RFC 9728, section 3)."""

FIELDS: Final = (
    (b"content-type", b"application/json"),
    # The metadata is public, so pages of any origin may read it in a browser.
    (b"access-control-allow-origin", b"*"),
    (b"cache-control", b"public, max-age=300"),
)


def checked_url(name: str, url: object, *, query: bool = False) -> str:
    """Check a URL that identifies a server, and return it.

    Args:
        name: The name of the argument, for the error message.
        url: The URL.
        query: Whether the URL may have a query.

    Raises:
        TypeError: If the URL is not a string.
        ValueError: If the URL can't identify a server.
    """
    if not isinstance(url, str):
        raise TypeError(f"{name} must be a URL, got {type(url).__name__}")
    try:
        parts = check_url(url, ("https", "http"))
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from None
    # `urlsplit` does not distinguish an empty fragment from a missing one, so the URL is searched for "#".
    if parts.fragment or "#" in url or "@" in parts.netloc or (parts.query and not query):
        raise ValueError(
            f"{name} must be a URL without a user name{'' if query else ', query'} or fragment, got {url!r}"
        )
    if parts.scheme == "http" and not is_loopback(url):
        raise ValueError(f"{name} must begin with https://, got {url!r}: tokens would be sent in the clear")
    return url


def metadata_url(resource: str) -> str:
    """Return the URL of a resource's metadata (RFC 9728, section 3.1)."""
    # The URL is made from the configured one, never from `Host` or `Forwarded`: a proxy may have set these, or a client
    # may have made them up.
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"


def written(document: Mapping[str, Any]) -> bytes:
    """Return the metadata as JSON, without members that are empty or false."""
    # RFC 9728, section 3.2, forbids empty lists. A flag that is false is left out, too, because a missing flag means
    # false.
    return json.dumps({name: value for name, value in document.items() if value}).encode()


class MetadataApp:
    """An ASGI application that serves the metadata of a server that is mounted below a path of another application.

    Mount this application at the root of the origin, or at ``/.well-known``.

    Args:
        document: Returns the metadata that is served at a path of the origin, or None.
    """

    def __init__(self, document: Callable[[str], bytes | None]) -> None:
        self._document = document

    async def __call__(self, scope: Scope, receive: ReceiveCallable, send: SendCallable) -> None:
        """Serve one connection in the sense of ASGI: a request, or the lifespan."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"this application serves HTTP, not {scope['type']}")
        path: str = scope["path"]
        # ASGI's `path` includes `root_path`, but some servers and frameworks strip `root_path`, so the path is also
        # tried with `root_path` put before it.
        body = self._document(path) or self._document(scope.get("root_path", "") + path)
        method = scope["method"]
        if body is None:
            await _respond(send, 404, ())
        elif method not in ("GET", "HEAD"):
            await _respond(send, 405, ((b"allow", b"GET, HEAD"),))
        else:
            await _respond(send, 200, FIELDS, body, body if method == "GET" else b"")


async def _live(receive: ReceiveCallable, send: SendCallable) -> None:
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


async def _respond(
    send: SendCallable, status: int, fields: Iterable[tuple[bytes, bytes]], body: bytes = b"", sent: bytes = b""
) -> None:
    headers = [*fields, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": sent})
