"""The rules for `_meta` keys (2026-07-28 basic, "_meta")."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.types.published import definitions, needs_schemas
from trio_mcp.types import meta
from trio_mcp.types.meta import is_reserved_key, is_valid_key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "name",
        "a",
        "7",
        "a-b_c.d",
        "com.example/",
        "com.example/name",
        "com.example/a.b-c_d",
        "example/name",
        "a-1.b2/x",
        "io.modelcontextprotocol/protocolVersion",
    ],
)
def test_valid_keys(key: str) -> None:
    assert is_valid_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "-name",
        "name-",
        ".name",
        "name_",
        "na me",
        "näme",
        "/name",
        "1com.example/name",
        "com-.example/name",
        "com..example/name",
        ".com/name",
        "com./name",
        "com_x/name",
        "com.example/a/b",
        "com.example/-a",
        "name\n",
        "com.example/\n",
    ],
)
def test_invalid_keys(key: str) -> None:
    assert not is_valid_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "io.modelcontextprotocol/x",
        "dev.mcp/",
        "org.modelcontextprotocol.api/x",
        "com.mcp.tools/x",
        "progressToken",
        "traceparent",
        "tracestate",
        "baggage",
    ],
)
def test_reserved_keys(key: str) -> None:
    assert is_reserved_key(key)


@pytest.mark.parametrize(
    "key", ["com.example.mcp/x", "mcp/x", "modelcontextprotocol/x", "mcp", "io.mcp", "com.mcpx/x", "x", "", "a/b.mcp/c"]
)
def test_keys_that_belong_to_everybody(key: str) -> None:
    assert not is_reserved_key(key)


labels = st.from_regex(r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?", fullmatch=True)
names = st.from_regex(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?", fullmatch=True)


@given(st.lists(labels, min_size=1, max_size=4), names)
def test_keys_by_the_grammar_are_valid_and_the_second_label_decides_who_owns_them(prefix: list[str], name: str) -> None:
    key = ".".join(prefix) + "/" + name
    assert is_valid_key(key)
    assert is_reserved_key(key) is (len(prefix) > 1 and prefix[1] in ("mcp", "modelcontextprotocol"))


@needs_schemas
def test_every_key_the_schema_names_has_a_constant() -> None:
    published = set()
    for name, definition in definitions("2026-07-28").items():
        if re.search("MetaObject$", name):
            published |= definition.get("properties", {}).keys()
    constants = {getattr(meta, name) for name in meta.__all__ if name.isupper()}
    assert published <= constants
    assert all(is_valid_key(key) and is_reserved_key(key) for key in constants)
