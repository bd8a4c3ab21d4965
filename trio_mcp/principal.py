"""`Principal`: the identity on whose behalf a request is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_text
from trio_mcp._patterns import late_pattern

__all__ = ["SCOPE", "Principal", "as_principal"]

SCOPE: Final = late_pattern(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""The syntax of a scope (RFC 6749, section 3.3)."""


def _check_name(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None and attribute.default is None:
        return
    # An empty name usually comes from a lookup that found nothing. If it were accepted, all unknown callers would share
    # it.
    check_text(f"the {attribute.name} of a Principal", value)


def _scopes(given: Iterable[str]) -> frozenset[str]:
    if isinstance(given, str):  # a string is an iterable of strings, too
        raise TypeError(f"the scopes of a Principal must be a set of strings; write {{{given!r}}}")
    return frozenset(given)


def _read_only(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(given))


@attrs.frozen
class Principal:
    """The identity on whose behalf a request is made. It never contains a token.

    Attributes:
        subject: The user or the program.
        issuer: The authority that vouches for the subject, usually a URL; a subject is unique only within its issuer.
        client_id: The client software that acts for the subject, as the issuer knows it.
        scopes: The scopes that the caller has been granted.
        claims: What the issuer says about the subject, read-only; empty if that is unknown.
        expires_at: When this information expires, in seconds since the epoch; None for never.

    Raises:
        TypeError: If a name is not a string.
        ValueError: If a name is empty.
    """

    subject: str = attrs.field(validator=_check_name)
    issuer: str | None = attrs.field(default=None, validator=_check_name)
    client_id: str | None = attrs.field(default=None, validator=_check_name)
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=_scopes)
    # The claims and the expiry belong to one token, not to the identity, so they do not distinguish two principals.
    claims: Mapping[str, Any] = attrs.field(factory=dict, converter=_read_only, eq=False, repr=False, kw_only=True)
    expires_at: float | None = attrs.field(default=None, eq=False, kw_only=True)

    @property
    def identity(self) -> tuple[str | None, str, str | None]:
        """The part that identifies the caller: issuer, subject and client. Scopes may change between two requests."""
        return self.issuer, self.subject, self.client_id


def as_principal(given: str | Principal | None, what: str) -> Principal | None:
    """Convert an argument to a principal: a string becomes the subject of one, and None stays None.

    Args:
        given: The argument.
        what: The argument's description, for the error message.

    Raises:
        TypeError: If the argument is neither a string, a `Principal` nor None.
    """
    if given is None or isinstance(given, Principal):
        return given
    if not isinstance(given, str):
        raise TypeError(f"{what} must be a string, a Principal or None, got {type(given).__name__}")
    return Principal(given)
