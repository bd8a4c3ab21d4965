"""Prompts: message templates that a server offers to the user."""

from collections.abc import Iterator
from typing import Any, Literal

from trio_mcp.types._base import WireModel, since
from trio_mcp.types.bases import (
    BaseMetadata,
    CacheablePage,
    InputResponseRequestParams,
    NotificationMessage,
    NotificationParams,
    PaginatedRequest,
    RequestMessage,
    Result,
)
from trio_mcp.types.common import Described, Role
from trio_mcp.types.content import ContentBlock, TextContent

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
    """An argument of a prompt."""

    description: str | None = None
    # If this field is absent, the argument is optional.
    required: bool | None = None


class Prompt(Described):
    """A prompt and its arguments."""

    description: str | None = None
    arguments: list[PromptArgument] | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class PromptMessage(WireModel):
    """One message of a prompt, with the arguments filled in."""

    role: Role
    content: ContentBlock

    @property
    def text(self) -> str:
        """The text of the message; empty if it has other content."""
        return self.content.text if isinstance(self.content, TextContent) else ""


class ListPromptsRequest(PaginatedRequest):
    """A request for a page of the server's prompts."""

    method: Literal["prompts/list"] = "prompts/list"


class ListPromptsResult(CacheablePage):
    """A page of the server's prompts."""

    prompts: list[Prompt]

    # This method replaces pydantic's own `__iter__`, which yields the fields.
    def __iter__(self) -> Iterator[Prompt]:  # type: ignore[override]
        """Yield the prompts of this page."""
        return iter(self.prompts)


class GetPromptRequestParams(InputResponseRequestParams):
    """The parameters of ``prompts/get``: the prompt and its arguments."""

    name: str
    # The arguments are strings only, unlike those of a tool.
    arguments: dict[str, str] | None = None


class GetPromptRequest(RequestMessage):
    """A request for a prompt with its arguments filled in."""

    method: Literal["prompts/get"] = "prompts/get"
    params: GetPromptRequestParams


class GetPromptResult(Result):
    """The messages of a prompt, with the arguments filled in."""

    description: str | None = None
    messages: list[PromptMessage]


class PromptListChangedNotification(NotificationMessage):
    """A notification that the server's list of prompts has changed."""

    method: Literal["notifications/prompts/list_changed"] = "notifications/prompts/list_changed"
    params: NotificationParams | None = None
