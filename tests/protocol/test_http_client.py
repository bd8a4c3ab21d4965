"""What a client sends over HTTP beside the body, and how it interprets each response.

S: 2026-07-28 `basic/transports/streamable-http`; L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.protocol.http_requests import (
    BOTH_ERAS,
    INITIALIZE,
    LEGACY,
    LIST,
    MODERN,
    NOTE,
    SESSION,
    SESSIONS,
    head,
    modern,
    post,
)
from tests.tables import each_of
from trio_mcp.errors import HttpError, RemoteProtocolError, TransportError
from trio_mcp.http.client.heads import (
    POSTED,
    RequestHeaders,
    answer_kind,
    modern_revision_of,
    read_failure,
)
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.statuses import Accept, Opening, Refusal
from trio_mcp.jsonrpc.codec import encode
from trio_mcp.jsonrpc.messages import Batch, ErrorData, ErrorResponse, Request, Response
from trio_mcp.testing.strategies import messages

REGION = {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
HOST = [("Host", "localhost:8000")]


def headers_of(request: Request) -> dict[str, str]:
    """Return the headers of a modern request."""
    headers, name = RequestHeaders(), (request.params or {}).get("name")
    headers.learn({"tools": [{"name": name, "inputSchema": REGION}]})
    return headers.of(request, MODERN)


def session(revision: str = LEGACY, session_id: str | None = SESSION) -> Any:
    from trio_mcp.http.client.legacy.session_keeper import LegacySession

    keeper: Any = None
    return LegacySession(keeper, None, revision, session_id)


# --- what is sent -----------------------------------------------------------------------------------------------


def test_headers_of_a_modern_request() -> None:
    """S, Request Metadata: version, method, name and the tool's parameters; never a session."""
    call = modern("tools/call", name="añadir", arguments={"region": "eu", "a": 1})
    assert headers_of(call) == {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "=?base64?YcOxYWRpcg==?=",
        "Mcp-Param-Region": "eu",
    }


@pytest.mark.legacy
def test_headers_of_the_legacy_era() -> None:
    """L, Session Management and Protocol Version Header; Listening for Messages, 2; Resumability and Redelivery, 2."""
    assert POSTED.keys() == {"Content-Type", "Accept"}
    assert session().headers == {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": SESSION}
    assert session(LEGACY, None).headers == {"MCP-Protocol-Version": LEGACY}
    assert session("", None).headers == {}
    assert session().stream_headers("e") == {
        "Accept": "text/event-stream",
        "MCP-Protocol-Version": LEGACY,
        "Mcp-Session-Id": SESSION,
        "Last-Event-ID": "e",
    }
    assert session("", None).stream_headers() == {"Accept": "text/event-stream"}


@pytest.mark.legacy
@given(messages())
def test_a_server_accepts_what_a_client_sends(message: Any) -> None:
    """The two halves joined back to back: any message, in a session."""
    revision = "2025-03-26" if isinstance(message, Batch) else LEGACY
    session_id = "old" if isinstance(message, Batch) else SESSION
    if modern_revision_of(message) is not None:
        return
    headers = Headers([*HOST, *POSTED.items(), *session(revision, session_id).headers.items()])
    assert head("POST", headers, BOTH_ERAS) == Opening("message")
    assert isinstance(post(message, headers, BOTH_ERAS), Accept)


@given(st.sampled_from(["tools/call", "prompts/get", "x/own"]), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_server_accepts_what_a_modern_client_sends(method: str, name: str) -> None:
    """The same for modern requests, with any name."""
    request = modern(method, name=name, arguments={"region": name})
    headers = Headers([*HOST, *headers_of(request).items()])
    assert head("POST", headers, BOTH_ERAS) == Opening("message")
    assert isinstance(post(request, headers, BOTH_ERAS), Accept)


@pytest.mark.legacy
@pytest.mark.parametrize(("method", "kind"), [("GET", "stream"), ("DELETE", "end")])
def test_a_server_accepts_the_streams_of_a_client(method: str, kind: str) -> None:
    headers = Headers([*HOST, *session().stream_headers().items()])
    opening = head(method, headers, BOTH_ERAS)
    assert (opening.kind, opening.session, opening.revision) == (kind, SESSION, SESSIONS[SESSION])


# --- what comes back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "content_type", "of_request", "of_notification"),
    [
        (200, "application/json", "json", "accepted"),
        (200, "Application/JSON; charset=utf-8", "json", "accepted"),
        (200, "text/event-stream", "events", "accepted"),
        (200, "text/html", "failed", "accepted"),
        (200, None, "failed", "accepted"),
        (202, None, "failed", "accepted"),
        (202, "application/json", "failed", "accepted"),
        (204, None, "failed", "accepted"),
        (301, None, "failed", "failed"),
        (400, "application/json", "failed", "failed"),
        (404, "text/event-stream", "failed", "failed"),
        (500, None, "failed", "failed"),
    ],
)
def test_how_to_go_on_with_an_answer(
    status: int, content_type: str | None, of_request: str, of_notification: str
) -> None:
    """S and L, Sending Messages: JSON or events for a request, 202 for the rest."""
    headers = Headers([] if content_type is None else [("Content-Type", content_type)])
    assert answer_kind(status, headers, awaits_answer=True) == of_request
    assert answer_kind(status, headers, awaits_answer=False) == of_notification


def error_body(code: int, **members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "error": {"code": code, "message": "no"}, **members}).encode()


