"""Which failures our runs of the conformance suite tolerate."""

from __future__ import annotations

import pytest

from . import suite
from .suite import BARE, CHECKOUT, REQUIRED, REVISIONS, TOTALS, Check, expected_failures, judge

PASS = [Check("a", "SUCCESS", "fine"), Check("b", "INFO", "seen")]


@pytest.fixture(autouse=True)
def totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOTALS, ("server", "1"), (2, 2))
    monkeypatch.setitem(TOTALS, ("client", "1"), (0, 0))


@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_of_a_revision_may_be_expected_to_fail(revision: str) -> None:
    assert expected_failures("server", revision) == expected_failures("client", revision) == []


def test_in_the_bare_suite_one_scenario_is_expected_to_fail() -> None:
    assert expected_failures("server", BARE) == ["tasks-status-notifications"]
    assert expected_failures("client", BARE) == []


def test_what_passes_passes() -> None:
    said = judge("server", "1", {"one": PASS, "two": PASS})
    assert said == "conformance: server, 1: 2 checks passed in 2 scenarios"


@pytest.mark.parametrize("checks", [{"one": PASS}, {"one": PASS, "two": [*PASS, *PASS]}])
def test_a_suite_that_looks_at_more_or_less_than_before_fails(checks: dict[str, list[Check]]) -> None:
    with pytest.raises(pytest.fail.Exception, match="instead of"):
        judge("server", "1", checks)


def test_the_page_has_the_totals() -> None:
    page = (CHECKOUT / "docs" / "reference" / "conformance.md").read_text()
    for revision in (*REVISIONS, BARE):
        counts = [str(count) for side in ("server", "client") for count in TOTALS[side, revision]]  # type: ignore[index]
        assert f"| {' | '.join([revision, *counts])} |" in page
    for revision, required in REQUIRED.items():
        server, client = required["server"], required["client"]
        assert f"| {revision} | {server} | {server} | {client} | {client} |" in page


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED", "NEWS"])
def test_a_check_that_did_not_succeed_is_told_with_its_scenario_and_message(status: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"two: {status} c: it is broken"):
        judge("server", "1", {"one": PASS, "two": [*PASS, Check("c", status, "it is broken")]})


@pytest.mark.parametrize("checks", [[], [Check("b", "INFO", "seen")]])
def test_a_scenario_without_a_check_fails(checks: list[Check]) -> None:
    with pytest.raises(pytest.fail.Exception, match="one: the suite has checked nothing"):
        judge("server", "1", {"one": checks})


def test_an_expected_failure_passes_and_its_success_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "expected_failures", lambda side, revision: ["one"])
    judge("client", "1", {"one": [Check("c", "FAILURE", "as expected")]})
    with pytest.raises(pytest.fail.Exception, match="one: passes now; take it off"):
        judge("client", "1", {"one": PASS})


def test_no_expected_failure_excuses_a_malformed_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "expected_failures", lambda side, revision: ["one"])
    with pytest.raises(pytest.fail.Exception, match="one: FAILURE wire-schema-invalid: no such field"):
        judge("client", "1", {"one": [Check("wire-schema-invalid", "FAILURE", "no such field")]})
