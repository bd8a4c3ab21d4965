"""Tasks of 2025-11-25: a healthy server that runs them breaks no rule, and each rule has its occasions."""

from __future__ import annotations

import pytest
import trio.testing

from tests.kit.mutants.server import Twin
from tests.kit.mutants.targets import in_memory
from tests.kit.mutants.tasks import TaskSession
from trio_mcp.testing.check.engine import check_server
from trio_mcp.testing.rules.catalogue import RULES

# What needs a server without tasks, what only HTTP shows, and what lines alone order.
ELSEWHERE = {"task-metadata-ignored"}
ONLY_HTTP = {"task-get-without-stream"}
ONLY_LINES = {"task-progress-ends", "task-progress-token"}


@pytest.mark.parametrize(("over", "absent"), [("lines", ONLY_HTTP), ("http", ONLY_LINES)])
async def test_a_healthy_server_with_tasks_breaks_nothing(
    over: str, absent: set[str], autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(TaskSession), over) as target:
        report = await check_server(target, revisions=["2025-11-25"], examples=300, allow_writes=True, seed=1)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    ours = {rule for rule in RULES if "task" in rule and RULES[rule].who == "server"}
    assert {outcome.rule.id for outcome in report.outcomes if outcome.status == "held"} >= ours - ELSEWHERE - absent
