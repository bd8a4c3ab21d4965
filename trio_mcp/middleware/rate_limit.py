"""`RateLimit`: a middleware that refuses a caller's requests when they come too fast."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from trio_mcp._checks import check_count, check_number, check_text, validator
from trio_mcp._log import logger
from trio_mcp.errors import McpError
from trio_mcp.server.context import Context, ServedContext
from trio_mcp.server.served_session import ServedSession
from trio_mcp.stores.times import taken
from trio_mcp.types.error_codes import OVERLOADED

if TYPE_CHECKING:  # few servers have stores
    from trio_mcp.stores.contract import Stores

__all__ = ["RateLimit", "caller"]

PATIENCE: Final = 1.0
"""Seconds that a request waits for a bucket in the stores."""

RETRY: Final = 5.0
"""Seconds for which stores that could not be used are left alone, so that they don't delay each request."""

PLAIN: Final = (str, bytes, int, float, bool, type(None))
"""The types of callers, and of the parts of callers, that are the same in all processes."""


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

    If the server has stores, the buckets lie there, so that a caller has one in all processes. While the stores can't
    be used, each process counts for itself, and says so in a warning, once a minute.

    Attributes:
        rate: How many requests a second a caller may make in the long run.
        burst: How many requests a caller may make at once: the size of a bucket. By default twice the rate, and at
            least 1.
        key: Returns the caller of a request. By default its principal, or else its connection or session; all other
            requests, such as those over HTTP without sessions and principals, share a bucket.
            In the stores, only callers that are texts, bytes, numbers, None, or tuples of these have a bucket; any
            other has one in each process.
        max_callers: How many buckets are kept in this process. Beyond that, the least recently used one is dropped.
        name: The name of the limit in the stores. Limits of a server with the same name share their buckets; by
            default, the rate and the burst are the name.
    """

    rate: float = attrs.field(converter=_checked_rate)  # converters run before `burst` is made from the rate
    burst: int = attrs.field(
        default=attrs.Factory(lambda self: max(1, int(2 * self.rate)), takes_self=True),
        validator=validator(check_count),
    )
    key: Callable[[Context[Any]], Hashable] = attrs.field(default=caller, kw_only=True)
    max_callers: int = attrs.field(default=10_000, kw_only=True, validator=validator(check_count))
    name: str | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(validator(check_text))
    )
    # For each caller, the time at which its bucket will be full again; the least recently seen caller comes first.
    _full_at: OrderedDict[Hashable, float] = attrs.field(factory=OrderedDict, init=False)
    _away_at: float = attrs.field(default=-math.inf, init=False)
    _warned_at: float = attrs.field(default=-math.inf, init=False)

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        assert isinstance(context, ServedContext)
        who = self.key(context)
        # This process's own bucket never has less than the shared one, so what is refused here costs no transaction.
        wait = self._take(who)
        stores = context.connection.served.stores
        if stores is not None and not wait and _is_plain(who):
            wait = await self._take_shared(stores, context, who)
        if wait > 0:
            wait = math.ceil(wait * 1000) / 1000
            raise McpError(OVERLOADED, f"too many requests; try again in {wait:g} s", {"retryAfter": wait})
        return await call_next()

    def _take(self, who: Hashable) -> float:
        """Take a token from a caller's bucket; if the bucket is empty, return the seconds until it has a token."""
        now = trio.current_time()
        wait, full_at = taken(self._full_at.get(who, now), now, rate=self.rate, burst=self.burst)
        if wait:
            return wait
        self._full_at[who] = full_at
        self._full_at.move_to_end(who)
        # Full buckets need not be kept; the bucket at the front is the least recently used.
        while self._full_at and (len(self._full_at) > self.max_callers or next(iter(self._full_at.values())) <= now):
            self._full_at.popitem(last=False)
        return 0.0

    async def _take_shared(self, stores: Stores, context: ServedContext[Any], who: Hashable) -> float:
        """Take a token from the bucket in the stores, too; without the stores, the one of this process must do."""
        from trio_mcp.stores.contract import StoreError  # deferred: few servers have stores

        # The differences are never negative, except after a run of Trio whose clock was ahead of the current one.
        if 0 <= trio.current_time() - self._away_at < RETRY:
            return 0.0
        settings: Any = context.settings
        name = f"{self.rate!r}/{self.burst}" if self.name is None else self.name
        bucket = hashlib.sha256(repr((settings.info.name, name, who)).encode(errors="backslashreplace")).hexdigest()
        problem = f"they take longer than {PATIENCE:g} s"
        try:
            with trio.move_on_after(PATIENCE):
                wait = await stores.take(bucket, rate=self.rate, burst=self.burst)
                if wait:
                    self._full_at[who] = trio.current_time() + wait + (self.burst - 1) / self.rate
                return wait
        except StoreError as exc:
            problem = str(exc)
        self._away_at = trio.current_time()
        if not 0 <= self._away_at - self._warned_at < 60:
            self._warned_at = self._away_at
            logger.warning("a rate limit counts in this process alone, as its stores can't be used: %s", problem)
        return 0.0


def _is_plain(who: Hashable) -> bool:
    """Return whether a caller is the same in all processes: made of texts, bytes and numbers."""
    return all(map(_is_plain, who)) if type(who) is tuple else type(who) in PLAIN
