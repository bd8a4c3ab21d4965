"""Tools to test programs that speak the protocol: a fixture, a recorder, the conformance kit, faults, and more.

Neither a client nor a server imports it. What needs Hypothesis or pytest is imported on first use; the extra for them
is ``trio-mcp[testing]``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trio_mcp.testing.contract.check import ContractBroken, ContractReport, check_transport
from trio_mcp.testing.contract.rule import Trait
from trio_mcp.testing.faults.flow import FaultStatistics
from trio_mcp.testing.faults.links import FaultLinks
from trio_mcp.testing.faults.proxy import FaultProxy
from trio_mcp.testing.faults.scripts import fault_scripts, random_faults
from trio_mcp.testing.faults.steps import (
    ON_LINKS,
    ON_WIRES,
    Await,
    Delay,
    Drop,
    Duplicate,
    Faults,
    Pass,
    Reset,
    Split,
    Stall,
    Step,
    Tear,
)

# What needs Hypothesis, or is large: `__getattr__` imports it. Type checkers can't follow that.
if TYPE_CHECKING:
    from trio_mcp.testing import strategies
    from trio_mcp.testing.calls import CallRecorder, RecordedCall, record_calls
    from trio_mcp.testing.check.clients import StreamClient, check_client, preview_client
    from trio_mcp.testing.check.engine import check_server, preview_server
    from trio_mcp.testing.check.report import CheckReport, Failure, Outcome, Preview, Progress
    from trio_mcp.testing.fixtures import client_fixture
    from trio_mcp.testing.plugin import conformance_tests
    from trio_mcp.testing.rules.history import Asked, Connection, Exchange, History
    from trio_mcp.testing.rules.model import Rule, Verdict, broken, held, judged, rule
    from trio_mcp.testing.transcript.events import Event

__all__ = [
    "ON_LINKS",
    "ON_WIRES",
    "Asked",
    "Await",
    "CallRecorder",
    "CheckReport",
    "Connection",
    "ContractBroken",
    "ContractReport",
    "Delay",
    "Drop",
    "Duplicate",
    "Event",
    "Exchange",
    "Failure",
    "FaultLinks",
    "FaultProxy",
    "FaultStatistics",
    "Faults",
    "History",
    "Outcome",
    "Pass",
    "Preview",
    "Progress",
    "RecordedCall",
    "Reset",
    "Rule",
    "Split",
    "Stall",
    "Step",
    "StreamClient",
    "Tear",
    "Trait",
    "Verdict",
    "broken",
    "check_client",
    "check_server",
    "check_transport",
    "client_fixture",
    "conformance_tests",
    "fault_scripts",
    "held",
    "judged",
    "preview_client",
    "preview_server",
    "random_faults",
    "record_calls",
    "rule",
    "strategies",
]

_LATE = {
    "calls": ("CallRecorder", "RecordedCall", "record_calls"),
    "check.clients": ("StreamClient", "check_client", "preview_client"),
    "check.engine": ("check_server", "preview_server"),
    "check.report": ("CheckReport", "Failure", "Outcome", "Preview", "Progress"),
    "fixtures": ("client_fixture",),
    "plugin": ("conformance_tests",),
    "rules.history": ("Asked", "Connection", "Exchange", "History"),
    "rules.model": ("Rule", "Verdict", "broken", "held", "judged", "rule"),
    "transcript.events": ("Event",),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _LATE.items() for name in names}


# PEP 562: called for names that the module does not have yet.
def __getattr__(name: str) -> Any:
    if name == "strategies":
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
