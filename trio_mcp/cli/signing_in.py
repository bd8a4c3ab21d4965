"""Let commands that connect to a URL sign in: with stored logins, or by asking a person."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import attrs
import trio

from trio_mcp.cli.exits import Exit
from trio_mcp.cli.terminal import has_terminal
from trio_mcp.client.config.reading import Configured
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.targets import authorized
from trio_mcp.http.client.auth import Auth
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.http.client.websocket import http_url

if TYPE_CHECKING:
    from trio_mcp.auth.rules.steps import ShowCode

__all__ = ["asking", "signed", "with_stored_token"]


def asking(how: str | None, before: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Return the arguments of `OAuth` that say how a person is asked to sign in.

    Args:
        how: The value of ``--auth``; None to open a browser if there is a terminal.
        before: Called before anything is shown.
    """
    # These modules are imported only when this function runs, because a command that connects to no URL does not need
    # them.
    from trio_mcp import auth
    from trio_mcp.auth.client.terminal import show_code

    # Without a terminal there may be no person to ask, and a script must not wait for one. So the command fails, with
    # an exit status of its own.
    how = how or ("browser" if has_terminal() else "stored")
    # An `OAuth` without a redirect URI lets the person enter a code in a browser on any device.
    if how == "device":

        async def shown_code(step: ShowCode) -> None:
            before()
            await show_code(step)

        return {"redirect": None, "show_code": shown_code}
    if how == "stored":
        return {"show": None}
    show: Callable[[str], Awaitable[str | None]] = auth.paste_redirect if how == "paste" else auth.open_browser

    async def shown(url: str) -> str | None:
        before()
        return await show(url)

    return {"show": shown}


def signed(target: Configured, how: str | None, before: Callable[[], object]) -> Configured:
    """Return a copy of a target that uses stored logins, and signs in if its server requires that.

    If ``how`` is ``"off"``, no token is sent at all.
    """
    ways = target.targets if isinstance(target, FailoverParameters) else [target]
    # "off" removes even the authorization that a configuration asks for, so that no token at all is sent.
    if how == "off":
        bare = [attrs.evolve(way, auth=None) if isinstance(way, HttpServerParameters) else way for way in ways]
        return attrs.evolve(target, targets=bare) if isinstance(target, FailoverParameters) else bare[0]
    if not any(isinstance(way, HttpServerParameters) for way in ways):
        return target
    from trio_mcp import auth

    oauth = auth.OAuth(store=auth.FileTokens(), **asking(how, before))
    return cast(Configured, authorized(target, oauth, optional=True))


def with_stored_token(target: Configured) -> Configured:
    """Return a target with the token of its stored login in the headers, for commands that don't use a `Client`."""
    if not isinstance(target, HttpServerParameters):
        return target
    fields = {} if target.auth is None else trio.run(_fields, target.auth, http_url(target.url))
    # A DPoP proof is valid for one request only, but these headers are sent with every request.
    if "DPoP" in fields:
        raise Exit(
            f"the login at {target.url} is bound to a key, and this command can't use such a login; add --auth off"
        )
    return attrs.evolve(target, auth=None, headers={**target.headers, **fields})


async def _fields(auth: Auth, url: str) -> dict[str, str]:
    async with auth.opened(url, contextlib.nullcontext) as signer:
        return dict(await signer.attempt().fields("POST", url))
