"""Guesses at what a user meant."""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["did_you_mean", "near_file"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to append to a message, such as "; did you mean 'list'?"; empty if no name is like this one."""
    import difflib  # late: most lines are right

    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def near_file(path: str) -> str:
    """Return such a question for a file that does not exist: about those of its kind in its folder."""
    folder, name = os.path.split(path)
    kind = os.path.splitext(name)[1]
    try:
        names = [each for each in os.listdir(folder or ".") if each.endswith(kind)]
    except OSError:
        return ""
    return did_you_mean(path, [os.path.join(folder, each) for each in names])
