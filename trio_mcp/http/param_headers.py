"""Tool arguments that are repeated as ``Mcp-Param-*`` headers: finding them, writing their values, comparing them.

2026-07-28 `basic/transports/streamable-http`, section Custom Headers from Tool Parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import attrs

from trio_mcp.http.framing import TOKEN
from trio_mcp.http.headers import Headers, decode_value, encode_value, mismatch, shown
from trio_mcp.jsonrpc.messages import ErrorData

__all__ = ["ANNOTATION", "ParameterHeader", "check_parameter_headers", "parameter_headers", "parameter_values"]

ANNOTATION: Final = "x-mcp-header"
PREFIX: Final = "Mcp-Param-"

_TOKEN = re.compile(TOKEN.decode())
# Section Schema Extension allows an annotated property to have one of these types.
_TYPES = ("string", "integer", "boolean")
# Up to this size, every JSON implementation reads integers exactly (RFC 8259, section 6).
_MAX_SAFE = 2**53 - 1
# The pattern matches numbers without an exponent. `repr` writes some fractions with an exponent; these are compared as
# text.
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")

# Apart from `properties`, these keywords contain subschemas: a single one, a list or a mapping (JSON Schema 2020-12
# core, section 10, and older drafts).
_ONE = (
    "items",
    "contains",
    "additionalItems",
    "additionalProperties",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")


@attrs.frozen
class ParameterHeader:
    """An argument that is repeated as a header.

    Attributes:
        header: The header's name, ``Mcp-Param-`` included.
        path: The property names that lead to the argument.
    """

    header: str
    path: tuple[str, ...]

    def value_in(self, arguments: Any) -> Any:
        """Return the argument's value, or None if it is absent."""
        for key in self.path:
            if not isinstance(arguments, Mapping):
                return None
            arguments = arguments.get(key)
        return arguments


def parameter_headers(input_schema: Any) -> tuple[ParameterHeader, ...]:
    """Find the arguments that a tool wants repeated as headers.

    Raises:
        ValueError: If an annotation breaks a rule of section Schema Extension; the message says which. Such a tool is
            invalid: a client over HTTP leaves it out of the list of tools.
    """
    found: dict[str, ParameterHeader] = {}  # the keys are the names of the headers in lower case
    # A list is used instead of recursion, because a peer may nest a schema as deeply as it likes. The path is None
    # below any keyword other than `properties`: an annotation there is an error, because it would not refer to a single
    # argument.
    pending: list[tuple[tuple[str, ...] | None, Any]] = [((), input_schema)]
    while pending:
        path, schema = pending.pop()
        if not isinstance(schema, dict):
            continue
        if ANNOTATION in schema:
            if not path:
                raise ValueError(
                    f"{ANNOTATION} must be on a property reached through `properties` alone, not {_place(schema)}"
                )
            parameter = _parameter(path, schema)
            # Header names are case-insensitive, so two annotations that differ only in case would name the same header.
            key = parameter.header.lower()
            if key in found:
                where = f"{shown('.'.join(found[key].path))} and {shown('.'.join(path))}"
                raise ValueError(f"{ANNOTATION} {shown(schema[ANNOTATION])} is used twice, by {where}")
            found[key] = parameter
        pending += [(None if path is None else (*path, name), child) for name, child in _mapping(schema, "properties")]
        pending += [(None, schema.get(keyword)) for keyword in _ONE]
        pending += [(None, child) for keyword in _MAPS for _, child in _mapping(schema, keyword)]
        for keyword in _LISTS:
            children = schema.get(keyword)
            pending += [(None, child) for child in children] if isinstance(children, list) else []
    return tuple(found.values())


