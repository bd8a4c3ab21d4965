"""Rules for cancellation, progress, ping, logging, completion and pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.rules.common import (
    LEGACY,
    MODERN,
    asked_about,
    code_of,
    declares,
    has_read,
    is_ordered,
    is_plain,
    is_proper,
    is_refused_late,
    is_unknown,
    named,
    notifications,
    pages,
    subscribed,
    subscription_of,
    survived,
)
from trio_mcp.conformance.rules.history import LISTS, Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import error_codes, meta

__all__ = ["LEVELS", "NO_CURSOR"]

NO_CURSOR: Final = "no:such:cursor:"
"""How cursors begin that the kit makes up; any other may have been given before a transcript began."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log messages, least severe first."""

CANCELS: Final = ("cancel-open", "cancel-one-of-many", "call-tool")
CANCELLED: Final = "notifications/cancelled"


# --- cancellation -----------------------------------------------------------------------------------------------------


def _after_cancellation(connection: Connection) -> Iterator[tuple[RecordedRequest, int, list[Event]]]:
    """Yield what was cancelled, from where on the server knew, and what it sent about it after that."""
    for asked in connection.requests:
        # A closed HTTP stream cancels, too, but nothing can come on it any more; and `initialize` must not be
        # cancelled, so what a server does then is open.
        if asked.cancelled is None or asked.cancelled.kind != "message" or asked.method == "initialize":
            continue
        known = has_read(connection, asked.cancelled)
        if known is not None and connection.uses(asked.id) == 1:
            about = [*asked.answers, *asked.progress, *_of_subscription(connection, asked)]
            yield asked, known, [event for event in about if connection.position(event) > known]


def _of_subscription(connection: Connection, asked: RecordedRequest) -> list[Event]:
    return subscribed(connection, asked) if asked.method == "subscriptions/listen" else []


@stated_rule(sentence="Send no response to a request once it is cancelled.", moves=CANCELS)
def cancelled_unanswered(history: History) -> Iterator[Verdict]:
    for connection in history:
        quickest = _durations(connection)
        for asked, known, after in _after_cancellation(connection):
            late = next((event for event in asked.answers if event in after), None)
            if late is not None:
                yield broken(
                    late, f"the answer to {asked.method} (id {asked.id!r}) came after its cancellation was read"
                )
            # Silent where the answer came before the cancellation was surely read: the two have crossed, which is not a
            # fault.
            elif not asked.answers:
                yield held(connection.events[known])
        for asked in connection.requests:
            if asked.cancelled is None or not asked.answers or asked.cancelled.kind != "message":
                continue
            # An error that comes with the cancellation, long before the call can be done, answers the cancellation.
            took = asked.answers[0].time - asked.event.time
            least = quickest.get(_what(asked), 0.0)
            place = connection.position(asked.cancelled)
            if asked.error is not None and took < least / 2 and connection.position(asked.answers[0]) > place:
                yield broken(asked.answers[0], f"the cancellation of {asked.method} (id {asked.id!r}) was answered")


def _what(asked: RecordedRequest) -> tuple[str, str]:
    return asked.method, repr((asked.params.get("name"), asked.params.get("arguments")))


def _durations(connection: Connection) -> dict[tuple[str, str], float]:
    """Return how long each call takes at least, of those that were not cancelled; none of the quick ones."""
    found: dict[tuple[str, str], float] = {}
    for asked in connection.requests:
        if asked.answers and asked.cancelled is None:
            took = asked.answers[0].time - asked.event.time
            found[_what(asked)] = min(took, found.get(_what(asked), took))
    # Below that a busy machine decides (chosen).
    return {what: took for what, took in found.items() if took >= 0.5}


@stated_rule(sentence="Over stdio, send nothing more for a request once it is cancelled.", moves=(*CANCELS, "listen"))
def nothing_after_cancel(history: History) -> Iterator[Verdict]:
    for connection in history:
        # The section is about stdio; the other links differ from it only in what carries the messages.
        if connection.transport in ("stdio", "memory", "tcp", "unix", "tls"):
            for asked, known, after in _after_cancellation(connection):
                if after:
                    what = after[0].message.get("method", "its response")
                    yield broken(after[0], f"{what} came after the cancellation of {asked.method} was read")
                elif not asked.answers:
                    yield held(connection.events[known])


