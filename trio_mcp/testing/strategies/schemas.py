"""Provides strategies of values that conform to a JSON Schema."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from trio_mcp.testing.strategies.choices import Drawn
from trio_mcp.testing.strategies.shapes import CannotGenerate
from trio_mcp.testing.strategies.values import Values

__all__ = ["CannotGenerate", "from_schema", "simplest"]


def from_schema(schema: Any, *, max_leaves: int = 30) -> st.SearchStrategy[Any]:
    """Return a strategy of values that conform to a JSON Schema.

    The strategy supports the keywords of 2020-12, and those of draft-07 that tools still use. Each value is checked
    before it is returned, including its ``format``. Defaults and examples are among the values. Without bounds in the
    schema, numbers and strings stay small: a tool may well count to the number that it gets.

    Args:
        schema: The schema, as plain data.
        max_leaves: About how many scalars a value has at most, if the schema does not require more.

    Raises:
        CannotGenerate: If no values can be made; the message says why, in one line. Draws never raise it.
    """
    return _conforming(Values(schema, max_leaves))


def simplest(schema: Any) -> Any:
    """Return the simplest value found that conforms to a JSON Schema; the same schema always gives the same value.

    Raises:
        CannotGenerate: If no value can be made, as in `from_schema`.
    """
    # The value is copied, because it may be a default or a member of an `enum`, which still belongs to the schema.
    return copy.deepcopy(Values(schema, 0).simplest)


@st.composite
def _conforming(draw: st.DrawFn, values: Values) -> Any:
    return values.draw(Drawn(draw))
