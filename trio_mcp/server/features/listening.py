"""``subscriptions/listen``, the modern era's way to hear of changes (2026-07-28 `basic/patterns/subscriptions`).

The request lasts as long as its client wants to listen; the fan-out behind it, which the legacy era shares, is in
`trio_mcp.server.changes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from trio_mcp.server.context import Context
from trio_mcp.types import meta
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.methods import method_spec
from trio_mcp.uri_templates import MAX_URI

__all__ = ["ListeningFeature"]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

FLAGS = {
    "toolsListChanged": TOOLS_CHANGED,
    "promptsListChanged": PROMPTS_CHANGED,
    "resourcesListChanged": RESOURCES_CHANGED,
}
"""The flags of a filter, and what each of them asks for."""

URIS = "resourceSubscriptions"


class ListeningFeature:
    """Streams of change notifications.

    Args:
        declared: Gives what the server declares to clients of a revision.
    """

    def __init__(self, declared: Callable[[str], dict[str, Any]]) -> None:
        self.methods = {"subscriptions/listen": self._listen}
        self._declared = declared

    def capabilities(self, revision: str) -> dict[str, Any]:
        """What is declared of it: it goes with the capabilities of what is listened to."""
        return {}

    async def _listen(self, context: Context[Any]) -> dict[str, Any]:
        """Acknowledge, then tell of changes until the client cancels the request or the server ends."""
        revision = context.protocol_version
        honored = _honored(context.params.get("notifications"), self._declared(revision), revision)
        topics: list[Topic] = [(FLAGS[flag], None) for flag in honored if flag in FLAGS]
        topics += [(RESOURCE_UPDATED, uri) for uri in honored.get(URIS, ())]
        stamp = {meta.SUBSCRIPTION_ID: context.request_id}  # on everything of the stream

        def send(topic: Topic) -> bool:
            method, uri = topic
            told = {} if uri is None else {"uri": uri}
            return context.send_notification_nowait(method, {"_meta": dict(stamp), **told})

        connection = context.connection
        connection.audience.check_room_for(topics)
        listener = Listener(send, connection.room)
        with connection.audience.listening(listener, topics):
            # What changes meanwhile waits: nothing may precede the acknowledgement.
            await context.send_notification(ACKNOWLEDGED, {"_meta": dict(stamp), "notifications": honored})
            await listener.run()
        return {"_meta": stamp}


def _honored(wanted: object, declared: dict[str, Any], revision: str) -> dict[str, Any]:
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

    def served(method: str) -> bool:
        spec = method_spec(revision, method)
        return spec is not None and (spec.server_capability is None or declares(declared, spec.server_capability))

    honored: dict[str, Any] = {flag: True for flag, method in FLAGS.items() if wanted.get(flag) and served(method)}
    if uris and served(RESOURCE_UPDATED):
        honored[URIS] = list(dict.fromkeys(uris))
    return honored


def _invalid(text: str) -> McpError:
    return McpError(INVALID_PARAMS, f"subscriptions/listen: {text}")
