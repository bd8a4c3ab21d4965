"""What has been learned of servers by their origin, so that a further connection need not find out again.

2026-07-28 `basic/transports/streamable-http`, section Backward Compatibility.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, TypeAlias

from trio_mcp.transports.http_wire import origin_of

__all__ = ["ORIGINS", "Origins", "SpokenByOrigin"]

SpokenByOrigin: TypeAlias = Literal["modern", "legacy", "sse"]
"""What a server speaks: the modern era, the handshake era over Streamable HTTP, or over HTTP+SSE."""

MAX_ORIGINS: Final = 1000


class Origins:
    """Remembers what servers speak, by origin; beyond `MAX_ORIGINS` the one that was used least recently is forgotten.

    It is a hint and no more: whoever follows it finds out again where it is wrong.
    """

    def __init__(self) -> None:
        self._spoken: OrderedDict[str, SpokenByOrigin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._spoken)

    def recall(self, url: str) -> SpokenByOrigin | None:
        """What the server of a URL spoke last; None if it is not known."""
        origin = origin_of(url)
        if origin in self._spoken:
            self._spoken.move_to_end(origin)
        return self._spoken.get(origin)

    def note(self, url: str, spoken: SpokenByOrigin) -> None:
        """Remember what the server of a URL speaks."""
        origin = origin_of(url)
        self._spoken[origin] = spoken
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
