"""Deliberately broken transports: a good one each, with one fault; `BROKEN` says which rules each breaks."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import trio
import trio.lowlevel
import trio.testing

from trio_mcp import Notification, TransportError
from trio_mcp.jsonrpc.codec import encode
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Request,
    Response,
    TransportFailure,
)
from trio_mcp.low_level import Link, SessionMessage, memory_link_pair, stream_link

LIMIT = 64 * 1024
"""The longest message that the links over raw streams accept."""


@attrs.frozen
class Transport:
    """What `check_transport` is given.

    Attributes:
        pair: Opens both ends.
        raw: Opens one end, over a stream.
        cut: Opens one end, whose connection can be cut.
    """

    pair: Callable[[], Any]
    raw: Callable[[], Any] | None = None
    cut: Callable[[], Any] | None = None


BROKEN: dict[str, tuple[set[str], Transport]] = {}
"""By name: the rules that are broken, and the transport."""


def breaks(*rules: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a transport, as a function that opens both ends."""

    def register(pair: Callable[..., Any]) -> Callable[..., Any]:
        BROKEN[pair.__name__.replace("_", " ")] = set(rules), Transport(pair)
        return pair

    return register


# --- what they are made of --------------------------------------------------------------------------------------------


class Sends(trio.abc.SendChannel[SessionMessage]):
    """A sending half that works.

    Args:
        link: The link that it belongs to.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.inner: Any = link.write
        self.count = 0

    async def send(self, value: SessionMessage) -> None:
        self.count += 1
        await self.inner.send(value)

    async def aclose(self) -> None:
        await self.inner.aclose()


class Receives(trio.abc.ReceiveChannel[SessionMessage]):
    """A receiving half that works.

    Args:
        link: The link that it belongs to.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.inner: Any = link.read
        self.count = 0

    async def receive(self) -> SessionMessage:
        self.count += 1
        return await self.inner.receive()  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        await self.inner.aclose()


def with_halves(link: Link, *halves: type[Any]) -> Link:
    for half in halves:
        link = link._replace(**{"write" if issubclass(half, Sends) else "read": half(link)})
    return link


def fault(*rules: str, ends: tuple[bool, bool] = (True, True), encode: bool = True) -> Callable[[type[Any]], type[Any]]:
    """Register a transport that works but for one half of its links, at these ends."""

    def register(half: type[Any]) -> type[Any]:
        @contextlib.asynccontextmanager
        async def pair() -> AsyncIterator[tuple[Link, ...]]:
            async with memory_link_pair(encode=encode) as links:
                yield tuple(with_halves(link, half) if bad else link for link, bad in zip(links, ends, strict=True))

        assert half.__doc__ is not None
        BROKEN[half.__doc__] = set(rules), Transport(pair)
        return half

    return register


def changing(what: str, rule: str, change: Callable[[Any], Any]) -> None:
    """Register a transport that changes values."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            value = {key: changed(each) for key, each in value.items()}
        elif isinstance(value, list):
            value = [changed(each) for each in value]
        return change(value)

    class Changes(Sends):
        async def send(self, value: SessionMessage) -> None:
            message: Any = value.message
            if isinstance(message, Response):
                message = attrs.evolve(message, result=changed(message.result))
            elif getattr(message, "params", None):
                message = attrs.evolve(message, params=changed(message.params))
            await super().send(SessionMessage(message))

    Changes.__doc__ = what
    fault(rule)(Changes)


def note_of(message: Incoming) -> Any:
    return message.params if isinstance(message, Notification) else None


# --- messages ---------------------------------------------------------------------------------------------------------


@fault("once")
class Loses(Sends):
    """loses one request in fifty"""

    async def send(self, value: SessionMessage) -> None:
        if "'value': ''" in str(value.message):
            self.count += 1
        if self.count % 50 == 49:
            self.count += 1
            await trio.lowlevel.checkpoint()
        else:
            await self.inner.send(value)


@fault("once")
class Doubles(Sends):
    """delivers one request in fifty twice"""

    async def send(self, value: SessionMessage) -> None:
        await self.inner.send(value)
        if "'value': ''" in str(value.message):
            self.count += 1
            if self.count % 50 == 49:
                await self.inner.send(value)


@fault("order")
class Reorders(Receives):
    """reorders"""

    held: SessionMessage | None = None
    due = 50

    async def receive(self) -> SessionMessage:
        if self.held is not None:
            await trio.lowlevel.checkpoint()
            held, self.held = self.held, None
            return held
        item = await super().receive()
        if self.count >= self.due:
            with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
                item, self.held = self.inner.receive_nowait(), item
                self.due = self.count + 50
        return item


@fault("unasked", ends=(False, True))
class AsksNothing(Sends):
    """takes no requests from the server"""

    async def send(self, value: SessionMessage) -> None:
        if isinstance(value.message, Request):
            await trio.lowlevel.checkpoint()
        else:
            await super().send(value)


class OnlyResponses(Receives):
    """Receives nothing but responses, and what the transport reports."""

    async def receive(self) -> SessionMessage:
        while isinstance((item := await super().receive()).message, (Request, Notification)):
            pass
        return item


@fault("kinds")
class DropsData(Sends):
    """drops the data of errors"""

    async def send(self, value: SessionMessage) -> None:
        message = value.message
        if isinstance(message, ErrorResponse):
            message = ErrorResponse(message.id, ErrorData(message.error.code, message.error.message))
        await super().send(SessionMessage(message))


def _in(part: str) -> Callable[[Any], Any]:
    return lambda value: value.replace(part, "") if isinstance(value, str) else value


changing("drops NUL", "controls", _in("\0"))
changing("drops a byte order mark", "unicode", _in("\ufeff"))
changing("drops __proto__", "keys", lambda v: {k: v[k] for k in v if k != "__proto__"} if type(v) is dict else v)
changing("counts in doubles", "numbers", lambda v: int(float(v)) if type(v) is int and abs(v) > 2**53 else v)
changing("cuts long strings", "large", lambda v: v[: 1024 * 1024] if isinstance(v, str) else v)


@fault("separators")
class Splits(Receives):
    """splits at U+2028"""

    async def receive(self) -> SessionMessage:
        item = await super().receive()
        return SessionMessage(Malformed(-32700, "half a message")) if r"\u2028" in repr(item.message) else item


@fault("nesting")
class Shallow(Receives):
    """refuses what is nested more than 50 levels deep"""

    async def receive(self) -> SessionMessage:
        item = await super().receive()
        return SessionMessage(Malformed(-32700, "too deep")) if "[" * 50 in repr(item.message) else item


@fault("unsendable")
class Raises(Sends):
    """raises when a message can't be written as JSON"""

    async def send(self, value: SessionMessage) -> None:
        encode(value.message)  # type: ignore[arg-type]
        await super().send(value)


# --- load and bounds --------------------------------------------------------------------------------------------------


@breaks("load", "independent")
@contextlib.asynccontextmanager
async def reads_nothing_while_it_writes() -> AsyncIterator[tuple[Link, ...]]:
    class Writes(Sends):
        writing = False

        async def send(self, value: SessionMessage) -> None:
            self.writing = True
            try:
                await super().send(value)
            finally:
                self.writing = False

    class Reads(Receives):
        async def receive(self) -> SessionMessage:
            while self.link.write.writing:  # noqa: ASYNC110
                await trio.sleep(0.001)
            return await super().receive()

    async with memory_link_pair(encode=True) as links:
        yield tuple(with_halves(link, Writes, Reads) for link in links)


@breaks("independent")
@contextlib.asynccontextmanager
async def one_stuck_direction_holds_up_the_other() -> AsyncIterator[tuple[Link, ...]]:
    waiting: set[object] = set()

    class Waits(Sends):
        async def send(self, value: SessionMessage) -> None:
            while waiting - {self}:  # noqa: ASYNC110 - it is slow, too
                await trio.sleep(0.001)
            await trio.lowlevel.checkpoint()
            try:
                self.inner.send_nowait(value)
            except trio.WouldBlock:
                waiting.add(self)
                try:
                    await super().send(value)
                finally:
                    waiting.discard(self)

    async with memory_link_pair() as links:
        yield tuple(with_halves(link, Waits) for link in links)


