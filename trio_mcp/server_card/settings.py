"""The settings of an endpoint that publishes a card of its server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_kind, check_seconds
from trio_mcp.auth.rules.urls import is_loopback, take_apart
from trio_mcp.server_card.models import (
    CARD_SCHEMA,
    CARD_TYPE,
    CardRemote,
    CardRepository,
    NamedInput,
    ServerCard,
    problems_of,
)

__all__ = ["CardSettings"]

MAX_CARD: Final = 64 * 1024
"""The largest size of a card, in bytes (arbitrary): a card with everything has a few thousand."""

SUFFIX: Final = "/server-card"
SHARED: Final = ("title", "description", "version", "websiteUrl", "icons")
"""The members that a card shares with what the server says about itself."""


@attrs.frozen(kw_only=True)
class CardSettings:
    """The ``card`` of an HTTP endpoint: what it publishes about the server, to everybody. The rest is in `Server.info`.

    Everybody may read a card, also that of an endpoint with ``auth``: there are no tools in it, no instructions, and
    nothing else that a client only learns once it is connected.

    Args:
        name: The name of the server, by a domain of yours in reverse: ``"com.example/weather"``.
        url: The URL by which clients reach the endpoint, such as ``"https://weather.example.com/mcp"``. It is never
            taken from a request, whose sender could choose it.
        description: What the server does, in at most 100 characters; by default the description in `Server.info`.
        repository: The repository of the source.
        headers: The header fields that a client has to send, or may, to connect.
        max_age: For how many seconds a cache may keep the card.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one can't be in a card.
    """

    name: str
    url: str
    description: str | None = None
    repository: CardRepository | None = None
    headers: Sequence[NamedInput] = ()
    max_age: float = 3600.0

    def __attrs_post_init__(self) -> None:
        check_seconds("max_age", self.max_age, finite=True)
        if not isinstance(self.url, str):
            raise TypeError(f"url must be a string, got {self.url!r:.100}")
        try:
            parts = take_apart(self.url)
        except ValueError as exc:
            # The URL itself is left out, because there may be a password in it.
            raise ValueError(f"url {exc}") from None
        if parts.query or not self.url.lower().startswith("http"):
            raise ValueError("url is not the http or https URL of an endpoint, without a query")
        if parts.scheme == "http" and not is_loopback(self.url):
            raise ValueError(f"url is not https, which cards must be served over, but {self.url!r:.100}")
        check_kind("repository", self.repository, kind=CardRepository)
        for each in self.headers:
            if not isinstance(each, NamedInput):
                raise TypeError(f"each of the headers must be a NamedInput, got {type(each).__name__}")
        # Mistakes are found before the server runs.
        self.card({"version": "0", "description": "-"}, ())

    def card(self, info: Mapping[str, Any], revisions: Sequence[str]) -> bytes:
        """Return the card as JSON.

        Args:
            info: What the server says about itself, in the form of an `Implementation` on the wire.
            revisions: The revisions that the endpoint serves.

        Raises:
            ValueError: If a card can't have that.
        """
        document: dict[str, Any] = {"$schema": CARD_SCHEMA, "name": self.name}
        document |= {key: info[key] for key in SHARED if info.get(key) is not None}
        if self.description is not None:
            document["description"] = self.description
        if "description" not in document:
            raise ValueError(
                "a server card needs a description: give CardSettings one, or the server, with"
                " Server(Implementation(name=…, version=…, description=…))"
            )
        if self.repository is not None:
            document["repository"] = self.repository.to_wire()
        remote = CardRemote(type="streamable-http", url=self.url)
        if self.headers:
            remote.headers = [*self.headers]
        if revisions:
            remote.supported_protocol_versions = [*revisions]
        document["remotes"] = [remote.to_wire()]
        try:
            ServerCard.from_wire(document)
        except ValidationError as exc:
            raise ValueError(f"the server card can't be published: {'; '.join(problems_of(exc, document))}") from None
        found = _json(document)
        if len(found) > MAX_CARD:
            raise ValueError(f"the server card has {len(found)} bytes, but clients read at most {MAX_CARD}")
        return found

    def catalog(self) -> bytes:
        """Return the catalogue as JSON, with the card as its only entry."""
        namespace, _, name = self.name.partition("/")
        # The publisher is a domain in its usual order: com.example is the namespace of example.com.
        publisher = ".".join(reversed(namespace.split(".")))
        entry = {
            "identifier": f"urn:air:{publisher}:mcp:{name}",
            "displayName": name,
            "type": CARD_TYPE,
            "url": self.url.rstrip("/") + SUFFIX,
        }
        return _json({"specVersion": "1.0", "entries": [entry]})


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
