"""Regular expressions that are compiled when they are first used: to compile one takes longer than to import a module.

Patterns that every program uses are better compiled with `re.compile`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

__all__ = ["late_pattern"]


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` returns, but compile it on the first access to a method. Patterns must be known to be
    valid.

    Args:
        pattern: The regular expression.
        flags: As in `re.compile`.
    """
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        # This is called for missing names only: from now on the method costs no more than that of a compiled pattern.
        found = getattr(re.compile(*self._given), name)  # re keeps what it has compiled for the next name
        setattr(self, name, found)
        return found
