"""Finds the proxy that the environment or the system's settings name for a URL."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

from trio_mcp._addresses import is_loopback

__all__ = ["proxy_of"]


def proxy_of(url: str) -> str | None:
    """Return the URL of the proxy for a URL; None if requests go there directly.

    The variables ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``, or the system's settings, decide.
    Requests to this machine never go through a proxy: to a proxy, ``localhost`` is the machine that the proxy runs on;
    and the proxy would learn the tokens for a server that only this machine can reach.
    """
    parts = urlsplit(url)
    if _is_here(parts.hostname or ""):
        return None
    # `urllib.request` is imported late, because importing it takes a while, and a client of a local server doesn't need
    # it.
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    # The port is passed on, because an entry of `NO_PROXY` may contain a port.
    if not found or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    # The variable may lack a scheme, as in `proxy.example:3128`.
    return found if "://" in found else f"http://{found}"


def _is_here(host: str) -> bool:
    """Return whether a host name or address denotes this machine, without resolving it."""
    name = host.removesuffix(".").lower()
    # Names that end in `.localhost` are loopback names, too (RFC 6761, section 6.3).
    if name == "localhost" or name.endswith(".localhost"):
        return True
    with contextlib.suppress(OSError, ValueError):
        # Resolvers accept further spellings of an address, such as 127.1 and 2130706433.
        host = socket.inet_ntoa(socket.inet_aton(host))
    # The unspecified addresses (0.0.0.0 and ::) lead to this machine, too.
    return is_loopback(host) or host in ("0.0.0.0", "::")
