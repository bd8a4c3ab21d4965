"""Guards HTTP and WebSocket recorders: only requests from this machine, to paths of the target, may pass.

A recorder adds the credentials from the command line to each request, and replaces the client's Host by the target's.
So a web page that could reach the recorder would act as the user, and the target's own checks would not notice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urljoin, urlsplit

from trio_mcp.http.client.origins import origin_of
from trio_mcp.http.headers import MAX_URL, Headers
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard

__all__ = ["RecorderGuard"]

MAX_ENDPOINTS: Final = 1000
"""The maximum number of HTTP+SSE endpoints that are remembered; beyond this number, the oldest is forgotten.

An arbitrary choice: each client has only one endpoint, so this is ample.
"""


class RecorderGuard:
    """Decides which requests to a recorder may pass.

    Args:
        url: The URL of the target.

    Attributes:
        path: The path of the target's URL; the recorder serves at the same path.
    """

    def __init__(self, url: str) -> None:
        self.path = urlsplit(url).path or "/"
        self._url = url
        self._hosts = HostGuard(LOOPBACK_HOSTS)
        self._endpoints: dict[str, None] = {}  # the paths of the endpoints, the oldest first

    def check(self, method: str, target: str, fields: Iterable[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Return the status and the text with which to refuse a request, or None if it may pass.

        Args:
            method: The method of the request.
            target: The path of the request, with its query.
            fields: The headers of the request.
        """
        if self._hosts.check(Headers(fields)) is not None:
            return 403, "this recorder accepts only requests from this machine, with a local Host and Origin"
        path = target.partition("?")[0]
        if path == self.path or (method == "POST" and path in self._endpoints):
            return None
        return 404, f"this recorder serves only {self.path}"

    def name_endpoint(self, data: bytes) -> None:
        """Let clients post to the path that the target's ``endpoint`` event names (2024-11-05, HTTP with SSE)."""
        if len(data) > MAX_URL:
            return
        try:
            url = urljoin(self._url, data.decode())
            if origin_of(url) != origin_of(self._url):
                return
        except ValueError:  # the data is not a URL; the clients will report that
            return
        if len(self._endpoints) >= MAX_ENDPOINTS:
            del self._endpoints[next(iter(self._endpoints))]
        self._endpoints[urlsplit(url).path] = None
