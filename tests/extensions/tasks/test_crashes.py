"""Real processes that share a file, and are killed or stopped: see `tests.killed_tasks`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.killed_tasks import Trial


@pytest.mark.again
async def test_no_step_is_lost_or_done_twice_when_processes_are_killed_or_stopped(tmp_path: Path) -> None:
    trial = Trial(tmp_path, seed=random.randrange(10**6))
    await trial.run()
    assert trial.faults == [], f"seed {trial.seed}"
