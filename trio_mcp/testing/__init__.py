"""Tools to test programs that use trio_mcp: links and connections with faults, and a check of transports.

Neither a client nor a server imports it. What needs Hypothesis says so; its extra is ``trio-mcp[testing]``.
"""

from __future__ import annotations

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

__all__ = [
    "ON_LINKS",
    "ON_WIRES",
    "Await",
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
    "Reset",
    "Split",
    "Stall",
    "Step",
    "Tear",
    "Trait",
    "check_transport",
    "fault_scripts",
    "random_faults",
]