@contextlib.asynccontextmanager
async def _plain_links(limit: int) -> AsyncIterator[tuple[Link, Link]]:
    """Connect two links by nothing but memory channels, which tell how much they hold."""
    here, there_in = trio.open_memory_channel[SessionMessage](limit)
    there, here_in = trio.open_memory_channel[SessionMessage](limit)
    await trio.lowlevel.checkpoint()
    with here, there, here_in, there_in:
        yield Link(here_in, here), Link(there_in, there)
    await trio.lowlevel.checkpoint()


@breaks("bounded")
@contextlib.asynccontextmanager
async def has_an_unbounded_queue() -> AsyncIterator[tuple[Link, Link]]:
    async with _plain_links(2**40) as links:
        yield links


@fault("resumed", "cancel_send")
class GivesUp(Sends):
    """drops a message that has waited for a while"""

    async def send(self, value: SessionMessage) -> None:
        with trio.move_on_after(0.4):
            await super().send(value)


# --- the end ----------------------------------------------------------------------------------------------------------


@breaks("flushed", "crossing")
@contextlib.asynccontextmanager
async def loses_the_last_message_at_a_close() -> AsyncIterator[tuple[Link, ...]]:
    class Counts(Sends):
        closed = False

        async def aclose(self) -> None:
            self.closed = True
            await super().aclose()

    class Misses(Receives):
        other: Link

        async def receive(self) -> SessionMessage:
            item = await super().receive()
            if self.other.write.closed and self.other.write.count == self.count:  # type: ignore[attr-defined]
                raise trio.EndOfChannel
            return item

    async with memory_link_pair() as links:
        client, server = (with_halves(link, Counts, Misses) for link in links)
        client.read.other, server.read.other = server, client  # type: ignore[attr-defined]
        yield client, server


@breaks("crossing")
@contextlib.asynccontextmanager
async def loses_what_was_sent_if_both_send_at_a_close() -> AsyncIterator[tuple[Link, ...]]:
    class Counts(Sends):
        busy = False
        other: Link

        async def aclose(self) -> None:
            self.busy = self.other.write.count > 0  # type: ignore[attr-defined]
            await super().aclose()

    class Misses(Receives):
        other: Link

        async def receive(self) -> SessionMessage:
            item = await super().receive()
            if self.other.write.busy and note_of(item.message):  # type: ignore[attr-defined]
                raise trio.EndOfChannel
            return item

    async with memory_link_pair() as links:
        ends = [with_halves(link, Counts, Misses) for link in links]
        for end, other in zip(ends, ends[::-1], strict=True):
            end.read.other = end.write.other = other  # type: ignore[attr-defined]
        yield tuple(ends)


class NeverEnds(Sends):
    """does not tell the other end of a close"""

    closed = False

    async def send(self, value: SessionMessage) -> None:
        if self.closed:
            raise trio.ClosedResourceError
        await super().send(value)

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


fault("end")(NeverEnds)


@fault("end", ends=(True, False), encode=False)
class EndsAsALoss(Sends):
    """tells the server of a close as if the connection were lost"""

    closed = False

    async def send(self, value: SessionMessage) -> None:
        if self.closed:
            raise trio.ClosedResourceError
        await super().send(value)

    async def aclose(self) -> None:
        if not self.closed:
            self.closed = True
            with contextlib.suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                self.inner.send_nowait(SessionMessage(TransportFailure(TransportError("gone"))))
        await super().aclose()


@fault("closed")
class ClosesOnce(Sends):
    """can be closed only once"""

    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True
        await super().aclose()


@fault("closed", "leaving_wakes")
class TakesAfterTheClose(Sends):
    """takes messages after its close"""

    async def send(self, value: SessionMessage) -> None:
        with contextlib.suppress(trio.ClosedResourceError):
            await super().send(value)


