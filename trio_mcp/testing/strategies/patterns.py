"""Texts that match a pattern of a JSON Schema, which is a regular expression as in ECMA-262.

Written for this, because what Hypothesis makes texts from is Python's dialect, and checks each with Python's engine: a
hostile pattern would take that forever. Here nothing is matched at all; `trio_mcp.schema` does that, at a bounded cost.
Of what can't be made (look-ahead, word boundaries) the likeliest text is tried, and the caller checks it.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import attrs

from trio_mcp.testing.strategies.choices import Choices

__all__ = ["Pattern", "PatternError"]

MAX_LENGTH = 20_000
"""Characters of a text made from a pattern. Chosen."""
MAX_NESTING = 50
"""Groups within each other. Chosen: real patterns have three."""

_Ranges: TypeAlias = tuple[tuple[int, int], ...]

_DIGITS: _Ranges = ((48, 57),)
# Letters first, lower case before upper: the first character of a class is what Hypothesis shrinks to.
_LETTERS: _Ranges = ((97, 122), (65, 90))
_WORD: _Ranges = (*_LETTERS, *_DIGITS, (95, 95))
_SPACE: _Ranges = ((32, 32), (9, 9), (10, 10), (0xA0, 0xA0))
# What a dot or a negated class is made from.
_ANY = "".join(map(chr, range(0x61, 0x7B))) + "".join(map(chr, range(0x20, 0x61))) + "{|}~é€漢😀\t\n\x00"
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
# At most nine digits, as Python refuses to convert thousands of them. With more the brace is read as characters, and
# the check of the text decides.
_BRACES = re.compile(r"\{([0-9]{1,9})(,?)([0-9]{0,9})\}")
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
# Of the properties of Unicode: members of the categories, and of the scripts that are used in patterns.
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
    """No texts can be made from the pattern."""


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
    """A pattern, to make texts from.

    Args:
        source: The regular expression.

    Raises:
        PatternError: If it has something that is not known here.
    """

    def __init__(self, source: str) -> None:
        self._root = _Reader(source).whole()

    def text(self, choices: Choices, stretch: int) -> str:
        """Make a text that probably matches.

        Args:
            choices: What decides.
            stretch: How often a repetition is repeated beyond its least, at most.

        Raises:
            PatternError: If it would be too long.
        """
        writer = _Writer(choices, stretch)
        writer.write(self._root)
        return "".join(writer.parts)


class _Writer:
    """Writes one text."""

    def __init__(self, choices: Choices, stretch: int) -> None:
        self.parts: list[str] = []
        self._choices = choices
        self._stretch = stretch
        self._length = 0
        # Texts by group, for back references: what a group has written must come again literally.
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
                # Relative to the least, as `x{100,}` must have 100 whatever the stretch is.
                most = low + self._stretch if high is None else min(high, low + self._stretch)
                for _ in range(self._choices.integer(low, most)):
                    self.write(inner)
            case _Back(group):
                # A group that has not taken part matches the empty text in ECMA-262, unlike in Python, where such a
                # reference fails.
                self._add(self._groups.get(group, ""))
            case _Alternatives(arms, group):
                start = len(self.parts)
                for each in arms[self._choices.integer(0, len(arms) - 1)]:
                    self.write(each)
                if group is not None:
                    self._groups[group] = "".join(self.parts[start:])

    def _add(self, text: str) -> None:
        # Counted even if empty, as `(){9999}` would repeat nothing very often.
        self._length += max(len(text), 1)
        if self._length > MAX_LENGTH:
            raise PatternError(f"its texts are longer than {MAX_LENGTH} characters")
        self.parts.append(text)


class _Reader:
    """Reads one pattern."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._groups = 0
        self._nesting = 0

    def whole(self) -> _Node:
        node = self._alternatives(None)
        if self._at < len(self._source):
            raise PatternError(f"the bracket at {self._at} closes nothing")
        return node

    def _peek(self, text: str) -> bool:
        return self._source.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if found := self._peek(text):
            self._at += len(text)
        return found

    def _next(self) -> str:
        if self._at >= len(self._source):
            raise PatternError("it ends too early")
        self._at += 1
        return self._source[self._at - 1]

    def _until(self, end: str) -> str:
        stop = self._source.find(end, self._at)
        if stop < 0:
            raise PatternError(f"{end!r} is missing")
        text, self._at = self._source[self._at : stop], stop + len(end)
        return text

    def _alternatives(self, group: int | str | None) -> _Alternatives:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise PatternError(f"its groups are nested more than {MAX_NESTING} deep")
        arms = [self._sequence()]
        while self._take("|"):
            arms.append(self._sequence())
        self._nesting -= 1
        return _Alternatives(tuple(arms), group)

    def _sequence(self) -> tuple[_Node, ...]:
        nodes: list[_Node] = []
        while self._at < len(self._source) and not (self._peek("|") or self._peek(")")):
            node = self._atom()
            if node is not None:
                nodes.append(self._repeated(node))
        return tuple(nodes)

    def _atom(self) -> _Node | None:
        match char := self._next():
            case "(":
                return self._group()
            case "[":
                return _Chars(self._set())
            case ".":
                return _Chars(_without(((10, 10), (13, 13), (0x2028, 0x2029))))
            # An anchor writes nothing. In the middle of a pattern it may make a match impossible, which the caller's
            # check finds.
            case "^" | "$":
                return None
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise PatternError(f"{char!r} at {self._at - 1} repeats nothing")
        return _one(char)

    def _group(self) -> _Node | None:
        negative = False
        group: int | str | None = None
        if self._take("?:") or self._take("?=") or self._take("?<="):
            pass  # what a look-around asks for is written at its place, which is right surprisingly often
        elif self._take("?!") or self._take("?<!"):
            negative = True
        elif self._take("?<") or self._take("?P<"):
            group = self._until(">")
        elif self._peek("?"):
            raise PatternError(f"the group at {self._at} is of an unknown kind")
        else:
            self._groups += 1
            group = self._groups
        node = self._alternatives(group)
        if not self._take(")"):
            raise PatternError("a group is not closed")
        return None if negative else node

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        low, high = bounds
        if low > MAX_LENGTH:
            raise PatternError(f"its texts are longer than {MAX_LENGTH} characters")
        self._take("?")  # as few as possible: the same texts
        return _Repeat(node, low, high)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in _SIGNS.items():
            if self._take(sign):
                return bounds
        # A brace that holds no numbers is a character.
        found = _BRACES.match(self._source, self._at)
        if found is None:
            return None
        self._at = found.end()
        low, comma, high = found.groups()
        top = int(high) if high else None if comma else int(low)
        if top is not None and top < int(low):
            raise PatternError(f"it repeats something at least {low} times and at most {top}")
        return int(low), top

    def _escape(self) -> _Node | None:
        char = self._next()
        # Boundaries take up no characters. `\A` and `\Z` are of Python's dialect, but tools written in Python have
        # them.
        if char in "bBAzZ":
            return None
        if char in "123456789":
            return _Back(int(char))
        if char == "k" and self._take("<"):
            return _Back(self._until(">"))
        return _Chars(self._escaped(char))

    def _escaped(self, char: str) -> _Ranges:
        """Return the characters that an escape stands for, in a set or outside."""
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else _without(ranges)
        if char in "pP":
            name = self._until("}").removeprefix("{") if self._peek("{") else self._next()
            short = name.replace("sc=", "Script=").replace("General_Category=", "").replace("gc=", "")
            if short not in _PROPERTIES:
                raise PatternError(f"\\{char}{{{name}}} is a property of characters that is not known here")
            return _PROPERTIES[short] if char == "p" else _without(_PROPERTIES[short])
        if char in _CONTROLS:
            return ((_CONTROLS[char], _CONTROLS[char]),)
        if char == "c":
            return ((ord(self._next()) % 32,) * 2,)
        if char in "xu":
            digits = self._hexadecimal(char)
            if digits is not None:
                return ((digits, digits),)
        return ((ord(char), ord(char)),)

    def _hexadecimal(self, kind: str) -> int | None:
        if self._take("{"):
            digits = self._until("}")
        else:
            digits = self._source[self._at : self._at + (2 if kind == "x" else 4)]
            self._at += len(digits)
        try:
            point = int(digits, 16)
        except ValueError:
            raise PatternError(f"\\{kind}{digits} is not a character") from None
        # Half of a pair can't be encoded in UTF-8, so no text that contains it can be sent.
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise PatternError(f"\\{kind}{digits} is not a character by itself")
        return point

    def _set(self) -> _Ranges:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._take("]"):
            first = False
            if self._peek("]"):  # empty: matches nothing, or with a caret anything
                self._at += 1
                break
            low = self._member()
            if len(low) == 1 and low[0][0] == low[0][1] and self._peek("-") and not self._peek("-]"):
                self._at += 1
                high = self._member()
                if len(high) == 1 and high[0][0] == high[0][1]:
                    if high[0][0] < low[0][0]:
                        raise PatternError(f"a range before {self._at} ends before it begins")
                    ranges.append((low[0][0], high[0][0]))
                    continue
                ranges += [*low, (45, 45), *high]
            else:
                ranges += low
        chosen = _without(tuple(ranges)) if negated else tuple(ranges)
        # Halves of a pair are not characters.
        chosen = tuple((low, high) for low, high in chosen if not (low <= 0xDFFF and high >= 0xD800)) or chosen
        if not chosen:
            raise PatternError("a set of it matches no character that is known here")
        return tuple((low, min(high, 0xD7FF)) if low < 0xD800 <= high else (low, high) for low, high in chosen)

    def _member(self) -> _Ranges:
        char = self._next()
        # Refused rather than read as letters: the author meant a POSIX class, and no text made from either reading
        # would be sure to match the other.
        if char == "[" and self._peek(":"):
            raise PatternError("a set has a class in brackets, which ECMA-262 does not know")
        if char != "\\":
            return ((ord(char), ord(char)),)
        char = self._next()
        # Within a set it is a backspace, outside a boundary (ECMA-262, ClassEscape).
        return ((8, 8),) if char == "b" else self._escaped(char)


def _one(char: str) -> _Chars:
    return _Chars(((ord(char), ord(char)),))


def _without(ranges: _Ranges) -> _Ranges:
    """Return characters that are in none of the ranges."""
    points = [ord(char) for char in _ANY if not any(low <= ord(char) <= high for low, high in ranges)]
    return tuple((point, point) for point in points)
