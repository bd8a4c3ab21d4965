"""Challenges: what a server asks for in ``WWW-Authenticate`` (RFC 9110, section 11.6.1), read and written.

The field is one line for any number of challenges, with commas between challenges and between parameters alike. What a
peer sends is read in one pass from left to right, so a quoted string can't pass for anything else, and whatever is
malformed ends only the challenge that it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from trio_mcp.http.headers import Headers

__all__ = ["Challenge", "Wanted", "format_challenge", "parse_challenges", "read_wanted"]

MAX_FIELD = 16 * 1024
"""The longest field that is read, in characters; chosen. What comes after it is ignored."""


@attrs.frozen
class Challenge:
    """One challenge.

    Attributes:
        scheme: The scheme, in lower case.
        parameters: The parameters, with names in lower case; of those that were sent twice, the first.
        token: The text that some schemes have instead of parameters (``token68``), or None.
    """

    scheme: str
    parameters: Mapping[str, str] = attrs.field(factory=dict)
    token: str | None = None


@attrs.frozen
class Wanted:
    """What the challenges of one response ask for, as far as they are of the schemes Bearer and DPoP.

    Attributes:
        metadata: The URL of the resource metadata, as it was sent, or None.
        scopes: The scopes that the request needs; None if the server doesn't say.
        error: The error code, such as ``"invalid_token"`` or ``"insufficient_scope"``, or None.
        description: The server's description of the error, or None.
        dpop: Whether DPoP is asked for.
        bearer: Whether Bearer is asked for; both may be.
        nonce: The server's nonce for DPoP (the field ``DPoP-Nonce``), or None.
    """

    metadata: str | None = None
    scopes: frozenset[str] | None = None
    error: str | None = None
    description: str | None = None
    dpop: bool = False
    bearer: bool = False
    nonce: str | None = None


def read_wanted(headers: Headers) -> Wanted:
    """Return what a response asks for; nothing at all if it has no challenge that can be read."""
    raise NotImplementedError


def parse_challenges(text: str) -> list[Challenge]:
    """Return the challenges in a field value; never raises, and takes time in proportion to the length of the text."""
    raise NotImplementedError


def format_challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    """Return a challenge as a field value: values are quoted and escaped, characters not allowed in one become spaces.

    Raises:
        ValueError: If the scheme or the name of a parameter is not a token.
    """
    raise NotImplementedError
