"""What a tool returned, as content: from the declared return type where there is one, else by the value itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args

import attrs
from pydantic import TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from trio_mcp.protocol.json_schema import SchemaValidator
from trio_mcp.server.signature import json_schema_of
from trio_mcp.types._base import WireModel
from trio_mcp.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from trio_mcp.types.tools import CallToolResult
from trio_mcp.types.versions import at_least

__all__ = ["Output", "read_output", "text_result"]

_BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)

# Content that older revisions don't know reaches their clients as text.
_CONTENT_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
STRUCTURED_SINCE = "2025-06-18"


class OutputError(Exception):
    """The tool returned something else than it declares: a fault of the server's, not of the caller's."""


@attrs.frozen
class Output:
    """How a tool's return value becomes a result.

    Attributes:
        schema: The output schema; None for content without structure.
        wrapped: The value is no object, so it travels as ``{"result": value}``.
    """

    schema: dict[str, Any] | None
    wrapped: bool = False
    _to_json_data: Callable[[Any], Any] | None = None

    def result(self, value: Any, revision: str) -> dict[str, Any]:
        """The wire form of a `CallToolResult` that carries a return value.

        Raises:
            OutputError: The value is not of the declared type.
        """
        if isinstance(value, CallToolResult):
            return _for_revision(value.to_wire(), revision)
        if self._to_json_data is None:
            return _for_revision({"content": _content(value)}, revision)
        data = self._to_json_data(value)
        text = data if type(data) is str else to_json(data).decode()
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if at_least(revision, STRUCTURED_SINCE):
            result["structuredContent"] = {"result": data} if self.wrapped else data
        return result


def read_output(returns: Any, explicit_schema: dict[str, Any] | None, what: str) -> Output:
    """Read a return annotation, or take the schema that the tool brings along.

    Raises:
        TypeError: The type has no JSON Schema.
        SchemaError: The explicit schema can't be used.
    """
    if explicit_schema is not None:
        return Output(explicit_schema, False, _checked(SchemaValidator(explicit_schema)))
    if returns in (inspect.Signature.empty, Any, None, type(None)) or _is_content(returns):
        return Output(None)
    adapter: TypeAdapter[Any] = TypeAdapter(returns)
    schema = json_schema_of(adapter, "serialization", f"{what}: the return type")
    wrapped = not _describes_object(schema)
    if wrapped:
        definitions = {key: schema.pop(key) for key in ("$defs",) if key in schema}
        schema = {"type": "object", "properties": {"result": schema}, "required": ["result"], **definitions}
    elif "type" not in schema:
        schema = {"type": "object", **schema}  # a bare $ref: until 2025-11-25 the root must say that it is an object
    return Output(schema, wrapped, _serialized(adapter))


def _serialized(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    validate, dump = adapter.validator.validate_python, adapter.serializer.to_python

    def to_json_data(value: Any) -> Any:
        try:
            return dump(validate(value), mode="json", by_alias=True)
        except ValueError as exc:
            raise OutputError(f"the return value is not of the declared type: {exc}") from exc

    return to_json_data


def _checked(validator: SchemaValidator) -> Callable[[Any], Any]:
    def to_json_data(value: Any) -> Any:
        data = to_jsonable_python(value, by_alias=True)
        if (problem := validator.problem(data)) is not None:
            raise OutputError(f"the return value does not conform to the output schema: {problem}")
        return data

    return to_json_data


def _is_content(returns: Any) -> bool:
    """Whether a type speaks of content blocks, which have no structure of the tool's own."""
    if isinstance(returns, type) and issubclass(returns, (*_BLOCKS, CallToolResult)):
        return True
    return any(_is_content(part) for part in get_args(returns))


def _describes_object(schema: dict[str, Any]) -> bool:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    return schema.get("type") == "object"


def _content(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if isinstance(value, (list, tuple)) and any(isinstance(item, _BLOCKS) for item in value):
        return [_block(item) for item in value]
    return [_block(value)]


def _block(value: Any) -> dict[str, Any]:
    if isinstance(value, _BLOCKS):
        return value.to_wire()
    if isinstance(value, str):
        return {"type": "text", "text": value}
    try:
        plain = value.to_wire() if isinstance(value, WireModel) else to_jsonable_python(value, by_alias=True)
    except ValueError as exc:
        raise OutputError(f"the return value has no JSON form: {exc}") from exc
    return {"type": "text", "text": to_json(plain).decode()}


def _for_revision(result: dict[str, Any], revision: str) -> dict[str, Any]:
    if not at_least(revision, STRUCTURED_SINCE):
        result.pop("structuredContent", None)
        result["content"] = [_downgraded(block, revision) for block in result["content"]]
    return result


def _downgraded(block: dict[str, Any], revision: str) -> dict[str, Any]:
    since = _CONTENT_SINCE.get(block["type"])
    if since is None or at_least(revision, since):
        return block
    text = (
        block.get("uri") or f"[{block['type']} content of type {block.get('mimeType')}, unknown to revision {revision}]"
    )
    return {"type": "text", "text": text}


def text_result(text: str, *, is_error: bool) -> dict[str, Any]:
    """The wire form of a result that is one text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}
