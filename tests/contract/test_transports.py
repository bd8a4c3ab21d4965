"""Every transport of the package keeps the contract: `check_transport` passes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.contract.http import HTTP
from tests.contract.transports import SERVER_ENDS, TRANSPORTS
from trio_mcp.testing import check_transport
from trio_mcp.testing.contract.check import RULES

PLACES = 20
"""Cancellations of each operation: more would take long, where there is a socket to open for each."""

EACH_TIME = {"memory", "memory, encoded"}
"""These run each time; the others take minutes, and run with ``-m again``."""

NEEDING = {rule.name for rule in RULES.values() if rule.needs is not None}


@pytest.fixture
def clock(name: str) -> trio.abc.Clock | None:
    """A clock that jumps when nothing happens, after a moment for data on its way through the kernel.

    With another process there is no telling, so the real time counts.
    """
    return None if name == "stdio" else MockClock(autojump_threshold=0.05)


def named(names: Iterable[str]) -> list[Any]:
    """Return parameters, marked for when they run."""
    marks = {name: [] if name in EACH_TIME else [pytest.mark.again] for name in names}
    for name in HTTP.keys() & marks.keys():
        marks[name].append(pytest.mark.legacy)
    return [pytest.param(name, marks=marks[name]) for name in names]


@pytest.mark.parametrize("name", named([*TRANSPORTS, *HTTP]))
def test_both_ends(name: str, tmp_path: Path, clock: trio.abc.Clock | None) -> None:
    arguments = {"places": PLACES, **(TRANSPORTS | HTTP)[name](tmp_path)}
    report = trio.run(partial(check_transport, **arguments), clock=clock)
    assert set(report.waived.values()) == set(arguments.get("traits", ()))
    assert {RULES[name].needs for name in report.unchecked} <= {"raw", "cut", "max_message_size"} - arguments.keys()


@pytest.mark.parametrize("name", named(SERVER_ENDS))
def test_the_servers_end(name: str, tmp_path: Path, clock: trio.abc.Clock | None) -> None:
    arguments: dict[str, Any] = {"pair": TRANSPORTS[name](tmp_path)["pair"], **SERVER_ENDS[name](tmp_path)}
    trio.run(partial(check_transport, rules=NEEDING, **arguments), clock=clock)
