"""The engine that the processes share, behind a proxy, and what happens to both."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs
import trio

from tests.chaos.events import Does, Event
from tests.chaos.processes import Served
from tests.redis_server import RedisServer, redis_server
from tests.tcp_faults import ProxyProcess

PREFIX = "chaos"

DOWN = 1.0, 3.0
"""Seconds for which the engine is not there, or its memory full, or it is a replica: at least, at most. Chosen."""

STOPPED = 1.5, 4.0
"""Seconds for which it is stopped, or its bytes are held: shorter and longer than a call waits. Chosen."""

CUT = 0.5
"""Seconds for which connections break as soon as a response would pass. Chosen."""

DROPPED = 10.0
"""Seconds for which all wake-ups are dropped. Chosen."""

SILENT = "did not respond|has closed the connection|can't be reached|was closed while|is loading its data"
"""What errors say while the engine does not respond."""

REFUSED = "has no memory left|is a replica"
"""What errors say of writes that the engine has refused, which have had no effect."""

LONGEST = 86_400.0 + 3_600.0
"""Seconds for which a key lives after its last use at most: an event lives for a day, and the engine has an hour."""

OF_SESSIONS = re.compile(r".*:(sessions?|streams|events|members?|mail|letters|opened|carried)(:.*)?")
"""The keys of sessions, and of processes that serve them, none of which there is once all have ended."""

STAYING = re.compile(rf"\{{{PREFIX}\}}:(about|[\w-]+:states?:.*)")
"""The keys that have no end: the one of the prefix, and the states of users, which have none by default."""


@attrs.frozen
class SharedEngine:
    """An engine of `ValkeyStores`, which has an append-only file.

    With ``appendfsync everysec`` it may hold back for two seconds what it has acknowledged, if its disk is slow.
    """

    away: ClassVar[dict[str, str]] = {
        "engine killed": SILENT,
        "engine stopped": SILENT,
        "connections cut": SILENT,
        "responses cut": SILENT,
        "bytes held": SILENT,
        "memory full": "has no memory left",
        "engine read-only": "is a replica",
    }
    lockable: ClassVar[bool] = False
    _engine: RedisServer
    _proxy: ProxyProcess

    @classmethod
    @contextlib.asynccontextmanager
    async def below(cls, folder: Path) -> AsyncIterator[Self]:
        """Run an engine for the block, whose log is left in a folder."""
        with redis_server("--appendonly", "yes", "--appendfsync", "always") as engine:
            try:
                async with ProxyProcess.to(f"{engine.folder}/socket") as proxy:
                    yield cls(engine, proxy)
            finally:
                shutil.copy(engine.folder / "log", folder / "engine.log")

    @property
    def settings(self) -> dict[str, Any]:
        return {"engine": f"valkey://127.0.0.1:{self._proxy.port}/0", "prefix": PREFIX}

    def events(self, served: Served, rng: random.Random) -> dict[str, Does]:
        """Return what can happen to it."""

        async def kill(event: Event) -> None:
            # Where it ran, connections are refused; or they are closed, as by a proxy in between.
            async with self._proxy_is(rng.choice(("refusing", "passing"))):
                self._engine.kill()
                await trio.sleep(rng.uniform(*DOWN))
                await trio.to_thread.run_sync(self._start)

        async def stop(event: Event) -> None:
            with self._engine.stopped():
                await trio.sleep(rng.uniform(*STOPPED))

        async def follow(event: Event) -> None:
            # A replica whose primary does not exist keeps its data.
            await self._ask("REPLICAOF", "127.0.0.1", "1")
            await trio.sleep(rng.uniform(*DOWN))
            await self._ask("REPLICAOF", "NO", "ONE")

        async def fill(event: Event) -> None:
            await self._ask("CONFIG", "SET", "maxmemory", "1")
            await trio.sleep(rng.uniform(*DOWN))
            await self._ask("CONFIG", "SET", "maxmemory", "0")

        def proxied(habit: str, least: float, most: float) -> Does:
            async def happen(event: Event) -> None:
                async with self._proxy_is(habit):
                    await trio.sleep(rng.uniform(least, most))

            return happen

        return {
            "engine killed": kill,
            "engine stopped": stop,
            "connections cut": proxied("broken", 0, 0),
            "responses cut": proxied("cutting", CUT, CUT),
            "bytes held": proxied("holding", *STOPPED),
            "memory full": fill,
            "engine read-only": follow,
            "wake-ups dropped": proxied("deaf", DROPPED, DROPPED),
        }

    def left(self) -> list[str]:
        """Return the keys that never end, except those that shall not, that live too long, and of ended sessions."""
        found = []
        for key in sorted(self._engine.keys("*")):
            if STAYING.fullmatch(key):
                continue
            milliseconds = int(self._engine.ask("PTTL", key))
            if OF_SESSIONS.fullmatch(key):
                found.append(f"a key of an ended session or process: {key}")
            elif milliseconds == -1:
                found.append(f"a key without an end: {key}")
            elif milliseconds > 1000 * LONGEST:
                found.append(f"a key that lives for {milliseconds / 1000:.0f} s: {key}")
        return found

    @contextlib.asynccontextmanager
    async def _proxy_is(self, habit: str) -> AsyncIterator[None]:
        await self._proxy.be(habit)
        yield
        await self._proxy.be("passing")

    def _start(self) -> None:
        self._engine.start()
        while "loading:0" not in self._engine.ask("INFO", "persistence"):
            time.sleep(0.05)

    async def _ask(self, *words: str) -> str:
        return await trio.to_thread.run_sync(lambda: self._engine.ask(*words))
