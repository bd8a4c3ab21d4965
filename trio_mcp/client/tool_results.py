"""Defines tool results, with shortcuts to a result's value and text, and checks them against the server's output
schemas."""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, Self

import trio
from pydantic import BeforeValidator, PydanticUndefinedAnnotation, PydanticUserError, ValidationError
from pydantic_core import to_json
from typing_extensions import TypeVar

from trio_mcp import _attrs as attrs
from trio_mcp._keywords import similar_names
from trio_mcp._log import logger
from trio_mcp.convert import as_json, as_result, brief
from trio_mcp.errors import (
    McpError,
    RemoteProtocolError,
    RequestTimeout,
    ToolError,
    TransportError,
    TrioMcpError,
    UnknownTool,
)
from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.session.calls import CallLimits
from trio_mcp.types.content import TextContent
from trio_mcp.types.tool_messages import CallToolResult, ListToolsResult
from trio_mcp.types.tools import Tool

if TYPE_CHECKING:  # TypeAdapter costs more to import than the rest of a client, and few calls need it
    from pydantic import TypeAdapter

__all__ = ["OutputSchemas", "ToolResult", "adapter_of", "tool_params", "typed"]

DataT = TypeVar("DataT", default=Any)

# These patterns match the messages with which FastMCP and the SDKs for Python, TypeScript, Go, C#, Java and Rust report
# an unknown tool.
_WORDS = r"(unknown|no such|unrecogni[sz]ed) tool\b(?! arg| param| input)|tool( name)? (is )?(not found|unknown)\b"
_WORDS_WITH_NAME = (
    r"tool:? NAME (was |is )?(not found|unknown|not known|disabled)\b|tool:? NAME (does not|doesn't) exist\b"
)
_BEFORE = r"((mcp )?error( -\d+)?: |error (calling|executing) tool NAME: )?"

LONGEST_REFUSAL = 1000
"""The maximum length, in characters, of a text that is searched for words like "unknown tool".

An arbitrary choice: the texts with which servers report unknown tools are short.
"""

LONGEST_LISTING = 2.0
"""Seconds that listing the tools may take when it is only done to suggest a name.

An arbitrary choice: a refused call should not wait for a long time.
"""


def _says_unknown(text: str, name: str, *, alone: bool = False) -> bool:
    """Return whether a text says that there is no tool with this name; with ``alone``, whether it says nothing else."""
    if len(text) > LONGEST_REFUSAL:
        return False
    quoted = f"[\"'`]?{re.escape(name[:LONGEST_REFUSAL])}[\"'`]?"
    words = f"({_WORDS}|{_WORDS_WITH_NAME})".replace("NAME", quoted)
    if not alone:
        return re.search(words, text, re.IGNORECASE) is not None
    return name in text and re.match(_BEFORE.replace("NAME", quoted) + words, text, re.IGNORECASE) is not None


class ToolResult(CallToolResult, Generic[DataT]):
    """The result of `Client.call_tool`: ``content``, ``structured_content``, ``is_error``, and two shortcuts.

    ``ToolResult[Model]`` is the type of the result of a call with ``result_type=Model``.
    """

    # `is_error` is always a bool, so that callers can compare it. A server must not send null; if one does, null can
    # only mean False.
    is_error: Annotated[bool, BeforeValidator(lambda value: False if value is None else value)] = False

    @property
    def data(self) -> DataT:
        """The tool's return value, as an instance of the ``result_type``.

        Without a ``result_type``, it is the structured content, unwrapped, or None if the result has none. Servers wrap
        a value that is not an object as ``{"result": value}``; any object with only that key counts as a wrapper.

        Raises:
            ToolError: If a tool that was called with a ``result_type`` failed. It has the text of the result.
        """
        data: DataT = _unwrapped(self.structured_content)
        return data

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))


# Only the results of calls with a `result_type` are of this class, because a private attribute makes each instance
# slower to create.
class _TypedResult(ToolResult[DataT]):
    _value: Any = None

    def take(self, value: Any) -> Self:
        self._value = value
        return self

    @property
    def data(self) -> DataT:
        if self.is_error:
            raise ToolError(self.text or "the tool failed without saying why")
        value: DataT = self._value
        return value


