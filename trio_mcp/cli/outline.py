"""What a server offers, as data and as an outline in text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from trio_mcp.cli.text import clean_line, paragraph
from trio_mcp.client import Client
from trio_mcp.errors import McpError
from trio_mcp.types.error_codes import METHOD_NOT_FOUND
from trio_mcp.types.prompts import Prompt
from trio_mcp.types.resources import Resource, ResourceTemplate
from trio_mcp.types.tools import Tool

__all__ = ["KINDS", "offered", "outline"]

Item = Tool | Prompt | Resource | ResourceTemplate

# kind -> the capability that it takes, the listing, its line
_TABLE: dict[str, tuple[str, Callable[[Client], AsyncIterator[Any]], Callable[[Any], str]]] = {
    "tools": ("tools", Client.iter_tools, lambda tool: f"{clean_line(tool.name)}({_parameters(tool.input_schema)})"),
    "prompts": ("prompts", Client.iter_prompts, lambda prompt: f"{clean_line(prompt.name)}({_blanks(prompt)})"),
    "resources": ("resources", Client.iter_resources, lambda resource: clean_line(resource.uri)),
    "templates": ("resources", Client.iter_resource_templates, lambda template: clean_line(template.uri_template)),
}
KINDS = tuple(_TABLE)


async def offered(client: Client, kinds: Iterable[str] | None = None) -> dict[str, list[Item]]:
    """Everything of these kinds that the server lists; of all that it offers if none is named.

    Raises:
        CapabilityError: A kind is named that the server does not offer.
    """
    found: dict[str, list[Item]] = {}
    for kind in KINDS if kinds is None else [kind for kind in KINDS if kind in kinds]:
        capability, items, _ = _TABLE[kind]
        if kinds is None and getattr(client.capabilities, capability) is None:
            continue
        try:
            found[kind] = [item async for item in items(client)]
        except McpError as exc:
            # A server with resources need not know of templates.
            if kinds is not None or exc.code != METHOD_NOT_FOUND:
                raise
    return found


def outline(kind: str, items: list[Item], indent: str = "") -> str:
    """One kind, with a line or more for each item."""
    if not items:
        return f"{indent}{kind}: none"
    line = _TABLE[kind][2]
    lines = [f"{indent}{kind}"]
    for item in items:
        lines.append(f"{indent}  {line(item)}")
        title = clean_line(item.title or "")
        facts = [title] if title and title != item.name else []
        if isinstance(item, (Resource, ResourceTemplate)):
            facts = [clean_line(item.name), *facts, *([clean_line(item.mime_type)] if item.mime_type else [])]
        if facts:
            lines.append(paragraph(", ".join(facts), f"{indent}      "))
        if item.description:
            lines.append(paragraph(item.description, f"{indent}      "))
    return "\n".join(lines)


def _blanks(prompt: Prompt) -> str:
    return ", ".join(clean_line(each.name) + ("" if each.required else "?") for each in prompt.arguments or ())


def _parameters(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict):
        return ""
    needed = required if isinstance(required, list) else []
    return ", ".join(
        f"{clean_line(name)}{'' if name in needed else '?'}{_type(field)}" for name, field in properties.items()
    )


def _type(field: Any) -> str:
    """The type of a parameter as far as it can be said in a word or two."""
    if not isinstance(field, dict):
        return ""
    options = field.get("anyOf", field.get("oneOf"))
    if isinstance(options, list):
        names = [_type(each)[2:] for each in options[:5]]
        return f": {' | '.join(names)}" if all(names) else ""
    if isinstance(field.get("enum"), list):
        return ": " + " | ".join(clean_line(repr(each)) for each in field["enum"][:8])
    named = field.get("type")
    if isinstance(named, list):
        named = " | ".join(str(each) for each in named[:5])
    if not isinstance(named, str):
        return ""
    inner = _type(field.get("items"))[2:] if named == "array" else ""
    return f": {clean_line(named)}" + (f" of {inner}" if inner else "")
