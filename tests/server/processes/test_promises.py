"""The table of promises in docs/how-to/processes.md: each row has a test, and each test here a row."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from tests.server.processes.running import FAST, ROOT, Running, running
from tests.waiting import eventually
from trio_mcp import Client, HttpError, McpError, TransportError, TrioMcpError
from trio_mcp.extensions import Tasks
from trio_mcp.stores import KeyRing, SqliteStores
from trio_mcp.types import InputRequiredResult

PROGRAM = Path(__file__).with_name("promises_program.py")
PAGE = ROOT / "docs" / "how-to" / "processes.md"
LAMP = "desk://lamp"


@attrs.frozen
class Desk:
    """A server that runs in several processes, and its folder."""

    run: Running
    folder: Path

    def noted(self) -> Counter[str]:
        """Return what the processes have written to the ledger, without their ids."""
        return Counter(words for _, words in self.ledger())

    def ledger(self) -> list[tuple[int, str]]:
        lines = [line.partition(" ") for line in (self.folder / "ledger").read_text().splitlines()]
        return [(int(pid), words) for pid, _, words in lines]

    async def until_noted(self, words: str) -> int:
        """Wait for an entry of the ledger, and return the process that wrote the last such one."""
        return await eventually(lambda: next((pid for pid, found in self.ledger()[::-1] if found == words), None)) or 0

    @contextlib.asynccontextmanager
    async def client_of(self, wanted: int | None = None, **options: Any) -> AsyncIterator[Client]:
        """Yield a client whose connection is to one of the processes, or to a certain one."""
        while True:
            async with Client(self.run.url, mode="2026-07-28", **options) as client:
                if wanted is None or (await client.call_tool("pid")).data == wanted:
                    yield client
                    return

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[list[Any]]:
        """Yield what a client hears of the lamp that listens in each process."""
        async with trio.open_nursery() as nursery:
            yield [await nursery.start(self._listen, pid) for pid in self.run.pids()]
            nursery.cancel_scope.cancel()

    async def _listen(self, pid: int, task_status: Any) -> None:
        heard: list[Any] = []
        async with self.client_of(pid) as client, client.listen(resources=[LAMP]) as events:
            task_status.started(heard)
            async for event in events:
                heard.append(event)

    async def all_hear(self, heard: list[list[Any]]) -> None:
        """Announce a change in one of the processes, and wait until the listeners in each one have heard of it."""
        before = [len(each) for each in heard]
        await self.run.call("touch")
        await eventually(lambda: all(len(each) > count for each, count in zip(heard, before, strict=True)))

    async def fails(self, tool: str) -> None:
        async with self.run.client() as client:
            assert (await client.call_tool(tool)).is_error

    async def start(self, tool: str, *, by: int | None = None, **arguments: Any) -> str:
        """Start a task, and return its id."""
        async with self.client_of(by, extensions=[Tasks()]) as client:
            task_id = (await Tasks.of(client).start(tool, arguments)).id
        assert task_id is not None
        return task_id

    async def result(self, task_id: str) -> Any:
        async with self.client_of(extensions=[Tasks()]) as client:
            return (await Tasks.of(client).task(task_id, tool="film").result()).data


@contextlib.asynccontextmanager
async def desk_in(folder: Path, *, constants: dict[str, Any] | None = None, **words: Any) -> AsyncIterator[Desk]:
    settings = {"folder": str(folder), "port": 0, "processes": 2, "stateless": True, **words}
    settings["constants"] = {**FAST, **(constants or {})}
    async with running(command=[sys.executable, str(PROGRAM), json.dumps(settings)]) as desk:
        yield Desk(desk, folder)


async def asked(desk: Desk, tool: str, after: Any = None, *, by: int | None = None) -> Any:
    """Call a tool that asks, or answer its question; return its next question, or its data."""
    answer: dict[str, Any] = {}
    if after is not None:
        (key,) = after.input_requests or {}
        answer["input_responses"] = {key: {"action": "accept", "content": {"text": "yes"}}}
        answer["request_state"] = after.request_state
    async with desk.client_of(by, capabilities={"elicitation": {}}) as client:
        result = await client.call_tool_once(tool, **answer)
        return result if isinstance(result, InputRequiredResult) else result.data


# --- processes that end, or stand still -------------------------------------------------------------------------------


async def test_a_killed_process_loses_what_it_was_running_and_nothing_else(tmp_path: Path) -> None:
    """The client of the call can't know the outcome, so no process begins the call again."""
    async with desk_in(tmp_path, processes=3) as desk:
        before = desk.run.pids()
        assert await desk.run.call("count") == 1
        task_id = await desk.start("film", go=str(tmp_path / "go"))
        async with trio.open_nursery() as nursery:

            async def lose() -> None:
                with pytest.raises(TransportError) as caught:
                    await desk.run.call("wait", name="long", seconds=100)
                # Not 503, which would let clients repeat it.
                assert getattr(caught.value, "status", None) is None

            nursery.start_soon(lose)
            killed = {await desk.until_noted("began long"), await desk.until_noted("began one")}
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        await eventually(lambda: len(desk.run.pids()) == 3 and not killed & desk.run.pids())
        await desk.run.served_by(*desk.run.pids())
        assert await desk.run.call("count") == 2
        async with desk.listening() as heard:
            await desk.all_hear(heard)
        (tmp_path / "go").touch()
        one, two = await desk.result(task_id)
        assert one in killed
        assert two not in killed
        noted = desk.noted()
        assert (noted["began long"], noted["began one"], noted["began two"]) == (1, 1, 1)
        # The lifespan was entered once in each process that serves, and never in the supervisor.
        served = [pid for pid, words in desk.ledger() if words == "lifespan"]
        assert sorted(served) == sorted(before | desk.run.pids())


