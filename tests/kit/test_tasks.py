"""Tasks of 2025-11-25: a healthy server that runs them breaks no rule, and each rule has its occasions."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from tests.kit.mutants.server import Twin
from tests.kit.mutants.targets import in_memory
from tests.kit.mutants.tasks import TaskSession
from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.rules.catalogue import select

ELSEWHERE = {"task-metadata-ignored", "task-of-its-user", "task-list-of-its-user"}
"""What needs a server without tasks, or one with two users."""
ONLY = {"http": {"task-get-without-stream"}, "lines": {"task-progress-ends", "task-progress-token"}}
"""What only HTTP shows, and what only lines order."""

OURS = ("task-*", "related-task-*")

each_way = pytest.mark.parametrize("over", ONLY)


async def check(over: str, **options: Any) -> CheckReport:
    async with in_memory(Twin(TaskSession), over) as target:
        report = await check_server(target, revisions=["2025-11-25"], allow_writes=True, seed=1, **options)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    return report


@each_way
async def test_a_healthy_server_holds_the_rules_for_tasks(over: str, autojump_clock: trio.testing.MockClock) -> None:
    report = await check(over, rules=OURS, examples=40)
    held = {outcome.rule.id for outcome in report.outcomes if outcome.status == "held"}
    (elsewhere,) = (ids for way, ids in ONLY.items() if way != over)
    assert held >= {rule.id for rule in select(OURS, "server")} - ELSEWHERE - elsewhere


@pytest.mark.again
@each_way
async def test_a_healthy_server_with_tasks_breaks_nothing(over: str, autojump_clock: trio.testing.MockClock) -> None:
    assert (await check(over, examples=300, time=600.0)).ended == "complete"
