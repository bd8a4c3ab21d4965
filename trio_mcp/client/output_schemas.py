"""What a client knows of its server's output schemas, and the checking of results against them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import trio

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.types.tools import Tool

__all__ = ["OutputSchemas"]


@attrs.define(eq=False)
class _Known:
    schema: dict[str, Any] | None
    validator: SchemaValidator | None = None


class OutputSchemas:
    """The output schema of each tool that has been listed, compiled on first use.

    Attributes:
        all_known: Every tool has been listed, so a name that is not here is no tool's.
        learning: Held by whoever lists the tools, so that it is done once.
    """

    def __init__(self) -> None:
        self._schemas: dict[str, _Known] = {}
        self.all_known = False
        self.learning = trio.Lock()

    def __len__(self) -> int:
        return len(self._schemas)

    def knows(self, name: str) -> bool:
        """Whether there is nothing to learn about a tool."""
        return name in self._schemas or self.all_known

    def learn(self, tools: Iterable[Tool]) -> None:
        """Take the schemas from definitions of tools."""
        for tool in tools:
            known = self._schemas.get(tool.name)
            if known is None or known.schema != tool.output_schema:
                self._schemas[tool.name] = _Known(tool.output_schema)

    def forget(self) -> None:
        """The list of tools is another now."""
        self._schemas.clear()
        self.all_known = False

    def check(self, name: str, value: Any) -> None:
        """Check structured content against the tool's schema, where it is known to have one.

        Raises:
            RemoteProtocolError: It breaks the schema, or the schema can't be used.
        """
        known = self._schemas.get(name)
        if known is None or known.schema is None:
            return
        try:
            if known.validator is None:
                known.validator = SchemaValidator(known.schema)
            problem = known.validator.problem(value)
        except SchemaError as exc:
            text = f"the result of the tool {name!r} can't be checked against its output schema: {exc}"
            raise RemoteProtocolError(text) from None
        if problem is not None:
            raise RemoteProtocolError(f"the result of the tool {name!r} breaks its own output schema: {problem}")
