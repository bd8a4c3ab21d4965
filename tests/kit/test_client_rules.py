"""Rules for clients: small transcripts that keep or break them, and the verdicts."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.kit.transcripts import NEW, OLD, asked, fields, messages, opening
from trio_mcp.conformance.rules.catalogue import RULES
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS

KIT = "http://kit.test"
SAMPLING, ELICITATION, ROOTS = "sampling/createMessage", "elicitation/create", "roots/list"
SAID = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
USE = {**SAID, "content": [{"type": "tool_use", "id": "1", "name": "add", "input": {}}]}
FILE, OTHER = {"roots": [{"uri": "file:///a"}]}, {"roots": [{"uri": "file:///b"}]}
BAD_HEADER = {"type": "object", "properties": {"a": {"type": "integer", "x-mcp-header": ""}}}
HEADER = {"type": "object", "properties": {"a": {"type": "integer", "x-mcp-header": "A"}}}


def result(content: dict[str, Any]) -> dict[str, Any]:
    return {"result": content}


def error(code: int) -> dict[str, Any]:
    return {"error": {"code": code, "message": "no"}}


def roots(*between: tuple[str, dict[str, Any]]) -> list[Event]:
    """Return a session in which the roots change."""
    first, second = ("server", {"id": 1, "method": ROOTS}), ("server", {"id": 2, "method": ROOTS})
    answers = ("client", {"id": 1, **result(FILE)}), ("client", {"id": 2, **result(OTHER)})
    return messages(*opening({"roots": {"listChanged": True}}), first, answers[0], *between, second, answers[1])


def reported(*progress: float, token: str = "t", late: bool = False) -> list[Event]:
    """Return a session in which a client reports progress of a question."""
    question = {"id": 1, "method": SAMPLING, "params": {"_meta": {"progressToken": "t"}}}
    notices = [
        ("client", {"method": "notifications/progress", "params": {"progressToken": token, "progress": done}})
        for done in progress
    ]
    answer = ("client", {"id": 1, **result(SAID)})
    told = [answer, *notices] if late else [*notices, answer]
    return messages(*opening({"sampling": {}}), ("server", question), *told)


def lists(*cursors: str) -> list[Event]:
    """Return requests for pages: the first pages of two lists, then those at these cursors of the first list."""
    told: list[tuple[str, dict[str, Any]]] = []
    pages = {None: "next", "next": "", "": None}
    for at, cursor in enumerate([None, *cursors]):
        params = fields() if cursor is None else fields(cursor=cursor)
        more = {} if pages[cursor] is None else {"nextCursor": pages[cursor]}
        told.append(("client", {"id": at, "method": "prompts/list", "params": params}))
        told.append(("server", {"id": at, "result": {"resultType": "complete", "prompts": [], **more}}))
    return messages(*told)


def untyped(*later: dict[str, Any]) -> list[Event]:
    """Return a call whose result has no type, and what the client sends after it."""
    call = {"method": "tools/call", "params": fields(name="add")}
    told = [("client", {"id": 1, **call}), ("server", {"id": 1, **result({"content": []})})]
    return messages(*told, *[("client", {"id": 2, "method": "tools/call", "params": each}) for each in later])


def over_http(*exchanges: tuple[dict[str, str], dict[str, Any], dict[str, Any]]) -> list[Event]:
    """Return requests over HTTP: the headers, the message, and the response."""
    found = [Event("open", "client", facts={"transport": "http"})]
    for number, (headers, request, response) in enumerate(exchanges):
        facts = {"method": "POST", "path": "/mcp", "headers": [*headers.items()]}
        head = {"status": 200, "headers": [("content-type", "application/json")]}
        found += [
            Event("request", "client", exchange=number, facts=facts),
            Event("message", "client", exchange=number, message={"jsonrpc": "2.0", "id": number, **request}),
            Event("response", "server", exchange=number, facts=head),
            Event("message", "server", exchange=number, message={"jsonrpc": "2.0", "id": number, **response}),
            Event("end", "server", exchange=number, facts={"cut": False, "by": "server"}),
        ]
    return found


def called(schema: dict[str, Any], arguments: dict[str, Any], header: str = "1", name: str = "t") -> list[Event]:
    """Return a list of tools, and a call of one."""
    listed = {"method": "tools/list", "params": fields()}, result({"tools": [{"name": "t", "inputSchema": schema}]})
    call = {"method": "tools/call", "params": fields(name=name, arguments=arguments)}
    return over_http(({}, *listed), ({"Mcp-Param-A": header}, call, result({"content": []})))


def resumed(waited: float) -> list[Event]:
    """Return a stream that ends early and says how long to wait, and the GET that resumes it."""
    events = over_http(({}, {"method": "ping"}, result({})))[:4]
    events.append(Event("mark", "kit", exchange=0, facts={"what": "primed", "event_id": "e", "retry": 0.5}))
    events.append(Event("end", "server", exchange=0, time=1.0, facts={"cut": False, "by": "server"}))
    facts = {"method": "GET", "path": "/mcp", "headers": [("last-event-id", "e")]}
    return [*events, Event("request", "client", exchange=1, time=1.0 + waited, facts=facts)]


def discovered(*later: dict[str, Any]) -> list[Event]:
    """Return a successful probe, and what the client sends after it."""
    probe = {"method": "server/discover", "params": fields()}, result({"supportedVersions": [NEW]})
    return over_http(({}, *probe), *[({}, each, result({})) for each in later])


def fetched(kind: str, path: str, *fetches: str, secret: Any = ()) -> list[Event]:
    """Return a message with a URL of the kit's server, and what the client loads from there."""
    seen = messages(
        ("client", {"id": 1, "method": "x", "params": fields()}), ("server", result({kind: f"{KIT}{path}"}))
    )
    return seen + [Event("mark", "kit", facts={"what": "fetched", "path": each, "secret": secret}) for each in fetches]


