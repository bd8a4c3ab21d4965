"""Decides what may be retried, how often, and after how long."""

from __future__ import annotations

import math
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_count, check_number
from trio_mcp.errors import AuthorizationError, HttpTrouble, LoginRequired
from trio_mcp.types.methods import facts_of

__all__ = ["Backoff", "asks_anew", "may_repeat", "retry_after"]


def may_repeat(trouble: HttpTrouble, method: str | None) -> bool:
    """Return whether a failed exchange may be repeated without asking the caller.

    Args:
        trouble: What went wrong: `HttpError.trouble`.
        method: The method of the message that was posted; None for a GET, which is always repeatable.
    """
    # The statuses 429 and 503 ("busy") mean that the request was refused before anything was done (RFC 6585, section 4;
    # RFC 9110, section 15.6.4).
    if trouble == "busy":
        return True
    # The statuses 502 and 504 come from a gateway, which does not know how far the request got.
    return trouble == "gateway" and (method is None or facts_of(method).repeatable)


def asks_anew(error: Exception) -> bool:
    """Return whether another attempt to connect would once more ask a person who has just refused or not responded."""
    if isinstance(error, LoginRequired):
        return False  # no person is asked, and another program may sign in meanwhile
    return isinstance(error, AuthorizationError) and error.step in ("authorization", "device", "redirection")


def retry_after(value: str | None, now: float) -> float | None:
    """Read a ``Retry-After`` field: seconds, or a date (RFC 9110, section 10.2.3).

    Args:
        value: The value of the field, or None.
        now: The current time, in seconds since 1970.

    Returns:
        The seconds to wait, not negative; None if the field is missing or malformed.
    """
    if value is None:
        return None
    # `isascii` is needed because `isdigit` alone would accept digits of other scripts.
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError, TypeError):
        return None


@attrs.frozen
class Backoff:
    """The waits between attempts: exponentially longer, up to a limit, and with jitter.

    Attributes:
        first: The maximum wait before the second attempt, in seconds.
        longest: The maximum wait before any attempt, in seconds.
        attempts: The number of further attempts; 0 for none, None for no limit.
        patience: The maximum wait that a server may ask for, in seconds; if it asks for more, there are no further
            attempts.
        factor: The factor by which the maximum wait grows with each attempt, up to ``longest``.
        jitter: The random part of each wait, from 0 to 1, so that many clients don't return at the same moment.
    """

    # The defaults are arbitrary choices. With them, five further attempts wait half a minute at most in all (1 + 2 + 4
    # + 8 + 16 s).
    first: float = 1.0
    longest: float = 30.0
    attempts: int | None = 5
    patience: float = 120.0
    factor: float = 2.0
    jitter: float = 0.5

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Backoff):
            value = getattr(self, field.name)
            if field.name != "attempts":
                check_number(f"{field.name} of a backoff", value)
            elif value is not None:
                check_count("attempts of a backoff", value, least=0)
        if not (
            0 < self.first <= self.longest < math.inf
            and self.factor >= 1
            and 0 <= self.jitter <= 1
            and self.patience >= 0
        ):
            raise ValueError(
                f"a backoff needs 0 < first <= longest, factor >= 1, jitter from 0 to 1 and patience >= 0, got {self}"
            )

    def wait(self, attempt: int, random: Callable[[], float], asked: float | None = None) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up.

        Args:
            attempt: The number of further attempts made so far.
            random: Returns a random number from 0 up to 1.
            asked: The wait that the server asks for, in seconds: its ``Retry-After``, or the ``retry`` of an event
                stream. It is the wait before the first further attempt, and the minimum before the others.
        """
        if self.attempts is not None and attempt >= self.attempts:
            return None
        if asked is not None and asked > self.patience:
            return None
        if asked is not None and attempt == 0:
            # The wait is exactly as asked, without jitter, because the server has chosen the time itself.
            return asked
        try:
            ceiling = min(self.longest, self.first * float(self.factor) ** attempt)
        except OverflowError:  # after about a thousand attempts, the power is too large for a float
            ceiling = self.longest
        # The wait is random, between (1 - jitter) times the ceiling and the whole ceiling.
        return max(asked or 0.0, ceiling * (1 - self.jitter + self.jitter * random()))
