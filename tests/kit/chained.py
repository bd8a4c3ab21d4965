"""A server of ten tools, each of which takes only what the one before has returned: ``python -m tests.kit.chained``."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable
from typing import Any

from tests.kit.targets import Connection, over_lines
from trio_mcp.conformance.wires.targets import WireTarget

__all__ = ["TOOLS", "Chained"]

TOOLS = [f"step_{number}" for number in range(1, 11)]

HELLO = {"capabilities": {"tools": {}}, "serverInfo": {"name": "chained", "version": "1"}}


class Chained:
    """The server.

    Args:
        make_id: Returns another id each time.

    Attributes:
        called: How often each tool was called, and how often it accepted.
    """

    def __init__(self, make_id: Callable[[], str] = lambda: secrets.token_hex(4)) -> None:
        self._ids: dict[str, set[str]] = {name: set() for name in TOOLS}
        self._make_id = make_id
        self.called = dict.fromkeys(TOOLS, 0)
        self.accepted = dict.fromkeys(TOOLS, 0)

    @property
    def target(self) -> WireTarget:
        """The server in memory, the same one for all connections."""
        return over_lines(self.handle)

    async def handle(self, connection: Connection, message: dict[str, Any]) -> None:
        """Answer a message."""
        if "id" in message:
            answer = self.respond(message["method"], message.get("params") or {})
            await connection.say({"id": message["id"], **answer})

    def listed(self) -> list[dict[str, Any]]:
        """Return the tools."""
        key = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
        reads = {"readOnlyHint": True}
        first = {"name": TOOLS[0], "inputSchema": {"type": "object"}, "annotations": reads}
        return [first, *({"name": name, "inputSchema": key, "annotations": reads} for name in TOOLS[1:])]

    def call(self, name: str, arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        place = TOOLS.index(name)
        self.called[name] += 1
        given = arguments.get("key") if isinstance(arguments, dict) else None
        if place and (not isinstance(given, str) or given not in self._ids[TOOLS[place - 1]]):
            text = f"there is no key {given!r} of {TOOLS[place - 1]}"
            return {"isError": True, "content": [{"type": "text", "text": text}]}
        self.accepted[name] += 1
        made = self._make_id()
        self._ids[name].add(made)
        found = {"id": made}
        texts = [f"The key is {made}.", json.dumps(found)]
        return {"content": [{"type": "text", "text": text} for text in texts], "structuredContent": found}

    def respond(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Respond to a request."""
        match method:
            case "initialize":
                return {"result": {"protocolVersion": "2025-11-25", **HELLO}}
            case "ping":
                return {"result": {}}
            case "tools/list" if "cursor" in params:
                return {"error": {"code": -32602, "message": "there is no such page"}}
            case "tools/list":
                return {"result": {"tools": self.listed()}}
            case "tools/call" if params.get("name") in TOOLS:
                return {"result": self.call(params["name"], params.get("arguments"))}
            case "tools/call":
                return {"error": {"code": -32602, "message": "there is no such tool"}}
        return {"error": {"code": -32601, "message": "there is no such method"}}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def main() -> None:
    """Serve over standard input and output."""
    server = Chained()
    for line in sys.stdin:
        try:
            message = json.loads(line, parse_constant=_refuse)
            answer = server.respond(message["method"], message.get("params") or {})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
    print(json.dumps(server.accepted), file=sys.stderr)


if __name__ == "__main__":
    main()