def tasks(
    request: dict[str, Any], support: str | None = None, *, offered: bool = True, cancelled: bool = False
) -> list[Event]:
    """Return a tool call in a session whose server may run tools as tasks."""
    start, hello, ready = opening({})
    if offered:
        hello[1]["result"]["capabilities"] = {"tasks": {"requests": {"tools": {"call": {}}}}}
    tool = {"name": "t", **({} if support is None else {"execution": {"taskSupport": support}})}
    listed = ("client", {"id": 1, "method": "tools/list"}), ("server", {"id": 1, **result({"tools": [tool]})})
    call = ("client", {"id": 2, "method": "tools/call", "params": {"name": "t", **request}})
    answer = ("server", {"id": 2, **result({"task": {}} if "task" in request else {"content": []})})
    cancel = ("client", {"method": "notifications/cancelled", "params": {"requestId": 2 if cancelled else 3}})
    return messages(start, hello, ready, *listed, call, answer, cancel)


TASK: dict[str, Any] = {"task": {}}
FORM = {"message": "?", "requestedSchema": {"type": "object"}}
URL = {"message": "?", "mode": "url", "url": "https://x.test"}
ACCEPTED = result({"action": "accept", "content": {}})
INITIALIZE = {"method": "initialize", "params": {"protocolVersion": OLD}}

GREETED = over_http(({}, INITIALIZE, result({"protocolVersion": OLD})))


# The rule; transcripts that keep it, and transcripts that break it.
def unordered(*told: tuple[str, dict[str, Any]]) -> list[Event]:
    """Return a session over HTTP, in which requests may overtake each other, and what happens after its opening."""
    start, hello, _ = opening({})
    return [Event("open", "client", facts={"transport": "http"}), *messages(start, hello, *told)[1:]]


def overdue(method: str, **params: Any) -> list[Event]:
    """Return a session in which the client answers one question, and another not in time."""
    question = ("server", {"id": 9, "method": method, "params": params})
    told = messages(
        *opening({"roots": {}}), ("server", {"id": 1, "method": ROOTS}), ("client", {"id": 1, **result(FILE)})
    )
    mark = Event("mark", "kit", facts={"what": "overdue", "id": 9, "by": "server", "seconds": 10.0})
    return [*told, *messages(question)[1:], mark]


PING, PONG = ("client", {"id": 1, "method": "ping", "params": fields()}), ("server", {"id": 1, **result({})})
LIST, LISTED = ("client", {"id": 1, "method": "tools/list"}), ("server", {"id": 1, **result({"tools": []})})
READY = ("client", {"method": "notifications/initialized"})

