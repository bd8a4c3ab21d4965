"""A run of the tests that a shell has started in the background, and tests that wait without an end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import limited

ROOT = Path(__file__).resolve().parents[1]
PRESSES = "tests/test_interruptions.py::test_ctrl_c_while_a_task_starts_and_is_cancelled"


@pytest.mark.again
@pytest.mark.parametrize("processes", [0, 1])
def test_a_run_in_the_background_of_a_shell_has_its_ctrl_c(processes: int) -> None:
    """There SIGINT is ignored from the start (POSIX, 2.11), as after this `trap`: tests that send it would wait."""
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(processes), PRESSES]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *pytest_], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout


def test_a_wait_for_a_process_without_an_end_fails_and_ends_the_process() -> None:
    # The process tells this one that the time is up, once this one waits for it.
    script = "read go; kill -ALRM $PPID; exec sleep 1000"
    with (
        pytest.raises(pytest.fail.Exception, match="waited for 500 seconds"),
        limited(500),
        subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE) as process,  # whose end waits for it as well
    ):
        process.communicate(b"go\n")
    assert process.returncode == -signal.SIGKILL


def test_the_time_begins_again_for_what_leaves_and_is_that_of_the_test_around_afterwards() -> None:
    around = signal.getitimer(signal.ITIMER_REAL)
    with limited(1000, cleanup=7):
        left, again = signal.getitimer(signal.ITIMER_REAL)
        assert 300 < left <= 1000
        assert again == 7
    left, again = signal.getitimer(signal.ITIMER_REAL)
    assert left <= around[0]
    assert again == around[1] > 0
