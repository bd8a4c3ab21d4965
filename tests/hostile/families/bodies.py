"""Bodies: JSON, JSON-RPC, ``_meta``, handshakes, batches, sizes. Over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

from tests.hostile.case import (
    BASE_META,
    LATEST,
    MODERN,
    Draft,
    Message,
    Outcome,
    chosen,
    cut,
    dumped,
    kinds_of,
    legacy,
    modern,
    rendered,
    token,
)
from tests.hostile.families.http2 import posted
from tests.tables import listed

PARSE, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, MISMATCH, NO_VERSION = -32700, -32600, -32601, -32602, -32020, -32022
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"

JUNK: Any = (None, True, False, 0, -1, 1.5, 1e300, "", "x", "\x00", [], [1], {}, {"a": 1}, 2**70, [[]], "💥")


def junk(rng: random.Random, *but: type) -> Any:
    """Choose a value of any type but those."""
    return chosen(rng, *(value for value in JUNK if type(value) not in but))


def sent(
    rng: random.Random, message: Message, rule: str, allowed: Iterable[Outcome], codes: Iterable[int] | None = None
) -> Draft:
    """Draft a message with this body, which must not close the connection."""
    if rng.random() < 0.1:
        return posted(rng, message, rule, allowed, codes)
    return Draft(rule, allowed, rendered(rng, message), codes=codes, closes=False)


def request(rng: random.Random, **members: Any) -> dict[str, Any]:
    """Return a modern call in JSON-RPC, with other members."""
    params = {"_meta": dict(BASE_META), "name": "add", "arguments": {"a": 1, "b": 2}}
    return {"jsonrpc": "2.0", "id": rng.randint(1, 2**50), "method": "tools/call", "params": params, **members}


def broken(rng: random.Random, content: Any, rule: str, codes: Iterable[int]) -> Draft:
    """Draft a POST whose content is not a message, in either era."""
    message = modern(rng, content=content, name="add") if rng.random() < 0.5 else legacy(rng, content=content)
    return sent(rng, message, rule, {400}, codes)


# --- JSON -------------------------------------------------------------------------------------------------------


def json_cut_short(rng: random.Random) -> Draft:
    text = dumped(rng, request(rng))
    return broken(rng, text[: rng.randint(0, len(text) - 1)].rstrip(), "JSON-RPC 2.0, 5.1: no JSON is -32700", {PARSE})


def json_invalid(rng: random.Random) -> Draft:
    text = dumped(rng, request(rng))
    content = chosen(
        rng,
        text + b"x",
        text + text,
        text[:-1] + b",}",
        text.replace(b'"', b"'"),
        b"/* */" + text,
        text + b"// x",
        text.replace(b'"add"', b'"a\ndd"'),
        text.replace(b'"add"', b'"a\x00dd"'),
        text.replace(b'"add"', b'"\\x61dd"'),
        text.replace(b'"add"', b'"\\u00"'),
        text.replace(b'"add"', b"add"),
        text.replace(b"{", b"[", 1),
        b"\x1f\x8b\x08\x00" + rng.randbytes(40),
        b"a=b&c=d",
        b"<?xml version='1.0'?><methodCall/>",
        b"undefined",
        b"\x00" * rng.randint(1, 100),
        rng.randbytes(rng.randint(1, 300)) + b"\xff",
        *listed(b'-- | {,} | {"a":01} | {"a":.5} | {"a":+1} | {"a":0x1} | {\xc2\xa0} |   | '),
    )
    return broken(rng, content, "RFC 8259, 2; JSON-RPC 2.0, 5.1: no JSON is -32700", {PARSE})


def json_no_utf8(rng: random.Random) -> Draft:
    text = dumped(rng, request(rng))
    bad = chosen(
        rng, b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xe2\x82", b"\xf8\x88\x80\x80\x80"
    )
    content = chosen(
        rng, text.replace(b'"add"', b'"' + bad + b'"'), text.decode().encode("utf-16"), text.decode().encode("utf-32")
    )
    return broken(rng, content, "RFC 8259, 8.1: JSON is UTF-8", {PARSE})


def json_nan(rng: random.Random) -> Draft:
    content = dumped(rng, request(rng)).replace(
        b'"add"', chosen(rng, b"NaN", b"Infinity", b"-Infinity", b"nan", b"-NaN")
    )
    return broken(rng, content, "RFC 8259, 6: NaN and Infinity are no numbers", {PARSE})


def json_bom(rng: random.Random) -> Draft:
    message = modern(rng)
    message.body = b"\xef\xbb\xbf" + message.body
    return sent(rng, message, "RFC 8259, 8.1: a BOM may be ignored or is an error", {200, 400}, {PARSE})


def json_surrogates(rng: random.Random) -> Draft:
    bad = chosen(rng, b'"\\ud800"', b'"\\udc00\\ud800"', b'"x\\udfff"', b'"\\ud83d\\u0020"')
    message = modern(rng)
    message.body = dumped(rng, request(rng, x="?")).replace(b'"?"', bad)
    return sent(rng, message, "RFC 8259, 8.2: what a lone surrogate means is not said", {200, 400}, {PARSE})


def json_deep(rng: random.Random) -> Draft:
    depth = rng.randint(500, 30_000)
    opening, closing = chosen(rng, (b"[", b"]"), (b'{"a":', b"}"))
    nested = (
        opening * depth + chosen(rng, b"1", b"") * (opening != b"[") + closing * chosen(rng, depth, depth, 0, depth - 1)
    )
    if rng.random() < 0.5:
        content = nested
        return broken(
            rng, content, "RFC 8259, 9: depth may be limited; else it is not a message", {PARSE, INVALID_REQUEST}
        )
    message = modern(rng)
    message.body = dumped(rng, request(rng, x="?")).replace(b'"?"', nested)
    rule = "RFC 8259, 9: a parser may limit the depth; JSON-RPC 2.0, 4: a member that is not known means nothing"
    return sent(rng, message, rule, {200, 400}, {PARSE, INVALID_REQUEST})


def json_duplicates(rng: random.Random) -> Draft:
    text = json.dumps(request(rng))
    name = chosen(rng, "id", "method", "params", "jsonrpc")
    value = json.dumps(chosen(rng, 1, "x", "2.0", {}, None, "ping"))
    content = chosen(rng, f'{{"{name}":{value},{text[1:]}', f'{text[:-1]},"{name}":{value}}}').encode()
    # The first one or the last one counts, or neither: what it then is may be served, refused or a notification.
    rule = "RFC 8259, 4: which of several members counts is not said"
    return sent(rng, modern(rng, content=content, name="add"), rule, {200, 202, 400, 404})


def json_numbers(rng: random.Random) -> Draft:
    number = chosen(
        rng, b"1e400", b"-1e999999", b"1" * 400, b"1" * 5000, b"0." + b"1" * 4000, b"1e-99999", b"-0", b"1E+2"
    )
    message = modern(rng)
    message.body = dumped(rng, request(rng, x="?")).replace(b'"?"', number)
    return sent(rng, message, "RFC 8259, 6: the range of numbers may be limited", {200, 400}, {PARSE})


# --- JSON-RPC ---------------------------------------------------------------------------------------------------


def no_object(rng: random.Random) -> Draft:
    content = dumped(rng, chosen(rng, None, True, 1, 1.5, "x", "", [], [1], [[]], [None] * 3, {}, {"a": 1}))
    return broken(rng, content, "JSON-RPC 2.0, 4, 6: what is not a request object is -32600", {INVALID_REQUEST})


def jsonrpc_wrong(rng: random.Random) -> Draft:
    content = request(rng, jsonrpc=chosen(rng, "1.0", "2", "2.00", 2, 2.0, None, True, ["2.0"], {}, "", "\uff12.0"))
    if rng.random() < 0.2:
        del content["jsonrpc"]
    return broken(rng, dumped(rng, content), "JSON-RPC 2.0, 4: jsonrpc MUST be exactly 2.0", {INVALID_REQUEST})


def method_wrong(rng: random.Random) -> Draft:
    content = request(rng, method=junk(rng, str))
    if rng.random() < 0.2:
        del content["method"]
    return broken(rng, dumped(rng, content), "JSON-RPC 2.0, 4: the method MUST be a string", {INVALID_REQUEST})


def id_wrong(rng: random.Random) -> Draft:
    content = dumped(rng, request(rng, id=junk(rng, str, int)))
    return broken(
        rng, content, "2026-07-28 basic, Requests: an id is a string or an integer, never null", {INVALID_REQUEST}
    )


def id_strange(rng: random.Random) -> Draft:
    number = chosen(
        rng, 0, -1, 2**53, 2**63, 2**64, 2**200, -(2**70), "", "\x00", "x" * 10_000, "💥", "\u202e", "1", '"'
    )
    message = modern(rng, id=number)
    return sent(rng, message, "JSON-RPC 2.0, 5: an answer has the id of its request", {200})


def params_wrong(rng: random.Random) -> Draft:
    content = dumped(rng, request(rng, params=junk(rng, dict, type(None))))
    return broken(rng, content, "2026-07-28 basic, Requests: params is an object", {INVALID_REQUEST, INVALID_PARAMS})


def answers_to_nothing(rng: random.Random) -> Draft:
    number = chosen(rng, 1, "x", 10**9, rng.randint(1, 2**40))
    given = chosen(
        rng, {"result": {}}, {"error": {"code": 1, "message": "x"}}, {"result": {"content": [], "x": "y" * 1000}}
    )
    content = {"jsonrpc": "2.0", "id": number, **given}
    if rng.random() < 0.5:
        rule = "S, Sending Messages, 4: a body is one request or notification"
        return sent(rng, modern(rng, content=content), rule, {400}, {INVALID_REQUEST})
    return sent(rng, legacy(rng, content=content), "L, Sending Messages, 4: an answer is accepted with 202", {202, 400})


def answers_broken(rng: random.Random) -> Draft:
    content = chosen(
        rng,
        {"result": 1, "id": 1},
        {"result": {}, "id": None},
        {"result": {}},
        {"result": {}, "error": {"code": 1, "message": "x"}, "id": 1},
        {"error": "x", "id": 1},
        {"error": {"code": "x", "message": 1}, "id": 1},
        {"error": {}, "id": 1},
        {"error": None, "id": 1},
        {"result": {}, "id": [1]},
        {"result": None, "id": 1.5},
    )
    rule = "L, Sending Messages, 4: what is not accepted is an error status"
    return broken(rng, dumped(rng, {"jsonrpc": "2.0", **content}), rule, {INVALID_REQUEST})


def unknown_method(rng: random.Random) -> Draft:
    method = chosen(
        rng, token(rng), "rpc.discover", "tools/cal", "tools/call/", "TOOLS/CALL", "__init__", "a b", "x" * 500
    )
    if rng.random() < 0.3:
        method = chosen(rng, "sampling/createMessage", "roots/list", "elicitation/create", "initialized")
    if rng.random() < 0.5:
        rule = "S, Protocol Version Header: a method that is not there is 404 and -32601"
        return sent(rng, modern(rng, method, {}), rule, {404}, {NO_METHOD})
    return sent(rng, legacy(rng, method), "JSON-RPC 2.0, 5.1: a method that is not there is -32601", {200}, {NO_METHOD})


def unknown_notification(rng: random.Random) -> Draft:
    method = chosen(
        rng, token(rng), "notifications/" + token(rng), "notifications/cancelled", "notifications/progress", "x" * 500
    )
    params = chosen(
        rng,
        None,
        {},
        {"requestId": junk(rng)},
        {"progressToken": junk(rng), "progress": junk(rng)},
        {"_meta": junk(rng)},
    )
    content = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
    rule = "L, Sending Messages, 4: a notification is accepted with 202, or is an error status"
    return sent(rng, legacy(rng, content=content), rule, {202, 400})


def tool_unknown(rng: random.Random) -> Draft:
    name = chosen(rng, token(rng), "add ", "ADD", "../add", "", "x" * 1000, "add\x7f", "__class__")
    params = {"name": name, "arguments": {}}
    rule = "server/tools, Error Handling: an unknown tool is a protocol error"
    if rng.random() < 0.5:
        header = name if name and name.isprintable() and name == name.strip() else None
        if header is None:
            return sent(rng, legacy(rng, "tools/call", params), rule, {200}, {INVALID_PARAMS})
        return sent(rng, modern(rng, "tools/call", params, name=header), rule, {200, 400, 404}, {INVALID_PARAMS})
    return sent(rng, legacy(rng, "tools/call", params), rule, {200}, {INVALID_PARAMS})


def tool_name_wrong(rng: random.Random) -> Draft:
    params = {"name": junk(rng, str), "arguments": {}}
    rule = "JSON-RPC 2.0, 5.1: invalid parameters are -32602"
    return sent(rng, legacy(rng, "tools/call", params), rule, {200}, {INVALID_PARAMS})


def arguments_wrong(rng: random.Random) -> Draft:
    arguments = chosen(
        rng,
        junk(rng, dict, type(None)),
        {"a": junk(rng, int, bool, float), "b": 1},
        {"a": 1},
        {"a": 1, "b": 2, "c": 3},
        {"a": {"a": {"a": {}}}, "b": []},
        {"": 1},
        {"__proto__": 1, "constructor": 2},
        {"a" * 10_000: 1},
        {f"{token(rng)}{number}": number for number in range(500)},
        {"a": "1" * 10_000, "b": "x"},
    )
    params = {"name": "add", "arguments": arguments}
    rule = "server/tools, Error Handling: -32602, or a result that says isError"
    message = modern(rng, "tools/call", params, name="add") if rng.random() < 0.5 else legacy(rng, "tools/call", params)
    return sent(rng, message, rule, {200, 400}, {INVALID_PARAMS})


def other_params_wrong(rng: random.Random) -> Draft:
    method, params = chosen(
        rng,
        ("resources/read", {"uri": junk(rng, str)}),
        (
            "resources/read",
            {"uri": chosen(rng, "file:///etc/passwd", "", "x" * 9000, "a:b", "://", "http://[", "\x00")},
        ),
        ("prompts/get", {"name": junk(rng)}),
        ("prompts/get", {"name": token(rng), "arguments": junk(rng)}),
        ("tools/list", {"cursor": junk(rng, type(None))}),
        ("tools/list", {"cursor": token(rng)}),
        ("completion/complete", {"ref": junk(rng), "argument": junk(rng)}),
        ("logging/setLevel", {"level": junk(rng)}),
        ("resources/subscribe", {"uri": junk(rng)}),
        ("resources/unsubscribe", {"uri": token(rng)}),
    )
    rule = "JSON-RPC 2.0, 5.1: invalid parameters are an error; server/resources: not found is -32002 or -32602"
    return sent(rng, legacy(rng, method, params), rule, {200}, {INVALID_PARAMS, NO_METHOD, -32002, INVALID_REQUEST})


def echo(rng: random.Random) -> Draft:
    """Any string comes back unchanged; the attack compares."""
    text = chosen(
        rng,
        "\x00\x01\x1f\x7f",
        "\u2028\u2029\ufeff\ufffe\uffff",
        "💥" * rng.randint(1, 1000),
        "\r\ndata: x\r\n\r\n",
        "x" * rng.randint(1, 50_000),
        "\\u0000\\\"'",
        "".join(chr(rng.randint(0x20, 0xD7FF)) for _ in range(rng.randint(1, 500))),
        "</script>",
        "%s%n{0}${a}",
    )
    params = {"name": "echo", "arguments": {"text": text}}
    message = (
        modern(rng, "tools/call", params, name="echo") if rng.random() < 0.5 else legacy(rng, "tools/call", params)
    )
    draft = sent(rng, message, "RFC 8259, 7: any character may be in a string", {200}, ())
    draft.echo = text
    return draft


# --- _meta and revisions ----------------------------------------------------------------------------------------


def with_meta(rng: random.Random, meta: Any) -> Message:
    return modern(rng, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}, name="add")


def meta_wrong(rng: random.Random) -> Draft:
    rule = "2026-07-28 basic, _meta: required fields that are missing or malformed are 400 and -32602"
    what = chosen(rng, "all", "version", "capabilities", "client", "level")
    meta: Any = dict(BASE_META)
    if what == "all":
        meta = junk(rng, dict)
    elif what == "version":
        meta[VERSION] = junk(rng, str)
        return sent(rng, with_meta(rng, meta), rule, {400}, {INVALID_PARAMS, MISMATCH})
    elif what == "capabilities":
        meta[CAPABILITIES] = junk(rng, dict)
        if rng.random() < 0.3:
            del meta[CAPABILITIES]
    elif what == "client":
        meta[CLIENT] = junk(rng, dict, type(None))
    else:
        meta[LEVEL] = chosen(rng, junk(rng, type(None)), "loud", "INFO", "")
    return sent(rng, with_meta(rng, meta), rule, {400}, {INVALID_PARAMS})


def meta_strange(rng: random.Random) -> Draft:
    more = chosen(
        rng,
        {"": 1},
        {"a/b/c": 2},
        {"io.modelcontextprotocol/" + token(rng): junk(rng)},
        {"traceparent": chosen(rng, "x", "00-" + "0" * 32 + "-" + "0" * 16 + "-00", "ff-" * 20, "0" * 10_000)},
        {"tracestate": "x" * 10_000, "baggage": "=;,=" * 1000},
        {"x" * 10_000: {}},
        {"__proto__": {"a": 1}},
        {f"k{number}": [] for number in range(1000)},
    )
    rule = "2026-07-28 basic, _meta: what is not known is ignored"
    return sent(rng, with_meta(rng, {**BASE_META, **more}), rule, {200}, ())


def progress_token_wrong(rng: random.Random) -> Draft:
    meta = {**BASE_META, "progressToken": junk(rng, str, int)}
    rule = "basic/utilities/progress: a token is a string or an integer; another is refused or means nothing"
    return sent(rng, with_meta(rng, meta), rule, {200, 400}, {INVALID_PARAMS})


def version_unknown(rng: random.Random) -> Draft:
    version = chosen(rng, "2027-01-01", "1900-01-01", "x", "2026-07-28 x", token(rng), "9" * 500, "2026-7-28", "DRAFT")
    message = with_meta(rng, {**BASE_META, VERSION: version}).set("MCP-Protocol-Version", version)
    rule = "S, Protocol Version Header: a version that is not served is 400 and -32022"
    return sent(rng, message, rule, {400}, {NO_VERSION})


def version_mixed(rng: random.Random) -> Draft:
    header, meta = chosen(
        rng, (LATEST, MODERN), ("2024-11-05", MODERN), (MODERN, LATEST), (MODERN, "2027-01-01"), ("2027-01-01", MODERN)
    )
    message = with_meta(rng, {**BASE_META, VERSION: meta}).set("MCP-Protocol-Version", header)
    rule = "S, Protocol Version Header: header and body that differ are 400 and -32020"
    return sent(rng, message, rule, {400}, {MISMATCH, NO_VERSION})


# --- the handshake ----------------------------------------------------------------------------------------------


def hello(rng: random.Random, **members: Any) -> Message:
    params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}, **members}
    params = {name: value for name, value in params.items() if value is not ...}
    return legacy(rng, "initialize", params, session=None).set("MCP-Protocol-Version")


def initialize_wrong(rng: random.Random) -> Draft:
    message = chosen(
        rng,
        hello(rng, protocolVersion=junk(rng, str)),
        hello(rng, capabilities=junk(rng, dict)),
        hello(rng, clientInfo=junk(rng, dict)),
        hello(rng, capabilities=...),
        hello(rng, clientInfo=...),
        hello(rng, protocolVersion=...),
    )
    rule = "2025-11-25 basic/lifecycle; JSON-RPC 2.0, 5.1: invalid parameters are -32602"
    return sent(rng, message, rule, {200, 400}, {INVALID_PARAMS})


def initialize_version(rng: random.Random) -> Draft:
    message = hello(rng, protocolVersion=chosen(rng, "1900-01-01", "2099-01-01", "", "x", "x" * 5000, "\x00", MODERN))
    return sent(rng, message, "2025-11-25 basic/lifecycle, Version Negotiation: another version is answered", {200}, ())


def initialize_strange(rng: random.Random) -> Draft:
    message = chosen(
        rng,
        hello(
            rng, capabilities={"x" * 1000: {"a": junk(rng)}, "roots": junk(rng, type(None)), "sampling": {"tools": 1}}
        ),
        hello(rng, clientInfo={"name": "x" * 10_000, "version": "\x00"}),
        hello(rng, clientInfo={"name": junk(rng), "version": junk(rng)}),
        hello(rng, _meta={"progressToken": 1, "x": "y"}),
    )
    rule = "2025-11-25 basic/lifecycle: what is not known is ignored; what is malformed is -32602"
    return sent(rng, message, rule, {200, 400}, {INVALID_PARAMS})


def initialize_again(rng: random.Random) -> Draft:
    message = hello(rng)
    message.fields.append(("Mcp-Session-Id", chosen(rng, "@live@", "@ended@", token(rng, 30, 40))))
    return sent(rng, message, "L, Session Management: initialize opens a session, and has none", {400, 404})


# --- batches and sizes ------------------------------------------------------------------------------------------


def batch(rng: random.Random) -> Draft:
    items = [chosen(rng, request(rng), junk(rng), {"jsonrpc": "2.0", "method": "x"}) for _ in range(rng.randint(1, 50))]
    rule = "S, Sending Messages, 4; 2025-06-18 changelog: there are no batches"
    message = modern(rng, content=items) if rng.random() < 0.5 else legacy(rng, content=items)
    return sent(rng, message, rule, {400}, {INVALID_REQUEST})


def batch_too_long(rng: random.Random) -> Draft:
    item = b'{"jsonrpc":"2.0","method":"a"}'
    content = b"[" + b",".join([item] * rng.randint(1001, 5000)) + b"]"
    return broken(rng, content, "docs/reference/limits.md: a batch of more than 1000 is refused", {INVALID_REQUEST})


def batch_in_its_revision(rng: random.Random) -> Draft:
    items: list[Any] = []
    for _ in range(rng.randint(1, 30)):
        ping = {"jsonrpc": "2.0", "id": rng.randint(1, 2**50), "method": chosen(rng, "ping", token(rng), "initialize")}
        items.append(chosen(rng, ping, ping, junk(rng), {"jsonrpc": "2.0", "method": token(rng)}))
    message = legacy(rng, content=items, session="@batch@").set("MCP-Protocol-Version")
    rule = "2025-03-26 basic/transports; JSON-RPC 2.0, 6: an array of answers; 202 where none is due; or 400"
    return sent(rng, message, rule, {200, 202, 400}, {INVALID_REQUEST, NO_METHOD})


def too_large(rng: random.Random) -> Draft:
    size = rng.randint(262_145, 600_000)
    message = modern(rng)
    message.body = chosen(rng, b" ", b"[", b"{", b"\x00", b'"')[:1] * size
    return Draft("RFC 9110, 15.5.14: too large is 413", {413}, rendered(rng, message), wire=chosen(rng, "tcp", "tls"))


def just_fits(rng: random.Random) -> Draft:
    message = modern(rng)
    message.body += b" " * (262_144 - len(message.body))
    data = b"".join(rendered(rng, message))
    return Draft("docs/reference/limits.md: max_message_size", {200}, cut(rng, data), closes=False)


KINDS = kinds_of(__name__)
