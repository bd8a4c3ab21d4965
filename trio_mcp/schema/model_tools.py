"""Says all tools of a host's list in the dialect of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trio_mcp.schema.dialects import DialectName, check_dialect
from trio_mcp.schema.model_schema import ModelSchema
from trio_mcp.schema.validator import SchemaError
from trio_mcp.types.tools import Tool

__all__ = ["ModelTools"]


class ModelTools:
    """The tools of a list in the dialect of a model, with the way back for its calls: ``ModelTools(page, dialect=…)``.

    Iterating yields the tools, with other input schemas. A tool whose schema can't be used is left out, so that one
    server's mistake does not cost the host all of its tools.

    Args:
        tools: The tools: those of `Client.iter_tools`, of a page, or of a `ClientGroup`.
        dialect: As in `ModelSchema`.

    Raises:
        TypeError, ValueError: If there is no such dialect.

    Attributes:
        schemas: The schema of each tool, by its name: what is lost in it, for example.
        refused: Why tools were left out, by their names.
    """

    def __init__(self, tools: Iterable[Tool], *, dialect: DialectName) -> None:
        check_dialect(dialect)
        self.schemas: dict[str, ModelSchema] = {}
        self.refused: dict[str, SchemaError] = {}
        self._tools: list[Tool] = []
        for tool in tools:
            try:
                schema = ModelSchema(tool.input_schema, dialect)
            except SchemaError as exc:
                self.refused[tool.name] = exc
            else:
                self.schemas[tool.name] = schema
                self._tools.append(tool.model_copy(update={"input_schema": schema.schema}))

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def from_model(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that the model means in a call, for `Client.call_tool`; see `ModelSchema.from_model`.

        Those for a tool that is not in the list, which a model may make up, stay as they are.
        """
        schema = self.schemas.get(name)
        return arguments if schema is None else schema.from_model(arguments)

    def for_model(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what the model gives for these arguments of a call; see `ModelSchema.for_model`."""
        schema = self.schemas.get(name)
        return arguments if schema is None else schema.for_model(arguments)
