"""Rules for modern-era servers over HTTP: headers that repeat the body, statuses, and legacy traffic."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of, member_of
from trio_mcp.conformance.rules.history import Connection, Exchange, History, is_request
from trio_mcp.conformance.rules.http import ELSEWHERE, is_clean, is_no_version, is_whole, posted, received
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each, exchanged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.http.headers import NAMED_BY
from trio_mcp.http.param_headers import ParameterHeader, parameter_headers
from trio_mcp.types import meta
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import LEGACY_REVISIONS

# The characters that the specification allows in a header (Value Encoding). HTTP itself also allows bytes above 0x7f
# (RFC 9110, section 5.5).
_PLAIN: Final = re.compile(r"[\x20-\x7e\t]*")
# The specification requires decimal digits (Value Encoding) and gives 42.0 as an example (Server Validation). It
# mentions no exponents.
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")

_VERSION: Final = "MCP-Protocol-Version"


def _clean(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
    """Yield the POSTs of modern-era requests that a server has no reason to refuse on HTTP grounds."""
    for response, connection, exchange in posted(history):
        if connection.modern and is_clean(exchange) and exchange.status not in ELSEWHERE:
            yield response, connection, exchange


def _modern(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
    """Yield the POSTs of modern-era requests that are valid, except perhaps for the headers that this module checks.

    Each request names the revision of its connection, has a complete ``_meta``, and has a method that clients may use.
    """
    for response, connection, exchange in _clean(history):
        entries = member_of(exchange.message, "params", "_meta")
        # A request that names another revision than the connection's may rightly be refused with -32022, and may need
        # other headers, so it is left out.
        if member_of(entries, meta.PROTOCOL_VERSION) != connection.revision:
            continue
        spec = method_spec(connection.revision, exchange.message["method"])
        # An unknown method and an incomplete `_meta` call for errors of their own, and the specification doesn't say
        # whether a server checks for them before or after the headers.
        if isinstance(entries.get(meta.CLIENT_CAPABILITIES), dict) and spec is not None and "client" in spec.senders:
            yield response, connection, exchange


def _error(exchange: Exchange) -> tuple[Event, int] | None:
    """Return the event of the first JSON-RPC error in a response, and its code; None if there is no error."""
    # On a stream, notifications may come before the error, so all messages of the response are searched.
    codes = ((event, member_of(event.message, "error", "code")) for event in received(exchange))
    return next(((event, code) for event, code in codes if isinstance(code, int)), None)


def _code(exchange: Exchange) -> int | None:
    found = _error(exchange)
    return None if found is None else found[1]


def _refused(exchange: Exchange, what: str) -> Opinion:
    """Check that a request was refused with status 400 and error -32020, as header validation requires."""
    # The error code is in the body, which a server may send later than the head. If the client left before the body
    # came, the code is unknown.
    if not is_whole(exchange) and not exchange.received:
        return UNDECIDED
    code = _code(exchange)
    if exchange.status == 400 and code == HEADER_MISMATCH:
        return None
    said = "no error" if code is None else f"error {code}"
    return f"{what} got status {exchange.status} and {said}, not 400 and -32020"


# --- what the headers say ---------------------------------------------------------------------------------------------


def _decoded(value: str) -> str | None:
    """Return the text that a header's value stands for, or None if that is in doubt or the value can't be decoded."""
    value = value.strip(" \t")
    if not _PLAIN.fullmatch(value):
        return None
    # In `=?base64?=`, which has ten characters, the prefix and the suffix share a `?`, so it is a plain value.
    if not (value.startswith("=?base64?") and value.endswith("?=") and len(value) > 10):
        return value
    # Without `validate`, Python skips characters outside the Base64 alphabet. Some servers skip such characters, too,
    # and others refuse the value, so its meaning is in doubt.
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _parameters(connection: Connection, message: dict[str, Any]) -> tuple[ParameterHeader, ...]:
    """Return the parameters of the called tool that must be repeated as headers; empty if they can't be known."""
    params = message["params"]
    tool = connection.tools.get(params["name"]) if isinstance(params.get("name"), str) else None
    if message["method"] != "tools/call" or tool is None:
        return ()
    # An invalid header annotation makes the tool's definition invalid (Schema Extension), so it is unclear which
    # headers the server expects.
    try:
        return parameter_headers(tool.get("inputSchema"))
    except ValueError:
        return ()


