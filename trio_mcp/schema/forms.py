"""Fills in the defaults of elicitation forms, and checks the answers (`client/elicitation`).

A form is a flat JSON Schema (section Requested Schema). Unlike in a tool's schema, ``format`` is a requirement: email,
uri, date and date-time are checked here.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any

from trio_mcp.schema.validator import SchemaError, SchemaValidator

__all__ = ["Form"]

# The maximum number of fields that an error message lists (arbitrary). It is limited because a server's form may have
# any number of fields.
MAX_SHOWN_FIELDS = 10


class Form:
    """A form that a server asks the client to fill in.

    Args:
        schema: The ``requestedSchema``, as plain data.

    Raises:
        SchemaError: If the schema can't be used; the message says why.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        fields = schema.get("properties")
        if not isinstance(fields, Mapping):
            raise SchemaError("the schema of a form must have 'properties', an object that contains the form's fields")
        self._fields: Mapping[str, Any] = fields
        # A form comes from a server, so its schema is validated at a bounded cost, like any schema from a peer.
        self._validator = SchemaValidator(self._schema)

    def filled(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Complete an answer with the defaults of the fields that it leaves out.

        A default that is not valid for its own field is ignored.
        """
        defaults = {
            name: field["default"]
            for name, field in self._fields.items()
            if name not in content and isinstance(field, Mapping) and _has_default(field)
        }
        return {**defaults, **content}

    def problem(self, content: Mapping[str, Any]) -> str | None:
        """Describe the problem with an answer in one line; return None if it is valid.

        Raises:
            SchemaError: If the validation would cost too much.
        """
        # JSON Schema allows unknown fields by default. In a form, an unknown field is a mistake, most likely in its
        # name, unless the schema allows it explicitly.
        unknown = next((name for name in content if name not in self._fields), None)
        takes_more = bool(self._schema.get("additionalProperties")) or "patternProperties" in self._schema
        if unknown is not None and not takes_more:
            known = ", ".join(repr(name) for name in list(self._fields)[:MAX_SHOWN_FIELDS]) or "none"
            return f"the form has no field {unknown!r}; fields of the form: {known}"
        problem = self._validator.problem(dict(content))
        if problem is not None:
            return problem
        for name, value in content.items():
            wrong = _wrong_format(self._fields.get(name), value)
            if wrong is not None:
                return f"[{name!r}]: {wrong}"
        return None


def _has_default(field: Mapping[str, Any]) -> bool:
    if "default" not in field:
        return False
    # An invalid default is ignored, because it would make an answer that leaves the field out invalid.
    try:
        problem = SchemaValidator(dict(field)).problem(field["default"])
    except SchemaError:
        return False
    return problem is None and _wrong_format(field, field["default"]) is None


def _wrong_format(field: Any, value: Any) -> str | None:
    if not isinstance(field, Mapping) or not isinstance(value, str):
        return None
    name = field.get("format")
    fits = _FORMATS.get(name) if isinstance(name, str) else None
    return None if fits is None or fits(value) else f"the text is not a valid {name}"


# Matches e-mail addresses as HTML's input fields accept them, in any script (RFC 6531), without quoted local parts or
# comments.
_EMAIL = re.compile(r"[^\s@\x00-\x1f\x7f<>(),;:\\\"\[\]]{1,64}@[^\s@.<>(),;:\\\"\[\]]+(?:\.[^\s@.<>(),;:\\\"\[\]]+)*")
# Matches a scheme, followed only by characters that a URI can have (RFC 3986, appendix A). This pattern and the others
# here take linear time.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
# Matches a date (RFC 3339, section 5.6). `fromisoformat` alone would accept other forms of ISO 8601, such as week
# dates.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Matches a time with its offset (RFC 3339, section 5.6), which may have a leap second.
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])")


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    return _is_date(text[:10]) and text[10:11] in ("T", "t", " ") and _TIME.fullmatch(text[11:]) is not None


# Any other format is an annotation, which is not checked. An e-mail address has at most 320 characters: 64 before the
# "@" and 255 after it (RFC 5321, section 4.5.3.1).
_FORMATS: dict[str, Callable[[str], bool]] = {
    "email": lambda text: len(text) <= 320 and _EMAIL.fullmatch(text) is not None,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "date": _is_date,
    "date-time": _is_date_time,
}
