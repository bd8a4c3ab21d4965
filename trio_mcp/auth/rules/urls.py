"""URLs that peers name: which of them are fetched or opened, and when two of them are equivalent.

URLs stay strings, byte for byte as they came; they are taken apart only to be examined.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from trio_mcp._addresses import Reach, reach
from trio_mcp._checks import as_written
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import MAX_URL, shown

__all__ = [
    "Parts",
    "UrlPolicy",
    "covers",
    "is_loopback",
    "origin",
    "same_issuer",
    "same_origin",
    "take_apart",
    "without_query",
]

# Only visible ASCII without the backslash is allowed: browsers and libraries disagree about the meaning of all other
# characters.
_VISIBLE = re.compile(r"[!-\[\]-~]+")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?")
# An escape in the host, such as `id%2Eexample.com`, is not allowed: not all programs decode it, so the host that is
# checked could differ from the one that is connected to.
_AUTHORITY = re.compile(r"(?:([A-Za-z0-9._\-]+)|\[([0-9A-Fa-f:.]+)\])(?::([0-9]{1,5}))?")
_DOTS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)

# A WebSocket URL is treated as the HTTP URL of the same server.
_PORTS: Final = {"https": 443, "wss": 443, "http": 80, "ws": 80}
_PLAIN: Final = {"https": "https", "wss": "https", "http": "http", "ws": "http"}


@attrs.frozen
class Parts:
    """A URL, taken apart.

    Attributes:
        scheme: ``"https"`` or ``"http"``.
        host: The host in lower case, without brackets.
        port: The port; the scheme's default if the URL names none.
        path: The path, unchanged.
        query: The query with its question mark, or an empty string.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def dotted(self) -> bool:
        """Whether the path has dot segments, encoded or not (RFC 3986, section 5.2.4)."""
        return _DOTS.search(self.path) is not None

    @property
    def origin(self) -> str:
        """The scheme, the host, and the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")


def take_apart(url: str) -> Parts:
    """Take apart an HTTP or WebSocket URL.

    Raises:
        ValueError: If the string is anything else, or contains something that such a URL doesn't need; the message says
            what.
    """
    if len(url) > MAX_URL:
        raise ValueError(f"is longer than {MAX_URL} characters")
    if not _VISIBLE.fullmatch(url):
        raise ValueError("contains characters that a URL can't have")
    found = _URL.fullmatch(url)
    if found is None or found[1].lower() not in _PORTS:
        raise ValueError("is not an https or http URL")
    scheme, authority, path, query, fragment = found.groups()
    # `https://id.example.com@evil.example/` looks as if it led to id.example.com, but it leads to evil.example.
    if "@" in authority:
        raise ValueError("contains a user name or a password")
    # Neither endpoints (RFC 6749, section 3.1) nor resources (RFC 8707, section 2) may have a fragment, not even "#".
    if fragment is not None:
        raise ValueError("contains a fragment")
    place = _AUTHORITY.fullmatch(authority)
    if place is None:
        raise ValueError("has no valid host")
    name, literal, port = place.groups()
    number = _PORTS[scheme.lower()] if port is None else int(port)
    if not 0 < number < 65536:
        raise ValueError("has no valid port")
    try:
        # Every address gets the same spelling, because origins are compared as strings.
        host = name.lower() if name else ipaddress.IPv6Address(literal).compressed
    except ValueError:
        raise ValueError("has no valid host") from None
    return Parts(_PLAIN[scheme.lower()], host, number, path, query or "")


def origin(url: str) -> str:
    """Return the origin of a URL: scheme and host in lower case, and the port unless it is the scheme's default.

    Raises:
        ValueError: If the string is not an HTTP or WebSocket URL.
    """
    return take_apart(url).origin


def without_query(url: str) -> str:
    """Return a URL without parts that may be secret: its query, and values that were filled in from a configuration."""
    head, query, _ = as_written(url).partition("?")
    return head + ("?…" if query else "")


def same_origin(url: str, server: str) -> bool:
    """Return whether a URL has the same origin as a server; a string that is not a URL has no origin."""
    try:
        return url == server or origin(url) == origin(server)
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is ``localhost`` or a loopback address, without resolving it."""
    try:
        return _is_loopback(take_apart(url).host)
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    return host == "localhost" or _literal(host) is Reach.LOOPBACK


def covers(resource: str, server: str, *, parent: bool = True) -> bool:
    """Return whether a resource is the server's URL, or a parent of it on the same origin, by whole path segments.

    A slash at the end of either makes no difference.

    Args:
        resource: The identifier of the resource.
        server: The URL of the server.
        parent: Whether a parent is accepted, too.
    """
    try:
        whole, part = take_apart(resource), take_apart(server)
    except ValueError:
        return False
    # A path with dot segments may lead somewhere else once they are resolved, so comparing its segments would prove
    # nothing.
    if whole.origin != part.origin or whole.dotted or part.dotted:
        return False
    above, below = whole.path.removesuffix("/"), part.path.removesuffix("/")
    if above == below:
        # If the resource has a query, the server's must be the same: another query may mean another tenant.
        return whole.query in ("", part.query)
    # The slash is compared, too: `/mc` is not a parent of `/mcp`.
    return parent and not whole.query and below.startswith(above + "/")


