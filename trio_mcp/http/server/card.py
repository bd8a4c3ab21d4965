"""The card of an endpoint, and the catalogue that lists it: an experimental extension (SEP-2127).

github.com/modelcontextprotocol/experimental-ext-server-card: docs/discovery.md. `trio_mcp.server_card` makes the
documents, and is not imported here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

from trio_mcp.http.server.asgi import HttpAnswer, HttpRequest

__all__ = ["CATALOG_PATHS", "CATALOG_TYPE", "CardPages", "CardSource", "card_path"]

CARD_TYPE: Final = "application/mcp-server-card+json"
CATALOG_TYPE: Final = "application/ai-catalog+json"

CATALOG_PATHS: Final = ("/.well-known/ai-catalog.json", "/.well-known/mcp/catalog.json")
"""Where the catalogue is, from the root of the origin: by the draft of July 2026, and by the earlier ones."""

CORS: Final = (
    ("access-control-allow-origin", "*"),
    ("access-control-allow-methods", "GET"),
    ("access-control-allow-headers", "Content-Type, If-None-Match"),
    ("access-control-expose-headers", "ETag"),
)


def card_path(endpoint: str) -> str:
    """Return the path of the card of an endpoint, which is reserved for it."""
    return f"{endpoint.rstrip('/')}/server-card"


class CardSource(Protocol):
    """An object that can be passed as ``card=``."""

    @property
    def max_age(self) -> float:
        """For how many seconds a cache may keep the documents."""

    def card(self, info: Mapping[str, Any], revisions: Sequence[str]) -> bytes:
        """Return the card.

        Args:
            info: What the server says about itself.
            revisions: The revisions that the endpoint serves.

        Raises:
            ValueError: If a card can't have that.
        """

    def catalog(self) -> bytes:
        """Return the catalogue, with the card as its only entry."""


@attrs.frozen
class CardPage:
    """A document, with the header fields of each response that it is in."""

    body: bytes
    tag: str
    fields: tuple[tuple[str, str], ...]


class CardPages:
    """The documents that an endpoint publishes. They are made once, so a request for one costs nearly nothing.

    Args:
        source: Makes the documents.
        endpoint: The path of the endpoint.
        info: What the server says about itself.
        revisions: The revisions that the endpoint serves.

    Raises:
        ValueError: If a card can't have that.
    """

    def __init__(self, source: CardSource, endpoint: str, info: Mapping[str, Any], revisions: Sequence[str]) -> None:
        self._card_path = card_path(endpoint)
        self._card = _page(source.card(info, revisions), CARD_TYPE, source.max_age)
        self._catalog = _page(source.catalog(), CATALOG_TYPE, source.max_age)

    def find(self, request: HttpRequest) -> CardPage | None:
        """Return the document at the path of a request; None for any other path."""
        if request.path == self._card_path:
            return self._card
        # The catalogue is that of the whole origin, even if the application is mounted below its root.
        return self._catalog if request.root + request.path in CATALOG_PATHS else None

    async def serve(self, page: CardPage, request: HttpRequest, answer: HttpAnswer) -> None:
        """Respond to a request for a document."""
        if request.method in ("GET", "HEAD"):
            if _matches(request.headers.get("If-None-Match"), page.tag):
                await answer.whole(304, fields=page.fields)
            else:
                await answer.whole(200, page.body, page.fields)
            return
        await request.drain()
        # A page asks with OPTIONS before it sends a field such as If-None-Match.
        status = 204 if request.method == "OPTIONS" else 405
        await answer.whole(status, fields=(*CORS, ("allow", "GET, HEAD, OPTIONS")))


def _page(body: bytes, kind: str, max_age: float) -> CardPage:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    fields = (("content-type", kind), ("etag", tag), ("cache-control", f"public, max-age={max_age:.0f}"), *CORS)
    return CardPage(body, tag, fields)


def _matches(given: str | None, tag: str) -> bool:
    """Return whether If-None-Match names a document (RFC 9110, section 13.1.2); weak tags count, too."""
    if given is None:
        return False
    return given.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in given.split(","))
