"""A whole run: processes, lanes, phases, samples."""

from __future__ import annotations

import json
import os
import random
import signal
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import psutil
import trio

import trio_mcp
from tests.server.http.certificate import over_tls
from tests.soak.calls import ask, listen, log
from tests.soak.figures import figures, trim
from tests.soak.lanes import Lane, Load
from tests.soak.processes import Served, kill_children_now_and_then, outside, restart_now_and_then
from tests.soak.record import Ledger, Record
from tests.soak.serve import stdio_parameters
from tests.soak.tools import make_server
from trio_mcp import HttpServerParameters
from trio_mcp.low_level import streamable_http_client
from trio_mcp.testing import FaultProxy, random_faults

LONG = 10.0
"""A run of at least this many minutes settles in the middle as well."""


@attrs.frozen(kw_only=True)
class Plan:
    """The options of the command line."""

    minutes: float
    seed: int
    out: Path
    runner: str
    rate: float
    only: tuple[str, ...]
    session_timeout: float
    max_events: int
    restart_every: float


class Soak:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.out = plan.out
        self.record = Record(plan.out)
        self.load = Load(self.record, plan.rate, plan.seed)
        self.torn: dict[str, FaultProxy] = {}
        self.resumed = 0
        self.served: dict[str, Served] = {}
        self.lanes: list[Lane] = []
        self.settled: list[dict[str, Any]] = []
        self.started = time.time()
        self._memory = make_server(Ledger(plan.out / "effects.log"), "memory")
        self._samples = (plan.out / "samples.jsonl").open("w")
        self._phase = "start"
        self._context: ssl.SSLContext | None = None

    # --- what there is -------------------------------------------------------------------------------------------

    def _make_servers(self) -> None:
        folder = self.out / "tls"
        folder.mkdir(exist_ok=True)
        config, self._context = over_tls(folder)
        common = {
            "session_timeout": self.plan.session_timeout,
            "max_events": self.plan.max_events,
            "runner": self.plan.runner,
        }
        steady = ("stored", "plain", "stateless", "tls")
        certificate = [config.certfile, config.keyfile]
        self.served["steady"] = Served("steady", self.out, ports=steady, certificate=certificate, **common)
        self.served["mortal"] = Served("mortal", self.out, ports=["stored"], **common)

    def _make_proxies(self) -> None:
        upstreams = {
            "of-mortal": {"url": url(self.served["mortal"].ports["stored"]), "mode": "legacy"},
            "of-stdio": {"url": None, "mode": "auto"},
            "of-steady": {"url": self.torn["plain"].url, "mode": "2026-07-28"},
        }
        self.served["proxies"] = Served(
            "proxies",
            self.out,
            kind="proxies",
            ports=upstreams,
            upstreams=upstreams,
            session_timeout=self.plan.session_timeout,
            runner=self.plan.runner,
        )

    def _torn(self) -> dict[str, FaultProxy]:
        """Return proxies that treat connections as networks do."""
        ports = {**self.served["steady"].ports, "mortal": self.served["mortal"].ports["stored"]}
        return {
            name: FaultProxy(url(port), random_faults(f"{self.plan.seed}-{name}"), on_sent=self._see)
            for name, port in ports.items()
        }

    def _see(self, data: bytes) -> None:
        self.resumed += data.startswith(b"GET ") and b"last-event-id:" in data.lower()

    def _make_lanes(self) -> None:
        steady = self.served["steady"].ports
        torn = {name: proxy.port for name, proxy in self.torn.items()}
        proxies = self.served["proxies"].ports

        def to(port: int) -> Callable[[], str]:
            return lambda: url(port)

        def sse(port: int) -> Callable[[], HttpServerParameters]:
            return lambda: HttpServerParameters(f"http://127.0.0.1:{port}/sse", kind="sse")

        def stdio(name: str) -> Callable[[], Any]:
            return lambda: stdio_parameters(str(self.out), name)

        def tls(port: int, http2: bool) -> Callable[[], Any]:
            return lambda: self._over_tls(port, http2)

        modern, legacy = "2026-07-28", "legacy"
        none_asked = (ask,)  # an upstream of the legacy era can't say whose question it is
        self.lanes = [
            Lane(name="memory-modern", target=lambda: self._memory, mode=modern),
            Lane(name="memory-legacy", target=lambda: self._memory, mode=legacy),
            Lane(name="stdio-modern", target=stdio("stdio"), mode=modern, calls=400),
            Lane(name="stdio-legacy", target=stdio("stdio-killed"), mode=legacy, calls=400, tears=True),
            Lane(name="http-modern", target=to(steady["stored"]), mode=modern),
            Lane(name="http-legacy", target=to(steady["stored"]), mode=legacy),
            Lane(name="sse", target=sse(steady["stored"]), mode=legacy),
            Lane(name="stateless", target=to(steady["stateless"]), mode=legacy, without=(ask, listen, log)),
            Lane(name="tls-h1", target=tls(steady["tls"], False), mode="auto"),
            # A request that is cancelled while it is written breaks httpx's connection of HTTP/2, which others share.
            Lane(name="tls-h2", target=tls(steady["tls"], True), mode="auto", tears=True, breaks=True),
            Lane(name="torn-modern", target=to(torn["plain"]), mode=modern, tears=True, workers=2),
            Lane(name="torn-stored", target=to(torn["stored"]), mode=legacy, tears=True, workers=3),
            Lane(name="torn-plain", target=to(torn["plain"]), mode=legacy, tears=True, workers=2),
            Lane(name="torn-sse", target=sse(torn["stored"]), mode=legacy, tears=True, workers=2),
            Lane(
                name="torn-stateless",
                target=to(torn["stateless"]),
                mode=legacy,
                tears=True,
                without=(ask, listen, log),
            ),
            Lane(name="torn-h1", target=tls(torn["tls"], False), mode="auto", tears=True),
            Lane(name="torn-h2", target=tls(torn["tls"], True), mode="auto", tears=True, breaks=True),
            Lane(name="mortal-modern", target=to(torn["mortal"]), mode=modern, tears=True),
            Lane(name="mortal-legacy", target=to(torn["mortal"]), mode=legacy, tears=True),
            Lane(name="mortal-auto", target=to(torn["mortal"]), mode="auto", tears=True),
            Lane(name="proxy-of-mortal", target=to(proxies["of-mortal"]), mode=modern, tears=True, without=none_asked),
            Lane(name="proxy-of-stdio", target=to(proxies["of-stdio"]), mode=legacy, without=none_asked),
            Lane(name="proxy-of-steady", target=to(proxies["of-steady"]), mode=legacy, tears=True),
        ]
        if self.plan.runner != "hypercorn":  # which alone speaks HTTP/2
            self.lanes = [lane for lane in self.lanes if not lane.name.endswith("-h2")]
        members = ("memory-modern", "stdio-modern", "torn-stored", "torn-modern", "mortal-auto")
        by_name = {lane.name: lane for lane in self.lanes}
        self.lanes.append(Lane(name="group", calls=150, workers=2, members={name: by_name[name] for name in members}))
        if self.plan.only:
            self.lanes = [lane for lane in self.lanes if lane.name in self.plan.only]

    @asynccontextmanager
    async def _over_tls(self, port: int, http2: bool) -> AsyncIterator[Any]:
        assert self._context is not None
        async with httpx.AsyncClient(verify=self._context, http2=http2, trust_env=False) as http:
            yield lambda: streamable_http_client(f"https://127.0.0.1:{port}/mcp", http_client=http)

    # --- the run -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Warm up, settle, put the load on, settle again; a long run does so twice."""
        print(f"seed {self.plan.seed}, {self.plan.runner}, {trio_mcp.__file__}", flush=True)
        self._make_servers()
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            try:
                for served in self.served.values():
                    await served.start()
                self.torn = self._torn()
                for proxy in self.torn.values():
                    proxy.calm = True  # the proxies connect to their servers as they start, and end if they can't
                    await stack.enter_async_context(proxy)
                self._make_proxies()
                await self.served["proxies"].start()
                self._make_lanes()
                nursery.start_soon(self._sample)
                nursery.start_soon(self._tell)
                seconds = self.plan.minutes * 60
                warm_up = min(240.0, seconds / 4)
                await self._loaded("warm-up", warm_up)
                await self._settle()
                # In a long run the caches fill in the first half; the second must add nothing.
                parts = 2 if self.plan.minutes >= LONG else 1
                for _ in range(parts):
                    await self._loaded("load", (seconds - warm_up) / parts)
                    await self._settle()
                await self._trim()
            finally:
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    for served in self.served.values():
                        await served.end(signal.SIGTERM)
                        served.release()
        self.record.flush()

    async def _loaded(self, phase: str, seconds: float) -> None:
        self._phase = phase
        for proxy in self.torn.values():
            proxy.calm = False
        rng = random.Random(f"{self.plan.seed}-{phase}-{len(self.settled)}")
        async with trio.open_nursery() as nursery:
            if not self.plan.only or any("mortal" in name or name == "group" for name in self.plan.only):
                nursery.start_soon(restart_now_and_then, self.served["mortal"], rng, self.plan.restart_every)
            spared = {served.pid for served in self.served.values() if served.pid is not None}
            nursery.start_soon(kill_children_now_and_then, rng, self.plan.restart_every, spared)
            await self.load.run(self.lanes, seconds)
            nursery.cancel_scope.cancel()

    async def _settle(self) -> None:
        """Stop breaking connections: every lane must answer, and everything that the load has left must go away."""
        self._phase = "calm"
        for proxy in self.torn.values():
            proxy.calm = True
        async with trio.open_nursery() as nursery:
            for lane in self.lanes:
                nursery.start_soon(self.load.calm, lane, 5)
        began = time.monotonic()
        while True:  # sessions that were never ended last until they expire
            said = {name: await served.measured() for name, served in self.served.items()}
            left = {name: busy(each["servers"]) for name, each in said.items() if name != "mortal"}
            if not any(left.values()):
                break
            if time.monotonic() - began > self.plan.session_timeout + 60:
                self.record.violation("not idle", left=left)
                break
            await trio.sleep(1)
        await trio.sleep(12)  # idle connections are closed after five seconds, idle threads after ten
        said = {name: await served.measured() for name, served in self.served.items()}
        settled: dict[str, Any] = {name: {**each, **outside(each["pid"])} for name, each in said.items()}
        settled["driver"] = {**(await figures([self._memory])), **outside(os.getpid()), "children": children()}
        settled["starts"] = {name: served.starts for name, served in self.served.items()}
        self.settled.append(settled)

    async def _trim(self) -> None:
        """Find out at the very end how much resident memory is not in use."""
        for name, served in self.served.items():
            said = await served.measured(signal.SIGUSR2)
            self.settled[-1][name]["trimmed"] = outside(said["pid"])["rss"]
        trim()
        self.settled[-1]["driver"]["trimmed"] = outside(os.getpid())["rss"]

    # --- what is seen on the way ---------------------------------------------------------------------------------

    async def _sample(self) -> None:
        """Write a line of samples every five seconds, with objects every thirty."""
        every = 0
        while True:
            line: dict[str, Any] = {"time": round(time.time() - self.started, 1), "phase": self._phase}
            pids = {name: served.pid for name, served in self.served.items()}
            for name, pid in {**pids, "driver": os.getpid()}.items():
                try:
                    line[name] = {} if pid is None else outside(pid)
                except psutil.Error:
                    line[name] = {}
            line["calls"] = sum(self.record.outcomes.values())
            line["driver"]["tasks"] = trio.lowlevel.current_statistics().tasks_living
            if every % 6 == 0:
                line["driver"].update(await figures([self._memory]))
                for name in ("steady", "proxies"):
                    line[name].update(await self.served[name].measured())
            self._samples.write(json.dumps(line) + "\n")
            self._samples.flush()
            self.record.flush()
            every += 1
            await trio.sleep(5)

    async def _tell(self) -> None:
        """Print a line a minute."""
        while True:
            await trio.sleep(30 if self.plan.minutes < 10 else 60)
            totals: dict[str, int] = {}
            for (_, outcome), number in self.record.outcomes.items():
                totals[outcome] = totals.get(outcome, 0) + number
            pids = {name: served.pid for name, served in self.served.items()}
            rss = {}
            for name, pid in {**pids, "driver": os.getpid()}.items():
                if pid is not None and psutil.pid_exists(pid):
                    rss[name] = f"{outside(pid)['rss'] / 2**20:.1f}"
            passed = time.time() - self.started
            told = f"{passed:6.0f} s {self._phase}: {totals}, MiB {rss}, broken promises {len(self.record.violations)}"
            print(told, flush=True)


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


def children() -> int:
    return len(psutil.Process().children())


def busy(servers: list[dict[str, Any]]) -> dict[str, int]:
    """Return the servers' work that should have ended and has not."""
    must_end = ("running", "queued", "parked", "messages_waiting")
    found = {field: sum(each[field] for each in servers) for field in must_end}
    found["http sessions"] = sum(http["sessions"] + http["sse_sessions"] for each in servers for http in each["http"])
    found["requests"] = sum(each["incoming"] - each["listening"] for each in servers)  # a proxy listens forever
    return {field: number for field, number in found.items() if number}
