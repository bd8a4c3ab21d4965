"""Content blocks, as found in tool results, prompts and conversations with a model."""

from typing import Annotated, Any, Literal

from pydantic import Field

from trio_mcp.types._base import WireModel, since
from trio_mcp.types.bases import Annotations
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
    """A block of text."""

    type: Literal["text"] = "text"
    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ImageContent(WireModel):
    """A block with an image."""

    type: Literal["image"] = "image"
    # The image in Base64, kept as text because most programs only pass it on.
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class AudioContent(WireModel, since="2025-03-26"):
    """A block with audio."""

    type: Literal["audio"] = "audio"
    # The audio in Base64, kept as text like an image.
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class EmbeddedResource(WireModel):
    """A block with a resource and its contents."""

    type: Literal["resource"] = "resource"
    # Contents have no type field: `text` or `blob` distinguishes them.
    resource: TextResourceContents | BlobResourceContents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ResourceLink(Resource, since="2025-06-18"):
    """A link to a resource, without its contents; the resource need not be in the server's list."""

    type: Literal["resource_link"] = "resource_link"


# With `type` as the discriminator, validation tries only the model that was meant, and errors name only this model.
ContentBlock = Annotated[
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource, Field(discriminator="type")
]


class ToolUseContent(WireModel, since="2025-11-25"):
    """A tool call that the model asks for."""

    type: Literal["tool_use"] = "tool_use"
    # The `toolUseId` of the result refers to this id.
    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = None


class ToolResultContent(WireModel, since="2025-11-25"):
    """The result of a tool call that the model asked for."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock]
    # A null is kept, because the content may be any JSON value, including null.
    structured_content: Any = since("2025-11-25", null=True)
    is_error: bool | None = None
    meta: dict[str, Any] | None = None


# A sampling message contains no resources, but it may contain tool calls and their results.
SamplingMessageContentBlock = Annotated[
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent, Field(discriminator="type")
]
