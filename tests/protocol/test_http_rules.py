"""The rules of a server's HTTP endpoint: a row for each rule that a head or a message can break, and for what passes.

S: 2026-07-28 `basic/transports/streamable-http`; L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

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
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.statuses import (
    HEAD_RULES,
    MESSAGE_RULES,
    Accept,
    Opening,
    Refusal,
    RuleSettings,
    status_of,
)
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import Batch, ErrorData, ErrorResponse, Malformed, Notification, Request, Response
from trio_mcp.testing.strategies import batches, messages
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS, Era


def each_row(table: dict[Any, dict[str, Any]]) -> pytest.MarkDecorator:
    """Parametrize by what a group of rows has in common, and a row of it; where it has no settings, both eras."""
    rows = [(expected, (*row, BOTH_ERAS), name) for expected, group in table.items() for name, row in group.items()]
    return pytest.mark.parametrize(("expected", "row"), [row[:2] for row in rows], ids=[row[2] for row in rows])


# --- the head ---------------------------------------------------------------------------------------------------

get = {"Content-Type": None, "Accept": "text/event-stream", "Mcp-Session-Id": SESSION}
# For each rule and status: the method, the fields, what the answer says, the settings.
HEAD_REFUSED: dict[tuple[str, int], dict[str, tuple[Any, ...]]] = {
    ("host-allowed", 403): {
        "foreign host": ("POST", fields({"Host": "evil.example"}), "'evil.example'"),
        "foreign origin": ("GET", fields(get, {"Origin": "http://evil.example"}), "evil"),
        "a foreign host before all": ("PUT", fields({"Host": "evil.example"}), "evil"),
    },
    ("method-allowed", 405): {
        "PUT": ("PUT", fields(), "'PUT'"),
        "OPTIONS": ("OPTIONS", fields(), "'OPTIONS'"),
        "HEAD": ("HEAD", fields(), "'HEAD'"),
        "post": ("post", fields(), "'post'"),
        "GET, stateless": ("GET", fields(get), "'GET'", STATELESS),
        "DELETE, stateless": ("DELETE", fields(get), "'DELETE'", STATELESS),
        "GET, modern server": ("GET", fields(get), "'GET'", MODERN_ONLY),
        "DELETE, modern server": ("DELETE", fields(get), "'DELETE'", MODERN_ONLY),
        "GET, modern client": ("GET", fields(get, {"MCP-Protocol-Version": MODERN}), ""),
        "GET, later client": ("GET", fields(get, {"MCP-Protocol-Version": "2030-01-01"}), ""),
    },
    ("is-json", 415): {
        "no content type": ("POST", fields({"Content-Type": None}), "application/json"),
        "text": ("POST", fields({"Content-Type": "text/plain"}), "'text/plain'"),
        "almost JSON": ("POST", fields({"Content-Type": "application/json5"}), "json5"),
        "two content types": ("POST", fields({"Content-Type": ["application/json"] * 2}), ""),
        "compressed": ("POST", fields({"Content-Encoding": "gzip"}), "'gzip'"),
    },
    ("answer-acceptable", 406): {
        "accepts JSON only": ("POST", fields({"Accept": "application/json"}), "event"),
        "accepts events only": ("POST", fields({"Accept": "text/event-stream"}), "json"),
        "accepts HTML": ("POST", fields({"Accept": "text/html"}), "json and text/event"),
        "excludes events": ("POST", fields({"Accept": "*/*, text/event-stream; q=0.0"}), "text/event-stream"),
        "accepts events only, JSON server": (
            "POST",
            fields({"Accept": "text/event-stream"}),
            "application/json",
            JSON_ONLY,
        ),
        "GET accepts JSON": ("GET", fields(get, {"Accept": "application/json"}), "event"),
    },
    ("body-size", 413): {
        "too large": ("POST", fields({"Content-Length": "1001"}), "max_message_size=1000"),
        "much too large": ("POST", fields({"Content-Length": "9" * 5000}), "1000"),
    },
    ("session-there", 400): {
        "GET without a session": ("GET", fields(get, {"Mcp-Session-Id": None}), "missing"),
        "DELETE without": ("DELETE", fields(get, {"Mcp-Session-Id": None}), "missing"),
        "GET, revision not served": (
            "GET",
            fields(get, {"MCP-Protocol-Version": "2024-11-05"}),
            "'2024-11-05'",
            attrs.evolve(BOTH_ERAS, identity=serving(LEGACY, MODERN)),
        ),
    },
    ("session-there", 404): {
        "GET of another session": ("GET", fields(get, {"Mcp-Session-Id": "x"}), "not known"),
        "DELETE of another": ("DELETE", fields(get, {"Mcp-Session-Id": "x"}), "not known"),
        "two session ids": ("GET", fields(get, {"Mcp-Session-Id": [SESSION, SESSION]}), "not known"),
    },
}


@each_row(HEAD_REFUSED)
def test_a_head_is_refused(expected: tuple[str, int], row: Any) -> None:
    """Each rule for heads: status, what the answer says, and no id, since nothing has been read."""
    method, headers, text, settings, *_ = row
    verdict = head(method, headers, settings)
    assert isinstance(verdict, Refusal)
    assert (verdict.rule, verdict.status, verdict.error.id) == (*expected, None)
    assert text in verdict.error.error.message
    assert ("Content-Type", "application/json") in verdict.headers
    allow = dict(verdict.headers).get("Allow")
    assert (allow is not None) == (verdict.status == 405)
    if allow is not None:
        sessions = settings.has_sessions and headers.get("MCP-Protocol-Version") in (None, *LEGACY_REVISIONS)
        assert allow == ("GET, POST, DELETE" if sessions else "POST")
        assert method not in allow.split(", ")


HEAD_PASSES: dict[Any, dict[str, tuple[Any, ...]]] = {
    ("message",): {
        "POST": ("POST", fields()),
        "POST, stateless": ("POST", fields(), STATELESS),
        "POST, modern server": ("POST", fields(), MODERN_ONLY),
        "parameters and case": ("POST", fields({"Content-Type": "Application/JSON; charset=utf-8"})),
        "not compressed": ("POST", fields({"Content-Encoding": "identity"})),
        "accepts anything": ("POST", fields({"Accept": "*/*"})),
        "does not say what it accepts": ("POST", fields({"Accept": None})),
        "accepts ranges": ("POST", fields({"Accept": "text/*;q=0.5 , application/*"})),
        "accepts in two lines": ("POST", fields({"Accept": ["application/json", "text/event-stream"]})),
        "JSON server": ("POST", fields({"Accept": "application/json"}), JSON_ONLY),
        "exactly as large": ("POST", fields({"Content-Length": "1000"})),
        "an allowed origin": ("POST", fields({"Origin": "http://localhost:3000"})),
    },
    ("stream", SESSION, LEGACY): {"GET": ("GET", fields(get))},
    ("stream", SESSION, LEGACY, "e-1"): {"GET resumes": ("GET", fields(get, {"Last-Event-ID": "e-1"}))},
    ("end", "old", "2025-03-26"): {"DELETE": ("DELETE", fields({"Accept": None, "Mcp-Session-Id": "old"}))},
}


@each_row(HEAD_PASSES)
def test_a_head_passes(expected: Any, row: Any) -> None:
    """Valid requests, including the odd forms that RFC 9110 allows."""
    assert head(*row[:3]) == Opening(*expected)


def test_every_rule_has_a_row() -> None:
    """A rule that refuses nothing is either dead or untested."""
    assert [rule.name for rule in HEAD_RULES.rules] == list(dict.fromkeys(rule for rule, _ in HEAD_REFUSED))
    assert sorted(rule.name for rule in MESSAGE_RULES.rules) == sorted({rule for rule, _, _ in REFUSED})


# --- messages ---------------------------------------------------------------------------------------------------

GARBAGE = {
    "no object": b"1",
    "no JSON-RPC": b'{"id":7}',
    "a bad id": b'{"jsonrpc":"2.0","id":null,"method":"x"}',
    "an empty batch": b"[]",
    "a broken answer": b'{"jsonrpc":"2.0","id":7,"result":1}',
}

REMOVED = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]

# For each rule, with the status and the error code of its refusals: the message, the fields, the settings.
REFUSED: dict[tuple[str, int, int], dict[str, tuple[Any, ...]]] = {
    ("is-message", 400, -32700): {"no JSON": (decode(b"{"), legacy_fields())},
    ("is-message", 400, -32600): {name: (decode(text), legacy_fields()) for name, text in GARBAGE.items()},
    ("is-message", 400, -32602): {
        "params are a list": (decode(b'{"jsonrpc":"2.0","id":7,"method":"x","params":[]}'), modern_fields("x")),
    },
    ("one-message", 400, -32600): {
        "batch": (BATCH, modern_fields()),
        "batch with a modern request": (Batch((LIST, modern())), legacy_fields()),
        "answer": (ANSWER, modern_fields()),
        "error answer": (ErrorResponse(1, ErrorData(1, "")), modern_fields()),
    },
    ("revision-named", 400, -32602): {
        "no _meta": (LIST, modern_fields()),
        "_meta is a list": (Request(7, "tools/list", {"_meta": []}), modern_fields()),
        "no version in _meta": (modern("tools/list", {meta.PROTOCOL_VERSION: ...}), modern_fields()),
        "version is a number": (modern("tools/list", {meta.PROTOCOL_VERSION: 1}), modern_fields()),
        "initialize with the modern header": (INITIALIZE, modern_fields("initialize")),
        "unknown version, a number in _meta": (
            modern("tools/list", {meta.PROTOCOL_VERSION: 9}),
            modern_fields(MCP_Protocol_Version="v9"),
        ),
    },
    ("version-agrees", 400, -32020): {
        "no version header": (modern(), modern_fields(MCP_Protocol_Version=None)),
        "version header twice": (modern(), modern_fields(MCP_Protocol_Version=[MODERN] * 2)),
        "legacy header, modern body": (modern(), modern_fields(MCP_Protocol_Version=LEGACY)),
        "unknown body version": (modern("tools/list", {meta.PROTOCOL_VERSION: "v9"}), modern_fields()),
        "unknown version header": (modern(), modern_fields(MCP_Protocol_Version="v9")),
        "notification disagrees": (Notification("x", {"_meta": META}), modern_fields("x", MCP_Protocol_Version=LEGACY)),
    },
    ("revision-served", 400, -32022): {
        "unknown version": (
            modern("tools/list", {meta.PROTOCOL_VERSION: "v9"}),
            modern_fields(MCP_Protocol_Version="v9"),
        ),
        "legacy version in _meta": (
            modern("tools/list", {meta.PROTOCOL_VERSION: LEGACY}),
            modern_fields(MCP_Protocol_Version=LEGACY),
        ),
        "notification of an unknown version": (NOTE, modern_fields(NOTE.method, MCP_Protocol_Version="v9")),
    },
    ("revision-named", 400, -32022): {
        "unknown version, nothing in _meta": (LIST, modern_fields(MCP_Protocol_Version="v9")),
    },
    ("client-described", 400, -32602): {
        "no capabilities": (modern("tools/list", {meta.CLIENT_CAPABILITIES: ...}), modern_fields()),
        "client info is a text": (modern("tools/list", {meta.CLIENT_INFO: "x"}), modern_fields()),
        "unknown log level": (modern("tools/list", {meta.LOG_LEVEL: "loud"}), modern_fields()),
    },
    ("headers-agree", 400, -32020): {
        "no method header": (modern(), modern_fields(Mcp_Method=None)),
        "another method": (modern(), modern_fields("prompts/list")),
        "another name": (CALL, modern_fields("tools/call", **{**CALL_FIELDS, "Mcp_Name": "x"})),
        "another parameter": (CALL, modern_fields("tools/call", **{**CALL_FIELDS, "Mcp_Param_Region": "us"})),
        "no parameter": (CALL, modern_fields("tools/call", Mcp_Name="sql")),
    },
    ("method-agrees", 400, -32020): {"notification, another method": (NOTE, modern_fields("x"))},
    ("method-exists", 404, -32601): {method: (modern(method), modern_fields(method)) for method in REMOVED},
    ("stream-acceptable", 406, -32600): {
        "a stream that is not accepted": (
            modern("subscriptions/listen"),
            modern_fields("subscriptions/listen", Accept="application/json"),
            JSON_ONLY,
        ),
    },
    ("handshake-served", 400, -32020): {
        "initialize, modern server": (INITIALIZE, fields(), MODERN_ONLY),
        "nothing said, modern server": (LIST, fields(), MODERN_ONLY),
        "session id, modern server": (LIST, fields({"Mcp-Session-Id": SESSION}), MODERN_ONLY),
    },
    ("handshake-served", 400, -32022): {"legacy version, modern server": (LIST, legacy_fields(), MODERN_ONLY)},
    ("version-valid", 400, -32600): {
        "unknown version, legacy server": (LIST, legacy_fields(MCP_Protocol_Version="v9"), LEGACY_ONLY),
        "modern client, legacy server": (modern(), modern_fields(), LEGACY_ONLY),
        "legacy version not served": (LIST, fields({"MCP-Protocol-Version": "2024-11-05"}), NEW_LEGACY_ONLY),
        "two versions": (LIST, legacy_fields(MCP_Protocol_Version=[LEGACY, LEGACY]), LEGACY_ONLY),
    },
    ("initialize-opens", 400, -32600): {"initialize in a session": (INITIALIZE, legacy_fields())},
    ("session-given", 400, -32600): {
        "no session": (LIST, fields()),
        "notification without a session": (NOTE, fields()),
        "answer without a session": (ANSWER, fields()),
        "batch without a session": (BATCH, fields()),
    },
    ("session-known", 404, -32600): {
        "unknown session": (LIST, legacy_fields(Mcp_Session_Id="x")),
        "answer in an unknown session": (ANSWER, legacy_fields(Mcp_Session_Id="x")),
        "two sessions": (LIST, legacy_fields(Mcp_Session_Id=[SESSION, "old"])),
    },
    ("revision-assumed", 400, -32600): {"nothing said, 2025-03-26 not served": (LIST, fields(), NEW_LEGACY_ONLY)},
    ("batch-known", 400, -32600): {
        "batch after 2025-03-26": (BATCH, legacy_fields()),
        "batch of 2025-06-18, stateless": (BATCH, fields({"MCP-Protocol-Version": "2025-06-18"}), STATELESS),
    },
}


@each_row(REFUSED)
def test_a_message_is_refused(expected: tuple[str, int, int], row: Any) -> None:
    """Each rule for messages: status, code, and the id of the request that it refuses."""
    message, headers, settings, *_ = row
    verdict = post(message, headers, settings)
    assert isinstance(verdict, Refusal)
    code = verdict.error.error.code
    assert (verdict.rule, verdict.status, code) == expected
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


def test_a_client_without_a_session_is_told_how_to_go_on() -> None:
    """With the handshake; or without one, where the modern era is served too."""
    both = post(LIST, fields(), BOTH_ERAS).error.error.message
    assert "send initialize first" in both
    assert f"or speak {MODERN} with MCP-Protocol-Version and params._meta" in both
    legacy = post(LIST, fields(), LEGACY_ONLY).error.error.message
    assert legacy.endswith("send initialize first")


# Kind, era, revision and session of what is accepted: the message, the fields, the settings.
PASSES: dict[tuple[Any, ...], dict[str, tuple[Any, ...]]] = {
    ("request", Era.MODERN, MODERN, None): {
        "modern request": (modern(), modern_fields()),
        "modern server": (modern(), modern_fields(), MODERN_ONLY),
        "session id is ignored": (modern(), modern_fields(Mcp_Session_Id="x")),
        "client info is optional": (modern("tools/list", {meta.CLIENT_INFO: ...}), modern_fields()),
        "call": (CALL, modern_fields("tools/call", **CALL_FIELDS)),
        "discover": (modern("server/discover"), modern_fields("server/discover")),
        "a method of one's own": (modern("x/y"), modern_fields("x/y")),
    },
    ("notification", Era.MODERN, MODERN, None): {
        "modern notification by header": (NOTE, modern_fields(Mcp_Method=None)),
        "modern notification by _meta": (Notification("x", {"_meta": META}), modern_fields("x")),
    },
    ("initialize", Era.LEGACY, None, None): {
        "initialize": (INITIALIZE, fields()),
        "initialize with a version header": (INITIALIZE, fields({"MCP-Protocol-Version": LEGACY})),
        "initialize, stateless": (INITIALIZE, legacy_fields(), STATELESS),
    },
    ("request", Era.LEGACY, LEGACY, SESSION): {
        "request in a session": (LIST, legacy_fields()),
        "legacy server ignores _meta": (modern(), legacy_fields(), LEGACY_ONLY),
    },
    ("notification", Era.LEGACY, LEGACY, SESSION): {"notification in a session": (NOTE, legacy_fields())},
    ("answer", Era.LEGACY, LEGACY, SESSION): {"answer in a session": (ANSWER, legacy_fields())},
    ("request", Era.LEGACY, "2025-06-18", "middle"): {
        "the session knows its revision": (LIST, fields({"Mcp-Session-Id": "middle"}))
    },
    ("batch", Era.LEGACY, "2025-03-26", "old"): {"batch in an old session": (BATCH, fields({"Mcp-Session-Id": "old"}))},
    ("request", Era.LEGACY, "2025-03-26", None): {"nothing said, stateless": (LIST, fields(), STATELESS)},
    ("batch", Era.LEGACY, "2025-03-26", None): {"batch, nothing said, stateless": (BATCH, fields(), STATELESS)},
    ("request", Era.LEGACY, LEGACY, None): {"version said, stateless": (LIST, legacy_fields(), STATELESS)},
}


@each_row(PASSES)
def test_a_message_passes(expected: tuple[Any, ...], row: Any) -> None:
    verdict = post(*row[:3])
    assert isinstance(verdict, Accept)
    assert (verdict.kind, verdict.era, verdict.revision, verdict.session) == expected
    assert verdict.message is row[0]
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
        *((code, 400) for code in (-32700, -32600, -32020, -32021, -32022)),
        (-32601, 404),
        *((code, 200) for code in (-32602, -32603, 7)),
    ],
)
def test_the_status_of_an_error_answer(code: int, status: int) -> None:
    """S, Protocol Version Header: 404 for an unknown method; 2026-07-28 basic, _meta: 400 for a missing capability."""
    error = ErrorResponse(1, ErrorData(code, "x"))
    assert status_of(error, Era.MODERN) == status
    assert status_of(error, Era.LEGACY) == 200
    assert status_of(Response(1, {}), Era.MODERN) == status_of(Response(1, {}), Era.LEGACY) == 200


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="revisions must name at least one of"):
        serving("v9")
    with pytest.raises(ValueError, match="at least 1"):
        RuleSettings(serving(MODERN), max_message_size=0)
