"""Regular expressions that are compiled when they are first used: compiling one takes longer than importing a module.

Patterns that every program uses are better compiled with `re.compile`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

__all__ = ["late_pattern"]


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a stand-in for a compiled pattern; the pattern is compiled on the first access to a method.

    An invalid pattern raises an error only then.

    Args:
        pattern: The regular expression.
        flags: As in `re.compile`.
    """
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        # This is called only for missing names: a method that was used before costs no more than on a compiled pattern.
        found = getattr(re.compile(*self._given), name)  # for further names, the pattern is in the cache of `re`
        setattr(self, name, found)
        return found
