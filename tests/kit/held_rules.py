"""Checks of servers that must break no rule, and which rules they have held."""

from __future__ import annotations

from typing import Any

from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.outcomes import CheckReport

__all__ = ["check_healthy", "held"]


async def check_healthy(target: Any, *revisions: str, **options: Any) -> CheckReport:
    """Check a server in some revisions, and assert that it has broken no rule."""
    report = await check_server(target, revisions=revisions, allow_writes=True, seed=1, **options)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    return report


def held(report: CheckReport) -> set[str]:
    """Return the ids of the rules that were held."""
    return {outcome.rule.id for outcome in report.outcomes if outcome.status == "held"}
