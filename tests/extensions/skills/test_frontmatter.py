"""The frontmatter is read as YAML 1.2, and has no way to grow: see `yaml_corpus`."""

from __future__ import annotations

import builtins
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.extensions.skills.yaml_corpus import READ, REFUSED
from trio_mcp.extensions.skills.frontmatter import (
    FrontmatterError,
    difference,
    read_frontmatter,
    split,
    write_frontmatter,
)


def read(yaml: str, newline: str = "\n") -> dict[str, Any]:
    return read_frontmatter(f"---\n{yaml}\n---\n\nBody\n".replace("\n", newline).encode())


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, with their types."""
    return repr(one) == repr(other)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("text", READ)
def test_values_of_the_core_schema(text: str, newline: str) -> None:
    """Frontmatter: identical in content to that of the file, so types are those of YAML 1.2, and not of 1.1."""
    assert same(read(f"a: {text}", newline), {"a": READ[text]})


@pytest.mark.parametrize(
    ("text", "reason"), [each for each in REFUSED.items() if each[1]], ids=lambda text: repr(text[:20])
)
def test_what_could_grow_or_be_ambiguous_is_refused(text: str, reason: str) -> None:
    began = time.process_time()
    with pytest.raises(FrontmatterError, match=reason):
        read(f"a: {text}")
    assert time.process_time() - began < 20, "a bomb"


def test_the_classic_bomb_is_refused_at_its_first_anchor() -> None:
    """Nine lists of nine references each would be 9**9 strings."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(FrontmatterError, match=r"an anchor \(line 2\)"):
        read("\n".join(lines))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "first line must be ---"),
        (b"text\n---\na: b\n---\n", "first line must be ---"),
        (b" ---\na: b\n---\n", "first line must be ---"),
        (b"----\na: b\n---\n", "first line must be ---"),
        (b"---\na: b\n", "has no end"),
        (b"---\na: b\n ---\n", "has no end"),
        (b"---\na: b\n----\n", "has no end"),
        (b"---\n---\n", "is empty"),
        (b"---\n# nothing\n---\n", "is empty"),
        (b"---\n- a\n---\n", "must be a mapping"),
        (b"---\na\n---\n", "must be a mapping"),
        (b"---\na: \xff\n---\n", "not UTF-8"),
        (b"---\n" + b"a" * 65_537 + b"\n---\n", "longer than 65536 bytes"),
        (b"---\n" + b"a" * 1_000_000, "longer than 65536 bytes, or has no end"),
        (b"---\n%YAML 1.1\n---\na: yes\n---\n", "not YAML 1.2"),
    ],
)
def test_a_file_without_a_frontmatter_is_refused(data: bytes, reason: str) -> None:
    """Skill Format: `SKILL.md` MUST begin with YAML frontmatter."""
    with pytest.raises(FrontmatterError, match=reason):
        read_frontmatter(data)


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"---\na: b\n---\n\ntext\n", b"\ntext\n"),
        (b"---\r\na: b\r\n---\r\ntext\r\n", b"text\r\n"),
        (b"\xef\xbb\xbf---\na: b\n---\ntext", b"text"),
        (b"--- \na: b\n---\t\ntext", b"text"),
        (b"---\na: b\n---", b""),
        (b"---\na: b\n---\n---\n", b"---\n"),
        (b"---\na: '---'\n---\ntext", b"text"),
    ],
)
def test_the_text_after_the_frontmatter(data: bytes, body: bytes) -> None:
    assert split(data)[1] == body


def test_the_longest_frontmatter_is_read() -> None:
    assert read("#" * (65_536 - len("\na: b\n")) + "\na: b") == {"a": "b"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.text(max_size=8), JSON, min_size=1, max_size=4))
@settings(max_examples=examples(50))
def test_what_is_written_is_read_again(fields: dict[str, Any]) -> None:
    """Dynamic skills: the library writes their frontmatter, and must state it truly."""
    assert difference(json.loads(json.dumps(fields)), read_frontmatter(write_frontmatter(fields).encode())) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"x"])
def test_only_json_data_is_written(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        write_frontmatter({"a": value})


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 1.0}, None),
        ({"a": 123456789012345678901234567890}, {"a": 1.2345678901234568e29}, None),
        ({"a": {"b": [1, {"c": None}]}}, {"a": {"b": [1, {"c": None}]}}, None),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}, None),
        ({"a": 1}, {"a": True}, "a"),
        ({"a": 0}, {"a": False}, "a"),
        ({"a": 1}, {"a": "1"}, "a"),
        ({"a": None}, {"a": ""}, "a"),
        ({"a": None}, {"a": False}, "a"),
        ({"a": None}, {}, "a"),
        ({}, {"a": None}, "a"),
        ({"a": []}, {"a": {}}, "a"),
        ({"a": [1]}, {"a": [1, 2]}, "a"),
        ({"a": [1, 2]}, {"a": [2, 1]}, "a[0]"),
        ({"a": "x"}, {"a": "x "}, "a"),
        ({"a": "\u00e9"}, {"a": "e\u0301"}, "a"),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}, "a.b.c"),
        ({"a": {"b": 1}}, {"a": {"b": 1, "x": 1}}, "a.x"),
    ],
)
def test_frontmatters_are_compared_as_json_with_types(one: Any, other: Any, where: str | None) -> None:
    """Frontmatter Verification: any discrepancy is a failure. JSON has one type of number, and no other equalities."""
    assert difference(one, other) == where
    assert difference(other, one) == where


def test_without_the_extra_one_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("ruamel"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"pip install 'trio-mcp\[skills\]'"):
        read("a: b")
