"""Rules for subscriptions: streams of notifications in the modern era, single resources in the legacy era."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of, object_of
from trio_mcp.conformance.rules.common import (
    LEGACY,
    MODERN,
    declares,
    first_after,
    is_ordered,
    is_plain,
    is_proper,
    is_same_id,
    lost,
    named,
    notifications,
    pages,
    subscribed,
    subscription_of,
)
from trio_mcp.conformance.rules.history import (
    LISTS,
    Connection,
    History,
    RecordedRequest,
    id_key,
    params_of,
)
from trio_mcp.conformance.rules.model import Verdict, broken, judged, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event

__all__: list[str] = []

LISTENING: Final = ("listen", "listen-twice", "ext-task-listened")
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

# For each notification, the member of a subscription's filter that asks for it.
_FLAGS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
UPDATED: Final = "notifications/resources/updated"
TASKS: Final = "notifications/tasks"
"""The notification of the tasks extension."""


def _listens(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
    """Yield each subscription: the response that ended it, or else its request's event, then connection and request."""
    for connection, asked in history.requests("subscriptions/listen"):
        if connection.modern and is_proper(connection, asked):
            yield asked.answers[0] if asked.answers else asked.event, connection, asked


def _delivered(history: History) -> Iterator[tuple[Event, str, dict[str, Any]]]:
    """Yield each notification on a subscription, with its method and the filter that the client asked for."""
    for _, connection, asked in _listens(history):
        for event in subscribed(connection, asked):
            yield event, event.message["method"], object_of(asked.params.get("notifications"))


def _uris(filters: dict[str, Any]) -> list[Any]:
    return items_of(filters, "resourceSubscriptions")


