"""Keeps the calls that an upstream has not responded to, to find the client that a question or notification is for."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from trio_mcp.errors import HttpError
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import (
    RELATED,
    Batch,
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
)
from trio_mcp.server.context import ServedContext
from trio_mcp.session.middleware import OutgoingCall

__all__ = ["CALL", "Heard", "UnansweredCalls"]

Heard = Callable[["UnansweredCalls", Notification, RequestId | None], None]

# The limit is an arbitrary choice: each call takes an id and a weak reference, for as long as the connection lasts.
MAX_GIVEN_UP: Final = 1000
"""The maximum number of given-up calls that are remembered; of older calls, only the client is remembered, and only if
all of them belong to the same one."""
CALL: Final = "call"
"""The metadata key for the context of the client's call that a question is about; the value is None if unknown."""


class UnansweredCalls:
    """Keeps the calls that an upstream has not responded to, including those given up, and the client of each.

    Args:
        heard: Called with this object, a notification, and the related request if the transport knows it. This happens
            on arrival, so that the notifications of a call are passed on before its result.
    """

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._waited_for: dict[RequestId, ServedContext[Any]] = {}  # in the order in which the calls were sent
        # The references to clients are weak, because most clients leave long before the connection to the upstream
        # ends.
        self._given_up: dict[RequestId, Callable[[], object]] = {}
        self._older: Callable[[], object] | None = None  # the client of the calls beyond `MAX_GIVEN_UP`

    def entered(self, context: ServedContext[Any], call: OutgoingCall) -> _Entered:
        """Track the request of a client's call while the block runs; yield a function to be called with the request."""
        return _Entered(self, context, call)

    def wait_for(self, request_id: RequestId, context: ServedContext[Any]) -> None:
        """Keep a call whose request is about to be sent."""
        self._waited_for[request_id] = context

    def ended(self, outgoing: OutgoingRequest, context: ServedContext[Any], refused: bool) -> None:
        """Forget a call, or keep it as given up if the upstream may still be working on it."""
        unanswered = self._waited_for.pop(outgoing.request.id, None) is not None
        # A question can't be about a request that was never sent or that the server refused.
        if unanswered and outgoing.sent and not refused:
            self._give_up(outgoing.request.id, weakref.ref(context.connection))

    def _give_up(self, request_id: RequestId, client: Callable[[], object]) -> None:
        # The upstream may still be working on the call, ask a question about it or send notifications for it. Few
        # upstreams ever respond to a cancelled call, and their silence proves nothing, so the call is remembered until
        # the connection ends.
        self._given_up[request_id] = client
        if len(self._given_up) > MAX_GIVEN_UP:
            # Only the id of the oldest call is dropped. Its client is remembered, because a question may still be about
            # the call.
            oldest = self._given_up.pop(next(iter(self._given_up)))
            same = self._older is None or self._older() is oldest()
            self._older = oldest if same else _nobody

    def arrived(self, message: Incoming, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Examine a message as it arrives from the upstream; return its metadata, with the call that it concerns."""
        related: RequestId | None = metadata.get(RELATED)
        # The call that a question is about is looked up on arrival, because the question's handler may run after the
        # call has ended. A batch may contain requests, and has one set of metadata for all of them.
        if isinstance(message, (Request, Batch)):
            metadata = {**metadata, CALL: self.meant(related)}
        elif type(message) is Response:  # nearly every message is one
            self._answered(message.id)
            return metadata
        items: Sequence[Incoming] = message.items if isinstance(message, Batch) else (message,)
        for each in items:
            if isinstance(each, Notification):
                self._heard(self, each, related)
            # A malformed response settles its call like any other response.
            elif isinstance(each, (Response, ErrorResponse)) or (
                isinstance(each, Malformed) and not each.expects_answer
            ):
                self._answered(each.id)
        return metadata

    def _answered(self, request_id: RequestId | None) -> None:
        """Record that the upstream has responded to a request, in time or too late."""
        if request_id is not None:
            self._waited_for.pop(request_id, None)
            self._given_up.pop(request_id, None)

    def all_of(self, client: object) -> bool:
        """Return whether all unanswered calls belong to this client."""
        return (
            all(each.connection is client for each in self._waited_for.values())
            and all(each() is client for each in self._given_up.values())
            and (self._older is None or self._older() is client)
        )

    def meant(self, related: RequestId | None) -> ServedContext[Any] | None:
        """Return the call that a message from the upstream belongs to, if its client still waits for the call.

        Args:
            related: The request that the message came with, if the transport knows it. Otherwise the message belongs to
                the last call, provided that all calls belong to one client.
        """
        if related is not None:
            return self._waited_for.get(related)
        # Choosing the last call is a guess, so it is allowed only if all pending calls belong to the same client.
        last = next(reversed(self._waited_for.values()), None)
        return last if last is not None and self.all_of(last.connection) else None


class _Entered:
    """The block of a call, for as long as its client waits for it."""

    __slots__ = ("_call", "_calls", "_context", "_outgoing")

    def __init__(self, calls: UnansweredCalls, context: ServedContext[Any], call: OutgoingCall) -> None:
        self._calls = calls
        self._context = context
        self._call = call
        self._outgoing: OutgoingRequest | None = None

    def __enter__(self) -> Callable[[OutgoingRequest], None]:
        return self._opened

    def _opened(self, outgoing: OutgoingRequest) -> None:
        self._outgoing = outgoing
        self._call.request_id = outgoing.request.id
        self._calls.wait_for(outgoing.request.id, self._context)

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: object) -> None:
        if self._outgoing is not None:
            # A gateway's error does not say whether the server got the request.
            refused = isinstance(exc, HttpError) and exc.trouble != "gateway"
            self._calls.ended(self._outgoing, self._context, refused)


def _nobody() -> None:
    """Represent the client of older calls that belong to several clients: the result, None, equals no client."""
