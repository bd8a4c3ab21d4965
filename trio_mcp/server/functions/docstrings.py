"""Reading a docstring: its text for the model, and what it says of each parameter.

Parameters are described in the schema, so they leave the text. What the function returns stays: a model plans with it.
What it raises goes: clients never see those exceptions, only what `ToolError` says.
"""

from __future__ import annotations

import inspect
import re

__all__ = ["read_docstring"]

# Google style: a section is a line of its own that ends in a colon; its entries are indented below it.
_PARAMETERS = re.compile(r"^(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*$")
_RAISES = re.compile(r"^(Raises|Raise|Exceptions):\s*$")
_ENTRY = re.compile(r"^\s+\*{0,2}(?P<name>\w+)\s*(?:\(.*?\))?\s*:(?:\s+(?P<text>.*)|$)")
# Sphinx style
_FIELD = re.compile(r"^:(?P<kind>\w+)(?:\s+(?P<argument>[^:]*))?:\s*(?P<text>.*)$")
_PARAM_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_DROPPED_FIELDS = {"type", "rtype", "raises", "raise", "except", "exception", "vartype"}


def read_docstring(docstring: str | None) -> tuple[str | None, dict[str, str]]:
    """Split a docstring into its text, without the description of parameters, and that description.

    Google style (``Args:``) and Sphinx style (``:param name:``) are understood.

    Returns:
        The text (None if there is none), and a description for each parameter that has one.
    """
    if not docstring:
        return None, {}
    kept: list[str] = []
    described: dict[str, str] = {}
    lines = [line.rstrip() for line in inspect.cleandoc(docstring).splitlines()]
    position = 0
    while position < len(lines):
        line = lines[position]
        end = _end_of_block(lines, position)
        body = lines[position + 1 : end]
        if _PARAMETERS.match(line) and (entries := _entries(body)):
            described |= entries
        elif field := _FIELD.match(line):
            text = " ".join(filter(None, (field["text"], *map(str.strip, body))))
            kind = field["kind"]
            if kind in _PARAM_FIELDS and field["argument"]:
                described[field["argument"].split()[-1].lstrip("*")] = text
            elif kind in ("return", "returns"):
                kept.append(f"Returns: {text}")
            elif kind not in _DROPPED_FIELDS:
                kept += [line, *body]
        elif not _RAISES.match(line):
            kept.append(line)
            end = position + 1
        position = end
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return text or None, {name: description for name, description in described.items() if description}


def _end_of_block(lines: list[str], start: int) -> int:
    """Where the indented lines below a line end; blank lines between them belong to them."""
    end = following = start + 1
    while following < len(lines) and (not lines[following] or lines[following][0].isspace()):
        following += 1
        if lines[following - 1]:
            end = following
    return end


def _entries(body: list[str]) -> dict[str, str]:
    described: dict[str, list[str]] = {}
    current: list[str] | None = None
    entry_indent: int | None = None
    for line in filter(str.strip, body):
        indent = len(line) - len(line.lstrip())
        entry = _ENTRY.match(line)
        if entry and (entry_indent is None or indent <= entry_indent):
            entry_indent = indent
            current = described[entry["name"]] = [(entry["text"] or "").strip()]
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(filter(None, lines)) for name, lines in described.items()}
