"""A person at a terminal: signs in elsewhere and pastes a URL, or enters a code elsewhere."""

from __future__ import annotations

from trio_mcp.auth.rules.steps import ShowCode

__all__ = ["paste_redirect", "show_code"]


async def paste_redirect(url: str) -> str:
    """Ask a person to open a page in any browser, and to paste the URL that it ends on; return that.

    For where no browser can reach this machine: ``OAuth(show=paste_redirect)``.

    Raises:
        LoginRequired: If there is no terminal.
    """
    raise NotImplementedError


async def show_code(step: ShowCode) -> None:
    """Tell a person on stderr which page to open, and which code to enter there (RFC 8628, section 3.3)."""
    raise NotImplementedError
