"""Rules for subscriptions: streams of notifications in the modern era, single resources in the legacy era."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.testing.rules.common import (
    LEGACY,
    MODERN,
    is_ordered,
    is_plain,
    is_proper,
    lost,
    notifications,
    subscribed,
    subscription_of,
)
from trio_mcp.testing.rules.history import Asked, Connection, History
from trio_mcp.testing.rules.model import Verdict, broken, held, judged, rule

__all__: list[str] = []

LISTENING: Final = ("listen", "listen-twice")
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

# What a notification needs in the filter of its subscription.
_FLAGS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
UPDATED: Final = "notifications/resources/updated"


def _listens(history: History) -> Iterator[tuple[Connection, Asked]]:
    for connection, asked in history.requests("subscriptions/listen"):
        if connection.modern and is_proper(connection, asked):
            yield connection, asked


def _filter(asked: Asked) -> dict[str, Any]:
    found = asked.params.get("notifications")
    return found if isinstance(found, dict) else {}


def _uris(filters: dict[str, Any]) -> list[Any]:
    found = filters.get("resourceSubscriptions")
    return found if isinstance(found, list) else []


@rule(
    "MUST",
    "server",
    "basic/patterns/subscriptions#acknowledgment",
    "Acknowledge a subscription before anything else that carries its id.",
    revisions=MODERN,
    moves=LISTENING,
)
def listen_acknowledged_first(history: History) -> Iterator[Verdict]:
    for connection, asked in _listens(history):
        about = subscribed(connection, asked)
        if about:
            first = about[0]
            method = first.message["method"]
            kept = method == ACKNOWLEDGED
            yield judged(kept, first, f"the first message of the subscription {asked.id!r} is {method}")
        elif asked.result is not None:
            yield broken(asked.answers[0], f"the subscription {asked.id!r} ended without an acknowledgement")
        elif (mark := lost(asked)) is not None:
            yield broken(mark, f"the subscription {asked.id!r} was neither acknowledged nor refused")


@rule(
    "MUST",
    "server",
    "basic/patterns/subscriptions#acknowledgment",
    "Acknowledge only what was asked for.",
    revisions=MODERN,
    moves=LISTENING,
)
def acknowledged_within_request(history: History) -> Iterator[Verdict]:
    for connection, asked in _listens(history):
        wanted = _filter(asked)
        for event in subscribed(connection, asked):
            if event.message["method"] != ACKNOWLEDGED:
                continue
            agreed = event.message["params"].get("notifications")
            if not isinstance(agreed, dict):
                continue  # which the schema forbids
            more = [flag for flag in _FLAGS.values() if agreed.get(flag) is True and wanted.get(flag) is not True]
            more += [str(uri) for uri in _uris(agreed) if uri not in _uris(wanted)]
            yield judged(not more, event, f"{', '.join(more[:3])} was not asked for")


@rule(
    "MUST",
    "server",
    "basic/patterns/subscriptions#opening-a-stream",
    "Send a subscription only the kinds of notification that it asked for.",
    revisions=MODERN,
    moves=LISTENING,
)
def listen_only_requested(history: History) -> Iterator[Verdict]:
    for connection, asked in _listens(history):
        wanted = _filter(asked)
        for event in subscribed(connection, asked):
            method = event.message["method"]
            if method == ACKNOWLEDGED:
                yield held(event)
            elif method in _FLAGS:
                yield judged(wanted.get(_FLAGS[method]) is True, event, f"{method} was not asked for")
            elif method == UPDATED:
                uri = event.message["params"].get("uri")
                # A server may tell of what lies below a resource.
                kept = any(isinstance(each, str) and str(uri).startswith(each) for each in _uris(wanted))
                yield judged(kept, event, f"updates of {uri!r:.60} were not asked for")
            elif method == "notifications/message":
                yield broken(event, "log messages don't belong on a subscription")


@rule(
    "MUST",
    "server",
    "basic#_meta",
    "Put the id of a subscription into each notification of it.",
    revisions=MODERN,
    moves=LISTENING,
)
def listen_id_on_notifications(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not connection.modern:
            continue
        listens = {(type(each.id), each.id) for each in connection.requests if each.method == "subscriptions/listen"}
        for event in notifications(connection, "server", ACKNOWLEDGED, UPDATED, *_FLAGS):
            found = subscription_of(event.message)
            method = event.message["method"]
            if found is None:
                yield broken(event, f"{method} has no subscription id")
            else:
                kept = (type(found), found) in listens
                yield judged(kept, event, f"{method} has the id {found!r:.60}, which no subscription has")


@rule(
    "MUST",
    "server",
    "basic/patterns/subscriptions#graceful-closure",
    "Put the id of a subscription into the response that ends it.",
    revisions=MODERN,
    moves=LISTENING,
)
def listen_result_has_id(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            if asked.method == "subscriptions/listen" and asked.result is not None:
                found = subscription_of(asked.answers[0].message)
                kept = type(found) is type(asked.id) and found == asked.id
                yield judged(kept, asked.answers[0], f"the subscription id is {found!r:.60}, not {asked.id!r:.60}")


@rule(
    "MUST",
    "server",
    "basic/patterns/subscriptions#cancellation",
    "Send nothing for a subscription after its end.",
    revisions=MODERN,
    moves=LISTENING,
)
def nothing_after_listen(history: History) -> Iterator[Verdict]:
    for connection, asked in _listens(history):
        if not asked.answers:
            continue
        place = connection.position(asked.answers[0])
        late = [event for event in subscribed(connection, asked) if connection.position(event) > place]
        late = [event for event in late if is_ordered(connection) or event.exchange == asked.answers[0].exchange]
        if late:
            yield broken(late[0], f"{late[0].message['method']} came after the end of the subscription {asked.id!r}")
        else:
            yield held(asked.answers[0])


# --- the legacy era ---------------------------------------------------------------------------------------------------


@rule(
    "SHOULD",
    "server",
    "schema#notificationsresourcesupdated",
    "Tell of updates only clients that have subscribed.",
    revisions=LEGACY,
    moves=("subscribe", "call-tool"),
)
def updates_only_subscribed(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.hello is None:
            continue
        asked = [a for a in connection.requests if a.method in ("resources/subscribe", "resources/unsubscribe")]
        if not all(is_plain(connection, each.event) for each in asked):
            continue
        for event in notifications(connection, "server", UPDATED):
            place = connection.position(event)
            live: set[Any] = set()
            for each in asked:
                if connection.position(each.event) > place:
                    break
                if each.method == "resources/subscribe":
                    live.add(str(each.params.get("uri")))
                elif (
                    each.result is not None and is_ordered(connection) and connection.position(each.answers[0]) < place
                ):
                    live.discard(str(each.params.get("uri")))
            # What is told of may lie below what was subscribed to, so only the lack of any subscription is clear.
            yield judged(bool(live), event, "an update was told of, but nothing is subscribed to")
