"""Makes regular expressions that are compiled on first use: compiling one takes longer than importing a module.

Patterns that every program uses are better compiled with `re.compile`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

__all__ = ["late_pattern"]


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a stand-in for a compiled pattern; the pattern is compiled on the first access to a method.

    The error for an invalid pattern is raised only on that access.

    Args:
        pattern: The regular expression.
        flags: As in `re.compile`.
    """
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for attributes that are missing. So from its second call on, a method costs no more
        # than that of a compiled pattern.
        found = getattr(re.compile(*self._given), name)  # for other methods, `re` finds the pattern in its cache
        setattr(self, name, found)
        return found
