"""Messages and HTTP headers with something wrong, and what a receiver may do about each.

A receiver may do what the specification leaves open, so an outcome is as wide as the text: a test of it has no false
alarms, but it is not a test of taste either.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import attrs
from hypothesis import strategies as st

from trio_mcp.testing.strategies.plain_data import json_values, request_ids, texts
from trio_mcp.types import meta as meta_keys
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, Era, era_of

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
    """What a receiver may do.

    Attributes:
        codes: The codes that an error response may have: empty if there must be none, None if any will do.
        result: Whether the receiver may be generous and give a result.
        silence: Whether it may say nothing.
        statuses: The HTTP statuses that fit; empty if any of 200, 202 and 400 to 499 does.
    """

    codes: frozenset[int] | None = frozenset()
    result: bool = False
    silence: bool = True
    statuses: frozenset[int] = frozenset()


@attrs.frozen
class Hostile:
    """A text in place of a message.

    Attributes:
        text: The text, without framing. It has no line breaks.
        fault: The name of what is wrong: a key of `MESSAGE_FAULTS`.
        id: The id of the request that it is, or would be; None if it has none.
        outcome: What a receiver may do. An error response has the id, or none where it can't be read.
    """

    text: bytes
    fault: str
    id: float | str | None
    outcome: AllowedOutcome


@attrs.frozen
class HostileHeaders:
    """Headers of a POST with a valid message that they don't go with.

    Attributes:
        headers: What differs from the headers of a valid request: a value replaces or adds one, None removes it.
        fault: The name of what is wrong: a key of `HEADER_FAULTS`.
        outcome: What a server may do.
    """

    headers: Mapping[str, str | None]
    fault: str
    outcome: AllowedOutcome


# Not None, because null is itself one of the values that a member may be given.
_WITHOUT = object()


def _changed(members: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Replace or add members, and remove those that are to be `_WITHOUT`."""
    return {name: value for name, value in {**members, **changes}.items() if value is not _WITHOUT}


