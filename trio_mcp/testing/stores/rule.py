"""The form of a rule of the contract of stores, and the pair of stores that it is checked on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias

import attrs
import trio

from trio_mcp.stores.contract import StoredTask, Stores

__all__ = ["PairOfStores", "StoreFault", "StoreRule", "store_rule", "until"]


class StoreFault(Exception):
    """Raised when the rule being checked is broken; the message says what happened."""


@attrs.frozen
class PairOfStores:
    """Two open stores on the same data, which is empty at first.

    Attributes:
        one: A store.
        two: Another store, as in another process; it may be the same object.
        lease: Seconds of the leases that the rules let expire.
    """

    one: Stores
    two: Stores
    lease: float

    def task(self, key: str, **columns: Any) -> StoredTask:
        """Return a task to add: one of the tool ``"tool"`` that is ready, unless the columns say otherwise."""
        now = self.one.now()
        usual = {"owner": "", "tool": "tool", "status": "working", "created": now, "updated": now, "expires": None}
        return StoredTask(key=key, **{**usual, **columns})

    def equal(self, found: object, expected: object, what: str) -> None:
        """Check that two values are equal."""
        if found != expected:
            raise StoreFault(f"{what}: expected {expected!r}, got {found!r}")

    async def raises(self, error: type[Exception], call: Awaitable[object], what: str) -> None:
        """Check that a call raises an error."""
        try:
            result = await call
        except error:
            return
        raise StoreFault(f"{what}: expected {error.__name__}, got {result!r}")

    async def run_out(self, start: float) -> None:
        """Wait until a lease that was created at the time ``start`` has expired."""
        await until(self.two.clock, start + self.lease)

    def fail(self, what: str) -> NoReturn:
        """Report that the rule is broken."""
        raise StoreFault(what)


async def until(clock: Callable[[], float], time: float) -> None:
    """Wait until a clock has passed a time."""
    while True:
        left = time - clock()
        if left < 0:
            return
        await trio.sleep(left + 0.001)


Check: TypeAlias = Callable[[PairOfStores], Awaitable[None]]


@attrs.frozen
class StoreRule:
    """A rule of the contract of stores.

    Attributes:
        name: The name of the rule.
        sentence: The promise that the rule requires of a store.
        check: Checks the rule; if it is broken, raises `StoreFault`, or what the store raises.
    """

    name: str
    sentence: str
    check: Check


def store_rule(sentence: str) -> Callable[[Check], StoreRule]:
    """Return a decorator that turns a check into a rule, named after the function."""
    return lambda check: StoreRule(check.__name__, sentence, check)
