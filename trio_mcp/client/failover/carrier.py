"""One open link of a list of ways, and what is under way on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import trio

from trio_mcp.jsonrpc.messages import ErrorResponse, Request, RequestId, Response, SessionMessage, TransportFailure
from trio_mcp.link import Link
from trio_mcp.stopwatch import TimeLimit

__all__ = ["Answer", "Carrier"]

Answer = Response | ErrorResponse | TransportFailure
"""What may come for a request of our own."""


class Carrier:
    """One open link. Its state is changed by the `Router` and by the task of its way, and by nothing that waits.

    Args:
        place: The place of its way in the list; 0 is the best.
        name: The name of its way.
        link: The link.
        scope: Surrounds the link; cancelled when the link is lost.

    Attributes:
        in_flight: The session's requests that it has been given, by id, until they are answered or cancelled.
        own: Our own requests that wait for their answer, and those answers; the session sees neither.
        received: How many messages have come that are valid.
        garbage: How many of the last messages in a row were none.
        in_doubt: Requests that have been tried here too often, by id, with their last failure: they fail if the link
            turns out to work, and are repeated elsewhere if it does not.
        opened_here: Whether we have opened the session here ourselves, and the server has been told that it is open.
        lost: Why it can't be used any more; None while it can.
        left: Why it is not to carry any more, although it still works; None if there is no such reason.
        blamed: The failure of a call that was the last to fail on it since it gave a sign of life; None if none did.
        failed: How often in a row calls have failed on it, and it has given a sign of life after that.
        failing: Whether it was left because of that.
        suspected: Whether an exchange failed in a way that puts the whole link in doubt.
        flushing: Whether requests are being repeated on it; nothing else may be sent meanwhile.
        pause: The wait that its task is in, to be cancelled when something has changed; None if it is in none.
        half_sent: The request that is being handed over at this moment.
    """

    def __init__(self, place: int, name: str, link: Link, scope: TimeLimit) -> None:
        self.place = place
        self.name = name
        self.link = link
        self.in_flight: dict[RequestId, SessionMessage] = {}
        self.own: dict[RequestId, Answer | None] = {}
        self.received = self.garbage = 0
        self.in_doubt: dict[RequestId, tuple[SessionMessage, SessionMessage]] = {}
        self.opened_here = False
        self.lost: Exception | None = None
        self.left: Exception | None = None
        self.blamed: Exception | None = None
        self.failed = 0
        self.failing = False
        self.suspected = False
        self.flushing = False
        self._scope = scope
        self.pause: TimeLimit | None = None
        self.half_sent: RequestId | None = None
        self._sending: trio.CancelScope | None = None
        self._turn = trio.Lock()
        # Many channels can take or give a message without waiting; a channel of another class need not.
        self.send_nowait: Callable[[SessionMessage], None] | None = getattr(link.write, "send_nowait", None)
        self.receive_nowait: Callable[[], SessionMessage] | None = getattr(link.read, "receive_nowait", None)
        # A link is given up in one step, without waiting, so only a `close` that is a plain function is of use.
        close_read = getattr(link.read, "close", None)
        self.close_read: Callable[[], object] | None = None if inspect.iscoroutinefunction(close_read) else close_read

    async def send(self, item: SessionMessage, queue: dict[RequestId, SessionMessage] | None = None) -> bool:
        """Hand a message to the link; return False if the link was lost meanwhile, and did not take it.

        Args:
            item: The message.
            queue: Where the request waits until it is sent, and to where it returns if it is not; if it has left the
                queue in the meantime, it is not sent.

        Raises:
            trio.BrokenResourceError, trio.ClosedResourceError: If the link takes no more.
        """
        # One at a time, as some channels allow only one sender.
        async with self._turn:
            # It may have been lost while this task waited for its turn.
            if self.lost is not None:
                return False
            request_id = item.message.id if isinstance(item.message, Request) else None
            # What is in flight is repeated elsewhere, or its call fails; our own requests end with their link.
            if request_id in self.own:
                request_id = None
            # The session may have cancelled it meanwhile. Nothing waits between here and the entry in `in_flight`, so a
            # cancellation always finds the request in one of the two.
            if queue is not None and request_id is not None and queue.pop(request_id, None) is None:
                return True
            sent = False
            if request_id is not None:
                # Before it leaves: the response may come before this task runs again.
                self.in_flight[request_id] = item
                self.half_sent = request_id
            try:
                # A scope of its own: the sender may be a task of the session, which lies outside the scope of the link.
                with trio.CancelScope() as self._sending:
                    await self.link.write.send(item)
                    # Not read off `cancel_called`, which is also true if the link took the message just before.
                    sent = True
            finally:
                self._sending = self.half_sent = None
                # Also if the caller is cancelled: what has not left must not look as if the server might have done it.
                if not sent and request_id is not None:
                    self.in_flight.pop(request_id, None)
                    if queue is not None:
                        queue[request_id] = item
            return sent

    def give_up(self, cause: Exception) -> None:
        """Record that it is lost, and end every wait on it."""
        self.lost = cause
        # Responses to our own requests may still be read from a lost link; without an entry, they can't pass for a
        # proof that it works, and make the requests in doubt fail.
        self.own.clear()
        self._scope.cancel("this way to the server has failed")
        if self._sending is not None:
            self._sending.cancel()

    def wake(self) -> None:
        """End the wait that its task is in: something has changed."""
        if self.pause is not None:
            self.pause.cancel()
