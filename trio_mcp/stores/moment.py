"""When a call of `SqliteStores` began: what its tables compare times with."""

from __future__ import annotations

import attrs

__all__ = ["SLICE", "Moment"]

SLICE = 32
"""How many expired rows one write deletes (arbitrary), so that no write takes long."""


@attrs.frozen
class Moment:
    """When a call began.

    Attributes:
        boot: Which start of the machine it was after.
        clock: Seconds of the clock of leases, since then.
        now: Seconds since the epoch.
    """

    boot: str
    clock: float
    now: float
