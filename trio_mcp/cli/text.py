"""Format texts from a server, JSON and blocks of content for people, so that they are safe to print on a terminal."""

from __future__ import annotations

import base64
import binascii
import json
import sys
import textwrap
import unicodedata
from collections.abc import Callable
from typing import Any

from trio_mcp.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from trio_mcp.types.resources import BlobResourceContents

__all__ = ["block_text", "clean", "clean_line", "decoded", "dumps", "paragraph", "shorten"]

# The width is fixed, so that output is the same in a terminal and in a file.
WIDTH = 80
# The Unicode categories of invisible characters, some of which can reorder or hide the text around them (UAX #9).
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn"}


def clean(text: str) -> str:
    """Escape the characters of a text that could control a terminal or hide text; newlines and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return _escaped(text, "\n\t", lambda each: "" if each == "\r" else each.encode("unicode_escape").decode("ascii"))


def clean_line(text: str) -> str:
    """Clean a text as `clean` does, and put it on one line."""
    return " ".join(clean(text).split())


def _escaped(text: str, kept: str, escape: Callable[[str], str]) -> str:
    return "".join(each if each in kept or unicodedata.category(each) not in HIDDEN else escape(each) for each in text)


def shorten(text: str, width: int) -> str:
    """Return a line, shortened to at most ``width`` characters."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def paragraph(text: str, indent: str) -> str:
    """Wrap a text to `WIDTH` columns; its own line breaks are kept."""
    lines = []
    for line in clean(text).strip().splitlines():
        # A line keeps its own indentation, so that lists and code in descriptions keep their form.
        own = line[: len(line) - len(line.lstrip())]
        # Words are not broken, so that URLs and names can be copied.
        filled = textwrap.wrap(
            line.strip(), WIDTH - len(indent) - len(own), break_long_words=False, break_on_hyphens=False
        )
        lines += [f"{indent}{own}{each}" for each in filled] or [""]
    return "\n".join(lines)


def dumps(value: Any) -> str:
    """Return indented JSON; if standard output is a terminal, characters that could control it are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if sys.stdout.isatty():
        # Inside a JSON string, an escape represents the same character, so the value stays the same.
        text = _escaped(text, "\n", lambda each: json.dumps(each)[1:-1])
    return text


# --- blocks of content ------------------------------------------------------------------------------------------------


def decoded(data: str) -> bytes | None:
    """Decode Base64; return None if it is invalid."""
    try:
        # Without `validate`, Python would silently skip invalid characters.
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _size(data: str) -> str:
    content = decoded(data)
    return "invalid Base64" if content is None else f"{len(content)} bytes"


def block_text(block: TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource) -> str:
    """Return a block's text, or a description of the block in brackets."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, (ImageContent, AudioContent)):
        return f"[{block.type}: {block.mime_type}, {_size(block.data)}]"
    if isinstance(block, ResourceLink):
        return f"[resource: {block.uri}]"
    if isinstance(block.resource, BlobResourceContents):
        return f"[resource: {block.resource.uri}, {_size(block.resource.blob)}]"
    return block.resource.text
