"""What a client hears of: the changes of a server's lists and resources, and which notice is for which subscription.

Nothing here waits but the iterator: the session's reader hands each notice over and goes on (rule 1 of docs/design).
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, TypeAlias

import attrs
import trio
from pydantic import ValidationError

from trio_mcp.convert import another, brief
from trio_mcp.errors import LocalProtocolError, RemoteProtocolError
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import Notification, RequestId
from trio_mcp.types import meta
from trio_mcp.types.resources import ResourceUpdatedNotificationParams
from trio_mcp.types.subscriptions import SubscriptionFilter, SubscriptionsAcknowledgedNotificationParams

__all__ = [
    "NOTICES",
    "ChangeEvent",
    "ChangeHook",
    "Feed",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "Subscription",
    "Subscriptions",
    "ToolsListChanged",
    "lies_below",
]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

MAX_LISTENS = 100
# What a server may make us hold for resources below one that was asked for. Beyond that they are told as that one.
MAX_PENDING = 1000
LONGEST_URI = 8192

ChangeHook: TypeAlias = Callable[[str, str | None], None]
"""``(kind, uri)``: ``"tools"``, ``"prompts"`` or ``"resources"`` have changed, or the one resource of the URI.

It is called by the session's reader: it must neither block nor raise.
"""


@attrs.frozen
class ToolsListChanged:
    """The server's list of tools is another now."""


@attrs.frozen
class PromptsListChanged:
    """The server's list of prompts is another now."""


@attrs.frozen
class ResourcesListChanged:
    """The server's list of resources, or of resource templates, is another now."""


@attrs.frozen
class ResourceUpdated:
    """A resource holds something else now.

    Attributes:
        uri: Its URI: one that was asked for, or one below it.
    """

    uri: str


ChangeEvent: TypeAlias = ToolsListChanged | PromptsListChanged | ResourcesListChanged | ResourceUpdated

LIST_CHANGES: Final[dict[str, ChangeEvent]] = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
UPDATED: Final = "notifications/resources/updated"

NOTICES = frozenset({*LIST_CHANGES, UPDATED, ACKNOWLEDGED})
"""The notifications that `Subscriptions.note` takes."""


def read_change(notification: Notification) -> ChangeEvent:
    """The event that a notification of `LIST_CHANGES` or `UPDATED` stands for.

    Raises:
        RemoteProtocolError: It is malformed.
    """
    if notification.method != UPDATED:
        return LIST_CHANGES[notification.method]
    try:
        return ResourceUpdated(ResourceUpdatedNotificationParams.from_wire(notification.params or {}).uri)
    except ValidationError as exc:
        raise RemoteProtocolError(f"a malformed {UPDATED!r}: {brief(exc)}") from None


def events_of(wanted: SubscriptionFilter) -> frozenset[ChangeEvent]:
    """Every event that a filter lets through; what lies below its URIs aside."""
    flags = (wanted.tools_list_changed, wanted.prompts_list_changed, wanted.resources_list_changed)
    events = [event for event, flag in zip(LIST_CHANGES.values(), flags, strict=True) if flag]
    return frozenset([*events, *map(ResourceUpdated, wanted.resource_subscriptions or ())])


class Feed:
    """One subscription: what was asked for and agreed to, and what it has heard and not yet told.

    Args:
        asked: What to hear of.

    Attributes:
        asked: What to hear of.
        honored: What the server has agreed to tell of it.
        acknowledged: Whether the server has agreed.
        outgoing: Its request, in the modern era: whatever names the id of that is for it.
    """

    def __init__(self, asked: SubscriptionFilter) -> None:
        self.asked = asked
        self.outgoing: OutgoingRequest | None = None
        self.honored = SubscriptionFilter()
        self.acknowledged = False
        self._wanted: frozenset[ChangeEvent] = frozenset()
        self._pending: OrderedDict[ChangeEvent, None] = OrderedDict()
        self._news = trio.lowlevel.ParkingLot()
        self._opened = trio.Event()
        self._over = False
        self._cause: Exception | None = None
        self._left = False

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def ended(self) -> bool:
        """Whether the server has ended it of its own accord."""
        return self._over and self._cause is None

    async def next(self) -> ChangeEvent:
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

    def opened(self, outgoing: OutgoingRequest) -> None:
        """It has its request, which the server has not agreed to."""
        self.outgoing, self.acknowledged = outgoing, False

    def honor(self, offered: SubscriptionFilter) -> None:
        """Let through what is offered of what was asked for."""
        asked = self.asked
        uris = set(offered.resource_subscriptions or ())
        self.honored = SubscriptionFilter(
            tools_list_changed=(asked.tools_list_changed and offered.tools_list_changed) or None,
            prompts_list_changed=(asked.prompts_list_changed and offered.prompts_list_changed) or None,
            resources_list_changed=(asked.resources_list_changed and offered.resources_list_changed) or None,
            resource_subscriptions=[uri for uri in asked.resource_subscriptions or () if uri in uris] or None,
        )
        self._wanted = events_of(self.honored)

    def acknowledge(self) -> None:
        """The server has agreed."""
        self.acknowledged = True
        self._opened.set()

    def deliver(self, event: ChangeEvent) -> bool:
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
        uris = self.honored.resource_subscriptions or ()
        above = max((uri for uri in uris if lies_below(event.uri, uri)), key=len, default=None)
        if above is None:
            return None
        if event in self._pending or (len(self._pending) < MAX_PENDING and len(event.uri) <= LONGEST_URI):
            return event
        return ResourceUpdated(above)

    def end(self, cause: Exception | None) -> None:
        """Nothing more comes; the first cause counts."""
        if self._over:
            return
        if cause is None and not self.acknowledged:
            cause = RemoteProtocolError("the server ended a subscription that it had not acknowledged")
        self._over, self._cause = True, cause
        self._opened.set()
        self._news.unpark_all()

    def leave(self) -> None:
        """Its block has been left: there is nothing to tell any more."""
        self._left = True
        self._pending.clear()
        self._news.unpark_all()

    async def wait_opened(self) -> None:
        """Wait until it has been acknowledged.

        Raises:
            TrioMcpError: It never will be.
        """
        await self._opened.wait()
        if not self.acknowledged:
            assert self._cause is not None
            raise another(self._cause)


