"""A TCP proxy that treats connections as networks do: it delays, stalls, breaks, resets and refuses them."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable

import attrs
import trio

PIECE = 65536
RESET = struct.pack("ii", 1, 0)  # l_onoff, l_linger: a close is a reset

FATES = {"calm": 50, "delay": 16, "stall": 6, "pieces": 4, "tear": 9, "reset": 9, "tear_up": 3, "refuse": 3}


@attrs.frozen
class Fate:
    """The fate of a connection: ``kind`` after ``after`` bytes of the answer, with waits of ``wait`` seconds."""

    kind: str
    after: int
    wait: float

    def waits(self, start: int, end: int) -> bool:
        """Whether the bytes from one to another are held up."""
        return self.kind == "delay" or (self.kind == "stall" and start <= self.after < end)


def draw(rng: random.Random) -> Fate:
    """Draw a fate: most connections survive, some lose their response at the head, in the middle or at the end."""
    kind = rng.choices(list(FATES), list(FATES.values()))[0]
    after = rng.choice((0, 1, 100, 300, 600, 1500, 5000, 60000))
    return Fate(kind, after, rng.uniform(0.001, 0.03) if kind == "delay" else rng.uniform(0.2, 2.0))


class Chaos:
    """A forwarder between two ports that injects faults; while ``calm`` it only forwards."""

    def __init__(self, name: str, target: Callable[[], int], seed: str) -> None:
        self.name, self._target = name, target
        self._rng = random.Random(f"{seed}-{name}")
        self.calm = False
        self.port = 0
        self.drawn: Counter[str] = Counter()
        self.resumed = 0  # streams for which a client came back

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        async with trio.open_nursery() as nursery:
            await trio.serve_listeners(self._serve, listeners, handler_nursery=nursery)

    async def _serve(self, near: trio.SocketStream) -> None:
        fate = Fate("calm", 0, 0) if self.calm else draw(self._rng)
        self.drawn[fate.kind] += 1
        try:
            with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                if fate.kind == "refuse":
                    self._abort(near)
                    return
                far = await trio.open_tcp_stream("127.0.0.1", self._target())
                async with far:
                    await self._pass_on(near, far, fate)
        finally:
            await trio.aclose_forcefully(near)

    async def _pass_on(self, near: trio.SocketStream, far: trio.SocketStream, fate: Fate) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._one_way, near, far, fate if fate.kind == "tear_up" else None, nursery)
            nursery.start_soon(self._one_way, far, near, fate if fate.kind != "tear_up" else None, nursery)

    async def _one_way(
        self, source: trio.SocketStream, sink: trio.SocketStream, fate: Fate | None, nursery: trio.Nursery
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(PIECE):
                self.resumed += data.startswith(b"GET ") and b"last-event-id:" in data.lower()
                ends = fate and fate.kind in ("tear", "tear_up", "reset") and passed + len(data) > fate.after
                if ends and fate:
                    await sink.send_all(data[: fate.after - passed])
                    if fate.kind == "reset":
                        self._abort(sink)
                        self._abort(source)
                    break
                await self._send(sink, data, fate, passed)
                passed += len(data)
            else:
                await sink.send_eof()
                return
        nursery.cancel_scope.cancel()

    async def _send(self, sink: trio.SocketStream, data: bytes, fate: Fate | None, passed: int) -> None:
        if fate is not None and fate.waits(passed, passed + len(data)):
            await trio.sleep(fate.wait)
        elif fate is not None and fate.kind == "pieces" and passed < 2000:
            for start in range(0, min(len(data), 2000), 50):
                await sink.send_all(data[start : start + 50])
                await trio.lowlevel.checkpoint()
            data = data[2000:]
        await sink.send_all(data)

    def _abort(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        stream.socket.close()
