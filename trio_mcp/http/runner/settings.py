"""What a runner is told: its configuration, which is hypercorn's for all of them, and limits on connections."""

from __future__ import annotations

import time

import attrs
from hypercorn.config import Config

from trio_mcp._checks import check_count, check_text

__all__ = ["ServerLimits", "configured"]


class QuietConfig(Config):
    """Hypercorn's configuration without its logs and the ``Server`` header; the ``Date`` is formatted once a second."""

    errorlog = None
    include_server_header = False
    # The header's resolution is a second, so it need not be formatted for every response.
    _dated: tuple[int, list[tuple[bytes, bytes]]] = (0, [])

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        # The wall clock, as it is a date that is formatted.
        now = int(time.time())
        if self._dated[0] != now:
            self._dated = (now, super().response_headers(protocol))
        return self._dated[1]


def configured(host: str, port: int) -> Config:
    """Return hypercorn's configuration for one address.

    Raises:
        TypeError: If the host is not a string, or the port not an integer.
        ValueError: If the host is empty, or the port out of range.
    """
    check_text("host", host)
    check_count("port", port, least=0, most=65535)
    config = QuietConfig()
    # Longer than the 60 seconds for which nginx and the load balancers of large clouds keep a connection by default:
    # a server that closes first may lose a request that is on its way, and a proxy must not repeat a POST.
    config.keep_alive_timeout = 75
    # An IPv6 address needs brackets to tell its colons from the port's (RFC 3986, section 3.2.2).
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    return config


@attrs.frozen
class ServerLimits:
    """Limits on the connections of one server.

    Attributes:
        connections: How many may be open at once; further ones are answered with 503 and closed.
        write_timeout: Seconds that a peer may take to read 64 KiB once its buffers are full, before it is dropped.
        grace: Seconds that exchanges under way are given when the server ends.
        head_timeout: Seconds for a TLS handshake, and for the head of a request, from its first byte; the first head of
            a connection counts from the beginning.
    """

    connections: int = 1000
    write_timeout: float = 30.0
    grace: float = 5.0
    head_timeout: float = 5.0
