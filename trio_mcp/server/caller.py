"""Tokens for other services, on behalf of the caller of a request whose own token a server has accepted."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import shown
from trio_mcp.session.handlers import incoming_of

if TYPE_CHECKING:
    from trio_mcp.http.server.protection import Caller
    from trio_mcp.session.handlers import RequestContext

__all__ = ["NoCallerToken", "token_for"]


class NoCallerToken(AuthorizationError):
    """No token for another service can be had, as there is no token of a caller that could be exchanged.

    Attributes:
        audience: The service.
        problem: Why there is no such token.
    """

    def __init__(self, audience: str, problem: str) -> None:
        super().__init__("token exchange", problem)
        self.args = (audience, problem)  # `copy.copy` calls this constructor with these arguments
        self.audience = audience

    def _text(self) -> str:
        return f"no token for {shown(self.audience)} on behalf of a caller: {self.problem}"


async def token_for(context: RequestContext, audience: str, scopes: Collection[str] | None) -> str:
    """Return a token for another service: see `Context.token_for`."""
    await trio.lowlevel.checkpoint()
    # The gate has noted the caller of this very request. `context.principal` does not count: the program may have
    # replaced it.
    caller: Caller | None = context.transport_metadata.get("caller")
    if caller is None:
        raise NoCallerToken(audience, _why_none(context))
    # A token is kept for no longer than its request: work that goes on afterwards would act for someone who has left.
    incoming = incoming_of(context)
    if not incoming.open:
        raise NoCallerToken(
            audience, f"the request {incoming.request.method!r} is over, and with it the caller's token"
        )
    return await caller.token_for(audience, scopes)


def _why_none(context: Any) -> str:
    if "principal" in context.transport_metadata:
        return "the server exchanges none: pass exchange=TokenExchange(…) to its ResourceServer"
    if "headers" in context.transport_metadata:
        return "the server asks for no tokens: serve it with auth=ResourceServer(…)"
    return "the request did not come over HTTP, where callers have tokens"
