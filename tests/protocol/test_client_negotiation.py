"""How a client interprets what a server says about its revisions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.strategies import json_objects
from trio_mcp.eras.client_negotiation import (
    ServerDeclaration,
    modern_choice,
    read_discover_result,
    read_initialize_result,
    supported_by,
)
from trio_mcp.eras.server_negotiation import ServerIdentity, ServerNegotiation
from trio_mcp.errors import McpError, NegotiationError
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS

MODERN = "2026-07-28"
INFO = {"name": "server", "version": "1"}


@pytest.mark.parametrize("revision", LEGACY_REVISIONS)
def test_an_initialize_result_is_read(revision: str) -> None:
    """Any revision the client knows may be chosen, not only the one offered (`basic/lifecycle`)."""
    result = {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": INFO, "instructions": "do"}
    assert read_initialize_result(result) == ServerDeclaration(revision, INFO, {"tools": {}}, "do")
    del result["instructions"]
    assert read_initialize_result(result).instructions is None


@pytest.mark.parametrize("revision", ["1999-01-01", MODERN, "", "x" * 100_000])
def test_a_revision_that_the_client_does_not_speak_ends_the_negotiation(revision: str) -> None:
    """Also a modern one: it can't be the outcome of a handshake. The error names it, within reason."""
    with pytest.raises(NegotiationError) as caught:
        read_initialize_result({"protocolVersion": revision, "capabilities": {}, "serverInfo": INFO})
    assert caught.value.supported == (revision,)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "changes",
    [
        {"protocolVersion": None},
        {"protocolVersion": 5},
        {"capabilities": None},
        {"capabilities": []},
        {"serverInfo": None},
        {"serverInfo": "x"},
    ],
)
def test_an_answer_without_the_essentials_is_not_a_handshake(changes: dict[str, Any]) -> None:
    """The schemas of all four revisions require the three."""
    with pytest.raises(NegotiationError):
        read_initialize_result({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": INFO, **changes})


@given(json_objects())
def test_no_answer_raises_anything_else(result: dict[str, Any]) -> None:
    """Whatever a server answers to the probe or to the handshake."""
    assert read_discover_result(result) is None
    with pytest.raises(NegotiationError):
        read_initialize_result(result)


def test_a_discover_result_is_read() -> None:
    """2026-07-28 `server/discover`: ``serverInfo`` is in ``_meta``, and optional."""
    result: dict[str, Any] = {
        "supportedVersions": [MODERN, "2025-11-25", 7],
        "capabilities": {"tools": {}},
        "instructions": "do",
        "_meta": {meta.SERVER_INFO: INFO},
    }
    assert read_discover_result(result) == ([MODERN, "2025-11-25"], ServerDeclaration("", INFO, {"tools": {}}, "do"))
    for absent in ({}, {"_meta": None}, {"_meta": []}, {"_meta": {}}, {"_meta": {meta.SERVER_INFO: "x"}}):
        read = read_discover_result({"supportedVersions": [], "capabilities": {}, **absent})
        assert read == ([], ServerDeclaration("", None, {}, None))


@pytest.mark.parametrize(
    "result",
    [{}, {"tools": []}, {"supportedVersions": MODERN, "capabilities": {}}, {"supportedVersions": [MODERN]}],
)
def test_any_other_result_is_not_evidence_of_a_modern_server(result: dict[str, Any]) -> None:
    """Some legacy servers answer anything with something."""
    assert read_discover_result(result) is None


def test_the_choice_is_the_newest_modern_revision_of_both() -> None:
    """`basic/versioning`: "a mutually supported version"; those of the legacy era need a handshake."""
    assert modern_choice([*REVISIONS, "2099-01-01"]) == MODERN
    assert modern_choice(list(LEGACY_REVISIONS)) is None
    assert modern_choice(["2099-01-01"]) is None
    assert modern_choice([]) is None


@pytest.mark.parametrize(
    ("error", "versions"),
    [
        (McpError(-32022, "x", {"supported": [MODERN, 3], "requested": "y"}), [MODERN]),
        (McpError(-32022, "x", {"supported": MODERN}), []),
        (McpError(-32022, "x"), []),
        (McpError(-32021, "x", {"requiredCapabilities": {}}), []),
        (McpError(-32020, "x"), []),
        (McpError(-32601, "x", {"supported": [MODERN]}), None),
        (McpError(-32602, "x"), None),
        (McpError(-32600, "x"), None),
        (McpError(-32000, "x"), None),
    ],
)
def test_only_a_recognised_modern_error_is_evidence_of_a_modern_server(
    error: McpError, versions: list[str] | None
) -> None:
    """`transports/stdio`, Backward Compatibility: anything else means a legacy server, whatever its code."""
    assert supported_by(error) == versions


@pytest.mark.parametrize("served", [REVISIONS, LEGACY_REVISIONS, (MODERN,), ("2024-11-05",)])
def test_client_and_server_find_each_other(served: tuple[str, ...]) -> None:
    """Probe, then handshake if the probe says so: our client understands each of our servers."""
    server = ServerNegotiation(ServerIdentity(INFO, lambda _: {}, None, served))
    stamp = {meta.PROTOCOL_VERSION: MODERN, meta.CLIENT_CAPABILITIES: {}}
    probe = Request(1, "server/discover", {"_meta": stamp})
    if MODERN in served:
        read = read_discover_result(server.identity.discover(server.declaration(probe)))
        assert read is not None
        assert modern_choice(read[0]) == MODERN
    else:
        with pytest.raises(McpError) as caught:
            server.identity.discover(server.declaration(probe))
        assert supported_by(caught.value) is None
        params = {"protocolVersion": LEGACY_REVISIONS[-1], "capabilities": {}, "clientInfo": INFO}
        result = server.initialize(Request(2, "initialize", params))
        assert read_initialize_result(result).revision == served[-1]
