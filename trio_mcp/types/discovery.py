"""How a modern client learns what a server is (2026-07-28 server/discover)."""

from typing import Literal

from trio_mcp.types.capabilities import ServerCapabilities
from trio_mcp.types.messages import CacheableResult, RequestMessage, RequestParams

__all__ = ["DiscoverRequest", "DiscoverResult"]


class DiscoverRequest(RequestMessage, since="2026-07-28"):
    """Asks what the server can do and in which revisions; a client may do without."""

    method: Literal["server/discover"] = "server/discover"
    params: RequestParams


class DiscoverResult(CacheableResult, since="2026-07-28"):
    """What the server can do and in which revisions."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
