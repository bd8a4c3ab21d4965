"""Prompts: templates of messages that a server offers to the user."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, since
from trio_mcp.types.common import (
    BaseMetadata,
    CacheablePage,
    Described,
    InputResponseRequestParams,
    NotificationMessage,
    NotificationParams,
    PaginatedRequest,
    RequestMessage,
    Result,
    Role,
)
from trio_mcp.types.content import ContentBlock

__all__ = [
    "GetPromptRequest",
    "GetPromptRequestParams",
    "GetPromptResult",
    "ListPromptsRequest",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptListChangedNotification",
    "PromptMessage",
]


class PromptArgument(BaseMetadata):
    """A blank of a prompt; absent ``required`` means it may stay empty."""

    description: str | None = None
    required: bool | None = None


class Prompt(Described):
    """A prompt and its blanks."""

    description: str | None = None
    arguments: list[PromptArgument] | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class PromptMessage(WireModel):
    """One message of a filled-in prompt."""

    role: Role
    content: ContentBlock


class ListPromptsRequest(PaginatedRequest):
    """Asks for a page of the server's prompts."""

    method: Literal["prompts/list"] = "prompts/list"


class ListPromptsResult(CacheablePage):
    """A page of the server's prompts."""

    prompts: list[Prompt]


class GetPromptRequestParams(InputResponseRequestParams):
    """Which prompt to fill in, with what."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptRequest(RequestMessage):
    """Asks the server to fill in a prompt."""

    method: Literal["prompts/get"] = "prompts/get"
    params: GetPromptRequestParams


class GetPromptResult(Result):
    """A filled-in prompt."""

    description: str | None = None
    messages: list[PromptMessage]


class PromptListChangedNotification(NotificationMessage):
    """The list of prompts is another now."""

    method: Literal["notifications/prompts/list_changed"] = "notifications/prompts/list_changed"
    params: NotificationParams | None = None
