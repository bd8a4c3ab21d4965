"""Defers parts of a server that most servers don't need: each is imported, and made, when it is first used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.feature import Feature, Handler, Needs

__all__ = ["Deferred"]

PartT = TypeVar("PartT")
FeatureT = TypeVar("FeatureT", bound=Feature)


class Deferred(Generic[PartT]):
    """A part that is made when the program, or a request, first uses it.

    Until then, a part that is a feature offers nothing: it declares no capabilities, and its requests need no scopes.

    Args:
        make: Imports the part and makes it. May be called in two threads at once; one of the results is discarded.
        adopt: Called with the part once it is made, before any caller gets it.
        methods: If the part is a feature, the methods that it will have.

    Attributes:
        made: The part; None until it is made.
    """

    def __init__(
        self, make: Callable[[], PartT], adopt: Callable[[PartT], None] = lambda _: None, methods: tuple[str, ...] = ()
    ) -> None:
        self.made: PartT | None = None
        self._make = make
        self._adopt = adopt
        self._names = methods
        self._adopting = threading.Lock()

    def get(self) -> PartT:
        """Return the part, which is made on first use. Callable from any thread."""
        if self.made is None:
            # The lock is not held while the part is made: an import waits for other threads, and one of those may wait
            # for the lock.
            made = self._make()
            with self._adopting:
                if self.made is None:
                    self._adopt(made)
                    self.made = made
        return self.made

    @property
    def methods(self: Deferred[FeatureT]) -> dict[str, Handler]:
        """The feature's handlers, by method; until the feature is made, each is a handler that makes it."""
        return dict.fromkeys(self._names, self._first) if self.made is None else dict(self.made.methods)

    @property
    def needs(self: Deferred[FeatureT]) -> dict[str, Needs]:
        """For each method, the function that returns the scopes that a request needs."""
        return {} if self.made is None else dict(self.made.needs)

    def capabilities(self: Deferred[FeatureT], revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        return {} if self.made is None else self.made.capabilities(revision)

    async def _first(self: Deferred[FeatureT], context: ServedContext[Any]) -> dict[str, Any]:
        # The import in `get` holds up other tasks for a few milliseconds, once.
        return await self.get().methods[context.method](context)
