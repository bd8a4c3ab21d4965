"""Answers that break the form of an elicitation."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from trio_mcp.testing.strategies import texts
from trio_mcp.testing.strategies.forms import field_choices, field_values


def _wrong_values(field: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw values of another type, or out of the bounds of a field."""
    wrong: list[st.SearchStrategy[Any]] = [st.none(), st.just({"a": 1}), st.just([["a"]])]
    kind = field["type"]
    if kind != "boolean":
        wrong.append(st.booleans())
    if kind not in ("number", "integer"):
        wrong.append(st.integers())
    if kind == "integer":
        wrong.append(st.floats(0.1, 0.9))
    if kind != "string":
        wrong.append(texts())
    if "minimum" in field:
        wrong.append(st.integers(max_value=field["minimum"] - 1))
    if "maximum" in field:
        wrong.append(st.integers(min_value=field["maximum"] + 1))
    if field.get("minLength"):
        wrong.append(st.text("x", max_size=field["minLength"] - 1))
    if "maxLength" in field:
        wrong.append(st.text("x", min_size=field["maxLength"] + 1, max_size=20))
    if "format" in field:
        wrong.append(st.sampled_from(["", "no such thing", "2026-99-99"]))
    if kind == "array":
        choices = field_choices(field["items"])
        if field.get("minItems"):
            wrong.append(st.lists(st.sampled_from(choices), max_size=field["minItems"] - 1))
        if "maxItems" in field:
            wrong.append(st.just([choices[0]] * (field["maxItems"] + 1)))
        wrong.append(st.just([max(choices, key=len) + "!"]))
    elif "enum" in field or "oneOf" in field:
        wrong.append(st.just(max(field_choices(field), key=len) + "!"))
    return st.one_of(wrong)


@st.composite
def spoiled_answers(draw: st.DrawFn, schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Draw an answer with one fault, and a word that the error message must contain."""
    fields = schema["properties"]
    answer = {name: draw(field_values(field)) for name, field in fields.items()}
    name = draw(st.sampled_from(sorted(fields)))
    ways = ["value", "unknown"] + (["missing"] if name in schema["required"] else [])
    match draw(st.sampled_from(ways)):
        case "missing":
            del answer[name]
            return answer, "required"
        case "unknown":
            return {**answer, "".join(fields) + "?": 1}, "no field"
        case _:
            answer[name] = draw(_wrong_values(fields[name]))
            return answer, ""
