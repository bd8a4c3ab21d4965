"""Rules for clients: what they send, in which order, and what they make of what a server sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
from pydantic import ValidationError

from trio_mcp.http.headers import decode_value
from trio_mcp.http.param_headers import parameter_headers, parameter_values
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.testing.rules.history import (
    Asked,
    Connection,
    History,
    is_notification,
    is_request,
    is_response,
)
from trio_mcp.testing.rules.model import Verdict, broken, judged, rule
from trio_mcp.testing.transcript.events import Event
from trio_mcp.types import meta
from trio_mcp.types.error_codes import METHOD_NOT_FOUND
from trio_mcp.types.input_required import input_response_from_wire
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

SPEAKABLE: Final = frozenset(REVISIONS)
LISTS: Final = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


def parts(connection: Connection) -> Iterator[tuple[Event, Any]]:
    """Yield each message of the client with its event; of a batch, each part."""
    for event in connection.messages("client"):
        for message in event.message if isinstance(event.message, list) else [event.message]:
            yield event, message


def legacy(history: History) -> Iterator[Connection]:
    """Yield the connections on which the legacy era was agreed."""
    return (connection for connection in history if not connection.modern and connection.hello is not None)


def modern(history: History) -> Iterator[Connection]:
    """Yield the connections on which the client speaks the modern era."""
    return (connection for connection in history if connection.modern)


def over_http(connections: Iterator[Connection]) -> Iterator[Connection]:
    """Yield those that are over Streamable HTTP."""
    return (connection for connection in connections if connection.transport == "http")


def after(connection: Connection, event: Event | None) -> Iterator[tuple[Event, Any]]:
    """Yield the messages that the client sent after an event."""
    place = -1 if event is None else connection.position(event)
    return ((sent, message) for sent, message in parts(connection) if connection.position(sent) > place)


# --- messages ---------------------------------------------------------------------------------------------------------


@rule(
    "MUST",
    "client",
    "basic#messages",
    "What a client sends is a valid message of JSON-RPC 2.0.",
    older="basic#messages",
)
def client_messages_valid(history: History) -> Iterator[Verdict]:
    """Judge each JSON value of the client; a batch by its parts."""
    for connection in history:
        for event, message in parts(connection):
            known = is_request(message) or is_notification(message) or is_response(message)
            kept = known and message.get("jsonrpc") == "2.0"
            yield judged(kept, event, "it is neither a request nor a notification nor a response of JSON-RPC 2.0")


@rule(
    "MUST",
    "client",
    "basic#requests",
    "The id of a request was not used before by the same client in the same session.",
)
def client_ids_unique(history: History) -> Iterator[Verdict]:
    """Judge each request; 1 and "1" are different ids."""
    for connection in history:
        seen: set[tuple[type, Any]] = set()
        for asked in connection.requests:
            key = (type(asked.id), asked.id)
            yield judged(key not in seen, asked.event, f"the id {asked.id!r} was used before")
            seen.add(key)


@rule(
    "MUST",
    "client",
    "basic#messages",
    "A client sends no batches, which only 2025-03-26 has.",
    revisions=[revision for revision in REVISIONS if revision != "2025-03-26"],
)
def client_sends_no_batch(history: History) -> Iterator[Verdict]:
    """Judge each JSON value of the client."""
    for connection in history:
        if connection.revision != "2025-03-26":
            for event in connection.messages("client"):
                yield judged(not isinstance(event.message, list), event, "it is a batch")


@rule(
    "MUST",
    "client",
    "basic/transports/stdio",
    "A client writes nothing to a server's input that is not a message.",
    older="basic/transports#stdio",
)
def stdin_clean(history: History) -> Iterator[Verdict]:
    """Judge all that came over stdio, or another stream of lines."""
    for connection in history:
        if connection.transport in ("stdio", "memory", "tcp", "unix"):
            for event in connection.events:
                if event.sender == "client" and event.kind in ("message", "text"):
                    yield judged(event.kind == "message", event, "it is not JSON")


# --- the opening ------------------------------------------------------------------------------------------------------


@rule(
    "MUST",
    "client",
    "basic/lifecycle#initialization",
    "The first request of a session is initialize, with version, capabilities and name of the client.",
    revisions=LEGACY_REVISIONS,
)
def initialize_first(history: History) -> Iterator[Verdict]:
    """Judge the first request of each connection; a probe for the modern era may come before it."""
    for connection in history:
        if connection.modern:
            continue
        for asked in connection.requests:
            if meta.PROTOCOL_VERSION in asked.meta or asked.method == "server/discover":
                continue
            if asked.method != "initialize":
                yield broken(asked.event, f"the first request is {asked.method}")
            else:
                wanted = {"protocolVersion": str, "capabilities": dict, "clientInfo": dict}
                missing = [name for name, kind in wanted.items() if not isinstance(asked.params.get(name), kind)]
                yield judged(not missing, asked.event, f"it lacks {', '.join(missing)}")
            break


@rule(
    "MUST",
    "client",
    "basic/lifecycle#version-negotiation",
    "A client asks for a version that exists.",
    revisions=LEGACY_REVISIONS,
)
def initialize_version_supported(history: History) -> Iterator[Verdict]:
    """Judge each initialize; which versions the client really speaks can't be seen."""
    for _, asked in history.requests("initialize"):
        version = asked.params.get("protocolVersion")
        yield judged(version in SPEAKABLE, asked.event, f"there is no version {version!r}")


