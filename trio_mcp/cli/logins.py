"""``trio-mcp login``, ``logout`` and ``logins``: sign in to a server, sign out, and list the stored logins."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from trio_mcp.cli.exits import FAILED, OK, Exit
from trio_mcp.cli.signing_in import asking
from trio_mcp.cli.targets import reached
from trio_mcp.cli.text import clean_line, dumps
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Auth
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.http.client.websocket import http_url

__all__ = ["COMMANDS"]

SECRET = "TRIO_MCP_CLIENT_SECRET"
"""The environment variable with the secret for ``--client-id``. There is no option for the secret, because other users
can read the options of a process."""


def login(options: argparse.Namespace) -> int:
    """Let a person sign in to a server, and store the login."""
    from trio_mcp import auth

    how = "device" if options.device else "paste" if options.no_browser else "browser"
    target = _target(options, partial(_own, options, asking(how)))
    server = http_url(target.url)
    oauth: Any = target.auth
    if oauth is None:
        try:
            oauth = _own(options, asking(how), None)
        except ValueError as exc:
            raise Exit(str(exc)) from None
    if not isinstance(oauth, auth.OAuth):
        raise Exit(f"{options.target} needs no login: its configuration has credentials other than OAuth")
    trio.run(oauth.sign_in, server)
    # Only this login is read, from its own store: a damaged login elsewhere must not make this command fail.
    (found,) = trio.run(_stored, oauth.store, server) or [{}]
    scopes = f", for {' '.join(found['scopes'])}" if found.get("scopes") else ""
    at = f" at {clean_line(found['issuer'])}" if "issuer" in found else ""
    print(f"signed in to {server}{at}{clean_line(scopes)}")
    return OK


def _own(options: argparse.Namespace, how: dict[str, Any], settings: object) -> Auth:
    """Return the authorization that a configuration's ``"auth"`` describes, or else an `OAuth`.

    Options of the command line take precedence over the configuration.

    Args:
        options: The command line.
        how: The arguments of `OAuth` that say how a person is asked to sign in.
        settings: The value of ``"auth"``, if there is one.
    """
    from trio_mcp import auth
    from trio_mcp.auth.client.settings import auth_of

    given: dict[str, Any] = dict(how)
    if options.scope:
        given["scopes"] = options.scope
    if options.client_id is not None:
        # An empty variable counts as unset, because an empty secret would be refused.
        given["client"] = auth.RegisteredClient(options.client_id, secret=os.environ.get(SECRET) or None)
    return auth_of("oauth" if settings is None else settings, **given)


def logout(options: argparse.Namespace) -> int:
    """Revoke and delete stored logins."""
    if options.all == (options.target is not None):
        raise Exit("give either a TARGET or --all")
    from trio_mcp import auth
    from trio_mcp.auth.client.settings import auth_of
    from trio_mcp.auth.rules.login import PROVIDER

    oauth: Any = None
    if options.all:
        # `PROVIDER` is removed from each key, because signing out of a URL drops both of its logins: the one to the
        # server, and the one to the identity provider.
        servers = sorted({key.removesuffix(PROVIDER) for key in trio.run(auth.FileTokens().keys)})
    else:
        # If the target is in a configuration file, its entry may say where the login is kept.
        target = _target(options, partial(auth_of, show=None))
        servers, oauth = [http_url(target.url)], target.auth
    if not isinstance(oauth, auth.OAuth):
        oauth = auth.OAuth(store=auth.FileTokens(), show=None)
    status = OK
    for server in servers:
        try:
            dropped = trio.run(oauth.sign_out, server)
        # The login is dropped even if it can't be revoked. The loop goes on, so that the other logins are dropped, too.
        except AuthorizationError as exc:
            print(f"trio-mcp logout: {clean_line(str(exc))}", file=sys.stderr)
            status = FAILED
            continue
        print(f"signed out of {clean_line(server)}" if dropped else f"no login is stored for {clean_line(server)}")
    return status


def logins(options: argparse.Namespace) -> int:
    """List the stored logins, without their tokens."""
    from trio_mcp.auth import FileTokens
    from trio_mcp.auth.rules.login import PROVIDER

    found = trio.run(_stored, FileTokens())
    if options.json:
        print(dumps(found))
    elif not found:
        print("no logins are stored")
    for each in [] if options.json else found:
        scopes = f", for {' '.join(each['scopes'])}" if each["scopes"] else ""
        kind = PROVIDER if each["identityProvider"] else ""
        print(clean_line(f"{each['server']}{kind} at {each['issuer']}{scopes}; {_until(each)}"))
    return OK


def _until(found: dict[str, Any]) -> str:
    at = found["expiresAt"]
    if found["renewable"] or at is None:
        return "renewed when needed" if found["renewable"] else "valid until it is refused"
    left = (at - time.time()) / 60
    return f"valid for {left:.0f} min" if left >= 1 else "expired"


async def _stored(store: Any, only: str | None = None) -> list[dict[str, Any]]:
    from trio_mcp.auth.rules.login import PROVIDER, Login

    found = []
    for server in await store.keys() if only is None else [only]:
        text = await store.load(server)
        try:
            login = None if text is None else Login.from_json(text)
        except ValueError as exc:  # the other logins are still listed
            print(
                f"what is stored for {clean_line(server)} is not a login: {exc}; remove it (trio-mcp logout)",
                file=sys.stderr,
            )
            continue
        if login is None or not (login.access_token or login.refresh_token):
            continue  # the user has signed out, and only the client's registration is left
        found.append(
            {
                "server": server.removesuffix(PROVIDER),
                "identityProvider": server.endswith(PROVIDER),
                "issuer": login.issuer,
                "client": login.client.id,
                "scopes": None if login.scopes is None else sorted(login.scopes),
                "expiresAt": login.expires_at,
                "renewable": login.refresh_token is not None,
            }
        )
    return found


def _target(options: argparse.Namespace, make_auth: Callable[[object], Any]) -> HttpServerParameters:
    if options.target.partition(":")[0].endswith(".py"):
        raise Exit(f"{options.target} takes no login, because trio-mcp starts it: give a URL or mcp.json#name")
    try:
        found = reached(options.target, dict(options.variable), make_auth)
    except (TypeError, ValueError) as exc:
        raise Exit(str(exc)) from None
    ways = found.targets if isinstance(found, FailoverParameters) else [found]
    for way in ways:
        if isinstance(way, HttpServerParameters):
            return way
    raise Exit(f"{options.target} takes no login: logins are for servers over HTTP and WebSocket")


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"login": login, "logout": logout, "logins": logins}
