"""Rules for messages of all kinds: JSON-RPC, ids, error codes, and the schema of each revision."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from trio_mcp.conformance.members import items_of, member_of
from trio_mcp.conformance.rules.common import (
    LARGEST,
    LEGACY,
    MODERN,
    SAFE_INTEGER,
    code_of,
    ended_without_cause,
    is_ordered,
    is_plain,
    is_proper,
    lost,
    messages_of,
    supported,
)
from trio_mcp.conformance.rules.history import (
    Connection,
    History,
    RecordedRequest,
    is_notification,
    is_request,
    is_response,
)
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, about, answered, each
from trio_mcp.conformance.rules.shape import flaw, json_type
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import InputRequiredResult, Result, error_codes, meta
from trio_mcp.types.methods import facts_of, method_spec
from trio_mcp.types.versions import at_least

__all__: list[str] = []

CALLS: Final = ("call-tool", "list-all", "read-resource", "get-prompt")
MALFORMED: Final = ("malformed-text", "malformed-message")


# --- the envelope -----------------------------------------------------------------------------------------------------


def _said(history: History) -> Iterator[tuple[Event, Connection]]:
    """Yield each message from the server, with its connection; the messages of a batch are yielded one by one."""
    return ((event, connection) for connection in history for event in messages_of(connection, "server"))


def _responses(connection: Connection) -> Iterator[Event]:
    return (event for event in messages_of(connection, "server") if is_response(event.message))


@stated_rule(moves=(*CALLS, "unknown-method"))
def json_rpc_envelope(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event in connection.messages("server"):
            if not isinstance(event.message, list):
                yield Verdict(event, _envelope_problem(event.message))
            # JSON-RPC has batches. Revision 2024-11-05 does not forbid them; 2025-06-18 removed them.
            elif at_least(connection.revision, "2025-06-18"):
                yield broken(event, f"the message is a batch, but revision {connection.revision} has none")
            else:
                yield from (Verdict(event, _envelope_problem(part)) for part in event.message)


def _envelope_problem(message: Any) -> str | None:
    if not isinstance(message, dict):
        return f"a message must be an object, not {json_type(message)}"
    if message.get("jsonrpc") != "2.0":
        return f"jsonrpc must be '2.0', not {message.get('jsonrpc')!r:.60}"
    if "method" not in message:
        return None if is_response(message) else "the message has no method, no result and no error"
    if not isinstance(message["method"], str):
        return f"method must be a string, not {json_type(message['method'])}"
    if not isinstance(message.get("params", {}), dict):
        return f"params must be an object, not {json_type(message['params'])}"
    return (
        "the message has both a method and a result or an error" if "result" in message or "error" in message else None
    )


@stated_rule(sentence="Put a result or an error into each response, not both.", moves=CALLS)
@each(_said)
def result_xor_error(event: Event, _: Connection) -> Opinion:
    if not is_response(event.message):
        return UNDECIDED
    return "the response has both a result and an error" if {"result", "error"} <= event.message.keys() else None


@stated_rule(
    sentence="Give each error a code, which is an integer, and a message.",
    moves=("unknown-method", "call-unknown-tool", "garbage-cursor", *MALFORMED),
)
@each(_said)
def error_object(event: Event, _: Connection) -> Opinion:
    if not is_response(event.message) or "error" not in event.message:
        return UNDECIDED
    error = event.message["error"]
    if not isinstance(error, dict):
        return f"error must be an object, not {json_type(error)}"
    code = error.get("code")
    if type(code) is not int and not (isinstance(code, float) and code.is_integer()):  # 1.0 is an integer in JSON
        return f"error.code must be an integer, not {code!r:.60}"
    if not isinstance(error.get("message"), str):
        return "error.message must be a string" if "message" in error else "error.message is missing"
    return None


@stated_rule(moves=("call-with-progress", "listen"))
@each(_said)
def notification_without_id(event: Event, _: Connection) -> Opinion:
    method = member_of(event.message, "method")
    if not isinstance(method, str) or not method.startswith("notifications/"):
        return UNDECIDED
    return f"{method} has an id" if "id" in event.message else None


@stated_rule(revisions=LEGACY, moves=CALLS)
@each(_said)
def request_id_type(event: Event, _: Connection) -> Opinion:
    message = event.message
    method = member_of(message, "method")
    if not isinstance(method, str) or "id" not in message or method.startswith("notifications/"):
        return UNDECIDED
    return (
        None
        if is_request(message)
        else f"the id of {method} must be a string or an integer, not {json_type(message['id'])}"
    )


@stated_rule(moves=CALLS)
def request_id_fresh(history: History) -> Iterator[Verdict]:
    for connection in history:
        used: set[tuple[type, Any]] = set()
        # An id must be new over HTTP as well, because all streams of a session share one set of ids.
        for event in _first_sent(asked.event for asked in connection.questions):
            request_id = event.message["id"]
            key = type(request_id), request_id
            yield judged(key not in used, event, f"the id {request_id!r} was used for another request before")
            used.add(key)


def _first_sent(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events without replays: a resumed stream may repeat events that the client has already received."""
    seen: set[str | None] = set()
    for event in events:
        event_id = event.facts.get("event_id")
        if event_id is None or event_id not in seen:
            yield event
            seen.add(event_id)


