"""`check_transport` itself: what it reports, its traits, its bounds."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio.testing

from tests.contract.broken import BROKEN, OnlyResponses, with_halves
from trio_mcp.low_level import Link, memory_link_pair
from trio_mcp.testing import ContractBroken, check_transport


def pair_of(name: str) -> Any:
    return BROKEN[name][1].pair


async def test_a_report_says_what_was_kept_and_what_was_not_checked() -> None:
    report = await check_transport(memory_link_pair, rules={"order", "garbage"})
    assert (report.kept, dict(report.broken), dict(report.waived)) == (("order",), {}, {})
    assert report.unchecked == {"garbage": "it needs `raw=`"}
    assert str(report) == "1 rule kept, 0 broken\nnot checked: garbage: it needs `raw=`"


async def test_the_error_names_the_rule_and_says_what_happened() -> None:
    with pytest.raises(ContractBroken) as caught:
        await check_transport(pair_of("drops NUL"), rules={"controls", "order"})
    first, broken = str(caught.value).splitlines()
    assert first == "1 rule kept, 1 broken"
    assert broken.startswith(
        "broken: controls: Control characters in strings arrive unchanged, NUL among them. U+0000: "
    )
    assert isinstance(caught.value, AssertionError)


async def test_a_trait_switches_its_rule_off_and_the_report_says_so() -> None:
    report = await check_transport(pair_of("reorders"), rules={"order", "once"}, traits={"unordered"})
    assert (report.kept, report.waived) == (("once",), {"order": "unordered"})


@pytest.mark.parametrize(
    ("name", "rule", "trait"),
    [
        ("has an unbounded queue", "bounded", "no_backpressure"),
        ("does not tell the other end of a close", "end", "no_end"),
        ("has only one connection at a time", "together", "one_at_a_time"),
    ],
)
async def test_a_transport_with_a_trait_keeps_all_other_rules(
    name: str, rule: str, trait: Any, autojump_clock: trio.testing.MockClock
) -> None:
    report = await check_transport(pair_of(name), traits={trait}, max_waiting=8 * 1024 * 1024)
    assert report.waived.items() >= {rule: trait}.items()
    assert set(report.waived.values()) == {trait}


async def test_a_client_that_gets_only_responses_keeps_all_other_rules(autojump_clock: trio.testing.MockClock) -> None:
    @contextlib.asynccontextmanager
    async def pair() -> AsyncIterator[tuple[Link, Link]]:
        async with memory_link_pair(encode=True) as (client, server):
            yield with_halves(client, OnlyResponses), server

    report = await check_transport(pair, traits={"calls_only"})
    assert report.waived == {"unasked": "calls_only", "independent": "calls_only"}


async def test_a_trait_that_is_not_needed_is_a_failure() -> None:
    with pytest.raises(
        ContractBroken, match=r"order: .*'unordered' is declared, but the transport keeps the rule"
    ) as caught:
        await check_transport(memory_link_pair, rules={"order", "once"}, traits={"unordered"})
    assert caught.value.report.kept == ("once",)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"rules": {"ordered"}}, "unknown rule 'ordered'; the rules are opens, once, "),
        ({"traits": {"slow"}}, "unknown trait 'slow'; the traits are unordered, "),
    ],
)
async def test_unknown_names_are_refused(arguments: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        await check_transport(memory_link_pair, **arguments)


async def test_if_nothing_works_that_is_all_it_says() -> None:
    @contextlib.asynccontextmanager
    async def pair() -> AsyncIterator[tuple[Link, Link]]:
        raise OSError("no network")
        yield

    with pytest.raises(ContractBroken) as caught:
        await check_transport(pair, rules={"opens", "order"})
    assert caught.value.report.broken == {"opens": "it raised OSError('no network')"}
    assert caught.value.report.unchecked == {"order": "no connection works"}


@contextlib.asynccontextmanager
async def hanging(*, shield: bool) -> AsyncIterator[tuple[Link, Link]]:
    """A transport that never leaves its block."""
    async with memory_link_pair() as links:
        yield links
        with trio.CancelScope(shield=shield):
            await trio.sleep_forever()


@pytest.mark.parametrize("shield", [False, True])
async def test_a_transport_that_hangs_does_not_hang_the_check(
    shield: bool, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(
        ContractBroken,
        match=r"opens: .*(leaving the block did not end within 10|of this rule did not end within 300) seconds",
    ):
        await check_transport(partial(hanging, shield=shield))
