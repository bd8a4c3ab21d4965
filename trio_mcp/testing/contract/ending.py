"""Rules of the transport contract about the end of a connection: an orderly close from either side, or a loss."""

from __future__ import annotations

import itertools
from typing import Any

import trio

from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.messages import Incoming, TransportFailure
from trio_mcp.link import BUFFER
from trio_mcp.testing.contract.pressure import PIECE, ways
from trio_mcp.testing.contract.rule import rule
from trio_mcp.testing.contract.stage import End, Stage, number_of, settled, shown

__all__: list[str] = []


# --- an orderly close -------------------------------------------------------------------------------------------------


@rule("Everything that was sent before `write` was closed arrives, however much it is and whichever side closes")
async def flushed(stage: Stage) -> None:
    # Each case has its own connection, since a closed one can't be used again. The counts go beyond a full buffer,
    # where a close may overtake the messages that wait.
    for way, count in itertools.product(range(2), (1, 2, BUFFER, BUFFER + 1, 3 * BUFFER)):
        async with stage.pair() as ends:
            for source, target in ways(stage, *ends)[way : way + 1]:
                sent = [stage.note("x" * (n % 7 * 1000)) for n in range(count)]

                async def send(source: End = source, sent: list[Any] = sent) -> None:
                    await source.send_all(sent)
                    await source.close()

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send)
                    arrived = set(map(number_of, await target.collect(count)))
                lost = [message for message in sent if number_of(message) not in arrived]
                if lost:
                    text = f"{len(lost)} of {count} messages that the {source.name} sent before it closed were lost"
                    raise stage.broken(f"{text}, such as {shown(lost[0])}")


