"""What Windows lacks, and what to use there instead."""

from __future__ import annotations

import socket
import sys
from typing import Final

import trio

from trio_mcp.errors import TransportError

__all__ = ["AF_UNIX", "SOCKETS_ARE_FILES", "check_pipes", "check_unix_sockets"]

AF_UNIX: Final[int | None] = getattr(socket, "AF_UNIX", None)
"""The family of Unix sockets; None where Python has none."""

# Elsewhere `os.read` and `os.write` save some layers between a socket and a transport.
SOCKETS_ARE_FILES: Final[bool] = sys.platform != "win32"
"""Whether a socket's number is that of a file."""

INSTEAD = "use HTTP, WebSocket or TCP instead, such as server.run('http') and Client('http://127.0.0.1:8000/mcp')"


def check_pipes() -> None:
    """Check that there is what stdio needs.

    Raises:
        TransportError: If not; the message says what to use instead.
    """
    if not hasattr(trio.lowlevel, "FdStream"):
        raise TransportError(
            f"trio_mcp has no stdio on {sys.platform}, where trio.lowlevel.FdStream is missing: {INSTEAD}"
        )


def check_unix_sockets() -> None:
    """Check that there are Unix sockets.

    Raises:
        TransportError: If there are none; the message says what to use instead.
    """
    if AF_UNIX is None:
        raise TransportError(f"Python has no Unix sockets on {sys.platform}: {INSTEAD}")
