"""Remembers the era that each server supports, by origin, so that further connections need not find out again.

2026-07-28 `basic/transports/streamable-http`, section Backward Compatibility, recommends this.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

__all__ = ["ORIGINS", "Origins", "SpokenByOrigin", "origin_of"]

SpokenByOrigin: TypeAlias = Literal["modern", "legacy", "sse"]
"""The modern era, the legacy era over Streamable HTTP, or the legacy era over HTTP+SSE."""

# An arbitrary choice: more origins than one process is likely to talk to.
MAX_ORIGINS: Final = 1000
MAX_AGE: Final = 3600.0
"""Seconds after which a server's era is determined again (arbitrary): the server may have been upgraded meanwhile."""


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL (RFC 6454, section 4).

    Raises:
        ValueError: If the URL is malformed.
    """
    # The default port is written out, so that an origin is the same with and without it. `hostname` is in lower case
    # already.
    parts = urlsplit(url)
    port = {"http": 80, "https": 443}.get(parts.scheme) if parts.port is None else parts.port
    return f"{parts.scheme}://{parts.hostname}:{port}"


class Origins:
    """A cache of the eras of servers, by origin; beyond `MAX_ORIGINS`, the least recently used entry is forgotten.

    An entry is only a hint: a client that follows it finds out if it is wrong. It expires after `MAX_AGE`.

    Args:
        clock: Returns the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # The default clock is monotonic, because a correction of the wall clock must not make an entry last for years.
        self._clock = clock
        self._spoken: OrderedDict[str, tuple[SpokenByOrigin, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._spoken)

    def recall(self, url: str) -> SpokenByOrigin | None:
        """Return the era noted for the server of a URL; None if there is no note, or the note is too old."""
        origin = origin_of(url)
        found = self._spoken.get(origin)
        if found is None:
            return None
        spoken, noted = found
        if self._clock() - noted > MAX_AGE:
            del self._spoken[origin]
            return None
        self._spoken.move_to_end(origin)  # the entry counts as recently used, but does not become newer
        return spoken

    def note(self, url: str, spoken: SpokenByOrigin) -> None:
        """Remember the era that the server of a URL supports."""
        origin = origin_of(url)
        self._spoken[origin] = spoken, self._clock()
        # Assigning to an existing key does not move the key, so it is moved to the end, as the most recently used key.
        self._spoken.move_to_end(origin)
        if len(self._spoken) > MAX_ORIGINS:
            self._spoken.popitem(last=False)

    def forget(self, url: str) -> None:
        """Forget the era noted for the server of a URL."""
        self._spoken.pop(origin_of(url), None)

    def clear(self) -> None:
        """Forget the noted eras of all servers."""
        self._spoken.clear()


ORIGINS: Final = Origins()
"""The cache that all clients in this process share."""
