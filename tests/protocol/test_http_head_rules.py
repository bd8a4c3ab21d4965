"""A row for each rule that a head can break, and rows for heads that pass."""

from __future__ import annotations

import attrs
import pytest

from tests.protocol.http_requests import (
    BOTH_ERAS,
    JSON_ONLY,
    LEGACY,
    MODERN,
    MODERN_ONLY,
    SESSION,
    STATELESS,
    fields,
    head,
    serving,
)
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.statuses import HEAD_RULES, Opening, Refusal, RuleSettings
from trio_mcp.types.versions import LEGACY_REVISIONS

# --- the head ---------------------------------------------------------------------------------------------------

S = SESSION  # short, for the rows
get = {"Content-Type": None, "Accept": "text/event-stream", "Mcp-Session-Id": S}
# Each row: the method, the fields, the settings; the rule that refuses, with which status, and what the answer says.
HEAD_REFUSED: dict[str, tuple[str, Headers, RuleSettings, str, int, str]] = {
    "foreign host": ("POST", fields({"Host": "evil.example"}), BOTH_ERAS, "host-allowed", 403, "'evil.example'"),
    "foreign origin": ("GET", fields(get, {"Origin": "http://evil.example"}), BOTH_ERAS, "host-allowed", 403, "evil"),
    "a foreign host before all": ("PUT", fields({"Host": "evil.example"}), BOTH_ERAS, "host-allowed", 403, "evil"),
    "PUT": ("PUT", fields(), BOTH_ERAS, "method-allowed", 405, "'PUT'"),
    "OPTIONS": ("OPTIONS", fields(), BOTH_ERAS, "method-allowed", 405, "'OPTIONS'"),
    "HEAD": ("HEAD", fields(), BOTH_ERAS, "method-allowed", 405, "'HEAD'"),
    "post": ("post", fields(), BOTH_ERAS, "method-allowed", 405, "'post'"),
    "GET, stateless": ("GET", fields(get), STATELESS, "method-allowed", 405, "'GET'"),
    "DELETE, stateless": ("DELETE", fields(get), STATELESS, "method-allowed", 405, "'DELETE'"),
    "GET, modern server": ("GET", fields(get), MODERN_ONLY, "method-allowed", 405, "'GET'"),
    "DELETE, modern server": ("DELETE", fields(get), MODERN_ONLY, "method-allowed", 405, "'DELETE'"),
    "GET, modern client": ("GET", fields(get, {"MCP-Protocol-Version": MODERN}), BOTH_ERAS, "method-allowed", 405, ""),
    "GET, later client": (
        "GET",
        fields(get, {"MCP-Protocol-Version": "2030-01-01"}),
        BOTH_ERAS,
        "method-allowed",
        405,
        "",
    ),
    "no content type": ("POST", fields({"Content-Type": None}), BOTH_ERAS, "is-json", 415, "application/json"),
    "text": ("POST", fields({"Content-Type": "text/plain"}), BOTH_ERAS, "is-json", 415, "'text/plain'"),
    "almost JSON": ("POST", fields({"Content-Type": "application/json5"}), BOTH_ERAS, "is-json", 415, "json5"),
    "two content types": ("POST", fields({"Content-Type": ["application/json"] * 2}), BOTH_ERAS, "is-json", 415, ""),
    "compressed": ("POST", fields({"Content-Encoding": "gzip"}), BOTH_ERAS, "is-json", 415, "'gzip'"),
    "accepts JSON only": ("POST", fields({"Accept": "application/json"}), BOTH_ERAS, "answer-acceptable", 406, "event"),
    "accepts events only": (
        "POST",
        fields({"Accept": "text/event-stream"}),
        BOTH_ERAS,
        "answer-acceptable",
        406,
        "json",
    ),
    "accepts HTML": (
        "POST",
        fields({"Accept": "text/html"}),
        BOTH_ERAS,
        "answer-acceptable",
        406,
        "json and text/event",
    ),
    "excludes events": (
        "POST",
        fields({"Accept": "*/*, text/event-stream; q=0.0"}),
        BOTH_ERAS,
        "answer-acceptable",
        406,
        "text/event-stream",
    ),
    "accepts events only, JSON server": (
        "POST",
        fields({"Accept": "text/event-stream"}),
        JSON_ONLY,
        "answer-acceptable",
        406,
        "application/json",
    ),
    "GET accepts JSON": (
        "GET",
        fields(get, {"Accept": "application/json"}),
        BOTH_ERAS,
        "answer-acceptable",
        406,
        "event",
    ),
    "too large": ("POST", fields({"Content-Length": "1001"}), BOTH_ERAS, "body-size", 413, "max_message_size=1000"),
    "much too large": ("POST", fields({"Content-Length": "9" * 5000}), BOTH_ERAS, "body-size", 413, "1000"),
    "GET without a session": ("GET", fields(get, {"Mcp-Session-Id": None}), BOTH_ERAS, "session-there", 400, "missing"),
    "DELETE without": ("DELETE", fields(get, {"Mcp-Session-Id": None}), BOTH_ERAS, "session-there", 400, "missing"),
    "GET of another session": (
        "GET",
        fields(get, {"Mcp-Session-Id": "x"}),
        BOTH_ERAS,
        "session-there",
        404,
        "not known",
    ),
    "DELETE of another": (
        "DELETE",
        fields(get, {"Mcp-Session-Id": "x"}),
        BOTH_ERAS,
        "session-there",
        404,
        "not known",
    ),
    "two session ids": ("GET", fields(get, {"Mcp-Session-Id": [S, S]}), BOTH_ERAS, "session-there", 404, "not known"),
    "GET, revision not served": (
        "GET",
        fields(get, {"MCP-Protocol-Version": "2024-11-05"}),
        attrs.evolve(BOTH_ERAS, identity=serving(LEGACY, MODERN)),
        "session-there",
        400,
        "'2024-11-05'",
    ),
}


@pytest.mark.parametrize("row", list(HEAD_REFUSED))
def test_a_head_is_refused(row: str) -> None:
    """Each rule for heads: status, what the answer says, and no id, since nothing has been read."""
    method, headers, settings, rule, status, text = HEAD_REFUSED[row]
    verdict = head(method, headers, settings)
    assert isinstance(verdict, Refusal)
    assert (verdict.rule, verdict.status, verdict.error.id) == (rule, status, None)
    assert text in verdict.error.error.message
    assert ("Content-Type", "application/json") in verdict.headers
    allow = dict(verdict.headers).get("Allow")
    assert (allow is not None) == (status == 405)
    if status == 405:
        sessions = settings.has_sessions and headers.get("MCP-Protocol-Version") in (None, *LEGACY_REVISIONS)
        assert allow == ("GET, POST, DELETE" if sessions else "POST")
        assert method not in (allow or "").split(", ")


HEAD_PASSES: dict[str, tuple[str, Headers, RuleSettings, Opening]] = {
    "POST": ("POST", fields(), BOTH_ERAS, Opening("message")),
    "POST, stateless": ("POST", fields(), STATELESS, Opening("message")),
    "POST, modern server": ("POST", fields(), MODERN_ONLY, Opening("message")),
    "parameters and case": (
        "POST",
        fields({"Content-Type": "Application/JSON; charset=utf-8"}),
        BOTH_ERAS,
        Opening("message"),
    ),
    "not compressed": ("POST", fields({"Content-Encoding": "identity"}), BOTH_ERAS, Opening("message")),
    "accepts anything": ("POST", fields({"Accept": "*/*"}), BOTH_ERAS, Opening("message")),
    "does not say what it accepts": ("POST", fields({"Accept": None}), BOTH_ERAS, Opening("message")),
    "accepts ranges": ("POST", fields({"Accept": "text/*;q=0.5 , application/*"}), BOTH_ERAS, Opening("message")),
    "accepts in two lines": (
        "POST",
        fields({"Accept": ["application/json", "text/event-stream"]}),
        BOTH_ERAS,
        Opening("message"),
    ),
    "JSON server": ("POST", fields({"Accept": "application/json"}), JSON_ONLY, Opening("message")),
    "exactly as large": ("POST", fields({"Content-Length": "1000"}), BOTH_ERAS, Opening("message")),
    "GET": ("GET", fields(get), BOTH_ERAS, Opening("stream", S, LEGACY)),
    "GET resumes": ("GET", fields(get, {"Last-Event-ID": "e-1"}), BOTH_ERAS, Opening("stream", S, LEGACY, "e-1")),
    "DELETE": (
        "DELETE",
        fields({"Accept": None, "Mcp-Session-Id": "old"}),
        BOTH_ERAS,
        Opening("end", "old", "2025-03-26"),
    ),
    "an allowed origin": ("POST", fields({"Origin": "http://localhost:3000"}), BOTH_ERAS, Opening("message")),
}


@pytest.mark.parametrize("row", list(HEAD_PASSES))
def test_a_head_passes(row: str) -> None:
    """Valid requests, including the odd forms that RFC 9110 allows."""
    method, headers, settings, opening = HEAD_PASSES[row]
    assert head(method, headers, settings) == opening


def test_every_rule_has_a_row() -> None:
    """A rule that refuses nothing is either dead or untested."""
    assert [rule.name for rule in HEAD_RULES.rules] == list(dict.fromkeys(row[3] for row in HEAD_REFUSED.values()))
