"""Hand the changes that a server announces to those of the client's subscriptions that cover them.

Only the iterator waits: the session's reader hands over each notification and continues (docs/design.md, rule 1).
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Set as AbstractSet
from typing import Any, Final, TypeAlias

import trio
from pydantic import ValidationError

from trio_mcp import _attrs as attrs
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

# The number of subscriptions is limited, because each may be an open HTTP response stream. The number is an arbitrary
# choice.
MAX_LISTENS = 100
# Limits on the events that a server can make us keep for resources below a subscribed one. Beyond the limits, an event
# is kept as an event for the subscribed resource itself.
MAX_PENDING = 1000
# `trio_mcp.uri_templates` has the same limit for URIs.
LONGEST_URI = 8192

ChangeHook: TypeAlias = Callable[[str, str | None], None]
"""A function that is told of every change: ``(kind, uri)``.

The kind is ``"tools"``, ``"prompts"`` or ``"resources"``. The URI is that of the one resource that has changed; None if
the list of that kind has changed. The session's reader calls the function, so it must neither block nor raise.
"""


@attrs.frozen
class ToolsListChanged:
    """The server's list of tools has changed."""


@attrs.frozen
class PromptsListChanged:
    """The server's list of prompts has changed."""


@attrs.frozen
class ResourcesListChanged:
    """The server's list of resources, or of resource templates, has changed."""


@attrs.frozen
class ResourceUpdated:
    """The content of a resource has changed.

    Attributes:
        uri: The URI of the resource: a subscribed URI, or one below it.
    """

    uri: str


ChangeEvent: TypeAlias = ToolsListChanged | PromptsListChanged | ResourcesListChanged | ResourceUpdated

# The events in this table have no attributes, so one object of each class is enough.
LIST_CHANGES: Final[dict[str, ChangeEvent]] = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
UPDATED: Final = "notifications/resources/updated"
KINDS: Final[dict[type[ChangeEvent], str]] = {
    ToolsListChanged: "tools",
    PromptsListChanged: "prompts",
    ResourcesListChanged: "resources",
    ResourceUpdated: "resources",
}
"""The kind that is passed to a `ChangeHook`, for each class of event."""

NOTICES = frozenset({*LIST_CHANGES, UPDATED, ACKNOWLEDGED})
"""The notifications that `Subscriptions.note` handles."""


def read_change(notification: Notification) -> ChangeEvent:
    """Return the event for a notification whose method is `UPDATED` or in `LIST_CHANGES`.

    Raises:
        RemoteProtocolError: If the notification is malformed.
    """
    if notification.method != UPDATED:
        return LIST_CHANGES[notification.method]
    try:
        return ResourceUpdated(ResourceUpdatedNotificationParams.from_wire(notification.params or {}).uri)
    except ValidationError as exc:
        raise RemoteProtocolError(f"the server sent a malformed {UPDATED!r} notification: {brief(exc)}") from None


def events_of(wanted: SubscriptionFilter) -> frozenset[ChangeEvent]:
    """Return every event that a filter covers, apart from resources below its URIs."""
    flags = (wanted.tools_list_changed, wanted.prompts_list_changed, wanted.resources_list_changed)
    events = [event for event, flag in zip(LIST_CHANGES.values(), flags, strict=True) if flag]
    return frozenset([*events, *map(ResourceUpdated, wanted.resource_subscriptions or ())])


