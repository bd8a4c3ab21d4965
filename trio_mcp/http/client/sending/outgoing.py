"""The bytes of an HTTP/1.1 request, and where they go. It does no I/O."""

from __future__ import annotations

import functools
import re
from typing import Final

import attrs

from trio_mcp.http.client.sending.sender import HeaderFields
from trio_mcp.http.framing import FIELD

__all__ = ["Destination", "head_of", "place_of"]

# URLs that need no rewriting: no user, no fragment, no dot segments, and only characters that go out as they are. The
# others are left to httpx, which knows RFC 3986, section 6.2, and IDNA.
_SAFE: Final = r"(?:[A-Za-z0-9\-._~!$&()*+,;=:@]|%[0-9A-Fa-f]{2})"
_PLAIN = re.compile(
    rf"(https?)://((?:[a-z0-9-]+\.)*[a-z0-9-]+|\[[0-9a-f:.]+\])(?::([1-9][0-9]{{0,4}}))?"
    rf"((?:/(?!\.){_SAFE}*)*)(\?(?:{_SAFE}|[/?])*)?"
)
_PORTS: Final = {"http": 80, "https": 443}
_FIELDS = re.compile(rb"(?:" + FIELD + rb"\r\n)*")
# What the body is and where it ends is for the sender to say.
_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})


@attrs.frozen
class Destination:
    """Where a request goes.

    Attributes:
        tls: Whether through TLS.
        host: The host to connect to; an IPv6 address without brackets.
        port: The port.
        netloc: The value of ``Host``.
        target: The request target.
    """

    tls: bool
    host: str
    port: int
    netloc: str
    target: str


@functools.lru_cache(64)
def place_of(url: str) -> Destination:
    """Take a URL apart.

    Raises:
        ValueError: If it is not a URL of HTTP.
    """
    match = _PLAIN.fullmatch(url)
    if match is not None:
        scheme, host, digits, path, query = match.groups()
        port = int(digits or _PORTS[scheme])
        netloc = host if port == _PORTS[scheme] else f"{host}:{port}"
        return Destination(scheme == "https", host.strip("[]"), port, netloc, (path or "/") + (query or ""))
    import httpx  # noqa: ASYNC127 - as above; it is always installed

    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as exc:
        raise ValueError(str(exc)) from None
    if found.scheme not in _PORTS:
        raise ValueError(f"the scheme {found.scheme!r} is not one of HTTP")
    return Destination(
        found.scheme == "https",
        found.raw_host.decode("ascii"),
        _PORTS[found.scheme] if found.port is None else found.port,
        found.netloc.decode("ascii"),
        found.raw_path.decode("ascii"),
    )


def head_of(method: str, place: Destination, fields: HeaderFields, size: int) -> bytes:
    """Return the head of a request whose body has this many bytes.

    Raises:
        ValueError: If a field can't be sent.
    """
    lines = [f"{name}: {value}\r\n" for name, value in fields if name.lower() not in _FRAMING]
    if not any(name.lower() == "host" for name, _ in fields):
        lines.insert(0, f"Host: {place.netloc}\r\n")
    if size or method == "POST":  # RFC 9110, section 8.6: also for an empty body, if the method expects one
        lines.append(f"Content-Length: {size}\r\n")
    data = "".join(lines).encode("latin-1")
    # The last look before they are sent, in one search. A line break in a value would begin another field.
    if _FIELDS.fullmatch(data) is None or data.count(b"\n") != len(lines):
        raise ValueError("a header field has characters that can't be sent")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode("ascii"), place.target.encode("ascii"), data)
