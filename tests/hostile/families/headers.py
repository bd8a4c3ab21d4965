"""Headers of MCP that lie about the body, and what a client says it sends and takes."""

from __future__ import annotations

import base64
import random

from tests.hostile.case import LATEST, MODERN, Draft, Kind, Message, chosen, legacy, modern, token
from tests.hostile.families.bodies import sent

MISMATCH, NO_VERSION = -32020, -32022


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def routed(rng: random.Random, region: object = "north", *headers: str, count: object = None) -> Message:
    """Return a call of the tool whose arguments ``region`` and ``count`` are repeated in headers."""
    arguments = {name: value for name, value in (("region", region), ("count", count)) if value is not None}
    message = modern(rng, "tools/call", {"name": "route", "arguments": arguments}, name="route")
    return message.set("Mcp-Param-Region", *headers)


def method_header(rng: random.Random) -> Draft:
    values = chosen(
        rng,
        (),
        ("",),
        ("tools/list",),
        ("TOOLS/CALL",),
        ("tools/call", "tools/call"),
        ("tools/call", "ping"),
        ("tools/call, tools/call",),
        (encoded("tools/call"),),
        ('"tools/call"',),
        ("tools/call\xe9",),
        ("x" * 5000,),
        (token(rng),),
    )
    message = modern(rng).set("Mcp-Method", *values)
    return sent(rng, message, "S, Server Validation: Mcp-Method must be there and agree", {400}, {MISMATCH})


def name_header(rng: random.Random) -> Draft:
    values = chosen(
        rng,
        (),
        ("",),
        ("echo",),
        ("ADD",),
        ("add", "add"),
        ("add", "echo"),
        ("add, add",),
        (encoded("echo"),),
        ("=?base64?YWRk",),
        ("=?base64?YWRk=?=",),
        ("=?base64?YWR?=",),
        ("=?base64?YWR r?=",),
        ("=?base64?/w==?=",),
        ("=?base64?YWRl?=",),
        ("=?base64??=",),
        ("=?BASE64?YWRk?=",),
        ("=?utf-8?B?YWRk?=",),
        ("add\xe9",),
        ("x" * 5000,),
    )
    message = modern(rng).set("Mcp-Name", *values)
    return sent(
        rng, message, "S, Server Validation, Value Encoding: Mcp-Name must be there and agree", {400}, {MISMATCH}
    )


def name_encoded(rng: random.Random) -> Draft:
    message = modern(rng).set("Mcp-Name", encoded("add"))
    return sent(rng, message, "S, Value Encoding: Base64 between sentinels is decoded", {200}, ())


def parameter_header(rng: random.Random) -> Draft:
    values = chosen(
        rng,
        (),
        ("",),
        ("south",),
        ("NORTH",),
        ("north", "north"),
        ("north", "south"),
        ("north,south",),
        (encoded("south"),),
        ("=?base64?!?=",),
        ("=?base64?bm9ydGg?=",),
        ("\xe9",),
        ("n\x7f",),
        ("x" * 5000,),
    )
    message = routed(rng, "north", *values)
    rule = "S, Server Behavior for Custom Headers: Mcp-Param-* must be there and agree"
    # A DEL is refused by the grammar of HTTP, where it is looked at.
    return sent(rng, message, rule, {400}, {MISMATCH})


def parameter_header_alone(rng: random.Random) -> Draft:
    rule = "S, Server Behavior for Custom Headers: a header for an argument that is not there"
    return sent(rng, routed(rng, None, "north"), rule, {400}, {MISMATCH})


def parameter_number(rng: random.Random) -> Draft:
    value = chosen(
        rng, "8", "07.5", "7,0", "0x7", "seven", "", "7e0", "+7", "\u0667", "NaN", "7" * 5000, "-7", " 7 8"
    ).encode("utf-8")
    message = routed(rng, "north", "north", count=7).set("Mcp-Param-Count", value.decode("latin-1"))
    rule = "S, Server Behavior for Custom Headers: numbers must agree"
    return sent(rng, message, rule, {400}, {MISMATCH})


