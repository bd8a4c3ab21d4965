"""A thousand listeners to a server that changes all the time: ``python -m benchmarks.load.listeners SECONDS``.

Everything runs in one process, which prints one JSON object. It fails if a listener has missed the last change of its
topic.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import trio

from benchmarks.load.wire import WrongAnswer
from trio_mcp import Client, Server
from trio_mcp.jsonrpc.messages import Notification, Request
from trio_mcp.low_level import SessionMessage, memory_link_pair
from trio_mcp.server.base_server import core_of

LINKS = 10
LISTENERS = 1000
RATE = 10_000  # changes announced per second
TOOLS = "notifications/tools/list_changed"
URIS = [f"doc://{number}" for number in range(200)]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
PAUSE = 0.005  # seconds between the unrelated calls

server = Server("busy")
server.add_resource("doc://{number}", lambda number: number, name="doc")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


class Watch:
    """The times at which listeners were last told of a change, and at which their topics last changed."""

    def __init__(self) -> None:
        self.changed: dict[str, float] = {}
        self.told: dict[tuple[int, int], float] = {}
        self.wanted: dict[tuple[int, int], str] = {}
        self.notifications = 0

    def missed(self) -> tuple[int, int] | None:
        """Return a listener that has not been told of the last change of its topic, or None."""
        for listener, topic in self.wanted.items():
            if self.told.get(listener, 0.0) < self.changed.get(topic, 0.0):
                return listener
        return None

    def worst_delay(self) -> float:
        """Return the seconds from the last change to its notification, for the listener that waited longest."""
        if (listener := self.missed()) is not None:
            raise WrongAnswer(f"listener {listener} has missed the last change of {self.wanted[listener]}")
        changed = [(listener, topic) for listener, topic in self.wanted.items() if topic in self.changed]
        return max(self.told[listener] - self.changed[topic] for listener, topic in changed)


def filter_of(number: int) -> tuple[str, dict[str, Any]]:
    """Return a listener's topic and filter: half have the tools, a quarter 20 of `URIS`, a quarter any of them."""
    if number % 2:
        return TOOLS, {"toolsListChanged": True}
    uri = URIS[number // 2 % 40 if number % 4 else number // 4 % len(URIS)]
    return uri, {"resourceSubscriptions": [uri]}


async def read_all(read: trio.abc.ReceiveChannel[SessionMessage], link: int, watch: Watch) -> None:
    """Read a client's notifications as fast as possible, and record when they came."""
    async for item in read:
        message = item.message
        if isinstance(message, Notification) and message.params and "acknowledged" not in message.method:
            number = message.params["_meta"]["io.modelcontextprotocol/subscriptionId"]
            watch.told[link, number] = time.perf_counter()
            watch.notifications += 1


async def change(watch: Watch, seconds: float) -> float:
    """Announce `RATE` changes per second. Return how many per second there actually were."""
    started = time.perf_counter()
    stop = started + seconds
    count = 0
    while (now := time.perf_counter()) < stop:
        for _ in range(int((now - started) * RATE) - count):
            count += 1
            if count % 4:
                topic = URIS[(count // 4 * 3 + count % 4) % len(URIS)]
                watch.changed[topic] = time.perf_counter()
                server.notify_resource_updated(topic)
            else:
                watch.changed[TOOLS] = time.perf_counter()
                server.notify_tools_changed()
        await trio.sleep(0.001)
    return count / (time.perf_counter() - started)


async def call_along(client: Client, delays: list[float]) -> None:
    """Make calls that have nothing to do with the changes, and record how long they take."""
    while True:
        await trio.sleep(PAUSE)
        started = time.perf_counter()
        if (await client.call_tool("add", {"a": 1, "b": 2})).data != 3:
            raise WrongAnswer("add(1, 2) is not 3")
        delays.append(time.perf_counter() - started)


async def calls_for(client: Client, seconds: float) -> list[float]:
    delays: list[float] = []
    with trio.move_on_after(seconds):
        await call_along(client, delays)
    return delays


def memory(entry: str) -> float:
    """Return a memory figure of this process in MiB; 0 on platforms without /proc."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(entry + ":"))


async def listen(link: Any, number: int, wanted: dict[str, Any]) -> None:
    params = {"notifications": wanted, "_meta": META}
    await link.write.send(SessionMessage(Request(number, "subscriptions/listen", params)))


async def main(seconds: float) -> dict[str, float]:
    watch = Watch()
    delays: list[float] = []
    async with core_of(server).open_run() as run, trio.open_nursery() as links, trio.open_nursery() as nursery:
        ends = []
        for number in range(LINKS + 2):
            ours, theirs = await links.start(open_link)
            links.start_soon(run.serve_link, theirs)
            ends.append(ours)
            if number < LINKS:
                nursery.start_soon(read_all, ours.read, number, watch)
        for number in range(LISTENERS):
            topic, wanted = filter_of(number)
            watch.wanted[number % LINKS, number] = topic
            await listen(ends[number % LINKS], number, wanted)
        # The stalled client: it listens to everything, and never reads.
        await listen(ends[LINKS], 0, {"toolsListChanged": True, "resourceSubscriptions": URIS})
        await trio.sleep(0.2)
        client = await links.start(connect, ends[LINKS + 1])
        idle = await calls_for(client, max(0.1, seconds / 4))
        before = memory("VmRSS")
        nursery.start_soon(call_along, client, delays)
        rate = await change(watch, seconds)
        delivered = watch.notifications / seconds
        peak = memory("VmHWM")
        for _ in range(100):  # a busy machine may need long; a missed change is found below
            if watch.missed():
                await trio.sleep(0.05)
        worst = watch.worst_delay()
        nursery.cancel_scope.cancel()
        links.cancel_scope.cancel()
    return {
        "changes": rate,
        "notifications": delivered,
        "delay": worst * 1000,
        "growth": max(0.0, peak - before),
        "call": statistics.median(delays) * 1000,
        "worst call": max(delays) * 1000,
        "idle call": statistics.median(idle) * 1000,
    }


async def connect(link: Any, task_status: trio.TaskStatus[Client]) -> None:
    async with Client(lambda: contextlib.nullcontext(link)) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def open_link(task_status: trio.TaskStatus[Any]) -> None:
    async with memory_link_pair() as pair:
        task_status.started(pair)
        await trio.sleep_forever()


if __name__ == "__main__":
    print(json.dumps(trio.run(main, float(sys.argv[1]))))
