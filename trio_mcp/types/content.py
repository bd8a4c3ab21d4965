"""Blocks of content: in tool results, prompts and conversations with a model."""

from typing import Annotated, Any, Literal

from pydantic import Field

from trio_mcp.types._base import WireModel, since
from trio_mcp.types.common import Annotations
from trio_mcp.types.resources import BlobResourceContents, Resource, TextResourceContents

__all__ = [
    "AudioContent",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceLink",
    "SamplingMessageContentBlock",
    "TextContent",
    "ToolResultContent",
    "ToolUseContent",
]


class TextContent(WireModel):
    """Text."""

    type: Literal["text"] = "text"
    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ImageContent(WireModel):
    """An image, in base64."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class AudioContent(WireModel, since="2025-03-26"):
    """Sound, in base64."""

    type: Literal["audio"] = "audio"
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class EmbeddedResource(WireModel):
    """A resource together with its contents."""

    type: Literal["resource"] = "resource"
    resource: TextResourceContents | BlobResourceContents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ResourceLink(Resource, since="2025-06-18"):
    """A resource that can be read, without its contents; it need not be in the server's list."""

    type: Literal["resource_link"] = "resource_link"


ContentBlock = Annotated[
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource, Field(discriminator="type")
]


class ToolUseContent(WireModel, since="2025-11-25"):
    """The model wants a tool called."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = None


class ToolResultContent(WireModel, since="2025-11-25"):
    """What a tool that the model wanted called gave back."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = since("2025-11-25", null=True)
    is_error: bool | None = None
    meta: dict[str, Any] | None = None


SamplingMessageContentBlock = Annotated[
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent, Field(discriminator="type")
]
