"""Whose the calls are that an upstream has not answered, and so whom a question or a notification is for."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from trio_mcp.server.context import Context

__all__ = ["CALL", "Heard", "UnansweredCalls"]

Heard = Callable[["UnansweredCalls", Notification, RequestId | None], None]

MAX_GIVEN_UP: Final = 1000
"""Calls given up whose answers are still looked for; of older ones it is known whose they were, not which."""
CALL: Final = "call"
"""In the metadata of a question: the context of the client's call that it is about, or None."""


class UnansweredCalls:
    """The calls that an upstream has not answered, and whose each is.

    One that its client gave up is among them: the upstream may go on with it, ask about it and speak of it. Few
    upstreams ever answer such a call, and from outside silence says nothing. So it stays until the connection ends.

    Args:
        heard: Called where a notification arrives, so that what belongs to a call comes before its result; with this,
            the notification, and the request that it came with, where the transport tells.
    """

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._waited_for: dict[RequestId, Context[Any]] = {}  # in order
        # The clients are held weakly: most of them leave long before the connection to the upstream does.
        self._given_up: dict[RequestId, Callable[[], object]] = {}
        self._older: Callable[[], object] | None = None

    @contextlib.contextmanager
    def entered(self, context: Context[Any]) -> Iterator[Callable[[OutgoingRequest], None]]:
        """Enter the request that a client's call makes. The block is the call; it is given what opens the request."""
        entered: OutgoingRequest | None = None

        def opened(outgoing: OutgoingRequest) -> None:
            nonlocal entered
            entered = outgoing
            self._waited_for[outgoing.request.id] = context

        refused = False
        try:
            yield opened
        except HttpError as exc:
            refused = exc.trouble != "gateway"  # which leaves open how far the request came
            raise
        finally:
            if entered is not None:
                unanswered = self._waited_for.pop(entered.request.id, None) is not None
                if unanswered and entered.sent and not refused:
                    self._give_up(entered.request.id, weakref.ref(context.connection))

    def _give_up(self, request_id: RequestId, client: Callable[[], object]) -> None:
        self._given_up[request_id] = client
        if len(self._given_up) > MAX_GIVEN_UP:
            oldest = self._given_up.pop(next(iter(self._given_up)))
            same = self._older is None or self._older() is oldest()
            self._older = oldest if same else _nobody

    def arrived(self, message: Incoming, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Look at what the upstream says, in the order of arrival, and give what is known of it.

        Whose a question is, is seen here: its handler may run when the call has ended.
        """
        related: RequestId | None = metadata.get(RELATED)
        if isinstance(message, (Request, Batch)):
            metadata = {**metadata, CALL: self.meant(related)}
        items: Sequence[Incoming] = message.items if isinstance(message, Batch) else (message,)
        for each in items:
            if isinstance(each, Notification):
                self._heard(self, each, related)
            elif isinstance(each, (Response, ErrorResponse)) or (
                isinstance(each, Malformed) and not each.expects_answer
            ):
                self._answered(each.id)
        return metadata

    def _answered(self, request_id: RequestId | None) -> None:
        """The upstream has answered a request, in time or not."""
        if request_id is not None:
            self._waited_for.pop(request_id, None)
            self._given_up.pop(request_id, None)

    def all_of(self, client: object) -> bool:
        """Whether none of them is another client's."""
        return (
            all(each.connection is client for each in self._waited_for.values())
            and all(each() is client for each in self._given_up.values())
            and (self._older is None or self._older() is client)
        )

    def meant(self, related: RequestId | None) -> Context[Any] | None:
        """The call that something of the upstream's belongs to, if its client still waits for it.

        Args:
            related: The request that it came with, where the transport tells. Else it belongs to the last call, if all
                of them are one client's.
        """
        if related is not None:
            return self._waited_for.get(related)
        last = next(reversed(self._waited_for.values()), None)
        return last if last is not None and self.all_of(last.connection) else None


def _nobody() -> None:
    """The client of older calls, if they are several clients': nobody that is there."""
