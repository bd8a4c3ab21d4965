"""The supervisor, with children that start in milliseconds: deaths, silence, signals, and what it says of each."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import attrs
import psutil
import pytest
import trio

from tests.waiting import eventually
from trio_mcp._nursery import background_nursery
from trio_mcp.http.serve import listening
from trio_mcp.server.processes import children, slots, supervisor
from trio_mcp.server.processes.children import Launcher, RunningClock
from trio_mcp.server.processes.supervisor import Supervisor

TINY = Path(__file__).with_name("tiny.py")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "TICK", 0.05)
    monkeypatch.setattr(slots, "PAUSES", (0.01, 0.02, 0.03))
    monkeypatch.setattr(children, "EXTRA", 0.3)


@attrs.define
class Crew:
    """A supervisor that runs, and what can be seen of it.

    Attributes:
        said: What it has printed.
        status: What it has returned.
    """

    folder: Path
    said: Callable[[], str]
    status: int | None = None

    def become(self, fault: str) -> None:
        """Say what the next children do; see tiny.py."""
        (self.folder / "fault").write_text(fault)

    def started(self) -> list[list[str]]:
        """Return number, id and first line of each child, in the order of their starts."""
        ledger = self.folder / "ledger"
        return [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []

    def pids(self) -> list[int]:
        return [int(pid) for _, pid, _ in self.started()]

    async def until_said(self, pattern: str) -> re.Match[str]:
        return await eventually(lambda: re.search(pattern, self.said()))


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    text = ""

    def read() -> str:
        nonlocal text
        text += capfd.readouterr().err
        return text

    return read


@asynccontextmanager
async def crew_of(
    count: int, folder: Path, said: Callable[[], str], fault: str = "ready", grace: float = 0.2
) -> AsyncIterator[Crew]:
    """Run a supervisor for the duration of a block, then end it with SIGTERM unless it has ended."""
    made = Crew(folder, said)
    made.become(fault)
    command = [sys.executable, "-I", "-S", str(TINY), str(folder / "ledger"), str(folder / "fault")]
    ended = trio.Event()
    gc.collect()  # what earlier tests have left open
    before = len(os.listdir("/proc/self/fd"))

    async def run() -> None:
        made.status = await Supervisor("desk", "http://there/mcp", Launcher(command, [], grace), count).run()
        ended.set()

    # A supervisor that ends by itself at this moment receives no signals any more, which would then end the tests.
    before_that = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with trio.fail_after(30):
            async with background_nursery() as nursery:
                nursery.start_soon(run)
                await eventually(made.started)
                yield made
                if not ended.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)
                await ended.wait()
    finally:
        signal.signal(signal.SIGTERM, before_that)
    assert [pid for pid in made.pids() if psutil.pid_exists(pid)] == []
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_it_says_what_it_serves_once_all_are_ready_and_ends_with_status_0_on_sigterm(
    tmp_path: Path, said: Callable[[], str]
) -> None:
    async with crew_of(3, tmp_path, said) as crew:
        await crew.until_said("desk serves http://there/mcp with 3 processes\n")
    assert crew.status == 0
    assert sorted(number for number, _, _ in crew.started()) == ["1", "2", "3"]


async def test_all_children_get_the_same_secrets_and_so_do_their_successors(
    tmp_path: Path, said: Callable[[], str]
) -> None:
    async with crew_of(2, tmp_path, said) as crew:
        await crew.until_said("with 2 processes")
        os.kill(crew.pids()[0], signal.SIGKILL)
        await eventually(lambda: len(crew.started()) == 3)
    assert len({line for _, _, line in crew.started()}) == 1


@pytest.mark.parametrize(
    ("number", "what"), [(signal.SIGKILL, "was killed by SIGKILL"), (signal.SIGTERM, "exited with status 0")]
)
async def test_a_child_that_ends_is_replaced_and_the_line_says_how_it_ended(
    number: signal.Signals, what: str, tmp_path: Path, said: Callable[[], str]
) -> None:
    async with crew_of(1, tmp_path, said) as crew:
        await crew.until_said("with 1 process\n")
        [pid] = crew.pids()
        os.kill(pid, number)
        await crew.until_said(rf"desk: process 1 \(pid {pid}\) {what}; another one is started in 0.01 s\n")
        await eventually(lambda: len(crew.started()) == 2)


async def test_young_children_are_started_again_after_longer_and_longer_pauses(
    tmp_path: Path, said: Callable[[], str]
) -> None:
    async with crew_of(2, tmp_path, said, "ready leave") as crew:  # number 2 serves, so the supervisor never gives up
        await eventually(lambda: len(crew.started()) > 6)
    pauses = re.findall(r"process 1 \(pid \d+\) exited with status 3; another one is started in (\S+) s", said())
    assert pauses[:5] == ["0.01", "0.02", "0.03", "0.03", "0.03"]


async def test_a_child_that_is_not_young_is_replaced_at_once(
    tmp_path: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "YOUNG", 0.0)
    async with crew_of(1, tmp_path, said) as crew:
        await crew.until_said("with 1 process\n")
        os.kill(crew.pids()[0], signal.SIGKILL)
        await crew.until_said("was killed by SIGKILL; another one is started\n")


async def test_five_deaths_before_any_child_has_served_end_all_with_the_status_of_the_last(
    tmp_path: Path, said: Callable[[], str]
) -> None:
    async with crew_of(2, tmp_path, said, "leave") as crew:
        await crew.until_said("5 processes in a row have ended before any has served")
    assert crew.status == 3
    assert len(crew.started()) in (5, 6)  # another one may have been started already


async def test_a_program_that_cannot_be_started_is_one_line_for_each_attempt(
    said: Callable[[], str], tmp_path: Path
) -> None:
    gone = Supervisor("desk", "", Launcher([str(tmp_path / "gone")], [], 1.0), 1)
    with trio.fail_after(30):
        assert await gone.run() == 1
    assert said().count("process 1 could not be started: No such file or directory") == 5


async def test_a_child_that_is_never_ready_is_killed(
    tmp_path: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "START", 1.0)
    async with crew_of(1, tmp_path, said, "mute") as crew:
        await crew.until_said(r"process 1 \(pid \d+\) was not ready after 1 s and was killed")
        crew.become("ready")
        await crew.until_said("with 1 process\n")


async def test_a_silent_child_is_killed_and_the_others_stay(
    tmp_path: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "SILENCE", 1.5)
    async with crew_of(2, tmp_path, said) as crew:
        await crew.until_said("with 2 processes\n")
        first, second = crew.pids()
        os.kill(first, signal.SIGSTOP)
        await crew.until_said(rf"\(pid {first}\) was silent for 1.5 s and was killed")
        assert psutil.pid_exists(second)


@pytest.mark.parametrize("others", ["ready", "busy"])
async def test_a_silent_child_is_killed_sooner_if_others_cannot_write_to_the_stores(
    others: str, tmp_path: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LEASE", 0.5)
    monkeypatch.setattr(supervisor, "SILENCE", 1.5)
    async with crew_of(2, tmp_path, said, f"{others} still") as crew:
        await crew.until_said(
            r"process 1 \(pid \d+\) was silent for 0.5 s while others could not write to the stores and was killed"
            if others == "busy"
            else r"process 1 \(pid \d+\) was silent for 1.5 s and was killed"
        )


def test_time_in_which_the_supervisor_did_not_run_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children have not been silent for that long: it has not listened."""
    times = iter([100.0, 101.0, 4701.0, 4702.0])
    monkeypatch.setattr(children, "time", SimpleNamespace(monotonic=lambda: next(times)))
    clock = RunningClock(last=next(times))
    found = []
    for _ in range(3):
        clock.tick(3.0)
        found.append(clock.now)
    assert found == [1.0, 4.0, 5.0]


