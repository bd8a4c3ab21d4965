"""The claims of a token, and the checks that every token must pass: of its issuer, its audience and its times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from trio_mcp._checks import check_number, check_text
from trio_mcp.auth.fetching import FetchFunction
from trio_mcp.errors import TrioMcpError
from trio_mcp.http.server.gate import LEEWAY

__all__ = ["Claims", "Demands", "InvalidToken", "TooEarly", "Verify", "claims_of", "is_time"]

MAX_TIME = 1e12
"""The latest time that a claim may contain, in seconds: some 30,000 years from now (arbitrary)."""

MAX_AUDIENCES = 50
"""The maximum number of audiences of a token that are compared in canonical form (arbitrary)."""


class InvalidToken(TrioMcpError):
    """The refusal of a token, raised by a function that checks tokens. The reason goes to the log, not to the client.

    Attributes:
        reason: Why the token is refused, without quoting it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def _text(self) -> str:
        return f"the access token is refused: {self.reason}"


class TooEarly(InvalidToken):
    """A token is not valid yet. Issuers don't issue such tokens, so one of the clocks is wrong."""


def _texts(given: Iterable[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _scopes(given: Iterable[str] | str) -> frozenset[str]:
    return frozenset(given.split() if isinstance(given, str) else given)


@attrs.frozen
class Claims:
    """The claims of a verified token.

    Attributes:
        issuer: The issuer of the token.
        subject: The person or the program for whom the token was issued.
        audience: The servers that the token is for; this server must be one of them.
        expires_at: When the token expires, in seconds since the epoch.
        client_id: The client to which the token was issued.
        scopes: The granted scopes; a string is split at its spaces.
        key: The thumbprint of the key to which the token is bound (``cnf.jkt``, RFC 9449); None if it is not bound.
        not_before: When the token becomes valid, in seconds since the epoch.
        issued_at: When the token was issued, in seconds since the epoch.
        values: All claims as the issuer made them, for `Principal.claims`.

    Raises:
        TypeError: If a value is of the wrong type.
        ValueError: If a name is empty.
    """

    issuer: str = attrs.field()
    subject: str = attrs.field()
    audience: tuple[str, ...] = attrs.field(converter=_texts)
    expires_at: float = attrs.field()
    client_id: str | None = None
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=_scopes)
    key: str | None = None
    not_before: float | None = None
    issued_at: float | None = None
    values: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @issuer.validator
    @subject.validator
    def _name(self, attribute: attrs.Attribute[Any], value: object) -> None:
        check_text(f"the {attribute.name} of Claims", value)

    @expires_at.validator
    def _time(self, attribute: attrs.Attribute[Any], value: object) -> None:
        check_number(f"the {attribute.name} of Claims", value)


Verify: TypeAlias = Callable[[str], Awaitable[Claims]]
"""An async function that checks a token: it returns the token's claims, or raises `InvalidToken`."""


@attrs.frozen
class Demands:
    """The settings that a resource server gives its verifier.

    Attributes:
        issuers: The issuers whose tokens are accepted, as they are configured.
        audiences: The values of ``aud`` that mean this server.
        fetch: Called with an issuer; returns a function that makes HTTP exchanges with it for one task.
        clock: Returns the time, in seconds since the epoch.
    """

    issuers: tuple[str, ...]
    audiences: frozenset[str]
    fetch: Callable[[str], FetchFunction] = attrs.field(repr=False)
    clock: Callable[[], float]

    def check(self, claims: Claims) -> None:
        """Check the claims that every token must have.

        Raises:
            InvalidToken: If one of the claims is wrong.
        """
        # A slash at the end may differ, as the issuer's own spelling is unknown until its metadata has been fetched.
        # After that, the verifier compares the issuers exactly.
        if not any(slashless(claims.issuer) == slashless(issuer) for issuer in self.issuers):
            raise InvalidToken("its issuer is not one that this server accepts")
        # Audiences are first compared unchanged: they need not be URLs, and names that are not URLs are case-sensitive.
        if self.audiences.isdisjoint(claims.audience) and not self._is_meant(claims.audience):
            raise InvalidToken("it is for another server: its audience does not name this one")
        now = self.clock()
        # The test is written as "not (valid)": every comparison with NaN is false, so NaN is refused as well.
        if not now < claims.expires_at + LEEWAY:
            raise InvalidToken("it has expired")
        for moment in (claims.not_before, claims.issued_at):
            if moment is not None and not moment <= now + LEEWAY:
                raise TooEarly(f"it becomes valid only in {moment - now:.0f} s: is the clock of this machine right?")

    def _is_meant(self, audience: tuple[str, ...]) -> bool:
        # Scheme and host may be written in capitals (2026-07-28 basic/authorization, Canonical Server URI). Only the
        # first audiences are compared in this way: the signature may not have been checked yet, so anyone could send a
        # token with very many.
        return not self.audiences.isdisjoint(map(canonical, audience[:MAX_AUDIENCES]))


def slashless(issuer: str) -> str:
    """Return an issuer without the slash at its end, if it has one."""
    # With or without the slash, the metadata URL is the same (RFC 8414, section 3.1); the issuers are compared exactly
    # later.
    return issuer.removesuffix("/")


def canonical(url: str) -> str:
    """Return a URL with its scheme and host in lower case, and without a path that is only a slash."""
    scheme, separator, rest = url.partition("://")
    if not separator:  # not a URL, but a name that is case-sensitive
        return url
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}{separator}{host.lower()}" + (slash + path if path else "")


