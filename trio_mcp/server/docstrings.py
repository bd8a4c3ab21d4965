"""Reading a docstring: its text for the model, and what it says of each parameter."""

from __future__ import annotations

import inspect
import re

__all__ = ["read_docstring"]

# Google style: a section is a line of its own that ends in a colon; its entries are indented below it.
_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_ENTRY = re.compile(r"^(?P<indent>\s+)\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")
# Sphinx style
_FIELD = re.compile(r"^:param\s+(?:[\w\[\], .|]+\s+)?(?P<name>\w+)\s*:\s*(?P<text>.*)$")


def read_docstring(docstring: str | None) -> tuple[str | None, dict[str, str]]:
    """Split a docstring into its text, without the description of parameters, and that description.

    Google style (``Args:``) and Sphinx style (``:param name:``) are understood.

    Returns:
        The text (None if there is none), and a description for each parameter that has one.
    """
    if not docstring:
        return None, {}
    kept: list[str] = []
    described: dict[str, list[str]] = {}
    current: list[str] | None = None
    section_indent: int | None = None
    in_section = False
    for line in inspect.cleandoc(docstring).splitlines():
        indent = len(line) - len(line.lstrip())
        if in_section and line.strip() and indent == 0:
            in_section, current = False, None
        if _SECTION.match(line):
            in_section, section_indent, current = True, None, None
        elif in_section:
            entry = _ENTRY.match(line)
            if entry and (section_indent is None or indent <= section_indent):
                section_indent = indent
                current = described[entry["name"]] = [entry["text"].strip()]
            elif current is not None and line.strip():
                current.append(line.strip())
        elif field := _FIELD.match(line):
            current = described[field["name"]] = [field["text"].strip()]
        elif current is not None and line.strip() and indent:
            current.append(line.strip())
        else:
            current = None
            kept.append(line)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return text or None, {name: " ".join(filter(None, lines)) for name, lines in described.items()}
