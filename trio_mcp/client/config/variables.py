"""Fill in the variables of a configuration, such as ``${NAME}`` and ``${input:key}``, and read environment files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from trio_mcp.client.config.text import read_regular

__all__ = ["HOST_VARIABLES", "expand", "read_env_file"]

# The closing brace is optional in this pattern: otherwise, matching a text with many unclosed references would take
# quadratic time.
_REFERENCE = re.compile(r"\$\{([^}]*)(\}?)")
# Matches the names of variables that POSIX shells accept.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

HOST_VARIABLES = ("workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/")
"""The names of variables that editors define themselves; ``${NAME}`` never reads these from the environment."""

_NONE: Mapping[str, str] = MappingProxyType({})


def expand(text: str, environ: Mapping[str, str], variables: Mapping[str, str] = _NONE) -> tuple[str, list[str]]:
    """Fill in the variables of a text, once: a value that is filled in is not expanded again.

    As in a shell, the default in ``${NAME:-default}`` is used if the variable is unset or empty.

    Args:
        text: The text with the variables.
        environ: The environment variables, which ``${NAME}`` and ``${env:NAME}`` refer to.
        variables: The values of other variables, such as ``${workspaceFolder}`` and ``${input:key}``. They take
            precedence over the environment.

    Returns:
        The expanded text, and the problems found.
    """
    problems: list[str] = []

    def value(reference: re.Match[str]) -> str:
        if not reference[2]:
            return reference[0]
        name, has_default, default = reference[1].partition(":-")
        plain = name.removeprefix("env:")
        is_plain = name not in HOST_VARIABLES and _NAME.fullmatch(plain)
        found = variables.get(name, environ.get(plain) if is_plain else None)
        if has_default:
            # `or` is right in this case: as with `:-` in a shell, an empty value counts as missing.
            return found or default
        if found is not None:
            return found
        # A variable without a value is a problem, and is not replaced by an empty string: a server that gets no token,
        # for example, would fail later and less clearly.
        if is_plain:
            problems.append(f"the variable {plain} is not set; set it, or give a default: ${{{plain}:-default}}")
        elif name in HOST_VARIABLES or (":" in name and plain == name):
            problems.append(f"{reference[0]} needs a value; pass variables={{{name!r}: …}}, or --variable {name}=…")
        else:
            problems.append(
                f"{reference[0]} can't be filled in; the forms are ${{NAME}}, ${{NAME:-default}} and ${{env:NAME}}"
            )
        return reference[0]

    return _REFERENCE.sub(value, text), problems


LARGEST_ENV_FILE = 1_000_000
"""The largest size of an environment file, in bytes. An arbitrary choice."""

# Matches one variable in the syntax of dotenv, in which a quoted value may extend over several lines.
_VARIABLE = re.compile(
    r"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"
    r"""(?:'(?P<raw>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)"|(?P<bare>[^'"#\r\n][^#\r\n]*)?)"""
    r"[ \t]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)",
    re.DOTALL,
)
_SKIPPED = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r?\n|\r|\Z)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(path: Path) -> dict[str, str]:
    """Read an environment file: lines of ``NAME=value``, in the syntax of dotenv.

    Raises:
        OSError: If the file can't be read.
        ValueError: If the file is too large, or not in this syntax. The error shows no values, as they may be secret.
    """
    content = read_regular(path, LARGEST_ENV_FILE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ValueError(f"is not valid UTF-8: {exc.reason} at byte {exc.start}") from None
    variables: dict[str, str] = {}
    at = 0
    while at < len(text):
        if found := _SKIPPED.match(text, at):
            # After a variable, this match skips the end of its line.
            at = found.end()
            continue
        found = _VARIABLE.match(text, at)
        if found is None:
            raise ValueError(f"line {text.count(chr(10), 0, at) + 1} must have the form NAME=value")
        raw, escaped, bare = found["raw"], found["escaped"], found["bare"]
        if escaped is not None:
            escaped = re.sub(r"\\(.)", lambda each: _ESCAPES.get(each[1], each[1]), escaped, flags=re.DOTALL)
        variables[found["name"]] = next((each for each in (raw, escaped) if each is not None), (bare or "").strip())
        at = found.end()
    return variables