@fault("waking")
class SleepsOn(Receives):
    """does not wake a receive when it is closed"""

    closed = False

    async def receive(self) -> SessionMessage:
        if self.closed:
            raise trio.ClosedResourceError
        return await super().receive()

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


@fault("half_close")
class ClosesBoth(Sends):
    """closes `read` with `write`"""

    async def aclose(self) -> None:
        await super().aclose()
        await self.link.read.aclose()


# --- the block --------------------------------------------------------------------------------------------------------


def around(*rules: str, **options: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a transport that does something before or after a good one, or with its exceptions."""

    def register(manager: Callable[[], Any]) -> Callable[[], Any]:
        @contextlib.asynccontextmanager
        async def pair() -> AsyncIterator[tuple[Link, Link]]:
            async with manager(), memory_link_pair(**options) as links:
                yield links

        pair.__name__ = manager.__name__
        breaks(*rules)(pair)
        return manager

    return register


@around("no_tasks")
@contextlib.asynccontextmanager
async def leaks_a_task() -> AsyncIterator[None]:
    trio.lowlevel.spawn_system_task(trio.sleep_forever)
    yield


LEAKED: list[int] = []
"""Descriptors that a broken transport has leaked, for a test to close."""


@around("no_descriptors")
@contextlib.asynccontextmanager
async def leaks_a_descriptor() -> AsyncIterator[None]:
    LEAKED.extend(os.pipe())
    yield


@around("no_warnings")
@contextlib.asynccontextmanager
async def leaves_a_socket_to_the_garbage_collector() -> AsyncIterator[None]:
    socket.socket()
    yield


@breaks("leaving_stuck")
@contextlib.asynccontextmanager
async def waits_until_everything_was_read() -> AsyncIterator[tuple[Link, Link]]:
    async with _plain_links(64) as links:
        yield links
        while any(link.write.statistics().current_buffer_used > 10 for link in links):  # noqa: ASYNC110
            await trio.sleep(0.1)


@breaks("leaving_wakes")
@contextlib.asynccontextmanager
async def closes_nothing() -> AsyncIterator[tuple[Link, Link]]:
    here, there_in = trio.open_memory_channel[SessionMessage](64)
    there, here_in = trio.open_memory_channel[SessionMessage](64)
    await trio.lowlevel.checkpoint()
    yield Link(here_in, here), Link(there_in, there)
    await trio.lowlevel.checkpoint()


@around("exceptions")
@contextlib.asynccontextmanager
async def wraps_exceptions() -> AsyncIterator[None]:
    async with trio.open_nursery():
        yield


@breaks("cancellation")
@contextlib.asynccontextmanager
async def swallows_a_cancellation() -> AsyncIterator[tuple[Link, Link]]:
    entered = False
    try:
        async with memory_link_pair() as links:
            entered = True
            yield links
    except trio.Cancelled:
        if not entered:
            raise


@breaks("cancellation")
@contextlib.asynccontextmanager
async def opens_though_cancelled() -> AsyncIterator[tuple[Link, Link]]:
    manager = memory_link_pair()
    with trio.CancelScope(shield=True):
        links = await manager.__aenter__()
    await trio.lowlevel.cancel_shielded_checkpoint()
    try:
        yield links
    finally:
        await manager.__aexit__(None, None, None)


LEFT_OPEN: list[object] = []


@breaks("reopening")
@contextlib.asynccontextmanager
async def can_not_be_opened_again_after_an_exception() -> AsyncIterator[tuple[Link, Link]]:
    if LEFT_OPEN:
        raise OSError(f"in use: {LEFT_OPEN.pop()}")
    async with _plain_links(64) as links:
        try:
            yield links
        except Exception:
            LEFT_OPEN.extend(["a lock"] * (links[0].write.statistics().current_buffer_used > 0))  # type: ignore[attr-defined]
            raise


OPEN: list[object] = []


@around("together")
@contextlib.asynccontextmanager
async def has_only_one_connection_at_a_time() -> AsyncIterator[None]:
    if OPEN:
        raise OSError("in use")
    OPEN.append("one")
    try:
        yield
    finally:
        OPEN.clear()


# --- cancellation -----------------------------------------------------------------------------------------------------


@fault("checkpoints")
class NoCheckpoint(Sends):
    """does not let other tasks run when it sends"""

    async def send(self, value: SessionMessage) -> None:
        try:
            self.inner.send_nowait(value)
        except trio.WouldBlock:
            await super().send(value)


@breaks("cancel_open")
@contextlib.asynccontextmanager
async def leaks_a_task_if_its_opening_is_cancelled() -> AsyncIterator[tuple[Link, Link]]:
    await trio.lowlevel.checkpoint()
    try:
        await trio.lowlevel.checkpoint()
    except trio.Cancelled:
        trio.lowlevel.spawn_system_task(trio.sleep_forever)
        raise
    async with memory_link_pair() as links:
        yield links


@breaks("cancel_leave")
@contextlib.asynccontextmanager
async def leaks_a_task_if_its_leaving_is_cancelled() -> AsyncIterator[tuple[Link, Link]]:
    async with memory_link_pair() as links:
        yield links
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            trio.lowlevel.spawn_system_task(trio.sleep_forever)
            raise


@fault("cancel_send")
class SendsThoughCancelled(Sends):
    """may have sent what was cancelled"""

    async def send(self, value: SessionMessage) -> None:
        await super().send(value)
        if self.count % 3 == 0:
            await trio.lowlevel.checkpoint()


@fault("cancel_send")
class CannotBeCancelled(Sends):
    """can't be cancelled while it waits to send"""

    async def send(self, value: SessionMessage) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True):
            await super().send(value)


