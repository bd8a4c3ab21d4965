"""When to try again: how long to wait, how often, and what may be repeated at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import attrs

from trio_mcp.errors import HttpTrouble
from trio_mcp.types.methods import facts_of

__all__ = ["Backoff", "may_repeat", "retry_after"]


def may_repeat(trouble: HttpTrouble, method: str | None) -> bool:
    """Whether a failed exchange may be tried again without asking the caller.

    Args:
        trouble: What went wrong, as `HttpError` has it.
        method: The method of the message that was posted; None for a GET, which is always repeatable.
    """
    if trouble == "busy":
        return True  # refused before anything was done (RFC 6585, section 4; RFC 9110, section 15.6.4)
    # A gateway does not know how far the request came.
    return trouble == "gateway" and (method is None or facts_of(method).repeatable)


def retry_after(value: str | None, now: float) -> float | None:
    """Read ``Retry-After``: seconds, or a date (RFC 9110, section 10.2.3).

    Args:
        value: The field, or None.
        now: The time, in seconds since 1970.

    Returns:
        The seconds to wait, not negative; None where the field is missing or can't be read.
    """
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError, TypeError):
        return None


@attrs.frozen
class Backoff:
    """How long to wait before each further attempt: longer each time, up to a limit, and never all at once.

    Attributes:
        first: The longest wait before the second attempt, in seconds.
        longest: The longest wait of all, in seconds.
        attempts: How often to try again; 0 for not at all, None for no limit.
        patience: The longest wait that a server may ask for, in seconds; one that asks for more gets no further try.
        factor: By how much each further wait is longer.
        jitter: The part of each wait that is left to chance, from 0 to 1, so that many clients don't come back at the
            same moment.
    """

    first: float = 1.0
    longest: float = 30.0
    attempts: int | None = 5
    patience: float = 120.0
    factor: float = 2.0
    jitter: float = 0.5

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Backoff):
            value = getattr(self, field.name)
            kinds = (int, type(None)) if field.name == "attempts" else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise TypeError(f"{field.name} of a backoff must be a number, got {value!r}")
        waits = 0 < self.first <= self.longest < math.inf and self.factor >= 1 and 0 <= self.jitter <= 1
        if not (waits and self.patience >= 0 and (self.attempts is None or self.attempts >= 0)):
            needs = "0 < first <= longest, factor >= 1, jitter from 0 to 1, patience >= 0 and attempts >= 0"
            raise ValueError(f"a backoff needs {needs}, got {self}")

    def wait(self, attempt: int, random: Callable[[], float], asked: float | None = None) -> float | None:
        """The seconds to wait before trying again, or None to give up.

        Args:
            attempt: How often it has been tried again before, from 0.
            random: Gives a number from 0 up to 1.
            asked: What the server asks for, in seconds: its ``Retry-After``, or the ``retry`` of an event stream.
                It is the wait before the first further attempt, and the least before the others.
        """
        if self.attempts is not None and attempt >= self.attempts:
            return None
        if asked is not None and asked > self.patience:
            return None
        if asked is not None and attempt == 0:
            return asked
        try:
            ceiling = min(self.longest, self.first * float(self.factor) ** attempt)
        except OverflowError:
            ceiling = self.longest
        return max(asked or 0.0, ceiling * (1 - self.jitter + self.jitter * random()))
