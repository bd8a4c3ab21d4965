"""What has been learned of servers by their origin, so that a further connection need not find out again.

2026-07-28 `basic/transports/streamable-http`, section Backward Compatibility.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

__all__ = ["ORIGINS", "Origins", "SpokenByOrigin", "origin_of"]

SpokenByOrigin: TypeAlias = Literal["modern", "legacy", "sse"]
"""What a server speaks: the modern era, the legacy era over Streamable HTTP, or over HTTP+SSE."""

MAX_ORIGINS: Final = 1000
MAX_AGE: Final = 3600.0
"""Seconds after which a server is asked again: it may speak more than it did."""


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL.

    Raises:
        ValueError: It is none.
    """
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}"


class Origins:
    """Remembers what servers speak, by origin; beyond `MAX_ORIGINS` the one that was used least recently is forgotten.

    It is a hint and no more: whoever follows it finds out again where it is wrong, and everybody after `MAX_AGE`.

    Args:
        clock: The time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spoken: OrderedDict[str, tuple[SpokenByOrigin, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._spoken)

    def recall(self, url: str) -> SpokenByOrigin | None:
        """What the server of a URL spoke last; None if it is not known."""
        origin = origin_of(url)
        found = self._spoken.get(origin)
        if found is None:
            return None
        spoken, noted = found
        if self._clock() - noted > MAX_AGE:
            del self._spoken[origin]
            return None
        self._spoken.move_to_end(origin)
        return spoken

    def note(self, url: str, spoken: SpokenByOrigin) -> None:
        """Remember what the server of a URL speaks."""
        origin = origin_of(url)
        self._spoken[origin] = spoken, self._clock()
        self._spoken.move_to_end(origin)
        if len(self._spoken) > MAX_ORIGINS:
            self._spoken.popitem(last=False)

    def forget(self, url: str) -> None:
        """Forget what the server of a URL speaks."""
        self._spoken.pop(origin_of(url), None)

    def clear(self) -> None:
        """Forget everything."""
        self._spoken.clear()


ORIGINS: Final = Origins()
"""What this process has learned."""
