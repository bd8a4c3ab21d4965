"""HTTP requests for the tests of the server's rules: of both eras, and valid except for what a test changes."""

from __future__ import annotations

from typing import Any

import attrs

from trio_mcp.eras.server_negotiation import ServerIdentity
from trio_mcp.http.headers import Headers
from trio_mcp.http.param_headers import ParameterHeader
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard
from trio_mcp.http.rules.statuses import Refusal, RuleSettings, judge_head, judge_message, refuse
from trio_mcp.jsonrpc.messages import Batch, Notification, Request, RequestId, Response
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
SESSION = "session-1"
BOTH = "application/json, text/event-stream"

META = {
    meta.PROTOCOL_VERSION: MODERN,
    meta.CLIENT_INFO: {"name": "client", "version": "1"},
    meta.CLIENT_CAPABILITIES: {},
}
SESSIONS = {SESSION: LEGACY, "old": "2025-03-26", "middle": "2025-06-18"}


def fields(*changes: dict[str, Any]) -> Headers:
    """Fields of a POST; a change to None leaves one out, a list sends it several times."""
    merged: dict[str, Any] = {"Host": "localhost:8000", "Content-Type": "application/json", "Accept": BOTH}
    for change in changes:
        merged |= change
    pairs = [
        (name, value if isinstance(value, list) else [value]) for name, value in merged.items() if value is not None
    ]
    return Headers([(name, each) for name, values in pairs for each in values])


def modern(method: str = "tools/list", _meta: Any = None, /, **params: Any) -> Request:
    """Return a request with the metadata of the modern era; a change to ``...`` leaves a key of it out."""
    given = {key: value for key, value in (META | (_meta or {})).items() if value is not ...}
    return Request(7, method, {**params, "_meta": given})


def modern_fields(method: str = "tools/list", **changes: Any) -> Headers:
    """Return the fields that belong to such a request."""
    renamed = {name.replace("_", "-"): value for name, value in changes.items()}
    return fields({"MCP-Protocol-Version": MODERN, "Mcp-Method": method}, renamed)


def legacy_fields(**changes: Any) -> Headers:
    """Return the fields of a message in a session."""
    renamed = {name.replace("_", "-"): value for name, value in changes.items()}
    return fields({"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": SESSION}, renamed)


def find_session(session: str, request_id: RequestId | None) -> str | Refusal:
    """Return the revision of one of the sessions, as a legacy endpoint does."""
    return SESSIONS.get(session) or refuse(404, "the session is not known", request_id)


INITIALIZE = Request(7, "initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {}})
LIST = Request(7, "tools/list")
NOTE = Notification("notifications/roots/list_changed")

PARAMETERS = {"sql": (ParameterHeader("Mcp-Param-Region", ("region",)),)}


def serving(*revisions: str) -> ServerIdentity:
    """Return what a server of these revisions says about itself."""
    return ServerIdentity({"name": "server", "version": "1"}, lambda revision: {}, revisions=revisions)


BOTH_ERAS = RuleSettings(
    serving(*REVISIONS),
    guard=HostGuard(LOOPBACK_HOSTS),
    max_message_size=1000,
    tool_headers=lambda name: PARAMETERS.get(name, ()),
)
STATELESS = attrs.evolve(BOTH_ERAS, stateless=True)
MODERN_ONLY = attrs.evolve(BOTH_ERAS, identity=serving(*MODERN_REVISIONS))
LEGACY_ONLY = attrs.evolve(BOTH_ERAS, identity=serving(*LEGACY_REVISIONS))
NEW_LEGACY_ONLY = attrs.evolve(BOTH_ERAS, identity=serving("2025-06-18", "2025-11-25"), stateless=True)
JSON_ONLY = attrs.evolve(BOTH_ERAS, json_only=True)


def head(method: str, headers: Headers, settings: RuleSettings = BOTH_ERAS) -> Any:
    return judge_head(method, headers, settings, find_session)


def post(message: Any, headers: Headers, settings: RuleSettings = BOTH_ERAS) -> Any:
    return judge_message(message, headers, settings, find_session)


ANSWER = Response(1, {})
BATCH = Batch((LIST, NOTE))
CALL = modern("tools/call", name="sql", arguments={"region": "eu"})
CALL_FIELDS = {"Mcp_Name": "sql", "Mcp_Param_Region": "eu"}