@rule("An end may close while the other still sends: what it has sent still arrives, and no send hangs")
async def crossing(stage: Stage) -> None:
    for way, count in itertools.product(range(2), (0, 1, 8, BUFFER // 2)):
        async with stage.pair() as ends, trio.open_nursery() as nursery:
            for source, target in ways(stage, *ends)[way : way + 1]:
                if "calls_only" not in stage.traits or target is ends[0]:
                    nursery.start_soon(_push, stage, target)
                    # The end that closes still reads: otherwise the other end would wait for room, and this would test
                    # backpressure.
                    nursery.start_soon(source.ends)
                sent = [stage.note() for _ in range(count)]
                await source.send_all(sent)
                await source.close()
                if len(arrived := await target.collect(count)) < count:
                    text = f"the {source.name} closed while the {target.name} was sending"
                    raise stage.broken(
                        f"{text}: {count - len(arrived)} of {count} messages from the {source.name} were lost"
                    )
            nursery.cancel_scope.cancel()


async def _push(stage: Stage, end: End) -> None:
    """Send more messages than the buffers can take, but stop once a send raises an exception."""
    # The number is bounded: with endless sends, a clock that jumps when nothing happens would stand still.
    for _ in range(4 * BUFFER):
        if await end.attempt("write", "while the other end closes") is not None:
            return


@rule(
    "When one end has closed `write`, the other's `read` ends: the server's without a `TransportFailure`, the client's "
    "after one at most",
    unless="no_end",
)
async def end(stage: Stage) -> None:
    for way in range(2):
        async with stage.pair() as ends:
            await stage.talk(*ends)
            source, target = ends if way == 0 else ends[::-1]
            await source.close()
            # A client may count a server that ends as lost, because a server process should not exit first.
            rest = await target.rest()
            if way == 0 or not all(_is_loss(message) for message in rest) or len(rest) > 1:
                for message in rest:
                    text = f"the {source.name} closed `write`, and then the {target.name} got {shown(message)}"
                    raise stage.broken(text)


@rule("Closing works in any order and any number of times; what is closed raises `ClosedResourceError`")
async def closed(stage: Stage) -> None:
    for order in itertools.permutations(range(4)):
        async with stage.pair() as (client, server):
            halves = [client.link.read, client.link.write, server.link.read, server.link.write]
            for index in order:
                for _ in range(2):
                    with stage.within("aclose()"):
                        # Closing again has to succeed silently, as `trio.abc.AsyncResource` requires.
                        await halves[index].aclose()
            for each, half in itertools.product((client, server), ("read", "write")):
                raised = await each.attempt(half, "after its own close")
                if not isinstance(raised, trio.ClosedResourceError):
                    raise stage.broken(
                        f"a use of the {each.name}'s `{half}` after its own close ended with {raised!r} instead of "
                        "ClosedResourceError"
                    )


@rule("A task that waits in `receive` wakes when another task closes `read`, with `ClosedResourceError`")
async def waking(stage: Stage) -> None:
    for way in range(2):
        async with stage.pair() as ends:
            each = ends[way]
            raised: list[BaseException | None] = []

            async def wait(each: End = each, raised: list[BaseException | None] = raised) -> None:
                raised.append(await each.attempt("read", "that was waiting when the channel was closed"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                # The close comes once the receive waits, because the rule `closed` covers a receive that begins after
                # the close.
                await settled()
                await each.link.read.aclose()
            if not isinstance(raised[0], trio.ClosedResourceError):
                raise stage.broken(
                    f"the {each.name}'s receive, which was waiting when the channel was closed, ended with "
                    f"{raised[0]!r} instead of ClosedResourceError"
                )


@rule("Closing `write` leaves `read` alone: what the other end had sent before is still read")
async def half_close(stage: Stage) -> None:
    async with stage.pair() as (client, server):
        requests = [stage.call() for _ in range(8)]
        await client.send_all(requests)
        for _ in requests:
            await server.receive()
        responses = [stage.answer(request) for request in requests]
        await server.send_all(responses)
        # Over HTTP the close may make the other requests fail, but responses that have arrived can still be read.
        first = await client.receive()
        # The cushion is in real time: data may still be in the kernel while every task waits.
        await settled(0.05)
        await client.close()
        arrived = {number_of(message) for message in [first, *await client.collect(len(responses) - 1)]}
        if lost := [message for message in responses if number_of(message) not in arrived]:
            text = f"the client closed `write`, and {len(lost)} of {len(responses)} messages for it were lost"
            raise stage.broken(f"{text}, such as {shown(lost[0])}")


# --- a loss -----------------------------------------------------------------------------------------------------------


def _is_loss(message: Incoming) -> bool:
    return isinstance(message, TransportFailure) and message.request_id is None


async def _after_a_cut(stage: Stage) -> list[Incoming]:
    async with stage.cut() as (link, cut):
        await link.send(stage.note())
        await cut()
        # `rest` would report a missing end, which is left to `loss_ends`, so that each fault breaks one rule.
        return await link.collect(BUFFER)


@rule("A connection that is lost is reported as a `TransportFailure`, and not as an orderly end", needs="cut")
async def loss(stage: Stage) -> None:
    if not any(map(_is_loss, arrived := await _after_a_cut(stage))):
        raise stage.broken(
            f"the connection was cut, and read got {[shown(each) for each in arrived]}, but no TransportFailure"
        )


@rule("The loss is reported only once", needs="cut")
async def loss_once(stage: Stage) -> None:
    if (count := sum(map(_is_loss, await _after_a_cut(stage)))) > 1:
        raise stage.broken(f"the connection was cut, and read got {count} TransportFailures that report the loss")


@rule("The loss is reported with its cause: a `TransportError` that says what happened", needs="cut")
async def loss_cause(stage: Stage) -> None:
    for message in await _after_a_cut(stage):
        if isinstance(message, TransportFailure) and not (
            isinstance(message.error, TransportError) and str(message.error)
        ):
            raise stage.broken(
                f"the connection was cut, but the failure holds no TransportError with a text: {message.error!r}"
            )


@rule("After the loss has been reported, `read` ends", needs="cut")
async def loss_ends(stage: Stage) -> None:
    async with stage.cut() as (link, cut):
        await cut()
        rest = await link.rest()
        # Messages that were in transit when the connection was lost may still come first.
        after = list(itertools.dropwhile(lambda each: not _is_loss(each), rest))[1:]
        if others := [each for each in after if not _is_loss(each)]:
            raise stage.broken(f"after the TransportFailure, read got {shown(others[0])}")


@rule(
    "After the loss, a send raises `BrokenResourceError`, as soon as the buffers are full, and never waits", needs="cut"
)
async def loss_sending(stage: Stage) -> None:
    async with stage.cut() as (link, cut):
        await cut()
        # The channel is read to its end, so that the transport has noticed the loss: before that, a send may rightly
        # succeed.
        await link.collect(BUFFER)
        for _ in range(stage.max_waiting // PIECE):
            if await link.attempt("write", "after a loss", "x" * PIECE) is not None:
                return
        raise stage.broken("after the connection was cut, sends went on as if nothing had happened")
