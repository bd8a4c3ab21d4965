"""Rules for results and lists: how a client handles what a server sends, as far as its next messages show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.rules.clients.shared import (
    SPEAKABLE,
    after,
    called_over_http,
    modern,
    over_http,
    parameters_of,
    sent,
    tools_at,
)
from trio_mcp.conformance.rules.history import (
    LISTS,
    Connection,
    History,
    id_key,
    is_notification,
    is_request,
    is_response,
)
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.http.headers import decode_value
from trio_mcp.types import meta

MOST: Final = 2**53 - 1
"""The largest safe integer: a double represents every integer up to this one exactly."""


@stated_rule()
def missing_result_type_complete(history: History) -> Iterator[Verdict]:
    """Check that a result without a type counts as complete: nothing is retried until a result asks for input."""
    for connection in modern(history):
        untyped: Event | None = None
        for asked in connection.requests:
            # The responses to a task's input requests are no retry.
            is_retry = asked.method != "tasks/update" and {"requestState", "inputResponses"} & set(asked.params)
            if untyped is not None and is_retry:
                yield broken(asked.event, "the client treated a result without a type as a request for input")
                break
            if asked.result is not None and asked.result.get("resultType") == "input_required":
                break
            if asked.result is not None and "resultType" not in asked.result:
                untyped = asked.answers[0]
                yield Verdict(untyped)


@stated_rule()
def empty_cursor_followed(history: History) -> Iterator[Verdict]:
    """Require a request for the next page after an empty cursor, if the client follows all other cursors of its lists.

    Connections on which the server sent malformed messages are left out: the client may have dropped other messages
    along with them.
    """
    for connection in filter(_is_clean, history):
        lists = [asked for asked in connection.requests if asked.method in LISTS]
        followed = [(asked.method, asked.params.get("cursor")) for asked in lists]
        given = [(asked, (asked.result or {}).get("nextCursor")) for asked in lists]
        others = [(asked.method, cursor) for asked, cursor in given if cursor]
        # A client need not read a list to its end. So only a client that follows every other cursor shows that it takes
        # the empty cursor for the end of the list.
        if others and all(each in followed for each in others):
            for page, cursor in given:
                if cursor == "":
                    kept = (page.method, "") in followed
                    yield judged(kept, page.answers[0], "the client did not request the page at the empty cursor")


def _is_clean(connection: Connection) -> bool:
    """Return whether everything that the server sent is a message that a client must understand."""
    ids = {id_key(asked.id) for asked in connection.requests}
    messages = [event.message for event in connection.messages("server")]
    return all(
        is_request(each) or is_notification(each) or (is_response(each) and id_key(each.get("id")) in ids)
        for each in messages
    )


def _metas(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield each client message that has a `_meta`, together with the `_meta`."""
    for event, _ in sent(history):
        message = object_of(event.message)
        found = object_of(message.get("params", message.get("result"))).get("_meta")
        if isinstance(found, dict):
            yield event, found


@stated_rule(
    who="client",
    sentence="A client builds the keys of `_meta` from a name and perhaps a prefix, as the rules for both say.",
)
@each(_metas)
def client_meta_keys_well_formed(_: Event, found: dict[str, Any]) -> Opinion:
    """Check that the `_meta` keys in the client's messages are well formed."""
    wrong = next((key for key in found if not meta.is_valid_key(key)), None)
    return None if wrong is None else f"the _meta key {wrong!r:.80} is malformed"


@stated_rule(who="client")
@each(_metas)
def client_extension_names(_: Event, found: dict[str, Any]) -> Opinion:
    """Check that the extensions that a client declares have valid names, with a prefix."""
    names = object_of(found.get(meta.CLIENT_CAPABILITIES)).get("extensions")
    if not isinstance(names, dict):
        return UNDECIDED
    wrong = next((name for name in names if "/" not in name or not meta.is_valid_key(name)), None)
    return None if wrong is None else f"the extension name {wrong!r:.80} must consist of a prefix and a name"


# --- over HTTP --------------------------------------------------------------------------------------------------------


@stated_rule()
def header_integer_safe(history: History) -> Iterator[Verdict]:
    """Check that each annotated integer sent as a header is one that a double represents exactly."""
    for event, connection, params in called_over_http(history):
        for parameter in parameters_of(connection.tools.get(str(params.get("name")), {})) or ():
            value, name = parameter.value_in(params.get("arguments")), parameter.header.lower()
            # A client that refuses the call, or leaves out the header, has not broken this rule.
            if isinstance(value, int) and not isinstance(value, bool) and name in event.headers:
                problem = f"{parameter.header} is {decode_value(event.headers[name])}"
                yield judged(abs(value) <= MOST, event, problem)


@stated_rule()
@each(called_over_http)
def bad_header_annotation_refused(event: Event, connection: Connection, params: dict[str, Any]) -> Opinion:
    """Check that, once a tool with a wrong header annotation was listed, the client does not call that tool."""
    name = params.get("name")
    refused = {name for name, tool in tools_at(connection, event).items() if parameters_of(tool) is None}
    # As long as all the server's tools are valid, nothing shows whether a client checks them.
    if not refused:
        return UNDECIDED
    return f"it calls {name!r}" if name in refused else None


@stated_rule()
def retry_respected(history: History) -> Iterator[Verdict]:
    """Check that a client that resumes a stream has waited as long as the ``retry`` field of the last event said."""
    for connection in over_http(iter(history)):
        waits: dict[str, tuple[float, float]] = {}
        for event in connection.events:
            retry, event_id = event.facts.get("retry"), event.facts.get("event_id")
            # A resumption names an event, so a `retry` can be matched only if its event has an id.
            if retry is not None and event_id is not None and event.exchange is not None:
                end = connection.exchanges[event.exchange].end
                if end is not None:
                    waits[str(event_id)] = float(retry), end.time
        for exchange in connection.exchanges.values():
            named = exchange.request.headers.get("last-event-id")
            if exchange.method == "GET" and named in waits:
                retry, ended = waits[named]
                # Both times are taken at the server. The client notices the end of the stream later, and waits from
                # then on, so a client that waits long enough never seems early.
                waited = exchange.request.time - ended
                yield judged(
                    waited >= retry, exchange.request, f"the client waited only {waited:.3f} of {retry} seconds"
                )


@stated_rule()
def answer_content_types_read(history: History) -> Iterator[Verdict]:
    """Check that the client could read the first result: a client that can't would send initialize again."""
    # After a 404, the specification requires a new handshake (Session Management), so `initialize` then shows nothing.
    ended = any(exchange.status == 404 for each in history for exchange in each.exchanges.values())
    connections = [*over_http(iter(history))]
    for at, connection in enumerate(connections):
        first = next((asked for asked in connection.requests if asked.result is not None), None)
        exchange = connection.exchanges.get(first.event.exchange or 0) if first is not None else None
        # If the client does not support the negotiated version, it may have other reasons to begin again.
        if first is None or exchange is None or exchange.response is None or connection.revision not in SPEAKABLE:
            continue
        kind = exchange.response.headers.get("content-type")
        later = [event.message for event in after(connection, first.answers[0])]
        again = any(is_request(message) and message["method"] == "initialize" for message in later)
        if first.method == "initialize" and not later and not ended:
            again = any(asked.method == "initialize" for each in connections[at + 1 :] for asked in each.requests)
        # A client that sends nothing more may be done, so its silence does not show whether it could read the result.
        if later or again:
            yield judged(not again, first.answers[0], f"the client sent initialize again after a response as {kind}")
