"""`check_stores`: check stores against the rules of their contract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import attrs
import trio

from trio_mcp._checks import check_seconds
from trio_mcp.stores.contract import Stores
from trio_mcp.testing.stores import events, leases, members, sessions, sharing, tasks
from trio_mcp.testing.stores.rule import PairOfStores, StoreFault, StoreRule

__all__ = ["STORE_RULES", "StoresBroken", "StoresReport", "check_stores"]

StoresFactory: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Stores, Stores]]]

# The rules are collected and not listed, so that a new one can't be left out by mistake.
STORE_RULES: Final = {
    each.name: each
    for subject in (tasks, leases, sharing, events, members, sessions)
    for each in vars(subject).values()
    if isinstance(each, StoreRule)
}
"""Every rule of the contract of stores, by name."""


@attrs.frozen
class StoresReport:
    """The result of `check_stores`.

    Attributes:
        kept: The names of the rules that the stores keep.
        broken: For each rule that the stores break, by name, a description of what happened.
    """

    kept: tuple[str, ...]
    broken: Mapping[str, str]

    def __str__(self) -> str:
        count = len(self.kept)
        lines = [f"{count} rule{'s' * (count != 1)} kept, {len(self.broken)} broken"]
        lines += [f"broken: {name}: {STORE_RULES[name].sentence}. {what}" for name, what in self.broken.items()]
        return "\n".join(lines)


class StoresBroken(AssertionError):
    """Raised when stores break their contract; the message names each broken rule, with what happened.

    Attributes:
        report: The report of the check.
    """

    def __init__(self, report: StoresReport) -> None:
        super().__init__(str(report))
        self.report = report


async def check_stores(
    factory: StoresFactory,
    *,
    rules: Collection[str] | None = None,
    lease: float = 0.2,
    timeout: float = 10.0,
) -> StoresReport:
    """Check that stores fulfil the contract of `Stores`, one rule after another.

    Args:
        factory: Returns an async context manager that yields two open stores on the same data, as two processes would
            have them, and closes them when its block ends. It is called for each rule, each time with empty data. For
            stores that only one process can use, both may be the same object.
        rules: The names of the rules to check; all of them by default.
        lease: Seconds of the leases that the rules let expire; more than any call takes.
        timeout: Seconds that the check of one rule may take.

    Returns:
        The report, with all the rules that were checked.

    Raises:
        StoresBroken: If the stores break a rule.
        TypeError, ValueError: If a rule is unknown, or a time is invalid.

    If the call is cancelled, the rule being checked is cancelled, and its stores are closed.
    """
    check_seconds("lease", lease, finite=True)
    check_seconds("timeout", timeout)
    if unknown := set(rules or ()) - set(STORE_RULES):
        raise ValueError(f"unknown rule {min(unknown)!r}; the rules are {', '.join(STORE_RULES)}")
    kept: list[str] = []
    broken: dict[str, str] = {}
    await trio.lowlevel.checkpoint()
    for name, rule in STORE_RULES.items():
        if rules is not None and name not in rules:
            continue
        trouble = await _trouble(rule, factory, lease, timeout)
        if trouble is None:
            kept.append(name)
        else:
            broken[name] = trouble
    report = StoresReport(tuple(kept), broken)
    if broken:
        raise StoresBroken(report)
    return report


async def _trouble(rule: StoreRule, factory: StoresFactory, lease: float, timeout: float) -> str | None:
    """Check a rule, and return a description of how the stores break it, or None if they keep it."""
    try:
        with trio.fail_after(timeout):
            async with factory() as (one, two):
                await rule.check(PairOfStores(one, two, lease))
    # No more general class of exceptions is caught: Ctrl-C and cancellations are not the fault of the stores.
    except Exception as exc:
        return _told(exc, timeout)
    return None


def _told(exc: BaseException, timeout: float) -> str:
    # The nurseries of the rules wrap exceptions in groups, which say nothing about the stores.
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    if isinstance(exc, trio.TooSlowError):
        return f"the check of this rule did not end within {timeout:g} seconds"
    return str(exc) if isinstance(exc, StoreFault) else f"it raised {exc!r}"