CALL = modern("tools/call", name="x")
DISCOVER = modern("server/discover")
# Each row: the status, the body, what was posted, the session; what it means, and the code to hand on, if any.
FAILURES: dict[str, tuple[int, bytes, Any, str | None, str, int | None]] = {
    "session lost": (404, b"", LIST, SESSION, "session_lost", None),
    "session lost, with words": (404, error_body(-32600, id=7), LIST, SESSION, "session_lost", None),
    "session lost on a stream": (404, b"", None, SESSION, "session_lost", None),
    "404 without a session": (404, b"", LIST, None, "refused", None),
    "an unsupported version": (400, error_body(-32022, id=7), DISCOVER, None, "refused", -32022),
    "a missing capability": (400, error_body(-32021, id=7), CALL, None, "refused", -32021),
    "an unknown method": (404, error_body(-32601, id=7), CALL, None, "refused", -32601),
    "an unknown method, in a session": (404, error_body(-32601, id=7), CALL, SESSION, "refused", -32601),
    "headers that a tool wants": (400, error_body(-32020, id=7), CALL, None, "header_mismatch", -32020),
    "headers otherwise": (400, error_body(-32020, id=7), modern(), None, "refused", -32020),
    "a legacy server: words": (400, b"Bad Request", DISCOVER, None, "not_modern", None),
    "a legacy server: nothing": (400, b"", DISCOVER, None, "not_modern", None),
    "a legacy server: an old code": (400, error_body(-32000, id="server-error"), DISCOVER, None, "not_modern", -32000),
    "a legacy server: no id": (400, error_body(-32600), DISCOVER, None, "not_modern", -32600),
    "a legacy server: null id": (400, error_body(-32600, id=None), DISCOVER, None, "not_modern", -32600),
    "no server/discover": (404, error_body(-32601, id=7), DISCOVER, None, "not_modern", -32601),
    "no modern endpoint": (404, b"Not Found", CALL, None, "not_modern", None),
    "no POST": (405, b"", CALL, None, "not_modern", None),
    "HTTP+SSE: 405": (405, b"", INITIALIZE, None, "not_streamable", None),
    "HTTP+SSE: 404": (404, b"Not Found", INITIALIZE, None, "not_streamable", None),
    "HTTP+SSE: 400": (400, b"", INITIALIZE, None, "not_streamable", None),
    "a modern server to initialize": (400, error_body(-32022, id=7), INITIALIZE, None, "refused", -32022),
    "initialize fails otherwise": (500, b"", INITIALIZE, None, "refused", None),
    "unauthorized": (401, b"", CALL, None, "unauthorized", None),
    "forbidden": (403, error_body(-32600), LIST, SESSION, "forbidden", -32600),
    "too large": (413, b"", LIST, SESSION, "too_large", None),
    "too many": (429, b"", CALL, None, "busy", None),
    "down": (503, b"", LIST, SESSION, "busy", None),
    "bad gateway": (502, b"<html>", CALL, None, "gateway", None),
    "slow gateway": (504, b"", CALL, None, "gateway", None),
    "a bug": (500, b"Traceback", CALL, None, "refused", None),
    "a result with an error's status": (500, encode(Response(7, {})), CALL, None, "refused", None),
    "a refused notification": (400, error_body(-32600), NOTE, SESSION, "refused", None),
    "an unknown status": (799, b"", CALL, None, "refused", None),
    "no answer": (202, b"", LIST, SESSION, "refused", None),
    "no object": (400, b"[]", LIST, None, "refused", None),
    "no single error": (400, encode(Batch((ErrorResponse(7, ErrorData(1, "")),))), LIST, None, "refused", None),
}


def failure(status: int, body: bytes, message: Any, session_id: str | None, **headers: str) -> Any:
    fields = Headers([(name.replace("_", "-"), value) for name, value in headers.items()])
    target = "POST https://example.com/mcp"
    modern = message is not None and modern_revision_of(message) is not None
    in_session = session_id is not None
    return read_failure(
        status, fields, body, target=target, message=message, modern=modern, in_session=in_session, now=1000.0
    )


