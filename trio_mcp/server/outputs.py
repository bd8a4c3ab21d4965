"""Turns return values of tools into structured content and content blocks, and makes the output schemas of tools."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, get_args, get_origin

from pydantic import TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_flag
from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import McpError, ToolError
from trio_mcp.server.functions.function import single
from trio_mcp.server.functions.schemas import adapter_for, inlined, json_schema_of
from trio_mcp.server.functions.structure import Structure, Unclear, kind_of
from trio_mcp.server.functions.sync_threads import FunctionOptions
from trio_mcp.server.revisions import downgraded_block, wire_for
from trio_mcp.types._base import WireModel

if TYPE_CHECKING:
    from trio_mcp.schema.validator import SchemaValidator
    from trio_mcp.types.tool_messages import CallToolResult

__all__ = [
    "NAME",
    "Output",
    "OutputError",
    "describes_object",
    "failure_result",
    "read_output",
    "text_result",
    "wrapped_as",
]

# The names that a tool may have (`server/tools`, section Tool Names). The rule is a SHOULD, and only since 2025-11-25,
# but some clients enforce it.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


_SCALARS = (int, float, str, bool)
# Return annotations that say nothing about a value; a tool with one of these has no output schema.
_UNDECLARED = (inspect.Signature.empty, Any, None, type(None), NoReturn, Never)


# The types of content blocks are imported on first use: few tools return them, and building these types takes a
# twentieth of the time that a server needs to start.
@functools.cache
def _blocks() -> tuple[type[WireModel], ...]:
    from trio_mcp.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent

    return TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource


@functools.cache
def _complete_results() -> type[CallToolResult]:
    from trio_mcp.types.tool_messages import CallToolResult

    return CallToolResult


# The types, other than models, whose values are sent as a block of their own instead of as JSON text.
@functools.cache
def _raw() -> tuple[type[Any], ...]:
    from trio_mcp.server.media import MEDIA

    return *MEDIA, bytes


def _is_block(value: Any) -> bool:
    return isinstance(value, _blocks() if isinstance(value, WireModel) else _raw())


class OutputError(Exception):
    """The tool returned a value that does not match what it declares: a fault in the server, not in the call."""


@attrs.frozen
class Output:
    """How a tool's return value becomes a result.

    Attributes:
        schema: The output schema; None if results have no structured content.
        wrapped: Whether values are not objects, and so are sent as ``{"result": value}``.
        _to_json_data: Validates a return value and turns it into JSON data; None if results have no structured content.
        _to_content: Validates a return value and returns the values that become one block each; None if nothing is
            declared.
        _validator: Returns the validator of the schema, which is compiled on first use.
        filled: Whether a result that the tool made itself gets its structured content as text, if it has no content.
    """

    schema: dict[str, Any] | None
    wrapped: bool = False
    _to_json_data: Callable[[Any], Any] | None = None
    _to_content: Callable[[Any], list[Any]] | None = None
    _validator: Callable[[], SchemaValidator] | None = None
    filled: bool = False

    def schema_for(self, revision: str) -> dict[str, Any] | None:
        """Return the output schema for a revision, or None: up to 2025-11-25 structured content must be an object."""
        rules = rules_of(revision)
        if self.schema is None or not rules.structured_content:
            return None
        return self.schema if self.schema.get("type") == "object" or rules.any_structured_content else None

    def result(self, value: Any, revision: str) -> dict[str, Any]:
        """Return the wire form of a `CallToolResult` for a return value.

        Raises:
            OutputError: If the value does not have the declared type.
        """
        if isinstance(value, WireModel) and isinstance(value, _complete_results()):
            return self._complete_result(value, revision)
        if self._to_json_data is None:
            items = _items(value) if self._to_content is None else self._to_content(value)
            return {"content": [_block(item, revision) for item in items]}
        data = self._to_json_data(value)
        # Structured content is repeated as text, for clients that don't read it (`server/tools`, Structured Content).
        result: dict[str, Any] = {"content": [{"type": "text", "text": _json_text(data)}]}
        rules = rules_of(revision)
        if rules.structured_content:
            structured = {"result": data} if self.wrapped else data
            if type(structured) is dict or rules.any_structured_content:
                result["structuredContent"] = structured
        return result

    def _complete_result(self, value: CallToolResult, revision: str) -> dict[str, Any]:
        """Return the wire form of a `CallToolResult` that the tool made itself, checked against the output schema."""
        # If a tool has an output schema, the server MUST provide structured content that conforms to it
        # (`server/tools`, Output Schema). An error result is exempt.
        result = wire_for(value, revision)
        if self._validator is not None and not value.is_error:
            if "structured_content" not in value.model_fields_set:
                raise OutputError("the tool has an output schema, but its CallToolResult has no structured_content")
            if (problem := self._validator().problem(value.structured_content)) is not None:
                raise OutputError(f"the structured_content does not conform to the output schema: {problem}")
        if self.filled and not result["content"] and "structuredContent" in result:
            result["content"] = [{"type": "text", "text": _json_text(result["structuredContent"])}]
        if type(result.get("structuredContent", {})) is not dict and not rules_of(revision).any_structured_content:
            del result["structuredContent"]
        result["content"] = [downgraded_block(block, revision) for block in result["content"]]
        return result


def read_output(
    returns: Any, explicit_schema: dict[str, Any] | None, structured: bool | None, options: FunctionOptions, what: str
) -> Output:
    """Return how a tool's return values become results, by its return annotation or its explicit schema.

    Args:
        returns: The return annotation.
        explicit_schema: The tool's ``output_schema``.
        structured: The tool's ``structured_output``.
        options: The server's options.
        what: The tool, for error messages.

    Raises:
        TypeError: If the type has no JSON Schema, or ``structured`` is True for a type that can't be structured.
        ValueError: If the tool has an explicit schema, but ``structured`` is False.
        SchemaError: If the explicit schema is invalid.
    """
    if structured is not None:
        check_flag(f"{what}: structured_output", structured)
    if explicit_schema is not None:
        if structured is False:
            raise ValueError(f"{what} has an output_schema, and so can't have structured_output=False")
        if not isinstance(explicit_schema, dict):
            raise TypeError(f"{what}: output_schema must be a dict, got {type(explicit_schema).__name__}")
        validator = _validator_of(explicit_schema)
        # This output is never wrapped, because the author's schema describes the unwrapped value.
        return Output(explicit_schema, False, _checked(validator), validator=lambda: validator)
    if structured and (returns is inspect.Signature.empty or _is_content(returns)):
        raise TypeError(f"{what} has structured_output=True, so it needs a return type other than content")
    if returns in _UNDECLARED and not structured:  # nothing is declared, so any return value becomes content
        return Output(None)
    if _is_content(returns):
        return Output(None, to_content=_declared_content(returns))
    subject, wanted = f"{what}: the return type", options.structured_output if structured is None else structured
    try:
        return _shared(kind_of(returns, models=True), wanted, options.inline_definitions)
    except (Unclear, TypeError):  # if this was an error, the functions below raise it again, with the tool's name
        pass
    return _structured(returns, subject, options.inline_definitions) if wanted else _unstructured(returns, subject)


@functools.lru_cache(maxsize=250)  # arbitrary: enough for most servers; each entry keeps a model alive
def _shared(kind: Structure, structured: bool, inline: bool) -> Output:
    """Return the output that all tools with this return type share: making it takes longer than the rest of a tool."""
    returns, subject = kind.annotation, "the return type"
    # For scalars, serialization warnings are off: `_serialized` explains why.
    warnings: Literal["error"] | bool = False if returns in _SCALARS else "error"
    return _structured(returns, subject, inline, warnings) if structured else _unstructured(returns, subject, warnings)


def _unstructured(returns: Any, subject: str, warnings: Literal["error"] | bool = "error") -> Output:
    to_json_data = _serialized(adapter_for(returns, subject), warnings)

    def to_content(value: Any) -> list[Any]:
        items = _items(value)
        # A value of a type such as `list` may contain content blocks.
        return items if any(map(_is_block, items)) else _items(to_json_data(value))

    return Output(None, to_content=to_content)


def _structured(
    returns: Any, subject: str, inline: bool = False, warnings: Literal["error"] | bool = "error"
) -> Output:
    adapter = adapter_for(returns, subject)
    schema = json_schema_of(adapter, "serialization", subject)
    wrapped = not describes_object(schema)
    if wrapped:
        schema = wrapped_as("result", schema)
    elif "type" not in schema:
        # The root of the schema is only a $ref to an object, but until 2025-11-25 the root itself must have "type":
        # "object".
        schema = {"type": "object", **schema}
    if inline:
        schema = inlined(schema)
    return Output(
        schema,
        wrapped,
        _serialized(adapter, warnings),
        validator=functools.cache(functools.partial(_validator_of, schema)),
    )


def _validator_of(schema: dict[str, Any]) -> SchemaValidator:
    from trio_mcp.schema.validator import SchemaValidator  # imported late: for most tools pydantic does the checking

    return SchemaValidator(schema)


def _serialized(adapter: TypeAdapter[Any], warnings: Literal["error"] | bool) -> Callable[[Any], Any]:
    validate, dump = adapter.validator.validate_python, adapter.serializer.to_python

    def to_json_data(value: Any) -> Any:
        try:
            # pydantic does not validate an instance of a model again. If the instance was modified after its
            # validation, a serialization warning is the only sign, so a warning is an error here. For scalars, warnings
            # are off: they can't be such instances, and collecting warnings costs more than everything else in this
            # function.
            return dump(validate(value), mode="json", by_alias=True, warnings=warnings)
        except ValueError as exc:
            raise OutputError(f"the return value is not of the declared type: {exc}") from exc

    return to_json_data


def _checked(validator: SchemaValidator) -> Callable[[Any], Any]:
    def to_json_data(value: Any) -> Any:
        # An explicit schema need not describe the return type, so pydantic has nothing to validate.
        data = _plain(value)
        if (problem := validator.problem(data)) is not None:
            raise OutputError(f"the return value does not conform to the output schema: {problem}")
        return data

    return to_json_data


def _declared_content(returns: Any) -> Callable[[Any], list[Any]]:
    # This validator is built on first use, because building it takes longer than the rest of registering a tool.
    @functools.cache
    def validate() -> Callable[[Any], Any]:
        return TypeAdapter(returns).validator.validate_python

    def to_content(value: Any) -> list[Any]:
        try:
            return _items(validate()(value), declared=True)
        except ValueError as exc:
            raise OutputError(f"the return value is not of the declared type: {exc}") from exc

    return to_content


def _is_content(returns: Any) -> bool:
    """Return whether a type consists of content blocks, which are sent as content and need no output schema."""
    if hasattr(returns, "__value__"):  # the type is an alias, made with typing or typing_extensions
        return _is_content(returns.__value__)
    origin = get_origin(returns)
    if origin is None:
        # A CallToolResult counts as content because it is sent unchanged: its type says nothing about the structured
        # content that may be in it.
        if not isinstance(returns, type) or returns in _SCALARS:
            return False
        return issubclass(returns, (*_blocks(), _complete_results()) if issubclass(returns, WireModel) else _raw())
    if isinstance(origin, type) and issubclass(origin, Mapping):  # a mapping with blocks in it is data, not content
        return False
    return any(_is_content(part) for part in get_args(returns))


def describes_object(schema: dict[str, Any]) -> bool:
    """Return whether a schema made from a type describes an object."""
    # pydantic puts a recursive model into $defs, and leaves only a reference at the root.
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    return schema.get("type") == "object"


def wrapped_as(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with a single property, which has the given name and schema."""
    # Definitions must stay at the root, because references begin with "#/$defs/".
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    return {"type": "object", "properties": {name: inner}, "required": [name], **definitions}


