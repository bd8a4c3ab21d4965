"""Tools: registration, listing, calling (`server/tools`)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio
from pydantic import ValidationError

from trio_mcp.errors import McpError, ToolError
from trio_mcp.protocol.json_schema import SchemaValidator
from trio_mcp.server.context import Context
from trio_mcp.server.output import Output, OutputError, read_output, text_result
from trio_mcp.server.signature import Signature, read_signature
from trio_mcp.session.convert import brief
from trio_mcp.types._base import field_span
from trio_mcp.types.common import Icon
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.tools import Tool, ToolAnnotations
from trio_mcp.types.versions import at_least

if TYPE_CHECKING:
    from trio_mcp.server.server import Server

__all__ = ["RegisteredTool", "call_tool", "make_tool"]

logger = logging.getLogger("trio_mcp")

# `server/tools`, section Tool Names (a SHOULD since 2025-11-25; other clients enforce it).
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")

# Since then invalid arguments are for the model to see and mend, before they were a protocol error (SEP-1303).
ARGUMENT_ERRORS_AS_RESULTS_SINCE = "2025-11-25"


class _InvalidArguments(Exception):
    pass


@attrs.frozen
class RegisteredTool:
    """A tool as the server holds it."""

    definition: Tool
    signature: Signature
    output: Output
    _explicit_input: SchemaValidator | None = None
    _wire: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    def for_revision(self, revision: str) -> dict[str, Any]:
        """The definition on the wire, with the fields that a revision knows."""
        wire = self._wire.get(revision)
        if wire is None:
            known = self.definition.model_copy(
                update={name: None for name in Tool.model_fields if revision not in field_span(Tool, name).revisions}
            )
            wire = self._wire[revision] = known.to_wire()
        return wire

    def bind(self, arguments: dict[str, Any], context: Context[Any]) -> Callable[[], Any]:
        """Validate arguments and bind them to the function.

        Raises:
            _InvalidArguments: They don't fit.
        """
        if self._explicit_input is not None:
            problem = self._explicit_input.problem(arguments)
            if problem is not None:
                raise _InvalidArguments(problem)
        try:
            return self.signature.bind(arguments, context)
        except ValidationError as exc:
            raise _InvalidArguments(brief(exc)) from None


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
) -> RegisteredTool:
    """Make a tool of a function. See `Server.add_tool`."""
    if not callable(function):
        raise TypeError(f"a tool must be a function, got {type(function).__name__}")
    name = name if name is not None else getattr(function, "__name__", type(function).__name__)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no valid tool name: 1 to 128 of the characters A-Z a-z 0-9 _ - . are allowed; pass name=…"
        )
    what = f"tool {name!r}"
    explicit = None
    if input_schema is not None:
        if not isinstance(input_schema, dict) or input_schema.get("type") != "object":
            raise ValueError(f'{what}: input_schema must be a JSON Schema with "type": "object" at its root')
        explicit = SchemaValidator(input_schema)
    signature = read_signature(function, Context, what, open_ended=explicit is not None)
    output = read_output(signature.returns, output_schema, what)
    if isinstance(annotations, Mapping):
        annotations = ToolAnnotations(**annotations)
    definition = Tool(
        name=name,
        title=title,
        description=description if description is not None else signature.description,
        input_schema=input_schema if input_schema is not None else signature.input_schema,
        output_schema=output.schema,
        annotations=annotations,
        icons=None if icons is None else list(icons),
        meta=None if meta is None else dict(meta),
    )
    return RegisteredTool(definition, signature, output, explicit)


async def call_tool(server: Server, context: Context[Any]) -> dict[str, Any]:
    """Handle ``tools/call``."""
    params = context.params
    name, arguments = params.get("name"), params.get("arguments")
    if type(name) is not str:
        raise McpError(INVALID_PARAMS, "tools/call needs a name, which must be a string")
    tool = server._tools.get(name)
    if tool is None:
        raise McpError(INVALID_PARAMS, f"unknown tool: {name[:200]!r}")
    if arguments is None:
        arguments = {}
    elif type(arguments) is not dict:
        raise McpError(INVALID_PARAMS, "the arguments of tools/call must be an object")
    revision = context.protocol_version
    try:
        bound = tool.bind(arguments, context)
    except _InvalidArguments as exc:
        text = f"invalid arguments for the tool {name!r}: {exc}"
        if at_least(revision, ARGUMENT_ERRORS_AS_RESULTS_SINCE):
            return text_result(text, is_error=True)
        raise McpError(INVALID_PARAMS, text) from None
    try:
        if tool.signature.is_async:
            value = await bound()
        else:
            # Abandoned when cancelled: a thread can't be stopped, but nobody has to wait for it.
            value = await trio.to_thread.run_sync(bound, abandon_on_cancel=True, limiter=server._sync_limiter)
        return tool.output.result(value, revision)
    except Exception as exc:
        return _failure(server, name, _single(exc))


def _failure(server: Server, name: str, exc: Exception) -> dict[str, Any]:
    if isinstance(exc, McpError):
        raise exc
    if isinstance(exc, ToolError):
        return text_result(str(exc), is_error=True)
    logger.error("the tool %r failed", name, exc_info=exc)
    if server.expose_errors or isinstance(exc, OutputError):
        detail = str(exc) if isinstance(exc, OutputError) else f"{type(exc).__name__}: {exc}"
        if server.expose_errors:
            return text_result(f"the tool {name!r} failed: {detail}", is_error=True)
    return text_result(f"the tool {name!r} failed", is_error=True)


def _single(exc: Exception) -> Exception:
    """The one exception inside a group of one: a tool may well have a nursery of its own."""
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc
