"""`ProxyExtension`: an extension of the protocol that a proxy hands on from its upstream to its clients."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from trio_mcp.client.extension import ClientExtension
from trio_mcp.server.extensions import ServerExtension

__all__ = ["ProxyExtension", "proxy_sides"]


class ProxyExtension(ServerExtension):
    """An extension on a proxy. A call declares it to the upstream if the client of the call has declared it.

    Attributes:
        client_side: The part of the upstream client.
        result_types: The values of ``resultType`` that the extension adds. Its middleware gets such a result as the
            upstream has sent it, if the client of the call has declared the extension.
    """

    client_side: ClientExtension
    result_types: Collection[str] = ()


def proxy_sides(given: Any) -> list[ProxyExtension]:
    """Return the proxy's parts of the extensions given to a proxy.

    Raises:
        TypeError: If the argument is not a list of extensions that a proxy can hand on.
    """
    # A mapping only declares extensions, and a proxy can't declare what it does not hand on.
    if isinstance(given, (str, bytes, dict)) or not isinstance(given, Iterable):
        raise TypeError(f"the extensions of a proxy must be a list of extensions, got {type(given).__name__}")
    sides: list[ProxyExtension] = []
    for each in given:
        side = getattr(each, "proxy_side", each)
        if not isinstance(side, ProxyExtension):
            raise TypeError(f"a proxy can't hand on the extension {each!r}")
        sides.append(side)
    return sides
