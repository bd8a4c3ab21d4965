"""Texts that may hold what a user has typed in, such as a password, and must not be shown."""

from __future__ import annotations

from typing import Self

__all__ = ["Filled", "as_written"]


class Filled(str):
    """A text of a configuration whose inputs are filled in. Messages show it as the configuration has it.

    Attributes:
        shown: The text with the names of the inputs instead.
    """

    shown: str

    def __new__(cls, text: str, shown: str) -> Self:
        made = super().__new__(cls, text)
        made.shown = shown
        return made

    def __repr__(self) -> str:
        return repr(self.shown)


def as_written(text: str) -> str:
    """Return what a message may show of a text."""
    return text.shown if isinstance(text, Filled) else text
