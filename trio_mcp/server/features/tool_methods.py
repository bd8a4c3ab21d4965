"""The part of `Server` that offers tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from trio_mcp.server.changes import TOOLS_CHANGED
from trio_mcp.server.connection import Handler
from trio_mcp.server.context import Context
from trio_mcp.server.core import ServerCore
from trio_mcp.server.features.tools import call_tool, make_tool
from trio_mcp.server.functions.handling import list_page
from trio_mcp.types.common import Icon
from trio_mcp.types.tools import ToolAnnotations

__all__ = ["ToolMethods"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class ToolMethods(ServerCore):
    """Registering, listing and calling tools."""

    def _capabilities(self, revision: str) -> dict[str, Any]:
        return {**super()._capabilities(revision), "tools": {"listChanged": True}}

    def _handlers(self) -> dict[str, Handler]:
        return {**super()._handlers(), "tools/list": _list_tools, "tools/call": call_tool}

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(
        self,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        annotations: ToolAnnotations | Mapping[str, Any] | None = ...,
        icons: Iterable[Icon] | None = ...,
        meta: Mapping[str, Any] | None = ...,
        input_schema: dict[str, Any] | None = ...,
        output_schema: dict[str, Any] | None = ...,
        park_input: bool = ...,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **details: Any) -> Any:  # type: ignore[misc]
        """Offer a function as a tool; the function itself stays as it is.

        ``@server.tool`` or ``@server.tool(title=…)``; the arguments are those of `add_tool`.
        """
        if function is None:
            return lambda given: self.tool(given, **details)
        if isinstance(function, str):
            raise TypeError(f"write @server.tool(name={function!r})")
        self.add_tool(function, **details)
        return function

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        park_input: bool = False,
    ) -> None:
        """Offer a function as a tool, also from a tool or another thread. Clients are told that the list has changed.

        Its type hints become the schema of its arguments and of its result, its docstring the description, without
        what it says of parameters (that goes into the schema) and of exceptions. Arguments are validated as pydantic
        does it in its lax mode (``"5"`` is an int); extra ones are refused. An async function runs in the event loop,
        any other in a thread. When a call is cancelled, the former is, too, but a thread can't be: it is left to
        finish, and counts among ``max_sync_tools`` until then.

        Args:
            function: The function, sync or async. A parameter annotated with `Context` is filled by the server.
            name: The tool's name; the function's own by default.
            title: Its name for people.
            description: What it does, for the model; the docstring by default.
            annotations: Hints about its behaviour.
            icons: Pictures of it, by https: or data: URI.
            meta: Its ``_meta``; a key has the form ``com.example/name``.
            input_schema: A JSON Schema for the arguments instead of one made from the hints. Arguments are checked
                against both.
            output_schema: A JSON Schema for the result instead of one made from the return type.
            park_input: In the modern era the function waits where it asks for input, in this process, instead of
                running again from its start.

        Raises:
            TypeError: The signature can't be offered.
            ValueError: The name is invalid or taken, or a schema can't be used.
        """
        self._tools.add(
            make_tool(
                function,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                icons=icons,
                meta=meta,
                input_schema=input_schema,
                output_schema=output_schema,
                park_input=park_input,
            )
        )
        self._announce(TOOLS_CHANGED)

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool. Clients are told that the list has changed; calls that are running go on.

        Raises:
            KeyError: There is no such tool.
        """
        self._tools.remove(name)
        self._announce(TOOLS_CHANGED)

    def notify_tools_changed(self) -> None:
        """Tell the clients that the list of tools has changed, as `add_tool` and `remove_tool` do by themselves.

        For a server that lists by other means, for example in a middleware. Returns at once, from any thread; several
        changes in one go may become one notification.
        """
        self._announce(TOOLS_CHANGED)


async def _list_tools(server: ServerCore, context: Context[Any]) -> dict[str, Any]:
    return list_page(server, server._tools, "tools", context)
