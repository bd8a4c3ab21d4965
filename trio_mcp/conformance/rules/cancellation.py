"""Rules on how servers handle cancellations, and on the cancellations that they send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trio_mcp.conformance.rules.common import (
    LEGACY,
    has_read,
    is_ordered,
    is_plain,
    is_same_id,
    notifications,
    subscribed,
    survived,
)
from trio_mcp.conformance.rules.history import (
    Connection,
    History,
    RecordedRequest,
    id_key,
    params_of,
)
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each, notified
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.jsonrpc.messages import is_request_id

__all__: list[str] = []

CANCELS: Final = ("cancel-open", "cancel-one-of-many", "call-tool")
CANCELLED: Final = "notifications/cancelled"


def _after_cancellation(connection: Connection) -> Iterator[tuple[RecordedRequest, Event, list[Event]]]:
    """Yield each cancelled request, the event that proves that the server read the cancellation, and later messages."""
    for asked in connection.requests:
        # Two kinds of cancellation are left out. Once a client has closed an HTTP stream, nothing can come on it any
        # more. And `initialize` must not be cancelled, so the specification doesn't say what a server does then.
        if asked.cancelled is None or asked.cancelled.kind != "message" or asked.method == "initialize":
            continue
        known = has_read(connection, asked.cancelled)
        if known is not None and connection.uses(asked.id) == 1:
            sent = [*asked.answers, *asked.progress]
            if asked.method == "subscriptions/listen":
                sent += subscribed(connection, asked)
            yield asked, connection.events[known], [event for event in sent if connection.position(event) > known]


@stated_rule(moves=CANCELS)
def cancelled_unanswered(history: History) -> Iterator[Verdict]:
    for connection in history:
        quickest = _durations(connection)
        for asked, known, after in _after_cancellation(connection):
            late = next((event for event in asked.answers if event in after), None)
            if late is not None:
                yield broken(
                    late, f"the answer to {asked.method} (id {asked.id!r}) came after its cancellation was read"
                )
            # There is no verdict where the response came before the cancellation was certainly read: the two may have
            # crossed, which is not a fault.
            elif not asked.answers:
                yield held(known)
        for asked in connection.requests:
            if asked.cancelled is None or asked.error is None or asked.cancelled.kind != "message":
                continue
            # An error that comes right after the cancellation, long before the call could be finished, is assumed to be
            # a response to the cancellation itself.
            took = asked.answers[0].time - asked.event.time
            least = quickest.get(_what(asked), 0.0)
            place = connection.position(asked.cancelled)
            if took < least / 2 and connection.position(asked.answers[0]) > place:
                yield broken(asked.answers[0], f"the cancellation of {asked.method} (id {asked.id!r}) was answered")


def _what(asked: RecordedRequest) -> tuple[str, str]:
    return asked.method, repr((asked.params.get("name"), asked.params.get("arguments")))


def _durations(connection: Connection) -> dict[tuple[str, str], float]:
    """Return, for each call, the shortest time that it took when it was not cancelled; quick calls are left out."""
    found: dict[tuple[str, str], float] = {}
    for asked in connection.requests:
        if asked.answers and asked.cancelled is None:
            took = asked.answers[0].time - asked.event.time
            found[_what(asked)] = min(took, found.get(_what(asked), took))
    # Calls that take less than half a second (an arbitrary choice) are left out: such a duration depends mostly on the
    # load of the machine.
    return {what: took for what, took in found.items() if took >= 0.5}


@stated_rule(sentence="Over stdio, send nothing more for a request once it is cancelled.", moves=(*CANCELS, "listen"))
def nothing_after_cancel(history: History) -> Iterator[Verdict]:
    for connection in history:
        # The section of the specification is about stdio. The other transports in this list carry the same lines as
        # stdio, so the rule applies to them, too.
        if connection.transport in ("stdio", "memory", "tcp", "unix", "tls"):
            for asked, known, after in _after_cancellation(connection):
                if after:
                    what = after[0].message.get("method", "its response")
                    yield broken(after[0], f"{what} came after the cancellation of {asked.method} was read")
                elif not asked.answers:
                    yield held(known)


def _cancellations(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest | None]]:
    """Yield the client's cancellations on ordered transports, each with the request that it names, if any."""
    for event, connection in notified("client", CANCELLED)(history):
        if is_ordered(connection):
            named_id, place = params_of(event).get("requestId"), connection.position(event)
            sent = (asked for asked in connection.requests if connection.position(asked.event) < place)
            yield event, connection, next((asked for asked in sent if is_same_id(asked.id, named_id)), None)


