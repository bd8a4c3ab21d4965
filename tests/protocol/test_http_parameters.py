"""Arguments repeated as headers: which annotations are lawful, and that headers and arguments agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trio_mcp.http.headers import Headers, encode_value
from trio_mcp.http.param_headers import (
    ParameterHeader,
    check_parameter_headers,
    parameter_headers,
    parameter_values,
)

LIMIT = 2**53 - 1


def annotated(name: Any, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# --- annotations ------------------------------------------------------------------------------------------------


def test_lawful_annotations_are_found_at_any_depth() -> None:
    """Section Schema Extension: a chain of `properties` keys, primitive types, names in any case."""
    nested = schema(deep=schema(flag=annotated("Flag", "boolean")), n=annotated("n!#$%&'*+-.^_`|~9", "integer"))
    found = parameter_headers(schema(region=annotated("Region"), plain={"type": "string"}, nested=nested))
    assert set(found) == {
        ParameterHeader("Mcp-Param-Region", ("region",)),
        ParameterHeader("Mcp-Param-Flag", ("nested", "deep", "flag")),
        ParameterHeader("Mcp-Param-n!#$%&'*+-.^_`|~9", ("nested", "n")),
    }


A = annotated("A")
SINGLE = ["items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"]
SINGLE += ["unevaluatedItems", "unevaluatedProperties", "additionalItems", "contentSchema"]
ELSEWHERE = "must be on a property reached through `properties` alone"
# One row for each rule that an annotation can break, and for each place where it must not be.
INVALID: dict[str, tuple[Any, str]] = {
    "empty": (schema(a=annotated("")), "must be a non-empty string"),
    "no string": (schema(a=annotated(10**5000)), "must be a non-empty string"),
    "null": (schema(a=annotated(None)), "must be a non-empty string"),
    "space": (schema(a=annotated("A b")), "must be an HTTP token"),
    "colon": (schema(a=annotated("A:b")), "must be an HTTP token"),
    "not ASCII": (schema(a=annotated("Ré")), "must be an HTTP token"),
    "line end": (schema(a=annotated("A\r\nB: c")), "must be an HTTP token"),
    "trailing line feed": (schema(a=annotated("A\n")), "must be an HTTP token"),
    "twice": (schema(a=A, b=A), "is used twice"),
    "twice in another case": (schema(a=A, b=annotated("a")), "is used twice"),
    "number": (schema(a=annotated("A", "number")), "got 'number'"),
    "object": (schema(a=annotated("A", "object")), "got 'object'"),
    "array": (schema(a=annotated("A", "array")), "got 'array'"),
    "null type": (schema(a=annotated("A", "null")), "got 'null'"),
    "several types": (schema(a=annotated("A", ["string", "null"])), "got no single type"),
    "no type": (schema(a={"x-mcp-header": "A"}), "got no single type"),
    "root": (annotated("A", "object"), ELSEWHERE),
    "below items": (schema(a={"items": schema(b=A)}), ELSEWHERE),
    "properties of an item": ({"items": {"properties": {"a": A}}}, ELSEWHERE),
    **{keyword: ({**schema(), keyword: A}, ELSEWHERE) for keyword in SINGLE},
    **{
        keyword: ({**schema(), keyword: [True, A]}, ELSEWHERE) for keyword in ["allOf", "anyOf", "oneOf", "prefixItems"]
    },
    **{
        keyword: ({**schema(), keyword: {"x": A}}, ELSEWHERE)
        for keyword in ["patternProperties", "dependentSchemas", "$defs", "definitions"]
    },
}


@pytest.mark.parametrize("row", list(INVALID))
def test_an_annotation_that_breaks_a_rule_makes_the_tool_invalid(row: str) -> None:
    """Each constraint of section Schema Extension; the reason names it."""
    bad, reason = INVALID[row]
    with pytest.raises(ValueError, match="x-mcp-header") as caught:
        parameter_headers(bad)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "fine",
    [
        {"properties": {"x-mcp-header": {"type": "string"}}},
        schema(a={"default": A, "const": A, "enum": [A], "examples": [A]}),
        schema(a=True),
        {"properties": [A]},
        True,
        None,
        "x-mcp-header",
    ],
)
def test_other_uses_of_the_name_are_not_annotations(fine: Any) -> None:
    """An argument of that name, data inside a schema, and values that are not schemas at all."""
    assert parameter_headers(fine) == ()


def test_a_deep_schema_is_read() -> None:
    """Depth is up to the peer: nothing here recurses."""
    deep: dict[str, Any] = A
    for _ in range(5000):
        deep = schema(a=deep)
    (found,) = parameter_headers(deep)
    assert len(found.path) == 5000


# --- values -----------------------------------------------------------------------------------------------------

PARAMETERS = (
    ParameterHeader("Mcp-Param-Text", ("text",)),
    ParameterHeader("Mcp-Param-Number", ("number",)),
    ParameterHeader("Mcp-Param-Deep", ("a", "b")),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
primitives = st.one_of(st.none(), st.booleans(), st.integers(-LIMIT, LIMIT), texts, st.floats(-1e9, 1e9))
arguments_of_any_kind = st.fixed_dictionaries(
    {}, optional={"text": primitives, "number": primitives, "a": primitives | st.fixed_dictionaries({"b": primitives})}
)


@given(arguments_of_any_kind)
def test_what_a_client_sends_is_what_a_server_accepts(arguments: dict[str, Any]) -> None:
    """Also after the arguments have been through JSON."""
    values = parameter_values(arguments, PARAMETERS)
    received = json.loads(json.dumps(arguments))
    assert check_parameter_headers(Headers(values.items()), received, PARAMETERS) is None


# Each row: the argument (absent if ...), the header (None if not sent), whether they agree.
ROWS: dict[str, tuple[Any, str | None, bool]] = {
    "a value": ("us-west1", "us-west1", True),
    "another value": ("us-west1", "us-east1", False),
    "another case": ("us-west1", "US-WEST1", False),
    "null, no header": (None, None, True),
    "absent, no header": (..., None, True),
    "null, header": (None, "x", False),
    "absent, header": (..., "x", False),
    "value, no header": ("x", None, False),
    "empty value, no header": ("", None, False),
    "empty value, empty header": ("", "", True),
    "false, no header": (False, None, False),
    "zero, no header": (0, None, False),
    "true": (True, "true", True),
    "true is not True": (True, "True", False),
    "true is not 1": (True, "1", False),
    "1 is not true": (1, "true", False),
    "42 is 42.0": (42, "42.0", True),
    "42.0 is 42": (42.0, "42", True),
    "42 is not 42.5": (42, "42.5", False),
    "42 is not 4.2e1": (42, "4.2e1", False),
    "42 is not 0x2a": (42, "0x2a", False),
    "42 is not fullwidth 42": (42, "=?base64?77yU77yS?=", False),
    "-7": (-7, "-7", True),
    "1e-07 is 1e-07": (1e-07, "1e-07", True),
    "0.5 is not a word": (0.5, "x", False),
    "beyond 2**53, equal": (2**53 + 1, "9007199254740993", True),
    "beyond 2**53, one off": (2**53, "9007199254740993", False),
    "beyond 2**53 as a float, one off": (2.0**53, "9007199254740993", False),
    "a number of endless digits": (7, "7" + "0" * 5000, False),
    "an object, no header": ({"a": 1}, None, True),
    "an object, header": ({"a": 1}, "x", False),
    "Base64": ("Hello", "=?base64?SGVsbG8=?=", True),
    "Base64 without padding": ("Hello", "=?base64?SGVsbG8?=", False),
    "Base64 with a foreign letter": ("Hello", "=?base64?SGVs!!!bG8=?=", False),
    "no prefix is literal": ("SGVsbG8=", "SGVsbG8=", True),
    "no suffix is literal": ("=?base64?SGVsbG8=", "=?base64?SGVsbG8=", True),
    "invalid characters": ("caf\xe9", "caf\xe9", False),
}


@pytest.mark.parametrize("row", list(ROWS))
def test_server_behavior_for_custom_headers(row: str) -> None:
    """The table of that section, the rule for integers of Server Validation, and the rows of the conformance suite."""
    value, header, agree = ROWS[row]
    parameters = parameter_headers(schema(v=A))
    arguments = {} if value is ... else {"v": value}
    headers = Headers([] if header is None else [("MCP-PARAM-a", header)])
    error = check_parameter_headers(headers, arguments, parameters)
    assert (error is None) == agree
    assert error is None or (error.code == -32020 and "Mcp-Param-A" in error.message)
    assert error is None or value not in (None, ...) or "has no value" in error.message


def test_a_header_sent_twice_is_refused() -> None:
    """A reader of the first and a reader of the last would disagree."""
    error = check_parameter_headers(Headers([("Mcp-Param-A", "x")] * 2), {"v": "x"}, parameter_headers(schema(v=A)))
    assert error is not None
    assert "more than once" in error.message


def test_headers_of_other_parameters_are_ignored() -> None:
    """A server must not refuse what it does not recognise."""
    assert check_parameter_headers(Headers([("Mcp-Param-B", "x")]), {}, parameter_headers(schema(v=A))) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42"),
        (-7, "-7"),
        (42.0, "42"),
        (True, "true"),
        (False, "false"),
        ("us west 1", "us west 1"),
        ("\tindented", encode_value("\tindented")),
        ("", encode_value("")),
        (2**53 - 1, "9007199254740991"),
        (1 - 2**53, "-9007199254740991"),
    ],
)
def test_type_conversion(value: Any, text: str) -> None:
    """Section Value Encoding: decimal integers, lower-case booleans."""
    assert parameter_values({"v": value}, parameter_headers(schema(v=A))) == {"Mcp-Param-A": text}


@pytest.mark.parametrize("value", [2**53, -(2**53), 1e300, 10**5000], ids=["above", "below", "float", "endless"])
def test_an_integer_beyond_the_safe_range_is_refused(value: Any) -> None:
    """Section Schema Extension: readers in between may hold it as a double."""
    with pytest.raises(ValueError, match="Mcp-Param-A, which carries only integers between"):
        parameter_values({"v": value}, parameter_headers(schema(v=A)))


@pytest.mark.parametrize("value", [[1], {"a": 1}, float("inf"), float("nan")])
def test_what_no_header_can_hold_is_left_out(value: Any) -> None:
    """The tool's own validation refuses it, with a better message."""
    assert parameter_values({"v": value}, parameter_headers(schema(v=A))) == {}
