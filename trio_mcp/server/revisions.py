"""What an older revision does not know leaves the wire form before it reaches a client of that revision."""

from __future__ import annotations

import functools
from typing import Any

from trio_mcp.eras.rules import rules_of
from trio_mcp.types._base import WireModel, field_span

__all__ = ["downgraded_block", "wire_for"]


def wire_for(model: WireModel, revision: str) -> dict[str, Any]:
    """The wire form of a model, with those of its fields that a revision knows, and of its parts likewise."""
    wire = model.to_wire()
    _prune(model, wire, revision)
    return wire


def downgraded_block(block: dict[str, Any], revision: str) -> dict[str, Any]:
    """A content block, or a text in its place if the revision has no such block."""
    if block["type"] not in rules_of(revision).no_content:
        return block
    text = (
        block.get("uri") or f"[{block['type']} content of type {block.get('mimeType')}, unknown to revision {revision}]"
    )
    return {"type": "text", "text": text}


def _prune(model: WireModel, wire: dict[str, Any], revision: str) -> None:
    for name, wire_name, known in _fields(type(model), revision):
        if not known:
            wire.pop(wire_name, None)
            continue
        value = model.__dict__.get(name)
        if isinstance(value, WireModel):
            _prune(value, wire[wire_name], revision)
        elif isinstance(value, list):
            for item, plain in zip(value, wire[wire_name], strict=True):
                if isinstance(item, WireModel):
                    _prune(item, plain, revision)


@functools.cache
def _fields(kind: type[WireModel], revision: str) -> tuple[tuple[str, str, bool], ...]:
    wire_name: Any = kind.model_config["alias_generator"]
    return tuple((name, wire_name(name), revision in field_span(kind, name).revisions) for name in kind.model_fields)
