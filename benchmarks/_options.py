"""What the command line chose, as the scenarios see it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


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

    @property
    def short_rounds(self) -> int:
        """Rounds for scenarios whose samples are single events of well under a second, which scatter more."""
        return self.rounds if self.quick or self.rounds == 1 else self.rounds * 3
