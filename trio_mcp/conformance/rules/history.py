"""Indexes a transcript: which response belongs to which request, what was negotiated, and what was listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar

import attrs

from trio_mcp.conformance.members import object_of, objects_of
from trio_mcp.conformance.transcript.events import Event, Sender
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.types import meta
from trio_mcp.types.versions import LATEST_LEGACY, MODERN_REVISIONS, REVISIONS

if TYPE_CHECKING:
    from trio_mcp.schema.validator import SchemaValidator

__all__ = [
    "Connection",
    "Exchange",
    "History",
    "RecordedRequest",
    "id_key",
    "is_message",
    "is_notification",
    "is_request",
    "is_response",
    "media_type",
    "meta_of",
    "params_of",
]

T = TypeVar("T")

OTHER: Final[dict[Sender, Sender]] = {"client": "server", "server": "client"}
LISTS: Final = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


def params_of(event: Event) -> dict[str, Any]:
    """Return the parameters of a request or notification, or an empty dict if they are not an object."""
    return object_of(event.message.get("params"))


def meta_of(message: Any) -> dict[str, Any]:
    """Return the ``_meta`` of a message, from its parameters or else from its result; empty if it is missing."""
    message = object_of(message)
    return object_of(object_of(message.get("params", message.get("result"))).get("_meta"))


def is_request(message: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is a well-formed request."""
    return isinstance(message, dict) and isinstance(message.get("method"), str) and is_request_id(message.get("id"))


