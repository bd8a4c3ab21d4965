"""Challenges: reading and writing ``WWW-Authenticate`` (RFC 9110, section 11.6.1).

The field is one line for any number of challenges, with commas between challenges and between parameters alike. The
field is read in one pass from left to right, so quoted text is never mistaken for a parameter or a challenge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from trio_mcp.auth.rules.scopes import read_scopes
from trio_mcp.auth.rules.texts import cleaned
from trio_mcp.http.headers import Headers

__all__ = ["MAX_FIELD", "Challenge", "Wanted", "format_challenge", "parse_challenges", "read_wanted"]

MAX_FIELD = 16 * 1024
"""How many characters of a field are read; the rest is ignored. An arbitrary choice."""

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED = r'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
_END = r"(?=[ \t]*+(?:,|\Z))"

# Each repetition is possessive, atomic or last, so no match is tried twice, and the time stays in proportion to the
# length of the text.
_GAP = re.compile(r"[ \t,]*+")
_SCHEME = re.compile(rf"({_TOKEN})(?:[ \t]++|(?=,|\Z))")
# The pattern includes `_END`, because the name of a first parameter would otherwise match as a token, such as `realm`
# in `realm="x"`.
_TOKEN68 = re.compile(rf"([0-9A-Za-z\-._~+/]++=*+){_END}")
# An unquoted value may contain characters that a token can't contain, because servers send URLs without quotes. It may
# be empty, too.
_PARAMETER = re.compile(rf"({_TOKEN})[ \t]*+=[ \t]*+(?:({_QUOTED})|((?!=)[!#-+\--~]++)(?=[ \t,]|\Z)|{_END})", re.DOTALL)
_JUNK = re.compile(rf'[^",]*+(?:{_QUOTED}[^",]*+)*', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)

_NAME = re.compile(_TOKEN)
_SPECIAL = re.compile(r'(["\\])')
_UNSENDABLE = re.compile(r"[^\x20-\x7e]")
# An access token of at least this many characters does not occur in a challenge by chance. An arbitrary choice: a token
# of 128 bits is longer.
_SECRET = 16


@attrs.frozen
class Challenge:
    """One challenge from a ``WWW-Authenticate`` field.

    Attributes:
        scheme: The scheme, in lower case.
        parameters: The parameters, with names in lower case; if one was sent twice, its first value.
        token: The text that some schemes have instead of parameters (``token68``), or None.
    """

    scheme: str
    parameters: Mapping[str, str] = attrs.field(factory=dict)
    token: str | None = None


@attrs.frozen
class Wanted:
    """The demands of one response, from its challenges for the schemes Bearer and DPoP.

    Attributes:
        metadata: The URL of the resource metadata, as it was sent, or None.
        scopes: The scopes that the request needs; None if the server doesn't say.
        error: The error code, such as ``"invalid_token"`` or ``"insufficient_scope"``, or None.
        description: The server's description of the error, or None.
        dpop: Whether DPoP is asked for.
        bearer: Whether Bearer is asked for; both may be.
        others: The schemes of other challenges.
    """

    metadata: str | None = None
    scopes: frozenset[str] | None = None
    error: str | None = None
    description: str | None = None
    dpop: bool = False
    bearer: bool = False
    others: tuple[str, ...] = ()


def read_wanted(headers: Headers, *, token: str = "") -> Wanted:
    """Return the demands of a response; they are empty if no challenge can be read.

    Args:
        headers: The header fields of the response.
        token: The token of the request. If a challenge repeats it, no challenge is read: as an error code or a scope,
            the token would end up in an error message, a log, or the URL of an authorization request.
    """
    challenges = parse_challenges(headers.get("WWW-Authenticate") or "")
    schemes = [challenge.scheme for challenge in challenges]
    parameters: dict[str, str] = {}
    for challenge in challenges:
        # The `scope` or `resource_metadata` of another scheme is not meant for OAuth, and is ignored.
        if challenge.scheme in ("bearer", "dpop"):
            parameters = {**challenge.parameters, **parameters}
    if len(token) >= _SECRET and any(token in value for value in parameters.values()):
        return Wanted()
    return Wanted(
        metadata=parameters.get("resource_metadata") or None,
        scopes=read_scopes(parameters["scope"]) if "scope" in parameters else None,
        error=cleaned(parameters.get("error")),
        description=cleaned(parameters.get("error_description")),
        dpop="dpop" in schemes,
        bearer="bearer" in schemes,
        others=tuple(scheme for scheme in schemes if scheme not in ("bearer", "dpop")),
    )


def parse_challenges(text: str) -> list[Challenge]:
    """Return the challenges in a field value; never raises, and takes time in proportion to the length of the text.

    A malformed challenge keeps the parameters before the point where it is malformed; those after that are ignored.
    """
    text = text[:MAX_FIELD]
    challenges: list[Challenge] = []
    current: dict[str, str] | None = None
    at = _end(_GAP.match(text))
    while at < len(text):
        # A parameter is tried before a scheme: blanks may come before `=` (RFC 9110, section 11.2), and then the name
        # of a parameter looks like a scheme.
        if parameter := _PARAMETER.match(text, at):
            if current is not None:
                name, quoted, plain = parameter.groups()
                value = _ESCAPE.sub(r"\1", quoted[1:-1]) if quoted else plain or ""
                current.setdefault(name.lower(), value)
            at = parameter.end()
        elif scheme := _SCHEME.match(text, at):
            current = {}
            token = _TOKEN68.match(text, scheme.end())
            challenges.append(Challenge(scheme[1].lower(), current, token and token[1]))
            at = token.end() if token else scheme.end()
        else:
            # The parameters that follow are ignored, because they may belong to the malformed challenge, and not to the
            # one before it.
            current = None
            at = _end(_JUNK.match(text, at))
            if text.startswith('"', at):  # the quote is never closed, so the rest can't be parsed
                break
        at = _end(_GAP.match(text, at))
    return challenges


def _end(found: re.Match[str] | None) -> int:
    assert found is not None  # the pattern matches an empty text, too
    return found.end()


def format_challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    """Return a challenge as a field value: values are quoted and escaped, and invalid characters become spaces.

    Raises:
        ValueError: If the scheme or the name of a parameter is not a token.
    """
    for name in (scheme, *parameters):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name for an authentication scheme or a parameter")
    # Characters are first replaced, then escaped: a line break would begin another field, and a quote would end the
    # value.
    pairs = (f'{name}="{_SPECIAL.sub(_ESCAPED, _UNSENDABLE.sub(" ", value))}"' for name, value in parameters.items())
    return f"{scheme} {', '.join(pairs)}".strip()


_ESCAPED = r"\\\1"