class Subscription(AsyncIterator[ChangeEvent]):
    """What `Client.listen` gives: ``async for event in events``.

    An event that has not been taken yet is not repeated: however slow the loop is, it sees each change once more
    after the last time that it happened, and no more than one event waits for each list and each URI.

    The loop ends when the server ends the subscription. It raises `TransportError` (`SessionClosed`, `ProcessExited`)
    when the link is lost, `McpError` when the server gives an error, `RemoteProtocolError` when it ends the
    subscription in a way that the protocol does not know; what happened before is told first.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    @property
    def honored(self) -> SubscriptionFilter:
        """What the server has agreed to tell of what was asked for: nothing else comes."""
        return self._feed.honored

    @property
    def ended(self) -> bool:
        """Whether the server has ended the subscription of its own accord; the loop then ends without an error."""
        return self._feed.ended

    @property
    def waiting(self) -> int:
        """How many events wait to be taken."""
        return len(self._feed)

    async def __anext__(self) -> ChangeEvent:
        """The next event. When cancelled, none is lost."""
        return await self._feed.next()


class Subscriptions:
    """Every subscription of a client.

    Args:
        hooks: Each is called with every change that the server tells of, whoever it is for.
    """

    def __init__(self, *hooks: ChangeHook) -> None:
        self.hooks = list(hooks)
        self._held: dict[Feed, None] = {}
        self._by_request: dict[RequestId, Feed] = {}
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
        return sum(map(len, self._held))

    @contextlib.contextmanager
    def holding(self, asked: SubscriptionFilter) -> Iterator[Feed]:
        """A new subscription, known as long as the block lasts.

        Raises:
            LocalProtocolError: There are `MAX_LISTENS` already.
        """
        if len(self._held) >= MAX_LISTENS:
            raise LocalProtocolError(
                f"a client may listen {MAX_LISTENS} times at once; leave one of those blocks first"
            )
        feed = Feed(asked)
        self._held[feed] = None
        try:
            yield feed
        finally:
            del self._held[feed]
            self._forget_request(feed)
            feed.leave()

    def opened(self, feed: Feed, outgoing: OutgoingRequest) -> None:
        """A subscription has its request: whatever names that request's id is for it."""
        assert isinstance(outgoing.request.id, int)
        self._forget_request(feed)  # a middleware may have asked before
        feed.opened(outgoing)
        self._last_id = outgoing.request.id
        self._by_request[self._last_id] = feed

    def _forget_request(self, feed: Feed) -> None:
        if feed.outgoing is not None:
            del self._by_request[feed.outgoing.request.id]
            feed.outgoing = None

    def note(self, notification: Notification, *, modern: bool) -> None:
        """Take one of `NOTICES`, in the order of arrival.

        Raises:
            RemoteProtocolError: The server must not have sent it.
        """
        event = None if notification.method == ACKNOWLEDGED else read_change(notification)
        if event is not None:
            kind = notification.method.split("/")[1]
            for hook in self.hooks:
                hook(kind, event.uri if isinstance(event, ResourceUpdated) else None)
        if modern:
            self._note_modern(notification, event)
        elif event is not None:
            for feed in self._held:
                feed.deliver(event)

    def _note_modern(self, notification: Notification, event: ChangeEvent | None) -> None:
        method = notification.method
        about = (notification.params or {}).get("_meta")
        request_id = about.get(meta.SUBSCRIPTION_ID) if isinstance(about, dict) else None
        if type(request_id) is not int or not 0 < request_id <= self._last_id:
            raise RemoteProtocolError(f"{method!r} belongs to no subscription: it lacks the id of one")
        feed = self._by_request.get(request_id)
        if feed is None or feed.outgoing is None or feed.outgoing.settled:
            return  # late: the subscription is over
        if event is None:
            _read_acknowledgement(notification, feed)
        elif not feed.acknowledged:
            raise RemoteProtocolError(f"{method!r} came before subscription {request_id} was acknowledged")
        elif not feed.deliver(event):
            raise RemoteProtocolError(f"{method!r} came for subscription {request_id}, which does not cover it")


def _read_acknowledgement(notification: Notification, feed: Feed) -> None:
    if feed.acknowledged:
        raise RemoteProtocolError("the server acknowledged a subscription twice")
    try:
        offered = SubscriptionsAcknowledgedNotificationParams.from_wire(notification.params or {}).notifications
    except ValidationError as exc:
        error = RemoteProtocolError(f"the acknowledgement of a subscription is malformed: {brief(exc)}")
        feed.end(error)
        raise another(error) from None
    feed.honor(offered)
    feed.acknowledge()
    if not events_of(offered) <= events_of(feed.asked):
        raise RemoteProtocolError("the server acknowledged a subscription to more than was asked for")


def lies_below(uri: str, above: str) -> bool:
    """Whether a URI names a part of what another names."""
    return uri.startswith(above) and (above.endswith("/") or uri[len(above) : len(above) + 1] in ("/", "?", "#"))
