"""Where the keys of a JSON text stand, which the parsers don't tell."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

import attrs

__all__ = ["Places", "locate"]

Path: TypeAlias = tuple[str | int, ...]

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@attrs.frozen
class Places:
    """The lines of a text, counted from 1, by the path of what stands there.

    Attributes:
        lines: Of each key and each item of an array.
        repeated: The path and line of each key that its object has already.
    """

    lines: dict[Path, int] = attrs.field(factory=dict)
    repeated: list[tuple[Path, int]] = attrs.field(factory=list)

    def line(self, path: Path) -> int | None:
        """The line of something, or of the nearest thing around it that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


@attrs.define
class _Container:
    path: Path
    is_object: bool
    key: str | int = 0
    expects_key: bool = True
    keys: set[str] = attrs.field(factory=set)


def locate(text: str) -> Places:
    """Find every key and every item.

    Args:
        text: Valid JSON: a parser has accepted it.
    """
    places = Places()
    containers: list[_Container] = []
    line, counted = 1, 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", counted, token.start())
        counted = token.start()
        inner = containers[-1] if containers else None
        mark = token[0]
        if mark in "}]":
            containers.pop()
        elif mark == ",":
            assert inner is not None
            inner.expects_key = True
            if isinstance(inner.key, int):
                inner.key += 1
        elif mark == ":":
            pass
        elif inner is not None and inner.is_object and inner.expects_key:
            key = json.loads(mark)
            inner.key, inner.expects_key = key, False
            path = (*inner.path, key)
            if key in inner.keys:
                places.repeated.append((path, line))
            inner.keys.add(key)
            places.lines[path] = line  # of the last one, as that is what a parser keeps
        else:
            path = () if inner is None else (*inner.path, inner.key)
            places.lines.setdefault(path, line)
            if mark in "{[":
                containers.append(_Container(path, mark == "{"))
    return places
