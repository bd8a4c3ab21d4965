"""Checks the ``Host`` and ``Origin`` headers of requests, as a protection against DNS rebinding and foreign pages.

In DNS rebinding, a web page makes its own host name resolve to this machine, and so reaches a local server, with the
page's name in the Host header. A server meant for this machine therefore accepts only names of this machine (2026-07-28
`basic/transports/streamable-http`, section Security & Endpoint).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from trio_mcp.http.headers import Headers, shown

__all__ = ["LOOPBACK_HOSTS", "HostGuard"]

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
"""The names accepted by a server that listens only on this machine."""

MAX_SEEN = 100
"""How many spellings of accepted hosts are cached: with ports and letter case, a host has any number of spellings.

An arbitrary choice.
"""

# The pattern matches a host with an optional port (RFC 9110, section 7.2). In an entry of allowed_hosts, the port ``*``
# means any port.
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.%]+\]|[^:/?#@\[\]\s]+)(?::(?P<port>\d{1,5}|\*)?)?")
# An origin consists of a scheme and a host, perhaps with a port, but never has a path (RFC 6454, section 6.2).
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[^/?#@\s]+)")
# These values mean that a person has entered the URL, or that the page has the same origin as the server (W3C Fetch
# Metadata, section 2.4).
_OWN_SITES: Final = ("none", "same-origin")


class HostGuard:
    """A check of the ``Host`` and ``Origin`` headers of requests, and of ``Sec-Fetch-Site`` where there is no Origin.

    Args:
        allowed_hosts: Names such as ``"example.com"``, which allows any port, or ``"example.com:8000"``. None
            allows any host: for a server that doesn't know its own name, or one behind a proxy that checks the host.
        allowed_origins: Origins such as ``"https://app.example.com"``, or ``"*"`` for any. None allows the origins on
            the allowed hosts, but no origin if any host is allowed: in a DNS rebinding attack the origin matches the
            Host header, so that match proves nothing.

    Raises:
        TypeError: If an argument is a string, or contains anything but strings.
        ValueError: If an entry does not have the form above.
    """

    def __init__(self, allowed_hosts: Collection[str] | None, allowed_origins: Collection[str] | None = None) -> None:
        # A single string is refused: it is an iterable of characters, nearly any of which would be accepted as a host.
        for name, given in (("allowed_hosts", allowed_hosts), ("allowed_origins", allowed_origins)):
            if isinstance(given, str):
                raise TypeError(f"{name} must be a list, got the string {given!r}")
            if not all(isinstance(entry, str) for entry in given or ()):
                raise TypeError(f"{name} must contain only strings, got {given!r}")
        self._seen: set[str] = set()  # Host headers accepted before, as sent, which need not be matched again
        self._hosts = None if allowed_hosts is None else {_entry(host) for host in allowed_hosts}
        self._origins = None if allowed_origins is None else {_origin_entry(origin) for origin in allowed_origins}

    def check(self, headers: Headers) -> str | None:
        """Return what is wrong with a request and what to do about it, or None if it may pass."""
        host = headers.get("Host")
        if self._hosts is not None:
            if host is None:
                return "a request without a Host header is refused, because allowed_hosts is set"
            if host not in self._seen and not self._takes(host):
                seen = f"a request for the host {shown(host)} is refused"
                return f"{seen}; if that is a name of this server, add it to allowed_hosts"
        # Only browsers send an Origin. Other programs have nothing to gain from DNS rebinding.
        origin = headers.get("Origin")
        if origin is None:
            return self._check_site(headers)
        if self._takes_origin(origin.lower()):
            return None
        seen = f"a request from the origin {shown(origin)} is refused"
        if self._hosts is None and self._origins is None:
            return (
                f"{seen}; if it is the origin of this server itself, set allowed_hosts to the names of this server; if"
                " it is trusted, add it to allowed_origins"
            )
        return f"{seen}; if it is trusted, add it to allowed_origins"

    def _check_site(self, headers: Headers) -> str | None:
        # A browser sends no Origin with the GET of an image or a link, but it says whether the page is of another site.
        site = headers.get("Sec-Fetch-Site")
        if site is None or site in _OWN_SITES or "*" in (self._origins or ()):
            return None
        return (
            f"a request from a page of another origin (Sec-Fetch-Site is {shown(site)}) is refused; if that origin is"
            " trusted, add it to allowed_origins, and let the page send its Origin, as fetch does with CORS"
        )

    def _takes(self, host: str) -> bool:
        assert self._hosts is not None
        match = _HOST.fullmatch(host.lower())
        # An entry without a port allows every port.
        taken = match is not None and ((match["name"], "") in self._hosts or _key(match) in self._hosts)
        # The cache is bounded, because the peer chooses the spelling; once the cache is full, it still contains the
        # usual spellings.
        if taken and len(self._seen) < MAX_SEEN:
            self._seen.add(host)
        return taken

    def _takes_origin(self, origin: str) -> bool:
        if self._origins is not None:
            return "*" in self._origins or origin in self._origins
        # Browsers send "null" for local files and sandboxed frames; it matches no host. If any host is allowed, an
        # origin that matches the Host header proves nothing.
        match = _ORIGIN.fullmatch(origin)
        return match is not None and self._hosts is not None and self._takes(match["host"])


def _entry(text: str) -> tuple[str, str]:
    match = _HOST.fullmatch(text.lower())
    if match is None:
        raise ValueError(f"allowed_hosts has {text!r}, which is not a host or host:port")
    return _key(match)


def _key(match: re.Match[str]) -> tuple[str, str]:
    port = match["port"] or ""
    return match["name"], "" if port == "*" else port


def _origin_entry(text: str) -> str:
    origin = text.lower()
    if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
        raise ValueError(f"allowed_origins has {text!r}, which is not an origin such as 'https://example.com', or '*'")
    return origin