async def test_a_killed_supervisor_loses_nothing_that_has_begun(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        assert await desk.run.call("count") == 1
        async with trio.open_nursery() as nursery:

            async def ends_well() -> None:
                assert await desk.run.call("wait", name="short", seconds=1) in desk.run.seen

            nursery.start_soon(ends_well)
            await desk.until_noted("began short")
            os.kill(desk.run.process.pid, signal.SIGKILL)
        assert await desk.run.ended() == -signal.SIGKILL
        with pytest.raises(TransportError):
            await desk.run.call("count")
    assert desk.noted()["ended short"] == 1
    with contextlib.closing(sqlite3.connect(tmp_path / "desk.db")) as file:
        assert file.execute("SELECT value FROM states").fetchall() == [(b'{"value":1}',)]


@pytest.mark.again
async def test_a_rolling_restart_cuts_off_what_takes_longer_than_its_grace_and_nothing_else(tmp_path: Path) -> None:
    async with desk_in(tmp_path, grace=0.5) as desk:
        counts: list[int] = []
        task_id = await desk.start("film", go=str(tmp_path / "go"))
        await desk.until_noted("began one")
        asked_before = await asked(desk, "ask")
        old = desk.run.pids()
        async with desk.listening() as heard, trio.open_nursery() as nursery:

            async def count() -> None:
                while True:
                    counts.append(await desk.run.call("count"))

            async def lose() -> None:
                with pytest.raises(HttpError, match="its outcome is unknown: the server has ended") as caught:
                    await desk.run.call("wait", name="long", seconds=100)
                assert caught.value.retry_after is None  # so clients don't repeat it

            nursery.start_soon(count)
            nursery.start_soon(lose)
            await desk.until_noted("began long")
            desk.run.send(signal.SIGHUP)
            await desk.run.until_said("all processes have been replaced")
            after = len(counts)
            await eventually(lambda: len(counts) > after + 2)
            nursery.cancel_scope.cancel()
        assert counts == list(range(1, len(counts) + 1))
        async with desk.listening() as heard:
            await desk.all_hear(heard)
        (tmp_path / "go").touch()
        one, two = await desk.result(task_id)
        assert one in old
        assert two not in old
        noted = desk.noted()
        assert (noted["began one"], noted["began long"], noted["cancelled long"]) == (1, 1, 1)
        first, second = await asked(desk, "ask", asked_before)  # the key is the supervisor's
        assert first == second
        assert first not in old


# --- the file ---------------------------------------------------------------------------------------------------------


async def test_a_lost_wake_up_is_late_and_nothing_else(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk, desk.listening() as heard:
        await desk.all_hear(heard)
        shutil.rmtree(tmp_path / "desk.db-bells")  # no process hears any more
        for _ in range(2):
            await desk.all_hear(heard)


@contextlib.contextmanager
def locked(desk: Desk) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(desk.folder / "desk.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def full(desk: Desk) -> Iterator[None]:
    """Let no file of the processes grow, or be written at all, which has the effect of a full disk."""
    former = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, -1)) for pid in desk.run.pids()}
    yield
    for pid, limits in former.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def really_full(desk: Desk) -> Iterator[None]:
    filler = desk.folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


