"""The rules for servers, each on transcripts that keep it and transcripts that break it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from trio_mcp.conformance.plans.moves import catalogue as move_catalogue
from trio_mcp.conformance.plans.moves.catalogue import MOVES
from trio_mcp.conformance.rules import catalogue as rule_catalogue
from trio_mcp.conformance.rules.catalogue import RULES, judge
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta

LATEST, LEGACY, FIRST = "2026-07-28", "2025-11-25", "2024-11-05"
INFO = {"name": "x", "version": "1"}


# --- transcripts, briefly ---------------------------------------------------------------------------------------------


def ask(request_id: Any, method: str, /, **params: Any) -> Event:
    return Event("message", "client", message={"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def tell(method: str, /, **params: Any) -> Event:
    return Event("message", "client", message={"jsonrpc": "2.0", "method": method, "params": params})


def sent(message: Any, **more: Any) -> Event:
    return Event("message", "client", message=message, **more)


def text(value: bytes) -> Event:
    return Event("text", "client", text=value)


def said(message: Any) -> Event:
    return Event("message", "server", message=message)


def notify(method: str, /, **params: Any) -> Event:
    return said({"jsonrpc": "2.0", "method": method, "params": params})


def question(request_id: Any, method: str, /, **params: Any) -> Event:
    return said({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def result(request_id: Any, /, **fields: Any) -> Event:
    return said({"jsonrpc": "2.0", "id": request_id, "result": fields})


def done(request_id: Any, /, **fields: Any) -> Event:
    """A result of the modern era."""
    server = {"_meta": {meta.SERVER_INFO: INFO}} | fields
    return result(request_id, **{"resultType": "complete"} | server)


def error(request_id: Any, code: Any = -32602, **data: Any) -> Event:
    found = {"code": code, "message": "no"} | ({"data": data} if data else {})
    return said({"jsonrpc": "2.0", "id": request_id, "error": found})


def overdue(request_id: Any, **facts: Any) -> Event:
    return Event("mark", "kit", facts={"what": "overdue", "id": request_id, "seconds": 10} | facts)


def after(seconds: float, event: Event) -> Event:
    return attrs.evolve(event, time=seconds)


def cancel(request_id: Any) -> Event:
    return tell("notifications/cancelled", requestId=request_id)


def cancels(request_id: Any) -> Event:
    return notify("notifications/cancelled", requestId=request_id)


def streamed(*events: Event) -> list[Event]:
    """The same over HTTP, in an exchange that the server ends."""
    facts = {"method": "POST", "path": "/", "headers": []}
    head = {"status": 200, "headers": [("content-type", "text/event-stream")]}
    asked, *rest = [attrs.evolve(event, exchange=1) for event in events]
    opens = Event("request", "client", exchange=1, facts=facts), asked
    return [*opens, Event("response", "server", exchange=1, facts=head), *rest, ENDED]


ENDED = Event("end", "server", exchange=1, facts={"by": "server", "cut": False})


def acknowledged(request_id: Any, /, **filters: Any) -> Event:
    return heard(request_id, "notifications/subscriptions/acknowledged", notifications=filters)


def changing(*notices: Event) -> list[Event]:
    """A list of tools that changes while the client listens."""
    listens = ask(1, "subscriptions/listen", notifications={"toolsListChanged": True})
    reads = ask(2, "tools/list"), done(2, **tools("a")), *notices, ask(3, "tools/list"), done(3, **tools("b"))
    more = [event for n in (4, 5, 6) for event in (ask(n, "ping"), result(n))]
    return [listens, acknowledged(1, toolsListChanged=True), *reads, *more]


LIVE = {"tools": {"listChanged": True}}


def progress(value: float, token: Any = "t") -> Event:
    return notify("notifications/progress", progressToken=token, progress=value)


def log(severity: str) -> Event:
    return notify("notifications/message", level=severity, data="x")


def level(request_id: Any, severity: str) -> Event:
    return ask(request_id, "logging/setLevel", level=severity)


def heard(subscription: Any, method: str, /, **params: Any) -> Event:
    return notify(method, **params, _meta={meta.SUBSCRIPTION_ID: subscription})


def tools(*names: str, **more: Any) -> dict[str, Any]:
    """The fields of a list of tools."""
    listed = [{"name": name, "inputSchema": {"type": "object"}} | more for name in names]
    return {"tools": listed, "ttlMs": 0, "cacheScope": "public"}


def on(connection: int, *events: Event) -> list[Event]:
    """The same on another connection."""
    return [attrs.evolve(event, connection=connection) for event in events]


@attrs.frozen
class T:
    """A transcript: its revision, and what the server declares."""

    events: Sequence[Event | list[Event]]
    revision: str = LATEST
    server: dict[str, Any] = attrs.Factory(dict)
    client: dict[str, Any] = attrs.Factory(dict)
    transport: str = "stdio"
    hello: bool = True
    stamped: bool = True

    @property
    def history(self) -> History:
        modern = self.revision == LATEST
        events: list[Event] = []
        flat = [each for found in self.events for each in (found if isinstance(found, list) else [found])]
        for number in sorted({event.connection for event in flat} | {0}):
            events += on(number, Event("open", "client", facts={"transport": self.transport}))
            if self.hello:
                events += on(number, *(self._modern_hello() if modern else self._legacy_hello()))
        since = len(events)
        events += [self._stamp(event) if modern and self.stamped else event for event in flat]
        return History(events, since)

    def _modern_hello(self) -> Sequence[Event]:
        answer = done("hello", supportedVersions=[LATEST], capabilities=self.server, ttlMs=0, cacheScope="public")
        return self._stamp(ask("hello", "server/discover")), answer

    def _legacy_hello(self) -> Sequence[Event]:
        told = {"protocolVersion": self.revision, "capabilities": self.client, "clientInfo": INFO}
        answer = {"protocolVersion": self.revision, "capabilities": self.server, "serverInfo": INFO}
        return ask("hello", "initialize", **told), result("hello", **answer), tell("notifications/initialized")

    def _stamp(self, event: Event) -> Event:
        """Add what each request of the modern era has, where the transcript says nothing about it."""
        message = event.message
        if event.sender != "client" or not isinstance(message, dict) or not isinstance(message.get("params"), dict):
            return event
        if "id" not in message:
            return event
        given = message["params"].get("_meta", {})
        own = {meta.PROTOCOL_VERSION: LATEST, meta.CLIENT_CAPABILITIES: self.client} | given
        own = {key: value for key, value in own.items() if value is not None}
        return attrs.evolve(event, message=message | {"params": message["params"] | {"_meta": own}})


def t(*events: Event | list[Event], **more: Any) -> T:
    """A transcript of the modern era."""
    return T(events, **more)


def old(*events: Event | list[Event], revision: str = LEGACY, **more: Any) -> T:
    """A transcript of the legacy era."""
    return T(events, revision, **more)


LIST = ask(1, "tools/list")
TOOLS = {"tools": [], "ttlMs": 0, "cacheScope": "public"}
KEPT = t(LIST, done(1, **TOOLS))
OLD = old(LIST, result(1, tools=[]))
WRONG_IDS: tuple[Any, ...] = (None, 1.5, True, [])
CALL = ask(1, "tools/call", name="x")
CALL_2, LIST_2 = ask(3, "tools/call", name="x"), ask(2, "tools/list")
STRICT = {"additionalProperties": False}
TOKEN = ask(1, "tools/call", name="x", _meta={"progressToken": "t"})
LISTEN = ask(1, "subscriptions/listen", notifications={"toolsListChanged": True})
COMPLETE = ask(1, "completion/complete", ref={"type": "ref/prompt", "name": "x"}, argument={"name": "a", "value": ""})
PROMPTS = ask(2, "prompts/list")
CONTENT: dict[str, Any] = {"content": [{"type": "text", "text": "x"}]}

DISCOVER, READ = ask(1, "server/discover"), ask(1, "resources/read", uri="x:y")
RESOURCES, PAGE = ask(2, "resources/list"), ask(2, "tools/list", cursor="c")
CLIMB = ask(1, "resources/read", uri="file:///../../etc/passwd")
READY = tell("notifications/initialized")
REQUIRED = (meta.PROTOCOL_VERSION, meta.CLIENT_CAPABILITIES)
TOO_OLD = ask(1, "tools/list", _meta={meta.PROTOCOL_VERSION: "1900-01-01"})
ERRED = done(1, content=[], isError=True)
EMBEDDED = {"type": "resource", "resource": {"uri": "x:y", "text": ""}}
UPDATED = notify("notifications/resources/updated", uri="x:y")
WATCH = ask(1, "subscriptions/listen", notifications={"resourceSubscriptions": ["x:y"]})
FOLLOW = ask(1, "subscriptions/listen", notifications={"taskIds": ["a"]})
CHANGED = heard(1, "notifications/tools/list_changed")
NEEDY = {"name": "x", "arguments": [{"name": "a", "required": True}]}


def raw(*events: Event | list[Event], revision: str = LEGACY) -> T:
    """A transcript with its own opening."""
    return T(events, revision, hello=False)


def hello(version: str) -> Event:
    return ask(1, "initialize", protocolVersion=version, capabilities={}, clientInfo=INFO)


def opened(version: str) -> Event:
    return result(1, protocolVersion=version, capabilities={}, serverInfo=INFO)


HELLO = hello(LEGACY)
OPENED = raw(HELLO, opened(LEGACY))


def without(key: str) -> dict[str, Any]:
    return {"_meta": {key: None}}


def can(*names: str) -> dict[str, Any]:
    return {"_meta": {meta.CLIENT_CAPABILITIES: {name: {} for name in names}}}


def asks(request_id: Any, method: str, /, **params: Any) -> Event:
    """A request for input."""
    questions = {"q": {"method": method, "params": params}}
    return result(request_id, resultType="input_required", inputRequests=questions, requestState="s")


def annotated(properties: dict[str, Any]) -> dict[str, Any]:
    return tools("x", inputSchema={"type": "object", "properties": properties})


def in_turns(*names: str) -> list[list[Event]]:
    """Lists of one tool each, read on two connections in turns."""
    reads = [[ask(n, "tools/list"), done(n, **tools(name))] for n, name in enumerate(names)]
    return [on(n % 2, *read) for n, read in enumerate(reads)]


def called(arguments: dict[str, Any], answer: Event) -> T:
    """A call of a tool with schemas."""
    schemas = {
        "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], **STRICT},
        "outputSchema": {"type": "object", "properties": {"b": {"type": "integer"}}},
    }
    return t(LIST_2, done(2, **tools("x", **schemas)), ask(1, "tools/call", name="x", arguments=arguments), answer)


def missing(answer: Event, revision: str = LATEST) -> T:
    """A resource is read that is not there."""
    lists = [RESOURCES, done(2, resources=[]), ask(3, "resources/templates/list"), done(3, resourceTemplates=[])]
    return T([*lists, READ, answer], revision, server={"resources": {}})


def prompted(block: dict[str, Any]) -> T:
    return t(ask(1, "prompts/get", name="x"), done(1, messages=[{"role": "user", "content": block}]))


def got(answer: Event, *prompts: dict[str, Any]) -> T:
    """A prompt is got without arguments."""
    return t(PROMPTS, done(2, prompts=[*prompts]), ask(1, "prompts/get", name="x"), answer, server={"prompts": {}})


ACK = acknowledged(1, toolsListChanged=True)


# For each rule transcripts that keep it, and transcripts that break it.
ROWS: dict[str, tuple[Sequence[T], Sequence[T]]] = {
    # --- messages ---
    "json-rpc-envelope": (
        [KEPT, OLD, old(LIST, said([result(1, tools=[]).message]), revision="2025-03-26")],
        [
            t(LIST, said({"id": 1, "result": {}})),
            t(LIST, said({"jsonrpc": "2.0", "id": 1})),
            t(LIST, said("hello")),
            t(LIST, said([])),
            old(LIST, said([result(1, tools=[]).message])),
            old(said({"jsonrpc": "2.0", "method": "notifications/message", "params": []})),
            old(said({"jsonrpc": "2.0", "method": 5})),
        ],
    ),
    "result-xor-error": (
        [KEPT],
        [t(LIST, said({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": ""}}))],
    ),
    "error-object": (
        [t(LIST, error(1))],
        [
            t(LIST, said({"jsonrpc": "2.0", "id": 1, "error": found}))
            for found in ("no", {"code": "1", "message": ""}, {"code": 1.5, "message": ""}, {"code": 1}, {"code": True})
        ],
    ),
    "notification-without-id": (
        [t(notify("notifications/progress"))],
        [t(question(1, "notifications/progress")), t(question(None, "notifications/progress"))],
    ),
    "request-id-type": (
        [old(question(1, "ping")), old(question("a", "ping"))],
        [old(question(wrong, "ping")) for wrong in WRONG_IDS],
    ),
    "request-id-fresh": (
        [old(question(1, "ping"), question("1", "ping"))],
        [old(question(1, "ping"), sent({"jsonrpc": "2.0", "id": 1, "result": {}}), question(1, "ping"))],
    ),
    "sends-no-requests": ([KEPT], [t(CALL, question(1, "roots/list"))]),
    "request-answered": (
        [KEPT, OLD, t(LIST, error(1))],
        [t(LIST, overdue(1)), t(LIST, Event("close", "server")), t(CALL, overdue(1, answered_again=True))],
    ),
    "answered-once": (
        [KEPT, t(LIST, LIST, done(1), error(1))],
        [t(LIST, done(1), done(1)), t(LIST, error(1), error(1)), t(LIST, LIST, done(1), done(1), done(1))],
    ),
    "response-matches-request": (
        [KEPT, t(LIST, result(1.0)), t(on(1, LIST), on(1, done(1)))],
        [t(LIST, done("1")), t(LIST, done(2)), t(LIST, result(None)), t(LIST, on(1, done(1))), t(done(1), LIST)],
    ),
    "notification-unanswered": (
        [t(tell("no-such/x"), LIST, done(1))],
        [t(tell("no-such/x"), error(None)), t(tell("no-such/x"), said({"jsonrpc": "2.0", "error": {"code": 1}}))],
    ),
    "batch-supported": (
        [old(sent([ask(1, "ping").message]), said([result(1).message]), revision="2025-03-26")],
        [old(sent([ask(1, "ping").message]), overdue(1), revision="2025-03-26")],
    ),
    "unknown-method-refused": (
        [t(ask(1, "no-such/x"), error(1, -32601)), old(ask(1, "roots/list"), error(1, -32601))],
        [t(ask(1, "no-such/x"), done(1)), old(ask(1, "roots/list"), result(1, roots=[]))],
    ),
    "unknown-method-code": (
        [t(ask(1, "no-such/x"), error(1, -32601))],
        [t(ask(1, "no-such/x"), error(1, -32603)), old(ask(1, "roots/list"), error(1, -32602))],
    ),
    "malformed-code": (
        [t(text(b"{"), error(None, -32700)), t(sent(5), error(None, -32600))],
        [t(text(b"{"), error(None, -32603)), t(sent(5), error(None, -32700))],
    ),
    "error-codes-retired": (
        [t(LIST, error(1, -32602))],
        [t(LIST, error(1, -32002)), t(LIST, error(1, -32042))],
    ),
    "error-codes-reserved": (
        [t(LIST, error(1, -32021)), t(LIST, error(1, 7))],
        [t(LIST, error(1, -32050)), t(LIST, error(1, -32022)), t(LIST, error(1, -32020))],
    ),
    "error-codes-legacy-range": ([t(LIST, error(1, -32602))], [t(LIST, error(1, -32000))]),
    "error-codes-reserved-json-rpc": ([t(LIST, error(1, -32603)), t(LIST, error(1, -1))], [t(LIST, error(1, -32500))]),
    "result-valid": (
        [
            KEPT,
            t(CALL, done(1, **CONTENT, structuredContent=[1])),
            t(CALL, result(1, resultType="input_required", requestState="s")),
            old(CALL, result(1, **CONTENT)),
            old(ask(1, "ping"), result(1)),
            old(ask(1, "no-such/x"), result(1, anything=[])),
        ],
        [
            t(LIST, done(1)),
            t(LIST, done(1, tools=[{"name": 5, "inputSchema": {"type": "object"}}])),
            t(LIST, done(1, tools=[{"name": "x", "inputSchema": {"type": "array"}}])),
            t(CALL, done(1, content=[{"type": "hologram"}])),
            t(CALL, result(1, resultType="input_required", requestState=5)),
            old(CALL, result(1, content=[], structuredContent=[1])),
            old(CALL, result(1, content=[], isError="no")),
            old(CALL, result(1, content=[{"type": "text", "text": "", "annotations": {"priority": 2}}])),
            old(CALL, result(1, content=[{"type": "audio", "data": "", "mimeType": "audio/wav"}]), revision=FIRST),
        ],
    ),
    "notification-valid": (
        [t(notify("notifications/progress", progressToken=1, progress=0.5))],
        [
            t(notify("notifications/progress", progressToken=1, progress="a lot")),
            t(notify("notifications/progress", progressToken=None, progress=1)),
            old(notify("notifications/message", level="loud", data=1)),
            old(said({"jsonrpc": "2.0", "method": "notifications/message"})),
        ],
    ),
    "request-valid": (
        [
            old(question(1, "roots/list")),
            old(question(1, "elicitation/create", mode="url", message="", url="https://x", elicitationId="1")),
        ],
        [
            old(question(1, "sampling/createMessage", messages=[])),
            old(question(1, "elicitation/create", message="", requestedSchema={"type": "array"})),
            old(question(1, "elicitation/create", mode="url", message="", url="https://x")),
        ],
    ),
    "result-type-present": ([KEPT], [t(LIST, result(1, **TOOLS)), t(LIST, done(1, resultType=None))]),
    "result-type-known": (
        [KEPT, t(LIST, done(1, resultType="own"), server={"extensions": {"com.example/x": {}}})],
        [t(LIST, done(1, resultType="own"))],
    ),
    "extension-fallback": (
        [KEPT],
        [t(LIST, done(1, resultType="own"), server={"extensions": {"com.example/x": {}}})],
    ),
    "meta-keys-well-formed": (
        [t(LIST, done(1, **TOOLS, _meta={"com.example/key": 1})), old(LIST, result(1, tools=[], _meta={"a.b_c": 1}))],
        [
            t(LIST, done(1, **TOOLS, _meta={"no good": 1})),
            t(CALL, done(1, content=[{"type": "text", "text": "", "_meta": {"-/x": 1}}])),
            old(notify("notifications/progress", _meta={"1a/x": 1})),
        ],
    ),
    "trace-context-format": (
        [t(LIST, done(1, _meta={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"}))],
        [t(LIST, done(1, _meta={"traceparent": "00-zz"})), t(LIST, done(1, _meta={"baggage": 1}))],
    ),
    # --- utilities ---
    "cancelled-unanswered": (
        [
            old(CALL, cancel(1), ask(2, "ping"), result(2)),
            old(CALL, cancel(1), ask(2, "ping"), result(2), after(1, CALL_2), after(2, result(3))),
        ],
        [
            old(CALL, cancel(1), ask(2, "ping"), result(2), result(1)),
            t(CALL, cancel(1), ask(2, "server/discover"), done(2), done(1)),
            # The tool takes a second, so this error answers the cancellation.
            old(after(1, CALL_2), after(2, result(3)), after(3, CALL), after(3.1, cancel(1)), after(3.1, error(1, 0))),
        ],
    ),
    "nothing-after-cancel": (
        [t(CALL, cancel(1), ask(2, "server/discover"), done(2))],
        [
            t(CALL, cancel(1), ask(2, "server/discover"), done(2), done(1)),
            t(TOKEN, cancel(1), ask(2, "server/discover"), done(2), progress(1)),
            t(LISTEN, cancel(1), ask(2, "server/discover"), done(2), heard(1, "notifications/tools/list_changed")),
        ],
    ),
    "cancel-races-survived": (
        [t(LIST, done(1), cancel(1), ask(2, "server/discover"), done(2))],
        [
            t(LIST, done(1), cancel(1), ask(2, "server/discover"), overdue(2)),
            t(LIST, done(1), cancel(1), ask(2, "server/discover"), Event("close", "server")),
        ],
    ),
    "bad-cancel-ignored": (
        [t(cancel("x"), LIST, done(1)), t(tell("notifications/cancelled"), LIST, error(1))],
        [t(cancel("x"), LIST, overdue(1)), t(cancel(None), LIST, overdue(1))],
    ),
    "server-cancels-listen-only": (
        [KEPT, t(LISTEN, notify("notifications/cancelled", requestId=1))],
        [t(LIST, notify("notifications/cancelled", requestId=1)), t(notify("notifications/cancelled", requestId=7))],
    ),
    "cancel-known-request": (
        [old(question(7, "ping"), notify("notifications/cancelled", requestId=7))],
        [
            old(LIST, notify("notifications/cancelled", requestId=1)),
            old(question(7, "ping"), notify("notifications/cancelled", requestId="7")),
        ],
    ),
    "cancel-open-request": (
        [
            old(question(7, "ping"), cancels(7)),
            old(question(7, "ping"), sent({"jsonrpc": "2.0", "id": 7, "result": {}}), cancels(7)),
        ],
        [
            old(
                *[question(7, "ping"), sent({"jsonrpc": "2.0", "id": 7, "result": {}})],
                *[ask(1, "ping"), result(1), cancels(7)],
            )
        ],
    ),
    "cancel-names-request": (
        [old(cancels(7)), t(cancels("x"))],
        [old(cancels(None)), old(notify("notifications/cancelled")), t(cancels(1.5))],
    ),
    "progress-token-known": (
        [t(TOKEN, progress(1), done(1))],
        [
            t(LIST, progress(1)),
            t(TOKEN, progress(1, token="t1")),
            t(progress(1), TOKEN),
            t(TOKEN, on(1, LIST, progress(1), done(1))),
        ],
    ),
    "no-progress-after-end": (
        [t(TOKEN, progress(1), done(1)), old(TOKEN, result(1))],
        [t(TOKEN, done(1), progress(1)), old(TOKEN, error(1), progress(1))],
    ),
    "progress-token-type": (
        [t(TOKEN, progress(1))],
        [t(TOKEN, progress(1, token=wrong)) for wrong in WRONG_IDS],
    ),
    "progress-increases": (
        [t(TOKEN, progress(0), progress(0.1), progress(5))],
        [t(TOKEN, progress(1), progress(1)), t(TOKEN, progress(2), progress(1.5))],
    ),
    "ping-answered": (
        [old(ask(1, "ping"), result(1)), old(ask(1, "ping"), result(1, _meta={}))],
        [
            old(ask(1, "ping"), error(1)),
            old(ask(1, "ping"), result(1, pong=True)),
            old(ask(1, "ping"), overdue(1)),
            old(ask(1, "ping"), after(6, result(1))),
        ],
    ),
    "log-level-respected": (
        [old(level(1, "error"), result(1), log("critical")), old(level(1, "error"), result(1), log("error"))],
        [
            old(level(1, "error"), result(1), log("warning")),
            old(level(1, "debug"), result(1), level(2, "alert"), result(2), log("info")),
        ],
    ),
    "log-only-on-request": (
        [
            KEPT,
            t(ask(1, "tools/list", _meta={meta.LOG_LEVEL: "info"}), log("info"), done(1)),
            t(ask(1, "tools/list", _meta={meta.LOG_LEVEL: "info"}), LIST_2, log("alert"), done(2), done(1)),
        ],
        [
            t(LIST, log("error")),
            t(ask(1, "tools/list", _meta={meta.LOG_LEVEL: "error"}), log("info"), done(1)),
            t(ask(1, "tools/list", _meta={meta.LOG_LEVEL: "info"}), done(1), log("info")),
        ],
    ),
    "log-on-own-stream": (
        [t(ask(1, "tools/list", _meta={meta.LOG_LEVEL: "info"}), log("info"), done(1))],
        [
            t(LISTEN, ACK, heard(1, "notifications/message", level="info", data=1)),
            t(*streamed(LIST, log("info"), done(1))),
        ],
    ),
    "log-level-errors": (
        [
            old(level(1, "loud"), error(1), server={"logging": {}}),
            t(ask(1, "tools/list", _meta={meta.LOG_LEVEL: "loud"}), error(1), server={"logging": {}}),
        ],
        [
            old(level(1, "loud"), result(1), server={"logging": {}}),
            t(ask(1, "tools/list", _meta={meta.LOG_LEVEL: "loud"}), error(1, -32603), server={"logging": {}}),
        ],
    ),
    "completion-at-most-100": (
        [t(COMPLETE, done(1, completion={"values": ["x"] * 100}))],
        [t(COMPLETE, done(1, completion={"values": ["x"] * 101}))],
    ),
    "completion-errors": (
        [
            t(COMPLETE, error(1, -32601)),
            t(PROMPTS, done(2, prompts=[]), COMPLETE, error(1), server={"completions": {}}),
        ],
        [
            t(COMPLETE, done(1, completion={"values": []})),
            t(PROMPTS, done(2, prompts=[]), COMPLETE, error(1, -32603), server={"completions": {}}),
        ],
    ),
    "bad-cursor-refused": (
        [t(ask(1, "tools/list", cursor="no:such:cursor:"), error(1))],
        [
            t(ask(1, "tools/list", cursor="no:such:cursor:"), done(1, **TOOLS)),
            old(ask(1, "tools/list", cursor="no:such:cursor:"), error(1, -32603)),
        ],
    ),
    "cursors-stable": (
        [t(LIST, done(1, **tools("a"), nextCursor="c"), ask(2, "tools/list", cursor="c"), done(2, **tools("b")))],
        [t(LIST, done(1, **tools("a"), nextCursor="c"), ask(2, "tools/list", cursor="c"), done(2, **tools("b", "a")))],
    ),
    "server-info-sent": ([KEPT], [t(LIST, result(1, resultType="complete", **TOOLS))]),
    # --- lifecycle ---
    "initialize-answered": (
        [OPENED],
        [raw(HELLO, result(1, protocolVersion=LEGACY, capabilities={})), raw(HELLO, overdue(1))],
    ),
    "version-echoed": (
        [OPENED],
        [raw(HELLO, opened(LEGACY), on(1, hello("2025-06-18"), opened(LEGACY)), on(2, HELLO, opened("2025-06-18")))],
    ),
    "version-offered": (
        [raw(hello("1900-01-01"), opened(LEGACY))],
        [raw(hello("1900-01-01"), opened("1900-01-01"))],
    ),
    "version-offered-latest": (
        [raw(hello("1900-01-01"), opened(LEGACY))],
        [raw(hello("1900-01-01"), opened(FIRST), on(1, HELLO, opened(LEGACY)))],
    ),
    "server-waits-for-initialized": (
        [raw(HELLO, opened(LEGACY), question(1, "ping"), READY, question(2, "roots/list"))],
        [raw(HELLO, opened(LEGACY), question(2, "roots/list"), READY)],
    ),
    "negotiated-version-kept": (
        [old(notify("notifications/message", level="info", data=1))],
        [
            old(notify("notifications/subscriptions/acknowledged")),
            old(question(1, "tools/call")),
            old(question(1, "tasks/get"), revision="2025-06-18"),
        ],
    ),
    "capabilities-declared": (
        [t(LIST, done(1, **tools("x")), server={"tools": {}}), old(log("info"), server={"logging": {}})],
        [t(LIST, done(1, **tools("x"))), old(log("info")), t(COMPLETE, done(1, completion={"values": ["x"]}))],
    ),
    "capabilities-respected": (
        [old(notify("notifications/tools/list_changed"), server={"tools": {"listChanged": True}})],
        [
            old(notify("notifications/tools/list_changed"), server={"tools": {"listChanged": False}}),
            old(notify("notifications/resources/updated", uri="x:y"), server={"resources": {}}),
        ],
    ),
    "lists-answered": (
        [t(LIST, done(1, **TOOLS), server={"tools": {}})],
        [t(LIST, error(1, -32601), server={"tools": {}}), t(LIST, error(1, -32603), server={"tools": {}})],
    ),
    "extension-names": (
        [t(DISCOVER, done(1, capabilities={"extensions": {"com.example/x": {}}}))],
        [t(DISCOVER, done(1, capabilities={"extensions": {name: {}}})) for name in ("x", "-/x", "com.example/-")],
    ),
    "discover-answered": ([t(DISCOVER, done(1))], [t(DISCOVER, error(1, -32601))]),
    "unsupported-version-error": (
        [t(TOO_OLD, error(1, -32022, supported=[LATEST], requested="1900-01-01"))],
        [
            t(TOO_OLD, done(1, **TOOLS)),
            t(TOO_OLD, error(1, -32602)),
            t(TOO_OLD, error(1, -32022)),
            t(TOO_OLD, error(1, -32022, supported=[], requested="1900-01-01")),
            t(TOO_OLD, error(1, -32022, supported=["1900-01-01"], requested="1900-01-01")),
            t(TOO_OLD, error(1, -32022, supported=[LATEST], requested=LATEST)),
        ],
    ),
    "incomplete-meta-refused": (
        [t(ask(1, "tools/list", **without(key)), error(1)) for key in REQUIRED],
        [t(ask(1, "tools/list", **without(key)), wrong) for key in REQUIRED for wrong in (done(1), error(1, -32603))],
    ),
    "missing-capability-error": (
        [t(CALL, error(1, -32021, requiredCapabilities={"sampling": {}}))],
        [
            t(CALL, error(1, -32021)),
            t(CALL, error(1, -32021, requiredCapabilities={})),
            t(CALL, error(1, -32021, requiredCapabilities={"sampling": {}}), client={"sampling": {}}),
        ],
    ),
    "stateless": (
        [t(CALL, done(1, **CONTENT))],
        [t(ask(2, "tools/list", **can("roots")), done(2, **TOOLS), CALL, asks(1, "roots/list"))],
    ),
    "initialize-refusal-names-versions": (
        [t(on(1, HELLO, error(1, -32601, supported=[LATEST])), stamped=False)],
        [t(on(1, HELLO, error(1, -32601)), stamped=False)],
    ),
    "list-same-on-each-connection": (
        [t(*in_turns("a", "a", "a"))],
        [t(*in_turns("a", "b", "a"))],
    ),
    "connection-not-required": (
        [raw(on(1, DISCOVER, done(1)), revision=LATEST)],
        [raw(on(1, DISCOVER, error(1)), revision=LATEST)],
    ),
    "roots-change-survived": (
        [old(tell("notifications/roots/list_changed"), ask(1, "ping"), result(1))],
        [old(tell("notifications/roots/list_changed"), ask(1, "ping"), overdue(1))],
    ),
    # --- tools ---
    "schemas-in-2020-12": (
        [t(LIST, done(1, **tools("x", outputSchema={"$schema": "https://json-schema.org/draft/2020-12/schema"})))],
        [t(LIST, done(1, **tools("x", inputSchema={"$schema": "http://json-schema.org/draft-07/schema#"})))],
    ),
    "tool-input-schema-valid": (
        [t(LIST, done(1, **tools("x")))],
        [t(LIST, done(1, **tools("x", inputSchema=None))), old(LIST, result(1, **tools("x", inputSchema=True)))],
    ),
    "schemas-valid": (
        [t(LIST, done(1, **tools("x", outputSchema={"type": "object", "properties": {"a": {"minimum": 1}}})))],
        [
            t(LIST, done(1, **tools("x", inputSchema={"type": "thing"}))),
            t(LIST, done(1, **tools("x", outputSchema={"properties": []}))),
            t(LIST, done(1, **tools("x", inputSchema={"type": "object", "minProperties": -1}))),
        ],
    ),
    "tool-name-format": (
        [t(LIST, done(1, **tools("a.b_C-9")))],
        [t(LIST, done(1, **tools(name))) for name in ("", "a b", "é", "a,b", "x" * 129)],
    ),
    "tool-names-unique": ([t(LIST, done(1, **tools("a", "A")))], [t(LIST, done(1, **tools("a", "b", "a")))]),
    "list-order-stable": (
        [t(LIST, done(1, **tools("a", "b")), LIST_2, done(2, **tools("a", "b")))],
        [t(LIST, done(1, **tools("a", "b")), LIST_2, done(2, **tools("b", "a")))],
    ),
    "header-annotation-valid": (
        [t(LIST, done(1, **annotated({"a": {"type": "string", "x-mcp-header": "Region"}})))],
        [
            t(LIST, done(1, **annotated(properties)))
            for properties in (
                {"a": {"type": "string", "x-mcp-header": ""}},
                {"a": {"type": "string", "x-mcp-header": "a b"}},
                {"a": {"type": "number", "x-mcp-header": "A"}},
                {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
                {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
            )
        ],
    ),
    "tool-arguments-validated": (
        [called({"a": []}, error(1)), called({}, ERRED)],
        [called({"a": []}, done(1, **CONTENT)), called({}, done(1, **CONTENT))],
    ),
    "tool-errors-in-result": ([called({"a": "x"}, ERRED)], [called({"a": "x"}, error(1, -32602))]),
    "unknown-tool-refused": (
        [t(LIST_2, done(2, **TOOLS), CALL, error(1))],
        [t(LIST_2, done(2, **TOOLS), CALL, ERRED)],
    ),
    "unknown-tool-code": (
        [t(LIST_2, done(2, **TOOLS), CALL, error(1), server={"tools": {}})],
        [t(LIST_2, done(2, **TOOLS), CALL, error(1, -32603), server={"tools": {}})],
    ),
    "tool-name-case-sensitive": (
        [t(LIST_2, done(2, **tools("X")), CALL, error(1))],
        [t(LIST_2, done(2, **tools("X")), CALL, done(1, **CONTENT))],
    ),
    "structured-content-conforms": (
        [
            called({"a": 1}, done(1, content=[], structuredContent={"b": 1})),
            called({"a": 1}, done(1, structuredContent={})),
        ],
        [
            called({"a": 1}, done(1, content=[], structuredContent={"b": "x"})),
            called({"a": 1}, done(1, content=[], structuredContent=None)),
            called({"a": 1}, done(1, **CONTENT)),
        ],
    ),
    "structured-content-as-text": (
        [
            t(CALL, done(1, content=[{"type": "text", "text": ' {"a": 1.0}'}], structuredContent={"a": 1})),
            # A value that needs a wrapper to be an object: the text may be the value alone.
            t(
                CALL,
                done(1, content=[{"type": "text", "text": '["a", "b"]'}], structuredContent={"result": ["a", "b"]}),
            ),
            t(CALL, done(1, content=[{"type": "text", "text": "[a"}], structuredContent={"result": "[a"})),
            t(CALL, done(1, content=[{"type": "text", "text": "3"}], structuredContent={"result": 3})),
        ],
        [
            t(CALL, done(1, content=[{"type": "text", "text": "a is 1"}], structuredContent={"a": 1})),
            t(CALL, done(1, content=[{"type": "text", "text": "a and b"}], structuredContent={"result": ["a", "b"]})),
            t(CALL, done(1, content=[{"type": "text", "text": "b"}], structuredContent={"result": "a"})),
            t(CALL, done(1, content=[{"type": "text", "text": "1"}], structuredContent={"a": 1})),
            t(CALL, done(1, content=[{"type": "text", "text": "1"}], structuredContent={"result": 1, "more": 2})),
        ],
    ),
    "embedded-resource-capability": (
        [t(CALL, done(1, content=[EMBEDDED]), server={"resources": {}}), t(CALL, done(1, **CONTENT))],
        [t(CALL, done(1, content=[EMBEDDED]))],
    ),
    # --- resources ---
    "blob-is-base64": (
        [t(READ, done(1, contents=[{"uri": "x:y", "blob": "aGk="}]))],
        [
            t(READ, done(1, contents=[{"uri": "x:y", "blob": "a"}])),
            t(READ, done(1, contents=[{"uri": "x:y", "blob": "aGk"}])),
            t(CALL, done(1, content=[{"type": "image", "mimeType": "image/png", "data": "<svg>"}])),
            t(CALL, done(1, content=[{"type": "resource", "resource": {"uri": "x:y", "blob": "*"}}])),
        ],
    ),
    "resource-uri-valid": (
        [t(RESOURCES, done(2, resources=[{"uri": "a+b.c-1:///x%20y?z#w"}]))],
        [t(RESOURCES, done(2, resources=[{"uri": uri}])) for uri in ("x", "a b:c", "1a:b", "x:é", "x:a b", "x:%zz")],
    ),
    "resource-not-found": (
        [missing(error(1))],
        [missing(error(1, -32002)), missing(done(1, contents=[])), missing(error(1, -32603))],
    ),
    "resource-not-found-code": (
        [missing(error(1, -32002), revision=LEGACY)],
        [missing(error(1), revision=LEGACY), missing(result(1, contents=[]), revision=LEGACY)],
    ),
    "malformed-uri-refused": (
        [t(ask(1, "resources/read", uri="a b"), error(1))],
        [t(ask(1, "resources/read", uri="a b"), done(1, contents=[{"uri": "a b", "text": ""}]))],
    ),
    "path-traversal-refused": (
        [t(CLIMB, error(1))],
        [t(CLIMB, done(1, contents=[{"uri": "x:y", "text": "root:x:0:0:root:/root:/bin/sh\n"}]))],
    ),
    # --- prompts ---
    "prompt-content-valid": (
        [prompted({"type": "text", "text": ""}), prompted({"type": "image", "data": "aGk=", "mimeType": "image/png"})],
        [
            prompted({"type": "image", "data": "<svg>", "mimeType": "image/png"}),
            prompted({"type": "audio", "data": "aGk=", "mimeType": "loud"}),
            prompted({"type": "resource", "resource": {"uri": "x:y", "text": ""}}),
            prompted({"type": "resource", "resource": {"uri": "y", "mimeType": "text/plain", "text": ""}}),
            prompted({"type": "resource", "resource": {"uri": "x:y", "mimeType": "text/plain"}}),
        ],
    ),
    "prompt-errors": (
        [got(error(1)), got(error(1), NEEDY)],
        [got(error(1, -32603)), got(done(1, messages=[])), got(done(1, messages=[]), NEEDY)],
    ),
    # --- subscriptions ---
    "listen-acknowledged-first": (
        [t(LISTEN, ACK, CHANGED), t(LISTEN, heard(2, "notifications/tools/list_changed"), ACK)],
        [t(LISTEN, CHANGED, ACK), t(LISTEN, overdue(1)), t(LISTEN, done(1))],
    ),
    "acknowledged-within-request": (
        [t(LISTEN, ACK), t(LISTEN, acknowledged(1))],
        [
            t(LISTEN, acknowledged(1, promptsListChanged=True)),
            t(LISTEN, acknowledged(1, resourceSubscriptions=["x:y"])),
            t(FOLLOW, acknowledged(1, taskIds=["a", "b"])),
        ],
    ),
    "listen-only-requested": (
        [
            t(LISTEN, ACK, CHANGED),
            t(WATCH, ACK, heard(1, "notifications/resources/updated", uri="x:y/z")),
            t(FOLLOW, ACK, heard(1, "notifications/tasks", taskId="a")),
        ],
        [
            t(LISTEN, ACK, heard(1, "notifications/prompts/list_changed")),
            t(WATCH, ACK, heard(1, "notifications/resources/updated", uri="x:z")),
            t(LISTEN, ACK, heard(1, "notifications/message", level="info", data=1)),
            t(FOLLOW, ACK, heard(1, "notifications/tasks", taskId="b")),
        ],
    ),
    "listen-id-on-notifications": (
        [t(LISTEN, ACK, CHANGED)],
        [
            t(LISTEN, ACK, notify("notifications/tools/list_changed")),
            t(LISTEN, ACK, heard("1", "notifications/tools/list_changed")),
            t(LISTEN, notify("notifications/subscriptions/acknowledged", notifications={})),
        ],
    ),
    "listen-result-has-id": (
        [t(LISTEN, ACK, done(1, _meta={meta.SUBSCRIPTION_ID: 1}))],
        [t(LISTEN, ACK, done(1)), t(LISTEN, ACK, done(1, _meta={meta.SUBSCRIPTION_ID: "1"}))],
    ),
    "nothing-after-listen": ([t(LISTEN, ACK, CHANGED, done(1))], [t(LISTEN, ACK, done(1), CHANGED)]),
    "listen-teardown-announced": (
        [t(LISTEN, ACK, done(1)), t(*streamed(LISTEN, ACK, notify("notifications/cancelled", requestId=1)))],
        [t(*streamed(LISTEN, ACK))],
    ),
    "listen-ends-with-result": (
        [t(LISTEN, ACK, done(1))],
        [t(*streamed(LISTEN, ACK)), t(LISTEN, ACK, notify("notifications/cancelled", requestId=1))],
    ),
    "list-change-announced": (
        [t(*changing(CHANGED), server=LIVE), old(*changing(notify("notifications/tools/list_changed")), server=LIVE)],
        [t(*changing(), server=LIVE), old(*changing(), server=LIVE)],
    ),
    "updates-only-subscribed": (
        [old(ask(1, "resources/subscribe", uri="x:y"), UPDATED)],
        [
            old(UPDATED),
            old(
                *[ask(1, "resources/subscribe", uri="x:y"), result(1)],
                *[ask(2, "resources/unsubscribe", uri="x:y"), result(2), UPDATED],
            ),
        ],
    ),
}

# What a rule must not take a stand on.
SILENT: dict[str, Sequence[T]] = {
    # An error after a cancellation is about that, and judged by `cancelled-unanswered`.
    "ping-answered": [old(ask(1, "ping"), cancel(1), error(1, 0))],
    "prompt-errors": [
        t(PROMPTS, done(2, prompts=[]), ask(1, "prompts/get", name="x"), cancel(1), error(1, 0), server={"prompts": {}})
    ],
    # A server of both eras may take what does not declare the modern one for a request of the legacy era.
    "error-codes-retired": [t(DISCOVER, done(1), ask(2, "resources/read", **without(REQUIRED[0])), error(2, -32002))],
    "error-codes-legacy-range": [t(DISCOVER, done(1), ask(2, "tools/call", **without(REQUIRED[0])), error(2, -32000))],
    "log-only-on-request": [t(DISCOVER, done(1), ask(2, "tools/list", **without(REQUIRED[0])), log("info"))],
    # To JSON, 1.0 is an integer.
    "error-object": [t(LIST, said({"jsonrpc": "2.0", "id": 1, "error": {"code": -1.0, "message": ""}}))],
    "progress-token-known": [
        t(text(b"{"), progress(1)),
        t(ask(1, "tools/call", name="x", _meta={"progressToken": 5}), progress(1, token=5.0), done(1)),
    ],
    "progress-token-type": [t(TOKEN, progress(1, token=5.0))],
    "request-id-fresh": [old(*[attrs.evolve(question(1, "ping"), facts={"event_id": "1-1"})] * 2, transport="http")],
    "resource-uri-valid": [t(RESOURCES, done(2, resources=[{"uri": "file:///é"}]))],
    "version-echoed": [raw(hello("2025-06-18"), opened(LEGACY))],
    "version-offered": [raw(hello("1900-01-01"), error(1))],
    "capabilities-declared": [t(LIST, done(1, **TOOLS))],
    "unsupported-version-error": [old(ask(1, "ping", _meta=TOO_OLD.message["params"]["_meta"]), result(1))],
    "incomplete-meta-refused": [
        old(LIST, result(1, tools=[])),
        t(ask(1, "own/method", **without(REQUIRED[1])), done(1)),
    ],
    "list-same-on-each-connection": [t(*in_turns("a", "b", "b")), t(*in_turns("a", "b", "c"))],
    "structured-content-conforms": [called({"a": 1}, ERRED)],
    "lists-answered": [
        t(LIST, error(1, -31429), server={"tools": {}}),
        t(ask(1, "tools/list", _meta={meta.LOG_LEVEL: "x"}), error(1), server={"tools": {}}),
    ],
    "tool-arguments-validated": [
        called({"a": "x"}, done(1, **CONTENT)),
        called({"a": 1, "b": 2}, done(1, **CONTENT)),
        t(CALL, done(1, **CONTENT)),
        called({"a": 1}, error(1)),
    ],
    "schemas-valid": [t(LIST, done(1, **tools("x", inputSchema={"$schema": "urn:own", "type": 5})))],
    "unknown-tool-refused": [t(LIST_2, done(2, **TOOLS, nextCursor="c"), CALL, done(1, **CONTENT))],
    "resource-not-found": [
        missing(done(1, contents=[{"uri": "x:y", "text": ""}])),
        t(RESOURCES, done(2, resources=[]), READ, error(1, -32603), server={"resources": {}}),
    ],
    "listen-acknowledged-first": [t(LISTEN, error(1)), t(LISTEN)],
    "updates-only-subscribed": [
        old(ask(1, "resources/subscribe", uri="x:y"), ask(2, "resources/unsubscribe", uri="x:y"), UPDATED)
    ],
    "request-answered": [
        t(LIST, tell("notifications/cancelled", requestId=1)),
        t(sent({"id": 1, "method": "ping"}), overdue(1)),
        t(LIST, LIST, done(1)),
        t(CALL, overdue(1)),
        t(LIST, text(b"{"), Event("close", "server"), transport="websocket"),
        t(LIST, Event("mark", "kit", facts={"what": "half closed"}), Event("close", "server")),
    ],
    "response-matches-request": [
        t(sent({"jsonrpc": "2.0", "id": None, "method": "ping"}), result(None)),
        t(text(b"{"), error(None)),
        t(text(b'{"id":7,'), error(7)),
    ],
    "notification-unanswered": [
        old(sent([LIST.message]), tell("no-such/x"), error(None)),
        t(text(b"{"), tell("no-such/x"), error(None)),
    ],
    "result-valid": [t(LIST, error(1))],
    "answered-once": [t(error(None), error(None))],
    "cancelled-unanswered": [
        old(CALL, cancel(1), result(1)),
        old(CALL, cancel(1), ask(2, "ping"), result(1), result(2)),
        old(CALL, cancel(1), result(1), transport="http"),
    ],
    "no-progress-after-end": [t(TOKEN, done(1), progress(1), transport="http")],
    "log-level-respected": [
        old(log("debug")),
        old(level(1, "error"), log("debug"), result(1)),
        old(level(1, "error"), result(1), level(2, "debug"), log("debug")),
        old(level(1, "loud"), result(1), log("debug")),
    ],
    "completion-errors": [t(COMPLETE, error(1), server={"completions": {}})],
    "bad-cursor-refused": [t(ask(1, "tools/list", cursor="x"), done(1, **TOOLS))],
    "cancel-open-request": [
        old(
            *[question(7, "ping"), sent({"jsonrpc": "2.0", "id": 7, "result": {}})],
            *[ask(1, "ping"), result(1), cancels(7)],
            transport="http",
        )
    ],
    "bad-cancel-ignored": [t(text(b"\xff"), cancel(None), LIST, Event("close", "server"), transport="websocket")],
    "prompt-content-valid": [
        t(
            ask(1, "prompts/get", name="x", arguments={"a": ""}),
            done(1, messages=[{"role": "user", "content": {"type": "resource", "resource": {"uri": "", "text": "x"}}}]),
        )
    ],
    "list-change-announced": [old(*changing(), server=LIVE, transport="http")],
    "cursors-stable": [
        t(
            *[LIST, done(1, **tools("a"), nextCursor="c"), CALL_2, done(3, **CONTENT)],
            *[PAGE, done(2, **tools("b", "a"))],
        ),
        t(LIST, done(1, **tools("a"), nextCursor="c")),
    ],
    "notification-valid": [t(notify("notifications/own", x=1))],
    "malformed-code": [
        t(sent(5), tell("notifications/x"), error(None, -32601)),
        t(ask("x" * 3000, "no-such/x"), error("x" * 3000, -32601), error(None, -32603)),
        t(LIST, error(None, -1)),
        t(sent(5), error(None, -1), transport="http"),
    ],
}


def verdicts(rule: str, transcript: T) -> list[str | None]:
    return [verdict.problem for _, verdict in judge(transcript.history, [RULES[rule]])]


@pytest.mark.parametrize("rule", ROWS)
def test_rule_judges_both_ways(rule: str) -> None:
    kept, broken = ROWS[rule]
    assert kept
    assert broken
    for each in kept:
        found = verdicts(rule, each)
        assert found, each
        assert not any(found), (each, found)
    for each in broken:
        assert any(verdicts(rule, each)), each


@pytest.mark.parametrize("rule", SILENT)
def test_rule_is_silent_where_the_text_leaves_room(rule: str) -> None:
    for each in SILENT[rule]:
        assert not any(verdicts(rule, each)), each


def test_every_rule_for_servers_is_tried_here() -> None:
    here = ("messages", "lifecycle", "cancellation", "tools", "resources", "prompts", "utilities", "subscriptions")
    modules = [f"trio_mcp.conformance.rules.{name}" for name in here]
    assert sorted(rule.id for rule in RULES.values() if rule.judge.__module__ in modules) == sorted(ROWS)


def test_the_catalogues_name_every_module() -> None:
    for catalogue, decorator in (
        (rule_catalogue, "@rule("),
        (rule_catalogue, "@stated_rule("),
        (move_catalogue, "@move("),
    ):
        room = Path(catalogue.__file__).parent
        having = {each.resolve() for each in room.rglob("*.py") if f"\n{decorator}" in each.read_text()}
        named = {Path(str(each.__file__)).resolve() for each in catalogue.MODULES}
        assert having <= named


def test_the_moves_of_rules_exist() -> None:
    for rule in RULES.values():
        if rule.who == "server":
            assert rule.moves, rule.id
            assert set(rule.moves) <= set(MOVES), rule.id
            assert rule.sentence.endswith("."), rule.id
