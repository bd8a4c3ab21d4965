"""The tokens of a check: read from where the command line says, so that they are never on it themselves."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from trio_mcp.cli.exits import Exit
from trio_mcp.cli.signing_in import with_stored_token
from trio_mcp.cli.text import clean_line
from trio_mcp.client.config.reading import Configured
from trio_mcp.http.client.parameters import HttpServerParameters

if TYPE_CHECKING:
    from trio_mcp.conformance.credentials import Authority

__all__ = ["TOKENS", "authority_at", "with_tokens"]

TOKENS: Final = ("auth_a", "auth_b", "auth_elsewhere")
"""The options that say where a token is."""

MAX_FILE: Final = 64 * 1024
"""The size of the largest file with a token, in bytes (arbitrary)."""

LOGIN: Final = "login"


def with_tokens(options: argparse.Namespace, target: Configured) -> tuple[Configured, dict[str, str]]:
    """Return the target as a check connects to it, and the tokens to send, by their options.

    Raises:
        Exit: If a token can't be read, the options don't go together, or the target has no use for tokens.
    """
    given = {name: getattr(options, name) for name in TOKENS if getattr(options, name) is not None}
    if not given and options.auth_server is None:
        return with_stored_token(target), {}
    shown = ", ".join(f"--{name.replace('_', '-')}" for name in (*given, *(["auth_server"] * (not given))))
    if not isinstance(target, HttpServerParameters) or target.kind != "http":
        raise Exit(f"{shown}: only for a server with an http: or https: URL, where authorization is defined")
    if given and options.auth_server is not None:
        raise Exit(f"--auth-server makes the tokens of all users: leave out {shown}")
    if any(name.lower() == "authorization" for name in target.headers):
        raise Exit(f"{shown}: the headers of the target have an Authorization already; use one or the other")
    tokens = {name: _read(f"--{name.replace('_', '-')}", source, target) for name, source in given.items()}
    # The stored login is not used in addition: requests have the tokens that were named, and no other.
    return attrs.evolve(target, auth=None), tokens


def _read(option: str, source: str, target: HttpServerParameters) -> str:
    kind, _, place = source.partition(":")
    if kind == "env" and place:
        found = os.environ.get(place, "")
        if not found.strip():
            raise Exit(f"{option}: the environment has no variable {clean_line(place)!r}, or it is empty", hint=False)
        return found.strip()
    if kind == "file" and place:
        return _in_file(option, place)
    if source == LOGIN and option == "--auth-a":
        return _stored(option, target)
    # The value is not repeated: it may be a token.
    login = f", or {LOGIN} for the stored login at the target" if option == "--auth-a" else ""
    raise Exit(f"{option} must be env:NAME or file:PATH, where the token is{login}; never the token itself")


def _in_file(option: str, path: str) -> str:
    shown = clean_line(path)
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
    except OSError as exc:
        raise Exit(f"{option}: can't read {shown}: {exc.strerror}", hint=False) from None
    except ValueError:  # a NUL in the path
        raise Exit(f"{option}: {shown!r} is not a path", hint=False) from None
    if len(data) > MAX_FILE:
        raise Exit(f"{option}: {shown} is too large; the limit is {MAX_FILE} bytes", hint=False)
    text = data.decode("ascii", "replace").strip()
    if not text or not text.isprintable() or "\ufffd" in text or " " in text:
        raise Exit(f"{option}: {shown} must contain a token, and nothing else", hint=False)
    return text


def _stored(option: str, target: HttpServerParameters) -> str:
    signed = with_stored_token(target)
    fields = signed.headers if isinstance(signed, HttpServerParameters) else {}
    scheme, _, token = next((value for name, value in fields.items() if name.lower() == "authorization"), "").partition(
        " "
    )
    if scheme.lower() != "bearer" or not token:
        raise Exit(f"{option}: there is no stored login at {target.url}; run trio-mcp login first", hint=False)
    return token


@contextlib.asynccontextmanager
async def authority_at(port: int | None) -> AsyncIterator[Mapping[str, Authority]]:
    """Serve an authorization server for tests while the block runs, and yield the option that gives it to a check.

    Args:
        port: Its port on this machine; None for no server, and no option.
    """
    if port is None:
        yield {}
        return
    from trio_mcp.auth.testing import AuthorizationServer

    authority = AuthorizationServer()
    async with authority.served(port=port) as issuer:
        print(
            f"trio-mcp: the authorization server is {issuer}; the target must accept its tokens",
            file=sys.stderr,
            flush=True,
        )
        yield {"authority": authority}
