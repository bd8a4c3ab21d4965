"""Reads and writes a baseline: the rules that a target is known to break, with the reason for each.

A baseline file is valid YAML: its lines have the form ``RULE: REASON``, and ``#`` begins a comment.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from trio_mcp.conformance.rules.catalogue import RULES

__all__ = ["baseline_text", "read_baseline"]

MAX_SIZE: Final = 1024 * 1024
"""The maximum size of a baseline file, in bytes.

An arbitrary choice: even a file with a line for every rule is far smaller.
"""

_LINE = re.compile(r"(?P<rule>[\w-]+)\s*:(\s+(?P<reason>.*))?")


def read_baseline(path: str | Path) -> dict[str, str]:
    """Read a baseline file, and return the reason for each rule.

    Raises:
        ValueError: If the file can't be read, is too large or not UTF-8, has a malformed line, or names a rule twice
            or one that does not exist.
    """
    try:
        with open(path, "rb") as file:
            # Reading one byte more than the limit shows whether the file is too large. The reported size of the file
            # can't be used for this: a pipe, for example that of a process substitution, has no size.
            data = file.read(MAX_SIZE + 1)
        text = data.decode()
    except OSError as exc:
        raise ValueError(f"can't read {path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if len(data) > MAX_SIZE:
        raise ValueError(f"{path} is larger than {MAX_SIZE} bytes")
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        # Three dashes begin a YAML document, and some YAML linters insist on them, so they are skipped.
        if not line or line.startswith("#") or line == "---":
            continue
        match = _LINE.fullmatch(line)
        try:
            if match is None:
                raise ValueError(f"a line must have the form RULE: REASON; got {line!r}")
            # An unknown rule is an error instead of being ignored: otherwise, if a rule was misspelt or has been
            # renamed, its known failure would be reported as a new one, and the reason would be lost.
            if match["rule"] not in RULES:
                near = difflib.get_close_matches(match["rule"], RULES, 1)
                raise ValueError(
                    f"there is no rule {match['rule']!r}" + (f"; did you mean {near[0]!r}?" if near else "")
                )
            # YAML forbids duplicate keys, but many parsers silently keep the last one: if duplicates were allowed, the
            # reason that is used would depend on the tool.
            if match["rule"] in found:
                raise ValueError(f"the rule {match['rule']!r} is named twice")
        except ValueError as exc:
            raise ValueError(f"{path}, line {number}: {exc}") from None
        found[match["rule"]] = _unquoted((match["reason"] or "").strip())
    return found


def _unquoted(text: str) -> str:
    # YAML escapes are not decoded: `baseline_text` writes none, and a reason is only read by people.
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def baseline_text(broken: Iterable[tuple[str, str]]) -> str:
    """Return the text of a baseline, given the broken rules, each with its reason."""
    # Reasons are quoted because YAML could read an unquoted one as something other than a string.
    return "".join(f"{rule}: '{' '.join(reason.split()).replace(chr(39), '`')}'\n" for rule, reason in broken)