def _honored_fields(asked: Mapping[str, Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of extensions that the server has agreed to: of a list, the items on both sides."""
    honored: dict[str, Any] = {}
    for name, wanted in asked.items():
        given = offered.get(name)
        if isinstance(wanted, list) and isinstance(given, list):
            both = [each for each in wanted if each in given]
            if both:
                honored[name] = both
        elif given == wanted and type(given) is type(wanted):
            honored[name] = given
    return honored


class Feed:
    """One subscription: the filters that were requested and granted, and the events not taken yet.

    Args:
        asked: The requested filter.

    Attributes:
        asked: The requested filter.
        honored: The part of that filter that the server has agreed to.
        acknowledged: Whether the server has acknowledged the subscription.
        outgoing: The subscription's request, in the modern era: notifications carry that request's id.
        resumed: Whether the subscription was opened again after it had ended, so that changes may have been missed.
    """

    def __init__(self, asked: SubscriptionFilter) -> None:
        self.asked = asked
        self.outgoing: OutgoingRequest | None = None
        self.honored = SubscriptionFilter()
        self.acknowledged = False
        self.resumed = False
        self._wanted: frozenset[ChangeEvent] = frozenset()
        # The pending events in order, each only once: however slow the loop is, at most one event waits for each list
        # and each URI.
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
        """Whether the server has ended the subscription without an error."""
        return self._over and self._cause is None

    async def next(self) -> ChangeEvent:
        """Wait for the next event and return it. If the wait is cancelled, no event is lost."""
        # The checkpoint comes before an event is taken: if it is cancelled, the event stays for the next call.
        await trio.lowlevel.checkpoint()
        while True:
            if self._left:
                raise LocalProtocolError("the block of `async with client.listen(...)` has ended")
            if self._pending:
                return self._pending.popitem(last=False)[0]
            # The end is reported only when no events are left: those that arrived before it are delivered first.
            if self._cause is not None:
                raise another(self._cause)
            if self._over:
                raise StopAsyncIteration
            await self._news.park()

    def opened(self, outgoing: OutgoingRequest) -> None:
        """Attach the subscription's request, which the server has yet to acknowledge."""
        self.outgoing, self.acknowledged = outgoing, False

    def honor(self, offered: SubscriptionFilter) -> None:
        """Restrict the subscription to those of the requested changes that the server offers."""
        asked = self.asked
        uris = set(offered.resource_subscriptions or ())
        self.honored = SubscriptionFilter(
            tools_list_changed=(asked.tools_list_changed and offered.tools_list_changed) or None,
            prompts_list_changed=(asked.prompts_list_changed and offered.prompts_list_changed) or None,
            resources_list_changed=(asked.resources_list_changed and offered.resources_list_changed) or None,
            resource_subscriptions=[uri for uri in asked.resource_subscriptions or () if uri in uris] or None,
            **_honored_fields(asked.model_extra or {}, offered.model_extra or {}),
        )
        self._wanted = events_of(self.honored)

    def acknowledge(self) -> list[ChangeEvent]:
        """Record that the server has agreed, and return the events that may have been missed before that."""
        self.acknowledged = True
        self._opened.set()
        return list(self._wanted) if self.resumed else []

    def deliver(self, event: ChangeEvent) -> bool:
        """Keep an event until it is taken; return whether the subscription covers it."""
        kept = self._as_kept(event)
        if kept is None:
            return False
        # If an equal event is already waiting, it stays where it is in the queue: the loop will look once, and see both
        # changes.
        if kept not in self._pending and not self._over:
            self._pending[kept] = None
            self._news.unpark_all()
        return True

    def _as_kept(self, event: ChangeEvent) -> ChangeEvent | None:
        if event in self._wanted:
            return event
        if not isinstance(event, ResourceUpdated):
            return None
        # The resource may be a part of a subscribed one: "This might be a sub-resource of the one that the client
        # actually subscribed to" (schema, ResourceUpdated).
        uris = self.honored.resource_subscriptions or ()
        # The longest of the subscribed URIs above the event's URI is its closest ancestor.
        above = max((uri for uri in uris if lies_below(event.uri, uri)), key=len, default=None)
        if above is None:
            return None
        # An event that is already pending needs no further memory.
        if event in self._pending or (len(self._pending) < MAX_PENDING and len(event.uri) <= LONGEST_URI):
            return event
        return ResourceUpdated(above)

    def end(self, cause: Exception | None) -> None:
        """End the subscription; of several causes, the first counts."""
        if self._over:
            return
        if cause is None and not self.acknowledged and not self.resumed:
            # The block is still being entered. If no cause were recorded, `wait_opened` would have no error to raise.
            cause = RemoteProtocolError("the server ended a subscription that it had not acknowledged")
        self._over, self._cause = True, cause
        self._opened.set()
        self._news.unpark_all()

    def leave(self) -> None:
        """Drop all events, as the block of the subscription has ended."""
        self._left = True
        self._pending.clear()
        self._news.unpark_all()

    async def wait_opened(self) -> None:
        """Wait until the server has acknowledged the subscription.

        Raises:
            TrioMcpError: If the subscription ended before that.
        """
        await self._opened.wait()
        if not self.acknowledged:
            assert self._cause is not None
            raise another(self._cause)  # a copy is raised, because each task that raises it adds its own traceback


class Subscription(AsyncIterator[ChangeEvent]):
    """The events of a `Client.listen` block: ``async for event in events``.

    An event that is waiting to be taken is not queued again. However slow the loop is, it gets at least one event after
    the last change of each list and each URI, and at most one event waits for each.

    The loop ends when the server ends the subscription. It raises `TransportError` (`SessionClosed`, `ProcessExited`)
    if the link is lost, `McpError` if the server responds with an error, and `RemoteProtocolError` if the server ends
    the subscription in a way that breaks the protocol. Earlier events are delivered first.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    @property
    def honored(self) -> SubscriptionFilter:
        """The part of the request that the server has agreed to; no other events come."""
        return self._feed.honored

    @property
    def ended(self) -> bool:
        """Whether the server has ended the subscription without an error; then the loop ends as well."""
        return self._feed.ended

    @property
    def waiting(self) -> int:
        """The number of events waiting to be taken."""
        return len(self._feed)

    async def __anext__(self) -> ChangeEvent:
        """Wait for the next event and return it. If the wait is cancelled, no event is lost."""
        return await self._feed.next()


class Subscriptions:
    """All subscriptions of a client.

    Args:
        hooks: Each is called with every change that the server announces, whether or not a subscription covers it.
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
        """The number of subscriptions with an open request; always 0 in the legacy era."""
        return len(self._by_request)

    @property
    def waiting(self) -> int:
        """The number of events waiting to be taken."""
        return sum(map(len, self._held))

    @contextlib.contextmanager
    def holding(self, asked: SubscriptionFilter) -> Iterator[Feed]:
        """Register a new subscription while the block runs.

        Raises:
            LocalProtocolError: If there are already `MAX_LISTENS` of them.
        """
        if len(self._held) >= MAX_LISTENS:
            raise LocalProtocolError(
                f"a client may listen at most {MAX_LISTENS} times at once; leave one of its `listen` blocks first"
            )
        feed = Feed(asked)
        self._held[feed] = None
        try:
            yield feed
        finally:
            del self._held[feed]
            self._forget_request(feed)
            # If a loop over the events is still running in another task, `leave` wakes it with an error.
            feed.leave()

    def opened(self, feed: Feed, outgoing: OutgoingRequest) -> None:
        """Give a subscription its current request: from then on it gets the notifications with that request's id."""
        assert isinstance(outgoing.request.id, int)
        self._forget_request(feed)  # a middleware may have sent an earlier request and tried again
        feed.opened(outgoing)
        self._last_id = outgoing.request.id
        self._by_request[self._last_id] = feed

    def _forget_request(self, feed: Feed) -> None:
        if feed.outgoing is not None:
            del self._by_request[feed.outgoing.request.id]
            feed.outgoing = None

    def note(self, notification: Notification, *, modern: bool) -> None:
        """Handle a notification that is one of `NOTICES`. Notifications must be passed in the order of their arrival.

        Raises:
            RemoteProtocolError: If the server must not send this notification.
        """
        event = None if notification.method == ACKNOWLEDGED else read_change(notification)
        if event is not None:
            self._announce(event)
        if modern:
            self._note_modern(notification, event)
        elif event is not None:
            # A legacy notification does not name a subscription, so each subscription takes the events that it covers.
            for feed in self._held:
                feed.deliver(event)

    def _announce(self, event: ChangeEvent) -> None:
        # The hooks run before any subscription sees the event: a loop that lists again after the event must not get the
        # old list from the cache.
        for hook in self.hooks:
            hook(KINDS[type(event)], event.uri if isinstance(event, ResourceUpdated) else None)

    def note_added(self, notification: Notification, fields: AbstractSet[str]) -> None:
        """Check a notification of an extension that fields of the filter ask for (modern era).

        Raises:
            RemoteProtocolError: If it belongs to no subscription with one of those fields.
        """
        feed = self._feed_of(notification)
        if feed is not None and not fields & (feed.honored.model_extra or {}).keys():
            raise RemoteProtocolError(f"{notification.method!r} came for a subscription that does not cover it")

    def _note_modern(self, notification: Notification, event: ChangeEvent | None) -> None:
        feed = self._feed_of(notification)
        if feed is None:
            return
        if event is None:
            self._read_acknowledgement(notification, feed)
        elif not feed.deliver(event):
            raise RemoteProtocolError(f"{notification.method!r} came for a subscription that does not cover it")

    def _feed_of(self, notification: Notification) -> Feed | None:
        """Return the subscription that a notification belongs to; None if that subscription has ended."""
        method = notification.method
        about = (notification.params or {}).get("_meta")
        request_id = about.get(meta.SUBSCRIPTION_ID) if isinstance(about, dict) else None
        # An id above the last one sent has never been used, so the notification is a fault and not just late.
        if type(request_id) is not int or not 0 < request_id <= self._last_id:
            raise RemoteProtocolError(
                f"{method!r} belongs to no subscription: the subscription id is missing or unknown"
            )
        feed = self._by_request.get(request_id)
        if feed is None or feed.outgoing is None or feed.outgoing.settled:
            return None  # the notification is late: its subscription has ended
        if not feed.acknowledged and method != ACKNOWLEDGED:
            # The acknowledgement must come first (`basic/patterns/subscriptions`).
            raise RemoteProtocolError(f"{method!r} came before subscription {request_id} was acknowledged")
        return feed

    def _read_acknowledgement(self, notification: Notification, feed: Feed) -> None:
        if feed.acknowledged:
            raise RemoteProtocolError("the server acknowledged a subscription twice")
        try:
            offered = SubscriptionsAcknowledgedNotificationParams.from_wire(notification.params or {}).notifications
        except ValidationError as exc:
            error = RemoteProtocolError(f"the acknowledgement of a subscription is malformed: {brief(exc)}")
            feed.end(error)
            raise another(error) from None  # reported, and also raised by the loop, with another traceback
        feed.honor(offered)
        for missed in feed.acknowledge():
            self._announce(missed)
            feed.deliver(missed)
        # The subscription leaves out events that were not asked for; that the server offered them is reported as a
        # fault.
        if not events_of(offered) <= events_of(feed.asked):
            raise RemoteProtocolError("the server acknowledged a subscription to more events than were asked for")


# The cache uses `lies_below`, too: reading a folder may have returned the files in it.
def lies_below(uri: str, above: str) -> bool:
    """Return whether a URI names a part of the resource that another URI names."""
    # The remaining part must begin at a boundary in the URI: `x://ab` is not below `x://a`.
    return uri.startswith(above) and (above.endswith("/") or uri[len(above) : len(above) + 1] in ("/", "?", "#"))
