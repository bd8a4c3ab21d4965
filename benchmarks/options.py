"""The options of the command line."""

from __future__ import annotations

import argparse
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

ContenderT = TypeVar("ContenderT")


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors, and with options for the files that a report is written to."""

    def error(self, message: str) -> NoReturn:
        """Exit with one line, without the usage text."""
        self.exit(2, f"benchmarks: {message}\n")

    def parse_with_files(self, arguments: list[str] | None) -> argparse.Namespace:
        """Parse the arguments, ``--json`` and ``--markdown`` included."""
        self.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
        self.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to FILE")
        chosen = self.parse_args(arguments)
        for file in (chosen.json, chosen.markdown):
            if file is not None and not file.absolute().parent.is_dir():
                self.error(f"{file}: its directory does not exist")
        return chosen


def whole_number(text: str) -> int:
    """Parse the value of an option that is a count."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return value


def duration(text: str) -> float:
    """Parse the value of an option that is a length of time."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and up to 3600")
    return value


def checkout(text: str) -> Path:
    """Parse the value of an option that is another checkout."""
    path = Path(text).absolute()
    if not (path / "trio_mcp" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a checkout: it has no package trio_mcp")
    return path


def peer_installed() -> bool:
    """Return whether the official SDK is installed; without it, all rows against it are left out."""
    return importlib.util.find_spec("mcp") is not None


# What a quick run leaves out: the second era, second ways to run a peer, and further ways to call us.
_NOT_QUICK = ("legacy", "on Trio", "as it comes", "new heads", "signed in")


@dataclass(frozen=True)
class Options:
    """Settings common to all scenarios."""

    seconds: float  # length of one throughput sample
    rounds: int  # interleaved samples per contender
    quick: bool  # run only the fewest and smallest cases that still exercise every scenario
    explain: bool  # add breakdowns where a scenario has one
    before: Path | None  # where programs find the package of another checkout, which is measured as well
    progress: Callable[[str], None]

    only: tuple[str, ...] = ()  # words of which the label of a contender must contain one; none for all contenders

    def select(self, contenders: dict[str, ContenderT]) -> dict[str, ContenderT]:
        """Return the contenders asked for; in a quick run only the main ones."""
        unwanted = _NOT_QUICK if self.quick else ()
        return {
            label: each
            for label, each in contenders.items()
            if not any(word in label for word in unwanted)
            and (not self.only or any(word in label for word in self.only))
        }

    @property
    def short_rounds(self) -> int:
        """The number of rounds for scenarios whose samples are single, short events, which scatter more."""
        return self.rounds if self.quick or self.rounds == 1 else self.rounds * 2
