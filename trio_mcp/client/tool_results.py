"""The results of tools: with short cuts, and checked against the output schemas that the server lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp.errors import CapabilityError, McpError, RemoteProtocolError, RequestTimeout, TransportError
from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.types.content import TextContent
from trio_mcp.types.tools import CallToolResult, Tool

__all__ = ["OutputSchemas", "ToolResult"]


class ToolResult(CallToolResult):
    """The result of `Client.call_tool`: ``content``, ``structured_content``, ``is_error``, and two short cuts."""

    @property
    def data(self) -> Any:
        """The structured content, unwrapped; None if the result has none.

        A tool whose value is not an object has it wrapped as ``{"result": value}``; an object with that one key is
        taken for such a wrapper.
        """
        content = self.structured_content
        # The wrapper is a convention of servers, not of the specification: structured content used to be an object
        # always.
        if isinstance(content, dict) and len(content) == 1 and "result" in content:
            return content["result"]
        return content

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))


@attrs.define(eq=False)
class _Known:
    schema: dict[str, Any] | None
    validator: SchemaValidator | None = None


class OutputSchemas:
    """The output schema of each tool that has been listed, compiled on first use.

    Args:
        list_tools: Iterates over the server's tools; each page must be passed to `learn` on the way.
    """

    def __init__(self, list_tools: Callable[[], AsyncIterator[Tool]]) -> None:
        self._list_tools = list_tools
        self._schemas: dict[str, _Known] = {}
        self._all_known = False  # every tool has been listed: an unknown name is not a tool's
        self._learning = trio.Lock()  # held by the task that lists the tools, so that only one does

    def __len__(self) -> int:
        return len(self._schemas)

    def knows(self, name: str) -> bool:
        """Return whether listing the tools again would not say more about a tool."""
        return name in self._schemas or self._all_known

    def learn(self, tools: Iterable[Tool]) -> None:
        """Remember the output schemas of tools."""
        for tool in tools:
            known = self._schemas.get(tool.name)
            # An unchanged schema keeps its compiled validator.
            if known is None or known.schema != tool.output_schema:
                self._schemas[tool.name] = _Known(tool.output_schema)

    def changed(self, kind: str, uri: str | None) -> None:
        """Forget the schemas if the server announces a change of its tools."""
        if kind == "tools":
            # All of them: the notification does not say which tool has changed.
            self._schemas.clear()
            self._all_known = False

    async def check(self, name: str, value: Any) -> None:
        """Check structured content against the tool's output schema, if it has one; list the tools if unknown.

        If they can't be listed, the content is not checked.

        Raises:
            RemoteProtocolError: If it breaks the schema, or the schema can't be used.
        """
        known = self._schemas.get(name)
        if known is None and not self._all_known:
            await self._learn_all(name)
            known = self._schemas.get(name)
        if known is None or known.schema is None:
            return
        try:
            # Compiled on first use: most tools that are listed are never called.
            if known.validator is None:
                known.validator = SchemaValidator(known.schema)
            problem = known.validator.problem(value)
        except SchemaError as exc:
            # An unusable schema fails the call as well: structured content that can't be checked must not pass for
            # checked.
            text = f"the result of the tool {name!r} can't be checked against its output schema: {exc}"
            raise RemoteProtocolError(text) from None
        if problem is not None:
            raise RemoteProtocolError(f"the result of the tool {name!r} breaks its own output schema: {problem}")

    async def _learn_all(self, name: str) -> None:
        async with self._learning:
            if self.knows(name):  # learned while waiting for the lock
                return
            try:
                async for _ in self._list_tools():
                    pass
            except (McpError, CapabilityError):
                pass  # a server that runs tools without listing them: there is no schema to check against
            except (TransportError, RequestTimeout) as exc:
                # The tool has run. Its result must not be lost with the link, as the caller could not know of it.
                logger.warning("the result of the tool %r is not checked, as its schema can't be read: %s", name, exc)
                return
            # Also after a refusal, so that a server which lists nothing is not asked again for each result.
            self._all_known = True