@stated_rule(
    sentence="Send no requests; ask the client in the result of its own request.",
    moves=(*CALLS, "call-with-capabilities"),
)
@each(_said)
def sends_no_requests(event: Event, _: Connection) -> Opinion:
    if is_request(event.message):
        return f"a server must not send requests in this revision, but it sent {event.message['method']}"
    return None if is_response(event.message) else UNDECIDED


# --- requests and their responses -------------------------------------------------------------------------------------


@stated_rule(
    section="basic#responses",
    sentence="Answer each request.",
    moves=(*CALLS, "unknown-method", "ping", "cancel-one-of-many", "unusual-request", *MALFORMED),
)
def request_answered(history: History) -> Iterator[Verdict]:
    for connection, asked in history.requests():
        if facts_of(asked.method).lasting or not is_plain(connection, asked.event):
            continue
        # If two requests have the same id, the server may refuse one of them without saying which.
        if connection.uses(asked.id) != 1 or asked.cancelled is not None:
            continue
        exchange = connection.exchanges.get(asked.event.exchange or 0)
        if asked.answers:
            yield held(asked.answers[0])
        # If an HTTP status refuses the request, a body is optional, so the server has responded.
        elif exchange is not None and (exchange.status or 0) >= 400:
            continue
        elif (mark := lost(asked)) is not None:
            yield broken(mark, f"{asked.method} (id {asked.id!r}) was not answered")
        elif ended_without_cause(connection):
            end = connection.close or asked.event
            yield broken(end, f"the server ended without answering {asked.method} (id {asked.id!r})")


@stated_rule(
    section="basic#responses", sentence="Answer each request only once.", moves=(*CALLS, "cancel-open", "ping")
)
def answered_once(history: History) -> Iterator[Verdict]:
    for connection in history:
        seen: Counter[Any] = Counter()
        # An error without an id may be about any message that could not be read, so it is never a second response.
        for event in _first_sent(one for one in _responses(connection) if one.message.get("id") is not None):
            request_id = event.message["id"]
            # The key contains the id as text, because the id of a stray response may be a list or an object, which
            # can't be hashed.
            key = type(request_id), repr(request_id)
            seen[key] += 1
            if uses := connection.uses(request_id):
                often = "once" if uses == 1 else f"{uses} times"
                kept = seen[key] <= uses
                yield judged(
                    kept, event, f"the request id {request_id!r} was used {often}, but answered {seen[key]} times"
                )