def parameters_right(rng: random.Random) -> Draft:
    region = chosen(rng, "north", "Süden", " x ", "", "=?base64?bm9ydGg=?=", "x" * 1000, "\n", "💥")
    plain = region.isascii() and region.isprintable() and region.strip() == region and region and region[0] != "="
    message = routed(rng, region, region if plain else encoded(region), count=7).set("Mcp-Param-Count", "7")
    message.set("Mcp-Param-" + token(rng), token(rng))
    return sent(rng, message, "S, Custom Headers: headers that agree, and one that no schema asks for", {200}, ())


def version_header(rng: random.Random) -> Draft:
    values = chosen(
        rng,
        (),
        ("",),
        (MODERN, MODERN),
        (MODERN, LATEST),
        (f"{MODERN}, {MODERN}",),
        ("1",),
        (token(rng),),
        ("2026-07-28\xe9",),
        (LATEST,),
    )
    message = modern(rng).set("MCP-Protocol-Version", *values)
    rule = "S, Protocol Version Header: it must be there once and agree: -32020, or -32022 where it is not served"
    return sent(rng, message, rule, {400}, {MISMATCH, NO_VERSION})


def version_header_in_session(rng: random.Random) -> Draft:
    value = chosen(
        rng, "1900-01-01", "x", "", "2025-11-25x", "2025-11-25, 2025-11-25", "x" * 5000, "\xff", "2099-01-01"
    )
    message = legacy(rng).set("MCP-Protocol-Version", value)
    return sent(rng, message, "L, Protocol Version Header: one that is invalid or not supported is 400", {400})


def session_of_modern(rng: random.Random) -> Draft:
    message = modern(rng).set("Mcp-Session-Id", chosen(rng, "@live@", "@ended@", token(rng), "", "\xe9", "x" * 5000))
    message.set("Last-Event-ID", chosen(rng, "1-1", "x", ""))
    return sent(rng, message, "S, Earlier Streamable HTTP Revisions: a modern request has no session", {200}, ())


# --- Accept, Content-Type ---------------------------------------------------------------------------------------


def accept_wrong(rng: random.Random) -> Draft:
    accept = chosen(
        rng,
        "text/html",
        "application/xml",
        "image/*",
        "text/event-stream;q=0, application/json",
        "application/json;q=0, text/event-stream",
        "*/*;q=0",
        "application/json;q=0.000, */*",
        "text/*",
        "application/json",
        "text/event-stream",
        "jsonx, event",
        "application/jsonx, text/event-stream",
        "-",
        token(rng) + "/" + token(rng),
    )
    message = chosen(rng, modern, legacy)(rng).set("Accept", accept)
    rule = "S, Sending Messages, 2; RFC 9110, 12.5.1, 15.5.7: a client has to take both"
    return sent(rng, message, rule, {406})


def accept_strange(rng: random.Random) -> Draft:
    accept = chosen(
        rng,
        ["*/*"],
        ["application/*, text/*"],
        ["text/event-stream", "application/json"],
        ["APPLICATION/JSON,TEXT/EVENT-STREAM"],
        ["application/json;charset=utf-8;q=0.5 ,text/event-stream ; q=1.000"],
        ["application/json, text/event-stream, */*;q=0"],
        [", ,application/json,, text/event-stream,"],
        ["application/json, text/event-stream" + ", a/b" * 800],
    )
    message = chosen(rng, modern, legacy)(rng).set("Accept", *accept)
    return sent(rng, message, "RFC 9110, 5.6.1, 12.5.1: lists, ranges, qualities", {200}, ())


