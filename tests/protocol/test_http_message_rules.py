"""A row for each rule that a message can break: status, code, and whose id the answer has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.http_requests import (
    ANSWER,
    BATCH,
    BOTH_ERAS,
    CALL,
    CALL_FIELDS,
    INITIALIZE,
    JSON_ONLY,
    LEGACY,
    LEGACY_ONLY,
    LIST,
    META,
    MODERN,
    MODERN_ONLY,
    NEW_LEGACY_ONLY,
    NOTE,
    SESSION,
    STATELESS,
    fields,
    legacy_fields,
    modern,
    modern_fields,
    post,
)
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.statuses import MESSAGE_RULES, Refusal, RuleSettings
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import Batch, ErrorData, ErrorResponse, Malformed, Notification, Request
from trio_mcp.types import meta

GARBAGE = {
    "no JSON": b"{",
    "no object": b"1",
    "no JSON-RPC": b'{"id":7}',
    "a bad id": b'{"jsonrpc":"2.0","id":null,"method":"x"}',
    "an empty batch": b"[]",
    "a broken answer": b'{"jsonrpc":"2.0","id":7,"result":1}',
}

# Each row: the message, the fields, the settings; the rule that refuses, with which status and error code.
REFUSED: dict[str, tuple[Any, Headers, RuleSettings, str, int, int]] = {
    **{
        name: (decode(text), legacy_fields(), BOTH_ERAS, "is-message", 400, -32700 if name == "no JSON" else -32600)
        for name, text in GARBAGE.items()
    },
    "params are a list": (
        decode(b'{"jsonrpc":"2.0","id":7,"method":"x","params":[]}'),
        modern_fields("x"),
        BOTH_ERAS,
        "is-message",
        400,
        -32602,
    ),
    # modern
    "batch": (BATCH, modern_fields(), BOTH_ERAS, "one-message", 400, -32600),
    "batch with a modern request": (Batch((LIST, modern())), legacy_fields(), BOTH_ERAS, "one-message", 400, -32600),
    "answer": (ANSWER, modern_fields(), BOTH_ERAS, "one-message", 400, -32600),
    "error answer": (ErrorResponse(1, ErrorData(1, "")), modern_fields(), BOTH_ERAS, "one-message", 400, -32600),
    "no _meta": (LIST, modern_fields(), BOTH_ERAS, "revision-named", 400, -32602),
    "_meta is a list": (
        Request(7, "tools/list", {"_meta": []}),
        modern_fields(),
        BOTH_ERAS,
        "revision-named",
        400,
        -32602,
    ),
    "no version in _meta": (
        modern("tools/list", {meta.PROTOCOL_VERSION: ...}),
        modern_fields(),
        BOTH_ERAS,
        "revision-named",
        400,
        -32602,
    ),
    "version is a number": (
        modern("tools/list", {meta.PROTOCOL_VERSION: 1}),
        modern_fields(),
        BOTH_ERAS,
        "revision-named",
        400,
        -32602,
    ),
    "initialize with the modern header": (
        INITIALIZE,
        modern_fields("initialize"),
        BOTH_ERAS,
        "revision-named",
        400,
        -32602,
    ),
    "no version header": (modern(), modern_fields(MCP_Protocol_Version=None), BOTH_ERAS, "version-agrees", 400, -32020),
    "version header twice": (
        modern(),
        modern_fields(MCP_Protocol_Version=[MODERN] * 2),
        BOTH_ERAS,
        "version-agrees",
        400,
        -32020,
    ),
    "legacy header, modern body": (
        modern(),
        modern_fields(MCP_Protocol_Version=LEGACY),
        BOTH_ERAS,
        "version-agrees",
        400,
        -32020,
    ),
    "unknown body version": (
        modern("tools/list", {meta.PROTOCOL_VERSION: "v9"}),
        modern_fields(),
        BOTH_ERAS,
        "version-agrees",
        400,
        -32020,
    ),
    "unknown version header": (
        modern(),
        modern_fields(MCP_Protocol_Version="v9"),
        BOTH_ERAS,
        "version-agrees",
        400,
        -32020,
    ),
    "notification disagrees": (
        Notification("x", {"_meta": META}),
        modern_fields("x", MCP_Protocol_Version=LEGACY),
        BOTH_ERAS,
        "version-agrees",
        400,
        -32020,
    ),
    "unknown version": (
        modern("tools/list", {meta.PROTOCOL_VERSION: "v9"}),
        modern_fields(MCP_Protocol_Version="v9"),
        BOTH_ERAS,
        "revision-served",
        400,
        -32022,
    ),
    "unknown version, nothing in _meta": (
        LIST,
        modern_fields(MCP_Protocol_Version="v9"),
        BOTH_ERAS,
        "revision-named",
        400,
        -32022,
    ),
    "unknown version, a number in _meta": (
        modern("tools/list", {meta.PROTOCOL_VERSION: 9}),
        modern_fields(MCP_Protocol_Version="v9"),
        BOTH_ERAS,
        "revision-named",
        400,
        -32602,
    ),
    "legacy version in _meta": (
        modern("tools/list", {meta.PROTOCOL_VERSION: LEGACY}),
        modern_fields(MCP_Protocol_Version=LEGACY),
        BOTH_ERAS,
        "revision-served",
        400,
        -32022,
    ),
    "notification of an unknown version": (
        NOTE,
        modern_fields(NOTE.method, MCP_Protocol_Version="v9"),
        BOTH_ERAS,
        "revision-served",
        400,
        -32022,
    ),
    "no capabilities": (
        modern("tools/list", {meta.CLIENT_CAPABILITIES: ...}),
        modern_fields(),
        BOTH_ERAS,
        "client-described",
        400,
        -32602,
    ),
    "client info is a text": (
        modern("tools/list", {meta.CLIENT_INFO: "x"}),
        modern_fields(),
        BOTH_ERAS,
        "client-described",
        400,
        -32602,
    ),
    "unknown log level": (
        modern("tools/list", {meta.LOG_LEVEL: "loud"}),
        modern_fields(),
        BOTH_ERAS,
        "client-described",
        400,
        -32602,
    ),
    "no method header": (modern(), modern_fields(Mcp_Method=None), BOTH_ERAS, "headers-agree", 400, -32020),
    "another method": (modern(), modern_fields("prompts/list"), BOTH_ERAS, "headers-agree", 400, -32020),
    "another name": (
        CALL,
        modern_fields("tools/call", **{**CALL_FIELDS, "Mcp_Name": "x"}),
        BOTH_ERAS,
        "headers-agree",
        400,
        -32020,
    ),
    "another parameter": (
        CALL,
        modern_fields("tools/call", **{**CALL_FIELDS, "Mcp_Param_Region": "us"}),
        BOTH_ERAS,
        "headers-agree",
        400,
        -32020,
    ),
    "no parameter": (CALL, modern_fields("tools/call", Mcp_Name="sql"), BOTH_ERAS, "headers-agree", 400, -32020),
    "notification, another method": (NOTE, modern_fields("x"), BOTH_ERAS, "method-agrees", 400, -32020),
    **{
        f"removed: {method}": (modern(method), modern_fields(method), BOTH_ERAS, "method-exists", 404, -32601)
        for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
    },
    "a stream that is not accepted": (
        modern("subscriptions/listen"),
        modern_fields("subscriptions/listen", Accept="application/json"),
        JSON_ONLY,
        "stream-acceptable",
        406,
        -32600,
    ),
    # legacy
    "initialize, modern server": (INITIALIZE, fields(), MODERN_ONLY, "handshake-served", 400, -32020),
    "nothing said, modern server": (LIST, fields(), MODERN_ONLY, "handshake-served", 400, -32020),
    "session id, modern server": (
        LIST,
        fields({"Mcp-Session-Id": SESSION}),
        MODERN_ONLY,
        "handshake-served",
        400,
        -32020,
    ),
    "legacy version, modern server": (LIST, legacy_fields(), MODERN_ONLY, "handshake-served", 400, -32022),
    "unknown version, legacy server": (
        LIST,
        legacy_fields(MCP_Protocol_Version="v9"),
        LEGACY_ONLY,
        "version-valid",
        400,
        -32600,
    ),
    "modern client, legacy server": (modern(), modern_fields(), LEGACY_ONLY, "version-valid", 400, -32600),
    "legacy version not served": (
        LIST,
        fields({"MCP-Protocol-Version": "2024-11-05"}),
        NEW_LEGACY_ONLY,
        "version-valid",
        400,
        -32600,
    ),
    "two versions": (
        LIST,
        legacy_fields(MCP_Protocol_Version=[LEGACY, LEGACY]),
        LEGACY_ONLY,
        "version-valid",
        400,
        -32600,
    ),
    "initialize in a session": (INITIALIZE, legacy_fields(), BOTH_ERAS, "initialize-opens", 400, -32600),
    "no session": (LIST, fields(), BOTH_ERAS, "session-given", 400, -32600),
    "notification without a session": (NOTE, fields(), BOTH_ERAS, "session-given", 400, -32600),
    "answer without a session": (ANSWER, fields(), BOTH_ERAS, "session-given", 400, -32600),
    "batch without a session": (BATCH, fields(), BOTH_ERAS, "session-given", 400, -32600),
    "unknown session": (LIST, legacy_fields(Mcp_Session_Id="x"), BOTH_ERAS, "session-known", 404, -32600),
    "answer in an unknown session": (
        ANSWER,
        legacy_fields(Mcp_Session_Id="x"),
        BOTH_ERAS,
        "session-known",
        404,
        -32600,
    ),
    "two sessions": (LIST, legacy_fields(Mcp_Session_Id=[SESSION, "old"]), BOTH_ERAS, "session-known", 404, -32600),
    "nothing said, 2025-03-26 not served": (LIST, fields(), NEW_LEGACY_ONLY, "revision-assumed", 400, -32600),
    "batch after 2025-03-26": (BATCH, legacy_fields(), BOTH_ERAS, "batch-known", 400, -32600),
    "batch of 2025-06-18, stateless": (
        BATCH,
        fields({"MCP-Protocol-Version": "2025-06-18"}),
        STATELESS,
        "batch-known",
        400,
        -32600,
    ),
}


@pytest.mark.parametrize("row", list(REFUSED))
def test_a_message_is_refused(row: str) -> None:
    """Each rule for messages: status, code, and the id of the request that it refuses."""
    message, headers, settings, rule, status, code = REFUSED[row]
    verdict = post(message, headers, settings)
    assert isinstance(verdict, Refusal)
    assert (verdict.rule, verdict.status, verdict.error.error.code) == (rule, status, code)
    known = message.id if isinstance(message, Request) else None
    if isinstance(message, Malformed) and message.expects_answer:
        known = message.id
    assert verdict.error.id == known
    if code == -32022:
        assert verdict.error.error.data["supported"] == settings.identity.supported
        assert verdict.error.error.data["requested"] == headers.get("MCP-Protocol-Version")
    if settings is LEGACY_ONLY:
        # A modern code would keep the client from falling back to initialize (S, Backward Compatibility).
        assert code not in (-32020, -32021, -32022)


def test_every_rule_has_a_row() -> None:
    """A rule that refuses nothing is either dead or untested."""
    assert sorted(rule.name for rule in MESSAGE_RULES.rules) == sorted({row[3] for row in REFUSED.values()})


def test_a_client_without_a_session_is_told_how_to_go_on() -> None:
    """With the handshake; or without one, where the modern era is served too."""
    both = post(LIST, fields(), BOTH_ERAS).error.error.message
    assert "send initialize first" in both
    assert f"or speak {MODERN} with MCP-Protocol-Version and params._meta" in both
    legacy = post(LIST, fields(), LEGACY_ONLY).error.error.message
    assert legacy.endswith("send initialize first")


def test_what_a_modern_server_tells_a_legacy_client() -> None:
    """2026-07-28 basic/versioning: any error to initialize names the versions; it may be all that users get to see."""
    for headers in (fields(), legacy_fields()):
        error = post(INITIALIZE, headers, MODERN_ONLY).error.error
        assert MODERN in error.message or MODERN in error.data["supported"]
        assert error.data["supported"] == [MODERN]
