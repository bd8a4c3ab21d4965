"""Rules for progress, ping, logging, completion and pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.rules.common import (
    LEGACY,
    MODERN,
    code_of,
    code_or_result,
    declares,
    first_after,
    is_in_order,
    is_ordered,
    is_plain,
    is_proper,
    is_refused_late,
    is_unknown,
    named,
    notifications,
    pages,
    subscription_of,
)
from trio_mcp.conformance.rules.history import (
    LISTS,
    Connection,
    History,
    RecordedRequest,
    params_of,
)
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, about, each, notified
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.types import error_codes, meta

__all__ = ["LEVELS", "NO_CURSOR"]

NO_CURSOR: Final = "no:such:cursor:"
"""The prefix of the cursors that the kit makes up; a server may have issued any other cursor before the transcript
began."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log messages, least severe first."""


# --- progress ---------------------------------------------------------------------------------------------------------

PROGRESS: Final = ("call-with-progress", "calls-at-once")


def _progress(history: History) -> Iterator[tuple[Event, Connection, Any]]:
    """Yield the server's progress notifications, with their tokens.

    A token like 5.0 is converted to 5, because JSON does not distinguish the two.
    """
    for event, connection in notified("server", "notifications/progress")(history):
        if isinstance(event.message.get("params"), dict):
            token = event.message["params"].get("progressToken")
            yield event, connection, int(token) if isinstance(token, float) and token.is_integer() else token


