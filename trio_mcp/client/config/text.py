"""Parse the text of a configuration: JSON, perhaps with comments and trailing commas; and locate its keys and
values."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any, TypeAlias

from trio_mcp import _attrs as attrs

__all__ = ["LARGEST", "Place", "Places", "locate", "parsed", "read_regular", "without_comments"]

LARGEST = 10_000_000
"""The largest size of a configuration, in bytes. It is generous, as some hosts keep other settings in the same file."""

DEEPEST = 8
"""The depth down to which keys and values are located; the settings of a server need no more than six levels."""


def read_regular(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: If the file can't be read.
        ValueError: If the file has more than ``most`` bytes, or is not a regular file.
    """
    # The type of the file is checked before it is opened, because opening a pipe would block until the other end is
    # opened.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("is not a regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"has more than {most:,} bytes")
    return content


# The closing mark of a string, or of a block comment, is optional in these patterns: otherwise, matching a text with
# many unclosed ones would take quadratic time.
_STRING = r'"(?:[^"\\]|\\.)*"?'
_COMMENTS = re.compile(_STRING + r"|//[^\r\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMAS = re.compile(_STRING + r"|,(?=\s*[]}])", re.DOTALL)


def without_comments(text: str) -> str:
    """Return a text with spaces in place of its comments, so that everything else keeps its line and offset."""
    return _COMMENTS.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\r\n]", " ", found[0]), text)


def _without_trailing_commas(text: str) -> str:
    """Return a text with spaces in place of its trailing commas; its comments must have been removed."""
    return _TRAILING_COMMAS.sub(lambda found: " " if found[0] == "," else found[0], text)


def parsed(text: str) -> tuple[Any, Places]:
    """Return the content of a JSON text that may have trailing commas, and the positions of its values.

    Raises:
        JSONDecodeError: If the text is not valid JSON.
        ValueError: If the text is nested too deeply, or contains a number with too many digits.
    """
    text = _without_trailing_commas(text)
    try:
        return json.loads(text), locate(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("a number in it has too many digits") from None


Place: TypeAlias = tuple[str | int, ...]

# Matches one token of a JSON text: a string with its escapes, a punctuation mark, or a run of anything else (a number,
# true, false, null).
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@attrs.frozen
class Places:
    """The positions of the values in a JSON text, by path.

    Attributes:
        lines: The line of each key and each item of an array, counted from 1.
        spans: The offsets at which each value begins and ends.
        repeated: The path and line of each key that has already occurred in the same object.
    """

    lines: dict[Place, int] = attrs.field(factory=dict)
    spans: dict[Place, tuple[int, int]] = attrs.field(factory=dict)
    repeated: list[tuple[Place, int]] = attrs.field(factory=list)

    def line(self, path: Place) -> int | None:
        """Return the line of a value, or of the nearest parent with a known line. None if no line is known."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


@attrs.define
class _Container:
    path: Place
    is_object: bool
    start: int
    key: str | int = 0
    expects_key: bool = True
    keys: set[str] = attrs.field(factory=set)


def locate(text: str) -> Places:
    """Locate every key and every value of a JSON text, down to `DEEPEST` levels.

    Args:
        text: Valid JSON. As a parser has accepted it, one regular expression is enough to find the tokens.
    """
    places = Places()
    containers: list[_Container] = []
    line, counted = 1, 0
    for token in _TOKEN.finditer(text):
        # Newlines are counted only from the previous token to this one, so that counting takes linear time for the
        # whole text.
        line += text.count("\n", counted, token.start())
        counted = token.start()
        inner = containers[-1] if containers else None
        mark = token[0]
        if mark in "}]":
            closed = containers.pop()
            if len(closed.path) <= DEEPEST:
                places.spans[closed.path] = closed.start, token.end()
        elif mark == ",":
            assert inner is not None
            inner.expects_key = True
            if isinstance(inner.key, int):
                inner.key += 1
        elif mark == ":":
            pass
        elif inner is not None and inner.is_object and inner.expects_key:
            # The key is decoded, because a JSON parser treats its spellings with and without escapes as the same key.
            key = json.loads(mark)
            inner.key, inner.expects_key = key, False
            path = (*inner.path, key)[: DEEPEST + 1]
            if key in inner.keys:
                # A JSON parser silently keeps only the last value of a repeated key: if two servers had the same name,
                # the first would just be missing.
                places.repeated.append((path, line))
            inner.keys.add(key)
            if len(path) <= DEEPEST:
                places.lines[path] = line  # of a repeated key, the last line counts: json.loads keeps the last value
        else:
            # Values below the greatest depth share the path of their container: if each had its own path, a file of one
            # megabyte could take gigabytes of memory.
            path = () if inner is None else (*inner.path, inner.key)[: DEEPEST + 1]
            # A value that has a key keeps the line of the key, which is already recorded and more useful in a message.
            if len(path) <= DEEPEST:
                places.lines.setdefault(path, line)
            if mark in "{[":
                containers.append(_Container(path, mark == "{", token.start()))
            elif len(path) <= DEEPEST:
                places.spans[path] = token.span()
    return places
