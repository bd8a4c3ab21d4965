"""The names that SEP-1865 (2026-01-26) defines, and the errors about the page of a tool."""

from __future__ import annotations

from typing import Final

from trio_mcp.errors import TrioMcpError

__all__ = ["IDENTIFIER", "MIME_TYPE", "REFUSED", "REVISION", "SCHEME", "AppCallCancelled", "AppPageError"]

IDENTIFIER: Final = "io.modelcontextprotocol/ui"
MIME_TYPE: Final = "text/html;profile=mcp-app"
SCHEME: Final = "ui://"

REVISION: Final = "2026-01-26"
"""The revision of the messages between a host and a view."""

REFUSED: Final = -32000
"""The code with which a host refuses what a view asks for (MCP Apps Specific Messages)."""


class AppPageError(TrioMcpError):
    """The page of a tool can't be shown: the tool has none, or the server does not serve it as it must.

    The tool has not been called, so a host may call it without its page.
    """


class AppCallCancelled(TrioMcpError):
    """The host has cancelled the call of the tool, so there is no result.

    This is not `trio.Cancelled`: the caller itself was not cancelled.

    Attributes:
        reason: Why it was cancelled.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def _text(self) -> str:
        return f"the call of the tool was cancelled: {self.reason}"
