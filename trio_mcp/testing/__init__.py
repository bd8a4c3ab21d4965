"""What helps to test programs that use trio_mcp: links and TCP connections with faults.

Nothing in a client or a server imports this room. Its extra is ``trio-mcp[testing]``.
"""

from __future__ import annotations

__all__: list[str] = []
