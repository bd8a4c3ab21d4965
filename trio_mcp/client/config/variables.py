"""Variables in the strings of a configuration: ``${NAME}``, ``${NAME:-default}``, ``${env:NAME}``."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["expand"]

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand(text: str, variables: Mapping[str, str]) -> tuple[str, list[str]]:
    """Fill in variables, once: what is filled in is taken as it is.

    A default counts where the variable is not set or empty, as in a shell.

    Args:
        text: The text.
        variables: The variables that are set.

    Returns:
        The text, and what is wrong with it.
    """
    problems: list[str] = []

    def value(reference: re.Match[str]) -> str:
        name, has_default, default = reference[1].partition(":-")
        name = name.removeprefix("env:")
        if not _NAME.fullmatch(name):
            problems.append(
                f"{reference[0]} can't be filled in; there are ${{NAME}}, ${{NAME:-default}} and ${{env:NAME}}"
            )
            return reference[0]
        if has_default:
            return variables.get(name) or default
        if name not in variables:
            problems.append(f"the variable {name} is not set; set it, or give a default: ${{{name}:-default}}")
        return variables.get(name, reference[0])

    return _REFERENCE.sub(value, text), problems
