"""How to reach a server that has a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

import attrs

from trio_mcp._checks import check_choice, validator

__all__ = ["HttpKind", "HttpServerParameters"]

HttpKind: TypeAlias = Literal["http", "sse", "ws"]

# A field value of RFC 9110, section 5.5, without the obsolete bytes beyond ASCII.
_FIELD_VALUE = re.compile(r"(?:[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*)?")
_SCHEMES: dict[str, tuple[str, ...]] = {"http": ("http", "https"), "sse": ("http", "https"), "ws": ("ws", "wss")}


def _check_url(instance: HttpServerParameters, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"url must be a string, got {value!r}")
    # The scheme first, by hand: `urlsplit` takes nearly everything for a URL.
    scheme, separator, rest = value.partition("://")
    allowed = _SCHEMES[instance.kind]
    if not separator or not rest or scheme.lower() not in allowed:
        # The URL is not quoted: it may hold a secret.
        raise ValueError(f"url must begin with {':// or '.join(allowed)}:// and name a host")
    if any(ord(character) <= 0x20 or ord(character) == 0x7F for character in value):
        raise ValueError("url must not contain spaces or control characters")
    try:
        parts = urlsplit(value)
        if not parts.hostname:
            raise ValueError("it names no host")
        parts.port  # noqa: B018 - the port is parsed, and checked, only when it is read
    except ValueError as exc:
        raise ValueError(f"url is not a valid URL: {exc}") from None


def _as_dict(value: Mapping[str, str] | None) -> Mapping[str, str]:
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else value


def _check_headers(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    # The values may be secrets, so no message shows them.
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise TypeError("headers must map strings to strings")
    for name, content in value.items():
        # The characters of a token (RFC 9110, section 5.6.2). A line break would let one header smuggle in another.
        if not name.isascii() or not all(each.isalnum() or each in "!#$%&'*+-.^_`|~" for each in name) or not name:
            raise ValueError(f"headers has a name that a header can't have (RFC 9110, section 5.1): {name!r}")
        if not _FIELD_VALUE.fullmatch(content):
            text = "a value must be visible ASCII, without spaces around it or line breaks"
            raise ValueError(f"headers has a value for {name!r} that can't be sent: {text}")


@attrs.frozen
class HttpServerParameters:
    """How to reach a server that has a URL.

    Attributes:
        url: Its URL.
        headers: Sent with each request, or with the handshake of a WebSocket.
        kind: ``"http"`` for Streamable HTTP, ``"sse"`` for HTTP+SSE, ``"ws"`` for WebSocket.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is invalid.
    """

    # First, because the check of `url` needs it and attrs sets fields in order.
    kind: HttpKind = attrs.field(
        default="http", kw_only=True, validator=validator(check_choice, choices=get_args(HttpKind))
    )
    url: str = attrs.field(validator=_check_url)
    headers: Mapping[str, str] = attrs.field(
        default=None, converter=_as_dict, kw_only=True, validator=_check_headers, repr=False
    )