@rule(
    "SHOULD",
    "client",
    "basic/lifecycle#initialization",
    "A client sends no request but pings before initialize is answered.",
    revisions=LEGACY_REVISIONS,
)
def nothing_before_initialize_result(history: History) -> Iterator[Verdict]:
    """Judge what the client sent between initialize and its result."""
    for connection in legacy(history):
        hello = connection.hello
        assert hello is not None
        answered = connection.position(hello.answers[0])
        for asked in connection.requests:
            if connection.position(hello.event) < connection.position(asked.event) < answered:
                yield judged(
                    asked.method == "ping", asked.event, f"{asked.method} was sent before initialize was answered"
                )
        yield Verdict(hello.event)


@rule(
    "MUST",
    "client",
    "basic/lifecycle#initialization",
    "A client sends notifications/initialized after a successful initialize, before anything else but pings.",
    revisions=LEGACY_REVISIONS,
)
def initialized_sent(history: History) -> Iterator[Verdict]:
    """Judge the first message after the result, if the client goes on in a version that both know."""
    for connection in legacy(history):
        hello = connection.hello
        assert hello is not None
        if connection.revision not in SPEAKABLE:
            continue
        for event, message in after(connection, hello.answers[0]):
            if (is_request(message) and message["method"] == "ping") or is_response(message):
                continue
            kept = isinstance(message, dict) and message.get("method") == "notifications/initialized"
            yield judged(kept, event, "this was sent before notifications/initialized")
            break


@rule(
    "SHOULD",
    "client",
    "basic/lifecycle#version-negotiation",
    "A client leaves if the server answers initialize with a version that the client does not speak.",
    revisions=LEGACY_REVISIONS,
)
def version_mismatch_disconnects(history: History) -> Iterator[Verdict]:
    """Judge what follows a version that does not exist."""
    for connection in legacy(history):
        hello = connection.hello
        assert hello is not None
        if connection.revision in SPEAKABLE:
            continue
        went_on = next((event for event, message in after(connection, hello.answers[0]) if is_request(message)), None)
        yield judged(went_on is None, went_on or hello.answers[0], f"it goes on in {connection.revision!r}")


