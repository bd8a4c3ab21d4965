"""JSON-RPC lines of both eras, and checks of the answers; written from the specification, without any SDK."""

from __future__ import annotations

import json
from typing import Any, Literal

Era = Literal["legacy", "modern"]

LEGACY_VERSION = "2025-11-25"
MODERN_VERSION = "2026-07-28"

_CLIENT_INFO = {"name": "load-generator", "version": "1.0.0"}
# On every modern request: 2026-07-28, basic/index, "Per-request protocol fields".
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": _CLIENT_INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class WrongAnswer(Exception):
    """A contender gave a wrong answer, so its figures are worthless."""


def line(message: dict[str, Any]) -> bytes:
    """Return a message as the stdio transport frames it: compact JSON and a newline."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def request(request_id: int, method: str, params: dict[str, Any], era: Era) -> bytes:
    if era == "modern":
        params = {**params, "_meta": MODERN_META}
    return line({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def initialize(request_id: int) -> bytes:
    capabilities: dict[str, Any] = {"elicitation": {}}  # servers here ask nothing, but for a tool of `servers.replicas`
    params = {"protocolVersion": LEGACY_VERSION, "capabilities": capabilities, "clientInfo": _CLIENT_INFO}
    return request(request_id, "initialize", params, "legacy")


def initialized() -> bytes:
    return line({"jsonrpc": "2.0", "method": "notifications/initialized"})


def call(request_id: int, tool: str, arguments: dict[str, Any], era: Era) -> bytes:
    return request(request_id, "tools/call", {"name": tool, "arguments": arguments}, era)


def add_template(era: Era) -> bytes:
    """Return a ``tools/call`` of ``add`` as a template for ``%``, with three blanks: id, a and b."""
    # Measured: formatting it costs the load generator 0.3 µs.
    holes = call(-1, "add", {"a": -2, "b": -3}, era).replace(b"%", b"%%")
    return holes.replace(b'"id":-1', b'"id":%d').replace(b'"a":-2', b'"a":%d').replace(b'"b":-3', b'"b":%d')


def result_of(answer: bytes, request_id: int) -> dict[str, Any]:
    """Return the result object of the answer to `request_id`.

    Raises:
        WrongAnswer: If it is an error, or the answer to another request.
    """
    message = json.loads(answer)
    if message.get("id") != request_id or not isinstance(message.get("result"), dict):
        raise WrongAnswer(f"no result for request {request_id}: {answer[:300]!r}")
    result: dict[str, Any] = message["result"]
    return result


def check_tool_result(result: dict[str, Any], value: Any) -> None:
    """Check that both forms of a tool's result, structured and text, hold `value`.

    Raises:
        WrongAnswer: If one of them does not.
    """
    if result.get("isError"):
        raise WrongAnswer(f"the tool failed: {str(result)[:300]}")
    if result.get("structuredContent") != {"result": value}:
        raise WrongAnswer(f"structuredContent is not {str(value)[:80]}: {str(result)[:300]}")
    content = result.get("content")
    if not content or content[0].get("text") != str(value):
        raise WrongAnswer(f"the text content is not {str(value)[:80]}: {str(result)[:300]}")


def check_add_answers(answers: bytes, first_id: int, count: int, b: int) -> None:
    """Check `count` answers to ``add(a=id, b=b)`` with ids starting at `first_id`: each comes once, and is right.

    Raises:
        WrongAnswer: If an answer is wrong, missing, duplicate or unrequested.
    """
    outstanding = set(range(first_id, first_id + count))
    for answer in answers.splitlines():
        request_id = json.loads(answer).get("id")
        if request_id not in outstanding:
            raise WrongAnswer(f"not an answer to anything in flight: {answer[:300]!r}")
        outstanding.discard(request_id)
        check_tool_result(result_of(answer, request_id), request_id + b)
    if outstanding:
        raise WrongAnswer(f"{len(outstanding)} of {count} requests were never answered")
