"""Fill in a server's forms with the answers given on the command line: ``--answer NAME=VALUE`` for each field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from trio_mcp.cli.arguments import value_of
from trio_mcp.cli.exits import Exit
from trio_mcp.schema.forms import Form
from trio_mcp.schema.validator import SchemaError

__all__ = ["NO", "YES", "FilledForm", "Given", "choices_of", "read_field"]

YES, NO = ("y", "yes"), ("n", "no")

AGREE = "agree"
"""The name in ``--answer agree=yes``, which sends a form as it is, unless the form has a field of this name."""


@attrs.frozen
class FilledForm:
    """A form, filled in as far as the command line gives values.

    Attributes:
        content: The values of fields.
        problems: Name of a field -> why the value given for it is invalid.
        missing: The required fields that have neither a given value nor a default.
        agreed: Whether the command line gives a value for this form, or agrees to the form: then the form may be sent,
            unless a value is invalid or missing.
    """

    content: dict[str, Any]
    problems: dict[str, str]
    missing: list[str]
    agreed: bool


class Given:
    """The answers given on the command line: each applies to every form with a field of the same name.

    Args:
        pairs: The name of a field and the text for it; a name may be repeated, to give a list item by item.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._texts: dict[str, list[str]] = {}
        for name, text in pairs:
            self._texts.setdefault(name, []).append(text)
        self._used: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._texts)

    @property
    def unused(self) -> list[str]:
        """The names given on the command line that no field has had in any form so far."""
        return [name for name in self._texts if name not in self._used]

    def fill(self, schema: Mapping[str, Any]) -> FilledForm:
        """Fill in a form; each value is read and checked against the schema of its field.

        An answer named `AGREE` sends a form as it is: with the defaults of its fields, or empty if it has no fields.
        """
        fields = schema.get("properties") or {}
        agreed = [text.lower() for text in self._texts.get(AGREE, ()) if AGREE not in fields]
        if agreed:
            self._used.add(AGREE)
        about = bool(fields.keys() & self._texts.keys() or {*agreed} & {*YES, "true"})
        filled = FilledForm({}, {}, [], about)
        for name, field in fields.items():
            if name not in self._texts:
                continue
            self._used.add(name)
            try:
                filled.content[name] = read_field(name, self._texts[name], field)
            except Exit as exc:
                filled.problems[name] = str(exc)
        done = filled.content.keys() | filled.problems.keys()
        filled.missing.extend(
            name for name in schema.get("required") or () if name not in done and "default" not in fields.get(name, {})
        )
        return filled


def choices_of(field: Mapping[str, Any]) -> dict[str, str]:
    """Return the choices that a field offers: each value with its title."""
    items = field.get("items")
    # A multiple-choice field is an array, whose items list the values (`client/elicitation`).
    source: Mapping[str, Any] = items if isinstance(items, dict) else field
    titled = source.get("oneOf", source.get("anyOf"))
    if isinstance(titled, list):
        options = [each for each in titled if isinstance(each, dict) and isinstance(each.get("const"), str)]
        return {each["const"]: str(each.get("title", each["const"])) for each in options}
    listed, names = source.get("enum"), source.get("enumNames")
    values = [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
    # `enumNames` is the older form of the titles; if there are more or fewer titles than values, they can't be matched.
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return dict(zip(values, map(str, titles), strict=True))


def read_field(name: str, texts: Sequence[str], field: Mapping[str, Any]) -> Any:
    """Read the value of a field from the texts given for it; only an array may have several texts.

    Raises:
        Exit: If a text can't be read as a value of the field, or the field doesn't allow that value.
    """
    choices = choices_of(field)
    values = [_read(name, text, field, choices) for text in texts]
    if len(values) == 1:
        value = values[0]
    elif all(isinstance(each, list) for each in values):
        value = [item for each in values for item in each]
    else:
        raise Exit(f"{name}: given {len(values)} times, but it takes one value")
    try:
        problem = Form({"type": "object", "properties": {name: dict(field)}}).problem({name: value})
    except SchemaError as exc:
        problem = str(exc)
    if problem is not None:
        # The problem begins with the path to the field. The path is removed, because the message already begins with
        # the field's name.
        raise Exit(f"{name}: {problem.removeprefix(f'[{name!r}]: ')}")
    return value


def _read(name: str, text: str, field: Mapping[str, Any], choices: Mapping[str, str]) -> Any:
    if field.get("type") == "array":
        return [_chosen(name, each.strip(), choices) for each in text.split(",") if each.strip()]
    if choices:
        return _chosen(name, text, choices)
    if field.get("type") == "boolean":
        if text.lower() in YES + NO:
            return text.lower() in YES
        if text.lower() not in ("true", "false"):
            raise Exit(f"{name}: must be y or n; got {text!r}")
    # A form is flat and has no references, so an empty root schema is enough (`client/elicitation`, Requested Schema).
    return value_of(name, text, field, {})


def _chosen(name: str, text: str, choices: Mapping[str, str]) -> str:
    """Return the value of the choice that a text names by value, number or title."""
    values = list(choices)
    if text in choices:
        return text
    # Only the first six digits are read, because int() takes quadratic time for a long text.
    if text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= len(values):
        return values[int(text[:6]) - 1]
    found = [value for value, title in choices.items() if title.lower() == text.lower()]
    if len(found) != 1:
        raise Exit(
            f"{name}: must be one of {', '.join(values[:10])}, or a number from 1 to {len(values)}; got {text!r}"
        )
    return found[0]
