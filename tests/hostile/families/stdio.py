"""Lines over stdio: too long, not UTF-8, nested, binary, many. What comes back are codes, or results."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.hostile.case import NOTHING, RESULT, Draft, Outcome, chosen, cut, dumped, kinds_of, token
from tests.hostile.families import bodies
from tests.hostile.families.bodies import INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, PARSE
from trio_mcp.session.session import MAX_FAULTS

RULE = "2025-11-25 basic/transports, stdio: a line is a message, in UTF-8; JSON-RPC 2.0, 5.1"


def line(rng: random.Random, content: bytes, allowed: Iterable[Outcome], rule: str = RULE, end: bytes = b"\n") -> Draft:
    return Draft(rule, allowed, cut(rng, content + end), wire="stdio")


def from_bodies(rng: random.Random) -> Draft:
    """Send as a line what is not a message as the body of a POST either."""
    kind = chosen(
        rng, bodies.json_cut_short, bodies.json_no_utf8, bodies.json_nan, bodies.no_object, bodies.jsonrpc_wrong
    )
    while True:
        draft = kind(rng)
        data = b"".join(piece for piece in draft.pieces if isinstance(piece, bytes))
        content = data.partition(b"\r\n\r\n")[2]
        # A body in chunks or frames, or one that is more or less than a line, can't be sent as a line.
        if draft.wire is None and b"hunked" not in data and b"\n" not in content and content.strip():
            return line(rng, content, draft.codes or (), draft.rule)


def garbage(rng: random.Random) -> Draft:
    data = rng.randbytes(rng.randint(1, 2000)).replace(b"\n", b"x").replace(b"\r", b"x")
    return line(rng, b"\xff" + data, {PARSE})


def nul(rng: random.Random) -> Draft:
    return line(rng, b"\0" * rng.randint(1, 2000), {PARSE})


def too_long(rng: random.Random) -> Draft:
    text = dumped(rng, bodies.request(rng, x="y" * rng.randint(262_145, 500_000))).replace(b"\n", b"")
    content = chosen(rng, text, b"x" * rng.randint(262_145, 500_000), text[:-1])
    rule = "docs/reference/limits.md: a line that is too long is skipped, and a request answered with an error"
    return line(rng, content, {PARSE, INVALID_REQUEST, NOTHING}, rule)


def nested(rng: random.Random) -> Draft:
    opening = chosen(rng, b"[", b'{"a":')
    return line(rng, opening * rng.randint(500, 30_000), {PARSE})


def line_ends(rng: random.Random) -> Draft:
    ping = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % rng.randint(1, 2**50)
    end = chosen(rng, b"\r\n", b" \n", b"\t\n", b"\n\n", b"\n\r\n", b"\r\n\r\n")
    return line(
        rng, chosen(rng, b"", b" ", b"\t", b"\n") + ping, {RESULT}, "RFC 8259, 2: white space around a text", end
    )


def blank(rng: random.Random) -> Draft:
    return line(rng, chosen(rng, b"", b" ", b"\r", b"\t ", b"\n" * 500), {NOTHING, PARSE})


def two_in_a_line(rng: random.Random) -> Draft:
    ping = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % rng.randint(1, 2**50)
    return line(rng, ping + chosen(rng, b"", b" ", b"\r", b"\x0b", b"\xe2\x80\xa8", b",") + ping, {PARSE})


def batch(rng: random.Random) -> Draft:
    content = dumped(rng, [bodies.junk(rng) for _ in range(rng.randint(0, 30))]).replace(b"\n", b"")
    return line(rng, content, {INVALID_REQUEST}, "2025-06-18 changelog: there are no batches; JSON-RPC 2.0, 6")


def unknown_method(rng: random.Random) -> Draft:
    ask = {"jsonrpc": "2.0", "id": rng.randint(1, 2**50), "method": token(rng, 5)}
    return line(rng, dumped(rng, ask).replace(b"\n", b""), {NO_METHOD}, "JSON-RPC 2.0, 5.1")


def params_wrong(rng: random.Random) -> Draft:
    ask = {"jsonrpc": "2.0", "id": rng.randint(1, 2**50), "method": "tools/call"}
    ask["params"] = chosen(rng, {"name": bodies.junk(rng, str)}, {"name": token(rng, 5)}, [1], "x")
    return line(rng, dumped(rng, ask).replace(b"\n", b""), {INVALID_PARAMS}, "JSON-RPC 2.0, 5.1")


def answers_to_nothing(rng: random.Random) -> Draft:
    content = {
        "jsonrpc": "2.0",
        "id": rng.randint(1, 2**50),
        **chosen(rng, {"result": {}}, {"error": {}}, {"result": 1}),
    }
    return line(rng, dumped(rng, content).replace(b"\n", b""), {NOTHING}, "JSON-RPC 2.0, 5: an answer is not answered")


def flood(rng: random.Random) -> Draft:
    return line(rng, b"x\n" * rng.randint(10, MAX_FAULTS - 1), {PARSE}, end=b"")


KINDS = kinds_of(__name__)
