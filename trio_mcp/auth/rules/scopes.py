"""Scopes: which ones to ask for, and how often to ask for more."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from trio_mcp.principal import SCOPE

__all__ = ["MAX_STEP_UPS", "OFFLINE", "StepUps", "join_scopes", "read_scopes", "select_scopes"]

MAX_STEP_UPS = 2
"""How often an operation may ask for more scopes (arbitrary); the specification asks for a few times at most."""

OFFLINE = "offline_access"
"""The scope that asks for a refresh token (OpenID Connect Core, section 11)."""


def read_scopes(text: str) -> frozenset[str]:
    """Return the scopes in a ``scope`` parameter; malformed ones are left out."""
    # Only spaces separate scopes (RFC 6749, section 3.3): two words with a tab between them are one malformed scope.
    return frozenset(scope for scope in text.split(" ") if SCOPE.fullmatch(scope))


def join_scopes(scopes: Collection[str]) -> str:
    """Return the value of a ``scope`` parameter: the scopes in alphabetical order, separated by spaces."""
    return " ".join(sorted(scopes))


def select_scopes(
    given: Collection[str] | None,
    *,
    challenged: frozenset[str] | None,
    listed: frozenset[str] | None,
    offered: frozenset[str] | None,
    offline: bool = True,
) -> frozenset[str]:
    """Return the scopes to ask for; if the set is empty, no ``scope`` parameter is sent.

    The scopes are those of the challenge, or else all that the resource metadata lists (2025-11-25
    `basic/authorization`, section Scope Selection Strategy). Scopes given by the program are added to those of the
    challenge, and replace those of the metadata.

    Args:
        given: The scopes that the program asks for, or None.
        challenged: The scopes in the server's challenge, or None.
        listed: The scopes in its resource metadata, or None.
        offered: The scopes in the authorization server's metadata, or None.
        offline: Whether a refresh token is wanted: ``offline_access`` is asked for where it is offered.
    """
    scopes = frozenset(given or ()) | (challenged or frozenset())
    # An empty set is not the same as None: it means that no scope is needed, so the listed ones are not requested.
    if given is None and challenged is None:
        scopes = listed or frozenset()
    # `offline_access` is not a scope of the resource (2026-07-28, section Refresh Tokens), and an authorization server
    # that does not support it may refuse the request.
    if OFFLINE not in (given or ()):
        scopes -= {OFFLINE}
    # 2026-07-28 allows a client to request `offline_access` only if the authorization server lists it.
    if offline and OFFLINE in (offered or ()):
        scopes |= {OFFLINE}
    return scopes


@attrs.define
class StepUps:
    """The sets of scopes that one operation has asked for."""

    _asked: list[frozenset[str]] = attrs.field(factory=list, init=False)

    def more(self, challenged: frozenset[str] | None, held: Collection[str]) -> frozenset[str] | None:
        """Return the scopes to ask for next, after a 403 with ``insufficient_scope``; None to give up.

        The result is the union of the scopes that the server asks for now and all earlier ones. An operation does not
        ask for the same set twice, but it may ask for one that an earlier operation asked for: people don't always
        grant everything.

        Args:
            challenged: The scopes that the server asks for, or None.
            held: The scopes that were asked for or granted so far.
        """
        if not challenged or len(self._asked) >= MAX_STEP_UPS:
            return None
        # A login for the new scopes alone would lack the old ones: two operations that need different scopes would then
        # replace each other's login again and again.
        union = challenged.union(held, *self._asked)
        return None if union in self._asked else union

    def took(self, scopes: frozenset[str]) -> None:
        """Record that these scopes were asked for."""
        self._asked.append(scopes)
