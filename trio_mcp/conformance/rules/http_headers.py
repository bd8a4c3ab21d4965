"""Rules for servers of the modern era over HTTP: headers that repeat the body, statuses, old traffic."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.rules.history import Connection, Exchange, History, is_request
from trio_mcp.conformance.rules.http import ELSEWHERE, is_clean, is_no_version, is_whole, over_http, received
from trio_mcp.conformance.rules.model import Verdict, broken, judged
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

# Value Encoding lets a header contain these. HTTP itself allows bytes above 0x7f as well (RFC 9110, section 5.5).
_PLAIN: Final = re.compile(r"[\x20-\x7e\t]*")
# Value Encoding wants decimal digits, and Server Validation has 42.0 as an example; an exponent is in neither.
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _modern(history: History) -> Iterator[tuple[Connection, Exchange, dict[str, Any]]]:
    """Yield the POSTs of requests of the modern era that have nothing wrong besides the headers judged here.

    That is: what the body must have is there, and the method is one that clients may use.
    """
    for connection, exchange in over_http(history, "POST"):
        message = exchange.message
        if not connection.modern or not is_request(message) or not is_clean(exchange) or exchange.status in ELSEWHERE:
            continue
        params = message.get("params")
        entries = params.get("_meta") if isinstance(params, dict) else None
        # Another revision may be refused with -32022, and have other headers, so nothing certain can be said.
        if not isinstance(entries, dict) or entries.get(meta.PROTOCOL_VERSION) != connection.revision:
            continue
        spec = method_spec(connection.revision, message["method"])
        # An unknown method and an incomplete `_meta` have errors of their own, and the text doesn't say which check
        # comes first.
        if isinstance(entries.get(meta.CLIENT_CAPABILITIES), dict) and spec is not None and "client" in spec.senders:
            yield connection, exchange, message


def _error(exchange: Exchange) -> tuple[Event, int] | None:
    """Return the first error in a response, and its code."""
    # On a stream, notifications may come before the error.
    for event in received(exchange):
        error = event.message.get("error")
        if isinstance(error, dict) and isinstance(error.get("code"), int):
            return event, error["code"]
    return None


def _code(exchange: Exchange) -> int | None:
    found = _error(exchange)
    return None if found is None else found[1]


def _head(exchange: Exchange) -> Event:
    assert exchange.response is not None  # as `over_http` makes sure
    return exchange.response


def _refused(exchange: Exchange, what: str) -> Iterator[Verdict]:
    """Judge whether a request was refused as header validation demands, once its response has ended."""
    # A server may send the head before the body, so as long as the body is missing the code isn't known.
    # A client that leaves between the two never learns it.
    if is_whole(exchange) or exchange.received:
        code = _code(exchange)
        kept = exchange.status == 400 and code == HEADER_MISMATCH
        said = "no error" if code is None else f"error {code}"
        yield judged(kept, _head(exchange), f"{what} got status {exchange.status} and {said}, not 400 and -32020")


# --- what the headers say ---------------------------------------------------------------------------------------------


def _decoded(value: str) -> str | None:
    """Return the text that a header carries; None if that is not certain, or it carries none."""
    value = value.strip(" \t")
    if not _PLAIN.fullmatch(value):
        return None
    # In `=?base64?=`, of ten characters, start and end share the `?`: it is a plain value.
    if not (value.startswith("=?base64?") and value.endswith("?=") and len(value) > 10):
        return value
    # Without `validate` Python skips what isn't in the alphabet. Servers differ in that, so such a value is in doubt.
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _parameters(connection: Connection, message: dict[str, Any]) -> tuple[ParameterHeader, ...]:
    """Return what the tool that is called wants as headers."""
    params = message["params"]
    tool = connection.tools.get(params["name"]) if isinstance(params.get("name"), str) else None
    if message["method"] != "tools/call" or tool is None:
        return ()
    # A wrong annotation makes the tool's definition invalid (Schema Extension), and what its server expects then is
    # open.
    try:
        return parameter_headers(tool.get("inputSchema"))
    except ValueError:
        return ()


def _repeated(connection: Connection, message: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each header that a request must have, except for the version, with the value in the body."""
    yield "Mcp-Method", message["method"]
    if isinstance(name := message["params"].get(NAMED_BY.get(message["method"], "")), str):
        yield "Mcp-Name", name
    for parameter in _parameters(connection, message):
        # Values of other types can't be headers; whether their call is refused is up to the tool's own validation.
        if isinstance(value := parameter.value_in(message["params"].get("arguments")), (str, int)):
            yield parameter.header, value


