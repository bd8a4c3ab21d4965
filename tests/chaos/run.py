"""A run: what there is, the load, what happens meanwhile, and what is left at the end."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import trio

from tests.chaos.events import Event, Events, Shared
from tests.chaos.front import before
from tests.chaos.ledger import Entry, entries, kept
from tests.chaos.load import LEGACY, MODERN, TIMEOUT, Listener, Load, Route
from tests.chaos.processes import Served
from tests.chaos.shared_engine import SharedEngine
from tests.chaos.shared_file import SharedFile
from tests.chaos.streams import StreamLoad
from tests.chaos.tools import LIST, MEMBER_LEASE
from trio_mcp import Client, TrioMcpError
from trio_mcp.stores import KeyRing

TOPICS = 10
EVERY = 0.5
"""Seconds between two changes of a topic, in all. Chosen."""

HEARD = 4.0
"""Seconds within which a change is heard without wake-ups: 2 until a look, 1 after a failed one, and a margin."""

TAKEN_OVER = MEMBER_LEASE + 4.0
"""Seconds after which nothing is left of a process that has died: its lease, 3 until one looks, and a margin."""

WARM = 3.0
QUIET = 4.0
"""Seconds of load without events, at the beginning and at the end. Chosen."""

OF_STREAMS = 0.1
"""The share of the calls that belong to sessions whose streams break, beside all others. Chosen."""


@attrs.frozen(kw_only=True)
class Plan:
    """The options of the command line."""

    stores: str
    minutes: float
    seed: int
    out: Path
    rate: float
    listeners: int
    pause: float
    plant: str | None = None


@attrs.define
class Seen:
    """What a run has left, for the judge.

    Attributes:
        plan: Its plan.
        load: The calls.
        streams: The sessions whose streams break.
        listeners: The listeners.
        events: What happened.
        deaths: When each process was killed, by its id.
        said: What the supervisor and its children have printed.
        ledger: What the processes have written down.
        states: The updates that the state of each user has at the end.
        begun: When the load began.
        ended: When it ended.
        left: What there still was when all had been told to end: processes, files and connections.
    """

    plan: Plan
    load: Load
    streams: StreamLoad
    listeners: list[Listener] = attrs.Factory(list)
    events: list[Event] = attrs.Factory(list)
    deaths: dict[int, float] = attrs.Factory(dict)
    said: list[tuple[float, str]] = attrs.Factory(list)
    ledger: dict[str, list[Entry]] = attrs.Factory(dict)
    states: dict[str, list[str]] = attrs.Factory(dict)
    begun: float = 0.0
    ended: float = 0.0
    left: list[str] = attrs.Factory(list)


STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[Shared]]] = {
    "sqlite": SharedFile.below,
    "valkey": SharedEngine.below,
}
"""What the processes may share."""


async def run(plan: Plan) -> Seen:
    """Run it all, and return what was seen."""
    KeyRing.add(plan.out / "chaos.keys")
    async with STORES[plan.stores](plan.out) as shared:
        served = Served(plan.out, shared.settings, plan.plant)
        try:
            seen = await _run(plan, shared, served)
        finally:
            left = served.kill_all()
        seen.left = [
            *(await trio.to_thread.run_sync(shared.left)),
            *(f"a connection: {each}" for each in served.connections()),
            *(f"the process {pid}" for pid in left),
        ]
    return seen


async def _run(plan: Plan, shared: Shared, served: Served) -> Seen:
    async with kept(plan.out):
        with before(served.port, plan.out / "nginx.log") as (nginx_kept, nginx_anew):
            direct = f"http://127.0.0.1:{served.port}/mcp"
            routes = [
                Route("direct-kept", direct, True, 30),
                Route("direct-anew", direct, False, 15),
                Route("nginx-kept", nginx_kept, True, 30),
                Route("nginx-anew", nginx_anew, True, 25),
                Route("session-direct", direct, True, 15, LEGACY),
                Route("session-nginx", nginx_anew, True, 15, LEGACY),
            ]
            streams = StreamLoad([direct, nginx_anew], plan.rate * OF_STREAMS, f"streams-{plan.seed}")
            load = Load(routes, plan.rate, f"{plan.seed}")
            seen = Seen(plan, load, streams, deaths=served.deaths, said=served.said)
            async with trio.open_nursery() as nursery:
                events = Events(served, shared, plan.out, nursery, f"{plan.seed}", plan.pause)
                seen.events = events.all
                try:
                    await served.start_supervisor(nursery)
                    await served.start_worker(nursery)
                    await _under_load(seen, events, routes)
                    # The others end what a dead process served.
                    last = max((event.ended for event in events.all), default=0.0)
                    await trio.sleep(max(0.0, last + TAKEN_OVER - time.monotonic()))
                    seen.states = {route.name: await _written(route) for route in routes}
                finally:
                    await served.end()
                    nursery.cancel_scope.cancel()
    seen.ledger = entries(plan.out)
    return seen


async def _under_load(seen: Seen, events: Events, routes: list[Route]) -> None:
    plan = seen.plan
    stop = trio.Event()
    async with (
        routes[0].client() as direct,
        routes[2].client() as proxied,
        routes[0].client() as touching,
        seen.streams.followed(),
        trio.open_nursery() as around,
    ):
        clients = [direct, proxied]
        seen.listeners = [Listener(number % TOPICS) for number in range(plan.listeners)]
        for number, each in enumerate(seen.listeners):
            around.start_soon(each.run, clients[number // TOPICS % 2])
        seen.listeners += [listener for session in seen.streams.sessions for listener in session.listeners]
        around.start_soon(_tell, seen)
        async with trio.open_nursery() as loads:
            seen.begun = time.monotonic()
            await loads.start(seen.load.run, stop)
            loads.start_soon(seen.streams.run, stop)
            loads.start_soon(_touch_now_and_then, touching, random.Random(plan.seed), stop)
            await trio.sleep(WARM)
            await events.run(plan.minutes * 60)
            await trio.sleep(QUIET)
            stop.set()
        # The last change of each topic, of which each listener must hear.
        for number in range(LIST, TOPICS):
            await _touch(touching, number)
        await trio.sleep(HEARD)
        seen.ended = time.monotonic()
        around.cancel_scope.cancel()


async def _touch(client: Client, number: int) -> None:
    await client.call_tool("touch", {"number": number}, timeout=TIMEOUT)


async def _touch_now_and_then(client: Client, rng: random.Random, stop: trio.Event) -> None:
    """Change one topic after the other, on one connection: the other processes do not look because of a change."""
    while not stop.is_set():
        with contextlib.suppress(TrioMcpError):  # the ledger says whether it was done
            await _touch(client, rng.randrange(LIST, TOPICS))
        await trio.sleep(EVERY)


async def _written(route: Route) -> list[str]:
    async with Client(route.target(), mode=MODERN) as client:
        updates: list[str] = (await client.call_tool("written", timeout=TIMEOUT)).data
        return updates


async def _tell(seen: Seen) -> None:
    while True:
        await trio.sleep(10)
        outcomes = Counter(attempt.outcome for attempt in seen.load.attempts)
        passed, waiting = time.monotonic() - seen.begun, len(seen.load.under_way)
        print(f"{passed:6.0f} s: {dict(outcomes)}, {waiting} under way, {len(seen.events)} events", flush=True)
