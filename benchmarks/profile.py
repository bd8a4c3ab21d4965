"""Show where the time of a call goes: ``python -m benchmarks.profile memory``, or ``http-client``.

There are two views of the loop that the scenario of that name measures. The default samples the running stack on a
timer, which hardly slows it down, and attributes C code to the line that called it. ``--calls`` uses cProfile, which
counts calls exactly but overstates the cost of small Python functions.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import pstats
import signal
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from benchmarks.load.http import HttpServer
from benchmarks.load.worker import throughput
from benchmarks.options import Parser, duration, whole_number
from benchmarks.scenarios import http_client, memory
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# scenario -> its contenders, each a module in contenders/ and a variant; the default comes first
CONTENDERS = {
    "memory": [*(memory.OURS | memory.PEER | memory.BARE).values()],
    "http-client": [
        (each.module, each.era)
        for each in (http_client.CLIENTS | http_client.PEER_CLIENTS).values()
        if each.server == http_client.FAST
    ],
}
_INTERVAL = 0.001  # seconds of CPU time between samples


class Sampler:
    """A sampler that counts the running function and line, and all functions on the stack, at each tick of CPU time."""

    def __init__(self) -> None:
        self.ticks = 0
        self.own: Counter[tuple[str, str]] = Counter()
        self.lines: Counter[tuple[str, int]] = Counter()
        self.total: Counter[tuple[str, str]] = Counter()

    def _tick(self, signum: int, frame: FrameType | None) -> None:
        self.ticks += 1
        seen: set[tuple[str, str]] = set()
        innermost = True
        while frame is not None:
            code = frame.f_code
            function = (code.co_filename, code.co_qualname)
            if innermost:
                self.own[function] += 1
                self.lines[code.co_filename, frame.f_lineno] += 1
                innermost = False
            seen.add(function)
            frame = frame.f_back
        self.total.update(seen)

    @contextmanager
    def running(self) -> Iterator[None]:
        previous = signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, previous)

    def report(self, top: int, call_time: float) -> str:
        """Return the report: functions by own time and by total time, then lines by own time.

        Args:
            top: How many entries each list has.
            call_time: The CPU time of one call, on both sides, in µs.
        """

        def entry(count: int, place: str) -> str:
            return f"  {100 * count / self.ticks:5.1f} %  {call_time * count / self.ticks:6.2f} µs  {place}"

        lines = [
            f"{self.ticks} samples, {call_time:.1f} µs of CPU time per call",
            "",
            "functions, own time:",
        ]
        lines += [entry(n, f"{_short(file)} {name}") for (file, name), n in self.own.most_common(top)]
        lines += ["", "functions, with what they call:"]
        lines += [entry(n, f"{_short(file)} {name}") for (file, name), n in self.total.most_common(top)]
        lines += ["", "lines, own time:"]
        lines += [entry(n, f"{_short(file)}:{number}") for (file, number), n in self.lines.most_common(top)]
        return "\n".join(lines)


def _short(file: str) -> str:
    """Return a path relative to where packages are installed, and its last three parts at most."""
    parts = Path(file).parts
    if "site-packages" in parts:
        parts = parts[len(parts) - parts[::-1].index("site-packages") :]
    return "/".join(parts[-3:])


async def _profile(arguments: argparse.Namespace) -> None:
    with ExitStack() as stack:
        given = arguments.contender.split(":")
        if arguments.scenario == "http-client":
            server = stack.enter_context(closing(HttpServer(server_command(*http_client.FAST))))
            server.wait_ready()
            given.append(server.url)
        await _profile_contender(arguments, *given)


async def _profile_contender(arguments: argparse.Namespace, module: str, *given: str) -> None:
    contender = importlib.import_module(f"benchmarks.contenders.{module}")
    async with contender.connect(*given) as call:
        await throughput(call, arguments.in_flight, 0.3)
        if arguments.calls:
            profiler = cProfile.Profile()
            profiler.enable()
            await throughput(call, arguments.in_flight, arguments.seconds)
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(arguments.top)
            return
        sampler = Sampler()
        calls = 0

        async def counted(a: int, b: int) -> int:
            nonlocal calls
            calls += 1
            return await call(a, b)  # type: ignore[no-any-return]

        started = time.process_time()
        with sampler.running():
            await throughput(counted, arguments.in_flight, arguments.seconds)
        print(sampler.report(arguments.top, 1e6 * (time.process_time() - started) / calls))


def main(arguments: list[str] | None = None) -> None:
    """Profile what `arguments` choose, and print it."""
    parser = Parser(prog="python -m benchmarks.profile", description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", choices=CONTENDERS)
    parser.add_argument("--contender", metavar="MODULE:VARIANT", help="what to profile (default ours, modern)")
    parser.add_argument("--in-flight", type=whole_number, default=1, metavar="N", help="calls outstanding (default 1)")
    parser.add_argument("--seconds", type=duration, default=5.0, help="how long to watch (default 5)")
    parser.add_argument("--top", type=whole_number, default=30, help="functions and lines to print (default 30)")
    parser.add_argument("--calls", action="store_true", help="count calls with cProfile instead of sampling")
    chosen = parser.parse_args(arguments)
    known = list(dict.fromkeys(":".join(each) for each in CONTENDERS[chosen.scenario]))
    chosen.contender = chosen.contender or known[0]
    if chosen.contender not in known:
        parser.error(f"{chosen.contender!r} is not in {chosen.scenario}: choose from {', '.join(known)}")
    trio.run(_profile, chosen)


if __name__ == "__main__":
    main()
