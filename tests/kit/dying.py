"""Checks of servers that die: ``python -m tests.kit.dying --runs 100 --seed 1 --jobs 4``.

Each run starts ``trio-mcp check`` for a server that falls silent, ends, floods or hangs after a random number of
messages, over a random transport. It must end with status 1 or 2, at most ten seconds after its time was up, and leave
nothing behind: no process, no file. Every fourth run gets a SIGTERM at a random moment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs
import psutil
import trio

from tests.kit.dying_server import FAULTS, TRANSPORTS

__all__ = ["Case", "Ended", "check", "problem_of"]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("dying_server.py")

OVERTIME = 10.0
"""Seconds by which a check may be longer than it was told to be: docs/reference/cli.md."""

MOST_AFTER = 25
"""Messages after which something goes wrong, at most (chosen: every run gets there)."""

TERMINATED = 128 + signal.SIGTERM


@attrs.frozen
class Case:
    """A check of a server.

    Attributes:
        transport: The transport.
        fault: What goes wrong.
        after: After how many messages.
        time: The time of the check, in seconds.
        seed: The seed of the check.
        term: After how many seconds the check gets a SIGTERM, if at all.
    """

    transport: str
    fault: str
    after: int
    time: float
    seed: int
    term: float | None = None


@attrs.frozen
class Ended:
    """How a check has ended.

    Attributes:
        status: Its exit status.
        seconds: How long it took.
        left: What it has left behind.
        said: The end of what it wrote.
        own: How long it took by its own clock, without the start and the end of its interpreter, which take long on a
            busy machine; None without a report.
        wrong: Whether anything went wrong in the server before the check has ended.
    """

    status: int
    seconds: float
    left: tuple[str, ...]
    said: str
    own: float | None
    wrong: bool


def cases(runs: int, seed: int, shortest: float, longest: float) -> Iterator[Case]:
    """Yield random cases."""
    chosen = random.Random(seed)
    for number in range(runs):
        seconds = round(chosen.uniform(shortest, longest), 1)
        yield Case(
            # Each fault over each transport in turn, so that a long run meets all pairs.
            TRANSPORTS[number % len(TRANSPORTS)],
            FAULTS[number // len(TRANSPORTS) % len(FAULTS)],
            chosen.randint(1, MOST_AFTER),
            seconds,
            chosen.randrange(1000),
            # From the start of the interpreter to the end of the check.
            round(chosen.uniform(0.5, seconds), 2) if number % 4 == 3 else None,
        )


async def check(case: Case, *options: str) -> Ended:
    """Run a case."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dying-")))
        mark = str(folder)
        for name in ("work", "temporary"):
            (folder / name).mkdir()
        server = [sys.executable, str(PROGRAM), mark, case.transport, case.fault, str(case.after)]
        target = ["--", *server]
        served = None
        if case.transport != "stdio":
            served = stack.enter_context(_server(server))
            assert served.stdout is not None
            port = int((await trio.to_thread.run_sync(served.stdout.readline)).strip())
            target = [_target(case.transport, port, folder)]
        line = [sys.executable, "-m", "trio_mcp", "check", "--time", f"{case.time:g}s", "--seed", str(case.seed)]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(folder / "temporary"),
            # Hypothesis keeps its tables there, which take seconds to make.
            "XDG_CACHE_HOME": str(ROOT / ".cache"),
        }
        began = time.monotonic()
        process = await trio.lowlevel.open_process(
            [*line, "--report", str(folder / "report.json"), *options, *target],
            cwd=folder / "work",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        said = bytearray()
        killed = False
        try:
            async with trio.open_nursery() as nursery:
                if case.term is not None:
                    nursery.start_soon(_terminate, process, case.term)
                # The bound below is a safety net; the seconds are judged by the caller.
                with trio.move_on_after(case.time + 6 * OVERTIME) as scope:
                    async for chunk in process.stdout:
                        said += chunk
                    await process.wait()
                killed = scope.cancelled_caught
                nursery.cancel_scope.cancel()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        seconds = time.monotonic() - began
        assert process.returncode is not None
        # A shell gives a process that a signal has ended such a status.
        status = process.returncode if process.returncode >= 0 else 128 - process.returncode
        left = [f"process {' '.join(each)}" for each in _marked(mark, served)]
        left += [f"file {path}" for path in _files(folder / "work", folder / "temporary")]
        if killed:
            left.append("itself: it had to be killed")
        own = _own_seconds(folder / "report.json")
        return Ended(
            status, seconds, tuple(left), said.decode(errors="replace")[-1500:], own, (folder / "wrong").exists()
        )


@contextlib.contextmanager
def _server(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        # Its child is in its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def _terminate(process: trio.Process, seconds: float) -> None:
    await trio.sleep(seconds)
    process.terminate()


def _target(transport: str, port: int, folder: Path) -> str:
    if transport == "sse":
        # A URL alone stands for Streamable HTTP.
        entry = {"type": "sse", "url": f"http://127.0.0.1:{port}/sse"}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"dying": entry}}))
        return f"{folder / 'mcp.json'}#dying"
    return {
        "tcp": f"tcp://127.0.0.1:{port}",
        "ws": f"ws://127.0.0.1:{port}/",
        "http": f"http://127.0.0.1:{port}/mcp",
    }[transport]


