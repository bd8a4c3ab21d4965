"""The tokens that a check of a protected server sends: each has a name, and only names are recorded."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import quote

from trio_mcp.auth.rules.challenges import Wanted, read_wanted
from trio_mcp.conformance.members import parsed
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.http.headers import JSON, PROTOCOL_VERSION, SESSION_ID, Headers

__all__ = [
    "KINDS",
    "NOWHERE",
    "UNAUTHORIZED",
    "WELL_KNOWN",
    "Authority",
    "Credentials",
    "claims_of",
    "credentials_for",
    "refusal_in",
    "wanted_by",
]

KINDS: Final = {
    "a": "it needs the token of a user (--auth-a, or --auth-server)",
    "b": "it needs the token of a second user (--auth-b, or --auth-server)",
    "random": "it needs the token of a user (--auth-a, or --auth-server)",
    "unsigned": "it needs the token of a user that is a JWT (--auth-a, or --auth-server)",
    "forged": "it needs the token of a user that is a JWT (--auth-a, or --auth-server)",
    "elsewhere": "it needs a token for another server (--auth-elsewhere, or --auth-server)",
    **dict.fromkeys(
        ("expired", "early", "stranger", "narrow", "stepped", "capital"),
        "only the target's authorization server can make the token that it needs (--auth-server)",
    ),
}
"""The names of tokens, and why a token may be missing.

``a`` and ``b`` are those of two users, and ``random`` was never issued. ``unsigned`` and ``forged`` say what ``a``
says, without a signature and with a wrong one. ``elsewhere`` is for another server, ``stranger`` of another issuer,
``expired`` too old and ``early`` not valid yet. ``narrow`` has no scopes, and ``stepped`` also those that the last
challenge has asked for; ``capital`` names the server in capitals.
"""

SHORTEST: Final = 8
"""The length of the shortest token, in characters. An arbitrary choice: a shorter text may be part of any message, and
could not be masked."""

LONGEST: Final = 64 * 1024
"""The length of the longest token, in characters (arbitrary)."""

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""The path of the metadata of a protected resource (RFC 9728, section 3); a path of the resource follows it."""

NOWHERE: Final = "/.well-known/oauth-protected-resource/no-metadata-is-named"
"""The path that is requested if a challenge has named no metadata of the same server."""

UNAUTHORIZED: Final[Mapping[str, str | None]] = {
    "Authorization": None,
    "Accept": JSON,
    SESSION_ID: None,
    PROTOCOL_VERSION: None,
}
"""The differences between the headers of a request for metadata and those of a request to the endpoint."""

DAY: Final = 86_400.0
ELSEWHERE: Final = "https://elsewhere.example/mcp"
STRANGER: Final = "https://stranger.example"

# RFC 6750, section 2.1.
_SYNTAX = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_PLACE = re.compile(r"\{token ([a-z]+)\}")


@runtime_checkable
class Authority(Protocol):
    """An authorization server that makes any token; `trio_mcp.auth.testing.AuthorizationServer` is one."""

    @property
    def issuer(self) -> str: ...

    def make_token(self, **claims: Any) -> str:
        """Return an access token with these claims, which replace those of an ordinary one; None removes a claim."""


class Credentials:
    """The tokens that are sent to one target.

    Args:
        given: The tokens that the user has given, by name: ``a``, ``b``, ``elsewhere``.
        authority: Makes all others; None if they can't be made.

    Attributes:
        names: The names of the tokens that there are, or that can be made.
        is_ready: Whether `learn` was called, which an authority needs before it can make a token.
    """

    def __init__(self, given: Mapping[str, str], authority: Authority | None = None) -> None:
        self._authority = authority
        self._values = dict(given)
        self._resource = ""
        self._scopes: frozenset[str] = frozenset()
        self._challenged: frozenset[str] = frozenset()
        self._hidden: dict[bytes, bytes] = {}
        self.is_ready = authority is None
        if authority is not None:
            self.names = frozenset(KINDS)
        else:
            made = {"random"} | ({"unsigned", "forged"} if claims_of(given["a"]) is not None else set())
            self.names = frozenset(given) | made
        for name in self._values:
            self._hide(name)

    def learn(self, resource: str, scopes: Iterable[str]) -> None:
        """Take note of the URL that tokens have to be for, and of the scopes that they need."""
        self._resource, self._scopes, self.is_ready = resource, frozenset(scopes), True

    def challenge(self, scopes: Collection[str]) -> None:
        """Take note of the scopes that the last challenge has asked for."""
        if self._challenged != frozenset(scopes):
            self._challenged = frozenset(scopes)
            self._values.pop("stepped", None)

    def filled(self, text: str) -> str:
        """Return a text with tokens in place of their names: ``{token NAME}``."""
        return _PLACE.sub(lambda found: self._value(found[1]), text) if "{token " in text else text

    def hidden(self, data: bytes) -> bytes:
        """Return bytes with names in place of the tokens that were sent so far."""
        for token, name in self._hidden.items():
            data = data.replace(token, name)
        return data

    def _value(self, name: str) -> str:
        if name not in self.names:
            return "none"
        if name not in self._values:
            self._values[name] = _MADE[name](self) if name in _MADE else self._minted(name)
            self._hide(name)
        return self._values[name]

    def _hide(self, name: str) -> None:
        token, shown = self._values[name], f"{{token {name}}}".encode()
        # A server that repeats a token may escape it, as JSON and URLs allow.
        for form in (token, token.replace("/", "\\/"), quote(token, safe="")):
            self._hidden.setdefault(form.encode(), shown)

    def _minted(self, name: str) -> str:
        assert self._authority is not None
        now = time.time()
        ordinary = {"sub": "kit-a", "aud": self._resource, "scope": " ".join(sorted(self._scopes)), "exp": now + DAY}
        scheme, separator, rest = self._resource.partition("://")
        host, slash, path = rest.partition("/")
        changes: dict[str, dict[str, Any]] = {
            "a": {},
            "b": {"sub": "kit-b"},
            "elsewhere": {"aud": ELSEWHERE},
            "stranger": {"iss": STRANGER},
            "expired": {"iat": now - 2 * DAY, "exp": now - DAY},
            "early": {"nbf": now + DAY / 2},
            "narrow": {"scope": ""},
            "stepped": {"scope": " ".join(sorted(self._scopes | self._challenged))},
            "capital": {"aud": f"{scheme.upper()}{separator}{host.upper()}{slash}{path}"},
        }
        claims = {**ordinary, **changes[name]}
        return self._authority.make_token(**{k: int(v) if isinstance(v, float) else v for k, v in claims.items()})

    def __repr__(self) -> str:
        return f"Credentials({', '.join(sorted(self.names))})"


