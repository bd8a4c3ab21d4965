"""The gate before a protected endpoint: every request shows its token here, but for those that need none."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import trio

from trio_mcp.http.headers import METHOD, NAME, NAMED_BY, PROTOCOL_VERSION, decode_value
from trio_mcp.http.rules.statuses import Accept, Refusal
from trio_mcp.http.server.asgi import HttpRequest
from trio_mcp.http.server.protection import Guard, Identified, Protection
from trio_mcp.jsonrpc.messages import Batch, Incoming, Request
from trio_mcp.principal import Principal
from trio_mcp.types.versions import LEGACY_REVISIONS, Era

__all__ = ["CREDENTIALS", "Gate", "Needed", "end_of"]

CREDENTIALS: Final = ("authorization", "cookie", "dpop")
"""The fields that handlers must not see: what they know could be passed on, or be written to a log."""

LEEWAY: Final = 30.0
"""Seconds that a stream outlives its token (chosen): clocks differ, and a client that comes back with a token in its
last seconds must not be sent away at once, again and again."""

Needed: TypeAlias = Callable[[str, Mapping[str, Any]], frozenset[str]]
"""``(method, params) -> scopes``: what a request needs."""


class Gate:
    """Admits requests to an endpoint.

    Args:
        protection: What was passed as ``auth=``.
        guard: What judges the tokens.
        needed: Returns the scopes that an operation needs.
    """

    def __init__(self, protection: Protection, guard: Guard, needed: Needed) -> None:
        self._guard = guard
        self._permit = protection.permit
        self._needed = needed

    async def admit(self, request: HttpRequest) -> Refusal | Identified:
        """Judge the token of a request, and its scopes if the head names the operation.

        An admitted request has lost its credentials, and knows its principal.
        """
        outcome = await self._guard.identify(request)
        if isinstance(outcome, Refusal):
            return outcome
        principal, headers = outcome.principal, request.headers
        headers.drop(CREDENTIALS)
        request.principal, request.owner = principal, principal.identity
        request.metadata = {"headers": headers, "principal": principal}
        # The message of any other POST is for `judge`.
        if request.method != "POST":
            return self._permit(principal, ()) or outcome
        if (needed := self._named(request)) is not None:
            request.permitted = True
            return self._permit(principal, needed) or outcome
        return outcome

    def _named(self, request: HttpRequest) -> frozenset[str] | None:
        """Return the scopes of the operation that the head names; None if it names none."""
        headers = request.headers
        # Of a message that claims to be modern, the rules compare these headers with the body. A field that was sent
        # twice has a comma, and so names nothing that is known.
        if (headers.get(PROTOCOL_VERSION) or LEGACY_REVISIONS[0]) in LEGACY_REVISIONS:
            return None
        method, given = headers.get(METHOD) or "", headers.get(NAME)
        parameter = NAMED_BY.get(method)
        if parameter is None or given is None:
            return None
        try:
            return self._needed(method, {parameter: decode_value(given)})
        except ValueError:
            return None

    def judge(self, request: HttpRequest, accepted: Accept) -> Refusal | None:
        """Judge the scopes of an admitted POST, unless its head has named the operation."""
        if request.permitted and accepted.era is Era.MODERN:
            return None
        return self.judge_message(request, accepted.message)

    def judge_message(self, request: HttpRequest, message: Incoming) -> Refusal | None:
        """Judge the scopes of an admitted request by its message; those of a batch are judged together."""
        items: Any = message.items if type(message) is Batch else (message,)
        needed: set[str] = set()
        for item in items:
            if type(item) is Request:
                needed |= self._needed(item.method, item.params or {})
        assert request.principal is not None
        refusal = self._permit(request.principal, needed)
        if refusal is not None and type(message) is Request:
            return attrs.evolve(refusal, error=attrs.evolve(refusal.error, id=message.id))
        return refusal


def end_of(principal: Principal | None) -> float:
    """Return when, by Trio's clock, a stream ends that a principal has opened; infinity if never."""
    if principal is None or principal.expires_at is None:
        return math.inf
    return trio.current_time() + max(principal.expires_at - time.time(), 0) + LEEWAY
