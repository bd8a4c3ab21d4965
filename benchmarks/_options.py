"""What the command line chose, as the scenarios see it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

ContenderT = TypeVar("ContenderT")


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
