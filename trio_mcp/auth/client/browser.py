"""Opening a web browser for a person to sign in."""

from __future__ import annotations

import os
import webbrowser
from typing import Final
from urllib.parse import urlsplit

import trio

from trio_mcp.auth.client.terminal import tell
from trio_mcp.errors import AuthorizationError

__all__ = ["open_browser"]

TIMEOUT: Final = 10.0
"""How many seconds the browser may take to start. An arbitrary choice.

If the browser runs in the foreground, the call that starts it returns only when the browser exits.
"""

# Text browsers are not used: they would take over the terminal, and few of them can show a sign-in page.
_OF_THE_TERMINAL: Final = frozenset({"elinks", "links", "lynx", "w3m", "www-browser"})


async def open_browser(url: str) -> None:
    """Open a page in the person's web browser, and write its URL to stderr, in case no browser opens.

    Args:
        url: An ``https`` or ``http`` URL.

    Raises:
        AuthorizationError: If the URL has another scheme, or is malformed; nothing is opened then.
    """
    host = _host_of(url)
    await trio.lowlevel.checkpoint()
    # The URL is written to stderr first, because this program can't tell whether a browser really shows the page.
    tell(f"To sign in, open this page of {host} in a web browser:\n  {url}")
    with trio.move_on_after(TIMEOUT):
        # Starting a browser blocks, so it is done in a thread. The thread is abandoned if the call returns only when
        # the browser exits.
        if not await trio.to_thread.run_sync(_open, url, abandon_on_cancel=True):
            tell("(No web browser could be opened here.)")


def _host_of(url: str) -> str:
    """Return the host of a URL for a message, encoded as ASCII: a name in another script may imitate a known one."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode("ascii")
    except ValueError:
        host = ""
    # Only a plain URL is passed on: browsers support schemes that run programs, and some browsers split their argument
    # at spaces.
    if not host or parts.scheme not in ("https", "http") or not url.isascii() or " " in url or not url.isprintable():
        raise AuthorizationError("authorization", "the URL to open is not an https or http URL; nothing was opened")
    return host


def _open(url: str) -> bool:
    try:
        # `webbrowser.open` would try one browser after another, including those that run in the terminal.
        browser = webbrowser.get()
        name = os.path.basename(str(getattr(browser, "name", "")))
        return name not in _OF_THE_TERMINAL and bool(browser.open(url))
    except (webbrowser.Error, OSError):
        return False