async def test_the_time_of_a_child_counts_from_its_own_start(tmp_path: Path) -> None:
    launcher = Launcher([sys.executable, "-c", ""], [], 1.0, RunningClock(now=5000.0))
    child = await launcher.launch(1)
    assert child.started == child.heard == 5000.0
    await child.run()
    assert child.what_happened == "exited with status 0"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace_and_a_while(
    number: signal.Signals, status: int, tmp_path: Path, said: Callable[[], str]
) -> None:
    async with crew_of(1, tmp_path, said, "deaf") as crew:
        await crew.until_said("with 1 process\n")
        os.kill(os.getpid(), number)
        await crew.until_said(r"process 1 \(pid \d+\) did not end in time and was killed")
    assert crew.status == status


async def test_a_second_signal_kills(tmp_path: Path, said: Callable[[], str]) -> None:
    async with crew_of(1, tmp_path, said, "deaf", grace=3600) as crew:
        await crew.until_said("with 1 process\n")
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        os.kill(os.getpid(), signal.SIGINT)
    assert crew.status == 0  # the first signal decides
    assert "was still running at a second signal and was killed" in said()


async def test_sighup_replaces_one_child_after_the_other(tmp_path: Path, said: Callable[[], str]) -> None:
    async with crew_of(3, tmp_path, said) as crew:
        await crew.until_said("with 3 processes\n")
        before = crew.pids()
        os.kill(os.getpid(), signal.SIGHUP)
        await crew.until_said("all processes have been replaced\n")
        assert [pid for pid in before if psutil.pid_exists(pid)] == []
        assert len(crew.started()) == 6
    replaced = re.findall(r"process (\d) \(pid \d+\) takes the place of process (\d) ", said())
    assert replaced == [("1", "1"), ("2", "2"), ("3", "3")]