async def check_away(desk: Desk, away: Callable[[Desk], Any], why: str) -> None:
    """Check what works while the file can't be written, that nothing has changed afterwards, and that changes come."""
    count = await desk.run.call("count")
    go = trio.Path(desk.folder).with_name(f"{desk.folder.name}-go")
    task_id = await desk.start("film", go=str(go))
    first = await desk.until_noted("began one")
    async with desk.listening() as heard:
        await desk.all_hear(heard)
        before = [len(each) for each in heard]
        with away(desk):
            # Calls that need no store, or only read from it, go on.
            assert await desk.run.call("pid") in desk.run.pids()
            assert await desk.run.call("counted") == count
            # Calls that write fail, such as a change of a state or a new task, and the log says why.
            await desk.fails("count")
            assert why in desk.run.text
            with pytest.raises(McpError, match=r"the server's store of tasks .* try again later"):
                await desk.start("film", go="/nowhere")
            # The next step of a task that runs begins, but its value is stored only once the store is back.
            await go.touch()
            # A change reaches the listeners of its own process at once, and those of others once the store is back.
            await desk.run.call("touch")
            await eventually(lambda: any(len(each) > old for each, old in zip(heard, before, strict=True)))
        await eventually(lambda: all(len(each) > old for each, old in zip(heard, before, strict=True)))
    assert await desk.run.call("count") == count + 1
    one, two = await desk.result(task_id)
    assert (one, two in desk.run.pids()) == (first, True)
    assert desk.noted()["began one"] == 1  # and not of the task that was refused


async def test_a_locked_file_delays_writes_and_then_fails_them_and_nothing_else(tmp_path: Path) -> None:
    async with desk_in(tmp_path, timeout=1.0) as desk:
        async with trio.open_nursery() as nursery:
            with locked(desk):
                nursery.start_soon(desk.run.call, "count")
                await trio.sleep(0.2)  # shorter than the timeout: the call waits
        await check_away(desk, locked, "desk.db is locked: another process has been writing to it for too long")


