"""Rules of the transport contract about delivery: messages arrive once, in order and unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import trio

from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Incoming,
    Notification,
    Request,
    Response,
    TransportFailure,
)
from trio_mcp.link import BUFFER
from trio_mcp.testing.contract.rule import ContractRule, rule
from trio_mcp.testing.contract.stage import End, Stage, number_of, shown

__all__ = ["CONTENT"]

MANY: Final = 4 * BUFFER
"""How many messages to send, which is more than the buffers of a link can take. An arbitrary choice."""

ENVELOPE: Final = 200
"""An upper bound on the bytes of a message apart from its value."""


@rule("A connection opens, carries a request and its response, and closes")
async def opens(stage: Stage) -> None:
    async with stage.pair() as (client, server):
        await stage.talk(client, server)


# --- many messages, in both directions --------------------------------------------------------------------------------


class _Direction:
    """One direction of a connection: the messages that were sent, and those that arrived."""

    def __init__(self, source: End, target: End) -> None:
        self.name = f"from the {source.name} to the {target.name}"
        self.source, self.target = source, target
        self.sent: list[Incoming] = []
        self.arrived: list[Incoming] = []

    async def run(self, messages: list[Incoming]) -> None:
        self.sent = messages
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.source.send_all, messages)
            self.arrived = await self.target.collect(len(messages))
            # Nothing more is due, so any message that comes now is one too many.
            self.arrived += await self.target.more()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the sent messages that arrived, in the order of their first arrival."""
        known = {number_of(message) for message in self.sent}
        arrived = (number_of(message) for message in self.arrived)
        # Messages that were never sent, or that arrive twice, are left to the rule `once`; these numbers serve only to
        # check the order.
        return [number for number in dict.fromkeys(arrived) if number is not None and number in known]


async def _converse(stage: Stage) -> tuple[_Direction, _Direction]:
    """Let the client send many messages, and then the server: its responses and, if it may send them, notifications."""
    async with stage.pair() as (client, server):
        up, down = _Direction(client, server), _Direction(server, client)
        # There are long messages among short ones: a transport that carries each message separately may reorder them.
        await up.run([stage.call("x" * 100_000 * (n % 32 == 0)) if n % 4 == 0 else stage.note() for n in range(MANY)])
        down.sent = []
        for n, message in enumerate(up.arrived):
            if isinstance(message, Request):
                down.sent.append(stage.answer(message, "x" * 100_000 * (n % 32 == 0)))
            elif "calls_only" not in stage.traits:
                down.sent.append(stage.note())
        await down.run(down.sent)
        return up, down


@rule("Each message that was sent arrives exactly once, and nothing else does")
async def once(stage: Stage) -> None:
    for way in await _converse(stage):
        arrived = [number_of(message) for message in way.arrived]
        for message in way.arrived:
            if message not in way.sent:
                raise stage.broken(f"{shown(message)} arrived {way.name}, but was not sent")
        if lost := [message for message in way.sent if number_of(message) not in arrived]:
            raise stage.broken(
                f"{len(lost)} of {len(way.sent)} messages sent {way.name} did not arrive, such as {shown(lost[0])}"
            )
        if len(arrived) > len(way.sent):
            twice = next(message for message in way.arrived if arrived.count(number_of(message)) > 1)
            raise stage.broken(f"{shown(twice)} arrived more than once {way.name}")


@rule("Messages arrive in the order in which they were sent, in each direction", unless="unordered")
async def order(stage: Stage) -> None:
    for way in await _converse(stage):
        for earlier, later in zip(way.numbers, way.numbers[1:], strict=False):
            if later < earlier:
                raise stage.broken(f"{way.name}, message {earlier} arrived before message {later}")


@rule("Either end may send a request or a notification at any time, and gets the response", unless="calls_only")
async def unasked(stage: Stage) -> None:
    async with stage.pair() as (client, server):
        for source, target in ((client, server), (server, client)):
            for message in (stage.note(), request := stage.call(), stage.note()):
                await source.send(message)
                await target.take(message, "without a request from the client")
            response = stage.answer(request)
            await target.send(response)
            await source.take(response, f"the {target.name}'s response")


# --- content ----------------------------------------------------------------------------------------------------------


@rule("Every kind of message arrives as it was sent, with its id, and with or without its optional members")
async def kinds(stage: Stage) -> None:
    # Some ids are often confused: a double rounds integers beyond 2**53 (RFC 8259, section 6), and 7 and "7" are
    # different ids.
    ids: tuple[int | str, ...] = (0, -1, 7, 2**53 + 1, 2**64, 10**40, "7", "", "a b", "x" * 1000)
    async with stage.pair() as (client, server):
        for message in (Notification("check/bare"), Notification("check/empty", {})):
            await client.send(message)
            await server.take(message)
        for n, request_id in enumerate(ids):
            request = Request(request_id, "check/call", (None, {}, {"n": 1})[n % 3])
            await client.send(request)
            await server.take(request, "the client's request")
            error = ErrorData(-32000 - n, "no", None if n % 2 else {"why": [n]})
            answer = ErrorResponse(request_id, error) if n % 3 else Response(request_id, {"n": n} if n % 2 else {})
            await server.send(answer)
            await client.take(answer, "the server's response")


def _content(name: str, sentence: str, values: Callable[[], Iterable[tuple[str, Any]]]) -> ContractRule:
    """Return a rule that sends values in a request and back in its response, and checks that they arrive unchanged."""

    async def check(stage: Stage) -> None:
        async with stage.pair() as (client, server):
            for what, value in values():
                await stage.talk(client, server, value, what)

    return ContractRule(name, sentence, check, None, None)


