"""The part of `Server` that serves ``subscriptions/listen``, the modern era's way to hear of changes.

2026-07-28 `basic/patterns/subscriptions`. The request lasts as long as its client wants to listen; the fan-out behind
it, which the handshake era shares, is in `trio_mcp.server.changes`.
"""

from __future__ import annotations

from collections.abc import Callable
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
from trio_mcp.server.connection import Handler
from trio_mcp.server.core import ServerCore
from trio_mcp.types import meta
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.methods import method_spec
from trio_mcp.uri_templates import MAX_URI

if TYPE_CHECKING:
    from trio_mcp.server.context import Context

__all__ = ["ListeningMethods"]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

FLAGS = {
    "toolsListChanged": TOOLS_CHANGED,
    "promptsListChanged": PROMPTS_CHANGED,
    "resourcesListChanged": RESOURCES_CHANGED,
}
"""The flags of a filter, and what each of them asks for."""

URIS = "resourceSubscriptions"


class ListeningMethods(ServerCore):
    """Streams of change notifications."""

    def _handlers(self) -> dict[str, Handler]:
        return {**super()._handlers(), "subscriptions/listen": _listen}


async def _listen(server: ServerCore, context: Context[Any]) -> dict[str, Any]:
    """Acknowledge, then tell of changes until the client cancels the request or the server ends."""
    honored = _honored(context.params.get("notifications"), server, context.protocol_version)
    topics: list[Topic] = [(FLAGS[flag], None) for flag in honored if flag in FLAGS]
    topics += [(RESOURCE_UPDATED, uri) for uri in honored.get(URIS, ())]
    connection = context.connection
    connection.audience.check_room_for(topics)
    listener = Listener(_sender(context), connection.room)
    with connection.audience.listening(listener, topics):
        # What changes meanwhile waits: nothing may precede the acknowledgement.
        await context.send_notification(ACKNOWLEDGED, {"_meta": _stamp(context), "notifications": honored})
        await listener.run()
    return {"_meta": _stamp(context)}


def _sender(context: Context[Any]) -> Callable[[Topic], bool]:
    def send(topic: Topic) -> bool:
        method, uri = topic
        params: dict[str, Any] = {"_meta": _stamp(context)}
        if uri is not None:
            params["uri"] = uri
        return context.send_notification_nowait(method, params)

    return send


def _stamp(context: Context[Any]) -> dict[str, Any]:
    """What everything on the stream carries."""
    return {meta.SUBSCRIPTION_ID: context.request_id}


def _honored(wanted: object, server: ServerCore, revision: str) -> dict[str, Any]:
    """What of a filter is going to be served: of the kinds that the server declares, those that are asked for.

    Raises:
        McpError: It is malformed (-32602).
    """
    if type(wanted) is not dict:
        raise _invalid("params.notifications is required and must be an object")
    for flag in FLAGS:
        if type(wanted.get(flag, False)) is not bool:
            raise _invalid(f"params.notifications.{flag} must be true or false")
    uris = wanted.get(URIS, [])
    if type(uris) is not list or not all(type(uri) is str for uri in uris):
        raise _invalid(f"params.notifications.{URIS} must be an array of strings")
    if any(len(uri) > MAX_URI for uri in uris):
        raise _invalid(f"a URI in params.notifications.{URIS} has more than {MAX_URI} characters")
    declared = server.identity.capabilities(revision)

    def served(method: str) -> bool:
        spec = method_spec(revision, method)
        return spec is not None and (spec.server_capability is None or declares(declared, spec.server_capability))

    honored: dict[str, Any] = {flag: True for flag, method in FLAGS.items() if wanted.get(flag) and served(method)}
    if uris and served(RESOURCE_UPDATED):
        honored[URIS] = list(dict.fromkeys(uris))
    return honored


def _invalid(text: str) -> McpError:
    return McpError(INVALID_PARAMS, f"subscriptions/listen: {text}")