def is_notification(message: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is a well-formed notification."""
    return isinstance(message, dict) and isinstance(message.get("method"), str) and "id" not in message


def is_response(message: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is a response, well-formed or not."""
    # A message with both a result and an error counts, too: it breaks a rule, but it is still meant as a response, so
    # its request counts as answered.
    return isinstance(message, dict) and "method" not in message and ("result" in message or "error" in message)


def is_message(message: Any) -> bool:
    """Return whether a JSON value is one message: a request, a notification or a response."""
    return is_request(message) or is_notification(message) or is_response(message)


def media_type(head: Event) -> str:
    """Return the media type that the head of an HTTP message announces for its body, without parameters."""
    return head.headers.get("content-type", "").partition(";")[0].strip().lower()


@attrs.define(eq=False)
class RecordedRequest:
    """A request, with the responses, progress and cancellation that belong to it.

    Attributes:
        event: The event that carries the request.
        answers: The responses from the other side with the request's id, in order; more than one breaks a rule.
        cancelled: The event by which the sender gave up the request: a notification, or the end of the HTTP response.
        progress: The progress notifications with the request's token.
        overdue: The mark that says that no response came in time.
    """

    event: Event
    answers: list[Event] = attrs.Factory(list)
    cancelled: Event | None = None
    progress: list[Event] = attrs.Factory(list)
    overdue: Event | None = None

    @property
    def id(self) -> Any:
        """The id of the request."""
        return self.event.message["id"]

    @property
    def method(self) -> str:
        """The method of the request."""
        method: str = self.event.message["method"]
        return method

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the request; empty unless they are an object."""
        return params_of(self.event)

    @property
    def meta(self) -> dict[str, Any]:
        """The ``_meta`` in the request's parameters; empty if it is missing."""
        return object_of(self.params.get("_meta"))

    @property
    def result(self) -> dict[str, Any] | None:
        """The result in the first response to the request; None if it is missing, or not an object."""
        found = self.answers[0].message.get("result") if self.answers else None
        return found if isinstance(found, dict) else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The error in the first response to the request; None if it is missing, or not an object."""
        found = self.answers[0].message.get("error") if self.answers else None
        return found if isinstance(found, dict) else None


@attrs.define(eq=False)
class Exchange:
    """An HTTP request and its response.

    Attributes:
        request: The event of the request's head.
        sent: The messages in the request's body, or the texts in it that are not JSON.
        response: The event of the response's head, if one came.
        received: The messages in the response's body or on its stream, or the texts in it that are not JSON.
        end: The event that ends the response, if it has ended.
        document: The body of a response that is not about MCP, such as metadata, if it was a JSON object.
    """

    request: Event
    sent: list[Event] = attrs.Factory(list)
    response: Event | None = None
    received: list[Event] = attrs.Factory(list)
    end: Event | None = None
    document: dict[str, Any] | None = None

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self.request.facts.get("method"))

    @property
    def status(self) -> int | None:
        """The HTTP status of the response, if one came."""
        return None if self.response is None else int(self.response.facts["status"])

    @property
    def message(self) -> Any:
        """The JSON value in the request's body; None unless there is exactly one."""
        return self.sent[0].message if len(self.sent) == 1 else None

    @property
    def resumes(self) -> int | None:
        """The number of the exchange that carried the stream until this one resumed it; None if none was found."""
        found: int | None = self.request.facts.get("resumes")
        return found

    @property
    def is_stream(self) -> bool:
        """Whether the response is a stream of server-sent events."""
        return self.response is not None and media_type(self.response) == "text/event-stream"


@attrs.define(eq=False)
class Connection:
    """The events of one connection (over HTTP: with one client), in order.

    Attributes:
        number: The number of the connection in the transcript.
        events: The events on the connection.
        requests: The client's requests, well-formed ones only.
        questions: The server's requests, well-formed ones only.
        exchanges: The HTTP exchanges, by number.
        close: The event of the connection's end, if it has ended.
    """

    number: int
    events: list[Event] = attrs.Factory(list)
    requests: list[RecordedRequest] = attrs.Factory(list)
    questions: list[RecordedRequest] = attrs.Factory(list)
    exchanges: dict[int, Exchange] = attrs.Factory(dict)
    close: Event | None = None
    _open: dict[tuple[Sender, Any], RecordedRequest] = attrs.Factory(dict)
    _tokens: dict[tuple[Sender, Any], RecordedRequest] = attrs.Factory(dict)
    # Events are looked up by identity, so the events that are made for the messages of a batch are kept alive in
    # `_parts`.
    _places: dict[int, int] = attrs.Factory(dict)
    _parts: dict[int, list[Event]] = attrs.Factory(dict)
    _uses: dict[Any, int] = attrs.Factory(dict)
    _givers: dict[Any, list[Event]] = attrs.Factory(dict)
    _kept: dict[tuple[str, int], Any] = attrs.Factory(dict)

    @cached_property
    def transport(self) -> str:
        """The name of the transport, such as ``stdio``, ``tcp``, ``unix``, ``websocket``, ``http`` or ``memory``."""
        return next((str(e.facts.get("transport", "")) for e in self.events if e.kind == "open"), "")

    @cached_property
    def hello(self) -> RecordedRequest | None:
        """The first ``initialize`` that got a result, if any."""
        return next((asked for asked in self.requests if asked.method == "initialize" and asked.result), None)

    @cached_property
    def session(self) -> Event | None:
        """The HTTP response that assigned the connection's session id, if one did."""
        exchange = None if self.hello is None else self.exchanges.get(self.hello.event.exchange or 0)
        response = None if exchange is None else exchange.response
        return response if response is not None and "mcp-session-id" in response.headers else None

    @property
    def session_id(self) -> str | None:
        """The id of the connection's session, if it has one."""
        return None if self.session is None else self.session.headers["mcp-session-id"]

    @cached_property
    def session_end(self) -> Event | None:
        """The HTTP response with which the server agreed to end the session, if it did."""
        if self.session is None:
            return None
        for exchange in self.exchanges.values():
            same = exchange.request.headers.get("mcp-session-id") == self.session_id
            if exchange.method == "DELETE" and same and 200 <= (exchange.status or 0) < 300:
                return exchange.response
        return None

    def is_after_session(self, event: Event) -> bool:
        """Return whether an event came after the client's successful request to end its session."""
        # The position of the request decides, not that of the response: the server may have ended the session before
        # the client learns of it.
        end = None if self.session_end is None else self.exchanges[self.session_end.exchange or 0].request
        return end is not None and self.position(event) > self.position(end)

    @cached_property
    def revision(self) -> str:
        """The revision that the two sides speak: as negotiated, or as the client's requests name it."""
        if self.hello is not None and self.hello.result is not None:
            return str(self.hello.result.get("protocolVersion"))
        # The first revision that exists is taken: a client may first try a version that is not supported, on its own or
        # because a plan says so, before it continues in another.
        named = [asked.meta.get(meta.PROTOCOL_VERSION) for asked in self.requests]
        # A server that makes the client sign in may have refused everything.
        named += [event.facts.get("revision") for event in self.events if event.facts.get("what") == "login"]
        return next((name for name in named if name in REVISIONS), LATEST_LEGACY)

    @property
    def modern(self) -> bool:
        """Whether the revision belongs to the modern era."""
        return self.revision in MODERN_REVISIONS

    @cached_property
    def server_capabilities(self) -> dict[str, Any]:
        """The capabilities that the server declared; empty if it declared none."""
        for asked in self.requests:
            if asked.method in ("initialize", "server/discover") and asked.result is not None:
                return object_of(asked.result.get("capabilities"))
        return {}

    @cached_property
    def client_capabilities(self) -> dict[str, Any]:
        """The capabilities that the client declared in ``initialize``; in the modern era each request has its own."""
        return object_of(self.hello.params.get("capabilities")) if self.hello is not None else {}

    @cached_property
    def listed(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The items that the server listed, in their latest form: keyed by the list's method, then by name or URI."""
        found: dict[str, dict[str, dict[str, Any]]] = {method: {} for method in LISTS}
        for asked in self.requests:
            if asked.method in LISTS and asked.result is not None:
                field, key = LISTS[asked.method]
                found[asked.method] |= {
                    item[key]: item for item in objects_of(asked.result.get(field)) if isinstance(item.get(key), str)
                }
        return found

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools that the server listed, by name."""
        return self.listed["tools/list"]

    def messages(self, sender: Sender) -> Iterator[Event]:
        """Yield the JSON values that one side sent, in order; a batch counts as one value."""
        return (event for event in self.events if event.kind == "message" and event.sender == sender)

    def notifications(self, sender: Sender, method: str | None = None) -> Iterator[Event]:
        """Yield the notifications that one side sent outside batches; only those of ``method``, if given."""
        for event in self.messages(sender):
            if is_notification(event.message) and method in (None, event.message["method"]):
                yield event

    def position(self, event: Event) -> int:
        """Return the place of an event among the connection's events."""
        return self._places[id(event)]

    def parts(self, event: Event) -> Sequence[Event]:
        """Return the messages of a batch, each as an event of its own."""
        return self._parts.get(id(event), ())

    def uses(self, request_id: Any) -> int:
        """Return how many of the client's messages, well-formed or not, had this id; responses don't count."""
        return self._uses.get(id_key(request_id), 0)

    def givers(self, token: Any) -> Sequence[Event]:
        """Return the client's messages, well-formed or not, that asked for progress with this token."""
        return self._givers.get(id_key(token), ())

    def kept(self, name: str, event: Event, find: Callable[[], T]) -> T:
        """Return a cached fact about an event, by name; ``find`` computes it the first time."""
        key = name, id(event)
        if key not in self._kept:
            self._kept[key] = find()
        found: T = self._kept[key]
        return found

    # --- called by `History` ------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Add an event to the connection, and index it."""
        self._places[id(event)] = len(self.events)
        self.events.append(event)
        if event.kind == "close":
            self.close = event
        elif event.kind == "mark" and event.facts.get("what") == "overdue":
            asked = self._open.get((event.facts.get("by", "client"), id_key(event.facts.get("id"))))
            if asked is not None:
                asked.overdue = event
        if event.exchange is not None:
            self._take_exchange(event, event.exchange)
        if event.kind == "message":
            if not isinstance(event.message, list):
                self._take_message(event)
                return
            parts = self._parts[id(event)] = []
            for message in event.message:
                # All parts get the position of the batch, because a batch may be processed in any order (JSON-RPC 2.0,
                # section 6).
                part = attrs.evolve(event, message=message)
                parts.append(part)
                self._places[id(part)] = self._places[id(event)]
                self._take_message(part)

    def _take_exchange(self, event: Event, number: int) -> None:
        if event.kind == "request":
            self.exchanges[number] = Exchange(event)
        if (exchange := self.exchanges.get(number)) is None:
            return
        if event.kind == "response":
            exchange.response = event
        elif event.kind == "mark" and event.facts.get("what") == "document":
            document = event.facts.get("document")
            exchange.document = document if isinstance(document, dict) else None
        elif event.kind in ("message", "text"):
            (exchange.sent if event.sender == exchange.request.sender else exchange.received).append(event)
        elif event.kind == "end":
            exchange.end = event
            # In the modern era a client gives up a request over HTTP by ending the response.
            if event.facts.get("by") == "client":
                for sent in exchange.sent:
                    asked = (
                        self._open.get(("client", id_key(sent.message.get("id")))) if is_request(sent.message) else None
                    )
                    # In the legacy era a lost connection is not a cancellation: the request continues.
                    modern = asked is not None and asked.meta.get(meta.PROTOCOL_VERSION) in MODERN_REVISIONS
                    if asked is not None and modern:
                        self._give_up(asked, event)

    def _give_up(self, asked: RecordedRequest, event: Event) -> None:
        # Cancelling an overdue request doesn't count: the request was given up only because no response came in time,
        # so the cancellation does not excuse the missing response.
        if asked.cancelled is None and not asked.answers and asked.overdue is None:
            asked.cancelled = event

    def _take_message(self, event: Event) -> None:
        message = event.message
        if event.sender == "client" and isinstance(message, dict) and "id" in message and not is_response(message):
            # Malformed requests count, too: a server may respond to one by its id although something else in it is
            # wrong.
            self._uses[id_key(message["id"])] = self.uses(message["id"]) + 1
        if event.sender == "client" and (token := _token(message)) is not None:
            self._givers.setdefault(id_key(token), []).append(event)
        if is_request(message):
            asked = RecordedRequest(event)
            (self.requests if event.sender == "client" else self.questions).append(asked)
            # The request stays in `_open` after its response: a second response, or a late cancellation, must still
            # find it.
            self._open[event.sender, id_key(asked.id)] = asked
            if is_request_id(token := asked.meta.get(meta.PROGRESS_TOKEN)):
                self._tokens[event.sender, id_key(token)] = asked
        elif is_response(message):
            other = OTHER.get(event.sender)
            if other is not None and (found := self._open.get((other, id_key(message.get("id"))))) is not None:
                found.answers.append(event)
        elif is_notification(message):
            params = params_of(event)
            if message["method"] == "notifications/cancelled":
                # A side cancels only its own requests: the two sides choose ids separately, and the same id may be open
                # in both directions.
                found = self._open.get((event.sender, id_key(params.get("requestId"))))
                if found is not None:
                    self._give_up(found, event)
            elif message["method"] == "notifications/progress":
                other = OTHER.get(event.sender)
                if other is not None and (found := self._tokens.get((other, id_key(params.get("progressToken"))))):
                    found.progress.append(event)


def _token(message: Any) -> Any:
    return object_of(object_of(object_of(message).get("params")).get("_meta")).get(meta.PROGRESS_TOKEN)


def id_key(value: Any) -> Any:
    """Return a dictionary key for an id, or for any value sent as an id: 1, "1" and true have different keys."""
    # Lists and objects can't be hashed, so their text is the key.
    return type(value).__name__, value if isinstance(value, (int, str, float)) else repr(value)


class History:
    """A transcript with an index, which the rules judge.

    Args:
        events: The events of the transcript.
        since: The index of the first event on which verdicts count; the events before it are the prologue.

    Attributes:
        events: The events of the transcript.
        connections: The connections in the transcript, by number.
        validators: Validators for the JSON Schemas that rules have used, by the text of the schema; None for a schema
            that can't be used.
    """

    def __init__(self, events: Sequence[Event], since: int = 0) -> None:
        self.events = events
        # Events are compared by identity, because comparing large messages by value is slow, and two events of the same
        # instant may be equal.
        self._prologue = {id(event) for event in events[:since]}
        self.connections: dict[int, Connection] = {}
        self.validators: dict[str, SchemaValidator | None] = {}
        self._order = {id(event): place for place, event in enumerate(events)}
        for event in events:
            if (connection := self.connections.get(event.connection)) is None:
                connection = self.connections[event.connection] = Connection(event.connection)
            connection.take(event)
            if id(event) in self._prologue:
                self._prologue.update(map(id, connection.parts(event)))

    def __iter__(self) -> Iterator[Connection]:
        return iter(self.connections.values())

    def order(self, event: Event) -> int:
        """Return the place of an event in the transcript; -1 for a part of a batch."""
        return self._order.get(id(event), -1)

    def counts(self, event: Event) -> bool:
        """Return whether a verdict on this event counts: verdicts on the prologue don't."""
        return id(event) not in self._prologue

    def requests(self, *methods: str) -> Iterator[tuple[Connection, RecordedRequest]]:
        """Yield the client's requests of these methods, or of all methods, each with its connection."""
        for connection in self:
            for asked in connection.requests:
                if not methods or asked.method in methods:
                    yield connection, asked
