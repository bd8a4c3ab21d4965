"""Blocks of content, as text."""

from __future__ import annotations

import base64
import binascii

from trio_mcp.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from trio_mcp.types.resources import BlobResourceContents

__all__ = ["block_text", "decoded"]


def decoded(data: str) -> bytes | None:
    """The bytes of Base64; None if it is none."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _size(data: str) -> str:
    content = decoded(data)
    return "broken Base64" if content is None else f"{len(content)} bytes"


def block_text(block: TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource) -> str:
    """A block's text, or in brackets what it is."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, (ImageContent, AudioContent)):
        return f"[{block.type}: {block.mime_type}, {_size(block.data)}]"
    if isinstance(block, ResourceLink):
        return f"[resource: {block.uri}]"
    if isinstance(block.resource, BlobResourceContents):
        return f"[resource: {block.resource.uri}, {_size(block.resource.blob)}]"
    return block.resource.text
