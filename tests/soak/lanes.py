"""The lanes: each is a transport, an era and a way there, and has clients that come, call and go."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from tests.soak.calls import MAX_WAIT, READING, TOOLS, Call, Kind, ask, listen, perform
from tests.soak.record import Record
from tests.soak.tools import colour_of
from trio_mcp import Answers, Backoff, Client, ClientGroup, McpError, RequestTimeout, SessionOptions, TransportError
from trio_mcp.errors import RemoteProtocolError


@attrs.define(kw_only=True)
class Lane:
    """A way to a server.

    Attributes:
        name: Of the lane.
        target: Makes what a `Client` takes; or is an async context manager around it.
        mode: Of the client.
        tears: Whether connections are torn on the way, or the server is restarted.
        breaks: Whether the client's own end breaks connections and loses calls, also in the calm.
        without: The kinds of calls that can't be made here.
        calls: How many calls a client makes in its life, at most.
        members: For a group: the lanes of its servers.
    """

    name: str
    target: Callable[[], Any] | None = None
    mode: str = "auto"
    tears: bool = False
    breaks: bool = False
    without: Collection[Kind] = ()
    calls: int = 60
    workers: int = 1
    members: dict[str, Lane] = attrs.Factory(dict)

    @property
    def kinds(self) -> dict[Kind, int]:
        table = TOOLS if self.members else {**TOOLS, **READING}
        return {kind: weight for kind, weight in table.items() if kind not in self.without}


async def answer(params: Any) -> dict[str, str]:
    """Answer a tool's question, which names its call."""
    found = re.search(r"for (\S+)\?", params.message)
    return {"colour": colour_of(found[1] if found else "")}