def tool_params(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters of ``tools/call``.

    Raises:
        TypeError: If the name is not a string, or the arguments are not a mapping or can't be turned into JSON.
    """
    if not isinstance(name, str):
        raise TypeError(f"a tool's name must be a string, got {name!r}")
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise TypeError(f"arguments must be a mapping, got {type(arguments).__name__}")
        # The arguments are copied as plain data, because the caller may change its mapping while the request is still
        # queued.
        params["arguments"] = as_json(dict(arguments), f"the arguments of {name!r}")
    return params


def typed(result: dict[str, Any], name: str, adapter: TypeAdapter[DataT]) -> ToolResult[DataT]:
    """Return the result of a tool call, with its value validated as the caller's ``result_type``.

    Raises:
        RemoteProtocolError: If the value does not fit the type.
    """
    answer = as_result(result, _TypedResult[DataT], "tools/call")
    return answer if answer.is_error else answer.take(_read(answer, name, adapter))


def _unwrapped(content: Any) -> Any:
    # The wrapper `{"result": value}` is a convention among servers and not part of the specification. It exists
    # because, in earlier revisions, structured content always had to be an object.
    return content["result"] if isinstance(content, dict) and content.keys() == {"result"} else content


def adapter_of(result_type: Any) -> TypeAdapter[Any]:
    """Return the pydantic adapter that validates values of a ``result_type``.

    Raises:
        TypeError: If ``result_type`` is not a type that pydantic can validate.
    """
    try:
        adapter = _adapter(result_type) if _is_hashable(result_type) else _adapter.__wrapped__(result_type)
        if not adapter.pydantic_complete:  # a class in the type was not defined yet, or building was deferred
            adapter.rebuild()
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError) as exc:
        problem = str(exc).partition("\n")[0]
        raise TypeError(
            f"result_type must be a type that pydantic can validate, got {result_type!r}: {problem}"
        ) from None
    return adapter


# Adapters are cached because making one takes longer than an in-memory call. The cache is bounded because a program may
# create new types without end.
@functools.lru_cache(maxsize=128)
def _adapter(result_type: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return result_type if isinstance(result_type, TypeAdapter) else TypeAdapter(result_type)


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:  # the type contains something unhashable, as in Annotated[int, {…}]
        return False
    return True


def _read(answer: ToolResult, name: str, adapter: TypeAdapter[Any]) -> Any:
    """Return the value that a tool returned, validated by the adapter."""
    structured = "structured_content" in answer.model_fields_set
    if structured:
        whole = answer.structured_content
        inner = _unwrapped(whole)
        # As in `ToolResult.data`, the content of a wrapper is tried first, unless the type has a field named `result`.
        forms = [whole] if inner is whole else [whole, inner] if _has_result(adapter) else [inner, whole]
        candidates = [to_json(form) for form in forms]
    else:
        # Revisions before 2025-06-18 have no structured content, and servers of later revisions may omit it. In that
        # case, the text is the value itself if the value is a string, and otherwise usually its JSON.
        candidates = [to_json(answer.text), answer.text.encode()]
    problems = []
    for candidate in candidates:
        try:
            # The value is validated as JSON, so that strict models accept lists as tuples, strings as dates, and so on.
            return adapter.validate_json(candidate)
        except ValidationError as exc:
            problems.append(brief(exc))
    if structured:
        raise RemoteProtocolError(f"the result of the tool {name!r} does not fit result_type: {problems[0]}")
    raise RemoteProtocolError(
        f"the result of the tool {name!r} has no structured content, and its text does not fit result_type:"
        f" {problems[-1]}"
    )


@functools.lru_cache(maxsize=128)
def _has_result(adapter: TypeAdapter[Any]) -> bool:
    """Return whether the type of an adapter is an object with a field named ``result``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A warning about a default that is not JSON doesn't matter.
            schema = adapter.json_schema()
    except PydanticUserError:  # some types can be validated but have no JSON schema
        return False
    # The schema of a recursive model is, at its root, only a reference into its `$defs`.
    reference = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    return "result" in schema.get("$defs", {}).get(reference, schema).get("properties", {})


@attrs.define(eq=False)
class _Known:
    schema: dict[str, Any] | None
    validator: SchemaValidator | None = None


class OutputSchemas:
    """The output schema of each tool that has been listed, compiled on first use.

    Args:
        list_tools: Iterates over the server's tools, and passes each page to `learn` as soon as the page arrives.
        all_apart: Whether each call may have HTTP headers of its own, which may select other tools.
    """

    def __init__(self, list_tools: Callable[..., AsyncIterator[Tool]], *, all_apart: bool = False) -> None:
        self._list_tools = list_tools
        self._all_apart = all_apart
        # An object for a single call suggests names, but checks no result: that would take one more request each time.
        self._checks = True
        self._schemas: dict[str, _Known] = {}
        self._all_known = False  # every tool has been listed, so a name that is not in _schemas is not a tool
        self._in_order = False  # the pages so far have been read in order, and `_next` is the next page's cursor
        self._next: str | None = None
        self._learning = trio.Lock()  # held by the task that lists the tools, so that only one task does

    def __len__(self) -> int:
        return len(self._schemas)

    def learn(self, page: ListToolsResult, cursor: str | None) -> None:
        """Remember the output schemas on a page of the tool list, which was requested with ``cursor``."""
        for tool in page.tools:
            known = self._schemas.get(tool.name)
            # An unchanged schema keeps its compiled validator.
            if known is None or known.schema != tool.output_schema:
                self._schemas[tool.name] = _Known(tool.output_schema)
        # If the pages were read in order, from the first to the last, they are the whole list.
        in_order = cursor is None or (self._in_order and cursor == self._next)
        self._in_order, self._next = in_order, page.next_cursor
        if in_order and page.next_cursor is None:
            self._all_known = True

    def of(self, limits: CallLimits) -> OutputSchemas:
        """Return the object to use for a call; if the call has HTTP headers of its own, one that knows nothing yet."""
        headers = limits.get("headers")
        if headers is None and not self._all_apart:
            return self
        alone = OutputSchemas(functools.partial(self._list_tools, headers=headers))
        alone._checks = False
        return alone

    def changed(self, kind: str, uri: str | None) -> None:
        """Forget the schemas if the server announces a change to its tools."""
        if kind == "tools":
            # All schemas are forgotten, because the notification does not say which tool has changed.
            self._schemas.clear()
            self._all_known = self._in_order = False

    async def check(self, name: str, value: Any) -> None:
        """Check structured content against the tool's output schema, if it has one; list the tools if need be.

        If the tools can't be listed, the content is not checked.

        Raises:
            RemoteProtocolError: If the content breaks the schema, or the schema can't be used.
        """
        if not self._checks:
            return
        known = self._schemas.get(name)
        if known is None and not self._all_known:
            failure: Exception | None = None
            try:
                await self._learn_all()
            except (TransportError, RequestTimeout) as exc:
                # The tool has already run. Its result must not be lost because listing the tools failed: the caller
                # would not learn what the tool did.
                failure = exc
            known = self._schemas.get(name)
            # The page with this tool may have arrived before the listing failed.
            if known is None and failure is not None:
                logger.warning("the result of the tool %r was not checked: listing the tools failed: %s", name, failure)
        if known is None or known.schema is None:
            return
        try:
            # A schema is compiled on first use: most tools that are listed are never called.
            if known.validator is None:
                known.validator = SchemaValidator(known.schema)
            problem = known.validator.problem(value)
        except SchemaError as exc:
            # An unusable schema makes the call fail, too, because structured content that can't be checked must not
            # count as checked.
            raise RemoteProtocolError(
                f"the result of the tool {name!r} can't be checked against its output schema: {exc}"
            ) from None
        if problem is not None:
            raise RemoteProtocolError(f"the result of the tool {name!r} breaks its own output schema: {problem}")

    async def refusal(self, name: str, error: McpError) -> McpError:
        """Return an `UnknownTool` if an error says that the server has no such tool; otherwise the error itself."""
        if not _says_unknown(error.message, name):
            return error
        unknown = UnknownTool(name, await self._similar(name) or (), error.message, error.data)
        unknown.__cause__ = error
        return unknown

    async def check_failure(self, name: str, text: str) -> None:
        """Raise `UnknownTool` if a failed result says that there is no such tool, and the server does not list it.

        Unknown tools are protocol errors in every revision (`server/tools`, Error Handling), but several SDKs report
        them in a result with ``isError``.

        Raises:
            UnknownTool: If the server has no such tool.
        """
        if name in self._schemas or not _says_unknown(text, name, alone=True):
            return
        similar = await self._similar(name)
        if similar is not None and name not in self._schemas:
            raise UnknownTool(name, similar, text)

    async def _similar(self, name: str) -> tuple[str, ...] | None:
        """Return the tool names that resemble a name; None if the tools are not known and can't be listed."""
        with trio.move_on_after(LONGEST_LISTING) as scope:
            try:
                if not self._all_known:
                    await self._learn_all()
            except TrioMcpError:
                # The server's error about the unknown tool is more useful than an error about listing the tools.
                return None
        # The refused name itself is left out, because an outdated list may still contain it.
        others = (each for each in self._schemas if each != name)
        return None if scope.cancelled_caught else similar_names(name, others)

    async def _learn_all(self) -> None:
        async with self._learning:
            if self._all_known:  # another task has listed the tools while this one waited for the lock
                return
            # An error response counts as an empty list: a server that can't list its tools is not asked again for each
            # result.
            with contextlib.suppress(McpError):
                async for tool in self._list_tools():
                    if not self._checks:  # otherwise `learn` has been called with the page
                        self._schemas[tool.name] = _Known(None)
            self._all_known = True