def same_issuer(advertised: str, published: str) -> bool:
    """Return whether an advertised issuer and the one in a metadata document are equal, apart from a slash at the end.

    Both spellings lead to the same metadata URL (RFC 8414, section 3.1), and some large providers advertise one and
    publish the other. All later comparisons are exact, and use the document's issuer.
    """
    return advertised.removesuffix("/") == published.removesuffix("/")


def _literal(host: str) -> Reach | None:
    # The result is None for a name, and for spellings of an address that only resolvers accept (`0x7f.1`).
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return reach(host)


def _hosts(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise TypeError(f"hosts must be a list of host names; write [{names!r}]")
    return frozenset(map(_host, names))


def _host(name: str) -> str:
    # Names are stored in the spelling that `take_apart` uses for hosts. An entry with a scheme or a port is refused,
    # because it would never match.
    try:
        return ipaddress.IPv6Address(name).compressed
    except ValueError:
        if not name or set(name) & set("/:@ "):
            raise ValueError(
                f"each entry in hosts must be a host name, such as 'id.corp.example'; got {name!r}"
            ) from None
    return name.lower()


@attrs.frozen
class UrlPolicy:
    """A policy that says which of the URLs that a peer names may be fetched or opened.

    Such a URL must be ``https``, have no user name and no fragment, and lead to a public address, or to one that is no
    more local than the MCP server's own (private, loopback). ``http`` is allowed only for loopback, and only if the MCP
    server is on loopback, too.

    Args:
        hosts: Names of hosts that are trusted more than others: they may have a private address and use ``http``.

    Raises:
        TypeError: If the names are a single string.
        ValueError: If one of them is not the name of a host.
    """

    hosts: frozenset[str] = attrs.field(default=frozenset(), converter=_hosts)

    def check(self, url: str, server: str, step: str) -> None:
        """Check the form of a URL, before its host is resolved.

        Args:
            url: The URL that a peer named.
            server: The URL of the MCP server, which the program named.
            step: The purpose of the URL, as `AuthorizationError.step` names it.

        Raises:
            AuthorizationError: If the URL is refused.
        """
        try:
            parts = take_apart(url)
        except ValueError as exc:
            raise AuthorizationError(step, f"the URL {shown(url)} {exc}") from None
        # `take_apart` accepts WebSocket URLs, because the MCP server's own URL may be one; but a peer must not name
        # one.
        if not url.lower().startswith("http"):
            raise AuthorizationError(step, f"the URL {shown(url)} is not an https or http URL")
        # This check comes before the one for trusted hosts: no one has a reason to trust a cloud provider's metadata
        # service.
        if _literal(parts.host) is Reach.NEVER:
            raise AuthorizationError(step, f"the URL {shown(url)} leads to an address that is never allowed")
        if parts.host in self.hosts:
            return
        near = _is_loopback(parts.host)
        # An MCP server on another machine must not make the client connect to services that listen only on this
        # machine. Names that resolve to loopback are refused later, by `check_address`.
        if near and not is_loopback(server):
            problem = f"the URL {shown(url)} leads to this machine, but the MCP server is elsewhere"
        elif parts.scheme == "http" and not near:
            problem = f"the URL {shown(url)} is not https"
        else:
            return
        raise AuthorizationError(step, problem, advice=_trust(parts.host))

    def check_address(self, url: str, address: str, near: Sequence[str], step: str) -> None:
        """Check an address that the host of a URL resolves to; the connection goes to the address that was checked.

        Args:
            url: The URL.
            address: The address, without brackets.
            near: The addresses of the MCP server's host. Only the most public one counts, because a server could add a
                private address of its own.
            step: The purpose of the URL.

        Raises:
            AuthorizationError: If the address is refused.
        """
        host, found = take_apart(url).host, reach(address)
        if host in self.hosts and found is not Reach.NEVER:
            return
        widest = min(map(reach, near), default=Reach.GLOBAL)
        if found is Reach.NEVER or found > widest:
            what = {Reach.LOOPBACK: "this machine", Reach.PRIVATE: "a private network"}.get(
                found, "an address that is never allowed"
            )
            problem = f"the URL {shown(url)} leads to {what} ({address[:50]})"
            raise AuthorizationError(step, problem, advice="" if found is Reach.NEVER else _trust(host))


def _trust(host: str) -> str:
    return f"if you trust that host, pass urls=UrlPolicy(hosts=[{host!r}])"
