"""The CORS headers, which tell browsers which pages may call the server; sent only if the setting ``cors`` is on.

https://fetch.spec.whatwg.org/#http-cors
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trio_mcp.http.headers import LAST_EVENT_ID, METHOD, NAME, PROTOCOL_VERSION, SESSION_ID

if TYPE_CHECKING:
    from trio_mcp.http.server.asgi import HttpRequest

__all__ = ["cors_fields", "is_preflight", "preflight_fields"]

# Request headers that a page may set. Some are on the Fetch standard's safelist, but only with simple values, so they
# are listed as well. Authorization has to be named, because a wildcard never covers it.
ALLOWED: Final = (
    "Accept",
    "Authorization",
    "Content-Type",
    "DPoP",
    LAST_EVENT_ID,
    METHOD,
    NAME,
    PROTOCOL_VERSION,
    SESSION_ID,
    "Traceparent",
    "Tracestate",
)
# Response headers that a page's script may read, in addition to those that the Fetch standard always exposes.
EXPOSED: Final = (SESSION_ID, PROTOCOL_VERSION, "DPoP-Nonce", "Retry-After", "WWW-Authenticate")
PARAMETER: Final = "mcp-param-"
"""The prefix of headers made from tool arguments: tools choose the names, so the list in a preflight is echoed."""
MAX_PARAMETERS = 50
"""The maximum number of ``Mcp-Param-*`` names that the response to a preflight repeats (arbitrary)."""


def is_preflight(request: HttpRequest) -> bool:
    """Return whether a request is a CORS preflight, with which a browser asks before it sends the real request."""
    headers = request.headers
    return (
        request.method == "OPTIONS"
        and headers.get("Origin") is not None
        and headers.get("Access-Control-Request-Method") is not None
    )


def cors_fields(origin: str) -> list[tuple[str, str]]:
    """Return the headers that every response to an allowed origin carries."""
    # The origin, which the caller has checked, is named instead of "*", because not every origin is allowed.
    return [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", ", ".join(EXPOSED)),
        ("Vary", "Origin"),  # a cache must not serve one origin's response to another
    ]


def preflight_fields(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the additional headers of the response to a preflight."""
    # The names of Mcp-Param-* headers come from the tools' schemas, so they can't be listed in advance: those that the
    # browser asks for are allowed.
    wanted = (request.headers.get("Access-Control-Request-Headers") or "").split(",")
    parameters = [name.strip() for name in wanted if name.strip().lower().startswith(PARAMETER)]
    fields = [
        ("Access-Control-Allow-Methods", "GET, POST, DELETE"),
        ("Access-Control-Allow-Headers", ", ".join([*ALLOWED, *parameters[:MAX_PARAMETERS]])),
        ("Access-Control-Max-Age", "600"),  # in seconds; an arbitrary choice
    ]
    # Chromium sends Access-Control-Request-Private-Network if a public page calls a server in a private network
    # (Private Network Access draft).
    if request.headers.get("Access-Control-Request-Private-Network") == "true":
        fields.append(("Access-Control-Allow-Private-Network", "true"))
    return fields
