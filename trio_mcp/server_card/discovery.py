"""Reads the card of a server before there is a connection: from its own origin, and limited in size and time."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from pydantic import ValidationError

from trio_mcp.auth.fetching import Fetcher, FetchFunction
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.auth.rules.urls import UrlPolicy, take_apart
from trio_mcp.errors import AuthorizationError, TransportError
from trio_mcp.http.headers import shown
from trio_mcp.schema.comparison import is_deeper
from trio_mcp.server_card.models import CARD_TYPE, ServerCard, problems_of
from trio_mcp.server_card.settings import MAX_CARD, SUFFIX

__all__ = ["CardError", "card_url", "discover_card", "read_card"]

MAX_DEPTH: Final = 32
"""How deep a card may be nested (arbitrary): without what others add, it is six levels deep."""

TYPES: Final = (CARD_TYPE, "application/json")
"""The media types that are accepted: a static host may know no better than the second."""

STEP: Final = "server card"


class CardError(TransportError):
    """The card of a server could not be read, or is not one that may be used.

    Attributes:
        url: The URL of the card.
        problem: What went wrong.
    """

    sent = False

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.url = url
        self.problem = problem

    def _text(self) -> str:
        return f"no server card at {self.url[:200]!r}: {self.problem}"


async def discover_card(url: str, *, urls: UrlPolicy | None = None) -> ServerCard:
    """Read the card that a server publishes about itself; this needs no login.

    A card says who a server is and how to reach it. It is not authoritative: don't base access on it, and prefer what
    the server says once you are connected.

    Args:
        url: The URL of the server's endpoint, such as ``"https://host/mcp"``, whose card is at ``/server-card`` below
            it; or the URL of such a card.
        urls: Which URLs are allowed, also as those of the remotes. By default they must be https, and lead to a public
            address, or to one that is as local as that of ``url``.

    Raises:
        CardError: If there is no card, or it can't be used: it is larger than 64 KiB, malformed, comes from
            another origin, takes more than 10 seconds, or names a remote that is not allowed.
        TypeError, ValueError: If ``url`` is not an https or http URL.

    If the call is cancelled, the connection is closed.
    """
    target = card_url(url)
    policy = UrlPolicy() if urls is None else urls
    return await read_card(target, Fetcher(target, policy).flow(), policy)


def card_url(url: str) -> str:
    """Return the URL of the card of an endpoint.

    Args:
        url: The URL of the endpoint, or of the card.

    Raises:
        TypeError: If it is not a string.
        ValueError: If it is not an https or http URL.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a string, got {url!r:.100}")
    try:
        parts = take_apart(url)
        if not url.lower().startswith("http"):
            raise ValueError("is not an https or http URL")
    except ValueError as exc:
        raise ValueError(f"url {exc}") from None  # it is left out, because there may be a password in it
    path = parts.path.rstrip("/")
    return parts.origin + (path if path.endswith(SUFFIX) else path + SUFFIX)


async def read_card(url: str, fetch: FetchFunction, urls: UrlPolicy) -> ServerCard:
    """Fetch a card and return it, if it may be used.

    Args:
        url: The URL of the card.
        fetch: Makes the exchange.
        urls: Which URLs may be those of remotes.

    Raises:
        CardError: If there is no card, or it can't be used.
    """
    step = Fetch(STEP, "GET", url, {"Accept": CARD_TYPE}, limit=MAX_CARD, same_origin=True)
    try:
        document = _document(url, await fetch(step))
        try:
            card = ServerCard.from_wire(document)
        except ValidationError as exc:
            raise CardError(url, "; ".join(problems_of(exc, document))[:500]) from None
        for remote in card.remotes or ():
            # The value of a variable is only known once it has been filled in.
            if "{" not in remote.url:
                urls.check(remote.url, url, STEP)
                for address in _addresses(remote.url):
                    urls.check_address(remote.url, address, [*_addresses(url)], STEP)
    except AuthorizationError as exc:
        raise CardError(url, f"{exc.problem}; {exc.advice}" if exc.advice else exc.problem) from None
    return card


def _addresses(url: str) -> Iterator[str]:
    """Yield the address that a URL names, if it names one rather than a host; an odd spelling of one is refused."""
    host = take_apart(url).host
    if host == "localhost":
        yield "127.0.0.1"
    elif ":" in host or re.fullmatch(r"\d+|0x[0-9a-f]*", host.rstrip(".").rpartition(".")[2]):
        try:
            yield str(ipaddress.ip_address(host))
        except ValueError:  # resolvers read `127.1` and `0x7f000001`, too
            raise AuthorizationError(STEP, f"the URL {shown(url)} has no valid host") from None


def _document(url: str, response: Fetched) -> Any:
    status = response.status
    if status != HTTPStatus.OK:
        why = {401: ": it is behind a login", 404: ": the server publishes none"}.get(status, "")
        raise CardError(url, f"the response has the status {status}{why}")
    kind = response.headers.media_type
    if kind not in TYPES:
        raise CardError(url, f"the response has the type {kind[:80]!r}, not {CARD_TYPE}")
    try:
        document = json.loads(response.body.decode(), object_pairs_hook=_object, parse_constant=_refuse)
    except UnicodeDecodeError:
        raise CardError(url, "it is not valid UTF-8") from None
    except RecursionError:
        raise CardError(url, "it is nested too deeply") from None
    except ValueError as exc:
        raise CardError(url, f"it is not valid JSON: {exc}") from None
    if is_deeper(document, MAX_DEPTH):
        raise CardError(url, f"it is nested more than {MAX_DEPTH} levels deep")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # Programs disagree about which of the two counts.
        twice = next(key for key, _ in pairs if sum(each == key for each, _ in pairs) > 1)
        raise ValueError(f"the key {twice[:80]!r} is there twice")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
