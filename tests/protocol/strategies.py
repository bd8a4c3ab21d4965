"""Strategies for envelopes, and for hostile JSON texts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.strategies import json_objects, json_values, request_ids, texts
from trio_mcp.jsonrpc.messages import Batch, ErrorData, ErrorResponse, Notification, Request, Response

__all__ = ["batches", "envelopes", "json_texts", "messages"]


def messages() -> st.SearchStrategy[Any]:
    """Any single message."""
    params = st.none() | json_objects()
    errors = st.builds(ErrorData, st.integers(-(2**31), 2**31), texts(), st.none() | json_values())
    return st.one_of(
        st.builds(Request, request_ids(), texts(), params),
        st.builds(Notification, texts(), params),
        st.builds(Response, request_ids(), json_objects()),
        st.builds(ErrorResponse, st.none() | request_ids(), errors),
    )


def batches() -> st.SearchStrategy[Batch]:
    """Any batch of messages."""
    return st.lists(messages(), min_size=1, max_size=4).map(lambda items: Batch(tuple(items)))


def json_texts() -> st.SearchStrategy[bytes]:
    """Bytes that look like JSON more or less: fragments of it in any order, and anything else between them."""
    fragments = [b"{", b"}", b"[", b"]", b",", b":", b'"', b'"id"', b'"id":1', b'"method":"x"', b'"result":{}', b"\\"]
    fragments += [b"1", b"-", b"1e400", b"NaN", b"null", b'"jsonrpc":"2.0"', b"\xff", b"\xe2\x82", b'"\\ud800"', b" "]
    return st.lists(st.sampled_from(fragments) | st.binary(max_size=3), max_size=12).map(b"".join)


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """A JSON object as a peer sends it: members in any order, the word ``id`` all over its content."""
    inner = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(0, 99)
        | st.sampled_from(["id", '"id":7', '{"id":7}', ',"id":7}', "é€😀"]),
        lambda deeper: (
            st.lists(deeper, max_size=3)
            | st.dictionaries(st.sampled_from(["id", "a", "method", "result", 'x"id', "ü"]), deeper, max_size=3)
        ),
        max_leaves=8,
    )
    content = st.dictionaries(st.sampled_from(["id", "a", "b", "_meta"]), inner, max_size=3)
    members: dict[str, Any] = {"jsonrpc": "2.0", "id": draw(st.integers(-(10**6), 10**6) | texts())}
    if draw(st.booleans()):
        members |= {"method": draw(texts()), "params": draw(content)}
    else:
        members["result"] = draw(content)
    return {key: members[key] for key in draw(st.permutations(sorted(members)))}
