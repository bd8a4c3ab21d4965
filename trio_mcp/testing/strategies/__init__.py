"""Hypothesis strategies for valid and faulty protocol messages, and for the arguments of tools.

Needs the extra ``trio-mcp[testing]``.
"""

from __future__ import annotations

from trio_mcp.testing.strategies.drawing import draws
from trio_mcp.testing.strategies.forms import form_answers, forms
from trio_mcp.testing.strategies.hostile import (
    HEADER_FAULTS,
    MESSAGE_FAULTS,
    AllowedOutcome,
    Hostile,
    HostileHeaders,
    hostile_headers,
    hostile_messages,
)
from trio_mcp.testing.strategies.messages import (
    batches,
    messages,
    meta_objects,
    notifications,
    request_meta_objects,
    requests,
    results,
    wire_models,
)
from trio_mcp.testing.strategies.near_valid import NearValid, near_valid
from trio_mcp.testing.strategies.plain_data import (
    base64_texts,
    integers,
    json_objects,
    json_schemas,
    json_texts,
    json_values,
    numbers,
    request_ids,
    texts,
    uris,
)
from trio_mcp.testing.strategies.schemas import CannotGenerate, from_schema, simplest
from trio_mcp.testing.strategies.wires import chunks, cut_off, interleaved, lines

__all__ = [
    "HEADER_FAULTS",
    "MESSAGE_FAULTS",
    "AllowedOutcome",
    "CannotGenerate",
    "Hostile",
    "HostileHeaders",
    "NearValid",
    "base64_texts",
    "batches",
    "chunks",
    "cut_off",
    "draws",
    "form_answers",
    "forms",
    "from_schema",
    "hostile_headers",
    "hostile_messages",
    "integers",
    "interleaved",
    "json_objects",
    "json_schemas",
    "json_texts",
    "json_values",
    "lines",
    "messages",
    "meta_objects",
    "near_valid",
    "notifications",
    "numbers",
    "request_ids",
    "request_meta_objects",
    "requests",
    "results",
    "simplest",
    "texts",
    "uris",
    "wire_models",
]
