"""A server on one link: which revision each request speaks, and what is refused with which error."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import json_objects, json_values, texts
from trio_mcp.eras.server_negotiation import ServerIdentity, ServerNegotiation
from trio_mcp.errors import McpError
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

MODERN = "2026-07-28"
INFO = {"name": "server", "version": "1"}
CLIENT = {"name": "client", "version": "2"}
NEWEST_FIRST = list(reversed(REVISIONS))
INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, UNSUPPORTED = -32600, -32601, -32602, -32022


def negotiation(revisions: tuple[str, ...] = REVISIONS, instructions: str | None = None) -> ServerNegotiation:
    return ServerNegotiation(
        ServerIdentity(INFO, lambda revision: {"tools": {"for": revision}}, instructions, revisions)
    )


def initialize(revision: object = "2025-11-25", **changes: Any) -> Request:
    params = {"protocolVersion": revision, "capabilities": {"roots": {}}, "clientInfo": CLIENT, **changes}
    return Request(1, "initialize", {key: value for key, value in params.items() if value is not ...})


def modern(method: str = "tools/list", revision: object = MODERN, **changes: Any) -> Request:
    """Return a request with the fields of the modern era; a change to ``...`` leaves the field out."""
    names = {"info": meta.CLIENT_INFO, "capabilities": meta.CLIENT_CAPABILITIES, "level": meta.LOG_LEVEL}
    fields = {meta.PROTOCOL_VERSION: revision, meta.CLIENT_INFO: CLIENT, meta.CLIENT_CAPABILITIES: {"roots": {}}}
    fields |= {names[key]: value for key, value in changes.items()}
    return Request(1, method, {"_meta": {key: value for key, value in fields.items() if value is not ...}})


def discover(server: ServerNegotiation, request: Request) -> dict[str, Any]:
    return server.identity.discover(server.declaration(request))


def refusal(call: Any, request: Request) -> McpError:
    with pytest.raises(McpError) as caught:
        call(request)
    return caught.value


# --- the handshake -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", LEGACY_REVISIONS)
def test_a_supported_revision_is_confirmed(revision: str) -> None:
    """2025-11-25 `basic/lifecycle`, Version Negotiation: "it MUST respond with the same version"."""
    server = negotiation(instructions="do")
    assert server.session is None
    assert server.initialize(initialize(revision)) == {
        "protocolVersion": revision,
        "capabilities": {"tools": {"for": revision}},
        "serverInfo": INFO,
        "instructions": "do",
    }
    session = server.session
    assert session is not None
    assert (session.revision, session.client_info, session.capabilities) == (revision, CLIENT, {"roots": {}})
    assert not server.initialized


@pytest.mark.parametrize("revision", ["1999-01-01", "", MODERN, "2025-11-25 "])
@pytest.mark.parametrize("served", [REVISIONS, ("2024-11-05", "2025-03-26"), ("2024-11-05",)])
def test_an_unknown_revision_is_answered_with_the_latest_legacy_one(revision: str, served: tuple[str, ...]) -> None:
    """The same section: "This SHOULD be the latest version supported by the server"; a modern one has no handshake."""
    latest = [each for each in served if each in LEGACY_REVISIONS][-1]
    assert negotiation(served).initialize(initialize(revision))["protocolVersion"] == latest


def test_instructions_are_left_out_if_there_are_none() -> None:
    """They are optional, not nullable."""
    assert "instructions" not in negotiation().initialize(initialize())


@pytest.mark.parametrize(
    "request_",
    [
        Request(1, "initialize"),
        Request(1, "initialize", {}),
        initialize(...),
        initialize(None),
        initialize(20251125),
        initialize(clientInfo=...),
        initialize(clientInfo="me"),
        initialize(capabilities=...),
        initialize(capabilities=[]),
    ],
)
def test_a_malformed_handshake_is_refused_and_may_be_tried_again(request_: Request) -> None:
    """-32602, and the session is not half open."""
    server = negotiation()
    assert refusal(server.initialize, request_).code == INVALID_PARAMS
    assert server.session is None
    assert server.initialize(initialize())


def test_a_second_handshake_is_refused() -> None:
    """It would change the rules under the requests that are running; the first one stays in force."""
    server = negotiation()
    server.initialize(initialize("2025-06-18"))
    assert refusal(server.initialize, initialize("2024-11-05")).code == INVALID_REQUEST
    assert server.session is not None
    assert server.session.revision == "2025-06-18"


def test_a_request_before_the_handshake_is_refused() -> None:
    """2025-11-25 `basic/lifecycle`: initialization "MUST be the first interaction"."""
    legacy_only = negotiation(LEGACY_REVISIONS)
    error = refusal(legacy_only.declaration, Request(1, "tools/list"))
    assert error.code == INVALID_REQUEST
    assert "initialize" in error.message


def test_after_the_handshake_requests_speak_its_revision() -> None:
    """Also those with a ``_meta`` of other content, or with none of an object."""
    server = negotiation()
    server.initialize(initialize("2025-06-18"))
    for params in (None, {}, {"_meta": {"progressToken": 1}}, {"_meta": {meta.CLIENT_INFO: CLIENT}}, {"_meta": 5}):
        assert server.declaration(Request(2, "tools/list", params)) is server.session


# --- the modern era ----------------------------------------------------------------------------------------------


def test_a_modern_request_declares_for_itself() -> None:
    """2026-07-28 `basic/index`, Statelessness: nothing is inferred from the requests before it."""
    server = negotiation()
    first = server.declaration(modern(level="debug"))
    assert (first.revision, first.client_info, first.capabilities, first.log_level) == (
        MODERN,
        CLIENT,
        {"roots": {}},
        "debug",
    )
    second = server.declaration(modern(info=..., capabilities={}))
    assert (second.client_info, second.capabilities, second.log_level) == (None, {}, None)
    assert server.session is None


def test_both_eras_share_a_link() -> None:
    """2026-07-28 `basic/versioning`: "MAY serve both eras concurrently on the same endpoint or process"."""
    server = negotiation()
    server.initialize(initialize("2025-03-26"))
    assert server.declaration(modern()).revision == MODERN
    assert server.declaration(Request(3, "tools/list")).revision == "2025-03-26"


@given(texts().filter(lambda text: text not in MODERN_REVISIONS) | st.sampled_from(LEGACY_REVISIONS))
def test_an_unsupported_revision_is_answered_with_those_supported(revision: str) -> None:
    """2026-07-28 `basic/versioning`: -32022 with ``supported`` and ``requested``."""
    for call in (negotiation().declaration, partial(discover, negotiation())):
        error = refusal(call, modern("server/discover", revision))
        assert error.code == UNSUPPORTED
        assert error.data == {"supported": NEWEST_FIRST, "requested": revision}


@pytest.mark.parametrize(
    "request_",
    [
        modern(capabilities=...),
        modern(capabilities=None),
        modern(capabilities=[]),
        modern(revision=None),
        modern(revision=20260728),
        modern(info="me"),
        modern(level=3),
        modern(revision=...),
        Request(1, "tools/list"),
        Request(1, "tools/list", {}),
        Request(1, "tools/list", {"_meta": None}),
        Request(1, "tools/list", {"_meta": "x"}),
    ],
)
def test_a_request_that_lacks_a_required_field_is_malformed(request_: Request) -> None:
    """2026-07-28 `basic/index`, Per-request protocol fields: "the server MUST reject it with -32602"."""
    for revisions in (REVISIONS, MODERN_REVISIONS):
        assert refusal(negotiation(revisions).declaration, request_).code == INVALID_PARAMS


def test_a_client_of_no_era_learns_what_is_served() -> None:
    """The error may be all that its user gets to see."""
    assert refusal(negotiation().declaration, Request(1, "tools/list")).data == {"supported": NEWEST_FIRST}


def test_discover() -> None:
    """2026-07-28 `server/discover`: versions, capabilities, caching hints, and who the server is."""
    assert discover(negotiation(instructions="do"), modern("server/discover")) == {
        "resultType": "complete",
        "supportedVersions": NEWEST_FIRST,
        "capabilities": {"tools": {"for": MODERN}},
        "ttlMs": 0,
        "cacheScope": "private",
        "instructions": "do",
        "_meta": {meta.SERVER_INFO: INFO},
    }


def test_discover_needs_the_fields_of_every_request() -> None:
    """`server/discover` carries the standard ``_meta``; in a legacy session the method does not exist."""
    server = negotiation()
    assert refusal(partial(discover, server), Request(1, "server/discover")).code == INVALID_PARAMS
    server.initialize(initialize())
    assert refusal(partial(discover, server), Request(1, "server/discover")).code == METHOD_NOT_FOUND
    assert discover(server, modern("server/discover"))["supportedVersions"] == NEWEST_FIRST


# --- servers of one era ------------------------------------------------------------------------------------------


def test_a_modern_server_names_its_versions_to_a_legacy_client() -> None:
    """2026-07-28 `basic/versioning`: in any error to ``initialize``, because there is no fall-forward."""
    error = refusal(negotiation(MODERN_REVISIONS).initialize, initialize("2025-11-25"))
    assert (error.code, error.data) == (UNSUPPORTED, {"supported": list(MODERN_REVISIONS), "requested": "2025-11-25"})
    assert MODERN in error.message


@pytest.mark.parametrize("requested", [..., None, 7, ["x"]])
def test_the_unsupported_version_error_always_says_what_was_requested(requested: object) -> None:
    """Its schema requires ``requested``, a string: without one, the error is -32602 instead."""
    error = refusal(negotiation(MODERN_REVISIONS).initialize, initialize(requested))
    assert (error.code, error.data) == (INVALID_PARAMS, {"supported": list(MODERN_REVISIONS)})
    assert MODERN in error.message


def test_a_legacy_server_answers_a_modern_probe_as_legacy_servers_do() -> None:
    """A recognised modern error would keep a dual-era client from the handshake (`transports/stdio`)."""
    server = negotiation(LEGACY_REVISIONS)
    assert refusal(partial(discover, server), modern("server/discover")).code == METHOD_NOT_FOUND
    assert refusal(server.declaration, modern("tools/list")).code == INVALID_REQUEST
    server.initialize(initialize("2025-06-18"))
    assert server.declaration(modern("tools/list")) is server.session


@pytest.mark.parametrize("revisions", [(), ("1999-01-01",)])
def test_a_server_of_no_revision_is_refused(revisions: tuple[str, ...]) -> None:
    """It could not answer any client."""
    with pytest.raises(ValueError, match="revisions"):
        negotiation(revisions)


@given(
    st.lists(
        st.builds(
            Request,
            st.just(1),
            st.sampled_from(["initialize", "server/discover", "tools/list"]),
            st.none()
            | json_objects()
            | st.fixed_dictionaries(
                {},
                optional={
                    "_meta": st.dictionaries(
                        st.sampled_from([meta.PROTOCOL_VERSION, meta.CLIENT_CAPABILITIES, meta.CLIENT_INFO]),
                        json_values() | st.just(MODERN),
                    ),
                    "protocolVersion": json_values() | st.sampled_from(REVISIONS),
                    "capabilities": json_values(),
                    "clientInfo": json_values(),
                },
            ),
        ),
        max_size=5,
    ),
    st.sampled_from([REVISIONS, LEGACY_REVISIONS, MODERN_REVISIONS]),
)
def test_whatever_arrives_is_answered(requests: list[Request], revisions: tuple[str, ...]) -> None:
    """With a result or an McpError, never with another exception; and the session opens by ``initialize`` only."""
    server = negotiation(revisions)
    calls = {
        "initialize": server.initialize,
        "server/discover": partial(discover, server),
        "tools/list": server.declaration,
    }
    opened = False
    for request in requests:
        try:
            calls[request.method](request)
        except McpError:
            continue
        opened |= request.method == "initialize"
        assert (server.session is not None) == opened