def _items(value: Any, declared: bool = False) -> list[Any]:
    """Split a return value into the values that become one content block each."""
    if value is None:
        # `content` is required, but may be empty (schema, CallToolResult), so the result of a tool that returns nothing
        # has no blocks.
        return []
    # A list becomes several blocks only if its type or its items say that it contains blocks; otherwise it is data, and
    # becomes one JSON text.
    if isinstance(value, (list, tuple)) and (declared or any(map(_is_block, value))):
        return list(value)
    return [value]


def _block(value: Any, revision: str) -> dict[str, Any]:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, _raw()):
        from trio_mcp.server.media import block_of

        value = block_of(value)
    if isinstance(value, WireModel) and isinstance(value, _blocks()):
        return downgraded_block(wire_for(value, revision), revision)
    return _text(to_json(value.to_wire() if isinstance(value, WireModel) else _plain(value)).decode())


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value, by_alias=True)
    except ValueError as exc:
        raise OutputError(f"the return value can't be represented as JSON: {exc}") from exc


def _json_text(data: Any) -> str:
    """Return structured content as text: a string unchanged, anything else as JSON."""
    try:
        if type(data) is str:
            if not data.isascii():
                data.encode()  # for a lone surrogate, this raises UnicodeEncodeError, a ValueError
            return data
        text = to_json(data, inf_nan_mode="constants").decode()
        if "NaN" in text or "Infinity" in text:  # these words may be part of a string: the slow encoder can tell
            import json  # imported late, because hardly any text contains NaN or Infinity

            json.dumps(data, allow_nan=False)
    except ValueError as exc:
        raise OutputError(f"the return value can't be represented as JSON: {exc}") from exc
    return text


