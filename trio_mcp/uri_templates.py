"""Expands and matches URI templates (RFC 6570) of levels 1 to 3, and ``{?name*}``.

Matching takes time linear in the length of the URI: the template does not become a regular expression, and nothing
backtracks. A URI is cut into units, which are characters and percent triplets. A first pass, from the end, notes which
parts of the template can cover which units; a second pass, from the beginning, reads the values, making earlier
variables as long as possible.
"""

from __future__ import annotations

import itertools
import keyword
import re
import string
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, unquote_to_bytes

__all__ = ["MAX_URI", "UriTemplate", "check_uri"]

MAX_URI = 8192
"""The maximum length of a URI or template, in characters: 8 KiB, because RFC 9110, section 4.1, recommends supporting
URIs of at least 8000 octets."""

# The character classes of RFC 3986, sections 2.2 and 2.3.
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")
_RESERVED = frozenset(":/?#[]@!$&'()*+,;=")
_SEGMENT = frozenset("!$&'()*+,;=:@")  # a path segment may also contain these (RFC 3986, section 3.3)
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_EXPRESSION = re.compile(r"\{([^{}]*)\}")
# This pattern is narrower than the RFC's varname: a variable becomes a parameter of a Python function.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Value: TypeAlias = "str | dict[str, str]"


class _Operator(NamedTuple):
    """How the values of an expression are written (RFC 6570, appendix A)."""

    first: str = ""
    separator: str = ","
    named: bool = False
    keeps_reserved: bool = False


# The values for each operator come from the table in RFC 6570, appendix A.
_OPERATORS = {
    "": _Operator(),
    "+": _Operator(keeps_reserved=True),
    "#": _Operator("#", keeps_reserved=True),
    ".": _Operator(".", "."),
    "/": _Operator("/", "/"),
    ";": _Operator(";", ";", named=True),
    "?": _Operator("?", "&", named=True),
    "&": _Operator("&", "&", named=True),
}


class _Literal(NamedTuple):
    units: tuple[str, ...]


class _Slot(NamedTuple):
    """The place of one variable in a template, and the characters that its value may contain."""

    name: str
    allowed: frozenset[str]
    keeps_reserved: bool

    def admits(self, unit: str) -> bool:
        # A percent triplet may represent any character. Characters that a value must not contain are refused after
        # decoding.
        return len(unit) == 3 or unit in self.allowed


def check_uri(uri: object, what: str) -> str:
    """Check that a value can be the URI of a resource: absolute (RFC 3986), and not too long.

    Raises:
        TypeError: If the value is not a string.
        ValueError: If the value is not such a URI.
    """
    # Templates are checked with this function as well, so their expressions are removed first.
    if not isinstance(uri, str):
        raise TypeError(f"{what} must be a string, got {type(uri).__name__}")
    if len(uri) > MAX_URI:
        raise ValueError(f"{what} is longer than {MAX_URI} characters")
    # Without a scheme (RFC 3986, section 3.1), the value would be a relative reference, for which there is no base.
    if not _SCHEME.match(uri):
        raise ValueError(f"{what} must begin with a scheme, as in 'config://app'; got {uri!r}")
    if _units(_EXPRESSION.sub("", uri)) is None:
        raise ValueError(f"{what} contains characters that a URI can't contain (RFC 3986): {uri!r}")
    return uri


