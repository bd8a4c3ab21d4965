"""The vendors' rules for their dialects, read on 2026-11-29, as checks that share nothing with the library.

- Gemini: the reference of `Schema` and of `FunctionDeclaration`, and what the errors of its API add: only strings have
  an enum, and of formats only two; an object has properties; nothing stands beside a union.
- OpenAI: the guide to structured outputs, section Supported schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["as_json_schema", "broken_rules"]

GEMINI_TYPES = {"string", "number", "integer", "boolean", "array", "object"}
GEMINI_FIELDS = {
    "any": {"type", "title", "description", "nullable"},
    "string": {"enum", "format", "pattern", "minLength", "maxLength"},
    "number": {"format", "minimum", "maximum"},
    "integer": {"format", "minimum", "maximum"},
    "boolean": set(),
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "minProperties", "maxProperties"},
}
GEMINI_FORMATS = {
    "string": {"enum", "date-time"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}
OPENAI_FIELDS = {
    "any": {"type", "title", "description", "enum"},
    "string": {"pattern", "format"},
    "number": {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "integer": {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "boolean": set(),
    "null": set(),
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
}
OPENAI_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def broken_rules(schema: dict[str, Any], dialect: str) -> list[str]:
    """Return the rules of a dialect that a schema breaks."""
    return list(gemini(schema, "", True) if dialect == "gemini" else openai(schema))


def gemini(schema: dict[str, Any], path: str, root: bool = False) -> Iterator[str]:
    if "anyOf" in schema:
        if schema.keys() != {"anyOf"} or root:
            yield f"{path}: anyOf is not alone"
        for index, each in enumerate(schema["anyOf"]):
            yield from gemini(each, f"{path}/{index}")
        return
    kind = schema.get("type")
    if kind not in GEMINI_TYPES:
        yield f"{path}: type {kind!r}"
        return
    if unknown := schema.keys() - GEMINI_FIELDS["any"] - GEMINI_FIELDS[kind]:
        yield f"{path}: {unknown}"
    if "format" in schema and schema["format"] not in GEMINI_FORMATS[kind]:
        yield f"{path}: format {schema['format']}"
    if any(not isinstance(each, str) or not each for each in schema.get("enum", [])):
        yield f"{path}: enum"
    if kind == "array":
        yield from gemini(schema["items"], f"{path}/items")
    if kind == "object":
        if not schema["properties"] and not root:
            yield f"{path}: no properties"
        if not set(schema.get("required", [])) <= schema["properties"].keys():
            yield f"{path}: required"
        for name, each in schema["properties"].items():
            if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]{0,63}", name):
                yield f"{path}: name {name!r}"
            yield from gemini(each, f"{path}/{name}")


def openai(schema: dict[str, Any]) -> Iterator[str]:
    definitions = schema.get("$defs", {})
    root = {key: value for key, value in schema.items() if key != "$defs"}
    counts = {"properties": 0, "values": 0, "characters": sum(map(len, definitions))}
    if root.get("type") != "object":
        yield "the root is not an object"
    yield from strict(root, "", 0, definitions, counts)
    for name, each in definitions.items():
        yield from strict(each, f"$defs/{name}", 0, definitions, counts)
    for name, most in (("properties", 5_000), ("values", 1_000), ("characters", 120_000)):
        if counts[name] > most:
            yield f"{counts[name]} {name}"


def strict(
    schema: dict[str, Any], path: str, level: int, definitions: dict[str, Any], counts: dict[str, int]
) -> Iterator[str]:
    if "$ref" in schema:
        if schema.keys() != {"$ref"} or schema["$ref"].removeprefix("#/$defs/") not in definitions:
            yield f"{path}: $ref"
        return
    if "anyOf" in schema:
        if not schema.keys() <= {"anyOf", "title", "description"}:
            yield f"{path}: {schema.keys()} beside anyOf"
        for index, each in enumerate(schema["anyOf"]):
            yield from strict(each, f"{path}/{index}", level, definitions, counts)
        return
    kind = schema.get("type")
    if kind not in OPENAI_FIELDS:
        yield f"{path}: type {kind!r}"
        return
    if unknown := schema.keys() - OPENAI_FIELDS["any"] - OPENAI_FIELDS[kind]:
        yield f"{path}: {unknown}"
    if "format" in schema and schema["format"] not in OPENAI_FORMATS:
        yield f"{path}: format {schema['format']}"
    counts["values"] += len(schema.get("enum", []))
    counts["characters"] += sum(len(each) for each in schema.get("enum", []) if isinstance(each, str))
    if kind == "array":
        yield from strict(schema["items"], f"{path}/items", level, definitions, counts)
    if kind == "object":
        if level >= 10:
            yield f"{path}: level {level}"
        counts["properties"] += len(schema["properties"])
        counts["characters"] += sum(map(len, schema["properties"]))
        if schema.get("additionalProperties") is not False:
            yield f"{path}: open"
        if sorted(schema["required"]) != sorted(schema["properties"]):
            yield f"{path}: required"
        for name, each in schema["properties"].items():
            yield from strict(each, f"{path}/{name}", level + 1, definitions, counts)


def as_json_schema(schema: Any) -> Any:
    """Return a schema for a model in the words of JSON Schema: Gemini has another one for null."""
    if not isinstance(schema, dict):
        return schema
    found = {key: value for key, value in schema.items() if key != "nullable"}
    for key in ("properties", "$defs"):
        if key in found:
            found[key] = {name: as_json_schema(each) for name, each in found[key].items()}
    if "items" in found:
        found["items"] = as_json_schema(found["items"])
    if "anyOf" in found:
        found["anyOf"] = [as_json_schema(each) for each in found["anyOf"]]
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") else found
