"""The times by which stores decide: when a call began, and when a token bucket will be full again."""

from __future__ import annotations

import attrs

__all__ = ["SLICE", "Moment", "taken"]

SLICE = 32
"""How many expired rows one write deletes (arbitrary), so that no write takes long."""


@attrs.frozen
class Moment:
    """The time at which a call began.

    Attributes:
        boot: The id of the machine's last start.
        clock: The time on the clock of leases, in seconds.
        now: Seconds since the epoch.
    """

    boot: str
    clock: float
    now: float


def taken(full_at: float, now: float, *, rate: float, burst: int) -> tuple[float, float]:
    """Take a token from a bucket.

    Args:
        full_at: When the bucket will be full. The more tokens have been taken, the later this is.
        now: The time, by the same clock.
        rate: How many tokens come back each second.
        burst: How many tokens a full bucket holds.

    Returns:
        The seconds until the bucket has a token, and when it will be full. If the bucket has no token, the seconds are
        more than 0.0, and nothing is taken.
    """
    capacity = burst / rate
    # A time that is further away than that of an empty bucket comes from a clock that has been set back.
    full_at = min(max(now, full_at), now + capacity)
    wait = full_at + 1 / rate - (now + capacity)
    # The comparison needs a little tolerance, because sums of floats may be off by a billionth of a second.
    return (wait, full_at) if wait > 1e-9 else (0.0, full_at + 1 / rate)
