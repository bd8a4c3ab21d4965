"""The text of a configuration: JSON, perhaps with comments and trailing commas, and the lines of its keys."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any, TypeAlias

from trio_mcp import _attrs as attrs

__all__ = ["LARGEST", "Place", "Places", "locate", "parsed", "read_regular", "without_comments"]

LARGEST = 10_000_000
"""The largest size of a configuration, in bytes. Generous, as some hosts keep more than their servers in the file."""

DEEPEST = 8
"""The depth down to which keys and values are located; the settings of a server need no more than six levels."""


def read_regular(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: If the file can't be read.
        ValueError: If it has more than ``most`` bytes, or is not a regular file.
    """
    # This is checked first, as opening a pipe would wait for its other end.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("is not a regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"has more than {most:,} bytes")
    return content


# The end of a string, or of a comment, is optional: otherwise a text with many unclosed ones would take quadratic time.
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
    """Return the content of a JSON text that may have trailing commas, and the places of its values.

    Raises:
        JSONDecodeError: If the text is not valid JSON.
        ValueError: If it is nested too deeply, or a number in it has too many digits.
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

# Strings with their escapes, punctuation, and runs of anything else (numbers, true, false, null).
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
        # Lines are counted from token to token, so that the whole takes linear time.
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
            # The key is decoded: to a parser, its spellings with and without escapes are the same key.
            key = json.loads(mark)
            inner.key, inner.expects_key = key, False
            path = (*inner.path, key)[: DEEPEST + 1]
            if key in inner.keys:
                # A parser keeps the last one silently: the first server of that name would just be missing.
                places.repeated.append((path, line))
            inner.keys.add(key)
            if len(path) <= DEEPEST:
                places.lines[path] = line  # the line of the last one, which json.loads keeps
        else:
            # Deeper values share the path of their container: with paths of their own, a file of one megabyte could
            # take gigabytes of memory.
            path = () if inner is None else (*inner.path, inner.key)[: DEEPEST + 1]
            # A key's line is recorded already, and is a better place for a message than the line of its value.
            if len(path) <= DEEPEST:
                places.lines.setdefault(path, line)
            if mark in "{[":
                containers.append(_Container(path, mark == "{", token.start()))
            elif len(path) <= DEEPEST:
                places.spans[path] = token.span()
    return places
