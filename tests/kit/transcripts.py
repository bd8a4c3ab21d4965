"""Small transcripts, written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta

OLD, NEW = "2025-11-25", "2026-07-28"


def messages(*told: tuple[str, dict[str, Any]]) -> list[Event]:
    """Return events of messages, each with its sender; over HTTP each request in an exchange of its own."""
    found = [Event("open", "client", facts={"transport": "memory"})]
    return found + [Event("message", sender, message={"jsonrpc": "2.0", **m}) for sender, m in told]  # type: ignore[arg-type]


def opening(capabilities: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    params = {"protocolVersion": OLD, "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}
    yield "client", {"id": 0, "method": "initialize", "params": params}
    yield "server", {"id": 0, "result": {"protocolVersion": OLD, "capabilities": {}}}
    yield "client", {"method": "notifications/initialized"}


def asked(capabilities: dict[str, Any], *questions: tuple[str, dict[str, Any], dict[str, Any]]) -> list[Event]:
    """Return a session in which a server asks: the method, the parameters and what the client answers."""
    told = [*opening(capabilities)]
    for at, (method, params, answer) in enumerate(questions):
        told += [("server", {"id": at, "method": method, "params": params}), ("client", {"id": at, **answer})]
    return messages(*told)


def fields(**more: Any) -> dict[str, Any]:
    return {"_meta": {meta.PROTOCOL_VERSION: NEW, meta.CLIENT_CAPABILITIES: more.pop("declared", {})}, **more}
