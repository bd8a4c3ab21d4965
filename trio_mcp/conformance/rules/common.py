"""Helpers that the rules share: which requests are free of faults, and which of two events certainly came first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of, object_of, objects_of
from trio_mcp.conformance.rules.history import (
    Connection,
    History,
    RecordedRequest,
    is_notification,
    is_request,
    meta_of,
)
from trio_mcp.conformance.rules.model import Verdict, broken, held
from trio_mcp.conformance.rules.shape import flaw
from trio_mcp.conformance.transcript.events import Event, Sender
from trio_mcp.eras.capabilities import declares
from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.types import meta
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS

__all__ = [
    "LEGACY",
    "MODERN",
    "asked_about",
    "code_of",
    "code_or_result",
    "declares",
    "ended_without_cause",
    "first_after",
    "has_read",
    "is_in_order",
    "is_ordered",
    "is_plain",
    "is_proper",
    "is_same_id",
    "is_unknown",
    "lost",
    "messages_of",
    "named",
    "notifications",
    "pages",
    "schema_problem",
    "subject_of",
    "subscribed",
    "subscription_of",
    "supported",
    "survived",
]

LEGACY: Final = LEGACY_REVISIONS
MODERN: Final = MODERN_REVISIONS

# Beyond these limits, two programs may read the same JSON differently, or refuse it with good reason. A double
# represents integers up to SAFE_INTEGER exactly (RFC 8259, section 6); the other limits are arbitrary choices, far
# beyond ordinary messages.
SAFE_INTEGER: Final = 2**53 - 1
LONGEST_ID: Final = 1000
LARGEST: Final = 100_000
DEEPEST: Final = 50


# --- messages ---------------------------------------------------------------------------------------------------------


def is_plain(connection: Connection, event: Event) -> bool:
    """Return whether every server must understand a message from the client as the same request or notification."""
    return connection.kept("plain", event, lambda: _is_plain(connection, event))


def _is_plain(connection: Connection, event: Event) -> bool:
    message = event.message
    if event.text is not None or not isinstance(message, dict) or not message.keys() <= _ENVELOPE:
        return False
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        return False
    if not isinstance(message.get("params", {}), dict) or not _is_safe_id(message.get("id", 0)):
        return False
    # A request whose headers were altered, or that was sent after the end of its session, may be refused for that
    # reason.
    exchange = connection.exchanges.get(event.exchange or 0)
    if (exchange is not None and exchange.request.facts.get("altered")) or connection.is_after_session(event):
        return False
    try:
        size = len(json.dumps(message, ensure_ascii=False).encode())
    except (ValueError, RecursionError):  # a lone surrogate, or far too deep nesting
        return False
    return size <= LARGEST and _depth(message) <= DEEPEST


_ENVELOPE: Final = frozenset({"jsonrpc", "id", "method", "params"})


def _is_safe_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_ID
    return type(value) is int and abs(value) <= SAFE_INTEGER


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list))]
        level = [each for values in inner for each in values]
    return depth


def is_proper(connection: Connection, asked: RecordedRequest) -> bool:
    """Return whether a request obeys every rule for clients, so that the server has no reason to refuse its form."""
    return connection.kept("proper", asked.event, lambda: _is_proper(connection, asked))


def _is_proper(connection: Connection, asked: RecordedRequest) -> bool:
    # Using an id twice breaks a rule for clients, and the server's response to either request may be about that fault.
    if not is_plain(connection, asked.event) or connection.uses(asked.id) != 1:
        return False
    message = asked.event.message
    if connection.modern:
        if asked.meta.get(meta.PROTOCOL_VERSION) != connection.revision:
            return False
        if not isinstance(asked.meta.get(meta.CLIENT_CAPABILITIES), dict):
            return False
    elif asked.method not in ("initialize", "ping"):
        # Before the handshake is over, a server may refuse any other request.
        ready = next(connection.notifications("client", "notifications/initialized"), None)
        if connection.hello is None or ready is None or connection.position(ready) > connection.position(asked.event):
            return False
    spec = method_spec(connection.revision, asked.method)
    # An unknown method has no form to depart from; `unknown_method_refused` judges whether it is refused.
    if spec is None:
        return True
    if "params" not in message:
        return not spec.params_required
    # One match is enough: `elicitation/create` has two forms of parameters, and a request needs to fit only one.
    return any(flaw(model, message["params"], connection.revision) is None for model in spec.params_models)


# How long these requests take is up to the application: the specification sets no time limit for any of them.
_WORK: Final = ("tools/call", "prompts/get", "resources/read", "completion/complete", "tasks/result")
# The kit repeats a request to see whether it is lost. A recording of another program has no such repetition, so a
# silence of this length, in seconds, must be proof enough.
_AN_HOUR: Final = 3600.0


def lost(asked: RecordedRequest) -> Event | None:
    """Return the mark in the transcript that shows that a request will never get a response, or None.

    A request for which the application has work to do may just take a long time. Such a request counts as lost only if
    the same request got a response another time, or if an hour has passed.
    """
    mark = asked.overdue
    if mark is None or asked.cancelled is not None or asked.answers:
        return None
    if asked.method in _WORK and not mark.facts.get("answered_again") and mark.facts.get("seconds", 0) < _AN_HOUR:
        return None
    return mark


def ended_without_cause(connection: Connection) -> bool:
    """Return whether the server ended the connection although nothing that the client did entitled it to."""
    if connection.close is None or connection.close.sender != "server" or not is_ordered(connection):
        return False
    # The messages before a request that got a response evidently did no harm, so only the later ones are examined.
    harmless = max((connection.position(asked.event) for asked in connection.requests if asked.answers), default=0)
    example = connection.events[harmless:]
    # Over stdio, a server rightly ends when its client closes the input, whichever requests are open.
    if any(e.kind == "mark" and e.facts.get("what") == "half closed" for e in example):
        return False
    # A WebSocket is closed over text that is not UTF-8 (RFC 6455, section 8.1), and may be closed over text that is not
    # JSON, so such text excuses the end. A request or notification with something unusual in it, such as deep nesting,
    # does not.
    return all(
        e.kind == "message" and (is_plain(connection, e) or is_request(e.message) or is_notification(e.message))
        for e in example
        if e.sender == "client" and e.kind in _SAID
    )


_SAID: Final = ("message", "text")


# Only the first plain request after the event that decides anything is judged: later ones would add nothing.
def survived(connection: Connection, event: Event) -> Iterator[Verdict]:
    """Check that the server still responds to requests after an event."""
    place = connection.position(event)
    for asked in connection.requests:
        if connection.position(asked.event) > place and is_plain(connection, asked.event):
            if asked.answers:
                yield held(asked.answers[0])
            elif asked.cancelled is not None or (asked.overdue is not None and lost(asked) is None):
                continue  # a cancelled request, or one that may just be slow, proves nothing
            elif (mark := lost(asked)) is not None:
                yield broken(mark, f"{asked.method} was no longer answered")
            elif ended_without_cause(connection):
                yield broken(connection.close or event, "the server ended the connection")
            return


def code_of(asked: RecordedRequest) -> int | None:
    """Return the code of the error in a request's first response; None if the response is not an error with a code."""
    code = asked.error.get("code") if asked.error is not None else None
    return code if isinstance(code, int) else None


