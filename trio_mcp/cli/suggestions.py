"""Guesses at what a user meant."""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["did_you_mean", "near_file"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to append to a message, such as "; did you mean 'list'?"; empty if no name is like this one."""
    near = _nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def near_file(path: str) -> str:
    """Return such a question for a file that does not exist: about those of its kind in its folder."""
    folder, name = os.path.split(path)
    stem, kind = os.path.splitext(name)
    try:
        stems = [each.removesuffix(kind) for each in os.listdir(folder or ".") if each.endswith(kind)]
    except OSError:
        return ""
    near = _nearest(stem, stems)
    return f"; did you mean {os.path.join(folder, near + kind)!r}?" if near else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # late: most lines are right

    return next(iter(difflib.get_close_matches(name, known, 1)), "")