@stated_rule(moves=LISTENING)
@each(_listens)
def listen_acknowledged_first(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    # Only the first message of this subscription counts: on stdio, messages of other subscriptions may come before it
    # (Acknowledgment).
    if received := subscribed(connection, asked):
        method = received[0].message["method"]
        problem = f"the first message of the subscription {asked.id!r} is {method}, not the acknowledgement"
        return judged(method == ACKNOWLEDGED, received[0], problem)
    # An error refuses the subscription, and then there is nothing to acknowledge.
    if asked.result is not None:
        return f"the subscription {asked.id!r} ended without an acknowledgement"
    mark = lost(asked)
    return broken(mark, f"the subscription {asked.id!r} was neither acknowledged nor refused") if mark else UNDECIDED


@rule(
    "MUST",
    "server",
    "basic/patterns/subscriptions#acknowledgment",
    "Acknowledge only what was asked for.",
    revisions=MODERN,
    moves=LISTENING,
)
@each(_delivered)
def acknowledged_within_request(event: Event, method: str, wanted: dict[str, Any]) -> Opinion:
    agreed = params_of(event).get("notifications")
    if method != ACKNOWLEDGED or not isinstance(agreed, dict):  # the schema requires an object
        return UNDECIDED
    # A server acknowledges only what it supports, so it may acknowledge less than was asked for.
    more = [flag for flag in _FLAGS.values() if agreed.get(flag) is True and wanted.get(flag) is not True]
    more += [str(uri) for uri in _uris(agreed) if uri not in _uris(wanted)]
    tasks = items_of(wanted, "taskIds")
    more += [f"the task {task_id!r:.60}" for task_id in items_of(agreed, "taskIds") if task_id not in tasks]
    return f"the server acknowledged what was not asked for: {', '.join(more[:3])}" if more else None


@stated_rule(moves=LISTENING)
@each(_delivered)
def listen_only_requested(event: Event, method: str, wanted: dict[str, Any]) -> Opinion:
    if method == ACKNOWLEDGED:
        return None
    if method in _FLAGS:
        return None if wanted.get(_FLAGS[method]) is True else f"{method} was not asked for"
    if method == UPDATED:
        uri = params_of(event).get("uri")
        # A server may report updates of resources below the one that was subscribed to.
        kept = any(isinstance(each, str) and str(uri).startswith(each) for each in _uris(wanted))
        return None if kept else f"updates of {uri!r:.60} were not asked for"
    if method == TASKS:
        task_id = params_of(event).get("taskId")
        kept = task_id in items_of(wanted, "taskIds")
        return None if kept else f"the state of the task {task_id!r:.60} was not asked for"
    return "a log message came on a subscription" if method == "notifications/message" else UNDECIDED


@stated_rule(moves=LISTENING)
def listen_id_on_notifications(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not connection.modern:
            continue
        # Subscriptions that have ended count, too: `nothing_after_listen` judges messages after the end of a
        # subscription.
        listens = {id_key(each.id) for each in connection.requests if each.method == "subscriptions/listen"}
        for event in notifications(connection, "server", ACKNOWLEDGED, UPDATED, TASKS, *_FLAGS):
            found = subscription_of(event.message)
            fault = f"the unknown subscription id {found!r:.60}" if found is not None else "no subscription id"
            yield judged(id_key(found) in listens, event, f"{event.message['method']} has {fault}")


@rule(
    "MUST",
    "server",
    "basic/patterns/subscriptions#graceful-closure",
    "Put the id of a subscription into the response that ends it.",
    revisions=MODERN,
    moves=LISTENING,
)
def listen_result_has_id(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests("subscriptions/listen"):
        if asked.result is not None:
            found = subscription_of(asked.answers[0].message)
            problem = f"the response has the subscription id {found!r:.60}, not {asked.id!r:.60}"
            yield judged(is_same_id(found, asked.id), asked.answers[0], problem)


@rule(
    "MUST",
    "server",
    "basic/patterns/subscriptions#cancellation",
    "Send nothing for a subscription after its end.",
    revisions=MODERN,
    moves=LISTENING,
)
@each(_listens)
def nothing_after_listen(end: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    if not asked.answers:
        return UNDECIDED
    # Over HTTP a message on another stream may have overtaken the response; only within one stream is the order
    # certain.
    late = first_after(connection, end, subscribed(connection, asked))
    if late is None:
        return None
    return broken(late, f"{late.message['method']} came after the end of the subscription {asked.id!r}")


def _end_by_server(connection: Connection, asked: RecordedRequest) -> Event | None:
    """Return the event at which the server properly ended a subscription's HTTP stream without a response, if any."""
    exchange = connection.exchanges.get(asked.event.exchange or 0)
    end = exchange.end if exchange is not None and exchange.is_stream else None
    if end is None or asked.answers:
        return None
    # If the stream was cut off, the connection may have been lost on the way, which was not the server's decision.
    return end if end.facts.get("by") == "server" and not end.facts.get("cut") else None


def _cancellation(connection: Connection, asked: RecordedRequest) -> Event | None:
    """Return the first notification with which the server cancelled a client's request, if it did."""
    told = notifications(connection, "server", "notifications/cancelled")
    return next((event for event in told if is_same_id(params_of(event).get("requestId"), asked.id)), None)


@stated_rule(moves=LISTENING)
@each(_listens)
def listen_teardown_announced(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    # One page of the specification requires `notifications/cancelled`, and a different page requires a response
    # instead, so only a server that sends neither message is at fault.
    if asked.answers:
        return None
    end = _end_by_server(connection, asked)
    if end is None:
        return UNDECIDED
    return judged(_cancellation(connection, asked) is not None, end, "the server ended a subscription unannounced")


@stated_rule(moves=LISTENING)
@each(_listens)
def listen_ends_with_result(event: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    if asked.answers:
        return None
    cancelled = _cancellation(connection, asked)
    if cancelled is None and _end_by_server(connection, asked) is None:
        return UNDECIDED
    return broken(cancelled or event, "the server ended a subscription without a result")


SETTLED: Final = 1.0
"""Seconds after which an announcement can't still be on its way (an arbitrary choice)."""

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
            # A list that was read only in part differs from the whole list without any change.
            readings = [
                chain for chain in pages(connection, method) if (chain[-1].result or {}).get("nextCursor") is None
            ]
            for one, other in itertools.pairwise(readings):
                # Only names are compared: the specification doesn't say whether a new description changes a list.
                before, now = set(named(one, field, key)), set(named(other, field, key))
                if before == now or not _is_listening(connection, one[0], other[-1], _FLAGS[notice]):
                    continue
                start = connection.position(one[0].event)
                # Announcements count from the first request of the earlier reading on: the list may have changed, and
                # the change been announced, during that reading.
                told = any(connection.position(event) > start for event in notifications(connection, "server", notice))
                # The announcement may still be on its way, unless three later requests were answered, or a second has
                # passed.
                end = connection.position(other[-1].answers[0])
                later = sum(bool(a.answers) and connection.position(a.event) > end for a in connection.requests)
                waited = connection.events[-1].time - other[-1].answers[0].time >= SETTLED
                if told or later >= 3 or waited:
                    changed = ", ".join(sorted(map(str, before ^ now))[:3])
                    yield judged(told, other[-1].answers[0], f"{method} changed ({changed}) without an announcement")


def _is_listening(connection: Connection, one: RecordedRequest, other: RecordedRequest, flag: str) -> bool:
    """Return whether the client could expect to be told of changes during the whole time between two requests."""
    if not connection.modern:
        return is_ordered(connection)  # over HTTP a server need not have a stream for announcements
    start, end = connection.position(one.event), connection.position(other.answers[0])
    for listen in connection.requests:
        # If a subscription has ended, it may have ended before the change.
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
    "Send updates only to clients that have subscribed.",
    revisions=LEGACY,
    moves=("subscribe", "call-tool", "another-connection"),
)
def updates_only_subscribed(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.hello is None:
            continue
        asked = [a for a in connection.requests if a.method in ("resources/subscribe", "resources/unsubscribe")]
        # The server may have accepted a malformed request to subscribe, so it isn't certain what the client is
        # subscribed to.
        if not all(is_plain(connection, each.event) for each in asked):
            continue
        for event in notifications(connection, "server", UPDATED):
            place = connection.position(event)
            live: set[Any] = set()
            for change in asked:
                if connection.position(change.event) > place:
                    break
                if change.method == "resources/subscribe":
                    live.add(str(change.params.get("uri")))
                # An update that arrives before the response to `resources/unsubscribe` may already have been on its
                # way; over HTTP, so may an update that arrives after the response.
                elif (
                    change.result is not None
                    and is_ordered(connection)
                    and connection.position(change.answers[0]) < place
                ):
                    live.discard(str(change.params.get("uri")))
            # The updated resource may lie below the one subscribed to, so only an update without any subscription is
            # clearly wrong.
            yield judged(bool(live), event, "an update was sent, but the client is subscribed to nothing")
