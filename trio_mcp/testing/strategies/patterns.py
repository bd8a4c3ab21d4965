"""Makes strings that match a pattern of a JSON Schema, which is a regular expression as in ECMA-262.

Hypothesis reads Python's dialect, and checks each string with Python's engine, which may run practically forever on a
hostile pattern. This module matches nothing: the caller checks each string with `trio_mcp.schema`, at a bounded cost.
Look-arounds and word boundaries can therefore be guessed.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import attrs

from trio_mcp.testing.strategies.choices import Choices

__all__ = ["Pattern", "PatternError"]

MAX_LENGTH = 20_000
"""The maximum number of characters in a string made from a pattern. An arbitrary choice."""
_TOO_LONG = f"the strings that it matches are longer than {MAX_LENGTH} characters"
MAX_NESTING = 50
"""The maximum depth to which groups in a pattern may be nested. An arbitrary choice: real patterns have three levels at
most."""

_Ranges: TypeAlias = tuple[tuple[int, int], ...]

_DIGITS: _Ranges = ((48, 57),)
# Letters come first, lower case before upper, because Hypothesis shrinks to the first character of a class.
_LETTERS: _Ranges = ((97, 122), (65, 90))
_WORD: _Ranges = (*_LETTERS, *_DIGITS, (95, 95))
_SPACE: _Ranges = ((32, 32), (9, 9), (10, 10), (0xA0, 0xA0))
# The characters from which a dot or a negated class picks one.
_ANY = "".join(map(chr, range(0x61, 0x7B))) + "".join(map(chr, range(0x20, 0x61))) + "{|}~é€漢😀\t\n\x00"
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_LINE_ENDS: _Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0, "b": 8}

_SIGN = re.compile(r"[*+?]")
# A brace without a number is an ordinary character, and so is one whose number has more than nine digits: Python
# refuses to convert thousands of digits.
_COUNT = re.compile(r"([*+?])|\{([0-9]{1,9})(,?)([0-9]{0,9})\}")
_GROUP = re.compile(r"\((?:\?(?P<kind>:|=|<=|!|<!|P?<(?P<name>[^>=!][^>]*)>))?")
# `\A`, `\z` and `\Z` come from Python's dialect, and occur in the schemas of tools written in Python.
_ANCHOR = re.compile(r"[$^]|\\[bBAzZ]")
_BACK = re.compile(r"\\(?:([1-9])|k<([^>]*)>)")
_DASH = re.compile(r"-(?!\])")
_CHARACTER = re.compile(
    r"(?P<plain>[^\\])"
    r"|\\(?:(?P<sign>[pP])(?:\{(?P<property>[^}]*)\}|(?P<letter>.))"
    r"|c(?P<control>.)"
    r"|[xu]\{(?P<braced>[0-9a-fA-F]{1,8})\}|x(?P<two>[0-9a-fA-F]{2})|u(?P<four>[0-9a-fA-F]{4})"
    r"|(?P<escaped>.))",
    re.DOTALL,
)
# A few characters from each of Unicode's categories, and from the scripts that patterns commonly name.
_PROPERTIES: dict[str, _Ranges] = {
    "L": (*_LETTERS, (0xE0, 0xF6), (0x3B1, 0x3C9)),
    "Ll": ((97, 122), (0xE0, 0xF6)),
    "Lu": ((65, 90), (0xC0, 0xD6)),
    "N": _DIGITS,
    "Nd": _DIGITS,
    "P": ((33, 35), (37, 42), (44, 47)),
    "Z": ((32, 32),),
    "Zs": ((32, 32),),
    "S": ((43, 43), (36, 36)),
    "M": ((0x300, 0x30F),),
    "Letter": (*_LETTERS, (0xE0, 0xF6)),
    "Alphabetic": (*_LETTERS, (0xE0, 0xF6)),
    "Script=Latin": _LETTERS,
    "Script=Greek": ((0x3B1, 0x3C9),),
    "Script=Cyrillic": ((0x430, 0x44F),),
    "Script=Han": ((0x4E00, 0x4E20),),
}


class PatternError(ValueError):
    """No strings can be made from the pattern."""


@attrs.frozen
class _Chars:
    ranges: _Ranges


@attrs.frozen
class _Alternatives:
    arms: tuple[tuple[_Node, ...], ...]
    group: int | str | None = None


@attrs.frozen
class _Repeat:
    node: _Node
    low: int
    high: int | None


@attrs.frozen
class _Back:
    group: int | str


_Node: TypeAlias = _Chars | _Alternatives | _Repeat | _Back


class Pattern:
    """A pattern that strings can be made from.

    Args:
        source: The regular expression.

    Raises:
        PatternError: If the expression is malformed, too large, or contains a part that is not supported.
    """

    def __init__(self, source: str) -> None:
        self._root = _Reader(source).whole()

    def text(self, choices: Choices, stretch: int) -> str:
        """Make a string that probably matches.

        Args:
            choices: The source of all choices.
            stretch: The maximum number of repetitions of a part beyond the required ones.

        Raises:
            PatternError: If the string would be too long.
        """
        writer = _Writer(choices, stretch)
        writer.write(self._root)
        return "".join(writer.parts)


class _Writer:
    """Writes one string that a pattern probably matches."""

    def __init__(self, choices: Choices, stretch: int) -> None:
        self.parts: list[str] = []
        self._choices = choices
        self._stretch = stretch
        self._length = 0
        # The last string written for each group, for back references.
        self._groups: dict[int | str, str] = {}

    def write(self, node: _Node) -> None:
        match node:
            case _Chars(ranges):
                index = self._choices.integer(0, sum(high - low + 1 for low, high in ranges) - 1)
                for low, high in ranges:
                    if index <= high - low:
                        self._add(chr(low + index))
                        return
                    index -= high - low + 1
            case _Repeat(inner, low, high):
                # The stretch is added to the required repetitions: `x{100,}` needs 100 even if the stretch is 0.
                most = low + self._stretch if high is None else min(high, low + self._stretch)
                for _ in range(self._choices.integer(low, most)):
                    self.write(inner)
            case _Back(group):
                # In ECMA-262, unlike in Python, a reference to a group that took no part in the match matches the empty
                # string.
                self._add(self._groups.get(group, ""))
            case _Alternatives(arms, group):
                start = len(self.parts)
                for each in arms[self._choices.integer(0, len(arms) - 1)]:
                    self.write(each)
                if len(self.parts) == start:
                    self._add("")
                if group is not None:
                    self._groups[group] = "".join(self.parts[start:])

    def _add(self, text: str) -> None:
        # An empty string counts as one character: otherwise a back reference to an empty group could be repeated
        # millions of times.
        self._length += max(len(text), 1)
        if self._length > MAX_LENGTH:
            raise PatternError(_TOO_LONG)
        self.parts.append(text)


def _least(node: _Node) -> int:
    """Return the length of the shortest string that `_Writer` can write for a node, as it counts the parts."""
    match node:
        case _Repeat(inner, low, _):
            return low * _least(inner)
        case _Alternatives(arms, _):
            return max(1, min(sum(map(_least, arm)) for arm in arms))
        case _:
            return 1


class _Reader:
    """Parses one pattern into nodes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._groups = 0

    def whole(self) -> _Node:
        node = self._alternatives(None, 1)
        if self._at < len(self._source):
            raise PatternError(f"the parenthesis at position {self._at} closes no group")
        # Otherwise each of hundreds of attempts to write such a string would fail, after MAX_LENGTH steps.
        if _least(node) > MAX_LENGTH:
            raise PatternError(_TOO_LONG)
        return node

    def _take(self, text: str) -> bool:
        found = self._source.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self._source, self._at)
        self._at = found.end() if found else self._at
        return found

    def _alternatives(self, group: int | str | None, level: int) -> _Alternatives:
        if level > MAX_NESTING:
            raise PatternError(f"its groups are nested more than {MAX_NESTING} levels deep")
        arms = [self._sequence(level)]
        while self._take("|"):
            arms.append(self._sequence(level))
        return _Alternatives(tuple(arms), group)

    def _sequence(self, level: int) -> tuple[_Node, ...]:
        nodes: list[_Node] = []
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            node = self._atom(level)
            if node is not None:
                nodes.append(self._repeated(node))
        return tuple(nodes)

    def _atom(self, level: int) -> _Node | None:
        if found := self._match(_GROUP):
            return self._group(found["kind"], found["name"], level)
        # An anchor adds nothing to the string. In the middle of a pattern it may make a match impossible, which only
        # the final check notices.
        if self._match(_ANCHOR):
            return None
        if found := self._match(_BACK):
            return _Back(int(found[1]) if found[1] else found[2])
        if found := self._match(_SIGN):
            raise PatternError(f"{found[0]!r} at position {found.start()} repeats nothing")
        if self._take("."):
            return _Chars(_without(_LINE_ENDS))
        return _Chars(self._set() if self._take("[") else self._character())

    def _group(self, kind: str | None, name: str | None, level: int) -> _Node | None:
        if kind is None:
            if self._take("?"):
                raise PatternError(f"the kind of the group at position {self._at - 1} is not supported")
            self._groups += 1
        node = self._alternatives(self._groups if kind is None else name, level + 1)
        if not self._take(")"):
            raise PatternError("a group is not closed")
        # A positive look-around is written like an ordinary group, which gives a match surprisingly often; a negative
        # look-around is left out.
        return None if kind in ("!", "<!") else node

    def _repeated(self, node: _Node) -> _Node:
        found = self._match(_COUNT)
        if found is None:
            return node
        sign, least, comma, most = found.groups()
        low, high = _SIGNS[sign] if sign else (int(least), int(most) if most else None if comma else int(least))
        if high is not None and high < low:
            raise PatternError(f"a repetition has a minimum ({low}) above its maximum ({high})")
        self._take("?")  # a lazy repetition matches the same strings as a greedy one
        return _Repeat(node, low, high)

    def _character(self) -> _Ranges:
        """Read a character, or an escape for one of several characters."""
        found = self._match(_CHARACTER)
        if found is None:
            raise PatternError("it ends too early")
        return _escaped(found)

    def _set(self) -> _Ranges:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            # A POSIX class is refused, because engines read it in two ways, and few strings match in both readings.
            if self._source.startswith("[:", self._at):
                raise PatternError("a set contains a POSIX class such as [:alpha:], which ECMA-262 does not have")
            low = self._character()
            if len(low) == 1 and low[0][0] == low[0][1] and self._match(_DASH):
                high = self._character()
                if len(high) > 1 or high[0][0] != high[0][1]:
                    low = (*low, (45, 45), *high)
                elif high < low:
                    raise PatternError(f"the range that ends at position {self._at} is out of order")
                else:
                    low = ((low[0][0], high[0][0]),)
            ranges += low
        chosen = _without(tuple(ranges)) if negated else tuple(ranges)
        # The halves of surrogate pairs are left out, because they are not characters.
        pieces = [piece for low, high in chosen for piece in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high))]
        ranges = [(low, high) for low, high in pieces if low <= high]
        if not ranges:
            raise PatternError("one of its sets matches no character that can be drawn")
        return tuple(ranges)


