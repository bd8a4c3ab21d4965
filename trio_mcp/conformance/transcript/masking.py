"""Masks the secrets in a transcript before anything is written to a file or shown.

`trio_mcp._secrets` defines what counts as a secret. A masked value keeps its type, so that a masked message is still a
valid one. Members that the protocol itself defines, such as ``progressToken``, are not masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

import attrs

from trio_mcp._secrets import LABELS, MASK, Place, is_secret, mask_text, names_session, without_options
from trio_mcp.conformance.transcript.events import Event

__all__ = ["Masker"]

MAX_DEPTH = 200
"""The depth to which masking looks into a value; a value at a greater depth is masked whole (an arbitrary choice, far
below Python's recursion limit)."""
MAX_SESSIONS = 10_000
"""How many session ids a masker remembers."""


_TOKEN: Final = re.compile(r"\{token [a-z]{1,20}\}")
"""The name of a token of the kit; see `trio_mcp.conformance.credentials`."""


class _As(Enum):
    """The mask for a value and for everything below it."""

    TEXT = "text"  # mask only what looks like a secret
    SECRET = "secret"
    CREDENTIALS = "credentials"  # HTTP credentials: mask all but the scheme
    SESSION = "session"


_WIRE: Final = frozenset({"headers", "env", "environ", "environment"})
"""Members whose own members are header fields or environment variables."""
_FORMS: Final = frozenset({"sent_form", "redirected_with"})
"""Members whose own members are parameters of a form or a query, in the mark ``login``."""

# A JSON schema may describe a secret without containing one, so the members of a schema that describe it are not
# masked.
_SCHEMAS: Final = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SIGNS: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
_SIGNS_OF_MEMBERS: Final = _SIGNS | {"title", "description", "enum", "const", "default"}
_DESCRIBES: Final = _SCHEMAS | {
    *("$ref", "$schema", "$id", "$comment", "type", "title", "description", "format", "pattern", "required"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "contentEncoding", "contentMediaType"),
}


@attrs.frozen
class _Where:
    """The place of a value: the name of its member, the name of the enclosing member, and its depth."""

    name: str = ""
    around: str = ""
    depth: int = 0

    def below(self, name: str) -> _Where:
        return _Where(name, self.name, self.depth + 1)

    @property
    def place(self) -> Place:
        if self.name in _FORMS:
            return Place.QUERY
        return Place.WIRE if self.name.lower() in _WIRE else Place.FIELD


class Masker:
    """Masks the secrets in one transcript.

    Each session id is replaced by a name, ``session-1`` and so on, so that a reader can still distinguish sessions.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, str] = {}
        self._numbered = 0

    def event(self, event: Event) -> Event:
        """Return an event without its secrets; if anything was masked, the event has the fact ``masked``."""
        text = event.text
        if text is not None:
            # `surrogateescape` preserves every byte that is not UTF-8.
            text = mask_text(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        message, facts = self.value(event.message), self.value(dict(event.facts))
        # An event in which nothing was masked is returned unchanged: `masked` says that the bytes differ from those
        # that were sent.
        if text == event.text and message == event.message and facts == event.facts:
            return event
        return attrs.evolve(event, text=text, message=message, facts={**facts, "masked": True})

    def _session(self, identifier: str) -> str:
        name = self._sessions.get(identifier)
        if name is None:
            self._numbered += 1
            name = self._sessions[identifier] = f"session-{self._numbered}"
            # An id is forgotten only in a trace that runs for days. If that id came again, it would get a new number.
            if len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        return name

    def value(self, value: Any, name: str = "") -> Any:
        """Return a JSON value without its secrets.

        Args:
            value: The value; it is not changed.
            name: The name of the member that contains the value.
        """
        return self._masked(value, _as(name, value), _Where(name))

    def _masked(self, value: Any, how: _As, where: _Where) -> Any:
        if where.depth > MAX_DEPTH:
            return MASK
        match value:
            case dict():
                return self._object(value, how, where)
            case list() | tuple():
                # The copy has the same type, so that a value in which nothing was masked stays equal.
                return type(value)(self._items(value, how, where))
            # Neither None nor a bool can be a secret, and the last case would treat true as a number and return False.
            case None | bool():
                return value
            case str():
                return self._text(value, how)
            case _:
                return value if how is _As.TEXT else type(value)(0)  # a masked number is a 0 of the same type

    def _object(self, value: dict[Any, Any], how: _As, where: _Where) -> dict[Any, Any]:
        schema = how is not _As.TEXT and _is_schema(value, where)
        # A secret may be given by a pair of members, one with its name and the other with its value; the name then
        # decides how the value is masked.
        names = {LABELS[label]: value[label] for label in LABELS if isinstance(value.get(label), str)}
        if value.get("kind") == "Secret":  # this is a manifest of a Kubernetes Secret
            names |= dict.fromkeys(("data", "stringData"), "secret")
        masked = {}
        for key, each in value.items():
            by_name = how is _As.TEXT or (schema and key in _DESCRIBES)
            own = _as(str(names.get(key, key)), each, where.place) if by_name else how
            masked[key] = self._masked(each, own, where.below(str(key)))
        return masked

    def _items(self, value: list[Any] | tuple[Any, ...], how: _As, where: _Where) -> Iterable[Any]:
        if how is _As.TEXT and all(isinstance(each, str) for each in value):
            return without_options(value)  # the list may be a command line
        return (self._item(each, how, where) for each in value)

    def _item(self, item: Any, how: _As, where: _Where) -> Any:
        if how is _As.TEXT and where.place is Place.WIRE and isinstance(item, (list, tuple)) and len(item) == 2:
            name, value = item
            masked = self._masked(value, _as(str(name), value, Place.WIRE), where.below(str(name)))
            return [name, masked] if isinstance(item, list) else (name, masked)
        # An item of a list has no name of its own, but is one level deeper than the list.
        return self._masked(item, how, _Where(where.name, where.around, where.depth + 1))

    def _text(self, value: str, how: _As) -> str:
        if not value:
            return value  # an empty text hides nothing, and a schema may have it as a default
        match how:
            case _As.TEXT:
                return mask_text(value)
            # Each session gets its own name: with one mask for all sessions, a request with the wrong session would
            # look right.
            case _As.SESSION:
                return self._session(value)
            # The scheme is not a secret, and a wrong one is a fault that the transcript should show (RFC 9110, section
            # 11.4).
            case _As.CREDENTIALS:
                scheme, separator, rest = value.partition(" ")
                # The kit records the names of its own tokens, which say what was tried.
                if _TOKEN.fullmatch(rest):
                    return value
                return f"{scheme} {MASK}" if separator and rest else MASK
        return MASK


def _as(name: str, value: Any, place: Place = Place.FIELD) -> _As:
    if not is_secret(name, place) or (isinstance(value, (int, float)) and name.lower().endswith("tokens")):
        return _As.TEXT  # a number whose name ends in `tokens` is a count of tokens
    if name.lower().endswith("authorization"):
        return _As.CREDENTIALS
    return _As.SESSION if names_session(name) else _As.SECRET


def _is_schema(value: dict[Any, Any], where: _Where) -> bool:
    kinds = value.get("type")
    if isinstance(kinds, (str, list)):
        return all(isinstance(each, str) and each in _TYPES for each in ([kinds] if isinstance(kinds, str) else kinds))
    return not value.keys().isdisjoint(_SIGNS_OF_MEMBERS if where.around in _SCHEMAS else _SIGNS)
