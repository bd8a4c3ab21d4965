"""Tools to test programs that use this library: a fixture, a recorder, faults, a check of transports, strategies.

Neither a client nor a server imports it; `trio_mcp.conformance` checks those of others, too. What needs Hypothesis or
pytest is imported on first use; the extra for them is ``trio-mcp[testing]``.
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
    from trio_mcp.testing.fixtures import client_fixture

__all__ = [
    "ON_LINKS",
    "ON_WIRES",
    "Await",
    "CallRecorder",
    "ContractBroken",
    "ContractReport",
    "Delay",
    "Drop",
    "Duplicate",
    "FaultLinks",
    "FaultProxy",
    "FaultStatistics",
    "Faults",
    "Pass",
    "RecordedCall",
    "Reset",
    "Split",
    "Stall",
    "Step",
    "Tear",
    "Trait",
    "check_transport",
    "client_fixture",
    "fault_scripts",
    "random_faults",
    "record_calls",
    "strategies",
]

_LATE = {
    "calls": ("CallRecorder", "RecordedCall", "record_calls"),
    "fixtures": ("client_fixture",),
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