@rule(
    "MUST",
    "client",
    "basic#capability-negotiation",
    "A client uses only what the server has declared.",
    older="basic/lifecycle#capability-negotiation",
)
def client_capabilities_respected(history: History) -> Iterator[Verdict]:
    """Judge the requests that need a capability of the server, once the client knows which it has."""
    for connection in history:
        known = next(
            (a for a in connection.requests if a.method in ("initialize", "server/discover") and a.result), None
        )
        if known is None or connection.revision not in SPEAKABLE:
            continue
        for asked in connection.requests:
            spec = method_spec(connection.revision, asked.method)
            needs = spec.server_capability if spec is not None else None
            if needs is not None and connection.position(asked.event) > connection.position(known.answers[0]):
                declared: Any = connection.server_capabilities
                for name in needs.split("."):
                    declared = declared.get(name) if isinstance(declared, dict) else None
                yield judged(bool(declared) or declared == {}, asked.event, f"the server did not declare {needs}")


# --- questions of the server ------------------------------------------------------------------------------------------


def _withdrawn(asked: Asked) -> bool:
    # The reply may have been on its way, or left out: both are right.
    return asked.cancelled is not None


@rule(
    "MUST",
    "client",
    "basic#responses",
    "A client answers each request of the server, once, with its id.",
    revisions=LEGACY_REVISIONS,
)
def questions_answered(history: History) -> Iterator[Verdict]:
    """Judge each request of the server that was not cancelled."""
    for connection in legacy(history):
        for asked in connection.questions:
            if _withdrawn(asked):
                continue
            if len(asked.answers) > 1:
                yield broken(asked.answers[1], f"{asked.id!r} is answered a second time")
            elif asked.answers:
                yield Verdict(asked.answers[0])
            elif asked.overdue is not None:
                yield broken(asked.overdue, f"{asked.method} is not answered")


@rule(
    "MUST",
    "client",
    "basic#responses",
    "A client answers nothing that it was not asked.",
)
def answers_are_asked_for(history: History) -> Iterator[Verdict]:
    """Judge each response of the client by its id."""
    for connection in history:
        ids = {(type(asked.id), asked.id) for asked in connection.questions}
        for event, message in parts(connection):
            # A response without an id says that something could not be read.
            if is_response(message) and is_request_id(answered := message.get("id")):
                yield judged((type(answered), answered) in ids, event, f"nothing with the id {answered!r} was asked")


@rule(
    "MUST",
    "client",
    "basic/utilities/ping#behavior-requirements",
    "A client answers a ping with an empty result.",
    revisions=LEGACY_REVISIONS,
)
def client_ping_answered(history: History) -> Iterator[Verdict]:
    """Judge each ping of the server that was answered, or overdue."""
    for connection in legacy(history):
        for asked in connection.questions:
            if asked.method == "ping" and (asked.answers or asked.overdue is not None):
                event = asked.answers[0] if asked.answers else asked.overdue
                assert event is not None
                yield judged(asked.result is not None, event, "a ping has no result")


@rule(
    "SHOULD",
    "client",
    "basic#error-responses",
    "A client refuses a request whose method it does not know with -32601.",
    older="client/roots#error-handling",
    revisions=LEGACY_REVISIONS,
)
def client_method_not_found(history: History) -> Iterator[Verdict]:
    """Judge the responses to methods that no revision has."""
    for connection in legacy(history):
        for asked in connection.questions:
            if asked.answers and all(method_spec(revision, asked.method) is None for revision in REVISIONS):
                code = asked.error.get("code") if asked.error else None
                yield judged(
                    code == METHOD_NOT_FOUND, asked.answers[0], f"the response to {asked.method} has code {code}"
                )


@rule(
    "MUST",
    "client",
    "client/elicitation",
    "What a client answers to a question has the form that the schema gives it.",
)
def client_results_valid(history: History) -> Iterator[Verdict]:
    """Judge the results for sampling, elicitation and roots, in both eras."""
    for event, method, _, result in _given(history):
        try:
            input_response_from_wire(method, result)
        except (ValidationError, KeyError) as exc:
            yield broken(event, f"the result for {method} is invalid: {str(exc).splitlines()[0]}")
        else:
            yield Verdict(event)


