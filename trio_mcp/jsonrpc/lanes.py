"""The kinds of requests that run besides the limit of a `Peer`, each with a limit of its own, just as large."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

__all__ = ["LANES", "LISTENING_METHODS", "PRIORITY_METHODS", "Lane"]

Lane: TypeAlias = Literal["priority", "listening"]

PRIORITY_METHODS: Final = frozenset({"ping", "initialize", "server/discover"})
"""Answered on the spot: a full house must neither fail a liveness check nor keep a handshake out."""

LISTENING_METHODS: Final = frozenset({"subscriptions/listen"})
"""Open for as long as the peer likes: in the places of calls they would starve them. They don't queue: a place could
be free never."""

LANES: Final[dict[str, Lane]] = {
    **dict.fromkeys(PRIORITY_METHODS, "priority"),
    **dict.fromkeys(LISTENING_METHODS, "listening"),
}
