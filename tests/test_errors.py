"""Exceptions are copied for each caller that waits for the same thing, so each must survive that."""

from __future__ import annotations

import copy

import pytest

import trio_mcp.errors as errors
from trio_mcp.http.client.wire import Disconnected
from trio_mcp.server.features.resources import ResourceNotFound

RAISED = [
    errors.TrioMcpError("text"),
    errors.McpError(-32602, "no such tool", {"name": "x"}),
    errors.ToolError("text"),
    errors.RequestTimeout("tools/call", 0.5, "total_timeout"),
    errors.TransportError("text"),
    errors.SessionClosed("text"),
    errors.ProcessExited("python server.py", -9, "tail"),
    errors.HttpError("POST http://x/mcp", 503, "Busy", {"retry-after": "1"}, "later", "busy", 1.0),
    errors.LocalProtocolError("text"),
    errors.CapabilityError("tools/list", "tools", "server"),
    errors.RemoteProtocolError("text", -32602),
    errors.InputError("roots/list", "key", "ValueError: no"),
    errors.MessageTooLarge(5),
    errors.NegotiationError("text", ("2025-11-25",)),
    errors.ConfigError("mcp.json", ("line 1: no", "line 2: no")),
    ResourceNotFound("file:///x"),
    Disconnected("text"),
]


def test_every_public_exception_is_here() -> None:
    assert {getattr(errors, name) for name in errors.__all__ if name != "HttpTrouble"} <= set(map(type, RAISED))


@pytest.mark.parametrize("error", RAISED, ids=lambda each: type(each).__name__)
def test_a_copy_says_the_same(error: errors.TrioMcpError) -> None:
    error.server = "weather"
    twin = copy.copy(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
