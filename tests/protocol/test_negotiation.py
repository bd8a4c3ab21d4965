"""Revisions: which one each request speaks, what is refused with which error, and what requests and results carry.

The handshake and `server/discover` as users see them are rows of tests/requirements.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trio_mcp.eras.client_negotiation import (
    ModernClientEra,
    ServerDeclaration,
    modern_choice,
    read_discover_result,
    read_initialize_result,
    supported_by,
)
from trio_mcp.eras.rules import rules_of
from trio_mcp.eras.server_negotiation import LegacyServerEra, ModernServerEra, ServerIdentity, ServerNegotiation
from trio_mcp.errors import McpError, NegotiationError, RemoteProtocolError
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.testing.strategies import json_objects, json_values
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

MODERN = "2026-07-28"
INFO = {"name": "server", "version": "1"}
CLIENT = {"name": "client", "version": "2"}
INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, UNSUPPORTED = -32600, -32601, -32602, -32022


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_has_rules(revision: str) -> None:
    rules = rules_of(revision)
    assert rules.revision == revision
    assert rules.modern is (revision in MODERN_REVISIONS)
    modern = [ModernClientEra(revision, {}, {}), ModernServerEra(revision, {})] if rules.modern else []
    assert all(era.rules is rules for era in modern or [LegacyServerEra(revision)])
    with pytest.raises(KeyError):
        rules_of("1999-01-01")


# --- a server on one link ----------------------------------------------------------------------------------------


def negotiation(revisions: tuple[str, ...] = REVISIONS, instructions: str | None = None) -> ServerNegotiation:
    identity = ServerIdentity(INFO, lambda revision: {"tools": {"for": revision}}, instructions, revisions)
    return ServerNegotiation(identity)


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


@pytest.mark.parametrize("revision", LEGACY_REVISIONS)
def test_the_handshake_opens_the_session_once(revision: str) -> None:
    """Its requests speak that revision, whatever else their ``_meta`` has; requests of the modern era their own."""
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
    assert refusal(server.initialize, initialize()).code == INVALID_REQUEST
    for params in (None, {}, {"_meta": {"progressToken": 1}}, {"_meta": {meta.CLIENT_INFO: CLIENT}}, {"_meta": 5}):
        assert server.declaration(Request(2, "tools/list", params)) is server.session is session
    assert server.declaration(modern()).revision == MODERN
    assert "instructions" not in negotiation().initialize(initialize()), "optional, not nullable"


@pytest.mark.parametrize("revision", ["1999-01-01", "", MODERN, "2025-11-25 "])
@pytest.mark.parametrize("served", [REVISIONS, ("2024-11-05", "2025-03-26"), ("2024-11-05",)])
def test_an_unknown_revision_is_answered_with_the_latest_legacy_one(revision: str, served: tuple[str, ...]) -> None:
    """2025-11-25 `basic/lifecycle`: the latest version supported by the server; a modern one has no handshake."""
    latest = [each for each in served if each in LEGACY_REVISIONS][-1]
    assert negotiation(served).initialize(initialize(revision))["protocolVersion"] == latest


NO_HANDSHAKES = [Request(1, "initialize"), *(initialize(revision) for revision in (..., None, 20251125))]
NO_HANDSHAKES += [initialize(clientInfo=given) for given in (..., "me")]
NO_HANDSHAKES += [initialize(capabilities=given) for given in (..., [])]


@pytest.mark.parametrize("request_", NO_HANDSHAKES)
def test_a_malformed_handshake_is_refused_and_may_be_tried_again(request_: Request) -> None:
    """-32602, and the session is not half open."""
    server = negotiation()
    assert refusal(server.initialize, request_).code == INVALID_PARAMS
    assert server.session is None
    assert server.initialize(initialize())


MALFORMED = [modern(capabilities=given) for given in (..., None, [])]
MALFORMED += [modern(revision=given) for given in (..., None, 20260728)]
MALFORMED += [modern(info="me"), modern(level=3)]
MALFORMED += [Request(1, "tools/list", params) for params in (None, {}, {"_meta": None}, {"_meta": "x"})]


@pytest.mark.parametrize("request_", MALFORMED)
def test_a_request_that_lacks_a_required_field_is_malformed(request_: Request) -> None:
    """2026-07-28 `basic/index`, Per-request protocol fields: "the server MUST reject it with -32602"."""
    for revisions in (REVISIONS, MODERN_REVISIONS):
        assert refusal(negotiation(revisions).declaration, request_).code == INVALID_PARAMS


@pytest.mark.parametrize("requested", [..., None, 7, ["x"], "2025-11-25"])
def test_a_modern_server_names_its_versions_to_a_legacy_client(requested: object) -> None:
    """2026-07-28 `basic/versioning`: in any error to ``initialize``, because there is no fall-forward.

    The schema of -32022 requires ``requested``, a string: without one, the error is -32602 instead.
    """
    error = refusal(negotiation(MODERN_REVISIONS).initialize, initialize(requested))
    known = {"requested": requested} if isinstance(requested, str) else {}
    assert (error.code, error.data) == (
        UNSUPPORTED if known else INVALID_PARAMS,
        {"supported": list(MODERN_REVISIONS), **known},
    )
    assert MODERN in error.message


def test_a_legacy_server_answers_a_modern_probe_as_legacy_servers_do() -> None:
    """A recognised modern error would keep a dual-era client from the handshake (`transports/stdio`)."""
    server = negotiation(LEGACY_REVISIONS)
    assert refusal(partial(discover, server), modern("server/discover")).code == METHOD_NOT_FOUND
    error = refusal(server.declaration, modern("tools/list"))
    assert error.code == INVALID_REQUEST
    assert "initialize" in error.message
    server.initialize(initialize("2025-06-18"))
    assert server.declaration(modern("tools/list")) is server.session


@pytest.mark.parametrize("revisions", [(), ("1999-01-01",)])
def test_a_server_of_no_revision_is_refused(revisions: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="revisions"):
        negotiation(revisions)


metas = st.dictionaries(
    st.sampled_from([meta.PROTOCOL_VERSION, meta.CLIENT_CAPABILITIES, meta.CLIENT_INFO]),
    json_values() | st.just(MODERN),
)
nearly = {"protocolVersion": json_values() | st.sampled_from(REVISIONS), "_meta": metas}
nearly |= {name: json_values() for name in ("capabilities", "clientInfo")}
any_requests = st.builds(
    Request,
    st.just(1),
    st.sampled_from(["initialize", "server/discover", "tools/list"]),
    st.none() | json_objects() | st.fixed_dictionaries({}, optional=nearly),
)


@given(
    st.lists(any_requests, max_size=5),
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


# --- a client ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", ["protocolVersion", "capabilities", "serverInfo"])
@pytest.mark.parametrize("value", [None, 5, []])
def test_an_answer_without_the_essentials_is_not_a_handshake(name: str, value: object) -> None:
    """The schemas of all four revisions require the three."""
    with pytest.raises(NegotiationError):
        read_initialize_result({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": INFO, name: value})


@given(json_objects())
def test_no_answer_raises_anything_else(result: dict[str, Any]) -> None:
    assert read_discover_result(result) is None
    with pytest.raises(NegotiationError):
        read_initialize_result(result)


def test_a_discover_result_is_read() -> None:
    """2026-07-28 `server/discover`: ``serverInfo`` is in ``_meta``, and optional; any other result proves nothing."""
    result: dict[str, Any] = {"supportedVersions": [MODERN, "2025-11-25", 7], "capabilities": {"tools": {}}}
    result |= {"instructions": "do", "_meta": {meta.SERVER_INFO: INFO}}
    assert read_discover_result(result) == ([MODERN, "2025-11-25"], ServerDeclaration("", INFO, {"tools": {}}, "do"))
    for absent in ({}, {"_meta": None}, {"_meta": []}, {"_meta": {}}, {"_meta": {meta.SERVER_INFO: "x"}}):
        read = read_discover_result({"supportedVersions": [], "capabilities": {}, **absent})
        assert read == ([], ServerDeclaration("", None, {}, None))
    for other in ({"tools": []}, {"supportedVersions": MODERN, "capabilities": {}}, {"supportedVersions": [MODERN]}):
        assert read_discover_result(other) is None, "some legacy servers answer anything with something"


def test_the_choice_is_the_newest_modern_revision_of_both() -> None:
    """`basic/versioning`: "a mutually supported version"; those of the legacy era need a handshake."""
    assert modern_choice([*REVISIONS, "2099-01-01"]) == MODERN
    assert [modern_choice(given) for given in (list(LEGACY_REVISIONS), ["2099-01-01"], [])] == [None] * 3


@pytest.mark.parametrize(
    ("error", "versions"),
    [
        (McpError(-32022, "x", {"supported": [MODERN, 3], "requested": "y"}), [MODERN]),
        (McpError(-32022, "x", {"supported": MODERN}), []),
        *((McpError(code, "x"), []) for code in (-32022, -32021, -32020)),
        (McpError(-32601, "x", {"supported": [MODERN]}), None),
        *((McpError(code, "x"), None) for code in (-32602, -32600, -32000)),
    ],
)
def test_only_a_recognised_modern_error_is_evidence_of_a_modern_server(
    error: McpError, versions: list[str] | None
) -> None:
    """`transports/stdio`, Backward Compatibility: anything else means a legacy server, whatever its code."""
    assert supported_by(error) == versions


# --- what requests and results carry besides their content -------------------------------------------------------


def test_modern_requests_say_who_asks() -> None:
    """2026-07-28 `basic/index`: on every request, beside what the caller put into ``_meta``; its dicts stay."""
    era = ModernClientEra(MODERN, INFO, {"roots": {}})
    stamp = {meta.PROTOCOL_VERSION: MODERN, meta.CLIENT_INFO: INFO, meta.CLIENT_CAPABILITIES: {"roots": {}}}
    for params in (None, {}, {"a": 1}):
        assert era.request_params(params) == {**(params or {}), "_meta": stamp}
    given = {"_meta": {"progressToken": 3}}
    assert era.request_params(given) == {"_meta": {"progressToken": 3, **stamp}}
    assert given == {"_meta": {"progressToken": 3}}


@pytest.mark.parametrize("result", [{"resultType": "complete"}, {"resultType": "input_required"}, {"a": 1}])
def test_the_result_types_of_the_core_protocol_are_read(result: dict[str, Any]) -> None:
    """2026-07-28 `basic/index`, ResultType: "clients MUST treat an absent resultType as complete"."""
    assert ModernClientEra(MODERN, INFO, {}).read_result(result, "tools/call") == result


@pytest.mark.parametrize("kind", ["other", "", "Complete", None, 1, ["complete"], {}, "x" * 100_000])
def test_an_unknown_result_type_is_refused(kind: object) -> None:
    """The same section: "MUST be considered invalid"; and no megabyte of it reaches the log."""
    with pytest.raises(RemoteProtocolError, match="resultType") as caught:
        ModernClientEra(MODERN, INFO, {}).read_result({"resultType": kind}, "tools/call")
    assert len(str(caught.value)) < 300


@given(json_objects())
def test_modern_results_say_their_type_and_who_made_them(content: dict[str, Any]) -> None:
    """`basic/index`: ``resultType`` MUST, ``serverInfo`` SHOULD be there; what the handler said itself stands.

    The legacy era adds nothing: the handshake has said it all.
    """
    assert LegacyServerEra("2025-11-25").finish_result(content) is content
    era = ModernServerEra(MODERN, INFO)
    before = dict(content)
    assert era.finish_result(content) == {"resultType": "complete", **content, "_meta": {meta.SERVER_INFO: INFO}}
    assert content == before
    own = {"resultType": "input_required", "_meta": {"a": 1}}
    assert era.finish_result(own) == {**own, "_meta": {meta.SERVER_INFO: INFO, "a": 1}}
    assert own["_meta"] == {"a": 1}
