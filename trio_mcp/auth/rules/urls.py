"""URLs that peers name: which of them are fetched or opened, and when two of them mean the same.

URLs stay strings, byte for byte as they came; they are taken apart only to look at them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import attrs

__all__ = ["Reach", "UrlPolicy", "covers", "is_loopback", "origin", "reach", "same_issuer"]


class Reach(enum.IntEnum):
    """From where an address can be reached, the widest first."""

    GLOBAL = 0
    PRIVATE = 1
    """The networks of houses and companies: RFC 1918, RFC 6598, unique local addresses."""
    LOOPBACK = 2
    NEVER = 3
    """Nothing that a URL should lead to: link-local (metadata of clouds), multicast, unspecified, reserved."""


def reach(address: str) -> Reach:
    """Return from where an IP address can be reached, after unwrapping IPv4 in IPv6 (mapped, 6to4, NAT64, Teredo)."""
    raise NotImplementedError


def _hosts(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


@attrs.frozen
class UrlPolicy:
    """Which URLs that a peer names are fetched or opened.

    They are ``https``, have no userinfo and no fragment, and lead to addresses of the public internet, or to such as
    the MCP server has itself. ``http`` is for loopback only, and only where the MCP server is on loopback, too.

    Args:
        hosts: Names of hosts that are trusted beyond that: they may have a private address and use ``http``.
    """

    hosts: frozenset[str] = attrs.field(default=frozenset(), converter=_hosts)

    def check(self, url: str, server: str, step: str) -> None:
        """Check the form of a URL, before anything is resolved.

        Args:
            url: The URL that a peer named.
            server: The URL of the MCP server, which the user named.
            step: What the URL is for, as `AuthorizationError.step` names it.

        Raises:
            AuthorizationError: If it is refused.
        """
        raise NotImplementedError

    def check_address(self, url: str, address: str, near: Sequence[str], step: str) -> None:
        """Check an address that the host of a URL resolves to; the connection goes to the address that was checked.

        Args:
            url: The URL.
            address: The address, without brackets.
            near: The addresses of the MCP server's host.
            step: What the URL is for.

        Raises:
            AuthorizationError: If it is refused.
        """
        raise NotImplementedError


def origin(url: str) -> str:
    """Return the origin of a URL: scheme and host in lower case, and the port unless it is the scheme's own.

    Raises:
        ValueError: If it has none.
    """
    raise NotImplementedError


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is ``localhost`` or a loopback address, by its form alone."""
    raise NotImplementedError


def covers(resource: str, server: str) -> bool:
    """Return whether a resource is the server's URL, or a parent of it on the same origin by whole path segments."""
    raise NotImplementedError


def same_issuer(advertised: str, published: str) -> bool:
    """Return whether a metadata document may be the one of an issuer: they are equal, up to one slash at the end.

    The URL of the metadata is the same for both (RFC 8414, section 3.1), and large providers differ by it. Everything
    after that compares issuers exactly, and takes the document's.
    """
    raise NotImplementedError