@fault("cancel_receive")
class LosesOnCancel(Receives):
    """loses what a receive has taken when it is cancelled"""

    async def receive(self) -> SessionMessage:
        item = await super().receive()
        await trio.lowlevel.checkpoint()
        return item


@fault("cancel_close")
class StaysOpen(Sends):
    """is not closed when its close is cancelled"""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        await super().aclose()


# --- bytes ------------------------------------------------------------------------------------------------------------


class Wire(trio.abc.HalfCloseableStream):
    """A stream that works, and can be cut."""

    def __init__(self, inner: trio.StapledStream[Any, Any]) -> None:
        self.inner = inner
        self.is_cut = False
        self._waiting: list[trio.CancelScope] = []

    def cut(self) -> None:
        self.is_cut = True
        for scope in self._waiting:
            scope.cancel()

    async def _until_cut(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        if not self.is_cut:
            with trio.CancelScope() as scope:
                self._waiting.append(scope)
                return await operation()
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError("cut")

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self._until_cut(self.inner.receive_some))

    async def send_all(self, data: Any) -> None:
        await self._until_cut(lambda: self.inner.send_all(data))

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self.inner.send_eof()

    async def aclose(self) -> None:
        await self.inner.aclose()


@contextlib.asynccontextmanager
async def raw(
    half: type[Any] | None = None, wire: type[Wire] = Wire, limit: int = LIMIT
) -> AsyncIterator[tuple[Link, trio.abc.Stream]]:
    """Open a link over a stream, with the other end of the stream."""
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with stream_link(wire(ours), max_message_size=limit) as link:
        yield link if half is None else with_halves(link, half), theirs
        await trio.aclose_forcefully(theirs)


@contextlib.asynccontextmanager
async def cut(half: type[Any] | None = None) -> AsyncIterator[tuple[Link, Callable[[], None]]]:
    """Open a link over a stream that can be cut."""
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with stream_link(wire := Wire(ours)) as link, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def read() -> None:
            async for _ in theirs:
                pass

        yield link if half is None else with_halves(link, half), wire.cut
        nursery.cancel_scope.cancel()


def over_bytes(*rules: str, **options: Any) -> Callable[[type[Any]], type[Any]]:
    """Register a transport that works but for one half of the link, or for the stream, that `raw` and `cut` open."""

    def register(part: type[Any]) -> type[Any]:
        assert part.__doc__ is not None
        is_wire = issubclass(part, Wire)
        opened = Transport(
            memory_link_pair,
            lambda: raw(wire=part, **options) if is_wire else raw(part, **options),
            (lambda: cut()) if is_wire else (lambda: cut(part)),
        )
        BROKEN[part.__doc__] = set(rules), opened
        return part

    return register


