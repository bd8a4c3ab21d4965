"""Serves ``subscriptions/listen``: change notifications in the modern era (2026-07-28 `basic/patterns/subscriptions`).

The request lasts for as long as the client wants to listen. The fan-out behind it, `trio_mcp.server.changes`, also
serves the legacy era.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from trio_mcp.eras.capabilities import declares
from trio_mcp.errors import McpError
from trio_mcp.server.changes import (
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    Listener,
    Topic,
)
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.feature import Needs
from trio_mcp.types import meta
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.methods import method_spec
from trio_mcp.uri_templates import MAX_URI

if TYPE_CHECKING:  # few servers have extensions
    from trio_mcp.server.features.extension_parts import ListenField

__all__ = ["ListeningFeature"]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

FLAGS = {
    "toolsListChanged": TOOLS_CHANGED,
    "promptsListChanged": PROMPTS_CHANGED,
    "resourcesListChanged": RESOURCES_CHANGED,
}
"""The flags of a filter, each with the notification that it asks for."""

URIS = "resourceSubscriptions"
"""The field of a filter that lists the URIs to watch."""


class ListeningFeature:
    """Serves requests for streams of change notifications.

    Args:
        declared: Returns the capabilities that the server declares to clients of a revision.
        hidden: Returns those of the given URIs that name something hidden from the client of a request; None if nothing
            is ever hidden.
        fields: The fields that extensions add to the filter, by name, with its identifier.
    """

    def __init__(
        self,
        declared: Callable[[str], dict[str, Any]],
        hidden: Callable[[Collection[str], ServedContext[Any]], Awaitable[Collection[str]]] | None = None,
        fields: Mapping[str, tuple[str, ListenField]] | None = None,
    ) -> None:
        self.methods = {"subscriptions/listen": self._listen}
        self.needs: Mapping[str, Needs] = {}
        self._declared = declared
        self._hidden = hidden
        self._fields = fields or {}
        self._params = {field.method: field.params for _, field in self._fields.values()}

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return no capabilities: those of tools, prompts and resources declare listening."""
        return {}

    async def _listen(self, context: ServedContext[Any]) -> dict[str, Any]:
        """Acknowledge the request, then report changes until the client cancels the request or the server ends."""
        revision = context.protocol_version
        honored = _honored(context.params.get("notifications"), self._declared(revision), revision)
        topics: list[Topic] = [(FLAGS[flag], None) for flag in honored if flag in FLAGS]
        topics += [(RESOURCE_UPDATED, uri) for uri in honored.get(URIS, ())]
        stamp = {meta.SUBSCRIPTION_ID: context.request_id}  # for every message of this subscription

        def send(topic: Topic) -> bool:
            method, uri = topic
            told = {} if uri is None else {"uri": uri}
            if uri is not None and method in self._params:
                found = self._params[method](uri, context)
                if found is None:
                    return True
                told = found
            return context.send_notification_nowait(method, {"_meta": dict(stamp), **told})

        for name, (identifier, field) in self._fields.items():
            wanted = context.params["notifications"].get(name)
            if wanted is not None:
                context.require_client_extension(identifier)
                honored[name], keys = await field.honor(wanted, context)
                topics += [(field.method, key) for key in keys]
        connection = context.connection
        # Whether there is room for the subscription is checked before the acknowledgement, so that a refusal is a plain
        # error response.
        connection.audience.check_room_for(topics)
        if self._hidden is not None:
            # A hidden URI is acknowledged like an unknown one, but changes to it are never notified.
            hidden = await self._hidden(honored.get(URIS, ()), context)
            topics = [topic for topic in topics if topic[0] != RESOURCE_UPDATED or topic[1] not in hidden]
            connection.audience.check_room_for(topics)  # again: other requests of the client may have taken the room
        listener = Listener(send, connection.room)
        with connection.audience.listening(listener, topics):
            # The acknowledgement must be the first message, so the listener is registered but not running yet: it keeps
            # changes from here on, which it would miss if it were registered later.
            await context.send_notification(ACKNOWLEDGED, {"_meta": dict(stamp), "notifications": honored})
            await listener.run()
        # The response is sent only when the server ends: after the client has cancelled the request, nothing more is
        # sent.
        return {"_meta": stamp}


def _honored(wanted: object, declared: dict[str, Any], revision: str) -> dict[str, Any]:
    """Return the part of a filter that will be served: the requested kinds of changes that the server also declares.

    Raises:
        McpError: If the filter is malformed (-32602).
    """
    if type(wanted) is not dict:
        raise _invalid("params.notifications is required and must be an object")
    for flag in FLAGS:
        if type(wanted.get(flag, False)) is not bool:
            raise _invalid(f"params.notifications.{flag} must be true or false")
    uris = wanted.get(URIS, [])
    if type(uris) is not list or not all(type(uri) is str for uri in uris):
        raise _invalid(f"params.notifications.{URIS} must be an array of strings")
    if any(len(uri) > MAX_URI for uri in uris):  # the URIs are kept for as long as the request lasts
        raise _invalid(f"a URI in params.notifications.{URIS} has more than {MAX_URI} characters")

    # A requested kind of change that is not served is not an error: the acknowledgement shows the client what it will
    # get.
    def served(method: str) -> bool:
        spec = method_spec(revision, method)
        return spec is not None and (spec.server_capability is None or declares(declared, spec.server_capability))

    honored: dict[str, Any] = {flag: True for flag, method in FLAGS.items() if wanted.get(flag) and served(method)}
    if uris and served(RESOURCE_UPDATED):
        honored[URIS] = list(dict.fromkeys(uris))  # without duplicates, in order
    return honored


def _invalid(text: str) -> McpError:
    return McpError(INVALID_PARAMS, f"subscriptions/listen: {text}")
