"""Rules for the URLs of icons, schema references and pages that a server sends and a client may load.

The kit's server records each load.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.rules.clients.declared import replies
from trio_mcp.conformance.rules.history import Connection, History
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event


def _fetches(connection: Connection) -> list[Event]:
    """Return the marks in the transcript that say what a client has loaded from the kit's server."""
    return [event for event in connection.events if event.kind == "mark" and event.facts.get("what") == "fetched"]


def _sent_urls(kind: str) -> Occasions[str, Event | None]:
    """Return, as occasions for a rule, the URLs of the given kind that were sent to the client.

    Each occasion has three parts: the event to blame (the fetch, or else the message with the URL), the URL, and the
    fetch, if any.
    """

    def occasions(history: History) -> Iterator[tuple[Event, str, Event | None]]:
        for connection in history:
            fetches = _fetches(connection)
            for event in connection.messages("server"):
                for url in _urls(event.message, kind):
                    # The kit's server records only the path of what is loaded; by which name or address it was reached
                    # doesn't matter.
                    fetch = next((mark for mark in fetches if url.endswith(mark.facts["path"])), None)
                    yield fetch or event, url, fetch

    return occasions


def _urls(value: Any, kind: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            # The kit serves its URLs without TLS, so it can see only `http:` URLs being loaded.
            if key == kind and isinstance(item, str) and item.startswith("http:"):
                yield item
            else:
                yield from _urls(item, kind)
    elif isinstance(value, list):
        for item in value:
            yield from _urls(item, kind)


@stated_rule()
@each(_sent_urls("src"))
def icon_fetch_safe(_: Event, url: str, fetch: Event | None) -> Opinion:
    """Check that no icon with an `http:` URL is loaded from the kit's own server."""
    return None if fetch is None else f"it loads {url}"


def _marks(history: History) -> Iterator[tuple[Event, list[Event]]]:
    """Yield the mark of each load by a client, with the marks of the same client's later loads."""
    for connection in history:
        marks = _fetches(connection)
        yield from ((mark, marks[at:]) for at, mark in enumerate(marks, 1))


@stated_rule()
@each(_marks)
def icon_without_credentials(mark: Event, _later: list[Event]) -> Opinion:
    """Check that no icon was loaded with credentials."""
    # `icon_fetch_safe` judges that the icon was loaded at all: a client may allow `http:` on this computer, and still
    # keep its secrets.
    if not mark.facts["path"].endswith(".png"):
        return UNDECIDED
    secret = mark.facts.get("secret")
    return f"it sends {secret}" if secret else None


@stated_rule()
@each(_sent_urls("src"))
def icon_origin_checked(_: Event, url: str, fetch: Event | None) -> Opinion:
    """Check that the client does not load an icon from an origin other than its server's."""
    if not url.endswith("/foreign.png"):
        return UNDECIDED
    return None if fetch is None else f"it loads {url}"


@stated_rule()
@each(_marks)
def icon_redirect_refused(mark: Event, later: list[Event]) -> Opinion:
    """Check that the client does not follow the redirect with which the kit's server responds for one icon."""
    if mark.facts["path"] != "/icon.png":
        return UNDECIDED
    # No message names this path, so a client can know it only from the redirect.
    followed = next((each for each in later if each.facts["path"] == "/moved.png"), None)
    return broken(followed, "the client followed the redirect to another origin") if followed else None


@stated_rule(who="client")
@each(_sent_urls("$ref"))
def remote_ref_not_fetched(_: Event, url: str, fetch: Event | None) -> Opinion:
    """Check that the client loads no schema reference that points to the kit's own server."""
    # The specification allows an option that loads references, off by default (`$ref` Resolution); a client under check
    # runs without it.
    return None if fetch is None else f"it loads {url}"


@stated_rule()
def elicitation_not_prefetched(history: History) -> Iterator[Verdict]:
    """Check that the URL of an elicitation is not loaded before the client has accepted the elicitation."""
    agreed = {
        (reply.event.connection, str(reply.params.get("url"))): reply.event
        for _, reply in replies("elicitation/create")(history)
        if reply.result is not None and reply.result.get("action") == "accept"
    }
    for event, url, fetch in _sent_urls("url")(history):
        # Once the person has consented, the page may be opened, so a load after that is not judged.
        position, consent = history.connections[event.connection].position, agreed.get((event.connection, url))
        if fetch is None or consent is None or position(consent) >= position(fetch):
            yield judged(fetch is None, event, f"it loads {url}")
