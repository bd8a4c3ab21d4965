"""A client of either era that answers a server's questions, and its replies."""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import BaseModel

from tests.peer import Peer, Replies, client_peer
from trio_mcp import Server

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


class Name(BaseModel):
    name: str


class Age(BaseModel):
    age: int


def hand_client(
    server: Server,
    revision: str = MODERN,
    replies: Replies = lambda question: None,
    capabilities: dict[str, Any] = EVERYTHING,
    **options: Any,
) -> contextlib.AbstractAsyncContextManager[Peer]:
    """Open a client that declares every capability; a request without a scripted reply waits."""
    return client_peer(server, revision, capabilities, replies, **options)


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", **more}


def text_of(result: Any) -> str:
    assert isinstance(result, dict), result
    ((block),) = result["content"]
    text: str = block["text"]
    return text
