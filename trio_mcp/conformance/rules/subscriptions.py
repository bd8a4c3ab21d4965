"""Rules for subscriptions: streams of notifications in the modern era, single resources in the legacy era."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.rules.common import (
    LEGACY,
    MODERN,
    declares,
    is_ordered,
    is_plain,
    is_proper,
    lost,
    named,
    notifications,
    pages,
    subscribed,
    subscription_of,
)
from trio_mcp.conformance.rules.history import LISTS, Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.stated import stated_rule

__all__: list[str] = []

LISTENING: Final = ("listen", "listen-twice")
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

# The member of the filter that a notification needs in its subscription.
_FLAGS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
UPDATED: Final = "notifications/resources/updated"


def _listens(history: History) -> Iterator[tuple[Connection, RecordedRequest]]:
    for connection, asked in history.requests("subscriptions/listen"):
        if connection.modern and is_proper(connection, asked):
            yield connection, asked


def _filter(asked: RecordedRequest) -> dict[str, Any]:
    found = asked.params.get("notifications")
    return found if isinstance(found, dict) else {}


def _uris(filters: dict[str, Any]) -> list[Any]:
    found = filters.get("resourceSubscriptions")
    return found if isinstance(found, list) else []


@stated_rule(moves=LISTENING)
def listen_acknowledged_first(history: History) -> Iterator[Verdict]:
    for connection, asked in _listens(history):
        about = subscribed(connection, asked)
        # Counted for each subscription: on stdio, messages of others may come before (Acknowledgment).
        if about:
            first = about[0]
            method = first.message["method"]
            kept = method == ACKNOWLEDGED
            yield judged(kept, first, f"the first message of the subscription {asked.id!r} is {method}")
        # An error refuses the subscription, and then there is nothing to acknowledge.
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
            # Less than was asked for is right: a server acknowledges what it supports.
            more = [flag for flag in _FLAGS.values() if agreed.get(flag) is True and wanted.get(flag) is not True]
            more += [str(uri) for uri in _uris(agreed) if uri not in _uris(wanted)]
            yield judged(not more, event, f"{', '.join(more[:3])} was not asked for")


@stated_rule(moves=LISTENING)
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


@stated_rule(moves=LISTENING)
def listen_id_on_notifications(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not connection.modern:
            continue
        # Those that have ended count as well: what comes after an end is for `nothing_after_listen`.
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
        # Over HTTP another stream may have been faster than the response; within one stream the order is certain.
        late = [event for event in late if is_ordered(connection) or event.exchange == asked.answers[0].exchange]
        if late:
            yield broken(late[0], f"{late[0].message['method']} came after the end of the subscription {asked.id!r}")
        else:
            yield held(asked.answers[0])


def _ended_by_server(connection: Connection, asked: RecordedRequest) -> bool:
    """Return whether the server ended the stream of a subscription over HTTP, properly, without a response."""
    exchange = connection.exchanges.get(asked.event.exchange) if asked.event.exchange is not None else None
    end = exchange.end if exchange is not None and exchange.is_stream else None
    # A connection that was cut may have been lost on the way, which is not a decision of the server.
    return end is not None and end.facts.get("by") == "server" and not end.facts.get("cut") and not asked.answers


@stated_rule(moves=LISTENING)
def listen_teardown_announced(history: History) -> Iterator[Verdict]:
    # One page demands the notification, another wants the response instead. A server that sends neither is at fault.
    for connection, asked in _listens(history):
        if asked.answers:
            yield held(asked.answers[0])
        elif _ended_by_server(connection, asked):
            told = list(notifications(connection, "server", "notifications/cancelled"))
            kept = any(event.message.get("params", {}).get("requestId") == asked.id for event in told)
            yield judged(kept, connection.exchanges[asked.event.exchange or 0].end or asked.event, _WITHOUT)


_WITHOUT: Final = "the server ended a subscription without a word"


@stated_rule(section="basic/patterns/subscriptions#graceful-closure", moves=LISTENING)
def listen_ends_with_result(history: History) -> Iterator[Verdict]:
    for connection, asked in _listens(history):
        cancelled = [
            event
            for event in notifications(connection, "server", "notifications/cancelled")
            if isinstance(event.message.get("params"), dict) and event.message["params"].get("requestId") == asked.id
        ]
        if asked.answers:
            yield held(asked.answers[0])
        elif cancelled or _ended_by_server(connection, asked):
            yield broken(cancelled[0] if cancelled else asked.event, "the server ended a subscription without a result")


SETTLED: Final = 1.0
"""Seconds after which an announcement is not on its way any more (chosen)."""

_LISTED_CHANGES: Final = {
    "tools/list": ("notifications/tools/list_changed", "tools.listChanged"),
    "prompts/list": ("notifications/prompts/list_changed", "prompts.listChanged"),
    "resources/list": ("notifications/resources/list_changed", "resources.listChanged"),
}


@stated_rule(
    sentence="Announce a changed list, if `listChanged` was declared, to clients that listen for it.",
    moves=("list-twice", "listen", "call-tool"),
)
def list_change_announced(history: History) -> Iterator[Verdict]:
    for connection in history:
        for method, (notice, capability) in _LISTED_CHANGES.items():
            if not declares(connection.server_capabilities, capability):
                continue
            field, key = LISTS[method]
            # A list that was read in part differs from the whole without any change.
            readings = [
                chain for chain in pages(connection, method) if (chain[-1].result or {}).get("nextCursor") is None
            ]
            for one, other in itertools.pairwise(readings):
                # Names alone: whether a new description makes a changed list isn't said.
                before, now = set(named(one, field, key)), set(named(other, field, key))
                if before == now or not _is_listening(connection, one[0], other[-1], _FLAGS[notice]):
                    continue
                start = connection.position(one[0].event)
                # From the first request on, since the change may have come, and been announced, while the earlier list
                # was read.
                told = any(connection.position(event) > start for event in notifications(connection, "server", notice))
                # It may still be on its way, unless much has come since.
                end = connection.position(other[-1].answers[0])
                later = sum(bool(a.answers) and connection.position(a.event) > end for a in connection.requests)
                waited = connection.events[-1].time - other[-1].answers[0].time >= SETTLED
                if told or later >= 3 or waited:
                    changed = ", ".join(sorted(map(str, before ^ now))[:3])
                    yield judged(told, other[-1].answers[0], f"{method} changed ({changed}), but was not announced")


def _is_listening(connection: Connection, one: RecordedRequest, other: RecordedRequest, flag: str) -> bool:
    """Return whether the client is told of changes all the time between two requests."""
    if not connection.modern:
        return is_ordered(connection)  # over HTTP a server need not have a stream for it
    start, end = connection.position(one.event), connection.position(other.answers[0])
    for listen in connection.requests:
        # A subscription that has ended may have done so before the change.
        if listen.method != "subscriptions/listen" or listen.answers:
            continue
        acks = [e for e in subscribed(connection, listen) if e.message["method"] == ACKNOWLEDGED]
        agreed = acks[0].message["params"].get("notifications") if acks else None
        until = connection.position(listen.cancelled) if listen.cancelled is not None else end + 1
        if isinstance(agreed, dict) and agreed.get(flag) is True and connection.position(acks[0]) < start:
            return until > end
    return False


# --- the legacy era ---------------------------------------------------------------------------------------------------


@rule(
    "SHOULD",
    "server",
    "schema#notificationsresourcesupdated",
    "Tell of updates only clients that have subscribed.",
    revisions=LEGACY,
    moves=("subscribe", "call-tool", "another-connection"),
)
def updates_only_subscribed(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.hello is None:
            continue
        asked = [a for a in connection.requests if a.method in ("resources/subscribe", "resources/unsubscribe")]
        # A malformed subscription may have been accepted all the same, and then nothing is certain any more.
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
                # Until it is answered, an update may have been on its way; over HTTP even afterwards.
                elif (
                    each.result is not None and is_ordered(connection) and connection.position(each.answers[0]) < place
                ):
                    live.discard(str(each.params.get("uri")))
            # The resource told of may lie below the one subscribed to, so only the lack of any subscription is clear.
            yield judged(bool(live), event, "an update was told of, but nothing is subscribed to")
