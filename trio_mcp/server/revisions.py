"""Converts models to the wire form of a revision, without the fields and blocks that the revision does not define."""

from __future__ import annotations

import functools
from typing import Any

from trio_mcp.eras.rules import rules_of
from trio_mcp.types._base import WireModel, field_span

__all__ = ["downgraded_block", "wire_for"]


def wire_for(model: WireModel, revision: str) -> dict[str, Any]:
    """Return the wire form of a model, with only the fields that a revision defines, at every level."""
    wire = model.to_wire()  # `to_wire` makes a new dict, so the dict may be pruned in place
    _prune(model, wire, revision)
    return wire


def downgraded_block(block: dict[str, Any], revision: str) -> dict[str, Any]:
    """Return a content block, or a text block in its place if the revision does not define its type."""
    # The block becomes text instead of being dropped, so that the model on the other side learns that something was
    # there. For a resource link, the text is its URI, which a client may be able to read.
    if block["type"] not in rules_of(revision).no_content:
        return block
    text = (
        block.get("uri") or f"[{block['type']} content of type {block.get('mimeType')}, unknown to revision {revision}]"
    )
    return {"type": "text", "text": text}


def _prune(model: WireModel, wire: dict[str, Any], revision: str) -> None:
    for name, wire_name, known in _fields(type(model), revision):
        if not known:
            wire.pop(wire_name, None)  # the member may be missing: None and unset values are not sent
            continue
        value = model.__dict__.get(name)
        if isinstance(value, WireModel):
            _prune(value, wire[wire_name], revision)
        elif isinstance(value, list):
            # The wire form has the same shape as the model, so both can be walked in step.
            for item, plain in zip(value, wire[wire_name], strict=True):
                if isinstance(item, WireModel):
                    _prune(item, plain, revision)


# The cache needs no limit: it has one entry for each model class and revision, and the numbers of both are fixed.
@functools.cache
def _fields(kind: type[WireModel], revision: str) -> tuple[tuple[str, str, bool], ...]:
    wire_name: Any = kind.model_config["alias_generator"]
    return tuple((name, wire_name(name), revision in field_span(kind, name).revisions) for name in kind.model_fields)
