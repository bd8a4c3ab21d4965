"""Tools: registering, listing and calling them, and turning return values into results (`server/tools`)."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Never, NoReturn, TypedDict, Unpack, get_args, get_origin

import attrs
import trio
from pydantic import TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from trio_mcp._checks import check_flag, check_seconds
from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import McpError, ToolError
from trio_mcp.schema.validator import SchemaValidator
from trio_mcp.server.changes import TOOLS_CHANGED
from trio_mcp.server.connection import Exchange
from trio_mcp.server.context import Context
from trio_mcp.server.features.feature import Entry, EntryKind, Settings, described, held, name_of
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.functions.function import Call, InvalidArguments, read_function, single
from trio_mcp.server.functions.schemas import adapter_for, inlined, json_schema_of
from trio_mcp.server.functions.sync_threads import FunctionOptions
from trio_mcp.server.input.interactive import run_interactive, without_questions
from trio_mcp.server.input.rounds import Asked
from trio_mcp.server.media import MEDIA, block_of
from trio_mcp.server.revisions import downgraded_block, wire_for
from trio_mcp.types._base import WireModel
from trio_mcp.types.common import Icon
from trio_mcp.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.tools import CallToolResult, Tool, ToolAnnotations

__all__ = ["Output", "OutputError", "RegisteredTool", "ToolDetails", "ToolFeature"]

# `server/tools`, section Tool Names: a SHOULD since 2025-11-25, but other clients enforce it.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


_BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
# What becomes a block that is not just text with its JSON.
_CONTENT = (*_BLOCKS, *MEDIA, bytes)
# The return types that most tools have; they share one Output each.
_SCALARS = (int, float, str, bool)
# Return annotations that say nothing about a value; such a tool has no output schema.
_UNDECLARED = (inspect.Signature.empty, Any, None, type(None), NoReturn, Never)


class OutputError(Exception):
    """The tool returned something other than it declares: a fault in the server, not in the call."""


@attrs.frozen
class Output:
    """How a tool's return value becomes a result.

    Attributes:
        schema: The output schema; None if results have no structured content.
        wrapped: Whether values are not objects, and so are sent as ``{"result": value}``.
        _to_json_data: Validates a return value and turns it into JSON data; None without structured content.
        _to_content: Validates a return value and returns what becomes a block each; None if nothing is declared.
        _validator: Returns the validator of the schema; compiled on first use.
    """

    schema: dict[str, Any] | None
    wrapped: bool = False
    _to_json_data: Callable[[Any], Any] | None = None
    _to_content: Callable[[Any], list[Any]] | None = None
    _validator: Callable[[], SchemaValidator] | None = None

    def schema_for(self, revision: str) -> dict[str, Any] | None:
        """Return the output schema for a revision; until 2025-11-25 structured content must be an object."""
        rules = rules_of(revision)
        if self.schema is None or not rules.structured_content:
            return None
        return self.schema if self.schema.get("type") == "object" or rules.any_structured_content else None

    def result(self, value: Any, revision: str) -> dict[str, Any]:
        """Return the wire form of a `CallToolResult` for a return value.

        Raises:
            OutputError: If the value is not of the declared type.
        """
        if isinstance(value, CallToolResult):
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
        # With an output schema a server MUST provide conforming structured content (`server/tools`, Output Schema);
        # an error result is exempt.
        result = wire_for(value, revision)
        if self._validator is not None and not value.is_error:
            if "structured_content" not in value.model_fields_set:
                raise OutputError("the tool has an output schema, and its CallToolResult has no structured_content")
            if (problem := self._validator().problem(value.structured_content)) is not None:
                raise OutputError(f"the structured_content does not conform to the output schema: {problem}")
        any_json = rules_of(revision).any_structured_content
        if not any_json and type(result.get("structuredContent", {})) is not dict:
            del result["structuredContent"]
        result["content"] = [downgraded_block(block, revision) for block in result["content"]]
        return result


def read_output(
    returns: Any, explicit_schema: dict[str, Any] | None, structured: bool | None, options: FunctionOptions, what: str
) -> Output:
    """Read a return annotation, or use the tool's explicit schema.

    Args:
        returns: The return annotation.
        explicit_schema: The tool's ``output_schema``.
        structured: The tool's ``structured_output``.
        options: The server's options.
        what: The tool, for error messages.

    Raises:
        TypeError: If the type has no JSON Schema, or can't be structured as demanded.
        ValueError: If the tool has a schema, but must not be structured.
        SchemaError: If the explicit schema is invalid.
    """
    if structured is not None:
        check_flag(f"{what}: structured_output", structured)
    if explicit_schema is not None:
        if structured is False:
            raise ValueError(f"{what} has an output_schema, and so can't have structured_output=False")
        if not isinstance(explicit_schema, dict):
            raise TypeError(f"{what}: output_schema must be a dict, got {type(explicit_schema).__name__}")
        validator = SchemaValidator(explicit_schema)
        # Never wrapped: the author's schema describes the unwrapped value.
        return Output(explicit_schema, False, _checked(validator), validator=lambda: validator)
    if structured and (returns is inspect.Signature.empty or _is_content(returns)):
        raise TypeError(f"{what} has structured_output=True, so it needs a return type, one that is not content")
    if returns in _UNDECLARED and not structured:  # nothing to promise, so whatever it returns becomes content
        return Output(None)
    if _is_content(returns):
        return Output(None, to_content=_declared_content(returns))
    subject, wanted = f"{what}: the return type", options.structured_output if structured is None else structured
    if returns in _SCALARS:
        return _scalar(returns, wanted)
    return _structured(returns, subject, options.inline_definitions) if wanted else _unstructured(returns, subject)


# The warnings flag differs from that of other types: see _serialized.
@functools.cache
def _scalar(returns: Any, structured: bool) -> Output:
    """Return the shared output of all tools that return this scalar: building one takes longer than anything else."""
    if structured:
        return _structured(returns, "the return type", warnings=False)
    return _unstructured(returns, "the return type", warnings=False)


def _unstructured(returns: Any, subject: str, warnings: Literal["error"] | bool = "error") -> Output:
    to_json_data = _serialized(adapter_for(returns, subject), warnings)

    def to_content(value: Any) -> list[Any]:
        items = _items(value)
        # A type such as `list` has room for blocks.
        return items if any(isinstance(item, _CONTENT) for item in items) else _items(to_json_data(value))

    return Output(None, to_content=to_content)


def _structured(
    returns: Any, subject: str, inline: bool = False, warnings: Literal["error"] | bool = "error"
) -> Output:
    adapter = adapter_for(returns, subject)
    schema = json_schema_of(adapter, "serialization", subject)
    wrapped = not _describes_object(schema)
    if wrapped:
        # Definitions must stay at the root, as references begin with "#/$defs/".
        definitions = {key: schema.pop(key) for key in ("$defs",) if key in schema}
        schema = {"type": "object", "properties": {"result": schema}, "required": ["result"], **definitions}
    elif "type" not in schema:
        # A bare $ref to an object: until 2025-11-25 the root itself must have "type": "object".
        schema = {"type": "object", **schema}
    if inline:
        schema = inlined(schema)
    return Output(
        schema,
        wrapped,
        _serialized(adapter, warnings),
        validator=functools.cache(functools.partial(SchemaValidator, schema)),
    )


def _serialized(adapter: TypeAdapter[Any], warnings: Literal["error"] | bool) -> Callable[[Any], Any]:
    validate, dump = adapter.validator.validate_python, adapter.serializer.to_python

    def to_json_data(value: Any) -> Any:
        try:
            # pydantic does not validate an instance of a model again, so one that was modified since is only noticed
            # as a serialization warning: make it an error. For scalars warnings are off: they can't be such an
            # instance, and collecting warnings costs more than everything else here.
            return dump(validate(value), mode="json", by_alias=True, warnings=warnings)
        except ValueError as exc:
            raise OutputError(f"the return value is not of the declared type: {exc}") from exc

    return to_json_data


def _checked(validator: SchemaValidator) -> Callable[[Any], Any]:
    def to_json_data(value: Any) -> Any:
        # An explicit schema need not describe the return type, so pydantic has nothing to validate here.
        data = _plain(value)
        if (problem := validator.problem(data)) is not None:
            raise OutputError(f"the return value does not conform to the output schema: {problem}")
        return data

    return to_json_data


def _declared_content(returns: Any) -> Callable[[Any], list[Any]]:
    # On first use, because building this validator takes longer than the rest of registering a tool.
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
    if hasattr(returns, "__value__"):  # a type alias: typing and typing_extensions each have a class for them
        return _is_content(returns.__value__)
    origin = get_origin(returns)
    if origin is None:
        # A CallToolResult is complete: its type says nothing about the structured content that may be in it.
        return isinstance(returns, type) and issubclass(returns, (*_CONTENT, CallToolResult))
    if isinstance(origin, type) and issubclass(origin, Mapping):  # a mapping with blocks in it is data, not content
        return False
    return any(_is_content(part) for part in get_args(returns))


def _describes_object(schema: dict[str, Any]) -> bool:
    # pydantic puts a recursive model into $defs, and leaves only a reference at the root.
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    return schema.get("type") == "object"


def _items(value: Any, declared: bool = False) -> list[Any]:
    """Return the values that become one block each."""
    if value is None:
        # `content` is required, but may be empty (schema, CallToolResult): a tool that returns nothing has succeeded.
        return []
    # A list becomes several blocks only if it is known or seen to hold some; otherwise it is data, one JSON text.
    if isinstance(value, (list, tuple)) and (declared or any(isinstance(item, _CONTENT) for item in value)):
        return list(value)
    return [value]


def _block(value: Any, revision: str) -> dict[str, Any]:
    if isinstance(value, (*MEDIA, bytes)):
        value = block_of(value)
    if isinstance(value, _BLOCKS):
        return downgraded_block(wire_for(value, revision), revision)
    if isinstance(value, str):
        return _text(value)
    return _text(to_json(value.to_wire() if isinstance(value, WireModel) else _plain(value)).decode())


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value, by_alias=True)
    except ValueError as exc:
        raise OutputError(f"the return value has no JSON form: {exc}") from exc


def _json_text(data: Any) -> str:
    """Return structured content as text: a string as it is, anything else as JSON."""
    try:
        if type(data) is str:
            if not data.isascii():
                data.encode()  # raises for a lone surrogate
            return data
        text = to_json(data, inf_nan_mode="constants").decode()
        if "NaN" in text or "Infinity" in text:  # perhaps only within a string: the slow encoder decides
            json.dumps(data, allow_nan=False)
    except ValueError as exc:
        raise OutputError(f"the return value has no JSON form: {exc}") from exc
    return text


def _text(text: str) -> dict[str, Any]:
    if not text.isascii():
        # File names and captured output may contain lone surrogates, which UTF-8 can't encode.
        text = text.encode("utf-8", "backslashreplace").decode()
    return {"type": "text", "text": text}


def text_result(text: str, *, is_error: bool) -> dict[str, Any]:
    """Return the wire form of a result with one text block."""
    return {"content": [_text(text)], "isError": is_error}


class ToolDetails(TypedDict, total=False):
    """The optional details of a tool.

    Attributes:
        name: The tool's name; the function's own by default.
        title: The tool's name for people.
        description: What the tool does, for the model; the docstring by default.
        annotations: Hints about the tool's behaviour.
        icons: Icons, each an https: or data: URI.
        tags: Words of your own, for `Server.enable`, `Server.disable` and ``Server(visible=…)``; not sent to clients.
        enabled: Whether it is offered; `Server.enable` does so later.
        timeout: Seconds that the function may run, not counting the time in which it waits for the user's answers;
            then the call fails with an error for the model. An async function is cancelled, a thread is abandoned.
        meta: The tool's ``_meta``; a key has the form ``com.example/name``.
        input_schema: A JSON Schema for the arguments, shown instead of the one made from the type hints. Arguments are
            validated against both.
        output_schema: A JSON Schema for the result, used instead of the one made from the return type.
        structured_output: Whether the return type makes an output schema and structured content; if False, results are
            content only. By default the server's ``FunctionOptions(structured_output=…)`` decides.
        park_input: Whether the function, when it asks for input in the modern era, keeps waiting in this process
            instead of running again from its start.
    """

    name: str | None
    title: str | None
    description: str | None
    annotations: ToolAnnotations | Mapping[str, Any] | None
    icons: Iterable[Icon] | None
    tags: Iterable[str] | None
    enabled: bool
    timeout: float | None
    meta: Mapping[str, Any] | None
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    structured_output: bool | None
    park_input: bool


@attrs.frozen
class RegisteredTool(Entry[Tool]):
    """A tool as the server holds it.

    Attributes:
        output: Turns the return value into a result.
        timeout: How many seconds the function may run; None for no limit.
    """

    output: Output
    timeout: float | None

    @property
    def kind(self) -> EntryKind:
        return "tool"

    def bind_in_time(self, arguments: dict[str, Any], context: Context[Any]) -> Call:
        """Bind arguments to the function as `Function.bind` does, and limit the time that it takes."""
        return functools.partial(self._in_time, self.function.bind(arguments, context), context)

    async def _in_time(self, call: Call, context: Context[Any]) -> Any:
        assert self.timeout is not None
        with trio.move_on_after(self.timeout) as scope:
            if context.rounds is not None:
                context.rounds.limit = scope, self.timeout
            return await call()
        raise ToolError(f"the tool {context.params['name']!r} took longer than {self.timeout:g} s, and was given up")

    def _to_wire(self, revision: str) -> dict[str, Any]:
        wire = wire_for(self.definition, revision)
        # Until 2025-11-25 an output schema must describe an object. A tool with another one is listed without, and
        # its results have no structured content there.
        if "outputSchema" in wire and self.output.schema_for(revision) is None:
            del wire["outputSchema"]
        return wire


class ToolFeature:
    """The tools of a server.

    Attributes:
        registry: The tools, by name.
    """

    def __init__(self, settings: Settings) -> None:
        self.registry: Registry[RegisteredTool] = Registry("tool")
        self.methods = {"tools/list": self._list, "tools/call": self._call}
        self._settings = settings

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        # Declared even without tools: they may be added later, and a capability can't be declared later.
        return {"tools": {"listChanged": True}}

    def add(self, function: Callable[..., Any], **details: Unpack[ToolDetails]) -> None:
        """Add a tool; see `Server.add_tool`."""
        self.registry.add(_make_tool(function, self._settings, details), details.get("enabled", True))
        self.notify_changed()

    def remove(self, name: str) -> None:
        """Remove a tool; see `Server.remove_tool`."""
        self.registry.remove(name)
        self.notify_changed()

    def notify_changed(self) -> None:
        """Notify clients that the list has changed."""
        self._settings.announce(TOOLS_CHANGED)

    async def _list(self, context: Context[Any]) -> dict[str, Any]:
        return await self._settings.list_page(self.registry, "tools", context)

    async def _call(self, context: Context[Any]) -> dict[str, Any]:
        # Parameters come straight from the JSON parser, so there are no subclasses: `type(...) is` is the fastest test.
        name, arguments = context.params.get("name"), context.params.get("arguments")
        if type(name) is not str:
            raise McpError(INVALID_PARAMS, "tools/call needs a name, which must be a string")
        tool = self.registry.get(name)
        if tool is None or (tool.filtered and not self._settings.shows(tool, context)):
            # A protocol error and not a result, in every revision (`server/tools`, Error Handling). The name is the
            # client's: cut, so that it can't fill logs.
            raise McpError(INVALID_PARAMS, f"unknown tool: {name[:200]!r}")
        if tool.filtered:
            _check_headers(tool, arguments, context)
        if tool.mounted is not None:
            return await tool.mounted.pass_on(context, name=tool.mounted.name)
        if arguments is None:  # optional; null counts as missing
            arguments = {}
        elif type(arguments) is not dict:
            raise McpError(INVALID_PARAMS, "the arguments of tools/call must be an object")
        revision, function = context.protocol_version, tool.function
        bind = function.bind if tool.timeout is None else tool.bind_in_time
        try:
            if function.may_ask:
                value = await run_interactive(
                    context, functools.partial(bind, arguments, context), park=function.park_input
                )
                if type(value) is Asked:
                    return value.result
            else:
                value = await bind(arguments, context)()
            return tool.output.result(value, revision)
        except InvalidArguments as exc:
            text = f"invalid arguments for the tool {name!r}: {exc}"
            # Since 2025-11-25 invalid arguments are a result, so that the model sees them and can correct itself
            # (2025-11-25 `server/tools`, Error Handling).
            if context.rules.argument_errors_as_results:
                return text_result(text, is_error=True)
            raise McpError(INVALID_PARAMS, text) from None
        except Exception as exc:
            return self._failure(context, name, single(exc))

    def _failure(self, context: Context[Any], name: str, exc: Exception) -> dict[str, Any]:
        # An McpError fails the request itself; a ToolError is a message for the model; anything else is a bug in the
        # tool, of which the client learns no more than the server allows.
        if isinstance(exc, McpError):
            raise exc
        told = str(exc)
        if not isinstance(exc, ToolError):
            told = self._settings.describe_failure(context, f"the tool {name!r} failed", exc, OutputError)
        return text_result(told, is_error=True)


def _check_headers(tool: RegisteredTool, arguments: Any, context: Context[Any]) -> None:
    """Compare a call's arguments with the HTTP headers that repeat them.

    For other tools HTTP does so before the request gets here. For one that may be hidden, its answer would tell that
    there is such a tool.

    Raises:
        McpError: If they differ (-32020).
    """
    if isinstance(context.connection, Exchange):  # a POST of the modern era: no other request has such headers
        from trio_mcp.http.param_headers import check_parameter_headers, parameter_headers  # deferred: not for stdio

        try:
            parameters = parameter_headers(tool.definition.input_schema)
        except ValueError:  # clients leave such a tool out
            return
        error = check_parameter_headers(context.transport_metadata["headers"], arguments, parameters)
        if error is not None:
            raise McpError(error.code, error.message, error.data)


def _make_tool(function: Callable[..., Any], settings: Settings, details: ToolDetails) -> RegisteredTool:
    if not callable(function):
        raise TypeError(f"a tool must be a function, got {type(function).__name__}")
    name = name_of(function, details)
    if not isinstance(name, str):
        raise TypeError(f"a tool's name must be a string, got {name!r}")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid tool name: use 1 to 128 of the characters A-Z a-z 0-9 _ - . and pass name=…"
        )
    what = f"tool {name!r}"
    input_schema = details.get("input_schema")
    if input_schema is not None:
        if not isinstance(input_schema, dict):
            raise TypeError(f"{what}: input_schema must be a dict, got {type(input_schema).__name__}")
        if input_schema.get("type") != "object":
            raise ValueError(f'{what}: input_schema must be a JSON Schema with "type": "object" at its root')
        input_schema = copy.deepcopy(input_schema)  # the caller may go on to modify its dict
    own = read_function(
        function,
        settings.surroundings,
        what,
        input_schema=input_schema,
        park_input=details.get("park_input", False),
        read_texts=True,
    )
    output = read_output(
        without_questions(own.returns),
        copy.deepcopy(details.get("output_schema")),
        details.get("structured_output"),
        settings.surroundings.options,
        what,
    )
    annotations, timeout = details.get("annotations"), details.get("timeout")
    check_seconds(f"{what}: timeout", timeout, optional=True)
    definition = Tool(
        name=name,
        input_schema=own.input_schema,
        output_schema=output.schema,
        annotations=ToolAnnotations(**annotations) if isinstance(annotations, Mapping) else annotations,
        **described(details, own, what),
    )
    return RegisteredTool(definition, own, output, timeout, **held(details, settings, what))