def _asked_progress(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
    """Yield the requests with a progress token that no other request has."""
    for connection, asked in history.requests():
        token = asked.meta.get(meta.PROGRESS_TOKEN)
        if token is not None and len(connection.givers(token)) == 1:
            yield asked.answers[0] if asked.answers else asked.event, connection, asked


@stated_rule(sentence="Report progress only for tokens that a request gave.", moves=(*PROGRESS, "another-connection"))
def progress_token_known(history: History) -> Iterator[Verdict]:
    # The server may be able to parse text that the kit can't parse as JSON, and such text may contain a token.
    unclear = {
        event.connection
        for event in history.events
        if event.sender == "client" and (event.kind == "text" or event.text is not None)
    }
    for event, connection, token in _progress(history):
        if connection.number not in unclear:
            place = connection.position(event)
            kept = any(connection.position(giver) < place for giver in connection.givers(token))
            elsewhere = any(other.givers(token) for other in history if other is not connection)
            more = "; it belongs to another connection" if elsewhere else ""
            yield judged(kept, event, f"no request on this connection gave the progress token {token!r:.60}{more}")


@stated_rule(moves=PROGRESS)
@each(_progress)
def progress_token_type(_: Event, _connection: Connection, token: Any) -> Opinion:
    return None if is_request_id(token) else f"the progress token {token!r:.60} is neither a string nor an integer"


@stated_rule(moves=PROGRESS)
@each(_asked_progress)
def no_progress_after_end(end: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    # If the request created a task, its token stays valid until the task ends.
    if not asked.answers or "task" in (asked.result or {}):
        return UNDECIDED
    late = first_after(connection, end, asked.progress)
    return broken(late, f"progress for {asked.method} (id {asked.id!r}) came after its response") if late else None


@stated_rule(moves=PROGRESS)
def progress_increases(history: History) -> Iterator[Verdict]:
    for _, connection, asked in _asked_progress(history):
        for one, other in itertools.pairwise(asked.progress):
            before, now = (each.message["params"].get("progress") for each in (one, other))
            # `notification_valid` reports a missing or malformed number; a second report would add nothing.
            if _is_number(before) and _is_number(now) and is_in_order(connection, one, other):
                yield judged(now > before, other, f"progress went from {before} to {now}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- ping -------------------------------------------------------------------------------------------------------------

PROMPTLY: Final = 5.0
"""Seconds within which a ping must be answered (an arbitrary choice: the specification only says "promptly")."""


def _pings(history: History) -> Iterator[tuple[Event, RecordedRequest]]:
    """Yield the pings that a server must respond to, each with its response, or the mark that says that none came."""
    for connection, asked in history.requests("ping"):
        if not is_plain(connection, asked.event) or connection.uses(asked.id) != 1 or connection.hello is None:
            continue
        mark = asked.overdue if asked.cancelled is None else None
        end = asked.answers[0] if asked.answers else mark
        # A strict server may refuse a ping that has parameters.
        if end is not None and not asked.params.keys() - {"_meta"}:
            yield end, asked


@stated_rule(moves=("ping", "calls-at-once"))
@each(_pings)
def ping_answered(answer: Event, asked: RecordedRequest) -> Opinion:
    if not asked.answers:
        return "the ping was not answered"
    if "error" in answer.message:
        return UNDECIDED if is_refused_late(asked) else "the ping was answered with an error"
    more = sorted(set(asked.result or {}) - {"_meta"})
    seconds = answer.time - asked.event.time
    if more:
        return f"the result of a ping must be empty, but has {', '.join(more)}"
    return f"the ping was answered after {seconds:.1f} seconds" if seconds > PROMPTLY else None


# --- logging ----------------------------------------------------------------------------------------------------------


def _logged(connections: Iterable[Connection]) -> Iterator[tuple[Event, Connection, str]]:
    """Yield the log messages, and their levels."""
    for connection in connections:
        for event in notifications(connection, "server", "notifications/message"):
            if params_of(event).get("level") in LEVELS:
                yield event, connection, params_of(event)["level"]


@rule(
    "SHOULD",
    "server",
    "server/utilities/logging#setting-log-level",
    "Send only log messages of the level that the client set, or above.",
    revisions=LEGACY,
    moves=("call-with-logging", "set-level"),
)
@each(_logged)
def log_level_respected(event: Event, connection: Connection, level: str) -> Opinion:
    place = connection.position(event)
    sets = [asked for asked in connection.requests if asked.method == "logging/setLevel"]
    before = [asked for asked in sets if connection.position(asked.event) < place]
    # While a level is being set, the old one may still apply, so log messages that arrive then are not judged.
    settled = [asked for asked in before if asked.answers and connection.position(asked.answers[0]) < place]
    least = before[-1].params.get("level") if before else None
    clear = is_ordered(connection) and len(settled) == len(before) and least in LEVELS
    # A level that was refused was not set, and which level applies then is up to the server.
    if not clear or before[-1].result is None or not all(is_proper(connection, asked) for asked in before):
        return UNDECIDED
    return None if LEVELS.index(level) >= LEVELS.index(least) else f"the log level is {level}, but {least} was set"


@stated_rule(moves=("call-with-logging", "call-tool", "calls-at-once"))
def log_only_on_request(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event, _, level in _logged([connection]):
            place = connection.position(event)
            # Over HTTP the stream shows which request a log message belongs to; on other transports the message may
            # belong to any open request.
            running = [
                asked
                for asked in connection.requests
                if connection.position(asked.event) < place
                and (is_ordered(connection) or asked.event.exchange == event.exchange)
                and not (asked.answers and connection.position(asked.answers[0]) < place)
            ]
            # A server of both eras may treat some of these as requests of the legacy era, in which the server decides
            # what to log.
            if any(asked.meta.get(meta.PROTOCOL_VERSION) not in MODERN for asked in running):
                continue
            levels = [asked.meta.get(meta.LOG_LEVEL) for asked in running]
            allowed = [least for least in levels if least in LEVELS]
            if any(least is not None and least not in LEVELS for least in levels):
                continue  # the specification does not say what an unknown level means
            # One open request that asked for the level is enough: on a shared connection a log message doesn't say
            # which request it belongs to.
            kept = any(LEVELS.index(level) >= LEVELS.index(least) for least in allowed)
            asked_for = f"only {', '.join(allowed)} was asked for" if allowed else "no open request asked for logs"
            yield judged(kept, event, f"the log level is {level}, but {asked_for}")
        if not any(_logged([connection])):
            yield from (held(asked.answers[0]) for asked in connection.requests if asked.answers)


@stated_rule(moves=("call-with-logging", "listen"))
@each(_logged)
def log_on_own_stream(event: Event, connection: Connection, _level: str) -> Opinion:
    if subscription_of(event.message) is not None:
        return "a log message carries the id of a subscription"
    if event.exchange is None:
        return None
    of = [asked for asked in connection.requests if asked.event.exchange == event.exchange]
    kept = not of or any(meta.LOG_LEVEL in asked.meta for asked in of)
    return None if kept else "a log message came on the stream of a request that asked for none"


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
            kept = code_of(asked) == error_codes.INVALID_PARAMS
            problem = f"the unknown log level {level!r:.60} was answered with {code_or_result(asked)}, not -32602"
            yield judged(kept, asked.answers[0], problem)


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
        values = object_of((asked.result or {}).get("completion")).get("values")
        if isinstance(values, list):
            yield judged(len(values) <= 100, asked.answers[0], f"the completion has {len(values)} values, over 100")


@stated_rule(
    sentence="Answer -32602 for completion of an unknown prompt, and -32601 if completion isn't offered.",
    moves=("complete-unknown",),
)
@each(about("completion/complete"))
def completion_errors(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    code, shown = code_of(asked), code_or_result(asked)
    if not declares(connection.server_capabilities, "completions"):
        problem = f"the server does not offer completion, but responded with {shown}, not -32601"
        return None if code == error_codes.METHOD_NOT_FOUND else problem
    ref = object_of(asked.params.get("ref"))
    name = ref.get("name") if ref.get("type") == "ref/prompt" else None
    if name is None or not is_unknown(connection, "prompts/list", name):
        return UNDECIDED
    problem = f"completion of an unknown prompt was answered with {shown}, not -32602"
    return None if code == error_codes.INVALID_PARAMS else problem


# --- pages ------------------------------------------------------------------------------------------------------------


def _made_up_cursors(history: History) -> Iterator[tuple[Event, RecordedRequest]]:
    """Yield each request for a list with a cursor that the kit made up, preceded by its response."""
    given = {(asked.method, repr((asked.result or {}).get("nextCursor"))) for _, asked in history.requests(*LISTS)}
    for answer, _, asked in about(*LISTS)(history):
        cursor = asked.params.get("cursor")
        # A server may build its cursors from what a client sent, so it may have issued a cursor that starts like the
        # kit's; such a cursor is left out.
        if str(cursor).startswith(NO_CURSOR) and (asked.method, repr(cursor)) not in given:
            yield answer, asked


@stated_rule(moves=("garbage-cursor",))
@each(_made_up_cursors)
def bad_cursor_refused(_: Event, asked: RecordedRequest) -> Opinion:
    code = code_of(asked)
    # A server that lacks the method refuses the request for that reason, whatever the cursor.
    if code == error_codes.METHOD_NOT_FOUND:
        return UNDECIDED
    problem = f"the unknown cursor {asked.params['cursor']!r:.60} was answered with {code_or_result(asked)}, not -32602"
    return None if code == error_codes.INVALID_PARAMS else problem


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
                    # Names are compared only between pages: a name that comes twice on one page has nothing to do with
                    # cursors.
                    names = set(named([page], field, key))
                    if page is not chain[0]:
                        twice = sorted(seen & names)
                        yield judged(not twice, page.answers[0], f"{', '.join(twice[:3])} also came on an earlier page")
                    seen |= names


def _was_disturbed(connection: Connection, chain: list[RecordedRequest]) -> bool:
    """Return whether a call that may have changed a list ran while the pages of the list were read."""
    first, last = connection.position(chain[0].event), connection.position(chain[-1].answers[0])
    return any(
        asked.method in ("tools/call", "prompts/get", "resources/read")
        and connection.position(asked.event) < last
        and not (asked.answers and connection.position(asked.answers[0]) < first)
        for asked in connection.requests
    )
