"""Registers, lists and calls tools, and turns their return values into results (`server/tools`)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_seconds
from trio_mcp.errors import McpError, ToolError
from trio_mcp.server.changes import TOOLS_CHANGED
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.feature import (
    Entry,
    EntryKind,
    FeatureSettings,
    Needs,
    described,
    held,
    name_of,
    scopes_of,
)
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.functions.function import Call, InvalidArguments, read_function
from trio_mcp.server.input.options import Asked, without_questions
from trio_mcp.server.outputs import NAME, Output, failure_result, read_output, text_result
from trio_mcp.server.revisions import wire_for
from trio_mcp.server.served_session import SingleRequest
from trio_mcp.types._base import make
from trio_mcp.types.common import Icon
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.tools import Tool, ToolAnnotations

if TYPE_CHECKING:  # few tools run as tasks
    from trio_mcp.server.task_policy import TaskPolicy

__all__ = ["RegisteredTool", "ToolDetails", "ToolFeature"]

OWNERS: Final[Mapping[Literal["task", "app", "visibility"], str]] = {
    "task": "Tasks",
    "app": "Apps",
    "visibility": "Apps",
}
"""The arguments of a tool that are meant for extensions, each with the class of its extension."""


class ToolDetails(TypedDict, total=False):
    """The optional details of a tool.

    Attributes:
        name: The tool's name; the function's own by default.
        title: The tool's name for people.
        description: A description of the tool for the model; the docstring by default.
        annotations: Hints about the tool's behaviour.
        icons: Icons, each an https: or data: URI.
        tags: Words of your own, for `Server.enable`, `Server.disable` and ``Server(visible=…)``; not sent to clients.
        enabled: Whether the tool is offered; if not, `Server.enable` can offer it later.
        scopes: The scopes that a call over HTTP needs. A server with scopes can be served over HTTP only with
            ``auth=…``. A token without the scopes is refused, but the tool stays in the list. On stdio and in memory,
            scopes don't apply.
        timeout: Seconds that the function may run, not counting the time during which it waits for the user's answers;
            after that, the call fails with an error for the model. An async function is cancelled; a thread is
            abandoned.
        meta: The tool's ``_meta``; a key has the form ``com.example/name``.
        input_schema: A JSON Schema for the arguments, shown instead of the one made from the type hints. Arguments are
            validated against both.
        output_schema: A JSON Schema for the result, used instead of the one made from the return type.
        structured_output: Whether the tool has an output schema, made from the return type, and structured content; if
            False, results are content only. By default the server's ``FunctionOptions(structured_output=…)`` decides.
        task: For the extension `Tasks`: a `TaskPolicy`, or its mode as a string. A server without the
            extension refuses it.
        app: For the extension `Apps`: the ``ui://`` URI of the page that shows the tool's result. A server without the
            extension refuses it.
        visibility: For the extension `Apps`: who may call the tool, some of ``"model"`` and ``"app"``; both by default.
        park_input: Whether a function that asks for input in the modern era keeps waiting in this process instead of
            running again from its start. Where an answer reaches another process, it begins again and asks again.
    """

    name: str | None
    title: str | None
    description: str | None
    annotations: ToolAnnotations | Mapping[str, Any] | None
    icons: Iterable[Icon] | None
    tags: Iterable[str] | None
    enabled: bool
    scopes: Iterable[str] | None
    timeout: float | None
    meta: Mapping[str, Any] | None
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    structured_output: bool | None
    task: TaskPolicy | str | None
    app: str | None
    visibility: Iterable[str] | None
    park_input: bool


@attrs.frozen
class RegisteredTool(Entry[Tool]):
    """A registered tool of a server.

    Attributes:
        output: Turns the return value into a result.
        timeout: How many seconds the function may run; None for no limit.
        declared: What the tool declares for extensions, by the name of the argument.
    """

    output: Output
    timeout: float | None
    declared: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)

    @property
    def kind(self) -> EntryKind:
        return "tool"

    def bind_in_time(self, arguments: dict[str, Any], context: ServedContext[Any]) -> Call:
        """Bind arguments to the function as `Function.bind` does, and limit the time that the call may take."""
        return functools.partial(self._in_time, self.function.bind(arguments, context), context)

    async def _in_time(self, call: Call, context: ServedContext[Any]) -> Any:
        assert self.timeout is not None
        with trio.move_on_after(self.timeout) as scope:
            if context.rounds is not None:
                context.rounds.limit = scope, self.timeout
            return await call()
        raise ToolError(f"the tool {self.name!r} took longer than {self.timeout:g} s and was cancelled")

    def _to_wire(self, revision: str) -> dict[str, Any]:
        wire = wire_for(self.definition, revision)
        # Up to revision 2025-11-25, an output schema must describe an object. In these revisions, a tool with another
        # schema is listed without it, and its results have no structured content.
        if "outputSchema" in wire and self.output.schema_for(revision) is None:
            del wire["outputSchema"]
        return wire


class ToolFeature:
    """The tools of a server, and the handlers of the methods that list and call them.

    Attributes:
        registry: The tools, by name.
    """

    def __init__(self, settings: FeatureSettings) -> None:
        self.registry: Registry[RegisteredTool] = Registry("tool")
        self.methods = {"tools/list": self._list, "tools/call": self._call}
        self.needs: Mapping[str, Needs] = {"tools/call": self._needed}
        self._settings = settings

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        # The capability is declared even without tools: when tools are added during a session, it is too late to
        # declare it.
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
        self._settings.announce_registration(TOOLS_CHANGED)

    def _needed(self, params: Mapping[str, Any]) -> frozenset[str]:
        return scopes_of(self.registry, params.get("name"))

    async def _list(self, context: ServedContext[Any]) -> dict[str, Any]:
        return await self._settings.list_page(self.registry, "tools", context)

    async def _call(self, context: ServedContext[Any]) -> dict[str, Any]:
        # Parameters come straight from the JSON parser, so there are no subclasses: `type(...) is` is the fastest test.
        name, arguments = context.params.get("name"), context.params.get("arguments")
        if type(name) is not str:
            raise McpError(INVALID_PARAMS, "tools/call needs a name, which must be a string")
        tool = self.registry.get(name)
        if tool is None or (tool.filtered and not self._settings.shows(tool, context)):
            # In every revision, an unknown tool is a protocol error and not a result (`server/tools`, Error Handling).
            # The client chose the name, so it is cut: it must not fill logs.
            raise McpError(INVALID_PARAMS, f"unknown tool: {name[:200]!r}")
        if tool.scopes:
            self._settings.check_scopes(tool.scopes, context)
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
                from trio_mcp.server.input.interactive import run_interactive  # deferred: see _make_tool

                run = context.interactive or run_interactive  # an extension may have its own rounds of input
                value = await run(context, functools.partial(bind, arguments, context), park=function.park_input)
                if type(value) is Asked:
                    return value.result
            else:
                value = await bind(arguments, context)()
            return tool.output.result(value, revision)
        except InvalidArguments as exc:
            return _refuse_arguments(context, f"invalid arguments for the tool {name!r}: {exc}")
        except Exception as exc:
            return failure_result(name, exc, context, self._settings.describe_failure)


def _refuse_arguments(context: ServedContext[Any], text: str) -> dict[str, Any]:
    # Since 2025-11-25 invalid arguments are a result, so that the model sees them and can correct itself (2025-11-25
    # `server/tools`, Error Handling).
    if context.rules.argument_errors_as_results:
        return text_result(text, is_error=True)
    raise McpError(INVALID_PARAMS, text) from None


def _check_headers(tool: RegisteredTool, arguments: Any, context: ServedContext[Any]) -> None:
    """Compare a call's arguments with the HTTP headers that repeat them.

    This is for tools that may be hidden: an error from the HTTP transport would reveal that the tool exists. For all
    other tools, the transport makes this check before it passes the request on.

    Raises:
        McpError: If the arguments and the headers differ (-32020).
    """
    if isinstance(context.connection, SingleRequest):  # a POST of the modern era; no other request has these headers
        from trio_mcp.http.param_headers import check_parameter_headers, parameter_headers  # deferred: HTTP only

        try:
            parameters = parameter_headers(tool.definition.input_schema)
        except ValueError:  # the schema's headers are invalid, so clients leave the tool out
            return
        error = check_parameter_headers(context.transport_metadata["headers"], arguments, parameters)
        if error is not None:
            raise McpError(error.code, error.message, error.data)


def _make_tool(function: Callable[..., Any], settings: FeatureSettings, details: ToolDetails) -> RegisteredTool:
    name = name_of("a tool", function, details)
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid tool name; pass name=… with 1 to 128 of the characters A-Z a-z 0-9 _ - ."
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
        dialect=settings.surroundings.options.schema_dialect,
    )
    if own.may_ask:  # imported now, so that no call has to wait for the import
        import trio_mcp.server.input.interactive  # noqa: F401
    output = read_output(
        without_questions(own.returns),
        copy.deepcopy(details.get("output_schema")),
        details.get("structured_output"),
        settings.surroundings.options,
        what,
    )
    annotations, timeout = details.get("annotations"), details.get("timeout")
    check_seconds(f"{what}: timeout", timeout, optional=True)
    definition = make(
        Tool,
        name=name,
        input_schema=own.input_schema,
        output_schema=output.schema,
        annotations=ToolAnnotations(**annotations) if isinstance(annotations, Mapping) else annotations,
        **described(details, own, what),
    )
    declared = _declared(details, definition, settings, what)
    if declared:
        definition, output = _extended(definition, output, declared, settings, what)
    return RegisteredTool(definition, own, output, timeout, **held(details, settings, what), declared=declared)


def _declared(details: ToolDetails, tool: Tool, settings: FeatureSettings, what: str) -> dict[str, Any]:
    """Return what a tool declares for the extensions of its server, by the name of the argument.

    Raises:
        TypeError, ValueError: If an extension refuses it, or the server does not have the extension.
    """
    declared: dict[str, Any] = {}
    for name, extension in OWNERS.items():
        given: Any = details.get(name)
        if given is None:
            continue
        kept = None if settings.extensions is None else settings.extensions.read_detail(name, given, tool)
        if kept is None:
            raise ValueError(
                f"{what}: {name}= needs the extension {extension}: pass extensions=[{extension}()] to the server"
            )
        declared[name] = kept
    if "task" in declared and details.get("park_input"):
        raise ValueError(f"{what}: park_input=True does not go with task=, as no function waits for a task's input")
    return declared


def _extended(
    tool: Tool, output: Output, declared: dict[str, Any], settings: FeatureSettings, what: str
) -> tuple[Tool, Output]:
    """Return the definition and the output of a tool, as changed by what it declares for extensions.

    Raises:
        ValueError: If the tool's own ``meta`` has a key of an extension.
    """
    assert settings.extensions is not None
    added, own = settings.extensions.tool_meta(declared), tool.meta or {}
    if taken := added.keys() & own.keys():
        raise ValueError(f"{what}: the _meta key {min(taken)!r} is set by an extension, so meta must not have it")
    if added:
        tool = tool.model_copy(update={"meta": own | added})
    # A client that shows no page has only the content (SEP-1865, Graceful Degradation).
    return tool, attrs.evolve(output, filled=True) if "app" in declared else output
