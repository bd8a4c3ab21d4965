"""The loads of a client from the URLs that a server sends: icons, references, pages. The kit's server notes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.rules.clients.declared import replies
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Verdict, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event


def _fetched(history: History, kind: str) -> Iterator[tuple[str, Event | None, Event]]:
    """Yield each URL of a kind that was sent to the client: what sent it, and what fetched it."""
    for connection in history:
        fetches = [e for e in connection.events if e.kind == "mark" and e.facts.get("what") == "fetched"]
        for event in connection.events:
            if event.kind == "message" and event.sender == "server":
                # The kit's server notes the path alone: by which name or address it was reached doesn't matter.
                for url in _urls(event.message, kind):
                    yield url, next((each for each in fetches if url.endswith(each.facts["path"])), None), event


def _urls(value: Any, kind: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            # The kit serves such URLs without TLS, so `http:` is where it can see a client load something.
            if key == kind and isinstance(item, str) and item.startswith("http:"):
                yield item
            else:
                yield from _urls(item, kind)
    elif isinstance(value, list):
        for item in value:
            yield from _urls(item, kind)


@stated_rule(since="2025-11-25", sentence="A client loads icons only over HTTPS or from `data:`.")
def icon_fetch_safe(history: History) -> Iterator[Verdict]:
    """Judge each icon with an `http:` URL at the kit's own server."""
    for url, fetch, event in _fetched(history, "src"):
        yield judged(fetch is None, fetch or event, f"it loads {url}")


def _marks(history: History) -> Iterator[tuple[Event, list[Event]]]:
    """Yield each time that a client has loaded something, with what it has loaded later."""
    for connection in history:
        marks = [e for e in connection.events if e.kind == "mark" and e.facts.get("what") == "fetched"]
        for at, mark in enumerate(marks):
            yield mark, marks[at + 1 :]


@stated_rule(since="2025-11-25")
def icon_without_credentials(history: History) -> Iterator[Verdict]:
    """Judge each icon that was loaded."""
    for mark, _ in _marks(history):
        # That it was loaded at all is judged elsewhere: a client may allow `http:` on this computer, and still keep its
        # secrets.
        if mark.facts["path"].endswith(".png"):
            secret = mark.facts.get("secret")
            yield judged(not secret, mark, f"it sends {secret}")


@stated_rule(since="2025-11-25")
def icon_origin_checked(history: History) -> Iterator[Verdict]:
    """Judge each icon on another origin than the kit's own server."""
    for url, fetch, event in _fetched(history, "src"):
        if url.endswith("/foreign.png"):
            yield judged(fetch is None, fetch or event, f"it loads {url}")


@stated_rule(since="2025-11-25")
def icon_redirect_refused(history: History) -> Iterator[Verdict]:
    """Judge each icon that was loaded where the kit's server redirects."""
    for mark, later in _marks(history):
        if mark.facts["path"] == "/icon.png":
            # No message names this path, so a client can know it only from the redirect.
            followed = next((each for each in later if each.facts["path"] == "/moved.png"), None)
            yield judged(followed is None, followed or mark, "it follows the redirect to another origin")


@stated_rule(who="client", sentence="A client does not load references of a schema from the network by itself.")
def remote_ref_not_fetched(history: History) -> Iterator[Verdict]:
    """Judge each reference to the kit's own server."""
    # The text allows an option that loads them, off by default (`$ref` Resolution); a client under check runs without
    # it.
    for url, fetch, event in _fetched(history, "$ref"):
        yield judged(fetch is None, fetch or event, f"it loads {url}")


@stated_rule(since="2025-11-25")
def elicitation_not_prefetched(history: History) -> Iterator[Verdict]:
    """Judge each URL of an elicitation at the kit's own server, until the client has accepted it."""
    agreed = {
        (reply.event.connection, str(reply.params.get("url"))): reply.event
        for reply in replies(history, "elicitation/create")
        if reply.result is not None and reply.result.get("action") == "accept"
    }
    for url, fetch, event in _fetched(history, "url"):
        # With the user's consent the page may be opened.
        position, consent = history.connections[event.connection].position, agreed.get((event.connection, url))
        if fetch is not None and consent is not None and position(consent) < position(fetch):
            continue
        yield judged(fetch is None, fetch or event, f"it loads {url}")
