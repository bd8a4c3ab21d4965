"""What a client over HTTP makes of a list of tools: which arguments go into headers, which tools are left out.

2026-07-28 `basic/transports/streamable-http`, section Custom Headers from Tool Parameters.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from trio_mcp.http.headers import shown
from trio_mcp.http.param_headers import ParameterHeader, parameter_headers

__all__ = ["ToolHeaders"]

logger = logging.getLogger("trio_mcp")

MAX_TOOLS: Final = 10_000
"""Tools whose headers are remembered; beyond that the oldest are forgotten, and learned again from a refusal."""


class ToolHeaders:
    """What the lists of tools that have passed by say of headers.

    Attributes:
        learned: How many pages have passed by.
    """

    def __init__(self) -> None:
        self._headers: dict[str, tuple[ParameterHeader, ...]] = {}
        self.learned = 0

    def of(self, params: dict[str, Any] | None) -> tuple[ParameterHeader, ...]:
        """The headers that a ``tools/call`` with these parameters needs, as far as is known."""
        name = (params or {}).get("name")
        return self._headers.get(name, ()) if isinstance(name, str) else ()

    def learn(self, result: dict[str, Any]) -> dict[str, Any]:
        """Take note of a page of tools, and leave out those whose annotations break a rule, with a warning in the log.

        Args:
            result: The result of a ``tools/list``; it is not changed.
        """
        self.learned += 1
        tools = result.get("tools")
        if not isinstance(tools, list):
            return result  # for the caller to complain about
        kept = [tool for tool in tools if self._keep(tool)]
        return result if len(kept) == len(tools) else {**result, "tools": kept}

    def _keep(self, tool: Any) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            return True
        self._headers.pop(name, None)
        try:
            found = parameter_headers(tool.get("inputSchema"))
        except ValueError as exc:
            logger.warning("the tool %s is left out of the list of tools: %s", shown(name), exc)
            return False
        if found:
            self._headers[name] = found
            if len(self._headers) > MAX_TOOLS:
                del self._headers[next(iter(self._headers))]
        return True
