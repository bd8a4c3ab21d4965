"""Reads, writes and compares the YAML frontmatter of a ``SKILL.md``.

It is read as the core schema of YAML 1.2 (YAML 1.2.2, section 10.3). What JSON can't express, and what could make a
small text large or ambiguous, is refused: aliases, anchors, tags, merge keys, directives, duplicate keys, other keys
than strings, and numbers beyond the range of a double.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["FrontmatterError", "difference", "read_frontmatter", "split", "write_frontmatter"]

MAX_FRONTMATTER: Final = 64 * 1024
MAX_DEPTH: Final = 32
"""The maximum depth of the frontmatter (arbitrary)."""
MAX_DIGITS: Final = 400
"""The maximum length of an integer, in characters: no double has more than 309 digits before the point."""

_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n")
_CLOSING = re.compile(rb"^---[ \t]*\r?$", re.MULTILINE)
# Characters that JSON leaves as they are in a string, and that YAML does not allow there or reads as a line break.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

_PLAIN_KEY = re.compile(r"(?!(?:null|true|false)$)[a-z][a-z0-9_-]*")

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BEYOND_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class FrontmatterError(ValueError):
    """The frontmatter can't be used; the text says why, and in which line of the file."""


def split(data: bytes) -> tuple[bytes, bytes]:
    """Split the bytes of a ``SKILL.md`` into the YAML of its frontmatter, and the text after it.

    Raises:
        FrontmatterError: If there is no frontmatter, or it is too long.
    """
    opening = _OPENING.match(data)
    if opening is None:
        raise FrontmatterError("there is no frontmatter: the first line must be ---")
    start = opening.end()
    closing = _CLOSING.search(data, start, start + MAX_FRONTMATTER + 8)
    if closing is None or closing.start() - start > MAX_FRONTMATTER:
        if len(data) - start <= MAX_FRONTMATTER:
            raise FrontmatterError("the frontmatter has no end: a line --- must follow it")
        raise FrontmatterError(f"the frontmatter is longer than {MAX_FRONTMATTER} bytes, or has no end")
    end = closing.end() + 1  # behind the line's end
    return data[start : closing.start()], data[end:]


def read_frontmatter(data: bytes) -> dict[str, Any]:
    """Return the frontmatter of a ``SKILL.md`` as JSON data.

    Args:
        data: The bytes of the file.

    Raises:
        FrontmatterError: If the file has no frontmatter, or it can't be used.
        ImportError: If the YAML reader is not installed.
    """
    block, _ = split(data)
    try:
        text = block.decode()
    except UnicodeDecodeError:
        raise FrontmatterError("the frontmatter is not UTF-8") from None
    # YAML 1.2 has no such line break, but the reader still takes it for one.
    if "\x85" in text:
        raise FrontmatterError("the frontmatter has the character U+0085, which YAML readers disagree about")
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError
    except ImportError:
        raise ImportError("skills need ruamel.yaml: pip install 'trio-mcp[skills]'", name="ruamel.yaml") from None
    reader = YAML(typ="safe", pure=True, plug_ins=[])
    try:
        return _Composer(reader.parse(text)).document()
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise FrontmatterError(_located(str(exc.problem or exc.context), mark)) from None
    except (YAMLError, ValueError, OverflowError) as exc:
        if isinstance(exc, FrontmatterError):
            raise
        reason = (str(exc).splitlines() or ["it can't be read"])[0]
        raise FrontmatterError(f"the frontmatter is not YAML 1.2: {reason}") from None


def _located(problem: str, mark: Any) -> str:
    # The first line of the file is `---`, and marks count from 0.
    where = "" if mark is None else f" (line {mark.line + 2})"
    return f"the frontmatter is not YAML 1.2: {problem}{where}"


