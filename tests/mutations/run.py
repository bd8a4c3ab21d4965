"""Run the mutation corpus: ``python -m tests.mutations.run [ID...] [--jobs N] [--check] [--clean] [--write NAME]``.

Each entry of `mutations.toml` breaks one behaviour by a patch, and names the in-process tests that cover the line. The
patch is applied to a copy of the package, and the tests run there, for at most a minute: one that fails, or hangs, has
caught the mutation.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import os
import py_compile
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
COPIED = ("trio_mcp", "tests", "pyproject.toml")
LIMIT = 60.0
"""Seconds for the tests of one mutation."""


@attrs.frozen
class Mutation:
    """One behaviour, broken.

    Attributes:
        id: The group and the number of the draw.
        file: The file that is patched.
        old: The text to replace, which occurs exactly once.
        new: The replacement.
        behaviour: The breakage that a user or peer sees.
        tests: The in-process tests that cover the line, as pytest takes them.
        caught_before: Whether they caught it before the package was restructured; None for what is newer.
        note: How the behaviour differs now, if it is not quite the same.
    """

    id: str
    file: str
    old: str
    new: str
    behaviour: str
    tests: list[str]
    caught_before: bool | None = None
    note: str = ""

    def patched(self, root: Path) -> str:
        """Return the text of the file with the mutation.

        Raises:
            ValueError: If the patch does not fit.
        """
        text = (root / self.file).read_text()
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"{self.id}: what it replaces is {found} times in {self.file}, must be once")
        return text.replace(self.old, self.new)


@attrs.frozen
class Outcome:
    """The outcome of a mutation: ``how`` is "caught", "timed out" or "survived"; ``by`` the first test that failed."""

    mutation: Mutation
    how: str
    by: str
    seconds: float

    @property
    def caught(self) -> bool:
        return self.how != "survived"


def corpus() -> list[Mutation]:
    """All entries."""
    table = tomllib.loads((HERE / "mutations.toml").read_text())
    return [Mutation(**entry) for entry in table["mutation"]]


def check(mutation: Mutation, root: Path = ROOT) -> None:
    """Check that a patch fits, compiles and changes something, and that its tests exist.

    Raises:
        ValueError, SyntaxError: If it does not.
    """
    if mutation.old == mutation.new:
        raise ValueError(f"{mutation.id} changes nothing")
    compile(mutation.patched(root), mutation.file, "exec")
    for test in mutation.tests:
        if not (root / test.partition("::")[0]).is_file():
            raise ValueError(f"{mutation.id}: there is no {test}")


@contextlib.contextmanager
def copies(count: int) -> Iterator[queue.Queue[Path]]:
    """Yield copies of the package and its tests, one per job."""
    with tempfile.TemporaryDirectory(prefix="mutations-") as place:
        free: queue.Queue[Path] = queue.Queue()
        for number in range(count):
            root = Path(place) / str(number)
            for name in COPIED:
                if (ROOT / name).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__", "node_modules", ".*")
                    shutil.copytree(ROOT / name, root / name, ignore=ignored)
                else:
                    shutil.copy(ROOT / name, root / name)
            # By their hashes, or a patch of the same length and second would go unnoticed.
            mode = py_compile.PycInvalidationMode.CHECKED_HASH
            compileall.compile_dir(root / "trio_mcp", quiet=1, invalidation_mode=mode)
            here = _python(root, ["-c", "import trio_mcp; print(trio_mcp.__file__)"])[1]
            if not here.startswith(str(root.resolve())):
                raise RuntimeError(f"the tests would not run with the copy, but with {here}")
            free.put(root)
        yield free


def run(mutation: Mutation, root: Path, *, clean: bool = False) -> Outcome:
    """Run the tests of a mutation in a copy; without the mutation, they must pass."""
    file = root / mutation.file
    original = file.read_text()
    started = time.monotonic()
    if not clean:
        file.write_text(mutation.patched(root))
    try:
        options = ["-n0", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        options += ["-m", "not interop and not conformance"]
        code, output = _python(root, ["-m", "pytest", *options, *mutation.tests])
    finally:
        file.write_text(original)
        shutil.rmtree(root / ".hypothesis", ignore_errors=True)
    if code == 5:
        raise RuntimeError(f"{mutation.id}: no test was run\n{output}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", output, re.MULTILINE)
    how = "survived" if code == 0 else "timed out" if code is None else "caught"
    return Outcome(mutation, how, failed[1] if failed else "", time.monotonic() - started)


def _python(root: Path, arguments: list[str]) -> tuple[int | None, str]:
    """Run Python in a copy; the exit status is None if the time ran out."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(root)}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it may have left behind
            process.wait()
        output.seek(0)
        return code, output.read()


def report(outcomes: list[Outcome]) -> str:
    """Return a table of all outcomes, in Markdown."""
    caught = sum(outcome.caught for outcome in outcomes)
    before = sum(bool(outcome.mutation.caught_before) for outcome in outcomes)
    lines = [
        f"{caught} of {len(outcomes)} mutations are caught; before the restructuring {before} were.",
        "",
        "| mutation | outcome | before | first failing test | seconds | behaviour |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes:
        before_it = {None: "new", True: "caught", False: "survived"}[outcome.mutation.caught_before]
        by = outcome.by.replace("|", "\\|")
        behaviour = outcome.mutation.behaviour.replace("|", "\\|")
        lines.append(
            f"| {outcome.mutation.id} | {outcome.how} | {before_it} | {by} | {outcome.seconds:.0f} | {behaviour} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the mutations that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.run", description="Run the mutation corpus.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these, by id or group")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--check", action="store_true", help="only check that each patch fits and compiles")
    parser.add_argument("--clean", action="store_true", help="run the tests without the mutations: all must pass")
    parser.add_argument("--write", metavar="NAME", help="write the table to NAME.md here")
    arguments = parser.parse_intermixed_args()
    chosen = [each for each in corpus() if not arguments.ids or {each.id, each.id.split("-")[0]} & {*arguments.ids}]
    for mutation in chosen:
        check(mutation)
    print(f"{len(chosen)} patches fit", flush=True)
    if arguments.check:
        return 0

    def job(mutation: Mutation) -> Outcome:
        root = free.get()
        try:
            outcome = run(mutation, root, clean=arguments.clean)
        finally:
            free.put(root)
        what = mutation.tests[0] if arguments.clean else mutation.id
        print(f"{what:16} {outcome.how:10} {outcome.seconds:5.1f} s  {outcome.by}", flush=True)
        return outcome

    covering = {mutation.id: mutation.tests for mutation in chosen}
    if arguments.clean:  # each file once
        chosen = [attrs.evolve(each, tests=[test]) for test, each in {t: e for e in chosen for t in e.tests}.items()]
    with copies(arguments.jobs) as free, ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = list(pool.map(job, chosen))
    if arguments.clean:
        failed = [outcome.mutation.tests[0] for outcome in outcomes if outcome.caught]
        print("without a mutation these fail:" if failed else "without a mutation all tests pass", *failed)
        took = {outcome.mutation.tests[0]: outcome.seconds for outcome in outcomes}
        slow = [each for each, tests in covering.items() if sum(took[test] for test in tests) > LIMIT]
        if slow:
            print(f"the tests of these may take longer than {LIMIT:g} seconds:", *slow)
        return int(bool(failed or slow))
    table = report(outcomes)
    print(table.partition("\n")[0])
    if arguments.write:
        (HERE / f"{arguments.write}.md").write_text(table)
    lost = [each.mutation.id for each in outcomes if each.mutation.caught_before is not False and not each.caught]
    if lost:
        print("caught before, or new, and survived now:", *lost)
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