def claims_of(values: Mapping[str, Any], issuer: str | None = None) -> Claims:
    """Read the claims of a JWT (RFC 9068), or those of an introspection response (RFC 7662).

    Args:
        values: The claims.
        issuer: The issuer of the token, if the claims need not name it.

    Raises:
        InvalidToken: If a required claim is missing, or a claim is of the wrong type.
    """
    # RFC 9068 calls this claim `client_id`, OpenID Connect `azp`, Okta `cid`, and Entra, in its older tokens, `appid`.
    texts = (_text(values, name) for name in ("client_id", "azp", "cid", "appid"))
    client_id = next(filter(None, texts), None)
    return Claims(
        _text(values, "iss") or issuer or _missing("iss"),
        # An introspection response may lack `sub` (RFC 7662, section 2.2); a JWT must have it (RFC 9068, section 2.2).
        _text(values, "sub") or (client_id if issuer else None) or _missing("sub"),
        _list(values, "aud") or _missing("aud"),
        # `exp` is required, because a token without it would be valid forever.
        _number(values, "exp") or _missing("exp"),
        client_id,
        # Large providers call this claim `scp`, and some send a list.
        frozenset(word for part in _list(values, "scope") + _list(values, "scp") for word in part.split()),
        _thumbprint(values),
        _number(values, "nbf"),
        _number(values, "iat"),
        values,
    )


def _missing(name: str) -> Any:
    raise InvalidToken(f"its claim {name!r} is missing or empty")


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidToken(f"its claim {name!r} is not a string")
    return value


def _list(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = values.get(name, ())
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, str) for each in found):
        raise InvalidToken(f"its claim {name!r} is neither a string nor a list of strings")
    return tuple(found)


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if not is_time(value):
        raise InvalidToken(f"its claim {name!r} is not a time")
    return value  # type: ignore[no-any-return]


def is_time(value: object) -> bool:
    """Return whether a value can be a time, in seconds since the epoch."""
    # The bound is needed because JSON has integers of any length, which don't fit into a float.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MAX_TIME


def _thumbprint(values: Mapping[str, Any]) -> str | None:
    bound = values.get("cnf")
    if bound is None:
        return None
    # A token with an unknown binding must not count as unbound (RFC 7800, section 3.1).
    key = bound.get("jkt") if isinstance(bound, dict) else None
    if not isinstance(key, str) or not key:
        raise InvalidToken("it is bound to something other than a DPoP key (its claim 'cnf' has no 'jkt')")
    return key
