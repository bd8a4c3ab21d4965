"""Headers of MCP that lie about the body, and what a client says it sends and takes."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterable
from typing import TypeAlias

from tests.hostile.case import LATEST, MODERN, Draft, Kind, Message, Outcome, chosen, kinds_of, legacy, modern, token
from tests.hostile.families.bodies import sent
from tests.tables import listed

MISMATCH, NO_VERSION = -32020, -32022

Base: TypeAlias = Callable[[random.Random], Message]
Ways: TypeAlias = Callable[[random.Random], list[tuple[str, ...]]]
"""Ways to send a field: each tuple is one way, with a value for each field line."""


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def routed(rng: random.Random, region: object = "north", *headers: str, count: object = None) -> Message:
    """Return a call of the tool whose arguments ``region`` and ``count`` are repeated in headers."""
    arguments = {name: value for name, value in (("region", region), ("count", count)) if value is not None}
    message = modern(rng, "tools/call", {"name": "route", "arguments": arguments}, name="route")
    return message.set("Mcp-Param-Region", *headers)


def replacing(name: str, allowed: set[Outcome], codes: Iterable[int] | None, *bases: Base) -> Callable[[Ways], Kind]:
    """Make a kind that sends other values for one field of a message; its docstring is the rule."""

    def decorate(ways: Ways) -> Kind:
        def kind(rng: random.Random) -> Draft:
            given = chosen(rng, *ways(rng))
            return sent(rng, chosen(rng, *bases)(rng).set(name, *given), str(ways.__doc__), allowed, codes)

        return kind

    return decorate


def ways(text: str, *more: str) -> list[tuple[str, ...]]:
    """Return the ways of a text: bars are between them, and ampersands between the values of one."""
    return [*(tuple(each.split(" & ")) for each in listed(text)), *((each,) for each in more)]


ABSENT: list[tuple[str, ...]] = [()]


@replacing("Mcp-Method", {400}, {MISMATCH}, modern)
def method_header(rng: random.Random) -> list[tuple[str, ...]]:
    """S, Server Validation: Mcp-Method must be there and agree."""
    twice = ways("tools/call & tools/call | tools/call & ping | tools/call, tools/call")
    other = ways(
        ' | tools/list | TOOLS/CALL | "tools/call" | tools/call\xe9', encoded("tools/call"), "x" * 5000, token(rng)
    )
    return ABSENT + twice + other


@replacing("Mcp-Name", {400}, {MISMATCH}, modern)
def name_header(rng: random.Random) -> list[tuple[str, ...]]:
    """S, Server Validation, Value Encoding: Mcp-Name must be there and agree."""
    other = ways(" | echo | ADD | add & add | add & echo | add, add | add\xe9", encoded("echo"), "x" * 5000)
    base64s = ways(
        "=?base64?YWRk | =?base64?YWRk=?= | =?base64?YWR?= | =?base64?YWR r?= | =?base64?/w==?= | =?base64?YWRl?= | "
        "=?base64??= | =?BASE64?YWRk?= | =?utf-8?B?YWRk?="
    )
    return ABSENT + other + base64s


@replacing("Mcp-Name", {200}, (), modern)
def name_encoded(rng: random.Random) -> list[tuple[str, ...]]:
    """S, Value Encoding: Base64 between sentinels is decoded."""
    return ways(encoded("add"))


@replacing("Mcp-Param-Region", {400}, {MISMATCH}, routed)
def parameter_header(rng: random.Random) -> list[tuple[str, ...]]:
    """S, Server Behavior for Custom Headers: Mcp-Param-* must be there and agree."""
    other = ways(" | south | NORTH | north & north | north & south | north,south", encoded("south"), "x" * 5000)
    return ABSENT + other + ways("=?base64?!?= | =?base64?bm9ydGg?= | \xe9 | n\x7f")


@replacing("Mcp-Param-Region", {400}, {MISMATCH}, lambda rng: routed(rng, None))
def parameter_header_alone(rng: random.Random) -> list[tuple[str, ...]]:
    """S, Server Behavior for Custom Headers: a header for an argument that is not there."""
    return ways("north")


@replacing("Mcp-Param-Count", {400}, {MISMATCH}, lambda rng: routed(rng, "north", "north", count=7))
def parameter_number(rng: random.Random) -> list[tuple[str, ...]]:
    """S, Server Behavior for Custom Headers: numbers must agree."""
    other_digits = "\u0667".encode().decode("latin-1")
    return ways("8 | 07.5 | 7,0 | 0x7 | seven |  | 7e0 | +7 | NaN | -7 |  7 8", "7" * 5000, other_digits)


def parameters_right(rng: random.Random) -> Draft:
    region = chosen(rng, "north", "Süden", " x ", "", "=?base64?bm9ydGg=?=", "x" * 1000, "\n", "💥")
    plain = region.isascii() and region.isprintable() and region.strip() == region and region and region[0] != "="
    message = routed(rng, region, region if plain else encoded(region), count=7).set("Mcp-Param-Count", "7")
    message.set("Mcp-Param-" + token(rng), token(rng))
    return sent(rng, message, "S, Custom Headers: headers that agree, and one that no schema asks for", {200}, ())


@replacing("MCP-Protocol-Version", {400}, {MISMATCH, NO_VERSION}, modern)
def version_header(rng: random.Random) -> list[tuple[str, ...]]:
    """S, Protocol Version Header: it must be there once and agree: -32020, or -32022 where it is not served."""
    twice = ways(f"{MODERN} & {MODERN} | {MODERN} & {LATEST} | {MODERN}, {MODERN}")
    return ABSENT + twice + ways(f" | 1 | {LATEST} | {MODERN}\xe9", token(rng))


@replacing("MCP-Protocol-Version", {400}, None, legacy)
def version_header_in_session(rng: random.Random) -> list[tuple[str, ...]]:
    """L, Protocol Version Header: one that is invalid or not supported is 400."""
    return ways("1900-01-01 | x |  | 2025-11-25x | 2025-11-25, 2025-11-25 | \xff | 2099-01-01", "x" * 5000)


def session_of_modern(rng: random.Random) -> Draft:
    message = modern(rng).set("Mcp-Session-Id", chosen(rng, "@live@", "@ended@", token(rng), "", "\xe9", "x" * 5000))
    message.set("Last-Event-ID", chosen(rng, "1-1", "x", ""))
    return sent(rng, message, "S, Earlier Streamable HTTP Revisions: a modern request has no session", {200}, ())


# --- Accept, Content-Type ---------------------------------------------------------------------------------------


@replacing("Accept", {406}, None, modern, legacy)
def accept_wrong(rng: random.Random) -> list[tuple[str, ...]]:
    """S, Sending Messages, 2; RFC 9110, 12.5.1, 15.5.7: a client has to take both."""
    return ways(
        "text/html | application/xml | image/* | text/event-stream;q=0, application/json | "
        "application/json;q=0, text/event-stream | */*;q=0 | application/json;q=0.000, */* | text/* | "
        "application/json | text/event-stream | jsonx, event | application/jsonx, text/event-stream | -",
        token(rng) + "/" + token(rng),
    )


@replacing("Accept", {200}, (), modern, legacy)
def accept_strange(rng: random.Random) -> list[tuple[str, ...]]:
    """RFC 9110, 5.6.1, 12.5.1: lists, ranges, qualities."""
    return ways(
        "*/* | application/*, text/* | text/event-stream & application/json | APPLICATION/JSON,TEXT/EVENT-STREAM | "
        "application/json;charset=utf-8;q=0.5 ,text/event-stream ; q=1.000 | , ,application/json,, text/event-stream, "
        "| application/json, text/event-stream, */*;q=0",
        "application/json, text/event-stream" + ", a/b" * 800,
    )


@replacing("Accept", {200, 406}, None, modern, legacy)
def accept_missing(rng: random.Random) -> list[tuple[str, ...]]:
    """RFC 9110, 12.5.1: without a field anything is taken; S, Sending Messages, 2: the client MUST say it."""
    return ABSENT


@replacing("Content-Type", {400, 415}, None, modern, legacy)
def content_type_wrong(rng: random.Random) -> list[tuple[str, ...]]:
    """RFC 9110, 15.5.16: the body must be application/json; else 415."""
    return ABSENT + ways(
        " | text/plain | application/x-www-form-urlencoded | multipart/form-data; boundary=x | application/jsonx | "
        "application/json-rpc | text/json | application/ json | application/json, text/plain | */* | "
        'application/json\xe9 | "application/json" | text/plain;application/json',
        "x" * 5000,
    )


def content_type_twice(rng: random.Random) -> Draft:
    second = chosen(rng, "application/json", "text/plain")
    message = chosen(rng, modern, legacy)(rng).set("Content-Type", "application/json", second)
    allowed = {200, 400, 415} if second == "application/json" else {400, 415}
    return sent(rng, message, "RFC 9110, 5.3, 8.3: a field that is there twice is an error", allowed)


@replacing("Content-Type", {200}, (), modern, legacy)
def content_type_strange(rng: random.Random) -> list[tuple[str, ...]]:
    """RFC 9110, 8.3.1: parameters, in any case."""
    upper = "APPLICATION/JSON | application/json;charset=utf-8 | application/json ; charset=UTF-8"
    return ways(upper + ' | application/json; a="b;c" | application/json;')


@replacing("Content-Encoding", {415}, None, modern, legacy)
def content_coding(rng: random.Random) -> list[tuple[str, ...]]:
    """RFC 9110, 8.4, 15.5.16: a coding that is not taken is 415."""
    return ways("gzip | br | deflate | x-gzip | gzip, gzip | identity, gzip | zstd | aes128gcm", token(rng))


def ranges_and_conditions(rng: random.Random) -> Draft:
    fixed = listed(  # and in HTTP/2 TE may say nothing else
        "Range: bytes=0-0 | If-None-Match: * | If-Modified-Since: x | X-HTTP-Method-Override: DELETE | TE: trailers | "
        "X-Forwarded-For: 127.0.0.1 | X-Forwarded-Host: evil.example | Forwarded: for=127.0.0.1;host=evil.example | "
        "X-Original-URL: /health | Cache-Control: only-if-cached | Max-Forwards: 0"
    )
    ranges = "Range: bytes=" + ",".join(f"{number}-" for number in range(500))
    cookies = "Cookie: " + "; ".join(f"{token(rng)}={token(rng)}" for _ in range(100))
    name, _, value = chosen(rng, *fixed, ranges, cookies, "Authorization: Bearer " + token(rng)).partition(": ")
    message = modern(rng)
    message.fields.append((name, value))
    allowed = {200, 412} if name == "If-None-Match" else {200}
    return sent(rng, message, "RFC 9110, 13, 14: ranges are for GET; what is not known is ignored", allowed)


KINDS = kinds_of(__name__)
