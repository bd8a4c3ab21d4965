"""The subscriptions of a client: what each has heard and not yet told, and which notice is for which of them.

Nothing here waits but the iterator: the session's reader hands each notice over and goes on (rule 1 of docs/design).
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator

import trio
from pydantic import ValidationError

from trio_mcp.client.events import LIST_CHANGES, UPDATED, ChangeEvent, ResourceUpdated, events_of, read_change
from trio_mcp.convert import another, brief
from trio_mcp.errors import LocalProtocolError, RemoteProtocolError
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import Notification, RequestId
from trio_mcp.types import meta
from trio_mcp.types.subscriptions import SubscriptionFilter, SubscriptionsAcknowledgedNotificationParams

__all__ = ["NOTICES", "Subscription", "Subscriptions"]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
NOTICES = frozenset({*LIST_CHANGES, UPDATED, ACKNOWLEDGED})
"""The notifications that `Subscriptions.note` takes."""

MAX_LISTENS = 100
# What a server may make us hold for resources below one that was asked for. Beyond that they are told as that one.
MAX_PENDING = 1000
LONGEST_URI = 8192


class Subscription(AsyncIterator[ChangeEvent]):
    """What `Client.listen` gives: ``async for event in events``.

    An event that has not been taken yet is not repeated: however slow the loop is, it sees each change once more
    after the last time that it happened, and no more than one event waits for each list and each URI.

    The loop ends when the server ends the subscription. It raises `TransportError` (`SessionClosed`, `ProcessExited`)
    when the link is lost, `McpError` when the server gives an error, `RemoteProtocolError` when it ends the
    subscription in a way that the protocol does not know; what happened before is told first.
    """

    def __init__(self, asked: SubscriptionFilter) -> None:
        self._asked = asked
        self._outgoing: OutgoingRequest | None = None
        self._honored = SubscriptionFilter()
        self._wanted: frozenset[ChangeEvent] = frozenset()
        self._pending: OrderedDict[ChangeEvent, None] = OrderedDict()
        self._news = trio.lowlevel.ParkingLot()
        self._opened = trio.Event()
        self._acknowledged = False
        self._over = False
        self._cause: Exception | None = None
        self._left = False

    @property
    def honored(self) -> SubscriptionFilter:
        """What the server has agreed to tell of what was asked for: nothing else comes."""
        return self._honored

    @property
    def ended(self) -> bool:
        """Whether the server has ended the subscription of its own accord; the loop then ends without an error."""
        return self._over and self._cause is None

    @property
    def waiting(self) -> int:
        """How many events wait to be taken."""
        return len(self._pending)

    async def __anext__(self) -> ChangeEvent:
        """The next event. When cancelled, none is lost."""
        await trio.lowlevel.checkpoint()
        while True:
            if self._left:
                raise LocalProtocolError("the block of `async with client.listen(...)` has been left")
            if self._pending:
                return self._pending.popitem(last=False)[0]
            if self._cause is not None:
                raise another(self._cause)
            if self._over:
                raise StopAsyncIteration
            await self._news.park()

    # --- for the client and its reader ---------------------------------------------------------------------------

    def _honor(self, offered: SubscriptionFilter) -> None:
        """Let through what is offered of what was asked for."""
        asked = self._asked
        uris = set(offered.resource_subscriptions or ())
        self._honored = SubscriptionFilter(
            tools_list_changed=(asked.tools_list_changed and offered.tools_list_changed) or None,
            prompts_list_changed=(asked.prompts_list_changed and offered.prompts_list_changed) or None,
            resources_list_changed=(asked.resources_list_changed and offered.resources_list_changed) or None,
            resource_subscriptions=[uri for uri in asked.resource_subscriptions or () if uri in uris] or None,
        )
        self._wanted = events_of(self._honored)

    def _acknowledge(self) -> None:
        self._acknowledged = True
        self._opened.set()

    def _deliver(self, event: ChangeEvent) -> bool:
        """Keep an event until it is taken; whether it was wanted."""
        kept = self._as_kept(event)
        if kept is None:
            return False
        if kept not in self._pending and not self._over:
            self._pending[kept] = None
            self._news.unpark_all()
        return True

    def _as_kept(self, event: ChangeEvent) -> ChangeEvent | None:
        if event in self._wanted:
            return event
        if not isinstance(event, ResourceUpdated):
            return None
        # "This might be a sub-resource of the one that the client actually subscribed to" (schema, ResourceUpdated).
        uris = self._honored.resource_subscriptions or ()
        above = max((uri for uri in uris if _lies_below(event.uri, uri)), key=len, default=None)
        if above is None:
            return None
        if event in self._pending or (len(self._pending) < MAX_PENDING and len(event.uri) <= LONGEST_URI):
            return event
        return ResourceUpdated(above)

    def _end(self, cause: Exception | None) -> None:
        """Nothing more comes; the first cause counts."""
        if self._over:
            return
        if cause is None and not self._acknowledged:
            cause = RemoteProtocolError("the server ended a subscription that it had not acknowledged")
        self._over, self._cause = True, cause
        self._opened.set()
        self._news.unpark_all()

    def _leave(self) -> None:
        self._left = True
        self._pending.clear()
        self._news.unpark_all()

    async def _wait_opened(self) -> None:
        """Wait until it has been acknowledged.

        Raises:
            TrioMcpError: It never will be.
        """
        await self._opened.wait()
        if not self._acknowledged:
            assert self._cause is not None
            raise another(self._cause)


class Subscriptions:
    """Every subscription of a client.

    Args:
        on_change: Called, synchronously, with each change that the server tells of, whoever it is for: with
            ``"tools"``, ``"prompts"`` or ``"resources"``, and the URI if it is one resource that has changed.
    """

    def __init__(self, on_change: Callable[[str, str | None], None]) -> None:
        self._on_change = on_change
        self._held: dict[Subscription, None] = {}
        self._by_request: dict[RequestId, Subscription] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def requests(self) -> int:
        """How many of them have a request: none in the legacy era."""
        return len(self._by_request)

    @property
    def waiting(self) -> int:
        """How many events wait to be taken."""
        return sum(subscription.waiting for subscription in self._held)

    @contextlib.contextmanager
    def holding(self, subscription: Subscription) -> Iterator[None]:
        """Where a subscription is known.

        Raises:
            LocalProtocolError: There are `MAX_LISTENS` already.
        """
        if len(self._held) >= MAX_LISTENS:
            raise LocalProtocolError(
                f"a client may listen {MAX_LISTENS} times at once; leave one of those blocks first"
            )
        self._held[subscription] = None
        try:
            yield
        finally:
            del self._held[subscription]
            self._forget_request(subscription)
            subscription._leave()

    def opened(self, subscription: Subscription, outgoing: OutgoingRequest) -> None:
        """A subscription has its request: whatever names that request's id is for it."""
        assert isinstance(outgoing.request.id, int)
        self._forget_request(subscription)  # a middleware may have asked before
        subscription._outgoing, subscription._acknowledged = outgoing, False
        self._last_id = outgoing.request.id
        self._by_request[self._last_id] = subscription

    def _forget_request(self, subscription: Subscription) -> None:
        if subscription._outgoing is not None:
            del self._by_request[subscription._outgoing.request.id]
            subscription._outgoing = None

    def note(self, notification: Notification, *, modern: bool) -> None:
        """Take one of `NOTICES`, in the order of arrival.

        Raises:
            RemoteProtocolError: The server must not have sent it.
        """
        event = None if notification.method == ACKNOWLEDGED else read_change(notification)
        if event is not None:
            kind = notification.method.split("/")[1]
            self._on_change(kind, event.uri if isinstance(event, ResourceUpdated) else None)
        if modern:
            self._note_modern(notification, event)
        elif event is not None:
            for subscription in self._held:
                subscription._deliver(event)

    def _note_modern(self, notification: Notification, event: ChangeEvent | None) -> None:
        method = notification.method
        about = (notification.params or {}).get("_meta")
        request_id = about.get(meta.SUBSCRIPTION_ID) if isinstance(about, dict) else None
        if type(request_id) is not int or not 0 < request_id <= self._last_id:
            raise RemoteProtocolError(f"{method!r} belongs to no subscription: it lacks the id of one")
        subscription = self._by_request.get(request_id)
        if subscription is None or subscription._outgoing is None or subscription._outgoing.settled:
            return  # late: the subscription is over
        if event is None:
            _read_acknowledgement(notification, subscription)
        elif not subscription._acknowledged:
            raise RemoteProtocolError(f"{method!r} came before subscription {request_id} was acknowledged")
        elif not subscription._deliver(event):
            raise RemoteProtocolError(f"{method!r} came for subscription {request_id}, which does not cover it")


def _read_acknowledgement(notification: Notification, subscription: Subscription) -> None:
    if subscription._acknowledged:
        raise RemoteProtocolError("the server acknowledged a subscription twice")
    try:
        offered = SubscriptionsAcknowledgedNotificationParams.from_wire(notification.params or {}).notifications
    except ValidationError as exc:
        error = RemoteProtocolError(f"the acknowledgement of a subscription is malformed: {brief(exc)}")
        subscription._end(error)
        raise another(error) from None
    subscription._honor(offered)
    subscription._acknowledge()
    if not events_of(offered) <= events_of(subscription._asked):
        raise RemoteProtocolError("the server acknowledged a subscription to more than was asked for")


def _lies_below(uri: str, above: str) -> bool:
    return uri.startswith(above) and (above.endswith("/") or uri[len(above) : len(above) + 1] in ("/", "?", "#"))
