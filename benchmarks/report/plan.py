"""How long a run takes: said before it begins, and corrected as it goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Seconds on a quiet machine with two cores and all peers, by default and with --quick.
TYPICAL = {
    "memory": (60, 7),
    "stdio": (90, 10),
    "http": (160, 15),
    "transports": (60, 13),
    "http-client": (130, 15),
    "http-both": (30, 6),
    "idle": (35, 7),
    "connections": (75, 10),
    "slow": (110, 12),
    "rss": (25, 6),
    "startup": (70, 9),
    "import": (25, 6),
    "tools": (60, 5),
    "payloads": (120, 9),
    "signals": (60, 9),
    "load": (150, 19),
    "streams": (130, 13),
    "cancellation": (90, 5),
    "blocking": (16, 7),
    "stores": (40, 6),
    "commits": (28, 5),
    "tasks": (300, 25),
    "proxies": (240, 60),
    "processes": (115, 25),
    "replicas": (200, 50),
    "listeners": (20, 3),
    "protected": (60, 4),
    "hops": (4, 4),
}
_UNKNOWN = (40.0, 8.0)


class Plan:
    """The scenarios of a run, and how much time they have left.

    Args:
        names: The scenarios.
        quick: Whether the run is a quick one.
        scale: How long a sample and its rounds are, compared with those of such a run by default.
    """

    def __init__(
        self, names: Sequence[str], *, quick: bool, scale: float, typical: Mapping[str, tuple[float, float]] = TYPICAL
    ) -> None:
        self._left = {name: typical.get(name, _UNKNOWN)[quick] * scale for name in names}
        self._done = 0.0
        self._started = time.perf_counter()

    def done(self, name: str) -> None:
        """Take note of a scenario's end."""
        self._done += self._left.pop(name)

    def left(self) -> float:
        """Return the seconds to go: as the typical ones say, times how much longer those done have taken."""
        pace = (time.perf_counter() - self._started) / self._done if self._done else 1.0
        return sum(self._left.values()) * pace


def about(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 100:
        return f"about {5 * max(1, round(seconds / 5))} seconds"
    return f"about {seconds / 60:.0f} minutes"
