"""The gate of a protected endpoint, which checks the tokens of requests."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs
import trio

from trio_mcp.http.headers import METHOD, NAME, NAMED_BY, PROTOCOL_VERSION, Headers, decode_value
from trio_mcp.http.rules.statuses import Accept, Refusal
from trio_mcp.http.server.asgi import HttpAnswer, HttpRequest
from trio_mcp.http.server.host import HostedServer
from trio_mcp.http.server.protection import Guard, Identified, Protection
from trio_mcp.jsonrpc.messages import Batch, Incoming, Request
from trio_mcp.types.versions import LEGACY_REVISIONS, Era

__all__ = ["CREDENTIALS", "Gate", "end_of"]

CREDENTIALS: Final = ("authorization", "cookie", "dpop")
"""The header fields that are hidden from handlers, which may pass on or log whatever they see."""

LEEWAY: Final = 30.0
"""Seconds for which a token is accepted, and its streams continue, after its expiry (arbitrary): clocks differ."""

NO_SCOPES: Final[frozenset[str]] = frozenset()


class Gate:
    """A gate that admits requests to an endpoint by their tokens.

    Args:
        protection: The object that was passed as ``auth=``.
        guard: Checks the tokens.
        served: The server.
    """

    def __init__(self, protection: Protection, guard: Guard, served: HostedServer) -> None:
        self._identify = guard.identify
        self._permit = protection.permit
        self._clock = protection.clock
        self._served = served

    async def admit(self, request: HttpRequest, answer: HttpAnswer | None = None) -> Refusal | None:
        """Check the token of a request, and its scopes if the header names the operation; return the refusal, if any.

        The credentials of an admitted request are removed from its header fields, and its principal is set.
        """
        # This code runs for every request, so it has to be fast.
        outcome = await self._identify(request)
        if type(outcome) is Refusal:
            return outcome
        assert isinstance(outcome, Identified)
        principal, headers = outcome.principal, request.headers
        headers.drop(CREDENTIALS)
        request.principal, request.owner, request.clock = principal, principal.identity, self._clock
        request.metadata = {"headers": headers, "principal": principal}
        if outcome.caller is not None:
            request.metadata["caller"] = outcome.caller
        # The fields may contain, for example, a new nonce for DPoP.
        if outcome.fields and answer is not None:
            answer.fields += outcome.fields
        needed = NO_SCOPES
        # Only a POST has a message; messages on a WebSocket are checked one by one.
        if request.method == "POST":
            if self._served.scoped:
                named = self._named(headers)
                if named is None:  # the needed scopes depend on the message: see `judge`
                    return None
                needed = named
            request.permitted = True
        return self._permit(principal, needed)

    def _named(self, headers: Headers) -> frozenset[str] | None:
        """Return the scopes needed for the operation that the header names, or None if it names none."""
        # These headers can be trusted only if the message claims to be modern, because then the rules compare them with
        # the body. The headers of a legacy message could name an open operation, and its body a protected one. A field
        # that was sent twice has a comma in its value, and so names no known operation.
        if (headers.get(PROTOCOL_VERSION) or LEGACY_REVISIONS[0]) in LEGACY_REVISIONS:
            return None
        method, given = headers.get(METHOD) or "", headers.get(NAME)
        parameter = NAMED_BY.get(method)
        if parameter is None or given is None:
            return None
        try:
            # A value that can't be decoded names no operation, and the rules refuse it once the body has been read.
            return self._served.needed_scopes(method, {parameter: decode_value(given)})
        except ValueError:
            return None

    def judge(self, request: HttpRequest, accepted: Accept) -> Refusal | None:
        """Check the scopes of an admitted POST, unless its header was enough for that; return the refusal, if any."""
        # `accepted.era` is the era of the message. Unless it is modern, no rule has compared the body with the header.
        if request.permitted and (accepted.era is Era.MODERN or not self._served.scoped):
            return None
        return self.judge_message(request, accepted.message)

    def judge_message(self, request: HttpRequest, message: Incoming) -> Refusal | None:
        """Check the scopes of an admitted request, as its message requires them; return the refusal, if any."""
        items: Any = message.items if type(message) is Batch else (message,)
        # The requests of a batch are checked together, so that one challenge names every scope that the batch needs.
        needed: set[str] = set()
        for item in items:
            if type(item) is Request:
                needed |= self._served.needed_scopes(item.method, item.params or {})
        assert request.principal is not None
        refusal = self._permit(request.principal, needed)
        # The refusal of a batch names no id, because a batch has none.
        if refusal is not None and type(message) is Request:
            return attrs.evolve(refusal, error=attrs.evolve(refusal.error, id=message.id))
        return refusal


def end_of(request: HttpRequest) -> float:
    """Return the time, by Trio's clock, at which a stream that the request opens must end; infinity if never."""
    if request.principal is None or request.principal.expires_at is None:
        return math.inf
    # A token expires by the clock with which it was checked, but a stream can be ended only by Trio's clock.
    return trio.current_time() + max(request.principal.expires_at + LEEWAY - request.clock(), 0)
