"""The messages of a recorded server, indexed by those that made it send them.

Every message of the client is a cue: the messages of the server that followed from it are its steps. What answers a
request, or reports its progress, follows from that request; over HTTP, so does all that came in its response. Anything
else follows from the newest request that was open, or, if none was, from the client's last message.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from trio_mcp.conformance.members import member_of, object_of
from trio_mcp.conformance.rules.history import id_key, is_notification, is_request, is_response
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.files import TranscriptError, read_transcript
from trio_mcp.conformance.transcript.masking import Masker
from trio_mcp.types import meta

__all__ = ["LISTEN", "Book", "Cue", "RecordedStep", "comparable", "key_of", "read_book", "request_text", "shown"]

Kind: TypeAlias = Literal["answer", "notice", "question"]

OPENING: Final = ("initialize", "server/discover", "ping")
"""The methods whose parameters say only who the client is, so that any client gets what the recorded one got."""
LISTEN: Final = "subscriptions/listen"

# Arbitrary limits on the search for the nearest request and on the text about it.
MAX_CANDIDATES: Final = 200
MAX_COMPARED: Final = 500
MAX_SHOWN: Final = 300
MAX_TEXT: Final = 60


@attrs.define(eq=False)
class RecordedStep:
    """A message of the recorded server.

    Attributes:
        kind: Whether it answers its cue, is a notification, or a request to the client.
        message: The message.
        apart: Whether it came elsewhere than its cue's answer: after it, or over HTTP on the session's own stream.
        listener: The request for changes (`subscriptions/listen`) whose stream carried it, if one did.
        answer: The client's response to a question, if it gave one.
    """

    kind: Kind
    message: dict[str, Any]
    apart: bool = False
    listener: Cue | None = None
    answer: dict[str, Any] | None = None


@attrs.define(eq=False)
class Cue:
    """A message of the recorded client, and what followed from it.

    Attributes:
        method: Its method.
        key: What it is found by: the method and the parameters, as a text.
        steps: What followed, in order.
        exchange: The number of the HTTP exchange that carried it, if any.
        status: The HTTP status of that exchange, if any.
        cancelled: Whether the client gave it up.
        is_modern: Whether it was sent in the modern era.
    """

    method: str
    key: str
    steps: list[RecordedStep] = attrs.Factory(list)
    exchange: int | None = None
    status: int | None = None
    cancelled: bool = False
    is_modern: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether it got a response."""
        return any(step.kind == "answer" for step in self.steps)


class Book:
    """The cues of a recording.

    Args:
        events: The events of the transcript.

    Attributes:
        requests: The client's requests, by their key.
        notices: The client's notifications, by their method.
    """

    def __init__(self, events: tuple[Event, ...]) -> None:
        self.requests: dict[str, list[Cue]] = {}
        self.notices: dict[str, list[Cue]] = {}
        indices: dict[int, _Connection] = {}
        for event in events:
            index = indices.setdefault(event.connection, _Connection(self))
            index.take(event)

    def add(self, cue: Cue, *, request: bool) -> None:
        """Add a cue."""
        if request:
            self.requests.setdefault(cue.key, []).append(cue)
        else:
            self.notices.setdefault(cue.method, []).append(cue)

    def find(self, method: str, params: Any) -> list[Cue]:
        """Return the recorded requests with this method and these parameters, in order; those without an answer last.

        A request that got none although the client waited says nothing, since the recording may just have ended.
        """
        found = self.requests.get(key_of(method, params), [])
        return [each for each in found if each.is_answered or each.cancelled or each.method == LISTEN] or found

    def nearest(self, method: str, params: Any) -> str | None:
        """Return the recorded request that is most like this one, as a text; None if no request has this method."""
        wanted = key_of(method, params)
        same = [key for key, cues in self.requests.items() if cues[0].method == method][:MAX_CANDIDATES]
        if not same:
            return None

        def likeness(key: str) -> float:
            return difflib.SequenceMatcher(None, wanted[:MAX_COMPARED], key[:MAX_COMPARED], autojunk=False).ratio()

        return request_text(max(same, key=likeness))

    @property
    def methods(self) -> list[str]:
        """The methods that were requested."""
        return sorted({cues[0].method for cues in self.requests.values()})