@pytest.mark.again
async def test_a_full_disk_fails_writes_and_nothing_else(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        await check_away(desk, full, "desk.db can't be read or written: check that its disk works, and has room")


@pytest.mark.root
async def test_a_disk_that_is_really_full_fails_writes_and_nothing_else(small_disk: Path) -> None:
    async with desk_in(small_disk) as desk:
        await check_away(desk, really_full, "desk.db can't grow, because the disk is full: make room on it")


async def test_a_file_that_is_gone_is_not_written_and_a_restart_begins_a_new_one(tmp_path: Path) -> None:
    """Otherwise, processes of one server would use two files without a word."""
    async with desk_in(tmp_path) as desk:
        assert await desk.run.call("count") == 1
        file = tmp_path / "desk.db"
        file.rename(tmp_path / "elsewhere")
        assert await desk.run.call("pid")
        for tool in ("count", "counted"):
            await desk.fails(tool)
        assert "desk.db was deleted or replaced while it was open: put it back, or restart all" in desk.run.text
        (tmp_path / "elsewhere").rename(file)
        assert await desk.run.call("count") == 2
        for each in ("", "-wal", "-shm"):
            (tmp_path / f"desk.db{each}").unlink()
        desk.run.send(signal.SIGHUP)
        await desk.run.until_said("all processes have been replaced")
        counts = [await desk.run.call("count") for _ in range(4)]
        assert counts == [1, 2, 3, 4]


def text(file: Path) -> None:
    file.write_text("this is text, and nothing else\n" * 100)


def another_layout(file: Path) -> None:
    made(file)
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA user_version = 99")


def another_program(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")


def open_to_all(file: Path) -> None:
    made(file)
    file.chmod(0o644)


def made(file: Path, server: str = "desk") -> None:
    async def make() -> None:
        async with SqliteStores(file) as stores:
            await stores.own(server)

    trio.run(make)


UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (text, "is not an SQLite database"),
    "another layout": (another_layout, "was created by another version of trio_mcp"),
    "another program": (another_program, "is a database of another program"),
    "another server": (lambda file: made(file, "shop"), "belongs to the server 'shop'"),
    "others may read it": (open_to_all, "is open to all users of this machine (mode 0644)"),
    "a folder": (Path.mkdir, "Is a directory"),
}


@pytest.mark.parametrize("by", ["program", pytest.param("command line", marks=pytest.mark.again)])
def test_a_file_that_is_unfit_is_one_error_before_any_process_starts(by: str, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(
        "import os, sys; from trio_mcp import Server; server = Server('desk', stores=sys.argv[1])\n"
        "if __name__ == '__main__': server.run('http', port=0, processes=2, stateless=True)\n"
    )
    starts = {}
    for name, (make, _) in UNFIT.items():
        make(file := tmp_path / f"{name}.db")
        words = [
            "-m",
            "trio_mcp",
            "run",
            "desk.py",
            "--transport=http",
            "--port=0",
            "--processes=2",
            "--stateless",
            "--",
        ]
        command = [sys.executable, *(["desk.py"] if by == "program" else words), str(file)]
        starts[name] = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment())
    for name, process in starts.items():
        _, said = process.communicate(timeout=120)
        assert process.returncode == 1, said
        # Newer Pythons show all lines of the statement that raises.
        assert said.splitlines()[-1].count(UNFIT[name][1]) == 1, said
        if by == "command line":
            assert said.startswith("trio-mcp run: can't use the stores of 'desk': ")
            assert said.count("\n") == 1
        else:
            assert said.count("Traceback") == 1
            assert said.count("\n  File ") == 2  # the program, and what raises
        assert "process 1" not in said


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def lose_power(copies: Path, file: Path, left: int) -> None:
    """Put the files back, with garbage in place of all but the beginning of the log."""
    log = file.with_name("desk.db-wal")
    shutil.copy(copies / file.name, file)
    log.write_bytes((copies / log.name).read_bytes()[:left] + os.urandom(300))


async def test_a_loss_of_power_leaves_a_file_as_it_was_a_moment_before(tmp_path: Path) -> None:
    """The end of the log has not reached the disk then: whatever is left of it, some last transactions are missing."""
    file, log, copies = tmp_path / "desk.db", tmp_path / "desk.db-wal", tmp_path / "copies"
    await trio.Path(copies).mkdir()
    async with SqliteStores(file) as stores:
        for number in range(20):
            assert await stores.put_state("ann", f"{number}", b"x" * 3000, tag=None, expires=None)
        # Another process copies the files: if this one closed a descriptor of theirs, it would lose its locks.
        await trio.run_process(["cp", str(file), str(log), str(copies)])
    size = (await trio.Path(copies / log.name).stat()).st_size
    found = []
    for left in [size * part // 25 for part in range(26)]:
        await trio.to_thread.run_sync(lose_power, copies, file, left)
        async with SqliteStores(file) as stores:
            states = [await stores.state("ann", f"{number}") is not None for number in range(20)]
        assert states == sorted(states, reverse=True)  # the first ones, without a gap
        found.append(sum(states))
        with contextlib.closing(sqlite3.connect(file)) as other:
            assert other.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 20)


# --- clocks, keys, versions -------------------------------------------------------------------------------------------


@pytest.mark.again
async def test_clocks_an_hour_apart_lose_only_what_has_expired_by_the_later_one(tmp_path: Path) -> None:
    async with desk_in(tmp_path, apart=3600) as desk:
        films = [await desk.start("film", by=pid, go=str(tmp_path / "go")) for pid in desk.run.pids()]
        counts: list[int] = []

        async def count() -> None:
            counts.append(await desk.run.call("count"))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(count)
        assert sorted(counts) == list(range(1, 9))
        async with desk.listening() as heard:
            for _ in range(4):
                await desk.all_hear(heard)
        # The answer to a question: where the clock is ahead of where it was asked, it comes too late, and is told so.
        pids = desk.run.pids()
        ends = set()
        for one in pids:
            question = await asked(desk, "ask", by=one)
            for two in pids - {one}:
                try:
                    ends.add(str(await asked(desk, "ask", question, by=two) == [two, two]))
                except McpError as exc:
                    ends.add(exc.message)
        assert ends == {"True", "the requestState has expired; make the request again without it"}
        # A task runs in one process for as long as that renews its lease, although it has ended by the later clock.
        await trio.sleep(1.5)  # longer than a lease
        assert desk.noted()["began film"] == 2
        (tmp_path / "go").touch()
        for film in films:
            one, two = await desk.result(film)
            assert one == two
        noted = desk.noted()
        assert (noted["began film"], noted["began one"]) == (2, 2)


@pytest.mark.again
async def test_a_file_of_keys_that_is_gone_refuses_no_state_and_keeps_new_processes_from_serving(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "desk.keys"
    KeyRing.add(keys)
    async with desk_in(tmp_path, keys=True) as desk:
        question = await asked(desk, "ask")
        keys.rename(tmp_path / "elsewhere")
        old = desk.run.pids()
        desk.run.send(signal.SIGHUP)
        await desk.run.until_said("was never ready, so the others are not replaced")
        assert f"the file of keys {keys} can't be read: No such file or directory" in desk.run.text
        assert desk.run.pids() >= old
        assert len(await asked(desk, "ask", question)) == 2
        assert len(await asked(desk, "ask", await asked(desk, "ask"))) == 2
        # One that is killed is replaced once the file is back.
        os.kill(min(old), signal.SIGKILL)
        await desk.run.until_said(rf"\(pid {min(old)}\) was killed by SIGKILL")
        (tmp_path / "elsewhere").rename(keys)
        await eventually(lambda: len(desk.run.pids()) == 2)
        await desk.run.served_by(*desk.run.pids())


async def test_a_parked_function_is_asked_anew_where_it_does_not_wait(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        one, two = desk.run.pids()
        question = await asked(desk, "park", by=one)
        again = await asked(desk, "park", question, by=two)
        assert isinstance(again, InputRequiredResult)
        assert desk.noted()["began to ask"] == 2
        assert await asked(desk, "park", again, by=two) == [two, two]
        # The first one still waits for its answer, which is used once.
        assert await asked(desk, "park", question, by=one) == [one, one]
        with pytest.raises(McpError, match="no handler is waiting for this requestState: it was used before"):
            await asked(desk, "park", question, by=one)
        assert desk.noted()["began to ask"] == 2


@pytest.mark.again
async def test_a_task_that_kills_each_process_that_runs_it_ends_and_the_server_goes_on(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        with contextlib.suppress(TrioMcpError):  # the process may be dead before it has answered
            await desk.start("fatal")

        async def begun() -> bool:
            return desk.noted()["began fatal"] == 3  # once, and again as often as `max_takeovers` says

        await eventually(begun)
        with contextlib.closing(sqlite3.connect(tmp_path / "desk.db", timeout=60)) as other:
            await eventually(lambda: other.execute("SELECT status FROM tasks").fetchall() == [("failed",)])
        await eventually(lambda: len(desk.run.pids()) == 2)
        assert await desk.run.call("count") == 1
        assert desk.noted()["began fatal"] == 3


# --- the table --------------------------------------------------------------------------------------------------------

PROCESSES = "tests/server/processes"
SESSIONS = f"{PROCESSES}/test_session_promises.py"
TASKS = "tests/extensions/tasks"

TESTS: dict[str, tuple[Callable[..., object] | str, ...]] = {
    "a process is killed": (test_a_killed_process_loses_what_it_was_running_and_nothing_else,),
    "a process that serves sessions is killed": (
        f"{SESSIONS}::test_a_killed_process_ends_its_requests_with_errors_and_no_session",
    ),
    "a process is stopped for long": (
        f"{PROCESSES}/test_processes.py::test_a_stopped_child_is_killed_and_one_that_ignores_sigterm_as_well",
        f"{TASKS}/test_losses.py::test_nothing_runs_after_a_thaw_before_a_renewal_is_confirmed",
        f"{TASKS}/test_crashes.py::test_no_finished_step_runs_again_when_processes_are_killed_or_stopped",
    ),
    "a process that serves sessions is stopped for more than 15 seconds": (
        f"{SESSIONS}::test_a_stopped_process_gives_up_what_another_one_has_ended",
    ),
    "it is stopped while it writes to the file": (
        f"{PROCESSES}/test_sharing.py::test_a_process_that_was_stopped_in_a_transaction_is_killed_and_the_others_go_on",
    ),
    "the supervisor is killed": (
        test_a_killed_supervisor_loses_nothing_that_has_begun,
        f"{PROCESSES}/test_processes.py::test_children_end_with_a_supervisor_that_is_killed_even_if_one_is_blocked",
    ),
    "a rolling restart": (
        test_a_rolling_restart_cuts_off_what_takes_longer_than_its_grace_and_nothing_else,
        f"{PROCESSES}/test_processes.py::test_a_rolling_restart_fails_no_call",
        f"{SESSIONS}::test_a_rolling_restart_ends_no_session_and_fails_none_of_its_calls",
        f"{TASKS}/test_losses.py::test_a_server_that_ends_releases_its_tasks_at_once",
    ),
    "two versions of the program run meanwhile": (
        f"{TASKS}/test_losses.py::test_a_task_whose_tool_is_removed_while_it_is_taken_up_is_left_to_others",
        f"{TASKS}/test_losses.py::test_a_task_for_a_tool_that_is_gone_fails_with_one_error",
        "tests/server/test_user_state.py::test_a_class_may_gain_fields_with_defaults_and_lose_fields",
    ),
    "a task kills each process that runs it": (
        test_a_task_that_kills_each_process_that_runs_it_ends_and_the_server_goes_on,
        f"{TASKS}/test_losses.py::test_a_task_is_taken_over_at_most_so_many_times",
    ),
    "an answer to `park_input` reaches another process": (
        test_a_parked_function_is_asked_anew_where_it_does_not_wait,
        "tests/server/test_input_parking.py::test_a_function_that_is_asked_anew_each_time_ends_with_its_rounds",
    ),
    "a client ends its session": (f"{SESSIONS}::test_a_delete_ends_a_session_in_all_processes",),
    "a process does not read the messages for it: it is stopped, or its event loop is blocked": (
        f"{SESSIONS}::test_a_full_mailbox_refuses_a_message_and_nothing_else",
    ),
    "a client, a proxy or the network breaks a connection": (
        "tests/server/http/test_shared_sessions.py::test_a_stream_is_resumed_in_another_process",
        "tests/server/http/test_modern.py::test_the_end_of_the_response_stream_cancels_the_handler",
        "tests/server/test_behind_nginx.py::test_a_client_that_leaves_cancels_its_tool",
    ),
    "a wake-up is lost": (
        test_a_lost_wake_up_is_late_and_nothing_else,
        "tests/server/test_bus.py::test_a_lost_wake_up_costs_time_and_nothing_else",
    ),
    "the file is locked": (
        test_a_locked_file_delays_writes_and_then_fails_them_and_nothing_else,
        f"{SESSIONS}::test_a_locked_file_fails_requests_of_sessions_and_ends_no_session",
        "tests/server/test_bus.py::test_more_changes_than_can_wait_become_one_of_everything",
        f"{TASKS}/test_losses.py::test_an_outcome_is_stored_once_the_store_is_back",
        f"{TASKS}/test_losses.py::test_a_run_that_can_not_renew_its_lease_stops_itself_at_two_thirds",
    ),
    "the disk is full": (
        test_a_full_disk_fails_writes_and_nothing_else,
        test_a_disk_that_is_really_full_fails_writes_and_nothing_else,
    ),
    "the file is deleted, or another one takes its place": (
        test_a_file_that_is_gone_is_not_written_and_a_restart_begins_a_new_one,
    ),
    "the file is unfit at the start": (
        test_a_file_that_is_unfit_is_one_error_before_any_process_starts,
        f"{PROCESSES}/test_supervisor.py::test_a_new_child_that_is_never_ready_replaces_nothing",
    ),
    "the machine loses power": (
        test_a_loss_of_power_leaves_a_file_as_it_was_a_moment_before,
        "tests/stores/test_sqlite_stores.py::test_only_power_waits_for_the_disk_with_each_transaction",
        "tests/stores/test_sqlite_stores.py::test_a_lease_of_another_start_of_the_machine_has_its_whole_duration",
    ),
    "the clocks of processes differ, or one is set": (
        test_clocks_an_hour_apart_lose_only_what_has_expired_by_the_later_one,
    ),
    "the file of keys is missing or unreadable": (
        test_a_file_of_keys_that_is_gone_refuses_no_state_and_keeps_new_processes_from_serving,
        "tests/server/test_key_ring.py::test_a_file_that_goes_bad_leaves_the_keys_as_they_were_and_is_logged_once",
    ),
}
"""Row of the page -> the functions that test it, or the node ids of tests elsewhere that already do."""


def rows() -> list[str]:
    """Return the first cell of each row of the table on the page."""
    table = PAGE.read_text().partition("| what happens | what is lost |")[2].partition("\n\n")[0].splitlines()
    return [line.split(" | ")[0].removeprefix("| ") for line in table[2:]]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_each_row_of_the_page_has_a_test_and_each_test_here_a_row() -> None:
    assert rows() == [*TESTS]
    named = {each.__name__ for tests in TESTS.values() for each in tests if not isinstance(each, str)}
    mine = {name for name in functions(Path(__file__)) if name.startswith("test_")}
    assert mine - named == {"test_each_row_of_the_page_has_a_test_and_each_test_here_a_row"}
    for tests in TESTS.values():
        for each in tests:
            if isinstance(each, str):
                file, _, name = each.partition("::")
                assert name in functions(ROOT / file), each
