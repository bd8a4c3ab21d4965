"""Attacks on a server in a separate process, while good clients call it, and what is left afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs
import httpx
import trio

from tests.hostile.attack import Attack, Fault, Lines, Sessions, Target
from tests.hostile.case import BASE_META, MODERN, Case
from trio_mcp import Client
from trio_mcp._nursery import background_nursery

ROOT = Path(__file__).resolve().parents[2]
LATENCY = 10.0
"""Seconds that a call of a good client may take at most while the server is attacked, on a busy machine."""

GROWTH = 64 * 1024 * 1024
"""Bytes that the resident memory of the server may grow by: not all that many connections take is given back."""


class Victim:
    """The server's process.

    Args:
        runner: What speaks HTTP in it.

    Attributes:
        target: Its addresses.
        fresh: Its state before the first call.
    """

    def __init__(self, runner: str = "hypercorn") -> None:
        self.runner = runner

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._errors = folder / "stderr"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-W",
                    "always::ResourceWarning",
                    "-m",
                    "tests.hostile.victim",
                    str(folder),
                    self.runner,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
            )
        line = self._line()
        urls = (line[name] for name in ("tls", "lines", "lines_tls"))
        tls, lines, lines_tls = (int(url.split(":")[2].partition("/")[0]) for url in urls)
        (tcp,) = (port for port in line["ports"] if port != tls)
        unix = line["unix"].removeprefix("unix:")
        self.target = Target(tcp, tls, lines, lines_tls, unix, line["certificate"], self.runner)
        self.fresh = self.state()
        return self

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server has ended: {self.errors}"
        value: dict[str, Any] = json.loads(line)
        return value

    def state(self) -> dict[str, Any]:
        """Return the server's state."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"state\n")
        self.process.stdin.flush()
        return self._line()

    @property
    def errors(self) -> str:
        """What it has written to its standard error."""
        return self._errors.read_text(errors="replace")

    def complaints(self) -> list[str]:
        return complaints(self.errors)

    def end(self) -> int:
        """SIGINT; the status it ends with."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)

    async def rest(self) -> dict[str, Any]:
        """Wait until nothing is under way, and every connection has been idle for too long; how the server is then."""
        state = self.state()
        with trio.move_on_after(20):
            while state["sessions"] or any(state["http"].values()) or state["tasks"] > self.fresh["tasks"]:
                await trio.sleep(0.2)
                state = self.state()
        return state

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self._folder.cleanup()


def complaints(errors: str) -> list[str]:
    """Return the lines of a standard error that matter: warnings, errors, tracebacks."""
    news = ("INFO ", "WARNING trio_mcp from the peer: ")
    return [line for line in errors.splitlines() if not line.startswith(news)]


@attrs.define
class Report:
    """The result of an attack.

    Attributes:
        outcomes: How often each came back, by family.
        faults: Cases with a wrong response, and what is wrong with it.
        latencies: Seconds of each call of the good clients, in order of size.
        failures: Failed calls of good clients.
        complaints: The messages on standard error of the server over stdio.
    """

    outcomes: dict[str, Counter[Any]] = attrs.Factory(dict)
    faults: list[tuple[Case, str]] = attrs.Factory(list)
    latencies: list[float] = attrs.Factory(list)
    failures: list[str] = attrs.Factory(list)
    complaints: list[str] = attrs.Factory(list)

    def quantile(self, part: float) -> float:
        return self.latencies[min(int(len(self.latencies) * part), len(self.latencies) - 1)]

    @property
    def said(self) -> str:
        """The faults, each with the command that reproduces it."""
        return "\n\n".join(
            f"{case}\n  {why}\n  {case.rule}\n  {case.shown()}\n  {case.replay}" for case, why in self.faults
        )


async def attack(target: Target, cases: Iterable[Case], *, attackers: int = 16, witnesses: bool = True) -> Report:
    """Run cases concurrently, while good clients call."""
    report, waiting = Report(), iter(cases)
    sessions = Sessions(target)
    lines = Lines()
    runner, over = Attack(target, sessions, lines), trio.Event()

    async def witness(name: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as exc:
            report.failures.append(f"{name}, after {len(report.latencies)} calls of all: {exc!r}, {exc.__cause__!r}")

    async def one_attacker() -> None:
        for case in waiting:
            try:
                outcomes = await runner.run(case)
            except* Fault as group:
                report.faults.append((case, "; ".join(str(exc) for exc in _leaves(group))))
            except* Exception as group:  # of the attack itself, or a connection that broke where none should
                report.faults.append((case, "; ".join(repr(exc) for exc in _leaves(group))))
            else:
                report.outcomes.setdefault(case.family, Counter()).update(outcomes)

    async with background_nursery() as beside:
        await beside.start(sessions.keep)
        await beside.start(lines.start)
        async with trio.open_nursery() as good:
            if witnesses:
                http, websocket = f"http://127.0.0.1:{target.tcp}/mcp", f"ws://127.0.0.1:{target.tcp}/ws"
                unix = f"unix:{target.unix}"
                for mode, url in ((MODERN, http), ("legacy", http), ("legacy", websocket), (MODERN, unix)):
                    good.start_soon(witness, url, partial(good_client, url, mode, report.latencies, over))
                good.start_soon(witness, "TLS", partial(good_tls_client, target, report.latencies, over))
            async with trio.open_nursery() as nursery:
                for _ in range(attackers):
                    nursery.start_soon(one_attacker)
            over.set()
        beside.cancel_scope.cancel("the attack is over")
    report.latencies.sort()
    report.complaints = complaints(lines.errors)
    return report


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterable[BaseException]:
    for exc in group.exceptions:
        if isinstance(exc, BaseExceptionGroup):
            yield from _leaves(exc)
        else:
            yield exc


async def good_client(url: str, mode: Any, latencies: list[float], over: trio.Event) -> None:
    """Call, and check the result, until the attack ends."""
    async with Client(url, mode=mode) as client:
        number = 0
        while not over.is_set():
            number += 1
            began = trio.current_time()
            result = await client.call_tool("add", {"a": number, "b": 1}, timeout=LATENCY)
            latencies.append(trio.current_time() - began)
            assert result.data == number + 1, result
            await trio.sleep(0.01)


async def good_tls_client(target: Target, latencies: list[float], over: trio.Event) -> None:
    """Do the same over TLS, and HTTP/2 if the server offers it, with a third-party client."""
    url = f"https://127.0.0.1:{target.tls}/mcp"
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "add"}
    headers["Accept"] = "application/json, text/event-stream"
    async with httpx.AsyncClient(http2=True, verify=target.context(), timeout=LATENCY, headers=headers) as http:
        number = 0
        while not over.is_set():
            number += 1
            params = {"_meta": BASE_META, "name": "add", "arguments": {"a": number, "b": 1}}
            began = trio.current_time()
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            response = await http.post(url, json=call)
            latencies.append(trio.current_time() - began)
            assert response.http_version == ("HTTP/2" if target.runner == "hypercorn" else "HTTP/1.1")
            assert response.json()["result"]["structuredContent"] == {"result": number + 1}
            await trio.sleep(0.01)
