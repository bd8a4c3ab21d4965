"""A person is asked to sign in: in a browser that comes back to a listener, or by pasting."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from trio_mcp.auth.client.terminal import show_code
from trio_mcp.auth.rules.steps import Ask, ShowCode

__all__ = ["Asker", "Person", "Show"]

Show: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Shows a person the URL to open. It returns the URL that the person was redirected to, if the person pasted it; None if
the redirection will arrive by itself."""


class Person(Protocol):
    """A person who can be asked, until the block of `Asker.opened` ends.

    Attributes:
        redirect: The redirect URI to register and to send, with its port.
    """

    redirect: str

    async def ask(self, ask: Ask) -> Mapping[str, str]:
        """Let the person sign in, and return the parameters of the redirection, whose ``state`` is right."""

    async def show_code(self, step: ShowCode) -> None:
        """Show the person a code and where to enter it."""


class Asker:
    """Asks a person to sign in.

    Args:
        show: Shows the URL; see `Show`.
        show_code: Shows the code of a device.
    """

    def __init__(self, show: Show, show_code: Callable[[ShowCode], Awaitable[None]] = show_code) -> None:
        raise NotImplementedError

    def opened(self, redirect: str) -> contextlib.AbstractAsyncContextManager[Person]:
        """Return a block in which redirections to a URI are awaited; see `listening`."""
        raise NotImplementedError