def _text(text: str) -> dict[str, Any]:
    if not text.isascii():
        # Lone surrogates, which UTF-8 can't encode, may come from file names or captured output; they are written as
        # escapes.
        text = text.encode("utf-8", "backslashreplace").decode()
    return {"type": "text", "text": text}


def text_result(text: str, *, is_error: bool) -> dict[str, Any]:
    """Return the wire form of a result with one text block."""
    return {"content": [_text(text)], "isError": is_error}


def failure_result(
    name: str, exc: Exception, context: Any, describe: Callable[[Any, str, Exception, type[Exception]], str]
) -> dict[str, Any]:
    """Return the wire form of the result for an exception that a tool's function raised.

    Args:
        name: The tool's name.
        exc: The exception.
        context: The context of the function.
        describe: See `FeatureSettings.describe_failure`.

    Raises:
        McpError: If ``exc`` is an `McpError`.
    """
    # An McpError fails the request itself. A ToolError is a message for the model. Anything else is a bug in the tool,
    # about which the client learns no more than the server's options allow.
    exc = single(exc)
    if isinstance(exc, McpError):
        raise exc
    told = str(exc)
    if not isinstance(exc, ToolError):
        told = describe(context, f"the tool {name!r} failed", exc, OutputError)
    return text_result(told, is_error=True)