@stated_rule(
    section="basic#responses",
    sentence="Give each response the id of its request, unless it could not be read.",
    moves=(*CALLS, "unknown-method", "another-connection", "batch", *MALFORMED),
)
def response_matches_request(history: History) -> Iterator[Verdict]:
    for connection in history:
        # If the client sent raw text, a server whose parser is more lenient than the kit's may have read the text as a
        # request with an id.
        texts = [event.text for event in connection.events if event.sender == "client" and event.text is not None]
        unsafe = not all(_is_safe(event.message) for event in messages_of(connection, "client"))
        for event in _responses(connection):
            request_id = event.message.get("id")
            if isinstance(request_id, float) and request_id.is_integer():
                request_id = int(request_id)  # in JSON, 1.0 and 1 are the same number
            if request_id is None:
                # In JSON-RPC null is an id; only MCP forbids it.
                if "error" not in event.message and not connection.uses(None):
                    yield broken(event, "the result has no id")
            elif connection.uses(request_id):
                asked = _first(connection, request_id)
                early = asked is not None and connection.position(asked.event) > connection.position(event)
                yield judged(not early, event, f"the response with id {request_id!r} came before its request")
            elif not _may_be_meant(request_id, texts, unsafe=unsafe):
                # The problem names the other connection, since a response that went to the wrong client is far graver
                # than one with a wrong id.
                elsewhere = [other.number for other in history if other is not connection and other.uses(request_id)]
                more = f"; a request on connection {elsewhere[0]} had this id" if elsewhere else ""
                yield broken(event, f"no request had the id {request_id!r}{more}")


def _may_be_meant(request_id: Any, texts: Sequence[bytes], *, unsafe: bool) -> bool:
    """Return whether an id may come from a request that the server may have read differently than the kit does."""
    # A number too large for a double may come back as a different number.
    if unsafe and not isinstance(request_id, str):
        return True
    forms = {json.dumps(request_id, ensure_ascii=ascii).encode("utf-8", "replace") for ascii in (True, False)}
    # If a text contains a backslash, the question stays open, because any character of the id may be written as an
    # escape sequence.
    return any(b"\\" in text or any(form in text for form in forms) for text in texts)


def _first(connection: Connection, request_id: Any) -> RecordedRequest | None:
    return next((a for a in connection.requests if type(a.id) is type(request_id) and a.id == request_id), None)


def _is_safe(message: Any) -> bool:
    request_id = member_of(message, "id")
    return (
        isinstance(request_id, str)
        or request_id is None
        or (type(request_id) is int and abs(request_id) <= SAFE_INTEGER)
    )


