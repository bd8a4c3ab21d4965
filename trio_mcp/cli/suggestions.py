"""A guess at the file that a user meant; names are guessed by `trio_mcp._keywords`."""

from __future__ import annotations

import os

from trio_mcp._keywords import similar_names

__all__ = ["near_file"]


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
