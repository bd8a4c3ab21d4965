"""A case of the corpus: bytes, and what the specifications allow a server to do with them."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, AnyStr, Literal, TypeAlias

import attrs

from tests.tables import listed

LATEST = "2025-11-25"
MODERN = "2026-07-28"

CLOSED = "closed"
"""The connection ends without an answer."""
ABORTED = "aborted"
"""TLS ends or refuses, by whatever records: not a byte of HTTP."""
RESET = "reset"
"""The HTTP/2 stream is reset."""
GOAWAY = "goaway"
"""The HTTP/2 connection ends. RFC 9113, 5.4.1, allows that for any error of a stream, too."""
NOTHING = "nothing"
"""What was sent is ignored, and the connection goes on."""

RESULT = "result"
"""A line of stdio is answered with a result."""
ALIVE = "alive"
"""A session over a WebSocket or in lines goes on: a call after the case has its result."""

SESSION = re.compile(rb"@(live|other|ended|own|batch)\.*@")
"""What stands for a session's id, which the server makes: one that is open, another one, one that was ended, one that
is opened for this case alone, one of the revision that has batches. With dots it is as long as an id (see `padded`)."""

Outcome: TypeAlias = int | str
Wire: TypeAlias = Literal["tcp", "tls", "h2", "hello", "broken-tls", "stdio", "ws", "wss", "lines", "lines-tls", "unix"]
Fields: TypeAlias = list[tuple[str, str]]


@attrs.frozen
class Answer:
    """The allowed responses to one request.

    Attributes:
        allowed: Statuses, or one of the words above.
        codes: The codes that a JSON-RPC error may have; None for any.
        bodiless: The request was a HEAD.
        echo: The text that the tool must give back.
    """

    allowed: frozenset[Outcome]
    codes: frozenset[int] | None = None
    bodiless: bool = False
    echo: str | None = None


@attrs.frozen
class Case:
    """One case.

    Attributes:
        family: The family that it belongs to.
        seed: The seed of the corpus.
        number: Its number in the corpus.
        name: The kind of attack.
        rule: The rule from which the expected responses follow.
        wire: What the bytes travel over: TCP; HTTP/1.1 in TLS; HTTP/2 in TLS; TCP to the port of TLS, before its
            handshake or (broken) after it; stdio; a WebSocket, over TCP or in TLS; lines over TCP, in TLS, or over a
            Unix socket.
        pieces: What is sent, with seconds of silence in between. ``@live@`` and the like stand for ids of sessions.
        answers: What may come back, in this order. For a WebSocket: to the handshake, and how it ends, which is the
            code of a close frame or a word.
        closes: The connection must end afterwards, or go on; None for either.
        probe: Whether another request may be sent afterwards, to check.
        shut: Whether the sending half is closed afterwards.
        reset: Whether the connection is reset afterwards.
        deaf: Seconds for which nothing is read; then the connection is reset.
        stream: The HTTP/2 stream that is checked.
    """

    family: str
    seed: int
    number: int
    name: str
    rule: str
    wire: Wire
    pieces: tuple[bytes | float, ...]
    answers: tuple[Answer, ...]
    closes: bool | None = None
    probe: bool = True
    shut: bool = False
    reset: bool = False
    deaf: float = 0
    stream: int = 1

    def __str__(self) -> str:
        return f"{self.family} {self.number} (seed {self.seed}, {self.wire}): {self.name}"

    @property
    def replay(self) -> str:
        """The command that runs this case alone."""
        return f"python -m tests.hostile --seed {self.seed} --family {self.family} --case {self.number}"

    def shown(self, limit: int = 2000) -> str:
        """Return the bytes in readable form."""
        text = " ".join(f"({piece:g} s)" if isinstance(piece, float) else repr(piece) for piece in self.pieces)
        return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


@attrs.define
class Draft:
    """A draft of a case: the choices of its kind. See `Case`."""

    rule: str
    allowed: Iterable[Outcome]
    pieces: Sequence[bytes | float] = ()
    wire: Wire | None = None
    codes: Iterable[int] | None = None
    answers: Sequence[Answer] | None = None
    closes: bool | None = None
    probe: bool = True
    shut: bool = False
    reset: bool = False
    deaf: float = 0
    stream: int = 1
    bodiless: bool = False
    echo: str | None = None


Kind: TypeAlias = Callable[[random.Random], Draft]


def kinds_of(module: str) -> dict[str, Kind]:
    """Return the kinds of a family: the functions of its module that make a draft from a random generator alone."""
    annotations = {"rng": "random.Random", "return": "Draft"}
    found = vars(sys.modules[module]).items()
    return {name: each for name, each in found if getattr(each, "__annotations__", None) == annotations}


def make(family: str, kinds: Mapping[str, Kind], seed: int, number: int) -> Case:
    """Return the case of this number, always the same; the kinds take turns, so that a few cases cover them all."""
    rng = random.Random(f"{seed}/{family}/{number}")
    name = list(kinds)[number % len(kinds)]
    draft = kinds[name](rng)
    answers = draft.answers
    if answers is None:
        codes = None if draft.codes is None else frozenset(draft.codes)
        answers = (Answer(frozenset(draft.allowed), codes, draft.bodiless, draft.echo),)
    wire: Wire = draft.wire or ("tls" if rng.random() < 0.15 else "tcp")
    return Case(
        family,
        seed,
        number,
        name,
        draft.rule,
        wire,
        tuple(draft.pieces),
        tuple(answers),
        draft.closes,
        draft.probe,
        draft.shut,
        draft.reset,
        draft.deaf,
        draft.stream,
    )


# --- pieces of requests -----------------------------------------------------------------------------------------


def chosen(rng: random.Random, *given: Any) -> Any:
    """One of the arguments."""
    return given[rng.randrange(len(given))]


def picked(rng: random.Random, text: AnyStr) -> AnyStr:
    """Pick one of the values of such a text."""
    values = listed(text)
    return values[rng.randrange(len(values))]


def token(rng: random.Random, least: int = 1, most: int = 12) -> str:
    """Return some letters."""
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(least, most)))


def cut(rng: random.Random, data: bytes, most: int = 5) -> list[bytes]:
    """Cut data into pieces, as the network may deliver it; mostly into one."""
    if rng.random() < 0.6 or len(data) < 2:
        return [data]
    places = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, rng.randint(1, most))))
    ids = [match.span() for match in SESSION.finditer(data)]
    places = [place for place in places if not any(start < place < end for start, end in ids)]
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def dumped(rng: random.Random, value: Any) -> bytes:
    """JSON, with spaces or without."""
    separators = chosen(rng, (",", ":"), (", ", ": "), (" ,\n", "\t: "))
    return json.dumps(value, separators=separators, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def head(rng: random.Random, first: str, fields: Iterable[tuple[str, str]], *, shuffled: bool = True) -> bytes:
    """Return the head of a request; with names in any case and any order, among fields without meaning."""
    given = list(fields)
    if shuffled:
        given += [(f"x-{token(rng)}", token(rng, 0, 40)) for _ in range(rng.randint(0, 3))]
        order = sorted(range(len(given)), key=lambda place: rng.random())
        given = [given[place] for place in order]
        given = [(chosen(rng, name, name.lower(), name.upper()), value) for name, value in given]
    space = chosen(rng, " ", " ", "", "\t", "   ") if shuffled else " "
    lines = [first, *(f"{name}:{space}{value}" for name, value in given), "", ""]
    return "\r\n".join(lines).encode("latin-1")


BASE_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ACCEPT = "application/json, text/event-stream"


@attrs.define
class Message:
    """A valid HTTP request, until a kind breaks something in it."""

    method: str = "POST"
    target: str = "/mcp"
    fields: Fields = attrs.Factory(list)
    body: bytes = b""

    def set(self, name: str, *values: str) -> Message:
        """Replace a field; no value removes it."""
        self.fields = [pair for pair in self.fields if pair[0].lower() != name.lower()]
        self.fields += [(name, value) for value in values]
        return self


def _posted(rng: random.Random, content: Any, fields: Fields) -> Message:
    body = content if isinstance(content, bytes) else dumped(rng, content)
    given = [("Host", "localhost"), ("Accept", ACCEPT), ("Content-Type", "application/json"), *fields]
    return Message("POST", "/mcp", given, body)


def modern(
    rng: random.Random,
    method: str = "tools/call",
    params: dict[str, Any] | None = None,
    *,
    id: Any = 1,
    name: str | None = None,
    content: Any = None,
) -> Message:
    """Return a modern request, by default a call of ``add``; ``content`` replaces the body."""
    if method == "tools/call" and params is None:
        params, name = {"name": "add", "arguments": {"a": rng.randint(0, 99), "b": 1}}, "add"
    params = {"_meta": dict(BASE_META), **(params or {})}
    if content is None:
        content = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    fields = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)]
    if name is not None:
        fields.append(("Mcp-Name", name))
    return _posted(rng, content, fields)


def legacy(
    rng: random.Random,
    method: str = "ping",
    params: dict[str, Any] | None = None,
    *,
    session: str | None = "@live@",
    content: Any = None,
) -> Message:
    """Return a legacy request in a session, with a unique id."""
    if content is None:
        content = {"jsonrpc": "2.0", "id": rng.randint(1, 2**50), "method": method}
        if params is not None:
            content["params"] = params
    fields = []
    if session is not None:
        fields.append(("Mcp-Session-Id", session))
    if rng.random() < 0.5:
        fields.append(("MCP-Protocol-Version", LATEST))
    return _posted(rng, content, fields)


def padded(value: str) -> str:
    """Return a value whose placeholder for a session id is replaced by text of an id's length."""
    return re.sub(r"@(live|other|ended|own|batch)@", lambda match: f"@{match[1]:.<41}@", value)


def rendered(rng: random.Random, message: Message) -> list[bytes]:
    """Return a well-formed HTTP/1.1 request."""
    fields, body = list(message.fields), message.body
    if body and rng.random() < 0.2:
        fields.append(("Transfer-Encoding", "chunked"))
        chunks = cut(rng, body)
        body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    elif body or message.method == "POST":
        fields.append(("Content-Length", str(len(body))))
    return cut(rng, head(rng, f"{message.method} {message.target} HTTP/1.1", fields) + body)