def _unsigned(credentials: Credentials) -> str:
    header, claims, _ = credentials.filled("{token a}").split(".")
    head = parsed(_decoded(header)) | {"alg": "none"}
    head.pop("kid", None)
    return f"{_encoded(json.dumps(head).encode())}.{claims}."


def _forged(credentials: Credentials) -> str:
    token = credentials.filled("{token a}")
    # The last characters of Base64 may have bits that decode to nothing, so one in the middle is changed.
    at = (token.rindex(".") + len(token)) // 2
    return f"{token[:at]}{'A' if token[at] != 'A' else 'B'}{token[at + 1 :]}"


_MADE: Final[Mapping[str, Callable[[Credentials], str]]] = {
    "random": lambda credentials: "trio-mcp-check.0123456789abcdef.not-a-token",
    "unsigned": _unsigned,
    "forged": _forged,
}


def credentials_for(given: Mapping[str, str | None], authority: Authority | None) -> Credentials | None:
    """Return the credentials of a check; None if there are no tokens.

    Args:
        given: The tokens by the names of their arguments: ``auth_a``, ``auth_b`` and ``auth_elsewhere``.
        authority: Makes all tokens.

    Raises:
        TypeError: If a token is not a string.
        ValueError: If a token is not one, two are the same or of the same user, or they don't go together.
    """
    tokens = {name.removeprefix("auth_"): token for name, token in given.items() if token is not None}
    for name, token in tokens.items():
        # No value is repeated in a message: it may be a token.
        if not isinstance(token, str):
            raise TypeError(f"auth_{name} must be a string, got {type(token).__name__}")
        if not SHORTEST <= len(token) <= LONGEST or not _SYNTAX.fullmatch(token):
            raise ValueError(
                f"auth_{name} must be an access token: {SHORTEST} to {LONGEST} letters, digits and -._~+/ (RFC 6750)"
            )
    if authority is not None:
        if tokens:
            raise ValueError("with authority=, the tokens of all users are made by it: leave out auth_a, auth_b, …")
        return Credentials({}, authority)
    if not tokens:
        return None
    if "a" not in tokens:
        raise ValueError(f"auth_{min(tokens)} needs auth_a, the token with which everything else is sent")
    for name, token in tokens.items():
        # Any server refuses an expired token, so nothing would be learned from what it does with this one.
        expiry = (claims_of(token) or {}).get("exp")
        if isinstance(expiry, (int, float)) and expiry < time.time():
            raise ValueError(f"auth_{name} has expired; get a new token")
    subjects = {name: _subject(token) for name, token in tokens.items()}
    if "b" in tokens and (tokens["a"] == tokens["b"] or (subjects["a"] and subjects["a"] == subjects["b"])):
        raise ValueError("auth_a and auth_b are tokens of the same user; use those of two users")
    if "elsewhere" in tokens and tokens["elsewhere"] in (tokens["a"], tokens.get("b")):
        raise ValueError("auth_elsewhere is the token of a user; use one that was issued for another server")
    return Credentials(tokens)


def _subject(token: str) -> tuple[Any, Any] | None:
    claims = claims_of(token)
    return None if claims is None or claims.get("sub") is None else (claims.get("iss"), claims["sub"])


def claims_of(token: str) -> dict[str, Any] | None:
    """Return the claims of a token, unverified; None if it is not a JWT."""
    parts = [parsed(_decoded(part)) for part in token.split(".")[:2]]
    is_jwt = token.count(".") == 2 and all(isinstance(part, dict) for part in parts) and "alg" in parts[0]
    return parts[1] if is_jwt else None


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def wanted_by(response: Event) -> Wanted:
    """Return what the challenges of a response ask for."""
    return read_wanted(Headers(response.facts.get("headers", ())))


def refusal_in(events: Iterable[Event], *, named: str) -> str:
    """Return what a refusal says about the token, to follow a message; empty if it says nothing.

    Args:
        events: The events since the request.
        named: Whose token was sent: that of the first or the second user; empty for none.
    """
    refused = [each for each in events if each.kind == "response" and each.facts.get("status") in (401, 403)]
    if not refused:
        return ""
    wanted = wanted_by(refused[-1])
    if not named:
        return (
            "; the target wants an access token: see --auth-a (auth_a=)" if refused[-1].facts["status"] == 401 else ""
        )
    said = ": ".join(filter(None, (wanted.error, wanted.description)))[:200]
    scopes = f"; it asks for the scopes {' '.join(sorted(wanted.scopes))[:200]}" if wanted.scopes else ""
    return f"; the target refuses the token of the {named} user{f' ({said})' if said else ''}{scopes}"