class UriTemplate:
    """A URI template that can also be matched: the values of its variables can be read back from a URI.

    A template is refused if its values could not be read back from a URI. So it must not have two variables with
    nothing between them, a variable used twice, a query that is not at the end, ``{name:3}``, or ``*`` outside a query.

    Args:
        template: The template; it begins with a scheme.

    Raises:
        TypeError: If the template is not a string.
        ValueError: If the template can't be used; the message says why.

    Attributes:
        text: The template as given.
        variables: The names of the variables that have a value in every URI, in order.
        query_variables: The names of the query's variables, which a URI may lack.
        exploded: The name of the variable in ``{?name*}``, which takes all remaining query parameters, or None.
    """

    def __init__(self, template: str) -> None:
        self.text = check_uri(template, "a URI template")
        self.query_variables: tuple[str, ...] = ()
        self.exploded: str | None = None
        self._expressions = list(_parse(template))
        self._query_start = ""
        self._query_at = 0
        parts = self._compile()
        self.variables = tuple(part.name for part in parts if isinstance(part, _Slot))
        names = [*self.variables, *self.query_variables, *filter(None, [self.exploded])]
        for name, repeated in itertools.groupby(sorted(names)):
            if len(list(repeated)) > 1:
                raise ValueError(f"{template!r}: the variable {name!r} occurs twice")
        # `{a}{b}` matches "xy" in several ways, and RFC 6570 does not choose one.
        for one, other in itertools.pairwise(parts):
            if isinstance(one, _Slot) and isinstance(other, _Slot):
                raise ValueError(
                    f"{template!r}: nothing stands between the variables {one.name!r} and {other.name!r}, "
                    "so a URI does not show where one ends; put a character between them"
                )
        self._parts = parts
        # Comparing this prefix is a cheap test that rejects most URIs of other resources at once. The prefix is ASCII
        # only, and ends before the first "%", because the two digits after a "%" may be in either case in a URI.
        self._prefix = re.match(r"[!-$&-z~]*", template.partition("{")[0])[0]  # type: ignore[index]

    def _compile(self) -> list[_Literal | _Slot]:
        parts: list[_Literal | _Slot] = []
        for index, expression in enumerate(self._expressions):
            if isinstance(expression, str):
                parts.append(_Literal(_literal_units(expression, self.text)))
                continue
            operator, names, exploded = expression
            if operator in ("?", "&"):
                self._add_query(index, operator, names, exploded)
                continue
            if self._query_start:
                raise ValueError(f"{self.text!r}: the query must come last in the template")
            # Prefixes, separators and the `name=` of an expression become literals between the slots.
            rules = _OPERATORS[operator]
            for position, name in enumerate(names):
                text = (rules.separator if position else rules.first) + (f"{name}=" if rules.named else "")
                if text:
                    parts.append(_Literal(tuple(text)))
                # More characters are allowed than an expansion leaves unencoded, because clients differ in what they
                # encode.
                allowed = _UNRESERVED | (_RESERVED if rules.keeps_reserved else _SEGMENT)
                allowed -= self._marks_after(index)
                # In `{a,b}` a comma ends `a`, so no value may contain one. But a dot is unreserved and never encoded,
                # so in `{.a,b}` a value may contain the separator.
                if len(names) > 1:
                    allowed -= {rules.separator} - _UNRESERVED
                parts.append(_Slot(name, allowed, rules.keeps_reserved))
        if self._query_start == "?" and any(isinstance(part, _Literal) and "?" in part.units for part in parts):
            raise ValueError(f"{self.text!r}: there is a '?' before the '{{?…}}'; use '{{&…}}' to continue a query")
        return _joined(parts)

    def _add_query(self, index: int, operator: str, names: list[str], exploded: str | None) -> None:
        before = [each for each in self._expressions[:index] if isinstance(each, str)]
        if any(isinstance(each, str) for each in self._expressions[index:]) or self.exploded:
            raise ValueError(f"{self.text!r}: the query must come last in the template, and '*' last in the query")
        if not self._query_start:
            self._query_start = operator
            # If the query begins in a literal, as in `?x=1{&y}`, its variable part begins at the "&" that follows this
            # many others.
            self._query_at = "".join(before).partition("?")[2].count("&")
            if operator == "&" and not any("?" in text for text in before):
                raise ValueError(f"{self.text!r}: '{{&…}}' continues a query, but there is no '?' before it")
        elif operator == "?":
            raise ValueError(f"{self.text!r}: there are two '{{?…}}'; continue the query with '{{&…}}'")
        self.query_variables += tuple(names)
        self.exploded = exploded

    def _marks_after(self, index: int) -> frozenset[str]:
        """Return the characters that always end a variable: ``{+path}`` may contain ``?``, unless a query follows."""
        rest = self._expressions[index + 1 :]
        marks = {each[0] for each in rest if not isinstance(each, str)} & {"?", "&", "#"}
        marks |= set("".join(each for each in rest if isinstance(each, str))) & {"?", "#"}
        return frozenset(marks - {"&"} if "?" in marks else marks)  # before the query a "&" ends nothing

    def expand(self, values: Mapping[str, Value]) -> str:
        """Return the URI that the template makes from values (RFC 6570, section 3.2).

        Args:
            values: A string for each variable, and a dict of strings for that of ``{?name*}``. Variables without a
                value and empty dicts are left out, as the RFC requires.
        """
        return "".join(
            _keep_reserved(each) if isinstance(each, str) else _expand(each, values) for each in self._expressions
        )

    def match(self, uri: str) -> dict[str, Value] | None:
        """Return the values of the variables in a URI, decoded; None if the URI does not match.

        A variable matches at least one character, except in a query. It also matches characters that an expansion would
        have encoded, if a path segment may contain them. Only ``{+name}`` and ``{#name}`` match a ``/``; the other
        variables outside the query don't match a percent-encoded one either, nor a backslash or NUL, and are never
        ``.`` or ``..``. Query parameters may come in any order, each at most once; a URI with unknown ones does not
        match.
        """
        # The length is checked before anything else, because all that follows takes time and memory in proportion to
        # the length.
        units = _units(uri) if uri.startswith(self._prefix) and len(uri) <= MAX_URI else None
        if units is None:
            return None
        values: dict[str, Value] = {} if self.exploded is None else {self.exploded: {}}
        # The query is split off first, because its parameters may come in any order and may be missing.
        if self._query_start:
            start = _index(units, "?", 0, 0)
            if start is not None and self._query_start == "&":
                start = _index(units, "&", self._query_at, start)
            if start is not None:
                if not self._read_query(units[start + 1 :], values):
                    return None
                units = units[:start]
        return values if self._read_path(units, values) else None

    def _read_path(self, units: list[str], values: dict[str, Value]) -> bool:
        # `reach[i][p]` says whether the parts from `i` on can cover the units from `p` on. Making this table takes one
        # pass over the units for each part, whereas backtracking could take exponential time for a hostile URI.
        last = [False] * len(units) + [True]
        reach = [last]
        for part in reversed(self._parts):
            last = (
                _literal_reach(part.units, units, last)
                if isinstance(part, _Literal)
                else _slot_reach(part, units, last)
            )
            reach.append(last)
        reach.reverse()
        if not reach[0][0]:
            return False
        position = 0
        for part, following in zip(self._parts, reach[1:], strict=True):
            if isinstance(part, _Literal):
                position += len(part.units)
                continue
            # The value is the longest run of units after which the other parts can still cover the rest. `reach` says
            # in advance whether they can, so no step is ever undone.
            end = longest = position
            while end < len(units) and part.admits(units[end]):
                end += 1
                if following[end]:
                    longest = end
            value = _decoded(units[position:longest])
            # The decoded value is checked: `%2e%2e` and `%2F` are the classic ways past a check of the encoded text.
            if value is None or not (part.keeps_reserved or _is_plain(value)):
                return False
            values[part.name] = value
            position = longest
        return True

    def _read_query(self, units: list[str], values: dict[str, Value]) -> bool:
        if "#" in units:  # a fragment begins: no query variable may contain an unencoded "#"
            return False
        found: dict[str, str] = {}
        for pair in "".join(units).split("&"):
            raw_name, _, raw_value = pair.partition("=")
            name, value = _decoded([raw_name]), _decoded([raw_value])
            # A parameter that occurs twice is refused, because two programs could each use a different one of its
            # values.
            if not name or value is None or name in found:
                return False
            found[name] = value
        values.update({name: found.pop(name) for name in self.query_variables if name in found})
        if self.exploded is None:
            return not found
        values[self.exploded] = found
        return True


