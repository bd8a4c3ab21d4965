"""Provides strategies of JSON values, and of strings that the protocol uses everywhere."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st

__all__ = [
    "SAFE_INTEGER",
    "base64_texts",
    "integers",
    "json_objects",
    "json_schemas",
    "json_texts",
    "json_values",
    "numbers",
    "request_ids",
    "texts",
    "uris",
]

SAFE_INTEGER = 2**53 - 1
"""The greatest integer up to which no two integers share a double (RFC 8259, section 6)."""


def texts(max_size: int = 10) -> st.SearchStrategy[str]:
    """Return a strategy of texts, with any Unicode characters that UTF-8 can encode."""
    # Surrogates are excluded, because they can't be encoded, so the test itself would fail. Hostile messages contain
    # them as escapes.
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)


def integers() -> st.SearchStrategy[int]:
    """Return a strategy of integers that every JSON peer represents exactly."""
    return st.integers(-SAFE_INTEGER, SAFE_INTEGER)


def numbers(low: float | None = None, high: float | None = None) -> st.SearchStrategy[int | float]:
    """Return a strategy of JSON numbers: ints and floats, within bounds if given."""
    # JSON has a single type for 1 and 1.0, so a peer may turn one into the other.
    whole = integers() if low is None or high is None else st.integers(int(low), int(high))
    return whole | st.floats(low, high, allow_nan=False, allow_infinity=False)


def json_values(max_leaves: int = 5) -> st.SearchStrategy[Any]:
    """Return a strategy of JSON values of every type, including null."""
    leaves = st.none() | st.booleans() | numbers() | texts()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=max_leaves,
    )


def json_objects(max_leaves: int = 5) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of JSON objects, with any names and values."""
    return st.dictionaries(texts(), json_values(max_leaves), max_size=3)


def request_ids() -> st.SearchStrategy[int | str]:
    """Return a strategy of request ids, which also serve as progress tokens."""
    return integers() | texts()


def uris() -> st.SearchStrategy[str]:
    """Return a strategy of URIs, some with an unregistered scheme, and some that a normalising parser would change."""
    part = st.text("abcXYZ019-_", min_size=1, max_size=6)
    common = st.builds("{}://{}/{}".format, st.sampled_from(["https", "file", "config"]), part, part)
    # To the protocol a URI is an opaque name, which must stay unchanged. Pydantic's `AnyUrl`, which the official SDK
    # used to use, rewrites the first of these URIs and adds a slash to the second.
    return common | st.sampled_from(["HTTP://EXAMPLE.com:80/a/../b", "https://example.com", "urn:isbn:0451450523"])


def base64_texts() -> st.SearchStrategy[str]:
    """Return a strategy of Base64 texts (RFC 4648, section 4)."""
    return st.binary(max_size=12).map(lambda data: base64.b64encode(data).decode())


def json_schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of JSON Schemas for objects, like those of tools."""
    kinds = st.sampled_from(["string", "integer", "number", "boolean", "array", "object"])
    properties = st.dictionaries(texts(), st.fixed_dictionaries({"type": kinds}), max_size=2)
    return st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={"properties": properties, "required": st.lists(texts(), max_size=2, unique=True)},
    )


def json_texts() -> st.SearchStrategy[bytes]:
    """Return a strategy of bytes that resemble JSON: fragments of JSON in any order, with any bytes between them."""
    fragments = [b"{", b"}", b"[", b"]", b",", b":", b'"', b'"id"', b'"id":1', b'"method":"x"', b'"result":{}', b"\\"]
    # Parsers disagree about some of these fragments: a number that overflows to infinity, a word that Python's parser
    # accepts by default, a byte that never occurs in UTF-8, half a character, half a surrogate pair.
    fragments += [b"1", b"-", b"1e400", b"NaN", b"null", b'"jsonrpc":"2.0"', b"\xff", b"\xe2\x82", b'"\\ud800"', b" "]
    return st.lists(st.sampled_from(fragments) | st.binary(max_size=3), max_size=12).map(b"".join)
