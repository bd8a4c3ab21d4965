"""The content of an engine under a prefix of `ValkeyStores`, and whether the engine is fit for use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import attrs
import trio

from trio_mcp.stores.contract import StoreError
from trio_mcp.stores.valkey_address import EngineAddress
from trio_mcp.stores.valkey_client import EngineClient, EngineClock
from trio_mcp.stores.valkey_engine import examine
from trio_mcp.stores.valkey_stores import LAYOUT, check_prefix, unfit

__all__ = ["EngineInspection", "inspect_engine"]

TRIES: Final = 20
"""How many round trips are measured (arbitrary)."""

PATIENCE: Final = 5.0
"""Seconds to wait for the engine: as long as `ValkeyStores` waits by default."""


@attrs.frozen
class EngineInspection:
    """The result of `inspect_engine`.

    Attributes:
        place: The URL of the engine, without user and password.
        engine: Its name and version.
        cluster: Whether it is a node of a cluster.
        appends: Whether it writes an append-only file, without which a restart loses what was written last.
        memory: Bytes that all its data takes, also that of others.
        limit: The most bytes that it may take; 0 without a limit.
        prefix: The prefix.
        server: The name of the server that the prefix belongs to; None if none has used it yet.
        layout: The version of the keys.
        tasks: How many tasks there are, by status.
        running: How many of them a process holds.
        sessions: How many sessions there are.
        streams: How many of their streams are open.
        members: How many processes serve sessions, with those whose leases were lost.
        events: How many events of sessions there are, with those of sessions that ended of late.
        topics: How many topics have changed of late.
        longest_trip: The longest of several round trips, in seconds.
    """

    place: str
    engine: str
    cluster: bool
    appends: bool
    memory: int
    limit: int
    prefix: str
    server: str | None
    layout: str
    tasks: Mapping[str, int]
    running: int
    sessions: int
    streams: int
    members: int
    events: int
    topics: int
    longest_trip: float


async def inspect_engine(url: str, prefix: str) -> EngineInspection:
    """Inspect an engine and what lies there under a prefix, which processes may be using; this changes nothing.

    Raises:
        ImportError: If the extra ``valkey`` is not installed.
        StoreError: If the engine can't be used, or the prefix is that of no server, another program or another version.
        ValueError: If the URL or the prefix is invalid.
    """
    address = EngineAddress.parse(url)
    check_prefix(prefix)
    about, channel = f"{{{prefix}}}:about", f"{{{prefix}}}:wake"
    name = f"the prefix {prefix!r} of {address}"
    engine = await examine(address, channel, timeout=PATIENCE)
    client = EngineClient(address, engine.cluster, channel, PATIENCE, lambda _: None, lambda: None, EngineClock())
    try:
        await client.open()
        status, *found = await client.run("inspect", about, [LAYOUT])
        if status == b"none":
            raise StoreError(f"{name} is empty: no server has used it yet")
        if status != b"done":
            raise unfit(name, about, *found)
        longest = 0.0
        for _ in range(TRIES):
            began = time.monotonic()
            await client.ask("PING")
            longest = max(longest, time.monotonic() - began)
    finally:
        with trio.CancelScope(shield=True):
            await client.close()
    server, tasks, running, sessions, streams, members, events, topics = found
    return EngineInspection(
        place=str(address),
        engine=f"{engine.name} {engine.version}",
        cluster=engine.cluster,
        appends=engine.appends,
        memory=engine.memory,
        limit=engine.limit,
        prefix=prefix,
        server=None if server is None else server.decode(),
        layout=LAYOUT,
        tasks={status.decode(): count for status, count in sorted(zip(tasks[::2], tasks[1::2], strict=True))},
        running=running,
        sessions=sessions,
        streams=streams,
        members=members,
        events=events,
        topics=topics,
        longest_trip=longest,
    )