@rule(
    "SHOULD",
    "client",
    "client/elicitation#form-mode-security",
    "What a client accepts in a form fits the form's schema.",
)
def elicitation_answer_conforms(history: History) -> Iterator[Verdict]:
    """Judge accepted forms."""
    for event, method, params, result in _given(history):
        schema = params.get("requestedSchema")
        if method == "elicitation/create" and result.get("action") == "accept" and isinstance(schema, dict):
            kept = jsonschema_rs.is_valid(schema, result.get("content", {}))
            yield judged(kept, event, "the content does not fit the form")


@rule("MUST", "client", "client/roots#root", "The URI of a root begins with file://.")
def root_uri_is_file(history: History) -> Iterator[Verdict]:
    """Judge each list of roots."""
    for event, method, _, result in _given(history):
        roots = result.get("roots")
        if method == "roots/list" and isinstance(roots, list):
            uris = [str(root.get("uri")) for root in roots if isinstance(root, dict)]
            wrong = [uri for uri in uris if not uri.startswith("file://")]
            yield judged(not wrong, event, f"a root is {wrong[:1]}")


def _given(history: History) -> Iterator[tuple[Event, str, dict[str, Any], dict[str, Any]]]:
    """Yield the results that a client gave to questions: the event, the method, its parameters and the result."""
    for connection in history:
        for asked in connection.questions:
            if asked.method in QUESTIONS and asked.result is not None:
                yield asked.answers[0], asked.method, asked.params, asked.result
        for before, retry in _retries(connection):
            asked_for = (before.result or {}).get("inputRequests")
            given = retry.params.get("inputResponses")
            for key, response in given.items() if isinstance(given, dict) else ():
                question = asked_for.get(key) if isinstance(asked_for, dict) else None
                if isinstance(question, dict) and question.get("method") in QUESTIONS and isinstance(response, dict):
                    params = question.get("params")
                    yield retry.event, question["method"], params if isinstance(params, dict) else {}, response


QUESTIONS: Final = ("sampling/createMessage", "elicitation/create", "roots/list")


# --- requests of the client -------------------------------------------------------------------------------------------


@rule(
    "MUST",
    "client",
    "basic/patterns/progress#progress-flow",
    "A progress token is a string or an integer, and not that of another open request.",
    older="basic/utilities/progress#progress-flow",
)
def progress_token_unique(history: History) -> Iterator[Verdict]:
    """Judge each token; a request is open until its response, or its cancellation, has come."""
    for connection in history:
        open_until: dict[tuple[type, Any], int] = {}
        for asked in connection.requests:
            if meta.PROGRESS_TOKEN not in asked.meta:
                continue
            token, place = asked.meta[meta.PROGRESS_TOKEN], connection.position(asked.event)
            if not is_request_id(token):
                yield broken(asked.event, f"the token {token!r} is neither a string nor an integer")
                continue
            key = (type(token), token)
            yield judged(
                open_until.get(key, -1) < place, asked.event, f"{token!r} is the token of another open request"
            )
            ends = [connection.position(event) for event in (*asked.answers[:1], asked.cancelled) if event is not None]
            open_until[key] = min(ends, default=len(connection.events))


@rule(
    "MUST",
    "client",
    "basic/patterns/cancellation#behavior-requirements",
    "A client cancels only requests that it has sent.",
    older="basic/utilities/cancellation#behavior-requirements",
)
def client_cancels_its_own(history: History) -> Iterator[Verdict]:
    """Judge each cancellation, except of requests that the server has not seen over HTTP: they may still be under way.

    Whether the request was still open is a matter of what has crossed it.
    """
    for connection in history:
        for event in connection.notifications("client", "notifications/cancelled"):
            named = (event.message.get("params") or {}).get("requestId")
            sent = [asked for asked in connection.requests if (type(asked.id), asked.id) == (type(named), named)]
            place = connection.position(event)
            if any(connection.position(asked.event) < place for asked in sent):
                yield Verdict(event)
            elif connection.transport != "http":
                yield broken(event, f"no request {named!r} was sent before")


