"""`check_transport`: checks a transport against every rule of the contract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import attrs
import outcome
import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.testing.contract import cancelling, delivery, ending, framing, lifetime, pressure
from trio_mcp.testing.contract.rule import TRAITS, ContractRule, Trait
from trio_mcp.testing.contract.stage import Cut, Pair, Raw, Stage

__all__ = ["RULES", "ContractBroken", "ContractReport", "check_transport"]

# The rules are collected, not listed, so that a new one can't be left out by mistake.
RULES: Final = {
    each.name: each
    for subject in (delivery, framing, pressure, ending, lifetime, cancelling)
    for each in (*vars(subject).values(), *getattr(subject, "CONTENT", ()))
    if isinstance(each, ContractRule)
}
"""Every rule of the contract, by name."""

FIRST: Final = RULES["opens"]
"""The rule that must hold before any other can be checked: a connection opens and carries a request."""

AT_MOST: Final = 30
"""The maximum time that the check of one rule may take, as a multiple of the timeout. An arbitrary choice."""


@attrs.frozen
class ContractReport:
    """The result of `check_transport`.

    Attributes:
        kept: The names of the rules that the transport keeps.
        broken: The names of the rules that the transport breaks, each with what happened.
        waived: The names of the rules that the transport breaks but need not keep, each with the trait that excuses it.
        unchecked: The names of the rules that were not checked, each with the reason.
    """

    kept: tuple[str, ...]
    broken: Mapping[str, str]
    waived: Mapping[str, str]
    unchecked: Mapping[str, str]

    def __str__(self) -> str:
        count = len(self.kept)
        lines = [f"{count} rule{'s' * (count != 1)} kept, {len(self.broken)} broken"]
        lines += [f"broken: {name}: {RULES[name].sentence}. {what}" for name, what in self.broken.items()]
        lines += [f"waived: {name}, by the trait {trait!r}" for name, trait in self.waived.items()]
        lines += [f"not checked: {name}: {why}" for name, why in self.unchecked.items()]
        return "\n".join(lines)


class ContractBroken(AssertionError):
    """Raised when a transport breaks the contract; the message names each broken rule, with what happened.

    Attributes:
        report: The report of the check.
    """

    def __init__(self, report: ContractReport) -> None:
        super().__init__(str(report))
        self.report = report


async def check_transport(
    pair: Pair,
    *,
    raw: Raw | None = None,
    cut: Cut | None = None,
    traits: Collection[Trait] = (),
    rules: Collection[str] | None = None,
    frame: Callable[[bytes], bytes] = lambda text: text + b"\n",
    max_message_size: int | None = None,
    max_waiting: int = 64 * 1024 * 1024,
    places: int = 100,
    timeout: float = 10.0,
) -> ContractReport:
    """Check that a transport fulfils the contract of a link.

    ``pair``, ``raw`` and ``cut`` each return an async context manager that opens a new connection, and closes it when
    its block ends. They are called again and again, and for some rules several connections are open at once. Their own
    code counts as part of the transport: if one opens a nursery, for example, that nursery wraps exceptions raised in
    the block, which breaks a rule.

    Args:
        pair: Yields the two ends of a connection, as links: the client's, then the server's.
        raw: Yields a link, and the stream at the other end of its connection, to which bytes are written.
        cut: Yields a link, and a function, sync or async, that destroys its connection as a crash would.
        traits: The promises that the transport does not make. The rules from which a trait excuses it are still
            checked: if the transport keeps one of them and breaks none, the trait counts as wrong.
        rules: The names of the rules to check; all of them by default.
        frame: Turns a JSON text into the bytes that carry it over the raw stream; by default a line.
        max_message_size: The longest message that the link from ``raw`` accepts, in bytes; it should be small, so that
            a message over the limit is sent quickly.
        max_waiting: How many bytes may wait between a writer and a reader that does not read.
        places: The maximum number of steps at which each operation is cancelled. If an operation takes more steps, the
            cancellations are spread over them.
        timeout: How many seconds anything that must happen may take, on Trio's clock: with a `MockClock`, a hang takes
            no real time.

    Raises:
        ContractBroken: If the transport breaks a rule, or has a trait that it does not need.
        ValueError: If a rule or trait is unknown.
    """
    _known("rule", rules or (), RULES)
    _known("trait", traits, TRAITS)
    stage = Stage(
        pair,
        raw,
        cut,
        frame=frame,
        traits=frozenset(traits),
        timeout=timeout,
        places=places,
        max_waiting=max_waiting,
        max_message_size=max_message_size,
    )
    chosen = [rule for name, rule in RULES.items() if rules is None or name in rules]
    # `max_message_size` counts as given only together with `raw`: its rule needs a stream to feed.
    given = {"raw": raw, "cut": cut, "max_message_size": raw and max_message_size}
    kept: list[str] = []
    broken: dict[str, str] = {}
    waived: dict[str, str] = {}
    unchecked: dict[str, str] = {}
    # `FIRST` is checked even if it was not chosen: if nothing opens, each rule would run into its timeouts and blame
    # something else.
    if (trouble := await _trouble(FIRST, stage)) is not None:
        broken[FIRST.name] = trouble
        unchecked = {rule.name: "no connection works" for rule in chosen if rule is not FIRST}
        chosen = []
    for rule in chosen:
        if rule.needs is not None and given[rule.needs] is None:
            unchecked[rule.name] = f"it needs `{rule.needs}=`"
        elif (trouble := await _trouble(rule, stage)) is None:
            kept.append(rule.name)
        elif rule.unless in stage.traits:
            waived[rule.name] = str(rule.unless)
        else:
            broken[rule.name] = trouble
    for trait in traits:
        # A trait may excuse a transport from several rules, and is needed if one of them is broken. If `rules` selects
        # none of them, nothing is known about the trait.
        if trait not in waived.values():
            needless = [name for name in kept if RULES[name].unless == trait]
            broken |= dict.fromkeys(
                needless, f"the trait {trait!r} is declared, but the transport keeps the rule: remove the trait"
            )
            kept = [name for name in kept if name not in needless]
    report = ContractReport(tuple(kept), broken, waived, unchecked)
    if broken:
        raise ContractBroken(report)
    return report


def _known(kind: str, names: Collection[str], known: Collection[str]) -> None:
    if unknown := set(names) - set(known):
        raise ValueError(f"unknown {kind} {min(unknown)!r}; the {kind}s are {', '.join(known)}")


# --- one rule ---------------------------------------------------------------------------------------------------------


async def _trouble(rule: ContractRule, stage: Stage) -> str | None:
    """Check a rule, and return a description of how the transport breaks it, or None if it keeps the rule."""
    stage.found.clear()
    raised: list[Exception] = []
    over = trio.Event()
    tasks: list[trio.lowlevel.Task] = []

    async def check(scope: trio.CancelScope) -> None:
        tasks.append(trio.lowlevel.current_task())
        with scope:
            try:
                await rule.check(stage)
            # No more general class of exceptions is caught: Ctrl-C and cancellations are not the transport's fault, and
            # must propagate.
            except Exception as exc:
                raised.append(exc)
        # The event is set outside the scope, so that it is also set if the scope was cancelled.
        over.set()

    # The rule is checked in a separate task, so that the check can be given up.
    async with background_nursery() as nursery:
        nursery.start_soon(check, scope := trio.CancelScope())
        with trio.move_on_after(AT_MOST * stage.timeout):
            await over.wait()
        if not over.is_set():
            stage.broken(f"the check of this rule did not end within {AT_MOST * stage.timeout:g} seconds")
            scope.cancel("check_transport gives up")
        while not over.is_set():
            with trio.move_on_after(stage.timeout):
                await over.wait()
            if not over.is_set():
                # The exception is raised again if need be, because there may be a shield within the shield, or a loop
                # that catches it.
                _wrest(tasks[0])
    # The first finding is the most informative; later ones may follow from it.
    return next(iter([*stage.found, *map(_told, raised)]), None)


def _wrest(task: trio.lowlevel.Task) -> None:
    """Raise an exception in a cancelled task, or in tasks that it waits for, wherever a shielded wait has not ended."""
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    for child in children:
        _wrest(child)
    # Only tasks that wait for no other task are woken: a nursery's own wait for its tasks must not be disturbed. This
    # leaves whatever the task was waiting on in an inconsistent state, but the transport is broken, and would otherwise
    # hang the whole program.
    if not children:
        error = TimeoutError("a shielded wait did not end, so check_transport ended it")
        trio.lowlevel.reschedule(task, outcome.Error(error))


def _told(exc: BaseException) -> str:
    # The rules' own nurseries wrap what is raised in them, which says nothing about the transport.
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return f"it raised {exc!r}"
