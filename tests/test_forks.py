"""Processes that are forks end when those that have started them want it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
import trio

from tests import forks
from tests.waiting import eventually


@pytest.mark.parametrize(
    "signals", [[], [signal.SIGSTOP], [signal.SIGSTOP, signal.SIGCONT]], ids=["runs", "stopped", "goes on"]
)
async def test_a_fork_ends_with_its_stand_in_also_after_it_was_stopped(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)\n")
    stand_in = await trio.lowlevel.open_process(forks.command(str(program), *forks.LOADED), stdout=-1)
    assert stand_in.stdout is not None
    fork = psutil.Process(int(await stand_in.stdout.receive_some()))
    for each in signals:
        os.kill(fork.pid, each)
        await eventually(lambda: (fork.status() == psutil.STATUS_STOPPED) is (each is signal.SIGSTOP))  # noqa: B023
    stand_in.kill()
    await stand_in.wait()
    await eventually(lambda: not fork.is_running())
