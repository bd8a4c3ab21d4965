"""Every process an interop test starts carries a mark, so that one that outlives its test is found and named."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from tests.forks import children

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "TRIO_MCP_INTEROP_TEST"


@contextmanager
def marked_environment() -> Iterator[dict[str, str]]:
    """Yield an environment for child processes, and on the way out fail if any process still carries its mark."""
    mark = uuid.uuid4().hex
    before = set(children())
    try:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        yield {**kept, MARK: mark}
    finally:
        # A child that was never waited for is a zombie, which has no environment left to carry the mark.
        leaked = {process for process in psutil.process_iter() if _carries(process, mark)}
        leaked |= set(children()) - before
        described = [repr(process) for process in leaked]
        for process in leaked:
            process.kill()
    assert not described, "processes that outlived the test"


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.environ().get(MARK) == mark)
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False
