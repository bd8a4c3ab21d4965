"""Reports written by hand, with all that a report can contain."""

from __future__ import annotations

from typing import Any

import attrs

from trio_mcp.conformance.outcomes import CheckReport, Failure, Outcome, Reached
from trio_mcp.conformance.rules.model import Rule, held
from trio_mcp.conformance.steps import Ask, AwaitResponses, Cancel
from trio_mcp.conformance.transcript.events import Event

__all__ = ["HOSTILE", "SECRETS", "clean_report", "report"]

HOSTILE = "<script>alert(1)</script>\"'&\x00\x1b[31m\u202e\ud800]]>--><!--"
"""What a target may say anywhere."""

SECRETS = ("hunter2", "sk-abcdefghijklmnopqrstuvwx", "letmein", "f00dface")
"""What stands in the transcript of the report, and in nothing that is made of it."""

NEW, OLD = "2026-07-28", "2025-11-25"


def _rule(id: str, section: str, sentence: str, level: Any = "MUST", who: Any = "server") -> Rule:
    return Rule(id, level, sentence, section, "", (OLD, NEW), who, (), lambda history: iter([held(history.events[0])]))


def _message(time: float, sender: Any, exchange: int | None = None, **message: Any) -> Event:
    return Event("message", sender, exchange=exchange, time=time, message={"jsonrpc": "2.0", **message})


def _twice() -> Failure:
    """Return the failure of a server that answers a cancelled request."""
    events = (
        Event("open", "client", time=0.0, facts={"transport": "stdio"}),
        _message(0.01, "client", id=0, method="initialize", params={"protocolVersion": OLD, "capabilities": {}}),
        _message(0.02, "server", id=0, result={"protocolVersion": OLD, "capabilities": {"tools": {}}}),
        _message(0.03, "client", method="notifications/initialized"),
        Event("mark", "kit", time=0.04, facts={"what": "begin", "example": 7}),
        _message(
            0.05,
            "client",
            id=8,
            method="tools/call",
            params={"name": "log_in", "arguments": {"password": SECRETS[0], "note": f"key {SECRETS[1]}"}},
        ),
        _message(
            0.06, "client", method="notifications/cancelled", params={"requestId": 8, "reason": "changed my mind"}
        ),
        _message(0.31, "server", id=8, result={"content": [{"type": "text", "text": "welcome"}]}),
        Event("mark", "kit", time=0.32, facts={"what": "alive", "seconds": 0.002}),
    )
    problem = "the request #8 was cancelled, and got a response all the same"
    return Failure(
        problem, events, 7, (Ask("tools/call", {"name": "log_in"}), Cancel(), AwaitResponses()), OLD, 3, 3, 7
    )


def _header() -> Failure:
    """Return the failure of a server that doesn't look at a header, over HTTP."""
    headers = (("Authorization", f"Bearer {SECRETS[2]}"), ("Mcp-Session-Id", SECRETS[3]), ("Mcp-Method", "tools/list"))
    events = (
        Event("mark", "kit", time=1.0, facts={"what": "begin"}),
        Event("request", "client", 0, 3, 1.0, facts={"method": "POST", "path": "/mcp", "headers": headers}),
        _message(1.0, "client", 3, id=4, method="tools/call", params={"name": HOSTILE}),
        Event(
            "response", "server", 0, 3, 1.1, facts={"status": 200, "headers": (("Content-Type", "text/event-stream"),)}
        ),
        Event("text", "server", 0, 3, 1.2, text=b"\xff\x00 garbage " + HOSTILE.encode("utf-8", "surrogatepass")),
        Event("message", "server", 0, 3, 1.2, message=[1, HOSTILE]),
        Event("mark", "kit", time=11.2, facts={"what": "overdue", "id": 4, "seconds": 10.0}),
        Event("end", "server", 0, 3, 11.3, facts={"cut": True}),
        Event("close", "server", 1, None, 11.4, facts={"reason": "the process exited", "status": 3}),
    )
    return Failure(f"Mcp-Method contradicts the body; {HOSTILE}", events, 3, (Ask("tools/call"),), NEW, 2, 5, 90)


def report() -> CheckReport:
    """Return a report with each status, two broken MUSTs, a broken SHOULD that is known, and hostile texts."""
    return CheckReport(
        target="python server.py",
        side="server",
        transport="stdio",
        revisions=(OLD, NEW),
        info=f"shop 1.0.0 {HOSTILE}",
        seed=42,
        examples=200,
        requests=4321,
        seconds=12.34,
        generating=1.5,
        outcomes=(
            Outcome(
                _rule(
                    "no-response-after-cancel",
                    "basic/utilities/cancellation#behavior-requirements",
                    "A receiver of a cancellation sends no response to the cancelled request.",
                ),
                "broken",
                41,
                failure=_twice(),
            ),
            Outcome(
                _rule(
                    "header-method-agrees",
                    "basic/transports/streamable-http#standard-headers",
                    "A server refuses a request whose Mcp-Method header contradicts its body.",
                ),
                "broken",
                12,
                failure=_header(),
            ),
            Outcome(
                _rule(
                    "error-names-field",
                    "server/tools#error-handling",
                    "An error names the argument that is invalid.",
                    "SHOULD",
                ),
                "broken",
                3,
                failure=attrs.evolve(_twice(), at=2),
                known=True,
            ),
            Outcome(_rule("answered-once", "basic#responses", "Each request gets one response."), "held", 4321),
            Outcome(_rule("response-id", "basic#responses", "A response has the id of its request."), "held", 4321),
            Outcome(
                _rule("progress-grows", "basic/utilities/progress#behavior", "Progress only grows."),
                "not exercised",
                reason="no tool reports progress",
            ),
            Outcome(
                _rule("output-fits-schema", "server/tools#output-schema", "Structured content fits the output schema."),
                "not checkable",
                reason=f"the schema of {HOSTILE} can't be generated from",
            ),
        ),
        notes=("2 tools were not called, as they are not annotated read-only: buy, log_in", f"odd: {HOSTILE}"),
        reached=(
            Reached("tool", "log_in", 41, 40, 1),
            Reached("tool", "log_in", 41, 40, 1, keyword="/required", broken=7),
            Reached("tool", "log_in", why="no call had a value that it applies to", keyword=f"/properties/{HOSTILE}"),
            Reached("tool", HOSTILE, 40, 0, 40, f"all 40 calls were refused: {HOSTILE}"),
            Reached("prompt", "greet", why="no call was made in this check"),
        ),
        figures={"latency": {"p50": 0.0012, "p99": 0.034}, "memory": 41_000_000},
    )


def clean_report() -> CheckReport:
    """Return a report in which every rule holds."""
    return attrs.evolve(
        report(),
        info="shop 1.0.0",
        outcomes=tuple(each for each in report().outcomes if each.status == "held"),
        notes=(),
        reached=(Reached("tool", "log_in", 41, 41),),
    )