@rule(
    "MUST",
    "client",
    "basic/utilities/cancellation#behavior-requirements",
    "A client does not cancel initialize.",
    revisions=LEGACY_REVISIONS,
)
def initialize_not_cancelled(history: History) -> Iterator[Verdict]:
    """Judge each cancellation by what it cancels."""
    for connection in legacy(history):
        opening = {(type(asked.id), asked.id) for asked in connection.requests if asked.method == "initialize"}
        for event in connection.notifications("client", "notifications/cancelled"):
            named = (event.message.get("params") or {}).get("requestId")
            yield judged((type(named), named) not in opening, event, "it cancels initialize")


@rule(
    "MUST",
    "client",
    "server/utilities/pagination#implementation-guidelines",
    "A client sends a cursor as it came, for the list that it came with.",
)
def cursor_echoed(history: History) -> Iterator[Verdict]:
    """Judge each cursor against those that the server gave before, on any connection."""
    for asked, cursor, _, given in _cursors(history):
        yield judged(given, asked.event, f"the cursor {cursor!r} was never given")


@rule(
    "MUST",
    "client",
    "server/utilities/pagination#implementation-guidelines",
    "A client does not use a cursor of another session.",
    revisions=LEGACY_REVISIONS,
)
def cursor_not_kept(history: History) -> Iterator[Verdict]:
    """Judge each cursor that the server gave on some connection."""
    for asked, cursor, here, given in _cursors(history):
        if given:
            yield judged(here, asked.event, f"the cursor {cursor!r} was given in another session")


def _cursors(history: History) -> Iterator[tuple[Asked, Any, bool, bool]]:
    """Yield each cursor that was sent: the request, the cursor, whether it was given on this connection, and on any."""
    everywhere: dict[str, list[Any]] = {method: [] for method in LISTS}
    for connection in history:
        here: dict[str, list[Any]] = {method: [] for method in LISTS}
        for asked in connection.requests:
            if asked.method not in here:
                continue
            if "cursor" in asked.params:
                cursor = asked.params["cursor"]
                yield asked, cursor, cursor in here[asked.method], cursor in everywhere[asked.method]
            if asked.result is not None and "nextCursor" in asked.result:
                here[asked.method].append(asked.result["nextCursor"])
                everywhere[asked.method].append(asked.result["nextCursor"])


# --- the modern era ---------------------------------------------------------------------------------------------------


@rule(
    "MUST",
    "client",
    "basic#_meta",
    "Each request names the version and the client's capabilities in its _meta.",
    revisions=MODERN_REVISIONS,
)
def request_meta_complete(history: History) -> Iterator[Verdict]:
    """Judge each request of a client of the modern era."""
    for connection in modern(history):
        for asked in connection.requests:
            if asked.method != "initialize":
                version, declared = asked.meta.get(meta.PROTOCOL_VERSION), asked.meta.get(meta.CLIENT_CAPABILITIES)
                kept = isinstance(version, str) and isinstance(declared, dict)
                yield judged(kept, asked.event, "its _meta lacks the version or the capabilities")


@rule(
    "SHOULD",
    "client",
    "basic#_meta",
    "Each request names the client's software in its _meta.",
    revisions=MODERN_REVISIONS,
)
def client_info_sent(history: History) -> Iterator[Verdict]:
    """Judge each request of a client of the modern era."""
    for connection in modern(history):
        for asked in connection.requests:
            if asked.method != "initialize":
                yield judged(
                    isinstance(asked.meta.get(meta.CLIENT_INFO), dict), asked.event, "its _meta lacks clientInfo"
                )


@rule(
    "MUST",
    "client",
    "basic/transports/streamable-http#sending-messages",
    "A client sends no responses.",
    revisions=MODERN_REVISIONS,
)
def no_client_responses(history: History) -> Iterator[Verdict]:
    """Judge each message of a client of the modern era."""
    for connection in modern(history):
        for event, message in parts(connection):
            yield judged(not is_response(message), event, "it is a response")


