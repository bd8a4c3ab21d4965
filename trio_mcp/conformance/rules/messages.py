"""Rules for messages as such: JSON-RPC, ids, error codes, and the schema of each revision."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from trio_mcp.conformance.rules.common import (
    LARGEST,
    LEGACY,
    MODERN,
    answer_of,
    asked_about,
    code_of,
    ended_without_cause,
    is_ordered,
    is_plain,
    is_proper,
    lost,
    messages_of,
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


def _said(history: History) -> Iterator[tuple[Connection, Event]]:
    for connection in history:
        for event in messages_of(connection, "server"):
            yield connection, event


@stated_rule(moves=(*CALLS, "unknown-method"))
def json_rpc_envelope(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event in connection.messages("server"):
            parts: Iterable[Event] = (event,)
            if isinstance(event.message, list):
                # Revisions before 2025-03-26 say nothing against batches, which JSON-RPC has; 2025-06-18 removed them.
                if at_least(connection.revision, "2025-06-18"):
                    yield broken(event, f"revision {connection.revision} has no batches")
                    continue
                parts = connection.parts(event)
            for part in parts:
                yield Verdict(event, _envelope_problem(part.message))


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
    return "a message has a method or a result, not both" if "result" in message or "error" in message else None


@stated_rule(sentence="Put a result or an error into each response, not both.", moves=CALLS)
def result_xor_error(history: History) -> Iterator[Verdict]:
    for _, event in _said(history):
        if is_response(event.message):
            both = "result" in event.message and "error" in event.message
            yield judged(not both, event, "the response has both a result and an error")


@stated_rule(
    sentence="Give each error a code, which is an integer, and a message.",
    moves=("unknown-method", "call-unknown-tool", "garbage-cursor", *MALFORMED),
)
def error_object(history: History) -> Iterator[Verdict]:
    for _, event in _said(history):
        if is_response(event.message) and "error" in event.message:
            yield Verdict(event, _error_problem(event.message["error"]))


def _error_problem(error: Any) -> str | None:
    if not isinstance(error, dict):
        return f"error must be an object, not {json_type(error)}"
    code = error.get("code")
    if type(code) is not int and not (isinstance(code, float) and code.is_integer()):  # 1.0 is an integer in JSON
        return f"error.code must be an integer, not {error.get('code')!r:.60}"
    if not isinstance(error.get("message"), str):
        return "error.message must be a string" if "message" in error else "error.message is missing"
    return None


@stated_rule(moves=("call-with-progress", "listen"))
def notification_without_id(history: History) -> Iterator[Verdict]:
    for _, event in _said(history):
        method = event.message.get("method") if isinstance(event.message, dict) else None
        if isinstance(method, str) and method.startswith("notifications/"):
            yield judged("id" not in event.message, event, f"{method} has an id")


@stated_rule(revisions=LEGACY, moves=CALLS)
def request_id_type(history: History) -> Iterator[Verdict]:
    for _, event in _said(history):
        message = event.message
        method = message.get("method") if isinstance(message, dict) and "id" in message else None
        if isinstance(method, str) and not method.startswith("notifications/"):
            yield judged(is_request(message), event, f"the id of {method} is {json_type(message['id'])}")


@stated_rule(moves=CALLS)
def request_id_fresh(history: History) -> Iterator[Verdict]:
    for connection in history:
        used: set[tuple[type, Any]] = set()
        replayed: set[str] = set()
        # Also over HTTP, where the ids of all streams of a session are one space.
        for asked in connection.questions:
            if (event_id := asked.event.facts.get("event_id")) is not None:
                if event_id in replayed:  # a stream that was resumed may repeat what the client has seen
                    continue
                replayed.add(event_id)
            key = type(asked.id), asked.id
            yield judged(key not in used, asked.event, f"the id {asked.id!r} was used for another request before")
            used.add(key)


@stated_rule(
    sentence="Send no requests; ask the client in the result of its own request.",
    moves=(*CALLS, "call-with-capabilities"),
)
def sends_no_requests(history: History) -> Iterator[Verdict]:
    for _, event in _said(history):
        if is_request(event.message):
            yield broken(event, f"a server sends no requests in this revision, but sent {event.message['method']}")
        elif is_response(event.message):
            yield held(event)


# --- requests and their responses -------------------------------------------------------------------------------------


@stated_rule(
    section="basic#responses",
    sentence="Answer each request.",
    moves=(*CALLS, "unknown-method", "ping", "cancel-one-of-many", "unusual-request", *MALFORMED),
)
def request_answered(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            if facts_of(asked.method).lasting or not is_plain(connection, asked.event):
                continue
            # A peer may refuse an id that is used twice, without a word about which of the two it means.
            if connection.uses(asked.id) != 1 or asked.cancelled is not None:
                continue
            if asked.answers:
                yield held(asked.answers[0])
            elif _refused_by_http(connection, asked):
                continue
            elif (mark := lost(asked)) is not None:
                yield broken(mark, f"{asked.method} (id {asked.id!r}) was not answered")
            elif ended_without_cause(connection):
                end = connection.close or asked.event
                yield broken(end, f"the server ended without answering {asked.method} (id {asked.id!r})")


def _refused_by_http(connection: Connection, asked: RecordedRequest) -> bool:
    """Return whether a status refused a request: then a body is optional."""
    exchange = connection.exchanges.get(asked.event.exchange or 0)
    return exchange is not None and (exchange.status or 0) >= 400


@stated_rule(
    section="basic#responses", sentence="Answer each request only once.", moves=(*CALLS, "cancel-open", "ping")
)
def answered_once(history: History) -> Iterator[Verdict]:
    for connection in history:
        seen: dict[tuple[type, Any], int] = {}
        replayed: set[str] = set()
        for event in messages_of(connection, "server"):
            # An error without an id may be about anything that could not be read, so it answers no request twice.
            if not is_response(event.message) or event.message.get("id") is None:
                continue
            if (event_id := event.facts.get("event_id")) is not None:
                if event_id in replayed:  # a stream that was resumed may repeat what the client has seen
                    continue
                replayed.add(event_id)
            request_id = event.message["id"]
            # The text, because the id of a stray response may be a list or an object, which can't be hashed.
            key = type(request_id), repr(request_id)
            seen[key] = seen.get(key, 0) + 1
            uses = connection.uses(request_id)
            if uses:
                often = "once" if uses == 1 else f"{uses} times"
                kept = seen[key] <= uses
                yield judged(kept, event, f"the id {request_id!r} was asked {often}, and answered {seen[key]} times")


@stated_rule(
    section="basic#responses",
    sentence="Give each response the id of its request, unless it could not be read.",
    moves=(*CALLS, "unknown-method", "another-connection", "batch", *MALFORMED),
)
def response_matches_request(history: History) -> Iterator[Verdict]:
    for connection in history:
        # A raw text may have been read as a request with an id, by a parser that is more lenient than the
        # kit's.
        texts = [event.text for event in connection.events if event.sender == "client" and event.text is not None]
        unsafe = not all(_is_safe(event.message) for event in messages_of(connection, "client"))
        for event in messages_of(connection, "server"):
            message = event.message
            if not is_response(message):
                continue
            request_id = message.get("id")
            if isinstance(request_id, float) and request_id.is_integer():
                request_id = int(request_id)  # the same number in JSON
            if request_id is None:
                # To JSON-RPC null is an id; only MCP forbids it.
                if "error" not in message and not connection.uses(None):
                    yield broken(event, "the result has no id")
            elif connection.uses(request_id):
                asked = _first(connection, request_id)
                early = asked is not None and connection.position(asked.event) > connection.position(event)
                yield judged(not early, event, f"the response with id {request_id!r} came before its request")
            elif not _may_be_meant(request_id, texts, unsafe=unsafe):
                # Said in the report, since a response that went to the wrong client is far graver than one with a wrong
                # id.
                elsewhere = [other.number for other in history if other is not connection and other.uses(request_id)]
                more = f"; it was asked on connection {elsewhere[0]}" if elsewhere else ""
                yield broken(event, f"no request had the id {request_id!r}{more}")


def _may_be_meant(request_id: Any, texts: Sequence[bytes], *, unsafe: bool) -> bool:
    """Return whether an id may be that of a request which programs read differently."""
    # A number too large for a double may come back as another one.
    if unsafe and not isinstance(request_id, str):
        return True
    forms = {json.dumps(request_id, ensure_ascii=ascii).encode("utf-8", "replace") for ascii in (True, False)}
    # A backslash anywhere makes it open, as every character of the id may be written as an escape.
    return any(b"\\" in text or any(form in text for form in forms) for text in texts)


def _first(connection: Connection, request_id: Any) -> RecordedRequest | None:
    return next((a for a in connection.requests if type(a.id) is type(request_id) and a.id == request_id), None)


def _is_safe(message: Any) -> bool:
    request_id = message.get("id") if isinstance(message, dict) else None
    return isinstance(request_id, str) or request_id is None or (type(request_id) is int and abs(request_id) < 2**53)


@stated_rule(moves=("unknown-notification", "cancel-finished", "cancel-unknown", "stray-response"))
def notification_unanswered(history: History) -> Iterator[Verdict]:
    for connection in history:
        # Only if nothing else was sent that could be meant by an error without an id.
        if not is_ordered(connection) or any(e.kind == "text" and e.sender == "client" for e in connection.events):
            continue
        if not all(_is_clear(connection, event) for event in messages_of(connection, "client")):
            continue
        if connection.revision != "2025-03-26" and any(isinstance(e.message, list) for e in connection.events):
            continue
        unnamed = [
            e for e in messages_of(connection, "server") if is_response(e.message) and e.message.get("id") is None
        ]
        for event in unnamed:
            yield broken(event, "only requests with ids and notifications were sent, but the response has no id")
        for event in messages_of(connection, "client"):
            if is_notification(event.message) and not unnamed:
                yield held(event)


def _is_clear(connection: Connection, event: Event) -> bool:
    return is_plain(connection, event) or (event.text is None and is_response(event.message))


@rule(
    "MUST",
    "server",
    "basic",
    "Take batches, and answer each request in them.",
    revisions=("2025-03-26",),
    moves=("batch",),
)
def batch_supported(history: History) -> Iterator[Verdict]:
    for connection in history:
        for batch in connection.messages("client"):
            parts = {id(part) for part in connection.parts(batch)}
            for asked in connection.requests:
                if id(asked.event) in parts and is_proper(connection, asked) and asked.cancelled is None:
                    if asked.answers:
                        yield held(asked.answers[0])
                    elif (mark := lost(asked)) is not None:
                        yield broken(mark, f"{asked.method} in the batch was not answered")


# --- refusals ---------------------------------------------------------------------------------------------------------

NO_SUCH = "no-such/"
"""How the names of methods begin that the kit makes up."""

_OF_CLIENTS: Final = ("sampling/createMessage", "roots/list", "elicitation/create")


def _unknown(history: History) -> Iterator[tuple[RecordedRequest, Event]]:
    for _, asked, answer in asked_about(history):
        if asked.method.startswith(NO_SUCH) or asked.method in _OF_CLIENTS:
            yield asked, answer


@rule(
    "MUST",
    "server",
    "basic#error-codes",
    "Answer a method that does not exist with an error.",
    older="basic#messages",
    moves=("unknown-method", "method-of-clients"),
)
def unknown_method_refused(history: History) -> Iterator[Verdict]:
    for asked, answer in _unknown(history):
        yield judged("error" in answer.message, answer, f"the method {asked.method} does not exist, but has a result")


@rule(
    "SHOULD",
    "server",
    "basic#error-codes",
    "Answer -32601 for a method that does not exist.",
    older="basic#messages",
    moves=("unknown-method", "method-of-clients"),
)
def unknown_method_code(history: History) -> Iterator[Verdict]:
    for asked, answer in _unknown(history):
        if (code := code_of(asked)) is not None:
            yield judged(code == error_codes.METHOD_NOT_FOUND, answer, f"the code for {asked.method} is {code}")


@stated_rule(
    level="SHOULD",
    section="basic#error-codes",
    older="basic#messages",
    sentence="Answer what is not JSON with -32700, and what is not a valid request with -32600.",
    moves=MALFORMED,
)
def malformed_code(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not is_ordered(connection):  # HTTP has other reasons for errors without an id
            continue
        named = {repr(e.message.get("id")) for e in messages_of(connection, "server") if is_response(e.message)}
        since_last: list[Event] = []
        for event in connection.events:
            if event.sender == "client":
                since_last.append(event)
            elif event.kind != "message" or not is_response(event.message):
                continue
            elif event.message.get("id") is not None:
                # Messages before a request that is answered now have been dealt with.
                ids = [e.message.get("id") if isinstance(e.message, dict) else None for e in since_last]
                since_last = since_last[ids.index(event.message["id"]) :] if event.message["id"] in ids else since_last
            else:
                allowed = _allowed(connection, since_last, named)
                since_last = []
                error = event.message.get("error")
                if allowed and isinstance(error, dict):
                    code = error.get("code")
                    wanted = " or ".join(map(str, sorted(allowed)))
                    yield judged(code in allowed, event, f"the code is {code!r:.60}, not {wanted}")


def _allowed(connection: Connection, events: list[Event], named: set[str]) -> set[int]:
    """Return the codes of an error without an id that answers one of these; none if it may answer something else."""
    allowed: set[int] = set()
    for event in events:
        message = event.message
        if event.kind == "text":
            if event.text is None or len(event.text) > LARGEST:
                return set()
            # Not every parser takes the same for JSON: depth, surrogates, NaN.
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


def _errors(history: History) -> Iterator[tuple[Connection, Event, int]]:
    """Yield the errors of the modern era: not those of requests that a server of both eras may take for legacy ones."""
    for connection in history:
        legacy = {
            id(answer)
            for asked in connection.requests
            if asked.meta.get(meta.PROTOCOL_VERSION) not in MODERN
            for answer in asked.answers
        }
        for event in messages_of(connection, "server"):
            error = event.message.get("error") if is_response(event.message) and id(event) not in legacy else None
            if isinstance(error, dict) and type(error.get("code")) is int:
                yield connection, event, error["code"]


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
def error_codes_retired(history: History) -> Iterator[Verdict]:
    retired = (error_codes.RESOURCE_NOT_FOUND_LEGACY, error_codes.URL_ELICITATION_REQUIRED)
    for _, event, code in _errors(history):
        yield judged(code not in retired, event, f"the code {code} belongs to earlier revisions")


_MCP_CODES: Final = {
    error_codes.HEADER_MISMATCH,
    error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY,
    error_codes.UNSUPPORTED_PROTOCOL_VERSION,
}


@stated_rule(
    sentence="Send only those codes from -32020 to -32099 that the specification defines, for what they mean.",
    moves=ERRORS,
)
def error_codes_reserved(history: History) -> Iterator[Verdict]:
    for connection, event, code in _errors(history):
        if not -32099 <= code <= -32020 or code == error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY:
            yield held(event)
        elif code not in _MCP_CODES:
            # -32042 has a rule of its own.
            if code != error_codes.URL_ELICITATION_REQUIRED:
                yield broken(event, f"the code {code} is reserved, and not defined")
        elif code == error_codes.HEADER_MISMATCH:
            yield judged(not is_ordered(connection), event, f"{code} is about HTTP headers, but this is not HTTP")
        elif code == error_codes.UNSUPPORTED_PROTOCOL_VERSION:
            asked = next((asked for asked in connection.requests if event in asked.answers), None)
            named = asked.meta.get(meta.PROTOCOL_VERSION) if asked is not None else None
            # By what the server says of itself anywhere in the history: the revisions of a server do not depend on the
            # connection.
            spoken = _supported(history)
            if named is not None and spoken and asked is not None and is_plain(connection, asked.event):
                yield judged(named not in spoken, event, f"the server supports {named}, but refuses it with {code}")


def _supported(history: History) -> set[str]:
    """Return the revisions that the server says it speaks."""
    found: set[str] = set()
    for _, asked in history.requests("server/discover"):
        versions = (asked.result or {}).get("supportedVersions")
        found |= {each for each in versions if isinstance(each, str)} if isinstance(versions, list) else set()
    return found


@stated_rule(moves=ERRORS)
def error_codes_legacy_range(history: History) -> Iterator[Verdict]:
    for _, event, code in _errors(history):
        if code != error_codes.RESOURCE_NOT_FOUND_LEGACY:
            yield judged(not -32019 <= code <= -32000, event, f"the code {code} is in the legacy range")


@stated_rule(moves=ERRORS)
def error_codes_reserved_json_rpc(history: History) -> Iterator[Verdict]:
    for _, event, code in _errors(history):
        # The last range is left to implementations by JSON-RPC (section 5.1); what MCP says about it is in the rules
        # above.
        standard = code == error_codes.PARSE_ERROR or -32603 <= code <= -32600 or -32099 <= code <= -32000
        yield judged(standard or not -32768 <= code <= -32000, event, f"the code {code} is reserved by JSON-RPC")


# --- the schema -------------------------------------------------------------------------------------------------------


@stated_rule(
    section="schema",
    sentence="Give each result the form that the schema gives it.",
    moves=(*CALLS, "complete", "ping", "discover", "subscribe", "set-level", "next-page"),
)
def result_valid(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            answer = answer_of(asked)
            if answer is None or "result" not in answer.message:
                continue
            # A server of both eras may take a request that does not declare the modern one for one of the other.
            if connection.modern and asked.meta.get(meta.PROTOCOL_VERSION) not in MODERN:
                continue
            result = answer.message["result"]
            yield Verdict(answer, _result_problem(connection, asked, result))


def _result_problem(connection: Connection, asked: RecordedRequest, result: Any) -> str | None:
    revision = connection.revision
    spec = method_spec(revision, asked.method)
    if not isinstance(result, dict) or spec is None or not spec.results:
        return flaw(Result, result, revision, "result")
    if at_least(revision, "2026-07-28"):
        kind = result.get("resultType", "complete")
        if kind == "input_required":
            return flaw(InputRequiredResult, result, revision, "result")
        if kind != "complete":
            return None  # of an extension
    # Only where the client asked for a task: an ordinary result may have a member of that name, as the schema lets it
    # have any.
    tasks = [model for model in spec.results if model.__name__ == "CreateTaskResult"]
    if tasks and "task" in result and "task" in asked.params:
        return flaw(tasks[0], result, revision, "result")
    return flaw(spec.results[0], result, revision, "result")


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    section="schema",
    older="",
    sentence="Give each notification the form that the schema gives it.",
    moves=("call-with-progress", "call-with-logging", "listen", "subscribe"),
)
def notification_valid(history: History) -> Iterator[Verdict]:
    for connection, event in _said(history):
        if is_notification(event.message):
            yield from _message_problem(connection, event)


@stated_rule(
    section="schema",
    sentence="Give each request to the client the form that the schema gives it.",
    moves=("call-tool", "call-with-capabilities"),
)
def request_valid(history: History) -> Iterator[Verdict]:
    for connection, event in _said(history):
        if is_request(event.message):
            yield from _message_problem(connection, event)


def _message_problem(connection: Connection, event: Event) -> Iterator[Verdict]:
    message = event.message
    spec = method_spec(connection.revision, message["method"])
    if spec is None or not isinstance(message.get("params", {}), dict):
        return  # an extension's, or no JSON-RPC, which is for another rule
    if "params" not in message:
        yield judged(not spec.params_required, event, f"{message['method']} lacks its params")
        return
    problems = [flaw(model, message["params"], connection.revision, "params") for model in spec.params_models]
    if message["params"].get("mode") == "url":  # the second model of elicitation/create
        problems = problems[-1:]
    yield Verdict(event, None if None in problems else f"{message['method']}: {problems[0]}")


def _results(history: History) -> Iterator[tuple[Connection, Event, dict[str, Any]]]:
    """Yield the results of requests that declare the modern era, each for itself, as every request there must."""
    for connection in history:
        for asked in connection.requests:
            if asked.meta.get(meta.PROTOCOL_VERSION) in MODERN:
                for event in asked.answers:
                    result = event.message.get("result")
                    if isinstance(result, dict):
                        yield connection, event, result


@stated_rule(section="basic#resulttype", moves=(*CALLS, "complete", "discover"))
def result_type_present(history: History) -> Iterator[Verdict]:
    for _, event, result in _results(history):
        kind = result.get("resultType")
        shown = "missing" if "resultType" not in result else json_type(kind)
        yield judged(isinstance(kind, str), event, f"resultType must be a string, but is {shown}")


@stated_rule(
    sentence="Use only values of `resultType` that the core defines, or an extension that was declared.",
    moves=(*CALLS, "complete", "discover"),
)
def result_type_known(history: History) -> Iterator[Verdict]:
    for connection, event, result in _results(history):
        kind = result.get("resultType")
        if isinstance(kind, str):
            # The additions of an extension are not known here.
            extended = bool(connection.server_capabilities.get("extensions"))
            kept = kind in ("complete", "input_required") or extended
            yield judged(kept, event, f"the resultType {kind!r:.60} is unknown, and no extension was declared")


@stated_rule(
    sentence="Fall back to the core protocol, or refuse, if the client lacks an extension.",
    moves=("call-tool", "call-with-capabilities", "list-all"),
)
def extension_fallback(history: History) -> Iterator[Verdict]:
    for _, asked, answer in asked_about(history):
        kind = (asked.result or {}).get("resultType")
        declared = asked.meta.get(meta.CLIENT_CAPABILITIES)
        if isinstance(kind, str) and isinstance(declared, dict) and not declared.get("extensions"):
            kept = kind in ("complete", "input_required")
            yield judged(kept, answer, f"the client declared no extension, but the resultType is {kind!r:.60}")


# --- `_meta` ----------------------------------------------------------------------------------------------------------

_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates", "content", "contents", "messages")


def _metas(message: Any) -> Iterator[dict[str, Any]]:
    """Yield each `_meta` of a message whose place the schema knows: not those in the data of tools."""
    body = message.get("params", message.get("result")) if isinstance(message, dict) else None
    if not isinstance(body, dict):
        return
    # Not at any depth: `structuredContent` and the arguments of a tool are its own data, in which `_meta` means
    # nothing.
    lists = [body[key] for key in _LISTS if isinstance(body.get(key), list)]
    items = [each for found in lists for each in found]
    contents = [each.get("content") for each in items if isinstance(each, dict)]
    for holder in [body, *items, *contents]:
        found = holder.get("_meta") if isinstance(holder, dict) else None
        if isinstance(found, dict):
            yield found


@stated_rule(
    since="2025-06-18",
    older="basic#_meta",
    sentence="Build the keys of `_meta` from a name and perhaps a prefix, as the rules for both say.",
    moves=CALLS,
)
def meta_keys_well_formed(history: History) -> Iterator[Verdict]:
    for _, event in _said(history):
        for found in _metas(event.message):
            wrong = next((key for key in found if not meta.is_valid_key(key)), None)
            yield judged(wrong is None, event, f"the _meta key {wrong!r:.80} is malformed")


# W3C Trace Context, version 00, and what later versions keep of it.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


@stated_rule(moves=("call-tool", "call-with-progress"))
def trace_context_format(history: History) -> Iterator[Verdict]:
    for _, event in _said(history):
        for found in _metas(event.message):
            if meta.TRACEPARENT in found:
                parent = found[meta.TRACEPARENT]
                kept = isinstance(parent, str) and _TRACEPARENT.fullmatch(parent) is not None
                yield judged(kept, event, f"the traceparent {parent!r:.80} is malformed")
            for key in (meta.TRACESTATE, meta.BAGGAGE):
                if key in found:
                    yield judged(isinstance(found[key], str), event, f"{key} must be a string")


@stated_rule(moves=(*CALLS, "discover"))
def server_info_sent(history: History) -> Iterator[Verdict]:
    for _, event, result in _results(history):
        found = result.get("_meta")
        info = found.get(meta.SERVER_INFO) if isinstance(found, dict) else None
        kept = isinstance(info, dict) and isinstance(info.get("name"), str) and isinstance(info.get("version"), str)
        yield judged(kept, event, f"_meta lacks {meta.SERVER_INFO} with a name and a version")
