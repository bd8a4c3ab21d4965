"""A part of the hostile corpus: a few cases of every kind. The whole is `python -m tests.hostile`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.campaign import GROWTH, LATENCY, Victim, attack
from tests.hostile.families import FAMILIES, cases, shares, suits

SEED = 10
REQUESTS = {"hypercorn": 1500, "h11": 500, "httptools": 500}
"""By runner: those without hypercorn read bytes alike."""

pytestmark = pytest.mark.legacy


by_runner = pytest.mark.parametrize(
    "victim",
    ["hypercorn", *(pytest.param(runner, marks=pytest.mark.again) for runner in ("h11", "httptools"))],
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="module")
def victim(request: pytest.FixtureRequest) -> Iterator[Victim]:
    with Victim(request.param) as victim:
        yield victim
        # Here, as workers take tests over from one another: in a test, this might come before another one.
        assert victim.end() == 0
        assert not victim.complaints()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_case_has_the_same_bytes_each_time(family: str) -> None:
    assert cases(family, 1, 200) == cases(family, 1, 200)
    assert cases(family, 1, 200) != cases(family, 2, 200)


@pytest.mark.again
@by_runner
@pytest.mark.parametrize("family", FAMILIES)
async def test_each_case_is_answered_as_its_rule_allows_and_good_clients_are_served(
    family: str, victim: Victim
) -> None:
    drawn = cases(family, SEED, shares(REQUESTS[victim.runner])[family])
    if not (suiting := [case for case in drawn if suits(case, victim.runner)]):
        return  # HTTP/2, or lines
    report = await attack(victim.target, suiting)
    assert not report.faults, report.said
    assert not report.failures
    assert report.latencies
    assert report.latencies[-1] < LATENCY
    assert not victim.complaints() + report.complaints


@pytest.mark.again
@by_runner
async def test_nothing_is_left_of_it(victim: Victim) -> None:
    after = await victim.rest()
    for name in ("tasks", "descriptors", "sessions", "running", "listening", "http", "marks"):
        assert after[name] == victim.fresh[name], after
    assert after["rss"] - victim.fresh["rss"] < GROWTH
    assert not victim.complaints()
