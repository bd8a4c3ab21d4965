"""The command that starts the program again, and the programs that can't be started again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trio_mcp._checks import check_count

if TYPE_CHECKING:  # few servers have stores
    from trio_mcp.stores.contract import Stores

__all__ = ["MAX_PROCESSES", "again", "check_processes", "check_stores"]

MAX_PROCESSES: Final = 256
"""How many processes one supervisor may have. An arbitrary choice: several for each processor of a large machine."""

TRANSPORTS: Final = ("http", "websocket")
"""The transports whose sockets processes can share."""

INSTEAD: Final[Mapping[str, str]] = {
    "stdio": "a client on stdio has one process; write run('http', processes=…)",
    "sse": "messages of an HTTP+SSE client would reach processes without its stream; leave out processes=",
    "tcp": "write run('http', processes=…) or run('websocket', processes=…)",
    "unix": "write run('http', config=…, processes=…) with config.bind = ['unix:/path']",
}
"""Why ``processes`` is refused with another transport, or what to write instead."""


def check_processes(transport: str, count: object) -> None:
    """Check the arguments of `Server.run` for several processes, and the system.

    Raises:
        TypeError: If the number is not an integer.
        ValueError: If it is out of range, or the transport has no sockets to share.
        RuntimeError: On Windows.
    """
    check_count("processes", count, most=MAX_PROCESSES)
    if transport not in TRANSPORTS:
        raise ValueError(f"processes= does not apply to {transport!r}: {INSTEAD[transport]}")
    if sys.platform == "win32":
        raise RuntimeError(
            "processes= needs sockets that child processes inherit, and signals, which Windows does not have: start "
            "several programs on ports of their own, behind a proxy"
        )


def check_stores(count: int, stores: Stores | None) -> None:
    """Check that so many processes can share the stores of a server.

    Raises:
        ValueError: If they are in the memory of each process.
    """
    if count == 1 or stores is None:
        return
    from trio_mcp.stores.memory_stores import MemoryStores

    if isinstance(stores, MemoryStores):
        raise ValueError(
            "stores=MemoryStores() can't be shared by several processes, each of which would have its own: give the "
            "server the path of a file, as in stores='server.db', or serve with processes=1"
        )


def again() -> list[str]:
    """Return the command that starts this program once more.

    Raises:
        RuntimeError: If a process can't be given the same program.
    """
    if (found := _why_not()) is not None:
        raise RuntimeError(
            f"processes= starts the program again in each process, but {found}: write the program to a file"
        )
    return [sys.executable, *sys.orig_argv[1:]]


def _why_not() -> str | None:
    """Return why this program can't be started again; None if it can."""
    main = sys.modules["__main__"]
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return "this is an interactive session"
    # pytest sets the variable, and what its tests start inherits that, but does not import pytest.
    if "_pytest" in sys.modules and {"PYTEST_VERSION", "PYTEST_CURRENT_TEST"} & os.environ.keys():
        return "pytest runs it"
    if getattr(main, "__file__", None) in (None, "<stdin>"):
        return "it was given with -c" if "-c" in sys.orig_argv else "it comes from standard input"
    return None