def code_or_result(asked: RecordedRequest) -> str:
    """Return the code of the error that a request got, as text; ``a result`` if it got none."""
    code = code_of(asked)
    return "a result" if code is None else str(code)


def asked_about(history: History, *methods: str) -> Iterator[tuple[Connection, RecordedRequest, Event]]:
    """Yield the valid requests of these methods, or of all methods, that got a response: connection, request, response.

    Requests that got an error after they were cancelled are left out: the error may be about the cancellation.
    """
    for connection, asked in history.requests(*methods):
        if asked.answers and not is_refused_late(asked) and is_proper(connection, asked):
            yield connection, asked, asked.answers[0]


def is_refused_late(asked: RecordedRequest) -> bool:
    """Return whether a request was cancelled and also got an error."""
    return asked.cancelled is not None and asked.error is not None


def is_count(value: Any) -> bool:
    """Return whether a value is an integer from 0 up, as JSON has them."""
    # In Python a bool is an int; in JSON it isn't. To JSON, 1.0 is an integer.
    return (type(value) is int or (type(value) is float and value.is_integer())) and value >= 0


def wrong_members(holder: dict[str, Any], wrong: dict[str, bool]) -> str | None:
    """Return a line about the members of an object that are wrong; None if none is."""
    told = (f"{name} is {holder.get(name, 'missing')!r:.60}" for name, is_wrong in wrong.items() if is_wrong)
    return "; ".join(told) or None


def supported(history: History) -> set[str]:
    """Return the revisions that the server says it supports."""
    # The whole history is searched: the revisions of a server do not depend on the connection.
    named = (items_of(asked.result, "supportedVersions") for _, asked in history.requests("server/discover"))
    return {each for versions in named for each in versions if isinstance(each, str)}


def offering(history: History, extension: str) -> Iterator[Connection]:
    """Yield the connections of the modern era to servers that declare an extension."""
    for connection in history:
        if connection.modern and extension in object_of(connection.server_capabilities.get("extensions")):
            yield connection


def subject_of(asked: RecordedRequest) -> Any:
    """Return what a request is about: the name or the URI in its parameters."""
    return asked.params.get("name", asked.params.get("uri"))


# --- order ------------------------------------------------------------------------------------------------------------


def is_ordered(connection: Connection) -> bool:
    """Return whether messages arrive in the order in which they were sent; over HTTP they may overtake each other."""
    return connection.transport not in ("http", "sse")


