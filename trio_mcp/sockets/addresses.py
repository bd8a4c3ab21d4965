"""Reads and makes the URLs of sockets: ``tcp://host:port``, ``tls://host:port``, ``unix:/path``, and web URLs."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

import attrs

__all__ = ["Address", "read_address", "unix_path", "url_of", "web_address"]

# The size of `sun_path` in `sockaddr_un`, without the null character at its end.
LONGEST_PATH = 107 if sys.platform == "linux" else 103
"""The maximum length of the path of a Unix socket, in bytes."""


@attrs.frozen
class Address:
    """An address at which a server can be reached.

    Attributes:
        url: The URL, as it was given.
        scheme: ``"tcp"``, ``"tls"`` or ``"unix"``.
        place: The address without the scheme: ``host:port``, or the path of a Unix socket.
        host: The host; empty for a Unix socket.
        port: The port; 0 for a Unix socket.
    """

    url: str
    scheme: str
    place: str
    host: str = ""
    port: int = 0


def read_address(url: str) -> Address:
    """Return the address that a URL names.

    Raises:
        TypeError: If ``url`` is not a string.
        ValueError: If ``url`` is not a valid URL with the scheme ``tcp``, ``tls`` or ``unix``.
    """
    if not isinstance(url, str):
        raise TypeError(f"the URL of a socket must be a string, got {type(url).__name__}")
    # `urlsplit` is called only for TCP and TLS, because it cuts a URL at `?` and `#`, which may be part of a socket's
    # path.
    scheme = url.partition(":")[0].lower()
    if scheme == "unix":
        return Address(url, scheme, unix_path(url))
    if scheme not in ("tcp", "tls"):
        raise ValueError(f"the URL of a socket must begin with tcp://, tls:// or unix:, got {url!r}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ValueError(f"{url!r} is not a valid URL: {exc}") from None
    # Nothing may follow the port, because a path would be ignored silently. Port 0 is refused, because it is impossible
    # to connect to it.
    if not host or not port or url[len(scheme) :] != f"://{parts.netloc}" or "@" in parts.netloc:
        raise ValueError(f"{url!r} is not a valid URL: write {scheme}://HOST:PORT")
    return Address(url, scheme, parts.netloc, host, port)


def web_address(url: str) -> tuple[Address, str]:
    """Return the address of the server that a web URL names, and the path and query to request from it.

    The address contains neither user nor password, which belong neither in a Host header (RFC 9110, section 7.2) nor in
    a report; nor does it contain the query.
    """
    parts = urlsplit(url)
    scheme, usual_port = ("tls", 443) if parts.scheme in ("https", "wss") else ("tcp", 80)
    authority, path = parts.netloc.rpartition("@")[2], parts.path or "/"
    shown = f"{parts.scheme}://{authority}{path}"
    address = Address(shown, scheme, authority, parts.hostname or "", parts.port or usual_port)
    return address, f"{path}?{parts.query}" if parts.query else path


def unix_path(path: str | os.PathLike[str]) -> str:
    """Return the path of a Unix socket, which may be given as a URL: ``unix:/path`` or ``unix:///path``.

    Raises:
        TypeError: If ``path`` is neither a string nor a path object.
        ValueError: If a socket can't have this path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"the path of a Unix socket must be a string or a path object, got {type(path).__name__}")
    text = os.fspath(path)
    if text[:5].lower() == "unix:":
        text = text[5:]
        # In `unix://run/mcp`, `run` would be a host (RFC 3986, section 3.2); most likely a slash is missing.
        if text.startswith("//"):
            text = text[2:]
            if not text.startswith("/"):
                raise ValueError(f"{path!r} is not a valid URL: write unix:/PATH, without a host")
    # A null character is refused because on Linux, a path that begins with one means a socket without permissions
    # (unix(7)).
    if not text or "\0" in text:
        raise ValueError(f"the path of a Unix socket must not be empty or contain a null character, got {path!r}")
    if len(os.fsencode(text)) > LONGEST_PATH:
        raise ValueError(f"the path of a Unix socket may be at most {LONGEST_PATH} bytes long, got {text!r}")
    return text


def url_of(scheme: str, host: str, port: int) -> str:
    """Return the URL for a scheme, a host and a port."""
    # An IPv6 address needs brackets, which separate its colons from the colon of the port (RFC 3986, section 3.2.2).
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