def _nested(levels: int) -> Iterator[tuple[str, Any]]:
    lists: list[Any] = []
    objects: dict[str, Any] = {}
    for _ in range(levels):
        lists, objects = [lists], {"o": objects}
    yield from (("lists", lists), ("objects", objects))


# `str.splitlines` splits at all of these characters. JSON may contain U+0085, U+2028 and U+2029 raw (RFC 8259, section
# 7).
_SEPARATORS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
# JSON requires escapes only for the controls below U+0020 (RFC 8259, section 7): DEL and C1 controls may travel raw.
_CONTROLS: Final = (*range(32), *range(0x7F, 0xA0))
_TEXTS: Final = {
    # Parsers may ignore a byte order mark at the start of a JSON text (RFC 8259, section 8.1); within a string it is
    # content.
    "a byte order mark": "\ufeffa\ufeff",
    "an emoji of several characters": "\U0001f469\u200d\U0001f52c\U0001f1e9\U0001f1ea",
    "a combining character": "e\u0301 \u00e9",
    "right to left": "\u202eabc\u05d0\u200f",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "a replacement character": "\ufffd",
    "the text of escapes": r"\u0000 \n \" \ud800 \\",
    "what looks like messages": '{"jsonrpc":"2.0","method":"x"}\n]]>\nContent-Length: 2\r\n\r\n{}',
    "what is not JSON": "NaN Infinity -Infinity null",
}
_NUMBERS: Final = (
    *(0, -1, 2**31, 2**53 + 1, 2**63, -(2**64), 10**300, 1.5, 1e-308, 5e-324, 1.7976931348623157e308, 0.1),
    [1, 1.0, True, None, False, 0, 0.0],
)
# In JavaScript, assigning to `__proto__` sets the prototype, and the member is lost. A link that rewrites messages
# might mistake keys such as `id` for members of the envelope.
_KEYS: Final = ("", " ", "__proto__", "constructor", "toString", "__class__", "jsonrpc", "id", "method", "a.b", "$ref")
_EMPTY: Final[list[Any]] = ["", [], {}, None, [[]], [{}], {"": {}}, {"": None}]
# The default size limit of servers over sockets and HTTP, in bytes, less the envelope.
_LARGE: Final = 4 * 1024 * 1024 - ENVELOPE

CONTENT: Final = (
    _content(
        "separators",
        "Line and paragraph separators in strings arrive unchanged and separate nothing: U+2028, U+2029, U+0085 and "
        "others",
        lambda: [
            *((f"U+{ord(each):04X}", f"a{each}b{each}") for each in _SEPARATORS),
            ("CR LF", "a\r\n\r\nb"),
            ("two newlines", "a\n\ndata: b\n\n"),
        ],
    ),
    _content(
        "controls",
        "Control characters in strings arrive unchanged, NUL among them",
        lambda: [
            *((f"U+{code:04X}", f"a{chr(code)}b") for code in _CONTROLS),
            ("U+0000 alone", "\0"),
            ("U+0000 in a key", {"a\0b": "\0\0"}),
        ],
    ),
    _content(
        "unicode",
        "Any Unicode text arrives unchanged: emoji, combining characters, noncharacters, a byte order mark",
        _TEXTS.items,
    ),
    _content(
        "numbers",
        "Numbers arrive as the same numbers: huge integers, the limits of a double, and 1 apart from 1.0 and true",
        lambda: [(shown(each), each) for each in _NUMBERS],
    ),
    _content(
        "keys",
        "Keys and empty values arrive unchanged: __proto__, an empty key, keys of other messages, very long ones",
        lambda: [
            *((repr(key), {key: {key: key}}) for key in _KEYS),
            *((repr(each), each) for each in _EMPTY),
            ("many keys", {f"key {number}": number for number in range(5000)}),
            ("a long key", {"k" * 100_000: 1}),
        ],
    ),
    _content(
        "nesting",
        "Deeply nested content arrives unchanged: 100 levels of lists and of objects",
        partial(_nested, 100),
    ),
    _content(
        "large",
        "A message of 4 MiB arrives unchanged, in each direction",
        # This emoji takes four bytes in UTF-8.
        lambda: [("4 MiB in one string", "x" * _LARGE), ("4 MiB of emoji", "\U0001f469" * (_LARGE // 4))],
    ),
)
"""The rules about the content of messages, which differ only in the values that they send."""


@rule(
    "What can't be written as JSON (a lone surrogate, NaN) costs only itself: a request fails, with its id, a response "
    "becomes an error, a notification is dropped; or all of them arrive"
)
async def unsendable(stage: Stage) -> None:
    async with stage.pair() as (client, server):
        for what, value in (("a lone surrogate", "\ud800"), ("NaN", float("nan")), ("a foreign object", object())):
            good = stage.call()
            bad = (stage.call(value), stage.note(value))
            await client.send_all((*bad, good))
            arrived = await _until(server, good)
            # A link that passes Python objects on as they are can deliver even values that JSON can't represent.
            if bad[0] not in arrived:
                failure = await client.receive()
                if not isinstance(failure, TransportFailure) or failure.request_id != bad[0].id:
                    raise stage.broken(
                        f"a request with {what} was not sent, but the client got {shown(failure)} instead of a "
                        "TransportFailure with the request's id"
                    )
            response = stage.answer(good, value)
            await server.send(response)
            got = await client.receive()
            if got != response and not (isinstance(got, ErrorResponse) and got.id == good.id):
                raise stage.broken(
                    f"a response with {what} was sent, but the client got {shown(got)}, neither the response nor an "
                    "error response"
                )
            # The link itself must still work in both directions.
            await stage.talk(client, server, what=f"after {what}")


async def _until(end: End, last: Incoming) -> list[Incoming]:
    arrived: list[Incoming] = []
    while last not in arrived:
        arrived.append(await end.receive())
    return arrived
