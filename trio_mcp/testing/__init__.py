"""Tools to test programs that use this library: a fixture, a recorder, faults, a check of transports, strategies.

Neither a client nor a server imports it; `trio_mcp.conformance` checks those of others, too. What needs Hypothesis or
pytest is imported on first use; the extra for them is ``trio-mcp[testing]``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.testing import strategies as strategies
    from trio_mcp.testing.calls import CallRecorder as CallRecorder
    from trio_mcp.testing.calls import RecordedCall as RecordedCall
    from trio_mcp.testing.calls import record_calls as record_calls
    from trio_mcp.testing.contract.check import ContractBroken as ContractBroken
    from trio_mcp.testing.contract.check import ContractReport as ContractReport
    from trio_mcp.testing.contract.check import check_transport as check_transport
    from trio_mcp.testing.contract.rule import Trait as Trait
    from trio_mcp.testing.faults.flow import FaultStatistics as FaultStatistics
    from trio_mcp.testing.faults.links import FaultLinks as FaultLinks
    from trio_mcp.testing.faults.proxy import FaultProxy as FaultProxy
    from trio_mcp.testing.faults.scripts import fault_scripts as fault_scripts
    from trio_mcp.testing.faults.scripts import random_faults as random_faults
    from trio_mcp.testing.faults.steps import ON_LINKS as ON_LINKS
    from trio_mcp.testing.faults.steps import ON_WIRES as ON_WIRES
    from trio_mcp.testing.faults.steps import Await as Await
    from trio_mcp.testing.faults.steps import Delay as Delay
    from trio_mcp.testing.faults.steps import Drop as Drop
    from trio_mcp.testing.faults.steps import Duplicate as Duplicate
    from trio_mcp.testing.faults.steps import Faults as Faults
    from trio_mcp.testing.faults.steps import Pass as Pass
    from trio_mcp.testing.faults.steps import Reset as Reset
    from trio_mcp.testing.faults.steps import Split as Split
    from trio_mcp.testing.faults.steps import Stall as Stall
    from trio_mcp.testing.faults.steps import Step as Step
    from trio_mcp.testing.faults.steps import Tear as Tear
    from trio_mcp.testing.fixtures import client_fixture as client_fixture
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
