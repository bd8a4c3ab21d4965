"""The parameters for connecting to a server that has a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

import attrs

from trio_mcp._checks import check_choice, check_headers, check_url, validator
from trio_mcp.http.client.auth import Auth, check_auth

__all__ = ["HttpKind", "HttpServerParameters"]

HttpKind: TypeAlias = Literal["http", "sse", "ws"]

_SCHEMES: dict[str, tuple[str, ...]] = {"http": ("http", "https"), "sse": ("http", "https"), "ws": ("ws", "wss")}


def _check_url(instance: HttpServerParameters, attribute: attrs.Attribute[Any], value: Any) -> None:
    check_url(value, _SCHEMES[instance.kind])


def _as_dict(value: Mapping[str, str] | None) -> Mapping[str, str]:
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else value


def _check_headers(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    check_headers(value)


def _check_auth(instance: HttpServerParameters, attribute: attrs.Attribute[Any], value: Any) -> None:
    check_auth(value)
    if value is None:
        return
    # If a request had two credentials, one of them would be dropped silently.
    if any(name.lower() == "authorization" for name in instance.headers):
        raise ValueError("headers contains 'Authorization', which auth= sends as well; leave out one of the two")
    if "@" in urlsplit(instance.url).netloc:
        raise ValueError(
            "url contains a user name, which is sent as 'Authorization', like auth=; leave out one of the two"
        )


@attrs.frozen
class HttpServerParameters:
    """The parameters for connecting to a server that has a URL.

    Attributes:
        url: The server's URL.
        headers: Sent with each request, or with the handshake of a WebSocket.
        auth: Signs in, and authorizes each request: see `trio_mcp.auth`.
        kind: ``"http"`` for Streamable HTTP, ``"sse"`` for HTTP+SSE, ``"ws"`` for WebSocket.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is invalid.
    """

    # `kind` comes first, because the check of `url` needs it and attrs sets fields in order.
    kind: HttpKind = attrs.field(
        default="http", kw_only=True, validator=validator(check_choice, choices=get_args(HttpKind))
    )
    url: str = attrs.field(validator=_check_url)
    headers: Mapping[str, str] = attrs.field(
        default=None, converter=_as_dict, kw_only=True, validator=_check_headers, repr=False
    )
    auth: Auth | None = attrs.field(default=None, kw_only=True, validator=_check_auth, repr=False)
