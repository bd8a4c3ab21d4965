"""What is known of a target: what it declared, and what it offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = ["Facts"]

Definitions = Mapping[str, Mapping[str, Any]]


@attrs.frozen
class Facts:
    """What is known of a server, in one revision.

    Attributes:
        revision: The revision that is spoken.
        transport: The name of the transport, as in `Wire`.
        server_info: Its name and version.
        instructions: Its instructions.
        capabilities: What it declared.
        tools: Its tools as it lists them, by name.
        resources: Its resources, by URI.
        templates: Its resource templates, by URI template.
        prompts: Its prompts, by name.
        callable_tools: The names of the tools that may be called.
        paged: The list methods that gave more than one page.
        skipped: What the user must know: what is not used, and why.
        supported: The revisions that the server says it speaks, if it says so.
    """

    revision: str
    transport: str
    server_info: Mapping[str, Any] = attrs.Factory(dict)
    instructions: str | None = None
    capabilities: Mapping[str, Any] = attrs.Factory(dict)
    tools: Definitions = attrs.Factory(dict)
    resources: Definitions = attrs.Factory(dict)
    templates: Definitions = attrs.Factory(dict)
    prompts: Definitions = attrs.Factory(dict)
    callable_tools: tuple[str, ...] = ()
    paged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    supported: tuple[str, ...] = ()

    @property
    def modern(self) -> bool:
        """Whether the revision is one of the modern era."""
        return self.revision in MODERN_REVISIONS

    def declares(self, path: str) -> bool:
        """Return whether the server declared a capability, such as ``resources.subscribe``."""
        found: Any = self.capabilities
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        # An empty object declares it, and so does true.
        return found is not None and found is not False

    def lacks(self, need: str) -> str:
        """Return why a need of a move is not met; an empty text if it is.

        A need is ``capability:`` and a path, ``transport:`` and names with bars between them, or the name of an
        attribute that must not be empty (``tools``, ``callable_tools``, ``resources``, ``templates``, ``prompts``,
        ``paged``).

        Raises:
            ValueError: If there is no such need.
        """
        kind, _, name = need.partition(":")
        if kind == "capability":
            return "" if self.declares(name) else f"the server does not declare the capability {name!r}"
        if kind == "transport":
            return "" if self.transport in name.split("|") else f"it concerns another transport ({name})"
        if need not in _LISTED:
            raise ValueError(f"unknown need {need!r}: capability:…, transport:… or one of {', '.join(_LISTED)}")
        return "" if getattr(self, need) else f"the server {_LISTED[need]}"


_LISTED = {
    "tools": "lists no tools",
    "callable_tools": "has no tool that may be called (see --allow-writes and --tool)",
    "resources": "lists no resources",
    "templates": "lists no resource templates",
    "prompts": "lists no prompts",
    "paged": "gives each list in one page",
}
