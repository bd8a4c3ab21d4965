"""Chooses the wire that suits each kind of target of a `Client`."""

from __future__ import annotations

import ssl

import attrs

from trio_mcp.client.targets import SCHEMES, Servable, SingleTarget
from trio_mcp.conformance.credentials import Credentials
from trio_mcp.conformance.wires.http import http_wire
from trio_mcp.conformance.wires.lines import memory_wire, process_wire, socket_wire
from trio_mcp.conformance.wires.links import link_wire
from trio_mcp.conformance.wires.websocket import websocket_wire
from trio_mcp.conformance.wires.wire import OpenWire
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.stdio.parameters import StdioServerParameters

__all__ = ["WireTarget", "open_wire_for"]


@attrs.frozen
class WireTarget:
    """A target that supplies its own wire, for example one to an HTTP server in memory.

    Attributes:
        name: The target's name.
        open_wire: Opens a wire to the target.
    """

    name: str
    open_wire: OpenWire


def open_wire_for(
    target: SingleTarget | WireTarget,
    *,
    ssl_context: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
) -> OpenWire:
    """Return a function that opens wires to a target.

    Args:
        target: A single target of a `Client`, without alternatives for failover, or a `WireTarget`.
        ssl_context: How to check the server's certificate.
        credentials: The tokens to send; None for no token but one in the headers.

    Raises:
        TypeError: If ``target`` is not a target.
        ValueError: If ``target`` is a URL with a scheme for which there is no transport, or if there are tokens for a
            target that is not reached over Streamable HTTP, or whose headers have one already.
    """
    if credentials is not None:
        return http_wire(_protected(target), ssl_context=ssl_context, credentials=credentials)
    if isinstance(target, WireTarget):
        return target.open_wire
    if isinstance(target, StdioServerParameters):
        return process_wire(target)
    if isinstance(target, HttpServerParameters):
        make = websocket_wire if target.kind == "ws" else http_wire
        return make(target, ssl_context=ssl_context)
    if isinstance(target, str):
        return _by_url(target, ssl_context)
    # This test comes before the test for callables, because an object with `serve` may also be callable.
    if isinstance(target, Servable):
        return memory_wire(target)
    if callable(target):
        return link_wire(target)
    raise TypeError(
        "a target must be a URL, HttpServerParameters, StdioServerParameters, a Server, or a callable that returns an "
        f"async context manager yielding a Link; got {type(target).__name__}"
    )


def _protected(target: SingleTarget | WireTarget) -> HttpServerParameters:
    if isinstance(target, str) and target.partition(":")[0].lower() in ("http", "https"):
        return HttpServerParameters(target)
    if not isinstance(target, HttpServerParameters) or target.kind != "http":
        raise ValueError("tokens are for a server at an http: or https: URL: authorization is defined there only")
    if any(name.lower() == "authorization" for name in target.headers):
        raise ValueError("the target's headers have an Authorization already: leave it out, or the tokens")
    return target


def _by_url(url: str, ssl_context: ssl.SSLContext | None) -> OpenWire:
    scheme, separator, _ = url.partition(":")
    # Schemes are case-insensitive (RFC 3986, section 3.1). The scheme ends at the first colon, as `unix:/path` has no
    # `//`.
    match scheme.lower():
        case "http" | "https":
            return http_wire(HttpServerParameters(url), ssl_context=ssl_context)
        case "ws" | "wss":
            return websocket_wire(HttpServerParameters(url, kind="ws"), ssl_context=ssl_context)
        case "tcp" | "tls" | "unix" if separator:
            return socket_wire(url, ssl_context=ssl_context)
    raise ValueError(f"{url!r} is not the URL of a server: it must begin with one of {', '.join(SCHEMES)}")
