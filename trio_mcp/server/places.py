"""The stores that a server or a command line names: an object, the path of a file, or the URL of an engine."""

from __future__ import annotations

import os
import re

from trio_mcp.stores.contract import Stores
from trio_mcp.stores.valkey_address import is_engine

__all__ = ["prefix_of", "stores_at"]


def stores_at(place: object, server: str) -> Stores:
    """Return the stores that are meant by what a server is given as ``stores=``.

    Args:
        place: Stores, which are returned; the URL of an engine, for `ValkeyStores`; or the path of a file, for
            `SqliteStores`.
        server: The name of the server, from which the prefix of its keys in an engine is made.

    Raises:
        ImportError: If the extra that an engine needs is not installed.
        TypeError: If it has another type.
        ValueError: If the URL or the path can't be that of stores.
    """
    if isinstance(place, Stores):
        return place
    if not isinstance(place, (str, os.PathLike)):
        raise TypeError(f"stores must be a trio_mcp.stores.Stores, the path of a file or a URL, got {place!r}")
    if isinstance(place, str) and is_engine(place):
        from trio_mcp.stores.valkey_stores import ValkeyStores  # imported late: few servers have an engine

        return ValkeyStores(place, prefix=prefix_of(server))
    from trio_mcp.stores.sqlite_stores import SqliteStores

    return SqliteStores(place)


def prefix_of(server: str) -> str:
    """Return the prefix of a server's keys by default: its name, with a dash for what a prefix can't have."""
    return re.sub(r"[^\w.:/@+-]+", "-", server)[:100]