class _Connection:
    """Finds the cue of each message on one connection."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._masker = Masker()
        self._last: Cue | None = None
        # All requests stay here after their answers: progress that comes late still belongs to them.
        self._by_id: dict[Any, Cue] = {}
        self._by_token: dict[Any, Cue] = {}
        self._open: dict[int, Cue] = {}
        self._by_exchange: dict[int, list[Cue]] = {}
        self._questions: dict[Any, RecordedStep] = {}

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.kind == "response" and event.exchange is not None:
            for cue in self._by_exchange.get(event.exchange, ()):
                cue.status = event.facts["status"]
        elif event.kind == "end" and event.facts.get("by") == "client" and event.exchange is not None:
            for cue in self._by_exchange.get(event.exchange, ()):
                if cue.is_modern and not cue.is_answered:
                    self._give_up(cue)
        elif event.kind == "message":
            for message in event.message if isinstance(event.message, list) else [event.message]:
                if event.sender == "client":
                    self._from_client(message, event.exchange)
                elif event.sender == "server":
                    self._from_server(message, event.exchange)

    def _from_client(self, message: Any, exchange: int | None) -> None:
        if is_response(message):
            if (asked := self._questions.pop(id_key(message.get("id")), None)) is not None:
                asked.answer = message
            return
        if not is_request(message) and not is_notification(message):
            return
        # The live message will be masked before it is compared, so that one secret is as good as another.
        message = self._masker.value(message)
        method, params = message["method"], object_of(message.get("params"))
        if method == "notifications/cancelled":
            if (given_up := self._by_id.get(id_key(params.get("requestId")))) is not None:
                self._give_up(given_up)
            return
        modern = meta.PROTOCOL_VERSION in object_of(params.get("_meta"))
        cue = Cue(method, key_of(method, params), exchange=exchange, is_modern=modern)
        self._book.add(cue, request=is_request(message))
        self._last = cue
        if exchange is not None:
            self._by_exchange.setdefault(exchange, []).append(cue)
        if is_request(message):
            self._by_id[id_key(message["id"])] = cue
            self._open[id(cue)] = cue
            if (token := member_of(params, "_meta", meta.PROGRESS_TOKEN)) is not None:
                self._by_token[id_key(token)] = cue

    def _give_up(self, cue: Cue) -> None:
        cue.cancelled = cue.cancelled or not cue.is_answered
        self._open.pop(id(cue), None)

    def _from_server(self, message: Any, exchange: int | None) -> None:
        if is_response(message):
            cue = self._by_id.get(id_key(message.get("id")))
            if cue is not None and not cue.is_answered:
                cue.steps.append(RecordedStep("answer", message))
                self._open.pop(id(cue), None)
            return
        if not is_request(message) and not is_notification(message):
            return
        step = RecordedStep("question" if is_request(message) else "notice", message)
        cue = self._cue(message, exchange, step)
        # A message before any message of the client has no cue; no transport of the protocol has such messages.
        if cue is None:
            return
        step.apart = cue.is_answered or (exchange is not None and exchange != cue.exchange)
        cue.steps.append(step)
        if is_request(message):
            self._questions[id_key(message["id"])] = step

    def _cue(self, message: dict[str, Any], exchange: int | None, step: RecordedStep) -> Cue | None:
        params = object_of(message.get("params"))
        if message["method"] == "notifications/progress":
            found = self._by_token.get(id_key(params.get("progressToken")))
            if found is not None:
                return found
        carried = [each for each in self._by_exchange.get(exchange, ()) if not each.is_answered] if exchange else []
        listener = self._by_id.get(id_key(member_of(params, "_meta", meta.SUBSCRIPTION_ID)))
        if listener is None and carried and carried[-1].method == LISTEN:
            listener = carried[-1]
        if listener is None and carried:
            return carried[-1]
        # The first message on such a stream says what is listened to.
        if listener is not None and not listener.steps:
            return listener
        waiting = [each for each in self._open.values() if each.method != LISTEN]
        cue = waiting[-1] if waiting else self._last
        step.listener = listener if listener is not cue else None
        return cue


# --- keys -------------------------------------------------------------------------------------------------------------


def key_of(method: str, params: Any) -> str:
    """Return what a request is found by: its method and its parameters, without what differs from run to run."""
    if method in OPENING:
        return method
    found = {name: value for name, value in object_of(params).items() if name != "_meta" and value is not None}
    # No arguments are the same as empty ones.
    if not found.get("arguments"):
        found.pop("arguments", None)
    if isinstance(answers := found.get("inputResponses"), dict):
        found["inputResponses"] = {name: comparable(each) for name, each in answers.items()}
    return f"{method} {json.dumps(found, sort_keys=True)}" if found else method


def comparable(answer: Any) -> Any:
    """Return what is compared of a client's answer to a question.

    What a person has filled in decides what the server does next. The words of a model, and the folders of a machine,
    differ from run to run, so any are as good as those that were recorded.
    """
    answer = {name: value for name, value in object_of(answer).items() if name not in ("_meta", "resultType")}
    if isinstance(answer.get("roots"), list):
        return "roots"
    return "a message of a model" if "role" in answer and "content" in answer else answer


def request_text(key: str) -> str:
    """Return the key of a request for an error message, with long texts in it cut, so that all members are shown."""
    method, _, params = key.partition(" ")
    return shown(f"{method} {json.dumps(_cut(json.loads(params)))}" if params else method)


def _cut(value: Any) -> Any:
    match value:
        case str():
            return value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT - 3]}..."
        case list():
            return [_cut(each) for each in value]
        case dict():
            return {name: _cut(each) for name, each in value.items()}
    return value


def shown(text: str) -> str:
    """Return a text for an error message: ASCII, in one line, cut."""
    # `json.dumps` has escaped all but the method.
    text = "".join(each if each.isascii() and each.isprintable() else ascii(each)[1:-1] for each in text[:MAX_SHOWN])
    return text if len(text) < MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def read_book(path: str | Path) -> Book:
    """Read a recording that a server can be made of.

    Raises:
        TranscriptError: If the file can't be read, is not a transcript, or has no request of a client with a response.
    """
    transcript = read_transcript(path)
    try:
        book = Book(transcript.events)
        # Each message will be written again, so what can't be is found now.
        for step in _steps(book):
            json.dumps(step.message)
    except RecursionError:
        raise TranscriptError(f"{path}: a message is nested too deeply") from None
    if not any(cue.is_answered for cues in book.requests.values() for cue in cues):
        raise TranscriptError(f"{path}: nothing is answered in this recording, so no server can be made of it")
    return book


def _steps(book: Book) -> Iterator[RecordedStep]:
    found: tuple[Mapping[str, list[Cue]], ...] = (book.requests, book.notices)
    for cues in found:
        for each in cues.values():
            for cue in each:
                yield from cue.steps
