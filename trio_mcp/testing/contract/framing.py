"""Rules of the transport contract about framing: however the bytes are split or garbled, no message affects another."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.codec import encode
from trio_mcp.jsonrpc.messages import Malformed, Notification, TransportFailure
from trio_mcp.testing.contract.rule import rule
from trio_mcp.testing.contract.stage import End, Stage, settled, shown

__all__: list[str] = []

GARBAGE: Final[dict[str, bytes]] = {
    "words": b"Traceback (most recent call last):",
    "half an object": b'{"jsonrpc":"2.0","method":"x","params":{',
    "a string": b'"text"',
    "a number": b"17",
    "null": b"null",
    "an object that is not a message": b'{"level":"info","message":"listening"}',
    "another version": b'{"jsonrpc":"1.0","method":"x"}',
    "NaN": b'{"jsonrpc":"2.0","method":"x","params":{"n":NaN}}',
    "a trailing comma": b'{"jsonrpc":"2.0","method":"x",}',
    "an id of the wrong type": b'{"jsonrpc":"2.0","id":[1],"method":"x"}',
    "two messages in one": b'{"jsonrpc":"2.0","method":"x"}{"jsonrpc":"2.0","method":"x"}',
}
"""UTF-8 texts that are not exactly one valid message, each under a description."""

SLACK: Final = 1024 * 1024
"""How many bytes of memory a message over the size limit may take beyond eight times the limit: an arbitrary choice."""


async def _write(stage: Stage, stream: trio.abc.Stream, *texts: bytes) -> None:
    with stage.within("writing to the raw stream"):
        await stream.send_all(b"".join(map(stage.frame, texts)))


async def _feed(stage: Stage, stream: trio.abc.Stream, data: bytes, size: int) -> None:
    """Write data in pieces of ``size`` bytes, and after each wait until all other tasks are blocked."""
    for start in range(0, len(data), size):
        with stage.within("writing to the raw stream"):
            await stream.send_all(data[start : start + size])
        # Without this wait the system would join pieces, and the link would read several at once.
        await settled()


@rule("A message whose bytes come one at a time arrives, and only when it is complete", needs="raw")
async def one_byte(stage: Stage) -> None:
    async with stage.raw() as (link, stream):
        for message in (stage.note("\U0001f469"), stage.note(["\\", '"', "\n"])):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, stage, stream, stage.frame(encode(message)), 1)
                await link.take(message, "one byte at a time")


@rule("Many messages in one piece arrive one by one, in order", needs="raw")
async def one_chunk(stage: Stage) -> None:
    async with stage.raw() as (link, stream):
        messages = [stage.note() for _ in range(200)]
        async with trio.open_nursery() as nursery:
            # The messages are more than a link buffers, so the task that writes may have to wait until this one reads.
            nursery.start_soon(_write, stage, stream, *map(encode, messages))
            for message in messages:
                await link.take(message, "200 messages in one piece")


@rule(
    "Garbage after the first message costs only itself: it arrives as one `Malformed`, and what follows it arrives",
    needs="raw",
)
async def garbage(stage: Stage) -> None:
    async with stage.raw() as (link, stream):
        # A valid message comes first: over TCP, the first line decides whether the connection is kept at all.
        for name, text in {"a message": b"", **GARBAGE}.items():
            if text:
                await _write(stage, stream, text)
                if not isinstance(arrived := await link.receive(), Malformed):
                    raise stage.broken(f"{name} arrived as {shown(arrived)}, not as a Malformed")
            message = stage.note()
            await _write(stage, stream, encode(message))
            await link.take(message, f"after {name}")


async def _only_itself(stage: Stage, link: End, stream: trio.abc.Stream, framed: bytes, size: int) -> None:
    """Write ``framed``, an invalid message, then a valid one; check that the valid one arrives, or the link ends."""
    await _write(stage, stream, encode(first := stage.note()))
    await link.take(first)
    last = stage.note()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def write() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                await _feed(stage, stream, framed, size)
                await _write(stage, stream, encode(last))

        arrived = await link.receive()
        if isinstance(arrived, Malformed):
            await link.take(last, "after the invalid message")
        elif not (
            isinstance(arrived, TransportFailure) and isinstance(arrived.error, TransportError) and str(arrived.error)
        ):
            raise stage.broken(
                f"the invalid message arrived as {shown(arrived)}, "
                "neither as a Malformed nor as a TransportFailure with a cause"
            )
        # A link that has ended reads no further, so the writer may still be waiting.
        nursery.cancel_scope.cancel()


@rule("What is not UTF-8 costs only itself, or ends the link with a cause", needs="raw")
async def not_utf8(stage: Stage) -> None:
    async with stage.raw() as (link, stream):
        # The message is valid except for two bytes that UTF-8 never contains (RFC 3629, section 1). A reader that
        # replaces them would get a valid message.
        framed = stage.frame(b'{"jsonrpc":"2.0","method":"\xff\xfe"}')
        await _only_itself(stage, link, stream, framed, len(framed))


@rule("A message that the end of the stream cuts off is not delivered, and then `read` ends", needs="raw")
async def cut_off(stage: Stage) -> None:
    async with stage.raw() as (link, stream):
        first, second = stage.note(), stage.note(["x" * 1000])
        await _write(stage, stream, encode(first))
        await link.take(first)
        framed = stage.frame(encode(second))
        await stream.send_all(framed[: len(framed) // 2])
        await stream.aclose()
        for message in await link.rest():
            if not isinstance(message, (Malformed, TransportFailure)):
                raise stage.broken(f"half a message arrived as {shown(message)}")


@rule(
    "A message over the limit costs only itself, or ends the link with a cause, and never takes its size in memory",
    needs="max_message_size",
)
async def too_large(stage: Stage) -> None:
    assert stage.max_message_size is not None
    limit = stage.max_message_size
    # The message is made before the measurement and fed in small pieces, so that the check's own copies don't count. It
    # is far larger than the memory that the rule allows.
    framed = stage.frame(encode(Notification("check/note", {"value": "x" * (32 * limit)})))
    async with stage.raw() as (link, stream):
        most = await _most_memory(lambda: _only_itself(stage, link, stream, framed, max(limit // 8, 1)))
        if most > 8 * limit + SLACK:
            raise stage.broken(f"a message of {len(framed)} bytes took {most} bytes of memory; the limit is {limit}")


async def _most_memory(operation: Callable[[], Awaitable[None]]) -> int:
    """Return an operation's peak memory use, in bytes, beyond the memory in use before it."""
    was_on = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        await operation()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        # The user may be tracing, too, and stopping would discard those traces.
        if not was_on:
            tracemalloc.stop()