def _escaped(found: re.Match[str]) -> _Ranges:
    """Return the characters that a character or an escape represents."""
    if sign := found["sign"]:
        # In a property escape, `General_Category=` may be omitted or written `gc=`, and `Script=` may be written `sc=`.
        name = (found["property"] or found["letter"]).replace("sc=", "Script=")
        ranges = _PROPERTIES.get(name.removeprefix("General_Category=").removeprefix("gc="))
        if ranges is None:
            raise PatternError(f"the character property \\{sign}{{{name}}} is not supported")
        return ranges if sign == "p" else _without(ranges)
    char: str = found["escaped"] or found["plain"] or ""
    if found["escaped"] and char.lower() in _CLASSES:
        ranges = _CLASSES[char.lower()]
        return ranges if char.islower() else _without(ranges)
    if found["control"]:
        point = ord(found["control"]) % 32
    elif digits := found["braced"] or found["two"] or found["four"]:
        point = int(digits, 16)
        # UTF-8 can't encode half of a surrogate pair.
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise PatternError(f"{found[0]} is not a character by itself")
    else:
        point = _CONTROLS.get(char, ord(char)) if found["escaped"] else ord(char)
    return ((point, point),)


def _without(ranges: _Ranges) -> _Ranges:
    """Return a selection of characters that are in none of the ranges."""
    points = [ord(char) for char in _ANY if not any(low <= ord(char) <= high for low, high in ranges)]
    return tuple((point, point) for point in points)