class Load:
    """Clients that call until told to stop.

    Args:
        record: The record of all outcomes.
        rate: Calls a second, in all lanes together.
        seed: The seed of all random choices.
    """

    def __init__(self, record: Record, rate: float, seed: int) -> None:
        self._record, self._rate, self._seed = record, rate, seed
        self._number = 0
        self._stopping = False
        self.notes: dict[str, int] = {}

    def next_id(self, lane: str) -> str:
        self._number += 1
        return f"{lane}-{self._number}"

    async def run(self, lanes: list[Lane], seconds: float) -> None:
        """Apply the load for this many seconds, and wait until every client has left."""
        self._stopping = False
        workers = sum(lane.workers for lane in lanes)
        with trio.move_on_after(seconds + 90) as scope:
            async with trio.open_nursery() as nursery:
                for lane in lanes:
                    for number in range(lane.workers):
                        rng = random.Random(f"{self._seed}-{lane.name}-{number}-{self._number}")
                        nursery.start_soon(self._worker, lane, rng, workers / self._rate)
                await trio.sleep(seconds)
                self._stopping = True
        if scope.cancelled_caught:
            self._record.violation("hung", note="clients did not end within 90 seconds")

    async def _worker(self, lane: Lane, rng: random.Random, pause: float) -> None:
        while not self._stopping:
            fate = rng.random()
            with trio.CancelScope() as scope:
                if fate < 0.1:  # the client's whole block is given up somewhere on the way
                    scope.deadline = trio.current_time() + rng.uniform(0, 10)
                try:
                    await self._life(lane, rng, pause)
                    self._record.lives[lane.name, "ended"] += 1
                except (TransportError, RequestTimeout, McpError) as exc:
                    self._record.lives[lane.name, "not connected"] += 1
                    note = f"{type(exc).__name__}: {exc}"
                    if not lane.tears:
                        self._record.violation("not connected", lane=lane.name, note=note)
                    await trio.sleep(pause)
                except Exception as exc:
                    self._record.violation("a client failed", lane=lane.name, note=f"{type(exc).__name__}: {exc}")
                    await trio.sleep(pause)
            if scope.cancelled_caught:
                self._record.lives[lane.name, "cancelled"] += 1

    async def _life(self, lane: Lane, rng: random.Random, pause: float) -> None:
        life = self._group_life if lane.members else self._client_life
        async with life(lane, rng) as make_call:
            for _ in range(rng.randint(1, lane.calls)):
                at_once = rng.choice((1, 1, 1, 1, 5))
                await trio.sleep(rng.expovariate(1 / (pause * at_once)) if not self._stopping else 0)
                if self._stopping:
                    return
                gone = False

                async def one() -> None:
                    nonlocal gone
                    gone = await make_call() or gone

                async with trio.open_nursery() as nursery:
                    for _ in range(at_once):
                        nursery.start_soon(one)
                if gone and rng.random() < 0.5:
                    return

    @asynccontextmanager
    async def _client_life(self, lane: Lane, rng: random.Random) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
        async with self.client(lane) as client:
            kinds, weights = list(lane.kinds), list(lane.kinds.values())

            async def make_call() -> bool:
                call = Call(self.next_id(lane.name), client, client.call_tool, rng)
                kind = rng.choices(kinds, weights)[0]
                return await perform(kind, call, lane.name, self._record, tears=lane.tears, breaks=lane.breaks)

            yield make_call

    @asynccontextmanager
    async def client(self, lane: Lane) -> AsyncIterator[Client]:
        """Enter a client of a lane."""
        assert lane.target is not None
        target = lane.target()
        if hasattr(target, "__aenter__"):
            async with target as made, Client(made, **self._arguments(lane)) as client:
                yield client
        else:
            async with Client(target, **self._arguments(lane)) as client:
                yield client

    def _arguments(self, lane: Lane) -> dict[str, Any]:
        def on_error(exc: RemoteProtocolError) -> None:
            note = f"on_error in {lane.name}: {str(exc)[:150]}"
            self.notes[note] = self.notes.get(note, 0) + 1
            if not lane.tears:
                self._record.violation("on_error", lane=lane.name, note=str(exc))

        options = SessionOptions(on_error=on_error)
        return {
            "mode": lane.mode,
            "answers": Answers(elicitation=answer),
            "log_level": "info",
            "on_log": id,
            "options": options,
        }

    @asynccontextmanager
    async def _group_life(self, lane: Lane, rng: random.Random) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
        async with self.group(lane) as group:
            kinds, weights = list(lane.kinds), list(lane.kinds.values())

            async def make_call() -> bool:
                server = rng.choice(list(lane.members))
                member = lane.members[server]
                kind = rng.choices(kinds, weights)[0]
                if kind in member.without:
                    return False
                call = Call(self.next_id(lane.name), None, functools.partial(in_group, group, server), rng)
                await perform(kind, call, lane.name, self._record, tears=member.tears)
                return False

            yield make_call

    @asynccontextmanager
    async def group(self, lane: Lane) -> AsyncIterator[ClientGroup]:
        """Enter a group of the lanes' servers."""
        targets: dict[str, Any] = {name: member.target() for name, member in lane.members.items() if member.target}
        per_server = {name: self._arguments(member) for name, member in lane.members.items()}
        backoff = Backoff(first=0.2, longest=2, attempts=None)
        async with ClientGroup(
            targets, require="none", max_wait=MAX_WAIT, reconnect=backoff, per_server=per_server
        ) as group:
            yield group

    async def calm(self, lane: Lane, calls: int) -> None:
        """Make some calls that must succeed, whatever happened before."""
        rng = random.Random(0)
        quiet = attrs.evolve(
            lane, tears=lane.breaks, members={k: attrs.evolve(v, tears=False) for k, v in lane.members.items()}
        )
        quiet.without = {*quiet.without, listen, *({ask} if quiet.members else ())}
        life = self._group_life if quiet.members else self._client_life
        for attempt in range(3 if lane.breaks else 1, 0, -1):
            try:
                with trio.fail_after(120):
                    async with life(quiet, rng) as make_call:
                        for _ in range(calls):
                            await make_call()
                return
            except Exception as exc:
                if attempt == 1:
                    note = f"{type(exc).__name__}: {exc}"
                    self._record.violation("not reachable in the calm", lane=lane.name, note=note)


async def in_group(group: ClientGroup, server: str, name: str, arguments: dict[str, Any], **options: Any) -> Any:
    return await group.call_tool(group.join(server, name), arguments, **options)