def _repeated(connection: Connection, message: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each header that a request must have, except the version, with the value in the body that it repeats."""
    yield "Mcp-Method", message["method"]
    if isinstance(name := message["params"].get(NAMED_BY.get(message["method"], "")), str):
        yield "Mcp-Name", name
    for parameter in _parameters(connection, message):
        # Values of other types can't be headers. Whether a call with such a value is refused is up to the tool's own
        # validation.
        if isinstance(value := parameter.value_in(message["params"].get("arguments")), (str, int)):
            yield parameter.header, value


def _compare(exchange: Exchange, header: str, value: Any) -> str:
    """Compare a header with the value in the body that it repeats.

    Returns:
        ``same``, ``other``, ``missing``, ``odd`` if the header contains characters that no header may contain, or
        ``unclear`` if a server may regard the two values as equal or as different.
    """
    given = exchange.request.headers.get(header.lower())
    if given is None:
        return "missing"
    if header == _VERSION:
        return "same" if given.strip(" \t") == value else "other"
    if not _PLAIN.fullmatch(given.strip(" \t")):
        return "odd"
    # The name of a method is never Base64-encoded.
    text = given.strip(" \t") if header == "Mcp-Method" else _decoded(given)
    if text is None:
        return "unclear"
    wanted = ("true" if value else "false") if isinstance(value, bool) else str(value)
    if text == wanted:
        return "same"
    if isinstance(value, int) and not isinstance(value, bool) and _NUMBER.fullmatch(text):
        # Comparing numbers as numbers is only a SHOULD (Server Validation), so a server may accept or refuse 42.0 for
        # 42.
        return "unclear" if float(text) == value else "other"
    return "other"


def _comparison(connection: Connection, exchange: Exchange) -> dict[str, str]:
    """Return the results of `_compare` for all headers that a request must have, by header name."""
    repeated = [(_VERSION, connection.revision), *_repeated(connection, exchange.message)]
    return {header: _compare(exchange, header, value) for header, value in repeated}


def _compared(history: History) -> Iterator[tuple[Event, Connection, Exchange, dict[str, str]]]:
    """Yield each POST with the results of `_compare` for all headers that it must have."""
    for response, connection, exchange in _modern(history):
        yield response, connection, exchange, _comparison(connection, exchange)


def _agrees(connection: Connection, exchange: Exchange) -> bool:
    """Return whether the request has exactly the MCP headers that its body calls for, with matching values."""
    arguments = exchange.message["params"].get("arguments")
    parameters = _parameters(connection, exchange.message)
    # If an argument has a value that no header can repeat, a server may refuse the call as if a header were missing.
    if any(not isinstance(each.value_in(arguments), str | int | None) for each in parameters):
        return False
    found = _comparison(connection, exchange)
    return {*found.values()} == {"same"} and not _unexpected(exchange, found)


def _unexpected(exchange: Exchange, found: dict[str, str]) -> bool:
    """Return whether a request has an MCP header that its body does not call for."""
    # The specification doesn't say what to do with a header that repeats nothing in the body; a server may regard such
    # a header as a contradiction.
    names = {name.lower() for name, _ in exchange.request.facts.get("headers", ())}
    more = names - {header.lower() for header in found}
    return any(name in ("mcp-method", "mcp-name") or name.startswith("mcp-param-") for name in more)


# --- validation -------------------------------------------------------------------------------------------------------


@stated_rule(
    section="basic/transports/streamable-http#server-validation",
    sentence="A request whose headers contradict its body gets status 400 and error -32020.",
    moves=["mismatched-header", "mismatched-parameter"],
    transports=["http"],
)
@each(_compared)
def header_mismatch_refused(_: Event, _connection: Connection, exchange: Exchange, found: dict[str, str]) -> Opinion:
    """Check that a request is refused if some of its headers contradict the body, and all others agree with it."""
    others = [header for header, how in found.items() if how == "other"]
    # If another header is missing, malformed or ambiguous, nothing shows which header made the server respond as it
    # did.
    if not others or not {*found.values()} <= {"same", "other"}:
        return UNDECIDED
    # A request in a version that the server doesn't support isn't judged, because the version alone is a reason to
    # refuse it. A request whose header names a legacy version is judged: version 2 of the Python SDK, and FastMCP,
    # treat it as a legacy request and respond with -32600 because it has no session. This response is a fault, because
    # the specification requires HeaderMismatch whenever header and body differ (Protocol Version Header).
    older = exchange.request.headers[_VERSION.lower()] in LEGACY_REVISIONS
    if _VERSION in others and (len(others) > 1 or not older):
        return UNDECIDED
    return _refused(exchange, f"a request whose {others[0]} contradicts its body")


@stated_rule(
    section="basic/transports/streamable-http#server-validation",
    sentence="A request without a header that it must have gets status 400 and error -32020.",
    moves=["missing-header", "missing-parameter"],
    transports=["http"],
)
@each(_compared)
def missing_header_refused(_: Event, connection: Connection, exchange: Exchange, found: dict[str, str]) -> Opinion:
    """Check that a request without a required header is refused.

    A request without the version header is judged only if the server accepts it, and has said that it speaks no legacy
    revision.
    """
    missing = [header for header, how in found.items() if how == "missing"]
    if not missing or not {*found.values()} <= {"same", "missing"}:
        return UNDECIDED
    # A server need not say that it speaks both eras. A server of both eras may treat a request without the version
    # header as a legacy request and refuse it for that reason, so a refusal proves nothing.
    legacy = (exchange.status or 0) >= 400 or not _is_modern_only(connection)
    if _VERSION in missing and (len(missing) > 1 or legacy):
        return UNDECIDED
    return _refused(exchange, f"a request without {missing[0]}")


@stated_rule(moves=["odd-characters"], transports=["http"])
@each(_compared)
def bad_header_characters_refused(
    _: Event, _connection: Connection, exchange: Exchange, found: dict[str, str]
) -> Opinion:
    """Check that a request is refused if a header contains characters that no header may contain."""
    odd = [header for header, how in found.items() if how == "odd"]
    if not odd:
        return UNDECIDED
    # Any refusal is enough: an HTTP server may respond to such bytes with a plain 400 before its MCP code sees them.
    kept = (exchange.status or 0) >= 400
    return None if kept else f"a request with an invalid {odd[0]} got status {exchange.status}"


@stated_rule(moves=["encoded-header"], transports=["http"])
@each(_modern)
def encoded_header_decoded(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a Base64-encoded header is accepted if it agrees with the body once it is decoded."""
    repeated = _repeated(connection, exchange.message)
    values = [exchange.request.headers.get(header.lower(), "") for header, _ in repeated]
    if not any(value.startswith("=?base64?") for value in values) or not _agrees(connection, exchange):
        return UNDECIDED
    # Only HeaderMismatch shows that the header was compared with the body without being decoded. Any other error is
    # about the call itself.
    return "an encoded header was not understood" if _code(exchange) == HEADER_MISMATCH else None


@stated_rule(
    sentence="No header is expected for an argument that is null or not given.",
    moves=["call-tool", "missing-parameter"],
    transports=["http"],
)
@each(_modern)
def null_argument_header_not_expected(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a call is not refused because it lacks the header of an argument that is null or absent."""
    arguments = exchange.message["params"].get("arguments")
    parameters = _parameters(connection, exchange.message)
    absent = [each.header for each in parameters if each.value_in(arguments) is None]
    if not absent or not _agrees(connection, exchange):
        return UNDECIDED
    # All other headers agree with the body, so HeaderMismatch can only be about the header that has to be left out.
    refused = _code(exchange) == HEADER_MISMATCH
    return f"a call without the argument for {absent[0]} was refused because the header is missing" if refused else None


@stated_rule(moves=["header-case"], transports=["http"])
@each(_modern)
def header_names_case_insensitive(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that header names in an unusual case are recognized."""
    usual = {"mcp-protocol-version": _VERSION, "mcp-method": "Mcp-Method", "mcp-name": "Mcp-Name"}
    names = [name for name, _ in exchange.request.facts.get("headers", ()) if name.lower() in usual]
    if all(name == usual[name.lower()] for name in names) or not _agrees(connection, exchange):
        return UNDECIDED
    # A server that doesn't recognize the version header may also assume revision 2025-03-26 (Protocol Version Header)
    # and refuse it with -32022.
    refused = _code(exchange) in (HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION)
    return f"headers named {', '.join(names)} were not understood" if refused else None


@stated_rule(moves=["integer-parameter"], transports=["http"])
@each(_compared)
def integer_headers_numeric(_: Event, connection: Connection, exchange: Exchange, found: dict[str, str]) -> Opinion:
    """Check that a header may write an integer differently from the body, such as 42.0 for 42."""
    values = dict(_repeated(connection, exchange.message))
    unclear = [values[header] for header, how in found.items() if how == "unclear"]
    # The value of a string header can be unclear as well, because of its Base64, but this rule is only about integers.
    if not unclear or not all(isinstance(value, int) for value in unclear):
        return UNDECIDED
    if not {*found.values()} <= {"same", "unclear"} or _unexpected(exchange, found):
        return UNDECIDED
    return f"a header that writes {unclear[0]} differently was refused" if _code(exchange) == HEADER_MISMATCH else None


# --- statuses ---------------------------------------------------------------------------------------------------------


def _errors(history: History) -> Iterator[tuple[Event, Exchange, int]]:
    """Yield the errors in response to modern-era requests, each with its HTTP exchange and its code."""
    for _, connection, exchange in posted(history):
        if connection.modern and (found := _error(exchange)) is not None:
            error, code = found
            yield error, exchange, code


@stated_rule(moves=["unknown-method", "call-tool"], transports=["http"])
@each(_errors)
def unknown_method_404(_: Event, exchange: Exchange, code: int) -> Opinion:
    """Check that error -32601 comes with HTTP status 404."""
    # A response with status 404 and another error may be about a path or a session, so only the error code -32601 shows
    # that the method is unknown.
    if code != METHOD_NOT_FOUND:
        return UNDECIDED
    return None if exchange.status == 404 else f"error -32601 came with status {exchange.status}, not 404"


@stated_rule(moves=["mismatched-header", "missing-header", "unsupported-version"], transports=["http"])
@each(_errors)
def error_status_400(_: Event, exchange: Exchange, code: int) -> Opinion:
    """Check that the errors -32020, -32021 and -32022 come with status 400."""
    # The specification reserves these codes (Error Codes), so a server can't give them a meaning of its own.
    if code not in (HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION):
        return UNDECIDED
    return None if exchange.status == 400 else f"error {code} came with status {exchange.status}, not 400"


@stated_rule(moves=["incomplete-meta"], transports=["http"])
@each(_errors)
def incomplete_meta_status(_: Event, exchange: Exchange, code: int) -> Opinion:
    """Check that a request that is refused for an incomplete ``_meta`` gets status 400."""
    entries = member_of(exchange.message, "params", "_meta")
    complete = isinstance(entries, dict) and {meta.PROTOCOL_VERSION, meta.CLIENT_CAPABILITIES} <= entries.keys()
    # A server of both eras may treat a request without a version as a legacy one. Only the code -32602 shows that the
    # server treated the request as a modern one.
    if code != INVALID_PARAMS or complete:
        return UNDECIDED
    return None if exchange.status == 400 else f"the refusal came with status {exchange.status}, not 400"


@stated_rule(moves=["unsupported-version"], transports=["http"])
@each(_clean)
def unsupported_version_status(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a request in a revision that does not exist is refused with status 400 and error -32022."""
    entries = member_of(exchange.message, "params", "_meta")
    named = member_of(entries, meta.PROTOCOL_VERSION)
    given = exchange.request.headers.get("mcp-protocol-version")
    # If header and body differ, error -32020 is also right. A version that may be a future one isn't judged, because
    # the server may speak it.
    if not isinstance(named, str) or named != given or not is_no_version(named):
        return UNDECIDED
    if not isinstance(entries.get(meta.CLIENT_CAPABILITIES), dict) or not (is_whole(exchange) or exchange.received):
        return UNDECIDED
    code = _code(exchange)
    kept = exchange.status == 400 and code == UNSUPPORTED_PROTOCOL_VERSION
    return None if kept else f"revision {named!r} got status {exchange.status} and error {code}, not 400 and -32022"


# --- legacy traffic ---------------------------------------------------------------------------------------------------


def _is_modern_only(connection: Connection) -> bool:
    """Return whether the server has said that it speaks no revision of the legacy era."""
    results = (asked.result for asked in connection.requests if asked.method == "server/discover")
    versions = items_of(next(filter(None, results), None), "supportedVersions")
    # A missing or empty list of versions promises nothing: a server that sends none may still respond to `initialize`.
    return bool(versions) and {*map(str, versions)}.isdisjoint(LEGACY_REVISIONS)


@stated_rule(
    sentence="A server of the modern era alone refuses GET and DELETE with 405, and knows no session ids or "
    "resumption.",
    moves=["legacy-traffic"],
    transports=["http"],
)
@each(exchanged())
def legacy_traffic_refused(response: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a modern-only server refuses GET and DELETE with status 405, and ignores session and event ids."""
    # A server of both eras may serve GET, DELETE and sessions on the same endpoint (Backward Compatibility).
    if not connection.modern or not _is_modern_only(connection) or exchange.status in ELSEWHERE | {403}:
        return UNDECIDED
    if exchange.method in ("GET", "DELETE"):
        return None if exchange.status == 405 else f"{exchange.method} got status {exchange.status}, not 405"
    if exchange.method != "POST" or not {"mcp-session-id", "last-event-id"} & exchange.request.headers.keys():
        return UNDECIDED
    if "mcp-session-id" in response.headers:
        return "the response has a session id"
    # Only a request that has no other reason to fail shows whether the server ignored its session or event id.
    if not is_request(exchange.message) or not _is_sound(connection, exchange):
        return UNDECIDED
    return (
        None
        if exchange.status == 200
        else f"a request with a session or event id got status {exchange.status}, not 200"
    )


def _is_sound(connection: Connection, exchange: Exchange) -> bool:
    """Return whether a request is a faultless ``server/discover``, to which every server responds with a result."""
    message = exchange.message
    if message["method"] != "server/discover" or not is_clean(exchange):
        return False
    params = message.get("params")
    return isinstance(params, dict) and "_meta" in params and _agrees(connection, exchange)
