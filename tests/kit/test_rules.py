"""The rules for servers, each on transcripts that keep it and transcripts that break it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from trio_mcp.testing.check.moves.catalogue import MOVES
from trio_mcp.testing.rules.catalogue import RULES, judge
from trio_mcp.testing.rules.history import History
from trio_mcp.testing.transcript.events import Event
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
TOKEN = ask(1, "tools/call", name="x", _meta={"progressToken": "t"})
LISTEN = ask(1, "subscriptions/listen", notifications={"toolsListChanged": True})
COMPLETE = ask(1, "completion/complete", ref={"type": "ref/prompt", "name": "x"}, argument={"name": "a", "value": ""})
PROMPTS = ask(2, "prompts/list")
CONTENT: dict[str, Any] = {"content": [{"type": "text", "text": "x"}]}

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
}

# What a rule must not take a stand on.
SILENT: dict[str, Sequence[T]] = {
    "request-answered": [
        t(LIST, tell("notifications/cancelled", requestId=1)),
        t(sent({"id": 1, "method": "ping"}), overdue(1)),
        t(LIST, LIST, done(1)),
        t(CALL, overdue(1)),
    ],
    "response-matches-request": [t(text(b"{"), error(None)), t(text(b'{"id":7,'), error(7))],
    "notification-unanswered": [t(text(b"{"), tell("no-such/x"), error(None))],
    "result-valid": [t(LIST, error(1))],
    "answered-once": [t(error(None), error(None))],
    "cancelled-unanswered": [
        old(CALL, cancel(1), result(1)),
        old(CALL, cancel(1), ask(2, "ping"), result(1), result(2)),
        old(CALL, cancel(1), result(1), transport="http"),
    ],
    "progress-token-known": [t(text(b"{"), progress(1))],
    "no-progress-after-end": [t(TOKEN, done(1), progress(1), transport="http")],
    "log-level-respected": [
        old(log("debug")),
        old(level(1, "error"), log("debug"), result(1)),
        old(level(1, "error"), result(1), level(2, "debug"), log("debug")),
        old(level(1, "loud"), result(1), log("debug")),
    ],
    "completion-errors": [t(COMPLETE, error(1), server={"completions": {}})],
    "bad-cursor-refused": [t(ask(1, "tools/list", cursor="x"), done(1, **TOOLS))],
    "cursors-stable": [t(LIST, done(1, **tools("a"), nextCursor="c"))],
    "notification-valid": [t(notify("notifications/own", x=1))],
    "malformed-code": [t(LIST, error(None, -1)), t(sent(5), error(None, -1), transport="http")],
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
    here = ("messages", "lifecycle", "tools", "resources", "prompts", "utilities", "subscriptions", "input")
    rules = [rule.id for rule in RULES.values() if rule.judge.__module__.rpartition(".")[2] in here]
    assert sorted(rule for rule in rules if RULES[rule].who == "server") == sorted(ROWS)


def test_the_moves_of_rules_exist() -> None:
    for rule in RULES.values():
        if rule.who == "server":
            assert rule.moves, rule.id
            assert set(rule.moves) <= set(MOVES), rule.id
            assert rule.sentence.endswith("."), rule.id
