"""What helps to test programs that use trio_mcp: links and TCP connections with faults.

Nothing in a client or a server imports this room. Its extra is ``trio-mcp[testing]``.
"""

from __future__ import annotations

from trio_mcp.testing.contract.check import ContractBroken, ContractReport, check_transport
from trio_mcp.testing.contract.rule import Trait

__all__ = ["ContractBroken", "ContractReport", "Trait", "check_transport"]
