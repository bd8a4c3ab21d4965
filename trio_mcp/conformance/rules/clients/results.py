"""Results and lists: what a client makes of what a server sends, as far as its next messages tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.rules.clients.shared import SPEAKABLE, after, modern, over_http, parts, tools_at
from trio_mcp.conformance.rules.history import LISTS, Connection, History, is_notification, is_request, is_response
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.http.headers import decode_value
from trio_mcp.http.param_headers import parameter_headers
from trio_mcp.types import meta

MOST: Final = 2**53 - 1
"""The largest integer that a double holds together with all smaller ones."""


@stated_rule()
def missing_result_type_complete(history: History) -> Iterator[Verdict]:
    """Judge each result without one, until something asks for input: before that, a retry is of such a result."""
    for connection in modern(history):
        untyped: Event | None = None
        for asked in connection.requests:
            if untyped is not None and {"requestState", "inputResponses"} & set(asked.params):
                yield broken(asked.event, "it takes a result without a type for a request for input")
                break
            if asked.result is not None and asked.result.get("resultType") == "input_required":
                break
            if asked.result is not None and "resultType" not in asked.result:
                untyped = asked.answers[0]
                yield Verdict(untyped)


@stated_rule()
def empty_cursor_followed(history: History) -> Iterator[Verdict]:
    """Judge each page with an empty cursor that a client has read which follows the other cursors of its lists.

    Where a server has sent something malformed, a client may have given up what came with it.
    """
    for connection in history:
        if not _is_clean(connection):
            continue
        pages = [asked for asked in connection.requests if asked.method in LISTS and asked.result is not None]
        followed = [
            (asked.method, asked.params.get("cursor")) for asked in connection.requests if asked.method in LISTS
        ]
        others = [page for page in pages if (page.result or {}).get("nextCursor")]
        # A client need not read a list to its end. Only one that follows every other cursor shows that it takes the
        # empty one for an end.
        if not others or any(
            (page.method, page.result["nextCursor"]) not in followed for page in others if page.result
        ):
            continue
        for page in pages:
            if (page.result or {}).get("nextCursor") == "":
                kept = (page.method, "") in followed
                yield judged(kept, page.answers[0], "it does not ask for the page at the empty cursor")


def _is_clean(connection: Connection) -> bool:
    """Return whether all that the server has sent is what a client must understand."""
    ids = {(type(asked.id), asked.id) for asked in connection.requests}
    for event in connection.messages("server"):
        message = event.message
        if is_response(message):
            if (type(message.get("id")), message.get("id")) not in ids:
                return False
        elif not is_request(message) and not is_notification(message):
            return False
    return True


@stated_rule(
    who="client",
    since="2025-06-18",
    sentence="A client builds the keys of `_meta` from a name and perhaps a prefix, as the rules for both say.",
)
def client_meta_keys_well_formed(history: History) -> Iterator[Verdict]:
    """Judge the `_meta` of what the client sends."""
    for event, found in _metas(history):
        wrong = next((key for key in found if not meta.is_valid_key(key)), None)
        yield judged(wrong is None, event, f"the _meta key {wrong!r:.80} is malformed")


def _metas(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
    for connection in history:
        for event, message in parts(connection):
            body = message.get("params", message.get("result")) if isinstance(message, dict) else None
            found = body.get("_meta") if isinstance(body, dict) else None
            if isinstance(found, dict):
                yield event, found


@stated_rule(who="client", sentence="The name of an extension is like a key of `_meta`, with a prefix.")
def client_extension_names(history: History) -> Iterator[Verdict]:
    """Judge the extensions that a client declares."""
    for event, found in _metas(history):
        declared = found.get(meta.CLIENT_CAPABILITIES)
        names = declared.get("extensions") if isinstance(declared, dict) else None
        if isinstance(names, dict):
            wrong = next((name for name in names if "/" not in name or not meta.is_valid_key(name)), None)
            yield judged(wrong is None, event, f"the extension {wrong!r:.80} is misnamed")


# --- over HTTP --------------------------------------------------------------------------------------------------------


@stated_rule()
def header_integer_safe(history: History) -> Iterator[Verdict]:
    """Judge each header of an annotated integer."""
    for connection, headers, event, body in _calls(history):
        schema = connection.tools.get(str(body["params"].get("name")), {}).get("inputSchema")
        try:
            parameters = parameter_headers(schema)
        except ValueError:
            continue
        for parameter in parameters:
            value = parameter.value_in(body["params"].get("arguments"))
            # A client that refuses the call, or leaves out the header, has not broken this sentence.
            if isinstance(value, int) and not isinstance(value, bool) and parameter.header.lower() in headers:
                sent = decode_value(headers[parameter.header.lower()])
                yield judged(abs(value) <= MOST, event, f"{parameter.header} is {sent}")


@stated_rule(sentence="Over HTTP, a client does not call tools whose x-mcp-header breaks its rules.")
def bad_header_annotation_refused(history: History) -> Iterator[Verdict]:
    """Judge each call of a listed tool, once such a tool was listed."""
    for connection, _, event, body in _calls(history):
        tools = tools_at(connection, event)
        refused = {name for name, tool in tools.items() if not _is_fine(tool.get("inputSchema"))}
        # As long as the server's tools are all in order, a client can't show whether it looks.
        if refused:
            name = body["params"].get("name")
            yield judged(name not in refused, event, f"it calls {name!r}")


def _is_fine(schema: Any) -> bool:
    try:
        parameter_headers(schema)
    except ValueError:
        return False
    return True


def _calls(history: History) -> Iterator[tuple[Connection, dict[str, str], Event, Any]]:
    """Yield the tool calls over HTTP: the connection, the headers, the event of the request and the message."""
    for connection in over_http(modern(history)):
        for exchange in connection.exchanges.values():
            body = exchange.sent[0].message if exchange.sent else None
            if is_request(body) and body["method"] == "tools/call" and isinstance(body.get("params"), dict):
                yield connection, exchange.request.headers, exchange.request, body


@stated_rule(since="2025-11-25")
def retry_respected(history: History) -> Iterator[Verdict]:
    """Judge each GET that resumes a stream whose last event said how long to wait."""
    for connection in over_http(iter(history)):
        waits: dict[str, tuple[float, float]] = {}
        for event in connection.events:
            retry, event_id = event.facts.get("retry"), event.facts.get("event_id")
            # A resumption names an event, so a `retry` can be matched only if it came with an id.
            if retry is not None and event_id is not None and event.exchange is not None:
                end = connection.exchanges[event.exchange].end
                if end is not None:
                    waits[str(event_id)] = float(retry), end.time
        for exchange in connection.exchanges.values():
            named = exchange.request.headers.get("last-event-id")
            if exchange.method == "GET" and named in waits:
                retry, ended = waits[named]
                # Both times are the server's. The client learns of the end later and waits from then on, so one that
                # waits long enough never seems early.
                waited = exchange.request.time - ended
                yield judged(waited >= retry, exchange.request, f"it waited {waited:.3f} of {retry} seconds")


@stated_rule(since="2025-03-26")
def answer_content_types_read(history: History) -> Iterator[Verdict]:
    """Judge the first result: a client that can't read it tries the other era, or begins again without a reason."""
    # After a 404 a new handshake is what the text demands (Session Management).
    ended = any(exchange.status == 404 for each in history for exchange in each.exchanges.values())
    connections = [*over_http(iter(history))]
    for at, connection in enumerate(connections):
        first = next((asked for asked in connection.requests if asked.result is not None), None)
        exchange = connection.exchanges.get(first.event.exchange or 0) if first is not None else None
        # A client may have other reasons to begin again if it does not know the version that was agreed.
        if first is None or exchange is None or exchange.response is None or connection.revision not in SPEAKABLE:
            continue
        kind = exchange.response.headers.get("content-type")
        later = [message for _, message in after(connection, first.answers[0])]
        again = any(is_request(message) and message["method"] == "initialize" for message in later)
        if first.method == "initialize" and not later and not ended:
            again = any(asked.method == "initialize" for each in connections[at + 1 :] for asked in each.requests)
        # A client that sends nothing more may be done, which shows neither that it could read nor that it couldn't.
        if later or again:
            yield judged(not again, first.answers[0], f"it sends initialize after a response as {kind}")
