"""Processes that share a file and are killed or stopped lose no task: see `tests.killed_tasks`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.killed_tasks import Trial


@pytest.mark.again
async def test_no_finished_step_runs_again_when_processes_are_killed_or_stopped(tmp_path: Path) -> None:
    """`.ci/long tasks` does it with 300 tasks."""
    trial = Trial(tmp_path, seed=random.randrange(10**6))
    await trial.run()
    assert trial.faults == [], f"seed {trial.seed}: {trial.figures}"
