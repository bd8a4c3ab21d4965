"""The ladder of a server's HTTP endpoint: rows for messages that pass, and what holds for any head and message.

S: 2026-07-28 `basic/transports/streamable-http`; L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    SESSIONS,
    STATELESS,
    fields,
    head,
    legacy_fields,
    modern,
    modern_fields,
    post,
    serving,
)
from tests.strategies import batches, messages
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.statuses import (
    Accept,
    Refusal,
    RuleSettings,
    status_of,
    too_large,
)
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import Batch, ErrorData, ErrorResponse, Malformed, Notification, Request, Response
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS, Era

# Each row: the message, the fields, the settings; kind, era, revision and session of what is accepted.
PASSES: dict[str, tuple[Any, Headers, RuleSettings, tuple[Any, ...]]] = {
    "modern request": (modern(), modern_fields(), BOTH_ERAS, ("request", Era.MODERN, MODERN, None)),
    "modern server": (modern(), modern_fields(), MODERN_ONLY, ("request", Era.MODERN, MODERN, None)),
    "session id is ignored": (
        modern(),
        modern_fields(Mcp_Session_Id="x"),
        BOTH_ERAS,
        ("request", Era.MODERN, MODERN, None),
    ),
    "client info is optional": (
        modern("tools/list", {meta.CLIENT_INFO: ...}),
        modern_fields(),
        BOTH_ERAS,
        ("request", Era.MODERN, MODERN, None),
    ),
    "call": (CALL, modern_fields("tools/call", **CALL_FIELDS), BOTH_ERAS, ("request", Era.MODERN, MODERN, None)),
    "discover": (
        modern("server/discover"),
        modern_fields("server/discover"),
        BOTH_ERAS,
        ("request", Era.MODERN, MODERN, None),
    ),
    "a method of one's own": (modern("x/y"), modern_fields("x/y"), BOTH_ERAS, ("request", Era.MODERN, MODERN, None)),
    "modern notification by header": (
        NOTE,
        modern_fields(Mcp_Method=None),
        BOTH_ERAS,
        ("notification", Era.MODERN, MODERN, None),
    ),
    "modern notification by _meta": (
        Notification("x", {"_meta": META}),
        modern_fields("x"),
        BOTH_ERAS,
        ("notification", Era.MODERN, MODERN, None),
    ),
    "initialize": (INITIALIZE, fields(), BOTH_ERAS, ("initialize", Era.LEGACY, None, None)),
    "initialize with a version header": (
        INITIALIZE,
        fields({"MCP-Protocol-Version": LEGACY}),
        BOTH_ERAS,
        ("initialize", Era.LEGACY, None, None),
    ),
    "initialize, stateless": (INITIALIZE, legacy_fields(), STATELESS, ("initialize", Era.LEGACY, None, None)),
    "request in a session": (LIST, legacy_fields(), BOTH_ERAS, ("request", Era.LEGACY, LEGACY, SESSION)),
    "notification in a session": (NOTE, legacy_fields(), BOTH_ERAS, ("notification", Era.LEGACY, LEGACY, SESSION)),
    "answer in a session": (ANSWER, legacy_fields(), BOTH_ERAS, ("answer", Era.LEGACY, LEGACY, SESSION)),
    "the session knows its revision": (
        LIST,
        fields({"Mcp-Session-Id": "middle"}),
        BOTH_ERAS,
        ("request", Era.LEGACY, "2025-06-18", "middle"),
    ),
    "batch in an old session": (
        BATCH,
        fields({"Mcp-Session-Id": "old"}),
        BOTH_ERAS,
        ("batch", Era.LEGACY, "2025-03-26", "old"),
    ),
    "nothing said, stateless": (LIST, fields(), STATELESS, ("request", Era.LEGACY, "2025-03-26", None)),
    "batch, nothing said, stateless": (BATCH, fields(), STATELESS, ("batch", Era.LEGACY, "2025-03-26", None)),
    "version said, stateless": (LIST, legacy_fields(), STATELESS, ("request", Era.LEGACY, LEGACY, None)),
    "legacy server ignores _meta": (modern(), legacy_fields(), LEGACY_ONLY, ("request", Era.LEGACY, LEGACY, SESSION)),
}


@pytest.mark.parametrize("row", list(PASSES))
def test_a_message_passes(row: str) -> None:
    """Era, revision and session of valid requests."""
    message, headers, settings, expected = PASSES[row]
    verdict = post(message, headers, settings)
    assert isinstance(verdict, Accept)
    assert (verdict.kind, verdict.era, verdict.revision, verdict.session) == expected
    assert verdict.message is message
    assert verdict.owes_answer == (verdict.kind in ("request", "initialize", "batch"))


def test_a_batch_without_requests_is_owed_no_answer() -> None:
    """2025-03-26 basic/transports, Sending Messages, 4: only notifications or responses: 202."""
    old = fields({"Mcp-Session-Id": "old"})
    assert post(Batch((NOTE, ANSWER)), old).owes_answer is False
    assert post(Batch((NOTE, Malformed(-32600, "x"))), old).owes_answer is True
    assert post(Batch((NOTE, Malformed(-32600, "x", expects_answer=False))), old).owes_answer is False


@pytest.mark.parametrize(("settings", "plain", "listen"), [(BOTH_ERAS, True, True), (JSON_ONLY, False, True)])
def test_whether_the_answer_may_be_a_stream(settings: RuleSettings, plain: bool, listen: bool) -> None:
    """A server that answers with JSON still answers subscriptions/listen with a stream, as the method has it."""
    assert post(modern(), modern_fields(), settings).may_stream is plain
    assert post(modern("subscriptions/listen"), modern_fields("subscriptions/listen"), settings).may_stream is listen


# --- what always holds ------------------------------------------------------------------------------------------

versions = st.sampled_from([MODERN, *LEGACY_REVISIONS, "v9", "", "2030-01-01"])
values = (
    st.none()
    | versions
    | st.sampled_from([SESSION, "old", "x", "tools/list", "application/json", "*/*"])
    | st.text(max_size=5)
)
NAMES = ["Host", "Origin", "Content-Type", "Accept", "Content-Length", "MCP-Protocol-Version", "Mcp-Session-Id"]
NAMES += ["Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "Last-Event-ID", "Content-Encoding"]
heads = st.dictionaries(
    st.sampled_from(NAMES), values | st.lists(values.filter(lambda value: value is not None), max_size=2)
).map(fields)
settings_of_any_kind = st.sampled_from([BOTH_ERAS, STATELESS, MODERN_ONLY, LEGACY_ONLY, NEW_LEGACY_ONLY, JSON_ONLY])


@st.composite
def posted(draw: st.DrawFn) -> Any:
    """Any message at all, or one with metadata that is nearly right."""
    if draw(st.booleans()):
        return draw(messages() | batches() | st.binary(max_size=20).map(decode))
    given_meta = draw(
        st.fixed_dictionaries({}, optional={key: st.just(value) | versions | st.none() for key, value in META.items()})
    )
    method = draw(st.sampled_from(["tools/list", "tools/call", "initialize", "server/discover", "ping", "x"]))
    params = {"_meta": given_meta, "name": draw(st.sampled_from(["sql", "x", 1]))}
    return Request(7, method, params) if draw(st.booleans()) else Notification(method, params)


@given(st.sampled_from(["GET", "POST", "DELETE", "OPTIONS", ""]) | st.text(max_size=5), heads, settings_of_any_kind)
def test_any_head_gets_a_verdict(method: str, headers: Headers, settings: RuleSettings) -> None:
    """Nothing raises; a refusal is a client's error, with a JSON-RPC error as its body."""
    verdict = head(method, headers, settings)
    if isinstance(verdict, Refusal):
        assert 400 <= verdict.status < 500
        assert isinstance(decode(verdict.body), ErrorResponse)
        assert len(verdict.body) < 2000
    else:
        assert (verdict.kind == "message") == (method == "POST")
        assert verdict.kind == "message" or SESSIONS[verdict.session or ""] == verdict.revision


