"""Tools: registering, listing and calling them (`server/tools`)."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack

import attrs

from trio_mcp.errors import McpError, ToolError
from trio_mcp.server.changes import TOOLS_CHANGED
from trio_mcp.server.context import Context
from trio_mcp.server.features.feature import Entry, Settings, check_details, described, name_of
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.functions.function import InvalidArguments, read_function, single
from trio_mcp.server.functions.output import Output, OutputError, read_output, text_result
from trio_mcp.server.input.interactive import run_interactive, without_questions
from trio_mcp.server.input.rounds import Asked
from trio_mcp.server.revisions import wire_for
from trio_mcp.types.common import Icon
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.tools import Tool, ToolAnnotations

__all__ = ["RegisteredTool", "ToolDetails", "ToolFeature"]

# `server/tools`, section Tool Names (a SHOULD since 2025-11-25; other clients enforce it).
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ToolDetails(TypedDict, total=False):
    """What may be said of a tool beside its function.

    Attributes:
        name: The tool's name; the function's own by default.
        title: Its name for people.
        description: What it does, for the model; the docstring by default.
        annotations: Hints about its behaviour.
        icons: Pictures of it, by https: or data: URI.
        meta: Its ``_meta``; a key has the form ``com.example/name``.
        input_schema: A JSON Schema for the arguments instead of one made from the hints. Arguments are checked against
            both.
        output_schema: A JSON Schema for the result instead of one made from the return type.
        park_input: In the modern era the function waits where it asks for input, in this process, instead of running
            again from its start.
    """

    name: str | None
    title: str | None
    description: str | None
    annotations: ToolAnnotations | Mapping[str, Any] | None
    icons: Iterable[Icon] | None
    meta: Mapping[str, Any] | None
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    park_input: bool


@attrs.frozen
class RegisteredTool(Entry[Tool]):
    """A tool as the server holds it.

    Attributes:
        output: How its return value becomes a result.
    """

    output: Output

    def _to_wire(self, revision: str) -> dict[str, Any]:
        wire = wire_for(self.definition, revision)
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
        """What is declared of it to a client of a revision."""
        return {"tools": {"listChanged": True}}

    def add(self, function: Callable[..., Any], **details: Unpack[ToolDetails]) -> None:
        """See `Server.add_tool`."""
        check_details(details, ToolDetails, "add_tool")
        self.registry.add(_make_tool(function, self._settings, details))
        self.notify_changed()

    def remove(self, name: str) -> None:
        """See `Server.remove_tool`."""
        self.registry.remove(name)
        self.notify_changed()

    def notify_changed(self) -> None:
        """Tell the clients that the list has changed."""
        self._settings.announce(TOOLS_CHANGED)

    async def _list(self, context: Context[Any]) -> dict[str, Any]:
        return self._settings.list_page(self.registry, "tools", context)

    async def _call(self, context: Context[Any]) -> dict[str, Any]:
        name, arguments = context.params.get("name"), context.params.get("arguments")
        if type(name) is not str:
            raise McpError(INVALID_PARAMS, "tools/call needs a name, which must be a string")
        tool = self.registry.get(name)
        if tool is None:
            raise McpError(INVALID_PARAMS, f"unknown tool: {name[:200]!r}")
        if tool.mounted is not None:
            return await tool.mounted.pass_on(context, name=tool.mounted.name)
        if arguments is None:
            arguments = {}
        elif type(arguments) is not dict:
            raise McpError(INVALID_PARAMS, "the arguments of tools/call must be an object")
        revision, function = context.protocol_version, tool.function
        try:
            if function.may_ask:
                bind = functools.partial(function.bind, arguments, context)
                value = await run_interactive(context, bind, park=function.park_input)
                if type(value) is Asked:
                    return value.result
            else:
                value = await function.bind(arguments, context)()
            return tool.output.result(value, revision)
        except InvalidArguments as exc:
            text = f"invalid arguments for the tool {name!r}: {exc}"
            if context.rules.argument_errors_as_results:
                return text_result(text, is_error=True)
            raise McpError(INVALID_PARAMS, text) from None
        except Exception as exc:
            return self._failure(name, single(exc))

    def _failure(self, name: str, exc: Exception) -> dict[str, Any]:
        if isinstance(exc, McpError):
            raise exc
        told = str(exc)
        if not isinstance(exc, ToolError):
            told = self._settings.describe_failure(f"the tool {name!r} failed", exc, OutputError)
        return text_result(told, is_error=True)


def _make_tool(function: Callable[..., Any], settings: Settings, details: ToolDetails) -> RegisteredTool:
    if not callable(function):
        raise TypeError(f"a tool must be a function, got {type(function).__name__}")
    name = name_of(function, details)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no valid tool name: 1 to 128 of the characters A-Z a-z 0-9 _ - . are allowed; pass name=…"
        )
    what = f"tool {name!r}"
    input_schema = details.get("input_schema")
    if input_schema is not None:
        if not isinstance(input_schema, dict) or input_schema.get("type") != "object":
            raise ValueError(f'{what}: input_schema must be a JSON Schema with "type": "object" at its root')
        input_schema = copy.deepcopy(input_schema)
    own = read_function(
        function,
        settings.surroundings,
        what,
        input_schema=input_schema,
        park_input=details.get("park_input", False),
    )
    output = read_output(without_questions(own.returns), copy.deepcopy(details.get("output_schema")), what)
    annotations = details.get("annotations")
    definition = Tool(
        name=name,
        input_schema=own.input_schema,
        output_schema=output.schema,
        annotations=ToolAnnotations(**annotations) if isinstance(annotations, Mapping) else annotations,
        **described(details, own, what),
    )
    return RegisteredTool(definition, own, output)
