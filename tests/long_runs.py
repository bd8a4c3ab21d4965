"""What the commands of long runs share: the folder of a run, and the report of its judge."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

__all__ = ["Verdict", "folder_of_run", "report"]


class Verdict(Protocol):
    """The part of a judge that is reported."""

    def broken(self) -> Iterable[str]: ...

    def figures(self) -> Iterable[tuple[str, str]]: ...

    def not_succeeded(self) -> Iterable[str]: ...


def folder_of_run(given: Path | None, name: str, seed: int) -> Path:
    """Make the folder for a run's files, start the log of the driver there, and print its path.

    Args:
        given: The folder; None for a new one among the temporary files.
        name: The name of the kind of runs.
        seed: The seed of the run.
    """
    folder = (given or Path(tempfile.mkdtemp(prefix=f"{name}-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=folder / "driver.log", level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    print(f"seed {seed}, {folder}", flush=True)
    return folder


def report(judge: Verdict, folder: Path, seed: int) -> int:
    """Print the figures of a run and the promises that were broken, and return the exit status."""
    broken = list(judge.broken())
    for name, value in judge.figures():
        print(f"| {name} | {value} |")
    for kept, lines in (("broken", broken), ("not-succeeded", judge.not_succeeded())):
        (folder / f"{kept}.log").write_text("".join(f"{line}\n" for line in lines))
    for line in broken[:20]:
        print(line, file=sys.stderr)
    print(f"seed {seed}: {len(broken)} broken promises")
    return 1 if broken else 0
