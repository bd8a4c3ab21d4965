"""Scopes: which ones to ask for, and how often to ask for more."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from trio_mcp.auth.rules.challenges import Wanted
from trio_mcp.auth.rules.metadata import Discovered

__all__ = ["MAX_STEP_UPS", "StepUps", "join_scopes", "read_scopes", "select_scopes"]

MAX_STEP_UPS = 2
"""How often an operation may ask for more scopes; chosen: the specification asks for a limit of a few."""


def select_scopes(
    given: Collection[str] | None, wanted: Wanted, found: Discovered, *, offline: bool = True
) -> frozenset[str]:
    """Return the scopes to ask for; empty: send no ``scope`` at all.

    Those of the challenge, else all that the resource metadata lists (2025-11-25 `basic/authorization`, section Scope
    Selection Strategy). Scopes given by the user replace the latter and join the former. ``offline_access`` is added if
    the authorization server lists it.

    Args:
        given: The scopes that the user asks for, or None.
        wanted: What the server's response asks for.
        found: The server and its authorization server.
        offline: Whether a refresh token is wanted.
    """
    raise NotImplementedError


def read_scopes(text: str) -> frozenset[str]:
    """Return the scopes in a ``scope`` parameter; malformed ones are left out."""
    raise NotImplementedError


def join_scopes(scopes: Collection[str]) -> str:
    """Return a ``scope`` parameter, always in the same order."""
    raise NotImplementedError


@attrs.define
class StepUps:
    """How often one operation has asked for more scopes, and which."""

    _asked: list[frozenset[str]] = attrs.field(factory=list)

    def more(self, challenged: frozenset[str] | None, held: Collection[str]) -> frozenset[str] | None:
        """Return the scopes to authorize next, after a 403 with ``insufficient_scope``; None: give up.

        Args:
            challenged: The scopes that the server asks for, or None.
            held: The scopes that were asked for or granted so far.
        """
        raise NotImplementedError
