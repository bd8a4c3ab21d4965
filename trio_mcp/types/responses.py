"""Responses by method, as the schema of 2026-07-28 spells them out."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from trio_mcp.types.completion import CompleteResult
from trio_mcp.types.discovery import DiscoverResult
from trio_mcp.types.input_required import INPUT_REQUIRED, InputRequiredResult
from trio_mcp.types.jsonrpc import JSONRPCResultResponse
from trio_mcp.types.prompts import GetPromptResult, ListPromptsResult
from trio_mcp.types.resources import ListResourcesResult, ListResourceTemplatesResult, ReadResourceResult
from trio_mcp.types.subscriptions import SubscriptionsListenResult
from trio_mcp.types.tools import CallToolResult, ListToolsResult

__all__ = [
    "CallToolResultResponse",
    "CompleteResultResponse",
    "DiscoverResultResponse",
    "GetPromptResultResponse",
    "ListPromptsResultResponse",
    "ListResourceTemplatesResultResponse",
    "ListResourcesResultResponse",
    "ListToolsResultResponse",
    "ReadResourceResultResponse",
    "SubscriptionsListenResultResponse",
]


def _kind(result: Any) -> str:
    asks = isinstance(result, InputRequiredResult) or (
        isinstance(result, dict) and result.get("resultType") == INPUT_REQUIRED
    )
    return "asks" if asks else "answers"


_Asks = Annotated[InputRequiredResult, Tag("asks")]


class CallToolResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to tools/call."""

    result: Annotated[_Asks | Annotated[CallToolResult, Tag("answers")], Discriminator(_kind)]


class CompleteResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to completion/complete."""

    result: CompleteResult


class DiscoverResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to server/discover."""

    result: DiscoverResult


class GetPromptResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to prompts/get."""

    result: Annotated[_Asks | Annotated[GetPromptResult, Tag("answers")], Discriminator(_kind)]


class ListPromptsResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to prompts/list."""

    result: ListPromptsResult


class ListResourceTemplatesResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to resources/templates/list."""

    result: ListResourceTemplatesResult


class ListResourcesResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to resources/list."""

    result: ListResourcesResult


class ListToolsResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to tools/list."""

    result: ListToolsResult


class ReadResourceResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to resources/read."""

    result: Annotated[_Asks | Annotated[ReadResourceResult, Tag("answers")], Discriminator(_kind)]


class SubscriptionsListenResultResponse(JSONRPCResultResponse, since="2026-07-28"):
    """The response to subscriptions/listen."""

    result: SubscriptionsListenResult