@pytest.mark.parametrize(
    ("fault", "limit", "what"), [("leave", 60.0, "exited with status 3"), ("mute", 0.2, "was not ready after 0.2 s")]
)
async def test_a_new_child_that_is_never_ready_replaces_nothing(
    fault: str, limit: float, what: str, tmp_path: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crew_of(2, tmp_path, said) as crew:
        await crew.until_said("with 2 processes\n")
        monkeypatch.setattr(supervisor, "START", limit)
        before = crew.pids()
        crew.become(fault)
        os.kill(os.getpid(), signal.SIGHUP)
        await crew.until_said("the new process 1 was never ready, so the others are not replaced")
        assert all(psutil.pid_exists(pid) for pid in before)
        assert re.search(rf"process 1 \(pid \d+\) {what}.*; process 1 \(pid \d+\) stays\n", said())


async def test_a_restart_that_is_asked_for_during_a_pause_needs_no_further_process(
    tmp_path: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "PAUSES", (0.3,))
    async with crew_of(1, tmp_path, said) as crew:
        await crew.until_said("with 1 process\n")
        os.kill(crew.pids()[0], signal.SIGKILL)
        await crew.until_said("another one is started in 0.3 s")
        os.kill(os.getpid(), signal.SIGHUP)
        await crew.until_said("all processes have been replaced")
        await eventually(lambda: len(crew.started()) == 2)


async def test_sigterm_during_a_rolling_restart_ends_all(tmp_path: Path, said: Callable[[], str]) -> None:
    async with crew_of(2, tmp_path, said) as crew:
        await crew.until_said("with 2 processes\n")
        crew.become("mute")
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually(lambda: len(crew.started()) == 3)
    assert crew.status == 0


def test_hundreds_of_clients_may_connect_while_the_processes_start() -> None:
    """Beyond the backlog, the system drops their attempts, and the last of them arrive a quarter of a minute later."""
    with listening("127.0.0.1", 0, {}) as ([(_, bound)], _, _), ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(socket.create_connection(bound.getsockname(), timeout=0.9))