def accept_missing(rng: random.Random) -> Draft:
    message = chosen(rng, modern, legacy)(rng).set("Accept")
    rule = "RFC 9110, 12.5.1: without a field anything is taken; S, Sending Messages, 2: the client MUST say it"
    return sent(rng, message, rule, {200, 406})


def content_type_wrong(rng: random.Random) -> Draft:
    types = chosen(
        rng,
        [],
        [""],
        ["text/plain"],
        ["application/x-www-form-urlencoded"],
        ["multipart/form-data; boundary=x"],
        ["application/jsonx"],
        ["application/json-rpc"],
        ["text/json"],
        ["application/ json"],
        ["application/json, text/plain"],
        ["*/*"],
        ["application/json\xe9"],
        ['"application/json"'],
        ["x" * 5000],
        ["text/plain;application/json"],
    )
    message = chosen(rng, modern, legacy)(rng).set("Content-Type", *types)
    return sent(rng, message, "RFC 9110, 15.5.16: the body must be application/json; else 415", {400, 415})


def content_type_twice(rng: random.Random) -> Draft:
    second = chosen(rng, "application/json", "text/plain")
    message = chosen(rng, modern, legacy)(rng).set("Content-Type", "application/json", second)
    allowed = {200, 400, 415} if second == "application/json" else {400, 415}
    return sent(rng, message, "RFC 9110, 5.3, 8.3: a field that is there twice is an error", allowed)


def content_type_strange(rng: random.Random) -> Draft:
    given = chosen(
        rng,
        "APPLICATION/JSON",
        "application/json;charset=utf-8",
        "application/json ; charset=UTF-8",
        'application/json; a="b;c"',
        "application/json;",
    )
    message = chosen(rng, modern, legacy)(rng).set("Content-Type", given)
    return sent(rng, message, "RFC 9110, 8.3.1: parameters, in any case", {200}, ())


def content_coding(rng: random.Random) -> Draft:
    coding = chosen(
        rng, "gzip", "br", "deflate", "x-gzip", "gzip, gzip", token(rng), "identity, gzip", "zstd", "aes128gcm"
    )
    message = chosen(rng, modern, legacy)(rng).set("Content-Encoding", coding)
    return sent(rng, message, "RFC 9110, 8.4, 15.5.16: a coding that is not taken is 415", {415})


def ranges_and_conditions(rng: random.Random) -> Draft:
    message = modern(rng)
    message.fields.append(
        chosen(
            rng,
            ("Range", "bytes=0-0"),
            ("Range", "bytes=" + ",".join(f"{number}-" for number in range(500))),
            ("If-None-Match", "*"),
            ("If-Modified-Since", "x"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("X-Forwarded-For", "127.0.0.1"),
            ("X-Forwarded-Host", "evil.example"),
            ("Forwarded", "for=127.0.0.1;host=evil.example"),
            ("X-Original-URL", "/health"),
            ("Cookie", "; ".join(f"{token(rng)}={token(rng)}" for _ in range(100))),
            ("Authorization", "Bearer " + token(rng)),
            ("Max-Forwards", "0"),
            ("Cache-Control", "only-if-cached"),
            ("TE", "trailers, deflate"),
        )
    )
    if message.fields[-1][0] == "TE":  # in HTTP/2 it may say trailers alone
        message.fields[-1] = ("TE", "trailers")
    allowed = {200, 412} if message.fields[-1][0] == "If-None-Match" else {200}
    return sent(rng, message, "RFC 9110, 13, 14: ranges are for GET; what is not known is ignored", allowed)


KINDS: dict[str, Kind] = {
    function.__name__: function
    for function in (
        method_header,
        name_header,
        name_encoded,
        parameter_header,
        parameter_header_alone,
        parameter_number,
        parameters_right,
        version_header,
        version_header_in_session,
        session_of_modern,
        accept_wrong,
        accept_strange,
        accept_missing,
        content_type_wrong,
        content_type_twice,
        content_type_strange,
        content_coding,
        ranges_and_conditions,
    )
}
