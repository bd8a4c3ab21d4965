"""Tools: registration, listing, calling (`server/tools`)."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from trio_mcp.errors import McpError, ToolError
from trio_mcp.server.context import Context
from trio_mcp.server.functions.arguments import ArgumentsValidator, InvalidArguments
from trio_mcp.server.functions.handling import describe_failure, run, single
from trio_mcp.server.functions.hints import bare
from trio_mcp.server.functions.output import Output, OutputError, read_output, text_result
from trio_mcp.server.functions.signature import Bound, Signature, read_signature
from trio_mcp.server.input.interactive import run_interactive, without_questions
from trio_mcp.server.input.rounds import Asked
from trio_mcp.server.revisions import wire_for
from trio_mcp.types.common import Icon
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.icons import checked_icons
from trio_mcp.types.meta import checked_meta
from trio_mcp.types.tools import Tool, ToolAnnotations

if TYPE_CHECKING:
    from trio_mcp.server.core import ServerCore
    from trio_mcp.server.features.mounting import Mounted

__all__ = ["RegisteredTool", "call_tool", "make_tool"]

# `server/tools`, section Tool Names (a SHOULD since 2025-11-25; other clients enforce it).
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@attrs.frozen
class RegisteredTool:
    """A tool as the server holds it."""

    definition: Tool
    signature: Signature
    output: Output
    _arguments: ArgumentsValidator
    mounted: Mounted | None = attrs.field(default=None, kw_only=True)
    _wire: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    def for_revision(self, revision: str) -> dict[str, Any]:
        """The definition on the wire, with the fields that a revision knows."""
        wire = self._wire.get(revision)
        if wire is None:
            wire = wire_for(self.definition, revision)
            if "outputSchema" in wire and self.output.schema_for(revision) is None:
                del wire["outputSchema"]
            self._wire[revision] = wire
        return wire

    def bind(self, arguments: dict[str, Any], context: Context[Any]) -> Bound:
        """Validate arguments and bind them to the function.

        Raises:
            InvalidArguments: They don't fit.
        """
        return self._arguments.bind(arguments, context)


def make_tool(
    function: Callable[..., Any],
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    annotations: ToolAnnotations | Mapping[str, Any] | None,
    icons: Iterable[Icon] | None,
    meta: Mapping[str, Any] | None,
    input_schema: dict[str, Any] | None,
    output_schema: dict[str, Any] | None,
    park_input: bool,
) -> RegisteredTool:
    """Make a tool of a function. See `Server.add_tool`."""
    if not callable(function):
        raise TypeError(f"a tool must be a function, got {type(function).__name__}")
    if name is None:
        name = getattr(bare(function), "__name__", type(function).__name__)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no valid tool name: 1 to 128 of the characters A-Z a-z 0-9 _ - . are allowed; pass name=…"
        )
    what = f"tool {name!r}"
    if input_schema is not None:
        if not isinstance(input_schema, dict) or input_schema.get("type") != "object":
            raise ValueError(f'{what}: input_schema must be a JSON Schema with "type": "object" at its root')
        input_schema = copy.deepcopy(input_schema)
    signature = read_signature(function, Context, what, open_ended=input_schema is not None, park_input=park_input)
    arguments = ArgumentsValidator(signature, input_schema)
    output = read_output(without_questions(signature.returns), copy.deepcopy(output_schema), what)
    if isinstance(annotations, Mapping):
        annotations = ToolAnnotations(**annotations)
    definition = Tool(
        name=name,
        title=title,
        description=description if description is not None else signature.description,
        input_schema=input_schema if input_schema is not None else signature.input_schema,
        output_schema=output.schema,
        annotations=annotations,
        icons=None if icons is None else checked_icons(icons, what),
        meta=None if meta is None else checked_meta(meta, what),
    )
    return RegisteredTool(definition, signature, output, arguments)


async def call_tool(server: ServerCore, context: Context[Any]) -> dict[str, Any]:
    """Handle ``tools/call``."""
    params = context.params
    name, arguments = params.get("name"), params.get("arguments")
    if type(name) is not str:
        raise McpError(INVALID_PARAMS, "tools/call needs a name, which must be a string")
    tool = server._tools.get(name)
    if tool is None:
        raise McpError(INVALID_PARAMS, f"unknown tool: {name[:200]!r}")
    if tool.mounted is not None:
        return await tool.mounted.mount.pass_on(context, name=tool.mounted.name)
    if arguments is None:
        arguments = {}
    elif type(arguments) is not dict:
        raise McpError(INVALID_PARAMS, "the arguments of tools/call must be an object")
    revision, signature = context.protocol_version, tool.signature
    try:
        if signature.may_ask:
            value = await run_interactive(server, context, lambda: tool.bind(arguments, context), signature)
            if type(value) is Asked:
                return value.result
        else:
            value = await run(tool.bind(arguments, context), signature.is_async, server)
        return tool.output.result(value, revision)
    except InvalidArguments as exc:
        text = f"invalid arguments for the tool {name!r}: {exc}"
        if context.rules.argument_errors_as_results:
            return text_result(text, is_error=True)
        raise McpError(INVALID_PARAMS, text) from None
    except Exception as exc:
        return _failure(server, name, single(exc))


def _failure(server: ServerCore, name: str, exc: Exception) -> dict[str, Any]:
    if isinstance(exc, McpError):
        raise exc
    if isinstance(exc, ToolError):
        return text_result(str(exc), is_error=True)
    return text_result(describe_failure(server, f"the tool {name!r} failed", exc, OutputError), is_error=True)
