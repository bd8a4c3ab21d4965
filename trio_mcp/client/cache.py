"""Cache results for as long as the server allows (`server/utilities/caching`, 2026-07-28)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, TypeAlias

import trio
from pydantic_core import PydanticSerializationError, from_json, to_json

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_count, check_seconds
from trio_mcp.client.subscriptions import lies_below
from trio_mcp.http.client.parameters import HttpServerParameters

__all__ = ["CacheStatistics", "RequestInFlight", "ResponseCache"]

MAX_TTL_MS = 365 * 24 * 3600 * 1000  # a year (arbitrary): a hostile `ttlMs` must not overflow the clock
# An estimate for CPython, too large rather than too small.
OVERHEAD = 500
"""Bytes counted for an entry in addition to its key and its result, for Python's own objects."""

# For each kind of change, the methods whose results it makes stale.
LISTS = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
}

Question: TypeAlias = tuple[str, str, str | None]
"""The identity of a request: the revision, the method, and the cursor or the URI."""


# The class itself is used as the owner, because no principal that a program can pass is equal to it.
class _Everybody:
    """The owner of public entries."""


@attrs.frozen
class _Entry:
    result: bytes  # parsed again for each caller, so that no caller can change what the next one gets
    fresh_until: float
    size: int


@attrs.define(eq=False)
class RequestInFlight:
    """A request in flight. If a change to its result is announced, it is ``spoiled``, and the result is not cached."""

    question: Question
    spoiled: bool = False


@attrs.frozen
class CacheStatistics:
    """The contents of a cache, in numbers.

    Attributes:
        entries: The number of cached results.
        bytes: The size of these results, as counted for ``max_bytes``.
        pending: The number of requests in flight whose results may be cached.
    """

    entries: int
    bytes: int
    pending: int


