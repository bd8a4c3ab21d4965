"""The words for what an engine refuses, and for what keeps a client from it."""

from __future__ import annotations

import re
from typing import Final

from trio_mcp.stores.contract import StoreBusy, StoreError
from trio_mcp.stores.valkey_address import EngineAddress

__all__ = ["refused"]

LONGEST: Final = 200
"""How many characters of the engine's own words an error has (arbitrary)."""

REFUSALS: Final = {
    "WRONGPASS|invalid password": "refuses the user or the password: check both in the URL",
    "no password is set|without any password configured": (
        "has no password for its default user: leave it out of the URL"
    ),
    "NOAUTH|Authentication required": "wants a password: give it in the URL, as in valkey://:password@host",
    "NOPERM|PermissionDenied|ACL failure|can't run this command|can't access at least one of the (?:keys|channels)": (
        "does not allow this user what stores do: give the user the rights in the docstring of ValkeyStores"
    ),
    "DENIED": "is in protected mode, and serves only its own machine: give it a password, or its socket",
    "DB index is out of range|invalid DB index|SELECT is not allowed in cluster mode": (
        "does not have this database: give the number of another one in the URL, such as 0"
    ),
    "LOADING": "is loading its data: try again later",
    "BUSY": "is busy with a script of another program",
    "READONLY|read.only replica|No primary node": (
        "is a replica, which can't be written: give the address of the primary"
    ),
    "MASTERDOWN": "is a replica that has lost its primary: give the address of the primary",
    "OOM": "has no memory left: raise its maxmemory, or delete data from it",
    "MISCONF": "refuses writes, because it can't save its data: read its log",
    "NOREPLICAS": "refuses writes, because it has too few replicas",
    "CLUSTERDOWN|TRYAGAIN|MOVED|ASK": "is a cluster that is not complete at the moment",
    "WRONGTYPE": "has keys of another program under this prefix: give each program a prefix of its own",
}
"""The descriptions of what an engine refuses, by regular expressions for its own words."""

PASSING: Final = frozenset({"LOADING", "BUSY"})
"""The refusals that pass by themselves. The engine has not looked at the call then, so it had no effect."""


def refused(address: EngineAddress, words: str) -> StoreError:
    """Return the error for a call that an engine has refused, without the password.

    Args:
        address: The address of the engine.
        words: What the engine, or its client, has said.
    """
    if address.password:
        words = words.replace(address.password, "***")
    said = " ".join(words.split())[:LONGEST]
    for pattern, what in REFUSALS.items():
        if re.search(rf"\b(?:{pattern})", words):
            return (StoreBusy if pattern in PASSING else StoreError)(f"{address} {what} (it says: {said})")
    return StoreError(f"{address} could not be used (it says: {said})")
