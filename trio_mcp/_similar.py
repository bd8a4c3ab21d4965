"""Known names that are similar to an unknown one, for "did you mean"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

__all__ = ["did_you_mean", "similar_names"]

LONGEST = 200
"""The longest part of a name, in characters, that is compared: difflib takes quadratic time."""

MOST_KNOWN = 1000
"""The most known names that a name is compared with. Chosen: it takes milliseconds."""


# The name may come from a model, the known ones from a server: both are bounded.
def similar_names(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Return the known names that are similar to a name, the most similar first."""
    return tuple(difflib.get_close_matches(name[:LONGEST], islice(known, MOST_KNOWN), most))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the most similar known name, if any."""
    near = similar_names(name, known, 1) if isinstance(name, str) else ()
    return f"; did you mean {near[0]!r}?" if near else ""