@pytest.mark.parametrize("row", list(FAILURES))
def test_what_a_failure_means(row: str) -> None:
    """S, Backward Compatibility and Client Behavior; L, Session Management; RFC 9110 for the rest."""
    status, body, message, session, trouble, code = FAILURES[row]
    failed = failure(status, body, message, session)
    assert failed.error.trouble == trouble
    assert failed.error.status == status
    assert (failed.answer.error.code if failed.answer else None) == code
    if failed.answer is not None:
        assert failed.answer.id == message.id


def test_what_a_call_raises_says_what_happened() -> None:
    """Rule 4 of the house: the cause, with status, headers and an excerpt of the body."""
    body = b"<h1>Try\x1b[2J later</h1>\n" + b"x" * 5000
    error = failure(503, body, CALL, None, Retry_After="7", Content_Type="text/html").error
    assert isinstance(error, TransportError)
    text = str(error)
    assert text.startswith("POST https://example.com/mcp got status 503 Service Unavailable: <h1>Try [2J")
    assert len(text) < 700
    assert (error.retry_after, error.headers["content-type"]) == (7, "text/html")
    assert len(error.excerpt) == 2000
    again = copy.copy(error)
    assert (str(again), again.trouble, again.retry_after) == (text, "busy", 7)


@given(
    st.integers(200, 999),
    st.binary(max_size=40) | messages().map(encode),
    messages() | st.just(CALL) | st.none(),
    st.none() | st.just(SESSION),
    st.text(max_size=10),
)
def test_any_answer_has_a_meaning(status: int, body: bytes, message: Any, session: str | None, value: str) -> None:
    failed = failure(status, body, message, session, Retry_After=value, Content_Type=value, Location=value)
    assert isinstance(failed.error, HttpError)
    assert str(failed.error)
    assert failed.answer is None or failed.answer.id == message.id


@given(st.sampled_from(["tools/list", "initialize", "ping", "server/discover"]), st.dictionaries(st.text(), st.text()))
def test_our_own_refusals_are_understood(method: str, params: dict[str, Any]) -> None:
    """A refusal by the server's rules never looks to a modern client like a legacy-only server."""
    request = modern(method, **params)
    headers = Headers([*HOST, *headers_of(request).items(), ("MCP-Protocol-Version", MODERN)])
    refusal = post(request, headers, BOTH_ERAS)
    assert isinstance(refusal, Refusal)
    failed = read_failure(
        refusal.status, Headers(refusal.headers), refusal.body, target="POST", message=request, modern=True, now=0.0
    )
    assert failed.answer == ErrorResponse(request.id, refusal.error.error)
    assert failed.error.trouble == "refused"


# --- HTTP+SSE ---------------------------------------------------------------------------------------------------


@pytest.mark.legacy
@pytest.mark.parametrize(
    ("data", "url"),
    [
        ("/messages?session=1", "https://example.com/messages?session=1"),
        ("messages", "https://example.com/mcp/messages"),
        ("https://example.com:443/m", "https://example.com:443/m"),
        ("https://EXAMPLE.com/m", "https://EXAMPLE.com/m"),
        ("?x", "https://example.com/mcp/sse?x"),
        ("/" + "x" * 7999, "https://example.com/" + "x" * 7999),
    ],
)
def test_where_to_post(data: str, url: str) -> None:
    """2024-11-05 basic/transports: a URI, which may be relative; of up to 8000 characters (RFC 9110, section 4.1)."""
    from trio_mcp.http.client.legacy.sse_client import endpoint_url

    assert endpoint_url("https://example.com/mcp/sse", data.encode()) == url


@pytest.mark.legacy
@each_of(
    "data",
    b"https://evil.example/m | //evil.example/m | http://example.com/m | https://example.com:8443/m | "
    b"https://example.com@evil.example/ | file:///etc/passwd | \xff | https://[::1 | "
    b"https://example.com:port/ | /a b | ",
    b"/" + b"x" * 8000,
)
def test_another_origin_is_not_followed(data: bytes) -> None:
    """It would get the messages, and the credentials that go with them."""
    from trio_mcp.http.client.legacy.sse_client import endpoint_url

    with pytest.raises(RemoteProtocolError, match="endpoint event"):
        endpoint_url("https://example.com/sse", data)


def test_a_request_names_its_own_revision() -> None:
    """Only a modern one counts, and only of requests."""
    assert modern_revision_of(modern()) == MODERN
    assert modern_revision_of(LIST) is None
    assert modern_revision_of(Request(1, "x", {"_meta": {"io.modelcontextprotocol/protocolVersion": LEGACY}})) is None
    assert modern_revision_of(Request(1, "x", {"_meta": {"io.modelcontextprotocol/protocolVersion": []}})) is None