class _Composer:
    """Makes JSON data of the events of a YAML reader, which show the aliases and tags that a loader would resolve."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events

    def document(self) -> dict[str, Any]:
        """Return the only document, which must be a mapping."""
        next(self._events)  # the start of the stream
        event = next(self._events)
        if type(event).__name__ == "StreamEndEvent":
            raise FrontmatterError("the frontmatter is empty")
        if event.version is not None or event.tags:
            raise self._refusal("a directive", event)
        event = next(self._events)
        if type(event).__name__ != "MappingStartEvent":
            raise FrontmatterError("the frontmatter must be a mapping of fields to values")
        value: dict[str, Any] = self._value(event, 1)
        next(self._events)  # the end of the document
        event = next(self._events)
        if type(event).__name__ != "StreamEndEvent":
            raise self._refusal("a second document", event)
        return value

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent":
            raise self._refusal("an alias", event)
        if event.anchor is not None:
            raise self._refusal("an anchor", event)
        if event.tag is not None:
            raise self._refusal("a tag", event)
        if kind == "ScalarEvent":
            return self._plain(event) if event.implicit[0] else self._text(event)
        if depth > MAX_DEPTH:
            raise FrontmatterError(f"the frontmatter is nested more than {MAX_DEPTH} levels deep")
        return self._mapping(depth) if kind == "MappingStartEvent" else self._sequence(depth)

    def _sequence(self, depth: int) -> list[Any]:
        found = []
        while type(event := next(self._events)).__name__ != "SequenceEndEvent":
            found.append(self._value(event, depth + 1))
        return found

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            key = self._value(event, depth + 1)
            if not isinstance(key, str):
                raise self._refusal("a key that is not a string", event)
            if key == "<<" and event.implicit[0]:
                raise self._refusal("a merge key", event)
            if key in found:
                raise self._refusal(f"the key {key[:100]!r} twice", event)
            found[key] = self._value(next(self._events), depth + 1)
        return found

    def _plain(self, event: Any) -> Any:
        """Return the value of a plain scalar, by the core schema."""
        text: str = event.value
        if text in _NULLS:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if text[0] not in "+-.0123456789":  # most scalars
            return self._text(event)
        if len(text) > MAX_DIGITS and (_INTEGER.fullmatch(text) or _HEXADECIMAL.fullmatch(text)):
            raise self._refusal("a number beyond the range of a double", event)
        if _INTEGER.fullmatch(text):
            return self._checked(int(text), event)
        if _OCTAL.fullmatch(text):
            return self._checked(int(text[2:], 8), event)
        if _HEXADECIMAL.fullmatch(text):
            return self._checked(int(text[2:], 16), event)
        if _FLOAT.fullmatch(text):
            return self._checked(float(text), event)
        if _BEYOND_JSON.fullmatch(text):
            raise self._refusal(f"the number {text}, which JSON does not have", event)
        return self._text(event)

    def _checked(self, number: float, event: Any) -> float:
        try:
            finite = math.isfinite(float(number))
        except OverflowError:
            finite = False
        if not finite:
            raise self._refusal("a number beyond the range of a double", event)
        return number

    def _text(self, event: Any) -> str:
        text: str = event.value
        try:
            # An escape may have been half of a surrogate pair, as in JSON.
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise self._refusal("half of a surrogate pair", event) from None

    def _refusal(self, what: str, event: Any) -> FrontmatterError:
        mark = event.start_mark
        return FrontmatterError(f"the frontmatter has {what} (line {mark.line + 2}), which is not allowed")


def write_frontmatter(fields: Mapping[str, Any]) -> str:
    """Return the lines of a frontmatter, with the ``---`` around it, and each value in the form of JSON.

    Raises:
        TypeError, ValueError: If a value is not JSON data.
    """
    keys = {key: key if _PLAIN_KEY.fullmatch(key) else _json(key) for key in fields}
    lines = [f"{keys[key]}: {_json(value)}\n" for key, value in fields.items()]
    return f"---\n{''.join(lines)}---\n"


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def difference(entry: Any, file: Any, path: str = "") -> str | None:
    """Return the path of the first field in which two frontmatters differ; None if they are the same JSON.

    Args:
        entry: The frontmatter in the entry of a skill.
        file: That of the file.
        path: The path of these values.
    """
    if isinstance(entry, dict) and isinstance(file, dict):
        if entry.keys() != file.keys():
            name = min(entry.keys() ^ file.keys())
            return f"{path}.{name}".lstrip(".")
        pairs = ((f"{path}.{name}".lstrip("."), entry[name], file[name]) for name in entry)
    elif isinstance(entry, list) and isinstance(file, list):
        if len(entry) != len(file):
            return path
        pairs = ((f"{path}[{index}]", *both) for index, both in enumerate(zip(entry, file, strict=True)))
    else:
        return None if _same(entry, file) else path
    return next((found for name, one, other in pairs if (found := difference(one, other, name)) is not None), None)


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same in JSON, which has one type of number, and does not count true as 1."""
    numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
    if not numbers or isinstance(one, bool) or isinstance(other, bool):
        return type(one) is type(other) and bool(one == other)
    try:
        # A peer whose numbers are doubles has rounded a large integer.
        return one == other or float(one) == float(other)
    except OverflowError:
        return False