_Expression: TypeAlias = "tuple[str, list[str], str | None]"


def _parse(template: str) -> Iterator[str | _Expression]:
    """Yield a template's literals as strings, and its expressions as operator, variables and exploded variable."""
    # Because the pattern has one group, `split` returns the literals at even positions, and the expressions between
    # them at odd ones.
    for number, piece in enumerate(_EXPRESSION.split(template)):
        if number % 2:
            yield _parse_expression(piece, template)
        elif "{" in piece or "}" in piece:
            raise ValueError(f"{template!r}: unbalanced brace")
        elif piece:
            yield piece


def _parse_expression(piece: str, template: str) -> _Expression:
    # A first character that can't begin a name is an operator, known or not (RFC 6570, section 2.2, reserves some).
    operator = piece[:1] if piece[:1] and not (piece[0].isalnum() or piece[0] in "_%") else ""
    if operator not in _OPERATORS:
        raise ValueError(f"{template!r}: unknown operator {operator!r}; use one of + # . / ; ? &")
    names = piece[len(operator) :].split(",")
    exploded: str | None = None
    if names[-1].endswith("*") and operator in ("?", "&"):
        exploded = names.pop()[:-1]
    # A variable becomes a parameter of the handler, and so can't be a Python keyword.
    for name in [*names, *([] if exploded is None else [exploded])]:
        if not _NAME.fullmatch(name) or keyword.iskeyword(name):
            raise ValueError(
                f"{template!r}: {name!r} can't be a variable here: it must be a valid parameter name; "
                "prefixes ('{x:3}') are not supported, and '*' is supported only at the end of a query ('{?x*}'); "
                "for a value with slashes write '{+x}'"
            )
    return operator, names, exploded


