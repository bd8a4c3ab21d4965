"""Asking a person to sign in: a browser is redirected to a listener, or the person pastes a URL."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.auth.client.listener import Redirections, listening
from trio_mcp.auth.rules.steps import ShowCode, SignIn
from trio_mcp.errors import AuthorizationError, TrioMcpError

__all__ = ["Asker", "Person", "Show"]

Show: TypeAlias = Callable[[str], Awaitable[str | None]]
"""A function that shows a person the URL to open. It returns the URL of the redirection if the person pasted it, or
None if the redirection will reach the listener."""


@attrs.frozen
class Person:
    """A person who can be asked to sign in, until the block of `Asker.opened` ends.

    Attributes:
        asker: The `Asker` that asks the person.
        redirect: The redirect URI to register and to send, with its port; None if there is no redirection.
    """

    asker: Asker
    redirect: str | None
    _arriving: Redirections

    async def ask(self, ask: SignIn) -> Mapping[str, str]:
        """Let the person sign in, and return the parameters of the redirection that has the right ``state``.

        Raises:
            AuthorizationError: If the URL can't be shown, the pasted text is not the right URL, 100 wrong redirections
                have arrived, or the time has run out.
        """
        with trio.move_on_after(self.asker.login_timeout):
            # `show` may run for as long as the browser does, and the redirection may arrive before it returns, so
            # leaving the block cancels it.
            async with background_nursery() as nursery:
                nursery.start_soon(self._shown, ask)
                return await self._arriving.one(ask.state)
        raise self.late(ask.issuer)

    def late(self, issuer: str | None = None) -> AuthorizationError:
        """Return the error for a person who has not signed in within the time limit."""
        return AuthorizationError(
            "authorization",
            f"the person did not sign in within {self.asker.login_timeout:g} seconds",
            issuer=issuer,
            advice="try again, or set a longer login_timeout; if the page said that the client is unknown,"
            " sign out first",
        )

    async def _shown(self, ask: SignIn) -> None:
        # The redirection may be pasted or reach the listener: even a person who is asked to paste it may have a browser
        # that reaches the listener.
        try:
            pasted = await self.asker.show(ask.url)
        except TrioMcpError:
            raise
        # `show` is a function of the program, which may raise any exception. Callers expect an `AuthorizationError` if
        # the sign-in fails.
        except Exception as exc:
            problem = f"the sign-in URL could not be shown to the person: {type(exc).__name__}: {exc}"
            raise AuthorizationError("authorization", problem, issuer=ask.issuer) from exc
        if pasted is None:
            return
        try:
            # A pasted redirection has to meet the same rules as one that reaches the listener: its `state` has to be
            # right, and each redirection counts only once.
            found = self._arriving.arrived(urlsplit(pasted.strip()).query)
        except ValueError:
            found = None
        # If the person pastes a wrong text, the sign-in ends, whereas the listener goes on waiting after a wrong
        # redirection: any page in a browser can cause a redirection, but only the person can paste a text.
        if found is None:
            raise AuthorizationError(
                "redirection",
                "the pasted text is not the URL of the page on which the sign-in ended",
                issuer=ask.issuer,
                advice="sign in again, and paste the whole URL",
            )
        self._arriving.settle(found)


@attrs.frozen
class Asker:
    """Asks a person to sign in.

    Attributes:
        show: Shows the URL; see `Show`.
        show_code: Shows the code that the person has to enter for the device grant.
        redirect: The redirect URI, as it was configured; None if there is no redirection.
        login_timeout: How long a person has to sign in, in seconds.
    """

    show: Show
    show_code: Callable[[ShowCode], Awaitable[None]]
    redirect: str | None
    login_timeout: float

    @contextlib.asynccontextmanager
    async def opened(self, redirect: str | None) -> AsyncIterator[Person]:
        """Return a context manager; inside its block, a person can be asked to sign in.

        Args:
            redirect: The redirect URI. One with ``http`` is on loopback, and this process listens for redirections to
                it (see `listening`). Redirections to any other URI arrive elsewhere, so the person has to paste them.
                None for the device grant, which has no redirection.
        """
        if redirect is None or not redirect.startswith("http:"):
            await trio.lowlevel.checkpoint()
            yield Person(self, redirect, Redirections(redirect or ""))
            return
        # The port is bound before the flow begins, because it is part of the redirect URI that is registered and sent.
        async with listening(redirect) as arriving:
            yield Person(self, arriving.uri, arriving)