def _compare(exchange: Exchange, header: str, value: Any) -> str:
    """Return how a header compares with the body: ``same``, ``other``, ``missing``, ``odd``, or ``unclear``."""
    given = exchange.request.headers.get(header.lower())
    if given is None:
        return "missing"
    if not _PLAIN.fullmatch(given.strip(" \t")):
        return "odd"
    # A method is never encoded.
    text = given.strip(" \t") if header == "Mcp-Method" else _decoded(given)
    if text is None:
        return "unclear"
    wanted = ("true" if value else "false") if isinstance(value, bool) else str(value)
    if text == wanted:
        return "same"
    if isinstance(value, int) and not isinstance(value, bool) and _NUMBER.fullmatch(text):
        # To compare numbers as numbers is only a SHOULD (Server Validation), so 42.0 for 42 may be refused or not.
        return "unclear" if float(text) == value else "other"
    return "other"


def _version(connection: Connection, exchange: Exchange) -> str:
    given = exchange.request.headers.get("mcp-protocol-version")
    return "missing" if given is None else "same" if given.strip(" \t") == connection.revision else "other"


def _compared(history: History) -> Iterator[tuple[Connection, Exchange, str, dict[str, str]]]:
    """Yield each POST with how its version compares with the body, and how each other header does."""
    for connection, exchange, message in _modern(history):
        found = {header: _compare(exchange, header, value) for header, value in _repeated(connection, message)}
        yield connection, exchange, _version(connection, exchange), found


def _agrees(connection: Connection, exchange: Exchange, message: dict[str, Any]) -> bool:
    """Return whether all headers are there, and say what the body says."""
    arguments = message["params"].get("arguments")
    # A server may refuse an argument that no header can repeat as one whose header is missing.
    if any(not isinstance(each.value_in(arguments), str | int | None) for each in _parameters(connection, message)):
        return False
    found = [_compare(exchange, header, value) for header, value in _repeated(connection, message)]
    return set(found) <= {"same"} and _version(connection, exchange) == "same" and not _unexpected(exchange, found)


def _unexpected(exchange: Exchange, found: list[str]) -> bool:
    """Return whether there are more headers than the body calls for."""
    # The text has no answer for a header that repeats nothing in the body; a server may see a contradiction.
    names = {name.lower() for name, _ in exchange.request.facts.get("headers", ())}
    return len([name for name in names if name in ("mcp-method", "mcp-name") or name.startswith("mcp-param-")]) > len(
        found
    )


# --- validation -------------------------------------------------------------------------------------------------------


@stated_rule(
    section="basic/transports/streamable-http#server-validation",
    sentence="A request whose headers contradict its body gets status 400 and error -32020.",
    moves=["mismatched-header", "mismatched-parameter"],
    transports=["http"],
)
def header_mismatch_refused(history: History) -> Iterator[Verdict]:
    """Judge each request with a header that says something else than the body, and none that is missing."""
    for _, exchange, version, found in _compared(history):
        # If a header is missing, odd or in doubt besides, it can't be told what the server went by.
        if not {*found.values(), version} <= {"same", "other"}:
            continue
        if (others := [header for header, how in found.items() if how == "other"]) and version == "same":
            yield from _refused(exchange, f"a request whose {others[0]} contradicts its body")
        # A version that the server does not know is a reason of its own.
        elif not others and exchange.request.headers["mcp-protocol-version"] in LEGACY_REVISIONS:
            # Version 2 of the Python SDK, and FastMCP, serve this as legacy, and answer -32600 for want of a session.
            # Protocol Version Header demands HeaderMismatch whenever header and body differ, so the rule doesn't yield.
            yield from _refused(exchange, "a request whose MCP-Protocol-Version contradicts its body")


@stated_rule(
    section="basic/transports/streamable-http#server-validation",
    sentence="A request without a header that it must have gets status 400 and error -32020.",
    moves=["missing-header", "missing-parameter"],
    transports=["http"],
)
def missing_header_refused(history: History) -> Iterator[Verdict]:
    """Judge each request without one of the headers; without the version, if the server knows no older clients."""
    for connection, exchange, version, found in _compared(history):
        if not {*found.values(), version} <= {"same", "missing"}:
            continue
        missing = [header for header, how in found.items() if how == "missing"]
        if missing and version == "same":
            yield from _refused(exchange, f"a request without {missing[0]}")
        # A server of both eras, which need not say so, may take it for a legacy request, and refuse it as such.
        elif version == "missing" and not missing and _is_modern_only(connection) and (exchange.status or 0) < 400:
            yield from _refused(exchange, "a request without MCP-Protocol-Version")