@stated_rule(moves=("cancel-finished", *CANCELS))
def cancel_races_survived(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not is_ordered(connection):
            continue
        for event in notifications(connection, "client", CANCELLED):
            asked = _cancelled(connection, event)
            # Malformed or unknown cancellations are for the next rule, which is only a SHOULD.
            if asked is not None and is_plain(connection, event):
                yield from survived(connection, event)


def _cancelled(connection: Connection, event: Event) -> RecordedRequest | None:
    """Return the request that a cancellation of the client names, if it was sent before."""
    params = event.message.get("params")
    named_id = params.get("requestId") if isinstance(params, dict) else None
    place = connection.position(event)
    for asked in connection.requests:
        if type(asked.id) is type(named_id) and asked.id == named_id and connection.position(asked.event) < place:
            return asked
    return None


@stated_rule(
    sentence="Ignore cancellations that are malformed, or of requests that are unknown or finished.",
    moves=("cancel-unknown", "cancel-malformed", "cancel-finished"),
)
def bad_cancel_ignored(history: History) -> Iterator[Verdict]:
    for connection in history:
        if is_ordered(connection):
            for event in notifications(connection, "client", CANCELLED):
                asked = _cancelled(connection, event)
                if asked is None or asked.cancelled is not event:
                    yield from survived(connection, event)


@stated_rule(sentence="Cancel nothing but subscriptions.", moves=("call-tool", "cancel-open", "listen"))
def server_cancels_listen_only(history: History) -> Iterator[Verdict]:
    for connection in history:
        listens = {(type(a.id), a.id) for a in connection.requests if a.method == "subscriptions/listen"}
        for event in notifications(connection, "server", CANCELLED):
            params = event.message.get("params")
            found = params.get("requestId") if isinstance(params, dict) else None
            yield judged((type(found), found) in listens, event, f"{found!r:.60} is not the id of a subscription")
        if not any(notifications(connection, "server", CANCELLED)):
            yield from (held(asked.answers[0]) for asked in connection.requests if asked.answers)


@stated_rule(
    revisions=LEGACY, sentence="Cancel only requests that the server sent itself.", moves=("call-tool", "cancel-open")
)
def cancel_known_request(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event in notifications(connection, "server", CANCELLED):
            params = event.message.get("params")
            found = params.get("requestId") if isinstance(params, dict) else None
            if found is None:
                continue  # for another rule
            place = connection.position(event)
            asked = [a for a in connection.questions if type(a.id) is type(found) and a.id == found]
            kept = any(connection.position(each.event) < place for each in asked)
            yield judged(kept, event, f"the server sent no request with the id {found!r:.60}")


@stated_rule(
    level="MUST",
    revisions=LEGACY,
    section="basic/utilities/cancellation#behavior-requirements",
    moves=("call-tool", "cancel-open"),
)
def cancel_open_request(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not is_ordered(connection):  # a stream may be late
            continue
        for event in notifications(connection, "server", CANCELLED):
            params = event.message.get("params")
            found = params.get("requestId") if isinstance(params, dict) else None
            asked = next((a for a in connection.questions if type(a.id) is type(found) and a.id == found), None)
            if asked is None:
                continue
            # The response may have crossed the cancellation, unless the server has surely read it.
            known = has_read(connection, asked.answers[0]) if asked.answers else None
            kept = known is None or known > connection.position(event)
            yield judged(kept, event, f"{asked.method} (id {found!r:.60}) was answered already")


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    section="schema#cancellednotificationparams",
    sentence="Name the request in a cancellation.",
    moves=("call-tool", "cancel-open", "listen"),
)
def cancel_names_request(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event in notifications(connection, "server", CANCELLED):
            params = event.message.get("params")
            found = params.get("requestId") if isinstance(params, dict) else None
            kept = isinstance(found, (str, int)) and not isinstance(found, bool)
            yield judged(kept, event, "the cancellation names no request")


# --- progress ---------------------------------------------------------------------------------------------------------

PROGRESS: Final = ("call-with-progress", "calls-at-once")


def _token(params: dict[str, Any]) -> Any:
    """Return the token of a progress notification; 5.0 is the number 5 in JSON."""
    token = params.get("progressToken")
    return int(token) if isinstance(token, float) and token.is_integer() else token


def _progress(connection: Connection) -> Iterator[tuple[Event, dict[str, Any]]]:
    for event in notifications(connection, "server", "notifications/progress"):
        params = event.message.get("params")
        if isinstance(params, dict):
            yield event, params


@stated_rule(sentence="Report progress only for tokens that a request gave.", moves=(*PROGRESS, "another-connection"))
def progress_token_known(history: History) -> Iterator[Verdict]:
    for connection in history:
        # A text that can't be read as JSON here may be read elsewhere, with a token in it.
        if any(e.sender == "client" and (e.kind == "text" or e.text is not None) for e in connection.events):
            continue
        for event, params in _progress(connection):
            token = _token(params)
            place = connection.position(event)
            kept = any(connection.position(giver) < place for giver in connection.givers(token))
            elsewhere = any(other.givers(token) for other in history if other is not connection)
            more = "; it belongs to another connection" if elsewhere else ""
            yield judged(kept, event, f"no request gave the token {token!r:.60}{more}")


@stated_rule(moves=PROGRESS)
def progress_token_type(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event, params in _progress(connection):
            token = _token(params)
            kept = isinstance(token, (str, int)) and not isinstance(token, bool)
            yield judged(kept, event, f"the token {token!r:.60} is neither a string nor an integer")


@stated_rule(moves=PROGRESS)
def no_progress_after_end(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            token = asked.meta.get(meta.PROGRESS_TOKEN)
            if token is None or len(connection.givers(token)) != 1 or not asked.answers:
                continue
            # The token of a task lives as long as the task.
            if "task" in (asked.result or {}):
                continue
            end = asked.answers[0]
            late = [
                event
                for event in asked.progress
                if connection.position(event) > connection.position(end) and _in_order(connection, end, event)
            ]
            if late:
                yield broken(late[0], f"progress for {asked.method} (id {asked.id!r}) came after its response")
            else:
                yield held(end)


def _in_order(connection: Connection, one: Event, other: Event) -> bool:
    """Return whether two messages of the server were sent in the order in which they came."""
    return is_ordered(connection) or (one.exchange is not None and one.exchange == other.exchange)


@stated_rule(moves=PROGRESS)
def progress_increases(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            token = asked.meta.get(meta.PROGRESS_TOKEN)
            if token is None or len(connection.givers(token)) != 1:
                continue
            for one, other in itertools.pairwise(asked.progress):
                before, now = (each.message["params"].get("progress") for each in (one, other))
                # A NaN or a missing number is a fault of form, for the rule on notifications; here it would only be
                # reported twice.
                if _is_number(before) and _is_number(now) and _in_order(connection, one, other):
                    yield judged(now > before, other, f"progress went from {before} to {now}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- ping -------------------------------------------------------------------------------------------------------------

PROMPTLY: Final = 5.0
"""Seconds within which a ping must be answered. Chosen: "promptly" says no number, but this is surely too long."""


@stated_rule(moves=("ping", "calls-at-once"))
def ping_answered(history: History) -> Iterator[Verdict]:
    for connection, asked in history.requests("ping"):
        if not is_plain(connection, asked.event) or connection.uses(asked.id) != 1 or connection.hello is None:
            continue
        if asked.params.keys() - {"_meta"}:  # which a strict server may refuse
            continue
        if not asked.answers:
            if asked.overdue is not None and asked.cancelled is None:
                yield broken(asked.overdue, "the ping was not answered")
            continue
        answer = asked.answers[0]
        if "error" in answer.message:
            if not is_refused_late(asked):
                yield broken(answer, "the ping was answered with an error")
            continue
        more = sorted(set(asked.result or {}) - {"_meta"})
        seconds = answer.time - asked.event.time
        if more:
            yield broken(answer, f"the result of a ping has {', '.join(more)}")
        else:
            yield judged(seconds <= PROMPTLY, answer, f"the ping was answered after {seconds:.1f} seconds")


# --- logging ----------------------------------------------------------------------------------------------------------


def _logged(connection: Connection) -> Iterator[tuple[Event, str]]:
    for event in notifications(connection, "server", "notifications/message"):
        params = event.message.get("params")
        level = params.get("level") if isinstance(params, dict) else None
        if level in LEVELS:
            yield event, level


@rule(
    "SHOULD",
    "server",
    "server/utilities/logging#setting-log-level",
    "Send only log messages of the level that the client set, or above.",
    revisions=LEGACY,
    moves=("call-with-logging", "set-level"),
)
def log_level_respected(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not is_ordered(connection):
            continue
        sets = [asked for asked in connection.requests if asked.method == "logging/setLevel"]
        for event, level in _logged(connection):
            place = connection.position(event)
            before = [asked for asked in sets if connection.position(asked.event) < place]
            if not before or not all(is_proper(connection, asked) for asked in before):
                continue
            # While one is being set, either counts.
            settled = [asked for asked in before if asked.answers and connection.position(asked.answers[0]) < place]
            # A level that was refused was not set, and which one counts then is the server's affair.
            if len(settled) == len(before) and before[-1].result is not None:
                least = before[-1].params.get("level")
                if least in LEVELS:
                    kept = LEVELS.index(level) >= LEVELS.index(least)
                    yield judged(kept, event, f"the level is {level}, but {least} was set")


@stated_rule(moves=("call-with-logging", "call-tool", "calls-at-once"))
def log_only_on_request(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event, level in _logged(connection):
            place = connection.position(event)
            # Over HTTP the stream says which request is meant; elsewhere it may be any that is open.
            running = [
                asked
                for asked in connection.requests
                if connection.position(asked.event) < place
                and (is_ordered(connection) or asked.event.exchange == event.exchange)
                and not (asked.answers and connection.position(asked.answers[0]) < place)
            ]
            # A server of both eras may take some for requests of the legacy era, in which it decides itself.
            if any(asked.meta.get(meta.PROTOCOL_VERSION) not in MODERN for asked in running):
                continue
            levels = [asked.meta.get(meta.LOG_LEVEL) for asked in running]
            allowed = [least for least in levels if least in LEVELS]
            if any(least is not None and least not in LEVELS for least in levels):
                continue  # the text does not say what a level means that does not exist
            # Any of the open requests will do: on one link a log message does not say to which of them it belongs.
            kept = any(LEVELS.index(level) >= LEVELS.index(least) for least in allowed)
            asked_for = f"only {', '.join(allowed)} was asked for" if allowed else "no open request asked for any"
            yield judged(kept, event, f"the level is {level}, but {asked_for}")
        if not any(_logged(connection)):
            yield from (held(asked.answers[0]) for asked in connection.requests if asked.answers)


@stated_rule(moves=("call-with-logging", "listen"))
def log_on_own_stream(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event, _ in _logged(connection):
            if subscription_of(event.message) is not None:
                yield broken(event, "a log message carries the id of a subscription")
            elif event.exchange is not None:
                of = [asked for asked in connection.requests if asked.event.exchange == event.exchange]
                kept = any(meta.LOG_LEVEL in asked.meta for asked in of)
                yield judged(kept or not of, event, "a log message came on the stream of a request that asked for none")
            else:
                yield held(event)


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    section="server/utilities/logging#error-handling",
    older="",
    moves=("bad-log-level",),
)
def log_level_errors(history: History) -> Iterator[Verdict]:
    for connection, asked in history.requests():
        if not asked.answers or not is_plain(connection, asked.event) or connection.uses(asked.id) != 1:
            continue
        if not declares(connection.server_capabilities, "logging"):
            continue
        legacy = asked.method == "logging/setLevel" and not connection.modern and connection.hello is not None
        level = asked.params.get("level") if legacy else asked.meta.get(meta.LOG_LEVEL) if connection.modern else None
        if isinstance(level, str) and level not in LEVELS:
            code = code_of(asked)
            shown = "a result" if code is None else str(code)
            kept = code == error_codes.INVALID_PARAMS
            yield judged(kept, asked.answers[0], f"the level {level!r:.60} was answered with {shown}, not -32602")


# --- completion -------------------------------------------------------------------------------------------------------


@rule(
    "MUST",
    "server",
    "server/utilities/completion#completion-results",
    "Send at most 100 values in a completion.",
    moves=("complete",),
)
def completion_at_most_100(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests("completion/complete"):
        found = (asked.result or {}).get("completion")
        values = found.get("values") if isinstance(found, dict) else None
        if isinstance(values, list):
            yield judged(len(values) <= 100, asked.answers[0], f"the completion has {len(values)} values")


@stated_rule(
    since="2025-03-26",
    sentence="Answer -32602 for completion of an unknown prompt, and -32601 if completion isn't offered.",
    moves=("complete-unknown",),
)
def completion_errors(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "completion/complete"):
        code = code_of(asked)
        shown = "a result" if code is None else str(code)
        if not declares(connection.server_capabilities, "completions"):
            kept = code == error_codes.METHOD_NOT_FOUND
            yield judged(kept, answer, f"completion isn't offered, but was answered with {shown}, not -32601")
            continue
        ref = asked.params.get("ref")
        name = ref.get("name") if isinstance(ref, dict) and ref.get("type") == "ref/prompt" else None
        if name is not None and is_unknown(connection, "prompts/list", name):
            kept = code == error_codes.INVALID_PARAMS
            yield judged(kept, answer, f"completion of an unknown prompt was answered with {shown}, not -32602")


# --- pages ------------------------------------------------------------------------------------------------------------


@stated_rule(moves=("garbage-cursor",))
def bad_cursor_refused(history: History) -> Iterator[Verdict]:
    given = {
        (asked.method, (asked.result or {}).get("nextCursor"))
        for _, asked in history.requests(*LISTS)
        if isinstance((asked.result or {}).get("nextCursor"), str)
    }
    for _, asked, answer in asked_about(history, *LISTS):
        cursor = asked.params.get("cursor")
        # Not if it was given after all: a server may put what a client has sent into its cursors.
        if isinstance(cursor, str) and (asked.method, cursor) not in given and cursor.startswith(NO_CURSOR):
            code = code_of(asked)
            # A method that the server lacks has nothing to do with cursors.
            if code != error_codes.METHOD_NOT_FOUND:
                shown = "a result" if code is None else str(code)
                kept = code == error_codes.INVALID_PARAMS
                yield judged(kept, answer, f"the cursor {cursor!r:.60} was answered with {shown}, not -32602")


@stated_rule(moves=("next-page", "list-all"))
def cursors_stable(history: History) -> Iterator[Verdict]:
    for connection in history:
        for method, (field, key) in LISTS.items():
            if any(notifications(connection, "server", f"notifications/{method.split('/')[0]}/list_changed")):
                continue
            for chain in pages(connection, method):
                if _was_disturbed(connection, chain):
                    continue
                seen: set[str] = set()
                for page in chain:
                    # Compared between pages only: a name that comes twice on one page has nothing to do with cursors.
                    names = set(named([page], field, key))
                    if page is not chain[0]:
                        twice = sorted(seen & names)
                        found = ", ".join(twice[:3])
                        yield judged(not twice, page.answers[0], f"{found} came on an earlier page, too")
                    seen |= names


def _was_disturbed(connection: Connection, chain: list[RecordedRequest]) -> bool:
    """Return whether a call came between the pages of a list, which may have changed the list."""
    first, last = connection.position(chain[0].event), connection.position(chain[-1].answers[0])
    return any(
        asked.method in ("tools/call", "prompts/get", "resources/read")
        and connection.position(asked.event) < last
        and not (asked.answers and connection.position(asked.answers[0]) < first)
        for asked in connection.requests
    )
