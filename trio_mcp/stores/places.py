"""Places of stores, as a server or a command line names them: the path of a file, or the URL of an engine."""

from __future__ import annotations

import os
import re

from trio_mcp.stores.contract import Stores
from trio_mcp.stores.valkey_address import is_engine

__all__ = ["prefix_of", "stores_at"]


def stores_at(place: str | os.PathLike[str], server: str) -> Stores:
    """Return the stores at a place: `ValkeyStores` for the URL of an engine, and `SqliteStores` for the path of a file.

    Args:
        place: The place.
        server: The name of the server, from which the prefix of its keys is made.

    Raises:
        ImportError: If the extra that an engine needs is not installed.
        ValueError: If the place can't be one of stores.
    """
    if isinstance(place, str) and is_engine(place):
        from trio_mcp.stores.valkey_stores import ValkeyStores

        return ValkeyStores(place, prefix=prefix_of(server))
    from trio_mcp.stores.sqlite_stores import SqliteStores

    return SqliteStores(place)


def prefix_of(server: str) -> str:
    """Return the prefix for a server by default: its name, with a dash in place of what a prefix can't have."""
    return re.sub(r"[^\w.:/@+-]+", "-", server)[:100]