@stated_rule(moves=["odd-characters"], transports=["http"])
def bad_header_characters_refused(history: History) -> Iterator[Verdict]:
    """Judge each request whose name or argument comes with such characters."""
    for connection, exchange, message in _modern(history):
        found = {header: _compare(exchange, header, value) for header, value in _repeated(connection, message)}
        if odd := [header for header, how in found.items() if how == "odd"]:
            # Any refusal will do: an HTTP server may answer a plain 400 to such bytes before its MCP code sees them.
            kept = (exchange.status or 0) >= 400
            yield judged(kept, _head(exchange), f"a request with an invalid {odd[0]} got status {exchange.status}")


@stated_rule(
    sentence="Headers in Base64 are decoded before they are compared with the body.",
    moves=["encoded-header"],
    transports=["http"],
)
def encoded_header_decoded(history: History) -> Iterator[Verdict]:
    """Judge each request with an encoded header, if all headers fit."""
    for connection, exchange, message in _modern(history):
        values = [exchange.request.headers.get(header.lower(), "") for header, _ in _repeated(connection, message)]
        if any(value.startswith("=?base64?") for value in values) and _agrees(connection, exchange, message):
            # Any other error is about the call. Only this one shows that texts were compared without decoding.
            yield judged(_code(exchange) != HEADER_MISMATCH, _head(exchange), "an encoded header was not understood")


@stated_rule(
    sentence="No header is expected for an argument that is null or not given.",
    moves=["call-tool", "missing-parameter"],
    transports=["http"],
)
def null_argument_header_not_expected(history: History) -> Iterator[Verdict]:
    """Judge each call that leaves out an argument with a header, if all headers fit."""
    for connection, exchange, message in _modern(history):
        arguments = message["params"].get("arguments")
        absent = [each for each in _parameters(connection, message) if each.value_in(arguments) is None]
        # Where all other headers are right, HeaderMismatch can only be about the one that has to be left out.
        if absent and _agrees(connection, exchange, message):
            problem = f"a call without the argument for {absent[0].header} was refused for want of the header"
            yield judged(_code(exchange) != HEADER_MISMATCH, _head(exchange), problem)


@stated_rule(moves=["header-case"], transports=["http"])
def header_names_case_insensitive(history: History) -> Iterator[Verdict]:
    """Judge each request with headers in an unusual case, if all headers fit."""
    usual = {"mcp-protocol-version": "MCP-Protocol-Version", "mcp-method": "Mcp-Method", "mcp-name": "Mcp-Name"}
    for connection, exchange, message in _modern(history):
        names = [name for name, _ in exchange.request.facts.get("headers", ()) if name.lower() in usual]
        if any(name != usual[name.lower()] for name in names) and _agrees(connection, exchange, message):
            # A server that misses the version may also assume 2025-03-26 (Protocol Version Header), and refuse that
            # with -32022.
            kept = _code(exchange) not in (HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION)
            yield judged(kept, _head(exchange), f"headers named {', '.join(names)} were not understood")


@stated_rule(moves=["integer-parameter"], transports=["http"])
def integer_headers_numeric(history: History) -> Iterator[Verdict]:
    """Judge each call with an integer that is written in another way, if all other headers fit."""
    for connection, exchange, message in _modern(history):
        repeated = list(_repeated(connection, message))
        found = [_compare(exchange, header, value) for header, value in repeated]
        unclear = [value for (_, value), how in zip(repeated, found, strict=True) if how == "unclear"]
        # A text can be in doubt as well, for its Base64; this sentence is about integers.
        plain = set(found) <= {"same", "unclear"} and all(isinstance(value, int) for value in unclear)
        if unclear and plain and _version(connection, exchange) == "same" and not _unexpected(exchange, found):
            kept = _code(exchange) != HEADER_MISMATCH
            yield judged(kept, _head(exchange), f"another way to write {unclear[0]} was refused")


# --- statuses ---------------------------------------------------------------------------------------------------------


@stated_rule(moves=["unknown-method", "call-tool"], transports=["http"])
def unknown_method_404(history: History) -> Iterator[Verdict]:
    """Judge each error -32601 to a request."""
    for _, exchange, error, code in _errors(history):
        # 404 with another error may be about a path or a session, so only the code shows what was meant.
        if code == METHOD_NOT_FOUND:
            yield judged(exchange.status == 404, error, f"error -32601 came with status {exchange.status}")


def _errors(history: History) -> Iterator[tuple[Connection, Exchange, Event, int]]:
    """Yield the errors in answer to requests of the modern era."""
    for connection, exchange in over_http(history, "POST"):
        if connection.modern and is_request(exchange.message) and (found := _error(exchange)) is not None:
            yield connection, exchange, *found