def _retries(connection: Connection) -> Iterator[tuple[Asked, Asked]]:
    """Yield each request that was answered with questions, and the request that retries it.

    A retry is known by the state that it brings back, or by the first answers after it for the same thing.
    """
    asking: list[Asked] = []
    for asked in connection.requests:
        if "requestState" in asked.params or "inputResponses" in asked.params:
            same = [each for each in asking if each.method == asked.method and _subject(each) == _subject(asked)]
            state = asked.params.get("requestState")
            found = [each for each in same if (each.result or {}).get("requestState") == state] or same
            if found:
                yield found[0], asked
                asking.remove(found[0])
        if asked.result is not None and asked.result.get("resultType") == "input_required":
            asking.append(asked)


def _subject(asked: Asked) -> Any:
    return asked.params.get("name", asked.params.get("uri"))


@rule(
    "MUST",
    "client",
    "basic/patterns/mrtr#client-requirements-basic-workflow",
    "A retry brings back the state that the server gave, exactly, and none if it gave none.",
    revisions=MODERN_REVISIONS,
)
def request_state_echoed(history: History) -> Iterator[Verdict]:
    """Judge each request with a state or with answers."""
    for connection in modern(history):
        given = [a.result["requestState"] for a in connection.requests if a.result and "requestState" in a.result]
        for asked in connection.requests:
            if "requestState" in asked.params:
                state = asked.params["requestState"]
                yield judged(state in given, asked.event, f"the state {state!r} was never given")
        for before, retry in _retries(connection):
            if "requestState" in (before.result or {}):
                kept = "requestState" in retry.params
                yield judged(kept, retry.event, "the retry lacks the state")


@rule(
    "MUST",
    "client",
    "basic/patterns/mrtr#client-requirements-basic-workflow",
    "A retry has an id of its own.",
    revisions=MODERN_REVISIONS,
)
def retry_has_new_id(history: History) -> Iterator[Verdict]:
    """Judge each retry."""
    for connection in modern(history):
        for before, retry in _retries(connection):
            yield judged(retry.id != before.id, retry.event, f"it has the id {retry.id!r} of the first request")


@rule(
    "MUST",
    "client",
    "basic/patterns/mrtr#client-requirements-basic-workflow",
    "A retry brings an answer to each question, under its key.",
    revisions=MODERN_REVISIONS,
)
def input_answered(history: History) -> Iterator[Verdict]:
    """Judge each retry of a request that was answered with questions."""
    for connection in modern(history):
        for before, retry in _retries(connection):
            wanted, given = (before.result or {}).get("inputRequests"), retry.params.get("inputResponses")
            if isinstance(wanted, dict) and wanted:
                missing = set(wanted) - set(given if isinstance(given, dict) else ())
                yield judged(not missing, retry.event, f"there is no answer to {sorted(missing)}")


# --- over HTTP --------------------------------------------------------------------------------------------------------


@rule(
    "MUST",
    "client",
    "basic/transports/streamable-http#sending-messages",
    "The body of a POST is one message.",
    older="basic/transports#sending-messages-to-the-server",
    revisions=[revision for revision in REVISIONS if revision >= "2025-06-18"],
)
def one_post_per_message(history: History) -> Iterator[Verdict]:
    """Judge each POST."""
    for connection in over_http(iter(history)):
        if connection.revision in ("2024-11-05", "2025-03-26"):
            continue
        for exchange in connection.exchanges.values():
            if exchange.method == "POST":
                kept = len(exchange.sent) == 1 and isinstance(exchange.sent[0].message, dict)
                yield judged(kept, exchange.request, "its body is not one message")


