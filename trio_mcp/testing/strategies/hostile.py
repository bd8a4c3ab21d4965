"""Provides strategies for faulty messages and HTTP headers, each with the reactions that the specification allows.

The allowed reactions include everything that the specification's text leaves open, so tests raise no false alarms.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import attrs
from hypothesis import strategies as st

from trio_mcp.testing.strategies.plain_data import json_values, request_ids, texts
from trio_mcp.types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LEGACY_REVISIONS,
    METHOD_NOT_FOUND,
    MODERN_REVISIONS,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    Era,
    era_of,
    meta as meta_keys,
)

__all__ = [
    "HEADER_FAULTS",
    "MESSAGE_FAULTS",
    "AllowedOutcome",
    "HeaderFault",
    "Hostile",
    "HostileHeaders",
    "MessageFault",
    "hostile_headers",
    "hostile_messages",
]


@attrs.frozen
class AllowedOutcome:
    """The ways in which a receiver may react to a fault.

    Attributes:
        codes: The allowed error codes in a response: empty if the receiver must not send an error, None for any code.
        result: Whether the receiver may be lenient and send a result.
        silence: Whether the receiver may send no response.
        statuses: The allowed HTTP statuses; if empty, 200, 202 and 400 to 499.
    """

    codes: frozenset[int] | None = frozenset()
    result: bool = False
    silence: bool = True
    statuses: frozenset[int] = frozenset()


@attrs.frozen
class Hostile:
    """A faulty or unusual text to send in place of a message.

    Attributes:
        text: The text, without framing. It has no line breaks.
        fault: The name of the fault: a key of `MESSAGE_FAULTS`.
        id: The id, if the text is a request or was made from one; otherwise None.
        outcome: The allowed reactions. An error response has the same id, or no id if the receiver can't read it.
    """

    text: bytes
    fault: str
    id: float | str | None
    outcome: AllowedOutcome


@attrs.frozen
class HostileHeaders:
    """Faulty headers for a POST with a valid message.

    Attributes:
        headers: The changes to the headers of a valid request: a value replaces or adds a header, None removes it.
        fault: The name of the fault: a key of `HEADER_FAULTS`.
        outcome: The allowed reactions of a server.
    """

    headers: Mapping[str, str | None]
    fault: str
    outcome: AllowedOutcome


_WITHOUT = object()
"""The value that represents an absent member; None represents null."""


def _changed(members: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members with some replaced or added; the value `_WITHOUT` removes a member."""
    return {name: value for name, value in {**members, **changes}.items() if value is not _WITHOUT}


