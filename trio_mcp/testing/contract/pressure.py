"""Rules of the transport contract about load: both directions at once, and a reader that does not read."""

from __future__ import annotations

from typing import Final

import trio

from trio_mcp.jsonrpc.messages import Incoming, Request, SessionMessage
from trio_mcp.testing.contract.rule import rule
from trio_mcp.testing.contract.stage import QUIET, End, Stage, number_of

__all__ = ["Stuck", "ways"]

PIECE: Final = 32 * 1024
"""The number of characters in each of the messages that are sent to create load. An arbitrary choice."""

LOAD: Final = 256
"""The number of load messages in each direction: 8 MiB in total, which is more than sockets buffer."""


@rule("Both directions carry load at the same time, and neither waits for the other")
async def load(stage: Stage) -> None:
    async with stage.pair() as (client, server), trio.open_nursery() as nursery:
        # There is room for all the requests: the server must be able to read on while its responses wait.
        waiting, requests = trio.open_memory_channel[Request](LOAD)

        async def ask() -> None:
            for _ in range(LOAD):
                await client.send(stage.call("x" * PIECE))

        async def serve() -> None:
            # The requests are taken one by one: if only a few may be open at once, the next one arrives only after a
            # response.
            for _ in range(LOAD):
                for message in await server.collect(1):
                    if isinstance(message, Request):
                        waiting.send_nowait(message)
            waiting.close()

        async def answer() -> None:
            async for request in requests:
                await server.send(stage.answer(request, "y" * PIECE))

        async def push() -> None:
            for _ in range(LOAD):
                await server.send(stage.note("z" * PIECE))

        nursery.start_soon(ask)
        nursery.start_soon(serve)
        nursery.start_soon(answer)
        due = LOAD
        if not {"calls_only", "no_backpressure"} & set(stage.traits):
            nursery.start_soon(push)
            due += LOAD
        if len(arrived := await client.collect(due)) < due:
            raise stage.broken(f"{len(arrived)} of {due} messages reached the client, and then no more arrived")


class Stuck:
    """One direction of a connection in which the reader does not read, so that the writer has to wait.

    Attributes:
        sent: The messages for which ``send`` has returned.
    """

    def __init__(self, stage: Stage, source: End) -> None:
        self.sent: list[Incoming] = []
        self._stage = stage
        self._source = source
        self._stop = False
        self._ended = trio.Event()
        self._too_many = False

    async def fill(self, nursery: trio.Nursery) -> bool:
        """Send messages until a send has to wait; return False if none did within `Stage.max_waiting` bytes."""
        nursery.start_soon(self._send)
        count = -1
        # `settled` is not enough: while data passes through the kernel, all tasks wait although the sender isn't stuck.
        while count != len(self.sent):
            count = len(self.sent)
            await trio.sleep(QUIET)
        return not self._too_many

    async def _send(self) -> None:
        try:
            while not (self._stop or self._too_many):
                message = self._stage.note("x" * PIECE)
                await self._source.link.write.send(SessionMessage(message))
                self.sent.append(message)
                # Without this limit, a transport without backpressure would take all the memory of the machine.
                self._too_many = len(self.sent) * PIECE > self._stage.max_waiting
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the block has been left
        finally:
            self._ended.set()

    async def gives_up(self, target: End) -> None:
        """Wait for the cancelled send to end; if it does not, record that the rule is broken."""
        # The wait is shielded, because the scope around this call is the one that was cancelled to make the send give
        # up.
        with trio.CancelScope(shield=True):
            with trio.move_on_after(self._stage.timeout):
                await self._ended.wait()
            if not self._ended.is_set():
                self._stage.broken(f"a waiting send of the {self._source.name} did not react to its cancellation")
                # A send that ignores its cancellation, and with it the nursery, ends only once its message is read.
                await self.drain(target)

    async def drain(self, target: End) -> list[Incoming]:
        """Read until everything that was sent has arrived or the time is up, and return the missing messages."""
        # The flag is set before the first read: reading makes room, which the sender must not fill again.
        self._stop = True
        arrived: set[int | None] = set()

        async def read() -> None:
            while taken := await target.collect(1):
                arrived.update(map(number_of, taken))

        def missing() -> list[Incoming]:
            return [message for message in self.sent if number_of(message) not in arrived]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            with self._stage.within(f"a send of the {self._source.name} to a reader that reads again"):
                await self._ended.wait()
            with trio.move_on_after(self._stage.timeout):
                pause = 0.01
                while missing():
                    await trio.sleep(pause)
                    pause *= 2
            nursery.cancel_scope.cancel()
        return missing()


def ways(stage: Stage, client: End, server: End) -> list[tuple[End, End]]:
    """Return a pair of sender and receiver for each direction in which messages can be sent at any time."""
    ways = [(client, server), (server, client)]
    return ways[:1] if "calls_only" in stage.traits else ways


@rule("A reader that does not read makes the writer wait, after a bounded number of bytes", unless="no_backpressure")
async def bounded(stage: Stage) -> None:
    async with stage.pair() as ends, trio.open_nursery() as nursery:
        for source, target in ways(stage, *ends):
            if not await (stuck := Stuck(stage, source)).fill(nursery):
                text = f"the {source.name} could send {len(stuck.sent) * PIECE} bytes to a reader that does not read"
                raise stage.broken(f"{text}; max_waiting={stage.max_waiting}")
            await stuck.drain(target)


@rule("A writer that had to wait for its reader goes on when it reads, and nothing is lost")
async def resumed(stage: Stage) -> None:
    async with stage.pair() as ends:
        for source, target in ways(stage, *ends):
            async with trio.open_nursery() as nursery:
                waited = await (stuck := Stuck(stage, source)).fill(nursery)
                if (missing := await stuck.drain(target)) and waited:
                    raise stage.broken(f"{len(missing)} of {len(stuck.sent)} messages did not reach the {target.name}")


@rule("A direction that waits for its reader does not hold up the other one", unless="calls_only")
async def independent(stage: Stage) -> None:
    async with stage.pair() as ends:
        for source, target in ways(stage, *ends):
            async with trio.open_nursery() as nursery:
                waits = await (stuck := Stuck(stage, source)).fill(nursery)
                # If nothing waits, the transport has no backpressure, which the rule `bounded` checks.
                for _ in range(8 if waits else 0):
                    await target.send(message := stage.note())
                    await source.take(message, f"while the {source.name} waits to send")
                await stuck.drain(target)