def is_in_order(connection: Connection, one: Event, other: Event) -> bool:
    """Return whether two messages from the server were certainly sent in the order in which they arrived."""
    return is_ordered(connection) or (one.exchange is not None and one.exchange == other.exchange)


def first_after(connection: Connection, end: Event, events: Iterable[Event]) -> Event | None:
    """Return the first of these server messages that was certainly sent after the message ``end``, or None."""
    place = connection.position(end)
    later = (event for event in events if connection.position(event) > place)
    return next((event for event in later if is_in_order(connection, end, event)), None)


def has_read(connection: Connection, event: Event) -> int | None:
    """Return the position by which the server has certainly read a client's message, or None if nothing shows that.

    The result is the position of the first response to a request sent after the message: messages are read in order.
    Over HTTP, where each message travels by itself, the request must be sent after the response to the message's POST.
    """
    sent = event
    if event.exchange is not None:
        exchange = connection.exchanges.get(event.exchange)
        if exchange is None or (response := exchange.response) is None:
            return None
        sent = response
    place = connection.position(sent)
    answers = [
        connection.position(later.answers[0])
        for later in connection.requests
        if later.answers and connection.position(later.event) > place
    ]
    return min(answers, default=None)


# --- lists ------------------------------------------------------------------------------------------------------------


def pages(connection: Connection, method: str) -> Iterator[list[RecordedRequest]]:
    """Yield, for each time that the client read a list from its beginning, the requests for its pages in order."""
    asked = [each for each in connection.requests if each.method == method and each.result is not None]
    for first in asked:
        if "cursor" in first.params or not is_proper(connection, first):
            continue
        chain = [first]
        while (cursor := (chain[-1].result or {}).get("nextCursor")) is not None:
            place = connection.position(chain[-1].answers[0])
            later = (each for each in asked if connection.position(each.event) > place)
            following = next((each for each in later if each.params.get("cursor") == cursor), None)
            # The chain is bounded, because a server may give the same cursor again and again, and following such a
            # chain through a long transcript would take quadratic time.
            if following is None or len(chain) > 100:
                break
            chain.append(following)
        yield chain


def is_unknown(connection: Connection, method: str, name: Any) -> bool:
    """Return whether a list was read to its end and has no item with this name or URI."""
    whole = any((chain[-1].result or {}).get("nextCursor") is None for chain in pages(connection, method))
    return whole and name not in connection.listed[method]


def named(asked: Iterable[RecordedRequest], field: str, key: str) -> list[str]:
    """Return the names, or the URIs, of the items on some pages, in order."""
    items = [item for page in asked for item in objects_of((page.result or {}).get(field))]
    return [item[key] for item in items if isinstance(item.get(key), str)]


# --- schemas ----------------------------------------------------------------------------------------------------------


def schema_problem(history: History, schema: Any, value: Any) -> str | None:
    """Return how a value violates a JSON Schema; None if the value is valid, or the schema can't be used.

    The validator for the schema is cached in the history.
    """
    # Validators are cached by the schema's text, because each reading of a list brings its own copy of the same schema,
    # and compiling a schema costs more than checking a value.
    key = json.dumps(schema, sort_keys=True)
    if key not in history.validators:
        try:
            history.validators[key] = SchemaValidator(schema)
        except SchemaError:
            history.validators[key] = None
    validator = history.validators[key]
    try:
        return None if validator is None else validator.problem(value)
    except SchemaError:
        return None


def messages_of(connection: Connection, sender: Sender) -> Iterator[Event]:
    """Yield the messages that one side sent, with the parts of a batch one by one."""
    for event in connection.messages(sender):
        yield from connection.parts(event) if isinstance(event.message, list) else [event]


def notifications(connection: Connection, sender: Sender, *methods: str) -> Iterator[Event]:
    """Yield the notifications that one side sent, including those in batches; only those of ``methods``, if given."""
    for event in messages_of(connection, sender):
        if is_notification(event.message) and (not methods or event.message["method"] in methods):
            yield event


def is_same_id(one: Any, other: Any) -> bool:
    """Return whether two ids are the same; a peer may have sent any JSON value as an id."""
    # In Python, 1, 1.0 and True are equal, but as ids they differ.
    return type(one) is type(other) and bool(one == other)


# --- subscriptions ----------------------------------------------------------------------------------------------------


def subscription_of(message: Any) -> Any:
    """Return the subscription id that a message carries, or None if it carries none."""
    return meta_of(message).get(meta.SUBSCRIPTION_ID)


def subscribed(connection: Connection, listen: RecordedRequest) -> list[Event]:
    """Return the notifications that carry the id of a subscription, in order."""
    sent = notifications(connection, "server")
    return [event for event in sent if is_same_id(subscription_of(event.message), listen.id)]
