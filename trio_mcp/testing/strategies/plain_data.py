"""Plain JSON data: any values, and the texts that the protocol is full of."""

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

# JSON peers hold numbers as doubles: whole numbers beyond this are not portable (RFC 8259, section 6).
SAFE_INTEGER = 2**53 - 1
"""The greatest whole number that every peer holds exactly."""


def texts(max_size: int = 10) -> st.SearchStrategy[str]:
    """Any Unicode text that UTF-8 can carry."""
    # Halves of a surrogate pair are texts to Python, but can't be encoded: sending one would fail in the test, not in
    # what is tested. As escapes they are among the hostile messages.
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)


def integers() -> st.SearchStrategy[int]:
    """Whole numbers that every JSON peer holds exactly."""
    return st.integers(-SAFE_INTEGER, SAFE_INTEGER)


def numbers(low: float | None = None, high: float | None = None) -> st.SearchStrategy[int | float]:
    """JSON numbers: ints and floats, within bounds if given."""
    # Both kinds, since to JSON 1 and 1.0 are one number, and a peer may lose the difference.
    whole = integers() if low is None or high is None else st.integers(int(low), int(high))
    return whole | st.floats(low, high, allow_nan=False, allow_infinity=False)


def json_values(max_leaves: int = 5) -> st.SearchStrategy[Any]:
    """Any JSON value, null included."""
    leaves = st.none() | st.booleans() | numbers() | texts()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=max_leaves,
    )


def json_objects(max_leaves: int = 5) -> st.SearchStrategy[dict[str, Any]]:
    """Any JSON object."""
    return st.dictionaries(texts(), json_values(max_leaves), max_size=3)


def request_ids() -> st.SearchStrategy[int | str]:
    """Request ids; progress tokens are of the same kind."""
    return integers() | texts()


def uris() -> st.SearchStrategy[str]:
    """Generate URIs, including unregistered schemes and ones that a normalising parser would change."""
    part = st.text("abcXYZ019-_", min_size=1, max_size=6)
    common = st.builds("{}://{}/{}".format, st.sampled_from(["https", "file", "config"]), part, part)
    # A URI is an opaque name to the protocol, and must come back letter for letter: pydantic's `AnyUrl`, which the
    # official SDK used, adds a slash to the second and rewrites the first.
    return common | st.sampled_from(["HTTP://EXAMPLE.com:80/a/../b", "https://example.com", "urn:isbn:0451450523"])


def base64_texts() -> st.SearchStrategy[str]:
    """Bytes in base64 (RFC 4648, section 4)."""
    return st.binary(max_size=12).map(lambda data: base64.b64encode(data).decode())


def json_schemas() -> st.SearchStrategy[dict[str, Any]]:
    """JSON Schemas of an object, as tools have them."""
    kinds = st.sampled_from(["string", "integer", "number", "boolean", "array", "object"])
    properties = st.dictionaries(texts(), st.fixed_dictionaries({"type": kinds}), max_size=2)
    return st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={"properties": properties, "required": st.lists(texts(), max_size=2, unique=True)},
    )


def json_texts() -> st.SearchStrategy[bytes]:
    """Bytes that look like JSON more or less: fragments of it in any order, and anything else between them."""
    fragments = [b"{", b"}", b"[", b"]", b",", b":", b'"', b'"id"', b'"id":1', b'"method":"x"', b'"result":{}', b"\\"]
    # What parsers differ in: a number that overflows to infinity, a word that Python's parser takes by default, a byte
    # that UTF-8 never has, half a character, half a surrogate pair.
    fragments += [b"1", b"-", b"1e400", b"NaN", b"null", b'"jsonrpc":"2.0"', b"\xff", b"\xe2\x82", b'"\\ud800"', b" "]
    return st.lists(st.sampled_from(fragments) | st.binary(max_size=3), max_size=12).map(b"".join)
