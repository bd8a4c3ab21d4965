"""The tasks extension: healthy servers and clients that have it break no rule, and each rule has its occasions."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from tests.kit.mutants.extension_tasks import TaskingSession
from tests.kit.mutants.server import MODERN, Twin
from tests.kit.mutants.targets import in_memory
from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.rules.catalogue import select

OURS = ("ext-task-*",)

each_way = pytest.mark.parametrize("over", ["lines", "http"])


async def check(over: str, twin: Twin, **options: Any) -> CheckReport:
    async with in_memory(twin, over) as target:
        report = await check_server(target, revisions=[MODERN], allow_writes=True, seed=1, **options)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    return report


@each_way
async def test_a_healthy_server_holds_the_rules_of_the_extension(
    over: str, autojump_clock: trio.testing.MockClock
) -> None:
    report = await check(over, Twin(TaskingSession), rules=OURS, examples=60)
    held = {outcome.rule.id for outcome in report.outcomes if outcome.status == "held"}
    assert held == {rule.id for rule in select(OURS, "server")}


@pytest.mark.again
@each_way
async def test_a_healthy_server_with_the_extension_breaks_nothing(
    over: str, autojump_clock: trio.testing.MockClock
) -> None:
    assert (await check(over, Twin(TaskingSession), examples=150)).ended == "complete"


async def test_a_server_without_the_extension_is_not_asked_for_tasks(autojump_clock: trio.testing.MockClock) -> None:
    """Its report says why the rules do not apply, except for those that any server may break."""
    report = await check("lines", Twin(), rules=OURS, examples=20)
    reasons = {outcome.reason for outcome in report.outcomes}
    assert {outcome.status for outcome in report.outcomes} == {"not checkable", "not exercised"}, reasons
