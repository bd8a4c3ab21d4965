"""The conformance kit: it checks any MCP server or client by the rules of the specification.

It needs Hypothesis, and is imported on first use; the extra for it is ``trio-mcp[testing]``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trio_mcp.conformance.clients import StreamClient, check_client, preview_client
    from trio_mcp.conformance.engine import check_server, preview_server
    from trio_mcp.conformance.outcomes import CheckReport, Failure, Outcome, Preview, Progress
    from trio_mcp.conformance.plugin import conformance_tests
    from trio_mcp.conformance.rules.history import Asked, Connection, Exchange, History
    from trio_mcp.conformance.rules.model import Rule, Verdict, broken, held, judged, rule
    from trio_mcp.conformance.transcript.events import Event

__all__ = [
    "Asked",
    "CheckReport",
    "Connection",
    "Event",
    "Exchange",
    "Failure",
    "History",
    "Outcome",
    "Preview",
    "Progress",
    "Rule",
    "StreamClient",
    "Verdict",
    "broken",
    "check_client",
    "check_server",
    "conformance_tests",
    "held",
    "judged",
    "preview_client",
    "preview_server",
    "rule",
]

_LATE = {
    "clients": ("StreamClient", "check_client", "preview_client"),
    "engine": ("check_server", "preview_server"),
    "outcomes": ("CheckReport", "Failure", "Outcome", "Preview", "Progress"),
    "plugin": ("conformance_tests",),
    "rules.history": ("Asked", "Connection", "Exchange", "History"),
    "rules.model": ("Rule", "Verdict", "broken", "held", "judged", "rule"),
    "transcript.events": ("Event",),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _LATE.items() for name in names}


# PEP 562: called for names that the module does not have yet.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