@over_bytes("one_byte")
class OneReadOneMessage(Wire):
    """takes each piece for whole messages"""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        piece = await super().receive_some()
        return piece if len(piece) > 100 else piece and piece + b"\n"


@over_bytes("one_chunk")
class FirstLine(Wire):
    """takes one message of each piece"""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        piece = await super().receive_some()
        return piece[: piece.find(b"\n") + 1] or piece


@over_bytes("garbage")
class EndsWithGarbage(Receives):
    """ends when it gets garbage, as if it were lost"""

    ended = False

    async def receive(self) -> SessionMessage:
        if self.ended:
            raise trio.EndOfChannel
        item = await super().receive()
        if isinstance(item.message, Malformed):
            self.ended = True
            return SessionMessage(TransportFailure(TransportError(item.message.reason)))
        return item


@over_bytes("garbage", "not_utf8", "too_large")
class ClosesWithGarbage(Receives):
    """ends when it gets garbage, as if that were the end"""

    async def receive(self) -> SessionMessage:
        item = await super().receive()
        if isinstance(item.message, Malformed):
            raise trio.EndOfChannel
        return item


@over_bytes("garbage", "not_utf8", "too_large")
class SkipsGarbage(Receives):
    """skips garbage without a word"""

    async def receive(self) -> SessionMessage:
        while isinstance((item := await super().receive()).message, Malformed):
            pass
        return item


@over_bytes("not_utf8")
class Replaces(Wire):
    """replaces what is not UTF-8"""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return (await super().receive_some()).replace(b"\xff\xfe", b"?")


@over_bytes("cut_off")
class Completes(Wire):
    """completes what was cut off"""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        piece = await super().receive_some()
        self.rest = (piece and not piece.endswith(b"\n")) or (not piece and getattr(self, "rest", False))
        if not piece and self.rest:
            self.rest = False
            return b'"]}}\n'
        return piece


@over_bytes("too_large", limit=2**30)
class NoLimit(Receives):
    """has no limit"""


@over_bytes("too_large")
class ReadsItAll(Wire):
    """holds the whole of a message before it looks at the limit"""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        held = bytearray()
        while piece := await super().receive_some():
            held += piece
            if held.endswith(b"\n"):
                break
        return bytes(held)


# --- a loss -----------------------------------------------------------------------------------------------------------


def is_loss(item: SessionMessage) -> bool:
    return isinstance(item.message, TransportFailure)


@over_bytes("loss")
class Swallows(Receives):
    """swallows the loss"""

    async def receive(self) -> SessionMessage:
        if is_loss(item := await super().receive()):
            raise trio.EndOfChannel
        return item


@over_bytes("loss_once")
class Twice(Receives):
    """reports the loss twice"""

    again: SessionMessage | None = None

    async def receive(self) -> SessionMessage:
        if self.again is not None:
            await trio.lowlevel.checkpoint()
            item, self.again = self.again, None
        elif is_loss(item := await super().receive()):
            self.again = item
        return item


@over_bytes("loss_cause")
class NoCause(Receives):
    """reports the loss without its cause"""

    async def receive(self) -> SessionMessage:
        item = await super().receive()
        return SessionMessage(TransportFailure(TransportError(""))) if is_loss(item) else item


@over_bytes("loss_ends")
class NoEnd(Receives):
    """waits on after the loss"""

    lost = False

    async def receive(self) -> SessionMessage:
        if self.lost:
            await trio.sleep_forever()
        self.lost = is_loss(item := await super().receive())
        return item


@over_bytes("loss_sending")
class WaitsOn(Sends):
    """waits to send after the loss"""

    async def send(self, value: SessionMessage) -> None:
        try:
            await super().send(value)
        except trio.BrokenResourceError:
            await trio.sleep_forever()  # it waits for room