def _joined(parts: list[_Literal | _Slot]) -> list[_Literal | _Slot]:
    """Merge adjacent literals."""
    joined: list[_Literal | _Slot] = []
    for part in parts:
        # After the merge, slots that are neighbours have nothing between them, and each literal is compared in one
        # piece.
        if isinstance(part, _Literal) and joined and isinstance(joined[-1], _Literal):
            part = _Literal(joined.pop().units + part.units)  # type: ignore[union-attr]
        joined.append(part)
    return joined


def _expand(expression: _Expression, values: Mapping[str, Value]) -> str:
    operator, names, exploded = expression
    rules = _OPERATORS[operator]
    pairs = [(name, values[name]) for name in names if name in values]
    if exploded is not None:
        others = values.get(exploded, {})
        if not isinstance(others, Mapping):
            raise TypeError(f"the value of the variable {exploded!r} must be a dict of strings")
        pairs += others.items()
    written = []
    for name, value in pairs:
        if not isinstance(value, str):
            raise TypeError(f"the value of the variable {name!r} must be a string, got {type(value).__name__}")
        text = _keep_reserved(value) if rules.keeps_reserved else quote(value, safe="~")
        if rules.named:
            name = quote(name, safe="~")
            # After a ";", a name with an empty value has no "=" (RFC 6570, section 3.2.7), unlike in a query (section
            # 3.2.8).
            text = name if operator == ";" and not value else f"{name}={text}"
        written.append(text)
    return rules.first + rules.separator.join(written) if written else ""


def _keep_reserved(value: str) -> str:
    """Encode all but unreserved and reserved characters and percent triplets (RFC 6570, section 3.2.3)."""
    # Because the pattern has a group, the result includes the triplets, at the odd positions.
    pieces = re.split(r"(%[0-9A-Fa-f]{2})", value)
    return "".join(
        piece if number % 2 else quote(piece, safe="~:/?#[]@!$&'()*+,;=") for number, piece in enumerate(pieces)
    )


def _units(uri: str) -> list[str] | None:
    """Split a URI into characters and percent triplets; return None if it contains anything else.

    Characters beyond ASCII are percent-encoded first (RFC 3987, section 3.1); triplets are put in upper case.
    """
    if not uri.isascii():
        try:
            uri = "".join(each if each.isascii() else quote(each, safe="") for each in uri)
        except UnicodeEncodeError:  # the URI contains a lone surrogate
            return None
    units: list[str] = []
    position = 0
    while position < len(uri):
        unit = uri[position]
        if unit == "%":
            unit = uri[position : position + 3].upper()
            if not _TRIPLET.fullmatch(unit):
                return None
        elif unit not in _UNRESERVED and unit not in _RESERVED:
            return None
        units.append(unit)
        position += len(unit)
    return units


def _literal_units(text: str, template: str) -> tuple[str, ...]:
    units = _units(text)
    if units is None:
        raise ValueError(f"{template!r}: {text!r} contains characters that a URI can't contain (RFC 3986)")
    return tuple(units)


def _literal_reach(literal: tuple[str, ...], units: list[str], following: list[bool]) -> list[bool]:
    # Percent triplets are in upper case in both the template and the URI, so units can be compared directly.
    size, end = len(literal), len(units)
    return [
        start + size <= end and following[start + size] and tuple(units[start : start + size]) == literal
        for start in range(end + 1)
    ]


def _slot_reach(slot: _Slot, units: list[str], following: list[bool]) -> list[bool]:
    # The list is filled from the end: a variable may begin at a unit if it admits the unit, and can then either end or
    # continue.
    reach = [False] * (len(units) + 1)
    for position in range(len(units) - 1, -1, -1):
        reach[position] = slot.admits(units[position]) and (following[position + 1] or reach[position + 1])
    return reach


def _index(units: list[str], unit: str, skip: int, start: int) -> int | None:
    found = (position for position in range(start, len(units)) if units[position] == unit)
    return next(itertools.islice(found, skip, None), None)


def _decoded(units: list[str]) -> str | None:
    """Decode percent triplets, once only; return None if the result is not UTF-8."""
    try:
        # Decoding happens only once: `%252F` becomes `%2F` and stays that way, so nothing is hidden from later checks.
        return unquote_to_bytes("".join(units)).decode()
    except UnicodeDecodeError:
        return None


def _is_plain(value: str) -> bool:
    """Return whether a value is a single path component, so that joining it to a path can't lead out of that path."""
    return value not in (".", "..") and not any(mark in value for mark in "/\\\0")
