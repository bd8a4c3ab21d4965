"""`trio_mcp._patterns`: a pattern that is compiled late does what a compiled one does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from trio_mcp._patterns import late_pattern


@pytest.mark.parametrize("text", ["ab12", "AB", "", "12"])
def test_a_late_pattern_finds_what_a_compiled_one_finds(text: str) -> None:
    late, compiled = late_pattern(r"(?P<letters>[a-z]+)", re.IGNORECASE), re.compile(r"(?P<letters>[a-z]+)", re.I)
    for _ in range(2):  # the first use compiles
        for method in ("match", "fullmatch", "search"):
            found, expected = getattr(late, method)(text), getattr(compiled, method)(text)
            assert (found and found.groupdict()) == (expected and expected.groupdict())
        assert late.sub("-", text) == compiled.sub("-", text)
    assert late.pattern == compiled.pattern


def test_a_late_pattern_is_compiled_on_first_use_and_once() -> None:
    late = late_pattern("(")  # invalid: compiling it would raise
    with pytest.raises(re.error):
        late.match("")
    late = late_pattern("a")
    assert late.match == late.match
    assert "match" in vars(late)


_SET = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]")
_POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{[0-9,]+\})\+")


def _groups_with_possessive_quantifiers(source: str) -> list[int]:
    """Return the lines of the strings that have one; what stands for the values of an f-string does not matter."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=parts):
                text = "x".join(part.value for part in parts if isinstance(part, ast.Constant))
            case _:
                continue
        if "(?" in text and _POSSESSIVE_GROUP.search(_SET.sub("x", text)):
            found.add(node.lineno)  # the parts of an f-string are looked at once more, by themselves
    return sorted(found)


@pytest.mark.parametrize(
    "source", ['r"(?:a|b)*+"', 'r"(?i)(a[)])?+b"', 'rf"(?:{x})++"', 'rf"{x}(?:a)" rf"(?:b){{2,}}+"']
)
def test_a_possessive_quantifier_of_a_group_is_found(source: str) -> None:
    assert _groups_with_possessive_quantifiers(source) == [1]


def test_no_group_has_a_possessive_quantifier() -> None:
    """Python 3.11.0 to 3.11.4 match other texts with them (gh-106052); `(?>(?:…)*)` is the same, and right in all."""
    files = (Path(__file__).parents[1] / "trio_mcp").rglob("*.py")
    found = {str(file): _groups_with_possessive_quantifiers(file.read_text()) for file in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