@stated_rule(
    sentence="The errors -32020, -32021 and -32022 come with status 400.",
    moves=["mismatched-header", "missing-header", "unsupported-version"],
    transports=["http"],
)
def error_status_400(history: History) -> Iterator[Verdict]:
    """Judge each of these errors."""
    for _, exchange, error, code in _errors(history):
        # The specification keeps these codes for itself (Error Codes), so they can't mean something of the server's
        # own.
        if code in (HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION):
            yield judged(exchange.status == 400, error, f"error {code} came with status {exchange.status}")


@stated_rule(
    sentence="A request without all that `_meta` must have gets status 400.",
    moves=["incomplete-meta"],
    transports=["http"],
)
def incomplete_meta_status(history: History) -> Iterator[Verdict]:
    """Judge each request with an incomplete `_meta` that was refused for it."""
    for _, exchange, error, code in _errors(history):
        params = exchange.message.get("params")
        entries = params.get("_meta") if isinstance(params, dict) else None
        entries = entries if isinstance(entries, dict) else {}
        complete = meta.PROTOCOL_VERSION in entries and meta.CLIENT_CAPABILITIES in entries
        # A server of both eras may take a request without a version for a legacy one; this code shows that it didn't.
        if code == INVALID_PARAMS and not complete:
            yield judged(exchange.status == 400, error, f"the refusal came with status {exchange.status}")


@stated_rule(
    sentence="A request in a revision that the server does not speak gets status 400 and error -32022.",
    moves=["unsupported-version"],
    transports=["http"],
)
def unsupported_version_status(history: History) -> Iterator[Verdict]:
    """Judge each request whose header and body name the same revision, which there is not."""
    for connection, exchange in over_http(history, "POST"):
        message = exchange.message
        if not connection.modern or not is_request(message) or not is_clean(exchange) or exchange.status in ELSEWHERE:
            continue
        params = message.get("params")
        entries = params.get("_meta") if isinstance(params, dict) else None
        named = entries.get(meta.PROTOCOL_VERSION) if isinstance(entries, dict) else None
        given = exchange.request.headers.get("mcp-protocol-version")
        # If header and body differed, -32020 would be right, too; and a version of the future may be one that the
        # server speaks.
        if not isinstance(named, str) or named != given or not is_no_version(named):
            continue
        described = isinstance(entries, dict) and isinstance(entries.get(meta.CLIENT_CAPABILITIES), dict)
        if described and (is_whole(exchange) or exchange.received):
            code = _code(exchange)
            kept = exchange.status == 400 and code == UNSUPPORTED_PROTOCOL_VERSION
            problem = f"revision {named!r} got status {exchange.status} and error {code}, not 400 and -32022"
            yield judged(kept, _head(exchange), problem)


# --- what is left of old eras -----------------------------------------------------------------------------------------


def _is_modern_only(connection: Connection) -> bool:
    """Return whether the server has said that it speaks no revision of the legacy era."""
    for asked in connection.requests:
        if asked.method == "server/discover" and asked.result is not None:
            versions = asked.result.get("supportedVersions")
            # An empty list, or none, promises nothing: such a server may still answer `initialize`.
            return isinstance(versions, list) and bool(versions) and not set(map(str, versions)) & {*LEGACY_REVISIONS}
    return False


@stated_rule(
    sentence="A server of the modern era alone refuses GET and DELETE with 405, and knows no session ids or "
    "resumption.",
    moves=["legacy-traffic"],
    transports=["http"],
)
def legacy_traffic_refused(history: History) -> Iterator[Verdict]:
    """Judge each GET, each DELETE, and each request with a session id or an event id."""
    for connection, exchange in over_http(history):
        # A server of both eras may serve GET, DELETE and sessions on the same endpoint (Backward Compatibility).
        if not connection.modern or not _is_modern_only(connection) or exchange.status in ELSEWHERE | {403}:
            continue
        head, headers = _head(exchange), exchange.request.headers
        if exchange.method in ("GET", "DELETE"):
            yield judged(exchange.status == 405, head, f"{exchange.method} got status {exchange.status}, not 405")
        elif exchange.method == "POST" and {"mcp-session-id", "last-event-id"} & {*headers}:
            if "mcp-session-id" in head.headers:
                yield broken(head, "the response has a session id")
            # That the header was ignored shows only in a request that nothing else can make fail.
            elif is_request(exchange.message) and _is_sound(connection, exchange):
                yield judged(exchange.status == 200, head, f"a request with a session id got {exchange.status}")


def _is_sound(connection: Connection, exchange: Exchange) -> bool:
    """Return whether a request is a discovery without fault, which every server answers."""
    message = exchange.message
    if message["method"] != "server/discover" or not is_clean(exchange):
        return False
    params = message.get("params")
    return isinstance(params, dict) and "_meta" in params and _agrees(connection, exchange, message)
