"""Finds the values in the result of a call that another call may need: ids, names, cursors, paths, URIs.

A place in a result is a path of names and indexes. Within a text the path goes on: ``"json"`` leads into the JSON that
the text contains, and a number to one of its words. The result is a peer's, so what is looked at is bounded in number,
length and depth; values are only ever sent back, never used in any other way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import attrs

from trio_mcp._secrets import is_secret, mask_text
from trio_mcp.conformance.members import object_of, parsed
from trio_mcp.conformance.steps import Place

__all__ = ["JSON", "Offer", "Value", "offered", "value_at"]

JSON: Final = "json"
"""The step of a path from a text into the JSON that it contains."""

LONGEST: Final = 1000
"""The maximum number of characters of a value that is sent back (arbitrary)."""

SHORT: Final = 100
"""The number of characters up to which a text with spaces may be a value as a whole, such as a title (arbitrary)."""

MOST_TEXT: Final = 4000
"""How many characters of a text are cut into words (arbitrary)."""

MOST_JSON: Final = 100_000
"""The maximum number of characters of a text that is parsed as JSON (arbitrary)."""

MOST_WORDS: Final = 24
"""The maximum number of words of a text that are offered (arbitrary)."""

MOST_PLACES: Final = 200
"""The maximum number of values of a result that are looked at (arbitrary)."""

MOST_ITEMS: Final = 3
"""How many items of an array are looked at: the others are much the same (arbitrary)."""

DEEPEST: Final = 8
"""The maximum length of a path within a result or within the JSON in a text (arbitrary)."""

GREATEST: Final = 2**53 - 1
"""The greatest integer that every JSON parser keeps exact (RFC 8259, section 6)."""

# Only these members of a result are the application's; the others, such as the times of a task, are the protocol's.
_PAYLOAD: Final = ("structuredContent", "content", "contents", "messages")

# Members that the protocol defines in what these hold, and that no call is about.
_OURS: Final = frozenset({"_meta", "annotations", "type", "mimeType", "role", "data", "blob"})

# Each character belongs to one word or to none, so cutting takes time linear in the length of the text.
_WORD: Final = re.compile(r"[^\s\"'`,;()<>\[\]{}=|\u2018-\u201f]+")

Value: TypeAlias = str | int


@attrs.frozen
class Offer:
    """A value in a result.

    Attributes:
        place: The path that leads to it.
        value: The value.
        is_secret: Whether it may be one, and so must only get to where it is masked, too.
    """

    place: Place
    value: Value
    is_secret: bool = False


def offered(result: Any) -> Iterator[Offer]:
    """Yield the values in a result that another call may need, no value twice."""
    seen: set[Value] = set()
    payload = {name: found for name in _PAYLOAD if (found := object_of(result).get(name)) is not None}
    for offer in itertools.islice(_walk(payload, (), ""), MOST_PLACES):
        if offer.value not in seen:
            seen.add(offer.value)
            yield offer


def value_at(result: Any, place: Place) -> Value | None:
    """Return the value at a place in a result; None without one that may be sent back."""
    found = result
    for step in place:
        if isinstance(found, str):
            found = parsed_text(found) if step == JSON else _item(_words(found), step)
        elif isinstance(found, dict):
            found = found.get(step)
        else:
            found = _item(found, step)
    return found if _is_value(found) else None


def _item(items: Any, step: str | int) -> Any:
    return items[step] if isinstance(items, list) and isinstance(step, int) and -1 < step < len(items) else None


def parsed_text(text: str) -> Any:
    """Return the object or array that a text consists of; None if it is anything else, or too long."""
    return (
        parsed(text.encode("utf-8", "replace")) if len(text) <= MOST_JSON and text.lstrip()[:1] in ("{", "[") else None
    )


def _walk(value: Any, place: Place, name: str, hidden: bool = False) -> Iterator[Offer]:
    if len(place) > DEEPEST:
        return
    hidden = hidden or is_secret(name)
    match value:
        case dict():
            for key, each in value.items():
                if key not in _OURS:
                    yield from _walk(each, (*place, key), key, hidden)
        case list():
            for index, each in enumerate(value[:MOST_ITEMS]):
                yield from _walk(each, (*place, index), name, hidden)
        case str() if (inner := parsed_text(value)) is not None:
            yield from _walk(inner, (*place, JSON), name, hidden)
        case str():
            # A word alone does not show that it is a secret; the text around it does.
            hidden = hidden or mask_text(value[:MOST_TEXT]) != value[:MOST_TEXT]
            words = _words(value)
            if _is_value(value) and (words == [value] or len(value) <= SHORT):
                yield Offer(place, value, hidden)
            if words != [value]:
                found = (Offer((*place, number), word, hidden) for number, word in enumerate(words))
                yield from (offer for offer in found if _is_value(offer.value))
        case _ if _is_value(value):
            yield Offer(place, value, hidden)


def _words(text: str) -> list[str]:
    found = (match[0].rstrip(".:!?").lstrip("#") for match in _WORD.finditer(text[:MOST_TEXT]))
    return list(itertools.islice(filter(None, found), MOST_WORDS))


def _is_value(value: Any) -> bool:
    if isinstance(value, str):
        # A lone surrogate, which JSON can escape, can't be sent in UTF-8.
        return 0 < len(value) <= LONGEST and not any("\ud800" <= each <= "\udfff" for each in value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= GREATEST
