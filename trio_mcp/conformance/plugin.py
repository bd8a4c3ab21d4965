"""Conformance checks as pytest tests: one call of a function makes a test for each rule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import pytest
import trio
import trio.testing

from trio_mcp._keywords import refuse_unknown
from trio_mcp._settings import completed
from trio_mcp.client.targets import Servable
from trio_mcp.conformance.baseline import read_baseline
from trio_mcp.conformance.clients import check_client
from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.issuers import check_issuers
from trio_mcp.conformance.options import ClientCheckOptions, IssuerCheckOptions, ServerCheckOptions
from trio_mcp.conformance.outcomes import CheckReport, Outcome
from trio_mcp.conformance.report.table import failure_lines
from trio_mcp.conformance.report.view import problem_of
from trio_mcp.conformance.rules.catalogue import SIDES, select
from trio_mcp.conformance.rules.model import Rule

__all__ = ["conformance_tests"]


CHECKS: Final[Mapping[str, tuple[Callable[..., Any], Any]]] = {
    "server": (check_server, ServerCheckOptions),
    "client": (check_client, ClientCheckOptions),
    "issuer": (check_issuers, IssuerCheckOptions),
}
"""The function that checks each side, and its options."""


def conformance_tests(
    target: Any = None,
    *,
    fixture: str | None = None,
    side: Literal["server", "client", "issuer"] = "server",
    rules: Sequence[str | Rule] | None = None,
    baseline: str | Path | Collection[str] = (),
    **options: Any,
) -> Callable[..., None]:
    """Return a test function that pytest runs once for each rule: ``test_server = conformance_tests(target)``.

    The target is checked once, when the first of these tests runs, for the rules that are selected (``-k``). A test
    fails if its rule is a MUST and is broken, and shows the smallest exchange that breaks it. If the broken rule is a
    SHOULD, or is in the baseline, the failure is an expected one. A test is skipped, with the reason, if its rule had
    no occasion or can't be checked. If the target died, or the check was cut short, the tests that would otherwise pass
    fail instead, and say why. With pytest-xdist each worker checks the target for the tests that it runs.

    A `Server` is checked in memory, on a virtual clock.

    Args:
        target: A target of `check_server`, `check_client` or `check_issuers`.
        fixture: The name of a fixture that returns the target, in place of ``target``.
        side: Whether the target is a server or a client, or ``issuer``: a protected server, whose authorization
            servers are checked.
        rules: The rules to check, as in `check_server`; all by default.
        baseline: The path of a baseline, or the ids of rules that are known to be broken.
        options: Further options of `check_server`, `check_client` or `check_issuers`.

    Raises:
        TypeError: If neither or both of ``target`` and ``fixture`` are given, or an option is unknown.
        ValueError: If a rule is unknown, an option is invalid, or the baseline can't be read.
    """
    if (target is None) == (fixture is None):
        raise TypeError("conformance_tests() takes exactly one of target and fixture")
    # The arguments are checked at import, so that a misspelt rule or option fails the collection, and not one test in
    # the middle of a run.
    chosen = select(rules, *SIDES[side])
    check, kind = CHECKS[side]
    refuse_unknown(conformance_tests, options, kind)
    completed(kind, options)
    known = set(read_baseline(baseline)) if isinstance(baseline, (str, Path)) else set(baseline)
    run = _Run(partial(check, **options), chosen, known)

    # The test is not an async function because it must run with any plugin for async tests, and without one.
    @pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in chosen])
    def test(rule: Rule, request: pytest.FixtureRequest) -> None:
        # Each test requests the target, because any of them may be the first to run. A fixture that starts a server
        # should have module scope; otherwise each test starts one.
        found = target if fixture is None else request.getfixturevalue(fixture)
        _tell(run.outcome(rule, found, request))

    return test


class _Run:
    """The one check that is shared by all tests from a call of `conformance_tests`."""

    def __init__(self, check: Callable[..., Any], rules: Sequence[Rule], known: set[str]) -> None:
        self._check = check
        self._rules = rules
        self._known = known
        self._outcomes: dict[str, Outcome] | None = None
        self._doubts = ""
        self._problem: str | None = None

    def outcome(self, rule: Rule, target: Any, request: pytest.FixtureRequest) -> Outcome:
        """Return the outcome of a rule; the first call runs the check."""
        # A failed check is remembered, too: otherwise each rule would wait again for a target that can't be reached.
        if self._outcomes is None and self._problem is None:
            # Only the selected rules are checked: fewer rules need fewer kinds of traffic.
            selected = {
                item.callspec.id
                for item in request.session.items
                if isinstance(item, pytest.Function) and item.function is request.function
            }
            self._run(target, [each for each in self._rules if each.id in selected | {rule.id}])
        if self._problem is not None or self._outcomes is None:
            pytest.fail(f"the target could not be checked: {self._problem}", pytrace=False)
        outcome = self._outcomes[rule.id]
        if outcome.status == "held" and self._doubts:
            pytest.fail(f"no failure of this rule was seen, but the result is undecided: {self._doubts}", pytrace=False)
        return outcome

    def _run(self, target: Any, rules: Sequence[str | Rule]) -> None:
        # In memory nothing waits for the outside world, so time can jump: the deadlines of a check then cost nothing.
        clock = trio.testing.MockClock(autojump_threshold=0) if isinstance(target, Servable) else None
        try:
            report: CheckReport = trio.run(partial(self._check, target, rules=rules), clock=clock)
        # Any exception is caught: it concerns every rule, so each test reports it.
        except Exception as exc:
            self._problem = str(exc) or type(exc).__name__
        else:
            report = report.knowing(self._known)
            self._outcomes = {each.rule.id: each for each in report.outcomes}
            self._doubts = "; ".join(report.doubts)


def _tell(outcome: Outcome) -> None:
    """End a test as the outcome of its rule requires: it passes, fails or is skipped."""
    match outcome.status:
        case "held":
            return
        case "broken" if not outcome.fails:
            # An `xfail` marker can't be used, because it would have to be set before the check has run.
            pytest.xfail(f"{outcome.excuse}: {problem_of(outcome)}")
        case "broken":
            # A traceback would lead into the kit and not into the target.
            pytest.fail("\n".join(failure_lines(outcome)), pytrace=False)
        case _:
            pytest.skip(f"{outcome.status}: {outcome.reason}")
