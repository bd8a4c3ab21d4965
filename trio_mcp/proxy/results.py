"""A result of one revision in the words of another; where both sides speak the same, it stays as it is."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from trio_mcp.convert import brief
from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import McpError
from trio_mcp.server.revisions import downgraded_block, wire_for
from trio_mcp.types._base import WireModel
from trio_mcp.types.completion import CompleteResult
from trio_mcp.types.error_codes import INTERNAL_ERROR
from trio_mcp.types.prompts import GetPromptResult, ListPromptsResult
from trio_mcp.types.resources import ListResourcesResult, ListResourceTemplatesResult, ReadResourceResult
from trio_mcp.types.tools import CallToolResult, ListToolsResult

__all__ = ["RESULTS", "in_words_of"]

RESULTS: dict[str, type[WireModel]] = {
    "tools/list": ListToolsResult,
    "tools/call": CallToolResult,
    "resources/list": ListResourcesResult,
    "resources/templates/list": ListResourceTemplatesResult,
    "resources/read": ReadResourceResult,
    "prompts/list": ListPromptsResult,
    "prompts/get": GetPromptResult,
    "completion/complete": CompleteResult,
}
"""Every method that is passed on, and its result."""

# What only the modern era says of a result.
_MODERN = ("resultType", "ttlMs", "cacheScope")


def in_words_of(
    revision: str, method: str, result: dict[str, Any], spoken: str, hints: dict[str, Any]
) -> dict[str, Any]:
    """The result for a client.

    Args:
        revision: The client's.
        method: Of the request.
        result: As it came.
        spoken: The revision in which it came.
        hints: How long it may be kept, if it does not say so itself.

    Raises:
        McpError: It is malformed, and can't be put in other words: -32603.
    """
    if revision == spoken:
        return result
    rules = rules_of(revision)
    try:
        wire = wire_for(RESULTS[method].from_wire(result), revision)
    except ValidationError as exc:
        text = f"the upstream server's result of {method!r} is malformed: {brief(exc)}"
        raise McpError(INTERNAL_ERROR, text) from None
    if method == "tools/call":
        _in_older_content(wire, revision)
    elif method == "tools/list" and not rules.any_structured_content:
        for tool in wire["tools"]:
            if tool.get("outputSchema", {}).get("type", "object") != "object":
                del tool["outputSchema"]
    elif method == "prompts/get":
        for message in wire["messages"]:
            message["content"] = downgraded_block(message["content"], revision)
    if not rules.modern:
        for name in _MODERN:
            wire.pop(name, None)
        return wire
    return hints | wire


def _in_older_content(wire: dict[str, Any], revision: str) -> None:
    wire["content"] = [downgraded_block(block, revision) for block in wire.get("content", ())]
    if not rules_of(revision).any_structured_content and type(wire.get("structuredContent", {})) is not dict:
        del wire["structuredContent"]