@rule(
    "MUST",
    "client",
    "basic/transports/streamable-http#sending-messages",
    "Accept names JSON and event streams in each POST, and event streams in each GET.",
    older="basic/transports#sending-messages-to-the-server",
    revisions=[revision for revision in REVISIONS if revision >= "2025-03-26"],
)
def accept_header_sent(history: History) -> Iterator[Verdict]:
    """Judge each POST and GET."""
    wanted = {"POST": ("application/json", "text/event-stream"), "GET": ("text/event-stream",)}
    for connection in over_http(iter(history)):
        for exchange in connection.exchanges.values():
            if exchange.method in wanted:
                named = [
                    each.partition(";")[0].strip().lower()
                    for each in exchange.request.headers.get("accept", "").split(",")
                ]
                kept = set(wanted[exchange.method]) <= set(named)
                yield judged(kept, exchange.request, f"Accept is {exchange.request.headers.get('accept')!r}")


@rule(
    "MUST",
    "client",
    "basic/transports/streamable-http#protocol-version-header",
    "Each HTTP request names the version in MCP-Protocol-Version; in the legacy era, each after the handshake.",
    older="basic/transports#protocol-version-header",
    revisions=[revision for revision in REVISIONS if revision >= "2025-06-18"],
)
def version_header_sent(history: History) -> Iterator[Verdict]:
    """Judge each request after initialize was answered; in the modern era each POST."""
    for connection in over_http(iter(history)):
        if connection.revision < "2025-06-18" or connection.revision not in SPEAKABLE:
            continue
        hello = connection.hello
        begins = -1 if hello is None else connection.position(hello.answers[0])
        for exchange in connection.exchanges.values():
            opens = any(is_request(sent.message) and sent.message["method"] == "initialize" for sent in exchange.sent)
            if connection.position(exchange.request) > begins and not opens:
                header = exchange.request.headers.get("mcp-protocol-version")
                yield judged(bool(header), exchange.request, "it has no MCP-Protocol-Version")


@rule(
    "SHOULD",
    "client",
    "basic/transports#protocol-version-header",
    "The version in the header is the one that was agreed.",
    revisions=["2025-06-18", "2025-11-25"],
)
def version_header_negotiated(history: History) -> Iterator[Verdict]:
    """Judge each request that has the header after initialize was answered."""
    for connection in over_http(legacy(history)):
        hello = connection.hello
        assert hello is not None
        for exchange in connection.exchanges.values():
            header = exchange.request.headers.get("mcp-protocol-version")
            if header is not None and connection.position(exchange.request) > connection.position(hello.answers[0]):
                yield judged(header == connection.revision, exchange.request, f"it names {header!r}")


def _session_id(connection: Connection) -> str | None:
    """Return the id that the server gave with the result of initialize, if any."""
    for exchange in connection.exchanges.values():
        opens = any(is_request(sent.message) and sent.message["method"] == "initialize" for sent in exchange.sent)
        if opens and exchange.response is not None and exchange.status == 200:
            return exchange.response.headers.get("mcp-session-id")
    return None


@rule(
    "MUST",
    "client",
    "basic/transports#session-management",
    "A client sends the session id that it was given with each later request of the session.",
    revisions=["2025-03-26", "2025-06-18", "2025-11-25"],
)
def session_id_sent(history: History) -> Iterator[Verdict]:
    """Judge each request after the handshake."""
    for connection in over_http(legacy(history)):
        if (given := _session_id(connection)) is None or connection.hello is None:
            continue
        begins = connection.position(connection.hello.answers[0])
        for exchange in connection.exchanges.values():
            if connection.position(exchange.request) > begins:
                sent = exchange.request.headers.get("mcp-session-id")
                yield judged(sent == given, exchange.request, f"it names the session {sent!r}")


