"""Strategies that only the tests of this project need."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import trio_mcp.types
from trio_mcp.testing.strategies.plain_data import texts
from trio_mcp.types._base import WireModel, class_span


def constructs(revision: str) -> list[type[WireModel]]:
    """Return the exported models of a revision, sorted by name."""
    exported = {getattr(trio_mcp.types, name) for name in trio_mcp.types.__all__}
    models = [each for each in exported if isinstance(each, type) and issubclass(each, WireModel)]
    return sorted((each for each in models if revision in class_span(each)), key=lambda each: each.__name__)


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a JSON-RPC message with its members in any order, and the word ``id`` in many places."""
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
