"""`RateLimit`: a middleware that refuses a caller's requests when they come too fast."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import attrs
import trio

from trio_mcp._checks import check_count, check_number, validator
from trio_mcp.errors import McpError
from trio_mcp.server.context import Context, ServedContext
from trio_mcp.server.served_session import ServedSession
from trio_mcp.types.error_codes import OVERLOADED

__all__ = ["RateLimit", "caller"]


def caller(context: Context[Any]) -> Hashable:
    """Return the caller of a request: its principal, or else its connection or session; None if neither is known."""
    if context.principal is not None:
        return context.principal.identity
    assert isinstance(context, ServedContext)
    connection = context.connection
    # A connection that is only a single HTTP request can't stand for the caller: each request would get a bucket of its
    # own.
    return connection if isinstance(connection, ServedSession) and connection.lasting else None


def _checked_rate(rate: float) -> float:
    check_number("rate", rate)
    if not 0 < rate < math.inf:
        raise ValueError(f"rate must be more than 0 requests a second and finite, got {rate!r}")
    return rate


@attrs.define(eq=False)
class RateLimit:
    """Refuses a caller's requests when they come too fast (-31429); the error's data has ``retryAfter``, in seconds.

    Each caller has a token bucket. A request takes a token, and tokens come back at a steady rate.

    Attributes:
        rate: How many requests a second a caller may make in the long run.
        burst: How many requests a caller may make at once: the size of a bucket. By default twice the rate, and at
            least 1.
        key: Returns the caller of a request. By default its principal, or else its connection or session; all other
            requests, such as those over HTTP without sessions and principals, share a bucket.
        max_callers: How many buckets are kept. Beyond that, the least recently used one is dropped.
    """

    rate: float = attrs.field(converter=_checked_rate)  # converters run before `burst` is made from the rate
    burst: int = attrs.field(
        default=attrs.Factory(lambda self: max(1, int(2 * self.rate)), takes_self=True),
        validator=validator(check_count),
    )
    key: Callable[[Context[Any]], Hashable] = attrs.field(default=caller, kw_only=True)
    max_callers: int = attrs.field(default=10_000, kw_only=True, validator=validator(check_count))
    # For each caller, the time at which its bucket will be full again; the least recently seen caller comes first. The
    # more tokens have been taken, the later this time is, so it also shows how many tokens are left.
    _full_at: OrderedDict[Hashable, float] = attrs.field(factory=OrderedDict, init=False)

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        wait = self._take(self.key(context))
        if wait > 0:
            wait = math.ceil(wait * 1000) / 1000
            raise McpError(OVERLOADED, f"too many requests; try again in {wait:g} s", {"retryAfter": wait})
        return await call_next()

    def _take(self, who: Hashable) -> float:
        """Take a token from a caller's bucket; if the bucket is empty, return the seconds until it has a token."""
        now, capacity = trio.current_time(), self.burst / self.rate
        # The time is limited to that of an empty bucket, because the entry may come from an earlier run of Trio, whose
        # clock may be far ahead of the current clock.
        full_at = min(max(now, self._full_at.get(who, now)), now + capacity)
        wait = full_at + 1 / self.rate - (now + capacity)
        # The comparison needs a little tolerance, because sums of floats may be off by a billionth of a second.
        if wait > 1e-9:
            return wait
        self._full_at[who] = full_at + 1 / self.rate
        self._full_at.move_to_end(who)
        # Full buckets need not be kept; the bucket at the front is the least recently used.
        while self._full_at and (len(self._full_at) > self.max_callers or next(iter(self._full_at.values())) <= now):
            self._full_at.popitem(last=False)
        return 0.0
