"""Tools to test programs that use this library: fixtures, a recorder, snapshots, faults, checks, and strategies.

Neither a client nor a server imports this package. To check clients and servers, including those not made with this
library, see `trio_mcp.conformance`. The parts that need Hypothesis or pytest are imported on first use; the extra
``trio-mcp[testing]`` installs both.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.client.surface.drift import (
        Drift as Drift,
        DriftReport as DriftReport,
        compare_snapshots as compare_snapshots,
    )
    from trio_mcp.client.surface.snapshot import Snapshot as Snapshot, SnapshotError as SnapshotError
    from trio_mcp.testing import strategies as strategies
    from trio_mcp.testing.calls import (
        CallRecorder as CallRecorder,
        RecordedCall as RecordedCall,
        record_calls as record_calls,
    )
    from trio_mcp.testing.contract.check import (
        ContractBroken as ContractBroken,
        ContractReport as ContractReport,
        check_transport as check_transport,
    )
    from trio_mcp.testing.contract.rule import Trait as Trait
    from trio_mcp.testing.faults.flow import FaultStatistics as FaultStatistics
    from trio_mcp.testing.faults.links import FaultLinks as FaultLinks
    from trio_mcp.testing.faults.proxy import FaultProxy as FaultProxy
    from trio_mcp.testing.faults.scripts import fault_scripts as fault_scripts, random_faults as random_faults
    from trio_mcp.testing.faults.steps import (
        ON_LINKS as ON_LINKS,
        ON_WIRES as ON_WIRES,
        Await as Await,
        Delay as Delay,
        Drop as Drop,
        Duplicate as Duplicate,
        Faults as Faults,
        Pass as Pass,
        Reset as Reset,
        Split as Split,
        Stall as Stall,
        Step as Step,
        Tear as Tear,
    )
    from trio_mcp.testing.fixtures import client_fixture as client_fixture, drift_fixture as drift_fixture
    from trio_mcp.testing.stores.check import (
        StoresBroken as StoresBroken,
        StoresReport as StoresReport,
        check_stores as check_stores,
    )
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
