"""What a hostile peer does about a message: a table of habits, which begin after some steps of good behaviour."""

from __future__ import annotations

import enum
import itertools
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import attrs
import trio

from tests.http_peer import CAPABILITIES, DISCOVERED
from tests.peer import ME

__all__ = ["BUDGET", "HABITS", "LEGACY", "MODERN", "STEPS", "Act", "Hostile", "Move", "served_well"]

LEGACY, MODERN = "2025-11-25", "2026-07-28"

BUDGET = 2000
"""Messages that a peer sends before it falls silent: twice as many as end a session."""

STEPS = 5
"""Good steps after which a habit may begin: none, and each of the messages of a handshake and two requests."""


class Act(enum.Enum):
    """What else than sending a text a peer may do."""

    HALF = "begin a message, and never end it"
    CLOSE = "close the connection"


Move = bytes | Act
Habit = Callable[[Any, bytes], Iterable[Move]]


def rpc(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def served_well(message: Any, mode: str) -> list[bytes]:
    """Return what a good server sends in response."""
    if not isinstance(message, dict) or "method" not in message or "id" not in message:
        return []
    number, method = message["id"], message["method"]
    complete = {} if mode == LEGACY else {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    results: dict[str, Any] = {
        "ping": {},
        "tools/list": {"tools": [{"name": "x", "inputSchema": {"type": "object"}}], **complete},
        "tools/call": {"content": [], **complete},
    }
    if mode == LEGACY:
        results["initialize"] = {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": ME}
    else:
        results["server/discover"] = DISCOVERED
    if method not in results:
        return [rpc(id=number, error={"code": -32601, "message": "unknown method"})]
    return [rpc(id=number, result=results[method])]


NUMBERS = itertools.count(1)
"""For the ids of a peer's own requests."""


def id_of(message: Any) -> Any:
    return message.get("id", 1) if isinstance(message, dict) else 1


def saying(*moves: Move) -> Habit:
    return lambda message, text: moves


ERROR = {"code": -32700, "message": "what?"}

HABITS: dict[str, Habit] = {
    "is silent": saying(),
    "closes": saying(Act.CLOSE),
    "sends half a message": saying(Act.HALF),
    "sends a text": saying(b"what?"),
    "sends ten texts": saying(*[b"what?"] * 10),
    "sends a thousand texts": saying(*[b"what?"] * 1000),
    "echoes": lambda message, text: [text],
    "sends an object": saying(b'{"a": 1}'),
    "sends JSON-RPC 1": saying(b'{"id": null, "method": "x", "params": []}'),
    "sends an empty batch": saying(b"[]"),
    "sends a batch of garbage": saying(b'[1, 2, {"a": 1}]'),
    "batches its errors": saying(b"[" + rpc(id=None, error=ERROR) + b"]"),
    "sends errors of null": saying(rpc(id=None, error=ERROR)),
    "sends errors without an id": saying(rpc(error=ERROR)),
    "sends errors of nothing": saying(rpc(id=10**6, error=ERROR)),
    "sends results of nothing": saying(rpc(id="x", result={})),
    "sends malformed errors": saying(rpc(id=None, error="what?")),
    "sends malformed results": lambda message, text: [rpc(id=id_of(message), result=5)],
    "sends malformed requests": lambda message, text: [rpc(id=next(NUMBERS), method=5)],
    "refuses everything": lambda message, text: [rpc(id=id_of(message), error=ERROR)],
    "asks the unknown": lambda message, text: [rpc(id=next(NUMBERS), method="acme/what")],
    "asks under one id": lambda message, text: [rpc(id=1, method="ping")],
    "notifies": saying(rpc(method="acme/what")),
    "sends a text and a notification": saying(b"what?", rpc(method="acme/what")),
    "reports progress of nothing": saying(rpc(method="notifications/progress", params={"progressToken": 9**9})),
    "reports progress": lambda message, text: [
        rpc(method="notifications/progress", params={"progressToken": id_of(message), "progress": 1})
    ],
    "cancels everything": lambda message, text: [
        rpc(method="notifications/cancelled", params={"requestId": id_of(message)})
    ],
    "says that its list has changed": saying(rpc(method="notifications/tools/list_changed")),
}


@attrs.define(eq=False)
class Hostile:
    """One peer.

    Attributes:
        habit: What it does.
        steps: How many messages it takes well before that.
        well: What it does until then.
        taken: The messages that it has got.
        sent: The messages that it has sent.
        budget: How many it may send.
    """

    habit: Habit
    steps: int = 0
    well: Callable[[Any], list[bytes]] = lambda message: []
    taken: list[bytes] = attrs.Factory(list)
    sent: int = 0
    budget: int = BUDGET

    def moves(self, text: bytes) -> list[Move]:
        """Return what it does about a message."""
        self.taken.append(text)
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        moves: list[Move] = []
        if len(self.taken) <= self.steps:
            moves += self.well(message)
        else:
            moves += self.habit(message, text)
        moves = moves[: max(0, self.budget - self.sent)]
        self.sent += len(moves)
        return moves

    async def play(self, wire: Any) -> None:
        """Act on what comes until the other side closes, or this one has done."""
        try:
            while text := await wire.receive():
                for move in self.moves(text):
                    if move is Act.CLOSE:
                        await wire.close()
                        return
                    await (wire.begin(b'{"jsonrpc": "2.0", "id": 1, "res') if move is Act.HALF else wire.send(move))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            with trio.CancelScope(shield=True):
                await wire.close()


Play = Callable[[Any], Awaitable[None]]