@rule(
    "MUST",
    "client",
    "basic/transports#session-management",
    "After status 404 for its session, a client begins a new one: with initialize, and without the old id.",
    revisions=["2025-03-26", "2025-06-18", "2025-11-25"],
)
def session_restarted_after_404(history: History) -> Iterator[Verdict]:
    """Judge the first request with a message after a 404, if there is one."""
    everything = [exchange for connection in over_http(iter(history)) for exchange in connection.exchanges.values()]
    ended = None
    for exchange in sorted(everything, key=lambda each: each.request.exchange or 0):
        session = exchange.request.headers.get("mcp-session-id")
        if ended is not None and exchange.method == "POST" and session != ended[0]:
            opens = any(is_request(sent.message) and sent.message["method"] == "initialize" for sent in exchange.sent)
            yield judged(opens and session is None, exchange.request, "a new session does not begin with initialize")
            ended = None
        elif ended is not None and exchange.method == "POST" and exchange.request.time > ended[1] + SETTLED:
            yield broken(exchange.request, "it goes on with a session that has ended")
            ended = None
        if exchange.status == 404 and session is not None and exchange.end is not None and ended is None:
            ended = (session, exchange.end.time)


SETTLED: Final = 1.0
"""Seconds after a 404 in which requests that were on their way may still name the session (chosen)."""


@rule(
    "MUST",
    "client",
    "basic/transports#resumability-and-redelivery",
    "Last-Event-ID names the last event that came on a stream of the same session.",
    revisions=["2025-03-26", "2025-06-18", "2025-11-25"],
)
def last_event_id_real(history: History) -> Iterator[Verdict]:
    """Judge each request with the header."""
    for connection in over_http(legacy(history)):
        given = {str(event.facts["event_id"]) for event in connection.events if "event_id" in event.facts}
        for exchange in connection.exchanges.values():
            named = exchange.request.headers.get("last-event-id")
            if named is not None:
                yield judged(named in given, exchange.request, f"no event has the id {named!r}")


@rule(
    "MUST",
    "client",
    "basic/transports/streamable-http#request-metadata",
    "MCP-Protocol-Version, Mcp-Method and Mcp-Name say what the body says.",
    revisions=MODERN_REVISIONS,
)
def request_headers_sent(history: History) -> Iterator[Verdict]:
    """Judge each POST with a request."""
    for connection in over_http(modern(history)):
        for exchange in connection.exchanges.values():
            body = exchange.sent[0].message if exchange.sent else None
            if exchange.method != "POST" or not is_request(body) or body["method"] == "initialize":
                continue
            headers, params = exchange.request.headers, body.get("params") or {}
            fields = params.get("_meta") or {}
            wanted = {"mcp-protocol-version": fields.get(meta.PROTOCOL_VERSION), "mcp-method": body["method"]}
            spec = method_spec(connection.revision, body["method"])
            if spec is not None and spec.name_header is not None:
                wanted["mcp-name"] = params.get(spec.name_header)
            found = {name: headers.get(name) for name in wanted}
            if found.get("mcp-name") is not None:
                found["mcp-name"] = decode_value(str(found["mcp-name"]))
            wrong = [name for name in wanted if found[name] != wanted[name]]
            yield judged(not wrong, exchange.request, f"{', '.join(wrong)} differ from the body")


@rule(
    "MUST",
    "client",
    "basic/transports/streamable-http#client-behavior",
    "A client sends each annotated argument as a header of its own, and none that is not there.",
    revisions=MODERN_REVISIONS,
)
def parameter_headers_sent(history: History) -> Iterator[Verdict]:
    """Judge each call of a listed tool whose schema names headers."""
    for connection in over_http(modern(history)):
        for exchange in connection.exchanges.values():
            body = exchange.sent[0].message if exchange.sent else None
            if not is_request(body) or body["method"] != "tools/call" or not isinstance(body.get("params"), dict):
                continue
            tool = connection.tools.get(str(body["params"].get("name")), {})
            try:
                parameters = parameter_headers(tool.get("inputSchema"))
            except ValueError:  # such a tool must not be called, which is another rule
                continue
            if not parameters:
                continue
            wanted = {n.lower(): v for n, v in parameter_values(body["params"].get("arguments"), parameters).items()}
            headers = exchange.request.headers
            found = {name: value for name, value in headers.items() if name.startswith("mcp-param-")}
            yield judged(found == wanted, exchange.request, f"the headers are {found}, not {wanted}")
