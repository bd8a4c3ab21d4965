"""Every broken transport is found out, by the rule that it breaks; and, with ``-m again``, by no other."""

from __future__ import annotations

import logging

import pytest
from trio.testing import MockClock

from tests.contract.broken import BROKEN, LIMIT
from trio_mcp.testing import ContractBroken, check_transport
from trio_mcp.testing.contract.check import RULES


@pytest.fixture
def autojump_clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("others", [set(), pytest.param(RULES.keys(), marks=pytest.mark.again)], ids=["", "no other"])
@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_transport_is_found_out(
    name: str, others: set[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    rules, transport = BROKEN[name]
    with pytest.raises(ContractBroken) as caught:
        await check_transport(
            transport.pair,
            rules=others - {"large"} | rules | {"opens"},  # large takes a quarter of the time
            raw=transport.raw,
            cut=transport.cut,
            max_message_size=LIMIT,
            max_waiting=8 * 1024 * 1024,
        )
    assert caught.value.report.broken.keys() == rules, str(caught.value)


def test_every_rule_is_broken_by_a_transport() -> None:
    """But for the first, which every transport here keeps: without it, no other rule is checked."""
    assert set().union(*(rules for rules, _ in BROKEN.values())) == RULES.keys() - {"opens"}
