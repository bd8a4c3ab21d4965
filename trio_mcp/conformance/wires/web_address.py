"""The address of a server over HTTP or a WebSocket."""

from __future__ import annotations

from urllib.parse import urlsplit

from trio_mcp.sockets.addresses import Address

__all__ = ["web_address"]


def web_address(url: str) -> tuple[Address, str]:
    """Return where the server of a URL is, and the path with the query that it is asked for.

    The address has neither user nor password: they belong neither in a Host header (RFC 9110, section 7.2) nor in a
    report. It has no query either.
    """
    parts = urlsplit(url)
    scheme, usual_port = ("tls", 443) if parts.scheme in ("https", "wss") else ("tcp", 80)
    authority, path = parts.netloc.rpartition("@")[2], parts.path or "/"
    shown = f"{parts.scheme}://{authority}{path}"
    address = Address(shown, scheme, authority, parts.hostname or "", parts.port or usual_port)
    return address, f"{path}?{parts.query}" if parts.query else path
