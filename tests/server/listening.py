"""Helpers for the tests of subscriptions: what a modern server tells a client."""

from __future__ import annotations

from typing import Any

from tests.peer import Peer, settle
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.types import meta

__all__ = ["ACKNOWLEDGED", "news_of"]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


async def news_of(peer: Peer) -> list[tuple[str, Any, str | None]]:
    """Return the notifications that have arrived, each as its kind, subscription and URI."""
    await settle()
    return [_told(message) for message in peer.arrived()]


def _told(message: Any) -> tuple[str, Any, str | None]:
    assert isinstance(message, Notification), message
    params = message.params or {}
    return message.method, (params.get("_meta") or {}).get(meta.SUBSCRIPTION_ID), params.get("uri")
