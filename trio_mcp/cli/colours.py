"""Colours for a terminal, where it has them and the user wants them."""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO, TypeAlias

__all__ = ["Style", "has_colour", "paint"]

Style: TypeAlias = Literal["heading", "name", "error", "aside"]

# Of the eight colours that every palette keeps readable, and none that says anything by itself: the text says it too.
CODES: dict[Style, str] = {"heading": "1", "name": "36", "error": "1;31", "aside": "2"}


def has_colour(stream: TextIO) -> bool:
    """Return whether to write colours to a stream: by no-color.org, force-color.org and bixense.com/clicolors."""
    given = os.environ.get
    if given("NO_COLOR"):
        return False
    if any(given(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return given("TERM") != "dumb" and given("CLICOLOR") != "0" and stream.isatty()


def paint(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return a text in a style, or as it is.

    Args:
        text: The text, which must not be able to control a terminal itself.
        style: What it is.
        stream: Where it is written to; by default standard output.
    """
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if text and has_colour(stream or sys.stdout) else text
