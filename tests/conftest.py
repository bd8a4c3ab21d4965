"""Settings for every test."""

from __future__ import annotations

import compileall
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import effort  # noqa: F401 - Hypothesis's profiles must be there when its plugin looks for them
from tests.waiting import allow_ctrl_c, limited
from trio_mcp.http.server.options import RUNNERS

APART = {
    "published": "the published JSON Schemas, in ../shared",
    "root": "root",
    "nginx": "nginx",
    "redis": "redis-server",
    "chromium": "Chromium",
    "xvfb": "Xvfb, and a Python with tkinter",
    "curl": "curl",
    "again": "more time: whole suites once more, over each runner or without the legacy era; frameworks",
    "long": "still more time: every combination",
}
"""Marker -> what these tests need that a fresh clone may not have. They run only where ``-m`` names the marker."""

PEERS = {
    "interop": "other people's programs, from the registries",
    "conformance": "the official conformance suite, from npm's registry",
}
"""The same for what is installed as it is needed. They run wherever there is an ``-m`` that does not exclude them."""


ENDLESS = 300
"""Seconds after which a test waits for what never comes; chosen: ten times what the longest takes on a busy machine."""
ENDLESS_APART = 3600
"""The same for what runs a whole suite, or installs the packages of others first; chosen."""

allow_ctrl_c()


def per_runner() -> list[Any]:
    """Return the runners as parameters, all but the default one apart."""
    return [name if name == RUNNERS[0] else pytest.param(name, marks=pytest.mark.again) for name in RUNNERS]


def places(*marks: pytest.MarkDecorator) -> list[Any]:
    """Return where processes keep what they share, as parameters: a file, and an engine, which may get more marks."""
    return ["file", pytest.param("engine", marks=[pytest.mark.redis, *marks])]


ROOT = Path(__file__).resolve().parents[1]

CPUS = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
"""Those that this process may use."""


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"left out: what needs {what} (-m {marker})" for marker, what in left_out(config).items()]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what collecting makes, which stays until the end, out of the search for garbage: there and in the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    out = left_out(config)
    items[:] = [item for item in items if not any(item.get_closest_marker(marker) for marker in out)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End a test that waits without an end, such as for another process, where it stands: a net, and no deadline."""
    apart = any(item.get_closest_marker(marker) for marker in (*APART, *PEERS))
    with limited(ENDLESS_APART if apart else ENDLESS):
        return (yield)


def left_out(config: pytest.Config) -> dict[str, str]:
    chosen = config.option.markexpr
    return {marker: what for marker, what in APART.items() if marker not in chosen} | ({} if chosen else PEERS)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run folders in a process per CPU and two more, unless ``-n`` says otherwise.

    Single files, and runs with ``-s``, run in this process. Not in `addopts`: there it would stop ``-p no:xdist``.
    """
    chosen = config.option
    if "PYTEST_XDIST_WORKER" in os.environ:  # a worker, or what a test runs in one: it starts no workers of its own
        return
    folders = all(Path(path).is_dir() for path in config.args)
    if getattr(chosen, "numprocesses", 0) is None and not chosen.usepdb and chosen.capture != "no" and folders:
        # Two more, since the tests wait for other programs a third of the time. Each collects all the tests, so many
        # would wait for themselves.
        chosen.numprocesses = min(CPUS + 2, 8)
        # Once for all processes: where Python is told to write no bytecode, each one that a test starts would compile
        # all that it imports.
        compileall.compile_dir(ROOT / "trio_mcp", quiet=2)
        chosen.dist = "worksteal"  # a worker that has nothing to do takes half of what another one has left
