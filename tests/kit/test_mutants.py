"""The kit finds faults, and only those: a mutant breaks a rule, which is found; the healthy twins break none."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
import trio

from tests.kit.mutants import careless, task_client  # noqa: F401
from tests.kit.mutants.client import Client, HttpClient, run
from tests.kit.mutants.clients import CLIENTS
from tests.kit.mutants.issuers import ISSUERS
from tests.kit.mutants.server import LEGACY, MODERN, Twin
from tests.kit.mutants.sign_in import SIGN_INS
from tests.kit.mutants.table import MUTANTS, Mutant
from tests.kit.mutants.targets import in_memory, over_sockets, process
from trio_mcp.conformance.clients import StreamClient, check_client
from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.rules.catalogue import RULES

EXAMPLES = 200
"""At most, to find a fault."""
HEALTHY = 80
"""Without a false alarm; `.ci/long kit` makes more."""
SECONDS = 60.0
"""Also on a machine that is busy: shrinking gets a third of it. The examples are what ends a check."""
MESSAGES = 6

UNTESTED: dict[str, str] = {
    "log-level-respected": "its mutants are not found within 200 examples each time",
    "missing-capability-error": "its mutants are not found within 200 examples each time",
    "stateless": "its mutants are not found within 200 examples each time",
    "stream-messages-should-relate": "its mutants are not found within 200 examples each time",
    "version-echoed": "its mutants are not found within 200 examples each time",
    "unfulfilled-input-survived": "who hangs after an unfinished round loses requests, which is found first",
    "client-task-tool-support": "the generated server has no tasks; tried in test_client_rules",
    "client-task-cancelled-by-method": "the generated server has no tasks; tried in test_client_rules",
}
"""Rules that no mutant breaks, with the reason."""


def some(names: Iterable[str], every: int) -> list[Any]:
    """Return some names as they are; of the others, a third is tried with ``-m again``, the rest with ``-m long``."""

    def marks(at: int) -> list[pytest.MarkDecorator]:
        if at % every == 0:
            return []
        return [pytest.mark.long if at % 3 else pytest.mark.again]

    return [pytest.param(name, marks=marks(at)) for at, name in enumerate(names)]


IN_MEMORY = [name for name, mutant in MUTANTS.items() if mutant.over in ("lines", "http")]

REAL = [
    "result and error over tcp",
    "progress shrinks over tcp",
    "fractional codes over tcp",
    "acknowledges late over ws",
    "structured content breaks schema over ws",
    "sends noise in frames over ws",
    "prints noise over stdio",
    "stays after the end of input over stdio",
    "skips name header over http",
    "ended session answers over http",
    "event ids of each stream over http",
    "keeps memory over a process",
    "keeps files over a process",
    "keeps looking longer over a process",
    "dies of the handshake over stdio",
]


async def check(target: Any, mutant: Mutant, **options: Any) -> CheckReport:
    settings: dict[str, Any] = {"revisions": [mutant.revision], "examples": EXAMPLES, "time": SECONDS}
    return await check_server(target, allow_writes=True, **settings | options)


def found(report: CheckReport, rule: str, also: frozenset[str], *, messages: int = MESSAGES) -> None:
    """Assert that a rule was found to be broken, and no other than those that may be."""
    broken = {outcome.rule.id: outcome.failure for outcome in report.broken}
    assert rule in broken, (report.ended, report.notes)
    assert not broken.keys() - also - {rule}
    failure = broken[rule]
    assert failure is not None
    assert failure.seen > 0
    assert failure.messages <= messages, [event.message for event in failure.transcript]


@pytest.mark.parametrize("name", some(IN_MEMORY, 30))
async def test_a_mutant_is_found_by_its_rule(name: str, autojump_clock: trio.testing.MockClock) -> None:
    mutant = MUTANTS[name]
    async with in_memory(mutant.twin(), mutant.over, name) as target:
        # If its moves alone have not found it, or only once and by chance, they try again, and then all moves do.
        for rules in ([mutant.rule], [mutant.rule], ["*"]):
            report = await check(target, mutant, rules=rules)
            if any(each.failure is not None and each.failure.seen for each in report.broken):
                break
    found(report, mutant.rule, mutant.also, messages=mutant.messages)


@pytest.mark.parametrize("name", some(REAL, 3))
async def test_a_mutant_is_found_over_real_transports(name: str) -> None:
    name, over = name.rsplit(" over ", 1)
    mutant = MUTANTS[name]
    if over in ("stdio", "a process"):
        report = await check(process(name, forked=over == "stdio"), mutant, rules=[mutant.rule])
    else:
        async with over_sockets(mutant.twin(), over) as url:
            report = await check(url, mutant, rules=[mutant.rule])
    found(report, mutant.rule, frozenset())


@pytest.mark.parametrize(
    ("over", "revision"),
    [
        pytest.param(over, revision, marks=[] if revision == MODERN else [pytest.mark.again])
        for over in ("lines", "http")
        for revision in (*LEGACY, MODERN)
        if (over, revision) != ("http", LEGACY[0])
    ],
)
async def test_the_healthy_twin_breaks_nothing(
    over: str, revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(), over) as target:
        report = await check_server(target, revisions=[revision], examples=HEALTHY, allow_writes=True)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    assert (report.ended, report.examples, report.notes) == ("complete", HEALTHY, ())


@pytest.mark.parametrize("name", some(CLIENTS, 20))
async def test_a_mutated_client_is_found_by_its_rule(name: str, autojump_clock: trio.testing.MockClock) -> None:
    mutant = CLIENTS[name]
    client = StreamClient(partial(run, mutant.habit), mutant.habit.over)
    for examples in (10, 40, EXAMPLES):
        # Virtual time, of which a client that does not answer uses much: a fault is run again only if time is left.
        report = await check_client(client, examples=examples, time=10 * SECONDS)
        if any(outcome.rule.id == mutant.rule for outcome in report.broken):
            break
    found(report, mutant.rule, mutant.also)


@pytest.mark.parametrize("client", [Client, pytest.param(HttpClient, marks=pytest.mark.again)])
async def test_a_healthy_client_breaks_nothing(client: type[Client], autojump_clock: trio.testing.MockClock) -> None:
    report = await check_client(StreamClient(partial(run, client), client.over), examples=HEALTHY)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    assert (report.ended, report.examples, report.notes) == ("complete", HEALTHY, ())


def test_each_rule_has_a_mutant_or_a_reason() -> None:
    tested = {mutant.rule for mutant in (*MUTANTS.values(), *CLIENTS.values(), *SIGN_INS.values(), *ISSUERS.values())}
    assert tested <= RULES.keys()
    assert RULES.keys() - tested == UNTESTED.keys()