CASES: dict[str, tuple[list[list[Event]], list[list[Event]]]] = {
    "client-capabilities-declared": (
        [asked({"roots": {}}, (ROOTS, {}, result(FILE))), asked({}, (ROOTS, {}, error(INVALID_PARAMS)))],
        [asked({}, (ROOTS, {}, result(FILE))), asked({"roots": {}}, (SAMPLING, {}, result(SAID)))],
    ),
    "sampling-tools-refused": (
        [asked({"sampling": {}}, (SAMPLING, {"tools": []}, error(INVALID_PARAMS)))],
        [asked({"sampling": {}}, (SAMPLING, {"tools": []}, result(SAID)))],
    ),
    "elicitation-mode-refused": (
        [asked({"elicitation": {}}, (ELICITATION, URL, error(INVALID_PARAMS)))],
        [
            asked({"elicitation": {"form": {}}}, (ELICITATION, URL, ACCEPTED)),
            asked({"elicitation": {"url": {}}}, (ELICITATION, FORM, error(INTERNAL_ERROR))),
        ],
    ),
    "elicitation-mode-supported": (
        [asked({"elicitation": {}}, (ELICITATION, FORM, ACCEPTED), (ELICITATION, FORM, error(INTERNAL_ERROR)))],
        [asked({"elicitation": {}}, (ELICITATION, FORM, error(INVALID_PARAMS)))],
    ),
    "tool-choice-respected": (
        [
            asked({"sampling": {"tools": {}}}, (SAMPLING, {"toolChoice": {"mode": "none"}}, result(SAID))),
            asked({"sampling": {"tools": {}}}, (SAMPLING, {"toolChoice": {"mode": "required"}}, result(USE))),
        ],
        [
            asked({"sampling": {"tools": {}}}, (SAMPLING, {"toolChoice": {"mode": "none"}}, result(USE))),
            asked({"sampling": {"tools": {}}}, (SAMPLING, {"toolChoice": {"mode": "required"}}, result(SAID))),
        ],
    ),
    "max-tokens-respected": (
        [asked({"sampling": {}}, (SAMPLING, {"maxTokens": 1}, result(SAID)))],
        [
            asked(
                {"sampling": {}},
                (SAMPLING, {"maxTokens": 1}, result({**SAID, "content": {"type": "text", "text": "x" * 1000}})),
            )
        ],
    ),
    "roots-change-announced": ([roots(("client", {"method": "notifications/roots/list_changed"}))], [roots()]),
    "client-progress-known": (
        [reported(1, 2)],
        [reported(2, 2), reported(1, token="u"), reported(1, late=True)],
    ),
    "missing-result-type-complete": (
        [untyped(), untyped(fields(name="add"))],
        [untyped(fields(name="add", inputResponses={}))],
    ),
    "empty-cursor-followed": ([lists("next", "")], [lists("next")]),
    "client-meta-keys-well-formed": (
        [messages(("client", {"method": "x", "params": {"_meta": {"a.b/c": 1}}}))],
        [messages(("client", {"method": "x", "params": {"_meta": {"1/c": 1}}}))],
    ),
    "client-extension-names": (
        [untyped(fields(declared={"extensions": {"a.b/c": {}}}))],
        [untyped(fields(declared={"extensions": {"c": {}}}))],
    ),
    "header-integer-safe": ([called(HEADER, {"a": 1})], [called(HEADER, {"a": 2**53}, str(2**53))]),
    "bad-header-annotation-refused": ([called(BAD_HEADER, {}, name="u")], [called(BAD_HEADER, {})]),
    "client-task-within-capabilities": ([tasks({}, offered=False), tasks(TASK)], [tasks(TASK, offered=False)]),
    "client-task-tool-support": (
        [tasks({}), tasks(TASK, "required"), tasks({}, "optional"), tasks(TASK, "optional")],
        [tasks(TASK), tasks(TASK, "forbidden"), tasks({}, "required")],
    ),
    "client-task-cancelled-by-method": (
        [tasks(TASK, "required"), tasks({}, cancelled=True)],
        [tasks(TASK, "required", cancelled=True)],
    ),
    "retry-respected": ([resumed(0.5)], [resumed(0.25)]),
    "answer-content-types-read": (
        [discovered({"method": "tools/list", "params": fields()})],
        [discovered(INITIALIZE), [*GREETED, *(attrs.evolve(event, connection=1) for event in GREETED)]],
    ),
    "icon-fetch-safe": ([fetched("src", "/icon.png", "/other")], [fetched("src", "/icon.png", "/icon.png")]),
    "icon-without-credentials": (
        [fetched("src", "/icon.png", "/icon.png")],
        [fetched("src", "/icon.png", "/icon.png", secret=["cookie"])],
    ),
    "icon-origin-checked": (
        [fetched("src", "/foreign.png", "/other")],
        [fetched("src", "/foreign.png", "/foreign.png")],
    ),
    "icon-redirect-refused": (
        [fetched("src", "/icon.png", "/icon.png")],
        [fetched("src", "/icon.png", "/icon.png", "/moved.png")],
    ),
    "client-ids-unique": (
        [messages(PING, PONG, PING, PONG)],
        [messages(PING, PING, PONG), messages(*opening({}), LIST, LISTED, LIST, LISTED)],
    ),
    "questions-answered": ([overdue(ELICITATION), overdue(SAMPLING)], [overdue(ROOTS), overdue("ping")]),
    "initialized-sent": (
        [unordered(LIST, READY, LISTED), messages(*opening({}), LIST, LISTED)],
        [unordered(LIST, LISTED, READY), messages(*[*opening({})][:2], LIST, READY, LISTED)],
    ),
    "parameter-headers-sent": (
        [called(HEADER, {"a": 1}), called(HEADER, {"a": 1}, header="=?base64?MQ==?=")],
        [called(HEADER, {"a": 1}, header="2"), called(HEADER, {"a": 1}, header="é")],
    ),
    "remote-ref-not-fetched": ([fetched("$ref", "/a.json")], [fetched("$ref", "/a.json", "/a.json")]),
    "elicitation-not-prefetched": ([fetched("url", "/visit")], [fetched("url", "/visit", "/visit")]),
}


@pytest.mark.parametrize("rule", CASES)
def test_judges(rule: str) -> None:
    kept, wrong = CASES[rule]
    verdicts = [[*RULES[rule].judge(History(events))] for events in (*kept, *wrong)]
    broke = [any(each.problem is not None for each in found) for found in verdicts]
    assert broke == [False] * len(kept) + [True] * len(wrong)
    assert all(verdicts)
