"""The program's own messages: in colour where the terminal has it, in one line about what went wrong."""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO, TypeAlias

from trio_mcp._keywords import similar_names

__all__ = ["Style", "complaint", "has_colour", "near_file", "paint"]

Style: TypeAlias = Literal["heading", "name", "error", "aside"]

# Of the eight colours that every palette keeps readable, and none that says anything by itself: the text says it too.
CODES: dict[Style, str] = {"heading": "1", "name": "36", "error": "1;31", "aside": "2"}


def has_colour(stream: TextIO) -> bool:
    """Return whether to write colours to a stream: by no-color.org and force-color.org."""
    given = os.environ.get
    if given("NO_COLOR"):
        return False
    if given("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return given("TERM") != "dumb" and stream.isatty()


def paint(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return a text in a style, or as it is.

    Args:
        text: The text, which must not be able to control a terminal itself.
        style: What it is.
        stream: Where it is written to; by default standard output.
    """
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if text and has_colour(stream or sys.stdout) else text


def complaint(command: str, text: str, *, hint: bool) -> str:
    """Return what to write to standard error about what went wrong: one line, unless the text has several.

    Args:
        command: The command; empty without one.
        text: What went wrong.
        hint: Whether to name `--help`.
    """
    name = f"trio-mcp {command}".rstrip()
    if hint:
        # The hint gets a new line only after several lines.
        gap = "\n" if "\n" in text else " " if text.endswith((".", "?", "!")) else ". "
        text = f"{text}{gap}See `{name} --help`."
    return f"{paint(f'{name}:', 'error', sys.stderr)} {text}"


def near_file(path: str) -> str:
    """Return the end of a message about a file that does not exist: the most similar of its kind in its folder."""
    folder, name = os.path.split(path)
    stem, kind = os.path.splitext(name)
    try:
        # By the stems: what two names end with would make short ones similar.
        files = {each.removesuffix(kind): each for each in os.listdir(folder or ".") if each.endswith(kind)}
    except OSError:
        return ""
    near = similar_names(stem, files, 1)
    return f"; did you mean {os.path.join(folder, files[near[0]])!r}?" if near else ""