@attrs.frozen
class _Base:
    """The valid request from which a faulty message is made. Its method has no parameters."""

    id: Any
    method: str
    meta: Mapping[str, Any]

    def request(self, **changes: Any) -> dict[str, Any]:
        """Return the request with some members changed."""
        params = {"_meta": dict(self.meta)} if self.meta else {}
        return _changed({"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params}, changes)

    def with_params(self, **changes: Any) -> dict[str, Any]:
        """Return the request with some parameters changed."""
        return self.request(params=_changed(self.request()["params"], changes))

    def with_meta(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request with some members of its ``_meta`` changed."""
        return self.with_params(_meta=_changed(self.meta, changes))

    def text(self) -> bytes:
        """Return the request as JSON text."""
        return _text(self.request())


_Make: TypeAlias = Callable[[_Base], st.SearchStrategy[Any]]


@attrs.frozen
class MessageFault:
    """A kind of fault in messages.

    Attributes:
        make: Returns a strategy for messages with the fault, as texts or JSON values.
        outcome: The allowed reactions of a receiver.
        has_id: Whether the message is a request with an id, or was made from one.
        revisions: The revisions in which this is a fault.
    """

    make: _Make
    outcome: AllowedOutcome
    has_id: bool = True
    revisions: tuple[str, ...] = (*LEGACY_REVISIONS, *MODERN_REVISIONS)


def _codes(*codes: int, **more: Any) -> AllowedOutcome:
    return AllowedOutcome(frozenset(codes), **more)


_ANY_CODE = (PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR)
# The codes are from JSON-RPC 2.0, section 5.1. Silence is allowed, because an unreadable message may be a notification.
_UNREADABLE = _codes(PARSE_ERROR, INVALID_REQUEST)
# A receiver should refuse the message, but some don't check.
_LENIENT = _codes(INVALID_REQUEST, result=True)
# The sender must not send the message, but a receiver may read it as it was meant.
_ODD = _codes(*_ANY_CODE, result=True)
# A request with an id needs a response.
_ANSWERED = _codes(*_ANY_CODE, result=True, silence=False)
_GOOD = AllowedOutcome(result=True, silence=False)
_UNKNOWN = _codes(METHOD_NOT_FOUND, silence=False)
_REFUSED = _codes(INVALID_PARAMS, silence=False)
_IGNORED = AllowedOutcome()
# JSON-RPC does not say how to treat an unexpected response, so the receiver may send an error without an id.
_STRAY = _codes(INVALID_REQUEST)


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()


def _one(*values: Any) -> _Make:
    """Return a maker that draws one of these texts or values as the message."""
    return lambda base: st.sampled_from(values)


def _member(name: str, *values: Any) -> _Make:
    """Return a maker that draws a request in which the member ``name`` has one of these values."""
    return _requests(*({name: value} for value in values))


def _requests(*changes: Mapping[str, Any]) -> _Make:
    """Return a maker that draws a request with one of these changes to its members."""
    return lambda base: st.sampled_from([base.request(**each) for each in changes])


def _meta(*changes: Mapping[str, Any]) -> _Make:
    """Return a maker that draws a request with one of these changes to its ``_meta``."""
    return lambda base: st.sampled_from([base.with_meta(each) for each in changes])


def _message(*messages: Mapping[str, Any]) -> _Make:
    """Return a maker that draws one of these messages, with ``jsonrpc`` added."""
    return _one(*({"jsonrpc": "2.0", **each} for each in messages))


def _appended(*raw: bytes) -> _Make:
    """Return a maker that draws a request with one of these texts added as a further member."""
    return lambda base: st.sampled_from([base.text()[:-1] + b"," + each + b"}" for each in raw])


def _inside(*raw: bytes) -> _Make:
    """Return a maker that draws a request with a further member that has one of these texts as its value."""
    return _appended(*(b'"x":' + each for each in raw))


def _cut(base: _Base) -> st.SearchStrategy[bytes]:
    whole = base.text()
    return st.integers(1, len(whole) - 1).map(lambda at: whole[:at])


def _edited(base: _Base) -> st.SearchStrategy[bytes]:
    whole = base.text()
    # Lenient parsers allow comments, trailing commas, single quotes or bare names, or strip the prefix with which web
    # frameworks prevent JSON hijacking.
    around = [whole + b"}", b"/* */" + whole, b"\x00" + whole, b")]}'," + whole, whole[:-1] + b",}"]
    return st.sampled_from([*around, whole.replace(b'"', b"'"), whole.replace(b'"jsonrpc"', b"jsonrpc")])


def _nested(base: _Base) -> st.SearchStrategy[bytes]:
    # The text is put together from parts, because Python's encoder would exceed its recursion limit at the greater
    # depths.
    before, after = _text(base.with_params(x="@")).split(b'"@"')

    def text(depth: int, brackets: tuple[bytes, bytes]) -> bytes:
        return before + brackets[0] * depth + b"0" + brackets[1] * depth + after

    # Common limits are 128 (serde_json in Rust) and 1000 (Python's recursion limit); in other parsers the stack
    # overflows only at depths far beyond these.
    depths = st.sampled_from([100, 500, 2_000, 20_000])
    return st.builds(text, depths, st.sampled_from([(b"[", b"]"), (b'{"a":', b"}")]))


def _large(base: _Base) -> st.SearchStrategy[Any]:
    # The larger size exceeds 64 KiB, which is the size of a pipe and asyncio's default limit for a line. Both sizes are
    # far below the megabytes that servers refuse for good reason. Each shape is slow in a different part of a parser.
    shapes: list[Callable[[int], dict[str, Any]]] = [
        lambda size: {"x": "x" * size},
        lambda size: {"x": [0] * (size // 2)},
        lambda size: {"x": {f"k{number}": 0 for number in range(size // 10)}},
        lambda size: {"k" * size: 0},
    ]
    sizes = st.sampled_from([10_000, 300_000])
    return st.builds(lambda size, shape: base.with_params(**shape(size)), sizes, st.sampled_from(shapes))


def _escaped(base: _Base) -> st.SearchStrategy[bytes]:
    """Return a strategy for the request with each character of its method escaped."""
    escaped = "".join(f"\\u{ord(char):04x}" for char in base.method)
    return st.just(base.text().replace(f'"{base.method}"'.encode(), f'"{escaped}"'.encode()))


def _unknown_methods(base: _Base) -> st.SearchStrategy[Any]:
    # A server that trims names, ignores case, stops at a NUL or compares prefixes would find a method. Names that begin
    # with "rpc." are reserved (JSON-RPC 2.0, section 4).
    odd = ["no/such/method", "tools/call/", "Tools/List", " ping", "ping\x00", "rpc.discover", "tools"]
    return (st.sampled_from(odd) | texts(8).map("x-{}".format)).map(lambda each: base.request(method=each))


_OTHER_TYPES: tuple[Any, ...] = (None, 5, True, [], ["x"])
# null is not among these values: many senders write it for an absent value, so it is a separate fault that allows more
# reactions.
_NO_OBJECTS: tuple[Any, ...] = ("x", 5, True, [], [1], [{}])
# Progress tokens are strings or integers; the TypeScript type `number` does not show that 1.5 is invalid.
_NO_TOKENS: tuple[Any, ...] = (None, True, [], {}, 1.5)
_VERSION, _CAPABILITIES = meta_keys.PROTOCOL_VERSION, meta_keys.CLIENT_CAPABILITIES
# Ids that a receiver must return unchanged, which is hard in some languages.
_ODD_IDS = (0, -1, 2**31, -(2**31) - 1, 2**53 - 1, 1 - 2**53, "", " ", "0", "1.0", "null", "x" * 300, "😀")
_WITHOUT_BATCHES = tuple(revision for revision in (*LEGACY_REVISIONS, *MODERN_REVISIONS) if revision != "2025-03-26")

MESSAGE_FAULTS: Mapping[str, MessageFault] = {
    # The text is not JSON, or not UTF-8.
    "cut-off": MessageFault(_cut, _UNREADABLE),
    "malformed-json": MessageFault(_edited, _UNREADABLE),
    "malformed-number": MessageFault(_inside(b"01", b"+1", b".5", b"1.", b"0x10", b"1e", b"--1"), _UNREADABLE),
    # JSON forbids raw control characters, but many parsers accept them.
    "malformed-text": MessageFault(_inside(b'"\\x41"', b'"\x01"', b'"\\u12"', b'"\t"', b"'x'"), _ODD),
    # Python's json module accepts the first two of these words by default.
    "no-json-word": MessageFault(_inside(b"NaN", b"-Infinity", b"undefined", b"True", b"None"), _ODD),
    "not-utf-8": MessageFault(
        _inside(b'"\xff"', b'"\xc3"', b'"\xe2\x82"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b"\xff"), _ODD
    ),
    # Messages must be UTF-8 (RFC 8259, section 8.1), but Python's `json.loads` also detects UTF-16.
    "utf-16": MessageFault(lambda base: st.just(base.text().decode().encode("utf-16-le")), _UNREADABLE),
    # A sender must not add a byte order mark, and a receiver may ignore one (RFC 8259, section 8.1).
    "byte-order-mark": MessageFault(lambda base: st.just(b"\xef\xbb\xbf" + base.text()), _ODD),
    "no-json-at-all": MessageFault(
        _one(b"hello", b"GET / HTTP/1.1", b"Content-Length: 20", b"\x16\x03\x01", b"]", b"{", b'"', b"\\"),
        _UNREADABLE,
        False,
    ),
    # A receiver that reads a stream of JSON values, rather than lines, would send two responses for the same id.
    "two-messages": MessageFault(lambda base: st.just(base.text() * 2), _ODD),
    # The grammar of JSON allows escapes of unpaired surrogates, with unpredictable results (RFC 8259, section 8.2).
    "half-a-pair": MessageFault(_inside(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d x"'), _ODD),
    # The text is JSON, but not a message.
    "not-an-object": MessageFault(_one(0, -1.5, "ping", "", None, True, False), _UNREADABLE, False),
    "empty-object": MessageFault(_one({}, {"a": 1}, {"jsonrpc": "2.0"}), _STRAY, False),
    "empty-batch": MessageFault(_one([]), _STRAY, False),
    # Batches were added in 2025-03-26 and removed in 2025-06-18.
    "batch": MessageFault(lambda base: st.just([base.request()]), _STRAY, revisions=_WITHOUT_BATCHES),
    "batch-of-nonsense": MessageFault(_one([1], [[]], [None, "x"]), _STRAY, False, _WITHOUT_BATCHES),
    # A member of the envelope is wrong.
    "no-version": MessageFault(_member("jsonrpc", _WITHOUT), _LENIENT),
    "wrong-version": MessageFault(_member("jsonrpc", "1.0", "2.1", "2", "", 2, 2.0, None, ["2.0"]), _LENIENT),
    # JSON-RPC discourages null as an id, and MCP forbids it (`basic#requests`). The receiver may treat the message as a
    # notification and stay silent.
    "id-null": MessageFault(_member("id", None), _STRAY),
    "id-of-another-type": MessageFault(_member("id", True, False, [], [1], {}, {"id": 1}), _STRAY),
    # JSON-RPC 2.0 (section 4) only says that an id SHOULD have no fraction, so some receivers accept any number.
    "id-fraction": MessageFault(_member("id", 1.5, -0.25), _LENIENT),
    "no-method": MessageFault(_member("method", _WITHOUT), _STRAY),
    "method-of-another-type": MessageFault(
        _member("method", None, 1, True, [], {}, ["ping"]), _codes(INVALID_REQUEST, METHOD_NOT_FOUND)
    ),
    "params-of-another-type": MessageFault(
        _member("params", *_NO_OBJECTS), _codes(INVALID_PARAMS, INVALID_REQUEST), revisions=MODERN_REVISIONS
    ),
    # The method of the request has no parameters, so a receiver need not look at them.
    "params-of-another-type-legacy": MessageFault(_member("params", *_NO_OBJECTS), _ODD, revisions=LEGACY_REVISIONS),
    # Go and C# programs write null for an unset field, so receivers commonly treat null as absent.
    "params-null": MessageFault(_member("params", None), _ODD),
    "result-too": MessageFault(_requests({"result": {}}, {"error": {"code": 1, "message": "x"}}), _ODD),
    "unknown-members": MessageFault(_requests(*({name: {}} for name in ("x", "_meta", "Method", "__proto__"))), _ODD),
    # Of two members with the same name, most parsers use the last, some use the first, and some refuse the text (RFC
    # 8259, section 4).
    "repeated-members": MessageFault(
        _appended(b'"jsonrpc":"2.0"', b'"method":"no/such"', b'"method":5', b'"params":{}'), _ODD
    ),
    # The method is unknown.
    "unknown-method": MessageFault(_unknown_methods, _UNKNOWN),
    # An empty name is a string, so it is either an unknown method or an invalid one.
    "empty-method": MessageFault(_member("method", ""), _codes(METHOD_NOT_FOUND, INVALID_REQUEST, silence=False)),
    "long-method": MessageFault(
        _member("method", "x" * 20_000), _codes(METHOD_NOT_FOUND, INVALID_REQUEST, silence=False)
    ),
    # A server that shares its dispatcher with a client may have handlers for these methods, but must not run them.
    "method-of-the-server": MessageFault(
        _member("method", "sampling/createMessage", "roots/list", "elicitation/create"), _UNKNOWN
    ),
    # The `_meta` is wrong.
    "meta-missing": MessageFault(_member("params", _WITHOUT, {}, {"_meta": {}}), _REFUSED, revisions=MODERN_REVISIONS),
    "meta-of-another-type": MessageFault(
        lambda base: st.sampled_from([base.with_params(_meta=value) for value in _NO_OBJECTS]),
        _codes(INVALID_PARAMS, INVALID_REQUEST, silence=False),
        revisions=MODERN_REVISIONS,
    ),
    "meta-incomplete": MessageFault(
        _meta({_VERSION: _WITHOUT}, {_CAPABILITIES: _WITHOUT}), _REFUSED, revisions=MODERN_REVISIONS
    ),
    "meta-values-of-another-type": MessageFault(
        _meta(*({key: value} for key in (_VERSION, _CAPABILITIES) for value in _OTHER_TYPES)),
        _codes(INVALID_PARAMS, INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION, HEADER_MISMATCH, silence=False),
        revisions=MODERN_REVISIONS,
    ),
    "unsupported-version": MessageFault(
        _meta(*({_VERSION: version} for version in ("1900-01-01", "9999-12-31", "latest", "DRAFT-2026-v1"))),
        # Over HTTP, a server may first compare the version with the one in the header.
        _codes(UNSUPPORTED_PROTOCOL_VERSION, HEADER_MISMATCH, silence=False),
        revisions=MODERN_REVISIONS,
    ),
    "token-of-another-type": MessageFault(_meta(*({meta_keys.PROGRESS_TOKEN: token} for token in _NO_TOKENS)), _ODD),
    # The request is unusual, but valid.
    "odd-id": MessageFault(_member("id", *_ODD_IDS), _GOOD),
    "escaped": MessageFault(_escaped, _GOOD),
    "spaces": MessageFault(
        lambda base: st.just(b" \t" + json.dumps(base.request(), separators=(" ,\t", " : ")).encode() + b" \t "), _GOOD
    ),
    "unknown-params": MessageFault(
        lambda base: json_values().map(lambda value: base.with_params(xUnknown=value)), _ANSWERED
    ),
    # The message is too large.
    "nested": MessageFault(_nested, _ODD),
    "large": MessageFault(_large, _ODD),
    # These numbers exceed the range or precision of a double, or Python's limit of 4300 digits for converting text to
    # int.
    "huge-number": MessageFault(
        _inside(b"1e400", b"-1e999", b"9" * 400, b"0." + b"1" * 400, b"1" + b"0" * 5_000), _ODD
    ),
    # A notification gets no response, however faulty it is.
    "unknown-notification": MessageFault(
        _message(*({"method": each} for each in ("notifications/no/such", "x", "notifications/", "tools/list"))),
        _IGNORED,
        False,
    ),
    # An ordinary race, too, may lead to a notification about a request that has already ended
    # (`basic/patterns/cancellation#timing-considerations`).
    "notification-of-nothing": MessageFault(
        _message(
            {"method": "notifications/cancelled", "params": {"requestId": "never given", "reason": "x"}},
            {"method": "notifications/cancelled", "params": {"requestId": 10**9}},
            {"method": "notifications/progress", "params": {"progressToken": "never given", "progress": 1}},
            {"method": "notifications/roots/list_changed", "params": {}},
        ),
        _IGNORED,
        False,
    ),
    "notification-with-bad-params": MessageFault(
        _message(
            {"method": "notifications/cancelled", "params": {}},
            {"method": "notifications/cancelled", "params": {"requestId": []}},
            {"method": "notifications/cancelled", "params": {"requestId": None}},
            {"method": "notifications/progress", "params": {"progress": "x"}},
            {"method": "notifications/cancelled", "params": {"requestId": 10**9, "_meta": 5}},
        ),
        _IGNORED,
        False,
    ),
    # No request expects the response.
    "response-to-nothing": MessageFault(
        _message(
            {"id": "never given", "result": {}},
            {"id": 10**9, "error": {"code": -1, "message": "x"}},
            {"id": None, "error": {"code": PARSE_ERROR, "message": "x"}},
        ),
        _STRAY,
        False,
    ),
    "malformed-response": MessageFault(
        _message(
            {"id": "never given", "result": {}, "error": {"code": 1, "message": "x"}},
            {"id": "never given", "error": {}},
            {"id": "never given", "error": "x"},
            {"id": "never given", "error": {"code": "1", "message": "x"}},
            {"id": "never given", "result": None},
            {"result": {}},
            {"id": []},
        ),
        _STRAY,
        False,
    ),
}
"""The faults of messages by name, each with its messages and the allowed reactions of a receiver."""


def hostile_messages(
    revision: str,
    *,
    ids: st.SearchStrategy[Any] | None = None,
    faults: Collection[str] | None = None,
) -> st.SearchStrategy[Hostile]:
    """Return a strategy for invalid or unusual messages to send to a server.

    Each message is made from a harmless request (``ping`` or ``server/discover``), or is a notification or a response.

    Args:
        revision: The negotiated revision.
        ids: A strategy for the ids of the requests; any ids by default.
        faults: The names of the faults: keys of `MESSAGE_FAULTS`. By default all faults of the revision.
    """
    modern = era_of(revision) is Era.MODERN
    # A complaint about missing parameters could hide the fault, so these methods require none. They are harmless,
    # because a lenient server may run them.
    method, meta = ("server/discover", {_VERSION: revision, _CAPABILITIES: {}}) if modern else ("ping", {})
    known = [name for name, fault in MESSAGE_FAULTS.items() if revision in fault.revisions]

    @st.composite
    def draw(draw: st.DrawFn) -> Hostile:
        name = draw(st.sampled_from([each for each in known if faults is None or each in faults]))
        fault, base = MESSAGE_FAULTS[name], _Base(draw(request_ids() if ids is None else ids), method, meta)
        made = draw(fault.make(base))
        # The fault may have changed the id, and the response has the id that was sent.
        sent = made.get("id", base.id) if isinstance(made, dict) else base.id
        is_id = fault.has_id and isinstance(sent, (int, float, str)) and not isinstance(sent, bool)
        return Hostile(_text(made), name, sent if is_id else None, fault.outcome)

    return draw()


# --- headers of Streamable HTTP --------------------------------------------------------------------------------------


@attrs.frozen
class HeaderFault:
    """A kind of fault in HTTP headers.

    Attributes:
        headers: Sets of changes to the headers of a valid request, each of which causes the fault.
        outcome: The allowed reactions of a server.
        revisions: The revisions in which this is a fault.
    """

    headers: tuple[Mapping[str, str | None], ...]
    outcome: AllowedOutcome
    revisions: tuple[str, ...] = (*LEGACY_REVISIONS[1:], *MODERN_REVISIONS)


def _each(name: str, *values: str | None) -> tuple[Mapping[str, str | None], ...]:
    return tuple({name: value} for value in values)


def _statuses(*statuses: int, codes: Collection[int] | None = None, result: bool = False) -> AllowedOutcome:
    # If the specification requires only a status, the body of a refusal is optional, and any code is allowed in it.
    return AllowedOutcome(None if codes is None else frozenset(codes), result, True, frozenset(statuses))


# The status and the code are required by 2026-07-28 basic/transports/streamable-http#server-validation.
_MISMATCH = _statuses(400, codes=(HEADER_MISMATCH,))
_LEGACY_HTTP = LEGACY_REVISIONS[1:]
_WITH_VERSION = tuple(revision for revision in LEGACY_REVISIONS if revision >= "2025-06-18")

HEADER_FAULTS: Mapping[str, HeaderFault] = {
    # Two of the origins begin like a local address. A server that compares prefixes would let pages of such a host
    # reach it by DNS rebinding (2025-11-25 basic/transports#security-warning).
    "foreign-origin": HeaderFault(
        _each(
            "origin",
            "https://evil.example.invalid",
            "http://127.0.0.1.example.invalid",
            "http://localhost.example.invalid",
        ),
        _statuses(403),
    ),
    # The specification leaves `Accept` to HTTP, where a server may ignore it.
    "no-accept": HeaderFault(
        _each("accept", None, "text/html", "image/png;q=0"), _statuses(200, 400, 406, result=True)
    ),
    "half-an-accept": HeaderFault(
        _each("accept", "application/json", "text/event-stream", "*/*"), _statuses(200, 400, 406, result=True)
    ),
    "odd-accept": HeaderFault(
        _each("accept", "text/event-stream;q=0.1, application/json ; q=1.0", "APPLICATION/JSON,TEXT/EVENT-STREAM"),
        _statuses(200, 400, 406, result=True),
    ),
    "wrong-content-type": HeaderFault(
        _each("content-type", None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json"),
        _statuses(200, 400, 415, result=True),
    ),
    "odd-content-type": HeaderFault(
        _each("content-type", "application/json; charset=utf-8", "Application/JSON", "application/json;x=1"),
        _statuses(200, 400, 415, result=True),
    ),
    "unsupported-version": HeaderFault(
        _each("mcp-protocol-version", "1900-01-01", "9999-12-31", "latest", "2025"), _statuses(400), _WITH_VERSION
    ),
    # Servers commonly limit the head of a request to between 8 and 64 KiB, so some accept this header, and others send
    # 431 or close the connection.
    "large-header": HeaderFault(_each("x-large", "x" * 30_000), AllowedOutcome(None, result=True)),
    # 404 tells the client to open a new session; a server without sessions may send 400 for any id.
    "unknown-session": HeaderFault(
        _each("mcp-session-id", "never-given", "0", "../../x", "x" * 500), _statuses(400, 404), _LEGACY_HTTP
    ),
    # Sessions are optional, so a server without them sends its usual response.
    "no-session": HeaderFault(_each("mcp-session-id", None), _statuses(200, 400, 404, result=True), _LEGACY_HTTP),
    # In the modern era, headers repeat members of the body.
    "no-version": HeaderFault(_each("mcp-protocol-version", None), _MISMATCH, MODERN_REVISIONS),
    "other-version": HeaderFault(
        _each("mcp-protocol-version", "2025-11-25", "1900-01-01", "2026-07-28x"),
        # The specification doesn't say whether a server checks for a mismatch or for an unsupported version first.
        _statuses(400, codes=(HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION)),
        MODERN_REVISIONS,
    ),
    "no-method": HeaderFault(_each("mcp-method", None), _MISMATCH, MODERN_REVISIONS),
    "other-method": HeaderFault(
        _each("mcp-method", "no/such/method", "SERVER/DISCOVER", "tools", "*"), _MISMATCH, MODERN_REVISIONS
    ),
    # Modern servers have no sessions and ignore the header, which dual-era clients may still send.
    "session-of-another-era": HeaderFault(
        _each("mcp-session-id", "never-given"), AllowedOutcome(None, result=True), MODERN_REVISIONS
    ),
    "event-of-another-era": HeaderFault(
        _each("last-event-id", "never-given"), AllowedOutcome(None, result=True), MODERN_REVISIONS
    ),
}
"""The header faults, by name; each has its changes to the headers and the reactions allowed of a server."""

_NAMED = HeaderFault(
    (
        {"mcp-name": None},
        {"mcp-name": "another"},
        {"mcp-name": ""},
        {"mcp-name": "=?base64?!!!?="},
        {"mcp-name": f"=?base64?{base64.b64encode(b'another').decode()}?="},
    ),
    _MISMATCH,
    MODERN_REVISIONS,
)


def hostile_headers(revision: str, *, named: bool = False) -> st.SearchStrategy[HostileHeaders]:
    """Return a strategy for faulty or unusual headers of a POST with a valid message.

    Args:
        revision: The negotiated revision: 2025-03-26, which introduced Streamable HTTP, or a later one.
        named: Whether a header must repeat a name or URI from the message, as for ``tools/call``. If so, wrong values
            of that header are among the faults in the modern era.
    """
    faults = {name: fault for name, fault in HEADER_FAULTS.items() if revision in fault.revisions}
    if named and revision in _NAMED.revisions:
        faults["other-name"] = _NAMED
    made = [HostileHeaders(headers, name, fault.outcome) for name, fault in faults.items() for headers in fault.headers]
    return st.sampled_from(made)