def parameter_values(arguments: Any, parameters: Iterable[ParameterHeader]) -> dict[str, str]:
    """Return the headers that repeat a call's arguments (section Client Behavior).

    A value of a type that no header can carry is left out; the tool's own validation will refuse it.

    Raises:
        ValueError: If an integer is outside the range that these headers may carry, or a string contains a lone
            surrogate.
    """
    headers = {}
    for parameter in parameters:
        text = _text(parameter, parameter.value_in(arguments))
        if text is not None:
            headers[parameter.header] = encode_value(text)
    return headers


def check_parameter_headers(
    headers: Headers, arguments: Any, parameters: Iterable[ParameterHeader]
) -> ErrorData | None:
    """Compare the headers of a call with its arguments (section Server Behavior for Custom Headers).

    Returns:
        The error to respond with, or None if they agree.
    """
    for parameter in parameters:
        value, given = parameter.value_in(arguments), headers.get(parameter.header)
        argument = f"the argument {shown('.'.join(parameter.path))}"
        if given is None:
            if isinstance(value, (str, int, float)):
                return mismatch(f"the header {parameter.header} is missing, although {argument} has a value")
            continue  # the argument is absent, or no header can carry it: the tool validates it
        if headers.count(parameter.header) > 1:
            return mismatch(f"the header {parameter.header} was sent more than once")
        try:
            decoded = decode_value(given)
        except ValueError as exc:
            return mismatch(f"the header {parameter.header} {exc}")
        if value is None:
            # An intermediary that routes by this header would act on a value that the call does not have.
            return mismatch(f"the header {parameter.header} was sent, but {argument} has no value")
        if not _agree(decoded, value):
            return mismatch(f"the header {parameter.header} says {shown(decoded)}, which differs from {argument}")
    return None


def _parameter(path: tuple[str, ...], schema: dict[str, Any]) -> ParameterHeader:
    name, kind = schema[ANNOTATION], schema.get("type")
    what = f"{ANNOTATION} of the property {shown('.'.join(path))}"
    if not isinstance(name, str) or not name:
        raise ValueError(f"{what} must be a non-empty string")
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{what} must be an HTTP token (letters, digits and !#$%&'*+-.^_`|~), got {shown(name)}")
    # With a list of types, a value would have no single spelling as a header, so a list is refused even if all of its
    # types are allowed.
    if not isinstance(kind, str) or kind not in _TYPES:
        got = shown(kind) if isinstance(kind, str) else "no single type"
        raise ValueError(f"{what} is allowed only for the types {', '.join(_TYPES)}, got {got}")
    return ParameterHeader(PREFIX + name, path)


def _place(schema: dict[str, Any]) -> str:
    # In a peer's schema, the value of the annotation may be of any type.
    name = schema[ANNOTATION]
    return f"where {shown(name)} is" if isinstance(name, str) else "elsewhere"


def _mapping(schema: dict[str, Any], keyword: str) -> Iterable[tuple[str, Any]]:
    value = schema.get(keyword)
    return value.items() if isinstance(value, dict) else ()


def _text(parameter: ParameterHeader, value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):  # checked before int, because bool is a subclass of int
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            return None  # NaN and infinity are not valid JSON either
        if not value.is_integer():
            # `repr` is the shortest text that reads back as the same number.
            return repr(value)
        value = int(value)  # JSON does not distinguish 42.0 from 42
    if not isinstance(value, int):
        return None
    if abs(value) > _MAX_SAFE:
        argument = shown(".".join(parameter.path))
        raise ValueError(
            f"the argument {argument} doesn't fit into the header {parameter.header}, which carries only integers "
            f"between -(2**53 - 1) and 2**53 - 1"
        )
    return str(value)


def _agree(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if not isinstance(value, (int, float)):
        return False  # objects and lists can't be sent in a header
    # Numbers are not compared as text: 42.0 equals 42 (section Server Validation).
    if not _DECIMAL.fullmatch(text):
        return isinstance(value, float) and text == repr(value)
    if isinstance(value, float) and not value.is_integer():
        return float(text) == value
    return Decimal(text) == value  # a Decimal is exact beyond 2**53, too, where a float would be rounded