@attrs.frozen
class _Base:
    """What a message is made from: a request without parameters of its own."""

    id: Any
    method: str
    meta: Mapping[str, Any]

    def request(self, **changes: Any) -> dict[str, Any]:
        """Return a valid request, with some members changed."""
        params = {"_meta": dict(self.meta)} if self.meta else {}
        return _changed({"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params}, changes)

    def with_params(self, **changes: Any) -> dict[str, Any]:
        """Return a valid request, with some parameters changed."""
        return self.request(params=_changed(self.request()["params"], changes))

    def with_meta(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a valid request, with some of its ``_meta`` changed."""
        return self.with_params(_meta=_changed(self.meta, changes))

    def text(self, **changes: Any) -> bytes:
        """Return the text of a valid request, with some members changed."""
        return _text(self.request(**changes))


@attrs.frozen
class MessageFault:
    """A kind of fault of messages.

    Attributes:
        make: Returns the strategy of texts, or of JSON values.
        outcome: What a receiver may do.
        has_id: Whether it is a request with an id, or nearly one.
        revisions: Where it is a fault.
    """

    make: Callable[[_Base], st.SearchStrategy[Any]]
    outcome: AllowedOutcome
    has_id: bool = True
    revisions: tuple[str, ...] = (*LEGACY_REVISIONS, *MODERN_REVISIONS)


def _codes(*codes: int, **more: Any) -> AllowedOutcome:
    return AllowedOutcome(frozenset(codes), **more)


_ANY_CODE = (PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR)
# JSON-RPC 2.0, section 5.1. Silence: whether what can't be read was a request is not known.
_UNREADABLE = _codes(PARSE_ERROR, INVALID_REQUEST)
# To be refused, but some receivers don't look.
_LENIENT = _codes(INVALID_REQUEST, result=True)
# A receiver may well read it as it was meant; it is the sender that must not send it.
_ODD = _codes(*_ANY_CODE, result=True)
# A request that has an id must be answered.
_ANSWERED = _codes(*_ANY_CODE, result=True, silence=False)
_GOOD = AllowedOutcome(result=True, silence=False)
_UNKNOWN = _codes(METHOD_NOT_FOUND, silence=False)
_REFUSED = _codes(INVALID_PARAMS, silence=False)
_IGNORED = AllowedOutcome()
# JSON-RPC does not say what becomes of a response to nothing; an error without an id is not a response to it.
_STRAY = _codes(INVALID_REQUEST)


_Make: TypeAlias = "Callable[[_Base], st.SearchStrategy[Any]]"


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()


def _one(*values: Any) -> _Make:
    """Make one of these."""
    return lambda base: st.sampled_from(values)


def _member(name: str, *values: Any) -> _Make:
    """Make a request of which a member is one of these."""
    return lambda base: st.sampled_from([base.request(**{name: value}) for value in values])


def _meta(*changes: Mapping[str, Any]) -> _Make:
    """Make a request of which the ``_meta`` is changed in one of these ways."""
    return lambda base: st.sampled_from([base.with_meta(each) for each in changes])


def _message(*messages: Mapping[str, Any]) -> _Make:
    """Make one of these messages."""
    return _one(*({"jsonrpc": "2.0", **each} for each in messages))


def _inside(*raw: bytes) -> _Make:
    """Make the text of a request with one of these texts as a value in it."""
    return lambda base: st.sampled_from([base.text()[:-1] + b',"x":' + each + b"}" for each in raw])


def _cut(base: _Base) -> st.SearchStrategy[bytes]:
    whole = base.text()
    return st.integers(1, len(whole) - 1).map(lambda at: whole[:at])


def _edited(base: _Base) -> st.SearchStrategy[bytes]:
    whole = base.text()
    # What other dialects allow (comments, trailing commas, single quotes, bare names), and a prefix against JSON
    # hijacking that some web frameworks strip: a lenient parser shows here.
    around = [whole + b"}", b"/* */" + whole, b"\x00" + whole, b")]}'," + whole, whole[:-1] + b",}"]
    return st.sampled_from([*around, whole.replace(b'"', b"'"), whole.replace(b'"jsonrpc"', b"jsonrpc")])


def _nested(base: _Base) -> st.SearchStrategy[bytes]:
    # Put together as text: Python's own encoder would run into its recursion limit at the greater depths, and the test
    # would fail where it writes rather than where it reads.
    before, after = _text(base.with_params(x="@")).split(b'"@"')

    def text(depth: int, opening: bytes, closing: bytes) -> bytes:
        return before + opening * depth + b"0" + closing * depth + after

    # Around the limits that are common: 128 in Rust's serde_json, 1000 for Python's recursion, a stack that overflows
    # only far beyond that.
    depths = st.sampled_from([100, 500, 2_000, 20_000])
    return st.builds(text, depths, st.just(b"["), st.just(b"]")) | st.builds(
        text, depths, st.just(b'{"a":'), st.just(b"}")
    )


def _large(base: _Base) -> st.SearchStrategy[Any]:
    def params(size: int, kind: str) -> dict[str, Any]:
        match kind:
            case "text":
                return base.with_params(x="x" * size)
            case "list":
                return base.with_params(x=[0] * (size // 2))
            case "members":
                return base.with_params(x={f"k{number}": 0 for number in range(size // 10)})
        return base.with_params(**{"k" * size: 0})

    # The larger is beyond the 64 KiB of a pipe and of asyncio's default limit of a line, and both are well below the
    # megabytes that servers refuse for good reason. Four shapes, because parsers spend their time differently on each.
    return st.builds(params, st.sampled_from([10_000, 300_000]), st.sampled_from(["text", "list", "members", "key"]))


def _escaped(base: _Base) -> st.SearchStrategy[bytes]:
    """Make a request with each character of its texts escaped."""
    escaped = "".join(f"\\u{ord(char):04x}" for char in base.method)
    return st.just(base.text().replace(f'"{base.method}"'.encode(), f'"{escaped}"'.encode()))


def _unknown_methods(base: _Base) -> st.SearchStrategy[Any]:
    # Nearly a method: one that is trimmed, compared without case, cut at a NUL or matched by its beginning would be
    # answered. JSON-RPC 2.0, section 4, reserves names that begin with "rpc.".
    odd = ["no/such/method", "tools/call/", "Tools/List", " ping", "ping\x00", "rpc.discover", "tools"]
    return (st.sampled_from(odd) | texts(8).map("x-{}".format)).map(lambda each: base.request(method=each))


_OTHER_TYPES: tuple[Any, ...] = (None, 5, True, [], ["x"])
# Without null, which has a fault of its own: many senders write null for what they leave out, so it is treated more
# mildly.
_NO_OBJECTS: tuple[Any, ...] = ("x", 5, True, [], [1], [{}])
# 1.5 too: progress tokens are strings or integers, though the TypeScript type `number` does not say so.
_NO_TOKENS: tuple[Any, ...] = (None, True, [], {}, 1.5)
_VERSION, _CAPABILITIES = meta_keys.PROTOCOL_VERSION, meta_keys.CLIENT_CAPABILITIES
# Ids that a receiver has to give back as they are, though its language may find that hard.
_ODD_IDS = (0, -1, 2**31, -(2**31) - 1, 2**53 - 1, 1 - 2**53, "", " ", "0", "1.0", "null", "x" * 300, "😀")
_WITHOUT_BATCHES = tuple(revision for revision in (*LEGACY_REVISIONS, *MODERN_REVISIONS) if revision != "2025-03-26")

MESSAGE_FAULTS: Mapping[str, MessageFault] = {
    # No JSON, or not UTF-8.
    "cut-off": MessageFault(_cut, _UNREADABLE),
    "malformed-json": MessageFault(_edited, _UNREADABLE),
    "malformed-number": MessageFault(_inside(b"01", b"+1", b".5", b"1.", b"0x10", b"1e", b"--1"), _UNREADABLE),
    # JSON forbids raw control characters, but many parsers let them pass; so what is read may be a valid request.
    "malformed-text": MessageFault(_inside(b'"\\x41"', b'"\x01"', b'"\\u12"', b'"\t"', b"'x'"), _ODD),
    # Python's json module reads the first two unless told otherwise, and servers are built on it.
    "no-json-word": MessageFault(_inside(b"NaN", b"-Infinity", b"undefined", b"True", b"None"), _ODD),
    "not-utf-8": MessageFault(
        _inside(b'"\xff"', b'"\xc3"', b'"\xe2\x82"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b"\xff"), _ODD
    ),
    # Messages are UTF-8, as RFC 8259, section 8.1, demands between programs; but Python's `json.loads` detects UTF-16
    # in bytes, so a server that hands it what it reads would take this.
    "utf-16": MessageFault(lambda base: st.just(base.text().decode().encode("utf-16-le")), _UNREADABLE),
    # A sender must not add one, and a receiver may ignore it (RFC 8259, section 8.1).
    "byte-order-mark": MessageFault(lambda base: st.just(b"\xef\xbb\xbf" + base.text()), _ODD),
    "no-json-at-all": MessageFault(
        _one(b"hello", b"GET / HTTP/1.1", b"Content-Length: 20", b"\x16\x03\x01", b"]", b"{", b'"', b"\\"),
        _UNREADABLE,
        False,
    ),
    # A reader of a stream of JSON values rather than of lines takes both, and answers the same id twice.
    "two-messages": MessageFault(lambda base: st.just(base.text() * 2), _ODD),
    # The grammar of JSON allows these escapes, and what a receiver makes of them is unpredictable (RFC 8259, section
    # 8.2).
    "half-a-pair": MessageFault(_inside(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d x"'), _ODD),
    # JSON, but not a message.
    "not-an-object": MessageFault(_one(0, -1.5, "ping", "", None, True, False), _UNREADABLE, False),
    "empty-object": MessageFault(_one({}, {"a": 1}, {"jsonrpc": "2.0"}), _STRAY, False),
    "empty-batch": MessageFault(_one([]), _STRAY, False),
    # Batches came with 2025-03-26 and went with 2025-06-18; whether an error for one has an id is open, as it has
    # several.
    "batch": MessageFault(lambda base: st.just([base.request()]), _STRAY, revisions=_WITHOUT_BATCHES),
    "batch-of-nonsense": MessageFault(_one([1], [[]], [None, "x"]), _STRAY, False, _WITHOUT_BATCHES),
    # The envelope.
    "no-version": MessageFault(_member("jsonrpc", _WITHOUT), _LENIENT),
    "wrong-version": MessageFault(_member("jsonrpc", "1.0", "2.1", "2", "", 2, 2.0, None, ["2.0"]), _LENIENT),
    # To JSON-RPC null is an id, though a discouraged one; MCP forbids it (`basic#requests`). A receiver may also take
    # the message for a notification, so silence is right.
    "id-null": MessageFault(_member("id", None), _STRAY),
    "id-of-another-type": MessageFault(_member("id", True, False, [], [1], {}, {"id": 1}), _STRAY),
    # JSON-RPC 2.0, section 4, only says that an id should have no fraction, so some receivers take any number.
    "id-fraction": MessageFault(_member("id", 1.5, -0.25), _LENIENT),
    "no-method": MessageFault(_member("method", _WITHOUT), _STRAY),
    "method-of-another-type": MessageFault(
        _member("method", None, 1, True, [], {}, ["ping"]), _codes(INVALID_REQUEST, METHOD_NOT_FOUND)
    ),
    "params-of-another-type": MessageFault(
        _member("params", *_NO_OBJECTS), _codes(INVALID_PARAMS, INVALID_REQUEST), revisions=MODERN_REVISIONS
    ),
    # What a request without parameters of its own has there, a receiver need not look at.
    "params-of-another-type-legacy": MessageFault(_member("params", *_NO_OBJECTS), _ODD, revisions=LEGACY_REVISIONS),
    # Go and C# programs write null for a field that is not set, so receivers commonly read it as absent.
    "params-null": MessageFault(_member("params", None), _ODD),
    "result-too": MessageFault(
        lambda base: st.sampled_from([base.request(result={}), base.request(error={"code": 1, "message": "x"})]), _ODD
    ),
    "unknown-members": MessageFault(
        lambda base: st.sampled_from([base.request(**{name: {}}) for name in ("x", "_meta", "Method", "__proto__")]),
        _ODD,
    ),
    # RFC 8259, section 4, leaves open which of two members of one name counts: most parsers take the last, some the
    # first, some refuse both.
    "repeated-members": MessageFault(
        lambda base: st.sampled_from(
            [
                base.text()[:-1] + each
                for each in (b',"jsonrpc":"2.0"}', b',"method":"no/such"}', b',"method":5}', b',"params":{}}')
            ]
        ),
        _ODD,
    ),
    # Methods.
    "unknown-method": MessageFault(_unknown_methods, _UNKNOWN),
    # An empty name is a string, so a receiver may look it up and not find it, or refuse the message for its form.
    "empty-method": MessageFault(_member("method", ""), _codes(METHOD_NOT_FOUND, INVALID_REQUEST, silence=False)),
    "long-method": MessageFault(
        _member("method", "x" * 20_000), _codes(METHOD_NOT_FOUND, INVALID_REQUEST, silence=False)
    ),
    # A server that shares its dispatcher with a client may have handlers for these, and must not run them.
    "method-of-the-server": MessageFault(
        _member("method", "sampling/createMessage", "roots/list", "elicitation/create"), _UNKNOWN
    ),
    # `_meta`.
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
        # Over HTTP the header may be compared first.
        _codes(UNSUPPORTED_PROTOCOL_VERSION, HEADER_MISMATCH, silence=False),
        revisions=MODERN_REVISIONS,
    ),
    "token-of-another-type": MessageFault(_meta(*({meta_keys.PROGRESS_TOKEN: token} for token in _NO_TOKENS)), _ODD),
    # Requests that are unusual, but valid: to be answered like any other.
    "odd-id": MessageFault(_member("id", *_ODD_IDS), _GOOD),
    "escaped": MessageFault(_escaped, _GOOD),
    "spaces": MessageFault(
        lambda base: st.just(b" \t" + json.dumps(base.request(), separators=(" ,\t", " : ")).encode() + b" \t "), _GOOD
    ),
    "unknown-params": MessageFault(
        lambda base: json_values().map(lambda value: base.with_params(xUnknown=value)), _ANSWERED
    ),
    # Too much.
    "nested": MessageFault(_nested, _ODD),
    "large": MessageFault(_large, _ODD),
    # Too large for a double, or for Python's limit of 4300 digits in a conversion of text to int.
    "huge-number": MessageFault(
        _inside(b"1e400", b"-1e999", b"9" * 400, b"0." + b"1" * 400, b"1" + b"0" * 5_000), _ODD
    ),
    # Notifications: never answered, whatever is wrong.
    "unknown-notification": MessageFault(
        _message(*({"method": each} for each in ("notifications/no/such", "x", "notifications/", "tools/list"))),
        _IGNORED,
        False,
    ),
    # The request may have ended while the notification was on its way, so a receiver can't tell this from an ordinary
    # race (`basic/patterns/cancellation#timing-considerations`).
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
    # Responses to nothing.
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
"""Fault -> how it is made, and what a receiver may do."""


def hostile_messages(
    revision: str,
    *,
    ids: st.SearchStrategy[Any] | None = None,
    faults: Collection[str] | None = None,
) -> st.SearchStrategy[Hostile]:
    """Return a strategy of texts that are no valid messages, or unusual ones, as a client may send them to a server.

    Each is what a harmless request (``ping``, ``server/discover``) turns into, or a notification or response.

    Args:
        revision: The revision that is spoken.
        ids: A strategy of ids for the requests; any ids by default.
        faults: The names of the faults: keys of `MESSAGE_FAULTS`. All that the revision has by default.
    """
    modern = era_of(revision) is Era.MODERN
    # A request without parameters of its own, so that a fault in them can't be hidden by an earlier complaint about
    # others, and harmless, because a lenient server will run it.
    method, meta = ("server/discover", {_VERSION: revision, _CAPABILITIES: {}}) if modern else ("ping", {})
    known = [name for name, fault in MESSAGE_FAULTS.items() if revision in fault.revisions]

    @st.composite
    def draw(draw: st.DrawFn) -> Hostile:
        name = draw(st.sampled_from([each for each in known if faults is None or each in faults]))
        fault, base = MESSAGE_FAULTS[name], _Base(draw(request_ids() if ids is None else ids), method, meta)
        made = draw(fault.make(base))
        # Looked up after the change: a fault of the id must be judged by the id that was sent, not by the one that was
        # drawn.
        shown = made.get("id", base.id) if isinstance(made, dict) else base.id
        known_id = (
            shown if fault.has_id and isinstance(shown, (int, float, str)) and not isinstance(shown, bool) else None
        )
        return Hostile(_text(made), name, known_id, fault.outcome)

    return draw()


# --- headers of Streamable HTTP --------------------------------------------------------------------------------------


@attrs.frozen
class HeaderFault:
    """A kind of fault of headers.

    Attributes:
        headers: Ways to have it.
        outcome: What a server may do.
        revisions: Where it is a fault.
    """

    headers: tuple[Mapping[str, str | None], ...]
    outcome: AllowedOutcome
    revisions: tuple[str, ...] = (*LEGACY_REVISIONS[1:], *MODERN_REVISIONS)


def _each(name: str, *values: str | None) -> tuple[Mapping[str, str | None], ...]:
    return tuple({name: value} for value in values)


def _statuses(*statuses: int, codes: Collection[int] | None = None, result: bool = False) -> AllowedOutcome:
    # Any code by default: where only a status is demanded, the body of a refusal is optional, and so is what it says.
    return AllowedOutcome(None if codes is None else frozenset(codes), result, True, frozenset(statuses))


# 2026-07-28 basic/transports/streamable-http#server-validation.
_MISMATCH = _statuses(400, codes=(HEADER_MISMATCH,))
_LEGACY_HTTP = LEGACY_REVISIONS[1:]
_WITH_VERSION = tuple(revision for revision in LEGACY_REVISIONS if revision >= "2025-06-18")

HEADER_FAULTS: Mapping[str, HeaderFault] = {
    # Two of them begin like a local address, which deceives a check by prefix: a page of that host could then reach a
    # local server by DNS rebinding (2025-11-25 basic/transports#security-warning).
    "foreign-origin": HeaderFault(
        _each(
            "origin",
            "https://evil.example.invalid",
            "http://127.0.0.1.example.invalid",
            "http://localhost.example.invalid",
        ),
        _statuses(403),
    ),
    # What is not acceptable is left to HTTP, and so is whether a server minds.
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
    # Servers commonly limit a head to something from 8 to 64 KiB, so some take this, and others answer 431 or close.
    "large-header": HeaderFault(_each("x-large", "x" * 30_000), AllowedOutcome(None, result=True)),
    # 404 tells a client to start anew; a server without sessions may have 400 for any id.
    "unknown-session": HeaderFault(
        _each("mcp-session-id", "never-given", "0", "../../x", "x" * 500), _statuses(400, 404), _LEGACY_HTTP
    ),
    # Sessions are optional, so a server that never gave an id answers as always.
    "no-session": HeaderFault(_each("mcp-session-id", None), _statuses(200, 400, 404, result=True), _LEGACY_HTTP),
    # The modern era repeats members of the body in headers.
    "no-version": HeaderFault(_each("mcp-protocol-version", None), _MISMATCH, MODERN_REVISIONS),
    "other-version": HeaderFault(
        _each("mcp-protocol-version", "2025-11-25", "1900-01-01", "2026-07-28x"),
        # Whether the version or the contradiction is looked at first is left open.
        _statuses(400, codes=(HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION)),
        MODERN_REVISIONS,
    ),
    "no-method": HeaderFault(_each("mcp-method", None), _MISMATCH, MODERN_REVISIONS),
    "other-method": HeaderFault(
        _each("mcp-method", "no/such/method", "SERVER/DISCOVER", "tools", "*"), _MISMATCH, MODERN_REVISIONS
    ),
    # A modern server has no sessions and ignores the header; clients that speak both eras may still send it.
    "session-of-another-era": HeaderFault(
        _each("mcp-session-id", "never-given"), AllowedOutcome(None, result=True), MODERN_REVISIONS
    ),
    "event-of-another-era": HeaderFault(
        _each("last-event-id", "never-given"), AllowedOutcome(None, result=True), MODERN_REVISIONS
    ),
}
"""Fault -> headers that differ from those of a valid request, and what a server may do."""

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
    """Return a strategy of headers that don't go with a valid message, which is sent to an endpoint by POST.

    Args:
        revision: The revision that is spoken, from 2025-03-26 on: before, there was no Streamable HTTP.
        named: Whether the message has a name or URI to repeat, as ``tools/call`` has: that header may be wrong, too.
    """
    faults = {name: fault for name, fault in HEADER_FAULTS.items() if revision in fault.revisions}
    if named and revision in _NAMED.revisions:
        faults["other-name"] = _NAMED
    made = [HostileHeaders(headers, name, fault.outcome) for name, fault in faults.items() for headers in fault.headers]
    return st.sampled_from(made)