@given(posted(), heads, settings_of_any_kind)
def test_any_message_gets_a_verdict(message: Any, headers: Headers, settings: RuleSettings) -> None:
    """Accepted requests have a served revision and agree in head and body; others are answered with an error."""
    verdict = post(message, headers, settings)
    if isinstance(verdict, Refusal):
        assert verdict.status in (400, 404, 406)
        answer = decode(verdict.body)
        assert isinstance(answer, ErrorResponse)
        assert "id" not in json.loads(verdict.body) or answer.id == message.id
        if verdict.error.error.code in (-32020, -32021, -32022):
            assert settings.identity.modern
        return
    if verdict.era is Era.MODERN:
        assert verdict.revision in settings.identity.modern
        assert headers.get("MCP-Protocol-Version") == verdict.revision
        assert verdict.session is None
        if isinstance(message, Request):
            assert message.params is not None
            assert message.params["_meta"][meta.PROTOCOL_VERSION] == verdict.revision
            assert headers.get("Mcp-Method") == message.method
    elif verdict.kind != "initialize":
        assert verdict.revision in settings.identity.legacy
        assert verdict.session is None if not settings.has_sessions else SESSIONS[verdict.session or ""]


# --- statuses of answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (-32700, 400),
        (-32600, 400),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32601, 404),
        (-32602, 200),
        (-32603, 200),
        (7, 200),
    ],
)
def test_the_status_of_an_error_answer(code: int, status: int) -> None:
    """S, Protocol Version Header: 404 for an unknown method; 2026-07-28 basic, _meta: 400 for a missing capability."""
    error = ErrorResponse(1, ErrorData(code, "x"))
    assert status_of(error, Era.MODERN) == status
    assert status_of(error, Era.LEGACY) == 200


def test_the_status_of_a_result() -> None:
    """In either era."""
    assert status_of(Response(1, {}), Era.MODERN) == status_of(Response(1, {}), Era.LEGACY) == 200


def test_a_body_that_turns_out_to_be_too_large() -> None:
    """As it is found while reading one without a length."""
    refusal = too_large(BOTH_ERAS)
    assert (refusal.status, refusal.error.error.message) == (413, "the body is longer than max_message_size=1000 bytes")


def test_settings_that_make_no_sense_are_refused() -> None:
    """When the server is set up, not when the first request comes."""
    with pytest.raises(ValueError, match="revisions must name one of"):
        serving("v9")
    with pytest.raises(ValueError, match="at least 1"):
        RuleSettings(serving(MODERN), max_message_size=0)
