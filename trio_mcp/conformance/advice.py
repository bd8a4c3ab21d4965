"""Advice at the end of a report, on what no rule is about: what a model reads, and what its API refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trio_mcp.conformance.facts import Facts
from trio_mcp.schema.dialects import DIALECT_NAMES, Fate, refusals
from trio_mcp.schema.validator import SchemaError

__all__ = ["advice_on", "advice_on_dialects", "advice_on_sizes"]

MOST_SHOWN: Final = 5
"""How many tools a piece of advice names (an arbitrary choice)."""


def advice_on(facts: Facts) -> tuple[str, ...]:
    """Return the advice for a server."""
    return (*advice_on_sizes(facts.tool_sizes), *advice_on_dialects(facts.tools))


def advice_on_sizes(sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return how much of a model's attention the tools take, by tool; nothing if there are none.

    Args:
        sizes: The bytes of each tool, by its name; the largest first.
    """
    if not sizes:
        return ()
    largest = list(sizes.items())[:MOST_SHOWN]
    shown = ", ".join(f"{name[:100]} {size:,}" for name, size in largest)
    rest = len(sizes) - len(largest)
    more = f", and {rest} more {sum(sizes.values()) - sum(dict(largest).values()):,}" if rest else ""
    return (f"a model reads all tools before it calls one; they take {sum(sizes.values()):,} bytes: {shown}{more}",)


def advice_on_dialects(tools: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return which tools the API of a vendor can't take whole, however a host converts them; one piece for a dialect.

    What a host can say in another form is left out: nearly every schema has some of that.
    """
    return tuple(advice for dialect in DIALECT_NAMES for advice in _on_dialect(dialect, tools))


def _on_dialect(dialect: Any, tools: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lost: dict[str, list[str]] = {}
    for name, tool in tools.items():
        schema = tool.get("inputSchema")
        try:
            found = refusals(schema, dialect) if isinstance(schema, dict) else []
        except SchemaError:  # the rules say what is wrong with it
            continue
        if constructs := sorted({each.construct for each in found if each.fate is not Fate.REWRITTEN}):
            lost[name] = constructs
    if not lost:
        return []
    shown = "; ".join(f"{name[:100]}: {', '.join(lost[name])}" for name in list(lost)[:MOST_SHOWN])
    more = f"; and {len(lost) - MOST_SHOWN} more" if len(lost) > MOST_SHOWN else ""
    return [
        f"the dialect {dialect} can't say all that the schemas of {len(lost)} of {len(tools)} tools say: {shown}{more}"
    ]
