"""A server with several processes, and what a worker runs: ``python serve.py '{"folder": …, "port": …, …}'``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.chaos.planted import PLANTED
from tests.chaos.tools import DELAY, GRACE, LEASE, MEMBER_LEASE, MOST_EXTRA, SILENCE, START, TIMEOUT, make
from trio_mcp.http.server.legacy import sharing
from trio_mcp.server.processes import child, children, slots, supervisor
from trio_mcp.stores import SqliteStores, Stores, ValkeyStores, key_ring

SHORTER: dict[Any, dict[str, Any]] = {
    supervisor: {"LEASE": LEASE, "SILENCE": SILENCE, "START": START, "TICK": 0.2},
    children: {"EXTRA": MOST_EXTRA},
    child: {"EXTRA": MOST_EXTRA, "BEAT": 0.4},
    slots: {"PAUSES": (0.2,)},
    key_ring: {"DELAY": DELAY, "LOOK": 0.5},
    sharing: {"LEASE": MEMBER_LEASE},
}
"""Time limits of the library, so that a minute sees each event."""

for module, constants in SHORTER.items():
    for name, value in constants.items():
        setattr(module, name, value)

SETTINGS: dict[str, Any] = json.loads(sys.argv[1])
if SETTINGS["plant"] is not None:
    PLANTED[SETTINGS["plant"]]()


def stores() -> Stores:
    """Return what the processes share."""
    if SETTINGS["engine"] is not None:
        return ValkeyStores(SETTINGS["engine"], prefix=SETTINGS["prefix"], timeout=TIMEOUT)
    return SqliteStores(Path(SETTINGS["folder"]) / "chaos.db", timeout=TIMEOUT)


server = make(Path(SETTINGS["folder"]), stores())

if __name__ == "__main__":
    server.run("http", port=SETTINGS["port"], processes=3, grace=GRACE)
