"""What our runs of the conformance suite let pass, and what they don't."""

from __future__ import annotations

import pytest

from . import suite
from .suite import Check, expected_failures, judge

PASS = [Check("a", "SUCCESS", "fine"), Check("b", "INFO", "seen")]


def test_only_authorization_may_be_expected_to_fail() -> None:
    assert expected_failures("server") == []
    assert all(scenario.startswith("auth/") for scenario in expected_failures("client"))


def test_what_passes_passes() -> None:
    judge("server", {"one": PASS, "two": PASS})


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED", "NEWS"])
def test_a_check_that_did_not_succeed_is_told_with_its_scenario_and_message(status: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"two: {status} c: it is broken"):
        judge("server", {"one": PASS, "two": [*PASS, Check("c", status, "it is broken")]})


@pytest.mark.parametrize("checks", [[], [Check("b", "INFO", "seen")]])
def test_a_scenario_without_a_check_fails(checks: list[Check]) -> None:
    with pytest.raises(pytest.fail.Exception, match="one: the suite has checked nothing"):
        judge("server", {"one": checks})


def test_an_expected_failure_passes_and_its_success_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "expected_failures", lambda side: ["one"])
    judge("client", {"one": [Check("c", "FAILURE", "as expected")]})
    with pytest.raises(pytest.fail.Exception, match="one: passes now; remove it from"):
        judge("client", {"one": PASS})