@stated_rule(moves=("unknown-notification", "cancel-finished", "cancel-unknown", "stray-response"))
def notification_unanswered(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not _is_clear(connection):
            continue
        unnamed = [event for event in _responses(connection) if event.message.get("id") is None]
        for event in unnamed:
            yield broken(event, "only requests with ids and notifications were sent, but the response has no id")
        for event in messages_of(connection, "client"):
            if is_notification(event.message) and not unnamed:
                yield held(event)


def _is_clear(connection: Connection) -> bool:
    """Return whether an error without an id on this connection could only be about a notification."""
    return (
        is_ordered(connection)
        and not any(event.kind == "text" and event.sender == "client" for event in connection.events)
        and all(
            is_plain(connection, event) or (event.text is None and is_response(event.message))
            for event in messages_of(connection, "client")
        )
        and not (connection.revision != "2025-03-26" and any(isinstance(e.message, list) for e in connection.events))
    )


@rule(
    "MUST",
    "server",
    "basic",
    "Accept batches, and answer each request in them.",
    revisions=("2025-03-26",),
    moves=("batch",),
)
def batch_supported(history: History) -> Iterator[Verdict]:
    for connection, asked in history.requests():
        # Requests in a batch have no place of their own in the transcript's order; all other requests do.
        if history.order(asked.event) < 0 and is_proper(connection, asked) and asked.cancelled is None:
            if asked.answers:
                yield held(asked.answers[0])
            elif (mark := lost(asked)) is not None:
                yield broken(mark, f"{asked.method} in the batch was not answered")


# --- refusals ---------------------------------------------------------------------------------------------------------

NO_SUCH = "no-such/"
"""The prefix of the method names that the kit makes up."""

_OF_CLIENTS: Final = ("sampling/createMessage", "roots/list", "elicitation/create")


def _unknown(history: History) -> Iterator[tuple[Event, RecordedRequest]]:
    for answer, _, asked in about()(history):
        if asked.method.startswith(NO_SUCH) or asked.method in _OF_CLIENTS:
            yield answer, asked


@rule(
    "MUST",
    "server",
    "basic#error-codes",
    "Answer a method that does not exist with an error.",
    older="basic#messages",
    moves=("unknown-method", "method-of-clients"),
)
@each(_unknown)
def unknown_method_refused(answer: Event, asked: RecordedRequest) -> Opinion:
    kept = "error" in answer.message
    return None if kept else f"the method {asked.method} does not exist, but the server sent a result"


@rule(
    "SHOULD",
    "server",
    "basic#error-codes",
    "Answer -32601 for a method that does not exist.",
    older="basic#messages",
    moves=("unknown-method", "method-of-clients"),
)
@each(_unknown)
def unknown_method_code(_: Event, asked: RecordedRequest) -> Opinion:
    if (code := code_of(asked)) is None:
        return UNDECIDED
    return None if code == error_codes.METHOD_NOT_FOUND else f"the error code for {asked.method} is {code}, not -32601"


@stated_rule(
    level="SHOULD",
    section="basic#error-codes",
    older="basic#messages",
    sentence="Answer what is not JSON with -32700, and what is not a valid request with -32600.",
    moves=MALFORMED,
)
def malformed_code(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not is_ordered(connection):  # over HTTP an error may lack an id for other reasons
            continue
        named = {repr(response.message.get("id")) for response in _responses(connection)}
        since_last: list[Event] = []
        for event in connection.events:
            if event.sender == "client":
                since_last.append(event)
            elif event.kind != "message" or not is_response(event.message):
                continue
            elif (request_id := event.message.get("id")) is not None:
                # The server has dealt with every message that came before the request that this response belongs to.
                ids = [member_of(each.message, "id") for each in since_last]
                since_last = since_last[ids.index(request_id) :] if request_id in ids else since_last
            else:
                allowed = _allowed(connection, since_last, named)
                since_last = []
                error = event.message.get("error")
                if allowed and isinstance(error, dict):
                    code = error.get("code")
                    wanted = " or ".join(map(str, sorted(allowed)))
                    yield judged(code in allowed, event, f"the error code is {code!r:.60}, not {wanted}")


def _allowed(connection: Connection, events: list[Event], named: set[str]) -> set[int]:
    """Return the codes that an error without an id may have after these events; empty if any code may be right."""
    allowed: set[int] = set()
    for event in events:
        message = event.message
        if event.kind == "text":
            if event.text is None or len(event.text) > LARGEST:
                return set()
            # Parsers differ in what they accept as JSON (in deep nesting, lone surrogates and NaN, for example), so
            # "parse error" and "invalid request" may both be right.
            allowed |= {error_codes.PARSE_ERROR, error_codes.INVALID_REQUEST}
        elif event.kind != "message":
            continue
        elif isinstance(message, list) or is_notification(message):
            return set()
        elif not is_plain(connection, event) and not (isinstance(message, dict) and repr(message.get("id")) in named):
            allowed |= {error_codes.INVALID_REQUEST, error_codes.INVALID_PARAMS}
            if event.text is not None:
                allowed.add(error_codes.PARSE_ERROR)
    return allowed


def _errors(history: History) -> Iterator[tuple[Event, Connection, int]]:
    """Yield the server's errors, except those for requests that a server of both eras may treat as legacy ones."""
    for connection in history:
        legacy = {
            id(answer)
            for asked in connection.requests
            if asked.meta.get(meta.PROTOCOL_VERSION) not in MODERN
            for answer in asked.answers
        }
        for event in messages_of(connection, "server"):
            code = member_of(event.message, "error", "code")
            if type(code) is int and is_response(event.message) and id(event) not in legacy:
                yield event, connection, code


ERRORS: Final = (
    "unknown-method",
    "call-unknown-tool",
    "garbage-cursor",
    "read-unknown-resource",
    "unsupported-version",
)


@stated_rule(
    sentence="Don't send the codes of earlier revisions, -32002 and -32042.", moves=(*ERRORS, "call-with-capabilities")
)
@each(_errors)
def error_codes_retired(_: Event, _connection: Connection, code: int) -> Opinion:
    retired = (error_codes.RESOURCE_NOT_FOUND_LEGACY, error_codes.URL_ELICITATION_REQUIRED)
    return f"the code {code} belongs to earlier revisions" if code in retired else None


@stated_rule(
    sentence="Send only those codes from -32020 to -32099 that the specification defines, for what they mean.",
    moves=ERRORS,
)
def error_codes_reserved(history: History) -> Iterator[Verdict]:
    spoken = supported(history)
    for event, connection, code in _errors(history):
        if not -32099 <= code <= -32020 or code == error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY:
            yield held(event)
        elif code == error_codes.HEADER_MISMATCH:
            yield judged(not is_ordered(connection), event, f"{code} is about HTTP headers, but no HTTP is used")
        elif code == error_codes.UNSUPPORTED_PROTOCOL_VERSION:
            asked = next((asked for asked in connection.requests if event in asked.answers), None)
            version = asked.meta.get(meta.PROTOCOL_VERSION) if asked is not None else None
            if asked is not None and version is not None and spoken and is_plain(connection, asked.event):
                problem = f"the server supports {version}, but refused this version with {code}"
                yield judged(version not in spoken, event, problem)
        # `error_codes_retired` judges -32042.
        elif code != error_codes.URL_ELICITATION_REQUIRED:
            yield broken(event, f"the code {code} is reserved, but the specification does not define it")


@stated_rule(moves=ERRORS)
@each(_errors)
def error_codes_legacy_range(_: Event, _connection: Connection, code: int) -> Opinion:
    if code == error_codes.RESOURCE_NOT_FOUND_LEGACY:
        return UNDECIDED
    return f"the code {code} is in the legacy range" if -32019 <= code <= -32000 else None


@stated_rule(moves=ERRORS)
@each(_errors)
def error_codes_reserved_json_rpc(_: Event, _connection: Connection, code: int) -> Opinion:
    # JSON-RPC leaves the range from -32099 to -32000 to implementations (section 5.1); other rules of this module judge
    # what MCP says about that range.
    standard = code == error_codes.PARSE_ERROR or -32603 <= code <= -32600 or -32099 <= code <= -32000
    return None if standard or not -32768 <= code <= -32000 else f"the code {code} is reserved by JSON-RPC"


# --- the schema -------------------------------------------------------------------------------------------------------


@stated_rule(
    section="schema",
    sentence="Give each result the form that the schema gives it.",
    moves=(*CALLS, "complete", "ping", "discover", "subscribe", "set-level", "next-page"),
)
@each(answered())
def result_valid(answer: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    # A server of both eras may treat a request that does not declare the modern era as a legacy one.
    unclear = connection.modern and asked.meta.get(meta.PROTOCOL_VERSION) not in MODERN
    if unclear or "result" not in answer.message:
        return UNDECIDED
    result = answer.message["result"]
    revision = connection.revision
    spec = method_spec(revision, asked.method)
    if not isinstance(result, dict) or spec is None or not spec.results:
        return flaw(Result, result, revision, "result")
    if at_least(revision, "2026-07-28"):
        kind = result.get("resultType", "complete")
        if kind == "input_required":
            return flaw(InputRequiredResult, result, revision, "result")
        if kind != "complete":
            return None  # this result type comes from an extension
    # The result describes a task only where the client asked for one: an ordinary result may have a member `task`,
    # because the schema allows additional members.
    tasks = [model for model in spec.results if model.__name__ == "CreateTaskResult"]
    model = tasks[0] if tasks and "task" in result and "task" in asked.params else spec.results[0]
    return flaw(model, result, revision, "result")


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    section="schema",
    older="",
    sentence="Give each notification the form that the schema gives it.",
    moves=("call-with-progress", "call-with-logging", "listen", "subscribe"),
)
@each(_said)
def notification_valid(event: Event, connection: Connection) -> Opinion:
    return _message_problem(connection, event.message) if is_notification(event.message) else UNDECIDED


@stated_rule(
    section="schema",
    sentence="Give each request to the client the form that the schema gives it.",
    moves=("call-tool", "call-with-capabilities"),
)
@each(_said)
def request_valid(event: Event, connection: Connection) -> Opinion:
    return _message_problem(connection, event.message) if is_request(event.message) else UNDECIDED


def _message_problem(connection: Connection, message: dict[str, Any]) -> Opinion:
    spec = method_spec(connection.revision, message["method"])
    if spec is None or not isinstance(message.get("params", {}), dict):
        # The message is not judged here: the method is an extension's, or the params are not an object, which
        # `json_rpc_envelope` reports.
        return UNDECIDED
    if "params" not in message:
        return f"{message['method']} lacks its params" if spec.params_required else None
    problems = [flaw(model, message["params"], connection.revision, "params") for model in spec.params_models]
    if message["params"].get("mode") == "url":  # of the two models of elicitation/create, the second is for URLs
        problems = problems[-1:]
    return None if None in problems else f"{message['method']}: {problems[0]}"


def _results(history: History) -> Iterator[tuple[Event, Connection, dict[str, Any]]]:
    """Yield the results of requests that declare the modern era; in that era, each request must declare it."""
    for connection, asked in history.requests():
        if asked.meta.get(meta.PROTOCOL_VERSION) in MODERN:
            for event in asked.answers:
                if isinstance(result := event.message.get("result"), dict):
                    yield event, connection, result


@stated_rule(section="basic#resulttype", moves=(*CALLS, "complete", "discover"))
@each(_results)
def result_type_present(_: Event, _connection: Connection, result: dict[str, Any]) -> Opinion:
    kind = result.get("resultType")
    shown = "missing" if "resultType" not in result else json_type(kind)
    return None if isinstance(kind, str) else f"resultType must be a string, but is {shown}"


@stated_rule(moves=(*CALLS, "complete", "discover"))
@each(_results)
def result_type_known(_: Event, connection: Connection, result: dict[str, Any]) -> Opinion:
    kind = result.get("resultType")
    if not isinstance(kind, str):
        return UNDECIDED
    # The kit doesn't know the result types that extensions add, so every type passes if the server declared an
    # extension.
    kept = kind in ("complete", "input_required") or connection.server_capabilities.get("extensions")
    return None if kept else f"the resultType {kind!r:.60} is unknown, and no extension was declared"


@stated_rule(moves=("call-tool", "call-with-capabilities", "list-all"))
@each(about())
def extension_fallback(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    kind = member_of(asked.result, "resultType")
    declared = asked.meta.get(meta.CLIENT_CAPABILITIES)
    if not isinstance(kind, str) or not isinstance(declared, dict) or declared.get("extensions"):
        return UNDECIDED
    kept = kind in ("complete", "input_required")
    return None if kept else f"the client declared no extension, but the resultType is {kind!r:.60}"


# --- `_meta` ----------------------------------------------------------------------------------------------------------

_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates", "content", "contents", "messages")


def _metas(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield each ``_meta`` that the schema defines in the server's messages, but none from a tool's own data."""
    for event, _ in _said(history):
        body = event.message.get("params", event.message.get("result")) if isinstance(event.message, dict) else None
        # Only these members are searched: `structuredContent` and a tool's arguments are the tool's own data, in which
        # `_meta` has no meaning.
        items = [item for key in _LISTS for item in items_of(body, key)]
        for holder in [body, *items, *(member_of(item, "content") for item in items)]:
            if isinstance(found := member_of(holder, "_meta"), dict):
                yield event, found


@stated_rule(
    older="basic#_meta",
    sentence="Build the keys of `_meta` from a name and perhaps a prefix, as the rules for both say.",
    moves=CALLS,
)
@each(_metas)
def meta_keys_well_formed(_: Event, found: dict[str, Any]) -> Opinion:
    wrong = next((key for key in found if not meta.is_valid_key(key)), None)
    return None if wrong is None else f"the _meta key {wrong!r:.80} is malformed"


# A `traceparent` of W3C Trace Context: the four fields of version 00, which later versions keep, and whatever later
# versions append.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


@stated_rule(moves=("call-tool", "call-with-progress"))
def trace_context_format(history: History) -> Iterator[Verdict]:
    for event, found in _metas(history):
        if meta.TRACEPARENT in found:
            parent = found[meta.TRACEPARENT]
            kept = isinstance(parent, str) and _TRACEPARENT.fullmatch(parent) is not None
            yield judged(kept, event, f"the traceparent {parent!r:.80} is malformed")
        for key in (meta.TRACESTATE, meta.BAGGAGE):
            if key in found:
                yield judged(isinstance(found[key], str), event, f"{key} must be a string")


@stated_rule(moves=(*CALLS, "discover"))
@each(_results)
def server_info_sent(_: Event, _connection: Connection, result: dict[str, Any]) -> Opinion:
    info = member_of(result, "_meta", meta.SERVER_INFO)
    kept = isinstance(member_of(info, "name"), str) and isinstance(member_of(info, "version"), str)
    return None if kept else f"_meta lacks {meta.SERVER_INFO} with a name and a version"