class ResponseCache:
    """A cache of the results of **one** server: ``Client(..., cache=ResponseCache())``.

    Several clients of that server may share it: all of them share public results, and those with the same
    ``principal`` share private ones. A cache belongs to one run of Trio; a later run finds it empty.

    Args:
        max_entries: How many results to keep; the least recently used is evicted first.
        max_bytes: How many bytes of results to keep.
        stale_if_error: How many seconds after its expiry a result may still be used, if asking for a new one fails
            with `TransportError` or `RequestTimeout`. A result that the server has announced as changed is never used.
    """

    def __init__(
        self, *, max_entries: int = 1000, max_bytes: int = 16 * 1024 * 1024, stale_if_error: float = 0.0
    ) -> None:
        for name, count in (("max_entries", max_entries), ("max_bytes", max_bytes)):
            check_count(name, count)
        check_seconds("stale_if_error", stale_if_error, zero=True, finite=True)
        self._max_entries, self._max_bytes, self._grace = max_entries, max_bytes, stale_if_error
        self._entries: OrderedDict[tuple[Hashable, Question], _Entry] = OrderedDict()
        self._bytes = 0
        self._flights: set[RequestInFlight] = set()
        self._server: object = None
        self._run: object = None

    def __len__(self) -> int:
        return len(self._entries)

    def statistics(self) -> CacheStatistics:
        """Return the size of the cache now. This is cheap: it only reads counters."""
        return CacheStatistics(len(self._entries), self._bytes, len(self._flights))

    def clear(self) -> None:
        """Forget all results; responses that are still on their way are not cached either."""
        self._entries.clear()
        self._bytes = 0
        for flight in self._flights:
            flight.spoiled = True

    def forget(self, method: str, uri: str | None = None) -> None:
        """Forget the results of a method, or of reading one URI, so that the next caller asks the server."""
        self._drop(lambda question: question[1] == method and uri in (None, question[2]))

    # --- for clients ---------------------------------------------------------------------------------------------

    def attach(self, target: object) -> None:
        """Bind the cache to the server of a target.

        Raises:
            ValueError: If the cache is already bound to another server.
        """
        # Only the URL is compared, because a plain string and parameters with different headers can name the same
        # server.
        server = target.url if isinstance(target, HttpServerParameters) else target
        # Two servers may use the same names and URIs, so an entry from one must not be used for the other.
        if self._server is not None and self._server != server:
            raise ValueError("a ResponseCache is for one server: give the client of another server its own cache")
        self._server = server

    def find(self, question: Question, owner: Hashable, *, stale: bool = False) -> Any:
        """Return the caller's own copy of a cached result that may be used now, or None if no such result is cached."""
        self._check_run()
        now = trio.current_time()
        for who in (owner, _Everybody):
            # The caller's own entry is looked up first, so it takes precedence over a public one.
            entry = self._entries.get((who, question))
            if entry is None:
                continue
            if now < entry.fresh_until + (self._grace if stale else 0.0):
                # The entry is now the most recently used one, so it is evicted last.
                self._entries.move_to_end((who, question))
                return from_json(entry.result)
            if now >= entry.fresh_until + self._grace:
                self._remove((who, question))
        return None

    def departs(self, question: Question) -> RequestInFlight:
        """Record that a request is about to be sent; call `landed` once it has ended."""
        flight = RequestInFlight(question)
        self._flights.add(flight)
        return flight

    def landed(self, flight: RequestInFlight) -> None:
        """Record that a request has ended, with or without a result."""
        self._flights.discard(flight)

    def keep(self, flight: RequestInFlight, owner: Hashable, result: dict[str, Any]) -> None:
        """Cache a result that has just arrived, if the server allows it and has announced no change in the meantime."""
        ttl, scope = result.get("ttlMs"), result.get("cacheScope")
        # The specification says: "Interim results with resultType input_required are not cacheable". An invalid ttl
        # counts as 0.
        if flight.spoiled or type(ttl) is not int or ttl <= 0 or result.get("resultType", "complete") != "complete":
            return
        try:
            data = to_json(result, inf_nan_mode="constants")
        except (PydanticSerializationError, ValueError):
            return  # it can't be stored as JSON, and the caller still gets the result
        question = flight.question
        # Each character of a key counts as four bytes, the most that Python uses for one (PEP 393).
        size = len(data) + len(question[2] or "") * 4 + OVERHEAD
        # An older result may be cached under the other owner, because its scope may have been different; it must not
        # survive.
        for who in (owner, _Everybody):
            self._remove((who, question))
        # The old entries are dropped even if the result is too large to be kept: it is newer than they are.
        if size > self._max_bytes:
            return
        # Only an explicit "public" is shared: a missing or unknown scope counts as private.
        key = (_Everybody if scope == "public" else owner, question)
        self._entries[key] = _Entry(data, trio.current_time() + min(ttl, MAX_TTL_MS) / 1000, size)
        self._bytes += size
        # The loop ends, because the entry just added is the last to be evicted, and fits by itself.
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    def changed(self, kind: str, uri: str | None) -> None:
        """Drop the results that an announced change makes stale: the lists of a kind, or the resource at a URI."""
        if uri is None:
            self._drop(lambda question: question[1] in LISTS[kind])
        else:
            # The URI may name a part of a resource that was read as a whole, or vice versa.
            self._drop(lambda question: question[1] == "resources/read" and _related(question[2] or "", uri))

    def _drop(self, concerns: Any) -> None:
        # The keys are copied into a list, because entries are removed in the loop.
        for key in [key for key in self._entries if concerns(key[1])]:
            self._remove(key)
        for flight in self._flights:
            # A response already on its way may still show the state before the change.
            flight.spoiled = flight.spoiled or concerns(flight.question)

    def _remove(self, key: tuple[Hashable, Question]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size

    def _check_run(self) -> None:
        run = trio.lowlevel.current_trio_token()
        if run is not self._run:  # each run has its own clock, so old expiry times mean nothing
            self.clear()
            # Requests of an earlier run can't get a response any more.
            self._flights.clear()
            self._run = run


def _related(one: str, other: str) -> bool:
    return one == other or lies_below(one, other) or lies_below(other, one)
