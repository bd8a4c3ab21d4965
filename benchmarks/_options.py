"""The options of the command line, as the scenarios see them."""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

ContenderT = TypeVar("ContenderT")


class Parser(argparse.ArgumentParser):
    """A command line whose errors are one line, with the files that a report can be written to."""

    def error(self, message: str) -> NoReturn:
        """One line instead of the usage text and a line."""
        self.exit(2, f"benchmarks: {message}\n")

    def parse_with_files(self, arguments: list[str] | None) -> argparse.Namespace:
        """Parse, with ``--json`` and ``--markdown``."""
        self.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
        self.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to FILE")
        chosen = self.parse_args(arguments)
        for file in (chosen.json, chosen.markdown):
            if file is not None and not file.absolute().parent.is_dir():
                self.error(f"{file}: its directory does not exist")
        return chosen


def whole_number(text: str) -> int:
    """Return the type of an option that counts."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return value


def peer_installed() -> bool:
    """Whether the official SDK can be measured here; without it every row against it is left out."""
    return importlib.util.find_spec("mcp") is not None


@dataclass(frozen=True)
class Options:
    """Settings common to all scenarios."""

    seconds: float  # length of one throughput sample
    rounds: int  # interleaved samples per contender
    quick: bool  # fewest and smallest cases that still exercise every scenario
    explain: bool  # add breakdowns where a scenario has one
    progress: Callable[[str], None]

    def select(self, contenders: dict[str, ContenderT]) -> dict[str, ContenderT]:
        """All of them; for a quick look without the legacy era and without the peer's second event loop."""
        if not self.quick:
            return contenders
        return {label: each for label, each in contenders.items() if "legacy" not in label and "on Trio" not in label}

    @property
    def short_rounds(self) -> int:
        """Rounds for scenarios whose samples are single events of well under a second, which scatter more."""
        return self.rounds if self.quick or self.rounds == 1 else self.rounds * 3
