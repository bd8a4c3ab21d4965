"""Format the program's own messages: texts in colour, if the terminal has colours, and the lines that report a
failure."""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO, TypeAlias

from trio_mcp._keywords import similar_names

__all__ = ["Style", "complaint", "has_colour", "near_file", "paint"]

Style: TypeAlias = Literal["heading", "name", "error", "aside"]

# Only the eight basic colours are used, because every palette keeps them readable. A colour never conveys anything that
# the text does not say.
CODES: dict[Style, str] = {"heading": "1", "name": "36", "error": "1;31", "aside": "2"}


def has_colour(stream: TextIO) -> bool:
    """Return whether to write colours to a stream, following no-color.org and force-color.org."""
    given = os.environ.get
    if given("NO_COLOR"):
        return False
    if given("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return given("TERM") != "dumb" and stream.isatty()


def paint(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return a text in a style, or unchanged if the stream has no colours.

    Args:
        text: The text, which must not contain control characters of its own.
        style: The kind of text.
        stream: The stream that it is written to; by default standard output.
    """
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if text and has_colour(stream or sys.stdout) else text


def complaint(command: str, text: str, *, hint: bool) -> str:
    """Return the message for standard error about a failure: one line, unless the text has several.

    Args:
        command: The name of the command, or empty.
        text: A description of the failure.
        hint: Whether to point to ``--help``.
    """
    name = f"trio-mcp {command}".rstrip()
    if hint:
        # The hint gets a line of its own only after a text of several lines.
        gap = "\n" if "\n" in text else " " if text.endswith((".", "?", "!")) else ". "
        text = f"{text}{gap}See `{name} --help`."
    return f"{paint(f'{name}:', 'error', sys.stderr)} {text}"


def near_file(path: str) -> str:
    """Return the end of a message about a missing file, with the name of a similar file in the same folder, if any."""
    folder, name = os.path.split(path)
    stem, kind = os.path.splitext(name)
    try:
        # Only the stems are compared, because a common suffix would make any two short names similar.
        files = {each.removesuffix(kind): each for each in os.listdir(folder or ".") if each.endswith(kind)}
    except OSError:
        return ""
    near = similar_names(stem, files, 1)
    return f"; did you mean {os.path.join(folder, files[near[0]])!r}?" if near else ""
