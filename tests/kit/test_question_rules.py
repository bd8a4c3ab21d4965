"""Rules for what a server asks: small transcripts that keep or break them, and the verdicts."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.kit.transcripts import asked, fields, messages, opening
from trio_mcp.conformance.rules.catalogue import RULES
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.transcript.events import Event

SAMPLING, ELICITATION = "sampling/createMessage", "elicitation/create"
CAN = {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
DONE = {"result": {}}
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
VISIT = {"message": "?", "mode": "url", "url": "https://x.test/a", "elicitationId": "1"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "u", "name": "add", "input": {}}]}
RESULT = {"type": "tool_result", "toolUseId": "u", "content": []}
TEXT = {"type": "text", "text": "hi"}


def elicited(params: dict[str, Any], capabilities: dict[str, Any] = CAN) -> list[Event]:
    return asked(capabilities, (ELICITATION, params, DONE))


def sampled(*said: dict[str, Any], capabilities: dict[str, Any] = CAN, **more: Any) -> list[Event]:
    return asked(capabilities, (SAMPLING, {"messages": [*said], "maxTokens": 1, **more}, DONE))


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*content]}


def rounds(*told: tuple[dict[str, Any], dict[str, Any] | None], method: str = "tools/call") -> list[Event]:
    """Return requests of the modern era, with what they add to the first, and their results, if any came."""
    found: list[tuple[str, dict[str, Any]]] = []
    for at, (more, response) in enumerate(told):
        found.append(("client", {"id": at, "method": method, "params": fields(name="t", declared=CAN, **more)}))
        if response is not None:
            found.append(("server", {"id": at, **response}))
    return messages(*found)


def overdue(events: list[Event], request_id: int) -> list[Event]:
    facts = {"what": "overdue", "id": request_id, "seconds": 1.0, "answered_again": True}
    return [*events, Event("mark", "kit", facts=facts)]


def asks(state: str | None = None, **requests: Any) -> dict[str, Any]:
    more = {} if state is None else {"requestState": state}
    given = {"inputRequests": {key: {"method": method, "params": {}} for key, method in requests.items()}}
    return {"result": {"resultType": "input_required", **more, **(given if requests else {})}}


def complete(**more: Any) -> dict[str, Any]:
    return {"result": {"resultType": "complete", **more}}


def told(params: dict[str, Any]) -> list[Event]:
    """Return an elicitation by URL, and the notice that one is complete."""
    ask = ("server", {"id": 1, "method": ELICITATION, "params": VISIT})
    notice = ("server", {"method": "notifications/elicitation/complete", "params": params})
    return messages(*opening(CAN), ask, notice)


def refused(*elicitations: dict[str, Any]) -> list[Event]:
    """Return a call that must wait for elicitations."""
    error = {"code": -32042, "message": "first", "data": {"elicitations": [*elicitations]}}
    call = ("client", {"id": 1, "method": "tools/call", "params": {"name": "t"}})
    return messages(*opening(CAN), call, ("server", {"id": 1, "error": error}))


def listed(*scopes: str, ttl: Any = 0) -> list[Event]:
    """Return the pages of a list with these scopes."""
    pages = [
        ({} if at == 0 else {"cursor": f"c{at}"}, complete(nextCursor=f"c{at + 1}", ttlMs=ttl, cacheScope=scope))
        for at, scope in enumerate(scopes)
    ]
    return rounds(*pages, method="tools/list")


ERROR = {"error": {"code": -32602, "message": "no"}}

# The rule; transcripts that keep it, and transcripts that break it.
CASES: dict[str, tuple[list[list[Event]], list[list[Event]]]] = {
    "input-within-capabilities": (
        [elicited(FORM), sampled(toolChoice={}), rounds(({}, asks(q=ELICITATION)))],
        [
            elicited(FORM, {}),
            sampled(toolChoice={}, capabilities={"sampling": {}}),
            asked({}, ("roots/list", {}, DONE)),
        ],
    ),
    "elicitation-within-modes": (
        [elicited(FORM, {"elicitation": {}}), elicited(VISIT)],
        [elicited(VISIT, {"elicitation": {}}), elicited(FORM, {"elicitation": {"url": {}}})],
    ),
    "sampling-context-declared": (
        [
            sampled(includeContext="none"),
            sampled(includeContext="allServers", capabilities={"sampling": {"context": {}}}),
        ],
        [sampled(includeContext="thisServer")],
    ),
    "elicitation-shape": (
        [elicited(FORM), elicited(VISIT)],
        [
            elicited({"requestedSchema": {}}),
            elicited({"message": "?"}),
            elicited({**VISIT, "elicitationId": 1}),
            elicited({**VISIT, "url": None}),
            elicited({**FORM, "mode": "x"}),
        ],
    ),
    "elicitation-url-valid": ([elicited(VISIT)], [elicited({**VISIT, "url": each}) for each in ("x", "a b", "http:")]),
    "elicitation-https": (
        [elicited(VISIT), elicited({**VISIT, "url": "http://localhost:1/"})],
        [elicited({**VISIT, "url": "http://x.test/"})],
    ),
    "elicitation-no-links": ([elicited(FORM)], [elicited({**FORM, "message": "See https://x.test/"})]),
    "elicitation-complete-known": ([told({"elicitationId": "1"})], [told({"elicitationId": "2"}), told({})]),
    "url-required-error-shape": ([refused(VISIT)], [refused(), refused(FORM), refused({**VISIT, "elicitationId": 1})]),
    "sampling-message-shape": (
        [sampled(user(TEXT))],
        [sampled({"role": "user"}), sampled({**user(TEXT), "role": "x"})],
    ),
    "sampling-tool-balance": (
        [sampled(user(TEXT)), sampled(USE, user(RESULT))],
        [
            sampled(USE),
            sampled(USE, user(TEXT)),
            sampled(USE, user(RESULT, TEXT)),
            sampled(user(RESULT)),
            sampled(USE, user({**RESULT, "toolUseId": "v"})),
        ],
    ),
    "input-required-has-content": ([rounds(({}, asks("s"))), rounds(({}, asks(q="x")))], [rounds(({}, asks()))]),
    "input-requests-known": ([rounds(({}, asks(q="roots/list")))], [rounds(({}, asks(q="tools/list")))]),
    "input-request-keys-unique": (
        [rounds(({}, asks(q="roots/list")))],
        [[attrs.evolve(each, facts={"repeated": ["q"]}) for each in rounds(({}, asks(q="roots/list")))]],
    ),
    "input-required-where-allowed": (
        [rounds(({}, asks("s")))],
        [rounds(({}, asks("s")), method="completion/complete")],
    ),
    "request-state-tampering-survived": (
        [rounds(({}, asks("s")), ({"requestState": "t"}, ERROR))],
        [overdue(rounds(({}, asks("s")), ({"requestState": "t"}, None)), 1)],
    ),
    "unfulfilled-input-survived": (
        [rounds(({}, asks(q=ELICITATION)), ({}, complete()))],
        [overdue(rounds(({}, asks(q=ELICITATION)), ({}, None)), 1)],
    ),
    "bad-input-responses-refused": (
        [
            rounds(({}, asks(q=ELICITATION)), ({"inputResponses": {"q": {"action": "perhaps"}}}, response))
            for response in (ERROR, asks(q=ELICITATION))
        ],
        [rounds(({}, asks(q=ELICITATION)), ({"inputResponses": {"q": {"action": "perhaps"}}}, complete()))],
    ),
    "missing-input-asked-again": (
        [rounds(({}, asks("s", q=ELICITATION)), ({"requestState": "s"}, asks("s", q=ELICITATION)))],
        [rounds(({}, asks("s", q=ELICITATION)), ({"requestState": "s"}, ERROR))],
    ),
    "cache-hints-present": (
        [listed("public"), listed("private", ttl=1.5)],
        [listed("all"), listed("public", ttl=-1), listed("public", ttl=True)],
    ),
    "cache-scope-same-on-pages": ([listed("public", "public")], [listed("private", "public")]),
}


@pytest.mark.parametrize("rule", CASES)
def test_judges(rule: str) -> None:
    kept, wrong = CASES[rule]
    verdicts = [[*RULES[rule].judge(History(events))] for events in (*kept, *wrong)]
    broke = [any(each.problem is not None for each in found) for found in verdicts]
    assert broke == [False] * len(kept) + [True] * len(wrong)
    assert all(verdicts)
