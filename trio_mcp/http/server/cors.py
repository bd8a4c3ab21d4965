"""What browsers are told of who may call, where `HttpOptions.cors` says so (https://fetch.spec.whatwg.org/#http-cors)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trio_mcp.http.headers import LAST_EVENT_ID, METHOD, NAME, PROTOCOL_VERSION, SESSION_ID

if TYPE_CHECKING:
    from trio_mcp.http.server.asgi import HttpRequest

__all__ = ["cors_fields", "is_preflight", "preflight_fields"]

ALLOWED: Final = (
    "Accept",
    "Authorization",
    "Content-Type",
    LAST_EVENT_ID,
    METHOD,
    NAME,
    PROTOCOL_VERSION,
    SESSION_ID,
    "Traceparent",
    "Tracestate",
)
EXPOSED: Final = (SESSION_ID, PROTOCOL_VERSION, "Retry-After", "WWW-Authenticate")
PARAMETER: Final = "mcp-param-"
MAX_PARAMETERS = 50


def is_preflight(request: HttpRequest) -> bool:
    """Whether a browser asks, before it sends the request itself."""
    headers = request.headers
    return (
        request.method == "OPTIONS"
        and headers.get("Origin") is not None
        and headers.get("Access-Control-Request-Method") is not None
    )


def cors_fields(origin: str) -> list[tuple[str, str]]:
    """What goes with every answer to an allowed origin."""
    return [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", ", ".join(EXPOSED)),
        ("Vary", "Origin"),
    ]


def preflight_fields(request: HttpRequest) -> list[tuple[str, str]]:
    """What goes with the answer to a preflight besides."""
    wanted = (request.headers.get("Access-Control-Request-Headers") or "").split(",")
    parameters = [name.strip() for name in wanted if name.strip().lower().startswith(PARAMETER)]
    fields = [
        ("Access-Control-Allow-Methods", "GET, POST, DELETE"),
        ("Access-Control-Allow-Headers", ", ".join([*ALLOWED, *parameters[:MAX_PARAMETERS]])),
        ("Access-Control-Max-Age", "600"),
    ]
    if request.headers.get("Access-Control-Request-Private-Network") == "true":
        fields.append(("Access-Control-Allow-Private-Network", "true"))
    return fields