def _marked(mark: str, served: subprocess.Popen[bytes] | None) -> Iterator[list[str]]:
    """Yield the command lines of the processes that have a mark, but for the server over a socket, and end them."""
    found = {}
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            line = each.cmdline()
            # The check itself has the mark among its arguments as well, but has been waited for.
            if mark in line and (served is None or os.getpgid(each.pid) != served.pid):
                found[each] = line
    # One that was killed may need a moment to disappear: its parent did not wait for it.
    for each in psutil.wait_procs(found, timeout=3)[1]:
        each.kill()
        yield found[each]


def _own_seconds(report: Path) -> float | None:
    return float(json.loads(report.read_text())["seconds"]) if report.exists() else None


def _files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def problem_of(case: Case, ended: Ended, *, overtime: float = OVERTIME) -> str:
    """Return what is wrong with the end of a check, if something is."""
    if ended.left:
        return f"it left behind {'; '.join(ended.left)}"
    if ended.seconds > case.time + overtime:
        return f"it took {ended.seconds:.1f} s"
    if "Traceback" in ended.said:
        return "it shows a traceback"
    # A check may have ended before the signal came.
    allowed = {1, 2} if ended.wrong or case.fault == "hangs" else {0, 1, 2}
    if case.term is not None:
        allowed.add(TERMINATED)
    return "" if ended.status in allowed else f"its status is {ended.status}"


async def run(chosen: Sequence[Case], jobs: int) -> int:
    """Run cases, some at once; return how many have a problem."""
    limiter = trio.CapacityLimiter(jobs)
    statuses: Counter[int] = Counter()
    over: list[float] = []
    own: list[float] = []
    bad = 0

    async def one(case: Case) -> None:
        nonlocal bad
        async with limiter:
            ended = await check(case)
        statuses[ended.status] += 1
        over.append(ended.seconds - case.time)
        if ended.own is not None:
            own.append(ended.own - case.time)
        if problem := problem_of(case, ended):
            bad += 1
            print(f"FAILED {case}: {problem}\n{ended.said}", flush=True)
        else:
            print(f"{ended.status:3} {ended.seconds:5.1f} of {case.time:4.1f} s  {case}", flush=True)

    async with trio.open_nursery() as nursery:
        for case in chosen:
            nursery.start_soon(one, case)
    print(
        f"{len(chosen)} runs, {bad} with a problem; statuses {dict(sorted(statuses.items()))}; "
        f"the longest took {max(over, default=0):.1f} s too long, {max(own, default=0):.1f} s of it by its own clock"
    )
    return bad


def main() -> int:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--shortest", type=float, default=10.0, help="seconds of a check, at least")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of a check, at most")
    options = parser.parse_args()
    chosen = list(cases(options.runs, options.seed, options.shortest, options.longest))
    return int(bool(trio.run(partial(run, chosen, options.jobs))))


if __name__ == "__main__":
    sys.exit(main())
