"""The exit statuses of ``trio-mcp``, and the errors that lead to each."""

from __future__ import annotations

from trio_mcp.errors import (
    CapabilityError,
    ConfigError,
    LoginRequired,
    McpError,
    NegotiationError,
    RemoteProtocolError,
    RequestTimeout,
    ToolError,
    TransportError,
    TrioMcpError,
)

__all__ = [
    "CLOSED_PIPE",
    "FAILED",
    "INTERRUPTED",
    "LOGIN",
    "NO_CONNECTION",
    "OK",
    "TERMINATED",
    "TIMEOUT",
    "USAGE",
    "Exit",
    "exit_of",
]

OK = 0
FAILED = 1
# The status with which argparse itself exits for an invalid command line.
USAGE = 2
NO_CONNECTION = 3
TIMEOUT = 4
LOGIN = 5
"""The status if the user must sign in first, but could not be asked to."""
# By the shells' convention, the status after a signal is 128 plus the number of the signal.
INTERRUPTED = 130
TERMINATED = 143
CLOSED_PIPE = 141
"""The status that a shell reports for a program ended by SIGPIPE."""

# An error gets the status of the first class of which it is an instance.
_STATUSES: tuple[tuple[type[TrioMcpError], int], ...] = (
    (McpError, FAILED),
    (ToolError, FAILED),
    (CapabilityError, FAILED),
    (ConfigError, USAGE),
    (RequestTimeout, TIMEOUT),
    (LoginRequired, LOGIN),
    (TransportError, NO_CONNECTION),
    (NegotiationError, NO_CONNECTION),
    (RemoteProtocolError, NO_CONNECTION),
)


class Exit(Exception):
    """Ends the command with a message for the user; the message is empty if the user has been told already.

    Attributes:
        status: The exit status.
        hint: Whether to point the user to ``--help``.
        traceback: A traceback to show before the message; it may be empty.
    """

    def __init__(self, message: str, status: int = USAGE, *, hint: bool | None = None, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback
        self.status = status
        self.hint = status == USAGE if hint is None else hint


def exit_of(error: TrioMcpError) -> int:
    """Return the status with which an error ends the command."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), FAILED)