@stated_rule(moves=("cancel-finished", *CANCELS))
def cancel_races_survived(history: History) -> Iterator[Verdict]:
    for event, connection, asked in _cancellations(history):
        # Cancellations that are malformed or name an unknown request are left to `bad_cancel_ignored`, which is only a
        # SHOULD.
        if asked is not None and is_plain(connection, event):
            yield from survived(connection, event)


@stated_rule(
    sentence="Ignore cancellations that are malformed, or of requests that are unknown or finished.",
    moves=("cancel-unknown", "cancel-malformed", "cancel-finished"),
)
def bad_cancel_ignored(history: History) -> Iterator[Verdict]:
    for event, connection, asked in _cancellations(history):
        if asked is None or asked.cancelled is not event:
            yield from survived(connection, event)


@stated_rule(sentence="Cancel nothing but subscriptions.", moves=("call-tool", "cancel-open", "listen"))
def server_cancels_listen_only(history: History) -> Iterator[Verdict]:
    for connection in history:
        listens = {id_key(a.id) for a in connection.requests if a.method == "subscriptions/listen"}
        for event in notifications(connection, "server", CANCELLED):
            found = params_of(event).get("requestId")
            yield judged(id_key(found) in listens, event, f"{found!r:.60} is not the id of a subscription")
        if not any(notifications(connection, "server", CANCELLED)):
            yield from (held(asked.answers[0]) for asked in connection.requests if asked.answers)


@stated_rule(revisions=LEGACY, moves=("call-tool", "cancel-open"))
@each(notified("server", CANCELLED))
def cancel_known_request(event: Event, connection: Connection) -> Opinion:
    found, place = params_of(event).get("requestId"), connection.position(event)
    if found is None:
        return UNDECIDED  # `cancel_names_request` judges a missing id
    sent = (asked.id for asked in connection.questions if connection.position(asked.event) < place)
    kept = any(is_same_id(asked_id, found) for asked_id in sent)
    return None if kept else f"the server sent no request with the id {found!r:.60}"


@stated_rule(
    level="MUST",
    revisions=LEGACY,
    section="basic/utilities/cancellation#behavior-requirements",
    moves=("call-tool", "cancel-open"),
)
@each(notified("server", CANCELLED))
def cancel_open_request(event: Event, connection: Connection) -> Opinion:
    found = params_of(event).get("requestId")
    asked = next((asked for asked in connection.questions if is_same_id(asked.id, found)), None)
    if asked is None or not is_ordered(connection):  # over HTTP, one stream may overtake another
        return UNDECIDED
    # The response and the cancellation may have crossed, unless the server had certainly read the response before.
    known = has_read(connection, asked.answers[0]) if asked.answers else None
    kept = known is None or known > connection.position(event)
    return None if kept else f"the client had already answered {asked.method} (id {found!r:.60})"


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    section="schema#cancellednotificationparams",
    sentence="Name the request in a cancellation.",
    moves=("call-tool", "cancel-open", "listen"),
)
@each(notified("server", CANCELLED))
def cancel_names_request(event: Event, _: Connection) -> Opinion:
    return None if is_request_id(params_of(event).get("requestId")) else "the cancellation names no request"
