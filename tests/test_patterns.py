"""`trio_mcp._patterns`: a pattern that is compiled late does what a compiled one does."""

from __future__ import annotations

import re

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
