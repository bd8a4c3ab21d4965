"""The rules of transports, on transcripts written by hand: each is kept once and broken once, and silent otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest

from trio_mcp.conformance.rules import http, http_headers, stdio
from trio_mcp.conformance.rules.catalogue import RULES, judge
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Rule
from trio_mcp.conformance.transcript.events import Event

LEGACY, MODERN = "2025-11-25", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
META = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientCapabilities": {}}
STREAM = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}
UNBUFFERED = {"X-Accel-Buffering": "no"}

Events = Sequence[Event]
KEPT, BROKEN, SILENT = True, False, None


def ask(method: str = "ping", id: Any = 1, token: Any = None, **params: Any) -> dict[str, Any]:
    given = params | ({"_meta": {"progressToken": token}} if token else {})
    return {"jsonrpc": "2.0", "id": id, "method": method} | ({"params": given} if given else {})


def modern(method: str = "server/discover", id: Any = 1, meta: Any = META, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}


def tell(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(id: Any = 1, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": more}


def error(code: int, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "No"}}


def progress(token: Any, done: int = 1) -> dict[str, Any]:
    return tell("notifications/progress", progressToken=token, progress=done)


@attrs.frozen
class Ev:
    """A server-sent event: what it holds, and its fields."""

    holds: Any
    id: str | None = None
    retry: int | None = None


@attrs.frozen
class X:
    """An HTTP exchange.

    Attributes:
        sent: The message in the request.
        status: The status of the response.
        received: What came.
        method: The HTTP method.
        fields: What differs in the headers of the request.
        answer: The headers of the response; by default those of JSON, or of an event stream if `Ev` came.
        end: Who ended it, and how; None for one that has no end.
        resumes: The number of the exchange whose stream it resumes.
    """

    sent: Any = None
    status: int = 200
    received: Sequence[Any] = ()
    method: str = "POST"
    fields: dict[str, str | None] = attrs.Factory(dict)
    answer: dict[str, str] | None = None
    end: dict[str, Any] | None = attrs.Factory(lambda: {"by": "server", "cut": False})
    resumes: int | None = None


def get(**more: Any) -> X:
    return X(method="GET", **{"answer": STREAM} | more)


def play(
    revision: str, exchanges: Sequence[X], *, session: str | None = "0123456789", connection: int = 0
) -> Iterator[Event]:
    """Yield the events of a client over HTTP: its handshake, then these exchanges, whose numbers begin with 2."""
    yield Event("open", "client", connection, facts={"transport": "http"})
    if revision == MODERN:
        first = X(modern(id=0), received=[result(0, supportedVersions=[MODERN], capabilities={})])
    else:
        hello = {"protocolVersion": revision, "capabilities": {}}
        fields = JSON | ({} if session is None else {"Mcp-Session-Id": session})
        first = X(ask("initialize", 0, protocolVersion=revision), received=[result(0, **hello)], answer=fields)
    for number, exchange in enumerate([first, *exchanges], 1):
        yield from exchanged(revision, exchange, number, session, connection)


def exchanged(revision: str, x: X, number: int, session: str | None, connection: int) -> Iterator[Event]:
    accept = "text/event-stream" if x.method == "GET" else "application/json, text/event-stream"
    fields: dict[str, str | None] = {"Host": "localhost:80", "Accept": accept}
    if x.method == "POST":
        fields["Content-Type"] = "application/json"
    if number > 1 or revision == MODERN:
        fields["MCP-Protocol-Version"] = revision
        fields["Mcp-Session-Id"] = None if revision == MODERN else session
    if revision == MODERN and isinstance(x.sent, dict) and "method" in x.sent:
        fields["Mcp-Method"] = x.sent["method"]
        fields["Mcp-Name"] = x.sent.get("params", {}).get("name")
    fields |= {key: x.fields[key] for key in x.fields}
    kept = [(name, value) for name, value in fields.items() if value is not None]
    at: dict[str, Any] = {"connection": connection, "exchange": number}
    facts: dict[str, Any] = {"method": x.method, "path": "/mcp", "headers": kept}
    yield Event("request", "client", facts=facts | ({} if x.resumes is None else {"resumes": x.resumes}), **at)
    if x.sent is not None:
        yield Event("message", "client", message=x.sent, **at)
    events = any(isinstance(each, Ev) for each in x.received)
    answer = x.answer if x.answer is not None else STREAM | UNBUFFERED if events else JSON if x.received else {}
    yield Event("response", "server", facts={"status": x.status, "headers": [*answer.items()]}, **at)
    for each in x.received:
        holds, more = (each.holds, each) if isinstance(each, Ev) else (each, Ev(each))
        named = {"event_id": more.id, "retry": more.retry}
        event = Event("message" if not isinstance(holds, bytes) else "text", "server", **at)
        event = attrs.evolve(event, facts={name: value for name, value in named.items() if value is not None})
        yield attrs.evolve(event, **({"text": holds} if isinstance(holds, bytes) else {"message": holds}))
    if x.end is not None:
        yield Event("end", x.end["by"], facts=x.end, **at)


def lines(transport: str, *said: Any, close: Event | None = None, half: float | None = None) -> Events:
    """Return what a server says over a transport without exchanges."""
    events = [Event("open", "client", facts={"transport": transport}), Event("message", "client", message=modern())]
    for each in said:
        events.append(
            Event("text", "server", text=each) if isinstance(each, bytes) else Event("message", "server", message=each)
        )
    if half is not None:
        events.append(Event("mark", "kit", time=half, facts={"what": "half closed"}))
    return events if close is None else [*events, close]


BROKEN_OFF = {"by": "client", "cut": True, "how": "close"}
LINGERING = {"by": "client", "cut": True, "how": "lingering"}
CUT = {"by": "server", "cut": True}
LAST = "Last-Event-ID"
TOOL = {"name": "t", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer", "x-mcp-header": "A"}}}}
LISTED = X(modern("tools/list", 9), received=[result(9, tools=[TOOL])])
TOOL_OF_TWO = {
    "name": "t",
    "inputSchema": {
        "type": "object",
        "properties": {name: {"type": "integer", "x-mcp-header": name.upper()} for name in ("a", "b")},
    },
}
LISTED_TWO = X(modern("tools/list", 9), received=[result(9, tools=[TOOL_OF_TWO])])
LIST_AND_NOTHING = modern("tools/call", name="t", arguments={"b": []})
CALL = modern("tools/call", name="t", arguments={"a": 42})
BARE = modern("tools/call", name="t", arguments={})
OTHER = {f"{PREFIX}protocolVersion": "1999-12-31", f"{PREFIX}clientCapabilities": {}}
EXIT = {"reason": "done", "seconds": 0.1, "status": 0}

HTTP_ROWS: list[tuple[str, str, Sequence[X], bool | None]] = [
    ("endpoint-methods", LEGACY, [X(ask(), received=[result()])], KEPT),
    ("endpoint-methods", LEGACY, [X(ask(), 405)], BROKEN),
    ("endpoint-methods", MODERN, [X(modern(), 405, fields={"Origin": "http://a.example"})], KEPT),  # the discovery
    ("origin-checked", LEGACY, [X(ask(), 403, fields={"Origin": "http://a.example"})], KEPT),
    ("origin-checked", MODERN, [X(modern(), received=[result()], fields={"Origin": "http://a.example"})], BROKEN),
    ("origin-checked", "2025-03-26", [X(ask(), 400, fields={"Origin": "http://a.example"})], KEPT),
    ("origin-checked", LEGACY, [X(ask(), 200, fields={"Origin": "http://localhost:5"})], SILENT),
    ("origin-checked", LEGACY, [X(ask(), 200, fields={"Origin": "http://a.example", "Host": "b.example"})], SILENT),
    ("notification-accepted-202", LEGACY, [X(tell("a"), 202)], KEPT),
    ("notification-accepted-202", LEGACY, [X(result("q"), 200)], BROKEN),
    ("notification-accepted-202", LEGACY, [X(tell("a"), 202, [result()])], BROKEN),
    ("notification-accepted-202", MODERN, [X(result("q"), 200)], SILENT),
    ("notification-accepted-202", LEGACY, [X(tell("a"), 400)], SILENT),
    ("notification-refused-with-error", LEGACY, [X(tell("a"), 400)], KEPT),
    ("notification-refused-with-error", LEGACY, [X(tell("a"), 200, [error(-32600, None)])], BROKEN),
    ("answer-content-type", LEGACY, [X(ask(), received=[Ev(result())])], KEPT),
    ("answer-content-type", LEGACY, [X(ask(), received=[result()], answer={"Content-Type": "text/plain"})], BROKEN),
    ("answer-content-type", LEGACY, [X(ask(), received=[[result()]])], BROKEN),
    ("answer-content-type", LEGACY, [X(ask(), 202)], BROKEN),
    ("answer-content-type", LEGACY, [X(ask(), received=[b"{"], end=CUT)], KEPT),  # the handshake
    ("one-message-an-event", LEGACY, [X(ask(), received=[Ev(b"", "1"), Ev(result(), "2")])], KEPT),
    ("one-message-an-event", LEGACY, [X(ask(), received=[Ev(b"{}\n{}")])], BROKEN),
    ("one-message-an-event", LEGACY, [X(ask(), received=[Ev({"a": 1})])], BROKEN),
    ("stream-primed", LEGACY, [X(ask(), received=[Ev(b"", "1"), Ev(result(), "2")])], KEPT),
    ("stream-primed", LEGACY, [X(ask(), received=[Ev(result(), "2")])], BROKEN),
    ("stream-primed", LEGACY, [X(ask(), received=[Ev(result())])], SILENT),
    ("stream-primed", "2025-06-18", [X(ask(), received=[Ev(result(), "2")])], SILENT),
    (
        "retry-before-close",
        LEGACY,
        [X(ask(), received=[Ev(b"", "1", 5)]), get(fields={LAST: "1"}, resumes=2, received=[Ev(result(), "2")])],
        KEPT,
    ),
    (
        "retry-before-close",
        LEGACY,
        [X(ask(), received=[Ev(b"", "1")]), get(fields={LAST: "1"}, resumes=2, received=[Ev(result(), "2")])],
        BROKEN,
    ),
    ("stream-has-response", LEGACY, [X(ask(), received=[Ev(result())])], KEPT),
    ("stream-has-response", LEGACY, [X(ask(), received=[Ev(progress(5))])], BROKEN),
    ("stream-has-response", LEGACY, [X(ask(), received=[Ev(progress(5))], end=CUT)], SILENT),
    ("stream-has-response", LEGACY, [X(ask(), received=[Ev(b"", "1")])], SILENT),
    ("stream-has-response", LEGACY, [X(ask(), received=[Ev(result())]), X(ask(), received=[Ev(progress(5))])], KEPT),
    (
        "stream-has-response",
        LEGACY,
        [X(tell("notifications/cancelled", requestId=1), 202), X(ask(), received=[Ev(progress(5))])],
        BROKEN,
    ),
    ("stream-messages-should-relate", LEGACY, [X(ask(token=5), received=[Ev(progress(5))])], KEPT),
    ("stream-messages-should-relate", LEGACY, [X(ask(token=5), received=[Ev(progress(6))])], BROKEN),
    ("stream-messages-should-relate", LEGACY, [X(ask(), received=[Ev(result("1"))])], BROKEN),
    (
        "stream-messages-should-relate",
        LEGACY,
        [X(ask(), received=[Ev(tell("notifications/tools/list_changed"))])],
        BROKEN,
    ),
    (
        "stream-messages-should-relate",
        LEGACY,
        [X(ask("tools/call"), received=[Ev(tell("notifications/tools/list_changed"))])],
        SILENT,
    ),
    ("stream-messages-relate", MODERN, [X(modern(), received=[Ev(result())])], KEPT),
    ("stream-messages-relate", MODERN, [X(modern(), received=[Ev(tell("notifications/tools/list_changed"))])], BROKEN),
    (
        "stream-messages-relate",
        MODERN,
        [X(modern("subscriptions/listen"), received=[Ev(tell("notifications/tools/list_changed"))])],
        SILENT,
    ),
    (
        "stream-messages-relate",
        MODERN,
        [X(modern("subscriptions/listen"), received=[Ev(tell("notifications/message"))])],
        BROKEN,
    ),
    ("stream-ends-after-response", LEGACY, [X(ask(), received=[Ev(result())])], KEPT),
    ("stream-ends-after-response", MODERN, [X(modern(), received=[Ev(result())], end=LINGERING)], BROKEN),
    ("stream-ends-after-response", LEGACY, [X(ask(), received=[Ev(progress(1))], end=BROKEN_OFF)], SILENT),
    ("stream-unbuffered-header", MODERN, [X(modern(), received=[Ev(result())])], KEPT),
    ("stream-unbuffered-header", MODERN, [X(modern(), received=[Ev(result())], answer=STREAM)], BROKEN),
    (
        "disconnect-is-not-cancel",
        LEGACY,
        [
            X(ask(), received=[Ev(b"", "1")], end=BROKEN_OFF),
            get(fields={LAST: "1"}, resumes=2, received=[Ev(result(), "2")]),
        ],
        KEPT,
    ),
    (
        "disconnect-is-not-cancel",
        LEGACY,
        [X(ask(), received=[Ev(b"", "1")], end=BROKEN_OFF), get(fields={LAST: "1"}, resumes=2)],
        BROKEN,
    ),
    ("disconnect-is-not-cancel", LEGACY, [X(ask(), received=[Ev(b"", "1")], end=BROKEN_OFF)], SILENT),
    ("get-stream-or-405", LEGACY, [get(), get(status=405, answer={})], KEPT),
    ("get-stream-or-405", LEGACY, [get(status=409, answer={})], BROKEN),
    ("get-stream-or-405", LEGACY, [get(answer=JSON)], BROKEN),
    ("get-stream-or-405", LEGACY, [get(status=404, answer={}, fields={"Mcp-Session-Id": "x"})], SILENT),
    ("get-stream-or-405", LEGACY, [get(status=503, answer={})], SILENT),
    ("get-stream-no-response", LEGACY, [get(received=[Ev(ask(id="q"))])], KEPT),
    ("get-stream-no-response", LEGACY, [get(received=[Ev(result())])], BROKEN),
    ("get-stream-no-response", LEGACY, [get(received=[Ev(result())], fields={LAST: "1"})], SILENT),
    ("get-stream-unrelated", LEGACY, [get(received=[Ev(tell("notifications/tools/list_changed"))])], KEPT),
    ("get-stream-unrelated", LEGACY, [X(ask(token=5), end=None), get(received=[Ev(progress(5))])], BROKEN),
    (
        "get-stream-unrelated",
        LEGACY,
        [X(ask(token=5), received=[Ev(b"", "1")], end=BROKEN_OFF), get(received=[Ev(progress(5))])],
        SILENT,
    ),
    ("message-on-one-stream", LEGACY, [get(received=[Ev(ask(id="q"))]), get(received=[Ev(ask(id="r"))])], KEPT),
    ("message-on-one-stream", LEGACY, [get(received=[Ev(ask(id="q"))]), get(received=[Ev(ask(id="q"))])], BROKEN),
    (
        "message-on-one-stream",
        LEGACY,
        [X(ask(), received=[Ev(result(), "1")]), get(received=[Ev(result(), "1")], fields={LAST: "0"}, resumes=2)],
        KEPT,
    ),
    ("event-ids-unique", LEGACY, [get(received=[Ev(ask(), "1")]), get(received=[Ev(ask(), "2")])], KEPT),
    ("event-ids-unique", LEGACY, [get(received=[Ev(ask(), "1")]), get(received=[Ev(ask(), "1")])], BROKEN),
    (
        "event-ids-unique",
        LEGACY,
        [get(received=[Ev(ask(), "1"), Ev(ask(), "2")]), get(received=[Ev(ask(), "2")], fields={LAST: "1"}, resumes=2)],
        KEPT,
    ),
    (
        "event-ids-unique",
        LEGACY,
        [get(received=[Ev(ask(), "1"), Ev(ask(), "2")]), get(received=[Ev(ask(), "1")], fields={LAST: "2"}, resumes=2)],
        BROKEN,
    ),
    (
        "replay-own-stream",
        LEGACY,
        [
            X(ask(), received=[Ev(b"", "1")], end=BROKEN_OFF),
            get(fields={LAST: "1"}, resumes=2, received=[Ev(result(), "2")]),
        ],
        KEPT,
    ),
    (
        "replay-own-stream",
        LEGACY,
        [
            X(ask(), received=[Ev(b"", "1")], end=BROKEN_OFF),
            get(fields={LAST: "1"}, resumes=2, received=[Ev(result(2), "2")]),
        ],
        BROKEN,
    ),
    ("session-id-visible-ascii", LEGACY, [], KEPT),
    ("session-id-required", LEGACY, [X(ask(), 400, fields={"Mcp-Session-Id": None})], KEPT),
    ("session-id-required", LEGACY, [X(ask(), 404, fields={"Mcp-Session-Id": None})], BROKEN),
    ("session-id-required", LEGACY, [X(ask(), 200, [result()], fields={"Mcp-Session-Id": None})], SILENT),
    ("session-ended-404", LEGACY, [X(method="DELETE", status=204), X(ask(), 404)], KEPT),
    ("session-ended-404", LEGACY, [X(method="DELETE", status=204), X(ask(), 200, [result()])], BROKEN),
    ("session-ended-404", LEGACY, [X(method="DELETE", status=405), X(ask(), 200, [result()])], SILENT),
    ("version-header-refused", LEGACY, [X(ask(), 400, fields={"MCP-Protocol-Version": "1999-12-31"})], KEPT),
    ("version-header-refused", LEGACY, [X(ask(), 200, fields={"MCP-Protocol-Version": "1999-12-31"})], BROKEN),
    ("version-header-refused", LEGACY, [X(ask(), 200, fields={"MCP-Protocol-Version": "2031-01-01"})], SILENT),
    ("header-mismatch-refused", MODERN, [X(modern(), 400, [error(-32020)], fields={"Mcp-Method": "x"})], KEPT),
    ("header-mismatch-refused", MODERN, [X(modern(), 200, [result()], fields={"Mcp-Method": "x"})], BROKEN),
    ("header-mismatch-refused", MODERN, [X(modern(), 400, [error(-32600)], fields={"Mcp-Method": "x"})], BROKEN),
    (
        "header-mismatch-refused",
        MODERN,
        [X(modern(), 200, [result()], fields={"MCP-Protocol-Version": LEGACY})],
        BROKEN,
    ),
    ("header-mismatch-refused", MODERN, [LISTED, X(CALL, 200, [result()], fields={"Mcp-Param-A": "43"})], BROKEN),
    ("header-mismatch-refused", MODERN, [LISTED, X(CALL, 200, [result()], fields={"Mcp-Param-A": "42"})], SILENT),
    ("header-mismatch-refused", MODERN, [X(modern("x"), 200, [result()], fields={"Mcp-Method": "y"})], SILENT),
    ("header-mismatch-refused", MODERN, [X(modern(), 400, fields={"Mcp-Method": "x"}, end=BROKEN_OFF)], SILENT),
    ("header-mismatch-refused", MODERN, [X(modern(), 400, fields={"Mcp-Method": "x"})], BROKEN),
    ("missing-header-refused", MODERN, [X(modern(), 400, [error(-32020)], fields={"Mcp-Method": None})], KEPT),
    ("missing-header-refused", MODERN, [X(modern(), 200, [result()], fields={"Mcp-Method": None})], BROKEN),
    ("missing-header-refused", MODERN, [X(modern(), 200, [result()], fields={"MCP-Protocol-Version": None})], BROKEN),
    ("missing-header-refused", MODERN, [LISTED, X(CALL, 200, [result()])], BROKEN),
    ("missing-header-refused", MODERN, [LISTED, X(BARE, 200, [result()])], SILENT),
    ("bad-header-characters-refused", MODERN, [X(CALL, 400, fields={"Mcp-Name": "é"})], KEPT),
    ("bad-header-characters-refused", MODERN, [X(CALL, 200, [result()], fields={"Mcp-Name": "é"})], BROKEN),
    ("encoded-header-decoded", MODERN, [X(CALL, 200, [result()], fields={"Mcp-Name": "=?base64?dA==?="})], KEPT),
    ("encoded-header-decoded", MODERN, [X(CALL, 400, [error(-32020)], fields={"Mcp-Name": "=?base64?dA==?="})], BROKEN),
    ("encoded-header-decoded", MODERN, [X(CALL, 400, [error(-32020)], fields={"Mcp-Name": "=?base64?dg==?="})], SILENT),
    ("null-argument-header-not-expected", MODERN, [LISTED, X(BARE, 200, [result()])], KEPT),
    ("null-argument-header-not-expected", MODERN, [LISTED, X(BARE, 400, [error(-32020)])], BROKEN),
    # The refusal may be about the list, which no header can repeat.
    ("null-argument-header-not-expected", MODERN, [LISTED_TWO, X(LIST_AND_NOTHING, 400, [error(-32020)])], SILENT),
    (
        "header-names-case-insensitive",
        MODERN,
        [X(modern(), 200, [result()], fields={"Mcp-Method": None, "mcp-METHOD": "server/discover"})],
        KEPT,
    ),
    (
        "header-names-case-insensitive",
        MODERN,
        [X(modern(), 400, [error(-32020)], fields={"Mcp-Method": None, "mcp-METHOD": "server/discover"})],
        BROKEN,
    ),
    ("integer-headers-numeric", MODERN, [LISTED, X(CALL, 200, [result()], fields={"Mcp-Param-A": "42.0"})], KEPT),
    (
        "integer-headers-numeric",
        MODERN,
        [LISTED, X(CALL, 400, [error(-32020)], fields={"Mcp-Param-A": "42.0"})],
        BROKEN,
    ),
    ("unknown-method-404", MODERN, [X(modern("x"), 404, [error(-32601)])], KEPT),
    ("unknown-method-404", MODERN, [X(modern("x"), 200, [error(-32601)])], BROKEN),
    ("error-status-400", MODERN, [X(modern(), 400, [error(-32021)])], KEPT),
    ("error-status-400", MODERN, [X(modern(), 200, [error(-32021)])], BROKEN),
    ("incomplete-meta-status", MODERN, [X(modern(meta={}), 400, [error(-32602)])], KEPT),
    ("incomplete-meta-status", MODERN, [X(modern(meta={}), 200, [error(-32602)])], BROKEN),
    ("incomplete-meta-status", MODERN, [X(modern(), 200, [error(-32602)])], SILENT),
    (
        "unsupported-version-status",
        MODERN,
        [X(modern(meta=OTHER), 400, [error(-32022)], fields={"MCP-Protocol-Version": "1999-12-31"})],
        KEPT,
    ),
    (
        "unsupported-version-status",
        MODERN,
        [X(modern(meta=OTHER), 200, [result()], fields={"MCP-Protocol-Version": "1999-12-31"})],
        BROKEN,
    ),
    ("legacy-traffic-refused", MODERN, [get(status=405, answer={})], KEPT),
    ("legacy-traffic-refused", MODERN, [get()], BROKEN),
    ("legacy-traffic-refused", MODERN, [X(modern(), 404, fields={"Mcp-Session-Id": "x"})], BROKEN),
    (
        "legacy-traffic-refused",
        MODERN,
        [X(modern(), 200, fields={"Mcp-Session-Id": "x"}, answer={"Mcp-Session-Id": "y"})],
        BROKEN,
    ),
]

ROWS: list[tuple[str, Events, bool | None]] = [
    *((name, [*play(revision, exchanges)], expected) for name, revision, exchanges, expected in HTTP_ROWS),
    ("session-id-visible-ascii", [*play(LEGACY, [], session="with space")], BROKEN),
    ("session-id-visible-ascii", [*play(LEGACY, [], session=None)], SILENT),
    ("session-id-unpredictable", [*play(LEGACY, [], session="abcdefghij")], KEPT),
    ("session-id-unpredictable", [*play(LEGACY, [], session="7")], BROKEN),
    (
        "session-id-unpredictable",
        [*play(LEGACY, [], session="1000000001"), *play(LEGACY, [], session="1000000002", connection=1)],
        BROKEN,
    ),
    (
        "replay-own-stream",
        [
            *play(LEGACY, [get(received=[Ev(ask(id="q"), "1")])]),
            *play(
                LEGACY, [get(received=[Ev(ask(id="q"), "1")], fields={LAST: "0"})], connection=1, session="abcdefghij"
            ),
        ],
        BROKEN,
    ),
    ("stdout-clean", lines("stdio", result()), KEPT),
    ("stdout-clean", lines("tcp", result(), b"hello"), BROKEN),
    ("stdout-clean", lines("memory", 5), BROKEN),
    ("stdout-clean", lines("websocket", b"hello"), SILENT),
    ("one-message-a-line", lines("stdio", result()), KEPT),
    ("one-message-a-line", lines("stdio", b"{", b'"a": 1', b"}"), BROKEN),
    ("one-message-a-line", lines("stdio", b"{", b"hello"), SILENT),
    ("utf-8", lines("stdio", result()), KEPT),
    ("utf-8", lines("websocket", b"\xff"), BROKEN),
    ("utf-8", [*play(LEGACY, [X(ask(), received=[b"\xff"], answer=JSON)])], BROKEN),
    ("utf-8", [*play(LEGACY, [X(ask(), 500, [b"\xff"], answer={"Content-Type": "text/html"})])], KEPT),
    ("stdin-close-exits", lines("stdio", close=Event("close", "client", facts=EXIT)), KEPT),
    ("stdin-close-exits", lines("stdio", close=Event("close", "client", facts=EXIT | {"status": -15})), BROKEN),
    ("stdin-close-exits", lines("stdio", close=Event("close", "server", time=9.0), half=1.0), BROKEN),
    ("stdin-close-exits", lines("stdio", close=Event("close", "server", time=9.0)), SILENT),
    ("websocket-messages", lines("websocket", result()), KEPT),
    ("websocket-messages", lines("websocket", b"hello"), BROKEN),
]


@pytest.mark.parametrize(("name", "events", "expected"), ROWS, ids=[f"{row[0]}-{row[2]}" for row in ROWS])
def test_a_rule_judges_what_it_is_about(name: str, events: Events, expected: bool | None) -> None:
    verdicts = [verdict for _, verdict in judge(History(events), [RULES[name]])]
    if expected is SILENT:
        # What comes with the handshake may be judged, too.
        assert {verdict.event.exchange for verdict in verdicts} <= {1}
    else:
        assert verdicts
        assert [verdict.problem for verdict in verdicts if verdict.problem] == [] or not expected
        assert expected or any(verdict.problem for verdict in verdicts)


def test_each_rule_is_kept_once_and_broken_once() -> None:
    mine = {rule.id for room in (http, http_headers, stdio) for rule in vars(room).values() if isinstance(rule, Rule)}
    for expected in (KEPT, BROKEN):
        assert {name for name, _, found in ROWS if found is expected} >= mine
