"""JSON Schema validation of what a peer sent, against a schema that a peer sent: both are hostile.

2026-07-28 `basic/index`, section JSON Schema Usage: 2020-12 unless the schema names another dialect, no network
``$ref``, and bounds on what a schema may cost. The validation itself is done by ``jsonschema-rs``: it is far faster
than the pure-Python library and loads in a fraction of the time. It can't be interrupted, so what a validation could
cost is counted before it starts, see `trio_mcp.schema.cost`. ``format`` is an annotation, as 2020-12 has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio_mcp.schema.cost import CostModel, Part, SchemaError, take_apart

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["DIALECTS", "SchemaError", "SchemaValidator"]

DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
"""The values of ``$schema`` that are supported, each with or without an empty fragment."""

# Finding the words for what is wrong takes longer than finding that something is: up to 6 µs for each error.
MAX_EXPLAINED_ERRORS = 100_000
MAX_EXPLAINED_BYTES = 50_000_000
MAX_EXPLANATIONS = 3
MAX_EXPLANATION = 300


class SchemaValidator:
    """A compiled schema.

    Args:
        schema: A JSON Schema, as plain data: an object, or true or false.

    Raises:
        SchemaError: It can't be used; the message says why.
    """

    def __init__(self, schema: Any) -> None:
        if not isinstance(schema, (dict, bool)):
            raise SchemaError(f"a schema must be an object or a boolean, not {type(schema).__name__}")
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        if dialect is not None and (not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS):
            shown = repr(dialect)[:200]
            raise SchemaError(f"the schema dialect {shown} is not supported; {', '.join(DIALECTS)} are")
        root = take_apart(schema) if isinstance(schema, dict) else Part()
        self._validator, per_byte, per_match = _compile(schema)
        self._model = CostModel(root, per_byte=per_byte, per_match=per_match)

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, in one line; None if it conforms.

        Raises:
            SchemaError: Finding out would cost too much.
        """
        self._model.work(value)
        try:
            return None if self._validator.is_valid(value) else self._explain(value)
        except ValueError as exc:
            return f"the value is no JSON: {_line(str(exc))}"

    def _explain(self, value: Any) -> str:
        count, size = self._model.errors(value)
        if count > MAX_EXPLAINED_ERRORS or size > MAX_EXPLAINED_BYTES:
            return "it does not conform to the schema; it is too large for saying where"
        errors = self._validator.evaluate(value).errors()
        shown = [f"{_place(each['instanceLocation'])}: {_line(each['error'])}" for each in errors]
        more = [f"and {len(shown) - MAX_EXPLANATIONS} more"] if len(shown) > MAX_EXPLANATIONS else []
        return "; ".join(shown[:MAX_EXPLANATIONS] + more) or "it does not conform to the schema"


def _compile(schema: Any) -> tuple[jsonschema_rs.Validator, int, int]:
    """The validator, and the price of its patterns in looks: for one byte of a string, and for one string."""
    import jsonschema_rs  # on first use: most programs validate nothing

    # Matched in linear time, and of a size at which that is at most some 2 µs for a byte, mostly a thousandth of it.
    linear = jsonschema_rs.RegexOptions(size_limit=50_000)
    # For look-around, which the other engine does not know, and for larger patterns.
    fancy = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=200_000)
    problem: Exception | None = None
    for options, per_byte, per_match in ((linear, 1, 1), (fancy, 20, 200)):
        try:
            validator = jsonschema_rs.validator_for(
                schema, retriever=_refuse, validate_formats=False, pattern_options=options
            )
        except (ValueError, jsonschema_rs.ReferencingError) as exc:
            problem = exc
        else:
            return validator, per_byte, per_match
    raise SchemaError(f"the schema is invalid: {_line(str(problem))}")


def _refuse(uri: str) -> Any:
    raise LookupError(f"references outside the schema are not followed: {uri}")


def _place(pointer: str) -> str:
    """A JSON pointer as one writes it in Python."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    return _line("".join(f"[{step}]" if step.isdecimal() else f"[{step!r}]" for step in steps)) or "the value"


def _line(text: str) -> str:
    first = text.partition("\n")[0]
    return first if len(first) <= MAX_EXPLANATION else first[:MAX_EXPLANATION] + "…"
