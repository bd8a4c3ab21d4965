"""Values that conform to a JSON Schema, or break one keyword of it."""

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

    It knows the keywords of 2020-12, and those of draft-07 that tools still use. Each value is checked before it is
    given out, ``format`` included. Defaults and examples are among the values. Without bounds in the schema, numbers
    and texts stay small: a tool may well count to the number that it is given.

    Args:
        schema: The schema, as plain data.
        max_leaves: About how many scalars a value has at most, if the schema does not demand more.

    Raises:
        CannotGenerate: If no values can be made; in one line, why. Never when it is drawn from.
    """
    return _conforming(Values.of(schema, max_leaves))


def simplest(schema: Any) -> Any:
    """Return the simplest value found that conforms to a JSON Schema; always the same one.

    Raises:
        CannotGenerate: If no value can be made, as in `from_schema`.
    """
    # A copy, since the value may be a default or a member of an `enum`, which belongs to the schema.
    return copy.deepcopy(Values.of(schema, 0).simplest)


@st.composite
def _conforming(draw: st.DrawFn, values: Values) -> Any:
    return values.draw(Drawn(draw))
