"""What a feature offers under a name: a definition that clients see, and the function behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from trio_mcp.server.features.feature import Mounted
from trio_mcp.server.functions.function import Function
from trio_mcp.server.functions.hints import bare
from trio_mcp.server.revisions import wire_for
from trio_mcp.types.icons import checked_icons
from trio_mcp.types.meta import checked_meta
from trio_mcp.types.prompts import Prompt
from trio_mcp.types.resources import Resource, ResourceTemplate
from trio_mcp.types.tools import Tool

__all__ = ["Entry", "described", "name_of"]

DefinitionT = TypeVar("DefinitionT", bound=Tool | Prompt | Resource | ResourceTemplate)


@attrs.frozen
class Entry(Generic[DefinitionT]):
    """A tool, a prompt or a resource as the server holds it.

    Attributes:
        definition: What clients see of it.
        function: What is called.
        mounted: Where it comes from, if it is another server's.
    """

    definition: DefinitionT
    function: Function
    mounted: Mounted | None = attrs.field(default=None, kw_only=True)
    _wire: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    @property
    def name(self) -> str:
        """What it is known by."""
        return self.definition.name

    def for_revision(self, revision: str) -> dict[str, Any]:
        """The definition on the wire, with the fields that a revision knows."""
        wire = self._wire.get(revision)
        if wire is None:
            wire = self._wire[revision] = self._to_wire(revision)
        return wire

    def _to_wire(self, revision: str) -> dict[str, Any]:
        return wire_for(self.definition, revision)


def name_of(function: Callable[..., Any], details: Mapping[str, Any]) -> Any:
    """The name that was given, or the function's own; it is yet to be checked."""
    name = details.get("name")
    return getattr(bare(function), "__name__", type(function).__name__) if name is None else name


def described(details: Mapping[str, Any], function: Function, what: str) -> dict[str, Any]:
    """What every definition says beside its name, out of what was given and the function's docstring.

    Raises:
        TypeError, ValueError: An icon or a key of the ``_meta`` is not what it should be.
    """
    description, icons, meta = details.get("description"), details.get("icons"), details.get("meta")
    return {
        "title": details.get("title"),
        "description": function.description if description is None else description,
        "icons": None if icons is None else checked_icons(icons, what),
        "meta": None if meta is None else checked_meta(meta, what),
    }
